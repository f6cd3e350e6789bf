/* Fairness when there is more work than can be done: see fairness.c. Only fairness.c writes struct fairness. */
#ifndef SCHEDULE_WORKER_FAIRNESS_H
#define SCHEDULE_WORKER_FAIRNESS_H

#include "schedule/worker.h"

enum { ENOUGH_MAX = 32 }; /* tenants that a search tells apart */

/* The state of a class. */
struct fair_class {
    bool over_cap;               /* perhaps more requests must be refused */
    struct entry_id shed_after;  /* unread entries up to here hold no cancels */
    struct entry_id shed_before; /* all entries to refuse from here on were taken; 0-0: none yet */

    bool tenants;          /* an entry named a tenant since the backlog began */
    uint64_t at, pass_at;  /* the next search; until pass_at, searches are at the tail only */
    struct entry_id after; /* where the pass continues */
    struct entry_id first; /* where this pass, or an earlier one, found its first entry */
    struct entry_id tail;  /* all entries up to here were searched once */
    bool found, tail_known, at_tail;
};

/* The state of all classes. */
struct fairness {
    struct fair_class classes[CLASS_COUNT];
    bool calling;     /* ACTION_SHED or ACTION_FAIR is out */
    uint64_t sent_at; /* when the search that is out was sent */
    bool aside;       /* it sets entries aside for other workers */
    char enough[ENOUGH_MAX][TENANT_MAX + 1];
};

/* Notes that an entry of this tenant came. */
void fairness_admitted(struct worker *worker, const struct request *request);

/* A pulse has brought depths and caps. */
void fairness_pulsed(struct worker *worker);

/* EVENT_ENTRIES of READ_SHED or READ_FAIR: notes where to continue. */
void fairness_answered(struct worker *worker, const struct event *event);

/* Refuses requests above a cap, and looks for tenants that wait because of another; one call at a time. */
void fairness_advance(struct worker *worker);

/* The time of the next search for tenants; NEVER: no tenant blocks others. Units: monotonic ns. */
uint64_t fairness_deadline(const struct worker *worker);

#endif
