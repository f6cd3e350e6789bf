/* The scanner of `inputs`: where it stops. tests/golden/inputs_golden.py compares what it reads with Python's. */
#include "harness.h"

#include "schedule/inputs.h"

enum { MOST_TEXTS = 4, MOST_BYTES = 40 };

static struct inputs measure(const char *json)
{
    return inputs_measure(json, strlen(json), MOST_TEXTS, MOST_BYTES);
}

TEST(what_is_wrong_is_found_where_it_is)
{
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
        if (inputs.problem != cases[i].problem || inputs.count != cases[i].count || inputs.at != cases[i].at) {
            fail_msg("%s: problem %d after %u texts at byte %zu", cases[i].json, inputs.problem, inputs.count,
                     inputs.at);
        }
    }
}
