/* The heartbeats of a queue's workers: each worker writes one into `workers` about once a second. */
#ifndef OPERATOR_HEARTBEATS_H
#define OPERATOR_HEARTBEATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "operator/session.h"

enum { HEARTBEAT_FRESH_MS = 10000 };

/* One worker's heartbeat; all strings are in the answer. */
struct heartbeat_line {
    const char *worker;
    const char *words;   /* `state running held 3 …`, as the worker wrote them */
    const char *command; /* an order that it has not taken yet; "" for none */
    uint64_t age_ms;     /* since the heartbeat */
    bool alive;          /* its lease runs */
};

/* The heartbeats of all workers of a queue. */
struct heartbeats {
    struct resp_value *answer; /* owns the strings of the lines */
    struct heartbeat_line *lines;
    size_t count;
};

/* Reads them. Owns: the caller ends it with heartbeats_free, also after an error. Errors: those of the commands. */
MUST_CHECK enum status heartbeats_read(struct session *session, struct heartbeats *out, struct err *err);

/* Frees answer and lines. */
void heartbeats_free(struct heartbeats *heartbeats);

/* True if a worker of this name is among them, and its lease runs. */
bool heartbeats_alive(const struct heartbeats *heartbeats, const char *worker);

/* Copies the value after a word of the line ("held") into `value`, "" if the word is missing; returns `value`. */
const char *heartbeat_value(const struct heartbeat_line *line, const char *word, char *value, size_t size);

/* The words of a heartbeat: those in every one (`state` and numbers), and those in some. Both end with NULL. */
extern const char *const heartbeat_words[], *const heartbeat_more_words[];

#endif
