#include "base/histogram.h"

#define US 1000ull
#define MS (1000 * US)
#define S (1000 * MS)

/* clang-format off */
const struct histogram_bounds histogram_times = {
    {{250 * US, "0.00025"}, {500 * US, "0.0005"}, {1 * MS, "0.001"}, {2500 * US, "0.0025"}, {5 * MS, "0.005"},
     {10 * MS, "0.01"}, {25 * MS, "0.025"}, {50 * MS, "0.05"}, {100 * MS, "0.1"}, {250 * MS, "0.25"}, {500 * MS, "0.5"},
     {1 * S, "1"}, {2500 * MS, "2.5"}, {5 * S, "5"}, {10 * S, "10"}, {30 * S, "30"}, {60 * S, "60"}, {300 * S, "300"}},
    1e-9};

const struct histogram_bounds histogram_sizes = {
    {{1, "1"}, {2, "2"}, {4, "4"}, {8, "8"}, {16, "16"}, {32, "32"}, {64, "64"}, {128, "128"}, {256, "256"},
     {512, "512"}, {1024, "1024"}, {2048, "2048"}, {4096, "4096"}, {8192, "8192"}, {16384, "16384"}, {32768, "32768"},
     {65536, "65536"}, {131072, "131072"}},
    1};
/* clang-format on */

void histogram_add(struct histogram *histogram, uint64_t value)
{
    unsigned bucket = 0;
    while (bucket < HISTOGRAM_BOUNDS && value > histogram->bounds->buckets[bucket].most) { bucket++; }
    histogram->counts[bucket]++;
    histogram->sum += value;
}
