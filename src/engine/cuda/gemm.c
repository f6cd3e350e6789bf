#include "engine/cuda/gemm.h"

#include <assert.h>
#include <float.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* Identifies a product; compared as bytes. */
struct gemm_key {
    struct cuda_gemm_shape shape;
    uint32_t rows;
};

/* The algorithm chosen for a product. */
struct gemm_pick {
    struct gemm_pick *next;
    struct gemm_key key;
    bool by_gemm_ex; /* cuBLASLt has none */
    cublasLtMatmulAlgo_t algorithm;
};

struct cuda_gemm {
    const struct cuda_api *api;
    uint32_t candidates;
    size_t workspace_bytes;

    pthread_mutex_t mutex; /* guards: */
    struct gemm_pick *picks;
};

struct cuda_gemm_plan {
    struct cuda_gemm_plan *next;
    struct gemm_key key;
    bool by_gemm_ex; /* by cublasGemmEx, without the epilogue */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t weight, from, to;
    cublasLtMatmulAlgo_t algorithm;
};

struct cuda_gemm_runner {
    struct cuda_gemm *gemm;
    struct kernel_queue queue;
    cublasLtHandle_t lt;
    cublasHandle_t blas; /* NULL until a plan needs cublasGemmEx */
    void *workspace;
    cudaEvent_t begin, end; /* for timing */
    struct cuda_gemm_plan *plans;
};

/* CUDA's name for a type. */
static cudaDataType_t data_type(enum kernel_type type)
{
    return type == KERNEL_F32 ? CUDA_R_32F : type == KERNEL_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

/* Each layer has another bias. The heuristics consider its alignment too. */
static cublasStatus_t set_bias(const struct cuda_gemm_runner *runner, const struct cuda_gemm_plan *plan,
                               const struct cuda_gemm_operands *operands)
{
    if (plan->key.shape.epilogue == CUDA_EPILOGUE_NONE) { return CUBLAS_STATUS_SUCCESS; }
    return runner->gemm->api->cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                             &operands->bias, sizeof operands->bias);
}

/* Enqueues a plan's product by cuBLASLt. */
static cublasStatus_t multiply(struct cuda_gemm_runner *runner, const struct cuda_gemm_plan *plan,
                               const cublasLtMatmulAlgo_t *algorithm, const struct cuda_gemm_operands *operands)
{
    const bool adds = plan->key.shape.epilogue == CUDA_EPILOGUE_BIAS_RESIDUAL;
    const float alpha = 1.0f;
    const float beta = adds ? 1.0f : 0.0f;
    const void *added = adds ? operands->residual : operands->to;
    cublasStatus_t answer = set_bias(runner, plan, operands);
    if (answer != CUBLAS_STATUS_SUCCESS) { return answer; }
    return runner->gemm->api->cublasLtMatmul(runner->lt, plan->desc, &alpha, operands->weight, plan->weight,
                                             operands->from, plan->from, &beta, added, plan->to, operands->to, plan->to,
                                             algorithm, runner->workspace, runner->gemm->workspace_bytes,
                                             runner->queue.cuda_stream);
}

/* --- timing --- */

/* cuBLASLt's heuristics guess well, but on many shapes their first guess is not the fastest.
 *
 * Each candidate runs once unmeasured, which loads its code, and once measured. Those close to the fastest then run in
 * turns, so that a drifting clock affects all alike; the minimum counts. They run as graphs of several products, as in
 * production: a product of a few microseconds launched alone would only show the launch. A later candidate must win
 * clearly, because otherwise noise would choose between equals.
 *
 * For a product of time t this costs 16 candidates * 2 * t, then about six * 3 rounds * max(60 us, t), and about 0.1 ms
 * per graph: 2 ms for most products, so 8 ms for a new size of pass (MiniLM, BERT-base) and 40 ms for the sizes of a
 * calibration. */

enum { DEFAULT_CANDIDATES = 16 };
enum { CANDIDATES_MAX = 16, ROUNDS = 3, LAUNCHES_MAX = 8 };
static const float round_ms = 0.06f;  /* of a candidate in a round, or one launch if that is longer */
static const float far_behind = 1.3f; /* drop candidates slower than this times the fastest */
static const float noise_ms = 0.005f; /* plus this: the resolution of events */
static const float clearly = 0.98f;   /* a later candidate must beat this share of the best time */

struct tuning {
    struct cuda_gemm_runner *runner;
    const struct cuda_gemm_plan *plan;
    const struct cuda_gemm_operands *operands;
    cublasLtMatmulHeuristicResult_t candidates[CANDIDATES_MAX];
    bool dropped[CANDIDATES_MAX];          /* it fails or is far behind */
    float best_ms[CANDIDATES_MAX];         /* of one product; FLT_MAX: not measured yet */
    cudaGraphExec_t graph[CANDIDATES_MAX]; /* of `launches` products; NULL: launched one by one */
    int count, launches;
};

/* Asks for algorithms that sum in f32 throughout and fit our scratch memory. */
static enum status ask_heuristics(struct tuning *tuning, cublasLtMatmulPreference_t preference, struct err *err)
{
    static const char what[] = "asking for algorithms";
    const struct cuda_gemm *gemm = tuning->runner->gemm;
    const struct cuda_api *api = gemm->api;
    const struct cuda_gemm_plan *plan = tuning->plan;
    uint64_t workspace_bytes = gemm->workspace_bytes;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    int wanted = gemm->candidates < CANDIDATES_MAX ? (int)gemm->candidates : CANDIDATES_MAX;
    TRY(cuda_blas_check(api,
                        api->cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                                  &workspace_bytes, sizeof workspace_bytes),
                        what, err));
    TRY(cuda_blas_check(api,
                        api->cublasLtMatmulPreferenceSetAttribute(
                            preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions),
                        what, err));
    cublasStatus_t answer =
        api->cublasLtMatmulAlgoGetHeuristic(tuning->runner->lt, plan->desc, plan->weight, plan->from, plan->to,
                                            plan->to, preference, wanted, tuning->candidates, &tuning->count);
    if (answer == CUBLAS_STATUS_NOT_SUPPORTED) {
        tuning->count = 0; /* none offered */
        return STATUS_OK;
    }
    return cuda_blas_check(api, answer, what, err);
}

static enum status collect(struct tuning *tuning, struct err *err)
{
    const struct cuda_api *api = tuning->runner->gemm->api;
    cublasLtMatmulPreference_t preference;
    TRY(cuda_blas_check(api, api->cublasLtMatmulPreferenceCreate(&preference), "asking for algorithms", err));
    enum status status = ask_heuristics(tuning, preference, err);
    api->cublasLtMatmulPreferenceDestroy(preference);
    TRY(status);
    for (int i = 0; i < tuning->count; i++) {
        tuning->dropped[i] = tuning->candidates[i].state != CUBLAS_STATUS_SUCCESS;
        tuning->best_ms[i] = FLT_MAX;
    }
    return STATUS_OK;
}

static bool ends_it(enum status status)
{
    return status == STATUS_DEVICE_LOST || status == STATUS_NO_MEMORY;
}

/* Enqueues a candidate, as its graph if it has one. A failing candidate is dropped; a lost device or missing memory is
 * the caller's error. */
static enum status enqueue(struct tuning *tuning, int candidate, int launches, struct err *err)
{
    static const char what[] = "timing a product";
    struct cuda_gemm_runner *runner = tuning->runner;
    const struct cuda_api *api = runner->gemm->api;
    cublasStatus_t answer = CUBLAS_STATUS_SUCCESS;
    enum status status = STATUS_OK;
    if (tuning->graph[candidate]) {
        status = cuda_check(api, api->cudaGraphLaunch(tuning->graph[candidate], runner->queue.cuda_stream), what, err);
        tuning->dropped[candidate] = status != STATUS_OK;
        return ends_it(status) ? status : STATUS_OK;
    }
    for (int i = 0; i < launches && answer == CUBLAS_STATUS_SUCCESS; i++) {
        answer = multiply(runner, tuning->plan, &tuning->candidates[candidate].algo, tuning->operands);
    }
    tuning->dropped[candidate] = answer != CUBLAS_STATUS_SUCCESS;
    status = cuda_blas_check(api, answer, what, err);
    return ends_it(status) ? status : STATUS_OK;
}

/* Times some launches of a candidate between two events. */
static enum status run(struct tuning *tuning, int candidate, int launches, float *one_ms, struct err *err)
{
    static const char what[] = "timing a product";
    struct cuda_gemm_runner *runner = tuning->runner;
    const struct cuda_api *api = runner->gemm->api;
    cudaStream_t cuda_stream = runner->queue.cuda_stream;
    TRY(cuda_check(api, api->cudaEventRecord(runner->begin, cuda_stream), what, err));
    enum status status = enqueue(tuning, candidate, launches, err);
    TRY(cuda_check(api, api->cudaEventRecord(runner->end, cuda_stream), what, err));
    TRY(cuda_check(api, api->cudaEventSynchronize(runner->end), what, err));
    TRY(cuda_check(api, api->cudaEventElapsedTime(one_ms, runner->begin, runner->end), what, err));
    *one_ms /= (float)launches;
    return status;
}

static enum status measure(struct tuning *tuning, int candidate, int launches, struct err *err)
{
    float ms = FLT_MAX;
    TRY(run(tuning, candidate, launches, &ms, err));
    if (ms < tuning->best_ms[candidate]) { tuning->best_ms[candidate] = ms; }
    return STATUS_OK;
}

static float least_ms(const struct tuning *tuning)
{
    float ms = FLT_MAX;
    for (int i = 0; i < tuning->count; i++) {
        ms = !tuning->dropped[i] && tuning->best_ms[i] < ms ? tuning->best_ms[i] : ms;
    }
    return ms;
}

/* Captures a candidate's launches as a graph. */
static enum status capture(struct tuning *tuning, int candidate, struct err *err)
{
    static const char what[] = "capturing a product";
    struct cuda_gemm_runner *runner = tuning->runner;
    const struct cuda_api *api = runner->gemm->api;
    cudaStream_t cuda_stream = runner->queue.cuda_stream;
    cudaGraph_t graph = NULL;
    TRY(cuda_check(api, api->cudaStreamBeginCapture(cuda_stream, cudaStreamCaptureModeThreadLocal), what, err));
    enum status status = enqueue(tuning, candidate, tuning->launches, err);
    enum status ended =
        cuda_check(api, api->cudaStreamEndCapture(cuda_stream, &graph), what, status == STATUS_OK ? err : NULL);
    status = status == STATUS_OK ? ended : status;
    if (status == STATUS_OK) {
        status = cuda_check(api, api->cudaGraphInstantiate(&tuning->graph[candidate], graph, 0), what, err);
    }
    if (status != STATUS_OK) { tuning->graph[candidate] = NULL; }
    if (graph) { (void)api->cudaGraphDestroy(graph); }
    return status;
}

static void drop_graphs(struct tuning *tuning)
{
    for (int i = 0; i < tuning->count; i++) {
        if (tuning->graph[i]) { (void)tuning->runner->gemm->api->cudaGraphExecDestroy(tuning->graph[i]); }
        tuning->graph[i] = NULL;
    }
}

/* A candidate that cannot be captured is useless in a pass's graph and is dropped. If none can be captured, they are
 * launched one by one. */
static enum status capture_all(struct tuning *tuning, struct err *err)
{
    bool fails[CANDIDATES_MAX] = {false}, captured = false;
    for (int i = 0; i < tuning->count; i++) {
        if (tuning->dropped[i]) { continue; }
        enum status status = capture(tuning, i, err);
        if (ends_it(status)) { return status; }
        fails[i] = !tuning->graph[i];
        captured = captured || tuning->graph[i];
    }
    for (int i = 0; i < tuning->count; i++) { tuning->dropped[i] = fails[i] ? captured : tuning->dropped[i]; }
    return STATUS_OK;
}

static int left(const struct tuning *tuning)
{
    int count = 0;
    for (int i = 0; i < tuning->count; i++) { count += !tuning->dropped[i]; }
    return count;
}

static enum status last_rounds(struct tuning *tuning, struct err *err)
{
    TRY(capture_all(tuning, err));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < tuning->count; i++) {
            if (!tuning->dropped[i]) { TRY(measure(tuning, i, tuning->launches, err)); }
        }
    }
    return STATUS_OK;
}

static enum status tune(struct tuning *tuning, struct err *err)
{
    for (int i = 0; i < tuning->count; i++) {
        float unmeasured;
        if (!tuning->dropped[i]) { TRY(run(tuning, i, 1, &unmeasured, err)); }
        if (!tuning->dropped[i]) { TRY(measure(tuning, i, 1, err)); }
    }
    float bound_ms = least_ms(tuning) * far_behind + noise_ms;
    float launches = round_ms / (least_ms(tuning) + 1e-6f);
    tuning->launches = (int)(launches > LAUNCHES_MAX ? LAUNCHES_MAX : launches < 1.0f ? 1.0f : launches);
    for (int i = 0; i < tuning->count; i++) {
        tuning->dropped[i] = tuning->dropped[i] || tuning->best_ms[i] > bound_ms;
    }
    if (left(tuning) < 2) { return STATUS_OK; }
    for (int i = 0; i < tuning->count; i++) {
        tuning->best_ms[i] = FLT_MAX; /* these times include the launch; graphs do not */
    }
    enum status status = last_rounds(tuning, err);
    drop_graphs(tuning);
    return status;
}

/* The first candidate that no later one beats clearly; -1: none works. */
static int fastest(const struct tuning *tuning)
{
    int best = -1;
    for (int i = 0; i < tuning->count; i++) {
        if (!tuning->dropped[i] && (best < 0 || tuning->best_ms[i] < clearly * tuning->best_ms[best])) { best = i; }
    }
    return best;
}

/* Chooses the fastest candidate, or cublasGemmEx when none works. Errors: STATUS_DEVICE_LOST, STATUS_NO_MEMORY,
 * STATUS_INTERNAL. */
static enum status choose_algorithm(struct cuda_gemm_runner *runner, const struct cuda_gemm_plan *plan,
                                    const struct cuda_gemm_operands *operands, struct gemm_pick *out, struct err *err)
{
    struct tuning tuning = {.runner = runner, .plan = plan, .operands = operands};
    bool timed = runner->gemm->candidates > 1;
    TRY(collect(&tuning, err));
    if (timed) { TRY(tune(&tuning, err)); }
    int best = fastest(&tuning);
    out->by_gemm_ex = best < 0;
    if (!out->by_gemm_ex) { out->algorithm = tuning.candidates[best].algo; }
    log_debug("gemm_timed", log_int("outputs", plan->key.shape.outputs), log_int("inputs", plan->key.shape.inputs),
              log_int("rows", plan->key.rows), log_int("epilogue", plan->key.shape.epilogue), log_int("chosen", best),
              log_int("of", tuning.count),
              log_int("ns", timed && best >= 0 ? (int64_t)(tuning.best_ms[best] * 1e6f) : 0));
    return STATUS_OK;
}

/* --- the device --- */

size_t cuda_gemm_workspace_bytes(const struct cuda_device *device)
{
    size_t wanted = device->capability >= 90 ? (size_t)32 << 20 : (size_t)8 << 20; /* NVIDIA's advice, rounded up */
    size_t share = device->memory_bytes / 256 / CUDA_GEMM_ALIGNMENT * CUDA_GEMM_ALIGNMENT;
    return share < wanted ? share : wanted;
}

enum status cuda_gemm_open(const struct cuda_gemm_options *options, struct cuda_gemm **out, struct err *err)
{
    struct cuda_gemm *gemm = calloc(1, sizeof *gemm);
    if (!gemm) { return err_set(err, STATUS_NO_MEMORY, "no memory for matrix products"); }
    gemm->api = options->api;
    gemm->candidates = options->candidates == 0 ? DEFAULT_CANDIDATES : options->candidates;
    gemm->workspace_bytes = cuda_gemm_workspace_bytes(options->device);
    pthread_mutex_init(&gemm->mutex, NULL);
    *out = gemm;
    return STATUS_OK;
}

void cuda_gemm_close(struct cuda_gemm *gemm)
{
    if (!gemm) { return; }
    pthread_mutex_destroy(&gemm->mutex);
    for (struct gemm_pick *next, *pick = gemm->picks; pick; pick = next) {
        next = pick->next;
        free(pick);
    }
    free(gemm);
}

/* --- chosen algorithms, shared by all runners --- */

static bool same_key(const struct gemm_key *a, const struct gemm_key *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* The key's pick, or NULL. The mutex is held. */
static const struct gemm_pick *find_pick(const struct cuda_gemm *gemm, const struct gemm_key *key)
{
    const struct gemm_pick *pick = gemm->picks;
    while (pick && !same_key(&pick->key, key)) { pick = pick->next; }
    return pick;
}

static bool recall_pick(struct cuda_gemm *gemm, struct gemm_pick *pick)
{
    pthread_mutex_lock(&gemm->mutex);
    const struct gemm_pick *found = find_pick(gemm, &pick->key);
    if (found) { *pick = *found; }
    pthread_mutex_unlock(&gemm->mutex);
    return found;
}

/* Stores a pick, or returns the one that another runner stored meanwhile: all runners must use the same. */
static enum status store_pick(struct cuda_gemm *gemm, struct gemm_pick *pick, struct err *err)
{
    struct gemm_pick *kept = malloc(sizeof *kept);
    if (!kept) { return err_set(err, STATUS_NO_MEMORY, "no memory for matrix products"); }
    pthread_mutex_lock(&gemm->mutex);
    const struct gemm_pick *found = find_pick(gemm, &pick->key);
    if (found) {
        *pick = *found;
        free(kept);
    } else {
        pick->next = gemm->picks;
        *kept = *pick;
        gemm->picks = kept;
    }
    pthread_mutex_unlock(&gemm->mutex);
    return STATUS_OK;
}

/* --- runners --- */

enum status cuda_gemm_runner_open(struct cuda_gemm *gemm, const struct kernel_queue *queue,
                                  struct cuda_gemm_runner **out, struct err *err)
{
    const struct cuda_api *api = gemm->api;
    struct cuda_gemm_runner *runner = calloc(1, sizeof *runner);
    if (!runner) { return err_set(err, STATUS_NO_MEMORY, "no memory for matrix products"); }
    runner->gemm = gemm;
    runner->queue = *queue;
    enum status status = cuda_blas_check(api, api->cublasLtCreate(&runner->lt), "opening cuBLASLt", err);
    if (status == STATUS_OK) {
        status = cuda_check(api, api->cudaMalloc(&runner->workspace, gemm->workspace_bytes),
                            "allocating a workspace for products", err);
    }
    if (status == STATUS_OK) {
        status =
            cuda_check(api, api->cudaEventCreateWithFlags(&runner->begin, cudaEventDefault), "making an event", err);
    }
    if (status == STATUS_OK) {
        status = cuda_check(api, api->cudaEventCreateWithFlags(&runner->end, cudaEventDefault), "making an event", err);
    }
    if (status != STATUS_OK) {
        cuda_gemm_runner_close(runner);
        return status;
    }
    *out = runner;
    return STATUS_OK;
}

static void plan_close(const struct cuda_api *api, struct cuda_gemm_plan *plan)
{
    if (plan->desc) { api->cublasLtMatmulDescDestroy(plan->desc); }
    if (plan->weight) { api->cublasLtMatrixLayoutDestroy(plan->weight); }
    if (plan->from) { api->cublasLtMatrixLayoutDestroy(plan->from); }
    if (plan->to) { api->cublasLtMatrixLayoutDestroy(plan->to); }
    free(plan);
}

void cuda_gemm_runner_close(struct cuda_gemm_runner *runner)
{
    if (!runner) { return; }
    const struct cuda_api *api = runner->gemm->api;
    for (struct cuda_gemm_plan *next, *plan = runner->plans; plan; plan = next) {
        next = plan->next;
        plan_close(api, plan);
    }
    if (runner->end) { api->cudaEventDestroy(runner->end); }
    if (runner->begin) { api->cudaEventDestroy(runner->begin); }
    if (runner->workspace) { api->cudaFree(runner->workspace); }
    if (runner->blas) { api->cublasDestroy_v2(runner->blas); }
    if (runner->lt) { api->cublasLtDestroy(runner->lt); }
    free(runner);
}

/* --- plans --- */

/* cuBLASLt is column-major: our row-major [rows, n] is its n x rows, and the product is weight^T * from. */
static cublasStatus_t describe(const struct cuda_api *api, struct cuda_gemm_plan *plan)
{
    static const cublasLtEpilogue_t epilogues[] = {
        [CUDA_EPILOGUE_NONE] = CUBLASLT_EPILOGUE_DEFAULT,
        [CUDA_EPILOGUE_BIAS] = CUBLASLT_EPILOGUE_BIAS,
        [CUDA_EPILOGUE_BIAS_GELU] = CUBLASLT_EPILOGUE_GELU_BIAS,
        [CUDA_EPILOGUE_BIAS_RELU] = CUBLASLT_EPILOGUE_RELU_BIAS,
        [CUDA_EPILOGUE_BIAS_RESIDUAL] = CUBLASLT_EPILOGUE_BIAS,
    };
    const struct cuda_gemm_shape *shape = &plan->key.shape;
    cudaDataType_t type = data_type(shape->type);
    cublasOperation_t transposed = CUBLAS_OP_T;
    cublasStatus_t answer = api->cublasLtMatmulDescCreate(&plan->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (answer == CUBLAS_STATUS_SUCCESS) {
        answer = api->cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                                     sizeof transposed);
    }
    if (answer == CUBLAS_STATUS_SUCCESS) {
        answer = api->cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                     &epilogues[shape->epilogue], sizeof epilogues[0]);
    }
    if (answer == CUBLAS_STATUS_SUCCESS) {
        answer = api->cublasLtMatrixLayoutCreate(&plan->weight, type, shape->inputs, shape->outputs, shape->inputs);
    }
    if (answer == CUBLAS_STATUS_SUCCESS) {
        answer = api->cublasLtMatrixLayoutCreate(&plan->from, type, shape->inputs, plan->key.rows, shape->inputs);
    }
    if (answer == CUBLAS_STATUS_SUCCESS) {
        answer = api->cublasLtMatrixLayoutCreate(&plan->to, type, shape->outputs, plan->key.rows, shape->outputs);
    }
    return answer;
}

/* cublasGemmEx uses our scratch memory, because a capture allows no allocation, and sums in f32 throughout. */
static cublasStatus_t set_up_blas(const struct cuda_gemm_runner *runner)
{
    const struct cuda_api *api = runner->gemm->api;
    cublasStatus_t answer = api->cublasSetStream_v2(runner->blas, runner->queue.cuda_stream);
    if (answer == CUBLAS_STATUS_SUCCESS) {
        answer = api->cublasSetWorkspace_v2(runner->blas, runner->workspace, runner->gemm->workspace_bytes);
    }
    if (answer == CUBLAS_STATUS_SUCCESS) {
        answer = api->cublasSetMathMode(runner->blas, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    }
    return answer;
}

static enum status open_blas(struct cuda_gemm_runner *runner, struct err *err)
{
    const struct cuda_api *api = runner->gemm->api;
    if (runner->blas) { return STATUS_OK; }
    if (!api->cublasCreate_v2) {
        return err_set(err, STATUS_UNSUPPORTED, "cuBLASLt has no algorithm for it, and there is no libcublas");
    }
    TRY(cuda_blas_check(api, api->cublasCreate_v2(&runner->blas), "opening cuBLAS", err));
    enum status status = cuda_blas_check(api, set_up_blas(runner), "setting up cuBLAS", err);
    if (status != STATUS_OK) {
        api->cublasDestroy_v2(runner->blas);
        runner->blas = NULL;
    }
    return status;
}

/* Sets the plan's algorithm: the known one, else the fastest, else cublasGemmEx. */
static enum status choose(struct cuda_gemm_runner *runner, struct cuda_gemm_plan *plan,
                          const struct cuda_gemm_operands *operands, struct err *err)
{
    TRY(cuda_blas_check(runner->gemm->api, set_bias(runner, plan, operands), "setting a bias", err));
    struct gemm_pick pick = {.key = plan->key};
    if (!recall_pick(runner->gemm, &pick)) {
        TRY(choose_algorithm(runner, plan, operands, &pick, err));
        TRY(store_pick(runner->gemm, &pick, err));
    }
    plan->algorithm = pick.algorithm;
    plan->by_gemm_ex = pick.by_gemm_ex;
    return plan->by_gemm_ex ? open_blas(runner, err) : STATUS_OK;
}

static enum status make_plan(struct cuda_gemm_runner *runner, const struct gemm_key *key,
                             const struct cuda_gemm_operands *operands, struct cuda_gemm_plan **out, struct err *err)
{
    struct cuda_gemm_plan *plan = calloc(1, sizeof *plan);
    if (!plan) { return err_set(err, STATUS_NO_MEMORY, "no memory for a matrix product"); }
    plan->key = *key;
    enum status status =
        cuda_blas_check(runner->gemm->api, describe(runner->gemm->api, plan), "describing a product", err);
    if (status == STATUS_OK) { status = choose(runner, plan, operands, err); }
    if (status != STATUS_OK) {
        err_prefix(err, "a product of %" PRIu32 " rows, %" PRIu32 " by %" PRIu32, key->rows, key->shape.outputs,
                   key->shape.inputs);
        plan_close(runner->gemm->api, plan);
        return status;
    }
    *out = plan;
    return STATUS_OK;
}

enum status cuda_gemm_prepare(struct cuda_gemm_runner *runner, const struct cuda_gemm_shape *shape, uint32_t rows,
                              const struct cuda_gemm_operands *operands, const struct cuda_gemm_plan **out,
                              struct err *err)
{
    const struct gemm_key key = {*shape, rows};
    struct cuda_gemm_plan *plan = runner->plans;
    while (plan && !same_key(&plan->key, &key)) { plan = plan->next; }
    if (!plan) {
        TRY(make_plan(runner, &key, operands, &plan, err));
        plan->next = runner->plans;
        runner->plans = plan;
    }
    *out = plan;
    return STATUS_OK;
}

/* --- running a plan --- */

static enum kernel_activation activation_of(enum cuda_epilogue epilogue)
{
    return epilogue == CUDA_EPILOGUE_BIAS_GELU   ? KERNEL_GELU_TANH
           : epilogue == CUDA_EPILOGUE_BIAS_RELU ? KERNEL_RELU
                                                 : KERNEL_IDENTITY;
}

static enum status add_bias(struct cuda_gemm_runner *runner, const struct cuda_gemm_plan *plan,
                            const struct cuda_gemm_operands *operands, struct err *err)
{
    const struct kernel_activate_args args = {
        .type = plan->key.shape.type,
        .activation = activation_of(plan->key.shape.epilogue),
        .bound = plan->key.rows,
        .width = plan->key.shape.outputs,
        .count = operands->count,
        .bias = operands->bias,
        .x = operands->to,
    };
    return cuda_check(runner->gemm->api, kernel_activate(&runner->queue, &args), "adding a bias", err);
}

/* Rounds once more than the single step does: before the bias is added. */
static enum status multiply_by_gemm_ex(struct cuda_gemm_runner *runner, const struct cuda_gemm_plan *plan,
                                       const struct cuda_gemm_operands *operands, struct err *err)
{
    const struct cuda_api *api = runner->gemm->api;
    const struct cuda_gemm_shape *shape = &plan->key.shape;
    const cudaDataType_t type = data_type(shape->type);
    const bool adds = shape->epilogue == CUDA_EPILOGUE_BIAS_RESIDUAL;
    const float alpha = 1.0f;
    const float beta = adds ? 1.0f : 0.0f;
    if (adds && operands->residual != operands->to) {
        TRY(cuda_check(api,
                       api->cudaMemcpyAsync(operands->to, operands->residual,
                                            (size_t)plan->key.rows * shape->outputs * kernel_type_bytes(shape->type),
                                            cudaMemcpyDeviceToDevice, runner->queue.cuda_stream),
                       "copying a residual", err));
    }
    TRY(cuda_blas_check(api,
                        api->cublasGemmEx(runner->blas, CUBLAS_OP_T, CUBLAS_OP_N, (int)shape->outputs,
                                          (int)plan->key.rows, (int)shape->inputs, &alpha, operands->weight, type,
                                          (int)shape->inputs, operands->from, type, (int)shape->inputs, &beta,
                                          operands->to, type, (int)shape->outputs, CUBLAS_COMPUTE_32F,
                                          CUBLAS_GEMM_DEFAULT),
                        "cublasGemmEx", err));
    return shape->epilogue == CUDA_EPILOGUE_NONE ? STATUS_OK : add_bias(runner, plan, operands, err);
}

static bool is_aligned(const void *address, uintptr_t to)
{
    return (uintptr_t)address % to == 0;
}

enum status cuda_gemm_run(struct cuda_gemm_runner *runner, const struct cuda_gemm_plan *plan,
                          const struct cuda_gemm_operands *operands, struct err *err)
{
    assert(is_aligned(operands->from, CUDA_GEMM_ALIGNMENT) && is_aligned(operands->weight, CUDA_GEMM_ALIGNMENT));
    assert(is_aligned(operands->to, CUDA_GEMM_ALIGNMENT));
    assert(plan->key.shape.epilogue != CUDA_EPILOGUE_BIAS_RESIDUAL ||
           is_aligned(operands->residual, CUDA_GEMM_ALIGNMENT));
    assert(plan->key.shape.epilogue == CUDA_EPILOGUE_NONE || is_aligned(operands->bias, CUDA_GEMM_BIAS_ALIGNMENT));
    if (plan->by_gemm_ex) { return multiply_by_gemm_ex(runner, plan, operands, err); }
    cublasStatus_t answer = multiply(runner, plan, &plan->algorithm, operands);
    return cuda_blas_check(runner->gemm->api, answer, "a product", err);
}
