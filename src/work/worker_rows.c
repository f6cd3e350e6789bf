/* What becomes of rows when their batch is back. A request ends with its last row, or fails with its first bad one.
 *
 * Of a failed batch only the guilty row is to be charged, so the batch is halved until that row has failed alone. When
 * the first half turns out well, the fault must be in the second: that one is halved at once, without a try. So one bad
 * row in n costs at most 2 * log2(n) forward passes more, whatever n.
 *
 * Out of memory is nobody's fault as long as there are rows to part: the budget halves and they wait once more. A lost
 * device is nobody's fault at all. */
#include <stdlib.h>
#include <string.h>

#include "work/worker_stages.h"

/* Called whenever a row has come back: whether that was the last one out, and what is next then. */
static void rest(struct worker *worker, struct request *request)
{
    if (request->rows_out > 0)
        return;
    bool lonely = lonely_is(worker, request);
    request->state = REQUEST_WAITING;
    if (request->code != CODE_NONE) {
        settle_finish(worker, request);
    } else if (request->rows_left == 0) {
        request->computed_ns = worker->now;
        if (lonely)
            lonely_stage(worker, LONELY_COMPUTED);
        else
            request_list_push(&worker->to_format, request);
    } else if (lonely) {
        lonely_stage(worker, LONELY_PREPARED);
    } else if (request->given_up) {
        settle_release(worker, request);
    }
}

static void row_ended(struct worker *worker, struct row *row)
{
    row->twins = NULL;
    row->request->rows_out--;
    rest(worker, row->request);
}

void rows_drop(struct worker *worker, struct request *request)
{
    for (uint32_t i = 0; i < request->row_count; i++)
        if (request->rows[i].flow != NULL)
            window_remove(&worker->window, &request->rows[i]);
}

void rows_go(struct worker *worker, const struct batch *batch)
{
    for (uint32_t i = 0; i < batch->engine.rows; i++) {
        for (struct row *row = batch->rows[i]; row != NULL; row = row->twins) {
            row->request->rows_out++;
            worker->stats.rows_shared++;
        }
        worker->stats.rows_shared--; /* the first of them is not a twin */
    }
}

void rows_uncut(struct worker *worker, struct row *row)
{
    for (struct row *twin = row->twins, *next; twin != NULL; twin = next) {
        next = twin->twins;
        window_put_back(&worker->window, twin);
    }
    window_put_back(&worker->window, row);
}

/* --- the batch was computed --- */

static void row_computed(struct worker *worker, struct row *row, const struct batch *batch, const float *vector)
{
    struct request *request = row->request;
    memcpy(row->output, vector, request->dim * sizeof(float));
    if (request->started_ns == batch->submitted_ns && batch->started_ns != 0)
        request->started_ns = batch->started_ns; /* the compute thread knows better */
    request->rows_left--;
    row_ended(worker, row);
}

static void rows_computed(struct worker *worker, const struct batch *batch)
{
    const float *vector = batch->engine.output;
    for (uint32_t i = 0; i < batch->engine.rows; i++) {
        uint32_t dim = batch->rows[i]->request->dim;
        for (struct row *row = batch->rows[i], *twin; row != NULL; row = twin) {
            twin = row->twins;
            row_computed(worker, row, batch, vector);
        }
        vector += dim;
    }
    budget_good(&worker->budget);
}

/* --- back to where they waited, nobody charged --- */

static void row_back(struct worker *worker, struct row *row)
{
    struct request *request = row->request;
    if (request->code == CODE_NONE && lonely_is(worker, request))
        lonely_row_back(worker, row);
    else if (request->code == CODE_NONE && worker_takes_more(worker) && !request->given_up)
        window_put_back(&worker->window, row);
    else
        request->given_up = true;
    row_ended(worker, row);
}

static int younger_first(const void *left, const void *right)
{
    const struct row *a = *(struct row *const *)left, *b = *(struct row *const *)right;
    if (a->request == b->request)
        return a > b ? -1 : 1;
    return entry_id_compare(b->request->entry, a->request->entry);
}

/* In order of age; twins wait on their own again, behind them. */
void rows_back(struct worker *worker, struct batch *batch)
{
    if (batch == NULL)
        return;
    uint32_t count = batch->engine.rows;
    qsort(batch->rows, count, sizeof(struct row *), younger_first);
    for (uint32_t i = 0; i < count; i++)
        for (struct row *row = batch->rows[i]->twins, *twin; row != NULL; row = twin) {
            twin = row->twins;
            row_back(worker, row);
        }
    for (uint32_t i = 0; i < count; i++)
        row_back(worker, batch->rows[i]);
}

/* --- in halves --- */

/* The row of a group that is to be computed: the first whose request can still succeed. The others before it end. */
static struct row *wanted(struct worker *worker, struct row *row)
{
    while (row != NULL && row->request->code != CODE_NONE) {
        struct row *twin = row->twins;
        row_ended(worker, row);
        row = twin;
    }
    return row;
}

static bool try_again(struct worker *worker, struct row **rows, uint32_t count)
{
    uint32_t half = count > 1 ? count / 2 : 1, dim = rows[0]->request->dim;
    enum batch_layout layout = worker->options.layout;
    struct batch *first = batch_build(rows, half, layout, dim);
    if (first != NULL && count > 1)
        first->other = batch_build(rows + half, count - half, layout, dim);
    if (first == NULL || (count > 1 && first->other == NULL)) {
        batch_free(first);
        worker->starved = true;
        return false;
    }
    compute_retry(worker, first);
    return true;
}

/* Halves a batch in which there is a bad row. Who has failed otherwise by now, needs no try. */
static void halve(struct worker *worker, struct batch *batch)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->engine.rows; i++) {
        batch->rows[count] = wanted(worker, batch->rows[i]);
        count += batch->rows[count] != NULL;
    }
    batch->engine.rows = count;
    if (count == 0)
        return;
    worker->stats.bisected++;
    if (!try_again(worker, batch->rows, count))
        rows_back(worker, batch);
}

/* The twins of a row that failed have not: they try it by themselves. */
static void twins_again(struct worker *worker, struct row *twins)
{
    struct row *first = wanted(worker, twins);
    if (first == NULL)
        return;
    if (worker_takes_more(worker) && try_again(worker, &first, 1))
        return;
    for (struct row *row = first, *twin; row != NULL; row = twin) {
        twin = row->twins;
        row_back(worker, row);
    }
}

static void row_guilty(struct worker *worker, const struct batch *batch)
{
    struct row *row = batch->rows[0], *twins = row->twins;
    struct request *request = row->request;
    if (request->code == CODE_NONE) {
        request_fail_row(request, (uint32_t)(row - request->rows), policy_code(batch->status), "%.200s",
                         batch->err.message[0] != '\0' ? batch->err.message : status_name(batch->status));
        rows_drop(worker, request);
    }
    row_ended(worker, row);
    twins_again(worker, twins);
}

static void batch_failed(struct worker *worker, struct batch *batch)
{
    if (batch->status == STATUS_DEVICE_LOST) { /* nobody's fault: give everything back and let a new process try */
        enum { LEAVE_MS = 1000 };
        settle_drain(worker, LEAVE_MS, STATUS_DEVICE_LOST);
        rows_back(worker, batch);
    } else if (batch->engine.rows == 1) {
        row_guilty(worker, batch);
    } else if (!worker_takes_more(worker)) {
        rows_back(worker, batch);
    } else if (batch->status == STATUS_NO_MEMORY) {
        worker->stats.out_of_memory++;
        while (worker->budget.tokens > 1 && worker->budget.tokens >= batch->engine.extent)
            budget_halve(&worker->budget);
        rows_back(worker, batch);
    } else {
        halve(worker, batch);
    }
}

/* The other half: untried when this one failed, else known to be bad. */
static void other_half(struct worker *worker, struct batch *other, bool known)
{
    if (!worker_takes_more(worker)) {
        rows_back(worker, other);
    } else if (known && other->engine.rows > 1) {
        halve(worker, other);
    } else {
        compute_retry(worker, other);
        return;
    }
    batch_free(other);
}

void rows_returned(struct worker *worker, struct batch *batch)
{
    struct batch *other = batch->other;
    bool good =
        batch->status == STATUS_OK || batch->status == STATUS_NON_FINITE; /* format finds which are not finite */
    batch->other = NULL;
    if (good)
        rows_computed(worker, batch);
    if (other != NULL)
        other_half(worker, other, good);
    if (!good) /* its own halves go before the other one */
        batch_failed(worker, batch);
    batch_free(batch);
}

bool rows_unwanted(struct worker *worker, struct batch *batch)
{
    for (uint32_t i = 0; i < batch->engine.rows; i++)
        for (const struct row *row = batch->rows[i]; row != NULL; row = row->twins)
            if (row->request->code == CODE_NONE)
                return false;
    for (uint32_t i = 0; i < batch->engine.rows; i++)
        (void)wanted(worker, batch->rows[i]);
    if (batch->other != NULL)
        other_half(worker, batch->other, false);
    batch->other = NULL;
    batch_free(batch);
    return true;
}
