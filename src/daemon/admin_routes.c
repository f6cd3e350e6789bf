#include "daemon/admin_job.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/duration.h"
#include "base/json.h"
#include "operator/answers.h"
#include "operator/orders.h"
#include "operator/own_id.h"
#include "operator/story.h"

enum {
    TRY_MS = 1000,       /* how long POST /api/try waits for a reply … */
    LOOK_MS = 10,        /* … and how often it looks */
    TRY_TTL_S = 60,      /* of the reply of POST /api/try, and of its request */
    VALUE_BYTES = 16384, /* how much is shown of a field of a dead letter */
    SEARCH_MAX = 100000, /* unfinished requests looked at to find one by its own id: a second or two */
};

/* ---- reading ---- */

static enum status get_queues(struct admin_job *job, struct session *session, struct buffer *to, struct err *err)
{
    struct queue_counts counts;
    struct heartbeats heartbeats;
    bool served = job->queue;
    enum status status = counts_read(session, &counts, &heartbeats, err);
    heartbeats_free(&heartbeats);
    TRY(status);
    buffer_json(to, "{'served':%hhd,'model':%s,'tasks':", served, served ? job->queue->model->name : "");
    buffer_json(to, job->queue ? "[" : "null");
    for (int task = 0; job->queue && task < TASK_COUNT; task++) {
        if (head_does(&job->queue->model->head, (enum request_task)task)) { buffer_json(to, ",%s", task_names[task]); }
    }
    buffer_json(to, job->queue ? "]" : "");
    answer_put_counts(to, session, &counts);
    buffer_json(to, "}");
    return STATUS_OK;
}

static enum status get_workers(struct admin_job *job, struct session *session, struct buffer *to, struct err *err)
{
    (void)job;
    struct heartbeats heartbeats;
    enum status status = heartbeats_read(session, &heartbeats, err);
    if (status == STATUS_OK) { answer_put_workers(to, session, &heartbeats); }
    heartbeats_free(&heartbeats);
    return status;
}

/* A walk through dead letters. */
struct walk {
    struct session *session;
    struct buffer *to;
    uint64_t done, kept;
    char digest[SCRIPT_DIGEST + 1];
};

static enum status list_letter(void *context, const struct letter *letter, struct err *err)
{
    (void)err;
    struct walk *walk = context;
    buffer_json(walk->to, ",");
    answer_put_letter(walk->to, walk->session, letter);
    return STATUS_OK;
}

static enum status show_letter(void *context, const struct letter *letter, struct err *err)
{
    (void)err;
    struct walk *walk = context;
    buffer_json(walk->to, "{'queue':%s,'letter':%s,'age_ms':%" PRIu64 ",'fields':[", walk->session->queue, letter->id,
                letter->age_ms);
    for (size_t i = 0; i + 1 < letter->fields->count; i += 2) {
        const struct resp_value *name = &letter->fields->items[i], *value = name + 1;
        buffer_json(walk->to, ",{'name':%.*s,'value':%.*s,'bytes':%zu}", (int)name->length, session_text(name),
                    (int)(value->length < VALUE_BYTES ? value->length : VALUE_BYTES), session_text(value),
                    value->length);
    }
    buffer_json(walk->to, "]}");
    return STATUS_OK;
}

/* Checks `letter` and `cursor`, where they are given. */
static enum status check_letter(const struct admin_job *job, struct err *err)
{
    const char *letter = job->values[PARAM_letter], *cursor = job->values[PARAM_cursor];
    struct entry_id id;
    if (letter && !entry_id_parse(letter, strlen(letter), &id)) {
        return err_set(err, STATUS_BAD_INPUT, "\"%s\" is not the id of a dead letter", letter);
    }
    if (cursor && !letters_cursor_is(cursor)) {
        return err_set(err, STATUS_BAD_INPUT, "\"%s\" is not a cursor", cursor);
    }
    return STATUS_OK;
}

static enum status get_dead(struct admin_job *job, struct session *session, struct buffer *to, struct err *err)
{
    char next[LETTER_CURSOR];
    const struct letter_filter filter = {.search = job->values[PARAM_search]};
    struct walk walk = {.session = session, .to = to};
    TRY(check_letter(job, err));
    if (job->values[PARAM_letter]) { return letters_one(session, job->values[PARAM_letter], &walk, show_letter, err); }
    buffer_json(to, "{'queue':%s,'letters':[", session->queue);
    TRY(letters_page(session, &filter, true, job->values[PARAM_cursor], next, &walk, list_letter, err));
    buffer_json(to, "],'next':%s}", next);
    return STATUS_OK;
}

/* The facts of a request in an answer of lua/list; its fields come after them. */
enum { NAME, CONSUMER, MS, DELIVERIES, BYTES, FACTS };

static enum status check_listed(const struct resp_value *one, struct err *err)
{
    if (one->type == RESP_ARRAY && one->count >= FACTS) { return STATUS_OK; }
    return err_set(err, STATUS_INTERNAL, "lua/list answered in an unknown shape");
}

/* Writes what the request is, and the end of its object. */
static void put_fields(struct buffer *to, const struct resp_value *one)
{
    const struct resp_value fields = {.type = RESP_ARRAY, .items = one->items + FACTS, .count = one->count - FACTS};
    const struct resp_value *text = resp_field(&fields, "text");
    if (!text) { text = resp_field(&fields, "inputs"); }
    buffer_json(to, ",'bytes':%lld,'id':%s,'tenant':%s,'text':%.*s}", one->items[BYTES].integer,
                session_text(resp_field(&fields, "id")), session_text(resp_field(&fields, "tenant")),
                text ? (int)text->length : 0, session_text(text));
}

static enum status get_later(struct admin_job *job, struct session *session, struct buffer *to, struct err *err)
{
    char digest[SCRIPT_DIGEST + 1], later[SESSION_KEY], trouble[SESSION_KEY], data[SESSION_KEY];
    const char *cursor = job->values[PARAM_cursor] ? job->values[PARAM_cursor] : "";
    if (strspn(cursor, "0123456789") != strlen(cursor) || strlen(cursor) > 12) {
        return err_set(err, STATUS_BAD_INPUT, "\"%.42s\" is not a cursor", cursor);
    }
    const struct resp_value *list;
    TRY(session_load(session, SCRIPT_LIST, digest, err));
    TRY(SESSION_ASK(session, &list, err, "EVALSHA", digest, "3", session_key(session, "later", "", later),
                    session_key(session, "trouble", "", trouble), session_key(session, "later:data", "", data), "later",
                    cursor));
    buffer_json(to, "{'queue':%s,'at':%" PRIu64 ",'requests':[", session->queue, session->redis_ms);
    for (size_t i = 1; i < list->count; i++) {
        TRY(check_listed(&list->items[i], err));
        const struct resp_value *facts = list->items[i].items;
        const char *name = session_text(&facts[NAME]);
        enum request_class class;
        struct entry_id entry;
        bool named = request_name_parse(name, facts[NAME].length, &class, &entry);
        double due = strtod(session_text(&facts[MS]), NULL);
        buffer_json(to, ",{'request':%.*s,'class':%s,'due_at':%" PRIu64, (int)facts[NAME].length, name,
                    named ? class_names[class] : "", due >= 0 && due < 1e15 ? (uint64_t)llround(due) : 0);
        put_fields(to, &list->items[i]);
    }
    buffer_json(to, "],'next':%s}", list->count > 0 ? session_text(&list->items[0]) : "");
    return STATUS_OK;
}

/* Writes one request that waits or runs. */
static enum status put_listed(struct buffer *to, const struct session *session, const struct resp_value *one,
                              struct err *err)
{
    TRY(check_listed(one, err));
    const struct resp_value *facts = one->items;
    enum request_class class;
    struct entry_id submitted;
    bool named = request_name_parse(session_text(&facts[NAME]), facts[NAME].length, &class, &submitted);
    uint64_t since_ms = named ? submitted.ms : 0;
    if (facts[DELIVERIES].integer > 0) { since_ms = session->redis_ms - (uint64_t)facts[MS].integer; }
    buffer_json(to, ",{'request':%s,'worker':", session_text(&facts[NAME]));
    if (facts[CONSUMER].length > 0) {
        buffer_json(to, "%.*s", (int)facts[CONSUMER].length, facts[CONSUMER].bytes); /* a tool may use any bytes */
    } else {
        buffer_json(to, "null");
    }
    buffer_json(to, ",'since':%" PRIu64 ",'deliveries':%lld", since_ms, facts[DELIVERIES].integer);
    put_fields(to, one);
    return STATUS_OK;
}

/* Checks the class, state and cursor of a list. */
static enum status check_list(const struct admin_job *job, enum request_class *class, struct err *err)
{
    const char *state = job->values[PARAM_state], *cursor = job->values[PARAM_cursor];
    struct entry_id id;
    for (*class = 0; class_names[*class] && strcmp(class_names[*class], job->values[PARAM_class]) != 0;) { (*class)++; }
    if (!class_names[*class] || (strcmp(state, "unread") != 0 && strcmp(state, "pending") != 0)) {
        return err_set(err, STATUS_BAD_INPUT, "the class must be high, normal or low, the state unread or pending");
    }
    if (cursor && !entry_id_parse(cursor, strlen(cursor), &id)) {
        return err_set(err, STATUS_BAD_INPUT, "\"%s\" is not a cursor", cursor);
    }
    return STATUS_OK;
}

static enum status get_requests(struct admin_job *job, struct session *session, struct buffer *to, struct err *err)
{
    char digest[SCRIPT_DIGEST + 1], stream[SESSION_KEY], trouble[SESSION_KEY];
    const char *cursor = job->values[PARAM_cursor] ? job->values[PARAM_cursor] : "";
    const struct resp_value *list;
    enum request_class class;
    TRY(check_list(job, &class, err));
    TRY(session_load(session, SCRIPT_LIST, digest, err));
    TRY(SESSION_ASK(session, &list, err, "EVALSHA", digest, "2", session_key(session, class_streams[class], "", stream),
                    session_key(session, "trouble", "", trouble), job->values[PARAM_state], cursor));
    buffer_json(to, "{'queue':%s,'at':%" PRIu64 ",'requests':[", session->queue, session->redis_ms);
    for (size_t i = 1; i < list->count; i++) { TRY(put_listed(to, session, &list->items[i], err)); }
    buffer_json(to, "],'next':%s}", list->count > 0 ? session_text(&list->items[0]) : "");
    return STATUS_OK;
}

static enum status get_request(struct admin_job *job, struct session *session, struct buffer *to, struct err *err)
{
    const struct resp_value *reply;
    struct place place;
    TRY(story_find(session, job->values[PARAM_id], 0, &reply, &place, err));
    if (reply) { return answer_put_reply(to, job->values[PARAM_id], reply, err); }
    if (place.denied) { return err_set(err, STATUS_DENIED, "NOPERM: the daemon may not ask where a request is"); }
    answer_put_place(to, job->values[PARAM_id], &place);
    return STATUS_OK;
}

static enum status get_story(struct admin_job *job, struct session *session, struct buffer *to, struct err *err)
{
    struct story story;
    TRY(story_read(session, job->values[PARAM_id], SEARCH_MAX, true, &story, err));
    answer_put_story(to, session, job->values[PARAM_id], &story);
    return STATUS_OK;
}

static enum http_when answer_history(struct admin_job *job, struct http_reply *reply)
{
    const char *since = job->values[PARAM_since] ? job->values[PARAM_since] : "0";
    if (strspn(since, "0123456789") != strlen(since)) { return http_error(reply, 400, "since is not a time in ms"); }
    if (!job->queue) { return http_error(reply, 404, "only the daemons that serve a queue keep its history"); }
    buffer_json(&reply->body, "{'queue':%s", job->name);
    history_put(job->history, strtoull(since, NULL, 10), &reply->body);
    buffer_string(&reply->body, "}\n");
    return HTTP_NOW;
}

/* ---- changing ---- */

static void put_pause(struct buffer *to, const struct session *session, const struct pause *pause, bool changed)
{
    buffer_json(to, "{'queue':%s", session->queue);
    answer_put_pause(to, pause);
    buffer_json(to, ",'changed':%hhd}", changed);
}

static enum status post_pause(struct admin_job *job, struct session *session, struct buffer *to, struct err *err)
{
    const char *span = job->values[PARAM_for], *why = job->values[PARAM_why];
    uint64_t for_ms = 0;
    bool changed;
    struct pause pause;
    if (span && (!duration_parse(span, &for_ms) || for_ms == 0)) {
        return err_set(err, STATUS_BAD_INPUT, "for must be " DURATION_EXPECTS);
    }
    TRY(order_pause(session, for_ms, why && why[0] ? why : NULL, &pause, &changed, err));
    put_pause(to, session, &pause, changed);
    return STATUS_OK;
}

static enum status post_resume(struct admin_job *job, struct session *session, struct buffer *to, struct err *err)
{
    (void)job;
    bool changed;
    TRY(order_resume(session, &changed, err));
    put_pause(to, session, &(struct pause){0}, changed);
    return STATUS_OK;
}

static enum status post_caps(struct admin_job *job, struct session *session, struct buffer *to, struct err *err)
{
    static const enum param members[CAPS] = {PARAM_high, PARAM_normal, PARAM_low, PARAM_later};
    long long caps[CAPS];
    for (int i = 0; i < CAPS; i++) { caps[i] = job->values[members[i]] ? atoll(job->values[members[i]]) : -1; }
    TRY(order_caps(session, caps, err));
    buffer_json(to, "{'queue':%s,'caps':{", session->queue);
    for (int i = 0; i < CAPS; i++) { buffer_json(to, ",%s:%+lld", cap_names[i], caps[i] > 0 ? caps[i] : -1); }
    buffer_json(to, "}}");
    return STATUS_OK;
}

static enum status post_worker(struct admin_job *job, struct session *session, struct buffer *to, struct err *err)
{
    const char *worker = job->values[PARAM_worker], *order = job->values[PARAM_order];
    struct heartbeats heartbeats;
    if (!order_is(order)) { return err_set(err, STATUS_BAD_INPUT, "the order must be quiet, resume, drain or stop"); }
    enum status status = heartbeats_read(session, &heartbeats, err);
    bool alive = status == STATUS_OK && heartbeats_alive(&heartbeats, worker);
    heartbeats_free(&heartbeats);
    TRY(status);
    if (!alive) { return err_set(err, STATUS_NOT_FOUND, "no such worker is alive on queue %s", session->queue); }
    TRY(order_worker(session, worker, order, err));
    buffer_json(to, "{'queue':%s,'worker':%s,'order':%s}", session->queue, worker, order);
    return STATUS_OK;
}

static enum status post_cancel(struct admin_job *job, struct session *session, struct buffer *to, struct err *err)
{
    struct own_id_found found;
    TRY(own_id_cancel(session, job->values[PARAM_id], SEARCH_MAX, &found, err));
    if (found.count == 0) {
        return err_set(err, STATUS_NOT_FOUND, "no unfinished request has this id%s",
                       found.more ? ", as far as they were searched: there are too many" : "");
    }
    buffer_json(to, "{'queue':%s,'id':%s,'requests':[", session->queue, job->values[PARAM_id]);
    for (size_t i = 0; i < found.count; i++) { buffer_json(to, ",%s", found.names[i]); }
    buffer_json(to, "],'more':%hhd}", found.more);
    return STATUS_OK;
}

static enum status delete_letter(void *context, const struct letter *letter, struct err *err)
{
    struct walk *walk = context;
    bool removed;
    TRY(letter_delete(walk->session, letter->id, &removed, err));
    walk->done += removed;
    return STATUS_OK;
}

static enum status requeue_letter(void *context, const struct letter *letter, struct err *err)
{
    struct walk *walk = context;
    enum requeued requeued;
    char entry[ENTRY_ID_TEXT];
    TRY(letter_requeue(walk->session, letter->id, walk->digest, &requeued, entry, err));
    walk->done += requeued == REQUEUED;
    walk->kept += requeued == REQUEUED_EMPTY || requeued == REQUEUED_CUT;
    return STATUS_OK;
}

static enum status post_dead(struct admin_job *job, struct session *session, struct buffer *to, struct err *err)
{
    bool requeue = strcmp(job->route->path, "/api/dead/requeue") == 0;
    char next[LETTER_CURSOR] = "", **values = job->values;
    const struct letter_filter filter = {.search = values[PARAM_search]};
    struct walk walk = {.session = session};
    if (!values[PARAM_letter] == !values[PARAM_all] ||
        (values[PARAM_letter] && (values[PARAM_search] || values[PARAM_cursor]))) {
        return err_set(err, STATUS_BAD_INPUT, "say which letter, or all (and search, cursor)");
    }
    TRY(check_letter(job, err));
    letter_visit_fn *visit = requeue ? requeue_letter : delete_letter;
    TRY(values[PARAM_letter] ? letters_one(session, values[PARAM_letter], &walk, visit, err)
                             : letters_page(session, &filter, false, values[PARAM_cursor], next, &walk, visit, err));
    buffer_json(to, "{'queue':%s,%s:%" PRIu64, session->queue, requeue ? "requeued" : "deleted", walk.done);
    if (requeue) { buffer_json(to, ",'kept':%" PRIu64, walk.kept); }
    buffer_json(to, ",'next':%s}", next);
    return STATUS_OK;
}

static enum status post_try(struct admin_job *job, struct session *session, struct buffer *to, struct err *err)
{
    char key[SESSION_KEY], name[REQUEST_NAME_MAX], ttl[8], expires[16];
    const struct resp_value *reply;
    snprintf(ttl, sizeof ttl, "%d", TRY_TTL_S);
    snprintf(expires, sizeof expires, "%d000", TRY_TTL_S);
    const char *words[16] = {"XADD",
                             session_key(session, class_streams[CLASS_HIGH], "", key),
                             "*",
                             "encoding",
                             "json",
                             "ttl",
                             ttl,
                             "expires_in",
                             expires,
                             "inputs",
                             job->values[PARAM_inputs]};
    size_t count = 11;
    for (enum param param = PARAM_task; param <= PARAM_query; param++) {
        if (job->values[param]) {
            words[count++] = admin_job_param_name(param);
            words[count++] = job->values[param];
        }
    }
    TRY(session_ask(session, count, words, &reply, err));
    snprintf(name, sizeof name, "%s%s", class_prefixes[CLASS_HIGH], session_text(reply));
    session_key(session, "reply:", name, key);
    uint64_t until_ms = clock_now_ms() + TRY_MS;
    do {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
        TRY(SESSION_ASK(session, &reply, err, "HGETALL", key));
        if (reply->type == RESP_ARRAY && reply->count > 0) { return answer_put_reply(to, name, reply, err); }
    } while (clock_now_ms() < until_ms && !*job->closing);
    job->reply.status = 202;
    answer_put_place(to, name, &(struct place){.status = "queued"});
    return STATUS_OK;
}

/* ---- the routes ---- */

#define P(name) (1u << PARAM_##name)
/* clang-format off */
static const struct route routes[] = {
    {"/api/queues", .all = true, .others = true, .may = P(queue), .handle = get_queues},
    {"/api/workers", .all = true, .may = P(queue), .handle = get_workers},
    {"/api/history", .may = P(queue) | P(since), .answer = answer_history},
    {"/api/dead", .may = P(queue) | P(cursor) | P(search) | P(letter), .handle = get_dead},
    {"/api/later", .may = P(queue) | P(cursor), .handle = get_later},
    {"/api/requests", .may = P(queue) | P(cursor), .must = P(class) | P(state), .handle = get_requests},
    {"/api/request", .may = P(queue), .must = P(id), .handle = get_request},
    {"/api/story", .may = P(queue), .must = P(id), .handle = get_story},
    {"/api/pause", .post = true, .may = P(queue) | P(for) | P(why), .handle = post_pause},
    {"/api/resume", .post = true, .may = P(queue), .handle = post_resume},
    {"/api/caps", .post = true, .may = P(queue) | P(high) | P(normal) | P(low) | P(later), .handle = post_caps},
    {"/api/worker", .post = true, .may = P(queue), .must = P(worker) | P(order), .handle = post_worker},
    {"/api/cancel", .post = true, .may = P(queue), .must = P(id), .handle = post_cancel},
    {"/api/dead/requeue", .post = true, .may = P(queue) | P(letter) | P(all) | P(search) | P(cursor), .handle = post_dead},
    {"/api/dead/delete", .post = true, .may = P(queue) | P(letter) | P(all) | P(search) | P(cursor), .handle = post_dead},
    {"/api/try", .post = true, .may = P(queue) | P(task) | P(query), .must = P(inputs), .handle = post_try},
};
/* clang-format on */

const struct route *admin_route(const char *path)
{
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (strcmp(routes[i].path, path) == 0) { return &routes[i]; }
    }
    return NULL;
}
