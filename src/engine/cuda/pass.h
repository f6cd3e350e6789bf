/* A pass on the device, from the arrival of the batch to its vectors: the ops of struct backend_ops.
 *
 * Ops only enqueue. The first pass of a size runs directly, because timing products and loading kernels cannot be
 * captured. The second is captured as a graph of everything between arrival and pooling. Later passes replay it: their
 * ops do nothing until pool launches the graph. When a capture, instantiation or launch fails, the workspace runs that
 * pass and all later ones directly, logs graphs_given_up once and counts it. */
#ifndef ENGINE_CUDA_PASS_H
#define ENGINE_CUDA_PASS_H

#include "engine/backend.h"
#include "engine/cuda/gemm.h"
#include "engine/cuda/memory.h"
#include "engine/cuda/weights.h"

/* The data that a workspace keeps for each size of pass (a bucket): the plans of its products and, after the first
 * pass, its graph. The number of graphs is bounded; the least recently used one is dropped first. */
struct cuda_bucket {
    uint32_t tokens, rows;
    const struct cuda_gemm_plan *plans[CUDA_LINEARS]; /* for `tokens` rows of a matrix */
    const struct cuda_gemm_plan
        *first_plans[CUDA_LINEARS];           /* for `rows`: the layer that computes first tokens only ... */
    const struct cuda_gemm_plan *keys_values; /* ... but computes keys and values of all tokens */
    bool planned, warm;                       /* warm: a pass has run */
    cudaGraphExec_t graph;                    /* NULL: none */
    uint64_t last_pass;                       /* its number */
};

struct cuda_graphs {
    const struct cuda_api *api;
    uint32_t most; /* limit of graphs; 0: make none */
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
    enum cuda_epilogue
        activation_epilogue; /* of the intermediate product; NONE: kernel_activate or kernel_gate does it */
    enum kernel_activation activation;
};

enum pass_mode { PASS_DIRECT, PASS_CAPTURE, PASS_REPLAY };

/* An op of a pass before pooling, as the encoder called it. */
struct pass_op {
    enum { OP_EMBED, OP_LINEAR, OP_ATTENTION, OP_NORM } kind;
    uint32_t layer;
    enum linear_site linear;
    enum norm_site norm;
};

/* Ops before pooling: embedding; per layer four products, attention and two norms. */
#define CUDA_PASS_OPS(layers) (1 + 7 * (size_t)(layers))

struct backend_workspace {
    struct cuda_backend *cuda;
    struct kernel_queue queue;
    struct cuda_gemm_runner *runner;
    struct cuda_memory memory;
    struct cuda_graphs graphs;
    bool lost;       /* the device is lost: it gets no more calls */
    uint64_t passes; /* passes begun so far */

    /* The current pass, from embed to submit. */
    bool begun, capturing;
    enum pass_mode mode;
    struct pass_op *ops; /* [CUDA_PASS_OPS], op_count of them called so far */
    uint32_t op_count;
    struct cuda_bucket *bucket;
    struct cuda_slot *slot;
    struct kernel_ragged ragged;
};

/* Destroys all graphs and frees the buckets. The runner owns the plans. */
void cuda_graphs_close(struct cuda_graphs *graphs);

/* Destroys all graphs; none may be running. */
void cuda_graphs_drop(struct cuda_graphs *graphs);

/* Makes the backend's GPU this thread's current one. Errors: those of cuda_check. */
MUST_CHECK enum status cuda_select(const struct cuda_backend *cuda, struct err *err);

/* --- the ops of struct backend_ops. Errors of all: STATUS_NO_MEMORY, STATUS_INTERNAL; once the device is lost,
 * STATUS_DEVICE_LOST --- */

/* Begins a pass with its embeddings. */
enum status cuda_pass_embed(struct backend_workspace *workspace, const struct pass *pass, struct err *err);

/* Adds a product with one of a layer's matrices. */
enum status cuda_pass_linear(struct backend_workspace *workspace, uint32_t layer, enum linear_site site,
                             struct err *err);

/* Adds a layer's attention. */
enum status cuda_pass_attention(struct backend_workspace *workspace, uint32_t layer, struct err *err);

/* Adds one of a layer's norms. */
enum status cuda_pass_norm(struct backend_workspace *workspace, uint32_t layer, enum norm_site site, struct err *err);

/* Adds the pooling, which completes the pass, and launches its graph if it has one. */
enum status cuda_pass_pool(struct backend_workspace *workspace, struct err *err);

/* Copies the vectors out after the pass. */
enum status cuda_pass_submit(struct backend_workspace *workspace, struct err *err);

/* Waits for the oldest pass that was submitted, and writes its output. */
enum status cuda_pass_wait(struct backend_workspace *workspace, struct err *err);

/* Returns whether all rows of the pass that was waited for last are finite. */
bool cuda_pass_finite(const struct backend_workspace *workspace);

/* Abandons the current pass and waits for running work, before the workspace is closed. */
void cuda_pass_abort(struct backend_workspace *workspace);

#endif
