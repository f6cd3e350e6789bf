/* An engine is an open backend, plus wider ones once a row has needed them; an encoder is a workspace of the backend
 * plus the batches that are out. For encoder.c and its tests. */
#ifndef ENGINE_ENCODER_H
#define ENGINE_ENCODER_H

#include <pthread.h>

#include "engine/backend.h"
#include "engine/modules.h"

enum { FALLBACK_STEPS = 2 }; /* bf16, f32 */

struct engine {
    struct backend *backend;
    struct modules *modules;       /* NULL: there are none */
    bool normalize;                /* scale vectors to length 1 */
    bool on_device;                /* the device finishes rows: it looks whether they are finite, and normalises; no
                                      modules follow */
    struct engine_options options; /* as it was opened */
    struct engine_int8 int8;       /* in int8; its in_int8 belongs to the engine */
    pthread_mutex_t lock;          /* for steps: the first thread to need one opens it, the others wait */
    struct fallback_step {
        struct model *again; /* the model, if its weights had to be read again; they are released */
        struct backend *backend;
    } steps[FALLBACK_STEPS];
    struct backend_counters counters;
    atomic_uint_fast64_t rescued[FALLBACK_STEPS], lost; /* rows */
    struct err passed_over;
};

/* A batch that is out. */
struct batch_in_flight {
    const struct engine_batch *batch;
    float *vectors;  /* [rows, hidden]: the batch's output, or the encoder's own memory where modules follow */
    unsigned passes; /* submitted and not waited for */
    bool alone;      /* a pass of it had no helpers */
    bool suspect;    /* some number may not be finite: the device has not looked, or has found one */
    struct err err;  /* the first error */
};

struct encoder {
    struct engine *engine;
    const struct backend *backend;
    struct backend_workspace *workspace;
    struct backend_workspace *wider[FALLBACK_STEPS]; /* NULL until a row needs one */
    struct parallel_for *parallel;                   /* the helpers for the modules; NULL: none */

    struct batch_in_flight in_flight[BACKEND_SLOTS_MAX];
    struct pooled_rows {
        float *vectors; /* [rows, hidden], followed by the modules' room */
        uint32_t rows;
    } pooled[BACKEND_SLOTS_MAX]; /* of the batches, where modules follow */
    unsigned first_batch, batches_out;
    bool helped; /* with the batch that was taken last */
    struct encoder_pause pause;
    struct layer_inputs *inputs; /* of the passes; set for a trial alone */
    struct pass passes[BACKEND_SLOTS_MAX];
    struct batch_in_flight *owners[BACKEND_SLOTS_MAX]; /* of the passes */
    unsigned first_pass, passes_out;
};

#endif
