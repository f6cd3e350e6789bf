#include "cli/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/utf8.h"

enum { PIECE_BYTES = 1 << 18 };

enum status lines_open(struct lines *lines, const char *path, struct err *err)
{
    bool standard = strcmp(path, "-") == 0;
    *lines = (struct lines){.name = standard ? "standard input" : path};
    lines->fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (lines->fd < 0)
        return err_set_errno(err, "cannot open %s", path);
    struct stat info;
    if (fstat(lines->fd, &info) == 0 && S_ISREG(info.st_mode))
        lines->size_bytes = (uint64_t)info.st_size;
    return STATUS_OK;
}

void lines_close(struct lines *lines)
{
    if (lines->fd > STDIN_FILENO)
        close(lines->fd);
    buffer_free(&lines->buffer);
}

/* Reads one more piece behind the content; drops what was given out first. */
static enum status read_piece(struct lines *lines, struct err *err)
{
    buffer_consume(&lines->buffer, lines->at);
    lines->at = 0;
    if (lines->buffer.length > LINES_MAX_BYTES)
        return err_set(err, STATUS_BAD_INPUT, "%s line %llu: longer than %d bytes", lines->name,
                       (unsigned long long)lines->number + 1, LINES_MAX_BYTES);
    char *to = buffer_reserve(&lines->buffer, PIECE_BYTES);
    if (to == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory to read %s", lines->name);
    ssize_t got;
    do
        got = read(lines->fd, to, PIECE_BYTES);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return err_set_errno(err, "cannot read %s", lines->name);
    lines->buffer.length += (size_t)got;
    lines->ended = got == 0;
    return STATUS_OK;
}

static enum status check_text(const struct lines *lines, const struct line *line, struct err *err)
{
    size_t valid = utf8_valid_prefix(line->text, line->length);
    if (valid == line->length)
        return STATUS_OK;
    return err_set(err, STATUS_BAD_INPUT, "%s line %llu: not UTF-8 at byte %zu; convert the file first (iconv)",
                   lines->name, (unsigned long long)lines->number, valid);
}

enum status lines_next(struct lines *lines, struct line *out, struct err *err)
{
    size_t searched = 0;
    for (;;) {
        const char *begin = lines->buffer.data + lines->at;
        size_t have = lines->buffer.length - lines->at;
        const char *feed = have > searched ? memchr(begin + searched, '\n', have - searched) : NULL;
        if (feed == NULL && !lines->ended) {
            searched = have;
            enum status status = read_piece(lines, err);
            if (status != STATUS_OK)
                return status;
            continue;
        }
        *out = (struct line){0};
        if (feed == NULL && have == 0)
            return STATUS_OK;
        out->text = begin;
        out->length = feed == NULL ? have : (size_t)(feed - begin);
        size_t taken = out->length + (feed != NULL);
        lines->at += taken;
        lines->read_bytes += taken;
        lines->number++;
        return check_text(lines, out, err);
    }
}
