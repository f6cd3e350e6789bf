/* What oneDNN reaches on bare matrix products: the yardstick of bench_engine. */
#ifndef TESTS_GEMM_PEAK_H
#define TESTS_GEMM_PEAK_H

#include <stdint.h>

struct gemm_peak;

enum gemm_type { GEMM_F32, GEMM_BF16, GEMM_INT8 };

/* A product of [256, inputs] by [inputs, outputs] with weights in oneDNN's own layout, no bias; the result is f32, or
 * s32 of operands with sign in int8. Anything that fails ends the process. Thread: one. */
struct gemm_peak *gemm_peak_open(uint32_t outputs, uint32_t inputs, enum gemm_type of);
void gemm_peak_close(struct gemm_peak *peak);

/* Runs the product `times` times and returns its floating point operations. */
double gemm_peak_run(struct gemm_peak *peak, unsigned times);

#endif
