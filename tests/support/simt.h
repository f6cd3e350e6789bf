/* Runs CUDA kernels on the host, for tests. This is the side of a test or a host table; simt_words.h is the kernels'
 * side.
 *
 * The lanes of a block are fibers of the calling thread. A lane runs until it waits (a barrier, a shuffle, a vote) or
 * leaves; then another one that can go on is chosen, by the thread's order. Blocks run one after the other. That is
 * slow and exact: mistakes that real hardware forgives by luck are errors here. A launch ends with a complaint when
 *   - lanes wait at a barrier that others miss: they have left the kernel, or wait at another one;
 *   - lanes of a warp wait for one that its mask names and that does not come, or come with another mask;
 *   - a shuffle reads a lane outside its mask;
 *   - shared memory is written beyond its end (ASan sees reads too), or asynchronous copies are never waited for;
 *   - lanes race: one writes what another one reads or writes, in shared or global memory, and nothing orders the two
 *     (simt_race.cc; not in builds with a sanitizer);
 *   - grid, block or shared memory are larger than every device allows.
 * Shared memory starts as bytes 0xff in every block: a NaN in every float type. Without the watch for races, a missing
 * barrier shows in the results of one order or another, so run a kernel in several.
 *
 * Thread: everything here belongs to the calling thread; launches of several threads run side by side. */
#ifndef TESTS_SIMT_H
#define TESTS_SIMT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum simt_order {
    SIMT_FORWARD,  /* the lowest lane that can go on; blocks from the first to the last */
    SIMT_REVERSED, /* the highest lane; blocks from the last to the first */
    SIMT_RANDOM,   /* any, by a seed */
};

/* The order of this thread's launches from now on; forward at first. */
void simt_set_order(enum simt_order order, uint64_t seed);

/* Runs a kernel to its end. Its signature is cudaLaunchKernel's; `stream` is ignored.
 * Errors: cudaErrorInvalidConfiguration, cudaErrorInvalidValue (more than any device has), cudaErrorLaunchFailure (a
 * mistake in the kernel); simt_complaint then says more. */
cudaError_t simt_launch(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                        cudaStream_t stream);

/* simt_sees_races returns whether the shim sees races in this build; simt_watch sets whether it looks for them in this
 * thread's launches from now on, which it does at first and which makes them take several times as long. */
bool simt_sees_races(void);
void simt_watch(bool races);

/* Returns whether the shim itself sees that shared memory was written beyond its end: under ASan the process ends
 * before. */
bool simt_sees_overruns(void);

/* The complaint about this thread's last launch; empty if there is none. Owns: the shim, until the next launch. */
const char *simt_complaint(void);

/* The size of a kernel's one argument, so that a launch can be deferred; 0 for a kernel that none of the launchers of
 * kernels.h has launched yet. Thread: any. */
size_t simt_kernel_bytes(const void *kernel);
void simt_know_kernel(const void *kernel, size_t argument_bytes);

/* Raises the limit of a kernel's dynamic shared memory. Thread: any. */
cudaError_t simt_allow_shared(const void *kernel, size_t bytes);

/* simt_launch for a host table (cuda_host.h): a mistake ends the process, with the complaint. */
void simt_kernel_run(const void *kernel, dim3 grid, dim3 block, const void *argument, size_t shared_bytes);

#ifdef __cplusplus
}
#endif

#endif
