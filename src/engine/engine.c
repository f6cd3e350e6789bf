/* Opening and closing an engine, and the names of precisions. */
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

#include "engine/backend.h"
#include "engine/encoder.h"

static const char *const precision_names[] = {
    [PRECISION_AUTO] = "auto",
    [PRECISION_F32] = "f32",
    [PRECISION_BF16] = "bf16",
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
    return err_set(err, STATUS_BAD_INPUT, "precision \"%.40s\" is not one of auto, f32, bf16", name);
}

enum status engine_open(const struct model *model, const struct engine_options *options, struct engine **out,
                        struct err *err)
{
    const struct backend_ops *ops;
    enum status status = backend_find(options == NULL ? NULL : options->backend, &ops, err);
    if (status != STATUS_OK)
        return status;
    TRY(engine_open_with(ops, model, options == NULL ? PRECISION_AUTO : options->precision, out, err));
    (*out)->normalize = model->normalize && (options == NULL || !options->raw);
    return STATUS_OK;
}

enum status engine_open_with(const struct backend_ops *ops, const struct model *model, enum precision precision,
                             struct engine **out, struct err *err)
{
    enum precision chosen = ops->choose(precision);
    if (chosen == PRECISION_AUTO)
        return err_set(err, STATUS_UNSUPPORTED, "backend \"%s\" cannot compute in %s on this machine", ops->name,
                       precision_name(precision));
    struct engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for an engine");
    enum status status = ops->open(model, chosen, &engine->backend, err);
    if (status != STATUS_OK) {
        free(engine);
        return status;
    }
    engine->backend->ops = ops;
    engine->normalize = model->normalize;
    *out = engine;
    return STATUS_OK;
}

void engine_close(struct engine *engine)
{
    if (engine == NULL)
        return;
    engine->backend->ops->close(engine->backend);
    free(engine);
}

const char *engine_backend(const struct engine *engine)
{
    return engine->backend->ops->name;
}

enum precision engine_precision(const struct engine *engine)
{
    return engine->backend->precision;
}

size_t engine_weight_bytes(const struct engine *engine)
{
    return engine->backend->weight_bytes;
}
