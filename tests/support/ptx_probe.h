/* Kernels that run the words of kernels/ptx.h one at a time, so that they can be compared with the PTX ISA on the host
 * and on a GPU alike. Pointers are to device memory. */
#ifndef TESTS_PTX_PROBE_H
#define TESTS_PTX_PROBE_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One mma_16x8x16 by one warp, of f16 or bf16. */
struct probe_mma_args {
    enum kernel_type type;
    const uint32_t *a; /* [32, 4]: each lane's registers */
    const uint32_t *b; /* [32, 2] */
    float *d;          /* [32, 4], read and written */
};
cudaError_t probe_mma(const struct kernel_queue *queue, const struct probe_mma_args *args);

/* One ldmatrix_x4_transposed by one warp, out of shared memory that holds `from`. */
struct probe_ldmatrix_args {
    const uint16_t *from; /* [64, 8] */
    const uint32_t *row;  /* [32]: which of the rows of `from` each lane names */
    uint32_t *to;         /* [32, 4], written */
};
cudaError_t probe_ldmatrix(const struct kernel_queue *queue, const struct probe_ldmatrix_args *args);

/* 128 lanes copy 16 bytes each to shared memory, or zeros, and read what another lane has copied. */
struct probe_copy_args {
    const uint32_t *from;  /* [128, 4]; only read where valid */
    const uint32_t *valid; /* [128] */
    uint32_t *to;          /* [128, 4], written: lane i gets what lane 127 - i has copied */
};
cudaError_t probe_copy(const struct kernel_queue *queue, const struct probe_copy_args *args);

struct probe_exp2_args {
    const float *x; /* [32] */
    float *y;       /* [32], written */
};
cudaError_t probe_exp2(const struct kernel_queue *queue, const struct probe_exp2_args *args);

/* attention_place (kernels/attention.h) of a head dim of 32 or 64. */
int probe_place(int head_dim, int token, int chunk);

#ifdef __cplusplus
}
#endif
#endif
