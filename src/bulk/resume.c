/* Finds, checks and resumes an earlier run of the same command. The input is read again up to the checkpoint, without
 * computing, so that a change is noticed whatever the file's date says. */
#include "bulk/job_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "bulk/digest.h"
#include "bulk/failures.h"
#include "bulk/journal.h"
#include "bulk/manifest.h"
#include "bulk/output/store.h"

enum status job_remove_file(const char *path, struct err *err)
{
    if (unlink(path) == 0 || errno == ENOENT || errno == ENOTDIR) { return STATUS_OK; }
    return err_set_errno(err, "cannot remove %s", path);
}

bool job_file_exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

char *job_new_path(const char *path)
{
    struct buffer text = {0};
    buffer_format(&text, "%s.new", path);
    if (!buffer_ok(&text)) { buffer_free(&text); }
    return text.data;
}

enum status job_write_manifest(const struct job *job, const char *failures, struct err *err)
{
    const struct job_options *options = job->options;
    return manifest_write(options->output, options->terms, options->facts, job->store, failures, &job->at, err);
}

/* Called with a file that a job may have made. */
typedef enum status file_visit(void *context, const char *path, struct err *err);

static enum status each_shard(const char *folder, file_visit *visit, void *context, struct err *err)
{
    DIR *names = opendir(folder);
    enum status status = names ? STATUS_OK : err_set_errno(err, "cannot read %s", folder);
    for (struct dirent *entry; status == STATUS_OK && (entry = readdir(names)) != NULL;) {
        bool file = entry->d_type == DT_REG || entry->d_type == DT_UNKNOWN;
        if (file && fnmatch("vectors-?*.npy", entry->d_name, 0) == 0) {
            char path[PATH_MAX];
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            status = visit(context, path, err);
        }
    }
    if (names) { closedir(names); }
    return status;
}

enum status job_remove_leftovers(const struct output *output, struct err *err)
{
    TRY(job_remove_file(output->journal, err));
    TRY(job_remove_file(output->scratch, err));
    if (rmdir(output->job) == 0 || errno == ENOENT || errno == ENOTDIR) { return STATUS_OK; }
    return err_set_errno(err, "cannot remove %s", output->job);
}

/* Visits every file that a job may have made. The manifest comes first: without it the job does not count as finished.
 */
static enum status each_file(const struct output *output, file_visit *visit, void *context, struct err *err)
{
    const char *files[] = {output->manifest,  output->journal, output->scratch, output->failures,
                           output->documents, output->chunks,  output->hashes,  output->ids};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) { TRY(visit(context, files[i], err)); }
    /* Files that a killed job was writing. */
    const char *half[] = {output->manifest, output->failures, output->ids, output->path};
    for (size_t i = 0; i < (output->kind == OUTPUT_JSONL ? 4 : 3); i++) {
        char path[PATH_MAX];
        if (snprintf(path, sizeof path, "%s.new", half[i]) < PATH_MAX) { TRY(visit(context, path, err)); }
    }
    if (output->kind != OUTPUT_SHARDS) { return visit(context, output->path, err); }
    return job_file_exists(output->path) ? each_shard(output->path, visit, context, err) : STATUS_OK;
}

static enum status remove_one(void *context, const char *path, struct err *err)
{
    (void)context;
    return job_remove_file(path, err);
}

enum status job_remove_all(const struct output *output, struct err *err)
{
    TRY(each_file(output, remove_one, NULL, err));
    return job_remove_leftovers(output, err);
}

static void note_id(struct buffer *to, const struct stat *info)
{
    struct file_id id = {info->st_dev, info->st_ino};
    buffer_append(to, (const char *)&id, sizeof id);
}

static enum status note_file(void *context, const char *path, struct err *err)
{
    (void)err;
    struct stat info;
    if (lstat(path, &info) == 0) { note_id(context, &info); }
    if (stat(path, &info) == 0) { note_id(context, &info); }
    return STATUS_OK;
}

enum status job_check_output(const struct job_options *options, struct err *err)
{
    const struct output *output = options->output;
    struct buffer ids = {0};
    struct stat info;
    enum status status = STATUS_OK;
    const char *slash = strrchr(output->path, '/');
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - output->path) + 1 : 0, slash ? output->path : "");
    if (folder[0] != '\0' && stat(folder, &info) != 0 && errno == ENOENT) {
        return err_set(err, STATUS_NOT_FOUND, "--output %s: the folder %s does not exist", output->path, folder);
    }
    if (output->standard) {
        if (fstat(STDOUT_FILENO, &info) == 0) { note_id(&ids, &info); }
    } else if (options->plain && !options->dry) {
        status = note_file(&ids, output->path, err);
    } else {
        status = each_file(output, note_file, &ids, err);
    }
    if (status == STATUS_OK && !buffer_ok(&ids)) {
        status = err_set(err, STATUS_NO_MEMORY, "no memory for the files of the output");
    }
    if (status == STATUS_OK) {
        const struct file_id *files = (const struct file_id *)(const void *)ids.data;
        status = source_refuse(&options->source, files, ids.length / sizeof *files, err);
    }
    buffer_free(&ids);
    return status;
}

/* The first file of the output; `room` is for its name. */
static const char *first_file(const struct output *output, char room[PATH_MAX])
{
    if (output->kind != OUTPUT_SHARDS) { return output->path; }
    snprintf(room, PATH_MAX, "%s/vectors-00000.npy", output->path);
    return room;
}

/* Rereads the documents of an earlier run without computing: they must be the same, except those that may have changed.
 */
static enum status reread_input(struct job *job, struct comparison *with, uint64_t documents, struct hash digest,
                                struct err *err)
{
    job->progress.phase = JOB_CHECKING;
    while (job->progress.documents < documents) {
        struct document document;
        bool more = false;
        TRY(source_next(job->source, &document, &more, err));
        if (!more) { break; }
        TRY(comparison_reread(job, with, &document, err));
        job->progress.documents++;
        if (job->progress.documents % 256 == 0) { job_report(job, false); }
        if (job->options->stop && *job->options->stop != 0) { return STATUS_OK; }
    }
    bool same = job->changed > 0 || hash_equal(job_digest_now(job), digest);
    if (job->progress.documents == documents && same) { return STATUS_OK; }
    uint64_t limit = job->options->source.limit;
    if (job->progress.documents < documents && limit > 0 && job->progress.documents == limit) {
        return err_set(err, STATUS_BAD_INPUT,
                       "--limit %llu is less than the %llu documents that the job has done; --overwrite begins again",
                       (unsigned long long)limit, (unsigned long long)documents);
    }
    if (job->progress.documents < documents) {
        return err_set(err, STATUS_BAD_INPUT,
                       "the input has changed since this job began: it has %llu documents, and the job has done %llu; "
                       "--overwrite begins again",
                       (unsigned long long)job->progress.documents, (unsigned long long)documents);
    }
    return err_set(
        err, STATUS_BAD_INPUT,
        "the input has changed since this job began (somewhere in its first %llu documents%s%s); --overwrite "
        "begins again",
        (unsigned long long)documents, with->hashes ? "" : ": without the hashes in ",
        with->hashes ? "" : job->options->output->hashes);
}

/* Counts the rows of changed documents as failed, and ends the list that names them. */
static enum status end_list(struct job *job, struct comparison *with, struct err *err)
{
    job->at.failed = with->failed;
    job->at.copied = with->copied;
    job->at.computed = job->at.rows - with->failed - with->copied;
    job->at.digest = job_digest_now(job);
    TRY(append_file_sync(&with->new_list, err));
    return file_sync_folder(with->new_path, err);
}

/* Reads the input of a finished job again, up to its earlier end, and finds out what must be computed. */
static enum status check_finished(struct job *job, struct err *err)
{
    const struct checkpoint at = job->at;
    struct comparison with = {.obstacle = job_retry_obstacle(job)};
    if (job->tries_failed && at.failed > 0 && job_reads_standard_input(job)) {
        job->retries = true; /* the retry compares while it reads */
        return STATUS_OK;
    }
    /* The failures of records are for their reader; a line that has failed must be as it was, too. */
    uint64_t listed = job->options->source.records ? 0 : at.failed;
    enum status status = comparison_open(job, at.documents, listed, &with, err);
    if (!job->tries_failed && !with.obstacle) { with.obstacle = ""; }
    with.lists = with.hashes && !with.obstacle;
    if (status == STATUS_OK) { status = reread_input(job, &with, at.documents, at.digest, err); }
    bool good = status == STATUS_OK && (!job->options->stop || *job->options->stop == 0);
    job->retries = good && job->tries_failed && (at.failed > 0 || job->changed > 0);
    if (job->retries && job->changed > 0) { status = end_list(job, &with, err); }
    if (with.new_list.path && (status != STATUS_OK || !job->retries || job->changed == 0)) { unlink(with.new_path); }
    comparison_close(&with);
    if (status != STATUS_OK || !job->retries) { return status; }
    source_close(job->source); /* the input is read once more */
    job->source = NULL;
    XXH3_128bits_reset(job->digest);
    job->progress.documents = 0;
    return source_open(&job->options->source, &job->source, err);
}

/* Writes the paths of the files; NULL for those that this job does not have. */
static void append_paths(const struct job *job, const char *paths[APPEND_FILES])
{
    const struct job_options *options = job->options;
    const struct output *output = options->output;
    bool lines = output->kind == OUTPUT_JSONL;
    if (options->dry) {
        memset(paths, 0, APPEND_FILES * sizeof *paths);
        return;
    }
    paths[APPEND_LINES] = lines ? output->path : NULL;
    paths[APPEND_FAILURES] = options->plain ? NULL : output->failures;
    paths[APPEND_IDS] = options->ids && !lines ? output->ids : NULL;
    paths[APPEND_DOCUMENTS] = job_has_chunks(job) && !lines ? output->documents : NULL;
    paths[APPEND_CHUNKS] = job_has_chunks(job) && !lines ? output->chunks : NULL;
    /* If earlier documents were done without hashes, there are none for later ones, either. */
    bool hashes = !options->plain && (job->at.documents == 0 || job_file_exists(output->hashes));
    paths[APPEND_HASHES] = hashes ? output->hashes : NULL;
}

static enum status replay_record(void *context, const struct journal_record *record, struct err *err);

/* Until the job is finished, the vectors of JSON Lines are in a scratch file too. Vectors that the lines already have
 * are never read again, but keep their places there. */
static enum status make_scratch(const struct job *job, struct err *err)
{
    const struct output *output = job->options->output;
    if (output->kind != OUTPUT_JSONL) { return STATUS_OK; }
    int fd;
    TRY(file_make(output->scratch, O_WRONLY | O_TRUNC, &fd, err));
    bool made = ftruncate(fd, (off_t)(job->at.rows * job_row_floats(job) * sizeof(float))) == 0;
    if (!made) { err_set_errno(err, "cannot write %s", output->scratch); }
    close(fd);
    return made ? STATUS_OK : err->status;
}

/* Makes a finished job unfinished again, because its input has grown. A journal says how much is complete; once that is
 * durable, the manifest is removed. */
static enum status unfinish(struct job *job, struct err *err)
{
    const struct output *output = job->options->output;
    const char *paths[APPEND_FILES];
    struct journal *journal = NULL;
    TRY(file_make_folder(output->job, err));
    TRY(make_scratch(job, err));
    append_paths(job, paths);
    for (int i = 0; i < JOURNAL_FILES; i++) {
        struct stat info;
        job->at.lengths[i] = paths[i] && stat(paths[i], &info) == 0 ? (uint64_t)info.st_size : 0;
    }
    enum status status = journal_open(output->journal, replay_record, job, &journal, err);
    if (status == STATUS_OK) {
        status = journal_put_terms(journal, job->options->terms, strlen(job->options->terms), err);
    }
    if (status == STATUS_OK) { status = journal_write(journal, &job->at, err); }
    journal_close(journal);
    TRY(status);
    TRY(file_sync_folder(output->journal, err));
    TRY(file_sync_folder(output->job, err));
    TRY(job_remove_file(output->manifest, err));
    return file_sync_folder(output->manifest, err);
}

/* True if any row has its vector. If none has, the options may have been a mistake, and others may replace them. */
static bool has_vectors(const struct checkpoint *at)
{
    return at->computed + at->copied > 0;
}

static enum status find_finished(struct job *job, bool *finished, struct err *err)
{
    struct manifest manifest;
    char room[PATH_MAX];
    const struct output *output = job->options->output;
    TRY(manifest_read(output->manifest, &manifest, finished, err));
    if (!*finished) { return STATUS_OK; }
    enum status status = STATUS_OK;
    if (terms_differ(manifest.terms.data, manifest.terms.length, job->options->terms, err)) { status = err->status; }
    buffer_free(&manifest.terms);
    if (status != STATUS_OK && manifest.at.rows > 0 && !has_vectors(&manifest.at)) {
        *finished = false;
        return job_remove_all(output, err);
    }
    job->at = manifest.at;
    if (status == STATUS_OK) { status = job_remove_leftovers(output, err); } /* a kill after the manifest left them */
    if (status == STATUS_OK) { status = failure_list_settle(output, &manifest, err); }
    if (status == STATUS_OK && !job_file_exists(first_file(output, room))) {
        status =
            err_set(err, STATUS_NOT_FOUND, "%s is gone, though %s says that it is finished; --overwrite begins again",
                    output->path, output->manifest);
    }
    if (status == STATUS_OK) {
        bool apart = output->kind != OUTPUT_JSONL;
        status = manifest_check(output, job->at.rows, job->options->ids && apart, job_has_chunks(job) && apart, err);
    }
    if (status == STATUS_OK && job->options->source.records && job->at.failed > 0) {
        char hex[SHA256_HEX];
        uint64_t size;
        status = manifest_hash(output->failures, hex, &size, err);
        if (status == STATUS_OK && strcmp(hex, manifest.failures) != 0) {
            status =
                err_set(err, STATUS_BAD_INPUT,
                        "%s was cut or changed since its job was finished; --overwrite begins again", output->failures);
        }
    }
    if (status == STATUS_OK) { status = check_finished(job, err); }
    if (job->retries) { return status; }
    if (status == STATUS_OK && (!job->options->stop || *job->options->stop == 0)) {
        status = source_next(job->source, &job->ahead, &job->grown, err);
    }
    *finished = !job->grown;
    return status == STATUS_OK && job->grown ? unfinish(job, err) : status;
}

/* Replays a record of the earlier run. */
static enum status replay_record(void *context, const struct journal_record *record, struct err *err)
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
        for (size_t i = 0; i < count; i++) {
            if (recent[i].row >= job->at.rows) { recent[kept++] = recent[i]; }
        }
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

static enum status note_checkpoint(void *context, const struct journal_record *record, struct err *err)
{
    (void)err;
    if (record->kind == JOURNAL_CHECKPOINT) { *(struct checkpoint *)context = record->checkpoint; }
    return STATUS_OK;
}

enum status job_cut(const struct output *output, struct err *err)
{
    const char *const paths[] = {[APPEND_LINES] = output->path, [APPEND_FAILURES] = output->failures};
    struct checkpoint at = {0};
    struct journal *journal;
    if (!job_file_exists(output->journal) || job_file_exists(output->manifest)) { return STATUS_OK; }
    TRY(journal_open(output->journal, note_checkpoint, &at, &journal, err));
    enum status status = STATUS_OK;
    for (int i = APPEND_LINES; status == STATUS_OK && i <= APPEND_FAILURES; i++) {
        struct append_file file = {0};
        if (at.lengths[i] == 0 && !job_file_exists(paths[i])) { continue; }
        status = append_file_open(&file, paths[i], at.lengths[i], err);
        append_file_close(&file);
    }
    journal_close(journal);
    return status;
}

static int compare_rows(const void *left, const void *right)
{
    const struct done *a = left, *b = right;
    return a->row < b->row ? -1 : a->row > b->row;
}

static enum status open_store(struct job *job, struct err *err)
{
    const struct job_options *options = job->options;
    const struct output *output = options->output;
    bool lines = output->kind == OUTPUT_JSONL;
    if (options->dry || (lines && options->plain)) { return STATUS_OK; }
    struct store_options store = {.path = lines ? output->scratch : output->path,
                                  .dim = job_row_floats(job),
                                  .element = lines ? ELEMENT_F32 : options->element,
                                  .shard_rows = options->shard_rows,
                                  .fresh = options->plain || (lines && job->retries)};
    store.kind = output->kind == OUTPUT_NPY ? STORE_NPY : output->kind == OUTPUT_SHARDS ? STORE_SHARDS : STORE_RAW;
    return store_open(&store, &job->store, err);
}

/* Checks that the recorded vectors are there: a file that was deleted or cut would read as zeros. */
static enum status check_store(struct job *job, struct err *err)
{
    const struct done *recent = (const struct done *)(const void *)job->recent.data;
    if (!job->journal) { return STATUS_OK; }
    uint64_t step = job->options->output->kind == OUTPUT_SHARDS ? job->options->shard_rows : job->at.rows;
    for (uint64_t row = step; row > 0 && row <= job->at.rows; row += step) {
        TRY(store_check(job->store, row - 1, err));
    }
    if (job->at.rows > 0) { TRY(store_check(job->store, job->at.rows - 1, err)); }
    for (size_t i = 0; i < job->recent.length / sizeof *recent; i++) {
        TRY(store_check(job->store, recent[i].row, err));
    }
    return STATUS_OK;
}

static enum status open_files(struct job *job, struct err *err)
{
    const char *paths[APPEND_FILES];
    append_paths(job, paths);
    for (int i = 0; i < APPEND_FILES; i++) {
        uint64_t count = i == APPEND_HASHES ? job->at.documents : job->at.rows;
        uint64_t length = i < JOURNAL_FILES ? job->at.lengths[i] : count > 0 ? job_pairs_end(i, count) : 0;
        if (paths[i]) { TRY(append_file_open(&job->files[i], paths[i], length, err)); }
    }
    for (int i = APPEND_DOCUMENTS; i <= APPEND_CHUNKS; i++) {
        char header[NPY_HEADER_BYTES];
        npy_header(header, "<u8", 0, i == APPEND_CHUNKS ? 2 : 0);
        if (job->files[i].path && job->files[i].written == 0) {
            buffer_append(&job->files[i].pending, header, sizeof header);
        }
    }
    return STATUS_OK;
}

static enum status open_journal(struct job *job, struct err *err)
{
    const struct job_options *options = job->options;
    const struct output *output = options->output;
    char room[PATH_MAX];
    const char *first = first_file(output, room);
    /* A list of failures has a name that only jobs give; records' failures may be anybody's file. */
    const char *there = job_file_exists(first)                                         ? first
                        : options->source.records && job_file_exists(output->failures) ? output->failures
                                                                                       : NULL;
    if (!job_file_exists(output->journal) && there) {
        return err_set(err, STATUS_BAD_INPUT,
                       "%s exists already, and there is no job to resume; --overwrite deletes it", there);
    }
    /* The output folder may be a link to one. */
    if (output->kind == OUTPUT_SHARDS && mkdir(output->path, 0777) != 0 && errno != EEXIST) {
        return err_set_errno(err, "cannot make the folder %s", output->path);
    }
    TRY(file_make_folder(output->job, err));
    TRY(journal_open(output->journal, replay_record, job, &job->journal, err));
    if (job->terms.length > 0 && terms_differ(job->terms.data, job->terms.length, options->terms, err)) {
        if (has_vectors(&job->at) || job->recent.length > 0) { return err->status; }
        journal_close(job->journal);
        job->journal = NULL;
        job->terms.length = 0;
        job->seeded = false;
        TRY(job_remove_all(output, err));
        return open_journal(job, err);
    }
    if (job->terms.length == 0) {
        TRY(journal_put_terms(job->journal, options->terms, strlen(options->terms), err));
        TRY(journal_write(job->journal, NULL, err));
    }
    if (!job->seeded) { TRY(journal_put_seed(job->journal, job->preparer.seed, err)); }
    if (job->recent.length > 0) {
        qsort(job->recent.data, job->recent.length / sizeof(struct done), sizeof(struct done), compare_rows);
    }
    return STATUS_OK;
}

void job_forget(struct job *job)
{
    const struct output *output = job->options->output;
    const char *paths[APPEND_FILES];
    char room[PATH_MAX];
    struct err ignored;
    append_paths(job, paths);
    bool removed = true;
    for (int i = 0; i < APPEND_FILES; i++) {
        removed = removed && (!paths[i] || job_remove_file(paths[i], &ignored) == STATUS_OK);
    }
    const char *vectors = output->kind == OUTPUT_JSONL ? output->scratch : first_file(output, room);
    removed = removed && job_remove_file(vectors, &ignored) == STATUS_OK;
    /* This comes last: files without a journal would count as another job's. */
    if (removed && job_remove_file(output->journal, &ignored) == STATUS_OK) { rmdir(output->job); }
}

/* Counts the work of an earlier run. */
static void restore_progress(struct job *job)
{
    job->progress.rows = job->at.rows;
    job->progress.failed = job->at.failed;
    job->progress.copied = job->at.copied;
    job->progress.computed = job->at.computed;
}

static enum status begin_retry(struct job *job, struct err *err)
{
    const struct output *output = job->options->output;
    if (output->kind == OUTPUT_JSONL) { TRY(file_make_folder(output->job, err)); }
    TRY(open_store(job, err));
    if (job->changed > 0) {
        char *new_list = job_new_path(output->failures);
        if (!new_list) { return err_set(err, STATUS_NO_MEMORY, "no memory to retry"); }
        enum status status = job_write_manifest(job, new_list, err);
        if (status == STATUS_OK) { status = failure_list_adopt(output, new_list, job->at.failed, err); }
        free(new_list);
        TRY(status);
    }
    return job_retry_open(job, err);
}

enum status job_resume(struct job *job, struct err *err)
{
    const struct job_options *options = job->options;
    bool finished = false;
    if (!options->plain && options->overwrite) { TRY(job_remove_all(options->output, err)); }
    if (!options->plain) { TRY(find_finished(job, &finished, err)); }
    if (job->retries) { return begin_retry(job, err); }
    restore_progress(job);
    job->ended = finished;
    if (finished) { return STATUS_OK; }
    if (!options->plain) { TRY(open_journal(job, err)); }
    TRY(open_store(job, err));
    TRY(check_store(job, err));
    TRY(open_files(job, err));
    if (!options->plain) { /* a durable file is lost if its name is not durable */
        TRY(file_sync_folder(options->output->journal, err));
        TRY(file_sync_folder(options->output->job, err));
        TRY(file_sync_folder(options->output->path, err));
    }
    restore_progress(job);
    job->progress.tokens = job->at.tokens;
    job->next_row = job->at.rows;
    struct comparison with = {.obstacle = ""};
    enum status status = comparison_open(job, job->at.documents, 0, &with, err);
    if (status == STATUS_OK) { status = reread_input(job, &with, job->at.documents, job->at.digest, err); }
    comparison_close(&with);
    return status;
}
