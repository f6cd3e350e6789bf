/* What one Redis can do under the daemon's own commands: a bare pipelined client that reads entries with XREADGROUP and
 * settles them with lua/settle.lua, with replies that were formatted beforehand. It computes nothing and recovers from
 * nothing, so its rate is the ceiling that the daemon's loop is compared with. */
#ifndef BENCH_CEILING_H
#define BENCH_CEILING_H

#include "bench/stage.h"

/* Reads and settles `wanted` requests that are in the stream already, as replies of `dim` floats in `encoding` ("f32",
 * "json"). `rate`: requests in a second. Errors: those of link_open and link_command; STATUS_UNSUPPORTED (several
 * Redis servers, or sentinels); STATUS_INTERNAL (an entry was not settled). */
MUST_CHECK enum status ceiling_run(const struct stage *stage, size_t wanted, uint32_t dim, const char *encoding,
                                   double *rate, struct err *err);

#endif
