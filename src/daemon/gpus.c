#include "daemon/gpus.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/system.h"

/* NVML's own types, copied from its documentation, so that its header is not needed. 0 is success. */
struct nvml_device;
struct nvml_use {
    unsigned gpu, memory; /* percent */
};
struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml {
    int (*init)(void);
    int (*count)(unsigned *count);
    int (*device)(unsigned index, struct nvml_device **device);
    int (*use)(struct nvml_device *device, struct nvml_use *use);
    int (*memory)(struct nvml_device *device, struct nvml_memory *memory);
};

/* Shared by the owner and the thread; the one that ends last frees it. */
struct gpus {
    struct nvml nvml;
    pthread_mutex_t lock;
    pthread_cond_t closes;
    bool closed, ended; /* `closed` by the owner; the thread has `ended` */
    struct gpu_sample samples[GPUS_MAX];
    size_t count;
};

static bool load_nvml(struct nvml *nvml)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    const struct {
        const char *name;
        void *field;
    } functions[] = {{"nvmlInit_v2", &nvml->init},
                     {"nvmlDeviceGetCount_v2", &nvml->count},
                     {"nvmlDeviceGetHandleByIndex_v2", &nvml->device},
                     {"nvmlDeviceGetUtilizationRates", &nvml->use},
                     {"nvmlDeviceGetMemoryInfo", &nvml->memory}};
    for (size_t i = 0; library && i < sizeof functions / sizeof functions[0]; i++) {
        void *symbol = dlsym(library, functions[i].name);
        if (!symbol) { return false; }
        memcpy(functions[i].field, &symbol, sizeof symbol);
    }
    return library;
}

static size_t read_gpus(const struct nvml *nvml, struct gpu_sample samples[GPUS_MAX])
{
    unsigned devices = 0;
    size_t count = 0;
    if (nvml->count(&devices) != 0) { return 0; }
    for (unsigned i = 0; i < devices && count < GPUS_MAX; i++) {
        struct nvml_device *device;
        struct nvml_use use;
        struct nvml_memory memory;
        if (nvml->device(i, &device) != 0 || nvml->memory(device, &memory) != 0) { continue; }
        bool used = nvml->use(device, &use) == 0; /* fails with MIG */
        struct gpu_sample *sample = &samples[count++];
        *sample = (struct gpu_sample){.busy = used ? use.gpu / 100.0 : NAN,
                                      .used_bytes = (double)memory.used,
                                      .total_bytes = (double)memory.total};
        snprintf(sample->number, sizeof sample->number, "%u", i);
    }
    return count;
}

static void free_gpus(struct gpus *gpus)
{
    pthread_cond_destroy(&gpus->closes);
    pthread_mutex_destroy(&gpus->lock);
    free(gpus);
}

static void *thread_main(void *context)
{
    enum { EVERY_S = 2 };
    struct gpus *gpus = context;
    struct gpu_sample samples[GPUS_MAX];
    pthread_setname_np(pthread_self(), "gpus");
    bool works = gpus->nvml.init() == 0;
    pthread_mutex_lock(&gpus->lock);
    while (works && !gpus->closed) {
        pthread_mutex_unlock(&gpus->lock);
        size_t count = read_gpus(&gpus->nvml, samples);
        pthread_mutex_lock(&gpus->lock);
        memcpy(gpus->samples, samples, count * sizeof samples[0]);
        gpus->count = count;
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += EVERY_S;
        if (!gpus->closed) { pthread_cond_timedwait(&gpus->closes, &gpus->lock, &until); }
    }
    gpus->ended = true;
    bool last = gpus->closed;
    pthread_mutex_unlock(&gpus->lock);
    if (last) { free_gpus(gpus); }
    return NULL;
}

enum status gpus_open(struct gpus **out, struct err *err)
{
    struct nvml nvml;
    pthread_t thread;
    *out = NULL;
    if (!load_nvml(&nvml)) { return STATUS_OK; }
    struct gpus *gpus = calloc(1, sizeof *gpus);
    if (!gpus) { return err_set(err, STATUS_NO_MEMORY, "no memory for the GPUs' numbers"); }
    gpus->nvml = nvml;
    pthread_mutex_init(&gpus->lock, NULL);
    pthread_cond_init(&gpus->closes, NULL);
    if (thread_start(&thread, thread_main, gpus) != 0) {
        free_gpus(gpus);
        return err_set(err, STATUS_IO, "cannot start a thread");
    }
    pthread_detach(thread);
    *out = gpus;
    return STATUS_OK;
}

void gpus_close(struct gpus *gpus)
{
    if (!gpus) { return; }
    pthread_mutex_lock(&gpus->lock);
    gpus->closed = true;
    bool last = gpus->ended;
    pthread_cond_signal(&gpus->closes);
    pthread_mutex_unlock(&gpus->lock);
    if (last) { free_gpus(gpus); }
}

size_t gpus_read(struct gpus *gpus, struct gpu_sample samples[GPUS_MAX])
{
    if (!gpus) { return 0; }
    pthread_mutex_lock(&gpus->lock);
    size_t count = gpus->count;
    memcpy(samples, gpus->samples, count * sizeof samples[0]);
    pthread_mutex_unlock(&gpus->lock);
    return count;
}
