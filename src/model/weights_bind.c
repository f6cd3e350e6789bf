/* Which tensor of a file is which weight. The model's own list of weights is made once (weights_visit) and sorted; each
 * tensor in the files is brought to that list's spelling and looked up. A tensor that is neither in the list nor part
 * of a head is refused: it would change the result, or the files belong to another architecture. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/weights.h"

#define NAME_BYTES 128

struct slot {
    char name[NAME_BYTES];
    struct tensor *tensor;
    uint32_t rank;
    uint64_t shape[2];
};

struct slots {
    struct slot *list; /* [count], by name once sorted */
    size_t count;
};

static void visit_pair(void *context, weights_visitor *visit, const char *prefix, const char *part,
                       struct tensor *weight, struct tensor *bias, uint32_t rank, uint64_t rows, uint64_t columns)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s%s.weight", prefix, part);
    visit(context, name, weight, rank, rows, columns);
    snprintf(name, sizeof name, "%s%s.bias", prefix, part);
    visit(context, name, bias, 1, rows, 1);
}

static void visit_layer(struct model *model, uint32_t index, weights_visitor *visit, void *context)
{
    struct model_layer *layer = &model->layers[index];
    const struct {
        const char *part;
        struct linear *linear;
        uint64_t rows, columns;
    } linears[] = {
        {"attention.self.query", &layer->query, model->hidden, model->hidden},
        {"attention.self.key", &layer->key, model->hidden, model->hidden},
        {"attention.self.value", &layer->value, model->hidden, model->hidden},
        {"attention.output.dense", &layer->attention_output, model->hidden, model->hidden},
        {"intermediate.dense", &layer->intermediate, model->intermediate_size, model->hidden},
        {"output.dense", &layer->output, model->hidden, model->intermediate_size},
    };
    char prefix[64];
    snprintf(prefix, sizeof prefix, "encoder.layer.%u.", index);
    for (size_t i = 0; i < sizeof linears / sizeof linears[0]; i++)
        visit_pair(context, visit, prefix, linears[i].part, &linears[i].linear->weight, &linears[i].linear->bias, 2,
                   linears[i].rows, linears[i].columns);
    visit_pair(context, visit, prefix, "attention.output.LayerNorm", &layer->attention_norm.gain,
               &layer->attention_norm.bias, 1, model->hidden, 1);
    visit_pair(context, visit, prefix, "output.LayerNorm", &layer->output_norm.gain, &layer->output_norm.bias, 1,
               model->hidden, 1);
}

void weights_visit(struct model *model, weights_visitor *visit, void *context)
{
    visit(context, "embeddings.word_embeddings.weight", &model->word_embeddings, 2, model->vocabulary, model->hidden);
    visit(context, "embeddings.position_embeddings.weight", &model->position_embeddings, 2, model->positions,
          model->hidden);
    visit(context, "embeddings.token_type_embeddings.weight", &model->type_embeddings, 2, model->token_types,
          model->hidden);
    visit_pair(context, visit, "embeddings.", "LayerNorm", &model->embedding_norm.gain, &model->embedding_norm.bias, 1,
               model->hidden, 1);
    for (uint32_t i = 0; i < model->layer_count; i++)
        visit_layer(model, i, visit, context);
}

static void add_slot(void *context, const char *name, struct tensor *tensor, uint32_t rank, uint64_t rows,
                     uint64_t columns)
{
    struct slots *slots = context;
    struct slot *slot = &slots->list[slots->count++];
    snprintf(slot->name, sizeof slot->name, "%s", name);
    slot->tensor = tensor;
    slot->rank = rank;
    slot->shape[0] = rows;
    slot->shape[1] = columns;
}

static int compare_slots(const void *a, const void *b)
{
    const struct slot *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static const char *skip_prefixes(const char *name)
{
    static const char *const prefixes[] = {"0.auto_model.", "model.", "bert.", "roberta."};
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

/* Heads and buffers that a sentence vector does not use. */
static bool is_unused(const char *name)
{
    static const char *const heads[] = {"pooler.", "cls.", "classifier.", "qa_outputs."};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        if (strncmp(name, heads[i], strlen(heads[i])) == 0)
            return true;
    return strcmp(name, "embeddings.position_ids") == 0 || strcmp(name, "embeddings.token_type_ids") == 0;
}

/* Writes the name as the list spells it; the first TensorFlow exports called a LayerNorm's weight gamma and its bias
 * beta. */
static void spell(char *to, const char *name)
{
    snprintf(to, NAME_BYTES, "%s", name);
    char *norm = strstr(to, "LayerNorm.");
    if (norm == NULL)
        return;
    char *last = norm + strlen("LayerNorm.");
    size_t room = NAME_BYTES - (size_t)(last - to);
    if (strcmp(last, "gamma") == 0)
        snprintf(last, room, "weight");
    else if (strcmp(last, "beta") == 0)
        snprintf(last, room, "bias");
}

static enum status set_tensor(const struct safetensors_entry *entry, const unsigned char *data, const char *file,
                              const struct slot *slot, struct err *err)
{
    if (slot->tensor->data != NULL)
        return err_set(err, STATUS_BAD_INPUT, "%s: tensor %s is there twice (the second time as %.120s)", file,
                       slot->name, entry->name);
    bool fits = entry->rank == slot->rank && entry->shape[0] == slot->shape[0] &&
                (slot->rank == 1 || entry->shape[1] == slot->shape[1]);
    if (!fits && slot->rank == 1)
        return err_set(err, STATUS_BAD_INPUT, "%s: tensor %.120s must have the shape [%llu] (config.json)", file,
                       entry->name, (unsigned long long)slot->shape[0]);
    if (!fits)
        return err_set(err, STATUS_BAD_INPUT, "%s: tensor %.120s must have the shape [%llu, %llu] (config.json)", file,
                       entry->name, (unsigned long long)slot->shape[0], (unsigned long long)slot->shape[1]);
    if (entry->dtype == SAFETENSORS_OTHER)
        return err_set(err, STATUS_UNSUPPORTED, "%s: tensor %.120s has dtype %s; supported: F32, F16, BF16", file,
                       entry->name, entry->dtype_name);
    *slot->tensor = (struct tensor){
        .dtype = entry->dtype == SAFETENSORS_F32   ? DTYPE_F32
                 : entry->dtype == SAFETENSORS_F16 ? DTYPE_F16
                                                   : DTYPE_BF16,
        .rank = slot->rank,
        .shape = {slot->shape[0], slot->rank == 2 ? slot->shape[1] : 1},
        .data = data + entry->begin,
        .elements = (size_t)entry->elements,
    };
    return STATUS_OK;
}

static enum status bind_file(const struct safetensors *file, const char *file_name, const struct slots *slots,
                             struct err *err)
{
    for (size_t i = 0; i < file->count; i++) {
        const struct safetensors_entry *entry = &file->entries[i];
        const char *bare = skip_prefixes(entry->name);
        if (is_unused(bare))
            continue;
        struct slot key;
        spell(key.name, bare);
        const struct slot *slot = bsearch(&key, slots->list, slots->count, sizeof key, compare_slots);
        if (slot == NULL)
            return err_set(err, STATUS_UNSUPPORTED,
                           "%s: tensor %.120s is not part of the BERT model that config.json describes", file_name,
                           entry->name);
        enum status status = set_tensor(entry, file->data, file_name, slot, err);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

enum status weights_bind(const struct weights *weights, struct model *model, struct err *err)
{
    struct slots slots = {.list = calloc(5 + 16 * (size_t)model->layer_count, sizeof *slots.list)};
    if (slots.list == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the list of tensors");
    weights_visit(model, add_slot, &slots);
    qsort(slots.list, slots.count, sizeof *slots.list, compare_slots);
    enum status status = STATUS_OK;
    for (size_t i = 0; i < weights->count && status == STATUS_OK; i++)
        status = bind_file(&weights->files[i], weights->names[i], &slots, err);
    for (size_t i = 0; i < slots.count && status == STATUS_OK; i++)
        if (slots.list[i].tensor->data == NULL)
            status = err_set(err, STATUS_BAD_INPUT, "%s: tensor %s is missing", weights->names[0], slots.list[i].name);
    free(slots.list);
    return status;
}
