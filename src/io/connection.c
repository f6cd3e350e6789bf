/* One connection: its life, its commands and their answers, and its way up: TLS where the address asks for it, AUTH,
 * SELECT, ROLE, a name.
 *
 * Any callback may close the link, so nothing is freed while one of ours is on the stack: `busy` counts them, and the
 * last to leave frees. */
#include "io/connection.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <linux/sockios.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/clock.h"
#include "io/dial.h"
#include "io/refusal.h"
#include "io/tls.h"

/* So many bytes in either direction are progress: a large answer on a slow line is no silence, a byte now and then is.
 */
enum { PROGRESS_BYTES = 16 << 10, SENT_BYTES = 4 << 10, SENDING_MS = 1000 };

/* A command that waits for its answer. */
struct pending {
    struct pending *next;
    link_reply_fn *reply;
    void *context;
    uint64_t deadline_ns, timeout_ns; /* the first of them from when it was sent, and from the last progress on */
    size_t head_length;               /* of the command's first bytes, for a refusal */
    char head[REFUSAL_HEAD];
};

/* One connection; it goes connecting, up, dead, in this order, and may be closed at any time. */
struct link {
    struct link_options options;
    struct dial *dial;
    struct bufferevent *buffers; /* NULL until connected and when dead */
    struct ssl_st *session;      /* of TLS, owned by `buffers`; NULL without */
    struct resp_reader *reader;
    struct event *timer;
    uint64_t timer_ns;     /* when it fires; UINT64_MAX: not armed */
    uint64_t connect_ns;   /* when it has to be up */
    uint64_t heard, moved; /* bytes that have come; those, and what the socket has taken of ours */
    uint64_t counted;      /* `moved` when there was progress last, and when that was */
    uint64_t progress_ns;
    int left; /* bytes that the socket had still to send when that was looked at; -1: not since the last progress */
    struct pending *first, *last;
    size_t outstanding;
    unsigned greetings; /* answers of the login to come */
    bool secured;       /* the TLS handshake is over */
    bool up, dead, closed;
    unsigned busy;
};

/* --- Life --------------------------------------------------------------------------------------------------------- */

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

/* Between these two a link is not freed, although a callback may close it: then leave frees it, so it may not be
 * touched behind that. They nest. */
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

/* Ends a link that is not dead yet: on_down, then the commands' NULLs. */
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
        link->session = NULL;
    }
    enter(link);
    if (!link->closed) {
        link->options.on_down(link->options.context, &why);
    }
    flush_pending(link, &why);
    leave(link);
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

/* Likewise, with the peer's name before the message. */
static void die_because(struct link *link, enum status status, const char *message)
{
    char text[ADDRESS_TEXT];
    struct err err;
    err_set(&err, status, "%s: %s", peer(link, text), message);
    die(link, &err);
}

/* The host that a certificate has to bear; of an address with places only. */
static const char *host(const struct link *link)
{
    return place_of(&link->options)->host;
}

/* --- Deadlines ---------------------------------------------------------------------------------------------------- */

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

/* The socket has taken bytes of ours. */
static void on_written(struct evbuffer *output, const struct evbuffer_cb_info *info, void *link)
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

/* What to say of a link that was not up in time. */
static const char *stage(const struct link *link)
{
    if (link->dial) {
        return dial_stage(link->dial);
    }
    return link->session && !link->secured ? "no TLS handshake in time; is TLS spoken on that port?"
                                           : "no answer to the login in time";
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
        die_because(link, STATUS_UNAVAILABLE, link->up ? "no answer in time" : stage(link));
    } else {
        arm(link, next_ns);
    }
}

/* --- Commands and answers ----------------------------------------------------------------------------------------- */

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
            char text[REFUSAL_TEXT];
            struct resp_value explained;
            value = refusal_with_keys(value, pending->head, pending->head_length, text, &explained);
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
        link->heard += length;
        moves(link, length);
        if (!deliver_answers(link)) {
            break;
        }
    }
    leave(link);
}

/* --- Logging in --------------------------------------------------------------------------------------------------- */

static void now_up(struct link *link)
{
    link->up = true;
    enter(link);
    link->options.on_up(link->options.context);
    leave(link);
}

/* One answer of the login less to come. */
static void greeted(struct link *link)
{
    if (--link->greetings == 0) {
        now_up(link);
    }
}

/* Whether an answer of the login lets us go on; the link is dead where it does not. */
static bool allowed(struct link *link, const struct resp_value *reply)
{
    struct err refused;
    enum status status = resp_check(reply, &refused);
    if (status) {
        die_because(link, status == STATUS_UNAVAILABLE ? status : STATUS_DENIED, refused.message);
    }
    return status == STATUS_OK;
}

/* AUTH and SELECT have to succeed. */
static void on_login(void *context, const struct resp_value *reply, const struct err *err)
{
    (void)err;
    if (reply && allowed(context, reply)) {
        greeted(context);
    }
}

/* ["master", …] or ["slave", "host", port, …] */
static void on_role(void *context, const struct resp_value *reply, const struct err *err)
{
    struct link *link = context;
    char text[ADDRESS_TEXT];
    (void)err;
    if (!reply || !allowed(link, reply)) {
        return;
    }
    if (reply->type == RESP_ARRAY && reply->count > 0 && resp_equals(&reply->items[0], "master")) {
        greeted(link);
    } else if (reply->type == RESP_ARRAY && reply->count > 2 && resp_equals(&reply->items[0], "slave") &&
               reply->items[1].bytes) {
        snprintf(text, sizeof text, "it is a replica of %.100s:%lld", reply->items[1].bytes, reply->items[2].integer);
        die_because(link, STATUS_UNAVAILABLE, text);
    } else {
        die_because(link, STATUS_UNAVAILABLE, "it is not a master");
    }
}

/* A name is a courtesy to CLIENT LIST, unless what is refused is more than the name. */
static void on_named(void *context, const struct resp_value *reply, const struct err *err)
{
    struct err refused;
    (void)err;
    if (!reply) {
        return;
    }
    enum status status = resp_check(reply, &refused);
    if (status == STATUS_UNAVAILABLE || (status == STATUS_DENIED && !resp_is_error(reply, "NOPERM"))) {
        die_because(context, status, refused.message);
    } else {
        greeted(context);
    }
}

static enum status greet(struct link *link, size_t count, const char *const *words, link_reply_fn *reply,
                         struct err *err)
{
    link->greetings++;
    return link_command(link, count, words, NULL, link->options.connect_timeout_ms, reply, link, err);
}

static enum status send_login(struct link *link, struct err *err)
{
    const struct address *address = link->options.address;
    bool sentinel = link->options.sentinel;
    const char *password = sentinel ? address->sentinel_password : address->password;
    if (password) {
        const char *user = !sentinel && address->user ? address->user : "default";
        TRY(greet(link, 3, (const char *const[]){"AUTH", user, password}, on_login, err));
    }
    if (address->db && !sentinel) {
        char number[16];
        snprintf(number, sizeof number, "%u", address->db);
        TRY(greet(link, 2, (const char *const[]){"SELECT", number}, on_login, err));
    }
    if (link->options.master_only) {
        TRY(greet(link, 1, (const char *const[]){"ROLE"}, on_role, err));
    }
    if (link->options.name) {
        TRY(greet(link, 3, (const char *const[]){"CLIENT", "SETNAME", link->options.name}, on_named, err));
    }
    return STATUS_OK;
}

static void log_in(struct link *link)
{
    struct err err;
    if (send_login(link, &err)) {
        die(link, &err);
    } else if (link->greetings == 0) {
        now_up(link);
    }
}

/* --- The socket --------------------------------------------------------------------------------------------------- */

/* What a connection that ended too early may be about. */
static const char *guess(const struct link *link)
{
    if (link->up || link->options.address->path) {
        return "";
    }
    if (!link->session) {
        return link->heard > 0 ? "" : " before it said anything; a port with TLS is rediss://";
    }
    return link->secured ? " during the login; does it want a certificate of ours, or another (tls_cert_file)?"
                         : " during the TLS handshake";
}

static void explain_end(struct link *link, short what, char *text, size_t size)
{
    int error = EVUTIL_SOCKET_ERROR();
    unsigned long code = bufferevent_get_openssl_error(link->buffers);
    const struct tls *tls = link->options.address->tls;
    if (link->session && tls_explain(tls, link->session, host(link), code, link->secured, text, size)) {
        return;
    }
    bool closed = (what & BEV_EVENT_EOF) || code || error == 0;
    snprintf(text, size, "%s%s", closed ? "Redis closed the connection" : strerror(error), guess(link));
}

static void on_event(struct bufferevent *buffers, short what, void *context)
{
    struct link *link = context;
    char text[400];
    (void)buffers;
    enter(link);
    if (what & BEV_EVENT_CONNECTED) { /* TLS only: the socket was connected before */
        link->secured = true;
        log_in(link);
    } else if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) {
        explain_end(link, what, text, sizeof text);
        die_because(link, STATUS_UNAVAILABLE, text);
    }
    leave(link);
}

/* Puts libevent's buffers, with TLS or without, on the socket. */
static enum status wrap(struct link *link, int fd, struct err *err)
{
    const struct address *address = link->options.address;
    if (address->encrypted && !address->tls) {
        return err_set(err, STATUS_INTERNAL, "TLS is asked for and not set up");
    }
    if (address->encrypted) {
        TRY(tls_session(address->tls, host(link), &link->session, err));
        link->buffers = bufferevent_openssl_socket_new(link->options.base, fd, link->session,
                                                       BUFFEREVENT_SSL_CONNECTING, BEV_OPT_CLOSE_ON_FREE);
    } else {
        link->buffers = bufferevent_socket_new(link->options.base, fd, BEV_OPT_CLOSE_ON_FREE);
    }
    if (!link->buffers) {
        link->session = NULL;
        return err_set(err, STATUS_NO_MEMORY, "no memory for a connection");
    }
    return STATUS_OK;
}

static void on_dialled(void *context, int fd, const struct err *err)
{
    struct link *link = context;
    struct err failed;
    enter(link);
    if (fd < 0) {
        die(link, err);
        leave(link);
        return;
    }
    dial_close(link->dial);
    link->dial = NULL;
    if (wrap(link, fd, &failed)) {
        evutil_closesocket(fd);
        /* A certificate file that is being replaced right now is there again at the next try. */
        die_because(link, STATUS_UNAVAILABLE, failed.message);
    } else {
        bufferevent_setcb(link->buffers, on_read, NULL, on_event, link);
        evbuffer_add_cb(bufferevent_get_output(link->buffers), on_written, link);
        bufferevent_enable(link->buffers, EV_READ | EV_WRITE);
        if (!link->session) {
            log_in(link);
        }
    }
    leave(link);
}

/* --- Opening and closing ------------------------------------------------------------------------------------------ */

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
                                    .done = on_dialled};
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
    enter(link);
    die(link, &err);
    flush_pending(link, &err);
    leave(link);
}

bool link_is_up(const struct link *link)
{
    return link && link->up;
}

size_t link_outstanding(const struct link *link)
{
    return link ? link->outstanding : 0;
}
