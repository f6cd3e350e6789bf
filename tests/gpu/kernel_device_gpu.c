/* Where the kernels' tests run on a GPU: the current device, one stream, plain device memory, each piece an allocation
 * of its own so that compute-sanitizer knows where it ends. */
#include "kernel_device.h"

#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime_api.h>

#include "kernels/kernels.h"

static void must(cudaError_t answer, const char *what)
{
    if (answer != cudaSuccess) {
        fprintf(stderr, "%s: %s: %s\n", what, cudaGetErrorName(answer), cudaGetErrorString(answer));
        exit(1);
    }
}

static struct kernel_queue queue;
static uint32_t own_capability;

const struct kernel_queue *device_queue(void)
{
    int device, multiprocessors, major, minor;
    if (queue.launch != NULL) { return &queue; }
    must(cudaGetDevice(&device), "cudaGetDevice");
    must(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
    must(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
    must(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
    must(cudaStreamCreateWithFlags(&queue.cuda_stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    queue.multiprocessors = (uint32_t)multiprocessors;
    queue.capability = own_capability = (uint32_t)(10 * major + minor);
    queue.launch = cudaLaunchKernel;
    return &queue;
}

void device_pretend(uint32_t capability)
{
    (void)device_queue();
    queue.capability = capability == 0 || capability > own_capability ? own_capability : capability;
}

void *device_new(size_t bytes, const void *from)
{
    void *device;
    must(cudaMalloc(&device, bytes == 0 ? 1 : bytes), "cudaMalloc");
    if (from != NULL) {
        must(cudaMemcpy(device, from, bytes, cudaMemcpyHostToDevice), "copying to the device");
    } else {
        must(cudaMemset(device, 0xff, bytes), "cudaMemset");
    }
    must(cudaDeviceSynchronize(), "making device memory"); /* the queue's stream waits for no other */
    return device;
}

void device_free(void *device)
{
    device_sync(); /* waits for work that still uses it */
    must(cudaFree(device), "cudaFree");
}

void device_read(void *to, const void *device, size_t bytes)
{
    device_sync();
    must(cudaMemcpy(to, device, bytes, cudaMemcpyDeviceToHost), "copying from the device");
}

void device_sync(void)
{
    must(cudaGetLastError(), "a launch");
    must(cudaStreamSynchronize(device_queue()->cuda_stream), "a kernel");
}
