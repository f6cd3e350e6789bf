/* The modules decide: Transformer, Pooling, and Normalize only where they say so. No default is ever guessed, because a
 * wrong pooling costs recall without any error to be seen.
 * Source: what sentence-transformers 2.x to 6.2 writes (Transformer, Pooling, Normalize; config_sentence_transformers).
 */
#include "model/sentence_transformers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/utf8.h"
#include "model/json.h"

#define MODULES_FILE "modules.json"
#define PROMPTS_FILE "config_sentence_transformers.json"
#define NAME_BYTES 192

/* Before sentence-transformers 5.4: pooling as one boolean per mode, max_seq_length and do_lower_case beside the
 * encoder. Since: pooling_mode as a string or a list, embedding_dimension, and a description of the encoder's inputs
 * and outputs that must be the plain text one. Fields outside both sets are refused by name. */

/* Refuses an object that has a field outside `known`, a list that ends with NULL; null counts as absent.
 * Errors: STATUS_UNSUPPORTED; STATUS_BAD_INPUT when it is no object at all. */
static enum status check_fields(const cJSON *object, const char *name, const char *const *known, struct err *err)
{
    if (!cJSON_IsObject(object)) {
        return err_set(err, STATUS_BAD_INPUT, "%s: not a JSON object", name);
    }
    const cJSON *value;
    cJSON_ArrayForEach(value, object)
    {
        size_t i = 0;
        while (known[i] && strcmp(known[i], value->string) != 0) {
            i++;
        }
        if (!known[i] && !cJSON_IsNull(value)) {
            return err_set(err, STATUS_UNSUPPORTED,
                           "%s: the field %.100s is not known here and may change the result; remove it if it does not",
                           name, value->string);
        }
    }
    return STATUS_OK;
}

static enum status must_be(const cJSON *object, const char *name, const char *field, const char *expected,
                           struct err *err)
{
    const cJSON *value = json_field(object, field);
    if (!value || (cJSON_IsString(value) && strcmp(value->valuestring, expected) == 0)) {
        return STATUS_OK;
    }
    return err_set(err, STATUS_UNSUPPORTED, "%s: %s must be \"%s\", nothing else is supported", name, field, expected);
}

static enum status must_be_empty(const cJSON *object, const char *name, const char *const *fields, struct err *err)
{
    for (; *fields != NULL; fields++) {
        if (!json_is_empty(json_field(object, *fields))) {
            return err_set(err, STATUS_UNSUPPORTED, "%s: %s is set, which is not supported", name, *fields);
        }
    }
    return STATUS_OK;
}

/* {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}; other inputs beside text do not matter.
 */
static enum status check_modality(const cJSON *root, const char *name, struct err *err)
{
    const cJSON *modality = json_field(root, "modality_config");
    if (!modality) {
        return STATUS_OK;
    }
    const cJSON *text = json_field(modality, "text");
    if (!cJSON_IsObject(text)) {
        return err_set(err, STATUS_UNSUPPORTED, "%s: modality_config has no text", name);
    }
    TRY(must_be(text, name, "method", "forward", err));
    return must_be(text, name, "method_output_name", "last_hidden_state", err);
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
    TRY(check_fields(root, name, known, err));
    TRY(must_be_empty(root, name, unsupported, err));
    TRY(must_be(root, name, "transformer_task", "feature-extraction", err));
    TRY(must_be(root, name, "module_output_name", "token_embeddings", err));
    TRY(check_modality(root, name, err));
    TRY(json_bool(root, name, "do_lower_case", &out->lower_case, err));
    return json_u32(root, name, "max_seq_length", 1, UINT32_MAX, &out->max_tokens, err);
}

/* Reads the encoder's own file, sentence_bert_config.json: token limit and lower case. `folder` is "" or ends with a
 * slash, here and below. A file that does not exist says nothing. Errors: as sentence_config_read. */
static enum status read_transformer(const char *directory, const char *folder, struct sentence_config *out,
                                    struct err *err)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%ssentence_bert_config.json", folder);
    cJSON *root = NULL;
    enum status status = json_read_optional(directory, name, &root, err);
    if (status == STATUS_OK && root) {
        status = read_transformer_fields(root, name, out, err);
    }
    cJSON_Delete(root);
    return status;
}

static enum status set_mode(const cJSON *mode, const char *name, struct sentence_config *out, struct err *err)
{
    const char *text = cJSON_IsString(mode) ? mode->valuestring : "?";
    if (strcmp(text, "mean") == 0) {
        out->pooling = POOLING_MEAN;
    } else if (strcmp(text, "cls") == 0) {
        out->pooling = POOLING_CLS;
    } else {
        return err_set(err, STATUS_UNSUPPORTED, "%s: pooling_mode \"%.40s\" is not supported; supported: mean, cls",
                       name, text);
    }
    return STATUS_OK;
}

static enum status read_mode(const cJSON *mode, const char *name, struct sentence_config *out, struct err *err)
{
    if (!cJSON_IsArray(mode)) {
        return set_mode(mode, name, out, err);
    }
    if (cJSON_GetArraySize(mode) != 1) {
        return err_set(err, STATUS_UNSUPPORTED, "%s: pooling_mode: only one mode is supported, not %d", name,
                       cJSON_GetArraySize(mode));
    }
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
        TRY(json_bool(root, name, mode_flags[i], &on, err));
        any = any || json_field(root, mode_flags[i]);
        if (on && chosen) {
            return err_set(err, STATUS_UNSUPPORTED, "%s: %s and %s together are not supported", name, chosen,
                           mode_flags[i]);
        }
        if (on && i > 1) {
            return err_set(err, STATUS_UNSUPPORTED, "%s: %s is not supported; supported: mean, cls", name,
                           mode_flags[i]);
        }
        if (on) {
            chosen = mode_flags[i];
        }
    }
    if (!any) {
        return err_set(err, STATUS_BAD_INPUT, "%s: pooling_mode is missing", name);
    }
    out->pooling = chosen == mode_flags[0] ? POOLING_CLS : POOLING_MEAN;
    return STATUS_OK;
}

static enum status read_pooling_fields(const cJSON *root, const char *name, struct sentence_config *out,
                                       struct err *err)
{
    const char *known[16] = {"word_embedding_dimension", "embedding_dimension", "pooling_mode", "include_prompt"};
    size_t count = 4;
    for (size_t i = 0; mode_flags[i] != NULL; i++) {
        known[count++] = mode_flags[i];
    }
    TRY(check_fields(root, name, known, err));
    const cJSON *mode = json_field(root, "pooling_mode");
    TRY(mode ? read_mode(mode, name, out, err) : read_mode_flags(root, name, out, err));
    TRY(json_bool(root, name, "include_prompt", &out->include_prompt, err));
    TRY(json_u32(root, name, "word_embedding_dimension", 1, UINT32_MAX, &out->width, err));
    return json_u32(root, name, "embedding_dimension", 1, UINT32_MAX, &out->width, err);
}

/* Reads the pooling module's config.json: which pooling, over how many floats, and whether prompts count.
 * Errors: as sentence_config_read; STATUS_BAD_INPUT also for a module without a folder. */
static enum status read_pooling(const char *directory, const char *folder, struct sentence_config *out, struct err *err)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%sconfig.json", folder);
    if (folder[0] == '\0') {
        return err_set(err, STATUS_BAD_INPUT, "modules.json: the Pooling module has no path");
    }
    cJSON *root = NULL;
    enum status status = json_read_optional(directory, name, &root, err);
    if (status == STATUS_OK && root) {
        status = read_pooling_fields(root, name, out, err);
    }
    cJSON_Delete(root);
    return status;
}

/* The file exists since 5.4 only. */
/* Checks that the normalising module, whose presence says all, has no options that are not known here.
 * Errors: as sentence_config_read. */
static enum status read_normalize(const char *directory, const char *folder, struct err *err)
{
    static const char *const known[] = {"module_input_name", "module_output_name", NULL};
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%sconfig.json", folder);
    cJSON *root = NULL;
    enum status status = folder[0] == '\0' ? STATUS_OK : json_read_optional(directory, name, &root, err);
    if (status == STATUS_OK && root) {
        status = check_fields(root, name, known, err);
    }
    for (size_t i = 0; status == STATUS_OK && root && known[i]; i++) {
        status = must_be(root, name, known[i], "sentence_embedding", err);
    }
    cJSON_Delete(root);
    return status;
}

/* All prompts, because a request may choose any of them. */
static enum status keep_prompts(const cJSON *prompts, struct sentence_config *out, struct err *err)
{
    int most = cJSON_GetArraySize(prompts);
    if (most == 0) {
        return STATUS_OK;
    }
    out->prompts = calloc((size_t)most, sizeof *out->prompts);
    if (!out->prompts) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for the prompts");
    }
    const cJSON *entry;
    cJSON_ArrayForEach(entry, prompts)
    {
        if (cJSON_IsNull(entry)) { /* counts as absent */
            continue;
        }
        if (!cJSON_IsString(entry)) {
            return err_set(err, STATUS_BAD_INPUT, PROMPTS_FILE ": prompts: %.60s must be a string", entry->string);
        }
        struct model_prompt *prompt = &out->prompts[out->prompt_count++];
        prompt->name = strdup(entry->string);
        prompt->text = strdup(entry->valuestring);
        if (!prompt->name || !prompt->text) {
            return err_set(err, STATUS_NO_MEMORY, "no memory for the prompts");
        }
    }
    return STATUS_OK;
}

static enum status pick_prompt(const cJSON *root, const char *wanted, struct sentence_config *out, struct err *err)
{
    const char *usual = NULL, *text = NULL;
    const cJSON *prompts = json_field(root, "prompts");
    if (prompts && !cJSON_IsObject(prompts)) {
        return err_set(err, STATUS_BAD_INPUT, PROMPTS_FILE ": prompts must be an object");
    }
    TRY(keep_prompts(prompts, out, err));
    TRY(json_string(root, PROMPTS_FILE, "default_prompt_name", &usual, err));
    if (!wanted) {
        wanted = usual;
    }
    if (!wanted || wanted[0] == '\0') {
        return STATUS_OK;
    }
    for (uint32_t i = 0; i < out->prompt_count; i++) {
        if (strcmp(out->prompts[i].name, wanted) == 0) {
            text = out->prompts[i].text;
        }
    }
    if (!text) {
        return err_set(err, STATUS_NOT_FOUND, PROMPTS_FILE ": prompts has no prompt named \"%.60s\"", wanted);
    }
    free(out->prompt);
    out->prompt = strdup(text);
    return out->prompt ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for the prompt");
}

/* Keeps all prompts and picks `wanted` for every text, or the default one where `wanted` is NULL; "" picks none.
 * Errors: as sentence_config_read. */
static enum status read_prompts(const char *directory, const char *wanted, struct sentence_config *out, struct err *err)
{
    static const char *const known[] = {"__version__",        "prompts",    "default_prompt_name",
                                        "similarity_fn_name", "model_type", NULL};
    cJSON *root = NULL;
    enum status status = json_read_optional(directory, PROMPTS_FILE, &root, err);
    if (status == STATUS_OK && !root && wanted && wanted[0] != '\0') {
        status = err_set(err, STATUS_NOT_FOUND, PROMPTS_FILE ": does not exist, so there is no prompt named \"%.60s\"",
                         wanted);
    }
    if (status == STATUS_OK && root) {
        status = check_fields(root, PROMPTS_FILE, known, err);
    }
    if (status == STATUS_OK && root) {
        status = must_be(root, PROMPTS_FILE, "model_type", "SentenceTransformer", err);
    }
    if (status == STATUS_OK && root) {
        status = pick_prompt(root, wanted, out, err);
    }
    cJSON_Delete(root);
    return status;
}

enum module_kind { MODULE_TRANSFORMER, MODULE_POOLING, MODULE_NORMALIZE, MODULE_KINDS };

static const char *const module_names[MODULE_KINDS] = {"Transformer", "Pooling", "Normalize"};

static bool is_safe_folder(const char *path)
{
    return path[0] != '/' && path[0] != '.' && !strchr(path, '\\') && !strstr(path, "..") && strlen(path) < 128;
}

/* Both generations write a Python path whose last part is the class; the parts between have changed. */
static enum status kind_of(const char *type, enum module_kind *kind, struct err *err)
{
    const char *last = strrchr(type, '.');
    last = last ? last + 1 : type;
    if (strncmp(type, "sentence_transformers.", strlen("sentence_transformers.")) != 0) {
        return err_set(err, STATUS_UNSUPPORTED,
                       MODULES_FILE ": type %.100s is code of the model's own, which is never run", type);
    }
    for (int k = 0; k < MODULE_KINDS; k++) {
        if (strcmp(last, module_names[k]) == 0) {
            *kind = (enum module_kind)k;
            return STATUS_OK;
        }
    }
    return err_set(err, STATUS_UNSUPPORTED,
                   MODULES_FILE ": type %.100s: the module %.60s is not supported; supported: Transformer, Pooling, "
                                "Normalize",
                   type, last);
}

/* A module's folder with a slash behind it, or "" for the model's own. Owns: the caller. */
static enum status folder_of(const cJSON *module, char **out, struct err *err)
{
    const char *path = NULL;
    TRY(json_string(module, MODULES_FILE, "path", &path, err));
    if (!path) {
        path = "";
    }
    if (path[0] != '\0' && !is_safe_folder(path)) {
        return err_set(err, STATUS_BAD_INPUT, MODULES_FILE ": path %.100s must be a folder inside the model's", path);
    }
    struct buffer folder = {0};
    size_t length = strlen(path);
    buffer_format(&folder, "%s%s", path, length > 0 && path[length - 1] != '/' ? "/" : "");
    if (!buffer_ok(&folder)) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for a folder's name");
    }
    *out = folder.data;
    return STATUS_OK;
}

static enum status check_module_fields(const cJSON *module, struct err *err)
{
    static const char *const known[] = {"idx", "name", "path", "type", NULL};
    if (!cJSON_IsObject(module)) {
        return err_set(err, STATUS_BAD_INPUT, MODULES_FILE ": must be a list of objects");
    }
    return check_fields(module, MODULES_FILE, known, err);
}

static enum status read_module(const char *directory, const cJSON *module, enum module_kind kind,
                               struct sentence_config *out, struct err *err)
{
    char *folder = NULL;
    enum status status = folder_of(module, &folder, err);
    if (status != STATUS_OK) {
        return status;
    }
    switch (kind) {
    case MODULE_TRANSFORMER:
        free(out->folder);
        out->folder = folder;
        return read_transformer(directory, folder, out, err);
    case MODULE_POOLING:
        out->pooling_folder = folder;
        return read_pooling(directory, folder, out, err);
    case MODULE_NORMALIZE:
    default:
        out->normalize = true;
        status = read_normalize(directory, folder, err);
        break;
    }
    free(folder);
    return status;
}

/* The chain must be Transformer, Pooling, Normalize, in this order; the last two may be absent. */
static enum status read_modules(const char *directory, const cJSON *modules, struct sentence_config *out,
                                struct err *err)
{
    if (!cJSON_IsArray(modules) || !modules->child) {
        return err_set(err, STATUS_BAD_INPUT, MODULES_FILE ": must be a list of modules");
    }
    int next = MODULE_TRANSFORMER;
    const cJSON *module;
    cJSON_ArrayForEach(module, modules)
    {
        const char *type = "";
        enum module_kind kind = MODULE_TRANSFORMER;
        TRY(check_module_fields(module, err));
        TRY(json_string(module, MODULES_FILE, "type", &type, err));
        TRY(kind_of(type, &kind, err));
        if ((int)kind < next || (next == MODULE_TRANSFORMER && kind != MODULE_TRANSFORMER)) {
            return err_set(err, STATUS_UNSUPPORTED,
                           MODULES_FILE ": the module %s is out of order; supported: Transformer, Pooling, Normalize",
                           module_names[kind]);
        }
        next = (int)kind + 1;
        TRY(read_module(directory, module, kind, out, err));
    }
    return STATUS_OK;
}

static enum status start(struct sentence_config *out, struct err *err)
{
    *out = (struct sentence_config){.include_prompt = true, .folder = strdup(""), .prompt = strdup("")};
    if (!out->folder || !out->prompt) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for the model's configuration");
    }
    return STATUS_OK;
}

static enum status refuse_unknown_pooling(const struct sentence_config *config, bool listed, struct err *err)
{
    const char *advice = "so the pooling is not known; set pooling to mean or cls";
    if (config->pooling_folder) {
        return err_set(err, STATUS_NOT_FOUND, "%sconfig.json does not exist, %s", config->pooling_folder, advice);
    }
    if (listed) {
        return err_set(err, STATUS_NOT_FOUND, MODULES_FILE " names no Pooling module, %s", advice);
    }
    return err_set(err, STATUS_NOT_FOUND, MODULES_FILE " does not exist, %s", advice);
}

static enum status take_prefix(const char *prefix, struct sentence_config *out, struct err *err)
{
    if (!utf8_valid(prefix, strlen(prefix))) {
        return err_set(err, STATUS_BAD_INPUT, "prefix is not valid UTF-8");
    }
    free(out->prompt);
    out->prompt = strdup(prefix);
    return out->prompt ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for the prefix");
}

enum status sentence_config_read(const char *directory, const struct model_options *options,
                                 struct sentence_config *out, struct err *err)
{
    enum status status = start(out, err);
    if (status != STATUS_OK) {
        return status;
    }
    cJSON *modules = NULL;
    status = json_read_optional(directory, MODULES_FILE, &modules, err);
    if (status != STATUS_OK) {
        return status;
    }
    if (modules) {
        status = read_modules(directory, modules, out, err);
    } else {
        status = read_transformer(directory, "", out, err);
    }
    bool listed = modules;
    cJSON_Delete(modules);
    if (status == STATUS_OK && options->pooling != POOLING_UNSET) {
        out->pooling = options->pooling;
    }
    if (status == STATUS_OK && out->pooling == POOLING_UNSET) {
        status = refuse_unknown_pooling(out, listed, err);
    }
    if (status == STATUS_OK) {
        status = read_prompts(directory, options->prompt, out, err);
    }
    if (status == STATUS_OK && options->prefix) {
        status = take_prefix(options->prefix, out, err);
    }
    if (status == STATUS_OK && !out->include_prompt && out->prompt[0] != '\0') {
        status = err_set(err, STATUS_UNSUPPORTED,
                         "%sconfig.json: include_prompt is false and a prompt is used, which is not supported",
                         out->pooling_folder);
    }
    return status;
}

void prompts_free(struct model_prompt *prompts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        free(prompts[i].name);
        free(prompts[i].text);
    }
    free(prompts);
}

void sentence_config_free(struct sentence_config *config)
{
    free(config->folder);
    free(config->pooling_folder);
    free(config->prompt);
    prompts_free(config->prompts, config->prompt_count);
    *config = (struct sentence_config){0};
}

const char *pooling_name(enum pooling pooling)
{
    return pooling == POOLING_CLS ? "cls" : "mean";
}
