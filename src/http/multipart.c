#include "http/multipart.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/utf8.h"

enum { BLOCK_BYTES = 1 << 20 };

static bool is_boundary_char(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || memchr("'()+_,-./:=? ", c, 13);
}

bool multipart_open(struct multipart *multipart, const char *content_type, int fd, uint64_t size)
{
    static const char type[] = "multipart/form-data;", name[] = "boundary=";
    *multipart = (struct multipart){.fd = fd, .size = size};
    if (!content_type || strncasecmp(content_type, type, strlen(type)) != 0) { return false; }
    const char *boundary = strcasestr(content_type, name);
    if (!boundary) { return false; }
    boundary += strlen(name);
    bool quoted = *boundary == '"';
    boundary += quoted;
    size_t length = strcspn(boundary, quoted ? "\"" : "; \t");
    if (length == 0 || length > MULTIPART_BOUNDARY_MAX || (quoted && boundary[length] != '"')) { return false; }
    for (size_t i = 0; i < length; i++) {
        if (!is_boundary_char(boundary[i])) { return false; }
    }
    multipart->delimiter_bytes =
        (size_t)snprintf(multipart->delimiter, sizeof multipart->delimiter, "\r\n--%.*s", (int)length, boundary);
    return boundary[length - 1] != ' ';
}

/* Reads up to `room` bytes from a place in the file, fewer only at its end. */
static enum status read_at(const struct multipart *multipart, uint64_t at, char *to, size_t room, size_t *got,
                           struct err *err)
{
    uint64_t left = multipart->size - at;
    size_t wanted = left < room ? (size_t)left : room;
    for (*got = 0; *got < wanted;) {
        ssize_t more = pread(multipart->fd, to + *got, wanted - *got, (off_t)(at + *got));
        if (more < 0) { return err_set_errno(err, "cannot read the body"); }
        if (more == 0) { break; }
        *got += (size_t)more;
    }
    return STATUS_OK;
}

/* Finds the next delimiter from `from` on. */
static enum status find_delimiter(const struct multipart *multipart, uint64_t from, uint64_t *found, struct err *err)
{
    size_t length = multipart->delimiter_bytes, got = 0;
    char *block = malloc(BLOCK_BYTES);
    const char *place = NULL;
    enum status status = block ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory to read a body");
    for (uint64_t at = from; status == STATUS_OK && !place && at + length <= multipart->size;
         at += BLOCK_BYTES - length + 1) {
        status = read_at(multipart, at, block, BLOCK_BYTES, &got, err);
        if (status != STATUS_OK || got < length) { break; }
        place = memmem(block, got, multipart->delimiter, length);
        if (place) { *found = at + (uint64_t)(place - block); }
    }
    free(block);
    if (status == STATUS_OK && !place) { status = err_set(err, STATUS_BAD_INPUT, "the body ends inside a part"); }
    return status;
}

/* Copies the value of a parameter, `name="value"`; a quote or backslash in it has a backslash before it. False: it is
 * broken, or too long. */
static bool take_parameter(const char **at, const char *end, char *to, size_t size)
{
    size_t used = 0;
    const char *from = *at;
    if (from == end || *from != '"') { return false; }
    for (from++; from < end && *from != '"'; from++) {
        if (*from == '\\' && from + 1 < end && (from[1] == '"' || from[1] == '\\')) { from++; }
        if ((unsigned char)*from < ' ' || *from == 0x7f || used + 1 == size) { return false; }
        to[used++] = *from;
    }
    to[used] = '\0';
    if (from == end) { return false; }
    *at = from + 1;
    return utf8_valid(to, used);
}

/* Reads `form-data; name="…"; filename="…"`. */
static bool read_disposition(const char *at, const char *end, struct multipart_part *out)
{
    static const char type[] = "form-data";
    char ignored[1024];
    while (at < end && (*at == ' ' || *at == '\t')) { at++; }
    if ((size_t)(end - at) < strlen(type) || strncasecmp(at, type, strlen(type)) != 0) { return false; }
    for (at += strlen(type); at < end;) {
        while (at < end && (*at == ' ' || *at == '\t' || *at == ';')) { at++; }
        size_t left = (size_t)(end - at);
        const char *equals = memchr(at, '=', left);
        if (left == 0) { break; }
        if (!equals) { return false; }
        size_t length = (size_t)(equals - at);
        bool name = length == 4 && strncasecmp(at, "name", 4) == 0;
        bool filename = length == 8 && strncasecmp(at, "filename", 8) == 0;
        char *to = name ? out->name : filename ? out->filename : ignored;
        size_t size = name ? sizeof out->name : filename ? sizeof out->filename : sizeof ignored;
        at = equals + 1;
        if ((name || filename) && to[0] != '\0') { return false; }
        if (!name && !filename && at < end && *at != '"') { /* filename*=UTF-8''… */
            const char *next = memchr(at, ';', (size_t)(end - at));
            at = next ? next : end;
        } else if (!take_parameter(&at, end, to, size)) {
            return false;
        }
    }
    return out->name[0] != '\0';
}

/* Reads the lines of a head, which ends with an empty one. */
static bool read_head(const char *at, const char *end, struct multipart_part *out)
{
    static const char name[] = "content-disposition:";
    bool found = false;
    while (at < end) {
        const char *line_end = memmem(at, (size_t)(end - at), "\r\n", 2);
        if (!line_end) { line_end = end; }
        size_t length = (size_t)(line_end - at);
        if (*at == ' ' || *at == '\t' || !memchr(at, ':', length) || memchr(at, '\n', length) ||
            memchr(at, '\0', length)) {
            return false;
        }
        if (length >= strlen(name) && strncasecmp(at, name, strlen(name)) == 0) {
            if (found || !read_disposition(at + strlen(name), line_end, out)) { return false; }
            found = true;
        }
        at = line_end + 2;
    }
    return found;
}

enum status multipart_next(struct multipart *multipart, struct multipart_part *out, bool *more, struct err *err)
{
    char head[MULTIPART_HEAD_MAX];
    size_t got, length = multipart->delimiter_bytes;
    *out = (struct multipart_part){0};
    *more = false;
    if (multipart->at == 0) { /* the first delimiter has no CRLF before it */
        TRY(read_at(multipart, 0, head, length - 2, &got, err));
        if (got < length - 2 || memcmp(head, multipart->delimiter + 2, got) != 0) {
            return err_set(err, STATUS_BAD_INPUT, "the body does not begin with its boundary");
        }
        multipart->at = length - 2;
    }
    TRY(read_at(multipart, multipart->at, head, sizeof head, &got, err));
    if (got >= 2 && memcmp(head, "--", 2) == 0) {
        bool clean = got == 2 || (got == 4 && memcmp(head + 2, "\r\n", 2) == 0);
        return clean ? STATUS_OK : err_set(err, STATUS_BAD_INPUT, "the body goes on after its last part");
    }
    const char *end = got >= 2 && memcmp(head, "\r\n", 2) == 0 ? memmem(head, got, "\r\n\r\n", 4) : NULL;
    if (!end || end == head || !read_head(head + 2, end, out)) {
        return err_set(err, STATUS_BAD_INPUT, "a part of the body has no head with a name");
    }
    out->begin = multipart->at + (uint64_t)(end - head) + 4;
    uint64_t found = 0;
    TRY(find_delimiter(multipart, out->begin - 2, &found, err)); /* without content its CRLF may be that of the head */
    out->end = found > out->begin ? found : out->begin;
    multipart->at = found + length;
    *more = true;
    return STATUS_OK;
}
