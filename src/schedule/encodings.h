/* Encodings of vectors in replies. */
#ifndef SCHEDULE_ENCODINGS_H
#define SCHEDULE_ENCODINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "schedule/request.h"

/* The floats of a reply. */
struct vector_run {
    const float *floats; /* [rows, dims] */
    uint32_t rows, dims;
    bool nested; /* json: an array of arrays */
};

/* The words for an encoding: "default" for none, then the name of each, then NULL. */
extern const char *const encoding_words[ENCODING_COUNT + 2];

/* The name of an encoding in fields and replies. */
const char *encoding_name(enum encoding encoding);

/* The most bytes that a run takes. */
size_t encoding_room(enum encoding encoding, const struct vector_run *run);

/* Writes a run, and returns the end of what it wrote. `to` has encoding_room bytes. */
char *encoding_put(enum encoding encoding, const struct vector_run *run, char *to);

/* Appends the floats of an embedding, as f32 of this machine, to `floats`. False if the bytes do not fit the encoding
 * (by its name); always for json, which its readers print as it is. */
MUST_CHECK bool encoding_read(const char *encoding, const char *bytes, size_t length, struct buffer *floats);

#endif
