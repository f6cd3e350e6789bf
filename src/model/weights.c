/* Finding and reading the files. A shard's name comes from a file, so it must be a plain name: nothing outside the
 * model's folder is ever opened. */
#include "model/weights.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/json_tree.h"
#include "base/system.h"
#include "model/family.h"

#define SINGLE_FILE "model.safetensors"
#define INDEX_FILE "model.safetensors.index.json"
#define NAME_BYTES 128

static enum status open_file(const char *directory, const char *folder, const char *file, struct weights *out,
                             struct err *err)
{
    char path[FILE_PATH_BYTES], *name;
    if (asprintf(&name, "%s%s", folder, file) < 0) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for the path of %s", file);
    }
    size_t at = out->count++;
    out->names[at] = name;
    TRY(file_path(directory, name, path, err));
    return safetensors_open(path, name, &out->files[at], err);
}

/* Makes room for `more` more files. */
static enum status reserve_files(struct weights *out, size_t more, struct err *err)
{
    size_t count = out->count + more;
    struct safetensors *files = realloc(out->files, count * sizeof *files);
    if (files) { out->files = files; }
    char **names = realloc(out->names, count * sizeof *names);
    if (names) { out->names = names; }
    return files && names ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for %zu weight files", count);
}

static bool is_plain_name(const char *name)
{
    size_t length = strlen(name), tail = strlen(".safetensors");
    return length > tail && strcmp(name + length - tail, ".safetensors") == 0 && !strchr(name, '/') &&
           !strchr(name, '\\') && name[0] != '.';
}

/* Collects the distinct shard names; the pointers belong to the map. */
static enum status list_shards(const cJSON *map, const char *name, const char **shards, size_t *count, struct err *err)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, map)
    {
        if (!cJSON_IsString(item) || !is_plain_name(item->valuestring)) {
            return err_set(err, STATUS_BAD_INPUT, "%s: weight_map: the shard of %.100s is not a plain file name", name,
                           item->string);
        }
        size_t i = 0;
        while (i < *count && strcmp(shards[i], item->valuestring) != 0) { i++; }
        if (i < *count) { continue; }
        if (*count == WEIGHTS_MAX_SHARDS) {
            return err_set(err, STATUS_BAD_INPUT, "%s: weight_map names more than %d shards", name, WEIGHTS_MAX_SHARDS);
        }
        shards[(*count)++] = item->valuestring;
    }
    return STATUS_OK;
}

/* Every tensor of the index must be in the shard that it names. Shards may have others, which are dropped here: a model
 * with few weights of its own may use some of the weights in an encoder's file that it shares with other models. */
static enum status check_map(const cJSON *map, const char *name, const struct weights *weights, const char **shards,
                             struct err *err)
{
    size_t found = 0;
    for (size_t f = 0; f < weights->count; f++) {
        struct safetensors *file = &weights->files[f];
        size_t kept = 0;
        for (size_t i = 0; i < file->count; i++) {
            const cJSON *item = json_field(map, file->entries[i].name);
            if (item && strcmp(item->valuestring, shards[f]) == 0) {
                struct safetensors_entry entry = file->entries[kept];
                file->entries[kept++] = file->entries[i];
                file->entries[i] = entry;
            }
        }
        found += kept;
        while (file->count > kept) { free(file->entries[--file->count].name); }
    }
    if (found != (size_t)cJSON_GetArraySize(map)) {
        return err_set(err, STATUS_BAD_INPUT, "%s: weight_map lists %d tensors, the shards have %zu of them there",
                       name, cJSON_GetArraySize(map), found);
    }
    return STATUS_OK;
}

static enum status open_shards(const char *directory, const char *folder, const cJSON *index, const char *name,
                               struct weights *out, struct err *err)
{
    const cJSON *map = json_field(index, "weight_map");
    if (!cJSON_IsObject(map)) { return err_set(err, STATUS_BAD_INPUT, "%s: weight_map is missing", name); }
    const char *shards[WEIGHTS_MAX_SHARDS];
    size_t count = 0;
    TRY(list_shards(map, name, shards, &count, err));
    if (count == 0) { return err_set(err, STATUS_BAD_INPUT, "%s: weight_map is empty", name); }
    TRY(reserve_files(out, count, err));
    for (size_t i = 0; i < count; i++) { TRY(open_file(directory, folder, shards[i], out, err)); }
    out->encoder_files = count;
    return check_map(map, name, out, shards, err);
}

/* After model.safetensors was not found: reads the index, or says what to do when there is none either. */
static enum status open_index(const char *directory, const char *folder, struct weights *out, struct err *err)
{
    struct buffer name = {0};
    buffer_format(&name, "%s%s", folder, INDEX_FILE);
    if (!buffer_ok(&name)) { return err_set(err, STATUS_NO_MEMORY, "no memory for the path of %s", INDEX_FILE); }
    cJSON *index;
    enum status status = json_read(directory, name.data, SAFETENSORS_MAX_HEADER, &index, err);
    if (status == STATUS_OK) {
        status = open_shards(directory, folder, index, name.data, out, err);
    } else if (status == STATUS_NOT_FOUND) {
        status = err_set(err, status,
                         "%s%s is missing, and so is %s; pickled weights (pytorch_model.bin) are never read: save the "
                         "model with safetensors",
                         folder, SINGLE_FILE, INDEX_FILE);
    }
    cJSON_Delete(index);
    buffer_free(&name);
    return status;
}

enum status weights_open(const char *directory, const char *folder, struct weights *out, struct err *err)
{
    *out = (struct weights){0};
    enum status status = reserve_files(out, 1, err);
    if (status == STATUS_OK) { status = open_file(directory, folder, SINGLE_FILE, out, err); }
    out->encoder_files = 1;
    if (status != STATUS_NOT_FOUND) { return status; }
    weights_close(out);
    return open_index(directory, folder, out, err);
}

static int folder_bytes(const char *name)
{
    return (int)(strrchr(name, '/') + 1 - name);
}

enum status weights_open_module(const char *directory, const char *module, struct weights *out, struct err *err)
{
    char folder[NAME_BYTES];
    snprintf(folder, sizeof folder, "%.*s", folder_bytes(module), module);
    TRY(reserve_files(out, 1, err));
    enum status status = open_file(directory, folder, SINGLE_FILE, out, err);
    return status != STATUS_NOT_FOUND
               ? status
               : err_set(err, status, "%s%s is missing; pickled weights (pytorch_model.bin) are never read", folder,
                         SINGLE_FILE);
}

enum status weights_read_again(const struct weights *weights, const char *directory, struct weights *out,
                               struct err *err)
{
    out->borrowed = true;
    out->encoder_files = weights->encoder_files;
    TRY(reserve_files(out, weights->count, err));
    for (size_t i = 0; i < weights->count; i++) {
        char path[FILE_PATH_BYTES];
        const struct safetensors *file = &weights->files[i];
        out->names[i] = weights->names[i];
        out->files[i] = (struct safetensors){file->entries, file->count, NULL, file->data_bytes, file->data_from};
        out->count++;
        TRY(file_path(directory, out->names[i], path, err));
        TRY(safetensors_read_again(path, out->names[i], &out->files[i], err));
    }
    return STATUS_OK;
}

void weights_release(struct weights *weights)
{
    for (size_t i = 0; i < weights->count; i++) {
        free(weights->files[i].data);
        weights->files[i].data = NULL;
    }
}

void weights_close(struct weights *weights)
{
    weights_release(weights);
    for (size_t i = 0; i < weights->count && !weights->borrowed; i++) {
        safetensors_close(&weights->files[i]);
        free(weights->names[i]);
    }
    free(weights->files);
    free(weights->names);
    *weights = (struct weights){0};
}

/* Matching of the tensors in files with weights. The model's own list of weights is made once (weights_visit) and
 * sorted; the name of each tensor in the files is converted to that list's spelling and looked up. A tensor that is
 * neither in the list nor part of a head is refused: it would change the result, or the files belong to another
 * architecture. */

enum { MOST_PARTS = 3 };

struct slot {
    char name[NAME_BYTES];
    struct tensor *parts[MOST_PARTS];
    uint32_t count, rank;
    uint64_t shape[2];
};

struct slots {
    struct slot *list; /* [count], by name once sorted */
    size_t count;
};

/* The visitor, and the prefix of the names. */
struct visit {
    weights_visitor *visit;
    void *context;
    char prefix[64];
};

/* A layer's weight and, unless `bare`, its bias. Each may hold several linear layers, one after the other, with `rows`
 * rows each. */
static void visit_linears(const struct visit *at, const char *part, struct linear *const *linears, uint32_t count,
                          bool bare, uint64_t rows, uint64_t columns)
{
    char name[NAME_BYTES];
    struct tensor *weights[MOST_PARTS], *biases[MOST_PARTS];
    if (!part) { return; }
    for (uint32_t i = 0; i < count; i++) {
        weights[i] = &linears[i]->weight;
        biases[i] = &linears[i]->bias;
    }
    snprintf(name, sizeof name, "%s%s.weight", at->prefix, part);
    at->visit(at->context, name, weights, count, 2, count * rows, columns);
    snprintf(name, sizeof name, "%s%s.bias", at->prefix, part);
    if (!bare) { at->visit(at->context, name, biases, count, 1, count * rows, 1); }
}

static void visit_norm(const struct visit *at, const char *part, struct layer_norm *norm, bool bare, uint64_t width)
{
    char name[NAME_BYTES];
    if (!part) { return; }
    snprintf(name, sizeof name, "%s%s.weight", at->prefix, part);
    at->visit(at->context, name, &(struct tensor *){&norm->gain}, 1, 1, width, 1);
    snprintf(name, sizeof name, "%s%s.bias", at->prefix, part);
    if (!bare) { at->visit(at->context, name, &(struct tensor *){&norm->bias}, 1, 1, width, 1); }
}

/* With pre_norm the norm after a layer's second sum has the name of the norm that the next layer begins with. */
static void visit_output_norm(struct visit at, struct model *model, uint32_t index)
{
    const struct family *family = model->family;
    const char *part = family->output_norm;
    if (model->pre_norm && index + 1 == model->layer_count) {
        at.prefix[0] = '\0';
        part = family->final_norm;
    } else if (model->pre_norm) {
        snprintf(at.prefix, sizeof at.prefix, "%s%u.", family->layer, index + 1);
    }
    visit_norm(&at, part, &model->layers[index].output_norm, family->bare & BARE_NORM, model->hidden);
}

static void visit_layer(struct model *model, uint32_t index, weights_visitor *visit, void *context)
{
    const struct family *family = model->family;
    struct model_layer *layer = &model->layers[index];
    struct visit at = {visit, context, ""};
    uint32_t hidden = model->hidden, inner = model->intermediate_size;
    uint32_t query = model_query_width(model), key = model_key_width(model);
    bool bare = family->bare & BARE_QKV, packed = family->qkv && !model->split_qkv;
    struct linear *const qkv[] = {&layer->query, &layer->key, &layer->value};
    struct linear *const gate[] = {&layer->intermediate, &layer->up}, *const turned[] = {gate[1], gate[0]};
    snprintf(at.prefix, sizeof at.prefix, "%s%u.", family->layer, index);
    visit_linears(&at, packed ? family->qkv : NULL, qkv, 3, bare, hidden, hidden);
    visit_linears(&at, packed ? NULL : family->query, qkv, 1, bare, query, hidden);
    visit_linears(&at, packed ? NULL : family->key, qkv + 1, 1, bare, key, hidden);
    visit_linears(&at, packed ? NULL : family->value, qkv + 2, 1, bare, key, hidden);
    bare = family->bare & BARE_ATTENTION_OUTPUT;
    visit_linears(&at, family->attention_output, &(struct linear *){&layer->attention_output}, 1, bare, hidden, query);
    visit_norm(&at, family->attention_added_norm, &layer->attention_added_norm, true, hidden);
    visit_norm(&at, family->output_added_norm, &layer->output_added_norm, true, hidden);
    visit_norm(&at, family->query_norm, &layer->query_norm, true, model_head_dim(model));
    visit_norm(&at, family->key_norm, &layer->key_norm, true, model_head_dim(model));
    bare = family->bare & BARE_INTERMEDIATE;
    visit_linears(&at, family->intermediate, gate, 1, bare, inner, hidden);
    visit_linears(&at, family->up, gate + 1, 1, bare, inner, hidden);
    visit_linears(&at, family->intermediate_up, gate, 2, bare, inner, hidden);
    visit_linears(&at, family->up_intermediate, turned, 2, bare, inner, hidden);
    visit_linears(&at, family->output, &(struct linear *){&layer->output}, 1, family->bare & BARE_OUTPUT, hidden,
                  inner);
    visit_norm(&at, family->attention_norm, &layer->attention_norm, family->bare & BARE_NORM, hidden);
    visit_output_norm(at, model, index);
}

static void visit_embeddings(void *context, weights_visitor *visit, const char *part, struct tensor *tensor,
                             uint32_t rows, uint32_t width)
{
    char name[NAME_BYTES];
    if (!part || rows == 0) { return; }
    snprintf(name, sizeof name, "%s.weight", part);
    visit(context, name, &tensor, 1, 2, rows, width);
}

static void visit_module(struct model_module *module, weights_visitor *visit, void *context)
{
    char name[NAME_BYTES];
    bool dense = module->kind == MODULE_DENSE;
    if (module->kind == MODULE_NORMALIZE) { return; }
    snprintf(name, sizeof name, "%s.weight", module->name);
    visit(context, name, &(struct tensor *){&module->weight}, 1, dense ? 2 : 1, module->outputs,
          dense ? module->inputs : 1);
    snprintf(name, sizeof name, "%s.bias", module->name);
    if (module->biased) { visit(context, name, &(struct tensor *){&module->bias}, 1, 1, module->outputs, 1); }
}

void weights_visit(struct model *model, weights_visitor *visit, void *context)
{
    const struct family *family = model->family;
    visit_embeddings(context, visit, family->word, &model->word_embeddings, model->vocabulary, model->hidden);
    visit_embeddings(context, visit, family->position, &model->position_embeddings, model->positions, model->hidden);
    visit_embeddings(context, visit, family->token_type, &model->type_embeddings, model->token_types, model->hidden);
    visit_embeddings(context, visit, family->relative_bias, &model->relative_bias, RELATIVE_BUCKETS, model->heads);
    bool own_head = model->generates && !model->tied_head;
    visit_embeddings(context, visit, own_head ? family->lm_head : NULL, &model->lm_head, model->vocabulary,
                     model->hidden);
    struct visit at = {visit, context, ""};
    visit_norm(&at, family->embedding_norm, &model->embedding_norm, family->bare & BARE_NORM, model->hidden);
    snprintf(at.prefix, sizeof at.prefix, "%s0.", family->layer);
    visit_norm(&at, model->first_norm ? family->output_norm : NULL, &model->embedding_norm, family->bare & BARE_NORM,
               model->hidden);
    for (uint32_t i = 0; i < model->layer_count; i++) { visit_layer(model, i, visit, context); }
    for (uint32_t i = 0; i < model->module_count; i++) { visit_module(&model->modules[i], visit, context); }
}

static void add_slot(void *context, const char *name, struct tensor *const *parts, uint32_t count, uint32_t rank,
                     uint64_t rows, uint64_t columns)
{
    struct slots *slots = context;
    struct slot *slot = &slots->list[slots->count++];
    snprintf(slot->name, sizeof slot->name, "%s", name);
    for (uint32_t i = 0; i < count; i++) { slot->parts[i] = parts[i]; }
    slot->count = count;
    slot->rank = rank;
    slot->shape[0] = rows;
    slot->shape[1] = columns;
}

static int compare_slots(const void *a, const void *b)
{
    const struct slot *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static const char *skip_prefixes(const struct family *family, const char *name)
{
    const char *const prefixes[] = {"0.auto_model.", "model.", family->prefix};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0];) {
        size_t length = strlen(prefixes[i]);
        if (strncmp(name, prefixes[i], length) == 0) {
            name += length;
            i = 0;
        } else {
            i++;
        }
    }
    return name;
}

/* True if it is a head or buffer, which is not used unless it is in the list. */
static bool is_unused(const struct family *family, const char *name)
{
    const char *const *head = family->unused;
    while (*head && strncmp(name, *head, strlen(*head)) != 0) { head++; }
    return *head;
}

/* Writes the name as the list spells it; the first TensorFlow exports called a LayerNorm's weight gamma and its bias
 * beta. */
static void spell_name(char *to, const char *name)
{
    snprintf(to, NAME_BYTES, "%s", name);
    char *norm = strstr(to, "LayerNorm.");
    if (!norm) { return; }
    char *last = norm + strlen("LayerNorm.");
    size_t room = NAME_BYTES - (size_t)(last - to);
    if (strcmp(last, "gamma") == 0) {
        snprintf(last, room, "weight");
    } else if (strcmp(last, "beta") == 0) {
        snprintf(last, room, "bias");
    }
}

static enum status set_tensor(const struct safetensors_entry *entry, const unsigned char *data, const char *file,
                              const struct slot *slot, struct err *err)
{
    if (slot->parts[0]->data) {
        return err_set(err, STATUS_BAD_INPUT, "%s: tensor %s is there twice (the second time as %.120s)", file,
                       slot->name, entry->name);
    }
    bool fits = entry->rank == slot->rank && entry->shape[0] == slot->shape[0] &&
                (slot->rank == 1 || entry->shape[1] == slot->shape[1]);
    if (!fits && slot->rank == 1) {
        return err_set(err, STATUS_BAD_INPUT, "%s: tensor %.120s must have the shape [%llu] (config.json)", file,
                       entry->name, (unsigned long long)slot->shape[0]);
    }
    if (!fits) {
        return err_set(err, STATUS_BAD_INPUT, "%s: tensor %.120s must have the shape [%llu, %llu] (config.json)", file,
                       entry->name, (unsigned long long)slot->shape[0], (unsigned long long)slot->shape[1]);
    }
    if (entry->dtype == SAFETENSORS_OTHER) {
        return err_set(err, STATUS_UNSUPPORTED, "%s: tensor %.120s has dtype %s; supported: F32, F16, BF16", file,
                       entry->name, entry->dtype_name);
    }
    enum dtype dtype = entry->dtype == SAFETENSORS_F32   ? DTYPE_F32
                       : entry->dtype == SAFETENSORS_F16 ? DTYPE_F16
                                                         : DTYPE_BF16;
    size_t elements = (size_t)entry->elements / slot->count;
    for (uint32_t i = 0; i < slot->count; i++) {
        *slot->parts[i] = (struct tensor){
            .dtype = dtype,
            .rank = slot->rank,
            .shape = {slot->shape[0] / slot->count, slot->rank == 2 ? slot->shape[1] : 1},
            .data = data + entry->begin + i * elements * dtype_bytes(dtype),
            .elements = elements,
        };
    }
    return STATUS_OK;
}

static enum status bind_file(const struct safetensors *file, const char *file_name, bool module,
                             const struct family *family, const struct slots *slots, struct err *err)
{
    for (size_t i = 0; i < file->count; i++) {
        const struct safetensors_entry *entry = &file->entries[i];
        const char *bare = skip_prefixes(family, entry->name);
        struct slot key;
        if (module) {
            snprintf(key.name, sizeof key.name, "%.*s%s", folder_bytes(file_name), file_name, entry->name);
        } else {
            spell_name(key.name, bare);
        }
        const struct slot *slot = bsearch(&key, slots->list, slots->count, sizeof key, compare_slots);
        if (!slot && !module && is_unused(family, bare)) { continue; }
        if (!slot) {
            return err_set(err, STATUS_UNSUPPORTED,
                           "%s: tensor %.120s is not part of the %s model that config.json describes", file_name,
                           entry->name, family->model_type);
        }
        TRY(set_tensor(entry, file->data, file_name, slot, err));
    }
    return STATUS_OK;
}

enum status weights_bind(const struct weights *weights, struct model *model, struct err *err)
{
    size_t most = 10 + 22 * (size_t)model->layer_count + 2 * (size_t)model->module_count;
    struct slots slots = {.list = calloc(most, sizeof *slots.list)};
    if (!slots.list) { return err_set(err, STATUS_NO_MEMORY, "no memory for the list of tensors"); }
    weights_visit(model, add_slot, &slots);
    qsort(slots.list, slots.count, sizeof *slots.list, compare_slots);
    enum status status = STATUS_OK;
    for (size_t i = 0; i < weights->count && status == STATUS_OK; i++) {
        status =
            bind_file(&weights->files[i], weights->names[i], i >= weights->encoder_files, model->family, &slots, err);
    }
    for (size_t i = 0; i < slots.count && status == STATUS_OK; i++) {
        if (!slots.list[i].parts[0]->data) {
            status = err_set(err, STATUS_BAD_INPUT, "%s: tensor %s is missing", weights->names[0], slots.list[i].name);
        }
    }
    free(slots.list);
    return status;
}

/* Weights of any dtype as f32, bit for bit. bf16 is the upper half of an f32; f16 is widened with integer arithmetic,
 * so that subnormals, infinities and the payload of a NaN come out the same on every machine. */

/* Source: IEEE 754-2008, binary16 and binary32. A subnormal half is exact in f32: its value is mantissa * 2^-24. */
static inline float widen_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = half >> 10 & 0x1Fu;
    uint32_t mantissa = half & 0x3FFu;
    uint32_t bits;
    if (exponent == 0x1F) {
        bits = sign | 0x7F800000u | mantissa << 13;
    } else if (exponent != 0) {
        bits = sign | (exponent + 112) << 23 | mantissa << 13;
    } else {
        float magnitude = (float)mantissa * 0x1p-24f;
        memcpy(&bits, &magnitude, sizeof bits);
        bits |= sign;
    }
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float widen_bf16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void tensor_read_f32(const struct tensor *tensor, size_t first, size_t count, float *to)
{
    const unsigned char *data = tensor->data;
    if (tensor->dtype == DTYPE_F32) {
        memcpy(to, data + first * sizeof(float), count * sizeof(float));
        return;
    }
    const unsigned char *from = data + first * sizeof(uint16_t);
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, from + i * sizeof half, sizeof half);
        to[i] = tensor->dtype == DTYPE_F16 ? widen_f16(half) : widen_bf16(half);
    }
}

enum status model_read_positions(const struct model *model, float *to, struct err *err)
{
    const struct tensor *type = &model->type_embeddings;
    size_t hidden = model->hidden, count = model_text_rows(model) * hidden;
    size_t first = (model->position_offset - model_first_row(model)) * hidden;
    uint32_t types = model->head.pair_types ? 2 : 1;
    bool rotary = model->rotary[0].base > 0;
    if ((!rotary && model->position_embeddings.elements < first + count) ||
        (type->data && type->elements < types * hidden)) {
        return err_set(err, STATUS_UNSUPPORTED, "the embeddings do not fit the model's sizes");
    }
    for (uint32_t t = 0; t < types; t++, to += count) {
        memset(to, 0, count * sizeof *to);
        if (!rotary) { tensor_read_f32(&model->position_embeddings, first, count, to); }
        for (size_t i = 0; type->data && i < count; i++) {
            float added;
            tensor_read_f32(type, t * hidden + i % hidden, 1, &added);
            to[i] += added;
        }
    }
    return STATUS_OK;
}

/* Divides a turn by Llama 3's rule. Source: _compute_llama3_parameters of transformers 5.23. */
static double divide_by_turns(const struct rotary *rotary, double turn)
{
    double fits = rotary->original * turn / (2 * M_PI);
    double kept = (fits - rotary->low_turns) / (rotary->high_turns - rotary->low_turns);
    kept = kept < 0 ? 0 : kept > 1 ? 1 : kept;
    return (1 - kept) * turn / rotary->divisor + kept * turn;
}

/* Source: Su et al. 2021 (RoFormer), section 3.2.2. */
void model_read_rotary(const struct model *model, bool local, float *to)
{
    const struct rotary *rotary = &model->rotary[local];
    uint32_t half = model_head_dim(model) / 2;
    for (uint32_t i = 0; i < half; i++) {
        double turn = pow(rotary->base, -(double)i / half);
        turn = rotary->original > 0 ? divide_by_turns(rotary, turn) : turn / rotary->divisor;
        for (size_t t = 0; t < model->max_tokens; t++) {
            to[2 * half * t + i] = (float)cos((double)t * turn);
            to[2 * half * t + half + i] = (float)sin((double)t * turn);
        }
    }
}

/* Source: Raffel et al. 2020 (T5), section 2.1, for both directions: half of the buckets are for keys after the query;
 * of each half, half are for one distance each, and the ends of the others grow by the square root of 2 each, up to
 * 128. */
static uint32_t bucket_of(int32_t distance)
{
    enum { HALF = RELATIVE_BUCKETS / 2, OWN = HALF / 2 };
    uint64_t far = (uint64_t)llabs(distance), end = 2 * OWN * OWN; /* the square of the bucket's end */
    uint32_t bucket = OWN;
    for (; bucket + 1 < HALF && far * far >= end; end *= 2) { bucket++; }
    return (distance > 0 ? HALF : 0) + (far < OWN ? (uint32_t)far : bucket);
}

enum status model_read_relative_bias(const struct model *model, uint32_t head, float *to, struct err *err)
{
    if (model->relative_bias.elements != (size_t)RELATIVE_BUCKETS * model->heads) {
        return err_set(err, STATUS_UNSUPPORTED, "the bias of attention does not fit the model's sizes");
    }
    float bias[RELATIVE_BUCKETS];
    int32_t furthest = (int32_t)model->max_tokens - 1;
    for (uint32_t i = 0; i < RELATIVE_BUCKETS; i++) {
        tensor_read_f32(&model->relative_bias, (size_t)i * model->heads + head, 1, &bias[i]);
    }
    for (int32_t distance = -furthest; distance <= furthest; distance++) {
        to[distance + furthest] = bias[bucket_of(distance)];
    }
    return STATUS_OK;
}

void tensor_release(const struct tensor *tensor)
{
    memory_release(tensor->data, tensor->elements * dtype_bytes(tensor->dtype));
}
