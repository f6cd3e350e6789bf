/* What a batch will take: t = a * P + b * T + c * sum of L^2, for T computed tokens (padding too) in rows of L, that go
 * through the device in P passes. The first term is what every pass costs, whatever is in it (all weights come by), the
 * second the matrix products, the third attention.
 *
 * On tiles the first one fades behind the second: the more rows a weight is for, the less of the wait for it shows.
 * There a pass of n tokens counts as sqrt(f^2 + n^2) - n over f, which is 1 for none and f / 2n for many.
 *
 * The three numbers come from a calibration at start (cost_calibrate); each batch that has run then corrects them, more
 * slowly the less its shape can tell: batches of one shape move all three together. Pure but for cost_calibrate. */
#ifndef ENGINE_COST_H
#define ENGINE_COST_H

#include "engine/engine.h"

enum { COST_TERMS = 3, COST_CALIBRATE_NS = 200000000 /* for a good fit where a text of 512 tokens takes 50 ms */ };

/* Of least squares: a * x = b, symmetric. */
struct cost_equations {
    double a[COST_TERMS][COST_TERMS], b[COST_TERMS];
};

/* How a device goes through a batch, in tokens. */
struct cost_device {
    double pass;  /* whole rows of up to so many are one pass; 0: all are */
    double strip; /* a product takes so many at a time, and half of them for not much less; 0: any number */
    double fade;  /* f above; 0: a pass costs the same whatever is in it */
};

/* What is known of an engine's speed. All zero: nothing. */
struct cost {
    double terms[COST_TERMS]; /* ns, as calibrated: per pass, per token, per squared token; all 0: not known */
    struct cost_device device;
    double factors[COST_TERMS]; /* what the batches since have made of each; 1 at first */
    struct cost_equations seen; /* those batches, the older the less */
    double scale;               /* took / calibrated, moving */
    double error; /* |took - predicted| / took: of the calibration's batches, then of those since, moving */
    uint64_t batches;
};

/* What a batch is to this model. */
struct cost_shape {
    double tokens, squares; /* of all rows */
    double rows;
};

/* The shape of a batch that an engine takes. */
struct cost_shape cost_shape_of(const struct engine_batch *batch);

/* A cost with these terms, where every batch is one pass. Units: ns; none may be negative. */
struct cost cost_from(double pass_ns, double token_ns, double square_ns);

/* Whether there is anything to predict with. */
bool cost_known(const struct cost *cost);

/* Rows are taken to be alike, which they are where batches are sorted by length. Units: ns; 0 while nothing is known.
 */
double cost_predict_ns(const struct cost *cost, struct cost_shape shape);

/* One more batch has run. Without a calibration before it, the first one sets the price of a token. */
void cost_observe(struct cost *cost, struct cost_shape shape, double took_ns);

/* Fits the three terms to measured batches by least squares of the relative error, none below 0; `error` is then
 * what it misses them by, on average. Without `fade` where with it more tokens would cost less. Shapes: shapes,
 * took_ns [count]. */
struct cost cost_fit(struct cost_device device, const struct cost_shape *shapes, const double *took_ns, unsigned count);

/* Runs batches of a few shapes, each up to four times, until about `budget_ns` are used up (what a GPU does in the
 * first passes of a size is not counted), and fits the shortest runs, without the time that the thread waited for a
 * processor. Shapes that would take too much of the budget are left out; the first always runs. Errors: those of
 * encoder_run; STATUS_NO_MEMORY. Thread: the encoder's. */
MUST_CHECK enum status cost_calibrate(struct encoder *encoder, const struct model *model, uint64_t budget_ns,
                                      struct cost *out, struct err *err);

#endif
