#include "base/clock.h"

#include <time.h>

static uint64_t read_clock_ns(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t clock_now_ns(void)
{
    return read_clock_ns(CLOCK_MONOTONIC);
}

uint64_t clock_now_ms(void)
{
    return clock_now_ns() / NS_PER_MS;
}

uint64_t clock_thread_ns(void)
{
    return read_clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t clock_unix_ns(void)
{
    return read_clock_ns(CLOCK_REALTIME);
}

uint64_t clock_unix_ms(void)
{
    return clock_unix_ns() / NS_PER_MS;
}
