/* Writes small BERT and DistilBERT models for tests: a sentence-transformers directory with seeded random weights, as
 * exporters of either generation write it. Equal specs give equal bytes.
 *
 *     struct model_spec spec = model_spec_tiny();
 *     spec.pooling = POOLING_CLS;
 *     char *directory = model_build(&spec);
 *     ...
 *     model_build_remove(directory);
 *
 * Any failure here ends the process: a test without its model shows nothing. */
#ifndef TESTS_MODEL_BUILDER_H
#define TESTS_MODEL_BUILDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/model.h"

enum model_generation {
    GENERATION_CLASSIC, /* sentence-transformers before 5.4, transformers 4: vocab.txt, max_seq_length, boolean pooling
                         */
    GENERATION_CURRENT, /* since: pooling_mode, embedding_dimension, model_max_length, no vocab.txt */
    GENERATION_BARE,    /* plain transformers: no modules.json, no pooling */
};

struct model_spec {
    uint64_t seed;
    enum model_generation generation;

    uint32_t vocabulary; /* at least MODEL_SPEC_MIN_VOCABULARY */
    uint32_t positions, token_types, hidden, layers, heads, intermediate;
    bool distilbert; /* the names of DistilBERT, and no token types */
    const char *hidden_act;
    float scale; /* standard deviation of the weight matrices */

    enum pooling pooling;
    bool normalize;
    uint32_t max_tokens; /* 0: the files name none */
    bool cased;

    enum dtype dtype;
    const char *prefix; /* before every tensor's name: "", "bert.", ... */
    bool gamma_beta;    /* the old names inside LayerNorm */
    bool position_ids;  /* the I64 buffer that older exporters saved */
    bool pooler;        /* heads that are not used */
    uint32_t shards;    /* 0: one model.safetensors; n: n shards and an index */
    bool baked_limits;  /* tokenizer.json brings padding and truncation of its own, which must be ignored */
};

#define MODEL_SPEC_MIN_VOCABULARY 192

/* 2 layers, hidden 32, 4 heads, 64 positions, 512 words: opens in a millisecond. */
struct model_spec model_spec_tiny(void);

/* Writes the model into a new temporary directory and returns its path.
 * Owns: the caller ends it with model_build_remove. */
char *model_build(const struct model_spec *spec);
void model_build_remove(char *directory);

/* Writes the model into an existing directory. */
void model_build_into(const struct model_spec *spec, const char *directory);

/* Replaces, adds or removes a file of a built model, e.g. "1_Pooling/config.json". The folder must exist. */
void model_file_write(const char *directory, const char *name, const char *text);
void model_file_remove(const char *directory, const char *name);
/* The text of a file. Owns: the caller frees it. */
char *model_file_read(const char *directory, const char *name, size_t *length);
/* Replaces the only occurrence of `from` in a text file by `to`. */
void model_file_edit(const char *directory, const char *name, const char *from, const char *to);

/* The word with this id, as in the vocabulary: printable ASCII, continuation pieces begin with "##". From
 * MODEL_SPEC_MIN_VOCABULARY on all are whole words of lower-case letters, so that a space-joined text of them becomes
 * exactly those ids. `to` has room for 16 bytes. */
void model_word(uint32_t id, char *to);

/* The f32 value of one weight as the file holds it (rounded to the spec's dtype), by its name without prefix and its
 * element index. */
float model_weight(const struct model_spec *spec, const char *name, uint64_t element);

#endif
