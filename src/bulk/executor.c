/* What all executors do with the vectors that they have. */
#include "bulk/executor.h"

#include <math.h>
#include <string.h>

#include "engine/vector.h"

enum row_code vector_check(const void *vector, uint32_t dim, float limit)
{
    if (vector_below(vector, dim, limit))
        return ROW_OK;
    return vector_below(vector, dim, INFINITY) ? ROW_F16_RANGE : ROW_NON_FINITE;
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
