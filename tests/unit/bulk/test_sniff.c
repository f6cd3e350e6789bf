/* The kind of a file, by its first bytes. */
#include "harness.h"

#include "bulk/input/json.h"
#include "bulk/input/sniff.h"

static enum sniffed sniffed(const char *bytes, size_t length)
{
    const char *name = NULL, *way = NULL;
    enum sniffed kind = sniff(bytes, length, &name, &way);
    assert_true((kind == SNIFF_OTHER) == (name != NULL && way != NULL));
    return kind;
}

#define SNIFFED(bytes) sniffed(bytes, sizeof(bytes) - 1)

TEST(json_and_text)
{
    assert_int_equal(SNIFFED(" [\n{\"a\""), SNIFF_JSON_ARRAY);
    assert_int_equal(SNIFFED("[\"a\""), SNIFF_JSON_ARRAY);
    assert_int_equal(SNIFFED("[]"), SNIFF_JSON_ARRAY);
    assert_int_equal(SNIFFED("[1] note"), SNIFF_TEXT);
    assert_int_equal(SNIFFED("["), SNIFF_TEXT);
    assert_int_equal(SNIFFED("\n{ \"a\""), SNIFF_JSON_LINE);
    assert_int_equal(SNIFFED("{\r\n  \"a\""), SNIFF_JSON_SPREAD);
    assert_int_equal(SNIFFED("{a brace"), SNIFF_TEXT);
    assert_int_equal(SNIFFED("{"), SNIFF_TEXT);
    assert_int_equal(SNIFFED("text"), SNIFF_TEXT);
    assert_int_equal(SNIFFED(" "), SNIFF_TEXT);
}

/* A text may contain a NUL, and its last character may be cut; neither makes it binary. */
TEST(text_with_a_nul_is_no_binary)
{
    assert_int_equal(SNIFFED("a text\0 with a NUL \xc3"), SNIFF_TEXT);
    assert_int_equal(SNIFFED("\0\0\0\0\0\0\0\0"), SNIFF_TEXT);
    assert_int_equal(SNIFFED("latin \xe4 letters"), SNIFF_TEXT);
    assert_int_equal(SNIFFED("a text\0 with \xff more"), SNIFF_OTHER);
}

/* The beginning of a file with a mark is text as long as the mark is cut. */
TEST(a_mark_that_is_cut)
{
    static const char parquet[] = "PAR1\x15\x04\x15\x00\x15";
    for (size_t length = 0; length <= 4; length++) { assert_int_equal(sniffed(parquet, length), SNIFF_TEXT); }
    assert_int_equal(sniffed(parquet, 5), SNIFF_OTHER);
    assert_int_equal(SNIFFED("PAR1\n"), SNIFF_TEXT);
    assert_int_equal(SNIFFED("GGUF is a kind"), SNIFF_TEXT);
}

TEST(elements_of_an_array)
{
    static const char *const elements[] = {"{\"a\":[1,{\"b\":\"]}\\\"\"}]}", "\"a,]\\\\\"", "12", "[[],{}]", "{\n\n}"};
    for (size_t i = 0; i < sizeof elements / sizeof elements[0]; i++) {
        for (const char *end = ",] \n"; *end != '\0'; end++) {
            char text[64];
            size_t length = strlen(elements[i]);
            snprintf(text, sizeof text, "%s%c", elements[i], *end);
            for (size_t cut = 0; cut <= length + 1; cut++) { /* it may come in two parts */
                struct element_scan scan = {0};
                size_t first = element_scan(&scan, text, cut);
                assert_int_equal(first, cut < length ? cut : length);
                first += element_scan(&scan, text + first, length + 1 - first);
                assert_true(scan.done);
                assert_int_equal(first, length);
                assert_int_equal(scan.lines, i == 4 ? 2 : 0);
            }
        }
    }
    struct element_scan open = {0};
    assert_int_equal(element_scan(&open, "{\"a\": \"}]", 9), 9);
    assert_false(open.done);
}
