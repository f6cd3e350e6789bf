/* Members of an object, found without a tree. */
#include "harness.h"

#include "base/json.h"

static const char *text_of(const char *object, const char *name)
{
    static char text[64];
    return json_member_text(object, strlen(object), name, text, sizeof text) ? text : NULL;
}

TEST(a_member_is_found_by_its_name)
{
    const char *object = " { \"a\" : 1 , \"b\\\"\":2,\"in\":{\"c\":[{\"d\":3}]},\"d\":\"x\", \"a\":9 } ";
    const char *value;
    size_t length;
    assert_string_equal(text_of(object, "a"), "1");
    assert_string_equal(text_of(object, "d"), "x");
    assert_null(text_of(object, "c"));
    assert_null(text_of(object, "b\""));
    assert_true(json_member(object, strlen(object), "in", &value, &length));
    assert_int_equal(length, strlen("{\"c\":[{\"d\":3}]}"));
    assert_memory_equal(value, "{\"c\":[{\"d\":3}]}", length);
}

TEST(a_string_is_decoded_and_cut_to_its_room)
{
    char text[5];
    const char *object = "{\"s\":\"\\\"\\u00e4\\n\\\\ \",\"long\":\"123456\",\"empty\":\"\",\"yes\":true}";
    assert_string_equal(text_of(object, "s"), "\"\xc3\xa4\n\\ ");
    assert_string_equal(text_of(object, "empty"), "");
    assert_string_equal(text_of(object, "yes"), "true");
    assert_true(json_member_text(object, strlen(object), "long", text, sizeof text));
    assert_string_equal(text, "1234");
}

TEST(a_number_is_whole)
{
    static const struct {
        const char *value;
        uint64_t number;
        bool there;
    } cases[] = {{"0", 0, true},     {"18446744073709551615", UINT64_MAX, true},
                 {"1.75", 1, true},  {"-1", 0, false},
                 {"true", 0, false}, {"null", 0, false},
                 {"[1]", 0, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char object[64];
        uint64_t number = 7;
        snprintf(object, sizeof object, "{\"n\":%s}", cases[i].value);
        assert_int_equal(json_member_number(object, strlen(object), "n", &number), cases[i].there);
        assert_true(number == cases[i].number);
    }
}

TEST(what_is_no_object_has_no_members)
{
    static const char *const texts[] = {
        "", " ", "{", "{}", "[]", "\"n\"", "{\"n\"", "{\"n\":", "{\"n\":}", "{n:1}", "{\"x\" 1,\"n\":1}"};
    uint64_t number;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_false(json_member_number(texts[i], strlen(texts[i]), "n", &number));
        assert_true(number == 0);
    }
    assert_false(json_member_number(NULL, 0, "n", &number));
    assert_null(text_of("{\"x\":1 \"n\":1}", "n"));
}

/* Walks an object and writes what it saw: names with their values, then how it ended. */
static const char *walk(const char *object)
{
    static char seen[64];
    struct lexer lexer = {object, object + strlen(object)};
    struct lexer_member member = {0};
    size_t used = 0;
    while (lexer_next_member(&lexer, &member)) {
        const char *value = lexer.at;
        if (!lexer_value(&lexer, 1)) { break; }
        used += (size_t)snprintf(seen + used, sizeof seen - used, "%.*s=%.*s ", (int)member.length, member.name,
                                 (int)(lexer.at - value), value);
    }
    snprintf(seen + used, sizeof seen - used, "%s %d", member.whole ? "whole" : "broken", (int)(lexer.at - object));
    return seen;
}

TEST(a_walk_ends_at_the_end_of_the_object_or_at_the_wrong_byte)
{
    static const struct {
        const char *object, *seen;
    } cases[] = {{"{}", "whole 2"},
                 {" { } ,", "whole 4"},
                 {"{\"a\":1}", "a=1 whole 7"},
                 {" {\"a\" : [1, 2] , \"\":{\"b\":{}} } }", "a=[1, 2] ={\"b\":{}} whole 30"},
                 {"", "broken 0"},
                 {"[]", "broken 0"},
                 {"{", "broken 1"},
                 {"{,\"a\":1}", "broken 1"},
                 {"{\"a\":1,}", "a=1 broken 7"},
                 {"{\"a\":1,,}", "a=1 broken 7"},
                 {"{\"a\":1 \"b\":2}", "a=1 broken 7"},
                 {"{\"a\":1]", "a=1 broken 6"},
                 {"{\"a\" 1}", "broken 5"},
                 {"{\"a\":}", "broken 5"},
                 {"{a:1}", "broken 1"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(walk(cases[i].object), cases[i].seen);
    }
}
