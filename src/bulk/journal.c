/* A record: u32 kind, u32 length of the content, u64 XXH3 of both and the content, the content. Little-endian. */
#include "bulk/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file.h"

enum { HEAD = 16, CONTENT_MAX = sizeof(struct done) * JOURNAL_DONE_MAX, PIECE_BYTES = 1 << 20 };

_Static_assert((int)CONTENT_MAX >= (int)JOURNAL_TERMS_MAX, "every content has room");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "contents are written as they are in memory");
_Static_assert(sizeof(struct done) == 24 && sizeof(struct checkpoint) == 8 * (8 + JOURNAL_FILES), "without padding");

struct journal {
    int fd;
    const char *path;
    struct buffer out;          /* records that are not written yet */
    struct buffer done, sealed; /* rows that were added, and rows that the next write takes */
    uint64_t length;            /* of the file */
    bool torn;                  /* the file may end with part of a record, which is cut off before the next append */
};

/* The beginning of a record. */
struct head {
    uint32_t kind, length;
    uint64_t checksum; /* of kind, length and content */
};

_Static_assert(sizeof(struct head) == HEAD, "without padding");

static uint64_t checksum(const struct head *head, const void *content)
{
    uint64_t seed;
    memcpy(&seed, head, sizeof seed);
    return XXH3_64bits_withSeed(content, head->length, seed);
}

size_t journal_read(const char *bytes, size_t length, struct journal_record *out)
{
    struct head head;
    if (length < HEAD) { return 0; }
    memcpy(&head, bytes, sizeof head);
    const char *content = bytes + HEAD;
    uint32_t size = head.length;
    if (size > CONTENT_MAX || size > length - HEAD || checksum(&head, content) != head.checksum) { return 0; }
    *out = (struct journal_record){.kind = (enum journal_kind)head.kind};
    if (head.kind == JOURNAL_TERMS) {
        out->terms = content;
        out->terms_bytes = size;
    } else if (head.kind == JOURNAL_DONE && size % sizeof(struct done) == 0) {
        out->done = content;
        out->done_count = size / sizeof(struct done);
    } else if (head.kind == JOURNAL_CHECKPOINT && size == sizeof out->checkpoint) {
        memcpy(&out->checkpoint, content, size);
    } else if (head.kind == JOURNAL_SEED && size == sizeof out->seed) {
        memcpy(&out->seed, content, size);
    } else {
        return 0;
    }
    return HEAD + size;
}

struct done journal_done(const struct journal_record *record, size_t number)
{
    struct done done;
    memcpy(&done, record->done + number * sizeof done, sizeof done);
    return done;
}

/* Passes the complete records of a buffer to `seen` and consumes them. */
static enum status see_records(struct buffer *buffer, uint64_t *length, journal_seen *seen, void *context,
                               struct err *err)
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

static enum status replay(struct journal *journal, journal_seen *seen, void *context, struct err *err)
{
    struct buffer buffer = {0};
    enum status status = STATUS_OK;
    for (ssize_t got = 1; got > 0 && status == STATUS_OK && buffer.length < HEAD + CONTENT_MAX;) {
        char *to = buffer_reserve(&buffer, PIECE_BYTES);
        if (!to) {
            status = err_set(err, STATUS_NO_MEMORY, "no memory to read %s", journal->path);
            break;
        }
        got = read(journal->fd, to, PIECE_BYTES);
        if (got < 0 && errno == EINTR) {
            got = 1;
        } else if (got < 0) {
            status = err_set_errno(err, "cannot read %s", journal->path);
        } else {
            buffer.length += (size_t)got;
        }
        if (status == STATUS_OK) { status = see_records(&buffer, &journal->length, seen, context, err); }
    }
    buffer_free(&buffer);
    journal->torn = true; /* anything may follow the last good record */
    return status;
}

enum status journal_open(const char *path, journal_seen *seen, void *context, struct journal **out, struct err *err)
{
    struct journal *journal = calloc(1, sizeof *journal);
    if (!journal) { return err_set(err, STATUS_NO_MEMORY, "no memory for the journal"); }
    journal->path = path;
    enum status status = file_make(path, O_RDWR, &journal->fd, err);
    if (status == STATUS_OK && flock(journal->fd, LOCK_EX | LOCK_NB) != 0) {
        status = err_set(err, STATUS_UNAVAILABLE, "another process works on this job (%s is locked)", path);
    }
    if (status == STATUS_OK) { status = replay(journal, seen, context, err); }
    if (status != STATUS_OK) {
        journal_close(journal);
        return status;
    }
    *out = journal;
    return STATUS_OK;
}

void journal_close(struct journal *journal)
{
    if (!journal) { return; }
    if (journal->fd >= 0) { close(journal->fd); }
    buffer_free(&journal->out);
    buffer_free(&journal->done);
    buffer_free(&journal->sealed);
    free(journal);
}

static void put_record(struct buffer *to, enum journal_kind kind, const void *content, size_t length)
{
    struct head head = {.kind = kind, .length = (uint32_t)length};
    head.checksum = checksum(&head, content);
    buffer_append(to, &head, sizeof head);
    buffer_append(to, content, length);
}

/* Appends `out` to the file. */
static enum status append(struct journal *journal, struct err *err)
{
    if (!buffer_ok(&journal->out)) { return err_set(err, STATUS_NO_MEMORY, "no memory for the journal"); }
    if (journal->torn && (ftruncate(journal->fd, (off_t)journal->length) != 0 ||
                          lseek(journal->fd, (off_t)journal->length, SEEK_SET) < 0)) {
        return err_set_errno(err, "cannot write %s", journal->path);
    }
    journal->torn = true;
    TRY(file_put(journal->fd, journal->out.data, journal->out.length, journal->path, err));
    journal->torn = false;
    journal->length += journal->out.length;
    journal->out.length = 0;
    return STATUS_OK;
}

enum status journal_put_terms(struct journal *journal, const char *terms, size_t length, struct err *err)
{
    if (length > JOURNAL_TERMS_MAX) {
        return err_set(err, STATUS_BAD_INPUT, "the options of this job are longer than %d bytes", JOURNAL_TERMS_MAX);
    }
    put_record(&journal->out, JOURNAL_TERMS, terms, length);
    return append(journal, err);
}

enum status journal_put_seed(struct journal *journal, uint64_t seed, struct err *err)
{
    put_record(&journal->out, JOURNAL_SEED, &seed, sizeof seed);
    return append(journal, err);
}

void journal_add_done(struct journal *journal, struct done done)
{
    buffer_append(&journal->done, &done, sizeof done);
}

enum status journal_seal(struct journal *journal, struct err *err)
{
    buffer_append(&journal->sealed, journal->done.data, journal->done.length); /* `sealed` is usually empty */
    journal->done.length = 0;
    bool good = buffer_ok(&journal->done) && buffer_ok(&journal->sealed);
    return good ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for the journal");
}

enum status journal_write(struct journal *journal, const struct checkpoint *checkpoint, struct err *err)
{
    for (size_t at = 0; at < journal->sealed.length; at += CONTENT_MAX) {
        size_t left = journal->sealed.length - at;
        put_record(&journal->out, JOURNAL_DONE, journal->sealed.data + at, left < CONTENT_MAX ? left : CONTENT_MAX);
    }
    journal->sealed.length = 0;
    if (checkpoint) { put_record(&journal->out, JOURNAL_CHECKPOINT, checkpoint, sizeof *checkpoint); }
    TRY(append(journal, err));
    if (fdatasync(journal->fd) != 0) { return err_set_errno(err, "cannot write %s", journal->path); }
    return STATUS_OK;
}
