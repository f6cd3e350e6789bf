/* The rows of a batch that is back: see rows.c. Only rows.c writes struct rows. */
#ifndef SCHEDULE_WORKER_ROWS_H
#define SCHEDULE_WORKER_ROWS_H

#include "schedule/worker.h"

struct rows {
    struct batch_list halves; /* of failed batches, in the order of their runs */
};

/* Counts the rows of a new batch, and their duplicates, as out. */
void rows_go(struct worker *worker, const struct batch *batch);

/* Puts a row and its duplicates back into the window, because no batch could be made. */
void rows_uncut(struct worker *worker, struct row *row);

/* Takes a request's waiting rows out of the window, because they need not run. */
void rows_drop(struct worker *worker, struct request *request);

/* Hands out the vectors of a batch that has run, or searches for the guilty row by halves. Owns: ends the batch. */
void rows_returned(struct worker *worker, struct batch *batch);

/* Sends the halves of failed batches. */
void rows_advance(struct worker *worker);

/* Takes back the halves that have not been sent. */
void rows_unstarted(struct worker *worker);

#endif
