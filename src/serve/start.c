#include "serve/start.h"

#include <unistd.h>

#include "engine/engine.h"

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

unsigned start_threads(const struct config *config)
{
    return config->threads > 0 ? (unsigned)config->threads : engine_default_threads();
}
