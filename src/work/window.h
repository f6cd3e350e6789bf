/* The window: rows that wait for a batch, and the choice of who goes next. Pure; private to work/.
 *
 * Greedy (the default): a free compute thread never waits; while all are busy, rows collect, which makes the next batch
 * large without a timer. `fixed`: a plain timer of window_ms, whatever the engine does. Either way a full batch is cut
 * as soon as it is full. */
#ifndef WORK_WINDOW_H
#define WORK_WINDOW_H

#include "work/batch.h"

enum {
    WINDOW_LOOK_AHEAD = 256,  /* rows among which a batch is chosen (more only where a batch may be larger) */
    WINDOW_PASSED_OVER = 4,   /* so often a row may be left behind for younger ones; then it is the head */
    WINDOW_BATCH_ROWS = 1024, /* the largest max_batch_rows */
};

struct window {
    struct row *first, *last; /* oldest first */
    uint32_t rows;
    uint64_t tokens;
};

/* The size of one batch. Padded batches count rows * longest. */
struct window_limits {
    enum batch_layout layout;
    uint32_t tokens;
    uint32_t rows; /* <= WINDOW_BATCH_ROWS */
};

/* Adds a row as the youngest, or puts one back as the oldest. Owns: the row stays its request's. */
void window_push(struct window *window, struct row *row, uint64_t now_ns);
void window_put_back(struct window *window, struct row *row);

/* Takes the oldest row whatever it is; NULL when there is none. */
struct row *window_pop(struct window *window);

/* Whether a batch of these limits could be full. */
bool window_full(const struct window *window, const struct window_limits *limits);

/* Takes the rows of the next batch out of the window: the head always (alone, when it is larger than the limits), the
 * rest from the look-ahead. Packed: the oldest that still fit. Padded: the nearest in length, as long as at most a
 * quarter of the batch is padding. Shapes: chosen [limits->rows], written. Returns how many. */
uint32_t window_take(struct window *window, const struct window_limits *limits, struct row **chosen);

#endif
