#include "serve/models.h"

#include <stdlib.h>
#include <string.h>

#include "serve/start.h"

enum status models_open(struct models *models, unsigned most, struct err *err)
{
    *models = (struct models){.capacity = most};
    models->items = calloc(most, sizeof *models->items);
    models->engines = calloc(most, sizeof(struct engine *));
    if (models->items == NULL || models->engines == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for %u models", most);
    return STATUS_OK;
}

void models_close(struct models *models)
{
    for (unsigned i = 0; i < models->count; i++) {
        if (models->engines[i] != NULL)
            engine_close(models->engines[i]);
        model_close(models->items[i].model);
    }
    free(models->items);
    free(models->engines);
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
    return start_engine(config, models->items[at].model, true, &models->engines[at], err);
}

double model_token_cost(const struct model *model)
{
    double hidden = model->hidden, inner = model->intermediate_size;
    return model->layer_count * (4 * hidden * hidden + 2 * hidden * inner);
}
