/* The view and the controls from outside while a worker runs: held requests, live options, quiet and resume. */
#include <stdlib.h>

#include "base/clock.h"
#include "harness.h"
#include "schedule/worker.h"

static struct worker_options options(void)
{
    return (struct worker_options){
        .rules = {.model_name = "m",
                  .model_id = "i",
                  .dim = 3,
                  .max_tokens = 16,
                  .max_text_bytes = 1000,
                  .default_ttl_s = 60,
                  .max_ttl_s = 100,
                  .error_ttl_s = 60,
                  .default_max_attempts = 2},
        .max_batch_tokens = 64,
        .max_batch_rows = 8,
        .devices = 1,
        .engine_slots = 1,
        .batches_out = 2,
        .credit_tokens = 16000,
        .credit_bytes = 10 << 20,
        .lease_ms = 3000,
        .read_block_ms = 2000,
        .backoff_ms = 100,
        .backoff_cap_ms = 1000,
    };
}

struct bench {
    struct worker *worker;
    struct actions actions;
    uint64_t now;
};

static struct bench open_bench(void)
{
    struct bench bench = {.now = NS_PER_S};
    struct worker_options wanted = options();
    struct err err;
    assert_int_equal(worker_open(&wanted, &bench.worker, &err), STATUS_OK);
    return bench;
}

static void close_bench(struct bench *bench)
{
    worker_close(bench->worker);
    actions_free(&bench->actions);
}

/* One step; the actions of this one stay in bench->actions. */
static void step(struct bench *bench, struct event event)
{
    bench->actions.count = 0;
    bench->now += NS_PER_MS;
    worker_step(bench->worker, &event, bench->now, &bench->actions);
}

static const struct action *find(const struct bench *bench, enum action_kind kind)
{
    for (size_t i = 0; i < bench->actions.count; i++) {
        if (bench->actions.items[i].kind == kind) { return &bench->actions.items[i]; }
    }
    return NULL;
}

static void connect_and_read_own(struct bench *bench)
{
    step(bench, (struct event){.kind = EVENT_CONNECTED});
    assert_non_null(find(bench, ACTION_PULSE));
    bool own = find(bench, ACTION_READ_OWN) != NULL;
    step(bench, (struct event){.kind = EVENT_PULSE});
    assert_true(own);
    for (int i = 0; find(bench, ACTION_READ) == NULL && i < 10; i++) {
        step(bench, (struct event){.kind = EVENT_ENTRIES, .entries = {.source = READ_OWN}});
    }
    assert_non_null(find(bench, ACTION_READ));
}

static void give(struct bench *bench, size_t count)
{
    struct entry_field field = {"text", 4, "a word", 6};
    struct entry entries[8];
    for (size_t i = 0; i < count; i++) {
        entries[i] = (struct entry){.class = CLASS_NORMAL, .id = {7, i}, .fields = &field, .field_count = 1};
    }
    step(bench,
         (struct event){.kind = EVENT_ENTRIES, .entries = {.source = READ_NEW, .entries = entries, .count = count}});
}

struct seen {
    unsigned count;
    char names[8][REQUEST_NAME_MAX];
};

static void note(void *context, const struct request *request)
{
    struct seen *seen = context;
    memcpy(seen->names[seen->count++], request->identity.name, REQUEST_NAME_MAX);
}

TEST(held_requests_are_shown_up_to_a_limit)
{
    struct bench bench = open_bench();
    struct seen seen = {0};
    assert_int_equal(worker_each_held(bench.worker, 8, &seen, note), 0);
    connect_and_read_own(&bench);
    give(&bench, 3);
    assert_int_equal(worker_each_held(bench.worker, 8, &seen, note), 3);
    assert_int_equal(seen.count, 3);
    for (unsigned i = 0; i < 3; i++) {
        char name[REQUEST_NAME_MAX];
        snprintf(name, sizeof name, "7-%u", i);
        unsigned times = 0;
        for (unsigned j = 0; j < 3; j++) { times += strcmp(seen.names[j], name) == 0; }
        assert_int_equal(times, 1);
    }
    seen.count = 0;
    assert_int_equal(worker_each_held(bench.worker, 2, &seen, note), 3);
    assert_int_equal(seen.count, 2);
    close_bench(&bench);
}

TEST(live_options_are_taken_over)
{
    struct bench bench = open_bench();
    struct worker_options wanted = options();
    struct err err;
    connect_and_read_own(&bench);
    assert_int_equal(worker_stats(bench.worker).batch_tokens, 64);
    wanted.max_batch_tokens = 32;
    wanted.rules.max_text_bytes = 3;
    assert_int_equal(worker_tune(bench.worker, &wanted, &err), STATUS_OK);
    assert_int_equal(worker_stats(bench.worker).batch_tokens, 32);
    give(&bench, 1); /* longer than the new limit: refused, so it is never prepared */
    assert_null(find(&bench, ACTION_PREPARE));
    assert_non_null(find(&bench, ACTION_SETTLE));
    close_bench(&bench);
}

TEST(options_out_of_range_change_nothing)
{
    struct bench bench = open_bench();
    struct worker_options wanted = options();
    struct err err;
    wanted.max_batch_tokens = 32;
    wanted.backoff_ms = 0;
    assert_int_equal(worker_tune(bench.worker, &wanted, &err), STATUS_BAD_INPUT);
    assert_non_null(strstr(err.message, "backoff_ms"));
    assert_int_equal(worker_stats(bench.worker).batch_tokens, 64);
    close_bench(&bench);
}

TEST(quiet_claims_nothing_until_resume)
{
    struct bench bench = open_bench();
    connect_and_read_own(&bench);
    step(&bench, (struct event){.kind = EVENT_QUIET});
    assert_non_null(find(&bench, ACTION_UNBLOCK));
    give(&bench, 2); /* entries that had been asked for are finished */
    assert_non_null(find(&bench, ACTION_PREPARE));
    assert_null(find(&bench, ACTION_READ));
    bench.now += 10 * NS_PER_S;
    step(&bench, (struct event){.kind = EVENT_TICK});
    assert_null(find(&bench, ACTION_READ));
    assert_null(find(&bench, ACTION_RECLAIM));
    assert_non_null(find(&bench, ACTION_RENEW)); /* but it lives */
    step(&bench, (struct event){.kind = EVENT_RESUME});
    assert_non_null(find(&bench, ACTION_READ));
    close_bench(&bench);
}
