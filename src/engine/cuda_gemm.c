/* What a device knows of products, and runners beside it; the way from a product to its plan. See cuda_gemm.h. */
#include "engine/cuda_gemm.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cuda_gemm_parts.h"

enum { DEFAULT_CANDIDATES = 16 };

/* The device */

size_t gemm_workspace_bytes(const struct cuda_device *device)
{
    size_t wanted =
        device->capability >= 90 ? (size_t)32 << 20 : (size_t)8 << 20; /* what NVIDIA advises, and a little */
    size_t share = device->memory_bytes / 256 / GEMM_ALIGNMENT * GEMM_ALIGNMENT;
    return share < wanted ? share : wanted;
}

enum status gemm_open(const struct gemm_options *options, struct gemm **out, struct err *err)
{
    struct gemm *gemm = calloc(1, sizeof *gemm);
    if (!gemm) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for matrix products");
    }
    gemm->api = options->api;
    gemm->candidates = options->candidates == 0 ? DEFAULT_CANDIDATES : options->candidates;
    gemm->workspace_bytes = gemm_workspace_bytes(options->device);
    pthread_mutex_init(&gemm->mutex, NULL);
    *out = gemm;
    return STATUS_OK;
}

void gemm_close(struct gemm *gemm)
{
    if (!gemm) {
        return;
    }
    pthread_mutex_destroy(&gemm->mutex);
    free(gemm->picks);
    free(gemm);
}

/* What is known of algorithms */

static int compare(uint32_t a, uint32_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_keys(const struct gemm_key *a, const struct gemm_key *b)
{
    int order = compare(a->shape.type, b->shape.type);
    order = order != 0 ? order : compare(a->shape.after, b->shape.after);
    order = order != 0 ? order : compare(a->shape.outputs, b->shape.outputs);
    order = order != 0 ? order : compare(a->shape.inputs, b->shape.inputs);
    return order != 0 ? order : compare(a->rows, b->rows);
}

/* Where the key's pick is, or would stand. The mutex is held. */
static size_t pick_place(const struct gemm *gemm, const struct gemm_key *key)
{
    size_t low = 0, high = gemm->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_keys(&gemm->picks[middle].key, key) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool find_pick(struct gemm *gemm, const struct gemm_key *key, struct gemm_pick *out)
{
    pthread_mutex_lock(&gemm->mutex);
    size_t place = pick_place(gemm, key);
    bool found = place < gemm->count && compare_keys(&gemm->picks[place].key, key) == 0;
    if (found) {
        *out = gemm->picks[place];
    }
    pthread_mutex_unlock(&gemm->mutex);
    return found;
}

/* The mutex is held. */
static enum status insert_pick(struct gemm *gemm, size_t place, const struct gemm_pick *pick, struct err *err)
{
    if (gemm->count == gemm->room) {
        size_t room = gemm->room * 2 + 64;
        struct gemm_pick *picks = realloc(gemm->picks, room * sizeof *picks);
        if (!picks) {
            return err_set(err, STATUS_NO_MEMORY, "no memory for matrix products");
        }
        gemm->picks = picks;
        gemm->room = room;
    }
    memmove(&gemm->picks[place + 1], &gemm->picks[place], (gemm->count - place) * sizeof *pick);
    gemm->picks[place] = *pick;
    gemm->count++;
    return STATUS_OK;
}

/* Stores what one runner has found, unless another was faster: all must use the same. */
static enum status store_pick(struct gemm *gemm, struct gemm_pick *pick, struct err *err)
{
    enum status status = STATUS_OK;
    pthread_mutex_lock(&gemm->mutex);
    size_t place = pick_place(gemm, &pick->key);
    if (place < gemm->count && compare_keys(&gemm->picks[place].key, &pick->key) == 0) {
        *pick = gemm->picks[place];
    } else {
        status = insert_pick(gemm, place, pick, err);
    }
    pthread_mutex_unlock(&gemm->mutex);
    return status;
}

/* Runners */

enum status gemm_runner_open(struct gemm *gemm, const struct kernel_queue *queue, struct gemm_runner **out,
                             struct err *err)
{
    const struct cuda_api *api = gemm->api;
    struct gemm_runner *runner = calloc(1, sizeof *runner);
    if (runner == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for matrix products");
    runner->gemm = gemm;
    runner->queue = *queue;
    enum status status = cuda_blas_check(api, api->cublasLtCreate(&runner->lt), "opening cuBLASLt", err);
    if (status == STATUS_OK)
        status = cuda_check(api, api->cudaMalloc(&runner->workspace, gemm->workspace_bytes),
                            "allocating a workspace for products", err);
    if (status == STATUS_OK)
        status =
            cuda_check(api, api->cudaEventCreateWithFlags(&runner->begin, cudaEventDefault), "making an event", err);
    if (status == STATUS_OK)
        status = cuda_check(api, api->cudaEventCreateWithFlags(&runner->end, cudaEventDefault), "making an event", err);
    if (status != STATUS_OK) {
        gemm_runner_close(runner);
        return status;
    }
    *out = runner;
    return STATUS_OK;
}

static void plan_close(const struct cuda_api *api, struct gemm_plan *plan)
{
    if (plan->desc != NULL)
        api->cublasLtMatmulDescDestroy(plan->desc);
    if (plan->weight != NULL)
        api->cublasLtMatrixLayoutDestroy(plan->weight);
    if (plan->from != NULL)
        api->cublasLtMatrixLayoutDestroy(plan->from);
    if (plan->to != NULL)
        api->cublasLtMatrixLayoutDestroy(plan->to);
    free(plan);
}

void gemm_runner_close(struct gemm_runner *runner)
{
    if (runner == NULL)
        return;
    const struct cuda_api *api = runner->gemm->api;
    for (size_t i = 0; i < runner->count; i++)
        plan_close(api, runner->plans[i]);
    free(runner->plans);
    if (runner->end != NULL)
        api->cudaEventDestroy(runner->end);
    if (runner->begin != NULL)
        api->cudaEventDestroy(runner->begin);
    if (runner->workspace != NULL)
        api->cudaFree(runner->workspace);
    if (runner->blas != NULL)
        api->cublasDestroy_v2(runner->blas);
    if (runner->lt != NULL)
        api->cublasLtDestroy(runner->lt);
    free(runner);
}

/* Making a plan */

/* cuBLASLt counts columns first: our row-major [rows, n] is its n x rows, and a product is weight^T * from. */
static cublasStatus_t describe(const struct cuda_api *api, struct gemm_plan *plan)
{
    static const cublasLtEpilogue_t epilogues[] = {
        [GEMM_ALONE] = CUBLASLT_EPILOGUE_DEFAULT,       [GEMM_BIAS] = CUBLASLT_EPILOGUE_BIAS,
        [GEMM_BIAS_GELU] = CUBLASLT_EPILOGUE_GELU_BIAS, [GEMM_BIAS_RELU] = CUBLASLT_EPILOGUE_RELU_BIAS,
        [GEMM_BIAS_RESIDUAL] = CUBLASLT_EPILOGUE_BIAS,
    };
    const struct gemm_shape *shape = &plan->key.shape;
    cudaDataType_t type = gemm_data_type(shape->type);
    cublasOperation_t transposed = CUBLAS_OP_T;
    cublasStatus_t answer = api->cublasLtMatmulDescCreate(&plan->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (answer == CUBLAS_STATUS_SUCCESS)
        answer = api->cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                                     sizeof transposed);
    if (answer == CUBLAS_STATUS_SUCCESS)
        answer = api->cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                     &epilogues[shape->after], sizeof epilogues[0]);
    if (answer == CUBLAS_STATUS_SUCCESS)
        answer = api->cublasLtMatrixLayoutCreate(&plan->weight, type, shape->inputs, shape->outputs, shape->inputs);
    if (answer == CUBLAS_STATUS_SUCCESS)
        answer = api->cublasLtMatrixLayoutCreate(&plan->from, type, shape->inputs, plan->key.rows, shape->inputs);
    if (answer == CUBLAS_STATUS_SUCCESS)
        answer = api->cublasLtMatrixLayoutCreate(&plan->to, type, shape->outputs, plan->key.rows, shape->outputs);
    return answer;
}

/* cuBLAS as the plain products need it: our workspace, so that nothing is allocated in a capture, and whole sums. */
static cublasStatus_t set_up_blas(const struct gemm_runner *runner)
{
    const struct cuda_api *api = runner->gemm->api;
    cublasStatus_t answer = api->cublasSetStream_v2(runner->blas, runner->queue.stream);
    if (answer == CUBLAS_STATUS_SUCCESS)
        answer = api->cublasSetWorkspace_v2(runner->blas, runner->workspace, runner->gemm->workspace_bytes);
    if (answer == CUBLAS_STATUS_SUCCESS)
        answer = api->cublasSetMathMode(runner->blas, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    return answer;
}

static enum status open_blas(struct gemm_runner *runner, struct err *err)
{
    const struct cuda_api *api = runner->gemm->api;
    if (runner->blas != NULL)
        return STATUS_OK;
    if (api->cublasCreate_v2 == NULL)
        return err_set(err, STATUS_UNSUPPORTED, "cuBLASLt has no algorithm for it, and there is no libcublas");
    TRY(cuda_blas_check(api, api->cublasCreate_v2(&runner->blas), "opening cuBLAS", err));
    enum status status = cuda_blas_check(api, set_up_blas(runner), "setting up cuBLAS", err);
    if (status != STATUS_OK) {
        api->cublasDestroy_v2(runner->blas);
        runner->blas = NULL;
    }
    return status;
}

/* Finds the plan's algorithm: the one that is known, else the fastest; where there is none, cublasGemmEx's. */
static enum status choose(struct gemm_runner *runner, struct gemm_plan *plan, const struct gemm_operands *operands,
                          struct err *err)
{
    TRY(cuda_blas_check(runner->gemm->api, gemm_set_bias(runner, plan, operands), "setting a bias", err));
    struct gemm_pick pick = {.key = plan->key};
    if (!find_pick(runner->gemm, &plan->key, &pick)) {
        TRY(gemm_time(runner, plan, operands, &pick, err));
        TRY(store_pick(runner->gemm, &pick, err));
    }
    plan->algorithm = pick.algorithm;
    plan->plain = pick.plain;
    return plan->plain ? open_blas(runner, err) : STATUS_OK;
}

static enum status make_plan(struct gemm_runner *runner, const struct gemm_key *key,
                             const struct gemm_operands *operands, struct gemm_plan **out, struct err *err)
{
    struct gemm_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for a matrix product");
    plan->key = *key;
    enum status status =
        cuda_blas_check(runner->gemm->api, describe(runner->gemm->api, plan), "describing a product", err);
    if (status == STATUS_OK)
        status = choose(runner, plan, operands, err);
    if (status != STATUS_OK) {
        err_prefix(err, "a product of %" PRIu32 " rows, %" PRIu32 " by %" PRIu32, key->rows, key->shape.outputs,
                   key->shape.inputs);
        plan_close(runner->gemm->api, plan);
        return status;
    }
    *out = plan;
    return STATUS_OK;
}

/* Where the key's plan is, or would stand. */
static size_t place_of(const struct gemm_runner *runner, const struct gemm_key *key)
{
    size_t low = 0;
    size_t high = runner->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_keys(&runner->plans[middle]->key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

enum status gemm_prepare(struct gemm_runner *runner, const struct gemm_shape *shape, uint32_t rows,
                         const struct gemm_operands *operands, const struct gemm_plan **out, struct err *err)
{
    const struct gemm_key key = {*shape, rows};
    size_t place = place_of(runner, &key);
    if (place < runner->count && compare_keys(&runner->plans[place]->key, &key) == 0) {
        *out = runner->plans[place];
        return STATUS_OK;
    }
    if (runner->count == runner->room) {
        size_t room = runner->room * 2 + 16;
        struct gemm_plan **plans = realloc(runner->plans, room * sizeof(struct gemm_plan *));
        if (plans == NULL)
            return err_set(err, STATUS_NO_MEMORY, "no memory for matrix products");
        runner->plans = plans;
        runner->room = room;
    }
    struct gemm_plan *plan = NULL;
    TRY(make_plan(runner, &key, operands, &plan, err));
    memmove(&runner->plans[place + 1], &runner->plans[place], (runner->count - place) * sizeof(struct gemm_plan *));
    runner->plans[place] = plan;
    runner->count++;
    *out = plan;
    return STATUS_OK;
}
