/* Which files a tokenizer is opened from. */
#include <stdint.h>

#include "base/file.h"
#include "model/json.h"
#include "model/tokenizer_parts.h"

#define MAX_FILE_BYTES ((size_t)32 << 20)

/* Reads DIRECTORY/NAME behind `out`. */
static enum status read_file(const char *directory, const char *name, struct buffer *out, struct err *err)
{
    struct buffer path = {0};
    buffer_format(&path, "%s/%s", directory, name);
    enum status status = buffer_ok(&path) ? file_read(path.data, MAX_FILE_BYTES, out, err)
                                          : err_set(err, STATUS_NO_MEMORY, "no memory for the path of %s", name);
    buffer_free(&path);
    return status;
}

static enum status read_spec(const char *directory, const struct tokenizer_config *config, struct tokenizer_spec *spec,
                             struct err *err)
{
    struct buffer text = {0};
    enum status status = read_file(directory, "tokenizer.json", &text, err);
    if (status == STATUS_OK) {
        status = tokenizer_json_parse(text.data, text.length, spec, err);
        if (status == STATUS_OK)
            status = tokenizer_config_agrees(config, spec, err);
    } else if (status == STATUS_NOT_FOUND) {
        status = read_file(directory, "vocab.txt", &text, err);
        if (status == STATUS_OK)
            status = tokenizer_legacy_check(directory, config, err);
        if (status == STATUS_OK)
            status = tokenizer_vocab_parse(text.data, text.length, config, spec, err);
        else if (status == STATUS_NOT_FOUND)
            status = err_set(err, status, "%s has neither tokenizer.json nor vocab.txt", directory);
    }
    buffer_free(&text);
    return status;
}

enum status tokenizer_open(const char *directory, struct tokenizer **out, struct err *err)
{
    cJSON *json = NULL;
    struct tokenizer_config config;
    struct tokenizer_spec spec = {0};
    *out = NULL;
    enum status status = json_read_optional(directory, "tokenizer_config.json", &json, err);
    if (status == STATUS_OK)
        status = tokenizer_config_parse(json, &config, err);
    if (status == STATUS_OK)
        status = read_spec(directory, &config, &spec, err);
    if (status == STATUS_OK)
        status = tokenizer_build(&spec, out, err);
    if (status == STATUS_OK)
        (*out)->max_tokens = config.max_tokens;
    tokenizer_spec_free(&spec);
    cJSON_Delete(json);
    return status;
}
