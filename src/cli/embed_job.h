/* A bulk job as a command: `sluice embed` turns texts into vectors, `sluice batch` lines of requests into lines of
 * responses. Both run on this machine or through a queue, and show progress in the same ways. */
#ifndef CLI_EMBED_JOB_H
#define CLI_EMBED_JOB_H

#include "bulk/executor.h"
#include "bulk/job.h"
#include "bulk/remote.h"
#include "cli/invocation.h"

/* The commands' own options; `batch` has some of them. */
struct embed_options {
    char *input, *output;
    int format, dtype, progress;
    char *field, *template, *id_field, *keep, *glob, *chunk;
    bool header, strict, overwrite, dry_run;
    int64_t limit, shard_rows, max_text_bytes, look_ahead;
};

/* The options as a job, parsed and checked before a model is opened. */
struct embed_job {
    const struct embed_options *options;
    char *standard[1]; /* the operand of --input */
    struct recipe recipe;
    struct output output;
    struct job_options job; /* without model and executor */
    struct buffer terms, facts;
    struct dry dry;       /* the executor of a dry run, and its sums */
    struct buffer report; /* of a dry run */

    /* Only for `batch`: takes what is known of the model, and prints the result. */
    void (*know)(struct embed_job *job, const struct remote_facts *facts, const char *queue);
    void (*summarize)(const struct embed_job *job, const struct job_result *result);
};

/* Runs a job whose options were opened with `opened`, frees it and returns the exit code. */
int embed_job_run(struct invocation *invocation, struct embed_job *job, enum status opened, struct err *err);

#endif
