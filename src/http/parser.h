/* Reads heads and chunked bodies of HTTP/1.1 requests, without I/O. Source: RFC 9112, RFC 9110.
 *
 * It is strict wherever two readers of the same bytes could disagree on where a request ends, because a proxy in front
 * may read them otherwise (request smuggling): one way to end a line, one length, no folded headers.
 *
 * The libraries of Debian 12 are more lenient: evhttp of libevent 2.1.12, libmicrohttpd 0.9.75 and http-parser 2.9.4
 * all take folded headers, and lines that end at a bare LF. The first two take the first of several Content-Lengths.
 * libmicrohttpd ignores one beside a Transfer-Encoding, and evhttp reads "+0x1" as the size of a chunk. evhttp bounds
 * the time of each read, but neither that of a request nor the number of connections. llhttp is not packaged. */
#ifndef HTTP_PARSER_H
#define HTTP_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTTP_HEAD_BYTES = 8192 }; /* of a request's head */

/* A head that was read; its strings are parts of the text. */
struct http_head {
    const char *method;
    const char *path, *query; /* as they were sent: nothing is decoded. query: the part after the '?'; "" for none */
    const char *headers;      /* for http_find_header */
    const char *host;         /* NULL: not sent, by a client of HTTP/1.0 */
    bool keep;                /* the client can send another request after this one */
    bool expects;             /* it waits for "100 Continue" before it sends the body */
    bool chunked;             /* the body comes in chunks … */
    bool has_length;          /* … or has a length that was sent */
    uint64_t length;          /* UINT64_MAX also stands for any larger number */
};

/* The result of looking for the end of a head. */
enum http_end { HTTP_END_FOUND, HTTP_END_MISSING, HTTP_END_BAD /* a line ends without a CR */ };

/* Looks for the end of a head. `*at` is 0 at first; a later call with more bytes goes on from there. When the end is
 * found, the head and its empty line are the first `*at` bytes. */
enum http_end http_find_end(const char *bytes, size_t length, size_t *at);

/* Reads a head, without its empty line and the CRLF before that. Shapes: text [length + 2], which is changed. Returns
 * 0, or the status of a refusal, and why. */
int http_read_head(char *text, size_t length, struct http_head *head, const char **error);

/* The value of the first header with this name, in any case; NULL: not sent. */
const char *http_find_header(const char *headers, const char *name);

/* A body in chunks. Zero-initialise to start. */
struct http_chunks {
    unsigned state;
    unsigned digits; /* of the size that is being read */
    unsigned extra;  /* bytes of extensions and trailers; these are dropped */
    uint64_t left;   /* of the chunk */
};

/* The result of a step through chunks. */
enum http_step { HTTP_STEP_DATA, HTTP_STEP_MORE /* all bytes are used */, HTTP_STEP_END, HTTP_STEP_BAD };

/* Goes on to the next run of data, or to the end. Sets `*used` to the bytes it has moved past; for HTTP_STEP_DATA, the
 * last `*data` of these are data. */
enum http_step http_next_chunk(struct http_chunks *chunks, const char *bytes, size_t length, size_t *used,
                               size_t *data);

#endif
