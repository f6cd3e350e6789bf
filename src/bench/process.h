/* What the kernel knows of a process and a thread: memory, processor time. */
#ifndef BENCH_PROCESS_H
#define BENCH_PROCESS_H

#include <stdint.h>
#include <sys/types.h>

/* A line of /proc/PID/status in MB ("VmHWM": the most it ever had, "VmRSS": now); NAN when it cannot be read. */
double process_memory_mb(pid_t pid, const char *line);

/* The processor time that the calling thread has used: on a machine that does other things, too, a better measure of
 * work than the time on the wall. */
uint64_t process_thread_ns(void);

#endif
