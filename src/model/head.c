/* Labels are counted as in transformers: those of id2label, else num_labels, else 2. Logits become scores as in its
 * pipeline for text classification, and for the score of a pair as in sentence-transformers' CrossEncoder.
 * Source: PreTrainedConfig and TextClassificationPipeline of transformers 5.23, CrossEncoder of sentence-transformers
 * 2.x to 6.2. */
#include "model/head.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_tree.h"
#include "model/family.h"

enum { MOST_LABELS = 1 << 16, DEFAULT_LABELS = 2 };

static bool is_classifier(const cJSON *root)
{
    static const char ending[] = "ForSequenceClassification";
    const cJSON *list = json_field(root, "architectures");
    const char *class = cJSON_IsArray(list) && cJSON_IsString(list->child) ? list->child->valuestring : "";
    size_t length = strlen(class), end = sizeof ending - 1;
    return length > end && strcmp(class + length - end, ending) == 0;
}

enum status head_is_there(const char *directory, const char *name, bool *there, struct err *err)
{
    cJSON *root;
    *there = false;
    TRY(json_read(directory, name, JSON_CONFIG_MAX_BYTES, &root, err));
    *there = is_classifier(root);
    cJSON_Delete(root);
    return STATUS_OK;
}

static enum status set_name(struct model_head *head, uint32_t label, const char *text, struct err *err)
{
    head->names[label] = strdup(text);
    return head->names[label] ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for the labels");
}

/* {"0": "negative", "1": "positive"}, in any order. */
static enum status read_names(const cJSON *names, const char *name, struct model_head *head, struct err *err)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, names)
    {
        char *end;
        unsigned long label = strtoul(item->string, &end, 10);
        if (end == item->string || *end != '\0' || label >= head->labels || head->names[label]) {
            return err_set(err, STATUS_BAD_INPUT, "%s: id2label: the keys must be 0 to %u, each once", name,
                           head->labels - 1);
        }
        if (!cJSON_IsString(item)) {
            return err_set(err, STATUS_BAD_INPUT, "%s: id2label: %lu must be a string", name, label);
        }
        TRY(set_name(head, (uint32_t)label, item->valuestring, err));
    }
    return STATUS_OK;
}

static enum status read_labels(const cJSON *root, const char *name, struct model_head *head, struct err *err)
{
    const cJSON *names = json_field(root, "id2label");
    uint32_t number = 0;
    TRY(json_u32(root, name, "num_labels", 1, MOST_LABELS, &number, err));
    if (names && (!cJSON_IsObject(names) || cJSON_GetArraySize(names) < 1 || cJSON_GetArraySize(names) > MOST_LABELS)) {
        return err_set(err, STATUS_BAD_INPUT, "%s: id2label must be an object of 1 to %d labels", name, MOST_LABELS);
    }
    uint32_t named = names ? (uint32_t)cJSON_GetArraySize(names) : 0;
    if (named > 0 && number > 0 && named != number) {
        return err_set(err, STATUS_BAD_INPUT, "%s: id2label has %u labels and num_labels is %u", name, named, number);
    }
    head->labels = named > 0 ? named : number > 0 ? number : DEFAULT_LABELS;
    head->names = calloc(head->labels, sizeof *head->names);
    if (!head->names) { return err_set(err, STATUS_NO_MEMORY, "no memory for the labels"); }
    if (named > 0) { return read_names(names, name, head, err); }
    for (uint32_t i = 0; i < head->labels; i++) {
        char text[32];
        snprintf(text, sizeof text, "LABEL_%u", i);
        TRY(set_name(head, i, text, err));
    }
    return STATUS_OK;
}

/* A regression's logits are its scores. */
static enum status read_problem(const cJSON *root, const char *name, struct model_head *head, struct err *err)
{
    const char *type = NULL;
    TRY(json_string(root, name, "problem_type", &type, err));
    head->classify = head->labels == 1 ? SCORING_SIGMOID : SCORING_SOFTMAX;
    if (!type || strcmp(type, "single_label_classification") == 0) { return STATUS_OK; }
    if (strcmp(type, "multi_label_classification") == 0) {
        head->classify = SCORING_SIGMOID;
    } else if (strcmp(type, "regression") == 0) {
        head->classify = SCORING_NONE;
    } else {
        return err_set(err, STATUS_UNSUPPORTED, "%s: problem_type \"%.60s\" is not supported", name, type);
    }
    return STATUS_OK;
}

const char *head_torch_class(const char *name)
{
    return strncmp(name, "torch.nn.", strlen("torch.nn.")) == 0 ? strrchr(name, '.') + 1 : "";
}

enum status head_parse_activation(const char *name, const char *field, const char *text, enum scoring *out,
                                  struct err *err)
{
    const char *class = head_torch_class(text);
    if (strcmp(class, "Sigmoid") == 0) {
        *out = SCORING_SIGMOID;
    } else if (strcmp(class, "Identity") == 0) {
        *out = SCORING_NONE;
    } else {
        return err_set(err, STATUS_UNSUPPORTED,
                       "%s: %s \"%.100s\" is not supported; supported: torch.nn's Sigmoid and Identity", name, field,
                       text);
    }
    return STATUS_OK;
}

/* Reads the scoring in the order in which CrossEncoder looks for it; config_sentence_transformers.json has been read
 * before. */
static enum status read_score(const cJSON *root, const char *name, struct model_head *head, struct err *err)
{
    static const char *const known[] = {"activation_fn", "version", NULL};
    static const char block_field[] = "sentence_transformers: activation_fn",
                      old_field[] = "sbert_ce_default_activation_function";
    const cJSON *block = json_field(root, "sentence_transformers");
    const char *text = NULL, *old = NULL;
    if (head->labels != 1 || head->score != SCORING_UNSET) { return STATUS_OK; }
    if (block) {
        TRY(json_only(block, name, known, NULL, err));
        TRY(json_string(block, name, known[0], &text, err));
    }
    if (text) { return head_parse_activation(name, block_field, text, &head->score, err); }
    TRY(json_string(root, name, old_field, &old, err));
    if (old) { return head_parse_activation(name, old_field, old, &head->score, err); }
    head->score = SCORING_SIGMOID;
    return STATUS_OK;
}

static struct model_module *add_layer(struct model *model, enum module_kind kind, const char *name, uint32_t outputs)
{
    struct model_module *layer = &model->modules[model->module_count++];
    *layer = (struct model_module){kind, "", model->hidden, outputs, .biased = true};
    snprintf(layer->name, sizeof layer->name, "%s", name);
    return layer;
}

/* The layers: in most families a dense one with a function after it, in some a norm like those of the encoder, and
 * `out`. */
static enum status add_layers(struct model *model, struct err *err)
{
    const struct family *family = model->family;
    free(model->modules); /* from modules.json, which lists none */
    model->modules = calloc(3, sizeof *model->modules);
    if (!model->modules) { return err_set(err, STATUS_NO_MEMORY, "no memory for the head"); }
    if (family->head_dense) {
        add_layer(model, MODULE_DENSE, family->head_dense, model->hidden)->activation = family->head_activation;
    }
    if (family->head_norm) {
        struct model_module *norm = add_layer(model, MODULE_LAYER_NORM, family->head_norm, model->hidden);
        norm->eps = model->layer_norm_eps;
        norm->biased = !(family->bare & BARE_NORM);
    }
    add_layer(model, MODULE_DENSE, family->head_out, model->head.labels);
    return STATUS_OK;
}

static enum status read_head(const cJSON *root, const char *name, struct model *model, struct err *err)
{
    if (!model->family->head_out) {
        return err_set(err, STATUS_UNSUPPORTED, "%s: the head of %sForSequenceClassification is not supported", name,
                       model->family->class);
    }
    model->head.pair_types = model->family->pair_types && model->token_types > 1;
    TRY(read_labels(root, name, &model->head, err));
    TRY(read_problem(root, name, &model->head, err));
    TRY(read_score(root, name, &model->head, err));
    TRY(add_layers(model, err));
    return model->family->read_head ? model->family->read_head(root, name, model, err) : STATUS_OK;
}

enum status head_read_config(const char *name, struct model *model, struct err *err)
{
    cJSON *root;
    TRY(json_read(model->directory, name, JSON_CONFIG_MAX_BYTES, &root, err));
    enum status status = read_head(root, name, model, err);
    cJSON_Delete(root);
    return status;
}

void head_free(struct model_head *head)
{
    for (uint32_t i = 0; head->names && i < head->labels; i++) { free(head->names[i]); }
    free(head->names);
    *head = (struct model_head){0};
}
