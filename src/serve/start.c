#include "serve/start.h"

#include <unistd.h>

enum status start_model(const struct config *config, struct model **out, struct err *err)
{
    struct model_options options = {.pooling = (enum pooling)config->pooling,
                                    .max_tokens = (uint32_t)config->max_tokens,
                                    .prompt = config->prompt,
                                    .prefix = config->prefix};
    if (access(config->model, F_OK) != 0)
        return err_set_errno(err, "no model at %s (--model names a sentence-transformers directory)", config->model);
    return model_open(config->model, &options, out, err);
}

enum status start_engine(const struct config *config, struct model *model, bool raw, struct engine **out,
                         struct err *err)
{
    model->read_once = true; /* so that file and copy are never in memory whole at once */
    struct engine_options options = {
        .backend = config->backend, .precision = (enum precision)config->precision, .raw = raw};
    enum status status = engine_open(model, &options, out, err);
    if (status != STATUS_OK)
        return err_prefix(err, "engine");
    model_release_weights(model);
    return STATUS_OK;
}

unsigned start_threads(const struct config *config)
{
    return config->threads > 0 ? (unsigned)config->threads : engine_default_threads();
}
