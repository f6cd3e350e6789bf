/* worker_bench.h with an executor beside it, for requests of several rows: texts are numbers, their vectors hold the
 * number, and the test chooses numbers that are bad, not finite, or too much for memory. */
#ifndef TESTS_ROWS_BENCH_H
#define TESTS_ROWS_BENCH_H

#include <math.h>

#include "worker_bench.h"

enum { ENTRIES = 1200, NUMBERS = 4096 };

/* The request of an entry, and its result. */
struct asked {
    uint32_t rows, tokens;
    int number;  /* of its first row; the others count up from there, by `step` */
    int step;    /* 0: all rows are equal */
    bool hashed; /* equal numbers are found to be equal */
    const char *tenant;
    uint64_t expires_at_ms;
    enum entry_origin origin;
    bool group_run;

    int ends, released;
    enum outcome outcome;
    enum reply_code code;
    uint32_t failed_index;
};

static struct fake_engine {
    uint64_t random;
    struct asked asked[ENTRIES]; /* by entry id - 1 */
    uint32_t entries;
    bool shuffled; /* answers come in any order */

    /* The fake. */
    bool bad[NUMBERS], infinite[NUMBERS];
    int flaky[NUMBERS]; /* passes that are still to fail */
    uint32_t memory;    /* a batch of several rows and more tokens than this is out of memory */
    int forwards, most_rows, charges;
    uint32_t most_tokens; /* of batches of several rows */
    bool device_lost;
} fake;

static inline struct worker_options rows_options(void)
{
    struct worker_options options = default_options();
    options.rules.max_tokens = 64;
    options.credit_tokens = 1000000;
    options.credit_bytes = 100 << 20;
    return options;
}

static inline uint32_t rows_chance(uint32_t below)
{
    fake.random = fake.random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((fake.random >> 33) % below);
}

static inline struct asked *asked_of(const struct request *request)
{
    return &fake.asked[request->identity.entry.ms - 1];
}

/* Gives the worker the entries that rows_ask has made since the last time. */
static inline void rows_give(enum read_source source, enum request_class class, uint32_t from)
{
    static struct entry entries[ENTRIES];
    static struct entry_field fields[ENTRIES][2];
    static char expires[ENTRIES][24];
    uint32_t count = fake.entries - from;
    for (uint32_t i = 0; i < count; i++) {
        snprintf(expires[i], sizeof(expires[i]), "%llu",
                 (unsigned long long)fake.asked[from + i].expires_at_ms - (from + i + 1)); /* from the id on */
        fields[i][0] = (struct entry_field){"text", 4, "word", 4};
        fields[i][1] = (struct entry_field){"expires_in", 10, expires[i], strlen(expires[i])};
        entries[i] = (struct entry){.class = class,
                                    .id = {from + i + 1, 0},
                                    .origin = fake.asked[from + i].origin,
                                    .group_run = fake.asked[from + i].group_run,
                                    .fields = fields[i],
                                    .field_count = fake.asked[from + i].expires_at_ms == 0 ? 1 : 2};
    }
    ANSWER_ENTRIES(.source = source, .class = class, .entries = entries, .count = count);
}

/* Makes `count` entries like this one; the numbers of each begin where the last one's ended. */
static inline void rows_ask(enum request_class class, uint32_t count, struct asked asked)
{
    uint32_t from = fake.entries;
    for (uint32_t i = 0; i < count; i++) {
        assert_true(fake.entries < ENTRIES);
        fake.asked[fake.entries++] = asked;
        asked.number += (int)asked.rows * asked.step;
    }
    (void)take(asked.origin == ORIGIN_RECLAIMED ? ACTION_RECLAIM : ACTION_READ);
    rows_give(asked.origin == ORIGIN_RECLAIMED ? READ_RECLAIM : READ_NEW, class, from);
}

/* --- the executor --- */

static inline void rows_prepare(struct request *request)
{
    const struct asked *asked = asked_of(request);
    size_t floats = (size_t)asked->rows * DIM, ids = (size_t)asked->rows * asked->tokens;
    struct row *rows = calloc(1, asked->rows * sizeof(*rows) + floats * sizeof(float) + ids * sizeof(int32_t));
    assert_non_null(rows);
    float *output = (float *)(rows + asked->rows);
    int32_t *id = (int32_t *)(output + floats);
    for (uint32_t r = 0; r < asked->rows; r++, id += asked->tokens) {
        int number = asked->number + (int)r * asked->step;
        assert_in_range(number, 0, NUMBERS - 1);
        rows[r] = (struct row){.request = request, .tokens = asked->tokens, .ids = id, .output = output + r * DIM};
        rows[r].hash = asked->hashed ? 1 + (uint64_t)number % 7 : 0; /* so that different ones collide, too */
        for (uint32_t t = 0; t < asked->tokens; t++) { id[t] = number; }
    }
    request->work = rows;
    request->rows = rows;
    request->row_count = request->rows_left = asked->rows;
    if (asked->tenant != NULL) {
        snprintf(request->identity.tenant, sizeof(request->identity.tenant), "%s", asked->tenant);
    }
}

static inline enum status rows_run(struct batch *batch)
{
    enum status status = STATUS_OK;
    const struct engine_batch *engine = &batch->engine;
    fake.forwards++;
    fake.most_rows = (int)engine->rows > fake.most_rows ? (int)engine->rows : fake.most_rows;
    if (engine->rows > 1 && engine->extent > fake.most_tokens) { fake.most_tokens = engine->extent; }
    for (uint32_t i = 0; i < engine->rows; i++) {
        int number = engine->ids[engine->start[i]];
        bool flaky = fake.flaky[number] > 0;
        fake.flaky[number] -= flaky;
        if (fake.bad[number] || flaky) {
            status = STATUS_INTERNAL;
        } else if (fake.infinite[number] && status == STATUS_OK) {
            status = STATUS_NON_FINITE;
        }
        for (int d = 0; d < DIM; d++) {
            engine->output[i * DIM + (uint32_t)d] = fake.infinite[number] ? (float)INFINITY : (float)number + 0.25f;
        }
    }
    if (engine->rows > 1 && engine->extent > fake.memory) { status = STATUS_NO_MEMORY; }
    if (fake.device_lost) { status = STATUS_DEVICE_LOST; }
    return status;
}

/* Every row must have its own number's vector, whichever batch computed it. */
static inline void rows_format(struct request *request)
{
    const struct asked *asked = asked_of(request);
    assert_int_equal(request->rows_out, 0);
    assert_int_equal(request->rows_left, 0);
    for (uint32_t r = 0; r < asked->rows; r++) {
        int number = asked->number + (int)r * asked->step;
        for (int d = 0; d < DIM; d++) {
            float value = request->rows[r].output[d];
            if (fake.infinite[number]) {
                assert_true(value > 1e30f);
            } else {
                assert_true(value == (float)number + 0.25f);
            }
        }
        if (fake.infinite[number]) { request_fail(request, CODE_NON_FINITE, "not finite"); }
    }
}

static inline void rows_settle(struct request *request)
{
    struct asked *asked = asked_of(request);
    asked->ends++;
    asked->outcome = request->lifetime.outcome;
    asked->code = request->retry.code;
    asked->failed_index = request->retry.failed_index;
    assert_int_equal(request->rows_out, 0);
}

static inline void rows_release(struct request *request)
{
    assert_int_equal(request->rows_out, 0);
    asked_of(request)->released++;
}

static inline void rows_record(struct request *request)
{
    request->retry.quarantine_runs += request->retry.quarantined;
}

/* The actions that are answered here, and what happens to each of their requests. */
static const struct {
    enum action_kind action;
    enum event_kind event;
    void (*each)(struct request *request);
} rows_answers[] = {
    {ACTION_PREPARE, EVENT_PREPARED, rows_prepare},       {ACTION_FORMAT, EVENT_FORMATTED, rows_format},
    {ACTION_SETTLE, EVENT_SETTLED, rows_settle},          {ACTION_RELEASE, EVENT_RELEASED, rows_release},
    {ACTION_RECORD_RUN, EVENT_RUN_RECORDED, rows_record},
};

/* The place of an action in rows_answers, -1: none. */
static inline int rows_place(enum action_kind kind)
{
    int at = (int)(sizeof rows_answers / sizeof rows_answers[0]) - 1;
    while (at >= 0 && rows_answers[at].action != kind) { at--; }
    return at;
}

static inline void rows_answer(struct action action)
{
    int at = rows_place(action.kind);
    if (action.kind == ACTION_SUBMIT) {
        action.batch->status = rows_run(action.batch);
        action.batch->started_ns = action.batch->finished_ns = bench.now;
        send((struct event){.kind = EVENT_BATCH, .batch = action.batch});
        return;
    }
    assert_true(at >= 0);
    for (struct request *request = action.requests.first; request != NULL; request = request->next) {
        rows_answers[at].each(request);
    }
    fake.charges += action.kind == ACTION_RECORD_RUN;
    send_requests(rows_answers[at].event, action.requests, false);
}

/* Answers the first (or, if shuffled, any) of the actions that can be answered here; false when there is none. */
static inline bool rows_answer_one(void)
{
    size_t able[OUT_MAX], count = 0;
    for (size_t i = 0; i < bench.count; i++) {
        if (bench.out[i].kind == ACTION_SUBMIT || rows_place(bench.out[i].kind) >= 0) { able[count++] = i; }
    }
    if (count == 0) { return false; }
    rows_answer(take_at(able[fake.shuffled ? rows_chance((uint32_t)count) : 0]));
    return true;
}

static inline void rows_run_all(void)
{
    while (rows_answer_one())
        ;
}

static inline void rows_prepare_all(void)
{
    while (waiting(ACTION_PREPARE) > 0) { rows_answer(take(ACTION_PREPARE)); }
}

/* Runs everything, after the fixed window has ended. */
static inline void rows_run_window(void)
{
    rows_prepare_all();
    tick_after_ms(5);
    rows_run_all();
}

/* BEGIN_WITH for rows_begin. */
#define ROWS_BEGIN_WITH(options, ...)                                                                                  \
    do {                                                                                                               \
        struct worker_options with = options;                                                                          \
        __VA_ARGS__;                                                                                                   \
        rows_begin(with);                                                                                              \
    } while (0)

static inline void rows_begin(struct worker_options options)
{
    begin(options);
    fake = (struct fake_engine){.memory = UINT32_MAX, .random = 7};
    assert_int_equal(waiting(ACTION_READ), 1);
}

static inline void rows_expect(uint32_t from, uint32_t count, enum outcome outcome)
{
    for (uint32_t i = from; i < from + count; i++) {
        assert_int_equal(fake.asked[i].ends, 1);
        assert_int_equal(fake.asked[i].outcome, outcome);
        assert_int_equal(fake.asked[i].released, 0);
    }
}

static inline void rows_expect_released(uint32_t from, uint32_t count)
{
    for (uint32_t i = from; i < from + count; i++) {
        assert_int_equal(fake.asked[i].ends, 0);
        assert_int_equal(fake.asked[i].released, 1);
    }
}

#endif
