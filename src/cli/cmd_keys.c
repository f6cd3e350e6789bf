/* The API keys of a gateway, in the hash `sluice:{q}:keys` of each queue that they may ask. */
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#include "base/hex.h"
#include "base/json.h"
#include "cli/invocation.h"
#include "cli/print.h"
#include "gateway/keys.h"
#include "redis/queue_names.h"

enum { KEY_RANDOM = 32 }; /* bytes: nobody finds the key by its SHA-256 */

struct own {
    char *tenant;
    int64_t requests, tokens, texts;
    bool batches;
    char key[3 + 2 * KEY_RANDOM + 1]; /* create: the new one */
    struct buffer json;               /* and its value in the hash */
    size_t stored;                    /* queues that have it now */
};

#define OWN(name) .key = #name, .offset = offsetof(struct own, name)
/* clang-format off */
#define LIMIT(name, text) {OWN(name), .type = SETTING_INTEGER, .fallback = "0", .least = 0, .most = KEY_LIMIT_MOST, .value = "N", .help = text}
static const struct setting own_settings[] = {
    {OWN(tenant), .type = SETTING_TEXT, .value = "NAME", .accepts = key_name_is, .expects = "1 to 64 letters, digits and _ . : -",
     .help = "create: whose calls they are [as the key]"},
    LIMIT(requests, "create: calls that it may send in a minute; 0 = any number"),
    LIMIT(tokens, "create: tokens that they may have in a minute; 0 = any number"),
    LIMIT(texts, "create: texts that a call may have; 0 = any number"),
    {OWN(batches), .type = SETTING_SWITCH, .fallback = "false", .help = "create: it may use files and batches, which all such keys share"},
};
/* clang-format on */

static enum status store_key(struct session *session, const struct invocation *invocation, struct err *err)
{
    struct own *own = invocation->own;
    const char *name = invocation->operands[1];
    char key[SESSION_KEY];
    long long added;
    session_key(session, "keys", "", key);
    TRY(SESSION_ASK_NUMBER(session, &added, err, "HSETNX", key, name, own->json.data));
    if (added == 0) { return err_set(err, STATUS_BAD_INPUT, "queue %s has a key %s already", session->queue, name); }
    own->stored++;
    return STATUS_OK;
}

static enum status revoke_key(struct session *session, const struct invocation *invocation, struct err *err)
{
    const char *name = invocation->operands[1];
    char key[SESSION_KEY];
    long long removed;
    session_key(session, "keys", "", key);
    TRY(SESSION_ASK_NUMBER(session, &removed, err, "HDEL", key, name));
    if (removed == 0) { return err_set(err, STATUS_NOT_FOUND, "queue %s has no key %s", session->queue, name); }
    print_heading(session);
    printf("%s: revoked\n", name);
    return STATUS_OK;
}

static enum status list_keys(struct session *session, const struct invocation *invocation, struct err *err)
{
    const struct resp_value *all;
    char name[SESSION_KEY];
    (void)invocation;
    session_key(session, "keys", "", name);
    TRY(SESSION_ASK(session, &all, err, "HGETALL", name));
    print_heading(session);
    for (size_t i = 0; all->type == RESP_ARRAY && i + 1 < all->count; i += 2) {
        const char *value = session_text(&all->items[i + 1]);
        struct err bad;
        struct key key;
        print_bytes(stdout, session_text(&all->items[i]), strlen(session_text(&all->items[i])));
        if (key_parse(value, strlen(value), &key, &bad) == STATUS_OK) {
            printf(" tenant=%s requests=%llu tokens=%llu texts=%llu batches=%s\n", key.facts.tenant,
                   (unsigned long long)key.facts.requests, (unsigned long long)key.facts.tokens,
                   (unsigned long long)key.facts.texts, key.facts.batches ? "yes" : "no");
        } else {
            printf(" is ignored: %s\n", bad.message);
        }
        buffer_free(&key.queues);
    }
    return STATUS_OK;
}

/* Makes a random key, and its value in the hash. False: there is no memory. */
static bool make_key(struct own *own, const char *name)
{
    unsigned char digest[KEY_DIGEST];
    char hex[2 * KEY_DIGEST + 1];
    const char *const names[] = {"requests_per_minute", "tokens_per_minute", "max_texts"};
    const int64_t limits[] = {own->requests, own->tokens, own->texts};
    memcpy(own->key, "sk-", 3);
    queue_put_random(own->key + 3, KEY_RANDOM / 2);
    queue_put_random(own->key + 3 + KEY_RANDOM, KEY_RANDOM / 2);
    if (!key_hash(own->key, strlen(own->key), digest)) { return false; }
    hex_write(hex, digest, KEY_DIGEST);
    buffer_json(&own->json, "{'name':%s,'sha256':%s", name, hex);
    if (own->tenant) { buffer_json(&own->json, ",'tenant':%s", own->tenant); }
    for (size_t i = 0; i < 3; i++) {
        if (limits[i] > 0) { buffer_json(&own->json, ",'%s':%lld", names[i], (long long)limits[i]); }
    }
    if (own->batches) { buffer_json(&own->json, ",'batches':%hhd", (signed char)1); }
    buffer_json(&own->json, "}");
    buffer_append(&own->json, "", 1);
    return buffer_ok(&own->json);
}

static int create_key(struct invocation *invocation)
{
    struct own *own = invocation->own;
    if (!make_key(own, invocation->operands[1])) {
        fprintf(stderr, "sluice keys: no memory for a key\n");
        return EX_OSERR;
    }
    int code = invocation_run(invocation, store_key);
    if (own->stored > 0) {
        printf("%s\n", own->key);
        fprintf(stderr, "Keep it: only its SHA-256 is stored.\n");
    }
    buffer_free(&own->json);
    return code;
}

static int run_keys(struct invocation *invocation)
{
    const struct own *own = invocation->own;
    const char *verb = invocation->operand_count == 0 ? "list" : invocation->operands[0], *problem = NULL;
    bool creates = strcmp(verb, "create") == 0, lists = strcmp(verb, "list") == 0;
    if (!creates && !lists && strcmp(verb, "revoke") != 0) {
        problem = "the first word must be create, list or revoke";
    } else if (invocation->operand_count > (lists ? 1 : 2) || (!lists && invocation->operand_count != 2)) {
        problem = "create and revoke take one name, list takes none";
    } else if (!lists && !key_name_is(invocation->operands[1])) {
        problem = "a name has 1 to 64 letters, digits and _ . : -";
    } else if (!creates && (own->tenant || own->requests || own->tokens || own->texts || own->batches)) {
        problem = "these options are for create";
    }
    if (problem) {
        fprintf(stderr, "sluice keys: %s\n", problem);
        return EX_USAGE;
    }
    return creates ? create_key(invocation) : invocation_run(invocation, lists ? list_keys : revoke_key);
}

const struct subcommand command_keys = {
    .name = "keys",
    .bit = FOR_OPERATOR,
    .operands = "create|list|revoke [NAME]",
    .summary = "Create, list or revoke the API keys of a queue's gateways",
    .explanation =
        "create   makes a key and prints it, once: only its SHA-256 is stored. It may ask the queues for which it\n"
        "         was created: those of the configuration, or the one that --queue names\n"
        "list     a line for each key of a queue\n"
        "revoke   removes a key; gateways refuse it within two seconds\n"
        "Gateways that run with --keys redis ask for keys (docs/http.md).",
    OWN_OPTIONS(own_settings, struct own),
    .run = run_keys,
};
