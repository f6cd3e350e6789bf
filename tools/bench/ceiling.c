/* Two reads are always on their way, and behind each come the settles of what it brings and the next read: Redis always
 * has the next flight before it is done with this one. Commands: R1 R2 S1 R3 S2 R4 ...
 *
 * The daemon's habits are repeated here: large replies go ahead of the script (io/queue_settle.c), a settle call has at
 * most so many entries and bytes (work/worker_internal.h). Were they asked for, a weakness there could lower the ceiling.
 */
#include "ceiling.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "io/connection.h"
#include "io/dial.h"
#include "io/scripts.h"

enum {
    READ_COUNT = 512,
    STAGE_BYTES = 2048,    /* replies from here on go ahead of the script */
    CALL_ENTRIES = 64,     /* entries of one settle ... */
    CALL_BYTES = 32 << 10, /* ... or bytes of replies */
    REPLY_STRINGS = 12,    /* field, value, ... */
    TIMEOUT_MS = 60000,
};

/* --- requests --- */

enum { AT_ONCE = 10000, WORDS = 7, NUMBER = 24 };

static const char filling_script[] =
    "for i = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'text', "
    "'the quick brown fox jumps over the lazy dog, number ' .. (ARGV[2] + i), 'encoding', ARGV[3]) end";

/* A command's words, and where those live that are made for it. */
struct words {
    const char *items[WORDS];
    char key[STAGE_KEY], count[NUMBER], from[NUMBER];
};

static void make_filling(struct filling *filling, uint64_t count, struct words *words)
{
    snprintf(words->count, NUMBER, "%llu", (unsigned long long)count);
    snprintf(words->from, NUMBER, "%llu", (unsigned long long)filling->count);
    const char *all[WORDS] = {
        "EVAL",      filling_script,   "1", stage_key(filling->stage, "requests", words->key), words->count,
        words->from, filling->encoding};
    for (size_t i = 0; i < WORDS; i++)
        words->items[i] = all[i];
    filling->count += count;
}

enum status filling_add(struct filling *filling, uint64_t count, struct err *err)
{
    struct words words;
    const struct resp_value *reply;
    while (count > 0) {
        uint64_t now = count < AT_ONCE ? count : AT_ONCE;
        TRY(stage_check(filling->stage, err));
        make_filling(filling, now, &words);
        TRY(client_command(filling->stage->client, WORDS, words.items, NULL, &reply, err));
        count -= now;
    }
    return STATUS_OK;
}

void filling_write(struct filling *filling, uint64_t count, struct command *command)
{
    struct words words;
    make_filling(filling, count, &words);
    command_list(command, WORDS, words.items, NULL);
}

/* --- the bare client --- */

struct ceiling {
    const struct ceiling_run *run;
    struct event_base *base;
    struct resolver *resolver;
    struct connection *connection;
    struct scripts scripts;
    struct command command; /* kept, so that its memory is */
    char dim[16];
    struct buffer embedding;
    bool staged;
    size_t per_call;
    size_t read, settled;
    unsigned out; /* answers to come */
    uint64_t begin_ns, end_ns;
    struct err err; /* what went wrong, or STATUS_OK */
};

static void fail(struct ceiling *ceiling, const struct err *err)
{
    if (ceiling->err.status == STATUS_OK)
        ceiling->err = *err;
    event_base_loopbreak(ceiling->base);
}

static void fail_with(struct ceiling *ceiling, const char *message)
{
    struct err err;
    (void)err_set(&err, STATUS_INTERNAL, "%s", message);
    fail(ceiling, &err);
}

static void make_embedding(struct ceiling *ceiling)
{
    snprintf(ceiling->dim, sizeof ceiling->dim, "%u", ceiling->run->dim);
    bool json = strcmp(ceiling->run->encoding, "json") == 0;
    for (uint32_t i = 0; i < ceiling->run->dim; i++)
        if (json)
            buffer_format(&ceiling->embedding, "%c0.0%08u", i == 0 ? '[' : ',', 11037041u + i * 12347u % 80000000u);
        else
            buffer_append(&ceiling->embedding, "\x3d\x3d\x3d\x3d", 4);
    buffer_string(&ceiling->embedding, json ? "]" : "");
    ceiling->staged = ceiling->embedding.length >= STAGE_BYTES;
    ceiling->per_call = CALL_BYTES / ceiling->embedding.length;
    if (ceiling->per_call > CALL_ENTRIES)
        ceiling->per_call = CALL_ENTRIES;
    if (ceiling->per_call == 0)
        ceiling->per_call = 1;
}

/* Sends the command that was built; `reply` NULL: its answer does not matter. */
static void send_command(struct ceiling *ceiling, connection_reply_fn *reply)
{
    const char *bytes;
    size_t length;
    struct err err;
    enum status status = command_finish(&ceiling->command, &bytes, &length, &err);
    if (status == STATUS_OK)
        status = connection_send(ceiling->connection, bytes, length, TIMEOUT_MS, reply, ceiling, &err);
    if (status != STATUS_OK)
        fail(ceiling, &err);
    else
        ceiling->out += reply != NULL;
    command_free(&ceiling->command);
}

static void send_text(struct ceiling *ceiling, const char *word)
{
    command_text(&ceiling->command, word);
    send_command(ceiling, NULL);
}

static void add_key(struct ceiling *ceiling, const char *kind, const char *entry)
{
    char suffix[STAGE_KEY], key[STAGE_KEY];
    snprintf(suffix, sizeof suffix, "%s%s", kind, entry);
    command_text(&ceiling->command, stage_key(ceiling->run->stage, suffix, key));
}

/* The reply's fields, as they stand in a settle call or are staged. */
static void add_fields(struct ceiling *ceiling, const char *id)
{
    const char *before[] = {"id", id, "dim", ceiling->dim, "encoding", ceiling->run->encoding, "embedding"};
    const char *behind[] = {"tokens", "18", "compute_ms", "1.234"};
    command_list(&ceiling->command, sizeof before / sizeof before[0], before, NULL);
    command_bytes(&ceiling->command, ceiling->embedding.data, ceiling->embedding.length);
    command_list(&ceiling->command, sizeof behind / sizeof behind[0], behind, NULL);
}

static void send_stages(struct ceiling *ceiling, const struct resp_value *entries, size_t count)
{
    send_text(ceiling, "MULTI");
    for (size_t i = 0; i < count; i++) {
        const char *id = entries[i].items[0].bytes;
        command_text(&ceiling->command, "HSET");
        add_key(ceiling, "stage:bench:", id);
        add_fields(ceiling, id);
        send_command(ceiling, NULL);
        command_text(&ceiling->command, "PEXPIRE");
        add_key(ceiling, "stage:bench:", id);
        command_text(&ceiling->command, "3600000");
        send_command(ceiling, NULL);
    }
    send_text(ceiling, "EXEC");
}

/* Takes an answer: false when something went wrong. */
static bool take_answer(struct ceiling *ceiling, const struct resp_value *reply, const struct err *err)
{
    ceiling->out--;
    if (reply != NULL && resp_check(reply, &ceiling->err) == STATUS_OK)
        return true;
    fail(ceiling, reply == NULL ? err : &ceiling->err);
    return false;
}

static void end_if_over(struct ceiling *ceiling)
{
    if (ceiling->out == 0)
        event_base_loopbreak(ceiling->base);
}

static void on_settled(void *context, const struct resp_value *reply, const struct err *err)
{
    struct ceiling *ceiling = context;
    if (!take_answer(ceiling, reply, err))
        return;
    for (size_t i = 0; i + 2 < reply->count; i++) {
        if (reply->items[i].integer != 1)
            fail_with(ceiling, "settle did not take an entry of the bare client");
        ceiling->settled++;
    }
    if (ceiling->settled >= ceiling->run->wanted)
        ceiling->end_ns = clock_now_ns();
    end_if_over(ceiling);
}

static void send_settle(struct ceiling *ceiling, const struct resp_value *entries, size_t count)
{
    static const char *const common[] = {"bench", "null", "0000000000000000"};
    static const char *const shared[] = {"trouble", "dead"};
    struct command *command = &ceiling->command;
    if (ceiling->staged)
        send_stages(ceiling, entries, count);
    script_begin(&ceiling->scripts, SCRIPT_SETTLE, 3 + count * (ceiling->staged ? 2 : 1), command);
    add_key(ceiling, "requests", "");
    for (size_t i = 0; i < 2; i++)
        add_key(ceiling, shared[i], "");
    for (size_t i = 0; i < count; i++)
        add_key(ceiling, "reply:", entries[i].items[0].bytes);
    for (size_t i = 0; i < count && ceiling->staged; i++)
        add_key(ceiling, "stage:bench:", entries[i].items[0].bytes);
    command_list(command, 3, common, NULL);
    command_number(command, count);
    for (size_t i = 0; i < count; i++) {
        const char *id = entries[i].items[0].bytes;
        const char *words[] = {id, "done", id, "3600000", "0", "0", "1700000000000", "1"};
        command_list(command, sizeof words / sizeof words[0], words, NULL);
        command_number(command, ceiling->staged ? 0 : REPLY_STRINGS);
        if (!ceiling->staged)
            add_fields(ceiling, id);
    }
    send_command(ceiling, on_settled);
}

static void on_read(void *context, const struct resp_value *reply, const struct err *err);

static void send_read(struct ceiling *ceiling)
{
    static const char *const words[] = {"XREADGROUP", "GROUP", "sluice", "bench", "COUNT"};
    command_list(&ceiling->command, sizeof words / sizeof words[0], words, NULL);
    command_number(&ceiling->command, READ_COUNT);
    command_text(&ceiling->command, "STREAMS");
    add_key(ceiling, "requests", "");
    command_text(&ceiling->command, ">");
    send_command(ceiling, on_read);
}

static void on_filled(void *context, const struct resp_value *reply, const struct err *err)
{
    if (take_answer(context, reply, err))
        end_if_over(context);
}

/* Adds as many requests as were read. */
static void send_filling(struct ceiling *ceiling, size_t count)
{
    filling_write(ceiling->run->filling, count, &ceiling->command);
    send_command(ceiling, on_filled);
}

static void on_read(void *context, const struct resp_value *reply, const struct err *err)
{
    struct ceiling *ceiling = context;
    if (!take_answer(ceiling, reply, err))
        return;
    const struct resp_value *entries = reply->type == RESP_ARRAY ? &reply->items[0].items[1] : NULL;
    size_t count = entries == NULL ? 0 : entries->count;
    for (size_t at = 0; at < count; at += ceiling->per_call)
        send_settle(ceiling, entries->items + at, count - at < ceiling->per_call ? count - at : ceiling->per_call);
    ceiling->read += count;
    if (ceiling->run->filling != NULL && count > 0)
        send_filling(ceiling, count);
    else if (ceiling->run->filling == NULL && count == 0 && ceiling->read < ceiling->run->wanted)
        fail_with(ceiling, "the stream ran empty before all requests were read");
    if (ceiling->read < ceiling->run->wanted)
        send_read(ceiling);
    end_if_over(ceiling);
}

static void on_loaded(void *context, const struct err *err)
{
    struct ceiling *ceiling = context;
    if (err != NULL) {
        fail(ceiling, err);
        return;
    }
    ceiling->begin_ns = clock_now_ns();
    send_read(ceiling);
    send_read(ceiling);
}

static void on_up(void *context)
{
    struct ceiling *ceiling = context;
    struct err err;
    ceiling->scripts.connection = ceiling->connection;
    if (scripts_load(&ceiling->scripts, &err) != STATUS_OK)
        fail(ceiling, &err);
}

static void on_down(void *context, const struct err *err)
{
    fail(context, err);
}

static enum status settle_all(struct ceiling *ceiling, struct err *err)
{
    enum { REPLY_BYTES = 64 << 20 };
    struct connection_options options = {.address = &ceiling->run->stage->address,
                                         .name = "sluice-bench",
                                         .connect_timeout_ms = TIMEOUT_MS,
                                         .max_reply_bytes = REPLY_BYTES,
                                         .context = ceiling,
                                         .on_up = on_up,
                                         .on_down = on_down};
    ceiling->base = event_base_new();
    if (ceiling->base == NULL || !buffer_ok(&ceiling->embedding))
        return err_set(err, STATUS_NO_MEMORY, "no memory for a bare client");
    TRY(resolver_open(ceiling->base, &ceiling->resolver, err));
    options.base = ceiling->base;
    options.resolver = ceiling->resolver;
    TRY(connection_open(&options, &ceiling->connection, err));
    while (ceiling->err.status == STATUS_OK && (ceiling->end_ns == 0 || ceiling->out > 0) &&
           *ceiling->run->stage->stop == 0)
        event_base_loop(ceiling->base, EVLOOP_ONCE);
    TRY(stage_check(ceiling->run->stage, err));
    return ceiling->err.status == STATUS_OK ? STATUS_OK : err_set(err, ceiling->err.status, "%s", ceiling->err.message);
}

enum status ceiling_run(const struct ceiling_run *run, uint64_t *settled, uint64_t *took_ns, struct err *err)
{
    struct ceiling ceiling = {.run = run};
    if (address_is_plural(&run->stage->address))
        return err_set(err, STATUS_UNSUPPORTED, "the bare client needs the address of one Redis");
    ceiling.scripts.context = &ceiling;
    ceiling.scripts.on_loaded = on_loaded;
    make_embedding(&ceiling);
    enum status status = settle_all(&ceiling, err);
    *settled = ceiling.settled;
    *took_ns = ceiling.end_ns - ceiling.begin_ns;
    connection_close(ceiling.connection);
    if (ceiling.resolver != NULL)
        resolver_close(ceiling.resolver);
    if (ceiling.base != NULL)
        event_base_free(ceiling.base);
    command_free(&ceiling.command);
    buffer_free(&ceiling.embedding);
    return status;
}
