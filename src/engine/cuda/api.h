/* Every CUDA, cuBLASLt and cuBLAS call of the engine, as one table of function pointers.
 *
 * The real table is runtime.c, the only file that links the CUDA runtime. It opens the libraries on first use, so that
 * one binary starts on machines without them. The tests use a table that works in plain memory instead
 * (tests/support/cuda_host.h); the engine cannot tell the difference. A field has the name and type of the call that it
 * holds; NVIDIA's manuals say what the call does. */
#ifndef ENGINE_CUDA_API_H
#define ENGINE_CUDA_API_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Linked in. */
#define CUDA_RUNTIME_CALLS(CALL)                                                                                       \
    CALL(cudaGetDeviceCount)                                                                                           \
    CALL(cudaGetDeviceProperties)                                                                                      \
    CALL(cudaSetDevice)                                                                                                \
    CALL(cudaDriverGetVersion)                                                                                         \
    CALL(cudaGetLastError)                                                                                             \
    CALL(cudaGetErrorName)                                                                                             \
    CALL(cudaGetErrorString)                                                                                           \
    CALL(cudaMemGetInfo)                                                                                               \
    CALL(cudaMalloc)                                                                                                   \
    CALL(cudaFree)                                                                                                     \
    CALL(cudaHostAlloc)                                                                                                \
    CALL(cudaFreeHost)                                                                                                 \
    CALL(cudaMemcpyAsync)                                                                                              \
    CALL(cudaMemsetAsync)                                                                                              \
    CALL(cudaStreamCreateWithFlags)                                                                                    \
    CALL(cudaStreamDestroy)                                                                                            \
    CALL(cudaStreamSynchronize)                                                                                        \
    CALL(cudaStreamWaitEvent)                                                                                          \
    CALL(cudaStreamBeginCapture)                                                                                       \
    CALL(cudaStreamEndCapture)                                                                                         \
    CALL(cudaEventCreateWithFlags)                                                                                     \
    CALL(cudaEventDestroy)                                                                                             \
    CALL(cudaEventRecord)                                                                                              \
    CALL(cudaEventSynchronize)                                                                                         \
    CALL(cudaEventQuery)                                                                                               \
    CALL(cudaEventElapsedTime)                                                                                         \
    CALL(cudaGraphInstantiate)                                                                                         \
    CALL(cudaGraphLaunch)                                                                                              \
    CALL(cudaGraphExecDestroy)                                                                                         \
    CALL(cudaGraphDestroy)                                                                                             \
    CALL(cudaLaunchKernel)

/* In libcublasLt. */
#define CUDA_BLASLT_CALLS(CALL)                                                                                        \
    CALL(cublasLtCreate)                                                                                               \
    CALL(cublasLtDestroy)                                                                                              \
    CALL(cublasLtGetVersion)                                                                                           \
    CALL(cublasLtGetStatusName)                                                                                        \
    CALL(cublasLtMatmulDescCreate)                                                                                     \
    CALL(cublasLtMatmulDescSetAttribute)                                                                               \
    CALL(cublasLtMatmulDescDestroy)                                                                                    \
    CALL(cublasLtMatrixLayoutCreate)                                                                                   \
    CALL(cublasLtMatrixLayoutDestroy)                                                                                  \
    CALL(cublasLtMatmulPreferenceCreate)                                                                               \
    CALL(cublasLtMatmulPreferenceSetAttribute)                                                                         \
    CALL(cublasLtMatmulPreferenceDestroy)                                                                              \
    CALL(cublasLtMatmulAlgoGetHeuristic)                                                                               \
    CALL(cublasLtMatmul)

/* In libcublas, which is optional: without it these fields are all NULL. */
#define CUDA_BLAS_CALLS(CALL)                                                                                          \
    CALL(cublasCreate_v2)                                                                                              \
    CALL(cublasDestroy_v2)                                                                                             \
    CALL(cublasSetStream_v2)                                                                                           \
    CALL(cublasSetWorkspace_v2)                                                                                        \
    CALL(cublasSetMathMode)                                                                                            \
    CALL(cublasGemmEx)

struct cuda_api {
#define CUDA_API_FIELD(call) __typeof__(&call) call;
    CUDA_RUNTIME_CALLS(CUDA_API_FIELD)
    CUDA_BLASLT_CALLS(CUDA_API_FIELD)
    CUDA_BLAS_CALLS(CUDA_API_FIELD)
#undef CUDA_API_FIELD
};

/* The lowest compute capability that the kernels are built for (10 * major + minor). */
enum { CUDA_LEAST_CAPABILITY = 80 };

/* A GPU. */
struct cuda_device {
    int number;
    char name[256];
    uint32_t capability;      /* 10 * major + minor, e.g. 90 */
    uint32_t multiprocessors; /* at least this many blocks run at once */
    size_t memory_bytes;      /* in total */
    int driver;               /* the CUDA version of the driver, 1000 * major + 10 * minor */
    size_t cublaslt;          /* version of the library found */
};

/* This machine's table; the same one at every call, as long as the process lives. Errors: STATUS_UNSUPPORTED with the
 * reason: no NVIDIA driver, a driver too old, no GPU, no libcublasLt. Thread: any. */
MUST_CHECK enum status cuda_api_real(const struct cuda_api **out, struct err *err);

/* Opens a library from the first folder where that works. Folders end with a slash; "" means the loader's search path.
 * The library stays open, because CUDA's libraries do not survive dlclose. On failure returns NULL with the loader's
 * reason in `err`: the fault in a file that it found, else that it found none. Errors: STATUS_UNSUPPORTED. Thread: any.
 */
void *cuda_library_open(const char *file, const char *const folders[], size_t count, struct err *err);

/* Counts GPUs; at least 1. Errors: STATUS_UNSUPPORTED (no GPU or no driver), STATUS_DEVICE_LOST. */
MUST_CHECK enum status cuda_device_count(const struct cuda_api *api, uint32_t *out, struct err *err);

/* Describes one GPU. Errors: STATUS_BAD_INPUT (no such number), STATUS_UNSUPPORTED (too old for the kernels),
 * STATUS_DEVICE_LOST. */
MUST_CHECK enum status cuda_device_query(const struct cuda_api *api, int number, struct cuda_device *out,
                                         struct err *err);

/* Translates a call's result, with `what` in the message ("copying a batch"). Errors: STATUS_NO_MEMORY;
 * STATUS_DEVICE_LOST, after which every call on the device fails; STATUS_UNSUPPORTED (no driver, no GPU, no code for
 * this GPU); STATUS_INTERNAL for the rest: errors in our calls. */
MUST_CHECK enum status cuda_check(const struct cuda_api *api, cudaError_t answer, const char *what, struct err *err);

/* The same for cuBLAS, which only says "execution failed", so the runtime is asked whether the device is lost. */
MUST_CHECK enum status cuda_blas_check(const struct cuda_api *api, cublasStatus_t answer, const char *what,
                                       struct err *err);

#endif
