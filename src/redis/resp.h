/* RESP2, the protocol of Redis: hiredis as a codec, with limits.
 *
 * hiredis parses and knows no socket. We build the objects, because its own have no limit: the thirteen bytes
 * `*2147483647\r\n` make it reserve 16 GiB. The values of one reply live in one arena, so a reply of a thousand
 * entries costs few allocations. */
#ifndef REDIS_RESP_H
#define REDIS_RESP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"

/* The types of RESP2, and RESP_CUT: a string or an array that was dropped as it arrived, because it was larger than the
 * reader accepts, alone or with what came before it. */
enum resp_type { RESP_NIL, RESP_STATUS, RESP_ERROR, RESP_INTEGER, RESP_STRING, RESP_ARRAY, RESP_CUT };

/* One value of a reply. */
struct resp_value {
    enum resp_type type;
    long long integer;        /* INTEGER */
    const char *bytes;        /* STATUS, ERROR, STRING; a NUL follows (not counted); else NULL */
    size_t length;            /* of bytes; CUT: at least that of the dropped string, or of the array's items */
    struct resp_value *items; /* ARRAY: [count] */
    size_t count;
};

struct resp_reader;
struct entry_id;

/* Makes a reader whose buffered bytes and values together stay below `max_bytes`. A reply beyond that breaks the
 * reader; with a `cut_bytes` other than 0 it is dropped instead (RESP_CUT), as is every string longer than that.
 * Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status resp_open(size_t max_bytes, size_t cut_bytes, struct resp_reader **out, struct err *err);

/* Frees a reader and its last value. NULL is allowed. */
void resp_close(struct resp_reader *reader);

/* Takes bytes from the peer. Errors: STATUS_NO_MEMORY, or that of an earlier call: a broken reader stays broken. */
MUST_CHECK enum status resp_feed(struct resp_reader *reader, const char *bytes, size_t length, struct err *err);

/* Sets `out` to the next complete value, which lives until the next call, or to NULL if more bytes are needed.
 * Errors: STATUS_BAD_INPUT (not RESP), STATUS_UNSUPPORTED (too large), STATUS_NO_MEMORY; the reader is broken then. */
MUST_CHECK enum status resp_next(struct resp_reader *reader, const struct resp_value **out, struct err *err);

/* Copies a value and all its items into one allocation. Owns: the caller frees it with free(). NULL: no memory. */
struct resp_value *resp_clone(const struct resp_value *value);

/* A command that is being written: zero-initialise, append words, finish, send, free. Words carry their length and are
 * copied once, so no byte of a user is ever part of a format. */
struct command {
    struct buffer buffer;
    size_t words;
};

/* Appends one word. Errors: command_finish reports them. */
void command_bytes(struct command *command, const void *bytes, size_t length); /* of any kind */
void command_text(struct command *command, const char *text);                  /* a C string */
void command_number(struct command *command, uint64_t number);                 /* in decimal */
void command_pair(struct command *command, const char *field, const char *value);
void command_count(struct command *command, const char *field, uint64_t number);

/* Appends several words; `lengths` may be NULL for C strings. */
void command_list(struct command *command, size_t count, const char *const *words, const size_t *lengths);

/* Sets `bytes` to the finished command, valid until it is changed or freed.
 * Errors: STATUS_NO_MEMORY, if an append failed. */
MUST_CHECK enum status command_finish(struct command *command, const char **bytes, size_t *length, struct err *err);

/* Frees the bytes and leaves an empty command. */
void command_free(struct command *command);

/* True if a value is an error reply that begins with this word ("NOSCRIPT"). */
bool resp_is_error(const struct resp_value *value, const char *word);

/* True if a value is a string or status equal to `text`. */
bool resp_equals(const struct resp_value *value, const char *text);

/* Finds a value by its name in an array of alternating names and values (HGETALL, an entry's fields). NULL: not there,
 * or `list` is no array. */
const struct resp_value *resp_field(const struct resp_value *list, const char *name);

/* Reads the id of a stream's entry. NULL is allowed. False, with the id 0-0, if it is none. */
bool resp_entry_id(const struct resp_value *value, struct entry_id *id);

/* Copies the value of a line `name:value` of INFO. Shapes: value [size]. False: there is none. */
bool resp_info_field(const char *info, const char *name, char *value, size_t size);

/* Turns an error reply into a status and fills err with its text: STATUS_DENIED (NOAUTH, WRONGPASS, NOPERM; DENIED:
 * protected mode), STATUS_UNAVAILABLE (it may work later or elsewhere: LOADING, BUSY, READONLY, MISCONF, MASTERDOWN,
 * NOREPLICAS, CLUSTERDOWN, TRYAGAIN, ASK, MOVED, OOM, too many clients), else STATUS_INTERNAL. STATUS_OK: no error. */
enum status resp_check(const struct resp_value *value, struct err *err);

/* For explaining refusals: bytes of a command's head, and of a text. */
enum { RESP_HEAD_BYTES = 256, RESP_TEXT_BYTES = 400 };

/* Servers do not say which key a user may not access: appends the keys of the command to a NOPERM that names none.
 * Returns `explained`, whose words are in `text`, or `reply` itself. `head` is the first `length` bytes of the
 * command. */
const struct resp_value *resp_explain_keys(const struct resp_value *reply, const char *head, size_t length,
                                           char text[RESP_TEXT_BYTES], struct resp_value *explained);

/* The unix ms of an answer to TIME; 0 for another shape. */
uint64_t resp_time_ms(const struct resp_value *reply);

#endif
