/* Requests for the stream of a benchmark's queue, thousands with one command: a script of Redis makes up their texts.
 */
#ifndef BENCH_FILLING_H
#define BENCH_FILLING_H

#include "bench/stage.h"
#include "io/resp.h"

/* What was put into the queue of a stage so far. */
struct filling {
    struct stage *stage;
    const char *encoding; /* that the requests ask for */
    uint64_t count;
};

/* Adds requests, and waits until they are there. Errors: those of client_command; STATUS_TIMEOUT (interrupted). */
MUST_CHECK enum status filling_add(struct filling *filling, uint64_t count, struct err *err);

/* Writes the command that adds requests, for whoever sends it. */
void filling_write(struct filling *filling, uint64_t count, struct command *command);

#endif
