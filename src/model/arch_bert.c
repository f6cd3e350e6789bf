/* Every field of config.json is looked up in one table: used, harmless, or allowed at one value only. A field that the
 * table does not have may change the maths, so the model is refused by that field's name; null counts as absent.
 * The harmless ones are what transformers 2 to 5 write for training, generation and heads.
 * Source: BertConfig and PreTrainedConfig of transformers 2.x, 3.x, 4.x and 5.23. */
#include "model/arch_bert.h"

#include <string.h>

#include "model/json.h"

enum rule { HARMLESS, USED, MUST_BE_EMPTY, MUST_BE };

static const struct field_rule {
    const char *field;
    enum rule rule;
    const char *text; /* for MUST_BE */
} rules[] = {
    /* The maths. */
    {"model_type", USED, NULL},
    {"architectures", USED, NULL},
    {"vocab_size", USED, NULL},
    {"hidden_size", USED, NULL},
    {"num_hidden_layers", USED, NULL},
    {"num_attention_heads", USED, NULL},
    {"intermediate_size", USED, NULL},
    {"max_position_embeddings", USED, NULL},
    {"type_vocab_size", USED, NULL},
    {"layer_norm_eps", USED, NULL},
    {"hidden_act", USED, NULL},
    {"position_embedding_type", MUST_BE, "absolute"},
    {"is_decoder", MUST_BE_EMPTY, NULL},
    {"is_encoder_decoder", MUST_BE_EMPTY, NULL},
    {"add_cross_attention", MUST_BE_EMPTY, NULL},
    {"cross_attention_hidden_size", MUST_BE_EMPTY, NULL},
    {"pruned_heads", MUST_BE_EMPTY, NULL},
    {"quantization_config", MUST_BE_EMPTY, NULL},
    {"auto_map", MUST_BE_EMPTY, NULL},
    {"per_layer_config", MUST_BE_EMPTY, NULL},
    /* The same result whatever they say: training, precision on disk, splitting of the work. */
    {"attention_probs_dropout_prob", HARMLESS, NULL},
    {"hidden_dropout_prob", HARMLESS, NULL},
    {"classifier_dropout", HARMLESS, NULL},
    {"initializer_range", HARMLESS, NULL},
    {"initializer_factor", HARMLESS, NULL},
    {"gradient_checkpointing", HARMLESS, NULL},
    {"chunk_size_feed_forward", HARMLESS, NULL},
    {"torch_dtype", HARMLESS, NULL},
    {"dtype", HARMLESS, NULL},
    {"use_bfloat16", HARMLESS, NULL},
    {"use_cache", HARMLESS, NULL},
    {"torchscript", HARMLESS, NULL},
    {"xla_device", HARMLESS, NULL},
    {"attn_implementation", HARMLESS, NULL},
    {"_attn_implementation", HARMLESS, NULL},
    {"_attn_implementation_autoset", HARMLESS, NULL},
    {"output_attentions", HARMLESS, NULL},
    {"output_hidden_states", HARMLESS, NULL},
    {"output_past", HARMLESS, NULL},
    {"return_dict", HARMLESS, NULL},
    {"use_return_dict", HARMLESS, NULL},
    {"tie_word_embeddings", HARMLESS, NULL},
    {"tie_encoder_decoder", HARMLESS, NULL},
    {"tf_legacy_loss", HARMLESS, NULL},
    {"vocab_size_or_config_json_file", HARMLESS, NULL},
    /* Where the model comes from. */
    {"_name_or_path", HARMLESS, NULL},
    {"name_or_path", HARMLESS, NULL},
    {"_commit_hash", HARMLESS, NULL},
    {"transformers_version", HARMLESS, NULL},
    {"tokenizer_class", HARMLESS, NULL},
    {"matryoshka_dimensions", HARMLESS, NULL},
    {"sentence_transformers", HARMLESS, NULL},
    {"language", HARMLESS, NULL},
    /* Heads that an embedding does not use. */
    {"directionality", HARMLESS, NULL},
    {"pooler_fc_size", HARMLESS, NULL},
    {"pooler_num_attention_heads", HARMLESS, NULL},
    {"pooler_num_fc_layers", HARMLESS, NULL},
    {"pooler_size_per_head", HARMLESS, NULL},
    {"pooler_type", HARMLESS, NULL},
    {"id2label", HARMLESS, NULL},
    {"label2id", HARMLESS, NULL},
    {"num_labels", HARMLESS, NULL},
    {"_num_labels", HARMLESS, NULL},
    {"problem_type", HARMLESS, NULL},
    {"finetuning_task", HARMLESS, NULL},
    {"task_specific_params", HARMLESS, NULL},
    {"classifier_activation", HARMLESS, NULL},
    {"sbert_ce_default_activation_function", HARMLESS, NULL},
    /* Token ids: what is fed comes from the tokenizer; generation. */
    {"pad_token_id", HARMLESS, NULL},
    {"bos_token_id", HARMLESS, NULL},
    {"eos_token_id", HARMLESS, NULL},
    {"eos_token_ids", HARMLESS, NULL},
    {"sep_token_id", HARMLESS, NULL},
    {"cls_token_id", HARMLESS, NULL},
    {"mask_token_id", HARMLESS, NULL},
    {"unk_token_id", HARMLESS, NULL},
    {"decoder_start_token_id", HARMLESS, NULL},
    {"forced_bos_token_id", HARMLESS, NULL},
    {"forced_eos_token_id", HARMLESS, NULL},
    {"prefix", HARMLESS, NULL},
    {"max_length", HARMLESS, NULL},
    {"min_length", HARMLESS, NULL},
    {"do_sample", HARMLESS, NULL},
    {"early_stopping", HARMLESS, NULL},
    {"num_beams", HARMLESS, NULL},
    {"num_beam_groups", HARMLESS, NULL},
    {"diversity_penalty", HARMLESS, NULL},
    {"temperature", HARMLESS, NULL},
    {"top_k", HARMLESS, NULL},
    {"top_p", HARMLESS, NULL},
    {"typical_p", HARMLESS, NULL},
    {"repetition_penalty", HARMLESS, NULL},
    {"length_penalty", HARMLESS, NULL},
    {"no_repeat_ngram_size", HARMLESS, NULL},
    {"encoder_no_repeat_ngram_size", HARMLESS, NULL},
    {"bad_words_ids", HARMLESS, NULL},
    {"num_return_sequences", HARMLESS, NULL},
    {"output_scores", HARMLESS, NULL},
    {"return_dict_in_generate", HARMLESS, NULL},
    {"remove_invalid_values", HARMLESS, NULL},
    {"exponential_decay_length_penalty", HARMLESS, NULL},
    {"suppress_tokens", HARMLESS, NULL},
    {"begin_suppress_tokens", HARMLESS, NULL},
};

static const struct field_rule *rule_of(const char *field)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (strcmp(rules[i].field, field) == 0) {
            return &rules[i];
        }
    }
    return NULL;
}

static enum status check_field(const cJSON *value, const char *name, struct err *err)
{
    if (cJSON_IsNull(value)) {
        return STATUS_OK;
    }
    const struct field_rule *rule = rule_of(value->string);
    if (!rule) {
        return err_set(err, STATUS_UNSUPPORTED,
                       "%s: the field %.100s is not known here and may change the result; remove it if it does not",
                       name, value->string);
    }
    if (rule->rule == MUST_BE_EMPTY && !json_is_empty(value)) {
        return err_set(err, STATUS_UNSUPPORTED, "%s: %s is set, which is not supported", name, rule->field);
    }
    if (rule->rule == MUST_BE && (!cJSON_IsString(value) || strcmp(value->valuestring, rule->text) != 0)) {
        return err_set(err, STATUS_UNSUPPORTED, "%s: %s must be \"%s\", nothing else is supported", name, rule->field,
                       rule->text);
    }
    return STATUS_OK;
}

static enum status check_architecture(const cJSON *root, const char *name, struct err *err)
{
    static const char *const known[] = {
        "BertModel",
        "BertForMaskedLM",
        "BertForPreTraining",
        "BertLMHeadModel",
        "BertForNextSentencePrediction",
        "BertForSequenceClassification",
        "BertForMultipleChoice",
        "BertForTokenClassification",
        "BertForQuestionAnswering",
    };
    const char *type = NULL;
    enum status status = json_string(root, name, "model_type", &type, err);
    if (status != STATUS_OK) {
        return status;
    }
    if (!type) {
        return err_set(err, STATUS_BAD_INPUT, "%s: model_type is missing (\"bert\" is what is supported)", name);
    }
    if (strcmp(type, "bert") != 0) {
        return err_set(err, STATUS_UNSUPPORTED,
                       "%s: model_type \"%.60s\" is not supported; supported: bert (MiniLM, BERT, bge, e5, gte)", name,
                       type);
    }
    const cJSON *list = json_field(root, "architectures"), *item;
    if (list && !cJSON_IsArray(list)) {
        return err_set(err, STATUS_BAD_INPUT, "%s: architectures must be a list", name);
    }
    cJSON_ArrayForEach(item, list)
    {
        size_t i = 0, count = sizeof known / sizeof known[0];
        while (i < count && (!cJSON_IsString(item) || strcmp(item->valuestring, known[i]) != 0)) {
            i++;
        }
        if (i == count) {
            return err_set(err, STATUS_UNSUPPORTED, "%s: architectures: \"%.60s\" is not supported; BertModel is", name,
                           cJSON_IsString(item) ? item->valuestring : "?");
        }
    }
    return STATUS_OK;
}

static enum status read_sizes(const cJSON *root, const char *name, struct model *model, struct err *err)
{
    const struct {
        const char *field;
        uint32_t *to;
        uint32_t most;
    } sizes[] = {
        {"vocab_size", &model->vocabulary, 1u << 24},
        {"hidden_size", &model->hidden, 1u << 16},
        {"num_hidden_layers", &model->layer_count, 1u << 10},
        {"num_attention_heads", &model->heads, 1u << 10},
        {"intermediate_size", &model->intermediate_size, 1u << 20},
        {"max_position_embeddings", &model->positions, 1u << 20},
        {"type_vocab_size", &model->token_types, 1u << 10},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        enum status status = json_u32(root, name, sizes[i].field, 1, sizes[i].most, sizes[i].to, err);
        if (status != STATUS_OK) {
            return status;
        }
        if (*sizes[i].to == 0) {
            return err_set(err, STATUS_BAD_INPUT, "%s: %s is missing", name, sizes[i].field);
        }
    }
    if (model->hidden % model->heads != 0) {
        return err_set(err, STATUS_BAD_INPUT, "%s: hidden_size %u is not a multiple of num_attention_heads %u", name,
                       model->hidden, model->heads);
    }
    return STATUS_OK;
}

static enum status read_activation(const cJSON *root, const char *name, enum activation *activation, struct err *err)
{
    static const struct {
        const char *name;
        enum activation activation;
    } known[] = {
        {"gelu", ACTIVATION_GELU_ERF},      {"gelu_python", ACTIVATION_GELU_ERF},
        {"gelu_new", ACTIVATION_GELU_TANH}, {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH},
        {"relu", ACTIVATION_RELU},
    };
    const char *text = NULL;
    enum status status = json_string(root, name, "hidden_act", &text, err);
    if (status != STATUS_OK) {
        return status;
    }
    if (!text) {
        return err_set(err, STATUS_BAD_INPUT, "%s: hidden_act is missing", name);
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].name, text) == 0) {
            *activation = known[i].activation;
            return STATUS_OK;
        }
    }
    return err_set(err, STATUS_UNSUPPORTED,
                   "%s: hidden_act \"%.60s\" is not supported; supported: gelu, gelu_python, gelu_new, "
                   "gelu_pytorch_tanh, relu",
                   name, text);
}

static enum status read_fields(const cJSON *root, const char *name, struct model *model, struct err *err)
{
    if (!cJSON_IsObject(root)) {
        return err_set(err, STATUS_BAD_INPUT, "%s: not a JSON object", name);
    }
    enum status status = check_architecture(root, name, err);
    const cJSON *value;
    cJSON_ArrayForEach(value, root)
    {
        if (status == STATUS_OK) {
            status = check_field(value, name, err);
        }
    }
    if (status == STATUS_OK) {
        status = read_sizes(root, name, model, err);
    }
    if (status == STATUS_OK) {
        status = read_activation(root, name, &model->activation, err);
    }
    double eps = 1e-12;
    if (status == STATUS_OK) {
        status = json_double(root, name, "layer_norm_eps", &eps, err);
    }
    if (status == STATUS_OK && !(eps > 0 && eps < 1)) {
        status = err_set(err, STATUS_BAD_INPUT, "%s: layer_norm_eps must lie between 0 and 1", name);
    }
    model->layer_norm_eps = (float)eps;
    return status;
}

enum status bert_config_read(const char *directory, const char *name, struct model *model, struct err *err)
{
    cJSON *root;
    enum status status = json_read(directory, name, JSON_CONFIG_MAX_BYTES, &root, err);
    if (status != STATUS_OK) {
        return status;
    }
    status = read_fields(root, name, model, err);
    cJSON_Delete(root);
    return status;
}

const char *activation_name(enum activation activation)
{
    static const char *const names[] = {
        [ACTIVATION_GELU_ERF] = "gelu", [ACTIVATION_GELU_TANH] = "gelu_tanh", [ACTIVATION_RELU] = "relu"};
    return names[activation];
}
