/* The cost model: its results from batches that follow it, and from those that do not. Its file: a written cost is read
 * again, and nothing damaged, foreign or senseless is accepted. */
#include "harness.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "engine/cost.h"
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
    return (struct cost_shape){rows * length, rows * length * length, false};
}

static double truth(struct cost_shape shape)
{
    return 170000 + 105000 * shape.tokens + 85 * shape.squares;
}

static void assert_near(double value, double expected, double share)
{
    if (!(fabs(value - expected) <= share * fabs(expected))) { fail_msg("%g where %g belongs", value, expected); }
}

TEST(fit_finds_the_terms)
{
    struct cost_shape shapes[9];
    double took[9];
    for (int i = 0; i < 9; i++) {
        shapes[i] = i == 0 ? (struct cost_shape){8, 64} : some_shape();
        took[i] = truth(shapes[i]);
    }
    struct cost cost = cost_fit(shapes, took, 9);
    assert_near(cost.terms[0], 170000, 1e-6);
    assert_near(cost.terms[1], 105000, 1e-6);
    assert_near(cost.terms[2], 85, 1e-6);
}

/* Helped batches correct the value of help, and not the costs of batches without help. */
TEST(helped_batches_correct_help_alone)
{
    struct cost cost = cost_from(170000, 105000, 85), real = cost;
    cost.help = 0.9;
    real.help = 0.5;
    for (int i = 0; i < 400; i++) {
        double tokens = 1 + floor(some() * 128);
        struct cost_shape shape = i % 2 ? (struct cost_shape){tokens, tokens * tokens, true} : some_shape();
        cost_observe(&cost, shape, cost_predict_ns(&real, shape));
    }
    assert_near(cost.help, 0.5, 0.05);
    for (int i = 0; i < 20; i++) {
        struct cost_shape shape = some_shape();
        assert_near(cost_predict_ns(&cost, shape), cost_predict_ns(&real, shape), 0.01);
    }
}

TEST(fit_has_no_negative_terms)
{
    /* Long rows are cheaper than short ones here, which attention cannot be. */
    const struct cost_shape shapes[] = {{8, 64}, {256, 4096}, {256, 65536}, {1024, 1 << 20}};
    const double took[] = {1000, 26000, 25000, 100000};
    struct cost cost = cost_fit(shapes, took, 4);
    for (int i = 0; i < COST_TERMS; i++) { assert_true(cost.terms[i] >= 0); }
    assert_near(cost_predict_ns(&cost, shapes[3]), 100000, 0.1);
}

TEST(one_shape_is_enough_to_predict_it)
{
    const struct cost_shape shape = {8, 64};
    const double took = 5000;
    struct cost cost = cost_fit(&shape, &took, 1);
    assert_true(cost_known(&cost));
    assert_near(cost_predict_ns(&cost, shape), 5000, 1e-6);
}

TEST(nothing_known_predicts_nothing)
{
    struct cost cost = cost_from(0, 0, 0);
    assert_false(cost_known(&cost));
    assert_true(cost_predict_ns(&cost, (struct cost_shape){100, 100}) == 0);
    cost_observe(&cost, (struct cost_shape){0, 0}, 100);
    cost_observe(&cost, (struct cost_shape){10, 10}, 0);
    assert_false(cost_known(&cost));
    for (int i = 0; i < 3; i++) { cost_observe(&cost, (struct cost_shape){100, 1000}, 5000); }
    assert_near(cost_predict_ns(&cost, (struct cost_shape){200, 2000}), 10000, 1e-3);
}

/* A machine that is busy with something else from now on: one factor for all terms. */
TEST(a_slower_machine_is_followed)
{
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

/* Batches of one shape show nothing about others, except that all may have become slower. */
TEST(batches_of_one_shape_move_all_terms_together)
{
    struct cost cost = cost_from(170000, 105000, 85);
    const struct cost_shape seen = {256, 256 * 16}, other = {1024, 1024 * 512};
    for (int i = 0; i < 1000; i++) { cost_observe(&cost, seen, 2 * truth(seen)); }
    assert_near(cost_predict_ns(&cost, seen), 2 * truth(seen), 0.01);
    assert_near(cost_predict_ns(&cost, other), 2 * truth(other), 0.01);
}

/* A process that was stopped for a while makes one batch a thousand times as long. */
TEST(one_outlier_is_soon_forgotten)
{
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

TEST(shape_counts_padding_as_tokens)
{
    const uint32_t start[] = {0, 8}, length[] = {8, 3};
    struct engine_batch batch = {.rows = 2, .extent = 16, .start = start, .length = length};
    struct cost_shape shape = cost_shape_of(&batch);
    assert_true(shape.tokens == 16 && shape.squares == 64 + 9);
}

TEST(calibration_knows_an_engine)
{
    const struct model bare = {.vocabulary = 100, .max_tokens = 16, .layer_count = 1, .hidden = 24, .dim = 24};
    struct engine_options options = {.backend = "null"};
    struct cost_source of = {.model = &bare, .threads = 1};
    struct cost cost;
    struct err err = {0};
    assert_int_equal(engine_open(&bare, &options, &of.engine, &err), STATUS_OK);
    assert_int_equal(cost_calibrate(&of, 0, &cost, &err), STATUS_OK); /* no time: the shortest runs */
    assert_true(cost_known(&cost));
    assert_int_equal(cost_calibrate(&of, 100000000, &cost, &err), STATUS_OK);
    assert_true(cost_predict_ns(&cost, (struct cost_shape){32, 512, false}) > 0);
    engine_close(of.engine);
}

/* On a CPU with helpers, calibration also measures a short batch with them. On a busy machine none may come at once. */
TEST(calibration_knows_helpers)
{
    static const struct memory_shape shape = {100, 130, 64, 2, 1, 128};
    struct model *model = memory_model(shape, 3);
    struct engine_options options = {.backend = "cpu", .precision = PRECISION_F32};
    struct cost_source of = {.model = model, .threads = 2};
    struct cost cost = {.help = 1};
    struct err err = {0};
    assert_int_equal(engine_open(model, &options, &of.engine, &err), STATUS_OK);
    for (int i = 0; i < 1000 && cost.help == 1; i++) {
        assert_int_equal(cost_calibrate(&of, 0, &cost, &err), STATUS_OK);
    }
    assert_true(cost_known(&cost) && cost.help > 0 && cost.help != 1);
    engine_close(of.engine);
    memory_model_free(model);
}

/* --- the file --- */

struct desk {
    char folder[32];
    struct model model;
    struct engine *engine;
    unsigned threads;
};

static struct desk open_desk(void)
{
    struct desk desk = {.folder = "/tmp/sluice-cost-XXXXXX",
                        .model = {.vocabulary = 100,
                                  .max_tokens = 16,
                                  .layer_count = 1,
                                  .hidden = 24,
                                  .heads = 2,
                                  .intermediate_size = 48,
                                  .pooling = POOLING_MEAN,
                                  .dim = 24}};
    struct engine_options options = {.backend = "null"};
    struct err err;
    assert_non_null(mkdtemp(desk.folder));
    assert_int_equal(engine_open(&desk.model, &options, &desk.engine, &err), STATUS_OK);
    return desk;
}

static void close_desk(struct desk *desk)
{
    char command[64];
    engine_close(desk->engine);
    snprintf(command, sizeof command, "rm -r %s", desk->folder);
    assert_int_equal(system(command), 0);
}

static struct cost_source source(const struct desk *desk)
{
    return (struct cost_source){desk->engine, &desk->model, desk->threads};
}

static enum status recall(const struct desk *desk, struct cost *out)
{
    const struct cost_source of = source(desk);
    struct err err = {0};
    enum status status = cost_recall(desk->folder, &of, out, &err);
    assert_true(status == STATUS_OK || err.message[0] != '\0');
    assert_true(cost_known(out) == (status == STATUS_OK));
    return status;
}

static void remember(const struct desk *desk, struct cost cost)
{
    const struct cost_source of = source(desk);
    struct err err;
    assert_int_equal(cost_remember(desk->folder, &of, &cost, &err), STATUS_OK);
}

/* The one file in the folder. */
static void only_file(const struct desk *desk, char *path, size_t size)
{
    DIR *listing = opendir(desk->folder);
    unsigned count = 0;
    assert_non_null(listing);
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        if (entry->d_name[0] != '.' && ++count > 0) { snprintf(path, size, "%s/%s", desk->folder, entry->d_name); }
    }
    closedir(listing);
    assert_int_equal(count, 1);
}

TEST(what_is_kept_comes_back_as_it_was)
{
    struct desk desk = open_desk();
    struct cost back;
    assert_int_equal(recall(&desk, &back), STATUS_NOT_FOUND);
    const struct cost costs[] = {cost_from(170000.1, 1.0 / 3, 8.5e-5), cost_from(0, 1, 0), cost_from(1e-300, 0, 1e300)};
    for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++) {
        struct cost cost = costs[i];
        cost.help = i == 0 ? 1 : 0.3;
        remember(&desk, cost);
        assert_int_equal(recall(&desk, &back), STATUS_OK);
        assert_memory_equal(&back, &cost, sizeof back);
    }
    close_desk(&desk);
}

/* Another shape, precision or number of threads has another file, and does not push the first out. */
TEST(another_model_or_precision_has_its_own)
{
    struct desk desk = open_desk();
    struct cost back;
    struct engine *const first = desk.engine;
    struct engine_options options = {.backend = "null", .precision = PRECISION_BF16};
    struct err err;
    remember(&desk, cost_from(1, 2, 3));
    uint32_t *const numbers[] = {&desk.model.layer_count, &desk.model.hidden,    &desk.model.heads,
                                 &desk.model.key_heads,   &desk.model.head_dim,  &desk.model.intermediate_size,
                                 &desk.model.window,      &desk.model.max_tokens};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        ++*numbers[i];
        assert_int_equal(recall(&desk, &back), STATUS_NOT_FOUND);
        remember(&desk, cost_from(4, 5, (double)i));
        --*numbers[i];
    }
    desk.model.causal = true; /* which has half of the scores */
    assert_int_equal(recall(&desk, &back), STATUS_NOT_FOUND);
    desk.model.causal = false;
    desk.model.pooling = POOLING_CLS; /* whose last layer is a shorter one */
    assert_int_equal(recall(&desk, &back), STATUS_NOT_FOUND);
    desk.model.pooling = POOLING_MEAN;
    desk.threads++; /* which help each other */
    assert_int_equal(recall(&desk, &back), STATUS_NOT_FOUND);
    desk.threads--;
    assert_int_equal(engine_open(&desk.model, &options, &desk.engine, &err), STATUS_OK);
    assert_int_equal(recall(&desk, &back), STATUS_NOT_FOUND);
    engine_close(desk.engine);
    desk.engine = first;
    assert_int_equal(recall(&desk, &back), STATUS_OK);
    assert_true(back.terms[0] == 1 && back.terms[1] == 2 && back.terms[2] == 3);
    close_desk(&desk);
}

static void write_bytes(const struct desk *desk, const char *path, const void *bytes, size_t length)
{
    struct err err;
    (void)desk;
    assert_int_equal(file_replace(path, bytes, length, &err), STATUS_OK);
}

TEST(no_damage_is_believed)
{
    struct desk desk = open_desk();
    struct buffer text = {0};
    struct cost back;
    struct err err;
    char path[512];
    remember(&desk, cost_from(170000, 105000, 85));
    only_file(&desk, path, sizeof path);
    assert_int_equal(file_read(path, 4096, &text, &err), STATUS_OK);
    for (size_t length = 0; length < text.length; length++) {
        write_bytes(&desk, path, text.data, length);
        assert_int_equal(recall(&desk, &back), STATUS_BAD_INPUT);
    }
    for (size_t bit = 0; bit < text.length * 8; bit++) {
        text.data[bit / 8] = (char)(text.data[bit / 8] ^ 1 << bit % 8);
        write_bytes(&desk, path, text.data, text.length);
        assert_int_equal(recall(&desk, &back), STATUS_BAD_INPUT);
        text.data[bit / 8] = (char)(text.data[bit / 8] ^ 1 << bit % 8);
    }
    buffer_string(&text, "\n");
    write_bytes(&desk, path, text.data, text.length);
    assert_int_equal(recall(&desk, &back), STATUS_BAD_INPUT);
    buffer_free(&text);
    close_desk(&desk);
}

/* Files with a right checksum that name no cost. */
TEST(senseless_numbers_are_not_believed)
{
    struct desk desk = open_desk();
    struct cost back;
    const struct cost bad[] = {cost_from(-1, 2, 3), cost_from(1, (double)NAN, 3), cost_from(1, 2, (double)INFINITY),
                               cost_from(0, 0, 0)};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        remember(&desk, bad[i]);
        assert_int_equal(recall(&desk, &back), STATUS_BAD_INPUT);
    }
    const double no_help[] = {0, -1, (double)NAN, (double)INFINITY};
    for (size_t i = 0; i < sizeof no_help / sizeof no_help[0]; i++) {
        struct cost cost = cost_from(1, 2, 3);
        cost.help = no_help[i];
        remember(&desk, cost);
        assert_int_equal(recall(&desk, &back), STATUS_BAD_INPUT);
    }
    close_desk(&desk);
}
