/* The SHA-256 of a file of vectors, begun while its last windows are still computed: hashing a large file takes
 * seconds, and would otherwise be all that a machine of many cores does at the end of a job. */
#ifndef BULK_SUM_H
#define BULK_SUM_H

#include <openssl/evp.h>

#include "bulk/store.h"

enum { SUM_HEX_BYTES = 2 * EVP_MAX_MD_SIZE + 1 };

struct sum;

/* Starts a thread for the only file of `store`, which will have `rows` rows; their number stands at the beginning of
 * the file, which is why it must be known. NULL when there is no memory or no thread for it. Owns: the caller ends it
 * with sum_close. */
struct sum *sum_open(const struct store *store, uint64_t rows, int wake_fd);

/* The rows before this one are as they will stay: they are hashed when the thread comes to it. */
void sum_advance(struct sum *sum, uint64_t rows);

/* Waits for the thread, when all rows are final. False when the file could not be read, or is longer than it should be:
 * then who asks has to look himself. Shapes: hex [SUM_HEX_BYTES], written. */
bool sum_end(struct sum *sum, char *hex);

/* Ends the thread. NULL is allowed. */
void sum_close(struct sum *sum);

/* A digest as hex digits; false when OpenSSL has no memory for it. Shapes: hex [SUM_HEX_BYTES], written. */
bool sum_hex(EVP_MD_CTX *context, char *hex);

#endif
