/* The steps after a product in the feed-forward part that cuBLASLt's epilogues do not do: the activation in place
 * (exact erf GELU, or products by cublasGemmEx), and the gate of gated models. A thread computes eight elements; memory
 * bounds the speed. */
#include "kernels/device.h"

enum { ACTIVATE_THREADS = 256 };

template <int ACTIVATION> __device__ __forceinline__ float activated(float x)
{
    const float half_sqrt_2 = 0.70710678f, sqrt_2_over_pi = 0.79788456f;
    if (ACTIVATION == KERNEL_GELU_ERF) { return 0.5f * x * (1.0f + erff(x * half_sqrt_2)); }
    if (ACTIVATION == KERNEL_GELU_TANH) {
        return 0.5f * x * (1.0f + tanhf(sqrt_2_over_pi * (x + 0.044715f * x * x * x)));
    }
    if (ACTIVATION == KERNEL_SILU) { return x / (1.0f + expf(-x)); }
    if (ACTIVATION == KERNEL_RELU) {
        return x < 0.0f ? 0.0f : x; /* a NaN stays NaN, so that the row is detected as not finite */
    }
    return x;
}

/* The place of a thread's chunk in rows of `width`. */
struct activate_place {
    uint32_t row, column;
};

__device__ __forceinline__ struct activate_place activate_place_of(uint32_t width)
{
    const uint32_t index = blockIdx.x * ACTIVATE_THREADS + threadIdx.x, in_row = width / CHUNK;
    return {index / in_row, index % in_row * CHUNK};
}

template <class T, int ACTIVATION>
__global__ void __launch_bounds__(ACTIVATE_THREADS) activate_chunks(KERNEL_ARGS(struct kernel_activate_args, a))
{
    const struct activate_place place = activate_place_of(a.width);
    if (place.row >= *a.count || place.row >= a.bound) { return; }
    T *at = static_cast<T *>(a.x) + static_cast<size_t>(place.row) * a.width + place.column;
    struct chunk x = chunk_load(at);
    if (a.bias != nullptr) { chunk_add(&x, chunk_load(static_cast<const T *>(a.bias) + place.column)); }
#pragma unroll
    for (int i = 0; i < CHUNK; i++) { x.at[i] = activated<ACTIVATION>(x.at[i]); }
    chunk_store(at, x);
}

template <class T, int ACTIVATION>
__global__ void __launch_bounds__(ACTIVATE_THREADS) gate_chunks(KERNEL_ARGS(struct kernel_gate_args, a))
{
    const struct activate_place place = activate_place_of(a.width);
    if (place.row >= *a.count || place.row >= a.bound) { return; }
    const size_t row = place.row;
    const T *from = static_cast<const T *>(a.from) + 2 * row * a.width + place.column;
    const T *bias = static_cast<const T *>(a.bias) + place.column;
    struct chunk x = chunk_load(from), y = chunk_load(from + a.width);
    chunk_add(&x, chunk_load(bias));
    chunk_add(&y, chunk_load(bias + a.width));
#pragma unroll
    for (int i = 0; i < CHUNK; i++) { x.at[i] = activated<ACTIVATION>(x.at[i]) * y.at[i]; }
    chunk_store(static_cast<T *>(a.to) + row * a.width + place.column, x);
}

/* --- on the host --- */

/* NAME<type, activation>, or NULL if there is no such type or activation. */
#define ACTIVATE_KERNEL(name, args)                                                                                    \
    ((args)->activation == KERNEL_GELU_ERF    ? KERNEL_OF_TYPE((args)->type, name, KERNEL_GELU_ERF)                    \
     : (args)->activation == KERNEL_GELU_TANH ? KERNEL_OF_TYPE((args)->type, name, KERNEL_GELU_TANH)                   \
     : (args)->activation == KERNEL_RELU      ? KERNEL_OF_TYPE((args)->type, name, KERNEL_RELU)                        \
     : (args)->activation == KERNEL_SILU      ? KERNEL_OF_TYPE((args)->type, name, KERNEL_SILU)                        \
     : (args)->activation == KERNEL_IDENTITY  ? KERNEL_OF_TYPE((args)->type, name, KERNEL_IDENTITY)                    \
                                              : nullptr)

/* The blocks for `rows` rows; 0: sizes that these kernels do not support. */
static uint32_t activate_blocks(uint32_t rows, uint32_t width)
{
    const uint64_t chunks = static_cast<uint64_t>(rows) * width / CHUNK;
    if (chunks > UINT32_MAX - ACTIVATE_THREADS || width % CHUNK != 0) { return 0; }
    return ceil_div(static_cast<uint32_t>(chunks), ACTIVATE_THREADS);
}

extern "C" cudaError_t kernel_activate(const struct kernel_queue *queue, const struct kernel_activate_args *args)
{
    const uint32_t blocks = activate_blocks(args->bound, args->width);
    void (*kernel)(KERNEL_PARAMETER(struct kernel_activate_args)) = ACTIVATE_KERNEL(activate_chunks, args);
    if (blocks == 0 || kernel == nullptr || !aligned16(args->x) || !aligned16(args->bias)) {
        return cudaErrorInvalidValue;
    }
    return kernel_enqueue(queue, kernel, dim3(blocks), ACTIVATE_THREADS, 0, args);
}

extern "C" cudaError_t kernel_gate(const struct kernel_queue *queue, const struct kernel_gate_args *args)
{
    const uint32_t blocks = activate_blocks(args->bound, args->width);
    void (*kernel)(KERNEL_PARAMETER(struct kernel_gate_args)) = ACTIVATE_KERNEL(gate_chunks, args);
    if (blocks == 0 || kernel == nullptr || !aligned16(args->from) || !aligned16(args->bias) || !aligned16(args->to)) {
        return cudaErrorInvalidValue;
    }
    return kernel_enqueue(queue, kernel, dim3(blocks), ACTIVATE_THREADS, 0, args);
}
