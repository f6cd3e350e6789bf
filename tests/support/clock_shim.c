/* A preloaded library that shifts only the wall clock of a process: CLOCK_MONOTONIC, timers and sleeps are unchanged,
 * as when somebody sets a machine's clock. The shift in milliseconds is the int64 at the front of the file that
 * CLOCK_SHIM names; whoever writes there sets the clock at once. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift_ms;

__attribute__((constructor)) static void set_up(void)
{
    const char *path = getenv("CLOCK_SHIM");
    int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    void *page = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) { abort(); /* a test that relies on a shift must not run without one */ }
    close(fd);
    shift_ms = page;
}

/* Calls the kernel directly, because it is called before libraries are set up, dlsym's own among them. */
int clock_gettime(clockid_t id, struct timespec *now)
{
    int result = (int)syscall(SYS_clock_gettime, id, now);
    if (result == 0 && shift_ms != NULL && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        int64_t ns = now->tv_nsec + *shift_ms % 1000 * 1000000;
        now->tv_sec += *shift_ms / 1000 + (ns >= 1000000000) - (ns < 0);
        now->tv_nsec = ns + (ns < 0 ? 1000000000 : 0) - (ns >= 1000000000 ? 1000000000 : 0);
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    (void)zone;
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out)
{
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (out != NULL) { *out = precise.tv_sec; }
    return precise.tv_sec;
}
