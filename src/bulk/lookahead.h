/* The look-ahead: windows of tens of thousands of rows. A window's texts are sorted by length, so that a batch holds
 * texts of about one length, and its rows are given out in input order once all are computed. */
#ifndef BULK_LOOKAHEAD_H
#define BULK_LOOKAHEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "bulk/input/document.h"
#include "model/model.h"
#include "schedule/request.h"

/* The way to cut long texts into chunks that the model takes whole; tokens 0: they are not cut. */
struct chunking {
    uint32_t tokens;  /* at most, in a chunk; with special tokens and prompt */
    uint32_t overlap; /* about how many tokens of a chunk the next one repeats */
    bool mean;        /* one vector per document: the mean of its chunks' vectors */
};

/* A part of a text. */
struct chunk {
    size_t begin, end; /* bytes */
};

/* Parses "tokens:256,overlap:32,mean"; parts in any order, `tokens` is required.
 * Errors: STATUS_BAD_INPUT naming the problem. */
MUST_CHECK enum status chunking_parse(const char *text, struct chunking *out, struct err *err);

/* Cuts a text at ends of sentences where possible, else between words, else inside a word. Every byte but white space
 * at the cuts is in a chunk; a text has at least one chunk. Appends struct chunk to `chunks`; `scratch` is the
 * thread's. Errors: STATUS_NO_MEMORY; STATUS_BAD_INPUT (not UTF-8). Thread: any. */
MUST_CHECK enum status chunking_cut(const struct chunking *chunking, const struct model *model, const char *text,
                                    size_t length, struct buffer *chunks, struct buffer *scratch, struct err *err);

enum { DOC_BATCH_MAX = 256, DOC_BATCH_BYTES = 1 << 18 };

struct output_row;
struct lookahead;

/* A text for one forward pass: a document, or a chunk of one. */
struct piece {
    struct row row; /* first: a batch's row is cast back to its piece. text, text_bytes; ids, tokens if asked for */
    struct output_row *owner; /* the row whose vector, or a part of it, this piece gives */
    struct hash hash;
    float *vector;      /* [dim] the place of its vector */
    enum row_code code; /* set by the executor if this piece failed */
};

/* A place in the input: everything before it was read. */
struct input_place {
    uint64_t documents;
    uint64_t duplicate_ids; /* see source_duplicates */
    double share;           /* see source_share */
    struct hash digest;     /* of the documents */
};

/* A few hundred documents on their way from the input to the executor, with their bytes, pieces and token ids, which it
 * owns. One thread works on it at a time: first the one that reads, then a prep thread. */
struct doc_batch {
    struct doc_batch *next;   /* in its window */
    struct lookahead *window; /* the window that it belongs to */
    struct document documents[DOC_BATCH_MAX];
    uint32_t count;
    struct buffer bytes; /* the bytes that the documents point to; they never move while there are documents */
    const char *file;    /* the copy of the latest file name */

    const struct preparer *preparer;

    /* Set by the thread that reads: see bulk/read.c. */
    struct input_place end; /* after these documents */
    bool closes;            /* the window ends with them */
    bool ends;              /* the input does, too; `status` and `err` say why */
    struct buffer listed;   /* in a retry: struct listed, the failed chunks to compute again */

    /* Set by doc_batch_prepare. */
    uint32_t first_piece[DOC_BATCH_MAX + 1]; /* the pieces of document d are first_piece[d] .. first_piece[d + 1] */
    struct piece *pieces;                    /* [piece_room] */
    uint32_t piece_count, piece_room;
    uint32_t cut;      /* documents that are longer than the model takes, and lost their end */
    struct buffer ids; /* int32 */
    enum status status;
    struct err err;
};

/* The work of the prep threads; read-only. */
struct preparer {
    const struct model *model; /* NULL: neither ids nor chunks are wanted */
    bool ids;                  /* tokenise */
    uint64_t seed;             /* of the hashes that find equal texts; authors of texts must not know it */
    struct chunking chunking;
};

/* Makes an empty batch for this preparer; NULL when memory ran out. Owns: the caller ends it with doc_batch_free. */
struct doc_batch *doc_batch_new(const struct preparer *preparer);

/* Frees the batch and all that it owns. NULL is allowed. */
void doc_batch_free(struct doc_batch *docs);

/* Copies a document with all that it points to. `*added` is false when there is no room; an empty batch always has
 * room. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status doc_batch_add(struct doc_batch *docs, const struct document *document, bool *added,
                                     struct err *err);

/* Hashes, cuts and tokenises the good documents; sets status and err. Thread: any, one per batch. */
void doc_batch_prepare(struct doc_batch *docs);

/* The state of an output row. */
enum row_state {
    STATE_TODO,
    STATE_DONE,   /* computed; its vector is in the window */
    STATE_STORED, /* its vector is in the store */
    STATE_COPY,   /* it has the text of `origin`, whose vector it will get */
    STATE_FAILED, /* `code` says why */
    STATE_KEPT,   /* an earlier run wrote it, and its document is unchanged */
};

/* A row of the output: a document, or a chunk of one. */
struct output_row {
    uint64_t number; /* in the job */
    const struct document *document;
    uint32_t chunk; /* of the document */
    enum row_state state;
    enum row_code code;
    struct hash hash;
    uint64_t origin;
    struct piece *pieces; /* [piece_count]; several: their mean is the vector; none: it failed when it was read */
    uint32_t piece_count;
    uint32_t pieces_left; /* pieces that are not computed yet */
    bool here;            /* its vector is in the window, perhaps also in the store */
    float *parts;         /* [piece_count, dim] vectors of several pieces */
};

/* A piece in the order of computing. */
struct weighed {
    struct piece *piece;
    uint32_t weight; /* tokens, or bytes where there are none */
};

/* A window of the look-ahead. Zero-initialise for an empty one. */
struct lookahead {
    struct doc_batch *first, *last;
    struct input_place end; /* after the last batch */
    unsigned docs_out;      /* batches at the prep threads */
    bool planned;

    struct output_row *rows; /* [row_count] */
    uint32_t row_count, row_room;
    struct weighed *order; /* [order_count] the pieces to compute, longest first; as many again are scratch */
    uint32_t order_count, order_room;
    uint32_t submitted; /* pieces of `order` that were submitted */
    uint32_t batches_out;
    uint64_t since_ns; /* when the oldest unwritten vector arrived; 0: none */
    uint32_t finished; /* rows that are finished */
    float *vectors;    /* [row_count, dim] */
    size_t vectors_room;
};

/* Appends a batch. */
void lookahead_push(struct lookahead *window, struct doc_batch *docs);

/* The numbering of rows: by document; chunks consecutively; or chunks from their document's `first_row` on. */
enum numbering { NUMBER_DOCUMENTS, NUMBER_CHUNKS, NUMBER_CHUNKS_AGAIN };

/* Makes a row of each document or chunk of the prepared batches; NUMBER_CHUNKS counts from `first_row` on.
 * Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status lookahead_make_rows(struct lookahead *window, uint64_t first_row, enum numbering numbering,
                                           struct err *err);

/* Sorts the pieces to compute, longest first and equal ones in reading order, and gives each a place for its vector.
 * Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status lookahead_order(struct lookahead *window, uint32_t dim, struct err *err);

/* The number of pieces, of `count` from `first` on, that make a batch: at least one, and otherwise as many as fit. */
uint32_t lookahead_batch(const struct lookahead *window, uint32_t first, uint32_t count, uint32_t most_weight,
                         uint32_t most_rows);

/* The tokens of a piece, or its bytes where there are none. */
uint32_t piece_weight(const struct piece *piece);

/* The weight of `count` pieces from `first` on. */
uint64_t lookahead_weight(const struct lookahead *window, uint32_t first, uint32_t count);

/* The place of a row's vector in the window. Shapes: [dim]. */
float *lookahead_vector(const struct lookahead *window, const struct output_row *row, uint32_t dim);

/* Empties the window and frees its batches. */
void lookahead_reset(struct lookahead *window);

/* Frees the window and its batches. */
void lookahead_free(struct lookahead *window);

#endif
