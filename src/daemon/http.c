#include "daemon/http.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"

enum { BACKLOG = 16, PAUSE_MS = 1000 };

/* One connection, in its server's list. */
struct client {
    struct http *http;
    struct client *next, **link;
    struct bufferevent *buffers;
    struct event *deadline;
    bool answered; /* what still comes is thrown away */
    bool ended;    /* the peer has said all */
};

struct http {
    struct evconnlistener *listener;
    struct event *resume; /* listening again, after accept has failed */
    const struct http_route *routes;
    size_t route_count;
    void *context;
    struct client *clients;
    unsigned client_count;
    uint64_t answered, refused;
};

static struct timeval after_ms(unsigned ms)
{
    return (struct timeval){.tv_sec = ms / 1000, .tv_usec = (suseconds_t)(ms % 1000) * 1000};
}

static void client_close(struct client *client)
{
    *client->link = client->next;
    if (client->next) { client->next->link = client->link; }
    client->http->client_count--;
    if (client->buffers) { bufferevent_free(client->buffers); }
    if (client->deadline) { event_free(client->deadline); }
    free(client);
}

/* ---- requests and answers ---- */

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {{200, "OK"},
                   {400, "Bad Request"},
                   {404, "Not Found"},
                   {405, "Method Not Allowed"},
                   {431, "Request Header Fields Too Large"},
                   {503, "Service Unavailable"}};
    size_t at = 0;
    while (at + 1 < sizeof reasons / sizeof reasons[0] && reasons[at].status != status) { at++; }
    return reasons[at].reason;
}

/* The connection ends when the peer has closed its side, which most do once they have the answer, and all is written.
 * To close it first would reset it while the peer still sends, and the answer would be lost. */
static void respond(struct client *client, int status, const char *type, const struct buffer *body)
{
    struct evbuffer *out = bufferevent_get_output(client->buffers);
    bool whole = buffer_ok(body);
    size_t length = whole ? body->length : 0;
    client->answered = true;
    client->http->answered += whole;
    status = whole ? status : 503;
    evbuffer_add_printf(out,
                        "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s"
                        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
                        status, reason_of(status), type, length, status == 405 ? "Allow: GET\r\n" : "");
    evbuffer_add(out, body->data, length);
}

static void refuse(struct client *client, int status)
{
    struct buffer body = {0};
    buffer_format(&body, "%s\n", reason_of(status));
    respond(client, status, "text/plain; charset=utf-8", &body);
    buffer_free(&body);
}

/* `line`: the first one, "GET /path?query HTTP/1.1". */
static void answer(struct client *client, char *line)
{
    const struct http *http = client->http;
    char *path = strchr(line, ' '), *version = path ? strchr(path + 1, ' ') : NULL;
    if (!version || path[1] != '/' || (strcmp(version, " HTTP/1.1") != 0 && strcmp(version, " HTTP/1.0") != 0)) {
        refuse(client, 400);
        return;
    }
    *path++ = *version = '\0';
    if (strcmp(line, "GET") != 0) {
        refuse(client, 405);
        return;
    }
    char *query = path + strcspn(path, "?");
    if (*query) { *query++ = '\0'; }
    for (size_t i = 0; i < http->route_count; i++) {
        const struct http_route *route = &http->routes[i];
        if (strcmp(path, route->path) != 0) { continue; }
        struct buffer body = {0};
        int status = route->answer(http->context, query, &body);
        respond(client, status, route->type, &body);
        buffer_free(&body);
        return;
    }
    refuse(client, 404);
}

static void on_read(struct bufferevent *buffers, void *context)
{
    struct client *client = context;
    struct evbuffer *in = bufferevent_get_input(buffers);
    size_t length = evbuffer_get_length(in);
    if (!client->answered && evbuffer_search(in, "\r\n\r\n", 4, NULL).pos >= 0) {
        char *line = evbuffer_readln(in, &length, EVBUFFER_EOL_CRLF_STRICT);
        if (line && strlen(line) == length) {
            answer(client, line);
        } else { /* a NUL in it */
            refuse(client, 400);
        }
        free(line);
    } else if (!client->answered && length >= HTTP_HEAD_BYTES) {
        refuse(client, 431);
    }
    if (client->answered) { evbuffer_drain(in, evbuffer_get_length(in)); }
}

/* All is written: our side says so. */
static void on_written(struct bufferevent *buffers, void *context)
{
    struct client *client = context;
    if (client->ended) {
        client_close(client);
    } else if (client->answered) {
        shutdown(bufferevent_getfd(buffers), SHUT_WR);
    }
}

static void on_event(struct bufferevent *buffers, short what, void *context)
{
    struct client *client = context;
    if ((what & BEV_EVENT_EOF) && client->answered && evbuffer_get_length(bufferevent_get_output(buffers)) > 0) {
        client->ended = true;
        return;
    }
    client->http->refused += !client->answered;
    client_close(client);
}

static void on_deadline(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    on_event(NULL, 0, context);
}

/* ---- connections ---- */

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from, int size,
                      void *context)
{
    (void)from, (void)size;
    struct http *http = context;
    struct event_base *base = evconnlistener_get_base(listener);
    struct client *client = http->client_count < HTTP_CONNECTIONS ? calloc(1, sizeof *client) : NULL;
    if (!client) {
        http->refused++;
        evutil_closesocket(fd);
        return;
    }
    *client = (struct client){.http = http, .next = http->clients, .link = &http->clients};
    if (client->next) { client->next->link = &client->next; }
    http->clients = client;
    http->client_count++;
    client->buffers = bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE);
    client->deadline = evtimer_new(base, on_deadline, client);
    const struct timeval deadline = after_ms(HTTP_DEADLINE_MS);
    if (!client->buffers || !client->deadline || evtimer_add(client->deadline, &deadline) != 0) {
        if (!client->buffers) { evutil_closesocket(fd); }
        client_close(client);
        return;
    }
    bufferevent_setcb(client->buffers, on_read, on_written, on_event, client);
    bufferevent_setwatermark(client->buffers, EV_READ, 0, HTTP_HEAD_BYTES);
    bufferevent_enable(client->buffers, EV_READ | EV_WRITE);
}

/* No descriptor is left, say: the connection stays in the backlog, and the loop would come here again and again. */
static void on_accept_failed(struct evconnlistener *listener, void *context)
{
    struct http *http = context;
    const struct timeval pause = after_ms(PAUSE_MS);
    evconnlistener_disable(listener);
    evtimer_add(http->resume, &pause);
}

static void on_resume(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    struct http *http = context;
    evconnlistener_enable(http->listener);
}

/* ---- opening and closing ---- */

enum status http_open(struct event_base *base, const char *address, const struct http_route *routes, size_t count,
                      void *context, struct http **out, struct err *err)
{
    struct sockaddr_storage where;
    int size = sizeof where;
    if (evutil_parse_sockaddr_port(address, (struct sockaddr *)&where, &size) != 0) {
        return err_set(err, STATUS_BAD_INPUT, "%s is not an address and a port", address);
    }
    struct http *http = calloc(1, sizeof *http);
    if (!http) { return err_set(err, STATUS_NO_MEMORY, "no memory for the HTTP port"); }
    *http = (struct http){.routes = routes, .route_count = count, .context = context};
    http->resume = evtimer_new(base, on_resume, http);
    unsigned flags = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE;
    http->listener = evconnlistener_new_bind(base, on_accept, http, flags, BACKLOG, (struct sockaddr *)&where, size);
    if (!http->resume || !http->listener) {
        enum status status = err_set_errno(err, "cannot listen on %s", address);
        http_close(http);
        return status;
    }
    evconnlistener_set_error_cb(http->listener, on_accept_failed);
    log_info("http_listens", log_str("address", address));
    *out = http;
    return STATUS_OK;
}

void http_close(struct http *http)
{
    if (!http) { return; }
    while (http->clients) { client_close(http->clients); }
    if (http->listener) { evconnlistener_free(http->listener); }
    if (http->resume) { event_free(http->resume); }
    free(http);
}

void http_counters(const struct http *http, uint64_t *answered, uint64_t *refused)
{
    *answered = http->answered;
    *refused = http->refused;
}
