/* The value of a pause's key, in our form and in any other. */
#include "redis/pause.h"

#include <stdio.h>
#include <string.h>

#include "harness.h"

static struct pause parse(const char *value)
{
    struct pause pause;
    memset(&pause, 0xff, sizeof pause);
    pause_parse(value, strlen(value), &pause);
    assert_true(pause.on);
    assert_int_equal(pause.until_ms, 0);
    return pause;
}

static void expect(const char *value, uint64_t since_ms, const char *by, const char *why)
{
    struct pause pause = parse(value);
    assert_int_equal(pause.since_ms, since_ms);
    assert_string_equal(pause.by, by);
    assert_string_equal(pause.why, why);
}

TEST(our_form)
{
    expect("1795252518106 ann@web1 two words", 1795252518106, "ann@web1", "two words");
    expect("1795252518106 ann@web1", 1795252518106, "ann@web1", "");
    expect("0 ann@web1 why", 0, "ann@web1", "why");
}

TEST(of_an_older_version)
{
    expect("1795252518106", 1795252518106, "", "");
}

/* Somebody sets the key by hand. */
TEST(any_other_form_is_the_reason)
{
    expect("", 0, "", "");
    expect("1", 0, "", "1");
    expect("by Ann, until noon", 0, "", "by Ann, until noon");
    expect("1795252518106x", 0, "", "1795252518106x");
    expect("17952525181060 ann@web1", 0, "", "17952525181060 ann@web1");
    expect("no UTF-8: \xff", 0, "", "no UTF-8: \xef\xbf\xbd");
}

TEST(what_is_too_long_is_cut)
{
    char value[1000];
    memset(value, 'x', sizeof value);
    memcpy(value, "1795252518106 ", 14);
    value[sizeof value - 1] = '\0';
    assert_int_equal(strlen(parse(value).by), PAUSE_BY - 1);
    memcpy(value + 14, "a@b ", 4);
    assert_int_equal(strlen(parse(value).why), PAUSE_WHY - 1);
    for (size_t i = 18; i + 2 < sizeof value; i += 2) { memcpy(value + i, "\xc3\xa4", 2); }
    struct pause pause = parse(value);
    assert_int_equal(strlen(pause.why), PAUSE_WHY - 1);
    assert_memory_equal(pause.why + PAUSE_WHY - 3, "\xc3\xa4", 2);
    memmove(value + 19, value + 18, sizeof value - 20); /* one byte further: a letter would be cut in half */
    value[18] = 'x';
    assert_int_equal(strlen(parse(value).why), PAUSE_WHY - 2);
}

TEST(what_is_written_is_read)
{
    char value[PAUSE_VALUE];
    struct pause pause = {.since_ms = 1795252518106, .by = "ann@web1", .why = "two words"};
    pause_format(&pause, value);
    expect(value, 1795252518106, "ann@web1", "two words");
    pause.why[0] = '\0';
    pause_format(&pause, value);
    expect(value, 1795252518106, "ann@web1", "");
}
