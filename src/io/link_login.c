/* From a connected socket to a link that is up: TLS where the address asks for it, AUTH, SELECT, ROLE, a name. */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>

#include "io/link_private.h"
#include "io/tls.h"

const char *link_stage(const struct link *link)
{
    if (link->dial) {
        return dial_stage(link->dial);
    }
    return link->session && !link->secured ? "no TLS handshake in time; is TLS spoken on that port?"
                                           : "no answer to the login in time";
}

/* --- Logging in --------------------------------------------------------------------------------------------------- */

static void now_up(struct link *link)
{
    link->up = true;
    link_enter(link);
    link->options.on_up(link->options.context);
    link_leave(link);
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
        link_die_because(link, status == STATUS_UNAVAILABLE ? status : STATUS_DENIED, refused.message);
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
        link_die_because(link, STATUS_UNAVAILABLE, text);
    } else {
        link_die_because(link, STATUS_UNAVAILABLE, "it is not a master");
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
        link_die_because(context, status, refused.message);
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
        link_die(link, &err);
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
    if (link->session && tls_explain(tls, link->session, link_host(link), code, link->secured, text, size)) {
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
    link_enter(link);
    if (what & BEV_EVENT_CONNECTED) { /* TLS only: the socket was connected before */
        link->secured = true;
        log_in(link);
    } else if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR)) {
        explain_end(link, what, text, sizeof text);
        link_die_because(link, STATUS_UNAVAILABLE, text);
    }
    link_leave(link);
}

/* Puts libevent's buffers, with TLS or without, on the socket. */
static enum status wrap(struct link *link, int fd, struct err *err)
{
    const struct address *address = link->options.address;
    if (address->encrypted && !address->tls) {
        return err_set(err, STATUS_INTERNAL, "TLS is asked for and not set up");
    }
    if (address->encrypted) {
        TRY(tls_session(address->tls, link_host(link), &link->session, err));
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

void link_on_dialled(void *context, int fd, const struct err *err)
{
    struct link *link = context;
    struct err failed;
    link_enter(link);
    if (fd < 0) {
        link_die(link, err);
        link_leave(link);
        return;
    }
    dial_close(link->dial);
    link->dial = NULL;
    if (wrap(link, fd, &failed)) {
        evutil_closesocket(fd);
        /* A certificate file that is being replaced right now is there again at the next try. */
        link_die_because(link, STATUS_UNAVAILABLE, failed.message);
    } else {
        bufferevent_setcb(link->buffers, link_on_read, NULL, on_event, link);
        evbuffer_add_cb(bufferevent_get_output(link->buffers), link_on_written, link);
        bufferevent_enable(link->buffers, EV_READ | EV_WRITE);
        if (!link->session) {
            log_in(link);
        }
    }
    link_leave(link);
}
