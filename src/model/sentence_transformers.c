/* The modules decide: Transformer, Pooling, and then only the modules listed. No default is ever guessed, because a
 * wrong pooling costs recall without a visible error.
 * Source: the files that sentence-transformers 2.x to 6.2 writes (the modules below; config_sentence_transformers). */
#include "model/sentence_transformers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/json_tree.h"
#include "base/utf8.h"
#include "model/head.h"

#define MODULES_FILE "modules.json"
#define PROMPTS_FILE "config_sentence_transformers.json"
#define NAME_BYTES 192

/* Before sentence-transformers 5.4: pooling as one boolean per mode, max_seq_length and do_lower_case in the encoder's
 * own file. Since: pooling_mode as a string or a list, embedding_dimension, and a description of the encoder's inputs
 * and outputs that must be the plain text one. Fields outside both sets are refused by name. */

/* The state of reading, and a function that reads one file; `name` is the file's, for messages. */
struct reading {
    struct model *model;
    const struct model_options *options;
    struct sentence_config *out;
    bool listed; /* there is a modules.json */
    bool empty;  /* the encoder's own file does not exist, or is {} */
};

typedef enum status reader(const cJSON *root, const char *name, struct reading *reading, struct err *err);

/* Reads FOLDERFILE below the model's directory; `folder` is "" or ends with a slash. A file that does not exist changes
 * nothing; `*there`, unless `there` is NULL, says whether it exists. */
static enum status read_file(const char *folder, const char *file, reader *read, struct reading *reading, bool *there,
                             struct err *err)
{
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%s%s", folder, file);
    cJSON *root = NULL;
    enum status status = json_read_optional(reading->model->directory, name, &root, err);
    if (there) { *there = root; }
    if (status == STATUS_OK && root) { status = read(root, name, reading, err); }
    cJSON_Delete(root);
    return status;
}

/* {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}; other inputs besides text do not matter,
 * except messages: with them all texts become messages. */
static enum status check_modality(const cJSON *root, const char *name, const char *output, struct err *err)
{
    const cJSON *modality = json_field(root, "modality_config");
    if (!modality) { return STATUS_OK; }
    const cJSON *text = json_field(modality, "text");
    if (!cJSON_IsObject(text)) { return err_set(err, STATUS_UNSUPPORTED, "%s: modality_config has no text", name); }
    if (json_field(modality, "message")) {
        return err_set(
            err, STATUS_UNSUPPORTED,
            "%s: modality_config: message: texts go through the chat template, a program of the model's own, "
            "which is never run",
            name);
    }
    TRY(json_must_be(text, name, "method", "forward", err));
    return json_must_be(text, name, "method_output_name", output, err);
}

/* Without modules.json sentence-transformers does not read the other files, so a field in them that would have an
 * effect is refused. */
static enum status refuse_unlisted(const cJSON *root, const char *name, const char *field,
                                   const struct reading *reading, struct err *err)
{
    return reading->listed || json_is_empty(json_field(root, field))
               ? STATUS_OK
               : err_set(err, STATUS_UNSUPPORTED,
                         "%s: %s is set, and " MODULES_FILE ", without which sentence-transformers does not read it, "
                         "is missing",
                         name, field);
}

/* The encoder's own file: token limit and lower case. */
static enum status read_transformer(const cJSON *root, const char *name, struct reading *reading, struct err *err)
{
    static const char *const known[] = {"max_seq_length",
                                        "do_lower_case",
                                        "transformer_task",
                                        "modality_config",
                                        "module_output_name",
                                        "unpad_inputs",
                                        NULL};
    static const char *const empty[] = {
        "query_length",   "document_length",  "query_expansion", "processing_kwargs", "model_args", "model_kwargs",
        "tokenizer_args", "processor_kwargs", "config_args",     "config_kwargs",     NULL};
    TRY(json_only(root, name, known, empty, err));
    const cJSON *task = json_field(root, "transformer_task");
    bool logits = cJSON_IsString(task) && strcmp(task->valuestring, "sequence-classification") == 0;
    if (!logits) { TRY(json_must_be(root, name, "transformer_task", "feature-extraction", err)); }
    TRY(json_must_be(root, name, "module_output_name", logits ? "scores" : "token_embeddings", err));
    TRY(check_modality(root, name, logits ? "logits" : "last_hidden_state", err));
    reading->out->logits = logits;
    reading->empty = !root->child;
    if (reading->options->max_tokens == 0) { TRY(refuse_unlisted(root, name, "max_seq_length", reading, err)); }
    TRY(json_bool(root, name, "do_lower_case", &reading->out->lower_case, err));
    return json_u32(root, name, "max_seq_length", 1, UINT32_MAX, &reading->out->max_tokens, err);
}

/* The file was once named after the encoder's family, with one of these names; the first one with content counts. */
static enum status read_transformer_file(const char *folder, struct reading *reading, struct err *err)
{
    static const char *const files[] = {
        "sentence_bert_config.json",      "sentence_roberta_config.json", "sentence_distilbert_config.json",
        "sentence_camembert_config.json", "sentence_albert_config.json",  "sentence_xlm-roberta_config.json",
        "sentence_xlnet_config.json",
    };
    struct sentence_config *out = reading->out;
    for (size_t i = 0; i < sizeof files / sizeof files[0] && !out->transformer_file; i++) {
        reading->empty = true;
        TRY(read_file(folder, files[i], read_transformer, reading, NULL, err));
        if (!reading->empty) { out->transformer_file = files[i]; }
    }
    return STATUS_OK;
}

/* pooling_mode, and the flags that it replaced. */
static const char *const pooling_modes[POOLINGS] = {
    [POOLING_UNSET] = "unset",
#define POOLING(name, mode, flag) [POOLING_##name] = (mode),
#include "model/poolings.inc"
#undef POOLING
};
static const char *const pooling_flags[POOLINGS] = {
#define POOLING(name, mode, flag) [POOLING_##name] = "pooling_mode_" flag,
#include "model/poolings.inc"
#undef POOLING
};

static enum status set_mode(const cJSON *mode, const char *name, struct model *model, struct err *err)
{
    const char *text = cJSON_IsString(mode) ? mode->valuestring : "?";
    for (unsigned pooling = POOLING_UNSET + 1; pooling < POOLINGS; pooling++) {
        if (strcmp(text, pooling_modes[pooling]) == 0) {
            model->pooling = (enum pooling)pooling;
            return STATUS_OK;
        }
    }
    static const char supported[] =
#define POOLING(name, mode, flag) " " mode
#include "model/poolings.inc"
#undef POOLING
        ;
    return err_set(err, STATUS_UNSUPPORTED, "%s: pooling_mode \"%.40s\" is not supported; supported:%s", name, text,
                   supported);
}

static enum status read_mode(const cJSON *mode, const char *name, struct model *model, struct err *err)
{
    if (!cJSON_IsArray(mode)) { return set_mode(mode, name, model, err); }
    if (cJSON_GetArraySize(mode) != 1) {
        return err_set(err, STATUS_UNSUPPORTED, "%s: pooling_mode: only one mode is supported, not %d", name,
                       cJSON_GetArraySize(mode));
    }
    return set_mode(mode->child, name, model, err);
}

/* Flags in addition to pooling_mode must agree with it. */
static enum status check_mode_flags(const cJSON *root, const char *name, const struct model *model, struct err *err)
{
    for (unsigned pooling = POOLING_UNSET + 1; pooling < POOLINGS; pooling++) {
        bool on = pooling == model->pooling;
        TRY(json_bool(root, name, pooling_flags[pooling], &on, err));
        if (on != (pooling == model->pooling)) {
            return err_set(err, STATUS_BAD_INPUT, "%s: pooling_mode and %s contradict each other", name,
                           pooling_flags[pooling]);
        }
    }
    return STATUS_OK;
}

/* As in sentence-transformers, flags that are all false mean "mean"; no flags at all mean nothing here. */
static enum status read_mode_flags(const cJSON *root, const char *name, struct model *model, struct err *err)
{
    enum pooling chosen = POOLING_UNSET;
    bool any = false;
    for (unsigned pooling = POOLING_UNSET + 1; pooling < POOLINGS; pooling++) {
        bool on = false;
        TRY(json_bool(root, name, pooling_flags[pooling], &on, err));
        any = any || json_field(root, pooling_flags[pooling]);
        if (on && chosen != POOLING_UNSET) {
            return err_set(err, STATUS_UNSUPPORTED, "%s: %s and %s together are not supported", name,
                           pooling_flags[chosen], pooling_flags[pooling]);
        }
        chosen = on ? (enum pooling)pooling : chosen;
    }
    if (!any) { return err_set(err, STATUS_BAD_INPUT, "%s: pooling_mode is missing", name); }
    model->pooling = chosen != POOLING_UNSET ? chosen : POOLING_MEAN;
    return STATUS_OK;
}

/* The pooling module's config.json: the pooling, its number of floats, and whether prompts count. */
static enum status read_pooling(const cJSON *root, const char *name, struct reading *reading, struct err *err)
{
    static const char *const other[] = {"pooling_mode", "word_embedding_dimension", "embedding_dimension",
                                        "include_prompt"};
    enum { OTHER = sizeof other / sizeof other[0], FLAGS = POOLINGS - POOLING_UNSET - 1 };
    const char *known[FLAGS + OTHER + 1] = {NULL};
    struct model *model = reading->model;
    memcpy(known, pooling_flags + POOLING_UNSET + 1, FLAGS * sizeof pooling_flags[0]);
    memcpy(known + FLAGS, other, sizeof other);
    TRY(json_only(root, name, known, NULL, err));
    const cJSON *mode = json_field(root, "pooling_mode");
    if (mode) {
        TRY(read_mode(mode, name, model, err));
        TRY(check_mode_flags(root, name, model, err));
    } else {
        TRY(read_mode_flags(root, name, model, err));
    }
    TRY(json_bool(root, name, "include_prompt", &model->pool_prompt, err));
    uint32_t older = 0;
    TRY(json_u32(root, name, "word_embedding_dimension", 1, UINT32_MAX, &older, err));
    reading->out->width = older;
    TRY(json_u32(root, name, "embedding_dimension", 1, UINT32_MAX, &reading->out->width, err));
    return older == 0 || older == reading->out->width
               ? STATUS_OK
               : err_set(err, STATUS_BAD_INPUT,
                         "%s: embedding_dimension and word_embedding_dimension contradict each other", name);
}

/* Refuses modules that work on token vectors, which a file may ask for. */
static enum status check_names(const cJSON *root, const char *name, struct err *err)
{
    TRY(json_must_be(root, name, "module_input_name", "sentence_embedding", err));
    return json_must_be(root, name, "module_output_name", "sentence_embedding", err);
}

/* The normalising module's config.json, which exists only since 5.4; the presence of the module is enough. */
static enum status read_normalize(const cJSON *root, const char *name, struct reading *reading, struct err *err)
{
    static const char *const known[] = {"module_input_name", "module_output_name", NULL};
    (void)reading;
    TRY(json_only(root, name, known, NULL, err));
    return check_names(root, name, err);
}

static enum status read_size(const cJSON *root, const char *name, const char *field, uint32_t *out, struct err *err)
{
    TRY(json_u32(root, name, field, 1, 1u << 16, out, err));
    return *out > 0 ? STATUS_OK : err_set(err, STATUS_BAD_INPUT, "%s: %s is missing", name, field);
}

static struct model_module *last_module(const struct reading *reading)
{
    return &reading->model->modules[reading->model->module_count - 1];
}

static enum status read_layer_norm(const cJSON *root, const char *name, struct reading *reading, struct err *err)
{
    static const char *const known[] = {"dimension", NULL};
    struct model_module *module = last_module(reading);
    TRY(json_only(root, name, known, NULL, err));
    TRY(read_size(root, name, known[0], &module->inputs, err));
    module->outputs = module->inputs;
    module->eps = 1e-5; /* torch's */
    return STATUS_OK;
}

static const char *const module_activations[MODULE_ACTIVATIONS] = {"Identity", "Tanh", "ReLU", "GELU"};

static enum status read_dense(const cJSON *root, const char *name, struct reading *reading, struct err *err)
{
    static const char *const known[] = {"in_features",       "out_features",       "bias", "activation_function",
                                        "module_input_name", "module_output_name", NULL};
    static const char *const empty[] = {"use_residual", NULL};
    struct model_module *module = last_module(reading);
    const char *activation = "torch.nn.modules.activation.Tanh";
    TRY(json_only(root, name, known, empty, err));
    TRY(check_names(root, name, err));
    TRY(read_size(root, name, "in_features", &module->inputs, err));
    TRY(read_size(root, name, "out_features", &module->outputs, err));
    TRY(json_bool(root, name, "bias", &module->biased, err));
    TRY(json_string(root, name, "activation_function", &activation, err));
    for (unsigned i = 0; i < MODULE_ACTIVATIONS; i++) {
        if (strcmp(head_torch_class(activation), module_activations[i]) == 0) {
            module->activation = (enum module_activation)i;
            return STATUS_OK;
        }
    }
    return err_set(err, STATUS_UNSUPPORTED,
                   "%s: activation_function \"%.100s\" is not one of torch's Identity, Tanh, ReLU and GELU", name,
                   activation);
}

/* All prompts, because a request may choose any of them. */
static enum status keep_prompts(const cJSON *prompts, struct model *model, struct err *err)
{
    int most = cJSON_GetArraySize(prompts);
    if (most == 0) { return STATUS_OK; }
    model->prompts = calloc((size_t)most, sizeof *model->prompts);
    if (!model->prompts) { return err_set(err, STATUS_NO_MEMORY, "no memory for the prompts"); }
    const cJSON *entry;
    cJSON_ArrayForEach(entry, prompts)
    {
        if (cJSON_IsNull(entry)) { /* counts as absent */
            continue;
        }
        if (!cJSON_IsString(entry)) {
            return err_set(err, STATUS_BAD_INPUT, PROMPTS_FILE ": prompts: %.60s must be a string", entry->string);
        }
        struct model_prompt *prompt = &model->prompts[model->prompt_count++];
        prompt->name = strdup(entry->string);
        prompt->text = strdup(entry->valuestring);
        if (!prompt->name || !prompt->text) { return err_set(err, STATUS_NO_MEMORY, "no memory for the prompts"); }
    }
    return STATUS_OK;
}

/* Stores a copy of the text as the prompt before every text. */
static enum status set_prompt(struct model *model, const char *text, struct err *err)
{
    free(model->prompt);
    model->prompt = strdup(text);
    return model->prompt ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for the prompt");
}

/* Keeps all prompts and picks the requested one for every text, or else the default one; "" picks none. */
static enum status read_prompts(const cJSON *root, const char *name, struct reading *reading, struct err *err)
{
    static const char *const known[] = {"__version__",        "prompts",    "default_prompt_name",
                                        "similarity_fn_name", "model_type", NULL};
    static const char *const known_of_classifiers[] = {"__version__", "prompts",       "default_prompt_name",
                                                       "model_type",  "activation_fn", NULL};
    struct model *model = reading->model;
    const char *wanted = reading->options->prompt, *activation = NULL;
    bool classifier = reading->out->classifier;
    TRY(json_only(root, name, classifier ? known_of_classifiers : known, NULL, err));
    TRY(json_must_be(root, name, "model_type", classifier ? "CrossEncoder" : "SentenceTransformer", err));
    if (classifier) {
        TRY(refuse_unlisted(root, name, "activation_fn", reading, err));
        TRY(json_string(root, name, "activation_fn", &activation, err));
    }
    if (activation) { TRY(head_parse_activation(name, "activation_fn", activation, &model->head.score, err)); }
    const cJSON *prompts = json_field(root, "prompts");
    if (prompts && !cJSON_IsObject(prompts)) {
        return err_set(err, STATUS_BAD_INPUT, PROMPTS_FILE ": prompts must be an object");
    }
    TRY(keep_prompts(prompts, model, err));
    if (!wanted && !reading->options->prefix) { TRY(refuse_unlisted(root, name, "default_prompt_name", reading, err)); }
    if (!wanted) { TRY(json_string(root, name, "default_prompt_name", &wanted, err)); }
    if (!wanted || wanted[0] == '\0') { return STATUS_OK; }
    for (uint32_t i = 0; i < model->prompt_count; i++) {
        if (strcmp(model->prompts[i].name, wanted) == 0) { return set_prompt(model, model->prompts[i].text, err); }
    }
    return err_set(err, STATUS_NOT_FOUND, PROMPTS_FILE ": prompts has no prompt named \"%.60s\"", wanted);
}

static const char *const module_names[MODULE_KINDS] = {"Transformer", "Pooling", "Dense", "LayerNorm", "Normalize"};

const char *module_name(enum module_kind kind)
{
    return module_names[kind];
}

#define SUPPORTED "supported: Transformer, Pooling, then Dense, LayerNorm and Normalize"

static bool is_safe_folder(const char *path)
{
    return path[0] != '/' && path[0] != '.' && !strchr(path, '\\') && !strstr(path, "..") && strlen(path) < 96;
}

/* Both generations write a Python path whose last part is the class; the other parts have changed. */
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
    return err_set(err, STATUS_UNSUPPORTED, MODULES_FILE ": type %.100s: the module %.60s is not supported; " SUPPORTED,
                   type, last);
}

/* A module's folder followed by a slash, or "" for the model's own. Owns: the caller. */
static enum status folder_of(const cJSON *module, char **out, struct err *err)
{
    const char *path = NULL;
    TRY(json_string(module, MODULES_FILE, "path", &path, err));
    if (!path) { path = ""; }
    if (path[0] != '\0' && !is_safe_folder(path)) {
        return err_set(err, STATUS_BAD_INPUT, MODULES_FILE ": path %.100s must be a folder inside the model's", path);
    }
    struct buffer folder = {0};
    size_t length = strlen(path);
    buffer_format(&folder, "%s%s", path, length > 0 && path[length - 1] != '/' ? "/" : "");
    if (!buffer_ok(&folder)) { return err_set(err, STATUS_NO_MEMORY, "no memory for a folder's name"); }
    *out = folder.data;
    return STATUS_OK;
}

/* A module after pooling, which the model keeps. */
static enum status read_step(const char *folder, enum module_kind kind, struct reading *reading, struct err *err)
{
    static const struct {
        const char *tensors;
        reader *read;
    } parts[MODULE_KINDS] = {
        [MODULE_DENSE] = {"linear", read_dense},
        [MODULE_LAYER_NORM] = {"norm", read_layer_norm},
        [MODULE_NORMALIZE] = {"", read_normalize},
    };
    bool there = false;
    struct model_module *module = &reading->model->modules[reading->model->module_count++];
    *module = (struct model_module){.kind = kind, .biased = true};
    snprintf(module->name, sizeof module->name, "%s%s", folder, parts[kind].tensors);
    if (folder[0] != '\0') { TRY(read_file(folder, "config.json", parts[kind].read, reading, &there, err)); }
    return there || kind == MODULE_NORMALIZE
               ? STATUS_OK
               : err_set(err, STATUS_NOT_FOUND, MODULES_FILE ": %sconfig.json of the module %s is missing", folder,
                         module_names[kind]);
}

static enum status read_module(const cJSON *module, enum module_kind kind, struct reading *reading, struct err *err)
{
    char *folder = NULL;
    TRY(folder_of(module, &folder, err));
    struct sentence_config *out = reading->out;
    if (kind == MODULE_TRANSFORMER) {
        free(out->folder);
        out->folder = folder;
        return read_transformer_file(folder, reading, err);
    }
    if (kind == MODULE_POOLING) {
        out->pooling_folder = folder;
        return folder[0] != '\0' ? read_file(folder, "config.json", read_pooling, reading, NULL, err)
                                 : err_set(err, STATUS_BAD_INPUT, "modules.json: the Pooling module has no path");
    }
    enum status status = read_step(folder, kind, reading, err);
    free(folder);
    return status;
}

/* Sentence-transformers keeps the later of two modules with one name, in the place of the earlier. */
static enum status check_name(const cJSON *modules, const cJSON *module, struct err *err)
{
    const cJSON *name = json_field(module, "name");
    for (const cJSON *other = modules->child; name && other != module; other = other->next) {
        if (cJSON_Compare(name, json_field(other, "name"), true)) {
            return err_set(err, STATUS_UNSUPPORTED, MODULES_FILE ": two modules have the same name");
        }
    }
    return STATUS_OK;
}

/* The chain must be Transformer, Pooling, and then any of the others; only the first is required. A Normalize at the
 * end becomes model->normalize, because a request may ask for vectors that are not normalised. */
static enum status read_modules(const cJSON *modules, const char *name, struct reading *reading, struct err *err)
{
    static const char *const known[] = {"idx", "name", "path", "type", NULL};
    reading->listed = true;
    if (!cJSON_IsArray(modules) || !modules->child) {
        return err_set(err, STATUS_BAD_INPUT, MODULES_FILE ": must be a list of modules");
    }
    int next = MODULE_TRANSFORMER;
    const cJSON *module;
    struct model *model = reading->model;
    model->modules = calloc((size_t)cJSON_GetArraySize(modules), sizeof *model->modules);
    if (!model->modules) { return err_set(err, STATUS_NO_MEMORY, "no memory for the modules"); }
    cJSON_ArrayForEach(module, modules)
    {
        const char *type = "";
        enum module_kind kind = MODULE_TRANSFORMER;
        TRY(json_only(module, MODULES_FILE ": a module", known, NULL, err));
        TRY(check_name(modules, module, err));
        TRY(json_string(module, name, "type", &type, err));
        TRY(kind_of(type, &kind, err));
        if ((int)kind < next || (next == MODULE_TRANSFORMER && kind != MODULE_TRANSFORMER)) {
            return err_set(err, STATUS_UNSUPPORTED, MODULES_FILE ": the module %s is out of order; " SUPPORTED,
                           module_names[kind]);
        }
        next = kind == MODULE_TRANSFORMER ? MODULE_POOLING : MODULE_DENSE;
        TRY(read_module(module, kind, reading, err));
    }
    while (model->module_count > 0 && last_module(reading)->kind == MODULE_NORMALIZE) {
        model->normalize = true;
        model->module_count--;
    }
    return STATUS_OK;
}

/* Without a pooling a directory may be a classifier, whose head takes the first token or, if its config.json
 * says so, another pooling. */
static enum status find_head(struct reading *reading, struct err *err)
{
    struct sentence_config *out = reading->out;
    if (reading->model->pooling != POOLING_UNSET) {
        return out->logits
                   ? err_set(err, STATUS_UNSUPPORTED, MODULES_FILE ": Pooling behind a classifier is not supported")
                   : STATUS_OK;
    }
    if (!reading->options->classifier || out->pooling_folder) { return STATUS_OK; }
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%sconfig.json", out->folder);
    TRY(head_is_there(reading->model->directory, name, &out->classifier, err));
    if (!out->classifier) { return STATUS_OK; }
    reading->model->pooling = POOLING_CLS;
    return reading->model->module_count == 0 && !reading->model->normalize
               ? STATUS_OK
               : err_set(err, STATUS_UNSUPPORTED, MODULES_FILE ": modules behind a classifier are not supported");
}

static enum status refuse_unknown_pooling(const struct reading *reading, struct err *err)
{
    const struct sentence_config *config = reading->out;
    const char *advice =
        reading->options->classifier
            ? "so the pooling is not known; set pooling, or save a classifier or reranker with its head"
            : "so the pooling is not known; set pooling";
    if (config->pooling_folder) {
        return err_set(err, STATUS_NOT_FOUND, "%sconfig.json does not exist, %s", config->pooling_folder, advice);
    }
    return err_set(err, STATUS_NOT_FOUND, MODULES_FILE " %s, %s",
                   reading->listed ? "names no Pooling module" : "does not exist", advice);
}

enum status sentence_config_read(struct model *model, const struct model_options *options, struct sentence_config *out,
                                 struct err *err)
{
    struct reading reading = {.model = model, .options = options, .out = out};
    bool prompts;
    *out = (struct sentence_config){.folder = strdup("")};
    model->pool_prompt = true;
    TRY(set_prompt(model, "", err));
    if (!out->folder) { return err_set(err, STATUS_NO_MEMORY, "no memory for the model's configuration"); }
    if (options->generate) { return STATUS_OK; } /* these files are about vectors */
    TRY(read_file("", MODULES_FILE, read_modules, &reading, NULL, err));
    if (!reading.listed) { TRY(read_transformer_file("", &reading, err)); }
    if (options->pooling != POOLING_UNSET) { model->pooling = options->pooling; }
    TRY(find_head(&reading, err));
    if (model->pooling == POOLING_UNSET) { return refuse_unknown_pooling(&reading, err); }
    TRY(read_file("", PROMPTS_FILE, read_prompts, &reading, &prompts, err));
    if (!prompts && options->prompt && options->prompt[0] != '\0') {
        return err_set(err, STATUS_NOT_FOUND, PROMPTS_FILE ": does not exist, so there is no prompt named \"%.60s\"",
                       options->prompt);
    }
    if (options->prefix) {
        if (!utf8_valid(options->prefix, strlen(options->prefix))) {
            return err_set(err, STATUS_BAD_INPUT, "prefix is not valid UTF-8");
        }
        TRY(set_prompt(model, options->prefix, err));
    }
    if (out->classifier && model->prompt[0] != '\0') {
        return err_set(err, STATUS_UNSUPPORTED, "a prompt before the texts of a classifier is not supported");
    }
    if (!model->pool_prompt && model->prompt[0] != '\0') {
        return err_set(err, STATUS_UNSUPPORTED,
                       "%sconfig.json: include_prompt is false and a prompt is used, which is not supported",
                       out->pooling_folder);
    }
    return STATUS_OK;
}

void sentence_config_free(struct sentence_config *config)
{
    free(config->folder);
    free(config->pooling_folder);
    *config = (struct sentence_config){0};
}

const char *pooling_name(enum pooling pooling)
{
    return pooling_modes[pooling];
}
