/* The owner's side of the threads (serve/compute_thread): it opens them, hands batches over, takes what comes back and
 * decides. A batch that comes back from a lost device is put once more, in front of all others. */
#include "serve/compute.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/cpu/parallel_for.h"
#include "serve/compute_thread.h"

struct compute {
    struct crew *crew, *spare_crew; /* spare_crew: NULL where there is none */
    unsigned engine_count, queued;
    struct compute_device *devices; /* [device_count] */
    unsigned device_count;
    struct compute_thread *threads;     /* [thread_count], those of a device side by side, then those for spare time */
    unsigned thread_count, spare_count; /* spare_count: of the thread_count */
    void **contexts;                    /* [thread_count]: the threads, for their crew */
    struct parallel_for *parallel; /* of the threads that compute by themselves; NULL where they are fewer than two */
    struct compute_job *jobs, *idle;
    atomic_uint out, spare_out; /* spare_out: not among `out` */
    atomic_uint begun;          /* that ever were among `out`; both are what threads for spare time look at */
    struct compute_state state;
};

/* ---- opening ---- */

static unsigned least_slots(const struct device *device, unsigned engine_count)
{
    unsigned least = UINT_MAX;
    for (unsigned i = 0; i < engine_count; i++)
        if (encoder_slots(device->engines[i]) < least)
            least = encoder_slots(device->engines[i]);
    return least;
}

/* What can be computed, and how many batches may be out, with the devices that are not given up. */
static struct compute_state look(const struct compute *compute)
{
    struct compute_state state = {0};
    for (unsigned i = 0; i < compute->device_count; i++) {
        const struct compute_device *device = &compute->devices[i];
        state.devices += !device->given_up;
        state.devices_lost += device->given_up;
        state.threads += device->given_up ? 0 : device->threads;
        state.batches += device->given_up ? 0 : device->threads * (device->slots + compute->queued);
    }
    state.spare = state.devices > 0 ? compute->spare_count : 0;
    return state;
}

static void give_up(struct compute *compute, struct compute_device *device, const char *why)
{
    if (device->given_up)
        return;
    device->given_up = true;
    compute->state = look(compute);
    log_error("device_lost", log_int("device", device->number), log_str("message", why),
              log_int("devices_left", compute->state.devices));
}

static enum status allocate(struct compute *compute, const struct compute_options *options, struct err *err)
{
    compute->devices = calloc(options->device_count, sizeof(struct compute_device));
    if (compute->devices == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for %u devices", options->device_count);
    compute->device_count = options->device_count;
    for (unsigned i = 0; i < options->device_count; i++) {
        struct compute_device *device = &compute->devices[i];
        device->number = options->devices[i].number;
        device->given_up = options->devices[i].lost;
        device->slots = device->given_up ? 0 : least_slots(&options->devices[i], options->engine_count);
        device->threads = device->given_up ? 0 : device->slots > 1 ? 1 : options->threads;
    }
    if (compute->device_count == 1 && compute->devices[0].slots == 1)
        compute->spare_count = options->spare;
    compute->state = look(compute);
    unsigned threads = compute->state.threads + compute->spare_count;
    unsigned jobs = compute->state.batches + compute->spare_count;
    compute->threads = calloc(threads, sizeof(struct compute_thread));
    compute->contexts = calloc(threads, sizeof(void *));
    compute->jobs = calloc(jobs, sizeof(struct compute_job));
    if (compute->threads == NULL || compute->contexts == NULL || compute->jobs == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for %u compute threads", threads);
    for (unsigned i = 0; i < jobs; i++) {
        compute->jobs[i].next = compute->idle;
        compute->idle = &compute->jobs[i];
    }
    return STATUS_OK;
}

static enum status open_thread(struct compute *compute, const struct compute_options *options,
                               const struct device *device, struct compute_device *own, struct err *err)
{
    unsigned at = compute->thread_count++;
    struct compute_thread *thread = &compute->threads[at];
    *thread = (struct compute_thread){.device = own,
                                      .spare = at >= own->threads && compute->spare_count > 0,
                                      .ordinary = &compute->out,
                                      .begun = &compute->begun,
                                      .begin = options->begin,
                                      .end = options->end};
    compute->contexts[at] = thread;
    return compute_thread_open(thread, device->engines, compute->engine_count, compute->parallel, err);
}

/* A device that is lost here is left out, with what was opened on it; the others go on. */
static enum status open_device(struct compute *compute, const struct compute_options *options,
                               const struct device *device, struct compute_device *own, struct err *err)
{
    unsigned first = compute->thread_count;
    enum status status = STATUS_OK;
    for (unsigned t = 0; t < own->threads + compute->spare_count && status == STATUS_OK; t++)
        status = open_thread(compute, options, device, own, err);
    if (status != STATUS_DEVICE_LOST)
        return status;
    while (compute->thread_count > first)
        compute_thread_close(&compute->threads[--compute->thread_count]);
    give_up(compute, own, err->message);
    return STATUS_OK;
}

/* Where threads compute by themselves, fewer batches than threads leave cores idle: helpers bring these to the batches
 * that are there. A device that is named twice has its threads on the same cores. */
static enum status open_team(struct compute *compute, const struct compute_options *options, struct err *err)
{
    bool computes = false;
    for (unsigned i = 0; i < compute->device_count; i++)
        computes = computes || compute->devices[i].slots == 1;
    return computes && options->threads > 1 ? parallel_for_open(options->threads, &compute->parallel, err) : STATUS_OK;
}

static enum status open_threads(struct compute *compute, const struct compute_options *options, struct err *err)
{
    TRY(open_team(compute, options, err));
    for (unsigned i = 0; i < compute->device_count; i++)
        TRY(open_device(compute, options, &options->devices[i], &compute->devices[i], err));
    if (compute->state.devices == 0)
        return err_set(err, STATUS_DEVICE_LOST, "none of the %u devices works", compute->device_count);
    unsigned threads = compute->thread_count - compute->spare_count;
    struct crew_options crew = {.name = "compute",
                                .threads = threads,
                                .capacity = compute->state.batches,
                                .wake_fd = options->wake_fd,
                                .wake_below = options->wake_below,
                                .serve = compute_thread_serve,
                                .contexts = compute->contexts};
    TRY(crew_open(&crew, &compute->crew, err));
    if (compute->spare_count == 0)
        return STATUS_OK;
    crew.name = "spare";
    crew.threads = crew.capacity = compute->spare_count;
    crew.contexts = compute->contexts + threads;
    return crew_open(&crew, &compute->spare_crew, err);
}

static void stop(struct compute *compute)
{
    if (compute->crew != NULL)
        crew_stop(compute->crew);
    if (compute->spare_crew != NULL)
        crew_stop(compute->spare_crew);
}

static void release(struct compute *compute)
{
    crew_free(compute->crew);
    crew_free(compute->spare_crew);
    for (unsigned i = 0; i < compute->thread_count; i++)
        compute_thread_close(&compute->threads[i]);
    parallel_for_close(compute->parallel);
    free(compute->devices);
    free(compute->threads);
    free(compute->contexts);
    free(compute->jobs);
    free(compute);
}

enum status compute_open(const struct compute_options *options, struct compute **out, struct err *err)
{
    struct compute *compute = calloc(1, sizeof *compute);
    if (compute == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the compute threads");
    compute->engine_count = options->engine_count;
    compute->queued = options->queued;
    enum status status = allocate(compute, options, err);
    if (status == STATUS_OK)
        status = open_threads(compute, options, err);
    if (status != STATUS_OK) {
        stop(compute);
        release(compute);
        return status;
    }
    *out = compute;
    return STATUS_OK;
}

/* ---- the owner ---- */

struct compute_state compute_state(const struct compute *compute)
{
    return compute->state;
}

bool compute_has_room(const struct compute *compute)
{
    return compute->out < compute->state.batches;
}

bool compute_has_spare(const struct compute *compute)
{
    return compute->spare_out < compute->state.spare;
}

void compute_put(struct compute *compute, unsigned engine, void *owner, struct batch *batch)
{
    struct compute_job *job = compute->idle;
    assert(job != NULL && engine < compute->engine_count);
    compute->idle = job->next;
    ++*(batch->spare ? &compute->spare_out : &compute->out);
    compute->begun += !batch->spare;
    *job = (struct compute_job){.batch = batch, .engine = engine, .owner = owner};
    (batch->first ? crew_put_first : crew_put)(batch->spare ? compute->spare_crew : compute->crew, job);
}

/* Whether a batch that is back from a lost device goes to another one. Its time begins anew: the lost one has used it
 * up. */
static bool moves(struct compute *compute, struct compute_job *job)
{
    struct batch *batch = job->batch;
    if (batch->status != STATUS_DEVICE_LOST)
        return false;
    give_up(compute, job->device, batch->err.message);
    if (compute->state.devices == 0)
        return false;
    if (batch->watched_ns != 0)
        batch->watched_ns = clock_now_ns();
    crew_put_first(compute->crew, job);
    return true;
}

/* What no thread has begun. */
static struct compute_job *take_back(struct compute *compute)
{
    struct compute_job *job = crew_take_back(compute->crew);
    return job == NULL && compute->spare_crew != NULL ? crew_take_back(compute->spare_crew) : job;
}

static struct compute_job *next_finished(struct compute *compute, bool wait)
{
    struct compute_job *job = crew_take(compute->crew);
    if (job == NULL && compute->spare_crew != NULL)
        job = crew_take(compute->spare_crew);
    if (job == NULL && wait)
        job = crew_wait(compute->crew);
    return job == NULL && wait && compute->spare_crew != NULL ? crew_wait(compute->spare_crew) : job;
}

static struct compute_job *next(struct compute *compute, bool wait)
{
    struct compute_job *job = NULL;
    if (compute->state.devices == 0 && (job = take_back(compute)) != NULL) {
        job->batch->status = err_set(&job->batch->err, STATUS_DEVICE_LOST, "the last device was lost before its turn");
        return job;
    }
    do
        job = next_finished(compute, wait);
    while (job != NULL && moves(compute, job));
    return job;
}

static struct batch *take(struct compute *compute, void **owner, bool wait)
{
    struct compute_job *job = next(compute, wait);
    if (job == NULL)
        return NULL;
    if (owner != NULL)
        *owner = job->owner;
    job->next = compute->idle;
    compute->idle = job;
    --*(job->batch->spare ? &compute->spare_out : &compute->out);
    return job->batch;
}

struct batch *compute_take(struct compute *compute, void **owner)
{
    return take(compute, owner, false);
}

struct batch *compute_wait(struct compute *compute, void **owner)
{
    return take(compute, owner, true);
}

void compute_close(struct compute *compute)
{
    if (compute == NULL)
        return;
    stop(compute);
    release(compute);
}
