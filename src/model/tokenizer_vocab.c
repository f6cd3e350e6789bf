/* vocab.txt: one token per line, its id the line's number from 0 on; the rest comes from tokenizer_config.json, with
 * the defaults of transformers' BertTokenizer. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "model/json.h"
#include "model/tokenizer_parts.h"
#include "model/unicode.h"

#define FILE_NAME "vocab.txt"
#define CONFIG_NAME "tokenizer_config.json"

static size_t count_lines(const char *text, size_t length)
{
    size_t count = 0;
    for (size_t at = 0; at < length; at++)
        count += text[at] == '\n' || at + 1 == length;
    return count;
}

static enum status read_line(const char *line, size_t length, size_t number, struct tokenizer_spec *spec,
                             struct err *err)
{
    length = added_space_before(line, 0, length);
    if (memchr(line, '\r', length) != NULL)
        return err_set(err, STATUS_BAD_INPUT, FILE_NAME ": line %zu has a carriage return inside", number + 1);
    if (length == 0) {
        spec->empty_tokens = 1; /* all empty lines are one entry */
        return STATUS_OK;
    }
    struct vocabulary_entry entry = {.token = tokenizer_copy(line, length), .id = (int32_t)number};
    if (entry.token == NULL)
        return err_set(err, STATUS_NO_MEMORY, FILE_NAME ": no memory for tokens");
    spec->vocabulary[spec->vocabulary_count++] = entry;
    return STATUS_OK;
}

static int compare_tokens(const void *a, const void *b)
{
    const struct vocabulary_entry *x = a, *y = b;
    int order = strcmp(x->token, y->token);
    return order != 0 ? order : (x->id > y->id) - (x->id < y->id);
}

/* A token that stands twice has the later id. */
static void drop_repeated(struct tokenizer_spec *spec)
{
    struct vocabulary_entry *entries = spec->vocabulary;
    size_t kept = 0;
    if (spec->vocabulary_count > 1)
        qsort(entries, spec->vocabulary_count, sizeof *entries, compare_tokens);
    for (size_t i = 0; i < spec->vocabulary_count; i++) {
        if (i + 1 < spec->vocabulary_count && strcmp(entries[i].token, entries[i + 1].token) == 0)
            free(entries[i].token);
        else
            entries[kept++] = entries[i];
    }
    spec->vocabulary_count = kept;
}

static enum status read_lines(const char *text, size_t length, struct tokenizer_spec *spec, struct err *err)
{
    size_t valid = utf8_valid_prefix(text, length);
    if (valid != length || memchr(text, '\0', length) != NULL)
        return err_set(err, STATUS_BAD_INPUT, FILE_NAME ": byte %zu is not UTF-8, or there is a NUL", valid);
    spec->vocabulary = calloc(count_lines(text, length) + 1, sizeof *spec->vocabulary);
    if (spec->vocabulary == NULL)
        return err_set(err, STATUS_NO_MEMORY, FILE_NAME ": no memory for tokens");
    size_t number = 0;
    for (size_t at = 0; at < length; number++) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t until = end != NULL ? (size_t)(end - text) : length;
        enum status status = read_line(text + at, until - at, number, spec, err);
        if (status != STATUS_OK)
            return status;
        at = until + 1;
    }
    drop_repeated(spec);
    return STATUS_OK;
}

/* Adds a token unless it is there; takes its content. */
static void put_added(struct tokenizer_spec *spec, struct added_token token)
{
    for (size_t i = 0; i < spec->added_count; i++) {
        if (strcmp(spec->added[i].content, token.content) == 0) {
            free(token.content);
            return;
        }
    }
    spec->added[spec->added_count++] = token;
}

static enum status read_added_tokens(const cJSON *decoder, struct tokenizer_spec *spec, struct err *err)
{
    const cJSON *child;
    if (decoder != NULL && !cJSON_IsObject(decoder))
        return err_set(err, STATUS_BAD_INPUT, CONFIG_NAME ": added_tokens_decoder must be an object");
    cJSON_ArrayForEach(child, decoder)
    {
        struct added_token token;
        enum status status = tokenizer_config_token(child, CONFIG_NAME ": added_tokens_decoder", &token, err);
        if (status != STATUS_OK)
            return status;
        token.id = tokenizer_config_id(child);
        put_added(spec, token);
    }
    return STATUS_OK;
}

/* One of the five named tokens. `*content`, where asked for, becomes a copy that the caller frees. */
static enum status read_special(const cJSON *json, const char *field, const char *standard, struct tokenizer_spec *spec,
                                char **content, struct err *err)
{
    const cJSON *value = json_field(json, field);
    struct added_token token = {.id = -1, .length = strlen(standard)};
    enum status status = STATUS_OK;
    if (value != NULL)
        status = tokenizer_config_token(value, field, &token, err);
    else
        token.content = tokenizer_copy(standard, token.length);
    if (status != STATUS_OK) {
        err_prefix(err, CONFIG_NAME);
        return status;
    }
    if (content != NULL && token.content != NULL)
        *content = tokenizer_copy(token.content, token.length);
    if (token.content == NULL || (content != NULL && *content == NULL)) {
        free(token.content);
        err_set(err, STATUS_NO_MEMORY, CONFIG_NAME ": no memory");
        return STATUS_NO_MEMORY;
    }
    put_added(spec, token);
    return STATUS_OK;
}

static int32_t id_of(const struct tokenizer_spec *spec, const char *token)
{
    for (size_t i = 0; i < spec->vocabulary_count; i++)
        if (strcmp(spec->vocabulary[i].token, token) == 0)
            return spec->vocabulary[i].id;
    return -1;
}

static enum status read_additional(const cJSON *list, struct tokenizer_spec *spec, struct err *err)
{
    const cJSON *child;
    cJSON_ArrayForEach(child, list)
    {
        struct added_token token;
        enum status status = tokenizer_config_token(child, CONFIG_NAME ": additional_special_tokens", &token, err);
        if (status != STATUS_OK)
            return status;
        put_added(spec, token);
    }
    return STATUS_OK;
}

static enum status read_specials(const cJSON *json, struct tokenizer_spec *spec, struct err *err)
{
    const cJSON *decoder = json_field(json, "added_tokens_decoder");
    const cJSON *additional = json_field(json, "additional_special_tokens");
    size_t room = (size_t)cJSON_GetArraySize(decoder) + (size_t)cJSON_GetArraySize(additional) + 5;
    spec->added_count = 0;
    spec->added = calloc(room, sizeof *spec->added);
    if (spec->added == NULL)
        return err_set(err, STATUS_NO_MEMORY, CONFIG_NAME ": no memory for added tokens");
    char *first = NULL, *last = NULL;
    enum status status = read_added_tokens(decoder, spec, err);
    if (status == STATUS_OK)
        status = read_special(json, "unk_token", "[UNK]", spec, &spec->unknown, err);
    if (status == STATUS_OK)
        status = read_special(json, "sep_token", "[SEP]", spec, &last, err);
    if (status == STATUS_OK)
        status = read_special(json, "pad_token", "[PAD]", spec, NULL, err);
    if (status == STATUS_OK)
        status = read_special(json, "cls_token", "[CLS]", spec, &first, err);
    if (status == STATUS_OK)
        status = read_special(json, "mask_token", "[MASK]", spec, NULL, err);
    if (status == STATUS_OK)
        status = read_additional(additional, spec, err);
    if (status == STATUS_OK) {
        spec->specials = (struct tokenizer_template){{id_of(spec, first)}, {id_of(spec, last)}, 1, 1};
        if (spec->specials.before[0] < 0 || spec->specials.behind[0] < 0)
            status = err_set(err, STATUS_BAD_INPUT, FILE_NAME " lacks the cls_token %.100s or the sep_token %.100s",
                             first, last);
    }
    free(first);
    free(last);
    return status;
}

static enum status check_class(const cJSON *json, struct err *err)
{
    static const char *const known[] = {"BertTokenizer",           "BertTokenizerFast", "DistilBertTokenizer",
                                        "DistilBertTokenizerFast", "ElectraTokenizer",  "ElectraTokenizerFast"};
    const char *class = known[0];
    enum status status = json_string(json, CONFIG_NAME, "tokenizer_class", &class, err);
    for (size_t i = 0; status == STATUS_OK && i < sizeof known / sizeof known[0]; i++)
        if (strcmp(class, known[i]) == 0)
            return STATUS_OK;
    if (status == STATUS_OK)
        status = err_set(err, STATUS_UNSUPPORTED,
                         CONFIG_NAME ": tokenizer_class %.100s is not supported with " FILE_NAME, class);
    return status;
}

enum status tokenizer_vocab_parse(const char *text, size_t length, const struct tokenizer_config *config,
                                  struct tokenizer_spec *spec, struct err *err)
{
    spec->file = FILE_NAME;
    spec->normalizer.clean_text = true;
    spec->normalizer.lowercase = config->do_lower_case != 0;
    spec->normalizer.handle_chinese_chars = config->tokenize_chinese_chars != 0;
    spec->normalizer.strip_accents = config->strip_accents < 0 ? spec->normalizer.lowercase : config->strip_accents;
    spec->max_characters = 100;
    enum status status = check_class(config->json, err);
    if (status == STATUS_OK)
        status = read_lines(text, length, spec, err);
    if (status == STATUS_OK)
        status = read_specials(config->json, spec, err);
    if (status == STATUS_OK && (spec->continuing = tokenizer_copy("##", 2)) == NULL)
        status = err_set(err, STATUS_NO_MEMORY, FILE_NAME ": no memory");
    return status;
}
