/* Batches for an engine, made up of ids that are all over the vocabulary. */
#ifndef BENCH_PASSES_H
#define BENCH_PASSES_H

#include "bench/sample.h"
#include "bench/turns.h"
#include "engine/engine.h"

/* An engine and a batch for it. */
struct passes {
    struct engine *engine;
    const struct model *model;
    int32_t *ids;                  /* with all else of the batch behind them */
    struct engine_batch batch;     /* without output: each thread has its own */
    struct parallel_for *parallel; /* that helps with all passes; NULL: nobody does */
};

/* Makes a batch of rows of these lengths, packed, or each with room for the longest. Shapes: lengths [rows]. Owns: the
 * caller ends it with passes_close; engine and model must outlive it. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status passes_open(struct passes *passes, struct engine *engine, const struct model *model,
                                   const uint32_t *lengths, uint32_t rows, bool padded, struct err *err);
/* The same with all rows of one length. Owns and Errors: as passes_open. */
MUST_CHECK enum status passes_open_even(struct passes *passes, struct engine *engine, const struct model *model,
                                        uint32_t rows, uint32_t length, struct err *err);

/* Frees the batch. */
void passes_close(struct passes *passes);

/* The batch over and over: one pass is a turn. `passes` must outlive them. */
struct turns passes_turns(struct passes *passes);

/* The rows over and over: a pass for each, one after the other, is a turn. */
struct turns passes_turns_one_by_one(struct passes *passes);

/* Runs the batch on one thread for `for_ns`, and so many times at least: adds what each pass took, and what it took of
 * the thread's processor time (0 where a device computes). Units: ms. Errors: those of the engine, STATUS_NO_MEMORY. */
MUST_CHECK enum status passes_time(struct passes *passes, uint64_t for_ns, unsigned times, struct sample *took_ms,
                                   struct sample *cpu_ms, struct err *err);

#endif
