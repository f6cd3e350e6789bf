#include "daemon/admin.h"

#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/duration.h"
#include "base/json.h"
#include "base/log.h"
#include "base/utf8.h"
#include "compute/thread_pool.h"
#include "config/config.h"
#include "operator/answers.h"
#include "operator/orders.h"
#include "operator/own_id.h"
#include "operator/queues.h"
#include "operator/story.h"

enum {
    JOBS = 16,              /* requests taken over but not yet answered */
    REDIS_MS = 2000,        /* for each answer of Redis */
    PATIENCE_MS = 8000,     /* a job that has waited longer is not begun: its client is about to give up */
    TRY_MS = 1000,          /* how long POST /api/try waits for a reply … */
    LOOK_MS = 10,           /* … and how often it looks */
    TRY_TTL_S = 60,         /* of the reply of POST /api/try, and of its request */
    ANSWER_BYTES = 4 << 20, /* of any answer */
    VALUE_BYTES = 16384,    /* how much is shown of a field of a dead letter */
    LATER_PAGE = 100,
    SEARCH_MOST = 100000, /* unfinished requests looked at to find one by its own id: a second or two */
};

/* ---- parameters of a query, or members of a body ---- */

enum kind { TEXT, NUMBER, TRUTH, TEXTS };

/* Name, kind (a query has TEXT alone), most bytes of a TEXT. */
/* clang-format off */
#define PARAMETERS(X)                                                                                                  \
    X(queue, TEXT, QUEUE_NAME_MAX) X(letter, TEXT, ENTRY_ID_TEXT) X(cursor, TEXT, LETTER_CURSOR - 1)                   \
    X(search, TEXT, 256) X(id, TEXT, REQUEST_ID_MAX) X(all, TRUTH, 0) X(worker, TEXT, QUEUE_WORKER_MAX)                \
    X(order, TEXT, 16) X(for, TEXT, 16) X(why, TEXT, PAUSE_WHY - 1)                                                    \
    X(high, NUMBER, 0) X(normal, NUMBER, 0) X(low, NUMBER, 0) X(later, NUMBER, 0)                                      \
    X(class, TEXT, 8) X(state, TEXT, 8) X(inputs, TEXTS, 0) X(task, TEXT, 16) X(query, TEXT, HTTP_BODY_BYTES)          \
    X(since, TEXT, 15)

#define MEMBER(name, kind, most) PARAM_##name,
enum param { PARAMETERS(MEMBER) PARAMS };

#define ROW(name, kind, most) {#name, kind, most, #name " is missing"},
static const struct { const char *name; enum kind kind; size_t most; const char *missing; } params[PARAMS] = {PARAMETERS(ROW)};
/* clang-format on */

/* A request that was taken over. */
struct job {
    struct admin *admin;
    const struct route *route; /* NULL: free */
    uint64_t number, since_ms;
    const char *name;             /* the queue's; NULL: all */
    const struct consumer *queue; /* NULL: all, or one that this daemon does not serve */
    char *values[PARAMS];         /* TEXT: decoded, without a NUL in it; else as JSON. NULL: not given */
    int status;
    char *text; /* the answer, [length] */
    size_t length;
};

struct admin {
    struct admin_options options;
    char *token;
    uint64_t wrong, wrong_logged_ms; /* wrong tokens since the log last mentioned them, and when that was */
    struct thread_pool *pool;
    struct job jobs[JOBS];
    atomic_bool closing;
    struct client *client; /* this and the rest belong to the thread */
    struct queue_walk walk;
    struct err walk_failed; /* why the last step of the walk failed; STATUS_OK: it did not */
};

/* Does a job, and writes the answer. Sets job->status unless it is 200. */
typedef enum status handler_fn(struct job *job, struct session *session, FILE *to, struct err *err);

struct route {
    const char *path;
    bool post;
    bool all;           /* without a queue: answers for each queue that the daemon serves, in a list … */
    bool others;        /* … and for each other queue of the Redis */
    unsigned may, must; /* bits of enum param */
    handler_fn *handle;
    int (*answer)(struct job *job, struct buffer *body); /* in place of `handle`, without Redis, in the I/O thread */
};

static bool find_param(const struct route *route, const char *name, size_t length, enum param *out)
{
    for (*out = 0; *out < PARAMS; (*out)++) {
        bool same = strlen(params[*out].name) == length && memcmp(params[*out].name, name, length) == 0;
        if (same && ((route->may | route->must) & 1u << *out)) { return true; }
    }
    return false;
}

/* Keeps a value; returns the reason if it is not allowed. */
static const char *keep(struct job *job, enum param param, const struct buffer *value)
{
    if (!buffer_ok(value)) { return "no memory"; }
    if (job->values[param]) { return "a parameter is there twice"; }
    if (params[param].kind == TEXT && value->length > params[param].most) { return "a parameter is too long"; }
    if (value->length > 0 && (memchr(value->data, '\0', value->length) || !utf8_valid(value->data, value->length))) {
        return "a parameter is not UTF-8, or has a NUL in it";
    }
    job->values[param] = strndup(value->data ? value->data : "", value->length);
    return job->values[param] ? NULL : "no memory";
}

static int digit(char c)
{
    const char *digits = "0123456789abcdef0123456789ABCDEF", *at = c ? strchr(digits, c) : NULL;
    return at ? (int)((at - digits) % 16) : -1;
}

static bool decode_percent(struct buffer *to, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        char c = text[i] == '+' ? ' ' : text[i];
        if (c == '%') {
            int high = length - i > 2 ? digit(text[i + 1]) : -1, low = length - i > 2 ? digit(text[i + 2]) : -1;
            if (high < 0 || low < 0) { return false; }
            c = (char)(high * 16 + low);
            i += 2;
        }
        buffer_append(to, &c, 1);
    }
    return true;
}

/* Reads name=value&name=value. Returns the problem, or NULL. */
static const char *read_query(struct job *job, const char *query)
{
    const char *problem = NULL;
    while (*query && !problem) {
        size_t length = strcspn(query, "&"), name = strcspn(query, "=&");
        struct buffer value = {0};
        enum param param;
        if (name == length) {
            problem = "the query is not name=value&...";
        } else if (!find_param(job->route, query, name, &param)) {
            problem = "the query has a parameter that this path does not know";
        } else if (!decode_percent(&value, query + name + 1, length - name - 1)) {
            problem = "a parameter is not percent-encoded";
        } else {
            problem = keep(job, param, &value);
        }
        buffer_free(&value);
        query += length + (query[length] == '&');
    }
    return problem;
}

/* Reads a value of the body, and checks that it is of the kind that the member has. */
static bool read_value(struct lexer *lexer, enum kind kind, struct buffer *value)
{
    const char *begin = lexer->at;
    size_t length;
    if (kind == TEXT) {
        return lexer_take(lexer, '"') && lexer_string(lexer, &begin, &length) &&
               buffer_json_decode(value, begin, length);
    }
    if (!lexer_value(lexer, 1)) { return false; }
    length = (size_t)(lexer->at - begin);
    buffer_append(value, begin, length);
    return kind == TEXTS   ? begin[0] == '['
           : kind == TRUTH ? length == 4 && memcmp(begin, "true", 4) == 0
                           : length <= 12 && strspn(begin, "0123456789") == length;
}

/* Reads a flat JSON object, which json_valid has checked. Returns the problem, or NULL. */
static const char *read_body(struct job *job, const char *body, size_t length)
{
    struct lexer lexer = {body, body + length};
    const char *name, *problem = NULL;
    if (!json_valid(body, length)) { return "the body is not JSON"; }
    lexer_skip_space(&lexer);
    if (!lexer_take(&lexer, '{')) { return "the body is not a JSON object"; }
    lexer_skip_space(&lexer);
    for (bool more = *lexer.at != '}'; more && !problem; more = lexer_take(&lexer, ',')) {
        struct buffer value = {0};
        enum param param;
        lexer_skip_space(&lexer);
        (void)(lexer_take(&lexer, '"') && lexer_string(&lexer, &name, &length));
        lexer_skip_space(&lexer);
        lexer_take(&lexer, ':');
        lexer_skip_space(&lexer);
        if (!find_param(job->route, name, length, &param)) {
            problem = "the body has a member that this path does not know";
        } else if (!read_value(&lexer, params[param].kind, &value)) {
            problem = "a member of the body is not of its kind";
        } else {
            problem = keep(job, param, &value);
        }
        buffer_free(&value);
        lexer_skip_space(&lexer);
    }
    return problem;
}

/* ---- reading ---- */

static enum status get_queues(struct job *job, struct session *session, FILE *to, struct err *err)
{
    struct queue_counts counts;
    struct heartbeats heartbeats;
    enum status status = counts_read(session, &counts, &heartbeats, err);
    heartbeats_free(&heartbeats);
    TRY(status);
    fprintf(to, "{\"served\":%s,\"model\":", job->queue ? "true" : "false");
    json_put_text(to, job->queue ? job->queue->model->name : "");
    fputs(job->queue ? ",\"tasks\":[" : ",\"tasks\":null", to);
    const char *between = "";
    for (int task = 0; job->queue && task < TASK_COUNT; task++) {
        if (!head_does(&job->queue->model->head, (enum request_task)task)) { continue; }
        fprintf(to, "%s\"%s\"", between, task_names[task]);
        between = ",";
    }
    fputs(job->queue ? "]," : ",", to);
    answer_put_counts(to, session, &counts);
    putc('}', to);
    return STATUS_OK;
}

static enum status get_workers(struct job *job, struct session *session, FILE *to, struct err *err)
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
    FILE *to;
    uint64_t done, kept;
    char digest[SCRIPT_DIGEST + 1];
};

static enum status list_letter(void *context, const struct letter *letter, struct err *err)
{
    (void)err;
    struct walk *walk = context;
    fputs(walk->done++ == 0 ? "" : ",", walk->to);
    answer_put_letter(walk->to, walk->session, letter);
    return STATUS_OK;
}

static enum status show_letter(void *context, const struct letter *letter, struct err *err)
{
    (void)err;
    struct walk *walk = context;
    fprintf(walk->to, "{\"queue\":\"%s\",\"letter\":\"%s\",\"age_ms\":%" PRIu64 ",\"fields\":[", walk->session->queue,
            letter->id, letter->age_ms);
    for (size_t i = 0; i + 1 < letter->fields->count; i += 2) {
        const struct resp_value *name = &letter->fields->items[i], *value = name + 1;
        fputs(i == 0 ? "{\"name\":" : ",{\"name\":", walk->to);
        json_put_string(walk->to, session_text(name), name->length);
        fputs(",\"value\":", walk->to);
        json_put_string(walk->to, session_text(value), value->length < VALUE_BYTES ? value->length : VALUE_BYTES);
        fprintf(walk->to, ",\"bytes\":%zu}", value->length);
    }
    fputs("]}", walk->to);
    return STATUS_OK;
}

static void put_next(FILE *to, const char *next)
{
    fputs(",\"next\":", to);
    json_put_text(to, next);
}

/* Checks `letter` and `cursor`, where they are given. */
static enum status check_letter(const struct job *job, struct err *err)
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

static enum status get_dead(struct job *job, struct session *session, FILE *to, struct err *err)
{
    char next[LETTER_CURSOR];
    const struct letter_filter filter = {.search = job->values[PARAM_search]};
    struct walk walk = {.session = session, .to = to};
    TRY(check_letter(job, err));
    if (job->values[PARAM_letter]) { return letters_one(session, job->values[PARAM_letter], &walk, show_letter, err); }
    fprintf(to, "{\"queue\":\"%s\",\"letters\":[", session->queue);
    TRY(letters_page(session, &filter, true, job->values[PARAM_cursor], next, &walk, list_letter, err));
    putc(']', to);
    put_next(to, next);
    putc('}', to);
    return STATUS_OK;
}

static enum status get_later(struct job *job, struct session *session, FILE *to, struct err *err)
{
    char key[SESSION_KEY], first[24], last[24], next[24] = "";
    const char *cursor = job->values[PARAM_cursor] ? job->values[PARAM_cursor] : "0";
    if (strspn(cursor, "0123456789") != strlen(cursor) || strlen(cursor) > 12) {
        return err_set(err, STATUS_BAD_INPUT, "\"%.42s\" is not a cursor", cursor);
    }
    unsigned long from = strtoul(cursor, NULL, 10);
    const struct resp_value *page;
    snprintf(first, sizeof first, "%lu", from);
    snprintf(last, sizeof last, "%lu", from + LATER_PAGE - 1);
    TRY(SESSION_ASK(session, &page, err, "ZRANGE", session_key(session, "later", "", key), first, last, "WITHSCORES"));
    if (page->count == 2 * LATER_PAGE) { snprintf(next, sizeof next, "%lu", from + LATER_PAGE); }
    fprintf(to, "{\"queue\":\"%s\",\"at\":%" PRIu64 ",\"requests\":[", session->queue, session->redis_ms);
    for (size_t i = 0; i + 1 < page->count; i += 2) {
        const char *name = session_text(&page->items[i]);
        enum request_class class;
        struct entry_id entry;
        bool named = request_name_parse(name, page->items[i].length, &class, &entry);
        fputs(i == 0 ? "{\"request\":" : ",{\"request\":", to);
        json_put_string(to, name, page->items[i].length);
        fputs(",\"class\":", to);
        json_put_text(to, named ? class_names[class] : "");
        double due = strtod(session_text(&page->items[i + 1]), NULL);
        fprintf(to, ",\"due_at\":%.0f}", due >= 0 && due < 1e15 ? due : 0);
    }
    putc(']', to);
    put_next(to, next);
    putc('}', to);
    return STATUS_OK;
}

/* Writes one request of lua/list. */
static enum status put_listed(FILE *to, const struct session *session, const struct resp_value *one, struct err *err)
{
    enum { NAME, CONSUMER, IDLE, DELIVERIES, BYTES, FACTS };
    if (one->type != RESP_ARRAY || one->count < FACTS) {
        return err_set(err, STATUS_INTERNAL, "lua/list answered in an unknown shape");
    }
    const struct resp_value *facts = one->items;
    const struct resp_value fields = {.type = RESP_ARRAY, .items = one->items + FACTS, .count = one->count - FACTS};
    const struct resp_value *text = resp_field(&fields, "text");
    enum request_class class;
    struct entry_id submitted;
    bool named = request_name_parse(session_text(&facts[NAME]), facts[NAME].length, &class, &submitted);
    uint64_t since_ms = named ? submitted.ms : 0;
    if (facts[DELIVERIES].integer > 0) { since_ms = session->redis_ms - (uint64_t)facts[IDLE].integer; }
    if (!text) { text = resp_field(&fields, "inputs"); }
    fputs("{\"request\":", to);
    json_put_text(to, session_text(&facts[NAME]));
    fputs(",\"worker\":", to);
    if (facts[CONSUMER].length > 0) {
        json_put_string(to, facts[CONSUMER].bytes, facts[CONSUMER].length); /* a tool may use any bytes as its name */
    } else {
        fputs("null", to);
    }
    fprintf(to, ",\"since\":%" PRIu64 ",\"deliveries\":%lld,\"bytes\":%lld,\"id\":", since_ms,
            facts[DELIVERIES].integer, facts[BYTES].integer);
    json_put_text(to, session_text(resp_field(&fields, "id")));
    fputs(",\"tenant\":", to);
    json_put_text(to, session_text(resp_field(&fields, "tenant")));
    fputs(",\"text\":", to);
    json_put_string(to, session_text(text), text ? text->length : 0);
    putc('}', to);
    return STATUS_OK;
}

/* Checks the class, state and cursor of a list. */
static enum status check_list(const struct job *job, enum request_class *class, struct err *err)
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

static enum status get_requests(struct job *job, struct session *session, FILE *to, struct err *err)
{
    char digest[SCRIPT_DIGEST + 1], stream[SESSION_KEY], trouble[SESSION_KEY];
    const char *cursor = job->values[PARAM_cursor] ? job->values[PARAM_cursor] : "";
    const struct resp_value *list;
    enum request_class class;
    TRY(check_list(job, &class, err));
    TRY(session_load(session, SCRIPT_LIST, digest, err));
    TRY(SESSION_ASK(session, &list, err, "EVALSHA", digest, "2", session_key(session, class_streams[class], "", stream),
                    session_key(session, "trouble", "", trouble), job->values[PARAM_state], cursor));
    fprintf(to, "{\"queue\":\"%s\",\"at\":%" PRIu64 ",\"requests\":[", session->queue, session->redis_ms);
    for (size_t i = 1; i < list->count; i++) {
        fputs(i == 1 ? "" : ",", to);
        TRY(put_listed(to, session, &list->items[i], err));
    }
    putc(']', to);
    put_next(to, list->count > 0 ? session_text(&list->items[0]) : "");
    putc('}', to);
    return STATUS_OK;
}

static enum status get_request(struct job *job, struct session *session, FILE *to, struct err *err)
{
    const struct resp_value *reply;
    struct place place;
    TRY(story_find(session, job->values[PARAM_id], 0, &reply, &place, err));
    if (reply) { return answer_put_reply(to, job->values[PARAM_id], reply, err); }
    if (place.denied) { return err_set(err, STATUS_DENIED, "NOPERM: the daemon may not ask where a request is"); }
    answer_put_place(to, job->values[PARAM_id], &place);
    return STATUS_OK;
}

static enum status get_story(struct job *job, struct session *session, FILE *to, struct err *err)
{
    struct story story;
    TRY(story_read(session, job->values[PARAM_id], SEARCH_MOST, true, &story, err));
    answer_put_story(to, session, job->values[PARAM_id], &story);
    return STATUS_OK;
}

static int answer_history(struct job *job, struct buffer *body)
{
    const char *since = job->values[PARAM_since] ? job->values[PARAM_since] : "0";
    if (strspn(since, "0123456789") != strlen(since)) { return http_error(body, 400, "since is not a time in ms"); }
    if (!job->queue) { return http_error(body, 404, "only the daemons that serve a queue keep its history"); }
    buffer_format(body, "{\"queue\":\"%s\",", job->name);
    history_put(&job->admin->options.histories[job->queue->number], strtoull(since, NULL, 10), body);
    buffer_string(body, "}\n");
    return 200;
}

/* ---- changing ---- */

static void put_pause(FILE *to, const struct session *session, const struct pause *pause, bool changed)
{
    fprintf(to, "{\"queue\":\"%s\",", session->queue);
    answer_put_pause(to, pause);
    fprintf(to, ",\"changed\":%s}", changed ? "true" : "false");
}

static enum status post_pause(struct job *job, struct session *session, FILE *to, struct err *err)
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

static enum status post_resume(struct job *job, struct session *session, FILE *to, struct err *err)
{
    (void)job;
    bool changed;
    TRY(order_resume(session, &changed, err));
    put_pause(to, session, &(struct pause){0}, changed);
    return STATUS_OK;
}

static enum status post_caps(struct job *job, struct session *session, FILE *to, struct err *err)
{
    static const enum param members[CAPS] = {PARAM_high, PARAM_normal, PARAM_low, PARAM_later};
    long long caps[CAPS];
    for (int i = 0; i < CAPS; i++) { caps[i] = job->values[members[i]] ? atoll(job->values[members[i]]) : -1; }
    TRY(order_caps(session, caps, err));
    fprintf(to, "{\"queue\":\"%s\",\"caps\":{", session->queue);
    for (int i = 0; i < CAPS; i++) {
        fprintf(to, "%s\"%s\":", i == 0 ? "" : ",", cap_names[i]);
        fprintf(to, caps[i] > 0 ? "%lld" : "null", caps[i]);
    }
    fputs("}}", to);
    return STATUS_OK;
}

static enum status post_worker(struct job *job, struct session *session, FILE *to, struct err *err)
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
    fprintf(to, "{\"queue\":\"%s\",\"worker\":", session->queue);
    json_put_text(to, worker);
    fprintf(to, ",\"order\":\"%s\"}", order);
    return STATUS_OK;
}

static enum status post_cancel(struct job *job, struct session *session, FILE *to, struct err *err)
{
    struct own_id_found found;
    TRY(own_id_cancel(session, job->values[PARAM_id], SEARCH_MOST, &found, err));
    if (found.count == 0) {
        return err_set(err, STATUS_NOT_FOUND, "no unfinished request has this id%s",
                       found.more ? ", as far as they were searched: there are too many" : "");
    }
    fprintf(to, "{\"queue\":\"%s\",\"id\":", session->queue);
    json_put_text(to, job->values[PARAM_id]);
    for (size_t i = 0; i < found.count; i++) {
        fprintf(to, "%s\"%s\"", i == 0 ? ",\"requests\":[" : ",", found.names[i]);
    }
    fprintf(to, "],\"more\":%s}", found.more ? "true" : "false");
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

static enum status post_dead(struct job *job, struct session *session, FILE *to, struct err *err)
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
    fprintf(to, "{\"queue\":\"%s\",\"%s\":%" PRIu64, session->queue, requeue ? "requeued" : "deleted", walk.done);
    if (requeue) { fprintf(to, ",\"kept\":%" PRIu64, walk.kept); }
    put_next(to, next);
    putc('}', to);
    return STATUS_OK;
}

static enum status post_try(struct job *job, struct session *session, FILE *to, struct err *err)
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
            words[count++] = params[param].name;
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
    } while (clock_now_ms() < until_ms && !job->admin->closing);
    job->status = 202;
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

static const struct route *find_route(const char *path)
{
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (strcmp(routes[i].path, path) == 0) { return &routes[i]; }
    }
    return NULL;
}

/* ---- the thread ---- */

/* Connects, unless the connection of the last job still works. This is certain before anything is changed. */
static enum status connect_to_redis(struct admin *admin, struct session *session, struct err *err)
{
    const struct resp_value *reply;
    for (;;) {
        bool fresh = !admin->client;
        if (fresh) { TRY(client_open(admin->options.address, REDIS_MS, &admin->client, err)); }
        session->client = admin->client;
        if (fresh) { TRY(SESSION_ASK(session, &reply, err, "CLIENT", "SETNAME", "sluice-admin")); }
        enum status status = session_ask_time(session, err);
        if (status == STATUS_OK || fresh) { return status; }
        client_close(admin->client);
        admin->client = NULL;
    }
}

/* If Redis refused because a right is missing, adds how to grant it. */
static enum status add_remedy(const struct job *job, const char *queue, bool served, struct err *err)
{
    const char *user = job->admin->options.address->user ? job->admin->options.address->user : "default";
    size_t length = strlen(err->message), left = sizeof err->message - length;
    if (err->status != STATUS_DENIED || !strstr(err->message, "NOPERM")) { return err->status; }
    if (served) {
        snprintf(
            err->message + length, left,
            ". The daemon's login in Redis, %s, lacks the dashboard's rights: make-users.sh --dashboard gives them "
            "for good; at once: redis-cli ACL SETUSER %s '(~sluice:{%s}:paused +set +del)' "
            "'(%%R~sluice:{%s}:later +zscore)' +scan",
            user, user, queue, queue);
    } else {
        snprintf(
            err->message + length, left,
            ". The daemon's login in Redis, %s, is not for queue %s: use the dashboard of a daemon that serves it, or "
            "the sluice commands with --queue %s and its operator's login",
            user, queue, queue);
    }
    return err->status;
}

static bool is_lost(enum status status)
{
    return status == STATUS_UNAVAILABLE || status == STATUS_TIMEOUT || status == STATUS_NO_MEMORY;
}

/* Writes the queues of this Redis that the daemon does not serve, with an error in place of the counts if one cannot be
 * read; then why the list may leave some out. */
static enum status handle_others(struct job *job, struct session *session, FILE *to, struct err *err)
{
    struct admin *admin = job->admin;
    if (clock_now_ms() >= admin->walk.rests_until_ms) {
        admin->walk_failed = (struct err){0};
        enum status status = queues_walk(session, &admin->walk, &admin->walk_failed);
        if (is_lost(status)) { return err_set(err, status, "%s", admin->walk_failed.message); }
    }
    const struct queue_names *names = queues_names(&admin->walk);
    for (size_t i = 0; i < names->count; i++) {
        bool served = false;
        for (size_t own = 0; own < admin->options.queue_count; own++) {
            served = served || strcmp(admin->options.consumers[own].config->queue, names->items[i]) == 0;
        }
        if (served) { continue; }
        session->queue = names->items[i];
        job->queue = NULL;
        putc(',', to);
        enum status status = job->route->handle(job, session, to, err);
        if (is_lost(status)) { return status; }
        if (status == STATUS_OK) { continue; }
        (void)add_remedy(job, session->queue, false, err);
        fprintf(to, "{\"served\":false,\"queue\":\"%s\",\"error\":", session->queue);
        json_put_text(to, err->message);
        putc('}', to);
    }
    fputs("],\"left_out\":", to);
    session->queue = admin->options.consumers[0].config->queue;
    if (admin->walk_failed.status != STATUS_OK) {
        struct err why = admin->walk_failed;
        (void)add_remedy(job, session->queue, true, &why);
        json_put_text(to, why.message);
    } else {
        json_put_text(to, !admin->walk.whole ? "the search for other queues goes on"
                          : names->more      ? "there are more queues; these are the first by name"
                                             : "");
    }
    return STATUS_OK;
}

static enum status handle(struct job *job, FILE *to, struct err *err)
{
    struct admin *admin = job->admin;
    struct session session = {0};
    TRY(connect_to_redis(admin, &session, err));
    if (job->name) {
        bool exists = true;
        session.queue = job->name;
        enum status status = job->queue ? STATUS_OK : queues_exists(&session, &exists, err);
        if (!exists && status == STATUS_OK) {
            return err_set(err, STATUS_NOT_FOUND, "this Redis has no queue %s", job->name);
        }
        fputs(job->route->all ? "{\"queues\":[" : "", to);
        if (status == STATUS_OK) { status = job->route->handle(job, &session, to, err); }
        fputs(job->route->all ? "]}" : "", to);
        return status == STATUS_OK ? status : add_remedy(job, job->name, job->queue != NULL, err);
    }
    fputs("{\"queues\":[", to);
    for (size_t i = 0; i < admin->options.queue_count; i++) {
        job->queue = &admin->options.consumers[i];
        session.queue = job->queue->config->queue;
        fputs(i == 0 ? "" : ",", to);
        enum status status = job->route->handle(job, &session, to, err);
        if (status != STATUS_OK) { return add_remedy(job, session.queue, true, err); }
    }
    if (job->route->others) {
        TRY(handle_others(job, &session, to, err));
    } else {
        putc(']', to);
    }
    putc('}', to);
    return STATUS_OK;
}

static int status_of(enum status status)
{
    return status == STATUS_BAD_INPUT                                                               ? 400
           : status == STATUS_DENIED                                                                ? 403
           : status == STATUS_NOT_FOUND                                                             ? 404
           : status == STATUS_UNAVAILABLE || status == STATUS_TIMEOUT || status == STATUS_NO_MEMORY ? 503
                                                                                                    : 500;
}

static void work(void *context, void *item)
{
    (void)context;
    struct job *job = item;
    struct err err = {0};
    enum status status = STATUS_UNAVAILABLE;
    FILE *to = open_memstream(&job->text, &job->length);
    job->status = 200;
    if (!to || job->admin->closing || clock_now_ms() > job->since_ms + PATIENCE_MS) {
        (void)err_set(&err, status, "too much is asked at once");
    } else {
        status = handle(job, to, &err);
        bool usable =
            status == STATUS_OK || status == STATUS_BAD_INPUT || status == STATUS_NOT_FOUND || status == STATUS_DENIED;
        if (!usable) {
            client_close(job->admin->client);
            job->admin->client = NULL;
        }
    }
    if (status == STATUS_OK) { putc('\n', to); }
    bool written = to && fclose(to) == 0, large = written && status == STATUS_OK && job->length > ANSWER_BYTES;
    if (status == STATUS_OK && written && !large) { return; }
    job->status = large ? 413 : status == STATUS_OK ? 503 : status_of(status);
    free(job->text);
    struct buffer body = {0};
    http_error(&body, job->status,
               large                 ? "the answer is larger than 4 MiB"
               : status == STATUS_OK ? "no memory"
                                     : err.message);
    if (!buffer_ok(&body)) { buffer_free(&body); }
    job->text = body.data;
    job->length = body.length;
}

/* ---- the I/O thread ---- */

static void job_free(struct job *job)
{
    for (int i = 0; i < PARAMS; i++) { free(job->values[i]); }
    free(job->text);
    *job = (struct job){0};
}

/* Logs at most once a second, so that guessing tokens does not fill the log. */
static void log_wrong_token(struct admin *admin, const struct http_request *request)
{
    uint64_t now_ms = clock_now_ms();
    admin->wrong++;
    if (admin->wrong_logged_ms > 0 && now_ms - admin->wrong_logged_ms < 1000) { return; }
    log_warn("wrong_token", log_str("peer", request->peer), log_str("path", request->path),
             log_int("times", (int64_t)admin->wrong));
    admin->wrong = 0;
    admin->wrong_logged_ms = now_ms;
}

/* Returns 0 if the request is allowed, or the status and why not. */
static int check_token(struct admin *admin, const struct route *route, const struct http_request *request,
                       const char **error)
{
    static const char scheme[] = "Bearer ";
    const char *authorization = request->authorization;
    bool needed = route->post || !admin->options.open;
    if (!authorization && !needed) { return 0; }
    *error = "no token is configured: http_token_file names the file whose first line is it";
    if (!admin->token) { return 403; }
    *error = "the token is missing: Authorization: Bearer TOKEN";
    if (!authorization || strncasecmp(authorization, scheme, sizeof scheme - 1) != 0) { return 401; }
    *error = "the token is wrong";
    const char *token = authorization + sizeof scheme - 1;
    size_t length = strlen(admin->token);
    if (strlen(token) == length && CRYPTO_memcmp(token, admin->token, length) == 0) { return 0; }
    log_wrong_token(admin, request);
    return 401;
}

static int find_queue(struct job *job, const char **error)
{
    const struct admin_options *options = &job->admin->options;
    job->name = job->values[PARAM_queue];
    for (size_t i = 0; job->name && i < options->queue_count && !job->queue; i++) {
        if (strcmp(options->consumers[i].config->queue, job->name) == 0) { job->queue = &options->consumers[i]; }
    }
    *error = "a queue's name is 1 to 64 of a-z 0-9 _ . -";
    if (job->name) { return job->queue || queue_name_is(job->name, strlen(job->name)) ? 0 : 404; }
    *error = "this daemon serves several queues: say which";
    if (job->route->all) { return 0; }
    if (options->queue_count > 1) { return 400; }
    job->queue = options->consumers;
    job->name = job->queue->config->queue;
    return 0;
}

/* Reads the parameters into a job. Returns 0, or the status and why not. */
static int read_job(struct job *job, const struct http_request *request, const char **error)
{
    *error = request->post ? read_body(job, request->body, request->body_length) : read_query(job, request->query);
    if (*error) { return 400; }
    *error = "a POST has no query";
    if (request->post && request->query[0] != '\0') { return 400; }
    for (int i = 0; i < PARAMS; i++) {
        *error = params[i].missing;
        if ((job->route->must & 1u << i) && !job->values[i]) { return 400; }
    }
    return find_queue(job, error);
}

int admin_answer(struct admin *admin, const struct http_request *request, struct buffer *body)
{
    const struct route *route = find_route(request->path);
    const char *error;
    if (!route) { return http_error(body, 404, "there is no such path"); }
    if (route->post != request->post) { return http_error(body, 405, route->post ? "POST it" : "GET it"); }
    int status = check_token(admin, route, request, &error);
    if (status != 0) { return http_error(body, status, error); }
    struct job *job = admin->jobs;
    while (job < admin->jobs + JOBS && job->route) { job++; }
    if (job == admin->jobs + JOBS) { return http_error(body, 503, "too much is asked at once"); }
    *job = (struct job){.admin = admin, .route = route, .number = request->number, .since_ms = clock_now_ms()};
    status = read_job(job, request, &error);
    if (status != 0) {
        job_free(job);
        return http_error(body, status, error);
    }
    if (route->answer) {
        status = route->answer(job, body);
        job_free(job);
        return status;
    }
    thread_pool_put(admin->pool, job);
    return HTTP_LATER;
}

void admin_take(struct admin *admin, struct http *http)
{
    struct job *job;
    while (admin && (job = thread_pool_take(admin->pool))) {
        if (job->route->post) {
            char **values = job->values, *what = values[PARAM_letter] ? values[PARAM_letter] : values[PARAM_worker];
            if (!what) { what = values[PARAM_id]; }
            log_info("admin", log_str("path", job->route->path), log_str("queue", job->name), log_str("what", what),
                     log_int("status", job->status));
        }
        struct buffer body = {.data = job->text, .length = job->text ? job->length : 0, .broken = !job->text};
        http_answer(http, job->number, job->status, &body);
        job_free(job);
    }
}

/* ---- opening and closing ---- */

enum status admin_open(const struct admin_options *options, struct admin **out, struct err *err)
{
    struct admin *admin = calloc(1, sizeof *admin);
    struct thread_pool_options pool = {
        .name = "admin", .threads = 1, .capacity = JOBS, .wake_fd = options->wake_fd, .work = work};
    if (!admin) { return err_set(err, STATUS_NO_MEMORY, "no memory for the admin API"); }
    admin->options = *options;
    admin->token = options->token ? strdup(options->token) : NULL;
    enum status status = options->token && !admin->token ? err_set(err, STATUS_NO_MEMORY, "no memory for the token")
                                                         : thread_pool_open(&pool, &admin->pool, err);
    if (status != STATUS_OK) {
        free(admin->token);
        free(admin);
        return status;
    }
    *out = admin;
    return STATUS_OK;
}

void admin_close(struct admin *admin)
{
    if (!admin) { return; }
    admin->closing = true;
    thread_pool_close(admin->pool);
    for (size_t i = 0; i < JOBS; i++) { job_free(&admin->jobs[i]); }
    client_close(admin->client);
    if (admin->token) { explicit_bzero(admin->token, strlen(admin->token)); }
    free(admin->token);
    free(admin);
}
