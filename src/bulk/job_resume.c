/* Going on: what an earlier run of the same command has left is found, checked and taken up. The input is read again up
 * to the checkpoint, so that one that has changed is noticed whatever its date says; that costs no computing. */
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "bulk/job_state.h"
#include "bulk/manifest.h"
#include "bulk/npy.h"

static bool exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

static enum status remove_file(const char *path, struct err *err)
{
    if (unlink(path) == 0 || errno == ENOENT || errno == ENOTDIR)
        return STATUS_OK;
    return err_set_errno(err, "cannot remove %s", path);
}

static enum status remove_shards(const char *folder, struct err *err)
{
    char *path = strdup(folder);
    char *const roots[] = {path, NULL};
    FTS *walk = path == NULL ? NULL : fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    enum status status = walk == NULL ? err_set_errno(err, "cannot read %s", folder) : STATUS_OK;
    for (FTSENT *entry; status == STATUS_OK && (entry = fts_read(walk)) != NULL;) {
        if (entry->fts_level > 0 && entry->fts_info == FTS_D)
            fts_set(walk, entry, FTS_SKIP);
        size_t length = strlen(entry->fts_name);
        bool shard = entry->fts_level == 1 && entry->fts_info == FTS_F && length > 12 &&
                     strncmp(entry->fts_name, "vectors-", 8) == 0 && strcmp(entry->fts_name + length - 4, ".npy") == 0;
        if (shard)
            status = remove_file(entry->fts_path, err);
    }
    if (walk != NULL)
        fts_close(walk);
    free(path);
    return status;
}

/* The manifest goes first: without it nothing counts as finished. */
static enum status remove_all(const struct output *output, struct err *err)
{
    const char *const files[] = {output->manifest, output->journal,   output->scratch,
                                 output->failures, output->documents, output->ids};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        TRY(remove_file(files[i], err));
    if (rmdir(output->job) != 0 && errno != ENOENT && errno != ENOTDIR)
        return err_set_errno(err, "cannot remove %s", output->job);
    if (output->kind != OUTPUT_SHARDS)
        return remove_file(output->path, err);
    return exists(output->path) ? remove_shards(output->path, err) : STATUS_OK;
}

/* The output's own folder may be a link to one. */
static enum status make_folder(const char *path, struct err *err)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST)
        return STATUS_OK;
    return err_set_errno(err, "cannot make the folder %s", path);
}

/* The first file of the output; `room` is for its name. */
static const char *first_file(const struct output *output, char room[PATH_MAX])
{
    if (output->kind != OUTPUT_SHARDS)
        return output->path;
    snprintf(room, PATH_MAX, "%s/vectors-00000.npy", output->path);
    return room;
}

static bool is_there(const struct output *output)
{
    char room[PATH_MAX];
    return exists(first_file(output, room));
}

/* Something of another's must not be overwritten. */
static enum status check_free(const struct output *output, struct err *err)
{
    char room[PATH_MAX];
    if (!is_there(output))
        return STATUS_OK;
    return err_set(err, STATUS_BAD_INPUT,
                   "%s is there already, and no job that could be gone on with; --overwrite deletes it",
                   first_file(output, room));
}

/* Reads the documents of an earlier run again, without computing anything: they must be the same. */
static enum status skip(struct job *job, uint64_t documents, struct hash digest, struct err *err)
{
    job->progress.phase = JOB_CHECKING;
    while (job->progress.documents < documents) {
        struct document document;
        bool more = false;
        TRY(source_next(job->source, &document, &more, err));
        if (!more)
            break;
        job_digest_add(job->digest, &document);
        job->progress.documents++;
        if (job->progress.documents % STEP == 0)
            job_report(job, false);
        if (job->options->stop != NULL && *job->options->stop != 0)
            return STATUS_OK;
    }
    struct hash now = job_digest_now(job);
    if (job->progress.documents == documents && hash_equal(now, digest))
        return STATUS_OK;
    return err_set(err, STATUS_BAD_INPUT,
                   "the input has changed since this job began (somewhere in its first %llu documents); --overwrite "
                   "begins again",
                   (unsigned long long)documents);
}

/* The files of the output that only grow; NULL for those that this job does not have. */
static void tail_paths(const struct job *job, const char *paths[TAILS])
{
    const struct job_options *options = job->options;
    const struct output *output = options->output;
    bool lines = output->kind == OUTPUT_JSONL;
    paths[TAIL_LINES] = lines ? output->path : NULL;
    paths[TAIL_FAILURES] = options->plain ? NULL : output->failures;
    paths[TAIL_IDS] = options->ids && !lines ? output->ids : NULL;
    paths[TAIL_DOCUMENTS] = job_has_chunks(job) && !lines ? output->documents : NULL;
}

static enum status see(void *context, const struct journal_record *record, struct err *err);

/* Vectors of JSON Lines lie in a file of their own until the job is finished: those that are in the lines already are
 * never looked at again, but the file has places for them. */
static enum status make_scratch(const struct job *job, struct err *err)
{
    const struct output *output = job->options->output;
    if (output->kind != OUTPUT_JSONL) {
        return STATUS_OK;
    }
    int fd;
    TRY(file_make(output->scratch, O_WRONLY | O_TRUNC, &fd, err));
    bool made = ftruncate(fd, (off_t)(job->at.rows * job->options->dim * sizeof(float))) == 0;
    if (!made) {
        err_set_errno(err, "cannot write %s", output->scratch);
    }
    close(fd);
    return made ? STATUS_OK : err->status;
}

/* More has come behind the input of a finished job: it is unfinished again. A journal says how much is complete; once
 * that is durable, the manifest goes. */
static enum status unfinish(struct job *job, struct err *err)
{
    const struct output *output = job->options->output;
    const char *paths[TAILS];
    struct journal *journal = NULL;
    TRY(remove_file(output->journal, err)); /* of a run that was killed just here */
    TRY(file_make_folder(output->job, err));
    TRY(make_scratch(job, err));
    tail_paths(job, paths);
    for (int i = 0; i < TAILS; i++) {
        struct stat info;
        job->at.tails[i] = paths[i] != NULL && stat(paths[i], &info) == 0 ? (uint64_t)info.st_size : 0;
    }
    enum status status = journal_open(output->journal, see, job, &journal, err);
    if (status == STATUS_OK) {
        status = journal_put_terms(journal, job->options->terms, strlen(job->options->terms), err);
    }
    if (status == STATUS_OK) {
        status = journal_write(journal, &job->at, err);
    }
    journal_close(journal);
    TRY(status);
    TRY(file_sync_folder(output->journal, err));
    TRY(file_sync_folder(output->job, err));
    TRY(remove_file(output->manifest, err));
    return file_sync_folder(output->manifest, err);
}

/* Whether any row has its vector. If none has, the terms of the job were mistaken perhaps, and others may replace them.
 */
static bool has_vectors(const struct checkpoint *at)
{
    return at->computed + at->copied > 0;
}

static enum status find_finished(struct job *job, bool *finished, struct err *err)
{
    struct manifest manifest;
    const struct output *output = job->options->output;
    TRY(manifest_read(output->manifest, &manifest, finished, err));
    if (!*finished)
        return STATUS_OK;
    enum status status = STATUS_OK;
    if (terms_differ(manifest.terms.data, manifest.terms.length, job->options->terms, err))
        status = err->status;
    buffer_free(&manifest.terms);
    if (status != STATUS_OK && manifest.at.rows > 0 && !has_vectors(&manifest.at)) {
        *finished = false;
        return remove_all(output, err);
    }
    job->at = manifest.at;
    if (status == STATUS_OK)
        status = job_retry_settle(output, manifest.at.failed, err);
    if (status == STATUS_OK && !is_there(output))
        status =
            err_set(err, STATUS_NOT_FOUND, "%s is gone, though %s says that it is finished; --overwrite begins again",
                    output->path, output->manifest);
    if (status == STATUS_OK && job->tries_failed && manifest.at.failed > 0)
        return job_retry_open(job, err);
    if (status == STATUS_OK)
        status = skip(job, manifest.at.documents, manifest.at.digest, err);
    if (status == STATUS_OK && (job->options->stop == NULL || *job->options->stop == 0))
        status = source_next(job->source, &job->ahead, &job->grown, err);
    *finished = !job->grown;
    return status == STATUS_OK && job->grown ? unfinish(job, err) : status;
}

/* A record of the earlier run. */
static enum status see(void *context, const struct journal_record *record, struct err *err)
{
    struct job *job = context;
    if (record->kind == JOURNAL_TERMS) {
        job->terms.length = 0;
        buffer_append(&job->terms, record->terms, record->terms_bytes);
        return STATUS_OK;
    }
    if (record->kind == JOURNAL_SEED) {
        job->preparer.seed = record->seed;
        job->seeded = true;
        return STATUS_OK;
    }
    if (record->kind == JOURNAL_CHECKPOINT) {
        job->at = record->checkpoint;
        struct done *recent = (struct done *)(void *)job->recent.data;
        size_t count = job->recent.length / sizeof *recent, kept = 0;
        for (size_t i = 0; i < count; i++)
            if (recent[i].row >= job->at.rows)
                recent[kept++] = recent[i];
        job->recent.length = kept * sizeof *recent;
        return STATUS_OK;
    }
    for (size_t i = 0; i < record->done_count; i++) {
        struct done done = journal_done(record, i);
        dedup_put(job->dedup, done.hash, (struct dedup_entry){.row = done.row});
        buffer_append(&job->recent, &done, sizeof done);
    }
    return buffer_ok(&job->recent) ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for the journal");
}

static int by_row(const void *left, const void *right)
{
    const struct done *a = left, *b = right;
    return a->row < b->row ? -1 : a->row > b->row;
}

static enum status open_store(struct job *job, struct err *err)
{
    const struct job_options *options = job->options;
    const struct output *output = options->output;
    bool lines = output->kind == OUTPUT_JSONL;
    if (lines && options->plain)
        return STATUS_OK;
    struct store_options store = {.path = lines ? output->scratch : output->path,
                                  .dim = options->dim,
                                  .element = lines ? ELEMENT_F32 : options->element,
                                  .shard_rows = options->shard_rows,
                                  .fresh = options->plain || (lines && job->retry != NULL)};
    store.kind = output->kind == OUTPUT_NPY ? STORE_NPY : output->kind == OUTPUT_SHARDS ? STORE_SHARDS : STORE_RAW;
    return store_open(&store, &job->store, err);
}

/* What is on record must be there: a file that was deleted or cut would have zeros in its place. */
static enum status check_store(struct job *job, struct err *err)
{
    const struct done *recent = (const struct done *)(const void *)job->recent.data;
    if (job->journal == NULL)
        return STATUS_OK;
    uint64_t step = job->options->output->kind == OUTPUT_SHARDS ? job->options->shard_rows : job->at.rows;
    for (uint64_t row = step; row > 0 && row <= job->at.rows; row += step)
        TRY(store_check(job->store, row - 1, err));
    if (job->at.rows > 0)
        TRY(store_check(job->store, job->at.rows - 1, err));
    for (size_t i = 0; i < job->recent.length / sizeof *recent; i++)
        TRY(store_check(job->store, recent[i].row, err));
    return STATUS_OK;
}

static enum status open_tails(struct job *job, struct err *err)
{
    const char *paths[TAILS];
    tail_paths(job, paths);
    for (int i = 0; i < TAILS; i++)
        if (paths[i] != NULL)
            TRY(tail_open(&job->tails[i], paths[i], job->at.tails[i], err));
    struct tail *documents = &job->tails[TAIL_DOCUMENTS];
    if (documents->path != NULL && documents->written == 0) {
        char header[NPY_HEADER_BYTES];
        npy_header(header, "<u8", 0, 0);
        buffer_append(&documents->pending, header, sizeof header);
    }
    return STATUS_OK;
}

/* The hashes on record are compared with those of this run. */
static enum status take_seed(struct job *job, struct err *err)
{
    if (job->seeded) {
        return STATUS_OK;
    }
    if (dedup_count(job->dedup) > 0) {
        job->preparer.seed = 0; /* the journal is of a version that had none */
        return STATUS_OK;
    }
    return journal_put_seed(job->journal, job->preparer.seed, err);
}

static enum status open_journal(struct job *job, struct err *err)
{
    const struct job_options *options = job->options;
    const struct output *output = options->output;
    if (!exists(output->journal))
        TRY(check_free(output, err));
    if (output->kind == OUTPUT_SHARDS)
        TRY(make_folder(output->path, err));
    TRY(file_make_folder(output->job, err));
    TRY(journal_open(output->journal, see, job, &job->journal, err));
    if (job->terms.length > 0 && terms_differ(job->terms.data, job->terms.length, options->terms, err)) {
        if (has_vectors(&job->at) || job->recent.length > 0)
            return err->status;
        journal_close(job->journal);
        job->journal = NULL;
        job->terms.length = 0;
        job->seeded = false;
        TRY(remove_all(output, err));
        return open_journal(job, err);
    }
    if (job->terms.length == 0) {
        TRY(journal_put_terms(job->journal, options->terms, strlen(options->terms), err));
        TRY(journal_write(job->journal, NULL, err));
    }
    TRY(take_seed(job, err));
    if (job->recent.length > 0)
        qsort(job->recent.data, job->recent.length / sizeof(struct done), sizeof(struct done), by_row);
    return job_commit_open(job, err);
}

/* What an earlier run has done is done. */
static void take_progress(struct job *job)
{
    job->progress.rows = job->at.rows;
    job->progress.failed = job->at.failed;
    job->progress.copied = job->at.copied;
    job->progress.computed = job->at.computed;
}

/* What is durable in a file is lost when its name is not. */
static enum status sync_names(const struct output *output, struct err *err)
{
    TRY(file_sync_folder(output->journal, err));
    TRY(file_sync_folder(output->job, err));
    return file_sync_folder(output->path, err);
}

enum status job_resume(struct job *job, struct err *err)
{
    const struct job_options *options = job->options;
    bool finished = false;
    if (!options->plain && options->overwrite)
        TRY(remove_all(options->output, err));
    if (!options->plain)
        TRY(find_finished(job, &finished, err));
    if (job->retry != NULL)
        return open_store(job, err);
    take_progress(job);
    job->ended = finished;
    if (finished)
        return STATUS_OK;
    if (!options->plain)
        TRY(open_journal(job, err));
    TRY(open_store(job, err));
    TRY(check_store(job, err));
    TRY(open_tails(job, err));
    if (!options->plain)
        TRY(sync_names(options->output, err));
    take_progress(job);
    job->progress.tokens = job->at.tokens;
    job->next_row = job->at.rows;
    return skip(job, job->at.documents, job->at.digest, err);
}
