/* The configuration: precedence of sources, checks of the file, queues, reload, and that table and config/sluice.json
 * agree. */
#include "harness.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/file.h"
#include "config/config.h"
#include "model/sentence_transformers.h"
#include "quoted.h"

/* The configuration of the case that runs, and its last error. */
static struct config config;
static struct err err;

static int begin(void **state)
{
    (void)state;
    return config_init(&config, &err) != STATUS_OK;
}

static int end(void **state)
{
    (void)state;
    config_free(&config);
    return 0;
}

/* A case with a configuration that has its defaults. */
#define CONFIG_TEST(name) TEST_WITH(name, begin, end)

static void expect_message(const char *part)
{
    if (strstr(err.message, quoted(part)) == NULL) { fail_msg("%s: does not contain %s", err.message, quoted(part)); }
}

static enum status read_file(const char *text)
{
    return config_parse(&config, quoted(text), strlen(text), "test.json", &err);
}

/* Reads `text` as a file over the defaults. */
static enum status parse(const char *text)
{
    config_free(&config);
    assert_int_equal(config_init(&config, &err), STATUS_OK);
    return read_file(text);
}

static void parse_ok(const char *text)
{
    if (parse(text) != STATUS_OK) { fail_msg("%s: %s", text, err.message); }
}

static void expect_refused(const char *text, const char *message_part)
{
    assert_int_equal(parse(text), STATUS_BAD_INPUT);
    expect_message(message_part);
}

static const struct setting *row(const char *key)
{
    size_t count;
    const struct setting *table = config_settings(&count);
    const struct setting *found = setting_find(table, count, key);
    assert_non_null(found);
    return found;
}

static enum status set(const char *key, const char *value, enum config_source source, const char *origin)
{
    return config_set(&config, row(key), value, source, origin, &err);
}

CONFIG_TEST(defaults_are_in_range)
{
    assert_int_equal(config_check(&config, &err), STATUS_OK);
    assert_string_equal(config.queue, "default");
    assert_int_equal(config.lease_ms, 5000);
    assert_true(config.truncate);
    assert_null(config.model);
}

CONFIG_TEST(comments_and_values_are_read)
{
    const char *text = "// first\n{ /* a ' quote */ 'queue': 'a//b\\u002d' , // not a comment inside\n"
                       "'window_ms': 7, 'truncate': false, 'precision': 'bf16', 'model': null }";
    assert_int_equal(parse(text), STATUS_BAD_INPUT); /* a/ is not a queue name: strings stay whole */
    expect_message("a//b-");

    text = "/* x */{'queue':'q-1','window_ms':7,'truncate':false,'precision':'bf16','model':null}// end";
    parse_ok(text);
    assert_string_equal(config.queue, "q-1");
    assert_int_equal(config.window_ms, 7);
    assert_false(config.truncate);
    assert_int_equal(config.precision, 2);
    assert_null(config.model);
}

CONFIG_TEST(every_pooling_may_be_chosen)
{
    for (int pooling = POOLING_MEAN; pooling < POOLINGS; pooling++) {
        char text[64];
        snprintf(text, sizeof text, "{'pooling': '%s'}", pooling_name((enum pooling)pooling));
        parse_ok(text);
        assert_int_equal(config.pooling, pooling);
    }
}

CONFIG_TEST(unknown_key_names_the_nearest)
{
    expect_refused("{'window_m': 5}", "unknown key 'window_m'; the nearest known one is 'window_ms'");
    expect_refused("{'modle': 'x'}", "the nearest known one is 'model'");
    expect_refused("{'': 1}", "unknown key ''");
}

CONFIG_TEST(wrong_values_name_field_and_file)
{
    expect_refused("{'window_ms': '5'}", "test.json: 'window_ms' must be a whole number from 0 to 60000");
    expect_refused("{'window_ms': 5.5}", "'window_ms' must be a whole number");
    expect_refused("{'window_ms': -1}", "'window_ms' must be a whole number from 0 to 60000, not '-1'");
    expect_refused("{'window_ms': 1e300}", "'window_ms' must be");
    expect_refused("{'window_ms': null}", "'window_ms' must be");
    expect_refused("{'window_ms': 'auto'}", "'window_ms' must be a whole number");
    expect_refused("{'max_batch_rows': '5'}", "'max_batch_rows' must be auto or a whole number from 1 to 4096");
    expect_refused("{'max_batch_rows': 0}", "'max_batch_rows' must be auto or a whole number from 1 to 4096");
    expect_refused("{'truncate': 1}", "'truncate' must be true or false");
    expect_refused("{'precision': 'f64'}",
                   "'precision' must be one of auto, f32, bf16, f16, int8, int8_all, not 'f64'");
    expect_refused("{'queue': 'A'}", "'queue' must be 1 to 64 of a-z 0-9 _ . -");
    expect_refused("{'queue': ['a']}", "'queue' must be");
    expect_refused("{'queue': 'a', 'queue': 'b'}", "the key queue stands twice");
}

CONFIG_TEST(devices_are_a_list_of_numbers)
{
    static const struct {
        const char *file, *text;
        unsigned count;
        uint32_t last;
    } good[] = {
        {"{}", "all", 0, 0},
        {"{'device': 'all'}", "all", 0, 0},
        {"{'device': 3}", "3", 1, 3},
        {"{'device': [0]}", "0", 1, 0},
        {"{'device': [0, 1, 12], 'queue': 'a'}", "0,1,12", 3, 12},
        {"{'device': '0,0'}", "0,0", 2, 0},
        {"{'device': null}", "all", 0, 0},
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct device_list list;
        parse_ok(good[i].file);
        assert_string_equal(config.device, good[i].text);
        assert_true(device_list_parse(config.device, &list));
        assert_int_equal(list.all, good[i].count == 0);
        assert_int_equal(list.count, good[i].count);
        assert_true(list.count == 0 || list.numbers[list.count - 1] == good[i].last);
    }
}

CONFIG_TEST(bad_lists_of_devices_are_refused)
{
    static const char *const bad[] = {"''",      "'0,'",    "',0'",  "'0,,1'", "'0, 1'", "'-1'",     "'a'",
                                      "'all,0'", "'ALL'",   "-1",    "1.5",    "1e300",  "12345",    "[]",
                                      "['0']",   "[0, -1]", "[[0]]", "[null]", "{}",     "[0, 1.5]", "true"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char file[64];
        snprintf(file, sizeof file, "{'device': %s}", bad[i]);
        expect_refused(file, "test.json: 'device' must be all, or up to 32 numbers of devices such as 0 or 0,1");
    }
    char many[256] = "0";
    struct device_list list;
    for (int i = 1; i < DEVICES_MAX; i++) { strcat(many, ",0"); }
    assert_true(device_list_parse(many, &list));
    assert_int_equal(list.count, DEVICES_MAX);
    strcat(many, ",0");
    assert_false(device_list_parse(many, &list));
    char file[1024] = "{'device': [10000000";
    for (int i = 0; i < 60; i++) { strcat(file, ",10000000"); }
    strcat(file, "]}");
    expect_refused(file, "'device' must be");
}

CONFIG_TEST(broken_files_are_refused)
{
    expect_refused("", "not valid JSON");
    expect_refused("[]", "must hold one JSON object");
    expect_refused("{'queue': 'a'} x", "more text after the JSON");
    expect_refused("{'queue': 'a'}\n/* open", "test.json line 2: a comment without its closing */");
    expect_refused("{\n'queue': 'a", "not valid JSON");
    expect_refused("{'queue': 'a\nb'}", "'queue' must be");
    expect_refused("{'queue': 'a\\u0000b'}", "escaped NUL");
    expect_refused("{'queue': '\xff'}", "not UTF-8");
    expect_refused("{'queue': [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}", "nested deeper");
    expect_refused("{'queue': 'a',}", "not valid JSON");
    expect_refused("/", "not valid JSON");
}

CONFIG_TEST(a_nul_byte_is_refused)
{
    parse_ok("{'model': 'a\\\\u0000'}"); /* an escaped backslash before u0000 is no escape */
    assert_string_equal(config.model, "a\\u0000");
    char bytes[] = "{\"queue\": \"a\0b\"}";
    assert_int_equal(config_parse(&config, bytes, sizeof bytes - 1, "test.json", &err), STATUS_BAD_INPUT);
    expect_message("NUL");
}

CONFIG_TEST(higher_sources_win_in_any_order)
{
    assert_int_equal(set("window_ms", "1", SOURCE_FLAG, "--window-ms"), STATUS_OK);
    setenv("SLUICE_WINDOW_MS", "2", 1);
    setenv("SLUICE_LEASE_MS", "500", 1);
    assert_int_equal(config_environment(&config, &err), STATUS_OK);
    assert_int_equal(read_file("{'window_ms': 3, 'lease_ms': 600, 'backoff_ms': 700}"), STATUS_OK);
    assert_int_equal(config.window_ms, 1);
    assert_int_equal(config.lease_ms, 500);
    assert_int_equal(config.backoff_ms, 700);
    size_t count;
    const struct setting *table = config_settings(&count);
    assert_int_equal(config.sources[row("window_ms") - table], SOURCE_FLAG);
    assert_int_equal(config.sources[row("lease_ms") - table], SOURCE_ENVIRONMENT);
    assert_int_equal(config.sources[row("backoff_ms") - table], SOURCE_FILE);
    assert_int_equal(config.sources[row("queue") - table], SOURCE_DEFAULT);

    /* An overridden value is checked, too. */
    assert_int_equal(read_file("{'window_ms': 'x'}"), STATUS_BAD_INPUT);
    setenv("SLUICE_LEASE_MS", "many", 1);
    assert_int_equal(config_environment(&config, &err), STATUS_BAD_INPUT);
    expect_message("SLUICE_LEASE_MS must be a whole number");
    setenv("SLUICE_LEASE_MS", "", 1);
    setenv("SLUICE_REDIS_PASSWORD", "", 1);
    assert_int_equal(config_environment(&config, &err), STATUS_OK);
    assert_int_equal(config.lease_ms, 500);
    assert_null(config.redis_password);
    unsetenv("SLUICE_REDIS_PASSWORD");
    unsetenv("SLUICE_WINDOW_MS");
    unsetenv("SLUICE_LEASE_MS");
}

CONFIG_TEST(secrets_are_redacted)
{
    char text[128];
    assert_int_equal(set("redis_password", "hunter2", SOURCE_FILE, "f"), STATUS_OK);
    setting_format(row("redis_password"), &config, text, sizeof text);
    assert_string_equal(text, "***");
    assert_int_equal(set("redis", "redis://u:p@ss:w@h:1/2", SOURCE_FILE, "f"), STATUS_OK);
    setting_format(row("redis"), &config, text, sizeof text);
    assert_string_equal(text, "redis://u:***@h:1/2");
    static const char *const without[] = {"/run/redis:x@y.sock", "redis://host:6379/0", "redis://user@host:6379"};
    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++) {
        url_redact(without[i], text, sizeof text);
        assert_string_equal(text, without[i]);
    }
}

CONFIG_TEST(settings_that_contradict_are_refused)
{
    static const char *const contradictions[] = {
        "{'default_ttl_s': 10, 'max_ttl_s': 5}",
        "{'redis_password': 'a', 'redis_password_file': 'b'}",
        "{'sentinel_password': 'a', 'sentinel_password_file': 'b'}",
        "{'tls_cert_file': 'a'}",
        "{'tls_key_file': 'a'}",
    };
    for (size_t i = 0; i < sizeof contradictions / sizeof contradictions[0]; i++) {
        parse_ok(contradictions[i]);
        assert_int_equal(config_check(&config, &err), STATUS_BAD_INPUT);
    }
}

CONFIG_TEST(numbers_are_strict)
{
    const char *wrong[] = {"", " 1", "1 ", "0x10", "1e3", "+1", "-", "99999999999999999999", "60001"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(set("window_ms", wrong[i], SOURCE_FLAG, "--w"), STATUS_BAD_INPUT);
    }
    assert_int_equal(set("window_ms", "60000", SOURCE_FLAG, "--w"), STATUS_OK);
}

CONFIG_TEST(a_number_may_be_the_backends)
{
    char text[32];
    parse_ok("{'max_batch_rows': 300, 'max_batch_tokens': 'auto'}");
    assert_int_equal(config.max_batch_rows, 300);
    assert_int_equal(config.max_batch_tokens, 0);
    setting_format(row("max_batch_tokens"), &config, text, sizeof text);
    assert_string_equal(text, "auto");
    assert_int_equal(set("max_batch_rows", "auto", SOURCE_FLAG, "--m"), STATUS_OK);
    assert_int_equal(config.max_batch_rows, 0);
    assert_int_equal(set("max_batch_rows", "0", SOURCE_FLAG, "--m"), STATUS_BAD_INPUT);
}

/* Both ways: every key of the file is known and has the table's default, and the file has every row of the table. */
CONFIG_TEST(shipped_file_and_table_agree)
{
    struct config plain;
    struct buffer bytes = {0};
    assert_int_equal(file_read(TEST_SOURCE_DIR "/config/sluice.json", 1 << 20, &bytes, &err), STATUS_OK);
    assert_int_equal(config_init(&plain, &err), STATUS_OK);
    if (config_parse(&config, bytes.data, bytes.length, "config/sluice.json", &err) != STATUS_OK) {
        fail_msg("%s", err.message);
    }
    size_t count;
    const struct setting *table = config_settings(&count);
    cJSON *root = cJSON_Parse(bytes.data); /* comments are blank by now */
    assert_non_null(root);
    const cJSON *item = root->child;
    for (size_t i = 0; i < count; i++, item = item->next) {
        if (item == NULL) { fail_msg("config/sluice.json lacks '%s'", table[i].key); }
        assert_string_equal(item->string, table[i].key); /* the same order, so that a reader finds both */
        char in_file[128], by_default[128];
        setting_format(&table[i], &config, in_file, sizeof in_file);
        setting_format(&table[i], &plain, by_default, sizeof by_default);
        assert_string_equal(in_file, by_default);
    }
    assert_null(item);
    cJSON_Delete(root);
    buffer_free(&bytes);
    config_free(&plain);
}

TEST(rows_are_complete)
{
    size_t count;
    const struct setting *table = config_settings(&count);
    for (size_t i = 0; i < count; i++) {
        assert_non_null(table[i].help);
        assert_true(table[i].commands != 0);
        assert_ptr_equal(setting_find(table, count, table[i].key), &table[i]);
        assert_true((table[i].type == SETTING_LIST) == (table[i].format != NULL));
        if (table[i].type == SETTING_CHOICE) {
            assert_non_null(table[i].choices);
        } else if (table[i].type != SETTING_SWITCH) {
            assert_non_null(table[i].value);
        }
    }
}

/* ---- configurations made from a configuration ---- */

static void free_all(struct config *configs, size_t count)
{
    for (size_t i = 0; i < count; i++) { config_free(&configs[i]); }
    free(configs);
}

static const char two[] = "{'max_batch_rows': 7, 'prompt': 'query', 'queues': ["
                          "{'queue': 'a', 'model': '/m/a', 'weight': 3},"
                          "{'queue': 'b', 'prefix': 'passage: ', 'max_batch_rows': 9}]}";

CONFIG_TEST(each_queue_has_its_own_settings)
{
    struct config *configs;
    size_t count;
    parse_ok(two);
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
}

CONFIG_TEST(without_a_list_there_is_one_queue)
{
    struct config *configs;
    size_t count;
    parse_ok("{'queue': 'only', 'queues': [], 'window_ms': 3}");
    assert_int_equal(config_split(&config, &configs, &count, &err), STATUS_OK);
    assert_int_equal(count, 1);
    assert_string_equal(configs[0].queue, "only");
    assert_int_equal(configs[0].window_ms, 3);
    free_all(configs, count);
}

CONFIG_TEST(a_flag_picks_one_of_the_list)
{
    struct config *configs;
    size_t count;
    parse_ok(two);
    assert_int_equal(set("queue", "b", SOURCE_FLAG, "--queue"), STATUS_OK);
    assert_int_equal(config_split(&config, &configs, &count, &err), STATUS_OK);
    assert_int_equal(count, 1);
    assert_string_equal(configs[0].queue, "b");
    assert_int_equal(configs[0].max_batch_rows, 9);
    free_all(configs, count);
    assert_int_equal(set("queue", "c", SOURCE_FLAG, "--queue"), STATUS_OK);
    assert_int_equal(config_split(&config, &configs, &count, &err), STATUS_BAD_INPUT);
    expect_message("c is none of them");
}

CONFIG_TEST(clients_use_the_first_of_the_list)
{
    parse_ok(two);
    assert_int_equal(config_pick_queue(&config, &err), STATUS_OK);
    assert_string_equal(config.queue, "a");
}

CONFIG_TEST(wrong_lists_are_refused)
{
    expect_refused("{'queues': {}}", "must be an array");
    expect_refused("{'queues': 'a:3'}", "must be an array");
    expect_refused("{'queues': ['a']}", "'queues'[0] must be an object");
    expect_refused("{'queues': [{}]}", "'queues'[0] lacks 'queue'");
    expect_refused("{'queues': [{'queue': 'a'}, {'queue': 'a'}]}", "[1]: the queue a stands there twice");
    expect_refused("{'queues': [{'queue': 'A'}]}", "'queue' must be 1 to 64");
    expect_refused("{'queues': [{'queue': 'a', 'weight': 0}]}", "'weight' must be a whole number from 1");
    expect_refused("{'queues': [{'queue': 'a', 'wieght': 1}]}", "the nearest known one is 'weight'");
    expect_refused("{'queues': [{'queue': 'a', 'lease_ms': 1000}]}", "is the same for all queues");
    expect_refused("{'queues': [{'queue': 'a', 'queues': []}]}", "is the same for all queues");
    parse_ok("{'queue': 'x', 'queues': [{'queue': 'a'}]}");
    assert_int_equal(config_check(&config, &err), STATUS_BAD_INPUT);
    expect_message("queue and queues are both set");
    struct config *configs;
    size_t count;
    parse_ok("{'queues': [{'queue': 'a', 'default_ttl_s': 10, 'max_ttl_s': 5}]}");
    assert_int_equal(config_split(&config, &configs, &count, &err), STATUS_BAD_INPUT);
    expect_message("queue a: default_ttl_s");
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(quoted(text), file) >= 0);
    assert_int_equal(fclose(file), 0);
}

CONFIG_TEST(a_reload_reads_the_file_under_the_old_flags)
{
    char path[] = "/tmp/sluice-config-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    struct config fresh;
    write_file(path, "{'window_ms': 3, 'max_batch_rows': 5}");
    assert_int_equal(config_read(&config, path, &err), STATUS_OK);
    assert_int_equal(set("window_ms", "9", SOURCE_FLAG, "--window-ms"), STATUS_OK);
    assert_int_equal(set("redis_password", "s", SOURCE_ENVIRONMENT, "E"), STATUS_OK);
    config.model = strdup("/the/shipped/one"); /* as the command line fills it in */

    write_file(path, "{'window_ms': 4, 'lease_ms': 777}");
    assert_int_equal(config_reload(&config, path, &fresh, &err), STATUS_OK);
    assert_int_equal(fresh.window_ms, 9);      /* the flag */
    assert_int_equal(fresh.lease_ms, 777);     /* the file */
    assert_int_equal(fresh.max_batch_rows, 0); /* no longer in the file */
    assert_string_equal(fresh.redis_password, "s");
    assert_string_equal(fresh.model, "/the/shipped/one");
    assert_false(setting_equal(row("lease_ms"), &config, &fresh));
    assert_true(setting_equal(row("model"), &config, &fresh));
    config_free(&fresh);

    write_file(path, "{'window_ms': 'wrong'}");
    assert_int_equal(config_reload(&config, path, &fresh, &err), STATUS_BAD_INPUT);
    config_free(&fresh);
    unlink(path);
    assert_int_not_equal(config_reload(&config, path, &fresh, &err), STATUS_OK);
    config_free(&fresh);
    assert_int_equal(config_reload(&config, NULL, &fresh, &err), STATUS_OK);
    config_free(&fresh);
}
