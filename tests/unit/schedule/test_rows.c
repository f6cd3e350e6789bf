/* Requests of several rows, equal texts, and the effect of a failed batch on each of its rows. */
#include "rows_bench.h"

static struct worker_options wide_options(void)
{
    struct worker_options options = rows_options();
    options.max_batch_rows = 64;
    options.max_batch_tokens = 4096;
    options.window_fixed = true; /* so that all are in one batch to begin with */
    return options;
}

/* --- in halves --- */

/* One bad row among n, as n requests or as one: checks the number of passes, and which requests are charged. */
static void check_one_bad(uint32_t n, uint32_t position, bool one_request, uint32_t slots)
{
    ROWS_BEGIN_WITH(wide_options(), with.engine_slots = slots, with.batches_out = 2 * slots);
    struct asked asked = {.rows = one_request ? n : 1, .tokens = 3, .step = 1};
    fake.bad[position] = true;
    rows_ask(CLASS_NORMAL, one_request ? 1 : n, asked);
    rows_run_window();
    assert_true(fake.forwards - 1 <= 2 * log2(n)); /* the promise allows one more */
    for (uint32_t i = 0; i < fake.entries; i++) {
        rows_expect(i, 1, one_request || i == position ? OUTCOME_DEFER : OUTCOME_DONE);
    }
    if (one_request) { assert_int_equal(fake.asked[0].failed_index, position); }
    assert_int_equal(worker_stats(bench.worker).done, one_request ? 0 : n - 1);
    assert_int_equal(worker_stats(bench.worker).retries, 1);
}

WORKER_TEST(one_bad_row_costs_little_at_every_place)
{
    for (uint32_t n = 1; n <= 33; n++) {
        for (uint32_t position = 0; position < n; position++) {
            for (uint32_t slots = 1; slots <= 2; slots++) {
                check_one_bad(n, position, false, slots);
                check_one_bad(n, position, true, slots);
            }
        }
    }
}

WORKER_TEST(only_bad_rows_are_charged_however_many)
{
    for (uint32_t round = 0; round < 200; round++) {
        ROWS_BEGIN_WITH(wide_options(), with.engine_slots = 1 + round % 3,
                        with.batches_out = (1 + round % 4) * with.engine_slots);
        fake.random = round;
        fake.shuffled = true;
        uint32_t n = 1 + rows_chance(60);
        for (uint32_t i = 0; i < n; i++) { fake.bad[i] = rows_chance(6) == 0; }
        rows_ask(CLASS_NORMAL, n, (struct asked){.rows = 1, .tokens = 2, .step = 1});
        rows_run_window();
        for (uint32_t i = 0; i < n; i++) { rows_expect(i, 1, fake.bad[i] ? OUTCOME_DEFER : OUTCOME_DONE); }
    }
}

/* A batch whose fault does not recur charges nobody. */
WORKER_TEST(a_fault_that_does_not_come_back_charges_nobody)
{
    rows_begin(wide_options());
    fake.flaky[5] = 1;
    rows_ask(CLASS_NORMAL, 20, (struct asked){.rows = 1, .tokens = 2, .step = 1});
    rows_run_window();
    rows_expect(0, 20, OUTCOME_DONE);
}

/* When all rows of a request are bad, the first one found ends it; the others are not tried one by one. */
WORKER_TEST(a_request_that_is_bad_throughout_ends_at_once)
{
    rows_begin(wide_options());
    for (int i = 0; i < 64; i++) { fake.bad[i] = true; }
    rows_ask(CLASS_NORMAL, 1, (struct asked){.rows = 64, .tokens = 2, .step = 1});
    rows_run_window();
    rows_expect(0, 1, OUTCOME_DEFER);
    assert_in_range(fake.forwards, 1, 1 + 2 * 6);
}

/* --- out of memory, not finite --- */

WORKER_TEST(out_of_memory_halves_first_and_grows_back)
{
    rows_begin(rows_options());
    fake.memory = 20;
    rows_ask(CLASS_NORMAL, 1, (struct asked){.rows = 40, .tokens = 4, .step = 1});
    rows_run_all();
    rows_expect(0, 1, OUTCOME_DONE);
    assert_int_equal(worker_stats(bench.worker).batches_bisected, 0);
    assert_in_range(worker_stats(bench.worker).batches_out_of_memory, 1, 2);
    assert_int_equal(worker_stats(bench.worker).batch_tokens, 16); /* half of 32, the extent that did not fit */
    fake.memory = UINT32_MAX;
    rows_ask(CLASS_NORMAL, 1, (struct asked){.rows = 4 * 16, .tokens = 4, .number = 100, .step = 1});
    rows_run_all();
    assert_int_equal(worker_stats(bench.worker).batch_tokens, 32); /* after 16 good batches */
    rows_ask(CLASS_NORMAL, 1, (struct asked){.rows = 8 * 16, .tokens = 4, .number = 200, .step = 1});
    rows_run_all();
    assert_int_equal(worker_stats(bench.worker).batch_tokens, 64);
    rows_expect(0, 3, OUTCOME_DONE);
}

WORKER_TEST(rows_that_do_not_fit_together_run_one_by_one)
{
    rows_begin(rows_options());
    fake.memory = 0; /* no two rows fit together */
    rows_ask(CLASS_NORMAL, 3, (struct asked){.rows = 2, .tokens = 4, .step = 1});
    rows_run_all();
    rows_expect(0, 3, OUTCOME_DONE);
}

WORKER_TEST(what_is_not_finite_is_never_done)
{
    rows_begin(rows_options());
    fake.infinite[13] = true;
    rows_ask(CLASS_NORMAL, 4, (struct asked){.rows = 5, .tokens = 4, .step = 1, .hashed = true});
    rows_ask(CLASS_NORMAL, 1, (struct asked){.rows = 1, .tokens = 4, .number = 13, .hashed = true});
    rows_run_all();
    rows_expect(0, 2, OUTCOME_DONE);
    rows_expect(2, 1, OUTCOME_DEFER);
    rows_expect(3, 1, OUTCOME_DONE);
    rows_expect(4, 1, OUTCOME_DEFER);
    assert_int_equal(fake.asked[2].code, CODE_NON_FINITE);
}

/* --- rows, not requests --- */

WORKER_TEST(a_request_spans_batches_and_shares_them)
{
    rows_begin(rows_options());
    rows_ask(CLASS_NORMAL, 1, (struct asked){.rows = 100, .tokens = 4, .step = 1});
    rows_ask(CLASS_HIGH, 1, (struct asked){.rows = 1, .tokens = 4, .number = 500});
    rows_prepare_all();
    for (int i = 0; i < 4; i++) { /* one runs, one is cut ahead: the third has the other request's row */
        assert_int_equal(fake.asked[1].ends, 0);
        rows_answer(take(ACTION_SUBMIT));
        while (waiting(ACTION_FORMAT) > 0) { rows_answer(take(ACTION_FORMAT)); }
        while (waiting(ACTION_SETTLE) > 0) { rows_answer(take(ACTION_SETTLE)); }
        if (fake.asked[1].ends == 1) { break; }
    }
    assert_int_equal(fake.asked[1].ends, 1);
    assert_int_equal(fake.asked[0].ends, 0);
    rows_run_all();
    rows_expect(0, 2, OUTCOME_DONE);
    assert_int_equal(fake.forwards, 13); /* 101 rows, 8 at a time */
    assert_int_equal(fake.most_rows, 8);
    assert_in_range(fake.most_tokens, 1, 64);
}

WORKER_TEST(a_row_larger_than_the_budget_runs_alone)
{
    ROWS_BEGIN_WITH(rows_options(), with.max_batch_tokens = 10);
    rows_ask(CLASS_NORMAL, 2, (struct asked){.rows = 3, .tokens = 30, .step = 1});
    rows_run_all();
    rows_expect(0, 2, OUTCOME_DONE);
    assert_int_equal(fake.forwards, 6);
}

WORKER_TEST(the_first_bad_row_ends_the_whole_request)
{
    ROWS_BEGIN_WITH(rows_options(), with.max_batch_rows = 1);
    fake.bad[2] = fake.bad[7] = true;
    rows_ask(CLASS_NORMAL, 1, (struct asked){.rows = 1000, .tokens = 4, .step = 1});
    rows_run_all();
    rows_expect(0, 1, OUTCOME_DEFER);
    assert_int_equal(fake.asked[0].failed_index, 2);
    assert_in_range(fake.forwards, 3, 4); /* one was out already; the other 996 need not run */
    assert_int_equal(worker_stats(bench.worker).waiting, 0);
    assert_int_equal(worker_stats(bench.worker).held, 0);
}

/* --- equal texts --- */

WORKER_TEST(equal_texts_are_computed_once)
{
    rows_begin(wide_options());
    rows_ask(CLASS_NORMAL, 3, (struct asked){.rows = 10, .tokens = 4, .number = 9, .hashed = true});
    rows_ask(CLASS_LOW, 2, (struct asked){.rows = 1, .tokens = 4, .number = 9, .hashed = true, .tenant = "t"});
    rows_ask(CLASS_HIGH, 1, (struct asked){.rows = 4, .tokens = 4, .number = 8, .step = 1, .hashed = true});
    rows_ask(CLASS_HIGH, 1, (struct asked){.rows = 1, .tokens = 5, .number = 9, .hashed = true}); /* longer */
    rows_ask(CLASS_HIGH, 1, (struct asked){.rows = 2, .tokens = 4, .number = 9});                 /* without a hash */
    rows_prepare_all();
    tick_after_ms(5);
    assert_int_equal(waiting(ACTION_SUBMIT), 1);
    rows_run_all();
    rows_expect(0, 8, OUTCOME_DONE);
    assert_int_equal(fake.forwards, 1);
    assert_int_equal(worker_stats(bench.worker).rows, 4 + 1 + 2); /* 8 to 11, the longer one, the unknown ones */
    assert_int_equal(worker_stats(bench.worker).rows_shared, 30 + 2);
}

WORKER_TEST(a_bad_text_is_charged_to_each_that_brought_it)
{
    rows_begin(wide_options());
    fake.bad[9] = true;
    rows_ask(CLASS_NORMAL, 3, (struct asked){.rows = 1, .tokens = 4, .number = 9, .hashed = true});
    rows_ask(CLASS_NORMAL, 1, (struct asked){.rows = 5, .tokens = 4, .number = 9, .hashed = true});
    rows_ask(CLASS_NORMAL, 3, (struct asked){.rows = 1, .tokens = 4, .number = 20, .step = 1, .hashed = true});
    rows_run_window();
    rows_expect(0, 4, OUTCOME_DEFER);
    rows_expect(4, 3, OUTCOME_DONE);
    assert_in_range(fake.forwards, 1, 1 + 2 * 2 + 3); /* four rows in halves, then the three other requests alone */
}

/* A failure by bad luck costs the row that was computed, but not its duplicates. */
WORKER_TEST(duplicates_of_a_row_that_failed_try_it_themselves)
{
    rows_begin(wide_options());
    fake.flaky[9] = 1;
    rows_ask(CLASS_NORMAL, 4, (struct asked){.rows = 1, .tokens = 4, .number = 9, .hashed = true});
    rows_run_window();
    int deferred = 0;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(fake.asked[i].ends, 1);
        deferred += fake.asked[i].outcome == OUTCOME_DEFER;
    }
    assert_int_equal(deferred, 1);
    assert_int_equal(fake.forwards, 2);
}

/* --- expiry --- */

WORKER_TEST(rows_expire_in_the_window)
{
    rows_begin(rows_options());
    uint64_t now_ms = redis_now();
    rows_ask(CLASS_NORMAL, 1, (struct asked){.rows = 20, .tokens = 4, .step = 1});
    rows_ask(CLASS_NORMAL, 3,
             (struct asked){.rows = 3, .tokens = 4, .number = 100, .step = 1, .expires_at_ms = now_ms + 100});
    rows_ask(CLASS_NORMAL, 1,
             (struct asked){.rows = 3, .tokens = 4, .number = 200, .step = 1, .expires_at_ms = now_ms + 5000});
    rows_prepare_all();
    assert_true(bench.wakes_at <= bench.now + 100 * NS_PER_MS);
    tick_after_ms(99);
    assert_int_equal(waiting(ACTION_SETTLE), 0);
    tick_after_ms(1);
    rows_answer(take(ACTION_SETTLE)); /* though no batch was cut */
    rows_expect(1, 1, OUTCOME_ERROR);
    rows_run_all();
    for (int i = 1; i < 4; i++) { assert_int_equal(fake.asked[i].code, CODE_EXPIRED); }
    rows_expect(1, 3, OUTCOME_ERROR);
    rows_expect(0, 1, OUTCOME_DONE);
    rows_expect(4, 1, OUTCOME_DONE);
}

/* Even between two looks nothing is started that has expired, not even as a duplicate. */
WORKER_TEST(nothing_is_started_after_it_expired)
{
    rows_begin(rows_options());
    uint64_t now_ms = redis_now();
    rows_ask(CLASS_NORMAL, 1, (struct asked){.rows = 16, .tokens = 4, .step = 1, .hashed = true});
    rows_ask(CLASS_NORMAL, 1, (struct asked){.rows = 1, .tokens = 4, .number = 100, .expires_at_ms = now_ms + 10});
    rows_ask(CLASS_NORMAL, 1, (struct asked){.rows = 1, .tokens = 4, .number = 200, .hashed = true});
    rows_ask(CLASS_NORMAL, 1,
             (struct asked){.rows = 1, .tokens = 4, .number = 200, .hashed = true, .expires_at_ms = now_ms + 30});
    rows_prepare_all();
    assert_int_equal(waiting(ACTION_SUBMIT), 2);
    tick_after_ms(10); /* the next look is due after 50 ms */
    bench.now += 25 * NS_PER_MS;
    rows_run_all();
    rows_expect(0, 1, OUTCOME_DONE);
    rows_expect(1, 1, OUTCOME_ERROR);
    rows_expect(2, 1, OUTCOME_DONE);
    rows_expect(3, 1, OUTCOME_ERROR);
    assert_int_equal(worker_stats(bench.worker).rows_shared, 0);
}

WORKER_TEST(a_batch_of_expired_rows_alone_is_not_cut)
{
    rows_begin(rows_options());
    rows_ask(CLASS_NORMAL, 1, (struct asked){.rows = 16, .tokens = 4, .step = 1});
    for (uint32_t ms = 10; ms <= 30; ms += 20) {
        rows_ask(CLASS_NORMAL, 1,
                 (struct asked){.rows = 2, .tokens = 4, .number = 100, .expires_at_ms = redis_now() + ms});
    }
    rows_prepare_all();
    tick_after_ms(10); /* the next look is due after 50 ms */
    bench.now += 25 * NS_PER_MS;
    rows_run_all();
    rows_expect(0, 1, OUTCOME_DONE);
    rows_expect(1, 2, OUTCOME_ERROR);
    assert_int_equal(fake.forwards, 2);
}

/* A request that has started is finished, however long it takes. */
WORKER_TEST(what_has_started_does_not_expire)
{
    rows_begin(rows_options());
    rows_ask(CLASS_NORMAL, 1, (struct asked){.rows = 40, .tokens = 4, .step = 1, .expires_at_ms = redis_now() + 50});
    rows_prepare_all();
    tick_after_ms(100);
    rows_run_all();
    rows_expect(0, 1, OUTCOME_DONE);
}

/* --- drain, lost device, watchdog --- */

static void rows_suspect(struct asked asked)
{
    while (waiting(ACTION_RECLAIM) == 0) { tick_after_ms(100); }
    asked.origin = ORIGIN_RECLAIMED;
    rows_ask(CLASS_NORMAL, 1, asked);
}

WORKER_TEST(a_drain_releases_each_request_once_when_its_last_row_is_back)
{
    rows_begin(rows_options());
    rows_ask(CLASS_NORMAL, 1, (struct asked){.rows = 8, .tokens = 4, .step = 1});                 /* out */
    rows_ask(CLASS_NORMAL, 1, (struct asked){.rows = 20, .tokens = 4, .number = 50, .step = 1});  /* half out */
    rows_ask(CLASS_NORMAL, 2, (struct asked){.rows = 20, .tokens = 4, .number = 100, .step = 1}); /* waiting */
    rows_prepare_all();
    assert_int_equal(waiting(ACTION_SUBMIT), 2);
    send((struct event){.kind = EVENT_DRAIN});
    rows_answer(take(ACTION_RELEASE));
    assert_int_equal(fake.asked[0].released + fake.asked[1].released, 0);
    assert_int_equal(fake.asked[2].released + fake.asked[3].released, 2);
    rows_run_all();
    assert_int_equal(fake.asked[0].ends, 1);
    rows_expect_released(1, 1);
    assert_int_equal(fake.forwards, 2);
    assert_int_equal(worker_stats(bench.worker).held, 0);
}

/* It was being tokenised, or its run was being recorded. */
WORKER_TEST(a_drain_releases_what_comes_back_unstarted)
{
    for (int suspects = 0; suspects < 2; suspects++) {
        struct asked asked = {.rows = 2, .tokens = 4, .step = 1};
        rows_begin(rows_options());
        if (suspects) {
            rows_suspect(asked);
        } else {
            rows_ask(CLASS_NORMAL, 1, asked);
        }
        send((struct event){.kind = EVENT_DRAIN});
        rows_run_all();
        rows_expect_released(0, 1);
        assert_int_equal(fake.charges, suspects);
        assert_int_equal(fake.forwards, 0);
        assert_int_equal(worker_stats(bench.worker).held, 0);
    }
}

/* Halves that wait for their turn count as not started, although the whole had; the rows are in one batch, or in
 * three, two of which fail. */
WORKER_TEST(a_drain_between_two_halves_releases_what_is_left)
{
    for (int step = 2; step < 16; step++) {
        int steps = step / 2;
        rows_begin(step % 2 ? wide_options() : rows_options());
        fake.bad[3] = fake.bad[11] = true;
        rows_ask(CLASS_NORMAL, 4, (struct asked){.rows = 4, .tokens = 4, .step = 1, .hashed = true});
        rows_ask(CLASS_NORMAL, 4, (struct asked){.rows = 1, .tokens = 4, .number = 11, .hashed = true});
        rows_prepare_all();
        tick_after_ms(5);
        for (int i = 0; i < steps && waiting(ACTION_SUBMIT) > 0; i++) { rows_answer(take(ACTION_SUBMIT)); }
        send((struct event){.kind = EVENT_DRAIN});
        rows_run_all();
        for (int i = 0; i < 8; i++) { assert_int_equal(fake.asked[i].ends + fake.asked[i].released, 1); }
        assert_int_equal(worker_stats(bench.worker).held, 0);
    }
}

/* One of two devices is lost: batches that are out go on, and fewer go out from then on. */
WORKER_TEST(with_a_device_less_fewer_batches_are_out)
{
    ROWS_BEGIN_WITH(rows_options(), with.devices = 2, with.engine_slots = 2, with.batches_out = 8,
                    with.max_batch_rows = 4);
    rows_ask(CLASS_NORMAL, 100, (struct asked){.rows = 1, .tokens = 4, .step = 1});
    rows_prepare_all();
    assert_int_equal(waiting(ACTION_SUBMIT), 8);
    send((struct event){.kind = EVENT_DEVICE_LOST, .left = {.engine_slots = 1, .batches_out = 4}});
    for (int out = 7; out >= 4; out--) {
        rows_answer(take(ACTION_SUBMIT));
        assert_int_equal(waiting(ACTION_SUBMIT), out);
    }
    for (int i = 0; i < 3; i++) {
        rows_answer(take(ACTION_SUBMIT));
        assert_int_equal(waiting(ACTION_SUBMIT), 4);
    }
    assert_int_equal(worker_stats(bench.worker).devices, 1);
    assert_int_equal(worker_stats(bench.worker).devices_lost, 1);
    rows_run_all();
    for (uint32_t i = 0; i < fake.entries; i++) { assert_int_equal(fake.asked[i].ends, 1); }
}

/* The event of the last loss may come before the batches or after them. */
WORKER_TEST(with_no_device_left_everything_is_given_back_once)
{
    for (int before = 0; before < 2; before++) {
        ROWS_BEGIN_WITH(rows_options(), with.engine_slots = 2, with.batches_out = 4, with.devices = 2,
                        with.devices_lost = 1); /* from the start */
        assert_int_equal(worker_stats(bench.worker).devices, 1);
        rows_ask(CLASS_NORMAL, 100, (struct asked){.rows = 7, .tokens = 4, .number = 3, .hashed = true, .step = 1});
        rows_prepare_all();
        if (before) {
            send((struct event){.kind = EVENT_DEVICE_LOST});
            assert_int_equal(worker_stats(bench.worker).devices, 0);
        }
        fake.device_lost = true;
        rows_run_all();
        rows_expect_released(0, 100);
        assert_int_equal(worker_stats(bench.worker).held, 0);
    }
}

/* The credit is multiplied by the number of devices. */
WORKER_TEST(credit_counts_for_each_device)
{
    uint32_t of_one = 0;
    for (uint32_t devices = 1; devices <= 4; devices++) {
        /* Class low has as much credit as the others, for 20 entries, each guessed to be of max_tokens. */
        ROWS_BEGIN_WITH(rows_options(), with.devices = devices, with.batches_out = 1000, with.credit_tokens = 64 * 20);
        struct action read = take(ACTION_READ);
        of_one = devices == 1 ? read.read.counts[CLASS_NORMAL] : of_one;
        assert_in_range(of_one, 2, 20); /* a reclaim that is on its way takes some of it */
        assert_int_equal(read.read.counts[CLASS_NORMAL], of_one * devices);
        bench.out[bench.count++] = read;
    }
}

/* The lease is lost, and then the connection before the batch is back: rows that were given up stay given up. */
WORKER_TEST(rows_given_up_for_a_lost_lease_do_not_linger)
{
    rows_begin(rows_options());
    rows_ask(CLASS_NORMAL, 1, (struct asked){.rows = 40, .tokens = 4, .step = 1});
    rows_prepare_all();
    while (waiting(ACTION_RENEW) == 0) { tick_after_ms(100); }
    lose_lease_key();
    assert_int_equal(worker_stats(bench.worker).waiting, 0);
    send((struct event){.kind = EVENT_DISCONNECTED});
    connected();
    rows_run_all();
    assert_int_equal(fake.forwards, 2);
    rows_expect_released(0, 1);
    assert_int_equal(worker_stats(bench.worker).held, 0);
}

WORKER_TEST(a_batch_that_hangs_ends_the_worker)
{
    ROWS_BEGIN_WITH(rows_options(), with.compute_timeout_ms = 1000);
    rows_ask(CLASS_NORMAL, 1, (struct asked){.rows = 30, .tokens = 4, .step = 1});
    rows_prepare_all();
    assert_true(bench.wakes_at <= bench.now + 1000 * NS_PER_MS);
    bench.now += 900 * NS_PER_MS;
    rows_answer(take(ACTION_SUBMIT));
    uint64_t since = bench.now;
    take(ACTION_SUBMIT).batch->watched_ns = since; /* a thread begins the second one */
    struct actions actions = {0};
    const struct action *last = NULL;
    while (last == NULL || last->kind != ACTION_EXIT) {
        bench.now = bench.wakes_at;
        assert_true(bench.now <= since + 1200 * NS_PER_MS);
        bench.wakes_at = worker_step(bench.worker, &(struct event){.kind = EVENT_TICK}, bench.now, &actions);
        last = actions.count > 0 ? &actions.items[actions.count - 1] : NULL;
    }
    assert_true(bench.now >= since + 1000 * NS_PER_MS);
    assert_int_equal(last->exit.status, STATUS_TIMEOUT);
    assert_false(last->exit.clean);
    for (size_t i = 0; i < actions.count; i++) {
        assert_true(actions.items[i].kind != ACTION_RELEASE); /* any of it may be the reason */
    }
    actions_free(&actions);
}

/* Ticks when the worker wants to be woken, but at least every 100 ms. Returns whether it ends. */
static bool wake_ends(struct actions *actions)
{
    uint64_t soon = bench.now + 100 * NS_PER_MS;
    bench.now = bench.wakes_at < soon ? bench.wakes_at : soon;
    bench.wakes_at = worker_step(bench.worker, &(struct event){.kind = EVENT_TICK}, bench.now, actions);
    return actions->count > 0 && actions->items[actions->count - 1].kind == ACTION_EXIT;
}

/* A batch that takes long is watched from its latest step on, also if the process was stopped meanwhile. */
WORKER_TEST(a_batch_that_makes_steps_does_not_hang)
{
    ROWS_BEGIN_WITH(rows_options(), with.compute_timeout_ms = 1000);
    rows_ask(CLASS_NORMAL, 1, (struct asked){.rows = 1, .tokens = 4});
    rows_prepare_all();
    struct batch *batch = take(ACTION_SUBMIT).batch;
    struct actions actions = {0};
    uint64_t begun = bench.now;
    while (bench.now < begun + 5000 * NS_PER_MS) {
        batch->stepped_ns = bench.now;
        assert_false(wake_ends(&actions));
    }
    batch->stepped_ns = bench.wakes_at;
    bench.now = bench.wakes_at + 10000 * NS_PER_MS;
    uint64_t awake = bench.now;
    bench.wakes_at = worker_step(bench.worker, &(struct event){.kind = EVENT_TICK}, bench.now, &actions);
    while (!wake_ends(&actions)) { assert_true(bench.now <= awake + 1300 * NS_PER_MS); }
    assert_true(bench.now >= awake + 1000 * NS_PER_MS);
    assert_int_equal(actions.items[actions.count - 1].exit.status, STATUS_TIMEOUT);
    actions_free(&actions);
}

/* --- suspects --- */

/* A suspect whose run in a group has crashed: it runs alone. */
static void rows_loner(struct asked asked)
{
    asked.group_run = true;
    rows_suspect(asked);
    come_to_rest();
}

/* Its rows run in batches within the limits, one after the other, charged once, without rows of any other request. */
WORKER_TEST(a_suspect_of_many_rows_runs_in_slices)
{
    rows_begin(rows_options());
    fake.memory = 40;
    rows_loner((struct asked){.rows = 50, .tokens = 6, .number = 7, .hashed = true}); /* equal ones, even */
    rows_answer(take(ACTION_RECORD_RUN));
    rows_prepare_all();
    uint32_t rows = 0;
    while (fake.asked[0].ends == 0) {
        assert_in_range(waiting(ACTION_SUBMIT), 0, 1);
        for (size_t i = 0; i < bench.count; i++) {
            if (bench.out[i].kind == ACTION_SUBMIT) {
                rows += bench.out[i].batch->engine.rows;
                for (uint32_t r = 0; r < bench.out[i].batch->engine.rows; r++) {
                    assert_int_equal(bench.out[i].batch->rows[r]->request->identity.entry.ms, 1);
                }
            }
        }
        assert_true(rows_answer_one());
    }
    assert_int_equal(rows, 50 + 8); /* the first 8 twice: they were too much for memory */
    assert_int_equal(fake.charges, 1);
    assert_int_equal(worker_stats(bench.worker).rows_shared, 0);
    rows_expect(0, 1, OUTCOME_DONE);
}

/* Many suspects take long; one that expires meanwhile is neither charged nor run, in a group or alone. */
WORKER_TEST(a_suspect_that_expired_is_not_run)
{
    for (int alone = 0; alone < 2; alone++) {
        rows_begin(rows_options());
        struct asked asked = {.rows = 2, .tokens = 6, .step = 1, .group_run = alone == 1};
        asked.expires_at_ms = redis_now() + 1000;
        rows_suspect(asked);
        if (alone == 1) {
            tick_after_ms(1000);
            come_to_rest();
        } else {
            send((struct event){
                .kind = EVENT_RUN_RECORDED, .requests = take(ACTION_RECORD_RUN).requests, .failed = true});
            tick_after_ms(1000);
        }
        rows_run_all();
        rows_expect(0, 1, OUTCOME_ERROR);
        assert_int_equal(fake.asked[0].code, CODE_EXPIRED);
        assert_int_equal(fake.charges, 0);
    }
}

WORKER_TEST(a_bad_row_of_a_suspect_is_found)
{
    rows_begin(rows_options());
    fake.bad[13] = true;
    rows_loner((struct asked){.rows = 50, .tokens = 6, .step = 1});
    rows_run_all();
    rows_expect(0, 1, OUTCOME_DEFER);
    assert_int_equal(fake.asked[0].failed_index, 13);
    assert_in_range(fake.forwards, 2, 2 + 2 * 3);
}

WORKER_TEST(a_drain_ends_a_suspect_after_its_slice)
{
    rows_begin(rows_options());
    rows_loner((struct asked){.rows = 50, .tokens = 6, .step = 1});
    rows_answer(take(ACTION_RECORD_RUN));
    rows_prepare_all();
    rows_answer(take(ACTION_SUBMIT));
    send((struct event){.kind = EVENT_DRAIN});
    rows_run_all();
    assert_int_equal(fake.forwards, 2);
    rows_expect_released(0, 1);
}
