/* What one Redis can do under the daemon's own commands: a bare pipelined client that reads entries with XREADGROUP and
 * settles them with lua/settle.lua, with replies that were formatted beforehand. It computes nothing and recovers from
 * nothing, so its rate is the ceiling that the daemon's loop is compared with. */
#ifndef BENCH_CEILING_H
#define BENCH_CEILING_H

#include "bench/filling.h"

/* What the bare client does. */
struct ceiling_run {
    const struct stage *stage;
    struct filling *filling; /* adds as many requests as are read; NULL: all are in the stream already */
    size_t wanted;           /* so many are settled */
    uint32_t dim;            /* floats of a reply ... */
    const char *encoding;    /* ... in "f32" or "json" */
};

/* Reads and settles. `settled`, `took_ns`: how many (up to a flight more than wanted), and how long it took.
 * Errors: those of link_open and link_command; STATUS_UNSUPPORTED (several Redis servers, or sentinels);
 * STATUS_INTERNAL (an entry was not settled). */
MUST_CHECK enum status ceiling_run(const struct ceiling_run *run, uint64_t *settled, uint64_t *took_ns,
                                   struct err *err);

#endif
