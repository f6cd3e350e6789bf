/* Errors and devices. Works on any table, so it links without CUDA. */
#include "engine/cuda/api.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Errors after which the runtime answers every call on the device with the same error. Codes newer than the headers of
 * CUDA 12.4 are written as numbers. */
static bool lost(cudaError_t answer)
{
    switch ((int)answer) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case 226: /* an uncorrectable memory error, contained in this process */
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case 721: /* tensor memory was not released */
    case cudaErrorUnknown:
        return true;
    default:
        return false;
    }
}

static enum status meaning(cudaError_t answer)
{
    switch (answer) {
    case cudaErrorMemoryAllocation:
        return STATUS_NO_MEMORY;
    case cudaErrorInitializationError:
    case cudaErrorStubLibrary:
    case cudaErrorInsufficientDriver:
    case cudaErrorDevicesUnavailable:
    case cudaErrorNoDevice:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorOperatingSystem:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
        return STATUS_UNSUPPORTED;
    default:
        return lost(answer) ? STATUS_DEVICE_LOST : STATUS_INTERNAL;
    }
}

enum status cuda_check(const struct cuda_api *api, cudaError_t answer, const char *what, struct err *err)
{
    if (answer == cudaSuccess) { return STATUS_OK; }
    (void)api->cudaGetLastError(); /* clears the error */
    return err_set(err, meaning(answer), "CUDA failed (%s): %s, %s", what, api->cudaGetErrorName(answer),
                   api->cudaGetErrorString(answer));
}

/* Any call on a lost device reports the loss; this one has no effects and may run during a capture. */
static cudaError_t device_health(const struct cuda_api *api)
{
    size_t free_bytes;
    size_t all_bytes;
    return api->cudaMemGetInfo(&free_bytes, &all_bytes);
}

enum status cuda_blas_check(const struct cuda_api *api, cublasStatus_t answer, const char *what, struct err *err)
{
    if (answer == CUBLAS_STATUS_SUCCESS) { return STATUS_OK; }
    cudaError_t health = device_health(api);
    if (health != cudaSuccess) { return cuda_check(api, health, what, err); }
    enum status status = STATUS_INTERNAL;
    if (answer == CUBLAS_STATUS_ALLOC_FAILED) {
        status = STATUS_NO_MEMORY;
    } else if (answer == CUBLAS_STATUS_NOT_SUPPORTED || answer == CUBLAS_STATUS_ARCH_MISMATCH) {
        status = STATUS_UNSUPPORTED;
    }
    return err_set(err, status, "cuBLAS failed (%s): %s", what, api->cublasLtGetStatusName(answer));
}

/* True if the loader's message says that this file is missing, rather than one that it depends on. */
static bool is_missing(const char *path, const char *why)
{
    size_t length = strlen(path);
    return strncmp(why, path, length) == 0 && strstr(why + length, "No such file");
}

void *cuda_library_open(const char *file, const char *const folders[], size_t count, struct err *err)
{
    bool told = false;
    for (size_t i = 0; i < count; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s%s", folders[i], file);
        void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (handle) { return handle; }
        const char *why = dlerror();
        if (i == 0 || (!told && !is_missing(path, why))) { (void)err_set(err, STATUS_UNSUPPORTED, "%s", why); }
        told = told || !is_missing(path, why);
    }
    return NULL;
}

static enum status driver_version(const struct cuda_api *api, int *out, struct err *err)
{
    *out = 0;
    TRY(cuda_check(api, api->cudaDriverGetVersion(out), "asking for the driver", err));
    if (*out != 0) { return STATUS_OK; }
    static const char *const loader[] = {""};
    struct err why;
    if (cuda_library_open("libcuda.so.1", loader, 1, &why)) {
        return err_set(err, STATUS_UNSUPPORTED, "the NVIDIA driver does not say its version");
    }
    return err_set(err, STATUS_UNSUPPORTED, "this machine has no NVIDIA driver (%s)", why.message);
}

enum status cuda_device_count(const struct cuda_api *api, uint32_t *out, struct err *err)
{
    int driver;
    TRY(driver_version(api, &driver, err));
    int count = 0;
    cudaError_t answer = api->cudaGetDeviceCount(&count);
    if (answer == cudaErrorInsufficientDriver) {
        return err_set(err, STATUS_UNSUPPORTED,
                       "the NVIDIA driver is too old: it serves CUDA %d.%d, and this program was built with CUDA %d.%d",
                       driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    }
    if (answer == cudaErrorNoDevice || (answer == cudaSuccess && count < 1)) {
        return err_set(err, STATUS_UNSUPPORTED, "the NVIDIA driver sees no GPU");
    }
    TRY(cuda_check(api, answer, "counting GPUs", err));
    *out = (uint32_t)count;
    return STATUS_OK;
}

enum status cuda_device_query(const struct cuda_api *api, int number, struct cuda_device *out, struct err *err)
{
    uint32_t count = 0;
    TRY(cuda_device_count(api, &count, err));
    if (number < 0 || (uint32_t)number >= count) {
        return err_set(err, STATUS_BAD_INPUT, "there is no GPU %d: they are numbered 0 to %u", number, count - 1);
    }
    struct cudaDeviceProp properties;
    TRY(cuda_check(api, api->cudaGetDeviceProperties(&properties, number), "looking at a GPU", err));
    *out = (struct cuda_device){.number = number};
    snprintf(out->name, sizeof out->name, "%s", properties.name);
    out->capability = (uint32_t)(10 * properties.major + properties.minor);
    out->multiprocessors = (uint32_t)properties.multiProcessorCount;
    out->memory_bytes = properties.totalGlobalMem;
    out->cublaslt = api->cublasLtGetVersion();
    TRY(driver_version(api, &out->driver, err));
    if (out->capability < CUDA_LEAST_CAPABILITY) {
        return err_set(err, STATUS_UNSUPPORTED,
                       "GPU %d (%s) has compute capability %u.%u, and the kernels need %d.%d or newer", number,
                       out->name, out->capability / 10, out->capability % 10, CUDA_LEAST_CAPABILITY / 10,
                       CUDA_LEAST_CAPABILITY % 10);
    }
    return STATUS_OK;
}
