#include "base/histogram.h"

#define US 1000ull
#define MS (1000 * US)
#define S (1000 * MS)

const struct histogram_bounds histogram_times = {{250 * US, 500 * US, 1 * MS, 2500 * US, 5 * MS, 10 * MS, 25 * MS,
                                                  50 * MS, 100 * MS, 250 * MS, 500 * MS, 1 * S, 2500 * MS, 5 * S,
                                                  10 * S, 30 * S, 60 * S, 300 * S},
                                                 1e-9};

const struct histogram_bounds histogram_sizes = {
    {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072}, 1};

void histogram_add(struct histogram *histogram, uint64_t value)
{
    unsigned bucket = 0;
    while (bucket < HISTOGRAM_BOUNDS && value > histogram->bounds->most[bucket]) { bucket++; }
    histogram->counts[bucket]++;
    histogram->sum += value;
}
