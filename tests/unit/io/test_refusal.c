/* Refusals say which key and which line. */
#include "io/refusal.h"

#include "harness.h"

#define NO_KEY "NOPERM this user has no permissions to access one of the keys used as arguments"

static void expect_keys(const char *error, const char *head, size_t length, const char *expected)
{
    char text[REFUSAL_TEXT];
    struct resp_value explained;
    struct resp_value reply = {.type = RESP_ERROR, .bytes = error, .length = strlen(error)};
    const struct resp_value *got = refusal_with_keys(&reply, head, length, text, &explained);
    assert_int_equal(got->type, RESP_ERROR);
    assert_string_equal(got->bytes, expected);
    assert_int_equal(got->length, strlen(expected));
}

static void keys_are_named(void **state)
{
    (void)state;
    const char *head =
        "*4\r\n$7\r\nEVALSHA\r\n$14\r\nsluice:{q}:one\r\n$3\r\nnot\r\n$16\r\nsluice:{q}:three\r\n$1\r\nx\r\n";
    expect_keys(NO_KEY, head, strlen(head), NO_KEY ": sluice:{q}:one sluice:{q}:three");
    expect_keys(NO_KEY, head, strlen(head) - 12, NO_KEY ": sluice:{q}:one sluice:{q}:th...");
    expect_keys(NO_KEY, head, 0, NO_KEY ":");
    const char *text = "*2\r\n$4\r\nXADD\r\n$20\r\na text of sluice:{q}\r\n";
    expect_keys(NO_KEY, text, strlen(text), NO_KEY ":");
}

static void other_errors_stay_as_they_are(void **state)
{
    (void)state;
    const char *head = "*2\r\n$3\r\nGET\r\n$14\r\nsluice:{q}:one\r\n";
    const char *errors[] = {"NOPERM this user has no permissions to run the 'xack' command", "ERR no", ""};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        expect_keys(errors[i], head, strlen(head), errors[i]);
    }
    char text[REFUSAL_TEXT];
    struct resp_value explained, string = {.type = RESP_STRING, .bytes = NO_KEY, .length = strlen(NO_KEY)};
    assert_ptr_equal(refusal_with_keys(&string, head, strlen(head), text, &explained), &string);
}

static void long_keys_are_cut(void **state)
{
    (void)state;
    char head[REFUSAL_HEAD], text[REFUSAL_TEXT];
    memset(head, 'k', sizeof head);
    memcpy(head, "*1\r\n$999\r\nsluice:{q}", 20);
    struct resp_value explained, reply = {.type = RESP_ERROR, .bytes = NO_KEY, .length = strlen(NO_KEY)};
    const struct resp_value *got = refusal_with_keys(&reply, head, sizeof head, text, &explained);
    assert_int_equal(got->length, strlen(text));
    assert_true(got->length < REFUSAL_TEXT);
    char many[REFUSAL_HEAD]; /* as many keys as there can be */
    for (size_t i = 0; i + 9 <= sizeof many; i += 9) {
        memcpy(many + i, "\nsluice:{", 9);
    }
    got = refusal_with_keys(&reply, many, sizeof many, text, &explained);
    assert_true(got->length < REFUSAL_TEXT);
}

static void expect_line(const char *error, const char *expected)
{
    static const char source[] = "#!lua\n-- head\n  return call('XACK', KEYS[1])\nlast";
    char text[REFUSAL_TEXT];
    struct resp_value explained;
    struct resp_value reply = {.type = RESP_ERROR, .bytes = error, .length = strlen(error)};
    assert_string_equal(refusal_with_line(&reply, "settle", source, text, &explained)->bytes, expected);
}

#define NO_RUN "ERR The user executing the script can't run this command or subcommand"

static void the_line_of_a_script_is_quoted(void **state)
{
    (void)state;
    expect_line(NO_RUN " script: abc, on @user_script:3.",
                NO_RUN ": lua/settle.lua line 3: return call('XACK', KEYS[1])");
    expect_line(NO_RUN " script: abc, on @user_script:4.", NO_RUN ": lua/settle.lua line 4: last");
    expect_line(NO_RUN " script: abc, on @user_script:99.", NO_RUN ": lua/settle.lua line 99: ");
    expect_line(NO_RUN " script: abc, on @user_script:x", NO_RUN " script: abc, on @user_script:x");
    expect_line(NO_RUN, NO_RUN);
    expect_line("ERR other script: abc, on @user_script:3.", "ERR other script: abc, on @user_script:3.");
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(keys_are_named),
    cmocka_unit_test(other_errors_stay_as_they_are),
    cmocka_unit_test(long_keys_are_cut),
    cmocka_unit_test(the_line_of_a_script_is_quoted),
};

TEST_MAIN(cases)
