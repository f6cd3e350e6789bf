/* A job while it runs, and how it takes up what an earlier run has left. Private to bulk/job.c and bulk/resume.c. */
#ifndef BULK_RESUME_H
#define BULK_RESUME_H

#include <xxhash.h>

#include "bulk/dedup.h"
#include "bulk/job.h"
#include "bulk/journal.h"
#include "bulk/lookahead.h"
#include "bulk/output/files.h"
#include "bulk/output/store.h"

/* Of a window: texts at most, and their vectors. */
enum { WINDOWS = 2, LOOK_AHEAD_BYTES = 16 << 20, LOOK_AHEAD_VECTORS_BYTES = 48 << 20, STEP = 256 };

/* The files that only grow, by their place in a checkpoint. */
enum append_number { APPEND_LINES, APPEND_FAILURES, APPEND_IDS, APPEND_DOCUMENTS, APPEND_FILES };
_Static_assert((int)APPEND_FILES <= (int)JOURNAL_FILES, "a checkpoint has room for all");

struct commit;
struct retry;

/* Pieces of a batch that was too large, or that a queue wants in halves: they wait to be computed in smaller ones. */
struct resubmit {
    struct lookahead *window;
    uint32_t first, count; /* in the window's order */
    uint32_t most_weight;  /* of a batch of them */
};

/* A job while it runs. */
struct job {
    const struct job_options *options;
    struct source *source;
    struct thread_pool *prep;
    struct prep_thread *prep_threads;
    struct preparer preparer; /* that of the options, with this job's seed */
    bool seeded;              /* the seed is that of the journal */
    struct dedup *dedup;
    struct store *store;     /* NULL: the windows keep their vectors */
    struct journal *journal; /* NULL: nothing is to be gone on with */
    struct append_file files[APPEND_FILES];
    float *vector; /* [dim] */

    /* Windows take turns; each number says how many have passed a stage: read >= planned >= submitted >= finished. */
    struct lookahead windows[WINDOWS];
    uint64_t read, planned, submitted, finished;
    struct doc_batch *idle;      /* list */
    struct doc_batch *open_docs; /* is being filled */
    struct bulk_batch *batches, **free_batches;
    uint32_t batch_count, free_count;
    uint32_t batch_tokens;      /* of a batch, at most: fewer once memory ran out */
    struct resubmit *resubmits; /* [resubmit_count] */
    uint32_t resubmit_count, resubmit_room;

    XXH3_state_t *digest; /* of the documents that were read */
    uint64_t next_row;    /* of the next window */
    struct checkpoint at; /* what is complete */
    struct thread_pool *commits; /* see job_commit.c; NULL without a journal */
    struct commit *commit;
    struct checkpoint checkpoint; /* to be written with the next commit */
    bool checkpoint_waits;
    struct buffer recent; /* struct done: rows behind the checkpoint that an earlier run computed */
    size_t recent_at;
    struct buffer terms; /* of the earlier run */
    struct retry *retry; /* NULL: it is not about rows that failed */

    bool tries_failed;     /* the failed rows of a job that is finished */
    bool grown;            /* more has come behind the input of a finished job … */
    struct document ahead; /* … and this is the first of it, until it is read */

    bool ended;         /* the input: there is no more to read */
    bool stopping;      /* no new batch is to begin */
    enum status ending; /* with which the job is to end once all that was read is complete */
    struct err ending_err;

    struct job_progress progress;
    uint64_t begun_ns; /* computing, in this process */
    uint64_t reported_ns;
};

/* All of these are called by the thread of job_run. An error ends the job; what was complete is kept. A stage does a
 * little, if there is anything for it to do, and sets `*worked` then. */

/* --- job_resume.c --- */

/* Takes up what an earlier run has left: journal, files, and the input up to where it was. */
MUST_CHECK enum status job_resume(struct job *job, struct err *err);

/* --- job_retry.c: a finished job whose failed rows are tried again. What comes while the job runs does nothing without
 * a retry, unless it says otherwise --- */

/* Closes the files; without job_retry_end the old ones stand as they were. */
void job_retry_close(struct job *job);

/* Whether all documents of the finished job were read. False without a retry. */
bool job_retry_at_end(const struct job *job);

/* With a retry: whether the document is to be computed, and which rows its chunks have; adds it to the digests. */
MUST_CHECK enum status job_retry_wants(struct job *job, struct document *document, bool *wanted, struct err *err);

/* Units of a wanted document, in their order: those whose rows did not fail are kept. Errors: STATUS_BAD_INPUT when
 * there are more chunks than rows. */
MUST_CHECK enum status job_retry_row(struct job *job, struct output_row *row, struct err *err);

/* Copies the old lines before that of a row, which is to be written next. */
MUST_CHECK enum status job_retry_line(struct job *job, int file, uint64_t row, struct err *err);

/* With a retry: ends the files, and writes the new manifest and list of failures. */
MUST_CHECK enum status job_retry_end(struct job *job, struct err *err);

/* --- the digest of the input --- */

/* Adds a document to a digest; one that failed counts as that, whatever its bytes are. */
void job_digest_add(XXH3_state_t *digest, const struct document *document);

/* The digest of all documents that were read so far. */
struct hash job_digest_now(const struct job *job);

/* --- job.c --- */

/* Whether a document may be several rows. */
static inline bool job_has_chunks(const struct job *job)
{
    const struct chunking *chunking = &job->options->preparer.chunking;
    return chunking->tokens > 0 && !chunking->mean;
}

/* Tells the caller how far it is; not more often than ten times a second unless it must. */
void job_report(struct job *job, bool must);

#endif
