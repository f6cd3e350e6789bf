#include "gateway/gateway.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "gateway/body.h"
#include "gateway/cache.h"
#include "gateway/dialect.h"
#include "gateway/keys.h"
#include "gateway/pages.h"
#include "redis/producer.h"

enum { CONNECTIONS = 16384, BODY_BYTES = 32 << 20, BODIES_BYTES = 512 << 20, RECEIVE_MS = 20000, IDLE_MS = 120000 };
enum {
    TIMEOUT_MS = 600000,
    TIMEOUT_MOST_S = 86400,
    JOB_TIMEOUT_MS = 86400000,
    JOB_KEPT_MS = 86400000,
    WAIT_MOST_S = 60,
    AWAY_RETRY_MS = 1000,
    AWAY_MS = 8000,
    FORGOTTEN_MS = 60000
};
enum { TEXTS_FALLBACK = 256, BYTES_FALLBACK = 1 << 20 }; /* a request's limits, while the queue has published none */
enum { BUCKETS = 4096, ID_MAX = 96, FIELDS_MAX = 16, META_MAX = 128 };

/* One request of a call: some of its texts. */
struct part {
    struct exchange *exchange;
    struct producer_request *request; /* NULL: it has ended */
    uint32_t first, count;
    struct buffer labels; /* TASK_CLASSIFY: the elements of the reply's array */
};

/* The wishes that the headers of a call express. */
struct wishes {
    enum request_class class;
    uint64_t timeout_ms;
    char *tenant, *traceparent, *tracestate; /* NULL: not given */
};

/* A call or a question about a job, from its body to its answer. */
struct exchange {
    struct gateway *gateway;
    struct exchange *next; /* in its bucket */
    struct model_queue *queue;
    uint64_t number; /* of the HTTP request */
    uint64_t began_ns;
    struct call call;
    struct wishes wishes;
    struct key_facts key; /* where there are keys */
    struct key_ask *ask;  /* NULL: it does not wait for its key's bucket */
    char *body;
    struct part *parts; /* [part_count] */
    uint32_t part_count, open_parts;
    bool kept;    /* its ids were given, or can be found again: nothing is cancelled when the client goes away */
    bool async;   /* the client does not wait for the reply */
    bool charged; /* its tokens, or it needs none */
    bool hit;     /* its vectors are from the cache */
    struct cache_look *cache; /* NULL: the call is none for the cache */
    struct buffer floats;
    uint32_t dim;
    uint64_t tokens;
    char model[256];
    char id[ID_MAX]; /* of the request, or what the parts' ids begin with */
};

struct gateway {
    struct gateway_options options;
    char name[32];
    struct http *http;
    struct keys *keys; /* NULL: anybody may ask */
    void *extra;       /* what the extension has opened; NULL: there is none */
    struct http_route *routes;
    struct model_queue *queues;
    struct producer **producers;       /* those of the queues, for keys */
    struct exchange *buckets[BUCKETS]; /* by number */
    struct gateway_counts counts;
};

/* --- Answers ------------------------------------------------------------------------------------------------------ */

/* The id of a request by its number. */
static void name_request(const struct gateway *gateway, uint64_t number, char id[ID_MAX])
{
    snprintf(id, ID_MAX, "%s-%llx", gateway->name, (unsigned long long)number);
}

static void put_request_id(struct http_reply *reply, const char *id)
{
    buffer_format(&reply->headers, "x-request-id: %s\r\n", id);
}

static void fill_fault(struct gateway *gateway, const struct dialect *dialect, const struct fault *fault,
                       struct http_reply *reply)
{
    gateway->counts.failed[fault->kind]++;
    reply->status = fault->status;
    reply->type = "application/json";
    fault_put_headers(fault, &reply->headers);
    dialect_render_fault(dialect, fault, &reply->body);
}

static void free_exchange(struct exchange *exchange)
{
    for (uint32_t i = 0; i < exchange->part_count; i++) { buffer_free(&exchange->parts[i].labels); }
    buffer_free(&exchange->floats);
    cache_close(exchange->cache);
    call_free(&exchange->call);
    free(exchange->wishes.tenant);
    free(exchange->wishes.traceparent);
    free(exchange->wishes.tracestate);
    free(exchange->parts);
    free(exchange->body);
    free(exchange);
}

/* Cancels its requests that have not ended, and frees the exchange. */
static void end_exchange(struct exchange *exchange)
{
    struct gateway *gateway = exchange->gateway;
    struct exchange **at = &gateway->buckets[exchange->number % BUCKETS];
    while (*at && *at != exchange) { at = &(*at)->next; }
    if (*at) {
        *at = exchange->next;
        gateway->counts.open--;
    }
    if (exchange->ask) { keys_forget(exchange->ask); }
    for (uint32_t i = 0; i < exchange->part_count; i++) {
        if (exchange->parts[i].request) { producer_cancel(exchange->parts[i].request); }
    }
    free_exchange(exchange);
}

static void answer_exchange(struct exchange *exchange, struct http_reply *reply)
{
    put_request_id(reply, exchange->id);
    histogram_add(&exchange->gateway->counts.durations, clock_now_ns() - exchange->began_ns);
    bool computed = reply->status < 300 && exchange->cache && !exchange->hit;
    http_answer(exchange->gateway->http, exchange->number, reply);
    if (computed) { cache_store(exchange->cache, (const float *)(void *)exchange->floats.data, exchange->dim); }
    end_exchange(exchange);
}

static void answer_fault(struct exchange *exchange, const struct fault *fault)
{
    struct http_reply reply = {0};
    fill_fault(exchange->gateway, exchange->call.dialect, fault, &reply);
    answer_exchange(exchange, &reply);
}

/* Takes the tokens of a call from its key's bucket. */
static void charge_call(const struct exchange *exchange, uint64_t tokens)
{
    const struct gateway *gateway = exchange->gateway;
    if (!gateway->keys || exchange->charged) { return; }
    keys_charge(gateway->keys, (int)(exchange->queue - gateway->queues), &exchange->key, tokens);
}

static void answer_result(struct exchange *exchange)
{
    struct http_reply reply = {.type = "application/json"};
    struct buffer labels = {0};
    buffer_string(&labels, "[");
    for (uint32_t i = 0; i < exchange->part_count; i++) {
        struct buffer *part = &exchange->parts[i].labels;
        if (i > 0) { buffer_string(&labels, ","); }
        if (part->length > 0) { buffer_append(&labels, part->data, part->length); }
    }
    buffer_string(&labels, "]");
    const float *floats = (const float *)(const void *)exchange->floats.data;
    bool embeds = exchange->call.task == TASK_EMBED;
    struct answer answer = {.vectors = embeds ? floats : NULL,
                            .scores = embeds ? NULL : floats,
                            .labels = {labels.data, labels.length},
                            .dim = exchange->dim,
                            .tokens = exchange->tokens,
                            .model = exchange->model,
                            .request_id = exchange->id};
    dialect_render(&exchange->call, &answer, &reply.body);
    if (buffer_ok(&reply.body) && buffer_ok(&labels)) {
        exchange->gateway->counts.succeeded++;
        if (exchange->cache) {
            buffer_format(&reply.headers, "X-Sluice-Cache: %s\r\n", exchange->hit ? "hit" : "miss");
        }
        charge_call(exchange, exchange->tokens);
        answer_exchange(exchange, &reply);
    } else {
        struct fault fault;
        fault_set(&fault, exchange->call.dialect, FAULT_UNAVAILABLE, NULL, "no memory for the answer");
        buffer_free(&reply.body);
        answer_fault(exchange, &fault);
    }
    buffer_free(&labels);
}

/* --- Replies ------------------------------------------------------------------------------------------------------ */

static struct slice slice_of(const struct resp_value *value)
{
    return value && value->bytes ? (struct slice){value->bytes, value->length} : (struct slice){"", 0};
}

/* Puts the floats of a part at their place; false if the reply does not fit the call. */
static bool take_floats(struct part *part, struct slice bytes, uint64_t dim)
{
    struct exchange *exchange = part->exchange;
    size_t size = (size_t)dim * sizeof(float), total = exchange->call.text_count * size;
    if (dim == 0 || dim > 1 << 20 || bytes.length != part->count * size) { return false; }
    if (exchange->floats.length == 0) {
        if (!buffer_reserve(&exchange->floats, total)) { return false; }
        exchange->floats.length = total;
        exchange->dim = (uint32_t)dim;
    }
    if (exchange->dim != dim) { return false; }
    memcpy(exchange->floats.data + part->first * size, bytes.bytes, bytes.length);
    return true;
}

static bool take_result(struct part *part, const struct resp_value *fields, struct slice info)
{
    struct exchange *exchange = part->exchange;
    uint64_t tokens, dim, count;
    char model[sizeof exchange->model];
    (void)json_member_number(info.bytes, info.length, "tokens", &tokens);
    (void)json_member_number(info.bytes, info.length, "count", &count);
    exchange->tokens += tokens;
    (void)json_member_text(info.bytes, info.length, "model", model, sizeof model);
    if (exchange->model[0] == '\0') { memcpy(exchange->model, model, sizeof model); }
    /* Vectors of two models cannot be compared: a queue may get another one between two parts. */
    if (count != part->count || strcmp(exchange->model, model) != 0) { return false; }
    if (exchange->cache) { cache_take_info(exchange->cache, part->first, part->count, info); }
    switch (exchange->call.task) {
    case TASK_EMBED:
        (void)json_member_number(info.bytes, info.length, "dim", &dim);
        return take_floats(part, slice_of(resp_field(fields, "embedding")), dim);
    case TASK_RERANK:
        return take_floats(part, slice_of(resp_field(fields, "scores")), 1);
    default: {
        struct slice labels = slice_of(resp_field(fields, "labels"));
        if (labels.length < 2) { return false; }
        buffer_append(&part->labels, labels.bytes + 1, labels.length - 2);
        return buffer_ok(&part->labels);
    }
    }
}

/* Fills the fault for a request that ended without a reply. */
static void fault_of_status(struct fault *fault, const struct dialect *dialect, enum status status, const char *message)
{
    if (status == STATUS_TIMEOUT) {
        fault_set(fault, dialect, FAULT_EXPIRED, NULL, "no worker has answered in time");
    } else if (status == STATUS_UNAVAILABLE || status == STATUS_DENIED) {
        fault_set(fault, dialect, FAULT_UNAVAILABLE, NULL, "%s", message);
        fault->retry_after_ms = AWAY_RETRY_MS;
    } else {
        fault_set(fault, dialect, FAULT_BACKEND, NULL, "%s", message);
    }
}

static void on_ended(void *context, const struct producer_reply *reply)
{
    struct part *part = context;
    struct exchange *exchange = part->exchange;
    const struct dialect *dialect = exchange->call.dialect;
    struct fault fault;
    part->request = NULL;
    if (reply->status != STATUS_OK) {
        fault_of_status(&fault, dialect, reply->status, reply->message);
        answer_fault(exchange, &fault);
        return;
    }
    const struct resp_value *status = resp_field(reply->fields, "status");
    struct slice info = slice_of(resp_field(reply->fields, "info"));
    if (resp_equals(status, "done")) {
        if (!take_result(part, reply->fields, info)) {
            fault_set(&fault, dialect, FAULT_BACKEND, NULL,
                      "the queue answered with a reply that is not what was asked");
            answer_fault(exchange, &fault);
        } else if (--exchange->open_parts == 0) {
            answer_result(exchange);
        }
        return;
    }
    struct slice code = slice_of(resp_field(reply->fields, "code"));
    struct slice message = slice_of(resp_field(reply->fields, "message"));
    if (!resp_equals(status, "error")) {
        code = (struct slice){"cancelled", strlen("cancelled")};
        message = (struct slice){"the request was cancelled", strlen("the request was cancelled")};
    }
    fault_from_reply(&fault, &exchange->call, code, message, info, part->first);
    answer_fault(exchange, &fault);
}

/* --- From a call to requests -------------------------------------------------------------------------------------- */

static bool is_name(struct slice slice, const char *name)
{
    return name[0] != '\0' && slice_is(slice, name);
}

static struct model_queue *find_queue(const struct gateway *gateway, struct slice model)
{
    if (model.length == 0) { return gateway->options.queue_count == 1 ? &gateway->queues[0] : NULL; }
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < gateway->options.queue_count; i++) {
            struct model_queue *queue = &gateway->queues[i];
            if (is_name(model, queue->name) || is_name(model, producer_facts(queue->producer)->model)) { return queue; }
        }
        model = slice_last_part(model);
    }
    return NULL;
}

/* Checks the key of a request for a queue, by its number, or for any of them. */
static bool check_key(const struct gateway *gateway, const struct dialect *dialect, const struct http_request *request,
                      int queue, struct key_facts *facts, struct fault *fault)
{
    *facts = (struct key_facts){0};
    if (!gateway->keys) { return true; }
    switch (keys_judge(gateway->keys, http_header(request, "Authorization"), queue, facts)) {
    case KEY_GOOD:
        return true;
    case KEY_ELSEWHERE:
        return fault_set(fault, dialect, FAULT_FORBIDDEN, "model", "the key may not use this model");
    case KEY_NOT_READ:
        fault_set(fault, dialect, FAULT_UNAVAILABLE, NULL, "Redis is away: no key is known yet");
        fault->retry_after_ms = AWAY_RETRY_MS;
        return false;
    default:
        return fault_set(fault, dialect, FAULT_NO_KEY, NULL,
                         "a key is needed that is known here: Authorization: Bearer KEY");
    }
}

static bool may_use(const struct gateway *gateway, const struct http_request *request, size_t queue)
{
    struct key_facts facts;
    struct fault fault;
    return check_key(gateway, NULL, request, (int)queue, &facts, &fault);
}

static bool check_call(struct exchange *exchange, const struct http_request *request, struct fault *fault)
{
    const struct gateway *gateway = exchange->gateway;
    const struct call *call = &exchange->call;
    if (!check_key(gateway, call->dialect, request, (int)(exchange->queue - gateway->queues), &exchange->key, fault)) {
        return false;
    }
    if (exchange->key.texts > 0 && call->text_count > exchange->key.texts) {
        return fault_set(fault, call->dialect, FAULT_TOO_LARGE, NULL, "a call with this key has at most %llu texts",
                         (unsigned long long)exchange->key.texts);
    }
    return true;
}

static bool pick_queue(struct exchange *exchange, const struct http_request *request, struct fault *fault)
{
    const struct gateway *gateway = exchange->gateway;
    struct slice model = exchange->call.model;
    struct buffer names = {0};
    exchange->queue = find_queue(gateway, model);
    if (exchange->queue) { return check_call(exchange, request, fault); }
    for (size_t i = 0; i < gateway->options.queue_count; i++) {
        if (!may_use(gateway, request, i)) { continue; }
        const char *published = producer_facts(gateway->queues[i].producer)->model;
        buffer_format(&names, "%s%s", names.length > 0 ? ", " : "",
                      published[0] != '\0' ? published : gateway->queues[i].name);
    }
    fault_set(fault, exchange->call.dialect, FAULT_NO_MODEL, "model", "%s%.*s%s; there are: %.*s",
              model.length > 0 ? "there is no model '" : "name a model", (int)model.length,
              model.length > 0 ? model.bytes : "", model.length > 0 ? "'" : "", (int)names.length,
              names.length > 0 ? names.data : "");
    buffer_free(&names);
    return false;
}

/* Divides the texts among requests, each within the queue's limits. A text that is too large goes alone, and the queue
 * says so. */
static bool divide_texts(struct exchange *exchange)
{
    const struct producer_facts *facts = producer_facts(exchange->queue->producer);
    uint64_t most = facts->max_inputs ? facts->max_inputs : TEXTS_FALLBACK;
    uint64_t bytes_most = facts->max_text_bytes ? facts->max_text_bytes : BYTES_FALLBACK;
    const struct call *call = &exchange->call;
    uint32_t first = 0;
    exchange->parts = calloc(call->text_count, sizeof *exchange->parts);
    while (exchange->parts && first < call->text_count) {
        struct part *part = &exchange->parts[exchange->part_count++];
        size_t bytes = call->texts[first].length;
        *part = (struct part){.exchange = exchange, .first = first, .count = 1};
        while (first + part->count < call->text_count && part->count < most &&
               bytes + call->texts[first + part->count].length <= bytes_most) {
            bytes += call->texts[first + part->count++].length;
        }
        first += part->count;
    }
    return exchange->parts;
}

static char *copy_text(const char *text)
{
    return text ? strdup(text) : NULL;
}

static bool read_wishes(struct exchange *exchange, const struct http_request *request, struct fault *fault)
{
    const struct dialect *dialect = exchange->call.dialect;
    struct wishes *wishes = &exchange->wishes;
    const char *priority = http_header(request, "X-Sluice-Priority");
    const char *timeout = http_header(request, "X-Sluice-Timeout"), *end = timeout;
    *wishes = (struct wishes){.class = CLASS_NORMAL,
                              .timeout_ms = exchange->async ? JOB_TIMEOUT_MS : TIMEOUT_MS,
                              .tenant = exchange->gateway->keys ? strdup(exchange->key.tenant)
                                                                : copy_text(http_header(request, "X-Sluice-Tenant")),
                              .traceparent = copy_text(http_header(request, "traceparent")),
                              .tracestate = copy_text(http_header(request, "tracestate"))};
    if (exchange->gateway->keys && !wishes->tenant) {
        return fault_set(fault, dialect, FAULT_UNAVAILABLE, NULL, "no memory for a call");
    }
    if (priority) {
        int class = 0;
        while (class < CLASS_COUNT && strcasecmp(priority, class_names[class]) != 0) { class ++; }
        if (class == CLASS_COUNT) {
            return fault_set(fault, dialect, FAULT_BAD_REQUEST, NULL, "X-Sluice-Priority is high, normal or low");
        }
        wishes->class = (enum request_class) class;
    }
    if (!timeout && !exchange->async) { /* how long the clients of OpenAI and others wait, which they say */
        timeout = http_header(request, "x-stainless-read-timeout");
    }
    if (timeout) {
        char *after;
        double seconds = strtod(timeout, &after);
        end = after;
        bool good = end != timeout && *end == '\0' && seconds > 0 && seconds <= TIMEOUT_MOST_S;
        if (good) { wishes->timeout_ms = (uint64_t)(seconds * 1000) + (seconds < 0.001); }
        if (!good && http_header(request, "X-Sluice-Timeout")) {
            return fault_set(fault, dialect, FAULT_BAD_REQUEST, NULL, "X-Sluice-Timeout is seconds, up to %d",
                             (int)TIMEOUT_MOST_S);
        }
    }
    return true;
}

/* The id of a call with an Idempotency-Key: whose it is, the key and what was asked. */
static bool name_by_key(struct exchange *exchange, const struct http_request *request, const char *key,
                        const char *tenant, struct fault *fault)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned length = 0;
    const char *parts[] = {tenant ? tenant : "", key, request->path, request->body};
    size_t lengths[] = {strlen(parts[0]), strlen(key), strlen(request->path), request->body_length};
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool good = context && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1;
    for (size_t i = 0; good && i < 4; i++) {
        good = EVP_DigestUpdate(context, &lengths[i], sizeof lengths[i]) == 1 &&
               EVP_DigestUpdate(context, parts[i], lengths[i]) == 1;
    }
    good = good && EVP_DigestFinal_ex(context, digest, &length) == 1;
    EVP_MD_CTX_free(context);
    if (!good) {
        return fault_set(fault, exchange->call.dialect, FAULT_UNAVAILABLE, NULL, "no digest of the Idempotency-Key");
    }
    int used = snprintf(exchange->id, sizeof exchange->id, "key-");
    for (unsigned i = 0; i < length; i++) {
        used += snprintf(exchange->id + used, sizeof exchange->id - (size_t)used, "%02x", digest[i]);
    }
    exchange->kept = true;
    return true;
}

/* The fields of a request, in the words of the protocol. */
struct fields {
    struct entry_field items[FIELDS_MAX];
    size_t count;
    char dims[16], meta[META_MAX];
};

static void add_field(struct fields *fields, const char *name, const char *value, size_t length)
{
    fields->items[fields->count++] = (struct entry_field){name, strlen(name), value, length};
}

static void add_text(struct fields *fields, const char *name, const char *value)
{
    if (value) { add_field(fields, name, value, strlen(value)); }
}

static void fill_fields(const struct exchange *exchange, const struct wishes *wishes, const struct buffer *inputs,
                        struct fields *fields)
{
    const struct call *call = &exchange->call;
    fields->count = 0;
    add_field(fields, "inputs", inputs->data, inputs->length);
    if (call->task != TASK_EMBED) { add_text(fields, "task", task_names[call->task]); }
    if (call->task != TASK_CLASSIFY) { add_text(fields, "encoding", "f32"); }
    if (call->task == TASK_RERANK) { add_field(fields, "query", call->query.bytes, call->query.length); }
    if (call->raw > 0) { add_text(fields, "raw", "1"); }
    if (call->normalize >= 0) { add_text(fields, "normalize", call->normalize ? "1" : "0"); }
    if (call->truncate >= 0) { add_text(fields, "truncate", call->truncate ? "1" : "0"); }
    if (call->prompt.length > 0) { add_field(fields, "prompt", call->prompt.bytes, call->prompt.length); }
    if (call->dims > 0) {
        snprintf(fields->dims, sizeof fields->dims, "%u", call->dims);
        add_text(fields, "dims", fields->dims);
    }
    add_text(fields, "tenant", wishes->tenant);
    add_text(fields, "traceparent", wishes->traceparent);
    add_text(fields, "tracestate", wishes->tracestate);
    if (exchange->async) { add_text(fields, "meta", fields->meta); }
}

static void on_added(void *context, const char *name);
static bool name_job(struct exchange *exchange, struct fault *fault);

static bool send_parts(struct exchange *exchange, struct fault *fault)
{
    const struct wishes *wishes = &exchange->wishes;
    struct fields fields;
    struct buffer inputs = {0};
    struct err err = {0};
    enum status status = STATUS_OK;
    const struct call *call = &exchange->call;
    snprintf(fields.meta, sizeof fields.meta, "%s %d %u %u", call->dialect->path, call->single, call->top_n,
             call->forms); /* read_meta */
    for (uint32_t i = 0; i < exchange->part_count && status == STATUS_OK; i++) {
        struct part *part = &exchange->parts[i];
        char id[REQUEST_ID_MAX + 1];
        inputs.length = 0;
        for (uint32_t text = part->first; text < part->first + part->count; text++) {
            buffer_append(&inputs, text == part->first ? "[" : ",", 1);
            buffer_append(&inputs, call->texts[text].bytes, call->texts[text].length);
        }
        buffer_append(&inputs, "]", 1);
        fill_fields(exchange, wishes, &inputs, &fields);
        /* With an Idempotency-Key these may be ids of an earlier call, when the queue had other limits. */
        snprintf(id, sizeof id, exchange->part_count > 1 ? "%s.%u.%u" : "%s", exchange->id, part->first, part->count);
        struct producer_order order = {.class = wishes->class,
                                       .id = id,
                                       .kept = exchange->kept,
                                       .fields = fields.items,
                                       .count = fields.count,
                                       .timeout_ms = wishes->timeout_ms,
                                       .context = part,
                                       .added = exchange->async ? on_added : NULL,
                                       .ended = on_ended};
        status = buffer_ok(&inputs) ? producer_send(exchange->queue->producer, &order, &part->request, &err)
                                    : err_set(&err, STATUS_NO_MEMORY, "no memory for the texts of a request");
    }
    buffer_free(&inputs);
    exchange->open_parts = exchange->part_count;
    return status == STATUS_OK || fault_set(fault, call->dialect, FAULT_UNAVAILABLE, NULL, "%s", err.message);
}

static void on_cache(void *context, bool hit)
{
    struct exchange *exchange = context;
    struct fault fault;
    if (hit) {
        uint64_t tokens;
        uint32_t dim;
        const float *vectors = cache_vectors(exchange->cache, &dim, &tokens);
        size_t size = exchange->call.text_count * (size_t)dim * sizeof(float);
        if (buffer_reserve(&exchange->floats, size)) {
            memcpy(exchange->floats.data, vectors, size);
            exchange->floats.length = size;
            exchange->dim = dim;
            exchange->tokens = tokens;
            exchange->hit = true;
            snprintf(exchange->model, sizeof exchange->model, "%s", producer_facts(exchange->queue->producer)->model);
            answer_result(exchange);
            return;
        }
    }
    if (!send_parts(exchange, &fault)) { answer_fault(exchange, &fault); }
}

/* Looks for the vectors first; false: there is no cache for this call, which is computed at once. */
static bool ask_cache(struct exchange *exchange)
{
    struct cache_options options = {.producer = exchange->queue->producer,
                                    .queue = exchange->queue->name,
                                    .call = &exchange->call,
                                    .bytes = exchange->gateway->options.cache_bytes,
                                    .context = exchange,
                                    .looked = on_cache};
    if (options.bytes == 0 || exchange->call.task != TASK_EMBED || exchange->kept || exchange->async) { return false; }
    exchange->cache = cache_look(&options);
    return exchange->cache;
}

static bool compute_call(struct exchange *exchange, struct fault *fault)
{
    return ask_cache(exchange) || send_parts(exchange, fault);
}

/* The tokens that a call will have, before anybody has counted them: one for four bytes. */
static uint64_t estimate_tokens(const struct exchange *exchange)
{
    uint64_t bytes = exchange->call.query.length;
    for (uint32_t i = 0; i < exchange->call.text_count; i++) { bytes += exchange->call.texts[i].length; }
    return bytes / 4 + 1;
}

static void on_turn(void *context, enum status status, uint64_t wait_ms, const char *message)
{
    struct exchange *exchange = context;
    struct fault fault;
    exchange->ask = NULL;
    if (status != STATUS_OK) {
        fault_of_status(&fault, exchange->call.dialect, status, message);
        answer_fault(exchange, &fault);
    } else if (wait_ms > 0) {
        fault_set(&fault, exchange->call.dialect, FAULT_RATE_LIMIT, NULL,
                  "the key '%s' has used what it may use in a minute", exchange->key.name);
        fault.retry_after_ms = (unsigned)(wait_ms < UINT32_MAX ? wait_ms : UINT32_MAX);
        answer_fault(exchange, &fault);
    } else if (!compute_call(exchange, &fault)) {
        answer_fault(exchange, &fault);
    }
}

/* Sends the requests of a call, once the bucket of its key lets it through. */
static bool take_turn(struct exchange *exchange, struct fault *fault)
{
    struct gateway *gateway = exchange->gateway;
    struct err err;
    if (!gateway->keys || (exchange->key.requests == 0 && exchange->key.tokens == 0)) {
        return compute_call(exchange, fault);
    }
    return keys_ask(gateway->keys, (int)(exchange->queue - gateway->queues), &exchange->key, on_turn, exchange,
                    &exchange->ask, &err) == STATUS_OK ||
           fault_set(fault, exchange->call.dialect, FAULT_UNAVAILABLE, NULL, "%s", err.message);
}

static bool begin_call(struct exchange *exchange, const struct http_request *request, struct fault *fault)
{
    const struct dialect *dialect = exchange->call.dialect = dialect_find(request->path);
    const char *type = http_header(request, "Content-Type"), *key = http_header(request, "Idempotency-Key");
    const char *prefer = http_header(request, "Prefer");
    /* A page of another site in a browser cannot send JSON, nor hide its origin. */
    if (http_header(request, "Origin")) {
        return fault_set(fault, dialect, FAULT_FORBIDDEN, NULL,
                         "this gateway serves no pages: requests with an Origin are refused");
    }
    if (!type || strncasecmp(type, "application/json", strlen("application/json")) != 0) {
        return fault_set(fault, dialect, FAULT_BAD_REQUEST, NULL, "Content-Type must be application/json");
    }
    exchange->async = prefer && strcasestr(prefer, "respond-async");
    exchange->body = malloc(request->body_length + 1);
    if (!exchange->body) { return fault_set(fault, dialect, FAULT_UNAVAILABLE, NULL, "no memory for the body"); }
    if (request->body_length > 0) { memcpy(exchange->body, request->body, request->body_length); }
    if (!body_parse(dialect, exchange->body, request->body_length, &exchange->call, fault) ||
        !pick_queue(exchange, request, fault) || !read_wishes(exchange, request, fault)) {
        return false;
    }
    const struct producer_facts *facts = producer_facts(exchange->queue->producer);
    if (exchange->call.purpose >= 0 && facts->model[0] == '\0') {
        fault_set(fault, dialect, FAULT_UNAVAILABLE, NULL,
                  "the prompts of the model are not known yet: no worker has joined the queue");
        fault->retry_after_ms = AWAY_RETRY_MS;
        return false;
    }
    call_choose_prompt(&exchange->call, (struct slice){facts->model_facts, strlen(facts->model_facts)});
    if (key && !name_by_key(exchange, request, key, exchange->wishes.tenant, fault)) { return false; }
    if (!divide_texts(exchange)) { return fault_set(fault, dialect, FAULT_UNAVAILABLE, NULL, "no memory for a call"); }
    if (exchange->async && !name_job(exchange, fault)) { return false; }
    return take_turn(exchange, fault);
}

static struct exchange *make_exchange(struct gateway *gateway, const struct http_request *request)
{
    struct exchange *exchange = calloc(1, sizeof *exchange);
    if (!exchange) { return NULL; }
    exchange->gateway = gateway;
    exchange->number = request->number;
    exchange->began_ns = clock_now_ns();
    name_request(gateway, request->number, exchange->id);
    return exchange;
}

static enum http_when wait_for_it(struct exchange *exchange)
{
    struct exchange **bucket = &exchange->gateway->buckets[exchange->number % BUCKETS];
    exchange->next = *bucket;
    *bucket = exchange;
    exchange->gateway->counts.open++;
    return HTTP_LATER;
}

static enum http_when answer_call(void *context, const struct http_request *request, struct http_reply *reply)
{
    struct gateway *gateway = context;
    struct fault fault;
    struct exchange *exchange = make_exchange(gateway, request);
    if (!exchange) { return http_error(reply, 503, "no memory for a call"); }
    if (begin_call(exchange, request, &fault)) { return wait_for_it(exchange); }
    fill_fault(gateway, dialect_find(request->path), &fault, reply);
    put_request_id(reply, exchange->id);
    end_exchange(exchange);
    return HTTP_NOW;
}

/* Refusals of the HTTP server look as the dialect's clients expect. */
static void refuse_request(void *context, const struct http_route *route, int status, const char *error,
                           struct http_reply *reply)
{
    const struct dialect *dialect = route ? dialect_find(route->path) : NULL;
    struct fault fault;
    enum fault_kind kind = status == 404                    ? FAULT_NOT_FOUND
                           : status == 413 || status == 431 ? FAULT_TOO_LARGE
                           : status == 504                  ? FAULT_EXPIRED
                           : status >= 500                  ? FAULT_UNAVAILABLE
                                                            : FAULT_BAD_REQUEST;
    fault_set(&fault, dialect, kind, NULL, "%s", error);
    fault.retry_after_ms = status == 503 ? AWAY_RETRY_MS : 0;
    fill_fault(context, dialect, &fault, reply);
    reply->status = status;
}

static void on_gone(void *context, uint64_t number)
{
    struct gateway *gateway = context;
    struct exchange *exchange = gateway->buckets[number % BUCKETS];
    while (exchange && exchange->number != number) { exchange = exchange->next; }
    if (!exchange) { return; }
    if (exchange->open_parts > 0) {
        charge_call(exchange, estimate_tokens(exchange));
    } /* it may be computed all the same */
    end_exchange(exchange);
}

/* --- Jobs: calls with Prefer: respond-async. Everything about one is in its path and in its reply. -------------- */

static void put_job(const struct exchange *exchange, const char *status, struct http_reply *reply)
{
    reply->status = 202;
    buffer_json(&reply->body, "{'id':%s,'object':'job','status':%s}", exchange->id, status);
}

/* The request is in the queue: its client may go. */
static void on_added(void *context, const char *name)
{
    const struct part *part = context;
    struct exchange *exchange = part->exchange;
    struct http_reply reply = {.type = "application/json"};
    buffer_format(&reply.headers, "Location: /v1/jobs/%s/%s/%s\r\nPreference-Applied: respond-async\r\n",
                  exchange->queue->name, name, exchange->id);
    put_job(exchange, "queued", &reply);
    charge_call(exchange, estimate_tokens(exchange));
    answer_exchange(exchange, &reply);
}

static bool name_job(struct exchange *exchange, struct fault *fault)
{
    const struct call *call = &exchange->call;
    uint64_t random[2];
    if (exchange->part_count > 1) {
        return fault_set(fault, call->dialect, FAULT_TOO_LARGE, NULL,
                         "a call with Prefer: respond-async has at most %u texts here", exchange->parts[0].count);
    }
    if (call->return_texts > 0) {
        return fault_set(fault, call->dialect, FAULT_BAD_REQUEST, NULL,
                         "a call with Prefer: respond-async cannot return its texts");
    }
    if (exchange->kept) { return true; }
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        return fault_set(fault, call->dialect, FAULT_UNAVAILABLE, NULL, "no random number to be had");
    }
    snprintf(exchange->id, sizeof exchange->id, "job-%016llx%016llx", (unsigned long long)random[0],
             (unsigned long long)random[1]);
    exchange->kept = true;
    return true;
}

/* The call of a job, as far as its answer needs it. */
static bool read_meta(struct exchange *exchange, struct slice info)
{
    char meta[META_MAX], path[META_MAX];
    int single;
    uint64_t count;
    struct call *call = &exchange->call;
    if (!json_member_text(info.bytes, info.length, "meta", meta, sizeof meta) ||
        sscanf(meta, "%127s %d %u %u", path, &single, &call->top_n, &call->forms) != 4 || !dialect_find(path)) {
        return false;
    }
    (void)json_member_number(info.bytes, info.length, "count", &count);
    call->dialect = dialect_find(path);
    call->task = call->dialect->task;
    call->single = single;
    call->text_count = exchange->parts[0].count = (uint32_t)count;
    return true;
}

/* True if it is this caller's: of the same tenant, where there are keys. */
static bool owns_job(const struct exchange *exchange, struct slice info)
{
    char tenant[KEY_NAME_MAX + 2];
    (void)json_member_text(info.bytes, info.length, "tenant", tenant, sizeof tenant);
    return !exchange->gateway->keys || strcmp(tenant, exchange->key.tenant) == 0;
}

static void on_job(void *context, const struct producer_reply *reply)
{
    struct part *part = context;
    struct exchange *exchange = part->exchange;
    struct fault fault;
    if (reply->status == STATUS_TIMEOUT) { /* of the wait, not of the job */
        struct http_reply answer = {.type = "application/json"};
        part->request = NULL;
        buffer_string(&answer.headers, "Retry-After: 1\r\n");
        put_job(exchange, "queued", &answer);
        answer_exchange(exchange, &answer);
    } else if (reply->status == STATUS_OK && (!owns_job(exchange, slice_of(resp_field(reply->fields, "info"))) ||
                                              !read_meta(exchange, slice_of(resp_field(reply->fields, "info"))))) {
        part->request = NULL;
        fault_set(&fault, NULL, FAULT_NOT_FOUND, NULL, "there is no such job");
        answer_fault(exchange, &fault);
    } else {
        on_ended(context, reply);
    }
}

/* Reads <queue>/<name>/<id>; false if no job was ever there, or if it was so long ago that its reply is gone. */
static bool read_job(struct exchange *exchange, const char *rest, char name[REQUEST_NAME_MAX])
{
    const char *slash = strchr(rest, '/'), *last = strrchr(rest, '/');
    struct gateway *gateway = exchange->gateway;
    enum request_class class;
    struct entry_id entry;
    if (!slash || last == slash || last - slash > REQUEST_NAME_MAX) { return false; }
    for (size_t i = 0; i < gateway->options.queue_count; i++) {
        struct slice queue = {rest, (size_t)(slash - rest)};
        if (is_name(queue, gateway->queues[i].name)) { exchange->queue = &gateway->queues[i]; }
    }
    snprintf(name, REQUEST_NAME_MAX, "%.*s", (int)(last - slash - 1), slash + 1);
    const char *id = last + 1;
    size_t digits = strncmp(id, "job-", 4) == 0 ? 32 : strncmp(id, "key-", 4) == 0 ? 64 : 0;
    bool is_job = digits > 0 && strlen(id) == 4 + digits && strspn(id + 4, "0123456789abcdef") == digits &&
                  request_name_parse(name, strlen(name), &class, &entry);
    if (is_job) { snprintf(exchange->id, sizeof exchange->id, "%s", id); }
    return is_job && exchange->queue && entry.ms + (uint64_t)JOB_TIMEOUT_MS + JOB_KEPT_MS > clock_unix_ms();
}

static bool ask_job(struct exchange *exchange, const struct http_request *request, struct http_reply *reply,
                    struct fault *fault)
{
    char name[REQUEST_NAME_MAX];
    struct err err;
    enum status status = STATUS_OK;
    unsigned wait_s = 0;
    if (!read_job(exchange, request->rest, name)) {
        return fault_set(fault, NULL, FAULT_NOT_FOUND, NULL, "there is no such job");
    }
    if (!check_key(exchange->gateway, NULL, request, (int)(exchange->queue - exchange->gateway->queues), &exchange->key,
                   fault)) {
        return false;
    }
    exchange->charged = true;
    if (request->method == HTTP_DELETE && exchange->gateway->keys) { /* nothing says whose the request is */
        return fault_set(fault, NULL, FAULT_FORBIDDEN, NULL, "a gateway with keys cancels no jobs");
    }
    if (request->method == HTTP_DELETE) {
        status = producer_cancel_name(exchange->queue->producer, name, &err);
        put_job(exchange, "cancelling", reply);
    } else {
        if (strncmp(request->query, "wait=", 5) == 0) { wait_s = (unsigned)strtoul(request->query + 5, NULL, 10); }
        exchange->kept = true;
        exchange->parts = calloc(1, sizeof *exchange->parts);
        if (!exchange->parts) { return fault_set(fault, NULL, FAULT_UNAVAILABLE, NULL, "no memory for a call"); }
        exchange->part_count = exchange->open_parts = 1;
        exchange->parts[0].exchange = exchange;
        struct producer_order order = {.id = exchange->id,
                                       .name = name,
                                       .kept = true,
                                       .timeout_ms = 1000ull * (wait_s < WAIT_MOST_S ? wait_s : WAIT_MOST_S),
                                       .context = exchange->parts,
                                       .ended = on_job};
        status = producer_send(exchange->queue->producer, &order, &exchange->parts[0].request, &err);
    }
    if (status != STATUS_OK) { fault_of_status(fault, NULL, status, err.message); }
    return status == STATUS_OK;
}

static enum http_when answer_job(void *context, const struct http_request *request, struct http_reply *reply)
{
    struct gateway *gateway = context;
    struct fault fault;
    struct exchange *exchange = make_exchange(gateway, request);
    if (!exchange) { return http_error(reply, 503, "no memory for a call"); }
    bool good = ask_job(exchange, request, reply, &fault);
    if (good && exchange->part_count > 0) { return wait_for_it(exchange); }
    if (!good) {
        buffer_free(&reply->body);
        fill_fault(gateway, NULL, &fault, reply);
    }
    put_request_id(reply, exchange->id);
    end_exchange(exchange);
    return HTTP_NOW;
}

/* --- Pages about the gateway itself ------------------------------------------------------------------------------ */

static enum http_when answer_models(void *context, const struct http_request *request, struct http_reply *reply)
{
    const struct gateway *gateway = context;
    const struct model_queue *queue = find_queue(gateway, (struct slice){request->rest, strlen(request->rest)});
    if (request->rest[0] == '\0') {
        buffer_json(&reply->body, "{'object':'list','data':[");
        for (size_t i = 0, count = 0; i < gateway->options.queue_count; i++) {
            if (!may_use(gateway, request, i)) { continue; }
            buffer_string(&reply->body, count++ > 0 ? "," : "");
            page_model(&gateway->queues[i], &reply->body);
        }
        buffer_json(&reply->body, "]}");
    } else if (queue && may_use(gateway, request, (size_t)(queue - gateway->queues))) {
        page_model(queue, &reply->body);
    } else {
        struct fault fault;
        fault_set(&fault, NULL, FAULT_NO_MODEL, "model", "there is no model '%s'", request->rest);
        fill_fault(context, NULL, &fault, reply);
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
    page_metrics(&gateway->counts, gateway->queues, gateway->options.queue_count, answered, refused, &reply->body);
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
    page_openapi(gateway->extra ? gateway->options.extension->paths : (struct openapi_paths){0}, &reply->body);
    return HTTP_NOW;
}

/* --- Opening and closing ------------------------------------------------------------------------------------------ */

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

/* Asks for a key before anybody sends a body; which queue it may ask is seen in the body, or in the name of a job. */
static bool admit_request(void *context, const struct http_route *route, const struct http_request *request,
                          struct http_reply *reply)
{
    struct gateway *gateway = context;
    const struct dialect *dialect = dialect_find(route->path);
    struct key_facts facts;
    struct fault fault;
    char id[ID_MAX];
    if (!gateway->keys || route->answer == answer_health || route->answer == answer_openapi) { return true; }
    bool good = check_key(gateway, dialect, request, KEYS_ANY_QUEUE, &facts, &fault);
    if (good && route->context && !facts.batches) {
        good = fault_set(&fault, NULL, FAULT_FORBIDDEN, NULL, "the key may not use files and batches");
    }
    if (good) { return true; }
    name_request(gateway, request->number, id);
    put_request_id(reply, id);
    fill_fault(gateway, dialect, &fault, reply);
    return false;
}

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
                                           .answer_ms = TIMEOUT_MOST_S * 1000u + RECEIVE_MS,
                                           .idle_ms = IDLE_MS},
                                .folder = gateway->options.data,
                                .context = gateway,
                                .admit = admit_request,
                                .refuse = refuse_request,
                                .gone = on_gone};
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
    gateway->counts.durations.bounds = &histogram_times;
    enum status status = open_queues(gateway, err);
    if (status == STATUS_OK) { status = open_keys(gateway, err); }
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
    struct fault fault;
    for (size_t i = 0; i < BUCKETS; i++) {
        while (gateway->buckets[i]) {
            fault_set(&fault, gateway->buckets[i]->call.dialect, FAULT_UNAVAILABLE, NULL, "the gateway stops");
            fault.retry_after_ms = AWAY_RETRY_MS;
            answer_fault(gateway->buckets[i], &fault);
        }
    }
}

void gateway_answer(struct gateway *gateway, uint64_t number, struct http_reply *reply)
{
    char id[ID_MAX];
    name_request(gateway, number, id);
    put_request_id(reply, id);
    http_answer(gateway->http, number, reply);
}

void gateway_close(struct gateway *gateway)
{
    if (!gateway) { return; }
    if (gateway->extra) { gateway->options.extension->close(gateway->extra); }
    http_close(gateway->http);
    for (size_t i = 0; i < BUCKETS; i++) {
        while (gateway->buckets[i]) { end_exchange(gateway->buckets[i]); }
    }
    for (size_t i = 0; gateway->queues && i < gateway->options.queue_count; i++) {
        producer_close(gateway->queues[i].producer);
    }
    keys_close(gateway->keys);
    free(gateway->producers);
    free(gateway->queues);
    free(gateway->routes);
    free(gateway);
}
