/* The loop. Every stage does a little and says whether it did; when none did, there is nothing to do but to wait for a
 * compute or prep thread. So compute threads never wait for reading, sorting, writing or formatting. */
#include "bulk/job.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "bulk/job_state.h"

enum { REPORT_MS = 100 };

static enum status open_job(struct job *job, const struct job_options *options, struct err *err)
{
    *job = (struct job){.options = options};
    job->digest = XXH3_createState();
    job->vector = malloc(options->dim * sizeof(float));
    job->batches = calloc(options->executor->batches, sizeof *job->batches);
    job->free_batches = calloc(options->executor->batches, sizeof *job->free_batches);
    job->batch_tokens = options->batch_tokens;
    if (job->digest == NULL || job->vector == NULL || job->batches == NULL || job->free_batches == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the job");
    job->preparer = options->preparer;
    if (getrandom(&job->preparer.seed, sizeof job->preparer.seed, 0) != (ssize_t)sizeof job->preparer.seed)
        return err_set_errno(err, "no random number to be had");
    XXH3_128bits_reset(job->digest);
    job->at.digest = job_digest_now(job); /* of no documents */
    for (; job->batch_count < options->executor->batches; job->batch_count++)
        job->free_batches[job->free_count++] = &job->batches[job->batch_count];
    TRY(dedup_open(DEDUP_ROWS_DEFAULT, &job->dedup, err));
    TRY(source_open(&options->source, &job->source, err));
    return job_prep_open(job, err);
}

static void close_job(struct job *job)
{
    job_prep_close(job);
    job_commit_close(job);
    job_retry_close(job);
    source_close(job->source);
    sum_close(job->sum);
    store_close(job->store);
    journal_close(job->journal);
    dedup_close(job->dedup);
    for (int i = 0; i < TAILS; i++)
        tail_close(&job->tails[i]);
    for (int i = 0; i < WINDOWS; i++)
        look_free(&job->windows[i]);
    slice_free(job->open_slice);
    while (job->idle != NULL) {
        struct slice *slice = job->idle;
        job->idle = slice->next;
        slice_free(slice);
    }
    XXH3_freeState(job->digest);
    buffer_free(&job->recent);
    buffer_free(&job->terms);
    free(job->vector);
    free(job->batches);
    free(job->free_batches);
    free(job->again);
}

/* Of what was read, the part that is done; of all bytes, the part that was read. */
static double share_done(const struct job *job)
{
    uint64_t total = source_total_bytes(job->source);
    if (total == 0)
        return -1;
    double read = (double)source_read_bytes(job->source) / (double)total;
    if (job->progress.phase == JOB_COMPUTING && job->progress.documents > 0) {
        double rows = (double)job->progress.documents; /* a document may be many rows: those are known once planned */
        if (job->next_row > 0 && job->options->preparer.chunking.tokens > 0)
            rows = (double)job->next_row;
        read *= rows > 0 ? (double)job->progress.rows / rows : 0;
    }
    return read < 1 ? read : 1;
}

void job_report(struct job *job, bool must)
{
    uint64_t now_ns = clock_now_ns();
    if (job->options->report == NULL || job->source == NULL ||
        (!must && now_ns - job->reported_ns < REPORT_MS * NS_PER_MS))
        return;
    job->reported_ns = now_ns;
    job->progress.share = job->progress.phase == JOB_FINISHING ? 1 : share_done(job);
    job->options->report(job->options->context, &job->progress);
}

static enum status step(struct job *job, bool *worked, struct err *err)
{
    TRY(job_take_computed(job, worked, err));
    TRY(job_submit(job, worked, err));
    TRY(job_take_prepared(job, worked, err));
    TRY(job_plan(job, worked, err));
    TRY(job_submit(job, worked, err));
    TRY(job_finish_rows(job, worked, err));
    return job_read(job, worked, err);
}

/* Until a thread has something for us, or it is time to report. */
static void wait_for_threads(const struct job *job)
{
    uint64_t count;
    struct pollfd wake = {.fd = job->options->wake_fd, .events = POLLIN};
    if (poll(&wake, 1, REPORT_MS) > 0)
        while (read(wake.fd, &count, sizeof count) < 0 && errno == EINTR)
            continue;
}

static enum status run(struct job *job, struct err *err)
{
    job->progress.phase = JOB_COMPUTING;
    job->begun_ns = clock_now_ns();
    while (!job->ended || job->finished < job->read) {
        bool worked = false;
        job->stopping = job->stopping || (job->options->stop != NULL && *job->options->stop != 0);
        TRY(step(job, &worked, err));
        TRY(job_commit_when_due(job, err));
        job_report(job, false);
        if (job->stopping && !job_has_batches_out(job))
            return job_commit_all(job, err);
        if (!worked)
            wait_for_threads(job);
    }
    return STATUS_OK;
}

/* After an error: the executor gives back what it has, so that nobody looks at the job's memory any more; what can be
 * kept of it is kept. */
static void drain(struct job *job)
{
    struct err ignored;
    struct executor *executor = job->options->executor;
    bool worked = false, storing = true;
    job->stopping = true;
    while (job_has_batches_out(job)) {
        if (storing) {
            storing = job_take_computed(job, &worked, &ignored) == STATUS_OK;
        } else {
            for (struct bulk_batch *batch; (batch = executor->ops->take(executor)) != NULL;)
                job->free_batches[job->free_count++] = batch;
        }
        if (job_has_batches_out(job))
            wait_for_threads(job);
    }
    enum status kept = storing ? job_commit_all(job, &ignored) : STATUS_OK;
    (void)kept; /* what is not will be computed again */
}

static enum status run_all(struct job *job, struct job_result *result, struct err *err)
{
    TRY(job_resume(job, err));
    result->before = job->ended;
    if (job->ended)
        return STATUS_OK;
    enum status status = run(job, err);
    if (status != STATUS_OK)
        drain(job);
    bool stopped = job->stopping || (job->options->stop != NULL && *job->options->stop != 0);
    if (status == STATUS_OK && !stopped && job->ending != STATUS_OK) {
        *err = job->ending_err;
        status = job->ending;
    }
    result->finished = status == STATUS_OK && !stopped;
    TRY(result->finished ? job_end(job, err) : status);
    return result->finished && job->retry != NULL ? source_next(job->source, &job->ahead, &job->grown, err) : STATUS_OK;
}

/* One pass over the input. `*grown`: failed rows were tried again, and there is more behind the input that they are of.
 */
static enum status run_pass(const struct job_options *options, bool tries_failed, struct job_result *result,
                            bool *grown, struct err *err)
{
    struct job *job = calloc(1, sizeof *job);
    *result = (struct job_result){0};
    *grown = false;
    if (job == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the job");
    enum status status = open_job(job, options, err);
    job->tries_failed = tries_failed;
    if (status == STATUS_OK)
        status = run_all(job, result, err);
    *grown = job->grown && job->retry != NULL;
    result->finished = result->finished && status == STATUS_OK;
    job_report(job, true);
    result->progress = job->progress;
    close_job(job);
    free(job);
    return status;
}

static bool reads_standard_input(const struct source_options *source)
{
    for (size_t i = 0; i < source->operand_count; i++) {
        if (strcmp(source->operands[i], "-") == 0) {
            return true;
        }
    }
    return false;
}

enum status job_run(const struct job_options *options, struct job_result *result, struct err *err)
{
    bool grown;
    TRY(run_pass(options, true, result, &grown, err));
    if (grown && reads_standard_input(&options->source)) {
        result->finished = false; /* it cannot be read twice: the next run goes on */
        return STATUS_OK;
    }
    return grown ? run_pass(options, false, result, &grown, err) : STATUS_OK;
}
