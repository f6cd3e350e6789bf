#include "gateway/pages.h"

#include <string.h>

#include "base/json.h"
#include "base/version.h"

static const char *name_model(const struct model_queue *queue)
{
    const char *model = producer_facts(queue->producer)->model;
    return model[0] ? model : queue->name;
}

void page_model(const struct model_queue *queue, struct buffer *to)
{
    buffer_json(to, "{'id':%s,'object':'model','created':0,'owned_by':'sluice'}", name_model(queue));
}

bool page_health(const struct model_queue *queues, size_t count, struct buffer *to)
{
    bool served = false;
    buffer_json(to, "{'queues':[");
    for (size_t i = 0; i < count; i++) {
        const struct producer_facts *facts = producer_facts(queues[i].producer);
        served = served || facts->served;
        buffer_json(to, ",{'queue':%s,'redis':%hhd,'workers':%hhd}", queues[i].name, (signed char)facts->connected,
                    (signed char)facts->served);
    }
    buffer_json(to, "]}");
    return served;
}

void page_info(const struct model_queue *queue, struct buffer *to)
{
    const char *model = producer_facts(queue->producer)->model_facts;
    uint64_t max_tokens;
    char tasks[64];
    (void)json_member_text(model, strlen(model), "tasks", tasks, sizeof tasks);
    const char *kind = strstr(tasks, "rerank")     ? "reranker"
                       : strstr(tasks, "classify") ? "classifier"
                       : strstr(tasks, "generate") ? "generator"
                                                   : "embedding";
    (void)json_member_number(model, strlen(model), "max_tokens", &max_tokens);
    buffer_json(to,
                "{'model_id':%s,'model_type':{'%s':{}},'max_input_length':%llu,'max_client_batch_size':%d,"
                "'version':%s,'docker_label':null}",
                name_model(queue), kind, (unsigned long long)max_tokens, (int)CALL_TEXTS_MAX, sluice_version);
}

void page_metrics(const struct gateway_counts *counts, const struct model_queue *queues, size_t count,
                  uint64_t http_answered, uint64_t http_refused, struct buffer *to)
{
    const struct histogram *durations = &counts->durations;
    uint64_t failed = 0, sum = 0;
    for (int kind = 0; kind < FAULT_KINDS; kind++) { failed += counts->failed[kind]; }
    buffer_format(to, "# TYPE te_request_count counter\nte_request_count %llu\n",
                  (unsigned long long)(counts->succeeded + failed));
    buffer_format(to, "# TYPE te_request_success counter\nte_request_success %llu\n",
                  (unsigned long long)counts->succeeded);
    buffer_string(to, "# TYPE te_request_failure counter\n");
    for (int kind = 0; kind < FAULT_KINDS; kind++) {
        struct fault fault;
        fault_set(&fault, NULL, (enum fault_kind)kind, NULL, " ");
        buffer_format(to, "te_request_failure{err=\"%s\"} %llu\n", fault.code,
                      (unsigned long long)counts->failed[kind]);
    }
    buffer_string(to, "# TYPE te_request_duration histogram\n");
    for (int i = 0; i <= HISTOGRAM_BOUNDS; i++) {
        sum += durations->counts[i];
        buffer_format(to, "te_request_duration_bucket{le=\"%s\"} %llu\n",
                      i < HISTOGRAM_BOUNDS ? durations->bounds->buckets[i].shown : "+Inf", (unsigned long long)sum);
    }
    buffer_format(to, "te_request_duration_sum %.9g\nte_request_duration_count %llu\n",
                  (double)durations->sum * durations->bounds->unit, (unsigned long long)sum);
    buffer_format(to, "# TYPE te_queue_size gauge\nte_queue_size %llu\n", (unsigned long long)counts->open);
    const struct {
        const char *name;
        uint64_t value;
    } totals[] = {{"http_answered_total counter", http_answered},
                  {"http_refused_total counter", http_refused},
                  {"cache_hits_total counter", counts->cache_hits},
                  {"cache_misses_total counter", counts->cache_misses}};
    for (size_t i = 0; i < sizeof totals / sizeof totals[0]; i++) {
        buffer_format(to, "# TYPE sluice_gateway_%s\nsluice_gateway_%.*s %llu\n", totals[i].name,
                      (int)strcspn(totals[i].name, " "), totals[i].name, (unsigned long long)totals[i].value);
    }
    static const char *const names[] = {"redis_connected gauge", "served gauge", "open_requests gauge",
                                        "replies_total counter", "sent_again_total counter"};
    for (size_t name = 0; name < sizeof names / sizeof names[0]; name++) {
        int length = (int)strcspn(names[name], " ");
        buffer_format(to, "# TYPE sluice_gateway_%s\n", names[name]);
        for (size_t i = 0; i < count; i++) {
            const struct producer_facts *facts = producer_facts(queues[i].producer);
            const uint64_t values[] = {facts->connected, facts->served, facts->open, facts->answered, facts->again};
            buffer_format(to, "sluice_gateway_%.*s{queue=\"%s\"} %llu\n", length, names[name], queues[i].name,
                          (unsigned long long)values[name]);
        }
    }
}

void page_openapi(struct openapi_paths more, bool keys, struct buffer *to)
{
    static const struct openapi_path paths[] = {
        {"/v1/models", "get", NULL, "The models that there are"},
        {"/v1/models/{name}", "get", NULL, "One of them"},
        {"/v1/jobs/{job}", "get", NULL, "The answer to a call with Prefer: respond-async"},
        {"/v1/jobs/{job}", "delete", NULL, "Cancel it"},
        {"/info", "get", NULL, "The first model, as TEI describes it"},
        {"/health", "get", NULL, "Whether a worker is there", .open = true},
        {"/metrics", "get", "text/plain", "Metrics for Prometheus"},
        {"/openapi.json", "get", NULL, "This document", .open = true},
    };
    openapi_put((struct openapi_paths){paths, sizeof paths / sizeof paths[0]}, more, keys, to);
}
