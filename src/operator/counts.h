/* The contents of a queue, counted now: its requests by class, its parked requests and dead letters, its workers and
 * days.
 */
#ifndef OPERATOR_COUNTS_H
#define OPERATOR_COUNTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "operator/heartbeats.h"
#include "operator/session.h"
#include "redis/day_counts.h"
#include "redis/pause.h"
#include "schedule/request.h"

enum { PRECISIONS_MAX = 8 };

enum { CAPS = CLASS_COUNT + 1 }; /* one for each class, and one for `later` */
extern const char *const cap_names[CAPS];

struct class_counts {
    long long unread, pending, wait_ms; /* wait_ms: -1: unknown */
    long long cap;                      /* 0: none */
    long long oldest_ms;                /* age of the oldest pending entry, else of the oldest unread one; -1: none */
};

struct queue_counts {
    struct class_counts classes[CLASS_COUNT];
    struct {
        char name[32];
        size_t workers;
    } precisions[PRECISIONS_MAX]; /* of the workers that are alive; "" after the last */
    char pinned[16];              /* the one that all workers must have; "": any */
    long long cap_later;          /* 0: none */
    long long later, due, dead;   /* due: of `later`, those whose time has come */
    struct pause pause;
    long long dead_bytes;         /* of Redis' memory */
    size_t workers, quiet, tight; /* the live ones; how many of them are quiet, and how many hold little, for … */
    char reason[32];              /* … this reason, which one of them gives */
    unsigned long devices, devices_lost; /* of the workers that are alive */
    uint64_t published_ms_ago;
    uint64_t ended[CLASS_COUNT][ENDS], died, ignored; /* replies that name ignored fields; all since … */
    uint64_t since_ms;                                /* … Redis unix ms; 0: nothing counted yet */
    struct day_counts days[DAYS_KEPT];                /* of Redis' days in UTC: today, yesterday, … */
};

/* Reads the counts of a queue, and the heartbeats of its workers. Owns: the caller ends `heartbeats` with
 * heartbeats_free, also after an error. Errors: those of the commands. */
MUST_CHECK enum status counts_read(struct session *session, struct queue_counts *out, struct heartbeats *heartbeats,
                                   struct err *err);

/* Reads the pause of a queue. Errors: those of the commands. */
MUST_CHECK enum status counts_read_pause(struct session *session, struct pause *out, struct err *err);

/* Entries above the cap of a class. */
long long counts_above_cap(const struct queue_counts *counts, int class);

#endif
