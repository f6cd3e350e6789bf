#include "bulk/remote_ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "bulk/input/json.h"

enum { TRIES = 5, AGAIN_MS = 1000, WORDS_MAX = 24, KEY_MAX = 256 };

/* What ask_look asks for, in this order. */
enum field { STATUS_FIELD, CODE, MESSAGE, INDEX, RETRYABLE, RETRY_AFTER, DIM, TOKENS, COUNT, EMBEDDING, FIELDS };

uint64_t remote_number(const struct resp_value *value)
{
    return value->bytes == NULL ? 0 : strtoull(value->bytes, NULL, 10);
}

static const struct piece *piece_of(const struct ask *ask, uint32_t i)
{
    return ask->batch->pieces[ask->rows[i]];
}

void ask_name(struct ask *ask, uint64_t job)
{
    struct hash hashes[REMOTE_BATCH_ROWS];
    for (uint32_t i = 0; i < ask->count; i++)
        hashes[i] = piece_of(ask, i)->hash;
    XXH128_hash_t hash = XXH3_128bits(hashes, ask->count * sizeof hashes[0]);
    snprintf(ask->id, sizeof ask->id, "bulk:%016llx:%016llx%016llx", (unsigned long long)job,
             (unsigned long long)hash.high64, (unsigned long long)hash.low64);
}

enum status ask_send(const struct ask *ask, const struct remote_options *options, struct client *client,
                     struct err *err)
{
    char stream[KEY_MAX];
    struct buffer inputs = {0};
    snprintf(stream, sizeof stream, "sluice:{%s}:%s", options->queue, class_streams[CLASS_LOW]);
    for (uint32_t i = 0; i < ask->count; i++) {
        const struct row *row = &piece_of(ask, i)->row;
        buffer_string(&inputs, i == 0 ? "[" : ",");
        json_put_string(&inputs, row->text, row->text_bytes);
    }
    buffer_string(&inputs, "]");
    const char *words[WORDS_MAX] = {"XADD",     stream, "*",   "id",   ask->id,  "inputs",     inputs.data,
                                    "encoding", "f32",  "ttl", "3600", "notify", "stream:bulk"};
    size_t lengths[WORDS_MAX], count = 13;
    if (options->prompt != NULL || options->prefix != NULL) {
        words[count++] = options->prompt != NULL ? "prompt" : "prefix";
        words[count++] = options->prompt != NULL ? options->prompt : options->prefix;
    }
    if (!buffer_ok(&inputs))
        return err_set(err, STATUS_NO_MEMORY, "no memory for the texts of a request");
    for (size_t i = 0; i < count; i++)
        lengths[i] = words[i] == inputs.data ? inputs.length : strlen(words[i]);
    enum status status = client_send(client, count, words, lengths, 0, err);
    buffer_free(&inputs);
    return status;
}

enum status ask_look(const struct ask *ask, const struct remote_options *options, struct client *client,
                     struct err *err)
{
    char key[KEY_MAX];
    snprintf(key, sizeof key, "sluice:{%s}:reply:%s", options->queue, ask->id);
    const char *const words[] = {"HMGET",          key,   "status", "code",  "message",  "index", "retryable",
                                 "retry_after_ms", "dim", "tokens", "count", "embedding"};
    _Static_assert(sizeof words / sizeof words[0] == FIELDS + 2, "a word for each field");
    return client_send(client, FIELDS + 2, words, NULL, 0, err);
}

enum status ask_forget(const char *id, const struct remote_options *options, struct client *client, struct err *err)
{
    char key[KEY_MAX];
    snprintf(key, sizeof key, "sluice:{%s}:reply:%s", options->queue, id);
    return client_send(client, 2, (const char *const[]){"UNLINK", key}, NULL, 0, err);
}

static enum ask_end stop(struct ask *ask, enum status status, const char *why, const struct resp_value *more)
{
    ask->batch->status = err_set(&ask->batch->err, status, "the queue %s%s%.200s", why, more == NULL ? "" : ": ",
                                 more == NULL || more->bytes == NULL ? "" : more->bytes);
    return ASK_STOP;
}

static enum ask_end take_vectors(struct ask *ask, const struct resp_value *items, uint32_t dim)
{
    size_t row_bytes = dim * sizeof(float);
    if (remote_number(&items[DIM]) != dim)
        return stop(ask, STATUS_BAD_INPUT, "answers with vectors of another dimension", &items[DIM]);
    if (remote_number(&items[COUNT]) != ask->count || items[EMBEDDING].bytes == NULL ||
        items[EMBEDDING].length != ask->count * row_bytes)
        return stop(ask, STATUS_INTERNAL, "answered with a reply that is not what was asked for", NULL);
    for (uint32_t i = 0; i < ask->count; i++)
        batch_put_vector(ask->batch, ask->batch->pieces[ask->rows[i]], items[EMBEDDING].bytes + i * row_bytes, false);
    ask->batch->tokens += (uint32_t)remote_number(&items[TOKENS]);
    return ASK_DONE;
}

/* One row cannot be computed; the others can. */
static enum ask_end drop_row(struct ask *ask, uint32_t i, const struct resp_value *code, uint64_t job)
{
    batch_fail(ask->batch, ask->batch->pieces[ask->rows[i]],
               resp_equals(code, "non_finite") ? ROW_NON_FINITE : ROW_REFUSED);
    ask->count--;
    memmove(ask->rows + i, ask->rows + i + 1, (ask->count - i) * sizeof ask->rows[0]);
    ask->state = ASK_NEW;
    ask->due_ms = 0;
    if (ask->count > 0)
        ask_name(ask, job);
    return ask->count > 0 ? ASK_AGAIN : ASK_DONE;
}

static enum ask_end again(struct ask *ask, uint64_t due_ms, enum ask_end how)
{
    ask->state = ASK_NEW;
    ask->due_ms = due_ms;
    return how;
}

static bool any_of(const struct resp_value *code, const char *const *names)
{
    while (*names != NULL && !resp_equals(code, *names))
        names++;
    return *names != NULL;
}

static enum ask_end take_error(struct ask *ask, const struct resp_value *items, uint64_t job, uint64_t now_ms)
{
    static const char *const together[] = {"too_large", "too_many_inputs", "poison", NULL};
    static const char *const row[] = {"too_long", "too_large", "bad_utf8", "non_finite", "poison", NULL};
    const struct resp_value *code = &items[CODE];
    uint64_t index = remote_number(&items[INDEX]);
    if (resp_equals(code, "queue_full")) {
        uint64_t wait_ms = remote_number(&items[RETRY_AFTER]);
        return again(ask, now_ms + (wait_ms > AGAIN_MS ? wait_ms : AGAIN_MS), ASK_FULL);
    }
    if (items[INDEX].bytes != NULL && index < ask->count && any_of(code, row))
        return drop_row(ask, (uint32_t)index, code, job);
    if (ask->count > 1 && any_of(code, together))
        return ASK_HALVE;
    if (ask->count == 1 && any_of(code, row))
        return drop_row(ask, 0, code, job);
    if (resp_equals(&items[RETRYABLE], "1") && ++ask->failures < TRIES)
        return again(ask, now_ms + AGAIN_MS * ask->failures, ASK_AGAIN);
    enum status status = resp_equals(&items[RETRYABLE], "1") ? STATUS_UNAVAILABLE : STATUS_BAD_INPUT;
    return stop(ask, status, "answered with an error", &items[MESSAGE]);
}

enum ask_end ask_take(struct ask *ask, const struct resp_value *reply, const struct remote_options *options,
                      uint64_t now_ms)
{
    if (reply->type != RESP_ARRAY || reply->count != FIELDS)
        return stop(ask, STATUS_INTERNAL, "answered HMGET in an unknown shape", NULL);
    const struct resp_value *items = reply->items;
    if (resp_equals(&items[STATUS_FIELD], "done"))
        return take_vectors(ask, items, options->dim);
    if (resp_equals(&items[STATUS_FIELD], "error"))
        return take_error(ask, items, options->job, now_ms);
    if (resp_equals(&items[STATUS_FIELD], "cancelled"))
        return stop(ask, STATUS_UNAVAILABLE, "has cancelled a request of this job", NULL);
    return ASK_OPEN;
}
