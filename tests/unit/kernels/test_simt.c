/* The SIMT shim sees the mistakes for which it was made: each planted one is found, in the order that shows it, and
 * correct kernels pass in every order. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "harness.h"
#include "simt.h"
#include "simt_mistakes.h"

enum { LANES = 128, OUT = 2 * LANES };

struct run {
    float in[4 * LANES], out[OUT];
    uint32_t counter;
};

static cudaError_t launch_grid(struct run *run, const char *name, dim3 grid, unsigned lanes, size_t shared_bytes)
{
    const void *kernel = mistake_find(name);
    assert_non_null(kernel);
    for (unsigned i = 0; i < 4 * LANES; i++) { run->in[i] = (float)(i + 1); }
    memset(run->out, 0, sizeof run->out);
    run->counter = 0;
    struct mistake_args args = {run->in, run->out, &run->counter};
    void *arguments[] = {&args};
    return simt_launch(kernel, grid, (dim3){lanes, 1, 1}, arguments, shared_bytes, NULL);
}

static cudaError_t launch(struct run *run, const char *name, unsigned lanes)
{
    return launch_grid(run, name, (dim3){1, 1, 1}, lanes, 0);
}

/* Asserts that a launch ends with a complaint that contains all of these. */
static void assert_complains(const char *name, unsigned lanes, size_t shared_bytes, const char *first,
                             const char *second)
{
    for (int order = SIMT_FORWARD; order <= SIMT_RANDOM; order++) {
        struct run run;
        simt_set_order((enum simt_order)order, 7);
        assert_int_equal(launch_grid(&run, name, (dim3){1, 1, 1}, lanes, shared_bytes), cudaErrorLaunchFailure);
        if (strstr(simt_complaint(), first) == NULL || strstr(simt_complaint(), second) == NULL) {
            fail_msg("%s: \"%s\" says neither or not both of \"%s\", \"%s\"", name, simt_complaint(), first, second);
        }
    }
    /* The complaint does not outlive the launch. */
    struct run run;
    simt_set_order(SIMT_FORWARD, 0);
    assert_int_equal(launch(&run, "sum_by_warps", LANES), cudaSuccess);
    assert_string_equal(simt_complaint(), "");
}

static bool sums_are_right(const struct run *run)
{
    for (unsigned i = 0; i < LANES; i++) {
        unsigned warp = (LANES - 1 - i) / 32;
        float sum = (float)(32 * (32 * warp + 1) + 31 * 16);
        if (!(run->out[i] == sum)) { return false; }
    }
    return true;
}

TEST(right_kernels_pass_in_every_order)
{
    struct run run;
    for (uint64_t seed = 0; seed < 50; seed++) {
        simt_set_order(seed == 0 ? SIMT_FORWARD : seed == 1 ? SIMT_REVERSED : SIMT_RANDOM, seed);
        assert_int_equal(launch(&run, "sum_by_warps", LANES), cudaSuccess);
        assert_true(sums_are_right(&run));
        assert_int_equal(launch(&run, "vote", LANES), cudaSuccess);
        for (unsigned i = 0; i < LANES; i++) { assert_true(run.out[i] == 1.0f + 10.0f * LANES / 2 + 1000.0f); }
        assert_int_equal(launch_grid(&run, "count_blocks", (dim3){3, 4, 5}, 40, 0), cudaSuccess);
        assert_int_equal(run.counter, 60 * 61 / 2);
        assert_int_equal(launch(&run, "two_lanes_write_halves", LANES), cudaSuccess);
        assert_int_equal(launch(&run, "warp_barrier", 32), cudaSuccess);
        assert_int_equal(launch(&run, "copy_and_read", 32), cudaSuccess);
        assert_true(run.out[0] == run.in[31 * 4]);
        assert_int_equal(launch(&run, "hand_over", 64), cudaSuccess);
        for (unsigned i = 32; i < 64; i++) { assert_true(run.out[i] == run.in[63 - i]); }
    }
}

/* Races are seen in every order of lanes and blocks, and whether or not the result is right. */
TEST(races_are_seen)
{
    static const struct {
        const char *name;
        unsigned lanes, blocks;
        const char *said;
    } races[] = {
        {"barrier_left_out", LANES, 1, "in shared memory"},
        {"barrier_left_out_of_a_loop", LANES, 1, "in shared memory"},
        {"warp_barrier_left_out", 32, 1, "in shared memory"},
        {"warp_barrier_of_a_half", 32, 1, "in shared memory"},
        {"shuffle_for_a_barrier", 32, 1, "in shared memory"},
        {"two_lanes_write_a_word", LANES, 1, "byte 0 of 4 in shared memory"},
        {"copy_read_too_early", 32, 1, "copies to, and has not waited for"},
        {"copy_read_without_a_barrier", 32, 1, "in shared memory"},
        {"hand_over_not_waited_for", 64, 1, "in shared memory"},
        {"global_memory_in_place", LANES, 1, "global memory"},
        {"blocks_that_wait_for_none", 32, 4, "of another block"},
        {"count_without_atomics", 32, 4, "of another block"},
        {"count_read_beside_atomics", 32, 1, "global memory"},
    };
    struct run run;
    for (size_t i = 0; i < sizeof races / sizeof races[0] && simt_sees_races(); i++) {
        for (uint64_t seed = 0; seed < 10; seed++) {
            simt_set_order(seed == 0 ? SIMT_FORWARD : seed == 1 ? SIMT_REVERSED : SIMT_RANDOM, seed);
            cudaError_t answer = launch_grid(&run, races[i].name, (dim3){races[i].blocks, 1, 1}, races[i].lanes, 0);
            if (answer != cudaErrorLaunchFailure || strstr(simt_complaint(), "a race: lane ") == NULL ||
                strstr(simt_complaint(), races[i].said) == NULL) {
                fail_msg("%s: %d, \"%s\"", races[i].name, answer, simt_complaint());
            }
        }
    }
}

/* Without the watch for races, the result is wrong in at least one of the orders. */
TEST(missing_barriers_show)
{
    struct run run;
    bool wrong = false, wrong_loop = false, wrong_warp = false;
    simt_watch(false);
    for (int order = SIMT_FORWARD; order <= SIMT_REVERSED; order++) {
        simt_set_order((enum simt_order)order, 0);
        assert_int_equal(launch(&run, "barrier_left_out", LANES), cudaSuccess);
        wrong = wrong || !sums_are_right(&run);
        assert_int_equal(launch(&run, "barrier_left_out_of_a_loop", LANES), cudaSuccess);
        for (unsigned i = 0; i < 2 * LANES; i++) { wrong_loop = wrong_loop || run.out[i] != run.in[i / LANES]; }
        assert_int_equal(launch(&run, "warp_barrier_left_out", 32), cudaSuccess);
        for (unsigned i = 0; i < 32; i++) { wrong_warp = wrong_warp || run.out[i] != run.in[31 - i]; }
    }
    assert_true(wrong);
    assert_true(wrong_loop);
    assert_true(wrong_warp);
    simt_watch(true);
}

/* Shared memory that was not written is NaN, in every block anew. */
TEST(shared_memory_starts_as_nan)
{
    struct run run;
    simt_set_order(SIMT_FORWARD, 0);
    simt_watch(false);
    for (int time = 0; time < 2; time++) {
        assert_int_equal(launch(&run, "warp_barrier_left_out", 32), cudaSuccess);
        assert_true(isnan(run.out[0]));
        assert_true(run.out[31] == run.in[0]);
    }
    simt_watch(true);
}

TEST(a_barrier_that_some_miss)
{
    assert_complains("barrier_in_a_branch", LANES, 0, "waits at __syncthreads (simt_mistakes.cu",
                     "has left the kernel");
    assert_complains("two_barriers", LANES, 0, "but lane 64 waits at __syncthreads", "lane 0");
}

TEST(a_shuffle_that_some_miss)
{
    assert_complains("shuffle_without_some", LANES, 0, "waits at __shfl_xor_sync (simt_mistakes.cu",
                     "but lane 20 has left the kernel");
    assert_complains("shuffle_without_some", 16, 0, "waits at __shfl_xor_sync", "for lane 16, which does not exist");
    assert_complains("shuffle_with_two_masks", LANES, 0, "mask ffffffff", "mask fffffffe");
}

TEST(a_shuffle_from_nowhere)
{
    assert_complains("shuffle_from_outside_the_mask", LANES, 0, "shuffles from lane 16", "mask 0000ffff");
    assert_complains("mask_without_itself", LANES, 0, "leaves it out", "__shfl_xor_sync");
}

/* Under ASan the write itself ends the process; without it the shim checks at the end of the block. */
TEST(shared_memory_has_an_end)
{
    simt_watch(false); /* its lanes race, too */
    if (simt_sees_overruns()) {
        assert_complains("shared_beyond_its_end", 32, 32 * sizeof(float), "128 bytes", "beyond its end");
    }
    struct run run;
    assert_int_equal(launch_grid(&run, "shared_beyond_its_end", (dim3){1, 1, 1}, 32, 33 * sizeof(float)), cudaSuccess);
    simt_watch(true);
}

TEST(copies_must_be_waited_for)
{
    assert_complains("copy_not_waited_for", 32, 0, "asynchronous copies", "never waited for");
}

TEST(a_barrier_that_never_opens)
{
    assert_complains("hand_over_that_one_misses", 64, 0, "waits at mbarrier_wait (simt_mistakes.cu",
                     "has left the kernel");
}

TEST(products_must_be_waited_for)
{
    assert_complains("products_not_waited_for", 32, 1024, "products", "never waited for");
}

TEST(sizes_that_no_device_has)
{
    struct run run;
    assert_int_equal(launch(&run, "sum_by_warps", 1025), cudaErrorInvalidConfiguration);
    assert_int_equal(launch(&run, "sum_by_warps", 0), cudaErrorInvalidConfiguration);
    assert_int_equal(launch_grid(&run, "sum_by_warps", (dim3){0, 1, 1}, 32, 0), cudaErrorInvalidConfiguration);
    assert_int_equal(launch_grid(&run, "sum_by_warps", (dim3){1, 65536, 1}, 32, 0), cudaErrorInvalidConfiguration);
    assert_int_equal(launch_grid(&run, "sum_by_warps", (dim3){1, 1, 1}, 32, 48 * 1024 + 1), cudaErrorInvalidValue);
}
