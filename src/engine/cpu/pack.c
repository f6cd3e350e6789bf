/* Converts the model's tensors, whatever their type on disk, to what the CPU backend computes with. */
#include "engine/cpu/pack.h"

#include <stdlib.h>
#include <string.h>

#include "base/system.h"
#include "engine/cpu/bf16_kind.h"

/* The model's linear layers that share an input make one product, with their outputs one after the other, or
 * alternating. */
struct parts {
    unsigned count;
    const struct linear *part[3];
    uint32_t outputs, inputs; /* of all together */
    uint32_t turn[3];         /* consecutive outputs of each part, before those of the next part */
    uint32_t turns;
};

static enum status no_memory(size_t elements, struct err *err)
{
    return err_set(err, STATUS_NO_MEMORY, "no memory for %zu weights", elements);
}

static void release_copied(const struct cpu_weights *weights, const struct tensor *tensor)
{
    if (weights->backend.model->read_once) { tensor_release(tensor); }
}

/* Copies a vector of weights; an empty one becomes zeros. */
static enum status keep_vector(struct cpu_weights *weights, const struct tensor *tensor, size_t elements, float **out,
                               struct err *err)
{
    if (tensor->elements != elements && tensor->elements != 0) {
        return err_set(err, STATUS_UNSUPPORTED, "a weight has %zu elements where %zu belong", tensor->elements,
                       elements);
    }
    float *values = memory_aligned(elements * sizeof *values);
    if (!values) { return no_memory(elements, err); }
    memset(values, 0, elements * sizeof *values);
    if (tensor->elements > 0) { tensor_read_f32(tensor, 0, elements, values); }
    release_copied(weights, tensor);
    weights->bytes += elements * sizeof *values;
    *out = values;
    return STATUS_OK;
}

static enum status keep_norm(struct cpu_weights *weights, const struct layer_norm *norm, uint32_t width,
                             struct norm_weights *out, struct err *err)
{
    const struct model *model = weights->backend.model;
    TRY(keep_vector(weights, &norm->gain, width, &out->gain, err));
    TRY(keep_vector(weights, &norm->bias, width, &out->bias, err));
    for (uint32_t i = 0; model->gain_less_one && i < width; i++) { out->gain[i] += 1.0f; }
    out->eps = model->layer_norm_eps;
    out->rms = model->rms_norm;
    return STATUS_OK;
}

/* --- embeddings --- */

/* Copies some numbers of the word embeddings, from `first` on. */
static void copy_words(struct cpu_weights *weights, const struct tensor *from, size_t first)
{
    char *to = weights->word + first * dtype_bytes(weights->word_dtype);
    if (from->dtype == weights->word_dtype) {
        memcpy(to, from->data, from->elements * dtype_bytes(from->dtype));
        return;
    }
    float wide[1024];
    for (size_t at = 0, count; at < from->elements; at += count) {
        count = from->elements - at < 1024 ? from->elements - at : 1024;
        tensor_read_f32(from, at, count, wide);
        for (size_t i = 0; i < count; i++) { ((uint16_t *)to)[at + i] = bf16_of(wide[i]); }
    }
}

/* Word embeddings are often most of a model. So 16-bit ones stay as they are, f32 becomes bf16 unless products are in
 * f32, and the file's memory is given back while the copy grows. */
static enum status keep_words(struct cpu_weights *weights, enum precision precision, struct err *err)
{
    enum { SOME = 1 << 20 };
    const struct tensor *words = &weights->backend.model->word_embeddings;
    weights->word_dtype = words->dtype == DTYPE_F32 && precision != PRECISION_F32 ? DTYPE_BF16 : words->dtype;
    size_t bytes = words->elements * dtype_bytes(weights->word_dtype);
    weights->word = memory_aligned(bytes);
    if (!weights->word) { return no_memory(words->elements, err); }
    for (size_t at = 0; at < words->elements; at += SOME) {
        struct tensor some = *words;
        some.data = (const char *)words->data + at * dtype_bytes(words->dtype);
        some.elements = words->elements - at < SOME ? words->elements - at : SOME;
        copy_words(weights, &some, at);
        release_copied(weights, &some);
    }
    weights->bytes += bytes;
    return STATUS_OK;
}

static enum status keep_embeddings(struct cpu_weights *weights, enum precision precision, struct err *err)
{
    const struct model *model = weights->backend.model;
    size_t hidden = model->hidden, words = (size_t)model->vocabulary * hidden;
    size_t positions = model_position_rows(model) * hidden;
    if (model->word_embeddings.elements != words) {
        return err_set(err, STATUS_UNSUPPORTED, "the embeddings do not fit the model's sizes");
    }
    TRY(keep_words(weights, precision, err));
    weights->position = malloc(positions * sizeof *weights->position);
    if (!weights->position) { return no_memory(positions, err); }
    weights->bytes += positions * sizeof *weights->position;
    TRY(model_read_positions(model, weights->position, err));
    return keep_norm(weights, &model->embedding_norm, model->hidden, &weights->embedding_norm, err);
}

static enum status keep_relative_bias(struct cpu_weights *weights, const struct model *model, struct err *err)
{
    size_t width = 2 * (size_t)model->max_tokens - 1, elements = model->heads * width;
    if (!model->relative_bias.data) { return STATUS_OK; }
    weights->relative_bias = memory_aligned(elements * sizeof *weights->relative_bias);
    if (!weights->relative_bias) { return no_memory(elements, err); }
    for (uint32_t head = 0; head < model->heads; head++) {
        TRY(model_read_relative_bias(model, head, weights->relative_bias + head * width, err));
    }
    weights->bytes += elements * sizeof *weights->relative_bias;
    return STATUS_OK;
}

static enum status keep_rotary(struct cpu_weights *weights, const struct model *model, struct err *err)
{
    size_t elements = (size_t)model->max_tokens * model_head_dim(model);
    for (int local = 0; local < 2 && model->rotary[local].base > 0; local++) {
        weights->rotary[local] = memory_aligned(elements * sizeof *weights->rotary[local]);
        if (!weights->rotary[local]) { return no_memory(elements, err); }
        model_read_rotary(model, local, weights->rotary[local]);
        weights->bytes += elements * sizeof *weights->rotary[local];
    }
    return STATUS_OK;
}

/* --- layers --- */

/* The parts of a product; without `split`, values are a part of the first one. */
static struct parts parts_of(const struct model *model, uint32_t layer, enum engine_product product, bool split)
{
    const struct model_layer *from = &model->layers[layer];
    const struct linear *const all[ENGINE_PRODUCTS][3] = {
        [ENGINE_QUERY_KEY] = {&from->query, &from->key, split ? NULL : &from->value},
        [ENGINE_VALUE] = {split ? &from->value : NULL},
        [ENGINE_ATTENTION_OUTPUT] = {&from->attention_output},
        [ENGINE_INTERMEDIATE] = {&from->intermediate, model->gated ? &from->up : NULL},
        [ENGINE_OUTPUT] = {&from->output},
    };
    uint32_t query = model_query_width(model), key = model_key_width(model), hidden = model->hidden;
    uint32_t inner = model->intermediate_size, turn = model->gated ? GATE_WIDTH : inner;
    const uint32_t shapes[ENGINE_PRODUCTS][4] = {/* inputs and turns */
                                                 [ENGINE_QUERY_KEY] = {hidden, query, key, key},
                                                 [ENGINE_VALUE] = {hidden, key},
                                                 [ENGINE_ATTENTION_OUTPUT] = {query, hidden},
                                                 [ENGINE_INTERMEDIATE] = {hidden, turn, turn},
                                                 [ENGINE_OUTPUT] = {inner, hidden}};
    struct parts parts = {.inputs = shapes[product][0], .turns = 1};
    if (product == ENGINE_INTERMEDIATE) { parts.turns = inner / turn; }
    for (; parts.count < 3 && all[product][parts.count]; parts.count++) {
        parts.part[parts.count] = all[product][parts.count];
        parts.turn[parts.count] = shapes[product][1 + parts.count];
        parts.outputs += parts.turns * parts.turn[parts.count];
    }
    return parts;
}

/* Reads the parts' biases, or their weights, turn by turn. Writes nothing for a part without a bias. */
static void read_parts(const struct parts *from, bool biases, float *to)
{
    for (unsigned at = 0; at < from->turns * from->count; at++) {
        const struct linear *part = from->part[at % from->count];
        const struct tensor *tensor = biases ? &part->bias : &part->weight;
        size_t some = (size_t)from->turn[at % from->count] * (biases ? 1 : from->inputs);
        if (tensor->elements > 0) { tensor_read_f32(tensor, at / from->count * some, some, to); }
        to += some;
    }
}

static enum status keep_bias(struct cpu_weights *weights, const struct parts *from, struct cpu_linear *out,
                             struct err *err)
{
    out->bias = calloc(from->outputs, sizeof *out->bias);
    if (!out->bias) { return no_memory(from->outputs, err); }
    for (unsigned i = 0; i < from->count; i++) {
        const struct linear *part = from->part[i];
        size_t rows = (size_t)from->turns * from->turn[i];
        if (part->weight.elements != rows * from->inputs || (part->bias.elements != rows && part->bias.elements != 0)) {
            return err_set(err, STATUS_UNSUPPORTED, "a linear layer does not have %zu by %u weights", rows,
                           from->inputs);
        }
    }
    read_parts(from, true, out->bias);
    weights->bytes += from->outputs * sizeof *out->bias;
    return STATUS_OK;
}

static enum status keep_vectors(struct cpu_weights *weights, uint32_t layer, struct err *err)
{
    const struct model *model = weights->backend.model;
    const struct model_layer *from = &model->layers[layer];
    struct cpu_layer *to = &weights->layers[layer];
    for (int product = 0; product < ENGINE_PRODUCTS; product++) {
        struct parts parts = parts_of(model, layer, (enum engine_product)product, false);
        if (parts.outputs > 0) { TRY(keep_bias(weights, &parts, &to->linear[product], err)); }
    }
    to->linear[ENGINE_VALUE].bias =
        to->linear[ENGINE_QUERY_KEY].bias + model_query_width(model) + model_key_width(model);
    if (from->query_norm.gain.data) {
        TRY(keep_norm(weights, &from->query_norm, model_head_dim(model), &to->query_norm, err));
        TRY(keep_norm(weights, &from->key_norm, model_head_dim(model), &to->key_norm, err));
    }
    if (from->attention_added_norm.gain.data) {
        struct norm_weights *added = to->added_norm;
        TRY(keep_norm(weights, &from->attention_added_norm, model->hidden, &added[NORM_ATTENTION], err));
        TRY(keep_norm(weights, &from->output_added_norm, model->hidden, &added[NORM_OUTPUT], err));
    }
    TRY(keep_norm(weights, &from->attention_norm, model->hidden, &to->norm[NORM_ATTENTION], err));
    return keep_norm(weights, &from->output_norm, model->hidden, &to->norm[NORM_OUTPUT], err);
}

/* --- products --- */

/* The largest number of elements of a layer's product, at least a panel of lm_head. */
static size_t largest_of(const struct model *model)
{
    size_t largest = (size_t)GEMM_MULTIPLE * model->hidden;
    for (int product = 0; product < ENGINE_PRODUCTS; product++) {
        struct parts parts = parts_of(model, 0, (enum engine_product)product, false);
        size_t elements = (size_t)parts.outputs * parts.inputs;
        largest = elements > largest ? elements : largest;
    }
    return largest;
}

/* The kinds that a product is packed in; values have products of their own only in int8. */
struct kinds {
    bool in_plain, in_int8; /* `plain` and GEMM_INT8 */
    enum gemm_kind plain;
};

/* `int8`: that precision, and `choice` the products that are in int8; NULL: each is packed in both kinds. */
static struct kinds kinds_of(const struct cpu_weights *weights, bool int8, const struct engine_int8 *choice,
                             uint32_t layer, int product)
{
    if (!int8 || !choice) { return (struct kinds){true, int8, weights->kind}; }
    bool chosen = choice->in_int8[layer][product];
    return (struct kinds){!chosen, chosen, weights->kind};
}

static struct kinds head_kinds(const struct cpu_weights *weights, bool int8, const struct engine_int8 *choice)
{
    enum gemm_kind plain = cpu_weights_head_kind(weights);
    if (!int8 || !choice) { return (struct kinds){true, int8, plain}; }
    return (struct kinds){!choice->lm_head, choice->lm_head, plain};
}

static size_t kinds_bytes(struct kinds kinds, uint32_t outputs, uint32_t inputs)
{
    size_t bytes = 0;
    if (kinds.in_plain) { memory_part(NULL, &bytes, gemm_weight_bytes(kinds.plain, outputs, inputs)); }
    if (kinds.in_int8) { memory_part(NULL, &bytes, gemm_weight_bytes(GEMM_INT8, outputs, inputs)); }
    return bytes;
}

static void keep_kind(struct cpu_weights *weights, const struct parts *parts, enum gemm_kind kind, bool one_sided,
                      const float *plain, struct cpu_linear *out)
{
    size_t bytes = gemm_weight_bytes(kind, parts->outputs, parts->inputs);
    void *to = memory_part(weights->packed, &weights->packed_used, bytes);
    out->kind = kind;
    gemm_pack(weights->set, kind, parts->outputs, parts->inputs, plain, one_sided, to, &out->weight);
}

/* Packs a product. `plain`: room for its weights. */
static void keep_product(struct cpu_weights *weights, uint32_t layer, int product, const struct parts *parts,
                         struct kinds kinds, float *plain)
{
    struct cpu_linear *out = &weights->layers[layer].linear[product];
    bool one_sided = product == ENGINE_OUTPUT && !weights->backend.model->gated; /* GELU, ReLU: little below zero */
    read_parts(parts, false, plain);
    if (kinds.in_plain) { keep_kind(weights, parts, kinds.plain, false, plain, out); }
    if (kinds.in_plain && kinds.in_int8) { weights->both[layer][product][0] = out->weight; }
    if (kinds.in_int8) { keep_kind(weights, parts, GEMM_INT8, one_sided, plain, out); }
    if (kinds.in_plain && kinds.in_int8) { weights->both[layer][product][1] = out->weight; }
    for (unsigned i = 0; i < parts->count; i++) { release_copied(weights, &parts->part[i]->weight); }
}

static const struct tensor *lm_head_of(const struct model *model)
{
    return model->tied_head ? &model->word_embeddings : &model->lm_head;
}

/* Packs lm_head as many outputs at a time as there is room for: it is often the largest weight of a model. */
static void keep_lm_head(struct cpu_weights *weights, struct kinds kinds, float *plain, size_t room)
{
    const struct model *model = weights->backend.model;
    struct cpu_linear *out = &weights->lm_head;
    uint32_t outputs = model->vocabulary, inputs = model->hidden, count;
    uint32_t most = (uint32_t)(room / inputs / GEMM_MULTIPLE * GEMM_MULTIPLE);
    for (int int8 = 0; int8 < 2; int8++) {
        if (int8 ? !kinds.in_int8 : !kinds.in_plain) { continue; }
        out->kind = int8 ? GEMM_INT8 : kinds.plain;
        size_t bytes = gemm_weight_bytes(out->kind, outputs, inputs);
        out->weight =
            gemm_place(out->kind, outputs, inputs, memory_part(weights->packed, &weights->packed_used, bytes));
        for (uint32_t first = 0; first < outputs; first += count) {
            count = outputs - first < most ? outputs - first : most;
            tensor_read_f32(lm_head_of(model), (size_t)first * inputs, (size_t)count * inputs, plain);
            gemm_pack_outputs(weights->set, out->kind, first, count, plain, false, &out->weight);
        }
        weights->both_lm_head[int8] = out->weight;
    }
    if (!model->tied_head) { release_copied(weights, &model->lm_head); }
}

/* Packs all products, or with `plain` NULL returns the bytes that they will take. `room`: of `plain`, in numbers. */
static size_t keep_products(struct cpu_weights *weights, bool int8, const struct engine_int8 *choice, float *plain,
                            size_t room)
{
    const struct model *model = weights->backend.model;
    size_t bytes = 0;
    for (uint32_t layer = 0; layer < model->layer_count; layer++) {
        for (int product = 0; product < ENGINE_PRODUCTS; product++) {
            struct kinds kinds = kinds_of(weights, int8, choice, layer, product);
            struct parts parts = parts_of(model, layer, (enum engine_product)product, int8);
            if (parts.outputs == 0) { continue; }
            bytes += kinds_bytes(kinds, parts.outputs, parts.inputs);
            if (plain) { keep_product(weights, layer, product, &parts, kinds, plain); }
        }
    }
    if (model->generates) {
        struct kinds kinds = head_kinds(weights, int8, choice);
        bytes += kinds_bytes(kinds, model->vocabulary, model->hidden);
        if (plain) { keep_lm_head(weights, kinds, plain, room); }
    }
    return bytes;
}

static enum status keep_layers(struct cpu_weights *weights, bool int8, const struct engine_int8 *choice,
                               struct err *err)
{
    const struct model *model = weights->backend.model;
    size_t largest = largest_of(model);
    weights->layers = calloc(model->layer_count, sizeof *weights->layers);
    if (!weights->layers) { return no_memory(model->layer_count, err); }
    for (uint32_t layer = 0; layer < model->layer_count; layer++) { TRY(keep_vectors(weights, layer, err)); }
    if (int8 && !choice) {
        weights->both = calloc(model->layer_count, sizeof *weights->both);
        if (!weights->both) { return no_memory(model->layer_count, err); }
    }
    size_t bytes = keep_products(weights, int8, choice, NULL, 0);
    weights->packed = memory_aligned(bytes);
    float *plain = malloc(largest * sizeof *plain);
    if (!weights->packed || !plain) {
        free(plain);
        return no_memory(bytes, err);
    }
    keep_products(weights, int8, choice, plain, largest);
    weights->bytes += weights->packed_used;
    free(plain);
    return STATUS_OK;
}

/* True if attention in int16 can compute the model. */
static bool attends_plainly(const struct model *model)
{
    return model->rotary[0].base == 0 && model->window == 0 && !model->causal && model_key_heads(model) == model->heads;
}

/* Products on tiles need sizes that are multiples of GEMM_MULTIPLE, and bf16 pairs of inputs. */
static enum gemm_kind choose_kind(const struct instruction_set *set, const struct model *model,
                                  const struct engine_options *options)
{
    enum precision precision = options->precision;
    uint32_t hidden = model->hidden, inner = model->intermediate_size, query = model_query_width(model);
    bool whole = hidden % GEMM_MULTIPLE == 0 && inner % GEMM_MULTIPLE == 0,
         plain = !model->pre_norm && !model->gated && attends_plainly(model) && query == hidden, /* for split_f32 */
        even = hidden % 2 == 0 && inner % 2 == 0 && query % 2 == 0;
    if (whole && plain && precision == PRECISION_F32 && hidden <= SPLIT_INPUTS_MAX && inner <= SPLIT_INPUTS_MAX &&
        set->split_f32) {
        return GEMM_SPLIT_F32;
    }
    if (whole && precision != PRECISION_F32 && model_head_dim(model) % GEMM_MULTIPLE == 0 && set->bf16) {
        return GEMM_BF16;
    }
    enum gemm_kind kind = even && precision != PRECISION_F32 ? bf16_kind(set, options->cache_path) : GEMM_F32;
    if (!precision_is_int8(precision) || kind == GEMM_BF16_DOT) { return kind; }
    return set->int8->run16 ? GEMM_INT16 : GEMM_F32;
}

static enum status fill_weights(struct cpu_weights *weights, const struct model *model,
                                const struct engine_options *options, struct err *err)
{
    if (model->heads == 0 || (model->head_dim == 0 && model->hidden % model->heads != 0) ||
        model->heads % model_key_heads(model) != 0) {
        return err_set(err, STATUS_UNSUPPORTED, "%u hidden units in %u heads, %u of keys", model->hidden, model->heads,
                       model->key_heads);
    }
    if (model->gated && model->intermediate_size % GATE_WIDTH != 0) {
        return err_set(err, STATUS_UNSUPPORTED, "%u intermediate units are no multiple of %d", model->intermediate_size,
                       GATE_WIDTH);
    }
    bool int8 = precision_is_int8(options->precision);
    if (int8 && model->rms_norm && !model->generates) {
        return err_set(err, STATUS_UNSUPPORTED,
                       "int8 does not hold the vectors of models with RMS norms near enough to f32; bf16 does");
    }
    if (model->generates && lm_head_of(model)->elements != (size_t)model->vocabulary * model->hidden) {
        return err_set(err, STATUS_UNSUPPORTED, "lm_head does not fit the model's sizes");
    }
    weights->word_scale = model->word_scale > 0 ? model->word_scale : 1.0f;
    weights->kind = choose_kind(weights->set, model, options);
    bool rounds = int8 || weights->kind == GEMM_BF16_DOT, even = model_head_dim(model) % 2 == 0;
    weights->qkv_half =
        weights->kind == GEMM_BF16 || (rounds && even && attends_plainly(model) && weights->set->int8->attention16);
    TRY(keep_relative_bias(weights, model, err));
    TRY(keep_rotary(weights, model, err));
    TRY(keep_layers(weights, int8, options->int8, err));
    return keep_embeddings(weights, options->precision, err); /* the last, because lm_head may share their tensor */
}

enum status cpu_weights_open(const struct model *model, const struct engine_options *options, struct cpu_weights **out,
                             struct err *err)
{
    struct cpu_weights *weights = calloc(1, sizeof *weights);
    if (!weights) { return err_set(err, STATUS_NO_MEMORY, "no memory for the CPU backend"); }
    weights->backend.model = model;
    weights->set = instruction_set_pick();
    enum status status = fill_weights(weights, model, options, err);
    if (status != STATUS_OK) {
        cpu_weights_close(weights);
        return status;
    }
    *out = weights;
    return STATUS_OK;
}

/* Moves one of a product's two weights to the front. */
static void settle_linear(struct cpu_weights *weights, struct cpu_linear *linear, enum gemm_kind plain_kind,
                          size_t *from, size_t *used)
{
    uint32_t outputs = linear->weight.outputs, inputs = linear->weight.inputs;
    const char *plain = memory_part(weights->packed, from, gemm_weight_bytes(plain_kind, outputs, inputs));
    const char *int8 = memory_part(weights->packed, from, gemm_weight_bytes(GEMM_INT8, outputs, inputs));
    size_t bytes = gemm_weight_bytes(linear->kind, outputs, inputs);
    char *to = memory_part(weights->packed, used, bytes);
    memmove(to, linear->kind == GEMM_INT8 ? int8 : plain, bytes);
    linear->weight = gemm_place(linear->kind, outputs, inputs, to);
}

/* Moves the weights to the front of their memory, where they would be without a trial, and gives the rest back. */
void cpu_weights_settle(struct cpu_weights *weights)
{
    size_t from = 0, used = 0;
    for (uint32_t layer = 0; layer < weights->backend.model->layer_count; layer++) {
        for (int product = 0; product < ENGINE_PRODUCTS; product++) {
            settle_linear(weights, &weights->layers[layer].linear[product], weights->kind, &from, &used);
        }
    }
    if (weights->backend.model->generates) {
        settle_linear(weights, &weights->lm_head, cpu_weights_head_kind(weights), &from, &used);
    }
    memory_release(weights->packed + used, weights->packed_used - used);
    weights->bytes -= weights->packed_used - used;
    weights->packed_used = used;
    free(weights->both);
    weights->both = NULL;
}

static void close_layer(struct cpu_layer *layer)
{
    layer->linear[ENGINE_VALUE].bias = NULL; /* is another's part */
    for (int product = 0; product < ENGINE_PRODUCTS; product++) { free(layer->linear[product].bias); }
    for (unsigned site = 0; site < CPU_NORMS; site++) {
        free(layer->norm[site].gain);
        free(layer->norm[site].bias);
        free(layer->added_norm[site].gain);
        free(layer->added_norm[site].bias);
    }
    free(layer->query_norm.gain);
    free(layer->query_norm.bias);
    free(layer->key_norm.gain);
    free(layer->key_norm.bias);
}

void cpu_weights_close(struct cpu_weights *weights)
{
    if (!weights) { return; }
    for (uint32_t layer = 0; weights->layers && layer < weights->backend.model->layer_count; layer++) {
        close_layer(&weights->layers[layer]);
    }
    free(weights->layers);
    free(weights->embedding_norm.gain);
    free(weights->embedding_norm.bias);
    free(weights->position);
    free(weights->relative_bias);
    free(weights->rotary[0]);
    free(weights->rotary[1]);
    free(weights->packed);
    free(weights->both);
    free(weights->word);
    free(weights);
}
