/* The CPU quota behind engine_default_threads, apart so that tests can give it files of their own. */
#ifndef ENGINE_THREADS_H
#define ENGINE_THREADS_H

#include "engine/engine.h"

/* The least CPU quota of the process's control groups (either version), or 0 where none is set.
 * `proc_cgroup` is like /proc/self/cgroup, `mount` like /sys/fs/cgroup. Units: CPUs. */
double threads_cgroup_quota(const char *proc_cgroup, const char *mount);

#endif
