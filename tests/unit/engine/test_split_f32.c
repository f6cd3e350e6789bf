/* Products in f32 by digits on tile registers, the processor's or emulated ones, against plain loops in double and in
 * whole numbers: no precision is lost that should be kept, and a row's bits are the same at any place and beside any
 * other rows. */
#include "harness.h"

#include <math.h>
#include <stdlib.h>

#include "engine/cpu/isa.h"
#include "random_floats.h"

/* Rows, outputs, inputs: whole and broken strips and steps, several chunks of outputs. */
static const uint32_t sizes[][3] = {{1, 32, 32},    {16, 64, 96},    {17, 96, 384},   {32, 416, 384},
                                    {33, 32, 1536}, {64, 160, 1568}, {70, 1536, 384}, {31, 64, 4096}};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static const struct gemm_split_f32 *digits_here(void)
{
    for (const struct instruction_set *set = instruction_sets; set->name != NULL; set++) {
        if (set->split_f32 != NULL && set->runs_here()) { return set->split_f32; }
    }
    return NULL;
}

bool tests_can_run(void)
{
    return digits_here() != NULL;
}

static struct scaled_rows rows_open(uint32_t rows, uint32_t inputs)
{
    size_t bytes = split_f32_bytes(rows, inputs);
    struct scaled_rows digits = {zeros(bytes), zeros(rows * sizeof(float))};
    memset(digits.value, 0x55, bytes); /* what was there before must not matter */
    return digits;
}

static void rows_close(struct scaled_rows digits)
{
    free(digits.value);
    free(digits.scale);
}

struct product {
    uint32_t rows, outputs, inputs;
    float *from, *weight, *bias, *to;
    struct scaled_rows from_digits;
    struct gemm_weight weight_digits;
};

static void split_again(const struct gemm_split_f32 *digits, const struct product *product)
{
    digits->split(0, product->rows, product->inputs, product->from, product->from_digits);
    digits->pack(product->outputs, product->inputs, product->weight, product->weight_digits.scaled);
}

static struct product product_open(const struct gemm_split_f32 *digits, uint32_t rows, uint32_t outputs,
                                   uint32_t inputs)
{
    struct product product = {rows, outputs, inputs};
    product.from = random_floats((size_t)rows * inputs);
    product.weight = random_floats((size_t)outputs * inputs);
    product.bias = random_floats(outputs);
    product.to = zeros((size_t)rows * outputs * sizeof(float));
    product.from_digits = rows_open(rows, inputs);
    product.weight_digits = (struct gemm_weight){outputs, inputs, .scaled = rows_open(outputs, inputs)};
    split_again(digits, &product);
    return product;
}

static void product_close(struct product *product)
{
    free(product->from);
    free(product->weight);
    free(product->bias);
    free(product->to);
    rows_close(product->from_digits);
    rows_close(product->weight_digits.scaled);
}

static struct gemm_job job_of(const struct product *product, enum gemm_end end)
{
    return (struct gemm_job){
        .rows = product->rows,
        .last_output = product->outputs,
        .from = product->from_digits,
        .weight = &product->weight_digits,
        .end = end,
        .activation = ACTIVATION_GELU_ERF,
        .bias = product->bias,
        .to.f32 = product->to,
    };
}

static double exact_sum(const struct product *product, uint32_t row, uint32_t output)
{
    const float *from = product->from + (size_t)row * product->inputs;
    const float *weight = product->weight + (size_t)output * product->inputs;
    double sum = 0;
    for (uint32_t i = 0; i < product->inputs; i++) { sum += (double)from[i] * weight[i]; }
    return sum;
}

/* As a vector unit of 16 sums it up. */
static double f32_sum(const struct product *product, uint32_t row, uint32_t output)
{
    const float *from = product->from + (size_t)row * product->inputs;
    const float *weight = product->weight + (size_t)output * product->inputs;
    float sums[16] = {0}, sum = 0;
    for (uint32_t i = 0; i < product->inputs; i++) { sums[i % 16] = fmaf(from[i], weight[i], sums[i % 16]); }
    for (unsigned i = 0; i < 16; i++) { sum += sums[i]; }
    return sum;
}

/* Sums up the squares of how far the digits, and f32 sums, are off, with each row by its own size. */
static void compare_with_f32(const struct gemm_split_f32 *digits, const struct product *product, double *ours,
                             double *theirs)
{
    struct gemm_job job = job_of(product, GEMM_PLAIN);
    digits->run(&job);
    *ours = *theirs = 0;
    for (uint32_t row = 0; row < product->rows; row++) {
        for (uint32_t output = 0; output < product->outputs; output++) {
            double sum = exact_sum(product, row, output);
            double off = (product->to[(size_t)row * product->outputs + output] - sum) / product->from_digits.scale[row];
            *ours += off * off;
            off = (f32_sum(product, row, output) - sum) / product->from_digits.scale[row];
            *theirs += off * off;
        }
    }
}

TEST(sums_are_nearer_than_those_of_f32)
{
    const struct gemm_split_f32 *digits = digits_here();
    for (size_t s = 0; s < SIZES; s++) {
        struct product product = product_open(digits, sizes[s][0], sizes[s][1], sizes[s][2]);
        double ours, theirs;
        compare_with_f32(digits, &product, &ours, &theirs);
        assert_true(ours < theirs);
        product_close(&product);
    }
}

/* A few numbers of each row, of both operands, are a hundred times the others; the rows are of all magnitudes. */
TEST(numbers_that_stand_out_cost_nothing)
{
    const struct gemm_split_f32 *digits = digits_here();
    struct product product = product_open(digits, 40, 64, 384);
    for (uint32_t row = 0; row < product.rows; row++) {
        for (uint32_t i = 0; i < product.inputs; i++) {
            product.from[row * product.inputs + i] *= ldexpf(i % 100 == 7 ? 100 : 1, (int)row % 20 - 10);
        }
    }
    for (uint32_t i = 0; i < product.outputs * product.inputs; i += 97) { product.weight[i] *= 100; }
    split_again(digits, &product);
    double ours, theirs;
    compare_with_f32(digits, &product, &ours, &theirs);
    assert_true(ours < theirs);
    product_close(&product);
}

/* Whole numbers whose highest digits are mostly zero, so that each product of lower ones shows: if one of the four
 * smallest that are summed were missing, the error would be 2^8 times that of the products that are left out. */
TEST(no_product_of_digits_is_forgotten)
{
    enum { INPUTS = 384, LOW = 1 << 23 };
    const struct gemm_split_f32 *digits = digits_here();
    for (unsigned zeros = 0; zeros < 2; zeros++) {
        struct product product = product_open(digits, 16, 64, INPUTS);
        for (uint32_t i = 0; i < 16 * INPUTS; i++) { /* rows with one large number, where the weights have zero */
            product.from[i] = i % INPUTS == 0 ? 0x1p30f : rintf(product.from[i] * (zeros == 0 ? LOW : 1 << 15));
        }
        for (uint32_t i = 0; i < 64 * INPUTS; i++) {
            product.weight[i] = i % INPUTS == 0   ? 0.0f
                                : i % INPUTS == 1 ? 0x1p30f
                                                  : rintf(product.weight[i] * (zeros == 0 ? LOW : 1 << 29));
        }
        for (uint32_t row = 0; row < 16; row++) { product.from[row * INPUTS + 1] = 0; }
        split_again(digits, &product);
        struct gemm_job job = job_of(&product, GEMM_PLAIN);
        digits->run(&job);
        double squares = 0;
        for (uint32_t row = 0; row < 16; row++) {
            for (uint32_t output = 0; output < 64; output++) {
                double off = product.to[row * 64 + output] - exact_sum(&product, row, output);
                squares += off * off;
            }
        }
        /* The products that are left out: three of digits, each of weight 2^16 and about 74 * 74 at random. */
        assert_true(sqrt(squares / (16 * 64)) < 4 * sqrt(3.0 * INPUTS) * 74 * 74 * 0x1p16);
        product_close(&product);
    }
}

/* The number that the digits represent, from their place in a strip. */
static double number_of(struct scaled_rows digits, uint32_t inputs, uint32_t row, uint32_t input)
{
    size_t steps = (inputs + SPLIT_STEP - 1) / SPLIT_STEP, tile = SPLIT_ROWS * SPLIT_STEP;
    const int8_t *step = digits.value + (row / SPLIT_ROWS * steps + input / SPLIT_STEP) * SPLIT_DIGITS * tile;
    uint32_t within = input % SPLIT_STEP;
    double number = 0, place = digits.scale[row];
    for (unsigned digit = 0; digit < SPLIT_DIGITS; digit++, place /= 256) {
        number += step[digit * tile + row % SPLIT_ROWS * SPLIT_STEP + within % 16 * 4 + within / 16] * place;
    }
    return number;
}

TEST(digits_add_up_to_the_number)
{
    enum { ROWS = 19, INPUTS = 96, ROUNDS = 190 };
    const struct gemm_split_f32 *digits = digits_here();
    struct scaled_rows split = rows_open(ROWS, INPUTS);
    float from[ROWS * INPUTS];
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < ROWS * INPUTS; i++) { from[i] = ldexpf(next_random(), (int)round - 70); }
        from[round % INPUTS] = ldexpf(round % 2 == 0 ? -0x1.fffffep0f : 0x1.fdfdfcp0f, (int)round - 70); /* limits */
        digits->split(0, 7, INPUTS, from, split);
        digits->split(7, ROWS, INPUTS, from, split);
        for (uint32_t row = 0; row < ROWS; row++) {
            float largest = 0;
            for (uint32_t i = 0; i < INPUTS; i++) { largest = fmaxf(largest, fabsf(from[row * INPUTS + i])); }
            for (uint32_t i = 0; i < 2 * SPLIT_STEP; i++) {
                float number = i < INPUTS ? from[row * INPUTS + i] : 0;
                double off = fabs(number_of(split, INPUTS, row, i) - number);
                assert_true(off <= largest * 0x1p-30);
                assert_true(off == 0 || fabsf(number) < largest * 0x1p-6f);
            }
        }
    }
    rows_close(split);
}

TEST(bias_and_activation_follow)
{
    const struct gemm_split_f32 *digits = digits_here();
    for (size_t s = 0; s < SIZES; s++) {
        struct product product = product_open(digits, sizes[s][0], sizes[s][1], sizes[s][2]);
        for (size_t i = 0; i < (size_t)product.outputs * product.inputs; i++) { product.weight[i] /= 16; }
        split_again(digits, &product);
        for (enum gemm_end end = GEMM_BIAS; end <= GEMM_ACTIVATION; end++) {
            struct gemm_job job = job_of(&product, end);
            digits->run(&job);
            for (uint32_t row = 0; row < product.rows; row++) {
                for (uint32_t output = 0; output < product.outputs; output++) {
                    double x = exact_sum(&product, row, output) + product.bias[output];
                    double gelu = x * 0.5 * (1 + erf(x * sqrt(0.5)));
                    double off = product.to[(size_t)row * product.outputs + output] - (end == GEMM_BIAS ? x : gelu);
                    assert_true(fabs(off) <= 1e-6 * (fabs(x) + 1));
                }
            }
        }
        product_close(&product);
    }
}

/* A row has the same bits alone, beside others, in another place of a strip, and in a range of outputs. */
TEST(bits_depend_on_the_row_alone)
{
    const struct gemm_split_f32 *digits = digits_here();
    for (size_t s = 0; s < SIZES; s++) {
        struct product product = product_open(digits, sizes[s][0], sizes[s][1], sizes[s][2]);
        struct gemm_job job = job_of(&product, GEMM_PLAIN);
        digits->run(&job);
        float *few = zeros(5 * (size_t)product.outputs * sizeof(float));
        struct scaled_rows split = rows_open(5, product.inputs);
        for (uint32_t row = 0; row < product.rows; row += 3) {
            job.rows = product.rows - row < 5 ? product.rows - row : 5;
            digits->split(0, job.rows, product.inputs, product.from + (size_t)row * product.inputs, split);
            job.from = split;
            job.to.f32 = few;
            job.first_output = row % 2 * 16;
            job.last_output = job.first_output + 16;
            digits->run(&job);
            for (uint32_t r = 0; r < job.rows; r++) {
                assert_memory_equal(few + (size_t)r * product.outputs + job.first_output,
                                    product.to + (size_t)(row + r) * product.outputs + job.first_output,
                                    16 * sizeof(float));
            }
        }
        rows_close(split);
        free(few);
        product_close(&product);
    }
}

TEST(nothing_is_written_beside)
{
    enum { ROWS = 21, OUTPUTS = 96 };
    const struct gemm_split_f32 *digits = digits_here();
    struct product product = product_open(digits, ROWS, OUTPUTS, 64);
    struct gemm_job job = job_of(&product, GEMM_BIAS);
    job.to.f32 = zeros((ROWS + 16) * OUTPUTS * sizeof(float));
    job.first_output = 32;
    job.last_output = 64;
    digits->run(&job);
    for (uint32_t i = 0; i < (ROWS + 16) * OUTPUTS; i++) {
        assert_true((job.to.f32[i] != 0) == (i < ROWS * OUTPUTS && i % OUTPUTS / 32 == 1));
    }
    free(job.to.f32);
    product_close(&product);
}

TEST(what_is_not_finite_stays_so_in_its_row)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    const struct gemm_split_f32 *digits = digits_here();
    for (unsigned i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        struct product product = product_open(digits, 40, 64, 384);
        product.from[33 * 384 + 200] = odd[i];
        product.weight[5 * 384 + 17] = odd[i];
        split_again(digits, &product);
        struct gemm_job job = job_of(&product, GEMM_PLAIN);
        digits->run(&job);
        for (uint32_t row = 0; row < product.rows; row++) {
            for (uint32_t output = 0; output < product.outputs; output++) {
                assert_true(isfinite(product.to[row * product.outputs + output]) == (row != 33 && output != 5));
            }
        }
        product_close(&product);
    }
}

/* Rows of zeros, of numbers next to nothing, and of the largest there are. */
TEST(rows_of_any_size_are_right)
{
    static const float factors[] = {0.0f, 0x1p-149f, 0x1p-126f, 0x1p-98f, 0x1p-60f, 0x1p60f, 0x1p110f};
    const struct gemm_split_f32 *digits = digits_here();
    for (unsigned i = 0; i < sizeof factors / sizeof factors[0]; i++) {
        struct product product = product_open(digits, 16, 32, 64);
        for (uint32_t j = 0; j < 16 * 64; j++) { product.from[j] *= factors[i]; }
        split_again(digits, &product);
        struct gemm_job job = job_of(&product, GEMM_PLAIN);
        digits->run(&job);
        for (uint32_t row = 0; row < 16; row++) {
            for (uint32_t output = 0; output < 32; output++) {
                double off = product.to[row * 32 + output] - exact_sum(&product, row, output);
                assert_true(fabs(off) <= 1e-6 * 64 * factors[i] + 0x1p-120);
            }
        }
        product_close(&product);
    }
}
