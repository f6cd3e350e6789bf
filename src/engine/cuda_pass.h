/* A pass on the device, from the batch's arrival to its vectors: the ops of struct backend_ops.
 *
 * They only enqueue. From the second pass of a size on, everything between the batch's arrival and pooling is one graph
 * (cuda_graphs.h): the ops of the second pass are captured, those of later ones have nothing to do until pool launches
 * the graph. A stream on which a pass cannot be captured, or its graph not made or launched, runs that pass and all
 * later ones directly; it is logged once (graphs_given_up) and counted. What is enqueued for an op is cuda_ops.h's. */
#ifndef ENGINE_CUDA_PASS_H
#define ENGINE_CUDA_PASS_H

#include "engine/cuda_backend.h"

/* Makes the backend's GPU this thread's current one. Errors: those of cuda_check. */
MUST_CHECK enum status cuda_select(const struct cuda_backend *cuda, struct err *err);

/* The ops of struct backend_ops. Errors: those of cuda_ops.h; once the device is lost, STATUS_DEVICE_LOST for all. */
enum status cuda_pass_embed(struct backend_workspace *stream, const struct pass *pass, struct err *err);
enum status cuda_pass_linear(struct backend_workspace *stream, uint32_t layer, enum linear_site site, struct err *err);
enum status cuda_pass_attention(struct backend_workspace *stream, uint32_t layer, struct err *err);
enum status cuda_pass_norm(struct backend_workspace *stream, uint32_t layer, enum norm_site site, struct err *err);
enum status cuda_pass_pool(struct backend_workspace *stream, struct err *err);
enum status cuda_pass_submit(struct backend_workspace *stream, struct err *err);
enum status cuda_pass_wait(struct backend_workspace *stream, struct err *err);

/* Ends whatever is under way, for a stream that is to be closed. */
void cuda_pass_forget(struct backend_workspace *stream);

#endif
