#include "generate/generator.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "engine/decoder.h"
#include "tokenizer/tokenizer.h"

_Static_assert((int)BLOCK_TOKENS == (int)DECODER_BLOCK, "the pool's blocks are the decoder's");

struct generator {
    const struct model *model;
    struct decoder *decoder;
    struct blocks *blocks;
    struct steps *steps;
    struct sampler *sampler;
    struct decoder_row *rows; /* [step_rows] */
    float *logits;            /* [vocabulary]: those of the model, for logprobs */
};

const char *finish_reason_name(enum finish_reason reason)
{
    static const char *const names[] = {"", "stop", "length", "error"};
    return names[reason];
}

static enum status open_parts(struct generator *generator, struct engine *engine,
                              const struct generator_options *options, struct err *err)
{
    struct steps_options steps = options->steps;
    if (steps.step_tokens == 0) { steps.step_tokens = decoder_step_tokens(engine); }
    if (steps.step_rows == 0) { steps.step_rows = GENERATOR_ROWS; }
    if (steps.step_rows > steps.step_tokens) { steps.step_rows = steps.step_tokens; }
    struct decoder_options decoder = {options->blocks, steps.step_tokens, steps.step_rows};
    generator->rows = calloc(steps.step_rows, sizeof *generator->rows);
    generator->logits = malloc(generator->model->vocabulary * sizeof *generator->logits);
    if (!generator->rows || !generator->logits) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for steps of %u rows", steps.step_rows);
    }
    TRY(decoder_open(engine, &decoder, &generator->decoder, err));
    TRY(blocks_open(options->blocks, &generator->blocks, err));
    TRY(steps_open(&steps, generator->blocks, &generator->steps, err));
    return sampler_open(generator->model->vocabulary, &generator->sampler, err);
}

enum status generator_open(struct engine *engine, const struct model *model, const struct generator_options *options,
                           struct generator **out, struct err *err)
{
    *out = NULL;
    struct generator *generator = calloc(1, sizeof *generator);
    if (!generator) { return err_set(err, STATUS_NO_MEMORY, "no memory for a generator"); }
    generator->model = model;
    enum status status = open_parts(generator, engine, options, err);
    if (status == STATUS_OK) {
        *out = generator;
    } else {
        generator_close(generator);
    }
    return status;
}

void generator_close(struct generator *generator)
{
    if (!generator) { return; }
    sampler_close(generator->sampler);
    steps_close(generator->steps);
    blocks_close(generator->blocks);
    decoder_close(generator->decoder);
    free(generator->rows);
    free(generator->logits);
    free(generator);
}

enum status generator_join(struct generator *generator, struct parallel_for *parallel, struct err *err)
{
    return decoder_join(generator->decoder, parallel, err);
}

uint32_t generator_running(const struct generator *generator)
{
    return steps_count(generator->steps);
}

struct generator_state generator_state(const struct generator *generator)
{
    uint32_t blocks = blocks_total(generator->blocks);
    return (struct generator_state){steps_state(generator->steps), blocks, blocks - blocks_free(generator->blocks)};
}

/* Errors: STATUS_BAD_INPUT (an id is no token of the model). */
static enum status check_ids(const struct model *model, const int32_t *ids, uint32_t count, struct err *err)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= model->vocabulary) {
            return err_set(err, STATUS_BAD_INPUT, "token id %d is not among the %u of the model", ids[i],
                           model->vocabulary);
        }
    }
    return STATUS_OK;
}

/* The most tokens that a text may have after its prompt, which the model takes. */
static uint32_t count_room(const struct generator *generator, const struct generate_request *request)
{
    uint32_t left = generator->model->max_tokens - request->prompt_tokens;
    if (request->max_tokens > 0) { return request->max_tokens < left ? request->max_tokens : left; }
    uint64_t pool = (uint64_t)blocks_total(generator->blocks) * BLOCK_TOKENS + 1; /* the last token needs no place */
    if (pool >= generator->model->max_tokens) { return left; }
    return pool > request->prompt_tokens ? (uint32_t)pool - request->prompt_tokens : 1;
}

static enum status check_request(const struct generator *generator, const struct generate_request *request,
                                 struct err *err)
{
    const struct model *model = generator->model;
    if (request->prompt_tokens == 0) { return err_set(err, STATUS_BAD_INPUT, "the prompt has no tokens"); }
    if (request->prompt_tokens >= model->max_tokens) {
        return err_set(err, STATUS_BAD_INPUT,
                       "the prompt has %u tokens, and the model takes %u with those that it writes",
                       request->prompt_tokens, model->max_tokens);
    }
    if (request->written_tokens > count_room(generator, request)) {
        return err_set(err, STATUS_BAD_INPUT, "%u tokens are written, more than the text may have",
                       request->written_tokens);
    }
    TRY(check_ids(model, request->prompt, request->prompt_tokens, err));
    return check_ids(model, request->written, request->written_tokens, err);
}

static enum status begin_generation(struct generator *generator, const struct generate_request *request,
                                    struct generation *generation, struct err *err)
{
    struct sequence *sequence = &generation->sequence;
    sequence->prompt = request->prompt_tokens;
    sequence->max_tokens = count_room(generator, request);
    sequence->class = request->class;
    sequence->deadline_ns = request->deadline_ns;
    uint32_t most = sequence->prompt + sequence->max_tokens;
    sequence->ids = malloc(most * sizeof *sequence->ids);
    sequence->table.blocks = malloc(blocks_for(most) * sizeof *sequence->table.blocks);
    generation->ends = malloc(sequence->max_tokens * sizeof *generation->ends);
    if (!sequence->ids || !sequence->table.blocks || !generation->ends) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for a text of %u tokens", most);
    }
    memcpy(sequence->ids, request->prompt, request->prompt_tokens * sizeof *sequence->ids);
    generation->sampling = request->sampling;
    generation->logprobs =
        request->logprobs < generator->model->vocabulary ? request->logprobs : generator->model->vocabulary;
    generation->out = (struct text_out){.stops = request->stops, .stop_count = request->stop_count};
    TRY(tokenizer_stream_open(generator->model->tokenizer, false, request->inside, &generation->stream, err));
    return steps_add(generator->steps, sequence, err);
}

static void free_generation(struct generation *generation)
{
    tokenizer_stream_close(generation->stream);
    buffer_free(&generation->out.text);
    buffer_free(&generation->drawn);
    free(generation->sequence.ids);
    free(generation->sequence.table.blocks);
    free(generation->ends);
    free(generation);
}

/* Ends a generation, whose text is then complete. */
static void finish_generation(struct generator *generator, struct generation *generation, enum finish_reason reason)
{
    if (!generation->out.stopped) {
        tokenizer_stream_end(generation->stream, &generation->out.text);
        text_out_check(&generation->out, true);
    }
    if (reason != FINISH_ERROR && !(buffer_ok(&generation->out.text) && buffer_ok(&generation->drawn))) {
        err_set(&generation->err, STATUS_NO_MEMORY, "no memory for the text");
        reason = FINISH_ERROR;
    }
    if (reason == FINISH_LENGTH && generation->out.stopped) { reason = FINISH_STOP; }
    generation->finish = reason;
    steps_end(generator->steps, &generation->sequence, reason == FINISH_ERROR ? SEQUENCE_FAILED : SEQUENCE_FINISHED);
}

/* True if the model ends a text with this token. */
static bool is_end(const struct model *model, int32_t id)
{
    for (uint32_t i = 0; i < model->end_id_count; i++) {
        if (model->end_ids[i] == id) { return true; }
    }
    return false;
}

/* Notes the probabilities with a token that was drawn, by the logits as the model gave them. */
static void note_logprobs(struct generator *generator, struct generation *generation, int32_t id)
{
    size_t bytes = (1 + generation->logprobs) * sizeof(struct token_logit);
    struct token_logit *drawn = (struct token_logit *)(void *)buffer_reserve(&generation->drawn, bytes);
    if (!drawn) { return; }
    drawn->logit = sampler_logprobs(generator->sampler, generator->logits, id, generation->logprobs, drawn + 1);
    drawn->id = id;
    generation->drawn.length += bytes;
}

/* Appends a token to the text, which may be complete then. */
static void append_token(struct generator *generator, struct generation *generation, int32_t id)
{
    struct sequence *sequence = &generation->sequence;
    steps_append(sequence, id);
    if (is_end(generator->model, id)) {
        finish_generation(generator, generation, FINISH_STOP);
    } else {
        tokenizer_stream_put(generation->stream, id, &generation->out.text);
        text_out_check(&generation->out, false);
        if (generation->out.stopped) {
            finish_generation(generator, generation, FINISH_STOP);
        } else if (sequence->count == sequence->prompt + sequence->max_tokens || !buffer_ok(&generation->out.text) ||
                   !buffer_ok(&generation->drawn)) {
            finish_generation(generator, generation, FINISH_LENGTH);
        }
    }
    generation->ends[sequence->count - sequence->prompt - 1] = (uint32_t)generation->out.ready;
}

enum status generator_add(struct generator *generator, const struct generate_request *request, struct generation **out,
                          struct err *err)
{
    *out = NULL;
    TRY(check_request(generator, request, err));
    struct generation *generation = calloc(1, sizeof *generation);
    if (!generation) { return err_set(err, STATUS_NO_MEMORY, "no memory for a generation"); }
    enum status status = begin_generation(generator, request, generation, err);
    if (status != STATUS_OK) {
        free_generation(generation);
        return status;
    }
    for (uint32_t i = 0; i < request->written_tokens && generation->finish == FINISH_NONE; i++) {
        append_token(generator, generation, request->written[i]);
    }
    *out = generation;
    return STATUS_OK;
}

void generation_end(struct generator *generator, struct generation *generation)
{
    if (!generation) { return; }
    if (generation->finish == FINISH_NONE) { steps_end(generator->steps, &generation->sequence, SEQUENCE_FAILED); }
    free_generation(generation);
}

static void draw_token(struct generator *generator, struct generation *generation, float *logits)
{
    struct sequence *sequence = &generation->sequence;
    int32_t id;
    if (generation->logprobs > 0) { memcpy(generator->logits, logits, generator->model->vocabulary * sizeof *logits); }
    if (sampler_draw(generator->sampler, &generation->sampling, logits, sequence->ids, sequence->count, &id,
                     &generation->err) != STATUS_OK) {
        finish_generation(generator, generation, FINISH_ERROR);
        return;
    }
    if (generation->logprobs > 0) { note_logprobs(generator, generation, id); }
    append_token(generator, generation, id);
}

enum status generator_step(struct generator *generator, struct err *err)
{
    const struct step_row *rows;
    uint32_t count = steps_plan(generator->steps, &rows);
    if (count == 0) { return STATUS_OK; }
    for (uint32_t i = 0; i < count; i++) {
        const struct sequence *sequence = rows[i].sequence;
        generator->rows[i] = (struct decoder_row){.ids = sequence->ids + sequence->computed,
                                                  .count = rows[i].count,
                                                  .position = sequence->computed,
                                                  .blocks = sequence->table.blocks,
                                                  .logits = rows[i].logits};
    }
    float *logits;
    TRY(decoder_step(generator->decoder, generator->rows, count, &logits, err));
    steps_done(generator->steps);
    for (uint32_t i = 0; i < count; i++) {
        if (!rows[i].logits) { continue; }
        draw_token(generator, (struct generation *)(void *)rows[i].sequence, logits);
        logits += generator->model->vocabulary;
    }
    return STATUS_OK;
}

/* Appends the members of a token, without the brace that closes them. */
static void put_token(const struct tokenizer *tokenizer, struct token_logit token, struct buffer *to)
{
    struct tokenizer_stream *stream;
    struct buffer text = {0};
    struct err err;
    if (tokenizer_stream_open(tokenizer, true, true, &stream, &err) != STATUS_OK) {
        to->broken = true;
        return;
    }
    tokenizer_stream_put(stream, token.id, &text);
    tokenizer_stream_end(stream, &text);
    tokenizer_stream_close(stream);
    to->broken = to->broken || !buffer_ok(&text);
    buffer_json(to, ",{'token':");
    buffer_json_string(to, text.data, text.length);
    buffer_json(to, ",'id':%d,'logprob':%.7g", token.id, (double)token.logit);
    buffer_free(&text);
}

void generation_put_logprobs(const struct generator *generator, const struct generation *generation, struct buffer *to)
{
    const struct tokenizer *tokenizer = generator->model->tokenizer;
    const struct token_logit *drawn = (const struct token_logit *)(const void *)generation->drawn.data;
    size_t count = generation->drawn.length / sizeof *drawn;
    buffer_string(to, "[");
    for (size_t at = 0; at < count; at += 1 + generation->logprobs) {
        put_token(tokenizer, drawn[at], to);
        buffer_string(to, ",\"top_logprobs\":[");
        for (uint32_t i = 1; i <= generation->logprobs; i++) {
            put_token(tokenizer, drawn[at + i], to);
            buffer_string(to, "}");
        }
        buffer_string(to, "]}");
    }
    buffer_string(to, "]");
}
