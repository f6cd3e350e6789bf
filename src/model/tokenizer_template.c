/* The post-processor of tokenizer.json: which special tokens stand before and behind a text. */
#include <string.h>

#include "model/tokenizer_fields.h"
#include "model/tokenizer_parts.h"

#define FILE_NAME "tokenizer.json"

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
    enum status status = fields_string(piece, path, "id", &name, err);
    if (status != STATUS_OK)
        return status;
    const cJSON *ids = json_field(json_field(tokens, name), "ids"), *child;
    if (!cJSON_IsArray(ids))
        return err_set(err, STATUS_BAD_INPUT, FILE_NAME ": post_processor.special_tokens has no ids for %.100s", name);
    cJSON_ArrayForEach(child, ids)
    {
        int32_t id = 0;
        status = fields_id(child, FILE_NAME ": post_processor.special_tokens: ids", &id, err);
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
            status = fields_string(sequence, path, "id", &name, err);
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
    enum status status = fields_id(cJSON_GetArrayItem(pair, 1), FILE_NAME ": post_processor: an id", &id, err);
    return status == STATUS_OK ? put_special(&spec->specials, behind, id, err) : status;
}

enum status tokenizer_json_template(const cJSON *part, struct tokenizer_spec *spec, struct err *err)
{
    const char *path = FILE_NAME ": post_processor", *type = NULL;
    if (part == NULL)
        return STATUS_OK;
    enum status status = fields_string(part, path, "type", &type, err);
    if (status != STATUS_OK)
        return status;
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(part, spec, err);
    if (strcmp(type, "BertProcessing") != 0 && strcmp(type, "RobertaProcessing") != 0)
        return err_set(err, STATUS_UNSUPPORTED, "%s: type %.100s is not supported", path, type);
    status = read_pair(part, "cls", false, spec, err);
    return status == STATUS_OK ? read_pair(part, "sep", true, spec, err) : status;
}
