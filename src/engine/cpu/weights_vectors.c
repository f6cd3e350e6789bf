/* What the CPU backend keeps of a model beside the weights of its products: embeddings, norms and biases. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "engine/cpu/weights_parts.h"

enum status cpu_weights_no_memory(size_t elements, struct err *err)
{
    return err_set(err, STATUS_NO_MEMORY, "no memory for %zu weights", elements);
}

void cpu_weights_copied(const struct cpu_weights *weights, const struct tensor *tensor)
{
    if (weights->backend.model->read_once)
        tensor_release(tensor);
}

/* Vectors are read by whole SIMD registers at most up to their end, so plain malloc's alignment will do. */
static enum status keep_vector(struct cpu_weights *weights, const struct tensor *tensor, size_t elements, float **out,
                               struct err *err)
{
    if (tensor->elements != elements)
        return err_set(err, STATUS_UNSUPPORTED, "a weight has %zu elements where %zu belong", tensor->elements,
                       elements);
    float *values = memory_aligned(elements * sizeof *values);
    if (values == NULL)
        return cpu_weights_no_memory(elements, err);
    tensor_read_f32(tensor, 0, elements, values);
    cpu_weights_copied(weights, tensor);
    weights->bytes += elements * sizeof *values;
    *out = values;
    return STATUS_OK;
}

static enum status keep_norm(struct cpu_weights *weights, const struct model *model, const struct layer_norm *norm,
                             struct norm_weights *out, struct err *err)
{
    TRY(keep_vector(weights, &norm->gain, model->hidden, &out->gain, err));
    TRY(keep_vector(weights, &norm->bias, model->hidden, &out->bias, err));
    out->eps = model->layer_norm_eps;
    return STATUS_OK;
}

/* --- embeddings ----------------------------------------------------------------------------------------------------
 */

static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static enum status keep_words16(struct cpu_weights *weights, const struct model *model, struct err *err)
{
    const struct tensor *words = &model->word_embeddings;
    float *row = malloc(model->hidden * sizeof *row);
    weights->word16 = memory_aligned(words->elements * sizeof *weights->word16);
    if (row == NULL || weights->word16 == NULL) {
        free(row);
        return cpu_weights_no_memory(words->elements, err);
    }
    for (size_t at = 0; at < words->elements; at += model->hidden) {
        tensor_read_f32(words, at, model->hidden, row);
        for (uint32_t i = 0; i < model->hidden; i++)
            weights->word16[at + i] = to_bf16(row[i]);
    }
    free(row);
    cpu_weights_copied(weights, words);
    weights->bytes += words->elements * sizeof *weights->word16;
    return STATUS_OK;
}

enum status cpu_weights_keep_embeddings(struct cpu_weights *weights, enum precision precision, struct err *err)
{
    const struct model *model = weights->backend.model;
    size_t hidden = model->hidden, words = (size_t)model->vocabulary * hidden;
    size_t places = model->max_tokens * hidden, first = model->position_offset * hidden;
    if (model->word_embeddings.elements != words || model->position_embeddings.elements < first + places ||
        model->type_embeddings.elements < hidden)
        return err_set(err, STATUS_UNSUPPORTED, "the embeddings do not fit the model's sizes");
    if (precision == PRECISION_BF16 || precision == PRECISION_INT8)
        TRY(keep_words16(weights, model, err));
    else
        TRY(keep_vector(weights, &model->word_embeddings, words, &weights->word, err));

    float *type = malloc(hidden * sizeof *type);
    weights->place = malloc(places * sizeof *weights->place);
    if (type == NULL || weights->place == NULL) {
        free(type);
        return cpu_weights_no_memory(places, err);
    }
    weights->bytes += places * sizeof *weights->place;
    tensor_read_f32(&model->position_embeddings, first, places, weights->place);
    tensor_read_f32(&model->type_embeddings, 0, hidden, type);
    for (size_t i = 0; i < places; i++)
        weights->place[i] += type[i % hidden];
    free(type);
    return keep_norm(weights, model, &model->embedding_norm, &weights->embedding_norm, err);
}

/* --- layers --------------------------------------------------------------------------------------------------------
 */

struct site_linears cpu_weights_linears(const struct model *model, uint32_t layer, unsigned site)
{
    const struct model_layer *from = &model->layers[layer];
    const struct linear *const parts[CPU_SHAPES][3] = {
        [LINEAR_QKV] = {&from->query, &from->key, &from->value},
        [LINEAR_ATTENTION_OUTPUT] = {&from->attention_output},
        [LINEAR_INTERMEDIATE] = {&from->intermediate},
        [LINEAR_OUTPUT] = {&from->output},
    };
    struct site_linears linears = {.count = site == LINEAR_QKV ? 3 : 1};
    memcpy(linears.part, parts[site], sizeof linears.part);
    backend_linear_shape(model, site, &linears.outputs, &linears.inputs);
    return linears;
}

static enum status keep_bias(struct cpu_weights *weights, const struct site_linears *from, struct cpu_linear *out,
                             struct err *err)
{
    size_t rows = from->outputs / from->count;
    out->bias = malloc(from->outputs * sizeof *out->bias);
    if (out->bias == NULL)
        return cpu_weights_no_memory(from->outputs, err);
    for (unsigned i = 0; i < from->count; i++) {
        if (from->part[i]->weight.elements != rows * from->inputs || from->part[i]->bias.elements != rows)
            return err_set(err, STATUS_UNSUPPORTED, "a linear layer does not have %zu by %u weights", rows,
                           from->inputs);
        tensor_read_f32(&from->part[i]->bias, 0, rows, out->bias + i * rows);
    }
    weights->bytes += from->outputs * sizeof *out->bias;
    return STATUS_OK;
}

enum status cpu_weights_keep_vectors(struct cpu_weights *weights, uint32_t layer, struct err *err)
{
    const struct model *model = weights->backend.model;
    const struct model_layer *from = &model->layers[layer];
    struct cpu_layer *to = &weights->layers[layer];
    for (unsigned site = 0; site < CPU_SHAPES; site++) {
        struct site_linears linears = cpu_weights_linears(model, layer, site);
        TRY(keep_bias(weights, &linears, &to->linear[site], err));
    }
    TRY(keep_norm(weights, model, &from->attention_norm, &to->norm[NORM_ATTENTION], err));
    return keep_norm(weights, model, &from->output_norm, &to->norm[NORM_OUTPUT], err);
}
