#include "tokenizer/added_tokens.h"

#include <string.h>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

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

/* Returns whether the character at `at` has a flag; false at the end and where the bytes are not UTF-8. */
static bool has_flag(const char *text, size_t length, size_t at, uint8_t flag)
{
    size_t left = length - at < 4 ? length - at : 4;
    if (utf8_valid_prefix(text + at, left) == 0) { return false; }
    return (unicode_lookup(utf8_next(text, &at))->flags & flag) != 0;
}

static size_t character_before(const char *text, size_t at)
{
    do {
        at--;
    } while (at > 0 && ((unsigned char)text[at] & 0xC0) == 0x80);
    return at;
}

/* A place where a token's text was found: bytes start .. end-1, without the white space that it takes. */
struct match {
    const struct added_token *token;
    size_t start, end;
};

static bool stands_alone(const char *text, size_t length, const struct match *match)
{
    if (match->start > 0 && has_flag(text, length, character_before(text, match->start), UNICODE_WORD)) {
        return false;
    }
    return !has_flag(text, length, match->end, UNICODE_WORD);
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

/* Finds the first match that starts at `*from` or after it and before `until`. `*from` moves to where the search
 * continues: after the match, or to `until` or after it if there is none. */
static bool find_match(const struct added_set *set, const char *text, size_t length, size_t *from, size_t until,
                       struct match *match)
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
        struct match candidate = {&set->tokens[index], at, at + matched};
        at = candidate.end; /* also after a candidate that does not count: its inside is not searched */
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

size_t added_space_after(const char *text, size_t length, size_t at)
{
    while (at < length && has_flag(text, length, at, UNICODE_SPACE)) { utf8_next(text, &at); }
    return at;
}

/* Returns the end of the white space that a match takes after it. If another token cuts it short, the search goes on
 * at that token. */
static size_t take_spaces(struct added_cuts *cuts, const struct match *match)
{
    if (cuts->spaces < match->end) { cuts->spaces = added_space_after(cuts->text, cuts->length, match->end); }
    size_t searched = match->end;
    struct match other;
    while (find_match(cuts->set, cuts->text, cuts->length, &searched, cuts->spaces, &other)) {
        if (other.token->lstrip) { continue; }
        cuts->searched = other.start;
        return other.start;
    }
    return cuts->spaces;
}

struct added_cut added_cuts_next(struct added_cuts *cuts, size_t until)
{
    struct added_cut cut = {.from = cuts->at, .until = until};
    struct match match;
    while (find_match(cuts->set, cuts->text, cuts->length, &cuts->searched, until, &match)) {
        if (match.end <= cuts->at) { continue; } /* the previous token has taken this white space */
        size_t start = match.start;
        if (match.token->lstrip && start > cuts->at) { start = added_space_before(cuts->text, cuts->at, start); }
        cut.until = start < cuts->at ? cuts->at : start;
        cut.token = match.token;
        cuts->at = match.token->rstrip ? take_spaces(cuts, &match) : match.end;
        cut.end = match.token->rstrip ? cuts->spaces : match.end;
        return cut;
    }
    cuts->at = until;
    return cut;
}
