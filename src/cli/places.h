/* Where things lie on this machine. */
#ifndef CLI_PLACES_H
#define CLI_PLACES_H

#include "base/err.h"

#define PLACES_SYSTEM_CONFIG "/etc/sluice/sluice.json"

/* Finds the model that comes with Sluice: ../share/sluice/models beside the program's folder when installed, else
 * config/models of the source tree that it was built from.
 * Owns: the caller frees `*out` with free(). Errors: STATUS_NO_MEMORY; a model that is nowhere is no error yet, the
 * place where it would be installed is returned. */
MUST_CHECK enum status places_model(char **out, struct err *err);

#endif
