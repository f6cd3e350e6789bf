/* A tokenizer.json of any bytes: refused with a message, or opened and then good for encoding. */
#include <string.h>

#include "fuzz.h"
#include "model/tokenizer/spec.h"
#include "model/tokenizer/tokenizer.h"

static void encode(const struct tokenizer *tokenizer)
{
    static const char text[] = "Hello, [MASK] world! caf\xC3\xA9 \xE6\xBC\xA2 unaffable";
    int32_t ids[64];
    uint32_t count;
    bool truncated;
    struct err err = {0};
    if (tokenizer_encode(tokenizer, text, sizeof text - 1, 64, ids, &count, &truncated, &err) != STATUS_OK) { return; }
    FUZZ_CHECK(count <= 64);
    for (uint32_t i = 0; i < count; i++) {
        FUZZ_CHECK(ids[i] >= 0 && (uint32_t)ids[i] < tokenizer_vocabulary(tokenizer));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (text == NULL) { return 0; }
    memcpy(text, data, size);
    text[size] = '\0';
    struct tokenizer_spec spec = {0};
    struct tokenizer *tokenizer = NULL;
    struct err err = {0};
    enum status status =
        tokenizer_json_parse(text, size, tokenizer_class_of_file, &(struct tokenizer_files){0}, &spec, &err);
    if (status == STATUS_OK) { status = tokenizer_build(&spec, &tokenizer, &err); }
    if (status == STATUS_OK) {
        encode(tokenizer);
    } else {
        FUZZ_CHECK(err.status == status && strstr(err.message, "tokenizer.json") != NULL);
    }
    tokenizer_close(tokenizer);
    tokenizer_spec_free(&spec);
    free(text);
    return 0;
}
