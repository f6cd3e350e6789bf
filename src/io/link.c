/* One connection: dialling, logging in, up, dead.
 *
 * Any callback may close the link, so nothing is freed while one of ours is on the stack: `busy` counts them, and the
 * last to leave frees. */
#include "io/link.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "io/dial.h"

/* What arrives earns time, a second for a MiB: a large answer on a slow line is no silence, a byte now and then is. */
enum { EARNED_NS_PER_BYTE = 1000000000 / (1 << 20) };

/* A command that waits for its answer. */
struct pending {
    struct pending *next;
    link_reply_fn *reply;
    void *context;
    uint64_t deadline_ns; /* without what the link has earned, before and since */
};

struct link {
    struct link_options options;
    struct dial *dial;
    struct bufferevent *buffers; /* NULL until connected and when dead */
    struct resp_reader *reader;
    struct event *timer;
    uint64_t timer_ns;   /* when it fires; UINT64_MAX: not armed */
    uint64_t connect_ns; /* when it has to be up */
    uint64_t earned_ns;
    struct pending *first, *last;
    size_t outstanding;
    unsigned greetings; /* answers of the login to come */
    bool up, dead, closed;
    unsigned busy;
};

static void destroy(struct link *link)
{
    dial_close(link->dial);
    if (link->buffers) {
        bufferevent_free(link->buffers);
    }
    resp_close(link->reader);
    event_free(link->timer);
    free(link);
}

static void enter(struct link *link)
{
    link->busy++;
}

static void leave(struct link *link)
{
    if (--link->busy == 0 && link->closed) {
        destroy(link);
    }
}

static struct pending *take_pending(struct link *link)
{
    struct pending *pending = link->first;
    if (pending) {
        link->first = pending->next;
        link->last = link->first ? link->last : NULL;
        link->outstanding--;
    }
    return pending;
}

static void flush_pending(struct link *link, const struct err *err)
{
    struct pending *pending;
    while ((pending = take_pending(link))) {
        if (pending->reply) {
            pending->reply(pending->context, NULL, err);
        }
        free(pending);
    }
}

static void die(struct link *link, const struct err *err)
{
    if (link->dead) {
        return;
    }
    struct err why = *err;
    link->dead = true;
    link->up = false;
    evtimer_del(link->timer);
    dial_close(link->dial);
    link->dial = NULL;
    if (link->buffers) {
        bufferevent_free(link->buffers);
        link->buffers = NULL;
    }
    enter(link);
    if (!link->closed) {
        link->options.on_down(link->options.context, &why);
    }
    flush_pending(link, &why);
    leave(link);
}

static void die_because(struct link *link, enum status status, const char *message)
{
    char text[ADDRESS_TEXT];
    struct err err;
    err_set(&err, status, "%s: %s", address_print(link->options.address, text), message);
    die(link, &err);
}

/* Lets the timer fire at this time, unless it fires earlier anyway. */
static void arm(struct link *link, uint64_t at_ns)
{
    if (at_ns >= link->timer_ns) {
        return;
    }
    uint64_t now_ns = clock_now_ns();
    uint64_t wait_us = at_ns > now_ns ? (at_ns - now_ns + 999) / 1000 : 0;
    struct timeval wait = {.tv_sec = (time_t)(wait_us / 1000000), .tv_usec = (suseconds_t)(wait_us % 1000000)};
    link->timer_ns = at_ns;
    evtimer_add(link->timer, &wait);
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    struct link *link = context;
    (void)fd;
    (void)what;
    uint64_t now_ns = clock_now_ns(), next_ns = link->up ? UINT64_MAX : link->connect_ns;
    link->timer_ns = UINT64_MAX;
    for (const struct pending *pending = link->first; pending; pending = pending->next) {
        uint64_t deadline_ns = pending->deadline_ns + link->earned_ns;
        next_ns = deadline_ns < next_ns ? deadline_ns : next_ns;
    }
    if (next_ns <= now_ns) {
        die_because(link, STATUS_UNAVAILABLE, link->up ? "no answer in time" : "no connection in time");
    } else {
        arm(link, next_ns);
    }
}

/* Hands every whole answer to its command. False when the link is of no more use. */
static bool deliver_answers(struct link *link)
{
    struct err err;
    const struct resp_value *value;
    while (!link->dead && !link->closed) {
        if (resp_next(link->reader, &value, &err)) {
            die_because(link, err.status, err.message);
            return false;
        }
        if (!value) {
            return true;
        }
        struct pending *pending = take_pending(link);
        if (!pending) {
            die_because(link, STATUS_BAD_INPUT, "an answer without a question");
            return false;
        }
        if (pending->reply) {
            pending->reply(pending->context, value, NULL);
        }
        free(pending);
    }
    return false;
}

static void on_read(struct bufferevent *buffers, void *context)
{
    struct link *link = context;
    struct evbuffer *input = bufferevent_get_input(buffers);
    enter(link);
    size_t length;
    while ((length = evbuffer_get_contiguous_space(input)) > 0) {
        struct err err;
        const char *bytes = (const char *)evbuffer_pullup(input, (ev_ssize_t)length);
        if (resp_feed(link->reader, bytes, length, &err)) {
            die_because(link, err.status, err.message);
            break;
        }
        evbuffer_drain(input, length);
        link->earned_ns += length * EARNED_NS_PER_BYTE;
        if (!deliver_answers(link)) {
            break;
        }
    }
    leave(link);
}

static void on_event(struct bufferevent *buffers, short what, void *context)
{
    struct link *link = context;
    (void)buffers;
    if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) {
        const char *reason = strerror(EVUTIL_SOCKET_ERROR());
        die_because(link, STATUS_UNAVAILABLE, what & BEV_EVENT_EOF ? "Redis closed the connection" : reason);
    }
}

static void now_up(struct link *link)
{
    link->up = true;
    enter(link);
    link->options.on_up(link->options.context);
    leave(link);
}

/* Answers of the login. AUTH and SELECT have to succeed; a name is a courtesy to CLIENT LIST. */
static void on_login(void *context, const struct resp_value *reply, const struct err *err)
{
    struct link *link = context;
    struct err refused;
    (void)err;
    if (!reply) {
        return;
    }
    enum status status = resp_check(reply, &refused);
    if (status) {
        die_because(link, status == STATUS_UNAVAILABLE ? status : STATUS_DENIED, refused.message);
    } else if (--link->greetings == 0) {
        now_up(link);
    }
}

static void on_named(void *context, const struct resp_value *reply, const struct err *err)
{
    struct link *link = context;
    (void)err;
    if (reply && --link->greetings == 0) {
        now_up(link);
    }
}

static enum status greet(struct link *link, size_t count, const char *const *words, link_reply_fn *reply,
                         struct err *err)
{
    link->greetings++;
    return link_command(link, count, words, NULL, link->options.connect_timeout_ms, reply, link, err);
}

static enum status log_in(struct link *link, struct err *err)
{
    const struct address *address = link->options.address;
    enum status status = STATUS_OK;
    if (address->password) {
        const char *user = address->user ? address->user : "default";
        const char *const words[] = {"AUTH", user, address->password};
        status = greet(link, 3, words, on_login, err);
    }
    if (!status && address->db) {
        char number[16];
        snprintf(number, sizeof number, "%u", address->db);
        status = greet(link, 2, (const char *const[]){"SELECT", number}, on_login, err);
    }
    if (!status && link->options.name) {
        const char *const words[] = {"CLIENT", "SETNAME", link->options.name};
        status = greet(link, 3, words, on_named, err);
    }
    return status;
}

static void on_dialled(void *context, int fd, const struct err *err)
{
    struct link *link = context;
    enter(link);
    if (fd < 0) {
        die(link, err);
        leave(link);
        return;
    }
    dial_close(link->dial);
    link->dial = NULL;
    struct err failed;
    link->buffers = bufferevent_socket_new(link->options.base, fd, BEV_OPT_CLOSE_ON_FREE);
    if (!link->buffers) {
        evutil_closesocket(fd);
        die_because(link, STATUS_NO_MEMORY, "no memory for a connection");
    } else {
        bufferevent_setcb(link->buffers, on_read, NULL, on_event, link);
        bufferevent_enable(link->buffers, EV_READ | EV_WRITE);
        if (log_in(link, &failed)) {
            die(link, &failed);
        } else if (link->greetings == 0) {
            now_up(link);
        }
    }
    leave(link);
}

enum status link_open(const struct link_options *options, struct link **out, struct err *err)
{
    struct link *link = calloc(1, sizeof *link);
    if (!link) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for a connection");
    }
    signal(SIGPIPE, SIG_IGN); /* a socket that closes is an error of that socket, not the end of the process */
    link->options = *options;
    link->timer_ns = UINT64_MAX;
    link->connect_ns = clock_now_ns() + options->connect_timeout_ms * NS_PER_MS;
    link->timer = evtimer_new(options->base, on_timer, link);
    enum status status = link->timer ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for a connection");
    if (!status) {
        status = resp_open(options->max_reply_bytes, &link->reader, err);
    }
    if (!status) {
        status = dial_open(options->base, options->address, on_dialled, link, &link->dial, err);
    }
    if (status) {
        resp_close(link->reader);
        if (link->timer) {
            event_free(link->timer);
        }
        free(link);
        return status;
    }
    arm(link, link->connect_ns);
    *out = link;
    return STATUS_OK;
}

void link_close(struct link *link)
{
    if (!link || link->closed) {
        return;
    }
    struct err err;
    err_set(&err, STATUS_UNAVAILABLE, "the connection was closed");
    link->closed = true;
    enter(link);
    die(link, &err);
    flush_pending(link, &err);
    leave(link);
}

enum status link_send(struct link *link, const char *bytes, size_t length, uint32_t timeout_ms, link_reply_fn *reply,
                      void *context, struct err *err)
{
    if (!link || !link->buffers) {
        return err_set(err, STATUS_UNAVAILABLE, "not connected to Redis");
    }
    struct pending *pending = malloc(sizeof *pending);
    if (!pending || bufferevent_write(link->buffers, bytes, length) < 0) {
        free(pending);
        return err_set(err, STATUS_NO_MEMORY, "no memory for a Redis command");
    }
    uint64_t deadline_ns = clock_now_ns() + timeout_ms * NS_PER_MS;
    *pending = (struct pending){NULL, reply, context, deadline_ns - link->earned_ns};
    if (link->last) {
        link->last->next = pending;
    } else {
        link->first = pending;
    }
    link->last = pending;
    link->outstanding++;
    arm(link, deadline_ns);
    return STATUS_OK;
}

enum status link_command(struct link *link, size_t count, const char *const *arguments, const size_t *lengths,
                         uint32_t timeout_ms, link_reply_fn *reply, void *context, struct err *err)
{
    struct command command = {0};
    const char *bytes;
    size_t length;
    command_list(&command, count, arguments, lengths);
    enum status status = command_finish(&command, &bytes, &length, err);
    if (!status) {
        status = link_send(link, bytes, length, timeout_ms, reply, context, err);
    }
    command_free(&command);
    return status;
}

bool link_is_up(const struct link *link)
{
    return link && link->up;
}

size_t link_outstanding(const struct link *link)
{
    return link ? link->outstanding : 0;
}
