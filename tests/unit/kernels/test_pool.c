/* kernel_pool and kernel_gather beside plain loops in f64. */
#include "harness.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "kernel_device.h"
#include "kernel_matrix.h"
#include "kernel_numbers.h"
#include "pool_reference.h"

struct pool_scene {
    struct kernel_rows rows;
    struct kernel_matrix x, output;
    uint32_t bound;
    uint32_t *finite; /* on the device */
    struct kernel_pool_args args;
};

/* The gaps hold NaN: no row may read them. */
static struct pool_scene pool_new(enum kernel_type type, uint32_t hidden, enum pooling pooling, bool gathered)
{
    static const uint32_t lengths[] = {1, 3, 70, 2, 11};
    struct pool_scene s = {.rows = rows_new(5, lengths, 2, 10), .bound = 8};
    s.x = matrix_random(type, 1, gathered ? s.bound : s.rows.tokens, hidden);
    for (uint32_t t = 0; t < s.x.rows && !gathered; t++) {
        for (uint32_t i = 0; s.rows.ids[t] < 0 || s.rows.ids[t] == INT32_MAX ? i < hidden : false; i++) {
            *matrix_at(&s.x, t, i) = NAN;
        }
    }
    matrix_put(&s.x);
    s.output = matrix_blank(KERNEL_F32, s.bound, hidden);
    s.finite = device_new(s.bound * sizeof *s.finite, NULL);
    s.args = (struct kernel_pool_args){
        .type = type,
        .pooling = pooling,
        .gathered = gathered,
        .normalize = 0,
        .bound = s.bound,
        .hidden = hidden,
        .ragged = s.rows.device,
        .x = s.x.device,
        .output = s.output.device,
        .finite = s.finite,
    };
    return s;
}

static void pool_free(struct pool_scene *s)
{
    rows_free(&s->rows);
    matrix_free(&s->x);
    matrix_free(&s->output);
    device_free(s->finite);
}

static void pool_run(struct pool_scene *s, uint32_t *finite)
{
    assert_int_equal(kernel_pool(device_queue(), &s->args), cudaSuccess);
    matrix_fetch(&s->output);
    device_read(finite, s->finite, s->bound * sizeof *finite);
}

/* The vector of a row, in f64. */
static void reference(const struct pool_scene *s, uint32_t row, double *vector)
{
    const uint32_t first = s->args.gathered ? row : s->rows.start[row], length = s->rows.length[row];
    double squares = 0, column[70];
    for (uint32_t i = 0; i < s->args.hidden; i++) {
        for (uint32_t t = 0; t < (s->args.gathered ? 1 : length); t++) { column[t] = *matrix_at(&s->x, first + t, i); }
        vector[i] = s->args.gathered ? column[0] : pool_reference(s->args.pooling, column, 1, length);
        squares += vector[i] * vector[i];
    }
    for (uint32_t i = 0; i < s->args.hidden && s->args.normalize != 0; i++) { vector[i] /= fmax(sqrt(squares), 1e-12); }
}

static void assert_pooled(struct pool_scene *s)
{
    uint32_t finite[8];
    pool_run(s, finite);
    double *vector = malloc(s->args.hidden * sizeof *vector);
    for (uint32_t r = 0; r < s->rows.rows; r++) {
        reference(s, r, vector);
        for (uint32_t i = 0; i < s->args.hidden; i++) {
            float want = (float)vector[i], got = *matrix_at(&s->output, r, i);
            if (!(fabsf(got - want) <= number_step(s->output.type, want) + 1e-6f)) {
                fail_msg("hidden %u, row %u, column %u: %.9g instead of %.9g", s->args.hidden, r, i, (double)got,
                         (double)want);
            }
        }
        assert_int_equal(finite[r], 1);
    }
    for (uint32_t r = s->rows.rows; r < s->bound; r++) {
        assert_true(isnan(*matrix_at(&s->output, r, 0)));
        assert_int_equal(finite[r], UINT32_MAX);
    }
    free(vector);
}

TEST(every_pooling_and_type)
{
    for (enum kernel_type type = KERNEL_F32; type <= KERNEL_BF16; type++) {
        for (uint32_t p = POOLING_UNSET + 1; p <= POOLINGS; p++) { /* the last: gathered */
            const enum pooling pooling = p < POOLINGS ? (enum pooling)p : POOLING_CLS;
            for (uint32_t normalize = 0; normalize < 2; normalize++) {
                struct pool_scene s = pool_new(type, 384, pooling, p == POOLINGS);
                s.args.normalize = normalize;
                assert_pooled(&s);
                pool_free(&s);
            }
        }
    }
}

TEST(every_width)
{
    static const uint32_t widths[] = {8, 40, 768, 1024, 4096};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        struct pool_scene s = pool_new(KERNEL_F16, widths[i], POOLING_MEAN, false);
        s.args.normalize = 1;
        assert_pooled(&s);
        pool_free(&s);
    }
}

/* Squares of these are not finite, or are 0; the vectors' lengths are 1 all the same. */
TEST(lengths_of_extreme_vectors)
{
    static const float sizes[] = {1e30f, 3e38f, 1e-10f, 1e-20f};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        struct pool_scene s = pool_new(KERNEL_F32, 64, POOLING_CLS, false);
        for (size_t i = 0; i < (size_t)s.x.rows * s.x.columns; i++) { s.x.host[i] *= sizes[k]; }
        matrix_put(&s.x);
        s.args.x = s.x.device;
        s.args.normalize = 1;
        assert_pooled(&s);
        pool_free(&s);
    }
}

/* The host normalises in this order, too (vector_normalize): the bits are the same. */
TEST(normalised_as_on_the_host)
{
    for (enum kernel_type type = KERNEL_F32; type <= KERNEL_BF16; type++) {
        struct pool_scene s = pool_new(type, 768, POOLING_MEAN, false);
        uint32_t finite[8];
        pool_run(&s, finite);
        float *plain = malloc(s.rows.rows * 768 * sizeof *plain);
        memcpy(plain, matrix_at(&s.output, 0, 0), s.rows.rows * 768 * sizeof *plain);
        for (uint32_t r = 0; r < s.rows.rows; r++) {
            double squares = 0;
            for (uint32_t i = 0; i < 768; i++) { squares += (double)plain[r * 768 + i] * plain[r * 768 + i]; }
            float scale = (float)(1 / sqrt(squares));
            for (uint32_t i = 0; i < 768; i++) { plain[r * 768 + i] *= scale; }
        }
        s.args.normalize = 1;
        pool_run(&s, finite);
        assert_memory_equal(plain, matrix_at(&s.output, 0, 0), s.rows.rows * 768 * sizeof *plain);
        free(plain);
        pool_free(&s);
    }
}

TEST(a_zero_vector_stays_zero)
{
    struct pool_scene s = pool_new(KERNEL_F16, 64, POOLING_CLS, false);
    for (size_t i = 0; i < (size_t)s.x.rows * s.x.columns; i++) { s.x.host[i] = 0; }
    matrix_put(&s.x);
    s.args.x = s.x.device;
    s.args.normalize = 1;
    uint32_t finite[8];
    pool_run(&s, finite);
    for (uint32_t i = 0; i < 64; i++) { assert_true(*matrix_at(&s.output, 0, i) == 0.0f); }
    assert_int_equal(finite[0], 1);
    pool_free(&s);
}

/* A row whose vector is not finite is flagged, whatever spoilt it, and no other row is. */
TEST(what_is_not_finite_is_flagged)
{
    static const float spoilt[] = {NAN, INFINITY, -INFINITY};
    for (size_t k = 0; k < 6; k++) {
        struct pool_scene s = pool_new(KERNEL_F16, 384, POOLING_MEAN, false);
        *matrix_at(&s.x, s.rows.start[2] + 69, 383) = spoilt[k % 3];
        matrix_put(&s.x);
        s.args.x = s.x.device;
        s.args.normalize = k >= 3;
        uint32_t finite[8];
        pool_run(&s, finite);
        for (uint32_t r = 0; r < s.rows.rows; r++) { assert_int_equal(finite[r], r != 2); }
        pool_free(&s);
    }
}

/* A row's floats have the same bits alone as among others. */
TEST(company_does_not_matter)
{
    struct pool_scene s = pool_new(KERNEL_F16, 384, POOLING_MEAN, false);
    uint32_t finite[8], start = s.rows.start[2], length = s.rows.length[2], counts[KERNEL_COUNTS] = {1};
    pool_run(&s, finite);
    void *lists[] = {device_new(sizeof counts, counts), device_new(sizeof start, &start),
                     device_new(sizeof length, &length)};
    struct kernel_matrix alone = matrix_blank(KERNEL_F32, 1, 384);
    struct kernel_pool_args args = s.args;
    args.bound = 1;
    args.ragged = (struct kernel_ragged){.counts = lists[0], .start = lists[1], .length = lists[2]};
    args.output = alone.device;
    assert_int_equal(kernel_pool(device_queue(), &args), cudaSuccess);
    matrix_fetch(&alone);
    assert_memory_equal(alone.host, matrix_at(&s.output, 2, 0), 384 * sizeof(float));
    for (size_t i = 0; i < 3; i++) { device_free(lists[i]); }
    matrix_free(&alone);
    pool_free(&s);
}

TEST(what_it_does_not_do_is_refused)
{
    struct pool_scene s = pool_new(KERNEL_F16, 64, POOLING_MEAN, false);
    struct kernel_pool_args bad[7];
    for (size_t i = 0; i < 7; i++) { bad[i] = s.args; }
    bad[0].hidden = 0;
    bad[1].hidden = 4104;
    bad[2].hidden = 68;
    bad[3].bound = 0;
    bad[4].type = (enum kernel_type)3;
    bad[5].pooling = POOLINGS;
    bad[6].pooling = POOLING_UNSET;
    for (size_t i = 0; i < 7; i++) { assert_int_equal(kernel_pool(device_queue(), &bad[i]), cudaErrorInvalidValue); }
    pool_free(&s);
}

/* --- gather ----------------------------------------------------------------------------------------------------------
 */

TEST(first_tokens)
{
    static const uint32_t widths[] = {8, 384, 1032, 8192};
    for (size_t k = 0; k < 4; k++) {
        for (enum kernel_type type = KERNEL_F32; type <= KERNEL_BF16; type++) {
            struct pool_scene s = pool_new(type, 384, POOLING_CLS, false);
            struct kernel_matrix from = matrix_random(type, 3, s.rows.tokens, widths[k]);
            struct kernel_matrix to = matrix_blank(type, s.bound, widths[k]);
            const struct kernel_gather_args args = {type, s.bound, widths[k], s.rows.device, from.device, to.device};
            assert_int_equal(kernel_gather(device_queue(), &args), cudaSuccess);
            matrix_fetch(&to);
            for (uint32_t r = 0; r < s.rows.rows; r++) {
                assert_memory_equal(matrix_at(&to, r, 0), matrix_at(&from, s.rows.start[r], 0),
                                    widths[k] * sizeof(float));
            }
            for (uint32_t r = s.rows.rows; r < s.bound; r++) { assert_true(isnan(*matrix_at(&to, r, 0))); }
            matrix_free(&from);
            matrix_free(&to);
            pool_free(&s);
        }
    }
}

TEST(what_gather_does_not_do_is_refused)
{
    struct kernel_matrix x = matrix_random(KERNEL_F16, 1, 4, 64);
    const struct kernel_gather_args good = {KERNEL_F16, 4, 64, {0}, x.device, x.device};
    struct kernel_gather_args bad[4] = {good, good, good, good};
    bad[0].hidden = 60;
    bad[1].bound = 0;
    bad[2].type = (enum kernel_type)3;
    bad[3].to = (char *)x.device + 4;
    for (size_t i = 0; i < 4; i++) { assert_int_equal(kernel_gather(device_queue(), &bad[i]), cudaErrorInvalidValue); }
    matrix_free(&x);
}
