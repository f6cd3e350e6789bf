/* Configurations made from a configuration: one for each of several queues, and a new one on reload. */
#include "config_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void read_ok(struct config *config, const char *text)
{
    struct err err;
    if (parse(config, text, &err) != STATUS_OK)
        fail_msg("%s", err.message);
}

static void free_all(struct config *configs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        config_free(&configs[i]);
    free(configs);
}

static const char two[] = "{\"max_batch_rows\": 7, \"prompt\": \"query\", \"queues\": ["
                          "{\"queue\": \"a\", \"model\": \"/m/a\", \"weight\": 3},"
                          "{\"queue\": \"b\", \"prefix\": \"passage: \", \"max_batch_rows\": 9}]}";

static void each_queue_has_its_own_settings(void **state)
{
    (void)state;
    struct config config, *configs;
    struct err err;
    size_t count;
    read_ok(&config, two);
    assert_int_equal(config_split(&config, &configs, &count, &err), STATUS_OK);
    assert_int_equal(count, 2);
    assert_string_equal(configs[0].queue, "a");
    assert_string_equal(configs[0].model, "/m/a");
    assert_int_equal(configs[0].weight, 3);
    assert_int_equal(configs[0].max_batch_rows, 7);
    assert_string_equal(configs[0].prompt, "query");
    assert_string_equal(configs[1].queue, "b");
    assert_null(configs[1].model);
    assert_int_equal(configs[1].weight, 1);
    assert_int_equal(configs[1].max_batch_rows, 9);
    assert_string_equal(configs[1].prefix, "passage: ");
    assert_null(configs[1].prompt); /* its own prefix replaces the common prompt */
    free_all(configs, count);
    char text[64];
    setting_format(row("queues"), &config, text, sizeof text);
    assert_string_equal(text, "a:3, b");
    config_free(&config);
}

static void without_a_list_there_is_one_queue(void **state)
{
    (void)state;
    struct config config, *configs;
    struct err err;
    size_t count;
    read_ok(&config, "{\"queue\": \"only\", \"queues\": [], \"window_ms\": 3}");
    assert_int_equal(config_split(&config, &configs, &count, &err), STATUS_OK);
    assert_int_equal(count, 1);
    assert_string_equal(configs[0].queue, "only");
    assert_int_equal(configs[0].window_ms, 3);
    free_all(configs, count);
    config_free(&config);
}

static void a_flag_picks_one_of_the_list(void **state)
{
    (void)state;
    struct config config, *configs;
    struct err err;
    size_t count;
    read_ok(&config, two);
    assert_int_equal(config_set(&config, row("queue"), "b", SOURCE_FLAG, "--queue", &err), STATUS_OK);
    assert_int_equal(config_split(&config, &configs, &count, &err), STATUS_OK);
    assert_int_equal(count, 1);
    assert_string_equal(configs[0].queue, "b");
    assert_int_equal(configs[0].max_batch_rows, 9);
    free_all(configs, count);
    assert_int_equal(config_set(&config, row("queue"), "c", SOURCE_FLAG, "--queue", &err), STATUS_OK);
    assert_int_equal(config_split(&config, &configs, &count, &err), STATUS_BAD_INPUT);
    assert_non_null(strstr(err.message, "c is none of them"));
    config_free(&config);
}

static void clients_use_the_first_of_the_list(void **state)
{
    (void)state;
    struct config config;
    struct err err;
    read_ok(&config, two);
    assert_int_equal(config_pick_queue(&config, &err), STATUS_OK);
    assert_string_equal(config.queue, "a");
    config_free(&config);
}

static void wrong_lists_are_refused(void **state)
{
    (void)state;
    expect_refused("{\"queues\": {}}", "must be an array");
    expect_refused("{\"queues\": \"a:3\"}", "must be an array");
    expect_refused("{\"queues\": [\"a\"]}", "\"queues\"[0] must be an object");
    expect_refused("{\"queues\": [{}]}", "\"queues\"[0] lacks \"queue\"");
    expect_refused("{\"queues\": [{\"queue\": \"a\"}, {\"queue\": \"a\"}]}", "[1]: the queue a stands there twice");
    expect_refused("{\"queues\": [{\"queue\": \"A\"}]}", "\"queue\" must be 1 to 64");
    expect_refused("{\"queues\": [{\"queue\": \"a\", \"weight\": 0}]}", "\"weight\" must be a whole number from 1");
    expect_refused("{\"queues\": [{\"queue\": \"a\", \"wieght\": 1}]}", "the nearest known one is \"weight\"");
    expect_refused("{\"queues\": [{\"queue\": \"a\", \"lease_ms\": 1000}]}", "is the same for all queues");
    expect_refused("{\"queues\": [{\"queue\": \"a\", \"queues\": []}]}", "is the same for all queues");
    struct config config;
    struct err err;
    read_ok(&config, "{\"queue\": \"x\", \"queues\": [{\"queue\": \"a\"}]}");
    assert_int_equal(config_check(&config, &err), STATUS_BAD_INPUT);
    assert_non_null(strstr(err.message, "queue and queues are both set"));
    config_free(&config);
    struct config *configs;
    size_t count;
    read_ok(&config, "{\"queues\": [{\"queue\": \"a\", \"default_ttl_s\": 10, \"max_ttl_s\": 5}]}");
    assert_int_equal(config_split(&config, &configs, &count, &err), STATUS_BAD_INPUT);
    assert_non_null(strstr(err.message, "queue a: default_ttl_s"));
    config_free(&config);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void a_reload_reads_the_file_under_the_old_flags(void **state)
{
    (void)state;
    char path[] = "/tmp/sluice-config-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct config old, fresh;
    struct err err;
    write_file(path, "{\"window_ms\": 3, \"max_batch_rows\": 5}");
    assert_int_equal(config_init(&old, &err), STATUS_OK);
    assert_int_equal(config_read(&old, path, &err), STATUS_OK);
    assert_int_equal(config_set(&old, row("window_ms"), "9", SOURCE_FLAG, "--window-ms", &err), STATUS_OK);
    assert_int_equal(config_set(&old, row("redis_password"), "s", SOURCE_ENVIRONMENT, "E", &err), STATUS_OK);
    old.model = strdup("/the/shipped/one"); /* as the command line fills it in */

    write_file(path, "{\"window_ms\": 4, \"lease_ms\": 777}");
    assert_int_equal(config_reload(&old, path, &fresh, &err), STATUS_OK);
    assert_int_equal(fresh.window_ms, 9);      /* the flag */
    assert_int_equal(fresh.lease_ms, 777);     /* the file */
    assert_int_equal(fresh.max_batch_rows, 0); /* no longer in the file */
    assert_string_equal(fresh.redis_password, "s");
    assert_string_equal(fresh.model, "/the/shipped/one");
    assert_false(setting_equal(row("lease_ms"), &old, &fresh));
    assert_true(setting_equal(row("model"), &old, &fresh));
    config_free(&fresh);

    write_file(path, "{\"window_ms\": \"wrong\"}");
    assert_int_equal(config_reload(&old, path, &fresh, &err), STATUS_BAD_INPUT);
    config_free(&fresh);
    unlink(path);
    assert_int_not_equal(config_reload(&old, path, &fresh, &err), STATUS_OK);
    config_free(&fresh);
    assert_int_equal(config_reload(&old, NULL, &fresh, &err), STATUS_OK);
    config_free(&fresh);
    config_free(&old);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(each_queue_has_its_own_settings), cmocka_unit_test(without_a_list_there_is_one_queue),
    cmocka_unit_test(a_flag_picks_one_of_the_list),    cmocka_unit_test(clients_use_the_first_of_the_list),
    cmocka_unit_test(wrong_lists_are_refused),         cmocka_unit_test(a_reload_reads_the_file_under_the_old_flags),
};

TEST_MAIN(cases)
