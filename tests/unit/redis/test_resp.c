/* RESP cut at every byte, beyond every limit, and malformed; commands as bytes; explained refusals. */
#include "redis/resp.h"

#include <stdlib.h>

#include "harness.h"

static const char whole[] = "*6\r\n+OK\r\n-ERR bad\r\n:-42\r\n$5\r\na\0b\r\n\r\n$-1\r\n*2\r\n*0\r\n*-1\r\n";

/* The reader of the case that runs. */
static struct resp_reader *reader;

static int close_reader(void **state)
{
    (void)state;
    resp_close(reader);
    reader = NULL;
    return 0;
}

#define READER_TEST(name) TEST_WITH(name, NULL, close_reader)

/* Opens a reader in place of the one before; strings above `drop` bytes are dropped, 0: none. */
static void open_reader(size_t max_bytes, size_t drop)
{
    struct err err;
    (void)close_reader(NULL);
    assert_int_equal(resp_open(max_bytes, drop, &reader, &err), STATUS_OK);
}

static void feed(const char *bytes, size_t length)
{
    struct err err;
    assert_int_equal(resp_feed(reader, bytes, length, &err), STATUS_OK);
}

static const struct resp_value *next(void)
{
    const struct resp_value *value;
    struct err err;
    assert_int_equal(resp_next(reader, &value, &err), STATUS_OK);
    return value;
}

static void check_whole(const struct resp_value *value)
{
    assert_non_null(value);
    assert_int_equal(value->type, RESP_ARRAY);
    assert_int_equal(value->count, 6);
    assert_true(resp_equals(&value->items[0], "OK"));
    assert_true(resp_is_error(&value->items[1], "ERR"));
    assert_int_equal(value->items[2].integer, -42);
    assert_int_equal(value->items[3].length, 5);
    assert_memory_equal(value->items[3].bytes, "a\0b\r\n", 6);
    assert_int_equal(value->items[4].type, RESP_NIL);
    assert_int_equal(value->items[5].items[0].type, RESP_ARRAY);
    assert_int_equal(value->items[5].items[0].count, 0);
    assert_int_equal(value->items[5].items[1].type, RESP_NIL);
}

READER_TEST(one_byte_at_a_time)
{
    open_reader(10000, 0);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < sizeof whole - 2; i++) {
            feed(whole + i, 1);
            assert_null(next());
        }
        feed(whole + sizeof whole - 2, 1);
        check_whole(next());
    }
}

READER_TEST(cut_at_every_place)
{
    for (size_t cut = 0; cut < sizeof whole; cut++) {
        open_reader(10000, 0);
        feed(whole, cut);
        const struct resp_value *value = next();
        if (!value) {
            feed(whole + cut, sizeof whole - 1 - cut);
            value = next();
        }
        check_whole(value);
    }
}

READER_TEST(many_in_one_feed)
{
    open_reader(10000, 0);
    for (int i = 0; i < 20; i++) { feed(whole, sizeof whole - 1); }
    for (int i = 0; i < 20; i++) { check_whole(next()); }
    assert_null(next());
}

static void expect_broken(const char *bytes, size_t length, size_t max_bytes, enum status status)
{
    const struct resp_value *value;
    struct err err = {0};
    open_reader(max_bytes, 0);
    feed(bytes, length);
    if (resp_next(reader, &value, &err) != status) {
        fail_msg("%.*s: status %d", (int)(length > 40 ? 40 : length), bytes, err.status);
    }
    assert_null(value);
    assert_int_equal(resp_feed(reader, ":1\r\n", 4, &err), status); /* a broken reader stays broken */
    assert_int_equal(resp_next(reader, &value, &err), status);
}

READER_TEST(nonsense_is_refused)
{
    static const char *const cases[] = {
        "hello\r\n",
        "HTTP/1.1 400 Bad Request\r\n",
        "\r\n",
        ":12x\r\n",
        "$-2\r\n",
        "$x\r\n",
        "*-2\r\n",
        "$99999999999999999999\r\n",
        "*99999999999999999999\r\n",
        "%1\r\n",
        "_\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_broken(cases[i], strlen(cases[i]), 10000, STATUS_BAD_INPUT);
    }
}

/* An announced length is refused before its bytes arrive, and reserves nothing. */
READER_TEST(what_is_above_the_cap_is_refused)
{
    static const struct {
        const char *bytes;
        size_t max_bytes;
    } cases[] = {
        {"*2147483647\r\n", 64 << 20}, {"*1000000\r\n*1000000\r\n", 64 << 20},
        {"$100000\r\n", 2000},         {"*2\r\n$3\r\nabc\r\n$100000\r\n", 2000},
        {"$100000\r\nxx", 2000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_broken(cases[i].bytes, strlen(cases[i].bytes), cases[i].max_bytes, STATUS_UNSUPPORTED);
    }
    char bytes[3000];
    int length = snprintf(bytes, sizeof bytes, "$100000\r\n");
    memset(bytes + length, 'x', sizeof bytes - (size_t)length);
    expect_broken(bytes, sizeof bytes, 2000, STATUS_UNSUPPORTED);
}

/* A reader that drops large strings, fed in pieces of `cut` bytes, returns the rest of a list of three, whose second
 * string has 30000 bytes. */
static void drop_in_pieces(size_t cut)
{
    static char bytes[31000];
    const struct resp_value *value = NULL;
    int length = snprintf(bytes, sizeof bytes, "*4\r\n$2\r\nab\r\n$30000\r\n");
    memset(bytes + length, 'x', 30000);
    length += 30000;
    length += snprintf(bytes + length, sizeof bytes - (size_t)length, "\r\n$2\r\ncd\r\n$-1\r\n");
    open_reader(20000, 5000);
    for (int round = 0; round < 3; round++) {
        for (size_t at = 0; at < (size_t)length; at += cut) {
            size_t part = (size_t)length - at < cut ? (size_t)length - at : cut;
            assert_null(value);
            feed(bytes + at, part);
            value = next();
        }
        assert_non_null(value);
        assert_int_equal(value->count, 4);
        assert_true(resp_equals(&value->items[0], "ab"));
        assert_int_equal(value->items[1].type, RESP_CUT);
        assert_int_equal(value->items[1].length, 30000);
        assert_true(resp_equals(&value->items[2], "cd"));
        assert_int_equal(value->items[3].type, RESP_NIL);
        value = next();
    }
}

READER_TEST(a_text_that_is_too_large_is_dropped_as_it_comes)
{
    static const size_t cuts[] = {1, 7, 1000, 16000, 31000};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) { drop_in_pieces(cuts[i]); }
}

/* Drops strings that are too large together, and an array that is too long. */
READER_TEST(what_does_not_fit_is_dropped)
{
    const struct resp_value *value;
    char text[1100];
    size_t length = (size_t)snprintf(text, sizeof text, "$1000\r\n%01000d\r\n", 7);
    open_reader(20000, 5000);
    feed("*30\r\n", 5);
    for (int i = 0; i < 30; i++) {
        feed(text, length);
        value = next();
    }
    assert_non_null(value);
    assert_int_equal(value->items[0].type, RESP_STRING);
    assert_int_equal(value->items[29].type, RESP_CUT);
    assert_int_equal(value->items[29].length, 1000);
    feed("*2\r\n*1000\r\n", 11);
    for (int i = 0; i < 1000; i++) {
        const char *item = i % 3 == 0 ? "*2\r\n:1\r\n$1\r\nx\r\n" : i % 3 == 1 ? "$-1\r\n" : "$2\r\nab\r\n";
        feed(item, strlen(item));
        assert_null(next());
    }
    feed(":5\r\n", 4);
    value = next();
    assert_int_equal(value->items[0].type, RESP_CUT);
    assert_int_equal(value->items[1].integer, 5);
}

/* A cut number is no announced length. */
READER_TEST(a_large_number_in_two_pieces_is_no_announcement)
{
    open_reader(2000, 0);
    feed("*1\r\n:100000\r", 12);
    assert_null(next());
    feed("\n", 1);
    assert_int_equal(next()->items[0].integer, 100000);
}

/* The limit applies to one answer: any number of smaller ones passes. */
READER_TEST(the_cap_begins_anew_with_each_answer)
{
    char bytes[512];
    size_t length = (size_t)snprintf(bytes, sizeof bytes, "$400\r\n%0400d\r\n", 7);
    open_reader(1000, 0);
    for (int i = 0; i < 1000; i++) {
        feed(bytes, length);
        assert_int_equal(next()->length, 400);
    }
}

READER_TEST(clones_outlive_the_reader)
{
    open_reader(10000, 0);
    feed(whole, sizeof whole - 1);
    struct resp_value *clone = resp_clone(next());
    (void)close_reader(NULL);
    check_whole(clone);
    free(clone);
}

TEST(error_words_have_a_status)
{
    static const struct {
        const char *error;
        enum status status;
    } cases[] = {
        {"NOAUTH Authentication required.", STATUS_DENIED},
        {"WRONGPASS invalid", STATUS_DENIED},
        {"NOPERM no", STATUS_DENIED},
        {"LOADING Redis is loading", STATUS_UNAVAILABLE},
        {"BUSY Redis is busy", STATUS_UNAVAILABLE},
        {"READONLY You can't", STATUS_UNAVAILABLE},
        {"MISCONF x", STATUS_UNAVAILABLE},
        {"ERR max number of clients reached", STATUS_UNAVAILABLE},
        {"ERR max number of clientsx", STATUS_INTERNAL},
        {"OOM x", STATUS_UNAVAILABLE},
        {"MOVED 1 h:1", STATUS_UNAVAILABLE},
        {"ASK 1 h:1", STATUS_UNAVAILABLE},
        {"DENIED Redis is running in protected mode", STATUS_DENIED},
        {"BUSYGROUP x", STATUS_INTERNAL},
        {"LOADINGS x", STATUS_INTERNAL},
        {"ERR x", STATUS_INTERNAL},
        {"OOM", STATUS_UNAVAILABLE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct resp_value value = {.type = RESP_ERROR, .bytes = cases[i].error, .length = strlen(cases[i].error)};
        struct err err = {0};
        assert_int_equal(resp_check(&value, &err), cases[i].status);
        assert_non_null(strstr(err.message, cases[i].error));
    }
    struct resp_value fine = {.type = RESP_STRING, .bytes = "OOM", .length = 3};
    assert_int_equal(resp_check(&fine, NULL), STATUS_OK);
}

TEST(the_digest_of_a_script_is_left_out)
{
    static const char *const texts[] = {
        "NOPERM the user may not XACK q script: f6c32e, on @user_script:1.",
        "NOPERM the user may not XACK q script: on @user_script:1."}; /* Redis, Valkey */
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct resp_value value = {.type = RESP_ERROR, .bytes = texts[i], .length = strlen(texts[i])};
        struct err err = {0};
        assert_int_equal(resp_check(&value, &err), STATUS_DENIED);
        assert_string_equal(err.message, "Redis says: NOPERM the user may not XACK q");
    }
}

TEST(commands_are_words_by_length)
{
    struct command command = {0};
    const char *bytes;
    size_t length;
    struct err err;
    command_text(&command, "SET");
    command_bytes(&command, "a\r\n\0b", 5);
    command_bytes(&command, NULL, 0);
    command_number(&command, 0);
    command_number(&command, UINT64_MAX);
    command_list(&command, 2, (const char *const[]){"%s", "xyz"}, (const size_t[]){2, 1});
    assert_int_equal(command_finish(&command, &bytes, &length, &err), STATUS_OK);
    static const char expected[] = "*7\r\n$3\r\nSET\r\n$5\r\na\r\n\0b\r\n$0\r\n\r\n$1\r\n0\r\n"
                                   "$20\r\n18446744073709551615\r\n$2\r\n%s\r\n$1\r\nx\r\n";
    assert_int_equal(length, sizeof expected - 1);
    assert_memory_equal(bytes, expected, length);
    command_free(&command);
}

READER_TEST(a_command_of_thousands_of_words)
{
    struct command command = {0};
    const char *bytes;
    size_t length;
    struct err err;
    for (uint64_t i = 0; i < 12345; i++) { command_number(&command, i); }
    assert_int_equal(command_finish(&command, &bytes, &length, &err), STATUS_OK);
    open_reader(16 << 20, 0);
    feed(bytes, length);
    const struct resp_value *value = next();
    assert_int_equal(value->count, 12345);
    assert_true(resp_equals(&value->items[12344], "12344"));
    command_free(&command);
}

TEST(a_field_is_found_by_its_name)
{
    struct resp_value items[] = {
        {.type = RESP_STRING, .bytes = "a", .length = 1},
        {.type = RESP_STRING, .bytes = "b", .length = 1},
        {.type = RESP_NIL},
        {.type = RESP_INTEGER, .integer = 7},
        {.type = RESP_STRING, .bytes = "b", .length = 1},
        {.type = RESP_INTEGER, .integer = 8},
        {.type = RESP_STRING, .bytes = "c", .length = 1},
    };
    struct resp_value list = {.type = RESP_ARRAY, .items = items, .count = 7}, none = {.type = RESP_NIL};
    assert_ptr_equal(resp_field(&list, "a"), &items[1]);
    assert_ptr_equal(resp_field(&list, "b"), &items[5]); /* a value is no name */
    assert_null(resp_field(&list, "c"));                 /* nothing comes after it */
    assert_null(resp_field(&list, "ab"));
    assert_null(resp_field(&none, "a"));
}

/* --- Refusals name the key -------------------------------------------------------------------------------------- */

#define NO_KEY "NOPERM this user has no permissions to access one of the keys used as arguments"
#define NEW_WORDS "NOPERM No permissions to access a key"

static void expect_keys(const char *error, const char *head, size_t length, const char *expected)
{
    char text[RESP_TEXT_BYTES];
    struct resp_value explained;
    struct resp_value reply = {.type = RESP_ERROR, .bytes = error, .length = strlen(error)};
    const struct resp_value *got = resp_explain_keys(&reply, head, length, text, &explained);
    assert_int_equal(got->type, RESP_ERROR);
    assert_string_equal(got->bytes, expected);
    assert_int_equal(got->length, strlen(expected));
}

TEST(keys_are_named)
{
    const char *head =
        "*4\r\n$7\r\nEVALSHA\r\n$14\r\nsluice:{q}:one\r\n$3\r\nnot\r\n$16\r\nsluice:{q}:three\r\n$1\r\nx\r\n";
    expect_keys(NO_KEY, head, strlen(head), NO_KEY ": sluice:{q}:one sluice:{q}:three");
    expect_keys(NO_KEY, head, strlen(head) - 12, NO_KEY ": sluice:{q}:one sluice:{q}:th...");
    expect_keys(NEW_WORDS, head, strlen(head), NEW_WORDS ": sluice:{q}:one sluice:{q}:three");
    expect_keys(NO_KEY, head, 0, NO_KEY);
    const char *text = "*2\r\n$4\r\nXADD\r\n$20\r\na text of sluice:{q}\r\n";
    expect_keys(NO_KEY, text, strlen(text), NO_KEY);
}

TEST(other_errors_stay_as_they_are)
{
    const char *head = "*2\r\n$3\r\nGET\r\n$14\r\nsluice:{q}:one\r\n";
    const char *errors[] = {"NOPERM the user may not XACK sluice:{q}:requests", "ERR no", ""};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        expect_keys(errors[i], head, strlen(head), errors[i]);
    }
    char text[RESP_TEXT_BYTES];
    struct resp_value explained, string = {.type = RESP_STRING, .bytes = NO_KEY, .length = strlen(NO_KEY)};
    assert_ptr_equal(resp_explain_keys(&string, head, strlen(head), text, &explained), &string);
}

TEST(long_keys_are_cut)
{
    char head[RESP_HEAD_BYTES], text[RESP_TEXT_BYTES];
    memset(head, 'k', sizeof head);
    memcpy(head, "*1\r\n$999\r\nsluice:{q}", 20);
    struct resp_value explained, reply = {.type = RESP_ERROR, .bytes = NO_KEY, .length = strlen(NO_KEY)};
    const struct resp_value *got = resp_explain_keys(&reply, head, sizeof head, text, &explained);
    assert_int_equal(got->length, strlen(text));
    assert_true(got->length < RESP_TEXT_BYTES);
    char many[RESP_HEAD_BYTES]; /* as many keys as there can be */
    for (size_t i = 0; i + 9 <= sizeof many; i += 9) { memcpy(many + i, "\nsluice:{", 9); }
    got = resp_explain_keys(&reply, many, sizeof many, text, &explained);
    assert_true(got->length < RESP_TEXT_BYTES);
}
