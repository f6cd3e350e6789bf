#include "redis/queue_tokens.h"

#include <assert.h>
#include <event2/event.h>
#include <stdlib.h>

enum { SEND_MS = 20, CALL_TEXTS = 32 };

static struct token_stream *stream_of(const struct request *request)
{
    return request->writing ? request->writing->stream : NULL;
}

static const struct request *request_of(const struct text_sent *text)
{
    return text->batch->rows[0]->request;
}

/* --- Tokens to Redis ---------------------------------------------------------------------------------------------- */

/* A call that is out. */
struct tokens_call {
    struct queue *queue;
    size_t count;
    struct {
        struct token_stream *stream; /* held */
        uint32_t expected;           /* tokens that Redis has if the call was good */
    } texts[CALL_TEXTS];
};

/* A call that is being made. */
struct tokens_draft {
    struct queue *queue;
    enum request_class class;
    size_t count;
    const struct request *requests[CALL_TEXTS];
    struct token_run runs[CALL_TEXTS];
    struct buffer bytes; /* the ids and the text of one run after the other */
};

/* The request is, or was, another worker's: nobody needs the rest of its text here. */
static void drop_text(struct queue_tokens *tokens, const struct token_stream *stream)
{
    for (unsigned i = 0; i < tokens->count; i++) {
        if (stream_of(request_of(&tokens->texts[i])) == stream) {
            atomic_store_explicit(&tokens->texts[i].batch->dropped, true, memory_order_relaxed);
        }
    }
}

static void on_sent(void *context, const struct resp_value *reply)
{
    struct tokens_call *call = context;
    struct queue *queue = call->queue;
    queue->tokens->out--;
    bool good = reply && !queue_refused(queue, reply, "lua/tokens") && queue_has_numbers(reply, call->count);
    for (size_t i = 0; i < call->count; i++) {
        struct token_stream *stream = call->texts[i].stream;
        long long sent = good ? reply->items[i].integer : call->texts[i].expected;
        if (sent == -1 || sent > call->texts[i].expected) { /* another worker has added more meanwhile */
            drop_text(queue->tokens, stream);
        } else if (sent >= 0 && sent != call->texts[i].expected) {
            token_stream_resume(stream, (uint32_t)sent);
        }
        token_stream_drop(stream);
    }
    free(call);
}

static void add_words(const struct tokens_draft *draft, struct command *command)
{
    struct queue *queue = draft->queue;
    script_begin(&queue->scripts, SCRIPT_TOKENS, 2 + 2 * draft->count, command);
    queue_add_stream(queue, command, draft->class);
    queue_add_key(queue, command, "trouble", "");
    for (size_t i = 0; i < draft->count; i++) {
        queue_add_key(queue, command, "tokens:", draft->requests[i]->output.stream);
        queue_add_key(queue, command, "sent:", draft->requests[i]->identity.name);
    }
    command_text(command, queue->worker);
    const char *at = draft->bytes.data ? draft->bytes.data : "";
    for (size_t i = 0; i < draft->count; i++) {
        const struct request *request = draft->requests[i];
        const struct token_run *run = &draft->runs[i];
        queue_add_entry_id(command, request->identity.entry);
        command_text(command, request->identity.name);
        command_text(command, request->identity.borrowed_name ? "1" : "0");
        command_text(command, request->identity.id);
        command_number(command, request->output.ttl_s * 1000ull);
        command_number(command, run->index);
        command_bytes(command, at, run->count * sizeof(int32_t));
        at += run->count * sizeof(int32_t);
        command_bytes(command, at, run->text_bytes);
        at += run->text_bytes;
    }
}

/* Sends the call, if it has texts. Without memory they are sent later. */
static void send_draft(struct tokens_draft *draft)
{
    struct command command = {0};
    struct tokens_call *call = draft->count > 0 && buffer_ok(&draft->bytes) ? malloc(sizeof *call) : NULL;
    if (call) {
        *call = (struct tokens_call){.queue = draft->queue, .count = draft->count};
        add_words(draft, &command);
    }
    for (size_t i = 0; i < draft->count; i++) {
        struct token_stream *stream = stream_of(draft->requests[i]);
        const struct token_run *run = &draft->runs[i];
        if (call) {
            call->texts[i].stream = token_stream_hold(stream);
            call->texts[i].expected = run->index + run->count;
        } else {
            token_stream_resume(stream, run->index);
        }
    }
    draft->count = 0;
    buffer_free(&draft->bytes);
    if (!call) { return; }
    draft->queue->tokens->out++;
    queue_call(draft->queue, &command, on_sent, call);
}

static void draft_text(struct tokens_draft *draft, const struct request *request, bool always)
{
    if (!token_stream_take(stream_of(request), always, &draft->runs[draft->count], &draft->bytes)) { return; }
    draft->requests[draft->count++] = request;
    if (draft->count == CALL_TEXTS) { send_draft(draft); }
}

void queue_send_tokens(struct queue *queue, const struct request_list *requests)
{
    struct tokens_draft draft = {.queue = queue};
    for (const struct request *request = requests->first; request; request = request->next) {
        draft.class = request->identity.class;
        if (stream_of(request)) { draft_text(&draft, request, true); }
    }
    send_draft(&draft);
}

/* --- The texts ---------------------------------------------------------------------------------------------------- */

/* A look at the record of a text. */
struct asked {
    struct queue *queue;
    const struct batch *batch; /* only compared: it may be gone */
};

static struct text_sent *find_text(struct queue_tokens *tokens, const struct batch *batch)
{
    for (unsigned i = 0; i < tokens->count; i++) {
        if (tokens->texts[i].batch == batch) { return &tokens->texts[i]; }
    }
    return NULL;
}

/* A record of another type has no tokens; lua/tokens replaces it. After an error it is asked for again. */
static void on_asked(void *context, const struct resp_value *reply)
{
    struct asked asked = *(struct asked *)context;
    struct text_sent *text = find_text(asked.queue->tokens, asked.batch);
    struct err err;
    free(context);
    if (!text) { return; }
    text->asking = false;
    bool replaced = reply && resp_is_error(reply, "WRONGTYPE");
    if (!reply || (!replaced && queue_refused(asked.queue, reply, "GET"))) { return; }
    size_t bytes = reply->type == RESP_STRING ? reply->length : 0;
    struct token_stream *stream = stream_of(request_of(text));
    if (token_stream_begin(stream, bytes > 0 ? reply->bytes : NULL, bytes, &err) != STATUS_OK) { return; }
    text->begun = true;
    asked.queue->options.on_text(asked.queue->options.context, text->batch);
}

static void ask_for_record(struct queue *queue, struct text_sent *text)
{
    char key[QUEUE_KEY_MAX];
    const char *const words[] = {"GET", queue_key(queue, "sent:", request_of(text)->identity.name, key)};
    struct asked *asked = malloc(sizeof *asked);
    if (!asked) { return; }
    *asked = (struct asked){queue, text->batch};
    text->asking = true;
    queue_command(queue, 2, words, on_asked, asked);
}

static void send_class(struct queue *queue, enum request_class class)
{
    struct tokens_draft draft = {.queue = queue, .class = class};
    for (unsigned i = 0; i < queue->tokens->count; i++) {
        const struct text_sent *text = &queue->tokens->texts[i];
        if (text->begun && request_of(text)->identity.class == class) { draft_text(&draft, request_of(text), false); }
    }
    send_draft(&draft);
}

void queue_on_tokens(int fd, short what, void *context)
{
    struct queue *queue = context;
    (void)fd;
    (void)what;
    for (unsigned i = 0; i < queue->tokens->count && queue->state == QUEUE_UP; i++) {
        struct text_sent *text = &queue->tokens->texts[i];
        if (!text->begun && !text->asking) { ask_for_record(queue, text); }
    }
    bool behind = queue->tokens->out > 0; /* Redis is slow: the next call has more tokens */
    for (int c = 0; c < CLASS_COUNT && queue->state == QUEUE_UP && !behind; c++) {
        send_class(queue, (enum request_class)c);
    }
    if (queue->tokens->count > 0) { queue_wake_in(queue->tokens->timer, SEND_MS); }
}

void queue_tokens_begin(struct queue *queue, struct batch *batch)
{
    assert(queue->tokens->count < GENERATOR_ROWS);
    queue->tokens->texts[queue->tokens->count++] = (struct text_sent){.batch = batch};
    if (queue->tokens->count == 1) { queue_wake_in(queue->tokens->timer, SEND_MS); }
    if (queue->state == QUEUE_UP) { ask_for_record(queue, &queue->tokens->texts[queue->tokens->count - 1]); }
}

void queue_tokens_end(struct queue *queue, const struct batch *batch)
{
    struct text_sent *text = find_text(queue->tokens, batch);
    if (text) { *text = queue->tokens->texts[--queue->tokens->count]; }
}
