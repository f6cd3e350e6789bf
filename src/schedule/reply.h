/* Writes the outputs of computed rows as the bytes of a reply (vectors are shortened, normalised and encoded as the
 * request asks, logits become scores), and reads vectors back. */
#ifndef SCHEDULE_REPLY_H
#define SCHEDULE_REPLY_H

#include <stdbool.h>
#include <stddef.h>

#include "schedule/request.h"

enum { REPLY_FLOAT_MAX = 17 };    /* the longest text of one float: -1.23456789e-38, with room to spare */
#define REPLY_HALF_LIMIT 65520.0f /* f16 holds only floats below this */

/* Appends the labels of one text, best first: [{"label":"joy","score":0.75},...]. Shapes: scores [head->labels]. */
void reply_put_labels(struct buffer *to, const struct model_head *head, const float *scores);

/* Appends a document's score, as {"index":0,"score":0.5}. */
void reply_put_score(struct buffer *to, uint64_t index, float score);

/* The name of the field that reply_format writes into the reply: "embedding", "scores", "top" or "labels". */
const char *reply_field(const struct request *request);

/* Writes vectors, scores or labels of a computed request into request->reply: the work of a prep thread for
 * ACTION_FORMAT, once. NaN and infinity are never sent: their request fails with CODE_NON_FINITE, with CODE_BAD_REQUEST
 * if f16 cannot hold a float, or CODE_OUT_OF_MEMORY. Shapes: the rows' outputs are one array, [row_count, dim] f32, and
 * are overwritten. Owns: nothing. Thread: any, one per request. */
void reply_format(struct request *request);

/* The most bytes that request->reply has once it is written. */
size_t reply_most(const struct request *request);

/* The most memory that request->reply takes once it is written. */
size_t reply_bound(const struct request *request);

/* The words for an encoding: "default" for none, then the name of each, then NULL. */
extern const char *const encoding_words[ENCODING_COUNT + 2];

/* The name of an encoding in fields and replies. */
const char *encoding_name(enum encoding encoding);

/* Appends the floats of an embedding, as f32 of this machine, to `floats`. False if the bytes do not fit the encoding
 * (by its name); always for json, which its readers print as it is. */
MUST_CHECK bool reply_read(const char *encoding, const char *bytes, size_t length, struct buffer *floats);

/* Writes a finite float as JSON text with as few digits as read back to the same f32, straight or through a double (one
 * more for some powers of two and large integers; at most nine); no NUL follows. Returns the number of bytes, at most
 * REPLY_FLOAT_MAX. */
size_t reply_put_float(char *to, float value);

/* The bits of the nearest f16, ties to even. `value` is below REPLY_HALF_LIMIT. */
uint16_t reply_half(float value);

#endif
