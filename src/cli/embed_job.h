/* The options of `sluice embed` as a bulk job. */
#ifndef CLI_EMBED_JOB_H
#define CLI_EMBED_JOB_H

#include "bulk/job.h"
#include "bulk/remote.h"
#include "cli/command.h"

/* The command's own options; the table is in cmd_embed.c. */
struct embed_options {
    char *input, *output;
    int format, dtype, progress;
    char *field, *template, *id_field, *keep, *glob, *chunk;
    bool header, strict, overwrite;
    int64_t shard_rows, max_text_bytes, look_ahead;
};

/* What the options say, checked and taken apart, before a model is opened. */
struct embed_job {
    const struct embed_options *options;
    char *standard[1]; /* the operand of --input */
    struct recipe recipe;
    struct output output;
    struct job_options job; /* without model and executor */
    struct buffer terms, facts;
};

/* Reads the options. Owns: the caller ends it with embed_job_close, also after an error; the invocation must outlive
 * it.
 * Errors: STATUS_BAD_INPUT naming the option; STATUS_NO_MEMORY. */
MUST_CHECK enum status embed_job_open(struct embed_job *job, struct invocation *invocation, struct err *err);

/* Frees what was taken apart. */
void embed_job_close(struct embed_job *job);

/* Adds what is known once model and engine are open; terms and facts are then whole. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status embed_job_model(struct embed_job *job, const struct model *model, const char *precision,
                                       struct err *err);

/* The same for a queue. The terms are those of a local job with its model, as far as a queue tells them. `model` cuts
 * chunks, and is NULL where none are wanted. Errors: STATUS_BAD_INPUT when it is not the queue's; STATUS_NO_MEMORY. */
MUST_CHECK enum status embed_job_queue(struct embed_job *job, const struct remote_facts *facts,
                                       const struct config *config, const struct model *model, struct err *err);

/* A number for the ids of its requests: of this machine, folder, output and terms. */
uint64_t embed_job_number(const struct embed_job *job);

#endif
