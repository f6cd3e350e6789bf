/* The device of the kernels' tests without a GPU: device memory is the process's own, each piece of the exact size so
 * that ASan knows its end, and a launch is over when it returns. Every launch uses another order of lanes and blocks
 * than the one before, so that a test with a few cases sees a kernel in several orders. */
#include "kernel_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "simt.h"

static cudaError_t launch(const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes,
                          cudaStream_t stream)
{
    static _Thread_local unsigned launches;
    simt_set_order((enum simt_order)(launches % 3), launches);
    launches++;
    cudaError_t answer = simt_launch(kernel, grid, block, arguments, shared_bytes, stream);
    if (answer != cudaSuccess) {
        fprintf(stderr, "a kernel failed: %s\n", simt_complaint());
        abort();
    }
    return answer;
}

/* There are few multiprocessors, so that persistent blocks have several pieces of work each. */
enum { CAPABILITY = 90 };
static struct kernel_queue queue = {.launch = launch, .multiprocessors = 2, .capability = CAPABILITY};

const struct kernel_queue *device_queue(void)
{
    return &queue;
}

void device_pretend(uint32_t capability)
{
    queue.capability = capability == 0 ? CAPABILITY : capability;
}

void *device_new(size_t bytes, const void *from)
{
    void *device = malloc(bytes == 0 ? 1 : bytes);
    if (device == NULL) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        abort();
    }
    if (from != NULL) {
        memcpy(device, from, bytes);
    } else {
        memset(device, 0xff, bytes);
    }
    return device;
}

void device_free(void *device)
{
    free(device);
}

void device_read(void *to, const void *device, size_t bytes)
{
    memcpy(to, device, bytes);
}

void device_sync(void)
{
}
