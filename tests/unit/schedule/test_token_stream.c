/* Tokens on their way: those with text first, the rest at the end, and again from where Redis is. */
#include "harness.h"

#include <pthread.h>
#include <string.h>

#include "schedule/token_stream.h"

static const int32_t ids[] = {10, 11, 12, 13, 14};
static const uint32_t ends[] = {1, 1, 3, 3, 3}; /* the second and the last two bring no text yet */

static struct token_stream *open_stream(const void *written, size_t bytes)
{
    struct token_stream *stream;
    struct err err;
    assert_int_equal(token_stream_open(&stream, &err), STATUS_OK);
    assert_int_equal(token_stream_begin(stream, written, bytes, &err), STATUS_OK);
    return stream;
}

static void put(struct token_stream *stream, uint32_t count)
{
    struct err err;
    assert_int_equal(token_stream_put(stream, ids, ends, count, "abc", &err), STATUS_OK);
}

static void expect_run(struct token_stream *stream, bool always, uint32_t index, uint32_t count, const char *text)
{
    struct token_run run;
    struct buffer bytes = {0};
    buffer_string(&bytes, "before"); /* it is appended to */
    assert_true(token_stream_take(stream, always, &run, &bytes));
    assert_int_equal(run.index, index);
    assert_int_equal(run.count, count);
    assert_int_equal(run.text_bytes, strlen(text));
    assert_int_equal(bytes.length, strlen("before") + count * sizeof *ids + strlen(text));
    assert_memory_equal(bytes.data + strlen("before"), ids + index, count * sizeof *ids);
    assert_memory_equal(bytes.data + bytes.length - strlen(text), text, strlen(text));
    buffer_free(&bytes);
}

static void expect_none(struct token_stream *stream)
{
    struct token_run run;
    struct buffer bytes = {0};
    assert_false(token_stream_take(stream, false, &run, &bytes));
    assert_int_equal(bytes.length, 0);
}

TEST(tokens_without_text_wait_for_those_with_text)
{
    struct token_stream *stream = open_stream(NULL, 0);
    expect_none(stream);
    put(stream, 1);
    expect_run(stream, false, 0, 1, "a");
    put(stream, 2);
    expect_none(stream);
    put(stream, 4);
    expect_run(stream, false, 1, 3, "bc");
    put(stream, 5);
    expect_none(stream);
    expect_run(stream, true, 4, 1, "");
    expect_run(stream, true, 5, 0, "");
    assert_int_equal(token_stream_count(stream), 5);
    token_stream_drop(stream);
}

TEST(it_goes_on_where_redis_is)
{
    struct token_stream *stream = open_stream(NULL, 0);
    put(stream, 5);
    expect_run(stream, false, 0, 5, "abc");
    token_stream_resume(stream, 1);
    expect_run(stream, false, 1, 4, "bc");
    token_stream_resume(stream, 3);
    expect_none(stream);
    expect_run(stream, true, 3, 2, "");
    token_stream_resume(stream, 6); /* more than there are: somebody else's */
    struct token_run run;
    struct buffer bytes = {0};
    assert_false(token_stream_take(stream, true, &run, &bytes));
    token_stream_drop(stream);
}

TEST(what_was_sent_is_not_sent_again)
{
    struct token_stream *stream = open_stream(ids, 2 * sizeof *ids);
    const int32_t *written;
    assert_int_equal(token_stream_written(stream, &written), 2);
    assert_memory_equal(written, ids, 2 * sizeof *ids);
    expect_none(stream);
    put(stream, 2);
    expect_none(stream);
    put(stream, 3);
    expect_run(stream, false, 2, 1, "bc");
    token_stream_resume(stream, 1); /* Redis has lost a token that an earlier run had sent */
    expect_run(stream, true, 1, 2, "bc");
    token_stream_drop(token_stream_hold(stream));
    assert_int_equal(token_stream_count(stream), 3);
    token_stream_drop(stream);
}

enum { MANY = 20000 };

static void *write_many(void *stream)
{
    static int32_t many[MANY];
    static uint32_t many_ends[MANY];
    static char text[MANY];
    struct err err;
    for (uint32_t i = 0; i < MANY; i++) {
        many[i] = (int32_t)i;
        many_ends[i] = i + 1;
        text[i] = (char)i;
        if (token_stream_put(stream, many, many_ends, i + 1, text, &err) != STATUS_OK) { return stream; }
    }
    return NULL;
}

TEST(one_thread_writes_while_another_sends)
{
    struct token_stream *stream = open_stream(NULL, 0);
    pthread_t writer;
    void *failed;
    assert_int_equal(pthread_create(&writer, NULL, write_many, stream), 0);
    for (uint32_t had = 0; had < MANY;) {
        struct token_run run;
        struct buffer bytes = {0};
        if (!token_stream_take(stream, false, &run, &bytes)) { continue; }
        assert_int_equal(run.index, had);
        assert_int_equal(run.text_bytes, run.count);
        const int32_t *sent = (const int32_t *)(const void *)bytes.data;
        for (uint32_t i = 0; i < run.count; i++) {
            assert_int_equal(sent[i], had + i);
            assert_int_equal(bytes.data[run.count * sizeof *sent + i], (char)(had + i));
        }
        buffer_free(&bytes);
        had += run.count;
    }
    assert_int_equal(pthread_join(writer, &failed), 0);
    assert_null(failed);
    token_stream_drop(stream);
}
