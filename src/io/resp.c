/* The RESP reader: hiredis' state machine with our objects, which are carved from an arena and counted.
 *
 * hiredis hands over each object's parent and index; an array's items lie in one block, so an object's place is known
 * when it is made. Nothing is freed one by one: the arena is emptied before the next reply begins.
 *
 * hiredis makes a string when it has all of its bytes. One that is to be dropped is known by its length, which comes
 * first: the codec is told that it is nil, and its bytes never reach the codec. */
#include "io/resp.h"

#include <hiredis/hiredis.h>
#include <hiredis/sds.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "io/arena.h"

struct resp_reader {
    redisReader *codec;
    struct arena arena;
    size_t max_bytes, cut_bytes;
    size_t skip;               /* bytes to come of a string that is dropped */
    size_t cut;                /* the next nil stands for a string of that length */
    struct resp_value nowhere; /* stands for all that is in a dropped array */
    bool too_large;            /* why the codec was told that memory had run out */
    bool delivered;            /* the arena holds a reply that has been returned */
    struct err broken;
};

static void *reserve(const redisReadTask *task, size_t bytes)
{
    struct resp_reader *reader = task->privdata;
    if (bytes > reader->max_bytes || arena_used(&reader->arena) > reader->max_bytes - bytes) {
        reader->too_large = true;
        return NULL;
    }
    return arena_take(&reader->arena, bytes);
}

/* The place of the object: in its parent's items, or a new root; nowhere, where the parent was dropped. */
static struct resp_value *place(const redisReadTask *task)
{
    struct resp_reader *reader = task->privdata;
    struct resp_value *value;
    if (task->parent) {
        const struct resp_value *parent = task->parent->obj;
        if (parent->type == RESP_CUT) {
            return &reader->nowhere;
        }
        value = &parent->items[task->idx];
    } else {
        value = reserve(task, sizeof *value);
    }
    if (value) {
        *value = (struct resp_value){.type = RESP_NIL};
    }
    return value;
}

/* A value that does not fit: dropped, where the reader drops anything. */
static void *cut(const redisReadTask *task, struct resp_value *value, size_t length)
{
    struct resp_reader *reader = task->privdata;
    if (!value || !reader->cut_bytes || !reader->too_large) {
        return NULL;
    }
    reader->too_large = false;
    *value = (struct resp_value){.type = RESP_CUT, .length = length};
    return value;
}

static bool is_nowhere(const redisReadTask *task, const struct resp_value *value)
{
    const struct resp_reader *reader = task->privdata;
    return value == &reader->nowhere;
}

static void *make_string(const redisReadTask *task, char *bytes, size_t length)
{
    struct resp_reader *reader = task->privdata;
    struct resp_value *value = place(task);
    if (value && is_nowhere(task, value)) {
        return value;
    }
    reader->too_large = value && reader->cut_bytes && task->type == REDIS_REPLY_STRING && length > reader->cut_bytes;
    char *copy = value && !reader->too_large ? reserve(task, length + 1) : NULL;
    if (!copy) {
        return cut(task, value, length);
    }
    memcpy(copy, bytes, length);
    copy[length] = '\0';
    value->type = task->type == REDIS_REPLY_ERROR    ? RESP_ERROR
                  : task->type == REDIS_REPLY_STATUS ? RESP_STATUS
                                                     : RESP_STRING;
    value->bytes = copy;
    value->length = length;
    return value;
}

static void *make_array(const redisReadTask *task, int count)
{
    struct resp_value *value = place(task);
    if (!value || count < 0) {
        return NULL;
    }
    if (is_nowhere(task, value)) {
        return value;
    }
    struct resp_value *items = NULL;
    if (count > 0) {
        items = reserve(task, (size_t)count * sizeof *items);
        if (!items) {
            return cut(task, value, (size_t)count * sizeof *items);
        }
    }
    value->type = RESP_ARRAY;
    value->items = items;
    value->count = (size_t)count;
    return value;
}

static void *make_integer(const redisReadTask *task, long long integer)
{
    struct resp_value *value = place(task);
    if (value && !is_nowhere(task, value)) {
        value->type = RESP_INTEGER;
        value->integer = integer;
    }
    return value;
}

static void *make_nil(const redisReadTask *task)
{
    struct resp_reader *reader = task->privdata;
    struct resp_value *value = place(task);
    if (value && reader->cut > 0 && !is_nowhere(task, value)) {
        *value = (struct resp_value){.type = RESP_CUT, .length = reader->cut};
    }
    reader->cut = 0;
    return value;
}

static void keep_object(void *object)
{
    (void)object; /* the arena owns it */
}

enum status resp_open(size_t max_bytes, size_t cut_bytes, struct resp_reader **out, struct err *err)
{
    static redisReplyObjectFunctions functions = {make_string, make_array, make_integer, make_nil, keep_object};
    struct resp_reader *reader = calloc(1, sizeof *reader);
    if (reader) {
        reader->codec = redisReaderCreateWithFunctions(&functions);
    }
    if (!reader || !reader->codec) {
        free(reader);
        return err_set(err, STATUS_NO_MEMORY, "no memory for a Redis connection");
    }
    reader->max_bytes = max_bytes;
    reader->cut_bytes = cut_bytes;
    reader->nowhere.type = RESP_CUT;
    reader->codec->privdata = reader; /* the macro for it casts a pointer to int */
    *out = reader;
    return STATUS_OK;
}

void resp_close(struct resp_reader *reader)
{
    if (reader) {
        redisReaderFree(reader->codec);
        arena_free(&reader->arena);
        free(reader);
    }
}

static enum status fail(struct resp_reader *reader, enum status status, const char *message, struct err *err)
{
    err_set(&reader->broken, status, "%s", message);
    return err_set(err, status, "%s", message);
}

enum status resp_feed(struct resp_reader *reader, const char *bytes, size_t length, struct err *err)
{
    if (reader->broken.status) {
        return err_set(err, reader->broken.status, "%s", reader->broken.message);
    }
    size_t skipped = length < reader->skip ? length : reader->skip;
    reader->skip -= skipped;
    if (skipped < length && redisReaderFeed(reader->codec, bytes + skipped, length - skipped) != REDIS_OK) {
        return fail(reader, STATUS_NO_MEMORY, "no memory for an answer of Redis", err);
    }
    return STATUS_OK;
}

/* The size that a text on its way has announced, 0 for none: where the codec waits behind a whole line of digits, it
 * waits for that many bytes. A text that cannot fit is refused before it has arrived. */
static size_t announced_bytes(const struct resp_reader *reader)
{
    const char *at = reader->codec->buf + reader->codec->pos, *end = reader->codec->buf + reader->codec->len;
    size_t bytes = 0;
    if (reader->codec->ridx < 0 || reader->codec->rstack[reader->codec->ridx].type != REDIS_REPLY_STRING) {
        return 0; /* half a line of another kind */
    }
    for (; at < end && *at >= '0' && *at <= '9' && bytes < SIZE_MAX / 16; at++) {
        bytes = bytes * 10 + (size_t)(*at - '0');
    }
    return at < end && *at == '\r' ? bytes : 0;
}

/* Tells the codec that the string which it waits for is nil, and drops what has come of it. */
static void drop_string(struct resp_reader *reader, size_t length)
{
    redisReader *codec = reader->codec;
    char *header = codec->buf + codec->pos, *end = memchr(header, '\r', codec->len - codec->pos);
    size_t behind = (size_t)(end + 2 - codec->buf);
    reader->skip = length + 2 - (codec->len - behind);
    reader->cut = length;
    memcpy(end - 2, "-1", 2);
    codec->pos = (size_t)(end - 2 - codec->buf);
    sdsrange(codec->buf, 0, (ssize_t)behind - 1);
    codec->len = behind;
}

/* Whether the codec waits for a string that is to be dropped; then it has been. */
static bool dropped(struct resp_reader *reader)
{
    size_t length = reader->cut_bytes ? announced_bytes(reader) : 0;
    const redisReader *codec = reader->codec;
    if (length == 0 || !memchr(codec->buf + codec->pos, '\n', codec->len - codec->pos)) {
        return false;
    }
    if (length <= reader->cut_bytes / 16 || /* small ones have come soon */
        (length <= reader->cut_bytes && arena_used(&reader->arena) + length < reader->max_bytes)) {
        return false;
    }
    drop_string(reader, length);
    return true;
}

enum status resp_next(struct resp_reader *reader, const struct resp_value **out, struct err *err)
{
    *out = NULL;
    if (reader->broken.status) {
        return err_set(err, reader->broken.status, "%s", reader->broken.message);
    }
    if (reader->delivered) {
        arena_reset(&reader->arena);
        reader->delivered = false;
    }
    void *root = NULL;
    int result;
    do {
        result = redisReaderGetReply(reader->codec, &root);
    } while (result == REDIS_OK && !root && dropped(reader));
    if (result != REDIS_OK) {
        if (reader->too_large) {
            return fail(reader, STATUS_UNSUPPORTED, "an answer of Redis is larger than the limit", err);
        }
        bool memory = reader->codec->err == REDIS_ERR_OOM;
        return fail(reader, memory ? STATUS_NO_MEMORY : STATUS_BAD_INPUT,
                    memory ? "no memory for an answer of Redis" : "the peer does not speak RESP", err);
    }
    if (!root) {
        size_t waiting = reader->codec->len - reader->codec->pos, announced = announced_bytes(reader);
        waiting = waiting > announced ? waiting : announced;
        if (!reader->cut_bytes && waiting + arena_used(&reader->arena) > reader->max_bytes) {
            return fail(reader, STATUS_UNSUPPORTED, "an answer of Redis is larger than the limit", err);
        }
        return STATUS_OK;
    }
    reader->delivered = true;
    *out = root;
    return STATUS_OK;
}
