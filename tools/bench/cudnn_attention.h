/* cuDNN's scaled dot product attention on ragged rows: another maker's kernels, with which gpu_attention.c compares the
 * numbers and times of ours.
 *
 * cuDNN makes a plan for a number of rows and a longest row; it reads the actual rows from device memory when it runs.
 *
 * cuDNN is not part of NVIDIA's toolkit, so nothing of it is needed to build: its few calls and numbers are declared
 * here, under names of our own (cudnn_numbers.c checks them against cuDNN's headers where they exist). A field of the
 * table has the name of the call that it holds. Descriptors are opaque, and are described by attributes.
 * Source: cuDNN 9.13 backend API reference, whose numbers are part of its binary interface. */
#ifndef TESTS_GPU_CUDNN_ATTENTION_H
#define TESTS_GPU_CUDNN_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#include "engine/cuda/api.h"
#include "kernels/kernels.h"

typedef void *cudnn_handle;
typedef void *cudnn_descriptor;

enum { CUDNN_LEAST_VERSION = 91300 }; /* the first with an attention operation of its own */

enum cudnn_answer { DNN_SUCCESS = 0, DNN_NOT_SUPPORTED = 3000, DNN_INTERNAL_ERROR = 4000, DNN_EXECUTION_FAILED = 5000 };

enum cudnn_descriptor_type {
    DNN_ENGINE_CONFIG = 3,
    DNN_HEURISTICS = 4,
    DNN_PLAN = 5,
    DNN_GRAPH = 15,
    DNN_PACK = 16,
    DNN_TENSOR = 17,
    DNN_ATTENTION = 41,
};

enum cudnn_attribute {
    DNN_HEURISTICS_MODE = 200,
    DNN_HEURISTICS_GRAPH = 201,
    DNN_HEURISTICS_RESULTS = 202,
    DNN_PLAN_HANDLE = 400,
    DNN_PLAN_CONFIG = 401,
    DNN_PLAN_WORKSPACE_BYTES = 402,
    DNN_GRAPH_HANDLE = 800,
    DNN_GRAPH_OPERATIONS = 801,
    DNN_TENSOR_ALIGNMENT = 900,
    DNN_TENSOR_TYPE = 901,
    DNN_TENSOR_SIZE = 902,
    DNN_TENSOR_STRIDE = 903,
    DNN_TENSOR_NUMBER = 906,
    DNN_TENSOR_BY_VALUE = 908,
    DNN_TENSOR_STARTS = 913, /* a tensor with the beginning of each row, in elements */
    DNN_PACK_NUMBERS = 1000,
    DNN_PACK_POINTERS = 1001,
    DNN_PACK_WORKSPACE = 1003,
    DNN_ATTENTION_QUERIES = 2800,
    DNN_ATTENTION_KEYS = 2801,
    DNN_ATTENTION_VALUES = 2802,
    DNN_ATTENTION_CONTEXT = 2803,
    DNN_ATTENTION_SCALE = 2805,
    DNN_ATTENTION_QUERY_LENGTHS = 2809,
    DNN_ATTENTION_KEY_LENGTHS = 2810,
};

/* The type of an attribute's values: a handle, numbers of one of the enums below, C's _Bool, int64_t, ... */
enum cudnn_value {
    DNN_HANDLE = 0,
    DNN_DATA_TYPE = 1,
    DNN_BOOLEAN = 2,
    DNN_INT64 = 3,
    DNN_POINTER = 6,
    DNN_MODE = 8,
    DNN_DESCRIPTOR = 15,
};

enum cudnn_data_type { DNN_F32 = 0, DNN_F16 = 2, DNN_INT32 = 4, DNN_BF16 = 9 };
enum cudnn_mode { DNN_MODE_A = 3 }; /* the careful mode of the heuristics */

/* CALL(result, name, parameters) */
#define CUDNN_CALLS(CALL)                                                                                              \
    CALL(size_t, cudnnGetVersion, (void))                                                                              \
    CALL(const char *, cudnnGetErrorString, (int answer))                                                              \
    CALL(void, cudnnGetLastErrorString, (char *text, size_t size))                                                     \
    CALL(int, cudnnCreate, (cudnn_handle * out))                                                                       \
    CALL(int, cudnnDestroy, (cudnn_handle handle))                                                                     \
    CALL(int, cudnnSetStream, (cudnn_handle handle, cudaStream_t stream))                                              \
    CALL(int, cudnnBackendCreateDescriptor, (int type, cudnn_descriptor *out))                                         \
    CALL(int, cudnnBackendDestroyDescriptor, (cudnn_descriptor descriptor))                                            \
    CALL(int, cudnnBackendSetAttribute,                                                                                \
         (cudnn_descriptor descriptor, int name, int value_type, int64_t count, const void *values))                   \
    CALL(int, cudnnBackendGetAttribute,                                                                                \
         (const cudnn_descriptor descriptor, int name, int value_type, int64_t room, int64_t *count, void *values))    \
    CALL(int, cudnnBackendFinalize, (cudnn_descriptor descriptor))                                                     \
    CALL(int, cudnnBackendExecute, (cudnn_handle handle, cudnn_descriptor plan, cudnn_descriptor pack))

struct cudnn_api {
#define CUDNN_API_FIELD(result, name, parameters) result(*name) parameters;
    CUDNN_CALLS(CUDNN_API_FIELD)
#undef CUDNN_API_FIELD
};

/* The table of this machine's cuDNN, which is opened at the first call; every call returns the same one, for the life
 * of the process. Errors: STATUS_UNSUPPORTED with the reason: cuDNN is missing or too old. Thread: any. */
MUST_CHECK enum status cudnn_api_real(const struct cudnn_api **out, struct err *err);

/* Scratch memory of all plans; a plan that needs more is not used. */
enum { CUDNN_WORKSPACE_BYTES = 16 << 20 };

struct cudnn_options {
    const struct cudnn_api *api;
    const struct cuda_api *cuda;
    cudaStream_t stream;
    enum kernel_type type; /* f16 or bf16 */
    uint32_t heads, head_dim;
    float scale;
    void *workspace; /* [CUDNN_WORKSPACE_BYTES] in device memory, used while a plan runs */
};

struct cudnn;
struct cudnn_plan;

/* The rows of a run, in the number of the plan, all in device memory; one of length 0 is unused. Offsets count elements
 * of the matrix, whose rows are 3 * hidden and hidden wide. */
struct cudnn_rows {
    const int32_t *length;         /* [rows] */
    const int32_t *qkv_starts;     /* [rows + 1] */
    const int32_t *context_starts; /* [rows + 1] */
};

/* Opens cuDNN on the current device. Owns: the caller ends it with cudnn_close, when nothing runs any more; the tables
 * and the workspace outlive it. Errors: STATUS_NO_MEMORY, STATUS_DEVICE_LOST, STATUS_UNSUPPORTED. */
MUST_CHECK enum status cudnn_open(const struct cudnn_options *options, struct cudnn **out, struct err *err);

/* Frees the plans and closes cuDNN. NULL is allowed. */
void cudnn_close(struct cudnn *cudnn);

/* The plan for `rows` rows of at most `longest` tokens, made at the first call.
 * Errors: STATUS_DEVICE_LOST; any other one says why there is no such plan. */
MUST_CHECK enum status cudnn_find(struct cudnn *cudnn, uint32_t rows, uint32_t longest, const struct cudnn_plan **out,
                                  struct err *err);

/* Enqueues attention. Shapes: qkv [tokens, 3 * hidden], read; context [tokens, hidden], written only in the rows; both
 * in device memory, aligned to 16 bytes. Errors: STATUS_DEVICE_LOST; after any other one nothing was enqueued. */
MUST_CHECK enum status cudnn_run(struct cudnn *cudnn, const struct cudnn_plan *plan, const struct cudnn_rows *rows,
                                 const void *qkv, void *context, struct err *err);

#endif
