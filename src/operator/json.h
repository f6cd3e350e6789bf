/* JSON of the answers of operator/operator: the lines of `--json` and the answers of the admin API.
 * Thread: any. */
#ifndef OPERATOR_JSON_H
#define OPERATOR_JSON_H

#include <stddef.h>
#include <stdio.h>

#include "base/err.h"
#include "operator/operator.h"
#include "operator/story.h"

/* Writes the members of the object of `sluice stats --json`, without its braces. */
void json_put_counts(FILE *to, const struct session *session, const struct queue_counts *counts);

/* Writes the members of a pause: paused, paused_since_ms, paused_until_ms, paused_by, paused_why. */
void json_put_pause(FILE *to, const struct pause *pause);

/* Entries above the cap of a class. */
long long count_above_cap(const struct queue_counts *counts, int class);

/* Writes the object of `sluice workers list --json`. */
void json_put_workers(FILE *to, const struct session *session, const struct heartbeats *heartbeats);

/* The words of a heartbeat: those in every one (`state` and numbers), and those in some. Both end with NULL. */
extern const char *const heartbeat_words[], *const heartbeat_more_words[];

/* Writes the object of `sluice dead list --json`. */
void json_put_letter(FILE *to, const struct session *session, const struct letter *letter);

/* Writes where a request without a reply is. */
void json_put_place(FILE *to, const char *id, const struct place *place);

/* Writes an object: {"id": ..., every field of the reply}. Vectors and scores are arrays of numbers, labels and
 * the best documents the JSON that they are, counts are numbers, the rest are strings. Errors: STATUS_BAD_INPUT if the
 * answer is not a reply of Sluice. */
MUST_CHECK enum status json_put_reply(FILE *to, const char *id, const struct resp_value *reply, struct err *err);

#endif
