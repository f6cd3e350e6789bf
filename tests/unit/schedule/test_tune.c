/* How long a batch may be: the percentile, the search for the share, its bounds, and all of it on a small model of a
 * queue; and the token budget after a batch that did not fit. */
#include "harness.h"

#include <math.h>

#include "base/clock.h"
#include "schedule/tune.h"

static const struct cost tune_cost = {.terms = {1e5, 1e5, 0}, .scale = 1}; /* 0.1 ms + 0.1 ms a token */

static void answer(struct tune *tune, uint64_t latency_ms, int count, uint64_t *now)
{
    for (int i = 0; i < count; i++) { tune_answered(tune, latency_ms, *now += 10 * NS_PER_MS); }
}

TEST(the_percentile_is_that_of_the_last_second)
{
    struct tune tune;
    uint64_t now = 0;
    tune_begin(&tune, 0);
    assert_int_equal(tune.p99_ms, 0);
    answer(&tune, 10, 290, &now);
    answer(&tune, 1000, 10, &now);
    assert_true(tune.p99_ms >= 9 && tune.p99_ms <= 11); /* of the first 200, after which the period ended */
    answer(&tune, 1000, 300, &now);
    assert_true(tune.p99_ms >= 950 && tune.p99_ms <= 1100);
    answer(&tune, 0, 500, &now);
    assert_int_equal(tune.p99_ms, 1);
    answer(&tune, UINT64_MAX, 500, &now);
    assert_true(tune.p99_ms > 1000000);
}

TEST(the_share_shrinks_above_the_target_and_grows_below)
{
    struct tune tune;
    uint64_t now = 0;
    tune_begin(&tune, 100);
    double first = tune_batch_ns(&tune, &tune_cost, 0);
    assert_true(first > 0 && first <= 50e6);
    answer(&tune, 150, 200, &now);
    double less = tune_batch_ns(&tune, &tune_cost, 0);
    assert_true(less < first);
    answer(&tune, 90, 400, &now); /* near the target: as it is */
    assert_true(tune_batch_ns(&tune, &tune_cost, 0) == less);
    answer(&tune, 20, 4000, &now);
    assert_true(tune_batch_ns(&tune, &tune_cost, 0) > first);
    answer(&tune, 20, 100000, &now);
    assert_true(tune_batch_ns(&tune, &tune_cost, 0) == 100e6);
}

TEST(a_batch_is_worth_its_fixed_cost)
{
    struct tune tune;
    uint64_t now = 0;
    tune_begin(&tune, 5);
    answer(&tune, 1000, 100000, &now);
    assert_true(tune_batch_ns(&tune, &tune_cost, 0) == 1e6);
}

/* If a request has waited longer than the target, throughput counts. */
TEST(a_limit_needs_a_target_and_a_cost_and_time)
{
    const struct cost unknown = cost_from(0, 0, 0);
    const struct {
        uint32_t target_ms;
        const struct cost *cost;
        uint64_t waited_ms;
        bool limited;
    } cases[] = {
        {0, &tune_cost, 0, false}, {50, &unknown, 0, false}, {50, &tune_cost, 50, true}, {50, &tune_cost, 51, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tune tune;
        tune_begin(&tune, cases[i].target_ms);
        assert_int_equal(tune_batch_ns(&tune, cases[i].cost, cases[i].waited_ms * NS_PER_MS) > 0, cases[i].limited);
    }
}

/* One compute thread, requests of 10 tokens at even or random distances: each batch takes the waiting requests, up to
 * the limit. */
struct queue_model {
    struct tune tune;
    double now_ns, next_ns, every_ns;
    uint32_t chance;        /* 0: even distances; else the state of the random generator */
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
    if (model->first == model->last) { model->now_ns = fmax(model->now_ns, model->next_ns); }
    while (model->next_ns <= model->now_ns) { arrive(model); }
    double oldest_ns = model->now_ns - model->waiting[model->first],
           most = tune_batch_ns(&model->tune, &tune_cost, (uint64_t)oldest_ns);
    int taken = 1;
    while (taken < 400 && model->first + taken < model->last &&
           (most == 0 || cost_predict_ns(&tune_cost, (struct cost_shape){(taken + 1) * 10.0, 0}) <= most)) {
        taken++;
    }
    model->now_ns += cost_predict_ns(&tune_cost, (struct cost_shape){taken * 10.0, 0});
    for (int i = 0; i < taken; i++) {
        tune_answered(&model->tune, (uint64_t)((model->now_ns - model->waiting[model->first++]) / 1e6),
                      (uint64_t)model->now_ns);
    }
}

/* The load is a half: the answers stay within the target. */
TEST(a_steady_load_meets_its_target)
{
    static struct queue_model model;
    model = (struct queue_model){.every_ns = 2e6};
    tune_begin(&model.tune, 40);
    while (model.last < 60000) { run_one_batch(&model); }
    assert_true(model.tune.p99_ms > 0 && model.tune.p99_ms <= 40);
}

/* Runs on for `seconds`, and returns after how many s of virtual time every 99th percentile was within the target; more
 * than `seconds` if the last one was not. */
static double settles_after(struct queue_model *model, double seconds)
{
    double begin_ns = model->now_ns, settled = 0;
    while (model->now_ns < begin_ns + seconds * 1e9) {
        run_one_batch(model);
        if (model->tune.p99_ms * 1e6 > (double)model->tune.target_ns) {
            settled = (model->now_ns - begin_ns) / 1e9 + 0.001;
        }
    }
    return model->tune.p99_ms * 1e6 > (double)model->tune.target_ns ? seconds + 1 : settled;
}

/* The load doubles and halves, with random arrivals. */
TEST(the_target_is_met_whatever_the_load_does)
{
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

/* For 10 s there is more work than time: at the end 2 s of it are waiting, which are done 5 s later. */
TEST(an_overload_is_over_when_its_work_is_done)
{
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

/* There is more work than time, and short batches would make it even more: the throughput is that of long ones. */
TEST(an_overload_runs_at_full_throughput)
{
    static struct queue_model model;
    model = (struct queue_model){.every_ns = 0.9e6}; /* 1 ms of work each */
    tune_begin(&model.tune, 2);
    while (model.last < 90000) { run_one_batch(&model); }
    double per_row_ns = model.now_ns / model.first;
    assert_true(per_row_ns < 1.005e6); /* 1 ms and a 400th of the fixed cost; batches of 2 ms would need 1.1 */
}

/* --- the token budget --- */

TEST(the_budget_halves_and_grows_back)
{
    struct budget budget = {.full = 1000, .tokens = 1000};
    budget_good(&budget);
    assert_int_equal(budget.tokens, 1000);
    budget_halve(&budget);
    budget_halve(&budget);
    assert_int_equal(budget.tokens, 250);
    for (int i = 0; i < BUDGET_GROWS_AFTER - 1; i++) { budget_good(&budget); }
    assert_int_equal(budget.tokens, 250);
    budget_good(&budget);
    assert_int_equal(budget.tokens, 500);
    for (int i = 0; i < 10 * BUDGET_GROWS_AFTER; i++) { budget_good(&budget); }
    assert_int_equal(budget.tokens, 1000);
    for (int i = 0; i < 40; i++) { budget_halve(&budget); }
    assert_int_equal(budget.tokens, 1);
}
