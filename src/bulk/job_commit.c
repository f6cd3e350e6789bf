/* Making durable what is written, on a thread of its own: waiting for a disk must not keep the compute threads waiting.
 *
 * A commit takes files that were written to, the rows whose vectors are in them, and perhaps a checkpoint; when the
 * files are on the disk, the journal says so. One is under way at a time; what comes meanwhile goes with the next. */
#include <stdlib.h>
#include <unistd.h>

#include "bulk/job_state.h"
#include "serve/crew.h"

struct commit {
    struct journal *journal;
    const char *path;                  /* of the output, for messages */
    int fds[STORE_OPEN_FILES + TAILS]; /* [fd_count], owned: the store may close its own meanwhile */
    unsigned fd_count;
    bool checkpointed;
    struct checkpoint checkpoint;
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
        if (commit->status == STATUS_OK && fdatasync(commit->fds[i]) != 0)
            commit->status = err_set_errno(&commit->err, "cannot write %s", commit->path);
        close(commit->fds[i]);
    }
    if (commit->status == STATUS_OK)
        commit->status =
            journal_write(commit->journal, commit->checkpointed ? &commit->checkpoint : NULL, &commit->err);
}

enum status job_commit_open(struct job *job, struct err *err)
{
    struct crew_options options = {
        .name = "commit", .threads = 1, .capacity = 1, .wake_fd = job->options->wake_fd, .work = run_commit};
    job->commit = calloc(1, sizeof *job->commit);
    if (job->commit == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory to commit");
    job->commit->journal = job->journal;
    job->commit->path = job->options->output->path;
    return crew_open(&options, &job->commits, err);
}

void job_commit_close(struct job *job)
{
    if (job->commits != NULL) {
        crew_stop(job->commits);
        crew_free(job->commits);
    }
    free(job->commit);
}

static enum status begin(struct job *job, struct err *err)
{
    struct commit *commit = job->commit;
    TRY(journal_seal(job->journal, err));
    TRY(store_dirty(job->store, commit->fds, &commit->fd_count, err));
    commit->checkpointed = job->checkpoint_waits;
    commit->checkpoint = job->checkpoint;
    for (int i = 0; i < TAILS && commit->checkpointed; i++) {
        int fd = job->tails[i].path == NULL ? -1 : dup(job->tails[i].fd);
        if (job->tails[i].path != NULL && fd < 0)
            return err_set_errno(err, "cannot write %s", job->tails[i].path);
        if (fd >= 0)
            commit->fds[commit->fd_count++] = fd;
    }
    job->checkpoint_waits = false;
    crew_put(job->commits, commit);
    return STATUS_OK;
}

static enum status end(const struct commit *commit, struct err *err)
{
    if (commit != NULL && commit->status != STATUS_OK)
        *err = commit->err;
    return commit == NULL ? STATUS_OK : commit->status;
}

enum status job_commit_when_due(struct job *job, struct err *err)
{
    if (job->journal == NULL)
        return STATUS_OK;
    TRY(end(crew_take(job->commits), err));
    if (crew_out(job->commits) > 0 || !(job->checkpoint_waits || job_write_is_due(job)))
        return STATUS_OK;
    TRY(job_write_due(job, false, err));
    return begin(job, err);
}

enum status job_commit_all(struct job *job, struct err *err)
{
    if (job->journal == NULL)
        return STATUS_OK;
    TRY(end(crew_wait(job->commits), err));
    TRY(job_write_due(job, true, err));
    TRY(begin(job, err));
    return end(crew_wait(job->commits), err);
}
