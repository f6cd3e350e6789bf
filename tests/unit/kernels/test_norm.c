/* kernel_norm beside its definition in f64, for every type, width class and combination of what is added. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "harness.h"
#include "kernel_device.h"
#include "kernel_numbers.h"
#include "kernels/kernels.h"

struct norm_case {
    enum kernel_type type;
    uint32_t rows, bound, hidden;
    bool bias, residual;
};

/* The matrices of a case on the test's side, in f32 values that the type holds. */
struct norm_data {
    float *from, *bias, *residual, *gain, *shift, *expected;
};

static float *random_floats(enum kernel_type type, uint64_t seed, size_t count)
{
    float *to = malloc(count * sizeof *to);
    numbers_random(type, seed, count, to);
    return to;
}

static void reference(const struct norm_case *c, struct norm_data *d)
{
    for (uint32_t r = 0; r < c->rows; r++) {
        double sum = 0, squares = 0;
        double *x = malloc(c->hidden * sizeof *x);
        for (uint32_t i = 0; i < c->hidden; i++) {
            size_t at = (size_t)r * c->hidden + i;
            x[i] = d->from[at] + (c->bias ? (double)d->bias[i] : 0) + (c->residual ? (double)d->residual[at] : 0);
            sum += x[i];
        }
        for (uint32_t i = 0; i < c->hidden; i++)
            squares += (x[i] - sum / c->hidden) * (x[i] - sum / c->hidden);
        for (uint32_t i = 0; i < c->hidden; i++)
            d->expected[(size_t)r * c->hidden + i] =
                (float)((x[i] - sum / c->hidden) / sqrt(squares / c->hidden + 1e-6) * d->gain[i] + d->shift[i]);
        free(x);
    }
}

static void *upload(enum kernel_type type, const float *from, size_t count)
{
    void *packed = malloc(count * number_bytes(type));
    numbers_write(type, from, count, packed);
    void *device = device_new(count * number_bytes(type), packed);
    free(packed);
    return device;
}

static void run_case(const struct norm_case *c)
{
    const size_t count = (size_t)c->bound * c->hidden;
    struct norm_data d = {
        random_floats(c->type, 1, count),        random_floats(c->type, 2, c->hidden),
        random_floats(c->type, 3, count),        random_floats(KERNEL_F32, 4, c->hidden),
        random_floats(KERNEL_F32, 5, c->hidden), calloc(count, sizeof(float)),
    };
    reference(c, &d);
    void *from = upload(c->type, d.from, count), *bias = upload(c->type, d.bias, c->hidden);
    void *residual = upload(c->type, d.residual, count), *gain = upload(KERNEL_F32, d.gain, c->hidden);
    void *shift = upload(KERNEL_F32, d.shift, c->hidden), *to = device_new(count * number_bytes(c->type), NULL);
    void *rows = device_new(sizeof c->rows, &c->rows);
    const struct kernel_norm_args args = {
        c->type, c->bound, c->hidden, 1e-6f, rows, from, c->bias ? bias : NULL, c->residual ? residual : NULL,
        gain,    shift,    to};
    assert_int_equal(kernel_norm(device_queue(), &args), cudaSuccess);
    device_sync();

    void *packed = malloc(count * number_bytes(c->type));
    float *result = malloc(count * sizeof *result);
    device_read(packed, to, count * number_bytes(c->type));
    numbers_read(c->type, packed, count, result);
    for (size_t i = 0; i < (size_t)c->rows * c->hidden; i++)
        if (!(fabsf(result[i] - d.expected[i]) <= number_step(c->type, d.expected[i]) + 4e-6f))
            fail_msg("type %d rows %u hidden %u, element %zu: %g instead of %g", (int)c->type, c->rows, c->hidden, i,
                     (double)result[i], (double)d.expected[i]);
    for (size_t i = (size_t)c->rows * c->hidden; i < count; i++)
        assert_true(isnan(result[i])); /* rows beyond the count are not touched */

    void *device[] = {from, bias, residual, gain, shift, to, rows};
    for (size_t i = 0; i < sizeof device / sizeof device[0]; i++)
        device_free(device[i]);
    float *host[] = {d.from, d.bias, d.residual, d.gain, d.shift, d.expected, result};
    for (size_t i = 0; i < sizeof host / sizeof host[0]; i++)
        free(host[i]);
    free(packed);
}

static void every_width(void **state)
{
    (void)state;
    static const uint32_t widths[] = {8, 64, 256, 384, 512, 520, 768, 776, 1024, 1032, 2048, 4096};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
        for (enum kernel_type type = KERNEL_F32; type <= KERNEL_BF16; type++)
            run_case(&(struct norm_case){type, 5, 7, widths[i], true, true});
}

static void what_is_added_is_a_choice(void **state)
{
    (void)state;
    for (unsigned added = 0; added < 4; added++)
        run_case(&(struct norm_case){KERNEL_F16, 3, 3, 384, added & 1, added & 2});
}

const struct CMUnitTest cases[] = {
    cmocka_unit_test(every_width),
    cmocka_unit_test(what_is_added_is_a_choice),
};

TEST_MAIN(cases)
