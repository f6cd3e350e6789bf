/* The real table. The CUDA runtime is linked in; it finds the driver itself and reports when there is none. cuBLASLt
 * and cuBLAS, some hundreds of megabytes, are opened once a GPU is found, in the major version of the headers that this
 * was built with, because another version's functions may take other arguments.
 *
 * The table is the only thing in the engine that outlives all engines. */
#include "engine/cuda/api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define TEXT_OF(token) #token
#define TEXT(macro) TEXT_OF(macro)

/* The library folder of the toolkit that this was built with. */
#ifndef SLUICE_CUDA_LIBRARY_DIR
#define SLUICE_CUDA_LIBRARY_DIR "/usr/local/cuda/lib64"
#endif

/* Opens LIBRARY.so.MAJOR from the loader's path or the toolkit. NULL: not found; `err` says why. */
static void *open_library(const char *library, struct err *err)
{
    static const char *const folders[] = {"", SLUICE_CUDA_LIBRARY_DIR "/", "/usr/local/cuda/lib64/"};
    char file[64];
    snprintf(file, sizeof file, "%s.so." TEXT(CUBLAS_VER_MAJOR), library);
    return cuda_library_open(file, folders, sizeof folders / sizeof folders[0], err);
}

/* Looks a function up into a field of the table. ISO C cannot cast an object pointer to a function pointer; POSIX
 * allows copying dlsym's answer into one. */
static bool find(void *library, const char *name, void *field)
{
    void *symbol = dlsym(library, name);
    memcpy(field, &symbol, sizeof symbol);
    return symbol;
}

static enum status find_blaslt(struct cuda_api *api, struct err *err)
{
    struct err why;
    void *library = open_library("libcublasLt", &why);
    if (!library) {
        return err_set(err, STATUS_UNSUPPORTED,
                       "no libcublasLt.so." TEXT(CUBLAS_VER_MAJOR) " can be opened, from the library path or %s: %s",
                       SLUICE_CUDA_LIBRARY_DIR, why.message);
    }
    const char *missing = NULL;
#define FIND(call)                                                                                                     \
    if (!find(library, #call, &api->call)) missing = #call;
    CUDA_BLASLT_CALLS(FIND)
#undef FIND
    if (missing) {
        return err_set(err, STATUS_UNSUPPORTED, "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR) " is too old: it has no %s",
                       missing);
    }
    return STATUS_OK;
}

/* All of cuBLAS or nothing. */
static void find_blas(struct cuda_api *api)
{
    void *library = open_library("libcublas", NULL);
    bool complete = library;
#define FIND(call) complete = complete && find(library, #call, &api->call);
    CUDA_BLAS_CALLS(FIND)
#undef FIND
#define FORGET(call) api->call = complete ? api->call : NULL;
    CUDA_BLAS_CALLS(FORGET)
#undef FORGET
}

static enum status fill(struct cuda_api *api, struct err *err)
{
#define LINK(call) api->call = call;
    CUDA_RUNTIME_CALLS(LINK)
#undef LINK
    uint32_t devices;
    TRY(cuda_device_count(api, &devices, err)); /* without a GPU it returns here, before opening anything */
    TRY(find_blaslt(api, err));
    find_blas(api);
    return STATUS_OK;
}

static struct cuda_api table;
static struct err reason; /* why the table is empty */

static void fill_once(void)
{
    if (fill(&table, &reason) == STATUS_OK) { reason.status = STATUS_OK; }
}

enum status cuda_api_real(const struct cuda_api **out, struct err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_once);
    if (reason.status != STATUS_OK) { return err_set(err, reason.status, "%s", reason.message); }
    *out = &table;
    return STATUS_OK;
}
