#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static enum status read_all(int fd, const char *path, size_t size, struct buffer *out, struct err *err)
{
    char *to = buffer_reserve(out, size + 1);
    if (!to) { return err_set(err, STATUS_NO_MEMORY, "no memory for %zu bytes of %s", size, path); }
    size_t have = 0;
    while (have < size) {
        ssize_t got = read(fd, to + have, size - have);
        if (got < 0 && errno == EINTR) { continue; }
        if (got < 0) { return err_set_errno(err, "cannot read %s", path); }
        if (got == 0) { return err_set(err, STATUS_IO, "%s shrank while it was read", path); }
        have += (size_t)got;
    }
    to[size] = '\0';
    out->length += size;
    return STATUS_OK;
}

enum status file_check_content(const char *bytes, size_t length, const char *path, struct err *err)
{
    enum { POINTER = sizeof FILE_LFS_POINTER - 1 };
    if (length < POINTER || memcmp(bytes, FILE_LFS_POINTER, POINTER) != 0) { return STATUS_OK; }
    return err_set(err, STATUS_BAD_INPUT, "%s is a Git LFS pointer, and not the file itself: git lfs pull fetches it",
                   path);
}

enum status file_read(const char *path, size_t limit, struct buffer *out, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) { return err_set_errno(err, "cannot open %s", path); }
    struct stat info;
    enum status status;
    if (fstat(fd, &info) != 0) {
        status = err_set_errno(err, "cannot stat %s", path);
    } else if (!S_ISREG(info.st_mode)) {
        status = err_set(err, STATUS_BAD_INPUT, "%s is not a regular file", path);
    } else if ((unsigned long long)info.st_size > limit) {
        status = err_set(err, STATUS_BAD_INPUT, "%s has %lld bytes, more than the limit of %zu", path,
                         (long long)info.st_size, limit);
    } else {
        size_t before = out->length;
        status = read_all(fd, path, (size_t)info.st_size, out, err);
        if (status == STATUS_OK) {
            status = file_check_content(out->data + before, out->length - before, path, err);
            out->length = status == STATUS_OK ? out->length : before;
        }
    }
    close(fd);
    return status;
}

enum status file_path(const char *directory, const char *name, char path[FILE_PATH_BYTES], struct err *err)
{
    bool whole = snprintf(path, FILE_PATH_BYTES, "%s/%s", directory, name) < FILE_PATH_BYTES;
    return whole ? STATUS_OK : err_set(err, STATUS_BAD_INPUT, "the path of %.100s is too long", name);
}

enum status file_read_in(const char *directory, const char *name, size_t limit, struct buffer *out, struct err *err)
{
    char path[FILE_PATH_BYTES];
    TRY(file_path(directory, name, path, err));
    return file_read(path, limit, out, err);
}

enum status file_put(int fd, const void *bytes, size_t length, const char *path, struct err *err)
{
    for (const char *at = bytes, *end = at + length; at < end;) {
        ssize_t wrote = write(fd, at, (size_t)(end - at));
        if (wrote < 0 && errno != EINTR) { return err_set_errno(err, "cannot write %s", path); }
        at += wrote > 0 ? wrote : 0;
    }
    return STATUS_OK;
}

enum status file_replace(const char *path, const void *bytes, size_t length, struct err *err)
{
    char beside[PATH_MAX];
    if (snprintf(beside, sizeof beside, "%s.XXXXXX", path) >= (int)sizeof beside) {
        return err_set(err, STATUS_BAD_INPUT, "the path of %.100s... is too long", path);
    }
    int fd = mkostemp(beside, O_CLOEXEC);
    if (fd < 0) { return err_set_errno(err, "cannot make %s", beside); }
    enum status status = file_put(fd, bytes, length, beside, err);
    if (close(fd) != 0 && status == STATUS_OK) { status = err_set_errno(err, "cannot write %s", beside); }
    if (status == STATUS_OK && rename(beside, path) != 0) { status = err_set_errno(err, "cannot rename %s", beside); }
    if (status != STATUS_OK) { (void)unlink(beside); }
    return status;
}

enum status file_make(const char *path, int flags, int *fd, struct err *err)
{
    *fd = open(path, flags | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (*fd >= 0) { return STATUS_OK; }
    if (errno == ELOOP) {
        return err_set(err, STATUS_BAD_INPUT, "%s is a symbolic link: nothing is written through one", path);
    }
    return err_set_errno(err, "cannot open %s", path);
}

enum status file_make_folder(const char *path, struct err *err)
{
    struct stat info;
    if (mkdir(path, 0777) == 0) { return STATUS_OK; }
    if (errno == EEXIST && lstat(path, &info) == 0) {
        return S_ISDIR(info.st_mode) ? STATUS_OK : err_set(err, STATUS_BAD_INPUT, "%s is there and no folder", path);
    }
    return err_set_errno(err, "cannot make the folder %s", path);
}

enum status file_sync_folder(const char *path, struct err *err)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path + 1) : 1, slash ? path : ".");
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool synced = fd >= 0 && fsync(fd) == 0;
    if (!synced) { err_set_errno(err, "cannot write %s", folder); }
    if (fd >= 0) { close(fd); }
    return synced ? STATUS_OK : err->status;
}

enum status file_write_durably(const char *path, const struct buffer *text, struct err *err)
{
    char beside[PATH_MAX];
    snprintf(beside, sizeof beside, "%s.new", path);
    int fd;
    if (!buffer_ok(text)) { return err_set(err, STATUS_NO_MEMORY, "no memory to write %s", path); }
    TRY(file_make(beside, O_WRONLY | O_TRUNC, &fd, err));
    enum status status = file_put(fd, text->data, text->length, beside, err);
    if (status == STATUS_OK && fsync(fd) != 0) { status = err_set_errno(err, "cannot write %s", beside); }
    close(fd);
    if (status == STATUS_OK && rename(beside, path) != 0) { status = err_set_errno(err, "cannot write %s", path); }
    if (status == STATUS_OK) { return file_sync_folder(path, err); }
    (void)unlink(beside);
    return status;
}

void cache_directory(const char *chosen, char *out)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = 0;
    if (chosen) {
        length = snprintf(out, FILE_PATH_BYTES, "%s", chosen);
    } else if (xdg && xdg[0] == '/') {
        length = snprintf(out, FILE_PATH_BYTES, "%s/sluice", xdg);
    } else if (home && home[0] == '/') {
        length = snprintf(out, FILE_PATH_BYTES, "%s/.cache/sluice", home);
    }
    if (length <= 0 || length >= FILE_PATH_BYTES) { out[0] = '\0'; }
}

/* Makes a directory and those above it. */
static enum status make_directory(const char *directory, struct err *err)
{
    char path[FILE_PATH_BYTES];
    if (snprintf(path, sizeof path, "%s", directory) >= (int)sizeof path) {
        return err_set(err, STATUS_BAD_INPUT, "the name of the directory is too long");
    }
    for (char *slash = path; (slash = strchr(slash + 1, '/')) != NULL;) {
        *slash = '\0';
        (void)mkdir(path, 0700); /* only the last one must be there; creating it reports the error */
        *slash = '/';
    }
    if (mkdir(path, 0700) != 0 && errno != EEXIST) { return err_set_errno(err, "cannot make %s", path); }
    return STATUS_OK;
}

enum status cache_write(const char *directory, const char *name, const struct buffer *bytes, struct err *err)
{
    char path[FILE_PATH_BYTES];
    if (!buffer_ok(bytes)) { return err_set(err, STATUS_NO_MEMORY, "no memory to write %s", name); }
    TRY(make_directory(directory, err));
    TRY(file_path(directory, name, path, err));
    return file_replace(path, bytes->data, bytes->length, err);
}

enum status cache_open(const char *directory, const char *name, int *fd, struct err *err)
{
    char path[FILE_PATH_BYTES];
    *fd = -1;
    TRY(make_directory(directory, err));
    TRY(file_path(directory, name, path, err));
    TRY(file_make(path, O_RDWR, fd, err));
    while (flock(*fd, LOCK_EX) != 0 && errno == EINTR) {}
    return STATUS_OK;
}
