/* Two sides: `struct resolver` is the event loop's; what the thread touches is in `struct office`, which the last of
 * the two to leave frees. Lookups go in by one channel and come back by another. */
#include "io/resolver.h"

#include <event2/event.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/channel.h"

enum { LOOKUPS_MAX = 64 };

struct lookup {
    char *host;
    char port[8];
    atomic_bool abandoned; /* nobody wants to know any more */
    lookup_done_fn *done;  /* event loop only, as `context` */
    void *context;
    struct addrinfo *found; /* the thread's until the lookup has come back, as `error` */
    int error;
};

struct office {
    atomic_int users;
    struct channel *in, *out; /* struct lookup */
    int wake_fd;
};

struct resolver {
    struct office *office;
    struct event *wake;
    bool running;
    size_t out; /* lookups that have not come back */
};

static void lookup_free(struct lookup *lookup)
{
    if (lookup->found) {
        freeaddrinfo(lookup->found);
    }
    free(lookup->host);
    free(lookup);
}

static void office_leave(struct office *office)
{
    if (atomic_fetch_sub(&office->users, 1) > 1) {
        return;
    }
    channel_free(office->in);
    channel_free(office->out);
    if (office->wake_fd >= 0) {
        close(office->wake_fd);
    }
    free(office);
}

/* --- The thread --------------------------------------------------------------------------------------------------- */

static void look_up(struct lookup *lookup)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    lookup->error = getaddrinfo(lookup->host, lookup->port, &hints, &lookup->found);
    if (lookup->error) {
        lookup->found = NULL;
    }
}

static void *thread_main(void *argument)
{
    struct office *office = argument;
    struct lookup *lookup;
    while ((lookup = channel_receive(office->in))) {
        if (!atomic_load(&lookup->abandoned)) {
            look_up(lookup);
        }
        if (!channel_send(office->out, lookup)) {
            lookup_free(lookup); /* the resolver has been closed */
        }
    }
    office_leave(office);
    return NULL;
}

/* Signals are the event loop's. */
static enum status start_thread(struct resolver *resolver, struct err *err)
{
    sigset_t all, before;
    pthread_t id;
    if (resolver->running) {
        return STATUS_OK;
    }
    atomic_fetch_add(&resolver->office->users, 1);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int failed = pthread_create(&id, NULL, thread_main, resolver->office);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        atomic_fetch_sub(&resolver->office->users, 1);
        return err_set(err, STATUS_NO_MEMORY, "cannot start a thread for host names: %s", strerror(failed));
    }
    pthread_setname_np(id, "names");
    pthread_detach(id);
    resolver->running = true;
    return STATUS_OK;
}

/* --- The event loop's side ---------------------------------------------------------------------------------------- */

static void give_answer(struct lookup *lookup)
{
    struct err err;
    struct addrinfo *found = lookup->found;
    lookup->found = NULL;
    if (lookup->error) {
        const char *why = lookup->error == EAI_SYSTEM ? "the name service failed" : gai_strerror(lookup->error);
        err_set(&err, STATUS_UNAVAILABLE, "%s: %s", lookup->host, why);
    }
    lookup->done(lookup->context, found, found ? NULL : &err); /* closes the lookup */
}

static void on_wake(evutil_socket_t fd, short what, void *context)
{
    struct resolver *resolver = context;
    uint64_t count;
    struct lookup *lookup;
    (void)what;
    if (read(fd, &count, sizeof count) < 0) {
        return;
    }
    while ((lookup = channel_try_receive(resolver->office->out))) {
        resolver->out--;
        if (!atomic_load(&lookup->abandoned)) {
            give_answer(lookup);
        }
        lookup_free(lookup);
    }
}

enum status resolver_open(struct event_base *base, struct resolver **out, struct err *err)
{
    struct resolver *resolver = calloc(1, sizeof *resolver);
    struct office *office = resolver ? calloc(1, sizeof *office) : NULL;
    if (!office) {
        free(resolver);
        return err_set(err, STATUS_NO_MEMORY, "no memory for the resolver");
    }
    resolver->office = office;
    atomic_init(&office->users, 1);
    office->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (office->wake_fd >= 0) {
        resolver->wake = event_new(base, office->wake_fd, EV_READ | EV_PERSIST, on_wake, resolver);
    }
    if (!resolver->wake || channel_open(LOOKUPS_MAX, -1, &office->in, err) ||
        channel_open(LOOKUPS_MAX, office->wake_fd, &office->out, err) || event_add(resolver->wake, NULL) < 0) {
        resolver_close(resolver);
        return err_set(err, STATUS_NO_MEMORY, "no memory for the resolver");
    }
    *out = resolver;
    return STATUS_OK;
}

void resolver_close(struct resolver *resolver)
{
    if (!resolver) {
        return;
    }
    struct office *office = resolver->office;
    struct lookup *lookup;
    if (resolver->wake) {
        event_free(resolver->wake);
    }
    if (office->in) {
        channel_close(office->in);
    }
    if (office->out) {
        channel_close(office->out);
        while ((lookup = channel_try_receive(office->out))) {
            lookup_free(lookup);
        }
    }
    office_leave(office);
    free(resolver);
}

enum status lookup_open(struct resolver *resolver, const char *host, uint16_t port, lookup_done_fn *done, void *context,
                        struct lookup **out, struct err *err)
{
    if (resolver->out == LOOKUPS_MAX) {
        return err_set(err, STATUS_UNAVAILABLE, "%s: the name service does not answer", host);
    }
    TRY(start_thread(resolver, err));
    struct lookup *lookup = calloc(1, sizeof *lookup);
    if (!lookup || !(lookup->host = strdup(host))) {
        free(lookup);
        return err_set(err, STATUS_NO_MEMORY, "no memory for a host name");
    }
    snprintf(lookup->port, sizeof lookup->port, "%u", port);
    atomic_init(&lookup->abandoned, false);
    lookup->done = done;
    lookup->context = context;
    if (!channel_try_send(resolver->office->in, lookup)) {
        lookup_free(lookup);
        return err_set(err, STATUS_UNAVAILABLE, "%s: the name service does not answer", host);
    }
    resolver->out++;
    *out = lookup;
    return STATUS_OK;
}

void lookup_close(struct lookup *lookup)
{
    if (lookup) {
        atomic_store(&lookup->abandoned, true); /* the thread or on_wake frees it */
    }
}
