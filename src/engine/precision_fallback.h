/* Rows whose vector is not finite in f16 are run again alone in bf16, and then in f32.
 *
 * No state is kept: the next batch runs in f16 again, so a text's vector does not depend on what the process did
 * before. The wider engines are opened from the model's files when they are first needed, and then kept: the same
 * backend on the same device, with room for one row. */
#ifndef ENGINE_PRECISION_FALLBACK_H
#define ENGINE_PRECISION_FALLBACK_H

#include <pthread.h>

#include "engine/backend.h"

enum { FALLBACK_STEPS = 2 }; /* bf16, f32 */

/* One for each engine, shared by its encoders. */
struct precision_fallback {
    struct engine_options options; /* as the engine was opened */
    pthread_mutex_t lock;          /* for steps: the first to need one opens it, the others wait */
    struct fallback_step {
        struct model *again; /* the model, if its weights had to be read again; they are released */
        struct backend *backend;
    } steps[FALLBACK_STEPS];
    atomic_uint_fast64_t rescued[FALLBACK_STEPS], lost;
};

/* One for each encoder. All zero at first. */
struct fallback_workspaces {
    struct backend_workspace *at[FALLBACK_STEPS];
};

/* Prepares for an engine of these options; nothing is opened. Owns: the caller ends it with precision_fallback_close.
 */
void precision_fallback_init(struct precision_fallback *fallback, const struct engine_options *options);

/* Closes the wider backends, after all workspaces. */
void precision_fallback_close(struct precision_fallback *fallback);

/* Fills the counters of rows. Thread: any. */
void precision_fallback_count(struct precision_fallback *fallback, struct engine_counters *to);

/* Runs one row again, in each wider precision until its vector is finite. `narrow` is the engine's own backend; unless
 * it computes in f16 there is nothing to try.
 * Shapes: pass has one row. Errors: STATUS_NON_FINITE (in no precision; the message says so, or why a wider one could
 * not be opened), STATUS_NO_MEMORY, STATUS_DEVICE_LOST. Thread: any, each with its own workspaces. */
MUST_CHECK enum status precision_fallback_row(struct precision_fallback *fallback, const struct backend *narrow,
                                              struct fallback_workspaces *workspaces, const struct pass *pass,
                                              struct err *err);

/* Closes the workspaces that were opened for one encoder. */
void fallback_workspaces_close(struct precision_fallback *fallback, struct fallback_workspaces *workspaces);

#endif
