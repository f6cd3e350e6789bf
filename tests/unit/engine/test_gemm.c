/* Products in f32 and in bf16: every instruction set of this machine gives the results of plain loops, and each row has
 * the same bits however many are computed with it. */
#include "harness.h"

#include <math.h>
#include <stdlib.h>

#include "engine/cpu/isa.h"
#include "random_floats.h"

/* Sizes that are not whole panels, pairs, depths or groups of rows, and some that are. */
static const uint32_t sizes[][3] = {/* rows, outputs, inputs */
                                    {1, 1, 1},    {2, 33, 63},   {13, 36, 70},   {12, 64, 64},   {25, 100, 130},
                                    {7, 70, 769}, {37, 96, 384}, {40, 40, 1600}, {11, 32, 2305}, {64, 64, 768}};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static float rounded(float value)
{
    uint32_t bits = (uint32_t)bf16_of(value) << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A product's operands; those in bf16 hold the same numbers. */
struct scene {
    uint32_t rows, outputs, inputs;
    float *weight, *from, *bias;
    uint16_t *half;
};

static struct scene scene_open(const uint32_t size[3])
{
    struct scene scene = {.rows = size[0], .outputs = size[1], .inputs = size[2]};
    size_t from = (size_t)(scene.rows + GEMM_ROWS_BEHIND) * scene.inputs, weight = (size_t)scene.outputs * scene.inputs;
    scene.weight = zeros(weight * sizeof(float));
    scene.from = zeros(from * sizeof(float));
    scene.half = zeros(from * sizeof(uint16_t));
    scene.bias = zeros(scene.outputs * sizeof(float));
    for (size_t i = 0; i < weight; i++) { scene.weight[i] = rounded(next_random()); }
    for (size_t i = 0; i < from; i++) {
        scene.from[i] = i / scene.inputs < scene.rows ? rounded(next_random()) : NAN;
        scene.half[i] = bf16_of(scene.from[i]);
    }
    for (uint32_t i = 0; i < scene.outputs; i++) { scene.bias[i] = next_random(); }
    return scene;
}

static void scene_close(struct scene *scene)
{
    free(scene->weight);
    free(scene->from);
    free(scene->half);
    free(scene->bias);
}

/* Computes the rows from `first` on by themselves. */
static float *run(const struct instruction_set *set, enum gemm_kind kind, const struct scene *scene, uint32_t first,
                  bool activates)
{
    struct gemm_weight weight;
    void *packed = zeros(gemm_weight_bytes(kind, scene->outputs, scene->inputs));
    float *to = zeros((size_t)(scene->rows + GEMM_ROWS_BEHIND) * scene->outputs * sizeof *to);
    gemm_pack(set, kind, scene->outputs, scene->inputs, scene->weight, false, packed, &weight);
    struct gemm_job job = {.rows = scene->rows - first,
                           .weight = &weight,
                           .last_output = scene->outputs,
                           .end = activates ? GEMM_ACTIVATION : GEMM_PLAIN,
                           .activation = ACTIVATION_RELU,
                           .bias = scene->bias,
                           .to.f32 = to};
    if (kind == GEMM_BF16_DOT) {
        job.from_bf16 = scene->half + (size_t)first * scene->inputs;
    } else {
        job.from_f32 = scene->from + (size_t)first * scene->inputs;
    }
    gemm_run(set, kind, &job);
    free(packed);
    return to;
}

static void expect_right(const struct instruction_set *set, enum gemm_kind kind, const struct scene *scene)
{
    float *plain = run(set, kind, scene, 0, false), *active = run(set, kind, scene, 0, true);
    for (uint32_t r = 0; r < scene->rows; r++) {
        for (uint32_t o = 0; o < scene->outputs; o++) {
            double sum = 0;
            size_t at = (size_t)r * scene->outputs + o;
            for (uint32_t i = 0; i < scene->inputs; i++) {
                sum += (double)scene->from[(size_t)r * scene->inputs + i] *
                       (double)scene->weight[(size_t)o * scene->inputs + i];
            }
            if (!(fabs(plain[at] - sum) <= 1e-4) ||
                !(fabs(active[at] - fmax(0, sum + (double)scene->bias[o])) <= 1e-4)) {
                fail_msg("%s, kind %d: %g and %g, not %g", set->name, (int)kind, (double)plain[at], (double)active[at],
                         sum);
            }
        }
    }
    for (uint32_t first = 1; first < scene->rows; first += 5) {
        float *fewer = run(set, kind, scene, first, false);
        assert_memory_equal(fewer, plain + (size_t)first * scene->outputs,
                            (size_t)(scene->rows - first) * scene->outputs * sizeof *fewer);
        free(fewer);
    }
    free(plain);
    free(active);
}

TEST(products_are_those_of_plain_loops)
{
    for (unsigned s = 0; s < SIZES; s++) {
        struct scene scene = scene_open(sizes[s]);
        for (const struct instruction_set *set = instruction_sets; set->name != NULL; set++) {
            if (!set->runs_here()) { continue; }
            expect_right(set, GEMM_F32, &scene);
            if (scene.inputs % 2 != 0) { continue; }
            expect_right(set, GEMM_BF16_WIDE, &scene);
            if (set->kernels->gemm_bf16_dot != NULL) { expect_right(set, GEMM_BF16_DOT, &scene); }
        }
        scene_close(&scene);
    }
}

/* --- on tiles --- */

/* Whole tiles, as products on them need; broken strips, several chunks of the weight and of the inputs. */
static const uint32_t tiled_sizes[][3] = {{1, 32, 32},   {17, 64, 96},   {32, 96, 64},   {33, 1088, 768},
                                          {70, 64, 800}, {31, 32, 1600}, {2, 2112, 416}, {64, 64, 32}};
enum { TILED_SIZES = sizeof tiled_sizes / sizeof tiled_sizes[0] };

/* The index of an element in a matrix of that many columns, row by row or in the order of tiles. */
static size_t element_at(bool tiled, uint32_t columns, uint32_t row, uint32_t column)
{
    if (!tiled) { return (size_t)row * columns + column; }
    return (size_t)row / 32 * 32 * columns + (size_t)column / 32 * 32 * 32 + row % 32 * 32 + column % 32;
}

/* One way to compute a product on tiles. */
struct tiled_case {
    enum gemm_end end;
    enum activation activation;
    bool from_tiled, to_tiled;
};

static double activated(enum activation activation, double x)
{
    if (activation == ACTIVATION_GELU_ERF) { return x * 0.5 * (1 + erf(x * sqrt(0.5))); }
    if (activation == ACTIVATION_GELU_TANH) {
        return x * 0.5 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    }
    return activation == ACTIVATION_SILU ? x / (1 + exp(-x)) : fmax(0, x);
}

static double sum_of(const struct scene *scene, uint32_t row, uint32_t output)
{
    double sum = 0;
    for (uint32_t i = 0; i < scene->inputs; i++) {
        sum += (double)scene->from[(size_t)row * scene->inputs + i] *
               (double)scene->weight[(size_t)output * scene->inputs + i];
    }
    return sum;
}

/* Computes the rows from `first` on in two parts of the outputs; `to` has room for all in f32. */
static void run_tiled(const struct instruction_set *set, const struct scene *scene, const struct gemm_weight *weight,
                      struct tiled_case how, uint32_t first, void *to)
{
    uint32_t rows = scene->rows - first, half = scene->outputs / 64 * 32;
    uint16_t *from = zeros((size_t)(rows + GEMM_ROWS_BEHIND) * scene->inputs * sizeof *from);
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t i = 0; i < scene->inputs; i++) {
            from[element_at(how.from_tiled, scene->inputs, r, i)] =
                scene->half[(size_t)(first + r) * scene->inputs + i];
        }
    }
    struct gemm_job job = {.rows = rows,
                           .weight = weight,
                           .from_bf16 = from,
                           .from_tiled = how.from_tiled,
                           .to_tiled = how.to_tiled,
                           .end = how.end,
                           .activation = how.activation,
                           .bias = scene->bias};
    job.to = how.end == GEMM_PLAIN ? (struct activations){.f32 = to} : (struct activations){.bf16 = to};
    for (uint32_t part = 0; part < 2; part++) {
        job.first_output = part == 0 ? 0 : half;
        job.last_output = part == 0 ? half : scene->outputs;
        gemm_run(set, GEMM_BF16, &job);
    }
    free(from);
}

/* The columns of a result: a gated product has one for two outputs. */
static uint32_t columns_of(const struct scene *scene, struct tiled_case how)
{
    return how.end == GEMM_GATE ? scene->outputs / 2 : scene->outputs;
}

/* A result in bf16 is off by its own rounding, that of a rough activation and that of the sums. */
static void expect_element(const struct scene *scene, struct tiled_case how, const void *to, uint32_t row,
                           uint32_t column)
{
    bool plain = how.end == GEMM_PLAIN, gated = how.end == GEMM_GATE;
    size_t at = element_at(how.to_tiled, columns_of(scene, how), row, column);
    uint32_t output = gated ? column / GATE_WIDTH * 2 * GATE_WIDTH + column % GATE_WIDTH : column, bits;
    double x = sum_of(scene, row, output) + (plain ? 0 : (double)scene->bias[output]);
    double up = gated ? sum_of(scene, row, output + GATE_WIDTH) + (double)scene->bias[output + GATE_WIDTH] : 1;
    double wanted = plain || how.end == GEMM_BIAS ? x : activated(how.activation, x) * up;
    double most = 2e-4 * (1 + fabs(x) + fabs(up)) + (plain ? 0 : fabs(wanted) / 250 + 4e-5 * fabs(x * up));
    float value;
    if (plain) {
        value = ((const float *)to)[at];
    } else {
        bits = (uint32_t)((const uint16_t *)to)[at] << 16;
        memcpy(&value, &bits, sizeof value);
    }
    if (!(fabs((double)value - wanted) <= most)) {
        fail_msg("end %d, activation %d, row %u, column %u: %g, not %g", (int)how.end, (int)how.activation, row, column,
                 (double)value, wanted);
    }
}

static void expect_tiled(const struct instruction_set *set, const struct scene *scene, struct tiled_case how)
{
    if (columns_of(scene, how) % GEMM_MULTIPLE != 0) { how.to_tiled = false; }
    struct gemm_weight weight;
    size_t columns = columns_of(scene, how), element = how.end == GEMM_PLAIN ? sizeof(float) : sizeof(uint16_t);
    size_t bytes = (size_t)(scene->rows + GEMM_ROWS_BEHIND) * columns * element;
    void *packed = zeros(gemm_weight_bytes(GEMM_BF16, scene->outputs, scene->inputs));
    char *to = zeros(bytes), *fewer = zeros(bytes);
    gemm_pack(set, GEMM_BF16, scene->outputs, scene->inputs, scene->weight, false, packed, &weight);
    run_tiled(set, scene, &weight, how, 0, to);
    for (uint32_t row = 0; row < scene->rows; row += 3) {
        for (uint32_t output = 0; output < columns; output += 7) { expect_element(scene, how, to, row, output); }
    }
    for (uint32_t first = 1; first < scene->rows; first += 13) {
        run_tiled(set, scene, &weight, how, first, fewer);
        for (uint32_t row = first; row < scene->rows; row++) {
            for (uint32_t i = 0; i < columns; i++) {
                assert_memory_equal(fewer + element_at(how.to_tiled, (uint32_t)columns, row - first, i) * element,
                                    to + element_at(how.to_tiled, (uint32_t)columns, row, i) * element, element);
            }
        }
    }
    free(packed);
    free(to);
    free(fewer);
}

TEST(products_on_tiles_are_those_of_plain_loops)
{
    static const struct tiled_case cases[] = {
        {GEMM_PLAIN, ACTIVATION_RELU, false, false},     {GEMM_PLAIN, ACTIVATION_RELU, true, false},
        {GEMM_BIAS, ACTIVATION_RELU, false, false},      {GEMM_ACTIVATION, ACTIVATION_GELU_ERF, false, true},
        {GEMM_ACTIVATION, ACTIVATION_RELU, false, true}, {GEMM_ACTIVATION, ACTIVATION_GELU_TANH, false, true},
        {GEMM_GATE, ACTIVATION_GELU_ERF, false, true},   {GEMM_GATE, ACTIVATION_GELU_TANH, true, false},
        {GEMM_GATE, ACTIVATION_SILU, false, true},
    };
    bool ran = false;
    for (unsigned s = 0; s < TILED_SIZES; s++) {
        struct scene scene = scene_open(tiled_sizes[s]);
        for (const struct instruction_set *set = instruction_sets; set->name != NULL; set++) {
            if (set->bf16 == NULL || !set->runs_here()) { continue; }
            for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) { expect_tiled(set, &scene, cases[i]); }
            ran = true;
        }
        scene_close(&scene);
    }
    if (!ran) { skip(); }
}
