/* The models of a daemon. Each is opened once, even if several queues use it. */
#ifndef COMPUTE_MODELS_H
#define COMPUTE_MODELS_H

#include "compute/devices.h"
#include "config/config.h"
#include "engine/cost.h"

/* The open models. Zero-initialise for none. */
struct models {
    struct {
        const struct config *config; /* of the first queue that uses it */
        struct model *model;
        struct cost cost; /* the cost of a batch on one compute thread */
        uint64_t load_ns; /* the time that opening and calibrating it took */
    } * items;            /* [count] */
    unsigned count;
    struct devices devices; /* with an engine for each model */
};

/* Makes room for the models of `most` queues, on the devices that `config` names.
 * Owns: the caller ends it with models_close, also after an error. Errors: those of devices_open. */
MUST_CHECK enum status models_open(struct models *models, const struct config *config, unsigned most, struct err *err);

/* Closes engines, then models. */
void models_close(struct models *models);

/* Finds the model and engines for a queue's settings, or opens them. `number` is their index in items and on each
 * device. `config` must outlive the models. Errors: those of config_served_model and devices_load. */
MUST_CHECK enum status models_find(struct models *models, const struct config *config, unsigned *number,
                                   struct err *err);

/* The cost of a token with this model, compared with other models: the number of weights that it passes through. */
double models_token_cost(const struct model *model);

#endif
