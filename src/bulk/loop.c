/* The loop of a job. Each stage does a little and says whether it did; when none did, the loop waits for a compute or
 * prep thread. So compute threads never wait for reading, sorting, writing or formatting. */
#include "base/half.h"
#include "bulk/job.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "bulk/digest.h"
#include "bulk/failures.h"
#include "bulk/job_internal.h"
#include "bulk/journal.h"
#include "bulk/output/store.h"
#include "compute/thread_pool.h"
#include "engine/vector.h"

void job_report(struct job *job, bool must)
{
    uint64_t now_ns = clock_now_ns();
    if (!job->options->report || !job->source || (!must && now_ns - job->reported_ns < REPORT_MS * NS_PER_MS)) {
        return;
    }
    job->reported_ns = now_ns;
    if (!job->reading) { job->progress.duplicate_ids = source_duplicates(job->source); }
    job->progress.left_s = -1;
    if (job->progress.phase == JOB_CHECKING) {
        job->progress.share = source_share(job->source);
    } else if (job->progress.phase == JOB_COMPUTING) {
        job->progress.share = estimate_share(&job->estimate);
        job->progress.left_s = estimate_left_s(&job->estimate, now_ns);
    } else {
        job->progress.share = 1;
    }
    job->options->report(job->options->context, &job->progress);
}

/* --- Reading: read.c fills doc batches, a prep thread prepares each, and then it waits in its window. --- */

enum { DOC_BATCHES_OUT_MAX = 1024 };

static void prepare_docs(void *context, void *item)
{
    (void)context;
    doc_batch_prepare(item);
}

/* Puts documents that were read into their window. */
static enum status place_docs(struct job *job, struct doc_batch *docs, struct err *err)
{
    struct lookahead *window = &job->windows[job->read % WINDOWS];
    bool closes = docs->closes;
    window->end = docs->end;
    job->progress.documents = docs->end.documents;
    job->progress.duplicate_ids = docs->end.duplicate_ids;
    if (docs->ends) { /* documents that were read before are still finished */
        job->ended = true;
        job->ending = docs->status;
        job->ending_err = docs->err;
        docs->status = STATUS_OK;
    }
    enum status status = job_retry_list(job, &docs->listed, err);
    if (docs->count == 0) {
        doc_batch_free(docs);
    } else {
        docs->window = window;
        window->docs_out++;
        lookahead_push(window, docs);
        thread_pool_put(job->prep, docs);
    }
    job->read += closes && window->first;
    return status;
}

static enum status read_documents(struct job *job, bool *worked, struct err *err)
{
    while (!job->ended && !job->stopping && job->read - job->finished < WINDOWS &&
           thread_pool_out(job->prep) < DOC_BATCHES_OUT_MAX) {
        struct doc_batch *docs;
        TRY(job_read_take(job, &docs, err));
        if (!docs) { break; }
        *worked = true;
        TRY(place_docs(job, docs, err));
    }
    return STATUS_OK;
}

static enum status take_prepared(struct job *job, bool *worked, struct err *err)
{
    for (struct doc_batch *docs; (docs = thread_pool_take(job->prep)) != NULL;) {
        *worked = true;
        docs->window->docs_out--;
        job->progress.truncated += docs->cut;
        if (docs->status != STATUS_OK) {
            *err = docs->err;
            return docs->status;
        }
    }
    return STATUS_OK;
}

/* --- Computing: finds rows that are known or duplicates, and makes batches of the others, longest texts first --- */

enum { EXPECT = 16 }; /* rows whose lookup is prefetched; about ten cover the latency of memory */

/* The limit below which elements of vectors in the files are. */
static float job_limit(const struct job *job)
{
    return job->options->element == ELEMENT_F16 ? HALF_LIMIT : INFINITY;
}

/* A row that an earlier run computed after its last checkpoint must still have the same text. */
static enum status check_recent(struct job *job, const struct output_row *row, struct err *err)
{
    const struct done *recent = (const struct done *)(const void *)job->recent.data;
    size_t count = job->recent.length / sizeof *recent;
    while (job->recent_at < count && recent[job->recent_at].row < row->number) { job->recent_at++; }
    if (job->recent_at == count || recent[job->recent_at].row != row->number ||
        hash_equal(recent[job->recent_at].hash, row->hash)) {
        return STATUS_OK;
    }
    return err_set(err, STATUS_BAD_INPUT,
                   "%s line %llu: the input has changed since this job began; --overwrite begins again",
                   row->document->file, (unsigned long long)row->document->line);
}

/* Decides whether a row must be computed, was stored by an earlier run, or copies an earlier row. */
static enum status decide_row(struct job *job, const struct lookahead *window, struct output_row *row, struct err *err)
{
    TRY(job_retry_row(job, row, err));
    if (row->state != STATE_TODO) { return STATUS_OK; }
    TRY(check_recent(job, row, err));
    struct dedup_entry known = dedup_find(job->dedup, row->hash);
    bool kept = job->store || job->options->dry;
    bool reachable = known.row != DEDUP_NONE && (kept || known.row >= window->rows[0].number);
    if (reachable && known.row == row->number) {
        row->state = STATE_STORED; /* by an earlier run */
    } else if (reachable && known.row < row->number) {
        row->state = STATE_COPY;
        row->origin = known.row;
    } else {
        dedup_put(job->dedup, row->hash, (struct dedup_entry){.row = row->number});
    }
    return STATUS_OK;
}

/* Counts the window's work for the estimate. */
static void plan_work(struct job *job, const struct lookahead *window)
{
    uint64_t known = 0;
    for (uint32_t i = 0; i < window->row_count; i++) {
        const struct output_row *row = &window->rows[i];
        for (uint32_t p = 0; p < row->piece_count && row->state == STATE_STORED; p++) {
            known += piece_weight(&row->pieces[p]);
        }
    }
    estimate_plan(&job->estimate, window->end.share, lookahead_weight(window, 0, window->order_count), known,
                  clock_now_ns());
}

static enum status plan_window(struct job *job, bool *worked, struct err *err)
{
    struct lookahead *window = &job->windows[job->planned % WINDOWS];
    if (job->planned == job->read || window->docs_out > 0 || job->stopping) { return STATUS_OK; }
    *worked = true;
    enum numbering numbering = !job_has_chunks(job) ? NUMBER_DOCUMENTS
                               : !job->retry        ? NUMBER_CHUNKS
                                                    : NUMBER_CHUNKS_AGAIN;
    TRY(lookahead_make_rows(window, job->next_row, numbering, err));
    job->next_row += window->row_count;
    for (uint32_t i = 0; i < window->row_count; i++) {
        if (i + EXPECT < window->row_count) { dedup_expect(job->dedup, window->rows[i + EXPECT].hash); }
        TRY(decide_row(job, window, &window->rows[i], err));
        bool settled = window->rows[i].state != STATE_TODO && window->rows[i].state != STATE_KEPT;
        job->progress.rows += settled;
        job->progress.here += settled;
    }
    TRY(lookahead_order(window, job_row_floats(job), err));
    plan_work(job, window);
    window->planned = true;
    job->planned++;
    return STATUS_OK;
}

/* Puts a batch of the first of these pieces; returns how many. */
static uint32_t submit_batch(struct job *job, struct lookahead *window, uint32_t first, uint32_t left,
                             uint32_t most_weight)
{
    const struct job_options *options = job->options;
    struct bulk_batch *batch = job->free_batches[--job->free_count];
    uint32_t count = lookahead_batch(window, first, left, most_weight, options->batch_rows);
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
    struct resubmit *again = &job->resubmits[job->resubmit_count - 1];
    uint32_t most = again->most_weight < job->batch_tokens ? again->most_weight : job->batch_tokens;
    uint32_t count = submit_batch(job, again->window, again->first, again->count, most);
    again->first += count;
    again->count -= count;
    if (again->count > 0) { return; }
    job->resubmit_count--;
    again->window->batches_out--; /* the one that was too large */
}

static void submit_rows(struct job *job, bool *worked)
{
    const struct executor *executor = job->options->executor;
    while (!job->stopping && (job->resubmit_count > 0 || job->submitted < job->planned)) {
        struct lookahead *window = &job->windows[job->submitted % WINDOWS];
        if (job->resubmit_count == 0 && window->submitted == window->order_count) {
            job->submitted++;
            *worked = true;
            continue;
        }
        if (job->free_count == 0 || !executor->ops->has_room(executor)) { break; }
        if (job->resubmit_count > 0) {
            submit_again(job);
        } else {
            window->submitted += submit_batch(job, window, window->submitted, window->order_count - window->submitted,
                                              job->batch_tokens);
        }
        *worked = true;
    }
}

static bool has_batches_out(const struct job *job)
{
    return job->free_count < job->batch_count;
}

/* The mean of the parts, always in the same order, so that it has the same bits in every run. */
static void take_mean(const struct job *job, const struct output_row *row, float *to)
{
    uint32_t dim = job->options->dim;
    memcpy(to, row->parts, dim * sizeof(float));
    for (uint32_t p = 1; p < row->piece_count; p++) {
        for (uint32_t i = 0; i < dim; i++) { to[i] += row->parts[(size_t)p * dim + i]; }
    }
    for (uint32_t i = 0; i < dim; i++) { to[i] /= (float)row->piece_count; }
    if (job->options->normalize) { vector_normalize(to, dim); }
}

static void settle_row(struct job *job, const struct lookahead *window, struct output_row *row)
{
    for (uint32_t p = 0; p < row->piece_count && row->code == ROW_OK; p++) { row->code = row->pieces[p].code; }
    if (row->code == ROW_OK && row->piece_count > 1) {
        float *vector = lookahead_vector(window, row, job->options->dim);
        take_mean(job, row, vector);
        row->code = piece_check(vector, job->options->dim, job_limit(job));
    }
    row->here = row->code == ROW_OK;
    row->state = row->here ? STATE_DONE : STATE_FAILED;
    if (!row->here) { dedup_put(job->dedup, row->hash, (struct dedup_entry){row->number, row->code}); }
}

/* Queues the pieces of a batch for batches of half its size. If memory ran out, all later batches are as small: a size
 * that did not fit once would not fit again. The window counts this batch until the last of its pieces is put. */
static enum status put_aside(struct job *job, const struct bulk_batch *batch, struct err *err)
{
    const struct lookahead *window = batch->window;
    uint32_t first = (uint32_t)(batch->pieces - window->order);
    uint32_t half = (uint32_t)(lookahead_weight(batch->window, first, batch->count) / 2);
    if (job->resubmit_count == job->resubmit_room) {
        uint32_t room = job->resubmit_room + job->batch_count;
        struct resubmit *bigger = realloc(job->resubmits, room * sizeof *bigger);
        if (!bigger) { return err_set(err, STATUS_NO_MEMORY, "no memory for %u texts", batch->count); }
        job->resubmits = bigger;
        job->resubmit_room = room;
    }
    if (!batch->halve) {
        job->batch_tokens = half < job->batch_tokens ? half : job->batch_tokens;
        job->progress.too_large++;
    }
    for (uint32_t i = 0; i < batch->count; i++) {
        batch->pieces[i].piece->code = ROW_OK; /* some may have been refused already */
    }
    job->resubmits[job->resubmit_count++] = (struct resubmit){batch->window, first, batch->count, half};
    return STATUS_OK;
}

static enum status take_batch(struct job *job, const struct bulk_batch *batch, struct err *err)
{
    struct lookahead *window = batch->window;
    uint32_t rows = 0, good = 0;
    if ((batch->status == STATUS_NO_MEMORY || batch->halve) && batch->count > 1) { return put_aside(job, batch, err); }
    window->batches_out--;
    if (batch->status != STATUS_OK) {
        *err = batch->err;
        return batch->status;
    }
    for (uint32_t i = 0; i < batch->count; i++) {
        const struct piece *piece = batch->pieces[i].piece;
        if (piece->code != ROW_OK && job->options->strict) {
            const struct document *document = piece->owner->document;
            return err_set(err, STATUS_BAD_INPUT, "%s line %llu: %s", job_file_of(document),
                           (unsigned long long)document->line, failure_text(piece->code));
        }
        if (job->options->source.records) { piece->vector[job->options->dim] = (float)piece->row.tokens; }
        if (--piece->owner->pieces_left > 0) { continue; }
        settle_row(job, window, piece->owner);
        rows++;
        good += piece->owner->here;
    }
    if (window->since_ns == 0) { window->since_ns = clock_now_ns(); }
    job->progress.rows += rows;
    job->progress.here += rows;
    job->progress.computed += rows;
    job->progress.computed_here += good;
    job->progress.tokens += batch->tokens;
    job->progress.truncated += batch->cut;
    estimate_done(&job->estimate, lookahead_weight(window, (uint32_t)(batch->pieces - window->order), batch->count),
                  clock_now_ns());
    return STATUS_OK;
}

static enum status take_computed(struct job *job, bool *worked, struct err *err)
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

/* --- The beginning and the end of a job --- */

/* Writes the headers once the number of rows is known. */
static enum status patch_documents(struct job *job, struct err *err)
{
    for (int i = APPEND_DOCUMENTS; i <= APPEND_CHUNKS; i++) {
        char header[NPY_HEADER_BYTES];
        struct append_file *file = &job->files[i];
        if (!file->path) { continue; }
        npy_header(header, "<u8", job->at.rows, i == APPEND_CHUNKS ? 2 : 0);
        if (pwrite(file->fd, header, sizeof header, 0) != (ssize_t)sizeof header) {
            return err_set_errno(err, "cannot write %s", file->path);
        }
        TRY(append_file_sync(file, err));
    }
    return STATUS_OK;
}

static enum status end_job(struct job *job, struct err *err)
{
    job->progress.phase = JOB_FINISHING;
    job_report(job, true);
    if (job->retry) { return job_retry_end(job, err); }
    for (int i = 0; i < APPEND_FILES; i++) { TRY(append_file_flush(&job->files[i], err)); }
    if (job->store) { TRY(store_finish(job->store, job->at.rows, err)); }
    TRY(patch_documents(job, err));
    if (!job->journal) { return STATUS_OK; }
    TRY(job_put_checkpoint(job, err)); /* even for a job without rows */
    TRY(job_commit_all(job, err));
    if (job->at.failed == 0 && unlink(job->options->output->failures) != 0) {
        return err_set_errno(err, "cannot remove %s", job->options->output->failures);
    }
    TRY(job_write_manifest(job, job->options->output->failures, err));
    return job_remove_leftovers(job->options->output, err);
}

static enum status open_job(struct job *job, const struct job_options *options, struct err *err)
{
    *job = (struct job){.options = options};
    job->digest = XXH3_createState();
    job->batches = calloc(options->executor->batches, sizeof *job->batches);
    job->free_batches = calloc(options->executor->batches, sizeof *job->free_batches);
    job->batch_tokens = options->batch_tokens;
    if (!job->digest || !job->batches || !job->free_batches) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for the job");
    }
    job->preparer = options->preparer;
    if (getrandom(&job->preparer.seed, sizeof job->preparer.seed, 0) != (ssize_t)sizeof job->preparer.seed) {
        return err_set_errno(err, "no random number to be had");
    }
    XXH3_128bits_reset(job->digest);
    job->at.digest = job_digest_now(job); /* the digest of no documents */
    for (; job->batch_count < options->executor->batches; job->batch_count++) {
        job->free_batches[job->free_count++] = &job->batches[job->batch_count];
    }
    TRY(dedup_open(DEDUP_ROWS_DEFAULT, &job->dedup, err));
    TRY(source_open(&options->source, &job->source, err));
    struct thread_pool_options pool = {.name = "prep",
                                       .threads = options->prep_threads,
                                       .capacity = DOC_BATCHES_OUT_MAX,
                                       .wake_fd = options->wake_fd,
                                       .work = prepare_docs};
    return thread_pool_open(&pool, &job->prep, err);
}

static void close_job(struct job *job)
{
    thread_pool_close(job->prep);
    job_finish_close(job);
    thread_pool_close(job->commits);
    free(job->commit);
    job_retry_close(job);
    source_close(job->source);
    store_close(job->store);
    journal_close(job->journal);
    dedup_close(job->dedup);
    for (int i = 0; i < APPEND_FILES; i++) { append_file_close(&job->files[i]); }
    for (int i = 0; i < WINDOWS; i++) { lookahead_free(&job->windows[i]); }
    XXH3_freeState(job->digest);
    buffer_free(&job->recent);
    buffer_free(&job->terms);
    free(job->batches);
    free(job->free_batches);
    free(job->resubmits);
}

/* Waits until a thread has something for us, or it is time to report. */
static void wait_for_threads(const struct job *job)
{
    uint64_t count;
    struct pollfd wake = {.fd = job->options->wake_fd, .events = POLLIN};
    if (poll(&wake, 1, REPORT_MS) > 0) {
        while (read(wake.fd, &count, sizeof count) < 0 && errno == EINTR) { continue; }
    }
}

static enum status run_stages(struct job *job, struct err *err)
{
    job->progress.phase = JOB_COMPUTING;
    estimate_begin(&job->estimate, source_share(job->source));
    job->begun_ns = clock_now_ns();
    TRY(job_read_open(job, err));
    while (!job->ended || job->finished < job->read) {
        bool worked = false;
        job->stopping = job->stopping || (job->options->stop && *job->options->stop != 0);
        TRY(take_computed(job, &worked, err));
        submit_rows(job, &worked);
        TRY(take_prepared(job, &worked, err));
        TRY(plan_window(job, &worked, err));
        submit_rows(job, &worked);
        TRY(job_finish_rows(job, &worked, err));
        TRY(read_documents(job, &worked, err));
        TRY(job_commit_when_due(job, err));
        job_report(job, false);
        if (job->stopping && !has_batches_out(job)) { return job_commit_all(job, err); }
        if (!worked) { wait_for_threads(job); }
    }
    return STATUS_OK;
}

/* Keeps the rows that it can at the end of a job that is not finished; others are computed again. */
static void keep_rows(struct job *job, bool storing)
{
    struct err ignored;
    if (!job->journal) { return; }
    enum status kept = storing ? job_commit_all(job, &ignored) : job_commit_wait(job, &ignored);
    (void)kept;
}

/* After an error: waits until the executor has returned all batches, because they point into the job's memory, and
 * keeps the rows that it can. */
static void drain_executor(struct job *job)
{
    struct err ignored;
    struct executor *executor = job->options->executor;
    bool worked = false, storing = true;
    job->stopping = true;
    while (has_batches_out(job)) {
        if (storing) {
            storing = take_computed(job, &worked, &ignored) == STATUS_OK;
        } else {
            for (struct bulk_batch *batch; (batch = executor->ops->take(executor)) != NULL;) {
                job->free_batches[job->free_count++] = batch;
            }
        }
        if (has_batches_out(job)) { wait_for_threads(job); }
    }
    keep_rows(job, storing);
}

static enum status run_all(struct job *job, struct job_result *result, struct err *err)
{
    TRY(job_resume(job, err));
    if (job->journal) { TRY(job_commit_open(job, err)); }
    result->before = job->ended && (!job->options->stop || *job->options->stop == 0);
    if (job->ended) { return STATUS_OK; }
    TRY(job_finish_open(job, err));
    /* In a folder the input may be files that this job has just made. */
    enum status status = job->options->source.glob ? job_check_output(job->options, err) : STATUS_OK;
    if (status == STATUS_OK) { status = run_stages(job, err); }
    job_read_close(job);
    if (status != STATUS_OK) { drain_executor(job); }
    bool stopped = job->stopping || (job->options->stop && *job->options->stop != 0);
    if (status == STATUS_OK && !stopped && job->ending != STATUS_OK) {
        keep_rows(job, true);
        *err = job->ending_err;
        status = job->ending;
    }
    result->finished = status == STATUS_OK && !stopped;
    if (status != STATUS_OK && job->journal && !job->seeded && job->next_row == 0) { job_forget(job); }
    TRY(result->finished ? end_job(job, err) : status);
    return result->finished && job->retry ? source_next(job->source, &job->ahead, &job->grown, err) : STATUS_OK;
}

/* One pass over the input. `*grown`: it retried failed rows, and the input has grown since. */
static enum status run_pass(const struct job_options *options, bool tries_failed, struct job_result *result,
                            bool *grown, struct err *err)
{
    struct job *job = calloc(1, sizeof *job);
    *result = (struct job_result){0};
    *grown = false;
    if (!job) { return err_set(err, STATUS_NO_MEMORY, "no memory for the job"); }
    enum status status = open_job(job, options, err);
    job->tries_failed = tries_failed && !options->source.records;
    if (status == STATUS_OK) { status = run_all(job, result, err); }
    *grown = job->grown && job->retry;
    result->finished = result->finished && status == STATUS_OK;
    if (options->dry && job->source) {
        buffer_append(options->dry, source_files(job->source)->data, source_files(job->source)->length);
    }
    job_report(job, true);
    result->progress = job->progress;
    result->kept = job_has_committed(job);
    if (job->source) {
        snprintf(result->first_duplicate, sizeof result->first_duplicate, "%s", source_first_duplicate(job->source));
    }
    close_job(job);
    free(job);
    return status;
}

enum status job_run(const struct job_options *options, struct job_result *result, struct err *err)
{
    bool grown;
    *result = (struct job_result){0};
    TRY(job_check_output(options, err));
    TRY(run_pass(options, true, result, &grown, err));
    for (size_t i = 0; i < options->source.operand_count && grown; i++) {
        if (strcmp(options->source.operands[i], "-") == 0) {
            result->finished = grown = false; /* standard input cannot be read twice; the next run resumes */
        }
    }
    if (!grown) { return STATUS_OK; }
    uint64_t computed = result->progress.computed_here;
    enum status status = run_pass(options, false, result, &grown, err);
    result->progress.computed_here += computed;
    return status;
}
