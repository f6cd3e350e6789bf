#include "redis/queue_settle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "redis/queue_cancel.h"
#include "redis/queue_ends.h"
#include "redis/queue_read.h"
#include "redis/queue_tokens.h"
#include "schedule/reply.h"

enum {
    STAGE_BYTES = 1024,
    STAGE_PAUSE_MS = 10000,
    RUNS_MAX = 8,
    RUN_MIN = 4, /* entries; XDEL of fewer costs less than the commands for a run */
};

/* --- The words of the scripts ------------------------------------------------------------------------------------- */

static const char *stage_key(const struct queue *queue, const struct request *request, char key[QUEUE_KEY_MAX])
{
    char entry[ENTRY_ID_TEXT];
    entry_id_format(request->identity.entry, entry);
    return queue_key(queue, "stage:", entry, key);
}

/* "error": it was not started, so any holder may send this. "fail": it was started, so only its owner may. */
static const char *kind_of(const struct request *request)
{
    return request->lifetime.outcome == OUTCOME_DONE   ? "done"
           : request->lifetime.outcome == OUTCOME_DEAD ? "dead"
           : request->lifetime.outcome == OUTCOME_GONE ? "gone"
           : request->lifetime.started_ns              ? "fail"
                                                       : "error";
}

/* Adds the members of a reply's `info` that the worker knows, each after a comma. */
static void add_info(const struct queue *queue, struct command *command, const struct request *request)
{
    struct buffer *info = &queue->settling->info;
    info->length = 0;
    if (request) {
        reply_put_info(info, request);
    } else { /* those that all share */
        reply_put_model_info(info, queue->options.model_name, queue->options.revision, queue->options.precision,
                             queue->options.engine);
    }
    command->buffer.broken |= info->broken;
    command_bytes(command, info->data, info->length);
    if (info->broken) { buffer_free(info); }
}

/* Adds a reply's fields after their number. */
static void add_fields(struct command *command, const struct request *request)
{
    if (request->output.staged) {
        command_text(command, "0");
    } else if (request->lifetime.outcome == OUTCOME_DONE) {
        command_text(command, "2");
        command_text(command, reply_field(request));
        command_bytes(command, request->output.reply.data, request->output.reply.length);
    } else {
        command_text(command, "4");
        command_pair(command, "code", reply_code_name(request->retry.code));
        command_pair(command, "message", request->retry.message);
    }
}

/* Returns whether lua/settle has nothing to look up but whether the entry is still pending: the reply key is the
 * request's alone, because its name is no usable `id`. An empty text would look like a staged result. */
static bool is_plain(const struct request *request)
{
    const char *name = request->identity.name;
    return request->lifetime.outcome == OUTCOME_DONE && request->output.reply.length > 0 && !request->output.notify &&
           !request->output.results[0] && !request->output.stream[0] && !request->output.into &&
           !request->identity.borrowed_name && request->identity.first_ms == request->identity.entry.ms &&
           strcmp(request->identity.id, name) == 0 && !request_id_usable(name, strlen(name));
}

/* Returns whether a plain request is one of those that share the TTL and the field of `first`. */
static bool is_like(const struct request *request, const struct request *first)
{
    return request->output.ttl_s == first->output.ttl_s && reply_field(request) == reply_field(first);
}

static uint64_t computed_ms(const struct request *request, uint64_t now_ns)
{
    return request->lifetime.started_ns ? (now_ns - request->lifetime.started_ns) / NS_PER_MS : 0;
}

static void add_plain(const struct queue *queue, struct command *command, const struct request *request,
                      uint64_t now_ns)
{
    bool staged = request->output.staged;
    queue_add_entry_id(command, request->identity.entry);
    command_number(command, request->identity.first_ms + computed_ms(request, now_ns));
    add_info(queue, command, request);
    command_bytes(command, request->output.reply.data, staged ? 0 : request->output.reply.length);
}

static void add_settled(const struct queue *queue, struct command *command, const struct request *request,
                        uint64_t now_ns)
{
    queue_add_entry_id(command, request->identity.entry);
    command_text(command, kind_of(request));
    command_text(command, request->identity.name);
    command_number(command, request->output.ttl_s * 1000ull);
    command_text(command, request->output.results[0] ? "s" : request->output.notify ? "1" : "0");
    command_text(command, request->identity.borrowed_name ? "1" : "0");
    if (request->output.stream[0] && request->lifetime.outcome == OUTCOME_DONE) {
        command_number(command, token_stream_count(request->writing->stream));
    } else {
        command_text(command, request->output.stream[0] ? "-" : "");
    }
    command_number(command, request->identity.first_ms);
    command_number(command, computed_ms(request, now_ns));
    add_info(queue, command, request);
    add_fields(command, request);
}

static bool goes_into(const struct request *request)
{
    return request->output.into && request->lifetime.outcome == OUTCOME_DONE;
}

/* Adds the vectors that also go into hashes of their producers: how many, and for each its number, key and field. */
static void add_into(const struct request_list *requests, struct command *command)
{
    size_t count = 0, number = 0;
    for (const struct request *request = requests->first; request; request = request->next) {
        count += goes_into(request);
    }
    command_number(command, count);
    for (const struct request *request = requests->first; request; request = request->next) {
        number++;
        if (!goes_into(request)) { continue; }
        command_number(command, number);
        command_bytes(command, request->output.into, request->output.into_bytes);
        command_bytes(command, request->output.into_field, request->output.into_field_bytes);
    }
}

/* Adds the lengths of the runs with which the plain requests begin, up to a short one, after their number. */
static void add_runs(const struct queue *queue, const struct request *request, struct command *command)
{
    size_t lengths[RUNS_MAX] = {0}, runs = 0, long_runs = 0;
    uint64_t place = 0;
    for (; request && request->output.plain && queue_read_trusts(queue, request); request = request->next) {
        if (request->identity.place != place + 1 && runs++ == RUNS_MAX) { break; }
        lengths[runs - 1]++;
        place = request->identity.place;
    }
    while (long_runs < RUNS_MAX && lengths[long_runs] >= RUN_MIN) { long_runs++; }
    command_number(command, long_runs);
    for (size_t i = 0; i < long_runs; i++) { command_number(command, lengths[i]); }
}

/* Adds the number of plain requests, which come first, and what they have in common. */
static void add_plain_number(const struct queue *queue, const struct request_list *requests, struct command *command)
{
    const struct request *first = requests->first;
    size_t plain = 0;
    for (const struct request *request = first; request; request = request->next) { plain += request->output.plain; }
    command_number(command, plain);
    command_number(command, first->output.ttl_s * 1000ull);
    command_text(command, reply_field(first));
    add_runs(queue, first, command);
}

static void begin_settle(const struct queue *queue, const struct request_list *requests, struct command *command)
{
    enum request_class class = requests->first->identity.class;
    struct entry_id lowest = requests->first->identity.entry, highest = lowest;
    char key[QUEUE_KEY_MAX];
    size_t keys = 4;
    for (const struct request *request = requests->first; request; request = request->next) {
        struct entry_id id = request->identity.entry;
        keys += 1 + (request->output.notify || request->output.results[0]) + request->output.staged +
                (request->output.stream[0] ? 2 : 0);
        if (entry_id_compare(id, lowest) < 0) { lowest = id; }
        if (entry_id_compare(id, highest) > 0) { highest = id; }
    }
    script_begin(&queue->scripts, SCRIPT_SETTLE, keys, command);
    queue_add_stream(queue, command, class);
    queue_add_keys(queue, command, "trouble", "dead", "meta", NULL);
    for (const struct request *request = requests->first; request; request = request->next) {
        queue_add_key(queue, command, "reply:", request->identity.id);
    }
    for (const struct request *request = requests->first; request; request = request->next) {
        if (request->output.results[0]) {
            queue_add_key(queue, command, "results:", request->output.results);
        } else if (request->output.notify) {
            queue_add_key(queue, command, "wake:", request->identity.id);
        }
        if (request->output.staged) { command_text(command, stage_key(queue, request, key)); }
        if (request->output.stream[0]) {
            queue_add_key(queue, command, "tokens:", request->output.stream);
            queue_add_key(queue, command, "sent:", request->identity.name);
        }
    }
    command_text(command, queue->worker);
    add_info(queue, command, NULL);
    command_number(command, requests->count);
    queue_add_entry_id(command, lowest);
    queue_add_entry_id(command, highest);
    add_into(requests, command);
    add_plain_number(queue, requests, command);
}

static void write_settle(const struct queue *queue, const struct request_list *requests, struct command *command)
{
    uint64_t now_ns = clock_now_ns();
    begin_settle(queue, requests, command);
    for (const struct request *request = requests->first; request; request = request->next) {
        (request->output.plain ? add_plain : add_settled)(queue, command, request, now_ns);
    }
}

static void write_defer(const struct queue *queue, const struct request_list *requests, struct command *command)
{
    char class[2] = {(char)('0' + requests->first->identity.class), '\0'};
    script_begin(&queue->scripts, SCRIPT_DEFER, 5, command);
    queue_add_stream(queue, command, requests->first->identity.class);
    queue_add_keys(queue, command, "later", "later:data", "trouble", "meta", NULL);
    command_text(command, queue->worker);
    command_text(command, class);
    for (const struct request *request = requests->first; request; request = request->next) {
        queue_add_entry_id(command, request->identity.entry);
        command_text(command, request->identity.name);
        command_text(command, request->identity.borrowed_name ? "1" : "0");
        command_number(command, request->retry.next_attempt);
        command_number(command, request->lifetime.due_ms);
        command_number(command, request->lifetime.due_at_ms);
    }
}

static void write_record_run(const struct queue *queue, const struct request_list *requests, struct command *command)
{
    script_begin(&queue->scripts, SCRIPT_CHARGE, 2, command);
    queue_add_stream(queue, command, requests->first->identity.class);
    queue_add_key(queue, command, "trouble", "");
    command_text(command, queue->worker);
    command_text(command, requests->first->retry.quarantined ? "alone" : "group");
    for (const struct request *request = requests->first; request; request = request->next) {
        queue_add_entry_id(command, request->identity.entry);
        command_text(command, request->identity.name);
        command_text(command, request->identity.borrowed_name ? "1" : "0");
        command_number(command, request->retry.attempt);
    }
}

/* --- Answers ------------------------------------------------------------------------------------------------------ */

/* One script call and its requests. */
struct batch_call {
    struct task *task;
    enum script script;
    struct request_list requests;
};

/* Translates a script's number for a request; the heads of the scripts list them. */
static enum verdict verdict_of(long long result)
{
    if (result > 0) { return VERDICT_DONE; }
    switch (result) {
    case 0:
    case -1:
        return VERDICT_LATE;
    case -2:
        return VERDICT_GONE;
    case -3:
        return VERDICT_NOT_ITS_NAME;
    case -7:
        return VERDICT_LATER_FULL;
    case -8:
        return VERDICT_ALONE;
    default:
        return VERDICT_AGAIN;
    }
}

void queue_log_unlogged(struct queue *queue)
{
    struct queue_settling *settling = queue->settling;
    if (settling->refusals.unlogged > 0) {
        log_info("requests_refused", log_str("queue", queue->options.name),
                 log_int("more", (int64_t)settling->refusals.unlogged));
    }
    if (settling->retries.unlogged > 0) {
        log_info("requests_retried", log_str("queue", queue->options.name),
                 log_int("more", (int64_t)settling->retries.unlogged));
    }
    memset(&settling->refusals, 0, sizeof settling->refusals);
    memset(&settling->retries, 0, sizeof settling->retries);
}

/* Only a few refusals and retries between two pulses are logged, but all of them at level debug. A dead letter is
 * always logged. */
static enum log_level level_of(struct queue *queue, enum outcome outcome)
{
    enum { LOGGED_MAX = 5 };
    if (outcome == OUTCOME_DEAD || outcome == OUTCOME_GONE) { return LOG_WARN; }
    struct logged *logged = outcome == OUTCOME_DEFER ? &queue->settling->retries : &queue->settling->refusals;
    if (logged->lines < LOGGED_MAX) {
        logged->lines++;
        return LOG_INFO;
    }
    logged->unlogged++;
    return LOG_DEBUG;
}

/* Logs a failed run in one line, with the producer's own words, so that an operator finds it. */
static void log_failure(struct queue *queue, const struct request *request)
{
    static const char *const events[] = {[OUTCOME_ERROR] = "request_refused",
                                         [OUTCOME_DEFER] = "request_retried",
                                         [OUTCOME_DEAD] = "dead_letter",
                                         [OUTCOME_GONE] = "entry_vanished"};
    enum outcome outcome = request->lifetime.outcome;
    struct log_line line = {events[outcome],
                            {log_str("queue", queue->options.name), log_str("worker", queue->worker),
                             log_str("entry", request->identity.name), log_str("id", request->identity.id),
                             log_str("code", reply_code_name(request->retry.code)),
                             log_str("message", request->retry.message), log_int("attempts", request->retry.attempt)}};
    size_t next = 7;
    if (outcome == OUTCOME_DEFER) { line.fields[next++] = log_int("retry_in_ms", (int64_t)request->lifetime.due_ms); }
    if (request->identity.tenant[0]) { line.fields[next++] = log_str("tenant", request->identity.tenant); }
    if (request->identity.traceparent) {
        line.fields[next++] =
            log_bytes("traceparent", request->identity.traceparent, request->identity.traceparent_bytes);
    }
    log_write(level_of(queue, outcome), &line);
}

/* Logs at most once a minute: a producer that mistypes a field does so in every request. */
static void log_ignored(struct queue *queue, const struct request *request)
{
    enum { PAUSE_S = 60 };
    uint64_t now_ns = clock_now_ns(), last_ns = queue->settling->ignored_ns;
    const char *names = request->identity.ignored;
    if (last_ns != 0 && now_ns - last_ns < PAUSE_S * NS_PER_S) { return; }
    queue->settling->ignored_ns = now_ns;
    const char *comma = memchr(names, ',', request->identity.ignored_bytes);
    const char *nearest =
        request_nearest_field(names, comma ? (size_t)(comma - names) : (size_t)request->identity.ignored_bytes);
    struct log_line line = {"fields_ignored",
                            {log_str("queue", queue->options.name), log_str("entry", request->identity.name),
                             log_str("id", request->identity.id),
                             log_bytes("fields", names, request->identity.ignored_bytes)}};
    size_t next = 4;
    if (nearest) { line.fields[next++] = log_str("nearest", nearest); }
    if (request->identity.tenant[0]) { line.fields[next++] = log_str("tenant", request->identity.tenant); }
    log_write(LOG_INFO, &line);
}

static void apply_result(struct queue *queue, enum script script, struct request *request, long long result)
{
    request->lifetime.verdict = verdict_of(result);
    if (script == SCRIPT_CHARGE && result > 0 && request->retry.quarantined) {
        request->retry.quarantine_runs = (uint32_t)result;
    }
    bool ours = request->lifetime.verdict == VERDICT_DONE ||
                (request->lifetime.verdict == VERDICT_LATE && request->lifetime.repeated);
    if (script == SCRIPT_SETTLE && ours) {
        queue_count(queue, request->identity.class,
                    request->lifetime.outcome == OUTCOME_DONE ? CODE_NONE : (int)request->retry.code);
        if (request->identity.ignored) {
            queue_count_ignored(queue);
            log_ignored(queue, request);
        }
    }
    if (script != SCRIPT_CHARGE && ours && request->retry.code != CODE_NONE) { log_failure(queue, request); }
}

static void log_side_effects(const struct queue *queue, const struct resp_value *reply, size_t at)
{
    if (reply->count != at + 2) { return; }
    if (reply->items[at].integer || reply->items[at + 1].integer) {
        log_warn("settle_side_effects", log_str("queue", queue->options.name),
                 log_int("side_keys_skipped", reply->items[at].integer),
                 log_int("dead_letters_trimmed", reply->items[at + 1].integer));
    }
}

static void on_called(void *context, const struct resp_value *reply)
{
    struct batch_call *call = context;
    struct task *task = call->task;
    struct queue *queue = task->queue;
    enum script script = call->script;
    bool refused = reply && queue_refused(queue, reply, script_sources[script].name);
    bool shaped = reply && queue_has_numbers(reply, call->requests.count);
    size_t at = 0;
    for (struct request *request = call->requests.first; request; request = request->next) {
        if (shaped) {
            apply_result(queue, script, request, reply->items[at++].integer);
        } else {
            request->lifetime.verdict = VERDICT_AGAIN;
        }
    }
    if (shaped && script == SCRIPT_SETTLE) { log_side_effects(queue, reply, at); }
    bool whole = script == SCRIPT_CHARGE; /* it gives no verdict for each request */
    task->failed = task->failed || !reply || (!shaped && whole) || (refused && queue->state != QUEUE_UP);
    struct request_list requests = call->requests;
    free(call);
    queue_answered(task, &requests);
}

/* --- Large replies ------------------------------------------------------------------------------------------------ */

/* Large replies bypass the script.
 *
 * A script's arguments become Lua strings, and Lua hashes every byte. From about STAGE_BYTES on that costs Redis more
 * than a command for a key of its own. So plain commands write large results to hashes of their own, their stage keys,
 * and settle renames each to the reply's and adds `info`. All of that is one transaction, which ends by deleting the
 * stage keys: whatever settle does, none of them remains, and nobody else ever sees one. If Redis refuses the
 * transaction or a part of it (it is full, say), nothing has ended, and for a while replies travel in their settle,
 * whose answer says why. */
void queue_not_staged(struct queue *queue)
{
    queue->settling->stage_from_ns = clock_now_ns() + STAGE_PAUSE_MS * NS_PER_MS;
}

/* Puts a request into a list in the order of ids; usually that is the order in which they come. */
static void insert_by_id(struct request_list *list, struct request *request)
{
    struct request **at = &list->first;
    if (!list->last || entry_id_compare(list->last->identity.entry, request->identity.entry) < 0) {
        request_list_push(list, request);
        return;
    }
    while (entry_id_compare((*at)->identity.entry, request->identity.entry) < 0) { at = &(*at)->next; }
    request->next = *at;
    *at = request;
    list->count++;
}

/* Decides which of these replies are staged and which are plain, and puts the plain ones first; returns whether any is
 * staged. */
static bool choose_ways(const struct queue *queue, struct request_list *requests)
{
    struct request_list plain = {0}, others = {0};
    struct request *request;
    bool may = clock_now_ns() >= queue->settling->stage_from_ns, any = false;
    while ((request = request_list_pop(requests))) {
        bool is_done = request->lifetime.outcome == OUTCOME_DONE;
        request->output.plain = is_plain(request) && (!plain.first || is_like(request, plain.first));
        request->output.staged = may && is_done && request->output.reply.length >= STAGE_BYTES;
        any = any || request->output.staged;
        if (request->output.plain) {
            insert_by_id(&plain, request);
        } else {
            request_list_push(&others, request);
        }
    }
    request_list_join(&plain, &others);
    *requests = plain;
    return any;
}

/* Sends a command of a transaction. Its answer only says that it is queued. */
static enum status send_queued(struct queue *queue, struct command *command, struct err *err)
{
    queue->commands++;
    return connection_send_command(queue->writer, command, queue->options.command_timeout_ms, NULL, NULL, err);
}

static enum status stage_reply(struct queue *queue, const struct request *request, struct err *err)
{
    char key[QUEUE_KEY_MAX];
    struct command fields = {0};
    command_text(&fields, "HSET");
    command_text(&fields, stage_key(queue, request, key));
    command_pair(&fields, "status", "done");
    command_text(&fields, reply_field(request));
    command_bytes(&fields, request->output.reply.data, request->output.reply.length);
    return send_queued(queue, &fields, err);
}

/* Sends a transaction: the HSETs of the stage keys, the call of settle, and the DEL of the stage keys. Owns: takes the
 * call's bytes. */
static void send_staged(struct queue *queue, const struct request_list *requests, struct command *settle,
                        connection_reply_fn *reply, void *context)
{
    struct command multi = {0}, cleanup = {0}, exec = {0};
    char key[QUEUE_KEY_MAX];
    struct err err;
    command_text(&multi, "MULTI");
    command_text(&cleanup, "DEL");
    command_text(&exec, "EXEC");
    enum status status = send_queued(queue, &multi, &err);
    for (const struct request *request = requests->first; request && !status; request = request->next) {
        if (!request->output.staged) { continue; }
        status = stage_reply(queue, request, &err);
        command_text(&cleanup, stage_key(queue, request, key));
    }
    status = status ? status : send_queued(queue, settle, &err);
    status = status ? status : send_queued(queue, &cleanup, &err);
    command_free(settle);
    command_free(&cleanup);
    if (status) { queue_down(queue, &err); } /* only closing the connection ends the transaction */
    queue_call(queue, &exec, reply, context);
}

/* --- Calls -------------------------------------------------------------------------------------------------------- */

/* The answer to a transaction of send_staged; settle's part is the last but one, before that of the DEL. */
static void on_executed(void *context, const struct resp_value *reply)
{
    const struct batch_call *call = context;
    struct queue *queue = call->task->queue;
    bool whole = reply && reply->type == RESP_ARRAY && reply->count > 1;
    const struct resp_value *settled = whole ? &reply->items[reply->count - 2] : reply;
    if (settled && settled->type != RESP_ARRAY) { queue_not_staged(queue); }
    on_called(context, settled);
}

typedef void write_fn(const struct queue *queue, const struct request_list *requests, struct command *command);

static write_fn *const writers[SCRIPT_COUNT] = {
    [SCRIPT_SETTLE] = write_settle, [SCRIPT_DEFER] = write_defer, [SCRIPT_CHARGE] = write_record_run};

/* Sends one call. If there is no memory for it, the task fails, and its requests come back with it. */
static void send_call(struct task *task, enum script script, struct request_list *requests)
{
    struct command command = {0};
    struct batch_call *call = malloc(sizeof *call);
    if (!call) {
        request_list_join(&task->answered, requests);
        task->failed = true;
        return;
    }
    *call = (struct batch_call){task, script, *requests};
    *requests = (struct request_list){0};
    task->calls++;
    if (script == SCRIPT_SETTLE) { queue_send_tokens(task->queue, &call->requests); }
    bool staged = script == SCRIPT_SETTLE && choose_ways(task->queue, &call->requests);
    writers[script](task->queue, &call->requests, &command);
    if (staged) {
        send_staged(task->queue, &call->requests, &command, on_executed, call);
    } else {
        queue_call(task->queue, &command, on_called, call);
    }
}

/* Sends one call for the requests of each stream; the worker limits their number. */
static void send_calls(struct task *task, enum script script, struct request_list requests[CLASS_COUNT])
{
    for (int c = 0; c < CLASS_COUNT; c++) {
        if (requests[c].first) { send_call(task, script, &requests[c]); }
    }
}

static void send_requests(struct task *task, enum script script)
{
    struct request_list requests[CLASS_COUNT] = {0};
    struct request *request;
    task->calls = 1;
    while ((request = request_list_pop(&task->action.requests))) {
        request_list_push(&requests[request->identity.class], request);
    }
    send_calls(task, script, requests);
    queue_answered(task, &(struct request_list){0});
}

void queue_settle(struct task *task)
{
    struct request_list settle[CLASS_COUNT] = {0}, defer[CLASS_COUNT] = {0};
    struct request *request;
    task->calls = 1; /* held by this function until all are sent */
    while ((request = request_list_pop(&task->action.requests))) {
        if (request->lifetime.outcome == OUTCOME_CANCEL) {
            queue_cancel(task, request);
        } else {
            request_list_push(&(request->lifetime.outcome == OUTCOME_DEFER ? defer : settle)[request->identity.class],
                              request);
        }
    }
    send_calls(task, SCRIPT_SETTLE, settle);
    send_calls(task, SCRIPT_DEFER, defer);
    queue_answered(task, &(struct request_list){0});
}

void queue_record_run(struct task *task)
{
    send_requests(task, SCRIPT_CHARGE);
}
