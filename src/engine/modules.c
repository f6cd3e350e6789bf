/* A dense layer is a product of the CPU engine in f32 (gemm.h) over all rows at once, so a row has the same bits in any
 * batch, and the weights are read once. Source: Dense, LayerNorm and Normalize of sentence-transformers 6.2. */
#include "engine/modules.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/system.h"
#include "engine/cpu/isa.h"
#include "engine/vector.h"

enum { LEAST_OUTPUTS = 64 }; /* of a chunk of a product */

struct step {
    enum module_kind kind;
    enum module_activation activation;
    uint32_t inputs, outputs;
    double eps;
    float *weight;             /* dense: packed, LayerNorm [outputs] */
    float *bias;               /* [outputs], zeros where the module has none */
    struct gemm_weight packed; /* dense */
};

struct modules {
    const struct instruction_set *set;
    uint32_t count, widest; /* inputs or outputs */
    struct step steps[];    /* [count] */
};

static enum status step_open(const struct instruction_set *set, const struct model_module *from, bool release,
                             struct step *to, struct err *err)
{
    *to = (struct step){.kind = from->kind,
                        .activation = from->activation,
                        .inputs = from->inputs,
                        .outputs = from->outputs,
                        .eps = from->eps};
    if (from->kind == MODULE_NORMALIZE) { return STATUS_OK; }
    bool dense = from->kind == MODULE_DENSE;
    size_t outputs = from->outputs, elements = outputs * (dense ? from->inputs : 1);
    if (from->weight.elements != elements || (from->biased && from->bias.elements != outputs)) {
        return err_set(err, STATUS_UNSUPPORTED, "the module %s does not fit the model's sizes", from->name);
    }
    float *plain = malloc(elements * sizeof *plain);
    to->weight = dense ? memory_aligned(gemm_weight_bytes(GEMM_F32, from->outputs, from->inputs)) : plain;
    to->bias = calloc(outputs, sizeof(float));
    bool enough = plain && to->weight && to->bias;
    if (enough) { tensor_read_f32(&from->weight, 0, elements, plain); }
    if (enough && dense) {
        gemm_pack(set, GEMM_F32, from->outputs, from->inputs, plain, false, to->weight, &to->packed);
    }
    if (dense) { free(plain); }
    if (!enough) { return err_set(err, STATUS_NO_MEMORY, "no memory for the module %s", from->name); }
    if (from->biased) { tensor_read_f32(&from->bias, 0, outputs, to->bias); }
    if (release) { tensor_release(&from->weight); }
    return STATUS_OK;
}

enum status modules_open(const struct model *model, struct modules **out, struct err *err)
{
    *out = NULL;
    if (model->module_count == 0) { return STATUS_OK; }
    struct modules *modules = calloc(1, sizeof *modules + model->module_count * sizeof modules->steps[0]);
    if (!modules) { return err_set(err, STATUS_NO_MEMORY, "no memory for the modules"); }
    modules->set = instruction_set_pick();
    enum status status = STATUS_OK;
    while (status == STATUS_OK && modules->count < model->module_count) {
        struct step *step = &modules->steps[modules->count];
        status = step_open(modules->set, &model->modules[modules->count++], model->read_once, step, err);
        uint32_t wider = step->inputs > step->outputs ? step->inputs : step->outputs;
        if (wider > modules->widest) { modules->widest = wider; }
    }
    if (status == STATUS_OK) {
        *out = modules;
    } else {
        modules_close(modules);
    }
    return status;
}

void modules_close(struct modules *modules)
{
    for (uint32_t i = 0; modules && i < modules->count; i++) {
        free(modules->steps[i].weight);
        free(modules->steps[i].bias);
    }
    free(modules);
}

static float activate_value(enum module_activation activation, float x)
{
    switch (activation) {
    case MODULE_TANH:
        return tanhf(x);
    case MODULE_RELU:
        return fmaxf(x, 0.0f);
    case MODULE_GELU:
        return 0.5f * x * (1.0f + erff(x * 0x1.6a09e6p-1f)); /* the root of a half */
    default:
        return x;
    }
}

/* A product under way, cut into chunks of outputs. */
struct product {
    const struct modules *modules;
    struct gemm_job job;
    unsigned chunks;
};

static void product_chunk(void *context, unsigned thread, unsigned chunk)
{
    (void)thread;
    const struct product *product = context;
    struct gemm_job job = product->job;
    uint32_t outputs = job.weight->outputs, panels = (outputs + GEMM_MULTIPLE - 1) / GEMM_MULTIPLE;
    uint32_t last = parallel_for_first(panels, chunk + 1, product->chunks) * GEMM_MULTIPLE;
    job.first_output = parallel_for_first(panels, chunk, product->chunks) * GEMM_MULTIPLE;
    job.last_output = last < outputs ? last : outputs;
    gemm_run(product->modules->set, GEMM_F32, &job);
}

static void run_dense(const struct modules *modules, const struct step *step, struct parallel_for *parallel,
                      uint32_t rows, const float *from, float *to)
{
    struct product product = {
        .modules = modules,
        .job = {.rows = rows, .weight = &step->packed, .from_f32 = from, .end = GEMM_PLAIN, .to.f32 = to},
        .chunks = 1,
    };
    if (parallel && step->outputs >= 2 * LEAST_OUTPUTS) { product.chunks = step->outputs / LEAST_OUTPUTS; }
    if (parallel) {
        parallel_for_run(parallel, &(struct parallel_step){product_chunk, &product, product.chunks});
    } else {
        product_chunk(&product, 0, 0);
    }
    for (uint32_t r = 0; r < rows; r++, to += step->outputs) {
        for (uint32_t o = 0; o < step->outputs; o++) {
            to[o] = activate_value(step->activation, to[o] + step->bias[o]);
        }
    }
}

static void run_layer_norm(const struct step *step, const float *from, float *to)
{
    uint32_t width = step->outputs;
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < width; i++) { sum += from[i]; }
    double mean = sum / width;
    for (uint32_t i = 0; i < width; i++) { squares += (from[i] - mean) * (from[i] - mean); }
    double scale = 1 / sqrt(squares / width + step->eps);
    for (uint32_t i = 0; i < width; i++) {
        to[i] = (float)((from[i] - mean) * scale) * step->weight[i] + step->bias[i];
    }
}

size_t modules_room(const struct modules *modules, uint32_t rows)
{
    return 2 * ((size_t)rows + GEMM_ROWS_BEHIND) * modules->widest;
}

void modules_run(const struct modules *modules, struct parallel_for *parallel, uint32_t rows, const float *vectors,
                 float *room, float *to)
{
    bool owns = parallel && parallel_for_enter(parallel, true);
    for (uint32_t i = 0; i < modules->count; i++) {
        const struct step *step = &modules->steps[i];
        /* The first product reads past `vectors` into the first half of the room, so it writes the second one. */
        float *next = room + (i + 1) % 2 * ((size_t)rows + GEMM_ROWS_BEHIND) * modules->widest;
        if (step->kind == MODULE_DENSE) { run_dense(modules, step, owns ? parallel : NULL, rows, vectors, next); }
        for (uint32_t r = 0; r < rows && step->kind != MODULE_DENSE; r++) {
            size_t at = (size_t)r * step->outputs;
            if (step->kind == MODULE_LAYER_NORM) {
                run_layer_norm(step, vectors + at, next + at);
            } else {
                memcpy(next + at, vectors + at, step->outputs * sizeof *next);
                vector_normalize(next + at, step->outputs);
            }
        }
        vectors = next;
    }
    memcpy(to, vectors, (size_t)rows * modules->steps[modules->count - 1].outputs * sizeof *to);
    if (parallel) { parallel_for_leave(parallel, owns); }
}
