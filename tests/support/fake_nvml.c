/* NVML for a machine without a GPU: libnvidia-ml.so.1 in a folder of its own, for LD_LIBRARY_PATH. It has four GPUs,
 * of which number 1 does not answer, and number 3 has MIG and does not tell its use. */
#include <stdint.h>

int nvmlInit_v2(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetUtilizationRates(void *device, unsigned percent[2]);
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long bytes[3]);

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 4;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = (void *)(uintptr_t)(index + 1);
    return index == 1 ? 15 : 0;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned percent[2])
{
    percent[0] = 25 * (unsigned)(uintptr_t)device;
    percent[1] = 0;
    return (uintptr_t)device == 4 ? 3 : 0;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long bytes[3])
{
    bytes[0] = 80ull << 30;
    bytes[1] = 79ull << 30;
    bytes[2] = (unsigned long long)(uintptr_t)device << 30;
    return 0;
}
