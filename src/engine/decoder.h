/* A step of a language model: new tokens of some sequences go through all layers, and for the sequences that ask for it
 * come out as logits of the next token.
 *
 * The keys and values of earlier tokens are kept in blocks of DECODER_BLOCK tokens, in a pool that is reserved once.
 * Which block belongs to which sequence is up to the caller. */
#ifndef ENGINE_DECODER_H
#define ENGINE_DECODER_H

#include "engine/engine.h"

enum { DECODER_BLOCK = 16 };

/* The pool of blocks, and the memory that one thread works in. */
struct decoder;

struct decoder_options {
    uint32_t blocks;      /* of the pool: their numbers are 0 up to blocks - 1; at least 1 */
    uint32_t step_tokens; /* the most new tokens of a step; 0: decoder_step_tokens */
    uint32_t step_rows;   /* the most rows of a step; 0: as many as step_tokens */
};

/* The new tokens of one sequence. All earlier ones have been through a step, with the same blocks in the same places of
 * the table, or with copies of them. */
struct decoder_row {
    const int32_t *ids; /* [count], each below model->vocabulary */
    uint32_t count;     /* at least 1 */
    uint32_t position;  /* of the first of them; that of the last is below model->max_tokens */
    /* The sequence's table: block of position p is blocks[p / DECODER_BLOCK]. Blocks that the new tokens fall into are
     * in the table of no other row of the step; others may be. */
    const uint32_t *blocks;
    bool logits; /* of the token that follows the last */
};

/* The bytes that one block takes in the pool. The engine's model must generate. */
size_t decoder_block_bytes(const struct engine *engine);

/* The size of a step above which more tokens gain nothing on this engine's device. The engine's model must generate. */
uint32_t decoder_step_tokens(const struct engine *engine);

/* Opens a decoder for one thread, on an engine whose model was opened with model_options.generate. Owns: the caller
 * ends it with decoder_close; the engine must outlive it. Errors: STATUS_UNSUPPORTED (the model or the backend does not
 * generate), STATUS_NO_MEMORY. */
MUST_CHECK enum status decoder_open(struct engine *engine, const struct decoder_options *options, struct decoder **out,
                                    struct err *err);

/* Closes it. NULL is allowed. */
void decoder_close(struct decoder *decoder);

/* Lets helpers (engine/cpu/parallel_for.h) take part in its steps: the same bits, sooner. Call it once, before the
 * first step. Owns: the helpers must outlive the decoder. Errors: STATUS_NO_MEMORY; the decoder then works alone. */
MUST_CHECK enum status decoder_join(struct decoder *decoder, struct parallel_for *parallel, struct err *err);

/* Runs one step: writes the keys and values of all new tokens into their blocks; a token attends to its own position
 * and those before it (in local layers to the window). A row's logits have the same bits alone or beside any others,
 * whole or in parts over several steps, whatever the numbers of its blocks, with helpers or without (CPU backend).
 * Nothing is allocated. Numbers that are not finite are returned as they are, and concern their own row alone.
 * Shapes: rows [row_count]; *logits [rows that ask, model->vocabulary], in the order of the rows: the decoder's memory,
 * which the caller may write to, until the next step. Errors: STATUS_BAD_INPUT (an id, a position, a block, or a number
 * of rows or tokens out of range; nothing was computed), STATUS_DEVICE_LOST. Thread: one at a time. */
MUST_CHECK enum status decoder_step(struct decoder *decoder, const struct decoder_row *rows, uint32_t row_count,
                                    float **logits, struct err *err);

/* Copies the keys and values of all layers from one block to another: for a sequence that goes on differently after a
 * shared beginning. Thread: between steps. */
void decoder_copy_block(struct decoder *decoder, uint32_t from, uint32_t to);

#endif
