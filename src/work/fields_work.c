/* The fields that say what is to be computed, and how the vectors are to look. */
#include <inttypes.h>
#include <string.h>

#include "base/utf8.h"
#include "work/fields_take.h"

void take_text(struct taking *taking)
{
    const struct entry_field *field = taking->field;
    struct request *request = taking->request;
    if (field->value_length == 0)
        request_fail(request, CODE_BAD_REQUEST, "text: must not be empty");
    else if (field->value_length > taking->rules->max_text_bytes)
        request_fail(request, CODE_TOO_LARGE, "text: %zu bytes, at most %" PRIu32 " are taken", field->value_length,
                     taking->rules->max_text_bytes);
    else if (!utf8_valid(field->value, field->value_length))
        request_fail(request, CODE_BAD_UTF8, "text: not valid UTF-8 from byte %zu on",
                     utf8_valid_prefix(field->value, field->value_length));
    else {
        request->rows[0].text = copy_value(taking);
        request->rows[0].text_bytes = (uint32_t)field->value_length;
    }
}

static void fail_inputs(struct taking *taking)
{
    const struct inputs *inputs = &taking->fields->inputs;
    struct request *request = taking->request;
    uint32_t bad = inputs->count;
    switch (inputs->problem) {
    case INPUTS_NOT_TEXT:
        request_fail_row(request, bad, CODE_BAD_REQUEST, "inputs: element %" PRIu32 " is not a text", bad);
        break;
    case INPUTS_BAD_STRING:
        request_fail_row(request, bad, CODE_BAD_REQUEST, "inputs: text %" PRIu32 " is no JSON string, at byte %zu", bad,
                         inputs->at);
        break;
    case INPUTS_BAD_UTF8:
        request_fail_row(request, bad, CODE_BAD_UTF8, "inputs: text %" PRIu32 " is not valid UTF-8, at byte %zu", bad,
                         inputs->at);
        break;
    case INPUTS_EMPTY_TEXT:
        request_fail_row(request, bad, CODE_BAD_REQUEST, "inputs: text %" PRIu32 " is empty", bad);
        break;
    case INPUTS_TOO_MANY:
        request_fail(request, CODE_TOO_MANY_INPUTS, "inputs: more than %" PRIu32 " texts", taking->rules->max_inputs);
        break;
    case INPUTS_TOO_LARGE:
        request_fail(request, CODE_TOO_LARGE, "inputs: more than %" PRIu32 " bytes of text",
                     taking->rules->max_text_bytes);
        break;
    case INPUTS_NO_TEXTS:
        request_fail(request, CODE_BAD_REQUEST, "inputs: must not be empty");
        break;
    case INPUTS_NOT_ARRAY:
        request_fail(request, CODE_BAD_REQUEST, "inputs: JSON, but not an array of texts");
        break;
    default:
        request_fail(request, CODE_BAD_REQUEST, "inputs: not JSON at byte %zu; it takes an array of texts", inputs->at);
    }
}

void take_inputs(struct taking *taking)
{
    const struct entry_field *field = taking->field;
    const struct inputs *inputs = &taking->fields->inputs;
    taking->request->inputs = true;
    if (inputs->problem != INPUTS_OK) {
        fail_inputs(taking);
    } else if (taking->request->row_count == inputs->count) { /* not so beside a `text`, which is refused */
        inputs_decode(field->value, field->value_length, taking->copy, taking->request->rows);
        taking->copy += inputs->bytes;
    }
}

void take_encoding(struct taking *taking)
{
    for (int i = 0; i < ENCODING_COUNT; i++)
        if (field_is(taking, encoding_name((enum encoding)i))) {
            taking->request->encoding = (enum encoding)i;
            return;
        }
    request_fail(taking->request, CODE_BAD_REQUEST, "encoding: json, f32, f16 or base64");
}

void take_truncate(struct taking *taking)
{
    bool on;
    if (take_switch(taking, &on))
        taking->request->truncate = on;
}

void take_normalize(struct taking *taking)
{
    bool on;
    if (take_switch(taking, &on))
        taking->request->normalize = on;
}

void take_dims(struct taking *taking)
{
    uint64_t dims;
    if (take_number(taking, 1, taking->rules->dim, &dims))
        taking->request->dims = (uint32_t)dims;
}

static bool prompt_allowed(struct taking *taking)
{
    if (taking->rules->no_prompt)
        request_fail(taking->request, CODE_BAD_REQUEST,
                     "%s: this model pools without its prompt, which is not supported", taking->name);
    return !taking->rules->no_prompt;
}

void take_prompt(struct taking *taking)
{
    const struct request_rules *rules = taking->rules;
    if (!prompt_allowed(taking))
        return;
    for (uint32_t i = 0; i < rules->prompt_count; i++)
        if (field_is(taking, rules->prompts[i].name)) {
            taking->request->prompt = rules->prompts[i].text;
            taking->request->prompt_bytes = (uint32_t)strlen(rules->prompts[i].text);
            return;
        }
    request_fail(taking->request, CODE_BAD_REQUEST, "prompt: the model has no prompt of this name");
}

void take_prefix(struct taking *taking)
{
    if (prompt_allowed(taking) && take_utf8(taking, PREFIX_MAX_BYTES, &taking->request->prompt))
        taking->request->prompt_bytes = (uint32_t)taking->field->value_length;
}

void take_task(struct taking *taking)
{
    if (!field_is(taking, "embed"))
        request_fail(taking->request, CODE_UNKNOWN_TASK, "task: this queue does embed");
}

void take_model(struct taking *taking)
{
    const struct request_rules *rules = taking->rules;
    if (!field_is(taking, rules->model_name) && !field_is(taking, rules->model_id))
        request_fail(taking->request, CODE_WRONG_MODEL, "model: this queue serves %.80s (%.40s)", rules->model_name,
                     rules->model_id);
}
