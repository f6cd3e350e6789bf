/* The folder of the Batch API: files and batches, each a JSON object as the API shows it, and the files' contents.
 *
 *     files/ID.json     the object of a file; without it there is no such file
 *     files/ID          its content
 *     batches/ID.json   the object of a batch
 *     batches/ID.lock   as long as the batch has not ended; whoever runs it holds a lock on this file
 *     batches/ID.cancel somebody has asked for its end
 *     batches/ID.input  a link to its input, which may be deleted meanwhile
 *     batches/ID.jsonl… the files of its bulk job
 *
 * Ids begin with their time, so that names sort by it. Several gateways may use the same folder at a time: objects are
 * replaced whole, and only the one with the lock changes a batch. */
#ifndef BATCH_STORE_H
#define BATCH_STORE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"
#include "gateway/dialect.h"

enum { STORE_ID_MAX = 64, STORE_PATH_MAX = PATH_MAX };
enum { STORE_FILE_BYTES = 200 << 20 }; /* of the largest upload */

/* The states of a batch, in the order of their names in the API. */
enum batch_status {
    BATCH_VALIDATING,
    BATCH_IN_PROGRESS,
    BATCH_FINALIZING,
    BATCH_COMPLETED,
    BATCH_FAILED,
    BATCH_EXPIRED,
    BATCH_CANCELLING,
    BATCH_CANCELLED,
    BATCH_STATUSES
};

struct stored_batch {
    char id[STORE_ID_MAX], input[STORE_ID_MAX];
    char window[16];
    enum batch_status status;
    uint64_t created_at, expires_at, at[BATCH_STATUSES]; /* in seconds; 0: not yet */
    uint64_t total, completed, failed;
    char output_id[STORE_ID_MAX], errors_id[STORE_ID_MAX]; /* "": none */
    struct buffer errors, metadata;                        /* JSON; empty: null */
};

/* Makes the folders. Errors: those of file_make_folder. */
MUST_CHECK enum status store_folder_open(const char *folder, struct err *err);

/* Writes FOLDER/KIND/ID and `ending`; kind is "files" or "batches". */
void store_path_of(const char *folder, const char *kind, const char *id, const char *ending, char path[STORE_PATH_MAX]);

/* Makes an id: prefix, the time, random digits. Errors: STATUS_IO. */
MUST_CHECK enum status store_make_id(const char *prefix, char id[STORE_ID_MAX], struct err *err);

/* True if bytes can be an id with that prefix, and so part of a path. */
bool store_is_id(const char *id, const char *prefix);

/* Appends the object of a file to `to`. */
void store_put_file(struct buffer *to, const char *id, uint64_t bytes, const char *filename, const char *purpose);

/* Reads and writes the object of a batch; one that shall be cancelled is BATCH_CANCELLING until that
 * begins. Owns: the caller
 * ends the batch with stored_batch_free, also after an error. Errors: STATUS_NOT_FOUND, STATUS_BAD_INPUT (it is
 * damaged), those of files. */
MUST_CHECK enum status stored_batch_read(const char *folder, const char *id, struct stored_batch *out, struct err *err);
MUST_CHECK enum status stored_batch_write(const char *folder, const struct stored_batch *batch, struct err *err);

/* Appends the object. */
void stored_batch_put(struct buffer *to, const struct stored_batch *batch);

/* Frees what it owns. */
void stored_batch_free(struct stored_batch *batch);

/* True if nothing changes it any more. */
bool stored_batch_has_ended(const struct stored_batch *batch);

/* The names in a folder that end with `ending`, without it and in their order, as C strings one after the other.
 * Errors: what errno says; STATUS_NO_MEMORY. */
MUST_CHECK enum status store_list(const char *folder, const char *kind, const char *ending, struct buffer *names,
                                  size_t *count, struct err *err);

#endif
