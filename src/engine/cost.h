/* What a forward pass will take: t = fixed + per_token * T + per_square * sum of L^2, for T computed tokens (padding
 * too) in rows of L. The first term is what every batch costs, the second the matrix products, the third attention.
 *
 * The three numbers come from a calibration at start (cost_calibrate); each batch that has run then corrects them, more
 * slowly the less its shape can tell: batches of one shape move all three together. Pure but for cost_calibrate. */
#ifndef ENGINE_COST_H
#define ENGINE_COST_H

#include "engine/engine.h"

enum { COST_TERMS = 3 };

/* Of least squares: a * x = b, symmetric. */
struct cost_equations {
    double a[COST_TERMS][COST_TERMS], b[COST_TERMS];
};

struct cost {
    double terms[COST_TERMS];   /* ns, as calibrated: per batch, per token, per squared token; all 0: not known */
    double factors[COST_TERMS]; /* what the batches since have made of each; 1 at first */
    struct cost_equations seen; /* those batches, the older the less */
    double scale;               /* took / calibrated, moving */
    double error; /* |took - predicted| / took: of the calibration's batches, then of those since, moving */
    uint64_t batches;
};

/* What a batch is to this model. */
struct cost_shape {
    double tokens, squares;
};

struct cost_shape cost_shape_of(const struct engine_batch *batch);

/* A cost with these terms. Units: ns; none may be negative. */
struct cost cost_from(double fixed_ns, double token_ns, double square_ns);

bool cost_known(const struct cost *cost);

/* Units: ns; 0 while nothing is known. */
double cost_predict_ns(const struct cost *cost, struct cost_shape shape);

/* One more batch has run. Without a calibration before it, the first one sets the price of a token. */
void cost_observe(struct cost *cost, struct cost_shape shape, double took_ns);

/* Fits the three terms to measured batches by least squares of the relative error, none below 0; `error` is then
 * what it misses them by, on average. Shapes: shapes, took_ns [count]. */
struct cost cost_fit(const struct cost_shape *shapes, const double *took_ns, unsigned count);

/* Runs batches of a few shapes, each after a warm-up and several times, until about `budget_ns` are used up (what a
 * first pass of a size takes more than others is not counted), and fits their medians. Shapes that would take longer
 * than what is left of the budget are left out; the shortest always runs. Errors: those of encoder_run;
 * STATUS_NO_MEMORY. Thread: the encoder's. */
MUST_CHECK enum status cost_calibrate(struct encoder *encoder, const struct model *model, uint64_t budget_ns,
                                      struct cost *out, struct err *err);

#endif
