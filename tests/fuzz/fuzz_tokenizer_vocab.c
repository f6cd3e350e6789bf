/* A vocab.txt of any bytes with a tokenizer_config.json of any bytes: the config, a NUL, the vocabulary, MPNet's where
 * it begins with < and else BERT's; or, where it begins with #, a merges.txt over a vocab.json of RoBERTa's special
 * tokens, the bytes and a few more. */
#include <string.h>

#include "base/json_tree.h"
#include "base/utf8.h"
#include "fuzz.h"
#include "tokenizer/spec.h"
#include "tokenizer/tokenizer.h"

static void encode(const struct tokenizer *tokenizer)
{
    static const char text[] = "Hello, [MASK] world! caf\xC3\xA9 \xE6\xBC\xA2 unaffable";
    int32_t ids[64];
    uint32_t count;
    bool truncated;
    struct err err = {0};
    FUZZ_CHECK(tokenizer_encode(tokenizer, text, sizeof text - 1, 64, ids, &count, &truncated, &err) == STATUS_OK);
    for (uint32_t i = 0; i < count; i++) {
        FUZZ_CHECK(ids[i] >= 0 && (uint32_t)ids[i] < tokenizer_vocabulary(tokenizer));
    }
}

static cJSON *bytes_vocabulary(void)
{
    static const char *const more[] = {"<s>", "</s>", "<unk>", "<pad>", "<mask>", "ab", "abc", "aba", "cab"};
    cJSON *vocabulary = cJSON_CreateObject();
    int id = 0;
    for (uint32_t byte = 0, other = 256; byte < 256; byte++) {
        char letter[5] = {0};
        bool visible = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
        utf8_put(letter, visible ? byte : other++);
        cJSON_AddNumberToObject(vocabulary, letter, id++);
    }
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) { cJSON_AddNumberToObject(vocabulary, more[i], id++); }
    return vocabulary;
}

static enum status parse(const char *text, size_t size, cJSON **json, struct tokenizer_spec *spec, struct err *err)
{
    static char field[] = "model_type", family[] = "mpnet";
    static cJSON name = {.type = cJSON_String, .string = field, .valuestring = family};
    static const cJSON mpnet = {.type = cJSON_Object, .child = &name};
    struct tokenizer_config config;
    struct tokenizer_files files = {0};
    const struct tokenizer_class *class;
    size_t length = strnlen(text, size);
    enum status status = length > 0 ? json_parse(text, length, "tokenizer_config.json", json, err) : STATUS_OK;
    if (status == STATUS_OK) { status = tokenizer_config_parse(*json, &config, err); }
    size_t at = length < size ? length + 1 : size;
    bool merges = text[at] == '#';
    files.config = *json;
    if (text[at] == '<') { files.model = &mpnet; }
    if (status == STATUS_OK) {
        status = tokenizer_class_find(&files, merges ? "merges.txt" : "vocab.txt", &class, err);
    }
    if (status != STATUS_OK) { return status; }
    if (!merges) { return tokenizer_vocab_parse(text + at, size - at, class, &files, spec, err); }
    cJSON *vocabulary = bytes_vocabulary();
    status = tokenizer_merges_parse(vocabulary, text + at, size - at, class, &files, spec, err);
    cJSON_Delete(vocabulary);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (text == NULL) { return 0; }
    memcpy(text, data, size);
    text[size] = '\0';
    cJSON *json = NULL;
    struct tokenizer_spec spec = {0};
    struct tokenizer *tokenizer = NULL;
    struct err err = {0};
    enum status status = parse(text, size, &json, &spec, &err);
    if (status == STATUS_OK) { status = tokenizer_build(&spec, &tokenizer, &err); }
    if (status == STATUS_OK) {
        encode(tokenizer);
    } else {
        FUZZ_CHECK(err.status == status && err.message[0] != '\0');
    }
    tokenizer_close(tokenizer);
    tokenizer_spec_free(&spec);
    cJSON_Delete(json);
    free(text);
    return 0;
}
