/* The manifest: that a job is finished, what it was agreed on, and what it gave. Written last. */
#ifndef BULK_MANIFEST_H
#define BULK_MANIFEST_H

#include "bulk/job.h"
#include "bulk/journal.h"

/* Hashes the files of the output and writes the manifest in one step (a new file that takes the old one's name).
 * `store` is the output's, or the scratch of JSON lines; `sum` is that of its only file, in hex, or NULL. Errors:
 * STATUS_IO and others of files; STATUS_NO_MEMORY. */
MUST_CHECK enum status manifest_write(const struct job_options *options, const struct store *store,
                                      const struct checkpoint *at, const char *sum, struct err *err);

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
