/* The file of a calibration: what is written is read again, and nothing damaged, foreign or senseless is believed. */
#include "harness.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cache.h"
#include "base/file.h"
#include "engine/cost_file.h"

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
    for (struct dirent *entry; (entry = readdir(listing)) != NULL;)
        if (entry->d_name[0] != '.' && ++count > 0)
            snprintf(path, size, "%s/%s", desk->folder, entry->d_name);
    closedir(listing);
    assert_int_equal(count, 1);
}

static void what_is_kept_comes_back_as_it_was(void **state)
{
    (void)state;
    struct desk desk = open_desk();
    struct cost back;
    assert_int_equal(recall(&desk, &back), STATUS_NOT_FOUND);
    const struct cost costs[] = {cost_from(170000.1, 1.0 / 3, 8.5e-5), cost_from(0, 1, 0), cost_from(1e-300, 0, 1e300)};
    for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++) {
        struct cost cost = costs[i];
        cost.device =
            i == 0 ? (struct cost_device){0} : (struct cost_device){256, 32, 0.65, 16, 80, 128, {1.0 / 3, 0.9}};
        cost.help = i == 0 ? 1 : 0.3;
        remember(&desk, cost);
        assert_int_equal(recall(&desk, &back), STATUS_OK);
        assert_memory_equal(&back, &cost, sizeof back);
    }
    close_desk(&desk);
}

/* Another shape, precision or number of threads has another file, and does not push the first out. */
static void another_model_or_precision_has_its_own(void **state)
{
    (void)state;
    struct desk desk = open_desk();
    struct cost back;
    struct engine *const first = desk.engine;
    struct engine_options options = {.backend = "null", .precision = PRECISION_BF16};
    struct err err;
    remember(&desk, cost_from(1, 2, 3));
    uint32_t *const numbers[] = {&desk.model.layer_count, &desk.model.hidden, &desk.model.heads,
                                 &desk.model.intermediate_size, &desk.model.max_tokens};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        ++*numbers[i];
        assert_int_equal(recall(&desk, &back), STATUS_NOT_FOUND);
        remember(&desk, cost_from(4, 5, (double)i));
        --*numbers[i];
    }
    desk.model.pooling = POOLING_CLS; /* whose last layer is a shorter one */
    assert_int_equal(recall(&desk, &back), STATUS_NOT_FOUND);
    desk.model.pooling = POOLING_MEAN;
    desk.threads++; /* that help each other */
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

static void no_damage_is_believed(void **state)
{
    (void)state;
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
static void senseless_numbers_are_not_believed(void **state)
{
    (void)state;
    struct desk desk = open_desk();
    struct cost back;
    const struct cost bad[] = {cost_from(-1, 2, 3), cost_from(1, (double)NAN, 3), cost_from(1, 2, (double)INFINITY),
                               cost_from(0, 0, 0)};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        remember(&desk, bad[i]);
        assert_int_equal(recall(&desk, &back), STATUS_BAD_INPUT);
    }
    const struct cost_device no_device[] = {{.pass = -1},
                                            {.strip = 0.5},
                                            {.strip = 1e-310},
                                            {.keys = 1e300},
                                            {.room = 80.25},
                                            {.half = 1.5},
                                            {.half = (double)NAN},
                                            {.lone = {0.5, 2.01}},
                                            {.lone = {(double)NAN}},
                                            {.helped = (double)INFINITY}};
    for (size_t i = 0; i < sizeof no_device / sizeof no_device[0]; i++) {
        struct cost cost = cost_from(1, 2, 3);
        cost.device = no_device[i];
        remember(&desk, cost);
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

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(what_is_kept_comes_back_as_it_was),
    cmocka_unit_test(another_model_or_precision_has_its_own),
    cmocka_unit_test(no_damage_is_believed),
    cmocka_unit_test(senseless_numbers_are_not_believed),
};

TEST_MAIN(cases)
