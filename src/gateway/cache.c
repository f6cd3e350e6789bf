#include "gateway/cache.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "redis/producer.h"

enum { DIGEST = 32, HEAD = DIGEST + sizeof(uint32_t) }; /* a value: the digest, the tokens of the text, its floats */
enum { KEY_MAX = 160, DIM_MOST = 1 << 20 };
enum { OVERHEAD = 320 }; /* of a key in Redis: its name, its TTL, and their places in tables */
static const char kept_ms[] = "86400000";

struct cached_text {
    unsigned char digest[DIGEST];
    uint32_t tokens;
};

struct cache_look {
    struct cache_options options;
    struct cached_text *texts; /* [text_count] */
    uint32_t text_count;
    uint32_t most_dim, dim; /* of the model; of the vectors that were found */
    uint64_t slots, tokens;
    float *vectors;    /* NULL: not found */
    bool current;      /* the model and its precision are still those of the digests */
    bool unfit;        /* nothing is written */
    bool closed;       /* freed with the last answer */
    unsigned out;      /* commands without an answer */
    char model_id[80]; /* as of the digests, like the precision */
    char precision[16];
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

static void put_key(const struct cache_look *look, uint32_t text, struct command *command)
{
    char key[KEY_MAX];
    uint64_t number;
    memcpy(&number, look->texts[text].digest, sizeof number);
    snprintf(key, sizeof key, "sluice:{%s}:cache:%llu", look->options.queue,
             (unsigned long long)(number % look->slots));
    command_text(command, key);
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

/* A pin may have changed since the producer has read it. */
static void on_meta(void *context, const struct resp_value *reply)
{
    struct cache_look *look = context;
    if (!take_answer(look)) { return; }
    look->current = reply && reply->type == RESP_ARRAY && reply->count == 2 &&
                    resp_equals(&reply->items[0], look->model_id) && resp_equals(&reply->items[1], look->precision);
}

static bool take_value(struct cache_look *look, uint32_t text, const struct resp_value *value)
{
    if (!value->bytes || value->length <= HEAD || memcmp(value->bytes, look->texts[text].digest, (size_t)DIGEST) != 0) {
        return false;
    }
    size_t size = value->length - HEAD;
    uint32_t tokens;
    if (!look->vectors) {
        look->vectors = size % sizeof(float) == 0 ? malloc(look->text_count * size) : NULL;
        look->dim = (uint32_t)(size / sizeof(float));
    }
    if (!look->vectors || size != look->dim * sizeof(float)) { return false; }
    memcpy(&tokens, value->bytes + DIGEST, sizeof tokens);
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

static bool send_look(struct cache_look *look)
{
    struct command meta = {0}, values = {0};
    char key[KEY_MAX];
    struct err err;
    snprintf(key, sizeof key, "sluice:{%s}:meta", look->options.queue);
    command_pair(&meta, "HMGET", key);
    command_pair(&meta, "model_id", "precision");
    if (producer_ask(look->options.producer, &meta, on_meta, look, &err) != STATUS_OK) { return false; }
    look->out++;
    command_text(&values, "MGET");
    for (uint32_t i = 0; i < look->text_count; i++) { put_key(look, i, &values); }
    if (producer_ask(look->options.producer, &values, on_values, look, &err) != STATUS_OK) { return false; }
    look->out++;
    return true;
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
    uint64_t slot_bytes = (HEAD + dim * sizeof(float)) * 5 / 4 + OVERHEAD + strlen(options->queue);
    if (options->bytes < slot_bytes) { return NULL; }
    struct cache_look *look = calloc(1, sizeof *look);
    if (!look) { return NULL; }
    look->options = *options;
    look->text_count = options->call->text_count;
    look->most_dim = (uint32_t)dim;
    look->slots = options->bytes / slot_bytes;
    look->texts = calloc(look->text_count, sizeof *look->texts);
    snprintf(look->model_id, sizeof look->model_id, "%s", facts->model_id);
    snprintf(look->precision, sizeof look->precision, "%s", facts->precision);
    if (!look->texts || !digest_texts(look) || !send_look(look)) {
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
    bool fit = strcmp(precision, look->precision) == 0 &&
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

void cache_store(const struct cache_look *look, const float *vectors, uint32_t dim)
{
    size_t size = dim * sizeof(float);
    const char *model_id = producer_facts(look->options.producer)->model_id;
    if (look->unfit || dim > look->most_dim || strcmp(model_id, look->model_id) != 0) { return; }
    unsigned char *value = malloc(HEAD + size);
    for (uint32_t i = 0; value && i < look->text_count; i++) {
        struct command command = {0};
        struct err err;
        memcpy(value, look->texts[i].digest, DIGEST);
        memcpy(value + DIGEST, &look->texts[i].tokens, sizeof(uint32_t));
        memcpy(value + HEAD, vectors + (size_t)i * dim, size);
        command_text(&command, "SET");
        put_key(look, i, &command);
        command_bytes(&command, value, HEAD + size);
        command_pair(&command, "PX", kept_ms);
        if (producer_ask(look->options.producer, &command, NULL, NULL, &err) != STATUS_OK) { break; }
    }
    free(value);
}
