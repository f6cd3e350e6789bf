/* Retries the failed rows of a finished job. Their documents may have been mended meanwhile; all others must be
 * unchanged. If ids show which row belongs to which document, a changed document first makes its row a failed one, in
 * manifest and list. So after a kill the list has all rows that differ from what the manifest's input would give.
 *
 * There is no journal: until the new manifest is written, the old one and the old list of failures are valid, and an
 * interrupted retry begins again. Matrices are written in place; files of lines are copied with new lines where rows
 * were computed, and then renamed. The list of failures is renamed last, after the manifest, which has its hash.
 *
 * The fingerprint of a document is read only if its row is not listed, so it may be written at any time before the new
 * manifest. */
#include "bulk/job_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "bulk/digest.h"
#include "bulk/failures.h"

/* A file with a line per row, which is being copied to a new one. */
struct splice {
    struct reader old;
    char *path, *new_path;
    uint64_t row; /* the row of the next line in `old` */
    bool open;
};

struct retry {
    struct comparison with;
    struct buffer wanted; /* struct listed: failed chunks whose documents were read but not made into rows yet */
    size_t wanted_at;
    uint64_t alone; /* 1 + the last document that had a single row because it was unread; 0: none */
    struct splice splices[APPEND_FILES];
    XXH3_state_t *digest; /* of the input as it is now */
    struct checkpoint before;
    bool ended; /* the new manifest is written */
};

static enum status splice_open(struct job *job, int number, const char *path, struct err *err)
{
    struct splice *splice = &job->retry->splices[number];
    splice->path = strdup(path);
    splice->new_path = job_new_path(path);
    if (!splice->path || !splice->new_path) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for the names of the output");
    }
    TRY(reader_open(&splice->old, splice->path, LINE_MAX_BYTES, NULL, err));
    splice->open = true;
    return append_file_open(&job->files[number], splice->new_path, 0, err);
}

/* Copies the lines before that of `row`. */
static enum status splice_to(struct job *job, int number, uint64_t row, struct err *err)
{
    struct splice *splice = &job->retry->splices[number];
    struct buffer *to = &job->files[number].pending;
    for (; splice->row < row; splice->row++) {
        struct record line;
        TRY(reader_line(&splice->old, &line, err));
        if (!line.bytes) {
            return err_set(err, STATUS_BAD_INPUT, "%s has fewer lines than this job wrote; --overwrite begins again",
                           splice->path);
        }
        buffer_append(to, line.bytes, line.length);
        buffer_string(to, "\n");
        if (to->length > 1 << 20) { TRY(append_file_flush(&job->files[number], err)); }
    }
    return STATUS_OK;
}

enum status job_retry_line(struct job *job, int number, uint64_t row, struct err *err)
{
    struct splice *splice = job->retry ? &job->retry->splices[number] : NULL;
    struct record old;
    if (!splice || !splice->open) { return STATUS_OK; }
    TRY(splice_to(job, number, row, err));
    splice->row++;
    return reader_line(&splice->old, &old, err);
}

bool job_reads_standard_input(const struct job *job)
{
    const struct source_options *source = &job->options->source;
    for (size_t i = 0; i < source->operand_count; i++) {
        if (strcmp(source->operands[i], "-") == 0) { return true; }
    }
    return false;
}

const char *job_retry_obstacle(const struct job *job)
{
    if (job->options->source.records) { return ""; }
    if (job_has_chunks(job)) { return "; with --chunk no row can be computed alone"; }
    if (!job->options->ids) { return "; with --id-field only changed rows are computed again"; }
    return job_reads_standard_input(job) ? "; standard input cannot be read twice" : NULL;
}

enum status job_retry_open(struct job *job, struct err *err)
{
    const struct job_options *options = job->options;
    const struct output *output = options->output;
    bool lines = output->kind == OUTPUT_JSONL;
    struct retry *retry = job->retry = calloc(1, sizeof *retry);
    if (!retry || !(retry->digest = XXH3_createState())) {
        return err_set(err, STATUS_NO_MEMORY, "no memory to retry");
    }
    XXH3_128bits_reset(retry->digest);
    retry->before = job->at;
    job->at.failed = 0;
    job->progress.failed = 0;
    job->progress.rows = job->at.rows - retry->before.failed;
    job->progress.copied = job->at.copied;
    retry->with.obstacle = job_retry_obstacle(job);
    if (!retry->with.obstacle) { retry->with.obstacle = " while it was read"; } /* changes were found before */
    TRY(comparison_open(job, job->at.documents, retry->before.failed, &retry->with, err));
    TRY(append_file_open(&job->files[APPEND_FAILURES], retry->with.new_path, 0, err));
    if (lines) { TRY(splice_open(job, APPEND_LINES, output->path, err)); }
    if (job_has_chunks(job) && !lines) { /* these are written in place, like the matrix */
        uint64_t length = job_pairs_end(APPEND_CHUNKS, job->at.rows);
        TRY(append_file_open(&job->files[APPEND_CHUNKS], output->chunks, length, err));
    }
    if (retry->with.hashes) { /* these, too */
        uint64_t length = job_pairs_end(APPEND_HASHES, job->at.documents);
        TRY(append_file_open(&job->files[APPEND_HASHES], output->hashes, length, err));
    }
    return options->ids && !lines ? splice_open(job, APPEND_IDS, output->ids, err) : STATUS_OK;
}

void job_retry_close(struct job *job)
{
    struct retry *retry = job->retry;
    if (!retry) { return; }
    struct err ignored;
    if (!retry->ended) {
        if (retry->with.new_path) { unlink(retry->with.new_path); }
        enum status removed = job_remove_leftovers(job->options->output, &ignored);
        (void)removed; /* the next run tries again */
    }
    comparison_close(&retry->with);
    for (int i = 0; i < APPEND_FILES; i++) {
        reader_close(&retry->splices[i].old);
        if (!retry->ended && retry->splices[i].new_path) { unlink(retry->splices[i].new_path); }
        free(retry->splices[i].path);
        free(retry->splices[i].new_path);
    }
    XXH3_freeState(retry->digest);
    buffer_free(&retry->wanted);
    free(retry);
}

bool job_retry_at_end(const struct job *job, uint64_t documents)
{
    return job->retry && documents == job->retry->before.documents;
}

enum status job_retry_wants(struct job *job, struct document *document, struct buffer *listed, bool *wanted,
                            struct err *err)
{
    struct retry *retry = job->retry;
    struct failure_list *list = &retry->with.list;
    bool changed;
    TRY(comparison_check(job, &retry->with, document, &changed, err)); /* it has not, because there is an obstacle */
    *wanted = document->number == list->next.document;
    struct document then = *document; /* as it was when the job was finished */
    if (*wanted && list->next.unread) { then.code = ROW_UNREADABLE; }
    job_digest_add(job->digest, &then);
    job_digest_add(retry->digest, document);
    document->first_row = list->next.row - list->next.chunk;
    while (document->number == list->next.document) {
        if (job_has_chunks(job)) { buffer_append(listed, &list->next, sizeof list->next); }
        TRY(failure_list_next(job, list, err));
    }
    return buffer_ok(listed) ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory to retry");
}

enum status job_retry_list(struct job *job, const struct buffer *listed, struct err *err)
{
    if (listed->length == 0) { return STATUS_OK; }
    buffer_append(&job->retry->wanted, listed->data, listed->length);
    return buffer_ok(&job->retry->wanted) ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory to retry");
}

/* The next listed row to retry, or NULL. */
static const struct listed *next_wanted(struct retry *retry)
{
    if (retry->wanted_at * sizeof(struct listed) == retry->wanted.length) {
        retry->wanted_at = retry->wanted.length = 0;
    }
    const struct listed *wanted = (const struct listed *)(const void *)retry->wanted.data;
    return retry->wanted.length == 0 ? NULL : &wanted[retry->wanted_at];
}

enum status job_retry_row(struct job *job, struct output_row *row, struct err *err)
{
    struct retry *retry = job->retry;
    if (!retry || !job_has_chunks(job)) { return STATUS_OK; }
    const struct listed *next = next_wanted(retry);
    if (row->chunk > 0 && retry->alone == row->document->number + 1) {
        return err_set(
            err, STATUS_BAD_INPUT,
            "%s line %llu: the document had one row, and now it has several chunks; --overwrite begins again",
            row->document->file, (unsigned long long)row->document->line);
    }
    if (!next || next->row != row->number) {
        row->state = STATE_KEPT;
        return STATUS_OK;
    }
    retry->wanted_at++;
    if (next->unread) { retry->alone = row->document->number + 1; }
    return STATUS_OK;
}

enum status job_retry_end(struct job *job, struct err *err)
{
    const struct output *output = job->options->output;
    struct retry *retry = job->retry;
    if (job->progress.documents != retry->before.documents || !hash_equal(job_digest_now(job), retry->before.digest)) {
        return err_set(err, STATUS_BAD_INPUT,
                       "the input has changed in other places than those that failed; --overwrite begins again");
    }
    XXH128_hash_t digest = XXH3_128bits_digest(retry->digest);
    job->at.documents = retry->before.documents;
    job->at.rows = retry->before.rows;
    job->at.digest = (struct hash){digest.low64, digest.high64};
    for (int i = 0; i < APPEND_FILES; i++) { TRY(append_file_flush(&job->files[i], err)); }
    for (int i = 0; i < APPEND_FILES; i++) {
        if (retry->splices[i].open) { TRY(splice_to(job, i, job->at.rows, err)); }
        TRY(append_file_sync(&job->files[i], err));
        if (retry->splices[i].open && rename(retry->splices[i].new_path, retry->splices[i].path) != 0) {
            return err_set_errno(err, "cannot write %s", retry->splices[i].path);
        }
    }
    TRY(file_sync_folder(output->failures, err));
    TRY(job_remove_leftovers(output, err));
    TRY(store_sync(job->store, err));
    TRY(job_write_manifest(job, retry->with.new_path, err));
    retry->ended = true;
    return failure_list_adopt(output, retry->with.new_path, job->at.failed, err);
}
