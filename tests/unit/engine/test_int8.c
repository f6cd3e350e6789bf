/* The int8 kernels: rounding at its edges, and the same whole numbers as plain loops on every instruction set of this
 * machine. */
#include "harness.h"

#include <math.h>
#include <stdlib.h>

#include "engine/cpu/isa.h"
#include "random_floats.h"

enum { SLACK = INT8_BLOCK }; /* rows after the last */

/* Sizes that are not whole panels, steps, vectors or blocks, and some that are. */
static const uint32_t sizes[][3] = {/* rows, outputs, inputs */
                                    {1, 1, 1},      {2, 33, 63},   {15, 36, 70},  {16, 64, 64},
                                    {17, 100, 130}, {31, 96, 192}, {33, 70, 300}, {65, 160, 384},
                                    {70, 40, 1600}, {3, 32, 3100}, {40, 64, 1600}};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static size_t row_bytes(uint32_t width)
{
    return (size_t)(width + INT8_STEP - 1) / INT8_STEP * INT8_STEP;
}

static struct scaled_rows rows_open(uint32_t rows, uint32_t width)
{
    size_t room = rows + SLACK;
    return (struct scaled_rows){zeros(room * row_bytes(width)), zeros(room * sizeof(float)),
                                zeros(room * sizeof(float)), zeros(room * INT8_FAR * sizeof(struct int8_far))};
}

static void rows_close(struct scaled_rows *rows)
{
    free(rows->value);
    free(rows->scale);
    free(rows->offset);
    free(rows->far);
}

/* A number of a row in steps from the middle, its second byte included. */
static int32_t steps_of(const struct scaled_rows *rows, uint32_t row, uint32_t width, uint32_t input)
{
    int32_t steps = rows->value[row * row_bytes(width) + input];
    for (uint32_t k = 0; k < INT8_FAR; k++) {
        struct int8_far far = rows->far[row * INT8_FAR + k];
        if (far.input == input) { steps += INT8_HIGH * far.high; }
    }
    return steps;
}

static struct gemm_weight pack_for(const struct instruction_set *set, uint32_t outputs, uint32_t inputs,
                                   const float *weight, bool one_sided)
{
    struct gemm_weight packed;
    gemm_pack(set, GEMM_INT8, outputs, inputs, weight, one_sided, zeros(gemm_weight_bytes(GEMM_INT8, outputs, inputs)),
              &packed);
    return packed;
}

/* Packs for plain C: the bytes are the weights. */
static struct gemm_weight pack(uint32_t outputs, uint32_t inputs, const float *weight, bool one_sided)
{
    const struct instruction_set *set = instruction_sets;
    while (set->int8 != &int8_generic) { set++; }
    return pack_for(set, outputs, inputs, weight, one_sided);
}

static const struct instruction_set *set_now; /* whose kernels are tried */

/* The int8 kernels of the next instruction set that runs here; NULL after the last. */
static const struct gemm_int8 *next_kernels(unsigned *at)
{
    while (instruction_sets[*at].name != NULL && !instruction_sets[*at].runs_here()) { ++*at; }
    set_now = &instruction_sets[*at];
    return set_now->name == NULL ? NULL : instruction_sets[(*at)++].int8;
}

/* The ends of the range are 253 apart, so that a step is 1; four numbers lie far beyond them. */
TEST(ties_go_to_the_even_number)
{
    float from[] = {126.5f, 0.5f,  1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 125.5f, -125.5f, -126.5f, 0.49f,
                    1000,   -0.0f, 3,    -3,   -2000, 0.51f, 1,     -1,     3000.5f, 129.5f};
    const int32_t expected[] = {126,  0, 2, 2,  0,     -2, -2, 126, -126, -126, 0,
                                1000, 0, 3, -3, -2000, 1,  1,  -1,  3000, 130};
    enum { WIDTH = sizeof from / sizeof from[0] };
    unsigned at = 0;
    for (const struct gemm_int8 *kernels = next_kernels(&at); kernels != NULL; kernels = next_kernels(&at)) {
        struct scaled_rows rows = rows_open(1, WIDTH);
        kernels->quantise(1, WIDTH, (struct activations){.f32 = from}, rows);
        assert_true(rows.scale[0] == 1.0f && rows.offset[0] == 0);
        for (uint32_t i = 0; i < WIDTH; i++) { assert_int_equal(steps_of(&rows, 0, WIDTH, i), expected[i]); }
        for (size_t i = WIDTH; i < row_bytes(WIDTH); i++) { assert_int_equal(rows.value[i], 0); }
        rows_close(&rows);
    }
}

enum { ODD_ROWS = 8, ODD_WIDTH = 37 };

/* Rows with one special case each, between plain rows. */
static void fill_odd_rows(float from[ODD_ROWS][ODD_WIDTH])
{
    for (uint32_t r = 0; r < ODD_ROWS; r++) {
        for (uint32_t i = 0; i < ODD_WIDTH; i++) {
            from[r][i] = r == 1 ? 0.0f : r == 4 ? 1e-31f : r == 5 ? 1e-3f : next_random();
        }
    }
    from[2][36] = NAN;
    from[3][5] = -INFINITY;
    from[5][20] = -1e30f;
    from[6][0] = -NAN;
}

/* Returns whether two rows became the same. */
static bool same_row(struct scaled_rows a, uint32_t row_a, struct scaled_rows b, uint32_t row_b, uint32_t width)
{
    size_t stride = row_bytes(width), far = INT8_FAR * sizeof *a.far;
    return a.scale[row_a] == b.scale[row_b] && a.offset[row_a] == b.offset[row_b] &&
           memcmp(a.far + (size_t)row_a * INT8_FAR, b.far + (size_t)row_b * INT8_FAR, far) == 0 &&
           memcmp(a.value + row_a * stride, b.value + row_b * stride, width) == 0;
}

TEST(rows_of_every_kind_keep_to_themselves)
{
    float from[ODD_ROWS][ODD_WIDTH];
    unsigned at = 0;
    random_state = 3;
    fill_odd_rows(from);
    for (const struct gemm_int8 *kernels = next_kernels(&at); kernels != NULL; kernels = next_kernels(&at)) {
        struct scaled_rows rows = rows_open(ODD_ROWS, ODD_WIDTH), alone = rows_open(1, ODD_WIDTH);
        kernels->quantise(ODD_ROWS, ODD_WIDTH, (struct activations){.f32 = from[0]}, rows);
        for (uint32_t i = 0; i < ODD_WIDTH; i++) {
            assert_int_equal(steps_of(&rows, 1, ODD_WIDTH, i), 0);
            assert_int_equal(steps_of(&rows, 4, ODD_WIDTH, i), 0);
            assert_int_equal(steps_of(&rows, 5, ODD_WIDTH, i), i == 20 ? -INT8_FAR_MOST : 0);
        }
        assert_true(rows.scale[1] == 0 && rows.scale[4] == 0 && rows.offset[1] == 0 && rows.offset[4] == 0);
        assert_true(isnan(rows.scale[2]) && isnan(rows.scale[3]) && isnan(rows.scale[6]));
        assert_true(fabsf(rows.scale[5] / (1e30f / INT8_FAR_MOST) - 1) < 1e-6f);
        for (uint32_t r = 0; r < ODD_ROWS; r += 7) {
            kernels->quantise(1, ODD_WIDTH, (struct activations){.f32 = from[r]}, alone);
            assert_true(isfinite(alone.scale[0]) && same_row(rows, r, alone, 0, ODD_WIDTH));
        }
        rows_close(&rows);
        rows_close(&alone);
    }
}

static uint16_t upper_half(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static float from_half(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Rows of random numbers: every third with all signs, then none below and none above zero. A few numbers are far
 * larger.
 */
static float *random_rows(uint32_t rows, uint32_t width)
{
    float *from = random_floats((size_t)rows * width);
    for (size_t i = 0; i < (size_t)rows * width; i++) {
        if (i / width % 3 != 0) { from[i] = i / width % 3 == 1 ? fabsf(from[i]) : -fabsf(from[i]); }
    }
    for (uint32_t row = 0; row < rows; row++) {
        for (uint32_t k = 0; k < row % 6; k++) {
            from[(size_t)row * width + (row * 31 + k * 67) % width] *= 9 + 40 * k;
        }
    }
    return from;
}

enum { LIKE_ROWS = 8, LIKE_WIDTH = 150 };

/* Rows of numbers that bf16 can represent, in f32 and in bf16. */
struct likes {
    uint32_t width;
    float *plain;
    uint16_t half[LIKE_ROWS * LIKE_WIDTH];
};

static struct likes random_likes(uint32_t width)
{
    struct likes likes = {.width = width, .plain = random_rows(LIKE_ROWS, width)};
    for (uint32_t i = 0; i < LIKE_ROWS * width; i++) {
        likes.half[i] = upper_half(likes.plain[i]);
        uint32_t bits = (uint32_t)likes.half[i] << 16;
        memcpy(&likes.plain[i], &bits, sizeof bits);
    }
    return likes;
}

static int by_magnitude(const void *a, const void *b)
{
    float x = fabsf(*(const float *)a), y = fabsf(*(const float *)b);
    return (x < y) - (x > y);
}

/* The steps that a row may have: from its range without its largest numbers, or what these need. If there are more of
 * the size of the smallest of them, any may be taken, and their signs may differ. */
static void expect_step(const float *row, uint32_t width, float step)
{
    float sorted[LIKE_WIDTH], high[2] = {0, 0}, low[2] = {0, 0};
    memcpy(sorted, row, width * sizeof *row);
    qsort(sorted, width, sizeof *sorted, by_magnitude);
    float edge = width > INT8_FAR ? fabsf(sorted[INT8_FAR]) : 0;
    bool tied = width > INT8_FAR && fabsf(sorted[INT8_FAR - 1]) == edge;
    for (uint32_t i = 0; i < width && width > INT8_FAR; i++) {
        for (int most = 0; most < 2; most++) {
            if (most || !tied ? fabsf(sorted[i]) <= edge : fabsf(sorted[i]) < edge) {
                high[most] = fmaxf(high[most], sorted[i]);
                low[most] = fminf(low[most], sorted[i]);
            }
        }
    }
    float needed = fabsf(sorted[0]) / INT8_FAR_MOST;
    assert_true(step >= 0.99999f * fmaxf((high[0] - low[0]) / INT8_RANGE, needed));
    assert_true(step <= 1.00001f * fmaxf((high[1] - low[1]) / INT8_RANGE, needed));
}

/* Asserts that all are within half a step, and the same on every instruction set and in either form. */
static void expect_alike(struct likes *likes)
{
    uint32_t width = likes->width;
    struct scaled_rows expected = rows_open(LIKE_ROWS, width), rows = rows_open(LIKE_ROWS, width);
    size_t stride = row_bytes(width);
    unsigned at = 0;
    int8_generic.quantise(LIKE_ROWS, width, (struct activations){.f32 = likes->plain}, expected);
    for (uint32_t i = 0; i < LIKE_ROWS * width; i++) {
        uint32_t row = i / width;
        float scale = expected.scale[row], steps = (float)steps_of(&expected, row, width, i % width);
        assert_true(abs(expected.value[row * stride + i % width]) <= INT8_LARGEST);
        assert_true(fabsf(steps * scale + expected.offset[row] - likes->plain[i]) <= 0.51f * scale);
        expect_step(likes->plain + (size_t)row * width, width, scale);
    }
    for (const struct gemm_int8 *kernels = next_kernels(&at); kernels != NULL; kernels = next_kernels(&at)) {
        for (int halves = 0; halves < 2; halves++) {
            struct activations source = {.f32 = halves ? NULL : likes->plain, .bf16 = halves ? likes->half : NULL};
            memset(rows.value, 0, LIKE_ROWS * stride);
            kernels->quantise(LIKE_ROWS, width, source, rows);
            for (uint32_t r = 0; r < LIKE_ROWS; r++) { assert_true(same_row(rows, r, expected, r, width)); }
        }
    }
    rows_close(&expected);
    rows_close(&rows);
}

TEST(all_kernels_round_alike)
{
    random_state = 4;
    for (uint32_t width = 1; width < LIKE_WIDTH; width += width < 70 ? 1 : 13) {
        struct likes likes = random_likes(width);
        expect_alike(&likes);
        free(likes.plain);
    }
}

TEST(a_weight_has_a_scale_for_each_output)
{
    float weight[4][3] = {{0.5f, -1.0f, 0.25f}, {0, 0, 0}, {1, NAN, 1}, {-1e-40f, 1e-40f, 0}};
    struct gemm_weight packed = pack(4, 3, weight[0], false);
    const int8_t expected[4][4] = {{64, -127, 32, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}};
    assert_memory_equal(packed.scaled.value, expected, sizeof expected);
    assert_true(packed.scaled.scale[0] == 1.0f / 127 && packed.scaled.scale[1] == 0 && isnan(packed.scaled.scale[2]));
    assert_true(packed.total[0] == -31 * packed.scaled.scale[0] && packed.total[1] == 0 && packed.scaled.scale[3] == 0);
    for (uint32_t o = 4; o < INT8_PANEL; o++) { assert_true(packed.scaled.scale[o] == 0 && packed.total[o] == 0); }
    free(packed.scaled.value);
}

/* The packed form of a weight. */
static int8_t packed_value(const struct gemm_weight *weight, uint32_t output, uint32_t input)
{
    size_t tile = ((size_t)(output / 32) * weight->steps + input / 64) * 2 + output % 32 / 16;
    return weight->scaled.value[tile * 1024 + input % 64 / 4 * 64 + output % 16 * 4 + input % 4];
}

TEST(rounding_errors_of_an_output_cancel)
{
    enum { OUTPUTS = 40, INPUTS = 333 };
    random_state = 8;
    float *from = random_floats((size_t)OUTPUTS * INPUTS);
    for (uint32_t i = 0; i < INPUTS; i++) {
        from[7 * INPUTS + i] = i == 100 ? -1.0f : 0.3f / 127; /* would all be rounded down */
        from[9 * INPUTS + i] = i == 0 ? 1.0f : 126.7f / 127;  /* would all be the largest */
        from[11 * INPUTS + i] = i == 0 ? 1.0f : 0.005f / 127; /* the largest goes no further */
    }
    struct gemm_weight packed = pack(OUTPUTS, INPUTS, from, true);
    for (uint32_t o = 0; o < OUTPUTS; o++) {
        double off = 0, total = 0, scale = (double)packed.scaled.scale[o];
        for (uint32_t i = 0; i < INPUTS; i++) {
            int8_t value = packed_value(&packed, o, i);
            double error = value - (double)from[o * INPUTS + i] / scale;
            assert_true(abs(value) <= INT8_LARGEST && fabs(error) < 1);
            off += error;
            total += value * scale;
        }
        for (uint32_t i = INPUTS; i < packed.steps * INT8_STEP; i++) { assert_true(packed_value(&packed, o, i) == 0); }
        assert_true(fabs(off) <= 0.501);
        assert_true(fabs((double)packed.total[o] - total) <= 1e-6 * INPUTS);
    }
    free(packed.scaled.value);
    free(from);
}

/* One product of a size: its input, its weight, and its sums by plain loops. */
struct scene {
    uint32_t rows, outputs, inputs, columns;
    struct gemm_weight weight;
    struct scaled_rows from;
    float *plain_weight, *bias;
    int32_t *expected; /* [rows, columns] */
};

static struct scene scene_open(const uint32_t size[3], bool extreme)
{
    struct scene scene = {.rows = size[0], .outputs = size[1], .inputs = size[2]};
    float *weight = random_floats((size_t)scene.outputs * scene.inputs);
    float *from = random_rows(scene.rows, scene.inputs);
    for (size_t i = 0; extreme && i < (size_t)scene.outputs * scene.inputs; i++) {
        weight[i] = i / scene.inputs % 2 == 0 ? 1.0f : -1.0f;
    }
    for (size_t i = 0; extreme && i < (size_t)scene.rows * scene.inputs; i++) {
        from[i] = (i / scene.inputs % 3 == 0 ? 2.0f : -2.0f) * (scene.inputs > 60 && i % scene.inputs < 4 ? 60 : 1);
    }
    scene.weight = pack(scene.outputs, scene.inputs, weight, true);
    scene.columns = scene.weight.panels * INT8_PANEL;
    scene.from = rows_open(scene.rows, scene.inputs);
    scene.bias = random_floats(scene.outputs);
    scene.expected = zeros((size_t)scene.rows * scene.columns * sizeof(int32_t));
    int8_generic.quantise(scene.rows, scene.inputs, (struct activations){.f32 = from}, scene.from);
    for (uint32_t o = 0; o < scene.outputs; o++) {
        for (uint32_t i = 0; i < scene.inputs; i++) {
            for (uint32_t r = 0; r < scene.rows; r++) {
                scene.expected[r * scene.columns + o] +=
                    steps_of(&scene.from, r, scene.inputs, i) * packed_value(&scene.weight, o, i);
            }
        }
    }
    scene.plain_weight = weight;
    free(from);
    return scene;
}

/* Packs the weight for the kernels that are tried next. */
static void scene_pack(struct scene *scene)
{
    free(scene->weight.scaled.value);
    scene->weight = pack_for(set_now, scene->outputs, scene->inputs, scene->plain_weight, true);
}

static void scene_close(struct scene *scene)
{
    free(scene->weight.scaled.value);
    rows_close(&scene->from);
    free(scene->plain_weight);
    free(scene->bias);
    free(scene->expected);
}

static struct gemm_job job_of(const struct scene *scene, enum gemm_end end)
{
    return (struct gemm_job){.rows = scene->rows,
                             .weight = &scene->weight,
                             .from = scene->from,
                             .end = end,
                             .bias = scene->bias,
                             .last_output = scene->outputs};
}

/* With scales of 1 and without offsets a result is the sum. */
static void expect_sums(const struct gemm_int8 *kernels, const struct scene *scene)
{
    struct gemm_job job = job_of(scene, GEMM_PLAIN);
    float *to = zeros((size_t)(scene->rows + SLACK) * scene->outputs * sizeof *to);
    float *ones = zeros((scene->rows + scene->columns) * sizeof *ones), *none = zeros((size_t)scene->columns * 4);
    struct gemm_weight weight = scene->weight;
    for (uint32_t i = 0; i < scene->rows + scene->columns; i++) { ones[i] = 1; }
    job.from.scale = weight.scaled.scale = ones;
    job.from.offset = zeros(scene->rows * sizeof(float));
    weight.total = none;
    job.weight = &weight;
    job.to.f32 = to;
    kernels->run(&job);
    for (size_t i = 0; i < (size_t)scene->rows * scene->outputs; i++) {
        int32_t expected = scene->expected[i / scene->outputs * scene->columns + i % scene->outputs];
        if (to[i] != (float)expected) {
            fail_msg("%s: row %zu of %u by %u by %u", set_now->name, i / scene->outputs, scene->rows, scene->outputs,
                     scene->inputs);
        }
    }
    free(to);
    free(ones);
    free(none);
    free(job.from.offset);
}

TEST(sums_are_those_of_plain_loops)
{
    random_state = 5;
    for (unsigned s = 0; s < SIZES; s++) {
        struct scene scene = scene_open(sizes[s], false), extreme = scene_open(sizes[s], true);
        unsigned at = 0;
        assert_true(abs(extreme.expected[0]) >= 126 * 127 * (int)sizes[s][2]);
        for (const struct gemm_int8 *kernels = next_kernels(&at); kernels != NULL; kernels = next_kernels(&at)) {
            scene_pack(&scene);
            scene_pack(&extreme);
            expect_sums(kernels, &scene);
            expect_sums(kernels, &extreme);
        }
        scene_close(&scene);
        scene_close(&extreme);
    }
}

static double activated(enum activation activation, double x)
{
    if (activation == ACTIVATION_GELU_ERF) { return 0.5 * x * (1 + erf(x / sqrt(2))); }
    if (activation == ACTIVATION_GELU_TANH) {
        return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    }
    if (activation == ACTIVATION_SILU) { return x / (1 + exp(-x)); }
    return x > 0 ? x : 0;
}

/* A product in 16 bits: its operands, their magnitudes, and their products. */
struct pairs {
    uint32_t rows, outputs, inputs;
    const float *from, *weight;
    float *bias;
    float *large;            /* [rows]: the largest magnitudes */
    float *larger;           /* [outputs]: those of the weight */
    double *expected, *half; /* [rows, outputs] in f64, and with operands rounded to bf16 */
};

static float largest_of(const float *from, uint32_t count)
{
    float largest = 0;
    for (uint32_t i = 0; i < count; i++) { largest = fmaxf(largest, fabsf(from[i])); }
    return largest;
}

static struct pairs pairs_open(const uint32_t size[3], const float *from, const float *weight)
{
    struct pairs pairs = {size[0], size[1], size[2], from, weight};
    size_t count = (size_t)size[0] * size[1];
    pairs.bias = random_floats(pairs.outputs);
    pairs.large = zeros(pairs.rows * sizeof(float));
    pairs.larger = zeros(pairs.outputs * sizeof(float));
    pairs.expected = zeros(count * sizeof(double));
    pairs.half = zeros(count * sizeof(double));
    for (size_t i = 0; i < count; i++) {
        const float *row = from + i / pairs.outputs * pairs.inputs, *output = weight + i % pairs.outputs * pairs.inputs;
        pairs.large[i / pairs.outputs] = largest_of(row, pairs.inputs);
        pairs.larger[i % pairs.outputs] = largest_of(output, pairs.inputs);
        for (uint32_t k = 0; k < pairs.inputs; k++) {
            pairs.expected[i] += (double)row[k] * (double)output[k];
            pairs.half[i] += (double)from_half(bf16_of(row[k])) * (double)from_half(bf16_of(output[k]));
        }
    }
    return pairs;
}

static void pairs_close(struct pairs *pairs)
{
    free(pairs->bias);
    free(pairs->large);
    free(pairs->larger);
    free(pairs->expected);
    free(pairs->half);
}

/* The largest change of a product by rounding one number: except for their scales, both operands are at most 1. */
static double unit_of(const struct pairs *pairs, size_t i)
{
    return (double)pairs->large[i / pairs->outputs] * (double)pairs->larger[i % pairs->outputs];
}

/* How far a product may be off. */
static double pairs_most(const struct pairs *pairs, size_t i)
{
    double step = 2 * sqrt(pairs->inputs) / (double)int16_largest(pairs->inputs);
    return 1e-6 * fabs(pairs->expected[i]) + step * unit_of(pairs, i) + 1e-44; /* subnormal numbers have few digits */
}

/* Checks each number, and the total error beside that of operands rounded to bf16. */
static void expect_near(const struct pairs *pairs, const float *to)
{
    double error = 0, half_error = 0;
    for (size_t i = 0; i < (size_t)pairs->rows * pairs->outputs; i++) {
        double expected = pairs->expected[i], unit = unit_of(pairs, i);
        if (isfinite(expected) ? !(fabs((double)to[i] - expected) <= pairs_most(pairs, i)) : !isnan(to[i])) {
            fail_msg("%s: %u by %u by %u, row %zu: %g, not %g", set_now->name, pairs->rows, pairs->outputs,
                     pairs->inputs, i / pairs->outputs, (double)to[i], expected);
        }
        if (!isfinite(expected) || unit == 0) { continue; }
        error += pow((to[i] - expected) / unit, 2);
        half_error += pow((pairs->half[i] - expected) / unit, 2);
    }
    if (half_error > 0 && !(error < half_error / 4)) {
        fail_msg("%s: %u by %u by %u: off by %g, bf16 by %g", set_now->name, pairs->rows, pairs->outputs, pairs->inputs,
                 sqrt(error), sqrt(half_error));
    }
}

/* Every end in bf16. A number is off by its own rounding, that of a rough activation and that of the sums. */
static void expect_ends(const struct pairs *pairs, struct gemm_job job)
{
    static const struct {
        enum gemm_end end;
        enum activation activation;
    } ends[] = {
        {GEMM_BIAS, ACTIVATION_RELU},           {GEMM_ACTIVATION, ACTIVATION_RELU},
        {GEMM_ACTIVATION, ACTIVATION_GELU_ERF}, {GEMM_ACTIVATION, ACTIVATION_GELU_TANH},
        {GEMM_GATE, ACTIVATION_GELU_ERF},       {GEMM_GATE, ACTIVATION_GELU_TANH},
        {GEMM_GATE, ACTIVATION_SILU},
    };
    uint16_t *to = zeros((size_t)(pairs->rows + SLACK) * pairs->outputs * sizeof *to);
    job.bias = pairs->bias;
    job.to = (struct activations){.bf16 = to};
    for (unsigned e = 0; e < sizeof ends / sizeof ends[0]; e++) {
        bool gated = ends[e].end == GEMM_GATE;
        if (gated && pairs->outputs % INT8_PANEL != 0) { continue; }
        uint32_t columns = gated ? pairs->outputs / 2 : pairs->outputs;
        job.end = ends[e].end;
        job.activation = ends[e].activation;
        gemm_run(set_now, GEMM_INT16, &job);
        for (size_t i = 0; i < (size_t)pairs->rows * columns; i++) {
            uint32_t column = (uint32_t)(i % columns);
            uint32_t output = gated ? column / GATE_WIDTH * 2 * GATE_WIDTH + column % GATE_WIDTH : column;
            size_t at = i / columns * pairs->outputs + output, up_at = gated ? at + GATE_WIDTH : at;
            double x = pairs->expected[at] + (double)pairs->bias[output], got = (double)from_half(to[i]);
            double up = gated ? pairs->expected[up_at] + (double)pairs->bias[output + GATE_WIDTH] : 1;
            if (!isfinite(x) || !isfinite(up)) {
                assert_true(isnan(got));
                continue;
            }
            if (fabs(x) > 1e9 || fabs(up) > 1e9) { continue; } /* an activation's terms leave f32 */
            double wanted = (ends[e].end == GEMM_BIAS ? x : activated(ends[e].activation, x)) * up;
            double off = pairs_most(pairs, at), off_up = gated ? pairs_most(pairs, up_at) : 0;
            double most =
                1.2 * off * (fabs(up) + off_up) + off_up * fabs(x) + 5e-5 * fabs(x * up) + fabs(wanted) / 250 + 1e-6;
            if (!(fabs(got - wanted) <= most)) {
                fail_msg("%s: end %d, activation %d: %g, not %g", set_now->name, (int)ends[e].end,
                         (int)ends[e].activation, got, wanted);
            }
        }
    }
    free(to);
}

/* Compares a product in 16 bits with f64. A row alone has the same bits, and so has one in bf16. */
static void expect_int16(const struct gemm_int8 *kernels, const struct pairs *pairs)
{
    const uint32_t rows = pairs->rows, outputs = pairs->outputs, inputs = pairs->inputs, last = rows - 1;
    struct scaled_rows x = rows_open(rows, 2 * inputs), again = rows_open(rows, 2 * inputs);
    struct gemm_weight packed;
    struct activations from = {.f32 = (float *)(uintptr_t)pairs->from};
    void *memory = zeros(gemm_weight_bytes(GEMM_INT16, outputs, inputs));
    float *to = zeros((size_t)(rows + SLACK) * outputs * sizeof *to);
    float *alone = zeros((size_t)(1 + SLACK) * outputs * sizeof *to);
    gemm_pack(set_now, GEMM_INT16, outputs, inputs, pairs->weight, false, memory, &packed);
    kernels->quantise16(rows, inputs, from, x);
    struct gemm_job job = {
        .rows = rows, .weight = &packed, .last_output = outputs, .from = x, .end = GEMM_PLAIN, .to.f32 = to};
    gemm_run(set_now, GEMM_INT16, &job);
    expect_near(pairs, to);
    expect_ends(pairs, job);

    kernels->quantise16(1, inputs, (struct activations){.f32 = from.f32 + (size_t)last * inputs}, again);
    job.rows = 1;
    job.from = again;
    job.to.f32 = alone;
    gemm_run(set_now, GEMM_INT16, &job);
    assert_memory_equal(alone, to + (size_t)last * outputs, outputs * sizeof *to);

    uint16_t *half = zeros((size_t)rows * inputs * sizeof *half);
    float *widened = zeros((size_t)rows * inputs * sizeof *widened);
    for (size_t i = 0; i < (size_t)rows * inputs; i++) {
        half[i] = bf16_of(from.f32[i]);
        widened[i] = from_half(half[i]);
    }
    kernels->quantise16(rows, inputs, (struct activations){.f32 = widened}, x);
    kernels->quantise16(rows, inputs, (struct activations){.bf16 = half}, again);
    for (uint32_t r = 0; r < rows; r++) {
        assert_true(isnan(x.scale[r]) ? isnan(again.scale[r]) : same_row(x, r, again, r, 2 * inputs));
    }
    rows_close(&x);
    rows_close(&again);
    free(half);
    free(widened);
    free(memory);
    free(alone);
    free(to);
}

TEST(products_of_16_bits_are_nearer_than_those_of_bf16)
{
    enum kind { EVEN, LARGEST_SUMS, UNEVEN, FAR_APART, KINDS };
    static const float scales[] = {1, 1e-20f, 1e20f, 0};
    random_state = 7;
    for (unsigned s = 0; s < KINDS * SIZES; s++) {
        const uint32_t *size = sizes[s / KINDS], kind = s % KINDS;
        float *from = random_floats((size_t)size[0] * size[2]), *weight = random_floats((size_t)size[1] * size[2]);
        unsigned at = 0;
        for (size_t i = 0; i < (size_t)size[0] * size[2]; i++) {
            if (kind == UNEVEN) { from[i] = powf(from[i], 9); }
            if (kind == LARGEST_SUMS) { from[i] = 1; }
            if (kind == FAR_APART) { from[i] *= scales[i / size[2] % 4]; }
        }
        for (size_t i = 0; i < (size_t)size[1] * size[2]; i++) {
            if (kind == LARGEST_SUMS) { weight[i] = i / size[2] % 2 == 0 ? 1 : -1; }
            if (kind == FAR_APART && i / size[2] % 4 == 1) { weight[i] *= 1e-20f; }
        }
        if (size[0] > 2) { from[size[2]] = INFINITY; }    /* of the second row alone, */
        if (size[0] > 7) { from[7 * size[2] - 1] = NAN; } /* and of the seventh */
        struct pairs pairs = pairs_open(size, from, weight);
        for (const struct gemm_int8 *kernels = next_kernels(&at); kernels != NULL; kernels = next_kernels(&at)) {
            if (kernels->run16) { expect_int16(kernels, &pairs); }
        }
        pairs_close(&pairs);
        free(from);
        free(weight);
    }
}

/* In a row, and in a weight, all numbers but one are rounded up by nearly a half, to 511. If the norm to which a row is
 * scaled were not reduced by the effect of rounding, they would become 512, and their sum 2^31. */
TEST(sums_of_16_bits_leave_room_for_rounding)
{
    enum { INPUTS = 8192, ROUNDED = 511 };
    float *row = zeros(INPUTS * sizeof *row), to[1 + SLACK];
    void *memory = zeros(gemm_weight_bytes(GEMM_INT16, 1, INPUTS));
    struct scaled_rows from = rows_open(1, 2 * INPUTS);
    unsigned at = 0;
    for (uint32_t i = 0; i < INPUTS; i++) { row[i] = i == 0 ? 512 : 511.5f; }
    for (const struct gemm_int8 *kernels = next_kernels(&at); kernels != NULL; kernels = next_kernels(&at)) {
        struct gemm_weight weight;
        if (!kernels->run16) { continue; }
        gemm_pack(set_now, GEMM_INT16, 1, INPUTS, row, false, memory, &weight);
        kernels->quantise16(1, INPUTS, (struct activations){.f32 = row}, from);
        for (uint32_t i = 0; i < INPUTS; i++) {
            int16_t value;
            memcpy(&value, from.value + 2 * (size_t)i, sizeof value);
            assert_int_equal(value, ROUNDED);
        }
        gemm_run(set_now, GEMM_INT16,
                 &(struct gemm_job){
                     .rows = 1, .weight = &weight, .last_output = 1, .from = from, .end = GEMM_PLAIN, .to.f32 = to});
        assert_true(fabs((double)to[0] - 0x1p31) < 1e-6 * 0x1p31); /* 511 represents 512 */
    }
    rows_close(&from);
    free(memory);
    free(row);
}

/* The result of an end from the sums, in f64. */
static double ended(const struct scene *scene, const struct gemm_job *job, uint32_t row, uint32_t output)
{
    double x = (double)scene->expected[row * scene->columns + output] * (double)scene->weight.scaled.scale[output] *
               (double)scene->from.scale[row];
    x += (double)scene->from.offset[row] * (double)scene->weight.total[output];
    if (job->end == GEMM_PLAIN) { return x; }
    x += (double)scene->bias[output];
    return job->end == GEMM_ACTIVATION ? activated(job->activation, x) : x;
}

enum { BESIDE = 33 };

/* Asserts that every output is right, and that places beside them and after the last row are unchanged. */
static void expect_end(const struct gemm_int8 *kernels, const struct scene *scene, enum gemm_end end,
                       enum activation activation, bool in_f32)
{
    uint32_t beside = end == GEMM_ACTIVATION ? 0 : BESIDE, stride = scene->outputs + beside;
    size_t count = (size_t)(scene->rows + SLACK) * stride;
    uint16_t *half = malloc(count * sizeof *half);
    float *plain = malloc(count * sizeof *plain), untouched;
    assert_true(half != NULL && plain != NULL);
    struct gemm_job job = job_of(scene, end);
    job.activation = activation;
    job.beside = beside;
    memset(half, 0x77, count * sizeof *half);
    memset(plain, 0x77, count * sizeof *plain);
    memset(&untouched, 0x77, sizeof untouched);
    job.to = in_f32 ? (struct activations){.f32 = plain} : (struct activations){.bf16 = half};
    kernels->run(&job);
    for (size_t i = 0; i < (size_t)scene->rows * stride; i++) {
        if (i % stride >= scene->outputs) {
            assert_true(half[i] == 0x7777 && plain[i] == untouched);
            continue;
        }
        double expected = ended(scene, &job, (uint32_t)(i / stride), (uint32_t)(i % stride));
        float value = in_f32 ? plain[i] : from_half(half[i]);
        double rough = activation == ACTIVATION_GELU_ERF ? 2.5e-4 : 0; /* int8_gelu_erf */
        double most = rough + (in_f32 ? 2e-4 + 3e-6 * fabs(expected) : 2e-4 + fabs(expected) / 250);
        if (!(fabs(value - expected) <= most)) {
            fail_msg("%s: end %d: %g, not %g", set_now->name, (int)end, (double)value, expected);
        }
    }
    for (size_t i = (size_t)scene->rows * stride; i < count && !in_f32; i++) { assert_true(half[i] == 0x7777); }
    free(half);
    free(plain);
}

TEST(what_follows_a_product_is_right)
{
    random_state = 6;
    for (unsigned s = 0; s < SIZES; s++) {
        struct scene scene = scene_open(sizes[s], false);
        unsigned at = 0;
        for (const struct gemm_int8 *kernels = next_kernels(&at); kernels != NULL; kernels = next_kernels(&at)) {
            scene_pack(&scene);
            expect_end(kernels, &scene, GEMM_PLAIN, ACTIVATION_RELU, true);
            expect_end(kernels, &scene, GEMM_BIAS, ACTIVATION_RELU, false);
            for (int in_f32 = 0; in_f32 < 2; in_f32++) {
                expect_end(kernels, &scene, GEMM_ACTIVATION, ACTIVATION_RELU, in_f32);
                expect_end(kernels, &scene, GEMM_ACTIVATION, ACTIVATION_GELU_ERF, in_f32);
                expect_end(kernels, &scene, GEMM_ACTIVATION, ACTIVATION_GELU_TANH, in_f32);
            }
        }
        scene_close(&scene);
    }
}

/* --- attention in 16 bits --- */

struct text {
    uint32_t length, heads, dim;
    float sharpness; /* of the queries: how far apart their keys' weights are */
    bool biased;
};

/* One query's context in float64. */
static void attended(const struct attention_job *job, uint32_t head, uint32_t query, double *to)
{
    size_t width = (size_t)job->heads * job->head_dim, dim = job->head_dim;
    const uint16_t *q = job->qkv16 + query * 3 * width + head * dim, *k = job->qkv16 + width + head * dim;
    double total = 0;
    memset(to, 0, dim * sizeof *to);
    for (uint32_t key = 0; key < job->length; key++, k += 3 * width) {
        double score = 0;
        for (size_t i = 0; i < dim; i++) { score += (double)from_half(q[i]) * (double)from_half(k[i]); }
        score =
            exp(score * (double)job->scale + (job->relative_bias ? (double)attention_bias(job, head, query)[key] : 0));
        total += score;
        for (size_t i = 0; i < dim; i++) { to[i] += score * (double)from_half(k[width + i]); }
    }
    for (size_t i = 0; i < dim; i++) { to[i] /= total; }
}

static void expect_attention(const struct gemm_int8 *kernels, const struct text *text)
{
    size_t width = (size_t)text->heads * text->dim, rows = text->length + GEMM_ROWS_BEHIND;
    size_t scratch = attention16_scratch(text->length, text->dim) * sizeof(float);
    float *plain = random_floats(rows * 3 * width);
    float *bias = random_floats((size_t)text->heads * (2 * (size_t)text->length - 1));
    uint16_t *half = zeros(rows * 3 * width * sizeof *half), *halves = zeros(rows * width * sizeof *halves);
    float *context = zeros(rows * width * sizeof *context), *again = zeros(rows * width * sizeof *again);
    double *expected = zeros(text->dim * sizeof *expected), most = 0;
    for (size_t i = 0; i < text->length * 3 * width; i++) {
        half[i] = bf16_of(plain[i] * (i % (3 * width) < width ? text->sharpness : 1));
        if (i % (3 * width) >= 2 * width) { most = fmax(most, fabs((double)from_half(half[i]))); }
    }
    struct attention_job job = {.length = text->length,
                                .heads = text->heads,
                                .head_dim = text->dim,
                                .last_head = text->heads,
                                .scale = 1 / sqrtf((float)text->dim),
                                .qkv16 = half,
                                .relative_bias = text->biased ? bias : NULL,
                                .bias_reach = text->length - 1,
                                .context.f32 = context,
                                .scratch = zeros(scratch)};
    kernels->attention16(&job);
    for (uint32_t row = 0; row < text->length; row++) {
        for (uint32_t head = 0; head < text->heads; head++) {
            attended(&job, head, row, expected);
            for (uint32_t i = 0; i < text->dim; i++) {
                double got = (double)context[row * width + head * text->dim + i];
                assert_true(fabs(got - expected[i]) <= 4e-3 * most);
            }
        }
    }

    /* Memory after the text and the content of the scratch do not matter, nor does the order of heads. */
    memset(half + text->length * 3 * width, 0xff, GEMM_ROWS_BEHIND * 3 * width * sizeof *half);
    memset(job.scratch, 0xff, scratch);
    job.context.f32 = again;
    for (job.first_head = 0; job.first_head < text->heads; job.first_head++) {
        job.last_head = job.first_head + 1;
        kernels->attention16(&job);
    }
    assert_memory_equal(context, again, rows * width * sizeof *context);

    job.context = (struct activations){.bf16 = halves};
    job.first_head = 0;
    kernels->attention16(&job);
    for (size_t i = 0; i < rows * width; i++) { assert_int_equal(halves[i], bf16_of(context[i])); }

    /* A number that is not finite spoils its own head, all of it, and no other. */
    half[0] = bf16_of(INFINITY);
    job.context = (struct activations){.f32 = again};
    kernels->attention16(&job);
    for (size_t i = 0; i < text->length * width; i++) {
        assert_true(i % width < text->dim ? isnan(again[i]) : again[i] == context[i]);
    }
    free(plain);
    free(bias);
    free(half);
    free(halves);
    free(context);
    free(again);
    free(expected);
    free(job.scratch);
}

TEST(attention_in_16_bits_is_nearly_right)
{
    static const struct text texts[] = {{1, 2, 32, 1, false}, {2, 1, 8, 1, true},     {15, 2, 30, 3, false},
                                        {33, 3, 32, 1, true}, {64, 2, 64, 6, false},  {129, 2, 34, 0.1F, false},
                                        {70, 1, 32, 6, true}, {300, 1, 32, 1, false}, {40, 1, 128, 1, false}};
    random_state = 9;
    for (unsigned t = 0; t < sizeof texts / sizeof texts[0]; t++) {
        unsigned at = 0;
        for (const struct gemm_int8 *kernels = next_kernels(&at); kernels != NULL; kernels = next_kernels(&at)) {
            if (kernels->attention16) { expect_attention(kernels, &texts[t]); }
        }
    }
}
