/* POST /v1/embeddings, /v1/completions and /v1/chat/completions, as OpenAI's clients send and read them. Jina's and
 * Voyage's clients use the first with some members of their own. */
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

static const struct member embeddings_members[] = {
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
    .members = embeddings_members,
    .member_count = sizeof embeddings_members / sizeof embeddings_members[0],
    .render = render_embeddings,
    .faults = &openai_faults,
};

/* --- Texts -------------------------------------------------------------------------------------------------------- */

/* OpenAI's defaults, where the queue has others. */
static bool finish_chat(struct call *call, struct fault *fault)
{
    (void)fault;
    if (call->numbers[NUMBER_TEMPERATURE].length == 0) { call->numbers[NUMBER_TEMPERATURE] = (struct slice){"1", 1}; }
    return true;
}

static bool finish_completions(struct call *call, struct fault *fault)
{
    enum { USUAL_TOKENS = 16 };
    if (call->max_tokens == 0) { call->max_tokens = USUAL_TOKENS; }
    return finish_chat(call, fault);
}

static void put_choice(const struct call *call, uint32_t index, struct slice text, const char *finish,
                       struct buffer *to)
{
    buffer_json(to, "{'index':%u,", index);
    buffer_json(to, call->chat ? "'message':{'role':'assistant','content':" : "'text':");
    buffer_json_string(to, text.bytes, text.length);
    if (call->chat) { buffer_json(to, ",'refusal':null}"); }
    buffer_json(to, ",'logprobs':null,'finish_reason':'%s'}", finish);
}

static void put_usage(const struct answer *answer, struct buffer *to)
{
    buffer_json(to, ",'usage':{'prompt_tokens':%llu,'completion_tokens':%llu,'total_tokens':%llu}",
                (unsigned long long)answer->tokens, (unsigned long long)answer->written_tokens,
                (unsigned long long)(answer->tokens + answer->written_tokens));
}

/* What an answer, and each chunk of one, has before its choices. */
static void put_head(const struct call *call, const struct answer *answer, const char *object, struct buffer *to)
{
    buffer_json(to,
                "{'id':'%s-%s','object':'%s','created':%llu,'model':%.*s,'choices':", call->chat ? "chatcmpl" : "cmpl",
                answer->request_id, call->chat ? object : "text_completion", (unsigned long long)answer->created_s,
                (int)strlen(answer->model), answer->model);
}

static void render_texts(const struct call *call, const struct answer *answer, struct buffer *to)
{
    put_head(call, answer, "chat.completion", to);
    buffer_append(to, answer->lists.bytes, answer->lists.length);
    put_usage(answer, to);
    buffer_string(to, "}");
}

static const char chunk_object[] = "chat.completion.chunk";

static void put_chunk(const struct call *call, const struct answer *answer, const struct chunk *chunk,
                      struct buffer *to)
{
    buffer_string(to, "data: ");
    put_head(call, answer, chunk_object, to);
    buffer_json(to, "[{'index':%u,", chunk->index);
    buffer_json(to, !call->chat ? "'text':" : chunk->first ? "'delta':{'role':'assistant','content':" : "'delta':{");
    if (call->chat && !chunk->first && chunk->text.length > 0) { buffer_json(to, "'content':"); }
    if (!call->chat || chunk->first || chunk->text.length > 0) {
        buffer_json_string(to, chunk->text.bytes, chunk->text.length);
    }
    buffer_string(to, call->chat ? "}" : "");
    buffer_json(to, ",'logprobs':null,'finish_reason':%s}]", chunk->finish ? chunk->finish : "");
    if (call->stream_usage) { buffer_json(to, ",'usage':null"); }
    buffer_string(to, "}\n\n");
}

static void put_end(const struct call *call, const struct answer *answer, struct buffer *to)
{
    if (call->stream_usage) {
        buffer_string(to, "data: ");
        put_head(call, answer, chunk_object, to);
        buffer_string(to, "[]");
        put_usage(answer, to);
        buffer_string(to, "}\n\n");
    }
    buffer_string(to, "data: [DONE]\n\n");
}

/* clang-format off */
#define NUMBER(name, number) {name, MEMBER_NUMBER, offsetof(struct call, numbers) + (number) * sizeof(struct slice)}

/* The members that both paths have; top_k, min_p and repetition_penalty are those of vLLM and other servers. */
#define TEXT_MEMBERS                                                                                                   \
    {"model", MEMBER_NAME, offsetof(struct call, model)},                                                              \
    {"max_tokens", MEMBER_COUNT, offsetof(struct call, max_tokens)},                                                   \
    NUMBER("temperature", NUMBER_TEMPERATURE),                                                                         \
    NUMBER("top_p", NUMBER_TOP_P),                                                                                     \
    NUMBER("seed", NUMBER_SEED),                                                                                       \
    NUMBER("top_k", NUMBER_TOP_K),                                                                                     \
    NUMBER("min_p", NUMBER_MIN_P),                                                                                     \
    NUMBER("repetition_penalty", NUMBER_PENALTY),                                                                      \
    {"stop", MEMBER_STOPS, offsetof(struct call, stops)},                                                              \
    {"stream", MEMBER_FLAG, offsetof(struct call, stream)},                                                            \
    {"stream_options", MEMBER_STREAM_OPTIONS, offsetof(struct call, stream_usage)},                                    \
    {"n", MEMBER_REFUSED, 0, {"1"}},                                                                                   \
    {"presence_penalty", MEMBER_REFUSED, 0, {"0", "0.0"}},                                                             \
    {"frequency_penalty", MEMBER_REFUSED, 0, {"0", "0.0"}},                                                            \
    {"logit_bias", MEMBER_REFUSED, 0, {"{}"}},                                                                         \
    {"logprobs", MEMBER_REFUSED},                                                                                      \
    {"min_tokens", MEMBER_REFUSED, 0, {"0"}},                                                                          \
    {"ignore_eos", MEMBER_REFUSED}
/* clang-format on */

static const struct member completions_members[] = {
    {"prompt", MEMBER_INPUT, offsetof(struct call, texts), .required = true},
    TEXT_MEMBERS,
    {"best_of", MEMBER_REFUSED, 0, {"1"}},
    {"echo", MEMBER_REFUSED},
    {"suffix", MEMBER_REFUSED, 0, {"\"\""}},
};

static const struct member chat_members[] = {
    {"messages", MEMBER_MESSAGES, offsetof(struct call, texts), .required = true},
    TEXT_MEMBERS,
    {"max_completion_tokens", MEMBER_COUNT, offsetof(struct call, max_tokens)},
    {"top_logprobs", MEMBER_REFUSED, 0, {"0"}},
    {"response_format", MEMBER_REFUSED, 0, {"{\"type\":\"text\"}"}},
    {"modalities", MEMBER_REFUSED, 0, {"[\"text\"]"}},
    {"tools", MEMBER_REFUSED, 0, {"[]"}},
    {"tool_choice", MEMBER_REFUSED, 0, {"\"none\"", "\"auto\""}},
    {"functions", MEMBER_REFUSED, 0, {"[]"}},
    {"function_call", MEMBER_REFUSED, 0, {"\"none\"", "\"auto\""}},
    {"audio", MEMBER_REFUSED},
    {"prediction", MEMBER_REFUSED},
    {"reasoning_effort", MEMBER_REFUSED},
    {"verbosity", MEMBER_REFUSED},
    {"web_search_options", MEMBER_REFUSED},
    {"chat_template", MEMBER_REFUSED},
    {"chat_template_kwargs", MEMBER_REFUSED, 0, {"{}"}},
};

#define TEXT_SCHEMA(object, choice)                                                                                    \
    "{'type':'object','required':['id','object','created','model','choices','usage'],'properties':{"                   \
    "'id':{'type':'string'},'object':{'const':'" object "'},'created':{'type':'integer'},'model':{'type':'string'},"   \
    "'choices':{'type':'array','items':{'type':'object','required':['index'," choice                                   \
    ",'logprobs':{'type':'null'},'finish_reason':{'enum':['stop','length']}}}},"                                       \
    "'usage':{'$ref':'#/components/schemas/usage'}}}"

const struct dialect openai_completions = {
    .path = "/v1/completions",
    .summary = "Texts that go on from prompts, as OpenAI's clients ask for them",
    .schema =
        TEXT_SCHEMA("text_completion", "'text'],'properties':{'index':{'type':'integer'},'text':{'type':'string'}"),
    .task = TASK_GENERATE,
    .members = completions_members,
    .member_count = sizeof completions_members / sizeof completions_members[0],
    .finish = finish_completions,
    .put_choice = put_choice,
    .render = render_texts,
    .put_chunk = put_chunk,
    .put_end = put_end,
    .faults = &openai_faults,
};

const struct dialect openai_chat = {
    .path = "/v1/chat/completions",
    .summary = "The next message of a chat, as OpenAI's clients ask for it",
    .schema =
        TEXT_SCHEMA("chat.completion", "'message'],'properties':{'index':{'type':'integer'},'message':{'type':'object',"
                                       "'required':['role','content'],'properties':{'role':{'const':'assistant'},"
                                       "'content':{'type':'string'},'refusal':{'type':'null'}}}"),
    .task = TASK_GENERATE,
    .members = chat_members,
    .member_count = sizeof chat_members / sizeof chat_members[0],
    .finish = finish_chat,
    .put_choice = put_choice,
    .render = render_texts,
    .put_chunk = put_chunk,
    .put_end = put_end,
    .faults = &openai_faults,
};
