/* The manifest says that a job is finished: JSON for people and programs. A later run reads only a part of it back. */
#ifndef BULK_MANIFEST_H
#define BULK_MANIFEST_H

#include "bulk/journal.h"
#include "bulk/output/files.h"
#include "bulk/output/store.h"

enum { SHA256_HEX = 2 * 32 + 1 };

/* Hashes the output files and writes the manifest atomically (a new file, then a rename); the last step of a job.
 * `store` is that of the output, or the scratch of JSON Lines; `terms` and `facts` are those of struct job_options.
 * `failures` is the present path of the list of failed rows; it is not read if there are none.
 * Errors: STATUS_IO and others of files; STATUS_NO_MEMORY. */
MUST_CHECK enum status manifest_write(const struct output *output, const char *terms, const char *facts,
                                      const struct store *store, const char *failures, const struct checkpoint *at,
                                      struct err *err);

/* The SHA-256 of a file. Errors: STATUS_NOT_FOUND, STATUS_IO and others of files; STATUS_NO_MEMORY. */
MUST_CHECK enum status manifest_hash(const char *path, char hex[SHA256_HEX], uint64_t *size, struct err *err);

/* The part of a manifest that a later run of the same job needs. */
struct manifest {
    struct buffer terms;       /* "key=value" lines */
    struct checkpoint at;      /* without lengths of files */
    char failures[SHA256_HEX]; /* of the list of failed rows; "": there is none */
};

/* Reads a manifest. `*found` is false when there is none. Owns: the caller frees `out->terms`.
 * Errors: STATUS_BAD_INPUT naming file and field; those of file_read. Thread: one at a time (cJSON). */
MUST_CHECK enum status manifest_read(const char *path, struct manifest *out, bool *found, struct err *err);

/* Reads a manifest from memory; `bytes[length]` must be a NUL, `name` stands for the file in errors. Errors:
 * STATUS_BAD_INPUT. */
MUST_CHECK enum status manifest_parse(const char *bytes, size_t length, const char *name, struct manifest *out,
                                      struct err *err);

/* Checks that the files of a finished output are as long as the manifest says, and those beside them as `rows` says; a
 * file of lines may be longer or shorter if it has as many lines (a killed retry leaves it so). `ids`, `chunks`: there
 * are such files. Errors: STATUS_BAD_INPUT naming a file that is gone or was cut; those of files. */
MUST_CHECK enum status manifest_check(const struct output *output, uint64_t rows, bool ids, bool chunks,
                                      struct err *err);

/* The term that names the model for people. It is not compared: the id decides. */
#define TERM_MODEL_NAME "model_name"

/* The value of a key in "key=value" lines, `*length` bytes, or NULL. */
const char *terms_find(const char *terms, size_t bytes, const char *key, size_t key_bytes, size_t *length);

/* True if two lists of terms differ; `err` then names the first differing key, and a remedy. */
bool terms_differ(const char *before, size_t before_bytes, const char *now, struct err *err);

#endif
