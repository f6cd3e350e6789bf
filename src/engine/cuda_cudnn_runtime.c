/* The real table of cuDNN. The library is opened when an engine first asks for it: under its name, else in
 * $CUDNN_PATH/lib (the folder of NVIDIA's Python wheel, which torch brings along), else where the toolkit has its
 * libraries. It stays open, as those of cuda_api_runtime.c do. */
#include "engine/cuda_cudnn_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libcudnn.so.9"

/* Where the toolkit that this was built with has its libraries. */
#ifndef SLUICE_CUDA_LIBRARY_DIR
#define SLUICE_CUDA_LIBRARY_DIR "/usr/local/cuda/lib64"
#endif

static void *open_library(void)
{
    const char *root = getenv("CUDNN_PATH");
    char path[1024];
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL && root != NULL) {
        snprintf(path, sizeof path, "%s/lib/" LIBRARY, root);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    if (library == NULL)
        library = dlopen(SLUICE_CUDA_LIBRARY_DIR "/" LIBRARY, RTLD_NOW | RTLD_LOCAL);
    return library;
}

static enum status fill(struct cudnn_api *api, struct err *err)
{
    void *library = open_library();
    if (library == NULL)
        return err_set(err, STATUS_UNSUPPORTED,
                       "there is no " LIBRARY " in the library path, in $CUDNN_PATH/lib or in %s",
                       SLUICE_CUDA_LIBRARY_DIR);
    const char *missing = NULL;
    void *symbol;
#define FIND(result, name, parameters)                                                                                 \
    symbol = dlsym(library, #name);                                                                                    \
    memcpy(&api->name, &symbol, sizeof symbol);                                                                        \
    missing = symbol == NULL ? #name : missing;
    CUDNN_CALLS(FIND)
#undef FIND
    if (missing != NULL)
        return err_set(err, STATUS_UNSUPPORTED, LIBRARY " has no %s", missing);
    if (api->cudnnGetVersion() < CUDNN_LEAST_VERSION)
        return err_set(err, STATUS_UNSUPPORTED, LIBRARY " is version %zu, and %d has attention first",
                       api->cudnnGetVersion(), CUDNN_LEAST_VERSION);
    return STATUS_OK;
}

static struct cudnn_api table;
static struct err reason; /* of a table that could not be filled */

static void fill_once(void)
{
    if (fill(&table, &reason) == STATUS_OK)
        reason.status = STATUS_OK;
}

enum status cudnn_api_real(const struct cudnn_api **out, struct err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_once);
    if (reason.status != STATUS_OK)
        return err_set(err, reason.status, "%s", reason.message);
    *out = &table;
    return STATUS_OK;
}
