/* What the daemon and `sluice embed` start with alike, as the configuration says: the model, and how many threads. */
#ifndef SERVE_START_H
#define SERVE_START_H

#include "model/model.h"
#include "serve/config.h"

/* Opens the configured model; an error says what to do when it is not there.
 * Owns: the caller ends it with model_close. Errors: those of model_open. */
MUST_CHECK enum status start_model(const struct config *config, struct model **out, struct err *err);

/* How many compute threads to run on a CPU: the configured number, else what this process may use. */
unsigned start_threads(const struct config *config);

#endif
