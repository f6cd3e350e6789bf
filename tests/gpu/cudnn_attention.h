/* cuDNN's attention on the same ragged rows: the oracle and the yardstick of kernels/attention.cu on a GPU. */
#ifndef TESTS_GPU_CUDNN_ATTENTION_H
#define TESTS_GPU_CUDNN_ATTENTION_H

#include "base/err.h"
#include "kernels/kernels.h"

struct cudnn_attention;

/* What a plan is made for. Rows lie in qkv [tokens, 3 * hidden] as kernel_attention takes it, packed or with gaps. */
struct cudnn_attention_shape {
    enum kernel_type type; /* f16 or bf16 */
    uint32_t heads, head_dim;
    uint32_t rows, longest;
    const uint32_t *start, *length; /* [rows], on the host, read while opening */
    float scale;
};

/* Makes a plan on the current device, with its scratch memory. Owns: the caller ends it with cudnn_attention_close.
 * Errors: STATUS_UNSUPPORTED with the reason: no cuDNN here, one too old, or a shape that it does not do. */
MUST_CHECK enum status cudnn_attention_open(const struct cudnn_attention_shape *shape, cudaStream_t stream,
                                            struct cudnn_attention **out, struct err *err);
void cudnn_attention_close(struct cudnn_attention *attention);

/* Enqueues it. Shapes: qkv [tokens, 3 * hidden], read; context [tokens, hidden], written; both on the device.
 * Errors: STATUS_INTERNAL. */
MUST_CHECK enum status cudnn_attention_run(struct cudnn_attention *attention, const void *qkv, void *context,
                                           struct err *err);

#endif
