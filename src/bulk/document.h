/* A document: what one record of the input gives, a text or the reason why there is none. */
#ifndef BULK_DOCUMENT_H
#define BULK_DOCUMENT_H

#include <stddef.h>
#include <stdint.h>

#include "bulk/failure.h"
#include "bulk/hash.h"

/* All bytes belong to whoever made it; they live as long as that says. */
struct document {
    uint64_t number;    /* in the job, from 0 */
    uint64_t first_row; /* of its chunks; only set where failed rows are tried again, else 0 */
    const char *file;
    uint64_t line; /* where it begins in the file, from 1 */

    const char *text;
    size_t text_bytes;
    const char *id; /* as JSON; NULL: its number is its id */
    size_t id_bytes;
    const char *kept; /* fields to be passed on, as JSON members: ,"title":"x","year":1 */
    size_t kept_bytes;

    enum row_code code; /* not ROW_OK: it has no text */
    const char *message;
    size_t message_bytes;
    struct hash hash; /* of the text; in a prepared slice with the job's seed */
};

#endif
