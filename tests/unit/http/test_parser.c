/* Heads and chunked bodies of requests: which are read how, and which are refused. */
#include "http/parser.h"

#include <stdlib.h>

#include "harness.h"

/* Reads a head that is written without its empty line. The caller frees `*text`. */
static int read_text(const char *head, char **text, struct http_head *out, const char **error)
{
    size_t length = strlen(head);
    *text = malloc(length + 2);
    assert_non_null(*text);
    memcpy(*text, head, length);
    return http_read_head(*text, length, out, error);
}

static void expect_status(const char *text, int expected)
{
    struct http_head head;
    const char *error;
    char *copy;
    int status = read_text(text, &copy, &head, &error);
    if (status != expected) { fail_msg("%d, not %d: %s", status, expected, text); }
    free(copy);
}

TEST(a_whole_head)
{
    struct http_head head;
    const char *error;
    char *text;
    assert_int_equal(
        read_text("POST /v1/x?a=b&c HTTP/1.1\r\nHost: h:1\r\ncontent-LENGTH:\t 12 \t\r\nX:\r\nX-Y: a: b  c\r\n"
                  "Expect: 100-Continue",
                  &text, &head, &error),
        0);
    assert_string_equal(head.method, "POST");
    assert_string_equal(head.path, "/v1/x");
    assert_string_equal(head.query, "a=b&c");
    assert_string_equal(head.host, "h:1");
    assert_true(head.keep && head.expects && head.has_length && !head.chunked);
    assert_int_equal(head.length, 12);
    assert_string_equal(http_find_header(head.headers, "x"), "");
    assert_string_equal(http_find_header(head.headers, "x-y"), "a: b  c");
    assert_null(http_find_header(head.headers, "Cookie"));
    assert_null(http_find_header(head.headers, ""));
    free(text);
}

static void expect_keep(const char *text, bool expected)
{
    struct http_head head;
    const char *error;
    char *copy;
    assert_int_equal(read_text(text, &copy, &head, &error), 0);
    if (head.keep != expected) { fail_msg("%s", text); }
    free(copy);
}

TEST(which_connections_stay_open)
{
    expect_keep("GET / HTTP/1.1\r\nHost: h", true);
    expect_keep("GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive", true);
    expect_keep("GET / HTTP/1.1\r\nHost: h\r\nConnection: closed, x", true);
    expect_keep("GET / HTTP/1.1\r\nHost: h\r\nConnection: Close", false);
    expect_keep("GET / HTTP/1.1\r\nHost: h\r\nConnection: te , close", false);
    expect_keep("GET / HTTP/1.1\r\nHost: h\r\nConnection: x\r\nConnection: close", false);
    expect_keep("GET / HTTP/1.0", false);
    expect_keep("GET / HTTP/1.0\r\nConnection: keep-alive", false);
}

TEST(targets)
{
    expect_status("GET http://h/a?b HTTP/1.1\r\nHost: h", 0);
    expect_status("GET HTTP://H:1/a HTTP/1.1\r\nHost: h:1", 0);
    expect_status("GET http://h/a HTTP/1.1\r\nHost: other", 400);
    expect_status("GET http://h/a HTTP/1.1\r\nHost: h:1", 400);
    expect_status("GET http://h.x/a HTTP/1.1\r\nHost: h", 400);
    expect_status("GET http://h/a HTTP/1.0", 400);
    expect_status("GET http://h HTTP/1.1\r\nHost: h", 400);
    expect_status("GET https://h/ HTTP/1.1\r\nHost: h", 400);
    expect_status("GET * HTTP/1.1\r\nHost: h", 400);
    expect_status("CONNECT h:1 HTTP/1.1\r\nHost: h", 400);
    expect_status("GET a HTTP/1.1\r\nHost: h", 400);
    expect_status("GET  / HTTP/1.1\r\nHost: h", 400);
    expect_status("GET /\t HTTP/1.1\r\nHost: h", 400);
    expect_status("GET /\x80 HTTP/1.1\r\nHost: h", 400);
    expect_status("GET /a b HTTP/1.1\r\nHost: h", 400);
}

TEST(lines_that_are_no_request)
{
    const char *const wrong[] = {"",
                                 "\r\n",
                                 "GET",
                                 "GET /",
                                 "GET / HTTP/1.1 \r\nHost: h",
                                 "GET / HTTP/1.2\r\nHost: h",
                                 "GET / HTTP/2.0\r\nHost: h",
                                 "GET / http/1.1\r\nHost: h",
                                 " GET / HTTP/1.1\r\nHost: h",
                                 "G\x01T / HTTP/1.1\r\nHost: h",
                                 "G@T / HTTP/1.1\r\nHost: h",
                                 " / HTTP/1.1\r\nHost: h"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) { expect_status(wrong[i], 400); }
}

/* Each could be read otherwise by a proxy in front of us. */
TEST(headers_that_are_refused)
{
    static const char first[] = "POST / HTTP/1.1\r\n";
    const struct {
        const char *lines;
        int status;
    } cases[] = {{"Host: h", 0},
                 {"A: b", 400},
                 {"Host: h\r\nHost: h", 400},
                 {"Host: h\r\nhost: i", 400},
                 {"Host : h", 400},
                 {"Host: h\r\n folded: x", 400},
                 {"Host: h\r\nA: b\r\n\tfolded", 400},
                 {" Host: h", 400},
                 {"Host: h\r\n: x", 400},
                 {"Host: h\r\nA", 400},
                 {"Host: h\r\nA b: c", 400},
                 {"Host: h\r\nA\x80: c", 400},
                 {"Host: h\r\nA: \x80\xff", 0}, /* a value may have bytes of any encoding */
                 {"Host: h\r\nA: b\nC: d", 400},
                 {"Host: h\r\nA: b\rC: d", 400},
                 {"Host: h\r\nA: b\x01", 400},
                 {"Host: h\r\nA: \x7f", 400},
                 {"Host: h\r\n", 400},
                 {"Host: h\r\nContent-Length: 5", 0},
                 {"Host: h\r\nContent-Length: 005", 0},
                 {"Host: h\r\nContent-Length: 5\r\nContent-Length: 5", 400},
                 {"Host: h\r\nContent-Length: 5\r\ncontent-length: 6", 400},
                 {"Host: h\r\nContent-Length: 5, 5", 400},
                 {"Host: h\r\nContent-Length:", 400},
                 {"Host: h\r\nContent-Length: +5", 400},
                 {"Host: h\r\nContent-Length: -5", 400},
                 {"Host: h\r\nContent-Length: 5 5", 400},
                 {"Host: h\r\nContent-Length: 0x5", 400},
                 {"Host: h\r\nContent-Length: 5.0", 400},
                 {"Host: h\r\nTransfer-Encoding: Chunked", 0},
                 {"Host: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 5", 400},
                 {"Host: h\r\nContent-Length: 5\r\nTransfer-Encoding: identity", 400},
                 {"Host: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 400},
                 {"Host: h\r\nTransfer-Encoding: gzip, chunked", 501},
                 {"Host: h\r\nTransfer-Encoding: chunked, identity", 501},
                 {"Host: h\r\nTransfer-Encoding: xchunked", 501},
                 {"Host: h\r\nTransfer-Encoding:", 501},
                 {"Host: h\r\nTransfer-Encoding: \x0b"
                  "chunked",
                  400},
                 {"Host: h\r\nExpect: 200-ok", 417},
                 {"Host: h\r\nOrigin: a\r\nOrigin: b", 400},
                 {"Host: h\r\nAuthorization: a\r\nAuthorization: b", 400}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, "%s%s", first, cases[i].lines);
        expect_status(text, cases[i].status);
    }
    expect_status("POST / HTTP/1.0\r\nTransfer-Encoding: chunked", 400);
}

TEST(a_nul_is_refused)
{
    char text[] = "GET / HTTP/1.1\r\nHost: h\0x\r\nA: b\0";
    struct http_head head;
    const char *error;
    assert_int_equal(http_read_head(text, sizeof text - 2, &head, &error), 400);
}

TEST(large_lengths)
{
    const struct {
        const char *digits;
        uint64_t length;
    } cases[] = {{"18446744073709551614", UINT64_MAX - 1},
                 {"18446744073709551615", UINT64_MAX},
                 {"18446744073709551616", UINT64_MAX},
                 {"99999999999999999999999999999999", UINT64_MAX}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[128], *text;
        struct http_head head;
        const char *error;
        snprintf(line, sizeof line, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %s", cases[i].digits);
        assert_int_equal(read_text(line, &text, &head, &error), 0);
        assert_true(head.length == cases[i].length);
        free(text);
    }
}

TEST(the_end_of_a_head)
{
    static const char bytes[] = "GET / HTTP/1.1\r\nHost: h\r\n\r\nrest";
    size_t end = sizeof bytes - 1 - strlen("rest"), at = 0;
    for (size_t length = 0; length < end; length++) {
        assert_int_equal(http_find_end(bytes, length, &at), HTTP_END_MISSING);
    }
    assert_int_equal(http_find_end(bytes, end, &at), HTTP_END_FOUND);
    assert_int_equal(at, end);
    at = 0;
    assert_int_equal(http_find_end(bytes, sizeof bytes - 1, &at), HTTP_END_FOUND);
    assert_int_equal(at, end);
    at = 0;
    assert_int_equal(http_find_end("GET / HTTP/1.1\nHost", 19, &at), HTTP_END_BAD);
    at = 0;
    assert_int_equal(http_find_end("\n", 1, &at), HTTP_END_BAD);
    at = 0;
    assert_int_equal(http_find_end("\r\n\r\n", 4, &at), HTTP_END_FOUND);
}

/* Reads chunks in pieces of `cut` bytes; writes the data. Returns how it ended, and how many bytes it took. */
static enum http_step read_chunks(const char *bytes, size_t length, size_t cut, char *out, size_t *written,
                                  size_t *took)
{
    struct http_chunks chunks = {0};
    enum http_step step = HTTP_STEP_MORE;
    *written = *took = 0;
    for (size_t at = 0; at < length && (step == HTTP_STEP_MORE || step == HTTP_STEP_DATA);) {
        size_t piece = length - at < cut ? length - at : cut, used, data;
        step = http_next_chunk(&chunks, bytes + at, piece, &used, &data);
        assert_true(used <= piece && data <= used);
        at += used;
        *took = at;
        memcpy(out + *written, bytes + at - data, step == HTTP_STEP_DATA ? data : 0);
        *written += step == HTTP_STEP_DATA ? data : 0;
    }
    return step;
}

static void expect_chunks(const char *bytes, const char *data, const char *rest)
{
    for (size_t cut = 1; cut <= strlen(bytes); cut++) {
        char out[256];
        size_t written, took;
        assert_int_equal(read_chunks(bytes, strlen(bytes), cut, out, &written, &took), HTTP_STEP_END);
        assert_int_equal(written, strlen(data));
        assert_memory_equal(out, data, written);
        assert_string_equal(bytes + took, rest);
    }
}

TEST(chunks)
{
    expect_chunks("0\r\n\r\n", "", "");
    expect_chunks("5\r\nhello\r\n0\r\n\r\n", "hello", "");
    expect_chunks("5\r\nhello\r\n001\r\n!\r\n000\r\n\r\nGET / HTTP/1.1\r\n", "hello!", "GET / HTTP/1.1\r\n");
    expect_chunks("a;name=value;x\r\n0123456789\r\nA;\r\n0123456789\r\n0;x\r\n\r\n", "01234567890123456789", "");
    expect_chunks("2\r\n\r\n\r\n0\r\nA: b\r\nC:\td\r\n\r\n", "\r\n", "");
}

TEST(chunks_that_are_refused)
{
    const char *const wrong[] = {"\r\n",
                                 "g\r\n",
                                 " 5\r\nhello\r\n",
                                 "5 \r\nhello\r\n",
                                 "+5\r\nhello\r\n",
                                 "0x5\r\nhello\r\n",
                                 "5\nhello\r\n",
                                 "5\rhello\r\n",
                                 "5\r\nhello\n0\r\n\r\n",
                                 "5\r\nhellox\r\n",
                                 "5\r\nhello0\r\n",
                                 ";x\r\n",
                                 "5;a\nb\r\nhello",
                                 "5;a\rb\r\nhello",
                                 "5;\x01\r\n",
                                 "0\r\n\n",
                                 "0\r\n\rx",
                                 "0\r\n folded\r\n\r\n",
                                 "0\r\nA: b\n\r\n",
                                 "0\r\nA: b\rC\r\n",
                                 "1000000000000000\r\n",
                                 "ffffffffffffffffffff\r\n",
                                 "-1\r\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        for (size_t cut = 1; cut <= strlen(wrong[i]); cut++) {
            char out[256];
            size_t written, took;
            enum http_step step = read_chunks(wrong[i], strlen(wrong[i]), cut, out, &written, &took);
            if (step != HTTP_STEP_BAD) { fail_msg("%zu: %d", i, step); }
        }
    }
}

TEST(what_is_dropped_between_chunks_is_bounded)
{
    static char bytes[16384];
    char out[1];
    size_t written, took;
    for (int i = 0; i < 2; i++) {
        memset(bytes, 'a', sizeof bytes);
        memcpy(bytes, i == 0 ? "1;" : "0\r\n", i == 0 ? 2 : 3);
        assert_int_equal(read_chunks(bytes, sizeof bytes, sizeof bytes, out, &written, &took), HTTP_STEP_BAD);
        assert_true(took < 5000);
    }
}
