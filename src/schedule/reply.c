/* The content of a reply: from a request's rows to its bytes. The vectors are cut to the asked length and moved
 * together, so that every encoding sees one run of floats, row-major. */
#include "schedule/reply.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/float_text.h"
#include "base/half.h"
#include "base/json.h"
#include "engine/vector.h"
#include "model/model.h"
#include "schedule/encodings.h"

/* --- The JSON of a text and its score --- */

static int best_first(const void *left, const void *right)
{
    const struct scored *a = left, *b = right;
    if (a->score != b->score) { return a->score > b->score ? -1 : 1; }
    return a->index < b->index ? -1 : 1;
}

struct scored *reply_sort_scores(const float *scores, uint32_t count, struct buffer *to)
{
    struct scored *sorted = malloc(count * sizeof *sorted);
    for (uint32_t i = 0; sorted && i < count; i++) { sorted[i] = (struct scored){i, scores[i]}; }
    if (sorted) { qsort(sorted, count, sizeof *sorted, best_first); }
    to->broken |= !sorted;
    return sorted;
}

static void put_float(struct buffer *to, float value)
{
    char text[FLOAT_TEXT_MAX];
    buffer_append(to, text, float_text_put(text, value));
}

void reply_put_score(struct buffer *to, uint64_t index, float score)
{
    buffer_format(to, "{\"index\":%" PRIu64 ",\"score\":", index);
    put_float(to, score);
    buffer_string(to, "}");
}

void reply_put_labels(struct buffer *to, const struct model_head *head, const float *scores)
{
    struct scored *sorted = reply_sort_scores(scores, head->labels, to);
    for (uint32_t i = 0; sorted && i < head->labels; i++) {
        const char *name = head->names[sorted[i].index];
        buffer_string(to, i == 0 ? "[{\"label\":" : ",{\"label\":");
        buffer_json_string(to, name, strlen(name));
        buffer_string(to, ",\"score\":");
        put_float(to, sorted[i].score);
        buffer_string(to, "}");
    }
    buffer_string(to, "]");
    free(sorted);
}

/* --- The contents of a reply: the most room that one takes, and how it is written --- */

/* Scores are one run, in the order of the documents. */
static struct vector_run run_of(const struct request *request)
{
    bool scores = request->task == TASK_RERANK;
    return (struct vector_run){.floats = request->row_count > 0 ? request->rows[0].output : NULL,
                               .rows = scores ? 1 : request->row_count,
                               .dims = scores ? request->row_count : request->output.dims,
                               .nested = request->inputs && !scores};
}

static size_t floats_room(const struct request *request)
{
    struct vector_run run = run_of(request);
    return encoding_room(request->output.encoding, &run);
}

static void put_vectors(struct buffer *to, const struct request *request)
{
    struct vector_run run = run_of(request);
    char *start = buffer_reserve(to, floats_room(request));
    if (start) { to->length = (size_t)(encoding_put(request->output.encoding, &run, start) - start); }
}

static uint32_t top_count(const struct request *request)
{
    return request->output.top_n < request->row_count ? request->output.top_n : request->row_count;
}

static size_t top_room(const struct request *request)
{
    return 4 + top_count(request) * (sizeof "{'index':4294967295,'score':}," + FLOAT_TEXT_MAX);
}

static void put_top(struct buffer *to, const struct request *request)
{
    struct scored *sorted = reply_sort_scores(request->rows[0].output, request->row_count, to);
    buffer_string(to, "[");
    for (uint32_t i = 0; sorted && i < top_count(request); i++) {
        if (i > 0) { buffer_string(to, ","); }
        reply_put_score(to, sorted[i].index, sorted[i].score);
    }
    buffer_string(to, "]");
    free(sorted);
}

static size_t labels_room(const struct request *request)
{
    enum { ESCAPE = 6 }; /* \u0001 */
    size_t most = 4;
    for (uint32_t i = 0; i < request->head->labels; i++) {
        most += ESCAPE * strlen(request->head->names[i]) + sizeof "{'label':'','score':}," + FLOAT_TEXT_MAX;
    }
    return 4 + most * request->row_count;
}

/* Shapes: one text is an array, `inputs` are an array of arrays. */
static void put_labels(struct buffer *to, const struct request *request)
{
    if (request->inputs) { buffer_string(to, "["); }
    for (uint32_t r = 0; r < request->row_count; r++) {
        if (r > 0) { buffer_string(to, ","); }
        reply_put_labels(to, request->head, request->rows[0].output + (size_t)r * request->head->labels);
    }
    if (request->inputs) { buffer_string(to, "]"); }
}

/* Room for a token of each byte. Tokens that have longer texts in common may need more. */
static size_t tokens_room(const struct request *request)
{
    enum { SPECIALS = 4096 };
    const size_t most = sizeof "{'id':123456789,'text':'\\u0001','special':false,'start':123456789,'stop':123456789},";
    size_t room = 64;
    for (uint32_t i = 0; i < request->row_count; i++) {
        room += SPECIALS + most * ((size_t)request->rows[i].text_bytes + request->prompt_bytes);
    }
    return room;
}

bool reply_put_tokens(struct buffer *to, const struct request *request, const struct tokenizer *tokenizer,
                      const char *text, const struct tokenizer_token *tokens, uint32_t count)
{
    size_t room = reply_room(request);
    buffer_string(to, "[");
    for (uint32_t i = 0; i < count && buffer_ok(to) && to->length < room; i++) {
        const struct tokenizer_token *token = &tokens[i];
        size_t length = token->until - token->from;
        const char *bytes = token->special ? tokenizer_token_name(tokenizer, token->id, &length) : text + token->from;
        if (length > room) { return false; }
        buffer_format(to, "%s{\"id\":%d,\"text\":", i > 0 ? "," : "", token->id);
        buffer_json_string(to, bytes, length);
        if (token->special) {
            buffer_string(to, ",\"special\":true,\"start\":null,\"stop\":null}");
        } else {
            buffer_format(to, ",\"special\":false,\"start\":%u,\"stop\":%u}", token->from, token->until);
        }
    }
    buffer_string(to, "]");
    return buffer_ok(to) && to->length <= room;
}

size_t reply_most_tokens(const struct request *request)
{
    uint32_t wished = request->writing->max_tokens;
    return wished > 0 && wished < request->max_tokens ? wished : request->max_tokens;
}

size_t reply_length(const struct request *request)
{
    bool tokens = request->writing && request->retry.code == CODE_NONE;
    return request->output.reply.length + (tokens ? request->writing->logprobs.length : 0);
}

/* A token is seldom more than 16 bytes of text, and 64 with its logprob. */
static size_t text_room(const struct request *request)
{
    enum { TOKEN_BYTES = 16, LOGPROB_BYTES = 64 };
    uint32_t top = request->writing->top_logprobs;
    size_t logprobs = top > 0 ? 1 + (size_t)top : 0;
    return reply_most_tokens(request) * (TOKEN_BYTES + logprobs * LOGPROB_BYTES);
}

static void put_text(struct buffer *to, const struct request *request)
{
    buffer_append(to, request->writing->text.data, request->writing->text.length);
}

/* By task; the last is for TASK_RERANK with top_n. To add a content of replies: a row, and its two functions. */
static const struct form {
    const char *field; /* of the reply */
    size_t (*room)(const struct request *request);
    void (*put)(struct buffer *to, const struct request *request);
} forms[TASK_COUNT + 1] = {
    [TASK_EMBED] = {"embedding", floats_room, put_vectors},
    [TASK_RERANK] = {"scores", floats_room, put_vectors},
    [TASK_CLASSIFY] = {"labels", labels_room, put_labels},
    [TASK_TOKENIZE] = {"tokens", tokens_room, NULL}, /* prepare.c writes them */
    [TASK_GENERATE] = {"text", text_room, put_text},
    [TASK_COUNT] = {"top", top_room, put_top},
};

static const struct form *form_of(const struct request *request)
{
    return &forms[request->output.top_n > 0 ? TASK_COUNT : request->task];
}

const char *reply_field(const struct request *request)
{
    return form_of(request)->field;
}

size_t reply_room(const struct request *request)
{
    return form_of(request)->room(request);
}

size_t reply_bound(const struct request *request)
{
    size_t bound = 64, room = reply_room(request);
    while (bound < room) { bound *= 2; } /* as a buffer grows */
    return bound;
}

/* --- info --- */

double reply_first_token_ms(const struct request *request)
{
    uint64_t seen_ms = request->identity.seen_ms, first_ms = request->identity.first_ms;
    double unread_ms = seen_ms > first_ms ? (double)(seen_ms - first_ms) : 0;
    return unread_ms + (double)(request->writing->first_ns - request->lifetime.received_ns) / (double)NS_PER_MS;
}

static void put_compute_info(struct buffer *to, const struct request *request)
{
    buffer_json(to, ",'compute_ms':%.3f",
                (double)(request->lifetime.computed_ns - request->lifetime.started_ns) / (double)NS_PER_MS);
    if (request->retry.attempt > 1) { buffer_json(to, ",'attempts':%u", request->retry.attempt); }
}

static void put_writing_info(struct buffer *to, const struct request *request)
{
    const struct writing *writing = request->writing;
    buffer_json(to, ",'finish_reason':%s,'prompt_tokens':%u,'completion_tokens':%u,'ttft_ms':%.3f",
                finish_reason_name(writing->finish), request->rows[0].tokens, writing->completion_tokens,
                reply_first_token_ms(request));
    if (writing->top_logprobs > 0) {
        buffer_string(to, ",\"logprobs\":");
        buffer_append(to, writing->logprobs.data, writing->logprobs.length);
    }
    put_compute_info(to, request);
}

static void put_result_info(struct buffer *to, const struct request *request)
{
    uint64_t tokens = 0;
    bool truncated = false;
    for (uint32_t i = 0; i < request->row_count; i++) {
        tokens += request->rows[i].tokens;
        truncated = truncated || request->rows[i].truncated;
    }
    buffer_json(to, ",'encoding':%s", encoding_name(request->output.encoding));
    if (request->task == TASK_EMBED) { buffer_json(to, ",'dim':%u", request->output.dims); }
    if (request->inputs) { buffer_json(to, ",'count':%u", request->row_count); }
    buffer_json(to, ",'tokens':%" PRIu64, tokens);
    if (request->inputs) {
        buffer_json(to, ",'row_tokens':[");
        for (uint32_t i = 0; i < request->row_count; i++) { buffer_json(to, ",%u", request->rows[i].tokens); }
        buffer_string(to, "]");
    }
    if (truncated) { buffer_json(to, ",'truncated':true"); }
    put_compute_info(to, request);
}

static void put_error_info(struct buffer *to, const struct request *request)
{
    bool full = request->retry.code == CODE_QUEUE_FULL, retryable = request->retry.retryable || full;
    buffer_json(to, ",'retryable':%hhd,'attempts':%u", retryable, request->retry.attempt);
    if (request->retry.row_failed) { buffer_json(to, ",'index':%u", request->retry.failed_index); }
    if (full) { buffer_json(to, ",'retry_after_ms':%u", request->retry.retry_after_ms); }
}

void reply_put_info(struct buffer *to, const struct request *request)
{
    const struct request_echoes echoes = request_echoes(request);
    if (request->lifetime.outcome == OUTCOME_DONE) {
        (request->task == TASK_GENERATE ? put_writing_info : put_result_info)(to, request);
    } else {
        put_error_info(to, request);
    }
    for (int i = 0; i < REQUEST_ECHOES; i++) {
        if (!echoes.fields[i].bytes) { continue; }
        buffer_json(to, ",%s:%.*s", echoes.fields[i].name, (int)echoes.fields[i].length, echoes.fields[i].bytes);
    }
}

void reply_put_model_info(struct buffer *to, const char *model, const char *revision, const char *precision,
                          const char *engine)
{
    buffer_json(to, ",'model':%.*s,'revision':%.*s", (int)strlen(model), model, (int)strlen(revision), revision);
    if (strcmp(precision, "f32") != 0) { buffer_json(to, ",'precision':%s", precision); }
    if (engine[0]) { buffer_json(to, ",'engine':%s", engine); }
}

/* --- From outputs to the reply --- */

/* Finishes the output of a row in place. */
static void finish_output(const struct request *request, float *output)
{
    if (request->task != TASK_EMBED) {
        enum scoring scoring = request->task == TASK_RERANK ? request->head->score : request->head->classify;
        vector_score(output, request->dim, request->output.raw ? SCORING_NONE : scoring);
    } else if (request->output.normalize) {
        vector_normalize(output, request->output.dims);
    }
}

/* Finishes each row's output, cuts it, and moves all of them together. */
static void finish_outputs(struct request *request)
{
    for (uint32_t r = 0; r < request->row_count; r++) {
        float *output = request->rows[r].output;
        finish_output(request, output);
        memmove(request->rows[0].output + (size_t)r * request->output.dims, output,
                request->output.dims * sizeof(float));
    }
}

static bool check_outputs(struct request *request)
{
    if (request->task == TASK_GENERATE) {
        bool finite = request->writing->finish == FINISH_STOP || request->writing->finish == FINISH_LENGTH;
        if (!finite) { request_fail(request, CODE_NON_FINITE, "the computed logits hold NaN or infinity"); }
        return finite;
    }
    float limit = request->output.encoding == ENCODING_F16 ? HALF_LIMIT : INFINITY;
    for (uint32_t r = 0; r < request->row_count; r++) {
        const float *output = request->rows[0].output + (size_t)r * request->output.dims;
        if (vector_below(output, request->output.dims, limit)) { continue; }
        if (vector_finite(output, request->output.dims)) {
            request_fail_row(request, r, CODE_BAD_REQUEST, "encoding: f16 cannot hold a float of this reply");
        } else {
            request_fail_row(request, r, CODE_NON_FINITE, "the computed %s holds NaN or infinity",
                             request->task == TASK_EMBED ? "vector" : "score");
        }
        return false;
    }
    return true;
}

void reply_format(struct request *request)
{
    buffer_free(&request->output.reply);
    if (request->task != TASK_GENERATE) { finish_outputs(request); }
    if (!check_outputs(request)) { return; }
    form_of(request)->put(&request->output.reply, request);
    if (!buffer_ok(&request->output.reply)) {
        buffer_free(&request->output.reply);
        request_fail(request, CODE_OUT_OF_MEMORY, "no memory for the reply");
    }
}
