#include "bulk/similar.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bulk/output/store.h"
#include "model/model.h"

enum { LANES = 8, PIECE_BYTES = 1 << 20 };

/* Parallel sums that the compiler vectorises, in f64, where no square overflows. */
typedef float floats __attribute__((vector_size(LANES * sizeof(float))));
typedef double doubles __attribute__((vector_size(LANES * sizeof(double))));

static void multiply(const float *restrict row, const float *restrict query, uint32_t dim, double *dot, double *square)
{
    doubles dots = {0}, squares = {0};
    floats a, b;
    uint32_t at = 0;
    for (; at + LANES <= dim; at += LANES) {
        memcpy(&a, row + at, sizeof a);
        memcpy(&b, query + at, sizeof b);
        doubles wide = __builtin_convertvector(a, doubles);
        dots += wide * __builtin_convertvector(b, doubles);
        squares += wide * wide;
    }
    for (; at < dim; at++) {
        dots[0] += (double)row[at] * (double)query[at];
        squares[0] += (double)row[at] * (double)row[at];
    }
    *dot = *square = 0;
    for (int i = 0; i < LANES; i++) {
        *dot += dots[i];
        *square += squares[i];
    }
}

enum status nearest_open(struct nearest *nearest, const float *query, uint32_t dim, uint32_t most, struct err *err)
{
    double dot, square;
    multiply(query, query, dim, &dot, &square);
    *nearest = (struct nearest){.query = query, .dim = dim, .most = most, .length = sqrt(square)};
    if (!isnormal(nearest->length)) {
        return err_set(err, STATUS_BAD_INPUT, "the vector of the query has no direction");
    }
    nearest->rows = calloc(most, sizeof *nearest->rows);
    return nearest->rows ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for %u rows", most);
}

static void put(struct nearest *nearest, uint64_t row, float cosine)
{
    struct near_row *rows = nearest->rows;
    if (nearest->count == nearest->most && cosine <= rows[nearest->count - 1].cosine) {
        return;
    }
    uint32_t at = nearest->count < nearest->most ? nearest->count++ : nearest->count - 1;
    for (; at > 0 && rows[at - 1].cosine < cosine; at--) {
        rows[at] = rows[at - 1];
    }
    rows[at] = (struct near_row){row, cosine};
}

void nearest_add(struct nearest *nearest, const float *rows, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++, rows += nearest->dim, nearest->seen++) {
        double dot, square;
        multiply(rows, nearest->query, nearest->dim, &dot, &square);
        float cosine = (float)(dot / (sqrt(square) * nearest->length));
        if (isfinite(cosine)) {
            put(nearest, nearest->seen, cosine);
        } else {
            nearest->skipped++;
        }
    }
}

/* Reads the header of an .npy file, if it is one, and checks that the size of the file matches. */
static enum status read_head(const struct nearest *nearest, FILE *file, const char *path, bool raw, struct npy *npy,
                             struct err *err)
{
    char head[NPY_HEADER_MOST];
    struct stat info;
    *npy = (struct npy){.type = "<f4"};
    if (fstat(fileno(file), &info) != 0) {
        return err_set_errno(err, "cannot read %s", path);
    }
    if (!raw) {
        TRY(npy_read(head, fread(head, 1, sizeof head, file), path, npy, err));
    }
    bool half = strcmp(npy->type, "<f2") == 0;
    if (!half && strcmp(npy->type, "<f4") != 0) {
        return err_set(err, STATUS_BAD_INPUT, "%s holds %s; it must be little-endian float32 or float16 (<f4, <f2)",
                       path, npy->type);
    }
    if (!raw && (npy->dimensions != 2 || npy->fortran)) {
        return err_set(err, STATUS_BAD_INPUT, "%s has %u dimensions%s; it must have rows and columns, row by row", path,
                       npy->dimensions, npy->fortran ? " in Fortran order" : "");
    }
    if (!raw && npy->shape[1] != nearest->dim) {
        return err_set(err, STATUS_BAD_INPUT, "%s has %llu columns, but the model's vectors have %u", path,
                       (unsigned long long)npy->shape[1], nearest->dim);
    }
    uint64_t row_bytes = nearest->dim * (half ? sizeof(uint16_t) : sizeof(float));
    uint64_t bytes = (uint64_t)info.st_size - npy->data;
    if (raw) {
        npy->shape[0] = bytes / row_bytes;
    }
    if (bytes % row_bytes == 0 && bytes / row_bytes == npy->shape[0]) {
        return STATUS_OK;
    }
    if (raw) {
        return err_set(err, STATUS_BAD_INPUT, "%s: %llu bytes are no whole number of vectors of %u floats", path,
                       (unsigned long long)bytes, nearest->dim);
    }
    if (npy->shape[0] == 0) {
        return err_set(err, STATUS_BAD_INPUT, "%s: the job that writes it has not finished", path);
    }
    return err_set(err, STATUS_BAD_INPUT, "%s: its head tells of %llu rows, which its size does not fit", path,
                   (unsigned long long)npy->shape[0]);
}

static enum status read_rows(struct nearest *nearest, FILE *file, const char *path, const struct npy *npy,
                             struct err *err)
{
    size_t element = npy->type[2] == '2' ? sizeof(uint16_t) : sizeof(float), dim = nearest->dim;
    uint64_t most = PIECE_BYTES / (dim * sizeof(float)) + 1, left = npy->shape[0];
    bool half = element == sizeof(uint16_t);
    float *piece = malloc(most * dim * (sizeof *piece + sizeof(uint16_t)));
    enum status status = STATUS_OK;
    if (!piece) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for a piece of %llu vectors", (unsigned long long)most);
    }
    if (fseek(file, (long)npy->data, SEEK_SET) != 0) {
        status = err_set_errno(err, "cannot read %s", path);
    }
    while (status == STATUS_OK && left > 0) {
        size_t now = left < most ? left : most;
        void *to = half ? piece + most * dim : piece;
        if (fread(to, element * dim, now, file) < now) {
            status = err_set(err, STATUS_IO, "%s has become shorter while it was read", path);
            break;
        }
        if (half) {
            struct tensor halves = {.dtype = DTYPE_F16, .rank = 1, .data = to, .elements = now * dim};
            tensor_read_f32(&halves, 0, now * dim, piece);
        }
        nearest_add(nearest, piece, (uint32_t)now);
        left -= now;
    }
    free(piece);
    return status;
}

static enum status read_file(struct nearest *nearest, const char *path, bool raw, struct err *err)
{
    struct npy npy;
    FILE *file = fopen(path, "rbe");
    if (!file) {
        return err_set_errno(err, "cannot open %s", path);
    }
    enum status status = read_head(nearest, file, path, raw, &npy, err);
    if (status == STATUS_OK) {
        status = read_rows(nearest, file, path, &npy, err);
    }
    fclose(file);
    return status;
}

enum status nearest_read(struct nearest *nearest, const struct output *output, struct err *err)
{
    if (output->kind == OUTPUT_JSONL) {
        return err_set(err, STATUS_BAD_INPUT, "%s: vectors are read from FILE.npy, FILE.f32 or DIR/", output->path);
    }
    if (access(output->job, F_OK) == 0) {
        return err_set(err, STATUS_BAD_INPUT,
                       "the job that writes %s has not finished; rerun its `sluice embed` to resume it", output->path);
    }
    if (output->kind != OUTPUT_SHARDS) {
        return read_file(nearest, output->path, output->kind == OUTPUT_RAW, err);
    }
    for (unsigned long long number = 0;; number++) { /* numbered without gaps */
        char path[2 * PATH_MAX];
        snprintf(path, sizeof path, "%s/vectors-%05llu.npy", output->path, number);
        enum status status = read_file(nearest, path, false, err);
        if (status == STATUS_NOT_FOUND && number > 0) {
            return STATUS_OK;
        }
        TRY(status);
    }
}
