/* kernel_norm and kernel_embed_norm beside LayerNorm's definition in f64, for every type, width class and combination
 * of added operands. */
#include "harness.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "kernel_device.h"
#include "kernel_matrix.h"
#include "kernel_numbers.h"

static const uint32_t widths[] = {8, 64, 256, 264, 384, 512, 520, 768, 776, 1024, 1032, 2048, 4096};
enum { WIDTHS = sizeof widths / sizeof widths[0] };
static const float epsilon = 0.01f; /* large, so that its absence would be seen */

/* Normalises x [width] f64 in place; an RMS norm takes the mean for 0. No shift: NULL. */
static void layer_norm(double *x, uint32_t width, bool rms, const float *gain, const float *shift)
{
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < width && !rms; i++) { sum += x[i]; }
    for (uint32_t i = 0; i < width; i++) { squares += (x[i] - sum / width) * (x[i] - sum / width); }
    double scale = 1 / sqrt(squares / width + (double)epsilon);
    for (uint32_t i = 0; i < width; i++) {
        x[i] = (x[i] - sum / width) * scale * (double)gain[i] + (shift ? (double)shift[i] : 0);
    }
}

static void assert_row(const struct kernel_matrix *result, uint32_t row, const double *expected)
{
    for (uint32_t i = 0; i < result->columns; i++) {
        float got = *matrix_at(result, row, i), want = (float)expected[i];
        if (!(fabsf(got - want) <= number_step(result->type, want) + 4e-6f)) {
            fail_msg("type %d, width %u, row %u, column %u: %.9g instead of %.9g", (int)result->type, result->columns,
                     row, i, (double)got, (double)want);
        }
    }
}

static void assert_untouched(const struct kernel_matrix *result, uint32_t first_row)
{
    for (uint32_t r = first_row; r < result->rows; r++) {
        for (uint32_t i = 0; i < result->columns; i++) { assert_true(isnan(*matrix_at(result, r, i))); }
    }
}

/* --- norm ------------------------------------------------------------------------------------------------------------
 */

struct norm_scene {
    struct kernel_matrix from, bias, residual, added_gain, gain, shift, sum, to;
    uint32_t rows;
    bool rms, added; /* added: the added operand has a norm of its own, and the sum is kept */
    uint32_t *count; /* on the device */
};

static struct norm_scene norm_new(enum kernel_type type, uint32_t rows, uint32_t bound, uint32_t width)
{
    return (struct norm_scene){
        .from = matrix_random(type, 1, bound, width),
        .bias = matrix_random(type, 2, 1, width),
        .residual = matrix_random(type, 3, bound, width),
        .gain = matrix_random(KERNEL_F32, 4, 1, width),
        .shift = matrix_random(KERNEL_F32, 5, 1, width),
        .added_gain = matrix_random(KERNEL_F32, 6, 1, width),
        .sum = matrix_blank(type, bound, width),
        .to = matrix_blank(type, bound, width),
        .rows = rows,
        .count = device_new(sizeof rows, &rows),
    };
}

static void norm_free(struct norm_scene *s)
{
    struct kernel_matrix *all[] = {&s->from, &s->bias,  &s->residual, &s->added_gain,
                                   &s->gain, &s->shift, &s->sum,      &s->to};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) { matrix_free(all[i]); }
    device_free(s->count);
}

static struct kernel_norm_args norm_args(const struct norm_scene *s, bool bias, bool residual, void *to)
{
    return (struct kernel_norm_args){
        .type = s->from.type,
        .bound = s->from.rows,
        .hidden = s->from.columns,
        .epsilon = epsilon,
        .rms = s->rms,
        .count = s->count,
        .from = s->from.device,
        .bias = bias ? s->bias.device : NULL,
        .residual = residual ? s->residual.device : NULL,
        .added_gain = s->added ? s->added_gain.device : NULL,
        .gain = s->gain.device,
        .shift = s->shift.device,
        .sum = s->added ? s->sum.device : NULL,
        .to = to,
    };
}

static void assert_norm(const struct norm_scene *s, const struct kernel_matrix *result, bool bias, bool residual)
{
    const uint32_t width = result->columns;
    double *x = malloc(width * sizeof *x);
    for (uint32_t r = 0; r < s->rows; r++) {
        for (uint32_t i = 0; i < width; i++) {
            x[i] = (double)*matrix_at(&s->from, r, i) + (bias ? (double)*matrix_at(&s->bias, 0, i) : 0);
        }
        if (s->added) { layer_norm(x, width, s->rms, s->added_gain.host, NULL); }
        for (uint32_t i = 0; i < width && residual; i++) { x[i] += (double)*matrix_at(&s->residual, r, i); }
        if (s->added) { assert_row(&s->sum, r, x); }
        layer_norm(x, width, s->rms, s->gain.host, s->shift.host);
        assert_row(result, r, x);
    }
    free(x);
}

static void check_norm(struct norm_scene *s, bool bias, bool residual)
{
    const struct kernel_norm_args args = norm_args(s, bias, residual, s->to.device);
    assert_int_equal(kernel_norm(device_queue(), &args), cudaSuccess);
    matrix_fetch(&s->to);
    matrix_fetch(&s->sum);
    assert_norm(s, &s->to, bias, residual);
}

TEST(every_width)
{
    for (size_t i = 0; i < WIDTHS; i++) {
        for (enum kernel_type type = KERNEL_F32; type <= KERNEL_BF16; type++) {
            struct norm_scene s = norm_new(type, 5, 7, widths[i]);
            check_norm(&s, true, true);
            assert_untouched(&s.to, 5);
            norm_free(&s);
        }
    }
}

TEST(an_rms_norm_takes_the_mean_for_0)
{
    static const uint32_t some[] = {64, 768, 1024, 2560};
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        for (enum kernel_type type = KERNEL_F32; type <= KERNEL_BF16; type++) {
            struct norm_scene s = norm_new(type, 3, 3, some[i]);
            s.rms = true;
            check_norm(&s, false, true);
            norm_free(&s);
        }
    }
}

/* Widths for which a row has one warp, or one block. */
TEST(what_is_added_may_have_a_norm_of_its_own)
{
    static const uint32_t some[] = {64, 768, 1032, 2560};
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        for (enum kernel_type type = KERNEL_F32; type <= KERNEL_BF16; type++) {
            for (unsigned rms = 0; rms < 2; rms++) {
                struct norm_scene s = norm_new(type, 3, 5, some[i]);
                s.added = true;
                s.rms = rms;
                check_norm(&s, rms, true);
                assert_untouched(&s.sum, 3);
                norm_free(&s);
            }
        }
    }
}

TEST(what_is_added_is_a_choice)
{
    for (unsigned added = 0; added < 4; added++) {
        struct norm_scene s = norm_new(KERNEL_F16, 3, 3, 384);
        check_norm(&s, added & 1, added & 2);
        norm_free(&s);
    }
}

TEST(in_place)
{
    for (unsigned place = 0; place < 2; place++) {
        struct norm_scene s = norm_new(KERNEL_BF16, 6, 6, place == 0 ? 768 : 1032);
        struct kernel_matrix *to = place == 0 ? &s.from : &s.residual, result = *to;
        const struct kernel_norm_args args = norm_args(&s, false, true, to->device);
        assert_int_equal(kernel_norm(device_queue(), &args), cudaSuccess);
        result.host = calloc((size_t)to->rows * to->columns, sizeof(float));
        matrix_fetch(&result);
        assert_norm(&s, &result, false, true);
        free(result.host);
        norm_free(&s);
    }
}

/* With wide values and a large common offset, the variance is that of the differences. */
TEST(an_offset_does_not_hurt)
{
    struct norm_scene s = norm_new(KERNEL_F32, 2, 2, 384);
    for (size_t i = 0; i < (size_t)2 * 384; i++) { s.from.host[i] = roundf(s.from.host[i] * 64) + 2048; }
    matrix_put(&s.from);
    check_norm(&s, false, false);
    norm_free(&s);
}

/* Rows without variance, and rows of zeros. */
TEST(constant_rows)
{
    for (enum kernel_type type = KERNEL_F32; type <= KERNEL_BF16; type++) {
        struct norm_scene s = norm_new(type, 2, 2, 384);
        for (uint32_t i = 0; i < 384; i++) {
            *matrix_at(&s.from, 0, i) = 3;
            *matrix_at(&s.from, 1, i) = 0;
        }
        matrix_put(&s.from);
        check_norm(&s, false, false);
        norm_free(&s);
    }
}

/* A launch for fewer rows than the matrix has computes only those. */
TEST(the_bound_of_norm_holds)
{
    static const uint32_t some[] = {384, 1032};
    for (size_t i = 0; i < 2; i++) {
        struct norm_scene s = norm_new(KERNEL_F16, 7, 7, some[i]);
        struct kernel_norm_args args = norm_args(&s, true, true, s.to.device);
        args.bound = s.rows = 5;
        assert_int_equal(kernel_norm(device_queue(), &args), cudaSuccess);
        matrix_fetch(&s.to);
        assert_norm(&s, &s.to, true, true);
        assert_untouched(&s.to, 5);
        norm_free(&s);
    }
}

/* A number that is not finite spoils its own row, all of it, and no other. */
TEST(what_is_not_finite_stays_in_its_row)
{
    static const float spoilt[] = {NAN, INFINITY, -INFINITY};
    for (size_t k = 0; k < 3; k++) {
        struct norm_scene s = norm_new(KERNEL_F16, 3, 3, 768);
        *matrix_at(&s.from, 1, 700) = spoilt[k];
        matrix_put(&s.from);
        const struct kernel_norm_args args = norm_args(&s, true, true, s.to.device);
        assert_int_equal(kernel_norm(device_queue(), &args), cudaSuccess);
        matrix_fetch(&s.to);
        for (uint32_t i = 0; i < 768; i++) {
            assert_true(isfinite(*matrix_at(&s.to, 0, i)) && isfinite(*matrix_at(&s.to, 2, i)));
            assert_true(isnan(*matrix_at(&s.to, 1, i)));
        }
        norm_free(&s);
    }
}

TEST(what_it_does_not_do_is_refused)
{
    struct norm_scene s = norm_new(KERNEL_F16, 1, 1, 4096);
    struct kernel_norm_args good = norm_args(&s, true, true, s.to.device), bad[6];
    for (size_t i = 0; i < 6; i++) { bad[i] = good; }
    bad[0].hidden = 4104;
    bad[1].hidden = 100;
    bad[2].hidden = 0;
    bad[3].bound = 0;
    bad[4].type = (enum kernel_type)3;
    bad[5].from = (const char *)good.from + 8;
    for (size_t i = 0; i < 6; i++) { assert_int_equal(kernel_norm(device_queue(), &bad[i]), cudaErrorInvalidValue); }
    matrix_fetch(&s.to);
    assert_untouched(&s.to, 0);
    assert_int_equal(kernel_norm(device_queue(), &good), cudaSuccess);
    norm_free(&s);
}

/* --- embed_norm ------------------------------------------------------------------------------------------------------
 */

enum { VOCABULARY = 50, POSITIONS = 9 };

struct embed_scene {
    struct kernel_rows rows;
    struct kernel_matrix word, position, gain, shift, sum, to;
    bool rms;
};

static struct embed_scene embed_new(enum kernel_type type, uint32_t width, uint32_t gap)
{
    static const uint32_t lengths[] = {1, 9, 4, 1};
    struct embed_scene s = {.rows = rows_new(4, lengths, gap, VOCABULARY)};
    s.word = matrix_random(type, 1, VOCABULARY, width);
    s.position = matrix_random(type, 2, POSITIONS, width);
    s.gain = matrix_random(KERNEL_F32, 3, 1, width);
    s.shift = matrix_random(KERNEL_F32, 4, 1, width);
    s.sum = matrix_blank(type, s.rows.tokens + 5, width);
    s.to = matrix_blank(type, s.rows.tokens + 5, width);
    return s;
}

static void embed_free(struct embed_scene *s)
{
    struct kernel_matrix *all[] = {&s->word, &s->position, &s->gain, &s->shift, &s->sum, &s->to};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) { matrix_free(all[i]); }
    rows_free(&s->rows);
}

static struct kernel_embed_norm_args embed_args(const struct embed_scene *s)
{
    return (struct kernel_embed_norm_args){
        .type = s->word.type,
        .bound = s->to.rows,
        .hidden = s->word.columns,
        .vocabulary = VOCABULARY,
        .positions = POSITIONS,
        .epsilon = epsilon,
        .rms = s->rms,
        .ragged = s->rows.device,
        .word = s->word.device,
        .position = s->position.device,
        .gain = s->gain.device,
        .shift = s->shift.device,
        .to = s->to.device,
    };
}

static void assert_embedded(const struct embed_scene *s)
{
    const uint32_t width = s->to.columns;
    double *x = malloc(width * sizeof *x);
    for (uint32_t t = 0; t < s->rows.tokens; t++) {
        const uint32_t id = (uint32_t)s->rows.ids[t] < VOCABULARY ? (uint32_t)s->rows.ids[t] : 0;
        for (uint32_t i = 0; i < width; i++) {
            x[i] = (double)*matrix_at(&s->word, id, i) + (double)*matrix_at(&s->position, s->rows.position[t], i);
        }
        layer_norm(x, width, s->rms, s->gain.host, s->shift.host);
        assert_row(&s->to, t, x);
    }
    free(x);
}

TEST(embeddings_of_every_width)
{
    for (size_t i = 0; i < WIDTHS; i++) {
        for (enum kernel_type type = KERNEL_F32; type <= KERNEL_BF16; type++) {
            struct embed_scene s = embed_new(type, widths[i], 0);
            const struct kernel_embed_norm_args args = embed_args(&s);
            assert_int_equal(kernel_embed_norm(device_queue(), &args), cudaSuccess);
            matrix_fetch(&s.to);
            assert_embedded(&s);
            assert_untouched(&s.to, s.rows.tokens);
            embed_free(&s);
        }
    }
}

/* Gaps hold ids that no vocabulary has; their results are finite. */
TEST(gaps_between_rows)
{
    struct embed_scene s = embed_new(KERNEL_F16, 384, 3);
    const struct kernel_embed_norm_args args = embed_args(&s);
    assert_int_equal(kernel_embed_norm(device_queue(), &args), cudaSuccess);
    matrix_fetch(&s.to);
    assert_embedded(&s);
    embed_free(&s);
}

/* A launch for a bound below the number of tokens computes only the tokens below it. */
TEST(the_bound_of_embeddings_holds)
{
    static const uint32_t some[] = {384, 1032};
    for (size_t i = 0; i < 2; i++) {
        struct embed_scene s = embed_new(KERNEL_F16, some[i], 0);
        struct kernel_embed_norm_args args = embed_args(&s);
        args.bound = 3;
        assert_int_equal(kernel_embed_norm(device_queue(), &args), cudaSuccess);
        matrix_fetch(&s.to);
        assert_true(isfinite(*matrix_at(&s.to, 2, 0)));
        assert_untouched(&s.to, 3);
        embed_free(&s);
    }
}

/* Positions that the table does not have count as 0. */
TEST(positions_beyond_the_table)
{
    struct embed_scene s = embed_new(KERNEL_F16, 384, 0);
    struct kernel_embed_norm_args args = embed_args(&s);
    args.positions = 5;
    assert_int_equal(kernel_embed_norm(device_queue(), &args), cudaSuccess);
    matrix_fetch(&s.to);
    for (uint32_t t = 0; t < s.rows.tokens; t++) {
        if (s.rows.position[t] >= 5) { s.rows.position[t] = 0; }
    }
    assert_embedded(&s);
    embed_free(&s);
}

/* The input of the first layer of a model with RMS norms: the sum, and separately its normalised form. */
TEST(the_sum_is_kept)
{
    static const uint32_t some[] = {64, 1032};
    for (size_t i = 0; i < 2; i++) {
        struct embed_scene s = embed_new(KERNEL_F16, some[i], 0);
        s.rms = true;
        struct kernel_embed_norm_args args = embed_args(&s);
        args.sum = s.sum.device;
        assert_int_equal(kernel_embed_norm(device_queue(), &args), cudaSuccess);
        matrix_fetch(&s.to);
        matrix_fetch(&s.sum);
        assert_embedded(&s);
        for (uint32_t t = 0; t < s.rows.tokens; t++) {
            for (uint32_t c = 0; c < some[i]; c++) {
                const float want =
                    *matrix_at(&s.word, (uint32_t)s.rows.ids[t], c) + *matrix_at(&s.position, s.rows.position[t], c);
                assert_true(fabsf(*matrix_at(&s.sum, t, c) - want) <= number_step(KERNEL_F16, want));
            }
        }
        assert_untouched(&s.sum, s.rows.tokens);
        embed_free(&s);
    }
}
