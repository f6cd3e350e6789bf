/* Matrix products on the GPU: to [rows, outputs] = from [rows, inputs] x weight [outputs, inputs]^T, all row-major, of
 * one type, added up in f32; and what follows is computed in the same pass where cuBLASLt can (enum cuda_epilogue).
 *
 * A struct cuda_gemm is what one device knows of products: which algorithm is the fastest of those that cuBLASLt's
 * heuristics offer, for each shape and number of rows. It is found by timing, about 2 ms of it, when a number of rows
 * is first prepared; nothing is kept for later processes. A struct cuda_gemm_runner is one stream's handle, workspace
 * and plans beside it. Where cuBLASLt has no algorithm, the plain cublasGemmEx and kernel_activate do it in two steps.
 *
 * Numbers: of one shape, for one number of rows, on one device, the same algorithm runs for the life of the struct
 * gemm: the same operands give the same bits, in every runner. With another number of rows, on another device or in
 * another process a row may be added up in another order. Two such sums differ by at most inputs * 2^-22 * sum |from *
 * weight| (far less as a rule), to which rounding to the type adds one unit in the last place. Algorithms that would
 * keep parts of a sum in f16 or bf16 are not used. GELU is the tanh form in cuBLASLt, which is within 5e-4 of the erf
 * form; where that matters take CUDA_EPILOGUE_NONE and kernel_activate. */
#ifndef ENGINE_CUDA_GEMM_H
#define ENGINE_CUDA_GEMM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/cuda/api.h"
#include "kernels/kernels.h"

struct cuda_gemm;
struct cuda_gemm_runner;
struct cuda_gemm_plan; /* a shape and a number of rows with its algorithm, in one runner */

/* What follows the product in the same step. */
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

/* Device memory, each aligned to CUDA_GEMM_ALIGNMENT as cudaMalloc's is, a bias to CUDA_GEMM_BIAS_ALIGNMENT. */
enum { CUDA_GEMM_ALIGNMENT = 256, CUDA_GEMM_BIAS_ALIGNMENT = 16 };
struct cuda_gemm_operands {
    const void *from;     /* [rows, inputs] type */
    const void *weight;   /* [outputs, inputs] type */
    const void *bias;     /* [outputs] type; unused by CUDA_EPILOGUE_NONE */
    const void *residual; /* [rows, outputs] type; used by CUDA_EPILOGUE_BIAS_RESIDUAL; may be `to` */
    void *to;             /* [rows, outputs] type, written */
    const uint32_t
        *count; /* how many rows matter, in device memory (kernel_ragged.counts); read by the fallback only */
};

struct cuda_gemm_options {
    const struct cuda_api *api;
    const struct cuda_device *device; /* read by cuda_gemm_open alone */
    uint32_t candidates; /* how many algorithms are timed for a shape; 0: 16, 1: the first is taken untimed */
};

/* Knows nothing yet.
 * Owns: the caller ends it with cuda_gemm_close, after its runners; `api` outlives it. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status cuda_gemm_open(const struct cuda_gemm_options *options, struct cuda_gemm **out, struct err *err);

/* Frees what is known of algorithms. NULL is allowed. */
void cuda_gemm_close(struct cuda_gemm *gemm);

/* Bytes of device memory that a runner takes for its workspace, for the planner. */
size_t cuda_gemm_workspace_bytes(const struct cuda_device *device);

/* Makes what one stream needs. The device must be current, here and in all that follows.
 * Owns: the caller ends it with cuda_gemm_runner_close, when the stream has finished its work; `queue` is copied.
 * Errors: STATUS_NO_MEMORY, STATUS_DEVICE_LOST, STATUS_INTERNAL. Thread: one thread at a time; runners of one gemm side
 * by side. */
MUST_CHECK enum status cuda_gemm_runner_open(struct cuda_gemm *gemm, const struct kernel_queue *queue,
                                             struct cuda_gemm_runner **out, struct err *err);

/* Frees plans and workspace. NULL is allowed. */
void cuda_gemm_runner_close(struct cuda_gemm_runner *runner);

/* Finds the plan of a shape for exactly `rows` rows, and makes it when there is none. Making it may time algorithms:
 * it then runs the product on `operands` some tens of times, overwrites `to`, and waits for the stream; so it must not
 * be called between cudaStreamBeginCapture and EndCapture. A plan that exists costs one look-up.
 * Owns: the runner keeps the plan. Errors: STATUS_NO_MEMORY, STATUS_DEVICE_LOST, STATUS_UNSUPPORTED (no way to compute
 * it), STATUS_INTERNAL. */
MUST_CHECK enum status cuda_gemm_prepare(struct cuda_gemm_runner *runner, const struct cuda_gemm_shape *shape,
                                         uint32_t rows, const struct cuda_gemm_operands *operands,
                                         const struct cuda_gemm_plan **out, struct err *err);

/* Enqueues the product on the runner's stream; may be captured in a graph (which then holds these operands and the
 * runner's workspace, so the runner must outlive it). Errors: STATUS_DEVICE_LOST, STATUS_NO_MEMORY, STATUS_INTERNAL. */
MUST_CHECK enum status cuda_gemm_run(struct cuda_gemm_runner *runner, const struct cuda_gemm_plan *plan,
                                     const struct cuda_gemm_operands *operands, struct err *err);

#endif
