/* A worker with an executor beside it for requests of several rows: texts are numbers, their vectors hold the number,
 * and the test says which numbers are bad, not finite, or too much for memory. */
#ifndef TESTS_ROWS_BENCH_H
#define TESTS_ROWS_BENCH_H

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "harness.h"
#include "work/worker.h"

enum { DIM = 2, CALLS = 256, ENTRIES = 1200, NUMBERS = 4096 };

/* What an entry asks for, and what became of it. */
struct asked {
    uint32_t rows, tokens;
    int number;  /* of its first row; the others count up from there, by `step` */
    int step;    /* 0: all rows are equal */
    bool hashed; /* equal numbers are found to be equal */
    const char *tenant;
    uint64_t expires_at_ms;
    enum entry_origin origin;

    int ends, released;
    enum outcome outcome;
    enum reply_code code;
    uint32_t failed_index;
};

struct bench {
    struct worker *worker;
    uint64_t now, wakes_at, random;
    struct action out[CALLS];
    size_t count;
    struct asked asked[ENTRIES]; /* by entry id - 1 */
    uint32_t entries;
    bool shuffled; /* answers come in any order */

    /* The engine. */
    bool bad[NUMBERS], infinite[NUMBERS];
    int flaky[NUMBERS]; /* passes that are still to fail */
    uint32_t memory;    /* a batch of several rows and more tokens than this is out of memory */
    int forwards, most_rows, charges;
    uint32_t most_tokens; /* of batches of several rows */
    bool device_lost, exited;
    struct action leave;
};

static inline struct worker_options rows_options(void)
{
    return (struct worker_options){
        .rules = {.model_name = "m",
                  .model_id = "i",
                  .encoding = ENCODING_F32,
                  .dim = DIM,
                  .max_tokens = 64,
                  .max_text_bytes = 1000,
                  .default_ttl_s = 60,
                  .max_ttl_s = 100,
                  .error_ttl_s = 60,
                  .default_max_attempts = 2,
                  .truncate = true},
        .max_batch_tokens = 64,
        .max_batch_rows = 8,
        .window_ms = 5,
        .devices = 1,
        .engine_slots = 1,
        .batches_out = 2,
        .credit_tokens = 1000000,
        .credit_bytes = 100 << 20,
        .lease_ms = 3000,
        .read_block_ms = 2000,
        .backoff_ms = 100,
        .backoff_cap_ms = 1000,
        .shutdown_timeout_ms = 5000,
    };
}

static inline uint32_t rows_chance(struct bench *bench, uint32_t below)
{
    bench->random = bench->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((bench->random >> 33) % below);
}

static inline struct asked *asked_of(struct bench *bench, const struct request *request)
{
    return &bench->asked[request->entry.ms - 1];
}

static inline void rows_send(struct bench *bench, struct event event)
{
    struct actions actions = {0};
    bench->wakes_at = worker_step(bench->worker, &event, bench->now, &actions);
    assert_true(bench->wakes_at > bench->now);
    for (size_t i = 0; i < actions.count; i++) {
        assert_true(bench->count < CALLS);
        bench->out[bench->count++] = actions.items[i];
    }
    actions_free(&actions);
}

static inline int rows_waiting(const struct bench *bench, enum action_kind kind)
{
    int count = 0;
    for (size_t i = 0; i < bench->count; i++)
        count += bench->out[i].kind == kind;
    return count;
}

static inline struct action rows_take_at(struct bench *bench, size_t at)
{
    struct action action = bench->out[at];
    memmove(&bench->out[at], &bench->out[at + 1], (--bench->count - at) * sizeof(action));
    return action;
}

static inline struct action rows_take(struct bench *bench, enum action_kind kind)
{
    for (size_t i = 0; i < bench->count; i++)
        if (bench->out[i].kind == kind)
            return rows_take_at(bench, i);
    fail_msg("no action of kind %d", kind);
    return (struct action){0};
}

/* Gives the worker the entries that were asked for with rows_ask since the last time. */
static inline void rows_give(struct bench *bench, enum read_source source, enum request_class class, uint32_t from)
{
    static struct entry entries[ENTRIES];
    static struct entry_field fields[ENTRIES][2];
    static char expires[ENTRIES][24];
    uint32_t count = bench->entries - from;
    for (uint32_t i = 0; i < count; i++) {
        snprintf(expires[i], sizeof(expires[i]), "%llu", (unsigned long long)bench->asked[from + i].expires_at_ms);
        fields[i][0] = (struct entry_field){"text", 4, "word", 4};
        fields[i][1] = (struct entry_field){"expires_at", 10, expires[i], strlen(expires[i])};
        entries[i] = (struct entry){.class = class,
                                    .id = {from + i + 1, 0},
                                    .origin = bench->asked[from + i].origin,
                                    .fields = fields[i],
                                    .field_count = bench->asked[from + i].expires_at_ms == 0 ? 1 : 2};
    }
    rows_send(bench, (struct event){.kind = EVENT_ENTRIES,
                                    .entries = {.source = source, .class = class, .entries = entries, .count = count}});
}

/* `count` entries like this one; the number of each begins where the last one's ended. */
static inline void rows_ask(struct bench *bench, enum request_class class, uint32_t count, struct asked asked)
{
    uint32_t from = bench->entries;
    for (uint32_t i = 0; i < count; i++) {
        assert_true(bench->entries < ENTRIES);
        bench->asked[bench->entries++] = asked;
        asked.number += (int)asked.rows * asked.step;
    }
    (void)rows_take(bench, asked.origin == ORIGIN_RECLAIMED ? ACTION_RECLAIM : ACTION_READ);
    rows_give(bench, asked.origin == ORIGIN_RECLAIMED ? READ_RECLAIM : READ_NEW, class, from);
}

/* --- what the executor does --- */

static inline void rows_prepare(struct bench *bench, struct request *request)
{
    const struct asked *asked = asked_of(bench, request);
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
        for (uint32_t t = 0; t < asked->tokens; t++)
            id[t] = number;
    }
    request->work = rows;
    request->rows = rows;
    request->row_count = request->rows_left = asked->rows;
    if (asked->tenant != NULL)
        snprintf(request->tenant, sizeof(request->tenant), "%s", asked->tenant);
}

static inline enum status rows_run(struct bench *bench, struct batch *batch)
{
    enum status status = STATUS_OK;
    const struct engine_batch *engine = &batch->engine;
    bench->forwards++;
    bench->most_rows = (int)engine->rows > bench->most_rows ? (int)engine->rows : bench->most_rows;
    if (engine->rows > 1 && engine->extent > bench->most_tokens)
        bench->most_tokens = engine->extent;
    for (uint32_t i = 0; i < engine->rows; i++) {
        int number = engine->ids[engine->start[i]];
        bool flaky = bench->flaky[number] > 0;
        bench->flaky[number] -= flaky;
        if (bench->bad[number] || flaky)
            status = STATUS_INTERNAL;
        else if (bench->infinite[number] && status == STATUS_OK)
            status = STATUS_NON_FINITE;
        for (int d = 0; d < DIM; d++)
            engine->output[i * DIM + (uint32_t)d] = bench->infinite[number] ? (float)INFINITY : (float)number + 0.25f;
    }
    if (engine->rows > 1 && engine->extent > bench->memory)
        status = STATUS_NO_MEMORY;
    if (bench->device_lost)
        status = STATUS_DEVICE_LOST;
    return status;
}

/* Every row must have its own number's vector, whoever computed it. */
static inline void rows_format(struct bench *bench, struct request *request)
{
    const struct asked *asked = asked_of(bench, request);
    assert_int_equal(request->rows_out, 0);
    assert_int_equal(request->rows_left, 0);
    for (uint32_t r = 0; r < asked->rows; r++) {
        int number = asked->number + (int)r * asked->step;
        for (int d = 0; d < DIM; d++) {
            float value = request->rows[r].output[d];
            if (bench->infinite[number])
                assert_true(value > 1e30f);
            else
                assert_true(value == (float)number + 0.25f);
        }
        if (bench->infinite[number])
            request_fail(request, CODE_NON_FINITE, "not finite");
    }
}

static inline void rows_settle(struct bench *bench, struct request *request)
{
    struct asked *asked = asked_of(bench, request);
    asked->ends++;
    asked->outcome = request->outcome;
    asked->code = request->code;
    asked->failed_index = request->failed_index;
    assert_int_equal(request->rows_out, 0);
}

static inline void rows_answer(struct bench *bench, struct action action)
{
    struct event event = {.requests = action.requests};
    switch (action.kind) {
    case ACTION_PREPARE:
        event.kind = EVENT_PREPARED;
        for (struct request *request = action.requests.first; request != NULL; request = request->next)
            rows_prepare(bench, request);
        break;
    case ACTION_SUBMIT:
        event = (struct event){.kind = EVENT_BATCH, .batch = action.batch};
        action.batch->status = rows_run(bench, action.batch);
        action.batch->started_ns = action.batch->finished_ns = bench->now;
        break;
    case ACTION_FORMAT:
        event.kind = EVENT_FORMATTED;
        for (struct request *request = action.requests.first; request != NULL; request = request->next)
            rows_format(bench, request);
        break;
    case ACTION_SETTLE:
        event.kind = EVENT_SETTLED;
        for (struct request *request = action.requests.first; request != NULL; request = request->next)
            rows_settle(bench, request);
        break;
    case ACTION_RELEASE:
        event.kind = EVENT_RELEASED;
        for (struct request *request = action.requests.first; request != NULL; request = request->next) {
            assert_int_equal(request->rows_out, 0);
            asked_of(bench, request)->released++;
        }
        break;
    case ACTION_CHARGE:
        event.kind = EVENT_CHARGED;
        action.requests.first->lonely_runs++;
        bench->charges++;
        break;
    default:
        fail_msg("action %d is not answered here", action.kind);
    }
    rows_send(bench, event);
}

static inline bool rows_local(enum action_kind kind)
{
    return kind == ACTION_PREPARE || kind == ACTION_SUBMIT || kind == ACTION_FORMAT || kind == ACTION_SETTLE ||
           kind == ACTION_RELEASE || kind == ACTION_CHARGE;
}

/* Answers the first (or any) of the actions that can be answered here; false when there is none. */
static inline bool rows_answer_one(struct bench *bench)
{
    size_t able[CALLS], count = 0;
    for (size_t i = 0; i < bench->count; i++)
        if (rows_local(bench->out[i].kind))
            able[count++] = i;
    if (count == 0)
        return false;
    rows_answer(bench, rows_take_at(bench, able[bench->shuffled ? rows_chance(bench, (uint32_t)count) : 0]));
    return true;
}

static inline void rows_run_all(struct bench *bench)
{
    while (rows_answer_one(bench))
        ;
}

static inline void rows_prepare_all(struct bench *bench)
{
    while (rows_waiting(bench, ACTION_PREPARE) > 0)
        rows_answer(bench, rows_take(bench, ACTION_PREPARE));
}

static inline void rows_tick_ms(struct bench *bench, uint64_t ms)
{
    bench->now += ms * NS_PER_MS;
    rows_send(bench, (struct event){.kind = EVENT_TICK});
}

static inline void rows_chores(struct bench *bench)
{
    for (size_t i = 0; i < bench->count; i++) {
        enum action_kind kind = bench->out[i].kind;
        struct event event = {0};
        if (kind == ACTION_RENEW)
            event = (struct event){.kind = EVENT_LEASE, .lease_held = true};
        else if (kind == ACTION_PROMOTE)
            event = (struct event){.kind = EVENT_PROMOTED, .promoted = {UINT64_MAX}};
        else if (kind == ACTION_PULSE)
            event = (struct event){.kind = EVENT_PULSE, .pulse = {.redis_ms = bench->now / NS_PER_MS}};
        else if (kind == ACTION_READ_OWN || kind == ACTION_RECLAIM || kind == ACTION_SWEEP)
            event = (struct event){.kind = EVENT_ENTRIES,
                                   .entries = {.source = kind == ACTION_READ_OWN  ? READ_OWN
                                                         : kind == ACTION_RECLAIM ? READ_RECLAIM
                                                                                  : READ_SWEEP,
                                               .class = bench->out[i].read.class}};
        else
            continue;
        (void)rows_take_at(bench, i);
        rows_send(bench, event);
        i = (size_t)-1; /* from the first again */
    }
}

static inline struct bench *rows_begin(struct worker_options options)
{
    static struct bench bench;
    struct err err;
    bench = (struct bench){.now = 1000 * NS_PER_S, .memory = UINT32_MAX, .random = 7};
    assert_int_equal(worker_open(&options, &bench.worker, &err), STATUS_OK);
    rows_send(&bench, (struct event){.kind = EVENT_CONNECTED, .redis_ms = bench.now / NS_PER_MS});
    rows_chores(&bench);
    assert_int_equal(rows_waiting(&bench, ACTION_READ), 1);
    return &bench;
}

static inline void rows_end(struct bench *bench)
{
    worker_close(bench->worker);
}

static inline void rows_expect(const struct bench *bench, uint32_t from, uint32_t count, enum outcome outcome)
{
    for (uint32_t i = from; i < from + count; i++) {
        assert_int_equal(bench->asked[i].ends, 1);
        assert_int_equal(bench->asked[i].outcome, outcome);
        assert_int_equal(bench->asked[i].released, 0);
    }
}

#endif
