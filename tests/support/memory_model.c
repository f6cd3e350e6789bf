/* All weights are in one block, in the order in which they are asked for. */
#include "memory_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct block {
    float *next;
    uint64_t state;
    bool bare;   /* no biases */
    double gain; /* of a norm, about */
};

static double uniform(struct block *block)
{
    uint64_t x = block->state += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return (double)((x ^ x >> 31) >> 11) * 0x1p-53;
}

/* Near enough to a normal distribution: the sum of four uniform numbers, scaled to that deviation. */
static float spread(struct block *block, double deviation)
{
    double sum = uniform(block) + uniform(block) + uniform(block) + uniform(block) - 2.0;
    return (float)(sum * sqrt(3.0) * deviation);
}

static struct tensor matrix(struct block *block, uint64_t rows, uint64_t columns, double deviation, double centre)
{
    struct tensor tensor = {.dtype = DTYPE_F32, .rank = columns == 1 ? 1 : 2, .shape = {rows, columns}};
    tensor.data = block->next;
    tensor.elements = rows * columns;
    for (size_t i = 0; i < tensor.elements; i++) { *block->next++ = (float)centre + spread(block, deviation); }
    return tensor;
}

static struct linear linear(struct block *block, uint64_t outputs, uint64_t inputs)
{
    struct linear linear = {0};
    linear.weight = matrix(block, outputs, inputs, 1.0 / sqrt((double)inputs), 0.0);
    if (!block->bare) { linear.bias = matrix(block, outputs, 1, 0.05, 0.0); }
    return linear;
}

static struct layer_norm norm(struct block *block, uint64_t width)
{
    struct layer_norm norm = {0};
    norm.gain = matrix(block, width, 1, 0.1, block->gain);
    if (!block->bare) { norm.bias = matrix(block, width, 1, 0.05, 0.0); }
    return norm;
}

static struct model_layer layer(struct block *block, struct memory_shape shape)
{
    struct model_layer layer = {0};
    uint32_t query = shape.key_heads ? shape.heads * shape.head_dim : shape.hidden;
    uint32_t key = shape.key_heads ? shape.key_heads * shape.head_dim : shape.hidden;
    layer.query = linear(block, query, shape.hidden);
    layer.key = linear(block, key, shape.hidden);
    layer.value = linear(block, key, shape.hidden);
    if (shape.key_heads) {
        layer.query_norm = norm(block, shape.head_dim);
        layer.key_norm = norm(block, shape.head_dim);
    }
    if (shape.gemma) {
        layer.attention_added_norm = norm(block, shape.hidden);
        layer.output_added_norm = norm(block, shape.hidden);
    }
    layer.attention_output = linear(block, shape.hidden, query);
    layer.attention_norm = norm(block, shape.hidden);
    layer.intermediate = linear(block, shape.intermediate, shape.hidden);
    if (shape.modern) { layer.up = linear(block, shape.intermediate, shape.hidden); }
    layer.output = linear(block, shape.hidden, shape.intermediate);
    layer.output_norm = norm(block, shape.hidden);
    return layer;
}

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (memory == NULL) {
        fprintf(stderr, "memory_model: no memory\n");
        abort();
    }
    return memory;
}

struct model *memory_model(struct memory_shape shape, uint64_t seed)
{
    size_t hidden = shape.hidden, inner = shape.intermediate;
    size_t query = shape.key_heads ? shape.heads * shape.head_dim : hidden;
    size_t per_layer = 4 * (hidden + 1) * (query + 1) + 2 * (hidden + 1) * inner + (inner + 1) * hidden + 4 * hidden;
    size_t floats =
        (shape.vocabulary + shape.positions + 4) * hidden + shape.layers * per_layer + RELATIVE_BUCKETS * shape.heads;
    struct model *model = allocate(1, sizeof *model);
    struct block block = {allocate(floats, sizeof(float)), seed, shape.modern, shape.gemma ? 0 : 1};
    model->storage = block.next;
    model->vocabulary = shape.vocabulary;
    model->positions = model->max_tokens = shape.positions;
    model->token_types = 2;
    model->hidden = model->dim = shape.hidden;
    model->layer_count = shape.layers;
    model->heads = shape.heads;
    model->intermediate_size = shape.intermediate;
    model->layer_norm_eps = 1e-12f;
    model->activation = ACTIVATION_GELU_ERF;
    model->pooling = POOLING_MEAN;
    model->normalize = true;
    model->word_embeddings = matrix(&block, shape.vocabulary, hidden, 0.5, 0.0);
    if (!shape.modern) { model->position_embeddings = matrix(&block, shape.positions, hidden, 0.1, 0.0); }
    model->type_embeddings = matrix(&block, 2, hidden, 0.1, 0.0);
    model->embedding_norm = norm(&block, hidden);
    model->layers = allocate(shape.layers, sizeof *model->layers);
    for (uint32_t i = 0; i < shape.layers; i++) { model->layers[i] = layer(&block, shape); }
    model->pre_norm = model->gated = shape.modern;
    model->first_norm = model->rms_norm = shape.key_heads > 0;
    model->causal = shape.key_heads > 0 && !shape.gemma;
    model->gain_less_one = shape.gemma;
    model->word_scale = shape.gemma ? 3.5f : 0;
    model->score_width = shape.gemma ? 20 : 0;
    model->key_heads = shape.key_heads;
    model->head_dim = shape.head_dim;
    if (shape.modern) {
        model->window = 9;
        model->rotary[0] = (struct rotary){160000, 1.25};
        model->rotary[1] = (struct rotary){10000, 1};
    }
    for (uint32_t i = 1; i < shape.layers && shape.modern; i += 2) { model->layers[i].local = true; }
    if (shape.relative_bias) { model->relative_bias = matrix(&block, RELATIVE_BUCKETS, shape.heads, 1.0, 0.0); }
    return model;
}

void memory_model_free(struct model *model)
{
    free(model->layers);
    free(model->storage);
    free(model);
}
