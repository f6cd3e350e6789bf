#include "compute/devices.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* The numbers that `device` names, or all that exist. */
static enum status choose_devices(struct device_list *list, const struct config *config, struct err *err)
{
    unsigned there = 0;
    bool read = device_list_parse(config->device, list);
    assert(read); /* config_set has checked it */
    (void)read;
    if (!list->all) { return STATUS_OK; /* opening them shows whether they exist */ }
    TRY(engine_devices(config->backend, (enum precision)config->precision, &there, err));
    for (; list->count < there && list->count < DEVICES_MAX; list->count++) {
        list->numbers[list->count] = list->count;
    }
    return STATUS_OK;
}

enum status devices_open(struct devices *devices, const struct config *config, unsigned most, struct err *err)
{
    struct device_list list;
    *devices = (struct devices){.capacity = most};
    TRY(choose_devices(&list, config, err));
    devices->all = list.all;
    for (; devices->count < list.count; devices->count++) {
        struct device *device = &devices->items[devices->count];
        device->number = list.numbers[devices->count];
        device->engines = calloc(most, sizeof(struct engine *));
        if (!device->engines) { return err_set(err, STATUS_NO_MEMORY, "no memory for the engines of %u models", most); }
    }
    return STATUS_OK;
}

void devices_close(struct devices *devices)
{
    for (unsigned i = 0; i < devices->count; i++) {
        struct device *device = &devices->items[i];
        for (unsigned number = 0; number < devices->capacity; number++) { engine_close(device->engines[number]); }
        free(device->engines);
    }
    *devices = (struct devices){0};
}

struct engine_options devices_options(const struct config *config, bool raw)
{
    return (struct engine_options){.backend = config->backend,
                                   .precision = (enum precision)config->precision,
                                   .raw = raw,
                                   .batch_tokens = (uint32_t)config->max_batch_tokens,
                                   .batch_rows = (uint32_t)config->max_batch_rows,
                                   .memory_share = (float)config->device_memory / 100,
                                   .cache_path = config->cache_dir};
}

/* All compute threads use the same backend, but "auto" may choose another one for a queue with its own precision. */
static enum status same_backend(const struct devices *devices, const struct engine *engine, struct err *err)
{
    const struct engine *first = devices_engine(devices, 0);
    if (!first || strcmp(engine_backend(first), engine_backend(engine)) == 0) { return STATUS_OK; }
    return err_set(err, STATUS_UNSUPPORTED,
                   "%s is for backend \"%s\", but the queues before this one are on \"%s\", and a process computes on "
                   "one: set backend, or give such queues a daemon of their own",
                   precision_name(engine_precision(engine)), engine_backend(engine), engine_backend(first));
}

/* Drops the devices that the engine's backend does not have: with GPUs in the machine, "auto" may still mean the CPU
 * for a model. */
static void drop_others(struct devices *devices, const struct config *config, const struct engine *engine)
{
    unsigned there;
    if (engine_devices(engine_backend(engine), (enum precision)config->precision, &there, NULL) != STATUS_OK) {
        return;
    }
    while (devices->count > there) { free(devices->items[--devices->count].engines); }
}

/* int8 was asked for, for its speed; without a product in it there is none. */
static void warn_of_int8(const struct model *model, const struct engine *engine)
{
    const struct engine_int8 *int8 = engine_int8(engine);
    if (!int8 || int8->total > 0) { return; }
    log_warn("int8_unused", log_str("model", model->name), log_str("computes_in", int8->others),
             log_str("means", "none of its products is exact enough in int8"));
}

enum status devices_load(struct devices *devices, const struct config *config, struct model *model, bool raw,
                         unsigned number, struct err *err)
{
    struct engine_options options = devices_options(config, raw);
    for (unsigned i = 0; i < devices->count; i++) {
        struct device *device = &devices->items[i];
        if (device->lost) { continue; }
        model->read_once = i + 1 == devices->count; /* frees the file's memory while the last copy is made */
        options.device = device->number;
        enum status status = engine_open(model, &options, &device->engines[number], err);
        if (status == STATUS_DEVICE_LOST) {
            device->lost = true;
            log_error("device_lost", log_int("device", device->number), log_str("message", err->message),
                      log_str("effect", "it is left out from the start"));
        } else if (status == STATUS_OK) {
            status = same_backend(devices, device->engines[number], err);
            if (number == 0 && devices->all) { drop_others(devices, config, device->engines[0]); }
            if (i == 0) { warn_of_int8(model, device->engines[number]); }
        }
        if (status != STATUS_OK && status != STATUS_DEVICE_LOST) { return err_prefix(err, "engine"); }
    }
    unsigned left = 0;
    for (unsigned i = 0; i < devices->count; i++) { left += !devices->items[i].lost; }
    if (left == 0) { return err_set(err, STATUS_DEVICE_LOST, "none of the %u devices works", devices->count); }
    model_release_weights(model);
    return STATUS_OK;
}

struct batch_size devices_batch_size(const struct config *config, const struct engine *engine)
{
    struct batch_size size = engine_batch_size(engine);
    if (config->max_batch_tokens > 0) { size.tokens = (uint32_t)config->max_batch_tokens; }
    if (config->max_batch_rows > 0) { size.rows = (uint32_t)config->max_batch_rows; }
    return size;
}

struct engine_counters devices_counters(const struct devices *devices)
{
    struct engine_counters sum = {0};
    for (unsigned i = 0; i < devices->count; i++) {
        for (unsigned number = 0; number < devices->capacity; number++) {
            struct engine *engine = devices->items[i].engines[number];
            struct engine_counters counters = engine ? engine_counters(engine) : (struct engine_counters){0};
            sum.rows_bf16 += counters.rows_bf16;
            sum.rows_f32 += counters.rows_f32;
            sum.rows_lost += counters.rows_lost;
        }
    }
    return sum;
}

struct engine *devices_engine(const struct devices *devices, unsigned number)
{
    for (unsigned i = 0; i < devices->count; i++) {
        if (!devices->items[i].lost) { return devices->items[i].engines[number]; }
    }
    return NULL;
}
