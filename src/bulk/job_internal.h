/* The state of a running job, and how it resumes an earlier run. Private to loop.c,
 * read.c, finish.c, commit.c, resume.c, retry.c, failures.c and digest.c; resumable.c removes files with it. */
#ifndef BULK_JOB_INTERNAL_H
#define BULK_JOB_INTERNAL_H

#include <string.h>
#include <xxhash.h>

#include "bulk/dedup.h"
#include "bulk/estimate.h"
#include "bulk/job.h"
#include "bulk/journal.h"
#include "bulk/lookahead.h"
#include "bulk/output/files.h"
#include "bulk/output/store.h"

/* The bounds of a window: bytes of its texts, and of its vectors; the time between reports of progress. */
enum { WINDOWS = 2, LOOK_AHEAD_BYTES = 16 << 20, LOOK_AHEAD_VECTORS_BYTES = 48 << 20, REPORT_MS = 100 };

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
struct finish;
struct reading;
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
    struct reading *reading; /* NULL: no thread reads, and the source is the job's thread's */
    struct source *source;
    struct thread_pool *prep;
    struct preparer preparer; /* as in the options, with this job's seed */
    bool seeded;              /* the seed came from the journal */
    struct dedup *dedup;
    struct store *store;     /* NULL: the windows keep their vectors */
    struct journal *journal; /* NULL: a plain job, which cannot be resumed */
    struct append_file files[APPEND_FILES];
    struct finish *finish;

    /* Windows take turns; these count how many have passed a stage: read >= planned >= submitted >= finished. */
    struct lookahead windows[WINDOWS];
    uint64_t read, planned, submitted, finished;
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

/* The thread of job_run calls all of these, unless they name another. An error ends the job; complete rows are kept. */

/* Resumes an earlier run: its journal, its files, and the input up to the checkpoint. */
MUST_CHECK enum status job_resume(struct job *job, struct err *err);

/* --- Reading ahead: read.c --- */

/* Starts the thread that reads. Until job_read_close, the source, the digest, the document `ahead` and the comparison
 * of a retry are that thread's. Errors: STATUS_NO_MEMORY, those of thread_pool_open. */
MUST_CHECK enum status job_read_open(struct job *job, struct err *err);

/* Takes the next batch of documents, in order; NULL: none has been read yet. Never waits; the thread writes the job's
 * wake_fd. A batch may be empty. Owns: the caller frees it. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status job_read_take(struct job *job, struct doc_batch **out, struct err *err);

/* Ends the thread, even one that waits for its input, and drops what was read and not taken. */
void job_read_close(struct job *job);

/* --- Giving out rows: finish.c --- */

/* Starts the threads that make lines and write; the files must be open. Errors: STATUS_NO_MEMORY, those of
 * thread_pool_open. */
MUST_CHECK enum status job_finish_open(struct job *job, struct err *err);

/* Ends them. */
void job_finish_close(struct job *job);

/* Gives out some rows of the oldest window if it is computed, and ends the window after the last of them. Errors: those
 * of the store and the files, also for rows that were given out before. */
MUST_CHECK enum status job_finish_rows(struct job *job, bool *worked, struct err *err);

/* Waits until no other thread reads a window or writes a file; rows that were not given to the writer yet are not given
 * out. Call it if the job will not go on. Errors: as job_finish_rows. */
MUST_CHECK enum status job_finish_wait(struct job *job, struct err *err);

/* Call it when everything up to here is written; the next commit makes it durable and writes this checkpoint. */
MUST_CHECK enum status job_put_checkpoint(struct job *job, struct err *err);

/* --- Writing and committing: commit.c --- */

/* Writes the rows [first, end) of a window that have a vector which is not in the store; `finished`: also copies, and
 * the NaNs of failed rows. Then call job_note_stored. Errors: those of store_put. Thread: any, while the rows do not
 * change. */
MUST_CHECK enum status job_put_runs(const struct job *job, const struct lookahead *window, uint32_t first, uint32_t end,
                                    bool finished, struct err *err);

/* Notes for the next commit that the vectors of these rows are in the store. */
void job_note_stored(struct job *job, struct lookahead *window, uint32_t first, uint32_t end);

/* Starts the thread of the commits. Errors: STATUS_NO_MEMORY, those of thread_pool_open. */
MUST_CHECK enum status job_commit_open(struct job *job, struct err *err);

/* Begins a commit if there is something to commit and none runs. Errors: those of the last commit, too. */
MUST_CHECK enum status job_commit_when_due(struct job *job, struct err *err);

/* Writes everything, and waits until it is durable. Errors: those of the store and the journal. */
MUST_CHECK enum status job_commit_all(struct job *job, struct err *err);

/* Waits for the commit that runs, if one does. Errors: its. */
MUST_CHECK enum status job_commit_wait(struct job *job, struct err *err);

/* True if rows that this process computed are durable. Call it while no commit runs. */
bool job_has_committed(const struct job *job);

/* --- Files, and the end of a job: resume.c --- */

/* Removes journal, scratch and folder of a job, as far as they exist. Errors: those of unlink and rmdir. */
MUST_CHECK enum status job_remove_leftovers(const struct output *output, struct err *err);

/* Removes all files of a job, the manifest first: without it the job does not count as finished. Errors: those of
 * unlink and rmdir. */
MUST_CHECK enum status job_remove_all(const struct output *output, struct err *err);

/* Deletes the files of a job that this run began and that has no rows. Call it only if the executor was asked for
 * nothing: otherwise the next run would lose, with the journal, the seed by which it finds answers of a queue. */
void job_forget(struct job *job);

/* Removes a file; one that is not there is no error. Errors: those of unlink. */
MUST_CHECK enum status job_remove_file(const char *path, struct err *err);

/* True if there is a file or link of that name. */
bool job_file_exists(const char *path);

/* The name of the file that replaces this one: "PATH.new"; NULL without memory. Owns: the caller frees it. */
char *job_new_path(const char *path);

/* Writes the manifest of the complete part; `failures` is the path of the list of failures. Errors: those of
 * manifest_write. */
MUST_CHECK enum status job_write_manifest(const struct job *job, const char *failures, struct err *err);

/* --- Retrying the failed rows of a finished job. Without a retry these do nothing, unless they say otherwise. --- */

/* The reason why a row of a finished job cannot be computed again when its document has changed; NULL: it can. */
const char *job_retry_obstacle(const struct job *job);

/* True if an operand is standard input, which cannot be read twice. */
bool job_reads_standard_input(const struct job *job);

/* Opens the files of the finished job. Errors: STATUS_NO_MEMORY, those of the files. */
MUST_CHECK enum status job_retry_open(struct job *job, struct err *err);

/* Closes the files; without job_retry_end the old files stay as they are. */
void job_retry_close(struct job *job);

/* True if all documents of the finished job are among the first `documents`; false without a retry. Thread: any. */
bool job_retry_at_end(const struct job *job, uint64_t documents);

/* With a retry only: finds out whether to compute the document, and which rows its chunks have, which it appends to
 * `listed`; adds it to the digests. Thread: the one that reads. */
MUST_CHECK enum status job_retry_wants(struct job *job, struct document *document, struct buffer *listed, bool *wanted,
                                       struct err *err);

/* Takes over the list of a batch, for job_retry_row. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status job_retry_list(struct job *job, const struct buffer *listed, struct err *err);

/* Takes the rows of wanted documents in order, and keeps those that did not fail. Errors: STATUS_BAD_INPUT when a
 * document has more chunks than rows. */
MUST_CHECK enum status job_retry_row(struct job *job, struct output_row *row, struct err *err);

/* Copies the old lines before that of a row; the caller writes the row's line next. */
MUST_CHECK enum status job_retry_line(struct job *job, int file, uint64_t row, struct err *err);

/* With a retry: ends the files, and writes the new manifest and list of failures. */
MUST_CHECK enum status job_retry_end(struct job *job, struct err *err);

/* The length of APPEND_CHUNKS with that number of rows, or of APPEND_HASHES, which has no header, with that number of
 * documents, and so the place of the next one. */
static inline uint64_t job_pairs_end(int file, uint64_t number)
{
    return (file == APPEND_CHUNKS ? NPY_HEADER_BYTES : 0) + number * PAIR_BYTES;
}

/* The floats of a row in windows and store: its vector, and for records the number of its tokens, which their writer
 * needs in whichever run it writes the line. */
static inline uint32_t job_row_floats(const struct job *job)
{
    return job->options->dim + (job->options->source.records != NULL);
}

/* The name of a document's file in messages. */
static inline const char *job_file_of(const struct document *document)
{
    return strcmp(document->file, "-") == 0 ? "standard input" : document->file;
}

/* True if a document may become several rows. */
static inline bool job_has_chunks(const struct job *job)
{
    const struct chunking *chunking = &job->options->preparer.chunking;
    return job->options->source.records || (chunking->tokens > 0 && !chunking->mean);
}

/* Reports progress to the caller, at most ten times a second unless it must. */
void job_report(struct job *job, bool must);

#endif
