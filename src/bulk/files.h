/* What the command line names, as files in a fixed order: operands as they stand, the files of a folder sorted by name.
 */
#ifndef BULK_FILES_H
#define BULK_FILES_H

#include <fts.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Where the walk over the operands is. */
struct files {
    char *const *operands; /* [count] paths; "-" is standard input */
    size_t count, next;
    const char *glob;     /* of the names of files in folders; NULL: *.txt and *.md */
    FTS *walk;            /* of the folder that is being read */
    uint64_t total_bytes; /* of all files; 0 when nobody knows */
};

/* A file that was found. */
struct file_name {
    const char *path; /* NULL: there is no more; else until the next call */
    bool in_folder;
};

/* Looks at every operand, and at every file in folders: so that what is missing is known before anything is computed.
 * Owns: `operands` and `glob` stay the caller's and must outlive it; ended with files_close.
 * Errors: STATUS_NOT_FOUND, STATUS_DENIED, STATUS_IO naming the operand. */
MUST_CHECK enum status files_open(struct files *files, char *const *operands, size_t count, const char *glob,
                                  struct err *err);

/* Ends the walk. */
void files_close(struct files *files);

/* The next file. Links are followed; a folder that links to itself is read once. Errors: those of files_open. */
MUST_CHECK enum status files_next(struct files *files, struct file_name *out, struct err *err);

#endif
