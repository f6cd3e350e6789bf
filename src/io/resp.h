/* RESP, the bytes between us and Redis: hiredis as a codec, with caps.
 *
 * hiredis parses and formats and knows no socket; we bring the objects it builds, because its own have no cap: the
 * thirteen bytes `*2147483647\r\n` make it reserve 16 GiB. Values of one reply live in one arena, so a reply of a
 * thousand entries is not ten thousand allocations. RESP2 only (hiredis 0.14). */
#ifndef IO_RESP_H
#define IO_RESP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"

/* The types of RESP2; and RESP_CUT: a string or an array that was dropped while it came, because it was larger than a
 * reader takes, alone or with what had come before it. */
enum resp_type { RESP_NIL, RESP_STATUS, RESP_ERROR, RESP_INTEGER, RESP_STRING, RESP_ARRAY, RESP_CUT };

/* One value of a reply; it belongs to whoever built it. */
struct resp_value {
    enum resp_type type;
    long long integer;        /* INTEGER */
    const char *bytes;        /* STATUS, ERROR, STRING; a NUL follows (not counted); else NULL */
    size_t length;            /* of bytes; CUT: that the string had, at least, or the array's items would have had */
    struct resp_value *items; /* ARRAY: [count] */
    size_t count;
};

struct resp_reader;

/* Makes a reader whose buffered bytes and built values together stay below `max_bytes`. What would pass it breaks the
 * reader; with a `cut_bytes` that is not 0 it is dropped instead (RESP_CUT), as is every string longer than that.
 * Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status resp_open(size_t max_bytes, size_t cut_bytes, struct resp_reader **out, struct err *err);

/* Frees a reader and the value it has given last. NULL is allowed. */
void resp_close(struct resp_reader *reader);

/* Takes bytes from the peer. Errors: STATUS_NO_MEMORY, or what an earlier call said: a broken reader stays broken. */
MUST_CHECK enum status resp_feed(struct resp_reader *reader, const char *bytes, size_t length, struct err *err);

/* Sets `out` to the next whole value, or to NULL when more bytes are needed. It lives until the next call.
 * Errors: STATUS_BAD_INPUT (not RESP), STATUS_UNSUPPORTED (larger than the cap), STATUS_NO_MEMORY: the connection is of
 * no more use. */
MUST_CHECK enum status resp_next(struct resp_reader *reader, const struct resp_value **out, struct err *err);

/* Copies a value with all it refers to into one allocation. Owns: the caller frees it with free(). NULL: no memory. */
struct resp_value *resp_clone(const struct resp_value *value);

/* A command in the making: zero-initialise, append its words, finish, send, free. Words are counted by length and
 * copied once, straight to where they are sent from: no byte of a user is ever part of a format. */
struct command {
    struct buffer buffer;
    size_t words;
};

/* Appends one word: bytes, a C string, or a decimal number. Errors: command_finish tells. */
void command_bytes(struct command *command, const void *bytes, size_t length);
void command_text(struct command *command, const char *text);
void command_number(struct command *command, uint64_t number);

/* Appends several words; `lengths` may be NULL for C strings. */
void command_list(struct command *command, size_t count, const char *const *words, const size_t *lengths);

/* Sets `bytes` to the whole command, which lives as long as the command is not changed or freed.
 * Errors: STATUS_NO_MEMORY, when any append has failed. */
MUST_CHECK enum status command_finish(struct command *command, const char **bytes, size_t *length, struct err *err);

/* Frees the bytes and leaves an empty command. */
void command_free(struct command *command);

/* Whether a value is an error reply that begins with this word ("NOSCRIPT"). */
bool resp_is_error(const struct resp_value *value, const char *word);

/* Whether a value is a string or status equal to `text`. */
bool resp_equals(const struct resp_value *value, const char *text);

/* The value behind that name in an array of names and values in turn (an answer to HGETALL, an entry's fields). NULL
 * when there is none, or `list` is no array. */
const struct resp_value *resp_field(const struct resp_value *list, const char *name);

/* The status that an error reply stands for: STATUS_DENIED (NOAUTH, WRONGPASS, NOPERM, DENIED: protected mode),
 * STATUS_UNAVAILABLE (LOADING, BUSY, READONLY, MISCONF, MASTERDOWN, NOREPLICAS, CLUSTERDOWN, TRYAGAIN, ASK, MOVED, OOM,
 * too many clients: later, or elsewhere, it may work), else STATUS_INTERNAL; fills err with its text. Errors: STATUS_OK
 * for every other value. */
enum status resp_check(const struct resp_value *value, struct err *err);

#endif
