/* From texts to ids with a real tokenizer: prompts, truncation, and texts that are too long. */
#include <stdlib.h>

#include "model_expect.h"
#include "schedule/prepare.h"
#include "schedule/reply.h"

enum { FIRST_WORD = MODEL_SPEC_MIN_VOCABULARY }; /* the id of the first whole word */

/* Appends whole words, from the first on. */
static void put_words(char *text, uint32_t words)
{
    for (uint32_t i = 0; i < words; i++) {
        char word[16];
        model_word(FIRST_WORD + i, word);
        strcat(strcat(text, i == 0 ? "" : " "), word);
    }
}

/* `inputs` of texts of so many words each, up to a 0. */
#define INPUTS(...) put_inputs((const uint32_t[]){__VA_ARGS__, 0})

static const char *put_inputs(const uint32_t *words)
{
    static char inputs[4096];
    strcpy(inputs, "[\"");
    for (size_t i = 0; words[i] > 0; i++) {
        strcat(inputs, i == 0 ? "" : "\",\"");
        put_words(inputs, words[i]);
    }
    return strcat(inputs, "\"]");
}

/* A prepared request of the given fields, at most four. */
static struct request *prepared(const struct model *by, bool truncate, const char *const (*pairs)[2])
{
    struct request_rules rules = {.model_name = "m",
                                  .model_id = "i",
                                  .head = &by->head,
                                  .dim = by->dim,
                                  .max_tokens = 16,
                                  .max_text_bytes = 4096,
                                  .max_inputs = 16,
                                  .default_ttl_s = 1,
                                  .max_ttl_s = 1,
                                  .default_max_attempts = 4,
                                  .truncate = truncate,
                                  .prompts = by->prompts,
                                  .prompt_count = by->prompt_count};
    struct entry_field fields[4];
    size_t count = 0;
    for (; pairs[count][0] != NULL; count++) {
        fields[count] =
            (struct entry_field){pairs[count][0], strlen(pairs[count][0]), pairs[count][1], strlen(pairs[count][1])};
    }
    struct entry entry = {.class = CLASS_NORMAL, .id = {1, 1}, .fields = fields, .field_count = count};
    struct request *request = request_parse(&rules, &entry, 0);
    assert_non_null(request);
    assert_int_equal(request->retry.code, CODE_NONE);
    prepare_request(request, by);
    return request;
}

static struct request *request_of(const struct model *by, uint32_t words, bool truncate)
{
    char text[4096] = "";
    put_words(text, words);
    return prepared(by, truncate, (const char *const[][2]){{"text", text}, {NULL, NULL}});
}

OPEN_MODEL_TEST(short_texts_become_their_ids)
{
    struct request *request = request_of(made.model, 3, true);
    struct row *row = &request->rows[0];
    assert_int_equal(request->retry.code, CODE_NONE);
    assert_int_equal(row->tokens, 5);
    for (int i = 0; i < 3; i++) { assert_int_equal(row->ids[i + 1], FIRST_WORD + i); }
    assert_false(row->truncated);
    for (uint32_t i = 0; i < made.model->dim; i++) { row->output[i] = 1; /* there is room: the sanitizer looks */ }
    request_free(request);
}

/* A text has 16 tokens at most: 14 words and two others. */
OPEN_MODEL_TEST(long_texts_are_truncated_or_refused)
{
    static const struct {
        uint32_t words;
        bool truncate, truncated;
        enum reply_code code;
    } cases[] = {{14, true, false, CODE_NONE},
                 {40, true, true, CODE_NONE},
                 {14, false, false, CODE_NONE},
                 {40, false, false, CODE_TOO_LONG}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct request *request = request_of(made.model, cases[i].words, cases[i].truncate);
        assert_int_equal(request->retry.code, cases[i].code);
        if (cases[i].code == CODE_NONE) {
            assert_int_equal(request->rows[0].tokens, 16);
            assert_int_equal(request->rows[0].truncated, cases[i].truncated);
        } else {
            assert_non_null(strstr(request->retry.message, "42"));
            assert_non_null(strstr(request->retry.message, "16"));
            assert_false(request->retry.retryable);
        }
        request_free(request);
    }
}

/* A request may choose another prompt than the model's. */
OPEN_MODEL_TEST(a_prompt_stands_before_each_text)
{
    char word[16], name[] = "own", prompt[24], other[] = "gives way ", text[64] = "";
    model_word(FIRST_WORD + 9, word);
    snprintf(prompt, sizeof(prompt), "%s ", word);
    put_words(text, 2);
    struct model prompted = *made.model;
    prompted.prompts = &(struct model_prompt){name, prompt};
    prompted.prompt_count = 1;
    for (int own = 0; own < 2; own++) {
        prompted.prompt = own ? other : prompt;
        struct request *request = prepared(
            &prompted, true, (const char *const[][2]){{"text", text}, {own ? "prompt" : NULL, "own"}, {NULL, NULL}});
        assert_int_equal(request->rows[0].tokens, 5);
        assert_int_equal(request->rows[0].ids[1], FIRST_WORD + 9);
        assert_int_equal(request->rows[0].ids[2], FIRST_WORD);
        request_free(request);
    }
}

OPEN_MODEL_TEST(each_of_several_texts_has_its_ids_and_room)
{
    struct request *request =
        prepared(made.model, true, (const char *const[][2]){{"inputs", INPUTS(3, 40, 3, 1)}, {NULL, NULL}});
    static const uint32_t tokens[] = {5, 16, 5, 3};
    uint32_t dim = made.model->dim;
    assert_int_equal(request->retry.code, CODE_NONE);
    for (uint32_t r = 0; r < 4; r++) {
        assert_int_equal(request->rows[r].tokens, tokens[r]);
        if (r > 0) { assert_ptr_equal(request->rows[r].ids, request->rows[r - 1].ids + tokens[r - 1]); } /* no gaps */
        assert_int_equal(request->rows[r].truncated, r == 1);
        assert_ptr_equal(request->rows[r].output, request->rows[0].output + r * dim); /* as reply_format needs them */
        for (uint32_t i = 0; i < dim; i++) { request->rows[r].output[i] = 1; }
    }
    assert_int_equal(request->rows[0].ids[1], FIRST_WORD); /* the vectors have not touched them */
    assert_true(request->rows[0].hash == request->rows[2].hash);
    assert_true(request->rows[0].hash != request->rows[1].hash && request->rows[0].hash != request->rows[3].hash);
    request_free(request);
}

OPEN_MODEL_TEST(the_first_text_that_is_too_long_is_named)
{
    struct request *request =
        prepared(made.model, false, (const char *const[][2]){{"inputs", INPUTS(3, 15, 30)}, {NULL, NULL}});
    assert_int_equal(request->retry.code, CODE_TOO_LONG);
    assert_true(request->retry.row_failed);
    assert_int_equal(request->retry.failed_index, 1);
    assert_non_null(strstr(request->retry.message, "inputs: text 1: 17 tokens"));
    request_free(request);
}

OPEN_MODEL_TEST(pairs_share_the_ids_of_their_query)
{
    struct model ranks = *made.model;
    ranks.head = (struct model_head){.labels = 1, .pair_types = true};
    char query[256] = "";
    put_words(query, 2);
    struct request *request = prepared(
        &ranks, true,
        (const char *const[][2]){{"task", "rerank"}, {"query", query}, {"inputs", INPUTS(3, 40)}, {NULL, NULL}});
    assert_int_equal(request->retry.code, CODE_NONE);
    const struct row *near = &request->rows[0], *cut = &request->rows[1];
    assert_int_equal(near->tokens, 2 + 3 + 3);
    assert_int_equal(near->second, 4);
    assert_memory_equal(near->ids, cut->ids, near->second * sizeof(int32_t));
    assert_memory_equal(near->ids + 1, near->ids + near->second, 2 * sizeof(int32_t)); /* the same two words */
    assert_true(cut->truncated && !near->truncated);
    assert_int_equal(cut->tokens, 16);
    size_t ids = near->tokens + cut->tokens + request->query_bytes, row_bytes = sizeof(struct row) + sizeof(float);
    assert_true(request->bytes >= sizeof(*request) + 2 * row_bytes + ids * sizeof(int32_t));
    request_free(request);
}

/* A request for tokens has its whole reply, and nothing to compute. A text is not cut, and a prompt is a part of it. */
OPEN_MODEL_TEST(tokens_are_a_reply)
{
    char word[16], prompt[] = "a ", expected[512], long_text[4096] = "";
    struct model prompted = *made.model;
    prompted.prompt = prompt;
    model_word(FIRST_WORD, word);
    struct request *request = prepared(
        &prompted, false, (const char *const[][2]){{"task", "tokenize"}, {"special_tokens", "0"}, {"text", word}, {0}});
    int from = (int)strlen(prompt), until = from + (int)strlen(word);
    snprintf(expected, sizeof expected, ",{\"id\":%d,\"text\":\"%s\",\"special\":false,\"start\":%d,\"stop\":%d}]",
             FIRST_WORD, word, from, until);
    struct buffer *reply = &request->output.reply;
    assert_true(reply->length > strlen(expected) && reply->length <= reply_room(request));
    assert_memory_equal(reply->data + reply->length - strlen(expected), expected, strlen(expected));
    assert_memory_equal(reply->data, "[{\"id\":", 7);
    assert_int_equal(request->rows[0].tokens, 2);
    assert_null(request->work);
    request_free(request);
    put_words(long_text, 40);
    request = prepared(made.model, false, (const char *const[][2]){{"task", "tokenize"}, {"text", long_text}, {0}});
    assert_int_equal(request->rows[0].tokens, 42);
    buffer_append(&request->output.reply, "", 1);
    assert_non_null(strstr(request->output.reply.data, "[CLS]\",\"special\":true,\"start\":null,\"stop\":null},"));
    request_free(request);
    request =
        prepared(made.model, false, (const char *const[][2]){{"task", "tokenize"}, {"inputs", INPUTS(3, 1)}, {0}});
    assert_int_equal(request->rows[0].tokens, 5);
    assert_int_equal(request->rows[1].tokens, 3);
    buffer_append(&request->output.reply, "", 1);
    assert_memory_equal(request->output.reply.data, "[[{", 3);
    assert_non_null(strstr(request->output.reply.data, "}],[{"));
    request_free(request);
}

/* The weight that request_parse predicts for a request must cover the memory that tokenising allocates. */
OPEN_MODEL_TEST(the_weight_covers_the_ids)
{
    for (uint32_t words = 1; words < 40; words++) {
        struct request *request = request_of(made.model, words, true);
        size_t ids = 0;
        for (uint32_t r = 0; r < request->row_count; r++) { ids += request->rows[r].tokens; }
        size_t floats = (size_t)request->row_count * request->dim;
        assert_true(request->bytes >= sizeof(*request) + sizeof(struct row) + request->rows[0].text_bytes +
                                          ids * sizeof(int32_t) + floats * sizeof(float));
        request_free(request);
    }
}
