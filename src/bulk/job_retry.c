/* Once more for the rows that failed in a finished job: their documents may have been mended meanwhile; all others must
 * be what they were.
 *
 * There is no journal: until the new manifest is there, the old one and the old list of failures stand, and a retry
 * that was interrupted begins again. Matrices are written in place; files of lines are copied, with other lines where
 * rows were computed, and take the old ones' names in the end. The list of failures does so last, behind the manifest.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "bulk/job_state.h"

enum { LINE_MAX_BYTES = 1 << 30 };

/* A file of a line for each row, on its way to a new one. */
struct splice {
    struct reader old;
    char *path, *new_path;
    uint64_t row; /* whose line is the next one of `old` */
    bool open;
};

/* A row of the list of failures. */
struct listed {
    uint64_t row; /* UINT64_MAX: there is no more */
    uint64_t document, chunk;
    bool unread; /* it failed because of what was read: then its bytes may have changed */
};

struct retry {
    struct reader list; /* of failures */
    struct listed next;
    struct buffer wanted; /* struct listed: of documents with chunks that were read, and not made units of yet */
    size_t wanted_at;
    uint64_t alone; /* the last document that had one row because it was unread, plus 1; 0: none */
    struct splice splices[TAILS];
    char *new_list;
    XXH3_state_t *digest; /* of what the input is now */
    struct checkpoint before;
};

static char *with_ending(const char *path)
{
    struct buffer text = {0};
    buffer_format(&text, "%s.new", path);
    if (!buffer_ok(&text))
        buffer_free(&text);
    return text.data;
}

/* Reads `name` and a number off the front of a line. */
static bool take_number(const char **at, const char *end, const char *name, uint64_t *out)
{
    char number[24] = "";
    size_t length = strlen(name), digits = 0;
    if ((size_t)(end - *at) < length || memcmp(*at, name, length) != 0)
        return false;
    for (*at += length; *at < end && digits < 20 && **at >= '0' && **at <= '9'; ++*at)
        number[digits++] = **at;
    *out = strtoull(number, NULL, 10);
    return digits > 0;
}

/* The beginning of a line that put_failure has written, and its code: {"row":12,...,"code":"bad_utf8",... */
static bool parse_failure(const struct record *line, bool chunks, struct listed *out)
{
    const char *at = line->bytes, *end = line->bytes + line->length;
    if (!take_number(&at, end, "{\"row\":", &out->row))
        return false;
    out->document = out->row;
    out->chunk = 0;
    if (chunks && (!take_number(&at, end, ",\"document\":", &out->document) ||
                   !take_number(&at, end, ",\"chunk\":", &out->chunk)))
        return false;
    out->unread = true;
    static const enum row_code computed[] = {ROW_NON_FINITE, ROW_F16_RANGE, ROW_REFUSED};
    for (size_t i = 0; i < sizeof computed / sizeof computed[0]; i++) {
        char code[48];
        int length = snprintf(code, sizeof code, ",\"code\":\"%s\",\"message\":", row_code_name(computed[i]));
        out->unread = out->unread && memmem(line->bytes, line->length, code, (size_t)length) == NULL;
    }
    return out->chunk <= out->row;
}

static enum status next_failure(struct job *job, struct err *err)
{
    struct retry *retry = job->retry;
    struct record line;
    struct listed listed = {.row = UINT64_MAX, .document = UINT64_MAX};
    TRY(reader_line(&retry->list, &line, err));
    bool first = retry->list.line <= 1;
    if (line.bytes != NULL &&
        (!parse_failure(&line, job_has_chunks(job), &listed) || (!first && listed.row <= retry->next.row)))
        return err_set(err, STATUS_BAD_INPUT, "%s line %llu is not what this job wrote; --overwrite begins again",
                       job->options->output->failures, (unsigned long long)line.line);
    retry->next = listed;
    return STATUS_OK;
}

static enum status splice_open(struct job *job, int number, const char *path, struct err *err)
{
    struct splice *splice = &job->retry->splices[number];
    splice->path = strdup(path);
    splice->new_path = with_ending(path);
    if (splice->path == NULL || splice->new_path == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the names of the output");
    TRY(reader_open(&splice->old, splice->path, LINE_MAX_BYTES, NULL, err));
    splice->open = true;
    return tail_open(&job->tails[number], splice->new_path, 0, err);
}

/* Copies the lines up to that of `row`. */
static enum status splice_to(struct job *job, int number, uint64_t row, struct err *err)
{
    struct splice *splice = &job->retry->splices[number];
    struct buffer *to = &job->tails[number].pending;
    for (; splice->row < row; splice->row++) {
        struct record line;
        TRY(reader_line(&splice->old, &line, err));
        if (line.bytes == NULL)
            return err_set(err, STATUS_BAD_INPUT, "%s has fewer lines than this job wrote; --overwrite begins again",
                           splice->path);
        buffer_append(to, line.bytes, line.length);
        buffer_string(to, "\n");
        if (to->length > 1 << 20)
            TRY(tail_flush(&job->tails[number], err));
    }
    return STATUS_OK;
}

enum status job_retry_line(struct job *job, int number, uint64_t row, struct err *err)
{
    struct splice *splice = job->retry == NULL ? NULL : &job->retry->splices[number];
    struct record old;
    if (splice == NULL || !splice->open)
        return STATUS_OK;
    TRY(splice_to(job, number, row, err));
    splice->row++;
    return reader_line(&splice->old, &old, err);
}

static uint64_t count_lines(const char *path)
{
    uint64_t lines = 0;
    FILE *file = fopen(path, "re");
    for (int c; file != NULL && (c = getc_unlocked(file)) != EOF;)
        lines += c == '\n';
    if (file != NULL)
        fclose(file);
    return lines;
}

enum status job_retry_settle(const struct output *output, uint64_t failed, struct err *err)
{
    char *new_list = with_ending(output->failures);
    struct stat info;
    enum status status = STATUS_OK;
    if (new_list == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the names of the output");
    bool there = stat(new_list, &info) == 0;
    /* A list that was not written to its end is shorter than the one that stands; if it is not, both say the same. */
    if (there && count_lines(new_list) == failed) {
        if (failed > 0 && rename(new_list, output->failures) != 0)
            status = err_set_errno(err, "cannot write %s", output->failures);
        if (failed == 0)
            unlink(output->failures);
        if (status == STATUS_OK)
            status = file_sync_folder(output->failures, err);
    }
    unlink(new_list);
    free(new_list);
    return status;
}

enum status job_retry_open(struct job *job, struct err *err)
{
    const struct job_options *options = job->options;
    const struct output *output = options->output;
    bool lines = output->kind == OUTPUT_JSONL;
    struct retry *retry = job->retry = calloc(1, sizeof *retry);
    if (retry == NULL || (retry->new_list = with_ending(output->failures)) == NULL ||
        (retry->digest = XXH3_createState()) == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory to retry");
    XXH3_128bits_reset(retry->digest);
    retry->before = job->at;
    job->at.failed = 0;
    job->progress.failed = 0;
    job->progress.rows = job->at.rows - retry->before.failed;
    TRY(reader_open(&retry->list, output->failures, LINE_MAX_BYTES, NULL, err));
    TRY(next_failure(job, err));
    TRY(tail_open(&job->tails[TAIL_FAILURES], retry->new_list, 0, err));
    if (lines)
        TRY(file_make_folder(output->job, err));
    if (lines)
        TRY(splice_open(job, TAIL_LINES, output->path, err));
    return options->ids && !lines ? splice_open(job, TAIL_IDS, output->ids, err) : STATUS_OK;
}

void job_retry_close(struct job *job)
{
    struct retry *retry = job->retry;
    if (retry == NULL)
        return;
    reader_close(&retry->list);
    for (int i = 0; i < TAILS; i++) {
        reader_close(&retry->splices[i].old);
        free(retry->splices[i].path);
        free(retry->splices[i].new_path);
    }
    XXH3_freeState(retry->digest);
    buffer_free(&retry->wanted);
    free(retry->new_list);
    free(retry);
}

bool job_retry_at_end(const struct job *job)
{
    return job->retry != NULL && job->progress.documents == job->retry->before.documents;
}

enum status job_retry_wants(struct job *job, struct document *document, bool *wanted, struct err *err)
{
    struct retry *retry = job->retry;
    *wanted = document->number == retry->next.document;
    struct document then = *document; /* as it was when the job was finished */
    if (*wanted && retry->next.unread)
        then.code = ROW_UNREADABLE;
    job_digest_add(job->digest, &then);
    job_digest_add(retry->digest, document);
    document->first_row = retry->next.row - retry->next.chunk;
    while (document->number == retry->next.document) {
        if (job_has_chunks(job))
            buffer_append(&retry->wanted, &retry->next, sizeof retry->next);
        TRY(next_failure(job, err));
    }
    return buffer_ok(&retry->wanted) ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory to retry");
}

/* The next row of the list that a unit may be; NULL: there is none. */
static const struct listed *next_wanted(struct retry *retry)
{
    if (retry->wanted_at * sizeof(struct listed) == retry->wanted.length)
        retry->wanted_at = retry->wanted.length = 0;
    const struct listed *wanted = (const struct listed *)(const void *)retry->wanted.data;
    return retry->wanted.length == 0 ? NULL : &wanted[retry->wanted_at];
}

enum status job_retry_unit(struct job *job, struct unit *unit, struct err *err)
{
    struct retry *retry = job->retry;
    if (retry == NULL || !job_has_chunks(job))
        return STATUS_OK;
    const struct listed *next = next_wanted(retry);
    if (unit->chunk > 0 && retry->alone == unit->document->number + 1)
        return err_set(
            err, STATUS_BAD_INPUT,
            "%s line %llu: the document had one row, and now it has several chunks; --overwrite begins again",
            unit->document->file, (unsigned long long)unit->document->line);
    if (next == NULL || next->row != unit->number) {
        unit->state = UNIT_KEPT;
        return STATUS_OK;
    }
    retry->wanted_at++;
    if (next->unread)
        retry->alone = unit->document->number + 1;
    return STATUS_OK;
}

/* Everything was read: whether the rows that had not failed are what they were. */
static enum status check_input(struct job *job, struct err *err)
{
    const struct checkpoint *before = &job->retry->before;
    if (job->progress.documents == before->documents && hash_equal(job_digest_now(job), before->digest))
        return STATUS_OK;
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
    for (int i = 0; i < TAILS; i++) {
        if (retry->splices[i].open)
            TRY(splice_to(job, i, job->at.rows, err));
        TRY(tail_sync(&job->tails[i], err));
        if (retry->splices[i].open && rename(retry->splices[i].new_path, retry->splices[i].path) != 0)
            return err_set_errno(err, "cannot write %s", retry->splices[i].path);
    }
    TRY(file_sync_folder(output->failures, err));
    if (output->kind == OUTPUT_JSONL && (unlink(output->scratch) != 0 || rmdir(output->job) != 0))
        return err_set_errno(err, "cannot remove %s", output->job);
    return STATUS_OK;
}
