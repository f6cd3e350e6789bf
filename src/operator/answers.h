/* The answers as JSON: the lines of `--json` and the answers of the admin API.
 * Thread: any. */
#ifndef OPERATOR_ANSWERS_H
#define OPERATOR_ANSWERS_H

#include <stddef.h>

#include "base/buffer.h"
#include "base/err.h"
#include "operator/counts.h"
#include "operator/letters.h"
#include "operator/story.h"

/* Writes the members of the object of `sluice stats --json`, without its braces and after a comma. */
void answer_put_counts(struct buffer *to, const struct session *session, const struct queue_counts *counts);

/* Writes the members of a pause: paused, paused_since_ms, paused_until_ms, paused_by, paused_why. */
void answer_put_pause(struct buffer *to, const struct pause *pause);

/* Writes the object of `sluice workers list --json`. */
void answer_put_workers(struct buffer *to, const struct session *session, const struct heartbeats *heartbeats);

/* Writes the object of `sluice dead list --json`. */
void answer_put_letter(struct buffer *to, const struct session *session, const struct letter *letter);

/* Writes where a request without a reply is. */
void answer_put_place(struct buffer *to, const char *id, const struct place *place);

/* Writes an object: {"id": ..., every field of the reply}. Vectors and scores are arrays of numbers, labels, the best
 * documents and `info` the JSON that they are, the rest are strings. Errors: STATUS_BAD_INPUT if the answer is not a
 * reply of Sluice. */
MUST_CHECK enum status answer_put_reply(struct buffer *to, const char *id, const struct resp_value *reply,
                                        struct err *err);

/* Writes a story as an object. */
void answer_put_story(struct buffer *to, const struct session *session, const char *id, const struct story *story);

#endif
