/* What cuda_gemm.c, cuda_gemm_time.c and cuda_gemm_run.c share. */
#ifndef ENGINE_CUDA_GEMM_PARTS_H
#define ENGINE_CUDA_GEMM_PARTS_H

#include <pthread.h>
#include <stdbool.h>

#include "engine/cuda_gemm.h"

struct gemm_key {
    struct gemm_shape shape;
    uint32_t rows;
};

/* What was found for a product. */
struct gemm_pick {
    struct gemm_key key;
    bool plain; /* no algorithm of cuBLASLt's works */
    cublasLtMatmulAlgo_t algorithm;
};

struct gemm {
    const struct cuda_api *api;
    uint32_t candidates;
    size_t workspace_bytes;

    pthread_mutex_t mutex;   /* guards: */
    struct gemm_pick *picks; /* [count], sorted by key */
    size_t count, room;
};

struct gemm_plan {
    struct gemm_key key;
    bool plain; /* by cublasGemmEx; what follows is of no use then */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t weight, from, to;
    cublasLtMatmulAlgo_t algorithm;
};

struct gemm_runner {
    struct gemm *gemm;
    struct kernel_queue queue;
    cublasLtHandle_t lt;
    cublasHandle_t blas; /* NULL until a plain plan is made */
    void *workspace;
    cudaEvent_t begin, end;   /* for timing */
    struct gemm_plan **plans; /* sorted by key; each on its own, so that it stays where it is */
    size_t count;
    size_t room;
};

/* CUDA's name of a type. */
cudaDataType_t gemm_data_type(enum kernel_type type);

/* Puts the bias into the plan's description; it is another one for each layer. The heuristics look at it too: at how it
 * is aligned. */
cublasStatus_t gemm_set_bias(const struct gemm_runner *runner, const struct gemm_plan *plan,
                             const struct gemm_operands *operands);

/* Enqueues a plan's product by cuBLASLt with the given algorithm. */
cublasStatus_t gemm_multiply(struct gemm_runner *runner, const struct gemm_plan *plan,
                             const cublasLtMatmulAlgo_t *algorithm, const struct gemm_operands *operands);

/* Finds the fastest of what the heuristics offer for the pick's key; a plain pick when none of that works.
 * Errors: STATUS_DEVICE_LOST, STATUS_NO_MEMORY, STATUS_INTERNAL. */
MUST_CHECK enum status gemm_time(struct gemm_runner *runner, const struct gemm_plan *plan,
                                 const struct gemm_operands *operands, struct gemm_pick *out, struct err *err);

#endif
