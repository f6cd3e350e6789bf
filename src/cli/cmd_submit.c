/* Enqueues texts with pipelined XADDs; with --wait it also prints their replies, in the order of the texts; with
 * --stream it prints each text as it is written, before it sends the next request. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/duration.h"
#include "base/json.h"
#include "base/utf8.h"
#include "bulk/input/stream.h"
#include "cli/command.h"
#include "cli/invocation.h"
#include "cli/print.h"
#include "config/config.h"
#include "config/setting.h"
#include "operator/answers.h"
#include "redis/client.h"
#include "redis/queue_names.h"
#include "schedule/encodings.h"

/* The command's own options. */
struct submit_options {
    char *input, *id, *delay, *expires_in, *tenant, *meta, *results, *query;
    char *max_tokens, *temperature, *top_k, *top_p, *min_p, *repetition_penalty, *seed, *logprobs,
        *stop;    /* the worker reads them */
    int encoding; /* 0: none given; else enum encoding + 1 */
    int class;    /* enum request_class */
    int task;     /* enum request_task */
    int64_t ttl, timeout_s, max_attempts, top_n;
    bool wait, stream, inputs, raw;
};

enum { WORDS_MAX = 64, TEXT_MAX_BYTES = 1 << 28 };

static bool is_id(const char *text)
{
    return request_id_usable(text, strlen(text));
}

#define OWN(name) .key = #name, .offset = offsetof(struct submit_options, name)
/* clang-format off */
static const struct setting own_settings[] = {
    {OWN(input), .type = SETTING_TEXT, .value = "FILE", .help = "texts, one per line; - is standard input"},
    {OWN(wait), .type = SETTING_SWITCH, .fallback = "false", .help = "wait, and print replies instead of ids"},
    {OWN(timeout_s), .type = SETTING_INTEGER, .fallback = "60", .least = 1, .most = 86400, .value = "N",
        .help = "longest wait for each reply; with --stream, for the next tokens"},
    {OWN(id), .type = SETTING_TEXT, .value = "ID", .help = "the request's id (only with one text)",
        .accepts = is_id, .expects = "1 to 128 printable ASCII characters, and not what Redis calls an entry"},
    {OWN(encoding), .type = SETTING_CHOICE, .fallback = "default", .choices = encoding_words, .help = "of the reply in Redis"},
    {OWN(ttl), .type = SETTING_INTEGER, .fallback = "0", .least = 0, .most = 604800, .value = "SECONDS",
        .help = "how long the reply is kept; 0: as the daemon says"},
    {OWN(class), .type = SETTING_CHOICE, .fallback = "normal", .choices = class_names, .help = "priority"},
    {OWN(inputs), .type = SETTING_SWITCH, .fallback = "false", .help = "all texts are one request: all of them or none"},
    {OWN(task), .type = SETTING_CHOICE, .fallback = "embed", .choices = task_names, .help = "what is asked of the queue's model"},
    {OWN(query), .type = SETTING_TEXT, .value = "TEXT", .help = "rerank: all texts are documents to be scored against it, one request"},
    {OWN(top_n), .type = SETTING_INTEGER, .fallback = "0", .least = 0, .most = 100000, .value = "N",
        .help = "rerank: only the best N documents, best first; 0: all, in their order"},
    {OWN(raw), .type = SETTING_SWITCH, .fallback = "false", .help = "rerank, classify: logits in place of scores"},
    {OWN(max_tokens), .type = SETTING_TEXT, .value = "N", .help = "generate: the most tokens to write"},
    {OWN(temperature), .type = SETTING_TEXT, .value = "NUMBER", .help = "generate: 0: always the likeliest token; 1: as the model says"},
    {OWN(seed), .type = SETTING_TEXT, .value = "N", .help = "generate: of the draws; without it each request has its own"},
    {OWN(top_k), .type = SETTING_TEXT, .value = "N", .help = "generate: draw from the k likeliest tokens only"},
    {OWN(top_p), .type = SETTING_TEXT, .value = "NUMBER", .help = "generate: draw from the likeliest tokens that together have this share"},
    {OWN(min_p), .type = SETTING_TEXT, .value = "NUMBER", .help = "generate: draw from tokens at least this share as likely as the likeliest"},
    {OWN(repetition_penalty), .type = SETTING_TEXT, .value = "NUMBER", .help = "generate: above 1: tokens that are in the text already become less likely"},
    {OWN(logprobs), .type = SETTING_TEXT, .value = "N", .help = "generate: also each token's probability, and those of the N likeliest"},
    {OWN(stop), .type = SETTING_TEXT, .value = "TEXT", .help = "generate: end the text before this one"},
    {OWN(stream), .type = SETTING_SWITCH, .fallback = "false", .help = "generate: print each text as it is written, then send the next request"},
    {OWN(delay), .type = SETTING_TEXT, .value = "SPAN", .help = "not before so long from now: 500ms, 90s, 2h, 7d",
        .accepts = duration_is, .expects = DURATION_EXPECTS},
    {OWN(expires_in), .type = SETTING_TEXT, .value = "SPAN", .help = "answered `expired` when it has not started by then",
        .accepts = duration_is, .expects = DURATION_EXPECTS},
    {OWN(max_attempts), .type = SETTING_INTEGER, .fallback = "0", .least = 0, .most = 10, .value = "N",
        .help = "tries before it becomes a dead letter; 0: as the daemon says"},
    {OWN(tenant), .type = SETTING_TEXT, .value = "NAME", .help = "whose it is: tenants of a class take turns"},
    {OWN(meta), .type = SETTING_TEXT, .value = "TEXT", .most = 4096, .help = "comes back with the reply"},
    {OWN(results), .type = SETTING_TEXT, .value = "NAME", .help = "add an entry to the queue's stream results:NAME when it is finished; not with --wait"},
};
/* clang-format on */

/* True if all texts are one request. */
static bool is_one(const struct submit_options *own)
{
    return own->inputs || own->task == TASK_RERANK;
}

/* A command under construction: pointers into the caller's strings. */
struct words {
    const char *bytes[WORDS_MAX];
    size_t lengths[WORDS_MAX];
    size_t count;
};

static void add_word(struct words *words, const char *bytes, size_t length)
{
    words->bytes[words->count] = bytes;
    words->lengths[words->count++] = length;
}

static void add_field(struct words *words, const char *name, const char *value)
{
    add_word(words, name, strlen(name));
    add_word(words, value, strlen(value));
}

/* Buffers for the options that become numbers. */
struct numbers {
    char ttl[24], delay[24], expires_in[24], max_attempts[24], top_n[24], notify[80];
};

static void duration_field(struct words *words, const char *name, const char *span, char number[24])
{
    uint64_t ms;
    if (!span || !duration_parse(span, &ms)) { return; }
    snprintf(number, 24, "%llu", (unsigned long long)ms);
    add_field(words, name, number);
}

static void option_fields(const struct submit_options *options, struct words *words, struct numbers *numbers)
{
    snprintf(numbers->ttl, sizeof numbers->ttl, "%lld", (long long)options->ttl);
    snprintf(numbers->max_attempts, sizeof numbers->max_attempts, "%lld", (long long)options->max_attempts);
    snprintf(numbers->notify, sizeof numbers->notify, "stream:%s", options->results ? options->results : "");
    snprintf(numbers->top_n, sizeof numbers->top_n, "%lld", (long long)options->top_n);
    if (options->task != TASK_EMBED) { add_field(words, "task", task_names[options->task]); }
    const struct {
        const char *name, *value;
    } given[] = {{"query", options->query},
                 {"max_tokens", options->max_tokens},
                 {"temperature", options->temperature},
                 {"seed", options->seed},
                 {"top_k", options->top_k},
                 {"top_p", options->top_p},
                 {"min_p", options->min_p},
                 {"repetition_penalty", options->repetition_penalty},
                 {"logprobs", options->logprobs},
                 {"stop", options->stop},
                 {"id", options->id},
                 {"tenant", options->tenant},
                 {"meta", options->meta}};
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        if (given[i].value) { add_field(words, given[i].name, given[i].value); }
    }
    if (options->top_n > 0) { add_field(words, "top_n", numbers->top_n); }
    if (options->raw) { add_field(words, "raw", "1"); }
    if (options->encoding != 0) { add_field(words, "encoding", encoding_words[options->encoding]); }
    if (options->ttl > 0) { add_field(words, "ttl", numbers->ttl); }
    if (options->max_attempts > 0) { add_field(words, "max_attempts", numbers->max_attempts); }
    duration_field(words, "delay", options->delay, numbers->delay);
    duration_field(words, "expires_in", options->expires_in, numbers->expires_in);
    if (options->wait || options->results) { add_field(words, "notify", options->wait ? "1" : numbers->notify); }
}

enum { PATIENCE_MS = 2000, PIPELINE = 256 };

struct submission {
    const struct submit_options *own;
    struct session session;
    char names[PIPELINE][REQUEST_NAME_MAX];
    unsigned sent, failed;
    char stream[40], seen[ENTRY_ID_TEXT]; /* --stream: the stream of tokens, and its last entry that was read */
    struct buffer inputs;                 /* if all texts are one request: the JSON array so far */
    bool looked;                          /* look_for_workers was called */
};

/* Sends the XADD of one request; `name` is `text`, `prompt` or `inputs`. The answer is the entry's id. Errors: as
 * client_send. */
static enum status submit_send(const struct submission *submission, const char *name, const char *value, size_t length,
                               struct err *err)
{
    char stream[SESSION_KEY];
    struct words words = {.count = 0};
    struct numbers numbers;
    add_field(&words, "XADD", session_key(&submission->session, class_streams[submission->own->class], "", stream));
    add_word(&words, "*", 1);
    add_word(&words, name, strlen(name));
    add_word(&words, value, length);
    option_fields(submission->own, &words, &numbers);
    if (submission->own->stream) { add_field(&words, "stream", submission->stream); }
    return client_send(submission->session.client, words.count, words.bytes, words.lengths, 0, err);
}

/* The id of the reply: the producer's id, else the request's name. */
static const char *reply_id(const struct submission *submission, const char *name)
{
    return submission->own->id ? submission->own->id : name;
}

static enum status receive_id(struct submission *submission, char name[REQUEST_NAME_MAX], struct err *err)
{
    const struct resp_value *answer;
    TRY(client_receive(submission->session.client, &answer, err));
    if (!answer->bytes) { return err_set(err, STATUS_INTERNAL, "XADD answered something else than an id"); }
    snprintf(name, REQUEST_NAME_MAX, "%s%s", class_prefixes[submission->own->class], answer->bytes);
    if (!submission->own->wait && !submission->own->stream) { puts(reply_id(submission, name)); }
    return STATUS_OK;
}

/* Reports if no worker has published anything since the request arrived, by Redis' clock; workers publish each second.
 */
static void look_for_workers(struct submission *submission, const char *name)
{
    enum request_class class;
    struct entry_id id;
    struct err err;
    char key[SESSION_KEY];
    const struct resp_value *answer;
    submission->looked = true;
    session_key(&submission->session, "meta", "", key);
    if (SESSION_ASK(&submission->session, &answer, &err, "HGET", key, "published_at") ||
        !request_name_parse(name, strlen(name), &class, &id)) {
        return; /* the wait itself reports problems with Redis */
    }
    if (!answer->bytes || strtoull(answer->bytes, NULL, 10) < id.ms) {
        fprintf(stderr, "sluice submit: no worker seems to be running on queue %s; waiting on, for up to %lld s\n",
                submission->session.queue, (long long)submission->own->timeout_s);
    }
}

/* Waits for the request's wake token, which is its name. Other tokens at that key belong to earlier requests with this
 * id. */
static enum status wait_token(struct submission *submission, const char *name, bool *came, struct err *err)
{
    char wake[SESSION_KEY], seconds[24];
    session_key(&submission->session, "wake:", reply_id(submission, name), wake);
    uint64_t now_ms = clock_now_ms(), ends_ms = now_ms + (uint64_t)submission->own->timeout_s * 1000;
    *came = false;
    for (; !*came && now_ms < ends_ms; now_ms = clock_now_ms()) {
        uint64_t wait_ms = ends_ms - now_ms;
        if (!submission->looked && wait_ms > PATIENCE_MS) { wait_ms = PATIENCE_MS; }
        snprintf(seconds, sizeof seconds, "%.3f", (double)wait_ms / 1000);
        const char *const wait[] = {"BLPOP", wake, seconds};
        const struct resp_value *answer;
        TRY(client_send(submission->session.client, 3, wait, NULL, (uint32_t)wait_ms, err));
        TRY(client_receive(submission->session.client, &answer, err));
        *came = answer->type == RESP_ARRAY && answer->count == 2 && resp_equals(&answer->items[1], name);
        if (!*came && !submission->looked && wait_ms == PATIENCE_MS) { look_for_workers(submission, name); }
    }
    return STATUS_OK;
}

/* Waits for a request and prints its reply; without a token, only a reply that names this request. */
static enum status wait_reply(struct submission *submission, const char *name, struct err *err)
{
    bool told;
    const char *id = reply_id(submission, name);
    char key[SESSION_KEY];
    const struct resp_value *reply;
    TRY(wait_token(submission, name, &told, err));
    session_key(&submission->session, "reply:", id, key);
    TRY(SESSION_ASK(&submission->session, &reply, err, "HGETALL", key));
    const struct resp_value *end = resp_field(reply, "status"), *info = resp_field(reply, "info");
    char entry[REQUEST_NAME_MAX] = "";
    if (info) { (void)json_member_text(info->bytes, info->length, "entry", entry, sizeof entry); }
    if (!end || (!told && strcmp(entry, name) != 0)) {
        return err_set(err, STATUS_TIMEOUT,
                       "no reply for %s within %lld s; is a daemon running on queue %s, neither quiet nor paused? "
                       "(sluice get %s asks again)",
                       id, (long long)submission->own->timeout_s, submission->session.queue, id);
    }
    submission->failed += !resp_equals(end, "done");
    return print_reply(id, reply, err);
}

/* Prints what an entry of the stream of tokens adds to a request's text. An index that was there before is skipped:
 * Redis had lost its last writes. `*ended`: it is the last one. */
static void print_tokens(struct submission *submission, const char *name, const struct resp_value *fields,
                         uint64_t *next, bool *ended)
{
    const struct resp_value *entry = resp_field(fields, "entry"), *text = resp_field(fields, "text");
    const struct resp_value *index = resp_field(fields, "index"), *tokens = resp_field(fields, "tokens");
    const struct resp_value *end = resp_field(fields, "status");
    uint64_t at, count;
    if (!entry || !resp_equals(entry, name)) { return; }
    if (end) {
        *ended = true;
        puts("");
        if (resp_equals(end, "done")) { return; }
        const struct resp_value *code = resp_field(fields, "code"), *message = resp_field(fields, "message");
        fprintf(stderr, "sluice submit: %s: %s%s%s\n", name, code ? code->bytes : end->bytes, message ? ": " : "",
                message ? message->bytes : "");
        submission->failed++;
    } else if (text && index && tokens && decimal_parse(index->bytes, index->length, &at) &&
               decimal_parse(tokens->bytes, tokens->length, &count) && at >= *next) {
        *next = at + count;
        fwrite(text->bytes, 1, text->length, stdout);
    }
    fflush(stdout);
}

/* Prints the entries of an answer to XREAD that belong to a request. */
static void print_entries(struct submission *submission, const char *name, const struct resp_value *answer,
                          uint64_t *next, bool *ended)
{
    const struct resp_value *stream = answer->type == RESP_ARRAY && answer->count == 1 ? &answer->items[0] : NULL;
    const struct resp_value *entries = stream && stream->count == 2 ? &stream->items[1] : NULL;
    for (size_t i = 0; entries && i < entries->count && !*ended; i++) {
        struct entry_id id;
        if (entries->items[i].count != 2 || !resp_entry_id(&entries->items[i].items[0], &id)) { continue; }
        entry_id_format(id, submission->seen);
        print_tokens(submission, name, &entries->items[i].items[1], next, ended);
    }
}

/* Prints a request's text as it is written. */
static enum status follow_text(struct submission *submission, const char *name, struct err *err)
{
    char key[SESSION_KEY], block[24];
    uint64_t next = 0, timeout_ms = (uint64_t)submission->own->timeout_s * 1000, waited_ms = 0;
    bool ended = false;
    session_key(&submission->session, "tokens:", submission->stream, key);
    while (!ended && waited_ms < timeout_ms) {
        uint64_t wait_ms = timeout_ms - waited_ms < PATIENCE_MS ? timeout_ms - waited_ms : PATIENCE_MS;
        snprintf(block, sizeof block, "%llu", (unsigned long long)wait_ms);
        const char *const read[] = {"XREAD", "BLOCK", block, "STREAMS", key, submission->seen};
        const struct resp_value *answer;
        TRY(client_send(submission->session.client, 6, read, NULL, (uint32_t)wait_ms, err));
        TRY(client_receive(submission->session.client, &answer, err));
        waited_ms = answer->type == RESP_ARRAY ? 0 : waited_ms + wait_ms;
        print_entries(submission, name, answer, &next, &ended);
        if (waited_ms > 0 && !submission->looked) { look_for_workers(submission, name); }
    }
    if (ended) { return STATUS_OK; }
    return err_set(
        err, STATUS_TIMEOUT,
        "no more of the text of %s within %lld s; is a daemon running on queue %s, neither quiet nor paused? "
        "(sluice get %s asks for its reply)",
        name, (long long)submission->own->timeout_s, submission->session.queue, reply_id(submission, name));
}

/* Receives the ids of all requests sent, and with --wait the replies, with --stream the texts. */
static enum status flush_submission(struct submission *submission, struct err *err)
{
    enum status status = STATUS_OK;
    for (unsigned i = 0; i < submission->sent && status == STATUS_OK; i++) {
        status = receive_id(submission, submission->names[i], err);
    }
    for (unsigned i = 0; submission->own->wait && i < submission->sent && status == STATUS_OK; i++) {
        status = wait_reply(submission, submission->names[i], err);
    }
    for (unsigned i = 0; submission->own->stream && i < submission->sent && status == STATUS_OK; i++) {
        status = follow_text(submission, submission->names[i], err);
    }
    submission->sent = 0;
    return status;
}

/* Submits all texts as one request. */
static enum status submit_inputs(struct submission *submission, struct err *err)
{
    struct buffer *inputs = &submission->inputs;
    if (inputs->length == 0) { return STATUS_OK; }
    buffer_append(inputs, "]", 1);
    if (!buffer_ok(inputs)) { return err_set(err, STATUS_NO_MEMORY, "no memory for the texts"); }
    TRY(submit_send(submission, "inputs", inputs->data, inputs->length, err));
    submission->sent++;
    return STATUS_OK;
}

static enum status submit_text(struct submission *submission, const char *text, size_t length, struct err *err)
{
    if (is_one(submission->own)) {
        buffer_string(&submission->inputs, submission->inputs.length == 0 ? "[" : ",");
        buffer_json_string(&submission->inputs, text, length);
        return STATUS_OK;
    }
    const char *name = submission->own->task == TASK_GENERATE ? "prompt" : "text";
    enum status status = submit_send(submission, name, text, length, err);
    if (status == STATUS_OK && ++submission->sent == (submission->own->stream ? 1 : PIPELINE)) {
        status = flush_submission(submission, err);
    }
    return status;
}

static enum status submit_lines(struct submission *submission, const char *path, struct err *err)
{
    struct reader reader;
    struct record line;
    enum status status = reader_open(&reader, path, TEXT_MAX_BYTES, NULL, err);
    if (status != STATUS_OK) { return status; }
    while ((status = reader_text(&reader, &line, err)) == STATUS_OK && line.bytes) {
        if (submission->own->id && line.line > 1 && !is_one(submission->own)) {
            status = err_set(err, STATUS_BAD_INPUT, "--id names one request, but %s has more lines",
                             stream_name(reader.stream));
            break;
        }
        status = submit_text(submission, line.bytes, line.length, err);
        if (status != STATUS_OK) { break; }
    }
    reader_close(&reader);
    return status;
}

static enum status submit_all(struct submission *submission, const struct invocation *invocation, struct err *err)
{
    enum status status = STATUS_OK;
    if (invocation->operand_count == 0) {
        status = submit_lines(submission, submission->own->input ? submission->own->input : "-", err);
    }
    for (size_t i = 0; i < invocation->operand_count && status == STATUS_OK; i++) {
        const char *text = invocation->operands[i];
        if (!utf8_valid(text, strlen(text))) {
            status = err_set(err, STATUS_BAD_INPUT, "text %zu is not UTF-8", i + 1);
        } else {
            status = submit_text(submission, text, strlen(text), err);
        }
    }
    if (status == STATUS_OK) { status = submit_inputs(submission, err); }
    struct err first = *err;
    enum status rest = flush_submission(submission, err); /* requests before a bad line have ids, too */
    if (status != STATUS_OK) { *err = first; }
    return status != STATUS_OK ? status : rest;
}

static int check_usage(const struct invocation *invocation)
{
    const struct submit_options *own = invocation->own;
    const char *problem = NULL;
    if (own->input && invocation->operand_count > 0) {
        problem = "texts and --input were both given; which one?";
    } else if (own->wait && own->results) {
        problem = "--wait needs the wake token, so --results cannot be told too";
    } else if (own->wait && own->stream) {
        problem = "--wait and --stream were both given; print replies, or texts as they are written?";
    } else if (own->id && invocation->operand_count > 1 && !is_one(own)) {
        problem = "--id names one request, but there are several texts";
    }
    if (problem) { fprintf(stderr, "sluice submit: %s\n", problem); }
    return problem ? EX_USAGE : EX_OK;
}

static int run_submit(struct invocation *invocation)
{
    struct err err = {0};
    struct submission submission = {.own = invocation->own, .stream = "submit-", .seen = "0-0"};
    if (check_usage(invocation) != EX_OK || !invocation_is_one(invocation)) { return EX_USAGE; }
    enum status status = invocation_connect(&submission.session, invocation, &err);
    queue_put_random(submission.stream + strlen(submission.stream), 8);
    if (status == STATUS_OK) {
        invocation_warn_unused(&submission.session, invocation);
        status = submit_all(&submission, invocation, &err);
    }
    buffer_free(&submission.inputs);
    session_close(&submission.session);
    if (status != STATUS_OK) { return print_error(invocation, &err); }
    return submission.failed == 0 ? EX_OK : EX_DATAERR;
}

const struct subcommand command_submit = {
    .name = "submit",
    .bit = FOR_SUBMIT,
    .operands = "[TEXT...]",
    .summary = "Enqueue texts and print their ids, or with --wait their replies",
    .explanation =
        "Each TEXT is a request (with --inputs, all of them are one); without one, each line of --input or of\n"
        "standard input is. With --wait each reply is a line of JSON; exit 65 when one of them is an error, also with "
        "--stream.",
    OWN_OPTIONS(own_settings, struct submit_options),
    .run = run_submit,
};
