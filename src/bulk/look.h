/* The look-ahead: tens of thousands of rows that are sorted by length together, so that a batch holds rows of about one
 * length; and given out in input order once all of them are computed. */
#ifndef BULK_LOOK_H
#define BULK_LOOK_H

#include "bulk/slice.h"

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
    uint32_t pieces_left; /* to be computed, as far as look_note has been told */
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
    struct look_range *computed; /* [computed_count] of them: not noted yet */
    uint32_t computed_count, computed_room;
    uint64_t since_ns; /* when the first vector came that is not written; 0: there is none */
    bool several;      /* some units have several pieces */
    uint32_t finished; /* of the units */
    float *vectors;    /* [unit_count, dim] */
    size_t vectors_room;

    /* At its end. */
    uint64_t end_documents, end_bytes; /* of the input */
    struct hash end_digest;
};

/* Pieces that stand side by side in the order. */
struct look_range {
    uint32_t first, count;
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

/* So many pieces from `first` on in the order have been computed. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status look_computed(struct look *window, uint32_t first, uint32_t count, struct err *err);

/* Counts what was computed off its units' pieces; how many units now are complete that were not. It looks at each of
 * them, all over memory, which is why that waits until somebody wants to know. */
uint32_t look_note(struct look *window);

/* Where a unit's vector is in the window. Shapes: [dim]. */
float *look_vector(const struct look *window, const struct unit *unit, uint32_t dim);

/* Empties it; its slices go to the list `*idle`. */
void look_reset(struct look *window, struct slice **idle);

/* Frees it with its slices. */
void look_free(struct look *window);

#endif
