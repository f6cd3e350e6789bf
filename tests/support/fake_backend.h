/* A backend whose results a test can predict, on an imaginary device: passes stay there until they are waited for, each
 * precision has tokens that it cannot hold, and every step can be made to fail.
 *
 * A row's vector is its token ids summed up, plus 0.25 in bf16 and 0.5 in f32, in every element, which shows the
 * precision that computed it; plus 0.125 where the pass asks for vectors of length 1. */
#ifndef TESTS_FAKE_BACKEND_H
#define TESTS_FAKE_BACKEND_H

#include "engine/backend.h"

enum { FAKE_PRECISIONS = PRECISION_INT8 + 1 };

/* Set by the test, also while engines are open but not while they run; counts are the backend's. */
struct fake_backend {
    unsigned slots;
    struct pass_limits limits;
    int32_t overflows[FAKE_PRECISIONS];            /* a token whose rows are not finite in that precision; 0: none */
    enum status open_fails[FAKE_PRECISIONS];       /* what open answers */
    enum status stream_fails[FAKE_PRECISIONS];     /* what workspace_open answers */
    int32_t embed_fails, submit_fails, wait_fails; /* a token whose pass fails at this step; 0: none */
    enum status failure;                           /* with this status */

    atomic_uint opened, streams;      /* now open */
    atomic_uint passes, most_waiting; /* submitted in all; the maximum submitted and not yet waited for */
    atomic_uint passes_in[FAKE_PRECISIONS];
    atomic_uint most_rows; /* in a pass */
};

/* The one that fake_backend's functions use; the test may change it at any time. */
extern struct fake_backend fake;
extern const struct backend_ops fake_backend;

/* backend_ops.finite, for a test that copies fake_backend and adds it. */
bool fake_finite(const struct backend_workspace *stream);

/* Restores the beginning: three slots, no limits, nothing fails. */
void fake_reset(void);

#endif
