/* Suspects: see quarantine.c. Only quarantine.c writes struct quarantine. */
#ifndef SCHEDULE_WORKER_QUARANTINE_H
#define SCHEDULE_WORKER_QUARANTINE_H

#include "schedule/worker.h"

/* The number of runs alone that must have crashed before a request is poison and not run again. lua/reclaim has the
 * rule for requests that never got so far: it hands them over ten times. */
enum { POISON_CRASHES = 3 };

/* Fails a request with CODE_POISON if that number of its runs alone is enough. */
bool quarantine_poisons(struct request *request, uint32_t crashes);

/* The stage of the one suspect that runs alone. */
enum quarantine_stage {
    QUARANTINE_NONE,
    QUARANTINE_UNSURE,   /* its run must be recorded, perhaps again */
    QUARANTINE_RECORDED, /* it must be prepared */
    QUARANTINE_PREPARED,
    QUARANTINE_COMPUTED,
    QUARANTINE_AWAY, /* with the executor, or being settled */
};

/* Suspects that wait or run. */
struct quarantine {
    struct request_list suspects[CLASS_COUNT]; /* those that run in groups */
    uint32_t grouped, grouped_low;             /* members of the group that runs; of these, those of class low */
    bool recording;                            /* runs of a group are being recorded */
    uint32_t urgent;             /* urgent suspects: nothing is taken over before their runs are recorded */
    struct request_list waiting; /* those that run alone, one at a time */
    bool asked;                  /* it has asked for the whole process */
    enum turn turn;
    uint64_t turn_ends;    /* TURN_EXCLUSIVE: no further suspect begins after this */
    struct request *alone; /* the suspect that runs alone now */
    enum quarantine_stage stage;
    struct row *rows; /* its waiting rows, by `next` */
};

/* Counts a request that was read, if it is urgent. */
void quarantine_admitted(struct worker *worker, const struct request *request);

/* Queues a suspect for a group, or to run alone. */
void quarantine_add(struct worker *worker, struct request *request);

/* Drops waiting suspects, because without a lease we may not run them. They stay pending. */
void quarantine_forget(struct worker *worker);

/* Takes out the suspects of a class that wait for a group; of CLASS_COUNT: those that wait to run alone. */
struct request_list quarantine_take(struct worker *worker, enum request_class class);

/* EVENT_RUN_RECORDED: suspects may run. */
void quarantine_recorded(struct worker *worker, const struct event *event);

/* EVENT_TURN: a new turn has begun. */
void quarantine_turn(struct worker *worker, const struct event *event);

/* Records the next group, asks for the process, or takes the suspect that runs alone a step further. True while a
 * worker has the process alone: nothing else may be prepared or cut then. */
bool quarantine_advance(struct worker *worker);

/* Queues all rows of the suspect that runs alone, which was prepared. */
void quarantine_prepared(struct worker *worker);

/* Puts a row of the suspect that runs alone back, because its batch does not run. */
void quarantine_row_back(struct worker *worker, struct row *row);

/* The last row that was out of the suspect that runs alone is back. */
void quarantine_rows_back(struct worker *worker);

/* Notes that a request has left the worker, perhaps before its run was recorded: if it was a suspect, the next one may
 * follow. */
void quarantine_ended(struct worker *worker, struct request *request);

#endif
