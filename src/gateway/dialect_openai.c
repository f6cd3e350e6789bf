/* POST /v1/embeddings, as OpenAI's clients send and read it. Jina's and Voyage's clients use the same path with some
 * members of their own. */
#include <string.h>

#include "base/json.h"
#include "gateway/dialect.h"

static void put_openai_fault(const struct fault *fault, struct buffer *to)
{
    buffer_string(to, "{\"error\":{\"message\":");
    buffer_json_string(to, fault->message, strlen(fault->message));
    buffer_json(to, ",'type':%s,'param':%s,'code':%s}}", fault->type, fault->param ? fault->param : "", fault->code);
}

/* Its clients repeat 408, 409, 429 and all from 500 on: only what may fare better gets one of these. */
const struct fault_style openai_faults = {
    .name = "openai",
    .schema = "{'type':'object','required':['error'],'properties':{'error':{'type':'object',"
              "'required':['message','type','param','code'],'properties':{'message':{'type':'string'},"
              "'type':{'type':'string'},'param':{'type':['string','null']},'code':{'type':'string'}}}}}",
    .put = put_openai_fault,
    .kinds = {
        [FAULT_BAD_REQUEST] = {400, "invalid_request_error"},
        [FAULT_TOO_LONG] = {400, "invalid_request_error"},
        [FAULT_TOO_LARGE] = {413, "invalid_request_error"},
        [FAULT_NO_KEY] = {401, "invalid_request_error"},
        [FAULT_FORBIDDEN] = {403, "invalid_request_error"},
        [FAULT_NOT_FOUND] = {404, "invalid_request_error"},
        [FAULT_NO_MODEL] = {404, "invalid_request_error"},
        [FAULT_WRONG_TASK] = {400, "invalid_request_error"},
        [FAULT_CANCELLED] = {410, "invalid_request_error"},
        [FAULT_POISON] = {422, "invalid_request_error"},
        [FAULT_EXPIRED] = {504, "server_error"},
        [FAULT_QUEUE_FULL] = {429, "requests"},
        [FAULT_RATE_LIMIT] = {429, "requests"},
        [FAULT_BACKEND] = {500, "server_error"},
        [FAULT_UNAVAILABLE] = {503, "server_error"},
    }};

static void render_embeddings(const struct call *call, const struct answer *answer, struct buffer *to)
{
    bool base64 = (call->forms & FORM_BASE64) != 0;
    buffer_string(to, "{\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i < call->text_count; i++) {
        buffer_format(to, "%s{\"object\":\"embedding\",\"index\":%u,\"embedding\":", i > 0 ? "," : "", i);
        answer_put_vector(answer, i, base64, to);
        buffer_string(to, "}");
    }
    buffer_string(to, "],\"model\":");
    buffer_json_string(to, answer->model, strlen(answer->model));
    buffer_format(to, ",\"usage\":{\"prompt_tokens\":%llu,\"total_tokens\":%llu}}", (unsigned long long)answer->tokens,
                  (unsigned long long)answer->tokens);
}

static const struct member members[] = {
    {"input", MEMBER_INPUT, offsetof(struct call, texts), .required = true},
    {"model", MEMBER_NAME, offsetof(struct call, model)},
    {"encoding_format", MEMBER_WORD, offsetof(struct call, forms), {"float", "base64"}},
    {"dimensions", MEMBER_COUNT, offsetof(struct call, dims)},
    {"prompt_name", MEMBER_NAME, offsetof(struct call, prompt)},
    /* Voyage's clients */
    {"output_dimension", MEMBER_COUNT, offsetof(struct call, dims)},
    {"output_dtype", MEMBER_CHECKED, 0, {"float"}},
    {"truncation", MEMBER_FLAG, offsetof(struct call, truncate)},
    {"input_type", MEMBER_CHOICE, offsetof(struct call, purpose), {"document", "query"}},
    /* Jina's, vLLM's */
    {"task",
     MEMBER_CHOICE,
     offsetof(struct call, purpose),
     {"retrieval.passage", "retrieval.query", "classification", "separation", "text-matching"}},
    {"late_chunking", MEMBER_REFUSED},
    {"truncate_prompt_tokens", MEMBER_REFUSED},
};

const struct dialect openai_embeddings = {
    .path = "/v1/embeddings",
    .summary = "Vectors of texts, as OpenAI's clients ask for them",
    .schema = "{'type':'object','required':['object','data','model','usage'],'properties':{"
              "'object':{'const':'list'},'data':{'type':'array','items':{'type':'object',"
              "'required':['object','index','embedding'],'properties':{'object':{'const':'embedding'},"
              "'index':{'type':'integer'},'embedding':{'oneOf':[{'$ref':'#/components/schemas/vector'},"
              "{'type':'string','contentEncoding':'base64'}]}}}},"
              "'model':{'type':'string'},'usage':{'$ref':'#/components/schemas/usage'}}}",
    .task = TASK_EMBED,
    .members = members,
    .member_count = sizeof members / sizeof members[0],
    .render = render_embeddings,
    .faults = &openai_faults,
};
