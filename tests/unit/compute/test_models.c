/* The models of a daemon: opened once for all queues with the same settings of the model. */
#include "harness.h"

#include <stdlib.h>

#include "compute/models.h"
#include "config/config.h"
#include "engine/cost.h"
#include "model_builder.h"

static struct config config_for(const char *directory)
{
    struct config config;
    struct err err;
    assert_int_equal(config_init(&config, &err), STATUS_OK);
    config.model = strdup(directory);
    config.precision = PRECISION_F32;
    free(config.backend);
    config.backend = strdup("cpu");
    config.cache_dir = strdup("");
    return config;
}

TEST(queues_of_one_model_share_it)
{
    struct model_spec spec = model_spec_tiny();
    char *one = model_build(&spec);
    spec.seed++;
    char *two = model_build(&spec);
    struct config configs[4] = {config_for(one), config_for(two), config_for(one), config_for(one)};
    configs[3].max_tokens = 16; /* the same files, read in another way */
    struct models models;
    struct err err;
    unsigned numbers[4];
    assert_int_equal(models_open(&models, &configs[0], 4, &err), STATUS_OK);
    for (int i = 0; i < 4; i++) { assert_int_equal(models_find(&models, &configs[i], &numbers[i], &err), STATUS_OK); }
    assert_int_equal(models.count, 3);
    assert_int_equal(numbers[0], 0);
    assert_int_equal(numbers[1], 1);
    assert_int_equal(numbers[2], 0);
    assert_int_equal(numbers[3], 2);
    assert_int_equal(models.items[2].model->max_tokens, 16);
    assert_true(models_token_cost(models.items[0].model) > 0);
    models_close(&models);
    for (int i = 0; i < 4; i++) { config_free(&configs[i]); }
    model_build_remove(one);
    model_build_remove(two);
}

TEST(every_device_gets_an_engine_of_each_model)
{
    struct model_spec spec = model_spec_tiny();
    char *one = model_build(&spec);
    spec.seed++;
    char *two = model_build(&spec);
    struct config configs[2] = {config_for(one), config_for(two)};
    free(configs[0].device);
    configs[0].device = strdup("0,0,0");
    struct models models;
    struct err err;
    unsigned number;
    assert_int_equal(models_open(&models, &configs[0], 2, &err), STATUS_OK);
    assert_int_equal(models.devices.count, 3);
    for (unsigned i = 0; i < 2; i++) { assert_int_equal(models_find(&models, &configs[i], &number, &err), STATUS_OK); }
    for (unsigned i = 0; i < 3; i++) {
        for (unsigned other = 0; other < i; other++) {
            assert_ptr_not_equal(models.devices.items[i].engines[1], models.devices.items[other].engines[1]);
        }
    }
    assert_ptr_equal(devices_engine(&models.devices, 1), models.devices.items[0].engines[1]);
    models_close(&models);
    for (int i = 0; i < 2; i++) { config_free(&configs[i]); }
    model_build_remove(one);
    model_build_remove(two);
}

TEST(the_first_model_leaves_the_devices_of_its_backend)
{
    struct model_spec spec = model_spec_tiny();
    char *directory = model_build(&spec);
    struct config config = config_for(directory);
    struct models models;
    struct err err;
    unsigned number;
    free(config.device);
    config.device = strdup("0,0");
    assert_int_equal(models_open(&models, &config, 1, &err), STATUS_OK);
    models.devices.all = true; /* as if there were two GPUs that cannot compute the model */
    assert_int_equal(models_find(&models, &config, &number, &err), STATUS_OK);
    assert_int_equal(models.devices.count, 1);
    models_close(&models);
    config_free(&config);
    model_build_remove(directory);
}

/* The backend decides the sizes that the configuration leaves open, and no others. */
TEST(batches_are_as_large_as_the_backend_likes)
{
    struct model_spec spec = model_spec_tiny();
    char *directory = model_build(&spec);
    struct config config = config_for(directory);
    struct models models;
    struct err err;
    unsigned number;
    assert_int_equal(models_open(&models, &config, 1, &err), STATUS_OK);
    assert_int_equal(models_find(&models, &config, &number, &err), STATUS_OK);
    const struct engine *engine = devices_engine(&models.devices, number);
    struct batch_size size = devices_batch_size(&config, engine);
    assert_int_equal(size.tokens, 4096);
    assert_int_equal(size.rows, 256);
    config.max_batch_tokens = 100;
    size = devices_batch_size(&config, engine);
    assert_int_equal(size.tokens, 100);
    assert_int_equal(size.rows, 256);
    config.max_batch_rows = 3;
    assert_int_equal(devices_batch_size(&config, engine).rows, 3);
    models_close(&models);
    config_free(&config);
    model_build_remove(directory);
}

TEST(a_device_that_is_not_there_is_refused)
{
    struct model_spec spec = model_spec_tiny();
    char *directory = model_build(&spec);
    struct config config = config_for(directory);
    free(config.device);
    config.device = strdup("0,1");
    struct models models;
    struct err err;
    unsigned number;
    assert_int_equal(models_open(&models, &config, 1, &err), STATUS_OK);
    assert_int_equal(models_find(&models, &config, &number, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.message, "device 1"));
    models_close(&models);
    config_free(&config);
    model_build_remove(directory);
}

TEST(a_model_that_is_not_there_leaves_nothing_behind)
{
    struct config config = config_for("/nowhere/at/all");
    struct models models;
    struct err err;
    unsigned number;
    assert_int_equal(models_open(&models, &config, 1, &err), STATUS_OK);
    assert_int_equal(models_find(&models, &config, &number, &err), STATUS_NOT_FOUND);
    assert_int_equal(models.count, 0);
    models_close(&models);
    config_free(&config);
}

/* A start that finds a calibration does not measure: the file's figures are far from any that could be measured. */
TEST(a_kept_calibration_is_used)
{
    char folder[] = "/tmp/sluice-cost-XXXXXX", command[64];
    assert_non_null(mkdtemp(folder));
    struct model_spec spec = model_spec_tiny();
    char *directory = model_build(&spec);
    const struct cost kept = cost_from(1e12, 2e12, 3e12);
    for (int again = 0; again < 2; again++) {
        struct config config = config_for(directory);
        struct models models;
        struct err err;
        unsigned number;
        free(config.cache_dir);
        config.cache_dir = strdup(folder);
        assert_int_equal(models_open(&models, &config, 1, &err), STATUS_OK);
        assert_int_equal(models_find(&models, &config, &number, &err), STATUS_OK);
        const struct cost *cost = &models.items[number].cost;
        assert_true(again ? memcmp(cost->terms, kept.terms, sizeof kept.terms) == 0 : cost->terms[1] < 1e11);
        const struct cost_source of = {devices_engine(&models.devices, number), models.items[number].model,
                                       config_threads(&config)};
        assert_int_equal(cost_remember(folder, &of, &kept, &err), STATUS_OK);
        models_close(&models);
        config_free(&config);
    }
    model_build_remove(directory);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* The settings for a GPU reach its engine. */
TEST(settings_become_engine_options)
{
    struct config config;
    struct err err = {0};
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
