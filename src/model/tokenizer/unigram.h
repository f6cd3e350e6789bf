/* Unigram: a piece into the vocabulary entries whose scores add up to the most. */
#ifndef MODEL_TOKENIZER_UNIGRAM_H
#define MODEL_TOKENIZER_UNIGRAM_H

#include <stddef.h>
#include <stdint.h>

/* What goes with the tokenizer's vocabulary; read-only. */
struct unigram {
    double *scores; /* [ids]; owned */
    double unknown_score;
    size_t longest; /* token, in bytes; at least a character */
    int32_t unknown;
    int32_t bytes[256]; /* the ids of the bytes of unknown characters; all TRIE_NONE where they are not used */
};

#endif
