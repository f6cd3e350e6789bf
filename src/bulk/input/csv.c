/* A state machine finds the end of a record in bytes that come in pieces; the fields are then split in place. */
#include "bulk/input/csv.h"

#include <stdlib.h>
#include <string.h>

size_t csv_scan(struct csv_scan *scan, const char *bytes, size_t length, char separator)
{
    size_t at = 0;
    while (at < length && scan->state != CSV_DONE && scan->state != CSV_BROKEN) {
        char c = bytes[at++];
        if (scan->state == CSV_QUOTED) {
            scan->state = c == '"' ? CSV_CLOSED : CSV_QUOTED;
        } else if (c == '\n') {
            scan->state = CSV_DONE;
        } else if (scan->state == CSV_RETURN) {
            scan->state = CSV_BROKEN;
        } else if (c == separator) {
            scan->state = CSV_BEGIN;
        } else if (scan->state == CSV_CLOSED) {
            scan->state = c == '"' ? CSV_QUOTED : c == '\r' ? CSV_RETURN : CSV_BROKEN;
        } else if (scan->state == CSV_BEGIN && c == '"') {
            scan->state = CSV_QUOTED;
            scan->quote = (struct csv_position){scan->here.line, scan->here.column + 1};
        } else {
            scan->state = CSV_PLAIN;
        }
        scan->here.column++;
        if (c == '\n') { scan->here = (struct csv_position){.line = scan->here.line + 1}; }
    }
    return at;
}

size_t csv_content(const char *bytes, size_t length)
{
    length -= length > 0 && bytes[length - 1] == '\n';
    return length - (length > 0 && bytes[length - 1] == '\r');
}

static enum status add_field(struct csv_fields *out, struct value value, struct err *err)
{
    if (out->count == out->room) {
        uint32_t room = out->room == 0 ? 16 : out->room * 2;
        struct value *values = realloc(out->values, room * sizeof *values);
        if (!values) { return err_set(err, STATUS_NO_MEMORY, "no memory for %u fields", room); }
        out->values = values;
        out->room = room;
    }
    out->values[out->count++] = value;
    return STATUS_OK;
}

/* Removes the quotes of the field at `*at`, and moves `*at` to the field's end. */
static struct value unquote(char *content, size_t length, size_t *at)
{
    char *to = content + *at + 1, *begin = to;
    size_t from = *at + 1;
    for (; from < length; from++) {
        if (content[from] == '"' && (from + 1 == length || content[from + 1] != '"')) { break; }
        from += content[from] == '"';
        *to++ = content[from];
    }
    *at = from + 1;
    return (struct value){VALUE_TEXT, begin, (size_t)(to - begin)};
}

enum status csv_split(char *content, size_t length, char separator, struct csv_fields *out, struct err *err)
{
    out->count = 0;
    for (size_t at = 0;; at++) {
        struct value value;
        if (at < length && content[at] == '"') {
            value = unquote(content, length, &at);
        } else {
            const char *end = at < length ? memchr(content + at, separator, length - at) : NULL;
            size_t to = end ? (size_t)(end - content) : length;
            value = (struct value){VALUE_TEXT, content + at, to - at};
            at = to;
        }
        TRY(add_field(out, value, err));
        if (at >= length) { return STATUS_OK; }
    }
}
