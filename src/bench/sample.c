#include "bench/sample.h"

#include <math.h>
#include <stdlib.h>

void sample_add(struct sample *sample, double value)
{
    if (sample->count == sample->capacity) {
        size_t capacity = sample->capacity == 0 ? 256 : 2 * sample->capacity;
        double *values = realloc(sample->values, capacity * sizeof *values);
        if (values == NULL) {
            sample->broken = true;
            return;
        }
        sample->values = values;
        sample->capacity = capacity;
    }
    sample->values[sample->count++] = value;
    sample->sorted = false;
}

void sample_free(struct sample *sample)
{
    free(sample->values);
    *sample = (struct sample){0};
}

static int smaller_first(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

double sample_quantile(struct sample *sample, double q)
{
    if (sample->count == 0)
        return NAN;
    if (!sample->sorted)
        qsort(sample->values, sample->count, sizeof sample->values[0], smaller_first);
    sample->sorted = true;
    size_t rank = (size_t)ceil(q * (double)sample->count);
    return sample->values[rank == 0 ? 0 : rank - 1];
}
