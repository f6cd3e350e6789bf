/* Any bytes as the body of a POST; the first byte chooses the dialect. What is accepted is accepted by the workers,
 * too: its texts, put into a list as they came, are good `inputs`. Answers and faults are JSON. */
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "fuzz.h"
#include "gateway/body.h"
#include "gateway/dialect.h"
#include "schedule/inputs.h"

enum { DIM = 2 };

static void check_decoded(struct slice slice)
{
    FUZZ_CHECK(utf8_valid(slice.bytes, slice.length));
}

static void check_texts(const struct call *call, const char *body, size_t length)
{
    struct buffer inputs = {0};
    for (uint32_t i = 0; i < call->text_count; i++) {
        const struct slice *text = &call->texts[i];
        FUZZ_CHECK(text->bytes >= body && text->length <= length && text->bytes + text->length <= body + length);
        buffer_string(&inputs, i == 0 ? "[" : ",");
        buffer_append(&inputs, text->bytes, text->length);
    }
    buffer_string(&inputs, "]");
    struct inputs measured = inputs_measure(inputs.data, inputs.length, CALL_TEXTS_MAX, SIZE_MAX);
    FUZZ_CHECK(measured.problem == INPUTS_OK && measured.count == call->text_count);
    buffer_free(&inputs);
}

static void check_call(const struct call *call, const char *body, size_t length)
{
    FUZZ_CHECK(call->text_count > 0 && call->text_count <= CALL_TEXTS_MAX);
    FUZZ_CHECK(!call->single || call->text_count == 1);
    FUZZ_CHECK(call->model.length <= CALL_NAME_MAX && call->prompt.length <= CALL_NAME_MAX);
    FUZZ_CHECK((call->query.length > 0) == (call->task == TASK_RERANK));
    FUZZ_CHECK(call->stops.length == 0 || json_valid(call->stops.bytes, call->stops.length));
    check_decoded(call->model);
    check_decoded(call->prompt);
    check_decoded(call->query);
    if (call->chat) {
        FUZZ_CHECK(call->text_count == 1 && json_valid(call->texts[0].bytes, call->texts[0].length));
    } else {
        check_texts(call, body, length);
    }
}

static void check_answer(const struct call *call)
{
    struct buffer body = {0}, lists = {0};
    float *floats = calloc(call->text_count, DIM * sizeof *floats);
    FUZZ_CHECK(floats != NULL);
    for (uint32_t i = 0; i < call->text_count; i++) { buffer_string(&lists, i == 0 ? "[[]" : ",[]"); }
    buffer_string(&lists, "]");
    struct answer answer = {.vectors = floats,
                            .scores = floats,
                            .lists = {lists.data, lists.length},
                            .dim = DIM,
                            .model = "model",
                            .request_id = "id"};
    dialect_render(call, &answer, &body);
    FUZZ_CHECK(buffer_ok(&body) && json_valid(body.data, body.length));
    buffer_free(&body);
    buffer_free(&lists);
    free(floats);
}

static void check_fault(const struct dialect *dialect, const struct fault *fault)
{
    struct buffer body = {0};
    FUZZ_CHECK(fault->status >= 400 && fault->status < 500);
    dialect_render_fault(dialect, fault, &body);
    FUZZ_CHECK(buffer_ok(&body) && json_valid(body.data, body.length));
    buffer_free(&body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) { return 0; }
    const struct dialect *dialect = dialects[data[0] % dialect_count];
    const char *body = (const char *)data + 1;
    struct call call;
    struct fault fault;
    if (body_parse(dialect, body, size - 1, &call, &fault)) {
        check_call(&call, body, size - 1);
        check_answer(&call);
    } else {
        check_fault(dialect, &fault);
    }
    call_free(&call);
    return 0;
}
