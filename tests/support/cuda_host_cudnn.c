/* cuDNN in the host table: descriptors are lists of attributes that are looked at when they are finished, as cuDNN's
 * are, but with a misuse where cuDNN would only refuse. The one operation is attention of ragged rows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_host_private.h"

struct attribute {
    struct attribute *next;
    int name, type;
    int64_t count;
    char *values; /* owned */
};

struct host_descriptor {
    struct host_object object;
    int type;
    bool finished;
    struct attribute *attributes;
    uint32_t engine;                         /* of a config: its number */
    const struct host_descriptor *operation; /* of a config: what it is for */
};

struct host_dnn {
    struct host_object object;
    struct host_stream *stream;
};

/* --- attributes --- */

static size_t value_bytes(int type)
{
    switch (type) {
    case DNN_HANDLE:
    case DNN_POINTER:
    case DNN_DESCRIPTOR:
        return sizeof(void *);
    case DNN_DATA_TYPE:
    case DNN_MODE:
        return sizeof(int);
    case DNN_BOOLEAN:
        return sizeof(bool);
    case DNN_INT64:
        return sizeof(int64_t);
    default:
        return 0;
    }
}

void host_descriptor_release(struct host_object *object)
{
    struct host_descriptor *descriptor = (struct host_descriptor *)object;
    while (descriptor->attributes != NULL) {
        struct attribute *attribute = descriptor->attributes;
        descriptor->attributes = attribute->next;
        free(attribute->values);
        free(attribute);
    }
}

/* The values of an attribute that must be there; a misuse, and zeros, when it is not, or is of another type. */
static const void *values_of(const struct host_descriptor *of, int name, int type, int64_t count)
{
    static const char nothing[64];
    for (const struct attribute *a = of->attributes; a != NULL; a = a->next)
        if (a->name == name && a->type == type && a->count == count)
            return a->values;
    (void)host_misuse_cudnn("a descriptor of type %d without %ld values of type %d as attribute %d", of->type,
                            (long)count, type, name);
    return nothing;
}

static int64_t number_of(const struct host_descriptor *of, int name)
{
    int64_t number;
    memcpy(&number, values_of(of, name, DNN_INT64, 1), sizeof number);
    return number;
}

static int enum_of(const struct host_descriptor *of, int name, int type)
{
    int value;
    memcpy(&value, values_of(of, name, type, 1), sizeof value);
    return value;
}

/* A finished descriptor of a type that an attribute names; NULL and a misuse when it is none. */
static struct host_descriptor *part_of(const struct host_descriptor *of, int name, int type)
{
    void *handle;
    memcpy(&handle, values_of(of, name, DNN_DESCRIPTOR, 1), sizeof handle);
    struct host_descriptor *part = host_object(handle, HOST_DESCRIPTOR, "a descriptor's attribute");
    if (part != NULL && part->type == type && part->finished)
        return part;
    (void)host_misuse_cudnn("attribute %d is no finished descriptor of type %d", name, type);
    return NULL;
}

static bool has(const struct host_descriptor *of, int name)
{
    for (const struct attribute *a = of->attributes; a != NULL; a = a->next)
        if (a->name == name)
            return true;
    return false;
}

/* --- what attention is put together from --- */

struct tensor_look {
    int64_t number, size[4], stride[4];
    int type;
    bool by_value;
    int64_t starts; /* the number of the tensor of starts; 0: none */
};

static struct tensor_look look_at(const struct host_descriptor *operation, int name)
{
    struct tensor_look look = {0};
    const struct host_descriptor *tensor = part_of(operation, name, DNN_TENSOR);
    if (tensor == NULL)
        return look;
    look.number = number_of(tensor, DNN_TENSOR_NUMBER);
    memcpy(look.size, values_of(tensor, DNN_TENSOR_SIZE, DNN_INT64, 4), sizeof look.size);
    memcpy(look.stride, values_of(tensor, DNN_TENSOR_STRIDE, DNN_INT64, 4), sizeof look.stride);
    memcpy(&look.by_value, values_of(tensor, DNN_TENSOR_BY_VALUE, DNN_BOOLEAN, 1), sizeof look.by_value);
    look.type = enum_of(tensor, DNN_TENSOR_TYPE, DNN_DATA_TYPE);
    if (!has(tensor, DNN_TENSOR_STARTS))
        return look;
    const struct host_descriptor *starts = part_of(tensor, DNN_TENSOR_STARTS, DNN_TENSOR);
    const int64_t *count = starts == NULL ? NULL : values_of(starts, DNN_TENSOR_SIZE, DNN_INT64, 4);
    look.starts = starts == NULL ? 0 : number_of(starts, DNN_TENSOR_NUMBER);
    if (count != NULL && (count[0] != look.size[0] + 1 || enum_of(starts, DNN_TENSOR_TYPE, DNN_DATA_TYPE) != DNN_INT32))
        (void)host_misuse_cudnn("a tensor of %ld rows whose starts are %ld", (long)look.size[0], (long)count[0]);
    return look;
}

static bool is_list(const struct tensor_look *look, int64_t count, int type)
{
    return look->size[0] == count && look->size[1] == 1 && look->size[2] == 1 && look->size[3] == 1 &&
           look->type == type;
}

/* Matrices of the same rows, heads packed within a token, and all that tells where rows are. */
static bool operation_is_right(const struct host_descriptor *operation)
{
    static const int names[] = {DNN_ATTENTION_QUERIES, DNN_ATTENTION_KEYS, DNN_ATTENTION_VALUES, DNN_ATTENTION_CONTEXT};
    const struct tensor_look first = look_at(operation, names[0]);
    bool right = true;
    for (int i = 0; i < 4; i++) {
        const struct tensor_look look = look_at(operation, names[i]);
        right = right && memcmp(look.size, first.size, sizeof look.size) == 0 && look.type == first.type &&
                (look.type == DNN_F16 || look.type == DNN_BF16) && look.stride[3] == 1 &&
                look.stride[1] == look.size[3] && look.stride[2] >= look.size[1] * look.size[3] && look.starts != 0 &&
                !look.by_value;
    }
    const struct tensor_look queries = look_at(operation, DNN_ATTENTION_QUERY_LENGTHS);
    const struct tensor_look keys = look_at(operation, DNN_ATTENTION_KEY_LENGTHS);
    const struct tensor_look scale = look_at(operation, DNN_ATTENTION_SCALE);
    return right && is_list(&queries, first.size[0], DNN_INT32) && is_list(&keys, first.size[0], DNN_INT32) &&
           is_list(&scale, 1, DNN_F32) && scale.by_value;
}

/* The pointer that a pack gives for a tensor. */
static void *pointer_of(const struct host_descriptor *pack, int64_t number)
{
    const struct attribute *numbers = pack->attributes, *pointers = pack->attributes;
    while (numbers != NULL && numbers->name != DNN_PACK_NUMBERS)
        numbers = numbers->next;
    while (pointers != NULL && pointers->name != DNN_PACK_POINTERS)
        pointers = pointers->next;
    for (int64_t i = 0; numbers != NULL && pointers != NULL && i < numbers->count && i < pointers->count; i++) {
        if (((const int64_t *)(const void *)numbers->values)[i] == number)
            return ((void **)(void *)pointers->values)[i];
    }
    (void)host_misuse_cudnn("a pack without a pointer for tensor %ld", (long)number);
    return NULL;
}

static struct host_attention put_together(const struct host_descriptor *operation, const struct host_descriptor *pack)
{
    const struct tensor_look queries = look_at(operation, DNN_ATTENTION_QUERIES);
    const struct tensor_look context = look_at(operation, DNN_ATTENTION_CONTEXT);
    const float *scale = pointer_of(pack, look_at(operation, DNN_ATTENTION_SCALE).number);
    return (struct host_attention){
        .type = queries.type == DNN_F16 ? CUDA_R_16F : CUDA_R_16BF,
        .rows = queries.size[0],
        .heads = queries.size[1],
        .longest = queries.size[2],
        .head_dim = queries.size[3],
        .pitch = queries.stride[2],
        .context_pitch = context.stride[2],
        .scale = scale == NULL ? 0.0f : *scale,
        .queries = pointer_of(pack, queries.number),
        .keys = pointer_of(pack, look_at(operation, DNN_ATTENTION_KEYS).number),
        .values = pointer_of(pack, look_at(operation, DNN_ATTENTION_VALUES).number),
        .context = pointer_of(pack, context.number),
        .query_lengths = pointer_of(pack, look_at(operation, DNN_ATTENTION_QUERY_LENGTHS).number),
        .key_lengths = pointer_of(pack, look_at(operation, DNN_ATTENTION_KEY_LENGTHS).number),
        .starts = pointer_of(pack, queries.starts),
        .context_starts = pointer_of(pack, context.starts),
    };
}

/* --- calls --- */

size_t host_cudnnGetVersion(void)
{
    return CUDNN_LEAST_VERSION;
}

const char *host_cudnnGetErrorString(int answer)
{
    return answer == DNN_SUCCESS ? "DNN_SUCCESS" : "DNN_FAILED";
}

void host_cudnnGetLastErrorString(char *text, size_t size)
{
    snprintf(text, size, "this is the host");
}

int host_cudnnCreate(cudnn_handle *out)
{
    ENTER(cudnnCreate);
    *out = host_object_new(HOST_DNN, sizeof(struct host_dnn));
    return host_leave_cudnn(DNN_SUCCESS);
}

int host_cudnnDestroy(cudnn_handle handle)
{
    ENTER(cudnnDestroy);
    struct host_object *object = host_object(handle, HOST_DNN, "cudnnDestroy");
    if (object != NULL)
        object->destroyed = true;
    return host_leave_cudnn(DNN_SUCCESS);
}

int host_cudnnSetStream(cudnn_handle handle, cudaStream_t stream)
{
    ENTER(cudnnSetStream);
    struct host_dnn *dnn = host_object(handle, HOST_DNN, "cudnnSetStream");
    if (dnn != NULL)
        dnn->stream = host_object(stream, HOST_STREAM, "cudnnSetStream");
    return host_leave_cudnn(DNN_SUCCESS);
}

int host_cudnnBackendCreateDescriptor(int type, cudnn_descriptor *out)
{
    ENTER(cudnnBackendCreateDescriptor);
    struct host_descriptor *descriptor = host_object_new(HOST_DESCRIPTOR, sizeof *descriptor);
    descriptor->type = type;
    *out = descriptor;
    return host_leave_cudnn(DNN_SUCCESS);
}

int host_cudnnBackendDestroyDescriptor(cudnn_descriptor handle)
{
    ENTER(cudnnBackendDestroyDescriptor);
    struct host_object *object = host_object(handle, HOST_DESCRIPTOR, "cudnnBackendDestroyDescriptor");
    if (object != NULL)
        object->destroyed = true;
    return host_leave_cudnn(DNN_SUCCESS);
}

int host_cudnnBackendSetAttribute(cudnn_descriptor handle, int name, int type, int64_t count, const void *values)
{
    static const char call[] = "cudnnBackendSetAttribute";
    ENTER(cudnnBackendSetAttribute);
    struct host_descriptor *descriptor = host_object(handle, HOST_DESCRIPTOR, call);
    size_t bytes = value_bytes(type) * (size_t)count;
    if (descriptor == NULL)
        return host_leave_cudnn(DNN_INTERNAL_ERROR);
    if (descriptor->finished || bytes == 0 || has(descriptor, name))
        return host_leave_cudnn(host_misuse_cudnn("%s: %d, a second time, of an odd type or too late", call, name));
    struct attribute *attribute = calloc(1, sizeof *attribute);
    char *copy = malloc(bytes);
    if (attribute == NULL || copy == NULL)
        abort();
    memcpy(copy, values, bytes);
    *attribute = (struct attribute){descriptor->attributes, name, type, count, copy};
    descriptor->attributes = attribute;
    return host_leave_cudnn(DNN_SUCCESS);
}

/* Whether the engine behind a config can be made ready here. */
static int ready(const struct host_descriptor *plan)
{
    const struct host_descriptor *config = part_of(plan, DNN_PLAN_CONFIG, DNN_ENGINE_CONFIG);
    void *handle;
    memcpy(&handle, values_of(plan, DNN_PLAN_HANDLE, DNN_HANDLE, 1), sizeof handle);
    if (config == NULL || host_object(handle, HOST_DNN, "a plan") == NULL)
        return DNN_INTERNAL_ERROR;
    return config->engine < host.options.cudnn.refused ? DNN_NOT_SUPPORTED : DNN_SUCCESS;
}

int host_cudnnBackendFinalize(cudnn_descriptor handle)
{
    static const char call[] = "cudnnBackendFinalize";
    ENTER(cudnnBackendFinalize);
    struct host_descriptor *descriptor = host_object(handle, HOST_DESCRIPTOR, call);
    if (descriptor == NULL || descriptor->finished)
        return host_leave_cudnn(host_misuse_cudnn("%s of what is finished, or nothing", call));
    int answer = DNN_SUCCESS;
    if (descriptor->type == DNN_ATTENTION && !operation_is_right(descriptor))
        answer = host_misuse_cudnn("%s: tensors of attention that do not fit each other", call);
    else if (descriptor->type == DNN_GRAPH && part_of(descriptor, DNN_GRAPH_OPERATIONS, DNN_ATTENTION) == NULL)
        answer = DNN_INTERNAL_ERROR;
    else if (descriptor->type == DNN_HEURISTICS && part_of(descriptor, DNN_HEURISTICS_GRAPH, DNN_GRAPH) == NULL)
        answer = DNN_INTERNAL_ERROR;
    else if (descriptor->type == DNN_PLAN)
        answer = ready(descriptor);
    descriptor->finished = answer == DNN_SUCCESS;
    return host_leave_cudnn(answer);
}

static uint32_t engines(void)
{
    return host.options.cudnn.engines == 0 ? 1 : host.options.cudnn.engines;
}

static int offer_configs(const struct host_descriptor *heuristics, int64_t room, int64_t *count, void *values)
{
    const struct host_descriptor *graph = part_of(heuristics, DNN_HEURISTICS_GRAPH, DNN_GRAPH);
    if (graph == NULL)
        return DNN_INTERNAL_ERROR;
    for (*count = 0; *count < room && *count < (int64_t)engines(); (*count)++) {
        struct host_descriptor *config =
            host_object(((void **)values)[*count], HOST_DESCRIPTOR, "cudnnBackendGetAttribute");
        if (config == NULL || config->type != DNN_ENGINE_CONFIG)
            return host_misuse_cudnn("heuristics asked for what is no engine's configuration");
        config->engine = (uint32_t)*count;
        config->operation = part_of(graph, DNN_GRAPH_OPERATIONS, DNN_ATTENTION);
        config->finished = true;
    }
    return DNN_SUCCESS;
}

static const struct host_descriptor *config_of(const struct host_descriptor *plan)
{
    return part_of(plan, DNN_PLAN_CONFIG, DNN_ENGINE_CONFIG);
}

int host_cudnnBackendGetAttribute(const cudnn_descriptor handle, int name, int type, int64_t room, int64_t *count,
                                  void *values)
{
    static const char call[] = "cudnnBackendGetAttribute";
    ENTER(cudnnBackendGetAttribute);
    const struct host_descriptor *descriptor = host_object(handle, HOST_DESCRIPTOR, call);
    if (descriptor == NULL || !descriptor->finished)
        return host_leave_cudnn(host_misuse_cudnn("%s of what is not finished", call));
    if (name == DNN_HEURISTICS_RESULTS && type == DNN_DESCRIPTOR)
        return host_leave_cudnn(offer_configs(descriptor, room, count, values));
    if (name != DNN_PLAN_WORKSPACE_BYTES || type != DNN_INT64 || room != 1)
        return host_leave_cudnn(host_misuse_cudnn("%s: the host table has no attribute %d to give", call, name));
    const struct host_descriptor *config = config_of(descriptor);
    bool first = config != NULL && config->engine == host.options.cudnn.refused;
    *(int64_t *)values = first ? (int64_t)host.options.cudnn.workspace_bytes : 0;
    *count = 1;
    return host_leave_cudnn(DNN_SUCCESS);
}

/* The lists must be on the device now; the rows that they tell of, when it runs. */
static bool lists_are_there(const struct host_attention *a, int device)
{
    size_t bytes = (size_t)a->rows * sizeof(int32_t), starts = bytes + sizeof(int32_t);
    return host_is_on_device(a->query_lengths, bytes, device, "cudnnBackendExecute", "the lengths") &&
           host_is_on_device(a->key_lengths, bytes, device, "cudnnBackendExecute", "the lengths") &&
           host_is_on_device(a->starts, starts, device, "cudnnBackendExecute", "the starts") &&
           host_is_on_device(a->context_starts, starts, device, "cudnnBackendExecute", "the starts");
}

static bool workspace_is_there(const struct host_descriptor *plan, const struct host_descriptor *pack, int device)
{
    const struct host_descriptor *config = config_of(plan);
    void *workspace;
    memcpy(&workspace, values_of(pack, DNN_PACK_WORKSPACE, DNN_POINTER, 1), sizeof workspace);
    bool first = config != NULL && config->engine == host.options.cudnn.refused;
    return !first || host.options.cudnn.workspace_bytes == 0 ||
           host_is_on_device(workspace, host.options.cudnn.workspace_bytes, device, "cudnnBackendExecute",
                             "the workspace");
}

int host_cudnnBackendExecute(cudnn_handle handle, cudnn_descriptor plan_handle, cudnn_descriptor pack_handle)
{
    static const char call[] = "cudnnBackendExecute";
    ENTER(cudnnBackendExecute);
    const struct host_dnn *dnn = host_object(handle, HOST_DNN, call);
    const struct host_descriptor *plan = host_object(plan_handle, HOST_DESCRIPTOR, call);
    const struct host_descriptor *pack = host_object(pack_handle, HOST_DESCRIPTOR, call);
    if (dnn == NULL || dnn->stream == NULL || plan == NULL || pack == NULL || !plan->finished || !pack->finished)
        return host_leave_cudnn(host_misuse_cudnn("%s without a stream, a plan or a pack", call));
    struct host_stream *stream = host_stream_for_work((cudaStream_t)dnn->stream, call);
    const struct host_descriptor *config = config_of(plan);
    if (stream == NULL || config == NULL)
        return host_leave_cudnn(DNN_INTERNAL_ERROR);
    if (stream->recording != NULL && host.options.cudnn.uncapturable) {
        stream->spoilt = true;
        return host_leave_cudnn(DNN_NOT_SUPPORTED);
    }
    struct host_work *work = host_work_new(WORK_ATTENTION);
    work->as.attention = put_together(config->operation, pack);
    if (!lists_are_there(&work->as.attention, stream->object.device) ||
        !workspace_is_there(plan, pack, stream->object.device)) {
        host_work_drop(work);
        return host_leave_cudnn(DNN_INTERNAL_ERROR);
    }
    host_enqueue(stream, work);
    return host_leave_cudnn(DNN_SUCCESS);
}
