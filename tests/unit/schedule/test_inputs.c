/* The scanner of `inputs`: what it reads, and where it stops. tests/golden/inputs_golden.py compares it with Python's.
 */
#include "harness.h"

#include <stdlib.h>

#include "schedule/inputs.h"

enum { MOST_TEXTS = 4, MOST_BYTES = 40 };

static struct inputs measure(const char *json)
{
    return inputs_measure(json, strlen(json), MOST_TEXTS, MOST_BYTES);
}

/* Reads an array that must be good into memory of just its size, so that a sanitizer sees one byte too many. */
static void expect_texts(const char *json, uint32_t count, const char *const *texts, const size_t *lengths)
{
    struct inputs inputs = measure(json);
    size_t bytes = 0;
    assert_int_equal(inputs.problem, INPUTS_OK);
    assert_int_equal(inputs.count, count);
    struct row *rows = calloc(count, sizeof *rows);
    char *copy = malloc(inputs.bytes);
    assert_true(rows != NULL && copy != NULL);
    inputs_decode(json, strlen(json), copy, rows);
    for (uint32_t i = 0; i < count; i++) {
        assert_ptr_equal(rows[i].text, copy + bytes);
        assert_int_equal(rows[i].text_bytes, lengths[i]);
        assert_memory_equal(rows[i].text, texts[i], lengths[i]);
        bytes += lengths[i];
    }
    assert_int_equal(inputs.bytes, bytes);
    free(copy);
    free(rows);
}

static void expect_text(const char *json, const char *text, size_t length)
{
    expect_texts(json, 1, &text, &length);
}

static void texts_are_read_in_order(void **state)
{
    (void)state;
    expect_text("[\"a\"]", "a", 1);
    expect_texts(" \t\r\n[ \"one\" ,\n\"two\",\"three\"\t] \n", 3, (const char *const[]){"one", "two", "three"},
                 (const size_t[]){3, 3, 5});
    expect_text("[\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f\"]", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f", 10);
}

static void escapes_become_their_characters(void **state)
{
    (void)state;
    expect_text("[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"]", "\"\\/\b\f\n\r\t", 8);
    expect_text("[\"a\\u0041\\u00e9\\u20aC\\uD83d\\uDE00z\"]", "aA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z", 12);
    expect_text("[\"\\u0000a\\u0000\"]", "\0a\0", 3);
    expect_text("[\"\\ud7ff\\ue000\\uffff\"]", "\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf", 9);
    expect_text("[\"\\ud800\\udc00\\udbff\\udfff\"]", "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", 8);
}

static void what_is_wrong_is_found_where_it_is(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        enum inputs_problem problem;
        uint32_t count;
        size_t at;
    } cases[] = {
        {"", INPUTS_NOT_JSON, 0, 0},
        {"  ", INPUTS_NOT_JSON, 0, 2},
        {"\"a\"", INPUTS_NOT_ARRAY, 0, 0},
        {"{\"a\":1}", INPUTS_NOT_ARRAY, 0, 0},
        {" null", INPUTS_NOT_ARRAY, 0, 1},
        {"hello", INPUTS_NOT_JSON, 0, 0},
        {"\xef\xbb\xbf[\"a\"]", INPUTS_NOT_JSON, 0, 0},
        {"[", INPUTS_NOT_JSON, 0, 1},
        {"[\"a\"", INPUTS_NOT_JSON, 1, 4},
        {"[\"a\" \"b\"]", INPUTS_NOT_JSON, 1, 5},
        {"[\"a\",", INPUTS_NOT_JSON, 1, 5},
        {"[\"a\"]]", INPUTS_NOT_JSON, 1, 5},
        {"[\"a\"],", INPUTS_NOT_JSON, 1, 5},
        {"[\"a\"]\v", INPUTS_NOT_JSON, 1, 5},
        {"[] []", INPUTS_NOT_JSON, 0, 3},
        {"[]", INPUTS_NO_TEXTS, 0, 2},
        {" [ ] ", INPUTS_NO_TEXTS, 0, 5},
        {"[1]", INPUTS_NOT_TEXT, 0, 1},
        {"[null, \"a\"]", INPUTS_NOT_TEXT, 0, 1},
        {"[\"a\", \"b\", [\"c\"]]", INPUTS_NOT_TEXT, 2, 11},
        {"[\"a\",]", INPUTS_NOT_JSON, 1, 5},
        {"[,\"a\"]", INPUTS_NOT_JSON, 0, 1},
        {"['a']", INPUTS_NOT_JSON, 0, 1},
        {"[\"a]", INPUTS_BAD_STRING, 0, 4},
        {"[\"a\\", INPUTS_BAD_STRING, 0, 4},
        {"[\"a\", \"b\\x\"]", INPUTS_BAD_STRING, 1, 9},
        {"[\"a\nb\"]", INPUTS_BAD_STRING, 0, 3},
        {"[\"\\u12g4\"]", INPUTS_BAD_STRING, 0, 4},
        {"[\"\\u123", INPUTS_BAD_STRING, 0, 4},
        {"[\"\\U0041\"]", INPUTS_BAD_STRING, 0, 3},
        {"[\"ab\xff\"]", INPUTS_BAD_UTF8, 0, 4},
        {"[\"ab\", \"\xed\xa0\x80\"]", INPUTS_BAD_UTF8, 1, 8},
        {"[\"\xe2\x82\"]", INPUTS_BAD_UTF8, 0, 2},
        {"[\"\\udc00\"]", INPUTS_BAD_UTF8, 0, 8},
        {"[\"\\ud800\"]", INPUTS_BAD_UTF8, 0, 8},
        {"[\"\\ud800\\n\"]", INPUTS_BAD_UTF8, 0, 9},
        {"[\"\\ud800\\ud800\"]", INPUTS_BAD_UTF8, 0, 14},
        {"[\"\\ud800\xed\xb0\x80\"]", INPUTS_BAD_UTF8, 0, 8},
        {"[\"\"]", INPUTS_EMPTY_TEXT, 0, 3},
        {"[\"a\",\"b\",\"\"]", INPUTS_EMPTY_TEXT, 2, 11},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct inputs inputs = measure(cases[i].json);
        if (inputs.problem != cases[i].problem || inputs.count != cases[i].count || inputs.at != cases[i].at)
            fail_msg("%s: problem %d after %u texts at byte %zu", cases[i].json, inputs.problem, inputs.count,
                     inputs.at);
    }
}

/* A NUL is no end for us, and outside of an escape it is a control character. */
static void a_bare_nul_is_refused(void **state)
{
    (void)state;
    assert_int_equal(inputs_measure("[\"a\0b\"]", 7, 4, 40).problem, INPUTS_BAD_STRING);
    assert_int_equal(inputs_measure("[\"a\"\0]", 6, 4, 40).problem, INPUTS_NOT_JSON);
    assert_int_equal(inputs_measure("[\"a\"]\0", 6, 4, 40).problem, INPUTS_NOT_JSON);
}

static void limits_hold_to_the_byte(void **state)
{
    (void)state;
    assert_int_equal(measure("[\"1\",\"2\",\"3\",\"4\"]").problem, INPUTS_OK);
    assert_int_equal(measure("[\"1\",\"2\",\"3\",\"4\",\"5\"]").problem, INPUTS_TOO_MANY);
    assert_int_equal(measure("[\"1\",\"2\",\"3\",\"4\",\"\"]").problem, INPUTS_TOO_MANY); /* unread */
    assert_int_equal(measure("[\"0123456789012345678\",\"012345678901234567890\"]").problem, INPUTS_OK);
    assert_int_equal(measure("[\"0123456789012345678\",\"0123456789012345678901\"]").problem, INPUTS_TOO_LARGE);
    /* Escapes count as what they stand for. */
    assert_int_equal(measure("[\"\\u0030123456789012345678901234567890123456789\"]").problem, INPUTS_OK);
}

/* Every prefix of a good array is a bad one, and reads nothing behind its end. */
static void every_prefix_is_refused(void **state)
{
    (void)state;
    static const char json[] = "[\"a\\u00e9\\ud83d\\ude00\", \"\xe2\x82\xac\\n\" ]";
    for (size_t length = 0; length < sizeof json - 1; length++) {
        char *copy = malloc(length + (length == 0));
        assert_non_null(copy);
        memcpy(copy, json, length);
        assert_int_not_equal(inputs_measure(copy, length, MOST_TEXTS, MOST_BYTES).problem, INPUTS_OK);
        free(copy);
    }
    assert_int_equal(measure(json).problem, INPUTS_OK);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(texts_are_read_in_order),
    cmocka_unit_test(escapes_become_their_characters),
    cmocka_unit_test(what_is_wrong_is_found_where_it_is),
    cmocka_unit_test(a_bare_nul_is_refused),
    cmocka_unit_test(limits_hold_to_the_byte),
    cmocka_unit_test(every_prefix_is_refused),
};

TEST_MAIN(cases)
