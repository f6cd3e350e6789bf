/* Unigram: splits a piece into the vocabulary entries with the largest sum of scores. */
#ifndef TOKENIZER_UNIGRAM_H
#define TOKENIZER_UNIGRAM_H

struct unigram;

/* Frees it. NULL is allowed. */
void unigram_close(struct unigram *unigram);

#endif
