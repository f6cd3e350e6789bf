/* The OpenAPI document of the gateway: made from the tables that serve the requests, so that it cannot say anything
 * else. */
#ifndef GATEWAY_OPENAPI_H
#define GATEWAY_OPENAPI_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"

/* A path that is no dialect. One that has other paths below it ends with {name}, which becomes a parameter. */
struct openapi_path {
    const char *path;
    const char *method; /* "get" */
    const char *type;   /* of the content; NULL: JSON */
    const char *summary;
    const char *body_type, *body; /* of a request, and the schema, in which ' stands for "; NULL: it has none */
    bool open;                    /* it needs no key */
};

/* Paths; rows with one path follow one another. */
struct openapi_paths {
    const struct openapi_path *rows; /* [count] */
    size_t count;
};

/* Appends the document for all dialects, for `own` and for `more`; `keys`: those are asked for. */
void openapi_put(struct openapi_paths own, struct openapi_paths more, bool keys, struct buffer *to);

#endif
