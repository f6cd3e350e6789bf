/* Vectors that were computed before, in Redis. A call of task `embed` whose texts are all there is answered without a
 * request; otherwise it is computed as ever, and its vectors are written.
 *
 * A key `sluice:{q}:cache:<digest>` holds one text's vector; the digest is that of everything that decides its bits.
 * The index `sluice:{q}:cache` has the names of all of them. A gateway that writes removes the oldest above the number
 * that fits into the bytes. The cache is in use only while the queue is pinned to a precision: else nobody knows what
 * the next worker would compute. If its workers are of several kinds, by version or processor, the vectors are those of
 * the kind that joined last, and those that others compute are not kept.
 * Thread: the loop's, for all of this. */
#ifndef GATEWAY_CACHE_H
#define GATEWAY_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "gateway/dialect.h"

struct cache_look;
struct producer;

struct cache_options {
    struct producer *producer; /* must outlive the look, like the next two */
    const char *queue;
    const struct call *call;
    uint64_t bytes; /* what the cache of the queue may take in Redis; 0: there is none */
    void *context;
    /* Once, unless it is closed before, and never before cache_look returns. False: not all texts are there. */
    void (*looked)(void *context, bool hit);
};

/* Looks for all texts of a call, in one round trip. Owns: the caller ends it with cache_close. NULL: there is no cache,
 * nobody knows the model or its precision, Redis is away, or memory has run out; the call is then computed. */
struct cache_look *cache_look(const struct cache_options *options);

/* After a hit: the vectors, [text_count, dim], which live until cache_close. */
const float *cache_vectors(const struct cache_look *look, uint32_t *dim, uint64_t *tokens);

/* After a miss: takes the tokens of the texts from `first` on from a reply's info. If their vectors do not belong into
 * the cache, nothing of the call will be written: another precision or engine, or a text that was cut. */
void cache_take_info(struct cache_look *look, uint32_t first, uint32_t count, struct slice info);

/* After the infos of all texts: writes their vectors, [text_count, dim], which it copies. Nobody waits for it. */
void cache_store(struct cache_look *look, const float *vectors, uint32_t dim);

/* Ends it. NULL is allowed. */
void cache_close(struct cache_look *look);

#endif
