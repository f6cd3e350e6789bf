/* Predicts the time of a batch: t = a + b * tokens + c * sum of length^2, from all tokens of the batch (padding too)
 * and the lengths of its rows. A short batch that idle threads help with takes a share of that.
 *
 * The numbers come from a calibration at start, which is kept in a file; then one factor follows the batches that run.
 * The prediction for a single short text may be far off: products take rows in groups, which the formula ignores. */
#ifndef ENGINE_COST_H
#define ENGINE_COST_H

#include "base/buffer.h"
#include "engine/engine.h"

enum { COST_TERMS = 3, COST_CALIBRATE_NS = 200000000 /* at each start */ };

/* Everything known about an engine's speed. All zero: nothing. */
struct cost {
    double terms[COST_TERMS]; /* a, b, c as calibrated; ns; all 0: not known */
    double help;  /* the share of its predicted time that a batch takes if idle threads help with it; moving */
    double scale; /* time taken / calibrated time, of the other batches; moving */
    double error; /* |taken - predicted| / taken: of the calibration's batches, then of those since, moving */
    uint64_t batches;
};

/* The properties of a batch that this model uses. */
struct cost_shape {
    double tokens, squares;
    bool helped; /* idle threads take part in it: it is short or one text, and nothing else is computed */
};

/* The subject of a calibration. */
struct cost_source {
    struct engine *engine;
    const struct model *model;
    unsigned threads; /* threads that compute, and help each other */
};

/* The shape of a batch that an engine takes, on one thread. */
struct cost_shape cost_shape_of(const struct engine_batch *batch);

/* A cost with these terms, without helpers. Units: ns; none may be negative. */
struct cost cost_from(double batch_ns, double token_ns, double square_ns);

/* True if there are terms to predict with. */
bool cost_known(const struct cost *cost);

/* The predicted time of a batch. Units: ns; 0 while nothing is known. */
double cost_predict_ns(const struct cost *cost, struct cost_shape shape);

/* Learns from one more batch that has run. Without a calibration before it, the first one sets the price of a token. A
 * batch that was helped only updates `help`. */
void cost_observe(struct cost *cost, struct cost_shape shape, double took_ns);

/* Fits the terms, none below 0, to batches computed without helpers, by least squares of the relative error; `error` is
 * its mean relative error over them. Three batches or fewer do not determine the term of squares. Shapes: shapes,
 * took_ns [count]. */
struct cost cost_fit(const struct cost_shape *shapes, const double *took_ns, unsigned count);

/* Runs batches of a few shapes on a private encoder until about `budget_ns` are used up (the first always runs)
 * and fits the least time of each; where several threads compute, also short batches that are helped. Errors: those of
 * parallel_for_open, encoder_open and encoder_run; STATUS_NO_MEMORY; `out` is not known then. Thread: any. */
MUST_CHECK enum status cost_calibrate(const struct cost_source *of, uint64_t budget_ns, struct cost *out,
                                      struct err *err);

/* Reads the calibration that is kept in the cache directory. Errors: STATUS_NOT_FOUND; STATUS_BAD_INPUT (damaged; the
 * message names the file); those of file_read. `out` is not known then. */
MUST_CHECK enum status cost_recall(const char *directory, const struct cost_source *of, struct cost *out,
                                   struct err *err);

/* Keeps it there, without the changes learned from batches since. Errors: those of cache_write. */
MUST_CHECK enum status cost_remember(const char *directory, const struct cost_source *of, const struct cost *cost,
                                     struct err *err);

/* Appends the text of such a file: lines that identify the subject of the calibration, the numbers, a checksum. */
void cost_print(const struct cost_source *of, const struct cost *cost, struct buffer *out);

/* Reads such a text, followed by a NUL; only a text that cost_print would print is accepted. Errors: STATUS_BAD_INPUT,
 * STATUS_NO_MEMORY; `out` is not known then. */
MUST_CHECK enum status cost_parse(const char *text, size_t length, const struct cost_source *of, struct cost *out,
                                  struct err *err);

#endif
