/* The table of families, and their common code. Every field of config.json is looked up: one that is neither read nor
 * known to be harmless may change the maths, so the model is refused with that field's name; null counts as absent. The
 * harmless ones are fields that transformers 2 to 5 write for training, generation and heads.
 * Source: PreTrainedConfig of transformers 2.x, 3.x, 4.x and 5.23. */
#include "model/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_tree.h"

#define FAMILY(name) &family_##name,
static const struct family *const families[] = {
#include "model/families.inc"
};
#undef FAMILY

#define FAMILIES (sizeof families / sizeof families[0])

static const char *const must_be_empty[] = {"is_decoder",
                                            "is_encoder_decoder",
                                            "add_cross_attention",
                                            "cross_attention_hidden_size",
                                            "pruned_heads",
                                            "quantization_config",
                                            "auto_map",
                                            "per_layer_config",
                                            NULL};

static const char *const harmless[] = {
    /* Fields without effect on the result: training, precision on disk, splitting of the work. */
    "classifier_dropout", "initializer_range", "initializer_factor", "gradient_checkpointing",
    "chunk_size_feed_forward", "torch_dtype", "dtype", "use_bfloat16", "use_cache", "torchscript", "xla_device",
    "attn_implementation", "_attn_implementation", "_attn_implementation_autoset", "output_attentions",
    "output_hidden_states", "output_past", "return_dict", "use_return_dict", "tie_word_embeddings",
    "tie_encoder_decoder", "tf_legacy_loss",
    /* The model's origin. */
    "_name_or_path", "name_or_path", "_commit_hash", "transformers_version", "tokenizer_class", "matryoshka_dimensions",
    "sentence_transformers", "language",
    /* Heads that an embedding does not use. */
    "id2label", "label2id", "num_labels", "_num_labels", "problem_type", "finetuning_task", "task_specific_params",
    "classifier_activation", "sbert_ce_default_activation_function",
    /* Token ids, which come from the tokenizer instead; generation. */
    "pad_token_id", "bos_token_id", "eos_token_id", "eos_token_ids", "sep_token_id", "cls_token_id", "mask_token_id",
    "unk_token_id", "decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id", "prefix", "max_length",
    "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty", "temperature",
    "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "output_scores", "return_dict_in_generate",
    "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens", NULL};

/* True if one of the spellings begins with this field. */
static bool is_spelled(const char *const spellings[CONFIG_SPELLINGS], const char *field)
{
    size_t length = strlen(field);
    for (int i = 0; i < CONFIG_SPELLINGS && spellings[i]; i++) {
        if (strncmp(spellings[i], field, length) == 0 &&
            (spellings[i][length] == '\0' || spellings[i][length] == '.')) {
            return true;
        }
    }
    return false;
}

static bool is_read(const struct family *family, const char *field)
{
    for (int i = 0; i < CONFIG_FIELDS; i++) {
        if (is_spelled(family->fields[i], field)) { return true; }
    }
    return (family->own && json_is_in(family->own, field)) || strcmp(field, "model_type") == 0 ||
           strcmp(field, "architectures") == 0 || (family->scaled_rotary && strcmp(field, "rope_scaling") == 0);
}

static enum status check_field(const struct family *family, const cJSON *value, const char *name, struct err *err)
{
    const char *field = value->string;
    if (cJSON_IsNull(value) || is_read(family, field) || json_is_in(family->harmless, field) ||
        json_is_in(harmless, field)) {
        return STATUS_OK;
    }
    if (json_is_in(must_be_empty, field) || (family->empty && json_is_in(family->empty, field))) {
        return json_is_empty(value)
                   ? STATUS_OK
                   : err_set(err, STATUS_UNSUPPORTED, "%s: %s is set, which is not supported", name, field);
    }
    if (strcmp(field, "position_embedding_type") == 0) {
        return cJSON_IsString(value) && strcmp(value->valuestring, "absolute") == 0
                   ? STATUS_OK
                   : err_set(err, STATUS_UNSUPPORTED, "%s: %s must be \"absolute\", nothing else is supported", name,
                             field);
    }
    return err_set(err, STATUS_UNSUPPORTED,
                   "%s: the field %.100s is not known here and may change the result; remove it if it does not", name,
                   field);
}

static enum status find_family(const cJSON *root, const char *name, const struct family **family, struct err *err)
{
    const char *type = NULL;
    TRY(json_string(root, name, "model_type", &type, err));
    if (!type) { return err_set(err, STATUS_BAD_INPUT, "%s: model_type is missing", name); }
    char supported[256] = "";
    for (size_t i = 0, used = 0; i < FAMILIES; i++) {
        if (strcmp(type, families[i]->model_type) == 0) {
            *family = families[i];
            return STATUS_OK;
        }
        used += (size_t)snprintf(supported + used, sizeof supported - used, "%s%s", i > 0 ? ", " : "",
                                 families[i]->model_type);
    }
    return err_set(err, STATUS_UNSUPPORTED, "%s: model_type \"%.60s\" is not supported; supported: %s", name, type,
                   supported);
}

static enum status check_classes(const struct family *family, const cJSON *root, const char *name, struct err *err)
{
    const cJSON *list = json_field(root, "architectures"), *item;
    if (list && !cJSON_IsArray(list)) {
        return err_set(err, STATUS_BAD_INPUT, "%s: architectures must be a list", name);
    }
    cJSON_ArrayForEach(item, list)
    {
        const char *class = cJSON_IsString(item) ? item->valuestring : "?";
        if (strncmp(class, family->class, strlen(family->class)) != 0) {
            return err_set(err, STATUS_UNSUPPORTED, "%s: architectures: \"%.60s\" is not supported; %sModel is", name,
                           class, family->class);
        }
    }
    return STATUS_OK;
}

/* --- Fields and their spellings --- */

/* The place that a spelling names: a field of an object, which is NULL if an object on the path is missing. `name` is
 * the object's, for messages. */
struct place {
    const cJSON *object;
    const char *field;
    char name[192];
};

static struct place find_place(const cJSON *root, const char *name, const char *spelling)
{
    struct place place = {.object = root, .field = spelling};
    size_t length = (size_t)snprintf(place.name, sizeof place.name, "%s", name);
    for (const char *dot; (dot = strchr(place.field, '.')) != NULL; place.field = dot + 1) {
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)(dot - place.field), place.field);
        place.object = json_field(place.object, key);
        if (length < sizeof place.name) {
            length += (size_t)snprintf(place.name + length, sizeof place.name - length, ": %s", key);
        }
    }
    return place;
}

/* The names of activations. With a `field`, the name is known only in that field. */
static const struct named_activation {
    const char *name;
    enum activation activation;
    bool plain, gated; /* allowed in plain, in gated feed-forward parts */
    const char *field;
} activations[] = {
    {"gelu", ACTIVATION_GELU_ERF, true, true, NULL},
    {"gelu_python", ACTIVATION_GELU_ERF, true, true, NULL},
    {"gelu_new", ACTIVATION_GELU_TANH, true, true, NULL},
    {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH, true, true, NULL},
    {"relu", ACTIVATION_RELU, true, false, NULL},
    {"silu", ACTIVATION_SILU, false, true, NULL},
    {"swiglu", ACTIVATION_SILU, false, true, "activation_function"},
};

static enum status parse_activation(const struct place *place, bool gated, const struct named_activation **out,
                                    struct err *err)
{
    const char *text = NULL;
    TRY(json_string(place->object, place->name, place->field, &text, err));
    if (!text) { return err_set(err, STATUS_BAD_INPUT, "%s: %s is missing", place->name, place->field); }
    for (size_t i = 0; i < sizeof activations / sizeof activations[0]; i++) {
        const struct named_activation *known = &activations[i];
        if (strcmp(known->name, text) == 0 && (gated ? known->gated : known->plain) &&
            (!known->field || strcmp(known->field, place->field) == 0)) {
            *out = known;
            return STATUS_OK;
        }
    }
    return err_set(err, STATUS_UNSUPPORTED,
                   "%s: %s \"%.60s\" is not supported; supported: gelu, gelu_python, gelu_new, gelu_pytorch_tanh, %s",
                   place->name, place->field, text, gated ? "silu" : "relu");
}

static enum status says_same(const struct family *family, enum config_field field, const struct place *a,
                             const struct place *b, bool *same, struct err *err)
{
    const struct named_activation *one, *other;
    if (field != CONFIG_ACTIVATION) {
        *same = field == CONFIG_POSITIONS ||
                cJSON_Compare(json_field(a->object, a->field), json_field(b->object, b->field), true);
        return STATUS_OK;
    }
    TRY(parse_activation(a, family->gated, &one, err));
    TRY(parse_activation(b, family->gated, &other, err));
    *same = one->activation == other->activation;
    return STATUS_OK;
}

/* Finds the first spelling that the file has, or the first of all. Errors: STATUS_BAD_INPUT, if it has two that differ.
 */
static enum status find_field(const struct family *family, enum config_field field, const cJSON *root, const char *name,
                              struct place *out, struct err *err)
{
    const char *const *spellings = family->fields[field], *found = NULL;
    *out = find_place(root, name, spellings[0]);
    for (int i = 0; i < CONFIG_SPELLINGS && spellings[i]; i++) {
        struct place place = find_place(root, name, spellings[i]);
        bool same = true;
        if (!json_field(place.object, place.field)) { continue; }
        if (found) { TRY(says_same(family, field, out, &place, &same, err)); }
        if (!same) {
            return err_set(err, STATUS_BAD_INPUT, "%s: %s and %s contradict each other", name, found, spellings[i]);
        }
        if (!found) {
            found = spellings[i];
            *out = place;
        }
    }
    return STATUS_OK;
}

/* Reads a field that must be present, unless the family makes it optional. */
static enum status read_size(const struct family *family, enum config_field field, const cJSON *root, const char *name,
                             uint32_t most, uint32_t *out, struct err *err)
{
    const char *const *spellings = family->fields[field];
    struct place place;
    TRY(find_field(family, field, root, name, &place, err));
    TRY(json_u32(place.object, place.name, place.field, 1, most, out, err));
    return *out > 0 || (family->optional & 1u << field)
               ? STATUS_OK
               : err_set(err, STATUS_BAD_INPUT, "%s: %s%s%s is missing", name, spellings[0], spellings[1] ? " or " : "",
                         spellings[1] ? spellings[1] : "");
}

static enum status read_sizes(const cJSON *root, const char *name, struct model *model, struct err *err)
{
    const struct {
        uint32_t *to;
        uint32_t most;
    } sizes[] = {
        [CONFIG_VOCABULARY] = {&model->vocabulary, 1u << 24},
        [CONFIG_HIDDEN] = {&model->hidden, 1u << 16},
        [CONFIG_LAYERS] = {&model->layer_count, 1u << 10},
        [CONFIG_HEADS] = {&model->heads, 1u << 10},
        [CONFIG_KEY_HEADS] = {&model->key_heads, 1u << 10},
        [CONFIG_HEAD_DIM] = {&model->head_dim, 1u << 10},
        [CONFIG_INTERMEDIATE] = {&model->intermediate_size, 1u << 20},
        [CONFIG_POSITIONS] = {&model->positions, MODEL_POSITIONS_MAX},
        [CONFIG_TOKEN_TYPES] = {&model->token_types, 1u << 10},
    };
    const struct family *family = model->family;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (!family->fields[i][0]) { continue; }
        TRY(read_size(family, (enum config_field)i, root, name, sizes[i].most, sizes[i].to, err));
    }
    if (model->head_dim == 0 && model->hidden % model->heads != 0) {
        return err_set(err, STATUS_BAD_INPUT, "%s: %s %u is not a multiple of %s %u", name,
                       family->fields[CONFIG_HIDDEN][0], model->hidden, family->fields[CONFIG_HEADS][0], model->heads);
    }
    if (model->heads % model_key_heads(model) != 0) {
        return err_set(err, STATUS_BAD_INPUT, "%s: %s %u is not a multiple of %s %u", name,
                       family->fields[CONFIG_HEADS][0], model->heads, family->fields[CONFIG_KEY_HEADS][0],
                       model->key_heads);
    }
    model->layers = calloc(model->layer_count, sizeof *model->layers);
    return model->layers ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for the layers");
}

static enum status read_positions(const cJSON *root, const char *name, struct model *model, struct err *err)
{
    const struct family *family = model->family;
    const char *padding = family->fields[CONFIG_PADDING][0], *field = family->fields[CONFIG_BUCKETS][0];
    uint32_t buckets = RELATIVE_BUCKETS;
    model->position_offset = family->position_offset;
    if (padding) {
        uint32_t pad = family->position_offset - 1;
        TRY(json_u32(root, name, padding, 0, 1u << 20, &pad, err));
        model->position_offset = pad + 1;
    }
    if (model->positions <= model->position_offset) {
        return err_set(err, STATUS_BAD_INPUT, "%s: %s %u leaves no position behind the %u that no token has", name,
                       family->fields[CONFIG_POSITIONS][0], model->positions, model->position_offset);
    }
    if (field) { TRY(json_u32(root, name, field, 1, 1u << 10, &buckets, err)); }
    return buckets == RELATIVE_BUCKETS ? STATUS_OK
                                       : err_set(err, STATUS_UNSUPPORTED, "%s: %s %u is not supported; %d is", name,
                                                 field, buckets, RELATIVE_BUCKETS);
}

/* The base, if the file gives one. Null is refused, because its meaning depends on the version of transformers. */
static enum status read_base(const struct family *family, enum config_field field, const cJSON *root, const char *name,
                             double *base, struct err *err)
{
    struct place place;
    TRY(find_field(family, field, root, name, &place, err));
    TRY(json_double(place.object, place.name, place.field, base, err));
    bool number = *base > 0 && *base < 1e12;
    for (int i = 0; i < CONFIG_SPELLINGS && family->fields[field][i] && number; i++) {
        place = find_place(root, name, family->fields[field][i]);
        number = !cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(place.object, place.field));
    }
    return number
               ? STATUS_OK
               : err_set(err, STATUS_BAD_INPUT, "%s: %s must be a number between 0 and 1e12", place.name, place.field);
}

/* Reads a number that must be there and at least `least`. */
static enum status read_factor(const cJSON *rope, const char *name, const char *field, double least, double *out,
                               struct err *err)
{
    *out = -1;
    TRY(json_double(rope, name, field, out, err));
    return *out >= least && *out < 1e9
               ? STATUS_OK
               : err_set(err, STATUS_BAD_INPUT, "%s: %s must be a number of at least %g", name, field, least);
}

/* Reads what rope_parameters or rope_scaling, or a part for one kind of layers, says besides the base. A family whose
 * positions are not scaled takes no other type than "default". */
static enum status read_scaling(const cJSON *rope, const char *name, bool scaled, struct rotary *out, struct err *err)
{
    static const char *const plain[] = {"rope_theta", "rope_type", "type", NULL},
                             *const linear[] = {"rope_theta", "rope_type", "type", "factor", NULL},
                             *const llama3[] = {"rope_theta",
                                                "rope_type",
                                                "type",
                                                "factor",
                                                "low_freq_factor",
                                                "high_freq_factor",
                                                "original_max_position_embeddings",
                                                NULL};
    const char *type = "default", *older = NULL;
    if (!rope) { return STATUS_OK; }
    TRY(json_string(rope, name, "type", &older, err));
    type = older ? older : type;
    TRY(json_string(rope, name, "rope_type", &type, err));
    if (older && strcmp(older, type) != 0) {
        return err_set(err, STATUS_BAD_INPUT, "%s: rope_type and type contradict each other", name);
    }
    if (strcmp(type, "default") == 0) { return json_only(rope, name, plain, NULL, err); }
    bool divided = strcmp(type, "linear") == 0, by_turns = strcmp(type, "llama3") == 0;
    if (!scaled || (!divided && !by_turns)) {
        return err_set(err, STATUS_UNSUPPORTED, "%s: rope_type \"%.60s\" is not supported; supported: default%s", name,
                       type, scaled ? ", linear, llama3" : "");
    }
    TRY(json_only(rope, name, divided ? linear : llama3, NULL, err));
    TRY(read_factor(rope, name, "factor", 1, &out->divisor, err));
    if (divided) { return STATUS_OK; }
    TRY(read_factor(rope, name, "original_max_position_embeddings", 1, &out->original, err));
    TRY(read_factor(rope, name, "low_freq_factor", 0.001, &out->low_turns, err));
    TRY(read_factor(rope, name, "high_freq_factor", 0.001, &out->high_turns, err));
    return out->high_turns > out->low_turns
               ? STATUS_OK
               : err_set(err, STATUS_BAD_INPUT, "%s: high_freq_factor must be above low_freq_factor", name);
}

static const char *const layer_kinds[] = {"full_attention", "sliding_attention", NULL};

/* Transformers 4 writes rope_scaling, which is for the layers that attend to all tokens. */
static enum status read_rotary(const cJSON *root, const char *name, struct model *model, struct err *err)
{
    const struct family *family = model->family;
    const cJSON *rope = json_field(root, "rope_parameters"),
                *older = family->scaled_rotary ? json_field(root, "rope_scaling") : NULL;
    char object[128];
    for (int i = 0; i < 2 && family->fields[CONFIG_ROTARY + i][0]; i++) {
        model->rotary[i] = (struct rotary){.base = family->rotary[i], .divisor = 1};
        TRY(read_base(family, CONFIG_ROTARY + i, root, name, &model->rotary[i].base, err));
    }
    if (rope && older) {
        return err_set(err, STATUS_BAD_INPUT, "%s: rope_parameters and rope_scaling are both there", name);
    }
    snprintf(object, sizeof object, "%s: %s", name, older ? "rope_scaling" : "rope_parameters");
    if (older || !family->fields[CONFIG_ROTARY_LOCAL][0]) {
        return read_scaling(older ? older : rope, object, family->scaled_rotary, &model->rotary[0], err);
    }
    if (rope) { TRY(json_only(rope, object, layer_kinds, NULL, err)); }
    for (int i = 0; rope && layer_kinds[i]; i++) {
        char kind[192];
        snprintf(kind, sizeof kind, "%s: %s", object, layer_kinds[i]);
        TRY(read_scaling(json_field(rope, layer_kinds[i]), kind, family->scaled_rotary, &model->rotary[i], err));
    }
    return STATUS_OK;
}

enum status family_read_layer_types(const cJSON *root, const char *name, const char *pattern, struct model *model,
                                    struct err *err)
{
    const cJSON *types = json_field(root, "layer_types"), *type;
    bool patterned = pattern && json_field(root, pattern);
    uint32_t layer = 0;
    if (types && (!cJSON_IsArray(types) || (uint32_t)cJSON_GetArraySize(types) != model->layer_count)) {
        return err_set(err, STATUS_BAD_INPUT, "%s: layer_types must be a list of %u", name, model->layer_count);
    }
    cJSON_ArrayForEach(type, types)
    {
        const char *text = cJSON_IsString(type) ? type->valuestring : "?";
        bool local = strcmp(text, layer_kinds[1]) == 0;
        if (!json_is_in(layer_kinds, text) || (local && !pattern)) {
            return err_set(err, STATUS_UNSUPPORTED, "%s: layer_types: \"%.60s\" is not supported", name, text);
        }
        if (patterned && model->layers[layer].local != local) {
            return err_set(err, STATUS_BAD_INPUT, "%s: layer_types and %s contradict each other", name, pattern);
        }
        model->layers[layer++].local = local;
    }
    return STATUS_OK;
}

/* The class that config.json names; "" without one. */
static const char *class_name(const cJSON *root)
{
    const cJSON *first = cJSON_GetArrayItem(json_field(root, "architectures"), 0);
    return cJSON_IsString(first) ? first->valuestring : "";
}

static bool is_language_model(const char *class)
{
    static const char ending[] = "ForCausalLM";
    size_t length = strlen(class), end = sizeof ending - 1;
    return length > end && strcmp(class + length - end, ending) == 0;
}

bool family_names_language_model(const char *directory)
{
    cJSON *root;
    if (json_read(directory, "config.json", JSON_CONFIG_MAX_BYTES, &root, NULL) != STATUS_OK) { return false; }
    bool named = is_language_model(class_name(root));
    cJSON_Delete(root);
    return named;
}

/* Reads whether the files are a language model's, and whether its lm_head is the word embeddings. */
static enum status read_lm_head(const cJSON *root, const char *name, struct model *model, struct err *err)
{
    const char *class = class_name(root);
    model->causal_lm = model->family->lm_head && is_language_model(class);
    model->tied_head = model->family->tied_head;
    if (model->causal_lm) { TRY(json_bool(root, name, "tie_word_embeddings", &model->tied_head, err)); }
    return !model->generates || model->causal_lm
               ? STATUS_OK
               : err_set(err, STATUS_UNSUPPORTED,
                         "%s: architectures: \"%.60s\" does not generate text; such as LlamaForCausalLM do", name,
                         class);
}

static enum status read_eps(const cJSON *root, const char *name, struct model *model, struct err *err)
{
    double eps = model->family->eps > 0 ? model->family->eps : 1e-12;
    struct place place;
    if (model->family->fields[CONFIG_EPS][0]) {
        TRY(find_field(model->family, CONFIG_EPS, root, name, &place, err));
        TRY(json_double(place.object, place.name, place.field, &eps, err));
        if (!(eps > 0 && eps < 1)) {
            return err_set(err, STATUS_BAD_INPUT, "%s: %s must lie between 0 and 1", name, place.field);
        }
    }
    model->layer_norm_eps = (float)eps;
    return STATUS_OK;
}

static enum status read_fields(const cJSON *root, const char *name, struct model *model, struct err *err)
{
    if (!cJSON_IsObject(root)) { return err_set(err, STATUS_BAD_INPUT, "%s: not a JSON object", name); }
    TRY(find_family(root, name, &model->family, err));
    TRY(check_classes(model->family, root, name, err));
    const struct named_activation *named;
    struct place place;
    const cJSON *value;
    cJSON_ArrayForEach(value, root)
    {
        TRY(check_field(model->family, value, name, err));
    }
    TRY(read_sizes(root, name, model, err));
    TRY(read_positions(root, name, model, err));
    TRY(find_field(model->family, CONFIG_ACTIVATION, root, name, &place, err));
    TRY(parse_activation(&place, model->family->gated, &named, err));
    model->activation = named->activation;
    TRY(read_rotary(root, name, model, err));
    TRY(read_eps(root, name, model, err));
    TRY(read_lm_head(root, name, model, err));
    model->pre_norm = model->family->pre_norm;
    model->first_norm = model->family->first_norm;
    model->rms_norm = model->family->rms_norm;
    model->causal = model->family->causal;
    model->gated = model->family->gated;
    if (model->family->read) { TRY(model->family->read(root, name, model, err)); }
    if (model->rotary[0].base == 0 || model_head_dim(model) % 2 == 0) { return STATUS_OK; }
    return err_set(err, STATUS_UNSUPPORTED, "%s: rotary positions need an even width of heads, not %u", name,
                   model_head_dim(model));
}

enum status family_read_config(const char *directory, const char *name, struct model *model, struct err *err)
{
    cJSON *root;
    TRY(json_read(directory, name, JSON_CONFIG_MAX_BYTES, &root, err));
    enum status status = read_fields(root, name, model, err);
    cJSON_Delete(root);
    return status;
}
