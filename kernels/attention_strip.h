/* A strip: 16 queries of a row for one head, which one warp attends to with everything in registers. The kernels of
 * attention.cu and attention_wgmma.cu differ in how they multiply; the strip's state, and all that happens between the
 * products, is here. */
#ifndef KERNELS_ATTENTION_STRIP_H
#define KERNELS_ATTENTION_STRIP_H

#include "kernels/attention.h"

enum { GROUP = 32 }; /* columns that a quad of lanes holds together, 16 bytes each */

/* One head of one row. */
template <class T> struct attention_row {
    const T *queries; /* of the first token */
    const T *keys;    /* the same; its values follow after `values` columns */
    T *context;
    int stride, values; /* columns; stride, from a token to the next, times length is below 2^31 */
    int hidden;         /* columns of the context */
    int length;
    float scale;        /* from a score to an exponent of 2 */
    const float *bias;  /* of a query and its own key, or NULL */
    int before, behind; /* the window that a query sees, in keys before and after it; at most length */
};

template <class T, int HEAD_DIM, int VIEW>
__device__ __forceinline__ attention_row<T> attention_row_of(const struct kernel_attention_args &a,
                                                             const struct kernel_strip &strip, uint32_t head)
{
    const uint32_t key_head = a.heads + head / (a.heads / a.key_heads);
    const size_t hidden = static_cast<size_t>(a.heads) * HEAD_DIM, keys = a.key_heads * HEAD_DIM;
    const size_t stride = hidden + 2 * keys, biases = 2 * static_cast<size_t>(a.reach) + 1;
    const T *qkv = static_cast<const T *>(a.qkv) + strip.start * stride;
    return {
        qkv + head * HEAD_DIM,
        qkv + key_head * HEAD_DIM,
        static_cast<T *>(a.context) + strip.start * hidden + head * HEAD_DIM,
        static_cast<int>(stride),
        static_cast<int>(keys),
        static_cast<int>(hidden),
        static_cast<int>(strip.length),
        a.scale * ATTENTION_LOG2_E,
        VIEW == ATTENTION_BIASED ? a.bias + head * biases + a.reach : nullptr,
        static_cast<int>(min(a.before, strip.length)),
        static_cast<int>(min(a.behind, strip.length)),
    };
}

/* Lane (g, t)'s part of its warp's strip. Its rows are queries g and g + 8. */
template <int HEAD_DIM> struct attention_strip {
    uint4 queries[HEAD_DIM / GROUP][2]; /* columns 8t..8t+7 of each group, of both rows */
    float out[HEAD_DIM / 8][4];         /* as mma leaves it: columns 2t, 2t+1 of each 8, of row g, then of row g + 8 */
    float top[2];                       /* the largest exponent so far, of each row */
    float sum[2];                       /* of the powers of this lane's keys */
};

__device__ __forceinline__ float minus_infinity()
{
    return __uint_as_float(0xff800000u);
}

/* Two numbers of the last argument's type, `low` in the lower half. */
__device__ __forceinline__ uint32_t pack(float low, float high, __half)
{
    __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&pair);
}

__device__ __forceinline__ uint32_t pack(float low, float high, __nv_bfloat16)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&pair);
}

template <int HEAD_DIM> __device__ __forceinline__ void strip_clear(attention_strip<HEAD_DIM> *strip)
{
#pragma unroll
    for (int side = 0; side < 2; side++) {
        strip->top[side] = minus_infinity();
        strip->sum[side] = 0.0f;
    }
#pragma unroll
    for (int n = 0; n < HEAD_DIM / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) { strip->out[n][i] = 0.0f; }
}

/* Loads queries from `first` on; those beyond the row are zeros and never stored. */
template <class T, int HEAD_DIM>
__device__ __forceinline__ void strip_begin(attention_strip<HEAD_DIM> *strip, const attention_row<T> &row, int first)
{
    const int lane = lane_id();
#pragma unroll
    for (int side = 0; side < 2; side++) {
        const int query = first + lane / 4 + 8 * side;
        const T *from = row.queries + (query * row.stride + CHUNK * (lane % 4));
#pragma unroll
        for (int c = 0; c < HEAD_DIM / GROUP; c++) {
            strip->queries[c][side] =
                query < row.length ? *reinterpret_cast<const uint4 *>(from + GROUP * c) : make_uint4(0, 0, 0, 0);
        }
    }
    strip_clear(strip);
}

/* Adds the bias of queries from `first` and keys from `key` on. Queries and keys beyond the row, whose scores are not
 * used, take that of the row's last ones. */
template <class T, int BLOCKS>
__device__ __forceinline__ void strip_bias(const attention_row<T> &row, int first, int key, float (&scores)[BLOCKS][4])
{
    const int lane = lane_id();
#pragma unroll
    for (int side = 0; side < 2; side++) {
        const float *bias = row.bias - min(first + lane / 4 + 8 * side, row.length - 1);
#pragma unroll
        for (int n = 0; n < BLOCKS; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                scores[n][2 * side + i] += bias[min(key + 8 * n + 2 * (lane % 4) + i, row.length - 1)];
            }
    }
}

/* Masks those of the keys from `key` on that queries from `first` on do not see. */
template <class T, int BLOCKS>
__device__ __forceinline__ void strip_window(const attention_row<T> &row, int first, int key,
                                             float (&scores)[BLOCKS][4])
{
    const int last = first + KERNEL_STRIP_QUERIES - 1, end = key + 8 * BLOCKS - 1, lane = lane_id();
    if (key >= last - row.before && end <= first + row.behind) { return; }
#pragma unroll
    for (int side = 0; side < 2; side++) {
        const int query = first + lane / 4 + 8 * side;
        const int from = query - row.before - key, to = query + row.behind - key;
#pragma unroll
        for (int n = 0; n < BLOCKS; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int at = 8 * n + 2 * (lane % 4) + i;
                if (at < from || at > to) { scores[n][2 * side + i] = minus_infinity(); }
            }
    }
}

/* Turns scores into powers of 2 relative to the row's maximum and rescales the sum to match; strip_shrink does so with
 * the outputs. MASKED: queries may see none of the keys so far.
 *
 * `top` is rounded once, and powers and rescaling both use the rounded value, so its error cancels in the result,
 * however large the scores are. */
template <bool MASKED, int HEAD_DIM, int BLOCKS>
__device__ __forceinline__ void strip_powers(attention_strip<HEAD_DIM> *strip, float scale, float (&scores)[BLOCKS][4],
                                             float (&shrink)[2])
{
    float most[4], sum[4], base[2];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        most[i] = scores[0][i];
        sum[i] = 0.0f;
    }
#pragma unroll
    for (int n = 1; n < BLOCKS; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) { most[i] = fmaxf(most[i], scores[n][i]); }
#pragma unroll
    for (int side = 0; side < 2; side++) {
        float top = fmaxf(most[2 * side], most[2 * side + 1]);
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        top = fmaxf(strip->top[side], top * scale);
        base[side] = MASKED && top == minus_infinity() ? 0.0f : top;
        shrink[side] = exp2_approximate(strip->top[side] - base[side]);
        strip->top[side] = top;
    }
#pragma unroll
    for (int n = 0; n < BLOCKS; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            scores[n][i] = exp2_approximate(fmaf(scores[n][i], scale, -base[i / 2]));
            sum[i] += scores[n][i];
        }
#pragma unroll
    for (int side = 0; side < 2; side++) {
        strip->sum[side] = fmaf(strip->sum[side], shrink[side], sum[2 * side] + sum[2 * side + 1]);
    }
}

template <int HEAD_DIM>
__device__ __forceinline__ void strip_shrink(attention_strip<HEAD_DIM> *strip, const float (&shrink)[2])
{
#pragma unroll
    for (int n = 0; n < HEAD_DIM / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) { strip->out[n][i] *= shrink[i / 2]; }
}

/* Transposes within a quad: word i of lane t becomes word t of lane i. */
__device__ __forceinline__ void quad_transpose(uint32_t (&words)[4])
{
    const int lane = lane_id();
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2) {
        const bool upper = ((lane % 4) & bit) != 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if ((i & bit) != 0) { continue; }
            const uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? words[i] : words[i | bit], bit);
            words[i] = upper ? got : words[i];
            words[i | bit] = upper ? words[i | bit] : got;
        }
    }
}

/* Divides by the sums and stores the outputs of queries within the row. */
template <class T, int HEAD_DIM>
__device__ __forceinline__ void strip_end(const attention_strip<HEAD_DIM> &strip, const attention_row<T> &row,
                                          int first)
{
    const int lane = lane_id();
#pragma unroll
    for (int side = 0; side < 2; side++) {
        float sum = strip.sum[side];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        const float share = 1.0f / sum;
        const int query = first + lane / 4 + 8 * side;
        T *to = row.context + (query * row.hidden + CHUNK * (lane % 4));
#pragma unroll
        for (int c = 0; c < HEAD_DIM / GROUP; c++) {
            uint32_t words[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                words[i] =
                    pack(strip.out[4 * c + i][2 * side] * share, strip.out[4 * c + i][2 * side + 1] * share, T());
            }
            quad_transpose(words);
            if (query < row.length) {
                *reinterpret_cast<uint4 *>(to + GROUP * c) = make_uint4(words[0], words[1], words[2], words[3]);
            }
        }
    }
}

/* The block's unit in a round, in alternating direction. */
__device__ __forceinline__ uint32_t round_unit(uint32_t round)
{
    return round * gridDim.x + (round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x);
}

#endif
