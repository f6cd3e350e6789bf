/* Cuts batches: see cut.c. Only cut.c writes struct cut. */
#ifndef SCHEDULE_WORKER_CUT_H
#define SCHEDULE_WORKER_CUT_H

#include "schedule/window.h"
#include "schedule/worker.h"

struct cut {
    struct batch_list running; /* with the executor */
};

/* The limits of the next batch, in size and in time. */
struct window_limits cut_limits(const struct worker *worker);

/* Returns whether another batch may be out. */
bool cut_has_room(const struct worker *worker);

/* Fills an ACTION_SUBMIT with a batch, which counts as running from now on. */
void cut_submit(struct worker *worker, struct action *action, struct batch *batch);

/* EVENT_BATCH: a batch was computed, or failed. */
void cut_returned(struct worker *worker, const struct event *event);

/* Cuts all batches that may begin now. */
void cut_advance(struct worker *worker);

#endif
