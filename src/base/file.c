#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static enum status read_all(int fd, const char *path, size_t size, struct buffer *out, struct err *err)
{
    char *to = buffer_reserve(out, size + 1);
    if (to == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for %zu bytes of %s", size, path);
    size_t have = 0;
    while (have < size) {
        ssize_t got = read(fd, to + have, size - have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_set_errno(err, "cannot read %s", path);
        if (got == 0)
            return err_set(err, STATUS_IO, "%s shrank while it was read", path);
        have += (size_t)got;
    }
    to[size] = '\0';
    out->length += size;
    return STATUS_OK;
}

enum status file_read(const char *path, size_t limit, struct buffer *out, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set_errno(err, "cannot open %s", path);
    struct stat info;
    enum status status;
    if (fstat(fd, &info) != 0)
        status = err_set_errno(err, "cannot stat %s", path);
    else if (!S_ISREG(info.st_mode))
        status = err_set(err, STATUS_BAD_INPUT, "%s is not a regular file", path);
    else if ((unsigned long long)info.st_size > limit)
        status = err_set(err, STATUS_BAD_INPUT, "%s has %lld bytes, more than the limit of %zu", path,
                         (long long)info.st_size, limit);
    else
        status = read_all(fd, path, (size_t)info.st_size, out, err);
    close(fd);
    return status;
}
