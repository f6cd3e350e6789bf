#include "serve/compute.h"

#include <stdlib.h>

#include "base/clock.h"
#include "serve/crew.h"

struct compute {
    struct crew *crew;
    unsigned threads;
    void **encoders; /* [threads] struct encoder */
};

static void run_batch(void *context, void *item)
{
    struct batch *batch = item;
    batch->started_ns = clock_now_ns();
    batch->status = encoder_run(context, &batch->engine, &batch->err);
    batch->finished_ns = clock_now_ns();
}

static enum status open_encoders(struct compute *compute, struct engine *engine, struct err *err)
{
    enum status status = STATUS_OK;
    for (unsigned i = 0; i < compute->threads && status == STATUS_OK; i++) {
        struct encoder *encoder = NULL;
        status = encoder_open(engine, &encoder, err);
        compute->encoders[i] = encoder;
    }
    return status;
}

static void release(struct compute *compute)
{
    crew_free(compute->crew);
    for (unsigned i = 0; compute->encoders != NULL && i < compute->threads; i++)
        if (compute->encoders[i] != NULL)
            encoder_close(compute->encoders[i]);
    free(compute->encoders);
    free(compute);
}

enum status compute_open(struct engine *engine, unsigned threads, unsigned queued, int wake_fd, struct compute **out,
                         struct err *err)
{
    struct compute *compute = calloc(1, sizeof *compute);
    if (compute == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the compute threads");
    compute->threads = threads;
    compute->encoders = calloc(threads, sizeof(void *));
    enum status status = compute->encoders != NULL
                             ? open_encoders(compute, engine, err)
                             : err_set(err, STATUS_NO_MEMORY, "no memory for %u encoders", threads);
    if (status == STATUS_OK) {
        struct crew_options options = {.name = "compute",
                                       .threads = threads,
                                       .capacity = threads + queued,
                                       .wake_fd = wake_fd,
                                       .work = run_batch,
                                       .contexts = compute->encoders};
        status = crew_open(&options, &compute->crew, err);
    }
    if (status != STATUS_OK) {
        release(compute);
        return status;
    }
    *out = compute;
    return STATUS_OK;
}

void compute_put(struct compute *compute, struct batch *batch)
{
    crew_put(compute->crew, batch);
}

struct batch *compute_take(struct compute *compute)
{
    return crew_take(compute->crew);
}

struct batch *compute_wait(struct compute *compute)
{
    return crew_wait(compute->crew);
}

void compute_close(struct compute *compute)
{
    if (compute == NULL)
        return;
    crew_stop(compute->crew);
    release(compute);
}
