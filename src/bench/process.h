/* What the kernel knows of a process: its memory. */
#ifndef BENCH_PROCESS_H
#define BENCH_PROCESS_H

#include <sys/types.h>

/* A line of /proc/PID/status in MB ("VmHWM": the most it ever had, "VmRSS": now); NAN when it cannot be read. */
double process_memory_mb(pid_t pid, const char *line);

#endif
