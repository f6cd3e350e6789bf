/* All threads begin to count together, when the slowest is ready; each divides by its own time, so that nobody's last
 * turn is lost. */
#include "bench/turns.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/clock.h"

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    unsigned missing;
    bool failed; /* a thread could not be started, or is not ready */
};

struct runner {
    pthread_t thread;
    const struct turns *turns;
    struct gate *gate;
    uint64_t for_ns;
    double rate;
    enum status status;
    struct err err;
};

/* Waits for all others. Returns whether all are ready. */
static bool pass_gate(struct gate *gate, bool ready)
{
    pthread_mutex_lock(&gate->lock);
    gate->failed |= !ready;
    if (--gate->missing == 0)
        pthread_cond_broadcast(&gate->opened);
    while (gate->missing > 0)
        pthread_cond_wait(&gate->opened, &gate->lock);
    bool all = !gate->failed;
    pthread_mutex_unlock(&gate->lock);
    return all;
}

/* Nobody waits for so many any more: they were never started. */
static void leave_gate(struct gate *gate, unsigned count)
{
    pthread_mutex_lock(&gate->lock);
    gate->failed = true;
    gate->missing -= count;
    if (gate->missing == 0)
        pthread_cond_broadcast(&gate->opened);
    pthread_mutex_unlock(&gate->lock);
}

static void *run(void *argument)
{
    struct runner *runner = argument;
    const struct turns *turns = runner->turns;
    void *state = NULL;
    runner->status = turns->open(turns->context, &state, &runner->err);
    if (runner->status == STATUS_OK)
        runner->status = turns->turn(state, &runner->err);
    if (pass_gate(runner->gate, runner->status == STATUS_OK)) {
        double done = 0;
        uint64_t begin = clock_now_ns(), now = begin;
        for (; runner->status == STATUS_OK && now - begin < runner->for_ns; now = clock_now_ns(), done++)
            runner->status = turns->turn(state, &runner->err);
        runner->rate = done * 1e9 / (double)(now - begin);
    }
    turns->close(state);
    return NULL;
}

enum status turns_measure(const struct turns *turns, unsigned threads, uint64_t for_ns, double *rate, struct err *err)
{
    struct runner runners[TURNS_THREADS_MAX];
    struct gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, threads, false};
    enum status status = STATUS_OK;
    unsigned started = 0;
    for (; started < threads; started++) {
        runners[started] = (struct runner){.turns = turns, .gate = &gate, .for_ns = for_ns};
        if (pthread_create(&runners[started].thread, NULL, run, &runners[started]) != 0)
            break;
    }
    if (started < threads) {
        status = err_set(err, STATUS_IO, "cannot start %u threads", threads);
        leave_gate(&gate, threads - started);
    }
    *rate = 0;
    for (unsigned i = 0; i < started; i++) {
        pthread_join(runners[i].thread, NULL);
        *rate += runners[i].rate;
        if (status == STATUS_OK && runners[i].status != STATUS_OK)
            status = err_set(err, runners[i].status, "%s", runners[i].err.message);
    }
    return status;
}
