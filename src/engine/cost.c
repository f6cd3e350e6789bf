/* Least squares in three unknowns. All is done in units of what a batch took, because a prediction that is 5 % wrong is
 * as bad for a short batch as for a long one, and so that no unknown is much larger than another.
 *
 * Online, what is fitted are factors on the calibrated terms: sum of factor_j * u_j = 1, with u_j the share of term j
 * in what the batch took. Two things keep the fit sane where batches hardly differ: old batches fade away, and each
 * factor is drawn to the common scale of them all, as if a few more batches had said so. */
#include "engine/cost.h"

#include <math.h>
#include <string.h>

static const double fade = 0.98;  /* of what is known, with each batch: about the last 50 count */
static const double pull = 0.002; /* towards the common scale, in batches of equal shares */
static const double least_lone = 0.1;
static const double crowded = 0.2; /* more for a token that finds no room in the cache */
static const double weigh = 0.05;  /* of the last batch in the moving scale, error and help */

/* Where lengths are means, what is just a strip long may be a hair more. */
static const double hair = 1e-6;

struct cost_shape cost_shape_of(const struct engine_batch *batch)
{
    struct cost_shape shape = {.tokens = batch->extent, .rows = batch->rows};
    for (uint32_t row = 0; row < batch->rows; row++)
        shape.squares += (double)batch->length[row] * batch->length[row];
    return shape;
}

struct cost cost_from(double pass_ns, double token_ns, double square_ns)
{
    return (struct cost){.terms = {pass_ns, token_ns, square_ns}, .help = 1, .factors = {1, 1, 1}, .scale = 1};
}

bool cost_known(const struct cost *cost)
{
    return cost->terms[0] > 0 || cost->terms[1] > 0 || cost->terms[2] > 0;
}

/* Of a pass, begun ones too; 0: the device has none. */
static double half_strips(const struct cost_device *device, double tokens)
{
    return device->strip > 0 ? ceil(2 * tokens / device->strip - hair) : 0;
}

/* No more than one strip. */
static bool is_lone(double halves)
{
    return halves == 1 || halves == 2;
}

/* Adds so many passes of as many tokens, without their attention. */
static void add_passes(const struct cost_device *device, double count, double tokens, double x[COST_TERMS])
{
    double halves = half_strips(device, tokens), whole = floor(halves / 2);
    if (is_lone(halves) && device->lone[halves > 1] > 0) {
        count *= device->lone[halves > 1];
        tokens = device->strip;
    } else if (halves > 0) {
        tokens = device->strip * (whole + device->half * (halves - 2 * whole));
    }
    double beyond = device->room > 0 ? fmax(0, tokens - device->room) : 0;
    x[0] += count;
    x[1] += count * (tokens + crowded * beyond);
}

/* Each token meets the keys of its row. */
static double in_attention(const struct cost_device *device, struct cost_shape shape)
{
    if (!(device->keys > 0) || !(shape.tokens > 0))
        return shape.squares;
    return shape.tokens * device->keys * ceil(shape.squares / shape.tokens / device->keys - hair);
}

/* Passes are as full as whole rows make them, but for the last one; a row that is longer than a pass may be is one of
 * its own. */
static void features(const struct cost_device *device, struct cost_shape shape, double x[COST_TERMS])
{
    double rows = shape.rows > 0 ? shape.rows : 1, length = shape.tokens / rows, at_once = rows;
    if (device->pass > 0)
        at_once = fmin(rows, fmax(1, floor(device->pass * rows / fmax(1, shape.tokens))));
    double full = floor(rows / at_once), rest = rows - full * at_once;
    x[0] = x[1] = 0;
    x[2] = in_attention(device, shape);
    add_passes(device, full, at_once * length, x);
    add_passes(device, rest > 0 ? 1 : 0, rest * length, x);
}

/* What is helped is one pass. */
static bool gets_help(const struct cost *cost, struct cost_shape shape)
{
    return shape.helped && shape.tokens <= cost->device.helped;
}

static double alone_ns(const struct cost *cost, struct cost_shape shape)
{
    double x[COST_TERMS], ns = 0;
    features(&cost->device, shape, x);
    for (int i = 0; i < COST_TERMS; i++)
        ns += cost->factors[i] * cost->terms[i] * x[i];
    return ns;
}

double cost_predict_ns(const struct cost *cost, struct cost_shape shape)
{
    return alone_ns(cost, shape) * (gets_help(cost, shape) ? cost->help : 1);
}

/* Solves a * x = b where `free` says so, the other x are 0; symmetric and positive, so that no pivoting is needed.
 * Returns whether it could. */
static bool solve(const struct cost_equations *sums, const bool free[COST_TERMS], double x[COST_TERMS])
{
    double m[COST_TERMS][COST_TERMS + 1];
    for (int i = 0; i < COST_TERMS; i++) {
        for (int j = 0; j < COST_TERMS; j++)
            m[i][j] = free[i] && free[j] ? sums->a[i][j] : i == j;
        m[i][COST_TERMS] = free[i] ? sums->b[i] : 0;
    }
    for (int i = 0; i < COST_TERMS; i++) {
        if (!(m[i][i] > 1e-12 * (1 + sums->a[i][i])))
            return false;
        for (int k = 0; k < COST_TERMS; k++) {
            double part = k == i ? 0 : m[k][i] / m[i][i];
            for (int j = i; j <= COST_TERMS; j++)
                m[k][j] -= part * m[i][j];
        }
    }
    for (int i = 0; i < COST_TERMS; i++)
        x[i] = m[i][COST_TERMS] / m[i][i];
    return true;
}

/* What a * x = b leaves: x * (a * x - 2 b), up to a constant. */
static double residual(const struct cost_equations *sums, const double x[COST_TERMS])
{
    double sum = 0;
    for (int i = 0; i < COST_TERMS; i++) {
        sum -= 2 * sums->b[i] * x[i];
        for (int j = 0; j < COST_TERMS; j++)
            sum += x[i] * sums->a[i][j] * x[j];
    }
    return sum;
}

/* The best x without a negative one, of which only the first `terms` may be above 0: the best of all choices of which
 * are free, for there are only seven. */
static bool solve_positive(const struct cost_equations *sums, unsigned terms, double best[COST_TERMS])
{
    double least = INFINITY;
    for (unsigned set = 1; set < 1u << terms; set++) {
        bool free[COST_TERMS], good = true;
        double x[COST_TERMS];
        for (unsigned i = 0; i < COST_TERMS; i++)
            free[i] = set >> i & 1;
        if (!solve(sums, free, x))
            continue;
        for (int i = 0; i < COST_TERMS; i++)
            good &= x[i] >= 0;
        double left = good ? residual(sums, x) : INFINITY;
        if (left < least) {
            least = left;
            memcpy(best, x, sizeof x);
        }
    }
    return isfinite(least);
}

static void add(struct cost_equations *sums, const double u[COST_TERMS])
{
    for (int i = 0; i < COST_TERMS; i++) {
        for (int j = 0; j < COST_TERMS; j++)
            sums->a[i][j] += u[i] * u[j];
        sums->b[i] += u[i];
    }
}

/* The fit of the terms, for a device of which all is known. With enough batches it goes by those that are longer than a
 * strip alone, else by all, and squares are left out: they would take what is noise for attention. */
static struct cost fit_terms(struct cost_device device, bool enough, const struct cost_shape *shapes,
                             const double *took_ns, unsigned count)
{
    struct cost_equations sums = {0};
    double most[COST_TERMS] = {0}, x[COST_TERMS] = {0};
    for (unsigned k = 0; k < count; k++) { /* the size of each unknown's shares, to make them alike */
        double u[COST_TERMS];
        features(&device, shapes[k], u);
        for (int i = 0; i < COST_TERMS; i++)
            most[i] = fmax(most[i], u[i] / took_ns[k]);
    }
    for (unsigned k = 0; k < count; k++) {
        double u[COST_TERMS];
        features(&device, shapes[k], u);
        for (int i = 0; i < COST_TERMS; i++)
            u[i] = most[i] > 0 ? u[i] / took_ns[k] / most[i] : 0;
        if (!enough || shapes[k].tokens > device.strip)
            add(&sums, u);
    }
    if (!solve_positive(&sums, enough ? COST_TERMS : COST_TERMS - 1, x))
        return cost_from(0, 0, 0);
    for (int i = 0; i < COST_TERMS; i++)
        x[i] = most[i] > 0 ? x[i] / most[i] : 0;
    struct cost cost = cost_from(x[0], x[1], x[2]);
    cost.device = device;
    return cost;
}

/* What passes of so many half strips, one or two, take without their attention, on average. Without any, what the terms
 * say. */
static double fit_lone(const struct cost *cost, double halves, const struct cost_shape *shapes, const double *took_ns,
                       unsigned count)
{
    double sum = 0, found = 0;
    for (unsigned k = 0; k < count; k++)
        if (half_strips(&cost->device, shapes[k].tokens) == halves) {
            sum += took_ns[k] - cost->terms[2] * in_attention(&cost->device, shapes[k]);
            found++;
        }
    if (found > 0)
        return sum / found;
    return cost->terms[0] + cost->terms[1] * cost->device.strip * (halves > 1 ? 1 : cost->device.half);
}

/* Fits the prices of lone passes, the shorter not above the longer, and neither above that of a strip and a half. */
static void fit_both_lone(struct cost *cost, const struct cost_shape *shapes, const double *took_ns, unsigned count)
{
    double strip_ns = cost->terms[1] * cost->device.strip, all_ns = cost->terms[0] + strip_ns;
    double half_ns = fit_lone(cost, 1, shapes, took_ns, count), one_ns = fit_lone(cost, 2, shapes, took_ns, count);
    if (!(all_ns > 0))
        return;
    one_ns = fmin(one_ns, all_ns + cost->device.half * strip_ns);
    cost->device.lone[1] = fmax(least_lone, one_ns / all_ns);
    cost->device.lone[0] = fmax(least_lone, fmin(half_ns, one_ns) / all_ns);
}

/* The mean of the relative errors. */
static double mean_error(const struct cost *cost, const struct cost_shape *shapes, const double *took_ns,
                         unsigned count)
{
    double sum = 0;
    for (unsigned k = 0; k < count; k++)
        sum += fabs(cost_predict_ns(cost, shapes[k]) - took_ns[k]) / took_ns[k] / count;
    return sum;
}

/* A lone pass says nothing of the terms, as it has a price of its own; but where there are fewer others than terms, it
 * is better taken for one of several strips. */
struct cost cost_fit(struct cost_device device, const struct cost_shape *shapes, const double *took_ns, unsigned count)
{
    unsigned longer = 0;
    for (unsigned k = 0; k < count; k++)
        longer += !is_lone(half_strips(&device, shapes[k].tokens));
    bool enough = longer >= COST_TERMS;
    device.lone[0] = device.lone[1] = 0;
    struct cost cost = fit_terms(device, enough, shapes, took_ns, count);
    if (device.strip > 0 && enough)
        fit_both_lone(&cost, shapes, took_ns, count);
    cost.error = mean_error(&cost, shapes, took_ns, count);
    return cost;
}

void cost_fit_help(struct cost *cost, const struct cost_shape *shapes, const double *took_ns, unsigned count)
{
    double sum = 0;
    unsigned helped = 0;
    for (unsigned k = 0; k < count; k++)
        if (gets_help(cost, shapes[k]) && alone_ns(cost, shapes[k]) > 0) {
            sum += took_ns[k] / alone_ns(cost, shapes[k]);
            helped++;
        }
    cost->help = helped > 0 ? sum / helped : 1;
}

static void refit(struct cost *cost, const double u[COST_TERMS])
{
    for (int i = 0; i < COST_TERMS; i++) {
        cost->seen.b[i] *= fade;
        for (int j = 0; j < COST_TERMS; j++)
            cost->seen.a[i][j] *= fade;
    }
    add(&cost->seen, u);
    struct cost_equations drawn = cost->seen;
    for (int i = 0; i < COST_TERMS; i++) {
        drawn.a[i][i] += pull;
        drawn.b[i] += pull * cost->scale;
    }
    (void)solve_positive(&drawn, COST_TERMS, cost->factors); /* where it cannot, what was good before still is */
}

/* What the batch says of the terms, all together and one by one. */
static void correct(struct cost *cost, struct cost_shape shape, double took_ns, double part)
{
    double x[COST_TERMS], u[COST_TERMS], share = 0;
    features(&cost->device, shape, x);
    for (int i = 0; i < COST_TERMS; i++) {
        u[i] = cost->terms[i] * x[i] / took_ns;
        share += u[i];
    }
    cost->scale *= pow(share * cost->scale, -part); /* the mean of logarithms */
    refit(cost, u);
}

void cost_observe(struct cost *cost, struct cost_shape shape, double took_ns)
{
    if (!(took_ns > 0) || !(shape.tokens > 0))
        return;
    if (!cost_known(cost))
        *cost = cost_from(0, took_ns / shape.tokens, 0);
    double predicted = cost_predict_ns(cost, shape);
    double part = cost->batches == 0 ? 1 : fmax(weigh, 1.0 / (double)(cost->batches + 1));
    cost->error += part * (fabs(predicted - took_ns) / took_ns - cost->error);
    cost->batches++;
    if (gets_help(cost, shape))
        cost->help *= pow(took_ns / predicted, weigh);
    else
        correct(cost, shape, took_ns, part);
}
