/* The checks between a file and cJSON. */
#include "harness.h"

#include "base/json_tree.h"

static enum status parse(const char *text, cJSON **root, struct err *err)
{
    return json_parse(text, strlen(text), "f.json", root, err);
}

static void refuse(const char *text, const char *says)
{
    cJSON *root;
    struct err err = {0};
    assert_int_equal(parse(text, &root, &err), STATUS_BAD_INPUT);
    assert_null(root);
    assert_non_null(strstr(err.message, "f.json"));
    if (strstr(err.message, says) == NULL) { fail_msg("%s: \"%s\" does not say \"%s\"", text, err.message, says); }
}

TEST(refuses_text_that_cjson_would_take)
{
    refuse("{\"a\": \"\xC0\x80\"}", "line 1, byte 8: not UTF-8");
    refuse("{\"a\": \"\xED\xA0\x80\"}", "UTF-8");
    refuse("{\"a\": \"x\\u0000y\"}", "NUL");
    refuse("{\"a\": 1} {\"b\": 2}", "line 1, byte 10: more text after the JSON");
    refuse("{\"a\": 1, \"b\": {\"c\": 1, \"d\": 2, \"c\": 3}}", "c stands twice");
    refuse("[{\"\": 1, \"\": 2}]", "stands twice");
    refuse("", "not valid JSON");
    refuse("{\"a\": ", "not valid JSON");
    refuse("{\"a", "not valid JSON");
    refuse("{\"a\\", "not valid JSON");
    refuse("{\n\n\"a\": nul\n}", "line 3, byte 6: not valid JSON");
    refuse("{\n}\n x", "line 3, byte 2: more text after");
    refuse("\n\"\xff\"", "line 2, byte 2: not UTF-8");
    cJSON *root;
    struct err err = {0};
    assert_int_equal(json_parse("[1]\0[2]", 7, "f.json", &root, &err), STATUS_BAD_INPUT);
    assert_non_null(strstr(err.message, "NUL byte"));
}

TEST(keeps_an_escaped_backslash_before_u0000)
{
    cJSON *root;
    struct err err;
    assert_int_equal(parse("[\"\\\\u0000\"]", &root, &err), STATUS_OK);
    assert_string_equal(root->child->valuestring, "\\u0000");
    cJSON_Delete(root);
}

TEST(bounds_the_depth)
{
    char text[2 * JSON_MAX_DEPTH + 3];
    for (size_t depth = JSON_MAX_DEPTH; depth <= JSON_MAX_DEPTH + 1; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        text[2 * depth] = '\0';
        if (depth > JSON_MAX_DEPTH) {
            refuse(text, "deeper than 32");
            continue;
        }
        cJSON *root;
        struct err err;
        assert_int_equal(parse(text, &root, &err), STATUS_OK);
        cJSON_Delete(root);
    }
    cJSON *root;
    struct err err;
    assert_int_equal(parse("[\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\"]", &root, &err), STATUS_OK);
    cJSON_Delete(root);
}

TEST(typed_fields_name_file_and_field)
{
    cJSON *root;
    struct err err = {0};
    assert_int_equal(
        parse("{\"n\":7,\"half\":1.5,\"low\":-1,\"big\":4294967296,\"b\":true,\"s\":\"x\",\"z\":null}", &root, &err),
        STATUS_OK);
    uint32_t number = 3;
    assert_int_equal(json_u32(root, "f.json", "n", 1, 7, &number, &err), STATUS_OK);
    assert_int_equal(number, 7);
    assert_int_equal(json_u32(root, "f.json", "absent", 1, 7, &number, &err), STATUS_OK);
    assert_int_equal(json_u32(root, "f.json", "z", 1, 7, &number, &err), STATUS_OK);
    assert_int_equal(number, 7);
    static const char *const bad[] = {"half", "low", "big", "b", "s"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(json_u32(root, "f.json", bad[i], 0, UINT32_MAX, &number, &err), STATUS_BAD_INPUT);
        assert_non_null(strstr(err.message, "f.json"));
        assert_non_null(strstr(err.message, bad[i]));
    }
    assert_int_equal(json_u32(root, "f.json", "n", 8, 9, &number, &err), STATUS_BAD_INPUT);
    assert_int_equal(json_u32(root, "f.json", "n", 1, 6, &number, &err), STATUS_BAD_INPUT);
    bool flag = false;
    assert_int_equal(json_bool(root, "f.json", "b", &flag, &err), STATUS_OK);
    assert_true(flag);
    assert_int_equal(json_bool(root, "f.json", "n", &flag, &err), STATUS_BAD_INPUT);
    const char *text = "kept";
    assert_int_equal(json_string(root, "f.json", "z", &text, &err), STATUS_OK);
    assert_string_equal(text, "kept");
    assert_int_equal(json_string(root, "f.json", "s", &text, &err), STATUS_OK);
    assert_string_equal(text, "x");
    assert_int_equal(json_string(root, "f.json", "n", &text, &err), STATUS_BAD_INPUT);
    double real = 0;
    assert_int_equal(json_double(root, "f.json", "half", &real, &err), STATUS_OK);
    assert_true(real == 1.5);
    assert_int_equal(json_double(root, "f.json", "s", &real, &err), STATUS_BAD_INPUT);
    cJSON_Delete(root);
}
