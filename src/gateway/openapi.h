/* The OpenAPI document of the gateway: made from the tables that serve the requests, so that it cannot say anything
 * else. */
#ifndef GATEWAY_OPENAPI_H
#define GATEWAY_OPENAPI_H

#include <stddef.h>

#include "base/buffer.h"

/* A path that is no dialect. One that has other paths below it ends with {name}, which becomes a parameter. */
struct openapi_path {
    const char *path;
    const char *method; /* "get" */
    const char *type;   /* of the content; NULL: JSON */
    const char *summary;
};

/* Appends the document for all dialects and for `others` [count]; rows with one path follow one another. */
void openapi_put(const struct openapi_path *others, size_t count, struct buffer *to);

#endif
