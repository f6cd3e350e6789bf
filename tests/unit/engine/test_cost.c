/* The cost model: what it finds in batches that follow it, and in those that do not. */
#include "harness.h"

#include <math.h>

#include "engine/cost.h"
#include "engine/team.h"
#include "memory_model.h"

static uint32_t seed = 1;

/* 0 .. 1, the same in every run. */
static double some(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (double)(seed >> 8) / (1 << 24);
}

static struct cost_shape some_shape(void)
{
    double length = 4 + floor(some() * 500), rows = 1 + floor(some() * 30);
    return (struct cost_shape){rows * length, rows * length * length, rows};
}

static double truth(struct cost_shape shape)
{
    return 170000 + 105000 * shape.tokens + 85 * shape.squares;
}

static void assert_near(double value, double expected, double share)
{
    if (!(fabs(value - expected) <= share * fabs(expected)))
        fail_msg("%g where %g belongs", value, expected);
}

static void fit_finds_the_terms(void **state)
{
    (void)state;
    struct cost_shape shapes[9];
    double took[9];
    for (int i = 0; i < 9; i++) {
        shapes[i] = i == 0 ? (struct cost_shape){8, 64} : some_shape();
        took[i] = truth(shapes[i]);
    }
    struct cost cost = cost_fit((struct cost_device){0}, shapes, took, 9);
    assert_near(cost.terms[0], 170000, 1e-6);
    assert_near(cost.terms[1], 105000, 1e-6);
    assert_near(cost.terms[2], 85, 1e-6);
}

/* 256 tokens to a pass: whole rows, and a longer one by itself. */
static void every_pass_pays(void **state)
{
    (void)state;
    static const struct {
        double rows, length, passes;
    } cases[] = {{1, 1, 1},   {1, 256, 1}, {16, 16, 1}, {17, 16, 2}, {2, 128, 1}, {3, 128, 2},
                 {4, 100, 2}, {5, 100, 3}, {3, 129, 3}, {1, 512, 1}, {2, 512, 2}, {0, 0, 1}};
    struct cost cost = cost_from(1, 0, 0);
    cost.device.pass = 256;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double tokens = cases[i].rows * cases[i].length;
        struct cost_shape shape = {tokens, tokens * cases[i].length, cases[i].rows};
        assert_true(cost_predict_ns(&cost, shape) == cases[i].passes);
    }
}

static const struct cost_device tiles = {
    .pass = 256, .strip = 32, .half = 0.65, .keys = 32, .room = 200, .helped = 128, .lone = {0.5, 0.9}};

static void fit_knows_passes(void **state)
{
    (void)state;
    struct cost_shape shapes[9];
    double took[9];
    struct cost real = cost_from(170000, 105000, 85);
    real.device = tiles;
    for (int i = 0; i < 9; i++) {
        shapes[i] = i < 2 ? (struct cost_shape){8 + 22 * i, 64, 1} : some_shape();
        took[i] = cost_predict_ns(&real, shapes[i]);
    }
    struct cost cost = cost_fit(real.device, shapes, took, 9);
    for (int i = 0; i < COST_TERMS; i++)
        assert_near(cost.terms[i], real.terms[i], 1e-6);
    for (int i = 0; i < 2; i++) {
        assert_near(cost.device.lone[i], tiles.lone[i], 1e-6);
        cost.device.lone[i] = tiles.lone[i];
    }
    assert_memory_equal(&cost.device, &tiles, sizeof tiles);
    assert_true(cost.error < 1e-6);
    took[8] *= 1.9;
    assert_true(cost_fit(real.device, shapes, took, 9).error > 0.05);
}

/* 17 to 32 tokens are a strip, fewer a half one; what is all that a pass has has a price of its own. */
static void tokens_count_in_strips(void **state)
{
    (void)state;
    struct cost cost = cost_from(0, 1, 0);
    cost.terms[0] = 100;
    cost.device = (struct cost_device){.strip = 32, .half = 0.65, .lone = {0.7, 0.8}};
    for (double tokens = 1; tokens <= 32; tokens++)
        assert_near(cost_predict_ns(&cost, (struct cost_shape){tokens, 0, 1}), (tokens <= 16 ? 0.7 : 0.8) * 132, 1e-9);
    cost.terms[0] = 0;
    for (double strips = 2; strips < 20; strips++) {
        double whole = cost_predict_ns(&cost, (struct cost_shape){32 * strips, 0, 1});
        double and_half = cost_predict_ns(&cost, (struct cost_shape){32 * strips + 1, 0, 1});
        assert_true(whole == 32 * strips);
        assert_true(and_half - whole > 16 && and_half - whole < 32);
        assert_true(cost_predict_ns(&cost, (struct cost_shape){32 * strips - 15, 0, 1}) == whole);
        assert_true(cost_predict_ns(&cost, (struct cost_shape){32 * strips + 16, 0, 1}) == and_half);
    }
    double nearly = 64 * (1 + 1e-12); /* where lengths are means */
    assert_true(cost_predict_ns(&cost, (struct cost_shape){nearly, 0, 1}) == 64);
}

/* f32 on tiles, in us as they were measured: the first of several strips costs more than each of the others, and more
 * than one that is alone. */
static void fit_finds_the_prices_of_lone_passes(void **state)
{
    (void)state;
    enum { COUNT = 8 };
    struct cost_shape shapes[COUNT];
    double took[COUNT];
    for (int i = 0; i < COUNT; i++) {
        double tokens = i < 2 ? 16 * (i + 1) : 64 * (i - 1);
        shapes[i] = (struct cost_shape){tokens, tokens * tokens, 1};
        took[i] = 0.08 * tokens * tokens + (i == 0 ? 2440 : i == 1 ? 3300 : 1850 + 2610 * tokens / 32);
    }
    struct cost cost = cost_fit((struct cost_device){.strip = 32, .half = 0.65}, shapes, took, COUNT);
    for (int i = 0; i < COUNT; i++)
        assert_near(cost_predict_ns(&cost, shapes[i]), took[i], 1e-6);
    assert_near(cost.terms[0], 1850, 1e-6);
    assert_near(cost.device.lone[0], 2440 / (1850 + 2610.0), 1e-6);
    assert_near(cost.device.lone[1], 3300 / (1850 + 2610.0), 1e-6);
}

/* Whatever short batches took, a longer one is not predicted to take less. */
static void lone_prices_stay_in_order(void **state)
{
    (void)state;
    const double short_ones[][2] = {{100, 50}, {1, 1}, {90000, 90000}, {50, 90000}, {90000, 50}};
    for (size_t k = 0; k < sizeof short_ones / sizeof short_ones[0]; k++) {
        struct cost_shape shapes[6];
        double took[6], before = 0;
        for (int i = 0; i < 6; i++) {
            double tokens = i < 2 ? 16 * (i + 1) : 64 * (i - 1);
            shapes[i] = (struct cost_shape){tokens, tokens * tokens, 1};
            took[i] = i < 2 ? short_ones[k][i] : 1000 + 100 * tokens;
        }
        struct cost cost = cost_fit((struct cost_device){.strip = 32, .half = 0.65}, shapes, took, 6);
        for (double tokens = 1; tokens <= 256; tokens++) {
            double now = cost_predict_ns(&cost, (struct cost_shape){tokens, tokens * tokens, 1});
            assert_true(now > 0 && now >= before * (1 - 1e-12));
            before = now;
        }
    }
}

/* A slow device, of which the calibration has seen short batches alone: these tell of longer ones as well. */
static void few_batches_do_without_the_prices_of_lone_passes(void **state)
{
    (void)state;
    const struct cost_shape shapes[] = {{16, 256, 1}, {32, 1024, 1}, {64, 4096, 1}};
    const double took[] = {650, 1000, 2040}; /* of which 40 are noise, not attention */
    for (unsigned count = 2; count <= 3; count++) {
        struct cost cost = cost_fit((struct cost_device){.strip = 32, .half = 0.65}, shapes, took, count);
        assert_true(cost.device.lone[0] == 0 && cost.device.lone[1] == 0 && cost.terms[2] == 0);
        assert_near(cost_predict_ns(&cost, (struct cost_shape){512, 512 * 512, 1}), 16000, 0.03);
    }
}

/* 17 rows of 16 are a pass of 256 tokens and one of half a strip. */
static void the_last_pass_has_what_is_left(void **state)
{
    (void)state;
    struct cost cost = cost_from(1000, 1, 0);
    cost.device = (struct cost_device){.pass = 256, .strip = 32, .half = 0.65, .lone = {0.5, 0.9}};
    assert_near(cost_predict_ns(&cost, (struct cost_shape){17 * 16, 0, 17}), 1000 + 256 + 0.5 * 1032, 1e-9);
    assert_near(cost_predict_ns(&cost, (struct cost_shape){34 * 16, 0, 34}), 2 * 1000 + 2 * 256 + 0.9 * 1032, 1e-9);
    assert_near(cost_predict_ns(&cost, (struct cost_shape){32 * 16, 0, 32}), 2 * 1000 + 2 * 256, 1e-9);
}

/* Rows of up to 32 tokens cost attention what 32 keys do for each of them. */
static void keys_count_in_strips(void **state)
{
    (void)state;
    struct cost cost = cost_from(0, 0, 1);
    cost.device = (struct cost_device){.keys = 32};
    for (double length = 1; length <= 96; length++) {
        double keys = ceil(length / 32) * 32;
        assert_true(cost_predict_ns(&cost, (struct cost_shape){length, length * length, 1}) == length * keys);
        assert_true(cost_predict_ns(&cost, (struct cost_shape){7 * length, 7 * length * length, 7}) ==
                    7 * length * keys);
    }
    double nearly = 32 * (1 + 1e-12);
    assert_near(cost_predict_ns(&cost, (struct cost_shape){320, 320 * nearly, 10}), 320 * 32, 1e-9);
    assert_true(cost_predict_ns(&cost, (struct cost_shape){0}) == 0);
}

/* Two passes of 256 tokens, of which 56 find no room, cost more than four of 128. */
static void tokens_without_room_cost_more(void **state)
{
    (void)state;
    struct cost cost = cost_from(0, 1, 0);
    cost.device = (struct cost_device){.pass = 256, .room = 200};
    assert_true(cost_predict_ns(&cost, (struct cost_shape){200, 0, 25}) == 200);
    double crowded = cost_predict_ns(&cost, (struct cost_shape){512, 0, 64});
    assert_true(crowded > 512 && crowded < 2 * 400 + 2 * 56 * 2);
    cost.device.pass = 128;
    assert_true(cost_predict_ns(&cost, (struct cost_shape){512, 0, 64}) == 512);
}

/* Whatever a device is like. */
static void more_tokens_never_cost_less(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        struct cost cost = cost_from(1000 * some(), 100 * some(), some());
        cost.device = (struct cost_device){.pass = 512,
                                           .strip = floor(some() * 2) * 32,
                                           .half = some(),
                                           .keys = floor(some() * 2) * 32,
                                           .room = floor(600 * some()),
                                           .helped = 512,
                                           .lone = {0.6 * some(), 0.6 + 0.4 * some()}};
        cost.help = some();
        double before = 0;
        for (double tokens = 1; tokens <= 512; tokens++) {
            double now = cost_predict_ns(&cost, (struct cost_shape){tokens, tokens * tokens, 1, i % 2});
            assert_true(now >= before);
            before = now;
        }
    }
}

/* Help is for one short pass, when the cores are idle. */
static void help_makes_short_batches_shorter(void **state)
{
    (void)state;
    struct cost cost = cost_from(100, 10, 1);
    cost.device = tiles;
    const struct cost_shape shapes[] = {{16, 256, 1, true}, {128, 128 * 128, 1, true}, {160, 160 * 160, 1, true}};
    const struct cost_shape alone = {16, 256, 1, false};
    double took[3];
    for (int i = 0; i < 3; i++)
        took[i] = cost_predict_ns(&cost, shapes[i]) * (i < 2 ? 0.6 : 1);
    double before = cost_predict_ns(&cost, alone);
    cost_fit_help(&cost, shapes, took, 3);
    assert_near(cost.help, 0.6, 1e-9);
    for (int i = 0; i < 3; i++)
        assert_near(cost_predict_ns(&cost, shapes[i]), took[i], 1e-9);
    assert_true(cost_predict_ns(&cost, alone) == before);
    cost_fit_help(&cost, &alone, took, 1);
    assert_true(cost.help == 1);
}

/* What was helped says what help is worth, and nothing of batches that are not. */
static void helped_batches_correct_help_alone(void **state)
{
    (void)state;
    struct cost cost = cost_from(170000, 105000, 85), real = cost;
    cost.device = real.device = tiles;
    cost.help = 0.9;
    real.help = 0.5;
    for (int i = 0; i < 400; i++) {
        double tokens = 1 + floor(some() * 128);
        struct cost_shape shape = i % 2 ? (struct cost_shape){tokens, tokens * tokens, 1, true} : some_shape();
        cost_observe(&cost, shape, cost_predict_ns(&real, shape));
    }
    assert_near(cost.help, 0.5, 0.05);
    for (int i = 0; i < 20; i++) {
        struct cost_shape shape = some_shape();
        assert_near(cost_predict_ns(&cost, shape), cost_predict_ns(&real, shape), 0.01);
    }
}

static void fit_has_no_negative_terms(void **state)
{
    (void)state;
    /* Long rows are cheaper than short ones here, which attention cannot be. */
    const struct cost_shape shapes[] = {{8, 64}, {256, 4096}, {256, 65536}, {1024, 1 << 20}};
    const double took[] = {1000, 26000, 25000, 100000};
    struct cost cost = cost_fit((struct cost_device){0}, shapes, took, 4);
    for (int i = 0; i < COST_TERMS; i++)
        assert_true(cost.terms[i] >= 0);
    assert_near(cost_predict_ns(&cost, shapes[3]), 100000, 0.1);
}

static void one_shape_is_enough_to_predict_it(void **state)
{
    (void)state;
    const struct cost_shape shape = {8, 64};
    const double took = 5000;
    struct cost cost = cost_fit((struct cost_device){0}, &shape, &took, 1);
    assert_true(cost_known(&cost));
    assert_near(cost_predict_ns(&cost, shape), 5000, 1e-6);
}

static void nothing_known_predicts_nothing(void **state)
{
    (void)state;
    struct cost cost = cost_from(0, 0, 0);
    assert_false(cost_known(&cost));
    assert_true(cost_predict_ns(&cost, (struct cost_shape){100, 100}) == 0);
    cost_observe(&cost, (struct cost_shape){0, 0}, 100);
    cost_observe(&cost, (struct cost_shape){10, 10}, 0);
    assert_false(cost_known(&cost));
    for (int i = 0; i < 3; i++)
        cost_observe(&cost, (struct cost_shape){100, 1000}, 5000);
    assert_near(cost_predict_ns(&cost, (struct cost_shape){200, 2000}), 10000, 1e-3);
}

/* A machine that is busy with something else from now on: one factor for all terms. */
static void a_slower_machine_is_followed(void **state)
{
    (void)state;
    struct cost cost = cost_from(170000, 105000, 85);
    for (int i = 0; i < 200; i++) {
        struct cost_shape shape = some_shape();
        cost_observe(&cost, shape, 2.5 * truth(shape) * (0.95 + 0.1 * some()));
    }
    for (int i = 0; i < 20; i++) {
        struct cost_shape shape = some_shape();
        assert_near(cost_predict_ns(&cost, shape), 2.5 * truth(shape), 0.05);
    }
    assert_true(cost.error < 0.06);
}

/* Batches of one shape say nothing of others but that all may have become slower. */
static void batches_of_one_shape_move_all_terms_together(void **state)
{
    (void)state;
    struct cost cost = cost_from(170000, 105000, 85);
    const struct cost_shape seen = {256, 256 * 16}, other = {1024, 1024 * 512};
    for (int i = 0; i < 1000; i++)
        cost_observe(&cost, seen, 2 * truth(seen));
    assert_near(cost_predict_ns(&cost, seen), 2 * truth(seen), 0.01);
    assert_near(cost_predict_ns(&cost, other), 2 * truth(other), 0.25);
}

/* A term that the calibration got wrong is put right by batches of many shapes. */
static void a_wrong_term_is_corrected(void **state)
{
    (void)state;
    struct cost cost = cost_from(170000, 105000, 20);
    for (int i = 0; i < 500; i++) {
        struct cost_shape shape = some_shape();
        cost_observe(&cost, shape, truth(shape));
    }
    for (int i = 0; i < 50; i++) {
        struct cost_shape shape = some_shape();
        assert_near(cost_predict_ns(&cost, shape), truth(shape), 0.05);
    }
}

/* A process that was stopped for a while makes one batch a thousand times as long. */
static void one_outlier_is_soon_forgotten(void **state)
{
    (void)state;
    struct cost cost = cost_from(170000, 105000, 85);
    for (int i = 0; i < 100; i++) {
        struct cost_shape shape = some_shape();
        cost_observe(&cost, shape, truth(shape));
    }
    cost_observe(&cost, (struct cost_shape){100, 1000}, 1000 * truth((struct cost_shape){100, 1000}));
    for (int i = 0; i < 20; i++) {
        struct cost_shape shape = some_shape();
        assert_near(cost_predict_ns(&cost, shape), truth(shape), 0.05);
    }
}

static void shape_counts_padding_as_tokens(void **state)
{
    (void)state;
    const uint32_t start[] = {0, 8}, length[] = {8, 3};
    struct engine_batch batch = {.rows = 2, .extent = 16, .start = start, .length = length};
    struct cost_shape shape = cost_shape_of(&batch);
    assert_true(shape.tokens == 16 && shape.squares == 64 + 9 && shape.rows == 2);
}

static void calibration_knows_an_engine(void **state)
{
    (void)state;
    const struct model bare = {.vocabulary = 100, .max_tokens = 16, .layer_count = 1, .hidden = 24, .dim = 24};
    struct engine_options options = {.backend = "null"};
    struct engine *engine;
    struct encoder *encoder;
    struct cost cost;
    struct err err = {0};
    assert_int_equal(engine_open(&bare, &options, &engine, &err), STATUS_OK);
    assert_int_equal(encoder_open(engine, &encoder, &err), STATUS_OK);
    assert_int_equal(cost_calibrate(encoder, NULL, &bare, 0, &cost, &err), STATUS_OK); /* no time: the shortest runs */
    assert_true(cost_known(&cost));
    assert_int_equal(cost_calibrate(encoder, NULL, &bare, 100000000, &cost, &err), STATUS_OK);
    assert_true(cost_predict_ns(&cost, (struct cost_shape){32, 512}) > 0);
    encoder_close(encoder);
    engine_close(engine);
}

/* Of a CPU with helpers: what a short batch takes with them is known as well. */
static void calibration_knows_helpers(void **state)
{
    (void)state;
    static const struct memory_shape shape = {100, 130, 64, 2, 1, 128};
    struct model *model = memory_model(shape, 3);
    struct engine_options options = {.backend = "cpu", .precision = PRECISION_F32};
    struct engine *engine;
    struct encoder *encoder;
    struct team *team;
    struct cost cost;
    struct err err = {0};
    assert_int_equal(team_open(2, &team, &err), STATUS_OK);
    assert_int_equal(engine_open(model, &options, &engine, &err), STATUS_OK);
    assert_int_equal(encoder_open(engine, &encoder, &err), STATUS_OK);
    assert_int_equal(cost_calibrate(encoder, team, model, 0, &cost, &err), STATUS_OK);
    assert_true(cost_known(&cost) && cost.device.helped > 0 && cost.help > 0 && cost.help != 1);
    assert_true(cost.device.keys == 0 && cost.device.room == 0); /* f32, on any processor */
    encoder_close(encoder);
    engine_close(engine);
    team_close(team);
    memory_model_free(model);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(fit_finds_the_terms),
    cmocka_unit_test(every_pass_pays),
    cmocka_unit_test(fit_knows_passes),
    cmocka_unit_test(tokens_count_in_strips),
    cmocka_unit_test(fit_finds_the_prices_of_lone_passes),
    cmocka_unit_test(lone_prices_stay_in_order),
    cmocka_unit_test(few_batches_do_without_the_prices_of_lone_passes),
    cmocka_unit_test(the_last_pass_has_what_is_left),
    cmocka_unit_test(keys_count_in_strips),
    cmocka_unit_test(tokens_without_room_cost_more),
    cmocka_unit_test(more_tokens_never_cost_less),
    cmocka_unit_test(help_makes_short_batches_shorter),
    cmocka_unit_test(helped_batches_correct_help_alone),
    cmocka_unit_test(fit_has_no_negative_terms),
    cmocka_unit_test(one_shape_is_enough_to_predict_it),
    cmocka_unit_test(nothing_known_predicts_nothing),
    cmocka_unit_test(a_slower_machine_is_followed),
    cmocka_unit_test(batches_of_one_shape_move_all_terms_together),
    cmocka_unit_test(a_wrong_term_is_corrected),
    cmocka_unit_test(one_outlier_is_soon_forgotten),
    cmocka_unit_test(shape_counts_padding_as_tokens),
    cmocka_unit_test(calibration_knows_an_engine),
    cmocka_unit_test(calibration_knows_helpers),
};

TEST_MAIN(cases)
