/* A connection: its life, its commands and answers, and how it comes up: TLS where the address asks for it, AUTH,
 * SELECT, ROLE, CLIENT SETNAME.
 *
 * Any callback may close the connection, so nothing is freed while one of ours is on the stack: `busy` counts them, and
 * the last to leave frees. */
#include "redis/connection.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "redis/dial.h"
#include "redis/resp.h"
#include "redis/tls.h"

/* This many bytes, in either direction, count as progress. A large answer on a slow line makes progress; a byte now and
 * then does not. */
enum { PROGRESS_BYTES = 16 << 10, SENT_BYTES = 4 << 10, SENDING_MS = 1000 };

/* How much is read or written at once, so that replies of hundreds of kilobytes take few calls and turns of the loop;
 * and from which size on a command is not copied to be sent. */
enum { AT_ONCE_BYTES = 1 << 20, MOVED_BYTES = 16 << 10 };

/* A command that waits for its answer. */
struct pending {
    struct pending *next;
    connection_reply_fn *reply;
    void *context;
    uint64_t deadline_ns, timeout_ns; /* the deadline counts from the send, and again from each progress */
    size_t head_length;               /* the command's first bytes, to explain a refusal */
    char head[RESP_HEAD_BYTES];
};

/* Its states are connecting, up, dead, in this order; it may be closed in any. */
struct connection {
    struct connection_options options;
    struct dial *dial;
    struct bufferevent *buffers; /* NULL before it is connected and when it is dead */
    struct ssl_st *session;      /* TLS, owned by `buffers`; NULL: none */
    struct resp_reader *reader;
    struct event *timer;
    uint64_t timer_ns;              /* when it fires; UINT64_MAX: not armed */
    uint64_t connect_ns;            /* the deadline for coming up */
    uint64_t received, transferred; /* bytes from Redis; bytes in both directions */
    uint64_t progress_at;           /* `transferred` at the last progress */
    uint64_t progress_ns;
    int unsent; /* bytes left in the socket at the last look; -1: no look since the last progress */
    struct pending *first, *last;
    unsigned login_pending; /* login commands without an answer */
    bool secured;           /* the TLS handshake is over */
    bool up, dead, closed;
    bool was_closed; /* by the server, while it was up */
    unsigned busy;
};

/* --- Life --------------------------------------------------------------------------------------------------------- */

static void destroy_connection(struct connection *connection)
{
    dial_close(connection->dial);
    if (connection->buffers) { bufferevent_free(connection->buffers); }
    resp_close(connection->reader);
    event_free(connection->timer);
    free(connection);
}

/* Between enter and leave a connection is not freed, although a callback may close it; leave frees it then, so do not
 * touch it afterwards. They nest. */
static void enter_callback(struct connection *connection)
{
    connection->busy++;
}

static void leave_callback(struct connection *connection)
{
    if (--connection->busy == 0 && connection->closed) { destroy_connection(connection); }
}

static struct pending *pop_pending(struct connection *connection)
{
    struct pending *pending = connection->first;
    if (pending) {
        connection->first = pending->next;
        connection->last = connection->first ? connection->last : NULL;
    }
    return pending;
}

static void flush_pending(struct connection *connection)
{
    struct pending *pending;
    while ((pending = pop_pending(connection))) {
        if (pending->reply) { pending->reply(pending->context, NULL); }
        free(pending);
    }
}

/* Ends a connection, unless it is dead: calls on_down, then answers each command with NULL. */
static void kill_connection(struct connection *connection, const struct err *err)
{
    if (connection->dead) { return; }
    struct err why = *err;
    connection->dead = true;
    connection->up = false;
    evtimer_del(connection->timer);
    dial_close(connection->dial);
    connection->dial = NULL;
    if (connection->buffers) {
        bufferevent_free(connection->buffers);
        connection->buffers = NULL;
        connection->session = NULL;
    }
    enter_callback(connection);
    if (!connection->closed) { connection->options.on_down(connection->options.context, &why); }
    flush_pending(connection);
    leave_callback(connection);
}

static const struct endpoint *endpoint_of(const struct connection_options *options)
{
    return options->endpoint ? options->endpoint : options->address->endpoints;
}

/* The peer's name, for messages. */
static const char *peer_of(const struct connection *connection, char text[ADDRESS_TEXT])
{
    const struct connection_options *options = &connection->options;
    if (options->address->path) {
        snprintf(text, ADDRESS_TEXT, "%s", options->address->path);
        return text;
    }
    return endpoint_print(endpoint_of(options), text);
}

/* die, with the peer's name before the message. */
static void die_because(struct connection *connection, enum status status, const char *message)
{
    char text[ADDRESS_TEXT];
    struct err err;
    err_set(&err, status, "%s: %s", peer_of(connection, text), message);
    kill_connection(connection, &err);
}

/* The host that the certificate must cover; TCP only. */
static const char *host_of(const struct connection *connection)
{
    return endpoint_of(&connection->options)->host;
}

/* --- Deadlines ---------------------------------------------------------------------------------------------------- */

/* Sets the timer to this time, unless it fires earlier. */
static void arm_timer(struct connection *connection, uint64_t at_ns)
{
    if (at_ns >= connection->timer_ns) { return; }
    uint64_t now_ns = clock_now_ns();
    uint64_t wait_us = at_ns > now_ns ? (at_ns - now_ns + 999) / 1000 : 0;
    struct timeval wait = {.tv_sec = (time_t)(wait_us / 1000000), .tv_usec = (suseconds_t)(wait_us % 1000000)};
    connection->timer_ns = at_ns;
    evtimer_add(connection->timer, &wait);
}

static void note_transferred(struct connection *connection, uint64_t bytes)
{
    connection->transferred += bytes;
    if (connection->transferred - connection->progress_at >= PROGRESS_BYTES) {
        connection->progress_at = connection->transferred;
        connection->progress_ns = clock_now_ns();
        connection->unsent = -1;
    }
}

static void on_written(struct evbuffer *output, const struct evbuffer_cb_info *info, void *connection)
{
    (void)output;
    note_transferred(connection, info->n_deleted);
}

/* True if the socket holds fewer unsent bytes than at the last look: a slow line takes long to send what the socket has
 * accepted. The first look has nothing to compare with, so it is true if any are left. */
static bool still_sending(struct connection *connection, uint64_t now_ns)
{
    int before = connection->unsent, left = 0;
    if (!connection->buffers || ioctl(bufferevent_getfd(connection->buffers), SIOCOUTQ, &left)) { return false; }
    bool first = before < 0 && left > 0, sends = before > 0 && (left == 0 || left + SENT_BYTES <= before);
    connection->unsent = left;
    if (sends) { connection->progress_ns = now_ns; }
    return first || sends;
}

/* Says what a connection that did not come up in time waited for. */
static const char *stage_name(const struct connection *connection)
{
    if (connection->dial) { return dial_stage(connection->dial); }
    return connection->session && !connection->secured ? "no TLS handshake in time; is TLS spoken on that port?"
                                                       : "no answer to the login in time";
}

static uint64_t deadline_of(const struct connection *connection, const struct pending *pending)
{
    uint64_t moved_ns = connection->progress_ns + pending->timeout_ns;
    return moved_ns > pending->deadline_ns ? moved_ns : pending->deadline_ns;
}

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    struct connection *connection = context;
    (void)fd;
    (void)what;
    uint64_t now_ns = clock_now_ns(), next_ns = connection->up ? UINT64_MAX : connection->connect_ns;
    connection->timer_ns = UINT64_MAX;
    for (const struct pending *pending = connection->first; pending; pending = pending->next) {
        uint64_t deadline_ns = deadline_of(connection, pending);
        next_ns = deadline_ns < next_ns ? deadline_ns : next_ns;
    }
    if (next_ns <= now_ns && connection->up && still_sending(connection, now_ns)) {
        arm_timer(connection, now_ns + SENDING_MS * NS_PER_MS);
    } else if (next_ns <= now_ns) {
        die_because(connection, STATUS_UNAVAILABLE, connection->up ? "no answer in time" : stage_name(connection));
    } else {
        arm_timer(connection, next_ns);
    }
}

/* --- Commands and answers ----------------------------------------------------------------------------------------- */

static void free_sent(const void *bytes, size_t length, void *memory)
{
    (void)bytes, (void)length;
    free(memory);
}

/* Puts bytes into the output: a copy of them, or if `memory` (which holds them, and may be NULL) is worth it, the bytes
 * themselves. Then `*memory` becomes NULL, and it is freed when they are sent or the connection ends. */
static bool put_out(struct connection *connection, const char *bytes, size_t length, char **memory)
{
    struct evbuffer *output = bufferevent_get_output(connection->buffers);
    if (!memory || length < MOVED_BYTES) { return evbuffer_add(output, bytes, length) == 0; }
    if (evbuffer_add_reference(output, bytes, length, free_sent, *memory) != 0) { return false; }
    *memory = NULL;
    return true;
}

static enum status send_bytes(struct connection *connection, const char *bytes, size_t length, char **memory,
                              uint32_t timeout_ms, connection_reply_fn *reply, void *context, struct err *err)
{
    if (!connection || !connection->buffers) { return err_set(err, STATUS_UNAVAILABLE, "not connected to Redis"); }
    struct pending *pending = malloc(sizeof *pending);
    if (!pending) { return err_set(err, STATUS_NO_MEMORY, "no memory for a Redis command"); }
    pending->head_length = length < RESP_HEAD_BYTES ? length : RESP_HEAD_BYTES;
    memcpy(pending->head, bytes, pending->head_length);
    if (!put_out(connection, bytes, length, memory)) {
        free(pending);
        return err_set(err, STATUS_NO_MEMORY, "no memory for a Redis command");
    }
    uint64_t deadline_ns = clock_now_ns() + timeout_ms * NS_PER_MS;
    pending->next = NULL;
    pending->reply = reply;
    pending->context = context;
    pending->deadline_ns = deadline_ns;
    pending->timeout_ns = timeout_ms * NS_PER_MS;
    if (connection->last) {
        connection->last->next = pending;
    } else {
        connection->first = pending;
    }
    connection->last = pending;
    arm_timer(connection, deadline_ns);
    return STATUS_OK;
}

enum status connection_send(struct connection *connection, const char *bytes, size_t length, uint32_t timeout_ms,
                            connection_reply_fn *reply, void *context, struct err *err)
{
    return send_bytes(connection, bytes, length, NULL, timeout_ms, reply, context, err);
}

enum status connection_send_command(struct connection *connection, struct command *command, uint32_t timeout_ms,
                                    connection_reply_fn *reply, void *context, struct err *err)
{
    const char *bytes;
    size_t length;
    enum status status = command_finish(command, &bytes, &length, err);
    if (!status) {
        status = send_bytes(connection, bytes, length, &command->buffer.data, timeout_ms, reply, context, err);
    }
    command_free(command);
    return status;
}

enum status connection_command(struct connection *connection, size_t count, const char *const *arguments,
                               const size_t *lengths, uint32_t timeout_ms, connection_reply_fn *reply, void *context,
                               struct err *err)
{
    struct command command = {0};
    command_list(&command, count, arguments, lengths);
    return connection_send_command(connection, &command, timeout_ms, reply, context, err);
}

/* True if this answers a command that Redis could not even parse; Redis closes the connection after it. */
static bool is_last_word(const struct resp_value *value)
{
    static const char begin[] = "ERR Protocol error";
    return value->type == RESP_ERROR && strncmp(value->bytes, begin, sizeof begin - 1) == 0;
}

static void die_of_last_word(struct connection *connection, const struct resp_value *value)
{
    char text[300];
    bool large = strstr(value->bytes, "invalid bulk length") != NULL;
    snprintf(text, sizeof text, "Redis says: %.200s%s", value->bytes,
             large ? " (a string is longer than its proto-max-bulk-len)" : "");
    connection->was_closed = connection->up;
    die_because(connection, STATUS_UNAVAILABLE, text);
}

/* Hands every complete answer to its command. False if the connection is dead or closed. */
static bool deliver_answers(struct connection *connection)
{
    struct err err;
    const struct resp_value *value;
    while (!connection->dead && !connection->closed) {
        if (resp_next(connection->reader, &value, &err)) {
            die_because(connection, err.status, err.message);
            return false;
        }
        if (!value) { return true; }
        if (is_last_word(value)) {
            die_of_last_word(connection, value);
            return false;
        }
        struct pending *pending = pop_pending(connection);
        if (!pending) {
            die_because(connection, STATUS_BAD_INPUT, "an answer without a question");
            return false;
        }
        if (pending->reply) {
            char text[RESP_TEXT_BYTES];
            struct resp_value explained;
            value = resp_explain_keys(value, pending->head, pending->head_length, text, &explained);
            pending->reply(pending->context, value);
        }
        free(pending);
    }
    return false;
}

static void on_read(struct bufferevent *buffers, void *context)
{
    struct connection *connection = context;
    struct evbuffer *input = bufferevent_get_input(buffers);
    enter_callback(connection);
    size_t length;
    while ((length = evbuffer_get_contiguous_space(input)) > 0) {
        struct err err;
        const char *bytes = (const char *)evbuffer_pullup(input, (ev_ssize_t)length);
        if (resp_feed(connection->reader, bytes, length, &err)) {
            die_because(connection, err.status, err.message);
            break;
        }
        evbuffer_drain(input, length);
        connection->received += length;
        note_transferred(connection, length);
        if (!deliver_answers(connection)) { break; }
    }
    leave_callback(connection);
}

/* --- Logging in --------------------------------------------------------------------------------------------------- */

static void now_up(struct connection *connection)
{
    connection->up = true;
    enter_callback(connection);
    connection->options.on_up(connection->options.context);
    leave_callback(connection);
}

static void login_answered(struct connection *connection)
{
    if (--connection->login_pending == 0) { now_up(connection); }
}

/* True if a login command succeeded; if not, the connection dies. */
static bool has_succeeded(struct connection *connection, const struct resp_value *reply)
{
    struct err refused;
    enum status status = resp_check(reply, &refused);
    if (resp_is_error(reply, "WRONGPASS") && !connection->options.address->user && !connection->options.sentinel) {
        strncat(refused.message, " The user was default, because the address names none: redis://USER@HOST",
                sizeof refused.message - strlen(refused.message) - 1);
    }
    if (status) { die_because(connection, status == STATUS_UNAVAILABLE ? status : STATUS_DENIED, refused.message); }
    return status == STATUS_OK;
}

/* AUTH and SELECT must succeed. */
static void on_login(void *context, const struct resp_value *reply)
{
    if (reply && has_succeeded(context, reply)) { login_answered(context); }
}

/* ["master", …] or ["slave", "host", port, …] */
static void on_role(void *context, const struct resp_value *reply)
{
    struct connection *connection = context;
    char text[ADDRESS_TEXT];
    if (!reply || !has_succeeded(connection, reply)) { return; }
    if (reply->type == RESP_ARRAY && reply->count > 0 && resp_equals(&reply->items[0], "master")) {
        login_answered(connection);
    } else if (reply->type == RESP_ARRAY && reply->count > 2 && resp_equals(&reply->items[0], "slave") &&
               reply->items[1].bytes) {
        snprintf(text, sizeof text, "it is a replica of %.100s:%lld", reply->items[1].bytes, reply->items[2].integer);
        die_because(connection, STATUS_UNAVAILABLE, text);
    } else {
        die_because(connection, STATUS_UNAVAILABLE, "it is not a master");
    }
}

/* Only CLIENT LIST shows the name, so lacking the right to set it is no error. */
static void on_named(void *context, const struct resp_value *reply)
{
    struct err refused;
    if (!reply) { return; }
    enum status status = resp_check(reply, &refused);
    if (status == STATUS_UNAVAILABLE || (status == STATUS_DENIED && !resp_is_error(reply, "NOPERM"))) {
        die_because(context, status, refused.message);
    } else {
        login_answered(context);
    }
}

static enum status login_command(struct connection *connection, size_t count, const char *const *words,
                                 connection_reply_fn *reply, struct err *err)
{
    connection->login_pending++;
    return connection_command(connection, count, words, NULL, connection->options.connect_timeout_ms, reply, connection,
                              err);
}

static enum status send_login(struct connection *connection, struct err *err)
{
    const struct address *address = connection->options.address;
    bool sentinel = connection->options.sentinel;
    const char *password = sentinel ? address->sentinel_password : address->password;
    if (password) {
        const char *user = !sentinel && address->user ? address->user : "default";
        TRY(login_command(connection, 3, (const char *const[]){"AUTH", user, password}, on_login, err));
    }
    if (address->db && !sentinel) {
        char number[16];
        snprintf(number, sizeof number, "%u", address->db);
        TRY(login_command(connection, 2, (const char *const[]){"SELECT", number}, on_login, err));
    }
    if (connection->options.master_only) {
        TRY(login_command(connection, 1, (const char *const[]){"ROLE"}, on_role, err));
    }
    if (connection->options.name) {
        TRY(login_command(connection, 3, (const char *const[]){"CLIENT", "SETNAME", connection->options.name}, on_named,
                          err));
    }
    return STATUS_OK;
}

static void log_in(struct connection *connection)
{
    struct err err;
    if (send_login(connection, &err)) {
        kill_connection(connection, &err);
    } else if (connection->login_pending == 0) {
        now_up(connection);
    }
}

/* --- The socket --------------------------------------------------------------------------------------------------- */

/* Returns a likely reason for a connection that ended too early. */
static const char *hint_for(const struct connection *connection)
{
    if (connection->up || connection->options.address->path) { return ""; }
    if (!connection->session) {
        return connection->received > 0 ? "" : " before it said anything; a port with TLS is rediss://";
    }
    return connection->secured ? " during the login; does it want a certificate of ours, or another (tls_cert_file)?"
                               : " during the TLS handshake";
}

static void explain_end(struct connection *connection, short what, char *text, size_t size)
{
    int error = EVUTIL_SOCKET_ERROR();
    unsigned long code = bufferevent_get_openssl_error(connection->buffers);
    const struct tls *tls = connection->options.address->tls;
    if (connection->session &&
        tls_explain(tls, connection->session, host_of(connection), code, connection->secured, text, size)) {
        return;
    }
    bool closed = (what & BEV_EVENT_EOF) || code || error == 0;
    snprintf(text, size, "%s%s", closed ? "Redis closed the connection" : strerror(error), hint_for(connection));
}

/* Called after a failed write: the server may have said why before it stopped reading. With TLS that is lost. */
static void hear_last_word(struct connection *connection)
{
    char bytes[4096];
    struct err err;
    if (connection->session || evbuffer_get_length(bufferevent_get_input(connection->buffers)) > 0) { return; }
    for (ssize_t length;
         (length = recv(bufferevent_getfd(connection->buffers), bytes, sizeof bytes, MSG_DONTWAIT)) > 0;) {
        if (resp_feed(connection->reader, bytes, (size_t)length, &err) || !deliver_answers(connection)) { return; }
    }
}

static void on_event(struct bufferevent *buffers, short what, void *context)
{
    struct connection *connection = context;
    char text[400];
    (void)buffers;
    enter_callback(connection);
    if (what & BEV_EVENT_CONNECTED) { /* TLS only: the socket is connected already */
        connection->secured = true;
        log_in(connection);
    } else if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) {
        explain_end(connection, what, text, sizeof text);
        connection->was_closed = connection->up;
        if (what & BEV_EVENT_ERROR) { hear_last_word(connection); }
        die_because(connection, STATUS_UNAVAILABLE, text);
    }
    leave_callback(connection);
}

/* Puts libevent's buffers on the socket, with TLS or without. */
static enum status wrap_socket(struct connection *connection, int fd, struct err *err)
{
    const struct address *address = connection->options.address;
    if (address->encrypted && !address->tls) {
        return err_set(err, STATUS_INTERNAL, "TLS is asked for and not set up");
    }
    if (address->encrypted) {
        TRY(tls_session(address->tls, host_of(connection), &connection->session, err));
        connection->buffers = bufferevent_openssl_socket_new(connection->options.base, fd, connection->session,
                                                             BUFFEREVENT_SSL_CONNECTING, BEV_OPT_CLOSE_ON_FREE);
    } else {
        connection->buffers = bufferevent_socket_new(connection->options.base, fd, BEV_OPT_CLOSE_ON_FREE);
    }
    if (!connection->buffers) {
        connection->session = NULL;
        return err_set(err, STATUS_NO_MEMORY, "no memory for a connection");
    }
    return STATUS_OK;
}

static void on_dialled(void *context, int fd, const struct err *err)
{
    struct connection *connection = context;
    struct err failed;
    enter_callback(connection);
    if (fd < 0) {
        kill_connection(connection, err);
        leave_callback(connection);
        return;
    }
    dial_close(connection->dial);
    connection->dial = NULL;
    if (wrap_socket(connection, fd, &failed)) {
        evutil_closesocket(fd);
        /* A certificate file may be half replaced right now; the next attempt reads it again. */
        die_because(connection, STATUS_UNAVAILABLE, failed.message);
    } else {
        bufferevent_setcb(connection->buffers, on_read, NULL, on_event, connection);
        (void)bufferevent_set_max_single_read(connection->buffers, AT_ONCE_BYTES);
        (void)bufferevent_set_max_single_write(connection->buffers, AT_ONCE_BYTES);
        evbuffer_add_cb(bufferevent_get_output(connection->buffers), on_written, connection);
        bufferevent_enable(connection->buffers, EV_READ | EV_WRITE);
        if (!connection->session) { log_in(connection); }
    }
    leave_callback(connection);
}

/* --- Opening and closing ------------------------------------------------------------------------------------------ */

enum status connection_open(const struct connection_options *options, struct connection **out, struct err *err)
{
    struct connection *connection = calloc(1, sizeof *connection);
    if (!connection) { return err_set(err, STATUS_NO_MEMORY, "no memory for a connection"); }
    signal(SIGPIPE, SIG_IGN); /* a write to a closed socket is an error, not the end of the process */
    connection->options = *options;
    connection->timer_ns = UINT64_MAX;
    connection->unsent = -1;
    connection->connect_ns = clock_now_ns() + options->connect_timeout_ms * NS_PER_MS;
    connection->timer = evtimer_new(options->base, on_timer, connection);
    enum status status = connection->timer ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for a connection");
    if (!status) { status = resp_open(options->max_reply_bytes, options->cut_bytes, &connection->reader, err); }
    if (!status) {
        struct dial_options dial = {.base = options->base,
                                    .path = options->address->path,
                                    .endpoint = endpoint_of(options),
                                    .resolver = options->resolver,
                                    .context = connection,
                                    .done = on_dialled};
        status = dial_open(&dial, &connection->dial, err);
    }
    if (status) {
        resp_close(connection->reader);
        if (connection->timer) { event_free(connection->timer); }
        free(connection);
        return status;
    }
    arm_timer(connection, connection->connect_ns);
    *out = connection;
    return STATUS_OK;
}

bool connection_was_closed(const struct connection *connection)
{
    return connection && connection->was_closed;
}

int connection_duplicate(const struct connection *connection)
{
    return connection && connection->buffers ? fcntl(bufferevent_getfd(connection->buffers), F_DUPFD_CLOEXEC, 0) : -1;
}

void connection_close(struct connection *connection)
{
    if (!connection || connection->closed) { return; }
    connection->closed = true;
    enter_callback(connection);
    kill_connection(connection, &(struct err){0}); /* without on_down, because `closed` is set */
    flush_pending(connection);
    leave_callback(connection);
}
