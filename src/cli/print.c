#include "cli/print.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/buffer.h"
#include "base/utf8.h"
#include "schedule/reply.h"

/* The length of the printable UTF-8 sequence at the front, 0 if none. C1 controls (C2 80..9F) are not printable. */
static size_t printable(const char *bytes, size_t length)
{
    unsigned char first = (unsigned char)bytes[0];
    if (first < 0x80) { return first >= 0x20 && first != 0x7f && first != '\\'; }
    size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (size > length || !utf8_valid(bytes, size) || (first == 0xc2 && (unsigned char)bytes[1] < 0xa0)) { return 0; }
    return size;
}

/* Prints what stands in a JSON string, or (`whole`) JSON without white space, which is left as it is but for controls
 * in its strings. */
static void print_inside(FILE *to, const char *bytes, size_t length, bool whole)
{
    for (size_t at = 0; at < length;) {
        unsigned char c = (unsigned char)bytes[at];
        size_t size = printable(bytes + at, length - at);
        if (c == '"' || c == '\\') {
            fprintf(to, whole ? "%c" : "\\%c", c);
        } else if (size > 0) {
            fwrite(bytes + at, 1, size, to);
        } else if (c == 0xc2 && at + 1 < length && ((unsigned char)bytes[at + 1] & 0xe0) == 0x80) {
            fprintf(to, "\\u%04x", (unsigned char)bytes[at + 1]);
            size = 2;
        } else {
            fprintf(to, "\\u%04x", c < 0x80 ? c : 0xfffd);
        }
        at += size > 0 ? size : 1;
    }
}

void print_json_string(FILE *to, const char *bytes, size_t length)
{
    putc('"', to);
    print_inside(to, bytes, length, false);
    putc('"', to);
}

void print_json_text(const char *text)
{
    if (text[0] == '\0') {
        fputs("null", stdout);
    } else {
        print_json_string(stdout, text, strlen(text));
    }
}

void print_bytes(FILE *to, const char *bytes, size_t length)
{
    for (size_t at = 0; at < length;) {
        size_t size = printable(bytes + at, length - at);
        if (size > 0) {
            fwrite(bytes + at, 1, size, to);
        } else {
            fprintf(to, "\\x%02x", (unsigned char)bytes[at]);
            size = 1;
        }
        at += size;
    }
}

#define DAY_MS UINT64_C(86400000)

static const struct {
    const char *unit;
    uint64_t ms;
} units[] = {{"d", DAY_MS}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};

enum { UNITS = sizeof units / sizeof units[0] };

bool duration_parse(const char *text, uint64_t *ms)
{
    char *end;
    if (!isdigit((unsigned char)text[0]) || strspn(text, "0123456789") > 12) { return false; }
    uint64_t number = strtoull(text, &end, 10);
    for (int i = 0; i < UNITS; i++) {
        if (strcmp(end, units[i].unit) == 0 && number <= 3650 * DAY_MS / units[i].ms) {
            *ms = number * units[i].ms;
            return true;
        }
    }
    return false;
}

bool duration_is(const char *text)
{
    uint64_t ms;
    return duration_parse(text, &ms);
}

const char *duration_format(uint64_t ms, char text[DURATION_TEXT])
{
    int i = 0;
    while (i + 1 < UNITS && ms < 2 * units[i].ms) { i++; }
    snprintf(text, DURATION_TEXT, "%" PRIu64 "%s", ms / units[i].ms, units[i].unit);
    return text;
}

/* Shapes: floats [count] f32, little-endian bytes. */
static enum status print_floats(FILE *to, const char *floats, size_t count, size_t row, struct err *err)
{
    fputs(row > 0 ? "[[" : "[", to);
    for (size_t i = 0; i < count; i++) {
        float number;
        memcpy(&number, floats + i * sizeof number, sizeof number);
        if (!isfinite(number)) { return err_set(err, STATUS_BAD_INPUT, "it has a value that is not finite"); }
        char text[REPLY_FLOAT_MAX];
        const char *between = i == 0 ? "" : row > 0 && i % row == 0 ? "],[" : ",";
        fprintf(to, "%s%.*s", between, (int)reply_put_float(text, number), text);
    }
    fputs(row > 0 ? "]]" : "]", to);
    return STATUS_OK;
}

static bool is_json_array(const struct resp_value *value)
{
    return value->bytes[0] == '[' && strspn(value->bytes, "[]0123456789+-.eE, ") == value->length;
}

/* Numbers per text in a reply to several texts, which are fewer than `dim` where they are bits; 0 in a reply to one,
 * and for scores. */
static size_t numbers_per_text(const struct resp_value *reply, size_t numbers)
{
    const struct resp_value *count = resp_field(reply, "count");
    size_t texts = !count || !count->bytes || !resp_field(reply, "dim") ? 0 : strtoul(count->bytes, NULL, 10);
    return texts == 0 ? 0 : numbers / texts;
}

/* Prints embedding or scores of a reply, whatever their encoding, as a JSON array of numbers; an embedding of several
 * texts (with a `count`) as an array of arrays. Errors: STATUS_BAD_INPUT if it is not what the reply's `encoding` and
 * `dim` say; STATUS_NO_MEMORY. */
static enum status print_numbers(FILE *to, const struct resp_value *reply, const struct resp_value *value,
                                 struct err *err)
{
    const struct resp_value *named = resp_field(reply, "encoding");
    const char *encoding = !named || !named->bytes ? "json" : named->bytes;
    struct buffer floats = {0};
    if (strcmp(encoding, "json") == 0 && is_json_array(value)) {
        fwrite(value->bytes, 1, value->length, to);
        return STATUS_OK;
    }
    bool understood = reply_read(encoding, value->bytes, value->length, &floats);
    enum status status = STATUS_OK;
    if (!buffer_ok(&floats)) {
        status = err_set(err, STATUS_NO_MEMORY, "no memory for a reply");
    } else if (!understood) {
        status = err_set(err, STATUS_BAD_INPUT, "it is not what its encoding %.20s says", encoding);
    } else {
        size_t numbers = floats.length / sizeof(float);
        status = print_floats(to, floats.data, numbers, numbers_per_text(reply, numbers), err);
    }
    buffer_free(&floats);
    return status;
}

/* Prints what is JSON already. Errors: STATUS_BAD_INPUT. */
static enum status print_json(FILE *to, const struct resp_value *value, struct err *err)
{
    cJSON *root = cJSON_ParseWithLength(value->bytes, value->length);
    char *text = root ? cJSON_PrintUnformatted(root) : NULL;
    cJSON_Delete(root);
    if (!text) { return err_set(err, STATUS_BAD_INPUT, "it is not JSON"); }
    print_inside(to, text, strlen(text), true);
    cJSON_free(text);
    return STATUS_OK;
}

/* Whether it can be printed unquoted: digits with at most one point between them. */
static bool is_plain_number(const struct resp_value *value)
{
    static const char digits[] = "0123456789";
    const char *text = value->bytes;
    size_t whole = strspn(text, digits), fraction = text[whole] == '.' ? 1 + strspn(text + whole + 1, digits) : 0;
    bool leading_zero = whole > 1 && text[0] == '0';
    return whole > 0 && fraction != 1 && whole + fraction == value->length && !leading_zero;
}

static bool is_any(const struct resp_value *value, const char *const *names)
{
    while (*names && !resp_equals(value, *names)) { names++; }
    return *names;
}

/* What a field of a reply is; `numbers`: in the reply's encoding. */
static enum status print_field(FILE *to, const struct resp_value *reply, const struct resp_value *name,
                               const struct resp_value *value, bool numbers, struct err *err)
{
    static const char *const counts[] = {"dim",      "tokens", "queued_ms", "compute_ms", "done_at",        "truncated",
                                         "attempts", "count",  "retryable", "index",      "retry_after_ms", NULL};
    static const char *const json[] = {"labels", "top", NULL};
    if (numbers) { return print_numbers(to, reply, value, err); }
    if (is_any(name, json)) { return print_json(to, value, err); }
    if (is_any(name, counts) && is_plain_number(value)) {
        fwrite(value->bytes, 1, value->length, to);
    } else {
        print_json_string(to, value->bytes, value->length);
    }
    return STATUS_OK;
}

enum status print_reply(FILE *to, const char *id, const struct resp_value *reply, struct err *err)
{
    static const char *const encoded[] = {"embedding", "scores", NULL};
    fputs("{\"id\":", to);
    print_json_string(to, id, strlen(id));
    for (size_t i = 0; i + 1 < reply->count; i += 2) {
        const struct resp_value *name = &reply->items[i], *value = &reply->items[i + 1];
        bool numbers = is_any(name, encoded);
        if (!name->bytes || !value->bytes || (!numbers && !utf8_valid(value->bytes, value->length))) {
            return err_set(err, STATUS_BAD_INPUT, "%s: this is not a reply of Sluice", id);
        }
        if (resp_equals(name, "id")) { continue; }
        putc(',', to);
        print_json_string(to, name->bytes, name->length);
        putc(':', to);
        if (print_field(to, reply, name, value, numbers, err) != STATUS_OK) {
            return err_prefix(err, "%s: %s", id, name->bytes);
        }
    }
    fputs("}\n", to);
    return STATUS_OK;
}
