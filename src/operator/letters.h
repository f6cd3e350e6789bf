/* Dead letters: listed, removed, submitted again. */
#ifndef OPERATOR_LETTERS_H
#define OPERATOR_LETTERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "operator/session.h"

/* Selects letters; NULL and 0 mean any. */
struct letter_filter {
    const char *code;       /* as in the reply: poison, internal, … */
    const char *id;         /* of the request: its id, or its name */
    uint64_t older_than_ms; /* dead for at least … */
    uint64_t newer_than_ms; /* … or at most this long */
    const char *search;     /* bytes that a field's name or value contains */
};

/* A dead letter; valid while `visit` runs. */
struct letter {
    const char *id;                  /* the letter's id, whose time is when the request died */
    const struct resp_value *fields; /* names and values in turn, see resp_field */
    uint64_t age_ms;
};

/* Copies a member of the letter's `_info`; "" if it has none. Shapes: text [size]. */
void letter_info(const struct letter *letter, const char *name, char *text, size_t size);

/* The number of runs that its `_info` says; 0: none. */
uint64_t letter_attempts(const struct letter *letter);

enum { LETTER_PAGE = 100, LETTER_CURSOR = 64 };

typedef enum status letter_visit_fn(void *context, const struct letter *letter, struct err *err);

/* Looks at the next LETTER_PAGE letters after `cursor` (NULL: from the oldest or the newest on) and visits those that
 * the filter lets through. `visit` may remove letters. `next` is the cursor for the call after this one, "" at the end;
 * it may be the same array. A walk that begins with the oldest leaves out letters that arrive during it, so it ends
 * even if `visit` resubmits requests that die again. Errors: those of the commands and of `visit`, which ends the walk.
 */
MUST_CHECK enum status letters_page(struct session *session, const struct letter_filter *filter, bool newest_first,
                                    const char *cursor, char next[LETTER_CURSOR], void *context, letter_visit_fn *visit,
                                    struct err *err);

/* True if the text has the form of a cursor. */
bool letters_cursor_is(const char *text);

/* Visits all letters that the filter lets through, the oldest first. */
MUST_CHECK enum status letters_each(struct session *session, const struct letter_filter *filter, void *context,
                                    letter_visit_fn *visit, struct err *err);

/* Visits one letter by its id. Errors: STATUS_NOT_FOUND; else as letters_page. */
MUST_CHECK enum status letters_one(struct session *session, const char *id, void *context, letter_visit_fn *visit,
                                   struct err *err);

/* Removes a letter; `*removed`: it was there. Errors: those of the command. */
MUST_CHECK enum status letter_delete(struct session *session, const char *id, bool *removed, struct err *err);

/* The answers of lua/requeue about a letter. */
enum requeued {
    REQUEUED_GONE, /* it is not there any more */
    REQUEUED,
    REQUEUED_EMPTY, /* it holds no fields to submit again, and is kept */
    REQUEUED_CUT,   /* it holds only the beginning of its request, and is kept */
};

/* Submits a letter again. `digest` is that of lua/requeue, "" before the first call, which loads it. Shapes: entry
 * [ENTRY_ID_TEXT], the id of the new entry. Errors: those of the commands. */
MUST_CHECK enum status letter_requeue(struct session *session, const char *id, char digest[SCRIPT_DIGEST + 1],
                                      enum requeued *out, char *entry, struct err *err);

#endif
