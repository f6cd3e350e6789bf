/* Unigram: a piece into the vocabulary entries whose scores add up to the most. */
#ifndef MODEL_TOKENIZER_UNIGRAM_H
#define MODEL_TOKENIZER_UNIGRAM_H

struct unigram;

/* Frees it. NULL is allowed. */
void unigram_close(struct unigram *unigram);

#endif
