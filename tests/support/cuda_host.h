/* A table of CUDA calls (engine/cuda/api.h) that needs no GPU: device memory is memory, a stream is a queue of work
 * that runs in this process, a graph is the recorded work, a matrix product is three loops, a kernel runs under the
 * SIMT shim (simt.h).
 *
 * It is stricter than a GPU. Work that was enqueued runs as late, or in as odd an order, as its streams and events
 * allow (enum cuda_host_order). Fresh device memory is filled with ones (not-a-number in every float type). Host code
 * that touches device memory, or work of a device that touches another's, dies with SIGSEGV and a line that names the
 * owner; freed memory is never given out again. Every misuse of a call is reported (struct cuda_host_options.misuse; by
 * default: printed, then abort), and cuda_host_close reports all that was not freed.
 *
 * There is one host at a time in a process; its calls may come from several threads, and run one at a time.
 *
 * It differs from CUDA on purpose: a device must be current when work is enqueued on its streams; work from ordinary
 * memory is copied at the call, work to ordinary memory is done at the call; one stream takes part in a capture; legacy
 * default streams do not exist. A kernel must be known to the shim (its launcher registers it). */
#ifndef TESTS_CUDA_HOST_H
#define TESTS_CUDA_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/cuda/api.h"

/* When enqueued work runs. In every order, a stream's own work runs in turn and waits for the events of its
 * cudaStreamWaitEvent calls; a query (of a stream or event) always lets a piece of work run, so that polling ends. */
enum cuda_host_order {
    CUDA_HOST_LATE,   /* only when something waits for it, and then nothing else: shows missing waits for data */
    CUDA_HOST_OTHERS, /* at a wait, all work that other streams may do runs first: shows that a buffer is written again
                         too early */
    CUDA_HOST_SHUFFLED, /* anything allowed, by `seed`: at an enqueue perhaps some, at a wait until it is over */
    CUDA_HOST_AT_ONCE,  /* at the call: no order is tested */
};

/* The algorithms that the heuristics offer for a product, in their order. Algorithm i adds the products of a row in i +
 * 1 interleaved parts, so that the last bits of a result show which one ran. */
struct cuda_host_algorithm {
    uint32_t time_ns; /* by the device's clock, whatever the shape */
    size_t workspace_bytes;
    cublasStatus_t answer; /* of cublasLtMatmul; 0: it works */
};
enum { CUDA_HOST_ALGORITHMS = 16 };

struct cuda_host_options {
    uint32_t devices;    /* 0: one; at most CUDA_HOST_DEVICES */
    uint32_t capability; /* 0: 90 */
    size_t memory_bytes; /* of each device; 0: 1 GiB */
    size_t graph_bytes;  /* device memory that an instantiated graph takes */
    enum cuda_host_order order;
    uint64_t seed;
    struct cuda_host_algorithm
        algorithms[CUDA_HOST_ALGORITHMS]; /* up to the first of time_ns 0; none: one of 1000 ns */
    bool no_cublas;                       /* the gemmEx fields are NULL */
    void (*misuse)(const char *what);     /* when it returns, so does the call, with an error */
};
enum { CUDA_HOST_DEVICES = 4 };

/* Starts a host, or NULL options for the defaults. Owns: the caller ends it with cuda_host_close. */
const struct cuda_api *cuda_host_open(const struct cuda_host_options *options);

/* Ends the host; reports objects that were not destroyed and overruns of memory as misuse. */
void cuda_host_close(void);

/* A planted fault. Counting starts when it is planted; several may be planted. */
struct cuda_host_fault {
    const char *call; /* "cudaMalloc", "cublasLtMatmul", or NULL: every call that can fail except those that free */
    uint32_t at;      /* 1: the next such call */
    int answer;       /* a cudaError_t, or a cublasStatus_t for cuBLAS's calls; 0: as fits a lost device */
    bool lost;        /* the current device is lost from then on: every later call on it returns that error */
};
void cuda_host_plant(struct cuda_host_fault fault);
bool cuda_host_struck(void); /* whether every planted fault has fired */
void cuda_host_clear(void);  /* no planted faults; a lost device stays lost */

/* Loses a device now, between calls. */
void cuda_host_lose(int device);

/* While a device hangs nothing runs on it: a thread that waits for it blocks until it goes on, queries return "not
 * ready". */
void cuda_host_hang(int device, bool hangs);

/* Makes element [0, 0] not a number in `times` products of `type`, from the at-th from now on (1: the next to run).
 * `times` 0: in every one from then on. */
void cuda_host_spoil(cudaDataType_t type, uint32_t at, uint32_t times);

/* Replaces what the heuristics offer from now on (a list as in the options). */
void cuda_host_offer(const struct cuda_host_algorithm *algorithms);

/* Returns how often a call was made since the host was opened, by name: "cudaGraphLaunch"; NULL: all together. */
uint64_t cuda_host_calls(const char *call);

/* The memory in use on a device now, and its maximum so far. Units: bytes. */
size_t cuda_host_held_bytes(int device);
size_t cuda_host_most_bytes(int device);

/* Copies out of, or into, device memory without a stream, after all work has run: for tests that inspect or change it.
 */
void cuda_host_peek(void *to, const void *device_memory, size_t bytes);
void cuda_host_poke(void *device_memory, const void *from, size_t bytes);

#endif
