/* The configuration: sources over each other, the file's checks, and that table and config/sluice.json agree. */
#include "config_text.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/file.h"
#include "serve/config.h"

static void defaults_are_in_range(void **state)
{
    (void)state;
    struct config config;
    struct err err;
    assert_int_equal(config_init(&config, &err), STATUS_OK);
    assert_int_equal(config_check(&config, &err), STATUS_OK);
    assert_string_equal(config.queue, "default");
    assert_int_equal(config.lease_ms, 15000);
    assert_true(config.truncate);
    assert_null(config.model);
    config_free(&config);
}

static void comments_and_values_are_read(void **state)
{
    (void)state;
    struct config config;
    struct err err;
    const char *text = "// first\n{ /* a \" quote */ \"queue\": \"a//b\\u002d\" , // not a comment inside\n"
                       "\"window_ms\": 7, \"truncate\": false, \"precision\": \"bf16\", \"model\": null }";
    assert_int_equal(parse(&config, text, &err), STATUS_BAD_INPUT); /* a/ is not a queue name: strings stay whole */
    assert_non_null(strstr(err.message, "a//b-"));
    config_free(&config);

    text = "/* x */{\"queue\":\"q-1\",\"window_ms\":7,\"truncate\":false,\"precision\":\"bf16\",\"model\":null}// end";
    assert_int_equal(parse(&config, text, &err), STATUS_OK);
    assert_string_equal(config.queue, "q-1");
    assert_int_equal(config.window_ms, 7);
    assert_false(config.truncate);
    assert_int_equal(config.precision, 2);
    assert_null(config.model);
    config_free(&config);
}

static void unknown_key_names_the_nearest(void **state)
{
    (void)state;
    expect_refused("{\"window_m\": 5}", "unknown key \"window_m\"; the nearest known one is \"window_ms\"");
    expect_refused("{\"modle\": \"x\"}", "the nearest known one is \"model\"");
    expect_refused("{\"\": 1}", "unknown key \"\"");
}

static void wrong_values_name_field_and_file(void **state)
{
    (void)state;
    expect_refused("{\"window_ms\": \"5\"}", "test.json: \"window_ms\" must be a whole number from 0 to 60000");
    expect_refused("{\"window_ms\": 5.5}", "\"window_ms\" must be a whole number");
    expect_refused("{\"window_ms\": -1}", "\"window_ms\" must be a whole number from 0 to 60000, not \"-1\"");
    expect_refused("{\"window_ms\": 1e300}", "\"window_ms\" must be");
    expect_refused("{\"window_ms\": null}", "\"window_ms\" must be");
    expect_refused("{\"window_ms\": \"auto\"}", "\"window_ms\" must be a whole number");
    expect_refused("{\"max_batch_rows\": \"5\"}", "\"max_batch_rows\" must be auto or a whole number from 1 to 1024");
    expect_refused("{\"max_batch_rows\": 0}", "\"max_batch_rows\" must be auto or a whole number from 1 to 1024");
    expect_refused("{\"truncate\": 1}", "\"truncate\" must be true or false");
    expect_refused("{\"precision\": \"f64\"}", "\"precision\" must be one of auto, f32, bf16, f16, int8, not \"f64\"");
    expect_refused("{\"queue\": \"A\"}", "\"queue\" must be 1 to 64 of a-z 0-9 _ . -");
    expect_refused("{\"queue\": [\"a\"]}", "\"queue\" must be");
    expect_refused("{\"queue\": \"a\", \"queue\": \"b\"}", "the key queue stands twice");
}

static void devices_are_a_list_of_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *file, *text;
        unsigned count;
        uint32_t last;
    } good[] = {
        {"{}", "all", 0, 0},
        {"{\"device\": \"all\"}", "all", 0, 0},
        {"{\"device\": 3}", "3", 1, 3},
        {"{\"device\": [0]}", "0", 1, 0},
        {"{\"device\": [0, 1, 12], \"queue\": \"a\"}", "0,1,12", 3, 12},
        {"{\"device\": \"0,0\"}", "0,0", 2, 0},
        {"{\"device\": null}", "all", 0, 0},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct config config;
        struct device_list list;
        struct err err;
        assert_int_equal(parse(&config, good[i].file, &err), STATUS_OK);
        assert_string_equal(config.device, good[i].text);
        assert_true(device_list_parse(config.device, &list));
        assert_int_equal(list.all, good[i].count == 0);
        assert_int_equal(list.count, good[i].count);
        assert_true(list.count == 0 || list.numbers[list.count - 1] == good[i].last);
        config_free(&config);
    }
}

static void bad_lists_of_devices_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"\"\"",      "\"0,\"",  "\",0\"", "\"0,,1\"", "\"0, 1\"", "\"-1\"",   "\"a\"",
                                      "\"all,0\"", "\"ALL\"", "-1",     "1.5",      "1e300",    "12345",    "[]",
                                      "[\"0\"]",   "[0, -1]", "[[0]]",  "[null]",   "{}",       "[0, 1.5]", "true"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char file[64];
        snprintf(file, sizeof file, "{\"device\": %s}", bad[i]);
        expect_refused(file, "test.json: \"device\" must be all, or up to 32 numbers of devices such as 0 or 0,1");
    }
    char many[256] = "0";
    struct device_list list;
    for (int i = 1; i < DEVICES_MAX; i++)
        strcat(many, ",0");
    assert_true(device_list_parse(many, &list));
    assert_int_equal(list.count, DEVICES_MAX);
    strcat(many, ",0");
    assert_false(device_list_parse(many, &list));
    char file[1024] = "{\"device\": [10000000";
    for (int i = 0; i < 60; i++)
        strcat(file, ",10000000");
    strcat(file, "]}");
    expect_refused(file, "\"device\" must be");
}

static void broken_files_are_refused(void **state)
{
    (void)state;
    expect_refused("", "not valid JSON");
    expect_refused("[]", "must hold one JSON object");
    expect_refused("{\"queue\": \"a\"} x", "more text behind the JSON");
    expect_refused("{\"queue\": \"a\"}\n/* open", "test.json line 2: a comment without its closing */");
    expect_refused("{\n\"queue\": \"a", "not valid JSON");
    expect_refused("{\"queue\": \"a\nb\"}", "\"queue\" must be");
    expect_refused("{\"queue\": \"a\\u0000b\"}", "escaped NUL");
    expect_refused("{\"queue\": \"\xff\"}", "not UTF-8");
    expect_refused("{\"queue\": "
                   "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}",
                   "nested deeper");
    expect_refused("{\"queue\": \"a\",}", "not valid JSON");
    expect_refused("/", "not valid JSON");
}

static void an_escaped_backslash_before_u0000_is_no_escape(void **state)
{
    (void)state;
    struct config config;
    struct err err;
    assert_int_equal(parse(&config, "{\"model\": \"a\\\\u0000\"}", &err), STATUS_OK);
    assert_string_equal(config.model, "a\\u0000");
    config_free(&config);
}

static void a_nul_byte_is_refused(void **state)
{
    (void)state;
    struct config config;
    struct err err;
    char bytes[] = "{\"queue\": \"a\0b\"}";
    assert_int_equal(config_init(&config, &err), STATUS_OK);
    assert_int_equal(config_parse(&config, bytes, sizeof bytes - 1, "test.json", &err), STATUS_BAD_INPUT);
    assert_non_null(strstr(err.message, "NUL"));
    config_free(&config);
}

static void higher_sources_win_in_any_order(void **state)
{
    (void)state;
    struct config config;
    struct err err;
    assert_int_equal(config_init(&config, &err), STATUS_OK);
    assert_int_equal(config_set(&config, row("window_ms"), "1", SOURCE_FLAG, "--window-ms", &err), STATUS_OK);
    setenv("SLUICE_WINDOW_MS", "2", 1);
    setenv("SLUICE_LEASE_MS", "500", 1);
    assert_int_equal(config_environment(&config, &err), STATUS_OK);
    char file[] = "{\"window_ms\": 3, \"lease_ms\": 600, \"backoff_ms\": 700}";
    assert_int_equal(config_parse(&config, file, strlen(file), "f", &err), STATUS_OK);
    assert_int_equal(config.window_ms, 1);
    assert_int_equal(config.lease_ms, 500);
    assert_int_equal(config.backoff_ms, 700);
    size_t count;
    const struct setting *table = config_settings(&count);
    assert_int_equal(config.sources[row("window_ms") - table], SOURCE_FLAG);
    assert_int_equal(config.sources[row("lease_ms") - table], SOURCE_ENVIRONMENT);
    assert_int_equal(config.sources[row("backoff_ms") - table], SOURCE_FILE);
    assert_int_equal(config.sources[row("queue") - table], SOURCE_DEFAULT);

    /* A hidden value is checked all the same. */
    char wrong[] = "{\"window_ms\": \"x\"}";
    assert_int_equal(config_parse(&config, wrong, strlen(wrong), "f", &err), STATUS_BAD_INPUT);
    setenv("SLUICE_LEASE_MS", "many", 1);
    assert_int_equal(config_environment(&config, &err), STATUS_BAD_INPUT);
    assert_non_null(strstr(err.message, "SLUICE_LEASE_MS must be a whole number"));
    setenv("SLUICE_LEASE_MS", "", 1);
    setenv("SLUICE_REDIS_PASSWORD", "", 1);
    assert_int_equal(config_environment(&config, &err), STATUS_OK);
    assert_int_equal(config.lease_ms, 500);
    assert_null(config.redis_password);
    unsetenv("SLUICE_REDIS_PASSWORD");
    unsetenv("SLUICE_WINDOW_MS");
    unsetenv("SLUICE_LEASE_MS");
    config_free(&config);
}

static void secrets_are_redacted(void **state)
{
    (void)state;
    struct config config;
    struct err err;
    char text[128];
    assert_int_equal(config_init(&config, &err), STATUS_OK);
    assert_int_equal(config_set(&config, row("redis_password"), "hunter2", SOURCE_FILE, "f", &err), STATUS_OK);
    setting_format(row("redis_password"), &config, text, sizeof text);
    assert_string_equal(text, "***");
    assert_int_equal(config_set(&config, row("redis"), "redis://u:p@ss:w@h:1/2", SOURCE_FILE, "f", &err), STATUS_OK);
    setting_format(row("redis"), &config, text, sizeof text);
    assert_string_equal(text, "redis://u:***@h:1/2");
    redact_url("/run/redis:x@y.sock", text, sizeof text);
    assert_string_equal(text, "/run/redis:x@y.sock");
    redact_url("redis://host:6379/0", text, sizeof text);
    assert_string_equal(text, "redis://host:6379/0");
    redact_url("redis://user@host:6379", text, sizeof text);
    assert_string_equal(text, "redis://user@host:6379");
    config_free(&config);
}

static void settings_that_contradict_are_refused(void **state)
{
    (void)state;
    struct config config;
    struct err err;
    assert_int_equal(parse(&config, "{\"default_ttl_s\": 10, \"max_ttl_s\": 5}", &err), STATUS_OK);
    assert_int_equal(config_check(&config, &err), STATUS_BAD_INPUT);
    config_free(&config);
    static const char *const contradictions[] = {
        "{\"redis_password\": \"a\", \"redis_password_file\": \"b\"}",
        "{\"sentinel_password\": \"a\", \"sentinel_password_file\": \"b\"}",
        "{\"tls_cert_file\": \"a\"}",
        "{\"tls_key_file\": \"a\"}",
    };
    for (size_t i = 0; i < sizeof contradictions / sizeof contradictions[0]; i++) {
        assert_int_equal(parse(&config, contradictions[i], &err), STATUS_OK);
        assert_int_equal(config_check(&config, &err), STATUS_BAD_INPUT);
        config_free(&config);
    }
}

static void edit_distance_counts_letters(void **state)
{
    (void)state;
    assert_int_equal(edit_distance("", ""), 0);
    assert_int_equal(edit_distance("abc", ""), 3);
    assert_int_equal(edit_distance("", "abc"), 3);
    assert_int_equal(edit_distance("kitten", "sitting"), 3);
    assert_int_equal(edit_distance("queue", "queue"), 0);
    char longer[200];
    memset(longer, 'x', sizeof longer);
    longer[199] = '\0';
    assert_int_equal(edit_distance(longer, longer), 0);
    assert_int_equal(edit_distance("", longer), 63);
}

static void numbers_are_strict(void **state)
{
    (void)state;
    struct config config;
    struct err err;
    assert_int_equal(config_init(&config, &err), STATUS_OK);
    const char *wrong[] = {"", " 1", "1 ", "0x10", "1e3", "+1", "-", "99999999999999999999", "60001"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(config_set(&config, row("window_ms"), wrong[i], SOURCE_FLAG, "--w", &err), STATUS_BAD_INPUT);
    assert_int_equal(config_set(&config, row("window_ms"), "60000", SOURCE_FLAG, "--w", &err), STATUS_OK);
    config_free(&config);
}

static void a_number_may_be_the_backends(void **state)
{
    (void)state;
    struct config config;
    struct err err;
    char text[32], file[] = "{\"max_batch_rows\": 300, \"max_batch_tokens\": \"auto\"}";
    assert_int_equal(config_init(&config, &err), STATUS_OK);
    assert_int_equal(config_parse(&config, file, strlen(file), "test.json", &err), STATUS_OK);
    assert_int_equal(config.max_batch_rows, 300);
    assert_int_equal(config.max_batch_tokens, 0);
    setting_format(row("max_batch_tokens"), &config, text, sizeof text);
    assert_string_equal(text, "auto");
    assert_int_equal(config_set(&config, row("max_batch_rows"), "auto", SOURCE_FLAG, "--m", &err), STATUS_OK);
    assert_int_equal(config.max_batch_rows, 0);
    assert_int_equal(config_set(&config, row("max_batch_rows"), "0", SOURCE_FLAG, "--m", &err), STATUS_BAD_INPUT);
    config_free(&config);
}

/* Each direction: every key of the file is known and has the table's default there; every row of the table is there. */
static void shipped_file_and_table_agree(void **state)
{
    (void)state;
    struct config config, plain;
    struct err err;
    struct buffer bytes = {0};
    assert_int_equal(file_read(TEST_SOURCE_DIR "/config/sluice.json", 1 << 20, &bytes, &err), STATUS_OK);
    assert_int_equal(config_init(&config, &err), STATUS_OK);
    assert_int_equal(config_init(&plain, &err), STATUS_OK);
    if (config_parse(&config, bytes.data, bytes.length, "config/sluice.json", &err) != STATUS_OK)
        fail_msg("%s", err.message);
    size_t count;
    const struct setting *table = config_settings(&count);
    cJSON *root = cJSON_Parse(bytes.data); /* comments are blank by now */
    assert_non_null(root);
    const cJSON *item = root->child;
    for (size_t i = 0; i < count; i++, item = item->next) {
        if (item == NULL)
            fail_msg("config/sluice.json lacks \"%s\"", table[i].key);
        assert_string_equal(item->string, table[i].key); /* the same order, so that a reader finds both */
        char in_file[128], by_default[128];
        setting_format(&table[i], &config, in_file, sizeof in_file);
        setting_format(&table[i], &plain, by_default, sizeof by_default);
        assert_string_equal(in_file, by_default);
    }
    assert_null(item);
    cJSON_Delete(root);
    buffer_free(&bytes);
    config_free(&config);
    config_free(&plain);
}

static void rows_are_complete(void **state)
{
    (void)state;
    size_t count;
    const struct setting *table = config_settings(&count);
    for (size_t i = 0; i < count; i++) {
        assert_non_null(table[i].help);
        assert_true(table[i].commands != 0);
        assert_ptr_equal(setting_find(table, count, table[i].key), &table[i]);
        assert_true((table[i].type == SETTING_LIST) == (table[i].format != NULL));
        if (table[i].type == SETTING_CHOICE)
            assert_non_null(table[i].choices);
        else if (table[i].type != SETTING_SWITCH)
            assert_non_null(table[i].value);
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(devices_are_a_list_of_numbers),
    cmocka_unit_test(bad_lists_of_devices_are_refused),
    cmocka_unit_test(defaults_are_in_range),
    cmocka_unit_test(comments_and_values_are_read),
    cmocka_unit_test(unknown_key_names_the_nearest),
    cmocka_unit_test(wrong_values_name_field_and_file),
    cmocka_unit_test(broken_files_are_refused),
    cmocka_unit_test(an_escaped_backslash_before_u0000_is_no_escape),
    cmocka_unit_test(a_nul_byte_is_refused),
    cmocka_unit_test(higher_sources_win_in_any_order),
    cmocka_unit_test(secrets_are_redacted),
    cmocka_unit_test(settings_that_contradict_are_refused),
    cmocka_unit_test(edit_distance_counts_letters),
    cmocka_unit_test(numbers_are_strict),
    cmocka_unit_test(a_number_may_be_the_backends),
    cmocka_unit_test(shipped_file_and_table_agree),
    cmocka_unit_test(rows_are_complete),
};

TEST_MAIN(cases)
