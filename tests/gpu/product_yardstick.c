/* Written against cuBLASLt's own calls and not through engine/cuda/gemm, so that a weakness there cannot lower the
 * yardstick. It multiplies random numbers, because zeros run faster than data do. */
#include "product_yardstick.h"

#include <stdio.h>
#include <stdlib.h>

#include "engine/cuda/api.h"

enum { ALGORITHMS = 16, EXIT_NOT_HERE = 77 };
static const size_t WORKSPACE_BYTES = 64 << 20;

struct yardstick {
    const struct cuda_api *api;
    cudaStream_t stream;
    cublasLtHandle_t handle;
    cudaEvent_t begin, end;
    void *workspace;
    enum precision precision;
    cudaDataType_t type;
    size_t element;
};

/* to [rows, outputs] = from [rows, inputs] x weight [outputs, inputs]^T; cuBLAS counts by columns, so the product that
 * it sees is the transposed one. */
struct product {
    uint64_t rows, outputs, inputs;
    cublasLtMatmulDesc_t what;
    cublasLtMatrixLayout_t weight_layout, from_layout, to_layout;
    void *weight, *from, *to;
    int algorithms;
    cublasLtMatmulHeuristicResult_t algorithm[ALGORITHMS];
};

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "gpu_check: products: %s: %s\n", what, why);
    exit(1);
}

static void must(const struct yardstick *y, cudaError_t answer, const char *what)
{
    if (answer != cudaSuccess) { fail(what, y->api->cudaGetErrorString(answer)); }
}

static void must_blas(const struct yardstick *y, cublasStatus_t answer, const char *what)
{
    if (answer != CUBLAS_STATUS_SUCCESS) { fail(what, y->api->cublasLtGetStatusName(answer)); }
}

/* Bits of a number in (-1, 1) or so of any of the three types: a small exponent, the rest by chance. */
static void fill(void *to, size_t count, enum precision precision)
{
    uint64_t state = 0x9e3779b97f4a7c15ull;
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        uint32_t chance = (uint32_t)(state >> 33);
        if (precision == PRECISION_F32) {
            ((uint32_t *)to)[i] = (chance & 0x807fffff) | 0x3f000000 | (chance & 1) << 31;
        } else if (precision == PRECISION_BF16) {
            ((uint16_t *)to)[i] = (uint16_t)((chance & 0x7f) | 0x3f00 | (chance >> 8 & 1) << 15);
        } else {
            ((uint16_t *)to)[i] = (uint16_t)((chance & 0x3ff) | 0x3800 | (chance >> 12 & 1) << 15);
        }
    }
}

static void *matrix(const struct yardstick *y, uint64_t rows, uint64_t columns)
{
    size_t bytes = rows * columns * y->element;
    void *host = malloc(bytes), *device;
    if (host == NULL) { fail("a matrix", "no memory"); }
    fill(host, rows * columns, y->precision);
    must(y, y->api->cudaMalloc(&device, bytes), "cudaMalloc");
    must(y, y->api->cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, y->stream), "copying a matrix");
    must(y, y->api->cudaStreamSynchronize(y->stream), "copying a matrix");
    free(host);
    return device;
}

static void open_yardstick(struct yardstick *y, const struct cuda_api *api, const struct engine_options *options)
{
    *y = (struct yardstick){.api = api, .precision = options->precision};
    if (y->precision == PRECISION_AUTO) { y->precision = PRECISION_F16; }
    y->element = y->precision == PRECISION_F32 ? 4 : 2;
    y->type = y->precision == PRECISION_F32 ? CUDA_R_32F : y->precision == PRECISION_BF16 ? CUDA_R_16BF : CUDA_R_16F;
    must(y, api->cudaSetDevice((int)options->device), "cudaSetDevice");
    must(y, api->cudaStreamCreateWithFlags(&y->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    must(y, api->cudaEventCreateWithFlags(&y->begin, cudaEventDefault), "cudaEventCreateWithFlags");
    must(y, api->cudaEventCreateWithFlags(&y->end, cudaEventDefault), "cudaEventCreateWithFlags");
    must(y, api->cudaMalloc(&y->workspace, WORKSPACE_BYTES), "cudaMalloc");
    must_blas(y, api->cublasLtCreate(&y->handle), "cublasLtCreate");
}

static void close_yardstick(struct yardstick *y)
{
    must_blas(y, y->api->cublasLtDestroy(y->handle), "cublasLtDestroy");
    must(y, y->api->cudaFree(y->workspace), "cudaFree");
    must(y, y->api->cudaEventDestroy(y->begin), "cudaEventDestroy");
    must(y, y->api->cudaEventDestroy(y->end), "cudaEventDestroy");
    must(y, y->api->cudaStreamDestroy(y->stream), "cudaStreamDestroy");
}

static void prefer(const struct yardstick *y, cublasLtMatmulPreference_t preference,
                   cublasLtMatmulPreferenceAttributes_t what, const void *value, size_t bytes)
{
    must_blas(y, y->api->cublasLtMatmulPreferenceSetAttribute(preference, what, value, bytes),
              "cublasLtMatmulPreferenceSetAttribute");
}

static void open_product(const struct yardstick *y, struct product *p)
{
    const struct cuda_api *api = y->api;
    cublasOperation_t transposed = CUBLAS_OP_T;
    cublasLtMatmulPreference_t preference;
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; /* as the engine: no sums in f16 */
    p->weight = matrix(y, p->outputs, p->inputs);
    p->from = matrix(y, p->rows, p->inputs);
    p->to = matrix(y, p->rows, p->outputs);
    must_blas(y, api->cublasLtMatmulDescCreate(&p->what, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    must_blas(y,
              api->cublasLtMatmulDescSetAttribute(p->what, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
              "cublasLtMatmulDescSetAttribute");
    must_blas(y, api->cublasLtMatrixLayoutCreate(&p->weight_layout, y->type, p->inputs, p->outputs, (int64_t)p->inputs),
              "cublasLtMatrixLayoutCreate");
    must_blas(y, api->cublasLtMatrixLayoutCreate(&p->from_layout, y->type, p->inputs, p->rows, (int64_t)p->inputs),
              "cublasLtMatrixLayoutCreate");
    must_blas(y, api->cublasLtMatrixLayoutCreate(&p->to_layout, y->type, p->outputs, p->rows, (int64_t)p->outputs),
              "cublasLtMatrixLayoutCreate");
    must_blas(y, api->cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    prefer(y, preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &WORKSPACE_BYTES, sizeof WORKSPACE_BYTES);
    prefer(y, preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions);
    must_blas(y,
              api->cublasLtMatmulAlgoGetHeuristic(y->handle, p->what, p->weight_layout, p->from_layout, p->to_layout,
                                                  p->to_layout, preference, ALGORITHMS, p->algorithm, &p->algorithms),
              "cublasLtMatmulAlgoGetHeuristic");
    must_blas(y, api->cublasLtMatmulPreferenceDestroy(preference), "cublasLtMatmulPreferenceDestroy");
}

static void close_product(const struct yardstick *y, struct product *p)
{
    const struct cuda_api *api = y->api;
    must_blas(y, api->cublasLtMatrixLayoutDestroy(p->weight_layout), "cublasLtMatrixLayoutDestroy");
    must_blas(y, api->cublasLtMatrixLayoutDestroy(p->from_layout), "cublasLtMatrixLayoutDestroy");
    must_blas(y, api->cublasLtMatrixLayoutDestroy(p->to_layout), "cublasLtMatrixLayoutDestroy");
    must_blas(y, api->cublasLtMatmulDescDestroy(p->what), "cublasLtMatmulDescDestroy");
    must(y, api->cudaFree(p->weight), "cudaFree");
    must(y, api->cudaFree(p->from), "cudaFree");
    must(y, api->cudaFree(p->to), "cudaFree");
}

/* Milliseconds of `times` runs on the device, or a negative number where the algorithm does not run after all. */
static double run(const struct yardstick *y, const struct product *p, int algorithm, uint32_t times)
{
    const float one = 1, zero = 0;
    float ms;
    must(y, y->api->cudaEventRecord(y->begin, y->stream), "cudaEventRecord");
    for (uint32_t i = 0; i < times; i++) {
        if (y->api->cublasLtMatmul(y->handle, p->what, &one, p->weight, p->weight_layout, p->from, p->from_layout,
                                   &zero, p->to, p->to_layout, p->to, p->to_layout, &p->algorithm[algorithm].algo,
                                   y->workspace, WORKSPACE_BYTES, y->stream) != CUBLAS_STATUS_SUCCESS) {
            return -1;
        }
    }
    must(y, y->api->cudaEventRecord(y->end, y->stream), "cudaEventRecord");
    must(y, y->api->cudaEventSynchronize(y->end), "waiting for products");
    must(y, y->api->cudaEventElapsedTime(&ms, y->begin, y->end), "cudaEventElapsedTime");
    return ms;
}

/* The algorithm that is fastest over ten runs, after three that do not count. */
static int fastest(const struct yardstick *y, const struct product *p, double *best_ms)
{
    int best = -1;
    for (int a = 0; a < p->algorithms; a++) {
        double ms = run(y, p, a, 3) < 0 ? -1 : run(y, p, a, 10) / 10;
        if (ms > 0 && (best < 0 || ms < *best_ms)) {
            best = a;
            *best_ms = ms;
        }
    }
    if (best < 0) { fail("a product", "no algorithm runs"); }
    return best;
}

static void measure(const struct yardstick *y, struct product *p, const char *shape, const struct gpu_timing *timing)
{
    double ms = 0, operations = 2.0 * (double)p->rows * (double)p->outputs * (double)p->inputs;
    open_product(y, p);
    int best = fastest(y, p, &ms);
    uint32_t times = ms < timing->round_ms ? (uint32_t)(timing->round_ms / ms) + 1 : 1;
    times = times < 100000 ? times : 100000;
    printf("{\"shape\": \"%s\", \"precision\": \"%s\", \"tflops\": [", shape, precision_name(y->precision));
    for (uint32_t round = 0; round < timing->rounds; round++) {
        printf("%s%.4f", round == 0 ? "" : ", ", operations * times / run(y, p, best, times) / 1e9);
    }
    printf("]}\n");
    close_product(y, p);
}

int product_yardstick(const struct engine_options *options, const struct gpu_timing *timing, char *const *shapes,
                      uint32_t count)
{
    const struct cuda_api *api;
    struct err err = {0};
    struct yardstick y;
    if (cuda_api_real(&api, &err) != STATUS_OK) {
        fprintf(stderr, "gpu_check: %s\n", err.message);
        return EXIT_NOT_HERE;
    }
    open_yardstick(&y, api, options);
    for (uint32_t i = 0; i < count; i++) {
        struct product p = {0};
        unsigned rows, outputs, inputs;
        char end;
        if (sscanf(shapes[i], "%ux%ux%u%c", &rows, &outputs, &inputs, &end) != 3 || rows == 0 || outputs == 0 ||
            inputs == 0) {
            fail(shapes[i], "not a shape");
        }
        p.rows = rows;
        p.outputs = outputs;
        p.inputs = inputs;
        measure(&y, &p, shapes[i], timing);
    }
    close_yardstick(&y);
    return fflush(stdout) != 0;
}
