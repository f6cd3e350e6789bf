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
    size_t length = strlen(path), end = strlen(ending);
    return length >= end && strcmp(path + length - end, ending) == 0;
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
    if (!buffer_ok(&text)) { buffer_free(&text); }
    return text.data;
}

static enum status find_kind(struct output *out, const char *path, struct err *err)
{
    out->standard = strcmp(path, "-") == 0;
    if (out->standard || ends_with(path, ".jsonl")) {
        out->kind = OUTPUT_JSONL;
    } else if (is_folder(path)) {
        out->kind = OUTPUT_SHARDS;
    } else if (ends_with(path, ".npy")) {
        out->kind = OUTPUT_NPY;
    } else if (ends_with(path, ".f32")) {
        out->kind = OUTPUT_RAW;
    } else {
        return err_set(err, STATUS_BAD_INPUT,
                       "--output %s: the name must end in .npy or .jsonl (or .f32, or be a folder: DIR/)", path);
    }
    return STATUS_OK;
}

enum status output_name(const char *path, struct output *out, struct err *err)
{
    *out = (struct output){0};
    TRY(find_kind(out, path, err));
    out->path = strdup(path);
    if (out->path && out->kind == OUTPUT_SHARDS) {
        for (size_t length = strlen(out->path); length > 1 && out->path[length - 1] == '/'; length--) {
            out->path[length - 1] = '\0';
        }
    }
    if (out->path && !out->standard) {
        const char *between = out->kind == OUTPUT_SHARDS ? "/" : ".";
        out->job = join(out->path, between, out->kind == OUTPUT_SHARDS ? ".job" : "job");
        out->manifest = join(out->path, between, "manifest.json");
        out->failures = join(out->path, between, "failures.jsonl");
        out->ids = join(out->path, between, "ids.jsonl");
        out->documents = join(out->path, between, "documents.npy");
        out->chunks = join(out->path, between, "chunks.npy");
        out->hashes = join(out->path, between, "hashes");
    }
    if (out->job) {
        out->journal = join(out->job, "/", "journal");
        out->scratch = join(out->job, "/", "vectors");
    }
    bool whole = out->path && (out->standard || (out->journal && out->scratch && out->manifest && out->failures &&
                                                 out->ids && out->documents && out->chunks && out->hashes));
    return whole ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for the names of the output");
}

void output_free(struct output *output)
{
    char *names[] = {output->path,     output->job, output->journal,   output->scratch, output->manifest,
                     output->failures, output->ids, output->documents, output->chunks,  output->hashes};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) { free(names[i]); }
    *output = (struct output){0};
}

enum status append_file_open(struct append_file *file, const char *path, uint64_t length, struct err *err)
{
    *file = (struct append_file){.path = path, .written = length, .standard = strcmp(path, "-") == 0};
    file->fd = STDOUT_FILENO;
    if (file->standard) { return STATUS_OK; }
    enum status status = file_make(path, O_WRONLY, &file->fd, err);
    if (status != STATUS_OK) {
        file->path = NULL;
        return status;
    }
    off_t size = lseek(file->fd, 0, SEEK_END);
    if (size >= 0 && (uint64_t)size < length) {
        return err_set(err, STATUS_BAD_INPUT, "%s is shorter than this job left it", path);
    }
    if (size < 0 || (ftruncate(file->fd, (off_t)length) != 0 && errno != EINVAL) || /* EINVAL: a device */
        lseek(file->fd, (off_t)length, SEEK_SET) < 0) {
        return err_set_errno(err, "cannot write %s", path);
    }
    return STATUS_OK;
}

void append_file_close(struct append_file *file)
{
    if (file->path && !file->standard) { close(file->fd); }
    buffer_free(&file->pending);
    file->path = NULL;
}

enum status append_file_flush(struct append_file *file, struct err *err)
{
    if (!file->path) { return STATUS_OK; }
    if (!buffer_ok(&file->pending)) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for the lines of %s", file->path);
    }
    const char *shown = file->standard ? "to standard output" : file->path;
    enum status status = file_put(file->fd, file->pending.data, file->pending.length, shown, err);
    if (status != STATUS_OK) { /* a part may be in the file: another attempt begins where this one did */
        if (!file->standard) { (void)!lseek(file->fd, (off_t)file->written, SEEK_SET); }
        return status;
    }
    file->written += file->pending.length;
    file->pending.length = 0;
    return STATUS_OK;
}

enum status append_file_sync(struct append_file *file, struct err *err)
{
    TRY(append_file_flush(file, err));
    if (!file->path || file->standard || fdatasync(file->fd) == 0) { return STATUS_OK; }
    return err_set_errno(err, "cannot write %s", file->path);
}
