/* Tokens that are matched literally in the text, before or after normalisation, and never split: [CLS], [MASK], and
 * tokens that users added. The leftmost match counts, of several there the longest. */
#ifndef MODEL_TOKENIZER_ADDED_TOKENS_H
#define MODEL_TOKENIZER_ADDED_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/tokenizer/trie.h"

struct added_token {
    char *content;
    size_t length;
    int32_t id;
    bool single_word; /* not where it touches a letter or digit */
    bool lstrip;      /* takes the white space before it */
    bool rstrip;      /* takes the white space behind it */
    bool normalized;  /* looked for in the normalised text, in its own normalised form */
};

/* The tokens that one search looks for. Zero-initialise for none. */
struct added_set {
    const struct added_token *tokens; /* borrowed */
    struct trie *trie;                /* pattern -> index in tokens; NULL for an empty set */
    bool starts[256];                 /* the bytes that a pattern starts with */
    int only_start;                   /* the byte that all patterns start with, or -1 */
};

/* Where a token was found: bytes start .. end-1 of the text, the white space that it takes not included. */
struct added_match {
    const struct added_token *token;
    size_t start, end;
};

/* Builds a set. Shapes: keys [count], ids are indices in `tokens`.
 * Owns: the caller ends it with added_set_close; `tokens` must outlive it. Errors: as trie_build. */
MUST_CHECK enum status added_set_build(struct added_set *set, const struct added_token *tokens, struct trie_key *keys,
                                       size_t count, struct err *err);

/* Frees what the set has allocated and leaves an empty one; the tokens stay their owner's. */
void added_set_close(struct added_set *set);

/* Finds the first match that starts at `*from` or behind it and before `until`, which are borders of characters.
 * `*from` moves to where the search continues: after the match, or to `until` or after it if there is none. */
bool added_set_find(const struct added_set *set, const char *text, size_t length, size_t *from, size_t until,
                    struct added_match *match);

/* Takes in the white space that the token takes, but none before `from`. */
void added_match_widen(struct added_match *match, const char *text, size_t length, size_t from);

/* Where the white space that ends at `at` starts, but not before `from`; `at` where there is none. */
size_t added_space_before(const char *text, size_t from, size_t at);

/* Where the white space that starts at `at` ends; `at` where there is none. */
size_t added_space_behind(const char *text, size_t length, size_t at);

#endif
