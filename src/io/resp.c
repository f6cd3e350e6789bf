/* The RESP reader: hiredis' state machine with our objects, which are carved from an arena and counted.
 *
 * hiredis hands over each object's parent and index; an array's items lie in one block, so an object's place is known
 * when it is made. Nothing is freed one by one: the arena is emptied before the next reply begins. */
#include "io/resp.h"

#include <hiredis/hiredis.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "io/arena.h"

struct resp_reader {
    redisReader *codec;
    struct arena arena;
    size_t max_bytes;
    bool too_large; /* why the codec was told that memory had run out */
    bool delivered; /* the arena holds a reply that has been returned */
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

/* The place of the object: in its parent's items, or a new root. */
static struct resp_value *place(const redisReadTask *task)
{
    struct resp_value *value;
    if (task->parent) {
        const struct resp_value *parent = task->parent->obj;
        value = &parent->items[task->idx];
    } else {
        value = reserve(task, sizeof *value);
    }
    if (value) {
        *value = (struct resp_value){.type = RESP_NIL};
    }
    return value;
}

static void *make_string(const redisReadTask *task, char *bytes, size_t length)
{
    struct resp_value *value = place(task);
    char *copy = value ? reserve(task, length + 1) : NULL;
    if (!copy) {
        return NULL;
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
    struct resp_value *items = NULL;
    if (count > 0) {
        items = reserve(task, (size_t)count * sizeof *items);
        if (!items) {
            return NULL;
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
    if (value) {
        value->type = RESP_INTEGER;
        value->integer = integer;
    }
    return value;
}

static void *make_nil(const redisReadTask *task)
{
    return place(task);
}

static void keep_object(void *object)
{
    (void)object; /* the arena owns it */
}

enum status resp_open(size_t max_bytes, struct resp_reader **out, struct err *err)
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
    if (redisReaderFeed(reader->codec, bytes, length) != REDIS_OK) {
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
    if (redisReaderGetReply(reader->codec, &root) != REDIS_OK) {
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
        if (waiting + arena_used(&reader->arena) > reader->max_bytes) {
            return fail(reader, STATUS_UNSUPPORTED, "an answer of Redis is larger than the limit", err);
        }
        return STATUS_OK;
    }
    reader->delivered = true;
    *out = root;
    return STATUS_OK;
}
