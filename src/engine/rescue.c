#include "engine/rescue.h"

#include "engine/encoder.h"
#include "engine/vector.h"

static const enum precision wider[RESCUE_STEPS] = {PRECISION_BF16, PRECISION_F32};

void rescue_init(struct rescue *rescue, const struct engine_options *options)
{
    rescue->options = *options;
    pthread_mutex_init(&rescue->lock, NULL); /* cannot fail with default attributes on Linux */
}

static void step_close(struct rescue_step *step)
{
    if (step->backend != NULL)
        step->backend->ops->close(step->backend);
    model_close(step->again);
    *step = (struct rescue_step){0};
}

void rescue_close(struct rescue *rescue)
{
    for (int i = 0; i < RESCUE_STEPS; i++)
        step_close(&rescue->steps[i]);
    pthread_mutex_destroy(&rescue->lock);
}

void rescue_count(struct rescue *rescue, struct engine_counters *to)
{
    to->rows_bf16 = atomic_load(&rescue->rescued[0]);
    to->rows_f32 = atomic_load(&rescue->rescued[1]);
    to->rows_lost = atomic_load(&rescue->lost);
}

/* The weights are still in the model's memory only if nobody was allowed to give them back. */
static enum status step_open(const struct rescue *rescue, const struct backend *narrow, enum precision precision,
                             struct rescue_step *step, struct err *err)
{
    const struct model *model = narrow->model;
    if (model->read_once) {
        TRY(model_read_again(model, &step->again, err));
        model = step->again;
    }
    struct engine_options options = rescue->options;
    options.precision = precision;
    options.batch_tokens = model->max_tokens;
    options.batch_rows = 1;
    options.no_graphs = true;
    TRY(narrow->ops->open(model, &options, &step->backend, err));
    step->backend->ops = narrow->ops;
    step->backend->counters = narrow->counters;
    if (step->again != NULL)
        model_release_weights(step->again);
    return STATUS_OK;
}

static enum status step_ready(struct rescue *rescue, const struct backend *narrow, int number, struct err *err)
{
    struct rescue_step *step = &rescue->steps[number];
    enum status status = STATUS_OK;
    pthread_mutex_lock(&rescue->lock);
    if (step->backend == NULL) {
        status = step_open(rescue, narrow, wider[number], step, err);
        if (status != STATUS_OK)
            step_close(step);
    }
    pthread_mutex_unlock(&rescue->lock);
    return status;
}

static enum status step_run(struct rescue *rescue, int number, struct rescue_streams *streams, const struct pass *pass,
                            struct err *err)
{
    struct backend *backend = rescue->steps[number].backend; /* does not change once it is open */
    if (streams->at[number] == NULL)
        TRY(backend->ops->stream_open(backend, &streams->at[number], err));
    TRY(encoder_enqueue(backend, streams->at[number], pass, NULL, err));
    return backend->ops->wait(streams->at[number], err);
}

enum status rescue_row(struct rescue *rescue, const struct backend *narrow, struct rescue_streams *streams,
                       const struct pass *pass, struct err *err)
{
    struct err why = {0};
    for (int i = 0; i < RESCUE_STEPS && narrow->precision == PRECISION_F16; i++) {
        if (narrow->ops->choose(wider[i]) != wider[i])
            continue;
        enum status status = step_ready(rescue, narrow, i, &why);
        if (status == STATUS_OK)
            status = step_run(rescue, i, streams, pass, &why);
        if (status == STATUS_NO_MEMORY || status == STATUS_DEVICE_LOST) { /* not the row's fault */
            if (err != NULL)
                *err = why;
            return status;
        }
        if (status == STATUS_OK && vector_finite(pass->output, narrow->model->dim)) {
            atomic_fetch_add(&rescue->rescued[i], 1);
            return STATUS_OK;
        }
    }
    atomic_fetch_add(&rescue->lost, 1);
    if (why.status != STATUS_OK)
        return err_set(err, STATUS_NON_FINITE, "the vector is not finite in f16, and a wider precision failed: %s",
                       why.message);
    return err_set(err, STATUS_NON_FINITE, "the vector is not finite");
}

void rescue_streams_close(struct rescue *rescue, struct rescue_streams *streams)
{
    for (int i = 0; i < RESCUE_STEPS; i++)
        if (streams->at[i] != NULL)
            rescue->steps[i].backend->ops->stream_close(streams->at[i]);
    *streams = (struct rescue_streams){0};
}
