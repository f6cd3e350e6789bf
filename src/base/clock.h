/* Time as the program sees it. Code that decides (schedule/) never reads a clock: it gets `now` as an argument. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

#define NS_PER_MS 1000000ull
#define NS_PER_S 1000000000ull

/* Monotonic time in nanoseconds; only differences mean anything. Thread: any. */
uint64_t clock_now_ns(void);

/* Monotonic time in milliseconds. Thread: any. */
uint64_t clock_now_ms(void);

/* The processor time that this thread has used, in nanoseconds: on a machine that also does other things, a better
 * measure of work than elapsed time. */
uint64_t clock_thread_ns(void);

/* Unix time in milliseconds: for logs only, because deadlines of requests are in Redis' time. Thread: any. */
uint64_t clock_unix_ms(void);

/* The same in nanoseconds, for traces. Thread: any. */
uint64_t clock_unix_ns(void);

#endif
