/* From the model's tensors, in whatever type the file has, to what the CPU backend computes with. */
#include "engine/cpu_weights.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static enum status no_memory(size_t elements, struct err *err)
{
    return err_set(err, STATUS_NO_MEMORY, "no memory for %zu weights", elements);
}

static void copied(const struct cpu_weights *weights, const struct tensor *tensor)
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
        return no_memory(elements, err);
    tensor_read_f32(tensor, 0, elements, values);
    copied(weights, tensor);
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
        return no_memory(words->elements, err);
    }
    for (size_t at = 0; at < words->elements; at += model->hidden) {
        tensor_read_f32(words, at, model->hidden, row);
        for (uint32_t i = 0; i < model->hidden; i++)
            weights->word16[at + i] = to_bf16(row[i]);
    }
    free(row);
    copied(weights, words);
    weights->bytes += words->elements * sizeof *weights->word16;
    return STATUS_OK;
}

static enum status keep_embeddings(struct cpu_weights *weights, const struct model *model, enum precision precision,
                                   struct err *err)
{
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
        return no_memory(places, err);
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

void cpu_weights_shape(const struct model *model, unsigned site, uint32_t *outputs, uint32_t *inputs)
{
    const uint32_t shapes[CPU_SHAPES][2] = {
        [LINEAR_QKV] = {3 * model->hidden, model->hidden},
        [LINEAR_ATTENTION_OUTPUT] = {model->hidden, model->hidden},
        [LINEAR_INTERMEDIATE] = {model->intermediate_size, model->hidden},
        [LINEAR_OUTPUT] = {model->hidden, model->intermediate_size},
    };
    *outputs = shapes[site][0];
    *inputs = shapes[site][1];
}

/* Whether a linear is kept in int8. The attention's output stays in bf16 where tiles compute it. */
static bool is_whole(const struct cpu_weights *weights, unsigned site)
{
    return weights->int8 != NULL && (weights->tiles == NULL || site != LINEAR_ATTENTION_OUTPUT);
}

static size_t packed_bytes(const struct cpu_weights *weights, unsigned site, uint32_t outputs, uint32_t inputs)
{
    if (is_whole(weights, site))
        return int8_weight_bytes(outputs, inputs);
    if (weights->tiles == NULL)
        return matmul_packed_bytes(weights->shapes[site]);
    return (size_t)outputs * inputs * sizeof(uint16_t);
}

/* Packs linears that share their input as one product with their outputs behind each other. */
static enum status keep_linear(struct cpu_weights *weights, unsigned site, const struct linear *const *parts,
                               uint32_t outputs, uint32_t inputs, float *plain, struct cpu_linear *out, struct err *err)
{
    unsigned count = site == LINEAR_QKV ? 3 : 1;
    size_t rows = outputs / count, block = rows * inputs;
    out->bias = malloc(outputs * sizeof *out->bias);
    if (out->bias == NULL)
        return no_memory(outputs, err);
    for (unsigned i = 0; i < count; i++) {
        if (parts[i]->weight.elements != block || parts[i]->bias.elements != rows)
            return err_set(err, STATUS_UNSUPPORTED, "a linear layer does not have %zu by %u weights", rows, inputs);
        tensor_read_f32(&parts[i]->weight, 0, block, plain + i * block);
        copied(weights, &parts[i]->weight);
        tensor_read_f32(&parts[i]->bias, 0, rows, out->bias + i * rows);
    }
    weights->bytes += outputs * sizeof *out->bias;
    void *to = memory_part(weights->packed, &weights->packed_used, packed_bytes(weights, site, outputs, inputs));
    if (is_whole(weights, site)) { /* GELU and ReLU give little below zero */
        int8_weight_pack(outputs, inputs, plain, site == LINEAR_OUTPUT, to, &out->whole);
        return STATUS_OK;
    }
    if (weights->tiles == NULL)
        return matmul_pack(weights->shapes[site], plain, to, &out->packed, err);
    out->tiles = to;
    weights->tiles->pack(outputs, inputs, plain, to);
    return STATUS_OK;
}

static enum status keep_layer(struct cpu_weights *weights, const struct model *model, const struct model_layer *from,
                              float *plain, struct cpu_layer *to, struct err *err)
{
    const struct linear *const parts[CPU_SHAPES][3] = {
        [LINEAR_QKV] = {&from->query, &from->key, &from->value},
        [LINEAR_ATTENTION_OUTPUT] = {&from->attention_output},
        [LINEAR_INTERMEDIATE] = {&from->intermediate},
        [LINEAR_OUTPUT] = {&from->output},
    };
    for (unsigned site = 0; site < CPU_SHAPES; site++) {
        uint32_t outputs, inputs;
        cpu_weights_shape(model, site, &outputs, &inputs);
        TRY(keep_linear(weights, site, parts[site], outputs, inputs, plain, &to->linear[site], err));
    }
    TRY(keep_norm(weights, model, &from->attention_norm, &to->norm[NORM_ATTENTION], err));
    return keep_norm(weights, model, &from->output_norm, &to->norm[NORM_OUTPUT], err);
}

/* Compiles the products of a layer, and makes room for the weights of all. */
static enum status prepare_products(struct cpu_weights *weights, const struct model *model, enum precision precision,
                                    struct err *err)
{
    size_t bytes = 0;
    for (unsigned site = 0; site < CPU_SHAPES; site++) {
        uint32_t outputs, inputs;
        cpu_weights_shape(model, site, &outputs, &inputs);
        bool whole = site != LINEAR_INTERMEDIATE;
        if (weights->tiles == NULL && weights->int8 == NULL)
            TRY(matmul_open(weights->device, outputs, inputs, precision, whole, &weights->shapes[site], err));
        memory_part(NULL, &bytes, packed_bytes(weights, site, outputs, inputs));
    }
    bytes *= model->layer_count;
    weights->packed = memory_aligned(bytes);
    weights->bytes += bytes;
    return weights->packed == NULL ? no_memory(bytes, err) : STATUS_OK;
}

static enum status keep_layers(struct cpu_weights *weights, const struct model *model, enum precision precision,
                               struct err *err)
{
    weights->layers = calloc(model->layer_count, sizeof *weights->layers);
    if (weights->layers == NULL)
        return no_memory(model->layer_count, err);
    TRY(prepare_products(weights, model, precision, err));
    size_t longer = model->intermediate_size > 3 * model->hidden ? model->intermediate_size : 3 * model->hidden;
    size_t largest = longer * model->hidden; /* elements of any product */
    float *plain = malloc(largest * sizeof *plain);
    if (plain == NULL)
        return no_memory(largest, err);
    enum status status = STATUS_OK;
    for (uint32_t layer = 0; layer < model->layer_count && status == STATUS_OK; layer++)
        status = keep_layer(weights, model, &model->layers[layer], plain, &weights->layers[layer], err);
    free(plain);
    return status;
}

static enum status fill(struct cpu_weights *weights, const struct model *model, enum precision precision,
                        struct err *err)
{
    if (model->heads == 0 || model->hidden % model->heads != 0 || model->dim > model->hidden || model->dim == 0)
        return err_set(err, STATUS_UNSUPPORTED, "%u hidden units in %u heads, %u of them in the vector", model->hidden,
                       model->heads, model->dim);
    weights->int8 = precision == PRECISION_INT8 ? int8_pick() : NULL;
    bool fits = model->hidden % TILES_MULTIPLE == 0 && model->intermediate_size % TILES_MULTIPLE == 0 &&
                model->hidden / model->heads % TILES_MULTIPLE == 0;
    weights->tiles = precision != PRECISION_F32 && fits ? weights->kernels->tiles : NULL;
    TRY(matmul_device_open(&weights->device, err));
    TRY(keep_embeddings(weights, model, precision, err));
    return keep_layers(weights, model, precision, err);
}

enum status cpu_weights_open(const struct model *model, enum precision precision, struct cpu_weights **out,
                             struct err *err)
{
    struct cpu_weights *weights = calloc(1, sizeof *weights);
    if (weights == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the CPU backend");
    weights->backend.model = model;
    weights->kernels = kernels_pick();
    enum status status = fill(weights, model, precision, err);
    if (status != STATUS_OK) {
        cpu_weights_close(weights);
        return status;
    }
    *out = weights;
    return STATUS_OK;
}

static void close_layer(struct cpu_layer *layer)
{
    for (unsigned site = 0; site < CPU_SHAPES; site++) {
        matmul_weights_close(layer->linear[site].packed);
        free(layer->linear[site].bias);
    }
    for (unsigned site = 0; site < CPU_NORMS; site++) {
        free(layer->norm[site].gain);
        free(layer->norm[site].bias);
    }
}

void cpu_weights_close(struct cpu_weights *weights)
{
    if (weights == NULL)
        return;
    for (uint32_t layer = 0; weights->layers != NULL && layer < weights->backend.model->layer_count; layer++)
        close_layer(&weights->layers[layer]);
    free(weights->layers);
    free(weights->embedding_norm.gain);
    free(weights->embedding_norm.bias);
    free(weights->place);
    free(weights->packed);
    free(weights->word);
    free(weights->word16);
    for (unsigned site = 0; site < CPU_SHAPES; site++)
        matmul_close(weights->shapes[site]);
    matmul_device_close(weights->device);
    free(weights);
}
