/* Words in, text out. */
#include "redis_fixture.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "harness.h"

enum { WORDS_MAX = 8192, CLIENT_TIMEOUT_MS = 20000 };

void redis_reconnect(struct redis_fixture *redis)
{
    struct err err = {0};
    client_close(redis->client);
    redis->client = NULL;
    if (client_open(&redis->address, CLIENT_TIMEOUT_MS, &redis->client, &err)) { fail_msg("%s", err.message); }
}

int redis_setup(void **state)
{
    struct err err;
    struct redis_fixture *redis = calloc(1, sizeof *redis);
    assert_non_null(redis);
    redis_server_start(&redis->server, NULL);
    assert_int_equal(address_parse(redis->server.socket, &redis->address, &err), STATUS_OK);
    redis_reconnect(redis);
    *state = redis;
    return 0;
}

int redis_teardown(void **state)
{
    struct redis_fixture *redis = *state;
    client_close(redis->client);
    redis_server_stop(&redis->server);
    address_free(&redis->address);
    free(redis);
    return 0;
}

static void print(struct buffer *out, const struct resp_value *value)
{
    switch (value->type) {
    case RESP_NIL:
    case RESP_CUT:
        buffer_string(out, "~");
        break;
    case RESP_INTEGER:
        buffer_format(out, "%lld", value->integer);
        break;
    case RESP_ARRAY:
        buffer_string(out, "[");
        for (size_t i = 0; i < value->count; i++) {
            buffer_string(out, i ? " " : "");
            print(out, &value->items[i]);
        }
        buffer_string(out, "]");
        break;
    case RESP_ERROR:
        buffer_string(out, "!");
        /* fall through */
    case RESP_STATUS:
    case RESP_STRING:
        buffer_append(out, value->bytes, value->length);
    }
}

/* Splits at single spaces, in place. */
static size_t split(char *line, const char **words)
{
    size_t count = 0;
    char *save = NULL;
    for (char *word = strtok_r(line, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        assert_true(count < WORDS_MAX);
        words[count++] = strcmp(word, "''") == 0 ? "" : word;
    }
    return count;
}

static const char *run(struct redis_fixture *redis, size_t count, const char *const *words)
{
    struct err err = {0};
    const struct resp_value *value = NULL;
    struct buffer out = {0};
    if (client_command(redis->client, count, words, NULL, &value, &err) && !value) {
        fail_msg("%s: %s", words[0], err.message);
    }
    print(&out, value);
    assert_true(buffer_ok(&out));
    snprintf(redis->text, sizeof redis->text, "%.*s", (int)out.length, out.data ? out.data : "");
    buffer_free(&out);
    return redis->text;
}

static const char *run_line(struct redis_fixture *redis, const char *format, va_list list)
{
    static char line[1 << 17]; /* tests are single-threaded */
    static const char *words[WORDS_MAX];
    assert_true((size_t)vsnprintf(line, sizeof line, format, list) < sizeof line);
    return run(redis, split(line, words), words);
}

static void compare(const char *expected, const char *got, const char *what)
{
    size_t length = strlen(expected);
    bool prefix = length >= 3 && strcmp(expected + length - 3, "...") == 0;
    if (prefix ? strncmp(got, expected, length - 3) != 0 : strcmp(got, expected) != 0) {
        fail_msg("%s\n  expected %s\n  got      %s", what, expected, got);
    }
}

const char *redis_do(struct redis_fixture *redis, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    const char *text = run_line(redis, format, list);
    va_end(list);
    return text;
}

void redis_expect(struct redis_fixture *redis, const char *expected, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    compare(expected, run_line(redis, format, list), format);
    va_end(list);
}

void redis_expect_info(struct redis_fixture *redis, const char *expected, const char *key, const char *names)
{
    char info[4096], found[1024], name[64];
    size_t length = (size_t)snprintf(found, sizeof found, "[");
    snprintf(info, sizeof info, "%s", redis_do(redis, "HGET %s info", key));
    for (int used; sscanf(names, " %63s%n", name, &used) == 1; names += used) {
        char text[256];
        (void)json_member_text(info, strlen(info), name, text, sizeof text);
        length += (size_t)snprintf(found + length, sizeof found - length, "%s%s", length > 1 ? " " : "", text);
    }
    snprintf(found + length, sizeof found - length, "]");
    assert_string_equal(found, expected);
}
