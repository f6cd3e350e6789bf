/* Tokens that are matched literally in the text, before or after normalisation, and never split: [CLS], [MASK], and
 * tokens that users added. The leftmost match counts, and of several at that place the longest. */
#ifndef TOKENIZER_ADDED_TOKENS_H
#define TOKENIZER_ADDED_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "tokenizer/trie.h"

struct added_token {
    char *content;
    size_t length;
    int32_t id;
    bool single_word; /* no match where it touches a letter or digit */
    bool lstrip;      /* takes the white space before it */
    bool rstrip;      /* takes the white space after it */
    bool normalized;  /* looked for in the normalised text, in its own normalised form */
    bool special;     /* may be left out when ids are decoded */
};

/* The tokens that one search looks for. Zero-initialise for none. */
struct added_set {
    const struct added_token *tokens; /* borrowed */
    struct trie *trie;                /* pattern -> index in tokens; NULL for an empty set */
    bool starts[256];                 /* the bytes that a pattern starts with */
    int only_start;                   /* the byte that all patterns start with, or -1 */
};

/* A text that is being cut at the tokens in it. Set the first three members and leave the others zero. */
struct added_cuts {
    const struct added_set *set;
    const char *text;
    size_t length;
    size_t at;       /* the text before has been handed out, or a token has taken it */
    size_t searched; /* the search goes on from here; this may be in white space that a token has taken */
    size_t spaces;   /* the end of the white space that was examined last */
};

/* The next part of a text: the bytes from .. until-1, which may be none, and the token that follows them, or NULL. The
 * token's place ends at `end`: after all the white space that it strips, even where another token begins in it. */
struct added_cut {
    size_t from, until, end;
    const struct added_token *token;
};

/* Builds a set. Shapes: keys [count], ids are indices in `tokens`.
 * Owns: the caller ends it with added_set_close; `tokens` must outlive it. Errors: as trie_build. */
MUST_CHECK enum status added_set_build(struct added_set *set, const struct added_token *tokens, struct trie_key *keys,
                                       size_t count, struct err *err);

/* Frees what the set has allocated and leaves an empty one; the tokens stay with their owner. */
void added_set_close(struct added_set *set);

/* Hands out the text up to the next token that begins before `until`, or up to `until` if none does. `until` is a
 * border of characters above cuts->at, and the text before it is valid UTF-8. The parts follow each other and never
 * overlap: cut.from <= cut.until <= cuts->at <= cuts->length, and each token has at least one byte. Takes O(length) for
 * a whole text.
 *
 * A token takes the white space beside it that it strips. If another token begins in that white space, the white space
 * ends where the other one begins, unless the other one strips the white space before it: then that other token begins
 * after this white space, and if nothing is left of it, it is skipped. (It is also skipped where `tokenizers` 0.23
 * panics, "bad split".) */
struct added_cut added_cuts_next(struct added_cuts *cuts, size_t until);

/* Returns the start of the white space that ends at `at`, but at least `from`; `at` if there is none. */
size_t added_space_before(const char *text, size_t from, size_t at);

/* Returns the end of the white space that starts at `at`; `at` if there is none. The text need not be valid UTF-8. */
size_t added_space_after(const char *text, size_t length, size_t at);

#endif
