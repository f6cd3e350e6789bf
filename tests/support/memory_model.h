/* A random BERT in memory, for tests of the engine that need neither files nor a tokenizer. */
#ifndef TESTS_MEMORY_MODEL_H
#define TESTS_MEMORY_MODEL_H

#include "model/model.h"

struct memory_shape {
    uint32_t vocabulary, positions, hidden, layers, heads, intermediate;
    bool relative_bias; /* with one */
    bool modern;        /* as ModernBERT: pre_norm, gated, without biases; rotary positions, odd layers local */
    uint32_t key_heads, head_dim; /* not 0, with modern: as Qwen3, causal, RMS norms, also of queries and keys */
    bool gemma; /* then as EmbeddingGemma: not causal, norms of added parts, gains less 1, words and scores scaled */
};

/* A model with seeded f32 weights, mean pooling, normalised; every other field may be changed before it is opened.
 * Running out of memory ends the process. Owns: the caller ends it with memory_model_free. */
struct model *memory_model(struct memory_shape shape, uint64_t seed);
void memory_model_free(struct model *model);

#endif
