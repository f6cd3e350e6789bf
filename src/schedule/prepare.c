/* Tokenising, and the errors of producers about length. One block of memory per request holds the ids and vectors of
 * all rows. It is allocated here, not when the entry is read, so a backlog costs only its texts. */
#include "schedule/prepare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/random.h"
#include "schedule/reply.h"

/* Fails a row with a message that names its field. */
static void fail_row(struct request *request, const struct row *row, enum reply_code code, const char *what)
{
    uint32_t index = (uint32_t)(row - request->rows);
    if (request->inputs) {
        request_fail_row(request, index, code, "inputs: text %u: %.200s", index, what);
    } else {
        request_fail_row(request, index, code, "text: %.200s", what);
    }
}

static void fail_encode(struct request *request, const struct row *row, enum status status, const struct err *err)
{
    enum reply_code code = status == STATUS_NO_MEMORY   ? CODE_OUT_OF_MEMORY
                           : status == STATUS_BAD_INPUT ? CODE_BAD_UTF8
                                                        : CODE_INTERNAL;
    fail_row(request, row, code, err->message);
}

/* The error says how many tokens a too long text needs. */
static void fail_too_long(struct request *request, const struct row *row, const char *text, size_t length,
                          const struct tokenizer *tokenizer)
{
    char what[120];
    size_t bound = tokenizer_bound(tokenizer, length);
    uint32_t most = bound < UINT32_MAX ? (uint32_t)bound : UINT32_MAX;
    int32_t *ids = malloc(most * sizeof(*ids));
    uint32_t count = 0;
    bool truncated;
    struct err err;
    if (!ids || tokenizer_encode(tokenizer, text, length, most, ids, &count, &truncated, &err) != STATUS_OK) {
        snprintf(what, sizeof what, "more than the %u tokens that the model takes, and truncate is 0",
                 request->max_tokens);
    } else {
        snprintf(what, sizeof what, "%u tokens, the model takes %u, and truncate is 0", count, request->max_tokens);
    }
    free(ids);
    fail_row(request, row, CODE_TOO_LONG, what);
}

/* The ids of a request's query, made once for all of its rows. */
struct query {
    int32_t *ids; /* [count]; NULL: there is none */
    uint32_t count;
};

static size_t row_capacity(const struct request *request, const struct row *row, const struct query *query,
                           const struct model *model)
{
    size_t bound = query->ids ? tokenizer_pair_bound(model->tokenizer, query->count, (size_t)row->text_bytes)
                              : tokenizer_bound(model->tokenizer, request->prompt_bytes + (size_t)row->text_bytes);
    return bound < request->max_tokens ? bound : request->max_tokens;
}

/* Tokenises a pair. Its token types are kept only for a model that has several. */
static void tokenize_pair(struct request *request, struct row *row, const struct query *query,
                          const struct model *model)
{
    struct err err = {0};
    uint32_t most = (uint32_t)row_capacity(request, row, query, model);
    enum status status = tokenizer_encode_pair(model->tokenizer, query->ids, query->count, row->text, row->text_bytes,
                                               most, row->ids, &row->tokens, &row->second, &row->truncated, &err);
    if (!model->head.pair_types) { row->second = 0; }
    row->tokens = model_head_tokens(model, row->ids, row->tokens);
    if (status != STATUS_OK) {
        fail_encode(request, row, status, &err);
    } else if (row->truncated && !request->truncate) {
        fail_row(request, row, CODE_TOO_LONG, "with the query more tokens than the model takes, and truncate is 0");
    }
    row->hash = XXH3_64bits(row->ids, row->tokens * sizeof(*row->ids));
}

static void tokenize_row(struct request *request, struct row *row, const struct query *none, const struct model *model)
{
    struct buffer prompted = {0};
    const char *text = row->text;
    size_t length = row->text_bytes;
    struct err err = {0};
    if (prompt_put(request->prompt, request->prompt_bytes, &prompted, &text, &length, &err) != STATUS_OK) {
        buffer_free(&prompted);
        fail_row(request, row, CODE_OUT_OF_MEMORY, err.message);
        return;
    }
    uint32_t most = (uint32_t)row_capacity(request, row, none, model);
    enum status status =
        tokenizer_encode(model->tokenizer, text, length, most, row->ids, &row->tokens, &row->truncated, &err);
    if (status != STATUS_OK) {
        fail_encode(request, row, status, &err);
    } else if (row->truncated && !request->truncate) {
        fail_too_long(request, row, text, length, model->tokenizer);
    } else if (row->tokens == 0) {
        fail_row(request, row, CODE_BAD_REQUEST, "has no tokens");
    }
    row->tokens = model_head_tokens(model, row->ids, row->tokens);
    row->hash = XXH3_64bits(row->ids, row->tokens * sizeof(*row->ids));
    buffer_free(&prompted);
}

/* The block has the vectors first, then each row's ids. The ids move while it grows, so pointers are set at the end. */
static void tokenize_rows(struct request *request, const struct query *query, const struct model *model)
{
    struct buffer work = {0};
    size_t floats = (size_t)request->row_count * request->dim;
    (void)buffer_reserve(&work, floats * sizeof(float) + 1); /* never of size 0 */
    work.length = floats * sizeof(float);
    for (uint32_t i = 0; i < request->row_count && request->retry.code == CODE_NONE; i++) {
        struct row *row = &request->rows[i];
        row->ids = (int32_t *)(void *)buffer_reserve(&work, row_capacity(request, row, query, model) * sizeof(int32_t));
        if (!row->ids) { break; }
        if (query->ids) {
            tokenize_pair(request, row, query, model);
        } else {
            tokenize_row(request, row, query, model);
        }
        work.length += row->tokens * sizeof(int32_t);
    }
    if (!buffer_ok(&work)) {
        buffer_free(&work);
        request_fail(request, CODE_OUT_OF_MEMORY, "no memory for the tokens");
        return;
    }
    char *trimmed = realloc(work.data, work.length + 1);
    float *outputs = (float *)(void *)(trimmed ? trimmed : work.data);
    int32_t *next = (int32_t *)(outputs + floats);
    for (uint32_t i = 0; i < request->row_count; i++) {
        request->rows[i].output = outputs + (size_t)i * request->dim;
        request->rows[i].ids = next;
        next += request->rows[i].tokens;
    }
    request->work = outputs;
}

/* Appends the tokens of a row to the reply. False: the request has failed. */
static bool put_row(struct request *request, struct row *row, const struct model *model)
{
    struct buffer prompted = {0}, *reply = &request->output.reply;
    struct tokenizer_token *tokens = NULL;
    const char *text = row->text;
    size_t length = row->text_bytes;
    struct err err = {0};
    enum status status = prompt_put(request->prompt, request->prompt_bytes, &prompted, &text, &length, &err);
    if (status == STATUS_OK) {
        status =
            tokenizer_tokens(model->tokenizer, text, length, request->output.specials, &tokens, &row->tokens, &err);
    }
    if (status == STATUS_UNSUPPORTED) {
        fail_row(request, row, CODE_BAD_REQUEST, err.message);
    } else if (status != STATUS_OK) {
        fail_encode(request, row, status, &err);
    } else if (!reply_put_tokens(reply, request, model->tokenizer, text, tokens, row->tokens)) {
        fail_row(request, row, buffer_ok(reply) ? CODE_TOO_LARGE : CODE_OUT_OF_MEMORY,
                 buffer_ok(reply) ? "its tokens have too much text in common" : "no memory for the reply");
    }
    free(tokens);
    buffer_free(&prompted);
    return request->retry.code == CODE_NONE;
}

static void put_rows(struct request *request, const struct model *model)
{
    struct buffer *reply = &request->output.reply;
    buffer_free(reply);
    if (request->inputs) { buffer_string(reply, "["); }
    for (uint32_t i = 0; i < request->row_count; i++) {
        if (i > 0) { buffer_string(reply, ","); }
        if (!put_row(request, &request->rows[i], model)) { break; }
    }
    if (request->inputs) { buffer_string(reply, "]"); }
    if (!buffer_ok(reply)) { request_fail(request, CODE_OUT_OF_MEMORY, "no memory for the reply"); }
    if (request->retry.code != CODE_NONE) { buffer_free(reply); }
}

/* --- the prompt of a text to write --- */

/* A request without a seed draws by its name, so that it writes the same text whenever it is computed. */
static void prepare_writing(struct request *request, const struct model *model)
{
    struct writing *writing = request->writing;
    struct row *row = &request->rows[0];
    const char *field = writing->messages ? "messages" : "prompt";
    int32_t *ids = NULL;
    struct err err = {0};
    enum status status;
    bool truncated; /* it then has as many tokens as the model takes, which are too many, too */
    if (writing->messages) {
        status = model_encode_messages(model, row->text, row->text_bytes, &ids, &row->tokens, &err);
    } else {
        status = model_encode_prompt(model, row->text, row->text_bytes, &ids, &row->tokens, &truncated, &err);
    }
    free(request->work);
    request->work = ids;
    row->ids = ids;
    row->output = (float *)(void *)ids; /* of no floats */
    if (status != STATUS_OK) {
        enum reply_code code = status == STATUS_NO_MEMORY ? CODE_OUT_OF_MEMORY : CODE_BAD_REQUEST;
        request_fail(request, code, "%s: %.200s", field, err.message);
    } else if (row->tokens == 0) {
        request_fail(request, CODE_BAD_REQUEST, "%s: has no tokens", field);
    } else if (row->tokens >= request->max_tokens) {
        request_fail(request, CODE_TOO_LONG, "%s: the model takes %u tokens, with those that it writes", field,
                     request->max_tokens);
    }
    if (request->output.stream[0] && !writing->stream && token_stream_open(&writing->stream, &err) != STATUS_OK) {
        request_fail(request, CODE_OUT_OF_MEMORY, "%s", err.message);
    }
    uint64_t seed =
        writing->seeded ? writing->sampling.seed : XXH3_64bits(request->identity.name, strlen(request->identity.name));
    writing->sampling.seed = random_next(&seed);
}

void prepare_request(struct request *request, const struct model *model)
{
    if (request->task == TASK_GENERATE) {
        prepare_writing(request, model);
        return;
    }
    struct query query = {0};
    struct err err = {0};
    if (!request->prompt && model->prompt) {
        request->prompt = model->prompt;
        request->prompt_bytes = (uint32_t)strlen(model->prompt);
    }
    if (request->task == TASK_TOKENIZE) {
        put_rows(request, model);
        return;
    }
    enum status status = request->query ? tokenizer_encode_whole(model->tokenizer, request->query, request->query_bytes,
                                                                 &query.ids, &query.count, &err)
                                        : STATUS_OK;
    if (status == STATUS_OK) {
        tokenize_rows(request, &query, model);
    } else {
        request_fail(request, status == STATUS_NO_MEMORY ? CODE_OUT_OF_MEMORY : CODE_INTERNAL, "query: %.200s",
                     err.message);
    }
    free(query.ids);
}
