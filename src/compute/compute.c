/* A compute thread has a device, an encoder of each engine and its batches in flight; it decides nothing. The owner
 * opens the threads, hands batches over, takes them back and decides. It puts a batch of a lost device back at the head
 * of the queue. */
#include "compute/compute.h"

#include <assert.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/system.h"
#include "compute/thread_pool.h"
#include "engine/cpu/parallel_for.h"
#include "engine/engine.h"
#include "schedule/batch.h"

/* A device, as its threads and the owner see it. */
struct compute_device {
    uint32_t number;
    unsigned threads, slots; /* slots: batches that each thread may have in flight */
    atomic_bool lost;        /* written by the threads: the first one that gets the error sets it */
    bool given_up;           /* written by the owner, when the first batch comes back with the error */
};

/* A batch on its way: the item of the thread pool. */
struct compute_job {
    struct batch *batch;
    unsigned engine;
    void *owner;
    struct compute_device *device; /* the device that computed it */
    struct compute_job *next;      /* in the owner's list of idle jobs, or in a thread's list of jobs in flight */
};

/* A thread. */
struct compute_thread {
    const struct compute *compute;
    struct compute_device *device;
    bool background;                  /* runs in the background */
    struct encoder **encoders;        /* [engine_count] */
    struct compute_job *first, *last; /* in flight, the oldest first */
    unsigned in_flight;
    uint64_t free_ns;    /* when the last batch came back */
    uint64_t went_on_ns; /* when the last batch began; in the background, the last layer */
    unsigned begun_then; /* in the background: compute->begun at the last look */
};

struct compute {
    struct thread_pool *pool, *background_pool; /* background_pool: NULL where there is none */
    struct compute_options options;             /* `devices` is only valid while it opens */
    struct compute_device *devices;             /* [device_count] */
    unsigned device_count;
    struct compute_thread *threads;          /* [thread_count]: device by device, then the background threads */
    unsigned thread_count, background_count; /* background_count: among thread_count */
    struct parallel_for *parallel;           /* for threads that compute themselves; NULL if there are fewer than two */
    struct compute_job *jobs, *idle;
    atomic_uint out, background_out; /* background_out: not in `out` */
    atomic_uint begun;               /* counts up with each ordinary batch; background threads watch it and `out` */
    struct compute_state state;
};

/* A thread begins batches until its device's slots are full or nothing waits; then it waits for the oldest one. So the
 * device always has its next batch ready. */

enum { LOOK_NS = 200 * 1000 };

/* A nice thread leaves its core to any other thread that wakes up there. But the kernel does not count that core as
 * idle, so it puts a waking thread on the core of an ordinary batch, which is then interrupted. Therefore a background
 * thread sleeps while there are ordinary batches, and looks now and then. A gap between such batches may end at any
 * time, so the thread uses only half of it. */
static void make_way(void *context)
{
    struct compute_thread *thread = context;
    const struct timespec look = {.tv_nsec = LOOK_NS};
    unsigned begun = atomic_load_explicit(&thread->compute->begun, memory_order_relaxed);
    uint64_t now = clock_now_ns(), end = now + COMPUTE_WAY_NS, rested = now;
    if (begun != thread->begun_then) { rested += now - thread->went_on_ns; }
    thread->begun_then = begun;
    while ((atomic_load_explicit(&thread->compute->out, memory_order_relaxed) > 0 || now < rested) && now < end) {
        nanosleep(&look, NULL);
        now = clock_now_ns();
    }
    thread->went_on_ns = now;
}

static enum status thread_open(struct compute_thread *thread, struct engine *const *engines, struct err *err)
{
    unsigned engine_count = thread->compute->options.engine_count;
    struct parallel_for *parallel = thread->compute->parallel;
    thread->encoders = calloc(engine_count, sizeof(struct encoder *));
    if (!thread->encoders) { return err_set(err, STATUS_NO_MEMORY, "no memory for the encoders of a compute thread"); }
    for (unsigned i = 0; i < engine_count; i++) { TRY(encoder_open(engines[i], &thread->encoders[i], err)); }
    for (unsigned i = 0; i < engine_count && thread->background; i++) {
        encoder_set_pause(thread->encoders[i], (struct encoder_pause){make_way, thread});
    }
    for (unsigned i = 0; i < engine_count && parallel && !thread->background; i++) {
        TRY(encoder_join(thread->encoders[i], parallel, err));
    }
    return STATUS_OK;
}

static void thread_close(struct compute_thread *thread)
{
    for (unsigned i = 0; thread->encoders && i < thread->compute->options.engine_count; i++) {
        encoder_close(thread->encoders[i]);
    }
    free(thread->encoders);
}

static void finish_job(struct compute_thread *thread, struct thread_slot *slot, struct compute_job *job,
                       enum status status)
{
    struct batch *batch = job->batch;
    batch->status = status;
    batch->finished_ns = clock_now_ns();
    if (batch->started_ns < thread->free_ns) { /* it waited for the previous batch */
        batch->started_ns = thread->free_ns;
    }
    thread->free_ns = batch->finished_ns;
    if (status == STATUS_DEVICE_LOST) {
        atomic_store(&thread->device->lost, true);
        thread_pool_leave(slot);
    }
    if (thread->compute->options.end) { thread->compute->options.end(job->owner, batch); }
    job->device = thread->device;
    thread_pool_finish(slot, job);
}

static void begin_job(struct compute_thread *thread, struct thread_slot *slot, struct compute_job *job)
{
    struct batch *batch = job->batch;
    batch->started_ns = thread->went_on_ns = clock_now_ns();
    const struct compute_options *options = &thread->compute->options;
    enum status status = options->begin ? options->begin(job->owner, batch) : STATUS_OK;
    if (status == STATUS_OK) { status = encoder_put(thread->encoders[job->engine], &batch->engine, &batch->err); }
    if (status != STATUS_OK) {
        finish_job(thread, slot, job, status);
        return;
    }
    job->next = NULL;
    if (thread->in_flight++ == 0) {
        thread->first = job;
    } else {
        thread->last->next = job;
    }
    thread->last = job;
}

static void thread_serve(void *context, struct thread_slot *slot)
{
    struct compute_thread *thread = context;
    const struct compute_device *device = thread->device;
    if (thread->background) { priority_idle(); }
    for (;;) {
        bool more = thread->in_flight < device->slots && !atomic_load(&device->lost);
        struct compute_job *job = more ? thread_pool_next(slot) : NULL;
        if (job) {
            begin_job(thread, slot, job);
        } else if (thread->in_flight > 0) {
            struct compute_job *oldest = thread->first;
            thread->first = oldest->next;
            thread->in_flight--;
            enum status status = encoder_take(thread->encoders[oldest->engine], &oldest->batch->err);
            oldest->batch->helped = encoder_helped(thread->encoders[oldest->engine]);
            finish_job(thread, slot, oldest, status);
        } else {
            return;
        }
    }
}

/* ---- opening ---- */

static unsigned least_slots(const struct device *device, unsigned engine_count)
{
    unsigned least = UINT_MAX;
    for (unsigned i = 0; i < engine_count; i++) {
        if (encoder_slots(device->engines[i]) < least) { least = encoder_slots(device->engines[i]); }
    }
    return least;
}

/* The capacity of the devices that are not given up. */
static struct compute_state sum_devices(const struct compute *compute)
{
    struct compute_state state = {0};
    for (unsigned i = 0; i < compute->device_count; i++) {
        const struct compute_device *device = &compute->devices[i];
        state.devices += !device->given_up;
        state.devices_lost += device->given_up;
        state.threads += device->given_up ? 0 : device->threads;
        state.batches += device->given_up ? 0 : device->threads * (device->slots + compute->options.queued);
    }
    state.background = state.devices > 0 ? compute->background_count : 0;
    return state;
}

static void give_up(struct compute *compute, struct compute_device *device, const char *why)
{
    if (device->given_up) { return; }
    device->given_up = true;
    compute->state = sum_devices(compute);
    log_error("device_lost", log_int("device", device->number), log_str("message", why),
              log_int("devices_left", compute->state.devices));
}

static enum status allocate_compute(struct compute *compute, const struct compute_options *options, struct err *err)
{
    compute->devices = calloc(options->device_count, sizeof(struct compute_device));
    if (!compute->devices) { return err_set(err, STATUS_NO_MEMORY, "no memory for %u devices", options->device_count); }
    compute->device_count = options->device_count;
    for (unsigned i = 0; i < options->device_count; i++) {
        struct compute_device *device = &compute->devices[i];
        device->number = options->devices[i].number;
        device->given_up = options->devices[i].lost;
        device->slots = device->given_up ? 0 : least_slots(&options->devices[i], options->engine_count);
        device->threads = device->given_up ? 0 : device->slots > 1 ? 1 : options->threads;
    }
    if (compute->device_count == 1 && compute->devices[0].slots == 1) {
        compute->background_count = options->background;
    }
    compute->state = sum_devices(compute);
    unsigned threads = compute->state.threads + compute->background_count;
    unsigned jobs = compute->state.batches + compute->background_count;
    compute->threads = calloc(threads, sizeof(struct compute_thread));
    compute->jobs = calloc(jobs, sizeof(struct compute_job));
    if (!compute->threads || !compute->jobs) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for %u compute threads", threads);
    }
    for (unsigned i = 0; i < jobs; i++) {
        compute->jobs[i].next = compute->idle;
        compute->idle = &compute->jobs[i];
    }
    return STATUS_OK;
}

/* A device that is lost here is left out and closed; the others continue. */
static enum status open_device(struct compute *compute, const struct device *device, struct compute_device *own,
                               struct err *err)
{
    unsigned first = compute->thread_count;
    enum status status = STATUS_OK;
    for (unsigned t = 0; t < own->threads + compute->background_count && status == STATUS_OK; t++) {
        struct compute_thread *thread = &compute->threads[compute->thread_count++];
        thread->compute = compute;
        thread->device = own;
        thread->background = t >= own->threads;
        status = thread_open(thread, device->engines, err);
    }
    if (status != STATUS_DEVICE_LOST) { return status; }
    while (compute->thread_count > first) {
        thread_close(&compute->threads[--compute->thread_count]);
        compute->threads[compute->thread_count] = (struct compute_thread){0};
    }
    give_up(compute, own, err->message);
    return STATUS_OK;
}

static enum status open_threads(struct compute *compute, const struct compute_options *options, struct err *err)
{
    bool computes = false;
    for (unsigned i = 0; i < compute->device_count; i++) { computes = computes || compute->devices[i].slots == 1; }
    /* Fewer batches than CPU threads would leave cores idle: helpers put these cores to work on the batches that run.
     * If a device is named twice, its threads share the same cores. */
    if (computes && options->threads > 1) { TRY(parallel_for_open(options->threads, &compute->parallel, err)); }
    for (unsigned i = 0; i < compute->device_count; i++) {
        TRY(open_device(compute, &options->devices[i], &compute->devices[i], err));
    }
    if (compute->state.devices == 0) {
        return err_set(err, STATUS_DEVICE_LOST, "none of the %u devices works", compute->device_count);
    }
    unsigned threads = compute->thread_count - compute->background_count;
    struct thread_pool_options pool = {.name = "compute",
                                       .threads = threads,
                                       .capacity = compute->state.batches,
                                       .wake_fd = options->wake_fd,
                                       .wake_below = options->wake_below,
                                       .serve = thread_serve,
                                       .contexts = compute->threads,
                                       .context_bytes = sizeof(struct compute_thread)};
    TRY(thread_pool_open(&pool, &compute->pool, err));
    if (compute->background_count == 0) { return STATUS_OK; }
    pool.name = "background";
    pool.threads = pool.capacity = compute->background_count;
    pool.contexts = compute->threads + threads;
    return thread_pool_open(&pool, &compute->background_pool, err);
}

struct compute_options compute_configured(const struct config *config, const struct devices *devices,
                                          unsigned engine_count)
{
    return (struct compute_options){.devices = devices->items,
                                    .device_count = devices->count,
                                    .engine_count = engine_count,
                                    .threads = config_threads(config),
                                    .queued = 1,
                                    .background = (config_threads(config) + 1) / 2,
                                    .wake_fd = -1};
}

enum status compute_open(const struct compute_options *options, struct compute **out, struct err *err)
{
    struct compute *compute = calloc(1, sizeof *compute);
    if (!compute) { return err_set(err, STATUS_NO_MEMORY, "no memory for the compute threads"); }
    compute->options = *options;
    enum status status = allocate_compute(compute, options, err);
    if (status == STATUS_OK) { status = open_threads(compute, options, err); }
    if (status != STATUS_OK) {
        compute_close(compute);
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

bool compute_has_room(const struct compute *compute, bool background)
{
    return background ? compute->background_out < compute->state.background : compute->out < compute->state.batches;
}

void compute_put(struct compute *compute, unsigned engine, void *owner, struct batch *batch)
{
    struct compute_job *job = compute->idle;
    assert(job && engine < compute->options.engine_count);
    compute->idle = job->next;
    ++*(batch->background ? &compute->background_out : &compute->out);
    compute->begun += !batch->background;
    *job = (struct compute_job){.batch = batch, .engine = engine, .owner = owner};
    (batch->first ? thread_pool_put_first
                  : thread_pool_put)(batch->background ? compute->background_pool : compute->pool, job);
}

/* Moves a batch of a lost device to another device; false if it need not, or cannot, move. Its timeout starts again,
 * because the lost device used it up. */
static bool move_job(struct compute *compute, struct compute_job *job)
{
    struct batch *batch = job->batch;
    if (batch->status != STATUS_DEVICE_LOST) { return false; }
    give_up(compute, job->device, batch->err.message);
    if (compute->state.devices == 0) { return false; }
    if (batch->watched_ns != 0) { batch->watched_ns = clock_now_ns(); }
    thread_pool_put_first(compute->pool, job);
    return true;
}

/* Takes a job from the pool with `get`; if there is none, from the background pool. */
static struct compute_job *from_pools(struct compute *compute, void *(*get)(struct thread_pool *pool))
{
    struct compute_job *job = get(compute->pool);
    return !job && compute->background_pool ? get(compute->background_pool) : job;
}

static struct batch *take_job(struct compute *compute, void **owner, void *(*get)(struct thread_pool *pool))
{
    struct compute_job *job = compute->state.devices == 0 ? from_pools(compute, thread_pool_take_back) : NULL;
    if (job) {
        job->batch->status = err_set(&job->batch->err, STATUS_DEVICE_LOST, "the last device was lost before its turn");
    } else {
        do {
            job = from_pools(compute, get);
        } while (job && move_job(compute, job));
    }
    if (!job) { return NULL; }
    if (owner) { *owner = job->owner; }
    job->next = compute->idle;
    compute->idle = job;
    --*(job->batch->background ? &compute->background_out : &compute->out);
    return job->batch;
}

struct batch *compute_take(struct compute *compute, void **owner)
{
    return take_job(compute, owner, thread_pool_take);
}

struct batch *compute_wait(struct compute *compute)
{
    return take_job(compute, NULL, thread_pool_wait);
}

void compute_close(struct compute *compute)
{
    if (!compute) { return; }
    thread_pool_close(compute->pool);
    thread_pool_close(compute->background_pool);
    for (unsigned i = 0; i < compute->thread_count; i++) { thread_close(&compute->threads[i]); }
    parallel_for_close(compute->parallel);
    free(compute->devices);
    free(compute->threads);
    free(compute->jobs);
    free(compute);
}
