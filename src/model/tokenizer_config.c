/* tokenizer_config.json: all that a vocab.txt does not say, and beside a tokenizer.json a second opinion that must be
 * the same, since programs differ in which of the two they follow. */
#include <stdlib.h>
#include <string.h>

#include "model/json.h"
#include "model/tokenizer_parts.h"

#define FILE_NAME "tokenizer_config.json"

static enum status read_switch(const cJSON *json, const char *field, int *value, struct err *err)
{
    bool on = false;
    *value = -1;
    enum status status = json_bool(json, FILE_NAME, field, &on, err);
    if (status == STATUS_OK && json_field(json, field) != NULL)
        *value = on;
    return status;
}

/* Files without a limit say 1e30. */
static enum status read_limit(const cJSON *json, uint32_t *limit, struct err *err)
{
    double number = 0;
    enum status status = json_double(json, FILE_NAME, "model_max_length", &number, err);
    if (status != STATUS_OK || json_field(json, "model_max_length") == NULL || number >= INT32_MAX)
        return status;
    return json_u32(json, FILE_NAME, "model_max_length", 1, INT32_MAX, limit, err);
}

/* Settings that change ids in ways that are not known here. */
static enum status check_unsupported(const cJSON *json, struct err *err)
{
    const char *side = "right";
    int split = -1, basic = -1;
    enum status status = json_string(json, FILE_NAME, "truncation_side", &side, err);
    if (status == STATUS_OK && strcmp(side, "right") != 0)
        status = err_set(err, STATUS_UNSUPPORTED, FILE_NAME ": truncation_side %.100s is not supported", side);
    if (status == STATUS_OK)
        status = read_switch(json, "split_special_tokens", &split, err);
    if (status == STATUS_OK && split == 1)
        status = err_set(err, STATUS_UNSUPPORTED, FILE_NAME ": split_special_tokens is not supported");
    if (status == STATUS_OK)
        status = read_switch(json, "do_basic_tokenize", &basic, err);
    if (status == STATUS_OK && basic == 0)
        status = err_set(err, STATUS_UNSUPPORTED, FILE_NAME ": do_basic_tokenize false is not supported");
    return status;
}

enum status tokenizer_config_parse(const cJSON *json, struct tokenizer_config *config, struct err *err)
{
    *config = (struct tokenizer_config){.do_lower_case = -1, .strip_accents = -1, .tokenize_chinese_chars = -1};
    config->json = json;
    if (json == NULL)
        return STATUS_OK;
    if (!cJSON_IsObject(json))
        return err_set(err, STATUS_BAD_INPUT, FILE_NAME " must be an object");
    enum status status = read_switch(json, "do_lower_case", &config->do_lower_case, err);
    if (status == STATUS_OK)
        status = read_switch(json, "strip_accents", &config->strip_accents, err);
    if (status == STATUS_OK)
        status = read_switch(json, "tokenize_chinese_chars", &config->tokenize_chinese_chars, err);
    if (status == STATUS_OK)
        status = read_limit(json, &config->max_tokens, err);
    return status == STATUS_OK ? check_unsupported(json, err) : status;
}

static enum status same(const char *field, int said, bool is, struct err *err)
{
    if (said < 0 || said == (int)is)
        return STATUS_OK;
    return err_set(err, STATUS_UNSUPPORTED, FILE_NAME ": %s is %s, but tokenizer.json: normalizer says otherwise",
                   field, said ? "true" : "false");
}

enum status tokenizer_config_token(const cJSON *value, const char *where, struct added_token *token, struct err *err)
{
    const char *content = cJSON_IsString(value) ? value->valuestring : NULL;
    *token = (struct added_token){.id = -1};
    enum status status = STATUS_OK;
    if (cJSON_IsObject(value)) {
        status = json_string(value, where, "content", &content, err);
        if (status == STATUS_OK)
            status = json_bool(value, where, "single_word", &token->single_word, err);
        if (status == STATUS_OK)
            status = json_bool(value, where, "lstrip", &token->lstrip, err);
        if (status == STATUS_OK)
            status = json_bool(value, where, "rstrip", &token->rstrip, err);
        if (status == STATUS_OK)
            status = json_bool(value, where, "normalized", &token->normalized, err);
    }
    if (status != STATUS_OK)
        return status;
    if (content == NULL || content[0] == '\0') {
        err_set(err, STATUS_BAD_INPUT, "%s must be a token", where);
        return STATUS_BAD_INPUT;
    }
    token->length = strlen(content);
    token->content = tokenizer_copy(content, token->length);
    if (token->content != NULL)
        return STATUS_OK;
    err_set(err, STATUS_NO_MEMORY, "%s: no memory", where);
    return STATUS_NO_MEMORY;
}

int32_t tokenizer_config_id(const cJSON *entry)
{
    char *end;
    long id = strtol(entry->string, &end, 10);
    return end != entry->string && *end == '\0' && id >= 0 && id < INT32_MAX ? (int32_t)id : INT32_MAX;
}

/* Whether tokenizer.json has this very token. */
static bool has_token(const struct tokenizer_spec *spec, const struct added_token *wanted)
{
    for (size_t i = 0; i < spec->added_count; i++) {
        const struct added_token *token = &spec->added[i];
        if (strcmp(token->content, wanted->content) == 0)
            return token->id == wanted->id && token->single_word == wanted->single_word &&
                   token->lstrip == wanted->lstrip && token->rstrip == wanted->rstrip &&
                   token->normalized == wanted->normalized;
    }
    return false;
}

static enum status same_added_tokens(const struct tokenizer_config *config, const struct tokenizer_spec *spec,
                                     struct err *err)
{
    const char *where = FILE_NAME ": added_tokens_decoder";
    const cJSON *child;
    cJSON_ArrayForEach(child, json_field(config->json, "added_tokens_decoder"))
    {
        struct added_token token;
        enum status status = tokenizer_config_token(child, where, &token, err);
        if (status != STATUS_OK)
            return status;
        token.id = child->string != NULL ? tokenizer_config_id(child) : INT32_MAX;
        if (!has_token(spec, &token))
            status = err_set(err, STATUS_UNSUPPORTED, "%s: %.100s is not as in tokenizer.json: added_tokens", where,
                             token.content);
        free(token.content);
        if (status != STATUS_OK)
            return status;
    }
    return STATUS_OK;
}

enum status tokenizer_config_agrees(const struct tokenizer_config *config, const struct tokenizer_spec *spec,
                                    struct err *err)
{
    enum status status = same("do_lower_case", config->do_lower_case, spec->normalizer.lowercase, err);
    if (status == STATUS_OK)
        status = same("strip_accents", config->strip_accents, spec->normalizer.strip_accents, err);
    if (status == STATUS_OK)
        status =
            same("tokenize_chinese_chars", config->tokenize_chinese_chars, spec->normalizer.handle_chinese_chars, err);
    return status == STATUS_OK ? same_added_tokens(config, spec, err) : status;
}

/* Whether a token of special_tokens_map.json is what the config, or else BertTokenizer, says. */
static bool same_special(const struct tokenizer_config *config, const cJSON *special)
{
    static const char *const standard[][2] = {{"unk_token", "[UNK]"},
                                              {"sep_token", "[SEP]"},
                                              {"pad_token", "[PAD]"},
                                              {"cls_token", "[CLS]"},
                                              {"mask_token", "[MASK]"}};
    const cJSON *said = json_field(config->json, special->string);
    if (said != NULL)
        return cJSON_Compare(said, special, true);
    for (size_t i = 0; i < sizeof standard / sizeof standard[0]; i++)
        if (strcmp(special->string, standard[i][0]) == 0)
            return cJSON_IsString(special) && strcmp(special->valuestring, standard[i][1]) == 0;
    return false;
}

enum status tokenizer_legacy_check(const char *directory, const struct tokenizer_config *config, struct err *err)
{
    cJSON *added = NULL, *map = NULL;
    if (json_field(config->json, "added_tokens_decoder") != NULL)
        return STATUS_OK; /* then nobody reads them */
    enum status status = json_read_optional(directory, "added_tokens.json", &added, err);
    if (status == STATUS_OK && !json_is_empty(added))
        status = err_set(err, STATUS_UNSUPPORTED, "added_tokens.json beside vocab.txt is not supported");
    if (status == STATUS_OK)
        status = json_read_optional(directory, "special_tokens_map.json", &map, err);
    if (status == STATUS_OK && map != NULL && !cJSON_IsObject(map))
        status = err_set(err, STATUS_BAD_INPUT, "special_tokens_map.json must be an object");
    const cJSON *child;
    cJSON_ArrayForEach(child, map)
    {
        if (status == STATUS_OK && !same_special(config, child))
            status = err_set(err, STATUS_UNSUPPORTED, "special_tokens_map.json: %.100s differs from " FILE_NAME,
                             child->string);
    }
    cJSON_Delete(added);
    cJSON_Delete(map);
    return status;
}
