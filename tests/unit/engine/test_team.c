/* The team: every range once, on one hand at a time, whatever helpers come, late or not at all; and vectors whose bits
 * do not show who computed them.
 * ctest: threads */
#include "harness.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "engine/backend.h"
#include "engine/engine.h"
#include "engine/cpu/parallel_for.h"
#include "memory_model.h"

enum { RANGES = 200, STEPS = 50, LONGEST = 128 };

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static struct team *open_team(unsigned threads)
{
    struct team *team;
    struct err err;
    assert_int_equal(team_open(threads, &team, &err), STATUS_OK);
    return team;
}

/* ---- ranges ---- */

/* What the ranges of a step write is not atomic: TSan looks whether each is behind the one before it. */
struct ranges {
    unsigned number;
    unsigned done[RANGES];
    unsigned sums[TEAM_HANDS_MAX]; /* of the hands; written by their threads alone */
    atomic_uint on[TEAM_HANDS_MAX], clashes;
};

static void do_range(void *context, unsigned hand, unsigned range)
{
    struct ranges *ranges = context;
    if (atomic_fetch_add(&ranges->on[hand], 1) != 0)
        atomic_fetch_add(&ranges->clashes, 1);
    ranges->done[range]++;
    ranges->sums[hand] += ranges->number;
    if (range == 60)
        sched_yield();
    atomic_fetch_sub(&ranges->on[hand], 1);
}

/* Steps of all sizes in computations of a few steps; returns what the hands' sums must be together. */
static unsigned do_steps(struct team *team, struct ranges *ranges, uint32_t seed)
{
    unsigned expected = 0;
    for (unsigned step = 0; step < STEPS;) {
        bool owns = team_enter(team, true);
        for (unsigned i = 0; i < 5; i++, step++) {
            unsigned count = 1 + next_random(&seed) % RANGES;
            ranges->number = next_random(&seed) % 10;
            memset(ranges->done, 0, sizeof ranges->done);
            for (unsigned r = 0; r < count && !owns; r++)
                do_range(ranges, 0, r);
            if (owns)
                team_run(team, &(struct team_step){do_range, ranges, count});
            for (unsigned r = 0; r < RANGES; r++)
                assert_int_equal(ranges->done[r], r < count);
            expected += ranges->number * count;
        }
        team_leave(team, owns);
    }
    return expected;
}

static void every_range_is_done_once(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 5; threads++) {
        struct team *team = open_team(threads);
        struct ranges ranges = {0};
        unsigned expected = do_steps(team, &ranges, threads), sum = 0;
        for (unsigned hand = 0; hand < TEAM_HANDS_MAX; hand++)
            sum += ranges.sums[hand];
        assert_int_equal(sum, expected);
        assert_int_equal(ranges.clashes, 0);
        team_close(team);
    }
}

static void helpers_have_a_part(void **state)
{
    (void)state;
    struct team *team = open_team(3);
    struct ranges ranges = {.number = 1};
    assert_int_equal(team_hands(team), 3);
    while (ranges.sums[1] == 0 || ranges.sums[2] == 0) {
        bool owns = team_enter(team, true);
        assert_true(owns);
        team_run(team, &(struct team_step){do_range, &ranges, RANGES});
        team_leave(team, owns);
    }
    team_close(team);
}

static void a_team_has_one_owner_and_no_more_hands_than_cores(void **state)
{
    (void)state;
    struct team *team = open_team(3);
    assert_false(team_enter(team, false));
    assert_true(team_enter(team, true)); /* two compute, one helper is left */
    assert_false(team_enter(team, true));
    team_leave(team, false);
    team_leave(team, true);
    assert_true(team_enter(team, true));
    team_leave(team, true);
    assert_false(team_enter(team, false));
    assert_false(team_enter(team, true)); /* no: three compute */
    for (int i = 0; i < 3; i++)
        team_leave(team, false);
    assert_true(team_enter(team, true));
    team_leave(team, true);
    team_close(team);

    team = open_team(1);
    assert_int_equal(team_hands(team), 1);
    assert_false(team_enter(team, true));
    team_leave(team, false);
    team_close(team);

    team = open_team(2 * TEAM_HANDS_MAX);
    assert_int_equal(team_hands(team), TEAM_HANDS_MAX);
    team_close(team);
}

/* ---- vectors ---- */

struct disturbance {
    struct team *team;
    atomic_bool ends;
};

/* Somebody else computes now and then, so that helpers leave and come back at any time. */
static void *disturb(void *argument)
{
    struct disturbance *disturbance = argument;
    uint32_t seed = 5;
    while (!atomic_load(&disturbance->ends)) {
        bool owns = team_enter(disturbance->team, false);
        for (uint32_t spins = next_random(&seed) % 2000; spins > 0; spins--)
            atomic_signal_fence(memory_order_seq_cst);
        team_leave(disturbance->team, owns);
        for (uint32_t yields = next_random(&seed) % 4; yields > 0; yields--)
            sched_yield();
    }
    return NULL;
}

struct scene {
    struct model *model;
    struct engine *engine;
    struct team *team;
    int32_t ids[LONGEST];
    float *expected; /* [LONGEST + 1, dim] */
};

static bool embed(const struct scene *scene, struct encoder *encoder, uint32_t length, float *vector)
{
    const uint32_t start = 0;
    struct engine_batch batch = {1, length, scene->ids, &start, &length, vector};
    return encoder_run(encoder, &batch, NULL) == STATUS_OK;
}

/* Several texts in one pass, each of which begins with the same ids. */
static intptr_t embed_together(const struct scene *scene, struct encoder *encoder)
{
    enum { ROWS = 4 };
    const uint32_t lengths[ROWS] = {40, 3, 17, 100};
    uint32_t start[ROWS], extent = 0, dim = scene->model->dim;
    int32_t ids[ROWS * LONGEST];
    float *vectors = calloc((size_t)ROWS * dim, sizeof *vectors);
    intptr_t wrong = vectors == NULL;
    for (uint32_t r = 0; r < ROWS; extent += lengths[r++]) {
        start[r] = extent;
        memcpy(ids + extent, scene->ids, lengths[r] * sizeof *ids);
    }
    struct engine_batch batch = {ROWS, extent, ids, start, lengths, vectors};
    wrong += encoder_run(encoder, &batch, NULL) != STATUS_OK;
    for (uint32_t r = 0; r < ROWS; r++)
        wrong +=
            memcmp(vectors + (size_t)r * dim, scene->expected + (size_t)lengths[r] * dim, dim * sizeof *vectors) != 0;
    free(vectors);
    return wrong;
}

/* Runs texts of all lengths in order and again in any, on an encoder of its own that has joined; returns how many
 * vectors are not what they should be. */
static void *embed_all(void *argument)
{
    const struct scene *scene = argument;
    struct encoder *encoder;
    uint32_t seed = 7, dim = scene->model->dim;
    intptr_t wrong = 0;
    float *vector = calloc(dim, sizeof *vector);
    if (vector == NULL || encoder_open(scene->engine, &encoder, NULL) != STATUS_OK ||
        encoder_join(encoder, scene->team, NULL) != STATUS_OK)
        abort();
    for (unsigned i = 0; i < 2 * LONGEST; i++) {
        uint32_t length = i < LONGEST ? i + 1 : 1 + next_random(&seed) % LONGEST;
        const float *expected = scene->expected + (size_t)length * dim;
        wrong += !embed(scene, encoder, length, vector) || memcmp(vector, expected, dim * sizeof *vector) != 0;
    }
    for (unsigned i = 0; i < LONGEST / 4; i++)
        wrong += embed_together(scene, encoder);
    encoder_close(encoder);
    free(vector);
    return (void *)wrong;
}

static void check_bits(struct memory_shape shape, enum precision precision)
{
    struct scene scene = {.model = memory_model(shape, 3)};
    struct engine_options options = {"cpu", precision};
    struct encoder *alone;
    struct err err;
    uint32_t seed = 1;
    for (uint32_t i = 0; i < LONGEST; i++)
        scene.ids[i] = (int32_t)(next_random(&seed) % scene.model->vocabulary);
    assert_int_equal(engine_open(scene.model, &options, &scene.engine, &err), STATUS_OK);
    assert_int_equal(encoder_open(scene.engine, &alone, &err), STATUS_OK);
    scene.expected = calloc((LONGEST + 1) * (size_t)scene.model->dim, sizeof(float));
    assert_non_null(scene.expected);
    for (uint32_t length = 1; length <= LONGEST; length++)
        assert_true(embed(&scene, alone, length, scene.expected + (size_t)length * scene.model->dim));

    for (unsigned threads = 2; threads <= 4; threads += 2) {
        scene.team = open_team(threads);
        struct disturbance disturbance = {.team = scene.team};
        pthread_t others[2];
        assert_int_equal(pthread_create(&others[0], NULL, disturb, &disturbance), 0);
        assert_int_equal(pthread_create(&others[1], NULL, embed_all, &scene), 0);
        void *wrong[2] = {embed_all(&scene)};
        pthread_join(others[1], &wrong[1]);
        atomic_store(&disturbance.ends, true);
        pthread_join(others[0], NULL);
        team_close(scene.team);
        assert_null(wrong[0]);
        assert_null(wrong[1]);
    }
    encoder_close(alone);
    engine_close(scene.engine);
    memory_model_free(scene.model);
    free(scene.expected);
}

/* A pass of so many rows of 64 tokens. */
static bool helped_with(struct encoder *encoder, uint32_t rows)
{
    enum { MOST = 8, LENGTH = 64 };
    int32_t ids[MOST * LENGTH] = {0};
    uint32_t start[MOST], length[MOST];
    float vectors[MOST * 128];
    struct err err;
    for (uint32_t r = 0; r < rows; r++) {
        start[r] = r * LENGTH;
        length[r] = LENGTH;
    }
    struct engine_batch batch = {rows, rows * LENGTH, ids, start, length, vectors};
    assert_int_equal(encoder_run(encoder, &batch, &err), STATUS_OK);
    return encoder_helped(encoder);
}

static const struct memory_shape wide = {100, 130, 128, 2, 4, 256};
static const struct memory_shape odd = {50, 128, 36, 2, 3, 70};
static const struct memory_shape deep = {100, 130, 64, 12, 2, 128}; /* in int8 some of its layers are not */

/* Short passes are helped with while nothing else computes. */
static void a_batch_says_whether_it_was_helped(void **state)
{
    (void)state;
    struct model *model = memory_model(wide, 3);
    struct engine_options options = {"cpu", PRECISION_F32};
    struct team *team = open_team(2);
    struct engine *engine;
    struct encoder *encoder;
    struct err err;
    assert_int_equal(engine_open(model, &options, &engine, &err), STATUS_OK);
    assert_int_equal(encoder_open(engine, &encoder, &err), STATUS_OK);
    assert_false(helped_with(encoder, 1));
    assert_int_equal(encoder_join(encoder, team, &err), STATUS_OK);
    assert_true(helped_with(encoder, 1));
    assert_true(helped_with(encoder, 4));
    assert_false(helped_with(encoder, 5));
    bool owns = team_enter(team, false);
    assert_false(helped_with(encoder, 1));
    team_leave(team, owns);
    assert_true(helped_with(encoder, 1));
    encoder_close(encoder);
    team_close(team);
    engine_close(engine);
    memory_model_free(model);
}

static void f32_bits_do_not_show_who_helped(void **state)
{
    (void)state;
    check_bits(wide, PRECISION_F32);
    check_bits(odd, PRECISION_F32);
}

static void native_bits_do_not_show_who_helped(void **state)
{
    (void)state;
    check_bits(wide, PRECISION_AUTO); /* bf16 where the processor has it */
    check_bits(odd, PRECISION_AUTO);
}

static void int8_bits_do_not_show_who_helped(void **state)
{
    (void)state;
    check_bits(wide, PRECISION_INT8);
    check_bits(odd, PRECISION_INT8);
    check_bits(deep, PRECISION_INT8);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(every_range_is_done_once),
    cmocka_unit_test(helpers_have_a_part),
    cmocka_unit_test(a_team_has_one_owner_and_no_more_hands_than_cores),
    cmocka_unit_test(a_batch_says_whether_it_was_helped),
    cmocka_unit_test(f32_bits_do_not_show_who_helped),
    cmocka_unit_test(native_bits_do_not_show_who_helped),
    cmocka_unit_test(int8_bits_do_not_show_who_helped),
};

TEST_MAIN(cases)
