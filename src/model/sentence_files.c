/* Before sentence-transformers 5.4: pooling as one boolean per mode, max_seq_length and do_lower_case beside the
 * encoder. Since: pooling_mode as a string or a list, embedding_dimension, and a description of the encoder's inputs
 * and outputs that must be the plain text one. Fields outside both sets are refused by name. */
#include "model/sentence_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROMPTS_FILE "config_sentence_transformers.json"
#define NAME_BYTES 192

enum status sentence_check_fields(const cJSON *object, const char *name, const char *const *known, struct err *err)
{
    if (!cJSON_IsObject(object))
        return err_set(err, STATUS_BAD_INPUT, "%s: not a JSON object", name);
    const cJSON *value;
    cJSON_ArrayForEach(value, object)
    {
        size_t i = 0;
        while (known[i] != NULL && strcmp(known[i], value->string) != 0)
            i++;
        if (known[i] == NULL && !cJSON_IsNull(value))
            return err_set(err, STATUS_UNSUPPORTED,
                           "%s: the field %.100s is not known here and may change the result; remove it if it does not",
                           name, value->string);
    }
    return STATUS_OK;
}

static enum status must_be(const cJSON *object, const char *name, const char *field, const char *expected,
                           struct err *err)
{
    const cJSON *value = json_field(object, field);
    if (value == NULL || (cJSON_IsString(value) && strcmp(value->valuestring, expected) == 0))
        return STATUS_OK;
    return err_set(err, STATUS_UNSUPPORTED, "%s: %s must be \"%s\", nothing else is supported", name, field, expected);
}

static enum status must_be_empty(const cJSON *object, const char *name, const char *const *fields, struct err *err)
{
    for (; *fields != NULL; fields++)
        if (!json_is_empty(json_field(object, *fields)))
            return err_set(err, STATUS_UNSUPPORTED, "%s: %s is set, which is not supported", name, *fields);
    return STATUS_OK;
}

/* {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}; other inputs beside text do not matter.
 */
static enum status check_modality(const cJSON *root, const char *name, struct err *err)
{
    const cJSON *modality = json_field(root, "modality_config");
    if (modality == NULL)
        return STATUS_OK;
    const cJSON *text = json_field(modality, "text");
    if (!cJSON_IsObject(text))
        return err_set(err, STATUS_UNSUPPORTED, "%s: modality_config has no text", name);
    enum status status = must_be(text, name, "method", "forward", err);
    if (status == STATUS_OK)
        status = must_be(text, name, "method_output_name", "last_hidden_state", err);
    return status;
}

static enum status read_transformer_fields(const cJSON *root, const char *name, struct sentence_config *out,
                                           struct err *err)
{
    static const char *const known[] = {"max_seq_length",
                                        "do_lower_case",
                                        "transformer_task",
                                        "modality_config",
                                        "module_output_name",
                                        "unpad_inputs",
                                        "query_length",
                                        "document_length",
                                        "query_expansion",
                                        "processing_kwargs",
                                        "model_args",
                                        "model_kwargs",
                                        "tokenizer_args",
                                        "processor_kwargs",
                                        "config_args",
                                        "config_kwargs",
                                        NULL};
    static const char *const unsupported[] = {
        "query_length",   "document_length",  "query_expansion", "processing_kwargs", "model_args", "model_kwargs",
        "tokenizer_args", "processor_kwargs", "config_args",     "config_kwargs",     NULL};
    enum status status = sentence_check_fields(root, name, known, err);
    if (status == STATUS_OK)
        status = must_be_empty(root, name, unsupported, err);
    if (status == STATUS_OK)
        status = must_be(root, name, "transformer_task", "feature-extraction", err);
    if (status == STATUS_OK)
        status = must_be(root, name, "module_output_name", "token_embeddings", err);
    if (status == STATUS_OK)
        status = check_modality(root, name, err);
    if (status == STATUS_OK)
        status = json_bool(root, name, "do_lower_case", &out->lower_case, err);
    if (status == STATUS_OK)
        status = json_u32(root, name, "max_seq_length", 1, UINT32_MAX, &out->max_tokens, err);
    return status;
}

enum status sentence_read_transformer(const char *directory, const char *folder, struct sentence_config *out,
                                      struct err *err)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%ssentence_bert_config.json", folder);
    cJSON *root = NULL;
    enum status status = json_read_optional(directory, name, &root, err);
    if (status == STATUS_OK && root != NULL)
        status = read_transformer_fields(root, name, out, err);
    cJSON_Delete(root);
    return status;
}

static enum status set_mode(const cJSON *mode, const char *name, struct sentence_config *out, struct err *err)
{
    const char *text = cJSON_IsString(mode) ? mode->valuestring : "?";
    if (strcmp(text, "mean") == 0)
        out->pooling = POOLING_MEAN;
    else if (strcmp(text, "cls") == 0)
        out->pooling = POOLING_CLS;
    else
        return err_set(err, STATUS_UNSUPPORTED, "%s: pooling_mode \"%.40s\" is not supported; supported: mean, cls",
                       name, text);
    return STATUS_OK;
}

static enum status read_mode(const cJSON *mode, const char *name, struct sentence_config *out, struct err *err)
{
    if (!cJSON_IsArray(mode))
        return set_mode(mode, name, out, err);
    if (cJSON_GetArraySize(mode) != 1)
        return err_set(err, STATUS_UNSUPPORTED, "%s: pooling_mode: only one mode is supported, not %d", name,
                       cJSON_GetArraySize(mode));
    return set_mode(mode->child, name, out, err);
}

static const char *const mode_flags[] = {"pooling_mode_cls_token",
                                         "pooling_mode_mean_tokens",
                                         "pooling_mode_max_tokens",
                                         "pooling_mode_mean_sqrt_len_tokens",
                                         "pooling_mode_weightedmean_tokens",
                                         "pooling_mode_lasttoken",
                                         NULL};

/* The old spelling. As in sentence-transformers, flags that are all false mean "mean"; no flags at all mean nothing
 * here. */
static enum status read_mode_flags(const cJSON *root, const char *name, struct sentence_config *out, struct err *err)
{
    const char *chosen = NULL;
    bool any = false;
    for (size_t i = 0; mode_flags[i] != NULL; i++) {
        bool on = false;
        enum status status = json_bool(root, name, mode_flags[i], &on, err);
        if (status != STATUS_OK)
            return status;
        any = any || json_field(root, mode_flags[i]) != NULL;
        if (on && chosen != NULL)
            return err_set(err, STATUS_UNSUPPORTED, "%s: %s and %s together are not supported", name, chosen,
                           mode_flags[i]);
        if (on && i > 1)
            return err_set(err, STATUS_UNSUPPORTED, "%s: %s is not supported; supported: mean, cls", name,
                           mode_flags[i]);
        if (on)
            chosen = mode_flags[i];
    }
    if (!any)
        return err_set(err, STATUS_BAD_INPUT, "%s: pooling_mode is missing", name);
    out->pooling = chosen == mode_flags[0] ? POOLING_CLS : POOLING_MEAN;
    return STATUS_OK;
}

static enum status read_pooling_fields(const cJSON *root, const char *name, struct sentence_config *out,
                                       struct err *err)
{
    const char *known[16] = {"word_embedding_dimension", "embedding_dimension", "pooling_mode", "include_prompt"};
    size_t count = 4;
    for (size_t i = 0; mode_flags[i] != NULL; i++)
        known[count++] = mode_flags[i];
    enum status status = sentence_check_fields(root, name, known, err);
    if (status != STATUS_OK)
        return status;
    const cJSON *mode = json_field(root, "pooling_mode");
    status = mode != NULL ? read_mode(mode, name, out, err) : read_mode_flags(root, name, out, err);
    if (status == STATUS_OK)
        status = json_bool(root, name, "include_prompt", &out->include_prompt, err);
    if (status == STATUS_OK)
        status = json_u32(root, name, "word_embedding_dimension", 1, UINT32_MAX, &out->width, err);
    if (status == STATUS_OK)
        status = json_u32(root, name, "embedding_dimension", 1, UINT32_MAX, &out->width, err);
    return status;
}

enum status sentence_read_pooling(const char *directory, const char *folder, struct sentence_config *out,
                                  struct err *err)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%sconfig.json", folder);
    if (folder[0] == '\0')
        return err_set(err, STATUS_BAD_INPUT, "modules.json: the Pooling module has no path");
    cJSON *root = NULL;
    enum status status = json_read_optional(directory, name, &root, err);
    if (status == STATUS_OK && root != NULL)
        status = read_pooling_fields(root, name, out, err);
    cJSON_Delete(root);
    return status;
}

/* The file exists since 5.4 only. */
enum status sentence_read_normalize(const char *directory, const char *folder, struct err *err)
{
    static const char *const known[] = {"module_input_name", "module_output_name", NULL};
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%sconfig.json", folder);
    cJSON *root = NULL;
    enum status status = folder[0] == '\0' ? STATUS_OK : json_read_optional(directory, name, &root, err);
    if (status == STATUS_OK && root != NULL)
        status = sentence_check_fields(root, name, known, err);
    for (size_t i = 0; status == STATUS_OK && root != NULL && known[i] != NULL; i++)
        status = must_be(root, name, known[i], "sentence_embedding", err);
    cJSON_Delete(root);
    return status;
}

/* All prompts, because a request may choose any of them. */
static enum status keep_prompts(const cJSON *prompts, struct sentence_config *out, struct err *err)
{
    int most = cJSON_GetArraySize(prompts);
    if (most == 0)
        return STATUS_OK;
    out->prompts = calloc((size_t)most, sizeof *out->prompts);
    if (out->prompts == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the prompts");
    const cJSON *entry;
    cJSON_ArrayForEach(entry, prompts)
    {
        if (cJSON_IsNull(entry)) /* counts as absent */
            continue;
        if (!cJSON_IsString(entry))
            return err_set(err, STATUS_BAD_INPUT, PROMPTS_FILE ": prompts: %.60s must be a string", entry->string);
        struct model_prompt *prompt = &out->prompts[out->prompt_count++];
        prompt->name = strdup(entry->string);
        prompt->text = strdup(entry->valuestring);
        if (prompt->name == NULL || prompt->text == NULL)
            return err_set(err, STATUS_NO_MEMORY, "no memory for the prompts");
    }
    return STATUS_OK;
}

static enum status read_prompts(const cJSON *root, const char *wanted, struct sentence_config *out, struct err *err)
{
    const char *usual = NULL, *text = NULL;
    const cJSON *prompts = json_field(root, "prompts");
    if (prompts != NULL && !cJSON_IsObject(prompts))
        return err_set(err, STATUS_BAD_INPUT, PROMPTS_FILE ": prompts must be an object");
    TRY(keep_prompts(prompts, out, err));
    TRY(json_string(root, PROMPTS_FILE, "default_prompt_name", &usual, err));
    if (wanted == NULL)
        wanted = usual;
    if (wanted == NULL || wanted[0] == '\0')
        return STATUS_OK;
    for (uint32_t i = 0; i < out->prompt_count; i++)
        if (strcmp(out->prompts[i].name, wanted) == 0)
            text = out->prompts[i].text;
    if (text == NULL)
        return err_set(err, STATUS_NOT_FOUND, PROMPTS_FILE ": prompts has no prompt named \"%.60s\"", wanted);
    free(out->prompt);
    out->prompt = strdup(text);
    return out->prompt != NULL ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for the prompt");
}

enum status sentence_read_prompts(const char *directory, const char *wanted, struct sentence_config *out,
                                  struct err *err)
{
    static const char *const known[] = {"__version__",        "prompts",    "default_prompt_name",
                                        "similarity_fn_name", "model_type", NULL};
    cJSON *root = NULL;
    enum status status = json_read_optional(directory, PROMPTS_FILE, &root, err);
    if (status == STATUS_OK && root == NULL && wanted != NULL && wanted[0] != '\0')
        status = err_set(err, STATUS_NOT_FOUND, PROMPTS_FILE ": does not exist, so there is no prompt named \"%.60s\"",
                         wanted);
    if (status == STATUS_OK && root != NULL)
        status = sentence_check_fields(root, PROMPTS_FILE, known, err);
    if (status == STATUS_OK && root != NULL)
        status = must_be(root, PROMPTS_FILE, "model_type", "SentenceTransformer", err);
    if (status == STATUS_OK && root != NULL)
        status = read_prompts(root, wanted, out, err);
    cJSON_Delete(root);
    return status;
}
