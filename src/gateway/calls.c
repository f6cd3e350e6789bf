#include "gateway/calls.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "compute/thread_pool.h"
#include "gateway/body.h"
#include "gateway/cache.h"
#include "gateway/jobs.h"
#include "gateway/request_fields.h"
#include "redis/producer.h"

enum { WAIT_MOST_S = 60 };
enum { TEXTS_FALLBACK = 256, BYTES_FALLBACK = 1 << 20 }; /* a request's limits, while the queue has published none */
enum { BUCKETS = 4096 };
/* The least floats of an answer that is rendered on a thread, and the most such answers at a time. */
enum { RENDERED_FLOATS = 1 << 16, RENDERED_MOST = 64 };

/* One request of a call: some of its texts. */
struct part {
    struct exchange *exchange;
    struct producer_request *request; /* NULL: it has ended */
    uint32_t first, count;
    struct buffer lists; /* TASK_CLASSIFY, TASK_TOKENIZE, TASK_GENERATE: its elements of the answer's lists */

    /* If the answer is sent while it is written: */
    struct buffer text; /* so far */
    size_t sent;        /* bytes of it */
    uint64_t tokens;    /* of it */
    char finish[16];    /* why it has ended; "": it has not */
    bool opened;        /* its first chunk is sent */
    bool closed;        /* its last one is */
};

/* A call or a question about a job, from its body to its answer. */
struct exchange {
    struct calls *calls;
    struct exchange *next; /* in its bucket */
    const struct model_queue *queue;
    uint64_t number; /* of the HTTP request */
    uint64_t began_ns;
    struct call call;
    struct wishes wishes;
    struct key_facts key; /* where there are keys */
    struct key_ask *ask;  /* NULL: it does not wait for its key's bucket */
    char *body;
    struct part *parts; /* [part_count] */
    uint32_t part_count, open_parts;
    bool kept;      /* its ids were given, or can be found again: nothing is cancelled when the client goes away */
    bool async;     /* the client does not wait for the reply */
    bool charged;   /* its tokens, or it needs none */
    bool hit;       /* its vectors are from the cache */
    bool begun;     /* some of the answer is sent, as events … */
    bool complete;  /* … and nothing will be added */
    bool rendering; /* the pool's thread has it */
    bool ended;     /* it is freed once it was rendered */
    struct cache_look *cache; /* NULL: the call is none for the cache */
    struct buffer floats, lists;
    uint32_t dim;
    uint64_t tokens, written_tokens, created_s;
    struct buffer rendered;
    char model[256];
    char id[JOB_ID_MAX]; /* of the request, or what the parts' ids begin with */
};

struct calls {
    struct calls_options options;
    struct exchange *buckets[BUCKETS]; /* by number */
    struct gateway_counts counts;
    struct thread_pool *pool; /* renders large answers */
    struct event *done;
    int done_fd;
};

/* --- Answers ------------------------------------------------------------------------------------------------------ */

static struct exchange *find_exchange(const struct calls *calls, uint64_t number)
{
    struct exchange *exchange = calls->buckets[number % BUCKETS];
    while (exchange && exchange->number != number) { exchange = exchange->next; }
    return exchange;
}

/* The id of a request by its number. */
static void name_request(const struct calls *calls, uint64_t number, char id[JOB_ID_MAX])
{
    snprintf(id, JOB_ID_MAX, "%s-%llx", calls->options.name, (unsigned long long)number);
}

static void put_request_id(struct http_reply *reply, const char *id)
{
    buffer_format(&reply->headers, "x-request-id: %s\r\n", id);
}

void calls_put_id(const struct calls *calls, uint64_t number, struct http_reply *reply)
{
    char id[JOB_ID_MAX];
    name_request(calls, number, id);
    put_request_id(reply, id);
}

void calls_refuse(struct calls *calls, const struct dialect *dialect, const struct fault *fault,
                  struct http_reply *reply)
{
    calls->counts.failed[fault->kind]++;
    reply->status = fault->status;
    reply->type = "application/json";
    fault_put_headers(fault, &reply->headers);
    dialect_render_fault(dialect, fault, &reply->body);
}

static void free_exchange(struct exchange *exchange)
{
    for (uint32_t i = 0; i < exchange->part_count; i++) {
        buffer_free(&exchange->parts[i].lists);
        buffer_free(&exchange->parts[i].text);
    }
    buffer_free(&exchange->floats);
    buffer_free(&exchange->lists);
    buffer_free(&exchange->rendered);
    cache_close(exchange->cache);
    call_free(&exchange->call);
    wishes_free(&exchange->wishes);
    free(exchange->parts);
    free(exchange->body);
    free(exchange);
}

static void cancel_parts(struct exchange *exchange)
{
    for (uint32_t i = 0; i < exchange->part_count; i++) {
        struct part *part = &exchange->parts[i];
        if (part->request) { producer_cancel(part->request); }
        part->request = NULL;
    }
}

/* Cancels its requests that have not ended, and frees the exchange. */
static void end_exchange(struct exchange *exchange)
{
    struct calls *calls = exchange->calls;
    struct exchange **at = &calls->buckets[exchange->number % BUCKETS];
    while (*at && *at != exchange) { at = &(*at)->next; }
    if (*at) {
        *at = exchange->next;
        calls->counts.open--;
    }
    if (exchange->ask) { keys_forget(exchange->ask); }
    cancel_parts(exchange);
    exchange->ended = true;
    if (!exchange->rendering) { free_exchange(exchange); }
}

static void answer_exchange(struct exchange *exchange, struct http_reply *reply)
{
    put_request_id(reply, exchange->id);
    histogram_add(&exchange->calls->counts.durations, clock_now_ns() - exchange->began_ns);
    bool computed = reply->status < 300 && exchange->cache && !exchange->hit;
    http_answer(*exchange->calls->options.http, exchange->number, reply);
    if (computed) { cache_store(exchange->cache, (const float *)(void *)exchange->floats.data, exchange->dim); }
    end_exchange(exchange);
}

static void break_off(struct exchange *exchange, const struct fault *fault);

static void answer_fault(struct exchange *exchange, const struct fault *fault)
{
    struct http_reply reply = {0};
    if (exchange->begun) {
        break_off(exchange, fault);
        return;
    }
    calls_refuse(exchange->calls, exchange->call.dialect, fault, &reply);
    answer_exchange(exchange, &reply);
}

/* The number of the call's queue, for its key. */
static int number_queue(const struct exchange *exchange)
{
    return (int)(exchange->queue - exchange->calls->options.queues);
}

/* The tokens that a call will have, before anybody has counted them: one for four bytes, and those that were sent. */
static uint64_t estimate_tokens(const struct exchange *exchange)
{
    uint64_t bytes = exchange->call.query.length;
    for (uint32_t i = 0; i < exchange->call.text_count; i++) { bytes += exchange->call.texts[i].length; }
    uint64_t written = 0;
    for (uint32_t i = 0; i < exchange->part_count; i++) { written += exchange->parts[i].tokens; }
    return bytes / 4 + 1 + written;
}

/* Takes the tokens of a call from its key's bucket. */
static void charge_call(const struct exchange *exchange, uint64_t tokens)
{
    struct keys *keys = exchange->calls->options.keys;
    if (keys && !exchange->charged) { keys_charge(keys, number_queue(exchange), &exchange->key, tokens); }
}

/* Ends a call whose body is rendered. */
static void answer_rendered(struct exchange *exchange)
{
    struct http_reply reply = {.type = "application/json"};
    if (!buffer_ok(&exchange->rendered) || !buffer_ok(&exchange->lists)) {
        struct fault fault;
        fault_set(&fault, exchange->call.dialect, FAULT_UNAVAILABLE, NULL, "no memory for the answer");
        answer_fault(exchange, &fault);
        return;
    }
    reply.body = exchange->rendered;
    exchange->rendered = (struct buffer){0};
    exchange->calls->counts.succeeded++;
    if (exchange->cache) { buffer_format(&reply.headers, "X-Sluice-Cache: %s\r\n", exchange->hit ? "hit" : "miss"); }
    charge_call(exchange, exchange->tokens + exchange->written_tokens);
    answer_exchange(exchange, &reply);
}

static struct answer describe_answer(const struct exchange *exchange)
{
    const float *floats = (const float *)(const void *)exchange->floats.data;
    bool embeds = exchange->call.task == TASK_EMBED;
    return (struct answer){.vectors = embeds ? floats : NULL,
                           .scores = embeds ? NULL : floats,
                           .lists = {exchange->lists.data, exchange->lists.length},
                           .dim = exchange->dim,
                           .tokens = exchange->tokens,
                           .written_tokens = exchange->written_tokens,
                           .created_s = exchange->created_s,
                           .model = exchange->model,
                           .request_id = exchange->id};
}

/* Thread: the loop's, or that of the pool, which then has the exchange for itself. */
static void render_answer(void *context, void *item)
{
    struct exchange *exchange = item;
    struct answer answer = describe_answer(exchange);
    (void)context;
    dialect_render(&exchange->call, &answer, &exchange->rendered);
}

static void on_rendered(evutil_socket_t fd, short what, void *context)
{
    struct calls *calls = context;
    uint64_t count;
    (void)what;
    ssize_t ignored = read(fd, &count, sizeof count);
    (void)ignored;
    for (struct exchange *exchange; (exchange = thread_pool_take(calls->pool)) != NULL;) {
        exchange->rendering = false;
        if (exchange->ended) {
            free_exchange(exchange);
        } else {
            answer_rendered(exchange);
        }
    }
}

static void answer_result(struct exchange *exchange)
{
    struct thread_pool *pool = exchange->calls->pool;
    struct buffer *lists = &exchange->lists;
    buffer_string(lists, "[");
    for (uint32_t i = 0; i < exchange->part_count; i++) {
        const struct buffer *part = &exchange->parts[i].lists;
        if (i > 0) { buffer_string(lists, ","); }
        if (part->length > 0) { buffer_append(lists, part->data, part->length); }
    }
    buffer_string(lists, "]");
    if (exchange->floats.length >= RENDERED_FLOATS * sizeof(float) && thread_pool_out(pool) < RENDERED_MOST) {
        exchange->rendering = true;
        thread_pool_put(pool, exchange);
    } else {
        render_answer(NULL, exchange);
        answer_rendered(exchange);
    }
}

/* --- Answers that are sent while they are written: server-sent events --------------------------------------------- */

/* Begins the answer, or tells that there is more of it. It may end the exchange. */
static void send_events(struct exchange *exchange)
{
    struct http *http = *exchange->calls->options.http;
    if (exchange->begun) {
        http_answer_more(http, exchange->number);
        return;
    }
    struct http_reply reply = {.type = "text/event-stream"};
    exchange->begun = true;
    exchange->created_s = clock_unix_ms() / 1000;
    snprintf(exchange->model, sizeof exchange->model, "%s", producer_facts(exchange->queue->producer)->model);
    put_request_id(&reply, exchange->id);
    buffer_string(&reply.headers, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n");
    http_answer_parts(http, exchange->number, &reply);
}

/* Takes tokens that follow those before them. Where some are missing, the rest comes with the reply. */
static void on_written(void *context, uint64_t index, uint64_t tokens, const struct resp_value *text)
{
    struct part *part = context;
    if (index != part->tokens) { return; }
    part->tokens += tokens;
    buffer_append(&part->text, text->bytes, text->length);
    if (text->length > 0) { send_events(part->exchange); }
}

/* Takes the rest of a text from its reply. False: it begins with something else than what was sent, because the request
 * was sent again, and another kind of processor has written it. */
static bool take_rest(struct part *part, struct slice text, const char *finish)
{
    struct exchange *exchange = part->exchange;
    size_t taken = part->text.length;
    if (taken > text.length || (taken > 0 && memcmp(part->text.data, text.bytes, taken) != 0)) { return false; }
    buffer_append(&part->text, text.bytes + taken, text.length - taken);
    snprintf(part->finish, sizeof part->finish, "%s", finish);
    if (exchange->open_parts > 1) { return true; }
    exchange->complete = true;
    exchange->calls->counts.succeeded++;
    charge_call(exchange, exchange->tokens + exchange->written_tokens);
    return true;
}

/* Ends an answer that has begun. */
static void break_off(struct exchange *exchange, const struct fault *fault)
{
    if (exchange->complete) { return; }
    exchange->calls->counts.failed[fault->kind]++;
    buffer_string(&exchange->rendered, "data: ");
    dialect_render_fault(exchange->call.dialect, fault, &exchange->rendered);
    buffer_string(&exchange->rendered, "\n\n");
    charge_call(exchange, estimate_tokens(exchange));
    exchange->charged = true;
    cancel_parts(exchange);
    exchange->complete = true;
    send_events(exchange);
}

/* Appends what a part has to send. */
static void put_part(struct part *part, const struct answer *answer, struct buffer *to)
{
    const struct call *call = &part->exchange->call;
    struct chunk chunk = {.index = part->first, .first = !part->opened};
    if (part->text.length > part->sent) {
        chunk.text = (struct slice){part->text.data + part->sent, part->text.length - part->sent};
        call->dialect->put_chunk(call, answer, &chunk, to);
        part->sent = part->text.length;
        part->opened = true;
    }
    if (part->finish[0] != '\0' && !part->closed) {
        chunk = (struct chunk){.index = part->first, .text = {"", 0}, .finish = part->finish, .first = !part->opened};
        call->dialect->put_chunk(call, answer, &chunk, to);
        part->closed = true;
    }
    to->broken = to->broken || !buffer_ok(&part->text);
}

bool calls_put_more(struct calls *calls, uint64_t number, struct buffer *to)
{
    struct exchange *exchange = find_exchange(calls, number);
    if (!exchange) { return false; }
    struct answer answer = describe_answer(exchange);
    for (uint32_t i = 0; i < exchange->part_count; i++) { put_part(&exchange->parts[i], &answer, to); }
    if (!exchange->complete) { return true; }
    if (exchange->rendered.length > 0) {
        buffer_append(to, exchange->rendered.data, exchange->rendered.length);
    } else {
        exchange->call.dialect->put_end(&exchange->call, &answer, to);
    }
    histogram_add(&calls->counts.durations, clock_now_ns() - exchange->began_ns);
    end_exchange(exchange);
    return false;
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

/* Puts the text that a part has written into its element. */
static bool take_text(struct part *part, struct slice text, struct slice info)
{
    struct exchange *exchange = part->exchange;
    uint64_t prompt_tokens, written_tokens, done_at;
    char finish[16];
    (void)json_member_number(info.bytes, info.length, "prompt_tokens", &prompt_tokens);
    (void)json_member_number(info.bytes, info.length, "completion_tokens", &written_tokens);
    (void)json_member_number(info.bytes, info.length, "done_at", &done_at);
    exchange->tokens += prompt_tokens;
    exchange->written_tokens += written_tokens;
    bool whole = json_member_text(info.bytes, info.length, "finish_reason", finish, sizeof finish);
    if (!whole) { return false; }
    if (exchange->call.stream) { return take_rest(part, text, finish); }
    exchange->created_s = done_at / 1000;
    exchange->call.dialect->put_choice(&exchange->call, part->first, text, finish, &part->lists);
    return buffer_ok(&part->lists);
}

static bool take_result(struct part *part, const struct resp_value *fields, struct slice info)
{
    struct exchange *exchange = part->exchange;
    bool texts = exchange->call.task == TASK_GENERATE;
    uint64_t tokens, dim, count;
    char model[sizeof exchange->model];
    (void)json_member_number(info.bytes, info.length, "tokens", &tokens);
    (void)json_member_number(info.bytes, info.length, "count", &count);
    exchange->tokens += tokens;
    (void)json_member_text(info.bytes, info.length, "model", model, sizeof model);
    if (exchange->model[0] == '\0' || exchange->begun) { memcpy(exchange->model, model, sizeof model); }
    /* Vectors of two models cannot be compared: a queue may get another one between two parts. */
    if ((!texts && count != part->count) || strcmp(exchange->model, model) != 0) { return false; }
    if (exchange->cache) { cache_take_info(exchange->cache, part->first, part->count, info); }
    switch (exchange->call.task) {
    case TASK_EMBED:
        (void)json_member_number(info.bytes, info.length, "dim", &dim);
        return take_floats(part, slice_of(resp_field(fields, "embedding")), dim);
    case TASK_RERANK:
        return take_floats(part, slice_of(resp_field(fields, "scores")), 1);
    case TASK_GENERATE:
        return take_text(part, slice_of(resp_field(fields, "text")), info);
    default: {
        const char *name = exchange->call.task == TASK_CLASSIFY ? "labels" : "tokens";
        struct slice lists = slice_of(resp_field(fields, name));
        if (lists.length < 2) { return false; }
        buffer_append(&part->lists, lists.bytes + 1, lists.length - 2);
        return buffer_ok(&part->lists);
    }
    }
}

/* Redis, or something that is read from it, is not there now. */
static bool set_away(struct fault *fault, const struct dialect *dialect, const char *message)
{
    fault_set(fault, dialect, FAULT_UNAVAILABLE, NULL, "%s", message);
    fault->retry_after_ms = CALL_RETRY_MS;
    return false;
}

/* Fills the fault for a request that ended without a reply. */
static void fault_of_status(struct fault *fault, const struct dialect *dialect, enum status status, const char *message)
{
    if (status == STATUS_TIMEOUT) {
        fault_set(fault, dialect, FAULT_EXPIRED, NULL, "no worker has answered in time");
    } else if (status == STATUS_UNAVAILABLE || status == STATUS_DENIED) {
        set_away(fault, dialect, message);
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
        } else {
            bool last = --exchange->open_parts == 0;
            if (exchange->call.stream) {
                send_events(exchange);
            } else if (last) {
                answer_result(exchange);
            }
        }
        return;
    }
    struct slice code = slice_of(resp_field(reply->fields, "code"));
    struct slice message = slice_of(resp_field(reply->fields, "message"));
    if (!resp_equals(status, "error")) {
        code = (struct slice){"cancelled", strlen("cancelled")};
        message = (struct slice){"the request was cancelled", strlen("the request was cancelled")};
    }
    fault_from_reply(&fault, &exchange->call, code, message, info, part->first, part->count);
    answer_fault(exchange, &fault);
}

/* --- From a call to requests -------------------------------------------------------------------------------------- */

static bool is_name(struct slice slice, const char *name)
{
    return name[0] != '\0' && slice_is(slice, name);
}

const struct model_queue *calls_find_queue(const struct calls *calls, struct slice model)
{
    const struct model_queue *queues = calls->options.queues;
    size_t count = calls->options.queue_count;
    if (model.length == 0) { return count == 1 ? &queues[0] : NULL; }
    for (int pass = 0; pass < 2; pass++) {
        for (const struct model_queue *queue = queues; queue < queues + count; queue++) {
            if (is_name(model, queue->name) || is_name(model, producer_facts(queue->producer)->model)) { return queue; }
        }
        model = slice_last_part(model);
    }
    return NULL;
}

bool calls_check_key(const struct calls *calls, const struct dialect *dialect, const struct http_request *request,
                     const struct model_queue *queue, struct key_facts *facts, struct fault *fault)
{
    const struct keys *keys = calls->options.keys;
    int number = queue ? (int)(queue - calls->options.queues) : KEYS_ANY_QUEUE;
    *facts = (struct key_facts){0};
    if (!keys) { return true; }
    switch (keys_judge(keys, http_header(request, "Authorization"), number, facts)) {
    case KEY_GOOD:
        return true;
    case KEY_ELSEWHERE:
        return fault_set(fault, dialect, FAULT_FORBIDDEN, "model", "the key may not use this model");
    case KEY_NOT_READ:
        return set_away(fault, dialect, "Redis is away: no key is known yet");
    default:
        return fault_set(fault, dialect, FAULT_NO_KEY, NULL,
                         "a key is needed that is known here: Authorization: Bearer KEY");
    }
}

/* Fails with the names of the models that the caller may use. */
static bool fail_model(const struct exchange *exchange, const struct http_request *request, struct fault *fault)
{
    const struct calls *calls = exchange->calls;
    const struct dialect *dialect = exchange->call.dialect;
    struct slice model = exchange->call.model;
    struct buffer names = {0};
    struct key_facts facts;
    for (size_t i = 0; i < calls->options.queue_count; i++) {
        const struct model_queue *queue = &calls->options.queues[i];
        if (!calls_check_key(calls, dialect, request, queue, &facts, fault)) { continue; }
        const char *published = producer_facts(queue->producer)->model;
        buffer_format(&names, "%s%s", names.length > 0 ? ", " : "", published[0] != '\0' ? published : queue->name);
    }
    fault_set(fault, dialect, FAULT_NO_MODEL, "model", "%s%.*s%s; there are: %.*s",
              model.length > 0 ? "there is no model '" : "name a model", (int)model.length,
              model.length > 0 ? model.bytes : "", model.length > 0 ? "'" : "", (int)names.length,
              names.length > 0 ? names.data : "");
    buffer_free(&names);
    return false;
}

static bool pick_queue(struct exchange *exchange, const struct http_request *request, struct fault *fault)
{
    const struct call *call = &exchange->call;
    exchange->queue = calls_find_queue(exchange->calls, call->model);
    if (!exchange->queue) { return fail_model(exchange, request, fault); }
    if (!calls_check_key(exchange->calls, call->dialect, request, exchange->queue, &exchange->key, fault)) {
        return false;
    }
    if (exchange->key.texts > 0 && call->text_count > exchange->key.texts) {
        return fault_set(fault, call->dialect, FAULT_TOO_LARGE, NULL, "a call with this key has at most %llu texts",
                         (unsigned long long)exchange->key.texts);
    }
    return true;
}

/* Divides the texts among requests, each within the queue's limits. A text that is too large goes alone, and the queue
 * says so. */
static bool divide_texts(struct exchange *exchange)
{
    const struct producer_facts *facts = producer_facts(exchange->queue->producer);
    uint64_t most = exchange->call.task == TASK_GENERATE ? 1 : facts->max_inputs ? facts->max_inputs : TEXTS_FALLBACK;
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

static void on_added(void *context, const char *name);

static bool send_parts(struct exchange *exchange, struct fault *fault)
{
    const struct wishes *wishes = &exchange->wishes;
    struct request_fields fields;
    struct buffer texts = {0};
    struct err err = {0};
    enum status status = STATUS_OK;
    const struct call *call = &exchange->call;
    for (uint32_t i = 0; i < exchange->part_count && status == STATUS_OK; i++) {
        struct part *part = &exchange->parts[i];
        char id[REQUEST_ID_MAX + 1];
        texts.length = 0;
        put_request_texts(call, part->first, part->count, &texts);
        /* With an Idempotency-Key these may be ids of an earlier call, when the queue had other limits. */
        snprintf(id, sizeof id, exchange->part_count > 1 ? "%s.%u.%u" : "%s", exchange->id, part->first, part->count);
        fill_request_fields(call, wishes, id, &texts, exchange->async, &fields);
        struct producer_order order = {.class = wishes->class,
                                       .id = id,
                                       .kept = exchange->kept,
                                       .slow = call->task == TASK_GENERATE,
                                       .fields = fields.items,
                                       .count = fields.count,
                                       .timeout_ms = wishes->timeout_ms,
                                       .context = part,
                                       .added = exchange->async ? on_added : NULL,
                                       .written = call->stream ? on_written : NULL,
                                       .ended = on_ended};
        status = buffer_ok(&texts) ? producer_send(exchange->queue->producer, &order, &part->request, &err)
                                   : err_set(&err, STATUS_NO_MEMORY, "no memory for the texts of a request");
    }
    buffer_free(&texts);
    exchange->open_parts = exchange->part_count;
    return status == STATUS_OK || fault_set(fault, call->dialect, FAULT_UNAVAILABLE, NULL, "%s", err.message);
}

static void on_cache(void *context, bool hit)
{
    struct exchange *exchange = context;
    struct fault fault;
    *(hit ? &exchange->calls->counts.cache_hits : &exchange->calls->counts.cache_misses) += 1;
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
                                    .bytes = exchange->calls->options.cache_bytes,
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
    struct keys *keys = exchange->calls->options.keys;
    struct err err;
    if (!keys || (exchange->key.requests == 0 && exchange->key.tokens == 0)) { return compute_call(exchange, fault); }
    return keys_ask(keys, number_queue(exchange), &exchange->key, on_turn, exchange, &exchange->ask, &err) ==
               STATUS_OK ||
           fault_set(fault, exchange->call.dialect, FAULT_UNAVAILABLE, NULL, "%s", err.message);
}

/* Makes a job of a call. */
static bool make_job(struct exchange *exchange, struct fault *fault)
{
    const struct call *call = &exchange->call;
    if (exchange->part_count > 1) {
        return fault_set(fault, call->dialect, FAULT_TOO_LARGE, NULL,
                         "a call with Prefer: respond-async has at most %u texts here", exchange->parts[0].count);
    }
    if (call->return_texts > 0) {
        return fault_set(fault, call->dialect, FAULT_BAD_REQUEST, NULL,
                         "a call with Prefer: respond-async cannot return its texts");
    }
    if (call->stream) {
        return fault_set(fault, call->dialect, FAULT_BAD_REQUEST, "stream", "stream: not with Prefer: respond-async");
    }
    if (!exchange->kept && !job_make_id(exchange->id)) {
        return fault_set(fault, call->dialect, FAULT_UNAVAILABLE, NULL, "no random number to be had");
    }
    exchange->kept = true;
    return true;
}

static bool begin_call(struct exchange *exchange, const struct http_request *request, struct fault *fault)
{
    const struct dialect *dialect = exchange->call.dialect = dialect_find(request->path);
    const char *key = http_header(request, "Idempotency-Key"), *prefer = http_header(request, "Prefer");
    exchange->async = prefer && strcasestr(prefer, "respond-async");
    exchange->body = malloc(request->body_length + 1);
    if (!exchange->body) { return fault_set(fault, dialect, FAULT_UNAVAILABLE, NULL, "no memory for the body"); }
    if (request->body_length > 0) { memcpy(exchange->body, request->body, request->body_length); }
    if (!body_parse(dialect, exchange->body, request->body_length, &exchange->call, fault) ||
        !pick_queue(exchange, request, fault) ||
        !wishes_read(&exchange->wishes, &exchange->call, request, exchange->async,
                     exchange->calls->options.keys ? exchange->key.tenant : NULL, fault)) {
        return false;
    }
    const struct producer_facts *facts = producer_facts(exchange->queue->producer);
    if (exchange->call.purpose >= 0 && facts->model[0] == '\0') {
        return set_away(fault, dialect, "the prompts of the model are not known yet: no worker has joined the queue");
    }
    call_choose_prompt(&exchange->call, (struct slice){facts->model_facts, strlen(facts->model_facts)});
    if (key && !job_id_of_key(exchange->wishes.tenant, key, request, exchange->id)) {
        return fault_set(fault, dialect, FAULT_UNAVAILABLE, NULL, "no digest of the Idempotency-Key");
    }
    exchange->kept = key;
    if (!divide_texts(exchange)) { return fault_set(fault, dialect, FAULT_UNAVAILABLE, NULL, "no memory for a call"); }
    if (exchange->async && !make_job(exchange, fault)) { return false; }
    return take_turn(exchange, fault);
}

static struct exchange *make_exchange(struct calls *calls, const struct http_request *request)
{
    struct exchange *exchange = calloc(1, sizeof *exchange);
    if (!exchange) { return NULL; }
    exchange->calls = calls;
    exchange->number = request->number;
    exchange->began_ns = clock_now_ns();
    name_request(calls, request->number, exchange->id);
    return exchange;
}

static enum http_when wait_for_it(struct exchange *exchange)
{
    struct exchange **bucket = &exchange->calls->buckets[exchange->number % BUCKETS];
    exchange->next = *bucket;
    *bucket = exchange;
    exchange->calls->counts.open++;
    return HTTP_LATER;
}

/* Ends an exchange that has not begun to wait. */
static enum http_when answer_now(struct exchange *exchange, struct http_reply *reply)
{
    put_request_id(reply, exchange->id);
    end_exchange(exchange);
    return HTTP_NOW;
}

enum http_when calls_ask(struct calls *calls, const struct http_request *request, struct http_reply *reply)
{
    struct fault fault;
    struct exchange *exchange = make_exchange(calls, request);
    if (!exchange) { return http_error(reply, 503, "no memory for a call"); }
    if (begin_call(exchange, request, &fault)) { return wait_for_it(exchange); }
    calls_refuse(calls, exchange->call.dialect, &fault, reply);
    return answer_now(exchange, reply);
}

void calls_forget(struct calls *calls, uint64_t number)
{
    struct exchange *exchange = find_exchange(calls, number);
    if (!exchange) { return; }
    if (exchange->open_parts > 0) { charge_call(exchange, estimate_tokens(exchange)); } /* it may be computed anyway */
    end_exchange(exchange);
}

/* --- Jobs --------------------------------------------------------------------------------------------------------- */

/* The request is in the queue: its client may go. */
static void on_added(void *context, const char *name)
{
    const struct part *part = context;
    struct exchange *exchange = part->exchange;
    struct http_reply reply = {.status = 202, .type = "application/json"};
    buffer_format(&reply.headers, "Location: /v1/jobs/%s/%s/%s\r\nPreference-Applied: respond-async\r\n",
                  exchange->queue->name, name, exchange->id);
    job_put(exchange->id, "queued", &reply.body);
    charge_call(exchange, estimate_tokens(exchange));
    answer_exchange(exchange, &reply);
}

static void on_job(void *context, const struct producer_reply *reply)
{
    struct part *part = context;
    struct exchange *exchange = part->exchange;
    struct http_reply answer = {.status = 202, .type = "application/json"};
    struct fault fault;
    part->request = NULL;
    if (reply->status == STATUS_TIMEOUT) { /* of the wait, not of the job */
        buffer_string(&answer.headers, "Retry-After: 1\r\n");
        job_put(exchange->id, "queued", &answer.body);
        answer_exchange(exchange, &answer);
        return;
    }
    if (reply->status == STATUS_OK) {
        struct slice info = slice_of(resp_field(reply->fields, "info"));
        bool foreign = exchange->calls->options.keys && !job_is_of_tenant(info, exchange->key.tenant);
        if (foreign || !job_read_call(info, &exchange->call)) {
            fault_set(&fault, NULL, FAULT_NOT_FOUND, NULL, "there is no such job");
            answer_fault(exchange, &fault);
            return;
        }
        part->count = exchange->call.text_count;
    }
    on_ended(context, reply);
}

/* Asks for the reply of a job, and waits for it as long as the client likes. */
static enum status wait_for_job(struct exchange *exchange, const struct job *job, const char *query, struct err *err)
{
    unsigned wait_s = strncmp(query, "wait=", 5) == 0 ? (unsigned)strtoul(query + 5, NULL, 10) : 0;
    exchange->kept = true;
    exchange->parts = calloc(1, sizeof *exchange->parts);
    if (!exchange->parts) { return err_set(err, STATUS_UNAVAILABLE, "no memory for a call"); }
    exchange->part_count = exchange->open_parts = 1;
    exchange->parts[0].exchange = exchange;
    struct producer_order order = {.id = exchange->id,
                                   .name = job->name,
                                   .kept = true,
                                   .timeout_ms = 1000ull * (wait_s < WAIT_MOST_S ? wait_s : WAIT_MOST_S),
                                   .context = exchange->parts,
                                   .ended = on_job};
    return producer_send(exchange->queue->producer, &order, &exchange->parts[0].request, err);
}

static bool ask_job(struct exchange *exchange, const struct http_request *request, struct fault *fault)
{
    const struct calls_options *options = &exchange->calls->options;
    struct job job;
    struct err err;
    enum status status;
    bool known = job_read(request->rest, &job);
    for (size_t i = 0; known && i < options->queue_count; i++) {
        if (is_name(job.queue, options->queues[i].name)) { exchange->queue = &options->queues[i]; }
    }
    if (!exchange->queue) { return fault_set(fault, NULL, FAULT_NOT_FOUND, NULL, "there is no such job"); }
    snprintf(exchange->id, sizeof exchange->id, "%s", job.id);
    if (!calls_check_key(exchange->calls, NULL, request, exchange->queue, &exchange->key, fault)) { return false; }
    exchange->charged = true;
    if (request->method == HTTP_DELETE) { /* of a request with another id or tenant nothing is cancelled */
        const char *tenant = options->keys ? exchange->key.tenant : NULL;
        status = producer_cancel_name(exchange->queue->producer, job.name, job.id, tenant, &err);
    } else {
        status = wait_for_job(exchange, &job, request->query, &err);
    }
    if (status != STATUS_OK) { fault_of_status(fault, NULL, status, err.message); }
    return status == STATUS_OK;
}

enum http_when calls_ask_job(struct calls *calls, const struct http_request *request, struct http_reply *reply)
{
    struct fault fault;
    struct exchange *exchange = make_exchange(calls, request);
    if (!exchange) { return http_error(reply, 503, "no memory for a call"); }
    if (!ask_job(exchange, request, &fault)) {
        calls_refuse(calls, NULL, &fault, reply);
    } else if (request->method != HTTP_DELETE) {
        return wait_for_it(exchange);
    } else {
        reply->status = 202;
        job_put(exchange->id, "cancelling", &reply->body);
    }
    return answer_now(exchange, reply);
}

/* --- Opening and closing ------------------------------------------------------------------------------------------ */

enum status calls_open(const struct calls_options *options, struct calls **out, struct err *err)
{
    struct calls *calls = calloc(1, sizeof *calls);
    if (!calls) { return err_set(err, STATUS_NO_MEMORY, "no memory for the gateway"); }
    *out = calls;
    calls->options = *options;
    calls->counts.durations.bounds = &histogram_times;
    calls->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (calls->done_fd < 0) { return err_set_errno(err, "cannot make an eventfd"); }
    calls->done = event_new(options->base, calls->done_fd, EV_READ | EV_PERSIST, on_rendered, calls);
    if (!calls->done || event_add(calls->done, NULL) != 0) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for the gateway");
    }
    struct thread_pool_options pool = {
        .name = "render", .threads = 1, .capacity = RENDERED_MOST, .wake_fd = calls->done_fd, .work = render_answer};
    return thread_pool_open(&pool, &calls->pool, err);
}

void calls_give_up(struct calls *calls)
{
    struct fault fault;
    for (size_t i = 0; i < BUCKETS; i++) {
        for (struct exchange *exchange = calls->buckets[i], *next; exchange; exchange = next) {
            next = exchange->next;
            set_away(&fault, exchange->call.dialect, "the gateway stops");
            answer_fault(exchange, &fault);
        }
    }
}

void calls_close(struct calls *calls)
{
    if (!calls) { return; }
    for (size_t i = 0; i < BUCKETS; i++) {
        while (calls->buckets[i]) { end_exchange(calls->buckets[i]); }
    }
    for (struct exchange *exchange; calls->pool && (exchange = thread_pool_wait(calls->pool)) != NULL;) {
        free_exchange(exchange);
    }
    thread_pool_close(calls->pool);
    if (calls->done) { event_free(calls->done); }
    if (calls->done_fd >= 0) { close(calls->done_fd); }
    free(calls);
}

const struct gateway_counts *calls_counts(const struct calls *calls)
{
    return &calls->counts;
}
