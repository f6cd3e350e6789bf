/* A product runs over the inputs, so that the sums of all outputs grow side by side, each in the order of its inputs:
 * the compiler may use vectors without another order. For that the weights are kept as [inputs, outputs].
 * Source: Dense, LayerNorm and Normalize of sentence-transformers 6.2. */
#include "engine/modules.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/vector.h"

struct step {
    enum module_kind kind;
    enum module_activation activation;
    uint32_t inputs, outputs;
    double eps;
    float *weight; /* dense [inputs, outputs], LayerNorm [outputs] */
    float *bias;   /* [outputs], zeros where the module has none */
};

struct modules {
    uint32_t count, widest; /* outputs */
    struct step steps[];    /* [count] */
};

static enum status step_open(const struct model_module *from, bool release, struct step *to, struct err *err)
{
    *to = (struct step){from->kind, from->activation, from->inputs, from->outputs, from->eps, NULL, NULL};
    if (from->kind == MODULE_NORMALIZE) { return STATUS_OK; }
    uint32_t columns = from->kind == MODULE_DENSE ? from->inputs : 1, outputs = from->outputs;
    if (from->weight.elements != (size_t)outputs * columns || (from->biased && from->bias.elements != outputs)) {
        return err_set(err, STATUS_UNSUPPORTED, "the module %s does not fit the model's sizes", from->name);
    }
    float *row = malloc(columns * sizeof *row);
    to->weight = malloc((size_t)outputs * columns * sizeof(float));
    to->bias = calloc(outputs, sizeof(float));
    bool enough = row && to->weight && to->bias;
    for (uint32_t o = 0; enough && o < outputs; o++) {
        tensor_read_f32(&from->weight, (size_t)o * columns, columns, row);
        for (uint32_t i = 0; i < columns; i++) { to->weight[(size_t)i * outputs + o] = row[i]; }
    }
    free(row);
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
    enum status status = STATUS_OK;
    while (status == STATUS_OK && modules->count < model->module_count) {
        struct step *step = &modules->steps[modules->count];
        status = step_open(&model->modules[modules->count++], model->read_once, step, err);
        if (step->outputs > modules->widest) { modules->widest = step->outputs; }
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

static float activate(enum module_activation activation, float x)
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

static void run_dense(const struct step *step, const float *restrict from, float *restrict to)
{
    uint32_t outputs = step->outputs;
    memcpy(to, step->bias, outputs * sizeof *to);
    for (uint32_t i = 0; i < step->inputs; i++) {
        const float *restrict weight = step->weight + (size_t)i * outputs;
        float x = from[i];
        for (uint32_t o = 0; o < outputs; o++) { to[o] += x * weight[o]; }
    }
    if (step->activation == MODULE_IDENTITY) { return; }
    for (uint32_t o = 0; o < outputs; o++) { to[o] = activate(step->activation, to[o]); }
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

static void run_step(const struct step *step, const float *from, float *to)
{
    if (step->kind == MODULE_DENSE) {
        run_dense(step, from, to);
    } else if (step->kind == MODULE_LAYER_NORM) {
        run_layer_norm(step, from, to);
    } else {
        memcpy(to, from, step->outputs * sizeof *to);
        vector_normalize(to, step->outputs);
    }
}

size_t modules_room(const struct modules *modules)
{
    return 2 * (size_t)modules->widest;
}

void modules_run(const struct modules *modules, const float *vector, float *room, float *to)
{
    for (uint32_t i = 0; i < modules->count; i++) {
        float *next = i + 1 == modules->count ? to : room + (size_t)(i % 2) * modules->widest;
        run_step(&modules->steps[i], vector, next);
        vector = next;
    }
}
