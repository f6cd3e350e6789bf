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

/* A docs: a few hundred documents on their way from the reader to the executor. It owns their bytes, their pieces and
 * the token ids; one prep thread works on it at a time. */

enum { DOC_BATCH_MAX = 256, DOC_BATCH_BYTES = 1 << 18 };

struct output_row;
struct lookahead;

/* A text for one forward pass: a document, or a chunk of one. */
struct piece {
    struct row row; /* first, so that a batch's row leads back here: text, text_bytes; ids, tokens if asked for */
    struct output_row *owner; /* whose vector, or part of a vector, it is */
    struct hash hash;
    float *vector;      /* [dim] where its vector goes */
    enum row_code code; /* set by the executor when this piece alone failed */
};

/* Documents with all that belongs to them. */
struct doc_batch {
    struct doc_batch *next;   /* in its window */
    struct lookahead *window; /* whose it is */
    struct document documents[DOC_BATCH_MAX];
    uint32_t count;
    struct buffer bytes; /* what the documents point to; never moves while there are any */
    const char *file;    /* the copy of the last document's file name in it */

    /* By doc_batch_prepare. */
    uint32_t first_piece[DOC_BATCH_MAX + 1]; /* the pieces of document d are first_piece[d] .. first_piece[d + 1] */
    struct piece *pieces;                    /* [piece_room] */
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

/* An empty docs. Owns: the caller ends it with doc_batch_free. NULL when memory ran out. */
struct doc_batch *doc_batch_new(void);

/* Frees it with its documents, pieces and ids. NULL is allowed. */
void doc_batch_free(struct doc_batch *docs);

/* Forgets the documents and keeps the memory, unless it is more than usual. */
void doc_batch_reset(struct doc_batch *docs);

/* Copies a document with all that it points to. `*added` is false when there is no room; never in an empty docs.
 * Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status doc_batch_add(struct doc_batch *docs, const struct document *document, bool *added,
                                     struct err *err);

/* Hashes, cuts and tokenises every good document; sets status and err. `scratch` is the thread's. Thread: any, one a
 * docs. */
void doc_batch_prepare(struct doc_batch *docs, const struct preparer *preparer, struct buffer *scratch);

/* What is to become of a row. */
enum row_state {
    STATE_TODO,
    STATE_DONE,   /* it was computed, and its vector is in the window */
    STATE_STORED, /* its vector is in the store */
    STATE_COPY,   /* the same text as `origin`, whose vector it gets in the end */
    STATE_FAILED, /* for `code` */
    STATE_KEPT,   /* an earlier run has written it, and nothing about it changes */
};

/* A row of the output: a document, or a chunk of one. */
struct output_row {
    uint64_t number; /* of the row, in the job */
    const struct document *document;
    uint32_t chunk; /* which of the document's */
    enum row_state state;
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
struct lookahead {
    struct doc_batch *first, *last;
    uint32_t documents;
    size_t bytes;      /* of texts */
    uint64_t pieces;   /* that the documents will make, about */
    unsigned docs_out; /* at the prep threads */
    bool planned;

    struct output_row *rows; /* [row_count] */
    uint32_t row_count, row_room;
    struct piece **order; /* [order_count] what is to be computed, longest first */
    uint32_t *weights;    /* [order_count] of each: tokens, or bytes where there are none */
    uint32_t order_count, order_room;
    uint32_t submitted; /* of them */
    uint32_t batches_out;
    uint64_t since_ns; /* when the first vector came that is not written; 0: there is none */
    uint32_t finished; /* of the rows */
    float *vectors;    /* [row_count, dim] */
    size_t vectors_room;

    /* At its end. */
    uint64_t end_documents, end_bytes; /* of the input */
    struct hash end_digest;
};

/* Puts a docs behind the others. */
void lookahead_push(struct lookahead *window, struct doc_batch *docs);

/* How the rows of a window are numbered: a document's as it is, chunks one behind the other, or from their document's
 * first row on. */
enum numbering { NUMBER_DOCUMENTS, NUMBER_CHUNKS, NUMBER_CHUNKS_AGAIN };

/* Makes the rows of all prepared doc batches: one for each document or chunk; NUMBER_CHUNKS counts from `first_row` on.
 * Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status lookahead_make_rows(struct lookahead *window, uint64_t first_row, enum numbering numbering,
                                           struct err *err);

/* Puts the pieces of all rows that are to be computed in order, longest first, and of one length as they were read;
 * every one gets its place for a vector, and rows of several pieces room for their parts. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status lookahead_order(struct lookahead *window, uint32_t dim, struct err *err);

/* How many pieces from `first` on make a batch: at least one, then as many as the bounds allow, of `count`. */
uint32_t lookahead_batch(const struct lookahead *window, uint32_t first, uint32_t count, uint32_t most_weight,
                         uint32_t most_rows);

/* What so many pieces from `first` on weigh. */
uint64_t lookahead_weight(const struct lookahead *window, uint32_t first, uint32_t count);

/* Where a row's vector is in the window. Shapes: [dim]. */
float *lookahead_vector(const struct lookahead *window, const struct output_row *row, uint32_t dim);

/* Empties it; its doc batches go to the list `*idle`. */
void lookahead_reset(struct lookahead *window, struct doc_batch **idle);

/* Frees it with its doc batches. */
void lookahead_free(struct lookahead *window);

#endif
