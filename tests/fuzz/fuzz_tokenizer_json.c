/* A tokenizer.json of any bytes, of each class: refused with a message, or opened and then able to encode, and to
 * decode or to say why not. */
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
    if (tokenizer_encode(tokenizer, text, sizeof text - 1, 64, ids, &count, &truncated, &err) != STATUS_OK) { return; }
    FUZZ_CHECK(count <= 64);
    for (uint32_t i = 0; i < count; i++) {
        FUZZ_CHECK(ids[i] >= 0 && (uint32_t)ids[i] < tokenizer_vocabulary(tokenizer));
    }
    struct buffer text_again = {0};
    enum status status = tokenizer_decode(tokenizer, ids, count, false, &text_again, &err);
    FUZZ_CHECK(status == STATUS_OK || (status == STATUS_UNSUPPORTED && strstr(err.message, "decoder")));
    FUZZ_CHECK(text_again.length == 0 || utf8_valid(text_again.data, text_again.length));
    buffer_free(&text_again);
}

static void open_as(char *class_name, const char *text, size_t size)
{
    static char field[] = "tokenizer_class";
    cJSON name = {.type = cJSON_String, .string = field, .valuestring = class_name};
    const cJSON config = {.type = cJSON_Object, .child = &name};
    const struct tokenizer_files files = {.config = &config};
    const struct tokenizer_class *class;
    struct tokenizer_spec spec = {0};
    struct tokenizer *tokenizer = NULL;
    struct err err = {0};
    FUZZ_CHECK(tokenizer_class_find(&files, NULL, &class, &err) == STATUS_OK);
    enum status status = tokenizer_json_parse(text, size, class, &files, &spec, &err);
    if (status == STATUS_OK) { status = tokenizer_build(&spec, &tokenizer, &err); }
    if (status == STATUS_OK) {
        encode(tokenizer);
    } else {
        FUZZ_CHECK(err.status == status && strstr(err.message, "tokenizer") != NULL);
    }
    tokenizer_close(tokenizer);
    tokenizer_spec_free(&spec);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char classes[][24] = {"PreTrainedTokenizerFast", "BertTokenizer",      "MPNetTokenizer", "RobertaTokenizer",
                                 "XLMRobertaTokenizer",     "CamembertTokenizer", "Qwen2Tokenizer", "GemmaTokenizer"};
    char *text = malloc(size + 1);
    if (text == NULL) { return 0; }
    memcpy(text, data, size);
    text[size] = '\0';
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) { open_as(classes[i], text, size); }
    free(text);
    return 0;
}
