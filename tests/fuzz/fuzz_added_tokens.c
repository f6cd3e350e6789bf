/* Any added tokens and any text: the parts that the text is cut into follow each other, and are those that a
 * plain search finds, which knows neither tries nor windows. The first byte is the number of tokens; for each follow a
 * byte of flags, one that says how long it is, and the characters, one byte each; the rest is text, in the same
 * characters or, if the top bit of the first byte is set, any bytes, which then only must not lead out of the text. */
#include <string.h>

#include "base/utf8.h"
#include "fuzz.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/unicode.h"

enum { MAX_TOKENS = 12, MAX_LENGTH = 4, MAX_TEXT = 512, MAX_PARTS = 2 * MAX_TEXT + 2, LETTER = 3 };

static const char *const characters[] = {" ", "\t", "\n", "\xE3\x80\x80", "\xC2\x85", "a",
                                         "b", "_",  "<",  "\xC3\xA9",     "!"};

/* A part of the text, or a token where `token` is one. */
struct part {
    size_t from, until;
    const struct added_token *token;
};

struct parts {
    struct part parts[MAX_PARTS];
    size_t count;
};

static void put_text(struct parts *parts, size_t from, size_t until)
{
    struct part *last = parts->count > 0 ? &parts->parts[parts->count - 1] : NULL;
    if (from == until) { return; }
    if (last && !last->token && last->until == from) {
        last->until = until;
    } else {
        FUZZ_CHECK(parts->count < MAX_PARTS);
        parts->parts[parts->count++] = (struct part){from, until, NULL};
    }
}

static void put_token(struct parts *parts, const struct added_token *token)
{
    FUZZ_CHECK(parts->count < MAX_PARTS);
    parts->parts[parts->count++] = (struct part){0, 0, token};
}

static size_t read_characters(const uint8_t *data, size_t size, char *out)
{
    size_t length = 0;
    for (size_t i = 0; i < size; i++) {
        const char *character = characters[data[i] % (sizeof characters / sizeof characters[0])];
        memcpy(out + length, character, strlen(character));
        length += strlen(character);
    }
    return length;
}

/* Returns how many bytes of the input it has read. */
static size_t read_tokens(const uint8_t *data, size_t size, struct added_token *tokens,
                          char (*contents)[LETTER * MAX_LENGTH + 1], size_t *count)
{
    size_t at = 1, wanted = (data[0] & 0x7F) % (MAX_TOKENS + 1);
    *count = 0;
    while (*count < wanted && size - at >= 2 + MAX_LENGTH) {
        struct added_token *token = &tokens[*count];
        uint8_t flags = data[at];
        *token = (struct added_token){
            .content = contents[*count], .single_word = flags & 1, .lstrip = flags & 2, .rstrip = flags & 4};
        token->length = read_characters(data + at + 2, 1 + data[at + 1] % MAX_LENGTH, token->content);
        token->content[token->length] = '\0';
        at += 2 + MAX_LENGTH;
        bool known = false;
        for (size_t i = 0; i < *count; i++) { known |= strcmp(tokens[i].content, token->content) == 0; }
        *count += !known;
    }
    return at;
}

static bool has(const char *text, size_t at, uint8_t flag)
{
    return (unicode_lookup(utf8_next(text, &at))->flags & flag) != 0;
}

static size_t before(const char *text, size_t at)
{
    do {
        at--;
    } while (((unsigned char)text[at] & 0xC0) == 0x80);
    return at;
}

static const struct added_token *longest_at(const struct added_token *tokens, size_t count, const char *text,
                                            size_t left)
{
    const struct added_token *best = NULL;
    for (size_t i = 0; i < count; i++) {
        bool here = tokens[i].length <= left && memcmp(text, tokens[i].content, tokens[i].length) == 0;
        if (here && (!best || tokens[i].length > best->length)) { best = &tokens[i]; }
    }
    return best;
}

/* Cuts the text as the package does. False where the package panics. */
static bool cut_plainly(const struct added_token *tokens, size_t count, const char *text, size_t length,
                        struct parts *parts)
{
    size_t done = 0;
    for (size_t at = 0; at < length;) {
        const struct added_token *token = longest_at(tokens, count, text + at, length - at);
        size_t start = at, stop = at + (token ? token->length : 1);
        at = stop;
        if (!token) { continue; }
        if (token->single_word && ((start > 0 && has(text, before(text, start), UNICODE_WORD)) ||
                                   (stop < length && has(text, stop, UNICODE_WORD)))) {
            continue;
        }
        while (token->lstrip && start > 0 && has(text, before(text, start), UNICODE_SPACE)) {
            start = before(text, start);
        }
        if (token->lstrip && start < done) { start = done; }
        while (token->rstrip && stop < length && has(text, stop, UNICODE_SPACE)) { utf8_next(text, &stop); }
        if (start > stop) { return false; }
        if (done < start) { put_text(parts, done, start); }
        if (start < stop) { put_token(parts, token); }
        done = stop;
    }
    put_text(parts, done, length);
    return true;
}

static void cut(const struct added_set *set, const char *text, size_t length, size_t window, struct parts *parts)
{
    struct added_cuts cuts = {set, text, length};
    while (cuts.at < length) {
        size_t at = cuts.at, until = at + (length - at < window ? length - at : window);
        until = at + utf8_valid_prefix(text + at, until - at);
        if (until == at) { return; }
        struct added_cut next = added_cuts_next(&cuts, until);
        FUZZ_CHECK(next.from == at && next.from <= next.until && next.until <= cuts.at && cuts.at <= length);
        FUZZ_CHECK(next.token ? next.until < cuts.at && next.until < until + MAX_TEXT
                              : cuts.at == until && next.until == until);
        put_text(parts, next.from, next.until);
        if (next.token) { put_token(parts, next.token); }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct parts expected, whole, windows;
    struct added_token tokens[MAX_TOKENS];
    char contents[MAX_TOKENS + 1][LETTER * MAX_LENGTH + 1];
    struct trie_key keys[MAX_TOKENS];
    size_t count, length;
    if (size < 2) { return 0; }
    size_t at = read_tokens(data, size, tokens, contents, &count);
    if (size - at > MAX_TEXT) { return 0; }
    bool any = data[0] & 0x80;
    char *text = malloc(LETTER * (size - at) + 1); /* of just its length, so that a sanitizer sees its end */
    FUZZ_CHECK(text != NULL);
    if (any) {
        length = size - at;
        memcpy(text, data + at, length);
    } else {
        length = read_characters(data + at, size - at, text);
    }
    char *fitting = realloc(text, length + !length);
    FUZZ_CHECK(fitting != NULL);
    text = fitting;
    for (size_t i = 0; i < count; i++) { keys[i] = (struct trie_key){tokens[i].content, tokens[i].length, (int32_t)i}; }
    struct added_set set;
    struct err err = {0};
    FUZZ_CHECK(added_set_build(&set, tokens, keys, count, &err) == STATUS_OK);
    expected.count = whole.count = windows.count = 0;
    cut(&set, text, length, length, &whole);
    cut(&set, text, length, 4 + data[1] % 8, &windows);
    if (utf8_valid(text, length) && cut_plainly(tokens, count, text, length, &expected)) {
        FUZZ_CHECK(whole.count == expected.count);
        for (size_t i = 0; i < whole.count; i++) {
            const struct part *ours = &whole.parts[i], *theirs = &expected.parts[i];
            FUZZ_CHECK(ours->token == theirs->token && ours->from == theirs->from && ours->until == theirs->until);
        }
    }
    added_set_close(&set);
    free(text);
    return 0;
}
