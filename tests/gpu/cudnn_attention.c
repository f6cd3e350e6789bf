/* cuDNN's scaled dot product attention over its backend API, which is plain C: a graph of one operation, whose tensors
 * say by ragged offsets where each row begins and by lengths where it ends.
 *
 * The library is opened at run time: under its name, else in $CUDNN_PATH/lib (the folder of NVIDIA's Python wheel,
 * which torch brings along), else where the toolkit has its libraries. Source: cuDNN backend API reference 9, "Graph
 * API", CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR. */
#include "cudnn_attention.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>
#include <cudnn.h>

#define CUDNN_CALLS(CALL)                                                                                              \
    CALL(cudnnCreate)                                                                                                  \
    CALL(cudnnDestroy)                                                                                                 \
    CALL(cudnnSetStream)                                                                                               \
    CALL(cudnnGetVersion)                                                                                              \
    CALL(cudnnGetErrorString)                                                                                          \
    CALL(cudnnGetLastErrorString)                                                                                      \
    CALL(cudnnBackendCreateDescriptor)                                                                                 \
    CALL(cudnnBackendDestroyDescriptor)                                                                                \
    CALL(cudnnBackendSetAttribute)                                                                                     \
    CALL(cudnnBackendGetAttribute)                                                                                     \
    CALL(cudnnBackendFinalize)                                                                                         \
    CALL(cudnnBackendExecute)

struct cudnn_api {
#define FIELD(call) __typeof__(&call) call;
    CUDNN_CALLS(FIELD)
#undef FIELD
};

/* How the graph's tensors are told apart. */
enum tensor_name {
    QUERIES = 1,
    KEYS,
    VALUES,
    CONTEXT,
    LENGTHS_OF_QUERIES,
    LENGTHS_OF_KEYS,
    SCALE,
    QKV_STARTS,
    CONTEXT_STARTS
};

enum { DESCRIPTORS_MAX = 32, CONFIGS_MAX = 8 };

struct cudnn_attention {
    struct cudnn_api api;
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t made[DESCRIPTORS_MAX]; /* all of them, to be destroyed in the end */
    uint32_t made_count;
    cudnnBackendDescriptor_t plan;
    size_t element_bytes, hidden;
    float scale;
    int32_t *lengths, *qkv_starts, *context_starts; /* on the device */
    void *workspace;
};

/* --- the library -------------------------------------------------------------------------------------------------- */

static void *open_library(void)
{
    const char *root = getenv("CUDNN_PATH");
    char path[1024];
    void *library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL && root != NULL) {
        snprintf(path, sizeof path, "%s/lib/libcudnn.so.9", root);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    if (library == NULL)
        library = dlopen(SLUICE_CUDA_LIBRARY_DIR "/libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    return library;
}

static enum status find_calls(struct cudnn_api *api, struct err *err)
{
    void *library = open_library();
    if (library == NULL)
        return err_set(err, STATUS_UNSUPPORTED, "libcudnn.so.9 cannot be opened: %s", dlerror());
    const char *missing = NULL;
    void *symbol;
#define FIND(call)                                                                                                     \
    symbol = dlsym(library, #call);                                                                                    \
    memcpy(&api->call, &symbol, sizeof symbol);                                                                        \
    missing = symbol == NULL ? #call : missing;
    CUDNN_CALLS(FIND)
#undef FIND
    return missing == NULL ? STATUS_OK : err_set(err, STATUS_UNSUPPORTED, "libcudnn.so.9 has no %s", missing);
}

static enum status answered(const struct cudnn_attention *a, cudnnStatus_t answer, const char *what, struct err *err)
{
    char last[300] = "";
    if (answer == CUDNN_STATUS_SUCCESS)
        return STATUS_OK;
    a->api.cudnnGetLastErrorString(last, sizeof last);
    return err_set(err, STATUS_UNSUPPORTED, "cuDNN %zu, %s: %s (%s)", a->api.cudnnGetVersion(), what,
                   a->api.cudnnGetErrorString(answer), last);
}

/* --- the graph ------------------------------------------------------------------------------------------------------
 */

/* A descriptor of the object's own. */
static enum status make(struct cudnn_attention *a, cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out,
                        struct err *err)
{
    if (a->made_count == DESCRIPTORS_MAX)
        return err_set(err, STATUS_INTERNAL, "more than %d descriptors", DESCRIPTORS_MAX);
    TRY(answered(a, a->api.cudnnBackendCreateDescriptor(type, out), "making a descriptor", err));
    a->made[a->made_count++] = *out;
    return STATUS_OK;
}

static enum status set(struct cudnn_attention *a, cudnnBackendDescriptor_t at, cudnnBackendAttributeName_t name,
                       cudnnBackendAttributeType_t type, int64_t count, const void *values, struct err *err)
{
    char what[40];
    snprintf(what, sizeof what, "setting attribute %d", (int)name);
    return answered(a, a->api.cudnnBackendSetAttribute(at, name, type, count, values), what, err);
}

static enum status set_descriptor(struct cudnn_attention *a, cudnnBackendDescriptor_t at,
                                  cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value, struct err *err)
{
    return set(a, at, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value, err);
}

/* A tensor of four dimensions. `starts`: the tensor of where each row begins, or NULL. */
static enum status make_tensor(struct cudnn_attention *a, enum tensor_name name, cudnnDataType_t type,
                               const int64_t *size, const int64_t *stride, cudnnBackendDescriptor_t starts,
                               cudnnBackendDescriptor_t *out, struct err *err)
{
    const int64_t number = name, alignment = type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16 ? 16 : 4;
    const bool by_value = name == SCALE;
    TRY(make(a, CUDNN_BACKEND_TENSOR_DESCRIPTOR, out, err));
    TRY(set(a, *out, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &number, err));
    TRY(set(a, *out, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type, err));
    TRY(set(a, *out, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, size, err));
    TRY(set(a, *out, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride, err));
    TRY(set(a, *out, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment, err));
    TRY(set(a, *out, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value, err));
    if (starts != NULL)
        TRY(set_descriptor(a, *out, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, starts, err));
    return answered(a, a->api.cudnnBackendFinalize(*out), "a tensor", err);
}

/* Where each row begins in a matrix, in elements. */
static enum status make_starts(struct cudnn_attention *a, const struct cudnn_attention_shape *shape,
                               enum tensor_name name, cudnnBackendDescriptor_t *out, struct err *err)
{
    const int64_t one[4] = {1, 1, 1, 1}, size[4] = {(int64_t)shape->rows + 1, 1, 1, 1};
    return make_tensor(a, name, CUDNN_DATA_INT32, size, one, NULL, out, err);
}

/* A matrix of the rows: [rows, heads, longest, head_dim], tokens `pitch` elements apart. */
static enum status make_rows(struct cudnn_attention *a, const struct cudnn_attention_shape *shape,
                             enum tensor_name name, int64_t pitch, cudnnBackendDescriptor_t starts,
                             cudnnBackendDescriptor_t *out, struct err *err)
{
    const int64_t size[4] = {shape->rows, shape->heads, shape->longest, shape->head_dim};
    const int64_t stride[4] = {shape->longest * pitch, shape->head_dim, pitch, 1};
    return make_tensor(a, name, shape->type == KERNEL_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16, size, stride, starts,
                       out, err);
}

static enum status make_operation(struct cudnn_attention *a, const struct cudnn_attention_shape *shape,
                                  cudnnBackendDescriptor_t *out, struct err *err)
{
    const int64_t one[4] = {1, 1, 1, 1}, lengths_size[4] = {shape->rows, 1, 1, 1};
    const int64_t hidden = (int64_t)a->hidden;
    cudnnBackendDescriptor_t queries, keys, values, context, query_lengths, key_lengths, scale, qkv_starts,
        context_starts;
    TRY(make_starts(a, shape, QKV_STARTS, &qkv_starts, err));
    TRY(make_starts(a, shape, CONTEXT_STARTS, &context_starts, err));
    TRY(make_rows(a, shape, QUERIES, 3 * hidden, qkv_starts, &queries, err));
    TRY(make_rows(a, shape, KEYS, 3 * hidden, qkv_starts, &keys, err));
    TRY(make_rows(a, shape, VALUES, 3 * hidden, qkv_starts, &values, err));
    TRY(make_rows(a, shape, CONTEXT, hidden, context_starts, &context, err));
    TRY(make_tensor(a, LENGTHS_OF_QUERIES, CUDNN_DATA_INT32, lengths_size, one, NULL, &query_lengths, err));
    TRY(make_tensor(a, LENGTHS_OF_KEYS, CUDNN_DATA_INT32, lengths_size, one, NULL, &key_lengths, err));
    TRY(make_tensor(a, SCALE, CUDNN_DATA_FLOAT, one, one, NULL, &scale, err));
    TRY(make(a, CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, out, err));
    TRY(set_descriptor(a, *out, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, queries, err));
    TRY(set_descriptor(a, *out, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, keys, err));
    TRY(set_descriptor(a, *out, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, values, err));
    TRY(set_descriptor(a, *out, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, context, err));
    TRY(set_descriptor(a, *out, CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC, query_lengths, err));
    TRY(set_descriptor(a, *out, CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC, key_lengths, err));
    TRY(set_descriptor(a, *out, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, scale, err));
    return answered(a, a->api.cudnnBackendFinalize(*out), "the operation", err);
}

/* The engines that the library would choose, best first. */
static enum status find_configs(struct cudnn_attention *a, cudnnBackendDescriptor_t operation,
                                cudnnBackendDescriptor_t *configs, int64_t *count, struct err *err)
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    cudnnBackendDescriptor_t graph, heuristics;
    TRY(make(a, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, &graph, err));
    TRY(set(a, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &a->handle, err));
    TRY(set_descriptor(a, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation, err));
    TRY(answered(a, a->api.cudnnBackendFinalize(graph), "the graph", err));
    TRY(make(a, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics, err));
    TRY(set_descriptor(a, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph, err));
    TRY(set(a, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode, err));
    TRY(answered(a, a->api.cudnnBackendFinalize(heuristics), "the heuristics", err));
    for (uint32_t i = 0; i < CONFIGS_MAX; i++)
        TRY(make(a, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i], err));
    TRY(answered(a,
                 a->api.cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS_MAX, count, configs),
                 "asking the heuristics", err));
    if (*count > 0)
        return STATUS_OK;
    return err_set(err, STATUS_UNSUPPORTED, "cuDNN %zu has no engine for this shape on this device",
                   a->api.cudnnGetVersion());
}

/* The first engine that can be made ready. */
static enum status make_plan(struct cudnn_attention *a, cudnnBackendDescriptor_t operation, struct err *err)
{
    cudnnBackendDescriptor_t configs[CONFIGS_MAX], plan;
    int64_t count = 0, got = 0, bytes = 0;
    enum status status = STATUS_UNSUPPORTED;
    TRY(find_configs(a, operation, configs, &count, err));
    for (int64_t i = 0; i < count && i < 4 && status != STATUS_OK; i++) {
        TRY(make(a, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan, err));
        TRY(set(a, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &a->handle, err));
        TRY(set_descriptor(a, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configs[i], err));
        status = answered(a, a->api.cudnnBackendFinalize(plan), "the plan", err);
    }
    TRY(status);
    a->plan = plan;
    TRY(answered(a,
                 a->api.cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                                 &got, &bytes),
                 "asking for the scratch memory", err));
    if (cudaMalloc(&a->workspace, bytes > 0 ? (size_t)bytes : 1) != cudaSuccess)
        return err_set(err, STATUS_NO_MEMORY, "no device memory for cuDNN's %lld bytes", (long long)bytes);
    return STATUS_OK;
}

/* --- the rows -------------------------------------------------------------------------------------------------------
 */

/* A list of `count` numbers on the device. */
static enum status upload(const int32_t *from, size_t count, int32_t **out, struct err *err)
{
    void *device = NULL;
    if (cudaMalloc(&device, count * sizeof *from) != cudaSuccess)
        return err_set(err, STATUS_NO_MEMORY, "no device memory for a list of rows");
    *out = device;
    if (cudaMemcpy(device, from, count * sizeof *from, cudaMemcpyHostToDevice) != cudaSuccess)
        return err_set(err, STATUS_INTERNAL, "copying a list of rows");
    return STATUS_OK;
}

/* Offsets count elements, and have one more than there are rows: the end of the last one. */
static enum status upload_rows(struct cudnn_attention *a, const struct cudnn_attention_shape *shape, struct err *err)
{
    const size_t rows = shape->rows;
    int32_t *list = malloc((3 * rows + 2) * sizeof *list);
    if (list == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for %zu rows", rows);
    int32_t *qkv = list + rows, *context = qkv + rows + 1;
    for (size_t r = 0; r <= rows; r++) {
        const size_t token = r < rows ? shape->start[r] : (size_t)shape->start[rows - 1] + shape->length[rows - 1];
        if (r < rows)
            list[r] = (int32_t)shape->length[r];
        qkv[r] = (int32_t)(token * 3 * a->hidden);
        context[r] = (int32_t)(token * a->hidden);
    }
    enum status status = upload(list, rows, &a->lengths, err);
    if (status == STATUS_OK)
        status = upload(qkv, rows + 1, &a->qkv_starts, err);
    if (status == STATUS_OK)
        status = upload(context, rows + 1, &a->context_starts, err);
    free(list);
    return status;
}

/* --- outside --------------------------------------------------------------------------------------------------------
 */

static enum status fill(struct cudnn_attention *a, const struct cudnn_attention_shape *shape, cudaStream_t stream,
                        struct err *err)
{
    cudnnBackendDescriptor_t operation;
    TRY(find_calls(&a->api, err));
    TRY(answered(a, a->api.cudnnCreate(&a->handle), "opening a handle", err));
    TRY(answered(a, a->api.cudnnSetStream(a->handle, stream), "setting the stream", err));
    TRY(make_operation(a, shape, &operation, err));
    TRY(make_plan(a, operation, err));
    return upload_rows(a, shape, err);
}

enum status cudnn_attention_open(const struct cudnn_attention_shape *shape, cudaStream_t stream,
                                 struct cudnn_attention **out, struct err *err)
{
    struct cudnn_attention *a = calloc(1, sizeof *a);
    *out = NULL;
    if (a == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory");
    a->hidden = (size_t)shape->heads * shape->head_dim;
    a->element_bytes = sizeof(uint16_t);
    a->scale = shape->scale;
    const enum status status = fill(a, shape, stream, err);
    if (status != STATUS_OK) {
        cudnn_attention_close(a);
        return status;
    }
    *out = a;
    return STATUS_OK;
}

void cudnn_attention_close(struct cudnn_attention *a)
{
    if (a == NULL)
        return;
    cudaFree(a->workspace);
    cudaFree(a->lengths);
    cudaFree(a->qkv_starts);
    cudaFree(a->context_starts);
    while (a->made_count > 0)
        a->api.cudnnBackendDestroyDescriptor(a->made[--a->made_count]);
    if (a->handle != NULL)
        a->api.cudnnDestroy(a->handle);
    free(a);
}

enum status cudnn_attention_run(struct cudnn_attention *a, const void *qkv, void *context, struct err *err)
{
    const int64_t names[] = {QUERIES,         KEYS,  VALUES,     CONTEXT,       LENGTHS_OF_QUERIES,
                             LENGTHS_OF_KEYS, SCALE, QKV_STARTS, CONTEXT_STARTS};
    enum { NAMES = sizeof names / sizeof names[0] };
    const char *matrix = qkv;
    const size_t width = a->hidden * a->element_bytes;
    const void *const places[NAMES] = {matrix,     matrix + width, matrix + 2 * width, context,          a->lengths,
                                       a->lengths, &a->scale,      a->qkv_starts,      a->context_starts};
    cudnnBackendDescriptor_t pack;
    TRY(answered(a, a->api.cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack), "a pack", err));
    enum status status = set(a, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, NAMES, names, err);
    if (status == STATUS_OK)
        status = set(a, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, NAMES, places, err);
    if (status == STATUS_OK)
        status = set(a, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &a->workspace, err);
    if (status == STATUS_OK)
        status = answered(a, a->api.cudnnBackendFinalize(pack), "the pack", err);
    if (status == STATUS_OK)
        status = answered(a, a->api.cudnnBackendExecute(a->handle, a->plan, pack), "running the plan", err);
    a->api.cudnnBackendDestroyDescriptor(pack);
    return status;
}
