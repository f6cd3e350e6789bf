/* The device of the kernels' tests: the SIMT shim on the host, or a GPU.
 *
 * The tests of kernels/ are written against these few calls, so that the same files, with the same references, are
 * built twice: in the default test run with kernel_device_host, and by tests/gpu with kernel_device_gpu. Any failure in
 * here ends the process with a message. Thread: one. */
#ifndef TESTS_KERNEL_DEVICE_H
#define TESTS_KERNEL_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kernel_queue;

/* The queue for the launchers of kernels/kernels.h. Owns: nobody frees it. */
const struct kernel_queue *device_queue(void);

/* Lets the queue name another compute capability: the device's own at most. 0: the device's own, as at first. */
void device_pretend(uint32_t capability);

/* Memory that kernels can see, of exactly that size: a copy of `from`, or where that is NULL filled with 0xff bytes,
 * which no float type reads as a number. Owns: the caller ends it with device_free. */
void *device_new(size_t bytes, const void *from);
void device_free(void *device);

/* Copies to host memory, after all launches so far. */
void device_read(void *to, const void *device, size_t bytes);

/* Waits for all launches so far. */
void device_sync(void);

#ifdef __cplusplus
}
#endif
#endif
