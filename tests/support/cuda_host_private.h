/* Shared by the files of the host table. One struct host holds its state; one mutex guards it, and is held during a
 * call and the work that the call runs. */
#ifndef TESTS_CUDA_HOST_PRIVATE_H
#define TESTS_CUDA_HOST_PRIVATE_H

#include <pthread.h>

#include "cuda_host.h"

/* Every call of the table, in its order. */
enum host_call {
#define HOST_CALL(call) HOST_##call,
    CUDA_RUNTIME_CALLS(HOST_CALL) CUDA_BLASLT_CALLS(HOST_CALL) CUDA_BLAS_CALLS(HOST_CALL)
#undef HOST_CALL
        HOST_CALLS
};

/* Every kind of object that a handle can be. Objects stay until the host closes, so that a use after the end is seen.
 */
enum host_kind {
    HOST_STREAM,
    HOST_EVENT,
    HOST_GRAPH,
    HOST_EXEC,
    HOST_LT,
    HOST_BLAS,
    HOST_DESC,
    HOST_LAYOUT,
    HOST_PREFERENCE,
    HOST_KINDS
};

struct host_object {
    struct host_object *next;
    enum host_kind kind;
    int device;
    bool destroyed;
};

/* Memory that was given out: of a device, or of the host (pinned). */
enum { HOST_PINNED = -1 };
struct host_block {
    int device;
    bool freed;
    char *data;
    size_t bytes;
    char *map; /* of a device: pages [map, map + map_bytes), the first and the last of them never readable */
    size_t map_bytes;
};

/* A point in a stream that others may wait for. */
struct host_mark {
    unsigned references;
    bool done;
    uint64_t time_ns; /* by the device's clock, when it was done */
    struct host_stream *stream;
};

struct host_copy {
    void *to;
    const void *from;
    size_t bytes;
    void *snapshot; /* of ordinary memory, owned; `from` points here */
};

struct host_fill {
    void *to;
    int value;
    size_t bytes;
};

struct host_launch {
    const void *kernel;
    dim3 grid;
    dim3 block;
    size_t shared_bytes;
    void *argument; /* owned */
};

/* A matrix of a product, column-major as cuBLAS has it. */
struct host_matrix {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t ld;
};

/* d = after(op(a) * b + beta * c), with a transposed or not. */
struct host_product {
    bool transpose_a;
    struct host_matrix a, b, d; /* c is like d */
    const void *from_a, *from_b, *from_c;
    void *to;
    const void *bias; /* NULL: none */
    cublasLtEpilogue_t epilogue;
    float alpha, beta;
    uint32_t algorithm;
    uint32_t time_ns;
};

enum host_work_kind { WORK_COPY, WORK_FILL, WORK_LAUNCH, WORK_PRODUCT, WORK_RECORD, WORK_WAIT };

/* A piece of work. It never changes once made, so that graphs and streams share it. */
struct host_work {
    unsigned references;
    enum host_work_kind kind;
    union {
        struct host_copy copy;
        struct host_fill fill;
        struct host_launch launch;
        struct host_product product;
        struct host_mark *mark; /* of a record or a wait; owns a reference */
    } as;
};

struct host_node {
    struct host_node *next;
    struct host_work *work;
};

struct host_list {
    struct host_node *first;
    struct host_node *last;
};

struct host_stream {
    struct host_object object;
    struct host_list waiting; /* enqueued, not run yet */
    struct host_graph *recording;
    enum cudaStreamCaptureMode mode;
    pthread_t recorder;
    bool spoilt; /* a call was made that ends the capture without a graph */
};

struct host_event {
    struct host_object object;
    bool timed;
    struct host_mark *mark; /* of the last record; NULL: never recorded */
};

struct host_graph {
    struct host_object object;
    struct host_list work;
};

struct host_exec {
    struct host_object object;
    struct host_list work;
};

struct host_planted {
    struct cuda_host_fault fault;
    uint32_t seen;
};

enum { HOST_FAULTS = 8 };

struct host_device {
    cudaError_t lost; /* cudaSuccess: it is there */
    bool hangs;
    bool open; /* its memory may be touched now */
    uint64_t clock_ns;
    size_t held_bytes;
    size_t most_bytes;
};

struct host {
    struct cuda_host_options options;
    struct cuda_host_algorithm offered[CUDA_HOST_ALGORITHMS];
    uint32_t offered_count;
    struct cuda_api api;
    struct host_device devices[CUDA_HOST_DEVICES];
    struct host_object *objects;
    struct host_block *blocks;
    size_t block_count;
    size_t block_room;
    uint64_t random;
    uint64_t calls[HOST_CALLS];
    struct host_planted planted[HOST_FAULTS];
    unsigned planted_count;
    struct {
        bool planted;
        cudaDataType_t type;
        uint32_t at, times, seen;
    } spoil;
};

extern struct host host;
extern pthread_mutex_t host_mutex;
extern pthread_cond_t host_changed; /* a device hangs or is lost or goes on, or a thread blocks */

/* cuda_host.c: the beginning and end of every call */

/* Takes the mutex and counts a call. When the call must fail now, gives the mutex back and returns its error. */
int host_enter(enum host_call call);
bool host_fails(void); /* whether the current call ends with a planted answer, or that of a lost device */
cudaError_t host_leave(cudaError_t answer);
cublasStatus_t host_leave_blas(cublasStatus_t answer);
#define ENTER(call)                                                                                                    \
    do {                                                                                                               \
        int entered_ = host_enter(HOST_##call);                                                                        \
        if (entered_ != 0) return entered_;                                                                            \
    } while (0)

/* Reports a misuse (the mutex is held) and returns the error that a call then gives. */
cudaError_t host_misuse(const char *format, ...) PRINTF_LIKE(1, 2);
cublasStatus_t host_misuse_blas(const char *format, ...) PRINTF_LIKE(1, 2);

int host_current_device(void);

/* Registers a new object of the current device. Checks a handle: NULL and a misuse when it is none, of another kind or
 * destroyed. */
void *host_object_new(enum host_kind kind, size_t bytes);
void *host_object(const void *handle, enum host_kind kind, const char *call);

/* cuda_host_memory.c */
struct host_block *host_block_of(const void *address, size_t bytes); /* the live block that holds all of it, or NULL */
void host_memory_open(int device);                                   /* its memory may be touched, no other's */
void host_memory_shut(void);
void host_memory_start(void);
void host_memory_check(void); /* reports memory that was not freed or was overrun as misuse */
void host_memory_end(void);
bool host_is_known(const void *address);    /* whether it points into memory that is, or was, given out */
bool host_charge(int device, size_t bytes); /* false: less than that is left */
void host_discharge(int device, size_t bytes);
/* Returns whether [address, address + bytes) is live memory of the device; a misuse if not. */
bool host_is_on_device(const void *address, size_t bytes, int device, const char *call, const char *what);

/* cuda_host_stream.c */
struct host_work *host_work_new(enum host_work_kind kind);
/* Enqueues, or records. Owns: takes the caller's reference of `work`. */
void host_enqueue(struct host_stream *stream, struct host_work *work);
/* Runs until no stream of the device (-1: of any) has work left, or the device is lost. Waits while the device hangs.
 */
cudaError_t host_drain_device(int device);
void host_object_release(struct host_object *object); /* of any kind: releases what it holds */
/* Checks a stream before work is enqueued on it; NULL and a misuse if it cannot be. */
struct host_stream *host_stream_for_work(cudaStream_t handle, const char *call);
/* Returns whether a call that waits, allocates or frees is forbidden now, because a stream is captured; then reports a
 * misuse. */
bool host_capture_forbids(const char *call);

/* cuda_host_blas.c */
void host_multiply(const struct host_product *product);
void host_put_element(void *matrix, cudaDataType_t type, size_t index, float value);
float host_get_element(const void *matrix, cudaDataType_t type, size_t index);
size_t host_element_bytes(cudaDataType_t type); /* 0: not a type of ours */

/* The functions of the table, one header line for each. */
#define HOST_DECLARE(call) extern __typeof__(call) host_##call;
CUDA_RUNTIME_CALLS(HOST_DECLARE)
CUDA_BLASLT_CALLS(HOST_DECLARE)
CUDA_BLAS_CALLS(HOST_DECLARE)
#undef HOST_DECLARE

#endif
