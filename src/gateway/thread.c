#include "gateway/thread.h"

#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "config/config.h"

enum { LOOK_MS = 20, LAST_ANSWERS_MS = 1000 };

struct gateway_thread {
    pthread_t thread;
    struct event_base *base;
    struct gateway *gateway;
    struct event *stop, *look;
    struct address address;
    struct config *queues; /* [queue_count] */
    const char **names;    /* [queue_count] theirs */
    size_t queue_count;
    int stop_fd;      /* the time of grace, in ms and one, is written to it */
    uint64_t ends_ms; /* when calls in flight are given up */
    bool given_up;
};

static void on_look(evutil_socket_t fd, short what, void *context)
{
    struct gateway_thread *thread = context;
    uint64_t now_ms = clock_now_ms();
    (void)fd, (void)what;
    if (gateway_is_idle(thread->gateway) || (thread->given_up && now_ms >= thread->ends_ms)) {
        event_base_loopbreak(thread->base);
    } else if (!thread->given_up && now_ms >= thread->ends_ms) {
        gateway_give_up(thread->gateway);
        thread->given_up = true;
        thread->ends_ms = now_ms + LAST_ANSWERS_MS;
    }
}

static void on_stop(evutil_socket_t fd, short what, void *context)
{
    struct gateway_thread *thread = context;
    struct timeval every = {.tv_usec = LOOK_MS * 1000};
    uint64_t grace_ms = 1;
    (void)what;
    ssize_t ignored = read(fd, &grace_ms, sizeof grace_ms);
    (void)ignored;
    thread->ends_ms = clock_now_ms() + grace_ms - 1;
    gateway_stop(thread->gateway);
    event_add(thread->look, &every);
}

static void *run_thread(void *context)
{
    struct gateway_thread *thread = context;
    event_base_dispatch(thread->base);
    return NULL;
}

static void free_thread(struct gateway_thread *thread)
{
    gateway_close(thread->gateway);
    if (thread->stop) { event_free(thread->stop); }
    if (thread->look) { event_free(thread->look); }
    if (thread->base) { event_base_free(thread->base); }
    if (thread->stop_fd >= 0) { close(thread->stop_fd); }
    for (size_t i = 0; i < thread->queue_count; i++) { config_free(&thread->queues[i]); }
    free(thread->queues);
    free(thread->names);
    address_free(&thread->address);
    free(thread);
}

static enum status open_gateway(struct gateway_thread *thread, const struct config *config,
                                struct gateway_options *options, struct err *err)
{
    TRY(config_address(config, &thread->address, err));
    TRY(config_split(config, &thread->queues, &thread->queue_count, err));
    thread->names = calloc(thread->queue_count, sizeof *thread->names);
    if (!thread->names) { return err_set(err, STATUS_NO_MEMORY, "no memory for the gateway"); }
    for (size_t i = 0; i < thread->queue_count; i++) { thread->names[i] = thread->queues[i].queue; }
    options->base = thread->base;
    options->listen = config->listen;
    options->keys = config->keys;
    options->address = &thread->address;
    options->queues = thread->names;
    options->queue_count = thread->queue_count;
    options->data = config->data;
    options->cache_bytes = (uint64_t)config->cache_bytes;
    return gateway_open(options, &thread->gateway, err);
}

static enum status start_thread(struct gateway_thread *thread, const struct config *config,
                                struct gateway_options *options, struct err *err)
{
    sigset_t all, before;
    thread->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (thread->stop_fd < 0) { return err_set_errno(err, "cannot make an eventfd"); }
    thread->base = event_base_new();
    if (thread->base) {
        thread->stop = event_new(thread->base, thread->stop_fd, EV_READ, on_stop, thread);
        thread->look = event_new(thread->base, -1, EV_PERSIST, on_look, thread);
    }
    if (!thread->stop || !thread->look || event_add(thread->stop, NULL) != 0) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for an event loop");
    }
    TRY(open_gateway(thread, config, options, err));
    sigfillset(&all); /* signals are the main thread's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread->thread, NULL, run_thread, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? err_set(err, STATUS_IO, "cannot start a thread") : STATUS_OK;
}

enum status gateway_thread_start(const struct config *config, const struct gateway_extension *extension, void *context,
                                 void (*on_denied)(void *context, const struct err *err), struct gateway_thread **out,
                                 struct err *err)
{
    struct gateway_options options = {.extension = extension, .context = context, .on_denied = on_denied};
    struct gateway_thread *thread = calloc(1, sizeof *thread);
    *out = NULL;
    if (!thread) { return err_set(err, STATUS_NO_MEMORY, "no memory for the gateway"); }
    thread->stop_fd = -1;
    enum status status = start_thread(thread, config, &options, err);
    if (status != STATUS_OK) {
        free_thread(thread);
        return status;
    }
    *out = thread;
    return STATUS_OK;
}

void gateway_thread_stop(struct gateway_thread *thread, unsigned grace_ms)
{
    if (!thread) { return; }
    uint64_t grace = grace_ms + 1ull;
    ssize_t ignored = write(thread->stop_fd, &grace, sizeof grace);
    (void)ignored;
    pthread_join(thread->thread, NULL);
    free_thread(thread);
}
