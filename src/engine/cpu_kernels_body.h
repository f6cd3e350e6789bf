/* The vector code of the CPU backend, written once over the words of a vec_*.h header and compiled by each
 * cpu_kernels_*.c. It is included once per file, after that header and KERNELS_NAME. */
#include <math.h>
#include <string.h>

#include "engine/cpu_kernels.h"
#include "engine/cpu_rows.h"
#include "engine/vec_math.h"

static void embed(uint32_t width, const float *word, const uint16_t *word16, const float *place,
                  const struct norm_weights *norm, struct activations x)
{
    vec sums = vec_set(0.0f);
    for (uint32_t i = 0; i < width; i += VEC) {
        uint32_t left = width - i;
        vec w;
        if (word16 == NULL) {
            w = load_upto(word + i, left);
        } else {
            uint16_t half[VEC] = {0};
            memcpy(half, word16 + i, (left < VEC ? left : VEC) * sizeof half[0]);
            w = vec_load_bf16(half);
        }
        w = vec_add(w, load_upto(place + i, left));
        sums = vec_add(sums, w);
        store_upto((struct activations){.f32 = x.f32}, i, w, left);
    }
    float mean = vec_sum(sums) / (float)width;
    norm_write(width, mean, norm_scale(width, x.f32, mean, norm->eps), norm, x);
}

/* Some rows go through each step together: one row's would wait for each other. */
enum { NORM_ROWS = 8 };

static void add_norm(uint32_t rows, uint32_t width, const float *product, const float *bias,
                     const struct norm_weights *norm, struct activations x)
{
    float mean[NORM_ROWS], scale[NORM_ROWS];
    for (uint32_t first = 0; first < rows; first += NORM_ROWS) {
        uint32_t some = rows - first < NORM_ROWS ? rows - first : NORM_ROWS;
        const float *from = product + (size_t)first * width;
        struct activations to = activations_row(x, first, width);
        for (uint32_t r = 0; r < some; r++)
            mean[r] = norm_add(width, from + (size_t)r * width, bias, to.f32 + (size_t)r * width);
        for (uint32_t r = 0; r < some; r++)
            scale[r] = norm_scale(width, to.f32 + (size_t)r * width, mean[r], norm->eps);
        for (uint32_t r = 0; r < some; r++)
            norm_write(width, mean[r], scale[r], norm, activations_row(to, r, width));
    }
}

INLINE void activate_as(enum activation activation, bool rough, uint32_t rows, uint32_t width, const float *from,
                        const float *bias, struct activations to, size_t stride)
{
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t i = 0; i < width; i += VEC) {
            uint32_t left = width - i;
            vec x = vec_add(load_upto(from + (size_t)r * width + i, left), load_upto(bias + i, left));
            store_upto(to, r * stride + i, activation_of(activation, rough, x), left);
        }
    }
}

static void activate(uint32_t rows, uint32_t width, enum activation activation, const float *from, const float *bias,
                     struct activations to, size_t stride)
{
    if (activation == ACTIVATION_GELU_TANH)
        activate_as(ACTIVATION_GELU_TANH, false, rows, width, from, bias, to, stride);
    else if (activation == ACTIVATION_RELU)
        activate_as(ACTIVATION_RELU, false, rows, width, from, bias, to, stride);
    else if (to.f32 == NULL)
        activate_as(ACTIVATION_GELU_ERF, true, rows, width, from, bias, to, stride);
    else
        activate_as(ACTIVATION_GELU_ERF, false, rows, width, from, bias, to, stride);
}

static void mean(uint32_t length, uint32_t width, uint32_t dim, const float *x, float *to)
{
    for (uint32_t i = 0; i < dim; i += VEC) {
        uint32_t left = dim - i;
        vec sum = vec_set(0.0f);
        for (uint32_t t = 0; t < length; t++)
            sum = vec_add(sum, load_upto(x + (size_t)t * width + i, left));
        vec share = vec_mul(sum, vec_set(1.0f / (float)length));
        store_upto((struct activations){.f32 = to}, i, share, left);
    }
}

/* --- attention ---------------------------------------------------------------------------------------------------- *
 * Per head: keys are packed transposed in panels of PANEL keys, values in rows of whole vectors; then TILE_ROWS queries
 * at a time go through scores, softmax and the weighted sum while their scores stay in the first-level cache. */

enum {
    PANEL = TILE_VECS * VEC,
    ATTENTION_ROWS = 48, /* rows of scores and queries in the scratch: more than either kind of attention takes */
};

INLINE uint32_t round_up(uint32_t n, uint32_t to)
{
    return (n + to - 1) / to * to;
}

struct attention_space {
    uint32_t padded_length, padded_dim;
    float *keys;    /* [padded_length / PANEL, head_dim, PANEL] */
    float *values;  /* [length, padded_dim] */
    float *scores;  /* [TILE_ROWS, padded_length] */
    float *queries; /* [TILE_ROWS, head_dim] */
};

static size_t attention_scratch(uint32_t length, uint32_t head_dim)
{
    size_t padded_length = round_up(length, PANEL), padded_dim = round_up(head_dim, PANEL);
    return padded_length * head_dim + length * padded_dim + ATTENTION_ROWS * (padded_length + padded_dim);
}

static struct attention_space attention_space_of(const struct attention_job *job)
{
    struct attention_space space = {.padded_length = round_up(job->length, PANEL),
                                    .padded_dim = round_up(job->head_dim, PANEL)};
    space.keys = job->scratch;
    space.scores = space.keys + (size_t)space.padded_length * job->head_dim;
    space.queries = space.scores + (size_t)TILE_ROWS * space.padded_length;
    space.values = space.queries + (size_t)TILE_ROWS * space.padded_dim;
    return space;
}

static void pack_keys(const struct attention_job *job, const struct attention_space *space, uint32_t head)
{
    uint32_t width = job->heads * job->head_dim, dim = job->head_dim;
    const float *from = job->qkv + width + (size_t)head * dim;
    const float *bias = job->bias + width + (size_t)head * dim;
    for (uint32_t k = 0; k < space->padded_length; k++) {
        float *to = space->keys + (size_t)(k / PANEL) * dim * PANEL + k % PANEL;
        const float *row = from + (size_t)k * 3 * width;
        for (uint32_t i = 0; i < dim; i++)
            to[(size_t)i * PANEL] = k < job->length ? row[i] + bias[i] : 0.0f;
    }
}

/* Rows of the head's values with their bias, zero-padded to whole tiles. */
static void pack_values(const struct attention_job *job, const struct attention_space *space, uint32_t head)
{
    uint32_t width = job->heads * job->head_dim, dim = job->head_dim;
    const float *from = job->qkv + 2 * (size_t)width + (size_t)head * dim;
    const float *bias = job->bias + 2 * (size_t)width + (size_t)head * dim;
    for (uint32_t k = 0; k < job->length; k++, from += 3 * (size_t)width) {
        float *to = space->values + (size_t)k * space->padded_dim;
        for (uint32_t i = 0; i < space->padded_dim; i += VEC) {
            vec v = vec_set(0.0f);
            if (i < dim)
                v = vec_add(load_upto(from + i, dim - i), load_upto(bias + i, dim - i));
            vec_store(to + i, v);
        }
    }
}

static void pack_queries(const struct attention_job *job, const struct attention_space *space, uint32_t head,
                         uint32_t first, uint32_t rows)
{
    uint32_t width = job->heads * job->head_dim, dim = job->head_dim;
    const float *bias = job->bias + (size_t)head * dim;
    for (uint32_t r = 0; r < rows; r++) {
        const float *from = job->qkv + (size_t)(first + r) * 3 * width + (size_t)head * dim;
        for (uint32_t i = 0; i < dim; i++)
            space->queries[(size_t)r * dim + i] = (from[i] + bias[i]) * job->scale;
    }
}

/* sums[r][:] = sum over i of left[r][i] * right[i][:], one tile of rows and vectors. */
INLINE void tile_product(uint32_t depth, const float *left, size_t left_stride, const float *right, size_t right_stride,
                         vec sums[TILE_ROWS][TILE_VECS])
{
    for (uint32_t r = 0; r < TILE_ROWS; r++)
        for (uint32_t c = 0; c < TILE_VECS; c++)
            sums[r][c] = vec_set(0.0f);
    for (uint32_t i = 0; i < depth; i++) {
        vec b[TILE_VECS];
        for (uint32_t c = 0; c < TILE_VECS; c++)
            b[c] = vec_load(right + i * right_stride + c * VEC);
        for (uint32_t r = 0; r < TILE_ROWS; r++) {
            vec a = vec_set(left[r * left_stride + i]);
            for (uint32_t c = 0; c < TILE_VECS; c++)
                sums[r][c] = vec_fma(a, b[c], sums[r][c]);
        }
    }
}

static void tile_scores(const struct attention_job *job, const struct attention_space *space)
{
    for (uint32_t k = 0; k < space->padded_length; k += PANEL) {
        vec sums[TILE_ROWS][TILE_VECS];
        tile_product(job->head_dim, space->queries, job->head_dim, space->keys + (size_t)k * job->head_dim, PANEL,
                     sums);
        for (uint32_t r = 0; r < TILE_ROWS; r++)
            for (uint32_t c = 0; c < TILE_VECS; c++)
                vec_store(space->scores + (size_t)r * space->padded_length + k + c * VEC, sums[r][c]);
    }
}

/* Turns a row of scores into weights that are not yet divided by their sum, which is returned. */
INLINE float softmax_row(float *scores, uint32_t length, uint32_t padded_length)
{
    for (uint32_t k = length; k < padded_length; k++)
        scores[k] = -INFINITY;
    vec largest = vec_load(scores);
    for (uint32_t k = VEC; k < padded_length; k += VEC)
        largest = vec_max(largest, vec_load(scores + k));
    vec shift = vec_set(vec_largest(largest));
    vec sum = vec_set(0.0f);
    for (uint32_t k = 0; k < padded_length; k += VEC) {
        vec e = exp_negative(vec_sub(vec_load(scores + k), shift));
        vec_store(scores + k, e);
        sum = vec_add(sum, e);
    }
    return vec_sum(sum);
}

static void tile_context(const struct attention_job *job, const struct attention_space *space, uint32_t head,
                         uint32_t first, uint32_t rows, const float *sums)
{
    size_t width = (size_t)job->heads * job->head_dim;
    for (uint32_t i = 0; i < job->head_dim; i += PANEL) {
        vec tile[TILE_ROWS][TILE_VECS];
        tile_product(job->length, space->scores, space->padded_length, space->values + i, space->padded_dim, tile);
        for (uint32_t r = 0; r < rows; r++) {
            vec share = vec_set(1.0f / sums[r]);
            size_t at = (first + r) * width + (size_t)head * job->head_dim + i;
            for (uint32_t c = 0; c < TILE_VECS && i + c * VEC < job->head_dim; c++)
                store_upto(job->context, at + c * VEC, vec_mul(tile[r][c], share), job->head_dim - i - c * VEC);
        }
    }
}

/* A last tile of fewer rows computes the rows that stand in the buffers from before and drops them. */
static void attention(const struct attention_job *job)
{
    struct attention_space space = attention_space_of(job);
    memset(space.queries, 0, sizeof(float) * TILE_ROWS * space.padded_dim);
    for (uint32_t head = job->first_head; head < job->last_head; head++) {
        pack_keys(job, &space, head);
        pack_values(job, &space, head);
        for (uint32_t first = 0; first < job->length; first += TILE_ROWS) {
            uint32_t rows = job->length - first < TILE_ROWS ? job->length - first : TILE_ROWS;
            float sums[TILE_ROWS];
            pack_queries(job, &space, head, first, rows);
            tile_scores(job, &space);
            for (uint32_t r = 0; r < TILE_ROWS; r++)
                sums[r] = softmax_row(space.scores + (size_t)r * space.padded_length, job->length, space.padded_length);
            tile_context(job, &space, head, first, rows, sums);
        }
    }
}

const struct cpu_kernels KERNELS_NAME = {
    .name = KERNELS_LABEL,
    .tiles = KERNELS_TILES,
    .digits = KERNELS_DIGITS,
    .few_rows = KERNELS_FEW_ROWS,
    .embed = embed,
    .add_norm = add_norm,
    .activate = activate,
    .attention = attention,
    .attention_scratch = attention_scratch,
    .mean = mean,
};
