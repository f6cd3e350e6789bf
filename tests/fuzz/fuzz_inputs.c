/* Any bytes as the JSON of `inputs`: accepted texts are whole, valid and within the limits, fit the memory that was
 * measured for them to the byte, and read the same when they are written anew. The first byte chooses the limits. */
#include <string.h>

#include "base/buffer.h"
#include "base/utf8.h"
#include "fuzz.h"
#include "schedule/inputs.h"

struct texts {
    struct inputs inputs;
    char *copy;
    struct row *rows;
};

/* Into memory of just the measured size. */
static struct texts decode(const char *json, size_t length, struct inputs inputs)
{
    struct texts texts = {inputs, malloc(inputs.bytes), calloc(inputs.count, sizeof(struct row))};
    FUZZ_CHECK(texts.copy != NULL && texts.rows != NULL);
    inputs_decode(json, length, texts.copy, texts.rows);
    return texts;
}

static void free_texts(struct texts *texts)
{
    free(texts->copy);
    free(texts->rows);
}

static void check_texts(const struct texts *texts)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < texts->inputs.count; i++) {
        const struct row *row = &texts->rows[i];
        FUZZ_CHECK(row->text == texts->copy + bytes && row->text_bytes > 0);
        FUZZ_CHECK(utf8_valid(row->text, row->text_bytes));
        bytes += row->text_bytes;
    }
    FUZZ_CHECK(bytes == texts->inputs.bytes);
}

/* Writes the texts with as few escapes as possible. */
static void write_again(const struct texts *texts, struct buffer *json)
{
    for (uint32_t i = 0; i < texts->inputs.count; i++) {
        buffer_string(json, i == 0 ? "[\"" : "\",\"");
        for (uint32_t b = 0; b < texts->rows[i].text_bytes; b++) {
            unsigned char byte = (unsigned char)texts->rows[i].text[b];
            if (byte < ' ' || byte == '"' || byte == '\\') {
                buffer_format(json, "\\u%04x", byte);
            } else {
                buffer_append(json, &byte, 1);
            }
        }
    }
    buffer_string(json, "\"]");
    FUZZ_CHECK(buffer_ok(json));
}

static void check_same(const struct texts *a, const struct texts *b)
{
    FUZZ_CHECK(a->inputs.count == b->inputs.count && a->inputs.bytes == b->inputs.bytes);
    FUZZ_CHECK(memcmp(a->copy, b->copy, a->inputs.bytes) == 0);
    for (uint32_t i = 0; i < a->inputs.count; i++) { FUZZ_CHECK(a->rows[i].text_bytes == b->rows[i].text_bytes); }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 1u << 16) { return 0; }
    uint32_t most_texts = data[0] % 8 + 1;
    size_t most_bytes = data[0] / 8 * 4 + 1;
    const char *json = (const char *)data + 1;
    struct inputs inputs = inputs_measure(json, size - 1, most_texts, most_bytes);
    FUZZ_CHECK(inputs.count <= most_texts && inputs.at <= size - 1);
    if (inputs.problem != INPUTS_OK) { return 0; }
    FUZZ_CHECK(inputs.count >= 1 && inputs.bytes >= inputs.count && inputs.bytes <= most_bytes);
    struct texts texts = decode(json, size - 1, inputs);
    check_texts(&texts);
    struct buffer again = {0};
    write_again(&texts, &again);
    struct inputs measured = inputs_measure(again.data, again.length, most_texts, most_bytes);
    FUZZ_CHECK(measured.problem == INPUTS_OK);
    struct texts same = decode(again.data, again.length, measured);
    check_same(&texts, &same);
    free_texts(&same);
    free_texts(&texts);
    buffer_free(&again);
    return 0;
}
