/* What window.c (who waits, and in which order) and window_take.c (who goes) share. */
#ifndef WORK_WINDOW_STATE_H
#define WORK_WINDOW_STATE_H

#include "work/window.h"

/* The row whose turn it is; NULL when nobody waits. */
struct row *window_next(struct window *window);

/* The row that waits longest; NULL when nobody waits. */
struct row *window_oldest(const struct window *window);

/* Takes a row in hand, charged to its class and tenant; then it either goes back as the first of its tenant (overdue:
 * before everybody), uncharged, or leaves. Rows go back in the reverse order. */
void window_hold(struct window *window, struct row *row);
void window_unhold(struct window *window, struct row *row);
void window_leave(struct window *window, struct row *row);

/* To be called when a batch was taken: flows without rows end, and the level rises. */
void window_taken(struct window *window);

bool window_row_expired(const struct row *row, uint64_t now_ms);
void window_leave_expired(struct window *window, struct row *row);

#endif
