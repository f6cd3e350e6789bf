/* Under SCHED_IDLE whoever wakes up has the thread's core at once, and, which matters as much, that core counts as idle
 * when the kernel looks where to put them. With a nice value alone they may be put behind another one of their kind,
 * and wait there for a slice, while the nice thread has the other core for itself.
 *
 * Its price is that such a thread waits long for its turn on a busy machine, and it has to have one even to die:
 * SIGKILL took seconds. It comes the sooner the shorter the slice, whose length (0.1 ms is the least) Linux takes
 * from 6.12 on, and only from a thread that is not idle yet.
 */
#include "base/priority.h"

#include <sched.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel's struct sched_attr, which the C library of Debian 12 lacks, as far as it is used here. */
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t slice_ns, deadline_ns, period_ns;
};

enum { NICE = 19, SHORTEST_NS = 100 * 1000 };

void priority_spare(void)
{
    struct attributes attributes = {.size = sizeof attributes, .nice = NICE, .slice_ns = SHORTEST_NS};
    struct sched_param none = {0};
    if (syscall(SYS_sched_setattr, 0, &attributes, 0) != 0)
        (void)setpriority(PRIO_PROCESS, 0, NICE);
    (void)sched_setscheduler(0, SCHED_IDLE, &none);
}
