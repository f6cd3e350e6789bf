/* The devices that a process computes on, and the engines on them: one for each model on each device.
 *
 * A device that is lost when it is opened is left out, like one that is lost later: a machine with a broken GPU works
 * with the others. */
#ifndef COMPUTE_DEVICES_H
#define COMPUTE_DEVICES_H

#include "config/config.h"
#include "engine/engine.h"

/* One device with its engines. */
struct device {
    uint32_t number; /* the backend's number */
    bool lost;
    struct engine **engines; /* [capacity], by model number; NULL if the device was already lost */
};

/* The configured devices. Zero-initialise for none. */
struct devices {
    struct device items[DEVICES_MAX];
    unsigned count;
    unsigned capacity; /* of `engines` on each */
    bool all;          /* none were named: the first model may leave fewer */
};

/* Finds out which devices the configuration (of the first queue, where there are several) means, with room for the
 * engines of `most` models.
 * Owns: the caller ends it with devices_close, also after an error. Errors: STATUS_UNSUPPORTED (no such backend
 * here), STATUS_NO_MEMORY. */
MUST_CHECK enum status devices_open(struct devices *devices, const struct config *config, unsigned most,
                                    struct err *err);

/* Closes all engines. Their encoders must be closed before. */
void devices_close(struct devices *devices);

/* The configured options of an engine; the device stays 0. */
struct engine_options devices_options(const struct config *config, bool raw);

/* Opens an engine for the model of that number on every device, and releases the model's weights, of which each engine
 * has its own copy. If no devices were named, only those of the first model's backend remain: "auto" may mean the CPU
 * for it in spite of GPUs. `raw`: as in struct engine_options. Errors: those of engine_open; STATUS_UNSUPPORTED also
 * when "auto" means another backend for it than for earlier models; STATUS_DEVICE_LOST when no device is left. */
MUST_CHECK enum status devices_load(struct devices *devices, const struct config *config, struct model *model, bool raw,
                                    unsigned number, struct err *err);

/* The largest batch for an engine: the configured limits, or the backend's choice where they are "auto". */
struct batch_size devices_batch_size(const struct config *config, const struct engine *engine);

/* The sums of the counters of all engines. */
struct engine_counters devices_counters(const struct devices *devices);

/* The model's engine on some live device, for properties that all its engines share; NULL when no device is live. */
struct engine *devices_engine(const struct devices *devices, unsigned number);

#endif
