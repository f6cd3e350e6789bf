/* A backend whose results a test can predict, on an imaginary device: passes stay there until they are waited for, each
 * precision has tokens that it cannot hold, and every step can be made to fail.
 *
 * A row's vector is its token ids summed up, plus 0.25 in bf16 and 0.5 in f32, in every element, which shows the
 * precision that computed it; plus 0.125 where the pass asks for vectors of length 1. */
#ifndef TESTS_FAKE_BACKEND_H
#define TESTS_FAKE_BACKEND_H

#include "engine/backend.h"

enum { FAKE_PRECISIONS = PRECISION_INT8_ALL + 1, FAKE_DEVICES = 3 };

/* A device at work; a test reads and changes it by the functions below, or when nothing runs. */
struct fake_device {
    bool held, lost;             /* held: nothing that was begun ends */
    atomic_uint streams;         /* open */
    unsigned breaks_at;          /* opening this one, from 1, finds it lost; 0: none does */
    unsigned begun, ended, most; /* passes; most: begun and not yet ended */
    unsigned good;               /* passes that ended before it was lost */
    unsigned idle;               /* begun by background threads */
    unsigned refused;            /* begun on a device that was lost */
};

/* Set by the test, also while engines are open but not while they run; counts are the backend's. */
struct fake_backend {
    unsigned slots, device_count;
    struct fake_device devices[FAKE_DEVICES];
    bool closed; /* nothing is begun */
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

/* backend_ops.finite and .helped, for a test that copies fake_backend and adds them; passes with an odd id are helped.
 */
bool fake_finite(const struct backend_workspace *stream);
bool fake_helped(const struct backend_workspace *stream);

/* Restores the beginning: one device, three slots, no limits, nothing fails. */
void fake_reset(void);

/* While engines run. */
void fake_hold(unsigned device, bool held);
void fake_lose(unsigned device);
void fake_set_closed(bool closed);
unsigned fake_begun(unsigned device);

/* Waits until this many passes have begun on a device; ctest's timeout ends an endless wait. */
void fake_wait_begun(unsigned device, unsigned count);

#endif
