#include "gateway/gateway.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/json.h"
#include "base/log.h"
#include "gateway/calls.h"
#include "gateway/dialect.h"
#include "gateway/keys.h"
#include "gateway/pages.h"
#include "gateway/request_fields.h"
#include "redis/producer.h"

enum { CONNECTIONS = 16384, BODY_BYTES = 32 << 20, BODIES_BYTES = 512 << 20, RECEIVE_MS = 20000, IDLE_MS = 120000 };
enum { AWAY_MS = 8000, FORGOTTEN_MS = 60000 };

struct gateway {
    struct gateway_options options;
    char name[32];
    struct http *http;
    struct keys *keys; /* NULL: anybody may ask */
    struct calls *calls;
    void *extra; /* the context of the extension; NULL: it is closed */
    struct http_route *routes;
    struct model_queue *queues;
    struct producer **producers; /* those of the queues, for keys */
};

/* --- Routes ------------------------------------------------------------------------------------------------------- */

static enum http_when answer_call(void *context, const struct http_request *request, struct http_reply *reply)
{
    return calls_ask(((struct gateway *)context)->calls, request, reply);
}

static enum http_when answer_job(void *context, const struct http_request *request, struct http_reply *reply)
{
    return calls_ask_job(((struct gateway *)context)->calls, request, reply);
}

static bool may_use(const struct gateway *gateway, const struct http_request *request, const struct model_queue *queue)
{
    struct key_facts facts;
    struct fault fault;
    return calls_check_key(gateway->calls, NULL, request, queue, &facts, &fault);
}

static enum http_when answer_models(void *context, const struct http_request *request, struct http_reply *reply)
{
    const struct gateway *gateway = context;
    const struct model_queue *queue =
        calls_find_queue(gateway->calls, (struct slice){request->rest, strlen(request->rest)});
    if (request->rest[0] == '\0') {
        buffer_json(&reply->body, "{'object':'list','data':[");
        for (size_t i = 0, count = 0; i < gateway->options.queue_count; i++) {
            if (!may_use(gateway, request, &gateway->queues[i])) { continue; }
            buffer_string(&reply->body, count++ > 0 ? "," : "");
            page_model(&gateway->queues[i], &reply->body);
        }
        buffer_json(&reply->body, "]}");
    } else if (queue && may_use(gateway, request, queue)) {
        page_model(queue, &reply->body);
    } else {
        struct fault fault;
        fault_set(&fault, NULL, FAULT_NO_MODEL, "model", "there is no model '%s'", request->rest);
        calls_refuse(gateway->calls, NULL, &fault, reply);
    }
    return HTTP_NOW;
}

static enum http_when answer_health(void *context, const struct http_request *request, struct http_reply *reply)
{
    const struct gateway *gateway = context;
    (void)request;
    reply->status = page_health(gateway->queues, gateway->options.queue_count, &reply->body) ? 200 : 503;
    return HTTP_NOW;
}

static enum http_when answer_metrics(void *context, const struct http_request *request, struct http_reply *reply)
{
    const struct gateway *gateway = context;
    uint64_t answered, refused;
    (void)request;
    http_counters(gateway->http, &answered, &refused);
    page_metrics(calls_counts(gateway->calls), gateway->queues, gateway->options.queue_count, answered, refused,
                 &reply->body);
    if (gateway->extra) { gateway->options.extension->put_metrics(gateway->extra, &reply->body); }
    return HTTP_NOW;
}

static enum http_when answer_info(void *context, const struct http_request *request, struct http_reply *reply)
{
    const struct gateway *gateway = context;
    (void)request;
    page_info(&gateway->queues[0], &reply->body);
    return HTTP_NOW;
}

static enum http_when answer_openapi(void *context, const struct http_request *request, struct http_reply *reply)
{
    const struct gateway *gateway = context;
    (void)request;
    page_openapi(gateway->extra ? gateway->options.extension->paths : (struct openapi_paths){0}, gateway->keys,
                 &reply->body);
    return HTTP_NOW;
}

static const struct http_route own_routes[] = {
    {"/v1/models", HTTP_GET, "application/json", answer_models},
    {"/v1/models/", HTTP_GET, "application/json", answer_models},
    {"/v1/jobs/", HTTP_GET | HTTP_DELETE, "application/json", answer_job},
    {"/info", HTTP_GET, "application/json", answer_info},
    {"/health", HTTP_GET, "application/json", answer_health},
    {"/openapi.json", HTTP_GET, "application/json", answer_openapi},
    {"/metrics", HTTP_GET, "text/plain; version=0.0.4", answer_metrics},
};
enum { OWN_ROUTES = sizeof own_routes / sizeof own_routes[0] };

/* --- Admission and refusals --------------------------------------------------------------------------------------- */

/* A page of another site in a browser cannot send JSON, nor hide its origin. */
static bool check_headers(const struct http_route *route, const struct http_request *request,
                          const struct dialect *dialect, struct fault *fault)
{
    if (!dialect && !route->context) { return true; }
    if (http_header(request, "Origin")) {
        return fault_set(fault, dialect, FAULT_FORBIDDEN, NULL,
                         "this gateway serves no pages: requests with an Origin are refused");
    }
    return route->spool || http_body_is_json(request) ||
           fault_set(fault, dialect, FAULT_BAD_REQUEST, NULL, "Content-Type must be application/json");
}

/* Asks for a key; which queue it may ask is seen in the body, or in the name of a job. */
static bool check_key(const struct gateway *gateway, const struct http_route *route, const struct http_request *request,
                      const struct dialect *dialect, struct fault *fault)
{
    struct key_facts facts;
    if (!gateway->keys || route->answer == answer_health || route->answer == answer_openapi) { return true; }
    if (!calls_check_key(gateway->calls, dialect, request, NULL, &facts, fault)) { return false; }
    return !route->context || facts.batches ||
           fault_set(fault, NULL, FAULT_FORBIDDEN, NULL, "the key may not use files and batches");
}

/* Refuses a request before anybody sends its body. */
static bool admit_request(void *context, const struct http_route *route, const struct http_request *request,
                          struct http_reply *reply)
{
    struct gateway *gateway = context;
    const struct dialect *dialect = dialect_find(route->path);
    struct fault fault;
    if (check_key(gateway, route, request, dialect, &fault) && check_headers(route, request, dialect, &fault)) {
        return true;
    }
    calls_put_id(gateway->calls, request->number, reply);
    calls_refuse(gateway->calls, dialect, &fault, reply);
    return false;
}

/* Refusals of the HTTP server look as the dialect's clients expect. */
static void refuse_request(void *context, const struct http_route *route, int status, const char *error,
                           struct http_reply *reply)
{
    const struct dialect *dialect = route ? dialect_find(route->path) : NULL;
    struct gateway *gateway = context;
    struct fault fault;
    enum fault_kind kind = status == 404                    ? FAULT_NOT_FOUND
                           : status == 413 || status == 431 ? FAULT_TOO_LARGE
                           : status == 504                  ? FAULT_EXPIRED
                           : status >= 500                  ? FAULT_UNAVAILABLE
                                                            : FAULT_BAD_REQUEST;
    fault_set(&fault, dialect, kind, NULL, "%s", error);
    fault.retry_after_ms = status == 503 ? CALL_RETRY_MS : 0;
    calls_refuse(gateway->calls, dialect, &fault, reply);
    reply->status = status;
}

static void on_gone(void *context, uint64_t number)
{
    calls_forget(((struct gateway *)context)->calls, number);
}

static bool on_more(void *context, uint64_t number, struct buffer *to)
{
    return calls_put_more(((struct gateway *)context)->calls, number, to);
}

/* --- Opening and closing ------------------------------------------------------------------------------------------ */

static enum status open_queues(struct gateway *gateway, struct err *err)
{
    const struct gateway_options *options = &gateway->options;
    uint64_t random;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random) {
        return err_set_errno(err, "no random number to be had");
    }
    snprintf(gateway->name, sizeof gateway->name, "http-%016llx", (unsigned long long)random);
    gateway->queues = calloc(options->queue_count, sizeof *gateway->queues);
    if (!gateway->queues) { return err_set(err, STATUS_NO_MEMORY, "no memory for the gateway"); }
    for (size_t i = 0; i < options->queue_count; i++) {
        struct producer_options producer = {.base = options->base,
                                            .address = options->address,
                                            .queue = options->queues[i],
                                            .name = gateway->name,
                                            .away_ms = AWAY_MS,
                                            .forgotten_ms = FORGOTTEN_MS,
                                            .seed = random + i,
                                            .context = options->context,
                                            .on_denied = options->on_denied};
        gateway->queues[i].name = options->queues[i];
        TRY(producer_open(&producer, &gateway->queues[i].producer, err));
    }
    return STATUS_OK;
}

static enum status open_keys(struct gateway *gateway, struct err *err)
{
    const struct gateway_options *options = &gateway->options;
    if (options->keys[0] == '\0') { return STATUS_OK; }
    gateway->producers = calloc(options->queue_count, sizeof *gateway->producers);
    if (!gateway->producers) { return err_set(err, STATUS_NO_MEMORY, "no memory for the gateway"); }
    for (size_t i = 0; i < options->queue_count; i++) { gateway->producers[i] = gateway->queues[i].producer; }
    struct keys_options keys = {.base = options->base,
                                .source = options->keys,
                                .queues = options->queues,
                                .producers = gateway->producers,
                                .queue_count = options->queue_count};
    return keys_open(&keys, &gateway->keys, err);
}

static enum status open_http(struct gateway *gateway, struct err *err)
{
    const struct gateway_extension *extension = gateway->options.extension;
    size_t count = 0, extra_count = gateway->extra ? extension->route_count : 0;
    gateway->routes = calloc(dialect_count + OWN_ROUTES + extra_count, sizeof *gateway->routes);
    if (!gateway->routes) { return err_set(err, STATUS_NO_MEMORY, "no memory for the gateway"); }
    for (size_t i = 0; i < dialect_count; i++) {
        gateway->routes[count++] = (struct http_route){dialects[i]->path, HTTP_POST, "application/json", answer_call};
    }
    for (size_t i = 0; i < OWN_ROUTES; i++) { gateway->routes[count++] = own_routes[i]; }
    for (size_t i = 0; i < extra_count; i++) {
        gateway->routes[count] = extension->routes[i];
        gateway->routes[count++].context = gateway->extra;
    }
    struct http_options http = {.address = gateway->options.listen,
                                .routes = gateway->routes,
                                .route_count = count,
                                .limits = {.connections = CONNECTIONS,
                                           .body_bytes = BODY_BYTES,
                                           .memory_bytes = BODIES_BYTES,
                                           .file_bytes = extension ? extension->file_bytes : 0,
                                           .receive_ms = RECEIVE_MS,
                                           .answer_ms = CALL_TIMEOUT_MOST_S * 1000u + RECEIVE_MS,
                                           .idle_ms = IDLE_MS},
                                .folder = gateway->options.data,
                                .context = gateway,
                                .admit = admit_request,
                                .refuse = refuse_request,
                                .gone = on_gone,
                                .more = on_more};
    if (!gateway->keys && !http_is_loopback(gateway->options.listen)) {
        return err_set(err, STATUS_DENIED, "%s is not a loopback address: --keys says who may ask (docs/http.md)",
                       gateway->options.listen);
    }
    return http_open(gateway->options.base, &http, &gateway->http, err);
}

enum status gateway_open(const struct gateway_options *options, struct gateway **out, struct err *err)
{
    struct gateway *gateway = calloc(1, sizeof *gateway);
    if (!gateway) { return err_set(err, STATUS_NO_MEMORY, "no memory for the gateway"); }
    gateway->options = *options;
    enum status status = open_queues(gateway, err);
    if (status == STATUS_OK) { status = open_keys(gateway, err); }
    if (status == STATUS_OK) {
        struct calls_options calls = {.base = options->base,
                                      .name = gateway->name,
                                      .queues = gateway->queues,
                                      .keys = gateway->keys,
                                      .queue_count = options->queue_count,
                                      .cache_bytes = options->cache_bytes,
                                      .http = &gateway->http};
        status = calls_open(&calls, &gateway->calls, err);
    }
    if (status == STATUS_OK && options->extension && options->data[0] != '\0') {
        status = options->extension->open(&gateway->options, gateway, &gateway->extra, err);
    }
    if (status == STATUS_OK) { status = open_http(gateway, err); }
    if (status != STATUS_OK) {
        gateway_close(gateway);
        return status;
    }
    log_info("gateway_listens", log_str("address", options->listen), log_str("name", gateway->name));
    *out = gateway;
    return STATUS_OK;
}

void gateway_stop(struct gateway *gateway)
{
    http_stop(gateway->http);
}

bool gateway_is_idle(const struct gateway *gateway)
{
    return http_in_flight(gateway->http) == 0;
}

void gateway_give_up(struct gateway *gateway)
{
    calls_give_up(gateway->calls);
}

void gateway_answer(struct gateway *gateway, uint64_t number, struct http_reply *reply)
{
    calls_put_id(gateway->calls, number, reply);
    http_answer(gateway->http, number, reply);
}

void gateway_close(struct gateway *gateway)
{
    if (!gateway) { return; }
    if (gateway->extra) { gateway->options.extension->close(gateway->extra); }
    http_close(gateway->http);
    calls_close(gateway->calls);
    for (size_t i = 0; gateway->queues && i < gateway->options.queue_count; i++) {
        producer_close(gateway->queues[i].producer);
    }
    keys_close(gateway->keys);
    free(gateway->producers);
    free(gateway->queues);
    free(gateway->routes);
    free(gateway);
}
