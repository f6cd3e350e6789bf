/* Attention on AMX tiles (cpu_tiles.h). Included by cpu_kernels_amx.c alone.
 *
 * As right operands keys are transposed in pairs and values are interleaved by pairs of rows; queries are read where
 * they lie. 16 queries at a time go through scores, softmax and the weighted sum. Sums run over head dimensions and
 * keys in steps of 32 from the first on, whatever stands around the sequence. */
#ifndef ENGINE_CPU_TILES_ATTENTION_H
#define ENGINE_CPU_TILES_ATTENTION_H

#include <math.h>
#include <string.h>

#include "engine/cpu_kernels.h"
#include "engine/cpu_tiles.h"

struct amx_space {
    uint32_t keys;    /* the sequence's length in whole steps of AMX_PAIRED */
    uint16_t *key;    /* [keys / 16, head_dim / 32] tiles */
    uint16_t *value;  /* [keys / 32, head_dim / 16] tiles */
    uint16_t *weight; /* [16, keys] */
    float *score[2];  /* [16, keys] each */
    float *sum;       /* [16, head_dim] */
};

static struct amx_space amx_space_of(const struct attention_job *job)
{
    struct amx_space space = {.keys = (job->length + AMX_PAIRED - 1) / AMX_PAIRED * AMX_PAIRED};
    space.score[0] = job->scratch;
    space.score[1] = space.score[0] + (size_t)AMX_ROWS * space.keys;
    space.sum = space.score[1] + (size_t)AMX_ROWS * space.keys;
    space.key = (uint16_t *)(space.sum + (size_t)AMX_ROWS * job->head_dim);
    space.value = space.key + (size_t)space.keys * job->head_dim;
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

static void amx_pack_keys(const struct attention_job *job, const struct amx_space *space, const uint16_t *keys,
                          size_t stride)
{
    uint16_t *to = space->key;
    for (uint32_t first = 0; first < space->keys; first += AMX_ROWS) {
        for (uint32_t depth = 0; depth < job->head_dim; depth += AMX_PAIRED, to += AMX_TILE) {
            __m512i row[16];
            for (uint32_t i = 0; i < AMX_ROWS; i++)
                row[i] = first + i < job->length ? _mm512_loadu_si512(keys + (first + i) * stride + depth)
                                                 : _mm512_setzero_si512();
            amx_transpose(row);
            for (uint32_t i = 0; i < AMX_ROWS; i++)
                _mm512_store_si512(to + i * AMX_PAIRED, row[i]);
        }
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
            for (uint32_t i = 0; i < AMX_PAIRED; i += 2, to += AMX_PAIRED) {
                const uint16_t *from = values + (first + i) * stride + column;
                __m512i even = amx_half_row(from, first + i < job->length);
                __m512i odd = amx_half_row(from + stride, first + i + 1 < job->length);
                _mm512_store_si512(to, _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
            }
        }
    }
}

/* score [16, keys] = queries keys^T, two columns of tiles at a time. */
static void amx_scores(const struct attention_job *job, const struct amx_space *space, const uint16_t *queries,
                       size_t stride, float *scores)
{
    uint32_t steps = job->head_dim / AMX_PAIRED;
    for (uint32_t key = 0; key < space->keys; key += 2 * AMX_ROWS) {
        const uint16_t *right = space->key + (size_t)key * job->head_dim;
        _tile_zero(0);
        _tile_zero(1);
        for (uint32_t step = 0; step < steps; step++) {
            _tile_loadd(2, queries + (size_t)step * AMX_PAIRED, stride * sizeof *queries);
            _tile_loadd(3, right + (size_t)step * AMX_TILE, 64);
            _tile_loadd(4, right + (size_t)(steps + step) * AMX_TILE, 64);
            _tile_dpbf16ps(0, 2, 3);
            _tile_dpbf16ps(1, 2, 4);
        }
        _tile_stored(0, scores + key, space->keys * sizeof(float));
        _tile_stored(1, scores + key + AMX_ROWS, space->keys * sizeof(float));
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

/* 16 scores from `key` on; keys that there are not count for nothing, by a finite number for amx_exp2. They are masked
 * here and not in memory: a load that spans two stores waits for both to reach the cache. */
static inline __m512 amx_load_scores(const struct attention_job *job, const float *score, uint32_t key)
{
    uint32_t left = job->length > key ? job->length - key : 0;
    __mmask16 there = (__mmask16)((1u << (left < 16 ? left : 16)) - 1);
    return _mm512_mask_blend_ps(there, _mm512_set1_ps(-1e30f), _mm512_loadu_ps(score + key));
}

/* Turns a row of scores into bf16 weights that are not yet divided by their sum, which is returned. */
static inline float amx_softmax_row(const struct attention_job *job, const struct amx_space *space, float *scores,
                                    uint32_t row)
{
    const float *score = scores + (size_t)row * space->keys;
    uint16_t *weight = space->weight + (size_t)row * space->keys;
    __m512 largest = _mm512_max_ps(amx_load_scores(job, score, 0), amx_load_scores(job, score, 16));
    for (uint32_t key = 32; key < space->keys; key += 32)
        largest = _mm512_max_ps(largest,
                                _mm512_max_ps(amx_load_scores(job, score, key), amx_load_scores(job, score, key + 16)));
    __m512 scale = _mm512_set1_ps(job->scale * 1.44269504f);
    __m512 shift = _mm512_mul_ps(_mm512_set1_ps(_mm512_reduce_max_ps(largest)), scale);
    __m512 sum0 = _mm512_setzero_ps(), sum1 = _mm512_setzero_ps();
    for (uint32_t key = 0; key < space->keys; key += 32) {
        __m512 e0 = amx_exp2(_mm512_fmsub_ps(amx_load_scores(job, score, key), scale, shift));
        __m512 e1 = amx_exp2(_mm512_fmsub_ps(amx_load_scores(job, score, key + 16), scale, shift));
        __m512bh both = _mm512_cvtne2ps_pbh(e1, e0);
        memcpy(weight + key, &both, sizeof both);
        sum0 = _mm512_add_ps(sum0, e0);
        sum1 = _mm512_add_ps(sum1, e1);
    }
    return _mm512_reduce_add_ps(_mm512_add_ps(sum0, sum1));
}

/* sum [16, head_dim] = weights values, two columns of tiles at a time. */
static void amx_weighted_sum(const struct attention_job *job, const struct amx_space *space)
{
    uint32_t columns = job->head_dim / AMX_ROWS;
    for (uint32_t column = 0; column < columns; column += 2) {
        _tile_zero(0);
        _tile_zero(1);
        for (uint32_t step = 0; step < space->keys / AMX_PAIRED; step++) {
            const uint16_t *right = space->value + (size_t)(step * columns + column) * AMX_TILE;
            _tile_loadd(2, space->weight + (size_t)step * AMX_PAIRED, space->keys * sizeof(uint16_t));
            _tile_loadd(3, right, 64);
            _tile_loadd(4, right + AMX_TILE, 64);
            _tile_dpbf16ps(0, 2, 3);
            _tile_dpbf16ps(1, 2, 4);
        }
        _tile_stored(0, space->sum + column * AMX_ROWS, job->head_dim * sizeof(float));
        _tile_stored(1, space->sum + (column + 1) * AMX_ROWS, job->head_dim * sizeof(float));
    }
}

static void amx_write_context(const struct attention_job *job, const struct amx_space *space, uint32_t first,
                              uint32_t head, const float *totals)
{
    size_t width = (size_t)job->heads * job->head_dim;
    for (uint32_t row = 0; row < AMX_ROWS && first + row < job->length; row++) {
        __m512 share = _mm512_set1_ps(1.0f / totals[row]);
        const float *from = space->sum + (size_t)row * job->head_dim;
        uint16_t *to = job->context.bf16 + (first + row) * width + (size_t)head * job->head_dim;
        for (uint32_t i = 0; i < job->head_dim; i += 16)
            vec_store_bf16(to + i, _mm512_mul_ps(_mm512_loadu_ps(from + i), share));
    }
}

/* One head. The scores of the next 16 queries are asked of the tiles before the softmax of these, and the sums of the
 * last 16 are written while those of these are underway, so that tiles and vector units work at the same time. */
static void amx_head(const struct attention_job *job, const struct amx_space *space, uint32_t head)
{
    size_t width = (size_t)job->heads * job->head_dim, stride = 3 * width;
    const uint16_t *queries = job->qkv16 + (size_t)head * job->head_dim;
    float totals[2][AMX_ROWS];
    amx_pack_keys(job, space, queries + width, stride);
    amx_pack_values(job, space, queries + 2 * width, stride);
    amx_scores(job, space, queries, stride, space->score[0]);
    for (uint32_t first = 0, now = 0; first < job->length + AMX_ROWS; first += AMX_ROWS, now = 1 - now) {
        if (first + AMX_ROWS < job->length)
            amx_scores(job, space, queries + (first + AMX_ROWS) * stride, stride, space->score[1 - now]);
        for (uint32_t row = 0; first < job->length && row < AMX_ROWS; row++)
            totals[now][row] = amx_softmax_row(job, space, space->score[now], row);
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
    for (uint32_t head = 0; head < job->heads; head++)
        amx_head(job, &space, head);
    _tile_release();
}

#endif
