#include "bulk/tail.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

enum status tail_open(struct tail *tail, const char *path, uint64_t length, struct err *err)
{
    *tail = (struct tail){.path = path, .written = length, .standard = strcmp(path, "-") == 0};
    tail->fd = STDOUT_FILENO;
    if (tail->standard)
        return STATUS_OK;
    enum status status = file_make(path, O_WRONLY, &tail->fd, err);
    if (status != STATUS_OK) {
        tail->path = NULL;
        return status;
    }
    off_t size = lseek(tail->fd, 0, SEEK_END);
    if (size >= 0 && (uint64_t)size < length)
        return err_set(err, STATUS_BAD_INPUT, "%s is shorter than this job left it", path);
    if (size < 0 || (ftruncate(tail->fd, (off_t)length) != 0 && errno != EINVAL) || /* EINVAL: a device */
        lseek(tail->fd, (off_t)length, SEEK_SET) < 0)
        return err_set_errno(err, "cannot write %s", path);
    return STATUS_OK;
}

void tail_close(struct tail *tail)
{
    if (tail->path != NULL && !tail->standard)
        close(tail->fd);
    buffer_free(&tail->pending);
    tail->path = NULL;
}

enum status tail_flush(struct tail *tail, struct err *err)
{
    if (tail->path == NULL)
        return STATUS_OK;
    if (!buffer_ok(&tail->pending))
        return err_set(err, STATUS_NO_MEMORY, "no memory for the lines of %s", tail->path);
    for (size_t done = 0; done < tail->pending.length;) {
        ssize_t wrote = write(tail->fd, tail->pending.data + done, tail->pending.length - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return err_set_errno(err, "cannot write %s", tail->standard ? "to standard output" : tail->path);
        done += (size_t)wrote;
        tail->written += (size_t)wrote;
    }
    tail->pending.length = 0;
    return STATUS_OK;
}

enum status tail_sync(struct tail *tail, struct err *err)
{
    TRY(tail_flush(tail, err));
    if (tail->path == NULL || tail->standard || fdatasync(tail->fd) == 0)
        return STATUS_OK;
    return err_set_errno(err, "cannot write %s", tail->path);
}
