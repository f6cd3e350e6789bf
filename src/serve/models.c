#include "serve/models.h"

#include <stdlib.h>
#include <string.h>

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
    return devices_load(&models->devices, config, models->items[at].model, true, at, err);
}

double model_token_cost(const struct model *model)
{
    double hidden = model->hidden, inner = model->intermediate_size;
    return model->layer_count * (4 * hidden * hidden + 2 * hidden * inner);
}
