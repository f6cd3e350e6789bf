/* Dead letters: which ones a command means, read from the stream in pages. */
#ifndef CLI_LETTERS_H
#define CLI_LETTERS_H

#include "cli/session.h"

/* What narrows the letters down; NULL and 0 leave it open. */
struct letter_filter {
    const char *code;       /* as in the reply: poison, internal, … */
    const char *id;         /* of the request: its id, or its name */
    uint64_t older_than_ms; /* buried at least so long ago … */
    uint64_t newer_than_ms; /* … or at most */
};

/* A dead letter, as long as `visit` runs. */
struct letter {
    const char *id;                  /* the dead letter's own; its time is when it was buried */
    const struct resp_value *fields; /* names and values in turn, see resp_field */
    uint64_t age_ms;
};

/* Shows each letter that the filter lets through, the oldest first, up to those buried when this began; `visit` may
 * remove letters. Errors: those of the commands and of `visit`, which ends the walk. */
MUST_CHECK enum status letters_walk(struct session *session, const struct letter_filter *filter, void *context,
                                    enum status (*visit)(void *context, const struct letter *letter, struct err *err),
                                    struct err *err);

/* Shows one letter by its id. Errors: STATUS_NOT_FOUND; else as letters_walk. */
MUST_CHECK enum status letters_find(struct session *session, const char *id, void *context,
                                    enum status (*visit)(void *context, const struct letter *letter, struct err *err),
                                    struct err *err);

#endif
