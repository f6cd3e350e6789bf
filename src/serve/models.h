/* The models of a daemon: each is opened once, whatever the number of queues that are made for it. */
#ifndef SERVE_MODELS_H
#define SERVE_MODELS_H

#include "engine/engine.h"
#include "serve/config.h"

struct models {
    struct {
        const struct config *config; /* of the first queue that wanted it */
        struct model *model;
    } * items;               /* [count] */
    struct engine **engines; /* [count] */
    unsigned count, capacity;
};

/* Makes room for the models of `most` queues.
 * Owns: the caller ends it with models_close, also after an error. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status models_open(struct models *models, unsigned most, struct err *err);
void models_close(struct models *models);

/* Finds the model and engine of a queue's settings, or opens them; `number` is their place in items and engines.
 * `config` must outlive the models. Errors: those of start_model and start_engine. */
MUST_CHECK enum status models_find(struct models *models, const struct config *config, unsigned *number,
                                   struct err *err);

/* What one token costs with a model, compared with others: the weights that it passes through. */
double model_token_cost(const struct model *model);

#endif
