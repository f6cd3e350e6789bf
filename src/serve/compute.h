/* The devices at work: one queue in front of all of them, and whichever is free takes the next batch.
 *
 *   owner ── compute_put ──► queue ──► a thread of a device: encoder_put … encoder_take ──► compute_take ── owner
 *
 * Where the calling thread computes (a CPU), a device has several threads, each with one batch at a time. Where the
 * device works by itself (a GPU), one thread feeds it and keeps up to encoder_slots batches on their way, so that
 * copies and computing overlap. A batch goes to the thread that has least, so that none waits behind another while a
 * device is idle.
 *
 * On a CPU some threads more may take what runs in the background, from a queue of their own: the kernel gives them a
 * core only while nobody else wants it, at any point of a batch. So bulk work is never in front of anybody.
 *
 * A device that is lost takes nothing more, and what it had in flight goes to the others: nobody but the log and
 * compute_state sees it. When the last one is lost, all that is out comes back with STATUS_DEVICE_LOST. */
#ifndef SERVE_COMPUTE_H
#define SERVE_COMPUTE_H

#include <stdbool.h>

#include "engine/engine.h"
#include "serve/devices.h"
#include "work/batching.h"

struct compute;

/* A background thread waits before every layer while batches that are not for it are out, and where others have been
 * begun since the last look for as long as the layer before took; but no longer than this, so that its own ends, too.
 */
enum { COMPUTE_WAY_NS = 5000000 };

/* What to compute on, and how much may be on its way. */
struct compute_options {
    const struct device *devices; /* [device_count]; their engines must outlive the threads */
    unsigned device_count;
    unsigned engine_count; /* on each device */
    unsigned threads;      /* on each device that computes on the calling thread; another one has one */
    unsigned queued;       /* batches that may wait for each thread, beside those that it has */
    unsigned background;   /* threads for batches that run in the background; only where one device is all there is, and
                         computes on the calling thread */
    int wake_fd;           /* an eventfd written when a finished batch waits, or -1 */
    unsigned wake_below;   /* 0: always; else only where fewer batches than this wait to be computed */
    /* What the thread of a batch does right before and behind it, while its memory is in that core's cache; NULL:
     * nothing. `begin` lays it out: another status than STATUS_OK is the batch's. `end` follows each `begin`. */
    enum status (*begin)(void *owner, struct batch *batch);
    void (*end)(void *owner, struct batch *batch);
};

/* Opens an encoder of each engine for each thread, and starts them. A device that is lost in this is left out, with a
 * line in the log.
 * Owns: the caller ends it with compute_close. Errors: those of encoder_open, but STATUS_DEVICE_LOST only when no
 * device is left; STATUS_NO_MEMORY, STATUS_IO. */
MUST_CHECK enum status compute_open(const struct compute_options *options, struct compute **out, struct err *err);

/* What there is to compute with; it gets less when a device is lost. */
struct compute_state {
    unsigned devices, devices_lost;
    unsigned threads;    /* of the devices that live: so many batches are computed side by side */
    unsigned batches;    /* that may be out */
    unsigned background; /* that may be out beside them and run in the background */
};

/* How it stands now. Thread: the owner's. */
struct compute_state compute_state(const struct compute *compute);

/* Whether another batch may be put; whether one may that runs in the background. */
bool compute_has_room(const struct compute *compute);
bool compute_has_background_room(const struct compute *compute);

/* Hands a batch over to the engines of that number, or, as it says itself, to the background threads. It comes back
 * with status, err and stamps filled, and with the owner that was named here. */
void compute_put(struct compute *compute, unsigned engine, void *owner, struct batch *batch);

/* Takes a finished batch, or NULL when none is there. `owner`, which may be NULL, gets what compute_put was told. */
struct batch *compute_take(struct compute *compute, void **owner);

/* Likewise, but waits for one; NULL when none is out. */
struct batch *compute_wait(struct compute *compute, void **owner);

/* Lets the batches that were put finish, and joins the threads. Batches that were not taken are not freed: take them,
 * or let the worker that knows them do it. NULL is allowed. */
void compute_close(struct compute *compute);

#endif
