/* A thread begins batches until its device's slots are full or nothing waits, and then ends the oldest one: so the
 * device always has the next batch at hand while the thread waits for this one. */
#include "serve/compute_thread.h"

#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/system.h"

enum { LOOK_NS = 200 * 1000 };

/* A nice thread leaves its core to whoever wakes up there, but a core that it is on does not count as idle when the
 * kernel looks where to put them: they are put on the core of an ordinary batch, in whose middle they then are. So it
 * goes away itself while there is such a batch, and looks now and then whether there still is. And as no gap between
 * such batches is known to last, it takes only half of the time while they come. */
static void make_way(void *context)
{
    struct compute_thread *thread = context;
    const struct timespec look = {.tv_nsec = LOOK_NS};
    unsigned begun = atomic_load_explicit(thread->begun, memory_order_relaxed);
    uint64_t now = clock_now_ns(), end = now + COMPUTE_WAY_NS, rested = now;
    if (begun != thread->begun_then)
        rested += now - thread->went_on_ns;
    thread->begun_then = begun;
    while ((atomic_load_explicit(thread->ordinary, memory_order_relaxed) > 0 || now < rested) && now < end) {
        nanosleep(&look, NULL);
        now = clock_now_ns();
    }
    thread->went_on_ns = now;
}

enum status compute_thread_open(struct compute_thread *thread, struct engine *const *engines, unsigned engine_count,
                                struct parallel_for *parallel, struct err *err)
{
    thread->encoders = calloc(engine_count, sizeof(struct encoder *));
    if (thread->encoders == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the encoders of a compute thread");
    thread->engine_count = engine_count;
    for (unsigned i = 0; i < engine_count; i++)
        TRY(encoder_open(engines[i], &thread->encoders[i], err));
    for (unsigned i = 0; i < engine_count && thread->spare; i++)
        encoder_set_pause(thread->encoders[i], (struct encoder_pause){make_way, thread});
    for (unsigned i = 0; i < engine_count && parallel != NULL && !thread->spare; i++)
        TRY(encoder_join(thread->encoders[i], parallel, err));
    return STATUS_OK;
}

void compute_thread_close(struct compute_thread *thread)
{
    for (unsigned i = 0; i < thread->engine_count; i++)
        encoder_close(thread->encoders[i]);
    free(thread->encoders);
}

static void finish(struct compute_thread *thread, struct crew_seat *seat, struct compute_job *job, enum status status)
{
    struct batch *batch = job->batch;
    batch->status = status;
    batch->finished_ns = clock_now_ns();
    if (batch->started_ns < thread->free_ns) /* it waited for the one before it */
        batch->started_ns = thread->free_ns;
    thread->free_ns = batch->finished_ns;
    if (status == STATUS_DEVICE_LOST) {
        atomic_store(&thread->device->lost, true);
        crew_leave(seat);
    }
    if (thread->end != NULL)
        thread->end(job->owner, batch);
    job->device = thread->device;
    crew_finish(seat, job);
}

static void begin(struct compute_thread *thread, struct crew_seat *seat, struct compute_job *job)
{
    struct batch *batch = job->batch;
    batch->started_ns = thread->went_on_ns = clock_now_ns();
    enum status status = thread->begin == NULL ? STATUS_OK : thread->begin(job->owner, batch);
    if (status == STATUS_OK)
        status = encoder_put(thread->encoders[job->engine], &batch->engine, &batch->err);
    if (status != STATUS_OK) {
        finish(thread, seat, job, status);
        return;
    }
    job->next = NULL;
    if (thread->in_flight++ == 0)
        thread->first = job;
    else
        thread->last->next = job;
    thread->last = job;
}

static void end_oldest(struct compute_thread *thread, struct crew_seat *seat)
{
    struct compute_job *job = thread->first;
    thread->first = job->next;
    thread->in_flight--;
    enum status status = encoder_take(thread->encoders[job->engine], &job->batch->err);
    job->batch->helped = encoder_helped(thread->encoders[job->engine]);
    finish(thread, seat, job, status);
}

void compute_thread_serve(void *context, struct crew_seat *seat)
{
    struct compute_thread *thread = context;
    const struct compute_device *device = thread->device;
    if (thread->spare)
        priority_spare();
    for (;;) {
        bool more = thread->in_flight < device->slots && !atomic_load(&device->lost);
        struct compute_job *job = more ? crew_next(seat) : NULL;
        if (job != NULL)
            begin(thread, seat, job);
        else if (thread->in_flight > 0)
            end_oldest(thread, seat);
        else
            return;
    }
}
