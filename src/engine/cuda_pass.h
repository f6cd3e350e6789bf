/* A pass on the device: which product, kernel and graph stands for which op of the forward pass.
 *
 * x is the residual stream: attention and the intermediate layer read it, and the two products that end in a residual
 * add to it in place, bias and all, before it is normalised, also in place. Of a CLS-pooled model only the first token
 * of each row is needed behind the last attention: it is gathered into `first`, and the rest of the layer runs on rows
 * instead of tokens.
 *
 * The ops only enqueue. From the second pass of a size on, everything between the batch's arrival and pooling is one
 * graph (cuda_graphs.h): the ops of the second pass are captured, those of later ones have nothing to do until pool
 * launches the graph. */
#ifndef ENGINE_CUDA_PASS_H
#define ENGINE_CUDA_PASS_H

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
    const struct cudnn_api *cudnn; /* NULL: attention is all our own */
};

enum pass_mode { PASS_DIRECT, PASS_CAPTURE, PASS_REPLAY };

struct backend_stream {
    struct cuda_backend *cuda;
    struct kernel_queue queue;
    struct gemm_runner *runner;
    struct cuda_stream device;
    struct cuda_graphs graphs;
    struct cudnn *cudnn; /* NULL: attention is all our own */
    bool cudnn_direct;   /* its attention cannot be captured here */
    bool lost;           /* the device; nothing is asked of it any more */
    uint64_t passes;     /* begun so far */

    /* The pass that is begun, until it is submitted. */
    bool begun, capturing;
    enum pass_mode mode;
    struct cuda_bucket *bucket;
    struct cuda_slot *slot;
    struct kernel_ragged ragged;
    struct cudnn_rows cudnn_rows; /* the same for cuDNN */
};

/* Makes the backend's GPU this thread's current one. */
MUST_CHECK enum status cuda_select(const struct cuda_backend *cuda, struct err *err);

/* The ops of struct backend_ops, with their errors. */
enum status cuda_pass_embed(struct backend_stream *stream, const struct pass *pass, struct err *err);
enum status cuda_pass_linear(struct backend_stream *stream, uint32_t layer, enum linear_site site, struct err *err);
enum status cuda_pass_attention(struct backend_stream *stream, uint32_t layer, struct err *err);
enum status cuda_pass_norm(struct backend_stream *stream, uint32_t layer, enum norm_site site, struct err *err);
enum status cuda_pass_pool(struct backend_stream *stream, struct err *err);
enum status cuda_pass_submit(struct backend_stream *stream, struct err *err);
enum status cuda_pass_wait(struct backend_stream *stream, struct err *err);

/* Ends whatever is under way, for a stream that is to be closed. */
void cuda_pass_forget(struct backend_stream *stream);

#endif
