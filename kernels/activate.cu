/* Adds a product's bias and applies the activation in place, where cuBLASLt's epilogues do not: exact erf GELU, or
 * products by cublasGemmEx. A thread does eight elements; memory bounds the speed. */
#include "kernels/device.h"

enum { ACTIVATE_THREADS = 256 };

template <int ACTIVATION> __device__ __forceinline__ float activated(float x)
{
    const float half_sqrt_2 = 0.70710678f, sqrt_2_over_pi = 0.79788456f;
    if (ACTIVATION == KERNEL_GELU_ERF) { return 0.5f * x * (1.0f + erff(x * half_sqrt_2)); }
    if (ACTIVATION == KERNEL_GELU_TANH) {
        return 0.5f * x * (1.0f + tanhf(sqrt_2_over_pi * (x + 0.044715f * x * x * x)));
    }
    if (ACTIVATION == KERNEL_RELU) {
        return x < 0.0f ? 0.0f : x; /* a NaN stays NaN, so that the row is found to be spoilt */
    }
    return x;
}

template <class T, int ACTIVATION>
__global__ void __launch_bounds__(ACTIVATE_THREADS) activate_chunks(KERNEL_ARGS(struct kernel_activate_args, a))
{
    uint32_t index = blockIdx.x * ACTIVATE_THREADS + threadIdx.x, in_row = a.width / CHUNK;
    uint32_t row = index / in_row, column = index % in_row * CHUNK;
    if (row >= *a.count || row >= a.bound) { return; }
    T *at = static_cast<T *>(a.x) + static_cast<size_t>(row) * a.width + column;
    struct chunk x = chunk_load(at);
    if (a.bias != nullptr) { chunk_add(&x, chunk_load(static_cast<const T *>(a.bias) + column)); }
#pragma unroll
    for (int i = 0; i < CHUNK; i++) { x.at[i] = activated<ACTIVATION>(x.at[i]); }
    chunk_store(at, x);
}

extern "C" cudaError_t kernel_activate(const struct kernel_queue *queue, const struct kernel_activate_args *args)
{
    uint64_t chunks = static_cast<uint64_t>(args->bound) * args->width / CHUNK;
    if (chunks == 0 || chunks > UINT32_MAX - ACTIVATE_THREADS || args->width % CHUNK != 0 || !aligned16(args->x) ||
        !aligned16(args->bias)) {
        return cudaErrorInvalidValue;
    }
    void (*kernel)(KERNEL_PARAMETER(struct kernel_activate_args)) = nullptr;
    if (args->activation == KERNEL_GELU_ERF) {
        kernel = KERNEL_OF_TYPE(args->type, activate_chunks, KERNEL_GELU_ERF);
    } else if (args->activation == KERNEL_GELU_TANH) {
        kernel = KERNEL_OF_TYPE(args->type, activate_chunks, KERNEL_GELU_TANH);
    } else if (args->activation == KERNEL_RELU) {
        kernel = KERNEL_OF_TYPE(args->type, activate_chunks, KERNEL_RELU);
    } else if (args->activation == KERNEL_IDENTITY) {
        kernel = KERNEL_OF_TYPE(args->type, activate_chunks, KERNEL_IDENTITY);
    }
    if (kernel == nullptr) { return cudaErrorInvalidValue; }
    dim3 grid(ceil_div(static_cast<uint32_t>(chunks), ACTIVATE_THREADS));
    return kernel_enqueue(queue, kernel, grid, ACTIVATE_THREADS, 0, args);
}
