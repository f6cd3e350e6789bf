/* Reads lines, writes ids: the side of the golden comparison that is ours.
 *
 * usage: tokenize_lines DIRECTORY MAX_TOKENS < texts > ids
 * Texts end with a NUL, so that they may hold line ends. For each: a count and the ids as native int32. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int main(int argc, char **argv)
{
    struct err err = {0};
    struct tokenizer *tokenizer;
    if (argc != 3) {
        fprintf(stderr, "usage: tokenize_lines DIRECTORY MAX_TOKENS\n");
        return 2;
    }
    if (tokenizer_open(argv[1], &tokenizer, &err) != STATUS_OK) { return fail(&err); }
    int code = run(tokenizer, (uint32_t)strtoul(argv[2], NULL, 10));
    tokenizer_close(tokenizer);
    return code;
}
