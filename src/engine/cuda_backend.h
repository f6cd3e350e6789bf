/* An open CUDA backend and one of its streams, as the files that open them (backend_cuda.c), take a pass through
 * (cuda_pass.h) and launch its ops (cuda_ops.h) all see them. */
#ifndef ENGINE_CUDA_BACKEND_H
#define ENGINE_CUDA_BACKEND_H

#include "engine/backend.h"
#include "engine/cuda_graphs.h"
#include "engine/cuda_stream.h"

struct cuda_backend {
    struct backend backend;
    const struct cuda_api *api;
    struct cuda_device device;
    struct cuda_weights weights;
    struct gemm *gemm;
    struct cuda_plan_request request;
    struct cuda_plan plan;
    enum gemm_after activation_after; /* of the intermediate product; GEMM_ALONE: the kernel does it */
    enum kernel_activation activation;
};

enum pass_mode { PASS_DIRECT, PASS_CAPTURE, PASS_REPLAY };

/* An op of a pass up to pooling, as it was asked for. */
struct pass_op {
    enum { OP_EMBED, OP_LINEAR, OP_ATTENTION, OP_NORM } kind;
    uint32_t layer;
    enum linear_site linear;
    enum norm_site norm;
};

/* How many of them a pass has: embedding, and in a layer four products, attention and two norms. */
#define CUDA_PASS_OPS(layers) (1 + 7 * (size_t)(layers))

struct backend_workspace {
    struct cuda_backend *cuda;
    struct kernel_queue queue;
    struct gemm_runner *runner;
    struct cuda_stream device;
    struct cuda_graphs graphs;
    bool lost;       /* the device; nothing is asked of it any more */
    uint64_t passes; /* begun so far */

    /* The pass that is begun, until it is submitted. */
    bool begun, capturing;
    enum pass_mode mode;
    struct pass_op *ops; /* [CUDA_PASS_OPS], the first op_count: what was asked for so far */
    uint32_t op_count;
    struct cuda_bucket *bucket;
    struct cuda_slot *slot;
    struct kernel_ragged ragged;
};

#endif
