/* The workers of a queue, as they said of themselves in `workers` within the last second or so. */
#ifndef CLI_HEARTBEATS_H
#define CLI_HEARTBEATS_H

#include "cli/session.h"

enum { HEARTBEAT_FRESH_MS = 10000 };

/* What one worker said; all strings are in the answer. */
struct heartbeat_line {
    const char *worker;
    const char *words;   /* `state running held 3 …`, as the worker wrote them */
    const char *command; /* one that it has not taken yet; "" for none */
    uint64_t age_ms;     /* since it spoke */
    bool alive;          /* its lease runs */
};

/* All workers of a queue. */
struct heartbeats {
    struct resp_value *answer; /* what the lines point into */
    struct heartbeat_line *lines;
    size_t count;
};

/* Reads them. Owns: the caller ends it with heartbeats_free, also after an error. Errors: those of the commands. */
MUST_CHECK enum status heartbeats_read(struct session *session, struct heartbeats *out, struct err *err);

/* Frees answer and lines, and leaves none. */
void heartbeats_free(struct heartbeats *heartbeats);

/* Copies the value behind a word of the line ("held") into `value`, "" when it is not there; returns `value`. */
const char *heartbeat_value(const struct heartbeat_line *line, const char *word, char *value, size_t size);

#endif
