/* A product runs over the inputs, so that the sums of all outputs grow side by side, each in the order of its inputs:
 * the compiler may use vectors without another order. For that the weights are kept as [inputs, outputs]. */
#include "engine/head.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct product {
    uint32_t inputs, outputs;
    float *weight; /* [inputs, outputs] */
    float *bias;   /* [outputs] */
};

struct head {
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

enum status head_open(const struct model *model, struct head **out, struct err *err)
{
    *out = NULL;
    if (model->head.labels == 0) { return STATUS_OK; }
    struct head *head = calloc(1, sizeof *head);
    if (!head) { return err_set(err, STATUS_NO_MEMORY, "no memory for the head"); }
    const struct model_head *from = &model->head;
    head->relu = from->relu;
    enum status status = product_open(&from->dense, model->dim, model->dim, model->read_once, &head->dense, err);
    if (status == STATUS_OK) {
        status = product_open(&from->out, from->labels, model->dim, model->read_once, &head->out, err);
    }
    if (status == STATUS_OK) {
        *out = head;
    } else {
        head_close(head);
    }
    return status;
}

void head_close(struct head *head)
{
    if (!head) { return; }
    product_close(&head->dense);
    product_close(&head->out);
    free(head);
}

void head_run(const struct head *head, const float *vector, float *room, float *logits)
{
    product_run(&head->dense, vector, room);
    for (uint32_t i = 0; i < head->dense.outputs; i++) { room[i] = head->relu ? fmaxf(room[i], 0.0f) : tanhf(room[i]); }
    product_run(&head->out, room, logits);
}
