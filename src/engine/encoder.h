/* What engine.c, encoder.c and precision_fallback.c share: an engine is an open backend and its wider ones; an encoder
 * is a workspace of it and the batches that are out. */
#ifndef ENGINE_ENCODER_H
#define ENGINE_ENCODER_H

#include "engine/backend.h"
#include "engine/precision_fallback.h"

struct engine {
    struct backend *backend;
    bool normalize; /* scale vectors to length 1 */
    struct precision_fallback fallback;
    struct backend_counters counters;
    struct err passed_over;
};

/* A batch that is out. */
struct batch_in_flight {
    const struct engine_batch *batch;
    unsigned passes; /* submitted and not waited for */
    bool alone;      /* a pass of it had no helpers */
    struct err err;  /* the first thing that went wrong */
};

struct encoder {
    struct engine *engine;
    const struct backend *backend;
    struct backend_workspace *workspace;
    struct fallback_workspaces fallback;

    struct batch_in_flight in_flight[BACKEND_SLOTS_MAX];
    unsigned first_batch, batches_out;
    bool helped; /* with the batch that was taken last */
    struct encoder_pause pause;
    struct pass passes[BACKEND_SLOTS_MAX];
    struct batch_in_flight *owners[BACKEND_SLOTS_MAX]; /* of the passes */
    unsigned first_pass, passes_out;
};

/* Begins one pass: calls all ops from embed to submit, with that pause, or NULL. Errors: that of the op that failed;
 * the workspace is then ready for the next pass. */
MUST_CHECK enum status encoder_enqueue(const struct backend *backend, struct backend_workspace *workspace,
                                       const struct pass *pass, const struct encoder_pause *pause, struct err *err);

#endif
