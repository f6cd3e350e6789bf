/* Opening and closing an engine, and the names of precisions. */
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

#include "engine/auto_precision.h"
#include "engine/backend.h"
#include "engine/encoder.h"

static const char *const precision_names[] = {
    [PRECISION_AUTO] = "auto", [PRECISION_F32] = "f32",   [PRECISION_BF16] = "bf16",
    [PRECISION_F16] = "f16",   [PRECISION_INT8] = "int8",
};

const char *precision_name(enum precision precision)
{
    return precision_names[precision];
}

enum status precision_parse(const char *name, enum precision *out, struct err *err)
{
    for (unsigned i = 0; i < sizeof precision_names / sizeof precision_names[0]; i++) {
        if (strcmp(name, precision_names[i]) == 0) {
            *out = (enum precision)i;
            return STATUS_OK;
        }
    }
    return err_set(err, STATUS_BAD_INPUT, "precision \"%.40s\" is not one of auto, f32, bf16, f16, int8", name);
}

enum status engine_devices(const char *backend, enum precision precision, unsigned *count, struct err *err)
{
    const struct backend_ops *ops;
    TRY(backend_find(backend, precision, &ops, NULL, err));
    return ops->devices(count, err);
}

enum status engine_find(const char *backend, enum precision precision, const char **name, struct err *passed_over,
                        struct err *err)
{
    const struct backend_ops *ops;
    TRY(backend_find(backend, precision, &ops, passed_over, err));
    *name = ops->name;
    return STATUS_OK;
}

enum status engine_open(const struct model *model, const struct engine_options *options, struct engine **out,
                        struct err *err)
{
    const struct backend_ops *ops;
    struct err passed_over;
    struct engine_options chosen = options ? *options : (struct engine_options){0};
    TRY(backend_find(chosen.backend, chosen.precision, &ops, &passed_over, err));
    if (chosen.precision == PRECISION_AUTO) {
        TRY(backend_choose(ops, PRECISION_AUTO, &chosen.precision, err));
        TRY(auto_precision(ops, model, &chosen, chosen.precision, &chosen.precision, err));
    }
    TRY(engine_open_with(ops, model, &chosen, out, err));
    (*out)->passed_over = passed_over;
    return STATUS_OK;
}

void backend_linear_shape(const struct model *model, enum linear_site site, uint32_t *outputs, uint32_t *inputs)
{
    const uint32_t shapes[][2] = {
        [LINEAR_QKV] = {3 * model->hidden, model->hidden},
        [LINEAR_ATTENTION_OUTPUT] = {model->hidden, model->hidden},
        [LINEAR_INTERMEDIATE] = {model->intermediate_size, model->hidden},
        [LINEAR_OUTPUT] = {model->hidden, model->intermediate_size},
    };
    *outputs = shapes[site][0];
    *inputs = shapes[site][1];
}

enum status engine_open_with(const struct backend_ops *ops, const struct model *model,
                             const struct engine_options *options, struct engine **out, struct err *err)
{
    struct engine_options chosen = options ? *options : (struct engine_options){0};
    TRY(backend_choose(ops, chosen.precision, &chosen.precision, err));
    struct engine *engine = calloc(1, sizeof *engine);
    if (!engine) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for an engine");
    }
    enum status status = ops->open(model, &chosen, &engine->backend, err);
    if (status != STATUS_OK) {
        free(engine);
        return status;
    }
    engine->backend->ops = ops;
    engine->backend->counters = &engine->counters;
    engine->normalize = model->normalize && !chosen.raw;
    precision_fallback_init(&engine->fallback, &chosen);
    *out = engine;
    return STATUS_OK;
}

void engine_close(struct engine *engine)
{
    if (!engine) {
        return;
    }
    precision_fallback_close(&engine->fallback);
    engine->backend->ops->close(engine->backend);
    free(engine);
}

const char *engine_passed_over(const struct engine *engine)
{
    return engine->passed_over.message;
}

struct engine_counters engine_counters(struct engine *engine)
{
    struct engine_counters counters = {
        .passes = atomic_load(&engine->counters.passes),
        .graphs_captured = atomic_load(&engine->counters.graphs_captured),
        .graph_launches = atomic_load(&engine->counters.graph_launches),
        .graph_fallbacks = atomic_load(&engine->counters.graph_fallbacks),
        .halvings = atomic_load(&engine->counters.halvings),
    };
    precision_fallback_count(&engine->fallback, &counters);
    return counters;
}

const char *engine_backend(const struct engine *engine)
{
    return engine->backend->ops->name;
}

struct batch_size engine_batch_size(const struct engine *engine)
{
    return engine->backend->ops->batch;
}

enum status engine_default_batch(const char *backend, enum precision precision, struct batch_size *out,
                                 const char **name, struct err *err)
{
    const struct backend_ops *ops;
    TRY(backend_find(backend, precision, &ops, NULL, err));
    *out = ops->batch;
    *name = ops->name;
    return STATUS_OK;
}

const char *engine_device(const struct engine *engine)
{
    return engine->backend->device;
}

enum precision engine_precision(const struct engine *engine)
{
    return engine->backend->precision;
}

size_t engine_weight_bytes(const struct engine *engine)
{
    return engine->backend->weight_bytes;
}
