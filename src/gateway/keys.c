#include "gateway/keys.h"

#include <event2/event.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hex.h"
#include "base/json.h"
#include "base/log.h"
#include "redis/producer.h"
#include "redis/queue_names.h"
#include "redis/scripts.h"

enum { READ_MS = 1000, FIRST_MS = 50, AWAY_MS = 8000, FILE_MOST = 16 << 20, REDIS_KEY_MAX = 320 };

/* The keys of a queue; those of a file are all in the first. */
struct table {
    struct keys *keys;
    struct producer *producer;
    const char *queue;
    struct key *items;
    size_t count;
    bool known, asked;
    uint64_t hash; /* of the last answer's bad parts, which are logged once */
};

/* A call that waits for its bucket. */
struct key_ask {
    struct keys *keys;
    struct key_ask *older, *newer;
    int queue;
    struct key_facts facts;
    uint64_t since_ms;
    bool sent, forgotten; /* forgotten: freed with the answer */
    char problem[160];
    key_answer_fn *answer;
    void *context;
};

struct keys {
    struct keys_options options;
    struct event *timer;
    struct table *tables; /* [queue_count] */
    struct key_ask *oldest, *newest;
    char digest[SCRIPT_DIGEST + 1]; /* of lua/bucket */
    bool from_file;
    struct timespec changed;
};

/* --- A key -------------------------------------------------------------------------------------------------------- */

bool key_name_is(const char *name)
{
    size_t length = strlen(name);
    return length >= 1 && length <= KEY_NAME_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:-") == length;
}

bool key_hash(const char *bytes, size_t length, unsigned char *digest)
{
    return EVP_Digest(bytes, length, digest, NULL, EVP_sha256(), NULL) == 1;
}

/* Each of these reads a member's value into its place in a key; false: it is bad. */
static bool read_name(const char *bytes, size_t length, void *to)
{
    char *name = to; /* [KEY_NAME_MAX + 1] */
    if (length < 2 || length > KEY_NAME_MAX + 2 || bytes[0] != '"') { return false; }
    snprintf(name, KEY_NAME_MAX + 1, "%.*s", (int)length - 2, bytes + 1);
    return key_name_is(name);
}

static bool read_limit(const char *bytes, size_t length, void *to)
{
    uint64_t *limit = to;
    if (length > 10 || strspn(bytes, "0123456789") < length) { return false; }
    *limit = strtoull(bytes, NULL, 10);
    return *limit >= 1 && *limit <= KEY_LIMIT_MOST;
}

static bool read_switch(const char *bytes, size_t length, void *to)
{
    bool *on = to;
    *on = length == 4 && memcmp(bytes, "true", 4) == 0;
    return *on || (length == 5 && memcmp(bytes, "false", 5) == 0);
}

static bool read_digest(const char *bytes, size_t length, void *to)
{
    unsigned char *digest = to; /* [KEY_DIGEST] */
    if (length != 2 * KEY_DIGEST + 2 || bytes[0] != '"' ||
        strspn(bytes + 1, "0123456789abcdefABCDEF") != 2 * (size_t)KEY_DIGEST) {
        return false;
    }
    for (size_t i = 0; i < KEY_DIGEST; i++) {
        const char digits[] = {bytes[1 + 2 * i], bytes[2 + 2 * i], '\0'};
        digest[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    return true;
}

static bool read_queues(const char *bytes, size_t length, void *to)
{
    struct buffer *queues = to;
    struct lexer lexer = {bytes, bytes + length};
    const char *name;
    size_t name_length;
    buffer_string(queues, ",");
    if (!lexer_take(&lexer, '[')) { return false; }
    do {
        lexer_skip_space(&lexer);
        if (!lexer_take(&lexer, '"') || !lexer_string(&lexer, &name, &name_length) ||
            !queue_name_is(name, name_length)) {
            return false;
        }
        buffer_append(queues, name, name_length);
        buffer_string(queues, ",");
        lexer_skip_space(&lexer);
    } while (lexer_take(&lexer, ','));
    return buffer_ok(queues);
}

static const struct {
    const char *name;
    bool (*read)(const char *bytes, size_t length, void *to);
    size_t offset; /* in struct key */
} members[] = {
    {"name", read_name, offsetof(struct key, facts.name)},
    {"sha256", read_digest, offsetof(struct key, digest)},
    {"tenant", read_name, offsetof(struct key, facts.tenant)},
    {"queues", read_queues, offsetof(struct key, queues)},
    {"requests_per_minute", read_limit, offsetof(struct key, facts.requests)},
    {"tokens_per_minute", read_limit, offsetof(struct key, facts.tokens)},
    {"max_texts", read_limit, offsetof(struct key, facts.texts)},
    {"batches", read_switch, offsetof(struct key, facts.batches)},
};
enum { MEMBERS = sizeof members / sizeof members[0] };
enum { HAS_NAME = 1, HAS_DIGEST = 2, HAS_TENANT = 4 }; /* the first rows, as bits of those that were there */

static bool read_member(struct key *key, const struct lexer_member *member, const char *value, size_t length,
                        unsigned *seen)
{
    unsigned i = 0;
    while (i < MEMBERS && !lexer_member_is(member, members[i].name)) { i++; }
    if (i == MEMBERS || *seen & 1u << i) { return false; }
    *seen |= 1u << i;
    return members[i].read(value, length, (char *)key + members[i].offset);
}

enum status key_parse(const char *json, size_t length, struct key *key, struct err *err)
{
    struct lexer lexer = {json, json + length};
    struct lexer_member member = {0};
    unsigned seen = 0;
    *key = (struct key){0};
    bool valid = json_valid(json, length);
    while (valid && lexer_next_member(&lexer, &member)) {
        const char *value = lexer.at;
        (void)lexer_value(&lexer, 1);
        if (!read_member(key, &member, value, (size_t)(lexer.at - value), &seen)) {
            return err_set(err, STATUS_BAD_INPUT, "the member '%.*s' of a key is unknown, bad or there twice",
                           (int)(member.length < 40 ? member.length : 40), member.name);
        }
    }
    if (!member.whole) { return err_set(err, STATUS_BAD_INPUT, "a key is a JSON object"); }
    if ((seen & (HAS_NAME | HAS_DIGEST)) != (HAS_NAME | HAS_DIGEST)) {
        return err_set(err, STATUS_BAD_INPUT, "a key has a name and a sha256");
    }
    if (!(seen & HAS_TENANT)) { memcpy(key->facts.tenant, key->facts.name, sizeof key->facts.tenant); }
    return STATUS_OK;
}

/* --- Tables ------------------------------------------------------------------------------------------------------- */

static void free_items(struct key *items, size_t count)
{
    for (size_t i = 0; i < count; i++) { buffer_free(&items[i].queues); }
    free(items);
}

/* Replaces the keys of a table. Owns: takes over the items. */
static void fill_table(struct table *table, struct key *items, size_t count)
{
    if (!table->known || table->count != count) {
        log_info("keys", log_str("queue", table->keys->from_file ? "" : table->queue),
                 log_int("count", (int64_t)count));
    }
    free_items(table->items, table->count);
    table->items = items;
    table->count = count;
    table->known = true;
    table->keys->tables[0].known |= table->keys->from_file;
}

/* The file's lines; empty ones and those that begin with # mean nothing. */
static enum status read_file(struct keys *keys, struct err *err)
{
    struct stat now;
    struct buffer text = {0};
    size_t count = 0, number = 0, most = 1;
    enum status status = STATUS_OK;
    if (stat(keys->options.source, &now) != 0) { return err_set_errno(err, "cannot read %s", keys->options.source); }
    if (keys->tables[0].known && memcmp(&now.st_mtim, &keys->changed, sizeof now.st_mtim) == 0) { return STATUS_OK; }
    TRY(file_read(keys->options.source, FILE_MOST, &text, err));
    for (size_t i = 0; i < text.length; i++) { most += text.data[i] == '\n'; }
    struct key *items = calloc(most, sizeof *items);
    if (!items) { status = err_set(err, STATUS_NO_MEMORY, "no memory for keys"); }
    const char *last = text.data + text.length;
    for (const char *line = text.data, *end; status == STATUS_OK && line && line < last; line = end + 1) {
        end = memchr(line, '\n', (size_t)(last - line));
        end = end ? end : last;
        number++;
        if (line[0] == '#' || strspn(line, " \t\r") >= (size_t)(end - line)) { continue; }
        status = key_parse(line, (size_t)(end - line), &items[count++], err);
        if (status) { status = err_prefix(err, "%s, line %zu", keys->options.source, number); }
    }
    buffer_free(&text);
    if (status) {
        free_items(items, count);
        return status;
    }
    keys->changed = now.st_mtim;
    fill_table(&keys->tables[0], items, count);
    return STATUS_OK;
}

static void on_keys(void *context, const struct resp_value *reply)
{
    struct table *table = context;
    struct err err = {.message = ""};
    size_t count = 0, bad = 0;
    table->asked = false;
    if (!reply) { return; }
    bool shape = resp_check(reply, &err) == STATUS_OK && reply->type == RESP_ARRAY && reply->count % 2 == 0;
    struct key *items = shape ? calloc(reply->count / 2 + 1, sizeof *items) : NULL;
    for (size_t i = 0; items && i < reply->count; i += 2) {
        const struct resp_value *name = &reply->items[i], *value = &reply->items[i + 1];
        struct key *key = &items[count];
        if (value->bytes && key_parse(value->bytes, value->length, key, &err) == STATUS_OK &&
            resp_equals(name, key->facts.name)) {
            count++;
        } else {
            buffer_free(&key->queues);
            bad++;
        }
    }
    uint64_t hash = items ? bad : UINT64_MAX;
    if (hash != table->hash && hash != 0) {
        log_warn("keys_bad", log_str("queue", table->queue), log_int("ignored", (int64_t)bad),
                 log_str("reason", err.message));
    }
    table->hash = hash;
    if (items) { fill_table(table, items, count); }
}

static void read_table(struct table *table)
{
    struct command command = {0};
    char key[REDIS_KEY_MAX];
    struct err err;
    if (table->asked) { return; }
    snprintf(key, sizeof key, "sluice:{%s}:keys", table->queue);
    command_pair(&command, "HGETALL", key);
    table->asked = producer_ask(table->producer, &command, on_keys, table, &err) == STATUS_OK;
}

static bool may_ask(const struct key *key, const char *queue)
{
    char part[QUEUE_NAME_MAX + 3];
    int length = snprintf(part, sizeof part, ",%s,", queue);
    return key->queues.length == 0 || memmem(key->queues.data, key->queues.length, part, (size_t)length);
}

/* Compares the digest with each key of a queue, in a time that does not depend on where they differ. */
static const struct key *find_key(const struct keys *keys, const unsigned char *digest, int queue)
{
    const struct table *table = &keys->tables[keys->from_file ? 0 : queue];
    const struct key *found = NULL;
    for (size_t i = 0; i < table->count; i++) {
        const struct key *key = &table->items[i];
        if (CRYPTO_memcmp(digest, key->digest, KEY_DIGEST) == 0 && may_ask(key, keys->options.queues[queue])) {
            found = key;
        }
    }
    return found;
}

enum key_verdict keys_judge(const struct keys *keys, const char *authorization, int queue, struct key_facts *facts)
{
    unsigned char digest[KEY_DIGEST];
    enum key_verdict verdict = KEY_MISSING;
    static const char scheme[] = "Bearer ";
    if (!authorization || strncasecmp(authorization, scheme, strlen(scheme)) != 0) { return KEY_MISSING; }
    const char *bytes = authorization + strlen(scheme);
    bytes += strspn(bytes, " ");
    if (!key_hash(bytes, strlen(bytes), digest)) { return KEY_MISSING; }
    if (queue != KEYS_ANY_QUEUE && !keys->tables[keys->from_file ? 0 : queue].known) { return KEY_NOT_READ; }
    for (int i = 0; i < (int)keys->options.queue_count; i++) {
        const struct key *key = find_key(keys, digest, i);
        if (key && (queue == KEYS_ANY_QUEUE || queue == i)) {
            *facts = key->facts;
            return KEY_GOOD;
        }
        if (key) { verdict = KEY_ELSEWHERE; }
        if (verdict == KEY_MISSING && !keys->tables[keys->from_file ? 0 : i].known) { verdict = KEY_NOT_READ; }
    }
    return verdict;
}

/* --- Buckets ------------------------------------------------------------------------------------------------------ */

static enum status take(struct keys *keys, int queue, const struct key_facts *facts, uint64_t requests, uint64_t tokens,
                        connection_reply_fn *reply, void *context, struct err *err)
{
    struct command command = {0};
    char key[REDIS_KEY_MAX];
    snprintf(key, sizeof key, "sluice:{%s}:limit:%s", keys->options.queues[queue], facts->name);
    command_pair(&command, "EVALSHA", keys->digest);
    command_pair(&command, "1", key);
    const uint64_t numbers[] = {facts->requests, facts->tokens, requests, tokens};
    for (size_t i = 0; i < 4; i++) { command_number(&command, numbers[i]); }
    return producer_ask(keys->options.producers[queue], &command, reply, context, err);
}

static void free_ask(struct key_ask *ask)
{
    struct keys *keys = ask->keys;
    *(ask->older ? &ask->older->newer : &keys->oldest) = ask->newer;
    *(ask->newer ? &ask->newer->older : &keys->newest) = ask->older;
    free(ask);
}

static void end_ask(struct key_ask *ask, enum status status, uint64_t wait_ms)
{
    struct key_ask copy = *ask;
    free_ask(ask);
    copy.answer(copy.context, status, wait_ms, copy.problem);
}

static void on_taken(void *context, const struct resp_value *reply)
{
    struct key_ask *ask = context;
    struct err err;
    ask->sent = false;
    if (ask->forgotten) {
        free_ask(ask);
    } else if (reply && reply->type == RESP_INTEGER) {
        end_ask(ask, STATUS_OK, reply->integer > 0 ? (uint64_t)reply->integer : 0);
    } else if (reply && resp_is_error(reply, "NOSCRIPT")) {
        snprintf(ask->problem, sizeof ask->problem, "no worker has joined since Redis started");
    } else if (reply && resp_check(reply, &err) != STATUS_OK) {
        snprintf(ask->problem, sizeof ask->problem, "%.150s", err.message);
    }
}

static void send_ask(struct key_ask *ask)
{
    struct err err;
    if (!ask->sent) { ask->sent = take(ask->keys, ask->queue, &ask->facts, 1, 0, on_taken, ask, &err) == STATUS_OK; }
}

enum status keys_ask(struct keys *keys, int queue, const struct key_facts *facts, key_answer_fn *answer, void *context,
                     struct key_ask **out, struct err *err)
{
    struct key_ask *ask = calloc(1, sizeof *ask);
    if (!ask) { return err_set(err, STATUS_NO_MEMORY, "no memory for a call"); }
    *ask = (struct key_ask){.keys = keys,
                            .older = keys->newest,
                            .queue = queue,
                            .facts = *facts,
                            .since_ms = clock_now_ms(),
                            .problem = "Redis is away",
                            .answer = answer,
                            .context = context};
    *(keys->newest ? &keys->newest->newer : &keys->oldest) = ask;
    keys->newest = ask;
    send_ask(ask);
    *out = ask;
    return STATUS_OK;
}

void keys_forget(struct key_ask *ask)
{
    ask->forgotten = true;
    if (!ask->sent) { free_ask(ask); }
}

void keys_charge(struct keys *keys, int queue, const struct key_facts *facts, uint64_t tokens)
{
    struct err ignored;
    if (facts->tokens > 0) { (void)take(keys, queue, facts, 0, tokens, NULL, NULL, &ignored); }
}

/* --- Each second -------------------------------------------------------------------------------------------------- */

static void on_timer(evutil_socket_t fd, short what, void *context)
{
    struct keys *keys = context;
    struct err err;
    uint64_t now_ms = clock_now_ms(), wait_ms = READ_MS;
    (void)fd, (void)what;
    if (keys->from_file) {
        if (read_file(keys, &err) != STATUS_OK) { log_warn("keys_bad", log_str("reason", err.message)); }
    } else {
        for (size_t i = 0; i < keys->options.queue_count; i++) {
            read_table(&keys->tables[i]);
            if (!keys->tables[i].known) { wait_ms = FIRST_MS; }
        }
    }
    for (struct key_ask *ask = keys->oldest, *next; ask; ask = next) {
        next = ask->newer;
        if (!ask->sent && now_ms - ask->since_ms >= AWAY_MS) {
            end_ask(ask, STATUS_UNAVAILABLE, 0);
        } else if (now_ms - ask->since_ms >= READ_MS) {
            send_ask(ask);
        }
    }
    struct timeval wait = {.tv_sec = (time_t)(wait_ms / 1000), .tv_usec = (suseconds_t)(wait_ms % 1000 * 1000)};
    evtimer_add(keys->timer, &wait);
}

static enum status begin_keys(struct keys *keys, struct err *err)
{
    unsigned char sha1[EVP_MAX_MD_SIZE];
    const struct script_source *source = &script_sources[SCRIPT_BUCKET];
    keys->tables = calloc(keys->options.queue_count, sizeof *keys->tables);
    keys->timer = evtimer_new(keys->options.base, on_timer, keys);
    if (!keys->tables || !keys->timer || EVP_Digest(source->text, source->length, sha1, NULL, EVP_sha1(), NULL) != 1) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for keys");
    }
    hex_write(keys->digest, sha1, SCRIPT_DIGEST / 2);
    for (size_t i = 0; i < keys->options.queue_count; i++) {
        keys->tables[i] =
            (struct table){.keys = keys, .producer = keys->options.producers[i], .queue = keys->options.queues[i]};
    }
    if (keys->from_file) { TRY(read_file(keys, err)); }
    on_timer(-1, 0, keys);
    return STATUS_OK;
}

enum status keys_open(const struct keys_options *options, struct keys **out, struct err *err)
{
    struct keys *keys = calloc(1, sizeof *keys);
    if (!keys) { return err_set(err, STATUS_NO_MEMORY, "no memory for keys"); }
    keys->options = *options;
    keys->from_file = strcmp(options->source, "redis") != 0;
    enum status status = begin_keys(keys, err);
    if (status) {
        keys_close(keys);
        return status;
    }
    *out = keys;
    return STATUS_OK;
}

void keys_close(struct keys *keys)
{
    if (!keys) { return; }
    while (keys->oldest) { free_ask(keys->oldest); }
    for (size_t i = 0; keys->tables && i < keys->options.queue_count; i++) {
        free_items(keys->tables[i].items, keys->tables[i].count);
    }
    if (keys->timer) { event_free(keys->timer); }
    free(keys->tables);
    free(keys);
}
