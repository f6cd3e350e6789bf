/* Writes texts: joins the scheduler, a decoder, the sampler and the tokenizer.
 *
 * A generation is one text to write. Many run at once; each gets the same tokens alone or beside any others, whatever
 * the sizes of steps and of the pool (CPU backend). A generation that fails does so alone. Thread: one at a time. */
#ifndef GENERATE_GENERATOR_H
#define GENERATE_GENERATOR_H

#include "engine/engine.h"
#include "generate/sampler.h"
#include "generate/steps.h"
#include "generate/text_out.h"

struct generator;

/* The rows of a step unless an option says otherwise: a CPU gains nothing from more. */
enum { GENERATOR_ROWS = 32 };

struct generator_options {
    uint32_t blocks;            /* of the pool of keys and values, at least 1 */
    struct steps_options steps; /* sizes of 0: decoder_step_tokens, GENERATOR_ROWS */
};

/* A text to write. */
struct generate_request {
    const int32_t *prompt; /* [prompt_tokens] ids, at least one */
    uint32_t prompt_tokens;
    const int32_t *written; /* [written_tokens] ids that an earlier run has written: the text goes on after them */
    uint32_t written_tokens;
    uint32_t max_tokens; /* the most tokens to write, with those of `written`; fewer if the model has too few positions.
                          * 0: as many as the model and the pool have room for */
    struct sampling sampling;
    const char *const *stops; /* [stop_count], none empty; they must outlive the generation */
    unsigned stop_count;
    uint32_t logprobs; /* with each token note its probability, and this many of the likeliest; 0: note nothing */
    bool inside;       /* the text goes on where the prompt ends, so a blank before its first word stays */
    uint32_t class;
    uint64_t deadline_ns; /* as in struct sequence */
};

enum finish_reason {
    FINISH_NONE,   /* it is not finished */
    FINISH_STOP,   /* the model ended the text, or a stop string did */
    FINISH_LENGTH, /* max_tokens, or the model's last position */
    FINISH_ERROR,
};

/* "stop", "length", "error"; "" for FINISH_NONE. */
const char *finish_reason_name(enum finish_reason reason);

/* Read-only for all but generator.c. */
struct generation {
    struct sequence sequence; /* its ids from `prompt` up to `count` were written, with the one that ended the text */
    struct text_out out;      /* the text, without special tokens */
    uint32_t *ends;           /* [tokens written]: the bytes of out.text that may be sent once that token is written */
    enum finish_reason finish;
    struct err err; /* if it is FINISH_ERROR */
    struct sampling sampling;
    uint32_t logprobs;
    struct buffer drawn; /* if logprobs > 0: struct token_logit [tokens][1 + logprobs], first the drawn one */
    struct tokenizer_stream *stream;
};

/* Opens a generator on an engine whose model was opened with model_options.generate. Owns: the caller ends it with
 * generator_close, after its generations and before the engine. Errors: as decoder_open, STATUS_NO_MEMORY. */
MUST_CHECK enum status generator_open(struct engine *engine, const struct model *model,
                                      const struct generator_options *options, struct generator **out, struct err *err);

/* Closes it. NULL is allowed. */
void generator_close(struct generator *generator);

/* As decoder_join. */
MUST_CHECK enum status generator_join(struct generator *generator, struct parallel_for *parallel, struct err *err);

/* Begins a generation. Owns: the caller ends it with generation_end. Errors: STATUS_BAD_INPUT (the prompt is too long
 * for the model or, with max_tokens, for the pool; an id is no token; more tokens are written than it may have),
 * STATUS_UNSUPPORTED (as tokenizer_decode), STATUS_NO_MEMORY. If the tokens written end the text, it is finished. */
MUST_CHECK enum status generator_add(struct generator *generator, const struct generate_request *request,
                                     struct generation **out, struct err *err);

/* Runs one step for those generations that are not finished, if there are any, and sets `finish` of those that are
 * then. Errors: as decoder_step; the generator cannot go on. */
MUST_CHECK enum status generator_step(struct generator *generator, struct err *err);

/* The generations that are not finished. */
uint32_t generator_running(const struct generator *generator);

/* The state of a generator. */
struct generator_state {
    struct steps_state steps; /* sequences are generations that are not finished */
    uint32_t blocks, used;    /* of the pool of keys and values: all, and those of running generations */
};

struct generator_state generator_state(const struct generator *generator);

/* Appends the tokens of a generation with their logprobs, as JSON:
 * [{"token":"a","id":97,"logprob":-0.5,"top_logprobs":[{"token":"b","id":98,"logprob":-0.25},...]},...]. A logprob is
 * the logarithm of the probability by the logits as the model gave them. Errors: `to` is broken. */
void generation_put_logprobs(const struct generator *generator, const struct generation *generation, struct buffer *to);

/* Frees a generation, finished or not. NULL is allowed. */
void generation_end(struct generator *generator, struct generation *generation);

#endif
