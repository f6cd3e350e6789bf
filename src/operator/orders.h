/* The orders of an operator: the pause and the caps of a queue, and orders to its workers. */
#ifndef OPERATOR_ORDERS_H
#define OPERATOR_ORDERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "operator/counts.h"

/* Pauses a queue, in our name, and reads its pause into `*out`. `for_ms`: from now on; 0: until somebody resumes it.
 * `why`: UTF-8; NULL keeps the reason of a pause that is already there. A queue that was paused keeps its `since_ms`.
 * `*changed`: false if it is paused without an end and neither `for_ms` nor `why` is given; that pause is left alone.
 * Errors: those of the commands. */
MUST_CHECK enum status order_pause(struct session *session, uint64_t for_ms, const char *why, struct pause *out,
                                   bool *changed, struct err *err);

/* Ends the pause of a queue. `*changed`: it was paused. Errors: those of the commands. */
MUST_CHECK enum status order_resume(struct session *session, bool *changed, struct err *err);

/* Sets the caps that are not negative, and reads all. Shapes: caps [CAPS]; 0: none. Errors: those of the commands. */
MUST_CHECK enum status order_caps(struct session *session, long long caps[CAPS], struct err *err);

/* Leaves an order for a worker, which takes it with its next heartbeat (order_is). Errors: those of the
 * command. */
MUST_CHECK enum status order_worker(struct session *session, const char *worker, const char *order, struct err *err);

/* True if this is an order: quiet, resume, drain or stop. */
bool order_is(const char *word);

#endif
