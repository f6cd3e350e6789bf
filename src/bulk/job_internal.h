/* The state of a running job, and how it resumes an earlier run. Private to the loop (loop.c) and to resume.c. */
#ifndef BULK_JOB_INTERNAL_H
#define BULK_JOB_INTERNAL_H

#include <xxhash.h>

#include "bulk/dedup.h"
#include "bulk/estimate.h"
#include "bulk/job.h"
#include "bulk/journal.h"
#include "bulk/lookahead.h"
#include "bulk/output/files.h"
#include "bulk/output/store.h"

/* The bounds of a window: bytes of its texts, and of its vectors; documents or rows per step; the time between reports
 * of progress. */
enum { WINDOWS = 2, LOOK_AHEAD_BYTES = 16 << 20, LOOK_AHEAD_VECTORS_BYTES = 48 << 20, STEP = 256, REPORT_MS = 100 };

/* The files that only grow, in the order of a checkpoint. */
enum append_number {
    APPEND_LINES,
    APPEND_FAILURES,
    APPEND_IDS,
    APPEND_DOCUMENTS,
    APPEND_CHUNKS,
    APPEND_HASHES,
    APPEND_FILES
};
_Static_assert((int)APPEND_CHUNKS == (int)JOURNAL_FILES, "a checkpoint has room for all whose length it must say");

/* A row of APPEND_CHUNKS. */
struct chunk_place {
    uint64_t begin, end;
};

/* A flag in the file: the row of the document copies an equal one. */
enum { FINGERPRINT_COPIED = 1 };

enum { PAIR_BYTES = 2 * sizeof(uint64_t) };
_Static_assert(sizeof(struct chunk_place) == PAIR_BYTES && sizeof(struct fingerprint) == PAIR_BYTES, "as in the files");

struct commit;
struct retry;

/* Pieces of a batch that was too large, or that a queue asked to halve: they wait to be computed in smaller batches. */
struct resubmit {
    struct lookahead *window;
    uint32_t first, count; /* of the window's order */
    uint32_t most_weight;  /* of each smaller batch */
};

/* A job while it runs. */
struct job {
    const struct job_options *options;
    struct source *source;
    struct thread_pool *prep;
    struct preparer preparer; /* as in the options, with this job's seed */
    bool seeded;              /* the seed came from the journal */
    struct dedup *dedup;
    struct store *store;     /* NULL: the windows keep their vectors */
    struct journal *journal; /* NULL: a plain job, which cannot be resumed */
    struct append_file files[APPEND_FILES];
    float *vector; /* [dim] */

    /* Windows take turns; these count how many have passed a stage: read >= planned >= submitted >= finished. */
    struct lookahead windows[WINDOWS];
    uint64_t read, planned, submitted, finished;
    struct doc_batch *open_docs; /* being filled */
    struct bulk_batch *batches, **free_batches;
    uint32_t batch_count, free_count;
    uint32_t batch_tokens;      /* bound of a batch; lower once memory ran out */
    struct resubmit *resubmits; /* [resubmit_count] */
    uint32_t resubmit_count, resubmit_room;

    XXH3_state_t *digest;        /* of the documents read so far */
    uint64_t next_row;           /* the first row of the next window */
    struct checkpoint at;        /* the complete part */
    uint64_t written;            /* computed rows that this process wrote, for the next commit */
    struct thread_pool *commits; /* a thread for commits; NULL without a journal */
    struct commit *commit;
    struct checkpoint checkpoint; /* for the next commit */
    bool checkpoint_waits;
    struct buffer recent; /* struct done: rows after the checkpoint that an earlier run computed */
    size_t recent_at;
    struct buffer terms; /* the terms of the earlier run */
    struct retry *retry; /* NULL: this pass does not retry failed rows */

    bool tries_failed;     /* retry the failed rows of a finished job … */
    bool retries;          /* … and there are some */
    uint64_t changed;      /* documents that have changed since the job was finished; their rows count as failed */
    bool grown;            /* the input of a finished job has grown … */
    struct document ahead; /* … and this is the first new document */

    bool ended;         /* there is no more input */
    bool stopping;      /* start no new batch */
    enum status ending; /* the status of the job once everything that was read is complete */
    struct err ending_err;

    struct job_progress progress;
    struct estimate estimate;
    uint64_t begun_ns; /* when this process began to compute */
    uint64_t reported_ns;
};

/* Refuses an input that is one of the files of the output, whatever its name. Errors: those of source_refuse. */
MUST_CHECK enum status job_check_output(const struct job_options *options, struct err *err);

/* The thread of job_run calls all of these. An error ends the job; complete rows are kept. */

/* Resumes an earlier run: its journal, its files, and the input up to the checkpoint. */
MUST_CHECK enum status job_resume(struct job *job, struct err *err);

/* Removes journal, scratch and folder of a job, as far as they exist. Errors: those of unlink and rmdir. */
MUST_CHECK enum status job_remove_leftovers(const struct output *output, struct err *err);

/* Deletes the files of a job that this run began and that has no rows. Call it only if the executor was asked for
 * nothing: otherwise the next run would lose, with the journal, the seed by which it finds answers of a queue. */
void job_forget(struct job *job);

/* Appends the id of a document, or its number. */
void job_put_id(struct buffer *to, const struct document *document);

/* Appends a line of the list of failures; `chunks`: rows are chunks. */
void job_put_failure(struct buffer *to, const struct output_row *row, bool chunks);

/* Writes the manifest of the complete part; `failures` is the path of the list of failures. Errors: those of
 * manifest_write. */
MUST_CHECK enum status job_write_manifest(const struct job *job, const char *failures, struct err *err);

/* --- Retrying the failed rows of a finished job. Without a retry these do nothing, unless they say otherwise. --- */

/* Closes the files; without job_retry_end the old files stay as they are. */
void job_retry_close(struct job *job);

/* True if all documents of the finished job were read; false without a retry. */
bool job_retry_at_end(const struct job *job);

/* With a retry only: finds out whether to compute the document, and which rows its chunks have; adds it to the digests.
 */
MUST_CHECK enum status job_retry_wants(struct job *job, struct document *document, bool *wanted, struct err *err);

/* Takes the rows of wanted documents in order, and keeps those that did not fail. Errors: STATUS_BAD_INPUT when a
 * document has more chunks than rows. */
MUST_CHECK enum status job_retry_row(struct job *job, struct output_row *row, struct err *err);

/* Copies the old lines before that of a row; the caller writes the row's line next. */
MUST_CHECK enum status job_retry_line(struct job *job, int file, uint64_t row, struct err *err);

/* With a retry: ends the files, and writes the new manifest and list of failures. */
MUST_CHECK enum status job_retry_end(struct job *job, struct err *err);

/* --- The digest of the input --- */

/* The fingerprint of a document as the source gives it, without FINGERPRINT_COPIED. */
struct fingerprint job_fingerprint(const struct document *document);

/* Adds a document to a digest. All failed ones count alike: they have no vector that their bytes could contradict. */
void job_digest_add(XXH3_state_t *digest, const struct document *document);

/* The digest of all documents that were read so far. */
struct hash job_digest_now(const struct job *job);

/* The length of APPEND_CHUNKS with that number of rows, or of APPEND_HASHES, which has no header, with that number of
 * documents, and so the place of the next one. */
static inline uint64_t job_pairs_end(int file, uint64_t number)
{
    return (file == APPEND_CHUNKS ? NPY_HEADER_BYTES : 0) + number * PAIR_BYTES;
}

/* True if a document may become several rows. */
static inline bool job_has_chunks(const struct job *job)
{
    const struct chunking *chunking = &job->options->preparer.chunking;
    return chunking->tokens > 0 && !chunking->mean;
}

/* Reports progress to the caller, at most ten times a second unless it must. */
void job_report(struct job *job, bool must);

#endif
