/* The rows of a batch that is back. A request ends with its last row, or fails with its first bad one.
 *
 * Only the guilty row of a failed batch is blamed, so the batch is halved until that row has failed alone. If the first
 * half succeeds, the fault is in the second, which is halved at once without a try. So one bad row in n costs at most
 * 2·log2(n) more forward passes.
 *
 * Running out of memory is no row's fault while the batch has several: the budget halves and the rows wait again. A
 * lost device is never a row's fault. */
#include "schedule/worker/rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "schedule/worker_internal.h"

/* Called for each row that has come back: if it was the last one out, moves the request on. */
static void after_row(struct worker *worker, struct request *request)
{
    if (request->rows_out > 0) { return; }
    request->lifetime.state = REQUEST_WAITING;
    bool computed = request->retry.code == CODE_NONE && request->rows_left == 0;
    if (computed) { request->lifetime.computed_ns = worker->now; }
    if (request->retry.code != CODE_NONE) {
        settle_finish(worker, request);
    } else if (worker->quarantine.alone == request) {
        quarantine_rows_back(worker);
    } else if (computed) {
        prep_queue_format(worker, request);
    } else if (request->lifetime.given_up) {
        leave_release(worker, request);
    }
}

static void row_ended(struct worker *worker, struct row *row)
{
    row->duplicates = NULL;
    row->request->rows_out--;
    after_row(worker, row->request);
}

void rows_drop(struct worker *worker, struct request *request)
{
    for (uint32_t i = 0; i < request->row_count; i++) {
        if (request->rows[i].queue) { window_remove(&worker->window, &request->rows[i]); }
    }
}

void rows_go(struct worker *worker, const struct batch *batch)
{
    for (uint32_t i = 0; i < batch->engine.rows; i++) {
        for (struct row *row = batch->rows[i]; row != NULL; row = row->duplicates) {
            row->request->rows_out++;
            worker->stats.rows_shared++;
        }
        worker->stats.rows_shared--; /* the first one is not a duplicate */
    }
}

void rows_uncut(struct worker *worker, struct row *row)
{
    for (struct row *duplicate = row->duplicates, *next; duplicate != NULL; duplicate = next) {
        next = duplicate->duplicates;
        window_put_back(&worker->window, duplicate);
    }
    window_put_back(&worker->window, row);
}

/* --- the batch was computed --- */

static void row_computed(struct worker *worker, struct row *row, const struct batch *batch, const float *vector)
{
    struct request *request = row->request;
    memcpy(row->output, vector, request->dim * sizeof(float));
    if (request->lifetime.started_ns == batch->submitted_ns && batch->started_ns != 0) {
        request->lifetime.started_ns = batch->started_ns; /* the compute thread's time is more exact */
    }
    request->rows_left--;
    row_ended(worker, row);
}

static void rows_computed(struct worker *worker, const struct batch *batch)
{
    const float *vector = batch->engine.output;
    for (uint32_t i = 0; i < batch->engine.rows; i++) {
        uint32_t dim = batch->rows[i]->request->dim;
        for (struct row *row = batch->rows[i], *duplicate; row != NULL; row = duplicate) {
            duplicate = row->duplicates;
            row_computed(worker, row, batch, vector);
        }
        vector += dim;
    }
    pace_memory_sufficed(worker);
}

/* --- rows go back to where they waited, without blame --- */

static void row_back(struct worker *worker, struct row *row)
{
    struct request *request = row->request;
    if (request->retry.code == CODE_NONE && worker->quarantine.alone == request) {
        quarantine_row_back(worker, row);
    } else if (request->retry.code == CODE_NONE && worker_takes_more(worker) && !request->lifetime.given_up) {
        window_put_back(&worker->window, row);
    } else {
        request->lifetime.given_up = true;
    }
    row_ended(worker, row);
}

static int younger_first(const void *left, const void *right)
{
    const struct row *a = *(struct row *const *)left, *b = *(struct row *const *)right;
    if (a->request == b->request) { return a > b ? -1 : 1; }
    return entry_id_compare(b->request->identity.entry, a->request->identity.entry);
}

/* Takes back a batch that does not run, without blame: its rows go back to where they waited, in order of age;
 * duplicates wait on their own again, after them. Owns: the caller ends the batch. NULL is allowed. */
static void rows_back(struct worker *worker, struct batch *batch)
{
    if (!batch) { return; }
    uint32_t count = batch->engine.rows;
    qsort(batch->rows, count, sizeof(struct row *), younger_first);
    for (uint32_t i = 0; i < count; i++) {
        for (struct row *row = batch->rows[i]->duplicates, *duplicate; row != NULL; row = duplicate) {
            duplicate = row->duplicates;
            row_back(worker, row);
        }
    }
    for (uint32_t i = 0; i < count; i++) { row_back(worker, batch->rows[i]); }
}

/* --- in halves --- */

/* Returns the one of a row and its duplicates that is computed: the first whose request can still succeed. Those before
 * it end. */
static struct row *first_wanted(struct worker *worker, struct row *row)
{
    while (row && row->request->retry.code != CODE_NONE) {
        struct row *duplicate = row->duplicates;
        row_ended(worker, row);
        row = duplicate;
    }
    return row;
}

static bool try_again(struct worker *worker, struct row **rows, uint32_t count)
{
    uint32_t half = count > 1 ? count / 2 : 1, dim = rows[0]->request->dim;
    enum batch_layout layout = worker->options.layout;
    struct batch *first = batch_build(rows, half, layout, dim);
    if (first && count > 1) { first->other = batch_build(rows + half, count - half, layout, dim); }
    if (!first || (count > 1 && !first->other)) {
        batch_free(first);
        worker_starve(worker);
        return false;
    }
    batch_list_push_first(&worker->rows.halves, first);
    return true;
}

/* Halves a batch that holds a bad row. Rows of requests that have failed meanwhile need no try. */
static void halve_batch(struct worker *worker, struct batch *batch)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->engine.rows; i++) {
        batch->rows[count] = first_wanted(worker, batch->rows[i]);
        count += batch->rows[count] != NULL;
    }
    batch->engine.rows = count;
    if (count == 0) { return; }
    worker->stats.batches_bisected++;
    if (!try_again(worker, batch->rows, count)) { rows_back(worker, batch); }
}

/* The duplicates of a failed row have not failed, so they are tried on their own. */
static void duplicates_again(struct worker *worker, struct row *duplicates)
{
    struct row *first = first_wanted(worker, duplicates);
    if (!first) { return; }
    if (worker_takes_more(worker) && try_again(worker, &first, 1)) { return; }
    for (struct row *row = first, *duplicate; row != NULL; row = duplicate) {
        duplicate = row->duplicates;
        row_back(worker, row);
    }
}

static enum reply_code code_of_status(enum status status)
{
    switch (status) {
    case STATUS_NO_MEMORY:
        return CODE_OUT_OF_MEMORY;
    case STATUS_DEVICE_LOST:
        return CODE_DEVICE_LOST;
    case STATUS_TIMEOUT:
        return CODE_TIMEOUT;
    case STATUS_NON_FINITE:
        return CODE_NON_FINITE;
    default:
        return CODE_INTERNAL;
    }
}

static void row_guilty(struct worker *worker, const struct batch *batch)
{
    struct row *row = batch->rows[0], *duplicates = row->duplicates;
    struct request *request = row->request;
    if (request->retry.code == CODE_NONE && batch->status == STATUS_UNAVAILABLE) {
        request->lifetime.given_up = true; /* its text was dropped: it is given back, if it is ours after all */
        row_back(worker, row);
        duplicates_again(worker, duplicates);
        return;
    }
    if (request->retry.code == CODE_NONE && batch->ends_ns != 0 && batch->status == STATUS_TIMEOUT) {
        request_fail(request, CODE_EXPIRED, "expired before its text was complete");
    } else if (request->retry.code == CODE_NONE && request->task == TASK_GENERATE &&
               batch->status == STATUS_BAD_INPUT) {
        request_fail(request, CODE_TOO_LONG, "%.200s", batch->err.message);
    } else if (request->retry.code == CODE_NONE) {
        request_fail_row(request, (uint32_t)(row - request->rows), code_of_status(batch->status), "%.200s",
                         batch->err.message[0] != '\0' ? batch->err.message : status_name(batch->status));
        rows_drop(worker, request);
    }
    row_ended(worker, row);
    duplicates_again(worker, duplicates);
}

static void batch_failed(struct worker *worker, struct batch *batch)
{
    if (batch->status == STATUS_DEVICE_LOST) { /* give everything back and let a new process try */
        enum { LEAVE_MS = 1000 };
        leave_drain(worker, LEAVE_MS, STATUS_DEVICE_LOST);
        rows_back(worker, batch);
    } else if (batch->engine.rows == 1) {
        row_guilty(worker, batch);
    } else if (!worker_takes_more(worker)) {
        rows_back(worker, batch);
    } else if (batch->status == STATUS_NO_MEMORY) {
        pace_memory_lacked(worker, batch->engine.extent);
        rows_back(worker, batch);
    } else {
        halve_batch(worker, batch);
    }
}

/* Sends or halves the other half: untried if this one failed, else known to hold the bad row. */
static void other_half(struct worker *worker, struct batch *other, bool known)
{
    if (!worker_takes_more(worker)) {
        rows_back(worker, other);
    } else if (known && other->engine.rows > 1) {
        halve_batch(worker, other);
    } else {
        batch_list_push_first(&worker->rows.halves, other);
        return;
    }
    batch_free(other);
}

void rows_returned(struct worker *worker, struct batch *batch)
{
    struct batch *other = batch->other;
    bool good =
        batch->status == STATUS_OK || batch->status == STATUS_NON_FINITE; /* formatting finds which are not finite */
    batch->other = NULL;
    if (good) { rows_computed(worker, batch); }
    if (other) { other_half(worker, other, good); }
    if (!good) { /* its own halves go before the other half */
        batch_failed(worker, batch);
    }
    batch_free(batch);
}

/* Returns whether all requests of a batch have failed meanwhile, so that it need not run. Owns: then ends the batch. */
static bool rows_unwanted(struct worker *worker, struct batch *batch)
{
    for (uint32_t i = 0; i < batch->engine.rows; i++) {
        for (const struct row *row = batch->rows[i]; row != NULL; row = row->duplicates) {
            if (row->request->retry.code == CODE_NONE) { return false; }
        }
    }
    for (uint32_t i = 0; i < batch->engine.rows; i++) { (void)first_wanted(worker, batch->rows[i]); }
    if (batch->other) { other_half(worker, batch->other, false); }
    batch->other = NULL;
    batch_free(batch);
    return true;
}

void rows_advance(struct worker *worker)
{
    while (worker->rows.halves.first && cut_has_room(worker)) {
        struct batch *batch = batch_list_pop(&worker->rows.halves);
        if (rows_unwanted(worker, batch)) { continue; }
        struct action *action = worker_act(worker, ACTION_SUBMIT);
        if (!action) {
            batch_list_push_first(&worker->rows.halves, batch);
            return;
        }
        cut_submit(worker, action, batch);
    }
}

void rows_unstarted(struct worker *worker)
{
    for (struct batch *batch; (batch = batch_list_pop(&worker->rows.halves)) != NULL;) {
        rows_back(worker, batch->other);
        rows_back(worker, batch);
        batch_free(batch);
    }
}
