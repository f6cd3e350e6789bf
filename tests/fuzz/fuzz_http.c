/* Any bytes as a request over HTTP: its head, then chunks. Cut into single bytes they are read as they are whole. The
 * strings of a head are parts of it and have no control characters, so that a second reader sees the same request. */
#include <string.h>
#include <strings.h>

#include "fuzz.h"
#include "http/parser.h"

enum { MAX_BYTES = 1 << 14 };

static void check_text(const char *text, const char *begin, const char *end)
{
    FUZZ_CHECK(text >= begin && text < end && memchr(text, '\0', (size_t)(end - text)));
    for (; *text; text++) { FUZZ_CHECK(((unsigned char)*text >= ' ' || *text == '\t') && *text != 0x7f); }
}

static void check_head(const struct http_head *head, const char *text, size_t length)
{
    const char *end = text + length + 2;
    check_text(head->method, text, end);
    check_text(head->path, text, end);
    check_text(head->query, text, end);
    FUZZ_CHECK(head->method[0] != '\0' && head->path[0] == '/' && !strpbrk(head->path, " \t?"));
    FUZZ_CHECK(!(head->chunked && head->has_length) && (head->has_length || head->length == 0));
    unsigned hosts = 0, lengths = 0;
    for (const char *name = head->headers, *value; *name; name = value + strlen(value) + 1) {
        check_text(name, text, end);
        value = name + strlen(name) + 1;
        check_text(value, text, end);
        FUZZ_CHECK(!strpbrk(name, ": \t") && http_find_header(head->headers, name));
        hosts += strcasecmp(name, "Host") == 0;
        lengths += strcasecmp(name, "Content-Length") == 0 || strcasecmp(name, "Transfer-Encoding") == 0;
    }
    FUZZ_CHECK(hosts <= 1 && lengths <= 1 && hosts == (head->host != NULL));
    FUZZ_CHECK(lengths == (unsigned)head->chunked + (unsigned)head->has_length);
}

/* Reads a head in pieces of `cut` bytes. Returns how much of the input it is; 0: it has no end, or is malformed. */
static size_t find_head(const uint8_t *data, size_t size, size_t cut)
{
    size_t at = 0;
    enum http_end end = HTTP_END_MISSING;
    for (size_t have = 0; have < size && end == HTTP_END_MISSING;) {
        have += size - have < cut ? size - have : cut;
        end = http_find_end((const char *)data, have, &at);
        FUZZ_CHECK(at <= have);
    }
    return end == HTTP_END_FOUND ? at : 0;
}

/* Reads chunks in pieces of `cut` bytes; returns a sum over the data, and how much was read. */
static uint64_t read_chunks(const uint8_t *data, size_t size, size_t cut, enum http_step *end, size_t *took)
{
    struct http_chunks chunks = {0};
    uint64_t sum = 0;
    *end = HTTP_STEP_MORE;
    *took = 0;
    while (*took < size && (*end == HTTP_STEP_MORE || *end == HTTP_STEP_DATA)) {
        size_t used, length, piece = size - *took < cut ? size - *took : cut;
        *end = http_next_chunk(&chunks, (const char *)data + *took, piece, &used, &length);
        FUZZ_CHECK(used > 0 && used <= piece && length <= used && (length > 0) == (*end == HTTP_STEP_DATA));
        *took += used;
        for (size_t i = *took - length; i < *took; i++) { sum = sum * 131 + data[i] + 1; }
    }
    if (*end == HTTP_STEP_DATA) { *end = HTTP_STEP_MORE; }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > MAX_BYTES) { return 0; }
    size_t head_length = find_head(data, size, size), took, took_cut;
    FUZZ_CHECK(head_length == find_head(data, size, 1));
    if (head_length > 0) {
        struct http_head head;
        const char *error = NULL;
        FUZZ_CHECK(head_length >= 4);
        size_t length = head_length - 4;
        char *text = malloc(length + 2);
        FUZZ_CHECK(text != NULL);
        memcpy(text, data, length);
        int status = http_read_head(text, length, &head, &error);
        FUZZ_CHECK(status == 0 || (status >= 400 && status <= 501 && error));
        if (status == 0) { check_head(&head, text, length); }
        free(text);
    }
    enum http_step end, end_cut;
    uint64_t sum = read_chunks(data + head_length, size - head_length, size + 1, &end, &took);
    FUZZ_CHECK(sum == read_chunks(data + head_length, size - head_length, 1, &end_cut, &took_cut));
    FUZZ_CHECK(end == end_cut && took == took_cut);
    return 0;
}
