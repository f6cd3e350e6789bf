/* What the files of the job share. Private to bulk/job*.c. */
#ifndef BULK_JOB_STATE_H
#define BULK_JOB_STATE_H

#include <xxhash.h>

#include "bulk/dedup.h"
#include "bulk/job.h"
#include "bulk/journal.h"
#include "bulk/look.h"
#include "bulk/tail.h"

/* Of a window: texts at most, and their vectors. */
enum { WINDOWS = 2, LOOK_AHEAD_BYTES = 16 << 20, LOOK_AHEAD_VECTORS_BYTES = 48 << 20, STEP = 256 };

/* The files that only grow, by their place in a checkpoint. */
enum tail_number { TAIL_LINES, TAIL_FAILURES, TAIL_IDS, TAIL_DOCUMENTS, TAILS };
_Static_assert((int)TAILS <= (int)JOURNAL_TAILS, "a checkpoint has room for all");

struct commit;
struct retry;

/* Pieces of a batch that was too large for the memory there is: they wait to be computed in smaller ones. */
struct again {
    struct look *window;
    uint32_t first, count; /* in the window's order */
};

struct job {
    const struct job_options *options;
    struct source *source;
    struct crew *prep;
    struct prep_thread *prep_threads;
    struct dedup *dedup;
    struct store *store;     /* NULL: the windows keep their vectors */
    struct journal *journal; /* NULL: nothing is to be gone on with */
    struct tail tails[TAILS];
    float *vector; /* [dim] */

    /* Windows take turns; each number says how many have passed a stage: read >= planned >= submitted >= finished. */
    struct look windows[WINDOWS];
    uint64_t read, planned, submitted, finished;
    struct slice *idle;       /* list */
    struct slice *open_slice; /* is being filled */
    struct bulk_batch *batches, **free_batches;
    uint32_t batch_count, free_count;
    uint32_t batch_tokens; /* of a batch, at most: fewer once memory ran out */
    struct again *again;   /* [again_count] */
    uint32_t again_count, again_room;

    XXH3_state_t *digest; /* of the documents that were read */
    uint64_t next_row;    /* of the next window */
    struct checkpoint at; /* what is complete */
    struct crew *commits; /* see job_commit.c; NULL without a journal */
    struct commit *commit;
    struct checkpoint checkpoint; /* to be written with the next commit */
    bool checkpoint_waits;
    struct buffer recent; /* struct done: rows behind the checkpoint that an earlier run computed */
    size_t recent_at;
    struct buffer terms; /* of the earlier run */
    struct retry *retry; /* NULL: it is not about rows that failed */

    bool ended;         /* the input: there is no more to read */
    bool stopping;      /* no new batch is to begin */
    enum status ending; /* with which the job is to end once all that was read is complete */
    struct err ending_err;

    struct job_progress progress;
    uint64_t reported_ns;
};

/* job_open.c */
MUST_CHECK enum status job_open(struct job *job, const struct job_options *options, struct err *err);
void job_close(struct job *job);

/* job_resume.c: takes up what an earlier run has left. */
MUST_CHECK enum status job_resume(struct job *job, struct err *err);
MUST_CHECK enum status job_skip(struct job *job, uint64_t documents, struct hash digest, struct err *err);

/* job_commit.c: what is written becomes durable, and the journal says so. */
MUST_CHECK enum status job_commit_open(struct job *job, struct err *err);
void job_commit_close(struct job *job);
MUST_CHECK enum status job_commit_when_due(struct job *job, struct err *err);
/* Waits for all that is written. */
MUST_CHECK enum status job_commit_all(struct job *job, struct err *err);

/* job_retry.c: a finished job whose failed rows are tried again. What begins with `job_retry_` and comes while the job
 * runs does nothing without a retry, unless it says otherwise. */
MUST_CHECK enum status job_retry_open(struct job *job, struct err *err);
void job_retry_close(struct job *job);
/* Puts the list of failures of the newest manifest in its place, where a retry was killed before it could. */
MUST_CHECK enum status job_retry_settle(const struct output *output, uint64_t failed, struct err *err);
/* With a retry: whether the document is to be computed, and which rows its chunks have; adds it to the digests. */
MUST_CHECK enum status job_retry_wants(struct job *job, struct document *document, bool *wanted, struct err *err);
/* Units of a wanted document, in their order: those whose rows did not fail are kept. Errors: STATUS_BAD_INPUT when
 * there are more chunks than rows. */
MUST_CHECK enum status job_retry_unit(struct job *job, struct unit *unit, struct err *err);
/* Copies the old lines before that of a row, which is to be written next. */
MUST_CHECK enum status job_retry_line(struct job *job, int tail, uint64_t row, struct err *err);
/* With a retry: ends the files, before the manifest. */
MUST_CHECK enum status job_retry_end(struct job *job, struct err *err);

/* job_read.c: documents to slices, to the prep threads and into windows. */
MUST_CHECK enum status job_prep_open(struct job *job, struct err *err);
void job_prep_close(struct job *job);
MUST_CHECK enum status job_read(struct job *job, bool *worked, struct err *err);
MUST_CHECK enum status job_take_prepared(struct job *job, bool *worked, struct err *err);
void job_digest_add(XXH3_state_t *digest, const struct document *document);
struct hash job_digest_now(const struct job *job);

/* job_compute.c: rows to batches, and vectors to their places. */
MUST_CHECK enum status job_plan(struct job *job, bool *worked, struct err *err);
MUST_CHECK enum status job_submit(struct job *job, bool *worked, struct err *err);
MUST_CHECK enum status job_take_computed(struct job *job, bool *worked, struct err *err);
bool job_has_batches_out(const struct job *job);
/* All pieces of a unit are computed: it has its vector, or fails. */
void job_settle(struct job *job, const struct look *window, struct unit *unit);

/* job_write.c: vectors from the windows to the store, many rows at once. Nothing without a store. */
/* Rows of a window that are finished: all of these units have their vectors. */
MUST_CHECK enum status job_write_finished(struct job *job, struct look *window, uint32_t first, uint32_t count,
                                          struct err *err);
/* Whether rows that are computed have waited so long for the others of their window that they are written without
 * them. Writes those, or all. */
bool job_write_is_due(const struct job *job);
MUST_CHECK enum status job_write_due(struct job *job, bool all, struct err *err);

/* job_finish.c: windows that are complete, in row order; checkpoints; the end. */
MUST_CHECK enum status job_finish_rows(struct job *job, bool *worked, struct err *err);
MUST_CHECK enum status job_end(struct job *job, struct err *err);

/* Whether a document may be several rows. */
static inline bool job_has_chunks(const struct job *job)
{
    const struct chunking *chunking = &job->options->preparer.chunking;
    return chunking->tokens > 0 && !chunking->mean;
}

/* Tells the caller how far it is; not more often than ten times a second unless it must. */
void job_report(struct job *job, bool must);

#endif
