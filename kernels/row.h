/* A row of a matrix in the registers of one warp or of one block, and its normalisation: what embed_norm.cu and norm.cu
 * share. */
#ifndef KERNELS_ROW_H
#define KERNELS_ROW_H

#include "kernels/device.h"

enum {
    ROW_WARPS = 4,
    ROW_THREADS = ROW_WARPS * WARP,
    ROW_WARP_COLUMNS = 1024, /* a row up to here is one warp's, a wider one the block's */
};

/* A lane's share: chunk k of it is chunk lane + k * lanes of the row. What lies beyond the row is 0. */
template <int WARPS, int CHUNKS> struct row_part {
    struct chunk part[CHUNKS];
};

/* The row that this lane works on. */
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
        if (column < width)
            x->part[k] = chunk_load(from + column);
        else
            x->part[k] = {};
    }
}

template <int WARPS, int CHUNKS, class T>
__device__ __forceinline__ void row_add(struct row_part<WARPS, CHUNKS> *x, const T *from, uint32_t width)
{
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        uint32_t column = row_column<WARPS>(k);
        if (column < width)
            chunk_add(&x->part[k], chunk_load(from + column));
    }
}

template <int WARPS, int CHUNKS, class T>
__device__ __forceinline__ void row_store(const struct row_part<WARPS, CHUNKS> &x, T *to, uint32_t width)
{
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        uint32_t column = row_column<WARPS>(k);
        if (column < width)
            chunk_store(to + column, x.part[k]);
    }
}

/* x = (x - mean) / sqrt(variance + epsilon) * gain + shift. All lanes of the row call it. */
template <int WARPS, int CHUNKS>
__device__ __forceinline__ void row_normalize(struct row_part<WARPS, CHUNKS> *x, uint32_t width, float epsilon,
                                              const float *gain, const float *shift)
{
    SHARED(float, sums, [2][ROW_WARPS]);
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++)
#pragma unroll
        for (int i = 0; i < CHUNK; i++)
            sum += x->part[k].at[i];
    float mean = row_sum<WARPS>(sum, sums[0]) / (float)width;
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
        if (row_column<WARPS>(k) >= width)
            continue;
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
        if (column >= width)
            continue;
        struct chunk g = chunk_load(gain + column), s = chunk_load(shift + column);
#pragma unroll
        for (int i = 0; i < CHUNK; i++)
            x->part[k].at[i] = x->part[k].at[i] * scale * g.at[i] + s.at[i];
    }
}

/* --- on the host: which kernel, and how many blocks ------------------------------------------------------------------
 */

/* Whether these kernels do it; `matrices` are all that they touch but what is in kernel_ragged, NULL for none. */
template <size_t COUNT> bool row_does(uint32_t width, uint32_t rows, const void *const (&matrices)[COUNT])
{
    for (const void *matrix : matrices)
        if (!aligned16(matrix))
            return false;
    return width > 0 && width % CHUNK == 0 && width <= KERNEL_HIDDEN_MAX && rows > 0;
}

inline dim3 row_grid(uint32_t rows, uint32_t width)
{
    return dim3(width <= ROW_WARP_COLUMNS ? ceil_div(rows, ROW_WARPS) : rows);
}

/* Chooses `name`<type, warps, chunks> by the row's width; NULL for a type that does not exist. */
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

#endif
