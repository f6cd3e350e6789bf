/* What one Redis can do under the daemon's own commands: a bare pipelined client that reads entries with XREADGROUP and
 * settles them with lua/settle.lua, with replies that were formatted beforehand. It computes nothing, checks little and
 * recovers from nothing, so its rate is the ceiling that the daemon's loop is compared with.
 *
 * usage: queue_ceiling SOCKET SETTLE.LUA REQUESTS DIM f32|json
 * The stream must be filled; prints requests per second. */
#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define STREAM "sluice:{default}:requests"

enum {
    READ_COUNT = 512,      /* entries of one XREADGROUP */
    STAGE_BYTES = 2048,    /* replies from here on go ahead of the script */
    CALL_ENTRIES = 64,     /* entries of one settle … */
    CALL_BYTES = 32 << 10, /* … or bytes of replies */
    FIELDS = 6,            /* strings of a reply beside those that settle adds: dim, encoding, embedding, … */
    ENTRY_ARGUMENTS = 9 + 2 * FIELDS,
};

struct bench {
    redisContext *redis;
    char script[41];
    const char *encoding;
    char dim[16];
    char *embedding;
    size_t embedding_bytes;
    bool staged; /* sent ahead of the script: it is large */
    size_t per_call;
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "queue_ceiling: %s: %s\n", what, why);
    exit(1);
}

static redisReply *answer(redisContext *redis, const char *what)
{
    void *reply = NULL;
    if (redisGetReply(redis, &reply) != REDIS_OK)
        die(what, redis->errstr);
    if (((redisReply *)reply)->type == REDIS_REPLY_ERROR)
        die(what, ((redisReply *)reply)->str);
    return reply;
}

static void load_script(struct bench *bench, const char *path)
{
    FILE *file = fopen(path, "rb");
    static char source[1 << 16];
    size_t length = file == NULL ? 0 : fread(source, 1, sizeof source - 1, file);
    if (length == 0)
        die(path, "cannot be read");
    fclose(file);
    const char *arguments[] = {"SCRIPT", "LOAD", source};
    redisAppendCommandArgv(bench->redis, 3, arguments, NULL);
    redisReply *reply = answer(bench->redis, "SCRIPT LOAD");
    snprintf(bench->script, sizeof bench->script, "%s", reply->str);
    freeReplyObject(reply);
}

static void make_embedding(struct bench *bench, unsigned dim)
{
    snprintf(bench->dim, sizeof bench->dim, "%u", dim);
    bench->embedding = malloc(16 * (size_t)dim + 2);
    if (bench->embedding == NULL)
        die("embedding", "no memory");
    if (strcmp(bench->encoding, "f32") == 0) {
        bench->embedding_bytes = 4 * (size_t)dim;
        memset(bench->embedding, 0x3d, bench->embedding_bytes);
    } else {
        char *to = bench->embedding;
        for (unsigned i = 0; i < dim; i++)
            to += sprintf(to, "%c0.0%08u", i == 0 ? '[' : ',', 11037041u + i * 12347u % 80000000u);
        bench->embedding_bytes = (size_t)(to - bench->embedding) + 1;
        *to = ']';
    }
    bench->staged = bench->embedding_bytes >= STAGE_BYTES;
    bench->per_call = CALL_BYTES / bench->embedding_bytes;
    if (bench->per_call > CALL_ENTRIES)
        bench->per_call = CALL_ENTRIES;
    if (bench->per_call == 0)
        bench->per_call = 1;
}

/* The reply's fields, as they stand in a settle call or are staged. */
static size_t put_fields(const struct bench *bench, const redisReply *id, const char **to, size_t *lengths)
{
    const char *fields[2 * FIELDS] = {
        "id",        id->str, "dim",    bench->dim, "encoding",   bench->encoding,
        "embedding", NULL,    "tokens", "18",       "compute_ms", "1",
    };
    for (size_t i = 0; i < 2 * FIELDS; i++) {
        to[i] = fields[i] == NULL ? bench->embedding : fields[i];
        lengths[i] = fields[i] == NULL ? bench->embedding_bytes : strlen(fields[i]);
    }
    return 2 * FIELDS;
}

/* Appends one entry's part of a settle call; returns the number of arguments. */
static size_t put_entry(const struct bench *bench, const redisReply *id, const char **to, size_t *lengths)
{
    const char *entry[] = {
        id->str,         "done", id->str,
        "3600000",       "0",    "0",
        "1700000000000", "1",    bench->staged ? "0" : "12"}; /* what settle needs to know, and the number of fields */
    size_t n = sizeof entry / sizeof *entry;
    for (size_t i = 0; i < n; i++) {
        to[i] = entry[i];
        lengths[i] = strlen(entry[i]);
    }
    return bench->staged ? n : n + put_fields(bench, id, to + n, lengths + n);
}

static size_t put_key(char key[80], const char *kind, const redisReply *entry)
{
    return (size_t)snprintf(key, 80, "sluice:{default}:%s:%s", kind, entry->element[0]->str);
}

/* Sends the replies ahead of their settle, as the daemon does with large ones. */
static void append_stage(struct bench *bench, redisReply *const *entries, size_t count)
{
    redisAppendCommand(bench->redis, "MULTI");
    for (size_t i = 0; i < count; i++) {
        const char *arguments[2 + 2 * FIELDS] = {"HSET"};
        size_t lengths[2 + 2 * FIELDS] = {4};
        char key[80];
        lengths[1] = put_key(key, "stage:bench", entries[i]);
        arguments[1] = key;
        put_fields(bench, entries[i]->element[0], arguments + 2, lengths + 2);
        redisAppendCommandArgv(bench->redis, 2 + 2 * FIELDS, arguments, lengths);
        redisAppendCommand(bench->redis, "PEXPIRE %s 3600000", key);
    }
    redisAppendCommand(bench->redis, "EXEC");
}

static void append_settle(struct bench *bench, redisReply *const *entries, size_t count)
{
    static const char *arguments[7 + 4 + CALL_ENTRIES * (2 + ENTRY_ARGUMENTS)];
    static size_t lengths[7 + 4 + CALL_ENTRIES * (2 + ENTRY_ARGUMENTS)];
    static char keys[2 * CALL_ENTRIES][80], key_count[16], entry_count[16];
    size_t n = 0, key_total = bench->staged ? 2 * count : count;
    if (bench->staged)
        append_stage(bench, entries, count);
    snprintf(key_count, sizeof key_count, "%zu", 4 + key_total);
    snprintf(entry_count, sizeof entry_count, "%zu", count);
    const char *head[] = {"EVALSHA",
                          bench->script,
                          key_count,
                          STREAM,
                          "sluice:{default}:trouble",
                          "sluice:{default}:dead",
                          "sluice:{default}:results"};
    for (size_t i = 0; i < 7; i++, n++)
        arguments[n] = head[i], lengths[n] = strlen(head[i]);
    for (size_t i = 0; i < key_total; i++, n++) {
        lengths[n] = put_key(keys[i], i < count ? "reply" : "stage:bench", entries[i % count]);
        arguments[n] = keys[i];
    }
    const char *common[] = {"bench", "null", "0000000000000000", entry_count};
    for (size_t i = 0; i < 4; i++, n++)
        arguments[n] = common[i], lengths[n] = strlen(common[i]);
    for (size_t i = 0; i < count; i++)
        n += put_entry(bench, entries[i]->element[0], arguments + n, lengths + n);
    redisAppendCommandArgv(bench->redis, (int)n, arguments, lengths);
}

static void append_read(struct bench *bench)
{
    char count[16];
    snprintf(count, sizeof count, "%d", READ_COUNT);
    const char *arguments[] = {"XREADGROUP", "GROUP", "sluice", "bench", "COUNT", count, "STREAMS", STREAM, ">"};
    redisAppendCommandArgv(bench->redis, 9, arguments, NULL);
}

static void flush(struct bench *bench)
{
    int done = 0;
    while (!done)
        if (redisBufferWrite(bench->redis, &done) != REDIS_OK)
            die("write", bench->redis->errstr);
}

/* Settles one read's entries and asks for more behind them; the answers are left for later, so that Redis always has
 * the next flight before it is done with this one. Returns how many settle calls were sent. */
static size_t send_flight(struct bench *bench, const redisReply *read, size_t *count)
{
    const redisReply *stream = read->type == REDIS_REPLY_ARRAY ? read->element[0]->element[1] : NULL;
    *count = stream == NULL ? 0 : stream->elements;
    size_t calls = 0;
    for (size_t at = 0; at < *count; at += bench->per_call, calls++) {
        size_t left = *count - at;
        append_settle(bench, stream->element + at, left < bench->per_call ? left : bench->per_call);
    }
    append_read(bench);
    flush(bench);
    return calls;
}

/* The answers of MULTI to EXEC, of which only the last is an array. */
static void take_stage(struct bench *bench)
{
    for (int type = REDIS_REPLY_STATUS; type == REDIS_REPLY_STATUS;) {
        redisReply *reply = answer(bench->redis, "MULTI");
        type = reply->type;
        freeReplyObject(reply);
    }
}

static void take_settles(struct bench *bench, size_t calls)
{
    for (size_t i = 0; i < calls; i++) {
        if (bench->staged)
            take_stage(bench);
        redisReply *reply = answer(bench->redis, "settle");
        for (size_t k = 0; k + 2 < reply->elements; k++)
            if (reply->element[k]->integer != 1)
                die("settle", "an entry was not settled");
        freeReplyObject(reply);
    }
}

/* Two reads are always on their way. Commands: R1 R2 S1 R3 S2 R4 …, answers in the same order. */
static size_t run(struct bench *bench, size_t wanted)
{
    size_t done = 0, calls_before = 0;
    append_read(bench);
    append_read(bench);
    flush(bench);
    while (done < wanted) {
        redisReply *read = answer(bench->redis, "XREADGROUP");
        size_t count, calls = send_flight(bench, read, &count);
        freeReplyObject(read);
        take_settles(bench, calls_before);
        if (count == 0)
            die(STREAM, "ran empty before all requests were read");
        calls_before = calls;
        done += count;
    }
    freeReplyObject(answer(bench->redis, "XREADGROUP"));
    take_settles(bench, calls_before);
    freeReplyObject(answer(bench->redis, "XREADGROUP"));
    return done;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fputs("usage: queue_ceiling SOCKET SETTLE.LUA REQUESTS DIM f32|json\n", stderr);
        return 64;
    }
    struct bench bench = {.redis = redisConnectUnix(argv[1]), .encoding = argv[5]};
    if (bench.redis == NULL || bench.redis->err)
        die(argv[1], "cannot connect");
    load_script(&bench, argv[2]);
    make_embedding(&bench, (unsigned)strtoul(argv[4], NULL, 10));
    size_t wanted = strtoul(argv[3], NULL, 10);
    double started = seconds_now();
    size_t done = run(&bench, wanted);
    printf("%.0f\n", (double)done / (seconds_now() - started));
    redisFree(bench.redis);
    free(bench.embedding);
    return 0;
}
