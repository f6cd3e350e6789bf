/* The pool of blocks against a model that is plainly right: no block has two writers, shared blocks hold the tokens
 * that they are shared for, and every block is counted once. */
#include <stdlib.h>

#include "base/random.h"
#include "generate/blocks.h"
#include "harness.h"

enum { POOL = 24, TABLES = 8, LONGEST = 12 * BLOCK_TOKENS };

/* A sequence of the model: its tokens, of which `computed` are in its blocks. */
struct sequence {
    int32_t ids[LONGEST];
    uint32_t count, computed;
    uint32_t numbers[LONGEST / BLOCK_TOKENS];
    struct block_table table;
};

/* The model: the token at each place of the pool, -1 for one that was never written. */
static int32_t memory[POOL][BLOCK_TOKENS];

static struct blocks *open_pool(uint32_t count)
{
    struct blocks *blocks;
    assert_int_equal(blocks_open(count, &blocks, NULL), STATUS_OK);
    return blocks;
}

/* Tokens of two kinds, so that beginnings are often equal, though not where `seed` differs. */
static void fill_ids(struct sequence *sequence, uint64_t *seed)
{
    sequence->count = 1 + (uint32_t)(random_next(seed) % LONGEST);
    uint32_t same = (uint32_t)(random_next(seed) % (LONGEST + 1));
    for (uint32_t i = 0; i < sequence->count; i++) {
        sequence->ids[i] = i < same ? (int32_t)(i / 40) : (int32_t)(random_next(seed) % 2);
    }
}

/* Computes the next tokens: writes them as the decoder would, into blocks that nobody else has. */
static void compute_tokens(struct sequence *sequences, struct sequence *sequence, uint32_t tokens)
{
    uint32_t end = sequence->computed + tokens;
    for (uint32_t p = sequence->computed; p < end; p++) {
        uint32_t number = sequence->table.blocks[p / BLOCK_TOKENS];
        for (int t = 0; t < TABLES; t++) {
            for (uint32_t b = 0; &sequences[t] != sequence && b < sequences[t].table.count; b++) {
                assert_int_not_equal(sequences[t].table.blocks[b], number);
            }
        }
        memory[number][p % BLOCK_TOKENS] = sequence->ids[p];
    }
    sequence->computed = end;
}

static void check_pool(const struct blocks *blocks, const struct sequence *sequences)
{
    uint32_t used[POOL] = {0}, in_use = 0;
    for (int t = 0; t < TABLES; t++) {
        const struct sequence *sequence = &sequences[t];
        for (uint32_t b = 0; b < sequence->table.count; b++) {
            assert_true(sequence->table.blocks[b] < POOL);
            in_use += used[sequence->table.blocks[b]]++ == 0;
        }
        for (uint32_t p = 0; p < sequence->computed; p++) {
            assert_int_equal(memory[sequence->table.blocks[p / BLOCK_TOKENS]][p % BLOCK_TOKENS], sequence->ids[p]);
        }
    }
    assert_int_equal(blocks_free(blocks), POOL - in_use);
}

/* One random operation; `hits` counts the tokens that were shared. */
static void step_sequence(struct blocks *blocks, struct sequence *sequences, struct sequence *sequence, uint64_t *seed,
                          uint64_t *hits)
{
    struct block_table *table = &sequence->table;
    uint32_t before = blocks_free(blocks), shared;
    if (table->count == 0) {
        fill_ids(sequence, seed);
        uint32_t wanted = blocks_for(sequence->count);
        if (blocks_begin(blocks, table, sequence->ids, sequence->count, wanted, true, &shared)) {
            assert_int_equal(table->count, wanted);
            assert_true(shared % BLOCK_TOKENS == 0 && shared < sequence->count);
            sequence->computed = shared;
            *hits += shared;
        } else {
            assert_int_equal(table->count, 0);
            assert_int_equal(blocks_free(blocks), before);
        }
    } else if (sequence->computed < sequence->count && random_next(seed) % 4 > 0) {
        uint32_t left = sequence->count - sequence->computed;
        compute_tokens(sequences, sequence, 1 + (uint32_t)(random_next(seed) % left));
        blocks_publish(blocks, table, sequence->ids, sequence->computed);
    } else if (table->count < LONGEST / BLOCK_TOKENS && random_next(seed) % 3 == 0) {
        bool fits = blocks_extend(blocks, table, table->count + 1);
        assert_int_equal(fits, before > 0);
    } else {
        blocks_end(blocks, table);
        sequence->computed = 0;
    }
}

TEST(random_operations_agree_with_the_model)
{
    uint64_t hits = 0;
    for (uint64_t run = 0; run < 200; run++) {
        struct blocks *blocks = open_pool(POOL);
        struct sequence sequences[TABLES] = {0};
        for (int t = 0; t < TABLES; t++) { sequences[t].table.blocks = sequences[t].numbers; }
        memset(memory, -1, sizeof memory);
        uint64_t seed = run;
        for (int i = 0; i < 400; i++) {
            step_sequence(blocks, sequences, &sequences[random_next(&seed) % TABLES], &seed, &hits);
            check_pool(blocks, sequences);
        }
        for (int t = 0; t < TABLES; t++) { blocks_end(blocks, &sequences[t].table); }
        assert_int_equal(blocks_free(blocks), POOL);
        blocks_close(blocks);
    }
    assert_true(hits > 10000);
}

/* A table in which `count` tokens were computed and published. */
static void compute_text(struct blocks *blocks, struct block_table *table, const int32_t *ids, uint32_t count,
                         uint32_t *shared)
{
    assert_true(blocks_begin(blocks, table, ids, count, blocks_for(count), true, shared));
    blocks_publish(blocks, table, ids, count);
}

TEST(at_least_one_token_is_computed)
{
    struct blocks *blocks = open_pool(8);
    uint32_t first[3], second[3], shared;
    struct block_table a = {.blocks = first}, b = {.blocks = second};
    int32_t ids[33] = {0};
    compute_text(blocks, &a, ids, 32, &shared);
    assert_int_equal(shared, 0);
    compute_text(blocks, &b, ids, 32, &shared);
    assert_int_equal(shared, 16);
    assert_int_not_equal(a.blocks[1], b.blocks[1]);
    blocks_end(blocks, &b);
    compute_text(blocks, &b, ids, 33, &shared);
    assert_int_equal(shared, 32);
    assert_int_equal(b.blocks[1], a.blocks[1]);
    blocks_close(blocks);
}

TEST(the_same_block_after_another_beginning_is_not_shared)
{
    struct blocks *blocks = open_pool(8);
    uint32_t first[3], second[3], shared;
    struct block_table a = {.blocks = first}, b = {.blocks = second};
    int32_t ids[48] = {0};
    compute_text(blocks, &a, ids, 48, &shared);
    ids[0] = 1;
    compute_text(blocks, &b, ids, 48, &shared);
    assert_int_equal(shared, 0);
    blocks_close(blocks);
}

TEST(a_block_that_lost_its_beginning_is_not_found_under_a_new_one)
{
    struct blocks *blocks = open_pool(4);
    uint32_t numbers[4], others[4], shared;
    struct block_table a = {.blocks = numbers}, b = {.blocks = others};
    int32_t ids[33] = {0};
    compute_text(blocks, &a, ids, 33, &shared);
    uint32_t beginning = a.blocks[0];
    blocks_end(blocks, &a);
    /* Takes the plain blocks, and then those published: the second of the text first, the beginning last. */
    assert_true(blocks_begin(blocks, &b, ids, 1, 4, false, &shared));
    assert_int_equal(b.blocks[3], beginning);
    blocks_end(blocks, &b);
    compute_text(blocks, &a, ids, 33, &shared);
    assert_int_equal(shared, 0);
    blocks_close(blocks);
}

TEST(the_text_that_was_used_last_stays_longest)
{
    struct blocks *blocks = open_pool(4);
    uint32_t numbers[4], shared;
    struct block_table table = {.blocks = numbers};
    int32_t ids[3][17];
    for (int i = 0; i < 3; i++) {
        for (int p = 0; p < 17; p++) { ids[i][p] = i; }
        compute_text(blocks, &table, ids[i], 16, &shared);
        blocks_end(blocks, &table);
    }
    compute_text(blocks, &table, ids[0], 17, &shared); /* the oldest is used again */
    assert_int_equal(shared, 16);
    blocks_end(blocks, &table);
    assert_true(blocks_begin(blocks, &table, ids[0], 1, 2, false, &shared)); /* a plain one, and the oldest now */
    blocks_end(blocks, &table);
    static const uint32_t kept[] = {16, 0, 16};
    for (int i = 0; i < 3; i++) {
        assert_true(blocks_begin(blocks, &table, ids[i], 17, 2, true, &shared));
        assert_int_equal(shared, kept[i]);
        blocks_end(blocks, &table);
    }
    blocks_close(blocks);
}
