/* A worker whose actions wait until a test answers them: the test sends an event and looks at the resulting actions. */
#ifndef TESTS_WORKER_BENCH_H
#define TESTS_WORKER_BENCH_H

#include <stdlib.h>

#include "base/clock.h"
#include "harness.h"
#include "schedule/worker.h"

enum { DIM = 3, OUT_MAX = 256, EPOCH_MS = 5000000 }; /* Redis' clock is that far ahead of ours */

/* A worker whose actions wait in `out` until a test answers them. */
struct bench {
    struct worker *worker;
    uint64_t now, wakes_at;
    struct action out[OUT_MAX];
    size_t count;
    uint64_t next_entry;
    struct exclusive exclusive; /* the gate of a process with this worker only */
};

static struct bench bench; /* of the case that runs */
static struct exclusive_worker exclusive_worker;

static inline struct worker_options default_options(void)
{
    return (struct worker_options){
        .rules = {.model_name = "m",
                  .model_id = "i",
                  .encoding = ENCODING_F32,
                  .dim = DIM,
                  .max_tokens = 16,
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
        .credit_tokens = 10000,
        .credit_bytes = 10 << 20,
        .lease_ms = 3000,
        .read_block_ms = 2000,
        .backoff_ms = 100,
        .backoff_cap_ms = 1000,
        .shutdown_timeout_ms = 5000,
    };
}

static inline void send(struct event event)
{
    struct actions actions = {0};
    bench.wakes_at = worker_step(bench.worker, &event, bench.now, &actions);
    assert_true(bench.wakes_at > bench.now);
    for (size_t i = 0; i < actions.count; i++) {
        if (actions.items[i].kind == ACTION_EXCLUSIVE) {
            exclusive_ask(&bench.exclusive, 0);
        } else if (actions.items[i].kind == ACTION_TOGETHER) {
            exclusive_end(&bench.exclusive, 0, bench.now);
        } else {
            assert_true(bench.count < OUT_MAX);
            bench.out[bench.count++] = actions.items[i];
        }
    }
    actions_free(&actions);
    size_t who;
    event = (struct event){.kind = EVENT_TURN};
    if (exclusive_next(&bench.exclusive, bench.now, worker_rests(bench.worker), &who, &event.turn)) { send(event); }
    uint64_t deadline = exclusive_deadline(&bench.exclusive);
    bench.wakes_at = deadline < bench.wakes_at ? deadline : bench.wakes_at;
}

/* Answers a read or a claim; takes the members of event.entries. */
#define ANSWER_ENTRIES(...) send((struct event){.kind = EVENT_ENTRIES, .entries = {__VA_ARGS__}})

static inline int waiting(enum action_kind kind)
{
    int count = 0;
    for (size_t i = 0; i < bench.count; i++) { count += bench.out[i].kind == kind; }
    return count;
}

static inline struct action take_at(size_t at)
{
    struct action action = bench.out[at];
    memmove(&bench.out[at], &bench.out[at + 1], (--bench.count - at) * sizeof(action));
    return action;
}

/* Takes the oldest action of a kind that is out; it must be there. */
static inline struct action take(enum action_kind kind)
{
    for (size_t i = 0; i < bench.count; i++) {
        if (bench.out[i].kind == kind) { return take_at(i); }
    }
    fail_msg("no action of kind %d", kind);
    return (struct action){0};
}

static inline void tick(void)
{
    send((struct event){.kind = EVENT_TICK});
}

static inline void tick_after_ms(uint64_t ms)
{
    bench.now += ms * NS_PER_MS;
    tick();
}

static inline void send_requests(enum event_kind kind, struct request_list requests, bool failed)
{
    send((struct event){.kind = kind, .requests = requests, .failed = failed});
}

/* Answers a read or claim: `count` new entries of one word each that are like this one. */
static inline void give_like(enum read_source source, struct entry like, size_t count, bool more)
{
    static struct entry entries[OUT_MAX];
    static const struct entry_field field = {"text", 4, "word", 4};
    like.fields = &field;
    like.field_count = 1;
    for (size_t i = 0; i < count; i++) {
        like.id.ms = ++bench.next_entry;
        entries[i] = like;
    }
    ANSWER_ENTRIES(.source = source, .class = like.class, .entries = entries, .count = count, .more = more);
}

static inline void give(enum read_source source, enum entry_origin origin, size_t count)
{
    give_like(source, (struct entry){.class = CLASS_NORMAL, .origin = origin}, count, false);
}

static inline void read_new(size_t count)
{
    (void)take(ACTION_READ);
    give(READ_NEW, ORIGIN_NEW, count);
}

static inline void prepare_all(uint32_t tokens)
{
    while (waiting(ACTION_PREPARE) > 0) {
        struct request_list list = take(ACTION_PREPARE).requests;
        for (struct request *request = list.first; request != NULL; request = request->next) {
            request->work = calloc(DIM + tokens, sizeof(float));
            request->rows[0].output = request->work;
            request->rows[0].ids = (int32_t *)(request->rows[0].output + DIM);
            request->rows[0].tokens = tokens;
        }
        send((struct event){.kind = EVENT_PREPARED, .requests = list});
    }
}

static inline uint32_t answer_batch(enum status status)
{
    struct batch *batch = take(ACTION_SUBMIT).batch;
    uint32_t rows = batch->engine.rows;
    batch->status = status;
    memset(batch->engine.output, 0, rows * DIM * sizeof(float));
    send((struct event){.kind = EVENT_BATCH, .batch = batch});
    return rows;
}

static inline void format_all(void)
{
    while (waiting(ACTION_FORMAT) > 0) {
        send((struct event){.kind = EVENT_FORMATTED, .requests = take(ACTION_FORMAT).requests});
    }
}

static inline uint32_t settle(bool failed)
{
    struct request_list list = take(ACTION_SETTLE).requests;
    uint32_t count = list.count;
    send((struct event){.kind = EVENT_SETTLED, .requests = list, .failed = failed});
    return count;
}

static inline uint64_t redis_now(void)
{
    return bench.now / NS_PER_MS + EPOCH_MS;
}

static inline void pulse(struct pulse pulse)
{
    (void)take(ACTION_PULSE);
    pulse.housekeeper = true; /* there is no other worker */
    if (pulse.redis_ms == 0) { pulse.redis_ms = redis_now(); }
    send((struct event){.kind = EVENT_PULSE, .pulse = pulse});
}

/* Answers a list of our pending entries; returns the action that asked for it. */
static inline struct action list_own(const struct own_list *list)
{
    struct action action = take(ACTION_LIST_OWN);
    send((struct event){.kind = EVENT_OWN_LISTED, .own = list});
    return action;
}

/* The calls to Redis that carry no requests, each with an answer that brings nothing. */
static const struct {
    enum action_kind action;
    struct event answer;
} calls[] = {
    {ACTION_READ, {.kind = EVENT_ENTRIES, .entries = {.source = READ_NEW}}},
    {ACTION_READ_OWN, {.kind = EVENT_ENTRIES, .entries = {.source = READ_OWN}}},
    {ACTION_PULSE, {.kind = EVENT_PULSE, .pulse = {.housekeeper = true}}}, /* there is no other worker */
    {ACTION_RENEW, {.kind = EVENT_LEASE, .lease_held = true}},
    {ACTION_PROMOTE, {.kind = EVENT_PROMOTED, .promoted = {UINT64_MAX}}},
    {ACTION_MEND, {.kind = EVENT_MENDED}},
    {ACTION_LIST_OWN, {.kind = EVENT_OWN_LISTED, .own = &(const struct own_list){.counts = {0}}}},
    {ACTION_RECLAIM, {.kind = EVENT_ENTRIES, .entries = {.source = READ_RECLAIM}}},
    {ACTION_SWEEP, {.kind = EVENT_ENTRIES, .entries = {.source = READ_SWEEP}}},
};

/* Answers all of these calls that are out, from the one of this action on. */
static inline void answer_calls(enum action_kind first, bool failed)
{
    bool begun = false;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        struct event answer = calls[i].answer;
        begun |= calls[i].action == first;
        answer.failed = failed;
        if (answer.kind == EVENT_PULSE) { answer.pulse.redis_ms = redis_now(); }
        while (begun && waiting(calls[i].action) > 0) {
            (void)take(calls[i].action);
            send(answer);
        }
    }
}

static inline void answer_chores(void)
{
    answer_calls(ACTION_PULSE, false);
}

/* The calls fail first. */
static inline void break_connection(void)
{
    answer_calls(ACTION_READ, true);
    send((struct event){.kind = EVENT_DISCONNECTED});
    bench.count = 0;
}

/* Answers a reclaim: entries whose run in a group has crashed. */
static inline void give_loners(size_t count)
{
    struct entry loner = {.class = CLASS_NORMAL, .origin = ORIGIN_RECLAIMED, .group_run = true};
    give_like(READ_RECLAIM, loner, count, false);
}

/* Answers the reads that are out with nothing: a suspect that must run alone waits for that. */
static inline void come_to_rest(void)
{
    assert_int_equal(bench.exclusive.held && !bench.exclusive.granted, true);
    answer_chores();
    if (waiting(ACTION_READ) > 0) {
        (void)take(ACTION_UNBLOCK);
        (void)take(ACTION_READ);
        give(READ_NEW, ORIGIN_NEW, 0);
    }
    assert_true(bench.exclusive.granted || !bench.exclusive.held);
}

static inline void answer_own(void)
{
    for (int c = 0; c < CLASS_COUNT; c++) {
        assert_int_equal(waiting(ACTION_READ), 0); /* the own pending lists come first */
        struct action own = take(ACTION_READ_OWN);
        assert_int_equal(own.read.class, c);
        assert_int_equal(own.read.after.ms, 0);
        give(READ_OWN, ORIGIN_OWN, 0);
    }
}

static inline void connected(void)
{
    send((struct event){.kind = EVENT_CONNECTED, .connected = {.redis_ms = redis_now()}});
}

static inline void connect_and_sweep(void)
{
    connected();
    answer_own();
    answer_chores();
}

static inline void end(void)
{
    worker_close(bench.worker);
    bench.worker = NULL;
}

/* Opens a worker in place of the one before. */
static inline void open_worker(struct worker_options options)
{
    struct err err;
    end();
    exclusive_worker = (struct exclusive_worker){0};
    bench = (struct bench){.now = 1000 * NS_PER_S, .exclusive = {.workers = &exclusive_worker, .count = 1}};
    assert_int_equal(worker_open(&options, &bench.worker, &err), STATUS_OK);
}

/* The same, connected and with nothing to do. */
static inline void begin(struct worker_options options)
{
    open_worker(options);
    connect_and_sweep();
}

static inline int begin_default(void **state)
{
    (void)state;
    begin(default_options());
    return 0;
}

static inline int end_worker(void **state)
{
    (void)state;
    end();
    return 0;
}

/* Opens a worker with these options after the assignments that follow: with.max_batch_rows = 1, … */
#define BEGIN_WITH(options, ...)                                                                                       \
    do {                                                                                                               \
        struct worker_options with = options;                                                                          \
        __VA_ARGS__;                                                                                                   \
        begin(with);                                                                                                   \
    } while (0)

/* A case with a connected worker. */
#define WORKER_TEST(name) TEST_WITH(name, begin_default, end_worker)

/* Answers with one entry; `fields` are names and values in turn, up to a NULL. */
static inline void give_one(enum read_source source, struct entry entry, const char *const *fields)
{
    struct entry_field known[16];
    size_t count = 0;
    for (; fields[2 * count] != NULL; count++) {
        known[count] = (struct entry_field){fields[2 * count], strlen(fields[2 * count]), fields[2 * count + 1],
                                            strlen(fields[2 * count + 1])};
    }
    if (entry.id.ms == 0) { entry.id.ms = ++bench.next_entry; }
    entry.fields = known;
    entry.field_count = count;
    ANSWER_ENTRIES(.source = source, .class = entry.class, .entries = &entry, .count = 1);
}

/* Reads one new entry of a class. */
static inline void read_one(enum request_class class, const char *const *fields)
{
    (void)take(ACTION_READ);
    give_one(READ_NEW, (struct entry){.class = class}, fields);
}

/* Reads new entries of one word and prepares them. */
static inline void read_and_prepare(size_t count, uint32_t tokens)
{
    read_new(count);
    prepare_all(tokens);
}

/* The oldest batch succeeds, and all replies are written. */
static inline void compute_and_format(void)
{
    (void)answer_batch(STATUS_OK);
    format_all();
}

/* Answers all settles that are out. */
static inline void settle_all(void)
{
    while (waiting(ACTION_SETTLE) > 0) { (void)settle(false); }
}

/* A read or claim fails. */
static inline void fail_entries(enum action_kind action, enum read_source source)
{
    (void)take(action);
    send((struct event){.kind = EVENT_ENTRIES, .entries = {.source = source}, .failed = true});
}

/* A renewal finds that the lease is lost. */
static inline void lose_lease_key(void)
{
    (void)take(ACTION_RENEW);
    send((struct event){.kind = EVENT_LEASE, .lease_held = false});
}

/* The next reclaim is out, and the test answers it. */
static inline void take_reclaim(void)
{
    tick_after_ms(600);
    (void)take(ACTION_RECLAIM);
}

#define FIELDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* The one request of the oldest settle that is out; answers with a verdict. */
static inline struct request settle_one(enum verdict verdict)
{
    struct request_list list = take(ACTION_SETTLE).requests;
    struct request seen = *list.first;
    assert_int_equal(list.count, 1);
    list.first->lifetime.verdict = verdict;
    send((struct event){.kind = EVENT_SETTLED, .requests = list});
    return seen;
}

#endif
