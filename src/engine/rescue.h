/* Rows that f16 cannot hold: each is run again alone in bf16, and if that is not enough in f32.
 *
 * Nothing sticks: the next batch runs in f16 again, so that a text's vector does not depend on what a process did
 * before. The wider engines are opened when they are first needed, from the model's files, and then kept: they are the
 * same backend on the same device, with room for one row. */
#ifndef ENGINE_RESCUE_H
#define ENGINE_RESCUE_H

#include <pthread.h>

#include "engine/backend.h"

enum { RESCUE_STEPS = 2 }; /* bf16, f32 */

/* One for each engine, shared by its encoders. */
struct rescue {
    struct engine_options options; /* as the engine was opened */
    pthread_mutex_t lock;          /* around steps: who needs one first opens it, the others wait */
    struct rescue_step {
        struct model *again; /* the model's weights, when they had to be read again; its bytes are given back */
        struct backend *backend;
    } steps[RESCUE_STEPS];
    atomic_uint_fast64_t rescued[RESCUE_STEPS], lost;
};

/* One for each encoder. All zero at first. */
struct rescue_streams {
    struct backend_stream *at[RESCUE_STEPS];
};

/* Prepares for an engine of these options; nothing is opened. Owns: the caller ends it with rescue_close. */
void rescue_init(struct rescue *rescue, const struct engine_options *options);

/* Closes the wider backends, after all streams. */
void rescue_close(struct rescue *rescue);

/* Fills the counters of rows. Thread: any. */
void rescue_count(struct rescue *rescue, struct engine_counters *to);

/* Runs one row again, in each wider precision until its vector is finite. `narrow` is the engine's own backend; unless
 * it computes in f16 there is nothing to try.
 * Shapes: pass has one row. Errors: STATUS_NON_FINITE (in no precision; the message says so, or why a wider one could
 * not be opened), STATUS_NO_MEMORY, STATUS_DEVICE_LOST. Thread: any, each with streams of its own. */
MUST_CHECK enum status rescue_row(struct rescue *rescue, const struct backend *narrow, struct rescue_streams *streams,
                                  const struct pass *pass, struct err *err);

/* Closes the streams that were opened for one encoder. */
void rescue_streams_close(struct rescue *rescue, struct rescue_streams *streams);

#endif
