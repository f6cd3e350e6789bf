/* Where the output of a job goes: what the name on the command line means, and the names of all files beside it. */
#ifndef BULK_OUTPUT_FILES_H
#define BULK_OUTPUT_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
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

/* A file that only grows, in row order: JSON lines, failures, ids. How long it was at a checkpoint is known, so that
 * what an interrupted run had written behind it is cut off. */

/* A file that grows. Zero-initialise for one that is not open. */
struct append_file {
    const char *path; /* NULL: it is not open */
    int fd;
    bool standard;         /* standard output: neither cut nor synced */
    struct buffer pending; /* what is not written yet: append here */
    uint64_t written;
};

/* Opens a file and cuts it at `length`, or standard output for "-". `path` must outlive it.
 * Owns: the caller ends it with append_file_close. Errors: STATUS_NOT_FOUND, STATUS_DENIED, STATUS_IO; STATUS_BAD_INPUT
 * when the file is shorter than that. */
MUST_CHECK enum status append_file_open(struct append_file *file, const char *path, uint64_t length, struct err *err);

/* Closes the file, unless it is standard output; what is pending is lost. */
void append_file_close(struct append_file *file);

/* Writes what is pending; nothing happens to one that is not open. Errors: STATUS_IO, STATUS_NO_MEMORY. */
MUST_CHECK enum status append_file_flush(struct append_file *file, struct err *err);

/* Likewise, and waits until it would survive a power cut. Errors: as append_file_flush. */
MUST_CHECK enum status append_file_sync(struct append_file *file, struct err *err);

#endif
