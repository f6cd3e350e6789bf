/* What engine.c, encoder.c and rescue.c share: an engine is an open backend, and the way to wider ones. */
#ifndef ENGINE_ENCODER_H
#define ENGINE_ENCODER_H

#include "engine/backend.h"
#include "engine/rescue.h"

struct engine {
    struct backend *backend;
    bool normalize; /* what a pass has pooled, to length 1 */
    struct rescue rescue;
    struct err passed_over;
};

/* Begins one pass on a backend's stream: all ops from embed to submit. */
MUST_CHECK enum status encoder_enqueue(const struct backend *backend, struct backend_stream *stream,
                                       const struct pass *pass, struct err *err);

#endif
