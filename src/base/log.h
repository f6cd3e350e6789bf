/* The log: one line per event, an event name and key=value fields, as text or as JSON, to standard error.
 *
 *     log_info("redis_connected", log_str("address", address), log_int("attempt", n));
 *
 * Text:  2026-11-21T13:20:01.123Z info redis_connected address=/run/redis.sock attempt=1
 * Values are escaped, so that no text from outside can forge a line. Secrets are never passed here. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_TEXT, LOG_JSON };

enum log_kind { LOG_KIND_NONE, LOG_KIND_STR, LOG_KIND_INT, LOG_KIND_DOUBLE };

/* One key=value of a line. */
struct log_field {
    const char *key;
    enum log_kind kind;
    size_t length; /* of string */
    const char *string;
    int64_t integer;
    double real;
};

/* One event; fields without a key are not written. */
struct log_line {
    const char *event; /* lower_snake_case */
    struct log_field fields[40];
};

/* A field of a line. Owns: key and value stay the caller's, and must live until the line is written. Thread: any. */
struct log_field log_str(const char *key, const char *value);                  /* a C string; NULL: "" */
struct log_field log_bytes(const char *key, const char *value, size_t length); /* bytes of any kind */
struct log_field log_int(const char *key, int64_t value);                      /* a whole number */
struct log_field log_double(const char *key, double value);

#define log_debug(...) log_write(LOG_DEBUG, &(struct log_line){__VA_ARGS__})
#define log_info(...) log_write(LOG_INFO, &(struct log_line){__VA_ARGS__})
#define log_warn(...) log_write(LOG_WARN, &(struct log_line){__VA_ARGS__})
#define log_error(...) log_write(LOG_ERROR, &(struct log_line){__VA_ARGS__})

/* Sets the least level that is written, the format and the descriptor (2 by default).
 * Thread: before other threads start. */
void log_setup(enum log_level least, enum log_format format, int fd);

/* Changes the least level alone. Thread: any. */
void log_set_level(enum log_level least);

/* Gives one event to the thread that writes, and waits for no reader and no disk. If a MiB of lines waits already, or
 * if a write fails, lines are dropped and counted, and the event log_lines_dropped says how many as soon as one is
 * written again. Lines are written whole, so those of several threads and processes never mix. Thread: any. */
void log_write(enum log_level level, const struct log_line *line);

/* Waits until all lines are written or dropped, a second at most; false: some still wait. The end of the process (exit,
 * a crash) waits like this, too; _exit does not. Thread: any. */
bool log_flush(void);

/* The number of lines that were dropped. Thread: any. */
uint64_t log_dropped(void);

#endif
