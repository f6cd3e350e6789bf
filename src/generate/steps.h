/* The scheduler of text generation: which tokens of which sequences are computed in the next step. It is pure: no I/O,
 * no thread, no clock.
 *
 * There is one rule. A sequence has known tokens, its prompt and those drawn so far, and some of them are computed; in
 * each step it catches up as far as the budget of tokens allows. So a step mixes parts of prompts with single drawn
 * tokens, and a sequence whose blocks were taken away computes its known tokens once more.
 *
 * A round: steps_plan, one step of a decoder, steps_done, and then steps_append or steps_end for each row that asked
 * for logits. Thread: one at a time. */
#ifndef GENERATE_STEPS_H
#define GENERATE_STEPS_H

#include "generate/blocks.h"

struct steps;

enum sequence_state {
    SEQUENCE_PENDING,                 /* has no blocks yet, or lost them */
    SEQUENCE_PREFILLING,              /* in this step it computes the rest of its known tokens */
    SEQUENCE_PREFILLING_SPLIT,        /* in this step it computes a part of them */
    SEQUENCE_SPLIT_PENDING_REMAINDER, /* between steps, with a part computed */
    SEQUENCE_DECODING,                /* one token after the other */
    SEQUENCE_FINISHED,
    SEQUENCE_FAILED,
};

/* Who goes first. Whatever the policy, the earlier arrival goes first between equals, and a sequence that does not fit
 * into the pool now is not overtaken by those after it. */
enum steps_policy {
    STEPS_FIFO,          /* sequences that decode, then begun prompts, then new ones */
    STEPS_PREFILL_FIRST, /* begun prompts, then sequences that decode, then new ones */
    STEPS_PRIORITY,      /* by class, then as STEPS_FIFO */
    STEPS_DEADLINE,      /* the earliest deadline, then as STEPS_FIFO */
};

struct steps_options {
    enum steps_policy policy;
    uint32_t step_tokens, step_rows; /* limits of one step, at least 1 */
    uint32_t chunk_tokens;           /* limit of one sequence in a step; 0: none */
    /* False: a sequence begins when the pool has blocks for all tokens that it may ever have. True: when the pool has
     * them for its known tokens; if blocks run out later, a sequence that comes after all others loses its own. */
    bool optimistic;
    bool share; /* equal beginnings are computed once */
};

struct sequence {
    /* The owner's. Memory: ids [prompt + max_tokens], table.blocks [blocks_for(prompt + max_tokens)]. */
    int32_t *ids;
    uint32_t prompt, max_tokens; /* at least 1 */
    uint32_t class;              /* 0 comes first */
    uint64_t deadline_ns;        /* 0: none */
    struct block_table table;

    /* steps.c writes these. */
    enum sequence_state state;
    uint32_t count;    /* known tokens */
    uint32_t computed; /* of them */
    uint32_t planned;  /* those of the step under way */
    uint32_t shared;   /* tokens of the prompt that were not computed, because an earlier sequence had them */
    uint32_t preemptions;
    uint64_t arrival;
};

/* A row of a step: the tokens from `sequence->computed` on. */
struct step_row {
    struct sequence *sequence;
    uint32_t count;
    bool logits; /* these are the last known ones: another token will be drawn */
};

/* Makes an empty scheduler for a pool, which must outlive it. Owns: the caller ends it with steps_close. Errors:
 * STATUS_NO_MEMORY. */
MUST_CHECK enum status steps_open(const struct steps_options *options, struct blocks *blocks, struct steps **out,
                                  struct err *err);

/* Frees it; the sequences are their owner's. NULL is allowed. */
void steps_close(struct steps *steps);

/* Takes a sequence whose prompt is in its ids. Owns: it stays the caller's, who ends it with steps_end. Errors:
 * STATUS_BAD_INPUT (it needs more blocks than there are: it is SEQUENCE_FAILED, and no other is touched),
 * STATUS_NO_MEMORY. */
MUST_CHECK enum status steps_add(struct steps *steps, struct sequence *sequence, struct err *err);

/* The sequences that were added and have not ended. */
uint32_t steps_count(const struct steps *steps);

/* The state of a scheduler, and sums since it was opened. */
struct steps_state {
    uint32_t running, waiting; /* sequences that have blocks, and others that have not ended */
    uint64_t shared_tokens;    /* tokens of prompts that were not computed, because an earlier sequence had them */
    uint64_t preemptions;      /* how often a sequence has lost its blocks to another one */
};

struct steps_state steps_state(const struct steps *steps);

/* Plans the next step and returns how many rows it has: 0 only if there are no sequences. Nothing is allocated. Shapes:
 * *rows [returned], until the next plan. */
uint32_t steps_plan(struct steps *steps, const struct step_row **rows);

/* The tokens of the plan are computed. */
void steps_done(struct steps *steps);

/* Appends a drawn token to a sequence that has fewer than max_tokens of them. */
void steps_append(struct sequence *sequence, int32_t id);

/* Ends a sequence between steps, whatever its state: it becomes SEQUENCE_FINISHED or SEQUENCE_FAILED. */
void steps_end(struct steps *steps, struct sequence *sequence, enum sequence_state state);

#endif
