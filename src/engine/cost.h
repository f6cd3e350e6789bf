/* What a batch will take: t = a * P + b * T + c * sum of L^2, for T computed tokens (padding too) in rows of L, that go
 * through the device in P passes. The first term is what every pass costs, whatever is in it (all weights come by), the
 * second the matrix products, the third attention.
 *
 * Where a device counts otherwise, struct cost_device says so. A product on tiles takes tokens in strips, and half a
 * strip for 0.65 of one; a pass that is no more than a strip has a price of its own. Attention on tiles takes keys in
 * strips. A token that finds no room in a core's cache counts for 1.2. And idle threads help with short passes.
 *
 * The numbers come from a calibration at start (cost_calibrate); each batch that has run then corrects the three terms,
 * more slowly the less its shape can tell: batches of one shape move all three together. Pure but for cost_calibrate*.
 */
#ifndef ENGINE_COST_H
#define ENGINE_COST_H

#include "engine/engine.h"

enum { COST_TERMS = 3, COST_CALIBRATE_NS = 200000000 /* for a good fit where 512 tokens take 60 ms */ };

/* Of least squares: a * x = b, symmetric. */
struct cost_equations {
    double a[COST_TERMS][COST_TERMS], b[COST_TERMS];
};

/* How a device goes through a batch, in tokens. */
struct cost_device {
    double pass;   /* whole rows of up to so many are one pass; 0: all are */
    double strip;  /* a product takes so many rows at a time; 0: any number */
    double half;   /* what half a strip takes, as a share of a whole one */
    double keys;   /* attention takes so many keys at a time; 0: any number */
    double room;   /* the activations of so many stay in a core's cache; 0: of any number */
    double helped; /* idle threads have a part in a pass of up to so many; 0: they never have */

    /* What a pass of up to half a strip takes, and one of up to a whole one, without its attention, as a share of what
     * the terms say of a strip. Nothing hides its wait for the weights, but it leaves nothing behind for other strips,
     * as the first of several does. Found by the fit; 0: as the terms say. */
    double lone[2];
};

/* What is known of an engine's speed. All zero: nothing. */
struct cost {
    double terms[COST_TERMS]; /* ns, as calibrated: per pass, per token, per squared token; all 0: not known */
    struct cost_device device;
    double help;                /* share of its time that a batch takes with the help of idle threads; of late */
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
    bool helped; /* the cores are idle but for this batch: threads help with it, if it is short */
};

/* The shape of a batch that an engine takes, on one thread. */
struct cost_shape cost_shape_of(const struct engine_batch *batch);

/* A cost with these terms, where every batch is one pass and nobody helps. Units: ns; none may be negative. */
struct cost cost_from(double pass_ns, double token_ns, double square_ns);

/* Whether there is anything to predict with. */
bool cost_known(const struct cost *cost);

/* Rows are taken to be alike, which they are where batches are sorted by length. Units: ns; 0 while nothing is known.
 */
double cost_predict_ns(const struct cost *cost, struct cost_shape shape);

/* One more batch has run. Without a calibration before it, the first one sets the price of a token. A batch that was
 * helped only says what help is worth. */
void cost_observe(struct cost *cost, struct cost_shape shape, double took_ns);

/* Fits the three terms, none below 0, to measured batches that nobody helped with, by least squares of the relative
 * error, then `lone` to those of up to a strip; `error` is what it misses all of them by, on average. Where fewer
 * than three batches are longer, the first two terms stand for all. Shapes: shapes, took_ns [count]. */
struct cost cost_fit(struct cost_device device, const struct cost_shape *shapes, const double *took_ns, unsigned count);

/* What help is worth, by batches that were helped and a cost that is fitted: the mean of their shares. Without any,
 * nothing. */
void cost_fit_help(struct cost *cost, const struct cost_shape *shapes, const double *took_ns, unsigned count);

/* Runs batches of a few shapes until about `budget_ns` are used up (what a GPU does in the first passes of a size is
 * not counted), and fits the lower quartile of the runs of each, without the time that the thread waited for a
 * processor. Shapes that would take too much of the budget are left out; the first always runs. With a team, the
 * encoder joins it in the end, for a few short batches that are helped; NULL: nobody helps. Errors: those of
 * encoder_run and encoder_join; STATUS_NO_MEMORY. Thread: the encoder's. */
MUST_CHECK enum status cost_calibrate(struct encoder *encoder, struct team *team, const struct model *model,
                                      uint64_t budget_ns, struct cost *out, struct err *err);

/* Calibrates an engine as a daemon's start does: where as many threads as that compute by themselves, they help each
 * other, so the measurement has helpers as well. Owns: `team` is those, or NULL; the caller ends it with team_close,
 * after an error too. Errors: those of team_open, encoder_open and cost_calibrate. Thread: any. */
MUST_CHECK enum status cost_calibrate_engine(struct engine *engine, const struct model *model, unsigned threads,
                                             struct team **team, struct cost *out, struct err *err);

#endif
