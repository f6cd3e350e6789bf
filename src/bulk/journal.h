/* The journal of a job: what is durable, so that the job can go on after it was killed at any moment.
 *
 * Records lie one behind the other, each with a checksum:
 *
 *     TERMS       what the job was agreed on, "key=value" lines; the first record
 *     DONE        rows that were computed, and of what text: written once their vectors are durable
 *     CHECKPOINT  everything up to here is complete: documents, rows, and how long the files were
 *
 * A record that was torn, and all behind it, counts as never written: what it told of is done again, with the same
 * bytes. */
#ifndef BULK_JOURNAL_H
#define BULK_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"
#include "bulk/input/document.h"
#include "bulk/job.h"

enum { JOURNAL_FILES = 4, JOURNAL_TERMS_MAX = 1 << 16, JOURNAL_DONE_MAX = 4096 };

/* How far everything is complete. */
struct checkpoint {
    uint64_t documents, rows;          /* that are complete */
    uint64_t computed, copied, failed; /* of the rows */
    uint64_t tokens;                   /* that were computed */
    struct hash digest;                /* of all documents so far */
    uint64_t lengths[JOURNAL_FILES];   /* the lengths of the files that grow */
};

/* A row whose vector is durable, and the text that it is of. */
struct done {
    uint64_t row;
    struct hash hash;
};

/* The records by their number in the file. */
enum journal_kind { JOURNAL_TERMS = 1, JOURNAL_DONE = 2, JOURNAL_CHECKPOINT = 3, JOURNAL_SEED = 4 };

/* A record that was read. */
struct journal_record {
    enum journal_kind kind;
    const char *terms; /* [terms_bytes] */
    size_t terms_bytes;
    const char *done; /* [done_count] packed, see journal_done */
    size_t done_count;
    struct checkpoint checkpoint;
    uint64_t seed; /* of the hashes in JOURNAL_DONE; 0 in a journal without one */
};

/* Reads the record that `bytes` begin with. Returns its size, or 0 when it is not whole or not right. Thread: any. */
size_t journal_read(const char *bytes, size_t length, struct journal_record *out);

/* The row at a place of a JOURNAL_DONE record, below its done_count. */
struct done journal_done(const struct journal_record *record, size_t number);

struct journal;

/* Opens or makes a journal, for this process alone, and calls `seen` with each of its records in order; what is broken
 * is cut off. `path` must outlive it. Owns: the caller ends it with journal_close.
 * Errors: STATUS_UNAVAILABLE (another process works on it); those of `seen`; STATUS_IO, STATUS_DENIED,
 * STATUS_NO_MEMORY. */
MUST_CHECK enum status
journal_open(const char *path, enum status (*seen)(void *context, const struct journal_record *record, struct err *err),
             void *context, struct journal **out, struct err *err);

/* Closes the file; rows that were not sealed and written are forgotten. NULL is allowed. */
void journal_close(struct journal *journal);

/* Appends the first record. Errors: STATUS_BAD_INPUT (too long), STATUS_IO, STATUS_NO_MEMORY. */
MUST_CHECK enum status journal_put_terms(struct journal *journal, const char *terms, size_t length, struct err *err);

/* Likewise the seed of the hashes, before the first row. Errors: STATUS_IO, STATUS_NO_MEMORY. */
MUST_CHECK enum status journal_put_seed(struct journal *journal, uint64_t seed, struct err *err);

/* Remembers a row that was computed, until it is sealed. Errors: journal_seal tells. */
void journal_add_done(struct journal *journal, struct done done);

/* Says which rows the next journal_write is about: those that were added so far. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status journal_seal(struct journal *journal, struct err *err);

/* Writes the sealed rows, then the checkpoint unless it is NULL, and waits until all would survive a power cut. To be
 * called once what they tell of would. Errors: STATUS_IO, STATUS_NO_MEMORY. Thread: any, while no other thread seals or
 * writes; rows may be added meanwhile. */
MUST_CHECK enum status journal_write(struct journal *journal, const struct checkpoint *checkpoint, struct err *err);

/* The manifest: that a job is finished, what it was agreed on, and what it gave. Written last. */

/* Hashes the files of the output and writes the manifest in one step (a new file that takes the old one's name).
 * `store` is the output's, or the scratch of JSON lines. Errors: STATUS_IO and others of files; STATUS_NO_MEMORY. */
MUST_CHECK enum status manifest_write(const struct job_options *options, const struct store *store,
                                      const struct checkpoint *at, struct err *err);

/* What a manifest tells a later run of the same job. */
struct manifest {
    struct buffer terms;  /* "key=value" lines */
    struct checkpoint at; /* without the lengths of files */
};

/* Reads a manifest. `*found` is false when there is none. Owns: the caller frees `out->terms`.
 * Errors: STATUS_BAD_INPUT naming file and field; those of file_read. Thread: one at a time (cJSON). */
MUST_CHECK enum status manifest_read(const char *path, struct manifest *out, bool *found, struct err *err);

/* The same with bytes in memory; `bytes[length]` must be a NUL. Errors: STATUS_BAD_INPUT, with `name` for the file. */
MUST_CHECK enum status manifest_parse(const char *bytes, size_t length, const char *name, struct manifest *out,
                                      struct err *err);

/* The value of a key in "key=value" lines, `*length` bytes, or NULL. */
const char *terms_find(const char *terms, size_t bytes, const char *key, size_t key_bytes, size_t *length);

/* Looks for the first key whose value differs between two lists of terms. False when they agree; otherwise `err` says
 * which, and what to do. */
bool terms_differ(const char *before, size_t before_bytes, const char *now, struct err *err);

#endif
