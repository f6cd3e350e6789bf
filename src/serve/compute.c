#include "serve/compute.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "serve/crew.h"

/* A batch on its way through the threads. The jobs are a fixed set, as many as may be out. */
struct compute_job {
    struct batch *batch;
    unsigned engine;
    void *owner;
    struct compute_job *next; /* among the idle ones */
};

struct compute {
    struct crew *crew;
    unsigned threads, engines;
    struct encoder **encoders; /* [threads][engines] */
    void **contexts;           /* [threads]: each thread's row of encoders */
    struct compute_job *jobs, *idle;
};

static void run_batch(void *context, void *item)
{
    struct encoder *const *encoders = context;
    struct compute_job *job = item;
    struct batch *batch = job->batch;
    batch->started_ns = clock_now_ns();
    batch->status = encoder_run(encoders[job->engine], &batch->engine, &batch->err);
    batch->finished_ns = clock_now_ns();
}

static enum status open_encoders(struct compute *compute, struct engine *const *engines, struct err *err)
{
    enum status status = STATUS_OK;
    for (unsigned i = 0; i < compute->threads * compute->engines && status == STATUS_OK; i++)
        status = encoder_open(engines[i % compute->engines], &compute->encoders[i], err);
    return status;
}

static enum status allocate(struct compute *compute, unsigned jobs, struct err *err)
{
    compute->encoders = calloc((size_t)compute->threads * compute->engines, sizeof(struct encoder *));
    compute->contexts = calloc(compute->threads, sizeof(void *));
    compute->jobs = calloc(jobs, sizeof(struct compute_job));
    if (compute->encoders == NULL || compute->contexts == NULL || compute->jobs == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for %u compute threads", compute->threads);
    for (unsigned i = 0; i < compute->threads; i++)
        compute->contexts[i] = &compute->encoders[(size_t)i * compute->engines];
    for (unsigned i = 0; i < jobs; i++) {
        compute->jobs[i].next = compute->idle;
        compute->idle = &compute->jobs[i];
    }
    return STATUS_OK;
}

static void release(struct compute *compute)
{
    crew_free(compute->crew);
    for (unsigned i = 0; compute->encoders != NULL && i < compute->threads * compute->engines; i++)
        if (compute->encoders[i] != NULL)
            encoder_close(compute->encoders[i]);
    free(compute->encoders);
    free(compute->contexts);
    free(compute->jobs);
    free(compute);
}

enum status compute_open(const struct compute_options *options, struct compute **out, struct err *err)
{
    struct compute *compute = calloc(1, sizeof *compute);
    if (compute == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the compute threads");
    compute->threads = options->threads;
    compute->engines = options->engine_count;
    unsigned jobs = options->threads + options->queued;
    enum status status = allocate(compute, jobs, err);
    if (status == STATUS_OK)
        status = open_encoders(compute, options->engines, err);
    if (status == STATUS_OK) {
        struct crew_options crew = {.name = "compute",
                                    .threads = options->threads,
                                    .capacity = jobs,
                                    .wake_fd = options->wake_fd,
                                    .work = run_batch,
                                    .contexts = compute->contexts};
        status = crew_open(&crew, &compute->crew, err);
    }
    if (status != STATUS_OK) {
        release(compute);
        return status;
    }
    *out = compute;
    return STATUS_OK;
}

bool compute_has_room(const struct compute *compute)
{
    return compute->idle != NULL;
}

void compute_put(struct compute *compute, unsigned engine, void *owner, struct batch *batch)
{
    struct compute_job *job = compute->idle;
    assert(job != NULL && engine < compute->engines);
    compute->idle = job->next;
    *job = (struct compute_job){.batch = batch, .engine = engine, .owner = owner};
    crew_put(compute->crew, job);
}

static struct batch *taken(struct compute *compute, struct compute_job *job, void **owner)
{
    if (job == NULL)
        return NULL;
    if (owner != NULL)
        *owner = job->owner;
    job->next = compute->idle;
    compute->idle = job;
    return job->batch;
}

struct batch *compute_take(struct compute *compute, void **owner)
{
    return taken(compute, crew_take(compute->crew), owner);
}

struct batch *compute_wait(struct compute *compute, void **owner)
{
    return taken(compute, crew_wait(compute->crew), owner);
}

void compute_close(struct compute *compute)
{
    if (compute == NULL)
        return;
    crew_stop(compute->crew);
    release(compute);
}
