/* The files of a job: the meaning of the name on the command line, the names of all other files, and those that only
 * grow. */
#ifndef BULK_OUTPUT_FILES_H
#define BULK_OUTPUT_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"

/* A .npy file, bare floats, JSON Lines, or a folder of .npy files. */
enum output_kind { OUTPUT_NPY, OUTPUT_RAW, OUTPUT_JSONL, OUTPUT_SHARDS };

/* Other files of an output F are F.manifest.json and so on; those of a folder are in it. */
struct output {
    enum output_kind kind;
    bool standard;   /* JSON Lines to standard output; no other files */
    char *path;      /* of the file or folder */
    char *job;       /* a folder that exists until the job is finished */
    char *journal;   /* in it */
    char *scratch;   /* in it: vectors, if the output is JSON Lines */
    char *manifest;  /* says that the job is finished, and its results */
    char *failures;  /* JSON Lines: failed rows */
    char *ids;       /* JSON Lines: the id of each row, unless that is its number */
    char *documents; /* .npy of u64: the document of each row, if rows are chunks */
    char *hashes;    /* struct fingerprint of each document, by which a later run sees whether it has changed */
    char *chunks;    /* .npy of u64: begin and end of each chunk in its document's text, in bytes */
};

/* Parses FILE.npy, FILE.jsonl, FILE.f32, FOLDER/ (or a folder that exists), or "-".
 * Owns: the caller ends it with output_free, also after an error. Errors: STATUS_BAD_INPUT (another ending),
 * STATUS_NO_MEMORY. */
MUST_CHECK enum status output_name(const char *path, struct output *out, struct err *err);

/* Frees the names. */
void output_free(struct output *output);

/* A file that only grows, in row order: JSON Lines, failures, ids. Checkpoints have its length, so that anything an
 * interrupted run wrote after one is cut off. Zero-initialise for a file that is not open. */
struct append_file {
    const char *path; /* NULL: not open */
    int fd;
    bool standard;         /* standard output: neither cut nor synced */
    struct buffer pending; /* bytes that are not written yet: append here */
    uint64_t written;
};

/* Opens a file and truncates it to `length`, or opens standard output for "-". `path` must outlive it.
 * Owns: the caller ends it with append_file_close. Errors: STATUS_NOT_FOUND, STATUS_DENIED, STATUS_IO; STATUS_BAD_INPUT
 * when the file is shorter than that. */
MUST_CHECK enum status append_file_open(struct append_file *file, const char *path, uint64_t length, struct err *err);

/* Closes the file, unless it is standard output; drops pending bytes. */
void append_file_close(struct append_file *file);

/* Writes pending bytes; does nothing if the file is not open. Errors: STATUS_IO, STATUS_NO_MEMORY. */
MUST_CHECK enum status append_file_flush(struct append_file *file, struct err *err);

/* append_file_flush, then waits until the file is on disk. Errors: as append_file_flush. */
MUST_CHECK enum status append_file_sync(struct append_file *file, struct err *err);

#endif
