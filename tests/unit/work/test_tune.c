/* Batches as long as the target allows: the percentile, the search for the share, and the bounds that keep it sane;
 * then all of it on a small model of a queue. */
#include "harness.h"

#include <math.h>

#include "base/clock.h"
#include "work/batching.h"

static const struct cost cost = {.terms = {1e5, 1e5, 0}, .scale = 1}; /* 0.1 ms + 0.1 ms a token */

static void answer(struct tune *tune, uint64_t latency_ms, int count, uint64_t *now)
{
    for (int i = 0; i < count; i++)
        tune_answered(tune, latency_ms, *now += 10 * NS_PER_MS);
}

static void the_percentile_is_that_of_the_last_second(void **state)
{
    (void)state;
    struct tune tune;
    uint64_t now = 0;
    tune_begin(&tune, 0);
    assert_int_equal(tune.p99_ms, 0);
    answer(&tune, 10, 290, &now);
    answer(&tune, 1000, 10, &now);
    assert_true(tune.p99_ms >= 9 && tune.p99_ms <= 11); /* of the first 200; the period ended when there were enough */
    answer(&tune, 1000, 300, &now);
    assert_true(tune.p99_ms >= 950 && tune.p99_ms <= 1100);
    answer(&tune, 0, 500, &now);
    assert_int_equal(tune.p99_ms, 1);
    answer(&tune, UINT64_MAX, 500, &now);
    assert_true(tune.p99_ms > 1000000);
}

static void without_a_target_there_is_no_limit(void **state)
{
    (void)state;
    struct tune tune;
    tune_begin(&tune, 0);
    assert_true(tune_batch_ns(&tune, &cost, 0) == 0);
}

static void the_share_shrinks_above_the_target_and_grows_below(void **state)
{
    (void)state;
    struct tune tune;
    uint64_t now = 0;
    tune_begin(&tune, 100);
    double first = tune_batch_ns(&tune, &cost, 0);
    assert_true(first > 0 && first <= 50e6);
    answer(&tune, 150, 200, &now);
    double less = tune_batch_ns(&tune, &cost, 0);
    assert_true(less < first);
    answer(&tune, 90, 400, &now); /* near the target: as it is */
    assert_true(tune_batch_ns(&tune, &cost, 0) == less);
    answer(&tune, 20, 4000, &now);
    assert_true(tune_batch_ns(&tune, &cost, 0) > first);
    answer(&tune, 20, 100000, &now);
    assert_true(tune_batch_ns(&tune, &cost, 0) == 100e6);
}

static void a_batch_is_worth_its_fixed_cost(void **state)
{
    (void)state;
    struct tune tune;
    uint64_t now = 0;
    tune_begin(&tune, 5);
    answer(&tune, 1000, 100000, &now);
    assert_true(tune_batch_ns(&tune, &cost, 0) == 1e6);
}

static void who_waits_longer_than_the_target_needs_throughput(void **state)
{
    (void)state;
    struct tune tune;
    tune_begin(&tune, 50);
    assert_true(tune_batch_ns(&tune, &cost, 50 * NS_PER_MS) > 0);
    assert_true(tune_batch_ns(&tune, &cost, 51 * NS_PER_MS) == 0);
}

static void without_a_cost_there_is_no_limit(void **state)
{
    (void)state;
    struct tune tune;
    struct cost unknown = cost_from(0, 0, 0);
    tune_begin(&tune, 50);
    assert_true(tune_batch_ns(&tune, &unknown, 0) == 0);
}

/* One compute thread, requests of 10 tokens at even distances or as chance brings them: each batch takes what waits, up
 * to the limit. */
struct queue_model {
    struct tune tune;
    double now_ns, next_ns, every_ns;
    uint32_t chance;        /* 0: even distances; else the state of what brings them */
    double waiting[200000]; /* since when */
    int first, last;
};

static void arrive(struct queue_model *model)
{
    double distance = 1;
    if (model->chance != 0) {
        model->chance = model->chance * 1664525u + 1013904223u;
        distance = -log(((model->chance >> 8) + 1) * 0x1p-24);
    }
    model->waiting[model->last++] = model->next_ns;
    model->next_ns += distance * model->every_ns;
}

static void run_one_batch(struct queue_model *model)
{
    if (model->first == model->last)
        model->now_ns = fmax(model->now_ns, model->next_ns);
    while (model->next_ns <= model->now_ns)
        arrive(model);
    double oldest_ns = model->now_ns - model->waiting[model->first],
           most = tune_batch_ns(&model->tune, &cost, (uint64_t)oldest_ns);
    int rows = 1;
    while (rows < 400 && model->first + rows < model->last &&
           (most == 0 || cost_predict_ns(&cost, (struct cost_shape){(rows + 1) * 10.0, 0}) <= most))
        rows++;
    model->now_ns += cost_predict_ns(&cost, (struct cost_shape){rows * 10.0, 0});
    for (int i = 0; i < rows; i++)
        tune_answered(&model->tune, (uint64_t)((model->now_ns - model->waiting[model->first++]) / 1e6),
                      (uint64_t)model->now_ns);
}

/* A burst of 400 each 20 s, which is 0.4 s of work, on top of a load of a half: most answers stay within the target. */
static void a_steady_load_meets_its_target(void **state)
{
    (void)state;
    static struct queue_model model;
    model = (struct queue_model){.every_ns = 2e6};
    tune_begin(&model.tune, 40);
    while (model.last < 60000)
        run_one_batch(&model);
    assert_true(model.tune.p99_ms > 0 && model.tune.p99_ms <= 40);
}

/* Runs on for a time, and tells from when on every 99th percentile was within the target: s of virtual time since the
 * start of it; more than `seconds` when the last one was not. */
static double settles_after(struct queue_model *model, double seconds)
{
    double begin_ns = model->now_ns, settled = 0;
    while (model->now_ns < begin_ns + seconds * 1e9) {
        run_one_batch(model);
        if (model->tune.p99_ms * 1e6 > (double)model->tune.target_ns)
            settled = (model->now_ns - begin_ns) / 1e9 + 0.001;
    }
    return model->tune.p99_ms * 1e6 > (double)model->tune.target_ns ? seconds + 1 : settled;
}

/* The load doubles and halves, with what chance does to it. */
static void the_target_is_met_whatever_the_load_does(void **state)
{
    (void)state;
    static const double loads[] = {0.2, 0.4, 0.8, 0.4, 0.2, 0.8};
    for (uint32_t seed = 1; seed <= 8; seed++) {
        static struct queue_model model;
        model = (struct queue_model){.chance = seed};
        tune_begin(&model.tune, 50);
        for (size_t i = 0; i < sizeof loads / sizeof loads[0]; i++) {
            model.every_ns = 1e6 / loads[i];
            double after = settles_after(&model, 30);
            assert_true(after < 5);
        }
    }
}

/* For 10 s there is more work than time: 2 s of it wait at the end, which are gone after 5 s more. */
static void an_overload_is_over_when_its_work_is_done(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 8; seed++) {
        static struct queue_model model;
        model = (struct queue_model){.chance = seed};
        tune_begin(&model.tune, 50);
        for (int again = 0; again < 3; again++) {
            model.every_ns = 1e6 / 0.6;
            double after = settles_after(&model, 20);
            assert_true(again == 0 ? after < 3 : after < 12);
            model.every_ns = 1e6 / 1.2;
            (void)settles_after(&model, 10);
            assert_true(model.tune.p99_ms > 50);
        }
    }
}

/* More work than time: with short batches it would be even more. What is done per second is what long ones do. */
static void an_overload_runs_at_full_throughput(void **state)
{
    (void)state;
    static struct queue_model model;
    model = (struct queue_model){.every_ns = 0.9e6}; /* 1 ms of work each */
    tune_begin(&model.tune, 2);
    while (model.last < 90000)
        run_one_batch(&model);
    double per_row_ns = model.now_ns / model.first;
    assert_true(per_row_ns < 1.005e6); /* 1 ms and a 400th of the fixed cost; batches of 2 ms would need 1.1 */
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(the_percentile_is_that_of_the_last_second),
    cmocka_unit_test(without_a_target_there_is_no_limit),
    cmocka_unit_test(the_share_shrinks_above_the_target_and_grows_below),
    cmocka_unit_test(a_batch_is_worth_its_fixed_cost),
    cmocka_unit_test(who_waits_longer_than_the_target_needs_throughput),
    cmocka_unit_test(without_a_cost_there_is_no_limit),
    cmocka_unit_test(a_steady_load_meets_its_target),
    cmocka_unit_test(the_target_is_met_whatever_the_load_does),
    cmocka_unit_test(an_overload_is_over_when_its_work_is_done),
    cmocka_unit_test(an_overload_runs_at_full_throughput),
};

TEST_MAIN(cases)
