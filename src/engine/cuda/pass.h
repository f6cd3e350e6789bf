/* A pass on the device, from the batch's arrival to its vectors: the ops of struct backend_ops.
 *
 * They only enqueue. From the second pass of a size on, everything between the batch's arrival and pooling is one graph
 * (struct cuda_graphs): the ops of the second pass are captured, those of later ones have nothing to do until pool
 * launches the graph. A stream on which a pass cannot be captured, or its graph not made or launched, runs that pass
 * and all later ones directly; it is logged once (graphs_given_up) and counted. */
#ifndef ENGINE_CUDA_PASS_H
#define ENGINE_CUDA_PASS_H

#include "engine/backend.h"
#include "engine/cuda/gemm.h"
#include "engine/cuda/memory.h"
#include "engine/cuda/weights.h"

/* What is known of each size of pass (a bucket): the plans of its products, and after its first pass a graph of all
 * that runs between the batch's arrival and pooling. Graphs are bounded in number; the one that was not used for
 * longest goes first.
 *
 * The first pass of a bucket runs without a graph: products are timed and kernels loaded then, neither of which a
 * capture allows. */
struct cuda_bucket {
    uint32_t tokens, rows;
    const struct cuda_gemm_plan *plans[CUDA_LINEARS];       /* for `tokens` rows of a matrix */
    const struct cuda_gemm_plan *first_plans[CUDA_LINEARS]; /* for `rows`: of the layer for first tokens only ... */
    const struct cuda_gemm_plan *keys_values;               /* ... in which these are still of all tokens */
    bool planned, warm;                                     /* warm: a pass has run */
    cudaGraphExec_t graph;                                  /* NULL: none */
    uint64_t last_pass;                                     /* its number */
};

struct cuda_graphs {
    const struct cuda_api *api;
    uint32_t most; /* graphs; 0: none are made */
    uint32_t graphs;
    struct cuda_bucket *buckets; /* [count] */
    size_t count, capacity;
};

struct cuda_backend {
    struct backend backend;
    const struct cuda_api *api;
    struct cuda_device device;
    struct cuda_weights weights;
    struct cuda_gemm *gemm;
    struct cuda_plan_request request;
    struct cuda_plan plan;
    enum cuda_epilogue activation_epilogue; /* of the intermediate product; CUDA_EPILOGUE_NONE: the kernel does it */
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
    struct cuda_gemm_runner *runner;
    struct cuda_memory memory;
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

/* Destroys all graphs and frees the buckets; their plans are not its own. */
void cuda_graphs_close(struct cuda_graphs *graphs);

/* Destroys all graphs; none may be running. */
void cuda_graphs_drop(struct cuda_graphs *graphs);

/* Makes the backend's GPU this thread's current one. Errors: those of cuda_check. */
MUST_CHECK enum status cuda_select(const struct cuda_backend *cuda, struct err *err);

/* The ops of struct backend_ops. Errors: STATUS_NO_MEMORY, STATUS_INTERNAL; once the device is lost, STATUS_DEVICE_LOST
 * for all. */
enum status cuda_pass_embed(struct backend_workspace *workspace, const struct pass *pass, struct err *err);
enum status cuda_pass_linear(struct backend_workspace *workspace, uint32_t layer, enum linear_site site,
                             struct err *err);
enum status cuda_pass_attention(struct backend_workspace *workspace, uint32_t layer, struct err *err);
enum status cuda_pass_norm(struct backend_workspace *workspace, uint32_t layer, enum norm_site site, struct err *err);
enum status cuda_pass_pool(struct backend_workspace *workspace, struct err *err);
enum status cuda_pass_submit(struct backend_workspace *workspace, struct err *err);
enum status cuda_pass_wait(struct backend_workspace *workspace, struct err *err);

/* Ends whatever is under way, for a stream that is to be closed. */
void cuda_pass_abort(struct backend_workspace *workspace);

#endif
