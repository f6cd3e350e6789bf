/* Reads the JSON body of a request by a table of members. As strict as the workers (schedule/inputs.h), so that what is
 * read here is not refused there. Unknown members are skipped, as the original servers do. */
#ifndef GATEWAY_BODY_H
#define GATEWAY_BODY_H

#include "gateway/dialect.h"

/* Owns: the caller ends the call with call_free, also after an error; the body must outlive it. False: the fault says
 * why. Thread: any. */
MUST_CHECK bool body_parse(const struct dialect *dialect, const char *body, size_t length, struct call *call,
                           struct fault *fault);

#endif
