/* A small random language model whose tokens are bytes, with an engine for it. */
#ifndef TESTS_LETTERS_H
#define TESTS_LETTERS_H

#include "byte_tokenizer.h"
#include "generate/generator.h"
#include "harness.h"
#include "memory_model.h"

enum { LETTERS_WORDS = 258, LETTERS_END = 256, LETTERS_POSITIONS = 160 };

struct letters {
    struct model *model;
    struct tokenizer *tokenizer;
    struct engine *engine;
};

static inline struct letters letters_open_in(enum precision precision, uint64_t seed)
{
    struct memory_shape shape = {.vocabulary = LETTERS_WORDS,
                                 .positions = LETTERS_POSITIONS,
                                 .hidden = 32,
                                 .layers = 2,
                                 .heads = 4,
                                 .intermediate = 48,
                                 .modern = true,
                                 .key_heads = 2,
                                 .head_dim = 16};
    static const char *const specials[] = {"<|end|>", "<|start|>", NULL};
    struct letters letters = {memory_model(shape, seed), byte_tokenizer_open(specials), NULL};
    struct engine_options options = {.backend = "cpu", .precision = precision, .cache_path = ""};
    struct err err = {0};
    letters.model->tokenizer = letters.tokenizer;
    letters.model->generates = letters.model->tied_head = true;
    letters.model->end_ids[letters.model->end_id_count++] = LETTERS_END;
    if (engine_open(letters.model, &options, &letters.engine, &err) != STATUS_OK) { fail_msg("%s", err.message); }
    return letters;
}

static inline struct letters letters_open(uint64_t seed)
{
    return letters_open_in(PRECISION_F32, seed);
}

static inline void letters_close(struct letters *letters)
{
    engine_close(letters->engine);
    memory_model_free(letters->model);
    tokenizer_close(letters->tokenizer);
}

static inline struct generator *letters_generator(const struct letters *letters, struct generator_options options)
{
    struct generator *generator;
    struct err err = {0};
    if (generator_open(letters->engine, letters->model, &options, &generator, &err) != STATUS_OK) {
        fail_msg("%s", err.message);
    }
    return generator;
}

/* Runs until all generations are finished. */
static inline void letters_run(struct generator *generator)
{
    struct err err = {0};
    for (int step = 0; generator_running(generator) > 0; step++) {
        assert_true(step < 100000);
        if (generator_step(generator, &err) != STATUS_OK) { fail_msg("%s", err.message); }
    }
}

#endif
