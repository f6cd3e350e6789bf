#include "engine/cuda/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "engine/cuda/memory.h"

/* --- rounding to 16 bits --- */

static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded); /* a NaN stays NaN */
}

void cuda_narrow(enum kernel_type type, const float *values, size_t count, float scale, void *to)
{
    float *f32 = to;
    uint16_t *half = to;
    if (type == KERNEL_F32) {
        for (size_t i = 0; i < count; i++) { f32[i] = values[i] * scale; }
    } else if (type == KERNEL_F16) {
        for (size_t i = 0; i < count; i++) { half[i] = half_from_float(values[i] * scale); }
    } else {
        for (size_t i = 0; i < count; i++) { half[i] = to_bf16(values[i] * scale); }
    }
}

/* --- upload --- */

/* Converts a piece in pinned memory while the piece before it is copied. */
enum { PIECES = 2, PIECE_ELEMENTS = 1 << 19 }; /* 2 MiB of f32 each */

struct loader {
    const struct cuda_api *api;
    const struct model *model;
    enum kernel_type type;
    cudaStream_t cuda_stream;
    cudaEvent_t copied[PIECES]; /* recorded after the copy from that piece */
    unsigned next;
    char *pinned;   /* [PIECES][PIECE_ELEMENTS] f32 */
    float *plain;   /* [PIECE_ELEMENTS] */
    float *scratch; /* [scratch_elements] */
};

/* The elements of one table of rotary positions. */
static size_t rotary_elements(const struct model *model)
{
    return (size_t)model->max_tokens * model_head_dim(model);
}

/* The scratch for rows of positions, a table of rotary positions, or the biases that load_attention computes. */
static size_t scratch_elements(const struct model *model)
{
    size_t most = 3 * (size_t)model_key_width(model) + model_query_width(model) + model->hidden;
    size_t positions = (size_t)model_position_rows(model) * model->hidden, rotary = rotary_elements(model);
    if (most < positions) { most = positions; }
    return most < rotary ? rotary : most;
}

static enum status loader_open(struct loader *loader, struct err *err)
{
    const struct cuda_api *api = loader->api;
    const struct model *model = loader->model;
    static const char what[] = "preparing to copy the weights";
    loader->plain = malloc(PIECE_ELEMENTS * sizeof *loader->plain);
    loader->scratch = malloc(scratch_elements(model) * sizeof *loader->scratch);
    if (!loader->plain || !loader->scratch) { return err_set(err, STATUS_NO_MEMORY, "no memory to copy the weights"); }
    TRY(cuda_check(api, api->cudaStreamCreateWithFlags(&loader->cuda_stream, cudaStreamNonBlocking), what, err));
    for (int i = 0; i < PIECES; i++) {
        TRY(cuda_check(api, api->cudaEventCreateWithFlags(&loader->copied[i], cudaEventDisableTiming), what, err));
    }
    void *pinned;
    TRY(cuda_check(api, api->cudaHostAlloc(&pinned, PIECES * PIECE_ELEMENTS * sizeof(float), cudaHostAllocDefault),
                   what, err));
    loader->pinned = pinned;
    return STATUS_OK;
}

static void loader_close(struct loader *loader)
{
    const struct cuda_api *api = loader->api;
    if (loader->cuda_stream) {
        (void)api->cudaStreamSynchronize(loader->cuda_stream); /* after an error a copy may still read pinned memory */
    }
    for (int i = 0; i < PIECES; i++) {
        if (loader->copied[i]) { (void)api->cudaEventDestroy(loader->copied[i]); }
    }
    if (loader->cuda_stream) { (void)api->cudaStreamDestroy(loader->cuda_stream); }
    if (loader->pinned) { (void)api->cudaFreeHost(loader->pinned); }
    free(loader->scratch);
    free(loader->plain);
}

/* Waits until the last copy from this piece is over; an event that was never recorded counts as over. */
static enum status put_piece(struct loader *loader, enum kernel_type type, const float *values, size_t count,
                             float scale, void *to, struct err *err)
{
    const struct cuda_api *api = loader->api;
    static const char what[] = "copying the weights";
    unsigned piece = loader->next++ % PIECES;
    char *pinned = loader->pinned + piece * PIECE_ELEMENTS * sizeof(float);
    size_t bytes = count * kernel_type_bytes(type);
    TRY(cuda_check(api, api->cudaEventSynchronize(loader->copied[piece]), what, err));
    cuda_narrow(type, values, count, scale, pinned);
    TRY(cuda_check(api, api->cudaMemcpyAsync(to, pinned, bytes, cudaMemcpyHostToDevice, loader->cuda_stream), what,
                   err));
    return cuda_check(api, api->cudaEventRecord(loader->copied[piece], loader->cuda_stream), what, err);
}

static void *element(void *to, enum kernel_type type, size_t at)
{
    return (char *)to + at * kernel_type_bytes(type);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Uploads f32 values. Shapes: values [count], may be reused on return; to [count] of the type, in device memory. */
static enum status upload(struct loader *loader, enum kernel_type type, const float *values, size_t count, void *to,
                          struct err *err)
{
    for (size_t at = 0; at < count; at += PIECE_ELEMENTS) {
        TRY(put_piece(loader, type, values + at, least(count - at, PIECE_ELEMENTS), 1, element(to, type, at), err));
    }
    return STATUS_OK;
}

bool cuda_first_tokens_only(const struct model *model, uint32_t layer)
{
    return model->pooling == POOLING_CLS && layer + 1 == model->layer_count &&
           !model->layers[layer].query_norm.gain.data;
}

/* --- layout --- */

/* Reserves parts of the block; without a block it only counts. */
struct layout {
    char *block;
    size_t used, element;
};

static void *part(struct layout *layout, size_t bytes)
{
    void *at = layout->block ? layout->block + layout->used : NULL;
    layout->used += (bytes + CUDA_ALIGNMENT - 1) / CUDA_ALIGNMENT * CUDA_ALIGNMENT;
    return at;
}

static struct cuda_norm lay_out_norm(struct layout *layout, size_t hidden)
{
    struct cuda_norm norm;
    norm.gain = part(layout, hidden * sizeof(float));
    norm.shift = part(layout, hidden * sizeof(float));
    return norm;
}

static struct cuda_linear lay_out_linear(struct layout *layout, size_t outputs, size_t inputs)
{
    struct cuda_linear linear;
    linear.weight = part(layout, layout->element * outputs * inputs);
    linear.bias = part(layout, layout->element * outputs);
    return linear;
}

/* The rows of a matrix from `row` on. */
static struct cuda_linear from_row(const struct layout *layout, const struct cuda_linear *linear, size_t row,
                                   size_t inputs)
{
    if (!layout->block) { return (struct cuda_linear){0}; }
    return (struct cuda_linear){(char *)linear->weight + layout->element * row * inputs,
                                (char *)linear->bias + layout->element * row};
}

static struct cuda_layer lay_out_layer(struct layout *layout, const struct model *model, uint32_t index)
{
    const bool first_tokens = cuda_first_tokens_only(model, index);
    struct cuda_layer layer;
    size_t hidden = model->hidden, query = model_query_width(model);
    for (unsigned site = 0; site < CUDA_LINEARS; site++) {
        uint32_t outputs, inputs;
        backend_linear_shape(model, (enum linear_site)site, &outputs, &inputs);
        bool queries = first_tokens && site == LINEAR_QKV;
        layer.linear[site] = lay_out_linear(layout, queries ? query : outputs, inputs);
    }
    if (first_tokens) {
        layer.keys_values = lay_out_linear(layout, 2 * (size_t)model_key_width(model), hidden);
    } else {
        layer.keys_values = from_row(layout, &layer.linear[LINEAR_QKV], query, hidden);
    }
    const bool normed = model->layers[index].query_norm.gain.data;
    layer.query_gain = normed ? part(layout, model_head_dim(model) * sizeof(float)) : NULL;
    layer.key_gain = normed ? part(layout, model_head_dim(model) * sizeof(float)) : NULL;
    const bool added = model->layers[index].attention_added_norm.gain.data;
    for (unsigned site = 0; site < CUDA_NORMS; site++) {
        layer.added_gain[site] = added ? part(layout, hidden * sizeof(float)) : NULL;
        layer.norm[site] = lay_out_norm(layout, hidden);
    }
    return layer;
}

/* Without `layers` it only computes the size. */
static size_t lay_out(struct cuda_weights *weights, char *block)
{
    const struct model *model = weights->model;
    struct layout layout = {.block = block, .element = kernel_type_bytes(weights->type)};
    weights->word = part(&layout, layout.element * model->vocabulary * model->hidden);
    weights->position = part(&layout, layout.element * model_position_rows(model) * model->hidden);
    if (model->relative_bias.data) {
        weights->relative_bias = part(&layout, model->heads * (2 * (size_t)model->max_tokens - 1) * sizeof(float));
    }
    for (int local = 0; local < 2 && model->rotary[local].base > 0; local++) {
        weights->rotary[local] = part(&layout, rotary_elements(model) * sizeof(float));
    }
    weights->embedding_norm = lay_out_norm(&layout, model->hidden);
    for (uint32_t i = 0; i < model->layer_count; i++) {
        struct cuda_layer layer = lay_out_layer(&layout, model, i);
        if (weights->layers) { weights->layers[i] = layer; }
    }
    return layout.used;
}

size_t cuda_weights_bytes(const struct model *model, enum kernel_type type)
{
    struct cuda_weights nowhere = {.model = model, .type = type};
    return lay_out(&nowhere, NULL);
}

/* --- loading --- */

static enum status expect(const struct tensor *tensor, size_t elements, struct err *err)
{
    if (tensor->elements == elements) { return STATUS_OK; }
    return err_set(err, STATUS_UNSUPPORTED, "a weight has %zu elements where %zu belong", tensor->elements, elements);
}

/* Reads part of a bias; an empty one gives zeros. */
static void read_bias(const struct tensor *tensor, size_t first, size_t count, float *to)
{
    if (tensor->elements > 0) {
        tensor_read_f32(tensor, first, count, to);
    } else {
        memset(to, 0, count * sizeof *to);
    }
}

/* Uploads a tensor times `scale` in the given type. */
static enum status load_bias(struct loader *loader, enum kernel_type type, const struct tensor *tensor, size_t elements,
                             float scale, void *to, struct err *err)
{
    if (tensor->elements > 0) { TRY(expect(tensor, elements, err)); }
    for (size_t at = 0; at < elements; at += PIECE_ELEMENTS) {
        size_t now = least(elements - at, PIECE_ELEMENTS);
        read_bias(tensor, at, now, loader->plain);
        TRY(put_piece(loader, type, loader->plain, now, scale, element(to, type, at), err));
    }
    if (loader->model->read_once) { tensor_release(tensor); }
    return STATUS_OK;
}

static enum status load(struct loader *loader, enum kernel_type type, const struct tensor *tensor, size_t elements,
                        float scale, void *to, struct err *err)
{
    TRY(expect(tensor, elements, err));
    return load_bias(loader, type, tensor, elements, scale, to, err);
}

/* Uploads gains times `scale`; there are at most KERNEL_HIDDEN_MAX of them. */
static enum status load_gain(struct loader *loader, const struct tensor *gain, size_t width, float scale, float *to,
                             struct err *err)
{
    TRY(expect(gain, width, err));
    tensor_read_f32(gain, 0, width, loader->plain);
    for (size_t i = 0; loader->model->gain_less_one && i < width; i++) { loader->plain[i] += 1; }
    if (loader->model->read_once) { tensor_release(gain); }
    return put_piece(loader, KERNEL_F32, loader->plain, width, scale, to, err);
}

static enum status load_norm(struct loader *loader, const struct layer_norm *norm, const struct cuda_norm *to,
                             struct err *err)
{
    TRY(load_gain(loader, &norm->gain, loader->model->hidden, 1, to->gain, err));
    return load_bias(loader, KERNEL_F32, &norm->bias, loader->model->hidden, 1, to->shift, err);
}

/* Uploads a matrix and its bias to the rows of `to` from `row` on. */
static enum status load_linear(struct loader *loader, const struct linear *linear, size_t row, size_t outputs,
                               size_t inputs, const struct cuda_linear *to, struct err *err)
{
    const enum kernel_type type = loader->type;
    TRY(load(loader, type, &linear->weight, outputs * inputs, 1, element(to->weight, type, row * inputs), err));
    return load_bias(loader, type, &linear->bias, outputs, 1, element(to->bias, type, row), err);
}

/* bias + weight value_bias, in f64; a head of values applies its part of the bias to each head of its group. Shapes:
 * scratch [model_query_width + model_key_width]; to [hidden]. */
static enum status fold_value_bias(const struct model *model, const struct linear *output,
                                   const struct tensor *value_bias, float *scratch, float *to, struct err *err)
{
    const uint32_t hidden = model->hidden, width = model_query_width(model), key_width = model_key_width(model);
    const uint32_t head_dim = model_head_dim(model), group = width / key_width;
    float *row = scratch, *values = scratch + width;
    TRY(expect(&output->weight, (size_t)hidden * width, err));
    if (output->bias.elements > 0) { TRY(expect(&output->bias, hidden, err)); }
    if (value_bias->elements > 0) { TRY(expect(value_bias, key_width, err)); }
    read_bias(value_bias, 0, key_width, values);
    read_bias(&output->bias, 0, hidden, to);
    for (uint32_t o = 0; o < hidden && value_bias->elements > 0; o++) {
        double sum = to[o];
        tensor_read_f32(&output->weight, (size_t)o * width, width, row);
        for (uint32_t i = 0; i < width; i++) {
            sum += (double)row[i] * values[i / head_dim / group * head_dim + i % head_dim];
        }
        to[o] = (float)sum;
    }
    return STATUS_OK;
}

static enum status load_attention(struct loader *loader, const struct model_layer *from, const struct cuda_layer *to,
                                  struct err *err)
{
    const struct model *model = loader->model;
    const enum kernel_type type = loader->type;
    const struct cuda_linear *queries = &to->linear[LINEAR_QKV], *output = &to->linear[LINEAR_ATTENTION_OUTPUT];
    char *keys = to->keys_values.weight;
    const size_t hidden = model->hidden, query = model_query_width(model), key = model_key_width(model);
    const float scale = (float)(1.0 / sqrt((double)model_score_width(model))), folded = to->query_gain ? 1 : scale;
    float *zeros = loader->scratch, *bias = zeros + 2 * key, *folding = bias + hidden;
    memset(zeros, 0, 2 * key * sizeof *zeros);
    TRY(load(loader, type, &from->query.weight, query * hidden, folded, queries->weight, err));
    TRY(load(loader, type, &from->key.weight, key * hidden, 1, keys, err));
    TRY(load(loader, type, &from->value.weight, key * hidden, 1, element(keys, type, key * hidden), err));
    TRY(load_bias(loader, type, &from->query.bias, query, folded, queries->bias, err));
    TRY(upload(loader, type, zeros, 2 * key, to->keys_values.bias, err));
    if (model->rotary[0].base > 0) { TRY(load_bias(loader, type, &from->key.bias, key, 1, to->keys_values.bias, err)); }
    if (to->query_gain) {
        TRY(load_gain(loader, &from->query_norm.gain, model_head_dim(model), scale, to->query_gain, err));
        TRY(load_gain(loader, &from->key_norm.gain, model_head_dim(model), 1, to->key_gain, err));
    }
    TRY(fold_value_bias(model, &from->attention_output, &from->value.bias, folding, bias, err));
    TRY(upload(loader, type, bias, hidden, output->bias, err));
    return load(loader, type, &from->attention_output.weight, hidden * query, 1, output->weight, err);
}

static enum status load_layer(struct loader *loader, const struct model_layer *from, const struct cuda_layer *to,
                              struct err *err)
{
    const size_t hidden = loader->model->hidden, inner = loader->model->intermediate_size;
    const struct cuda_linear *intermediate = &to->linear[LINEAR_INTERMEDIATE];
    TRY(load_attention(loader, from, to, err));
    if (to->added_gain[NORM_ATTENTION]) {
        TRY(load_gain(loader, &from->attention_added_norm.gain, hidden, 1, to->added_gain[NORM_ATTENTION], err));
        TRY(load_gain(loader, &from->output_added_norm.gain, hidden, 1, to->added_gain[NORM_OUTPUT], err));
    }
    TRY(load_norm(loader, &from->attention_norm, &to->norm[NORM_ATTENTION], err));
    TRY(load_linear(loader, &from->intermediate, 0, inner, hidden, intermediate, err));
    if (loader->model->gated) { TRY(load_linear(loader, &from->up, inner, inner, hidden, intermediate, err)); }
    TRY(load_linear(loader, &from->output, 0, hidden, inner, &to->linear[LINEAR_OUTPUT], err));
    return load_norm(loader, &from->output_norm, &to->norm[NORM_OUTPUT], err);
}

static enum status load_embeddings(struct loader *loader, const struct cuda_weights *to, struct err *err)
{
    const struct model *model = loader->model;
    size_t positions = (size_t)model_position_rows(model) * model->hidden;
    const float scale = model->word_scale > 0 ? model->word_scale : 1;
    TRY(load(loader, loader->type, &model->word_embeddings, (size_t)model->vocabulary * model->hidden, scale, to->word,
             err));
    TRY(load_norm(loader, &model->embedding_norm, &to->embedding_norm, err));
    TRY(model_read_positions(model, loader->scratch, err));
    return upload(loader, loader->type, loader->scratch, positions, to->position, err);
}

static enum status load_relative_bias(struct loader *loader, const struct cuda_weights *to, struct err *err)
{
    const struct model *model = loader->model;
    size_t width = 2 * (size_t)model->max_tokens - 1;
    for (uint32_t head = 0; to->relative_bias && head < model->heads; head++) {
        TRY(model_read_relative_bias(model, head, loader->scratch, err));
        TRY(upload(loader, KERNEL_F32, loader->scratch, width, to->relative_bias + head * width, err));
    }
    return STATUS_OK;
}

static enum status load_rotary(struct loader *loader, const struct cuda_weights *to, struct err *err)
{
    for (int local = 0; local < 2 && to->rotary[local]; local++) {
        model_read_rotary(loader->model, local, loader->scratch);
        TRY(upload(loader, KERNEL_F32, loader->scratch, rotary_elements(loader->model), to->rotary[local], err));
    }
    return STATUS_OK;
}

static enum status load_all(struct loader *loader, const struct cuda_weights *to, struct err *err)
{
    TRY(loader_open(loader, err));
    TRY(load_embeddings(loader, to, err));
    TRY(load_relative_bias(loader, to, err));
    TRY(load_rotary(loader, to, err));
    for (uint32_t i = 0; i < loader->model->layer_count; i++) {
        TRY(load_layer(loader, &loader->model->layers[i], &to->layers[i], err));
    }
    return cuda_check(loader->api, loader->api->cudaStreamSynchronize(loader->cuda_stream), "copying the weights", err);
}

/* Kernels access rows in words of 16 bytes. */
static enum status check_sizes(const struct model *model, struct err *err)
{
    if (model->heads == 0 || (model->head_dim == 0 && model->hidden % model->heads != 0)) {
        return err_set(err, STATUS_UNSUPPORTED, "%u hidden units in %u heads", model->hidden, model->heads);
    }
    if (model->hidden % 8 != 0 || model->intermediate_size % 8 != 0 || model->hidden > KERNEL_HIDDEN_MAX ||
        model_query_width(model) % 8 != 0 || model_key_width(model) % 8 != 0 ||
        model_query_width(model) > KERNEL_HIDDEN_MAX) {
        return err_set(err, STATUS_UNSUPPORTED,
                       "the CUDA engine takes sizes that are multiples of 8, and up to %d hidden units; this model has "
                       "%u hidden and %u intermediate",
                       KERNEL_HIDDEN_MAX, model->hidden, model->intermediate_size);
    }
    return STATUS_OK;
}

enum status cuda_weights_open(const struct cuda_api *api, const struct model *model, enum kernel_type type,
                              struct cuda_weights *out, struct err *err)
{
    struct cuda_weights weights = {.model = model, .type = type};
    TRY(check_sizes(model, err));
    weights.layers = calloc(model->layer_count, sizeof *weights.layers);
    if (!weights.layers) { return err_set(err, STATUS_NO_MEMORY, "no memory for %u layers", model->layer_count); }
    weights.bytes = cuda_weights_bytes(model, type);
    enum status status =
        cuda_check(api, api->cudaMalloc(&weights.memory, weights.bytes), "memory for the weights", err);
    if (status == STATUS_OK) {
        struct loader loader = {.api = api, .model = model, .type = type};
        lay_out(&weights, weights.memory);
        status = load_all(&loader, &weights, err);
        loader_close(&loader);
    }
    if (status == STATUS_OK) {
        *out = weights;
    } else {
        cuda_weights_close(api, &weights);
    }
    return status;
}

void cuda_weights_close(const struct cuda_api *api, struct cuda_weights *weights)
{
    if (weights->memory) { (void)api->cudaFree(weights->memory); }
    free(weights->layers);
    *weights = (struct cuda_weights){0};
}
