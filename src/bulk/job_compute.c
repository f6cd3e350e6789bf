/* Computing: what is known already, what is a duplicate, and what the executor gets, longest texts first. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bulk/job_state.h"
#include "engine/vector.h"
#include "work/reply.h"

static enum status fail_strictly(const struct unit *unit, struct err *err)
{
    const struct document *document = unit->document;
    return err_set(err, STATUS_BAD_INPUT, "%s line %llu: %s", document->file, (unsigned long long)document->line,
                   row_code_text(unit->code));
}

/* A row that an earlier run computed, behind its last checkpoint: the text must be the one that it was then. */
static enum status check_recent(struct job *job, const struct unit *unit, struct err *err)
{
    const struct done *recent = (const struct done *)(const void *)job->recent.data;
    size_t count = job->recent.length / sizeof *recent;
    while (job->recent_at < count && recent[job->recent_at].row < unit->number)
        job->recent_at++;
    if (job->recent_at == count || recent[job->recent_at].row != unit->number ||
        hash_equal(recent[job->recent_at].hash, unit->hash))
        return STATUS_OK;
    return err_set(err, STATUS_BAD_INPUT,
                   "%s line %llu: the input has changed since this job began; --overwrite begins again",
                   unit->document->file, (unsigned long long)unit->document->line);
}

/* Whether a row is computed, done already, or a copy of an earlier one. */
static enum status decide(struct job *job, const struct look *window, struct unit *unit, struct err *err)
{
    TRY(job_retry_unit(job, unit, err));
    if (unit->state != UNIT_TODO)
        return STATUS_OK;
    TRY(check_recent(job, unit, err));
    struct dedup_entry known = dedup_find(job->dedup, unit->hash);
    bool reachable = known.row != DEDUP_NONE && (job->store != NULL || known.row >= window->units[0].number);
    if (reachable && known.row == unit->number) {
        unit->state = UNIT_DONE;
    } else if (reachable && known.row < unit->number) {
        unit->state = UNIT_COPY;
        unit->origin = known.row;
    } else {
        dedup_put(job->dedup, unit->hash, (struct dedup_entry){.row = unit->number});
    }
    return STATUS_OK;
}

enum status job_plan(struct job *job, bool *worked, struct err *err)
{
    struct look *window = &job->windows[job->planned % WINDOWS];
    if (job->planned == job->read || window->slices_out > 0 || job->stopping)
        return STATUS_OK;
    *worked = true;
    enum numbering numbering = !job_has_chunks(job) ? NUMBER_DOCUMENTS
                               : job->retry == NULL ? NUMBER_CHUNKS
                                                    : NUMBER_CHUNKS_AGAIN;
    TRY(look_count(window, job->next_row, numbering, err));
    job->next_row += window->unit_count;
    for (uint32_t i = 0; i < window->unit_count; i++) {
        TRY(decide(job, window, &window->units[i], err));
        bool settled = window->units[i].state != UNIT_TODO && window->units[i].state != UNIT_KEPT;
        job->progress.rows += settled;
        job->progress.here += settled;
    }
    TRY(look_order(window, job->options->dim, err));
    if (job->store == NULL) {
        window->vectors = malloc((size_t)window->unit_count * job->options->dim * sizeof(float));
        if (window->vectors == NULL)
            return err_set(err, STATUS_NO_MEMORY, "no memory for %u vectors", window->unit_count);
    }
    window->planned = true;
    job->planned++;
    return STATUS_OK;
}

/* Puts a batch of the first of these pieces; how many it has taken. */
static uint32_t submit(struct job *job, struct look *window, struct piece **pieces, uint32_t left)
{
    struct executor *executor = job->options->executor;
    struct bulk_batch *batch = job->free_batches[--job->free_count];
    uint32_t count = look_batch(pieces, left, job->batch_tokens, job->options->batch_rows);
    *batch = (struct bulk_batch){.pieces = pieces, .count = count, .window = window};
    window->batches_out++;
    executor->ops->put(executor, batch);
    return count;
}

static void submit_again(struct job *job)
{
    struct again *again = &job->again[job->again_count - 1];
    uint32_t count = submit(job, again->window, again->pieces, again->count);
    again->pieces += count;
    again->count -= count;
    if (again->count > 0)
        return;
    job->again_count--;
    again->window->batches_out--; /* the one that was too large */
}

enum status job_submit(struct job *job, bool *worked, struct err *err)
{
    (void)err;
    const struct executor *executor = job->options->executor;
    while (!job->stopping && (job->again_count > 0 || job->submitted < job->planned)) {
        struct look *window = &job->windows[job->submitted % WINDOWS];
        if (job->again_count == 0 && window->submitted == window->order_count) {
            job->submitted++;
            *worked = true;
            continue;
        }
        if (job->free_count == 0 || !executor->ops->has_room(executor))
            break;
        if (job->again_count > 0)
            submit_again(job);
        else
            window->submitted +=
                submit(job, window, window->order + window->submitted, window->order_count - window->submitted);
        *worked = true;
    }
    return STATUS_OK;
}

bool job_has_batches_out(const struct job *job)
{
    return job->free_count < job->batch_count;
}

/* Whether all floats are smaller than `limit`, which is positive: NaN and infinity are not. Sizes of floats are in the
 * order of their bits, and the sum reaches the highest bit from the limit on. */
static bool all_below(const float *vector, uint32_t dim, float limit)
{
    uint32_t bits, limit_bits, reached = 0;
    memcpy(&limit_bits, &limit, sizeof limit);
    for (uint32_t i = 0; i < dim; i++) {
        memcpy(&bits, &vector[i], sizeof bits);
        reached |= (bits & 0x7fffffffu) + (0x80000000u - limit_bits);
    }
    return (reached & 0x80000000u) == 0;
}

/* What a vector that was computed may not be, as far as files can hold it. */
static enum row_code check_vector(const struct job *job, const float *vector)
{
    if (!all_below(vector, job->options->dim, INFINITY))
        return ROW_NON_FINITE;
    bool half = job->options->element == ELEMENT_F16;
    return half && !all_below(vector, job->options->dim, REPLY_HALF_LIMIT) ? ROW_F16_RANGE : ROW_OK;
}

/* The mean of the parts, in their order, whatever the order was in which they were computed. */
static void take_mean(const struct job *job, const struct unit *unit)
{
    uint32_t dim = job->options->dim;
    for (uint32_t p = 1; p < unit->piece_count; p++)
        for (uint32_t i = 0; i < dim; i++)
            unit->parts[i] += unit->parts[(size_t)p * dim + i];
    for (uint32_t i = 0; i < dim; i++)
        unit->parts[i] /= (float)unit->piece_count;
    if (job->options->normalize)
        vector_normalize(unit->parts, dim);
}

static enum status put_vector(struct job *job, struct look *window, struct unit *unit, const float *vector,
                              struct err *err)
{
    uint32_t dim = job->options->dim;
    unit->code = check_vector(job, vector);
    if (unit->code != ROW_OK) {
        unit->state = UNIT_FAILED;
        dedup_put(job->dedup, unit->hash, (struct dedup_entry){unit->number, unit->code});
        return job->options->strict ? fail_strictly(unit, err) : STATUS_OK;
    }
    unit->state = UNIT_DONE;
    if (job->store == NULL) {
        memcpy(window->vectors + (size_t)(unit - window->units) * dim, vector, dim * sizeof(float));
        return STATUS_OK;
    }
    TRY(store_put(job->store, unit->number, vector, err));
    if (job->journal != NULL)
        journal_add_done(job->journal, (struct done){unit->number, unit->hash});
    return STATUS_OK;
}

static enum status fail_piece(struct job *job, struct unit *unit, enum row_code code, struct err *err)
{
    unit->state = UNIT_FAILED;
    unit->code = code;
    dedup_put(job->dedup, unit->hash, (struct dedup_entry){unit->number, code});
    return job->options->strict ? fail_strictly(unit, err) : STATUS_OK;
}

static enum status take_piece(struct job *job, struct look *window, struct piece *piece, const float *vector,
                              struct err *err)
{
    struct unit *unit = piece->unit;
    uint32_t dim = job->options->dim;
    unit->pieces_left--;
    if (piece->code != ROW_OK && unit->state == UNIT_TODO)
        TRY(fail_piece(job, unit, piece->code, err));
    if (unit->piece_count > 1 && piece->code == ROW_OK)
        memcpy(unit->parts + (size_t)(piece - unit->pieces) * dim, vector, dim * sizeof(float));
    if (unit->pieces_left > 0)
        return STATUS_OK;
    job->progress.rows++;
    job->progress.here++;
    job->progress.computed++;
    if (unit->state == UNIT_FAILED)
        return STATUS_OK;
    if (unit->piece_count > 1) {
        take_mean(job, unit);
        vector = unit->parts;
    }
    return put_vector(job, window, unit, vector, err);
}

/* Its pieces are computed in batches of half its size, as are all that come later: what did not fit once would not fit
 * again. The window still counts it, until the last of its pieces is put. */
static enum status put_aside(struct job *job, const struct bulk_batch *batch, struct err *err)
{
    uint64_t half = look_weight(batch->pieces, batch->count) / 2;
    if (job->again_count == job->again_room) {
        uint32_t room = job->again_room + job->batch_count;
        struct again *bigger = realloc(job->again, room * sizeof *bigger);
        if (bigger == NULL)
            return err_set(err, STATUS_NO_MEMORY, "no memory for %u texts", batch->count);
        job->again = bigger;
        job->again_room = room;
    }
    job->batch_tokens = half < job->batch_tokens ? (uint32_t)half : job->batch_tokens;
    job->again[job->again_count++] = (struct again){batch->window, batch->pieces, batch->count};
    job->progress.too_large++;
    return STATUS_OK;
}

static enum status take_batch(struct job *job, const struct bulk_batch *batch, struct err *err)
{
    struct look *window = batch->window;
    if (batch->status == STATUS_NO_MEMORY && batch->count > 1)
        return put_aside(job, batch, err);
    window->batches_out--;
    if (batch->status != STATUS_OK) {
        *err = batch->err;
        return batch->status;
    }
    for (uint32_t i = 0; i < batch->count; i++)
        TRY(take_piece(job, window, batch->pieces[i], batch->vectors + (size_t)i * job->options->dim, err));
    job->progress.tokens += batch->tokens;
    return STATUS_OK;
}

enum status job_take_computed(struct job *job, bool *worked, struct err *err)
{
    struct executor *executor = job->options->executor;
    for (struct bulk_batch *batch; (batch = executor->ops->take(executor)) != NULL;) {
        *worked = true;
        enum status status = take_batch(job, batch, err);
        executor->ops->done(executor, batch);
        job->free_batches[job->free_count++] = batch;
        TRY(status);
    }
    return STATUS_OK;
}
