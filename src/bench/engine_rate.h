/* `sluice bench engine`: the model's forward pass by itself. */
#ifndef BENCH_ENGINE_RATE_H
#define BENCH_ENGINE_RATE_H

#include <stdint.h>

#include "base/err.h"
#include "bench/report.h"
#include "config/config.h"
#include "engine/engine.h"

/* Work that several threads repeat for a time. All three functions run on the thread; `open` fills `state`, also after
 * an error, and `close` frees it. */
struct workload {
    enum status (*open)(void *context, void **state, struct err *err);
    enum status (*run)(void *state, struct err *err);
    void (*close)(void *state);
    void *context;
};

enum { WORKLOAD_THREADS_MAX = 256 };

/* Repeats a workload on `threads` threads (at most WORKLOAD_THREADS_MAX) for `for_ns`, after a first run of each that
 * does not count. `rate`: runs per second, of all threads together. Errors: of `open` and `run`; STATUS_IO (no thread).
 */
MUST_CHECK enum status workload_measure(const struct workload *workload, unsigned threads, uint64_t for_ns,
                                        double *rate, struct err *err);

/* An engine and batches for it, made up of ids from all over the vocabulary. */
struct passes {
    struct engine *engine;
    const struct model *model;
    struct engine_batch *batches;  /* [count], without output: each thread has its own */
    uint32_t count, most_rows;     /* most_rows: of any batch */
    size_t extent;                 /* tokens of all batches, padding included */
    struct parallel_for *parallel; /* helpers for all passes; NULL: none */
};

/* Makes a batch of rows of one length, packed. Owns: the caller ends it with passes_close; engine and model must
 * outlive it. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status passes_open_even(struct passes *passes, struct engine *engine, const struct model *model,
                                        uint32_t rows, uint32_t length, struct err *err);

/* Frees the batches. */
void passes_close(struct passes *passes);

/* Each run begins all batches, one after the other, as soon as the device has room for the next. `passes` must outlive
 * them. */
struct workload passes_workload(struct passes *passes);

/* The command's own options. */
struct bench_engine_options {
    char *json;
    char *tokens;             /* lengths of the texts: "16,128" */
    int64_t batch_tokens;     /* per batch, rounded to whole texts */
    int64_t round_ms, rounds; /* length of a round; the best of `rounds` counts */
    bool graphs;              /* on a GPU: passes run as CUDA graphs */
    int gelu;                 /* on a GPU; 1: the erf form */
};

/* Operations per token in a text of this length, products and attention, as papers count them. */
double bench_engine_operations(const struct model *model, double length);

/* Measures, and fills the report. Errors: those of model_open and engine_open; STATUS_BAD_INPUT naming an option. */
MUST_CHECK enum status bench_engine(const struct config *config, const struct bench_engine_options *options,
                                    struct report *report, struct err *err);

#endif
