#include "cli/reply_print.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "model/model.h"
#include "work/reply.h"

static bool equals(const struct resp_value *value, const char *text)
{
    return value->bytes != NULL && value->length == strlen(text) && memcmp(value->bytes, text, value->length) == 0;
}

const struct resp_value *reply_field(const struct resp_value *reply, const char *name)
{
    for (size_t i = 0; reply->type == RESP_ARRAY && i + 1 < reply->count; i += 2)
        if (equals(&reply->items[i], name))
            return &reply->items[i + 1];
    return NULL;
}

bool reply_is_final(const struct resp_value *reply)
{
    const struct resp_value *status = reply_field(reply, "status");
    return status != NULL && (equals(status, "done") || equals(status, "error") || equals(status, "cancelled"));
}

static void print_string(FILE *to, const char *bytes, size_t length)
{
    putc('"', to);
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c == '"' || c == '\\')
            fprintf(to, "\\%c", c);
        else if (c < 0x20)
            fprintf(to, "\\u%04x", c);
        else
            putc(c, to);
    }
    putc('"', to);
}

static bool is_number(const struct resp_value *value)
{
    static const char *const counts[] = {"dim",      "tokens", "queued_ms", "compute_ms", "done_at",       "truncated",
                                         "attempts", "count",  "retryable", "index",      "retry_after_ms"};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (equals(value, counts[i]))
            return true;
    return false;
}

/* Whether it may stand unquoted: digits with at most one point between them. */
static bool is_plain_number(const struct resp_value *value)
{
    size_t points = 0;
    for (size_t i = 0; i < value->length; i++) {
        points += value->bytes[i] == '.';
        if (!isdigit((unsigned char)value->bytes[i]) && (value->bytes[i] != '.' || i == 0 || i + 1 == value->length))
            return false;
    }
    bool leading_zero = value->length > 1 && value->bytes[0] == '0' && value->bytes[1] != '.';
    return value->length > 0 && points <= 1 && !leading_zero;
}

/* Floats (f32 or f16) as an array; of several texts (`row` floats each) as an array of arrays. */
static enum status print_floats(FILE *to, const struct resp_value *value, enum dtype dtype, size_t row, struct err *err)
{
    size_t size = dtype == DTYPE_F16 ? 2 : sizeof(float);
    if (value->length % size != 0)
        return err_set(err, STATUS_BAD_INPUT, "the embedding has %zu bytes, which are no whole floats", value->length);
    struct tensor floats = {.dtype = dtype, .rank = 1, .data = value->bytes, .elements = value->length / size};
    fputs(row > 0 ? "[[" : "[", to);
    for (size_t i = 0; i < floats.elements; i++) {
        float number;
        tensor_read_f32(&floats, i, 1, &number);
        if (!isfinite(number))
            return err_set(err, STATUS_BAD_INPUT, "the embedding has a value that is not finite");
        char text[REPLY_FLOAT_MAX];
        const char *between = i == 0 ? "" : row > 0 && i % row == 0 ? "],[" : ",";
        fprintf(to, "%s%.*s", between, (int)reply_put_float(text, number), text);
    }
    fputs(row > 0 ? "]]" : "]", to);
    return STATUS_OK;
}

/* Floats of one text in a reply to several; 0 in a reply to one. */
static size_t floats_per_text(const struct resp_value *reply)
{
    const struct resp_value *count = reply_field(reply, "count"), *dim = reply_field(reply, "dim");
    return count == NULL || dim == NULL || dim->bytes == NULL ? 0 : strtoul(dim->bytes, NULL, 10);
}

static enum status print_embedding(FILE *to, const struct resp_value *reply, const struct resp_value *value,
                                   struct err *err)
{
    const struct resp_value *encoding = reply_field(reply, "encoding");
    if (encoding != NULL && equals(encoding, "f32"))
        return print_floats(to, value, DTYPE_F32, floats_per_text(reply), err);
    if (encoding != NULL && equals(encoding, "f16"))
        return print_floats(to, value, DTYPE_F16, floats_per_text(reply), err);
    if (encoding != NULL && equals(encoding, "base64") && utf8_valid(value->bytes, value->length)) {
        print_string(to, value->bytes, value->length);
        return STATUS_OK;
    }
    if (value->bytes == NULL || value->bytes[0] != '[' || strspn(value->bytes, "[]0123456789+-.eE, ") != value->length)
        return err_set(err, STATUS_BAD_INPUT, "the embedding is not an array of numbers");
    fwrite(value->bytes, 1, value->length, to);
    return STATUS_OK;
}

enum status reply_print(FILE *to, const char *id, const struct resp_value *reply, struct err *err)
{
    fputs("{\"id\":", to);
    print_string(to, id, strlen(id));
    for (size_t i = 0; i + 1 < reply->count; i += 2) {
        const struct resp_value *name = &reply->items[i], *value = &reply->items[i + 1];
        bool embedding = equals(name, "embedding");
        if (name->bytes == NULL || value->bytes == NULL || (!embedding && !utf8_valid(value->bytes, value->length)))
            return err_set(err, STATUS_BAD_INPUT, "%s: this is not a reply of Sluice", id);
        if (equals(name, "id"))
            continue;
        putc(',', to);
        print_string(to, name->bytes, name->length);
        putc(':', to);
        enum status status = embedding ? print_embedding(to, reply, value, err) : STATUS_OK;
        if (status != STATUS_OK)
            return err_prefix(err, "%s", id);
        if (!embedding && is_number(name) && is_plain_number(value))
            fwrite(value->bytes, 1, value->length, to);
        else if (!embedding)
            print_string(to, value->bytes, value->length);
    }
    fputs("}\n", to);
    return STATUS_OK;
}
