/* All passes are measured in rounds, one after the other, so that whatever else the machine does meets them all. */
#include "bench/cost_check.h"

#include <math.h>

#include "base/clock.h"
#include "bench/passes.h"

enum { POINTS = 3 * NUMBERS_MAX, PASS_TOKENS = 1024, HELPED_TOKENS = 256, TIMES = 10 };

/* A pass over and over. */
struct point {
    uint32_t length, rows;
    struct team *team; /* that helps; NULL: one thread */
    struct sample took, cpu;
    struct cost_shape shape;
    double median_ns;
};

enum status cost_check_open(struct cost_check *check, unsigned threads, struct err *err)
{
    const struct cost_source of = {check->engine, check->model, threads};
    TRY(cost_calibrate(&of, COST_CALIBRATE_NS, &check->calibrated, err));
    return threads > 1 && check->cpu ? team_open(threads, &check->team, err) : STATUS_OK;
}

void cost_check_close(struct cost_check *check)
{
    team_close(check->team);
}

static unsigned add_points(const struct cost_check *check, struct point points[POINTS])
{
    unsigned count = 0;
    for (size_t i = 0; i < check->lengths->count; i++)
        points[count++] = (struct point){.length = (uint32_t)check->lengths->items[i], .rows = 1};
    for (size_t i = 0; i < check->lengths->count; i++) {
        uint32_t length = (uint32_t)check->lengths->items[i];
        points[count++] = (struct point){.length = length, .rows = length < PASS_TOKENS / 2 ? PASS_TOKENS / length : 2};
    }
    for (size_t i = 0; i < check->lengths->count; i++)
        if (check->team != NULL && check->lengths->items[i] <= HELPED_TOKENS)
            points[count++] =
                (struct point){.length = (uint32_t)check->lengths->items[i], .rows = 1, .team = check->team};
    return count;
}

static enum status measure(const struct cost_check *check, struct point *point, struct err *err)
{
    struct passes passes;
    unsigned times = (unsigned)(TIMES / check->rounds) + 1; /* in a round */
    enum status status = passes_open_even(&passes, check->engine, check->model, point->rows, point->length, err);
    passes.team = point->team;
    if (status == STATUS_OK)
        status = passes_time(&passes, (uint64_t)check->round_ms * NS_PER_MS, times, &point->took, &point->cpu, err);
    if (status == STATUS_OK)
        point->shape = cost_shape_of(&passes.batch);
    passes_close(&passes);
    return status;
}

/* On one thread of a CPU its processor time counts, with helpers, and on other devices, the clock on the wall. */
static void conclude(const struct cost_check *check, struct point *point)
{
    struct sample *sample = check->cpu && point->team == NULL ? &point->cpu : &point->took;
    point->shape.helped = point->team != NULL;
    point->median_ns = sample_quantile(sample, 0.5) * NS_PER_MS + 1; /* the null engine may be faster than a clock */
}

static const struct column pass_columns[] = {
    {"tokens", "tokens", 0}, {"rows", "rows", 0},     {"threads", "threads", 0},   {"passes", "passes", 0},
    {"p50_ms", "p50 ms", 3}, {"p99_ms", "p99 ms", 3}, {"least_ms", "least ms", 3}, {"least_cpu_ms", "least CPU", 3}};

static void show(const struct cost_check *check, struct point *point)
{
    sheet_row(check->sheet, (struct cell[]){{NULL, point->length},
                                            {NULL, point->rows},
                                            {NULL, point->team == NULL ? 1 : team_hands(point->team)},
                                            {NULL, (double)point->took.count},
                                            {NULL, sample_quantile(&point->took, 0.5)},
                                            {NULL, sample_quantile(&point->took, 0.99)},
                                            {NULL, sample_quantile(&point->took, 0)},
                                            {NULL, check->cpu ? sample_quantile(&point->cpu, 0) : NAN}});
}

static const struct column cost_columns[] = {{"tokens", "tokens", 0},          {"squares", "squares", 0},
                                             {"helped", "helped", 0},          {"median_ms", "median ms", 3},
                                             {"predicted_ms", "predicted", 3}, {"prediction_error", "error", 3}};

/* How well a daemon would have known from its calibration at start what the pass in the middle takes. */
static void explain(const struct cost_check *check, const struct point *points, unsigned count)
{
    const struct cost *cost = &check->calibrated;
    double worst = 0;
    sheet_table(check->sheet, "cost", cost_columns, sizeof cost_columns / sizeof cost_columns[0]);
    for (unsigned i = 0; i < count; i++) {
        double predicted_ns = cost_predict_ns(cost, points[i].shape), error = predicted_ns / points[i].median_ns - 1;
        worst = fmax(worst, points[i].rows > 1 ? fabs(error) : 0);
        sheet_row(check->sheet, (struct cell[]){{NULL, points[i].shape.tokens},
                                                {NULL, points[i].shape.squares},
                                                {NULL, points[i].shape.helped},
                                                {NULL, points[i].median_ns / NS_PER_MS},
                                                {NULL, predicted_ns / NS_PER_MS},
                                                {NULL, error}});
    }
    sheet_number(check->sheet, "worst_batch_error", worst, 3);
    sheet_number(check->sheet, "cost_batch_us", cost->terms[0] / 1e3, 2);
    sheet_number(check->sheet, "cost_token_ns", cost->terms[1], 2);
    sheet_number(check->sheet, "cost_square_ps", cost->terms[2] * 1e3, 3);
    sheet_number(check->sheet, "cost_help", cost->help, 3);
}

enum status cost_check_run(struct cost_check *check, struct err *err)
{
    struct point points[POINTS];
    unsigned count = add_points(check, points);
    enum status status = STATUS_OK;
    for (int64_t round = 0; round < check->rounds; round++)
        for (unsigned i = 0; i < count && status == STATUS_OK; i++)
            status = measure(check, &points[i], err);
    if (status == STATUS_OK) {
        sheet_table(check->sheet, "passes", pass_columns, sizeof pass_columns / sizeof pass_columns[0]);
        for (unsigned i = 0; i < count; i++) {
            conclude(check, &points[i]);
            show(check, &points[i]);
        }
        explain(check, points, count);
    }
    for (unsigned i = 0; i < count; i++) {
        sample_free(&points[i].took);
        sample_free(&points[i].cpu);
    }
    return status;
}
