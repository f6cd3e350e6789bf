/* Suspects: groups, runs alone, poison; and the gate of a process: the turns of its three workers. */
#include "worker_bench.h"

static void reclaimed(size_t count)
{
    take_reclaim();
    give(READ_RECLAIM, ORIGIN_RECLAIMED, count);
}

/* They are charged with one call before they start; from then on they are requests like others. */
WORKER_TEST(suspects_run_in_groups)
{
    BEGIN_WITH(default_options(), with.max_batch_rows = 32, with.max_batch_tokens = 1000);
    reclaimed(100);
    struct action charge = take(ACTION_RECORD_RUN);
    assert_int_equal(charge.requests.count, 64);
    assert_int_equal(waiting(ACTION_PREPARE) + waiting(ACTION_RECORD_RUN), 0);
    send_requests(EVENT_RUN_RECORDED, charge.requests, false);
    assert_int_equal(waiting(ACTION_PREPARE), 2);
    read_new(3);
    assert_int_equal(waiting(ACTION_PREPARE), 3);
    prepare_all(4);
    uint32_t rows = answer_batch(STATUS_OK);
    while (rows < 64 + 3) { rows += answer_batch(STATUS_OK); }
    format_all();
    assert_int_equal(waiting(ACTION_RECORD_RUN), 0); /* nobody has ended yet */
    settle_all();
    charge = take(ACTION_RECORD_RUN);
    assert_in_range(charge.requests.count, 32, 36);
    assert_int_equal(waiting(ACTION_RECORD_RUN), 0);
}

/* Beside online requests bulk work may wait: it has half of a group at most, and the others go before it. */
WORKER_TEST(bulk_suspects_hold_up_no_others)
{
    read_new(2);
    take_reclaim();
    give_like(READ_RECLAIM, (struct entry){.class = CLASS_LOW, .origin = ORIGIN_RECLAIMED}, 100, true);
    struct action charge = take(ACTION_RECORD_RUN);
    assert_int_equal(charge.requests.count, 32);
    send_requests(EVENT_RUN_RECORDED, charge.requests, false);
    assert_int_equal(waiting(ACTION_RECORD_RUN), 0);
    (void)take(ACTION_RECLAIM);
    give_like(READ_RECLAIM, (struct entry){.class = CLASS_HIGH, .origin = ORIGIN_RECLAIMED}, 5, true);
    charge = take(ACTION_RECORD_RUN);
    assert_int_equal(charge.requests.count, 5);
    assert_int_equal(charge.requests.first->identity.class, CLASS_HIGH);
    send_requests(EVENT_RUN_RECORDED, charge.requests, false);
}

/* It is charged before it starts; nothing else starts, and nothing is read, until its settle is confirmed. */
WORKER_TEST(a_suspect_with_a_crash_on_record_runs_alone)
{
    take_reclaim();
    give_loners(2);
    assert_int_equal(waiting(ACTION_RECORD_RUN), 0); /* a read is out */
    read_new(2);
    assert_int_equal(waiting(ACTION_PREPARE) + waiting(ACTION_READ), 0);
    answer_chores();
    struct action charge = take(ACTION_RECORD_RUN);
    assert_int_equal(charge.requests.count, 1);
    charge.requests.first->retry.quarantine_runs = 1;
    send_requests(EVENT_RUN_RECORDED, charge.requests, false);
    prepare_all(4);
    assert_int_equal(answer_batch(STATUS_OK), 1);
    format_all();
    assert_int_equal(waiting(ACTION_PREPARE) + waiting(ACTION_RECORD_RUN), 0);
    tick_after_ms(EXCLUSIVE_SLICE_MS);
    settle(false);
    assert_int_equal(waiting(ACTION_RECORD_RUN), 0); /* its time is over */
    assert_int_equal(waiting(ACTION_READ), 1);
    prepare_all(4);
    assert_int_equal(answer_batch(STATUS_OK), 2);
    format_all();
    settle(false);
    tick_after_ms(EXCLUSIVE_SLICE_MS);
    come_to_rest();
    assert_int_equal(waiting(ACTION_RECORD_RUN), 1);
}

/* The crash was not known until the answer came: the suspect then joins those that run alone. */
WORKER_TEST(who_has_a_crash_on_record_is_for_no_group)
{
    reclaimed(3);
    struct action charge = take(ACTION_RECORD_RUN);
    charge.requests.first->next->lifetime.verdict = VERDICT_ALONE;
    send_requests(EVENT_RUN_RECORDED, charge.requests, false);
    prepare_all(4);
    assert_int_equal(answer_batch(STATUS_OK), 2);
    format_all();
    assert_int_equal(settle(false), 2);
    come_to_rest();
    charge = take(ACTION_RECORD_RUN);
    assert_int_equal(charge.requests.count, 1);
    assert_int_equal(charge.requests.first->identity.entry.ms, 2);
    assert_true(charge.requests.first->retry.quarantined);
    send_requests(EVENT_RUN_RECORDED, charge.requests, true);
}

/* It was taken over several times: until it is charged, no other is taken over. */
WORKER_TEST(an_urgent_suspect_is_charged_first)
{
    read_new(1);
    take_reclaim();
    give_one(READ_RECLAIM, (struct entry){.class = CLASS_NORMAL, .origin = ORIGIN_RECLAIMED, .urgent = true},
             FIELDS("text", "word"));
    struct action charge = take(ACTION_RECORD_RUN);
    tick_after_ms(600);
    assert_int_equal(waiting(ACTION_RECLAIM), 0);
    send_requests(EVENT_RUN_RECORDED, charge.requests, false);
    tick_after_ms(600);
    assert_int_equal(waiting(ACTION_RECLAIM), 1);
}

/* A run alone may kill the process, which would be one more takeover of a suspect that is not charged yet. */
WORKER_TEST(an_urgent_suspect_goes_before_runs_alone)
{
    take_reclaim();
    give_loners(1);
    give_one(READ_RECLAIM, (struct entry){.class = CLASS_NORMAL, .origin = ORIGIN_RECLAIMED, .urgent = true},
             FIELDS("text", "word"));
    struct action charge = take(ACTION_RECORD_RUN);
    assert_int_equal(charge.requests.count, 1);
    assert_true(charge.requests.first->retry.urgent);
    send_requests(EVENT_RUN_RECORDED, charge.requests, false);
    prepare_all(4);
    assert_int_equal(answer_batch(STATUS_OK), 1);
    format_all();
    assert_int_equal(settle(false), 1);
    tick_after_ms(EXCLUSIVE_SLICE_MS);
    come_to_rest();
    charge = take(ACTION_RECORD_RUN);
    assert_true(charge.requests.first->retry.quarantined);
    send_requests(EVENT_RUN_RECORDED, charge.requests, true);
}

/* Waiting suspects are forgotten, and others find them under a dead worker's name; those that may have been charged are
 * given back, so that the charge is removed. */
WORKER_TEST(suspects_of_a_lost_lease_are_charged_nothing)
{
    tick_after_ms(1000);
    (void)take(ACTION_RECLAIM);
    give(READ_RECLAIM, ORIGIN_RECLAIMED, 70);
    lose_lease_key();
    assert_int_equal(worker_stats(bench.worker).held, 64);
    struct action charge = take(ACTION_RECORD_RUN);
    send_requests(EVENT_RUN_RECORDED, charge.requests, true);
    assert_int_equal(waiting(ACTION_RELEASE), 0);
    tick_after_ms(200);
    struct action release = take(ACTION_RELEASE);
    assert_int_equal(release.requests.count, 64);
    assert_false(release.last);
    send_requests(EVENT_RELEASED, release.requests, false);
    assert_int_equal(worker_stats(bench.worker).held, 0);
}

/* The connection breaks before the worker has come back under a new name, so it finds them in its own list again. */
WORKER_TEST(suspects_of_a_lost_lease_stay_suspect)
{
    tick_after_ms(1000);
    (void)take(ACTION_RECLAIM);
    give_loners(2);
    assert_int_equal(waiting(ACTION_RECORD_RUN), 0); /* a read is out */
    lose_lease_key();
    assert_int_equal(worker_stats(bench.worker).held, 0);
    break_connection();
    connected();
    (void)take(ACTION_READ_OWN);
    bench.next_entry = 0;
    give(READ_OWN, ORIGIN_OWN, 2);
    assert_int_equal(waiting(ACTION_PREPARE), 0);
    assert_int_equal(take(ACTION_RECORD_RUN).requests.count, 2); /* and the script reports that they are for no group */
}

WORKER_TEST(three_lonely_crashes_are_poison)
{
    take_reclaim();
    static const struct entry_field field = {"text", 4, "word", 4};
    struct entry entry = {.class = CLASS_NORMAL,
                          .id = {9, 0},
                          .origin = ORIGIN_RECLAIMED,
                          .quarantine_runs = 3,
                          .fields = &field,
                          .field_count = 1};
    ANSWER_ENTRIES(.source = READ_RECLAIM, .entries = &entry, .count = 1);
    struct action action = take(ACTION_SETTLE);
    assert_int_equal(action.requests.first->lifetime.outcome, OUTCOME_DEAD);
    assert_int_equal(action.requests.first->retry.code, CODE_POISON);
    assert_int_equal(waiting(ACTION_RECORD_RUN), 0);
}

/* It is answered, with a dead letter, whichever of its fields the script has left. */
WORKER_TEST(an_unread_entry_is_poison)
{
    take_reclaim();
    struct entry entry = {.class = CLASS_NORMAL, .origin = ORIGIN_RECLAIMED, .unread = true};
    give_one(READ_RECLAIM, entry, FIELDS("_id", "low:1-1", "id", "order", "notify", "1"));
    struct request seen = settle_one(VERDICT_NOT_ITS_NAME);
    assert_string_equal(seen.identity.name, "low:1-1");
    seen = settle_one(VERDICT_DONE);
    assert_int_equal(seen.lifetime.outcome, OUTCOME_DEAD);
    assert_int_equal(seen.retry.code, CODE_POISON);
    assert_false(seen.retry.retryable);
    assert_string_equal(seen.identity.id, "order");
    assert_true(seen.output.notify);
    assert_int_equal(waiting(ACTION_RECORD_RUN), 0);
    assert_int_equal(worker_stats(bench.worker).held, 0);
}

/* --- the gate of a process --- */

enum { COUNT = 3 };

static struct process {
    struct exclusive_worker workers[COUNT];
    struct exclusive exclusive;
    enum turn told[COUNT];
    uint64_t now;
    bool rest;
} process;

static int begin_process(void **state)
{
    (void)state;
    process = (struct process){.now = NS_PER_S, .rest = true};
    process.exclusive = (struct exclusive){.workers = process.workers, .count = COUNT};
    return 0;
}

#define PROCESS_TEST(name) TEST_WITH(name, begin_process, NULL)

static void tell_workers(void)
{
    size_t who;
    enum turn turn;
    while (exclusive_next(&process.exclusive, process.now, process.rest, &who, &turn)) {
        assert_true(process.told[who] != turn);
        process.told[who] = turn;
    }
}

static void expect_turns(enum turn first, enum turn second, enum turn third)
{
    tell_workers();
    assert_int_equal(process.told[0], first);
    assert_int_equal(process.told[1], second);
    assert_int_equal(process.told[2], third);
}

PROCESS_TEST(nobody_asks_nobody_is_told)
{
    expect_turns(TURN_TOGETHER, TURN_TOGETHER, TURN_TOGETHER);
    assert_true(exclusive_deadline(&process.exclusive) == UINT64_MAX);
}

PROCESS_TEST(all_rest_before_one_is_alone)
{
    process.rest = false;
    exclusive_ask(&process.exclusive, 1);
    expect_turns(TURN_REST, TURN_REST, TURN_REST);
    expect_turns(TURN_REST, TURN_REST, TURN_REST);
    process.rest = true;
    expect_turns(TURN_REST, TURN_EXCLUSIVE, TURN_REST);
    exclusive_end(&process.exclusive, 1, process.now);
    expect_turns(TURN_TOGETHER, TURN_TOGETHER, TURN_TOGETHER);
}

/* Each worker runs alone in its turn, and between two turns all work together. */
PROCESS_TEST(who_asks_again_waits_for_the_others)
{
    static const size_t order[] = {1, 2, 0, 1, 2, 0};
    for (size_t who = 0; who < COUNT; who++) { exclusive_ask(&process.exclusive, who); }
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        tell_workers();
        for (size_t who = 0; who < COUNT; who++) {
            assert_int_equal(process.told[who], who == order[i] ? TURN_EXCLUSIVE : TURN_REST);
        }
        process.now += NS_PER_S;
        exclusive_end(&process.exclusive, order[i], process.now);
        exclusive_ask(&process.exclusive, order[i]);
        expect_turns(TURN_TOGETHER, TURN_TOGETHER, TURN_TOGETHER);
        uint64_t opens = exclusive_deadline(&process.exclusive);
        assert_true(opens == process.now + EXCLUSIVE_SLICE_MS * NS_PER_MS);
        process.now = opens - 1;
        expect_turns(TURN_TOGETHER, TURN_TOGETHER, TURN_TOGETHER);
        process.now = opens;
    }
}

PROCESS_TEST(who_ends_while_all_come_to_rest_holds_up_nobody)
{
    process.rest = false;
    exclusive_ask(&process.exclusive, 2);
    exclusive_ask(&process.exclusive, 1);
    expect_turns(TURN_REST, TURN_REST, TURN_REST);
    exclusive_end(&process.exclusive, 1, process.now);
    expect_turns(TURN_TOGETHER, TURN_TOGETHER, TURN_TOGETHER);
    process.now = exclusive_deadline(&process.exclusive);
    process.rest = true;
    expect_turns(TURN_REST, TURN_REST, TURN_EXCLUSIVE);
    exclusive_end(&process.exclusive, 0, process.now); /* ends nothing: this worker has not asked */
    expect_turns(TURN_REST, TURN_REST, TURN_EXCLUSIVE);
}
