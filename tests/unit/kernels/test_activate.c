/* kernel_activate and kernel_gate beside the definitions of their functions in f64. */
#include "harness.h"

#include <math.h>
#include <stdlib.h>

#include "kernel_device.h"
#include "kernel_matrix.h"
#include "kernel_numbers.h"

static double activated(enum kernel_activation activation, double x)
{
    switch (activation) {
    case KERNEL_GELU_ERF:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    case KERNEL_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
    case KERNEL_RELU:
        return x > 0 ? x : 0;
    case KERNEL_SILU:
        return x / (1 + exp(-x));
    case KERNEL_IDENTITY:
        return x;
    }
    return NAN;
}

/* Values from -8 to 8, which include the tails. */
static struct kernel_matrix spread(enum kernel_type type, uint32_t rows, uint32_t width)
{
    struct kernel_matrix x = matrix_random(type, 1, rows, width);
    for (size_t i = 0; i < (size_t)rows * width; i++) { x.host[i] *= 8; }
    matrix_put(&x);
    return x;
}

struct sizes {
    uint32_t rows, bound; /* the launch is for `bound` of 5 rows, `rows` of them are there */
    uint32_t width;
};

static void run_case(enum kernel_type type, enum kernel_activation activation, struct sizes sizes, int with_bias)
{
    const uint32_t width = sizes.width, all = 5;
    struct kernel_matrix x = spread(type, all, width), bias = matrix_random(type, 2, 1, width), before = x;
    uint32_t *count = device_new(sizeof sizes.rows, &sizes.rows);
    const struct kernel_activate_args args = {
        type, activation, sizes.bound, width, count, with_bias ? bias.device : NULL, x.device};
    x.host = calloc((size_t)all * width, sizeof(float));
    assert_int_equal(kernel_activate(device_queue(), &args), cudaSuccess);
    matrix_fetch(&x);
    for (uint32_t r = 0; r < all; r++) {
        for (uint32_t i = 0; i < width; i++) {
            double in = (double)*matrix_at(&before, r, i) + (with_bias ? (double)*matrix_at(&bias, 0, i) : 0);
            float want =
                r < sizes.rows && r < sizes.bound ? (float)activated(activation, in) : *matrix_at(&before, r, i);
            float got = *matrix_at(&x, r, i);
            if (!(fabsf(got - want) <= number_step(type, want) + 2e-6f)) {
                fail_msg("type %d, activation %d: f(%g) is %.9g instead of %.9g", (int)type, (int)activation, in,
                         (double)got, (double)want);
            }
        }
    }
    free(before.host);
    matrix_free(&x);
    matrix_free(&bias);
    device_free(count);
}

TEST(every_function_and_type)
{
    for (enum kernel_type type = KERNEL_F32; type <= KERNEL_BF16; type++) {
        for (enum kernel_activation a = KERNEL_GELU_ERF; a <= KERNEL_IDENTITY; a++) {
            for (int with_bias = 0; with_bias < 2; with_bias++) {
                run_case(type, a, (struct sizes){3, 5, 1536}, with_bias);
            }
        }
    }
}

TEST(odd_widths)
{
    static const uint32_t widths[] = {8, 24, 1000, 4104, 16384};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        run_case(KERNEL_F16, KERNEL_GELU_ERF, (struct sizes){3, 5, widths[i]}, 1);
    }
}

/* A launch for fewer rows than the matrix has computes only those. */
TEST(the_bound_holds)
{
    run_case(KERNEL_F16, KERNEL_RELU, (struct sizes){5, 3, 24}, 1);
}

/* A NaN gives a NaN: the row must be seen to be spoilt. */
TEST(what_is_not_a_number_stays_so)
{
    const uint32_t rows = 1;
    uint32_t *count = device_new(sizeof rows, &rows);
    for (enum kernel_activation a = KERNEL_GELU_ERF; a <= KERNEL_IDENTITY; a++) {
        struct kernel_matrix x = matrix_random(KERNEL_F16, 1, 1, 16);
        x.host[3] = NAN;
        x.host[4] = INFINITY;
        matrix_put(&x);
        const struct kernel_activate_args args = {KERNEL_F16, a, 1, 16, count, NULL, x.device};
        assert_int_equal(kernel_activate(device_queue(), &args), cudaSuccess);
        matrix_fetch(&x);
        assert_true(isnan(x.host[3]));
        assert_true(isinf(x.host[4]));
        assert_true(isfinite(x.host[2]) && isfinite(x.host[5]));
        matrix_free(&x);
    }
    device_free(count);
}

TEST(what_it_does_not_do_is_refused)
{
    const uint32_t rows = 1;
    uint32_t *count = device_new(sizeof rows, &rows);
    struct kernel_matrix x = matrix_random(KERNEL_F16, 1, 1, 64);
    const struct kernel_activate_args good = {KERNEL_F16, KERNEL_RELU, 1, 64, count, NULL, x.device};
    struct kernel_activate_args bad[6] = {good, good, good, good, good, good};
    bad[0].width = 60;
    bad[1].width = 0;
    bad[2].bound = 0;
    bad[3].type = (enum kernel_type)3;
    bad[4].x = (char *)x.device + 8;
    bad[5].bound = UINT32_MAX;
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(kernel_activate(device_queue(), &bad[i]), cudaErrorInvalidValue);
    }
    matrix_free(&x);
    device_free(count);
}

/* --- gate -----------------------------------------------------------------------------------------------------------
 */

/* Rows beyond the count and the bound stay as they are; each half of a row has its part of the bias. */
static void run_gate(enum kernel_type type, enum kernel_activation activation, struct sizes sizes)
{
    const uint32_t width = sizes.width, all = 5;
    struct kernel_matrix from = spread(type, all, 2 * width), bias = matrix_random(type, 2, 1, 2 * width);
    struct kernel_matrix to = matrix_blank(type, all, width);
    uint32_t *count = device_new(sizeof sizes.rows, &sizes.rows);
    const struct kernel_gate_args args = {type,  activation,  sizes.bound, width,
                                          count, from.device, bias.device, to.device};
    assert_int_equal(kernel_gate(device_queue(), &args), cudaSuccess);
    matrix_fetch(&to);
    for (uint32_t r = 0; r < all; r++) {
        for (uint32_t i = 0; i < width; i++) {
            const float got = *matrix_at(&to, r, i);
            if (r >= sizes.rows || r >= sizes.bound) {
                assert_true(isnan(got));
                continue;
            }
            const double a = (double)*matrix_at(&from, r, i) + (double)*matrix_at(&bias, 0, i);
            const double b = (double)*matrix_at(&from, r, width + i) + (double)*matrix_at(&bias, 0, width + i);
            const float want = (float)(activated(activation, a) * b);
            if (!(fabsf(got - want) <= number_step(type, want) + 2e-5f)) {
                fail_msg("type %d, activation %d: f(%g) * %g is %.9g instead of %.9g", (int)type, (int)activation, a, b,
                         (double)got, (double)want);
            }
        }
    }
    matrix_free(&from);
    matrix_free(&bias);
    matrix_free(&to);
    device_free(count);
}

TEST(a_gate_of_every_function_and_type)
{
    for (enum kernel_type type = KERNEL_F32; type <= KERNEL_BF16; type++) {
        for (enum kernel_activation a = KERNEL_GELU_ERF; a <= KERNEL_IDENTITY; a++) {
            run_gate(type, a, (struct sizes){3, 5, 1152});
        }
    }
}

TEST(gates_of_odd_widths)
{
    static const uint32_t widths[] = {8, 24, 1000, 4104};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        run_gate(KERNEL_F16, KERNEL_SILU, (struct sizes){5, 3, widths[i]});
    }
}

TEST(what_gate_does_not_do_is_refused)
{
    const uint32_t rows = 1;
    uint32_t *count = device_new(sizeof rows, &rows);
    struct kernel_matrix x = matrix_random(KERNEL_F16, 1, 1, 128), to = matrix_random(KERNEL_F16, 1, 1, 64);
    const struct kernel_gate_args good = {KERNEL_F16, KERNEL_SILU, 1, 64, count, x.device, x.device, to.device};
    struct kernel_gate_args bad[8] = {good, good, good, good, good, good, good, good};
    bad[0].width = 60;
    bad[1].width = 0;
    bad[2].bound = 0;
    bad[3].type = (enum kernel_type)3;
    bad[4].activation = (enum kernel_activation)(KERNEL_IDENTITY + 1);
    bad[5].from = (char *)x.device + 8;
    bad[6].bias = (char *)x.device + 8;
    bad[7].to = (char *)to.device + 8;
    for (size_t i = 0; i < 8; i++) { assert_int_equal(kernel_gate(device_queue(), &bad[i]), cudaErrorInvalidValue); }
    matrix_free(&x);
    matrix_free(&to);
    device_free(count);
}
