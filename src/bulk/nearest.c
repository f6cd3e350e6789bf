/* Sixteen sums side by side, whatever the processor: the compiler makes them vectors of the width that every x86-64 or
 * ARM has. Wider ones would not be faster, for reading the rows takes longer than multiplying them. */
#include "bulk/nearest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 16 };

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

struct product {
    double dot, square; /* of row and query, of the row by itself */
};

static struct product multiply(const float *restrict row, const float *restrict query, uint32_t dim)
{
    lanes dot = {0}, square = {0}, a, b;
    uint32_t at = 0;
    for (; at + LANES <= dim; at += LANES) {
        memcpy(&a, row + at, sizeof a);
        memcpy(&b, query + at, sizeof b);
        dot += a * b;
        square += a * a;
    }
    struct product sum = {0};
    for (uint32_t i = 0; i < LANES; i++) {
        sum.dot += (double)dot[i];
        sum.square += (double)square[i];
    }
    for (; at < dim; at++) {
        sum.dot += (double)row[at] * (double)query[at];
        sum.square += (double)row[at] * (double)row[at];
    }
    return sum;
}

/* For rows so long or so short that their squares leave the range of f32. */
static struct product multiply_wide(const float *row, const float *query, uint32_t dim)
{
    struct product sum = {0};
    for (uint32_t i = 0; i < dim; i++) {
        sum.dot += (double)row[i] * (double)query[i];
        sum.square += (double)row[i] * (double)row[i];
    }
    return sum;
}

enum status nearest_open(struct nearest *nearest, const float *query, uint32_t dim, uint32_t most, struct err *err)
{
    double length = sqrt(multiply_wide(query, query, dim).square);
    *nearest = (struct nearest){.query = query, .dim = dim, .most = most, .length = (float)length};
    if (!isnormal(nearest->length))
        return err_set(err, STATUS_BAD_INPUT, "the vector of the query has no direction");
    nearest->rows = calloc(most, sizeof *nearest->rows);
    return nearest->rows != NULL ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for %u rows", most);
}

void nearest_close(struct nearest *nearest)
{
    free(nearest->rows);
    nearest->rows = NULL;
}

static void put(struct nearest *nearest, uint64_t row, float cosine)
{
    if (nearest->count == nearest->most && cosine <= nearest->rows[nearest->count - 1].cosine)
        return;
    uint32_t low = 0, high = nearest->count; /* behind all that are as near */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (nearest->rows[middle].cosine >= cosine)
            low = middle + 1;
        else
            high = middle;
    }
    if (nearest->count < nearest->most)
        nearest->count++;
    memmove(nearest->rows + low + 1, nearest->rows + low, (nearest->count - 1 - low) * sizeof *nearest->rows);
    nearest->rows[low] = (struct near_row){row, cosine};
}

void nearest_add(struct nearest *nearest, const float *rows, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++, rows += nearest->dim) {
        struct product sum = multiply(rows, nearest->query, nearest->dim);
        if (!(sum.square > 1e-20 && sum.square < 1e30 && isfinite(sum.dot)))
            sum = multiply_wide(rows, nearest->query, nearest->dim);
        float cosine = (float)(sum.dot / (sqrt(sum.square) * (double)nearest->length));
        if (isfinite(cosine))
            put(nearest, nearest->seen + i, cosine);
        else
            nearest->skipped++;
    }
    nearest->seen += count;
}
