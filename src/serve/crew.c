#include "serve/crew.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/channel.h"

struct crew_thread {
    struct crew *crew;
    void *context;
    pthread_t id;
};

struct crew {
    struct channel *in, *out;
    void (*work)(void *context, void *item);
    size_t capacity;
    size_t items_out; /* the owner's count; only its thread looks */
    unsigned running;
    struct crew_thread threads[];
};

static void *thread_main(void *argument)
{
    struct crew_thread *thread = argument;
    struct crew *crew = thread->crew;
    void *item;
    while ((item = channel_receive(crew->in)) != NULL) {
        crew->work(thread->context, item);
        bool sent = channel_send(crew->out, item);
        assert(sent); /* `out` is closed by nobody and has room for every item */
        (void)sent;
    }
    return NULL;
}

/* Signals are the owner's: threads start with all of them blocked. */
static enum status start_threads(struct crew *crew, const struct crew_options *options, struct err *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int failed = 0;
    for (unsigned i = 0; i < options->threads && failed == 0; i++) {
        struct crew_thread *thread = &crew->threads[i];
        thread->crew = crew;
        thread->context = options->contexts == NULL ? NULL : options->contexts[i];
        failed = pthread_create(&thread->id, NULL, thread_main, thread);
        if (failed != 0)
            break;
        char name[16];
        snprintf(name, sizeof name, "%.11s-%u", options->name, i % 1000);
        pthread_setname_np(thread->id, name);
        crew->running++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0)
        return err_set(err, STATUS_IO, "cannot start a %s thread: %s", options->name, strerror(failed));
    return STATUS_OK;
}

enum status crew_open(const struct crew_options *options, struct crew **out, struct err *err)
{
    struct crew *crew = calloc(1, sizeof *crew + options->threads * sizeof crew->threads[0]);
    if (crew == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for %u %s threads", options->threads, options->name);
    crew->work = options->work;
    crew->capacity = options->capacity;
    enum status status = channel_open(options->capacity, -1, &crew->in, err);
    if (status == STATUS_OK)
        status = channel_open(options->capacity, options->wake_fd, &crew->out, err);
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

void crew_put(struct crew *crew, void *item)
{
    assert(crew->items_out < crew->capacity);
    crew->items_out++;
    bool sent = channel_try_send(crew->in, item);
    assert(sent);
    (void)sent;
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

size_t crew_out(const struct crew *crew)
{
    return crew->items_out;
}

void crew_stop(struct crew *crew)
{
    if (crew->in != NULL)
        channel_close(crew->in);
    for (; crew->running > 0; crew->running--)
        pthread_join(crew->threads[crew->running - 1].id, NULL);
}

void crew_free(struct crew *crew)
{
    if (crew == NULL)
        return;
    channel_free(crew->in);
    channel_free(crew->out);
    free(crew);
}
