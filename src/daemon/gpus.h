/* How busy the machine's GPUs are and how much of their memory is used, by NVML, which comes with the driver and is
 * looked up when it is needed. */
#ifndef DAEMON_GPUS_H
#define DAEMON_GPUS_H

#include <stddef.h>

#include "base/err.h"

enum { GPUS_MAX = 32 };

/* One GPU. Its number is the driver's, whatever CUDA_VISIBLE_DEVICES says. */
struct gpu_sample {
    char number[12];
    double busy; /* share of the recent time in which a kernel ran on it; NaN: not reported */
    double used_bytes, total_bytes;
};

struct gpus;

/* Starts a thread of its own that asks every two seconds, because an answer may take a while, and a broken GPU may
 * never answer. `*out` is NULL where there is no driver. Owns: the caller ends it with gpus_close. Errors:
 * STATUS_NO_MEMORY, STATUS_IO. */
MUST_CHECK enum status gpus_open(struct gpus **out, struct err *err);

/* Closes it, without waiting for its thread. NULL is allowed. */
void gpus_close(struct gpus *gpus);

/* Copies the latest samples and returns their number. NULL is allowed: 0. */
size_t gpus_read(struct gpus *gpus, struct gpu_sample samples[GPUS_MAX]);

#endif
