/* What engine.c and encoder.c share: an engine is an open backend. */
#ifndef ENGINE_ENCODER_H
#define ENGINE_ENCODER_H

#include "engine/backend.h"

struct engine {
    struct backend *backend;
    bool normalize; /* what a pass has pooled, to length 1 */
};

#endif
