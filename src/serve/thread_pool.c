/* The queue is a ring under a mutex, beside the count of what each seat holds: both are looked at together, so that an
 * item never goes to one thread while another one that has less is about to take it. */
#include "serve/thread_pool.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/channel.h"

struct crew_seat {
    struct crew *crew;
    void *context;
    pthread_t id;
    size_t holds; /* items taken and not finished */
    bool left;    /* nothing is for it any more */
};

struct crew {
    void (*work)(void *context, void *item);
    void (*serve)(void *context, struct crew_seat *seat);
    size_t capacity, wake_below;
    int wake_fd;      /* for wake_below: otherwise the channel writes it */
    size_t items_out; /* the owner's count; only its thread looks */
    struct channel *out;

    pthread_mutex_t lock; /* of all below, and of what the seats hold */
    pthread_cond_t not_empty, ends;
    void **items; /* [capacity], a ring, the next at `first` */
    size_t first, count;
    bool stopping;

    unsigned running;
    struct crew_seat seats[];
};

/* ---- the threads' side ---- */

/* What the others lack to hold as much as this seat: so many of the items that wait are theirs. */
static size_t lacking(const struct crew_seat *seat)
{
    const struct crew *crew = seat->crew;
    size_t count = 0;
    for (unsigned i = 0; i < crew->running && seat->holds > 0; i++)
        if (!crew->seats[i].left && crew->seats[i].holds < seat->holds)
            count += seat->holds - crew->seats[i].holds;
    return count;
}

static void *pop(struct crew *crew)
{
    void *item = crew->items[crew->first];
    crew->first = (crew->first + 1) % crew->capacity;
    crew->count--;
    return item;
}

void *crew_next(struct crew_seat *seat)
{
    struct crew *crew = seat->crew;
    void *item = NULL;
    pthread_mutex_lock(&crew->lock);
    while (seat->holds == 0 && crew->count == 0 && !crew->stopping)
        pthread_cond_wait(&crew->not_empty, &crew->lock);
    if (crew->count > lacking(seat)) {
        item = pop(crew);
        seat->holds++;
    }
    pthread_mutex_unlock(&crew->lock);
    return item;
}

void crew_finish(struct crew_seat *seat, void *item)
{
    const struct crew *crew = seat->crew;
    pthread_mutex_lock(&seat->crew->lock);
    assert(seat->holds > 0);
    seat->holds--;
    bool low = crew->count < crew->wake_below;
    pthread_mutex_unlock(&seat->crew->lock);
    bool sent = channel_send(crew->out, item);
    assert(sent); /* `out` is closed by nobody and has room for every item */
    const uint64_t one = 1;
    while (low && sent && write(crew->wake_fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
}

void crew_leave(struct crew_seat *seat)
{
    pthread_mutex_lock(&seat->crew->lock);
    seat->left = true;
    pthread_mutex_unlock(&seat->crew->lock);
}

static void work_one_by_one(void *context, struct crew_seat *seat)
{
    void *item;
    while ((item = crew_next(seat)) != NULL) {
        seat->crew->work(context, item);
        crew_finish(seat, item);
    }
}

/* A thread that has left stays until the crew is stopped, which joins it. */
static void *thread_main(void *argument)
{
    struct crew_seat *seat = argument;
    struct crew *crew = seat->crew;
    (crew->serve == NULL ? work_one_by_one : crew->serve)(seat->context, seat);
    pthread_mutex_lock(&crew->lock);
    seat->left = true;
    while (!crew->stopping)
        pthread_cond_wait(&crew->ends, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

/* ---- opening ---- */

/* Signals are the owner's: threads start with all of them blocked. */
static enum status start_threads(struct crew *crew, const struct crew_options *options, struct err *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int failed = 0;
    pthread_mutex_lock(&crew->lock); /* nobody counts seats before all have a thread */
    for (unsigned i = 0; i < options->threads && failed == 0; i++) {
        struct crew_seat *seat = &crew->seats[i];
        seat->crew = crew;
        seat->context = options->contexts == NULL ? NULL : options->contexts[i];
        failed = pthread_create(&seat->id, NULL, thread_main, seat);
        if (failed != 0)
            break;
        char name[16];
        snprintf(name, sizeof name, "%.11s-%u", options->name, i % 1000);
        pthread_setname_np(seat->id, name);
        crew->running++;
    }
    pthread_mutex_unlock(&crew->lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0)
        return err_set(err, STATUS_IO, "cannot start a %s thread: %s", options->name, strerror(failed));
    return STATUS_OK;
}

enum status crew_open(const struct crew_options *options, struct crew **out, struct err *err)
{
    struct crew *crew = calloc(1, sizeof *crew + options->threads * sizeof crew->seats[0]);
    if (crew == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for %u %s threads", options->threads, options->name);
    pthread_mutex_init(&crew->lock, NULL);
    pthread_cond_init(&crew->not_empty, NULL);
    pthread_cond_init(&crew->ends, NULL);
    crew->work = options->work;
    crew->serve = options->serve;
    crew->capacity = options->capacity;
    crew->wake_below = options->wake_fd < 0 ? 0 : options->wake_below;
    crew->wake_fd = options->wake_fd;
    crew->items = calloc(options->capacity, sizeof(void *));
    enum status status = STATUS_OK;
    if (crew->items == NULL)
        status = err_set(err, STATUS_NO_MEMORY, "no memory for a queue of %zu", options->capacity);
    if (status == STATUS_OK)
        status = channel_open(options->capacity, crew->wake_below > 0 ? -1 : options->wake_fd, &crew->out, err);
    if (status == STATUS_OK)
        status = start_threads(crew, options, err);
    if (status != STATUS_OK) {
        crew_stop(crew);
        crew_free(crew);
        return status;
    }
    *out = crew;
    return STATUS_OK;
}

/* ---- the owner's side ---- */

static void put_at(struct crew *crew, void *item, bool first)
{
    assert(crew->items_out < crew->capacity);
    crew->items_out++;
    pthread_mutex_lock(&crew->lock);
    if (first)
        crew->first = (crew->first + crew->capacity - 1) % crew->capacity;
    crew->items[first ? crew->first : (crew->first + crew->count) % crew->capacity] = item;
    crew->count++;
    pthread_cond_signal(&crew->not_empty);
    pthread_mutex_unlock(&crew->lock);
}

void crew_put(struct crew *crew, void *item)
{
    put_at(crew, item, false);
}

void crew_put_first(struct crew *crew, void *item)
{
    put_at(crew, item, true);
}

static void *taken(struct crew *crew, void *item)
{
    crew->items_out -= item != NULL;
    return item;
}

void *crew_take(struct crew *crew)
{
    return taken(crew, channel_try_receive(crew->out));
}

void *crew_wait(struct crew *crew)
{
    return crew->items_out == 0 ? NULL : taken(crew, channel_receive(crew->out));
}

void *crew_take_back(struct crew *crew)
{
    pthread_mutex_lock(&crew->lock);
    void *item = crew->count == 0 ? NULL : pop(crew);
    pthread_mutex_unlock(&crew->lock);
    return taken(crew, item);
}

size_t crew_out(const struct crew *crew)
{
    return crew->items_out;
}

void crew_stop(struct crew *crew)
{
    pthread_mutex_lock(&crew->lock);
    crew->stopping = true;
    pthread_cond_broadcast(&crew->not_empty);
    pthread_cond_broadcast(&crew->ends);
    pthread_mutex_unlock(&crew->lock);
    for (unsigned i = 0; i < crew->running; i++)
        pthread_join(crew->seats[i].id, NULL);
    crew->running = 0;
}

void crew_free(struct crew *crew)
{
    if (crew == NULL)
        return;
    channel_free(crew->out);
    free(crew->items);
    pthread_cond_destroy(&crew->ends);
    pthread_cond_destroy(&crew->not_empty);
    pthread_mutex_destroy(&crew->lock);
    free(crew);
}
