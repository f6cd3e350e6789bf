/* Products in f32 and in bf16 without tiles: that every instruction set of this machine gives what plain loops give,
 * and each row the same bits however many are computed with it. */
#include "harness.h"

#include <math.h>
#include <stdlib.h>

#include "engine/cpu/gemm.h"
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

TEST(the_measured_kind_of_bf16_has_kernels)
{
    for (const struct instruction_set *set = instruction_sets; set->name != NULL; set++) {
        if (set->runs_here()) {
            enum gemm_kind kind = gemm_bf16_kind(set);
            assert_true(kind == GEMM_BF16_WIDE || (kind == GEMM_BF16_DOT && set->kernels->gemm_bf16_dot != NULL));
        }
    }
}
