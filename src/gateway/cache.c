#include "gateway/cache.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hex.h"
#include "base/json.h"
#include "redis/producer.h"

/* The first half of a digest is the name of its key, in hex; the other is in the value, before tokens and floats. */
enum { DIGEST = 32, HALF = DIGEST / 2, HEAD = HALF + sizeof(uint32_t) };
enum { KEY_MAX = 160, DIM_MOST = 1 << 20 };
enum { OVERHEAD = 480 };      /* of a key in Redis: its name, its TTL, its place in the index, and their tables */
enum { REMOVE_MOST = 10000 }; /* names at once, so that no answer is long */
static const char kept_ms[] = "86400000";

struct cached_text {
    unsigned char digest[DIGEST];
    uint32_t tokens;
};

struct cache_look {
    struct cache_options options;
    struct cached_text *texts; /* [text_count] */
    uint32_t text_count;
    uint32_t most_dim, dim; /* of the model; of the vectors */
    uint64_t most, tokens;  /* as many keys as the cache may have */
    float *vectors;         /* that were found, or are written; or NULL */
    bool current;           /* what Redis says of model, precision and engine is still that of the digests */
    bool unfit;             /* nothing is written */
    bool closed;            /* freed with the last answer */
    unsigned out;           /* commands without an answer */
    char model_id[80];      /* as of the digests, like the next two */
    char precision[16];
    char engine[32]; /* that of the worker that joined last */
};

static void free_look(struct cache_look *look)
{
    free(look->texts);
    free(look->vectors);
    free(look);
}

void cache_close(struct cache_look *look)
{
    if (!look) { return; }
    look->closed = true;
    if (look->out == 0) { free_look(look); }
}

/* --- Keys --------------------------------------------------------------------------------------------------------- */

static bool add_part(EVP_MD_CTX *context, const void *bytes, size_t length)
{
    uint64_t size = length;
    return EVP_DigestUpdate(context, &size, sizeof size) == 1 && EVP_DigestUpdate(context, bytes, length) == 1;
}

/* Everything but the text. The model's id covers what settings of a worker change: pooling, prompts, the limit. */
static bool digest_call(EVP_MD_CTX *context, const struct cache_look *look)
{
    const struct call *call = look->options.call;
    int32_t choices[] = {call->normalize, call->truncate, (int32_t)call->dims};
    return EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1 &&
           add_part(context, look->model_id, strlen(look->model_id)) &&
           add_part(context, look->precision, strlen(look->precision)) &&
           add_part(context, look->engine, strlen(look->engine)) &&
           add_part(context, call->prompt.length > 0 ? call->prompt.bytes : "", call->prompt.length) &&
           add_part(context, choices, sizeof choices);
}

static bool digest_texts(struct cache_look *look)
{
    const struct call *call = look->options.call;
    EVP_MD_CTX *common = EVP_MD_CTX_new(), *context = EVP_MD_CTX_new();
    bool good = common && context && digest_call(common, look);
    for (uint32_t i = 0; good && i < look->text_count; i++) {
        good = EVP_MD_CTX_copy_ex(context, common) == 1 &&
               add_part(context, call->texts[i].bytes, call->texts[i].length) &&
               EVP_DigestFinal_ex(context, look->texts[i].digest, NULL) == 1;
    }
    EVP_MD_CTX_free(common);
    EVP_MD_CTX_free(context);
    return good;
}

static void put_name(const struct cached_text *text, char name[2 * HALF + 1])
{
    hex_write(name, text->digest, HALF);
}

/* Appends the key of a name, or of "" the index: a sorted set of the names by the time when they were written. */
static void put_key(const struct cache_look *look, const char *name, struct command *command)
{
    char key[KEY_MAX];
    snprintf(key, sizeof key, "sluice:{%s}:cache%s%s", look->options.queue, name[0] ? ":" : "", name);
    command_text(command, key);
}

static void put_text_key(const struct cache_look *look, uint32_t text, struct command *command)
{
    char name[2 * HALF + 1];
    put_name(&look->texts[text], name);
    put_key(look, name, command);
}

/* --- Looking ------------------------------------------------------------------------------------------------------ */

/* Counts an answer; false if there is nothing to do with it. */
static bool take_answer(struct cache_look *look)
{
    look->out--;
    if (look->closed && look->out == 0) {
        free_look(look);
        return false;
    }
    return !look->closed;
}

static bool is_engine(const struct cache_look *look, const char *json, size_t length)
{
    char engine[sizeof look->engine];
    return json_member_text(json, length, "engine", engine, sizeof engine) && strcmp(engine, look->engine) == 0;
}

/* A pin may have changed since the producer has read it, and another worker may have joined. */
static void on_meta(void *context, const struct resp_value *reply)
{
    struct cache_look *look = context;
    if (!take_answer(look)) { return; }
    look->current = reply && reply->type == RESP_ARRAY && reply->count == 3 &&
                    resp_equals(&reply->items[0], look->model_id) && resp_equals(&reply->items[1], look->precision) &&
                    is_engine(look, reply->items[2].bytes, reply->items[2].length);
}

static bool take_value(struct cache_look *look, uint32_t text, const struct resp_value *value)
{
    if (!value->bytes || value->length <= HEAD ||
        memcmp(value->bytes, look->texts[text].digest + HALF, (size_t)HALF) != 0) {
        return false;
    }
    size_t size = value->length - HEAD;
    uint32_t tokens;
    if (!look->vectors) {
        look->vectors = size % sizeof(float) == 0 ? malloc(look->text_count * size) : NULL;
        look->dim = (uint32_t)(size / sizeof(float));
    }
    if (!look->vectors || size != look->dim * sizeof(float)) { return false; }
    memcpy(&tokens, value->bytes + HALF, sizeof tokens);
    memcpy(look->vectors + (size_t)text * look->dim, value->bytes + HEAD, size);
    look->tokens += tokens;
    return true;
}

static void on_values(void *context, const struct resp_value *reply)
{
    struct cache_look *look = context;
    if (!take_answer(look)) { return; }
    bool hit = look->current && reply && reply->type == RESP_ARRAY && reply->count == look->text_count;
    for (uint32_t i = 0; hit && i < look->text_count; i++) { hit = take_value(look, i, &reply->items[i]); }
    look->options.looked(look->options.context, hit);
}

/* Sends a command; one with a `reply` keeps the look until that was called. False: Redis is away. */
static bool send(struct cache_look *look, struct command *command, connection_reply_fn *reply)
{
    struct err err;
    bool sent = producer_ask(look->options.producer, command, reply, look, &err) == STATUS_OK;
    look->out += sent && reply;
    return sent;
}

static bool send_look(struct cache_look *look)
{
    struct command meta = {0}, values = {0};
    char key[KEY_MAX];
    snprintf(key, sizeof key, "sluice:{%s}:meta", look->options.queue);
    command_pair(&meta, "HMGET", key);
    command_pair(&meta, "model_id", "precision");
    command_text(&meta, "model_facts");
    if (!send(look, &meta, on_meta)) { return false; }
    command_text(&values, "MGET");
    for (uint32_t i = 0; i < look->text_count; i++) { put_text_key(look, i, &values); }
    return send(look, &values, on_values);
}

struct cache_look *cache_look(const struct cache_options *options)
{
    const struct producer_facts *facts = producer_facts(options->producer);
    uint64_t dim;
    if (options->bytes == 0 || facts->model_id[0] == '\0' || facts->precision[0] == '\0' ||
        !json_member_number(facts->model_facts, strlen(facts->model_facts), "dim", &dim) || dim == 0 ||
        dim > DIM_MOST) {
        return NULL;
    }
    /* Allocators round up by a quarter at most. */
    uint64_t key_bytes = (HEAD + dim * sizeof(float)) * 5 / 4 + OVERHEAD + strlen(options->queue);
    if (options->bytes < key_bytes) { return NULL; }
    struct cache_look *look = calloc(1, sizeof *look);
    if (!look) { return NULL; }
    look->options = *options;
    look->text_count = options->call->text_count;
    look->most_dim = (uint32_t)dim;
    look->most = options->bytes / key_bytes;
    look->texts = calloc(look->text_count, sizeof *look->texts);
    snprintf(look->model_id, sizeof look->model_id, "%s", facts->model_id);
    snprintf(look->precision, sizeof look->precision, "%s", facts->precision);
    bool known =
        json_member_text(facts->model_facts, strlen(facts->model_facts), "engine", look->engine, sizeof look->engine);
    if (!known || !look->texts || !digest_texts(look) || !send_look(look)) {
        cache_close(look);
        return NULL;
    }
    return look;
}

const float *cache_vectors(const struct cache_look *look, uint32_t *dim, uint64_t *tokens)
{
    *dim = look->dim;
    *tokens = look->tokens;
    return look->vectors;
}

/* --- Writing ------------------------------------------------------------------------------------------------------ */

void cache_take_info(struct cache_look *look, uint32_t first, uint32_t count, struct slice info)
{
    char precision[16];
    const char *value = NULL, *at;
    size_t length;
    if (!json_member_text(info.bytes, info.length, "precision", precision, sizeof precision)) {
        snprintf(precision, sizeof precision, "f32"); /* a reply leaves it out */
    }
    bool fit = strcmp(precision, look->precision) == 0 && is_engine(look, info.bytes, info.length) &&
               !json_member(info.bytes, info.length, "truncated", &value, &length) &&
               json_member(info.bytes, info.length, "row_tokens", &value, &length);
    at = value;
    for (uint32_t i = 0; fit && i < count; i++) { /* [12,7,...] */
        char *end;
        fit = at < value + length && (*at == '[' || *at == ',');
        if (!fit) { break; }
        look->texts[first + i].tokens = (uint32_t)strtoul(at + 1, &end, 10);
        fit = end > at + 1;
        at = end;
    }
    look->unfit |= !fit;
}

/* The answer of ZPOPMIN: names and their times. */
static void on_oldest(void *context, const struct resp_value *reply)
{
    struct cache_look *look = context;
    struct command command = {0};
    command_text(&command, "UNLINK");
    for (size_t i = 0; reply && reply->type == RESP_ARRAY && i + 1 < reply->count; i += 2) {
        const char *name = reply->items[i].bytes;
        if (name && name[0]) { put_key(look, name, &command); }
    }
    if (command.words > 1) {
        send(look, &command, NULL);
    } else {
        command_free(&command);
    }
    (void)take_answer(look);
}

static void remove_oldest(struct cache_look *look, uint64_t count)
{
    struct command command = {0};
    command_text(&command, "ZPOPMIN");
    put_key(look, "", &command);
    command_number(&command, count < REMOVE_MOST ? count : REMOVE_MOST);
    send(look, &command, on_oldest);
}

static void write_vectors(struct cache_look *look)
{
    size_t size = look->dim * sizeof(float);
    struct buffer value = {0};
    for (uint32_t i = 0; i < look->text_count; i++) {
        const struct cached_text *text = &look->texts[i];
        struct command command = {0};
        value.length = 0;
        buffer_append(&value, text->digest + HALF, (size_t)HALF);
        buffer_append(&value, &text->tokens, sizeof text->tokens);
        buffer_append(&value, look->vectors + (size_t)i * look->dim, size);
        if (!buffer_ok(&value)) { break; }
        command_text(&command, "SET");
        put_text_key(look, i, &command);
        command_bytes(&command, value.data, value.length);
        command_pair(&command, "PX", kept_ms);
        send(look, &command, NULL);
    }
    buffer_free(&value);
}

/* Nothing is written that the index does not have: it bounds the bytes. */
static void on_added(void *context, const struct resp_value *reply)
{
    struct cache_look *look = context;
    look->unfit |= !reply || reply->type != RESP_INTEGER;
    (void)take_answer(look);
}

static void on_count(void *context, const struct resp_value *reply)
{
    struct cache_look *look = context;
    if (!look->unfit && reply && reply->type == RESP_INTEGER) {
        uint64_t count = (uint64_t)reply->integer;
        if (count > look->most) { remove_oldest(look, count - look->most); }
        write_vectors(look);
    }
    (void)take_answer(look);
}

static void send_index(struct cache_look *look)
{
    struct command add = {0}, expire = {0}, count = {0};
    char name[2 * HALF + 1];
    command_text(&add, "ZADD");
    put_key(look, "", &add);
    for (uint32_t i = 0; i < look->text_count; i++) {
        put_name(&look->texts[i], name);
        command_number(&add, clock_unix_ms());
        command_text(&add, name);
    }
    send(look, &add, on_added);
    command_text(&expire, "PEXPIRE");
    put_key(look, "", &expire);
    command_text(&expire, kept_ms);
    send(look, &expire, NULL);
    command_text(&count, "ZCARD");
    put_key(look, "", &count);
    send(look, &count, on_count);
}

void cache_store(struct cache_look *look, const float *vectors, uint32_t dim)
{
    size_t size = (size_t)look->text_count * dim * sizeof(float);
    const char *model_id = producer_facts(look->options.producer)->model_id;
    if (look->unfit || dim > look->most_dim || strcmp(model_id, look->model_id) != 0) { return; }
    free(look->vectors);
    look->vectors = malloc(size);
    if (!look->vectors) { return; }
    memcpy(look->vectors, vectors, size);
    look->dim = dim;
    send_index(look);
}
