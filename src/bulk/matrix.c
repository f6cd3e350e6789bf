#include "bulk/matrix.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bulk/npy.h"

enum { PIECE_BYTES = 1 << 20, NAME_BYTES = 32 };

struct matrix_file {
    char name[NAME_BYTES]; /* below the folder; empty for the output itself */
    uint64_t data;         /* where its rows begin */
    uint64_t rows;
    enum element element;
};

struct matrix {
    const struct output *output;
    uint32_t dim;
    uint64_t rows;
    struct matrix_file *files; /* [file_count] */
    size_t file_count, file_room;
    uint32_t piece_rows;
    float *piece;     /* [piece_rows, dim] */
    uint16_t *halves; /* the same as they lie in the file */

    size_t file; /* where the next piece is */
    uint64_t row;
    int fd; /* of that file, or -1 */
};

static void path_of(const struct matrix *matrix, const char *name, char *to, size_t size)
{
    snprintf(to, size, "%s%s%s", matrix->output->path, *name == '\0' ? "" : "/", name);
}

/* Reads `size` bytes, or fewer at the end of the file. */
static enum status read_at(int fd, const char *path, void *to, size_t size, uint64_t from, size_t *got, struct err *err)
{
    *got = 0;
    while (*got < size) {
        ssize_t read = pread(fd, (char *)to + *got, size - *got, (off_t)(from + *got));
        if (read == 0)
            return STATUS_OK;
        if (read < 0 && errno != EINTR)
            return err_set_errno(err, "cannot read %s", path);
        *got += read > 0 ? (size_t)read : 0;
    }
    return STATUS_OK;
}

static size_t element_bytes(enum element element)
{
    return element == ELEMENT_F16 ? sizeof(uint16_t) : sizeof(float);
}

static enum status check_npy(const struct matrix *matrix, const char *path, const struct npy *npy,
                             struct matrix_file *file, struct err *err)
{
    if (strcmp(npy->type, "<f4") != 0 && strcmp(npy->type, "<f2") != 0)
        return err_set(err, STATUS_BAD_INPUT, "%s holds %s; it must be little-endian float32 or float16 (<f4, <f2)",
                       path, npy->type);
    if (npy->dimensions != 2)
        return err_set(err, STATUS_BAD_INPUT, "%s has %u dimensions, not rows and columns", path, npy->dimensions);
    if (npy->fortran)
        return err_set(err, STATUS_BAD_INPUT,
                       "%s lies in Fortran order; numpy.ascontiguousarray(...) makes one whose rows lie together",
                       path);
    if (npy->shape[1] != matrix->dim)
        return err_set(err, STATUS_BAD_INPUT, "%s has %llu columns, but the model's vectors have %u", path,
                       (unsigned long long)npy->shape[1], matrix->dim);
    file->element = npy->type[2] == '2' ? ELEMENT_F16 : ELEMENT_F32;
    file->rows = npy->shape[0];
    file->data = npy->data;
    return STATUS_OK;
}

static enum status read_head(const struct matrix *matrix, int fd, const char *path, struct matrix_file *file,
                             struct err *err)
{
    char head[NPY_HEADER_MOST];
    struct npy npy;
    size_t got;
    TRY(read_at(fd, path, head, sizeof head, 0, &got, err));
    TRY(npy_read(head, got, path, &npy, err));
    return check_npy(matrix, path, &npy, file, err);
}

/* Whether the file has as many bytes as its head says. */
static enum status check_size(const struct matrix *matrix, int fd, const char *path, struct matrix_file *file,
                              struct err *err)
{
    uint64_t row_bytes = matrix->dim * element_bytes(file->element);
    struct stat info;
    if (fstat(fd, &info) != 0)
        return err_set_errno(err, "cannot read %s", path);
    if (!S_ISREG(info.st_mode))
        return err_set(err, STATUS_BAD_INPUT, "%s is not a file", path);
    uint64_t bytes = (uint64_t)info.st_size - file->data;
    if (matrix->output->kind == OUTPUT_RAW)
        file->rows = bytes / row_bytes;
    if (bytes / row_bytes == file->rows && bytes % row_bytes == 0)
        return STATUS_OK;
    if (matrix->output->kind == OUTPUT_RAW)
        return err_set(err, STATUS_BAD_INPUT, "%s: %llu bytes are no whole number of vectors of %u floats", path,
                       (unsigned long long)bytes, matrix->dim);
    if (file->rows == 0)
        return err_set(err, STATUS_BAD_INPUT, "%s: the job that writes it has not finished", path);
    return err_set(err, STATUS_BAD_INPUT, "%s: its head tells of %llu rows, which its size does not fit", path,
                   (unsigned long long)file->rows);
}

static enum status add_file(struct matrix *matrix, const char *name, struct err *err)
{
    char path[2 * PATH_MAX];
    if (matrix->file_count == matrix->file_room) {
        size_t room = matrix->file_room == 0 ? 16 : 2 * matrix->file_room;
        struct matrix_file *files = realloc(matrix->files, room * sizeof *files);
        if (files == NULL)
            return err_set(err, STATUS_NO_MEMORY, "no memory for a list of %zu files", room);
        matrix->files = files;
        matrix->file_room = room;
    }
    struct matrix_file *file = &matrix->files[matrix->file_count];
    *file = (struct matrix_file){.element = ELEMENT_F32};
    snprintf(file->name, sizeof file->name, "%s", name);
    path_of(matrix, name, path, sizeof path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_set_errno(err, "cannot open %s", path);
    enum status status = matrix->output->kind == OUTPUT_RAW ? STATUS_OK : read_head(matrix, fd, path, file, err);
    if (status == STATUS_OK)
        status = check_size(matrix, fd, path, file, err);
    close(fd);
    if (status == STATUS_OK) {
        matrix->file_count++;
        matrix->rows += file->rows;
    }
    return status;
}

/* The files of a folder are numbered without gaps. */
static enum status add_folder(struct matrix *matrix, struct err *err)
{
    for (unsigned long long number = 0;; number++) {
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "vectors-%05llu.npy", number);
        enum status status = add_file(matrix, name, err);
        if (status == STATUS_NOT_FOUND && number > 0)
            return STATUS_OK;
        TRY(status);
    }
}

static enum status open_files(struct matrix *matrix, struct err *err)
{
    const struct output *output = matrix->output;
    if (output->kind == OUTPUT_JSONL)
        return err_set(err, STATUS_BAD_INPUT, "%s: vectors are read from FILE.npy, FILE.f32 or DIR/", output->path);
    if (access(output->job, F_OK) == 0)
        return err_set(err, STATUS_BAD_INPUT,
                       "the job that writes %s has not finished; the same `sluice embed` again goes on with it",
                       output->path);
    TRY(output->kind == OUTPUT_SHARDS ? add_folder(matrix, err) : add_file(matrix, "", err));
    uint32_t rows = PIECE_BYTES / (matrix->dim * (uint32_t)sizeof(float));
    matrix->piece_rows = rows > 0 ? rows : 1;
    size_t elements = (size_t)matrix->piece_rows * matrix->dim;
    matrix->piece = malloc(elements * sizeof *matrix->piece);
    matrix->halves = malloc(elements * sizeof *matrix->halves);
    if (matrix->piece == NULL || matrix->halves == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for a piece of %u vectors", matrix->piece_rows);
    return STATUS_OK;
}

enum status matrix_open(const struct output *output, uint32_t dim, struct matrix **out, struct err *err)
{
    struct matrix *matrix = calloc(1, sizeof *matrix);
    if (matrix == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the vectors");
    matrix->output = output;
    matrix->dim = dim;
    matrix->fd = -1;
    enum status status = open_files(matrix, err);
    if (status == STATUS_OK)
        *out = matrix;
    else
        matrix_close(matrix);
    return status;
}

void matrix_close(struct matrix *matrix)
{
    if (matrix == NULL)
        return;
    if (matrix->fd >= 0)
        close(matrix->fd);
    free(matrix->files);
    free(matrix->piece);
    free(matrix->halves);
    free(matrix);
}

uint64_t matrix_rows(const struct matrix *matrix)
{
    return matrix->rows;
}

/* f16 to f32, exactly: the exponent is moved by a product, which also makes small numbers what they are. */
static void widen(const uint16_t *restrict from, float *restrict to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t sign = (uint32_t)(from[i] & 0x8000) << 16, rest = (uint32_t)(from[i] & 0x7fff) << 13, bits;
        float value;
        memcpy(&value, &rest, sizeof value);
        value *= 0x1p112F;
        memcpy(&bits, &value, sizeof bits);
        bits |= rest >= 0x0f800000U ? 0x7f800000U : 0; /* infinite, or not a number */
        bits |= sign;
        memcpy(&to[i], &bits, sizeof bits);
    }
}

enum status matrix_next(struct matrix *matrix, const float **rows, uint32_t *count, struct err *err)
{
    *count = 0;
    while (matrix->file < matrix->file_count && matrix->row == matrix->files[matrix->file].rows) {
        if (matrix->fd >= 0)
            close(matrix->fd);
        matrix->fd = -1;
        matrix->file++;
        matrix->row = 0;
    }
    if (matrix->file == matrix->file_count)
        return STATUS_OK;
    const struct matrix_file *file = &matrix->files[matrix->file];
    char path[2 * PATH_MAX];
    path_of(matrix, file->name, path, sizeof path);
    if (matrix->fd < 0) {
        matrix->fd = open(path, O_RDONLY | O_CLOEXEC);
        if (matrix->fd < 0)
            return err_set_errno(err, "cannot open %s", path);
        posix_fadvise(matrix->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    }
    bool half = file->element == ELEMENT_F16;
    size_t row_bytes = matrix->dim * element_bytes(file->element), got;
    uint64_t left = file->rows - matrix->row;
    uint32_t most = left < matrix->piece_rows ? (uint32_t)left : matrix->piece_rows;
    void *to = half ? (void *)matrix->halves : (void *)matrix->piece;
    TRY(read_at(matrix->fd, path, to, most * row_bytes, file->data + matrix->row * row_bytes, &got, err));
    if (got < most * row_bytes)
        return err_set(err, STATUS_IO, "%s has become shorter while it was read", path);
    if (half)
        widen(matrix->halves, matrix->piece, (size_t)most * matrix->dim);
    matrix->row += most;
    *rows = matrix->piece;
    *count = most;
    return STATUS_OK;
}
