/* A bulk job: files of texts in, files of vectors out. One thread drives the whole pipeline:
 *
 *     (read) ► doc batches ► (prep threads) ► window ► executor ► blocks ► (writer) ► store, append files ► checkpoint
 *
 * bulk/loop.c is the loop, bulk/read.c reads, bulk/finish.c gives rows out, bulk/resume.c resumes an earlier run.
 * An interruption at any moment loses nothing, and nothing durable is computed twice: see bulk/journal.h. Memory does
 * not grow with the input; the table of known texts (bulk/dedup.h) is bounded. */
#ifndef BULK_JOB_H
#define BULK_JOB_H

#include "bulk/executor.h"
#include "bulk/input/source.h"
#include "bulk/output/files.h"
#include "bulk/output/store.h"

/* Rereading the input of an earlier run; computing new rows; finishing the files. */
enum job_phase { JOB_CHECKING, JOB_COMPUTING, JOB_FINISHING };

/* The progress of a job. */
struct job_progress {
    enum job_phase phase;
    uint64_t rows; /* with a vector, or failed */
    uint64_t here; /* of these, in this process */
    uint64_t computed_here;
    uint64_t failed, copied, computed, tokens;
    uint64_t documents;
    uint64_t duplicate_ids; /* documents that have the id of an earlier one */
    uint64_t truncated;     /* texts that lost their end in this process; through a queue, a lower bound */
    uint64_t too_large;     /* batches that did not fit into memory */
    double share;           /* of the input that is done, 0 to 1; negative: unknown */
    double left_s;          /* until everything is computed; negative: unknown */
};

/* The options of a job. All pointers must outlive it. */
struct job_options {
    struct source_options source;
    struct preparer preparer;
    unsigned prep_threads;
    struct executor *executor;
    int wake_fd; /* an eventfd that the executor and the prep threads write */

    uint32_t dim;
    bool normalize;      /* normalise the mean of several chunks */
    uint32_t look_ahead; /* rows that are sorted together */
    uint32_t batch_tokens, batch_rows;

    const struct output *output;
    enum element element;
    uint64_t shard_rows;
    bool arrays;    /* JSON lines are bare arrays of numbers */
    bool plain;     /* no journal, cannot be resumed; always so for standard output */
    bool overwrite; /* first delete the files of an earlier job */
    bool ids;       /* write ids to their own file */
    bool strict;    /* the first failed row ends the job */

    struct buffer *dry; /* not NULL: nothing is written; gets a description of the files, and the first failures */

    const char *terms; /* "key=value" lines: the options on which all runs of the same job must agree */
    const char *facts; /* JSON members for the manifest: ,"model":{…},"dim":384 */
    void (*report)(void *context, const struct job_progress *progress); /* called a few times a second; may be NULL */
    void *context;
    const volatile sig_atomic_t *stop; /* once it is not 0, the job stops at a point where it can be resumed */
};

/* How a job ended. */
struct job_result {
    struct job_progress progress;
    bool finished;             /* false: it was stopped */
    bool kept;                 /* it is not finished, and rows that this process computed are there for the next run */
    bool before;               /* it was already finished: nothing was done */
    char first_duplicate[256]; /* of the ids: "7" in a.jsonl line 3 */
};

/* Runs or resumes the job. On a finished job it retries failed rows and adds documents that were appended to the input.
 * `*result` is filled in any case. Errors: STATUS_BAD_INPUT (the options, or an input that is broken or has changed),
 * STATUS_UNAVAILABLE (another process works on it), those of source_next, the executor and the files; complete rows are
 * kept. */
MUST_CHECK enum status job_run(const struct job_options *options, struct job_result *result, struct err *err);

/* Cuts the lines and the failures of a job that will not go on back to its last checkpoint, after which one may have
 * records that the other lacks; does nothing where no job has begun, or it is finished. Errors: STATUS_BAD_INPUT (a
 * file is shorter than that), those of the journal and the files. */
MUST_CHECK enum status job_cut(const struct output *output, struct err *err);

#endif
