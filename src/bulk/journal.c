/* All numbers little-endian. A record: u32 kind, u32 bytes of content, u64 XXH3 of both and the content, content. */
#include "bulk/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/file.h"

enum {
    HEAD = 16,
    DONE_BYTES = 24,
    CHECKPOINT_WORDS = 8 + JOURNAL_TAILS,
    CONTENT_MAX = DONE_BYTES * JOURNAL_DONE_MAX,
    PIECE_BYTES = 1 << 20,
};

_Static_assert((int)CONTENT_MAX >= (int)JOURNAL_TERMS_MAX, "every content has room");

struct journal {
    int fd;
    const char *path;
    struct buffer out;          /* records that are not written yet */
    struct buffer done, sealed; /* rows: that were added, and those that are to be written */
    uint64_t length;            /* of the file */
    bool torn;                  /* the last append left part of a record behind; it is cut off first */
};

static void put_number(struct buffer *to, uint64_t value, int bytes)
{
    char text[8];
    for (int i = 0; i < bytes; i++)
        text[i] = (char)(value >> (8 * i));
    buffer_append(to, text, (size_t)bytes);
}

static uint64_t get_number(const char *from, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)(unsigned char)from[i] << (8 * i);
    return value;
}

static uint64_t checksum(const char *head, const char *content, size_t length)
{
    return XXH3_64bits_withSeed(content, length, get_number(head, 8));
}

static struct checkpoint read_checkpoint(const char *from)
{
    uint64_t words[CHECKPOINT_WORDS];
    for (int i = 0; i < CHECKPOINT_WORDS; i++)
        words[i] = get_number(from + (size_t)8 * (size_t)i, 8);
    struct checkpoint checkpoint = {words[0], words[1], words[2], words[3], words[4], words[5], {words[6], words[7]},
                                    {0}};
    memcpy(checkpoint.tails, words + 8, sizeof checkpoint.tails);
    return checkpoint;
}

size_t journal_read(const char *bytes, size_t length, struct journal_record *out)
{
    if (length < HEAD)
        return 0;
    uint64_t kind = get_number(bytes, 4), size = get_number(bytes + 4, 4);
    const char *content = bytes + HEAD;
    if (size > CONTENT_MAX || size > length - HEAD || checksum(bytes, content, size) != get_number(bytes + 8, 8))
        return 0;
    *out = (struct journal_record){.kind = (enum journal_kind)kind};
    if (kind == JOURNAL_TERMS) {
        out->terms = content;
        out->terms_bytes = size;
    } else if (kind == JOURNAL_DONE && size % DONE_BYTES == 0) {
        out->done = content;
        out->done_count = size / DONE_BYTES;
    } else if (kind == JOURNAL_CHECKPOINT && size == (size_t)8 * CHECKPOINT_WORDS) {
        out->checkpoint = read_checkpoint(content);
    } else if (kind == JOURNAL_SEED && size == 8) {
        out->seed = get_number(content, 8);
    } else {
        return 0;
    }
    return HEAD + size;
}

struct done journal_done(const struct journal_record *record, size_t number)
{
    const char *at = record->done + number * DONE_BYTES;
    return (struct done){get_number(at, 8), {get_number(at + 8, 8), get_number(at + 16, 8)}};
}

/* Gives all whole records of a buffer to `seen` and takes them off. */
static enum status see_records(struct buffer *buffer, uint64_t *length,
                               enum status (*seen)(void *context, const struct journal_record *record, struct err *err),
                               void *context, struct err *err)
{
    size_t at = 0, size;
    enum status status = STATUS_OK;
    struct journal_record record;
    while (status == STATUS_OK && (size = journal_read(buffer->data + at, buffer->length - at, &record)) > 0) {
        status = seen(context, &record, err);
        at += size;
    }
    buffer_consume(buffer, at);
    *length += at;
    return status;
}

static enum status replay(struct journal *journal,
                          enum status (*seen)(void *context, const struct journal_record *record, struct err *err),
                          void *context, struct err *err)
{
    struct buffer buffer = {0};
    enum status status = STATUS_OK;
    for (ssize_t got = 1; got > 0 && status == STATUS_OK && buffer.length < HEAD + CONTENT_MAX;) {
        char *to = buffer_reserve(&buffer, PIECE_BYTES);
        if (to == NULL) {
            status = err_set(err, STATUS_NO_MEMORY, "no memory to read %s", journal->path);
            break;
        }
        got = read(journal->fd, to, PIECE_BYTES);
        if (got < 0 && errno == EINTR)
            got = 1;
        else if (got < 0)
            status = err_set_errno(err, "cannot read %s", journal->path);
        else
            buffer.length += (size_t)got;
        if (status == STATUS_OK)
            status = see_records(&buffer, &journal->length, seen, context, err);
    }
    buffer_free(&buffer);
    journal->torn = true; /* whatever lies behind the last good record */
    return status;
}

enum status journal_open(const char *path,
                         enum status (*seen)(void *context, const struct journal_record *record, struct err *err),
                         void *context, struct journal **out, struct err *err)
{
    struct journal *journal = calloc(1, sizeof *journal);
    if (journal == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the journal");
    journal->path = path;
    enum status status = file_make(path, O_RDWR, &journal->fd, err);
    if (status == STATUS_OK && flock(journal->fd, LOCK_EX | LOCK_NB) != 0)
        status = err_set(err, STATUS_UNAVAILABLE, "another process works on this job (%s is locked)", path);
    if (status == STATUS_OK)
        status = replay(journal, seen, context, err);
    if (status != STATUS_OK) {
        journal_close(journal);
        return status;
    }
    *out = journal;
    return STATUS_OK;
}

void journal_close(struct journal *journal)
{
    if (journal == NULL)
        return;
    if (journal->fd >= 0)
        close(journal->fd);
    buffer_free(&journal->out);
    buffer_free(&journal->done);
    buffer_free(&journal->sealed);
    free(journal);
}

static void put_record(struct buffer *to, enum journal_kind kind, const char *content, size_t length)
{
    char head[8];
    for (int i = 0; i < 4; i++) {
        head[i] = (char)((unsigned)kind >> (8 * i));
        head[4 + i] = (char)(length >> (8 * i));
    }
    buffer_append(to, head, sizeof head);
    put_number(to, checksum(head, content, length), 8);
    buffer_append(to, content, length);
}

/* Appends what is in `out`. After a failure the file may hold part of it: the next time that is cut off. */
static enum status append(struct journal *journal, struct err *err)
{
    if (!buffer_ok(&journal->out))
        return err_set(err, STATUS_NO_MEMORY, "no memory for the journal");
    if (journal->torn && (ftruncate(journal->fd, (off_t)journal->length) != 0 ||
                          lseek(journal->fd, (off_t)journal->length, SEEK_SET) < 0))
        return err_set_errno(err, "cannot write %s", journal->path);
    journal->torn = true;
    for (size_t done = 0; done < journal->out.length;) {
        ssize_t wrote = write(journal->fd, journal->out.data + done, journal->out.length - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return err_set_errno(err, "cannot write %s", journal->path);
        done += (size_t)wrote;
    }
    journal->torn = false;
    journal->length += journal->out.length;
    journal->out.length = 0;
    return STATUS_OK;
}

enum status journal_put_terms(struct journal *journal, const char *terms, size_t length, struct err *err)
{
    if (length > JOURNAL_TERMS_MAX)
        return err_set(err, STATUS_BAD_INPUT, "the options of this job are longer than %d bytes", JOURNAL_TERMS_MAX);
    put_record(&journal->out, JOURNAL_TERMS, terms, length);
    return append(journal, err);
}

enum status journal_put_seed(struct journal *journal, uint64_t seed, struct err *err)
{
    char content[8];
    for (int i = 0; i < 8; i++) {
        content[i] = (char)(seed >> (8 * i));
    }
    put_record(&journal->out, JOURNAL_SEED, content, sizeof content);
    return append(journal, err);
}

static void put_checkpoint(struct journal *journal, const struct checkpoint *checkpoint)
{
    const uint64_t words[CHECKPOINT_WORDS] = {checkpoint->documents,  checkpoint->rows,        checkpoint->computed,
                                              checkpoint->copied,     checkpoint->failed,      checkpoint->tokens,
                                              checkpoint->digest.low, checkpoint->digest.high, checkpoint->tails[0],
                                              checkpoint->tails[1],   checkpoint->tails[2],    checkpoint->tails[3]};
    struct buffer content = {0};
    for (int i = 0; i < CHECKPOINT_WORDS; i++)
        put_number(&content, words[i], 8);
    if (buffer_ok(&content))
        put_record(&journal->out, JOURNAL_CHECKPOINT, content.data, content.length);
    else
        journal->out.broken = true;
    buffer_free(&content);
}

void journal_add_done(struct journal *journal, struct done done)
{
    put_number(&journal->done, done.row, 8);
    put_number(&journal->done, done.hash.low, 8);
    put_number(&journal->done, done.hash.high, 8);
}

enum status journal_seal(struct journal *journal, struct err *err)
{
    if (!buffer_ok(&journal->done))
        return err_set(err, STATUS_NO_MEMORY, "no memory for the journal");
    buffer_append(&journal->sealed, journal->done.data, journal->done.length); /* usually the first */
    journal->done.length = 0;
    return buffer_ok(&journal->sealed) ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for the journal");
}

enum status journal_write(struct journal *journal, const struct checkpoint *checkpoint, struct err *err)
{
    for (size_t at = 0; at < journal->sealed.length; at += CONTENT_MAX) {
        size_t left = journal->sealed.length - at;
        put_record(&journal->out, JOURNAL_DONE, journal->sealed.data + at, left < CONTENT_MAX ? left : CONTENT_MAX);
    }
    journal->sealed.length = 0;
    if (checkpoint != NULL)
        put_checkpoint(journal, checkpoint);
    TRY(append(journal, err));
    if (fdatasync(journal->fd) != 0)
        return err_set_errno(err, "cannot write %s", journal->path);
    return STATUS_OK;
}
