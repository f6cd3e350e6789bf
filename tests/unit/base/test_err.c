/* Errors: messages are cut, never lost; prefixes stack; every status has a name and an exit code. */
#include "harness.h"

#include <errno.h>
#include <sysexits.h>

#include "base/err.h"

TEST(set_fills_and_returns)
{
    struct err err;
    assert_int_equal(err_set(&err, STATUS_BAD_INPUT, "field %s", "ttl"), STATUS_BAD_INPUT);
    assert_int_equal(err.status, STATUS_BAD_INPUT);
    assert_string_equal(err.message, "field ttl");
    assert_int_equal(err_set(NULL, STATUS_IO, "nobody reads this"), STATUS_IO);
}

TEST(long_message_is_cut)
{
    char text[2000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    struct err err;
    (void)err_set(&err, STATUS_IO, "%s", text);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
    assert_int_equal(err_prefix(&err, "%s", text), STATUS_IO);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
}

/* A message goes into replies, logs and JSON, and may quote the name of a file. */
TEST(a_message_is_text_whatever_it_quotes)
{
    struct err err;
    (void)err_set(&err, STATUS_BAD_INPUT, "%s and %.4s", "lat\xe9n", "\xe6\x97\xa5\xe6\x9c\xac");
    assert_string_equal(err.message, "lat\xef\xbf\xbdn and \xe6\x97\xa5\xef\xbf\xbd");
    (void)err_prefix(&err, "\xff");
    assert_string_equal(err.message, "\xef\xbf\xbd: lat\xef\xbf\xbdn and \xe6\x97\xa5\xef\xbf\xbd");
}

TEST(errno_becomes_a_status)
{
    struct err err;
    errno = ENOENT;
    assert_int_equal(err_set_errno(&err, "cannot open %s", "/x"), STATUS_NOT_FOUND);
    assert_string_equal(err.message, "cannot open /x: No such file or directory");
    errno = EACCES;
    assert_int_equal(err_set_errno(&err, "y"), STATUS_DENIED);
    errno = EPIPE;
    assert_int_equal(err_set_errno(NULL, "z"), STATUS_IO);
}

TEST(prefix_keeps_the_status)
{
    struct err err;
    (void)err_set(&err, STATUS_UNSUPPORTED, "hidden_act \"swish\" is not known");
    assert_int_equal(err_prefix(&err, "config.json"), STATUS_UNSUPPORTED);
    assert_string_equal(err.message, "config.json: hidden_act \"swish\" is not known");
}

TEST(every_status_has_name_and_code)
{
    assert_int_equal(status_exit_code(STATUS_OK), EX_OK);
    assert_int_equal(status_exit_code(STATUS_DENIED), EX_NOPERM);
    for (int s = STATUS_BAD_INPUT; s <= STATUS_INTERNAL; s++) {
        assert_string_not_equal(status_name((enum status)s), "unknown");
        assert_in_range(status_exit_code((enum status)s), EX__BASE, EX__MAX);
    }
}
