/* Histograms: which bucket a value falls into. */
#include "harness.h"

#include "base/histogram.h"

TEST(a_bound_belongs_to_its_bucket)
{
    const struct histogram_bounds *const all[] = {&histogram_times, &histogram_sizes};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct histogram histogram = {.bounds = all[i]};
        for (unsigned b = 0; b < HISTOGRAM_BOUNDS; b++) {
            assert_true(b == 0 || all[i]->most[b] > all[i]->most[b - 1]);
            histogram_add(&histogram, all[i]->most[b]);
            assert_int_equal(histogram.counts[b], b == 0 ? 1 : 2);
            histogram_add(&histogram, all[i]->most[b] + 1);
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
