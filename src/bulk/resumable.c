#include "bulk/resumable.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/file.h"
#include "bulk/job_internal.h"
#include "bulk/manifest.h"

enum { COMMIT_MS = 1000 };

enum status resumable_check_input(const struct output *output, char *input, struct err *err)
{
    struct job_options options = {.output = output, .source = {.operands = &input, .operand_count = 1}};
    return job_check_output(&options, err);
}

/* --- An earlier run --- */

static enum status replay_record(void *context, const struct journal_record *record, struct err *err)
{
    struct resumable *file = context;
    if (record->kind == JOURNAL_CHECKPOINT) { file->known = record->checkpoint; }
    if (record->kind != JOURNAL_TERMS) { return STATUS_OK; }
    file->began.length = 0;
    buffer_append(&file->began, record->terms, record->terms_bytes);
    return buffer_ok(&file->began) ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for the journal");
}

/* Makes the names of the files durable: without them a durable content is lost. */
static enum status sync_names(const struct output *output, struct err *err)
{
    TRY(file_sync_folder(output->journal, err));
    TRY(file_sync_folder(output->job, err));
    return file_sync_folder(output->path, err);
}

static enum status make_journal(struct resumable *file, struct err *err)
{
    TRY(file_make_folder(file->output->job, err));
    TRY(journal_open(file->output->journal, replay_record, file, &file->journal, err));
    if (file->began.length > 0) { return STATUS_OK; }
    TRY(journal_put_terms(file->journal, file->terms, strlen(file->terms), err));
    return journal_write(file->journal, NULL, err);
}

static enum status open_unfinished(struct resumable *file, struct err *err)
{
    const struct output *output = file->output;
    if (!job_file_exists(output->journal) && job_file_exists(output->path)) {
        return err_set(err, STATUS_BAD_INPUT,
                       "%s exists already, and there is no job to resume; --overwrite deletes it", output->path);
    }
    TRY(make_journal(file, err));
    if (file->began.length > 0 && terms_differ(file->began.data, file->began.length, file->terms, err)) {
        if (file->known.documents > 0) { return err->status; }
        journal_close(file->journal); /* nothing was written: the new terms take the place of the old ones */
        file->journal = NULL;
        file->began.length = 0;
        TRY(job_remove_all(output, err));
        TRY(make_journal(file, err));
    }
    TRY(append_file_open(&file->file, output->path, file->known.lengths[APPEND_LINES], err));
    return sync_names(output, err);
}

static enum status ignore_record(void *context, const struct journal_record *record, struct err *err)
{
    (void)context, (void)record, (void)err;
    return STATUS_OK;
}

/* Removes what a kill after the manifest left, unless another process works with it. */
static enum status remove_leftovers(const struct output *output, struct err *err)
{
    struct journal *journal = NULL;
    if (job_file_exists(output->journal)) { TRY(journal_open(output->journal, ignore_record, NULL, &journal, err)); }
    enum status status = job_remove_leftovers(output, err);
    journal_close(journal);
    return status;
}

static enum status open_finished(struct resumable *file, struct err *err)
{
    struct manifest manifest;
    const struct output *output = file->output;
    TRY(manifest_read(output->manifest, &manifest, &file->finished, err));
    if (!file->finished) { return STATUS_OK; }
    bool differ = terms_differ(manifest.terms.data, manifest.terms.length, file->terms, err);
    buffer_free(&manifest.terms);
    if (differ) { return err->status; }
    file->known = manifest.at;
    TRY(remove_leftovers(output, err));
    return manifest_check(output, manifest.at.rows, false, false, err);
}

/* Fails if the job is no longer what it was when it was opened. The caller has the journal. */
static enum status check_still_finished(const struct resumable *file, struct err *err)
{
    struct manifest manifest;
    bool finished;
    TRY(manifest_read(file->output->manifest, &manifest, &finished, err));
    bool same = finished && manifest.at.documents == file->at.documents;
    if (finished) { buffer_free(&manifest.terms); }
    return same ? STATUS_OK
                : err_set(err, STATUS_UNAVAILABLE, "%s was written by another process meanwhile", file->output->path);
}

/* Makes a finished job unfinished, because its input has grown: first its journal, then not its manifest. */
static enum status unfinish(struct resumable *file, struct err *err)
{
    struct stat info;
    const struct output *output = file->output;
    struct checkpoint known = file->known;
    TRY(make_journal(file, err));
    TRY(check_still_finished(file, err));
    if (stat(output->path, &info) != 0) { return err_set_errno(err, "cannot open %s", output->path); }
    known.lengths[APPEND_LINES] = (uint64_t)info.st_size;
    file->known = known;
    TRY(journal_write(file->journal, &known, err));
    TRY(append_file_open(&file->file, output->path, known.lengths[APPEND_LINES], err));
    TRY(sync_names(output, err));
    TRY(job_remove_file(output->manifest, err));
    file->finished = false;
    return file_sync_folder(output->manifest, err);
}

enum status resumable_open(struct resumable *file, const struct output *output, const char *terms, bool overwrite,
                           struct err *err)
{
    *file = (struct resumable){.output = output, .terms = terms};
    if (output->standard) { return append_file_open(&file->file, output->path, 0, err); }
    if (overwrite) { TRY(job_remove_all(output, err)); }
    TRY(open_finished(file, err));
    if (!file->finished) { TRY(open_unfinished(file, err)); }
    file->at = file->known;
    file->durable = file->known.documents;
    return STATUS_OK;
}

void resumable_close(struct resumable *file)
{
    append_file_close(&file->file);
    journal_close(file->journal);
    buffer_free(&file->began);
}

/* --- The input --- */

static enum status check_digest(const struct resumable *file, struct err *err)
{
    if (hash_equal(file->digest, file->known.digest)) { return STATUS_OK; }
    return err_set(err, STATUS_BAD_INPUT,
                   "the input has changed since this job began (somewhere in its first %llu lines); --overwrite "
                   "begins again",
                   (unsigned long long)file->read);
}

enum status resumable_read(struct resumable *file, const struct record *record, bool *known, struct err *err)
{
    uint64_t done = file->known.documents;
    bool end = !record->bytes && !record->too_large;
    *known = file->read < done;
    if (end && *known) {
        return err_set(err, STATUS_BAD_INPUT,
                       "the input has changed since this job began: it has %llu lines, and the job has done %llu; "
                       "--overwrite begins again",
                       (unsigned long long)file->read, (unsigned long long)done);
    }
    if (end) { return STATUS_OK; }
    if (!*known && file->finished) { TRY(unfinish(file, err)); }
    XXH128_hash_t line = XXH3_128bits(record->bytes, record->length);
    uint64_t chain[] = {file->digest.low, file->digest.high, line.low64, line.high64, record->too_large};
    XXH128_hash_t digest = XXH3_128bits(chain, sizeof chain);
    file->digest = (struct hash){digest.low64, digest.high64};
    file->read++;
    return *known && file->read == done ? check_digest(file, err) : STATUS_OK;
}

/* --- The output --- */

void resumable_write(struct resumable *file, const struct written_line *line)
{
    buffer_append(&file->file.pending, line->lines->data, line->lines->length);
    file->at.digest = line->digest;
    file->at.documents++;
    file->at.rows += line->rows;
    file->at.failed += line->failed;
    file->at.computed += line->rows - line->failed;
    file->at.tokens += line->tokens;
}

static enum status commit_lines(struct resumable *file, bool all, struct err *err)
{
    TRY(append_file_flush(&file->file, err));
    if (!file->journal || file->at.documents == file->durable) { return STATUS_OK; }
    uint64_t now_ns = clock_now_ns();
    if (!all && now_ns - file->committed_ns < COMMIT_MS * NS_PER_MS) { return STATUS_OK; }
    TRY(append_file_sync(&file->file, err));
    file->at.lengths[APPEND_LINES] = file->file.written;
    TRY(journal_write(file->journal, &file->at, err));
    file->durable = file->at.documents;
    file->committed_ns = now_ns;
    return STATUS_OK;
}

/* A second attempt would succeed: the system reports a failed write to the disk once. */
enum status resumable_commit(struct resumable *file, bool all, struct err *err)
{
    if (file->failed) { return err_set(err, STATUS_IO, "cannot write %s", file->output->path); }
    enum status status = commit_lines(file, all, err);
    file->failed = status != STATUS_OK;
    return status;
}

enum status resumable_finish(struct resumable *file, const char *facts, struct err *err)
{
    const struct output *output = file->output;
    TRY(resumable_commit(file, true, err));
    if (!file->journal) { return STATUS_OK; }
    TRY(manifest_write(output, file->terms, facts, NULL, output->path, &file->at, err)); /* it has the failures, too */
    return job_remove_leftovers(output, err);
}
