/* Attention on AMX tiles (cpu_tiles.h). Included by cpu_kernels_amx.c alone.
 *
 * 16 queries at a time go through scores, softmax and the weighted sum, one in each lane of a vector: scores are keys
 * times queries^T and sums are values^T times weights^T, so that largest scores and totals are sums of whole vectors.
 * Keys are left operands and read where they lie; queries, as right operands, are transposed in pairs, and values are
 * transposed once a head. Sums run over head dimensions and keys in steps of 32 from the first on, whatever stands
 * around the sequence. */
#ifndef ENGINE_CPU_TILES_ATTENTION_H
#define ENGINE_CPU_TILES_ATTENTION_H

#include <math.h>
#include <string.h>

#include "engine/cpu_kernels.h"
#include "engine/cpu_tiles.h"

struct amx_space {
    uint32_t keys;    /* the sequence's length in whole steps of AMX_PAIRED */
    uint16_t *query;  /* [head_dim / 32] tiles: pairs of dimensions of 16 queries */
    uint16_t *value;  /* [keys / 32, head_dim / 16] tiles: 16 dimensions of 32 keys */
    uint16_t *weight; /* [keys / 32] tiles: pairs of keys of 16 queries */
    float *score[2];  /* [keys, 16] each */
    float *sum;       /* [head_dim, 16] */
};

static struct amx_space amx_space_of(const struct attention_job *job)
{
    struct amx_space space = {.keys = (job->length + AMX_PAIRED - 1) / AMX_PAIRED * AMX_PAIRED};
    space.score[0] = job->scratch;
    space.score[1] = space.score[0] + (size_t)AMX_ROWS * space.keys;
    space.sum = space.score[1] + (size_t)AMX_ROWS * space.keys;
    space.query = (uint16_t *)(space.sum + (size_t)AMX_ROWS * job->head_dim);
    space.value = space.query + (size_t)AMX_ROWS * job->head_dim;
    space.weight = space.value + (size_t)space.keys * job->head_dim;
    return space;
}

/* Transposes 16 rows of 16 pairs: pair j of row i becomes pair i of row j. */
static inline void amx_transpose(__m512i row[16])
{
    __m512i half[16];
    for (unsigned i = 0; i < 16; i += 2) {
        half[i] = _mm512_unpacklo_epi32(row[i], row[i + 1]);
        half[i + 1] = _mm512_unpackhi_epi32(row[i], row[i + 1]);
    }
    for (unsigned i = 0; i < 16; i += 4) {
        row[i] = _mm512_unpacklo_epi64(half[i], half[i + 2]);
        row[i + 1] = _mm512_unpackhi_epi64(half[i], half[i + 2]);
        row[i + 2] = _mm512_unpacklo_epi64(half[i + 1], half[i + 3]);
        row[i + 3] = _mm512_unpackhi_epi64(half[i + 1], half[i + 3]);
    }
    for (unsigned i = 0; i < 4; i++) {
        __m512i low = _mm512_shuffle_i32x4(row[i], row[i + 4], 0x88),
                high = _mm512_shuffle_i32x4(row[i], row[i + 4], 0xdd);
        __m512i low8 = _mm512_shuffle_i32x4(row[i + 8], row[i + 12], 0x88);
        __m512i high8 = _mm512_shuffle_i32x4(row[i + 8], row[i + 12], 0xdd);
        half[i] = _mm512_shuffle_i32x4(low, low8, 0x88);
        half[i + 8] = _mm512_shuffle_i32x4(low, low8, 0xdd);
        half[i + 4] = _mm512_shuffle_i32x4(high, high8, 0x88);
        half[i + 12] = _mm512_shuffle_i32x4(high, high8, 0xdd);
    }
    memcpy(row, half, sizeof half);
}

/* Two vectors of 16 as 16 pairs in bf16. */
static inline __m512i amx_pairs(__m512 even, __m512 odd)
{
    static const uint16_t order[32] __attribute__((aligned(64))) = {
        0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31,
    };
    __m512bh halves = _mm512_cvtne2ps_pbh(odd, even);
    __m512i bits;
    memcpy(&bits, &halves, sizeof bits);
    return _mm512_permutexvar_epi16(_mm512_load_si512(order), bits);
}

static void amx_pack_queries(const struct attention_job *job, const struct amx_space *space, const uint16_t *queries,
                             size_t stride)
{
    for (uint32_t depth = 0; depth < job->head_dim; depth += AMX_PAIRED) {
        __m512i row[16];
        for (uint32_t i = 0; i < AMX_ROWS; i++)
            row[i] = _mm512_loadu_si512(queries + i * stride + depth);
        amx_transpose(row);
        for (uint32_t i = 0; i < AMX_ROWS; i++)
            _mm512_store_si512(space->query + (size_t)depth * AMX_ROWS + i * AMX_PAIRED, row[i]);
    }
}

static inline __m512i amx_half_row(const uint16_t *from, bool there)
{
    return there ? _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)from)) : _mm512_setzero_si512();
}

static void amx_pack_values(const struct attention_job *job, const struct amx_space *space, const uint16_t *values,
                            size_t stride)
{
    uint16_t *to = space->value;
    for (uint32_t first = 0; first < space->keys; first += AMX_PAIRED) {
        for (uint32_t column = 0; column < job->head_dim; column += AMX_ROWS) {
            __m512i row[16];
            for (uint32_t i = 0; i < AMX_ROWS; i++) {
                uint32_t key = first + 2 * i;
                const uint16_t *from = values + key * stride + column;
                __m512i even = amx_half_row(from, key < job->length);
                __m512i odd = amx_half_row(from + stride, key + 1 < job->length);
                row[i] = _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
            }
            amx_transpose(row);
            for (uint32_t i = 0; i < AMX_ROWS; i++, to += AMX_PAIRED)
                _mm512_store_si512(to, row[i]);
        }
    }
}

/* score [keys, 16] = keys queries^T, two tiles of keys at a time. */
static void amx_scores(const struct attention_job *job, const struct amx_space *space, const uint16_t *keys,
                       size_t stride, float *scores)
{
    for (uint32_t key = 0; key < space->keys; key += 2 * AMX_ROWS) {
        const uint16_t *from = keys + key * stride;
        _tile_zero(0);
        _tile_zero(1);
        for (uint32_t depth = 0; depth < job->head_dim; depth += AMX_PAIRED) {
            _tile_loadd(2, from + depth, stride * sizeof *keys);
            _tile_loadd(3, from + AMX_ROWS * stride + depth, stride * sizeof *keys);
            _tile_loadd(4, space->query + (size_t)depth * AMX_ROWS, 64);
            _tile_dpbf16ps(0, 2, 4);
            _tile_dpbf16ps(1, 3, 4);
        }
        _tile_stored(0, scores + (size_t)key * AMX_ROWS, 64);
        _tile_stored(1, scores + (size_t)(key + AMX_ROWS) * AMX_ROWS, 64);
    }
}

/* 2^x for x <= 0 within 1.1e-4, which is finer than bf16: 2^(x - floor x) by a minimax fit, scaled by 2^floor x. */
static inline __m512 amx_exp2(__m512 x)
{
    __m512 r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(0.0780243054f), r, _mm512_set1_ps(0.226067469f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.695833445f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.999925196f));
    return _mm512_scalef_ps(p, x);
}

/* The largest score of each query. */
static inline __m512 amx_largest(const struct attention_job *job, const float *score)
{
    __m512 largest[4];
    uint32_t key = 0;
    for (uint32_t i = 0; i < 4; i++)
        largest[i] = _mm512_load_ps(score);
    for (; key + 4 <= job->length; key += 4)
        for (uint32_t i = 0; i < 4; i++)
            largest[i] = _mm512_max_ps(largest[i], _mm512_load_ps(score + (size_t)(key + i) * AMX_ROWS));
    for (; key < job->length; key++)
        largest[0] = _mm512_max_ps(largest[0], _mm512_load_ps(score + (size_t)key * AMX_ROWS));
    return _mm512_max_ps(_mm512_max_ps(largest[0], largest[1]), _mm512_max_ps(largest[2], largest[3]));
}

/* Turns scores into bf16 weights that are not yet divided by their sums, which are returned. */
static __m512 amx_softmax(const struct attention_job *job, const struct amx_space *space, const float *score)
{
    __m512 scale = _mm512_set1_ps(job->scale * 1.44269504f);
    __m512 shift = _mm512_mul_ps(amx_largest(job, score), scale);
    __m512 sum0 = _mm512_setzero_ps(), sum1 = _mm512_setzero_ps();
    uint16_t *weight = space->weight;
    uint32_t key = 0;
    for (; key + 2 <= job->length; key += 2, weight += AMX_PAIRED, score += 2 * AMX_ROWS) {
        __m512 even = amx_exp2(_mm512_fmsub_ps(_mm512_load_ps(score), scale, shift));
        __m512 odd = amx_exp2(_mm512_fmsub_ps(_mm512_load_ps(score + AMX_ROWS), scale, shift));
        _mm512_store_si512(weight, amx_pairs(even, odd));
        sum0 = _mm512_add_ps(sum0, even);
        sum1 = _mm512_add_ps(sum1, odd);
    }
    if (key < job->length) {
        __m512 last = amx_exp2(_mm512_fmsub_ps(_mm512_load_ps(score), scale, shift));
        _mm512_store_si512(weight, amx_pairs(last, _mm512_setzero_ps()));
        sum0 = _mm512_add_ps(sum0, last);
        key += 2;
        weight += AMX_PAIRED;
    }
    for (; key < space->keys; key += 2, weight += AMX_PAIRED)
        _mm512_store_si512(weight, _mm512_setzero_si512());
    return _mm512_add_ps(sum0, sum1);
}

/* sum [head_dim, 16] = values^T weights^T, two tiles of dimensions at a time. */
static void amx_weighted_sum(const struct attention_job *job, const struct amx_space *space)
{
    uint32_t columns = job->head_dim / AMX_ROWS;
    for (uint32_t column = 0; column < columns; column += 2) {
        _tile_zero(0);
        _tile_zero(1);
        for (uint32_t step = 0; step < space->keys / AMX_PAIRED; step++) {
            const uint16_t *left = space->value + (size_t)(step * columns + column) * AMX_TILE;
            _tile_loadd(2, left, 64);
            _tile_loadd(3, left + AMX_TILE, 64);
            _tile_loadd(4, space->weight + (size_t)step * AMX_TILE, 64);
            _tile_dpbf16ps(0, 2, 4);
            _tile_dpbf16ps(1, 3, 4);
        }
        _tile_stored(0, space->sum + (size_t)column * AMX_TILE / 2, 64);
        _tile_stored(1, space->sum + (size_t)(column + 1) * AMX_TILE / 2, 64);
    }
}

/* Divides the sums by the totals, and turns them back into rows. */
static void amx_write_context(const struct attention_job *job, const struct amx_space *space, uint32_t first,
                              uint32_t head, __m512 totals)
{
    size_t width = (size_t)job->heads * job->head_dim;
    uint32_t rows = job->length - first < AMX_ROWS ? job->length - first : AMX_ROWS;
    __m512 share = _mm512_div_ps(_mm512_set1_ps(1.0f), totals);
    for (uint32_t depth = 0; depth < job->head_dim; depth += AMX_PAIRED) {
        uint16_t *to = job->context.bf16 + first * width + (size_t)head * job->head_dim + depth;
        __m512i row[16];
        for (uint32_t i = 0; i < AMX_ROWS; i++) {
            const float *from = space->sum + (size_t)(depth + 2 * i) * AMX_ROWS;
            row[i] = amx_pairs(_mm512_mul_ps(_mm512_load_ps(from), share),
                               _mm512_mul_ps(_mm512_load_ps(from + AMX_ROWS), share));
        }
        amx_transpose(row);
        for (uint32_t i = 0; i < rows; i++)
            _mm512_storeu_si512(to + i * width, row[i]);
    }
}

/* One head. The scores of the next 16 queries are asked of the tiles before the softmax of these, and the sums of the
 * last 16 are written while those of these are underway, so that tiles and vector units work at the same time. */
static void amx_head(const struct attention_job *job, const struct amx_space *space, uint32_t head)
{
    size_t width = (size_t)job->heads * job->head_dim, stride = 3 * width;
    const uint16_t *queries = job->qkv16 + (size_t)head * job->head_dim, *keys = queries + width;
    __m512 totals[2];
    amx_pack_values(job, space, queries + 2 * width, stride);
    amx_pack_queries(job, space, queries, stride);
    amx_scores(job, space, keys, stride, space->score[0]);
    for (uint32_t first = 0, now = 0; first < job->length + AMX_ROWS; first += AMX_ROWS, now = 1 - now) {
        if (first + AMX_ROWS < job->length) {
            amx_pack_queries(job, space, queries + (first + AMX_ROWS) * stride, stride);
            amx_scores(job, space, keys, stride, space->score[1 - now]);
        }
        if (first < job->length)
            totals[now] = amx_softmax(job, space, space->score[now]);
        if (first > 0)
            amx_write_context(job, space, first - AMX_ROWS, head, totals[1 - now]);
        if (first < job->length)
            amx_weighted_sum(job, space);
    }
}

static void tiles_attention(const struct attention_job *job)
{
    struct amx_space space = amx_space_of(job);
    amx_configure();
    for (uint32_t head = job->first_head; head < job->last_head; head++)
        amx_head(job, &space, head);
    _tile_release();
}

#endif
