/* Uses plain pwrite and pread: everything that a killed process wrote stays written, and a full disk is an error, not a
 * signal. Few files are open at a time, because the rows of a window are close together. */
#include "bulk/output/store.h"
#include "base/half.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "model/model.h"

/* --- Headers of .npy files: a magic number, a version, a length and a dictionary as Python writes it --- */

static const char magic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

void npy_header(char to[NPY_HEADER_BYTES], const char *type, uint64_t rows, uint32_t dim)
{
    static const char version[4] = {1, 0, NPY_HEADER_BYTES - 10, 0};
    char columns[16] = "";
    if (dim > 0) { snprintf(columns, sizeof columns, " %u", dim); }
    memset(to, ' ', NPY_HEADER_BYTES);
    memcpy(to, magic, sizeof magic);
    memcpy(to + sizeof magic, version, sizeof version);
    int used = snprintf(to + 10, NPY_HEADER_BYTES - 10, "{'descr': '%s', 'fortran_order': False, 'shape': (%llu,%s), }",
                        type, (unsigned long long)rows, columns);
    to[10 + used] = ' ';
    to[NPY_HEADER_BYTES - 1] = '\n';
}

enum status npy_read(const char *bytes, size_t length, const char *name, struct npy *out, struct err *err)
{
    char text[NPY_HEADER_MOST] = "", order[6] = "", *end = text;
    int at = 0;
    *out = (struct npy){0};
    if (length < 10 || memcmp(bytes, magic, sizeof magic) != 0) {
        return err_set(err, STATUS_BAD_INPUT, "%s is not an .npy file", name);
    }
    size_t size = (size_t)(unsigned char)bytes[8] | (size_t)(unsigned char)bytes[9] << 8;
    if (bytes[6] != 1 || size >= sizeof text) {
        return err_set(err, STATUS_BAD_INPUT,
                       "%s: version %d of the .npy format, or a header of %zu bytes, is not read", name, bytes[6],
                       size);
    }
    if (size > length - 10) { return err_set(err, STATUS_BAD_INPUT, "%s ends within its header", name); }
    memcpy(text, bytes + 10, size);
    bool good =
        sscanf(text, "{'descr': '%15[^']', 'fortran_order': %5[a-zA-Z], 'shape': (%n", out->type, order, &at) == 2;
    out->fortran = strcmp(order, "True") == 0;
    good = good && at > 0 && (out->fortran || strcmp(order, "False") == 0);
    for (end = text + at; good && isdigit((unsigned char)*end); end += strspn(end, ", ")) {
        errno = 0;
        uint64_t rows = strtoull(end, &end, 10);
        good = errno == 0 && out->dimensions < NPY_DIMENSIONS_MAX;
        if (good) { out->shape[out->dimensions++] = rows; }
    }
    if (!good || *end != ')') {
        return err_set(err, STATUS_BAD_INPUT, "%s: its header is not that of an array of plain numbers", name);
    }
    out->data = 10 + size;
    return STATUS_OK;
}

/* --- The store --- */

enum { BLOCK_BYTES = 1 << 16 };

struct open_file {
    int fd; /* -1: none */
    uint64_t number, used;
    bool dirty;
};

struct store {
    pthread_mutex_t lock; /* one call at a time */
    struct store_options options;
    size_t row_bytes, header_bytes;
    uint64_t file_rows;
    struct open_file files[STORE_OPEN_FILES];
    uint64_t uses;
    uint64_t block_rows;
    char *bytes; /* [block_rows, row_bytes] rows being converted or read */
};

static enum status failed(const struct store *store, uint64_t file, const char *what, struct err *err)
{
    char path[PATH_MAX];
    int code = errno;
    store_file_path(store, file, path, sizeof path);
    errno = code;
    return err_set_errno(err, "cannot %s %s", what, path);
}

void store_close(struct store *store)
{
    if (!store) { return; }
    for (int i = 0; i < STORE_OPEN_FILES; i++) {
        if (store->files[i].fd >= 0) { close(store->files[i].fd); }
    }
    pthread_mutex_destroy(&store->lock);
    free(store->bytes);
    free(store);
}

uint64_t store_files(const struct store *store, uint64_t rows)
{
    if (store->options.kind != STORE_SHARDS || rows == 0) { return 1; }
    return rows / store->file_rows + (rows % store->file_rows != 0);
}

void store_file_path(const struct store *store, uint64_t file, char *to, size_t size)
{
    if (store->options.kind == STORE_SHARDS) {
        snprintf(to, size, "%s/vectors-%05llu.npy", store->options.path, (unsigned long long)file);
    } else {
        snprintf(to, size, "%s", store->options.path);
    }
}

uint64_t store_file_rows(const struct store *store, uint64_t rows, uint64_t file)
{
    if (store->options.kind != STORE_SHARDS) { return rows; }
    uint64_t before = file * store->file_rows;
    return rows - before < store->file_rows ? rows - before : store->file_rows;
}

static enum status write_at(const struct store *store, const struct open_file *file, const char *bytes, size_t length,
                            uint64_t at, struct err *err)
{
    for (size_t done = 0; done < length;) {
        ssize_t wrote = pwrite(file->fd, bytes + done, length - done, (off_t)(at + done));
        if (wrote < 0 && errno == EINTR) { continue; }
        if (wrote <= 0) { return failed(store, file->number, "write", err); }
        done += (size_t)wrote;
    }
    return STATUS_OK;
}

static enum status put_header(const struct store *store, struct open_file *file, uint64_t rows, struct err *err)
{
    char header[NPY_HEADER_BYTES];
    if (store->header_bytes == 0) { return STATUS_OK; }
    npy_header(header, store->options.element == ELEMENT_F16 ? "<f2" : "<f4", rows, store->options.dim);
    file->dirty = true;
    return write_at(store, file, header, sizeof header, 0, err);
}

static enum status close_oldest(struct store *store, struct open_file **out, struct err *err)
{
    struct open_file *oldest = &store->files[0];
    for (int i = 0; i < STORE_OPEN_FILES; i++) {
        if (store->files[i].fd < 0 || (oldest->fd >= 0 && store->files[i].used < oldest->used)) {
            oldest = &store->files[i];
        }
    }
    *out = oldest;
    if (oldest->fd < 0) { return STATUS_OK; }
    enum status status =
        oldest->dirty && fdatasync(oldest->fd) != 0 ? failed(store, oldest->number, "write", err) : STATUS_OK;
    close(oldest->fd);
    oldest->fd = -1;
    return status;
}

/* Finds or opens a file; a new one gets a header of no rows. */
static enum status find_file(struct store *store, uint64_t number, struct open_file **out, struct err *err)
{
    for (int i = 0; i < STORE_OPEN_FILES; i++) {
        *out = &store->files[i];
        if ((*out)->fd >= 0 && (*out)->number == number) {
            (*out)->used = ++store->uses;
            return STATUS_OK;
        }
    }
    char path[PATH_MAX];
    bool below = store->options.kind == STORE_SHARDS;
    store_file_path(store, number, path, sizeof path);
    TRY(close_oldest(store, out, err));
    int fd;
    TRY(file_make(path, O_RDWR, &fd, err));
    **out = (struct open_file){.fd = fd, .number = number, .used = ++store->uses};
    off_t size = lseek(fd, 0, SEEK_END);
    bool fresh = store->options.fresh && !below; /* files of a folder may be reopened; the job empties the folder */
    if (fresh && ftruncate(fd, 0) != 0) { return failed(store, number, "write", err); }
    store->options.fresh = store->options.fresh && below;
    if (size <= 0 && below) { TRY(file_sync_folder(path, err)); /* the job syncs the names of other files */ }
    return size <= 0 || fresh ? put_header(store, *out, 0, err) : STATUS_OK;
}

enum status store_open(const struct store_options *options, struct store **out, struct err *err)
{
    struct store *store = calloc(1, sizeof *store);
    if (!store) { return err_set(err, STATUS_NO_MEMORY, "no memory for the output"); }
    pthread_mutex_init(&store->lock, NULL);
    store->options = *options;
    store->row_bytes = options->dim * (options->element == ELEMENT_F16 ? sizeof(uint16_t) : sizeof(float));
    store->header_bytes = options->kind == STORE_NPY || options->kind == STORE_SHARDS ? NPY_HEADER_BYTES : 0;
    store->file_rows = options->kind == STORE_SHARDS ? options->shard_rows : UINT64_MAX;
    for (int i = 0; i < STORE_OPEN_FILES; i++) { store->files[i].fd = -1; }
    store->block_rows = 1 + BLOCK_BYTES / store->row_bytes;
    store->bytes = malloc(store->block_rows * store->row_bytes);
    if (!store->bytes) {
        store_close(store);
        return err_set(err, STATUS_NO_MEMORY, "no memory for %llu vectors", (unsigned long long)store->block_rows);
    }
    struct open_file *first;
    enum status status = find_file(store, 0, &first, err); /* fail now, not when the first rows come */
    if (status != STATUS_OK) {
        store_close(store);
        return status;
    }
    *out = store;
    return STATUS_OK;
}

static enum status get_bytes(struct store *store, uint64_t row, struct err *err)
{
    struct open_file *file;
    TRY(find_file(store, row / store->file_rows, &file, err));
    uint64_t at = store->header_bytes + row % store->file_rows * store->row_bytes;
    for (size_t done = 0; done < store->row_bytes;) {
        ssize_t got = pread(file->fd, store->bytes + done, store->row_bytes - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) { continue; }
        errno = got == 0 ? EIO : errno; /* the row was written, so somebody has cut the file */
        if (got <= 0) { return failed(store, file->number, "read", err); }
        done += (size_t)got;
    }
    return STATUS_OK;
}

/* Writes rows of one file, from its row `at` on. */
static enum status put_rows(const struct store *store, const struct open_file *file, uint64_t at, uint64_t count,
                            const float *vectors, struct err *err)
{
    uint64_t place = store->header_bytes + at * store->row_bytes;
    uint16_t *halves = (uint16_t *)(void *)store->bytes;
    if (store->options.element == ELEMENT_F32) {
        return write_at(store, file, (const char *)vectors, count * store->row_bytes, place, err);
    }
    for (uint64_t done = 0; done < count; done += store->block_rows) {
        uint64_t rows = count - done < store->block_rows ? count - done : store->block_rows;
        for (size_t i = 0; i < rows * store->options.dim; i++, vectors++) {
            halves[i] = isnan(*vectors) ? 0x7e00 : half_from_float(*vectors);
        }
        TRY(write_at(store, file, store->bytes, rows * store->row_bytes, place + done * store->row_bytes, err));
    }
    return STATUS_OK;
}

static enum status put_files(struct store *store, uint64_t row, uint64_t count, const float *vectors, struct err *err)
{
    for (uint64_t done = 0, rows; done < count; done += rows) {
        struct open_file *file;
        uint64_t at = (row + done) % store->file_rows, left = store->file_rows - at;
        rows = count - done < left ? count - done : left;
        TRY(find_file(store, (row + done) / store->file_rows, &file, err));
        file->dirty = true;
        TRY(put_rows(store, file, at, rows, vectors + done * store->options.dim, err));
    }
    return STATUS_OK;
}

enum status store_put(struct store *store, uint64_t row, uint64_t count, const float *vectors, struct err *err)
{
    pthread_mutex_lock(&store->lock);
    enum status status = put_files(store, row, count, vectors, err);
    pthread_mutex_unlock(&store->lock);
    return status;
}

static enum status get_vector(struct store *store, uint64_t row, float *vector, struct err *err)
{
    TRY(get_bytes(store, row, err));
    if (store->options.element == ELEMENT_F32) {
        memcpy(vector, store->bytes, store->row_bytes);
        return STATUS_OK;
    }
    struct tensor halves = {.dtype = DTYPE_F16, .rank = 1, .data = store->bytes, .elements = store->options.dim};
    tensor_read_f32(&halves, 0, store->options.dim, vector);
    return STATUS_OK;
}

enum status store_get(struct store *store, uint64_t row, float *vector, struct err *err)
{
    pthread_mutex_lock(&store->lock);
    enum status status = get_vector(store, row, vector, err);
    pthread_mutex_unlock(&store->lock);
    return status;
}

enum status store_check(struct store *store, uint64_t row, struct err *err)
{
    struct open_file *file;
    char path[PATH_MAX];
    TRY(find_file(store, row / store->file_rows, &file, err));
    off_t size = lseek(file->fd, 0, SEEK_END);
    if (size < 0) { return failed(store, file->number, "read", err); }
    if ((uint64_t)size >= store->header_bytes + (row % store->file_rows + 1) * store->row_bytes) { return STATUS_OK; }
    store_file_path(store, file->number, path, sizeof path);
    return err_set(err, STATUS_BAD_INPUT, "%s is not as this job left it: vectors are gone; --overwrite begins again",
                   path);
}

static enum status take_dirty(struct store *store, int *fds, unsigned *count, struct err *err)
{
    *count = 0;
    for (int i = 0; i < STORE_OPEN_FILES; i++) {
        struct open_file *file = &store->files[i];
        if (file->fd < 0 || !file->dirty) { continue; }
        int fd = dup(file->fd);
        if (fd < 0) {
            enum status status = failed(store, file->number, "write", err);
            while (*count > 0) { close(fds[--*count]); }
            return status;
        }
        fds[(*count)++] = fd;
        file->dirty = false;
    }
    return STATUS_OK;
}

enum status store_dirty(struct store *store, int *fds, unsigned *count, struct err *err)
{
    pthread_mutex_lock(&store->lock);
    enum status status = take_dirty(store, fds, count, err);
    pthread_mutex_unlock(&store->lock);
    return status;
}

enum status store_sync(struct store *store, struct err *err)
{
    for (int i = 0; i < STORE_OPEN_FILES; i++) {
        struct open_file *file = &store->files[i];
        if (file->fd < 0 || !file->dirty) { continue; }
        if (fdatasync(file->fd) != 0) { return failed(store, file->number, "write", err); }
        file->dirty = false;
    }
    return STATUS_OK;
}

enum status store_finish(struct store *store, uint64_t rows, struct err *err)
{
    uint64_t files = store_files(store, rows);
    for (uint64_t number = 0; number < files; number++) {
        struct open_file *file;
        TRY(find_file(store, number, &file, err));
        TRY(put_header(store, file, store_file_rows(store, rows, number), err));
    }
    return store_sync(store, err);
}
