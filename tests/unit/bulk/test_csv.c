/* Records of CSV: RFC 4180's own rules, what files do beside them, and errors that say where. */
#include "harness.h"

#include <stdlib.h>

#include "bulk/input/csv.h"

/* All fields of the first record, joined by "|"; "?" when it needs more, "!column" when it is broken. */
static const char *split(const char *text, bool ended, char separator, size_t *length)
{
    static char out[256];
    char copy[256];
    struct csv_record record;
    struct csv_fields fields = {0};
    struct err err;
    strcpy(copy, text);
    if (!csv_find(copy, strlen(copy), ended, separator, &record))
        return "?";
    *length = record.length;
    if (record.open) {
        snprintf(out, sizeof out, "\"%llu:%llu", (unsigned long long)record.quote.line,
                 (unsigned long long)record.quote.column);
        return out;
    }
    if (record.broken) {
        snprintf(out, sizeof out, "!%zu", record.column);
        return out;
    }
    assert_int_equal(csv_split(copy, record.content, separator, &fields, &err), STATUS_OK);
    out[0] = '\0';
    for (uint32_t i = 0; i < fields.count; i++)
        snprintf(out + strlen(out), sizeof out - strlen(out), "%s%.*s", i > 0 ? "|" : "", (int)fields.values[i].length,
                 fields.values[i].bytes);
    free(fields.values);
    return out;
}

static void rules_of_the_rfc(void **state)
{
    (void)state;
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

static void more_is_asked_for(void **state)
{
    (void)state;
    size_t length;
    const char *const unfinished[] = {"", "a", "a,b", "\"a", "\"a\"", "\"a\"\r", "a,\"b\n", "\"a\"\""};
    for (size_t i = 0; i < sizeof unfinished / sizeof unfinished[0]; i++)
        assert_string_equal(split(unfinished[i], false, ',', &length), "?");
}

static void broken_records_say_where(void **state)
{
    (void)state;
    size_t length;
    assert_string_equal(split("a,\"b\"c\nnext\n", false, ',', &length), "!6");
    assert_int_equal(length, 7);
    assert_string_equal(split("a,\"never\nclosed", true, ',', &length), "\"0:3");
    assert_int_equal(length, 15);
    assert_string_equal(split("\"a\nb\",\"never\nclosed\n", true, ',', &length), "\"1:4");
    assert_int_equal(length, 20);
    assert_string_equal(split("a\"b\n", false, ',', &length), "a\"b"); /* a quote inside is a letter */
}

/* A record that is skipped, in pieces of any size, ends where one that is held ends. */
static void skipped_records_end_at_the_same_place(void **state)
{
    (void)state;
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
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        for (size_t piece = 1; piece < 30; piece++) {
            struct csv_record record;
            struct csv_skip skip = {0};
            size_t length = strlen(texts[i]), used = 0;
            assert_true(csv_find(texts[i], length, true, ',', &record));
            while (used < length && skip.state != CSV_DONE && skip.state != CSV_BROKEN)
                used += csv_skip(&skip, texts[i] + used, length - used < piece ? length - used : piece, ',');
            assert_int_equal(skip.state == CSV_BROKEN, record.broken);
            assert_int_equal(skip.state == CSV_QUOTED, record.open);
            if (record.open)
                assert_memory_equal(&skip.quote, &record.quote, sizeof skip.quote);
            if (!record.broken) {
                assert_int_equal(used, record.length);
                assert_int_equal(skip.here.line, record.lines);
            }
        }
}

static void lines_are_counted(void **state)
{
    (void)state;
    struct csv_record record;
    const char text[] = "\"1\n2\n\",x\n9";
    assert_true(csv_find(text, sizeof text - 1, true, ',', &record));
    assert_int_equal(record.lines, 3);
    assert_int_equal(record.content, record.length - 1);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(rules_of_the_rfc),         cmocka_unit_test(more_is_asked_for),
    cmocka_unit_test(broken_records_say_where), cmocka_unit_test(skipped_records_end_at_the_same_place),
    cmocka_unit_test(lines_are_counted),
};

TEST_MAIN(cases)
