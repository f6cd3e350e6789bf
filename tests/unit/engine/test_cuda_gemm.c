/* Matrix products of the CUDA engine over the host table: right numbers, always the same fastest algorithm, and every
 * call that fails.
 * ctest: threads */
#include "harness.h"

#include <math.h>
#include <pthread.h>

#include "cuda_host.h"
#include "cuda_host_case.h"
#include "cuda_host_private.h"
#include "engine/cuda/gemm.h"

enum { OUTPUTS = 24, INPUTS = 16, ROWS = 5, ROOM = 1024 };

/* A device with one runner, and operands of every kind. */
struct bench {
    const struct cuda_api *api;
    struct cuda_device device;
    struct cuda_gemm *gemm;
    struct cuda_gemm_runner *runner;
    cudaStream_t stream;
    enum kernel_type type;
    struct cuda_gemm_operands operands;
    float weight[ROOM], from[ROOM], bias[ROOM], residual[ROOM];
};

static cudaDataType_t data_type(enum kernel_type type)
{
    return type == KERNEL_F32 ? CUDA_R_32F : type == KERNEL_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

static void *new_matrix(const struct bench *b, uint32_t count, uint64_t seed, float *values)
{
    char bytes[ROOM * 4];
    size_t size = count * host_element_bytes(data_type(b->type));
    for (uint32_t i = 0; i < count; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        host_put_element(bytes, data_type(b->type), i, (float)((double)(seed >> 33) * 0x1p-30 - 1.0));
        values[i] = host_get_element(bytes, data_type(b->type), i);
    }
    void *device = device_new(b->api, size);
    cuda_host_poke(device, bytes, size);
    return device;
}

static void open_operands(struct bench *b, enum kernel_type type)
{
    b->type = type;
    b->operands.weight = new_matrix(b, OUTPUTS * INPUTS, 1, b->weight);
    b->operands.from = new_matrix(b, ROWS * INPUTS, 2, b->from);
    b->operands.bias = new_matrix(b, OUTPUTS, 3, b->bias);
    b->operands.residual = new_matrix(b, ROWS * OUTPUTS, 4, b->residual);
    b->operands.to = device_new(b->api, ROWS * OUTPUTS * 4);
    uint32_t count = ROWS;
    uint32_t *device_count = device_new(b->api, sizeof count);
    cuda_host_poke(device_count, &count, sizeof count);
    b->operands.count = device_count;
}

/* cudaFree takes no pointer to const. */
static void give_back(const struct bench *b, const void *memory)
{
    void *address;
    memcpy(&address, &memory, sizeof address);
    (void)b->api->cudaFree(address);
}

static void close_operands(struct bench *b)
{
    give_back(b, b->operands.weight);
    give_back(b, b->operands.from);
    give_back(b, b->operands.bias);
    give_back(b, b->operands.residual);
    give_back(b, b->operands.to);
    give_back(b, b->operands.count);
}

static void open_host(struct bench *b, const struct cuda_host_options *options)
{
    struct cuda_host_options own = options == NULL ? (struct cuda_host_options){0} : *options;
    own.memory_bytes = own.memory_bytes == 0 ? (size_t)16 << 20 : own.memory_bytes;
    *b = (struct bench){.api = cuda_host_open(&own)};
    MUST(cuda_device_query(b->api, 0, &b->device, NULL));
    b->stream = stream_new(b->api);
}

static enum status try_gemm(struct bench *b, uint32_t candidates, struct err *err)
{
    struct cuda_gemm_options options = {b->api, &b->device, candidates};
    struct kernel_queue queue = {b->api->cudaLaunchKernel, b->stream, 4, 90};
    TRY(cuda_gemm_open(&options, &b->gemm, err));
    return cuda_gemm_runner_open(b->gemm, &queue, &b->runner, err);
}

static void open_gemm(struct bench *b, uint32_t candidates)
{
    struct err err = {0};
    assert_int_equal(try_gemm(b, candidates, &err), STATUS_OK);
}

static void close_gemm(struct bench *b)
{
    cuda_gemm_runner_close(b->runner);
    cuda_gemm_close(b->gemm);
    b->runner = NULL;
    b->gemm = NULL;
}

static void close_host(struct bench *b)
{
    (void)b->api->cudaStreamDestroy(b->stream);
    cuda_host_close();
}

static struct cuda_gemm_shape shape_of(const struct bench *b, enum cuda_epilogue epilogue)
{
    return (struct cuda_gemm_shape){OUTPUTS, INPUTS, b->type, epilogue};
}

static enum status prepare_and_run(struct bench *b, enum cuda_epilogue epilogue, struct err *err)
{
    const struct cuda_gemm_shape shape = shape_of(b, epilogue);
    const struct cuda_gemm_plan *plan;
    TRY(cuda_gemm_prepare(b->runner, &shape, ROWS, &b->operands, &plan, err));
    return cuda_gemm_run(b->runner, plan, &b->operands, err);
}

static void run(struct bench *b, enum cuda_epilogue epilogue, void *out)
{
    struct err err = {0};
    if (prepare_and_run(b, epilogue, &err) != STATUS_OK) { fail_msg("%s", err.message); }
    cuda_host_peek(out, b->operands.to, ROWS * OUTPUTS * host_element_bytes(data_type(b->type)));
}

static double expected(const struct bench *b, enum cuda_epilogue epilogue, uint32_t row, uint32_t output)
{
    double sum = epilogue == CUDA_EPILOGUE_NONE ? 0.0 : (double)b->bias[output];
    for (uint32_t i = 0; i < INPUTS; i++) {
        sum += (double)b->weight[output * INPUTS + i] * (double)b->from[row * INPUTS + i];
    }
    if (epilogue == CUDA_EPILOGUE_BIAS_RESIDUAL) { sum += (double)b->residual[row * OUTPUTS + output]; }
    if (epilogue == CUDA_EPILOGUE_BIAS_RELU) { sum = sum > 0.0 ? sum : 0.0; }
    if (epilogue == CUDA_EPILOGUE_BIAS_GELU) {
        sum = 0.5 * sum * (1.0 + tanh(sqrt(2.0 / acos(-1.0)) * (sum + 0.044715 * sum * sum * sum)));
    }
    return sum;
}

static void assert_right(const struct bench *b, enum cuda_epilogue epilogue, const void *got)
{
    static const double errors[] = {[KERNEL_F32] = 1e-5, [KERNEL_F16] = 0x1p-8, [KERNEL_BF16] = 0x1p-5};
    for (uint32_t i = 0; i < ROWS * OUTPUTS; i++) {
        double value = (double)host_get_element(got, data_type(b->type), i);
        double want = expected(b, epilogue, i / OUTPUTS, i % OUTPUTS);
        if (!(fabs(value - want) <= errors[b->type])) {
            fail_msg("type %d, epilogue %d, element %u: %g, not %g", b->type, epilogue, i, value, want);
        }
    }
}

/* Numbers */

static void all_products(const struct cuda_host_algorithm *offer, const char *how)
{
    static struct bench b;
    char got[ROOM * 4];
    open_host(&b, NULL);
    cuda_host_offer(offer);
    for (int type = KERNEL_F32; type <= KERNEL_BF16; type++) {
        open_operands(&b, (enum kernel_type)type);
        open_gemm(&b, 0);
        uint64_t before = cuda_host_calls(how);
        for (int epilogue = CUDA_EPILOGUE_NONE; epilogue <= CUDA_EPILOGUE_BIAS_RESIDUAL; epilogue++) {
            run(&b, (enum cuda_epilogue)epilogue, got);
            assert_right(&b, (enum cuda_epilogue)epilogue, got);
        }
        assert_true(cuda_host_calls(how) > before);
        /* the residual may be where the result goes */
        const void *residual = b.operands.residual;
        char values[ROOM * 4];
        size_t bytes = ROWS * OUTPUTS * host_element_bytes(data_type(b.type));
        run(&b, CUDA_EPILOGUE_BIAS_RESIDUAL, got); /* it is prepared already, so this is the only run */
        cuda_host_peek(values, residual, bytes);
        cuda_host_poke(b.operands.to, values, bytes);
        b.operands.residual = b.operands.to;
        run(&b, CUDA_EPILOGUE_BIAS_RESIDUAL, got);
        assert_right(&b, CUDA_EPILOGUE_BIAS_RESIDUAL, got);
        b.operands.residual = residual;
        close_gemm(&b);
        close_operands(&b);
    }
    close_host(&b);
}

static const struct cuda_host_algorithm one_algorithm[2] = {{1000, 0, CUBLAS_STATUS_SUCCESS}};

TEST(products_are_right)
{
    all_products(one_algorithm, "cublasLtMatmul");
}

TEST(products_without_an_algorithm_are_right)
{
    all_products(NULL, "cublasGemmEx");
}

TEST(products_whose_algorithms_fail_are_right)
{
    static const struct cuda_host_algorithm failing[3] = {{1000, 0, CUBLAS_STATUS_NOT_SUPPORTED},
                                                          {1000, 0, CUBLAS_STATUS_INTERNAL_ERROR}};
    all_products(failing, "cublasGemmEx");
}

/* Each layer has its own weights and bias; one plan computes them all. */
TEST(a_plan_serves_every_layer)
{
    static struct bench b;
    char got[ROOM * 4];
    for (int plain = 0; plain < 2; plain++) {
        open_host(&b, NULL);
        cuda_host_offer(plain ? NULL : one_algorithm);
        open_operands(&b, KERNEL_F32);
        open_gemm(&b, 0);
        const struct cuda_gemm_operands first = b.operands;
        run(&b, CUDA_EPILOGUE_BIAS, got);
        b.operands.weight = new_matrix(&b, OUTPUTS * INPUTS, 11, b.weight);
        b.operands.bias = new_matrix(&b, OUTPUTS, 12, b.bias);
        run(&b, CUDA_EPILOGUE_BIAS, got);
        assert_right(&b, CUDA_EPILOGUE_BIAS, got);
        give_back(&b, first.weight);
        give_back(&b, first.bias);
        close_gemm(&b);
        close_operands(&b);
        close_host(&b);
    }
}

TEST(without_any_way_it_says_so)
{
    static struct bench b;
    struct err err = {0};
    open_host(&b, &(struct cuda_host_options){.no_cublas = true});
    cuda_host_offer(NULL);
    open_operands(&b, KERNEL_F16);
    open_gemm(&b, 0);
    assert_int_equal(prepare_and_run(&b, CUDA_EPILOGUE_BIAS, &err), STATUS_UNSUPPORTED);
    assert_string_equal(err.message, "a product of 5 rows, 24 by 16: cuBLASLt has no algorithm for it, and there is no "
                                     "libcublas");
    close_gemm(&b);
    close_operands(&b);
    close_host(&b);
}

/* The choice of an algorithm: the last bits of a product in f32 show which one ran. */

static const struct cuda_host_algorithm third_is_best[CUDA_HOST_ALGORITHMS] = {
    {9000, 0, 0}, {4000, 0, 0}, {3000, 0, 0}, {3500, 0, 0}, {50, 0, CUBLAS_STATUS_NOT_SUPPORTED}, {40, 1 << 30, 0}};

/* The product as algorithm `index` computes it. */
static void by_algorithm(uint32_t index, void *out)
{
    static struct bench b;
    struct cuda_host_algorithm offer[CUDA_HOST_ALGORITHMS] = {{0}};
    for (uint32_t i = 0; i <= index; i++) {
        offer[i] = (struct cuda_host_algorithm){1000 - i * 100, 0, CUBLAS_STATUS_SUCCESS};
    }
    open_host(&b, NULL);
    cuda_host_offer(offer);
    open_operands(&b, KERNEL_F32);
    open_gemm(&b, 0);
    run(&b, CUDA_EPILOGUE_BIAS, out);
    close_gemm(&b);
    close_operands(&b);
    close_host(&b);
}

static void assert_takes(const struct cuda_host_algorithm *offer, uint32_t candidates, uint32_t index)
{
    static struct bench b;
    char want[ROOM * 4];
    char got[ROOM * 4];
    by_algorithm(index, want);
    open_host(&b, NULL);
    cuda_host_offer(offer);
    open_operands(&b, KERNEL_F32);
    open_gemm(&b, candidates);
    run(&b, CUDA_EPILOGUE_BIAS, got);
    assert_memory_equal(got, want, ROWS * OUTPUTS * sizeof(float));
    assert_int_equal(cuda_host_calls("cudaEventElapsedTime") == 0, candidates == 1);
    close_gemm(&b);
    close_operands(&b);
    close_host(&b);
}

TEST(the_fastest_that_works_is_taken)
{
    static const struct cuda_host_algorithm alike[CUDA_HOST_ALGORITHMS] = {{1000, 0, 0}, {990, 0, 0}, {985, 0, 0}};
    assert_takes(third_is_best, 0, 2);
    assert_takes(third_is_best, 2, 1); /* the third is not looked at */
    assert_takes(alike, 0, 0);         /* none is clearly faster than the first */
}

TEST(one_candidate_is_not_timed)
{
    assert_takes(third_is_best, 1, 0);
}

/* Asserts which of three close candidates is prepared when some calls fail while these are captured. */
static void assert_takes_despite(const char *call, const uint32_t *at, uint32_t faults, uint32_t index)
{
    static struct bench b;
    char want[ROOM * 4];
    char got[ROOM * 4];
    by_algorithm(index, want);
    open_host(&b, NULL);
    cuda_host_offer(third_is_best);
    open_operands(&b, KERNEL_F32);
    open_gemm(&b, 0);
    for (uint32_t i = 0; i < faults; i++) {
        cuda_host_plant((struct cuda_host_fault){call, at[i], cudaErrorInvalidValue, false});
    }
    run(&b, CUDA_EPILOGUE_BIAS, got);
    assert_memory_equal(got, want, ROWS * OUTPUTS * sizeof(float));
    assert_true(faults == 0 || cuda_host_struck());
    assert_true((cuda_host_calls("cudaGraphLaunch") > 0) == (faults < 3));
    close_gemm(&b);
    close_operands(&b);
    close_host(&b);
}

/* The second, third and fourth candidates stay until the end. One that cannot be captured is out; if none can, they are
 * launched one by one. */
TEST(candidates_are_timed_in_graphs)
{
    static const char *const calls[] = {"cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate"};
    assert_takes_despite(NULL, NULL, 0, 2);
    for (int i = 0; i < 3; i++) {
        assert_takes_despite(calls[i], (const uint32_t[]){2}, 1, 3);
        assert_takes_despite(calls[i], (const uint32_t[]){1, 2, 3}, 3, 2);
    }
}

/* The device's time for preparing a product with 16 candidates that are all alike. */
static double timing_ms(uint32_t time_ns)
{
    static struct bench b;
    struct cuda_host_algorithm offer[CUDA_HOST_ALGORITHMS];
    struct err err = {0};
    const struct cuda_gemm_plan *plan;
    float ms;
    for (int i = 0; i < CUDA_HOST_ALGORITHMS; i++) {
        offer[i] = (struct cuda_host_algorithm){time_ns, 0, CUBLAS_STATUS_SUCCESS};
    }
    open_host(&b, NULL);
    cuda_host_offer(offer);
    open_operands(&b, KERNEL_F16);
    open_gemm(&b, 0);
    cudaEvent_t begin = event_new(b.api), end = event_new(b.api);
    const struct cuda_gemm_shape shape = shape_of(&b, CUDA_EPILOGUE_BIAS);
    MUST(b.api->cudaEventRecord(begin, b.stream));
    assert_int_equal(cuda_gemm_prepare(b.runner, &shape, ROWS, &b.operands, &plan, &err), STATUS_OK);
    MUST(b.api->cudaEventRecord(end, b.stream));
    MUST(b.api->cudaEventSynchronize(end));
    MUST(b.api->cudaEventElapsedTime(&ms, begin, end));
    (void)b.api->cudaEventDestroy(begin);
    (void)b.api->cudaEventDestroy(end);
    assert_true(cuda_host_calls("cublasLtMatmul") <= 16 * (2 + 8));
    close_gemm(&b);
    close_operands(&b);
    close_host(&b);
    return (double)ms;
}

/* Preparing takes so little that nothing need be kept in a file, even at worst, when all 16 are equally fast. */
TEST(timing_is_short)
{
    assert_true(timing_ms(5000) < 2.5);
    assert_true(timing_ms(40000) < 4);
    assert_true(timing_ms(200000) < 17);
}

TEST(an_algorithm_never_changes)
{
    static const struct cuda_host_algorithm other_times[CUDA_HOST_ALGORITHMS] = {{1, 0, 0}, {2, 0, 0}, {3000, 0, 0}};
    static struct bench b;
    char first[ROOM * 4];
    char got[ROOM * 4];
    open_host(&b, NULL);
    cuda_host_offer(third_is_best);
    open_operands(&b, KERNEL_F32);
    open_gemm(&b, 0);
    run(&b, CUDA_EPILOGUE_BIAS, first);
    cuda_host_offer(other_times);
    uint64_t timed = cuda_host_calls("cudaEventElapsedTime");
    run(&b, CUDA_EPILOGUE_BIAS, got);
    assert_memory_equal(got, first, ROWS * OUTPUTS * sizeof(float));
    struct kernel_queue queue = {b.api->cudaLaunchKernel, b.stream, 4, 90};
    struct cuda_gemm_runner *mine = b.runner;
    MUST(cuda_gemm_runner_open(b.gemm, &queue, &b.runner, NULL)); /* another runner of the same device */
    run(&b, CUDA_EPILOGUE_BIAS, got);
    assert_memory_equal(got, first, ROWS * OUTPUTS * sizeof(float));
    assert_int_equal(cuda_host_calls("cudaEventElapsedTime"), timed);
    cuda_gemm_runner_close(mine);
    close_gemm(&b);
    close_operands(&b);
    close_host(&b);
}

/* While one runner looks for an algorithm, another one chooses its own, which is not the one that is fastest then. */
static struct {
    const struct cuda_api *api;
    struct bench *other;
    char got[ROOM * 4];
} overtaking;

static cublasStatus_t overtake(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                               cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                               cublasLtMatmulPreference_t preference, int wanted,
                               cublasLtMatmulHeuristicResult_t *results, int *count)
{
    static const struct cuda_host_algorithm other_times[CUDA_HOST_ALGORITHMS] = {{1, 0, 0}, {2000, 0, 0}, {3000, 0, 0}};
    struct bench *other = overtaking.other;
    overtaking.other = NULL;
    if (other != NULL) {
        run(other, CUDA_EPILOGUE_BIAS, overtaking.got);
        cuda_host_offer(other_times);
    }
    return overtaking.api->cublasLtMatmulAlgoGetHeuristic(handle, desc, a, b, c, d, preference, wanted, results, count);
}

TEST(who_is_first_decides_for_all)
{
    static struct bench b;
    static struct bench other;
    char got[ROOM * 4];
    open_host(&b, NULL);
    cuda_host_offer(third_is_best);
    open_operands(&b, KERNEL_F32);
    struct cuda_api api = *b.api;
    overtaking.api = b.api;
    api.cublasLtMatmulAlgoGetHeuristic = overtake;
    b.api = &api;
    open_gemm(&b, 0);
    struct kernel_queue queue = {api.cudaLaunchKernel, b.stream, 4, 90};
    other = b;
    MUST(cuda_gemm_runner_open(b.gemm, &queue, &other.runner, NULL));
    overtaking.other = &other;
    run(&b, CUDA_EPILOGUE_BIAS, got);
    assert_null(overtaking.other);
    assert_memory_equal(got, overtaking.got, ROWS * OUTPUTS * sizeof(float));
    cuda_gemm_runner_close(other.runner);
    close_gemm(&b);
    close_operands(&b);
    close_host(&b);
}

struct racer {
    struct bench *bench;
    char got[ROWS * OUTPUTS * sizeof(float)];
};

static void *run_beside_others(void *context)
{
    struct racer *r = context;
    struct bench b = *r->bench;
    struct kernel_queue queue = {b.api->cudaLaunchKernel, NULL, 4, 90};
    queue.cuda_stream = b.stream = stream_new(b.api);
    b.operands.to = device_new(b.api, ROWS * OUTPUTS * 4);
    MUST(cuda_gemm_runner_open(b.gemm, &queue, &b.runner, NULL));
    for (int epilogue = CUDA_EPILOGUE_NONE; epilogue <= CUDA_EPILOGUE_BIAS_RESIDUAL; epilogue++) {
        MUST(prepare_and_run(&b, (enum cuda_epilogue)epilogue, NULL));
    }
    run(&b, CUDA_EPILOGUE_BIAS, r->got);
    cuda_gemm_runner_close(b.runner);
    MUST(b.api->cudaStreamDestroy(b.stream));
    MUST(b.api->cudaFree(b.operands.to));
    return NULL;
}

TEST(threads_find_the_same_algorithm)
{
    static struct bench b;
    static struct racer racers[4];
    pthread_t threads[4];
    open_host(&b, &(struct cuda_host_options){.algorithms = {{2000, 0, 0}, {1000, 0, 0}, {999, 0, 0}}});
    open_operands(&b, KERNEL_F32);
    open_gemm(&b, 0);
    for (int i = 0; i < 4; i++) {
        racers[i].bench = &b;
        MUST(pthread_create(&threads[i], NULL, run_beside_others, &racers[i]));
    }
    for (int i = 0; i < 4; i++) { pthread_join(threads[i], NULL); }
    for (int i = 1; i < 4; i++) { assert_memory_equal(racers[i].got, racers[0].got, sizeof racers[0].got); }
    close_gemm(&b);
    close_operands(&b);
    close_host(&b);
}

TEST(products_are_captured)
{
    static struct bench b;
    char got[ROOM * 4];
    for (int plain = 0; plain < 2; plain++) {
        open_host(&b, NULL);
        if (plain) { cuda_host_offer(NULL); }
        open_operands(&b, KERNEL_F16);
        open_gemm(&b, 0);
        const struct cuda_gemm_shape shape = shape_of(&b, CUDA_EPILOGUE_BIAS_RESIDUAL);
        const struct cuda_gemm_plan *plan;
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        MUST(cuda_gemm_prepare(b.runner, &shape, ROWS, &b.operands, &plan, NULL));
        MUST(b.api->cudaStreamBeginCapture(b.stream, cudaStreamCaptureModeThreadLocal));
        MUST(cuda_gemm_run(b.runner, plan, &b.operands, NULL));
        MUST(b.api->cudaStreamEndCapture(b.stream, &graph));
        MUST(b.api->cudaGraphInstantiate(&exec, graph, 0));
        MUST(b.api->cudaGraphDestroy(graph));
        for (int i = 0; i < 2; i++) {
            MUST(b.api->cudaMemsetAsync(b.operands.to, 0xff, ROWS * OUTPUTS * 2, b.stream));
            MUST(b.api->cudaGraphLaunch(exec, b.stream));
            cuda_host_peek(got, b.operands.to, ROWS * OUTPUTS * 2);
            assert_right(&b, CUDA_EPILOGUE_BIAS_RESIDUAL, got);
        }
        MUST(b.api->cudaGraphExecDestroy(exec));
        close_gemm(&b);
        close_operands(&b);
        close_host(&b);
    }
}

/* Any call fails, at any place: the status says which kind it was, everything is given back (the host checks), and a
 * second try works unless the device is lost. */

static enum status whole_life(struct bench *b, struct err *err)
{
    enum status status = try_gemm(b, 0, err);
    for (int epilogue = CUDA_EPILOGUE_NONE; epilogue <= CUDA_EPILOGUE_BIAS_RESIDUAL && status == STATUS_OK;
         epilogue++) {
        status = prepare_and_run(b, (enum cuda_epilogue)epilogue, err);
    }
    if (status == STATUS_OK) { status = cuda_check(b->api, b->api->cudaStreamSynchronize(b->stream), "waiting", err); }
    close_gemm(b);
    return status;
}

static void fail_everywhere(const char *call, int answer, bool lost, const struct cuda_host_algorithm *offer,
                            enum status expected_status)
{
    static struct bench b;
    bool failed = true;
    uint32_t at = 0;
    unsigned failures = 0;
    while (failed) {
        open_host(&b, NULL);
        open_operands(&b, KERNEL_F16);
        cuda_host_offer(offer);
        struct err err = {0};
        cuda_host_plant((struct cuda_host_fault){call, ++at, answer, lost});
        enum status status = whole_life(&b, &err);
        failed = status != STATUS_OK;
        failures += failed;
        if (failed && status != expected_status) { fail_msg("call %u: %s (%s)", at, status_name(status), err.message); }
        cuda_host_clear();
        if (failed && !lost) { assert_int_equal(whole_life(&b, &err), STATUS_OK); }
        close_operands(&b);
        close_host(&b);
    }
    assert_true(failures > 0);
}

TEST(a_device_is_lost_at_any_call)
{
    fail_everywhere(NULL, 0, true, one_algorithm, STATUS_DEVICE_LOST);
    fail_everywhere(NULL, 0, true, NULL, STATUS_DEVICE_LOST);
}

TEST(memory_runs_out_at_any_call)
{
    static const char *const runtime[] = {"cudaMalloc", "cudaEventCreateWithFlags"};
    static const char *const blas[] = {"cublasLtCreate", "cublasLtMatmulDescCreate", "cublasLtMatrixLayoutCreate",
                                       "cublasLtMatmulPreferenceCreate", "cublasLtMatmul"};
    for (size_t i = 0; i < 2; i++) {
        fail_everywhere(runtime[i], cudaErrorMemoryAllocation, false, one_algorithm, STATUS_NO_MEMORY);
    }
    for (size_t i = 0; i < 5; i++) {
        fail_everywhere(blas[i], CUBLAS_STATUS_ALLOC_FAILED, false, one_algorithm, STATUS_NO_MEMORY);
    }
    fail_everywhere("cublasCreate_v2", CUBLAS_STATUS_ALLOC_FAILED, false, NULL, STATUS_NO_MEMORY);
    fail_everywhere("cublasSetMathMode", CUBLAS_STATUS_ALLOC_FAILED, false, NULL, STATUS_NO_MEMORY);
}

TEST(work_that_overlaps_is_right)
{
    static struct bench b;
    char got[ROOM * 4];
    for (uint64_t seed = 0; seed < 20; seed++) {
        open_host(&b, &(struct cuda_host_options){.order = CUDA_HOST_SHUFFLED, .seed = seed});
        open_operands(&b, KERNEL_BF16);
        open_gemm(&b, 0);
        run(&b, CUDA_EPILOGUE_BIAS_GELU, got);
        assert_right(&b, CUDA_EPILOGUE_BIAS_GELU, got);
        close_gemm(&b);
        close_operands(&b);
        close_host(&b);
    }
}

/* The planner relies on the reported workspace. */
TEST(the_workspace_is_what_was_told)
{
    static struct bench b;
    open_host(&b, NULL);
    open_gemm(&b, 0);
    assert_int_equal(cuda_host_held_bytes(0), cuda_gemm_workspace_bytes(&b.device));
    close_gemm(&b);
    struct cuda_device large = {.capability = 90, .memory_bytes = (size_t)80 << 30};
    assert_int_equal(cuda_gemm_workspace_bytes(&large), 32 << 20);
    large.capability = 86;
    assert_int_equal(cuda_gemm_workspace_bytes(&large), 8 << 20);
    close_host(&b);
}
