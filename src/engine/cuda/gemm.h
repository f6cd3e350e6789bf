/* Matrix products on the GPU: to [rows, outputs] = from [rows, inputs] x weight [outputs, inputs]^T, all row-major, of
 * one type, summed in f32. An epilogue runs in the same step where cuBLASLt offers it.
 *
 * A struct cuda_gemm belongs to one device and remembers, for each shape and number of rows, the fastest algorithm that
 * cuBLASLt's heuristics offer. The first cuda_gemm_prepare of a size times them, in about 2 ms; nothing outlives the
 * process. A struct cuda_gemm_runner holds one workspace's handle, scratch memory and plans. If cuBLASLt has no
 * algorithm, cublasGemmEx and kernel_activate compute the same in two steps.
 *
 * Numbers: for one shape and number of rows on one device the same algorithm runs as long as the struct cuda_gemm
 * lives, so the same operands give the same bits in every runner. Another number of rows, another device or another
 * process may sum in another order. Two such sums differ by at most inputs * 2^-22 * sum |from * weight| (usually far
 * less) plus one unit in the last place from rounding to the type. Algorithms that keep partial sums in f16 or bf16 are
 * never used. cuBLASLt's GELU is the tanh form, within 5e-4 of the erf form; if the difference matters, use
 * CUDA_EPILOGUE_NONE and kernel_activate. */
#ifndef ENGINE_CUDA_GEMM_H
#define ENGINE_CUDA_GEMM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/cuda/api.h"
#include "kernels/kernels.h"

struct cuda_gemm;
struct cuda_gemm_runner;
struct cuda_gemm_plan; /* one runner's algorithm for a shape and a number of rows */

/* The operation that cuBLASLt applies to the product, in the same step. */
enum cuda_epilogue {
    CUDA_EPILOGUE_NONE,          /* nothing */
    CUDA_EPILOGUE_BIAS,          /* + bias */
    CUDA_EPILOGUE_BIAS_GELU,     /* gelu(x + bias), tanh form */
    CUDA_EPILOGUE_BIAS_RELU,     /* relu(x + bias) */
    CUDA_EPILOGUE_BIAS_RESIDUAL, /* + bias + residual */
};

struct cuda_gemm_shape {
    uint32_t outputs; /* outputs and inputs: multiples of 8 */
    uint32_t inputs;
    enum kernel_type type;
    enum cuda_epilogue epilogue;
};

/* Device memory. Matrices are aligned to CUDA_GEMM_ALIGNMENT (as cudaMalloc aligns), the bias to
 * CUDA_GEMM_BIAS_ALIGNMENT. */
enum { CUDA_GEMM_ALIGNMENT = 256, CUDA_GEMM_BIAS_ALIGNMENT = 16 };
struct cuda_gemm_operands {
    const void *from;     /* [rows, inputs] type */
    const void *weight;   /* [outputs, inputs] type */
    const void *bias;     /* [outputs] type; unused by CUDA_EPILOGUE_NONE */
    const void *residual; /* [rows, outputs] type; used by CUDA_EPILOGUE_BIAS_RESIDUAL; may be `to` */
    void *to;             /* [rows, outputs] type, written */
    const uint32_t
        *count; /* rows in use, in device memory (kernel_ragged.counts); only the two-step fallback reads it */
};

struct cuda_gemm_options {
    const struct cuda_api *api;
    const struct cuda_device *device; /* only cuda_gemm_open reads it */
    uint32_t candidates;              /* algorithms to time for a shape; 0: 16; 1: the first one, untimed */
};

/* Opens the products of one device; nothing is timed yet. Owns: the caller ends it with cuda_gemm_close, after its
 * runners; `api` outlives it. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status cuda_gemm_open(const struct cuda_gemm_options *options, struct cuda_gemm **out, struct err *err);

/* NULL is allowed. */
void cuda_gemm_close(struct cuda_gemm *gemm);

/* Bytes of device memory for a runner's scratch; the memory plan counts them. */
size_t cuda_gemm_workspace_bytes(const struct cuda_device *device);

/* Makes one workspace's runner. The device must be current, here and in every call below. Owns: the caller ends it
 * with cuda_gemm_runner_close once the CUDA stream is idle; `queue` is copied. Errors: STATUS_NO_MEMORY,
 * STATUS_DEVICE_LOST, STATUS_INTERNAL. Thread: one at a time; runners of one struct cuda_gemm run side by side. */
MUST_CHECK enum status cuda_gemm_runner_open(struct cuda_gemm *gemm, const struct kernel_queue *queue,
                                             struct cuda_gemm_runner **out, struct err *err);

/* NULL is allowed. */
void cuda_gemm_runner_close(struct cuda_gemm_runner *runner);

/* Finds the plan of a shape for exactly `rows` rows, or makes it. Making it may time algorithms: that runs the product
 * on `operands` some tens of times, overwrites `to` and waits for the CUDA stream, so never call it during a capture.
 * Finding a plan costs one binary search. Owns: the runner keeps the plan. Errors: STATUS_NO_MEMORY,
 * STATUS_DEVICE_LOST, STATUS_UNSUPPORTED (nothing can compute it), STATUS_INTERNAL. */
MUST_CHECK enum status cuda_gemm_prepare(struct cuda_gemm_runner *runner, const struct cuda_gemm_shape *shape,
                                         uint32_t rows, const struct cuda_gemm_operands *operands,
                                         const struct cuda_gemm_plan **out, struct err *err);

/* Enqueues the product on the runner's CUDA stream. A capture records these operands and the runner's scratch, so the
 * runner must outlive the graph. Errors: STATUS_DEVICE_LOST, STATUS_NO_MEMORY, STATUS_INTERNAL. */
MUST_CHECK enum status cuda_gemm_run(struct cuda_gemm_runner *runner, const struct cuda_gemm_plan *plan,
                                     const struct cuda_gemm_operands *operands, struct err *err);

#endif
