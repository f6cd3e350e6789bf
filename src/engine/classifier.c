/* A product runs over the inputs, so that the sums of all outputs grow side by side, each in the order of its inputs:
 * the compiler may use vectors without another order. For that the weights are kept as [inputs, outputs]. */
#include "engine/classifier.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct product {
    uint32_t inputs, outputs;
    float *weight; /* [inputs, outputs] */
    float *bias;   /* [outputs] */
};

struct classifier {
    bool relu;
    struct product dense, out;
};

static enum status product_open(const struct linear *from, uint32_t outputs, uint32_t inputs, bool release,
                                struct product *to, struct err *err)
{
    size_t elements = (size_t)outputs * inputs;
    if (from->weight.elements != elements || from->bias.elements != outputs) {
        return err_set(err, STATUS_UNSUPPORTED, "the head does not fit the model's sizes");
    }
    *to = (struct product){inputs, outputs, malloc(elements * sizeof(float)), malloc(outputs * sizeof(float))};
    float *row = malloc(inputs * sizeof *row);
    bool enough = row && to->weight && to->bias;
    for (uint32_t o = 0; enough && o < outputs; o++) {
        tensor_read_f32(&from->weight, (size_t)o * inputs, inputs, row);
        for (uint32_t i = 0; i < inputs; i++) { to->weight[(size_t)i * outputs + o] = row[i]; }
    }
    free(row);
    if (!enough) { return err_set(err, STATUS_NO_MEMORY, "no memory for the head"); }
    tensor_read_f32(&from->bias, 0, outputs, to->bias);
    if (release) {
        tensor_release(&from->weight);
        tensor_release(&from->bias);
    }
    return STATUS_OK;
}

static void product_close(struct product *product)
{
    free(product->weight);
    free(product->bias);
}

static void product_run(const struct product *product, const float *restrict from, float *restrict to)
{
    uint32_t outputs = product->outputs;
    memcpy(to, product->bias, outputs * sizeof *to);
    for (uint32_t i = 0; i < product->inputs; i++) {
        const float *restrict weight = product->weight + (size_t)i * outputs;
        float x = from[i];
        for (uint32_t o = 0; o < outputs; o++) { to[o] += x * weight[o]; }
    }
}

enum status classifier_open(const struct model *model, struct classifier **out, struct err *err)
{
    *out = NULL;
    if (model->head.labels == 0) { return STATUS_OK; }
    struct classifier *classifier = calloc(1, sizeof *classifier);
    if (!classifier) { return err_set(err, STATUS_NO_MEMORY, "no memory for the head"); }
    const struct model_head *from = &model->head;
    classifier->relu = from->relu;
    enum status status = product_open(&from->dense, model->dim, model->dim, model->read_once, &classifier->dense, err);
    if (status == STATUS_OK) {
        status = product_open(&from->out, from->labels, model->dim, model->read_once, &classifier->out, err);
    }
    if (status == STATUS_OK) {
        *out = classifier;
    } else {
        classifier_close(classifier);
    }
    return status;
}

void classifier_close(struct classifier *classifier)
{
    if (!classifier) { return; }
    product_close(&classifier->dense);
    product_close(&classifier->out);
    free(classifier);
}

void classifier_run(const struct classifier *classifier, const float *vector, float *room, float *logits)
{
    product_run(&classifier->dense, vector, room);
    for (uint32_t i = 0; i < classifier->dense.outputs; i++) {
        room[i] = classifier->relu ? fmaxf(room[i], 0.0f) : tanhf(room[i]);
    }
    product_run(&classifier->out, room, logits);
}
