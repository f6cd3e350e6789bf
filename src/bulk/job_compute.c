/* Computing: what is known already, what is a duplicate, and what the executor gets, longest texts first. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bulk/job_state.h"
#include "engine/vector.h"
#include "work/reply.h"

enum { EXPECT = 16 }; /* rows that are looked up ahead: memory answers in the time of some ten of them */

static enum status fail_strictly(const struct document *document, enum row_code code, struct err *err)
{
    return err_set(err, STATUS_BAD_INPUT, "%s line %llu: %s", document->file, (unsigned long long)document->line,
                   row_code_text(code));
}

/* What no element of a vector may reach, for the files to hold it. */
static float job_limit(const struct job *job)
{
    return job->options->element == ELEMENT_F16 ? REPLY_HALF_LIMIT : INFINITY;
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
        unit->state = UNIT_STORED; /* by an earlier run */
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
        if (i + EXPECT < window->unit_count)
            dedup_expect(job->dedup, window->units[i + EXPECT].hash);
        TRY(decide(job, window, &window->units[i], err));
        bool settled = window->units[i].state != UNIT_TODO && window->units[i].state != UNIT_KEPT;
        job->progress.rows += settled;
        job->progress.here += settled;
    }
    TRY(look_order(window, job->options->dim, err));
    window->planned = true;
    job->planned++;
    return STATUS_OK;
}

/* Puts a batch of the first of these pieces; how many it has taken. */
static uint32_t submit(struct job *job, struct look *window, uint32_t first, uint32_t left)
{
    const struct job_options *options = job->options;
    struct bulk_batch *batch = job->free_batches[--job->free_count];
    uint32_t count = look_batch(window, first, left, job->batch_tokens, options->batch_rows);
    *batch = (struct bulk_batch){.pieces = window->order + first,
                                 .count = count,
                                 .dim = options->dim,
                                 .limit = job_limit(job),
                                 .window = window};
    window->batches_out++;
    options->executor->ops->put(options->executor, batch);
    return count;
}

static void submit_again(struct job *job)
{
    struct again *again = &job->again[job->again_count - 1];
    uint32_t count = submit(job, again->window, again->first, again->count);
    again->first += count;
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
            window->submitted += submit(job, window, window->submitted, window->order_count - window->submitted);
        *worked = true;
    }
    return STATUS_OK;
}

bool job_has_batches_out(const struct job *job)
{
    return job->free_count < job->batch_count;
}

/* The mean of the parts, in their order, whatever the order was in which they were computed. */
static void take_mean(const struct job *job, const struct unit *unit, float *to)
{
    uint32_t dim = job->options->dim;
    memcpy(to, unit->parts, dim * sizeof(float));
    for (uint32_t p = 1; p < unit->piece_count; p++)
        for (uint32_t i = 0; i < dim; i++)
            to[i] += unit->parts[(size_t)p * dim + i];
    for (uint32_t i = 0; i < dim; i++)
        to[i] /= (float)unit->piece_count;
    if (job->options->normalize)
        vector_normalize(to, dim);
}

void job_settle(struct job *job, const struct look *window, struct unit *unit)
{
    for (uint32_t p = 0; p < unit->piece_count && unit->code == ROW_OK; p++)
        unit->code = unit->pieces[p].code;
    if (unit->code == ROW_OK && unit->piece_count > 1) {
        float *vector = look_vector(window, unit, job->options->dim);
        take_mean(job, unit, vector);
        unit->code = vector_check(vector, job->options->dim, job_limit(job));
    }
    unit->here = unit->code == ROW_OK;
    unit->state = unit->here ? UNIT_DONE : UNIT_FAILED;
    if (!unit->here)
        dedup_put(job->dedup, unit->hash, (struct dedup_entry){unit->number, unit->code});
}

/* Its pieces are computed in batches of half its size, as are all that come later: what did not fit once would not fit
 * again. The window still counts it, until the last of its pieces is put. */
static enum status put_aside(struct job *job, const struct bulk_batch *batch, uint32_t first, struct err *err)
{
    uint64_t half = look_weight(batch->window, first, batch->count) / 2;
    if (job->again_count == job->again_room) {
        uint32_t room = job->again_room + job->batch_count;
        struct again *bigger = realloc(job->again, room * sizeof *bigger);
        if (bigger == NULL)
            return err_set(err, STATUS_NO_MEMORY, "no memory for %u texts", batch->count);
        job->again = bigger;
        job->again_room = room;
    }
    job->batch_tokens = half < job->batch_tokens ? (uint32_t)half : job->batch_tokens;
    job->again[job->again_count++] = (struct again){batch->window, first, batch->count};
    job->progress.too_large++;
    return STATUS_OK;
}

static enum status look_for_failures(const struct job *job, const struct bulk_batch *batch, struct err *err)
{
    for (uint32_t i = 0; job->options->strict && batch->failed > 0 && i < batch->count; i++)
        if (batch->pieces[i]->code != ROW_OK)
            return fail_strictly(batch->pieces[i]->unit->document, batch->pieces[i]->code, err);
    return STATUS_OK;
}

/* Rows are counted here; each one is looked at where its turn is in the order of the input, which is the order in
 * memory, or when it is written before that. */
static enum status take_batch(struct job *job, const struct bulk_batch *batch, struct err *err)
{
    struct look *window = batch->window;
    uint32_t first = (uint32_t)(batch->pieces - window->order), rows = batch->count;
    if (batch->status == STATUS_NO_MEMORY && batch->count > 1)
        return put_aside(job, batch, first, err);
    window->batches_out--;
    if (batch->status != STATUS_OK) {
        *err = batch->err;
        return batch->status;
    }
    TRY(look_computed(window, first, batch->count, err));
    if (window->several)
        rows = look_note(window);
    if (window->since_ns == 0)
        window->since_ns = clock_now_ns();
    job->progress.rows += rows;
    job->progress.here += rows;
    job->progress.computed += rows;
    job->progress.tokens += batch->tokens;
    return look_for_failures(job, batch, err);
}

enum status job_take_computed(struct job *job, bool *worked, struct err *err)
{
    struct executor *executor = job->options->executor;
    for (struct bulk_batch *batch; (batch = executor->ops->take(executor)) != NULL;) {
        *worked = true;
        enum status status = take_batch(job, batch, err);
        job->free_batches[job->free_count++] = batch;
        TRY(status);
    }
    return STATUS_OK;
}
