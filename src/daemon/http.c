#include "daemon/http.h"

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/json.h"
#include "base/log.h"

enum { BACKLOG = 16, PAUSE_MS = 1000 };

enum stage { HEAD, BODY, WAITING, ANSWERED }; /* WAITING: for http_answer */

/* One connection, in its server's list. */
struct client {
    struct http *http;
    struct client *next, **link;
    struct bufferevent *buffers;
    struct event *deadline;
    enum stage stage; /* from WAITING on, bytes that still arrive are dropped */
    bool ended;       /* the peer has closed its side */
    char peer[64];
    char *head; /* holds the strings of `request`, once the head is complete */
    struct http_request request;
    const struct http_route *route;
};

struct http {
    struct evconnlistener *listener;
    struct event *resume; /* listens again, after accept has failed */
    const struct http_route *routes;
    size_t route_count;
    void *context;
    bool loopback; /* only this machine can connect */
    struct client *clients;
    unsigned client_count;
    uint64_t answered, refused, numbers;
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
    free(client->head);
    free(client);
}

/* ---- answers ---- */

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {{200, "OK"},
                   {202, "Accepted"},
                   {400, "Bad Request"},
                   {401, "Unauthorized"},
                   {403, "Forbidden"},
                   {404, "Not Found"},
                   {405, "Method Not Allowed"},
                   {411, "Length Required"},
                   {413, "Content Too Large"},
                   {415, "Unsupported Media Type"},
                   {431, "Request Header Fields Too Large"},
                   {500, "Internal Server Error"},
                   {504, "Gateway Timeout"},
                   {503, "Service Unavailable"}};
    size_t at = 0;
    while (at + 1 < sizeof reasons / sizeof reasons[0] && reasons[at].status != status) { at++; }
    return reasons[at].reason;
}

static void set_deadline(struct client *client, unsigned ms)
{
    const struct timeval deadline = after_ms(ms);
    evtimer_add(client->deadline, &deadline);
}

/* The connection ends when the whole answer is written and the peer has closed its side, which most do once they have
 * the answer. Closing it earlier would reset it while the peer still sends, and the answer would be lost. */
static void send_response(struct client *client, int status, const char *type, const struct buffer *body)
{
    struct evbuffer *out = bufferevent_get_output(client->buffers);
    bool whole = buffer_ok(body);
    size_t length = whole ? body->length : 0;
    if (client->stage == WAITING) { set_deadline(client, HTTP_DEADLINE_MS); }
    client->stage = ANSWERED;
    client->http->answered += whole;
    status = whole ? status : 503;
    const char *allow = status != 405                           ? ""
                        : client->route && client->route->posts ? "Allow: GET, POST\r\n"
                                                                : "Allow: GET\r\n";
    evbuffer_add_printf(out,
                        "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s%s"
                        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
                        "Cross-Origin-Resource-Policy: same-origin\r\nContent-Security-Policy: default-src 'none'; "
                        "script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
                        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\nConnection: close\r\n\r\n",
                        status, reason_of(status), type, length, allow,
                        status == 401 ? "WWW-Authenticate: Bearer\r\n" : "");
    evbuffer_add(out, body->data, length);
}

int http_error(struct buffer *body, int status, const char *error)
{
    buffer_json(body, "{'error':'%s'}\n", error);
    return status;
}

static void refuse_request(struct client *client, int status, const char *error)
{
    struct buffer body = {0};
    http_error(&body, status, error);
    send_response(client, status, "application/json", &body);
    buffer_free(&body);
}

void http_answer(struct http *http, uint64_t number, int status, const struct buffer *body)
{
    struct client *client = http->clients;
    while (client && client->request.number != number) { client = client->next; }
    if (client && client->stage == WAITING) { send_response(client, status, client->route->type, body); }
}

/* ---- requests ---- */

/* The headers that count. Each may occur once. */
struct headers {
    char *host, *origin, *authorization, *type, *length, *encoding;
};

static char **find_header(struct headers *headers, const char *name)
{
    const struct {
        const char *name;
        char **value;
    } known[] = {{"Host", &headers->host},
                 {"Origin", &headers->origin},
                 {"Authorization", &headers->authorization},
                 {"Content-Type", &headers->type},
                 {"Content-Length", &headers->length},
                 {"Transfer-Encoding", &headers->encoding}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcasecmp(known[i].name, name) == 0) { return known[i].value; }
    }
    return NULL;
}

/* Ends the line at `*at` and moves to the next one; NULL: it has a control character, or no line is left. */
static char *take_line(char **at)
{
    char *line = *at, *end = line ? strstr(line, "\r\n") : NULL;
    if (end) { *end = '\0'; }
    *at = end ? end + 2 : NULL;
    for (const char *c = line; c && *c; c++) {
        if (((unsigned char)*c < ' ' && *c != '\t') || *c == 0x7f) { return NULL; }
    }
    return line;
}

/* Reads a line "Name: value"; a name has only letters, digits and the other characters that RFC 9110 allows. */
static bool read_header(char *line, struct headers *headers)
{
    static const char token[] = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    size_t length = strspn(line, token);
    if (length == 0 || line[length] != ':') { return false; }
    line[length] = '\0';
    char **value = find_header(headers, line), *text = line + length + 1;
    text += strspn(text, " \t");
    for (size_t end = strlen(text); end > 0 && strchr(" \t", text[end - 1]); end--) { text[end - 1] = '\0'; }
    if (value && *value) { return false; }
    if (value) { *value = text; }
    return true;
}

/* `line`: the first one, "GET /path?query HTTP/1.1". `*method` is NULL if it is anything else. */
static void read_first(char *line, const char **method, struct http_request *request)
{
    char *path = line ? strchr(line, ' ') : NULL, *version = path ? strchr(path + 1, ' ') : NULL;
    *method = NULL;
    if (!version || path[1] != '/' || (strcmp(version, " HTTP/1.1") != 0 && strcmp(version, " HTTP/1.0") != 0)) {
        return;
    }
    *path++ = *version = '\0';
    char *query = path + strcspn(path, "?");
    if (*query) { *query++ = '\0'; }
    request->path = path;
    request->query = query;
    request->post = strcmp(line, "POST") == 0;
    *method = line;
}

static const struct http_route *find_route(const struct http *http, const char *path)
{
    for (size_t i = 0; i < http->route_count; i++) {
        const char *known = http->routes[i].path;
        size_t length = strlen(known);
        bool all = length > 1 && known[length - 1] == '/';
        if (all ? strncmp(path, known, length) == 0 : strcmp(path, known) == 0) { return &http->routes[i]; }
    }
    return NULL;
}

/* True if no foreign page can be here under this name: it is an IP address, or localhost. */
static bool is_own_name(const struct http *http, const char *host)
{
    char name[64];
    bool bracket = host[0] == '[';
    size_t length = strcspn(host, bracket ? "]" : ":");
    const char *port = host + length + (bracket && host[length] == ']');
    struct in_addr v4;
    struct in6_addr v6;
    if (length >= sizeof name ||
        (*port != '\0' && (*port != ':' || strspn(port + 1, "0123456789") != strlen(port + 1)))) {
        return false;
    }
    snprintf(name, sizeof name, "%.*s", (int)(length - bracket), host + bracket);
    if (bracket) {
        return host[length] == ']' && inet_pton(AF_INET6, name, &v6) == 1 &&
               (!http->loopback || IN6_IS_ADDR_LOOPBACK(&v6));
    }
    if (inet_pton(AF_INET, name, &v4) == 1) { return !http->loopback || ntohl(v4.s_addr) >> 24 == 127; }
    return strcasecmp(name, "localhost") == 0;
}

static bool is_own_origin(const char *origin, const char *host)
{
    static const char scheme[] = "http://";
    return strncmp(origin, scheme, sizeof scheme - 1) == 0 && strcasecmp(origin + sizeof scheme - 1, host) == 0;
}

/* Checks the body that a POST announces, and sets its length. Returns 0, or the status and why. */
static int check_body(const struct headers *headers, size_t *length, const char **error)
{
    static const char json[] = "application/json";
    const char *digits = headers->length ? headers->length : "", *type = headers->type ? headers->type : "";
    *error = "a POST needs a Content-Length, and no Transfer-Encoding";
    if (!headers->length || headers->encoding) { return 411; }
    *error = "the Content-Length is not a number";
    if (digits[0] == '\0' || strspn(digits, "0123456789") != strlen(digits)) { return 400; }
    *length = strlen(digits) < 10 ? strtoul(digits, NULL, 10) : SIZE_MAX;
    *error = "the body is larger than 64 KiB";
    if (*length > HTTP_BODY_BYTES) { return 413; }
    *error = "the Content-Type must be application/json";
    bool is_json = strncasecmp(type, json, sizeof json - 1) == 0 && strchr("; \t", type[sizeof json - 1]) != NULL;
    return is_json ? 0 : 415;
}

/* Reads a complete head, and finds its route. Returns 0, or the status and why. */
static int read_head(struct client *client, size_t length, const char **error)
{
    struct headers headers = {0};
    struct http_request *request = &client->request;
    const char *method;
    char *at = client->head;
    *error = "this is not an HTTP request";
    if (memchr(client->head, '\0', length)) { return 400; }
    read_first(take_line(&at), &method, request);
    if (!method) { return 400; }
    while (at) {
        char *line = take_line(&at);
        if (!line || !read_header(line, &headers)) { return 400; }
    }
    *error = "only GET and POST are understood";
    if (!request->post && strcmp(method, "GET") != 0) { return 405; }
    *error = "there is no such path";
    client->route = find_route(client->http, request->path);
    if (!client->route) { return 404; }
    *error = "this path takes no POST";
    if (request->post && !client->route->posts) { return 405; }
    *error = "this Host is not allowed: use localhost, or the address that the daemon listens on";
    if (client->route->guarded && (!headers.host || !is_own_name(client->http, headers.host))) { return 403; }
    *error = "this Origin is not allowed: only pages of this very port are";
    if (client->route->guarded && headers.origin && !is_own_origin(headers.origin, headers.host)) { return 403; }
    request->authorization = headers.authorization;
    if (request->post) { return check_body(&headers, &request->body_length, error); }
    *error = "a GET has no body";
    return headers.encoding || (headers.length && strcmp(headers.length, "0") != 0) ? 400 : 0;
}

static void take_head(struct client *client, struct evbuffer *in)
{
    struct evbuffer_ptr end = evbuffer_search(in, "\r\n\r\n", 4, NULL);
    if (end.pos < 0) {
        if (evbuffer_get_length(in) >= HTTP_HEAD_BYTES) {
            refuse_request(client, 431, "the head is larger than 8 KiB");
        }
        return;
    }
    size_t length = (size_t)end.pos;
    const char *error = "no memory";
    client->head = calloc(1, length + 1);
    int status = client->head ? 0 : 503;
    if (status == 0) {
        evbuffer_remove(in, client->head, length);
        evbuffer_drain(in, 4);
        status = read_head(client, length, &error);
    }
    if (status != 0) {
        refuse_request(client, status, error);
    } else {
        client->stage = BODY;
        bufferevent_setwatermark(client->buffers, EV_READ, 0, HTTP_BODY_BYTES);
    }
}

static void answer_client(struct client *client, struct evbuffer *in)
{
    struct http_request *request = &client->request;
    struct buffer body = {0};
    request->body = request->body_length == 0 ? "" : (const char *)evbuffer_pullup(in, (ssize_t)request->body_length);
    int status = request->body ? client->route->answer(client->http->context, request, &body)
                               : http_error(&body, 503, "no memory");
    if (status != HTTP_LATER) {
        send_response(client, status, client->route->type, &body);
    } else {
        client->stage = WAITING;
        set_deadline(client, HTTP_ANSWER_MS);
    }
    buffer_free(&body);
}

static void on_read(struct bufferevent *buffers, void *context)
{
    struct client *client = context;
    struct evbuffer *in = bufferevent_get_input(buffers);
    if (client->stage == HEAD) { take_head(client, in); }
    if (client->stage == BODY && evbuffer_get_length(in) >= client->request.body_length) { answer_client(client, in); }
    if (client->stage >= WAITING) { evbuffer_drain(in, evbuffer_get_length(in)); }
}

/* All is written: closes our side, or the connection if the peer has closed its side. */
static void on_written(struct bufferevent *buffers, void *context)
{
    struct client *client = context;
    if (client->ended) {
        client_close(client);
    } else if (client->stage == ANSWERED) {
        shutdown(bufferevent_getfd(buffers), SHUT_WR);
    }
}

static void on_event(struct bufferevent *buffers, short what, void *context)
{
    struct client *client = context;
    size_t unwritten = evbuffer_get_length(bufferevent_get_output(client->buffers));
    (void)buffers;
    if ((what & BEV_EVENT_EOF) && (client->stage == WAITING || (client->stage == ANSWERED && unwritten > 0))) {
        client->ended = true;
        return;
    }
    client->http->refused += client->stage != ANSWERED;
    client_close(client);
}

static void on_deadline(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    struct client *client = context;
    if (client->stage == WAITING) {
        refuse_request(client, 504, "no answer within 15 s");
    } else {
        on_event(NULL, 0, context);
    }
}

/* ---- connections ---- */

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from, int size,
                      void *context)
{
    struct http *http = context;
    struct event_base *base = evconnlistener_get_base(listener);
    struct client *client = http->client_count < HTTP_CONNECTIONS ? calloc(1, sizeof *client) : NULL;
    if (!client) {
        http->refused++;
        evutil_closesocket(fd);
        return;
    }
    *client =
        (struct client){.http = http, .next = http->clients, .link = &http->clients, .request.number = ++http->numbers};
    if (client->next) { client->next->link = &client->next; }
    http->clients = client;
    http->client_count++;
    (void)getnameinfo(from, (socklen_t)size, client->peer, sizeof client->peer, NULL, 0, NI_NUMERICHOST);
    client->request.peer = client->peer;
    client->buffers = bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE);
    client->deadline = evtimer_new(base, on_deadline, client);
    if (!client->buffers || !client->deadline) {
        if (!client->buffers) { evutil_closesocket(fd); }
        client_close(client);
        return;
    }
    set_deadline(client, HTTP_DEADLINE_MS);
    bufferevent_setcb(client->buffers, on_read, on_written, on_event, client);
    bufferevent_setwatermark(client->buffers, EV_READ, 0, HTTP_HEAD_BYTES);
    bufferevent_enable(client->buffers, EV_READ | EV_WRITE);
}

/* Pauses accepting. If no descriptor is left, for example, the connection stays in the backlog, and the loop would call
 * this again and again. */
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

bool http_is_loopback(const char *address)
{
    struct sockaddr_storage where = {0};
    int size = sizeof where;
    if (evutil_parse_sockaddr_port(address, (struct sockaddr *)&where, &size) != 0) { return false; }
    if (where.ss_family == AF_INET) { return ntohl(((struct sockaddr_in *)&where)->sin_addr.s_addr) >> 24 == 127; }
    return IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)&where)->sin6_addr);
}

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
    *http = (struct http){
        .routes = routes, .route_count = count, .context = context, .loopback = http_is_loopback(address)};
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
