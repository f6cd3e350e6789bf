#include "engine/precision_fallback.h"

#include "engine/encoder.h"
#include "engine/vector.h"

static const enum precision wider[FALLBACK_STEPS] = {PRECISION_BF16, PRECISION_F32};

void precision_fallback_init(struct precision_fallback *fallback, const struct engine_options *options)
{
    fallback->options = *options;
    pthread_mutex_init(&fallback->lock, NULL); /* cannot fail with default attributes on Linux */
}

static void step_close(struct fallback_step *step)
{
    if (step->backend) {
        step->backend->ops->close(step->backend);
    }
    model_close(step->again);
    *step = (struct fallback_step){0};
}

void precision_fallback_close(struct precision_fallback *fallback)
{
    for (int i = 0; i < FALLBACK_STEPS; i++) {
        step_close(&fallback->steps[i]);
    }
    pthread_mutex_destroy(&fallback->lock);
}

void precision_fallback_count(struct precision_fallback *fallback, struct engine_counters *to)
{
    to->rows_bf16 = atomic_load(&fallback->rescued[0]);
    to->rows_f32 = atomic_load(&fallback->rescued[1]);
    to->rows_lost = atomic_load(&fallback->lost);
}

/* The weights are still in the model's memory only if they were not to be released. */
static enum status step_open(const struct precision_fallback *fallback, const struct backend *narrow,
                             enum precision precision, struct fallback_step *step, struct err *err)
{
    const struct model *model = narrow->model;
    if (model->read_once) {
        TRY(model_read_again(model, &step->again, err));
        model = step->again;
    }
    struct engine_options options = fallback->options;
    options.precision = precision;
    options.batch_tokens = model->max_tokens;
    options.batch_rows = 1;
    options.no_graphs = true;
    TRY(narrow->ops->open(model, &options, &step->backend, err));
    step->backend->ops = narrow->ops;
    step->backend->counters = narrow->counters;
    if (step->again) {
        model_release_weights(step->again);
    }
    return STATUS_OK;
}

static enum status step_ready(struct precision_fallback *fallback, const struct backend *narrow, int number,
                              struct err *err)
{
    struct fallback_step *step = &fallback->steps[number];
    enum status status = STATUS_OK;
    pthread_mutex_lock(&fallback->lock);
    if (!step->backend) {
        status = step_open(fallback, narrow, wider[number], step, err);
        if (status != STATUS_OK) {
            step_close(step);
        }
    }
    pthread_mutex_unlock(&fallback->lock);
    return status;
}

static enum status step_run(struct precision_fallback *fallback, int number, struct fallback_workspaces *workspaces,
                            const struct pass *pass, struct err *err)
{
    struct backend *backend = fallback->steps[number].backend; /* does not change once it is open */
    if (!workspaces->at[number]) {
        TRY(backend->ops->workspace_open(backend, &workspaces->at[number], err));
    }
    TRY(encoder_enqueue(backend, workspaces->at[number], pass, NULL, err));
    return backend->ops->wait(workspaces->at[number], err);
}

enum status precision_fallback_row(struct precision_fallback *fallback, const struct backend *narrow,
                                   struct fallback_workspaces *workspaces, const struct pass *pass, struct err *err)
{
    struct err why = {0};
    for (int i = 0; i < FALLBACK_STEPS && narrow->precision == PRECISION_F16; i++) {
        if (narrow->ops->choose(wider[i]) != wider[i]) {
            continue;
        }
        enum status status = step_ready(fallback, narrow, i, &why);
        if (status == STATUS_OK) {
            status = step_run(fallback, i, workspaces, pass, &why);
        }
        if (status == STATUS_NO_MEMORY || status == STATUS_DEVICE_LOST) { /* not the row's fault */
            if (err) {
                *err = why;
            }
            return status;
        }
        if (status == STATUS_OK && vector_finite(pass->output, narrow->model->dim)) {
            atomic_fetch_add(&fallback->rescued[i], 1);
            return STATUS_OK;
        }
    }
    atomic_fetch_add(&fallback->lost, 1);
    if (why.status != STATUS_OK) {
        return err_set(err, STATUS_NON_FINITE, "the vector is not finite in f16, and a wider precision failed: %s",
                       why.message);
    }
    return err_set(err, STATUS_NON_FINITE, "the vector is not finite");
}

void fallback_workspaces_close(struct precision_fallback *fallback, struct fallback_workspaces *workspaces)
{
    for (int i = 0; i < FALLBACK_STEPS; i++) {
        if (workspaces->at[i]) {
            fallback->steps[i].backend->ops->workspace_close(workspaces->at[i]);
        }
    }
    *workspaces = (struct fallback_workspaces){0};
}
