/* Fields out of JSON objects: which are found, which objects are refused, and at which byte. */
#include "harness.h"

#include <stdlib.h>

#include "base/json.h"
#include "bulk/input/json.h"

static char text_path[] = "text", deep_path[] = "meta.title", deeper_path[] = "meta.a.b";
static char *const paths[] = {text_path, deep_path, deeper_path};

static enum pick_problem pick(const char *json, struct value *values, size_t *at)
{
    return pick_fields(json, strlen(json), paths, 3, values, at);
}

static void expect(const struct value *value, enum value_kind kind, const char *bytes)
{
    assert_int_equal(value->kind, kind);
    assert_int_equal(value->length, strlen(bytes));
    assert_memory_equal(value->bytes, bytes, value->length);
}

TEST(finds_paths)
{
    struct value values[3];
    size_t at;
    assert_int_equal(
        pick("{\"text\":\"hi\", \"meta\" : {\"x\":[1,{\"title\":2}],\"title\":\"T\",\"a\":{\"b\":-1.5e+3}}}", values,
             &at),
        PICK_OK);
    expect(&values[0], VALUE_STRING, "hi");
    expect(&values[1], VALUE_STRING, "T");
    expect(&values[2], VALUE_SCALAR, "-1.5e+3");
    assert_int_equal(pick("{\"title\":\"not this\",\"meta\":{\"text\":1},\"meta.title\":3}", values, &at), PICK_OK);
    for (int i = 0; i < 3; i++) { assert_int_equal(values[i].kind, VALUE_ABSENT); }
}

TEST(kinds_of_values)
{
    struct value values[3];
    size_t at;
    assert_int_equal(pick("{\"text\":null,\"meta\":{\"title\":[1, {}],\"a\":{\"b\":true}}}", values, &at), PICK_OK);
    assert_int_equal(values[0].kind, VALUE_NULL);
    expect(&values[1], VALUE_TREE, "[1, {}]");
    expect(&values[2], VALUE_SCALAR, "true");
    assert_int_equal(pick("{\"\\u0074ext\":\"first\",\"text\":\"last\"}", values, &at), PICK_OK);
    expect(&values[0], VALUE_STRING, "last");
    assert_int_equal(pick("{\"text\":1,\"te\\u0078t\":\"esc\"}", values, &at), PICK_OK);
    expect(&values[0], VALUE_STRING, "esc");
}

TEST(refuses_what_is_no_object)
{
    struct value values[3];
    size_t at;
    const char *const others[] = {"[]", "\"text\"", "1", "null", "[{\"text\":\"x\"}]"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_int_equal(pick(others[i], values, &at), PICK_NOT_OBJECT);
    }
}

TEST(broken_json_says_where)
{
    struct value values[3];
    static const struct {
        const char *json;
        size_t at;
    } broken[] = {
        {"", 0},           {"{", 1},           {"{\"a\"}", 4},        {"{\"a\":}", 5},        {"{\"a\":1,}", 7},
        {"{\"a\":01}", 6}, {"{\"a\":1} x", 8}, {"{\"a\":\"\t\"}", 6}, {"{\"a\":\"\\x\"}", 7}, {"{\"a\":nul}", 5},
        {"{'a':1}", 1},    {"{\"a\":1.}", 7},  {"{\"a\":[1,]}", 8},   {"{\"a\":+1}", 5},
    };
    size_t at;
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        assert_int_equal(pick(broken[i].json, values, &at), PICK_BROKEN);
        assert_int_equal(at, broken[i].at);
    }
    assert_int_equal(pick("{\"a\":\"\xc3\"}", values, &at), PICK_BAD_UTF8);
    assert_int_equal(at, 6);
}

TEST(depth_is_bounded)
{
    struct value values[3];
    char json[512] = "{\"a\":";
    size_t at;
    memset(json + 5, '[', 200);
    assert_int_equal(pick(json, values, &at), PICK_TOO_DEEP);
}

TEST(strings_both_ways)
{
    struct buffer there = {0}, back = {0};
    const char text[] = "a\"b\\c\n\x01\xc3\xa4\xf0\x9f\x99\x82";
    buffer_json_string(&there, text, sizeof text - 1);
    assert_true(buffer_json_decode(&back, there.data + 1, there.length - 2));
    assert_int_equal(back.length, sizeof text - 1);
    assert_memory_equal(back.data, text, back.length);
    back.length = 0;
    assert_true(buffer_json_decode(&back, "\\ud83d\\ude42\\u0041", 18));
    assert_memory_equal(back.data,
                        "\xf0\x9f\x99\x82"
                        "A",
                        5);
    assert_false(buffer_json_decode(&back, "\\ud83d", 6));
    assert_false(buffer_json_decode(&back, "\\ude42", 6));
    assert_false(buffer_json_decode(&back, "\\u12", 4));
    there.length = 0;
    buffer_json_string(&there, "\xff.", 2);
    assert_memory_equal(there.data, "\"\xef\xbf\xbd.\"", 6);
    buffer_free(&there);
    buffer_free(&back);
}
