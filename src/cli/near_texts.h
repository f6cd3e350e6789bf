/* What to show beside the rows of an answer: the documents that they were made from, found by reading the input again.
 */
#ifndef CLI_NEAR_TEXTS_H
#define CLI_NEAR_TEXTS_H

#include "bulk/nearest.h"
#include "bulk/output.h"
#include "bulk/source.h"

/* What stands beside one row. */
struct near_text {
    uint64_t document; /* of the row */
    char *text, *id;   /* owned; the id is JSON, NULL where the number of the document is its id; text NULL: none */
    size_t text_bytes;
};

/* Reads the input to its end and keeps what belongs to the rows; `source` NULL: only the numbers of the documents.
 * Rows are documents, unless the output has a file that says which document each row is a chunk of. `documents` is how
 * many there must be; 0 when nobody knows.
 * Shapes: texts [nearest->count], written, also when it fails. Owns: the caller frees them with near_texts_free.
 * Errors: those of source_next; STATUS_BAD_INPUT when the input has more or fewer documents; STATUS_NO_MEMORY. */
MUST_CHECK enum status near_texts_find(const struct output *output, const struct nearest *nearest,
                                       struct source *source, uint64_t documents, struct near_text *texts,
                                       struct err *err);

/* Frees texts and ids; the array stays the caller's. Shapes: texts [count]. */
void near_texts_free(struct near_text *texts, uint32_t count);

#endif
