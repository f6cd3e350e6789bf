/* A plan is a graph of one operation; its tensors give the beginning of each row by ragged offsets and its end by
 * lengths. Source: cuDNN backend API reference 9, "Graph API", CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR. */
#include "cudnn_attention.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DESCRIPTORS_MAX = 32, CONFIGS_MAX = 8, CONFIGS_TRIED = 4 };

/* The ids of a graph's tensors. */
enum tensor_name {
    QUERIES = 1,
    KEYS,
    VALUES,
    CONTEXT,
    QUERY_LENGTHS,
    KEY_LENGTHS,
    SCALE,
    QKV_STARTS,
    CONTEXT_STARTS,
};
enum { TENSORS = CONTEXT_STARTS };

struct cudnn_plan {
    struct cudnn_plan *next;
    uint32_t rows, longest;
    cudnn_descriptor made[DESCRIPTORS_MAX]; /* all of them, to destroy in the end */
    uint32_t made_count;
    cudnn_descriptor plan;
    struct err why; /* STATUS_OK: the plan exists; otherwise why it does not */
};

struct cudnn {
    struct cudnn_options options;
    int64_t hidden;
    cudnn_handle handle;
    struct cudnn_plan *plans;
};

/* --- the library ---------------------------------------------------------------------------------------------------
 *
 * It is opened at its first use: by its name, else in $CUDNN_PATH/lib (the folder of NVIDIA's Python wheel, which torch
 * installs), else in the toolkit's folder of libraries. */

#define LIBRARY "libcudnn.so.9"

/* The folder of libraries of the toolkit that this was built with. */
#ifndef SLUICE_CUDA_LIBRARY_DIR
#define SLUICE_CUDA_LIBRARY_DIR "/usr/local/cuda/lib64"
#endif

static void *open_library(void)
{
    const char *root = getenv("CUDNN_PATH");
    char path[1024];
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL && root != NULL) {
        snprintf(path, sizeof path, "%s/lib/" LIBRARY, root);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    if (library == NULL) { library = dlopen(SLUICE_CUDA_LIBRARY_DIR "/" LIBRARY, RTLD_NOW | RTLD_LOCAL); }
    return library;
}

static enum status fill_table(struct cudnn_api *api, struct err *err)
{
    void *library = open_library();
    if (library == NULL) {
        return err_set(err, STATUS_UNSUPPORTED,
                       "there is no " LIBRARY " in the library path, in $CUDNN_PATH/lib or in %s",
                       SLUICE_CUDA_LIBRARY_DIR);
    }
    const char *missing = NULL;
    void *symbol;
#define FIND(result, name, parameters)                                                                                 \
    symbol = dlsym(library, #name);                                                                                    \
    memcpy(&api->name, &symbol, sizeof symbol);                                                                        \
    missing = symbol == NULL ? #name : missing;
    CUDNN_CALLS(FIND)
#undef FIND
    if (missing != NULL) { return err_set(err, STATUS_UNSUPPORTED, LIBRARY " has no %s", missing); }
    if (api->cudnnGetVersion() < CUDNN_LEAST_VERSION) {
        return err_set(err, STATUS_UNSUPPORTED, LIBRARY " is version %zu, and %d has attention first",
                       api->cudnnGetVersion(), CUDNN_LEAST_VERSION);
    }
    return STATUS_OK;
}

static struct cudnn_api table;
static struct err reason; /* why the table could not be filled */

static void fill_once(void)
{
    if (fill_table(&table, &reason) == STATUS_OK) { reason.status = STATUS_OK; }
}

enum status cudnn_api_real(const struct cudnn_api **out, struct err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_once);
    if (reason.status != STATUS_OK) { return err_set(err, reason.status, "%s", reason.message); }
    *out = &table;
    return STATUS_OK;
}

/* The status of a cuDNN answer. cuDNN cannot tell a lost device from a failed call, so the runtime is asked. */
static enum status check(const struct cudnn *cudnn, int answer, const char *what, struct err *err)
{
    const struct cudnn_api *api = cudnn->options.api;
    size_t free_bytes, all_bytes;
    char last[200] = "";
    if (answer == DNN_SUCCESS) { return STATUS_OK; }
    TRY(cuda_check(cudnn->options.cuda, cudnn->options.cuda->cudaMemGetInfo(&free_bytes, &all_bytes), what, err));
    api->cudnnGetLastErrorString(last, sizeof last);
    enum status status = answer / 1000 * 1000 == DNN_NOT_SUPPORTED ? STATUS_UNSUPPORTED : STATUS_INTERNAL;
    return err_set(err, status, "cuDNN %zu failed (%s): %s, %s", api->cudnnGetVersion(), what,
                   api->cudnnGetErrorString(answer), last);
}

/* --- the graph -----------------------------------------------------------------------------------------------------
 */

struct maker {
    struct cudnn *cudnn;
    struct cudnn_plan *plan;
};

/* Makes a descriptor that the plan owns. */
static enum status make(const struct maker *m, enum cudnn_descriptor_type type, cudnn_descriptor *out, struct err *err)
{
    struct cudnn_plan *plan = m->plan;
    if (plan->made_count == DESCRIPTORS_MAX) {
        return err_set(err, STATUS_INTERNAL, "more than %d descriptors", DESCRIPTORS_MAX);
    }
    TRY(check(m->cudnn, m->cudnn->options.api->cudnnBackendCreateDescriptor(type, out), "making a descriptor", err));
    plan->made[plan->made_count++] = *out;
    return STATUS_OK;
}

static enum status set(const struct cudnn *cudnn, cudnn_descriptor at, enum cudnn_attribute name, enum cudnn_value type,
                       int64_t count, const void *values, struct err *err)
{
    char what[40];
    snprintf(what, sizeof what, "setting attribute %d", (int)name);
    return check(cudnn, cudnn->options.api->cudnnBackendSetAttribute(at, name, type, count, values), what, err);
}

static enum status set_descriptor(const struct maker *m, cudnn_descriptor at, enum cudnn_attribute name,
                                  cudnn_descriptor value, struct err *err)
{
    return set(m->cudnn, at, name, DNN_DESCRIPTOR, 1, &value, err);
}

static enum status finish(const struct maker *m, cudnn_descriptor descriptor, const char *what, struct err *err)
{
    return check(m->cudnn, m->cudnn->options.api->cudnnBackendFinalize(descriptor), what, err);
}

/* A tensor of four dimensions. `starts`: the tensor with the beginning of each row, or NULL. */
static enum status make_tensor(const struct maker *m, enum tensor_name name, enum cudnn_data_type type,
                               const int64_t *size, const int64_t *stride, cudnn_descriptor starts,
                               cudnn_descriptor *out, struct err *err)
{
    const int64_t number = name, alignment = type == DNN_F16 || type == DNN_BF16 ? 16 : 4;
    const bool by_value = name == SCALE;
    const int data_type = type;
    TRY(make(m, DNN_TENSOR, out, err));
    TRY(set(m->cudnn, *out, DNN_TENSOR_NUMBER, DNN_INT64, 1, &number, err));
    TRY(set(m->cudnn, *out, DNN_TENSOR_TYPE, DNN_DATA_TYPE, 1, &data_type, err));
    TRY(set(m->cudnn, *out, DNN_TENSOR_SIZE, DNN_INT64, 4, size, err));
    TRY(set(m->cudnn, *out, DNN_TENSOR_STRIDE, DNN_INT64, 4, stride, err));
    TRY(set(m->cudnn, *out, DNN_TENSOR_ALIGNMENT, DNN_INT64, 1, &alignment, err));
    TRY(set(m->cudnn, *out, DNN_TENSOR_BY_VALUE, DNN_BOOLEAN, 1, &by_value, err));
    if (starts != NULL) { TRY(set_descriptor(m, *out, DNN_TENSOR_STARTS, starts, err)); }
    return finish(m, *out, "a tensor", err);
}

/* A tensor of one number for each of `count` rows, or of a single number. */
static enum status make_list(const struct maker *m, enum tensor_name name, enum cudnn_data_type type, int64_t count,
                             cudnn_descriptor *out, struct err *err)
{
    const int64_t one[4] = {1, 1, 1, 1}, size[4] = {count, 1, 1, 1};
    return make_tensor(m, name, type, size, one, NULL, out, err);
}

/* A matrix of the rows: [rows, heads, longest, head_dim], tokens `pitch` elements apart. */
static enum status make_rows(const struct maker *m, enum tensor_name name, int64_t pitch, cudnn_descriptor starts,
                             cudnn_descriptor *out, struct err *err)
{
    const struct cudnn_options *o = &m->cudnn->options;
    const int64_t size[4] = {m->plan->rows, o->heads, m->plan->longest, o->head_dim};
    const int64_t stride[4] = {m->plan->longest * pitch, o->head_dim, pitch, 1};
    return make_tensor(m, name, o->type == KERNEL_F16 ? DNN_F16 : DNN_BF16, size, stride, starts, out, err);
}

static enum status make_operation(const struct maker *m, cudnn_descriptor *out, struct err *err)
{
    const int64_t hidden = m->cudnn->hidden, rows = m->plan->rows;
    cudnn_descriptor queries, keys, values, context, query_lengths, key_lengths, scale, qkv_starts, context_starts;
    TRY(make_list(m, QKV_STARTS, DNN_INT32, rows + 1, &qkv_starts, err));
    TRY(make_list(m, CONTEXT_STARTS, DNN_INT32, rows + 1, &context_starts, err));
    TRY(make_rows(m, QUERIES, 3 * hidden, qkv_starts, &queries, err));
    TRY(make_rows(m, KEYS, 3 * hidden, qkv_starts, &keys, err));
    TRY(make_rows(m, VALUES, 3 * hidden, qkv_starts, &values, err));
    TRY(make_rows(m, CONTEXT, hidden, context_starts, &context, err));
    TRY(make_list(m, QUERY_LENGTHS, DNN_INT32, rows, &query_lengths, err));
    TRY(make_list(m, KEY_LENGTHS, DNN_INT32, rows, &key_lengths, err));
    TRY(make_list(m, SCALE, DNN_F32, 1, &scale, err));
    TRY(make(m, DNN_ATTENTION, out, err));
    TRY(set_descriptor(m, *out, DNN_ATTENTION_QUERIES, queries, err));
    TRY(set_descriptor(m, *out, DNN_ATTENTION_KEYS, keys, err));
    TRY(set_descriptor(m, *out, DNN_ATTENTION_VALUES, values, err));
    TRY(set_descriptor(m, *out, DNN_ATTENTION_CONTEXT, context, err));
    TRY(set_descriptor(m, *out, DNN_ATTENTION_QUERY_LENGTHS, query_lengths, err));
    TRY(set_descriptor(m, *out, DNN_ATTENTION_KEY_LENGTHS, key_lengths, err));
    TRY(set_descriptor(m, *out, DNN_ATTENTION_SCALE, scale, err));
    return finish(m, *out, "the operation", err);
}

/* The engines that the library would choose, best first. */
static enum status find_configs(const struct maker *m, cudnn_descriptor operation, cudnn_descriptor *configs,
                                int64_t *count, struct err *err)
{
    const struct cudnn *cudnn = m->cudnn;
    const int mode = DNN_MODE_A;
    cudnn_descriptor graph, heuristics;
    TRY(make(m, DNN_GRAPH, &graph, err));
    TRY(set(cudnn, graph, DNN_GRAPH_HANDLE, DNN_HANDLE, 1, &cudnn->handle, err));
    TRY(set_descriptor(m, graph, DNN_GRAPH_OPERATIONS, operation, err));
    TRY(finish(m, graph, "the graph", err));
    TRY(make(m, DNN_HEURISTICS, &heuristics, err));
    TRY(set_descriptor(m, heuristics, DNN_HEURISTICS_GRAPH, graph, err));
    TRY(set(cudnn, heuristics, DNN_HEURISTICS_MODE, DNN_MODE, 1, &mode, err));
    TRY(finish(m, heuristics, "the heuristics", err));
    for (uint32_t i = 0; i < CONFIGS_MAX; i++) { TRY(make(m, DNN_ENGINE_CONFIG, &configs[i], err)); }
    TRY(check(cudnn,
              cudnn->options.api->cudnnBackendGetAttribute(heuristics, DNN_HEURISTICS_RESULTS, DNN_DESCRIPTOR,
                                                           CONFIGS_MAX, count, configs),
              "asking the heuristics", err));
    if (*count > 0) { return STATUS_OK; }
    return err_set(err, STATUS_UNSUPPORTED, "cuDNN %zu has no engine for this shape on this device",
                   cudnn->options.api->cudnnGetVersion());
}

/* Makes the plan with an engine. Errors: STATUS_UNSUPPORTED (the workspace is too small), or those of cuDNN. */
static enum status try_config(const struct maker *m, cudnn_descriptor config, struct err *err)
{
    const struct cudnn *cudnn = m->cudnn;
    cudnn_descriptor plan;
    int64_t got = 0, bytes = 0;
    TRY(make(m, DNN_PLAN, &plan, err));
    TRY(set(cudnn, plan, DNN_PLAN_HANDLE, DNN_HANDLE, 1, &cudnn->handle, err));
    TRY(set_descriptor(m, plan, DNN_PLAN_CONFIG, config, err));
    TRY(finish(m, plan, "the plan", err));
    TRY(check(cudnn,
              cudnn->options.api->cudnnBackendGetAttribute(plan, DNN_PLAN_WORKSPACE_BYTES, DNN_INT64, 1, &got, &bytes),
              "asking for the workspace", err));
    if (bytes > CUDNN_WORKSPACE_BYTES) {
        return err_set(err, STATUS_UNSUPPORTED, "cuDNN %zu takes a workspace of %lld bytes, more than %d",
                       cudnn->options.api->cudnnGetVersion(), (long long)bytes, CUDNN_WORKSPACE_BYTES);
    }
    m->plan->plan = plan;
    return STATUS_OK;
}

/* Makes the plan with the first engine that works. */
static enum status make_plan(const struct maker *m, struct err *err)
{
    cudnn_descriptor operation, configs[CONFIGS_MAX];
    int64_t count = 0;
    enum status status = STATUS_UNSUPPORTED;
    TRY(make_operation(m, &operation, err));
    TRY(find_configs(m, operation, configs, &count, err));
    for (int64_t i = 0; i < count && i < CONFIGS_TRIED && status != STATUS_OK && status != STATUS_DEVICE_LOST; i++) {
        status = try_config(m, configs[i], err);
    }
    return status;
}

static void plan_close(const struct cudnn *cudnn, struct cudnn_plan *plan)
{
    while (plan->made_count > 0) {
        (void)cudnn->options.api->cudnnBackendDestroyDescriptor(plan->made[--plan->made_count]);
    }
    free(plan);
}

/* --- outside -------------------------------------------------------------------------------------------------------
 */

enum status cudnn_open(const struct cudnn_options *options, struct cudnn **out, struct err *err)
{
    struct cudnn *cudnn = calloc(1, sizeof *cudnn);
    if (cudnn == NULL) { return err_set(err, STATUS_NO_MEMORY, "no memory for cuDNN"); }
    cudnn->options = *options;
    cudnn->hidden = (int64_t)options->heads * options->head_dim;
    enum status status = check(cudnn, options->api->cudnnCreate(&cudnn->handle), "opening it", err);
    if (status == STATUS_OK) {
        status = check(cudnn, options->api->cudnnSetStream(cudnn->handle, options->stream), "setting the stream", err);
    }
    if (status != STATUS_OK) {
        cudnn_close(cudnn);
        return status;
    }
    *out = cudnn;
    return STATUS_OK;
}

void cudnn_close(struct cudnn *cudnn)
{
    if (cudnn == NULL) { return; }
    while (cudnn->plans != NULL) {
        struct cudnn_plan *plan = cudnn->plans;
        cudnn->plans = plan->next;
        plan_close(cudnn, plan);
    }
    if (cudnn->handle != NULL) { (void)cudnn->options.api->cudnnDestroy(cudnn->handle); }
    free(cudnn);
}

enum status cudnn_find(struct cudnn *cudnn, uint32_t rows, uint32_t longest, const struct cudnn_plan **out,
                       struct err *err)
{
    struct cudnn_plan *plan = cudnn->plans;
    while (plan != NULL && (plan->rows != rows || plan->longest != longest)) { plan = plan->next; }
    if (plan == NULL) {
        plan = calloc(1, sizeof *plan);
        if (plan == NULL) { return err_set(err, STATUS_NO_MEMORY, "no memory for a plan of cuDNN's"); }
        *plan = (struct cudnn_plan){.next = cudnn->plans, .rows = rows, .longest = longest};
        cudnn->plans = plan;
        plan->why.status = make_plan(&(struct maker){cudnn, plan}, &plan->why);
    }
    if (plan->why.status != STATUS_OK) { return err_set(err, plan->why.status, "%s", plan->why.message); }
    *out = plan;
    return STATUS_OK;
}

static enum status execute(struct cudnn *cudnn, const struct cudnn_plan *plan, cudnn_descriptor pack,
                           const void *const *places, struct err *err)
{
    int64_t numbers[TENSORS];
    for (int i = 0; i < TENSORS; i++) { numbers[i] = i + 1; }
    TRY(set(cudnn, pack, DNN_PACK_NUMBERS, DNN_INT64, TENSORS, numbers, err));
    TRY(set(cudnn, pack, DNN_PACK_POINTERS, DNN_POINTER, TENSORS, places, err));
    TRY(set(cudnn, pack, DNN_PACK_WORKSPACE, DNN_POINTER, 1, &cudnn->options.workspace, err));
    TRY(check(cudnn, cudnn->options.api->cudnnBackendFinalize(pack), "the pack", err));
    return check(cudnn, cudnn->options.api->cudnnBackendExecute(cudnn->handle, plan->plan, pack), "running a plan",
                 err);
}

enum status cudnn_run(struct cudnn *cudnn, const struct cudnn_plan *plan, const struct cudnn_rows *rows,
                      const void *qkv, void *context, struct err *err)
{
    const char *matrix = qkv;
    const size_t width = (size_t)cudnn->hidden * kernel_type_bytes(cudnn->options.type);
    const void *const places[TENSORS] = {
        [QUERIES - 1] = matrix,
        [KEYS - 1] = matrix + width,
        [VALUES - 1] = matrix + 2 * width,
        [CONTEXT - 1] = context,
        [QUERY_LENGTHS - 1] = rows->length,
        [KEY_LENGTHS - 1] = rows->length,
        [SCALE - 1] = &cudnn->options.scale,
        [QKV_STARTS - 1] = rows->qkv_starts,
        [CONTEXT_STARTS - 1] = rows->context_starts,
    };
    const struct cudnn_api *api = cudnn->options.api;
    cudnn_descriptor pack;
    TRY(check(cudnn, api->cudnnBackendCreateDescriptor(DNN_PACK, &pack), "making a pack", err));
    enum status status = execute(cudnn, plan, pack, places, err);
    (void)api->cudnnBackendDestroyDescriptor(pack);
    return status;
}
