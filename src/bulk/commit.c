/* Writes vectors to the store, and commits them. */
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "bulk/job_internal.h"
#include "bulk/journal.h"
#include "bulk/output/store.h"
#include "compute/thread_pool.h"

/* --- Writing. Vectors wait until their window is computed and then are written in input order, hundreds of kilobytes
 * at once: row by row each would be a system call, and pages would be dirtied again and again. When a window takes
 * long, its vectors so far are written now and then, so that an interruption costs seconds at most. --- */

/* Vectors are written at most this long after they were computed … */
enum { WAIT_MOST_MS = 4000, WAIT_LEAST_MS = 500 };

/* … and sooner while the job is young: an interruption costs at most a quarter of its running time. */
static uint64_t wait_ns(const struct job *job, uint64_t now_ns)
{
    uint64_t quarter_ms = (now_ns - job->begun_ns) / 4 / NS_PER_MS;
    uint64_t wait_ms = quarter_ms < WAIT_LEAST_MS  ? WAIT_LEAST_MS
                       : quarter_ms < WAIT_MOST_MS ? quarter_ms
                                                   : WAIT_MOST_MS;
    return wait_ms * NS_PER_MS;
}

/* True if a row's vector is in the window but not in the store. Copies, and failed rows' NaNs, are in the window only
 * once it is finished. */
static bool is_to_write(const struct output_row *row, bool finished)
{
    return row->state == STATE_DONE || (finished && (row->state == STATE_COPY || row->state == STATE_FAILED));
}

enum status job_put_runs(const struct job *job, const struct lookahead *window, uint32_t first, uint32_t end,
                         bool finished, struct err *err)
{
    const struct output_row *rows = window->rows;
    for (uint32_t i = first, next; i < end; i = next) { /* [i, next): rows with consecutive numbers */
        for (next = i; next < end && is_to_write(&rows[next], finished); next++) {
            if (next > i && rows[next].number != rows[next - 1].number + 1) { break; }
        }
        if (next == i) {
            next++;
            continue;
        }
        const float *vectors = lookahead_vector(window, &rows[i], job_row_floats(job));
        TRY(store_put(job->store, rows[i].number, next - i, vectors, err));
    }
    return STATUS_OK;
}

void job_note_stored(struct job *job, struct lookahead *window, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end && job->store; i++) {
        struct output_row *row = &window->rows[i];
        if (row->state != STATE_DONE) { continue; }
        row->state = STATE_STORED;
        if (!job->journal) { continue; }
        job->written++;
        journal_add_done(job->journal, (struct done){row->number, row->hash});
    }
}

/* Writes the finished vectors of the windows: all, or only those that are due. */
static enum status write_due(struct job *job, bool all, bool *wrote, struct err *err)
{
    uint64_t now_ns = clock_now_ns();
    for (uint64_t i = job->finished; i < job->planned; i++) {
        struct lookahead *window = &job->windows[i % WINDOWS];
        if (all || (window->since_ns != 0 && now_ns - window->since_ns >= wait_ns(job, now_ns))) {
            *wrote = true;
            TRY(job_put_runs(job, window, 0, window->row_count, false, err));
            job_note_stored(job, window, 0, window->row_count);
            window->since_ns = 0;
        }
    }
    return STATUS_OK;
}

/* --- Committing, on a thread of its own, so that the loop does not wait for the disk. A commit takes the files that
 * were written to, the rows whose vectors are in them, and perhaps a checkpoint; once the files are on disk, the
 * journal says so. One commit runs at a time; files, rows and checkpoints that come meanwhile go with the next. --- */

struct commit {
    struct journal *journal;
    const char *path;                         /* of the output, for messages */
    int fds[STORE_OPEN_FILES + APPEND_FILES]; /* [fd_count] duplicates, owned: the store may close its own meanwhile */
    unsigned fd_count;
    bool checkpointed;
    struct checkpoint checkpoint;
    uint64_t written, durable; /* rows that this process computed: with this commit, and after it */
    enum status status;
    struct err err;
};

/* Thread: the commits'. */
static void run_commit(void *context, void *item)
{
    (void)context;
    struct commit *commit = item;
    commit->status = STATUS_OK;
    for (unsigned i = 0; i < commit->fd_count; i++) {
        if (commit->status == STATUS_OK && fdatasync(commit->fds[i]) != 0) {
            commit->status = err_set_errno(&commit->err, "cannot write %s", commit->path);
        }
        close(commit->fds[i]);
    }
    if (commit->status == STATUS_OK) {
        commit->status =
            journal_write(commit->journal, commit->checkpointed ? &commit->checkpoint : NULL, &commit->err);
    }
    if (commit->status == STATUS_OK) { commit->durable = commit->written; }
}

enum status job_commit_open(struct job *job, struct err *err)
{
    struct thread_pool_options options = {
        .name = "commit", .threads = 1, .capacity = 1, .wake_fd = job->options->wake_fd, .work = run_commit};
    job->commit = calloc(1, sizeof *job->commit);
    if (!job->commit) { return err_set(err, STATUS_NO_MEMORY, "no memory to commit"); }
    job->commit->journal = job->journal;
    job->commit->path = job->options->output->path;
    return thread_pool_open(&options, &job->commits, err);
}

static enum status commit_result(const struct commit *commit, struct err *err)
{
    if (commit && commit->status != STATUS_OK) { *err = commit->err; }
    return commit ? commit->status : STATUS_OK;
}

static enum status begin_commit(struct job *job, struct err *err)
{
    struct commit *commit = job->commit;
    TRY(commit_result(commit, err)); /* after a failed one its files seem to be on disk, and are not */
    TRY(journal_seal(job->journal, err));
    TRY(store_dirty(job->store, commit->fds, &commit->fd_count, err));
    commit->checkpointed = job->checkpoint_waits;
    commit->checkpoint = job->checkpoint;
    commit->written = job->written;
    for (int i = 0; i < APPEND_FILES && commit->checkpointed; i++) {
        int fd = job->files[i].path ? dup(job->files[i].fd) : -1;
        if (job->files[i].path && fd < 0) { return err_set_errno(err, "cannot write %s", job->files[i].path); }
        if (fd >= 0) { commit->fds[commit->fd_count++] = fd; }
    }
    job->checkpoint_waits = false;
    thread_pool_put(job->commits, commit);
    return STATUS_OK;
}

enum status job_commit_when_due(struct job *job, struct err *err)
{
    if (!job->journal) { return STATUS_OK; }
    TRY(commit_result(thread_pool_take(job->commits), err));
    bool wanted = job->checkpoint_waits;
    if (thread_pool_out(job->commits) > 0) { return STATUS_OK; }
    TRY(write_due(job, false, &wanted, err));
    return wanted ? begin_commit(job, err) : STATUS_OK;
}

enum status job_commit_all(struct job *job, struct err *err)
{
    if (!job->journal) { return STATUS_OK; }
    bool wrote;
    struct err why;
    enum status given_out = job_finish_wait(job, &why); /* if it failed, vectors are kept all the same */
    TRY(commit_result(thread_pool_wait(job->commits), err));
    TRY(write_due(job, true, &wrote, err));
    TRY(begin_commit(job, err));
    TRY(commit_result(thread_pool_wait(job->commits), err));
    if (given_out != STATUS_OK) { *err = why; }
    return given_out;
}

enum status job_commit_wait(struct job *job, struct err *err)
{
    return commit_result(thread_pool_wait(job->commits), err);
}

bool job_has_committed(const struct job *job)
{
    return job->commit && job->commit->durable > 0;
}
