/* A fixed number of slots, each for a batch on its way. The job's thread fills FREE slots and empties DONE ones; all
 * other states belong to the thread that talks to Redis. */
#include "bulk/remote.h"

#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/json.h"
#include "model/model.h"
#include "redis/client.h"

/* The number of requests that are out: as few as keep the workers busy, so that few wait, and other requests of the
 * same class have their turn. */
enum { OUT_FIRST = 8, OUT_LEAST = 4, OUT_MOST = 64 };

enum { TIMEOUT_MS = 5000, DOWN_MS = 60000, PAUSE_MS = 200, BLOCK_MS = 20, LOOK_MS = 1000, STOP_MS = 5000 };
enum { PIPELINE = 16, WORDS_MAX = 24, KEY_MAX = 256, ID_MAX = 64 };
enum { TRIES = 5, AGAIN_MS = 1000 };

enum slot_state {
    SLOT_FREE,
    SLOT_PUT,    /* put by the job */
    SLOT_NEW,    /* is sent when it is due, unless its reply is already there */
    SLOT_SENT,   /* sent, and nothing known since */
    SLOT_LOOKED, /* its reply must be read, because it has ended, or may have */
    SLOT_DONE,
};

/* A batch as a request. */
struct slot {
    atomic_int state; /* enum slot_state */
    struct bulk_batch *batch;
    uint32_t rows[REMOTE_BATCH_ROWS], count; /* rows of the batch that have neither vector nor code */
    uint64_t due_ms;                         /* SLOT_NEW: it is not sent before this */
    uint64_t sent_ms;
    unsigned failures;
    unsigned repeats; /* how often it was sent again because Redis seemed to have forgotten it */
    char id[ID_MAX];
};

struct remote {
    struct executor executor; /* first */
    struct remote_options options;
    pthread_t thread;
    atomic_bool closing, stopping; /* stopping: the job's thread has seen `stop`, which only it may read */
    atomic_uint out, limit;        /* batches */
    struct slot slots[OUT_MOST];

    /* Used by the thread only. */
    struct client *client;                             /* NULL: not connected */
    uint64_t down_ms, looked_ms, heard_ms, stopped_ms; /* 0: it is not, or has not */
    char cursor[64];                                   /* of the results stream; empty: nothing was sent yet */
    uint64_t slowest_ms;                               /* the longest time that a request of this job has taken */
    char published[32];                                /* when the queue's figures were published, by Redis' clock */
    uint64_t published_ms;                             /* when it saw them first, by our clock */
    uint64_t alone_ms;                                 /* since when there has been no worker; 0: there is one */
    bool alone_said;
};

/* The fields of a reply that are asked for, in this order. */
enum field { STATUS_FIELD, CODE, MESSAGE, EMBEDDING, INFO, FIELDS };

static uint64_t number_of(const struct resp_value *value)
{
    return value->bytes ? strtoull(value->bytes, NULL, 10) : 0;
}

/* A number in `info` of a reply; 0: it has none. */
static uint64_t info_number(const struct resp_value *items, const char *name)
{
    uint64_t number;
    (void)json_member_number(items[INFO].bytes, items[INFO].length, name, &number);
    return number;
}

/* Returns whether `info` says `name: true`. */
static bool info_true(const struct resp_value *items, const char *name)
{
    char text[8];
    return json_member_text(items[INFO].bytes, items[INFO].length, name, text, sizeof text) &&
           strcmp(text, "true") == 0;
}

static void info_text(const struct resp_value *items, const char *name, char *to, size_t size)
{
    (void)json_member_text(items[INFO].bytes, items[INFO].length, name, to, size);
}

/* --- Commands to Redis. Each function sends one, whose answer the caller receives. --- */

static enum status send_request(const struct remote_options *options, struct client *client, enum request_class class,
                                const char *id, const struct buffer *inputs, struct err *err)
{
    char stream[KEY_MAX];
    bool notify = class == CLASS_LOW;
    snprintf(stream, sizeof stream, "sluice:{%s}:%s", options->queue, class_streams[class]);
    const char *words[WORDS_MAX] = {"XADD", stream, "*", "id", id, "inputs", inputs->data, "encoding", "f32", "ttl"};
    size_t lengths[WORDS_MAX], count = 10;
    words[count++] = notify ? "3600" : "60";
    if (notify) {
        words[count++] = "notify";
        words[count++] = "stream:bulk";
    }
    if (options->raw) {
        words[count++] = "normalize";
        words[count++] = "0";
    }
    if (options->prompt || options->prefix) { /* a prefix is in the texts, and replaces the model's own prompt */
        words[count++] = "prompt";
        words[count++] = options->prompt ? options->prompt : "";
    }
    if (!buffer_ok(inputs)) { return err_set(err, STATUS_NO_MEMORY, "no memory for the texts of a request"); }
    for (size_t i = 0; i < count; i++) { lengths[i] = words[i] == inputs->data ? inputs->length : strlen(words[i]); }
    return client_send(client, count, words, lengths, 0, err);
}

/* Appends the prefix and a text to the JSON array of a request. */
static enum status put_text(const struct remote_options *options, const char *text, size_t length,
                            struct buffer *inputs, struct err *err)
{
    struct buffer prefixed = {0};
    size_t prefix_length = options->prefix ? strlen(options->prefix) : 0;
    enum status status = prompt_put(options->prefix, prefix_length, &prefixed, &text, &length, err);
    buffer_string(inputs, inputs->length == 0 ? "[" : ",");
    buffer_json_string(inputs, text, length);
    buffer_free(&prefixed);
    return status;
}

static enum status send_slot(const struct remote *remote, const struct slot *slot, struct err *err)
{
    struct buffer inputs = {0};
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < slot->count && status == STATUS_OK; i++) {
        const struct row *row = &slot->batch->pieces[slot->rows[i]].piece->row;
        status = put_text(&remote->options, row->text, row->text_bytes, &inputs, err);
    }
    buffer_string(&inputs, "]");
    if (status == STATUS_OK) {
        status = send_request(&remote->options, remote->client, CLASS_LOW, slot->id, &inputs, err);
    }
    buffer_free(&inputs);
    return status;
}

static enum status ask_reply(const struct remote_options *options, struct client *client, const char *id,
                             struct err *err)
{
    char key[KEY_MAX];
    snprintf(key, sizeof key, "sluice:{%s}:reply:%.63s", options->queue, id);
    const char *const words[] = {"HMGET", key, "status", "code", "message", "embedding", "info"};
    _Static_assert(sizeof words / sizeof words[0] == FIELDS + 2, "a word for each field");
    return client_send(client, FIELDS + 2, words, NULL, 0, err);
}

static enum status forget_reply(const struct remote_options *options, struct client *client, const char *id,
                                struct err *err)
{
    char key[KEY_MAX];
    snprintf(key, sizeof key, "sluice:{%s}:reply:%.63s", options->queue, id);
    return client_send(client, 2, (const char *const[]){"UNLINK", key}, NULL, 0, err);
}

/* --- The life of a batch --- */

/* Names a request by job and content. */
static void name_slot(const struct remote *remote, struct slot *slot)
{
    struct hash hashes[REMOTE_BATCH_ROWS];
    for (uint32_t i = 0; i < slot->count; i++) { hashes[i] = slot->batch->pieces[slot->rows[i]].piece->hash; }
    XXH128_hash_t hash = XXH3_128bits(hashes, slot->count * sizeof hashes[0]);
    snprintf(slot->id, sizeof slot->id, "bulk:%016llx:%016llx%016llx", (unsigned long long)remote->options.job,
             (unsigned long long)hash.high64, (unsigned long long)hash.low64);
}

static void give_back(const struct remote *remote, struct slot *slot)
{
    uint64_t one = 1;
    atomic_store(&slot->state, SLOT_DONE);
    if (write(remote->options.wake_fd, &one, sizeof one) < 0) { return; /* the job looks now and then anyway */ }
}

static void fail_all(struct remote *remote, enum status status, const char *message)
{
    for (struct slot *slot = remote->slots; slot < remote->slots + OUT_MOST; slot++) {
        int state = atomic_load(&slot->state);
        if (state == SLOT_NEW || state == SLOT_SENT || state == SLOT_LOOKED) {
            slot->batch->status = err_set(&slot->batch->err, status, "%s", message);
            give_back(remote, slot);
        }
    }
}

/* Makes requests of the batches that were put. */
static void take_put(struct remote *remote)
{
    for (struct slot *slot = remote->slots; slot < remote->slots + OUT_MOST; slot++) {
        if (atomic_load(&slot->state) != SLOT_PUT) { continue; }
        slot->count = slot->batch->count;
        slot->due_ms = slot->sent_ms = 0;
        slot->failures = slot->repeats = 0;
        for (uint32_t i = 0; i < slot->count; i++) { slot->rows[i] = i; }
        name_slot(remote, slot);
        atomic_store(&slot->state, SLOT_NEW);
    }
}

/* The effect of a reply on its request. */
enum effect {
    OPEN,  /* no reply yet */
    AGAIN, /* SLOT_NEW again: without a row that cannot be computed, or later */
    ENDED, /* vectors or codes are in place, or the batch has an error */
};

static enum effect stop_slot(struct slot *slot, enum status status, const char *why, const struct resp_value *more)
{
    slot->batch->status = err_set(&slot->batch->err, status, "the queue %s%s%.200s", why, more ? ": " : "",
                                  !more || !more->bytes ? "" : more->bytes);
    return ENDED;
}

static enum effect again(struct slot *slot, uint64_t due_ms)
{
    atomic_store(&slot->state, SLOT_NEW);
    slot->due_ms = due_ms;
    return AGAIN;
}

/* Takes the numbers of an array: the tokens of each text. False: it has another length. */
static bool take_tokens(struct slot *slot, const char *array, size_t length)
{
    struct lexer lexer = {array, array + length};
    if (!array || !lexer_take(&lexer, '[')) { return false; }
    for (uint32_t i = 0; i < slot->count; i++) {
        const char *number = lexer.at;
        if (!lexer_scalar(&lexer)) { return false; }
        slot->batch->pieces[slot->rows[i]].piece->row.tokens = (uint32_t)strtoul(number, NULL, 10);
        if (!lexer_take(&lexer, i + 1 < slot->count ? ',' : ']')) { return false; }
    }
    return true;
}

static enum effect take_vectors(const struct remote *remote, struct slot *slot, const struct resp_value *items)
{
    uint32_t dim = remote->options.dim;
    size_t row_bytes = dim * sizeof(float);
    if (info_number(items, "dim") != dim) {
        char found[24];
        info_text(items, "dim", found, sizeof found);
        return stop_slot(slot, STATUS_BAD_INPUT, "answers with vectors of another dimension",
                         &(struct resp_value){.bytes = found});
    }
    if (info_number(items, "count") != slot->count || !items[EMBEDDING].bytes ||
        items[EMBEDDING].length != slot->count * row_bytes) {
        return stop_slot(slot, STATUS_INTERNAL, "answered with a reply that is not what was asked for", NULL);
    }
    const char *tokens = NULL;
    size_t tokens_bytes = 0;
    (void)json_member(items[INFO].bytes, items[INFO].length, "row_tokens", &tokens, &tokens_bytes);
    if (!take_tokens(slot, tokens, tokens_bytes) && remote->options.raw) {
        return stop_slot(slot, STATUS_UNSUPPORTED,
                         "has workers of a version that does not count the tokens of each text", NULL);
    }
    for (uint32_t i = 0; i < slot->count; i++) {
        piece_put_vector(slot->batch, slot->batch->pieces[slot->rows[i]].piece, items[EMBEDDING].bytes + i * row_bytes,
                         false);
    }
    slot->batch->tokens += (uint32_t)info_number(items, "tokens");
    slot->batch->cut += info_true(items, "truncated");
    return ENDED;
}

/* One row cannot be computed; the others can. */
static enum effect drop_row(const struct remote *remote, struct slot *slot, uint32_t i, const struct resp_value *code)
{
    piece_fail(slot->batch, slot->batch->pieces[slot->rows[i]].piece,
               resp_equals(code, "non_finite") ? ROW_NON_FINITE : ROW_REFUSED);
    slot->count--;
    memmove(slot->rows + i, slot->rows + i + 1, (slot->count - i) * sizeof slot->rows[0]);
    if (slot->count == 0) { return ENDED; }
    name_slot(remote, slot);
    return again(slot, 0);
}

static bool any_of(const struct resp_value *code, const char *const *names)
{
    while (*names && !resp_equals(code, *names)) { names++; }
    return *names;
}

/* Halves the number of requests out, because more wait than necessary. */
static void shrink(struct remote *remote)
{
    unsigned limit = atomic_load(&remote->limit) / 2;
    atomic_store(&remote->limit, limit > OUT_LEAST ? limit : OUT_LEAST);
}

static enum effect take_error(struct remote *remote, struct slot *slot, const struct resp_value *items, uint64_t now_ms)
{
    static const char *const together[] = {"too_large", "too_many_inputs", "poison", NULL};
    static const char *const row[] = {"too_long", "too_large", "bad_utf8", "non_finite", "poison", NULL};
    const struct resp_value *code = &items[CODE];
    uint64_t index;
    bool indexed = json_member_number(items[INFO].bytes, items[INFO].length, "index", &index);
    if (resp_equals(code, "queue_full")) {
        uint64_t wait_ms = info_number(items, "retry_after_ms");
        shrink(remote);
        return again(slot, now_ms + (wait_ms > AGAIN_MS ? wait_ms : AGAIN_MS));
    }
    if (indexed && index < slot->count && any_of(code, row)) { return drop_row(remote, slot, (uint32_t)index, code); }
    if (slot->count > 1 && any_of(code, together)) {
        slot->batch->halve = true;
        return ENDED;
    }
    if (slot->count == 1 && any_of(code, row)) { return drop_row(remote, slot, 0, code); }
    bool retryable = info_true(items, "retryable");
    if (retryable && ++slot->failures < TRIES) { return again(slot, now_ms + AGAIN_MS * slot->failures); }
    return stop_slot(slot, retryable ? STATUS_UNAVAILABLE : STATUS_BAD_INPUT, "answered with an error",
                     &items[MESSAGE]);
}

static enum effect take_reply(struct remote *remote, struct slot *slot, const struct resp_value *reply, uint64_t now_ms)
{
    if (reply->type != RESP_ARRAY || reply->count != FIELDS) {
        return stop_slot(slot, STATUS_INTERNAL, "answered HMGET in an unknown shape", NULL);
    }
    const struct resp_value *items = reply->items;
    if (resp_equals(&items[STATUS_FIELD], "done")) { return take_vectors(remote, slot, items); }
    if (resp_equals(&items[STATUS_FIELD], "error")) { return take_error(remote, slot, items, now_ms); }
    if (resp_equals(&items[STATUS_FIELD], "cancelled")) {
        return stop_slot(slot, STATUS_UNAVAILABLE, "has cancelled a request of this job", NULL);
    }
    return OPEN;
}

/* --- The loop of the thread --- */

/* Tells the caller when the last worker is gone for more than a moment, and when one is there again. */
static void watch_workers(struct remote *remote, bool live, uint64_t now_ms)
{
    enum { ALONE_MS = 2000 };
    if (!live && remote->alone_ms == 0) { remote->alone_ms = now_ms; }
    if (live) { remote->alone_ms = 0; }
    bool alone = !live && now_ms - remote->alone_ms >= ALONE_MS;
    if (alone != remote->alone_said && (live || alone) && remote->options.live) {
        remote->options.live(remote->options.queue, live);
        remote->alone_said = alone;
    }
}

/* Reads the replies of up to PIPELINE requests; those without a reply that were not sent yet are sent. */
static enum status look_some(struct remote *remote, struct slot *const *some, unsigned count, struct err *err)
{
    const struct resp_value *reply;
    struct client *client = remote->client;
    char ended[PIPELINE][ID_MAX];
    struct slot *unsent[PIPELINE];
    unsigned ended_count = 0, unsent_count = 0;
    uint64_t now_ms = clock_now_ms();
    for (unsigned i = 0; i < count; i++) { TRY(ask_reply(&remote->options, client, some[i]->id, err)); }
    for (unsigned i = 0; i < count; i++) {
        struct slot *slot = some[i];
        TRY(client_receive(client, &reply, err));
        memcpy(ended[ended_count], slot->id, ID_MAX);
        enum effect effect = take_reply(remote, slot, reply, now_ms);
        if (effect == OPEN && atomic_load(&slot->state) == SLOT_NEW) {
            unsent[unsent_count++] = slot;
        } else if (effect == OPEN) {
            atomic_store(&slot->state, SLOT_SENT);
        } else {
            uint64_t took_ms = slot->sent_ms > 0 ? now_ms - slot->sent_ms : 0;
            ended_count++;
            remote->heard_ms = now_ms;
            if (remote->alone_said) { watch_workers(remote, true, now_ms); } /* somebody has answered */
            remote->slowest_ms -= remote->slowest_ms / 16;                   /* an outage is forgotten again */
            remote->slowest_ms = took_ms > remote->slowest_ms ? took_ms : remote->slowest_ms;
        }
        if (effect == ENDED) { give_back(remote, slot); }
    }
    for (unsigned i = 0; i < unsent_count; i++) { TRY(send_slot(remote, unsent[i], err)); }
    for (unsigned i = 0; i < ended_count; i++) { TRY(forget_reply(&remote->options, client, ended[i], err)); }
    for (unsigned i = 0; i < unsent_count; i++) {
        TRY(client_receive(client, &reply, err));
        if (remote->cursor[0] == '\0' && reply->bytes) { /* no notice is older than the first request */
            snprintf(remote->cursor, sizeof remote->cursor, "%llu-0", (unsigned long long)number_of(reply) - 1);
        }
        atomic_store(&unsent[i]->state, SLOT_SENT);
        unsent[i]->sent_ms = now_ms;
    }
    for (unsigned i = 0; i < ended_count; i++) { TRY(client_receive(client, &reply, err)); }
    return STATUS_OK;
}

static enum status look(struct remote *remote, struct err *err)
{
    for (unsigned count = PIPELINE; count == PIPELINE;) {
        struct slot *some[PIPELINE];
        uint64_t now_ms = clock_now_ms();
        count = 0;
        for (struct slot *slot = remote->slots; slot < remote->slots + OUT_MOST && count < PIPELINE; slot++) {
            int state = atomic_load(&slot->state);
            if (state == SLOT_LOOKED || (state == SLOT_NEW && slot->due_ms <= now_ms)) { some[count++] = slot; }
        }
        if (count > 0) { TRY(look_some(remote, some, count, err)); }
    }
    return STATUS_OK;
}

/* Waits a moment for notices that requests have ended: entries of `id status entry`. */
static enum status listen(struct remote *remote, struct err *err)
{
    char key[KEY_MAX], block[16];
    snprintf(key, sizeof key, "sluice:{%s}:results:bulk", remote->options.queue);
    snprintf(block, sizeof block, "%d", (int)BLOCK_MS);
    const char *const words[] = {"XREAD", "COUNT", "1000", "BLOCK", block, "STREAMS", key, remote->cursor};
    const struct resp_value *reply;
    TRY(client_send(remote->client, 8, words, NULL, BLOCK_MS, err));
    TRY(client_receive(remote->client, &reply, err));
    if (reply->type != RESP_ARRAY || reply->count == 0 || reply->items[0].count != 2) { return STATUS_OK; }
    const struct resp_value *entries = &reply->items[0].items[1];
    for (size_t i = 0; i < entries->count; i++) {
        const struct resp_value *entry = &entries->items[i];
        if (entry->count != 2 || !entry->items[0].bytes) { continue; }
        snprintf(remote->cursor, sizeof remote->cursor, "%.60s", entry->items[0].bytes);
        const struct resp_value *fields = &entry->items[1];
        for (struct slot *slot = remote->slots; fields->count >= 2 && slot < remote->slots + OUT_MOST; slot++) {
            if (atomic_load(&slot->state) == SLOT_SENT && resp_equals(&fields->items[1], slot->id)) {
                atomic_store(&slot->state, SLOT_LOOKED);
            }
        }
    }
    return STATUS_OK;
}

/* True if a worker is there, which publishes each second. */
static bool is_fresh(struct remote *remote, const struct resp_value *published, uint64_t now_ms)
{
    enum { STALE_MS = 5000 };
    if (!published->bytes) { return false; }
    if (!resp_equals(published, remote->published)) {
        snprintf(remote->published, sizeof remote->published, "%s", published->bytes);
        remote->published_ms = now_ms;
    }
    return now_ms - remote->published_ms < STALE_MS;
}

/* Sends requests again that should have ended long ago. A producer's rights do not cover the stream, so that after
 * FLUSHALL, or a restart that lost the last second, silence is the only sign. It waits on while requests of this job
 * end, because then the workers are at it; and longer while as many requests wait as this job has out, because these
 * may be the job's own (in a queue that is paused). Sending again in vain does no more harm than computing twice, and
 * the wait doubles each time. */
static void resend_forgotten(struct remote *remote, uint64_t waiting, uint64_t wait_ms, uint64_t now_ms)
{
    enum { FORGOTTEN_MS = 5000, WAITING_FACTOR = 16, REPEATS_MAX = 10 };
    uint64_t patience_ms = FORGOTTEN_MS + REMOTE_BATCH_ROWS * wait_ms + 2 * remote->slowest_ms;
    patience_ms *= waiting >= atomic_load(&remote->out) ? WAITING_FACTOR : 1;
    for (struct slot *slot = remote->slots; slot < remote->slots + OUT_MOST; slot++) {
        uint64_t since_ms = slot->sent_ms > remote->heard_ms ? slot->sent_ms : remote->heard_ms;
        int state = atomic_load(&slot->state);
        if ((state == SLOT_SENT || state == SLOT_LOOKED) && now_ms - since_ms >= patience_ms << slot->repeats) {
            atomic_store(&slot->state, SLOT_NEW); /* its reply is looked for before it is sent */
            slot->repeats += slot->repeats < REPEATS_MAX;
        }
    }
}

/* Once a second, marks all replies to be looked at, and sets the number of requests to have out by the figures that the
 * workers publish in `meta` (entries that nobody has read, and how long a new one would wait). */
static enum status look_around(struct remote *remote, uint64_t now_ms, struct err *err)
{
    char key[KEY_MAX];
    const struct resp_value *reply;
    const char *const words[] = {"HMGET", key, "depth_low", "wait_ms_low", "published_at"};
    remote->looked_ms = now_ms;
    for (struct slot *slot = remote->slots; slot < remote->slots + OUT_MOST; slot++) {
        if (atomic_load(&slot->state) == SLOT_SENT) { atomic_store(&slot->state, SLOT_LOOKED); }
    }
    snprintf(key, sizeof key, "sluice:{%s}:meta", remote->options.queue);
    TRY(client_command(remote->client, 5, words, NULL, &reply, err));
    if (reply->type != RESP_ARRAY || reply->count != 3) { return STATUS_OK; }
    const struct resp_value *depth = &reply->items[0], *wait = &reply->items[1], *published = &reply->items[2];
    uint64_t waiting = number_of(depth);
    unsigned limit = atomic_load(&remote->limit);
    if (waiting <= limit / 4 && atomic_load(&remote->out) >= limit) { /* the workers have read nearly all */
        atomic_store(&remote->limit, 2 * limit < OUT_MOST ? 2 * limit : OUT_MOST);
    } else if (waiting > limit + (unsigned)OUT_MOST) {
        shrink(remote);
    }
    bool works = wait->bytes && wait->bytes[0] != '-'; /* -1: nobody works */
    bool fresh = is_fresh(remote, published, now_ms);
    watch_workers(remote, fresh, now_ms);
    if (fresh && works) { resend_forgotten(remote, waiting, number_of(wait), now_ms); }
    return STATUS_OK;
}

/* Sends requests that are due, takes replies that have come, and waits a moment for more. */
static enum status turn(struct remote *remote, struct err *err)
{
    TRY(look(remote, err));
    uint64_t now_ms = clock_now_ms();
    if (now_ms - remote->looked_ms >= LOOK_MS) { TRY(look_around(remote, now_ms, err)); }
    if (remote->cursor[0] != '\0') { return listen(remote, err); }
    poll(NULL, 0, BLOCK_MS);
    return STATUS_OK;
}

static bool connect_again(struct remote *remote, struct err *err)
{
    uint64_t now_ms = clock_now_ms();
    if (remote->down_ms == 0) { remote->down_ms = now_ms; }
    enum status status = client_open(remote->options.address, TIMEOUT_MS, &remote->client, err);
    if (status == STATUS_OK) {
        remote->down_ms = 0;
        remote->looked_ms = 0;
        remote->heard_ms = clock_now_ms();
        return true;
    }
    remote->client = NULL;
    if (status == STATUS_DENIED || status == STATUS_NO_MEMORY || now_ms - remote->down_ms > DOWN_MS) {
        fail_all(remote, status, err->message);
    }
    poll(NULL, 0, PAUSE_MS);
    return false;
}

/* After Ctrl-C: replies that come soon are taken; the others will be there when the job resumes. */
static void look_at_stop(struct remote *remote)
{
    if (!atomic_load(&remote->stopping)) { return; }
    uint64_t now_ms = clock_now_ms();
    if (remote->stopped_ms == 0) { remote->stopped_ms = now_ms; }
    if (now_ms - remote->stopped_ms > STOP_MS) {
        fail_all(remote, STATUS_UNAVAILABLE, "stopped before the queue had answered everything");
    }
}

static void *run_remote(void *context)
{
    struct remote *remote = context;
    struct err err;
    while (!atomic_load(&remote->closing)) {
        take_put(remote);
        look_at_stop(remote);
        if (!remote->client && !connect_again(remote, &err)) { continue; }
        enum status status = turn(remote, &err);
        if (status == STATUS_OK) { continue; }
        client_close(remote->client); /* it is unknown which requests Redis has got */
        remote->client = NULL;
        for (struct slot *slot = remote->slots; slot < remote->slots + OUT_MOST; slot++) {
            if (atomic_load(&slot->state) == SLOT_LOOKED) { atomic_store(&slot->state, SLOT_SENT); }
        }
        poll(NULL, 0, PAUSE_MS);
        if (status == STATUS_DENIED || status == STATUS_INTERNAL || status == STATUS_NO_MEMORY) {
            fail_all(remote, status, err.message);
        }
    }
    client_close(remote->client);
    return NULL;
}

/* --- The executor, for the job's thread --- */

static bool remote_has_room(const struct executor *executor)
{
    const struct remote *remote = (const struct remote *)executor;
    return atomic_load(&remote->out) < atomic_load(&remote->limit);
}

static void remote_put(struct executor *executor, struct bulk_batch *batch)
{
    struct remote *remote = (struct remote *)executor;
    struct slot *slot = remote->slots;
    while (atomic_load(&slot->state) != SLOT_FREE) { /* there is a free one: at most OUT_MOST are out */
        slot++;
    }
    atomic_fetch_add(&remote->out, 1);
    slot->batch = batch;
    atomic_store(&slot->state, SLOT_PUT);
}

static struct bulk_batch *remote_take(struct executor *executor)
{
    struct remote *remote = (struct remote *)executor;
    if (remote->options.stop && *remote->options.stop != 0) { atomic_store(&remote->stopping, true); }
    for (struct slot *slot = remote->slots; slot < remote->slots + OUT_MOST; slot++) {
        if (atomic_load(&slot->state) == SLOT_DONE) {
            atomic_fetch_sub(&remote->out, 1);
            struct bulk_batch *batch = slot->batch;
            atomic_store(&slot->state, SLOT_FREE);
            return batch;
        }
    }
    return NULL;
}

static void remote_close(struct executor *executor)
{
    struct remote *remote = (struct remote *)executor;
    atomic_store(&remote->closing, true);
    pthread_join(remote->thread, NULL);
    free(remote);
}

static const struct executor_ops remote_ops = {remote_has_room, remote_put, remote_take, remote_close};

enum status remote_open(const struct remote_options *options, struct executor **out, struct err *err)
{
    struct remote *remote = calloc(1, sizeof *remote);
    if (!remote) { return err_set(err, STATUS_NO_MEMORY, "no memory for the executor"); }
    remote->executor = (struct executor){.ops = &remote_ops, .batches = OUT_MOST};
    remote->options = *options;
    atomic_init(&remote->limit, OUT_FIRST);
    if (pthread_create(&remote->thread, NULL, run_remote, remote) != 0) {
        free(remote);
        return err_set(err, STATUS_IO, "cannot start a thread");
    }
    *out = &remote->executor;
    return STATUS_OK;
}

/* --- The probe: a queue's `meta` says which model it has, but not its dimension; the first reply does. --- */

static enum status read_facts(const struct resp_value *items, const char *queue, struct remote_facts *out,
                              struct err *err)
{
    uint64_t dim = info_number(items, "dim");
    if (dim == 0 || dim > 1 << 16 || items[EMBEDDING].length != dim * sizeof(float)) {
        return err_set(err, STATUS_INTERNAL, "queue %s answered with a reply that is no vector", queue);
    }
    double square = 0;
    for (uint64_t i = 0; i < dim; i++) {
        float value;
        memcpy(&value, items[EMBEDDING].bytes + i * sizeof value, sizeof value);
        square += (double)value * (double)value;
    }
    out->dim = (uint32_t)dim;
    out->normalized = fabs(square - 1) < 1e-3;
    info_text(items, "model", out->model, sizeof out->model);
    info_text(items, "revision", out->revision, sizeof out->revision);
    info_text(items, "precision", out->precision, sizeof out->precision);
    if (out->precision[0] == '\0') { memcpy(out->precision, "f32", sizeof "f32"); }
    return STATUS_OK;
}

/* True if a worker has published anything since then, by Redis' clock; workers do so each second. */
static enum status has_worker(const struct remote_options *options, struct client *client, uint64_t since_ms,
                              bool *live, struct err *err)
{
    char key[KEY_MAX];
    const struct resp_value *reply;
    snprintf(key, sizeof key, "sluice:{%s}:meta", options->queue);
    TRY(client_command(client, 3, (const char *const[]){"HGET", key, "published_at"}, NULL, &reply, err));
    *live = number_of(reply) >= since_ms;
    return STATUS_OK;
}

static enum status probe(const struct remote_options *options, struct client *client, struct remote_facts *out,
                         struct err *err)
{
    enum { ANSWER_MS = 60000, PATIENCE_MS = 3000 };
    char key[KEY_MAX], id[ID_MAX];
    uint64_t random;
    const struct resp_value *reply;
    struct buffer inputs = {0};
    snprintf(key, sizeof key, "sluice:{%s}:meta", options->queue);
    TRY(client_command(client, 3, (const char *const[]){"HMGET", key, "model_id"}, NULL, &reply, err));
    if (reply->type != RESP_ARRAY || reply->count != 1 || !reply->items[0].bytes) {
        return err_set(err, STATUS_UNAVAILABLE, "queue %s has no model yet: no worker has ever joined it",
                       options->queue);
    }
    snprintf(out->model_id, sizeof out->model_id, "%s", reply->items[0].bytes);
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random) {
        return err_set_errno(err, "no random number to be had");
    }
    snprintf(id, sizeof id, "bulk:probe:%016llx", (unsigned long long)random);
    enum status status = put_text(options, "sluice", 6, &inputs, err);
    buffer_string(&inputs, "]");
    if (status == STATUS_OK) { status = send_request(options, client, CLASS_NORMAL, id, &inputs, err); }
    buffer_free(&inputs);
    TRY(status);
    TRY(client_receive(client, &reply, err));
    uint64_t begin_ms = clock_now_ms(), sent_ms = number_of(reply);
    bool looked = false, live = true;
    while (clock_now_ms() - begin_ms < ANSWER_MS &&
           (!options->stop || __atomic_load_n(options->stop, __ATOMIC_RELAXED) == 0)) { /* another thread may set it */
        TRY(ask_reply(options, client, id, err));
        TRY(client_receive(client, &reply, err));
        if (reply->type != RESP_ARRAY || reply->count != FIELDS) {
            return err_set(err, STATUS_INTERNAL, "HMGET answered in an unknown shape");
        }
        if (resp_equals(&reply->items[STATUS_FIELD], "done")) {
            if (!live && options->live) { options->live(options->queue, true); }
            TRY(read_facts(reply->items, options->queue, out, err));
            TRY(forget_reply(options, client, id, err));
            return client_receive(client, &reply, err);
        }
        if (resp_equals(&reply->items[STATUS_FIELD], "error")) {
            const char *message = reply->items[MESSAGE].bytes;
            return err_set(err, STATUS_BAD_INPUT, "queue %s answered with an error: %.200s", options->queue,
                           !message ? "" : message);
        }
        if (!looked && clock_now_ms() - begin_ms >= PATIENCE_MS) {
            looked = true;
            TRY(has_worker(options, client, sent_ms, &live, err));
            if (!live && options->live) { options->live(options->queue, false); }
        }
        poll(NULL, 0, BLOCK_MS);
    }
    return err_set(err, STATUS_UNAVAILABLE,
                   "no answer from queue %s; is a daemon running, neither quiet nor paused? (sluice stats)",
                   options->queue);
}

enum status remote_probe(const struct remote_options *options, struct remote_facts *out, struct err *err)
{
    struct client *client;
    *out = (struct remote_facts){0};
    TRY(client_open(options->address, TIMEOUT_MS, &client, err));
    enum status status = probe(options, client, out, err);
    client_close(client);
    return status;
}
