/* The paths of Hugging Face's text-embeddings-inference (TEI), as its own clients and Haystack's send and read them. A
 * list is answered by a bare list. POST / is what InferenceClient("http://host:port") sends. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "gateway/dialect.h"
#include "schedule/reply.h"

static void put_tei_fault(const struct fault *fault, struct buffer *to)
{
    buffer_string(to, "{\"error\":");
    buffer_json_string(to, fault->message, strlen(fault->message));
    buffer_json(to, ",'error_type':%s}", fault->type);
}

const struct fault_style tei_faults = {
    .name = "tei",
    .schema = "{'type':'object','required':['error','error_type'],'properties':{'error':{'type':'string'},"
              "'error_type':{'type':'string'}}}",
    .put = put_tei_fault,
    .kinds = {
        [FAULT_BAD_REQUEST] = {422, "Validation"},
        [FAULT_TOO_LONG] = {413, "Validation"},
        [FAULT_TOO_LARGE] = {413, "Validation"},
        [FAULT_NO_KEY] = {401, "Unauthorized"},
        [FAULT_FORBIDDEN] = {403, "Forbidden"},
        [FAULT_NOT_FOUND] = {404, "NotFound"},
        [FAULT_NO_MODEL] = {404, "Validation"},
        [FAULT_WRONG_TASK] = {424, "Backend"},
        [FAULT_CANCELLED] = {410, "Backend"},
        [FAULT_POISON] = {424, "Backend"},
        [FAULT_EXPIRED] = {504, "Overloaded"},
        [FAULT_QUEUE_FULL] = {429, "Overloaded"},
        [FAULT_RATE_LIMIT] = {429, "Overloaded"},
        [FAULT_BACKEND] = {424, "Backend"},
        [FAULT_UNAVAILABLE] = {503, "Unhealthy"},
    }};

/* TEI normalises unless it is asked not to, whatever the model. */
static bool finish_embed(struct call *call, struct fault *fault)
{
    (void)fault;
    if (call->normalize < 0) { call->normalize = 1; }
    return true;
}

/* One text is answered by a list of one vector. */
static void render_vectors(const struct call *call, const struct answer *answer, struct buffer *to)
{
    for (uint32_t i = 0; i < call->text_count; i++) {
        buffer_string(to, i > 0 ? "," : "[");
        answer_put_vector(answer, i, false, to);
    }
    buffer_string(to, "]");
}

static void render_ranks(const struct call *call, const struct answer *answer, struct buffer *to)
{
    struct scored *sorted = reply_sort_scores(answer->scores, call->text_count, to);
    for (uint32_t i = 0; sorted && i < call->text_count; i++) {
        buffer_format(to, "%s{\"index\":%u,", i > 0 ? "," : "[", sorted[i].index);
        if (call->return_texts != 0 && call->texts) {
            const struct slice *text = &call->texts[sorted[i].index];
            buffer_string(to, "\"text\":");
            buffer_append(to, text->bytes, text->length);
            buffer_string(to, ",");
        }
        buffer_string(to, "\"score\":");
        answer_put_float(sorted[i].score, to);
        buffer_string(to, "}");
    }
    buffer_string(to, "]");
    free(sorted);
}

/* One text is answered by its labels, without a list around them. */
static void render_predictions(const struct call *call, const struct answer *answer, struct buffer *to)
{
    size_t cut = call->single ? 1 : 0;
    buffer_append(to, answer->lists.bytes + cut, answer->lists.length - 2 * cut);
}

/* One text is answered by a list of one list, too. The members of a token are the queue's. */
static void render_tokens(const struct call *call, const struct answer *answer, struct buffer *to)
{
    (void)call;
    buffer_append(to, answer->lists.bytes, answer->lists.length);
}

/* Cosines of the first text with each of the others; the vectors have length 1. */
static void render_similarities(const struct call *call, const struct answer *answer, struct buffer *to)
{
    for (uint32_t i = 1; i < call->text_count; i++) {
        double sum = 0;
        const float *other = answer->vectors + (size_t)i * answer->dim;
        for (uint32_t d = 0; d < answer->dim; d++) { sum += (double)answer->vectors[d] * (double)other[d]; }
        buffer_string(to, i > 1 ? "," : "[");
        answer_put_float((float)sum, to);
    }
    buffer_string(to, "]");
}

static const struct member similarity_members[] = {
    {"inputs", MEMBER_SIMILARITY, offsetof(struct call, texts), .required = true},
    {"model", MEMBER_NAME, offsetof(struct call, model)},
};

static const struct member embed_members[] = {
    {"inputs", MEMBER_INPUT, offsetof(struct call, texts), .required = true},
    {"model", MEMBER_NAME, offsetof(struct call, model)},
    {"normalize", MEMBER_FLAG, offsetof(struct call, normalize)},
    {"truncate", MEMBER_FLAG, offsetof(struct call, truncate)},
    {"truncation_direction", MEMBER_CHECKED, 0, {"Right", "right"}},
    {"prompt_name", MEMBER_NAME, offsetof(struct call, prompt)},
    {"dimensions", MEMBER_COUNT, offsetof(struct call, dims)},
    {"encoding_format", MEMBER_CHECKED, 0, {"float"}},
};

static const struct member rerank_members[] = {
    {"query", MEMBER_STRING, offsetof(struct call, query), .required = true},
    {"texts", MEMBER_TEXTS, offsetof(struct call, texts), .required = true},
    {"model", MEMBER_NAME, offsetof(struct call, model)},
    {"raw_scores", MEMBER_FLAG, offsetof(struct call, raw)},
    {"return_text", MEMBER_FLAG, offsetof(struct call, return_texts)},
    {"truncate", MEMBER_FLAG, offsetof(struct call, truncate)},
    {"truncation_direction", MEMBER_CHECKED, 0, {"Right", "right"}},
};

static const struct member predict_members[] = {
    {"inputs", MEMBER_SEQUENCES, offsetof(struct call, texts), .required = true},
    {"model", MEMBER_NAME, offsetof(struct call, model)},
    {"raw_scores", MEMBER_FLAG, offsetof(struct call, raw)},
    {"truncate", MEMBER_FLAG, offsetof(struct call, truncate)},
    {"truncation_direction", MEMBER_CHECKED, 0, {"Right", "right"}},
};

static const struct member tokenize_members[] = {
    {"inputs", MEMBER_INPUT, offsetof(struct call, texts), .required = true},
    {"model", MEMBER_NAME, offsetof(struct call, model)},
    {"add_special_tokens", MEMBER_FLAG, offsetof(struct call, special_tokens)},
    {"prompt_name", MEMBER_NAME, offsetof(struct call, prompt)},
};

static const char vectors_schema[] = "{'type':'array','items':{'$ref':'#/components/schemas/vector'}}";

#define MEMBERS(table) .members = table, .member_count = sizeof table / sizeof table[0]

const struct dialect tei_root = {.path = "/",
                                 .summary = "The same as /embed",
                                 .schema = vectors_schema,
                                 .task = TASK_EMBED,
                                 MEMBERS(embed_members),
                                 .finish = finish_embed,
                                 .render = render_vectors,
                                 .faults = &tei_faults};

const struct dialect tei_embed = {.path = "/embed",
                                  .summary = "Vectors of texts, as TEI's clients ask for them",
                                  .schema = vectors_schema,
                                  .task = TASK_EMBED,
                                  MEMBERS(embed_members),
                                  .finish = finish_embed,
                                  .render = render_vectors,
                                  .faults = &tei_faults};

const struct dialect tei_rerank = {
    .path = "/rerank",
    .summary = "Scores of texts for a query, best first",
    .schema = "{'type':'array','items':{'type':'object','required':['index','score'],'properties':{"
              "'index':{'type':'integer'},'text':{'type':'string'},'score':{'type':'number'}}}}",
    .task = TASK_RERANK,
    MEMBERS(rerank_members),
    .render = render_ranks,
    .faults = &tei_faults};

const struct dialect tei_predict = {.path = "/predict",
                                    .summary = "Labels of texts, best first",
                                    .schema = "{'oneOf':[{'$ref':'#/components/schemas/labels'},"
                                              "{'type':'array','items':{'$ref':'#/components/schemas/labels'}}]}",
                                    .task = TASK_CLASSIFY,
                                    MEMBERS(predict_members),
                                    .render = render_predictions,
                                    .faults = &tei_faults};

const struct dialect tei_tokenize = {
    .path = "/tokenize",
    .summary = "Tokens of texts, and the bytes that they stand for",
    .schema = "{'type':'array','items':{'type':'array','items':{'type':'object',"
              "'required':['id','text','special','start','stop'],'properties':{'id':{'type':'integer'},"
              "'text':{'type':'string'},'special':{'type':'boolean'},'start':{'type':['integer','null']},"
              "'stop':{'type':['integer','null']}}}}}",
    .task = TASK_TOKENIZE,
    MEMBERS(tokenize_members),
    .render = render_tokens,
    .faults = &tei_faults};

const struct dialect tei_similarity = {.path = "/similarity",
                                       .summary = "Cosines of a sentence with others",
                                       .schema = "{'$ref':'#/components/schemas/vector'}",
                                       .task = TASK_EMBED,
                                       MEMBERS(similarity_members),
                                       .finish = finish_embed,
                                       .render = render_similarities,
                                       .faults = &tei_faults};
