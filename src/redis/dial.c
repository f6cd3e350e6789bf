/* The socket is connected here and handed to libevent's buffers afterwards: bufferevent_socket_connect reports some
 * failures before it returns, and tries only the first address of a name. */
#include "redis/dial.h"

#include <errno.h>
#include <event2/event.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/channel.h"

enum { LOOKUPS_MAX = 64, UNIX_SEND_BYTES = 4 << 20 };

/* --- Names -------------------------------------------------------------------------------------------------------- */

/* The event loop owns `struct resolver`. It shares `struct shared` with the thread; the one that ends last frees it.
 * Lookups travel through one channel and come back through another. */

struct lookup {
    char *host;
    char port[8];
    atomic_bool abandoned; /* closed by its caller */
    lookup_done_fn *done;  /* event loop only, like `context` */
    void *context;
    struct addrinfo *found; /* belongs to the thread until the lookup comes back, like `error` */
    int error;
};

struct shared {
    atomic_int users;
    struct channel *in, *out; /* struct lookup */
    int wake_fd;
};

struct resolver {
    struct shared *shared;
    struct event *wake;
    bool running;
    size_t out; /* lookups that have not come back */
};

static void lookup_free(struct lookup *lookup)
{
    if (lookup->found) { freeaddrinfo(lookup->found); }
    free(lookup->host);
    free(lookup);
}

static void shared_leave(struct shared *shared)
{
    if (atomic_fetch_sub(&shared->users, 1) > 1) { return; }
    channel_free(shared->in);
    channel_free(shared->out);
    if (shared->wake_fd >= 0) { close(shared->wake_fd); }
    free(shared);
}

/* --- Names: the thread -------------------------------------------------------------------------------------------- */

static void *thread_main(void *argument)
{
    struct shared *shared = argument;
    struct lookup *lookup;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    pthread_setname_np(pthread_self(), "names");
    while ((lookup = channel_receive(shared->in))) {
        if (!atomic_load(&lookup->abandoned)) {
            lookup->error = getaddrinfo(lookup->host, lookup->port, &hints, &lookup->found);
            if (lookup->error) { lookup->found = NULL; }
        }
        if (!channel_send(shared->out, lookup)) { lookup_free(lookup); /* the resolver was closed */ }
    }
    shared_leave(shared);
    return NULL;
}

/* Starts the thread with all signals blocked: the event loop handles them. */
static enum status start_thread(struct resolver *resolver, struct err *err)
{
    sigset_t all, before;
    pthread_t id;
    if (resolver->running) { return STATUS_OK; }
    atomic_fetch_add(&resolver->shared->users, 1);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int failed = pthread_create(&id, NULL, thread_main, resolver->shared);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        atomic_fetch_sub(&resolver->shared->users, 1);
        return err_set(err, STATUS_NO_MEMORY, "cannot start a thread for host names: %s", strerror(failed));
    }
    pthread_detach(id);
    resolver->running = true;
    return STATUS_OK;
}

/* --- Names: the event loop's side --------------------------------------------------------------------------------- */

static void give_answer(struct lookup *lookup)
{
    struct err err;
    struct addrinfo *found = lookup->found;
    lookup->found = NULL;
    if (lookup->error) {
        const char *why = lookup->error == EAI_SYSTEM ? "the name service failed" : gai_strerror(lookup->error);
        err_set(&err, STATUS_UNAVAILABLE, "%s: %s", lookup->host, why);
    }
    lookup->done(lookup->context, found, found ? NULL : &err); /* the callee closes the lookup */
}

static void on_wake(evutil_socket_t fd, short what, void *context)
{
    struct resolver *resolver = context;
    uint64_t count;
    struct lookup *lookup;
    (void)what;
    if (read(fd, &count, sizeof count) < 0) { return; }
    while ((lookup = channel_try_receive(resolver->shared->out))) {
        resolver->out--;
        if (!atomic_load(&lookup->abandoned)) { give_answer(lookup); }
        lookup_free(lookup);
    }
}

enum status resolver_open(struct event_base *base, struct resolver **out, struct err *err)
{
    struct resolver *resolver = calloc(1, sizeof *resolver);
    struct shared *shared = resolver ? calloc(1, sizeof *shared) : NULL;
    if (!shared) {
        free(resolver);
        return err_set(err, STATUS_NO_MEMORY, "no memory for the resolver");
    }
    resolver->shared = shared;
    atomic_init(&shared->users, 1);
    shared->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (shared->wake_fd >= 0) {
        resolver->wake = event_new(base, shared->wake_fd, EV_READ | EV_PERSIST, on_wake, resolver);
    }
    if (!resolver->wake || channel_open(LOOKUPS_MAX, -1, &shared->in, err) ||
        channel_open(LOOKUPS_MAX, shared->wake_fd, &shared->out, err) || event_add(resolver->wake, NULL) < 0) {
        resolver_close(resolver);
        return err_set(err, STATUS_NO_MEMORY, "no memory for the resolver");
    }
    *out = resolver;
    return STATUS_OK;
}

void resolver_close(struct resolver *resolver)
{
    if (!resolver) { return; }
    struct shared *shared = resolver->shared;
    struct lookup *lookup;
    if (resolver->wake) { event_free(resolver->wake); }
    if (shared->in) { channel_close(shared->in); }
    if (shared->out) {
        channel_close(shared->out);
        while ((lookup = channel_try_receive(shared->out))) { lookup_free(lookup); }
    }
    shared_leave(shared);
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
    if (!channel_try_send(resolver->shared->in, lookup)) {
        lookup_free(lookup);
        return err_set(err, STATUS_UNAVAILABLE, "%s: the name service does not answer", host);
    }
    resolver->out++;
    *out = lookup;
    return STATUS_OK;
}

void lookup_close(struct lookup *lookup)
{
    if (lookup) { atomic_store(&lookup->abandoned, true); /* the thread or on_wake frees it */ }
}

/* --- Dials -------------------------------------------------------------------------------------------------------- */

struct dial {
    struct dial_options options;
    struct event *event; /* at first the start, later: the socket is writable */
    struct lookup *lookup;
    struct addrinfo *found;
    struct addrinfo *next; /* to try next */
    int fd;                /* being connected, or -1 */
    struct err err;        /* of the last attempt */
};

static void watch_socket(struct dial *dial);

static void close_fd(struct dial *dial)
{
    if (dial->fd >= 0) { close(dial->fd); }
    dial->fd = -1;
}

static void fail_errno(struct dial *dial, int error)
{
    char text[ADDRESS_TEXT];
    const char *to = dial->options.path ? dial->options.path : endpoint_print(dial->options.endpoint, text);
    err_set(&dial->err, STATUS_UNAVAILABLE, "%s: %s", to, strerror(error));
    close_fd(dial);
}

/* True when the attempt is over (dial->fd is the result), false while it is in progress. */
static bool try_connect(struct dial *dial, int family, const struct sockaddr *to, socklen_t length)
{
    dial->fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (dial->fd < 0) {
        fail_errno(dial, errno);
        return true;
    }
    if (family != AF_UNIX) {
        int on = 1;
        setsockopt(dial->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(dial->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    } else { /* TCP finds the size of its buffers itself; here the kernel takes as much of this as it allows */
        int bytes = UNIX_SEND_BYTES;
        setsockopt(dial->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    }
    if (connect(dial->fd, to, length) == 0) { return true; }
    if (errno == EINPROGRESS) { return false; }
    fail_errno(dial, errno);
    return true;
}

static void finish_dial(struct dial *dial)
{
    int fd = dial->fd;
    dial->fd = -1;
    dial->options.done(dial->options.context, fd, fd < 0 ? &dial->err : NULL);
}

/* Tries one address after another until one connects or is in progress. */
static void try_next(struct dial *dial)
{
    while (dial->next) {
        struct addrinfo *info = dial->next;
        dial->next = info->ai_next;
        if (!try_connect(dial, info->ai_family, info->ai_addr, info->ai_addrlen)) {
            watch_socket(dial);
            return;
        }
        if (dial->fd >= 0) { break; }
    }
    finish_dial(dial);
}

static void on_writable(evutil_socket_t fd, short what, void *context)
{
    struct dial *dial = context;
    (void)what;
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0) { error = errno; }
    event_free(dial->event);
    dial->event = NULL;
    if (error) {
        fail_errno(dial, error);
        try_next(dial);
    } else {
        finish_dial(dial);
    }
}

static void watch_socket(struct dial *dial)
{
    if (dial->event) { event_free(dial->event); }
    dial->event = event_new(dial->options.base, dial->fd, EV_WRITE, on_writable, dial);
    if (!dial->event || event_add(dial->event, NULL) < 0) {
        fail_errno(dial, ENOMEM);
        finish_dial(dial);
    }
}

static void start_unix(struct dial *dial)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (strlen(dial->options.path) >= sizeof to.sun_path) {
        fail_errno(dial, ENAMETOOLONG);
    } else {
        strcpy(to.sun_path, dial->options.path);
        if (!try_connect(dial, AF_UNIX, (const struct sockaddr *)&to, sizeof to)) {
            watch_socket(dial);
            return;
        }
    }
    finish_dial(dial);
}

static void on_found(void *context, struct addrinfo *found, const struct err *err)
{
    struct dial *dial = context;
    lookup_close(dial->lookup);
    dial->lookup = NULL;
    if (err) { dial->err = *err; }
    dial->next = dial->found = found;
    try_next(dial);
}

/* A numeric address needs no lookup. */
static void start_tcp(struct dial *dial)
{
    const struct endpoint *endpoint = dial->options.endpoint;
    char port[8];
    snprintf(port, sizeof port, "%u", endpoint->port);
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    if (getaddrinfo(endpoint->host, port, &hints, &dial->found) == 0) {
        dial->next = dial->found;
        try_next(dial);
        return;
    }
    dial->found = NULL;
    if (!dial->options.resolver) {
        err_set(&dial->err, STATUS_INTERNAL, "%s: nobody here looks up names", endpoint->host);
    } else if (!lookup_open(dial->options.resolver, endpoint->host, endpoint->port, on_found, dial, &dial->lookup,
                            &dial->err)) {
        return;
    }
    finish_dial(dial);
}

static void on_start(evutil_socket_t fd, short what, void *context)
{
    struct dial *dial = context;
    (void)fd;
    (void)what;
    if (dial->options.path) {
        start_unix(dial);
    } else {
        start_tcp(dial);
    }
}

enum status dial_open(const struct dial_options *options, struct dial **out, struct err *err)
{
    struct dial *dial = malloc(sizeof *dial);
    if (dial) {
        *dial = (struct dial){.options = *options, .fd = -1};
        dial->event = evtimer_new(options->base, on_start, dial);
    }
    struct timeval now = {0};
    if (!dial || !dial->event || event_add(dial->event, &now) < 0) {
        dial_close(dial);
        return err_set(err, STATUS_NO_MEMORY, "no memory for a connection");
    }
    *out = dial;
    return STATUS_OK;
}

void dial_close(struct dial *dial)
{
    if (!dial) { return; }
    lookup_close(dial->lookup);
    if (dial->event) { event_free(dial->event); }
    if (dial->found) { freeaddrinfo(dial->found); }
    close_fd(dial);
    free(dial);
}

const char *dial_stage(const struct dial *dial)
{
    return dial->lookup ? "the name service does not answer in time" : "no connection in time";
}
