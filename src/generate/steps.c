#include "generate/steps.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct steps {
    struct steps_options options;
    struct blocks *blocks;
    struct sequence **all; /* [capacity]: `count` of them, in the order of the last plan */
    uint32_t count, capacity;
    uint32_t running; /* those that have blocks */
    uint64_t arrivals, shared_tokens, preemptions;
    struct step_row *rows; /* [options.step_rows]: row_count of the step under way */
    uint32_t row_count;
};

enum status steps_open(const struct steps_options *options, struct blocks *blocks, struct steps **out, struct err *err)
{
    assert(options->step_tokens > 0 && options->step_rows > 0);
    struct steps *steps = calloc(1, sizeof *steps);
    struct step_row *rows = calloc(options->step_rows, sizeof *rows);
    *out = steps;
    if (!steps || !rows) {
        free(steps);
        free(rows);
        *out = NULL;
        return err_set(err, STATUS_NO_MEMORY, "no memory for steps of %u rows", options->step_rows);
    }
    steps->options = *options;
    steps->blocks = blocks;
    steps->rows = rows;
    return STATUS_OK;
}

void steps_close(struct steps *steps)
{
    if (!steps) { return; }
    free(steps->all);
    free(steps->rows);
    free(steps);
}

uint32_t steps_count(const struct steps *steps)
{
    return steps->count;
}

struct steps_state steps_state(const struct steps *steps)
{
    return (struct steps_state){steps->running, steps->count - steps->running, steps->shared_tokens,
                                steps->preemptions};
}

/* The blocks of all tokens that a sequence may ever compute: the last one that is drawn is not computed. */
static uint32_t count_all_blocks(const struct sequence *sequence)
{
    return blocks_for(sequence->prompt + sequence->max_tokens - 1);
}

enum status steps_add(struct steps *steps, struct sequence *sequence, struct err *err)
{
    sequence->state = SEQUENCE_FAILED;
    uint32_t needs = count_all_blocks(sequence), total = blocks_total(steps->blocks);
    if (needs > total) {
        return err_set(err, STATUS_BAD_INPUT,
                       "%u tokens of prompt and %u to write need %u blocks of keys and values, there are %u",
                       sequence->prompt, sequence->max_tokens, needs, total);
    }
    if (steps->count == steps->capacity) {
        uint32_t capacity = steps->capacity ? 2 * steps->capacity : 64;
        struct sequence **all = realloc(steps->all, capacity * sizeof(struct sequence *));
        if (!all) { return err_set(err, STATUS_NO_MEMORY, "no memory for %u sequences", capacity); }
        steps->all = all;
        steps->capacity = capacity;
    }
    sequence->state = SEQUENCE_PENDING;
    sequence->count = sequence->prompt;
    sequence->computed = sequence->planned = sequence->shared = sequence->preemptions = 0;
    sequence->arrival = steps->arrivals++;
    steps->all[steps->count++] = sequence;
    return STATUS_OK;
}

/* How far along a sequence is, in the order in which the policy takes the stages. */
static unsigned find_stage(enum steps_policy policy, const struct sequence *sequence)
{
    if (sequence->state == SEQUENCE_PENDING) { return 2; }
    return (sequence->state == SEQUENCE_DECODING) == (policy == STEPS_PREFILL_FIRST);
}

/* True if `a` goes before `b`; `staged` false: however far along they are. */
static bool goes_first(enum steps_policy policy, bool staged, const struct sequence *a, const struct sequence *b)
{
    if (policy == STEPS_PRIORITY && a->class != b->class) { return a->class < b->class; }
    if (policy == STEPS_DEADLINE && a->deadline_ns != b->deadline_ns) {
        return a->deadline_ns - 1 < b->deadline_ns - 1; /* no deadline, 0, comes last */
    }
    unsigned stage_a = find_stage(policy, a), stage_b = find_stage(policy, b);
    if (staged && stage_a != stage_b) { return stage_a < stage_b; }
    return a->arrival < b->arrival;
}

/* An insertion sort: from one step to the next few change places. */
static void order_sequences(struct steps *steps)
{
    for (uint32_t i = 1; i < steps->count; i++) {
        struct sequence *sequence = steps->all[i];
        uint32_t at = i;
        for (; at > 0 && goes_first(steps->options.policy, true, sequence, steps->all[at - 1]); at--) {
            steps->all[at] = steps->all[at - 1];
        }
        steps->all[at] = sequence;
    }
}

/* Takes a sequence's blocks away. Published ones stay in the pool for a while, and it may find them again. */
static void release_blocks(struct steps *steps, struct sequence *sequence, enum sequence_state state)
{
    if (sequence->table.count > 0) { steps->running--; }
    blocks_end(steps->blocks, &sequence->table);
    sequence->computed = 0;
    sequence->state = state;
}

/* Gives a pending sequence its first blocks. False: there are too few now. */
static bool admit_sequence(struct steps *steps, struct sequence *sequence)
{
    uint32_t wanted = count_all_blocks(sequence), shared;
    if (steps->running == steps->options.step_rows) { return false; }
    if (steps->options.optimistic) {
        wanted = blocks_for(sequence->count);
        /* The running ones will soon need another block each. */
        if (wanted + steps->running > blocks_free(steps->blocks)) { return false; }
    }
    if (!blocks_begin(steps->blocks, &sequence->table, sequence->ids, sequence->count, wanted, steps->options.share,
                      &shared)) {
        return false;
    }
    steps->running++;
    sequence->computed = shared;
    if (sequence->preemptions == 0) {
        sequence->shared = shared;
        steps->shared_tokens += shared;
    }
    return true;
}

/* Gives a running sequence the blocks of its first `tokens` tokens. If the pool has too few, sequences that come after
 * it and are not in this step lose theirs, the last first. The first of all always gets them if no other is in the
 * step, so some tokens are computed in every step. */
static bool grow_sequence(struct steps *steps, struct sequence *sequence, uint32_t tokens, bool *preempted)
{
    enum steps_policy policy = steps->options.policy;
    while (!blocks_extend(steps->blocks, &sequence->table, blocks_for(tokens))) {
        struct sequence *last = sequence;
        for (uint32_t i = 0; i < steps->count; i++) {
            struct sequence *other = steps->all[i];
            bool may_lose = other->table.count > 0 && other->planned == 0;
            if (may_lose && goes_first(policy, false, last, other)) { last = other; }
        }
        if (last == sequence) { return false; }
        release_blocks(steps, last, SEQUENCE_PENDING);
        last->preemptions++;
        steps->preemptions++;
        *preempted = true;
    }
    return true;
}

uint32_t steps_plan(struct steps *steps, const struct step_row **rows)
{
    const struct steps_options *options = &steps->options;
    uint32_t budget = options->step_tokens;
    bool full = false; /* no further sequence begins in this step */
    order_sequences(steps);
    steps->row_count = 0;
    for (uint32_t i = 0; i < steps->count && budget > 0 && steps->row_count < options->step_rows; i++) {
        struct sequence *sequence = steps->all[i];
        if (sequence->state == SEQUENCE_PENDING) {
            full = full || !admit_sequence(steps, sequence);
            if (full) { continue; }
        }
        uint32_t left = sequence->count - sequence->computed, count = left < budget ? left : budget;
        if (options->chunk_tokens > 0 && count > options->chunk_tokens) { count = options->chunk_tokens; }
        assert(count > 0);
        if (!grow_sequence(steps, sequence, sequence->computed + count, &full)) { continue; }
        if (sequence->state != SEQUENCE_DECODING) {
            sequence->state = count < left ? SEQUENCE_PREFILLING_SPLIT : SEQUENCE_PREFILLING;
        }
        sequence->planned = count;
        steps->rows[steps->row_count++] = (struct step_row){sequence, count, count == left};
        budget -= count;
    }
    assert(steps->row_count > 0 || steps->count == 0);
    *rows = steps->rows;
    return steps->row_count;
}

void steps_done(struct steps *steps)
{
    for (uint32_t i = 0; i < steps->row_count; i++) {
        struct sequence *sequence = steps->rows[i].sequence;
        sequence->computed += sequence->planned;
        sequence->planned = 0;
        sequence->state = steps->rows[i].logits ? SEQUENCE_DECODING : SEQUENCE_SPLIT_PENDING_REMAINDER;
        if (steps->options.share) {
            blocks_publish(steps->blocks, &sequence->table, sequence->ids, sequence->computed);
        }
    }
}

void steps_append(struct sequence *sequence, int32_t id)
{
    assert(sequence->count < sequence->prompt + sequence->max_tokens);
    sequence->ids[sequence->count++] = id;
}

void steps_end(struct steps *steps, struct sequence *sequence, enum sequence_state state)
{
    uint32_t at = 0;
    while (steps->all[at] != sequence) { at++; }
    memmove(steps->all + at, steps->all + at + 1, (--steps->count - at) * sizeof(struct sequence *));
    release_blocks(steps, sequence, state);
}
