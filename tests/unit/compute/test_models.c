/* The models of a daemon: opened once for all queues with the same settings of the model. */
#include "harness.h"

#include <stdlib.h>

#include "compute/models.h"
#include "config/config.h"
#include "engine/cost.h"
#include "model_builder.h"

/* The case that runs: two models on disk, the configurations of its queues, and what was opened for them. */
static char *one, *two;
static struct config configs[4];
static unsigned config_count;
static struct models models;
static struct err err;

static int begin(void **state)
{
    (void)state;
    struct model_spec spec = model_spec_tiny();
    one = model_build(&spec);
    spec.seed++;
    two = model_build(&spec);
    config_count = 0;
    models = (struct models){0};
    return 0;
}

static int end(void **state)
{
    (void)state;
    models_close(&models);
    while (config_count > 0) { config_free(&configs[--config_count]); }
    model_build_remove(one);
    model_build_remove(two);
    return 0;
}

#define MODELS_TEST(name) TEST_WITH(name, begin, end)

static void set(char **setting, const char *value)
{
    free(*setting);
    *setting = strdup(value);
}

static struct config *configure(const char *directory, const char *device)
{
    struct config *config = &configs[config_count++];
    assert_int_equal(config_init(config, &err), STATUS_OK);
    config->precision = PRECISION_F32;
    set(&config->model, directory);
    set(&config->backend, "cpu");
    set(&config->device, device);
    set(&config->cache_dir, "");
    return config;
}

static void open_models(void)
{
    models_close(&models);
    assert_int_equal(models_open(&models, &configs[0], config_count, &err), STATUS_OK);
}

/* Returns the number of the model of a queue. */
static unsigned find(const struct config *config)
{
    unsigned number;
    assert_int_equal(models_find(&models, config, &number, &err), STATUS_OK);
    return number;
}

static void expect_no_model(const struct config *config, enum status status)
{
    unsigned number;
    assert_int_equal(models_find(&models, config, &number, &err), status);
}

MODELS_TEST(queues_of_one_model_share_it)
{
    static const unsigned numbers[] = {0, 1, 0, 2};
    (void)configure(one, "all");
    (void)configure(two, "all");
    (void)configure(one, "all");
    configure(one, "all")->max_tokens = 16; /* the same files, read in another way */
    open_models();
    for (int i = 0; i < 4; i++) { assert_int_equal(find(&configs[i]), numbers[i]); }
    assert_int_equal(models.count, 3);
    assert_int_equal(models.items[2].model->max_tokens, 16);
    assert_true(models_token_cost(models.items[0].model) > 0);
}

MODELS_TEST(every_device_gets_an_engine_of_each_model)
{
    (void)configure(one, "0,0,0");
    (void)configure(two, "all");
    open_models();
    assert_int_equal(models.devices.count, 3);
    for (unsigned i = 0; i < 2; i++) { (void)find(&configs[i]); }
    for (unsigned i = 0; i < 3; i++) {
        for (unsigned other = 0; other < i; other++) {
            assert_ptr_not_equal(models.devices.items[i].engines[1], models.devices.items[other].engines[1]);
        }
    }
    assert_ptr_equal(devices_engine(&models.devices, 1), models.devices.items[0].engines[1]);
}

MODELS_TEST(the_first_model_leaves_the_devices_of_its_backend)
{
    const struct config *config = configure(one, "0,0");
    open_models();
    models.devices.all = true; /* as if there were two GPUs that cannot compute the model */
    (void)find(config);
    assert_int_equal(models.devices.count, 1);
}

/* The backend decides the sizes that the configuration leaves open, and no others. */
MODELS_TEST(batches_are_as_large_as_the_backend_likes)
{
    struct config *config = configure(one, "all");
    open_models();
    const struct engine *engine = devices_engine(&models.devices, find(config));
    struct batch_size size = devices_batch_size(config, engine);
    assert_int_equal(size.tokens, 4096);
    assert_int_equal(size.rows, 256);
    config->max_batch_tokens = 100;
    size = devices_batch_size(config, engine);
    assert_int_equal(size.tokens, 100);
    assert_int_equal(size.rows, 256);
    config->max_batch_rows = 3;
    assert_int_equal(devices_batch_size(config, engine).rows, 3);
}

MODELS_TEST(a_device_that_is_not_there_is_refused)
{
    const struct config *config = configure(one, "0,1");
    open_models();
    expect_no_model(config, STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.message, "device 1"));
}

MODELS_TEST(a_model_that_is_not_there_leaves_nothing_behind)
{
    const struct config *config = configure("/nowhere/at/all", "all");
    open_models();
    expect_no_model(config, STATUS_NOT_FOUND);
    assert_int_equal(models.count, 0);
}

/* A start that finds a calibration does not measure: the file's figures are far from any that could be measured. */
MODELS_TEST(a_kept_calibration_is_used)
{
    char folder[] = "/tmp/sluice-cost-XXXXXX", command[64];
    const struct cost kept = cost_from(1e12, 2e12, 3e12);
    struct config *config = configure(one, "all");
    assert_non_null(mkdtemp(folder));
    set(&config->cache_dir, folder);
    for (int again = 0; again < 2; again++) {
        open_models();
        unsigned number = find(config);
        const struct cost *cost = &models.items[number].cost;
        assert_true(again ? memcmp(cost->terms, kept.terms, sizeof kept.terms) == 0 : cost->terms[1] < 1e11);
        const struct cost_source of = {devices_engine(&models.devices, number), models.items[number].model,
                                       config_threads(config)};
        assert_int_equal(cost_remember(folder, &of, &kept, &err), STATUS_OK);
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* The settings for a GPU reach its engine. */
TEST(settings_become_engine_options)
{
    struct config config;
    char plain[] = "{}", other[] = "{\"precision\": \"f16\", \"device_memory\": 35, "
                                   "\"max_batch_tokens\": 999, \"max_batch_rows\": 77}";
    assert_int_equal(config_init(&config, &err), STATUS_OK);
    assert_int_equal(config_parse(&config, plain, strlen(plain), "test.json", &err), STATUS_OK);
    struct engine_options options = devices_options(&config, true);
    assert_true(options.raw);
    assert_true(options.memory_share == 0.8f);
    assert_int_equal(options.precision, PRECISION_AUTO);
    assert_int_equal(options.batch_tokens, 0);
    assert_int_equal(options.batch_rows, 0);
    assert_int_equal(config_parse(&config, other, strlen(other), "test.json", &err), STATUS_OK);
    options = devices_options(&config, false);
    assert_true(!options.raw);
    assert_true(options.memory_share == 0.35f);
    assert_int_equal(options.precision, PRECISION_F16);
    assert_int_equal(options.batch_tokens, 999);
    assert_int_equal(options.batch_rows, 77);
    config_free(&config);
}
