/* The thread that writes texts for a queue: it has a generator, which computes all texts together, step by step.
 *
 *   owner ── writer_put ──► the thread: generator_add, generator_step … ──► writer_take ── owner
 *
 * A batch is one text: its only row is the prompt, and the text goes into the request's struct writing. A text that
 * comes joins the others at the next step, and waits for none of them to end. Between two steps a text ends early if
 * nobody needs it any more, or if its time is over. */
#ifndef COMPUTE_WRITER_H
#define COMPUTE_WRITER_H

#include "base/err.h"
#include "base/histogram.h"
#include "engine/engine.h"
#include "generate/generator.h"
#include "schedule/batch.h"

struct writer;

/* The most texts that are written at a time; more may not be out. */
unsigned writer_texts(void);

/* The blocks of a pool of keys and values: enough for all rows of a step with usual texts, or for the longest text, but
 * at most a quarter of the machine's memory. Units: usual: tokens of a text with its prompt. */
uint32_t writer_blocks(const struct engine *engine, const struct model *model, uint32_t usual);

/* Starts the thread, and helpers for it if `threads` is above 1, on an engine whose model generates. `wake_fd` is an
 * eventfd written when a finished batch waits. Owns: the caller ends it with writer_close; engine and model must
 * outlive it. Errors: those of generator_open, STATUS_IO (no thread). */
MUST_CHECK enum status writer_open(struct engine *engine, const struct model *model, unsigned threads, int wake_fd,
                                   struct writer **out, struct err *err);

/* Hands a batch of one row to the thread. It comes back with status, err and stamps filled. Errors in it:
 * STATUS_BAD_INPUT (it needs more room than there is), STATUS_NO_MEMORY, STATUS_NON_FINITE, STATUS_TIMEOUT (its ends_ns
 * has come), STATUS_UNAVAILABLE (it was dropped), STATUS_DEVICE_LOST (the generator cannot go on). */
void writer_put(struct writer *writer, struct batch *batch);

/* Takes a finished batch; NULL: there is none. */
struct batch *writer_take(struct writer *writer);

/* The numbers of a writer since its start. */
struct writer_counts {
    uint64_t tokens; /* drawn */
    struct generator_state generator;
    struct histogram first_token; /* from the first XADD to a text's first token */
    struct histogram inter_token; /* between two tokens of a text */
};

/* Copies the numbers as they were after the last step. Thread: any. */
void writer_counts(struct writer *writer, struct writer_counts *out);

/* Ends all texts between two steps, and joins the thread. It does not free batches that were not taken. NULL is
 * allowed. */
void writer_close(struct writer *writer);

#endif
