/* The last step of a forward pass: pools the tokens of each row into a vector, ready to copy to the host.
 *
 * A block computes a row. Its threads cover the columns, eight each; spare threads form further groups that take every
 * n-th token. So a row's sum always has the same order, whatever the batch. */
#include "kernels/device.h"

enum { POOL_THREADS = 512 };
static_assert(POOL_THREADS * CHUNK >= KERNEL_HIDDEN_MAX, "a block is as wide as a token");

/* The larger of each two numbers; NaN if one of them is NaN. */
__device__ __forceinline__ void chunk_raise(struct chunk *to, const struct chunk &x)
{
#pragma unroll
    for (int i = 0; i < CHUNK; i++) { to->at[i] = to->at[i] > x.at[i] || isnan(to->at[i]) ? to->at[i] : x.at[i]; }
}

/* The largest of each column of `count` tokens at x. */
template <class T> __device__ __forceinline__ void pool_max(const T *x, uint32_t count, uint32_t hidden, float *vector)
{
    const uint32_t column = threadIdx.x * CHUNK;
    if (column < hidden) {
        struct chunk most = chunk_load(x + column);
#pragma unroll 4
        for (uint32_t t = 1; t < count; t++) {
            chunk_raise(&most, chunk_load(x + static_cast<size_t>(t) * hidden + column));
        }
#pragma unroll
        for (int i = 0; i < CHUNK; i++) { vector[column + i] = most.at[i]; }
    }
    __syncthreads();
}

/* The sum of `count` tokens at x, divided by `divisor`; token t counts t + 1 times if `weighted`. */
template <class T>
__device__ __forceinline__ void pool_sum(const T *x, uint32_t count, uint32_t hidden, bool weighted, float divisor,
                                         float *vector)
{
    SHARED(struct chunk, partial, [POOL_THREADS]);
    uint32_t columns = hidden / CHUNK, column = threadIdx.x % columns * CHUNK;
    uint32_t groups = POOL_THREADS / columns, group = threadIdx.x / columns;
    struct chunk sum = {};
    if (group < groups)
#pragma unroll 4
        for (uint32_t t = group; t < count; t += groups) {
            const float weight = weighted ? static_cast<float>(t + 1) : 1.0f;
            struct chunk token = chunk_load(x + static_cast<size_t>(t) * hidden + column);
#pragma unroll
            for (int i = 0; i < CHUNK; i++) { token.at[i] *= weight; }
            chunk_add(&sum, token);
        }
    partial[threadIdx.x] = sum;
    __syncthreads();
    if (group == 0) {
        for (uint32_t g = 1; g < groups; g++) { chunk_add(&sum, partial[threadIdx.x + g * columns]); }
#pragma unroll
        for (int i = 0; i < CHUNK; i++) { vector[column + i] = sum.at[i] / divisor; }
    }
    __syncthreads();
}

/* The factor that scales a vector to length 1, the same for the whole block. One thread adds up the squares in f64, in
 * order, as the host does (vector_normalize), so a vector has the same bits wherever it was normalised. */
__device__ __forceinline__ float pool_scale(const float *vector, uint32_t hidden)
{
    SHARED(float, scale, [1]);
    if (threadIdx.x == 0) {
        double squares = 0;
#pragma unroll 8
        for (uint32_t i = 0; i < hidden; i++) { squares += static_cast<double>(vector[i]) * vector[i]; }
        scale[0] = static_cast<float>(1.0 / fmax(sqrt(squares), 1e-12));
    }
    __syncthreads();
    return scale[0];
}

template <class T, bool NORMALIZE>
__global__ void __launch_bounds__(POOL_THREADS) pool_rows(KERNEL_ARGS(struct kernel_pool_args, a))
{
    SHARED(float, vector, [KERNEL_HIDDEN_MAX]);
    uint32_t row = blockIdx.x;
    if (row >= a.ragged.counts[KERNEL_COUNT_ROWS]) { return; }
    const bool gathered = a.gathered != 0, last = a.pooling == POOLING_LAST && !gathered;
    uint32_t first = gathered ? row : a.ragged.start[row];
    uint32_t count = gathered || last || a.pooling == POOLING_CLS ? 1 : a.ragged.length[row];
    if (last) { first += a.ragged.length[row] - 1; }
    const T *x = static_cast<const T *>(a.x) + static_cast<size_t>(first) * a.hidden;
    if (a.pooling == POOLING_MAX) {
        pool_max(x, count, a.hidden, vector);
    } else {
        const bool weighted = a.pooling == POOLING_WEIGHTED_MEAN;
        const float n = static_cast<float>(count), root = a.pooling == POOLING_MEAN_SQRT_LEN ? sqrtf(n) : n;
        pool_sum(x, count, a.hidden, weighted, weighted ? n * (n + 1.0f) / 2.0f : root, vector);
    }
    const float scale = NORMALIZE ? pool_scale(vector, a.hidden) : 1.0f;
    float *to = a.output + static_cast<size_t>(row) * a.hidden;
    bool finite = true;
    for (uint32_t i = threadIdx.x; i < a.hidden; i += POOL_THREADS) {
        to[i] = NORMALIZE ? vector[i] * scale : vector[i];
        finite = isfinite(to[i]) && finite;
    }
    finite = __syncthreads_and(finite);
    if (threadIdx.x == 0) { a.finite[row] = finite; }
}

extern "C" cudaError_t kernel_pool(const struct kernel_queue *queue, const struct kernel_pool_args *args)
{
    if (args->bound == 0 || args->hidden == 0 || args->hidden > KERNEL_HIDDEN_MAX || args->hidden % CHUNK != 0 ||
        args->pooling == POOLING_UNSET || args->pooling >= POOLINGS || !aligned16(args->x)) {
        return cudaErrorInvalidValue;
    }
    auto kernel = args->normalize != 0 ? KERNEL_OF_TYPE(args->type, pool_rows, true)
                                       : KERNEL_OF_TYPE(args->type, pool_rows, false);
    if (kernel == nullptr) { return cudaErrorInvalidValue; }
    return kernel_enqueue(queue, kernel, args->bound, POOL_THREADS, 0, args);
}

/* --- gather --- */

/* Copies the first token of each row, for models that pool it: after the last attention no other token matters. It
 * moves bytes, whatever the type. */
enum { GATHER_THREADS = 128 };

/* Words of 16 bytes in a token. */
__host__ __device__ __forceinline__ uint32_t gather_units(const struct kernel_gather_args &a)
{
    return a.hidden / CHUNK * (a.type == KERNEL_F32 ? 2 : 1);
}

__global__ void __launch_bounds__(GATHER_THREADS) gather_first(KERNEL_ARGS(struct kernel_gather_args, a))
{
    uint32_t index = blockIdx.x * GATHER_THREADS + threadIdx.x, units = gather_units(a);
    uint32_t row = index / units, unit = index % units;
    if (row >= a.ragged.counts[KERNEL_COUNT_ROWS] || row >= a.bound) { return; }
    const uint4 *from = static_cast<const uint4 *>(a.from) + static_cast<size_t>(a.ragged.start[row]) * units;
    static_cast<uint4 *>(a.to)[static_cast<size_t>(row) * units + unit] = from[unit];
}

extern "C" cudaError_t kernel_gather(const struct kernel_queue *queue, const struct kernel_gather_args *args)
{
    uint64_t units = static_cast<uint64_t>(args->bound) * gather_units(*args);
    if (units == 0 || units > UINT32_MAX - GATHER_THREADS || args->hidden % CHUNK != 0 || args->type > KERNEL_BF16 ||
        !aligned16(args->from) || !aligned16(args->to)) {
        return cudaErrorInvalidValue;
    }
    dim3 grid(ceil_div(static_cast<uint32_t>(units), GATHER_THREADS));
    return kernel_enqueue(queue, gather_first, grid, GATHER_THREADS, 0, args);
}
