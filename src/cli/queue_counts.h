/* What waits in a queue, how its requests ended and who works on it, as Redis says now. */
#ifndef CLI_QUEUE_COUNTS_H
#define CLI_QUEUE_COUNTS_H

#include "cli/session.h"
#include "schedule/request.h"

enum { PRECISIONS_MAX = 8 };

struct queue_counts {
    struct {
        long long unread, pending, wait_ms; /* wait_ms: -1: unknown */
        long long cap;                      /* 0: none */
    } classes[CLASS_COUNT];
    struct {
        char name[32];
        size_t workers;
    } precisions[PRECISIONS_MAX];        /* of the workers that are alive; "" behind the last */
    char pinned[16];                     /* the one that all workers must have; "": any */
    long long later, due, dead, paused;  /* due: of `later`, those whose time has come */
    size_t workers, quiet, tight;        /* alive; of these, the quiet ones, and those that hold little, for … */
    char reason[32];                     /* … this reason, of one of them */
    unsigned long devices, devices_lost; /* of the workers that are alive */
    uint64_t published_ms_ago;
    uint64_t ended[CLASS_COUNT][ENDS], died; /* since … */
    uint64_t since_ms;                       /* … Redis unix ms; 0: nothing counted yet */
};

/* Counts, and reads the heartbeats. Owns: the caller ends `heartbeats` with heartbeats_free, also after an error.
 * Errors: those of the commands. */
MUST_CHECK enum status queue_counts_read(struct session *session, struct queue_counts *out,
                                         struct heartbeats *heartbeats, struct err *err);

#endif
