/* The header is parsed and checked before the data is read, so that a wrong file costs only the work for a header. */
#include "model/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json_tree.h"
#include "base/system.h"

static const struct dtype_row {
    const char *name;
    unsigned bytes;
    enum safetensors_dtype dtype;
} dtypes[] = {
    {"F32", 4, SAFETENSORS_F32},    {"F16", 2, SAFETENSORS_F16},       {"BF16", 2, SAFETENSORS_BF16},
    {"F64", 8, SAFETENSORS_OTHER},  {"I64", 8, SAFETENSORS_OTHER},     {"I32", 4, SAFETENSORS_OTHER},
    {"I16", 2, SAFETENSORS_OTHER},  {"I8", 1, SAFETENSORS_OTHER},      {"U64", 8, SAFETENSORS_OTHER},
    {"U32", 4, SAFETENSORS_OTHER},  {"U16", 2, SAFETENSORS_OTHER},     {"U8", 1, SAFETENSORS_OTHER},
    {"BOOL", 1, SAFETENSORS_OTHER}, {"F8_E4M3", 1, SAFETENSORS_OTHER}, {"F8_E5M2", 1, SAFETENSORS_OTHER},
};

/* a * b; false when it does not fit. */
static bool multiply_sizes(uint64_t a, uint64_t b, uint64_t *product)
{
    if (b != 0 && a > UINT64_MAX / b) { return false; }
    *product = a * b;
    return true;
}

static enum status read_dtype(const cJSON *value, const char *name, struct safetensors_entry *entry, unsigned *bytes,
                              struct err *err)
{
    const cJSON *dtype = json_field(value, "dtype");
    if (!cJSON_IsString(dtype)) {
        return err_set(err, STATUS_BAD_INPUT, "%s: tensor %.120s has no dtype", name, entry->name);
    }
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if (strcmp(dtypes[i].name, dtype->valuestring) != 0) { continue; }
        entry->dtype = dtypes[i].dtype;
        entry->dtype_name = dtypes[i].name;
        *bytes = dtypes[i].bytes;
        return STATUS_OK;
    }
    return err_set(err, STATUS_UNSUPPORTED, "%s: tensor %.120s has the unknown dtype %.32s", name, entry->name,
                   dtype->valuestring);
}

static enum status read_shape(const cJSON *value, const char *name, struct safetensors_entry *entry, struct err *err)
{
    const cJSON *shape = json_field(value, "shape");
    if (!cJSON_IsArray(shape)) {
        return err_set(err, STATUS_BAD_INPUT, "%s: tensor %.120s has no shape", name, entry->name);
    }
    entry->elements = 1;
    const cJSON *size;
    cJSON_ArrayForEach(size, shape)
    {
        uint64_t extent;
        if (entry->rank == SAFETENSORS_MAX_RANK || !json_whole(size, &extent) ||
            !multiply_sizes(entry->elements, extent, &entry->elements)) {
            return err_set(err, STATUS_BAD_INPUT, "%s: tensor %.120s has an impossible shape", name, entry->name);
        }
        entry->shape[entry->rank++] = extent;
    }
    return STATUS_OK;
}

static enum status read_offsets(const cJSON *value, const char *name, unsigned element_bytes,
                                struct safetensors_entry *entry, struct err *err)
{
    const cJSON *offsets = json_field(value, "data_offsets");
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 || !json_whole(offsets->child, &entry->begin) ||
        !json_whole(offsets->child->next, &entry->end)) {
        return err_set(err, STATUS_BAD_INPUT, "%s: tensor %.120s: data_offsets must be two whole numbers", name,
                       entry->name);
    }
    if (entry->begin > entry->end) {
        return err_set(err, STATUS_BAD_INPUT, "%s: tensor %.120s: data_offsets end before they begin", name,
                       entry->name);
    }
    uint64_t bytes;
    if (!multiply_sizes(entry->elements, element_bytes, &bytes) || bytes != entry->end - entry->begin) {
        return err_set(err, STATUS_BAD_INPUT, "%s: tensor %.120s: shape and dtype do not fill its data_offsets", name,
                       entry->name);
    }
    return STATUS_OK;
}

static enum status read_entry(const cJSON *value, const char *name, struct safetensors_entry *entry, struct err *err)
{
    unsigned element_bytes = 0;
    entry->name = strdup(value->string);
    if (!entry->name) { return err_set(err, STATUS_NO_MEMORY, "%s: no memory for a tensor's name", name); }
    if (!cJSON_IsObject(value)) {
        return err_set(err, STATUS_BAD_INPUT, "%s: tensor %.120s is not an object", name, entry->name);
    }
    TRY(read_dtype(value, name, entry, &element_bytes, err));
    TRY(read_shape(value, name, entry, err));
    return read_offsets(value, name, element_bytes, entry, err);
}

static int compare_begin(const void *a, const void *b)
{
    const struct safetensors_entry *x = a, *y = b;
    if (x->begin != y->begin) { return x->begin < y->begin ? -1 : 1; }
    return x->end < y->end ? -1 : x->end > y->end;
}

/* The tensors must cover the data exactly: no byte belongs to two, or to none. */
static enum status check_coverage(struct safetensors *file, const char *name, uint64_t data_bytes, struct err *err)
{
    if (file->count > 0) { qsort(file->entries, file->count, sizeof *file->entries, compare_begin); }
    uint64_t at = 0;
    for (size_t i = 0; i < file->count; i++) {
        const struct safetensors_entry *entry = &file->entries[i];
        if (entry->begin < at) {
            return err_set(err, STATUS_BAD_INPUT, "%s: tensor %.120s overlaps another", name, entry->name);
        }
        if (entry->begin > at) {
            return err_set(err, STATUS_BAD_INPUT, "%s: a gap of bytes before tensor %.120s", name, entry->name);
        }
        at = entry->end;
    }
    if (at != data_bytes) {
        return err_set(err, STATUS_BAD_INPUT, "%s: %llu bytes behind the last tensor", name,
                       (unsigned long long)(data_bytes - at));
    }
    return STATUS_OK;
}

static enum status read_entries(const cJSON *root, uint64_t data_bytes, const char *name, struct safetensors *out,
                                struct err *err)
{
    if (!cJSON_IsObject(root)) { return err_set(err, STATUS_BAD_INPUT, "%s: the header is not a JSON object", name); }
    size_t count = (size_t)cJSON_GetArraySize(root);
    uint64_t most = 0;
    out->entries = calloc(count > 0 ? count : 1, sizeof *out->entries);
    if (!out->entries) { return err_set(err, STATUS_NO_MEMORY, "%s: no memory for %zu tensors", name, count); }
    const cJSON *value;
    cJSON_ArrayForEach(value, root)
    {
        if (strcmp(value->string, "__metadata__") == 0) { continue; }
        TRY(read_entry(value, name, &out->entries[out->count++], err));
    }
    for (size_t i = 0; i < out->count; i++) {
        if (out->entries[i].end > most) { most = out->entries[i].end; }
    }
    if (most > data_bytes) {
        return err_set(err, STATUS_BAD_INPUT,
                       "%s is truncated: it has %llu bytes of tensors, and its header says %llu; download it again",
                       name, (unsigned long long)data_bytes, (unsigned long long)most);
    }
    return check_coverage(out, name, data_bytes, err);
}

enum status safetensors_parse(const char *header, size_t length, uint64_t data_bytes, const char *name,
                              struct safetensors *out, struct err *err)
{
    *out = (struct safetensors){0};
    cJSON *root;
    enum status status = json_parse(header, length, name, &root, err);
    if (status != STATUS_OK) { return status; }
    status = read_entries(root, data_bytes, name, out, err);
    cJSON_Delete(root);
    return status;
}

static enum status read_exact(int fd, void *to, size_t length, const char *name, struct err *err)
{
    for (size_t have = 0; have < length;) {
        ssize_t got = read(fd, (char *)to + have, length - have);
        if (got < 0 && errno == EINTR) { continue; }
        if (got < 0) { return err_set_errno(err, "cannot read %s", name); }
        if (got == 0) { return err_set(err, STATUS_BAD_INPUT, "%s: the file ends before its data does", name); }
        have += (size_t)got;
    }
    return STATUS_OK;
}

static enum status read_header(int fd, uint64_t file_bytes, const char *name, struct safetensors *out, struct err *err)
{
    unsigned char prefix[8];
    enum status status = read_exact(fd, prefix, sizeof prefix, name, err);
    if (status != STATUS_OK) { return status; }
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) { length = length << 8 | prefix[i]; }
    if (length > SAFETENSORS_MAX_HEADER) {
        return err_set(err, STATUS_BAD_INPUT,
                       "%s is no safetensors file: a header of %llu bytes is above the limit of %llu", name,
                       (unsigned long long)length, (unsigned long long)SAFETENSORS_MAX_HEADER);
    }
    if (length > file_bytes - sizeof prefix) {
        return err_set(err, STATUS_BAD_INPUT,
                       "%s is truncated: it has %llu bytes, and its header alone is longer; download it again", name,
                       (unsigned long long)file_bytes);
    }
    char *header = malloc((size_t)length + 1);
    if (!header) { return err_set(err, STATUS_NO_MEMORY, "%s: no memory for its header", name); }
    header[length] = '\0';
    status = read_exact(fd, header, (size_t)length, name, err);
    if (status == STATUS_OK) {
        status = safetensors_parse(header, (size_t)length, file_bytes - sizeof prefix - length, name, out, err);
    }
    free(header);
    if (status != STATUS_OK) { return status; }
    out->data_from = sizeof prefix + (size_t)length;
    out->data_bytes = (size_t)file_bytes - out->data_from;
    return STATUS_OK;
}

static enum status read_data(int fd, const char *name, struct safetensors *out, struct err *err)
{
    out->data = memory_aligned(out->data_bytes);
    if (!out->data) {
        return err_set(err, STATUS_NO_MEMORY, "%s: no memory for %zu bytes of weights", name, out->data_bytes);
    }
    return read_exact(fd, out->data, out->data_bytes, name, err);
}

static enum status read_file(int fd, const char *name, struct safetensors *out, struct err *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0) { return err_set_errno(err, "cannot stat %s", name); }
    if (!S_ISREG(info.st_mode)) { return err_set(err, STATUS_BAD_INPUT, "%s is not a regular file", name); }
    if (info.st_size < 8) {
        return err_set(err, STATUS_BAD_INPUT, "%s: %lld bytes are too few for a header", name, (long long)info.st_size);
    }
    char head[64];
    ssize_t length = pread(fd, head, sizeof head, 0);
    if (length > 0) { TRY(file_check_content(head, (size_t)length, name, err)); }
    TRY(read_header(fd, (uint64_t)info.st_size, name, out, err));
    return read_data(fd, name, out, err);
}

enum status safetensors_open(const char *path, const char *name, struct safetensors *out, struct err *err)
{
    *out = (struct safetensors){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) { return err_set_errno(err, "cannot open %s", path); }
    enum status status = read_file(fd, name, out, err);
    close(fd);
    return status;
}

enum status safetensors_read_again(const char *path, const char *name, struct safetensors *file, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) { return err_set_errno(err, "cannot open %s", path); }
    struct stat info;
    enum status status;
    if (fstat(fd, &info) != 0 || lseek(fd, (off_t)file->data_from, SEEK_SET) < 0) {
        status = err_set_errno(err, "cannot read %s", path);
    } else if ((uint64_t)info.st_size != (uint64_t)file->data_from + file->data_bytes) {
        status = err_set(err, STATUS_BAD_INPUT, "%s has another size than at the start", path);
    } else {
        status = read_data(fd, name, file, err);
    }
    close(fd);
    return status;
}

void safetensors_close(struct safetensors *file)
{
    for (size_t i = 0; i < file->count; i++) { free(file->entries[i].name); }
    free(file->entries);
    free(file->data);
    *file = (struct safetensors){0};
}
