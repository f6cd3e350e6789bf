/* The look-ahead: tens of thousands of rows that are sorted by length together, so that a batch holds rows of about one
 * length; and given out in input order once all of them are computed. */
#ifndef BULK_LOOKAHEAD_H
#define BULK_LOOKAHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "bulk/input/document.h"
#include "model/model.h"
#include "work/request.h"

/* Cutting long texts into chunks that the model takes whole. */

/* How; tokens 0: not at all. */
struct chunking {
    uint32_t tokens;  /* at most so many in a chunk, special tokens and prompt included */
    uint32_t overlap; /* about so many at the end of a chunk are at the beginning of the next one, too */
    bool mean;        /* one vector for a document, the mean of its chunks' */
};

/* A part of a text. */
struct chunk {
    size_t begin, end; /* bytes */
};

/* Reads "tokens:256,overlap:32,mean"; parts in any order, `tokens` is required.
 * Errors: STATUS_BAD_INPUT saying what is wrong with it. */
MUST_CHECK enum status chunking_parse(const char *text, struct chunking *out, struct err *err);

/* Cuts a text at ends of sentences where possible, else between words, else inside one. Every byte but white space at
 * the cuts is in a chunk; a text has at least one. Appends struct chunk to `chunks`; `scratch` is the thread's.
 * Errors: STATUS_NO_MEMORY; STATUS_BAD_INPUT (not UTF-8). Thread: any. */
MUST_CHECK enum status chunk_cut(const struct chunking *chunking, const struct model *model, const char *text,
                                 size_t length, struct buffer *chunks, struct buffer *scratch, struct err *err);

/* A slice: a few hundred documents on their way from the reader to the executor. It owns their bytes, their pieces and
 * the token ids; one prep thread works on it at a time. */

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

/* What is to become of a unit. */
enum unit_state {
    UNIT_TODO,
    UNIT_DONE,   /* it was computed, and its vector is in the window */
    UNIT_STORED, /* its vector is in the store */
    UNIT_COPY,   /* the same text as `origin`, whose vector it gets in the end */
    UNIT_FAILED, /* for `code` */
    UNIT_KEPT,   /* an earlier run has written it, and nothing about it changes */
};

/* A row of the output: a document, or a chunk of one. */
struct unit {
    uint64_t number; /* of the row, in the job */
    const struct document *document;
    uint32_t chunk; /* which of the document's */
    enum unit_state state;
    enum row_code code;
    struct hash hash;
    uint64_t origin;
    struct piece *pieces; /* [piece_count], more than one when their mean is the vector; none when it failed at once */
    uint32_t piece_count;
    uint32_t pieces_left; /* to be computed */
    bool here;            /* its vector is in the window (too) */
    float *parts;         /* [piece_count, dim] the vectors of several pieces */
};

/* A window. Zero-initialise for an empty one. */
struct look {
    struct slice *first, *last;
    uint32_t documents;
    size_t bytes;        /* of texts */
    uint64_t pieces;     /* that the documents will make, about */
    unsigned slices_out; /* at the prep threads */
    bool planned;

    struct unit *units; /* [unit_count] */
    uint32_t unit_count, unit_room;
    struct piece **order; /* [order_count] what is to be computed, longest first */
    uint32_t *weights;    /* [order_count] of each: tokens, or bytes where there are none */
    uint32_t order_count, order_room;
    uint32_t submitted; /* of them */
    uint32_t batches_out;
    uint64_t since_ns; /* when the first vector came that is not written; 0: there is none */
    uint32_t finished; /* of the units */
    float *vectors;    /* [unit_count, dim] */
    size_t vectors_room;

    /* At its end. */
    uint64_t end_documents, end_bytes; /* of the input */
    struct hash end_digest;
};

/* Puts a slice behind the others. */
void look_push(struct look *window, struct slice *slice);

/* How the units of a window are numbered: a document's as it is, chunks one behind the other, or from their document's
 * first row on. */
enum numbering { NUMBER_DOCUMENTS, NUMBER_CHUNKS, NUMBER_CHUNKS_AGAIN };

/* Makes the units of all prepared slices: one for each document or chunk; NUMBER_CHUNKS counts from `first_row` on.
 * Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status look_count(struct look *window, uint64_t first_row, enum numbering numbering, struct err *err);

/* Puts the pieces of all units that are to be computed in order, longest first, and of one length as they were read;
 * every one gets its place for a vector, and units of several pieces room for their parts. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status look_order(struct look *window, uint32_t dim, struct err *err);

/* How many pieces from `first` on make a batch: at least one, then as many as the bounds allow, of `count`. */
uint32_t look_batch(const struct look *window, uint32_t first, uint32_t count, uint32_t most_weight,
                    uint32_t most_rows);

/* What so many pieces from `first` on weigh. */
uint64_t look_weight(const struct look *window, uint32_t first, uint32_t count);

/* Where a unit's vector is in the window. Shapes: [dim]. */
float *look_vector(const struct look *window, const struct unit *unit, uint32_t dim);

/* Empties it; its slices go to the list `*idle`. */
void look_reset(struct look *window, struct slice **idle);

/* Frees it with its slices. */
void look_free(struct look *window);

#endif
