/* Options of requests, actions of an operator, and many requests at once: one rule after the other. */
#include <string.h>

#include "worker_bench.h"

/* --- classes --- */

/* Above the ceiling one request at a time is taken, even if the last one never began. */
WORKER_TEST(a_full_redis_goes_on_after_what_is_malformed)
{
    struct pulse full = {.most_bytes = 1000000, .used_bytes = 1100000, .workers = 1, .depth = {[CLASS_NORMAL] = 9}};
    uint32_t answered = 0;
    read_new(0);
    for (int second = 0; second < 120; second++) {
        tick_after_ms(1000);
        while (waiting(ACTION_PULSE) > 0) { pulse(full); }
        answer_chores();
        if (waiting(ACTION_READ) > 0) {
            struct action read = take(ACTION_READ);
            struct entry entry = {.class = CLASS_NORMAL, .id = {++bench.next_entry, 0}};
            size_t count = read.read.counts[CLASS_NORMAL] > 0 ? 1 : 0;
            ANSWER_ENTRIES(.source = READ_NEW, .entries = &entry, .count = count);
        }
        format_all();
        while (waiting(ACTION_SETTLE) > 0) { answered += settle(false); }
    }
    assert_in_range(answered, 4, 30);
}

WORKER_TEST(each_class_has_its_own_credit)
{
    BEGIN_WITH(default_options(), with.credit_tokens = 16 * 60, with.max_batch_tokens = 80); /* 60 of the longest */
    read_new(0);
    struct action read = take(ACTION_READ);
    for (int c = 0; c < CLASS_COUNT; c++) { /* Redis takes one COUNT for all: the next two batches of `low` */
        assert_int_equal(read.read.counts[c], 10);
    }
    give(READ_NEW, ORIGIN_NEW, 10); /* the number asked for: `normal` is busy, and has room for more */
    read = take(ACTION_READ);
    if (read.read.counts[CLASS_LOW] > 0) { /* each of the two has its turn */
        assert_int_equal(read.read.counts[CLASS_NORMAL], 10);
        give(READ_NEW, ORIGIN_NEW, 10);
        read = take(ACTION_READ);
    }
    assert_int_equal(read.read.counts[CLASS_LOW], 0);
    assert_in_range(read.read.counts[CLASS_NORMAL], 30, 60);
    assert_int_equal(read.read.block_ms, 0); /* because `low` must not wait for the others */
    give(READ_NEW, ORIGIN_NEW, 0);
    read = take(ACTION_READ);
    assert_int_equal(read.read.counts[CLASS_LOW], 10);
    assert_true(read.read.block_ms > 0);
}

/* A queue of a million `low` entries, an engine that takes 10 ms a batch, and now and then a `high` one. */
static struct flood {
    uint64_t low_left, low_done, high_sent_ns, high_wait_ns;
    uint32_t most_held;
    uint64_t most_bytes;
    bool high_waits;
} flood;

static void flood_read(void)
{
    static struct entry entries[1024];
    static const struct entry_field field = {"text", 4, "word", 4};
    struct action read = take(ACTION_READ);
    size_t count = 0;
    if (flood.high_waits && read.read.counts[CLASS_HIGH] > 0) {
        entries[count++] = (struct entry){.class = CLASS_HIGH, .id = {++bench.next_entry, 0}};
        flood.high_waits = false;
    }
    for (uint32_t i = 0; i < read.read.counts[CLASS_LOW] && flood.low_left > 0; i++, flood.low_left--) {
        entries[count++] = (struct entry){.class = CLASS_LOW, .id = {++bench.next_entry, 0}};
    }
    for (size_t i = 0; i < count; i++) {
        entries[i].fields = &field;
        entries[i].field_count = 1;
    }
    ANSWER_ENTRIES(.source = READ_NEW, .entries = entries, .count = count);
}

static void flood_settle(void)
{
    struct request_list list = take(ACTION_SETTLE).requests;
    for (const struct request *request = list.first; request != NULL; request = request->next) {
        flood.low_done += request->identity.class == CLASS_LOW;
        if (request->identity.class == CLASS_HIGH && bench.now - flood.high_sent_ns > flood.high_wait_ns) {
            flood.high_wait_ns = bench.now - flood.high_sent_ns;
        }
        flood.high_sent_ns = request->identity.class == CLASS_HIGH ? 0 : flood.high_sent_ns;
    }
    send_requests(EVENT_SETTLED, list, false);
}

/* Everything but the engine answers at once; a blocked read ends when it is unblocked, or when something has come. */
static void flood_settle_down(void)
{
    for (bool moved = true; moved;) {
        moved = false;
        answer_chores();
        prepare_all(4);
        format_all();
        while (waiting(ACTION_SETTLE) > 0) {
            flood_settle();
            moved = true;
        }
        bool unblock = waiting(ACTION_UNBLOCK) > 0;
        while (waiting(ACTION_UNBLOCK) > 0) { (void)take(ACTION_UNBLOCK); }
        for (size_t i = 0; i < bench.count; i++) {
            if (bench.out[i].kind == ACTION_READ) {
                const uint32_t *counts = bench.out[i].read.counts;
                bool comes = (counts[CLASS_LOW] > 0 && flood.low_left > 0) ||
                             (counts[CLASS_HIGH] > 0 && flood.high_waits) || bench.out[i].read.block_ms == 0;
                if (comes || unblock) {
                    flood_read();
                    moved = true;
                }
                break;
            }
        }
    }
    struct worker_stats stats = worker_stats(bench.worker);
    flood.most_held = stats.held > flood.most_held ? stats.held : flood.most_held;
    flood.most_bytes = stats.held_bytes > flood.most_bytes ? stats.held_bytes : flood.most_bytes;
}

WORKER_TEST(low_never_holds_up_high_nor_fills_the_memory)
{
    enum { BATCH_MS = 10, STEPS = 300, HIGH_EVERY = 7 };
    BEGIN_WITH(default_options(), with.max_batch_rows = 64, with.max_batch_tokens = 256, with.credit_tokens = 100000,
               with.credit_bytes = 64 << 20);
    flood = (struct flood){.low_left = 1000000};
    for (int step = 0; step < STEPS; step++) {
        if (step % HIGH_EVERY == 0 && flood.high_sent_ns == 0) {
            flood.high_waits = true;
            flood.high_sent_ns = bench.now;
        }
        flood_settle_down();
        bench.now += BATCH_MS * NS_PER_MS;
        tick();
        if (waiting(ACTION_SUBMIT) > 0) { (void)answer_batch(STATUS_OK); }
    }
    assert_true(flood.low_done > 5000); /* it goes on */
    assert_true(flood.high_wait_ns > 0);
    assert_true(flood.high_wait_ns <= 4 * BATCH_MS * NS_PER_MS); /* the two batches that were out, and its own */
    assert_in_range(flood.most_held, 64, 600);                   /* whatever the depth */
    assert_true(flood.most_bytes < 1 << 20);
}

/* --- delays and deadlines --- */

static char *number(uint64_t value)
{
    static char texts[4][24];
    static unsigned next;
    char *text = texts[next++ % 4];
    snprintf(text, sizeof(texts[0]), "%llu", (unsigned long long)value);
    return text;
}

/* A time as the next entry must express it, relative to its id, which is its number. */
static const char *from_its_id(uint64_t ms)
{
    return number(ms - (bench.next_entry + 1));
}

WORKER_TEST(a_request_that_is_not_due_is_parked)
{
    uint64_t due_ms = redis_now() + 300;
    read_one(CLASS_HIGH, FIELDS("text", "a", "delay", from_its_id(due_ms)));
    assert_int_equal(waiting(ACTION_PREPARE), 0);
    uint64_t due_ns = bench.now + 300 * NS_PER_MS;
    struct request parked = settle_one(VERDICT_DONE);
    assert_int_equal(parked.lifetime.outcome, OUTCOME_DEFER);
    assert_int_equal(parked.retry.next_attempt, 1); /* nothing was tried */
    assert_true(parked.lifetime.due_at_ms == due_ms && parked.lifetime.due_ms == 0);
    assert_int_equal(worker_stats(bench.worker).parked, 1);
    assert_int_equal(worker_stats(bench.worker).retries, 0);
    while (waiting(ACTION_PROMOTE) == 0 || bench.now < due_ns) {
        if (waiting(ACTION_PROMOTE) > 0) { /* a look now and then, for requests that others have parked */
            (void)take(ACTION_PROMOTE);
            send((struct event){.kind = EVENT_PROMOTED, .promoted = {(due_ns - bench.now) / NS_PER_MS}});
        }
        bench.now = bench.wakes_at;
        assert_true(bench.now <= due_ns);
        tick();
    }
    assert_true(bench.now == due_ns); /* the worker that parked it knows when to fetch it */
}

WORKER_TEST(who_expires_before_it_is_due_is_parked_until_then)
{
    uint64_t expires_ms = redis_now() + 100;
    read_one(CLASS_NORMAL,
             FIELDS("text", "a", "delay", from_its_id(expires_ms + 500), "expires_in", from_its_id(expires_ms)));
    assert_true(settle_one(VERDICT_DONE).lifetime.due_at_ms == expires_ms);
    tick_after_ms(100);
    read_one(CLASS_NORMAL, FIELDS("_id", "1-0", "_attempt", "1", "_first_at", "1", "text", "a", "delay",
                                  number(expires_ms + 499), "expires_in", number(expires_ms - 1)));
    struct request expired = settle_one(VERDICT_DONE);
    assert_int_equal(expired.lifetime.outcome, OUTCOME_ERROR);
    assert_int_equal(expired.retry.code, CODE_EXPIRED);
    assert_int_equal(worker_stats(bench.worker).expired, 1);
}

/* --- cancel, vanished --- */

WORKER_TEST(a_cancel_goes_straight_to_its_script)
{
    read_one(CLASS_HIGH, FIELDS("cancel", "low:7-3"));
    struct request cancel = settle_one(VERDICT_DONE);
    assert_int_equal(cancel.lifetime.outcome, OUTCOME_CANCEL);
    assert_string_equal(cancel.identity.target, "low:7-3");
    (void)take(ACTION_READ);
    give_one(READ_RECLAIM, (struct entry){.class = CLASS_NORMAL, .origin = ORIGIN_RECLAIMED}, FIELDS("cancel", "7-3"));
    assert_int_equal(waiting(ACTION_RECORD_RUN), 0); /* it runs nothing */
    (void)settle_one(VERDICT_NOTHING);
    assert_int_equal(worker_stats(bench.worker).cancelled, 1);
    assert_int_equal(worker_stats(bench.worker).nothing_to_cancel, 1);
    give_one(READ_NEW, (struct entry){.class = CLASS_NORMAL}, FIELDS("cancel", "nobody"));
    assert_int_equal(settle_one(VERDICT_DONE).lifetime.outcome, OUTCOME_ERROR);
    assert_int_equal(worker_stats(bench.worker).held, 0);
}

WORKER_TEST(an_entry_without_its_message_is_answered)
{
    (void)take(ACTION_READ);
    give_one(READ_RECLAIM, (struct entry){.origin = ORIGIN_RECLAIMED, .vanished = true}, FIELDS(NULL));
    struct request gone = settle_one(VERDICT_DONE);
    assert_int_equal(gone.lifetime.outcome, OUTCOME_GONE);
    assert_int_equal(gone.retry.code, CODE_INTERNAL);
    assert_int_equal(worker_stats(bench.worker).vanished, 1);
    give_one(READ_NEW, (struct entry){.class = CLASS_NORMAL},
             FIELDS("text", "a", "delay", from_its_id(redis_now() + 500)));
    assert_int_equal(settle_one(VERDICT_GONE).lifetime.outcome, OUTCOME_DEFER); /* deleted meanwhile */
    assert_int_equal(settle_one(VERDICT_DONE).lifetime.outcome, OUTCOME_GONE);
    assert_int_equal(worker_stats(bench.worker).held, 0);
}

/* --- names --- */

WORKER_TEST(who_borrowed_a_name_is_called_by_its_own)
{
    bench.next_entry = 80;
    read_one(CLASS_LOW, FIELDS("_id", "low:7-7", "_attempt", "9", "text", "a"));
    prepare_all(4);
    answer_batch(STATUS_INTERNAL);
    struct request first = settle_one(VERDICT_NOT_ITS_NAME);
    assert_string_equal(first.identity.name, "low:7-7");
    assert_int_equal(first.lifetime.outcome, OUTCOME_DEAD); /* its attempts seemed to be used up */
    struct request second = settle_one(VERDICT_DONE);
    assert_string_equal(second.identity.name, "low:81-0");
    assert_string_equal(second.identity.id, "low:81-0");
    assert_int_equal(second.lifetime.outcome, OUTCOME_DEFER);
    assert_int_equal(second.retry.next_attempt, 2);
    assert_int_equal(worker_stats(bench.worker).disowned, 1);
}

/* --- caps beside those of the streams --- */

WORKER_TEST(too_many_that_wait_for_their_time)
{
    read_one(CLASS_NORMAL, FIELDS("text", "a", "delay", from_its_id(redis_now() + 3600 * 1000)));
    assert_int_equal(settle_one(VERDICT_LATER_FULL).lifetime.outcome, OUTCOME_DEFER);
    struct request refused = settle_one(VERDICT_DONE);
    assert_int_equal(refused.lifetime.outcome, OUTCOME_ERROR);
    assert_int_equal(refused.retry.code, CODE_QUEUE_FULL);
    assert_in_range(refused.retry.retry_after_ms, 1000, 3600 * 1000);
    assert_int_equal(worker_stats(bench.worker).held, 0);
}

/* --- what Redis refuses --- */

WORKER_TEST(who_is_refused_goes_alone_and_less_and_less_often)
{
    read_and_prepare(3, 4);
    compute_and_format();
    struct request_list list = take(ACTION_SETTLE).requests;
    assert_int_equal(list.count, 3);
    list.first->lifetime.verdict = list.first->next->lifetime.verdict = VERDICT_AGAIN;
    send_requests(EVENT_SETTLED, list, false);
    assert_int_equal(waiting(ACTION_SETTLE), 0);
    tick_after_ms(100);
    assert_int_equal(waiting(ACTION_SETTLE), 1); /* one of them, and one call at a time */
    (void)settle_one(VERDICT_DONE);
    uint64_t pause_ms = 100;
    for (int refusals = 2; refusals <= 12; refusals++) {
        (void)settle_one(VERDICT_AGAIN);
        pause_ms = pause_ms * 2 < 10000 ? pause_ms * 2 : 10000;
        assert_int_equal(worker_stats(bench.worker).settle_stuck, refusals >= 10);
        tick_after_ms(pause_ms - 1);
        assert_int_equal(waiting(ACTION_SETTLE), 0);
        tick_after_ms(1);
        assert_int_equal(waiting(ACTION_SETTLE), 1);
        answer_chores();
        bench.count = waiting(ACTION_SETTLE) > 0 ? bench.count : 0;
    }
    (void)settle_one(VERDICT_DONE);
    assert_int_equal(worker_stats(bench.worker).done, 3);
}

WORKER_TEST(a_refused_suspect_gives_up_its_place)
{
    take_reclaim();
    give_loners(2);
    come_to_rest();
    struct action charge = take(ACTION_RECORD_RUN);
    charge.requests.first->retry.quarantine_runs = 1;
    send_requests(EVENT_RUN_RECORDED, charge.requests, false);
    prepare_all(4);
    compute_and_format();
    assert_int_equal(waiting(ACTION_RECORD_RUN), 0);
    (void)settle_one(VERDICT_AGAIN);
    assert_int_equal(waiting(ACTION_RECORD_RUN), 1);
}

/* --- the pulse --- */

WORKER_TEST(nothing_is_claimed_before_the_first_pulse)
{
    open_worker(default_options());
    connected();
    answer_own();
    assert_int_equal(waiting(ACTION_READ) + waiting(ACTION_RECLAIM) + waiting(ACTION_PROMOTE), 0);
    pulse((struct pulse){.paused = true});
    assert_int_equal(waiting(ACTION_READ) + waiting(ACTION_RECLAIM) + waiting(ACTION_PROMOTE), 0);
    tick_after_ms(1000);
    pulse((struct pulse){0});
    assert_int_equal(waiting(ACTION_READ), 1);
    assert_int_equal(waiting(ACTION_RECLAIM), 1);
    assert_int_equal(waiting(ACTION_PROMOTE), 1);
}

WORKER_TEST(a_pause_ends_the_read_and_finishes_what_is_held)
{
    read_new(1);
    tick_after_ms(1000);
    pulse((struct pulse){.paused = true});
    (void)take(ACTION_UNBLOCK);
    read_new(1); /* it had been on its way */
    assert_int_equal(waiting(ACTION_READ), 0);
    prepare_all(4);
    answer_batch(STATUS_OK);
    compute_and_format();
    settle_all();
    assert_int_equal(worker_stats(bench.worker).done, 2);
    bench.count = 0;
    tick_after_ms(900);
    assert_int_equal(waiting(ACTION_READ) + waiting(ACTION_RECLAIM) + waiting(ACTION_PROMOTE), 0);
    tick_after_ms(100);
    struct action beat = take(ACTION_PULSE);
    assert_string_equal(beat.heartbeat.state, "running");
    assert_int_equal(beat.heartbeat.stats.done, 2);
    send((struct event){.kind = EVENT_PULSE, .pulse = {.redis_ms = 1}});
    assert_int_equal(waiting(ACTION_READ), 1);
}

WORKER_TEST(a_pulse_that_fails_changes_nothing)
{
    tick_after_ms(1000);
    (void)take(ACTION_PULSE);
    send((struct event){.kind = EVENT_PULSE, .failed = true});
    read_new(1);
    tick_after_ms(100);
    assert_int_equal(waiting(ACTION_READ), 1);
    assert_int_equal(waiting(ACTION_PULSE), 0);
    tick_after_ms(900);
    assert_int_equal(waiting(ACTION_PULSE), 1);
}

WORKER_TEST(commands_are_obeyed)
{
    tick_after_ms(1000);
    pulse((struct pulse){.command = EVENT_QUIET});
    (void)take(ACTION_UNBLOCK);
    read_new(0);
    assert_int_equal(waiting(ACTION_READ), 0);
    tick_after_ms(1000);
    assert_string_equal(bench.out[bench.count - 1].heartbeat.state, "quiet");
    pulse((struct pulse){.command = EVENT_RESUME});
    assert_int_equal(waiting(ACTION_READ), 1);
    answer_chores();
    tick_after_ms(1000);
    pulse((struct pulse){.command = EVENT_DRAIN});
    read_new(0);
    answer_chores();
    assert_true(take(ACTION_RELEASE).last);
    send((struct event){.kind = EVENT_RELEASED});
    assert_true(take(ACTION_EXIT).exit.clean);
}

/* --- caps, tenants, orphans --- */

WORKER_TEST(the_newest_above_the_cap_are_refused)
{
    tick_after_ms(1000);
    pulse((struct pulse){.depth = {0, 250, 0}, .cap = {0, 100, 0}});
    struct action shed = take(ACTION_SHED);
    assert_int_equal(shed.read.class, CLASS_NORMAL);
    assert_int_equal(shed.read.cap, 100);
    assert_int_equal(shed.read.count, 64);
    struct entry entry = {.class = CLASS_NORMAL, .id = {900, 0}, .origin = ORIGIN_SHED};
    static const struct entry_field field = {"text", 4, "word", 4};
    entry.fields = &field;
    entry.field_count = 1;
    ANSWER_ENTRIES(.source = READ_SHED, .class = CLASS_NORMAL, .entries = &entry, .count = 1, .more = true,
                   .last = {1000, 7}, .first = {900, 0});
    shed = take(ACTION_SHED); /* more are left: it goes on where the first one was */
    assert_int_equal(shed.read.after.ms, 1000);
    assert_int_equal(shed.read.before.ms, 900);
    struct request refused = settle_one(VERDICT_DONE);
    assert_int_equal(refused.retry.code, CODE_QUEUE_FULL);
    assert_in_range(refused.retry.retry_after_ms, 1000, 3600 * 1000);
    assert_int_equal(worker_stats(bench.worker).shed, 1);
    ANSWER_ENTRIES(.source = READ_SHED, .class = CLASS_NORMAL);
    assert_int_equal(waiting(ACTION_SHED), 0);
    tick_after_ms(1000);
    pulse((struct pulse){.depth = {0, 90, 500}, .cap = {0, 100, 0}});
    assert_int_equal(waiting(ACTION_SHED), 0);
}

static void begin_crowded(void)
{
    BEGIN_WITH(default_options(), with.credit_tokens = 160, with.max_batch_tokens = 16);
    read_new(0);
    for (int i = 0; i < 40 && waiting(ACTION_READ) > 0; i++) {
        read_one(CLASS_NORMAL, FIELDS("text", "a word or two or three of this tenant", "tenant", "big"));
    }
    bench.now += 1000 * NS_PER_MS;
    tick();
}

WORKER_TEST(one_tenant_does_not_hide_another)
{
    begin_crowded();
    assert_int_equal(waiting(ACTION_FAIR), 0); /* no backlog is known yet */
    pulse((struct pulse){.depth = {0, 1000000, 0}});
    struct action fair = take(ACTION_FAIR);
    assert_int_equal(fair.read.class, CLASS_NORMAL);
    assert_in_range(fair.read.count, 1, 40 / 4);
    assert_int_equal(fair.read.enough_count, 1);
    assert_int_equal(fair.read.after.ms, 0);
    uint32_t held = worker_stats(bench.worker).held;
    static const struct entry_field fields[] = {{"text", 4, "word", 4}, {"tenant", 6, "small", 5}};
    struct entry entry = {.class = CLASS_NORMAL, .id = {5000, 0}, .fields = fields, .field_count = 2};
    ANSWER_ENTRIES(.source = READ_FAIR, .class = CLASS_NORMAL, .entries = &entry, .count = 1, .last = {6000, 0});
    assert_int_equal(worker_stats(bench.worker).held, held + 1);
    assert_int_equal(worker_stats(bench.worker).taken_ahead, 1);
    assert_int_equal(waiting(ACTION_FAIR), 0);
    tick_after_ms(100);
    assert_int_equal(take(ACTION_FAIR).read.after.ms, 6000); /* what has come in since */
    ANSWER_ENTRIES(.source = READ_FAIR, .class = CLASS_NORMAL, .last = {6100, 0});
    tick_after_ms(100);
    assert_int_equal(take(ACTION_FAIR).read.after.ms, 5000); /* and once more from the first that was found */
}

WORKER_TEST(nobody_is_served_ahead_where_nobody_names_a_tenant)
{
    BEGIN_WITH(default_options(), with.credit_tokens = 160);
    read_new(40);
    tick_after_ms(1000);
    pulse((struct pulse){.depth = {0, 1000000, 0}});
    tick_after_ms(500);
    assert_int_equal(waiting(ACTION_FAIR), 0);
}

static void mended(bool changed, bool more)
{
    assert_int_equal(take(ACTION_MEND).redis_ms, redis_now());
    send((struct event){.kind = EVENT_MENDED, .mended = {.changed = changed, .more = more}});
}

/* A look comes every two seconds, or at once when an entry has such an id, and again until all are moved; then the
 * moved requests are due, and the next look is soon. */
WORKER_TEST(ids_ahead_of_the_clock_are_mended)
{
    tick_after_ms(900);
    answer_chores();
    read_one(CLASS_NORMAL, FIELDS("text", "word"));
    assert_int_equal(waiting(ACTION_MEND), 0);
    (void)take(ACTION_READ);
    struct entry entry = {.class = CLASS_LOW, .id = {redis_now() + 3600000, 0}};
    give_one(READ_NEW, entry, FIELDS("text", "word", "delay", "700"));
    assert_int_equal(worker_stats(bench.worker).ids_ahead, 1);
    struct request seen = settle_one(VERDICT_DONE); /* parked: it counts from now */
    assert_int_equal(seen.lifetime.outcome, OUTCOME_DEFER);
    assert_int_equal(seen.lifetime.due_at_ms, redis_now() + 700);
    mended(true, true);
    mended(true, true);
    assert_int_equal(waiting(ACTION_PROMOTE), 0);
    mended(true, false);
    assert_int_equal(waiting(ACTION_MEND), 0);
    assert_int_equal(waiting(ACTION_PROMOTE), 1);
    tick_after_ms(100);
    mended(false, false);
    answer_chores();
    tick_after_ms(1999);
    assert_int_equal(waiting(ACTION_MEND), 0);
    tick_after_ms(1);
    mended(false, false);
}

/* Its entry was moved, and a producer has used the id once more: the computed result is not that entry's answer. */
WORKER_TEST(an_id_ahead_that_comes_again_is_read_again)
{
    struct entry entry = {.class = CLASS_NORMAL, .id = {redis_now() + 3600000, 0}};
    (void)take(ACTION_READ);
    give_one(READ_NEW, entry, FIELDS("text", "word", "id", "first"));
    (void)take(ACTION_READ);
    give_one(READ_NEW, entry, FIELDS("text", "word", "id", "second"));
    assert_int_equal(worker_stats(bench.worker).held, 1);
    prepare_all(4);
    compute_and_format();
    assert_int_equal(waiting(ACTION_SETTLE), 0);
    assert_int_equal(worker_stats(bench.worker).late, 1);
    read_new(0);
    (void)take(ACTION_READ_OWN);
    give(READ_OWN, ORIGIN_OWN, 0);
    (void)take(ACTION_READ_OWN);
    give_one(READ_OWN, entry, FIELDS("text", "word", "id", "second"));
    prepare_all(4);
    compute_and_format();
    struct request seen = settle_one(VERDICT_DONE);
    assert_string_equal(seen.identity.id, "second");
}

/* The request in the window may have several texts, and expire there: all of them leave at once. */
WORKER_TEST(an_id_ahead_that_comes_again_may_expire_in_the_window)
{
    BEGIN_WITH(default_options(), with.rules.max_inputs = 2, with.window_fixed = true, with.window_ms = 1000);
    struct entry entry = {.class = CLASS_NORMAL, .id = {redis_now() + 3600000, 0}};
    for (int again = 0; again < 2; again++) {
        (void)take(ACTION_READ);
        give_one(READ_NEW, entry, FIELDS("inputs", "[\"one\", \"two\"]", "expires_in", "100"));
    }
    struct request_list list = take(ACTION_PREPARE).requests;
    list.first->work = calloc(2 * DIM + 2, sizeof(float));
    for (uint32_t i = 0; i < 2; i++) {
        struct row *row = &list.first->rows[i];
        row->output = (float *)list.first->work + (size_t)i * DIM;
        row->ids = (int32_t *)list.first->work + (size_t)2 * DIM + i;
        row->tokens = 1;
    }
    send_requests(EVENT_PREPARED, list, false);
    assert_int_equal(worker_stats(bench.worker).waiting, 2);
    tick_after_ms(101);
    assert_int_equal(worker_stats(bench.worker).waiting, 0);
    assert_int_equal(worker_stats(bench.worker).held, 0);
    assert_int_equal(worker_stats(bench.worker).late, 1);
    read_new(0);
    assert_int_equal(waiting(ACTION_READ_OWN), 1); /* for the one that has the id now */
}

/* Ids are mended also while the queue is paused, because producers must be able to add; but not by a worker that is
 * quiet, or is not the housekeeper. */
WORKER_TEST(who_mends_ids)
{
    tick_after_ms(1000);
    pulse((struct pulse){.paused = true});
    answer_chores();
    tick_after_ms(1000);
    assert_int_equal(waiting(ACTION_MEND), 1);
    mended(false, false);
    send((struct event){.kind = EVENT_QUIET});
    tick_after_ms(2000);
    assert_int_equal(waiting(ACTION_MEND), 0);
    send((struct event){.kind = EVENT_RESUME});
    assert_int_equal(waiting(ACTION_MEND), 1);
    mended(false, false);
    (void)take(ACTION_PULSE);
    send((struct event){.kind = EVENT_PULSE, .pulse = {.redis_ms = redis_now()}});
    tick_after_ms(2000);
    assert_int_equal(waiting(ACTION_MEND), 0);
}

WORKER_TEST(orphans_are_looked_for_class_by_class)
{
    BEGIN_WITH(default_options(), with.sweep_ms = 2000);
    bench.now += 2000 * NS_PER_MS;
    tick();
    struct action sweep = take(ACTION_SWEEP);
    assert_int_equal(sweep.read.class, CLASS_HIGH);
    assert_int_equal(sweep.read.after.ms, 0);
    ANSWER_ENTRIES(.source = READ_SWEEP, .more = true, .last = {70, 1});
    sweep = take(ACTION_SWEEP);
    assert_int_equal(sweep.read.class, CLASS_HIGH);
    assert_int_equal(sweep.read.after.ms, 70);
    give(READ_SWEEP, ORIGIN_RELEASED, 1);
    assert_int_equal(waiting(ACTION_PREPARE), 1); /* nobody has started it: it is no suspect */
    assert_int_equal(worker_stats(bench.worker).orphans, 1);
    sweep = take(ACTION_SWEEP);
    assert_int_equal(sweep.read.class, CLASS_NORMAL);
    assert_int_equal(sweep.read.after.ms, 0);
    give(READ_SWEEP, ORIGIN_RELEASED, 0);
    assert_int_equal(take(ACTION_SWEEP).read.class, CLASS_LOW);
    give(READ_SWEEP, ORIGIN_RELEASED, 0);
    assert_int_equal(waiting(ACTION_SWEEP), 0);
}

/* --- entries that may be ours without our knowledge --- */

WORKER_TEST(what_a_lost_answer_brought_is_looked_for)
{
    fail_entries(ACTION_READ, READ_NEW);
    tick_after_ms(100);
    assert_int_equal(take(ACTION_READ_OWN).read.class, CLASS_HIGH);
    assert_int_equal(waiting(ACTION_READ), 0);
}

/* Once the blocking read has come back empty, the worker reads its own list. */
static void expect_own_next(void)
{
    (void)take(ACTION_UNBLOCK);
    read_new(0);
    assert_int_equal(waiting(ACTION_READ_OWN), 1);
}

/* The group was made again: the settle ran before the new delivery, but its answer comes after it. */
WORKER_TEST(what_is_delivered_again_is_held_once_and_not_forgotten)
{
    read_and_prepare(1, 4);
    compute_and_format();
    (void)take(ACTION_READ);
    bench.next_entry--;
    give(READ_NEW, ORIGIN_NEW, 1);
    assert_int_equal(worker_stats(bench.worker).held, 1);
    (void)settle_one(VERDICT_LATE);
    assert_int_equal(worker_stats(bench.worker).held, 0);
    expect_own_next();
}

/* --- leases and stopped processes --- */

/* The lease is lost when 8 and 8 of twenty rows are in batches and 4 wait. Returns the release of those that wait. */
static struct action lose_lease(void)
{
    read_and_prepare(20, 4);
    tick_after_ms(1000);
    lose_lease_key();
    return take(ACTION_RELEASE);
}

WORKER_TEST(a_lost_lease_gives_back_what_has_not_started)
{
    struct action release = lose_lease();
    assert_int_equal(release.requests.count, 4);
    assert_false(release.last);
}

/* The connection breaks before the release is confirmed, so the worker keeps its name; then it is the first to find the
 * entries. */
WORKER_TEST(what_was_given_back_may_be_taken_again_at_once)
{
    struct action release = lose_lease();
    send_requests(EVENT_RELEASED, release.requests, true);
    break_connection();
    connected();
    release = take(ACTION_RELEASE);
    assert_int_equal(release.requests.count, 4);
    answer_own();
    pulse((struct pulse){0});
    (void)take(ACTION_RECLAIM);
    bench.next_entry = 16;
    give(READ_RECLAIM, ORIGIN_RELEASED, 4); /* it overtakes the answer to the release */
    assert_int_equal(worker_stats(bench.worker).held, 20);
    send_requests(EVENT_RELEASED, release.requests, false);
    assert_int_equal(worker_stats(bench.worker).held, 16);
    expect_own_next();
}

WORKER_TEST(a_stopped_process_does_not_blame_its_batch)
{
    BEGIN_WITH(default_options(), with.compute_timeout_ms = 1000);
    read_and_prepare(1, 4);
    tick_after_ms(60 * 1000);
    assert_int_equal(waiting(ACTION_EXIT), 0);
    answer_batch(STATUS_OK);
    assert_int_equal(waiting(ACTION_EXIT), 0);
}
