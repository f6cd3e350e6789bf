/* The worker's use of the time that batches take. */
#include <math.h>

#include "worker_bench.h"

/* 1 ms a batch and 0.1 ms a token. */
static struct worker_options timed_options(void)
{
    struct worker_options options = default_options();
    options.cost = cost_from(1e6, 1e5, 0);
    return options;
}

/* timed_options with large batches, so that only their time limits them. */
static struct worker_options wide_options(void)
{
    struct worker_options options = timed_options();
    options.max_batch_rows = 64;
    options.max_batch_tokens = 1000;
    return options;
}

/* Answers the batch that is out after its predicted time, times `factor`. */
static uint32_t compute_with(double factor, bool helped)
{
    struct batch *batch = take(ACTION_SUBMIT).batch;
    uint32_t rows = batch->engine.rows;
    batch->helped = helped;
    batch->started_ns = bench.now;
    bench.now += (uint64_t)(factor * (1e6 + 1e5 * batch->engine.extent));
    batch->finished_ns = bench.now;
    memset(batch->engine.output, 0, rows * DIM * sizeof(float));
    send((struct event){.kind = EVENT_BATCH, .batch = batch});
    return rows;
}

static uint32_t compute(double factor)
{
    return compute_with(factor, false);
}

/* Computes batches in turn, and checks the rows of each; the list ends with 0. */
#define COMPUTE(...) compute_these((const uint32_t[]){__VA_ARGS__, 0})

static void compute_these(const uint32_t *rows)
{
    for (; *rows > 0; rows++) { assert_int_equal(compute(1), *rows); }
}

static void finish(void)
{
    format_all();
    settle_all();
    answer_chores();
}

/* Computes the batches that are out, and those cut after them. */
static void finish_all(void)
{
    while (waiting(ACTION_SUBMIT) > 0) { (void)compute(1); }
    finish();
}

static struct heartbeat heartbeat(void)
{
    while (waiting(ACTION_PULSE) == 0) { tick_after_ms(100); }
    struct heartbeat heartbeat = bench.out[0].heartbeat;
    for (size_t i = 0; i < bench.count; i++) {
        if (bench.out[i].kind == ACTION_PULSE) { heartbeat = bench.out[i].heartbeat; }
    }
    answer_chores();
    return heartbeat;
}

WORKER_TEST(batches_end_at_max_batch_ms)
{
    BEGIN_WITH(timed_options(), with.max_batch_ms = 2); /* 10 tokens */
    read_and_prepare(7, 4);
    assert_int_equal(compute(1), 2); /* 8 tokens; a third row would make it 2.2 ms */
    COMPUTE(2, 2, 1);
    finish();
}

WORKER_TEST(cheap_batches_end_at_a_quarter_of_it)
{
    const uint32_t most_ms[] = {400, 200, 100}; /* with 1 ms for every batch, 200 and 100 both mean 50 ms */
    const uint32_t rows[] = {9, 4, 4};          /* of 10 ms each */
    for (size_t i = 0; i < 3; i++) {
        BEGIN_WITH(timed_options(), with.max_batch_rows = 64, with.max_batch_tokens = 4096,
                   with.max_batch_ms = most_ms[i]);
        read_and_prepare(40, 100);
        assert_int_equal(compute(1), rows[i]);
        finish_all();
    }
}

WORKER_TEST(a_slower_machine_gets_shorter_batches)
{
    BEGIN_WITH(timed_options(), with.max_batch_ms = 3); /* 20 tokens: five rows of 4 */
    uint32_t first = 0, last = 0;
    for (int i = 0; i < 60; i++) {
        read_and_prepare(8, 4);
        for (bool head = true; waiting(ACTION_SUBMIT) > 0; head = false) {
            uint32_t rows = compute(2);
            if (head) { last = rows; }
            first = first == 0 ? rows : first;
        }
        finish();
    }
    assert_int_equal(first, 5);
    assert_int_equal(last, 1); /* 2 ms and 0.2 ms a token: one row is 2.8 ms, two are 3.6 */
}

/* Answers the next preparation at once: a text of `first` tokens and others of 4. */
static void prepare_with_first(uint32_t first)
{
    struct request_list list = take(ACTION_PREPARE).requests;
    for (struct request *request = list.first; request != NULL; request = request->next) {
        uint32_t tokens = request == list.first ? first : 4;
        request->work = calloc(DIM + tokens, sizeof(float));
        request->rows[0].output = request->work;
        request->rows[0].ids = (int32_t *)(request->rows[0].output + DIM);
        request->rows[0].tokens = tokens;
    }
    send_requests(EVENT_PREPARED, list, false);
}

/* It is a batch by itself, and requests that came with it and after it are answered while it is computed. */
WORKER_TEST(a_long_text_holds_up_no_short_one)
{
    BEGIN_WITH(wide_options(), with.cost = cost_from(1e6, 1e5, 1e4), /* 8,192 tokens: 672 s */
               with.max_batch_tokens = 10000, with.max_batch_ms = 100, with.engine_slots = 2, with.batches_out = 4);
    read_new(5);
    prepare_with_first(8192);
    struct batch *lone = take(ACTION_SUBMIT).batch;
    assert_int_equal(lone->engine.rows, 1);
    assert_int_equal(lone->tokens, 8192);
    for (uint32_t others = 4; others > 2; others--) {
        assert_int_equal(compute(1), others);
        format_all();
        assert_int_equal(settle(false), others);
        read_and_prepare(others - 1, 4);
    }
    memset(lone->engine.output, 0, DIM * sizeof(float));
    send((struct event){.kind = EVENT_BATCH, .batch = lone});
    finish_all();
}

WORKER_TEST(the_speed_is_that_of_full_batches)
{
    begin(timed_options());
    assert_true(heartbeat().rows_per_s == 0); /* the length of texts is not known yet */
    for (int i = 0; i < 20; i++) {
        read_and_prepare(1, 4);
        assert_int_equal(compute(1), 1);
        finish();
    }
    /* Though each of them ran alone: 8 rows of 4 tokens take 4.2 ms. */
    assert_true(fabs(heartbeat().rows_per_s - 8 / 4.2e-3) < 20);
}

/* The credit of a machine that is `slower` times slower than timed_options, after texts of four tokens. */
static uint32_t credit_of(double slower)
{
    BEGIN_WITH(timed_options(), with.cost = cost_from(slower * 1e6, slower * 1e5, 0), with.credit_tokens = 0);
    for (int i = 0; i < 200; i++) {
        read_and_prepare(1, 4);
        assert_int_equal(compute(slower), 1);
        finish();
    }
    uint32_t credit = worker_stats(bench.worker).credit_tokens;
    return credit;
}

/* 32 tokens take 42 ms on the first machine; on the second 4.2 s, and two such batches may be out. */
WORKER_TEST(what_is_held_is_a_seconds_work)
{
    assert_in_range(credit_of(10), 755, 765);
    assert_in_range(credit_of(1000), 63, 64);
}

WORKER_TEST(the_error_of_the_fit_is_told)
{
    begin(timed_options());
    read_and_prepare(1, 4);
    (void)compute(1.25);
    assert_true(fabs(worker_stats(bench.worker).cost_error - 0.2) < 1e-6);
    finish();
}

/* A batch with help from idle threads does not contradict the known cost of batches without help. */
WORKER_TEST(a_helped_batch_is_known_as_such)
{
    BEGIN_WITH(timed_options(), with.cost.help = 0.5);
    for (int helped = 1; helped >= 0; helped--) {
        read_and_prepare(1, 4);
        (void)compute_with(helped ? 0.5 : 1, helped);
        assert_true(worker_stats(bench.worker).cost_error < 1e-6);
        finish();
    }
}

/* The latency is from the entry's id, which is the time of its XADD, to its settle. */
WORKER_TEST(the_latency_is_that_of_the_producer)
{
    for (int i = 0; i < 210; i++) {
        bench.next_entry = bench.now / NS_PER_MS + EPOCH_MS - 31; /* it had waited in Redis */
        read_and_prepare(1, 4);
        (void)compute(1);
        bench.now += 10 * NS_PER_MS;
        finish();
    }
    uint32_t p99_ms = worker_stats(bench.worker).p99_ms;
    assert_true(p99_ms >= 38 && p99_ms <= 45); /* 30 + 1.4 + 10 */
}

WORKER_TEST(a_target_makes_batches_shorter)
{
    struct worker_options options = wide_options();
    options.target_p99_ms = 40; /* 10 ms at first: 90 tokens */
    begin(options);
    read_and_prepare(40, 10);
    assert_int_equal(compute(1), 9);
    options.target_p99_ms = 0;
    struct err err;
    assert_int_equal(worker_tune(bench.worker, &options, &err), STATUS_OK);
    assert_int_equal(compute(1), 9); /* this one and the next had been cut before */
    COMPUTE(9, 13);
    finish();
}

static void read_low(int count)
{
    while (count-- > 0) { read_one(CLASS_LOW, FIELDS("text", "word")); }
}

/* Reads `low` requests after such a long time without online requests that none is expected. */
static void read_low_when_quiet(void)
{
    bench.now += 11 * NS_PER_S;
    read_low(12);
    prepare_all(40);
}

/* Batches of class low are short from the second online request on, until none has come for a while. */
WORKER_TEST(bulk_work_is_brief_beside_online_requests)
{
    begin(wide_options());
    read_and_prepare(1, 40);
    (void)compute(1);
    read_low(12);
    assert_int_equal(waiting(ACTION_PREPARE), 12);
    prepare_all(40);
    assert_int_equal(compute(1), 1); /* nothing else was there when it was cut */
    assert_int_equal(compute(1), 11);
    finish();

    read_and_prepare(1, 40);
    assert_int_equal(compute(1), 1);
    read_low(12);
    assert_int_equal(waiting(ACTION_PREPARE), 2); /* the others can be overtaken */
    prepare_all(40);
    assert_int_equal(compute(1), 1);
    assert_int_equal(waiting(ACTION_SUBMIT), 1); /* none ahead of its time */
    read_and_prepare(3, 40);
    assert_int_equal(compute(1), 6); /* 25 ms, below the 26.6 of 256 tokens; a seventh would make it 29 */
    assert_int_equal(compute(1), 6); /* with the online ones */
    assert_int_equal(compute(1), 2);
    finish();

    read_low_when_quiet();
    COMPUTE(1, 11);
    finish();
}

/* With several slots one is kept for online requests, and rows of class low join their batches only in their turn. */
WORKER_TEST(bulk_work_leaves_a_slot_to_online_requests)
{
    BEGIN_WITH(wide_options(), with.engine_slots = 2);
    for (int i = 0; i < 2; i++) {
        read_and_prepare(1, 40);
        assert_int_equal(compute(1), 1);
    }
    read_low(12);
    prepare_all(40);
    assert_int_equal(waiting(ACTION_SUBMIT), 1); /* though there are two slots */
    assert_int_equal(compute(1), 1);
    assert_int_equal(waiting(ACTION_SUBMIT), 1);
    read_and_prepare(1, 40);
    assert_int_equal(waiting(ACTION_SUBMIT), 2); /* at once, and by itself */
    COMPUTE(6, 1);
    finish_all();
    read_low_when_quiet();
    assert_int_equal(waiting(ACTION_SUBMIT), 2); /* nobody is online any more */
    finish_all();
}

/* Reads `count` requests of one word and prepares them; some may wait to be prepared until others are back. */
static void read_normal(size_t count)
{
    read_and_prepare(count, 40);
}

/* The number of batches out that go before those that wait; all of these are of class high. */
static int count_first(void)
{
    int count = 0;
    for (size_t i = 0; i < bench.count; i++) {
        if (bench.out[i].kind == ACTION_SUBMIT && bench.out[i].batch->first) {
            assert_int_equal(bench.out[i].batch->rows[0]->request->identity.class, CLASS_HIGH);
            count++;
        }
    }
    return count;
}

static bool next_holds(enum request_class class, bool first)
{
    const struct batch *batch = NULL;
    for (size_t i = 0; i < bench.count && (batch == NULL || !first); i++) {
        if (bench.out[i].kind == ACTION_SUBMIT) { batch = bench.out[i].batch; }
    }
    for (uint32_t i = 0; batch != NULL && i < batch->engine.rows; i++) {
        if (batch->rows[i]->request->identity.class == class) { return true; }
    }
    return false;
}

/* After one batch that goes first, the waiting ones have their turn before another does. */
WORKER_TEST(one_batch_at_a_time_goes_before_those_that_wait)
{
    BEGIN_WITH(wide_options(), with.batches_out = 4);
    read_normal(200);
    assert_int_equal(waiting(ACTION_SUBMIT), 4);
    assert_int_equal(count_first(), 0);
    for (int i = 0; i < 2; i++) {
        read_one(CLASS_HIGH, FIELDS("text", "word"));
        prepare_all(60);
        (void)compute(1);
        assert_true(next_holds(CLASS_HIGH, false));
        assert_int_equal(count_first(), 1);
    }
    for (int i = 0; i < 3; i++) { /* those up to the first of them, and itself */
        (void)compute(1);
    }
    assert_int_equal(count_first(), 0);
    finish_all();
}

static void read_hurried(bool high, uint64_t expires_in_ms)
{
    char expires_in[24];
    uint64_t from = bench.next_entry + 1; /* the id, in ms */
    snprintf(expires_in, sizeof(expires_in), "%llu", (unsigned long long)(redis_now() + expires_in_ms - from));
    if (high) {
        read_one(CLASS_HIGH, FIELDS("text", "word"));
    } else {
        read_one(CLASS_NORMAL, FIELDS("text", "word", "expires_in", expires_in));
    }
    prepare_all(40);
}

/* Batches after a request of class high, or one that must start soon, are brief for ten seconds; they are as long as
 * ever beside a deadline that is far off, and if no others wait. */
WORKER_TEST(batches_are_brief_beside_requests_in_a_hurry)
{
    for (int kind = 0; kind < 3; kind++) { /* high; a deadline soon; one later */
        begin(wide_options());
        read_normal(150);
        assert_int_equal(compute(1), 25);
        assert_int_equal(waiting(ACTION_SUBMIT), 2);
        read_hurried(kind == 0, kind == 1 ? 5000 : 15000);
        assert_int_equal(compute(1), 25);
        assert_int_equal(compute(1), 25); /* both had been cut before */
        assert_int_equal(compute(1), kind < 2 ? 6 : 25);
        if (kind < 2) {
            assert_int_equal(waiting(ACTION_SUBMIT), 2); /* a batch is cut ahead as ever */
            assert_int_equal(compute(1), 6);
            bench.now += 10 * NS_PER_S;
            COMPUTE(6, 6, 25);
        }
        finish_all();
    }
    begin(wide_options());
    for (int i = 0; i < 60; i++) { read_one(CLASS_HIGH, FIELDS("text", "word")); }
    prepare_all(40);
    assert_int_equal(compute(1), 1); /* nothing else was there when it was cut */
    assert_int_equal(compute(1), 25);
    finish_all();
}

/* Each of many requests, at any time, after a backlog that never ends, is in the next batch that is cut. */
WORKER_TEST(high_is_in_the_next_batch)
{
    BEGIN_WITH(wide_options(), with.engine_slots = 2, with.batches_out = 4);
    uint32_t behind = 0;
    srand(17);
    read_normal(200);
    for (int i = 0; i < 300; i++) {
        if (waiting(ACTION_READ) > 0 && worker_stats(bench.worker).waiting < 150) { read_normal(50); }
        for (int batches = 2 + rand() % 5; batches > 0; batches--) {
            (void)compute(1);
            finish();
        }
        read_one(CLASS_HIGH, FIELDS("text", "word"));
        prepare_all(1 + (uint32_t)rand() % 100);
        assert_int_equal(waiting(ACTION_SUBMIT), 4);
        (void)compute(1);
        finish();
        assert_true(next_holds(CLASS_HIGH, false));
        while (!next_holds(CLASS_HIGH, true)) {
            behind += compute(1);
            finish();
        }
        assert_in_range(behind, 0, i == 0 ? 75 : 3 * 7); /* rows of the three batches that were out */
        behind = 0;
    }
    finish_all();
}

/* Returns whether the oldest batch that is out runs in spare time. */
static bool first_is_spare(void)
{
    for (size_t i = 0; i < bench.count; i++) {
        if (bench.out[i].kind == ACTION_SUBMIT) { return bench.out[i].batch->background; }
    }
    fail_msg("no batch is out");
    return false;
}

static void begin_spare(uint32_t slots, const struct worker_options *more)
{
    struct worker_options options = *more;
    options.engine_slots = slots;
    options.batches_out = 2 * slots;
    options.background_slots = 1;
    begin(options);
    for (int i = 0; i < 2; i++) {
        read_and_prepare(1, 40);
        assert_false(first_is_spare());
        assert_int_equal(compute(1), 1);
    }
}

/* If there are background threads, bulk work is in no batch of online requests, and takes none of their slots. */
WORKER_TEST(bulk_work_runs_in_spare_time)
{
    struct worker_options options = wide_options();
    for (uint32_t slots = 1; slots <= 2; slots++) {
        begin_spare(slots, &options);
        uint64_t busy_ns = worker_stats(bench.worker).busy_ns;
        read_low(12);
        prepare_all(40);
        assert_int_equal(waiting(ACTION_SUBMIT), 1);
        assert_true(first_is_spare());
        for (uint32_t i = 1; i <= slots; i++) {
            read_and_prepare(1, 40);
            assert_int_equal(waiting(ACTION_SUBMIT), 1 + i);
        }
        assert_int_equal(compute(30), 1); /* the first row was alone */
        assert_int_equal(worker_stats(bench.worker).busy_ns, busy_ns);
        for (uint32_t i = 0; i < slots; i++) {
            assert_false(first_is_spare());
            assert_int_equal(compute(1), 1);
        }
        assert_true(first_is_spare());
        assert_int_equal(compute(1), 6);
        finish_all();
        read_low_when_quiet();
        assert_false(first_is_spare()); /* nobody is online any more */
        finish_all();
    }
}

/* When online requests leave no spare time, bulk work has its share of the slots, and all of its rows are done. */
WORKER_TEST(bulk_work_without_spare_time_has_its_turn)
{
    struct worker_options options = wide_options();
    options.compute_timeout_ms = 500;
    for (uint32_t slots = 1; slots <= 2; slots++) {
        begin_spare(slots, &options);
        read_low(1);
        prepare_all(40);
        struct batch *starved = take(ACTION_SUBMIT).batch;
        assert_true(starved->background);
        read_low(6);
        prepare_all(40);
        assert_int_equal(waiting(ACTION_SUBMIT), 0);
        tick_after_ms(201);
        answer_chores();
        assert_int_equal(waiting(ACTION_SUBMIT), 1);
        assert_false(first_is_spare());
        assert_int_equal(compute(1), 6);
        tick_after_ms(1000); /* it does not hang: it has had no time */
        assert_int_equal(waiting(ACTION_EXIT), 0);
        starved->started_ns = starved->finished_ns = bench.now;
        memset(starved->engine.output, 0, DIM * sizeof(float));
        send((struct event){.kind = EVENT_BATCH, .batch = starved});
        finish();
        assert_int_equal(worker_stats(bench.worker).done, 9);
    }
}
