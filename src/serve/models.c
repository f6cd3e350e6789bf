#include "serve/models.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "serve/start.h"

enum status models_open(struct models *models, const struct config *config, unsigned most, struct err *err)
{
    *models = (struct models){.items = calloc(most, sizeof *models->items)};
    if (models->items == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for %u models", most);
    return devices_open(&models->devices, config, most, err);
}

void models_close(struct models *models)
{
    devices_close(&models->devices);
    for (unsigned i = 0; i < models->count; i++)
        model_close(models->items[i].model);
    free(models->items);
    *models = (struct models){0};
}

static bool same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* Whether two queues' settings name the same model on the same engine. */
static bool same_model(const struct config *a, const struct config *b)
{
    return same_text(a->model, b->model) && a->precision == b->precision && a->pooling == b->pooling &&
           a->max_tokens == b->max_tokens && same_text(a->prompt, b->prompt) && same_text(a->prefix, b->prefix);
}

/* What batches take on the first device that works; they are assumed to be alike. One that does not get through a
 * calibration will be found out by the first batch, and until then nothing is known of its speed. */
static void calibrate(const struct models *models, unsigned number, struct cost *cost)
{
    enum { CALIBRATE_MS = 100 };
    struct engine *engine = devices_engine(&models->devices, number);
    const struct model *model = models->items[number].model;
    struct encoder *encoder = NULL;
    struct err err = {0};
    *cost = cost_from(0, 0, 0);
    enum status status = encoder_open(engine, &encoder, &err);
    if (status == STATUS_OK)
        status = cost_calibrate(encoder, model, CALIBRATE_MS * NS_PER_MS, cost, &err);
    encoder_close(encoder);
    if (status != STATUS_OK)
        log_warn("not_calibrated", log_str("model", model->name), log_str("message", err.message));
    else
        log_info("calibrated", log_str("model", model->name), log_int("fixed_us", (int64_t)(cost->terms[0] / 1e3)),
                 log_int("token_ns", (int64_t)cost->terms[1]), log_int("square_ps", (int64_t)(cost->terms[2] * 1e3)));
}

enum status models_find(struct models *models, const struct config *config, unsigned *number, struct err *err)
{
    for (unsigned i = 0; i < models->count; i++)
        if (same_model(models->items[i].config, config)) {
            *number = i;
            return STATUS_OK;
        }
    unsigned at = models->count;
    enum status status = start_model(config, &models->items[at].model, err);
    if (status != STATUS_OK)
        return status;
    models->items[at].config = config;
    models->count++;
    *number = at;
    TRY(devices_load(&models->devices, config, models->items[at].model, true, at, err));
    calibrate(models, at, &models->items[at].cost);
    return STATUS_OK;
}

double model_token_cost(const struct model *model)
{
    double hidden = model->hidden, inner = model->intermediate_size;
    return model->layer_count * (4 * hidden * hidden + 2 * hidden * inner);
}
