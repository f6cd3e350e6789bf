/* A slice: a few hundred documents on their way from the reader to the executor. It owns their bytes, their pieces and
 * the token ids; one prep thread works on it at a time. */
#ifndef BULK_SLICE_H
#define BULK_SLICE_H

#include <stdbool.h>

#include "base/buffer.h"
#include "bulk/chunk.h"
#include "bulk/document.h"
#include "model/model.h"
#include "work/request.h"

enum { SLICE_DOCUMENTS = 256, SLICE_BYTES = 1 << 18 };

struct unit;
struct look;

/* A text for one forward pass: a document, or a chunk of one. */
struct piece {
    struct row row;    /* first, so that a batch's row leads back here: text, text_bytes; ids, tokens if asked for */
    struct unit *unit; /* whose vector, or part of a vector, it is */
    struct hash hash;
    float *vector;      /* [dim] where its vector goes */
    enum row_code code; /* set by the executor when this piece alone failed */
};

/* Documents with all that belongs to them. */
struct slice {
    struct slice *next;  /* in its window */
    struct look *window; /* whose it is */
    struct document documents[SLICE_DOCUMENTS];
    uint32_t count;
    struct buffer bytes; /* what the documents point to; never moves while there are any */
    const char *file;    /* the copy of the last document's file name in it */

    /* By slice_prepare. */
    uint32_t first_piece[SLICE_DOCUMENTS + 1]; /* the pieces of document d are first_piece[d] .. first_piece[d + 1] */
    struct piece *pieces;                      /* [piece_room] */
    uint32_t piece_count, piece_room;
    struct buffer ids; /* int32 */
    enum status status;
    struct err err;
};

/* What the prep threads do; read only. */
struct preparer {
    const struct model *model; /* NULL: no ids are wanted, and nothing is chunked */
    bool ids;                  /* tokenise */
    uint64_t seed;             /* of the hashes by which equal texts are found: who writes texts must not know it */
    struct chunking chunking;
};

/* An empty slice. Owns: the caller ends it with slice_free. NULL when memory ran out. */
struct slice *slice_new(void);

/* Frees it with its documents, pieces and ids. NULL is allowed. */
void slice_free(struct slice *slice);

/* Forgets the documents and keeps the memory, unless it is more than usual. */
void slice_reset(struct slice *slice);

/* Copies a document with all that it points to. `*added` is false when there is no room; never in an empty slice.
 * Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status slice_add(struct slice *slice, const struct document *document, bool *added, struct err *err);

/* Hashes, cuts and tokenises every good document; sets status and err. `scratch` is the thread's. Thread: any, one a
 * slice. */
void slice_prepare(struct slice *slice, const struct preparer *preparer, struct buffer *scratch);

#endif
