/* Finishing: rows in input order once their window is complete; then a checkpoint, so that their window is never needed
 * again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bulk/job_state.h"
#include "bulk/json_text.h"
#include "bulk/manifest.h"
#include "bulk/npy.h"
#include "work/reply.h"

static void put_id(struct buffer *to, const struct document *document)
{
    if (document->id != NULL)
        buffer_append(to, document->id, document->id_bytes);
    else
        buffer_format(to, "%llu", (unsigned long long)document->number);
}

/* What a retry has to know of the row stands in front. */
static void put_failure(struct buffer *to, const struct unit *unit, bool chunks)
{
    const struct document *document = unit->document;
    buffer_format(to, "{\"row\":%llu,", (unsigned long long)unit->number);
    if (chunks)
        buffer_format(to, "\"document\":%llu,\"chunk\":%u,", (unsigned long long)document->number, unit->chunk);
    buffer_string(to, "\"id\":");
    put_id(to, document);
    buffer_string(to, ",\"file\":");
    json_put_string(to, document->file, strlen(document->file));
    buffer_format(to, ",\"line\":%llu,\"code\":\"%s\",\"message\":", (unsigned long long)document->line,
                  row_code_name(unit->code));
    const char *text = row_code_text(unit->code);
    if (document->code != ROW_OK)
        json_put_string(to, document->message, document->message_bytes);
    else
        json_put_string(to, text, strlen(text));
    buffer_string(to, "}\n");
}

static void put_floats(struct buffer *to, const float *vector, uint32_t dim)
{
    char *at = buffer_reserve(to, (size_t)dim * (REPLY_FLOAT_MAX + 1) + 2);
    if (at == NULL)
        return;
    char *begin = at;
    *at++ = '[';
    for (uint32_t i = 0; i < dim; i++) {
        if (i > 0)
            *at++ = ',';
        at += reply_put_float(at, vector[i]);
    }
    *at++ = ']';
    to->length += (size_t)(at - begin);
}

/* A row of the JSON lines; `vector` NULL: it failed. */
static void put_line(const struct job *job, struct buffer *to, const struct unit *unit, const float *vector)
{
    if (!job->options->arrays) {
        buffer_string(to, "{\"id\":");
        put_id(to, unit->document);
        if (job_has_chunks(job))
            buffer_format(to, ",\"chunk\":%u", unit->chunk);
        buffer_string(to, ",\"vector\":");
    }
    if (vector != NULL)
        put_floats(to, vector, job->options->dim);
    else
        buffer_string(to, "null");
    if (!job->options->arrays && vector == NULL)
        buffer_format(to, ",\"error\":\"%s\"", row_code_name(unit->code));
    if (!job->options->arrays) {
        buffer_append(to, unit->document->kept, unit->document->kept_bytes);
        buffer_string(to, "}");
    }
    buffer_string(to, "\n");
}

/* Gives a duplicate the vector of its origin, or its failure. */
static enum status copy(struct job *job, struct look *window, struct unit *unit, struct err *err)
{
    struct dedup_entry known = dedup_find(job->dedup, unit->hash);
    if (known.row == unit->origin && known.code != ROW_OK) {
        unit->state = UNIT_FAILED;
        unit->code = known.code;
        return STATUS_OK;
    }
    job->at.copied++;
    job->progress.copied++;
    unit->here = true;
    uint32_t dim = job->options->dim;
    uint64_t at = unit->origin - window->units[0].number; /* beyond all of them if it is in an earlier window */
    const struct unit *origin = at < window->unit_count ? &window->units[at] : NULL;
    if (origin == NULL || origin->number != unit->origin || !origin->here)
        return store_get(job->store, unit->origin, look_vector(window, unit, dim), err);
    memcpy(look_vector(window, unit, dim), look_vector(window, origin, dim), dim * sizeof(float));
    return STATUS_OK;
}

static void fail(struct job *job, const struct look *window, const struct unit *unit)
{
    const uint32_t nan_bits = 0x7fc00000; /* the same bits on every machine */
    float *vector = look_vector(window, unit, job->options->dim);
    for (uint32_t i = 0; i < job->options->dim; i++)
        memcpy(&vector[i], &nan_bits, sizeof nan_bits);
    job->at.failed++;
    job->progress.failed++;
    if (job->tails[TAIL_FAILURES].path != NULL)
        put_failure(&job->tails[TAIL_FAILURES].pending, unit, job_has_chunks(job));
}

static enum status put_tails(struct job *job, const struct look *window, const struct unit *unit, struct err *err)
{
    struct tail *tails = job->tails;
    if (tails[TAIL_LINES].path != NULL) {
        const float *vector = NULL;
        if (unit->here) {
            vector = look_vector(window, unit, job->options->dim);
        } else if (unit->state == UNIT_STORED) {
            TRY(store_get(job->store, unit->number, job->vector, err));
            vector = job->vector;
        }
        TRY(job_retry_line(job, TAIL_LINES, unit->number, err));
        put_line(job, &tails[TAIL_LINES].pending, unit, vector);
    }
    if (tails[TAIL_IDS].path != NULL) {
        TRY(job_retry_line(job, TAIL_IDS, unit->number, err));
        put_id(&tails[TAIL_IDS].pending, unit->document);
        buffer_string(&tails[TAIL_IDS].pending, "\n");
    }
    if (tails[TAIL_DOCUMENTS].path != NULL)
        for (int i = 0; i < 8; i++) {
            char byte = (char)(unit->document->number >> (8 * i));
            buffer_append(&tails[TAIL_DOCUMENTS].pending, &byte, 1);
        }
    return STATUS_OK;
}

static enum status finish_unit(struct job *job, struct look *window, struct unit *unit, struct err *err)
{
    if (unit->state == UNIT_KEPT)
        return STATUS_OK;
    if (unit->state == UNIT_TODO)
        job_settle(job, window, unit);
    if (unit->state == UNIT_DONE || unit->state == UNIT_STORED)
        job->at.computed++;
    if (unit->state == UNIT_COPY)
        TRY(copy(job, window, unit, err));
    if (unit->state == UNIT_FAILED)
        fail(job, window, unit);
    return put_tails(job, window, unit, err);
}

/* Everything up to here is written; with the next commit it becomes durable, and the checkpoint says so. */
static enum status put_checkpoint(struct job *job, struct err *err)
{
    for (int i = 0; i < TAILS; i++) {
        TRY(tail_flush(&job->tails[i], err));
        job->at.tails[i] = job->tails[i].written;
    }
    job->checkpoint = job->at;
    job->checkpoint_waits = job->journal != NULL;
    return STATUS_OK;
}

/* Where one file holds everything: it is hashed as far as it is final, once its length is known. */
static void advance_sum(struct job *job)
{
    const struct output *output = job->options->output;
    bool single = output->kind == OUTPUT_NPY || output->kind == OUTPUT_RAW;
    if (!single || job->retry != NULL || job->journal == NULL || !job->ended || job->planned < job->read)
        return;
    if (job->sum == NULL)
        job->sum = sum_open(job->store, job->next_row, job->options->wake_fd);
    if (job->sum != NULL)
        sum_advance(job->sum, job->at.rows);
}

enum status job_finish_rows(struct job *job, bool *worked, struct err *err)
{
    if (job->finished == job->submitted)
        return STATUS_OK;
    struct look *window = &job->windows[job->finished % WINDOWS];
    if (window->batches_out > 0)
        return STATUS_OK;
    *worked = true;
    uint32_t first = window->finished;
    for (int i = 0; i < STEP && window->finished < window->unit_count; i++)
        TRY(finish_unit(job, window, &window->units[window->finished++], err));
    TRY(job_write_finished(job, window, first, window->finished - first, err));
    for (int i = 0; i < TAILS; i++)
        if (job->tails[i].pending.length > 1 << 20)
            TRY(tail_flush(&job->tails[i], err));
    if (window->finished < window->unit_count)
        return STATUS_OK;
    job->at.documents = window->end_documents;
    job->at.rows = window->units[window->unit_count - 1].number + 1;
    job->at.digest = window->end_digest;
    job->at.tokens = job->progress.tokens;
    TRY(put_checkpoint(job, err));
    advance_sum(job);
    look_reset(window, &job->idle);
    job->finished++;
    return STATUS_OK;
}

static enum status patch_documents(struct job *job, struct err *err)
{
    char header[NPY_HEADER_BYTES];
    struct tail *tail = &job->tails[TAIL_DOCUMENTS];
    if (tail->path == NULL)
        return STATUS_OK;
    npy_header(header, "<u8", job->at.rows, 0);
    if (pwrite(tail->fd, header, sizeof header, 0) != (ssize_t)sizeof header)
        return err_set_errno(err, "cannot write %s", tail->path);
    return tail_sync(tail, err);
}

static enum status remove_job(struct job *job, struct err *err)
{
    const struct output *output = job->options->output;
    bool journal_only = output->kind != OUTPUT_JSONL;
    if ((!journal_only && unlink(output->scratch) != 0) || unlink(output->journal) != 0 || rmdir(output->job) != 0)
        return err_set_errno(err, "cannot remove %s", output->job);
    return STATUS_OK;
}

static enum status end_retry(struct job *job, struct err *err)
{
    const struct output *output = job->options->output;
    for (int i = 0; i < TAILS; i++)
        TRY(tail_flush(&job->tails[i], err));
    TRY(job_retry_end(job, err));
    TRY(store_sync(job->store, err));
    TRY(manifest_write(job->options, job->store, &job->at, NULL, err));
    return job_retry_settle(output, job->at.failed, err);
}

enum status job_end(struct job *job, struct err *err)
{
    job->progress.phase = JOB_FINISHING;
    job_report(job, true);
    if (job->retry != NULL)
        return end_retry(job, err);
    for (int i = 0; i < TAILS; i++)
        TRY(tail_flush(&job->tails[i], err));
    if (job->store != NULL)
        TRY(store_finish(job->store, job->at.rows, err));
    TRY(patch_documents(job, err));
    if (job->journal == NULL)
        return STATUS_OK;
    TRY(put_checkpoint(job, err)); /* of a job without rows */
    TRY(job_commit_all(job, err));
    if (job->at.failed == 0 && unlink(job->options->output->failures) != 0)
        return err_set_errno(err, "cannot remove %s", job->options->output->failures);
    char hex[SUM_HEX_BYTES] = "";
    bool hashed = job->sum != NULL && job->next_row == job->at.rows && sum_end(job->sum, hex);
    TRY(manifest_write(job->options, job->store, &job->at, hashed ? hex : NULL, err));
    return remove_job(job, err);
}
