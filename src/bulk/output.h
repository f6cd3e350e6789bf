/* Where the output of a job goes: what the name on the command line means, and the names of all files beside it. */
#ifndef BULK_OUTPUT_H
#define BULK_OUTPUT_H

#include <stdbool.h>

#include "base/err.h"

/* What is written: a .npy, bare floats, JSON lines, or a folder of .npy files. */
enum output_kind { OUTPUT_NPY, OUTPUT_RAW, OUTPUT_JSONL, OUTPUT_SHARDS };

/* Of a file F the others are called F.manifest.json and so on; of a folder they lie in it. */
struct output {
    enum output_kind kind;
    bool standard;   /* JSON lines to standard output; there are no other files */
    char *path;      /* of the file or folder */
    char *job;       /* the folder that is there while the job is not finished */
    char *journal;   /* in it */
    char *scratch;   /* in it: the vectors, where the output itself is not their place */
    char *manifest;  /* says that the job is finished, and what it gave */
    char *failures;  /* JSON lines: rows that failed */
    char *ids;       /* JSON lines: the id of each row, where it is not its number */
    char *documents; /* .npy of u64: the document of each row, where rows are chunks */
};

/* Reads FILE.npy, FILE.jsonl, FILE.f32, FOLDER/ (or a folder that exists), or "-".
 * Owns: the caller ends it with output_free, also after an error. Errors: STATUS_BAD_INPUT (another ending),
 * STATUS_NO_MEMORY. */
MUST_CHECK enum status output_name(const char *path, struct output *out, struct err *err);

/* Frees the names and leaves none. */
void output_free(struct output *output);

#endif
