/* Attention of the CPU backend: on every instruction set of this machine each kind gives the results of plain loops,
 * whatever follows the sequence in memory. */
#include "harness.h"

#include <math.h>
#include <stdlib.h>

#include "engine/cpu/isa.h"
#include "random_floats.h"

enum { ROWS_BEHIND = 31 };

/* A sequence, the keys to which a token attends, and the steps on scores, queries and keys. */
struct attention_case {
    uint32_t length, heads, key_heads, head_dim;
    uint32_t before, behind; /* at most `length` */
    bool norms, turns, biased;
};

static const struct attention_case cases[] = {
    {1, 2, 2, 32, 1, 1},
    {16, 1, 1, 64, 16, 16},
    {33, 3, 3, 32, 33, 33, .biased = true},
    {90, 2, 2, 32, 9, 12, .biased = true}, /* as in no family: a window whose first key is not the text's */
    {70, 2, 2, 64, 70, 70},
    {77, 2, 2, 64, 77, 77, .turns = true}, /* ModernBERT's layers, */
    {77, 2, 2, 64, 5, 5, .turns = true},   /* and with windows */
    {150, 2, 2, 32, 64, 64, .turns = true},
    {40, 2, 2, 32, 0, 0}, /* to itself alone */
    {50, 2, 1, 32, 1, 0},
    {100, 1, 1, 32, 0, 40},
    {61, 6, 2, 128, 61, 0, true, true},  /* Qwen3's */
    {35, 4, 1, 256, 24, 24, true, true}, /* Gemma's */
    {64, 4, 2, 96, 64, 64, .turns = true},
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* The operands of a case, in f32 and in bf16. */
struct scene {
    const struct attention_case *is;
    size_t width, context_width;
    float *qkv, *bias, *rotary, *relative, *gain[2], *zero;
    uint16_t *half;
    double *expected; /* [length, context_width] */
};

static float random_half(uint16_t *half)
{
    float value = next_random();
    uint32_t bits = (uint32_t)(*half = bf16_of(value)) << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Writes a query or key in its final form. */
static void use_head(const struct scene *scene, uint32_t token, const float *from, const float *gain, double *to)
{
    uint32_t dim = scene->is->head_dim, half = dim / 2;
    double square = 0;
    for (uint32_t i = 0; i < dim; i++) {
        to[i] = (double)from[i];
        square += to[i] * to[i] / dim;
    }
    for (uint32_t i = 0; i < dim && scene->is->norms; i++) { to[i] *= (double)gain[i] / sqrt(square + 1e-6); }
    const float *cosine = scene->rotary + (size_t)token * dim;
    for (uint32_t i = 0; i < half && scene->is->turns; i++) {
        double a = to[i], b = to[half + i], c = (double)cosine[i], s = (double)cosine[half + i];
        to[i] = a * c - b * s;
        to[half + i] = a * s + b * c;
    }
}

static double scale_of(const struct attention_case *is)
{
    return 1 / sqrt(is->head_dim);
}

static void expect_query(const struct scene *scene, uint32_t head, uint32_t token)
{
    const struct attention_case *is = scene->is;
    uint32_t dim = is->head_dim, key_head = head / (is->heads / is->key_heads);
    double query[256], key[256], total = 0, *to = scene->expected + token * scene->context_width + (size_t)head * dim;
    use_head(scene, token, scene->qkv + token * scene->width + (size_t)head * dim, scene->gain[0], query);
    for (uint32_t k = 0; k < is->length; k++) {
        if (k + is->before < token || k > token + is->behind) { continue; }
        const float *from = scene->qkv + k * scene->width + (size_t)(is->heads + key_head) * dim;
        double score = 0;
        use_head(scene, k, from, scene->gain[1], key);
        for (uint32_t i = 0; i < dim; i++) { score += query[i] * key[i] * scale_of(is); }
        if (is->biased) {
            score += (double)scene->relative[(size_t)head * (2 * is->length - 1) + is->length - 1 - token + k];
        }
        total += exp(score);
        for (uint32_t i = 0; i < dim; i++) { to[i] += exp(score) * (double)from[(size_t)is->key_heads * dim + i]; }
    }
    for (uint32_t i = 0; i < dim; i++) { to[i] /= total; }
}

static struct scene scene_open(const struct attention_case *is)
{
    struct scene scene = {.is = is, .context_width = (size_t)is->heads * is->head_dim};
    scene.width = (size_t)(is->heads + 2 * is->key_heads) * is->head_dim;
    size_t count = is->length * scene.width, behind = ROWS_BEHIND * scene.width;
    scene.qkv = zeros((count + behind) * sizeof(float));
    scene.half = zeros((count + behind) * sizeof(uint16_t));
    scene.zero = zeros(scene.width * sizeof(float));
    for (size_t i = 0; i < count; i++) { scene.qkv[i] = random_half(&scene.half[i]); }
    for (size_t i = count; i < count + behind; i++) {
        scene.qkv[i] = NAN;
        scene.half[i] = 0x7fc0;
    }
    scene.rotary = random_floats((size_t)is->length * is->head_dim);
    for (uint32_t i = 0; i < is->length * is->head_dim / 2; i++) {
        uint32_t half = is->head_dim / 2, at = i / half * is->head_dim + i % half;
        float angle = (float)(i / half) / (float)(1 + i % half);
        scene.rotary[at] = cosf(angle);
        scene.rotary[at + half] = sinf(angle);
    }
    scene.relative = random_floats((size_t)is->heads * (2 * is->length - 1));
    for (int i = 0; i < 2; i++) {
        scene.gain[i] = random_floats(is->head_dim);
        for (uint32_t d = 0; d < is->head_dim; d++) { scene.gain[i][d] = 1 + scene.gain[i][d] / 2; }
    }
    scene.expected = zeros(is->length * scene.context_width * sizeof(double));
    for (uint32_t head = 0; head < is->heads; head++) {
        for (uint32_t token = 0; token < is->length; token++) { expect_query(&scene, head, token); }
    }
    return scene;
}

static void scene_close(struct scene *scene)
{
    free(scene->qkv);
    free(scene->half);
    free(scene->zero);
    free(scene->rotary);
    free(scene->relative);
    free(scene->gain[0]);
    free(scene->gain[1]);
    free(scene->expected);
}

/* Runs the heads one part after the other, from f32 to f32 or from bf16 to bf16, and compares. */
static void expect_near(const struct instruction_set *set, const struct scene *scene,
                        void (*attention)(const struct attention_job *job), bool half, double most)
{
    const struct attention_case *is = scene->is;
    size_t count = is->length * scene->context_width,
           floats = set->kernels->attention_scratch(is->length, is->head_dim);
    size_t others = attention16_scratch(is->length, is->head_dim);
    struct norm_weights norms[2] = {{scene->gain[0], scene->zero, 1e-6f, true},
                                    {scene->gain[1], scene->zero, 1e-6f, true}};
    size_t room = (floats > others ? floats : others) * sizeof(float);
    float *to = zeros(count * sizeof *to), *scratch = memset(zeros(room), 0xff, room); /* earlier content */
    struct attention_job job = {
        .length = is->length,
        .heads = is->heads,
        .head_dim = is->head_dim,
        .key_heads = is->key_heads,
        .scale = (float)scale_of(is),
        .qkv = half ? NULL : scene->qkv,
        .qkv16 = half ? scene->half : NULL,
        .bias = scene->zero,
        .query_norm = is->norms ? &norms[0] : NULL,
        .key_norm = is->norms ? &norms[1] : NULL,
        .rotary = is->turns ? scene->rotary : NULL,
        .before = is->before,
        .behind = is->behind,
        .relative_bias = is->biased ? scene->relative : NULL,
        .bias_reach = is->length - 1,
        .scratch = scratch,
    };
    if (half) {
        job.context.bf16 = (uint16_t *)(void *)to;
    } else {
        job.context.f32 = to;
    }
    for (uint32_t head = 0; head < is->heads; head = job.last_head) { /* one, then the rest */
        job.first_head = head;
        job.last_head = head == 0 ? 1 : is->heads;
        attention(&job);
    }
    for (size_t i = 0; i < count; i++) {
        float value = half ? 0 : to[i];
        uint32_t bits = half ? (uint32_t)job.context.bf16[i] << 16 : 0;
        if (half) { memcpy(&value, &bits, sizeof value); }
        if (!(fabs((double)value - scene->expected[i]) <= most)) {
            fail_msg("%s, %s, case %d, token %zu, head %zu: %g, not %g", set->name, half ? "bf16" : "f32",
                     (int)(is - cases), i / scene->context_width, i % scene->context_width / is->head_dim,
                     (double)value, scene->expected[i]);
        }
    }
    free(to);
    free(scratch);
}

TEST(attention_is_that_of_plain_loops)
{
    for (unsigned c = 0; c < CASES; c++) {
        struct scene scene = scene_open(&cases[c]);
        bool plain = cases[c].before == cases[c].length && cases[c].behind == cases[c].length &&
                     cases[c].heads == cases[c].key_heads && !cases[c].norms && !cases[c].turns;
        for (const struct instruction_set *set = instruction_sets; set->name != NULL; set++) {
            if (!set->runs_here()) { continue; }
            expect_near(set, &scene, set->kernels->attention, false, 1e-6);
            if (plain && set->int8->attention16 != NULL) {
                expect_near(set, &scene, set->int8->attention16, true, 5e-3);
            }
        }
        scene_close(&scene);
    }
}

TEST(attention_on_tiles_is_that_of_plain_loops)
{
    bool ran = false;
    for (unsigned c = 0; c < CASES; c++) {
        struct scene scene = scene_open(&cases[c]);
        for (const struct instruction_set *set = instruction_sets; set->name != NULL; set++) {
            if (set->bf16 == NULL || !set->runs_here()) { continue; }
            expect_near(set, &scene, set->bf16->attention, true, 5e-3);
            ran = true;
        }
        scene_close(&scene);
    }
    if (!ran) { skip(); }
}
