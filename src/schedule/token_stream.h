/* The tokens of a text that goes to a stream of tokens, between the thread that writes it and the I/O thread, which
 * sends them.
 *
 *   token_stream_begin ── written ids ──► the writer: token_stream_put … ──► token_stream_take ── to Redis
 *
 * It keeps all tokens of the text, because Redis may lose some that it had. */
#ifndef SCHEDULE_TOKEN_STREAM_H
#define SCHEDULE_TOKEN_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

struct token_stream;

/* Tokens that follow each other, with the text that they add. */
struct token_run {
    uint32_t index; /* of the first one */
    uint32_t count;
    size_t text_bytes;
};

/* Makes one without tokens. Owns: the caller is its first holder. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status token_stream_open(struct token_stream **out, struct err *err);

/* Adds a holder. Returns the stream. Thread: as token_stream_drop. */
struct token_stream *token_stream_hold(struct token_stream *stream);

/* Ends a holder; the last one frees the stream. NULL is allowed. Thread: one at a time. */
void token_stream_drop(struct token_stream *stream);

/* --- the thread that writes --- */

/* The ids with which the text begins, because an earlier run has sent them. Returns how many. Shapes: *ids [returned],
 * until token_stream_begin. */
uint32_t token_stream_written(const struct token_stream *stream, const int32_t **ids);

/* Brings the stream up to `count` tokens of the text, those written before included. Shapes: ids [count]; ends
 * [count]: the bytes of `text` that may be sent with each. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status token_stream_put(struct token_stream *stream, const int32_t *ids, const uint32_t *ends,
                                        uint32_t count, const char *text, struct err *err);

/* --- the I/O thread --- */

/* Begins a text with the ids that were sent before, in the machine's byte order. Nobody may be writing. Errors:
 * STATUS_NO_MEMORY. */
MUST_CHECK enum status token_stream_begin(struct token_stream *stream, const void *ids, size_t bytes, struct err *err);

/* Takes the tokens that were put in and not taken yet; `always` false: if they have text. Appends their ids, four bytes
 * each, and then their text. False: nothing was taken. Errors: `to` is broken. */
MUST_CHECK bool token_stream_take(struct token_stream *stream, bool always, struct token_run *run, struct buffer *to);

/* Redis has `count` tokens: the next run begins after them. */
void token_stream_resume(struct token_stream *stream, uint32_t count);

/* The number of tokens taken; of a text that is complete and has been taken, all of them. */
uint32_t token_stream_count(const struct token_stream *stream);

#endif
