/* A bulk job: files of texts in, files of vectors out. The whole line, from one thread:
 *
 *     source ► doc batches ► (prep threads) ► window ► executor ► store ► tails ► checkpoint
 *
 * Nothing is lost and nothing is computed twice when it is interrupted, whenever that is: see bulk/journal.h. Memory
 * does not grow with the input, but for what bulk/dedup.h keeps, which is bounded. */
#ifndef BULK_JOB_H
#define BULK_JOB_H

#include "bulk/executor.h"
#include "bulk/input/source.h"
#include "bulk/output/files.h"
#include "bulk/output/store.h"

/* What it is at: reading again what an earlier run has done, new rows, or the end. */
enum job_phase { JOB_CHECKING, JOB_COMPUTING, JOB_FINISHING };

/* How far it is. */
struct job_progress {
    enum job_phase phase;
    uint64_t rows; /* that have their vector, or never will */
    uint64_t here; /* of them, since this process began */
    uint64_t failed, copied, computed, tokens;
    uint64_t documents;
    uint64_t too_large; /* batches that came back for want of memory */
    double share;       /* of the input that is done, 0 to 1; negative when nobody knows */
};

/* What is to be done, and how. All pointers must outlive the job. */
struct job_options {
    struct source_options source;
    struct preparer preparer;
    unsigned prep_threads;
    struct executor *executor;
    int wake_fd; /* an eventfd: the executor's, and the prep threads' */

    uint32_t dim;
    bool normalize;      /* what several chunks give together */
    uint32_t look_ahead; /* rows that are sorted together */
    uint32_t batch_tokens, batch_rows;

    const struct output *output;
    enum element element;
    uint64_t shard_rows;
    bool arrays;    /* JSON lines are bare arrays of numbers */
    bool plain;     /* no journal: from the beginning to the end, or nothing. Always so to standard output */
    bool overwrite; /* what an earlier job left is deleted first */
    bool ids;       /* ids are written to a file of their own */
    bool strict;    /* the first failed row ends the job */

    const char *terms; /* "key=value" lines: what another run of the same job must agree on */
    const char *facts; /* JSON members for the manifest: "model":{…},"dim":384 */
    void (*report)(void *context, const struct job_progress *progress); /* called some times a second; may be NULL */
    void *context;
    const volatile sig_atomic_t *stop; /* once it is not 0, the job stops as soon as it can be gone on with */
};

/* What became of it. */
struct job_result {
    struct job_progress progress;
    bool finished; /* otherwise it was stopped */
    bool before;   /* it had been finished before: nothing was done */
};

/* Runs the job, or goes on with it. The rows of a finished job that had failed are tried again, and what has come
 * behind its input is added. `*result` is filled in any case. Errors: STATUS_BAD_INPUT (the options, or an input that
 * is broken or has changed), STATUS_UNAVAILABLE (another process works on it), those of source_next, the executor and
 * the files; whatever was complete is kept. */
MUST_CHECK enum status job_run(const struct job_options *options, struct job_result *result, struct err *err);

#endif
