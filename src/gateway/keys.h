/* API keys: who may ask which queue, and how much.
 *
 * Only the SHA-256 of a key is kept: in the hash `sluice:{q}:keys` of each queue that it may ask, which `sluice keys`
 * writes, or in a file with a JSON object a line. Both are read again each second, so a call asks Redis for nothing but
 * the bucket of a key with a limit (lua/bucket).
 * Thread: the loop's, for all but key_parse. */
#ifndef GATEWAY_KEYS_H
#define GATEWAY_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"

struct event_base;
struct key_ask;
struct keys;
struct producer;

enum { KEY_NAME_MAX = 64, KEY_DIGEST = 32, KEY_LIMIT_MOST = 1000000000 };

/* What a key allows. */
struct key_facts {
    char name[KEY_NAME_MAX + 1], tenant[KEY_NAME_MAX + 1];
    uint64_t requests, tokens; /* a minute; 0: any number */
    uint64_t texts;            /* a call; 0: any number */
    bool batches;              /* the Files and Batches API, whose files are those of all such keys */
};

/* A key, as a value of the hash or a line of the file has it. */
struct key {
    struct key_facts facts;
    unsigned char digest[KEY_DIGEST];
    struct buffer queues; /* that it may ask: ",a,b,"; empty: all */
};

/* True if it may be the name of a key or of a tenant: 1 to KEY_NAME_MAX letters, digits and _ . : - */
bool key_name_is(const char *name);

/* Hashes a key. False: there is no memory. Shapes: digest [KEY_DIGEST]. */
MUST_CHECK bool key_hash(const char *bytes, size_t length, unsigned char *digest);

/* Reads {"name", "sha256", "tenant", "queues", "requests_per_minute", "tokens_per_minute", "max_texts",
 * "batches"}; the first two must be there, and no others. The tenant is the name unless it is given. Owns: the caller
 * frees `queues`, also after an error. Errors: STATUS_BAD_INPUT. Thread: any. */
MUST_CHECK enum status key_parse(const char *json, size_t length, struct key *key, struct err *err);

struct keys_options {
    struct event_base *base;
    const char *source;                /* "redis", or a file; must outlive the keys, like the next two */
    const char *const *queues;         /* [queue_count] */
    struct producer *const *producers; /* [queue_count] theirs */
    size_t queue_count;
};

/* Begins to read keys. Owns: the caller ends it with keys_close, after the producers. Errors: STATUS_BAD_INPUT,
 * STATUS_IO (the file), STATUS_NO_MEMORY. */
MUST_CHECK enum status keys_open(const struct keys_options *options, struct keys **out, struct err *err);

/* NULL is allowed. */
void keys_close(struct keys *keys);

enum key_verdict {
    KEY_GOOD,
    KEY_MISSING,   /* none was sent, or none that anybody knows */
    KEY_ELSEWHERE, /* it may not ask this queue */
    KEY_NOT_READ,  /* Redis has not been there yet to say which keys there are */
};

enum { KEYS_ANY_QUEUE = -1 };

/* Judges the value of a header Authorization (NULL: not sent) for a queue, by its number, or for any of them; fills
 * `facts` if it is good. */
enum key_verdict keys_judge(const struct keys *keys, const char *authorization, int queue, struct key_facts *facts);

/* The answer of a bucket: OK and how long to wait (0: taken), or UNAVAILABLE. */
typedef void key_answer_fn(void *context, enum status status, uint64_t wait_ms, const char *message);

/* Takes a request from a key's bucket; asks again for a few seconds while Redis is away. `answer` is called once, never
 * before this returns, unless keys_forget was. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status keys_ask(struct keys *keys, int queue, const struct key_facts *facts, key_answer_fn *answer,
                                void *context, struct key_ask **out, struct err *err);

/* Nobody waits for it any more. */
void keys_forget(struct key_ask *ask);

/* Takes tokens from a key's bucket, if it has a limit of them. They are lost if Redis is away. */
void keys_charge(struct keys *keys, int queue, const struct key_facts *facts, uint64_t tokens);

#endif
