/* Products on the processor's tile registers, against plain loops in double: that in f32 nothing of a number's three
 * parts is lost, and that a row's bits are the same wherever and with whatever it is computed. */
#include "harness.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "engine/cpu_kernels.h"

enum { SLACK = 32, PAD = 32 }; /* rows behind the last; elements between planes */

/* Rows, outputs, inputs: whole and broken strips, several chunks of outputs and of inputs. */
static const uint32_t sizes[][3] = {{1, 32, 32},    {16, 64, 96},    {17, 96, 384},   {32, 416, 384},
                                    {33, 32, 1536}, {64, 160, 1568}, {70, 1536, 384}, {31, 64, 4096}};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static uint32_t random_state = 7;

static float next_random(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (float)(random_state >> 8) * 0x1p-23f - 1.0f;
}

static void *room_for(size_t bytes)
{
    void *memory = memory_aligned(bytes);
    assert_non_null(memory);
    return memset(memory, 0, bytes);
}

static float *random_floats(size_t count, size_t room)
{
    float *values = room_for(room * sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = next_random();
    return values;
}

/* A product in f32 on tiles. */
struct product {
    uint32_t rows, outputs, inputs;
    size_t from_plane, to_plane;
    float *from, *weight, *bias, *sums;
    uint16_t *parts, *ended, *room;
    void *packed;
};

static const struct cpu_tiles *tiles_here(void)
{
    const struct cpu_tiles *tiles = kernels_pick()->tiles_f32;
    assert_true((tiles == NULL) == (kernels_pick()->tiles == NULL));
    if (tiles == NULL)
        skip();
    return tiles;
}

static struct product product_open(const struct cpu_tiles *tiles, uint32_t rows, uint32_t outputs, uint32_t inputs)
{
    size_t room = rows + SLACK;
    struct product product = {rows, outputs, inputs, room * inputs + PAD, room * outputs + PAD};
    product.from = random_floats((size_t)rows * inputs, room * inputs);
    product.weight = random_floats((size_t)outputs * inputs, (size_t)outputs * inputs);
    product.bias = random_floats(outputs, outputs);
    product.sums = room_for(room * outputs * sizeof(float));
    product.parts = room_for(3 * product.from_plane * sizeof(uint16_t));
    product.ended = room_for(3 * product.to_plane * sizeof(uint16_t));
    product.room = room_for(tiles->room(inputs));
    product.packed = room_for((size_t)outputs * inputs * sizeof(float));
    tiles->pack(outputs, inputs, product.weight, product.packed);
    tiles->split(rows, inputs, inputs, product.from, product.parts, product.from_plane);
    return product;
}

static void product_close(struct product *product)
{
    free(product->from);
    free(product->weight);
    free(product->bias);
    free(product->sums);
    free(product->parts);
    free(product->ended);
    free(product->room);
    free(product->packed);
}

static struct product_job job_of(const struct product *product, enum product_end end)
{
    struct product_job job = {
        .rows = product->rows,
        .outputs = product->outputs,
        .inputs = product->inputs,
        .last_output = product->outputs,
        .from = product->parts,
        .from_plane = product->from_plane,
        .to_tiled = end != END_NOTHING,
        .to_plane = product->to_plane,
        .packed = product->packed,
        .room = product->room,
        .end = end,
        .activation = ACTIVATION_GELU_ERF,
        .bias = product->bias,
    };
    if (end == END_NOTHING)
        job.to.f32 = product->sums;
    else
        job.to.bf16 = product->ended;
    return job;
}

/* One sum in double, and the sum of its terms' sizes. */
static double exact_sum(const struct product *product, uint32_t row, uint32_t output, double *size)
{
    const float *from = product->from + (size_t)row * product->inputs;
    const float *weight = product->weight + (size_t)output * product->inputs;
    double sum = 0;
    *size = 0;
    for (uint32_t i = 0; i < product->inputs; i++) {
        sum += (double)from[i] * weight[i];
        *size += fabs((double)from[i] * weight[i]);
    }
    return sum;
}

/* A product of parts that is left out would cost 2^-18 of each term, which shows in the mean over all sums. */
static void sums_are_as_exact_as_f32(void **state)
{
    (void)state;
    const struct cpu_tiles *tiles = tiles_here();
    for (size_t s = 0; s < SIZES; s++) {
        struct product product = product_open(tiles, sizes[s][0], sizes[s][1], sizes[s][2]);
        struct product_job job = job_of(&product, END_NOTHING);
        tiles->product(&job);
        double squares = 0, sizes_squared = 0;
        for (uint32_t row = 0; row < product.rows; row++)
            for (uint32_t output = 0; output < product.outputs; output++) {
                double size, sum = exact_sum(&product, row, output, &size);
                double error = product.sums[(size_t)row * product.outputs + output] - sum;
                assert_true(fabs(error) <= 1e-6 * size);
                squares += error * error;
                sizes_squared += size * size;
            }
        assert_true(sqrt(squares / sizes_squared) <= 1e-7);
        product_close(&product);
    }
}

static float bf16(uint16_t bits)
{
    union {
        uint32_t bits;
        float value;
    } wide = {.bits = (uint32_t)bits << 16};
    return wide.value;
}

/* Where a number stands in a plane: two vectors of 16 in turn. */
static size_t in_turn(uint32_t column)
{
    return column / 32 * 32 + column % 16 * 2 + column % 32 / 16;
}

/* The number at a place of tiled parts. */
static float tiled(const struct product *product, uint32_t row, uint32_t output)
{
    size_t strip = (size_t)(row - row % 32) * product->outputs;
    const uint16_t *at =
        product->ended + strip + (size_t)(output - output % 32) * 32 + row % 32 * 32 + in_turn(output % 32);
    return bf16(at[0]) + (bf16(at[product->to_plane]) + bf16(at[2 * product->to_plane]));
}

static void bias_and_activation_follow_in_f32(void **state)
{
    (void)state;
    const struct cpu_tiles *tiles = tiles_here();
    for (size_t s = 0; s < SIZES; s++) {
        struct product product = product_open(tiles, sizes[s][0], sizes[s][1], sizes[s][2]);
        for (size_t i = 0; i < (size_t)product.outputs * product.inputs; i++)
            product.weight[i] /= 16;
        tiles->pack(product.outputs, product.inputs, product.weight, product.packed);
        struct product_job job = job_of(&product, END_BIAS_ACTIVATION);
        tiles->product(&job);
        for (uint32_t row = 0; row < product.rows; row++)
            for (uint32_t output = 0; output < product.outputs; output++) {
                double size, x = exact_sum(&product, row, output, &size) + product.bias[output];
                double gelu = x * 0.5 * (1 + erf(x * sqrt(0.5)));
                assert_true(fabs(tiled(&product, row, output) - gelu) <= 1e-6 * (size + 1));
            }
        product_close(&product);
    }
}

static void parts_add_up_to_the_number(void **state)
{
    (void)state;
    enum { ROWS = 3, COLUMNS = 64, STRIDE = 80, PLANE = ROWS * STRIDE + PAD, ROUNDS = 500 };
    const struct cpu_tiles *tiles = tiles_here();
    float from[ROWS * STRIDE];
    uint16_t to[3 * PLANE];
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < ROWS * STRIDE; i++)
            from[i] = ldexpf(next_random(), (int)(round % 200) - 90);
        from[round % COLUMNS] = round % 2 == 0 ? 0.0f : 0x1.01p+3f; /* half-way between two bf16 numbers */
        tiles->split(ROWS, COLUMNS, STRIDE, from, to, PLANE);
        for (uint32_t row = 0; row < ROWS; row++)
            for (uint32_t column = 0; column < COLUMNS; column++) {
                const uint16_t *at = to + (size_t)row * STRIDE + in_turn(column);
                double sum = (double)bf16(at[0]) + bf16(at[PLANE]) + bf16(at[2 * PLANE]);
                assert_true(sum == from[row * STRIDE + column]);
            }
    }
}

/* Alone, beside others, in a range of outputs: the same bits. */
static void bits_depend_on_the_row_alone(void **state)
{
    (void)state;
    const struct cpu_tiles *tiles = tiles_here();
    for (size_t s = 0; s < SIZES; s++) {
        struct product product = product_open(tiles, sizes[s][0], sizes[s][1], sizes[s][2]);
        struct product_job job = job_of(&product, END_NOTHING);
        size_t bytes = (size_t)product.rows * product.outputs * sizeof(float);
        tiles->product(&job);
        float *whole = product.sums;
        product.sums = room_for(bytes + SLACK * product.outputs * sizeof(float));
        job = job_of(&product, END_NOTHING);
        for (uint32_t row = 0; row < product.rows; row += 32)
            for (uint32_t output = 0; output < product.outputs; output += 32) {
                job.rows = product.rows - row < 7 ? product.rows - row : 7;
                job.from = product.parts + (size_t)row * product.inputs;
                job.to.f32 = product.sums + (size_t)row * product.outputs;
                job.first_output = output;
                job.last_output = output + 32;
                tiles->product(&job);
                for (uint32_t r = row; r < row + job.rows; r++)
                    assert_memory_equal(product.sums + (size_t)r * product.outputs + output,
                                        whole + (size_t)r * product.outputs + output, 32 * sizeof(float));
            }
        free(whole);
        product_close(&product);
    }
}

static void what_is_not_finite_stays_so_in_its_row(void **state)
{
    (void)state;
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    const struct cpu_tiles *tiles = tiles_here();
    for (unsigned i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        struct product product = product_open(tiles, 40, 64, 384);
        product.from[33 * 384 + 200] = odd[i];
        tiles->split(product.rows, product.inputs, product.inputs, product.from, product.parts, product.from_plane);
        struct product_job job = job_of(&product, END_NOTHING);
        tiles->product(&job);
        for (uint32_t row = 0; row < product.rows; row++)
            for (uint32_t output = 0; output < product.outputs; output++)
                assert_true(isfinite(product.sums[(size_t)row * product.outputs + output]) == (row != 33));
        product_close(&product);
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(sums_are_as_exact_as_f32),
    cmocka_unit_test(bias_and_activation_follow_in_f32),
    cmocka_unit_test(parts_add_up_to_the_number),
    cmocka_unit_test(bits_depend_on_the_row_alone),
    cmocka_unit_test(what_is_not_finite_stays_so_in_its_row),
};

TEST_MAIN(cases)
