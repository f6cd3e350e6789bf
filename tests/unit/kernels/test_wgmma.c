/* The words of kernels/wgmma.h beside the PTX ISA: products of a warpgroup, whose matrices are in swizzled shared
 * memory, and barriers that warpgroups hand places over by. */
#include "harness.h"

#include <stdlib.h>

#include "kernel_device.h"
#include "kernel_numbers.h"
#include "kernels/kernels.h"
#include "wgmma_probe.h"

enum { M = 64, N_MAX = 128, K = 16, LANES = 128 };

bool tests_can_run(void)
{
    return device_queue()->capability == 90;
}

/* Small whole numbers, so that sums are exact. */
static void fill(enum kernel_type type, uint32_t count, uint32_t seed, float *numbers, uint16_t *words)
{
    for (uint32_t i = 0; i < count; i++) { numbers[i] = (float)((int)((i + seed) * 7919 % 17) - 8); }
    numbers_write(type, numbers, count, words);
}

TEST(products_of_a_warpgroup)
{
    uint32_t count;
    const struct probe_wgmma_case *cases = probe_wgmma_cases(&count);
    for (uint32_t c = 0; c < count; c++) {
        const uint32_t n = cases[c].n;
        float a[M * K], b[K * N_MAX], d[M * N_MAX];
        uint16_t words[K * N_MAX];
        fill(cases[c].type, M * K, c, a, words);
        void *const da = device_new(M * K * sizeof words[0], words);
        fill(cases[c].type, K * n, c + 5, b, words);
        void *const db = device_new(K * n * sizeof words[0], words), *const dd = device_new(M * n * sizeof d[0], NULL);
        const struct probe_wgmma_args args = {.a = da, .b = db, .d = dd};
        assert_int_equal(probe_wgmma(device_queue(), c, &args), cudaSuccess);
        device_read(d, dd, M * n * sizeof d[0]);
        device_free(da);
        device_free(db);
        device_free(dd);
        for (uint32_t i = 0; i < M * n; i++) {
            float want = 0.0f;
            for (uint32_t k = 0; k < K; k++) { want += 2.0f * a[i / n * K + k] * b[k * n + i % n]; }
            if (!(d[i] == want)) {
                fail_msg("case %u: row %u, column %u of %u: %g instead of %g", c, i / n, i % n, n, (double)d[i],
                         (double)want);
            }
        }
    }
}

TEST(places_are_handed_over)
{
    enum { ROUNDS = 37 };
    static uint32_t from[ROUNDS][LANES];
    uint32_t sums[LANES];
    for (uint32_t i = 0; i < ROUNDS * LANES; i++) { from[i / LANES][i % LANES] = i * 2654435761u; }
    void *const df = device_new(sizeof from, from), *const ds = device_new(sizeof sums, NULL);
    const struct probe_hand_over_args args = {.rounds = ROUNDS, .from = df, .sums = ds};
    assert_int_equal(probe_hand_over(device_queue(), &args), cudaSuccess);
    device_read(sums, ds, sizeof sums);
    device_free(df);
    device_free(ds);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        uint32_t want = 0;
        for (uint32_t round = 0; round < ROUNDS; round++) { want += from[round][LANES - 1 - lane]; }
        assert_int_equal(sums[lane], want);
    }
}
