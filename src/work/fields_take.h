/* What the functions that take one field over have in common. Private to work/fields*.c.
 *
 * fields.c       the table, what may stand beside what, collecting and applying
 * fields_life.c  whose a request is, when it may run, how it is told of
 * fields_work.c  what is to be computed, and how the vectors are to look */
#ifndef WORK_FIELDS_TAKE_H
#define WORK_FIELDS_TAKE_H

#include "work/fields.h"

/* One field on its way into its request. */
struct taking {
    const struct request_rules *rules;
    const struct fields *fields;
    struct request *request;
    const char *name;                /* of the field at hand */
    const struct entry_field *field; /* never NULL */
    char *copy;                      /* where the next copied bytes go */
};

/* Checks the field at hand and takes it over. Errors: the request has failed. */
typedef void (*take_field)(struct taking *taking);

/* --- fields.c --- */

/* Whether the value is this text. */
bool field_is(const struct taking *taking, const char *text);

/* Reads a number from `least` to `most`. False when it is none: the request has failed then. */
bool take_number(struct taking *taking, uint64_t least, uint64_t most, uint64_t *out);

/* Reads 0 or 1. False when it is neither: the request has failed then. */
bool take_switch(struct taking *taking, bool *out);

/* Copies 1 to `most` bytes of UTF-8 behind the request. False when they are not: the request has failed then. */
bool take_utf8(struct taking *taking, size_t most, const char **slice);

/* Copies 1 to `most` characters of those that are allowed, with a NUL. Shapes: to [most + 1]. False when they are not:
 * the caller says to the request what may stand there. */
bool take_word(struct taking *taking, const char *allowed, char *to, size_t most);

/* Copies the value as it is behind the request, and returns where. */
char *copy_value(struct taking *taking);

/* --- fields_life.c: each takes over the field of its name; the `own` ones are those that lua/promote writes, of `_`
 * and that name --- */
void take_own_id(struct taking *taking);
void take_own_attempt(struct taking *taking);
void take_own_first_at(struct taking *taking);
void take_own_lost(struct taking *taking);
void take_id(struct taking *taking);
void take_cancel(struct taking *taking);
void take_meta(struct taking *taking);
void take_tenant(struct taking *taking);
void take_traceparent(struct taking *taking);
void take_ttl(struct taking *taking);
void take_notify(struct taking *taking);
void take_track(struct taking *taking);
void take_max_attempts(struct taking *taking);
void take_delay(struct taking *taking);
void take_expires_in(struct taking *taking);

/* --- fields_work.c: likewise --- */
void take_text(struct taking *taking);
void take_inputs(struct taking *taking);
void take_encoding(struct taking *taking);
void take_truncate(struct taking *taking);
void take_normalize(struct taking *taking);
void take_dims(struct taking *taking);
void take_prompt(struct taking *taking);
void take_prefix(struct taking *taking);
void take_task(struct taking *taking);
void take_model(struct taking *taking);

#endif
