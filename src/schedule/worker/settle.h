/* Outcomes and their way to Redis: see settle.c. Only settle.c writes struct settle. */
#ifndef SCHEDULE_WORKER_SETTLE_H
#define SCHEDULE_WORKER_SETTLE_H

#include "schedule/worker.h"

enum {
    SETTLE_ENTRIES = 64,  /* in one call of the script */
    LOOK_BYTES = 1 << 20, /* bytes of entries that a script reads in one call; a single entry may be larger */
};

/* Requests with an outcome. */
struct settle {
    struct request_list ready;
    size_t ready_bytes;          /* of their replies */
    struct request_list refused; /* by Redis, for now; each goes to `single` at its time */
    uint64_t refused_at;         /* the first of these times */
    struct request_list single;  /* each settled in its own call, one at a time: they delay no other request */
    bool single_out;
    uint32_t out, max; /* calls in flight; requests in one call */
    bool proving;      /* a reply with which the connection was lost is out again */
};

/* Starts with nothing to settle. */
void settle_open(struct worker *worker);

/* The pause before the run after `attempt`: backoff_ms, doubled for each attempt, ±20 %, at most the cap. Units: ms. */
uint32_t settle_backoff_ms(const struct worker_options *options, uint32_t attempt, uint64_t *random);

/* Turns a request's code into its outcome: done; a retry while the code is transient, attempts are left and the next
 * one would begin before it expires; a dead letter after that, or if it is poison; else an error. An error reply lives
 * at least error_ttl_s. Units: now_ms is Redis' unix ms, 0 if unknown. */
void settle_judge(const struct worker_options *options, struct request *request, uint64_t now_ms, uint64_t *random);

/* Just connected: sends calls that were on their way to Redis again, or refuses their requests. */
void settle_connected(struct worker *worker, enum loss loss);

/* Judges a request by its code and makes it ready to settle. */
void settle_finish(struct worker *worker, struct request *request);

/* Makes a request ready to settle with an outcome decided elsewhere. */
void settle_as(struct worker *worker, struct request *request, enum outcome outcome);

/* Makes a request whose message is no longer in the stream ready to settle as OUTCOME_GONE. */
void settle_gone(struct worker *worker, struct request *request);

/* EVENT_SETTLED: a verdict on each request. */
void settle_settled(struct worker *worker, const struct event *event);

/* Sends settles. */
void settle_advance(struct worker *worker);

/* Takes a request out of the table and frees it. */
void settle_forget(struct worker *worker, struct request *request);

#endif
