/* cuDNN's scaled dot product attention in place of kernels/attention.cu, where it is asked for (`attention: cudnn`):
 * another maker's kernels on the same rows, to compare ours with in numbers and time, and to run where they are faster.
 *
 * cuDNN makes a plan for a number of rows and a longest row; which rows these are, it reads from device memory when it
 * runs. So a plan serves every pass of up to so many rows, and may be captured in a graph. What it cannot do, kernels
 * do: nothing here is an error that ends a pass but a lost device. */
#ifndef ENGINE_CUDA_CUDNN_H
#define ENGINE_CUDA_CUDNN_H

#include "engine/cuda_api.h"
#include "engine/cuda_cudnn_api.h"
#include "kernels/kernels.h"

/* Scratch memory of all plans; one that takes more is not used. */
enum { CUDNN_WORKSPACE_BYTES = 16 << 20 };

struct cudnn_options {
    const struct cudnn_api *api;
    const struct cuda_api *cuda;
    cudaStream_t stream;
    enum kernel_type type; /* f16 or bf16 */
    uint32_t heads, head_dim;
    float scale;
    void *workspace; /* [CUDNN_WORKSPACE_BYTES] in device memory, used while a plan runs */
};

struct cudnn;
struct cudnn_plan;

/* Which rows, all in device memory, for a plan of so many rows; one of length 0 is none. Offsets count elements of the
 * matrix, whose rows are 3 * hidden and hidden wide. */
struct cudnn_rows {
    const int32_t *length;         /* [rows] */
    const int32_t *qkv_starts;     /* [rows + 1] */
    const int32_t *context_starts; /* [rows + 1] */
};

/* Whether there can be a plan at all. Errors: STATUS_UNSUPPORTED with the reason: the type, the head's width, or more
 * `tokens` in a matrix than offsets can count. */
MUST_CHECK enum status cudnn_does(enum kernel_type type, uint32_t heads, uint32_t head_dim, uint32_t tokens,
                                  struct err *err);

/* Opens cuDNN on the device that is current. Owns: the caller ends it with cudnn_close, when nothing runs any more; the
 * tables and the workspace outlive it. Errors: STATUS_NO_MEMORY, STATUS_DEVICE_LOST, STATUS_UNSUPPORTED. */
MUST_CHECK enum status cudnn_open(const struct cudnn_options *options, struct cudnn **out, struct err *err);

/* Frees the plans and closes cuDNN. NULL is allowed. */
void cudnn_close(struct cudnn *cudnn);

/* The plan for so many rows of at most `longest` tokens, made at the first call; not while the stream is captured.
 * Errors: STATUS_DEVICE_LOST; any other one says why there is no such plan, now and later. */
MUST_CHECK enum status cudnn_find(struct cudnn *cudnn, uint32_t rows, uint32_t longest, const struct cudnn_plan **out,
                                  struct err *err);

/* Enqueues attention. Shapes: qkv [tokens, 3 * hidden], read; context [tokens, hidden], written in the rows alone; both
 * in device memory, aligned to 16 bytes. Errors: STATUS_DEVICE_LOST; any other one: nothing was enqueued. */
MUST_CHECK enum status cudnn_run(struct cudnn *cudnn, const struct cudnn_plan *plan, const struct cudnn_rows *rows,
                                 const void *qkv, void *context, struct err *err);

#endif
