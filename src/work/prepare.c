/* Tokenising, with everything that a producer can get wrong about length. One block of memory per request holds the ids
 * and vectors of all rows, made here and not when the entry is read: a backlog costs its texts only. */
#include "work/prepare.h"

#include <stdlib.h>
#include <string.h>

static void fail(struct request *request, enum status status, const struct err *err)
{
    enum reply_code code = status == STATUS_NO_MEMORY   ? CODE_OUT_OF_MEMORY
                           : status == STATUS_BAD_INPUT ? CODE_BAD_UTF8
                                                        : CODE_INTERNAL;
    request_fail(request, code, "text: %.200s", err->message);
}

/* Counts what a too long text would have needed, so that the error can say it. */
static void fail_too_long(struct request *request, const char *text, size_t length, const struct tokenizer *tokenizer)
{
    size_t bound = tokenizer_bound(tokenizer, length);
    uint32_t most = bound < UINT32_MAX ? (uint32_t)bound : UINT32_MAX;
    int32_t *ids = malloc(most * sizeof(*ids));
    uint32_t count = 0;
    bool truncated;
    struct err err;
    if (ids == NULL || tokenizer_encode(tokenizer, text, length, most, ids, &count, &truncated, &err) != STATUS_OK)
        request_fail(request, CODE_TOO_LONG, "text: more than the %u tokens that the model takes, and truncate is 0",
                     request->max_tokens);
    else
        request_fail(request, CODE_TOO_LONG, "text: %u tokens, the model takes %u, and truncate is 0", count,
                     request->max_tokens);
    free(ids);
}

static size_t row_capacity(const struct request *request, const struct row *row, const struct model *model)
{
    size_t prompt = model->prompt == NULL ? 0 : strlen(model->prompt);
    size_t bound = tokenizer_bound(model->tokenizer, prompt + row->text_bytes);
    return bound < request->max_tokens ? bound : request->max_tokens;
}

static void tokenize_row(struct request *request, struct row *row, const struct model *model)
{
    struct buffer prompted = {0};
    const char *text = row->text;
    size_t length = row->text_bytes;
    struct err err = {0};
    if (model_put_prompt(model, &prompted, &text, &length, &err) != STATUS_OK) {
        buffer_free(&prompted);
        request_fail(request, CODE_OUT_OF_MEMORY, "no memory for the text");
        return;
    }
    uint32_t most = (uint32_t)row_capacity(request, row, model);
    enum status status =
        tokenizer_encode(model->tokenizer, text, length, most, row->ids, &row->tokens, &row->truncated, &err);
    if (status != STATUS_OK)
        fail(request, status, &err);
    else if (row->truncated && !request->truncate)
        fail_too_long(request, text, length, model->tokenizer);
    else if (row->tokens == 0)
        request_fail(request, CODE_BAD_REQUEST, "text: has no tokens");
    buffer_free(&prompted);
}

/* Vectors first, then the ids of one row after the other. */
static bool allocate_work(struct request *request, const struct model *model)
{
    size_t floats = (size_t)request->row_count * request->dim, ids = 0;
    for (uint32_t i = 0; i < request->row_count; i++)
        ids += row_capacity(request, &request->rows[i], model);
    float *outputs = malloc(floats * sizeof(*outputs) + ids * sizeof(int32_t) + 1); /* never of size 0 */
    if (outputs == NULL)
        return false;
    int32_t *next = (int32_t *)(outputs + floats);
    for (uint32_t i = 0; i < request->row_count; i++) {
        request->rows[i].output = outputs + (size_t)i * request->dim;
        request->rows[i].ids = next;
        next += row_capacity(request, &request->rows[i], model);
    }
    request->work = outputs;
    return true;
}

void prepare_request(struct request *request, const struct model *model)
{
    if (!allocate_work(request, model)) {
        request_fail(request, CODE_OUT_OF_MEMORY, "no memory for the tokens");
        return;
    }
    for (uint32_t i = 0; i < request->row_count && request->code == CODE_NONE; i++)
        tokenize_row(request, &request->rows[i], model);
}
