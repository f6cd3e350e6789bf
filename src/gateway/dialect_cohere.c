/* The paths of Cohere's clients. /v1/rerank is also Jina's and Voyage's: an answer has what Cohere's and Jina's clients
 * read, and Voyage's has a form of its own. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "gateway/dialect.h"
#include "schedule/reply.h"

/* Cohere reads `message`, Jina and Voyage read `detail`. */
static void put_cohere_fault(const struct fault *fault, struct buffer *to)
{
    buffer_string(to, "{\"message\":");
    buffer_json_string(to, fault->message, strlen(fault->message));
    buffer_string(to, ",\"detail\":");
    buffer_json_string(to, fault->message, strlen(fault->message));
    buffer_string(to, "}");
}

/* Its clients repeat the same statuses as OpenAI's. */
const struct fault_style cohere_faults = {
    .name = "cohere",
    .schema = "{'type':'object','required':['message','detail'],'properties':{'message':{'type':'string'},"
              "'detail':{'type':'string'}}}",
    .put = put_cohere_fault,
    .kinds = {
        [FAULT_BAD_REQUEST] = {400, ""},
        [FAULT_TOO_LONG] = {400, ""},
        [FAULT_TOO_LARGE] = {413, ""},
        [FAULT_NO_KEY] = {401, ""},
        [FAULT_FORBIDDEN] = {403, ""},
        [FAULT_NOT_FOUND] = {404, ""},
        [FAULT_NO_MODEL] = {404, ""},
        [FAULT_WRONG_TASK] = {400, ""},
        [FAULT_CANCELLED] = {410, ""},
        [FAULT_POISON] = {422, ""},
        [FAULT_EXPIRED] = {504, ""},
        [FAULT_QUEUE_FULL] = {429, ""},
        [FAULT_RATE_LIMIT] = {429, ""},
        [FAULT_BACKEND] = {500, ""},
        [FAULT_UNAVAILABLE] = {503, ""},
    }};

/* These services cut long texts unless they are asked not to. */
static bool finish_cohere(struct call *call, struct fault *fault)
{
    (void)fault;
    if (call->truncate < 0) { call->truncate = 1; }
    return true;
}

static void put_string_member(struct buffer *to, const char *name, const char *value)
{
    buffer_format(to, "\"%s\":", name);
    buffer_json_string(to, value, strlen(value));
}

/* --- Rerank --- */

enum { RERANK_QUERY, RERANK_DOCUMENTS, RERANK_TRUNCATION, RERANK_TOP_K };

static const struct member rerank_members[] = {
    [RERANK_QUERY] = {"query", MEMBER_STRING, offsetof(struct call, query), .required = true},
    [RERANK_DOCUMENTS] = {"documents", MEMBER_DOCUMENTS, offsetof(struct call, texts), .required = true},
    [RERANK_TRUNCATION] = {"truncation", MEMBER_FLAG, offsetof(struct call, truncate)}, /* Voyage; always sent */
    [RERANK_TOP_K] = {"top_k", MEMBER_COUNT, offsetof(struct call, top_n)},             /* Voyage */
    {"model", MEMBER_NAME, offsetof(struct call, model)},
    {"top_n", MEMBER_COUNT, offsetof(struct call, top_n)},
    {"return_documents", MEMBER_FLAG, offsetof(struct call, return_texts)},
    {"rank_fields", MEMBER_REFUSED},
    {"max_chunks_per_doc", MEMBER_REFUSED},
    {"max_tokens_per_doc", MEMBER_REFUSED},
    {"relevant_spans", MEMBER_REFUSED},
};

static bool is_voyage(const struct call *call)
{
    return (call->given & (1u << RERANK_TRUNCATION | 1u << RERANK_TOP_K)) != 0;
}

/* Cohere counts a unit for each hundred documents. */
static uint32_t search_units(const struct call *call)
{
    return (call->text_count - 1) / 100 + 1;
}

static void render_rerank(const struct call *call, const struct answer *answer, struct buffer *to)
{
    bool voyage = is_voyage(call);
    struct scored *sorted = reply_sort_scores(answer->scores, call->text_count, to);
    buffer_string(to, "{\"object\":\"list\",");
    put_string_member(to, "id", answer->request_id);
    buffer_string(to, ",");
    put_string_member(to, "model", answer->model);
    buffer_format(to, ",\"%s\":[", voyage ? "data" : "results");
    for (uint32_t i = 0; sorted && i < answer_top(call); i++) {
        buffer_format(to, "%s{\"index\":%u,\"relevance_score\":", i > 0 ? "," : "", sorted[i].index);
        answer_put_float(sorted[i].score, to);
        if (call->return_texts != 0 && call->texts) {
            const struct slice *text = &call->texts[sorted[i].index];
            buffer_string(to, voyage ? ",\"document\":" : ",\"document\":{\"text\":");
            buffer_append(to, text->bytes, text->length);
            buffer_string(to, voyage ? "" : "}");
        }
        buffer_string(to, "}");
    }
    buffer_format(to, "],\"usage\":{\"prompt_tokens\":%llu,\"total_tokens\":%llu}", (unsigned long long)answer->tokens,
                  (unsigned long long)answer->tokens);
    if (!voyage) {
        buffer_format(to,
                      ",\"meta\":{\"api_version\":{\"version\":\"%c\"},\"billed_units\":{\"search_units\":%u},"
                      "\"tokens\":{\"input_tokens\":%llu}}",
                      call->dialect->path[2], search_units(call), (unsigned long long)answer->tokens);
    }
    buffer_string(to, "}");
    free(sorted);
}

/* --- Embed --- */

static const struct member embed_members[] = {
    {"texts", MEMBER_TEXTS, offsetof(struct call, texts), .required = true},
    {"model", MEMBER_NAME, offsetof(struct call, model)},
    {"input_type",
     MEMBER_CHOICE,
     offsetof(struct call, purpose),
     {"search_document", "search_query", "classification", "clustering"}},
    {"embedding_types", MEMBER_WORDS, offsetof(struct call, forms), {"float", "base64"}},
    {"output_dimension", MEMBER_COUNT, offsetof(struct call, dims)},
    {"truncate", MEMBER_CHOICE, offsetof(struct call, truncate), {"NONE", "END"}},
    {"images", MEMBER_REFUSED},
    {"inputs", MEMBER_REFUSED},
    {"max_tokens", MEMBER_REFUSED},
};

static void put_vectors(const struct call *call, const struct answer *answer, bool base64, struct buffer *to)
{
    for (uint32_t i = 0; i < call->text_count; i++) {
        buffer_string(to, i > 0 ? "," : "[");
        answer_put_vector(answer, i, base64, to);
    }
    buffer_string(to, "]");
}

/* Version 1 has bare vectors where no types were asked for. */
static void render_embed(const struct call *call, const struct answer *answer, struct buffer *to)
{
    bool bare = call->forms == 0 && call->dialect == &cohere_embed_v1;
    buffer_string(to, "{");
    put_string_member(to, "id", answer->request_id);
    buffer_format(to, ",\"response_type\":\"%s\",\"embeddings\":", bare ? "embeddings_floats" : "embeddings_by_type");
    if (bare) {
        put_vectors(call, answer, false, to);
    } else {
        bool both = call->forms == (FORM_FLOAT | FORM_BASE64);
        buffer_string(to, "{");
        if (call->forms != FORM_BASE64) {
            buffer_string(to, "\"float\":");
            put_vectors(call, answer, false, to);
        }
        if ((call->forms & FORM_BASE64) != 0) {
            buffer_string(to, both ? ",\"base64\":" : "\"base64\":");
            put_vectors(call, answer, true, to);
        }
        buffer_string(to, "}");
    }
    buffer_string(to, ",\"texts\":[");
    for (uint32_t i = 0; call->texts && i < call->text_count; i++) {
        buffer_string(to, i > 0 ? "," : "");
        buffer_append(to, call->texts[i].bytes, call->texts[i].length);
    }
    buffer_format(to,
                  "],\"meta\":{\"api_version\":{\"version\":\"%c\"},\"billed_units\":{\"input_tokens\":%llu},"
                  "\"tokens\":{\"input_tokens\":%llu}}}",
                  call->dialect->path[2], (unsigned long long)answer->tokens, (unsigned long long)answer->tokens);
}

static const char rerank_schema[] =
    "{'type':'object','required':['object','id','model','usage'],'properties':{'object':{'const':'list'},"
    "'id':{'type':'string'},'model':{'type':'string'},'results':{'$ref':'#/components/schemas/ranks'},"
    "'data':{'$ref':'#/components/schemas/ranks'},'usage':{'$ref':'#/components/schemas/usage'},"
    "'meta':{'type':'object'}}}";
static const char embed_schema[] =
    "{'type':'object','required':['id','response_type','embeddings','texts','meta'],'properties':{"
    "'id':{'type':'string'},'response_type':{'enum':['embeddings_floats','embeddings_by_type']},"
    "'embeddings':{'oneOf':[{'type':'array','items':{'$ref':'#/components/schemas/vector'}},"
    "{'type':'object','properties':{'float':{'type':'array','items':{'$ref':'#/components/schemas/vector'}},"
    "'base64':{'type':'array','items':{'type':'string'}}}}]},'texts':{'type':'array','items':{'type':'string'}},"
    "'meta':{'type':'object'}}}";

#define RERANK                                                                                                         \
    .task = TASK_RERANK, .members = rerank_members, .member_count = sizeof rerank_members / sizeof rerank_members[0],  \
    .summary = "Scores of documents for a query, best first, as Cohere's, Jina's and Voyage's clients ask for them",   \
    .schema = rerank_schema, .finish = finish_cohere, .render = render_rerank, .faults = &cohere_faults
#define EMBED                                                                                                          \
    .task = TASK_EMBED, .members = embed_members, .member_count = sizeof embed_members / sizeof embed_members[0],      \
    .summary = "Vectors of texts, as Cohere's clients ask for them", .schema = embed_schema, .finish = finish_cohere,  \
    .render = render_embed, .faults = &cohere_faults

const struct dialect cohere_rerank_v1 = {.path = "/v1/rerank", RERANK};
const struct dialect cohere_rerank = {.path = "/v2/rerank", RERANK};
const struct dialect cohere_embed_v1 = {.path = "/v1/embed", EMBED};
const struct dialect cohere_embed = {.path = "/v2/embed", EMBED};
