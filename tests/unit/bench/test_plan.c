/* The simulated queue, and the plan for the number of workers that uses it: on a virtual clock, with a given engine. */
#include <math.h>

#include "base/clock.h"
#include "bench/plan.h"
#include "harness.h"

static const struct simulated_text one_length[] = {{10, 40}};
static const struct simulated_text lengths[] = {{5, 20}, {10, 40}, {20, 80}, {60, 240}, {5, 18}, {12, 50}};

/* A worker of one thread, 1 ms a batch and 0.1 ms a token; all else together takes 0.1 ms. */
static struct simulation queue_of(const struct simulated_text *texts, size_t count)
{
    return (struct simulation){
        .options = {.rules = {.model_name = "m",
                              .model_id = "i",
                              .encoding = ENCODING_F32,
                              .dim = 8,
                              .max_tokens = 64,
                              .max_text_bytes = 1000,
                              .max_inputs = 1,
                              .default_ttl_s = 60,
                              .max_ttl_s = 100,
                              .error_ttl_s = 60,
                              .default_max_attempts = 2},
                    .max_batch_tokens = 1000,
                    .max_batch_rows = 64,
                    .max_batch_ms = 100,
                    .cost = cost_from(1e6, 1e5, 0),
                    .window_ms = 5,
                    .devices = 1,
                    .engine_slots = 1,
                    .batches_out = 2,
                    .lease_ms = 15000,
                    .backoff_ms = 100,
                    .backoff_cap_ms = 1000,
                    .shutdown_timeout_ms = 5000},
        .workers = 1,
        .texts = texts,
        .text_count = count,
        .rate = 10,
        .for_ns = 100 * NS_PER_S,
        .seed = 7,
        .costs = {.hop_ns = 1e4, .redis_ns = 1, .alone = 1, .crowded = 1, .prep_threads = 1, .reply_bytes = 32}};
}

struct times {
    double p50, p99, mean_busy, per_s, rows;
    size_t count;
};

static struct times times_of(struct simulation simulation)
{
    struct simulated out;
    struct err err;
    assert_int_equal(simulation_run(&simulation, &out, &err), STATUS_OK);
    struct times times = {sample_quantile(&out.latency_ms, 0.5),
                          sample_quantile(&out.latency_ms, 0.99),
                          out.busy_share,
                          out.requests_per_s,
                          out.batch_rows,
                          out.latency_ms.count};
    sample_free(&out.latency_ms);
    return times;
}

/* Ten steps on the way, 2 ms in the engine, and a call of Redis at each end. */
TEST(a_request_by_itself_takes_its_way_and_its_batch)
{
    struct times times = times_of(queue_of(one_length, 1));
    assert_true(times.p50 > 2.1 && times.p50 < 2.12);
    assert_in_range(times.count, 400, 600);
    assert_true(fabs(times.mean_busy - times.per_s * 0.002) < 0.001);
    assert_true(times.rows >= 1 && times.rows < 1.1);
}

TEST(each_cost_is_in_the_latency)
{
    struct simulation simulation = queue_of(one_length, 1);
    double before = times_of(simulation).p50;
    simulation.costs.prepare_ns = 3e6;
    simulation.costs.format_ns = 4e6;
    simulation.costs.redis_ns =
        1e6; /* a quarter of it is the XADD, which is part of the latency of a producer that waits for the reply */
    simulation.rate = 1;
    double after = times_of(simulation).p50;
    assert_true(fabs(after - before - 8) < 0.05);
}

TEST(the_same_options_give_the_same_result)
{
    struct simulation simulation = queue_of(lengths, 6);
    simulation.rate = 150;
    struct times a = times_of(simulation), b = times_of(simulation);
    assert_memory_equal(&a, &b, sizeof a);
    simulation.seed++;
    b = times_of(simulation);
    assert_true(a.p99 != b.p99);
}

TEST(more_load_is_no_less_latency)
{
    struct simulation simulation = queue_of(lengths, 6);
    struct times last = {0};
    for (simulation.rate = 20; simulation.rate <= 380; simulation.rate += 40) {
        struct times times = times_of(simulation);
        assert_true(times.p50 >= last.p50 * 0.99 && times.p99 >= last.p99 * 0.99);
        assert_true(times.mean_busy > last.mean_busy && times.rows >= last.rows * 0.99);
        last = times;
    }
    assert_true(last.rows > 1.5);
    assert_true(last.mean_busy > 0.8 && last.mean_busy <= 1);
}

/* Requests beyond the engine's capacity wait: the rate of answers is that capacity, and the queue determines the
 * latency. */
TEST(too_much_is_seen)
{
    struct simulation simulation = queue_of(one_length, 1);
    simulation.rate = 2000; /* 64 rows take 65 ms: 985 a second */
    simulation.for_ns = 20 * NS_PER_S;
    struct times times = times_of(simulation);
    assert_true(times.per_s > 900 && times.per_s < 990);
    assert_true(times.mean_busy > 0.99);
    assert_true(times.p50 > 5000);
}

TEST(more_workers_answer_no_later)
{
    struct simulation simulation = queue_of(lengths, 6);
    double p99 = INFINITY;
    simulation.rate = 800;
    simulation.for_ns = 20 * NS_PER_S;
    for (simulation.workers = 1; simulation.workers <= 16; simulation.workers *= 2) {
        struct times times = times_of(simulation);
        assert_true(times.p99 <= p99 * 1.01);
        p99 = times.p99;
    }
    assert_true(p99 < 20);
}

/* With two threads, a batch alone takes half its time, and a batch beside another one twice as long. */
TEST(threads_help_and_crowd_each_other)
{
    struct simulation simulation = queue_of(one_length, 1);
    simulation.options.engine_slots = 2;
    simulation.options.batches_out = 4;
    simulation.options.cost.help = 0.5;
    double helped = times_of(simulation).p50;
    assert_true(helped > 1.1 && helped < 1.15);
    simulation.rate = 3000;
    simulation.for_ns = 10 * NS_PER_S;
    double most = times_of(simulation).per_s;
    simulation.costs.crowded = 2;
    assert_true(fabs(times_of(simulation).per_s / most - 0.5) < 0.05);
}

/* The work of other threads is taken from two cores: a given time for each text, whether of the same program or of
 * another one. With a GPU, with a third core, and while a core idles, it costs nothing. */
TEST(other_threads_take_cores)
{
    struct simulation simulation = queue_of(one_length, 1);
    simulation.options.engine_slots = 2;
    simulation.options.batches_out = 4;
    simulation.rate = 3000;
    simulation.for_ns = 10 * NS_PER_S;
    double most = times_of(simulation).per_s;
    simulation.costs.beside_ns = 1e6;
    assert_true(times_of(simulation).per_s == most);
    simulation.costs.cores = 3;
    assert_true(fabs(times_of(simulation).per_s / most - 1) < 0.001);
    simulation.costs.cores = 2;
    assert_true(fabs(times_of(simulation).per_s / most - 0.5) < 0.05);
    simulation.costs.beside_ns = 0;
    simulation.costs.format_ns = 5e5;
    simulation.costs.prepare_ns = 5e5;
    simulation.costs.prep_threads = 100;
    assert_true(fabs(times_of(simulation).per_s / most - 0.5) < 0.05);
    simulation.rate = 1;
    simulation.for_ns = 100 * NS_PER_S;
    double before = times_of(simulation).p50;
    simulation.costs.beside_ns = 1e6;
    assert_true(fabs(times_of(simulation).p50 - before) < 0.01);
}

/* Each step of a request by itself wakes a thread; few requests together wake as many. */
TEST(wakes_cost_little_where_batches_are_large)
{
    struct simulation simulation = queue_of(one_length, 1);
    simulation.rate = 3000;
    simulation.for_ns = 10 * NS_PER_S;
    double most = times_of(simulation).per_s;
    simulation.costs.cores = 1;
    simulation.costs.wake_ns = 1e5;
    double large = times_of(simulation).per_s / most;
    assert_true(large > 0.95 && large < 1);
    simulation.options.max_batch_rows = 1;
    simulation.costs.wake_ns = 0;
    most = times_of(simulation).per_s;
    simulation.costs.wake_ns = 1e5;
    double small = times_of(simulation).per_s / most;
    assert_true(small > 0.6 && small < 0.9);
}

/* A factor that slows a batch does not slow the way to its thread, which sleeps. */
TEST(a_short_batch_may_be_slowed_much)
{
    struct simulation simulation = queue_of(one_length, 1);
    simulation.options.engine_slots = 2;
    simulation.options.batches_out = 4;
    simulation.options.cost = cost_from(1e3, 0, 0);
    simulation.costs.hop_ns = 1e5;
    simulation.costs.alone = 5;
    simulation.costs.cores = 2;
    simulation.costs.wake_ns = 1e4; /* ten times its batch */
    simulation.rate = 5000;
    simulation.for_ns = 5 * NS_PER_S;
    struct times times = times_of(simulation);
    assert_true(times.p50 > 1 && times.p50 < 1.1);
    assert_true(times.p99 < 1.3);
}

/* ---- plans ---- */

static struct load_plan plan_of(double rate, double p99_ms)
{
    struct load_plan plan = {.simulation = queue_of(lengths, 6),
                             .rate = rate,
                             .p99_ns = p99_ms * (double)NS_PER_MS,
                             .memory = 1e12,
                             .reply_s = 60};
    plan.simulation.costs.redis_ns = 20e3;
    return plan;
}

TEST(the_least_number_that_holds_is_found)
{
    struct load_plan plan = plan_of(3000, 100);
    struct planned planned;
    struct err err;
    assert_int_equal(plan_find(&plan, &planned, &err), STATUS_OK);
    assert_true(planned.best.holds && planned.best.p99_ms <= 100 && planned.best.busy_share < 0.97);
    assert_in_range(planned.best.workers, 4, 20);
    bool one_less = false;
    for (unsigned i = 0; i < planned.try_count; i++) {
        const struct planned_try *tried = &planned.tries[i];
        assert_int_equal(tried->holds, tried->workers >= planned.best.workers);
        one_less = one_less || tried->workers + 1 == planned.best.workers;
    }
    assert_true(one_less);
    assert_int_equal(planned.gives_first, LIMIT_ENGINE);
    assert_true(planned.most[LIMIT_ENGINE] > 3000);

    struct load_plan slower = plan_of(3000, 30);
    struct planned more;
    assert_int_equal(plan_find(&slower, &more, &err), STATUS_OK);
    assert_true(more.best.workers >= planned.best.workers && more.best.p99_ms <= 30);
}

TEST(a_number_may_be_given)
{
    struct load_plan plan = plan_of(300, 0);
    struct planned planned;
    struct err err;
    plan.workers = 3;
    assert_int_equal(plan_find(&plan, &planned, &err), STATUS_OK);
    assert_int_equal(planned.try_count, 1);
    assert_int_equal(planned.best.workers, 3);
    assert_true(planned.best.holds);
    plan.rate = 5000;
    assert_int_equal(plan_find(&plan, &planned, &err), STATUS_OK);
    assert_false(planned.best.holds); /* 1.7 times what they can do */
    assert_int_equal(planned.best.workers, 3);
}

static void refused(const struct load_plan *plan, const char *option, const char *gives_first)
{
    struct planned planned;
    struct err err;
    assert_int_equal(plan_find(plan, &planned, &err), STATUS_BAD_INPUT);
    assert_non_null(strstr(err.message, option));
    assert_non_null(strstr(err.message, gives_first));
}

TEST(what_cannot_be_had_is_refused_with_what_gives_first)
{
    struct load_plan plan = plan_of(100, 5); /* the longest text takes 7 ms */
    refused(&plan, "--p99 5ms", "engine gives first");
    plan = plan_of(49000, 100);
    refused(&plan, "--rate 49000", "redis gives first");
    plan = plan_of(4840, 100); /* 207 us a request with its calls, where each worker takes one at a time */
    plan.simulation.costs.redis_ns = 200e3;
    refused(&plan, "--rate 4840", "redis gives first");
    plan = plan_of(40000, 100);
    plan.simulation.options.cost = cost_from(1e9, 0, 0);
    plan.simulation.options.max_batch_rows = 1;
    plan.p99_ns = 1e10;
    refused(&plan, "--rate 40000", "engine gives first");
}

TEST(the_least_limit_gives_first)
{
    struct planned planned;
    struct err err;
    struct load_plan plan = plan_of(300, 100);
    plan.memory = 60 * (32 + 850) * 400.0; /* 400 a second for 60 s */
    assert_int_equal(plan_find(&plan, &planned, &err), STATUS_OK);
    assert_int_equal(planned.gives_first, LIMIT_MEMORY);
    assert_true(fabs(planned.most[LIMIT_MEMORY] - 400) < 1);
    plan.memory = 1e12;
    plan.workers = 100;
    assert_int_equal(plan_find(&plan, &planned, &err), STATUS_OK);
    assert_int_equal(planned.gives_first, LIMIT_REDIS);
    assert_true(fabs(planned.most[LIMIT_REDIS] - 50000) < 1);
    plan.workers = 1;
    plan.simulation.options.cost = cost_from(1e3, 0, 0);
    assert_int_equal(plan_find(&plan, &planned, &err), STATUS_OK);
    assert_int_equal(planned.gives_first, LIMIT_REDIS);
}
