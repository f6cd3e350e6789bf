/* A fixed number of slots, each for a batch on its way. The job's thread fills FREE slots and empties DONE ones; all
 * other states belong to the thread that talks to Redis, on which a producer (redis/producer.h) does so. */
#include "bulk/remote.h"

#include <event2/event.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/json.h"
#include "model/model.h"
#include "redis/client.h"
#include "redis/producer.h"

/* The number of requests that are out: as few as keep the workers busy, so that few wait, and other requests of the
 * same class have their turn. */
enum { OUT_FIRST = 8, OUT_LEAST = 4, OUT_MOST = 64 };

enum { TIMEOUT_MS = 5000, DOWN_MS = 60000, FORGOTTEN_MS = 5000, STOP_MS = 5000 };
enum { TICK_MS = 100, LOOK_MS = 1000, POLL_MS = 20 };
enum { STALE_MS = 5000, ALONE_MS = 2000 }; /* without news of a worker; see watch_workers */
enum { FIELDS_MAX = 8, KEY_MAX = 256, ID_MAX = 64 };
enum { TRIES = 5, AGAIN_MS = 1000 };

enum slot_state {
    SLOT_FREE,
    SLOT_PUT,  /* put by the job */
    SLOT_NEW,  /* is sent when it is due */
    SLOT_SENT, /* the producer has it */
    SLOT_DONE,
};

/* A batch as a request. */
struct slot {
    atomic_int state; /* enum slot_state */
    struct remote *remote;
    struct bulk_batch *batch;
    struct producer_request *request;        /* SLOT_SENT */
    uint32_t rows[REMOTE_BATCH_ROWS], count; /* rows of the batch that have neither vector nor code */
    uint64_t due_ms;                         /* SLOT_NEW: it is not sent before this */
    unsigned failures;
    char id[ID_MAX];
};

struct remote {
    struct executor executor; /* first */
    struct remote_options options;
    pthread_t thread;
    atomic_bool closing, stopping; /* stopping: the job's thread has seen `stop`, which only it may read */
    atomic_uint out, limit;        /* batches */
    struct slot slots[OUT_MOST];
    int wake_fd; /* written when a batch was put, and to close */

    /* Used by the thread only. */
    struct event_base *base;
    struct event *wake, *tick;
    struct producer *producer;
    uint64_t looked_ms, stopped_ms; /* 0: it has not */
    uint64_t alone_ms;              /* since when there has been no worker; 0: there is one */
    bool alone_said;
};

/* The fields of a reply that are of use. */
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

/* --- Requests ----------------------------------------------------------------------------------------------------- */

/* The fields of a request; those of a probe have the same. Returns their number. */
static size_t fill_fields(const struct remote_options *options, const struct buffer *inputs, const char *ttl,
                          struct entry_field fields[FIELDS_MAX])
{
    size_t count = 0;
    fields[count++] = (struct entry_field){"inputs", strlen("inputs"), inputs->data, inputs->length};
    const char *const texts[][2] = {
        {"encoding", "f32"},
        {"ttl", ttl},
        {"normalize", options->raw ? "0" : NULL},
        /* A prefix is in the texts, and replaces the model's own prompt. */
        {"prompt", options->prompt   ? options->prompt
                   : options->prefix ? ""
                                     : NULL},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const char *name = texts[i][0], *value = texts[i][1];
        if (value) { fields[count++] = (struct entry_field){name, strlen(name), value, strlen(value)}; }
    }
    return count;
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
        if (state != SLOT_NEW && state != SLOT_SENT) { continue; }
        if (state == SLOT_SENT) { producer_cancel(slot->request); }
        slot->batch->status = err_set(&slot->batch->err, status, "%s", message);
        give_back(remote, slot);
    }
}

/* Makes requests of the batches that were put. */
static void take_put(struct remote *remote)
{
    for (struct slot *slot = remote->slots; slot < remote->slots + OUT_MOST; slot++) {
        if (atomic_load(&slot->state) != SLOT_PUT) { continue; }
        slot->count = slot->batch->count;
        slot->due_ms = slot->failures = 0;
        for (uint32_t i = 0; i < slot->count; i++) { slot->rows[i] = i; }
        name_slot(remote, slot);
        atomic_store(&slot->state, SLOT_NEW);
    }
}

/* The effect of a reply on its request. */
enum effect {
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

static enum effect take_reply(struct remote *remote, struct slot *slot, const struct resp_value *fields)
{
    static const char *const names[FIELDS] = {"status", "code", "message", "embedding", "info"};
    struct resp_value items[FIELDS] = {0};
    for (int i = 0; i < FIELDS; i++) {
        const struct resp_value *value = resp_field(fields, names[i]);
        if (value) { items[i] = *value; }
    }
    if (resp_equals(&items[STATUS_FIELD], "done")) { return take_vectors(remote, slot, items); }
    if (resp_equals(&items[STATUS_FIELD], "error")) { return take_error(remote, slot, items, clock_now_ms()); }
    return stop_slot(slot, STATUS_UNAVAILABLE, "has cancelled a request of this job", NULL);
}

/* --- The loop of the thread --- */

/* Tells the caller when the last worker is gone for more than a moment, and when one is there again. */
static void watch_workers(struct remote *remote, bool live, uint64_t now_ms)
{
    if (!live && remote->alone_ms == 0) { remote->alone_ms = now_ms; }
    if (live) { remote->alone_ms = 0; }
    bool alone = !live && now_ms - remote->alone_ms >= ALONE_MS;
    if (alone != remote->alone_said && (live || alone) && remote->options.live) {
        remote->options.live(remote->options.queue, live);
        remote->alone_said = alone;
    }
}

static void send_due(struct remote *remote);

static void on_ended(void *context, const struct producer_reply *reply)
{
    struct slot *slot = context;
    struct remote *remote = slot->remote;
    enum effect effect = AGAIN;
    if (reply->status == STATUS_OK) {
        effect = take_reply(remote, slot, reply->fields);
        if (remote->alone_said) { watch_workers(remote, true, clock_now_ms()); } /* somebody has answered */
    } else if (reply->status == STATUS_UNAVAILABLE && producer_facts(remote->producer)->connected) {
        again(slot, clock_now_ms() + AGAIN_MS); /* Redis refuses it for now */
    } else {
        slot->batch->status = err_set(&slot->batch->err, reply->status, "%s", reply->message);
        effect = ENDED;
    }
    if (effect == ENDED) { give_back(remote, slot); }
    send_due(remote);
}

static enum status send_slot(struct remote *remote, struct slot *slot, struct err *err)
{
    struct buffer inputs = {0};
    struct entry_field fields[FIELDS_MAX];
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < slot->count && status == STATUS_OK; i++) {
        const struct row *row = &slot->batch->pieces[slot->rows[i]].piece->row;
        status = put_text(&remote->options, row->text, row->text_bytes, &inputs, err);
    }
    buffer_string(&inputs, "]");
    if (status == STATUS_OK && !buffer_ok(&inputs)) {
        status = err_set(err, STATUS_NO_MEMORY, "no memory for the texts of a request");
    }
    struct producer_order order = {.class = CLASS_LOW,
                                   .id = slot->id,
                                   .kept = true,
                                   .unlinked = true,
                                   .fields = fields,
                                   .count = fill_fields(&remote->options, &inputs, "3600", fields),
                                   .timeout_ms = PRODUCER_NEVER,
                                   .context = slot,
                                   .ended = on_ended};
    if (status == STATUS_OK) { status = producer_send(remote->producer, &order, &slot->request, err); }
    buffer_free(&inputs);
    return status;
}

static void send_due(struct remote *remote)
{
    uint64_t now_ms = clock_now_ms();
    for (struct slot *slot = remote->slots; slot < remote->slots + OUT_MOST; slot++) {
        if (atomic_load(&slot->state) != SLOT_NEW || slot->due_ms > now_ms) { continue; }
        atomic_store(&slot->state, SLOT_SENT);
        slot->batch->status = send_slot(remote, slot, &slot->batch->err);
        if (slot->batch->status != STATUS_OK) { give_back(remote, slot); }
    }
}

/* Sets the number of requests to have out by the figures that the workers publish. */
static void set_limit(struct remote *remote)
{
    uint64_t waiting = producer_facts(remote->producer)->waiting[CLASS_LOW];
    unsigned limit = atomic_load(&remote->limit);
    if (waiting <= limit / 4 && atomic_load(&remote->out) >= limit) { /* the workers have read nearly all */
        atomic_store(&remote->limit, 2 * limit < OUT_MOST ? 2 * limit : OUT_MOST);
    } else if (waiting > limit + (unsigned)OUT_MOST) {
        shrink(remote);
    }
}

static void on_wake(evutil_socket_t fd, short what, void *context)
{
    struct remote *remote = context;
    uint64_t count;
    (void)what;
    if (read(fd, &count, sizeof count) < 0) { return; }
    take_put(remote);
    send_due(remote);
    if (atomic_load(&remote->closing)) { event_base_loopbreak(remote->base); }
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
    struct remote *remote = context;
    uint64_t now_ms = clock_now_ms();
    (void)fd, (void)what;
    if (atomic_load(&remote->stopping)) { /* replies that come soon are taken; the others are there when it resumes */
        if (remote->stopped_ms == 0) { remote->stopped_ms = now_ms; }
        if (now_ms - remote->stopped_ms > STOP_MS) {
            fail_all(remote, STATUS_UNAVAILABLE, "stopped before the queue had answered everything");
        }
    }
    const struct producer_facts *facts = producer_facts(remote->producer);
    if (facts->connected && now_ms - remote->looked_ms >= LOOK_MS) {
        if (remote->looked_ms > 0) { /* else the figures are still to come */
            set_limit(remote);
            watch_workers(remote, facts->seen_ms > 0 && now_ms - facts->seen_ms < STALE_MS, now_ms);
        }
        remote->looked_ms = now_ms;
    }
    send_due(remote);
}

/* Redis refuses the login. */
static void on_denied(void *context, const struct err *err)
{
    fail_all(context, err->status, err->message);
}

static void *run_remote(void *context)
{
    event_base_dispatch(((struct remote *)context)->base);
    return NULL;
}

static void wake_thread(struct remote *remote)
{
    uint64_t one = 1;
    ssize_t ignored = write(remote->wake_fd, &one, sizeof one);
    (void)ignored;
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
    slot->remote = remote;
    atomic_store(&slot->state, SLOT_PUT);
    wake_thread(remote);
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

static void free_remote(struct remote *remote)
{
    producer_close(remote->producer);
    if (remote->wake) { event_free(remote->wake); }
    if (remote->tick) { event_free(remote->tick); }
    if (remote->base) { event_base_free(remote->base); }
    if (remote->wake_fd >= 0) { close(remote->wake_fd); }
    free(remote);
}

static void remote_close(struct executor *executor)
{
    struct remote *remote = (struct remote *)executor;
    atomic_store(&remote->closing, true);
    wake_thread(remote);
    pthread_join(remote->thread, NULL);
    free_remote(remote);
}

static const struct executor_ops remote_ops = {remote_has_room, remote_put, remote_take, remote_close};

static enum status start_remote(struct remote *remote, struct err *err)
{
    struct timeval every = {.tv_usec = TICK_MS * 1000};
    remote->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (remote->wake_fd < 0) { return err_set_errno(err, "cannot make an eventfd"); }
    remote->base = event_base_new();
    if (remote->base) {
        remote->wake = event_new(remote->base, remote->wake_fd, EV_READ | EV_PERSIST, on_wake, remote);
        remote->tick = event_new(remote->base, -1, EV_PERSIST, on_tick, remote);
    }
    if (!remote->wake || !remote->tick || event_add(remote->wake, NULL) != 0 || event_add(remote->tick, &every) != 0) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for the executor");
    }
    struct producer_options producer = {.base = remote->base,
                                        .address = remote->options.address,
                                        .queue = remote->options.queue,
                                        .name = "bulk",
                                        .away_ms = DOWN_MS,
                                        .forgotten_ms = FORGOTTEN_MS,
                                        .seed = clock_now_ns(),
                                        .context = remote,
                                        .on_denied = on_denied};
    TRY(producer_open(&producer, &remote->producer, err));
    int failed = pthread_create(&remote->thread, NULL, run_remote, remote);
    return failed ? err_set(err, STATUS_IO, "cannot start a thread") : STATUS_OK;
}

enum status remote_open(const struct remote_options *options, struct executor **out, struct err *err)
{
    struct remote *remote = calloc(1, sizeof *remote);
    if (!remote) { return err_set(err, STATUS_NO_MEMORY, "no memory for the executor"); }
    remote->executor = (struct executor){.ops = &remote_ops, .batches = OUT_MOST};
    remote->options = *options;
    atomic_init(&remote->limit, OUT_FIRST);
    enum status status = start_remote(remote, err);
    if (status != STATUS_OK) {
        free_remote(remote);
        return status;
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

/* Sends a text under an id of its own; `*sent_ms`: when Redis got it, by its clock. */
static enum status send_probe(const struct remote_options *options, struct client *client, const char *id,
                              uint64_t *sent_ms, struct err *err)
{
    struct buffer inputs = {0};
    struct entry_field fields[FIELDS_MAX];
    char stream[KEY_MAX];
    const struct resp_value *reply;
    const char *words[5 + 2 * FIELDS_MAX] = {"XADD", stream, "*", "id", id};
    size_t lengths[5 + 2 * FIELDS_MAX], count = 0;
    snprintf(stream, sizeof stream, "sluice:{%s}:%s", options->queue, class_streams[CLASS_NORMAL]);
    for (; count < 5; count++) { lengths[count] = strlen(words[count]); }
    enum status status = put_text(options, "sluice", 6, &inputs, err);
    buffer_string(&inputs, "]");
    size_t field_count = fill_fields(options, &inputs, "60", fields);
    for (size_t i = 0; i < field_count; i++, count += 2) {
        words[count] = fields[i].name;
        lengths[count] = fields[i].name_length;
        words[count + 1] = fields[i].value;
        lengths[count + 1] = fields[i].value_length;
    }
    if (status == STATUS_OK && !buffer_ok(&inputs)) {
        status = err_set(err, STATUS_NO_MEMORY, "no memory for the texts of a request");
    }
    if (status == STATUS_OK) { status = client_command(client, count, words, lengths, &reply, err); }
    if (status == STATUS_OK) { *sent_ms = number_of(reply); }
    buffer_free(&inputs);
    return status;
}

static enum status probe(const struct remote_options *options, struct client *client, struct remote_facts *out,
                         struct err *err)
{
    enum { ANSWER_MS = 60000, PATIENCE_MS = 3000 };
    char key[KEY_MAX], id[ID_MAX];
    uint64_t random, sent_ms;
    const struct resp_value *reply;
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
    TRY(send_probe(options, client, id, &sent_ms, err));
    snprintf(key, sizeof key, "sluice:{%s}:reply:%s", options->queue, id);
    uint64_t begin_ms = clock_now_ms();
    bool looked = false, live = true;
    while (clock_now_ms() - begin_ms < ANSWER_MS &&
           (!options->stop || __atomic_load_n(options->stop, __ATOMIC_RELAXED) == 0)) { /* another thread may set it */
        const char *const words[] = {"HMGET", key, "status", "code", "message", "embedding", "info"};
        _Static_assert(sizeof words / sizeof words[0] == FIELDS + 2, "a word for each field");
        TRY(client_command(client, FIELDS + 2, words, NULL, &reply, err));
        if (reply->type != RESP_ARRAY || reply->count != FIELDS) {
            return err_set(err, STATUS_INTERNAL, "HMGET answered in an unknown shape");
        }
        if (resp_equals(&reply->items[STATUS_FIELD], "done")) {
            if (!live && options->live) { options->live(options->queue, true); }
            TRY(read_facts(reply->items, options->queue, out, err));
            return client_command(client, 2, (const char *const[]){"UNLINK", key}, NULL, &reply, err);
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
        poll(NULL, 0, POLL_MS);
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
