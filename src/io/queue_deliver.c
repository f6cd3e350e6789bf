/* Ending requests: settle, defer, and charge before a lonely run.
 *
 * One ACTION_SETTLE becomes script calls of at most 64 entries or 128 KiB, because a script blocks Redis while it runs;
 * when the last call is answered, the action is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "io/queue_private.h"

enum { CALL_ENTRIES = 64, CALL_BYTES = 128 << 10 };

/* One script call with the requests that are in it. */
struct batch_call {
    struct task *task;
    enum script script;
    struct request_list requests;
};

/* --- What a script is told of a request --------------------------------------------------------------------------- */

static void add_pair(struct command *command, const char *field, const char *value)
{
    command_text(command, field);
    command_text(command, value);
}

static void add_milliseconds(struct command *command, const char *field, uint64_t ns)
{
    char text[32];
    snprintf(text, sizeof text, "%.3f", (double)ns / (double)NS_PER_MS);
    add_pair(command, field, text);
}

/* An error before the start may come from any holder; after it only the owner may say so. */
static const char *kind_of(const struct request *request)
{
    return request->outcome == OUTCOME_DONE   ? "done"
           : request->outcome == OUTCOME_DEAD ? "dead"
           : request->started_ns              ? "fail"
                                              : "error";
}

static void add_vector(const struct queue *queue, struct command *command, const struct request *request)
{
    static const char *const encodings[] = {[ENCODING_JSON] = "json", [ENCODING_F32] = "f32"};
    uint64_t tokens = 0;
    bool truncated = false;
    for (uint32_t i = 0; i < request->row_count; i++) {
        tokens += request->rows[i].tokens;
        truncated = truncated || request->rows[i].truncated;
    }
    add_pair(command, "id", request->id);
    command_text(command, "dim");
    command_number(command, request->dim);
    add_pair(command, "encoding", encodings[request->encoding]);
    command_text(command, "embedding");
    command_bytes(command, request->reply.data, request->reply.length);
    command_text(command, "tokens");
    command_number(command, tokens);
    add_milliseconds(command, "compute_ms", request->computed_ns - request->started_ns);
    if (request->row_count > 1) {
        command_text(command, "count");
        command_number(command, request->row_count);
    }
    if (queue->options.precision) {
        add_pair(command, "precision", queue->options.precision);
    }
    if (truncated) {
        add_pair(command, "truncated", "1");
    }
}

static void add_failure(struct command *command, const struct request *request)
{
    add_pair(command, "code", reply_code_name(request->code));
    add_pair(command, "message", request->message);
    add_pair(command, "retryable", request->retryable ? "1" : "0");
    command_text(command, "attempts");
    command_number(command, request->attempt);
}

/* The fields of a reply. Their number comes before them, so it is patched in: always three digits. */
static void add_fields(const struct queue *queue, struct command *command, const struct request *request)
{
    command_text(command, "000");
    size_t at = command->buffer.length, words = command->words;
    if (request->outcome == OUTCOME_DONE) {
        add_vector(queue, command, request);
        if (request->attempt > 1) {
            command_text(command, "attempts");
            command_number(command, request->attempt);
        }
    } else {
        add_failure(command, request);
    }
    if (request->meta) {
        command_text(command, "meta");
        command_bytes(command, request->meta, request->meta_bytes);
    }
    if (buffer_ok(&command->buffer)) {
        char digits[8];
        snprintf(digits, sizeof digits, "%03u", (unsigned)(command->words - words) % 1000);
        memcpy(command->buffer.data + at - 5, digits, 3);
    }
}

static void add_settled(const struct queue *queue, struct command *command, const struct request *request,
                        uint64_t now_ns)
{
    queue_add_entry_id(command, request->entry);
    command_text(command, kind_of(request));
    command_text(command, request->name);
    command_number(command, request->ttl_s * 1000ull);
    command_text(command, request->notify ? "1" : "0");
    command_number(command, request->first_ms);
    command_number(command, request->started_ns ? (now_ns - request->started_ns) / NS_PER_MS : 0);
    add_fields(queue, command, request);
}

static void begin_settle(const struct queue *queue, const struct batch_call *call, struct command *command)
{
    enum request_class class = call->requests.first->class;
    size_t keys = 3;
    for (const struct request *request = call->requests.first; request; request = request->next) {
        keys += request->notify ? 2 : 1;
    }
    script_begin(&queue->scripts, SCRIPT_SETTLE, keys, command);
    queue_add_stream(queue, command, class);
    queue_add_key(queue, command, "trouble", "");
    queue_add_key(queue, command, "dead", "");
    for (const struct request *request = call->requests.first; request; request = request->next) {
        queue_add_key(queue, command, "reply:", request->id);
        if (request->notify) {
            queue_add_key(queue, command, "wake:", request->id);
        }
    }
    command_text(command, queue->worker);
    command_text(command, queue->options.model_name);
    command_text(command, queue->options.revision);
}

static void write_settle(const struct queue *queue, const struct batch_call *call, struct command *command)
{
    uint64_t now_ns = clock_now_ns();
    begin_settle(queue, call, command);
    for (const struct request *request = call->requests.first; request; request = request->next) {
        add_settled(queue, command, request, now_ns);
    }
}

static void write_defer(const struct queue *queue, const struct batch_call *call, struct command *command)
{
    char class[2] = {(char)('0' + call->requests.first->class), '\0'};
    script_begin(&queue->scripts, SCRIPT_DEFER, 4, command);
    queue_add_stream(queue, command, call->requests.first->class);
    queue_add_key(queue, command, "later", "");
    queue_add_key(queue, command, "later:data", "");
    queue_add_key(queue, command, "trouble", "");
    command_text(command, queue->worker);
    command_text(command, class);
    for (const struct request *request = call->requests.first; request; request = request->next) {
        queue_add_entry_id(command, request->entry);
        command_text(command, request->name);
        command_number(command, request->next_attempt);
        command_number(command, request->due_ms);
    }
}

static void write_charge(const struct queue *queue, const struct batch_call *call, struct command *command)
{
    script_begin(&queue->scripts, SCRIPT_CHARGE, 2, command);
    queue_add_stream(queue, command, call->requests.first->class);
    queue_add_key(queue, command, "trouble", "");
    command_text(command, queue->worker);
    for (const struct request *request = call->requests.first; request; request = request->next) {
        queue_add_entry_id(command, request->entry);
        command_text(command, request->name);
        command_number(command, request->attempt);
    }
}

/* --- Calls and their answers -------------------------------------------------------------------------------------- */

static void answer_if_complete(struct task *task)
{
    if (task->calls > 0) {
        return;
    }
    if (task->failed) {
        queue_task_fail(task);
        return;
    }
    enum event_kind kind = task->action.kind == ACTION_CHARGE ? EVENT_CHARGED : EVENT_SETTLED;
    queue_task_done(task, &(struct event){.kind = kind, .requests = task->answered});
}

/* Puts the script's number for a request where the worker looks for it. */
static void take_result(struct queue *queue, enum script script, struct request *request, long long result)
{
    request->verdict = result <= 0 ? VERDICT_LATE : VERDICT_DONE;
    if (script == SCRIPT_CHARGE && result > 0) {
        request->lonely_runs = (uint32_t)result;
    }
    if (script == SCRIPT_SETTLE && result == 2) {
        queue->stats.newer_replies_kept++;
    }
    if (script == SCRIPT_DEFER && result == -2) {
        queue_vanished(queue, request->class, request->entry, request->name, request->id);
    }
}

static void take_counts(struct queue *queue, const struct resp_value *reply, size_t at)
{
    if (reply->count != at + 2) {
        return;
    }
    queue->stats.side_keys_skipped += (uint64_t)reply->items[at].integer;
    queue->stats.dead_trimmed += (uint64_t)reply->items[at + 1].integer;
    if (reply->items[at].integer || reply->items[at + 1].integer) {
        log_warn("settle_side_effects", log_int("side_keys_skipped", reply->items[at].integer),
                 log_int("dead_letters_trimmed", reply->items[at + 1].integer));
    }
}

static void on_called(void *context, const struct resp_value *reply, const struct err *lost)
{
    struct batch_call *call = context;
    struct task *task = call->task;
    struct queue *queue = task->queue;
    (void)lost;
    bool lost_link = !reply, refused = reply && queue_refused(queue, reply, script_sources[call->script].name);
    bool shaped = reply && reply->type == RESP_ARRAY && reply->count >= call->requests.count;
    size_t at = 0;
    struct request *request;
    while ((request = request_list_pop(&call->requests))) {
        if (shaped) {
            take_result(queue, call->script, request, reply->items[at++].integer);
        } else {
            request->verdict = VERDICT_AGAIN;
        }
        request_list_push(&task->answered, request);
    }
    if (shaped && call->script == SCRIPT_SETTLE) {
        take_counts(queue, reply, at);
    }
    task->failed = task->failed || lost_link || (!shaped && call->script == SCRIPT_CHARGE) ||
                   (refused && queue->state != QUEUE_UP);
    task->calls--;
    free(call);
    answer_if_complete(task);
}

/* Sends one call; when that fails, its requests come back with the action. */
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
    if (script == SCRIPT_SETTLE) {
        write_settle(task->queue, call, &command);
    } else if (script == SCRIPT_DEFER) {
        write_defer(task->queue, call, &command);
    } else {
        write_charge(task->queue, call, &command);
    }
    task->calls++;
    if (!queue_call(task->queue, &command, on_called, call)) {
        task->calls--;
        task->failed = true;
        request_list_join(&task->answered, &call->requests);
        free(call);
    }
}

/* Cuts the requests into calls: one script and one stream each, and not too much at once. */
static void send_all(struct task *task, struct request_list *requests)
{
    struct request_list part[2] = {{0}}; /* settle, defer */
    static const enum script scripts[2] = {SCRIPT_SETTLE, SCRIPT_DEFER};
    size_t bytes = 0;
    struct request *request;
    while ((request = request_list_pop(requests))) {
        int which = request->outcome == OUTCOME_DEFER;
        size_t more = which ? 0 : request->reply.length;
        if (part[which].first && (part[which].count == CALL_ENTRIES || part[which].first->class != request->class ||
                                  (more && bytes + more > CALL_BYTES))) {
            send_call(task, scripts[which], &part[which]);
            bytes = which ? bytes : 0;
        }
        bytes += more;
        request_list_push(&part[which], request);
    }
    for (int which = 0; which < 2; which++) {
        if (part[which].first) {
            send_call(task, scripts[which], &part[which]);
        }
    }
}

static struct task *open_with_requests(struct queue *queue, struct action *action, struct request_list *requests)
{
    struct task *task = queue_task_open(queue, action);
    if (task) {
        *requests = action->requests;
        task->action.requests = (struct request_list){0};
    }
    action->requests = (struct request_list){0};
    return task;
}

void queue_settle(struct queue *queue, struct action *action)
{
    struct request_list requests;
    struct task *task = open_with_requests(queue, action, &requests);
    if (task) {
        send_all(task, &requests);
        answer_if_complete(task);
    }
}

void queue_charge(struct queue *queue, struct action *action)
{
    struct request_list requests;
    struct task *task = open_with_requests(queue, action, &requests);
    if (!task) {
        return;
    }
    if (requests.first) {
        send_call(task, SCRIPT_CHARGE, &requests);
    }
    answer_if_complete(task);
}
