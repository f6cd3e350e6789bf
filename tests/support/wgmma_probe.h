/* Kernels that run the words of kernels/wgmma.h one at a time; as ptx_probe.h, for Hopper. Pointers are to device
 * memory.
 */
#ifndef TESTS_WGMMA_PROBE_H
#define TESTS_WGMMA_PROBE_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* a b + a b by one warpgroup, in two products of which the first overwrites `d`. */
struct probe_wgmma_args {
    const uint16_t *a; /* [64, 16] */
    const uint16_t *b; /* [16, n] */
    float *d;          /* [64, n], written */
};

/* Each product that attention uses: with n columns; b with its rows in memory (transposed) or its columns; in panels
 * with rows of that many bytes; a in shared memory or in registers. */
struct probe_wgmma_case {
    enum kernel_type type;
    uint32_t n, transposed, row, shared_left;
};
const struct probe_wgmma_case *probe_wgmma_cases(uint32_t *count);
cudaError_t probe_wgmma(const struct kernel_queue *queue, uint32_t number, const struct probe_wgmma_args *args);

/* A warpgroup writes numbers to shared memory in `rounds` rounds, through two places, and another one adds them up. */
struct probe_hand_over_args {
    uint32_t rounds;
    const uint32_t *from; /* [rounds, 128] */
    uint32_t *sums;       /* [128], written */
};
cudaError_t probe_hand_over(const struct kernel_queue *queue, const struct probe_hand_over_args *args);

#ifdef __cplusplus
}
#endif
#endif
