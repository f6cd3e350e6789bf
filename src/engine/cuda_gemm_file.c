/* The file of picks: where it lies, read whole, replaced whole. It is not forced to the disk: after a power cut it may
 * be empty, which its checksum shows, and all that is lost is some timing. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/file.h"
#include "engine/cuda_gemm_picks.h"

enum { PATH_BYTES = 4096, FILE_MAX_BYTES = 32 << 20 };

/* One file for each head: two GPUs of different kinds, or two versions of the driver, do not push each other out. */
static enum status file_path(const char *directory, const struct cuda_device *device, char out[PATH_BYTES],
                             struct err *err)
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
    int length = snprintf(out, PATH_BYTES, "%s/gemm-%016" PRIx64 ".txt", directory, hash);
    if (length < 0 || length >= PATH_BYTES)
        return err_set(err, STATUS_BAD_INPUT, "the name of the directory is too long");
    return STATUS_OK;
}

enum status gemm_picks_read(const char *directory, const struct cuda_device *device, struct gemm_picks *out,
                            struct err *err)
{
    char path[PATH_BYTES];
    TRY(file_path(directory, device, path, err));
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

/* Makes a directory and those above it, for this user alone. */
static enum status make_directory(const char *directory, struct err *err)
{
    char path[PATH_BYTES];
    if (snprintf(path, sizeof path, "%s", directory) >= PATH_BYTES)
        return err_set(err, STATUS_BAD_INPUT, "the name of the directory is too long");
    for (char *slash = path; (slash = strchr(slash + 1, '/')) != NULL;) {
        *slash = '\0';
        (void)mkdir(path, 0700); /* what matters is whether the last one can be made */
        *slash = '/';
    }
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return err_set_errno(err, "cannot make %s", path);
    return STATUS_OK;
}

static enum status write_all(int fd, const char *bytes, size_t length, const char *path, struct err *err)
{
    while (length > 0) {
        ssize_t written = write(fd, bytes, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return err_set_errno(err, "cannot write %s", path);
        bytes += written;
        length -= (size_t)written;
    }
    return STATUS_OK;
}

/* Writes beside the file and puts it in its place. */
static enum status replace(const char *path, const char *bytes, size_t length, struct err *err)
{
    char beside[PATH_BYTES + 8];
    snprintf(beside, sizeof beside, "%s.XXXXXX", path);
    int fd = mkstemp(beside);
    if (fd < 0)
        return err_set_errno(err, "cannot make %s", beside);
    enum status status = write_all(fd, bytes, length, beside, err);
    if (close(fd) != 0 && status == STATUS_OK)
        status = err_set_errno(err, "cannot write %s", beside);
    if (status == STATUS_OK && rename(beside, path) != 0)
        status = err_set_errno(err, "cannot rename %s", beside);
    if (status != STATUS_OK)
        (void)unlink(beside);
    return status;
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
    char path[PATH_BYTES];
    TRY(make_directory(directory, err));
    TRY(file_path(directory, device, path, err));
    struct gemm_picks all = {0};
    struct buffer text = {0};
    enum status status = merge(directory, device, picks, &all, err);
    if (status == STATUS_OK) {
        gemm_picks_print(&all, device, &text);
        status = buffer_ok(&text) ? replace(path, text.data, text.length, err)
                                  : err_set(err, STATUS_NO_MEMORY, "no memory to write %s", path);
    }
    buffer_free(&text);
    gemm_picks_free(&all);
    return status;
}
