/* A socket is made, connected and watched here, and only then wrapped by libevent's buffers: bufferevent_socket_connect
 * reports some failures before it returns and tries only the first address of a name. */
#include "io/dial.h"

#include <errno.h>
#include <event2/event.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct dial {
    struct dial_options options;
    struct event *event; /* the start, then the socket becoming writable */
    struct lookup *lookup;
    struct addrinfo *found;
    struct addrinfo *next; /* to be tried */
    int fd;                /* being connected, or -1 */
    struct err err;        /* of the last try */
};

static void watch(struct dial *dial);

static void close_fd(struct dial *dial)
{
    if (dial->fd >= 0) {
        close(dial->fd);
    }
    dial->fd = -1;
}

static void fail_errno(struct dial *dial, int error)
{
    char text[ADDRESS_TEXT];
    const char *to = dial->options.path ? dial->options.path : place_print(dial->options.place, text);
    err_set(&dial->err, STATUS_UNAVAILABLE, "%s: %s", to, strerror(error));
    close_fd(dial);
}

/* True when the try ended (dial->fd says how), false when it goes on. */
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
    }
    if (connect(dial->fd, to, length) == 0) {
        return true;
    }
    if (errno == EINPROGRESS) {
        return false;
    }
    fail_errno(dial, errno);
    return true;
}

static void finish(struct dial *dial)
{
    int fd = dial->fd;
    dial->fd = -1;
    dial->options.done(dial->options.context, fd, fd < 0 ? &dial->err : NULL);
}

/* Tries address after address until one is connected or on its way. */
static void try_next(struct dial *dial)
{
    while (dial->next) {
        struct addrinfo *info = dial->next;
        dial->next = info->ai_next;
        if (!try_connect(dial, info->ai_family, info->ai_addr, info->ai_addrlen)) {
            watch(dial);
            return;
        }
        if (dial->fd >= 0) {
            break;
        }
    }
    finish(dial);
}

static void on_writable(evutil_socket_t fd, short what, void *context)
{
    struct dial *dial = context;
    (void)what;
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0) {
        error = errno;
    }
    event_free(dial->event);
    dial->event = NULL;
    if (error) {
        fail_errno(dial, error);
        try_next(dial);
    } else {
        finish(dial);
    }
}

static void watch(struct dial *dial)
{
    if (dial->event) {
        event_free(dial->event);
    }
    dial->event = event_new(dial->options.base, dial->fd, EV_WRITE, on_writable, dial);
    if (!dial->event || event_add(dial->event, NULL) < 0) {
        fail_errno(dial, ENOMEM);
        finish(dial);
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
            watch(dial);
            return;
        }
    }
    finish(dial);
}

static void on_found(void *context, struct addrinfo *found, const struct err *err)
{
    struct dial *dial = context;
    lookup_close(dial->lookup);
    dial->lookup = NULL;
    if (err) {
        dial->err = *err;
    }
    dial->next = dial->found = found;
    try_next(dial);
}

/* An address in digits needs no lookup. */
static void start_tcp(struct dial *dial)
{
    const struct place *place = dial->options.place;
    char port[8];
    snprintf(port, sizeof port, "%u", place->port);
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    if (getaddrinfo(place->host, port, &hints, &dial->found) == 0) {
        dial->next = dial->found;
        try_next(dial);
        return;
    }
    dial->found = NULL;
    if (!dial->options.resolver) {
        err_set(&dial->err, STATUS_INTERNAL, "%s: nobody here looks up names", place->host);
    } else if (!lookup_open(dial->options.resolver, place->host, place->port, on_found, dial, &dial->lookup,
                            &dial->err)) {
        return;
    }
    finish(dial);
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
    if (!dial) {
        return;
    }
    lookup_close(dial->lookup);
    if (dial->event) {
        event_free(dial->event);
    }
    if (dial->found) {
        freeaddrinfo(dial->found);
    }
    close_fd(dial);
    free(dial);
}

const char *dial_stage(const struct dial *dial)
{
    return dial->lookup ? "the name service does not answer in time" : "no connection in time";
}
