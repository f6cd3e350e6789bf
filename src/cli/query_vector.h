/* One text to its vector on this machine, for commands that ask vectors something. */
#ifndef CLI_QUERY_VECTOR_H
#define CLI_QUERY_VECTOR_H

#include "model/model.h"
#include "serve/config.h"

/* A vector, and whether it is of the whole text. */
struct query_vector {
    float *values; /* [dim], owned */
    uint32_t dim;
    bool truncated; /* the text was longer than the model's limit */
};

/* Computes the vector of a text as the daemon would: prompt, limit, normalisation. The model's weights are let go of.
 * Owns: the caller frees `out->values`. Errors: those of devices_open, devices_load and local_open; STATUS_BAD_INPUT
 * when the text is not UTF-8; STATUS_NON_FINITE. */
MUST_CHECK enum status query_vector(const char *text, const struct config *config, struct model *model,
                                    struct query_vector *out, struct err *err);

#endif
