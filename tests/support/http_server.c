/* A server of the http layer for tests and measurements:
 *
 *   http_server ADDRESS FOLDER CONNECTIONS BODY_BYTES MEMORY_BYTES RECEIVE_MS ANSWER_MS IDLE_MS
 *
 * /echo, /echo/...   says how the request was understood
 * /spool             answers with the body, which went through a file in FOLDER
 * /cut               the same, but the file has lost its second half
 * /large?N           a body of N bytes
 * /later             waits for /release, which answers all that wait; /state lists the clients that went away
 * /parts             waits for /push?N, which adds N bytes to a text, from `a` to `z` and again; with 0 it ends. Each
 *                    client gets it from its beginning, in parts
 * /fixed             "ok", as fast as it can be
 *
 * It ends when a signal has come and no request is in flight. */
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "http/server.h"

enum { WAITING_MAX = 65536, STREAMS_MAX = 64 };

struct app {
    struct event_base *base;
    struct http *http;
    uint64_t waiting[WAITING_MAX]; /* numbers of requests */
    unsigned waiting_count, gone;
    struct {
        uint64_t number;
        size_t sent;
    } streams[STREAMS_MAX];
    unsigned stream_count;
    struct buffer text; /* of the streams */
    bool complete, stopping;
};

static enum http_when echo(void *context, const struct http_request *request, struct http_reply *reply)
{
    (void)context;
    const char *x = http_header(request, "X-Test");
    reply->status = strcmp(request->query, "204") == 0 ? 204 : 0;
    buffer_string(&reply->headers, "X-Answer: yes\r\n");
    buffer_format(&reply->body, "%d %s?%s [%s] <%s> ", (int)request->method, request->path, request->query,
                  request->rest, x ? x : "-");
    buffer_append(&reply->body, request->body, request->body_length);
    return HTTP_NOW;
}

static enum http_when spool(void *context, const struct http_request *request, struct http_reply *reply)
{
    (void)context;
    if (request->body_length == 0) { return http_error(reply, 400, "no body"); }
    if (request->body || request->file < 0) { return http_error(reply, 500, "the body is not in a file"); }
    reply->file = dup(request->file);
    reply->file_length = request->body_length;
    if (strcmp(request->path, "/cut") == 0 && ftruncate(request->file, (off_t)(request->body_length / 2)) != 0) {
        return http_error(reply, 500, "ftruncate");
    }
    return HTTP_NOW;
}

static enum http_when large(void *context, const struct http_request *request, struct http_reply *reply)
{
    (void)context;
    size_t length = strtoul(request->query, NULL, 10);
    char *to = buffer_reserve(&reply->body, length);
    if (to) {
        memset(to, 'x', length);
        reply->body.length = length;
    }
    return HTTP_NOW;
}

static enum http_when later(void *context, const struct http_request *request, struct http_reply *reply)
{
    (void)reply;
    struct app *app = context;
    if (app->waiting_count == WAITING_MAX) { return http_error(reply, 503, "too many wait"); }
    app->waiting[app->waiting_count++] = request->number;
    return HTTP_LATER;
}

static enum http_when release(void *context, const struct http_request *request, struct http_reply *reply)
{
    (void)request;
    struct app *app = context;
    buffer_format(&reply->body, "%u", app->waiting_count);
    for (unsigned i = 0; i < app->waiting_count; i++) {
        struct http_reply answer = {0};
        buffer_string(&answer.body, "released");
        http_answer(app->http, app->waiting[i], &answer);
        http_answer(app->http, app->waiting[i], &(struct http_reply){0}); /* the second one does nothing */
    }
    app->waiting_count = 0;
    return HTTP_NOW;
}

static enum http_when parts(void *context, const struct http_request *request, struct http_reply *reply)
{
    struct app *app = context;
    if (app->stream_count == STREAMS_MAX) { return http_error(reply, 503, "too many streams"); }
    if (app->stream_count == 0) { app->text.length = 0; }
    app->streams[app->stream_count].sent = 0;
    app->streams[app->stream_count++].number = request->number;
    return HTTP_LATER;
}

static bool end_stream(struct app *app, uint64_t number)
{
    unsigned at = 0;
    while (at < app->stream_count && app->streams[at].number != number) { at++; }
    if (at == app->stream_count) { return false; }
    app->streams[at] = app->streams[--app->stream_count];
    return true;
}

static bool more(void *context, uint64_t number, struct buffer *to)
{
    struct app *app = context;
    unsigned at = 0;
    while (at < app->stream_count && app->streams[at].number != number) { at++; }
    if (at == app->stream_count) { abort(); }
    buffer_append(to, app->text.data + app->streams[at].sent, app->text.length - app->streams[at].sent);
    app->streams[at].sent = app->text.length;
    return !(app->complete && end_stream(app, number));
}

static enum http_when push(void *context, const struct http_request *request, struct http_reply *reply)
{
    struct app *app = context;
    size_t length = strtoul(request->query, NULL, 10);
    char *to = buffer_reserve(&app->text, length + 1);
    if (!to) { return http_error(reply, 503, "no memory"); }
    for (size_t i = 0; i < length; i++) { to[i] = (char)('a' + (app->text.length + i) % 26); }
    app->text.length += length;
    app->complete = length == 0;
    for (unsigned i = app->stream_count; i-- > 0;) {
        struct http_reply answer = {.type = "text/event-stream"};
        uint64_t number = app->streams[i].number;
        buffer_string(&answer.headers, "X-Answer: yes\r\n");
        http_answer_parts(app->http, number, &answer); /* nothing happens if it has begun */
        http_answer_more(app->http, number);
    }
    return HTTP_NOW;
}

static enum http_when state(void *context, const struct http_request *request, struct http_reply *reply)
{
    (void)request;
    const struct app *app = context;
    uint64_t answered, refused;
    http_counters(app->http, &answered, &refused);
    buffer_json(&reply->body,
                "{'waiting':%u,'streams':%u,'gone':%u,'answered':%" PRIu64 ",'refused':%" PRIu64 ",'in_flight':%u}",
                app->waiting_count, app->stream_count, app->gone, answered, refused, http_in_flight(app->http));
    return HTTP_NOW;
}

static enum http_when fixed(void *context, const struct http_request *request, struct http_reply *reply)
{
    (void)context, (void)request;
    buffer_string(&reply->body, "ok");
    return HTTP_NOW;
}

static void on_gone(void *context, uint64_t number)
{
    struct app *app = context;
    unsigned at = 0;
    app->gone++;
    if (end_stream(app, number)) { return; }
    while (at < app->waiting_count && app->waiting[at] != number) { at++; }
    if (at == app->waiting_count) { abort(); }
    app->waiting[at] = app->waiting[--app->waiting_count];
    http_answer(app->http, number, &(struct http_reply){0}); /* too late: nothing happens */
}

static void on_signal(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    struct app *app = context;
    http_stop(app->http);
    app->stopping = true;
}

static void refuse(void *context, const struct http_route *route, int status, const char *error,
                   struct http_reply *reply)
{
    (void)context;
    buffer_json(&reply->body, "{'status':%lld,'route':%s,'error':%s}", (long long)status, route ? route->path : "",
                error);
}

static const struct http_route routes[] = {
    {"/echo", HTTP_GET | HTTP_POST | HTTP_DELETE, "text/plain", echo},
    {"/echo/", HTTP_GET, "text/plain", echo},
    {"/spool", HTTP_POST, "application/octet-stream", spool, .spool = true},
    {"/cut", HTTP_POST, "application/octet-stream", spool, .spool = true},
    {"/large", HTTP_GET, "text/plain", large},
    {"/later", HTTP_GET | HTTP_POST, "text/plain", later},
    {"/release", HTTP_POST, "text/plain", release},
    {"/parts", HTTP_GET, "text/plain", parts},
    {"/push", HTTP_POST, "text/plain", push},
    {"/state", HTTP_GET, "application/json", state},
    {"/fixed", HTTP_GET | HTTP_POST, "text/plain", fixed},
};

int main(int count, char **words)
{
    static struct app app;
    struct err err = {0};
    if (count != 9) { return 64; }
    app.base = event_base_new();
    const struct http_options options = {.address = words[1],
                                         .routes = routes,
                                         .route_count = sizeof routes / sizeof routes[0],
                                         .limits = {.connections = (unsigned)atoi(words[3]),
                                                    .body_bytes = strtoul(words[4], NULL, 10),
                                                    .memory_bytes = strtoul(words[5], NULL, 10),
                                                    .file_bytes = 64 << 20,
                                                    .receive_ms = (unsigned)atoi(words[6]),
                                                    .answer_ms = (unsigned)atoi(words[7]),
                                                    .idle_ms = (unsigned)atoi(words[8])},
                                         .folder = words[2],
                                         .context = &app,
                                         .refuse = refuse,
                                         .gone = on_gone,
                                         .more = more};
    struct event *end = app.base ? evsignal_new(app.base, SIGTERM, on_signal, &app) : NULL;
    if (!end || event_add(end, NULL) != 0) { return 70; }
    if (http_open(app.base, &options, &app.http, &err) != STATUS_OK) {
        fprintf(stderr, "%s\n", err.message);
        event_free(end);
        event_base_free(app.base);
        return 71;
    }
    puts("listens");
    fflush(stdout);
    while (!app.stopping || http_in_flight(app.http) > 0) { event_base_loop(app.base, EVLOOP_ONCE); }
    buffer_free(&app.text);
    http_close(app.http);
    event_free(end);
    event_base_free(app.base);
    return 0;
}
