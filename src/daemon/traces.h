/* Traces (setting `traces`): a span for each run of a request whose traceparent says that it is sampled, and one for
 * each batch with such requests in it, as OTLP JSON, an ExportTraceServiceRequest a line. Collectors read such a file.
 *
 *   I/O thread ── lines ──► a buffer ──► a thread of its own ──► the file
 *
 * The buffer is bounded: lines that do not fit, because the disk is slow or full, are dropped and counted. The file is
 * opened for each write, so to rotate it, rename it.
 * Source: OTLP 1.x, JSON encoding; semantic conventions 1.37, messaging and gen_ai. */
#ifndef DAEMON_TRACES_H
#define DAEMON_TRACES_H

#include <stdint.h>

#include "base/err.h"
#include "schedule/batch.h"
#include "schedule/request.h"

struct traces;

/* The queue of a span; strings live until the call returns. */
struct traces_of {
    const char *queue, *worker, *model;
};

/* Opens the file and starts the thread. Owns: the caller ends it with traces_close. Errors: those of the file;
 * STATUS_NO_MEMORY. */
MUST_CHECK enum status traces_open(const char *path, struct traces **out, struct err *err);

/* Writes the remaining lines, and ends the thread. NULL is allowed. */
void traces_close(struct traces *traces);

/* Notes a run that has ended, after its script has answered (lifetime.outcome and verdict). Thread: the I/O thread,
 * also of traces_batch. */
void traces_request(struct traces *traces, const struct traces_of *of, const struct request *request);

/* Notes a batch that has come back, before its rows have ended. */
void traces_batch(struct traces *traces, const struct traces_of *of, const struct batch *batch);

/* The number of spans taken, and dropped. NULL: none. Thread: any. */
void traces_counters(const struct traces *traces, uint64_t *spans, uint64_t *dropped);

#endif
