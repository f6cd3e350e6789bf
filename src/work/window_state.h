/* What window.c (who waits, and in which order) and window_take.c (who goes) share. */
#ifndef WORK_WINDOW_STATE_H
#define WORK_WINDOW_STATE_H

#include "work/window.h"

/* Whether a row may go. */
static inline bool window_admits(enum window_only only, const struct row *row)
{
    return only == WINDOW_ALL || (only == WINDOW_LOW) == (row->request->class == CLASS_LOW);
}

/* The row whose turn it is; NULL when nobody waits. */
struct row *window_next(struct window *window);

/* Whether it is the turn of class high, but for who is overdue. */
bool window_high_is_next(const struct window *window);

/* The row that waits longest; NULL when nobody waits. */
struct row *window_oldest(const struct window *window);

/* Takes a row in hand: out of its flow, charged to its class and tenant. */
void window_hold(struct window *window, struct row *row);

/* Puts a row in hand back as the first of its tenant, or of all where it is overdue, and takes the charge back. Rows
 * go back in the reverse order. */
void window_unhold(struct window *window, struct row *row);

/* Takes a row out of the window, whether it is in hand or not. */
void window_leave(struct window *window, struct row *row);

/* To be called when a batch was taken: flows without rows end, and the level rises. */
void window_taken(struct window *window);

/* Whether a row may not start any more; false as long as the time is not known (0). */
bool window_row_expired(const struct row *row, uint64_t now_ms);

/* Takes a row out of the window and puts it aside for window_take_expired. */
void window_leave_expired(struct window *window, struct row *row);

#endif
