/* An executor that computes nothing: every text has a vector of zeros at once. It adds up the tokens that a real one
 * would have computed. */
#ifndef BULK_DRY_H
#define BULK_DRY_H

#include "bulk/executor.h"

struct dry {
    struct executor executor; /* first */
    struct bulk_batch *done[64];
    unsigned done_count;
    uint64_t batches;
    double tokens, squares; /* of all batches; squares of the lengths of rows */
};

/* Nothing needs to be closed. */
void dry_open(struct dry *dry);

#endif
