/* Embedding a file of texts without Redis: the same batches and engine as the daemon, in input order. */
#ifndef CLI_EMBED_H
#define CLI_EMBED_H

#include "cli/lines.h"
#include "cli/progress.h"
#include "cli/vectors.h"
#include "model/model.h"
#include "serve/compute.h"

struct embed_job {
    const struct model *model;
    struct compute *compute;
    uint32_t max_batch_tokens, max_batch_rows;
    struct lines *lines;
    struct vectors *vectors;
    struct progress *progress;
};

/* Reads all lines, computes their vectors and writes them. An empty line is a text, too.
 * Errors: those of lines, tokenizer, encoder and vectors; STATUS_NON_FINITE naming the line. */
MUST_CHECK enum status embed_run(const struct embed_job *job, struct err *err);

#endif
