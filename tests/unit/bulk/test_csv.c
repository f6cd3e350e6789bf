/* Records of CSV: RFC 4180's rules, common deviations from them, and errors that name the place. */
#include "harness.h"

#include <stdlib.h>

#include "bulk/input/csv.h"

/* All fields of the first record, joined by "|"; "?" when it needs more, "!column" when it is broken. */
static const char *split(const char *text, bool ended, char separator, size_t *length)
{
    static char out[256];
    char copy[256];
    struct csv_scan scan = {0};
    struct csv_fields fields = {0};
    struct err err;
    strcpy(copy, text);
    *length = csv_scan(&scan, copy, strlen(copy), separator);
    if (scan.state == CSV_BROKEN) {
        snprintf(out, sizeof out, "!%zu", *length);
        return out;
    }
    if (scan.state != CSV_DONE && !ended) { return "?"; }
    if (scan.state == CSV_QUOTED) {
        snprintf(out, sizeof out, "\"%llu:%llu", (unsigned long long)scan.quote.line,
                 (unsigned long long)scan.quote.column);
        return out;
    }
    assert_int_equal(csv_split(copy, csv_content(copy, *length), separator, &fields, &err), STATUS_OK);
    out[0] = '\0';
    for (uint32_t i = 0; i < fields.count; i++) {
        snprintf(out + strlen(out), sizeof out - strlen(out), "%s%.*s", i > 0 ? "|" : "", (int)fields.values[i].length,
                 fields.values[i].bytes);
    }
    free(fields.values);
    return out;
}

TEST(rules_of_the_rfc)
{
    size_t length;
    assert_string_equal(split("aaa,bbb,ccc\r\nzzz\r\n", false, ',', &length), "aaa|bbb|ccc");
    assert_int_equal(length, 13);
    assert_string_equal(split("aaa,bbb", true, ',', &length), "aaa|bbb");
    assert_string_equal(split("\"aaa\",\"b\r\nbb\",\"ccc\"\nz", false, ',', &length), "aaa|b\r\nbb|ccc");
    assert_int_equal(length, 20);
    assert_string_equal(split("\"b\"\"b\"\"\",x\n", false, ',', &length), "b\"b\"|x");
    assert_string_equal(split("a,,\n", false, ',', &length), "a||");
    assert_string_equal(split("\"\",\"\"", true, ',', &length), "|");
    assert_string_equal(split(" a , b\n", false, ',', &length), " a | b");
    assert_string_equal(split("a,b\tc,d\n", false, '\t', &length), "a,b|c,d");
}

TEST(more_is_asked_for)
{
    size_t length;
    const char *const unfinished[] = {"", "a", "a,b", "\"a", "\"a\"", "\"a\"\r", "a,\"b\n", "\"a\"\""};
    for (size_t i = 0; i < sizeof unfinished / sizeof unfinished[0]; i++) {
        assert_string_equal(split(unfinished[i], false, ',', &length), "?");
    }
}

TEST(broken_records_say_where)
{
    size_t length;
    assert_string_equal(split("a,\"b\"c\nnext\n", false, ',', &length), "!6");
    assert_string_equal(split("a,\"never\nclosed", true, ',', &length), "\"0:3");
    assert_int_equal(length, 15);
    assert_string_equal(split("\"a\nb\",\"never\nclosed\n", true, ',', &length), "\"1:4");
    assert_int_equal(length, 20);
    assert_string_equal(split("a\"b\n", false, ',', &length), "a\"b"); /* a quote inside is a letter */
}

TEST(pieces_of_any_size_end_at_the_same_place)
{
    const char *const texts[] = {"a,b\nnext",
                                 "a,b\r\nnext",
                                 "\"a\n\"\"b\",c\r\nnext",
                                 "a\"b,\"\",\"x\"\nnext",
                                 "\n",
                                 "\"a\nb\",\"c\nd",
                                 "\"a\" b\nnext",
                                 "\"a\"\rb\n",
                                 "a",
                                 ",,\"",
                                 "\"a\"\r"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        for (size_t piece = 1; piece < 30; piece++) {
            struct csv_scan whole = {0}, scan = {0};
            size_t length = strlen(texts[i]), used = 0, wanted = csv_scan(&whole, texts[i], length, ',');
            while (used < length && scan.state != CSV_DONE && scan.state != CSV_BROKEN) {
                used += csv_scan(&scan, texts[i] + used, length - used < piece ? length - used : piece, ',');
            }
            assert_int_equal(used, wanted);
            assert_memory_equal(&scan, &whole, sizeof scan);
        }
    }
}

TEST(lines_are_counted)
{
    struct csv_scan scan = {0};
    const char text[] = "\"1\n2\n\",x\r\n9";
    size_t length = csv_scan(&scan, text, sizeof text - 1, ',');
    assert_int_equal(scan.state, CSV_DONE);
    assert_int_equal(scan.here.line, 3);
    assert_int_equal(csv_content(text, length), length - 2);
}
