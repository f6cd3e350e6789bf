/* Finds the kind of a file by its first bytes, whatever its name says. */
#ifndef BULK_INPUT_SNIFF_H
#define BULK_INPUT_SNIFF_H

#include <stddef.h>

enum { SNIFF_BYTES = 4096 };

enum sniffed {
    SNIFF_TEXT,
    SNIFF_JSON_ARRAY,  /* begins with [{ or [" or []; white space may be between */
    SNIFF_JSON_LINE,   /* begins with {" */
    SNIFF_JSON_SPREAD, /* the first line is a brace: an object over several lines */
    SNIFF_OTHER,       /* nothing that a job reads */
};

/* Finds the kind of a file by its first SNIFF_BYTES bytes, unpacked, or by all that it has. For SNIFF_OTHER `*name` is
 * the kind, "Parquet", and `*way` says how to get texts out of it: a command with FILE in it. Thread: any. */
enum sniffed sniff(const char *bytes, size_t length, const char **name, const char **way);

#endif
