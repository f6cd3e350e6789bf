/* From an entry to its first stage: see admit.c. */
#ifndef SCHEDULE_WORKER_ADMIT_H
#define SCHEDULE_WORKER_ADMIT_H

#include "schedule/worker.h"

/* The bytes of an entry's fields. */
uint64_t entry_bytes(const struct entry *entry);

/* Makes a request of an entry, holds it and routes it. If it is held already, only the delivery is noted. */
void admit_entry(struct worker *worker, const struct entry *entry);

/* Drops the name of a request that was not its own (VERDICT_NOT_ITS_NAME), and settles the request again. */
void admit_disowned(struct worker *worker, struct request *request);

/* Refuses a request, because too many wait for their time (VERDICT_LATER_FULL). */
void admit_refused(struct worker *worker, struct request *request);

/* Returns whether it is too late to start a request. If so, it has its code, and the caller finishes it. */
bool admit_expired(const struct worker *worker, struct request *request);

#endif
