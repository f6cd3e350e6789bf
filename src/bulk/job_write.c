/* Vectors wait in their window until all of it is computed, and then are written in the order of the input, some
 * hundred kilobytes at once: row by row, as they come, it would be a system call for each, and every page would be made
 * dirty again and again. Where a window takes long, what it has is written now and then all the same, so that an
 * interruption costs seconds. */
#include "base/clock.h"
#include "bulk/job_state.h"

/* Vectors are written this long after they were computed at the latest … */
enum { WAIT_MOST_MS = 4000, WAIT_LEAST_MS = 500 };

/* … and sooner while the job is young, so that an interruption costs a quarter of the time it has run, no more. */
static uint64_t wait_ns(const struct job *job, uint64_t now_ns)
{
    uint64_t quarter_ms = (now_ns - job->begun_ns) / 4 / NS_PER_MS;
    uint64_t wait_ms = quarter_ms < WAIT_LEAST_MS  ? WAIT_LEAST_MS
                       : quarter_ms < WAIT_MOST_MS ? quarter_ms
                                                   : WAIT_MOST_MS;
    return wait_ms * NS_PER_MS;
}

/* A run of units with one behind the other's row. */
static enum status put_run(struct job *job, struct look *window, uint32_t first, uint32_t count, struct err *err)
{
    struct unit *units = window->units + first;
    if (count == 0)
        return STATUS_OK;
    TRY(store_put(job->store, units[0].number, count, look_vector(window, units, job->options->dim), err));
    for (uint32_t i = 0; i < count; i++) {
        if (units[i].state == UNIT_DONE && job->journal != NULL)
            journal_add_done(job->journal, (struct done){units[i].number, units[i].hash});
        if (units[i].state != UNIT_FAILED)
            units[i].state = UNIT_STORED;
    }
    return STATUS_OK;
}

/* Whether a unit has a vector, or not-a-numbers, in the window that is not in the store; not-a-numbers and copies have
 * it only once the window is finished. */
static bool is_to_write(const struct unit *unit, bool finished)
{
    return unit->state == UNIT_DONE || (finished && (unit->state == UNIT_COPY || unit->state == UNIT_FAILED));
}

static enum status put_runs(struct job *job, struct look *window, uint32_t first, uint32_t end, bool finished,
                            struct err *err)
{
    const struct unit *units = window->units;
    uint32_t run = first; /* where it begins */
    for (uint32_t i = first; i < end; i++) {
        bool writes = is_to_write(&units[i], finished);
        if (writes && (i == run || units[i].number == units[i - 1].number + 1))
            continue;
        TRY(put_run(job, window, run, i - run, err));
        run = writes ? i : i + 1;
    }
    return put_run(job, window, run, end - run, err);
}

enum status job_write_finished(struct job *job, struct look *window, uint32_t first, uint32_t count, struct err *err)
{
    window->since_ns = 0;
    return job->store == NULL ? STATUS_OK : put_runs(job, window, first, first + count, true, err);
}

static bool is_due(const struct job *job, const struct look *window, uint64_t now_ns)
{
    return window->since_ns != 0 && now_ns - window->since_ns >= wait_ns(job, now_ns);
}

bool job_write_is_due(const struct job *job)
{
    uint64_t now_ns = clock_now_ns();
    for (uint64_t i = job->finished; i < job->planned; i++)
        if (is_due(job, &job->windows[i % WINDOWS], now_ns))
            return true;
    return false;
}

enum status job_write_due(struct job *job, bool all, struct err *err)
{
    uint64_t now_ns = clock_now_ns();
    for (uint64_t i = job->finished; job->store != NULL && i < job->planned; i++) {
        struct look *window = &job->windows[i % WINDOWS];
        if (!all && !is_due(job, window, now_ns))
            continue;
        look_note(window);
        for (uint32_t u = 0; u < window->unit_count; u++)
            if (window->units[u].state == UNIT_TODO && window->units[u].pieces_left == 0)
                job_settle(job, window, &window->units[u]);
        TRY(put_runs(job, window, 0, window->unit_count, false, err));
        window->since_ns = 0;
    }
    return STATUS_OK;
}
