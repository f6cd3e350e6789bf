/* The form of W3C Trace Context's two headers. */
#ifndef SCHEDULE_TRACE_CONTEXT_H
#define SCHEDULE_TRACE_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>

enum { TRACEPARENT_MAX_BYTES = 256, TRACESTATE_MAX_BYTES = 512 };

/* Checks version-traceid-parentid-flags; versions after 00 may have more after the flags. */
bool is_traceparent(const char *text, size_t length);

/* Checks for at most 32 members, with commas between and blanks around them. */
bool is_tracestate(const char *text, size_t length);

#endif
