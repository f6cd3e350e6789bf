/* The reader is hiredis' state machine with our objects, which are taken from an arena and counted.
 *
 * hiredis passes each object's parent and index; an array's items are in one block, so an object's address is known
 * when it is made. Nothing is freed one by one: the arena is emptied before the next reply begins.
 *
 * hiredis makes a string once it has all its bytes. A string to drop is known earlier, by its length: the codec gets a
 * nil in its place, and never its bytes. */
#include "redis/resp.h"

#include <hiredis/hiredis.h>
#include <hiredis/sds.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/request.h"

enum { BLOCK_FIRST = 16 << 10, BLOCK_KEPT = 1 << 20, BLOCK_LARGEST = 4 << 20 };
enum { HEADER_ROOM = 24 }; /* for the number of words, which comes first on the wire but is known last */

/* --- Memory of a reply -------------------------------------------------------------------------------------------- */

struct arena_block {
    struct arena_block *older;
    size_t size, used;
    alignas(max_align_t) char bytes[];
};

/* Memory for one reply, all freed at once. */
struct arena {
    struct arena_block *blocks; /* the newest first; each is larger than the one before it */
    size_t used;
};

static struct arena_block *add_block(struct arena *arena, size_t bytes)
{
    size_t size = arena->blocks ? arena->blocks->size * 2 : BLOCK_FIRST;
    if (size > BLOCK_LARGEST) { size = BLOCK_LARGEST; }
    if (size < bytes) { size = bytes; }
    if (size > SIZE_MAX - sizeof(struct arena_block)) { return NULL; }
    struct arena_block *block = malloc(sizeof *block + size);
    if (block) {
        block->older = arena->blocks;
        block->size = size;
        block->used = 0;
        arena->blocks = block;
    }
    return block;
}

/* Returns aligned memory that lives until arena_reset, or NULL. */
static void *arena_take(struct arena *arena, size_t bytes)
{
    size_t align = alignof(max_align_t);
    if (bytes > SIZE_MAX - align) { return NULL; }
    bytes = (bytes + align - 1) / align * align;
    struct arena_block *block = arena->blocks;
    if (!block || block->size - block->used < bytes) {
        block = add_block(arena, bytes);
        if (!block) { return NULL; }
    }
    void *memory = block->bytes + block->used;
    block->used += bytes;
    arena->used += bytes;
    return memory;
}

static void drop_blocks(struct arena_block *block)
{
    while (block) {
        struct arena_block *older = block->older;
        free(block);
        block = older;
    }
}

static void arena_free(struct arena *arena)
{
    drop_blocks(arena->blocks);
    *arena = (struct arena){0};
}

/* Frees everything but one block of ordinary size, for the next reply. */
static void arena_reset(struct arena *arena)
{
    struct arena_block *newest = arena->blocks;
    if (newest && newest->size <= BLOCK_KEPT) {
        drop_blocks(newest->older);
        newest->older = NULL;
        newest->used = 0;
    } else {
        arena_free(arena);
    }
    arena->used = 0;
}

/* --- The reader --------------------------------------------------------------------------------------------------- */

struct resp_reader {
    redisReader *codec;
    struct arena arena;
    size_t max_bytes, cut_bytes;
    size_t skip;               /* bytes still to drop of a string */
    size_t cut;                /* the length of the dropped string that the next nil stands for */
    struct resp_value dropped; /* stands for every item of a dropped array */
    bool too_large;            /* the reason why the codec was refused memory */
    bool delivered;            /* the arena holds a reply that the caller has */
    struct err broken;
};

static void *reserve_items(const redisReadTask *task, size_t bytes)
{
    struct resp_reader *reader = task->privdata;
    if (bytes > reader->max_bytes || reader->arena.used > reader->max_bytes - bytes) {
        reader->too_large = true;
        return NULL;
    }
    return arena_take(&reader->arena, bytes);
}

/* The value of an object: an item of its parent, a new root, or `dropped` if the parent was dropped. */
static struct resp_value *value_of(const redisReadTask *task)
{
    struct resp_reader *reader = task->privdata;
    struct resp_value *value;
    if (task->parent) {
        const struct resp_value *parent = task->parent->obj;
        if (parent->type == RESP_CUT) { return &reader->dropped; }
        value = &parent->items[task->idx];
    } else {
        value = reserve_items(task, sizeof *value);
    }
    if (value) { *value = (struct resp_value){.type = RESP_NIL}; }
    return value;
}

/* Drops a value that does not fit, if the reader drops any. */
static void *cut_value(const redisReadTask *task, struct resp_value *value, size_t length)
{
    struct resp_reader *reader = task->privdata;
    if (!value || !reader->cut_bytes || !reader->too_large) { return NULL; }
    reader->too_large = false;
    *value = (struct resp_value){.type = RESP_CUT, .length = length};
    return value;
}

static bool is_dropped(const redisReadTask *task, const struct resp_value *value)
{
    const struct resp_reader *reader = task->privdata;
    return value == &reader->dropped;
}

static void *make_string(const redisReadTask *task, char *bytes, size_t length)
{
    struct resp_reader *reader = task->privdata;
    struct resp_value *value = value_of(task);
    if (!value || is_dropped(task, value)) { return value; }
    reader->too_large = reader->cut_bytes && task->type == REDIS_REPLY_STRING && length > reader->cut_bytes;
    char *copy = reader->too_large ? NULL : reserve_items(task, length + 1);
    if (!copy) { return cut_value(task, value, length); }
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
    struct resp_value *value = value_of(task);
    if (!value || count < 0) { return NULL; }
    if (is_dropped(task, value)) { return value; }
    struct resp_value *items = NULL;
    if (count > 0) {
        items = reserve_items(task, (size_t)count * sizeof *items);
        if (!items) { return cut_value(task, value, (size_t)count * sizeof *items); }
    }
    value->type = RESP_ARRAY;
    value->items = items;
    value->count = (size_t)count;
    return value;
}

static void *make_integer(const redisReadTask *task, long long integer)
{
    struct resp_value *value = value_of(task);
    if (value && !is_dropped(task, value)) {
        value->type = RESP_INTEGER;
        value->integer = integer;
    }
    return value;
}

static void *make_nil(const redisReadTask *task)
{
    struct resp_reader *reader = task->privdata;
    struct resp_value *value = value_of(task);
    if (value && reader->cut > 0 && !is_dropped(task, value)) {
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
    if (reader) { reader->codec = redisReaderCreateWithFunctions(&functions); }
    if (!reader || !reader->codec) {
        free(reader);
        return err_set(err, STATUS_NO_MEMORY, "no memory for a Redis connection");
    }
    reader->max_bytes = max_bytes;
    reader->cut_bytes = cut_bytes;
    reader->dropped.type = RESP_CUT;
    reader->codec->privdata = reader; /* the macro that sets it casts a pointer to int */
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

static enum status fail_parse(struct resp_reader *reader, enum status status, const char *message, struct err *err)
{
    err_set(&reader->broken, status, "%s", message);
    return err_set(err, status, "%s", message);
}

enum status resp_feed(struct resp_reader *reader, const char *bytes, size_t length, struct err *err)
{
    if (reader->broken.status) { return err_set(err, reader->broken.status, "%s", reader->broken.message); }
    size_t skipped = length < reader->skip ? length : reader->skip;
    reader->skip -= skipped;
    if (skipped < length && redisReaderFeed(reader->codec, bytes + skipped, length - skipped) != REDIS_OK) {
        return fail_parse(reader, STATUS_NO_MEMORY, "no memory for an answer of Redis", err);
    }
    return STATUS_OK;
}

/* The announced size of the string that is arriving, 0 for none. The codec waits after that complete line of digits, so
 * a string that cannot fit is refused before it arrives. */
static size_t announced_bytes(const struct resp_reader *reader)
{
    const char *at = reader->codec->buf + reader->codec->pos, *end = reader->codec->buf + reader->codec->len;
    size_t bytes = 0;
    if (reader->codec->ridx < 0 || reader->codec->rstack[reader->codec->ridx].type != REDIS_REPLY_STRING) {
        return 0; /* an incomplete line, or another type */
    }
    for (; at < end && *at >= '0' && *at <= '9' && bytes < SIZE_MAX / 16; at++) {
        bytes = bytes * 10 + (size_t)(*at - '0');
    }
    return at < end && *at == '\r' ? bytes : 0;
}

/* Gives the codec a nil for the string that it waits for, and drops the bytes that have arrived. */
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

/* Drops the string that the codec waits for, if it is too large. True if it did. */
static bool drop_too_large(struct resp_reader *reader)
{
    size_t length = reader->cut_bytes ? announced_bytes(reader) : 0;
    const redisReader *codec = reader->codec;
    if (length == 0 || !memchr(codec->buf + codec->pos, '\n', codec->len - codec->pos)) { return false; }
    if (length <= reader->cut_bytes / 16 || /* small ones arrive soon */
        (length <= reader->cut_bytes && reader->arena.used + length < reader->max_bytes)) {
        return false;
    }
    drop_string(reader, length);
    return true;
}

enum status resp_next(struct resp_reader *reader, const struct resp_value **out, struct err *err)
{
    *out = NULL;
    if (reader->broken.status) { return err_set(err, reader->broken.status, "%s", reader->broken.message); }
    if (reader->delivered) {
        arena_reset(&reader->arena);
        reader->delivered = false;
    }
    void *root = NULL;
    int result;
    do {
        result = redisReaderGetReply(reader->codec, &root);
    } while (result == REDIS_OK && !root && drop_too_large(reader));
    if (result != REDIS_OK) {
        if (reader->too_large) {
            return fail_parse(reader, STATUS_UNSUPPORTED, "an answer of Redis is larger than the limit", err);
        }
        bool memory = reader->codec->err == REDIS_ERR_OOM;
        return fail_parse(reader, memory ? STATUS_NO_MEMORY : STATUS_BAD_INPUT,
                          memory ? "no memory for an answer of Redis" : "the peer does not speak RESP", err);
    }
    if (!root) {
        size_t waiting = reader->codec->len - reader->codec->pos, announced = announced_bytes(reader);
        waiting = waiting > announced ? waiting : announced;
        if (!reader->cut_bytes && waiting + reader->arena.used > reader->max_bytes) {
            return fail_parse(reader, STATUS_UNSUPPORTED, "an answer of Redis is larger than the limit", err);
        }
        return STATUS_OK;
    }
    reader->delivered = true;
    *out = root;
    return STATUS_OK;
}

/* --- Values ------------------------------------------------------------------------------------------------------- */

static size_t clone_size(const struct resp_value *value)
{
    size_t size = value->bytes ? value->length + 1 : 0;
    for (size_t i = 0; i < value->count; i++) { size += sizeof *value + clone_size(&value->items[i]); }
    return size;
}

/* Values first, then bytes, so that all values are aligned. */
struct clone {
    struct resp_value *values;
    char *bytes;
};

static void clone_into(struct clone *clone, const struct resp_value *from, struct resp_value *to)
{
    *to = *from;
    if (from->bytes) {
        memcpy(clone->bytes, from->bytes, from->length + 1);
        to->bytes = clone->bytes;
        clone->bytes += from->length + 1;
    }
    if (from->count) {
        struct resp_value *items = clone->values;
        clone->values += from->count;
        to->items = items;
        for (size_t i = 0; i < from->count; i++) { clone_into(clone, &from->items[i], &items[i]); }
    }
}

static size_t count_values(const struct resp_value *value)
{
    size_t count = 1;
    for (size_t i = 0; i < value->count; i++) { count += count_values(&value->items[i]); }
    return count;
}

struct resp_value *resp_clone(const struct resp_value *value)
{
    struct resp_value *block = malloc(sizeof *value + clone_size(value));
    if (block) {
        struct clone clone = {block + 1, (char *)(block + count_values(value))};
        clone_into(&clone, value, block);
    }
    return block;
}

bool resp_is_error(const struct resp_value *value, const char *word)
{
    size_t length = strlen(word);
    return value->type == RESP_ERROR && value->length >= length && memcmp(value->bytes, word, length) == 0 &&
           (value->length == length || value->bytes[length] == ' ');
}

bool resp_equals(const struct resp_value *value, const char *text)
{
    size_t length = strlen(text);
    return (value->type == RESP_STRING || value->type == RESP_STATUS) && value->length == length &&
           memcmp(value->bytes, text, length) == 0;
}

bool resp_entry_id(const struct resp_value *value, struct entry_id *id)
{
    bool ok = value && value->type == RESP_STRING && entry_id_parse(value->bytes, value->length, id);
    if (!ok) { *id = (struct entry_id){0}; }
    return ok;
}

const struct resp_value *resp_field(const struct resp_value *list, const char *name)
{
    for (size_t i = 0; list->type == RESP_ARRAY && i + 1 < list->count; i += 2) {
        if (resp_equals(&list->items[i], name)) { return &list->items[i + 1]; }
    }
    return NULL;
}

bool resp_info_field(const char *info, const char *name, char *value, size_t size)
{
    size_t length = strlen(name);
    for (const char *line = info; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0 && line[length] == ':') {
            line += length + 1;
            snprintf(value, size, "%.*s", (int)strcspn(line, "\r\n"), line);
            return true;
        }
    }
    return false;
}

enum status resp_check(const struct resp_value *value, struct err *err)
{
    static const struct {
        const char *word;
        enum status status;
        const char *advice;
    } codes[] = {
        {"NOAUTH", STATUS_DENIED, " Set redis_password_file or redis_password."},
        {"WRONGPASS", STATUS_DENIED},
        {"NOPERM", STATUS_DENIED},
        {"DENIED", STATUS_DENIED},
        {"LOADING", STATUS_UNAVAILABLE},
        {"BUSY", STATUS_UNAVAILABLE},
        {"READONLY", STATUS_UNAVAILABLE},
        {"MISCONF", STATUS_UNAVAILABLE},
        {"MASTERDOWN", STATUS_UNAVAILABLE},
        {"NOREPLICAS", STATUS_UNAVAILABLE},
        {"CLUSTERDOWN", STATUS_UNAVAILABLE},
        {"TRYAGAIN", STATUS_UNAVAILABLE},
        {"ASK", STATUS_UNAVAILABLE},
        {"MOVED", STATUS_UNAVAILABLE},
        {"OOM", STATUS_UNAVAILABLE},
        {"ERR max number of clients", STATUS_UNAVAILABLE}, /* has no code of its own */
        {"ERR unknown command", STATUS_INTERNAL, " Is this a Sentinel? Its address is redis+sentinel://HOST:PORT/NAME"},
    };
    if (value->type != RESP_ERROR) { return STATUS_OK; }
    /* Redis adds the script's digest to the error, which helps nobody. */
    const char *end = memmem(value->bytes, value->length, " script: ", strlen(" script: "));
    size_t length = end ? (size_t)(end - value->bytes) : value->length;
    enum status status = STATUS_INTERNAL;
    const char *advice = "";
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (resp_is_error(value, codes[i].word)) {
            status = codes[i].status;
            advice = codes[i].advice ? codes[i].advice : "";
        }
    }
    return err_set(err, status, "Redis says: %.*s%s", length > 400 ? 400 : (int)length, value->bytes, advice);
}

/* --- Refusals ----------------------------------------------------------------------------------------------------- */

#define KEY_BEGINS "sluice:{"
#define KEY_LINE "\n" KEY_BEGINS /* a key, after the line that holds its length */

const struct resp_value *resp_explain_keys(const struct resp_value *reply, const char *head, size_t length,
                                           char text[RESP_TEXT_BYTES], struct resp_value *explained)
{
    if (!resp_is_error(reply, "NOPERM") || strstr(reply->bytes, KEY_BEGINS)) { return reply; }
    int used = snprintf(text, RESP_TEXT_BYTES, "%.*s", (int)(reply->length < 200 ? reply->length : 200), reply->bytes);
    const char *separator = ": ", *at = head, *end = head + length;
    while (used < RESP_TEXT_BYTES && (at = memmem(at, (size_t)(end - at), KEY_LINE, strlen(KEY_LINE)))) {
        at++;
        const char *stop = memchr(at, '\r', (size_t)(end - at));
        int size = (int)((stop ? stop : end) - at);
        used +=
            snprintf(text + used, RESP_TEXT_BYTES - (size_t)used, "%s%.*s%s", separator, size, at, stop ? "" : "...");
        separator = " ";
        at += size;
    }
    *explained = (struct resp_value){.type = RESP_ERROR, .bytes = text, .length = strlen(text)};
    return explained;
}

/* --- Commands ----------------------------------------------------------------------------------------------------- */

static size_t put_number(char *end, uint64_t number)
{
    size_t digits = 0;
    do {
        *--end = (char)('0' + number % 10);
        number /= 10;
        digits++;
    } while (number);
    return digits;
}

void command_bytes(struct command *command, const void *bytes, size_t length)
{
    struct buffer *buffer = &command->buffer;
    char *to = buffer_reserve(buffer, length + (buffer->length ? HEADER_ROOM : 2 * HEADER_ROOM));
    if (!to) { return; }
    if (!buffer->length) {
        memset(to, ' ', HEADER_ROOM);
        buffer->length = HEADER_ROOM;
        to += HEADER_ROOM;
    }
    char number[20];
    size_t digits = put_number(number + sizeof number, length);
    *to++ = '$';
    memcpy(to, number + sizeof number - digits, digits);
    to += digits;
    memcpy(to, "\r\n", 2);
    if (length) { memcpy(to + 2, bytes, length); }
    memcpy(to + 2 + length, "\r\n", 2);
    buffer->length += 1 + digits + 2 + length + 2;
    command->words++;
}

void command_text(struct command *command, const char *text)
{
    command_bytes(command, text, strlen(text));
}

void command_number(struct command *command, uint64_t number)
{
    char text[20];
    size_t digits = put_number(text + sizeof text, number);
    command_bytes(command, text + sizeof text - digits, digits);
}

void command_pair(struct command *command, const char *field, const char *value)
{
    command_text(command, field);
    command_text(command, value);
}

void command_count(struct command *command, const char *field, uint64_t number)
{
    command_text(command, field);
    command_number(command, number);
}

void command_list(struct command *command, size_t count, const char *const *words, const size_t *lengths)
{
    for (size_t i = 0; i < count; i++) { command_bytes(command, words[i], lengths ? lengths[i] : strlen(words[i])); }
}

enum status command_finish(struct command *command, const char **bytes, size_t *length, struct err *err)
{
    if (!buffer_ok(&command->buffer) || !command->words) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for a Redis command");
    }
    char *end = command->buffer.data + HEADER_ROOM;
    memcpy(end - 2, "\r\n", 2);
    size_t digits = put_number(end - 2, command->words);
    char *start = end - 2 - digits - 1;
    *start = '*';
    *bytes = start;
    *length = command->buffer.length - (size_t)(start - command->buffer.data);
    return STATUS_OK;
}

void command_free(struct command *command)
{
    buffer_free(&command->buffer);
    command->words = 0;
}

uint64_t resp_time_ms(const struct resp_value *reply)
{
    if (reply->type != RESP_ARRAY || reply->count != 2 || !reply->items[0].bytes || !reply->items[1].bytes) {
        return 0;
    }
    return strtoull(reply->items[0].bytes, NULL, 10) * 1000 + strtoull(reply->items[1].bytes, NULL, 10) / 1000;
}
