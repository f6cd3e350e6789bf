/* What lua/settle is told of each request: its entry, how it ended, and the fields of its reply. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "io/queue_parts.h"

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
           : request->outcome == OUTCOME_GONE ? "gone"
           : request->started_ns              ? "fail"
                                              : "error";
}

static void add_vector(const struct queue *queue, struct command *command, const struct request *request)
{
    uint64_t tokens = 0;
    bool truncated = false;
    for (uint32_t i = 0; i < request->row_count; i++) {
        tokens += request->rows[i].tokens;
        truncated = truncated || request->rows[i].truncated;
    }
    add_pair(command, "id", request->id);
    command_text(command, "dim");
    command_number(command, request->dims);
    add_pair(command, "encoding", encoding_name(request->encoding));
    command_text(command, "embedding");
    command_bytes(command, request->reply.data, request->reply.length);
    command_text(command, "tokens");
    command_number(command, tokens);
    add_milliseconds(command, "compute_ms", request->computed_ns - request->started_ns);
    if (request->inputs) {
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
    add_pair(command, "retryable", request->retryable || request->code == CODE_QUEUE_FULL ? "1" : "0");
    command_text(command, "attempts");
    command_number(command, request->attempt);
    if (request->row_failed) {
        command_text(command, "index");
        command_number(command, request->failed_index);
    }
    if (request->code == CODE_QUEUE_FULL) {
        command_text(command, "retry_after_ms");
        command_number(command, request->retry_after_ms);
    }
}

/* What a producer finds again in every reply and dead letter. */
static void add_echo(struct command *command, const struct request *request)
{
    if (request->meta) {
        command_text(command, "meta");
        command_bytes(command, request->meta, request->meta_bytes);
    }
    if (request->tenant[0]) {
        add_pair(command, "tenant", request->tenant);
    }
    if (request->traceparent) {
        command_text(command, "traceparent");
        command_bytes(command, request->traceparent, request->traceparent_bytes);
    }
}

void queue_add_fields(const struct queue *queue, struct command *command, const struct request *request)
{
    if (request->outcome == OUTCOME_DONE) {
        add_vector(queue, command, request);
        if (request->attempt > 1) {
            command_text(command, "attempts");
            command_number(command, request->attempt);
        }
    } else {
        add_failure(command, request);
    }
    add_echo(command, request);
}

/* The fields of a reply. Their number comes before them, so it is patched in: always three digits. */
static void add_counted_fields(const struct queue *queue, struct command *command, const struct request *request)
{
    command_text(command, "000");
    size_t at = command->buffer.length, words = command->words;
    queue_add_fields(queue, command, request);
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
    command_text(command, request->results[0] ? "s" : request->notify ? "1" : "0");
    command_text(command, request->borrowed_name ? "1" : "0");
    command_number(command, request->first_ms);
    command_number(command, request->started_ns ? (now_ns - request->started_ns) / NS_PER_MS : 0);
    if (request->staged) {
        command_text(command, "0");
    } else {
        add_counted_fields(queue, command, request);
    }
}

static void begin_settle(const struct queue *queue, const struct request_list *requests, struct command *command)
{
    enum request_class class = requests->first->class;
    size_t keys = 3;
    for (const struct request *request = requests->first; request; request = request->next) {
        keys += 1 + (request->notify || request->results[0]) + request->staged;
    }
    script_begin(&queue->scripts, SCRIPT_SETTLE, keys, command);
    queue_add_stream(queue, command, class);
    queue_add_key(queue, command, "trouble", "");
    queue_add_key(queue, command, "dead", "");
    for (const struct request *request = requests->first; request; request = request->next) {
        queue_add_key(queue, command, "reply:", request->id);
    }
    for (const struct request *request = requests->first; request; request = request->next) {
        if (request->results[0]) {
            queue_add_key(queue, command, "results:", request->results);
        } else if (request->notify) {
            queue_add_key(queue, command, "wake:", request->id);
        }
        if (request->staged) {
            queue_add_stage_key(queue, command, request);
        }
    }
    command_text(command, queue->worker);
    command_text(command, queue->options.model_name);
    command_text(command, queue->options.revision);
    command_number(command, requests->count);
}

void queue_write_settle(const struct queue *queue, const struct request_list *requests, struct command *command)
{
    uint64_t now_ns = clock_now_ns();
    begin_settle(queue, requests, command);
    for (const struct request *request = requests->first; request; request = request->next) {
        add_settled(queue, command, request, now_ns);
    }
}
