/* Log lines: one per event, nothing from outside can forge a second one, both formats stay well-formed when cut. */
#include "harness.h"

#include <unistd.h>

#include "base/log.h"

static char text[8192];

/* Logs through a pipe and returns the line without its time stamp. */
static const char *logged(enum log_format format, const struct log_line *line)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    log_setup(LOG_INFO, format, ends[1]);
    log_write(LOG_INFO, line);
    log_setup(LOG_INFO, LOG_TEXT, 2);
    close(ends[1]);
    ssize_t length = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    assert_true(length >= 0);
    text[length] = '\0';
    return length == 0 ? "" : strchr(text, format == LOG_JSON ? ',' : ' ') + 1;
}

TEST(text_line_has_event_and_fields)
{
    assert_string_equal(logged(LOG_TEXT, &(struct log_line){"ready", log_str("model", "mini"), log_int("dim", 384),
                                                            log_double("share", 0.5)}),
                        "info ready model=mini dim=384 share=0.5\n");
    assert_string_equal(logged(LOG_TEXT, &(struct log_line){"bare"}), "info bare\n");
}

TEST(json_line_has_event_and_fields)
{
    assert_string_equal(logged(LOG_JSON, &(struct log_line){"ready", log_str("model", "a \"b\""), log_int("dim", -1)}),
                        "\"level\":\"info\",\"event\":\"ready\",\"model\":\"a \\\"b\\\"\",\"dim\":-1}\n");
}

TEST(values_cannot_forge_lines)
{
    assert_string_equal(logged(LOG_TEXT, &(struct log_line){"bad", log_str("id", "x\n2026 error forged=1")}),
                        "info bad id=\"x\\u000a2026 error forged=1\"\n");
}

TEST(oversized_value_is_cut)
{
    static char big[10000];
    memset(big, 'z', sizeof big);
    for (int format = LOG_TEXT; format <= LOG_JSON; format++) {
        const char *line = logged((enum log_format)format, &(struct log_line){"big", log_bytes("v", big, sizeof big)});
        size_t length = strlen(line);
        assert_true(length < 4200);
        assert_string_equal(line + length - (format == LOG_JSON ? 3 : 1), format == LOG_JSON ? "\"}\n" : "\n");
    }
}

TEST(least_level_is_kept)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    log_setup(LOG_WARN, LOG_TEXT, ends[1]);
    log_info("quiet");
    log_warn("heard");
    log_setup(LOG_INFO, LOG_TEXT, 2);
    close(ends[1]);
    ssize_t length = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    assert_true(length > 0);
    text[length] = '\0';
    assert_null(strstr(text, "quiet"));
    assert_non_null(strstr(text, "warn heard\n"));
}
