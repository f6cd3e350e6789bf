/* A GPU that only takes time: a table of CUDA calls (engine/cuda/api.h) that computes nothing. Linked into the shipped
 * commands, it shows what the host costs beside a fast device, on a machine without one (tools/bench/host_cost.py).
 *
 * A pass takes PACED_US microseconds and PACED_TOKEN_NS nanoseconds for each token, by default as long as MiniLM took
 * on an H100 (docs/speed.md). Copies take their time, too, beside the passes. Vectors are whatever the pinned memory
 * holds, which is finite numbers that never change. What a GPU does by itself costs no time of a processor here either:
 * nothing is copied, and a query for an event sleeps until the event is there, because polling would take the core that
 * other threads need. The calls come from one thread at a time. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "engine/cuda/api.h"
#include "kernels/kernels.h"

#define COPY_NS 8000.0     /* of any copy */
#define BYTE_NS (1 / 50.0) /* of a byte in it: 50 GB/s */

/* A stream, or an event: its work ends, or it is there, at that time. */
struct point {
    uint64_t at_ns;
};

static struct {
    double pass_ns, token_ns;
    struct {
        char *from, *end;
    } pinned[16];
    size_t pinned_count;
    const void *block; /* where the last pass was copied to */
    uint32_t tokens;   /* of that pass */
} paced;

static double number_of(const char *name, double fallback)
{
    const char *text = getenv(name);
    return text ? strtod(text, NULL) : fallback;
}

static void work(cudaStream_t stream, double ns)
{
    struct point *point = (struct point *)(void *)stream;
    uint64_t now = clock_now_ns();
    point->at_ns = (point->at_ns > now ? point->at_ns : now) + (uint64_t)ns;
}

static void await(uint64_t at_ns)
{
    const struct timespec when = {(time_t)(at_ns / NS_PER_S), (long)(at_ns % NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR) {}
}

static cudaError_t make(void *out, size_t bytes)
{
    void *made = calloc(1, bytes);
    memcpy(out, &made, sizeof made);
    return made ? cudaSuccess : cudaErrorMemoryAllocation;
}

static cudaError_t end(void *made)
{
    free(made);
    return cudaSuccess;
}

/* --- the runtime --- */

static cudaError_t count_devices(int *count)
{
    *count = 1;
    return cudaSuccess;
}

static cudaError_t describe(struct cudaDeviceProp *out, int device)
{
    (void)device;
    *out =
        (struct cudaDeviceProp){.major = 9, .minor = 0, .multiProcessorCount = 132, .totalGlobalMem = (size_t)80 << 30};
    snprintf(out->name, sizeof out->name, "paced, %.0f us + %.1f ns a token", paced.pass_ns / 1000, paced.token_ns);
    return cudaSuccess;
}

static cudaError_t select_device(int device)
{
    return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

static cudaError_t driver(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

static cudaError_t no_error(void)
{
    return cudaSuccess;
}

static const char *name_error(cudaError_t error)
{
    return error == cudaSuccess ? "cudaSuccess" : "an error";
}

static cudaError_t memory_info(size_t *free_bytes, size_t *all_bytes)
{
    *free_bytes = *all_bytes = (size_t)80 << 30;
    return cudaSuccess;
}

static cudaError_t allocate(void **out, size_t bytes)
{
    enum { ALIGNMENT = 256 };
    *out =
        aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT); /* never touched, so it costs nothing */
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}

/* Numbers as in the vectors of a model, none of them 0. */
static cudaError_t allocate_pinned(void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    float *numbers = malloc(bytes);
    uint32_t seed = 1;
    if (!numbers || paced.pinned_count == sizeof paced.pinned / sizeof paced.pinned[0]) { abort(); }
    for (size_t i = 0; i < bytes / sizeof *numbers; i++) {
        seed = seed * 1664525 + 1013904223;
        numbers[i] = sinf((float)(seed >> 8) * 0x1p-20f) * 0.7f + 1e-9f;
    }
    paced.pinned[paced.pinned_count].from = (char *)numbers;
    paced.pinned[paced.pinned_count++].end = (char *)numbers + bytes;
    *out = numbers;
    return cudaSuccess;
}

static cudaError_t free_pinned(void *memory)
{
    for (size_t i = 0; i < paced.pinned_count; i++) {
        if (paced.pinned[i].from == memory) { paced.pinned[i] = paced.pinned[--paced.pinned_count]; }
    }
    return end(memory);
}

/* A pass is copied from pinned memory to the device, and there to its place, from where it is computed. */
static cudaError_t copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    if (kind == cudaMemcpyDeviceToDevice) {
        work(stream, from == paced.block ? paced.pass_ns + paced.token_ns * paced.tokens : 0);
        return cudaSuccess;
    }
    for (size_t i = 0; i < paced.pinned_count && kind == cudaMemcpyHostToDevice; i++) {
        if ((const char *)from < paced.pinned[i].from || (const char *)from >= paced.pinned[i].end) { continue; }
        paced.block = to;
        paced.tokens = ((const uint32_t *)from)[KERNEL_COUNT_TOKENS];
    }
    work(stream, COPY_NS + BYTE_NS * (double)bytes);
    return cudaSuccess;
}

static cudaError_t set(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    (void)memory, (void)value, (void)bytes, (void)stream;
    return cudaSuccess;
}

static cudaError_t make_stream(cudaStream_t *out, unsigned flags)
{
    (void)flags;
    return make(out, sizeof(struct point));
}

static cudaError_t end_stream(cudaStream_t stream)
{
    return end(stream);
}

static cudaError_t await_stream(cudaStream_t stream)
{
    await(((struct point *)(void *)stream)->at_ns);
    return cudaSuccess;
}

static cudaError_t order(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)flags;
    struct point *later = (struct point *)(void *)stream, *earlier = (struct point *)(void *)event;
    later->at_ns = earlier->at_ns > later->at_ns ? earlier->at_ns : later->at_ns;
    return cudaSuccess;
}

static cudaError_t begin_capture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    (void)stream, (void)mode;
    return cudaSuccess;
}

static cudaError_t end_capture(cudaStream_t stream, cudaGraph_t *out)
{
    (void)stream;
    return make(out, 1);
}

static cudaError_t make_event(cudaEvent_t *out, unsigned flags)
{
    (void)flags;
    return make(out, sizeof(struct point));
}

static cudaError_t end_event(cudaEvent_t event)
{
    return end(event);
}

static cudaError_t record(cudaEvent_t event, cudaStream_t stream)
{
    *(struct point *)(void *)event = *(struct point *)(void *)stream;
    return cudaSuccess;
}

static cudaError_t await_event(cudaEvent_t event)
{
    await(((struct point *)(void *)event)->at_ns);
    return cudaSuccess;
}

static cudaError_t elapsed(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    (void)from, (void)to;
    *ms = 1;
    return cudaSuccess;
}

static cudaError_t make_graph(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    (void)graph, (void)flags;
    return make(out, 1);
}

static cudaError_t launch_graph(cudaGraphExec_t graph, cudaStream_t stream)
{
    (void)graph, (void)stream;
    return cudaSuccess;
}

static cudaError_t end_runnable(cudaGraphExec_t graph)
{
    return end(graph);
}

static cudaError_t end_graph(cudaGraph_t graph)
{
    return end(graph);
}

static cudaError_t launch(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                          cudaStream_t stream)
{
    (void)kernel, (void)grid, (void)block, (void)arguments, (void)shared, (void)stream;
    return cudaSuccess;
}

/* --- cuBLASLt --- */

static cublasStatus_t open_blas(cublasLtHandle_t *out)
{
    return make(out, 1) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

static cublasStatus_t close_blas(cublasLtHandle_t handle)
{
    end(handle);
    return CUBLAS_STATUS_SUCCESS;
}

static size_t blas_version(void)
{
    return CUBLAS_VER_MAJOR * 10000;
}

static const char *name_status(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "an error";
}

static cublasStatus_t make_product(cublasLtMatmulDesc_t *out, cublasComputeType_t type, cudaDataType_t scale)
{
    (void)type, (void)scale;
    return make(out, 1) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

static cublasStatus_t set_product(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute,
                                  const void *value, size_t bytes)
{
    (void)product, (void)attribute, (void)value, (void)bytes;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t end_product(cublasLtMatmulDesc_t product)
{
    end(product);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t make_matrix(cublasLtMatrixLayout_t *out, cudaDataType_t type, uint64_t rows, uint64_t columns,
                                  int64_t stride)
{
    (void)type, (void)rows, (void)columns, (void)stride;
    return make(out, 1) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

static cublasStatus_t end_matrix(cublasLtMatrixLayout_t matrix)
{
    end(matrix);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t make_wishes(cublasLtMatmulPreference_t *out)
{
    return make(out, 1) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

static cublasStatus_t set_wish(cublasLtMatmulPreference_t wishes, cublasLtMatmulPreferenceAttributes_t attribute,
                               const void *value, size_t bytes)
{
    (void)wishes, (void)attribute, (void)value, (void)bytes;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t end_wishes(cublasLtMatmulPreference_t wishes)
{
    end(wishes);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t offer(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,
                            cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                            cublasLtMatmulPreference_t wishes, int most, cublasLtMatmulHeuristicResult_t *out,
                            int *count)
{
    (void)handle, (void)product, (void)a, (void)b, (void)c, (void)d, (void)wishes, (void)most;
    out[0] = (cublasLtMatmulHeuristicResult_t){.state = CUBLAS_STATUS_SUCCESS};
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t multiply(cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void *alpha, const void *a,
                               cublasLtMatrixLayout_t a_of, const void *b, cublasLtMatrixLayout_t b_of,
                               const void *beta, const void *c, cublasLtMatrixLayout_t c_of, void *d,
                               cublasLtMatrixLayout_t d_of, const cublasLtMatmulAlgo_t *algorithm, void *room,
                               size_t room_bytes, cudaStream_t stream)
{
    (void)handle, (void)product, (void)alpha, (void)a, (void)a_of, (void)b, (void)b_of, (void)beta, (void)c;
    (void)c_of, (void)d, (void)d_of, (void)algorithm, (void)room, (void)room_bytes, (void)stream;
    return CUBLAS_STATUS_SUCCESS;
}

static const struct cuda_api table = {
    .cudaGetDeviceCount = count_devices,
    .cudaGetDeviceProperties = describe,
    .cudaSetDevice = select_device,
    .cudaDriverGetVersion = driver,
    .cudaGetLastError = no_error,
    .cudaGetErrorName = name_error,
    .cudaGetErrorString = name_error,
    .cudaMemGetInfo = memory_info,
    .cudaMalloc = allocate,
    .cudaFree = end,
    .cudaHostAlloc = allocate_pinned,
    .cudaFreeHost = free_pinned,
    .cudaMemcpyAsync = copy,
    .cudaMemsetAsync = set,
    .cudaStreamCreateWithFlags = make_stream,
    .cudaStreamDestroy = end_stream,
    .cudaStreamSynchronize = await_stream,
    .cudaStreamWaitEvent = order,
    .cudaStreamBeginCapture = begin_capture,
    .cudaStreamEndCapture = end_capture,
    .cudaEventCreateWithFlags = make_event,
    .cudaEventDestroy = end_event,
    .cudaEventRecord = record,
    .cudaEventSynchronize = await_event,
    .cudaEventQuery = await_event,
    .cudaEventElapsedTime = elapsed,
    .cudaGraphInstantiate = make_graph,
    .cudaGraphLaunch = launch_graph,
    .cudaGraphExecDestroy = end_runnable,
    .cudaGraphDestroy = end_graph,
    .cudaLaunchKernel = launch,
    .cublasLtCreate = open_blas,
    .cublasLtDestroy = close_blas,
    .cublasLtGetVersion = blas_version,
    .cublasLtGetStatusName = name_status,
    .cublasLtMatmulDescCreate = make_product,
    .cublasLtMatmulDescSetAttribute = set_product,
    .cublasLtMatmulDescDestroy = end_product,
    .cublasLtMatrixLayoutCreate = make_matrix,
    .cublasLtMatrixLayoutDestroy = end_matrix,
    .cublasLtMatmulPreferenceCreate = make_wishes,
    .cublasLtMatmulPreferenceSetAttribute = set_wish,
    .cublasLtMatmulPreferenceDestroy = end_wishes,
    .cublasLtMatmulAlgoGetHeuristic = offer,
    .cublasLtMatmul = multiply,
};

enum status cuda_api_real(const struct cuda_api **out, struct err *err)
{
    (void)err;
    paced.pass_ns = 1000 * number_of("PACED_US", 140);
    paced.token_ns = number_of("PACED_TOKEN_NS", 57.7);
    *out = &table;
    return STATUS_OK;
}
