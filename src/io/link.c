/* One connection: its life, its commands and their answers. How it comes up is link_login.c.
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
#include <sys/ioctl.h>

#include <linux/sockios.h>

#include "base/clock.h"
#include "io/link_private.h"

/* So many bytes in either direction are progress: a large answer on a slow line is no silence, a byte now and then is.
 */
enum { PROGRESS_BYTES = 16 << 10, SENT_BYTES = 4 << 10, SENDING_MS = 1000 };

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

void link_enter(struct link *link)
{
    link->busy++;
}

void link_leave(struct link *link)
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

void link_die(struct link *link, const struct err *err)
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
        link->session = NULL;
    }
    link_enter(link);
    if (!link->closed) {
        link->options.on_down(link->options.context, &why);
    }
    flush_pending(link, &why);
    link_leave(link);
}

static const struct place *place_of(const struct link_options *options)
{
    return options->place ? options->place : options->address->places;
}

/* The peer's name for messages. */
static const char *peer(const struct link *link, char text[ADDRESS_TEXT])
{
    const struct link_options *options = &link->options;
    if (options->address->path) {
        snprintf(text, ADDRESS_TEXT, "%s", options->address->path);
        return text;
    }
    return place_print(place_of(options), text);
}

void link_die_because(struct link *link, enum status status, const char *message)
{
    char text[ADDRESS_TEXT];
    struct err err;
    err_set(&err, status, "%s: %s", peer(link, text), message);
    link_die(link, &err);
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

static void moves(struct link *link, uint64_t bytes)
{
    link->moved += bytes;
    if (link->moved - link->counted >= PROGRESS_BYTES) {
        link->counted = link->moved;
        link->progress_ns = clock_now_ns();
        link->left = -1;
    }
}

void link_on_written(struct evbuffer *output, const struct evbuffer_cb_info *info, void *link)
{
    (void)output;
    moves(link, info->n_deleted);
}

/* What the socket has taken may be long on its way: whether less of it is left than at the last look. The first look
 * cannot tell, so it gives a moment to the next. */
static bool still_sends(struct link *link, uint64_t now_ns)
{
    int before = link->left, left = 0;
    if (!link->buffers || ioctl(bufferevent_getfd(link->buffers), SIOCOUTQ, &left)) {
        return false;
    }
    bool first = before < 0 && left > 0, sends = before > 0 && (left == 0 || left + SENT_BYTES <= before);
    link->left = left;
    if (sends) {
        link->progress_ns = now_ns;
    }
    return first || sends;
}

static uint64_t deadline_of(const struct link *link, const struct pending *pending)
{
    uint64_t moved_ns = link->progress_ns + pending->timeout_ns;
    return moved_ns > pending->deadline_ns ? moved_ns : pending->deadline_ns;
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    struct link *link = context;
    (void)fd;
    (void)what;
    uint64_t now_ns = clock_now_ns(), next_ns = link->up ? UINT64_MAX : link->connect_ns;
    link->timer_ns = UINT64_MAX;
    for (const struct pending *pending = link->first; pending; pending = pending->next) {
        uint64_t deadline_ns = deadline_of(link, pending);
        next_ns = deadline_ns < next_ns ? deadline_ns : next_ns;
    }
    if (next_ns <= now_ns && link->up && still_sends(link, now_ns)) {
        arm(link, now_ns + SENDING_MS * NS_PER_MS);
    } else if (next_ns <= now_ns) {
        link_die_because(link, STATUS_UNAVAILABLE, link->up ? "no answer in time" : link_stage(link));
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
            link_die_because(link, err.status, err.message);
            return false;
        }
        if (!value) {
            return true;
        }
        struct pending *pending = take_pending(link);
        if (!pending) {
            link_die_because(link, STATUS_BAD_INPUT, "an answer without a question");
            return false;
        }
        if (pending->reply) {
            char text[REFUSAL_TEXT];
            struct resp_value explained;
            value = refusal_with_keys(value, pending->head, pending->head_length, text, &explained);
            pending->reply(pending->context, value, NULL);
        }
        free(pending);
    }
    return false;
}

void link_on_read(struct bufferevent *buffers, void *context)
{
    struct link *link = context;
    struct evbuffer *input = bufferevent_get_input(buffers);
    link_enter(link);
    size_t length;
    while ((length = evbuffer_get_contiguous_space(input)) > 0) {
        struct err err;
        const char *bytes = (const char *)evbuffer_pullup(input, (ev_ssize_t)length);
        if (resp_feed(link->reader, bytes, length, &err)) {
            link_die_because(link, err.status, err.message);
            break;
        }
        evbuffer_drain(input, length);
        link->heard += length;
        moves(link, length);
        if (!deliver_answers(link)) {
            break;
        }
    }
    link_leave(link);
}

const char *link_host(const struct link *link)
{
    return place_of(&link->options)->host;
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
    link->left = -1;
    link->connect_ns = clock_now_ns() + options->connect_timeout_ms * NS_PER_MS;
    link->timer = evtimer_new(options->base, on_timer, link);
    enum status status = link->timer ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for a connection");
    if (!status) {
        status = resp_open(options->max_reply_bytes, options->cut_bytes, &link->reader, err);
    }
    if (!status) {
        struct dial_options dial = {.base = options->base,
                                    .path = options->address->path,
                                    .place = place_of(options),
                                    .resolver = options->resolver,
                                    .context = link,
                                    .done = link_on_dialled};
        status = dial_open(&dial, &link->dial, err);
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
    link_enter(link);
    link_die(link, &err);
    flush_pending(link, &err);
    link_leave(link);
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
    pending->next = NULL;
    pending->reply = reply;
    pending->context = context;
    pending->deadline_ns = deadline_ns;
    pending->timeout_ns = timeout_ms * NS_PER_MS;
    pending->head_length = length < REFUSAL_HEAD ? length : REFUSAL_HEAD;
    memcpy(pending->head, bytes, pending->head_length);
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
