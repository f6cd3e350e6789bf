/* A file of lines, one or several for each line of the input and in the same order. After a kill at any moment the same
 * command goes on with it, and the file has the bytes of an undisturbed run: what is after the last checkpoint of the
 * journal is cut off and written again. Journal, manifest and refusals are those of a bulk job (bulk/job.h), which has
 * vectors.
 *
 * A run: resumable_open; for each line of the input resumable_read; for each that is not `known` resumable_write, in
 * the same order and any time later; now and then resumable_commit; resumable_finish. Thread: one at a time. */
#ifndef BULK_RESUMABLE_H
#define BULK_RESUMABLE_H

#include "bulk/input/stream.h"
#include "bulk/journal.h"
#include "bulk/output/files.h"

/* Read-only for all but resumable.c. */
struct resumable {
    const struct output *output;
    const char *terms;       /* "key=value" lines, as of struct job_options */
    struct buffer began;     /* the terms of the earlier run */
    struct append_file file; /* not open while the job is finished */
    struct journal *journal; /* NULL: standard output, or the job is finished */
    struct checkpoint known; /* of the earlier run: documents are lines of the input */
    struct checkpoint at;    /* of what was written; without the length of the file */
    uint64_t read;           /* lines of the input */
    struct hash digest;      /* of the lines that were read */
    bool finished;           /* nothing has come after the lines that a finished job has */
    bool failed;             /* a commit has: what is in the file is not known, so there is no other one */
    uint64_t durable;        /* lines of `at` that are in the journal */
    uint64_t committed_ns;
};

/* Refuses an input, a path or "-", that is one of the files of the output, whatever its name. Errors: STATUS_BAD_INPUT,
 * STATUS_NOT_FOUND (the output's folder does not exist), STATUS_NO_MEMORY. */
MUST_CHECK enum status resumable_check_input(const struct output *output, char *input, struct err *err);

/* Finds an earlier run and opens the file, or standard output, which is only written. `overwrite` first deletes the
 * files of an earlier job. `output`, of JSON Lines, and `terms` must outlive it. Owns: the caller ends it with
 * resumable_close, also after an error. Errors: STATUS_BAD_INPUT (the earlier run had other terms; a file that no job
 * has made; a file that was cut), STATUS_UNAVAILABLE (another process works on it), those of files. */
MUST_CHECK enum status resumable_open(struct resumable *file, const struct output *output, const char *terms,
                                      bool overwrite, struct err *err);

/* Closes it; what was not committed is written again by the next run. */
void resumable_close(struct resumable *file);

/* Takes the next line of the input, or its end. `*known`: an earlier run has written its line. If not, the caller keeps
 * `file->digest` for resumable_write. Errors: STATUS_BAD_INPUT (the input has changed), those of files. */
MUST_CHECK enum status resumable_read(struct resumable *file, const struct record *record, bool *known,
                                      struct err *err);

/* The lines of the output for a line of the input. */
struct written_line {
    struct hash digest;         /* as it was after resumable_read */
    const struct buffer *lines; /* with line feeds */
    uint64_t rows, failed;      /* lines; those that say why there is no result */
    uint64_t tokens;
};

/* Appends the lines of the next line of the input. Errors: the next resumable_commit has them. */
void resumable_write(struct resumable *file, const struct written_line *line);

/* Hands written lines to the system, and once a second, or if `all`, makes them durable. Errors: STATUS_IO (or an
 * earlier commit has failed), STATUS_NO_MEMORY. */
MUST_CHECK enum status resumable_commit(struct resumable *file, bool all, struct err *err);

/* Ends the job after the last line: commits, writes the manifest with `facts` (as of struct job_options), and removes
 * the journal. Errors: those of resumable_commit and manifest_write. */
MUST_CHECK enum status resumable_finish(struct resumable *file, const char *facts, struct err *err);

#endif
