/* Matrix products beside f64, on the device of products_device.h: the host's table here, cuBLASLt on a GPU in
 * tests/gpu. Tests that need the host's table (faults, counts of calls) are in test_cuda_gemm.c. */
#include "harness.h"

#include <math.h>
#include <stdlib.h>

#include "engine/cuda/gemm.h"
#include "kernel_numbers.h"
#include "products_device.h"

#define MUST(call) assert_int_equal((int)(call), 0)

enum { SAMPLES = 200, TYPES = KERNEL_BF16 + 1, AFTERS = CUDA_EPILOGUE_BIAS_RESIDUAL + 1 };

struct size {
    uint32_t outputs, inputs, rows;
};

/* A device with a stream, and one product's operands there and on the host. */
struct place {
    const struct cuda_api *api;
    struct cuda_device device;
    cudaStream_t stream;
    struct cuda_gemm *gemm;
    struct cuda_gemm_runner *runner;
    struct cuda_gemm_shape shape;
    uint32_t rows;
    struct cuda_gemm_operands operands;
    float *weight, *from, *bias, *residual, *to; /* as the type holds them */
};

/* SLUICE_UNTIMED is set under a sanitizer, where timing candidates takes long and means nothing. */
static void open_gemm(struct place *p, const struct cuda_api *api, uint32_t candidates)
{
    struct cuda_gemm_options options = {api, &p->device, getenv("SLUICE_UNTIMED") == NULL ? candidates : 1};
    struct kernel_queue queue = {api->cudaLaunchKernel, p->stream, p->device.multiprocessors, p->device.capability};
    MUST(cuda_gemm_open(&options, &p->gemm, NULL));
    MUST(cuda_gemm_runner_open(p->gemm, &queue, &p->runner, NULL));
}

static void close_gemm(struct place *p)
{
    cuda_gemm_runner_close(p->runner);
    cuda_gemm_close(p->gemm);
}

static void open_place(struct place *p)
{
    *p = (struct place){.api = products_open()};
    MUST(cuda_device_query(p->api, 0, &p->device, NULL));
    MUST(p->api->cudaStreamCreateWithFlags(&p->stream, cudaStreamNonBlocking));
}

static void close_place(struct place *p)
{
    MUST(p->api->cudaStreamDestroy(p->stream));
    products_close();
}

/* Random numbers here and on the device. */
static void *upload(struct place *p, uint64_t seed, size_t count, float **here)
{
    size_t bytes = count * number_bytes(p->shape.type);
    void *device;
    void *staged = malloc(bytes);
    *here = malloc(count * sizeof **here);
    numbers_random(p->shape.type, seed, count, *here);
    numbers_write(p->shape.type, *here, count, staged);
    MUST(p->api->cudaMalloc(&device, bytes));
    MUST(p->api->cudaMemcpyAsync(device, staged, bytes, cudaMemcpyHostToDevice, p->stream));
    MUST(p->api->cudaStreamSynchronize(p->stream));
    free(staged);
    return device;
}

static void open_operands(struct place *p, struct cuda_gemm_shape shape, uint32_t rows)
{
    p->shape = shape;
    p->rows = rows;
    p->operands.weight = upload(p, 1, (size_t)shape.outputs * shape.inputs, &p->weight);
    p->operands.from = upload(p, 2, (size_t)rows * shape.inputs, &p->from);
    p->operands.bias = upload(p, 3, shape.outputs, &p->bias);
    p->operands.residual = upload(p, 4, (size_t)rows * shape.outputs, &p->residual);
    p->operands.to = upload(p, 5, (size_t)rows * shape.outputs, &p->to);
    void *count;
    MUST(p->api->cudaMalloc(&count, sizeof rows));
    MUST(p->api->cudaMemcpyAsync(count, &rows, sizeof rows, cudaMemcpyHostToDevice, p->stream));
    MUST(p->api->cudaStreamSynchronize(p->stream));
    p->operands.count = count;
}

static void close_operands(struct place *p)
{
    const void *const memory[] = {p->operands.weight,   p->operands.from, p->operands.bias,
                                  p->operands.residual, p->operands.to,   p->operands.count};
    MUST(p->api->cudaStreamSynchronize(p->stream));
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) {
        void *address;
        memcpy(&address, &memory[i], sizeof address); /* cudaFree takes no pointer to const */
        MUST(p->api->cudaFree(address));
    }
    free(p->weight);
    free(p->from);
    free(p->bias);
    free(p->residual);
    free(p->to);
}

/* The product's result, in its type. Owns: the caller frees it. */
static void *bits_of_result(struct place *p)
{
    size_t bytes = (size_t)p->rows * p->shape.outputs * number_bytes(p->shape.type);
    void *bits = malloc(bytes);
    MUST(p->api->cudaMemcpyAsync(bits, p->operands.to, bytes, cudaMemcpyDeviceToHost, p->stream));
    MUST(p->api->cudaStreamSynchronize(p->stream));
    return bits;
}

static const struct cuda_gemm_plan *prepare(struct place *p)
{
    struct err err = {0};
    const struct cuda_gemm_plan *plan = NULL;
    if (cuda_gemm_prepare(p->runner, &p->shape, p->rows, &p->operands, &plan, &err) != STATUS_OK) {
        fail_msg("%s", err.message);
    }
    return plan;
}

static void *run(struct place *p)
{
    struct err err = {0};
    const struct cuda_gemm_plan *plan = prepare(p);
    if (cuda_gemm_run(p->runner, plan, &p->operands, &err) != STATUS_OK) { fail_msg("%s", err.message); }
    return bits_of_result(p);
}

/* The element in f64, and by how much another order of adding in f32 and rounding to the type may change it; twice the
 * rounding where the bias comes in a second step. */
static double expected(const struct place *p, uint32_t row, uint32_t output, bool plain, double *error)
{
    double sum = 0.0;
    double sizes = 0.0;
    for (uint32_t i = 0; i < p->shape.inputs; i++) {
        double product = (double)p->from[(size_t)row * p->shape.inputs + i] *
                         (double)p->weight[(size_t)output * p->shape.inputs + i];
        sum += product;
        sizes += fabs(product);
    }
    if (p->shape.epilogue == CUDA_EPILOGUE_BIAS_RESIDUAL) {
        sum += (double)p->residual[(size_t)row * p->shape.outputs + output];
    }
    double between = plain ? (double)number_step(p->shape.type, (float)sum) : 0.0;
    if (p->shape.epilogue != CUDA_EPILOGUE_NONE) { sum += (double)p->bias[output]; }
    if (p->shape.epilogue == CUDA_EPILOGUE_BIAS_RELU) { sum = sum > 0.0 ? sum : 0.0; }
    if (p->shape.epilogue == CUDA_EPILOGUE_BIAS_GELU) {
        sum = 0.5 * sum * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (sum + 0.044715 * sum * sum * sum)));
    }
    /* gelu's slope is at most 1.13; a GPU's tanh may be off by 2^-10 of the value in its fast form */
    double form = p->shape.epilogue == CUDA_EPILOGUE_BIAS_GELU ? fabs(sum) * 0x1p-10 + 1e-4 : 0.0;
    *error =
        1.13 * (p->shape.inputs * 0x1p-22 * sizes + between) + (double)number_step(p->shape.type, (float)sum) + form;
    return sum;
}

static void assert_near(const struct place *p, const void *bits, bool plain)
{
    size_t count = (size_t)p->rows * p->shape.outputs;
    float *got = malloc(count * sizeof *got);
    numbers_read(p->shape.type, bits, count, got);
    for (size_t i = 0; i < count; i++) { assert_true(isfinite(got[i])); }
    for (size_t s = 0; s < SAMPLES; s++) {
        size_t i = s < 8 ? s * (count - 1) / 7 : s * 2654435761u % count;
        double error;
        double want = expected(p, (uint32_t)(i / p->shape.outputs), (uint32_t)(i % p->shape.outputs), plain, &error);
        if (!(fabs((double)got[i] - want) <= error)) {
            fail_msg("%u x %u, %u rows, type %d, epilogue %d: element %zu is %g, not %g +- %g", p->shape.outputs,
                     p->shape.inputs, p->rows, p->shape.type, p->shape.epilogue, i, (double)got[i], want, error);
        }
    }
    free(got);
}

static const struct size small_sizes[] = {{24, 16, 5}, {16, 40, 1}, {8, 8, 33}};
/* MiniLM, BERT-base and BERT-large; rows of buckets, and few. */
static const struct size large_sizes[] = {{1152, 384, 8},   {384, 384, 1},     {1536, 384, 136},
                                          {384, 1536, 520}, {2304, 768, 64},   {768, 3072, 344},
                                          {3072, 768, 24},  {4096, 1024, 272}, {1024, 4096, 16}};

static void near_f64(struct place *p, const struct cuda_api *api, bool plain)
{
    const struct size *sizes = products_large() ? large_sizes : small_sizes;
    size_t count = products_large() ? sizeof large_sizes / sizeof sizes[0] : sizeof small_sizes / sizeof sizes[0];
    open_gemm(p, api, 0);
    for (size_t i = 0; i < count * TYPES * AFTERS; i++) {
        const struct size *size = &sizes[i / (TYPES * AFTERS)];
        struct cuda_gemm_shape shape = {size->outputs, size->inputs, (enum kernel_type)(i % TYPES),
                                        (enum cuda_epilogue)(i / TYPES % AFTERS)};
        open_operands(p, shape, size->rows);
        void *bits = run(p);
        assert_near(p, bits, plain);
        free(bits);
        close_operands(p);
    }
    close_gemm(p);
}

TEST(products_are_near_f64)
{
    struct place p;
    open_place(&p);
    near_f64(&p, p.api, false);
    close_place(&p);
}

static cublasStatus_t nothing_offered(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                      cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                      cublasLtMatmulPreference_t preference, int wanted,
                                      cublasLtMatmulHeuristicResult_t *results, int *count)
{
    (void)handle, (void)desc, (void)a, (void)b, (void)c, (void)d, (void)preference, (void)wanted, (void)results;
    *count = 0;
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

TEST(plain_products_are_near_f64)
{
    struct place p;
    open_place(&p);
    struct cuda_api api = *p.api;
    api.cublasLtMatmulAlgoGetHeuristic = nothing_offered;
    near_f64(&p, &api, true);
    close_place(&p);
}

static void *replay(struct place *p)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    const struct cuda_gemm_plan *plan = prepare(p);
    MUST(p->api->cudaStreamBeginCapture(p->stream, cudaStreamCaptureModeThreadLocal));
    MUST(cuda_gemm_run(p->runner, plan, &p->operands, NULL));
    MUST(p->api->cudaStreamEndCapture(p->stream, &graph));
    MUST(p->api->cudaGraphInstantiate(&exec, graph, 0));
    MUST(p->api->cudaGraphDestroy(graph));
    MUST(p->api->cudaGraphLaunch(exec, p->stream));
    void *bits = bits_of_result(p);
    MUST(p->api->cudaGraphExecDestroy(exec));
    return bits;
}

/* The product runs again, in a graph, and in another runner. */
TEST(the_same_operands_give_the_same_bits)
{
    struct place p;
    open_place(&p);
    for (int type = 0; type < TYPES; type++) {
        struct cuda_gemm_shape shape = {products_large() ? 1536 : 24, products_large() ? 384 : 16,
                                        (enum kernel_type)type, CUDA_EPILOGUE_BIAS_GELU};
        open_gemm(&p, p.api, 0);
        open_operands(&p, shape, 136);
        size_t bytes = (size_t)p.rows * shape.outputs * number_bytes(shape.type);
        void *bits[3] = {run(&p), replay(&p)};
        struct cuda_gemm_runner *first = p.runner;
        struct kernel_queue queue = {p.api->cudaLaunchKernel, p.stream, p.device.multiprocessors, p.device.capability};
        MUST(cuda_gemm_runner_open(p.gemm, &queue, &p.runner, NULL));
        bits[2] = run(&p);
        cuda_gemm_runner_close(first);
        for (int i = 1; i < 3; i++) { assert_memory_equal(bits[i], bits[0], bytes); }
        for (int i = 0; i < 3; i++) { free(bits[i]); }
        close_operands(&p);
        close_gemm(&p);
    }
    close_place(&p);
}

/* The first rows in batches of several sizes: the numbers are the same but for the order of adding. */
TEST(a_row_hardly_depends_on_the_batch)
{
    enum { COMPARED = 8, BATCHES = 6 };
    static const uint32_t rows[BATCHES] = {COMPARED, 16, 40, 136, 520, 1032};
    struct place p;
    open_place(&p);
    for (int type = 0; type < TYPES; type++) {
        struct cuda_gemm_shape shape = {products_large() ? 768 : 24, products_large() ? 3072 : 16,
                                        (enum kernel_type)type, CUDA_EPILOGUE_BIAS};
        float first[COMPARED * 768];
        float most = 0.0f;
        size_t count = (size_t)COMPARED * shape.outputs;
        open_gemm(&p, p.api, 0);
        for (int batch = 0; batch < BATCHES; batch++) {
            float now[COMPARED * 768];
            open_operands(&p, shape, rows[batch]);
            void *bits = run(&p);
            numbers_read(shape.type, bits, count, batch == 0 ? first : now);
            for (size_t i = 0; batch > 0 && i < count; i++) {
                most = fmaxf(most, fabsf(now[i] - first[i]) / number_step(shape.type, 16.0f));
            }
            assert_near(&p, bits, false);
            free(bits);
            close_operands(&p);
        }
        print_message("type %d: rows of a product in %d batches differ by at most %g steps of numbers of 16\n", type,
                      BATCHES, (double)most);
        close_gemm(&p);
    }
    close_place(&p);
}
