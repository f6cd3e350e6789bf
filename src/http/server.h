/* An HTTP/1.1 server on a libevent loop. It speaks plain HTTP; TLS is the business of a proxy in front.
 *
 * Nobody who connects can hold it up: the number of connections, the bytes of a request, the memory for all of them and
 * the time for each step are bounded. A request is answered at once from memory, or elsewhere and later (http_answer).
 * A connection has one request at a time; what a client sends after it waits. */
#ifndef HTTP_SERVER_H
#define HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"
#include "http/parser.h"

struct event_base;
struct http;

/* HEAD is a GET whose answer has no body; routes do not see it. */
enum http_method { HTTP_GET = 1, HTTP_POST = 2, HTTP_DELETE = 4 };

enum http_when { HTTP_NOW, HTTP_LATER /* http_answer follows */ };

struct http_limits {
    unsigned connections; /* open at a time; further ones are closed at once. Fewer where the limit of the process for
                           * open files cannot be raised that far */
    size_t body_bytes;    /* of a request */
    size_t memory_bytes;  /* of all bodies: of requests until they are answered, and of answers until their clients have
                           * read them; above it requests with a body get a 503. 0: no bound */
    uint64_t file_bytes;  /* of a request whose body goes into a file */
    unsigned receive_ms;  /* for a request to arrive, and for an answer to be read; each 64 KiB begin it anew */
    unsigned answer_ms;   /* for a later answer to be made; then the client gets a 504 */
    unsigned idle_ms;     /* between two requests of a connection; 0: a connection has one request */
};

/* A request; its strings live until `answer` returns. */
struct http_request {
    uint64_t number; /* for http_answer; no two requests of a server have the same */
    enum http_method method;
    const char *peer;         /* the address it comes from */
    const char *path, *query; /* as they were sent: nothing is decoded. query: the part after the '?'; "" for none */
    const char *rest;         /* the part of the path after that of the route; "" for none */
    const char *headers;      /* for http_header */
    const char *body;         /* [body_length]; NULL: it is in `file` */
    uint64_t body_length;
    int file; /* of a route with `spool`: the body, in a file without a name, else -1. A route that needs it for longer
               * duplicates the descriptor */
};

/* The value of a request's header; NULL: not sent. If it was sent several times, the first counts; Host,
 * Content-Type, Authorization and the headers that frame a body are never there twice. */
const char *http_header(const struct http_request *request, const char *name);

/* True if a request has no body, or one that is JSON by its Content-Type. */
bool http_body_is_json(const struct http_request *request);

/* An answer. All zeros are a 200 without a body. */
struct http_reply {
    int status;            /* 0: 200 */
    const char *type;      /* of the content; NULL: the route's */
    struct buffer headers; /* more of them, each with its CRLF */
    struct buffer body;
    int file;             /* its first `file_length` bytes follow `body` */
    uint64_t file_length; /* 0: there is no file */
};

/* Frees a reply, closes its file, and leaves it empty. */
void http_reply_free(struct http_reply *reply);

/* A path and its handler. A path that ends with a slash stands for all paths that begin with it; "/" only for itself.
 * `guarded` protects against other sites' pages in a browser: Host must be this port's own name (localhost, or the kind
 * of address that it listens on), so that no foreign page gets here under a name of its own; an Origin must match Host;
 * and a body is JSON with a Content-Length, which a form cannot send.
 * `answer` fills the reply, which is zero but for its type; the server frees it. Thread: the loop's. */
struct http_route {
    const char *path;
    unsigned methods; /* bits of enum http_method */
    const char *type; /* of the content; a refusal before `answer` is JSON: {"error": ...} */
    enum http_when (*answer)(void *context, const struct http_request *request, struct http_reply *reply);
    bool guarded;
    bool spool;    /* bodies of requests go into files, as they arrive */
    void *context; /* NULL: that of the server */
};

struct http_options {
    const char *address;             /* such as 127.0.0.1:9464 or [::1]:9464 */
    const struct http_route *routes; /* [route_count]; they must outlive the server. The first that fits counts */
    size_t route_count;
    struct http_limits limits;
    const char *headers; /* of every answer, each with its CRLF; must outlive the server; NULL: none */
    const char *folder;  /* of the files for bodies; must outlive the server */
    void *context;       /* of the routes, and of the functions below */

    /* Asked before the body of a request is taken, once its route is known. False: the reply is the answer, and if
     * there is a body, the connection ends. NULL: all are admitted. */
    bool (*admit)(void *context, const struct http_route *route, const struct http_request *request,
                  struct http_reply *reply);

    /* Fills the reply of a refusal that is the server's own: no such path, too large, too late … `route` is NULL if
     * none is known. NULL: http_error does it. */
    void (*refuse)(void *context, const struct http_route *route, int status, const char *error,
                   struct http_reply *reply);

    /* The client of a request that waits for http_answer has closed its side, or has waited for answer_ms; or that of
     * an answer in parts is gone before the last one was made. NULL: no callback; a client that has closed its side
     * then still gets its answer. */
    void (*gone)(void *context, uint64_t number);

    /* Appends the next part of an answer that http_answer_parts has begun; nothing: there is none yet. It is asked
     * when the client has read the one before. Returns whether others follow; after the last it is not called again. */
    bool (*more)(void *context, uint64_t number, struct buffer *to);
};

/* Listens. Owns: the caller ends it with http_close. Errors: STATUS_BAD_INPUT (the address), STATUS_IO (it cannot be
 * listened on), STATUS_NO_MEMORY. */
MUST_CHECK enum status http_open(struct event_base *base, const struct http_options *options, struct http **out,
                                 struct err *err);

/* Stops listening and closes the connections on which no request is in flight; the others end after their answer. */
void http_stop(struct http *http);

/* Counts the requests in flight: arriving, waiting for their answer, or being answered. */
unsigned http_in_flight(const struct http *http);

/* Closes all connections; `gone` is not called. NULL is allowed. */
void http_close(struct http *http);

/* True for a loopback address, which only this machine can reach. */
bool http_is_loopback(const char *address);

/* Answers a request whose route said HTTP_LATER; nothing happens if its client is gone. Owns: takes over the reply's
 * buffers and its file, in any case, and leaves it empty. It calls no callback. It may be called from `gone` and from
 * the `answer` of another request. */
void http_answer(struct http *http, uint64_t number, struct http_reply *reply);

/* Begins an answer whose body is sent in parts as they are made: `more` is asked for each, now and whenever
 * http_answer_more says that there is one. No more than one part waits for a slow client, which has receive_ms for
 * each. The reply has no body and no file. Otherwise as http_answer, but both call `more`. */
void http_answer_parts(struct http *http, uint64_t number, struct http_reply *reply);
void http_answer_more(struct http *http, uint64_t number);

/* Makes the reply of an error: JSON, {"error": ...}. Returns HTTP_NOW, for routes that end with it. */
enum http_when http_error(struct http_reply *reply, int status, const char *error);

/* Requests that were answered, and connections that were refused or cut off, since http_open. */
void http_counters(const struct http *http, uint64_t *answered, uint64_t *refused);

#endif
