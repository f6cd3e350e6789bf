/* The pages of a gateway about itself: its models, its health, its numbers. Each function appends a body. */
#ifndef GATEWAY_PAGES_H
#define GATEWAY_PAGES_H

#include "base/buffer.h"
#include "base/histogram.h"
#include "gateway/dialect.h"
#include "gateway/openapi.h"
#include "redis/producer.h"

/* A queue that the gateway serves. */
struct model_queue {
    const char *name;
    struct producer *producer;
};

/* The counters of a gateway. */
struct gateway_counts {
    uint64_t open, succeeded, failed[FAULT_KINDS]; /* calls */
    uint64_t cache_hits, cache_misses;             /* calls that were looked for in the cache */
    struct histogram durations;
};

/* One of /v1/models. */
void page_model(const struct model_queue *queue, struct buffer *to);

/* /health; true if at least one queue has workers. */
bool page_health(const struct model_queue *queues, size_t count, struct buffer *to);

/* /info, as TEI's clients expect it. */
void page_info(const struct model_queue *queue, struct buffer *to);

/* /metrics, for Prometheus. http_answered: requests that were answered, http_refused: connections that were refused. */
void page_metrics(const struct gateway_counts *counts, const struct model_queue *queues, size_t count,
                  uint64_t http_answered, uint64_t http_refused, struct buffer *to);

/* /openapi.json, with more paths than those of the gateway itself; `keys`: those are asked for. */
void page_openapi(struct openapi_paths more, bool keys, struct buffer *to);

#endif
