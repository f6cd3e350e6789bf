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

static void put_row(struct nearest *nearest, uint64_t row, float cosine)
{
    struct near_row *rows = nearest->rows;
    if (nearest->count == nearest->most && cosine <= rows[nearest->count - 1].cosine) { return; }
    uint32_t at = nearest->count < nearest->most ? nearest->count++ : nearest->count - 1;
    for (; at > 0 && rows[at - 1].cosine < cosine; at--) { rows[at] = rows[at - 1]; }
    rows[at] = (struct near_row){row, cosine};
}

void nearest_add(struct nearest *nearest, const float *rows, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++, rows += nearest->dim, nearest->seen++) {
        double dot, square;
        multiply(rows, nearest->query, nearest->dim, &dot, &square);
        float cosine = (float)(dot / (sqrt(square) * nearest->length));
        if (isfinite(cosine)) {
            put_row(nearest, nearest->seen, cosine);
        } else {
            nearest->skipped++;
        }
    }
}

/* Reads the header of an .npy file, if it is one, and checks that the file holds `npy->shape[0]` rows. */
static enum status read_head(const struct nearest *nearest, FILE *file, const char *path, bool raw, struct npy *npy,
                             struct err *err)
{
    char head[NPY_HEADER_MOST];
    struct stat info = {0};
    *npy = (struct npy){.type = "<f4", .dimensions = 2, .shape = {0, nearest->dim}};
    if (!raw) { TRY(npy_read(head, fread(head, 1, sizeof head, file), path, npy, err)); }
    bool good_type = strcmp(npy->type, "<f4") == 0 || strcmp(npy->type, "<f2") == 0;
    if (!good_type || npy->fortran || npy->dimensions != 2 || npy->shape[1] != nearest->dim) {
        return err_set(err, STATUS_BAD_INPUT,
                       "%s holds %s of %u dimensions with %llu columns%s; the model's vectors are <f4 or <f2 in rows, "
                       "with %u columns",
                       path, npy->type, npy->dimensions, (unsigned long long)npy->shape[1],
                       npy->fortran ? " in Fortran order" : "", nearest->dim);
    }
    uint64_t row_bytes = nearest->dim * (uint64_t)(npy->type[2] - '0');
    if (fstat(fileno(file), &info) != 0 || (uint64_t)info.st_size < npy->data) {
        return err_set(err, STATUS_IO, "cannot read %s", path);
    }
    uint64_t bytes = (uint64_t)info.st_size - npy->data, rows = bytes / row_bytes;
    if (bytes % row_bytes != 0 || (!raw && rows != npy->shape[0])) {
        return err_set(err, STATUS_BAD_INPUT,
                       "%s: its %llu bytes are not those of %llu rows of %u floats: is its job unfinished?", path,
                       (unsigned long long)bytes, (unsigned long long)(raw ? rows : npy->shape[0]), nearest->dim);
    }
    npy->shape[0] = rows;
    return STATUS_OK;
}

static enum status read_rows(struct nearest *nearest, FILE *file, const char *path, const struct npy *npy,
                             struct err *err)
{
    bool half = npy->type[2] == '2';
    size_t dim = nearest->dim, most = PIECE_BYTES / (dim * sizeof(float)) + 1, now;
    float *piece = malloc(most * dim * (sizeof(float) + sizeof(uint16_t)));
    if (!piece) { return err_set(err, STATUS_NO_MEMORY, "no memory for a piece of %zu vectors", most); }
    struct tensor halves = {.dtype = DTYPE_F16, .rank = 1, .data = piece + most * dim, .elements = most * dim};
    void *to = half ? piece + most * dim : piece;
    bool good = fseek(file, (long)npy->data, SEEK_SET) == 0;
    for (uint64_t left = npy->shape[0]; good && left > 0; left -= now) {
        now = left < most ? left : most;
        good = fread(to, dim * (half ? sizeof(uint16_t) : sizeof(float)), now, file) == now;
        if (good && half) { tensor_read_f32(&halves, 0, now * dim, piece); }
        if (good) { nearest_add(nearest, piece, (uint32_t)now); }
    }
    free(piece);
    return good ? STATUS_OK : err_set(err, STATUS_IO, "%s cannot be read, or has become shorter", path);
}

static enum status read_file(struct nearest *nearest, const char *path, bool raw, struct err *err)
{
    struct npy npy;
    FILE *file = fopen(path, "rbe");
    if (!file) { return err_set_errno(err, "cannot open %s", path); }
    enum status status = read_head(nearest, file, path, raw, &npy, err);
    if (status == STATUS_OK) { status = read_rows(nearest, file, path, &npy, err); }
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
    if (output->kind != OUTPUT_SHARDS) { return read_file(nearest, output->path, output->kind == OUTPUT_RAW, err); }
    for (unsigned long long number = 0;; number++) { /* numbered without gaps */
        char path[2 * PATH_MAX];
        snprintf(path, sizeof path, "%s/vectors-%05llu.npy", output->path, number);
        enum status status = read_file(nearest, path, false, err);
        if (status == STATUS_NOT_FOUND && number > 0) { return STATUS_OK; }
        TRY(status);
    }
}
