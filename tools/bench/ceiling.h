/* What one Redis can do under the daemon's own commands: a bare pipelined client that reads entries with XREADGROUP and
 * settles them with lua/settle.lua, with replies that were formatted beforehand. It computes nothing and recovers from
 * nothing, so its rate is the ceiling that the daemon's loop is compared with. */
#ifndef TOOLS_CEILING_H
#define TOOLS_CEILING_H

#include "bench/stage.h"
#include "io/resp.h"

/* Requests for the stream of a benchmark's queue, thousands with one command: a script of Redis makes up their texts.
 * This is what was put into the queue of a stage so far. */
struct filling {
    struct stage *stage;
    const char *encoding; /* that the requests ask for */
    uint64_t count;
};

/* Adds requests, and waits until they are there. Errors: those of client_command; STATUS_TIMEOUT (interrupted). */
MUST_CHECK enum status filling_add(struct filling *filling, uint64_t count, struct err *err);

/* Writes the command that adds requests, for whoever sends it. */
void filling_write(struct filling *filling, uint64_t count, struct command *command);

/* What the bare client does. */
struct ceiling_run {
    const struct stage *stage;
    struct filling *filling; /* adds as many requests as are read; NULL: all are in the stream already */
    size_t wanted;           /* so many are settled */
    uint32_t dim;            /* floats of a reply ... */
    const char *encoding;    /* ... in "f32" or "json" */
};

/* Reads and settles. `settled`, `took_ns`: how many (up to a flight more than wanted), and how long it took.
 * Errors: those of connection_open and connection_command; STATUS_UNSUPPORTED (several Redis servers, or sentinels);
 * STATUS_INTERNAL (an entry was not settled). */
MUST_CHECK enum status ceiling_run(const struct ceiling_run *run, uint64_t *settled, uint64_t *took_ns,
                                   struct err *err);

#endif
