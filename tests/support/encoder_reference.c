/* Nothing here is shared with src/engine, and nothing is fast: each formula of the model is written as in the papers
 * (Vaswani et al. 2017, section 3; Devlin et al. 2018, section 3; Hendrycks and Gimpel 2016 for GELU). */
#include "encoder_reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pool_reference.h"

static double at(const struct tensor *tensor, size_t element)
{
    float value;
    tensor_read_f32(tensor, element, 1, &value);
    return value;
}

static double *zeros(size_t count)
{
    double *values = calloc(count, sizeof *values);
    if (values == NULL) { abort(); }
    return values;
}

/* y = x W^T + b */
static double *affine(const struct linear *linear, const double *x, uint32_t rows)
{
    uint64_t outputs = linear->weight.shape[0], inputs = linear->weight.shape[1];
    double *y = zeros(rows * outputs);
    float *weight = calloc(inputs, sizeof *weight);
    if (weight == NULL) { abort(); }
    for (uint64_t o = 0; o < outputs; o++) {
        tensor_read_f32(&linear->weight, o * inputs, inputs, weight);
        for (uint32_t r = 0; r < rows; r++) {
            double sum = linear->bias.elements > 0 ? at(&linear->bias, o) : 0;
            for (uint64_t i = 0; i < inputs; i++) { sum += x[r * inputs + i] * weight[i]; }
            y[r * outputs + o] = sum;
        }
    }
    free(weight);
    return y;
}

/* An RMS norm (Zhang and Sennrich 2019) is one that takes the mean for 0. */
static void layer_norm(const struct model *model, const struct layer_norm *norm, double *x, uint32_t rows,
                       uint32_t width)
{
    double eps = model->layer_norm_eps;
    for (uint32_t r = 0; r < rows; r++, x += width) {
        double mean = 0, variance = 0;
        for (uint32_t i = 0; i < width && !model->rms_norm; i++) { mean += x[i] / width; }
        for (uint32_t i = 0; i < width; i++) { variance += (x[i] - mean) * (x[i] - mean) / width; }
        for (uint32_t i = 0; i < width; i++) {
            x[i] = (x[i] - mean) / sqrt(variance + eps) * (at(&norm->gain, i) + model->gain_less_one);
            x[i] += norm->bias.elements > 0 ? at(&norm->bias, i) : 0;
        }
    }
}

static double activate(enum activation activation, double x)
{
    const double pi = 3.14159265358979323846;
    if (activation == ACTIVATION_GELU_ERF) { return 0.5 * x * (1 + erf(x / sqrt(2))); }
    if (activation == ACTIVATION_GELU_TANH) { return 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x))); }
    if (activation == ACTIVATION_SILU) { return x / (1 + exp(-x)); }
    return x > 0 ? x : 0;
}

/* The bias of MPNet: distances of 0 to 7 have a bucket of their own, further ones share one up to 11, 15, 22, 31, 45,
 * 63, 90 and without end; 16 more where the key comes after the query. */
static double relative_bias(const struct model *model, uint32_t head, uint32_t query, uint32_t key)
{
    static const uint32_t ends[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91};
    uint32_t distance = key > query ? key - query : query - key, bucket = 0;
    while (bucket < 15 && distance >= ends[bucket]) { bucket++; }
    if (key > query) { bucket += 16; }
    return model->relative_bias.data ? at(&model->relative_bias, (size_t)bucket * model->heads + head) : 0;
}

/* Each pair of numbers from the two halves is a complex number, which turns by an angle that grows with the position.
 */
static void rotate(const struct model *model, bool local, double *x, uint32_t rows, uint32_t width)
{
    uint32_t dim = model_head_dim(model), half = dim / 2;
    for (size_t i = 0; i < (size_t)rows * width && model->rotary[local].base > 0; i++) {
        if (i % dim >= half) { continue; }
        double turn = exp(-log(model->rotary[local].base) * (double)(i % dim) / half) / model->rotary[local].divisor;
        double angle = turn * (double)(i / width), a = x[i], b = x[i + half];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + half] = a * sin(angle) + b * cos(angle);
    }
}

static void attend_one(const struct model *model, uint32_t window, uint32_t head, uint32_t query, const double *q,
                       const double *k, const double *v, uint32_t rows, double *to)
{
    uint32_t width = model_key_width(model), dim = model_head_dim(model);
    double *weight = zeros(rows), total = 0, largest = -INFINITY;
    double divisor = sqrt(model->score_width > 0 ? model->score_width : dim);
    for (uint32_t j = 0; j < rows; j++) {
        weight[j] = relative_bias(model, head, query, j);
        for (uint32_t i = 0; i < dim; i++) { weight[j] += q[i] * k[(size_t)j * width + i] / divisor; }
        if (j + window < query || j > query + (model->causal ? 0 : window)) { weight[j] = -INFINITY; }
        largest = fmax(largest, weight[j]);
    }
    for (uint32_t j = 0; j < rows; j++) { total += weight[j] = exp(weight[j] - largest); }
    for (uint32_t j = 0; j < rows; j++) {
        for (uint32_t i = 0; i < dim; i++) { to[i] += weight[j] / total * v[(size_t)j * width + i]; }
    }
    free(weight);
}

static double *attend(const struct model *model, const struct model_layer *layer, const double *x, uint32_t rows)
{
    uint32_t width = model_query_width(model), key_width = model_key_width(model), dim = model_head_dim(model);
    uint32_t group = width / key_width;
    double *q = affine(&layer->query, x, rows), *k = affine(&layer->key, x, rows);
    uint32_t window = layer->local ? model->window : rows;
    double *v = affine(&layer->value, x, rows), *context = zeros((size_t)rows * width);
    if (layer->query_norm.gain.data) {
        layer_norm(model, &layer->query_norm, q, rows * (width / dim), dim);
        layer_norm(model, &layer->key_norm, k, rows * (key_width / dim), dim);
    }
    rotate(model, layer->local, q, rows, width);
    rotate(model, layer->local, k, rows, key_width);
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t h = 0; h < width; h += dim) {
            uint32_t key = h / dim / group * dim;
            attend_one(model, window, h / dim, r, q + (size_t)r * width + h, k + key, v + key, rows,
                       context + (size_t)r * width + h);
        }
    }
    double *y = affine(&layer->attention_output, context, rows);
    free(q);
    free(k);
    free(v);
    free(context);
    return y;
}

static void add(double *x, double *y, size_t count)
{
    for (size_t i = 0; i < count; i++) { x[i] += y[i]; }
    free(y);
}

static double *feed_forward(const struct model *model, const struct model_layer *layer, const double *x, uint32_t rows)
{
    double *inner = affine(&layer->intermediate, x, rows);
    double *up = model->gated ? affine(&layer->up, x, rows) : NULL;
    for (size_t i = 0; i < (size_t)rows * model->intermediate_size; i++) {
        inner[i] = activate(model->activation, inner[i]) * (up ? up[i] : 1);
    }
    double *y = affine(&layer->output, inner, rows);
    free(inner);
    free(up);
    return y;
}

/* The layer reads x and adds to `sum`; the two differ only with pre_norm. */
static void run_layer(const struct model *model, const struct model_layer *layer, double *sum, double *x, uint32_t rows)
{
    size_t count = (size_t)rows * model->hidden;
    bool norms = layer->attention_added_norm.gain.data != NULL;
    double *y = attend(model, layer, x, rows);
    if (norms) { layer_norm(model, &layer->attention_added_norm, y, rows, model->hidden); }
    add(sum, y, count);
    memmove(x, sum, count * sizeof *x);
    layer_norm(model, &layer->attention_norm, x, rows, model->hidden);
    y = feed_forward(model, layer, x, rows);
    if (norms) { layer_norm(model, &layer->output_added_norm, y, rows, model->hidden); }
    add(sum, y, count);
    memmove(x, sum, count * sizeof *x);
    layer_norm(model, &layer->output_norm, x, rows, model->hidden);
}

static void pool(const struct model *model, const double *x, uint32_t rows, double *to)
{
    double squares = 0;
    for (uint32_t i = 0; i < model->dim; i++) { to[i] = pool_reference(model->pooling, x + i, model->hidden, rows); }
    for (uint32_t i = 0; i < model->dim; i++) { squares += to[i] * to[i]; }
    for (uint32_t i = 0; i < model->dim && model->normalize; i++) { to[i] /= sqrt(squares); }
}

void reference_encode(const struct model *model, const int32_t *ids, uint32_t length, double *to)
{
    uint32_t width = model->hidden;
    double *x = zeros((size_t)length * width);
    uint32_t position = model->position_offset;
    for (uint32_t t = 0; t < length; t++) {
        bool padding = (uint32_t)ids[t] + 1 == model->position_offset;
        uint32_t row = padding ? model->position_offset - 1 : position++;
        for (uint32_t i = 0; i < width; i++) {
            x[(size_t)t * width + i] =
                at(&model->word_embeddings, (size_t)(uint32_t)ids[t] * width + i) *
                    (model->word_scale > 0 ? model->word_scale : 1) +
                (model->rotary[0].base > 0 ? 0 : at(&model->position_embeddings, (size_t)row * width + i)) +
                (model->token_types > 0 ? at(&model->type_embeddings, i) : 0);
        }
    }
    double *sum = model->pre_norm ? zeros((size_t)length * width) : x;
    memmove(sum, x, (size_t)length * width * sizeof *x);
    layer_norm(model, &model->embedding_norm, x, length, width);
    if (!model->first_norm) { memmove(sum, x, (size_t)length * width * sizeof *x); }
    for (uint32_t layer = 0; layer < model->layer_count; layer++) {
        run_layer(model, &model->layers[layer], sum, x, length);
    }
    if (model->pre_norm) { free(sum); }
    pool(model, x, length, to);
    free(x);
}
