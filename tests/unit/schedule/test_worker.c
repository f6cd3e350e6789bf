/* The worker's rules one by one, by hand. Rules for special requests are in test_worker_life.c. */
#include "worker_bench.h"

#include "schedule/worker/read.h"

WORKER_TEST(a_request_goes_its_way)
{
    assert_int_equal(bench.out[0].kind, ACTION_READ);
    assert_int_equal(bench.out[0].read.block_ms, 2000);
    read_and_prepare(1, 4);
    assert_int_equal(answer_batch(STATUS_OK), 1); /* an idle engine does not wait */
    format_all();
    struct action action = bench.out[bench.count - 1];
    assert_int_equal(action.kind, ACTION_SETTLE);
    assert_int_equal(action.requests.first->lifetime.outcome, OUTCOME_DONE);
    assert_int_equal(settle(false), 1);
    assert_int_equal(worker_stats(bench.worker).done, 1);
    assert_int_equal(worker_stats(bench.worker).held, 0);
}

WORKER_TEST(a_busy_engine_collects)
{
    read_and_prepare(1, 4);
    read_and_prepare(3, 4);
    read_and_prepare(2, 4);
    assert_int_equal(waiting(ACTION_SUBMIT), 1);
    assert_int_equal(answer_batch(STATUS_OK), 1);
    assert_int_equal(answer_batch(STATUS_OK), 5);
}

WORKER_TEST(a_full_batch_is_cut_ahead_of_time)
{
    read_and_prepare(30, 4);
    assert_int_equal(waiting(ACTION_SUBMIT), 2); /* one runs, one waits for it; 8 rows each */
    assert_int_equal(answer_batch(STATUS_OK), 8);
    assert_int_equal(waiting(ACTION_SUBMIT), 2);
}

/* With several batches in flight, a quarter of a full one is cut ahead, together with everything else that waits. */
WORKER_TEST(a_deep_device_is_fed_with_parts_and_a_backlog_fills_batches)
{
    BEGIN_WITH(default_options(), with.batches_out = 4);
    read_and_prepare(1, 4);
    assert_int_equal(waiting(ACTION_SUBMIT), 1); /* an idle engine starts at once */
    read_and_prepare(1, 4);
    assert_int_equal(waiting(ACTION_SUBMIT), 1); /* less than a quarter waits */
    read_and_prepare(1, 4);
    assert_int_equal(waiting(ACTION_SUBMIT), 2);
    read_and_prepare(26, 4);
    assert_int_equal(waiting(ACTION_SUBMIT), 4);
    static const int rows[] = {1, 2, 8, 8, 8, 2};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) { assert_int_equal(answer_batch(STATUS_OK), rows[i]); }
}

WORKER_TEST(a_fixed_window_cuts_only_full_batches_ahead)
{
    BEGIN_WITH(default_options(), with.window_fixed = true, with.batches_out = 4);
    read_and_prepare(7, 4);
    assert_int_equal(waiting(ACTION_SUBMIT), 0);
    read_and_prepare(1, 4);
    assert_int_equal(waiting(ACTION_SUBMIT), 1);
}

WORKER_TEST(a_fixed_window_is_a_timer)
{
    BEGIN_WITH(default_options(), with.window_fixed = true);
    read_and_prepare(2, 4);
    assert_int_equal(waiting(ACTION_SUBMIT), 0);
    assert_true(bench.wakes_at <= bench.now + 5 * NS_PER_MS);
    tick_after_ms(4);
    assert_int_equal(waiting(ACTION_SUBMIT), 0);
    tick_after_ms(1);
    assert_int_equal(answer_batch(STATUS_OK), 2);
}

/* Reports that it is no longer the housekeeper. */
static void give_up_house(void)
{
    assert_int_equal(take(ACTION_PULSE).heartbeat.rank, RANK_NONE);
    send((struct event){.kind = EVENT_PULSE, .pulse = {.redis_ms = EPOCH_MS}});
}

WORKER_TEST(a_lost_device_charges_nobody)
{
    read_and_prepare(3, 4);
    assert_int_equal(answer_batch(STATUS_DEVICE_LOST), 3);
    struct action release = take(ACTION_RELEASE);
    assert_int_equal(release.requests.count, 3);
    send_requests(EVENT_RELEASED, release.requests, false);
    (void)take(ACTION_UNBLOCK);
    read_new(0);
    give_up_house();
    assert_true(take(ACTION_RELEASE).last);
    send((struct event){.kind = EVENT_RELEASED});
    struct action leave = take(ACTION_EXIT);
    assert_int_equal(leave.exit.status, STATUS_DEVICE_LOST);
    assert_true(leave.exit.clean);
}

static void pulse_without_house(void)
{
    (void)take(ACTION_PULSE);
    send((struct event){.kind = EVENT_PULSE, .pulse = {.redis_ms = bench.now / NS_PER_MS + EPOCH_MS}});
}

/* Workers other than the housekeeper only renew, send heartbeats, and take released entries. */
WORKER_TEST(only_the_housekeeper_does_the_chores_of_all)
{
    BEGIN_WITH(default_options(), with.sweep_ms = 500);
    for (int house = 0; house < 2; house++) {
        int chores = 0, judged = 0;
        for (int i = 0; i < 200; i++) { /* 10 s */
            while (waiting(ACTION_PULSE) > 0) {
                if (house == 1) {
                    pulse((struct pulse){0});
                } else {
                    pulse_without_house();
                }
            }
            for (size_t at = 0; at < bench.count; at++) {
                judged += bench.out[at].kind == ACTION_RECLAIM && bench.out[at].read.judge;
                chores += bench.out[at].kind == ACTION_SWEEP || bench.out[at].kind == ACTION_PROMOTE;
            }
            answer_chores();
            tick_after_ms(50);
            if (house == 0 && i == 20) { /* it may have begun as the housekeeper */
                chores = judged = 0;
            }
        }
        assert_int_equal(chores > 0, house);
        assert_int_equal(judged > 0, house);
    }
}

/* The others learn of them by their pulse, and take until there are none left. */
WORKER_TEST(what_the_housekeeper_has_no_room_for_others_take)
{
    tick_after_ms(1000);
    (void)take(ACTION_PULSE);
    send((struct event){.kind = EVENT_PULSE, .pulse = {.redis_ms = 1}});
    answer_chores();
    bench.count = 0;
    tick_after_ms(600);
    assert_int_equal(waiting(ACTION_RECLAIM), 0);
    tick_after_ms(400);
    (void)take(ACTION_PULSE);
    send((struct event){.kind = EVENT_PULSE, .pulse = {.redis_ms = 1, .waiting = true}});
    for (int class = 0, more = 3; class < CLASS_COUNT; class += more-- <= 0) {
        struct action action = take(ACTION_RECLAIM);
        assert_int_equal(action.read.class, class);
        assert_false(action.read.judge);
        ANSWER_ENTRIES(.source = READ_RECLAIM, .class = action.read.class, .more = more > 0);
    }
    assert_int_equal(waiting(ACTION_RECLAIM), 0);
    tick_after_ms(600);
    assert_int_equal(waiting(ACTION_RECLAIM), 0);
}

WORKER_TEST(a_housekeeper_without_room_finds_them_all_the_same)
{
    BEGIN_WITH(default_options(), with.credit_tokens = 16 * 8, with.max_batch_tokens = 16, with.batches_out = 1);
    read_new(100);
    bool asked = false;
    for (int i = 0; i < 20 && !asked; i++) {
        tick_after_ms(100);
        while (waiting(ACTION_RECLAIM) > 0) {
            struct action action = take(ACTION_RECLAIM);
            asked |= action.read.class == CLASS_NORMAL && action.read.count == 0;
            give(READ_RECLAIM, ORIGIN_RECLAIMED, 0);
        }
        answer_chores();
    }
    assert_true(asked);
}

/* lua/defer and a dead letter keep the whole entry, even the parts that the worker does not keep. */
WORKER_TEST(settles_read_a_mebibyte_at_most)
{
    BEGIN_WITH(default_options(), with.rules.default_max_attempts = 1);
    static char large[400 * 1024];
    memset(large, 'x', sizeof large);
    struct entry_field fields[] = {{"text", 4, "word", 4}, {"x-large", 7, large, sizeof large}};
    struct entry entries[8];
    for (size_t i = 0; i < 8; i++) {
        entries[i] =
            (struct entry){.class = CLASS_NORMAL, .id = {++bench.next_entry, 0}, .fields = fields, .field_count = 2};
    }
    (void)take(ACTION_READ);
    ANSWER_ENTRIES(.source = READ_NEW, .entries = entries, .count = 8);
    prepare_all(4);
    uint32_t dead = 0;
    for (int i = 0; i < 40 && dead < 8; i++) {
        while (waiting(ACTION_SUBMIT) > 0) { answer_batch(STATUS_INTERNAL); }
        while (waiting(ACTION_SETTLE) > 0) {
            struct request_list list = take(ACTION_SETTLE).requests;
            assert_int_equal(list.first->lifetime.outcome, OUTCOME_DEAD);
            assert_in_range(list.count, 1, 2);
            dead += list.count;
            send_requests(EVENT_SETTLED, list, false);
        }
    }
    assert_int_equal(dead, 8);
}

WORKER_TEST(the_rank_says_what_a_housekeeper_can_do)
{
    tick_after_ms(1000);
    assert_int_equal(take(ACTION_PULSE).heartbeat.rank, RANK_WORKS); /* leases last 3 s */
    send((struct event){.kind = EVENT_PULSE, .pulse = {.redis_ms = 1, .housekeeper = true}});
    tick_after_ms(2500);
    struct heartbeat heartbeat = take(ACTION_PULSE).heartbeat;
    assert_int_equal(heartbeat.rank, RANK_JUDGES);
    assert_in_range(heartbeat.elected_ms, 1, 3000);
    send((struct event){.kind = EVENT_PULSE, .pulse = {.redis_ms = 1, .housekeeper = true}});
    send((struct event){.kind = EVENT_QUIET}); /* sent at once: others may be waiting */
    assert_int_equal(take(ACTION_PULSE).heartbeat.rank, RANK_PUBLISHES);
}

/* Prepares and computes requests with replies of this size, and formats all of them. */
static void format_replies(uint32_t count, size_t bytes)
{
    read_and_prepare(count, 4);
    assert_int_equal(answer_batch(STATUS_OK), count);
    while (waiting(ACTION_FORMAT) > 0) {
        struct request_list list = take(ACTION_FORMAT).requests;
        for (struct request *request = list.first; request != NULL; request = request->next) {
            (void)buffer_reserve(&request->output.reply, bytes);
            request->output.reply.length = bytes;
        }
        send_requests(EVENT_FORMATTED, list, false);
    }
}

WORKER_TEST(settles_are_bounded_in_bytes)
{
    BEGIN_WITH(default_options(), with.max_batch_rows = 64, with.max_batch_tokens = 1000);
    format_replies(32, 30 * 1024);
    settle(false);
    assert_int_equal(settle(false), 9); /* 9 * 30 KiB fit into 288 KiB */
}

WORKER_TEST(long_replies_go_alone_and_four_calls_are_out)
{
    BEGIN_WITH(default_options(), with.max_batch_rows = 64, with.max_batch_tokens = 1000);
    format_replies(10, 33 * 1024);
    assert_int_equal(waiting(ACTION_SETTLE), 4);
    assert_int_equal(settle(false), 1);
}

WORKER_TEST(an_unknown_outcome_is_repeated_after_the_reconnect)
{
    read_and_prepare(2, 4);
    compute_and_format();
    settle(true);
    assert_int_equal(waiting(ACTION_SETTLE), 0); /* not before the new connection */
    fail_entries(ACTION_READ, READ_NEW);
    send((struct event){.kind = EVENT_DISCONNECTED});
    assert_int_equal(bench.count, 0);
    connected();
    struct request_list list = take(ACTION_SETTLE).requests;
    assert_int_equal(list.count, 2);
    list.first->lifetime.verdict = VERDICT_LATE; /* the first call had come through for this one */
    send_requests(EVENT_SETTLED, list, false);
    assert_int_equal(worker_stats(bench.worker).done, 2);
    assert_int_equal(worker_stats(bench.worker).late, 0);
}

/* Only entries that are not held are taken from the own list. */
WORKER_TEST(the_own_list_never_doubles)
{
    read_new(3);
    fail_entries(ACTION_READ, READ_NEW);
    send((struct event){.kind = EVENT_DISCONNECTED});
    connected();
    (void)take(ACTION_READ_OWN);
    bench.next_entry = 1;
    give(READ_OWN, ORIGIN_OWN, 4); /* 2, 3 are held; 4, 5 were in the lost answer */
    assert_int_equal(worker_stats(bench.worker).held, 5);
    assert_int_equal(worker_stats(bench.worker).requests_received, 5);
}

WORKER_TEST(the_own_list_is_read_page_by_page)
{
    open_worker(default_options());
    connected();
    answer_chores();
    struct action own = take(ACTION_READ_OWN);
    uint32_t count = own.read.count;
    send((struct event){.kind = EVENT_ENTRIES, .entries = {.source = READ_OWN}, .failed = true});
    tick_after_ms(200);
    own = take(ACTION_READ_OWN);
    assert_int_equal(own.read.class, CLASS_HIGH);
    assert_int_equal(own.read.count, count / 2); /* perhaps the answer was too large */
    ANSWER_ENTRIES(.source = READ_OWN, .more = true, .last = {77, 5});
    own = take(ACTION_READ_OWN);
    assert_int_equal(own.read.class, CLASS_HIGH);
    assert_true(own.read.after.ms == 77 && own.read.after.seq == 5);
    for (int c = CLASS_NORMAL; c < CLASS_COUNT; c++) {
        give(READ_OWN, ORIGIN_OWN, 1);
        own = take(ACTION_READ_OWN);
        assert_int_equal(own.read.class, c);
        assert_int_equal(own.read.after.ms, 0);
    }
    assert_int_equal(waiting(ACTION_READ), 0);
    give(READ_OWN, ORIGIN_OWN, 0);
    assert_int_equal(waiting(ACTION_READ), 1);
}

/* Entries of a reclaim whose answer was lost come from the own list; they are no less suspect for it. */
WORKER_TEST(a_lost_reclaim_leaves_suspects)
{
    tick_after_ms(600);
    fail_entries(ACTION_RECLAIM, READ_RECLAIM);
    read_new(0);
    tick_after_ms(200);
    (void)take(ACTION_READ_OWN);
    give(READ_OWN, ORIGIN_OWN, 1);
    assert_int_equal(waiting(ACTION_RECORD_RUN), 1);
    assert_int_equal(waiting(ACTION_PREPARE), 0);
}

WORKER_TEST(a_deferred_request_is_promoted_when_it_is_due)
{
    read_and_prepare(1, 4);
    answer_batch(STATUS_INTERNAL);
    struct request_list list = take(ACTION_SETTLE).requests;
    assert_int_equal(list.first->lifetime.outcome, OUTCOME_DEFER);
    uint64_t due = bench.now + list.first->lifetime.due_ms * NS_PER_MS;
    assert_in_range(list.first->lifetime.due_ms, 80, 120);
    send_requests(EVENT_SETTLED, list, false);
    while (waiting(ACTION_PROMOTE) == 0) {
        bench.now = bench.wakes_at;
        assert_true(bench.now <= due);
        tick();
    }
    assert_true(bench.now == due);
}

WORKER_TEST(credit_bounds_what_is_asked_for)
{
    BEGIN_WITH(default_options(), with.credit_tokens = 160, with.max_batch_tokens = 80);
    read_new(0); /* sent while half of the room was a reclaim's */
    struct action read = take(ACTION_READ);
    assert_int_equal(read.read.count, 10); /* until entries are known, each may be as long as the longest */
    give(READ_NEW, ORIGIN_NEW, 10);
    prepare_all(16);
    read_new(0); /* sent while ten short texts were estimated at less */
    read = take(ACTION_READ);
    assert_int_equal(read.read.counts[CLASS_NORMAL], 0); /* full; the others are not */
    assert_true(read.read.counts[CLASS_HIGH] > 0);
    answer_batch(STATUS_OK);
    compute_and_format();
    assert_int_equal(waiting(ACTION_UNBLOCK), 0); /* only a settled request makes room, not a computed one */
    settle(false);
    (void)take(ACTION_UNBLOCK); /* the read blocks, and `normal` has room now */
    tick_after_ms(99);
    assert_int_equal(waiting(ACTION_UNBLOCK), 0);
    tick_after_ms(1);
    (void)take(ACTION_UNBLOCK); /* the first one may have been there before the read was */
    give(READ_NEW, ORIGIN_NEW, 0);
    assert_in_range(take(ACTION_READ).read.counts[CLASS_NORMAL], 1, 10);
}

/* Large batches, each waiting, computed or answered, take more memory than those of a CPU. */
WORKER_TEST(a_deep_device_may_hold_more_bytes)
{
    for (uint32_t out = 2; out <= 4; out += 2) {
        BEGIN_WITH(default_options(), with.credit_bytes = 0, with.batches_out = out);
        assert_int_equal(read_credit_bytes(bench.worker), (out == 4 ? 256 : 64) << 20);
    }
}

/* Parts that a request does not keep, such as a refused text or a field of the user's own, still come over the line. */
WORKER_TEST(heavy_entries_are_asked_for_in_small_numbers)
{
    static char value[10000];
    static const struct entry_field fields[] = {{"text", 4, "word", 4}, {"x-note", 6, value, sizeof(value)}};
    BEGIN_WITH(default_options(), with.credit_bytes = 200000);
    for (int i = 0; i < 200; i++) {
        (void)take(ACTION_READ);
        struct entry entry = {.class = CLASS_NORMAL, .id = {++bench.next_entry, 0}, .fields = fields, .field_count = 2};
        ANSWER_ENTRIES(.source = READ_NEW, .entries = &entry, .count = 1);
        prepare_all(4);
        compute_and_format();
        settle(false);
    }
    assert_in_range(take(ACTION_READ).read.count, 1, 20);
}

WORKER_TEST(leases_are_renewed_and_judged_late)
{
    uint64_t connected = bench.now;
    int renewed = 0;
    bool judged = false;
    while (bench.now < connected + 4000 * NS_PER_MS) {
        bench.now = bench.wakes_at;
        tick();
        renewed += waiting(ACTION_RENEW);
        for (size_t i = 0; i < bench.count; i++) {
            if (bench.out[i].kind == ACTION_RECLAIM) {
                assert_int_equal(bench.out[i].read.judge, bench.now >= connected + 3000 * NS_PER_MS);
                judged |= bench.out[i].read.judge;
            }
        }
        answer_chores();
    }
    assert_true(judged);
    assert_in_range(renewed, 3, 4);
}

WORKER_TEST(a_lost_lease_ends_in_a_new_name)
{
    read_and_prepare(1, 4);
    tick_after_ms(1000);
    lose_lease_key();
    (void)take(ACTION_UNBLOCK);
    read_new(0);
    answer_chores();
    compute_and_format();
    assert_int_equal(waiting(ACTION_REJOIN), 0);
    settle(false); /* through the gate */
    (void)take(ACTION_REJOIN);
    assert_int_equal(bench.count, 0);
    connect_and_sweep();
    (void)take(ACTION_READ);
}

WORKER_TEST(a_drain_finishes_what_runs_and_releases_the_rest)
{
    read_and_prepare(20, 4);
    assert_int_equal(waiting(ACTION_SUBMIT), 2);
    send((struct event){.kind = EVENT_DRAIN});
    (void)take(ACTION_UNBLOCK);
    give_up_house(); /* at once, not when the batches are back */
    struct action release = take(ACTION_RELEASE);
    assert_int_equal(release.requests.count, 4);
    assert_false(release.last);
    send_requests(EVENT_RELEASED, release.requests, false);
    read_new(2); /* too late: the last release gives them back */
    answer_batch(STATUS_OK);
    compute_and_format();
    settle_all();
    assert_true(take(ACTION_RELEASE).last);
    send((struct event){.kind = EVENT_RELEASED});
    assert_true(take(ACTION_EXIT).exit.clean);
    assert_int_equal(worker_stats(bench.worker).done, 16);
    assert_int_equal(worker_stats(bench.worker).released, 4);
}

WORKER_TEST(a_drain_ends_at_its_timeout_or_at_once)
{
    for (int stop = 0; stop < 2; stop++) {
        begin(default_options());
        read_and_prepare(5, 4);
        send((struct event){.kind = EVENT_DRAIN});
        assert_int_equal(waiting(ACTION_EXIT), 0);
        if (stop) {
            send((struct event){.kind = EVENT_STOP});
        } else {
            tick_after_ms(5000);
        }
        assert_false(take(ACTION_EXIT).exit.clean);
    }
}

WORKER_TEST(bad_options_are_refused_by_name)
{
    struct worker_options options = default_options();
    struct worker *worker;
    struct err err;
    options.max_batch_rows = 0;
    assert_int_equal(worker_open(&options, &worker, &err), STATUS_BAD_INPUT);
    assert_non_null(strstr(err.message, "max_batch_rows"));
}

/* A read asks for about 4 MiB if all entries were as large as the largest recent one, whose size is halved with time.
 */
WORKER_TEST(reads_are_sized_by_the_largest_entry)
{
    static char large[(1 << 20) + 1];
    memset(large, 'x', sizeof large - 1);
    /* A read asks for what all classes have room for; class low has room for the batches out. */
    BEGIN_WITH(default_options(), with.batches_out = 100);
    struct action read = take(ACTION_READ);
    assert_in_range(read.read.count, 100, 512);
    give_one(READ_NEW, (struct entry){.class = CLASS_NORMAL}, FIELDS("text", large));
    for (uint32_t count = 3; count < 50; count = count == 3 ? 7 : count * 2 + 1) {
        (void)settle(false);
        read = take(ACTION_READ);
        assert_int_equal(read.read.count, count);
        give_one(READ_NEW, (struct entry){.class = CLASS_NORMAL}, FIELDS("txet", "small"));
    }
}

/* --- the view and the controls from outside while it runs --- */

struct seen {
    unsigned count;
    char names[8][REQUEST_NAME_MAX];
};

static void note(void *context, const struct request *request)
{
    struct seen *seen = context;
    memcpy(seen->names[seen->count++], request->identity.name, REQUEST_NAME_MAX);
}

WORKER_TEST(held_requests_are_shown_up_to_a_limit)
{
    struct seen seen = {0};
    assert_int_equal(worker_each_held(bench.worker, 8, &seen, note), 0);
    read_new(3);
    assert_int_equal(worker_each_held(bench.worker, 8, &seen, note), 3);
    assert_int_equal(seen.count, 3);
    for (unsigned i = 1; i <= 3; i++) {
        char name[REQUEST_NAME_MAX];
        snprintf(name, sizeof name, "%u-0", i);
        unsigned times = 0;
        for (unsigned j = 0; j < 3; j++) { times += strcmp(seen.names[j], name) == 0; }
        assert_int_equal(times, 1);
    }
    seen.count = 0;
    assert_int_equal(worker_each_held(bench.worker, 2, &seen, note), 3);
    assert_int_equal(seen.count, 2);
}

WORKER_TEST(live_options_are_taken_over)
{
    struct worker_options wanted = default_options();
    struct err err;
    assert_int_equal(worker_stats(bench.worker).batch_tokens, 64);
    wanted.max_batch_tokens = 32;
    wanted.rules.max_text_bytes = 3;
    assert_int_equal(worker_tune(bench.worker, &wanted, &err), STATUS_OK);
    assert_int_equal(worker_stats(bench.worker).batch_tokens, 32);
    read_new(1); /* longer than the new limit: refused, so it is never prepared */
    assert_int_equal(waiting(ACTION_PREPARE), 0);
    assert_int_equal(waiting(ACTION_SETTLE), 1);
}

WORKER_TEST(options_out_of_range_change_nothing)
{
    struct worker_options wanted = default_options();
    struct err err;
    wanted.max_batch_tokens = 32;
    wanted.backoff_ms = 0;
    assert_int_equal(worker_tune(bench.worker, &wanted, &err), STATUS_BAD_INPUT);
    assert_non_null(strstr(err.message, "backoff_ms"));
    assert_int_equal(worker_stats(bench.worker).batch_tokens, 64);
}

WORKER_TEST(quiet_claims_nothing_until_resume)
{
    send((struct event){.kind = EVENT_QUIET});
    (void)take(ACTION_UNBLOCK);
    read_new(2); /* entries that had been asked for are finished */
    assert_int_equal(waiting(ACTION_PREPARE), 1);
    tick_after_ms(10000);
    assert_int_equal(waiting(ACTION_READ) + waiting(ACTION_RECLAIM), 0);
    assert_int_equal(waiting(ACTION_RENEW), 1); /* but it lives */
    send((struct event){.kind = EVENT_RESUME});
    assert_int_equal(waiting(ACTION_READ), 1);
}
