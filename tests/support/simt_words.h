/* The device's words for host compilers: kernels/device.h includes them in place of nvcc's own. simt.h explains how the
 * lanes run; this file has all that a kernel may say. A word that is missing here does not compile, on purpose. */
#ifndef TESTS_SIMT_WORDS_H
#define TESTS_SIMT_WORDS_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include "simt.h"

#undef __shared__ /* see SHARED */
#undef __launch_bounds__
#define __launch_bounds__(...)

/* A lane's place in a kernel: a word, and the line that says it. */
struct simt_site {
    const char *word;
    const char *file;
    int line;
};
#define SIMT_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

struct simt_place {
    uint3 thread;
    uint3 block;
    dim3 block_size;
    dim3 grid_size;
};

/* The indexes of the lane that runs now. */
const struct simt_place &simt_self();

#define threadIdx (simt_self().thread)
#define blockIdx (simt_self().block)
#define blockDim (simt_self().block_size)
#define gridDim (simt_self().grid_size)

/* --- shared memory: each block's own, filled with 0xff ------------------------------------------------------------ */

/* The block's piece of shared memory for one declaration, which `key` stands for. */
void *simt_shared(const void *key, size_t bytes);
void *simt_shared_dynamic();

#define SIMT_DECLARATION                                                                                               \
    ([] {                                                                                                              \
        static char key;                                                                                               \
        return static_cast<const void *>(&key);                                                                        \
    }())
template <class T> struct simt_type {
    typedef T type;
};

/* SHARED(float, sums, [4][32]) */
#define SHARED(type_, name, dimensions)                                                                                \
    typename simt_type<type_ dimensions>::type &name = *static_cast<typename simt_type<type_ dimensions>::type *>(     \
        simt_shared(SIMT_DECLARATION, sizeof(type_ dimensions)))
/* The shared memory that the launch asked for, as an array. */
#define SHARED_DYNAMIC(type, name) type *name = static_cast<type *>(simt_shared_dynamic())

/* The one parameter of a kernel, and its type in a pointer to one. */
#define KERNEL_ARGS(type, name) const type &name
#define KERNEL_PARAMETER(type) const type &
#define KERNEL_KNOW(kernel, bytes) simt_know_kernel(kernel, bytes)
/* Raises the limit of a kernel's dynamic shared memory, as cudaFuncSetAttribute does. */
#define KERNEL_ALLOW_SHARED(kernel, bytes) simt_allow_shared(kernel, bytes)

/* --- lanes that meet --------------------------------------------------------------------------------------------- */

/* Ends the launch with this complaint. */
[[noreturn]] void simt_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Computes a common operation of a warp's lanes, from the record of each; NULL for those outside the mask. */
typedef void simt_combine(void *const records[32], uint32_t mask);

/* The lanes of `mask` meet here, at the same site with the same mask; the last one calls `combine`, which may be NULL.
 * Every lane's record lives until its own call returns. */
void simt_meet(struct simt_site site, uint32_t mask, simt_combine *combine, void *record);

enum simt_vote { SIMT_COUNT, SIMT_ALL, SIMT_ANY };
/* All lanes of the block meet here. */
int simt_barrier(struct simt_site site, enum simt_vote vote, bool mine);

inline void __syncthreads(SIMT_HERE)
{
    simt_barrier({"__syncthreads", file, line}, SIMT_ALL, true);
}
inline int __syncthreads_count(int mine, SIMT_HERE)
{
    return simt_barrier({"__syncthreads_count", file, line}, SIMT_COUNT, mine != 0);
}
inline int __syncthreads_and(int mine, SIMT_HERE)
{
    return simt_barrier({"__syncthreads_and", file, line}, SIMT_ALL, mine != 0);
}
inline int __syncthreads_or(int mine, SIMT_HERE)
{
    return simt_barrier({"__syncthreads_or", file, line}, SIMT_ANY, mine != 0);
}
inline void __syncwarp(uint32_t mask = 0xffffffffu, SIMT_HERE)
{
    simt_meet({"__syncwarp", file, line}, mask, nullptr, nullptr);
}

uint32_t simt_ballot(struct simt_site site, uint32_t mask, bool mine);
inline uint32_t __ballot_sync(uint32_t mask, int mine, SIMT_HERE)
{
    return simt_ballot({"__ballot_sync", file, line}, mask, mine != 0);
}
inline int __any_sync(uint32_t mask, int mine, SIMT_HERE)
{
    return simt_ballot({"__any_sync", file, line}, mask, mine != 0) != 0;
}

enum simt_shuffle { SIMT_FROM, SIMT_XOR };
uint64_t simt_shuffle(struct simt_site site, enum simt_shuffle how, uint32_t mask, uint64_t mine, int other, int width);

template <class T>
T simt_shuffle_of(struct simt_site site, enum simt_shuffle how, uint32_t mask, T mine, int other, int width)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves 4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &mine, sizeof mine);
    bits = simt_shuffle(site, how, mask, bits, other, width);
    memcpy(&mine, &bits, sizeof mine);
    return mine;
}
template <class T> T __shfl_sync(uint32_t mask, T mine, int from, int width = 32, SIMT_HERE)
{
    return simt_shuffle_of({"__shfl_sync", file, line}, SIMT_FROM, mask, mine, from, width);
}
template <class T> T __shfl_xor_sync(uint32_t mask, T mine, int bits, int width = 32, SIMT_HERE)
{
    return simt_shuffle_of({"__shfl_xor_sync", file, line}, SIMT_XOR, mask, mine, bits, width);
}

/* --- Hopper's barriers and asynchronous products --------------------------------------------------------------- */

/* A barrier in shared memory that lanes of the block arrive at; a phase ends when `expected` have. */
struct simt_mbarrier {
    uint16_t expected, pending;
    uint32_t phase; /* the number of those that have ended */
};
void simt_mbarrier_begin(struct simt_mbarrier *at, uint32_t expected);
void simt_mbarrier_arrive(struct simt_mbarrier *at);
bool simt_mbarrier_ended(const struct simt_mbarrier *at, uint32_t parity); /* the phase of that parity */
void simt_mbarrier_wait(struct simt_site site, struct simt_mbarrier *at, uint32_t parity);

/* A common operation of a warp that happens when its lanes wait for it, and not before. The record is copied. */
void simt_later(struct simt_site site, simt_combine *combine, const void *record, size_t bytes);
void simt_later_commit();
void simt_later_wait(uint32_t groups_left);

/* --- asynchronous copies (cp.async): the bytes arrive when the lane waits for them, and not before -----------------
 */

void simt_copy_async(void *to, const void *from, uint32_t bytes, uint32_t zeros_from); /* the rest is filled with 0 */
void simt_copy_commit();
void simt_copy_wait(uint32_t groups_left);

/* Records a lane's read by other means than a plain load. */
void simt_reads(const void *at, size_t bytes);

/* --- atomics: lanes never run at the same time, so plain words do; these are not watched, but said to be atomic ------
 */

void simt_updates(const void *at, size_t bytes);
#define SIMT_ATOMIC template <class T> __attribute__((no_sanitize("thread")))

SIMT_ATOMIC T atomicAdd(T *at, T value)
{
    simt_updates(at, sizeof *at);
    T before = *at;
    *at = before + value;
    return before;
}

/* --- arithmetic ----------------------------------------------------------------------------------------------------
 */

using std::isfinite;
using std::isnan;
using std::max;
using std::min;

inline float rsqrtf(float x)
{
    return 1.0f / std::sqrt(x);
}
inline float __uint_as_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif
