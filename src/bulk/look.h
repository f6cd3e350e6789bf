/* The look-ahead: tens of thousands of rows that are sorted by length together, so that a batch holds rows of about one
 * length; and given out in input order once all of them are computed. */
#ifndef BULK_LOOK_H
#define BULK_LOOK_H

#include "bulk/slice.h"

enum unit_state {
    UNIT_TODO,
    UNIT_DONE,   /* its vector is in its place */
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
    uint32_t piece_count, pieces_left;
    float *parts; /* [piece_count, dim] the vectors of several pieces */
};

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
    uint32_t order_count, order_room;
    uint32_t submitted; /* of them */
    uint32_t batches_out;
    uint32_t finished; /* of the units */
    float *vectors;    /* [unit_count, dim] where no store keeps them */

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

/* Puts the pieces of all units that are to be computed in order, by tokens, or by bytes where there are no tokens.
 * Units of several pieces get room for their parts. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status look_order(struct look *window, uint32_t dim, struct err *err);

/* How many of the pieces make a batch: at least one, then as many as the bounds allow. And what they weigh: tokens, or
 * bytes. Shapes: pieces [count], count > 0. */
uint32_t look_batch(struct piece *const *pieces, uint32_t count, uint32_t most_tokens, uint32_t most_rows);
uint64_t look_weight(struct piece *const *pieces, uint32_t count);

/* Empties it; its slices go to the list `*idle`. */
void look_reset(struct look *window, struct slice **idle);
void look_free(struct look *window);

#endif
