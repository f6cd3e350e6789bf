/* Reads lines, writes ids, or the reverse: the side of the golden comparison that is ours.
 *
 * usage: tokenize_lines DIRECTORY MAX_TOKENS < texts > ids
 *        tokenize_lines DIRECTORY places < texts > ids and places
 *        tokenize_lines DIRECTORY decode < ids > texts
 * Texts that are read end with a NUL, so that they may hold line ends. For each: a count and the ids as native int32.
 * With places, each id is followed by the two ends of its place in the text. The latter are read for decoding. For
 * each: the text with special tokens and the one without, each as its length, a native int32, and its bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

static int fail(const struct err *err)
{
    fprintf(stderr, "tokenize_lines: %s\n", err->message);
    return 1;
}

static int run(const struct tokenizer *tokenizer, uint32_t max_tokens)
{
    char *line = NULL;
    size_t capacity = 0;
    int32_t *ids = NULL;
    struct err err = {0};
    ssize_t length;
    while ((length = getdelim(&line, &capacity, '\0', stdin)) > 0) {
        size_t bound = tokenizer_bound(tokenizer, (size_t)length - 1);
        uint32_t limit = bound < max_tokens ? (uint32_t)bound : max_tokens, count;
        bool truncated;
        ids = realloc(ids, (limit + 1) * sizeof *ids);
        if (ids == NULL) { return 1; }
        if (tokenizer_encode(tokenizer, line, (size_t)length - 1, limit, ids + 1, &count, &truncated, &err) !=
            STATUS_OK) {
            return fail(&err);
        }
        if (truncated && limit == bound) {
            fprintf(stderr, "tokenize_lines: more ids than tokenizer_bound says\n");
            return 1;
        }
        ids[0] = (int32_t)count;
        fwrite(ids, sizeof *ids, count + 1, stdout);
    }
    free(ids);
    free(line);
    return ferror(stdin) || fflush(stdout) != 0;
}

/* Also checks that the ids are those of tokenizer_encode. */
static int run_places(const struct tokenizer *tokenizer)
{
    char *line = NULL;
    size_t capacity = 0;
    struct err err = {0};
    ssize_t length;
    while ((length = getdelim(&line, &capacity, '\0', stdin)) > 0) {
        uint32_t most = (uint32_t)tokenizer_bound(tokenizer, (size_t)length - 1), count, encoded;
        int32_t *ids = malloc((most + 1) * sizeof *ids);
        struct tokenizer_token *tokens;
        bool truncated, same;
        if (ids == NULL) { return 1; }
        if (tokenizer_tokens(tokenizer, line, (size_t)length - 1, true, &tokens, &count, &err) != STATUS_OK ||
            tokenizer_encode(tokenizer, line, (size_t)length - 1, most, ids, &encoded, &truncated, &err) != STATUS_OK) {
            return fail(&err);
        }
        same = count == encoded;
        fwrite(&count, sizeof count, 1, stdout);
        for (uint32_t i = 0; i < count && same; i++) {
            const int32_t row[] = {tokens[i].id, (int32_t)tokens[i].from, (int32_t)tokens[i].until};
            same = tokens[i].id == ids[i];
            fwrite(row, sizeof *row, 3, stdout);
        }
        if (!same) {
            fprintf(stderr, "tokenize_lines: with places, a text has other ids\n");
            return 1;
        }
        free(tokens);
        free(ids);
    }
    free(line);
    return ferror(stdin) || fflush(stdout) != 0;
}

/* Puts one id after the other: each piece must be whole characters, and all of them what tokenizer_decode makes. */
static int decode_ids(const struct tokenizer *tokenizer, const int32_t *ids, size_t count, bool specials)
{
    struct err err = {0};
    struct tokenizer_stream *stream;
    struct buffer whole = {0}, joined = {0};
    if (tokenizer_decode(tokenizer, ids, count, specials, &whole, &err) != STATUS_OK ||
        tokenizer_stream_open(tokenizer, specials, false, &stream, &err) != STATUS_OK) {
        return fail(&err);
    }
    bool valid = true;
    for (size_t i = 0; i <= count; i++) {
        size_t before = joined.length;
        if (i < count) {
            tokenizer_stream_put(stream, ids[i], &joined);
        } else {
            tokenizer_stream_end(stream, &joined);
        }
        valid &= joined.length == before || utf8_valid(joined.data + before, joined.length - before);
    }
    tokenizer_stream_close(stream);
    if (!valid || joined.length != whole.length ||
        (whole.length > 0 && memcmp(joined.data, whole.data, whole.length) != 0)) {
        fprintf(stderr, "tokenize_lines: the pieces of a text are not the text\n");
        return 1;
    }
    int32_t length = (int32_t)whole.length;
    fwrite(&length, sizeof length, 1, stdout);
    if (length > 0) { fwrite(whole.data, 1, whole.length, stdout); }
    buffer_free(&whole);
    buffer_free(&joined);
    return 0;
}

static int run_decoding(const struct tokenizer *tokenizer)
{
    int32_t count, *ids = NULL;
    while (fread(&count, sizeof count, 1, stdin) == 1) {
        ids = realloc(ids, ((size_t)count + 1) * sizeof *ids);
        if (ids == NULL || fread(ids, sizeof *ids, (size_t)count, stdin) != (size_t)count) { return 1; }
        for (int specials = 1; specials >= 0; specials--) {
            if (decode_ids(tokenizer, ids, (size_t)count, specials) != 0) { return 1; }
        }
    }
    free(ids);
    return ferror(stdin) || fflush(stdout) != 0;
}

int main(int argc, char **argv)
{
    struct err err = {0};
    struct tokenizer *tokenizer;
    if (argc != 3) {
        fprintf(stderr, "usage: tokenize_lines DIRECTORY MAX_TOKENS|places|decode\n");
        return 2;
    }
    if (tokenizer_open(argv[1], &tokenizer, &err) != STATUS_OK) { return fail(&err); }
    int code = strcmp(argv[2], "decode") == 0   ? run_decoding(tokenizer)
               : strcmp(argv[2], "places") == 0 ? run_places(tokenizer)
                                                : run(tokenizer, (uint32_t)strtoul(argv[2], NULL, 10));
    tokenizer_close(tokenizer);
    return code;
}
