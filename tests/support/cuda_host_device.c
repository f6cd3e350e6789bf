/* What the host table says of its devices, and of itself. */
#include <stdio.h>

#include "cuda_host_private.h"

enum { HOST_DRIVER = 13000, HOST_MULTIPROCESSORS = 4 };

cudaError_t host_cudaGetDeviceCount(int *out)
{
    ENTER(cudaGetDeviceCount);
    *out = (int)host.options.devices;
    return host_leave(cudaSuccess);
}

cudaError_t host_cudaGetDeviceProperties(struct cudaDeviceProp *out, int device)
{
    ENTER(cudaGetDeviceProperties);
    if (device < 0 || device >= (int)host.options.devices)
        return host_leave(cudaErrorInvalidDevice);
    *out = (struct cudaDeviceProp){0};
    snprintf(out->name, sizeof out->name, "host table");
    out->totalGlobalMem = host.options.memory_bytes;
    out->major = (int)host.options.capability / 10;
    out->minor = (int)host.options.capability % 10;
    out->multiProcessorCount = HOST_MULTIPROCESSORS;
    return host_leave(cudaSuccess);
}

cudaError_t host_cudaSetDevice(int device)
{
    ENTER(cudaSetDevice);
    if (device < 0 || device >= (int)host.options.devices)
        return host_leave(cudaErrorInvalidDevice);
    host_set_current_device(device);
    return host_leave(cudaSuccess);
}

cudaError_t host_cudaDriverGetVersion(int *out)
{
    ENTER(cudaDriverGetVersion);
    *out = HOST_DRIVER;
    return host_leave(cudaSuccess);
}

cudaError_t host_cudaGetLastError(void)
{
    ENTER(cudaGetLastError);
    cudaError_t answer = host_take_last_error();
    pthread_mutex_unlock(&host_mutex);
    return answer;
}

const char *host_cudaGetErrorName(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorInvalidValue:
        return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver:
        return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
        return "cudaErrorNoDevice";
    case cudaErrorIllegalAddress:
        return "cudaErrorIllegalAddress";
    default:
        return "another CUDA error";
    }
}

const char *host_cudaGetErrorString(cudaError_t error)
{
    (void)error;
    return "as the host table has it";
}

size_t host_cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

const char *host_cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    default:
        return "another cuBLAS status";
    }
}
