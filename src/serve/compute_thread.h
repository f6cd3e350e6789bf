/* One compute thread and what it shares with the owner of all of them. Only serve/compute uses this; the others see
 * serve/compute.h.
 *
 * A thread knows its device, an encoder of each engine, and the batches that it has in flight. It decides nothing: a
 * batch whose device is lost goes back to the owner like any other, with that status. */
#ifndef SERVE_COMPUTE_THREAD_H
#define SERVE_COMPUTE_THREAD_H

#include <stdatomic.h>
#include <stdbool.h>

#include "engine/engine.h"
#include "serve/crew.h"
#include "work/batching.h"

/* In spare time a thread waits before every layer while batches that are not for it are out, and where others have been
 * begun since the last look for as long as the layer before took; but no longer than this, so that its own ends, too.
 */
enum { COMPUTE_WAY_NS = 5000000 };

/* A device as its threads and the owner see it. */
struct compute_device {
    uint32_t number;
    unsigned threads, slots; /* slots: batches that each thread may have in flight */
    atomic_bool lost;        /* the threads': set by the first one that is told so */
    bool given_up;           /* the owner's: set when the first batch says so */
};

/* A batch on its way through the threads: the item of their crew. */
struct compute_job {
    struct batch *batch;
    unsigned engine;
    void *owner;
    struct compute_device *device; /* that it comes back from */
    struct compute_job *next;      /* among the owner's idle ones, or those that a thread has in flight */
};

/* A thread. Its opener names the first six; the rest is zero before compute_thread_open. */
struct compute_thread {
    struct compute_device *device;
    bool spare;                          /* runs in spare time */
    const atomic_uint *ordinary, *begun; /* batches not for spare time: that are out, and that ever were */
    enum status (*begin)(void *owner, struct batch *batch);
    void (*end)(void *owner, struct batch *batch); /* both as in struct compute_options */
    struct encoder **encoders;                     /* [engine_count] */
    unsigned engine_count;
    struct compute_job *first, *last; /* in flight, the oldest first */
    unsigned in_flight;
    uint64_t free_ns;    /* when the last one came back */
    uint64_t went_on_ns; /* when the last batch was begun, or in spare time the last layer */
    unsigned begun_then; /* in spare time: what had been begun by the last look */
};

/* Opens an encoder of each of the engines, and lets helpers help those of a thread that does not run in spare time;
 * `parallel` may be NULL.
 * Owns: the caller ends it with compute_thread_close, also after an error; engines and helpers must outlive it.
 * Errors: those of encoder_open and encoder_join. */
MUST_CHECK enum status compute_thread_open(struct compute_thread *thread, struct engine *const *engines,
                                           unsigned engine_count, struct parallel_for *parallel, struct err *err);

/* Closes its encoders. It is not running any more. */
void compute_thread_close(struct compute_thread *thread);

/* What it does all its life, as a crew's `serve` with the thread as its context: takes jobs, as many at once as its
 * device has slots, and gives each back with its batch's status and stamps filled. It leaves when its device is lost.
 */
void compute_thread_serve(void *thread, struct crew_seat *seat);

#endif
