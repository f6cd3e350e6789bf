/* A strip of attention: 16 queries of a row for one head, and what one warp does with them and some keys and values in
 * shared memory.
 *
 * Three choices keep everything in registers:
 *   - Queries are loaded from global memory straight into the fragments that mma wants, 16 bytes a lane. Which of the
 *     columns mma calls "2t" does not matter to a dot product as long as queries and keys agree, so lane (g, t) takes
 *     columns 8t..8t+7 of every 32, of queries and keys alike.
 *   - The scores that mma leaves in a lane are, rounded to T, just what it wants as the left side of P V.
 *   - Outputs change lanes within a quad before they are stored, so that a lane writes 16 bytes too. */
#ifndef KERNELS_ATTENTION_STRIP_H
#define KERNELS_ATTENTION_STRIP_H

#include "kernels/attention.h"
#include "kernels/ptx.h"

enum { GROUP = 32 }; /* columns that a quad of lanes holds together, 16 bytes each */

/* One head of one row. */
template <class T> struct attention_row {
    const T *queries; /* of the row's first token; keys and values follow after `hidden` columns each */
    T *context;
    int hidden; /* 3 * hidden * length is below 2^31 */
    int length;
    float scale; /* of a score, to an exponent of 2 */
};

/* What a lane (g, t) keeps of its warp's strip. Rows are queries g and g + 8. */
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

/* Two numbers of the type that the last argument is of, `low` in the lower half. */
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

/* Begins the copies of a piece: 16 keys and values of the row from `first` on, zeros beyond its end. */
template <class T, int HEAD_DIM>
__device__ __forceinline__ void piece_copy(const attention_row<T> &row, int first, attention_piece<HEAD_DIM> *keys,
                                           attention_piece<HEAD_DIM> *values)
{
    constexpr int CHUNKS = HEAD_DIM / CHUNK;
    const int lane = lane_id();
#pragma unroll
    for (int i = 0; i < PIECE_TOKENS * CHUNKS / WARP; i++) {
        const int at = i * WARP + lane;
        const int token = at / CHUNKS, chunk = at % CHUNKS, place = attention_place<HEAD_DIM>(token, chunk);
        const bool valid = first + token < row.length;
        const T *from = row.queries + ((first + token) * 3 * row.hidden + chunk * CHUNK);
        copy_begin(&keys->chunks[place], from + row.hidden, valid);
        copy_begin(&values->chunks[place], from + 2 * row.hidden, valid);
    }
}

/* Queries from `first` on; those beyond the row are zeros, and are not stored in the end. */
template <class T, int HEAD_DIM>
__device__ __forceinline__ void strip_begin(attention_strip<HEAD_DIM> *strip, const attention_row<T> &row, int first)
{
    const int lane = lane_id();
#pragma unroll
    for (int side = 0; side < 2; side++) {
        const int query = first + lane / 4 + 8 * side;
        const T *from = row.queries + (query * 3 * row.hidden + CHUNK * (lane % 4));
#pragma unroll
        for (int c = 0; c < HEAD_DIM / GROUP; c++)
            strip->queries[c][side] =
                query < row.length ? *reinterpret_cast<const uint4 *>(from + GROUP * c) : make_uint4(0, 0, 0, 0);
        strip->top[side] = minus_infinity();
        strip->sum[side] = 0.0f;
    }
#pragma unroll
    for (int n = 0; n < HEAD_DIM / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            strip->out[n][i] = 0.0f;
}

/* The scores of 8 keys at a time, and minus infinity from key `count` on. A piece's keys and the next one's lie STRIDE
 * pieces apart. WHOLE: every key counts. */
template <class T, int HEAD_DIM, int BLOCKS, int STRIDE, bool WHOLE>
__device__ __forceinline__ void strip_scores(const attention_strip<HEAD_DIM> &strip,
                                             const attention_piece<HEAD_DIM> *keys, int count,
                                             float (&scores)[BLOCKS][4])
{
    const int lane = lane_id();
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            scores[n][i] = 0.0f;
        if (WHOLE || 8 * n < count) {
#pragma unroll
            for (int c = 0; c < HEAD_DIM / GROUP; c++) {
                const int place = attention_place<HEAD_DIM>(lane / 4, 4 * c + lane % 4) + n % 2 * HEAD_DIM; /* 8 on */
                const uint4 key = keys[n / 2 * STRIDE].chunks[place];
                const uint4 upper = strip.queries[c][0], lower = strip.queries[c][1];
                mma_16x8x16<T>(scores[n], upper.x, lower.x, upper.y, lower.y, key.x, key.y);
                mma_16x8x16<T>(scores[n], upper.z, lower.z, upper.w, lower.w, key.z, key.w);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (!WHOLE && 8 * n + 2 * (lane % 4) + i % 2 >= count)
                scores[n][i] = minus_infinity();
    }
}

/* Turns scores into powers of 2 relative to the row's largest, and brings sum and outputs in line with it.
 *
 * `top` is rounded once, and both the powers and the scaling take the rounded value: so its error cancels in the end,
 * however large the scores are. */
template <int HEAD_DIM, int BLOCKS>
__device__ __forceinline__ void strip_powers(attention_strip<HEAD_DIM> *strip, float scale, float (&scores)[BLOCKS][4])
{
#pragma unroll
    for (int side = 0; side < 2; side++) {
        float most = scores[0][2 * side];
#pragma unroll
        for (int n = 0; n < BLOCKS; n++)
            most = fmaxf(most, fmaxf(scores[n][2 * side], scores[n][2 * side + 1]));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        const float top = fmaxf(strip->top[side], most * scale);
        const float shrink = exp2_approximate(strip->top[side] - top);
        float sum = strip->sum[side] * shrink;
#pragma unroll
        for (int n = 0; n < BLOCKS; n++)
#pragma unroll
            for (int i = 2 * side; i < 2 * side + 2; i++) {
                scores[n][i] = exp2_approximate(fmaf(scores[n][i], scale, -top));
                sum += scores[n][i];
            }
#pragma unroll
        for (int n = 0; n < HEAD_DIM / 8; n++) {
            strip->out[n][2 * side] *= shrink;
            strip->out[n][2 * side + 1] *= shrink;
        }
        strip->top[side] = top;
        strip->sum[side] = sum;
    }
}

/* Adds the values, weighted by the powers. */
template <class T, int HEAD_DIM, int BLOCKS, int STRIDE, bool WHOLE>
__device__ __forceinline__ void strip_values(attention_strip<HEAD_DIM> *strip, const attention_piece<HEAD_DIM> *values,
                                             int count, const float (&powers)[BLOCKS][4])
{
    const int lane = lane_id();
#pragma unroll
    for (int p = 0; p < BLOCKS / 2; p++) {
        if (!WHOLE && PIECE_TOKENS * p >= count)
            continue;
        const uint32_t a0 = pack(powers[2 * p][0], powers[2 * p][1], T());
        const uint32_t a1 = pack(powers[2 * p][2], powers[2 * p][3], T());
        const uint32_t a2 = pack(powers[2 * p + 1][0], powers[2 * p + 1][1], T());
        const uint32_t a3 = pack(powers[2 * p + 1][2], powers[2 * p + 1][3], T());
#pragma unroll
        for (int c = 0; c < HEAD_DIM / 16; c++) {
            uint32_t b[4];
            ldmatrix_x4_transposed(b,
                                   &values[p * STRIDE].chunks[attention_place<HEAD_DIM>(lane % 16, 2 * c + lane / 16)]);
            mma_16x8x16<T>(strip->out[2 * c], a0, a1, a2, a3, b[0], b[1]);
            mma_16x8x16<T>(strip->out[2 * c + 1], a0, a1, a2, a3, b[2], b[3]);
        }
    }
}

/* All that a strip does with `count` keys and values in shared memory, at most 8 * BLOCKS. */
template <class T, int HEAD_DIM, int BLOCKS, int STRIDE, bool WHOLE>
__device__ __forceinline__ void strip_step(attention_strip<HEAD_DIM> *strip, const attention_piece<HEAD_DIM> *keys,
                                           const attention_piece<HEAD_DIM> *values, int count, float scale)
{
    float scores[BLOCKS][4];
    strip_scores<T, HEAD_DIM, BLOCKS, STRIDE, WHOLE>(*strip, keys, count, scores);
    strip_powers(strip, scale, scores);
    strip_values<T, HEAD_DIM, BLOCKS, STRIDE, WHOLE>(strip, values, count, scores);
}

/* Among the four lanes of a quad: word i of lane t becomes word t of lane i. */
__device__ __forceinline__ void quad_transpose(uint32_t (&words)[4])
{
    const int lane = lane_id();
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2) {
        const bool upper = ((lane % 4) & bit) != 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if ((i & bit) != 0)
                continue;
            const uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? words[i] : words[i | bit], bit);
            words[i] = upper ? got : words[i];
            words[i | bit] = upper ? words[i | bit] : got;
        }
    }
}

/* Divides by the sums and stores the queries that are of the row. */
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
            for (int i = 0; i < 4; i++)
                words[i] =
                    pack(strip.out[4 * c + i][2 * side] * share, strip.out[4 * c + i][2 * side + 1] * share, T());
            quad_transpose(words);
            if (query < row.length)
                *reinterpret_cast<uint4 *>(to + GROUP * c) = make_uint4(words[0], words[1], words[2], words[3]);
        }
    }
}

#endif
