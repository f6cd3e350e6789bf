/* Reads prompts of token ids, writes what a language model goes on with: the side of the golden comparison that is
 * ours.
 *
 * usage: decode_ids DIRECTORY PRECISION NEW < ids > tokens and logits
 *
 * Each prompt is a count and that many ids, all native int32. Writes NEW tokens for each, the likeliest ones, as native
 * int32, and the logits of each, native f32. It runs each prompt alone, then all together, in parts of several sizes,
 * with helpers and with blocks in another order, and ends with 1 if any logits then have other bits. It ends with 77
 * where the set that SLUICE_ISA names does not run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/parallel_for.h"
#include "engine/decoder.h"

enum { MOST_PROMPTS = 16, MOST_IDS = 512, BLOCKS = MOST_IDS / DECODER_BLOCK };

struct sequence {
    int32_t ids[MOST_IDS];
    uint32_t prompt, length;
    uint32_t done, given; /* tokens whose keys are there; tokens that are written, or compared */
    uint32_t blocks[BLOCKS];
    float *logits; /* [new, vocabulary] */
};

static int fail(const struct err *err)
{
    fprintf(stderr, "decode_ids: %s\n", err->message);
    return 1;
}

static int32_t likeliest(const float *logits, uint32_t vocabulary)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < vocabulary; i++) { best = logits[i] > logits[best] ? i : best; }
    return (int32_t)best;
}

static uint32_t read_prompts(struct sequence *all)
{
    int32_t count;
    uint32_t prompts = 0;
    for (; fread(&count, sizeof count, 1, stdin) == 1; prompts++) {
        if (prompts == MOST_PROMPTS || count < 1 || count > MOST_IDS ||
            fread(all[prompts].ids, sizeof(int32_t), (size_t)count, stdin) != (size_t)count) {
            abort();
        }
        all[prompts].prompt = (uint32_t)count;
    }
    return prompts;
}

/* Continues one prompt alone, and keeps its logits. */
static enum status run_alone(struct decoder *decoder, const struct model *model, struct sequence *sequence,
                             uint32_t more, struct err *err)
{
    uint32_t count = sequence->prompt, vocabulary = model->vocabulary;
    sequence->length = sequence->prompt + more - 1; /* nothing is computed from the last one */
    if (sequence->prompt + more > MOST_IDS) { abort(); }
    for (uint32_t i = 0; i < more; i++, count = 1) {
        uint32_t position = i == 0 ? 0 : sequence->prompt + i - 1;
        float *logits;
        struct decoder_row row = {sequence->ids + position, count, position, sequence->blocks, true};
        TRY(decoder_step(decoder, &row, 1, &logits, err));
        memcpy(sequence->logits + (size_t)i * vocabulary, logits, vocabulary * sizeof *logits);
        sequence->ids[sequence->prompt + i] = likeliest(logits, vocabulary);
    }
    return STATUS_OK;
}

/* Runs all sequences together in parts of `part` tokens; sequence s begins in step s. Sets *same to false if a logit
 * has other bits. */
static enum status run_together(struct decoder *decoder, const struct model *model, struct sequence *all,
                                uint32_t prompts, uint32_t part, bool *same, struct err *err)
{
    uint32_t vocabulary = model->vocabulary, left = prompts;
    for (uint32_t s = 0; s < prompts; s++) {
        all[s].done = all[s].given = 0;
        for (uint32_t b = 0; b < BLOCKS; b++) { all[s].blocks[b] = prompts * BLOCKS - 1 - (b * prompts + s); }
    }
    for (uint32_t step = 0; left > 0; step++) {
        struct decoder_row rows[MOST_PROMPTS];
        struct sequence *asking[MOST_PROMPTS];
        uint32_t count = 0, asked = 0;
        float *logits;
        for (uint32_t s = 0; s < prompts && s <= step; s++) {
            struct sequence *at = &all[s];
            if (at->done == at->length) { continue; }
            uint32_t some = at->done < at->prompt ? at->prompt - at->done : 1;
            some = some < part ? some : part;
            bool asks = at->done + some >= at->prompt;
            rows[count++] = (struct decoder_row){at->ids + at->done, some, at->done, at->blocks, asks};
            if (asks) { asking[asked++] = at; }
            at->done += some;
            left -= at->done == at->length;
        }
        TRY(decoder_step(decoder, rows, count, &logits, err));
        for (uint32_t i = 0; i < asked; i++, logits += vocabulary) {
            const float *wanted = asking[i]->logits + (size_t)asking[i]->given++ * vocabulary;
            *same = *same && memcmp(wanted, logits, vocabulary * sizeof *logits) == 0;
        }
    }
    return STATUS_OK;
}

static int run(struct engine *engine, const struct model *model, uint32_t more)
{
    static struct sequence all[MOST_PROMPTS];
    static const uint32_t parts[] = {1, 2, 3, 7, MOST_IDS};
    uint32_t prompts = read_prompts(all);
    bool same = true;
    struct err err = {0};
    struct decoder *decoder;
    struct parallel_for *helpers = NULL;
    struct decoder_options options = {.blocks = prompts * BLOCKS};
    if (decoder_open(engine, &options, &decoder, &err) != STATUS_OK) { return fail(&err); }
    for (uint32_t s = 0; s < prompts; s++) {
        all[s].logits = calloc((size_t)more * model->vocabulary, sizeof(float));
        if (!all[s].logits) { abort(); }
        for (uint32_t b = 0; b < BLOCKS; b++) { all[s].blocks[b] = s * BLOCKS + b; }
        if (run_alone(decoder, model, &all[s], more, &err) != STATUS_OK) { return fail(&err); }
        fwrite(all[s].ids + all[s].prompt, sizeof(int32_t), more, stdout);
        fwrite(all[s].logits, sizeof(float), (size_t)more * model->vocabulary, stdout);
    }
    if (parallel_for_open(2, &helpers, &err) != STATUS_OK) { return fail(&err); }
    if (decoder_join(decoder, helpers, &err) != STATUS_OK) { return fail(&err); }
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (run_together(decoder, model, all, prompts, parts[i], &same, &err) != STATUS_OK) { return fail(&err); }
        if (!same) {
            fprintf(stderr, "decode_ids: in parts of %u tokens logits have other bits\n", parts[i]);
            return 1;
        }
    }
    decoder_close(decoder);
    parallel_for_close(helpers);
    for (uint32_t s = 0; s < prompts; s++) { free(all[s].logits); }
    return ferror(stdin) || fflush(stdout) != 0;
}

/* Returns whether SLUICE_ISA names no instruction set, or one that runs here. */
static bool runs_here(void)
{
    char picked[64];
    const char *named = getenv("SLUICE_ISA");
    engine_instruction_set(picked);
    picked[strcspn(picked, ";")] = '\0';
    return named == NULL || strcmp(picked, named) == 0;
}

int main(int argc, char **argv)
{
    struct err err = {0};
    struct model *model;
    struct engine *engine;
    struct engine_options options = {.backend = "cpu"};
    if (argc != 4) {
        fprintf(stderr, "usage: decode_ids DIRECTORY PRECISION NEW < ids > tokens and logits\n");
        return 2;
    }
    if (!runs_here()) { return 77; }
    if (precision_parse(argv[2], &options.precision, &err) != STATUS_OK ||
        model_open(argv[1], &(struct model_options){.generate = true}, &model, &err) != STATUS_OK ||
        engine_open(model, &options, &engine, &err) != STATUS_OK) {
        return fail(&err);
    }
    model_release_weights(model);
    int code = run(engine, model, (uint32_t)strtoul(argv[3], NULL, 10));
    engine_close(engine);
    model_close(model);
    return code;
}
