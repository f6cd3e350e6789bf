#include "redis/producer.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/random.h"
#include "redis/connection.h"
#include "redis/find_master.h"

enum { CONNECT_MS = 5000, COMMAND_MS = 10000, BLOCK_MS = 5000 };
enum { BACKOFF_MS = 50, BACKOFF_MOST_MS = 2000 };
enum { GRACE_MS = 2000 };                                   /* for the reply `expired`, after the timeout */
enum { FRESH_MS = 10000 };                                  /* as docs/protocol.md says of published_at */
enum { LOOKS = 256 };                                       /* requests that the walk looks for in a second */
enum { REPLY_BYTES = 600 << 20 };                           /* as much as a reply may have, and its info */
enum { WAITS = 64, WAITING_FACTOR = 16, REPEATS_MAX = 10 }; /* see is_forgotten */
enum { KEY_MAX = 320, BUCKETS_FIRST = 64 };

/* The streams of a producer, by what comes in them. */
enum { RESULTS, TOKENS, STREAMS };
static const char *const stream_keys[STREAMS] = {"results:", "tokens:"};

/* An open request, in the table by its id and in the list by its age. */
struct producer_request {
    struct producer *producer;
    struct producer_request *next_in_bucket, *older, *newer;
    uint64_t hash;
    enum request_class class;
    struct command command;                    /* the XADD; no words: it is only waited for */
    uint64_t sent_ms, deadline_ms, refused_ms; /* refused_ms: since when Redis refuses its commands; 0: it does not */
    void *context;
    void (*added)(void *context, const char *name);
    void (*written)(void *context, uint64_t index, uint64_t tokens, const struct resp_value *text);
    void (*ended)(void *context, const struct producer_reply *reply);
    unsigned out;                /* commands without an answer */
    unsigned repeats;            /* how often it was sent again because Redis seemed to have forgotten it */
    bool kept, unlinked;         /* see struct producer_order */
    bool slow;                   /* the same */
    bool looking, adding;        /* HGETALL, XADD without an answer */
    bool look_again;             /* a notice came while it was looked for */
    bool sent, closed;           /* closed: its end was reported, or nobody waits; freed with the last answer */
    char name[REQUEST_NAME_MAX]; /* once Redis has it */
    char id[REQUEST_ID_MAX + 1];
};

struct producer {
    struct producer_options options;
    struct find_master *finder;
    struct connection *commands, *notices; /* NULL: not open */
    bool commands_up, notices_up, up;
    struct event *retry, *second;
    unsigned tries;
    uint64_t random, up_ms, down_ms; /* down_ms: since when Redis does not answer; 0: it does */
    char cursors[STREAMS][64];
    bool tokens_read; /* some were read that are still in their stream */
    bool no_tokens;   /* the login may not read that stream */
    char published[32];
    /* By class: when a request ended last, and how long the slowest took. */
    uint64_t heard_ms[CLASS_COUNT], slowest_ms[CLASS_COUNT];
    struct producer_request **buckets, *oldest, *newest;
    struct producer_request *walk, *step; /* the next to be looked for; the next of a loop whose body may close any */
    struct producer_request *match;       /* the next of such a loop over a bucket */
    size_t bucket_count;
    struct producer_facts facts;
};

static void send_all(struct producer *producer);

static char *key_of(const struct producer *producer, const char *what, const char *id, char key[KEY_MAX])
{
    snprintf(key, KEY_MAX, "sluice:{%s}:%s%s", producer->options.queue, what, id);
    return key;
}

static void in_ms(struct event *timer, uint64_t ms)
{
    struct timeval wait = {.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000)};
    evtimer_add(timer, &wait);
}

/* --- The table ---------------------------------------------------------------------------------------------------- */

static struct producer_request **bucket_of(const struct producer *producer, uint64_t hash)
{
    return &producer->buckets[hash & (producer->bucket_count - 1)];
}

static bool grow_table(struct producer *producer)
{
    size_t count = producer->bucket_count ? 2 * producer->bucket_count : (size_t)BUCKETS_FIRST;
    struct producer_request **buckets = calloc(count, sizeof *buckets);
    if (!buckets) { return false; }
    free(producer->buckets);
    producer->buckets = buckets;
    producer->bucket_count = count;
    for (struct producer_request *request = producer->oldest; request; request = request->newer) {
        struct producer_request **bucket = bucket_of(producer, request->hash);
        request->next_in_bucket = *bucket;
        *bucket = request;
    }
    return true;
}

static bool insert_request(struct producer *producer, struct producer_request *request)
{
    if (producer->facts.open >= producer->bucket_count && !grow_table(producer)) { return false; }
    struct producer_request **bucket = bucket_of(producer, request->hash);
    request->next_in_bucket = *bucket;
    *bucket = request;
    request->older = producer->newest;
    *(producer->newest ? &producer->newest->newer : &producer->oldest) = request;
    producer->newest = request;
    producer->facts.open++;
    return true;
}

static void free_request(struct producer_request *request)
{
    command_free(&request->command);
    free(request);
}

/* Takes it out of the table; it is freed now, or with the last answer that it waits for. */
static void close_request(struct producer_request *request)
{
    struct producer *producer = request->producer;
    struct producer_request **at = bucket_of(producer, request->hash);
    while (*at != request) { at = &(*at)->next_in_bucket; }
    *at = request->next_in_bucket;
    *(request->older ? &request->older->newer : &producer->oldest) = request->newer;
    *(request->newer ? &request->newer->older : &producer->newest) = request->older;
    if (producer->walk == request) { producer->walk = request->newer; }
    if (producer->step == request) { producer->step = request->newer; }
    if (producer->match == request) { producer->match = request->next_in_bucket; }
    producer->facts.open--;
    request->closed = true;
    if (request->out == 0) { free_request(request); }
}

static void end_request(struct producer_request *request, const struct producer_reply *reply)
{
    void (*ended)(void *, const struct producer_reply *) = request->ended;
    void *context = request->context;
    struct producer *producer = request->producer;
    if (reply->status == STATUS_OK) {
        uint64_t now_ms = clock_now_ms(), took_ms = request->sent_ms > 0 ? now_ms - request->sent_ms : 0;
        uint64_t *slowest_ms = &producer->slowest_ms[request->class];
        producer->facts.answered++;
        producer->heard_ms[request->class] = now_ms;
        *slowest_ms -= *slowest_ms / 16; /* an outage is forgotten again */
        *slowest_ms = took_ms > *slowest_ms ? took_ms : *slowest_ms;
    }
    close_request(request);
    ended(context, reply);
}

static void fail_request(struct producer_request *request, enum status status, const char *message)
{
    end_request(request, &(struct producer_reply){.status = status, .message = message});
}

/* --- The connections ---------------------------------------------------------------------------------------------- */

static void close_both(struct producer *producer)
{
    struct connection *commands = producer->commands, *notices = producer->notices;
    producer->commands = producer->notices = NULL;
    producer->commands_up = producer->notices_up = producer->up = producer->facts.connected = false;
    find_master_stop(producer->finder);
    connection_close(commands);
    connection_close(notices);
}

static void lose_link(struct producer *producer, const struct err *err)
{
    if (producer->down_ms && !producer->commands && !producer->notices && evtimer_pending(producer->retry, NULL)) {
        return;
    }
    if (producer->up && clock_now_ms() - producer->up_ms >= BACKOFF_MOST_MS) { producer->tries = 0; }
    uint64_t wait_ms = (uint64_t)BACKOFF_MS << (producer->tries < 10 ? producer->tries : 10);
    wait_ms = wait_ms < BACKOFF_MOST_MS ? wait_ms : BACKOFF_MOST_MS;
    wait_ms = wait_ms / 2 + random_next(&producer->random) % (wait_ms / 2 + 1);
    producer->tries++;
    if (producer->down_ms == 0) { producer->down_ms = clock_now_ms(); }
    log_warn(producer->up ? "redis_lost" : "redis_unavailable", log_str("queue", producer->options.queue),
             log_str("reason", err->message), log_int("retry_in_ms", (int64_t)wait_ms));
    close_both(producer);
    in_ms(producer->retry, wait_ms);
    if (err->status == STATUS_DENIED && producer->options.on_denied) {
        producer->options.on_denied(producer->options.context, err);
    }
}

static void on_down(void *context, const struct err *err)
{
    lose_link(context, err);
}

/* The status of an answer. After an error that new connections may cure, both are opened again. */
static enum status check_answer(struct producer *producer, const struct resp_value *reply, struct err *err)
{
    enum status status = resp_check(reply, err);
    static const char *const lasting[] = {"OOM", "TRYAGAIN", "ASK", "MISCONF", "NOREPLICAS"};
    bool lasts = false;
    for (size_t i = 0; i < sizeof lasting / sizeof lasting[0]; i++) { lasts |= resp_is_error(reply, lasting[i]); }
    if (status == STATUS_UNAVAILABLE && !lasts) {
        find_master_follow(producer->finder, reply);
        lose_link(producer, err);
    }
    return status;
}

/* Sends a command whose answer nobody needs. */
static void send_blindly(struct producer *producer, size_t count, const char *const *words)
{
    struct err err;
    if (producer->up && connection_command(producer->commands, count, words, NULL, COMMAND_MS, NULL, NULL, &err)) {
        lose_link(producer, &err);
    }
}

/* --- A request's commands ----------------------------------------------------------------------------------------- */

static void look_for(struct producer_request *request);

/* Counts an answer; false if there is nothing to do with it. */
static bool take_answer(struct producer_request *request, const struct resp_value *reply)
{
    request->out--;
    if (request->closed && request->out == 0) {
        free_request(request);
        return false;
    }
    return reply && !request->closed;
}

static void cancel_in_queue(struct producer *producer, const char *name, const char *id, const char *tenant)
{
    char key[KEY_MAX];
    const char *const words[] = {"XADD", key_of(producer, "control", "", key), "*", "cancel", name, "id", id, "tenant",
                                 tenant};
    send_blindly(producer, tenant ? 9 : 7, words);
}

/* Ends a request after an error of Redis, unless that may pass: then its command is sent again, for as long as a
 * request waits for a connection. */
static void suffer_error(struct producer_request *request, enum status status, const char *message)
{
    uint64_t now_ms = clock_now_ms();
    if (request->refused_ms == 0) { request->refused_ms = now_ms; }
    if (status != STATUS_UNAVAILABLE || now_ms - request->refused_ms >= request->producer->options.away_ms) {
        fail_request(request, status, message);
    }
}

static void on_added(void *context, const struct resp_value *reply)
{
    struct producer_request *request = context;
    struct producer *producer = request->producer;
    struct err err;
    request->adding = false;
    if (reply && reply->bytes && reply->type == RESP_STRING) {
        snprintf(request->name, sizeof request->name, "%s%.42s", class_prefixes[request->class], reply->bytes);
        if (request->closed && !request->kept) { cancel_in_queue(producer, request->name, request->id, NULL); }
    }
    if (!take_answer(request, reply)) { return; }
    enum status status = check_answer(producer, reply, &err);
    if (status == STATUS_OK) {
        void (*added)(void *, const char *) = request->added;
        request->added = NULL;
        request->refused_ms = 0;
        if (added) { added(request->context, request->name); }
        return;
    }
    request->sent_ms = 0;
    suffer_error(request, status, err.message);
}

static void add_request(struct producer_request *request)
{
    struct producer *producer = request->producer;
    const char *bytes;
    size_t length;
    struct err err;
    if (request->adding || request->command.words == 0) { return; }
    enum status status = command_finish(&request->command, &bytes, &length, &err);
    if (status == STATUS_OK) {
        status = connection_send(producer->commands, bytes, length, COMMAND_MS, on_added, request, &err);
    }
    if (status) {
        lose_link(producer, &err);
        return;
    }
    producer->facts.again += request->sent;
    request->out++;
    request->adding = request->sent = true;
    request->sent_ms = clock_now_ms();
}

/* A kept id may have the reply of an earlier request. Only a result answers a later one; an error does so if it is that
 * of this entry or of a younger one. */
static bool is_answer(const struct producer_request *request, const struct resp_value *reply)
{
    char entry[REQUEST_NAME_MAX];
    enum request_class class;
    struct entry_id its, ours;
    const struct resp_value *status = resp_field(reply, "status"), *info = resp_field(reply, "info");
    if (!status || !info || !info->bytes) { return false; }
    if (!request->kept || resp_equals(status, "done")) { return true; }
    if (!json_member_text(info->bytes, info->length, "entry", entry, sizeof entry) ||
        !request_name_parse(entry, strlen(entry), &class, &its) ||
        !request_name_parse(request->name, strlen(request->name), &class, &ours)) {
        return false;
    }
    return its.ms > ours.ms || (its.ms == ours.ms && its.seq >= ours.seq);
}

static void unlink_reply(struct producer *producer, const char *id)
{
    char key[KEY_MAX];
    send_blindly(producer, 2, (const char *const[]){"UNLINK", key_of(producer, "reply:", id, key)});
}

static void on_looked(void *context, const struct resp_value *reply)
{
    struct producer_request *request = context;
    struct producer *producer = request->producer;
    struct err err;
    request->looking = false;
    if (request->closed && !request->kept && reply && is_answer(request, reply)) { /* its notice will not come again */
        unlink_reply(producer, request->id);
    }
    if (!take_answer(request, reply)) { return; }
    bool again = request->look_again;
    request->look_again = false;
    enum status status = check_answer(producer, reply, &err);
    if (status != STATUS_OK) {
        suffer_error(request, status, err.message);
        return;
    }
    if (request->sent_ms > 0) { request->refused_ms = 0; }
    if (is_answer(request, reply)) {
        if (!request->kept || request->unlinked) { unlink_reply(producer, request->id); }
        end_request(request, &(struct producer_reply){.fields = reply});
    } else if (again) {
        look_for(request);
    } else if (request->command.words == 0 && clock_now_ms() >= request->deadline_ms) {
        fail_request(request, STATUS_TIMEOUT, "no reply yet");
    } else if (request->sent_ms == 0) {
        add_request(request);
    }
}

/* Asks for the reply; a request that this connection has not sent yet is sent if there is none. */
static void look_for(struct producer_request *request)
{
    struct producer *producer = request->producer;
    char key[KEY_MAX];
    struct err err;
    if (request->looking) {
        request->look_again = true;
        return;
    }
    const char *const words[] = {"HGETALL", key_of(producer, "reply:", request->id, key)};
    if (connection_command(producer->commands, 2, words, NULL, COMMAND_MS, on_looked, request, &err)) {
        lose_link(producer, &err);
        return;
    }
    request->out++;
    request->looking = true;
}

static void begin_request(struct producer_request *request)
{
    if (request->sent || request->kept) {
        look_for(request);
    } else {
        add_request(request);
    }
}

static void send_all(struct producer *producer)
{
    producer->step = producer->oldest;
    for (struct producer_request *request; (request = producer->step) && producer->up;) {
        producer->step = request->newer;
        request->sent_ms = 0;
        begin_request(request);
    }
}

/* --- Notices ------------------------------------------------------------------------------------------------------ */

static void on_notices(void *context, const struct resp_value *reply);

static void wait_for_notices(struct producer *producer)
{
    char keys[STREAMS][KEY_MAX], block[16];
    struct err err;
    size_t streams = producer->no_tokens ? TOKENS : STREAMS;
    const char *words[6 + 2 * STREAMS] = {"XREAD", "COUNT", "1000", "BLOCK", block, "STREAMS"};
    snprintf(block, sizeof block, "%d", (int)BLOCK_MS);
    for (size_t i = 0; i < streams; i++) {
        words[6 + i] = key_of(producer, stream_keys[i], producer->options.name, keys[i]);
        words[6 + streams + i] = producer->cursors[i];
    }
    if (connection_command(producer->notices, 6 + 2 * streams, words, NULL, BLOCK_MS + COMMAND_MS, on_notices, producer,
                           &err)) {
        lose_link(producer, &err);
    }
}

/* `id status entry` */
static void take_notice(struct producer *producer, const struct resp_value *fields)
{
    const struct resp_value *id = resp_field(fields, "id");
    bool found = false;
    if (!id || !id->bytes || id->length > REQUEST_ID_MAX) { return; }
    uint64_t hash = XXH3_64bits(id->bytes, id->length);
    for (struct producer_request *request = *bucket_of(producer, hash), *next; request && producer->up;
         request = next) {
        next = request->next_in_bucket;
        if (request->hash != hash || !resp_equals(id, request->id)) { continue; }
        found = true;
        look_for(request);
    }
    size_t length = strlen(producer->options.name);
    bool made =
        id->length > length && memcmp(id->bytes, producer->options.name, length) == 0 && id->bytes[length] == '-';
    if (!found && made) { /* cancelled, given up, or computed twice */
        unlink_reply(producer, id->bytes);
    }
}

static uint64_t number_of(const struct resp_value *value)
{
    return value && value->bytes ? strtoull(value->bytes, NULL, 10) : 0;
}

/* `entry id index tokens text`; the last entry of a text has none, and its request a notice. */
static void take_tokens(struct producer *producer, const struct resp_value *fields)
{
    const struct resp_value *id = resp_field(fields, "id"), *text = resp_field(fields, "text");
    producer->tokens_read = true;
    if (!id || !id->bytes || !text || !text->bytes) { return; }
    uint64_t hash = XXH3_64bits(id->bytes, id->length);
    uint64_t index = number_of(resp_field(fields, "index")), tokens = number_of(resp_field(fields, "tokens"));
    producer->match = *bucket_of(producer, hash);
    for (struct producer_request *request; (request = producer->match);) {
        producer->match = request->next_in_bucket;
        if (request->hash != hash || !request->written || !resp_equals(id, request->id)) { continue; }
        producer->heard_ms[request->class] = clock_now_ms();
        request->written(request->context, index, tokens, text);
    }
}

/* Takes the entries of a stream, [key, entries]. */
static void take_stream(struct producer *producer, const struct resp_value *stream)
{
    char key[KEY_MAX];
    if (stream->count != 2) { return; }
    int which = resp_equals(&stream->items[0], key_of(producer, stream_keys[TOKENS], producer->options.name, key))
                    ? TOKENS
                    : RESULTS;
    const struct resp_value *entries = &stream->items[1];
    for (size_t i = 0; i < entries->count && producer->up; i++) {
        const struct resp_value *entry = &entries->items[i];
        if (entry->count != 2 || !entry->items[0].bytes) { continue; }
        snprintf(producer->cursors[which], sizeof producer->cursors[which], "%.60s", entry->items[0].bytes);
        (which == TOKENS ? take_tokens : take_notice)(producer, &entry->items[1]);
    }
}

static void on_notices(void *context, const struct resp_value *reply)
{
    struct producer *producer = context;
    struct err err;
    if (!reply || !producer->up) { return; }
    enum status status = check_answer(producer, reply, &err);
    if (status == STATUS_DENIED && !producer->no_tokens) {
        log_warn("tokens_denied", log_str("queue", producer->options.queue), log_str("reason", err.message));
        producer->no_tokens = true;
    } else if (status != STATUS_OK) {
        if (producer->up) { lose_link(producer, &err); }
        return;
    } else if (reply->type == RESP_ARRAY) {
        for (size_t i = 0; i < reply->count && producer->up; i++) { take_stream(producer, &reply->items[i]); }
    }
    if (producer->up) { wait_for_notices(producer); }
}

/* Drops the tokens that were read: nobody else reads this stream. */
static void trim_tokens(struct producer *producer)
{
    char key[KEY_MAX];
    if (!producer->tokens_read) { return; }
    producer->tokens_read = false;
    send_blindly(producer, 4,
                 (const char *const[]){"XTRIM", key_of(producer, stream_keys[TOKENS], producer->options.name, key),
                                       "MINID", producer->cursors[TOKENS]});
}

/* --- Each second -------------------------------------------------------------------------------------------------- */

static const char *const facts_asked[] = {
    "model",        "max_inputs", "published_at", "wait_ms_high",   "wait_ms_normal", "wait_ms_low", "depth_high",
    "depth_normal", "depth_low",  "model_facts",  "max_text_bytes", "model_id",       "precision"};
enum { FACTS = sizeof facts_asked / sizeof facts_asked[0] };

static void on_facts(void *context, const struct resp_value *reply)
{
    struct producer *producer = context;
    struct producer_facts *facts = &producer->facts;
    struct err err;
    if (!reply || check_answer(producer, reply, &err) != STATUS_OK || reply->type != RESP_ARRAY ||
        reply->count != FACTS) {
        return;
    }
    producer->down_ms = 0;
    const struct resp_value *items = reply->items;
    snprintf(facts->model, sizeof facts->model, "%s", items[0].bytes ? items[0].bytes : "");
    snprintf(facts->model_facts, sizeof facts->model_facts, "%s", items[9].bytes ? items[9].bytes : "");
    facts->max_inputs = number_of(&items[1]);
    facts->max_text_bytes = number_of(&items[10]);
    snprintf(facts->model_id, sizeof facts->model_id, "%s", items[11].bytes ? items[11].bytes : "");
    snprintf(facts->precision, sizeof facts->precision, "%s", items[12].bytes ? items[12].bytes : "");
    if (items[2].bytes && !resp_equals(&items[2], producer->published)) {
        /* The first look cannot tell by our clock how old it is; a time near ours is recent. */
        uint64_t now_ms = clock_unix_ms(), at_ms = number_of(&items[2]);
        bool first = producer->published[0] == '\0', recent = at_ms + FRESH_MS > now_ms && at_ms < now_ms + FRESH_MS;
        snprintf(producer->published, sizeof producer->published, "%.30s", items[2].bytes);
        facts->seen_ms = !first || recent ? clock_now_ms() : 0;
    }
    facts->served = facts->seen_ms && clock_now_ms() - facts->seen_ms < FRESH_MS;
    for (int class = 0; class < CLASS_COUNT; class ++) {
        const struct resp_value *wait = &items[3 + class];
        facts->wait_ms[class] = wait->bytes && facts->served ? strtoll(wait->bytes, NULL, 10) : -1;
        facts->waiting[class] = number_of(&items[6 + class]);
    }
}

static void ask_facts(struct producer *producer)
{
    char key[KEY_MAX];
    const char *words[FACTS + 2] = {"HMGET", key_of(producer, "meta", "", key)};
    struct err err;
    memcpy(words + 2, facts_asked, sizeof facts_asked);
    if (connection_command(producer->commands, FACTS + 2, words, NULL, COMMAND_MS, on_facts, producer, &err)) {
        lose_link(producer, &err);
    }
}

/* Looks for some replies whose notice may be lost: of requests that somebody else has sent there is none. */
static void walk_some(struct producer *producer, uint64_t now_ms)
{
    if (!producer->walk) { producer->walk = producer->oldest; }
    for (unsigned i = 0; i < LOOKS && producer->walk && producer->up; i++) {
        struct producer_request *request = producer->walk;
        producer->walk = request->newer;
        if (!request->looking && (request->command.words == 0 || now_ms - request->sent_ms >= 1000)) {
            look_for(request);
        }
    }
}

/* True for a request that should have ended long ago. While requests of its class end, the workers are at it. It waits
 * longer while as many requests wait as this producer has open, because these may be its own, in a queue that is
 * paused; and twice as long each time. Sending again in vain does no more harm than computing twice. */
static bool is_forgotten(const struct producer_request *request, uint64_t now_ms)
{
    const struct producer *producer = request->producer;
    const struct producer_facts *facts = &producer->facts;
    int class = request->class;
    if (!producer->up || !facts->served || facts->wait_ms[class] < 0 || request->sent_ms == 0) { return false; }
    uint64_t patience_ms =
        producer->options.forgotten_ms + WAITS * (uint64_t)facts->wait_ms[class] + 2 * producer->slowest_ms[class];
    patience_ms *= request->slow || facts->waiting[class] >= facts->open ? WAITING_FACTOR : 1;
    uint64_t heard_ms = producer->heard_ms[class];
    uint64_t since_ms = request->sent_ms > heard_ms ? request->sent_ms : heard_ms;
    return now_ms - since_ms >= patience_ms << request->repeats;
}

static void on_second(evutil_socket_t fd, short what, void *context)
{
    struct producer *producer = context;
    uint64_t now_ms = clock_now_ms();
    (void)fd, (void)what;
    producer->step = producer->oldest;
    for (struct producer_request *request; (request = producer->step);) {
        producer->step = request->newer;
        if (now_ms >= request->deadline_ms && (request->command.words > 0 || producer->up)) {
            if (request->name[0] != '\0' && !request->kept) {
                cancel_in_queue(producer, request->name, request->id, NULL);
            }
            fail_request(request, STATUS_TIMEOUT, "no reply in time");
        } else if (producer->down_ms && now_ms - producer->down_ms >= producer->options.away_ms) {
            fail_request(request, STATUS_UNAVAILABLE, "Redis is away");
        } else if (producer->up && request->refused_ms > 0) {
            begin_request(request);
        } else if (is_forgotten(request, now_ms)) {
            request->repeats += request->repeats < REPEATS_MAX;
            request->sent_ms = 0;
            look_for(request);
        }
    }
    if (producer->up) { ask_facts(producer); }
    if (producer->up) { walk_some(producer, now_ms); }
    if (producer->up) { trim_tokens(producer); }
    if (!producer->up) { producer->facts.served = false; }
    in_ms(producer->second, 1000);
}

/* --- Coming up ---------------------------------------------------------------------------------------------------- */

static void come_up(struct producer *producer)
{
    if (!producer->commands_up || !producer->notices_up) { return; }
    producer->up = producer->facts.connected = true;
    producer->up_ms = clock_now_ms();
    producer->no_tokens = false; /* the login may have got the right meanwhile */
    log_info("redis_connected", log_str("queue", producer->options.queue), log_str("name", producer->options.name),
             log_int("open", (int64_t)producer->facts.open));
    wait_for_notices(producer);
    if (producer->up) { ask_facts(producer); }
    send_all(producer);
}

static void on_commands_up(void *context)
{
    ((struct producer *)context)->commands_up = true;
    come_up(context);
}

static void on_notices_up(void *context)
{
    ((struct producer *)context)->notices_up = true;
    come_up(context);
}

static void on_found(void *context, const struct endpoint *endpoint)
{
    struct producer *producer = context;
    struct err err;
    struct connection_options options = {
        .base = producer->options.base,
        .address = producer->options.address,
        .endpoint = endpoint,
        .resolver = find_master_resolver(producer->finder),
        .name = producer->options.name,
        .master_only = endpoint,
        .connect_timeout_ms = CONNECT_MS,
        .max_reply_bytes = REPLY_BYTES,
        .context = producer,
        .on_up = on_commands_up,
        .on_down = on_down,
    };
    enum status status = connection_open(&options, &producer->commands, &err);
    options.on_up = on_notices_up;
    if (!status) { status = connection_open(&options, &producer->notices, &err); }
    if (status) { lose_link(producer, &err); }
}

static void on_retry(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what;
    find_master_start(((struct producer *)context)->finder);
}

/* --- For the caller ----------------------------------------------------------------------------------------------- */

enum status producer_open(const struct producer_options *options, struct producer **out, struct err *err)
{
    struct producer *producer = calloc(1, sizeof *producer);
    if (!producer) { return err_set(err, STATUS_NO_MEMORY, "no memory for a producer"); }
    *out = producer;
    producer->options = *options;
    producer->random = options->seed;
    producer->down_ms = clock_now_ms();
    for (int i = 0; i < STREAMS; i++) { snprintf(producer->cursors[i], sizeof producer->cursors[i], "0-0"); }
    for (int class = 0; class < CLASS_COUNT; class ++) { producer->facts.wait_ms[class] = -1; }
    struct find_master_options find = {.base = options->base,
                                       .address = options->address,
                                       .timeout_ms = CONNECT_MS,
                                       .context = producer,
                                       .on_found = on_found,
                                       .on_failed = on_down};
    producer->retry = evtimer_new(options->base, on_retry, producer);
    producer->second = evtimer_new(options->base, on_second, producer);
    enum status status = producer->retry && producer->second && grow_table(producer)
                             ? find_master_open(&find, &producer->finder, err)
                             : err_set(err, STATUS_NO_MEMORY, "no memory for a producer");
    if (status) {
        producer_close(producer);
        *out = NULL;
        return status;
    }
    in_ms(producer->retry, 0);
    in_ms(producer->second, 1000);
    return STATUS_OK;
}

void producer_close(struct producer *producer)
{
    if (!producer) { return; }
    while (producer->oldest) { close_request(producer->oldest); }
    close_both(producer); /* the last answers free their requests */
    find_master_close(producer->finder);
    if (producer->retry) { event_free(producer->retry); }
    if (producer->second) { event_free(producer->second); }
    free(producer->buckets);
    free(producer);
}

const struct producer_facts *producer_facts(const struct producer *producer)
{
    return &producer->facts;
}

enum status producer_send(struct producer *producer, const struct producer_order *order, struct producer_request **out,
                          struct err *err)
{
    struct producer_request *request = calloc(1, sizeof *request);
    char key[KEY_MAX], notify[RESULTS_NAME_MAX + 16];
    if (!request) { return err_set(err, STATUS_NO_MEMORY, "no memory for a request"); }
    request->producer = producer;
    request->class = order->class;
    request->context = order->context;
    request->added = order->added;
    request->written = order->written;
    request->ended = order->ended;
    request->kept = order->kept;
    request->unlinked = order->unlinked;
    request->slow = order->slow;
    request->deadline_ms = order->timeout_ms == PRODUCER_NEVER
                               ? PRODUCER_NEVER
                               : clock_now_ms() + order->timeout_ms + (order->count > 0 ? GRACE_MS : 0);
    snprintf(request->id, sizeof request->id, "%s", order->id);
    if (order->name) { snprintf(request->name, sizeof request->name, "%s", order->name); }
    request->hash = XXH3_64bits(request->id, strlen(request->id));
    struct command *command = &request->command;
    if (order->count > 0) {
        command_pair(command, "XADD", key_of(producer, class_streams[order->class], "", key));
        command_pair(command, "*", "id");
        command_text(command, request->id);
        snprintf(notify, sizeof notify, "stream:%s", producer->options.name);
        command_pair(command, "notify", notify);
        if (order->written && !producer->no_tokens) { command_pair(command, "stream", producer->options.name); }
        if (order->timeout_ms != PRODUCER_NEVER) { command_count(command, "expires_in", order->timeout_ms); }
    }
    for (size_t i = 0; i < order->count; i++) {
        command_bytes(command, order->fields[i].name, order->fields[i].name_length);
        command_bytes(command, order->fields[i].value, order->fields[i].value_length);
    }
    if (!buffer_ok(&command->buffer) || !insert_request(producer, request)) {
        free_request(request);
        return err_set(err, STATUS_NO_MEMORY, "no memory for a request");
    }
    *out = request;
    if (producer->up) { begin_request(request); }
    return STATUS_OK;
}

void producer_cancel(struct producer_request *request)
{
    if (request->name[0] != '\0' && !request->kept) {
        cancel_in_queue(request->producer, request->name, request->id, NULL);
    }
    close_request(request);
}

enum status producer_ask(struct producer *producer, struct command *command, connection_reply_fn *reply, void *context,
                         struct err *err)
{
    if (!producer->up) {
        command_free(command);
        return err_set(err, STATUS_UNAVAILABLE, "Redis is away");
    }
    return connection_send_command(producer->commands, command, COMMAND_MS, reply, context, err);
}

enum status producer_cancel_name(struct producer *producer, const char *name, const char *id, const char *tenant,
                                 struct err *err)
{
    if (!producer->up) { return err_set(err, STATUS_UNAVAILABLE, "Redis is away"); }
    cancel_in_queue(producer, name, id, tenant);
    return producer->up ? STATUS_OK : err_set(err, STATUS_UNAVAILABLE, "Redis is away");
}
