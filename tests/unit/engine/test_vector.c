/* Checks of the floats of a vector: each size of a float, at each place of vectors of several lengths. */
#include "harness.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "engine/vector.h"

enum { DIM_MAX = 19 };

/* Returns whether the check gives `expected` for a vector of halves with `value` at any one place; the vector is at an
 * odd address. */
static bool all_say(float value, float limit, bool expected)
{
    char bytes[DIM_MAX * sizeof(float) + 1];
    for (uint32_t dim = 1; dim <= DIM_MAX; dim++) {
        for (uint32_t place = 0; place < dim; place++) {
            float vector[DIM_MAX];
            for (uint32_t i = 0; i < dim; i++) { vector[i] = i == place ? value : 0.5f; }
            memcpy(bytes + 1, vector, dim * sizeof(float));
            if (vector_below(bytes + 1, dim, limit) != expected ||
                vector_finite(vector, dim) != (isfinite(value) != 0)) {
                return false;
            }
        }
    }
    return true;
}

TEST(floats_below_a_limit)
{
    const float limits[] = {1, 65520, FLT_MAX, INFINITY};
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        float limit = limits[i], below = nextafterf(limit, 0);
        assert_true(all_say(below, limit, true) && all_say(-below, limit, true));
        assert_true(all_say(limit, limit, false) && all_say(-limit, limit, false));
        assert_true(all_say(0, limit, true) && all_say(-0.0f, limit, true) && all_say(FLT_TRUE_MIN, limit, true));
        assert_true(all_say(INFINITY, limit, false) && all_say(-INFINITY, limit, false));
        assert_true(all_say(NAN, limit, false) && all_say(-NAN, limit, false));
    }
}
