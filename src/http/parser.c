#include "http/parser.h"
#include "base/hex.h"

#include <string.h>
#include <strings.h>

/* Names of methods and headers; RFC 9110, 5.6.2. */
static const char token[] = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/* ---- heads ---- */

enum http_end http_find_end(const char *bytes, size_t length, size_t *at)
{
    const char *newline;
    while ((newline = memchr(bytes + *at, '\n', length - *at))) {
        size_t i = (size_t)(newline - bytes);
        if (i == 0 || bytes[i - 1] != '\r') { return HTTP_END_BAD; }
        *at = i + 1;
        if (i >= 3 && bytes[i - 2] == '\n') { return HTTP_END_FOUND; }
    }
    *at = length;
    return HTTP_END_MISSING;
}

static bool is_control(char c)
{
    return ((unsigned char)c < ' ' && c != '\t') || c == 0x7f;
}

/* Ends the line at `*at` and moves to the next one; NULL: it has a control character, or no line is left. */
static char *take_line(char **at)
{
    char *line = *at, *end = line ? strstr(line, "\r\n") : NULL;
    if (end) { *end = '\0'; }
    *at = end ? end + 2 : NULL;
    for (const char *c = line; c && *c; c++) {
        if (is_control(*c)) { return NULL; }
    }
    return line;
}

/* Reads the first line: "GET /path?query HTTP/1.1", or "GET http://host/path HTTP/1.1", as to a proxy. `*authority` is
 * that host, not ended by a NUL; NULL: none. */
static bool read_first(char *line, struct http_head *head, const char **authority, bool *old)
{
    static const char scheme[] = "http://";
    char *path = line ? strchr(line, ' ') : NULL, *version = path ? strchr(path + 1, ' ') : NULL;
    *authority = NULL;
    if (!version) { return false; }
    *path++ = *version++ = '\0';
    *old = strcmp(version, "HTTP/1.0") == 0;
    if ((!*old && strcmp(version, "HTTP/1.1") != 0) || line[0] == '\0' || line[strspn(line, token)] != '\0') {
        return false;
    }
    for (const char *c = path; *c; c++) {
        if (*c == '\t' || (unsigned char)*c > 0x7e) { return false; }
    }
    if (strncasecmp(path, scheme, sizeof scheme - 1) == 0) {
        *authority = path + sizeof scheme - 1;
        path = strchr(*authority, '/');
    }
    if (!path || path[0] != '/') { return false; }
    head->method = line;
    head->path = path;
    path += strcspn(path, "?");
    head->query = *path ? path + 1 : path;
    *path = '\0';
    return true;
}

/* Finds a word in a list with commas. */
static bool list_has(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (;;) {
        list += strspn(list, " \t,");
        if (*list == '\0') { return false; }
        size_t item = strcspn(list, " \t,;");
        if (item == length && strncasecmp(list, word, length) == 0) { return true; }
        list += strcspn(list, ",");
    }
}

static bool read_length(const char *value, struct http_head *head)
{
    size_t digits = strspn(value, "0123456789");
    if (digits == 0 || value[digits] != '\0') { return false; }
    head->has_length = true;
    for (const char *c = value; *c; c++) {
        unsigned digit = (unsigned)(*c - '0');
        head->length = head->length > (UINT64_MAX - digit) / 10 ? UINT64_MAX : head->length * 10 + digit;
    }
    return true;
}

/* Headers that may occur once: a second one could mean something else to a proxy. */
static const char *const single[] = {"Host",          "Content-Length", "Transfer-Encoding", "Expect", "Content-Type",
                                     "Authorization", "Origin"};

/* Reads a line "Name: value" and writes "name NUL value NUL" to `*to`, which is not after the line. */
static bool read_header(char *line, char **to, struct http_head *head, unsigned *seen)
{
    size_t length = strspn(line, token);
    if (length == 0 || line[length] != ':') { return false; }
    line[length] = '\0';
    const char *name = *to, *value = line + length + 1;
    value += strspn(value, " \t");
    size_t end = strlen(value);
    while (end > 0 && (value[end - 1] == ' ' || value[end - 1] == '\t')) { end--; }
    memmove(*to, line, length + 1);
    *to += length + 1;
    memmove(*to, value, end);
    value = *to;
    (*to)[end] = '\0';
    *to += end + 1;
    for (unsigned i = 0; i < sizeof single / sizeof single[0]; i++) {
        if (strcasecmp(name, single[i]) != 0) { continue; }
        if (*seen & 1u << i) { return false; }
        *seen |= 1u << i;
    }
    if (strcasecmp(name, "Connection") == 0 && list_has(value, "close")) { head->keep = false; }
    return true;
}

int http_read_head(char *text, size_t length, struct http_head *head, const char **error)
{
    const char *authority, *value;
    char *at = text, *to;
    bool old;
    unsigned seen = 0;
    *head = (struct http_head){0};
    text[length] = text[length + 1] = '\0';
    *error = "this is not an HTTP request";
    if (memchr(text, '\0', length) || !read_first(take_line(&at), head, &authority, &old)) { return 400; }
    head->keep = !old;
    to = at;
    head->headers = at ? at : text + length;
    *error = "a header is malformed, or there twice";
    while (at) {
        char *line = take_line(&at);
        if (!line || !read_header(line, &to, head, &seen)) { return 400; }
    }
    if (to) { *to = '\0'; }
    head->host = http_find_header(head->headers, "Host");
    *error = "the Host is missing";
    if (!head->host && !old) { return 400; }
    *error = "the Host is not that of the request's target";
    if (authority) {
        size_t end = strcspn(authority, "/");
        if (!head->host || strlen(head->host) != end || strncasecmp(authority, head->host, end) != 0) { return 400; }
    }
    value = http_find_header(head->headers, "Content-Length");
    *error = "the Content-Length is not a number";
    if (value && !read_length(value, head)) { return 400; }
    value = http_find_header(head->headers, "Transfer-Encoding");
    *error = "a request has a Content-Length or a Transfer-Encoding, not both";
    if (value && (head->has_length || old)) { return 400; }
    *error = "the only Transfer-Encoding is chunked";
    if (value && strcasecmp(value, "chunked") != 0) { return 501; }
    head->chunked = value != NULL;
    value = http_find_header(head->headers, "Expect");
    *error = "the only Expect is 100-continue";
    if (value && strcasecmp(value, "100-continue") != 0) { return 417; }
    head->expects = value && !old;
    return 0;
}

const char *http_find_header(const char *headers, const char *name)
{
    while (*headers) {
        const char *value = headers + strlen(headers) + 1;
        if (strcasecmp(headers, name) == 0) { return value; }
        headers = value + strlen(value) + 1;
    }
    return NULL;
}

/* ---- chunks ---- */

enum { EXTRA_BYTES = 4096, SIZE_DIGITS = 15 };

/* SIZE: its digits. EXTENSION: after a ';'. LINE: at the beginning of a trailer; TRAILER: in it. *_LF: a CR was read.
 */
enum state { SIZE, EXTENSION, SIZE_LF, DATA, DATA_CR, DATA_LF, LINE, TRAILER, TRAILER_LF, END_LF, END, BAD };

/* Adds a digit to the size of a chunk, or ends it. */
static enum state read_size(struct http_chunks *chunks, char c)
{
    int digit = hex_digit(c);
    if (digit >= 0 && chunks->digits < SIZE_DIGITS) {
        chunks->left = chunks->left * 16 + (unsigned)digit;
        chunks->digits++;
        return SIZE;
    }
    return chunks->digits == 0 ? BAD : c == '\r' ? SIZE_LF : c == ';' ? EXTENSION : BAD;
}

/* The state after a byte that is not data. */
static enum state read_frame(struct http_chunks *chunks, char c)
{
    switch ((enum state)chunks->state) {
    case SIZE:
        return read_size(chunks, c);
    case SIZE_LF:
        chunks->digits = 0;
        return c != '\n' ? BAD : chunks->left > 0 ? DATA : LINE;
    case DATA_CR:
        return c == '\r' ? DATA_LF : BAD;
    case DATA_LF:
        return c == '\n' ? SIZE : BAD;
    case LINE:
        if (c == '\r') { return END_LF; }
        return strchr(token, c) && c && ++chunks->extra <= EXTRA_BYTES ? TRAILER : BAD;
    case EXTENSION:
    case TRAILER:
        if (c == '\r') { return chunks->state == TRAILER ? TRAILER_LF : SIZE_LF; }
        return is_control(c) || ++chunks->extra > EXTRA_BYTES ? BAD : (enum state)chunks->state;
    case TRAILER_LF:
        return c == '\n' ? LINE : BAD;
    case END_LF:
        return c == '\n' ? END : BAD;
    default:
        return BAD;
    }
}

enum http_step http_next_chunk(struct http_chunks *chunks, const char *bytes, size_t length, size_t *used, size_t *data)
{
    *used = *data = 0;
    while (chunks->state != END && chunks->state != BAD && *used < length) {
        if (chunks->state == DATA) {
            *data = length - *used < chunks->left ? length - *used : (size_t)chunks->left;
            *used += *data;
            chunks->left -= *data;
            if (chunks->left == 0) { chunks->state = DATA_CR; }
            return HTTP_STEP_DATA;
        }
        chunks->state = read_frame(chunks, bytes[(*used)++]);
    }
    return chunks->state == END ? HTTP_STEP_END : chunks->state == BAD ? HTTP_STEP_BAD : HTTP_STEP_MORE;
}
