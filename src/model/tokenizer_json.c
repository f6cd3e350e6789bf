/* tokenizer.json: every part that changes ids must be one that is known here, field by field; `padding` and
 * `truncation` are the caller's business, `decoder` is of no use. */
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_fields.h"
#include "model/tokenizer_parts.h"

#define FILE_NAME "tokenizer.json"

static enum status read_normalizer(const cJSON *part, struct tokenizer_spec *spec, struct err *err)
{
    static const char *const known[] = {"type",          "clean_text", "handle_chinese_chars",
                                        "strip_accents", "lowercase",  NULL};
    const char *path = FILE_NAME ": normalizer";
    struct normalizer_options *options = &spec->normalizer;
    if (part == NULL)
        return STATUS_OK;
    enum status status = fields_type(part, path, "BertNormalizer", err);
    if (status == STATUS_OK)
        status = fields_only(part, path, known, err);
    if (status == STATUS_OK)
        status = fields_bool(part, path, "clean_text", &options->clean_text, err);
    if (status == STATUS_OK)
        status = fields_bool(part, path, "handle_chinese_chars", &options->handle_chinese_chars, err);
    if (status == STATUS_OK)
        status = fields_bool(part, path, "lowercase", &options->lowercase, err);
    options->strip_accents = options->lowercase; /* what null means */
    return status == STATUS_OK ? json_bool(part, path, "strip_accents", &options->strip_accents, err) : status;
}

static enum status read_pre_tokenizer(const cJSON *part, struct err *err)
{
    static const char *const known[] = {"type", NULL};
    const char *path = FILE_NAME ": pre_tokenizer";
    enum status status = fields_type(part, path, "BertPreTokenizer", err);
    return status == STATUS_OK ? fields_only(part, path, known, err) : status;
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
        struct vocabulary_entry entry = {0};
        if (child->string[0] == '\0') {
            spec->empty_tokens++;
            continue;
        }
        enum status status = fields_id(child, path, &entry.id, err);
        if (status != STATUS_OK)
            return err_prefix(err, "the token %.100s", child->string);
        entry.token = tokenizer_copy(child->string, strlen(child->string));
        if (entry.token == NULL)
            return err_set(err, STATUS_NO_MEMORY, "%s: no memory for tokens", path);
        spec->vocabulary[spec->vocabulary_count++] = entry;
    }
    return STATUS_OK;
}

static enum status read_model(const cJSON *part, struct tokenizer_spec *spec, struct err *err)
{
    static const char *const known[] = {"type",  "unk_token", "continuing_subword_prefix", "max_input_chars_per_word",
                                        "vocab", NULL};
    const char *path = FILE_NAME ": model", *unknown = NULL, *continuing = NULL;
    const cJSON *value = NULL;
    enum status status = fields_type(part, path, "WordPiece", err);
    if (status == STATUS_OK)
        status = fields_only(part, path, known, err);
    if (status == STATUS_OK)
        status = fields_string(part, path, "unk_token", &unknown, err);
    if (status == STATUS_OK)
        status = fields_string(part, path, "continuing_subword_prefix", &continuing, err);
    if (status == STATUS_OK)
        status = fields_need(part, path, "max_input_chars_per_word", &value, err);
    if (status == STATUS_OK)
        status = json_u32(part, path, "max_input_chars_per_word", 0, UINT32_MAX, &spec->max_characters, err);
    if (status == STATUS_OK)
        status = fields_need(part, path, "vocab", &value, err);
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
    enum status status = fields_only(part, path, known, err);
    if (status == STATUS_OK)
        status = fields_string(part, path, "content", &content, err);
    if (status == STATUS_OK)
        status = fields_id(json_field(part, "id"), FILE_NAME ": added_tokens: id", &token->id, err);
    if (status == STATUS_OK)
        status = fields_bool(part, path, "single_word", &token->single_word, err);
    if (status == STATUS_OK)
        status = fields_bool(part, path, "lstrip", &token->lstrip, err);
    if (status == STATUS_OK)
        status = fields_bool(part, path, "rstrip", &token->rstrip, err);
    if (status == STATUS_OK)
        status = fields_bool(part, path, "normalized", &token->normalized, err);
    if (status == STATUS_OK)
        status = fields_bool(part, path, "special", &special, err);
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
    enum status status = fields_only(root, FILE_NAME, known, err);
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
    return status == STATUS_OK ? tokenizer_json_template(json_field(root, "post_processor"), spec, err) : status;
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
