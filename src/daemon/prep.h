/* The prep pool: tokenises requests and formats their replies, away from the I/O thread.
 *
 * Requests travel in jobs of a few dozen: a handover between threads serves many, and several threads can work on one
 * read. The number of jobs is fixed. Requests that find no free job wait in a list, so nothing can fail or block.
 *
 * A long text that must be read to its end (to count its tokens, or because it is all blanks) takes as long as
 * thousands of short ones. So long texts have their own list and a limit on jobs: with several threads, one is always
 * left for short texts; with one thread, short texts wait for one such job at most. So the compute threads get work,
 * whatever texts arrive. */
#ifndef DAEMON_PREP_H
#define DAEMON_PREP_H

#include <stdbool.h>

#include "model/model.h"
#include "schedule/request.h"

/* The work on requests: to tokenise them before the engine, or to format their replies after it. */
enum prep_kind { PREP_PREPARE, PREP_FORMAT, PREP_KINDS };

/* The lists in which requests wait, in the order in which they get jobs. */
enum prep_queue { PREP_FORMAT_QUEUE, PREP_LONG_QUEUE, PREP_SHORT_QUEUE, PREP_QUEUES };

struct prep;

/* A queue as a client of the pool. It lives as long as the pool. */
struct prep_client {
    const struct model *model;
    struct request_list waiting[PREP_QUEUES]; /* for the pool only */
    struct request_list done[PREP_KINDS];     /* finished requests; the client's owner empties the lists */
    struct prep_client *next;                 /* the pool's ring of clients */
};

/* Starts the threads. `wake_fd` is an eventfd written when finished requests wait.
 * Owns: the caller ends it with prep_close. Errors: STATUS_NO_MEMORY, STATUS_IO. */
MUST_CHECK enum status prep_open(unsigned threads, int wake_fd, struct prep **out, struct err *err);

/* Adds a client whose requests are for this model, which must outlive the pool. */
void prep_add(struct prep *prep, struct prep_client *client, const struct model *model);

/* Hands over the requests of a client; empties the list. Thread: the opener's, as for all of this. */
void prep_put(struct prep *prep, struct prep_client *client, enum prep_kind kind, struct request_list *requests);

/* Moves all finished requests to `done` of their clients, and starts waiting ones; the clients take turns. */
void prep_take(struct prep *prep);

/* Lets the threads finish, and joins them. Requests that were not taken still belong to the workers, which free them.
 * NULL is allowed. */
void prep_close(struct prep *prep);

#endif
