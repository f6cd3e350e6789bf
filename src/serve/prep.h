/* The prep pool: tokenises requests and writes their reply bytes, away from the I/O thread.
 *
 * Requests travel in jobs of a few dozen, so that a handover between threads is shared by many and several threads can
 * work on one read. Jobs are a fixed set; requests that find none wait in a list here, so nothing can fail or block.
 *
 * A long text that must be read to its end (it is to be counted, or is nothing but blanks) takes as long as thousands
 * of short ones. So long ones have a list of their own, and of their jobs so few are out that with several threads one
 * is always left for short ones, and with one thread these wait for one such job at most: the compute threads get work
 * whatever is sent. */
#ifndef SERVE_PREP_H
#define SERVE_PREP_H

#include <stdbool.h>

#include "model/model.h"
#include "work/request.h"

/* What is done with requests: tokenised before the engine, written as bytes after it. */
enum prep_kind { PREP_PREPARE, PREP_FORMAT, PREP_KINDS };

/* Where requests wait, in the order in which they get a job. */
enum prep_queue { PREP_FORMAT_QUEUE, PREP_LONG_QUEUE, PREP_SHORT_QUEUE, PREP_QUEUES };

struct prep;

/* One queue's client at the pool; lives as long as the pool. */
struct prep_client {
    const struct model *model;
    struct request_list waiting[PREP_QUEUES]; /* the pool's */
    struct request_list done[PREP_KINDS];     /* finished; the client's owner empties them */
    struct prep_client *next;                 /* the pool's ring of clients */
};

/* Starts the threads. `wake_fd` is an eventfd written when finished requests wait.
 * Owns: the caller ends it with prep_close. Errors: STATUS_NO_MEMORY, STATUS_IO. */
MUST_CHECK enum status prep_open(unsigned threads, int wake_fd, struct prep **out, struct err *err);

/* Sets up a client for requests of this model, which must outlive the pool. */
void prep_add(struct prep *prep, struct prep_client *client, const struct model *model);

/* Hands requests over at a client; empties the list. Thread: the opener's, as for all of this. */
void prep_put(struct prep *prep, struct prep_client *client, enum prep_kind kind, struct request_list *requests);

/* Moves all finished requests to `done` of their clients, and starts waiting ones: clients take turns. */
void prep_take(struct prep *prep);

/* Lets the threads finish and joins them. Requests that were not taken stay whose they were: the worker, which knows
 * all of them, frees them. NULL is allowed. */
void prep_close(struct prep *prep);

#endif
