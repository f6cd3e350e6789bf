/* Tokens per second of one core over the lines of a file.
 *
 * usage: bench_tokenizer DIRECTORY FILE [MAX_TOKENS [SECONDS]]
 * tests/bench/bench_tokenizer.py runs it beside the `tokenizers` package on the same lines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/file.h"
#include "model/tokenizer.h"

struct totals {
    uint64_t texts, tokens, bytes;
};

static enum status encode_lines(const struct tokenizer *tokenizer, const struct buffer *text, uint32_t max_tokens,
                                int32_t *ids, struct totals *totals, struct err *err)
{
    for (size_t at = 0; at < text->length;) {
        const char *end = memchr(text->data + at, '\n', text->length - at);
        size_t length = end != NULL ? (size_t)(end - text->data) - at : text->length - at;
        uint32_t count;
        bool truncated;
        enum status status =
            tokenizer_encode(tokenizer, text->data + at, length, max_tokens, ids, &count, &truncated, err);
        if (status != STATUS_OK)
            return status;
        *totals = (struct totals){totals->texts + 1, totals->tokens + count, totals->bytes + length};
        at += length + 1;
    }
    return STATUS_OK;
}

static enum status run(const char *directory, const char *path, uint32_t max_tokens, double seconds, struct err *err)
{
    struct tokenizer *tokenizer = NULL;
    struct buffer text = {0};
    struct totals totals = {0};
    int32_t *ids = malloc(max_tokens * sizeof *ids);
    uint64_t opening = clock_now_ns();
    enum status status = ids != NULL ? tokenizer_open(directory, &tokenizer, err)
                                     : err_set(err, STATUS_NO_MEMORY, "no memory for %u ids", max_tokens);
    uint64_t start = clock_now_ns(), elapsed = 0;
    if (status == STATUS_OK)
        status = file_read(path, (size_t)1 << 30, &text, err);
    while (status == STATUS_OK && (double)elapsed < seconds * 1e9) {
        status = encode_lines(tokenizer, &text, max_tokens, ids, &totals, err);
        elapsed = clock_now_ns() - start;
    }
    if (status == STATUS_OK)
        printf("{\"open_ms\": %.1f, \"texts\": %llu, \"tokens_per_s\": %.0f, \"mb_per_s\": %.1f}\n",
               (double)(start - opening) / 1e6, (unsigned long long)totals.texts,
               (double)totals.tokens / ((double)elapsed / 1e9), (double)totals.bytes / ((double)elapsed / 1e3));
    buffer_free(&text);
    tokenizer_close(tokenizer);
    free(ids);
    return status;
}

int main(int argc, char **argv)
{
    struct err err = {0};
    if (argc < 3) {
        fprintf(stderr, "usage: bench_tokenizer DIRECTORY FILE [MAX_TOKENS [SECONDS]]\n");
        return 64;
    }
    uint32_t max_tokens = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 512;
    if (run(argv[1], argv[2], max_tokens, argc > 4 ? strtod(argv[4], NULL) : 2.0, &err) == STATUS_OK)
        return 0;
    fprintf(stderr, "bench_tokenizer: %s\n", err.message);
    return 1;
}
