/* Finishes windows: once all pieces of one are computed, its rows are given out in input order, and a checkpoint
 * follows. Rows go in blocks. The job's thread decides what becomes of each row. The text of JSON Lines costs more than
 * all else on the host, so threads make it for several blocks at a time. Another thread writes the blocks, one after
 * another. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/float_text.h"
#include "base/json.h"
#include "bulk/failures.h"
#include "bulk/job_internal.h"
#include "compute/thread_pool.h"

/* Bounds of a block: rows, and bytes of vectors; and of the blocks that are on their way. */
enum { BLOCK_ROWS = 256, BLOCK_BYTES = 1 << 20, BLOCKS = 16, FLUSH_BYTES = 1 << 20 };

/* Rows of a window, on their way to the files. One thread works on it at a time. */
struct block {
    struct job *job;
    const struct lookahead *window;
    uint32_t first, end;
    bool formatted;
    struct buffer lines; /* their JSON Lines, if threads make them */
    enum status status;
    struct err err;
};

struct finish {
    struct thread_pool *lines; /* NULL: lines need an order, or there are none; their writer makes them */
    struct thread_pool *writes;
    bool stopped;                    /* the writer's: a block was not written, so no later one is */
    struct block blocks[BLOCKS];     /* a ring */
    uint64_t begun, given, finished; /* counts of blocks; given: to the writer */
};

/* --- The job's thread: what becomes of a row --- */

static int compare_number(const void *number, const void *row)
{
    uint64_t a = *(const uint64_t *)number, b = ((const struct output_row *)row)->number;
    return (a > b) - (a < b);
}

/* Gives a duplicate the vector, or the failure, of its origin. */
static enum status copy_row(struct job *job, struct lookahead *window, struct output_row *row, struct err *err)
{
    struct dedup_entry known = dedup_find(job->dedup, row->hash);
    if (known.row == row->origin && known.code != ROW_OK) {
        row->state = STATE_FAILED;
        row->code = known.code;
        return STATUS_OK;
    }
    job->at.copied++;
    job->progress.copied++;
    row->here = true;
    if (job->options->dry) { return STATUS_OK; }
    uint32_t dim = job_row_floats(job);
    /* It is not from an earlier window. In a retry, numbers have gaps. */
    const struct output_row *origin =
        bsearch(&row->origin, window->rows, window->row_count, sizeof *window->rows, compare_number);
    if (!origin || !origin->here) {
        return store_get(job->store, row->origin, lookahead_vector(window, row, dim), err);
    }
    memcpy(lookahead_vector(window, row, dim), lookahead_vector(window, origin, dim), dim * sizeof(float));
    return STATUS_OK;
}

enum { DRY_FAILURES_MAX = 5 };

static void fail_row(struct job *job, const struct lookahead *window, const struct output_row *row)
{
    const uint32_t nan_bits = 0x7fc00000; /* the same bits on every machine */
    uint32_t floats = job_row_floats(job);
    float *vector = lookahead_vector(window, row, floats);
    for (uint32_t i = 0; i < floats; i++) { memcpy(&vector[i], &nan_bits, sizeof nan_bits); }
    job->at.failed++;
    job->progress.failed++;
    if (job->options->dry && job->at.failed <= DRY_FAILURES_MAX) {
        const struct document *document = row->document;
        bool read = document->code == ROW_OK;
        buffer_format(job->options->dry, "%s line %llu: %.*s\n", job_file_of(document),
                      (unsigned long long)document->line,
                      read ? (int)strlen(failure_text(row->code)) : (int)document->message_bytes,
                      read ? failure_text(row->code) : document->message);
    }
}

/* --- Lines of the files --- */

/* The place of a chunk's text in its document; zeros without a text. */
static struct chunk_place find_place(const struct output_row *row)
{
    if (row->piece_count == 0) { return (struct chunk_place){0, 0}; }
    uint64_t begin = (uint64_t)(row->pieces[0].row.text - row->document->text);
    return (struct chunk_place){begin, begin + row->pieces[0].row.text_bytes};
}

static void put_vector(struct buffer *to, const float *vector, uint32_t dim)
{
    if (vector) {
        buffer_floats(to, vector, dim);
    } else {
        buffer_string(to, "null");
    }
}

/* Reads a vector that an earlier run has stored into its place in the window. */
static enum status fetch_vector(const struct job *job, const struct lookahead *window, const struct output_row *row,
                                struct err *err)
{
    if (row->here || row->state != STATE_STORED) { return STATUS_OK; }
    return store_get(job->store, row->number, lookahead_vector(window, row, job_row_floats(job)), err);
}

/* Appends a row of JSON Lines. */
static enum status put_line(const struct job *job, const struct lookahead *window, const struct output_row *row,
                            struct buffer *to, struct err *err)
{
    bool known = row->here || row->state == STATE_STORED; /* else it failed */
    const float *vector = known ? lookahead_vector(window, row, job->options->dim) : NULL;
    TRY(fetch_vector(job, window, row, err));
    if (job->options->arrays) {
        put_vector(to, vector, job->options->dim);
        buffer_string(to, "\n");
        return STATUS_OK;
    }
    buffer_json(to, "{'id':");
    job_put_id(to, row->document);
    if (job_has_chunks(job)) {
        buffer_json(to, ",'chunk':%u,'start':%" PRIu64 ",'end':%" PRIu64, row->chunk, find_place(row).begin,
                    find_place(row).end);
    }
    buffer_json(to, ",'vector':");
    put_vector(to, vector, job->options->dim);
    if (!vector) { buffer_json(to, ",'error':%s", failure_name(row->code)); }
    buffer_append(to, row->document->kept, row->document->kept_bytes);
    if (job->options->source.recipe->keeps_chunks) {
        buffer_json(to, ",'text':");
        if (row->piece_count > 0) {
            buffer_json_string(to, row->pieces[0].row.text, row->pieces[0].row.text_bytes);
        } else {
            buffer_string(to, "null");
        }
    }
    buffer_string(to, "}\n");
    return STATUS_OK;
}

/* Writes the pair of a row or document; a retry does so in place. */
static enum status put_pair(struct job *job, int file, uint64_t number, const void *pair, struct err *err)
{
    struct append_file *to = &job->files[file];
    off_t at = (off_t)job_pairs_end(file, number);
    if (!job->retry) {
        buffer_append(&to->pending, pair, PAIR_BYTES);
    } else if (pwrite(to->fd, pair, PAIR_BYTES, at) != PAIR_BYTES) {
        return err_set_errno(err, "cannot write %s", to->path);
    }
    return STATUS_OK;
}

/* Writes the line of a record once the last of its rows is finished. A window holds whole documents, and the vectors of
 * their rows side by side. */
static enum status put_record(struct job *job, const struct lookahead *window, const struct output_row *last,
                              struct err *err)
{
    const struct output_row *rows = last - last->chunk, *end = window->rows + window->row_count;
    const struct records *records = job->options->source.records;
    uint32_t stride = job_row_floats(job);
    if (last + 1 < end && last[1].document == last->document) { return STATUS_OK; }
    struct record_result result = {.document = last->document, .dim = job->options->dim, .stride = stride};
    for (const struct output_row *row = rows; row <= last && row->piece_count > 0; row++) {
        TRY(fetch_vector(job, window, row, err));
        if (row->code == ROW_OK) {
            result.tokens += (uint64_t)lookahead_vector(window, row, stride)[result.dim];
        } else if (result.code == ROW_OK) {
            result.code = row->code;
            result.failed = result.count;
        }
        result.count++;
    }
    result.vectors = lookahead_vector(window, rows, stride);
    records->write(records->context, &result, &job->files[APPEND_LINES].pending, &job->files[APPEND_FAILURES].pending);
    return STATUS_OK;
}

/* Appends what the files say of a row; JSON Lines only if no thread has made them. */
static enum status put_row(struct job *job, const struct lookahead *window, const struct output_row *row,
                           struct err *err)
{
    struct append_file *files = job->files;
    if (row->state == STATE_FAILED && files[APPEND_FAILURES].path && !job->options->source.records) {
        job_put_failure(&files[APPEND_FAILURES].pending, row, job_has_chunks(job));
    }
    if (job->options->source.records) {
        TRY(put_record(job, window, row, err));
    } else if (files[APPEND_LINES].path && !job->finish->lines) {
        TRY(job_retry_line(job, APPEND_LINES, row->number, err));
        TRY(put_line(job, window, row, &files[APPEND_LINES].pending, err));
    }
    if (files[APPEND_IDS].path) {
        TRY(job_retry_line(job, APPEND_IDS, row->number, err));
        job_put_id(&files[APPEND_IDS].pending, row->document);
        buffer_string(&files[APPEND_IDS].pending, "\n");
    }
    if (files[APPEND_DOCUMENTS].path) {
        buffer_append(&files[APPEND_DOCUMENTS].pending, &row->document->number, sizeof row->document->number);
    }
    if (files[APPEND_CHUNKS].path) {
        struct chunk_place place = find_place(row);
        TRY(put_pair(job, APPEND_CHUNKS, row->number, &place, err));
    }
    if (files[APPEND_HASHES].path && row->chunk == 0) {
        struct fingerprint hashes = row->document->fingerprint;
        if (row->state == STATE_COPY) { hashes.content |= FINGERPRINT_COPIED; }
        TRY(put_pair(job, APPEND_HASHES, row->document->number, &hashes, err));
    }
    return STATUS_OK;
}

/* Thread: one of the lines'. */
static void format_block(void *context, void *item)
{
    struct block *block = item;
    (void)context;
    for (uint32_t i = block->first; i < block->end && block->status == STATUS_OK; i++) {
        const struct output_row *row = &block->window->rows[i];
        if (row->state == STATE_KEPT) { continue; }
        block->status = put_line(block->job, block->window, row, &block->lines, &block->err);
    }
}

static enum status write_rows(const struct block *block, struct err *err)
{
    struct job *job = block->job;
    for (uint32_t i = block->first; i < block->end; i++) {
        const struct output_row *row = &block->window->rows[i];
        if (row->state != STATE_KEPT) { TRY(put_row(job, block->window, row, err)); }
    }
    if (job->store) { TRY(job_put_runs(job, block->window, block->first, block->end, true, err)); }
    for (int i = 0; i < APPEND_FILES; i++) {
        if (job->files[i].pending.length > FLUSH_BYTES) { TRY(append_file_flush(&job->files[i], err)); }
    }
    return STATUS_OK;
}

/* Thread: the writer's, to which the files belong while it has a block. */
static void write_block(void *context, void *item)
{
    struct block *block = item;
    struct finish *finish = block->job->finish;
    struct buffer *to = &block->job->files[APPEND_LINES].pending;
    (void)context;
    if (finish->stopped) {
        block->status = err_set(&block->err, STATUS_IO, "an earlier block was not written");
        return;
    }
    buffer_append(to, block->lines.data, block->lines.length);
    to->broken = to->broken || block->lines.broken;
    if (block->status == STATUS_OK) { block->status = write_rows(block, &block->err); }
    finish->stopped = block->status != STATUS_OK;
}

enum status job_put_checkpoint(struct job *job, struct err *err)
{
    for (int i = 0; i < APPEND_FILES; i++) {
        TRY(append_file_flush(&job->files[i], err));
        if (i < JOURNAL_FILES) { job->at.lengths[i] = job->files[i].written; }
    }
    job->checkpoint = job->at;
    job->checkpoint_waits = job->journal;
    return STATUS_OK;
}

/* --- The job's thread: blocks --- */

static bool has_blocks_out(const struct job *job)
{
    return job->finish->finished < job->finish->begun;
}

/* Decides on the next rows of the window, and sends them on their way. */
static enum status begin_block(struct job *job, struct lookahead *window, struct err *err)
{
    struct finish *finish = job->finish;
    struct block *block = &finish->blocks[finish->begun % BLOCKS];
    size_t most = BLOCK_BYTES / (job_row_floats(job) * sizeof(float)), left = window->row_count - window->finished;
    most = most < 1 ? 1 : most < BLOCK_ROWS ? most : BLOCK_ROWS;
    *block = (struct block){.job = job, .window = window, .first = window->finished, .lines = block->lines};
    block->lines.length = 0;
    block->end = block->first + (uint32_t)(left < most ? left : most);
    for (; window->finished < block->end; window->finished++) {
        struct output_row *row = &window->rows[window->finished];
        job->at.computed += row->state == STATE_DONE || row->state == STATE_STORED;
        if (row->state == STATE_COPY) { TRY(copy_row(job, window, row, err)); }
        if (row->state == STATE_FAILED) { fail_row(job, window, row); }
    }
    window->since_ns = 0;
    block->formatted = !finish->lines;
    finish->begun++;
    if (finish->lines) { thread_pool_put(finish->lines, block); }
    return STATUS_OK;
}

/* Takes blocks that are formatted, and gives the writer those whose turn it is. */
static void give_blocks(struct finish *finish, bool *worked)
{
    for (struct block *block; finish->lines && (block = thread_pool_take(finish->lines)) != NULL;) {
        block->formatted = true;
    }
    for (; finish->given < finish->begun && finish->blocks[finish->given % BLOCKS].formatted; finish->given++) {
        thread_pool_put(finish->writes, &finish->blocks[finish->given % BLOCKS]);
        *worked = true;
    }
}

/* Ends a block that the writer has given back. */
static enum status end_block(struct job *job, const struct block *block, struct err *err)
{
    job->finish->finished++;
    if (block->status != STATUS_OK) {
        *err = block->err;
        return block->status;
    }
    job_note_stored(job, &job->windows[job->finished % WINDOWS], block->first, block->end);
    return STATUS_OK;
}

enum status job_finish_wait(struct job *job, struct err *err)
{
    const struct finish *finish = job->finish;
    struct err why;
    enum status status = STATUS_OK;
    if (!finish) { return STATUS_OK; }
    while (finish->lines && thread_pool_wait(finish->lines)) { continue; }
    for (struct block *block; (block = thread_pool_wait(finish->writes)) != NULL;) {
        enum status ended = end_block(job, block, status == STATUS_OK ? err : &why);
        status = status == STATUS_OK ? ended : status;
    }
    return status;
}

enum status job_finish_rows(struct job *job, bool *worked, struct err *err)
{
    struct finish *finish = job->finish;
    for (struct block *block; (block = thread_pool_take(finish->writes)) != NULL;) {
        TRY(end_block(job, block, err));
        *worked = true;
    }
    give_blocks(finish, worked);
    if (job->finished == job->submitted) { return STATUS_OK; }
    struct lookahead *window = &job->windows[job->finished % WINDOWS];
    if (window->batches_out > 0) { return STATUS_OK; }
    if (window->finished < window->row_count) {
        if (finish->begun - finish->finished == BLOCKS) { return STATUS_OK; }
        *worked = true;
        TRY(begin_block(job, window, err));
        give_blocks(finish, worked);
        return STATUS_OK;
    }
    if (has_blocks_out(job)) { return STATUS_OK; }
    *worked = true;
    job->at.documents = window->end.documents;
    job->at.rows = window->rows[window->row_count - 1].number + 1;
    job->at.digest = window->end.digest;
    job->at.tokens = job->progress.tokens;
    TRY(job_put_checkpoint(job, err));
    lookahead_reset(window);
    job->finished++;
    return STATUS_OK;
}

enum status job_finish_open(struct job *job, struct err *err)
{
    const struct job_options *options = job->options;
    struct thread_pool_options pool = {
        .name = "write", .threads = 1, .capacity = BLOCKS, .wake_fd = options->wake_fd, .work = write_block};
    job->finish = calloc(1, sizeof *job->finish);
    if (!job->finish) { return err_set(err, STATUS_NO_MEMORY, "no memory to write"); }
    TRY(thread_pool_open(&pool, &job->finish->writes, err));
    /* A retry copies old lines between the new ones, and the writer of records counts them. */
    if (!job->files[APPEND_LINES].path || job->retry || options->source.records) { return STATUS_OK; }
    pool.name = "lines";
    pool.threads = options->prep_threads;
    pool.work = format_block;
    return thread_pool_open(&pool, &job->finish->lines, err);
}

void job_finish_close(struct job *job)
{
    if (!job->finish) { return; }
    thread_pool_close(job->finish->lines);
    thread_pool_close(job->finish->writes);
    for (int i = 0; i < BLOCKS; i++) { buffer_free(&job->finish->blocks[i].lines); }
    free(job->finish);
}
