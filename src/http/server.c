/* Each connection reads into a buffer of its own, which it gives up while it is idle, and writes as soon as there is an
 * answer: an event for writing is needed only if the peer does not keep up. Functions below the callbacks never close a
 * connection but mark it DONE; `end_callback` does it, at the end of each callback. */
#include "http/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

enum {
    BACKLOG = 1024,
    PAUSE_MS = 1000,
    READ_BYTES = 16384,     /* at once, of a head … */
    READ_BODY = 65536,      /* … and of a body */
    OTHER_FILES = 256,      /* descriptors that are left for all else in the process */
    FILE_BYTES = 262144,    /* of a file that are sent before others have their turn */
    PROGRESS_BYTES = 65536, /* begin the time of a step anew */
    SLOT_BITS = 20,         /* of a request's number: the slot of its connection */
    SLOTS = 1 << SLOT_BITS,
};

/* WAITING: for http_answer. LINGERING: the answer is sent, and our side closed; most peers close theirs once they have
 * the answer. Closing the connection earlier would reset it while the peer still sends, and the answer would be lost.
 */
enum stage { HEAD, BODY, WAITING, SENDING, LINGERING, DONE };

/* A time that a connection may take. */
enum patience { RECEIVE, ANSWER, IDLE, PATIENCES };

struct client {
    struct http *http;
    uint32_t slot;
    evutil_socket_t fd;
    struct event *socket, *deadline;
    short watched; /* the events that `socket` waits for */
    enum patience patience;
    enum stage stage;
    bool timed; /* `deadline` is that of `patience` */
    bool ended; /* the peer has closed its side */
    bool keep;  /* another request may follow */
    bool bodyless;
    bool parts;      /* the answer is in parts, and the last one is not made yet */
    bool chunked;    /* each of them is a chunk; else the end of the connection is that of the answer */
    size_t progress; /* bytes since the deadline was set */
    char peer[INET6_ADDRSTRLEN + 16];
    struct buffer in; /* arrived, but not used */
    size_t searched;  /* for http_find_end */
    char *text;       /* of the head; holds the strings of `head` and `request` */
    struct http_head head;
    struct http_chunks chunks;
    struct buffer body;
    int spool;            /* the file of the body, or -1 */
    uint64_t body_length; /* so far */
    struct http_request request;
    const struct http_route *route;
    struct buffer out[2]; /* an answer's head and body … */
    size_t sent;          /* … the bytes of them that are sent … */
    int file;             /* … and what follows them; -1: nothing */
    uint64_t file_length;
    off_t file_sent;
    size_t held; /* the part of `held` of the server */
    size_t kept; /* of it, as long as the answer has more parts: the body of the request */
};

struct http {
    struct http_options options;
    struct event_base *base;
    struct evconnlistener *listener;
    struct event *resume;                      /* listens again, after accept has failed */
    const struct timeval *patience[PATIENCES]; /* made for many timers of the same length */
    struct client **clients;                   /* [limits.connections], by slot */
    uint32_t *free_slots;                      /* [free_count] */
    unsigned free_count;
    bool loopback, stopping; /* loopback: only this machine can connect */
    uint64_t answered, refused, numbers;
    size_t held;         /* bytes of bodies in memory */
    struct buffer spare; /* memory for the next connection that reads */
};

static struct timeval after_ms(unsigned ms)
{
    return (struct timeval){.tv_sec = ms / 1000, .tv_usec = (suseconds_t)(ms % 1000) * 1000};
}

/* Notes the bytes of bodies that a client takes beside those that are kept. */
static void set_held(struct client *client, size_t bytes)
{
    bytes += client->kept;
    client->http->held += bytes - client->held;
    client->held = bytes;
}

static void close_file(int *file)
{
    if (*file >= 0) { close(*file); }
    *file = -1;
}

static void forget_request(struct client *client)
{
    free(client->text);
    client->text = NULL;
    buffer_free(&client->body);
    close_file(&client->spool);
    client->body_length = 0;
    set_held(client, 0);
    client->head = (struct http_head){0};
    client->chunks = (struct http_chunks){0};
    client->searched = 0;
}

static void close_client(struct client *client)
{
    struct http *http = client->http;
    http->clients[client->slot] = NULL;
    http->free_slots[http->free_count++] = client->slot;
    if (client->socket) { event_free(client->socket); }
    if (client->deadline) { event_free(client->deadline); }
    evutil_closesocket(client->fd);
    client->kept = 0;
    forget_request(client);
    buffer_free(&client->in);
    for (int i = 0; i < 2; i++) { buffer_free(&client->out[i]); }
    close_file(&client->file);
    free(client);
}

/* ---- answers ---- */

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {{200, "OK"},
                   {201, "Created"},
                   {202, "Accepted"},
                   {204, "No Content"},
                   {400, "Bad Request"},
                   {401, "Unauthorized"},
                   {403, "Forbidden"},
                   {404, "Not Found"},
                   {405, "Method Not Allowed"},
                   {409, "Conflict"},
                   {411, "Length Required"},
                   {413, "Content Too Large"},
                   {415, "Unsupported Media Type"},
                   {417, "Expectation Failed"},
                   {422, "Unprocessable Content"},
                   {424, "Failed Dependency"},
                   {429, "Too Many Requests"},
                   {431, "Request Header Fields Too Large"},
                   {500, "Internal Server Error"},
                   {501, "Not Implemented"},
                   {503, "Service Unavailable"},
                   {504, "Gateway Timeout"},
                   {507, "Insufficient Storage"}};
    size_t at = 0, count = sizeof reasons / sizeof reasons[0];
    while (at < count && reasons[at].status != status) { at++; }
    return at < count ? reasons[at].reason : "";
}

/* Makes the next part of an answer, if there is one, to be sent. */
static void make_part(struct client *client)
{
    static const char no_size[] = "00000000\r\n";
    const struct http_options *options = &client->http->options;
    struct buffer *part = &client->out[1];
    size_t before = client->chunked ? sizeof no_size - 1 : 0;
    buffer_append(part, no_size, before);
    client->parts = options->more(options->context, client->request.number, part);
    if (client->chunked && buffer_ok(part)) {
        char size[sizeof no_size];
        snprintf(size, sizeof size, "%08zx\r\n", part->length - before);
        memcpy(part->data, size, before);
        if (part->length > before) {
            buffer_string(part, "\r\n");
        } else {
            part->length = 0;
        }
        if (!client->parts) { buffer_string(part, "0\r\n\r\n"); }
    }
    set_held(client, part->length);
    client->timed = false; /* each part has a time of its own */
    client->stage = !buffer_ok(part) ? DONE : part->length > 0 ? SENDING : WAITING;
}

/* What there was to send is sent. */
static void end_answer(struct client *client)
{
    for (int i = 0; i < 2; i++) { buffer_free(&client->out[i]); }
    close_file(&client->file);
    client->sent = 0;
    if (client->parts) {
        make_part(client);
        if (client->parts || client->stage != WAITING) { return; }
    }
    client->kept = 0;
    set_held(client, 0);
    client->keep = client->keep && !client->http->stopping;
    client->timed = client->timed && !client->keep;
    if (client->keep) {
        client->stage = HEAD;
    } else {
        shutdown(client->fd, SHUT_WR);
        client->stage = client->ended ? DONE : LINGERING;
    }
}

/* Notes that bytes have moved: those who move many get more time. */
static void note_progress(struct client *client, size_t bytes)
{
    client->progress += bytes;
    if (client->progress >= PROGRESS_BYTES) { client->timed = false; }
}

static ssize_t send_buffers(struct client *client)
{
    struct buffer *head = &client->out[0], *body = &client->out[1];
    size_t head_sent = client->sent < head->length ? client->sent : head->length, body_sent = client->sent - head_sent;
    struct iovec parts[2] = {{head->data + head_sent, head->length - head_sent},
                             {body->data ? body->data + body_sent : NULL, body->length - body_sent}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t sent = sendmsg(client->fd, &message, client->file >= 0 ? MSG_MORE : 0);
    if (sent > 0) { client->sent += (size_t)sent; }
    return sent;
}

/* Sends as much of the answer as the socket takes. */
static void send_more(struct client *client)
{
    ssize_t sent = 1;
    size_t of_file = 0;
    while (client->stage == SENDING && sent > 0 && of_file < FILE_BYTES) {
        uint64_t left = client->file >= 0 ? client->file_length - (uint64_t)client->file_sent : 0;
        bool buffers = client->sent < client->out[0].length + client->out[1].length;
        if (buffers) {
            sent = send_buffers(client);
        } else if (left > 0) {
            sent =
                sendfile(client->fd, client->file, &client->file_sent, left < FILE_BYTES ? (size_t)left : FILE_BYTES);
            of_file += sent > 0 ? (size_t)sent : 0;
        } else {
            end_answer(client);
        }
        if (sent > 0) { note_progress(client, (size_t)sent); }
    }
    /* A file that has become shorter sends 0 bytes. */
    bool later = sent > 0 || (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
    if (!later) { client->stage = DONE; }
}

static const struct {
    const char *name;
    enum http_method method;
} methods[] = {{"GET", HTTP_GET}, {"HEAD", HTTP_GET}, {"POST", HTTP_POST}, {"DELETE", HTTP_DELETE}};
enum { METHODS = sizeof methods / sizeof methods[0] };

static void write_allow(struct buffer *head, const struct http_route *route)
{
    const char *before = "Allow: ";
    for (int i = 0; i < METHODS; i++) {
        if (!(route->methods & methods[i].method)) { continue; }
        buffer_format(head, "%s%s", before, methods[i].name);
        before = ", ";
    }
    buffer_string(head, "\r\n");
}

/* Sends a reply, and leaves it empty. */
static void send_reply(struct client *client, struct http_reply *reply)
{
    const struct http *http = client->http;
    struct buffer *head = &client->out[0];
    bool whole = buffer_ok(&reply->body) && buffer_ok(&reply->headers);
    const char *type = reply->type ? reply->type : client->route ? client->route->type : "text/plain";
    int status = !whole ? 503 : reply->status != 0 ? reply->status : 200;
    if (!whole) { http_reply_free(reply); }
    if (client->parts && !whole) {
        client->stage = DONE;
        return;
    }
    client->chunked = client->keep;
    if (http->stopping) { client->keep = false; }
    buffer_format(head, "HTTP/1.1 %d %s\r\n", status, reason_of(status));
    if (client->parts) {
        buffer_format(head, "Content-Type: %s\r\n%s", type, client->chunked ? "Transfer-Encoding: chunked\r\n" : "");
    } else if (status != 204) {
        buffer_format(head, "Content-Type: %s\r\nContent-Length: %" PRIu64 "\r\n", type,
                      reply->body.length + reply->file_length);
    }
    if (status == 401) { buffer_string(head, "WWW-Authenticate: Bearer\r\n"); }
    if (status == 405 && client->route) { write_allow(head, client->route); }
    buffer_append(head, reply->headers.data, reply->headers.length);
    if (http->options.headers) { buffer_string(head, http->options.headers); }
    buffer_string(head, client->keep ? "\r\n" : "Connection: close\r\n\r\n");
    bool bare = client->bodyless || status == 204;
    client->kept = client->parts ? client->held : 0;
    forget_request(client);
    if (!bare) {
        client->out[1] = reply->body;
        reply->body = (struct buffer){0};
        if (reply->file_length > 0) { client->file = reply->file; }
        client->file_length = reply->file_length;
        client->file_sent = 0;
        reply->file_length = 0;
        set_held(client, client->out[1].length);
    }
    http_reply_free(reply);
    client->http->answered += whole;
    client->stage = buffer_ok(head) ? SENDING : DONE;
    send_more(client);
}

void http_reply_free(struct http_reply *reply)
{
    buffer_free(&reply->headers);
    buffer_free(&reply->body);
    if (reply->file_length > 0) { close(reply->file); }
    *reply = (struct http_reply){0};
}

enum http_when http_error(struct http_reply *reply, int status, const char *error)
{
    reply->status = status;
    reply->type = "application/json";
    buffer_json(&reply->body, "{'error':'%s'}\n", error);
    return HTTP_NOW;
}

/* Answers a request that no route answers; the connection ends, because its body may not have arrived. */
static void refuse_request(struct client *client, int status, const char *error)
{
    const struct http_options *options = &client->http->options;
    struct http_reply reply = {.status = status, .type = "application/json"};
    if (options->refuse) {
        options->refuse(options->context, client->route, status, error, &reply);
    } else {
        http_error(&reply, status, error);
    }
    client->keep = false;
    send_reply(client, &reply);
}

/* ---- requests ---- */

const char *http_header(const struct http_request *request, const char *name)
{
    return http_find_header(request->headers, name);
}

static const struct http_route *find_route(const struct http *http, const char *path, const char **rest)
{
    for (size_t i = 0; i < http->options.route_count; i++) {
        const char *known = http->options.routes[i].path;
        size_t length = strlen(known);
        bool all = length > 1 && known[length - 1] == '/';
        if (strncmp(path, known, length) == 0 && (all || path[length] == '\0')) {
            *rest = path + length;
            return &http->options.routes[i];
        }
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

static bool is_json(const char *type)
{
    static const char json[] = "application/json";
    return type && strncasecmp(type, json, sizeof json - 1) == 0 && strchr("; \t", type[sizeof json - 1]);
}

bool http_body_is_json(const struct http_request *request)
{
    const char *length = http_header(request, "Content-Length");
    bool body = (length && strcmp(length, "0") != 0) || http_header(request, "Transfer-Encoding");
    return !body || is_json(http_header(request, "Content-Type"));
}

/* Checks a request for a guarded route. Returns 0, or the status and why. */
static int check_guarded(const struct client *client, const char **error)
{
    const struct http_head *head = &client->head;
    const char *origin = http_find_header(head->headers, "Origin");
    *error = "this Host is not allowed: use localhost, or the address that the daemon listens on";
    if (!head->host || !is_own_name(client->http, head->host)) { return 403; }
    *error = "this Origin is not allowed: only pages of this very port are";
    if (origin && !is_own_origin(origin, head->host)) { return 403; }
    if (client->request.method != HTTP_POST) { return 0; }
    *error = "a POST needs a Content-Length, and no Transfer-Encoding";
    if (!head->has_length) { return 411; }
    *error = "the Content-Type must be application/json";
    return is_json(http_find_header(head->headers, "Content-Type")) ? 0 : 415;
}

static enum http_method find_method(const char *name)
{
    int i = 0;
    while (i < METHODS && strcmp(methods[i].name, name) != 0) { i++; }
    return i < METHODS ? methods[i].method : 0;
}

static uint64_t most_bytes(const struct client *client)
{
    const struct http_limits *limits = &client->http->options.limits;
    return client->route->spool ? limits->file_bytes : limits->body_bytes;
}

/* Reads a complete head, and finds its route. Returns 0, or the status and why. */
static int read_head(struct client *client, size_t length, const char **error)
{
    struct http *http = client->http;
    struct http_head *head = &client->head;
    struct http_request *request = &client->request;
    int status = http_read_head(client->text, length, head, error);
    if (status != 0) { return status; }
    *request = (struct http_request){.number = ++http->numbers << SLOT_BITS | client->slot,
                                     .method = find_method(head->method),
                                     .peer = client->peer,
                                     .path = head->path,
                                     .query = head->query,
                                     .headers = head->headers};
    client->keep = head->keep && http->options.limits.idle_ms > 0;
    client->bodyless = strcmp(head->method, "HEAD") == 0;
    client->route = find_route(http, head->path, &request->rest);
    *error = "there is no such path";
    if (!client->route) { return 404; }
    *error = "this path does not take this method";
    if (!(client->route->methods & request->method)) { return 405; }
    status = client->route->guarded ? check_guarded(client, error) : 0;
    if (status != 0) { return status; }
    *error = "a GET has no body";
    if (request->method == HTTP_GET && (head->chunked || head->length > 0)) { return 400; }
    *error = "the body is too large";
    return head->length > most_bytes(client) ? 413 : 0;
}

/* Returns whether the request goes on; else it is answered. */
static bool admit_request(struct client *client)
{
    const struct http_options *options = &client->http->options;
    struct http_reply reply = {.type = client->route->type};
    if (!options->admit || options->admit(options->context, client->route, &client->request, &reply)) { return true; }
    client->keep = client->keep && !client->head.chunked && client->head.length == 0;
    send_reply(client, &reply);
    return false;
}

/* Returns whether it has got further. */
static bool take_head(struct client *client)
{
    struct buffer *in = &client->in;
    size_t most = in->length < HTTP_HEAD_BYTES ? in->length : HTTP_HEAD_BYTES;
    enum http_end end = http_find_end(in->data, most, &client->searched);
    if (end == HTTP_END_MISSING && in->length < HTTP_HEAD_BYTES) { return false; }
    if (end != HTTP_END_FOUND) {
        client->route = NULL;
        client->bodyless = false;
        if (end == HTTP_END_BAD) { refuse_request(client, 400, "this is not an HTTP request"); }
        if (end == HTTP_END_MISSING) { refuse_request(client, 431, "the head is larger than 8 KiB"); }
        return true;
    }
    size_t length = client->searched - 4;
    const char *error = "no memory";
    int status = 503;
    client->route = NULL;
    client->bodyless = false;
    client->text = malloc(length + 2);
    if (client->text) {
        memcpy(client->text, in->data, length);
        buffer_consume(in, client->searched);
        status = read_head(client, length, &error);
    }
    client->stage = BODY;
    if (status != 0) {
        refuse_request(client, status, error);
    } else if (admit_request(client) && client->head.expects && in->length == 0) {
        static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
        bool sent = send(client->fd, go_on, sizeof go_on - 1, 0) == sizeof go_on - 1;
        if (!sent) { client->stage = DONE; }
    }
    return true;
}

static void answer_client(struct client *client)
{
    struct http_request *request = &client->request;
    struct http_reply reply = {.type = client->route->type};
    request->file = client->spool;
    request->body = client->spool >= 0 ? NULL : client->body.data ? client->body.data : "";
    request->body_length = client->body_length;
    void *context = client->route->context ? client->route->context : client->http->options.context;
    if (client->route->answer(context, request, &reply) == HTTP_NOW) {
        send_reply(client, &reply);
    } else {
        size_t held = client->held; /* the route has a copy of the body now, until it answers */
        http_reply_free(&reply);
        forget_request(client);
        set_held(client, held);
        client->stage = WAITING;
    }
}

/* Makes the file of a body; it has no name any more, so that nothing is left of it whatever happens. */
static enum status open_spool(struct client *client, struct err *err)
{
    char path[FILE_PATH_BYTES];
    TRY(file_path(client->http->options.folder, "body-XXXXXX", path, err));
    client->spool = mkostemp(path, O_CLOEXEC);
    if (client->spool < 0 || unlink(path) != 0) { return err_set_errno(err, "cannot make the file %s", path); }
    return STATUS_OK;
}

/* Appends bytes to the file of the body. Returns whether that worked. */
static bool write_spool(struct client *client, const char *bytes, size_t length)
{
    struct err err;
    enum status status = client->spool < 0 ? open_spool(client, &err) : STATUS_OK;
    if (status == STATUS_OK) { status = file_put(client->spool, bytes, length, client->http->options.folder, &err); }
    if (status != STATUS_OK) { log_warn("body_not_stored", log_str("error", err.message)); }
    return status == STATUS_OK;
}

/* Keeps bytes of the body. Returns 0, or the status and why. */
static int keep_data(struct client *client, const char *bytes, size_t length, const char **error)
{
    struct http *http = client->http;
    *error = "the body is too large";
    if (length > most_bytes(client) - client->body_length) { return 413; }
    client->body_length += length;
    if (client->route->spool) {
        *error = "the body cannot be stored";
        return write_spool(client, bytes, length) ? 0 : 507;
    }
    *error = "too many requests at once";
    size_t most = http->options.limits.memory_bytes;
    if (most > 0 && (length > most || http->held > most - length)) { return 503; }
    buffer_append(&client->body, bytes, length);
    set_held(client, client->body.length);
    return buffer_ok(&client->body) ? 0 : 503;
}

/* Takes the bytes of the body that have arrived. Returns whether that is all of it; if not, there is more to come, or
 * the request was refused. */
static bool take_body(struct client *client)
{
    struct buffer *in = &client->in;
    const char *error;
    size_t at = 0, used, data;
    enum http_step step = HTTP_STEP_MORE;
    int status = 0;
    if (client->head.chunked) {
        do {
            step = http_next_chunk(&client->chunks, in->data + at, in->length - at, &used, &data);
            at += used;
            if (step == HTTP_STEP_DATA) { status = keep_data(client, in->data + at - data, data, &error); }
        } while (step == HTTP_STEP_DATA && status == 0);
    } else {
        uint64_t left = client->head.length - client->body_length;
        at = in->length < left ? in->length : (size_t)left;
        status = at > 0 ? keep_data(client, in->data, at, &error) : 0;
        if (at == left) { step = HTTP_STEP_END; }
    }
    buffer_consume(in, at);
    if (status != 0) { refuse_request(client, status, error); }
    if (step == HTTP_STEP_BAD) { refuse_request(client, 400, "the chunks of the body are malformed"); }
    return status == 0 && step == HTTP_STEP_END;
}

/* Does all that can be done with the bytes that have arrived. */
static void take_input(struct client *client)
{
    bool more = true;
    while (more && client->stage <= BODY) {
        if (client->stage == HEAD) {
            more = client->in.length > 0 && take_head(client);
        } else {
            more = take_body(client);
            if (more) { answer_client(client); }
        }
    }
    if (client->stage >= LINGERING) { client->in.length = 0; }
}

/* ---- events ---- */

static void on_socket(evutil_socket_t fd, short what, void *context);

/* Changes what the socket waits for. */
static void watch(struct client *client, short what)
{
    if (client->watched == what) { return; }
    if (client->watched) { event_del(client->socket); }
    client->watched = what;
    if (!what) { return; }
    event_assign(client->socket, client->http->base, client->fd, (short)(what | EV_PERSIST), on_socket, client);
    event_add(client->socket, NULL);
}

/* Sets the deadline of the step that the connection is at. */
static void set_deadline(struct client *client)
{
    bool idle = client->stage == HEAD && client->in.length == 0 && client->request.number != 0;
    enum patience patience = client->stage == WAITING ? ANSWER : idle ? IDLE : RECEIVE;
    if (client->timed && client->patience == patience) { return; }
    client->patience = patience;
    client->timed = true;
    client->progress = 0;
    event_add(client->deadline, client->http->patience[patience]);
}

static void tell_gone(const struct client *client)
{
    const struct http_options *options = &client->http->options;
    if (options->gone) { options->gone(options->context, client->request.number); }
}

/* Ends each callback: waits for what the connection needs next, or closes it. */
static void end_callback(struct client *client)
{
    struct http *http = client->http;
    if (client->stage == DONE) {
        if (client->parts) { tell_gone(client); }
        close_client(client);
        return;
    }
    if (client->in.data && client->in.length < client->in.capacity / 4) {
        struct buffer small = {0};
        buffer_append(&small, client->in.data, client->in.length);
        buffer_free(&http->spare);
        http->spare = client->in;
        http->spare.length = 0;
        client->in = small;
    }
    set_deadline(client);
    /* While a request waits for its answer, some of the next one is read: the end of the client shows only after it. */
    bool reads = client->stage != WAITING || (!client->ended && client->in.length < READ_BYTES);
    watch(client, client->stage == SENDING ? EV_WRITE : reads ? EV_READ : 0);
}

/* The peer has closed its side, or the connection is broken. */
static void end_peer(struct client *client)
{
    if (client->stage == WAITING && !client->http->options.gone) {
        client->ended = true;
        return;
    }
    bool idle = client->stage == HEAD && client->in.length == 0 && client->request.number != 0;
    client->http->refused += !idle && client->stage <= WAITING;
    bool waits = client->stage == WAITING && !client->parts;
    client->stage = DONE;
    if (waits) { tell_gone(client); }
}

static void receive(struct client *client)
{
    struct buffer *in = &client->in;
    if (!in->data) {
        *in = client->http->spare;
        client->http->spare = (struct buffer){0};
    }
    size_t most = client->stage == BODY ? READ_BODY : READ_BYTES;
    char *to = buffer_reserve(in, most);
    ssize_t got = to ? recv(client->fd, to, most, 0) : 0;
    if (got > 0) {
        in->length += (size_t)got;
        note_progress(client, (size_t)got);
    } else if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
        end_peer(client);
    }
}

static void on_socket(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    struct client *client = context;
    if (what & EV_WRITE) { send_more(client); }
    if (what & EV_READ) { receive(client); }
    take_input(client);
    end_callback(client);
}

static void on_deadline(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    struct client *client = context;
    client->timed = false;
    if (client->stage == WAITING && !client->parts) {
        char error[64];
        snprintf(error, sizeof error, "no answer within %u s", client->http->options.limits.answer_ms / 1000);
        refuse_request(client, 504, error);
        tell_gone(client);
    } else {
        client->http->refused += client->patience != IDLE && client->stage < SENDING;
        client->stage = DONE;
    }
    end_callback(client);
}

/* The client that waits for an answer, or for the next part of one; NULL: it is gone, or does not wait. */
static struct client *find_waiting(const struct http *http, uint64_t number, bool parts)
{
    uint64_t slot = number & (SLOTS - 1);
    struct client *client = slot < http->options.limits.connections ? http->clients[slot] : NULL;
    bool waits = client && client->request.number == number && client->stage == WAITING && client->parts == parts;
    return waits ? client : NULL;
}

/* Ends a call of the server's user. */
static void end_call(struct client *client)
{
    bool more = client->stage == HEAD && client->in.length > 0;
    end_callback(client);
    if (more) { event_active(client->socket, EV_READ, 0); } /* the next request has been read */
}

static void answer_waiting(struct http *http, uint64_t number, struct http_reply *reply, bool parts)
{
    struct client *client = find_waiting(http, number, false);
    if (!client) {
        http_reply_free(reply);
        return;
    }
    client->parts = parts;
    send_reply(client, reply);
    end_call(client);
}

void http_answer(struct http *http, uint64_t number, struct http_reply *reply)
{
    answer_waiting(http, number, reply, false);
}

void http_answer_parts(struct http *http, uint64_t number, struct http_reply *reply)
{
    answer_waiting(http, number, reply, true);
}

void http_answer_more(struct http *http, uint64_t number)
{
    struct client *client = find_waiting(http, number, true);
    if (!client) { return; }
    end_answer(client);
    send_more(client);
    end_call(client);
}

/* ---- connections ---- */

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from, int size,
                      void *context)
{
    (void)listener;
    struct http *http = context;
    struct client *client = http->free_count > 0 ? calloc(1, sizeof *client) : NULL;
    if (!client) {
        http->refused++;
        evutil_closesocket(fd);
        return;
    }
    int on = 1;
    client->http = http;
    client->fd = fd;
    client->spool = client->file = -1;
    client->slot = http->free_slots[--http->free_count];
    http->clients[client->slot] = client;
    (void)getnameinfo(from, (socklen_t)size, client->peer, sizeof client->peer, NULL, 0, NI_NUMERICHOST);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    client->socket = event_new(http->base, fd, 0, on_socket, client);
    client->deadline = evtimer_new(http->base, on_deadline, client);
    if (!client->socket || !client->deadline) { client->stage = DONE; }
    end_callback(client);
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
    if (http->listener) { evconnlistener_enable(http->listener); }
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

/* Raises the limit of the process for open files if the connections need that. If the system does not allow enough,
 * there are fewer connections: one that is refused is better than one that is never accepted. */
static void allow_files(struct http_limits *limits)
{
    struct rlimit files;
    if (limits->connections > SLOTS) { limits->connections = SLOTS; }
    rlim_t needed = limits->connections + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= needed) { return; }
    files.rlim_cur = files.rlim_max < needed ? files.rlim_max : needed;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    rlim_t left = files.rlim_cur > OTHER_FILES ? files.rlim_cur - OTHER_FILES : 1;
    if (left < limits->connections) { limits->connections = (unsigned)left; }
}

static enum status make_tables(struct http *http, struct err *err)
{
    struct http_limits *limits = &http->options.limits;
    allow_files(limits);
    const unsigned ms[PATIENCES] = {
        [RECEIVE] = limits->receive_ms, [ANSWER] = limits->answer_ms, [IDLE] = limits->idle_ms};
    http->clients = calloc(limits->connections, sizeof *http->clients);
    http->free_slots = calloc(limits->connections, sizeof *http->free_slots);
    bool made = http->clients && http->free_slots;
    for (int i = 0; i < PATIENCES && made; i++) {
        const struct timeval time = after_ms(ms[i]);
        http->patience[i] = event_base_init_common_timeout(http->base, &time);
        made = http->patience[i] != NULL;
    }
    if (!made) { return err_set(err, STATUS_NO_MEMORY, "no memory for the HTTP port"); }
    while (http->free_count < limits->connections) {
        http->free_slots[http->free_count] = limits->connections - 1 - http->free_count;
        http->free_count++;
    }
    return STATUS_OK;
}

static enum status listen_at(struct http *http, struct err *err)
{
    struct sockaddr_storage where;
    int size = sizeof where;
    const char *address = http->options.address;
    if (evutil_parse_sockaddr_port(address, (struct sockaddr *)&where, &size) != 0) {
        return err_set(err, STATUS_BAD_INPUT, "%s is not an address and a port", address);
    }
    TRY(make_tables(http, err));
    unsigned flags = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE;
    http->resume = evtimer_new(http->base, on_resume, http);
    http->listener =
        evconnlistener_new_bind(http->base, on_accept, http, flags, BACKLOG, (struct sockaddr *)&where, size);
    if (!http->resume || !http->listener) { return err_set_errno(err, "cannot listen on %s", address); }
    evconnlistener_set_error_cb(http->listener, on_accept_failed);
    log_info("http_listens", log_str("address", address), log_int("connections", http->options.limits.connections));
    return STATUS_OK;
}

enum status http_open(struct event_base *base, const struct http_options *options, struct http **out, struct err *err)
{
    struct http *http = calloc(1, sizeof *http);
    if (!http) { return err_set(err, STATUS_NO_MEMORY, "no memory for the HTTP port"); }
    signal(SIGPIPE, SIG_IGN); /* an answer to a closed socket is an error, not the end of the process */
    *http = (struct http){.options = *options, .base = base, .loopback = http_is_loopback(options->address)};
    enum status status = listen_at(http, err);
    http->options.address = NULL; /* it need not outlive this call */
    if (status != STATUS_OK) {
        http_close(http);
        return status;
    }
    *out = http;
    return STATUS_OK;
}

void http_stop(struct http *http)
{
    http->stopping = true;
    if (http->listener) { evconnlistener_free(http->listener); }
    http->listener = NULL;
    for (uint32_t i = 0; i < http->options.limits.connections; i++) {
        struct client *client = http->clients[i];
        if (client && client->stage == HEAD && client->in.length == 0) { close_client(client); }
    }
}

unsigned http_in_flight(const struct http *http)
{
    unsigned count = 0;
    for (uint32_t i = 0; i < http->options.limits.connections; i++) {
        const struct client *client = http->clients[i];
        count += client && client->stage < LINGERING && (client->stage != HEAD || client->in.length > 0);
    }
    return count;
}

void http_close(struct http *http)
{
    if (!http) { return; }
    for (uint32_t i = 0; http->clients && i < http->options.limits.connections; i++) {
        if (http->clients[i]) { close_client(http->clients[i]); }
    }
    if (http->listener) { evconnlistener_free(http->listener); }
    if (http->resume) { event_free(http->resume); }
    buffer_free(&http->spare);
    free(http->clients);
    free(http->free_slots);
    free(http);
}

void http_counters(const struct http *http, uint64_t *answered, uint64_t *refused)
{
    *answered = http->answered;
    *refused = http->refused;
}
