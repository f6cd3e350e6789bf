/* A line of JSON Lines: the bytes up to the first NUL are a template, the rest is the line. Whatever both are, a
 * document comes out, or an error about the option. A member of the line, as of a reply's `info`, is within it. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "bulk/input/document.h"
#include "bulk/input/json.h"
#include "bulk/lookahead.h"
#include "fuzz.h"

static void pick(const struct recipe *recipe, const char *line, size_t length)
{
    struct value values[RECIPE_FIELDS_MAX];
    struct recipe_scratch scratch = {0};
    struct document document = {0};
    struct err err;
    size_t at;
    enum pick_problem problem = pick_fields(line, length, recipe->fields, recipe->field_count, values, &at);
    FUZZ_CHECK(at <= length);
    FUZZ_CHECK((problem == PICK_BAD_UTF8) == !utf8_valid(line, length));
    for (uint32_t i = 0; problem == PICK_OK && i < recipe->field_count; i++) {
        if (values[i].kind != VALUE_ABSENT) {
            FUZZ_CHECK(values[i].bytes >= line && values[i].bytes + values[i].length <= line + length);
        }
    }
    if (problem == PICK_OK) {
        FUZZ_CHECK(recipe_make(recipe, values, &scratch, &document, &err) == STATUS_OK);
        FUZZ_CHECK((document.code == ROW_OK) == (document.message_bytes == 0));
        if (document.code == ROW_OK) { FUZZ_CHECK(utf8_valid(document.text, document.text_bytes)); }
        FUZZ_CHECK(utf8_valid(document.kept == NULL ? "" : document.kept, document.kept_bytes));
    }
    recipe_scratch_free(&scratch);
    struct buffer list = {0};
    if (problem == PICK_OK) {
        pick_names(&list, line, length);
        FUZZ_CHECK(list.length < 256 && utf8_valid(list.data ? list.data : "", list.length));
    }
    buffer_free(&list);
}

static void find_member(const char *line, size_t length)
{
    const char *value = NULL;
    size_t value_length = 0;
    uint64_t number;
    char text[8];
    bool there = json_member(line, length, "n", &value, &value_length);
    FUZZ_CHECK(!there || (value > line && value_length > 0 && value + value_length <= line + length));
    FUZZ_CHECK(json_member_text(line, length, "n", text, sizeof text) == there);
    FUZZ_CHECK(strlen(text) < sizeof text && (there || text[0] == '\0'));
    FUZZ_CHECK(!json_member_number(line, length, "n", &number) || (*value >= '0' && *value <= '9') || *value == '"');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size == 0 ? NULL : memchr(data, 0, size);
    size_t template_bytes = end == NULL ? 0 : (size_t)(end - data), from = end == NULL ? 0 : template_bytes + 1;
    char *template = malloc(template_bytes + 1), *line = malloc(size - from + 1);
    memcpy(template, data, template_bytes);
    template[template_bytes] = '\0';
    memcpy(line, data + from, size - from);
    find_member(line, size - from);
    struct recipe recipe;
    struct chunking chunking;
    struct err err = {0};
    struct recipe_options options = {.template = end == NULL ? NULL : template, .keep = "a.b,n"};
    if (recipe_open(&recipe, &options, &err) == STATUS_OK) {
        pick(&recipe, line, size - from);
    } else {
        FUZZ_CHECK(err.status == STATUS_BAD_INPUT && err.message[0] == '-');
    }
    recipe_close(&recipe);
    if (chunking_parse(template, &chunking, &err) == STATUS_OK) {
        FUZZ_CHECK(chunking.tokens > 0 && chunking.overlap < chunking.tokens);
    }
    free(template);
    free(line);
    return 0;
}
