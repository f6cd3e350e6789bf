/* The file of picks: where it lies, read whole, replaced whole. It is not forced to the disk: after a power cut it may
 * be empty, which its checksum shows, and all that is lost is some timing. */
#include <inttypes.h>
#include <stdio.h>

#include <xxhash.h>

#include "base/cache.h"
#include "base/file.h"
#include "engine/cuda_gemm_picks.h"

enum { NAME_BYTES = 32, FILE_MAX_BYTES = 32 << 20 };

/* One file for each head: two GPUs of different kinds, or two versions of the driver, do not push each other out. */
static enum status file_name(const struct cuda_device *device, char out[NAME_BYTES], struct err *err)
{
    struct gemm_picks none = {0};
    struct buffer head = {0};
    gemm_picks_print(&none, device, &head);
    if (!buffer_ok(&head)) {
        buffer_free(&head);
        return err_set(err, STATUS_NO_MEMORY, "no memory for the name of a file");
    }
    uint64_t hash = XXH64(head.data, head.length, 0);
    buffer_free(&head);
    snprintf(out, NAME_BYTES, "gemm-%016" PRIx64 ".txt", hash);
    return STATUS_OK;
}

enum status gemm_picks_read(const char *directory, const struct cuda_device *device, struct gemm_picks *out,
                            struct err *err)
{
    char name[NAME_BYTES], path[CACHE_PATH_BYTES];
    TRY(file_name(device, name, err));
    TRY(cache_path(directory, name, path, err));
    struct buffer text = {0};
    enum status status = file_read(path, FILE_MAX_BYTES, &text, err);
    if (status == STATUS_OK) {
        status = gemm_picks_parse(text.data, text.length, device, out, err);
        if (status != STATUS_OK)
            err_prefix(err, "%s", path);
    }
    buffer_free(&text);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

/* Puts in `all` what the file holds now and, over it, what we have measured. */
static enum status merge(const char *directory, const struct cuda_device *device, const struct gemm_picks *picks,
                         struct gemm_picks *all, struct err *err)
{
    struct err damaged; /* then it is replaced */
    if (gemm_picks_read(directory, device, all, &damaged) != STATUS_OK)
        *all = (struct gemm_picks){0};
    for (size_t i = 0; i < picks->count; i++) {
        if (picks->items[i].time_ns > 0)
            TRY(gemm_picks_put(all, &picks->items[i], err));
    }
    return STATUS_OK;
}

enum status gemm_picks_write(const char *directory, const struct cuda_device *device, const struct gemm_picks *picks,
                             struct err *err)
{
    char name[NAME_BYTES];
    TRY(file_name(device, name, err));
    struct gemm_picks all = {0};
    struct buffer text = {0};
    enum status status = merge(directory, device, picks, &all, err);
    if (status == STATUS_OK) {
        gemm_picks_print(&all, device, &text);
        status = cache_write(directory, name, &text, err);
    }
    buffer_free(&text);
    gemm_picks_free(&all);
    return status;
}
