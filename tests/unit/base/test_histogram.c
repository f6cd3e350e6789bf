/* Histograms: which bucket a value falls into. */
#include "harness.h"

#include <stdlib.h>

#include "base/histogram.h"

TEST(a_bound_belongs_to_its_bucket)
{
    const struct histogram_bounds *const all[] = {&histogram_times, &histogram_sizes};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct histogram histogram = {.bounds = all[i]};
        for (unsigned b = 0; b < HISTOGRAM_BOUNDS; b++) {
            assert_true(b == 0 || all[i]->buckets[b].most > all[i]->buckets[b - 1].most);
            histogram_add(&histogram, all[i]->buckets[b].most);
            assert_int_equal(histogram.counts[b], b == 0 ? 1 : 2);
            assert_float_equal((double)all[i]->buckets[b].most * all[i]->unit, atof(all[i]->buckets[b].shown), 1e-12);
            histogram_add(&histogram, all[i]->buckets[b].most + 1);
            assert_int_equal(histogram.counts[b + 1], 1);
        }
    }
}

TEST(the_ends_and_the_sum)
{
    struct histogram histogram = {.bounds = &histogram_sizes};
    histogram_add(&histogram, 0);
    histogram_add(&histogram, 131072);
    histogram_add(&histogram, UINT32_MAX);
    assert_int_equal(histogram.counts[0], 1);
    assert_int_equal(histogram.counts[HISTOGRAM_BOUNDS - 1], 1);
    assert_int_equal(histogram.counts[HISTOGRAM_BOUNDS], 1);
    assert_int_equal(histogram.sum, 131072ull + UINT32_MAX);
}
