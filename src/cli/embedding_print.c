#include "cli/embedding_print.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "model/model.h"
#include "work/reply.h"

/* Shapes: floats [count] f32, little-endian bytes. */
static enum status print_floats(FILE *to, const char *floats, size_t count, size_t row, struct err *err)
{
    fputs(row > 0 ? "[[" : "[", to);
    for (size_t i = 0; i < count; i++) {
        float number;
        memcpy(&number, floats + i * sizeof number, sizeof number);
        if (!isfinite(number))
            return err_set(err, STATUS_BAD_INPUT, "the embedding has a value that is not finite");
        char text[REPLY_FLOAT_MAX];
        const char *between = i == 0 ? "" : row > 0 && i % row == 0 ? "],[" : ",";
        fprintf(to, "%s%.*s", between, (int)reply_put_float(text, number), text);
    }
    fputs(row > 0 ? "]]" : "]", to);
    return STATUS_OK;
}

static void decode_halves(const struct resp_value *value, struct buffer *floats)
{
    struct tensor halves = {.dtype = DTYPE_F16, .rank = 1, .data = value->bytes, .elements = value->length / 2};
    char *to = buffer_reserve(floats, halves.elements * sizeof(float));
    if (to == NULL)
        return;
    tensor_read_f32(&halves, 0, halves.elements, (float *)(void *)to);
    floats->length += halves.elements * sizeof(float);
}

/* False when a letter is not of the alphabet, or the padding is wrong. */
static bool decode_base64(const struct resp_value *value, struct buffer *floats)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t length = value->length;
    uint32_t bits = 0, count = 0;
    for (int padding = 0; padding < 2 && length > 0 && value->bytes[length - 1] == '='; padding++)
        length--;
    for (size_t i = 0; i < length; i++) {
        const char *at = value->bytes[i] == '\0' ? NULL : strchr(alphabet, value->bytes[i]);
        if (at == NULL)
            return false;
        bits = bits << 6 | (uint32_t)(at - alphabet);
        count += 6;
        if (count >= 8) {
            count -= 8;
            unsigned char byte = (unsigned char)(bits >> count);
            buffer_append(floats, &byte, 1);
        }
    }
    return value->length % 4 == 0;
}

static bool is_json_array(const struct resp_value *value)
{
    return value->bytes[0] == '[' && strspn(value->bytes, "[]0123456789+-.eE, ") == value->length;
}

/* Floats of one text in a reply to several; 0 in a reply to one. */
static size_t floats_per_text(const struct resp_value *reply)
{
    const struct resp_value *count = resp_field(reply, "count"), *dim = resp_field(reply, "dim");
    return count == NULL || dim == NULL || dim->bytes == NULL ? 0 : strtoul(dim->bytes, NULL, 10);
}

enum status embedding_print(FILE *to, const struct resp_value *reply, const struct resp_value *value, struct err *err)
{
    const struct resp_value *named = resp_field(reply, "encoding");
    const char *encoding = named == NULL || named->bytes == NULL ? "json" : named->bytes;
    struct buffer floats = {0};
    if (strcmp(encoding, "json") == 0 && is_json_array(value)) {
        fwrite(value->bytes, 1, value->length, to);
        return STATUS_OK;
    }
    bool understood = true;
    if (strcmp(encoding, "f32") == 0)
        buffer_append(&floats, value->bytes, value->length);
    else if (strcmp(encoding, "f16") == 0 && value->length % 2 == 0)
        decode_halves(value, &floats);
    else if (strcmp(encoding, "base64") == 0)
        understood = decode_base64(value, &floats);
    else
        understood = false;
    enum status status = STATUS_OK;
    if (!buffer_ok(&floats))
        status = err_set(err, STATUS_NO_MEMORY, "no memory for an embedding");
    else if (!understood || floats.length % sizeof(float) != 0)
        status = err_set(err, STATUS_BAD_INPUT, "the embedding is not what its encoding %.20s says", encoding);
    else
        status = print_floats(to, floats.data, floats.length / sizeof(float), floats_per_text(reply), err);
    buffer_free(&floats);
    return status;
}
