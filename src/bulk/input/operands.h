/* The files that a command's operands name. */
#ifndef BULK_INPUT_OPERANDS_H
#define BULK_INPUT_OPERANDS_H

#include <fts.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* The files that the operands name, in a fixed order: operands as given, files of a folder sorted by name. A folder is
 * walked twice, once for sizes and once for files, so that no list of names is held. */
struct operands {
    char *const *paths; /* [count] */
    size_t count, next;
    const char *glob;     /* of the names of files in folders; NULL: *.txt and *.md */
    FTS *walk;            /* of the folder that is being read */
    uint64_t total_bytes; /* of all files; 0: unknown */
};

/* A file that was found. */
struct file_name {
    const char *path; /* valid until the next call; NULL: no more */
    bool in_folder;
};

/* Looks at every operand and every file in folders, so that missing ones are known before anything is computed.
 * Owns: the caller ends it with operands_close, also after an error. Errors: those of stat and fts_read. */
MUST_CHECK enum status operands_open(struct operands *operands, char *const *paths, size_t count, const char *glob,
                                     struct err *err);

/* Closes the folder that is being read. */
void operands_close(struct operands *operands);

/* Finds the next file. Follows links, but reads a folder that links to itself only once. Errors: those of fts_read. */
MUST_CHECK enum status operands_next(struct operands *operands, struct file_name *out, struct err *err);

#endif
