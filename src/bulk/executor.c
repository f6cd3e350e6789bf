/* What all executors do with the vectors that they have. */
#include "bulk/executor.h"

#include <math.h>
#include <string.h>

/* Whether all floats are smaller than `limit`, which is positive: NaN and infinity are not. Sizes of floats are in the
 * order of their bits, and the sum reaches the highest bit from the limit on. */
static bool all_below(const char *vector, uint32_t dim, float limit)
{
    uint32_t bits, limit_bits, reached = 0;
    memcpy(&limit_bits, &limit, sizeof limit);
    for (uint32_t i = 0; i < dim; i++) {
        memcpy(&bits, vector + i * sizeof bits, sizeof bits);
        reached |= (bits & 0x7fffffffu) + (0x80000000u - limit_bits);
    }
    return (reached & 0x80000000u) == 0;
}

enum row_code vector_check(const void *vector, uint32_t dim, float limit)
{
    if (all_below(vector, dim, limit))
        return ROW_OK;
    return all_below(vector, dim, INFINITY) ? ROW_F16_RANGE : ROW_NON_FINITE;
}

void batch_fail(struct bulk_batch *batch, struct piece *piece, enum row_code code)
{
    piece->code = code;
    batch->failed++;
}

void batch_put_vector(struct bulk_batch *batch, struct piece *piece, const void *vector, bool finite)
{
    bool fits = finite && isinf(batch->limit);
    enum row_code code = fits ? ROW_OK : vector_check(vector, batch->dim, batch->limit);
    if (code == ROW_OK)
        memcpy(piece->vector, vector, batch->dim * sizeof(float));
    else
        batch_fail(batch, piece, code);
}
