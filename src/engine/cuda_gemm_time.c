/* Timing what cuBLASLt's heuristics offer: they guess well, but on many shapes the first guess is not the fastest.
 *
 * Every candidate runs once unmeasured (its code is loaded then) and once measured; those that are not far behind run
 * some more, in turns, so that a clock that drifts hits all alike; the least time of each counts. They run as graphs of
 * several products then, as they do at work: launched one by one, a product of a few microseconds would take as long as
 * its launch, whatever the algorithm. A later candidate must be clearly faster than an earlier one: noise would else
 * choose between two that are as fast.
 *
 * What it costs, for a product of t: 16 candidates * 2 * t, then about six of them * 3 rounds * max(60 us, t), and
 * about 0.1 ms each for making the graphs: 2 ms for most products, so 8 ms when a size of passes is first met (of a
 * model of MiniLM's or BERT-base's size) and 40 ms for the sizes of a calibration. */
#include <float.h>

#include "base/log.h"
#include "engine/cuda_gemm_parts.h"

enum { CANDIDATES_MAX = 16, ROUNDS = 3, LAUNCHES_MAX = 8 };
static const float round_ms = 0.06f;  /* what a candidate may take in a round, if one launch does not take longer */
static const float far_behind = 1.3f; /* times the fastest's time, */
static const float noise_ms = 0.005f; /* and this much more: by that an event may be wrong */
static const float clearly = 0.98f;   /* of another's time */

struct race {
    struct gemm_runner *runner;
    const struct gemm_plan *plan;
    const struct gemm_operands *operands;
    cublasLtMatmulHeuristicResult_t candidates[CANDIDATES_MAX];
    bool out[CANDIDATES_MAX];              /* it does not work, or is far behind */
    float best_ms[CANDIDATES_MAX];         /* of one product; FLT_MAX: not measured yet */
    cudaGraphExec_t graph[CANDIDATES_MAX]; /* of `launches` products; NULL: they are launched one by one */
    int count, launches;
};

/* Asks for algorithms that keep whole sums in f32 and fit our workspace. */
static cublasStatus_t offer(struct race *race, cublasLtMatmulPreference_t preference)
{
    const struct gemm *gemm = race->runner->gemm;
    const struct cuda_api *api = gemm->api;
    const struct gemm_plan *plan = race->plan;
    uint64_t workspace_bytes = gemm->workspace_bytes;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    int wanted = gemm->candidates < CANDIDATES_MAX ? (int)gemm->candidates : CANDIDATES_MAX;
    cublasStatus_t answer = api->cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes, sizeof workspace_bytes);
    if (answer == CUBLAS_STATUS_SUCCESS)
        answer = api->cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                           &reductions, sizeof reductions);
    if (answer == CUBLAS_STATUS_SUCCESS)
        answer = api->cublasLtMatmulAlgoGetHeuristic(race->runner->lt, plan->desc, plan->weight, plan->from, plan->to,
                                                     plan->to, preference, wanted, race->candidates, &race->count);
    if (answer != CUBLAS_STATUS_NOT_SUPPORTED)
        return answer;
    race->count = 0; /* nothing is offered */
    return CUBLAS_STATUS_SUCCESS;
}

static enum status collect(struct race *race, struct err *err)
{
    const struct cuda_api *api = race->runner->gemm->api;
    cublasLtMatmulPreference_t preference;
    TRY(cuda_blas_check(api, api->cublasLtMatmulPreferenceCreate(&preference), "asking for algorithms", err));
    cublasStatus_t answer = offer(race, preference);
    api->cublasLtMatmulPreferenceDestroy(preference);
    TRY(cuda_blas_check(api, answer, "asking for algorithms", err));
    for (int i = 0; i < race->count; i++) {
        race->out[i] = race->candidates[i].state != CUBLAS_STATUS_SUCCESS;
        race->best_ms[i] = FLT_MAX;
    }
    return STATUS_OK;
}

static bool ends_it(enum status status)
{
    return status == STATUS_DEVICE_LOST || status == STATUS_NO_MEMORY;
}

/* Enqueues a candidate, by its graph if it has one. One that fails is out, unless the device or its memory failed. */
static enum status enqueue(struct race *race, int candidate, int launches, struct err *err)
{
    static const char what[] = "timing a product";
    struct gemm_runner *runner = race->runner;
    const struct cuda_api *api = runner->gemm->api;
    cublasStatus_t answer = CUBLAS_STATUS_SUCCESS;
    enum status status = STATUS_OK;
    if (race->graph[candidate]) {
        status = cuda_check(api, api->cudaGraphLaunch(race->graph[candidate], runner->queue.stream), what, err);
        race->out[candidate] = status != STATUS_OK;
        return ends_it(status) ? status : STATUS_OK;
    }
    for (int i = 0; i < launches && answer == CUBLAS_STATUS_SUCCESS; i++) {
        answer = gemm_multiply(runner, race->plan, &race->candidates[candidate].algo, race->operands);
    }
    race->out[candidate] = answer != CUBLAS_STATUS_SUCCESS;
    status = cuda_blas_check(api, answer, what, err);
    return ends_it(status) ? status : STATUS_OK;
}

/* Runs a candidate some times between two events. */
static enum status run(struct race *race, int candidate, int launches, float *one_ms, struct err *err)
{
    static const char what[] = "timing a product";
    struct gemm_runner *runner = race->runner;
    const struct cuda_api *api = runner->gemm->api;
    cudaStream_t stream = runner->queue.stream;
    TRY(cuda_check(api, api->cudaEventRecord(runner->begin, stream), what, err));
    enum status status = enqueue(race, candidate, launches, err);
    TRY(cuda_check(api, api->cudaEventRecord(runner->end, stream), what, err));
    TRY(cuda_check(api, api->cudaEventSynchronize(runner->end), what, err));
    TRY(cuda_check(api, api->cudaEventElapsedTime(one_ms, runner->begin, runner->end), what, err));
    *one_ms /= (float)launches;
    return status;
}

static enum status measure(struct race *race, int candidate, int launches, struct err *err)
{
    float ms = FLT_MAX;
    TRY(run(race, candidate, launches, &ms, err));
    if (ms < race->best_ms[candidate])
        race->best_ms[candidate] = ms;
    return STATUS_OK;
}

static float least(const struct race *race)
{
    float ms = FLT_MAX;
    for (int i = 0; i < race->count; i++)
        ms = !race->out[i] && race->best_ms[i] < ms ? race->best_ms[i] : ms;
    return ms;
}

/* Makes a graph of a candidate's launches. */
static enum status capture(struct race *race, int candidate, struct err *err)
{
    static const char what[] = "capturing a product";
    struct gemm_runner *runner = race->runner;
    const struct cuda_api *api = runner->gemm->api;
    cudaStream_t stream = runner->queue.stream;
    cudaGraph_t graph = NULL;
    TRY(cuda_check(api, api->cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), what, err));
    enum status status = enqueue(race, candidate, race->launches, err);
    enum status ended =
        cuda_check(api, api->cudaStreamEndCapture(stream, &graph), what, status == STATUS_OK ? err : NULL);
    status = status == STATUS_OK ? ended : status;
    if (status == STATUS_OK) {
        status = cuda_check(api, api->cudaGraphInstantiate(&race->graph[candidate], graph, 0), what, err);
    }
    if (status != STATUS_OK) {
        race->graph[candidate] = NULL;
    }
    if (graph) {
        (void)api->cudaGraphDestroy(graph);
    }
    return status;
}

static void drop_graphs(struct race *race)
{
    for (int i = 0; i < race->count; i++) {
        if (race->graph[i]) {
            (void)race->runner->gemm->api->cudaGraphExecDestroy(race->graph[i]);
        }
        race->graph[i] = NULL;
    }
}

/* One that cannot be captured is out, as it would be of no use in a pass's graph; where that is all of them, they are
 * launched one by one. */
static enum status capture_all(struct race *race, struct err *err)
{
    bool fails[CANDIDATES_MAX] = {false}, captured = false;
    for (int i = 0; i < race->count; i++) {
        if (race->out[i]) {
            continue;
        }
        enum status status = capture(race, i, err);
        if (ends_it(status)) {
            return status;
        }
        fails[i] = race->graph[i] == NULL;
        captured = captured || race->graph[i] != NULL;
    }
    for (int i = 0; i < race->count; i++) {
        race->out[i] = fails[i] ? captured : race->out[i];
    }
    return STATUS_OK;
}

static int left(const struct race *race)
{
    int count = 0;
    for (int i = 0; i < race->count; i++) {
        count += !race->out[i];
    }
    return count;
}

static enum status last_rounds(struct race *race, struct err *err)
{
    TRY(capture_all(race, err));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < race->count; i++) {
            if (!race->out[i]) {
                TRY(measure(race, i, race->launches, err));
            }
        }
    }
    return STATUS_OK;
}

static enum status hold(struct race *race, struct err *err)
{
    for (int i = 0; i < race->count; i++) {
        float unmeasured;
        if (!race->out[i])
            TRY(run(race, i, 1, &unmeasured, err));
        if (!race->out[i])
            TRY(measure(race, i, 1, err));
    }
    float bound_ms = least(race) * far_behind + noise_ms;
    float launches = round_ms / (least(race) + 1e-6f);
    race->launches = (int)(launches > LAUNCHES_MAX ? LAUNCHES_MAX : launches < 1.0f ? 1.0f : launches);
    for (int i = 0; i < race->count; i++)
        race->out[i] = race->out[i] || race->best_ms[i] > bound_ms;
    if (left(race) < 2) {
        return STATUS_OK;
    }
    for (int i = 0; i < race->count; i++) {
        race->best_ms[i] = FLT_MAX; /* with its launch; from here on without */
    }
    enum status status = last_rounds(race, err);
    drop_graphs(race);
    return status;
}

/* The first candidate that none after it beats clearly; -1: none works. */
static int winner(const struct race *race)
{
    int best = -1;
    for (int i = 0; i < race->count; i++) {
        if (!race->out[i] && (best < 0 || race->best_ms[i] < clearly * race->best_ms[best]))
            best = i;
    }
    return best;
}

enum status gemm_time(struct gemm_runner *runner, const struct gemm_plan *plan, const struct gemm_operands *operands,
                      struct gemm_pick *out, struct err *err)
{
    struct race race = {.runner = runner, .plan = plan, .operands = operands};
    bool timed = runner->gemm->candidates > 1;
    TRY(collect(&race, err));
    if (timed)
        TRY(hold(&race, err));
    int best = winner(&race);
    out->plain = best < 0;
    if (!out->plain) {
        out->algorithm = race.candidates[best].algo;
    }
    log_debug("gemm_timed", log_int("outputs", plan->key.shape.outputs), log_int("inputs", plan->key.shape.inputs),
              log_int("rows", plan->key.rows), log_int("after", plan->key.shape.after), log_int("chosen", best),
              log_int("of", race.count), log_int("ns", timed && best >= 0 ? (int64_t)(race.best_ms[best] * 1e6f) : 0));
    return STATUS_OK;
}
