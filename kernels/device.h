/* Shared by all kernels: shared memory and launches in a form that a host compiler understands too (the tests build
 * these files with tests/support/simt.h), chunks of eight elements, and sums over a warp. */
#ifndef KERNELS_DEVICE_H
#define KERNELS_DEVICE_H

#include <stdint.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/kernels.h"

#ifdef __CUDACC__
/* SHARED(float, sums, [4][32]) */
#define SHARED(type, name, dimensions) __shared__ type name dimensions
/* The launch's dynamic shared memory, as an array. */
#define SHARED_DYNAMIC(type, name)                                                                                     \
    extern __shared__ __align__(1024) unsigned char kernel_dynamic[];                                                  \
    type *name = reinterpret_cast<type *>(kernel_dynamic)
/* A kernel's one parameter, and its type in a function pointer. */
#define KERNEL_ARGS(type, name) const __grid_constant__ type name
#define KERNEL_PARAMETER(type) type
#define KERNEL_KNOW(kernel, bytes)
/* Raises the limit of a kernel's dynamic shared memory, which is 48 KiB by itself. */
#define KERNEL_ALLOW_SHARED(kernel, bytes)                                                                             \
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes))
#else
#include "simt_words.h"
#endif

enum { WARP = 32 };

/* Enqueues a launch; every launcher ends here. */
template <class Args>
cudaError_t kernel_enqueue(const struct kernel_queue *queue, void (*kernel)(KERNEL_PARAMETER(Args)), dim3 grid,
                           dim3 block, size_t shared_bytes, const Args *args)
{
    const void *handle = reinterpret_cast<const void *>(kernel);
    void *arguments[] = {const_cast<Args *>(args)};
    KERNEL_KNOW(handle, sizeof *args);
    return queue->launch(handle, grid, block, arguments, shared_bytes, queue->cuda_stream);
}

/* a / b, rounded up; b is not 0 and a + b fits 32 bits. */
inline uint32_t ceil_div(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

/* True if an access of 128 bits may begin there. */
inline bool aligned16(const void *at)
{
    return reinterpret_cast<uintptr_t>(at) % 16 == 0;
}

/* --- eight elements, f32 in registers and any type in memory, in accesses of 128 bits --- */

enum { CHUNK = 8 };
struct chunk {
    float at[CHUNK];
};

/* Loads and stores of f32, here, and of both types of 16 bits, below; `from` and `to` are aligned to 16 bytes. */
__device__ __forceinline__ struct chunk chunk_load(const float *from)
{
    float4 a = reinterpret_cast<const float4 *>(from)[0], b = reinterpret_cast<const float4 *>(from)[1];
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

__device__ __forceinline__ void chunk_store(float *to, const struct chunk &x)
{
    reinterpret_cast<float4 *>(to)[0] = make_float4(x.at[0], x.at[1], x.at[2], x.at[3]);
    reinterpret_cast<float4 *>(to)[1] = make_float4(x.at[4], x.at[5], x.at[6], x.at[7]);
}

/* Two elements of 16 bits to f32, and back to the nearest. */
__device__ __forceinline__ float2 pair_read(__half2 pair)
{
    return __half22float2(pair);
}
__device__ __forceinline__ float2 pair_read(__nv_bfloat162 pair)
{
    return __bfloat1622float2(pair);
}
__device__ __forceinline__ void pair_write(float x, float y, __half2 *to)
{
    *to = __floats2half2_rn(x, y);
}
__device__ __forceinline__ void pair_write(float x, float y, __nv_bfloat162 *to)
{
    *to = __floats2bfloat162_rn(x, y);
}

/* Through uint4: a struct of four pairs would be copied pair by pair in accesses of 32 bits, because a pair has a
 * constructor (unit.kernels.memory_access checks). */
template <class Pair> __device__ __forceinline__ struct chunk pairs_load(const void *from)
{
    const uint4 packed = *static_cast<const uint4 *>(from);
    const uint32_t words[CHUNK / 2] = {packed.x, packed.y, packed.z, packed.w};
    struct chunk x;
#pragma unroll
    for (int i = 0; i < CHUNK / 2; i++) {
        float2 pair = pair_read(reinterpret_cast<const Pair &>(words[i]));
        x.at[2 * i] = pair.x;
        x.at[2 * i + 1] = pair.y;
    }
    return x;
}

template <class Pair> __device__ __forceinline__ void pairs_store(void *to, const struct chunk &x)
{
    uint32_t words[CHUNK / 2];
#pragma unroll
    for (int i = 0; i < CHUNK / 2; i++) {
        pair_write(x.at[2 * i], x.at[2 * i + 1], reinterpret_cast<Pair *>(&words[i]));
    }
    *static_cast<uint4 *>(to) = make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ __forceinline__ struct chunk chunk_load(const __half *from)
{
    return pairs_load<__half2>(from);
}
__device__ __forceinline__ struct chunk chunk_load(const __nv_bfloat16 *from)
{
    return pairs_load<__nv_bfloat162>(from);
}
__device__ __forceinline__ void chunk_store(__half *to, const struct chunk &x)
{
    pairs_store<__half2>(to, x);
}
__device__ __forceinline__ void chunk_store(__nv_bfloat16 *to, const struct chunk &x)
{
    pairs_store<__nv_bfloat162>(to, x);
}

/* x += y */
__device__ __forceinline__ void chunk_add(struct chunk *x, const struct chunk &y)
{
#pragma unroll
    for (int i = 0; i < CHUNK; i++) { x->at[i] += y.at[i]; }
}

/* --- sums --- */

/* The sum over the lanes of a warp; each gets the same bits. */
__device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int bit = WARP / 2; bit > 0; bit /= 2) { x += __shfl_xor_sync(0xffffffffu, x, bit); }
    return x;
}

/* The sum over the WARPS warps of a row; each lane gets the same bits. `shared` holds one float per warp and may be
 * reused after the next barrier. */
template <int WARPS> __device__ __forceinline__ float row_sum(float x, float *shared)
{
    x = warp_sum(x);
    if (WARPS == 1) { return x; }
    if (threadIdx.x % WARP == 0) { shared[threadIdx.x / WARP] = x; }
    __syncthreads();
    x = 0.0f;
#pragma unroll
    for (int i = 0; i < WARPS; i++) { x += shared[i]; }
    return x;
}

/* Chooses a kernel by element type: KERNEL_OF_TYPE(type, name, extra) is name<T, extra>, or NULL for an unknown
 * type. */
#define KERNEL_OF_TYPE(type, name, ...)                                                                                \
    ((type) == KERNEL_F32    ? name<float, __VA_ARGS__>                                                                \
     : (type) == KERNEL_F16  ? name<__half, __VA_ARGS__>                                                               \
     : (type) == KERNEL_BF16 ? name<__nv_bfloat16, __VA_ARGS__>                                                        \
                             : nullptr)

#endif
