/* The modules decide: Transformer, Pooling, and Normalize only where they say so. No default is ever guessed, because a
 * wrong pooling costs recall without any error to be seen.
 * Source: what sentence-transformers 2.x to 6.2 writes (Transformer, Pooling, Normalize; config_sentence_transformers).
 */
#include "model/sentence_config.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/utf8.h"
#include "model/json.h"
#include "model/sentence_files.h"

#define MODULES_FILE "modules.json"

enum module_kind { MODULE_TRANSFORMER, MODULE_POOLING, MODULE_NORMALIZE, MODULE_KINDS };

static const char *const module_names[MODULE_KINDS] = {"Transformer", "Pooling", "Normalize"};

static bool is_safe_folder(const char *path)
{
    return path[0] != '/' && path[0] != '.' && strchr(path, '\\') == NULL && strstr(path, "..") == NULL &&
           strlen(path) < 128;
}

/* Both generations write a Python path whose last part is the class; the parts between have changed. */
static enum status kind_of(const char *type, enum module_kind *kind, struct err *err)
{
    const char *last = strrchr(type, '.');
    last = last != NULL ? last + 1 : type;
    if (strncmp(type, "sentence_transformers.", strlen("sentence_transformers.")) != 0)
        return err_set(err, STATUS_UNSUPPORTED,
                       MODULES_FILE ": type %.100s is code of the model's own, which is never run", type);
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
    enum status status = json_string(module, MODULES_FILE, "path", &path, err);
    if (status != STATUS_OK)
        return status;
    if (path == NULL)
        path = "";
    if (path[0] != '\0' && !is_safe_folder(path))
        return err_set(err, STATUS_BAD_INPUT, MODULES_FILE ": path %.100s must be a folder inside the model's", path);
    struct buffer folder = {0};
    size_t length = strlen(path);
    buffer_format(&folder, "%s%s", path, length > 0 && path[length - 1] != '/' ? "/" : "");
    if (!buffer_ok(&folder))
        return err_set(err, STATUS_NO_MEMORY, "no memory for a folder's name");
    *out = folder.data;
    return STATUS_OK;
}

static enum status check_module_fields(const cJSON *module, struct err *err)
{
    static const char *const known[] = {"idx", "name", "path", "type", NULL};
    if (!cJSON_IsObject(module))
        return err_set(err, STATUS_BAD_INPUT, MODULES_FILE ": must be a list of objects");
    return sentence_check_fields(module, MODULES_FILE, known, err);
}

static enum status read_module(const char *directory, const cJSON *module, enum module_kind kind,
                               struct sentence_config *out, struct err *err)
{
    char *folder = NULL;
    enum status status = folder_of(module, &folder, err);
    if (status != STATUS_OK)
        return status;
    switch (kind) {
    case MODULE_TRANSFORMER:
        free(out->folder);
        out->folder = folder;
        return sentence_read_transformer(directory, folder, out, err);
    case MODULE_POOLING:
        out->pooling_folder = folder;
        return sentence_read_pooling(directory, folder, out, err);
    case MODULE_NORMALIZE:
    default:
        out->normalize = true;
        status = sentence_read_normalize(directory, folder, err);
        break;
    }
    free(folder);
    return status;
}

/* The chain must be Transformer, Pooling, Normalize, in this order; the last two may be absent. */
static enum status read_modules(const char *directory, const cJSON *modules, struct sentence_config *out,
                                struct err *err)
{
    if (!cJSON_IsArray(modules) || modules->child == NULL)
        return err_set(err, STATUS_BAD_INPUT, MODULES_FILE ": must be a list of modules");
    int next = MODULE_TRANSFORMER;
    const cJSON *module;
    cJSON_ArrayForEach(module, modules)
    {
        const char *type = "";
        enum module_kind kind = MODULE_TRANSFORMER;
        enum status status = check_module_fields(module, err);
        if (status == STATUS_OK)
            status = json_string(module, MODULES_FILE, "type", &type, err);
        if (status == STATUS_OK)
            status = kind_of(type, &kind, err);
        if (status != STATUS_OK)
            return status;
        if ((int)kind < next || (next == MODULE_TRANSFORMER && kind != MODULE_TRANSFORMER))
            return err_set(err, STATUS_UNSUPPORTED,
                           MODULES_FILE ": the module %s is out of order; supported: Transformer, Pooling, Normalize",
                           module_names[kind]);
        next = (int)kind + 1;
        status = read_module(directory, module, kind, out, err);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

static enum status start(struct sentence_config *out, struct err *err)
{
    *out = (struct sentence_config){.include_prompt = true, .folder = strdup(""), .prompt = strdup("")};
    if (out->folder == NULL || out->prompt == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the model's configuration");
    return STATUS_OK;
}

static enum status refuse_unknown_pooling(const struct sentence_config *config, bool listed, struct err *err)
{
    const char *advice = "so the pooling is not known; set pooling to mean or cls";
    if (config->pooling_folder != NULL)
        return err_set(err, STATUS_NOT_FOUND, "%sconfig.json does not exist, %s", config->pooling_folder, advice);
    if (listed)
        return err_set(err, STATUS_NOT_FOUND, MODULES_FILE " names no Pooling module, %s", advice);
    return err_set(err, STATUS_NOT_FOUND, MODULES_FILE " does not exist, %s", advice);
}

static enum status take_prefix(const char *prefix, struct sentence_config *out, struct err *err)
{
    if (!utf8_valid(prefix, strlen(prefix)))
        return err_set(err, STATUS_BAD_INPUT, "prefix is not valid UTF-8");
    free(out->prompt);
    out->prompt = strdup(prefix);
    return out->prompt != NULL ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for the prefix");
}

enum status sentence_config_read(const char *directory, const struct model_options *options,
                                 struct sentence_config *out, struct err *err)
{
    enum status status = start(out, err);
    if (status != STATUS_OK)
        return status;
    cJSON *modules = NULL;
    status = json_read_optional(directory, MODULES_FILE, &modules, err);
    if (status != STATUS_OK)
        return status;
    if (modules != NULL)
        status = read_modules(directory, modules, out, err);
    else
        status = sentence_read_transformer(directory, "", out, err);
    bool listed = modules != NULL;
    cJSON_Delete(modules);
    if (status == STATUS_OK && options->pooling != POOLING_UNSET)
        out->pooling = options->pooling;
    if (status == STATUS_OK && out->pooling == POOLING_UNSET)
        status = refuse_unknown_pooling(out, listed, err);
    if (status == STATUS_OK)
        status = sentence_read_prompts(directory, options->prompt, out, err);
    if (status == STATUS_OK && options->prefix != NULL)
        status = take_prefix(options->prefix, out, err);
    if (status == STATUS_OK && !out->include_prompt && out->prompt[0] != '\0')
        status = err_set(err, STATUS_UNSUPPORTED,
                         "%sconfig.json: include_prompt is false and a prompt is used, which is not supported",
                         out->pooling_folder);
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
