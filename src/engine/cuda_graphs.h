/* What is known of each size of pass (a bucket): the plans of its products, and after its first pass a graph of all
 * that runs between the batch's arrival and pooling. Graphs are bounded in number; the one that was not used for
 * longest goes first.
 *
 * The first pass of a bucket runs without a graph: products are timed and kernels loaded then, neither of which a
 * capture allows. */
#ifndef ENGINE_CUDA_GRAPHS_H
#define ENGINE_CUDA_GRAPHS_H

#include "engine/cuda_gemm.h"
#include "engine/cuda_weights.h"

struct cuda_bucket {
    uint32_t tokens, rows;
    const struct gemm_plan *plans[CUDA_LINEARS];       /* for `tokens` rows of a matrix */
    const struct gemm_plan *first_plans[CUDA_LINEARS]; /* for `rows`: of the layer for first tokens only ... */
    const struct gemm_plan *keys_values;               /* ... in which these are still of all tokens */
    bool planned, warm;                                /* warm: a pass has run */
    cudaGraphExec_t graph;                             /* NULL: none */
    uint64_t last_pass;                                /* its number */
};

struct cuda_graphs {
    const struct cuda_api *api;
    uint32_t most; /* graphs; 0: none are made */
    uint32_t graphs;
    struct cuda_bucket *buckets; /* [count] */
    size_t count, capacity;
};

/* Destroys all graphs and frees the buckets; their plans are not its own. */
void cuda_graphs_close(struct cuda_graphs *graphs);

/* The bucket of that size, made when there is none; it may move when the next one is made.
 * Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status cuda_graphs_find(struct cuda_graphs *graphs, uint32_t tokens, uint32_t rows,
                                        struct cuda_bucket **out, struct err *err);

/* Makes a captured graph the bucket's, and destroys `captured`. Room is made by the graph that was used least recently;
 * when the device has no memory for one more, by all. A graph of pass `running` or a later one may still run on
 * `stream`, which is then waited for. Errors: STATUS_NO_MEMORY, STATUS_DEVICE_LOST, STATUS_INTERNAL. */
MUST_CHECK enum status cuda_graphs_keep(struct cuda_graphs *graphs, struct cuda_bucket *bucket, cudaGraph_t captured,
                                        cudaStream_t stream, uint64_t running, struct err *err);

/* Destroys all graphs; none may be running. */
void cuda_graphs_drop(struct cuda_graphs *graphs);

#endif
