#include "bulk/output/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/file.h"

static bool ends_with(const char *path, const char *ending)
{
    size_t length = strlen(path), tail = strlen(ending);
    return length >= tail && strcmp(path + length - tail, ending) == 0;
}

static bool is_folder(const char *path)
{
    struct stat info;
    return ends_with(path, "/") || (stat(path, &info) == 0 && S_ISDIR(info.st_mode));
}

static char *join(const char *a, const char *between, const char *b)
{
    struct buffer text = {0};
    buffer_format(&text, "%s%s%s", a, between, b);
    if (!buffer_ok(&text))
        buffer_free(&text);
    return text.data;
}

static enum status find_kind(struct output *out, const char *path, struct err *err)
{
    out->standard = strcmp(path, "-") == 0;
    if (out->standard || ends_with(path, ".jsonl"))
        out->kind = OUTPUT_JSONL;
    else if (is_folder(path))
        out->kind = OUTPUT_SHARDS;
    else if (ends_with(path, ".npy"))
        out->kind = OUTPUT_NPY;
    else if (ends_with(path, ".f32"))
        out->kind = OUTPUT_RAW;
    else
        return err_set(err, STATUS_BAD_INPUT,
                       "--output %s: the name must end in .npy or .jsonl (or .f32, or be a folder: DIR/)", path);
    return STATUS_OK;
}

enum status output_name(const char *path, struct output *out, struct err *err)
{
    *out = (struct output){0};
    TRY(find_kind(out, path, err));
    out->path = strdup(path);
    if (out->path != NULL && out->kind == OUTPUT_SHARDS)
        for (size_t length = strlen(out->path); length > 1 && out->path[length - 1] == '/'; length--)
            out->path[length - 1] = '\0';
    if (out->path != NULL && !out->standard) {
        const char *between = out->kind == OUTPUT_SHARDS ? "/" : ".";
        out->job = join(out->path, between, out->kind == OUTPUT_SHARDS ? ".job" : "job");
        out->manifest = join(out->path, between, "manifest.json");
        out->failures = join(out->path, between, "failures.jsonl");
        out->ids = join(out->path, between, "ids.jsonl");
        out->documents = join(out->path, between, "documents.npy");
    }
    if (out->job != NULL) {
        out->journal = join(out->job, "/", "journal");
        out->scratch = join(out->job, "/", "vectors");
    }
    bool whole =
        out->path != NULL && (out->standard || (out->journal != NULL && out->scratch != NULL && out->manifest != NULL &&
                                                out->failures != NULL && out->ids != NULL && out->documents != NULL));
    return whole ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for the names of the output");
}

void output_free(struct output *output)
{
    char *names[] = {output->path,     output->job,      output->journal, output->scratch,
                     output->manifest, output->failures, output->ids,     output->documents};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        free(names[i]);
    *output = (struct output){0};
}

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
