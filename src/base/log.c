/* Lines are built in a buffer of fixed size: logging works when memory has run out. A line that is too long is cut
 * inside its last value and still ends properly. */
#include "base/log.h"

#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"

/* The process's one log: a sink is the single thing that is better global than passed. */
static struct {
    atomic_int least; /* enum log_level; changes while threads run */
    enum log_format format;
    int fd;
} sink = {LOG_INFO, LOG_TEXT, 2};

static const char *const level_names[] = {"debug", "info", "warn", "error"};

struct line {
    char data[4096];
    size_t length;
};

enum { LINE_TAIL = 8 }; /* room kept for the closing quote, brace and newline */

struct log_field log_str(const char *key, const char *value)
{
    return log_bytes(key, value ? value : "", value ? strlen(value) : 0);
}

struct log_field log_bytes(const char *key, const char *value, size_t length)
{
    return (struct log_field){.key = key, .kind = LOG_KIND_STR, .string = value, .length = length};
}

struct log_field log_int(const char *key, int64_t value)
{
    return (struct log_field){.key = key, .kind = LOG_KIND_INT, .integer = value};
}

struct log_field log_double(const char *key, double value)
{
    return (struct log_field){.key = key, .kind = LOG_KIND_DOUBLE, .real = value};
}

void log_set_level(enum log_level least)
{
    atomic_store_explicit(&sink.least, (int)least, memory_order_relaxed);
}

void log_setup(enum log_level least, enum log_format format, int fd)
{
    log_set_level(least);
    sink.format = format;
    sink.fd = fd;
}

static void put(struct line *line, const char *format, ...) PRINTF_LIKE(2, 3);

static void put(struct line *line, const char *format, ...)
{
    size_t room = sizeof line->data - LINE_TAIL - line->length;
    va_list args;
    va_start(args, format);
    int written = vsnprintf(line->data + line->length, room, format, args);
    va_end(args);
    if (written > 0) { line->length += (size_t)written < room ? (size_t)written : room - 1; }
}

/* Escapes what could end a value or a line early; bytes above 0x7f pass (UTF-8 was checked where text comes in). */
static void put_escaped(struct line *line, const char *bytes, size_t length)
{
    for (size_t i = 0; i < length && line->length + 8 < sizeof line->data - LINE_TAIL; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c == '"' || c == '\\') {
            put(line, "\\%c", c);
        } else if (c < 0x20 || c == 0x7f) {
            put(line, "\\u%04x", c);
        } else {
            line->data[line->length++] = (char)c;
        }
    }
}

static bool is_plain(const char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if (c <= ' ' || c == '"' || c == '\\' || c == '=' || c == 0x7f) { return false; }
    }
    return length > 0;
}

static void put_value(struct line *line, const struct log_field *field)
{
    if (field->kind == LOG_KIND_INT) {
        put(line, "%lld", (long long)field->integer);
    } else if (field->kind == LOG_KIND_DOUBLE) {
        put(line, sink.format == LOG_JSON && !isfinite(field->real) ? "null" : "%.6g", field->real);
    } else if (sink.format == LOG_TEXT && is_plain(field->string, field->length)) {
        put_escaped(line, field->string, field->length);
    } else {
        put(line, "\"");
        put_escaped(line, field->string, field->length);
        line->data[line->length++] = '"';
    }
}

static void put_fields(struct line *line, const struct log_field *fields, size_t count)
{
    for (size_t i = 0; i < count && fields[i].kind != LOG_KIND_NONE; i++) {
        if (line->length + 128 > sizeof line->data) { return; }
        put(line, sink.format == LOG_JSON ? ",\"%s\":" : " %s=", fields[i].key);
        put_value(line, &fields[i]);
    }
}

void log_write(enum log_level level, const struct log_line *log_line)
{
    if ((int)level < atomic_load_explicit(&sink.least, memory_order_relaxed)) { return; }
    uint64_t now_ms = clock_unix_ms();
    time_t seconds = (time_t)(now_ms / 1000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    char stamp[32];
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);

    struct line line = {.length = 0};
    bool json = sink.format == LOG_JSON;
    put(&line, json ? "{\"time\":\"%s.%03uZ\",\"level\":\"%s\",\"event\":\"%s\"" : "%s.%03uZ %s %s", stamp,
        (unsigned)(now_ms % 1000), level_names[level], log_line->event);
    put_fields(&line, log_line->fields, sizeof log_line->fields / sizeof log_line->fields[0]);
    if (json) { line.data[line.length++] = '}'; }
    line.data[line.length++] = '\n';
    ssize_t ignored = write(sink.fd, line.data, line.length);
    (void)ignored;
}
