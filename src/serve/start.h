/* Model and engine as the configuration names them: what the daemon and `sluice embed` open alike. */
#ifndef SERVE_START_H
#define SERVE_START_H

#include "engine/engine.h"
#include "model/model.h"
#include "serve/config.h"

/* Opens the configured model; an error says what to do when it is not there.
 * Owns: the caller ends it with model_close. Errors: those of model_open. */
MUST_CHECK enum status start_model(const struct config *config, struct model **out, struct err *err);

/* Opens the configured engine and lets go of the model's weights, of which it has its own copy. `raw`: as in
 * struct engine_options. Owns: the caller ends it with engine_close. Errors: those of engine_open. */
MUST_CHECK enum status start_engine(const struct config *config, struct model *model, bool raw, struct engine **out,
                                    struct err *err);

/* How many compute threads to run: the configured number, else what this process may use. */
unsigned start_threads(const struct config *config);

#endif
