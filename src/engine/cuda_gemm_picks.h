/* Which algorithm was found to be the fastest for which product: a sorted list, and the file that it is kept in.
 *
 * The file holds lines of text behind a head that names the device and the versions; another device, driver or library
 * has another file. A line is a product and its algorithm, which cuBLASLt lets anyone store as it is. The last line is
 * a checksum: an algorithm with one bit wrong could be anything.
 *
 *     sluice gemm 1
 *     device NVIDIA H100 80GB HBM3
 *     capability 90
 *     driver 13000
 *     cublaslt 130100
 *     f16 bias_gelu 1536 384 1024 workspace 0 ns 4321 algorithm 0000001a...
 *     checksum 1f2e3d4c5b6a7988
 *
 * (product: type, what follows, outputs, inputs, rows; in the order of the list). JSON is for files that people write;
 * cJSON may also be used by one thread only, and engines are opened by several. */
#ifndef ENGINE_CUDA_GEMM_PICKS_H
#define ENGINE_CUDA_GEMM_PICKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"
#include "engine/cuda_gemm.h"

struct gemm_key {
    struct gemm_shape shape;
    uint32_t rows;
};

struct gemm_pick {
    struct gemm_key key;
    cublasLtMatmulAlgo_t algorithm;
    uint64_t workspace_bytes;
    uint64_t time_ns; /* of one product, as it was measured; 0: it was not, and does not go into the file */
    bool plain;       /* no algorithm of cuBLASLt's worked; not measured */
};

/* Sorted by gemm_key_compare, each key once. Zero-initialise to start. */
struct gemm_picks {
    struct gemm_pick *items;
    size_t count;
    size_t room;
};

/* A file of more picks is not read. */
enum { GEMM_PICKS_MAX = 1 << 16 };

/* Negative, 0 or positive: the order of the picks. */
int gemm_key_compare(const struct gemm_key *a, const struct gemm_key *b);

/* The pick of a key, or NULL. Owns: the picks, until they change. */
const struct gemm_pick *gemm_picks_find(const struct gemm_picks *picks, const struct gemm_key *key);

/* Adds a pick, or replaces that of the same key. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status gemm_picks_put(struct gemm_picks *picks, const struct gemm_pick *pick, struct err *err);

/* Frees the picks and leaves none. */
void gemm_picks_free(struct gemm_picks *picks);

/* The file's text. The picks that were measured are written; the others are not. */
void gemm_picks_print(const struct gemm_picks *picks, const struct cuda_device *device, struct buffer *out);

/* Reads a file's text into empty picks, all of it or nothing. Errors: STATUS_BAD_INPUT (not such a file, for another
 * device or version, or damaged), STATUS_NO_MEMORY. */
MUST_CHECK enum status gemm_picks_parse(const char *text, size_t length, const struct cuda_device *device,
                                        struct gemm_picks *out, struct err *err);

/* Reads what is remembered of a device. Errors: as gemm_picks_parse and file_read; a missing file is no error. */
MUST_CHECK enum status gemm_picks_read(const char *directory, const struct cuda_device *device, struct gemm_picks *out,
                                       struct err *err);

/* Remembers, beside what other processes have remembered since (of two processes that write at once one may be
 * forgotten: it measures again). Makes the directory. The file is replaced whole. Errors: STATUS_IO and what errno
 * says, STATUS_NO_MEMORY. */
MUST_CHECK enum status gemm_picks_write(const char *directory, const struct cuda_device *device,
                                        const struct gemm_picks *picks, struct err *err);

#endif
