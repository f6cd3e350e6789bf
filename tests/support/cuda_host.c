/* The host table's beginning and end, its devices, and the beginning and end of every call: a call is counted, and
 * fails where a fault is planted or the device is lost. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_host.h"
#include "cuda_host_private.h"
#include "products_device.h"

struct host host;
pthread_mutex_t host_mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t host_changed = PTHREAD_COND_INITIALIZER;

static bool is_open;
static _Thread_local int current_device;
static _Thread_local enum host_call current_call;
static _Thread_local int planted_answer; /* returned by a call that frees something, after it has done so */
static _Thread_local cudaError_t last_error;

static const char *const call_names[HOST_CALLS] = {
#define NAME(call) #call,
    CUDA_RUNTIME_CALLS(NAME) CUDA_BLASLT_CALLS(NAME) CUDA_BLAS_CALLS(NAME)
#undef NAME
};

/* Calls that only return information, and never fail. */
static bool only_tells(enum host_call call)
{
    return call == HOST_cudaGetErrorName || call == HOST_cudaGetErrorString || call == HOST_cudaGetLastError ||
           call == HOST_cublasLtGetVersion || call == HOST_cublasLtGetStatusName;
}

static bool gives_back(enum host_call call)
{
    return strstr(call_names[call], "Destroy") != NULL || strstr(call_names[call], "Free") != NULL;
}

static bool is_blas(enum host_call call)
{
    return strncmp(call_names[call], "cublas", 6) == 0;
}

/* Calls that work on a lost device, too. */
static bool needs_no_device(enum host_call call)
{
    switch (call) {
    case HOST_cudaGetDeviceCount:
    case HOST_cudaGetDeviceProperties:
    case HOST_cudaSetDevice:
    case HOST_cudaDriverGetVersion:
    case HOST_cublasLtMatmulDescCreate:
    case HOST_cublasLtMatmulDescSetAttribute:
    case HOST_cublasLtMatmulDescDestroy:
    case HOST_cublasLtMatrixLayoutCreate:
    case HOST_cublasLtMatrixLayoutDestroy:
    case HOST_cublasLtMatmulPreferenceCreate:
    case HOST_cublasLtMatmulPreferenceSetAttribute:
    case HOST_cublasLtMatmulPreferenceDestroy:
        return true;
    default:
        return only_tells(call);
    }
}

static int answer_of_a_lost_device(enum host_call call, cudaError_t lost)
{
    return is_blas(call) ? (int)CUBLAS_STATUS_EXECUTION_FAILED : (int)lost;
}

/* The answer that a planted fault gives to this call; 0: none. */
static int planted(enum host_call call)
{
    int answer = 0;
    for (unsigned i = 0; i < host.planted_count; i++) {
        struct host_planted *p = &host.planted[i];
        bool meant = p->fault.call == NULL ? !gives_back(call) : strcmp(p->fault.call, call_names[call]) == 0;
        if (!meant || ++p->seen != p->fault.at) { continue; }
        cudaError_t lost =
            p->fault.answer == 0 || is_blas(call) ? cudaErrorIllegalAddress : (cudaError_t)p->fault.answer;
        answer = p->fault.answer != 0 ? p->fault.answer : answer_of_a_lost_device(call, lost);
        if (p->fault.lost) { host.devices[current_device].lost = lost; }
    }
    return answer;
}

int host_enter(enum host_call call)
{
    pthread_mutex_lock(&host_mutex);
    if (!is_open) {
        fprintf(stderr, "cuda_host: %s while no host is open\n", call_names[call]);
        abort();
    }
    host.calls[call]++;
    current_call = call;
    planted_answer = 0;
    if (only_tells(call)) { return 0; }
    int answer = planted(call);
    cudaError_t lost = host.devices[current_device].lost;
    if (answer == 0 && lost != cudaSuccess && !needs_no_device(call)) { answer = answer_of_a_lost_device(call, lost); }
    if (answer == 0) { return 0; }
    if (gives_back(call) || call == HOST_cudaStreamEndCapture) {
        planted_answer = answer;
        return 0;
    }
    if (!is_blas(call)) { last_error = (cudaError_t)answer; }
    pthread_mutex_unlock(&host_mutex);
    return answer;
}

bool host_fails(void)
{
    return planted_answer != 0;
}

cudaError_t host_leave(cudaError_t answer)
{
    if (planted_answer != 0) { answer = (cudaError_t)planted_answer; }
    if (answer != cudaSuccess && answer != cudaErrorNotReady) { last_error = answer; }
    pthread_mutex_unlock(&host_mutex);
    return answer;
}

cublasStatus_t host_leave_blas(cublasStatus_t answer)
{
    if (planted_answer != 0) { answer = (cublasStatus_t)planted_answer; }
    pthread_mutex_unlock(&host_mutex);
    return answer;
}

/* The mutex is free while the test's own function runs: it may leave by a long jump. */
__attribute__((format(printf, 1, 0))) static void report(const char *format, va_list arguments)
{
    char text[512];
    vsnprintf(text, sizeof text, format, arguments);
    if (host.options.misuse == NULL) {
        fprintf(stderr, "cuda_host: misuse: %s\n", text);
        abort();
    }
    pthread_mutex_unlock(&host_mutex);
    host.options.misuse(text);
    pthread_mutex_lock(&host_mutex);
}

cudaError_t host_misuse(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    report(format, arguments);
    va_end(arguments);
    return cudaErrorInvalidValue;
}

cublasStatus_t host_misuse_blas(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    report(format, arguments);
    va_end(arguments);
    return CUBLAS_STATUS_INVALID_VALUE;
}

int host_current_device(void)
{
    return current_device;
}

static void host_set_current_device(int device)
{
    current_device = device;
}

static cudaError_t host_take_last_error(void)
{
    cudaError_t answer = last_error;
    last_error = cudaSuccess;
    return host.devices[current_device].lost != cudaSuccess ? host.devices[current_device].lost : answer;
}

/* Objects */

static const char *const kind_names[HOST_KINDS] = {
    "stream",
    "event",
    "graph",
    "instantiated graph",
    "cuBLASLt handle",
    "cuBLAS handle",
    "matmul description",
    "matrix layout",
    "matmul preference",
};

void *host_object_new(enum host_kind kind, size_t bytes)
{
    struct host_object *object = calloc(1, bytes);
    if (object == NULL) { abort(); }
    object->kind = kind;
    object->device = current_device;
    struct host_object **at = &host.objects;
    while (*at != NULL) { at = &(*at)->next; }
    *at = object;
    return object;
}

void *host_object(const void *handle, enum host_kind kind, const char *call)
{
    struct host_object *object = host.objects;
    while (object != NULL && object != handle) { object = object->next; }
    const char *why = NULL;
    if (handle == NULL) {
        why = "NULL";
    } else if (object == NULL || object->kind != kind) {
        why = "something else";
    } else if (object->destroyed) {
        why = "one that was destroyed";
    }
    if (why == NULL) { return object; }
    (void)host_misuse("%s: instead of a %s, %s was given", call, kind_names[kind], why);
    return NULL;
}

/* Beginning and end */

static void clear(void)
{
    while (host.objects != NULL) {
        struct host_object *object = host.objects;
        host.objects = object->next;
        host_object_release(object);
        free(object);
    }
    host_memory_end();
    is_open = false;
}

static void fill_in(struct cuda_host_options *options)
{
    if (options->devices == 0) { options->devices = 1; }
    if (options->capability == 0) { options->capability = 90; }
    if (options->memory_bytes == 0) { options->memory_bytes = (size_t)1 << 30; }
    if (options->algorithms[0].time_ns == 0) { options->algorithms[0].time_ns = 1000; }
}

const struct cuda_api *cuda_host_open(const struct cuda_host_options *options)
{
    if (is_open) { /* a case that failed has left it open */
        clear();
    }
    host = (struct host){0};
    if (options != NULL) { host.options = *options; }
    fill_in(&host.options);
    host.random = host.options.seed;
    current_device = 0;
    last_error = cudaSuccess;
#define SET(call) host.api.call = host_##call;
    CUDA_RUNTIME_CALLS(SET)
    CUDA_BLASLT_CALLS(SET)
    if (!host.options.no_cublas) { CUDA_BLAS_CALLS(SET) }
#undef SET
    host_memory_start();
    is_open = true;
    cuda_host_offer(host.options.algorithms);
    return &host.api;
}

static void report_leaks(void)
{
    unsigned left[HOST_KINDS] = {0};
    for (const struct host_object *o = host.objects; o != NULL; o = o->next) { left[o->kind] += !o->destroyed; }
    for (int kind = 0; kind < HOST_KINDS; kind++) {
        if (left[kind] > 0) { (void)host_misuse("never destroyed: %u x %s", left[kind], kind_names[kind]); }
    }
    host_memory_check();
}

void cuda_host_close(void)
{
    pthread_mutex_lock(&host_mutex);
    for (int device = 0; device < CUDA_HOST_DEVICES; device++) { host.devices[device].hangs = false; }
    (void)host_drain_device(-1); /* work that nobody waited for may still misuse memory */
    report_leaks();
    clear();
    pthread_mutex_unlock(&host_mutex);
}

uint64_t cuda_host_calls(const char *call)
{
    uint64_t sum = 0;
    bool known = call == NULL;
    pthread_mutex_lock(&host_mutex);
    for (int i = 0; i < HOST_CALLS; i++) {
        if (call == NULL || strcmp(call, call_names[i]) == 0) {
            sum += host.calls[i];
            known = true;
        }
    }
    pthread_mutex_unlock(&host_mutex);
    if (!known) {
        fprintf(stderr, "cuda_host: there is no call %s\n", call);
        abort();
    }
    return sum;
}

enum status cuda_api_real(const struct cuda_api **out, struct err *err)
{
    if (!is_open) { return err_set(err, STATUS_UNSUPPORTED, "this machine has no NVIDIA driver"); }
    *out = &host.api;
    return STATUS_OK;
}

const struct cuda_api *products_open(void)
{
    static const struct cuda_host_options options = {
        .memory_bytes = (size_t)16 << 20, .order = CUDA_HOST_SHUFFLED, .algorithms = {{2000, 0, 0}, {1000, 256, 0}}};
    return cuda_host_open(&options);
}

void products_close(void)
{
    cuda_host_close();
}

bool products_large(void)
{
    return false;
}

/* --- Information about its devices, and about itself --- */

enum { HOST_DRIVER = 13000, HOST_MULTIPROCESSORS = 4 };

cudaError_t host_cudaGetDeviceCount(int *out)
{
    ENTER(cudaGetDeviceCount);
    *out = (int)host.options.devices;
    return host_leave(cudaSuccess);
}

cudaError_t host_cudaGetDeviceProperties(struct cudaDeviceProp *out, int device)
{
    ENTER(cudaGetDeviceProperties);
    if (device < 0 || device >= (int)host.options.devices) { return host_leave(cudaErrorInvalidDevice); }
    *out = (struct cudaDeviceProp){0};
    snprintf(out->name, sizeof out->name, "host table");
    out->totalGlobalMem = host.options.memory_bytes;
    out->major = (int)host.options.capability / 10;
    out->minor = (int)host.options.capability % 10;
    out->multiProcessorCount = HOST_MULTIPROCESSORS;
    return host_leave(cudaSuccess);
}

cudaError_t host_cudaSetDevice(int device)
{
    ENTER(cudaSetDevice);
    if (device < 0 || device >= (int)host.options.devices) { return host_leave(cudaErrorInvalidDevice); }
    host_set_current_device(device);
    return host_leave(cudaSuccess);
}

cudaError_t host_cudaDriverGetVersion(int *out)
{
    ENTER(cudaDriverGetVersion);
    *out = HOST_DRIVER;
    return host_leave(cudaSuccess);
}

cudaError_t host_cudaGetLastError(void)
{
    ENTER(cudaGetLastError);
    cudaError_t answer = host_take_last_error();
    pthread_mutex_unlock(&host_mutex);
    return answer;
}

const char *host_cudaGetErrorName(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorInvalidValue:
        return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver:
        return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
        return "cudaErrorNoDevice";
    case cudaErrorIllegalAddress:
        return "cudaErrorIllegalAddress";
    default:
        return "another CUDA error";
    }
}

const char *host_cudaGetErrorString(cudaError_t error)
{
    (void)error;
    return "as the host table has it";
}

size_t host_cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

const char *host_cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    default:
        return "another cuBLAS status";
    }
}

/* --- Functions for tests: faults, orders, counts --- */

void cuda_host_plant(struct cuda_host_fault fault)
{
    pthread_mutex_lock(&host_mutex);
    if (host.planted_count == HOST_FAULTS) { abort(); }
    host.planted[host.planted_count++] = (struct host_planted){fault, 0};
    pthread_mutex_unlock(&host_mutex);
}

bool cuda_host_struck(void)
{
    bool struck = true;
    pthread_mutex_lock(&host_mutex);
    for (unsigned i = 0; i < host.planted_count; i++) {
        struck = struck && host.planted[i].seen >= host.planted[i].fault.at;
    }
    pthread_mutex_unlock(&host_mutex);
    return struck;
}

void cuda_host_clear(void)
{
    pthread_mutex_lock(&host_mutex);
    host.planted_count = 0;
    host.spoil.planted = false;
    pthread_mutex_unlock(&host_mutex);
}

void cuda_host_lose(int device)
{
    pthread_mutex_lock(&host_mutex);
    host.devices[device].lost = cudaErrorIllegalAddress;
    pthread_cond_broadcast(&host_changed);
    pthread_mutex_unlock(&host_mutex);
}

void cuda_host_hang(int device, bool hangs)
{
    pthread_mutex_lock(&host_mutex);
    host.devices[device].hangs = hangs;
    pthread_cond_broadcast(&host_changed);
    pthread_mutex_unlock(&host_mutex);
}

void cuda_host_spoil(cudaDataType_t type, uint32_t at, uint32_t times)
{
    pthread_mutex_lock(&host_mutex);
    host.spoil.planted = true;
    host.spoil.type = type;
    host.spoil.at = at;
    host.spoil.times = times;
    host.spoil.seen = 0;
    pthread_mutex_unlock(&host_mutex);
}

void cuda_host_offer(const struct cuda_host_algorithm *algorithms)
{
    pthread_mutex_lock(&host_mutex);
    host.offered_count = 0;
    for (uint32_t i = 0; algorithms != NULL && i < CUDA_HOST_ALGORITHMS && algorithms[i].time_ns != 0; i++) {
        host.offered[host.offered_count++] = algorithms[i];
    }
    pthread_mutex_unlock(&host_mutex);
}

size_t cuda_host_held_bytes(int device)
{
    pthread_mutex_lock(&host_mutex);
    size_t bytes = host.devices[device].held_bytes;
    pthread_mutex_unlock(&host_mutex);
    return bytes;
}

size_t cuda_host_most_bytes(int device)
{
    pthread_mutex_lock(&host_mutex);
    size_t bytes = host.devices[device].most_bytes;
    pthread_mutex_unlock(&host_mutex);
    return bytes;
}

/* Copies between ordinary memory and a device's, without any of its streams. */
static void look(void *to, const void *from, const void *device_memory, size_t bytes)
{
    pthread_mutex_lock(&host_mutex);
    (void)host_drain_device(-1);
    const struct host_block *block = host_block_of(device_memory, bytes);
    if (block == NULL || block->device == HOST_PINNED) {
        fprintf(stderr, "cuda_host: peek or poke at what is not device memory\n");
        abort();
    }
    host_memory_open(block->device);
    memcpy(to, from, bytes);
    host_memory_shut();
    pthread_mutex_unlock(&host_mutex);
}

void cuda_host_peek(void *to, const void *device_memory, size_t bytes)
{
    look(to, device_memory, device_memory, bytes);
}

void cuda_host_poke(void *device_memory, const void *from, size_t bytes)
{
    look(device_memory, from, device_memory, bytes);
}
