/* From ids back to text: the `decoder` of a tokenizer's files, a chain of steps. Each step takes the tokens of a text
 * one after the other and gives tokens to the next step; from a step on that joins them, there is one token, in parts.
 */
#ifndef TOKENIZER_DECODE_H
#define TOKENIZER_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct cJSON;
struct tokenizer_spec;
struct added_token;
struct buffer;
struct trie;

enum decode_kind {
    DECODE_WORDS, /* a blank before each token but the first, unless it begins with `pattern`, which is dropped */
    DECODE_METASPACE,
    DECODE_REPLACE, /* `pattern` by `content` */
    DECODE_STRIP,   /* drops up to `start` and `stop` of the character `pattern` at the ends */
    DECODE_BYTE_FALLBACK,
    DECODE_BYTE_LEVEL, /* joins */
};

struct decode_step {
    enum decode_kind kind;
    char *pattern, *content; /* owned; a pattern of DECODE_WORDS may be NULL */
    uint32_t start, stop;
    bool first;   /* DECODE_METASPACE: the first token's marks are dropped */
    bool cleanup; /* DECODE_WORDS: blanks before punctuation in a token are dropped */
    bool joined;  /* an earlier step joins the tokens */
};

enum { DECODE_MAX_STEPS = 12 };

/* Zero-initialise for none. */
struct decode_chain {
    struct decode_step steps[DECODE_MAX_STEPS];
    size_t count;
    bool joined;        /* some step joins the tokens */
    struct err refused; /* the reason why ids cannot be decoded; STATUS_OK: they can */
};

/* One token's text. */
struct decode_token {
    int32_t id;
    uint32_t start, length; /* in decode_tokens.bytes */
    bool special;
    bool normal; /* the text is the normal form of an added token's content */
};

/* The texts of all tokens, sorted by id. Zero-initialise for none. */
struct decode_tokens {
    struct decode_token *list;
    size_t count;
    char *bytes;
};

/* Reads the part `decoder` of a tokenizer.json, which may be NULL. One that is not supported is noted in
 * chain->refused. Owns: the caller ends it with decode_chain_free, also after an error. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status decode_chain_read(const struct cJSON *part, struct decode_chain *chain, struct err *err);

/* Frees the steps' contents and leaves an empty chain. */
void decode_chain_free(struct decode_chain *chain);

/* Copies the texts of a vocabulary that is sorted by id, and of added tokens. An added token that is looked for in
 * normalised text is decoded as its normal form, and is special only if that form is the content of a special token, as
 * in the package. Shapes: normal [added_count], empty for other tokens; `contents` finds the indices in `added`.
 * Owns: the caller ends it with decode_tokens_free, also after an error. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status decode_tokens_copy(const struct tokenizer_spec *spec, const struct added_token *added,
                                          size_t added_count, const struct buffer *normal, const struct trie *contents,
                                          struct decode_tokens *tokens, struct err *err);

/* The token with this id, or NULL. */
struct decode_token *decode_tokens_find(const struct decode_tokens *tokens, int32_t id);

void decode_tokens_free(struct decode_tokens *tokens);

#endif
