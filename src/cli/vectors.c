/* The header of an .npy has a fixed length here, so that it can be written again when the number of rows is known.
 * Source: numpy.lib.format, version 1.0 of the format. */
#include "cli/vectors.h"

#include <string.h>
#include <unistd.h>

#include "work/reply.h"

enum { NPY_HEADER_BYTES = 128 };

static enum status failed(const struct vectors *vectors, struct err *err)
{
    return err_set_errno(err, "cannot write %s", vectors->name);
}

static bool put_npy_header(const struct vectors *vectors)
{
    char header[NPY_HEADER_BYTES + 1];
    static const char magic[10] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, 118, 0}; /* 118 more bytes, little-endian */
    memset(header, ' ', sizeof header);
    memcpy(header, magic, sizeof magic);
    int used =
        snprintf(header + 10, sizeof header - 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (%llu, %u), }",
                 (unsigned long long)vectors->count, vectors->dim);
    header[10 + used] = ' ';
    header[NPY_HEADER_BYTES - 1] = '\n';
    return fwrite(header, 1, NPY_HEADER_BYTES, vectors->file) == NPY_HEADER_BYTES;
}

static bool ends_with(const char *path, const char *ending)
{
    size_t length = strlen(path), tail = strlen(ending);
    return length >= tail && strcmp(path + length - tail, ending) == 0;
}

enum status vectors_open(struct vectors *vectors, const char *path, uint32_t dim, struct err *err)
{
    bool standard = strcmp(path, "-") == 0;
    *vectors = (struct vectors){.name = standard ? "standard output" : path, .dim = dim};
    vectors->npy = ends_with(path, ".npy");
    if (!standard && !vectors->npy && !ends_with(path, ".jsonl"))
        return err_set(err, STATUS_BAD_INPUT, "--output %s: the name must end in .npy or .jsonl", path);
    vectors->file = standard ? stdout : fopen(path, "wbe");
    if (vectors->file == NULL)
        return err_set_errno(err, "cannot open %s", path);
    if (vectors->npy && (!put_npy_header(vectors) || fseeko(vectors->file, 0, SEEK_CUR) != 0)) {
        enum status status = failed(vectors, err);
        vectors_abandon(vectors);
        return status;
    }
    return STATUS_OK;
}

static bool put_json_row(const struct vectors *vectors, const float *row)
{
    putc_unlocked('[', vectors->file);
    for (uint32_t i = 0; i < vectors->dim; i++) {
        char text[REPLY_FLOAT_MAX];
        if (i > 0)
            putc_unlocked(',', vectors->file);
        fwrite_unlocked(text, 1, reply_put_float(text, row[i]), vectors->file);
    }
    putc_unlocked(']', vectors->file);
    putc_unlocked('\n', vectors->file);
    return !ferror(vectors->file);
}

enum status vectors_put(struct vectors *vectors, const float *rows, size_t count, struct err *err)
{
    if (vectors->npy && fwrite(rows, vectors->dim * sizeof(float), count, vectors->file) != count)
        return failed(vectors, err);
    for (size_t i = 0; !vectors->npy && i < count; i++)
        if (!put_json_row(vectors, rows + i * vectors->dim))
            return failed(vectors, err);
    vectors->count += count;
    return STATUS_OK;
}

enum status vectors_close(struct vectors *vectors, struct err *err)
{
    bool written = !vectors->npy || (fseeko(vectors->file, 0, SEEK_SET) == 0 && put_npy_header(vectors));
    written = fflush(vectors->file) == 0 && written;
    enum status status = written ? STATUS_OK : failed(vectors, err);
    if (vectors->file != stdout && fclose(vectors->file) != 0 && status == STATUS_OK)
        status = failed(vectors, err);
    vectors->file = NULL;
    return status;
}

void vectors_abandon(struct vectors *vectors)
{
    if (vectors->file != NULL && vectors->file != stdout)
        fclose(vectors->file);
    vectors->file = NULL;
}
