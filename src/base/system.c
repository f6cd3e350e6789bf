#include "base/system.h"

#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ALIGNMENT = 64, HUGE_BYTES = 2 << 20 };

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

void *memory_aligned(size_t bytes)
{
    size_t unit = bytes < HUGE_BYTES ? ALIGNMENT : HUGE_BYTES;
    size_t whole = bytes == 0 ? unit : round_up(bytes, unit);
    void *memory = aligned_alloc(unit, whole);
    if (memory && unit == HUGE_BYTES) {
        (void)madvise(memory, whole, MADV_HUGEPAGE); /* if it is refused, small pages will do */
    }
    return memory;
}

void *memory_map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) { return NULL; }
    if (bytes >= HUGE_BYTES) { (void)madvise(memory, bytes, MADV_HUGEPAGE); }
    return memory;
}

void memory_unmap(void *memory, size_t bytes)
{
    if (memory) { (void)munmap(memory, bytes); }
}

void memory_release(const void *first, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)first;
    uintptr_t begin = (from + page - 1) / page * page, end = (from + bytes) / page * page;
    if (begin < end) {
        (void)madvise((void *)begin, end - begin, MADV_DONTNEED); /* NOLINT(performance-no-int-to-ptr) */
    }
}

void *memory_part(char *block, size_t *used, size_t bytes)
{
    void *at = block ? block + *used : NULL;
    *used += round_up(bytes, ALIGNMENT);
    return at;
}

/* A nice value alone is not enough: a thread that wakes up waits until the running one has used its slice, which ends
 * with a tick of the clock, 4 ms on many kernels. On Linux 6.12 and later a running thread with a longer slice gives
 * way at once, so this one asks for a slice just longer than the kernel's default (2.8 ms at most). SCHED_IDLE would
 * work on all kernels, but such a thread is so rarely run on a busy machine that not even SIGKILL ends its process
 * within seconds. */

/* The part that is used here of the kernel's struct sched_attr, which the C library of Debian 12 lacks. */
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t slice_ns, deadline_ns, period_ns;
};

enum { NICE = 19, BACKGROUND_NICE = 10, SLICE_NS = 3 * 1000 * 1000 };

void priority_idle(void)
{
    struct attributes attributes = {.size = sizeof attributes, .nice = NICE, .slice_ns = SLICE_NS};
    if (syscall(SYS_sched_setattr, 0, &attributes, 0) != 0) { (void)setpriority(PRIO_PROCESS, 0, NICE); }
}

/* Adds ten to the nice value, so that a `nice` of the user still counts. */
void priority_background(void)
{
    (void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + BACKGROUND_NICE);
}

int thread_start(pthread_t *thread, void *(*run)(void *context), void *context)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int failed = pthread_create(thread, NULL, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}
