/* tokenizer.json: every part that changes ids must be one that is known here, field by field; `padding` and
 * `truncation` are the caller's business, `decoder` is of no use. */
#include <stdlib.h>
#include <string.h>

#include "model/json.h"
#include "model/tokenizer_parts.h"

#define FILE_NAME "tokenizer.json"

/* Refuses a field that is not in the list, which ends with NULL. `path` is the object's name for messages. */
static enum status only_fields(const cJSON *object, const char *path, const char *const *known, struct err *err)
{
    if (!cJSON_IsObject(object))
        return err_set(err, STATUS_BAD_INPUT, "%s must be an object", path);
    const cJSON *child;
    cJSON_ArrayForEach(child, object)
    {
        size_t i = 0;
        while (known[i] != NULL && strcmp(known[i], child->string) != 0)
            i++;
        if (known[i] == NULL)
            return err_set(err, STATUS_UNSUPPORTED, "%s: the field %.100s is not known here", path, child->string);
    }
    return STATUS_OK;
}

/* A field that must be there. */
static enum status need(const cJSON *object, const char *path, const char *field, const cJSON **value, struct err *err)
{
    *value = json_field(object, field);
    if (*value == NULL)
        return err_set(err, STATUS_BAD_INPUT, "%s: %s is missing", path, field);
    return STATUS_OK;
}

static enum status need_bool(const cJSON *object, const char *path, const char *field, bool *value, struct err *err)
{
    const cJSON *found;
    enum status status = need(object, path, field, &found, err);
    return status == STATUS_OK ? json_bool(object, path, field, value, err) : status;
}

static enum status need_string(const cJSON *object, const char *path, const char *field, const char **value,
                               struct err *err)
{
    const cJSON *found;
    enum status status = need(object, path, field, &found, err);
    return status == STATUS_OK ? json_string(object, path, field, value, err) : status;
}

static enum status need_id(const cJSON *value, const char *path, int32_t *id, struct err *err)
{
    uint64_t number;
    if (!json_whole(value, &number) || number >= INT32_MAX)
        return err_set(err, STATUS_BAD_INPUT, "%s must be a whole number below %d", path, INT32_MAX);
    *id = (int32_t)number;
    return STATUS_OK;
}

/* Checks `type`. A part that is null has no type. */
static enum status need_type(const cJSON *object, const char *path, const char *expected, struct err *err)
{
    const char *type = "null";
    enum status status = object != NULL ? need_string(object, path, "type", &type, err) : STATUS_OK;
    if (status == STATUS_OK && strcmp(type, expected) != 0)
        status = err_set(err, STATUS_UNSUPPORTED, "%s: type %.100s is not supported (%s is)", path, type, expected);
    return status;
}

static enum status read_normalizer(const cJSON *part, struct tokenizer_spec *spec, struct err *err)
{
    static const char *const known[] = {"type",          "clean_text", "handle_chinese_chars",
                                        "strip_accents", "lowercase",  NULL};
    const char *path = FILE_NAME ": normalizer";
    struct normalizer_options *options = &spec->normalizer;
    if (part == NULL)
        return STATUS_OK;
    enum status status = need_type(part, path, "BertNormalizer", err);
    if (status == STATUS_OK)
        status = only_fields(part, path, known, err);
    if (status == STATUS_OK)
        status = need_bool(part, path, "clean_text", &options->clean_text, err);
    if (status == STATUS_OK)
        status = need_bool(part, path, "handle_chinese_chars", &options->handle_chinese_chars, err);
    if (status == STATUS_OK)
        status = need_bool(part, path, "lowercase", &options->lowercase, err);
    options->strip_accents = options->lowercase; /* what null means */
    return status == STATUS_OK ? json_bool(part, path, "strip_accents", &options->strip_accents, err) : status;
}

static enum status read_pre_tokenizer(const cJSON *part, struct err *err)
{
    static const char *const known[] = {"type", NULL};
    const char *path = FILE_NAME ": pre_tokenizer";
    enum status status = need_type(part, path, "BertPreTokenizer", err);
    return status == STATUS_OK ? only_fields(part, path, known, err) : status;
}

static enum status read_vocabulary(const cJSON *vocabulary, struct tokenizer_spec *spec, struct err *err)
{
    const char *path = FILE_NAME ": model.vocab";
    if (!cJSON_IsObject(vocabulary))
        return err_set(err, STATUS_BAD_INPUT, "%s must be an object", path);
    size_t count = 0;
    const cJSON *child;
    cJSON_ArrayForEach(child, vocabulary) count++;
    spec->vocabulary = calloc(count + 1, sizeof *spec->vocabulary);
    if (spec->vocabulary == NULL)
        return err_set(err, STATUS_NO_MEMORY, "%s: no memory for %zu tokens", path, count);
    cJSON_ArrayForEach(child, vocabulary)
    {
        struct trie_key key = {.length = strlen(child->string)};
        if (key.length == 0) {
            spec->empty_tokens++;
            continue;
        }
        enum status status = need_id(child, path, &key.id, err);
        if (status != STATUS_OK)
            return err_prefix(err, "the token %.100s", child->string);
        key.bytes = tokenizer_copy(child->string, key.length);
        if (key.bytes == NULL)
            return err_set(err, STATUS_NO_MEMORY, "%s: no memory for tokens", path);
        spec->vocabulary[spec->vocabulary_count++] = key;
    }
    return STATUS_OK;
}

static enum status read_model(const cJSON *part, struct tokenizer_spec *spec, struct err *err)
{
    static const char *const known[] = {"type",  "unk_token", "continuing_subword_prefix", "max_input_chars_per_word",
                                        "vocab", NULL};
    const char *path = FILE_NAME ": model", *unknown = NULL, *continuing = NULL;
    const cJSON *value = NULL;
    enum status status = need_type(part, path, "WordPiece", err);
    if (status == STATUS_OK)
        status = only_fields(part, path, known, err);
    if (status == STATUS_OK)
        status = need_string(part, path, "unk_token", &unknown, err);
    if (status == STATUS_OK)
        status = need_string(part, path, "continuing_subword_prefix", &continuing, err);
    if (status == STATUS_OK)
        status = need(part, path, "max_input_chars_per_word", &value, err);
    if (status == STATUS_OK)
        status = json_u32(part, path, "max_input_chars_per_word", 0, UINT32_MAX, &spec->max_characters, err);
    if (status == STATUS_OK)
        status = need(part, path, "vocab", &value, err);
    if (status == STATUS_OK)
        status = read_vocabulary(value, spec, err);
    if (status != STATUS_OK)
        return status;
    spec->unknown = tokenizer_copy(unknown, strlen(unknown));
    spec->continuing = tokenizer_copy(continuing, strlen(continuing));
    return spec->unknown != NULL && spec->continuing != NULL ? STATUS_OK
                                                             : err_set(err, STATUS_NO_MEMORY, "%s: no memory", path);
}

static enum status read_added_token(const cJSON *part, struct added_token *token, struct err *err)
{
    static const char *const known[] = {"id",     "content",    "single_word", "lstrip",
                                        "rstrip", "normalized", "special",     NULL};
    const char *path = FILE_NAME ": added_tokens", *content = NULL;
    bool special;
    enum status status = only_fields(part, path, known, err);
    if (status == STATUS_OK)
        status = need_string(part, path, "content", &content, err);
    if (status == STATUS_OK)
        status = need_id(json_field(part, "id"), FILE_NAME ": added_tokens: id", &token->id, err);
    if (status == STATUS_OK)
        status = need_bool(part, path, "single_word", &token->single_word, err);
    if (status == STATUS_OK)
        status = need_bool(part, path, "lstrip", &token->lstrip, err);
    if (status == STATUS_OK)
        status = need_bool(part, path, "rstrip", &token->rstrip, err);
    if (status == STATUS_OK)
        status = need_bool(part, path, "normalized", &token->normalized, err);
    if (status == STATUS_OK)
        status = need_bool(part, path, "special", &special, err);
    if (status != STATUS_OK)
        return status;
    token->length = strlen(content);
    token->content = tokenizer_copy(content, token->length);
    return token->content != NULL ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "%s: no memory", path);
}

static enum status read_added(const cJSON *part, struct tokenizer_spec *spec, struct err *err)
{
    if (part == NULL)
        return STATUS_OK;
    if (!cJSON_IsArray(part))
        return err_set(err, STATUS_BAD_INPUT, FILE_NAME ": added_tokens must be an array");
    size_t count = (size_t)cJSON_GetArraySize(part);
    spec->added = calloc(count + 1, sizeof *spec->added);
    if (spec->added == NULL)
        return err_set(err, STATUS_NO_MEMORY, FILE_NAME ": no memory for %zu added tokens", count);
    const cJSON *child;
    cJSON_ArrayForEach(child, part)
    {
        enum status status = read_added_token(child, &spec->added[spec->added_count], err);
        if (status != STATUS_OK)
            return status;
        spec->added_count++;
    }
    return STATUS_OK;
}

static enum status put_special(struct tokenizer_template *specials, bool behind, int32_t id, struct err *err)
{
    uint32_t *count = behind ? &specials->behind_count : &specials->before_count;
    if (*count == TOKENIZER_MAX_SPECIALS)
        return err_set(err, STATUS_UNSUPPORTED, FILE_NAME ": post_processor has more than %d special tokens",
                       TOKENIZER_MAX_SPECIALS);
    (behind ? specials->behind : specials->before)[(*count)++] = id;
    return STATUS_OK;
}

/* One {"SpecialToken": {"id", "type_id"}}: its ids stand in `special_tokens`. */
static enum status read_special_piece(const cJSON *piece, const cJSON *tokens, bool behind, struct tokenizer_spec *spec,
                                      struct err *err)
{
    const char *path = FILE_NAME ": post_processor.single", *name = NULL;
    enum status status = need_string(piece, path, "id", &name, err);
    if (status != STATUS_OK)
        return status;
    const cJSON *ids = json_field(json_field(tokens, name), "ids"), *child;
    if (!cJSON_IsArray(ids))
        return err_set(err, STATUS_BAD_INPUT, FILE_NAME ": post_processor.special_tokens has no ids for %.100s", name);
    cJSON_ArrayForEach(child, ids)
    {
        int32_t id = 0;
        status = need_id(child, FILE_NAME ": post_processor.special_tokens: ids", &id, err);
        if (status == STATUS_OK)
            status = put_special(&spec->specials, behind, id, err);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

/* Every token of a single text must have type 0: that is what the engine gives it. */
static enum status check_type_id(const cJSON *piece, struct err *err)
{
    uint32_t type = 0;
    enum status status = json_u32(piece, FILE_NAME ": post_processor.single", "type_id", 0, UINT32_MAX, &type, err);
    if (status == STATUS_OK && type != 0)
        status =
            err_set(err, STATUS_UNSUPPORTED, FILE_NAME ": post_processor.single: type_id %u is not supported", type);
    return status;
}

static enum status read_template(const cJSON *part, struct tokenizer_spec *spec, struct err *err)
{
    const char *path = FILE_NAME ": post_processor.single", *name = NULL;
    const cJSON *single = json_field(part, "single"), *tokens = json_field(part, "special_tokens"), *child;
    bool behind = false;
    if (!cJSON_IsArray(single))
        return err_set(err, STATUS_BAD_INPUT, "%s must be an array", path);
    cJSON_ArrayForEach(child, single)
    {
        const cJSON *sequence = json_field(child, "Sequence"), *special = json_field(child, "SpecialToken");
        enum status status = check_type_id(sequence != NULL ? sequence : special, err);
        if (status == STATUS_OK && special != NULL && sequence == NULL) {
            status = read_special_piece(special, tokens, behind, spec, err);
        } else if (status == STATUS_OK) {
            status = need_string(sequence, path, "id", &name, err);
            if (status == STATUS_OK && (behind || strcmp(name, "A") != 0))
                return err_set(err, STATUS_UNSUPPORTED, "%s: must have the sequence A once and no other", path);
            behind = true;
        }
        if (status != STATUS_OK)
            return status;
    }
    return behind ? STATUS_OK : err_set(err, STATUS_UNSUPPORTED, "%s: has no place for the text", path);
}

/* BertProcessing and RobertaProcessing: "cls" and "sep" are pairs of a token and its id. */
static enum status read_pair(const cJSON *part, const char *field, bool behind, struct tokenizer_spec *spec,
                             struct err *err)
{
    const cJSON *pair = json_field(part, field);
    int32_t id = 0;
    if (!cJSON_IsArray(pair) || cJSON_GetArraySize(pair) != 2)
        return err_set(err, STATUS_BAD_INPUT, FILE_NAME ": post_processor: %s must be [token, id]", field);
    enum status status = need_id(cJSON_GetArrayItem(pair, 1), FILE_NAME ": post_processor: an id", &id, err);
    return status == STATUS_OK ? put_special(&spec->specials, behind, id, err) : status;
}

static enum status read_post_processor(const cJSON *part, struct tokenizer_spec *spec, struct err *err)
{
    const char *path = FILE_NAME ": post_processor", *type = NULL;
    if (part == NULL)
        return STATUS_OK;
    enum status status = need_string(part, path, "type", &type, err);
    if (status != STATUS_OK)
        return status;
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(part, spec, err);
    if (strcmp(type, "BertProcessing") != 0 && strcmp(type, "RobertaProcessing") != 0)
        return err_set(err, STATUS_UNSUPPORTED, "%s: type %.100s is not supported", path, type);
    status = read_pair(part, "cls", false, spec, err);
    return status == STATUS_OK ? read_pair(part, "sep", true, spec, err) : status;
}

/* The section itself is the caller's business, but a model that is cut on the left is another one. */
static enum status check_truncation(const cJSON *part, struct err *err)
{
    const char *direction = "Right";
    enum status status = json_string(part, FILE_NAME ": truncation", "direction", &direction, err);
    if (status == STATUS_OK && strcmp(direction, "Right") != 0)
        status =
            err_set(err, STATUS_UNSUPPORTED, FILE_NAME ": truncation: direction %.100s is not supported", direction);
    return status;
}

static enum status read_parts(const cJSON *root, struct tokenizer_spec *spec, struct err *err)
{
    static const char *const known[] = {"version",       "truncation",     "padding", "added_tokens", "normalizer",
                                        "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
    const char *version = "1.0";
    enum status status = only_fields(root, FILE_NAME, known, err);
    if (status == STATUS_OK)
        status = json_string(root, FILE_NAME, "version", &version, err);
    if (status == STATUS_OK && strcmp(version, "1.0") != 0)
        status = err_set(err, STATUS_UNSUPPORTED, FILE_NAME ": version %.100s is not supported", version);
    if (status == STATUS_OK)
        status = check_truncation(json_field(root, "truncation"), err);
    if (status == STATUS_OK)
        status = read_normalizer(json_field(root, "normalizer"), spec, err);
    if (status == STATUS_OK)
        status = read_pre_tokenizer(json_field(root, "pre_tokenizer"), err);
    if (status == STATUS_OK)
        status = read_model(json_field(root, "model"), spec, err);
    if (status == STATUS_OK)
        status = read_added(json_field(root, "added_tokens"), spec, err);
    return status == STATUS_OK ? read_post_processor(json_field(root, "post_processor"), spec, err) : status;
}

enum status tokenizer_json_parse(const char *text, size_t length, struct tokenizer_spec *spec, struct err *err)
{
    cJSON *root = NULL;
    spec->file = FILE_NAME;
    enum status status = json_parse(text, length, FILE_NAME, &root, err);
    if (status == STATUS_OK)
        status = read_parts(root, spec, err);
    cJSON_Delete(root);
    return status;
}
