#include "model/tokenizer/added_tokens.h"

#include <string.h>

#include "base/utf8.h"
#include "model/tokenizer/unicode.h"

enum status added_set_build(struct added_set *set, const struct added_token *tokens, struct trie_key *keys,
                            size_t count, struct err *err)
{
    *set = (struct added_set){.tokens = tokens, .only_start = -1};
    if (count == 0) { return STATUS_OK; }
    TRY(trie_build(keys, count, &set->trie, err));
    for (size_t i = 0; i < count; i++) { set->starts[(unsigned char)keys[i].bytes[0]] = true; }
    if (keys[0].bytes[0] == keys[count - 1].bytes[0]) { /* they are sorted now */
        set->only_start = (unsigned char)keys[0].bytes[0];
    }
    return STATUS_OK;
}

void added_set_close(struct added_set *set)
{
    trie_close(set->trie);
    *set = (struct added_set){.only_start = -1};
}

/* Whether the character that starts at `at` is part of a word; false at the end and where the bytes are not UTF-8. */
static bool word_at(const char *text, size_t length, size_t at)
{
    size_t left = length - at < 4 ? length - at : 4;
    if (utf8_valid_prefix(text + at, left) == 0) { return false; }
    return (unicode_lookup(utf8_next(text, &at))->flags & UNICODE_WORD) != 0;
}

static size_t character_before(const char *text, size_t at)
{
    do {
        at--;
    } while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80);
    return at;
}

static bool stands_alone(const char *text, size_t length, const struct added_match *match)
{
    if (match->start > 0 && word_at(text, length, character_before(text, match->start))) { return false; }
    return !word_at(text, length, match->end);
}

/* The next byte in from..until that a pattern starts with, or `until`. */
static size_t next_start(const struct added_set *set, const char *text, size_t from, size_t until)
{
    if (set->only_start >= 0) {
        const char *found = memchr(text + from, set->only_start, until - from);
        return found ? (size_t)(found - text) : until;
    }
    while (from < until && !set->starts[(unsigned char)text[from]]) { from++; }
    return from;
}

bool added_set_find(const struct added_set *set, const char *text, size_t length, size_t *from, size_t until,
                    struct added_match *match)
{
    size_t at = *from;
    if (!set->trie) { at = at < until ? until : at; }
    while (at < until) {
        at = next_start(set, text, at, until);
        size_t matched = 0;
        int32_t index = at < until ? trie_longest(set->trie, TRIE_ROOT, text + at, length - at, &matched) : TRIE_NONE;
        if (index == TRIE_NONE) {
            at += at < until;
            continue;
        }
        struct added_match candidate = {&set->tokens[index], at, at + matched};
        at = candidate.end; /* also behind one that does not count: nothing is looked for inside it */
        if (candidate.token->single_word && !stands_alone(text, length, &candidate)) { continue; }
        *match = candidate;
        *from = at;
        return true;
    }
    *from = at;
    return false;
}

size_t added_space_before(const char *text, size_t from, size_t at)
{
    while (at > from) {
        size_t before = character_before(text, at), read = before;
        if (!(unicode_lookup(utf8_next(text, &read))->flags & UNICODE_SPACE)) { break; }
        at = before;
    }
    return at;
}

size_t added_space_behind(const char *text, size_t length, size_t at)
{
    for (size_t read = at; read < length; at = read) {
        if (!(unicode_lookup(utf8_next(text, &read))->flags & UNICODE_SPACE)) { break; }
    }
    return at;
}

void added_match_widen(struct added_match *match, const char *text, size_t length, size_t from)
{
    if (match->token->lstrip) {
        match->start = added_space_before(text, from < match->start ? from : match->start, match->start);
    }
    if (match->token->rstrip) { match->end = added_space_behind(text, length, match->end); }
}
