/* Tells by its first bytes what a file holds, whatever its name says. */
#ifndef BULK_INPUT_SNIFF_H
#define BULK_INPUT_SNIFF_H

#include <stddef.h>

enum { SNIFF_BYTES = 4096 };

enum sniffed {
    SNIFF_TEXT,
    SNIFF_JSON_ARRAY,  /* begins with [{ or [" or []; white space may stand between */
    SNIFF_JSON_LINE,   /* begins with {" */
    SNIFF_JSON_SPREAD, /* the first line is a brace: an object over several lines */
    SNIFF_OTHER,       /* nothing that a job reads */
};

/* What the first bytes of a file are, unpacked; SNIFF_BYTES, or all that it has. For SNIFF_OTHER `*name` says what it
 * is, "Parquet", and `*way` how to get texts out of it: a command with FILE in it. Thread: any. */
enum sniffed sniff(const char *bytes, size_t length, const char **name, const char **way);

#endif
