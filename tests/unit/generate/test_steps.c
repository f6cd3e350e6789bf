/* The scheduler on a virtual clock, which is the number of the step: a world adds sequences, draws their tokens and
 * ends them, and looks after each plan whether it keeps the rules. */
#include <stdlib.h>

#include "base/random.h"
#include "generate/steps.h"
#include "harness.h"

enum { SEQUENCES = 24, LONGEST = 200 };

/* A sequence of the world. */
struct guest {
    struct sequence sequence;
    int32_t ids[LONGEST];
    uint32_t numbers[LONGEST / BLOCK_TOKENS + 1];
    uint32_t length;    /* it ends by itself when it has drawn this many */
    uint32_t first_row; /* the step in which it first had one */
    bool added, ended;
};

struct world {
    struct steps_options options;
    struct blocks *blocks;
    struct steps *steps;
    struct guest guests[SEQUENCES];
    uint32_t now, preemptions;
};

static void open_world(struct world *world, struct steps_options options, uint32_t blocks)
{
    *world = (struct world){.options = options};
    assert_int_equal(blocks_open(blocks, &world->blocks, NULL), STATUS_OK);
    assert_int_equal(steps_open(&options, world->blocks, &world->steps, NULL), STATUS_OK);
}

static void close_world(struct world *world)
{
    assert_int_equal(steps_count(world->steps), 0);
    assert_int_equal(blocks_free(world->blocks), blocks_total(world->blocks));
    steps_close(world->steps);
    blocks_close(world->blocks);
}

/* Adds a guest with `prompt` tokens, all equal to `first` or following it. */
static enum status add_guest(struct world *world, unsigned which, uint32_t prompt, uint32_t max_tokens, int32_t first)
{
    struct guest *guest = &world->guests[which];
    struct sequence *sequence = &guest->sequence;
    sequence->ids = guest->ids;
    sequence->prompt = prompt;
    sequence->max_tokens = max_tokens;
    sequence->table = (struct block_table){.blocks = guest->numbers};
    for (uint32_t i = 0; i < prompt; i++) { guest->ids[i] = first; }
    guest->length = max_tokens;
    guest->first_row = UINT32_MAX;
    enum status status = steps_add(world->steps, sequence, NULL);
    guest->added = status == STATUS_OK;
    return status;
}

static void end_guest(struct world *world, struct guest *guest, enum sequence_state state)
{
    steps_end(world->steps, &guest->sequence, state);
    assert_int_equal(guest->sequence.state, state);
    assert_int_equal(guest->sequence.table.count, 0);
    guest->ended = true;
}

/* Checks a plan: the budget, the states, and that the tokens of each row have their blocks. */
static void check_plan(const struct world *world, const struct step_row *rows, uint32_t count)
{
    uint32_t tokens = 0;
    assert_true(count <= world->options.step_rows);
    assert_true(count > 0 || steps_count(world->steps) == 0);
    for (uint32_t i = 0; i < count; i++) {
        const struct sequence *sequence = rows[i].sequence;
        uint32_t end = sequence->computed + rows[i].count;
        assert_true(rows[i].count > 0 && end <= sequence->count);
        assert_int_equal(rows[i].logits, end == sequence->count);
        assert_true(sequence->table.count >= blocks_for(end));
        if (world->options.chunk_tokens) { assert_true(rows[i].count <= world->options.chunk_tokens); }
        if (sequence->state == SEQUENCE_DECODING) {
            assert_int_equal(rows[i].count, 1);
        } else {
            assert_int_equal(sequence->state, rows[i].logits ? SEQUENCE_PREFILLING : SEQUENCE_PREFILLING_SPLIT);
        }
        for (uint32_t j = 0; j < i; j++) { assert_ptr_not_equal(rows[j].sequence, sequence); }
        tokens += rows[i].count;
    }
    assert_true(tokens <= world->options.step_tokens);
}

/* One round. Returns its rows. */
static uint32_t run_step(struct world *world)
{
    const struct step_row *rows;
    uint32_t count = steps_plan(world->steps, &rows);
    check_plan(world, rows, count);
    for (uint32_t i = 0; i < count; i++) {
        struct guest *guest = (struct guest *)(void *)rows[i].sequence;
        if (guest->first_row == UINT32_MAX) { guest->first_row = world->now; }
    }
    steps_done(world->steps);
    for (uint32_t i = 0; i < count; i++) {
        struct guest *guest = (struct guest *)(void *)rows[i].sequence;
        struct sequence *sequence = &guest->sequence;
        if (!rows[i].logits) {
            assert_int_equal(sequence->state, SEQUENCE_SPLIT_PENDING_REMAINDER);
            continue;
        }
        assert_int_equal(sequence->state, SEQUENCE_DECODING);
        steps_append(sequence, 1000 + (int32_t)sequence->count);
        if (sequence->count == sequence->prompt + guest->length) { end_guest(world, guest, SEQUENCE_FINISHED); }
    }
    world->now++;
    return count;
}

/* Runs until all have ended, and counts the steps and preemptions. */
static uint32_t run_all(struct world *world)
{
    uint32_t steps = 0;
    while (steps_count(world->steps) > 0) {
        assert_true(steps < 100000);
        run_step(world);
        steps++;
    }
    uint64_t shared = 0;
    for (int i = 0; i < SEQUENCES; i++) {
        world->preemptions += world->guests[i].sequence.preemptions;
        shared += world->guests[i].sequence.shared;
    }
    struct steps_state state = steps_state(world->steps);
    assert_int_equal(state.running + state.waiting, 0);
    assert_int_equal(state.preemptions, world->preemptions);
    assert_int_equal(state.shared_tokens, shared);
    return steps;
}

static const struct steps_options plain = {.step_tokens = 32, .step_rows = 8, .share = true};

/* A single sequence: the steps that it takes when nothing else runs. */
static uint32_t count_steps(struct steps_options options, uint32_t blocks, uint32_t prompt, uint32_t max_tokens)
{
    struct world world;
    open_world(&world, options, blocks);
    assert_int_equal(add_guest(&world, 0, prompt, max_tokens, 0), STATUS_OK);
    uint32_t steps = run_all(&world);
    close_world(&world);
    return steps;
}

TEST(a_prompt_as_long_as_the_budget_takes_one_step)
{
    assert_int_equal(count_steps(plain, 16, 31, 1), 1);
    assert_int_equal(count_steps(plain, 16, 32, 1), 1);
    assert_int_equal(count_steps(plain, 16, 33, 1), 2);
    assert_int_equal(count_steps(plain, 16, 64, 1), 2);
    assert_int_equal(count_steps(plain, 16, 32, 5), 5);
}

TEST(a_sequence_as_large_as_the_pool_runs_and_one_larger_fails_alone)
{
    assert_int_equal(count_steps(plain, 2, 16, 17), 17); /* the last token is not computed */
    struct world world;
    open_world(&world, plain, 2);
    assert_int_equal(add_guest(&world, 0, 8, 8, 0), STATUS_OK);
    assert_int_equal(add_guest(&world, 1, 16, 18, 0), STATUS_BAD_INPUT);
    assert_int_equal(world.guests[1].sequence.state, SEQUENCE_FAILED);
    assert_int_equal(run_all(&world), 8);
    assert_int_equal(world.guests[0].sequence.count, 16);
    close_world(&world);
}

TEST(prompts_of_whole_blocks_take_no_block_too_many)
{
    for (uint32_t k = 1; k <= 4; k++) {
        struct world world;
        open_world(&world, plain, 8);
        assert_int_equal(add_guest(&world, 0, 16 * k, 1, 0), STATUS_OK);
        const struct step_row *rows;
        assert_int_equal(steps_plan(world.steps, &rows), 1);
        assert_int_equal(blocks_free(world.blocks), 8 - k);
        end_guest(&world, &world.guests[0], SEQUENCE_FAILED);
        close_world(&world);
    }
}

TEST(a_prompt_that_is_known_whole_computes_its_last_block)
{
    struct world world;
    open_world(&world, plain, 16);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(add_guest(&world, i, 32, 1, 7), STATUS_OK);
        assert_int_equal(run_all(&world), 1);
        assert_int_equal(world.guests[i].sequence.shared, i == 0 ? 0 : 16);
    }
    close_world(&world);
}

TEST(a_step_mixes_drawn_tokens_with_parts_of_prompts)
{
    struct world world;
    open_world(&world, plain, 32);
    assert_int_equal(add_guest(&world, 0, 8, 20, 0), STATUS_OK);
    run_step(&world);
    assert_int_equal(add_guest(&world, 1, 70, 2, 1), STATUS_OK);
    const struct step_row *rows;
    for (int step = 0; step < 2; step++) {
        assert_int_equal(steps_plan(world.steps, &rows), 2);
        assert_int_equal(rows[0].count, 1);
        assert_int_equal(rows[1].count, 31); /* what the budget leaves */
        assert_false(rows[1].logits);
        steps_done(world.steps);
        steps_append(&world.guests[0].sequence, 5);
    }
    run_all(&world);
    close_world(&world);
}

/* The step in which each of the guests began, while two of the same kind as the first fill the pool. */
static void begin_in_order(enum steps_policy policy, uint32_t begun[3])
{
    struct steps_options options = plain;
    options.policy = policy;
    struct world world;
    open_world(&world, options, 2);
    static const struct {
        uint32_t class;
        uint64_t deadline_ns;
    } guests[3] = {{2, 0}, {1, 900}, {0, 1000}};
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(add_guest(&world, i, 20, 4, (int32_t)i), STATUS_OK);
        world.guests[i].sequence.class = guests[i].class;
        world.guests[i].sequence.deadline_ns = guests[i].deadline_ns;
    }
    run_all(&world);
    for (unsigned i = 0; i < 3; i++) { begun[i] = world.guests[i].first_row; }
    close_world(&world);
}

TEST(policies_say_who_goes_first)
{
    static const uint32_t expected[][3] = {[STEPS_FIFO] = {0, 4, 8},
                                           [STEPS_PREFILL_FIRST] = {0, 4, 8},
                                           [STEPS_PRIORITY] = {8, 4, 0},
                                           [STEPS_DEADLINE] = {8, 0, 4}};
    for (int policy = STEPS_FIFO; policy <= STEPS_DEADLINE; policy++) {
        uint32_t begun[3];
        begin_in_order((enum steps_policy)policy, begun);
        for (int i = 0; i < 3; i++) { assert_int_equal(begun[i], expected[policy][i]); }
    }
}

TEST(prefill_first_lets_a_begun_prompt_end_before_others_draw)
{
    for (int policy = STEPS_FIFO; policy <= STEPS_PREFILL_FIRST; policy++) {
        struct steps_options options = plain;
        options.policy = (enum steps_policy)policy;
        struct world world;
        open_world(&world, options, 32);
        assert_int_equal(add_guest(&world, 0, 8, 9, 0), STATUS_OK);
        run_step(&world);
        assert_int_equal(add_guest(&world, 1, 100, 2, 1), STATUS_OK);
        run_step(&world); /* begins the long prompt with what the budget leaves */
        const struct step_row *rows;
        uint32_t count = steps_plan(world.steps, &rows);
        assert_int_equal(count, policy == STEPS_FIFO ? 2 : 1);
        assert_ptr_equal(rows[0].sequence, &world.guests[policy].sequence);
        for (int i = 0; i < 2; i++) { end_guest(&world, &world.guests[i], SEQUENCE_FAILED); }
        close_world(&world);
    }
}

TEST(nobody_overtakes_a_sequence_that_waits_for_blocks)
{
    struct world world;
    open_world(&world, plain, 4);
    assert_int_equal(add_guest(&world, 0, 16, 10, 0), STATUS_OK); /* two blocks */
    assert_int_equal(add_guest(&world, 1, 40, 2, 1), STATUS_OK);  /* three: waits */
    assert_int_equal(add_guest(&world, 2, 16, 1, 2), STATUS_OK);  /* one, which is free */
    run_all(&world);
    assert_int_equal(world.guests[1].first_row, 10);
    assert_true(world.guests[2].first_row >= 10);
    close_world(&world);
}

TEST(a_preempted_sequence_computes_its_tokens_once_more_and_keeps_them)
{
    struct steps_options options = plain;
    options.optimistic = true;
    options.share = false;
    struct world world;
    open_world(&world, options, 4);
    assert_int_equal(add_guest(&world, 0, 15, 40, 0), STATUS_OK);
    assert_int_equal(add_guest(&world, 1, 15, 40, 1), STATUS_OK);
    run_all(&world);
    assert_int_equal(world.guests[0].sequence.preemptions, 0);
    assert_int_equal(world.guests[1].sequence.preemptions, 1);
    for (uint32_t i = 15; i < 55; i++) { assert_int_equal(world.guests[1].ids[i], 1000 + i); }
    close_world(&world);
}

static struct steps_options choose_options(uint64_t *seed)
{
    static const uint32_t chunks[] = {0, 0, 1, 2, 3, 7, 15, 16, 17};
    return (struct steps_options){
        .policy = (enum steps_policy)(random_next(seed) % 4),
        .step_tokens = 1 + (uint32_t)(random_next(seed) % 64),
        .step_rows = 1 + (uint32_t)(random_next(seed) % 10),
        .chunk_tokens = chunks[random_next(seed) % 9],
        .optimistic = random_next(seed) % 2,
        .share = random_next(seed) % 2,
    };
}

/* Guests arrive at any time, end early, and are cancelled in every state. */
static void live_through(struct world *world, uint64_t *seed, uint32_t *cancelled)
{
    unsigned added = 0;
    for (uint32_t step = 0; added < SEQUENCES || steps_count(world->steps) > 0; step++) {
        assert_true(step < 100000);
        while (added < SEQUENCES && random_next(seed) % 3 == 0) {
            uint32_t prompt = 1 + (uint32_t)(random_next(seed) % 60), most = 1 + (uint32_t)(random_next(seed) % 60);
            struct guest *guest = &world->guests[added];
            guest->sequence.class = (uint32_t)(random_next(seed) % 3);
            guest->sequence.deadline_ns = random_next(seed) % 2 * (random_next(seed) % 1000);
            if (add_guest(world, added, prompt, most, (int32_t)(random_next(seed) % 2)) != STATUS_OK) {
                assert_true(blocks_for(prompt + most - 1) > blocks_total(world->blocks));
                guest->ended = true;
            }
            guest->length = 1 + (uint32_t)(random_next(seed) % most);
            added++;
        }
        struct guest *unlucky = &world->guests[random_next(seed) % SEQUENCES];
        if (unlucky->added && !unlucky->ended && random_next(seed) % 60 == 0) {
            cancelled[unlucky->sequence.state]++;
            end_guest(world, unlucky, SEQUENCE_FAILED);
        }
        run_step(world);
    }
}

TEST(every_history_ends_and_keeps_the_rules)
{
    uint32_t cancelled[SEQUENCE_FAILED + 1] = {0}, preemptions = 0;
    for (uint64_t run = 0; run < 2000; run++) {
        uint64_t seed = run;
        struct world world;
        struct steps_options options = choose_options(&seed);
        open_world(&world, options, 4 + (uint32_t)(random_next(&seed) % 20));
        live_through(&world, &seed, cancelled);
        for (int i = 0; i < SEQUENCES; i++) {
            const struct guest *guest = &world.guests[i];
            assert_true(guest->ended);
            preemptions += guest->sequence.preemptions;
            if (guest->sequence.state == SEQUENCE_FINISHED) {
                assert_int_equal(guest->sequence.count, guest->sequence.prompt + guest->length);
            }
        }
        close_world(&world);
    }
    assert_true(preemptions > 200);
    assert_true(cancelled[SEQUENCE_PENDING] > 100 && cancelled[SEQUENCE_SPLIT_PENDING_REMAINDER] > 100 &&
                cancelled[SEQUENCE_DECODING] > 100);
}
