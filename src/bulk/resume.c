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

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "bulk/journal.h"
#include "bulk/manifest.h"
#include "bulk/output/store.h"

void job_report(struct job *job, bool must)
{
    uint64_t now_ns = clock_now_ns();
    if (!job->options->report || !job->source || (!must && now_ns - job->reported_ns < REPORT_MS * NS_PER_MS)) {
        return;
    }
    job->reported_ns = now_ns;
    job->progress.duplicate_ids = source_duplicates(job->source);
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

void job_digest_add(XXH3_state_t *digest, const struct document *document)
{
    bool good = document->code == ROW_OK;
    uint64_t head[] = {good, document->id_bytes, document->kept_bytes, document->hash.low, document->hash.high};
    XXH3_128bits_update(digest, head, good ? sizeof head : sizeof head[0]);
    if (good && document->id_bytes > 0) { XXH3_128bits_update(digest, document->id, document->id_bytes); }
    if (good && document->kept_bytes > 0) { XXH3_128bits_update(digest, document->kept, document->kept_bytes); }
}

struct fingerprint job_fingerprint(const struct document *document)
{
    struct fingerprint now = {0};
    if (document->id_bytes > 0) { now.id = XXH3_64bits(document->id, document->id_bytes); }
    if (document->code != ROW_OK) { return now; }
    XXH64_hash_t kept = XXH3_64bits(document->kept, document->kept_bytes);
    now.content = XXH3_64bits_withSeed(&document->hash, sizeof document->hash, kept) & ~(uint64_t)FINGERPRINT_COPIED;
    if (now.content == 0) { now.content = ~(uint64_t)FINGERPRINT_COPIED; }
    return now;
}

struct hash job_digest_now(const struct job *job)
{
    XXH128_hash_t hash = XXH3_128bits_digest(job->digest);
    return (struct hash){hash.low64, hash.high64};
}

/* --- Retrying the failed rows of a finished job. Their documents may have been mended meanwhile; all others must be
 * unchanged. If ids show which row belongs to which document, a changed document first makes its row a failed one, in
 * manifest and list. So after a kill the list has all rows that differ from what the manifest's input would give.
 *
 * There is no journal: until the new manifest is written, the old one and the old list of failures are valid, and an
 * interrupted retry begins again. Matrices are written in place; files of lines are copied with new lines where rows
 * were computed, and then renamed. The list of failures is renamed last, after the manifest, which has its hash.
 *
 * The fingerprint of a document is read only if its row is not listed, so it may be written at any time before the new
 * manifest. --- */

enum { LINE_MAX_BYTES = 1 << 30 };

/* A file with a line per row, which is being copied to a new one. */
struct splice {
    struct reader old;
    char *path, *new_path;
    uint64_t row; /* the row of the next line in `old` */
    bool open;
};

/* A row of the list of failures. */
struct listed {
    uint64_t row; /* UINT64_MAX: the end of the list */
    uint64_t document, chunk;
    bool unread; /* it failed when it was read: its bytes may have changed */
};

/* The list of failures, which is read in step with the documents. Zero-initialise for an empty one. */
struct failure_list {
    struct reader reader;
    struct record line; /* the line of `next` */
    struct listed next;
};

/* The results of an earlier run, read in step with its documents. */
struct comparison {
    struct failure_list list;
    FILE *hashes;         /* NULL: there are none, and only the digest shows whether the input has changed */
    const char *obstacle; /* why no document may have changed; NULL: a document may, if its id has not */
    bool lists;           /* write a list that has the changed documents, too: */
    struct append_file new_list;
    char *new_path;
    uint64_t failed, copied; /* listed rows, and other rows that are copies */
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

static enum status remove_file(const char *path, struct err *err)
{
    if (unlink(path) == 0 || errno == ENOENT || errno == ENOTDIR) { return STATUS_OK; }
    return err_set_errno(err, "cannot remove %s", path);
}

static bool exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

static char *with_ending(const char *path)
{
    struct buffer text = {0};
    buffer_format(&text, "%s.new", path);
    if (!buffer_ok(&text)) { buffer_free(&text); }
    return text.data;
}

/* Parses `name` and a number at the front of a line. */
static bool take_number(const char **at, const char *end, const char *name, uint64_t *out)
{
    char number[24] = "";
    size_t length = strlen(name), digits = 0;
    if ((size_t)(end - *at) < length || memcmp(*at, name, length) != 0) { return false; }
    for (*at += length; *at < end && digits < 20 && **at >= '0' && **at <= '9'; ++*at) { number[digits++] = **at; }
    *out = strtoull(number, NULL, 10);
    return digits > 0;
}

void job_put_id(struct buffer *to, const struct document *document)
{
    if (document->lacks_id) {
        buffer_string(to, "null");
    } else if (document->id) {
        buffer_append(to, document->id, document->id_bytes);
    } else {
        buffer_format(to, "%llu", (unsigned long long)document->number);
    }
}

/* The members that a retry needs come first: see parse_failure. */
void job_put_failure(struct buffer *to, const struct output_row *row, bool chunks)
{
    const struct document *document = row->document;
    buffer_format(to, "{\"row\":%llu,", (unsigned long long)row->number);
    if (chunks) {
        buffer_format(to, "\"document\":%llu,\"chunk\":%u,", (unsigned long long)document->number, row->chunk);
    }
    buffer_string(to, "\"id\":");
    job_put_id(to, document);
    buffer_string(to, ",\"file\":");
    buffer_json_string(to, document->file, strlen(document->file));
    buffer_format(to, ",\"line\":%llu,\"code\":\"%s\",\"message\":", (unsigned long long)document->line,
                  failure_name(row->code));
    const char *text = failure_text(row->code);
    if (document->code != ROW_OK) {
        buffer_json_string(to, document->message, document->message_bytes);
    } else {
        buffer_json_string(to, text, strlen(text));
    }
    buffer_string(to, "}\n");
}

/* Parses a line that job_put_failure wrote: {"row":12,...,"code":"bad_utf8",... */
static bool parse_failure(const struct record *line, bool chunks, struct listed *out)
{
    const char *at = line->bytes, *end = line->bytes + line->length;
    if (!take_number(&at, end, "{\"row\":", &out->row)) { return false; }
    out->document = out->row;
    out->chunk = 0;
    if (chunks && (!take_number(&at, end, ",\"document\":", &out->document) ||
                   !take_number(&at, end, ",\"chunk\":", &out->chunk))) {
        return false;
    }
    out->unread = true;
    static const enum row_code computed[] = {ROW_NON_FINITE, ROW_F16_RANGE, ROW_NO_TOKENS, ROW_REFUSED};
    for (size_t i = 0; i < sizeof computed / sizeof computed[0]; i++) {
        char code[48];
        int length = snprintf(code, sizeof code, ",\"code\":\"%s\",\"message\":", failure_name(computed[i]));
        out->unread = out->unread && !memmem(line->bytes, line->length, code, (size_t)length);
    }
    return out->chunk <= out->row;
}

static enum status next_failure(const struct job *job, struct failure_list *list, struct err *err)
{
    struct listed listed = {.row = UINT64_MAX, .document = UINT64_MAX};
    TRY(reader_line(&list->reader, &list->line, err));
    bool first = list->reader.line <= 1;
    if (list->line.bytes &&
        (!parse_failure(&list->line, job_has_chunks(job), &listed) || (!first && listed.row <= list->next.row))) {
        return err_set(err, STATUS_BAD_INPUT, "%s line %llu is not what this job wrote; --overwrite begins again",
                       job->options->output->failures, (unsigned long long)list->line.line);
    }
    list->next = listed;
    return STATUS_OK;
}

/* --- Comparing documents with those of an earlier run --- */

/* Begins a comparison with a run of `documents`, of which some rows `failed`. The caller ends it with close_comparison,
 * also after an error. */
static enum status open_comparison(const struct job *job, uint64_t documents, uint64_t failed, struct comparison *with,
                                   struct err *err)
{
    const struct output *output = job->options->output;
    struct stat info;
    with->list.next = (struct listed){.row = UINT64_MAX, .document = UINT64_MAX};
    if (job->options->plain) { return STATUS_OK; }
    with->new_path = with_ending(output->failures);
    if (!with->new_path) { return err_set(err, STATUS_NO_MEMORY, "no memory for the names of the output"); }
    with->hashes = fopen(output->hashes, "rbe");
    if (with->hashes &&
        (fstat(fileno(with->hashes), &info) != 0 || (uint64_t)info.st_size < job_pairs_end(APPEND_HASHES, documents))) {
        fclose(with->hashes);
        with->hashes = NULL;
    }
    if (failed == 0) { return STATUS_OK; }
    TRY(reader_open(&with->list.reader, output->failures, LINE_MAX_BYTES, NULL, err));
    return next_failure(job, &with->list, err);
}

static void close_comparison(struct comparison *with)
{
    reader_close(&with->list.reader);
    if (with->hashes) { fclose(with->hashes); }
    append_file_close(&with->new_list);
    free(with->new_path);
}

/* Finds out whether the next document has changed. Errors: STATUS_BAD_INPUT: it has, but may not. */
static enum status compare(const struct job *job, struct comparison *with, const struct document *document,
                           bool *changed, struct err *err)
{
    struct fingerprint then, now = job_fingerprint(document);
    *changed = false;
    if (!with->hashes) { return STATUS_OK; }
    if (fread(&then, sizeof then, 1, with->hashes) != 1) {
        return err_set_errno(err, "cannot read %s", job->options->output->hashes);
    }
    if (document->number == with->list.next.document && with->list.next.unread) { return STATUS_OK; }
    bool copied = then.content & FINGERPRINT_COPIED, same_id = then.id == now.id, fails = now.content == 0;
    then.content &= ~(uint64_t)FINGERPRINT_COPIED;
    *changed = then.content != now.content || !(same_id || fails);
    with->copied += copied && !*changed;
    bool placed = same_id || (fails && now.id == 0);
    if (!*changed || (!with->obstacle && placed)) { return STATUS_OK; }
    const char *why =
        with->obstacle ? with->obstacle : "; only rows whose ids are in their old places are computed again";
    return err_set(err, STATUS_BAD_INPUT,
                   "%s line %llu: the input has changed since this job began: document %llu has %s%s; --overwrite "
                   "begins again",
                   strcmp(document->file, "-") == 0 ? "standard input" : document->file,
                   (unsigned long long)document->line, (unsigned long long)document->number,
                   placed ? "changed" : "another id", why);
}

/* Writes the document's line of the new list, if it has one. The file is opened when there is something to write. */
static enum status list_again(struct job *job, struct comparison *with, const struct document *document, bool changed,
                              struct err *err)
{
    struct buffer *to = &with->new_list.pending;
    if (changed) {
        struct document read = *document;
        read.code = ROW_OK; /* the line only says that it has changed */
        job_put_failure(to, &(struct output_row){.number = document->number, .document = &read, .code = ROW_CHANGED},
                        false);
        job->changed++;
    } else if (document->number == with->list.next.document) {
        buffer_append(to, with->list.line.bytes, with->list.line.length);
        buffer_string(to, "\n");
    } else {
        return STATUS_OK;
    }
    with->failed++;
    if (with->new_list.path == NULL && (changed || to->length > 1 << 20)) {
        struct buffer pending = *to;
        enum status status = append_file_open(&with->new_list, with->new_path, 0, err);
        *to = pending;
        TRY(status);
    }
    return to->length > 1 << 20 ? append_file_flush(&with->new_list, err) : STATUS_OK;
}

/* Reads a document of an earlier run again without computing it. */
static enum status reread(struct job *job, struct comparison *with, const struct document *document, struct err *err)
{
    bool changed, unread = document->number == with->list.next.document && with->list.next.unread;
    struct document then = *document; /* the document as it was */
    TRY(compare(job, with, document, &changed, err));
    if (changed || unread) { then.code = ROW_UNREADABLE; }
    job_digest_add(job->digest, &then);
    if (with->lists) { TRY(list_again(job, with, document, changed, err)); }
    while (document->number == with->list.next.document) { TRY(next_failure(job, &with->list, err)); }
    return STATUS_OK;
}

static enum status splice_open(struct job *job, int number, const char *path, struct err *err)
{
    struct splice *splice = &job->retry->splices[number];
    splice->path = strdup(path);
    splice->new_path = with_ending(path);
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

/* Replaces the old list by the new one. */
static enum status adopt_list(const struct output *output, const char *new_list, uint64_t failed, struct err *err)
{
    if (failed > 0 && rename(new_list, output->failures) != 0) {
        return err_set_errno(err, "cannot write %s", output->failures);
    }
    if (failed == 0) {
        TRY(remove_file(output->failures, err));
        TRY(remove_file(new_list, err));
    }
    return file_sync_folder(output->failures, err);
}

/* Cleans up after a kill between manifest and list, or before a manifest was written. */
static enum status settle_list(const struct output *output, const struct manifest *manifest, struct err *err)
{
    char hex[SHA256_HEX], *new_list = with_ending(output->failures);
    uint64_t size;
    struct err ignored;
    enum status status = STATUS_OK;
    if (!new_list) { return err_set(err, STATUS_NO_MEMORY, "no memory for the names of the output"); }
    if (!exists(new_list) && (manifest->at.failed > 0 || !exists(output->failures))) {
        free(new_list);
        return STATUS_OK;
    }
    if (manifest->at.failed == 0 ||
        (manifest_hash(new_list, hex, &size, &ignored) == STATUS_OK && strcmp(hex, manifest->failures) == 0)) {
        status = adopt_list(output, new_list, manifest->at.failed, err);
    } else {
        status = remove_file(new_list, err);
    }
    free(new_list);
    return status;
}

static bool reads_standard_input(const struct job *job)
{
    const struct source_options *source = &job->options->source;
    for (size_t i = 0; i < source->operand_count; i++) {
        if (strcmp(source->operands[i], "-") == 0) { return true; }
    }
    return false;
}

/* The reason why a row of a finished job cannot be computed again when its document has changed; NULL: it can. */
static const char *find_obstacle(const struct job *job)
{
    if (job_has_chunks(job)) { return "; with --chunk no row can be computed alone"; }
    if (!job->options->ids) { return "; with --id-field only changed rows are computed again"; }
    return reads_standard_input(job) ? "; standard input cannot be read twice" : NULL;
}

enum status job_write_manifest(const struct job *job, const char *failures, struct err *err)
{
    const struct job_options *options = job->options;
    return manifest_write(options->output, options->terms, options->facts, job->store, failures, &job->at, err);
}

static enum status open_retry(struct job *job, struct err *err)
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
    retry->with.obstacle = find_obstacle(job);
    if (!retry->with.obstacle) { retry->with.obstacle = " while it was read"; } /* changes were found before */
    TRY(open_comparison(job, job->at.documents, retry->before.failed, &retry->with, err));
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
    close_comparison(&retry->with);
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

bool job_retry_at_end(const struct job *job)
{
    return job->retry && job->progress.documents == job->retry->before.documents;
}

enum status job_retry_wants(struct job *job, struct document *document, bool *wanted, struct err *err)
{
    struct retry *retry = job->retry;
    struct failure_list *list = &retry->with.list;
    bool changed;
    TRY(compare(job, &retry->with, document, &changed, err)); /* it has not, because there is an obstacle */
    *wanted = document->number == list->next.document;
    struct document then = *document; /* as it was when the job was finished */
    if (*wanted && list->next.unread) { then.code = ROW_UNREADABLE; }
    job_digest_add(job->digest, &then);
    job_digest_add(retry->digest, document);
    document->first_row = list->next.row - list->next.chunk;
    while (document->number == list->next.document) {
        if (job_has_chunks(job)) { buffer_append(&retry->wanted, &list->next, sizeof list->next); }
        TRY(next_failure(job, list, err));
    }
    return buffer_ok(&retry->wanted) ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory to retry");
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

/* Checks, once everything was read, that the documents that had not failed are unchanged. */
static enum status check_input(struct job *job, struct err *err)
{
    const struct checkpoint *before = &job->retry->before;
    if (job->progress.documents == before->documents && hash_equal(job_digest_now(job), before->digest)) {
        return STATUS_OK;
    }
    return err_set(err, STATUS_BAD_INPUT,
                   "the input has changed in other places than those that failed; --overwrite begins again");
}

enum status job_retry_end(struct job *job, struct err *err)
{
    const struct output *output = job->options->output;
    struct retry *retry = job->retry;
    TRY(check_input(job, err));
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
    return adopt_list(output, retry->with.new_path, job->at.failed, err);
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
    TRY(remove_file(output->journal, err));
    TRY(remove_file(output->scratch, err));
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
    return exists(output->path) ? each_shard(output->path, visit, context, err) : STATUS_OK;
}

static enum status remove_one(void *context, const char *path, struct err *err)
{
    (void)context;
    return remove_file(path, err);
}

static enum status remove_all(const struct output *output, struct err *err)
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
static enum status skip(struct job *job, struct comparison *with, uint64_t documents, struct hash digest,
                        struct err *err)
{
    job->progress.phase = JOB_CHECKING;
    while (job->progress.documents < documents) {
        struct document document;
        bool more = false;
        TRY(source_next(job->source, &document, &more, err));
        if (!more) { break; }
        TRY(reread(job, with, &document, err));
        job->progress.documents++;
        if (job->progress.documents % STEP == 0) { job_report(job, false); }
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
    struct comparison with = {.obstacle = find_obstacle(job)};
    if (job->tries_failed && at.failed > 0 && reads_standard_input(job)) {
        job->retries = true; /* the retry compares while it reads */
        return STATUS_OK;
    }
    enum status status = open_comparison(job, at.documents, at.failed, &with, err);
    if (!job->tries_failed && !with.obstacle) { with.obstacle = ""; }
    with.lists = with.hashes && !with.obstacle;
    if (status == STATUS_OK) { status = skip(job, &with, at.documents, at.digest, err); }
    bool good = status == STATUS_OK && (!job->options->stop || *job->options->stop == 0);
    job->retries = good && job->tries_failed && (at.failed > 0 || job->changed > 0);
    if (job->retries && job->changed > 0) { status = end_list(job, &with, err); }
    if (with.new_list.path && (status != STATUS_OK || !job->retries || job->changed == 0)) { unlink(with.new_path); }
    close_comparison(&with);
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
    bool hashes = !options->plain && (job->at.documents == 0 || exists(output->hashes));
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
    bool made = ftruncate(fd, (off_t)(job->at.rows * job->options->dim * sizeof(float))) == 0;
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
    TRY(remove_file(output->manifest, err));
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
        return remove_all(output, err);
    }
    job->at = manifest.at;
    if (status == STATUS_OK) { status = job_remove_leftovers(output, err); } /* a kill after the manifest left them */
    if (status == STATUS_OK) { status = settle_list(output, &manifest, err); }
    if (status == STATUS_OK && !exists(first_file(output, room))) {
        status =
            err_set(err, STATUS_NOT_FOUND, "%s is gone, though %s says that it is finished; --overwrite begins again",
                    output->path, output->manifest);
    }
    if (status == STATUS_OK) {
        bool apart = output->kind != OUTPUT_JSONL;
        status = manifest_check(output, job->at.rows, job->options->ids && apart, job_has_chunks(job) && apart, err);
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
    if (options->dry || (lines && options->plain)) { return STATUS_OK; }
    struct store_options store = {.path = lines ? output->scratch : output->path,
                                  .dim = options->dim,
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
    if (!exists(output->journal) && exists(first)) {
        return err_set(err, STATUS_BAD_INPUT,
                       "%s exists already, and there is no job to resume; --overwrite deletes it", first);
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
        TRY(remove_all(output, err));
        return open_journal(job, err);
    }
    if (job->terms.length == 0) {
        TRY(journal_put_terms(job->journal, options->terms, strlen(options->terms), err));
        TRY(journal_write(job->journal, NULL, err));
    }
    if (!job->seeded) { TRY(journal_put_seed(job->journal, job->preparer.seed, err)); }
    if (job->recent.length > 0) {
        qsort(job->recent.data, job->recent.length / sizeof(struct done), sizeof(struct done), by_row);
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
        removed = removed && (!paths[i] || remove_file(paths[i], &ignored) == STATUS_OK);
    }
    const char *vectors = output->kind == OUTPUT_JSONL ? output->scratch : first_file(output, room);
    removed = removed && remove_file(vectors, &ignored) == STATUS_OK;
    /* This comes last: files without a journal would count as another job's. */
    if (removed && remove_file(output->journal, &ignored) == STATUS_OK) { rmdir(output->job); }
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
        char *new_list = with_ending(output->failures);
        if (!new_list) { return err_set(err, STATUS_NO_MEMORY, "no memory to retry"); }
        enum status status = job_write_manifest(job, new_list, err);
        if (status == STATUS_OK) { status = adopt_list(output, new_list, job->at.failed, err); }
        free(new_list);
        TRY(status);
    }
    return open_retry(job, err);
}

enum status job_resume(struct job *job, struct err *err)
{
    const struct job_options *options = job->options;
    bool finished = false;
    if (!options->plain && options->overwrite) { TRY(remove_all(options->output, err)); }
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
    enum status status = open_comparison(job, job->at.documents, 0, &with, err);
    if (status == STATUS_OK) { status = skip(job, &with, job->at.documents, job->at.digest, err); }
    close_comparison(&with);
    return status;
}
