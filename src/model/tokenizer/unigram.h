/* Unigram: a piece into the vocabulary entries whose scores add up to the most. */
#ifndef MODEL_TOKENIZER_UNIGRAM_H
#define MODEL_TOKENIZER_UNIGRAM_H

#include <stddef.h>
#include <stdint.h>

/* What is known of a piece that is a token: most words are tokens that no other way beats. */
enum { PIECE_UNMET, PIECE_WHOLE, PIECE_SPLIT };

/* What goes with the tokenizer's vocabulary; read-only but for `met`. */
struct unigram {
    double *scores;       /* [ids]; owned */
    _Atomic uint8_t *met; /* [ids]: PIECE_...; noted by the thread that first meets it, all find the same; owned */
    double unknown_score;
    size_t longest; /* token, in bytes; at least a character */
    int32_t unknown;
    int32_t bytes[256]; /* the ids of the bytes of unknown characters; all TRIE_NONE where they are not used */
};

#endif
