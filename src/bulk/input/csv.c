/* Two passes: where the record ends, which may need more of the file; then its fields, in place. */
#include "bulk/input/csv.h"

#include <stdlib.h>
#include <string.h>

/* What stands behind a quoted field. */
static bool ends_field(const char *bytes, size_t length, size_t at, char separator)
{
    return at == length || bytes[at] == separator || bytes[at] == '\n' ||
           (bytes[at] == '\r' && (at + 1 == length || bytes[at + 1] == '\n'));
}

/* The closing quote from `at` on, or `length`. */
static size_t closing_quote(const char *bytes, size_t length, size_t at)
{
    for (;;) {
        const char *quote = at < length ? memchr(bytes + at, '"', length - at) : NULL;
        if (quote == NULL)
            return length;
        at = (size_t)(quote - bytes);
        if (at + 1 == length || bytes[at + 1] != '"')
            return at;
        at += 2;
    }
}

static uint64_t count_lines(const char *bytes, size_t length)
{
    uint64_t lines = 0;
    const char *at = bytes, *end = bytes + length;
    while (at < end && (at = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        lines++;
        at++;
    }
    return lines;
}

/* A broken record is its first line. */
static bool broken(const char *bytes, size_t length, bool ended, size_t at, struct csv_record *out)
{
    const char *feed = memchr(bytes, '\n', length);
    if (feed == NULL && !ended)
        return false;
    *out = (struct csv_record){.broken = true, .column = at + 1, .lines = feed != NULL};
    out->content = out->length = feed == NULL ? length : (size_t)(feed - bytes) + 1;
    return true;
}

/* From its opening quote on the file is one field: nobody can tell where the next record begins. */
static bool never_closed(const char *bytes, size_t length, size_t at, struct csv_record *out)
{
    const char *feed = memrchr(bytes, '\n', at);
    *out = (struct csv_record){.open = true, .length = length, .content = length, .lines = count_lines(bytes, length)};
    out->quote =
        (struct csv_place){count_lines(bytes, at), (uint64_t)(at - (feed ? (size_t)(feed + 1 - bytes) : 0)) + 1};
    return true;
}

static void end_at(const char *bytes, size_t length, size_t at, struct csv_record *out)
{
    bool feed = at < length;
    *out = (struct csv_record){.length = at + feed, .content = at};
    if (at > 0 && bytes[at - 1] == '\r')
        out->content--;
    out->lines = count_lines(bytes, out->length);
}

bool csv_find(const char *bytes, size_t length, bool ended, char separator, struct csv_record *out)
{
    for (size_t at = 0;; at++) { /* once for each field */
        if (at < length && bytes[at] == '"') {
            size_t close = closing_quote(bytes, length, at + 1);
            if (!ended && close + 2 >= length) /* what follows decides: another quote, or the end of the line */
                return false;
            if (close == length)
                return never_closed(bytes, length, at, out);
            if (!ends_field(bytes, length, close + 1, separator))
                return broken(bytes, length, ended, close + 1, out);
            at = close + 1;
        }
        while (at < length && bytes[at] != separator && bytes[at] != '\n')
            at++;
        if (at == length && !ended)
            return false;
        if (at == length || bytes[at] == '\n') {
            end_at(bytes, length, at, out);
            return true;
        }
    }
}

/* What a byte makes of a record. */
static void step(struct csv_skip *skip, char c, char separator)
{
    bool between = skip->state != CSV_QUOTED && skip->state != CSV_RETURN;
    if (skip->state == CSV_BEGIN && c == '"') {
        skip->state = CSV_QUOTED;
        skip->quote = (struct csv_place){skip->here.line, skip->here.column + 1};
    } else if (between && c == separator) {
        skip->state = CSV_BEGIN;
    } else if (skip->state != CSV_QUOTED && c == '\n') {
        skip->state = CSV_DONE;
    } else if (skip->state == CSV_QUOTED) {
        skip->state = c == '"' ? CSV_CLOSED : CSV_QUOTED;
    } else if (skip->state == CSV_CLOSED) {
        skip->state = c == '"' ? CSV_QUOTED : c == '\r' ? CSV_RETURN : CSV_BROKEN;
    } else {
        skip->state = skip->state == CSV_RETURN ? CSV_BROKEN : CSV_PLAIN;
    }
}

size_t csv_skip(struct csv_skip *skip, const char *bytes, size_t length, char separator)
{
    size_t at = 0;
    while (at < length && skip->state != CSV_DONE && skip->state != CSV_BROKEN) {
        char c = bytes[at++];
        step(skip, c, separator);
        skip->here.column++;
        if (c == '\n') {
            skip->here = (struct csv_place){.line = skip->here.line + 1};
        }
    }
    return at;
}

static enum status add(struct csv_fields *out, struct value value, struct err *err)
{
    if (out->count == out->room) {
        uint32_t room = out->room == 0 ? 16 : out->room * 2;
        struct value *values = realloc(out->values, room * sizeof *values);
        if (values == NULL)
            return err_set(err, STATUS_NO_MEMORY, "no memory for %u fields", room);
        out->values = values;
        out->room = room;
    }
    out->values[out->count++] = value;
    return STATUS_OK;
}

/* Takes the quotes off a field that begins at `from`, behind the first one; `*at` moves to what ends it. */
static struct value unquote(char *content, size_t length, size_t *at)
{
    char *to = content + *at + 1, *begin = to;
    size_t from = *at + 1;
    for (; from < length; from++) {
        if (content[from] == '"' && (from + 1 == length || content[from + 1] != '"'))
            break;
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
            size_t to = end == NULL ? length : (size_t)(end - content);
            value = (struct value){VALUE_TEXT, content + at, to - at};
            at = to;
        }
        TRY(add(out, value, err));
        if (at >= length)
            return STATUS_OK;
    }
}
