/* A .safetensors file in memory: eight bytes of header length, a JSON header, and the tensors' bytes.
 *
 * The file is read, not mapped: it may be replaced or cut while we run, and a fault in a mapping would kill the
 * process. Every number of the header is checked before anything relies on it. Source: the safetensors format
 * description (header of length N, JSON, then the byte buffer). */
#ifndef MODEL_SAFETENSORS_H
#define MODEL_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define SAFETENSORS_MAX_HEADER ((uint64_t)4 << 20)
#define SAFETENSORS_MAX_RANK 8

/* The dtypes of the format, as far as we distinguish them. */
enum safetensors_dtype {
    SAFETENSORS_F32,
    SAFETENSORS_F16,
    SAFETENSORS_BF16,
    SAFETENSORS_OTHER, /* a known dtype of integers or wider floats: its size is checked, its values are not used */
};

/* One tensor of the header. */
struct safetensors_entry {
    char *name;
    enum safetensors_dtype dtype;
    const char *dtype_name; /* "F32", "I64", ... */
    uint32_t rank;
    uint64_t shape[SAFETENSORS_MAX_RANK];
    uint64_t elements;
    uint64_t begin, end; /* bytes within data */
};

/* A file that was read. Zero-initialise for none. */
struct safetensors {
    struct safetensors_entry *entries; /* [count], by `begin` */
    size_t count;
    unsigned char *data; /* [data_bytes], at 64-byte alignment */
    size_t data_bytes;
    size_t data_from; /* their offset in the file */
};

/* Reads and checks a whole file. `name` is what messages call it.
 * Owns: the caller ends `*out` with safetensors_close, also after an error.
 * Errors: STATUS_NOT_FOUND, STATUS_DENIED, STATUS_IO, STATUS_BAD_INPUT (any rule of the format broken; the message
 * names file and tensor), STATUS_UNSUPPORTED (an unknown dtype), STATUS_NO_MEMORY. Thread: one at a time (cJSON). */
MUST_CHECK enum status safetensors_open(const char *path, const char *name, struct safetensors *out, struct err *err);

/* Frees entries and bytes and leaves an empty struct. */
void safetensors_close(struct safetensors *file);

/* Reads the tensors' bytes of a file that was opened before once more, into file->data, which is NULL.
 * Owns: as safetensors_open. Errors: STATUS_BAD_INPUT (the file has another size now), STATUS_NOT_FOUND, STATUS_DENIED,
 * STATUS_IO, STATUS_NO_MEMORY. Thread: any. */
MUST_CHECK enum status safetensors_read_again(const char *path, const char *name, struct safetensors *file,
                                              struct err *err);

/* Checks only a header, for a file whose data part has `data_bytes` bytes; `header[length]` must be a NUL. Fills the
 * entries; `data` stays NULL. Owns and Errors: as safetensors_open. */
MUST_CHECK enum status safetensors_parse(const char *header, size_t length, uint64_t data_bytes, const char *name,
                                         struct safetensors *out, struct err *err);

#endif
