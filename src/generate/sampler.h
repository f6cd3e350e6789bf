/* Draws the next token from its logits.
 *
 * The order is that of transformers: repetition penalty, temperature, top-k, top-p, min-p, draw. The draw depends on
 * the logits, the seed and the position, and on nothing else: it is the same in any batch and after any restart. */
#ifndef GENERATE_SAMPLER_H
#define GENERATE_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* How tokens are drawn. All zero: the likeliest one, always. */
struct sampling {
    double temperature;        /* logits are divided by it; 0: the likeliest token, of equals the lowest id */
    double top_p;              /* of the likeliest tokens, as few as together have this share; 0 or from 1 on: all */
    double min_p;              /* only tokens at least this share as likely as the likeliest; 0: all */
    double repetition_penalty; /* logits of ids in the text are divided by it, if negative multiplied; 0 or 1: none */
    uint32_t top_k;            /* only the k likeliest; 0: all */
    uint64_t seed;
};

/* A token and its logit; later the logarithm of its probability. */
struct token_logit {
    float logit;
    int32_t id;
};

/* One thread's memory. */
struct sampler;

/* Makes the memory for a vocabulary. Owns: the caller ends it with sampler_close. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status sampler_open(uint32_t vocabulary, struct sampler **out, struct err *err);

/* Frees it. NULL is allowed. */
void sampler_close(struct sampler *sampler);

/* Draws the id that follows ids[count]; `count` is its position. Shapes: logits [vocabulary], which may be changed.
 * Errors: STATUS_NON_FINITE (a logit is infinite or no number). */
MUST_CHECK enum status sampler_draw(struct sampler *sampler, const struct sampling *sampling, float *logits,
                                    const int32_t *ids, uint32_t count, int32_t *id, struct err *err);

/* The `most` likeliest tokens by the logits as the model gave them, with the logarithms of their probabilities; and
 * that of `id`. Shapes: logits [vocabulary]; top [most], most <= vocabulary. */
float sampler_logprobs(struct sampler *sampler, const float *logits, int32_t id, uint32_t most,
                       struct token_logit *top);

#endif
