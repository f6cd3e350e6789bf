/* All passes are measured in rounds, one after the other, and the model is to explain what a tenth of them do not
 * exceed. What is slower is what other programs did, and a minute in which they did much would tell against the passes
 * of that minute; the very fastest ones are those of a lucky moment, and differ more from run to run. */
#include "bench/cost_check.h"

#include <math.h>

#include "base/clock.h"
#include "bench/passes.h"

enum { POINTS = 3 * NUMBERS_MAX, PASS_TOKENS = 1024, TIMES = 10 };

/* A pass over and over. */
struct point {
    uint32_t length, rows;
    struct team *team; /* that helps; NULL: one thread */
    struct sample took, cpu;
    struct cost_shape shape;
    double took_ns, median_ns; /* to be explained, and to be foreseen */
};

enum status cost_check_open(struct cost_check *check, unsigned threads, struct err *err)
{
    return cost_calibrate_engine(check->engine, check->model, threads, &check->team, &check->calibrated, err);
}

void cost_check_close(struct cost_check *check)
{
    team_close(check->team);
}

static unsigned add_points(const struct cost_check *check, struct point points[POINTS], unsigned *alone)
{
    unsigned count = 0;
    for (size_t i = 0; i < check->lengths->count; i++)
        points[count++] = (struct point){.length = (uint32_t)check->lengths->items[i], .rows = 1};
    for (size_t i = 0; i < check->lengths->count; i++) {
        uint32_t length = (uint32_t)check->lengths->items[i];
        points[count++] = (struct point){.length = length, .rows = length < PASS_TOKENS / 2 ? PASS_TOKENS / length : 2};
    }
    *alone = count;
    for (size_t i = 0; i < check->lengths->count; i++)
        if ((double)check->lengths->items[i] <= check->calibrated.device.helped)
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
    point->took_ns = sample_quantile(sample, 0.1) * NS_PER_MS + 1; /* the null engine may be faster than a clock */
    point->median_ns = sample_quantile(sample, 0.5) * NS_PER_MS + 1;
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

static const struct column cost_columns[] = {
    {"tokens", "tokens", 0},    {"squares", "squares", 0},        {"helped", "helped", 0},
    {"took_ms", "took ms", 3},  {"fitted_ms", "fitted", 3},       {"fit_error", "error", 3},
    {"median_ms", "median", 3}, {"predicted_ms", "predicted", 3}, {"prediction_error", "error", 3},
};

static double relative(double value, double to)
{
    return value / to - 1;
}

/* How well the model explains the passes (fitted), and how well the daemon would have known from its
 * calibration at start what the one in the middle takes (predicted). */
static void explain(const struct cost_check *check, const struct point *points, unsigned alone, unsigned count)
{
    struct cost_shape shapes[POINTS];
    double took_ns[POINTS], worst = 0, worst_before = 0;
    for (unsigned i = 0; i < count; i++) {
        shapes[i] = points[i].shape;
        took_ns[i] = points[i].took_ns;
    }
    struct cost fitted = cost_fit(check->calibrated.device, shapes, took_ns, alone);
    cost_fit_help(&fitted, shapes + alone, took_ns + alone, count - alone);
    sheet_table(check->sheet, "cost", cost_columns, sizeof cost_columns / sizeof cost_columns[0]);
    for (unsigned i = 0; i < count; i++) {
        double by_fit = cost_predict_ns(&fitted, shapes[i]), before = cost_predict_ns(&check->calibrated, shapes[i]);
        double median_ns = points[i].median_ns;
        worst = fmax(worst, i < alone ? fabs(relative(by_fit, took_ns[i])) : 0);
        worst_before = fmax(worst_before, i < alone ? fabs(relative(before, median_ns)) : 0);
        sheet_row(check->sheet, (struct cell[]){{NULL, shapes[i].tokens},
                                                {NULL, shapes[i].squares},
                                                {NULL, shapes[i].helped},
                                                {NULL, took_ns[i] / NS_PER_MS},
                                                {NULL, by_fit / NS_PER_MS},
                                                {NULL, relative(by_fit, took_ns[i])},
                                                {NULL, median_ns / NS_PER_MS},
                                                {NULL, before / NS_PER_MS},
                                                {NULL, relative(before, median_ns)}});
    }
    sheet_number(check->sheet, "worst_fit_error", worst, 3);
    sheet_number(check->sheet, "worst_prediction_error", worst_before, 3);
    sheet_number(check->sheet, "cost_pass_us", fitted.terms[0] / 1e3, 2);
    sheet_number(check->sheet, "cost_token_ns", fitted.terms[1], 2);
    sheet_number(check->sheet, "cost_square_ps", fitted.terms[2] * 1e3, 3);
    sheet_number(check->sheet, "cost_help", fitted.help, 3);
}

enum status cost_check_run(struct cost_check *check, struct err *err)
{
    struct point points[POINTS];
    unsigned alone, count = add_points(check, points, &alone);
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
        explain(check, points, alone, count);
    }
    for (unsigned i = 0; i < count; i++) {
        sample_free(&points[i].took);
        sample_free(&points[i].cpu);
    }
    return status;
}
