/* tokenizer_config.json: all that a vocab.txt does not say, and beside a tokenizer.json a second opinion that must be
 * the same, since programs differ in which of the two they follow. */
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

enum status tokenizer_config_agrees(const struct tokenizer_config *config, const struct tokenizer_spec *spec,
                                    struct err *err)
{
    enum status status = same("do_lower_case", config->do_lower_case, spec->normalizer.lowercase, err);
    if (status == STATUS_OK)
        status = same("strip_accents", config->strip_accents, spec->normalizer.strip_accents, err);
    if (status == STATUS_OK)
        status =
            same("tokenize_chinese_chars", config->tokenize_chinese_chars, spec->normalizer.handle_chinese_chars, err);
    return status;
}
