/* The folder of the Batch API: files and batches, each a JSON object as the API shows it, and the files' contents.
 *
 *     files/ID.json     the object of a file; without it there is no such file
 *     files/ID          its content
 *     batches/ID.json   the object of a batch
 *     batches/ID.lock   as long as the batch has not ended; whoever makes or runs it holds a lock on this file
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

enum { STORE_ID_MAX = 64, STORE_PATH_MAX = PATH_MAX };
enum { STORE_FILE_BYTES = 200 << 20 };                                  /* of the largest upload */
enum { STORE_LIFE_LEAST_S = 3600, STORE_LIFE_MOST_S = 30 * 24 * 3600 }; /* of a file that expires */

/* The states of a batch, in the order of their names in the API. */
enum batch_status {
    BATCH_VALIDATING,
    BATCH_IN_PROGRESS,
    BATCH_FINALIZING,
    BATCH_COMPLETED,
    BATCH_FAILED,
    BATCH_EXPIRED,
    BATCH_CANCELLING, /* only shown: somebody has asked for the end of one that is validating or in progress */
    BATCH_CANCELLED,
    BATCH_STATUSES
};

struct stored_batch {
    char id[STORE_ID_MAX], input[STORE_ID_MAX], window[STORE_ID_MAX];
    enum batch_status status;
    uint64_t created_at, expires_at, at[BATCH_STATUSES]; /* in seconds; 0: not yet */
    uint64_t total, completed, failed;
    char output_id[STORE_ID_MAX], errors_id[STORE_ID_MAX]; /* "": none */
    struct buffer errors, expiry, metadata;                /* JSON; empty: null */
};

/* Makes the folders. Errors: those of file_make_folder. */
MUST_CHECK enum status store_folder_open(const char *folder, struct err *err);

/* Removes files that have expired, and what a kill has left of uploads and of files that were deleted. */
void store_sweep(const char *folder);

/* Writes FOLDER/KIND/ID and `ending`; kind is "files" or "batches". */
void store_path_of(const char *folder, const char *kind, const char *id, const char *ending, char path[STORE_PATH_MAX]);

/* True if there is a file of that path. */
bool store_exists(const char *path);

/* Makes an id: prefix, the time, random digits. Errors: STATUS_IO. */
MUST_CHECK enum status store_make_id(const char *prefix, char id[STORE_ID_MAX], struct err *err);

/* True if bytes can be an id with that prefix, and so part of a path. */
bool store_is_id(const char *id, const char *prefix);

/* Appends the object of a new file to `to`. life_s: it expires after these seconds; 0: never. */
void store_put_file(struct buffer *to, const char *id, uint64_t bytes, const char *filename, const char *purpose,
                    uint64_t life_s);

/* Appends the object of a file. Errors: STATUS_NOT_FOUND, also if it has expired; those of file_read. */
MUST_CHECK enum status store_read_file(const char *folder, const char *id, struct buffer *to, struct err *err);

/* Deletes a file. Errors: STATUS_NOT_FOUND, what errno says. */
MUST_CHECK enum status store_delete_file(const char *folder, const char *id, struct err *err);

/* Copies the bytes [begin, end) of an open file to the end of another one; `path` is for the message. Errors: what
 * errno says; STATUS_IO if it has fewer. */
MUST_CHECK enum status store_copy(int from, uint64_t begin, uint64_t end, int to, const char *path, struct err *err);

/* True if the disk has room for these bytes, and keeps 1 GiB free, or a twentieth of a small disk: batches write more
 * than they read, and others use the disk, too. */
bool store_has_room(const char *folder, uint64_t bytes);

/* Reads and writes the object of a batch; at[BATCH_CANCELLING] says whether somebody has asked for its end. Owns: the
 * caller ends the batch with stored_batch_free, also after an error. Errors: STATUS_NOT_FOUND, STATUS_BAD_INPUT (it is
 * damaged), those of files. */
MUST_CHECK enum status stored_batch_read(const char *folder, const char *id, struct stored_batch *out, struct err *err);
MUST_CHECK enum status stored_batch_write(const char *folder, const struct stored_batch *batch, struct err *err);

/* Appends the object. */
void stored_batch_put(struct buffer *to, const struct stored_batch *batch);

/* Frees what it owns. */
void stored_batch_free(struct stored_batch *batch);

/* True if nothing changes it any more. */
bool stored_batch_has_ended(const struct stored_batch *batch);

/* Removes what only a batch that has not ended needs; its lock, which the caller holds, comes last. */
void store_remove_rest(const char *folder, const char *id);

/* Names in their order. Zero-initialise. */
struct store_names {
    struct buffer bytes;
    char **at; /* [count] */
    size_t count;
};

/* The names in a folder that end with `ending`, without it. Owns: the caller ends them with store_names_free, also
 * after an error. Errors: what errno says; STATUS_NO_MEMORY. */
MUST_CHECK enum status store_list(const char *folder, const char *kind, const char *ending, struct store_names *names,
                                  struct err *err);
void store_names_free(struct store_names *names);

#endif
