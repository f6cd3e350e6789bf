/* The yardstick of the engine: what oneDNN reaches on bare products of a model's shapes, called as its manual says.
 *
 * Written against oneDNN directly and not through src/engine, so that a weakness there cannot lower the yardstick. */
#ifndef BENCH_GEMM_PEAK_H
#define BENCH_GEMM_PEAK_H

#include "bench/turns.h"
#include "engine/engine.h"

/* One layer's four products for 256 tokens, as turns: the context is a struct gemm_peak. */
struct gemm_peak {
    const struct model *model;
    enum precision precision; /* one that it knows */
};

/* Whether there is a yardstick for a precision. */
bool gemm_peak_knows(enum precision precision);

/* The products over and over; `peak` must outlive them. */
struct turns gemm_peak_turns(struct gemm_peak *peak);

/* Operations of one turn: two for each multiply and add. */
double gemm_peak_operations(const struct model *model);

#endif
