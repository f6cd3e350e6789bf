/* What a pass is made of: which products and kernels stand for an op of the forward pass, and on which memory.
 *
 * x is the residual stream: attention and the intermediate layer read it, and the two products that end in a residual
 * add to it in place, bias and all, before it is normalised, also in place. Of a CLS-pooled model's last layer only the
 * first token of each row is needed: these are gathered into `first`, and the layer runs on them instead of on all
 * tokens, but for keys and values.
 *
 * Each of these enqueues on the stream's compute queue, for the pass and bucket that the stream has begun, whether that
 * queue is captured or runs. Errors, of all: STATUS_NO_MEMORY, STATUS_DEVICE_LOST, STATUS_INTERNAL. */
#ifndef ENGINE_CUDA_OPS_H
#define ENGINE_CUDA_OPS_H

#include "engine/cuda_backend.h"

/* Plans every op of a new bucket. Times products, so it is not called in a capture, and overwrites the pass's memory.
 */
MUST_CHECK enum status cuda_ops_plan(struct backend_workspace *stream, struct err *err);

/* The op of that name. */
MUST_CHECK enum status cuda_ops_embed(struct backend_workspace *stream, struct err *err);
MUST_CHECK enum status cuda_ops_linear(struct backend_workspace *stream, uint32_t layer, enum linear_site site,
                                       struct err *err);
MUST_CHECK enum status cuda_ops_attention(struct backend_workspace *stream, uint32_t layer, struct err *err);
MUST_CHECK enum status cuda_ops_norm(struct backend_workspace *stream, uint32_t layer, enum norm_site site,
                                     struct err *err);
/* The vectors, into the slot of the pass. */
MUST_CHECK enum status cuda_ops_pool(struct backend_workspace *stream, struct err *err);

#endif
