/* Attention beside its definition in f64, and rules for all numbers: nothing beyond a row is read or written, a row
 * gives the same bits in any company, and numbers that are not finite remain visible.
 *
 * The bound of a difference is computed for each output from the roundings that the kernel may do: powers and outputs
 * to the matrix's type, scores and sums to f32.
 *
 * ctest-cost: 30 */
#include "harness.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "kernel_device.h"
#include "kernel_numbers.h"
#include "kernels/kernels.h"

enum { BIAS_REACH = 150, BIASES = 2 * BIAS_REACH + 1 };

/* A batch on the host. Element (token, column) of qkv is at token * width + column; gaps hold NaN. */
struct scene {
    enum kernel_type type;
    uint32_t heads, head_dim, hidden;
    uint32_t key_heads, width, keys; /* width: columns of qkv; keys: of K */
    uint32_t rows, tokens;           /* tokens: to the end of the last row's place */
    uint32_t *start, *length;
    float scale;
    bool first_only;         /* one query a row, in a matrix of its own */
    uint32_t before, behind; /* how many keys a query sees */
    float *qkv;
    float *bias;    /* [heads, 2 * BIAS_REACH + 1], or NULL */
    uint32_t spare; /* by how many tiles or rows the launch exceeds the existing ones */
};

struct layout {
    uint32_t place; /* of each row, in tokens; 0: packed */
    uint32_t gap;   /* before and after each row */
};

static void *need(size_t bytes)
{
    void *memory = calloc(1, bytes == 0 ? 1 : bytes);
    assert_non_null(memory);
    return memory;
}

/* Numbers of [-size, size) in queries and keys; in values [-1, 1), without their sign in every second column, so that
 * one key too many shows, however many there are. The numbers depend on a row's `name`, not on its place. */
static void fill_row(struct scene *s, uint32_t row, uint32_t name, float size)
{
    const size_t width = s->width, count = width * s->length[row];
    float *at = s->qkv + width * s->start[row];
    numbers_random(s->type, name + 1, count, at);
    for (size_t i = 0; i < count; i++) {
        if (i % width < s->hidden + s->keys) {
            at[i] *= size; /* a power of 2: exact in every type */
        } else if (i % 2 == 0) {
            at[i] = fabsf(at[i]);
        }
    }
}

/* With fewer heads of keys than of queries. */
static struct scene grouped_new(enum kernel_type type, uint32_t heads, uint32_t key_heads, uint32_t head_dim,
                                uint32_t rows, const uint32_t *length, struct layout layout, float size)
{
    struct scene s = {.type = type, .heads = heads, .head_dim = head_dim, .hidden = heads * head_dim, .rows = rows};
    s.key_heads = key_heads;
    s.keys = key_heads * head_dim;
    s.width = s.hidden + 2 * s.keys;
    s.scale = 1.0f / sqrtf((float)head_dim);
    s.before = s.behind = UINT32_MAX;
    s.start = need(rows * sizeof *s.start);
    s.length = need(rows * sizeof *s.length);
    for (uint32_t r = 0; r < rows; r++) {
        s.start[r] = s.tokens + layout.gap;
        s.length[r] = length[r];
        s.tokens = layout.place != 0 ? s.tokens + layout.place : s.start[r] + length[r] + layout.gap;
    }
    const size_t count = (size_t)s.width * s.tokens;
    s.qkv = need(count * sizeof *s.qkv);
    for (size_t i = 0; i < count; i++) { s.qkv[i] = NAN; }
    for (uint32_t r = 0; r < rows; r++) { fill_row(&s, r, r, size); }
    return s;
}

static struct scene scene_new(enum kernel_type type, uint32_t heads, uint32_t head_dim, uint32_t rows,
                              const uint32_t *length, struct layout layout, float size)
{
    return grouped_new(type, heads, heads, head_dim, rows, length, layout, size);
}

static void scene_free(struct scene *s)
{
    free(s->start);
    free(s->length);
    free(s->qkv);
    free(s->bias);
}

static uint32_t context_rows(const struct scene *s)
{
    return s->first_only ? s->rows : s->tokens;
}

/* Uploads floats as the scene's type. */
static void *upload(const struct scene *s, const float *from, size_t count)
{
    void *packed = need(count * number_bytes(s->type));
    numbers_write(s->type, from, count, packed);
    void *device = device_new(count * number_bytes(s->type), packed);
    free(packed);
    return device;
}

/* Some columns of tokens of qkv, as a matrix of their own. Shapes: token [rows], or NULL for all from 0 on. */
static void *upload_columns(const struct scene *s, uint32_t rows, const uint32_t *token, uint32_t first, uint32_t count)
{
    float *copied = need((size_t)rows * count * sizeof *copied);
    for (uint32_t r = 0; r < rows; r++) {
        memcpy(copied + (size_t)r * count, s->qkv + (size_t)s->width * (token == NULL ? r : token[r]) + first,
               count * sizeof *copied);
    }
    void *device = upload(s, copied, (size_t)rows * count);
    free(copied);
    return device;
}

/* Runs the kernel. Returns the context as the device holds it, gaps included: the caller frees it. */
static void *run_raw(const struct scene *s)
{
    const uint32_t bound = kernel_tiles_bound(s->tokens, s->rows) + s->spare;
    struct kernel_tile *tiles = need(bound * sizeof *tiles);
    memset(tiles, 0xff, bound * sizeof *tiles); /* nothing beyond the count may be read */
    uint32_t counts[KERNEL_COUNTS] = {0};
    counts[KERNEL_COUNT_ROWS] = s->rows;
    counts[KERNEL_COUNT_TOKENS] = s->tokens;
    const struct kernel_span span =
        s->first_only ? (struct kernel_span){0, 0}
                      : kernel_attention_span(device_queue()->capability, s->type, s->head_dim, s->bias != NULL);
    counts[KERNEL_COUNT_TILES] =
        kernel_spans_fill(s->start, s->length, s->rows, span, tiles, &counts[KERNEL_COUNT_SPANS]);
    void *lists[] = {device_new(sizeof counts, counts), device_new(s->rows * sizeof *s->start, s->start),
                     device_new(s->rows * sizeof *s->length, s->length), device_new(bound * sizeof *tiles, tiles)};
    const size_t bytes = (size_t)context_rows(s) * s->hidden * number_bytes(s->type);
    const uint32_t first_column = s->first_only ? s->hidden : 0;
    void *queries = s->first_only ? upload_columns(s, s->rows, s->start, 0, s->hidden) : NULL;
    void *qkv = upload_columns(s, s->tokens, NULL, first_column, s->width - first_column);
    void *context = device_new(bytes, NULL);
    float *bias = s->bias ? device_new(s->heads * BIASES * sizeof *bias, s->bias) : NULL;
    const struct kernel_attention_args args = {
        .type = s->type,
        .bound = s->first_only ? s->rows + s->spare : bound,
        .heads = s->heads,
        .key_heads = s->key_heads,
        .head_dim = s->head_dim,
        .scale = s->scale,
        .reach = BIAS_REACH,
        .bias = bias,
        .before = s->before,
        .behind = s->behind,
        .ragged = {.counts = lists[0], .start = lists[1], .length = lists[2], .tiles = lists[3]},
        .queries = queries,
        .qkv = qkv,
        .context = context,
    };
    assert_int_equal(kernel_attention(device_queue(), &args), cudaSuccess);
    void *out = need(bytes);
    device_read(out, context, bytes);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) { device_free(lists[i]); }
    if (queries != NULL) { device_free(queries); }
    if (bias != NULL) { device_free(bias); }
    device_free(qkv);
    device_free(context);
    free(tiles);
    return out;
}

/* The index of a row's query `q` in the context. */
static size_t context_at(const struct scene *s, uint32_t row, uint32_t q)
{
    return (size_t)(s->first_only ? row : s->start[row] + q) * s->hidden;
}

static uint32_t queries_of(const struct scene *s, uint32_t row)
{
    return s->first_only ? 1 : s->length[row];
}

static bool sees(const struct scene *s, uint32_t q, uint32_t k)
{
    return k < q ? q - k <= s->before : k - q <= s->behind;
}

/* The first column of a head's keys among those of a token. */
static uint32_t key_column(const struct scene *s, uint32_t head)
{
    return head / (s->heads / s->key_heads) * s->head_dim;
}

/* The powers of one query, not yet divided by their sum; returns by how much f32 may change their logarithms. */
static double score_query(const struct scene *s, uint32_t row, uint32_t head, uint32_t q, double *powers, double *sum)
{
    const size_t width = s->width;
    const float *query = s->qkv + width * (s->start[row] + q) + head * s->head_dim;
    double top = -INFINITY, size = 0.0;
    for (uint32_t k = 0; k < s->length[row]; k++) {
        const float *key = s->qkv + width * (s->start[row] + k) + s->hidden + key_column(s, head);
        double dot = 0.0, all = 0.0;
        for (uint32_t i = 0; i < s->head_dim; i++) {
            dot += (double)query[i] * key[i];
            all += fabs((double)query[i] * key[i]);
        }
        if (s->bias) { dot += s->bias[head * BIASES + BIAS_REACH + k - q]; }
        powers[k] = sees(s, q, k) ? dot * s->scale : -INFINITY;
        top = fmax(top, powers[k]);
        size = fmax(size, all * s->scale);
    }
    *sum = 0.0;
    for (uint32_t k = 0; k < s->length[row]; k++) { *sum += powers[k] = exp(powers[k] - top); }
    return (s->head_dim + 8.0) * 0x1p-24 * size + 0x1p-20;
}

/* Compares one query of one head; returns the largest difference as a multiple of the allowed one. */
static double compare_query(const struct scene *s, uint32_t row, uint32_t head, uint32_t q, const float *got,
                            double *powers)
{
    double sum = 0.0, worst = 0.0;
    const double loose = score_query(s, row, head, q, powers, &sum);
    const double unit = s->type == KERNEL_F16 ? 0x1p-11 : s->type == KERNEL_BF16 ? 0x1p-8 : 0x1p-22;
    for (uint32_t i = 0; i < s->head_dim; i++) {
        double want = 0.0, weight = 0.0;
        for (uint32_t k = 0; k < s->length[row]; k++) {
            const float *token = s->qkv + (size_t)s->width * (s->start[row] + k);
            const double value = token[s->hidden + s->keys + key_column(s, head) + i];
            want += powers[k] / sum * value;
            weight += powers[k] / sum * fabs(value);
        }
        const double allowed = unit * (weight + fabs(want)) + 2.0 * loose * weight + 0x1p-24;
        const double off = fabs((double)got[head * s->head_dim + i] - want) / allowed;
        worst = off > worst || isnan(off) ? off : worst;
    }
    return worst;
}

/* Runs and compares all of it; memory that belongs to no row must be unchanged (bytes 0xff). */
static void check_once(const struct scene *s)
{
    const size_t count = (size_t)context_rows(s) * s->hidden;
    unsigned char *raw = run_raw(s);
    float *got = need(count * sizeof *got);
    numbers_read(s->type, raw, count, got);
    uint32_t longest = 1;
    for (uint32_t r = 0; r < s->rows; r++) { longest = s->length[r] > longest ? s->length[r] : longest; }
    double *powers = need(longest * sizeof *powers);
    bool *owned = need(context_rows(s) * sizeof *owned);
    for (uint32_t r = 0; r < s->rows; r++) {
        for (uint32_t q = 0; q < queries_of(s, r); q++) {
            owned[context_at(s, r, q) / s->hidden] = true;
            for (uint32_t h = 0; h < s->heads; h++) {
                const double off = compare_query(s, r, h, q, got + context_at(s, r, q), powers);
                if (!(off <= 1.0)) {
                    fail_msg("type %d, head dim %u: row %u (%u tokens), query %u, head %u: off by %g times what is "
                             "allowed",
                             (int)s->type, s->head_dim, r, s->length[r], q, h, off);
                }
            }
        }
    }
    const size_t width = s->hidden * number_bytes(s->type);
    for (uint32_t t = 0; t < context_rows(s); t++) {
        for (size_t i = 0; !owned[t] && i < width; i++) { assert_int_equal(raw[t * width + i], 0xff); }
    }
    free(owned);
    free(powers);
    free(got);
    free(raw);
}

/* The kernels of the device's own generation, and those of the oldest one where they are others. */
static void check(const struct scene *s)
{
    check_once(s);
    if (kernel_attention_span(device_queue()->capability, s->type, s->head_dim, s->bias != NULL).queries > 0) {
        device_pretend(80);
        check_once(s);
        device_pretend(0);
    }
}

static void check_size(enum kernel_type type, uint32_t heads, uint32_t head_dim, uint32_t rows, const uint32_t *length,
                       struct layout layout, float size)
{
    struct scene s = scene_new(type, heads, head_dim, rows, length, layout, size);
    check(&s);
    scene_free(&s);
}

/* Rows of these lengths, with a few keys that have most of the weight. */
static void check_lengths(enum kernel_type type, uint32_t heads, uint32_t head_dim, uint32_t rows,
                          const uint32_t *length, struct layout layout)
{
    check_size(type, heads, head_dim, rows, length, layout, 4.0f);
}

static const struct layout packed = {0, 0};

/* Rows of every length from..to, one head, whose keys have about the same weight. */
static void check_range(enum kernel_type type, uint32_t head_dim, uint32_t from, uint32_t to)
{
    uint32_t length[160];
    for (uint32_t n = from; n <= to; n++) { length[n - from] = n; }
    check_size(type, 1, head_dim, to - from + 1, length, packed, 0.5f);
}

/* The kernels differ by the width of a head; f16 and bf16 share the code of a width, and with it where its tiles end. */
TEST(every_length)
{
    static const uint32_t edges[] = {1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129};
    enum { EDGES = sizeof edges / sizeof edges[0] };
    check_range(KERNEL_F16, 32, 1, 130);
    check_size(KERNEL_BF16, 1, 32, EDGES, edges, packed, 0.5f);
    check_range(KERNEL_BF16, 64, 1, 130);
    check_size(KERNEL_F16, 1, 64, EDGES, edges, packed, 0.5f);
    check_range(KERNEL_F16, 128, 1, 70);
    check_range(KERNEL_F32, 32, 1, 70);
    check_range(KERNEL_F32, 64, 120, 130);
}

TEST(long_rows)
{
    static const uint32_t longest[] = {512, 513};
    check_lengths(KERNEL_F16, 1, 32, 2, longest, packed);
    check_lengths(KERNEL_BF16, 1, 64, 2, longest, packed);
    check_lengths(KERNEL_F32, 1, 32, 1, longest, packed);
}

static const uint32_t mixed[] = {16, 129, 1, 33, 16, 70, 32, 5, 64, 17};
enum { MIXED = sizeof mixed / sizeof mixed[0], MIXED_LONGEST = 129 };

/* Several heads, and gaps whose NaN must not leak in, and into which nothing may be written. */
static void check_mixed(enum kernel_type type, uint32_t heads, uint32_t head_dim)
{
    check_lengths(type, heads, head_dim, MIXED, mixed, packed);
    check_lengths(type, heads, head_dim, MIXED, mixed, (struct layout){.place = MIXED_LONGEST});
    check_lengths(type, heads, head_dim, MIXED, mixed, (struct layout){.gap = 3});
}

TEST(mixed_rows)
{
    check_mixed(KERNEL_F16, 3, 32);
    check_mixed(KERNEL_F16, 2, 64);
    check_mixed(KERNEL_BF16, 5, 32);
    check_mixed(KERNEL_BF16, 1, 64);
    check_mixed(KERNEL_F32, 2, 32);
}

TEST(other_head_dims)
{
    static const struct {
        enum kernel_type type;
        uint32_t heads, head_dim;
    } models[] = {{KERNEL_F16, 2, 4},  {KERNEL_BF16, 4, 6},  {KERNEL_F32, 8, 1},       {KERNEL_F16, 1, 8},
                  {KERNEL_F32, 3, 16}, {KERNEL_F16, 2, 20},  {KERNEL_BF16, 2, 48},     {KERNEL_F32, 2, 36},
                  {KERNEL_F16, 1, 80}, {KERNEL_BF16, 1, 96}, {KERNEL_F32, 1, 100 + 4}, {KERNEL_F16, 1, 128},
                  {KERNEL_F32, 1, 256}};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        const uint32_t length[] = {1, 7, 35, 66};
        check_lengths(models[i].type, models[i].heads, models[i].head_dim, 4, length, (struct layout){.gap = 1});
    }
}

/* Rows up to the longest that the bias allows; nothing beyond the bias may be read. */
TEST(a_bias_by_distance)
{
    static const uint32_t length[] = {BIAS_REACH + 1, 33, 1, 16, 20, 64, 130};
    static const struct {
        enum kernel_type type;
        uint32_t heads, head_dim;
        bool first_only;
    } models[] = {{KERNEL_F16, 2, 32, false},  {KERNEL_BF16, 2, 64, false}, {KERNEL_F16, 2, 20, false},
                  {KERNEL_F32, 2, 32, false},  {KERNEL_F16, 2, 64, true},   {KERNEL_F32, 3, 8, true},
                  {KERNEL_F16, 1, 128, false}, {KERNEL_BF16, 1, 256, false}};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct scene s = scene_new(models[i].type, models[i].heads, models[i].head_dim, 7, length, packed, 0.5f);
        s.first_only = models[i].first_only;
        s.bias = need(s.heads * BIASES * sizeof *s.bias);
        numbers_random(KERNEL_F32, i, (size_t)s.heads * BIASES, s.bias);
        for (size_t b = 0; b < (size_t)s.heads * BIASES; b++) { s.bias[b] *= 8; }
        check(&s);
        scene_free(&s);
    }
}

/* Windows on both sides, on one side alone, and of the query's own key alone; narrower and wider than tiles, strips and
 * rows. */
TEST(a_window_around_the_query)
{
    static const uint32_t length[] = {200, 33, 1, 16, 64, 130, 20, 65};
    static const uint32_t windows[][2] = {{64, 64}, {0, 0},          {5, 5},          {9, 70},
                                          {63, 65}, {UINT32_MAX, 0}, {0, UINT32_MAX}, {1000, 1000}};
    static const struct {
        enum kernel_type type;
        uint32_t heads, head_dim;
        bool first_only;
    } models[] = {{KERNEL_F16, 1, 32, false}, {KERNEL_BF16, 1, 64, false},  {KERNEL_F16, 1, 128, false},
                  {KERNEL_F32, 1, 64, false}, {KERNEL_BF16, 1, 256, false}, {KERNEL_F16, 2, 64, true},
                  {KERNEL_F32, 3, 8, true}};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        for (size_t w = 0; w < sizeof windows / sizeof windows[0]; w++) {
            const uint32_t rows = i < 2 || models[i].first_only ? 8 : 2;
            struct scene s = scene_new(models[i].type, models[i].heads, models[i].head_dim, rows, length + 8 - rows,
                                       (struct layout){.gap = 2}, 2.0f);
            s.first_only = models[i].first_only;
            s.before = windows[w][0];
            s.behind = windows[w][1];
            check(&s);
            scene_free(&s);
        }
    }
}

/* As in Qwen3: two or four heads of queries to one of keys, causal; and also attending both ways. */
TEST(fewer_heads_of_keys)
{
    static const uint32_t length[] = {1, 33, 16, 70, 20};
    static const struct {
        enum kernel_type type;
        uint32_t heads, key_heads, head_dim;
        bool first_only;
    } models[] = {{KERNEL_F16, 4, 2, 32, false}, {KERNEL_BF16, 4, 1, 64, false}, {KERNEL_F16, 4, 2, 128, false},
                  {KERNEL_F32, 6, 2, 16, false}, {KERNEL_F16, 4, 2, 64, true},   {KERNEL_F32, 2, 1, 64, true}};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        for (int causal = 0; causal < 2; causal++) {
            struct scene s = grouped_new(models[i].type, models[i].heads, models[i].key_heads, models[i].head_dim, 5,
                                         length, (struct layout){.gap = 1}, 2.0f);
            s.first_only = models[i].first_only;
            s.behind = causal ? 0 : UINT32_MAX;
            check(&s);
            scene_free(&s);
        }
    }
}

/* Keys far from a window are not even read: work grows with the window. */
TEST(a_window_reads_nothing_far_away)
{
    static const enum kernel_type types[] = {KERNEL_F16, KERNEL_F32};
    const uint32_t length = 400, near = 128, far = near + 64 + 64;
    for (size_t i = 0; i < 2; i++) {
        struct scene s = scene_new(types[i], 1, 64, 1, &length, packed, 1.0f);
        s.before = s.behind = 64;
        for (size_t at = (size_t)192 * far; at < (size_t)192 * length; at++) { s.qkv[at] = NAN; }
        uint8_t *raw = run_raw(&s);
        float *got = need(sizeof *got * 64 * length);
        numbers_read(types[i], raw, (size_t)64 * length, got);
        for (uint32_t at = 0; at < 64 * near; at++) { assert_true(isfinite(got[at])); }
        free(got);
        free(raw);
        scene_free(&s);
    }
}

/* Scores in the thousands: their powers can be represented only relative to the largest one, from step to step. */
TEST(large_scores)
{
    const uint32_t length[] = {130, 31, 200};
    static const enum kernel_type types[] = {KERNEL_F16, KERNEL_BF16, KERNEL_F32};
    for (size_t i = 0; i < 3; i++) {
        struct scene s = scene_new(types[i], 1, 32, 3, length, packed, 64.0f);
        check(&s);
        s.scale = 1.0f; /* as if the loader had folded it into the weights */
        check(&s);
        scene_free(&s);
    }
}

/* The largest key comes last, so that every step scales down the earlier sums. */
TEST(rising_scores)
{
    const uint32_t length[] = {300};
    for (int falling = 0; falling < 2; falling++) {
        struct scene s = scene_new(KERNEL_F16, 1, 64, 1, length, packed, 1.0f);
        for (uint32_t t = 0; t < 300; t++) {
            for (uint32_t i = 0; i < 64; i++) {
                s.qkv[t * 192 + i] = 1.0f;
                s.qkv[t * 192 + 64 + i] = (float)(falling ? 300 - t : t) / 32.0f;
            }
        }
        float *rounded = need(sizeof *rounded * 300 * 192);
        unsigned char *words = need(2u * 300 * 192);
        numbers_write(KERNEL_F16, s.qkv, (size_t)300 * 192, words);
        numbers_read(KERNEL_F16, words, (size_t)300 * 192, s.qkv);
        check(&s);
        free(words);
        free(rounded);
        scene_free(&s);
    }
}

TEST(first_query_only)
{
    static const struct {
        enum kernel_type type;
        uint32_t heads, head_dim;
    } models[] = {{KERNEL_F16, 12, 32}, {KERNEL_BF16, 3, 64}, {KERNEL_F32, 2, 64}, {KERNEL_F16, 2, 20}};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        for (uint32_t gap = 0; gap < 3; gap += 2) {
            struct scene s = scene_new(models[i].type, models[i].heads, models[i].head_dim, MIXED, mixed,
                                       (struct layout){.gap = gap}, 4.0f);
            s.first_only = true;
            s.spare = 7;
            check(&s);
            scene_free(&s);
        }
    }
}

/* A graph serves batches below its bound. */
TEST(bound_above_the_batch)
{
    struct scene s = scene_new(KERNEL_F16, 2, 32, MIXED, mixed, packed, 4.0f);
    s.spare = 100;
    check(&s);
    s.type = KERNEL_F32;
    check(&s);
    scene_free(&s);
}

/* --- a row in company -----------------------------------------------------------------------------------------------
 */

/* The bits of row `at` of a run, as rows of the context. */
static void assert_same_row(const struct scene *a, const void *left, uint32_t at, const struct scene *b,
                            const void *right, uint32_t other)
{
    const size_t width = a->hidden * number_bytes(a->type);
    const unsigned char *x = (const unsigned char *)left + context_at(a, at, 0) / a->hidden * width;
    const unsigned char *y = (const unsigned char *)right + context_at(b, other, 0) / b->hidden * width;
    assert_memory_equal(x, y, width * queries_of(a, at));
}

static void check_company(enum kernel_type type, uint32_t head_dim, bool first_only, uint32_t window)
{
    struct scene s = scene_new(type, 2, head_dim, MIXED, mixed, packed, 2.0f);
    struct scene padded = scene_new(type, 2, head_dim, MIXED, mixed, (struct layout){.place = MIXED_LONGEST}, 2.0f);
    s.first_only = padded.first_only = first_only;
    s.before = s.behind = padded.before = padded.behind = window;
    void *together = run_raw(&s), *apart = run_raw(&padded);
    for (uint32_t r = 0; r < MIXED; r++) {
        assert_same_row(&s, together, r, &padded, apart, r);
        struct scene alone = scene_new(type, 2, head_dim, 1, mixed + r, packed, 2.0f);
        fill_row(&alone, 0, r, 2.0f);
        alone.first_only = first_only;
        alone.before = alone.behind = window;
        void *single = run_raw(&alone);
        assert_same_row(&s, together, r, &alone, single, 0);
        free(single);
        scene_free(&alone);
    }
    free(together);
    free(apart);
    scene_free(&s);
    scene_free(&padded);
}

TEST(same_bits_in_any_company)
{
    for (uint32_t capability = 0; capability <= 80; capability += 80) {
        device_pretend(capability);
        check_company(KERNEL_F16, 32, false, UINT32_MAX);
        check_company(KERNEL_BF16, 64, false, UINT32_MAX);
        check_company(KERNEL_F16, 64, false, 20);
    }
    device_pretend(0);
    check_company(KERNEL_F16, 128, false, UINT32_MAX);
    check_company(KERNEL_F32, 32, false, UINT32_MAX);
    check_company(KERNEL_F16, 32, true, UINT32_MAX);
    check_company(KERNEL_F32, 64, false, 20);
}

/* One row is not finite, the others are as before. */
static void check_poison(struct scene *s, const void *before, uint32_t row, uint32_t column, float poison)
{
    float *const at = &s->qkv[(size_t)s->width * (s->start[row] + s->length[row] - 1) + column];
    const float kept = *at;
    *at = poison;
    void *after = run_raw(s);
    *at = kept;
    for (uint32_t r = 0; r < s->rows; r++) {
        if (r != row) { assert_same_row(s, before, r, s, after, r); }
    }
    const size_t count = (size_t)s->tokens * s->hidden;
    float *got = need(count * sizeof *got);
    numbers_read(s->type, after, count, got);
    bool finite = true;
    for (size_t i = 0; i < (size_t)s->length[row] * s->hidden; i++) {
        finite &= isfinite(got[s->start[row] * s->hidden + i]) != 0;
    }
    assert_false(finite);
    free(got);
    free(after);
}

static void check_poisons(enum kernel_type type, uint32_t head_dim)
{
    static const uint32_t length[] = {16, 70, 33, 20, 5, 64};
    const uint32_t hidden = head_dim;
    struct scene s = scene_new(type, 1, head_dim, 6, length, packed, 2.0f);
    void *before = run_raw(&s);
    check_poison(&s, before, 1, 0, NAN);               /* a query */
    check_poison(&s, before, 1, hidden + 3, NAN);      /* a key */
    check_poison(&s, before, 3, hidden + 3, INFINITY); /* a key: its scores are infinite */
    check_poison(&s, before, 0, 2 * hidden + 5, INFINITY);
    check_poison(&s, before, 5, 2 * hidden + 5, NAN);
    free(before);
    scene_free(&s);
}

TEST(what_is_not_finite_stays_visible)
{
    for (uint32_t capability = 0; capability <= 80; capability += 80) {
        device_pretend(capability);
        check_poisons(KERNEL_F16, 32);
        check_poisons(KERNEL_BF16, 64);
    }
    device_pretend(0);
    check_poisons(KERNEL_BF16, 128);
    check_poisons(KERNEL_F32, 32);
}

/* bf16 holds numbers whose product is beyond f32: all scores of a query are then infinite, of either sign. */
TEST(scores_beyond_f32)
{
    for (int negative = 0; negative < 2; negative++) {
        for (uint32_t tokens = 20; tokens < 100; tokens += 60) {
            struct scene s = scene_new(negative ? KERNEL_F32 : KERNEL_BF16, 1, 32, 1, &tokens, packed, 1.0f);
            for (uint32_t t = 0; t < tokens; t++) {
                for (uint32_t i = 0; i < 32; i++) {
                    s.qkv[t * 96 + i] = 0x1p100f;
                    s.qkv[t * 96 + 32 + i] = negative ? -0x1p100f : 0x1p100f;
                }
            }
            uint8_t *raw = run_raw(&s);
            float *got = need(sizeof *got * tokens * 32);
            numbers_read(s.type, raw, (size_t)tokens * 32, got);
            for (uint32_t i = 0; i < tokens * 32; i++) { assert_true(isnan(got[i])); }
            free(got);
            free(raw);
            scene_free(&s);
        }
    }
}

TEST(sizes_that_are_refused)
{
    const struct kernel_attention_args good = {.type = KERNEL_F16,
                                               .bound = 1,
                                               .heads = 2,
                                               .key_heads = 2,
                                               .head_dim = 32,
                                               .scale = 1,
                                               .before = UINT32_MAX,
                                               .behind = UINT32_MAX};
    struct kernel_attention_args bad[12];
    for (size_t i = 0; i < 12; i++) { bad[i] = good; }
    bad[0].bound = 0;
    bad[1].heads = 0;
    bad[2].head_dim = 0;
    bad[3].head_dim = 260;
    bad[4].heads = 1, bad[4].head_dim = 20;
    bad[5].scale = 0;
    bad[6].qkv = (const void *)(uintptr_t)8;
    bad[7].type = (enum kernel_type)3;
    bad[8].queries = (const void *)(uintptr_t)8;
    bad[9].bias = (const float *)(uintptr_t)16, bad[9].before = 3;
    bad[10].key_heads = 0;
    bad[11].heads = 3;
    for (size_t i = 0; i < 12; i++) {
        assert_int_equal(kernel_attention(device_queue(), &bad[i]), cudaErrorInvalidValue);
    }
}
