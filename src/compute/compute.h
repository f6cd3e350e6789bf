/* The devices at work: one queue feeds all of them, and a free one takes the next batch.
 *
 *   owner ── compute_put ──► queue ──► a thread of a device: encoder_put … encoder_take ──► compute_take ── owner
 *
 * If the calling thread computes (a CPU), a device has several threads, each with one batch at a time. If the device
 * computes alone (a GPU), one thread feeds it and keeps up to encoder_slots batches in flight, so that copies and
 * computing overlap. A batch goes to the thread that holds least, so no batch waits for another while a device is idle.
 *
 * A CPU may also have background threads with a separate queue: the kernel gives them a core only while no other thread
 * can use it, at any point of a batch. So bulk work delays no other work.
 *
 * A lost device takes nothing more, and the others get the batches that it had in flight: only the log and
 * compute_state show the loss. When the last one is lost, all batches that are out come back with STATUS_DEVICE_LOST.
 */
#ifndef COMPUTE_COMPUTE_H
#define COMPUTE_COMPUTE_H

#include <stdbool.h>

#include "compute/devices.h"
#include "engine/engine.h"
#include "schedule/batch.h"

struct compute;

/* A background thread waits before every layer while ordinary batches are out. If ordinary batches began since it last
 * looked, it rests as long as its last layer took. It never waits longer than this, so that its own batch ends, too. */
enum { COMPUTE_WAY_NS = 5000000 };

/* The devices to compute on, and the limits of batches in flight. */
struct compute_options {
    const struct device *devices; /* [device_count]; the engines must outlive the threads */
    unsigned device_count;
    unsigned engine_count; /* on each device */
    unsigned threads;      /* on each device that computes on the calling thread; other devices have one */
    unsigned queued;       /* batches that may wait for each thread, in addition to those in flight */
    unsigned background;   /* background threads; used only with a single device that computes on the calling thread */
    int wake_fd;           /* an eventfd written when a finished batch waits, or -1 */
    unsigned wake_below;   /* 0: always; else only while fewer batches than this wait to be computed */
    /* Called by the thread of a batch right before and after computing it, while the batch is in that core's cache;
     * NULL: nothing. `begin` lays the batch out; its error becomes the batch's. `end` follows each `begin`. */
    enum status (*begin)(void *owner, struct batch *batch);
    void (*end)(void *owner, struct batch *batch);
};

/* The options of a daemon with these settings, without a wake_fd. `devices` must outlive the threads. */
struct compute_options compute_configured(const struct config *config, const struct devices *devices,
                                          unsigned engine_count);

/* Opens an encoder of each engine for each thread, and starts the threads. A device that is lost here is left out and
 * logged.
 * Owns: the caller ends it with compute_close. Errors: those of encoder_open, but STATUS_DEVICE_LOST only when no
 * device is left; STATUS_NO_MEMORY, STATUS_IO. */
MUST_CHECK enum status compute_open(const struct compute_options *options, struct compute **out, struct err *err);

/* The capacity. It shrinks when a device is lost. */
struct compute_state {
    unsigned devices, devices_lost;
    unsigned threads;    /* of the live devices: this many batches are computed at a time */
    unsigned batches;    /* batches that may be out at a time */
    unsigned background; /* background batches that may be out in addition */
};

/* The state now. Thread: the owner's. */
struct compute_state compute_state(const struct compute *compute);

/* True if another ordinary batch, or another background batch, may be put. */
bool compute_has_room(const struct compute *compute, bool background);

/* Hands a batch to the threads (the background ones if batch->background), which use the engines of this number. It
 * comes back with status, err and stamps filled, and with this owner. */
void compute_put(struct compute *compute, unsigned engine, void *owner, struct batch *batch);

/* Takes a finished batch; NULL when there is none. `owner` may be NULL; else it gets what compute_put was given. */
struct batch *compute_take(struct compute *compute, void **owner);

/* Waits for a batch to be finished, and takes it; NULL when none is out. */
struct batch *compute_wait(struct compute *compute);

/* Lets the batches that were put finish, and joins the threads. It does not free batches that were not taken: take
 * them, or let their worker free them. NULL is allowed. */
void compute_close(struct compute *compute);

#endif
