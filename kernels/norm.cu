/* LayerNorm, or RMS norm, over rows, fused with what precedes it: a token's embeddings, or a product's bias, a norm of
 * the product, and the residual. A row stays in registers from its only load to its only store, so the variance is
 * computed from differences to the mean at no extra traffic.
 *
 * Rows of up to 1,024 columns are done by one warp, without barriers; wider ones by a block. A lane holds every 32nd
 * (or 128th) chunk of eight columns. */
#include "kernels/device.h"

/* --- a row in registers: WARPS warps share it, and a lane holds at most CHUNKS chunks --- */

enum {
    ROW_WARPS = 4,
    ROW_THREADS = ROW_WARPS * WARP,
    ROW_WARP_COLUMNS = 1024, /* the widest row for a single warp */
};

/* A lane's share: its chunk k is chunk lane + k * lanes of the row; 0 beyond the row. */
template <int WARPS, int CHUNKS> struct row_part {
    struct chunk part[CHUNKS];
};

/* This lane's row. */
template <int WARPS> __device__ __forceinline__ uint32_t row_of()
{
    return WARPS == 1 ? blockIdx.x * ROW_WARPS + threadIdx.x / WARP : blockIdx.x;
}

/* The first column of a lane's chunk k. */
template <int WARPS> __device__ __forceinline__ uint32_t row_column(int k)
{
    uint32_t lane = WARPS == 1 ? threadIdx.x % WARP : threadIdx.x;
    return (lane + (uint32_t)k * WARPS * WARP) * CHUNK;
}

template <int WARPS, int CHUNKS, class T>
__device__ __forceinline__ void row_load(struct row_part<WARPS, CHUNKS> *x, const T *from, uint32_t width)
{
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        uint32_t column = row_column<WARPS>(k);
        if (column < width) {
            x->part[k] = chunk_load(from + column);
        } else {
            x->part[k] = {};
        }
    }
}

template <int WARPS, int CHUNKS, class T>
__device__ __forceinline__ void row_add(struct row_part<WARPS, CHUNKS> *x, const T *from, uint32_t width)
{
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        uint32_t column = row_column<WARPS>(k);
        if (column < width) { chunk_add(&x->part[k], chunk_load(from + column)); }
    }
}

template <int WARPS, int CHUNKS, class T>
__device__ __forceinline__ void row_store(const struct row_part<WARPS, CHUNKS> &x, T *to, uint32_t width)
{
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        uint32_t column = row_column<WARPS>(k);
        if (column < width) { chunk_store(to + column, x.part[k]); }
    }
}

/* x = (x - mean) / sqrt(variance + epsilon) * gain [+ shift]; with `rms` the mean counts as 0. All lanes of the row
 * call it. `sums` is shared memory that no other call uses. */
template <int WARPS, int CHUNKS>
__device__ __forceinline__ void row_normalize(struct row_part<WARPS, CHUNKS> *x, uint32_t width, uint32_t rms,
                                              float epsilon, const float *gain, const float *shift,
                                              float (*sums)[ROW_WARPS])
{
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++)
#pragma unroll
        for (int i = 0; i < CHUNK; i++) { sum += x->part[k].at[i]; }
    float mean = rms != 0 ? 0.0f : row_sum<WARPS>(sum, sums[0]) / (float)width;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        if (row_column<WARPS>(k) >= width) { continue; }
#pragma unroll
        for (int i = 0; i < CHUNK; i++) {
            x->part[k].at[i] -= mean;
            squares += x->part[k].at[i] * x->part[k].at[i];
        }
    }
    float scale = rsqrtf(row_sum<WARPS>(squares, sums[1]) / (float)width + epsilon);
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        uint32_t column = row_column<WARPS>(k);
        if (column >= width) { continue; }
        struct chunk g = chunk_load(gain + column), s = {};
        if (shift != nullptr) { s = chunk_load(shift + column); }
#pragma unroll
        for (int i = 0; i < CHUNK; i++) { x->part[k].at[i] = x->part[k].at[i] * scale * g.at[i] + s.at[i]; }
    }
}

/* --- on the host: the choice of kernel and number of blocks --- */

/* True if these kernels support the sizes; `matrices` are all arguments except kernel_ragged's, NULL where absent. */
template <size_t COUNT> bool row_does(uint32_t width, uint32_t rows, const void *const (&matrices)[COUNT])
{
    for (const void *matrix : matrices) {
        if (!aligned16(matrix)) { return false; }
    }
    return width > 0 && width % CHUNK == 0 && width <= KERNEL_HIDDEN_MAX && rows > 0;
}

inline dim3 row_grid(uint32_t rows, uint32_t width)
{
    return dim3(width <= ROW_WARP_COLUMNS ? ceil_div(rows, ROW_WARPS) : rows);
}

/* Chooses `name`<type, warps, chunks> by the row's width; NULL for an unknown type. */
#define ROW_KERNEL(to, name, type, width)                                                                              \
    do {                                                                                                               \
        if ((width) <= 2 * WARP * CHUNK)                                                                               \
            to = KERNEL_OF_TYPE(type, name, 1, 2);                                                                     \
        else if ((width) <= 3 * WARP * CHUNK)                                                                          \
            to = KERNEL_OF_TYPE(type, name, 1, 3);                                                                     \
        else if ((width) <= ROW_WARP_COLUMNS)                                                                          \
            to = KERNEL_OF_TYPE(type, name, 1, 4);                                                                     \
        else                                                                                                           \
            to = KERNEL_OF_TYPE(type, name, ROW_WARPS, 4);                                                             \
    } while (0)

/* --- the kernels --- */

template <class T, int WARPS, int CHUNKS>
__global__ void __launch_bounds__(ROW_THREADS) norm_rows(KERNEL_ARGS(struct kernel_norm_args, a))
{
    SHARED(float, sums, [4][ROW_WARPS]);
    uint32_t row = row_of<WARPS>();
    if (row >= *a.count || row >= a.bound) { return; }
    size_t at = static_cast<size_t>(row) * a.hidden;
    struct row_part<WARPS, CHUNKS> x;
    row_load(&x, static_cast<const T *>(a.from) + at, a.hidden);
    if (a.bias != nullptr) { row_add(&x, static_cast<const T *>(a.bias), a.hidden); }
    if (a.added_gain != nullptr) { row_normalize(&x, a.hidden, a.rms, a.epsilon, a.added_gain, nullptr, sums + 2); }
    if (a.residual != nullptr) { row_add(&x, static_cast<const T *>(a.residual) + at, a.hidden); }
    if (a.sum != nullptr) { row_store(x, static_cast<T *>(a.sum) + at, a.hidden); }
    row_normalize(&x, a.hidden, a.rms, a.epsilon, a.gain, a.shift, sums);
    row_store(x, static_cast<T *>(a.to) + at, a.hidden);
}

extern "C" cudaError_t kernel_norm(const struct kernel_queue *queue, const struct kernel_norm_args *args)
{
    const void *matrices[] = {args->from, args->bias,  args->residual, args->added_gain,
                              args->gain, args->shift, args->sum,      args->to};
    if (!row_does(args->hidden, args->bound, matrices)) { return cudaErrorInvalidValue; }
    void (*kernel)(KERNEL_PARAMETER(struct kernel_norm_args)) = nullptr;
    ROW_KERNEL(kernel, norm_rows, args->type, args->hidden);
    if (kernel == nullptr) { return cudaErrorInvalidValue; }
    return kernel_enqueue(queue, kernel, row_grid(args->bound, args->hidden), ROW_THREADS, 0, args);
}

/* The first step of a forward pass: the sum of a token's word and position embeddings, normalised. The loader has
 * added token type 0 to the positions, so a token reads two rows and writes one. */
template <class T, int WARPS, int CHUNKS>
__global__ void __launch_bounds__(ROW_THREADS) embed_norm_rows(KERNEL_ARGS(struct kernel_embed_norm_args, a))
{
    SHARED(float, sums, [2][ROW_WARPS]);
    uint32_t token = row_of<WARPS>();
    if (token >= a.ragged.counts[KERNEL_COUNT_TOKENS] || token >= a.bound) { return; }
    uint32_t id = static_cast<uint32_t>(a.ragged.ids[token]), position = a.ragged.position[token];
    if (id >= a.vocabulary) { id = 0; }
    if (position >= a.positions) { position = 0; }
    struct row_part<WARPS, CHUNKS> x;
    row_load(&x, static_cast<const T *>(a.word) + static_cast<size_t>(id) * a.hidden, a.hidden);
    row_add(&x, static_cast<const T *>(a.position) + static_cast<size_t>(position) * a.hidden, a.hidden);
    const size_t at = static_cast<size_t>(token) * a.hidden;
    if (a.sum != nullptr) { row_store(x, static_cast<T *>(a.sum) + at, a.hidden); }
    row_normalize(&x, a.hidden, a.rms, a.epsilon, a.gain, a.shift, sums);
    row_store(x, static_cast<T *>(a.to) + at, a.hidden);
}

extern "C" cudaError_t kernel_embed_norm(const struct kernel_queue *queue, const struct kernel_embed_norm_args *args)
{
    const void *matrices[] = {args->word, args->position, args->gain, args->shift, args->sum, args->to};
    if (!row_does(args->hidden, args->bound, matrices) || args->vocabulary == 0 || args->positions == 0) {
        return cudaErrorInvalidValue;
    }
    void (*kernel)(KERNEL_PARAMETER(struct kernel_embed_norm_args)) = nullptr;
    ROW_KERNEL(kernel, embed_norm_rows, args->type, args->hidden);
    if (kernel == nullptr) { return cudaErrorInvalidValue; }
    return kernel_enqueue(queue, kernel, row_grid(args->bound, args->hidden), ROW_THREADS, 0, args);
}
