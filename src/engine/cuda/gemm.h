/* Matrix products on the GPU: to [rows, outputs] = from [rows, inputs] x weight [outputs, inputs]^T, all row-major, of
 * one type, added up in f32; and what follows is computed in the same pass where cuBLASLt can (enum gemm_after).
 *
 * A struct gemm is what one device knows of products: which algorithm is the fastest of those that cuBLASLt's
 * heuristics offer, for each shape and number of rows. It is found by timing, about 2 ms of it, when a number of rows
 * is first prepared; nothing is kept for later processes. A struct gemm_runner is one stream's handle, workspace and
 * plans beside it. Where cuBLASLt has no algorithm, the plain cublasGemmEx and kernel_activate do it in two steps.
 *
 * Numbers: of one shape, for one number of rows, on one device, the same algorithm runs for the life of the struct
 * gemm: the same operands give the same bits, in every runner. With another number of rows, on another device or in
 * another process a row may be added up in another order. Two such sums differ by at most inputs * 2^-22 * sum |from *
 * weight| (far less as a rule), to which rounding to the type adds one unit in the last place. Algorithms that would
 * keep parts of a sum in f16 or bf16 are not used. GELU is the tanh form in cuBLASLt, which is within 5e-4 of the erf
 * form; where that matters take GEMM_ALONE and kernel_activate. */
#ifndef ENGINE_CUDA_GEMM_H
#define ENGINE_CUDA_GEMM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/cuda/api.h"
#include "kernels/kernels.h"

struct gemm;
struct gemm_runner;
struct gemm_plan; /* a shape and a number of rows with its algorithm, in one runner */

/* What follows the product in the same step. */
enum gemm_after {
    GEMM_ALONE,         /* nothing */
    GEMM_BIAS,          /* + bias */
    GEMM_BIAS_GELU,     /* gelu(x + bias), tanh form */
    GEMM_BIAS_RELU,     /* relu(x + bias) */
    GEMM_BIAS_RESIDUAL, /* + bias + residual */
};

struct gemm_shape {
    uint32_t outputs; /* outputs and inputs: multiples of 8 */
    uint32_t inputs;
    enum kernel_type type;
    enum gemm_after after;
};

/* Device memory, each aligned to GEMM_ALIGNMENT as cudaMalloc's is, a bias to GEMM_BIAS_ALIGNMENT. */
enum { GEMM_ALIGNMENT = 256, GEMM_BIAS_ALIGNMENT = 16 };
struct gemm_operands {
    const void *from;     /* [rows, inputs] type */
    const void *weight;   /* [outputs, inputs] type */
    const void *bias;     /* [outputs] type; unused by GEMM_ALONE */
    const void *residual; /* [rows, outputs] type; used by GEMM_BIAS_RESIDUAL; may be `to` */
    void *to;             /* [rows, outputs] type, written */
    const uint32_t
        *count; /* how many rows matter, in device memory (kernel_ragged.counts); read by the fallback only */
};

struct gemm_options {
    const struct cuda_api *api;
    const struct cuda_device *device; /* read by gemm_open alone */
    uint32_t candidates; /* how many algorithms are timed for a shape; 0: 16, 1: the first is taken untimed */
};

/* Knows nothing yet.
 * Owns: the caller ends it with gemm_close, after its runners; `api` outlives it. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status gemm_open(const struct gemm_options *options, struct gemm **out, struct err *err);

/* Frees what is known of algorithms. NULL is allowed. */
void gemm_close(struct gemm *gemm);

/* Bytes of device memory that a runner takes for its workspace, for the planner. */
size_t gemm_workspace_bytes(const struct cuda_device *device);

/* Makes what one stream needs. The device must be current, here and in all that follows.
 * Owns: the caller ends it with gemm_runner_close, when the stream has finished its work; `queue` is copied.
 * Errors: STATUS_NO_MEMORY, STATUS_DEVICE_LOST, STATUS_INTERNAL. Thread: one thread at a time; runners of one gemm side
 * by side. */
MUST_CHECK enum status gemm_runner_open(struct gemm *gemm, const struct kernel_queue *queue, struct gemm_runner **out,
                                        struct err *err);

/* Frees plans and workspace. NULL is allowed. */
void gemm_runner_close(struct gemm_runner *runner);

/* Finds the plan of a shape for exactly `rows` rows, and makes it when there is none. Making it may time algorithms:
 * it then runs the product on `operands` some tens of times, overwrites `to`, and waits for the stream; so it must not
 * be called between cudaStreamBeginCapture and EndCapture. A plan that exists costs one look-up.
 * Owns: the runner keeps the plan. Errors: STATUS_NO_MEMORY, STATUS_DEVICE_LOST, STATUS_UNSUPPORTED (no way to compute
 * it), STATUS_INTERNAL. */
MUST_CHECK enum status gemm_prepare(struct gemm_runner *runner, const struct gemm_shape *shape, uint32_t rows,
                                    const struct gemm_operands *operands, const struct gemm_plan **out,
                                    struct err *err);

/* Enqueues the product on the runner's stream; may be captured in a graph (which then holds these operands and the
 * runner's workspace, so the runner must outlive it). Errors: STATUS_DEVICE_LOST, STATUS_NO_MEMORY, STATUS_INTERNAL. */
MUST_CHECK enum status gemm_run(struct gemm_runner *runner, const struct gemm_plan *plan,
                                const struct gemm_operands *operands, struct err *err);

#endif
