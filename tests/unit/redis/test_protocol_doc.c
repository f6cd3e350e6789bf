/* docs/protocol.md is normative, so it must name every code; docs/workers.md must name every script. tests/docs
 * compares the fields. */
#include "base/file.h"
#include "redis/scripts.h"
#include "schedule/request.h"

#include "harness.h"

static const char PROTOCOL[] = TEST_SOURCE_DIR "/docs/protocol.md";
static const char WORKERS[] = TEST_SOURCE_DIR "/docs/workers.md";

static struct buffer read_source(const char *path)
{
    struct buffer text = {0};
    struct err err = {0};
    if (file_read(path, 1 << 20, &text, &err)) { fail_msg("%s", err.message); }
    return text;
}

static void expect_named(const struct buffer *doc, const char *page, const char *name)
{
    char quoted[128];
    snprintf(quoted, sizeof quoted, "`%s`", name);
    if (!strstr(doc->data, quoted)) { fail_msg("%s does not name %s", page, quoted); }
}

TEST(names_every_code)
{
    struct buffer doc = read_source(PROTOCOL);
    for (int code = CODE_NONE + 1; code < CODE_COUNT; code++) {
        expect_named(&doc, PROTOCOL, reply_code_name((enum reply_code)code));
    }
    buffer_free(&doc);
}

TEST(names_every_script)
{
    struct buffer doc = read_source(WORKERS);
    for (int i = 0; i < SCRIPT_COUNT; i++) { expect_named(&doc, WORKERS, script_sources[i].name); }
    buffer_free(&doc);
}

TEST(scripts_say_what_they_take_and_may_not_do)
{
    static const char *const words[] = {"-- KEYS", "-- ARGV", "-- Returns", "-- May not:"};
    for (int i = 0; i < SCRIPT_COUNT; i++) {
        assert_int_equal(strncmp(script_sources[i].text, "#!lua", 5), 0);
        for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
            if (!strstr(script_sources[i].text, words[w])) {
                fail_msg("lua/%s.lua has no \"%s\"", script_sources[i].name, words[w]);
            }
        }
    }
}
