/* The choice of the next batch: weights apply to cost, nobody waits beside a free thread, idle time is not saved up. */
#include "harness.h"

#include <stdlib.h>

#include "compute/shares.h"

enum { MOST = 4 };

static struct shares open_shares(size_t count, const uint32_t *weights)
{
    struct shares shares;
    struct err err;
    assert_int_equal(shares_open(&shares, count, MOST, &err), STATUS_OK);
    for (size_t i = 0; i < count; i++) {
        shares.items[i].weight = weights[i];
        shares.items[i].token_cost = 1;
    }
    return shares;
}

/* Keeps every share that is `busy` full, takes `rounds` batches, and counts those of each share. */
static void take_saturated(struct shares *shares, struct batch *batches, const bool *busy, unsigned rounds,
                           unsigned *taken)
{
    for (unsigned round = 0; round < rounds; round++) {
        for (size_t i = 0; i < shares->count; i++) {
            while (busy[i] && shares->items[i].count < MOST) { shares_put(shares, i, &batches[i]); }
        }
        size_t who = SIZE_MAX;
        struct batch *batch = shares_take(shares, &who);
        assert_true(who < shares->count);
        assert_ptr_equal(batch, &batches[who]);
        taken[who]++;
    }
}

TEST(equal_batches_are_taken_by_weight)
{
    struct shares shares = open_shares(2, (uint32_t[]){3, 1});
    struct batch batches[2] = {{.engine.extent = 100}, {.engine.extent = 100}};
    unsigned taken[2] = {0};
    for (unsigned rounds = 1; rounds <= 100; rounds++) {
        take_saturated(&shares, batches, (bool[]){true, true}, 4, taken);
        assert_int_equal(taken[0], 3 * rounds);
        assert_int_equal(taken[1], rounds);
    }
    shares_close(&shares);
}

TEST(what_counts_is_cost)
{
    struct shares shares = open_shares(2, (uint32_t[]){1, 1});
    struct batch batches[2] = {{.engine.extent = 300}, {.engine.extent = 100}}; /* three times as many tokens */
    unsigned taken[2] = {0};
    take_saturated(&shares, batches, (bool[]){true, true}, 400, taken);
    assert_int_equal(taken[0], 100);
    assert_int_equal(taken[1], 300);

    struct shares models = open_shares(2, (uint32_t[]){1, 1});
    models.items[0].token_cost = 4; /* a larger model */
    struct batch same[2] = {{.engine.extent = 100}, {.engine.extent = 100}};
    unsigned runs[2] = {0};
    take_saturated(&models, same, (bool[]){true, true}, 500, runs);
    assert_int_equal(runs[0], 100);
    assert_int_equal(runs[1], 400);
    shares_close(&models);
    shares_close(&shares);
}

TEST(an_idle_queue_leaves_its_share_and_saves_nothing)
{
    struct shares shares = open_shares(2, (uint32_t[]){3, 1});
    struct batch batches[2] = {{.engine.extent = 100}, {.engine.extent = 100}};
    unsigned taken[2] = {0};
    take_saturated(&shares, batches, (bool[]){false, true}, 1000, taken);
    assert_int_equal(taken[1], 1000); /* all of it */
    while (shares.items[1].count > 0) {
        size_t who;
        (void)shares_take(&shares, &who);
    }
    unsigned later[2] = {0};
    take_saturated(&shares, batches, (bool[]){true, true}, 400, later);
    assert_in_range(later[0], 299, 301); /* not 400 because it had been idle for so long */
    assert_in_range(later[1], 99, 101);
    shares_close(&shares);
}

TEST(each_share_keeps_its_order)
{
    struct shares shares = open_shares(1, (uint32_t[]){1});
    struct batch batches[MOST] = {
        {.engine.extent = 1}, {.engine.extent = 9}, {.engine.extent = 2}, {.engine.extent = 5}};
    size_t who;
    assert_null(shares_take(&shares, &who));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MOST; i++) { shares_put(&shares, 0, &batches[i]); }
        for (int i = 0; i < MOST; i++) { assert_ptr_equal(shares_take(&shares, &who), &batches[i]); }
    }
    assert_null(shares_take(&shares, &who));
    shares_close(&shares);
}
