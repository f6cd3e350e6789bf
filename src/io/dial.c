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
    struct event_base *base;
    const struct address *address;
    void (*done)(void *context, int fd, const struct err *err);
    void *context;
    struct event *event; /* the start, then the socket becoming writable */
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
    err_set(&dial->err, STATUS_UNAVAILABLE, "%s: %s", address_print(dial->address, text), strerror(error));
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
    dial->done(dial->context, fd, fd < 0 ? &dial->err : NULL);
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
    dial->event = event_new(dial->base, dial->fd, EV_WRITE, on_writable, dial);
    if (!dial->event || event_add(dial->event, NULL) < 0) {
        fail_errno(dial, ENOMEM);
        finish(dial);
    }
}

static void start_unix(struct dial *dial)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (strlen(dial->address->path) >= sizeof to.sun_path) {
        fail_errno(dial, ENAMETOOLONG);
    } else {
        strcpy(to.sun_path, dial->address->path);
        if (!try_connect(dial, AF_UNIX, (const struct sockaddr *)&to, sizeof to)) {
            watch(dial);
            return;
        }
    }
    finish(dial);
}

static void start_tcp(struct dial *dial)
{
    char port[8];
    snprintf(port, sizeof port, "%u", dial->address->port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    int error = getaddrinfo(dial->address->host, port, &hints, &dial->found);
    if (error) {
        err_set(&dial->err, STATUS_UNAVAILABLE, "%s: %s", dial->address->host, gai_strerror(error));
        dial->found = NULL;
    }
    dial->next = dial->found;
    try_next(dial);
}

static void on_start(evutil_socket_t fd, short what, void *context)
{
    struct dial *dial = context;
    (void)fd;
    (void)what;
    if (dial->address->path) {
        start_unix(dial);
    } else {
        start_tcp(dial);
    }
}

enum status dial_open(struct event_base *base, const struct address *address,
                      void (*done)(void *context, int fd, const struct err *err), void *context, struct dial **out,
                      struct err *err)
{
    struct dial *dial = malloc(sizeof *dial);
    if (dial) {
        *dial = (struct dial){.base = base, .address = address, .done = done, .context = context, .fd = -1};
        dial->event = evtimer_new(base, on_start, dial);
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
    if (dial->event) {
        event_free(dial->event);
    }
    if (dial->found) {
        freeaddrinfo(dial->found);
    }
    close_fd(dial);
    free(dial);
}
