#include "bulk/output.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buffer.h"

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
