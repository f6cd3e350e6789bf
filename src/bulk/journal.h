/* The journal of a job lists its durable data, so that the job can resume after a kill at any moment. It is a sequence
 * of records, each with a checksum:
 *
 *     TERMS       the options that every run must agree on, "key=value" lines; the first record
 *     SEED        the seed of the hashes of texts
 *     DONE        rows that were computed and the hashes of their texts; written once their vectors are durable
 *     CHECKPOINT  everything up to here is complete: documents, rows, and the lengths of files
 *
 * A torn record, and everything after it, counts as never written: that work is done again and gives the same bytes. */
#ifndef BULK_JOURNAL_H
#define BULK_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"
#include "bulk/input/document.h"

enum { JOURNAL_FILES = 4, JOURNAL_TERMS_MAX = 1 << 16, JOURNAL_DONE_MAX = 4096 };

/* The point up to which everything is complete. */
struct checkpoint {
    uint64_t documents, rows;          /* complete ones */
    uint64_t computed, copied, failed; /* of these rows */
    uint64_t tokens;                   /* tokens that were computed */
    struct hash digest;                /* of all documents up to here */
    uint64_t lengths[JOURNAL_FILES];   /* the lengths of the files that grow */
};

/* A row whose vector is durable, and the hash of its text. */
struct done {
    uint64_t row;
    struct hash hash;
};

/* The kinds of records, as numbered in the file. */
enum journal_kind { JOURNAL_TERMS = 1, JOURNAL_DONE = 2, JOURNAL_CHECKPOINT = 3, JOURNAL_SEED = 4 };

/* A record that was read. */
struct journal_record {
    enum journal_kind kind;
    const char *terms; /* [terms_bytes] */
    size_t terms_bytes;
    const char *done; /* [done_count] packed, see journal_done */
    size_t done_count;
    struct checkpoint checkpoint;
    uint64_t seed; /* the seed of the hashes in JOURNAL_DONE */
};

/* Reads the record at the beginning of `bytes`. Returns its size, or 0 if it is incomplete or broken. Thread: any. */
size_t journal_read(const char *bytes, size_t length, struct journal_record *out);

/* Row `number` of a JOURNAL_DONE record. */
struct done journal_done(const struct journal_record *record, size_t number);

struct journal;

/* Receives a record that was read. */
typedef enum status journal_seen(void *context, const struct journal_record *record, struct err *err);

/* Opens or makes a journal, locks it for this process, and calls `seen` with each record in order; a broken end is cut
 * off. `path` must outlive it. Owns: the caller ends it with journal_close.
 * Errors: STATUS_UNAVAILABLE (another process works on it); those of `seen`; STATUS_IO, STATUS_DENIED,
 * STATUS_NO_MEMORY. */
MUST_CHECK enum status journal_open(const char *path, journal_seen *seen, void *context, struct journal **out,
                                    struct err *err);

/* Closes the journal; forgets rows that were not written. NULL is allowed. */
void journal_close(struct journal *journal);

/* Appends the first record. Errors: STATUS_BAD_INPUT (too long), STATUS_IO, STATUS_NO_MEMORY. */
MUST_CHECK enum status journal_put_terms(struct journal *journal, const char *terms, size_t length, struct err *err);

/* Appends the seed of the hashes, before the first row. Errors: STATUS_IO, STATUS_NO_MEMORY. */
MUST_CHECK enum status journal_put_seed(struct journal *journal, uint64_t seed, struct err *err);

/* Remembers a computed row until it is sealed. Errors: reported by journal_seal. */
void journal_add_done(struct journal *journal, struct done done);

/* Selects the rows added so far for the next journal_write. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status journal_seal(struct journal *journal, struct err *err);

/* Writes the sealed rows, then the checkpoint unless it is NULL, and waits until they are on disk. The data that they
 * describe must already be on disk. Errors: STATUS_IO, STATUS_NO_MEMORY. Thread: any, while no other thread seals or
 * writes; rows may be added meanwhile. */
MUST_CHECK enum status journal_write(struct journal *journal, const struct checkpoint *checkpoint, struct err *err);

#endif
