/* From texts to ids with a real tokenizer: prompts, truncation, and texts that are too long. */
#include "harness.h"

#include <stdlib.h>

#include "model_builder.h"
#include "schedule/prepare.h"

struct setup {
    char *directory;
    struct model *model;
};

static int open_model(void **state)
{
    static struct setup setup;
    struct model_spec spec = model_spec_tiny();
    struct err err;
    setup.directory = model_build(&spec);
    assert_int_equal(model_open(setup.directory, &(struct model_options){0}, &setup.model, &err), STATUS_OK);
    *state = &setup;
    return 0;
}

static int close_model(void **state)
{
    struct setup *setup = *state;
    model_close(setup->model);
    model_build_remove(setup->directory);
    return 0;
}

/* Appends `words` whole words, whose ids begin at MODEL_SPEC_MIN_VOCABULARY. */
static void put_words(char *text, uint32_t words)
{
    for (uint32_t i = 0; i < words; i++) {
        char word[16];
        model_word(MODEL_SPEC_MIN_VOCABULARY + i, word);
        strcat(strcat(text, i == 0 ? "" : " "), word);
    }
}

/* A prepared request of the given fields, at most four. */
static struct request *prepared(const struct model *model, bool truncate, const char *const (*pairs)[2])
{
    struct request_rules rules = {.model_name = "m",
                                  .model_id = "i",
                                  .head = &model->head,
                                  .dim = model->dim,
                                  .max_tokens = 16,
                                  .max_text_bytes = 4096,
                                  .max_inputs = 16,
                                  .default_ttl_s = 1,
                                  .max_ttl_s = 1,
                                  .default_max_attempts = 4,
                                  .truncate = truncate,
                                  .prompts = model->prompts,
                                  .prompt_count = model->prompt_count};
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
    prepare_request(request, model);
    return request;
}

static struct request *request_of(const struct model *model, uint32_t words, bool truncate)
{
    char text[4096] = "";
    put_words(text, words);
    return prepared(model, truncate, (const char *const[][2]){{"text", text}, {NULL, NULL}});
}

TEST_WITH(short_texts_become_their_ids, open_model, close_model)
{
    const struct setup *setup = *state;
    struct request *request = request_of(setup->model, 3, true);
    struct row *row = &request->rows[0];
    assert_int_equal(request->retry.code, CODE_NONE);
    assert_int_equal(row->tokens, 5);
    for (int i = 0; i < 3; i++) { assert_int_equal(row->ids[i + 1], MODEL_SPEC_MIN_VOCABULARY + i); }
    assert_false(row->truncated);
    for (uint32_t i = 0; i < setup->model->dim; i++) { row->output[i] = 1; /* there is room: the sanitizer looks */ }
    request_free(request);
}

TEST_WITH(long_texts_are_truncated_and_say_so, open_model, close_model)
{
    const struct setup *setup = *state;
    struct request *request = request_of(setup->model, 14, true);
    assert_int_equal(request->rows[0].tokens, 16);
    assert_false(request->rows[0].truncated);
    request_free(request);
    request = request_of(setup->model, 40, true);
    assert_int_equal(request->retry.code, CODE_NONE);
    assert_int_equal(request->rows[0].tokens, 16);
    assert_true(request->rows[0].truncated);
    request_free(request);
}

TEST_WITH(too_long_names_both_counts, open_model, close_model)
{
    const struct setup *setup = *state;
    struct request *request = request_of(setup->model, 14, false);
    assert_int_equal(request->retry.code, CODE_NONE);
    request_free(request);
    request = request_of(setup->model, 40, false);
    assert_int_equal(request->retry.code, CODE_TOO_LONG);
    assert_non_null(strstr(request->retry.message, "42"));
    assert_non_null(strstr(request->retry.message, "16"));
    assert_false(request->retry.retryable);
    request_free(request);
}

TEST_WITH(a_prompt_stands_before_each_text, open_model, close_model)
{
    const struct setup *setup = *state;
    char word[16], prompt[24];
    model_word(MODEL_SPEC_MIN_VOCABULARY + 9, word);
    snprintf(prompt, sizeof(prompt), "%s ", word);
    struct model prompted = *setup->model;
    prompted.prompt = prompt;
    struct request *request = request_of(&prompted, 2, true);
    assert_int_equal(request->rows[0].tokens, 5);
    assert_int_equal(request->rows[0].ids[1], MODEL_SPEC_MIN_VOCABULARY + 9);
    assert_int_equal(request->rows[0].ids[2], MODEL_SPEC_MIN_VOCABULARY);
    request_free(request);
}

TEST_WITH(a_request_may_choose_its_prompt, open_model, close_model)
{
    const struct setup *setup = *state;
    char word[16], name[] = "own", prompt[24], text[64] = "";
    model_word(MODEL_SPEC_MIN_VOCABULARY + 9, word);
    snprintf(prompt, sizeof(prompt), "%s ", word);
    put_words(text, 2);
    struct model prompted = *setup->model;
    prompted.prompt = text; /* gives way */
    prompted.prompts = &(struct model_prompt){name, prompt};
    prompted.prompt_count = 1;
    struct request *request =
        prepared(&prompted, true, (const char *const[][2]){{"text", text}, {"prompt", "own"}, {NULL, NULL}});
    assert_int_equal(request->rows[0].tokens, 5);
    assert_int_equal(request->rows[0].ids[1], MODEL_SPEC_MIN_VOCABULARY + 9);
    assert_int_equal(request->rows[0].ids[2], MODEL_SPEC_MIN_VOCABULARY);
    request_free(request);
}

TEST_WITH(each_of_several_texts_has_its_ids_and_room, open_model, close_model)
{
    const struct setup *setup = *state;
    char inputs[4096] = "[\"";
    put_words(inputs, 3);
    strcat(inputs, "\",\"");
    put_words(inputs, 40);
    strcat(inputs, "\",\"");
    put_words(inputs, 3);
    strcat(inputs, "\",\"");
    put_words(inputs, 1);
    strcat(inputs, "\"]");
    struct request *request = prepared(setup->model, true, (const char *const[][2]){{"inputs", inputs}, {NULL, NULL}});
    static const uint32_t tokens[] = {5, 16, 5, 3};
    uint32_t dim = setup->model->dim;
    assert_int_equal(request->retry.code, CODE_NONE);
    for (uint32_t r = 0; r < 4; r++) {
        assert_int_equal(request->rows[r].tokens, tokens[r]);
        if (r > 0) { assert_ptr_equal(request->rows[r].ids, request->rows[r - 1].ids + tokens[r - 1]); } /* no gaps */
        assert_int_equal(request->rows[r].truncated, r == 1);
        assert_ptr_equal(request->rows[r].output, request->rows[0].output + r * dim); /* as reply_format needs them */
        for (uint32_t i = 0; i < dim; i++) { request->rows[r].output[i] = 1; }
    }
    assert_int_equal(request->rows[0].ids[1], MODEL_SPEC_MIN_VOCABULARY); /* the vectors have not touched them */
    assert_true(request->rows[0].hash == request->rows[2].hash);
    assert_true(request->rows[0].hash != request->rows[1].hash && request->rows[0].hash != request->rows[3].hash);
    request_free(request);
}

TEST_WITH(the_first_text_that_is_too_long_is_named, open_model, close_model)
{
    const struct setup *setup = *state;
    char inputs[4096] = "[\"";
    put_words(inputs, 3);
    strcat(inputs, "\",\"");
    put_words(inputs, 15);
    strcat(inputs, "\",\"");
    put_words(inputs, 30);
    strcat(inputs, "\"]");
    struct request *request = prepared(setup->model, false, (const char *const[][2]){{"inputs", inputs}, {NULL, NULL}});
    assert_int_equal(request->retry.code, CODE_TOO_LONG);
    assert_true(request->retry.row_failed);
    assert_int_equal(request->retry.failed_index, 1);
    assert_non_null(strstr(request->retry.message, "inputs: text 1: 17 tokens"));
    request_free(request);
}

TEST_WITH(pairs_share_the_ids_of_their_query, open_model, close_model)
{
    const struct setup *setup = *state;
    struct model ranks = *setup->model;
    ranks.head = (struct model_head){.labels = 1, .pair_types = true};
    char query[256] = "", inputs[4096] = "[\"";
    put_words(query, 2);
    put_words(inputs, 3);
    strcat(inputs, "\",\"");
    put_words(inputs, 40);
    strcat(inputs, "\"]");
    struct request *request = prepared(
        &ranks, true, (const char *const[][2]){{"task", "rerank"}, {"query", query}, {"inputs", inputs}, {NULL, NULL}});
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

/* The weight that request_parse predicts for a request must cover the memory that tokenising allocates. */
TEST_WITH(the_weight_covers_the_ids, open_model, close_model)
{
    const struct setup *setup = *state;
    for (uint32_t words = 1; words < 40; words++) {
        struct request *request = request_of(setup->model, words, true);
        size_t ids = 0;
        for (uint32_t r = 0; r < request->row_count; r++) { ids += request->rows[r].tokens; }
        size_t floats = (size_t)request->row_count * request->dim;
        assert_true(request->bytes >= sizeof(*request) + sizeof(struct row) + request->rows[0].text_bytes +
                                          ids * sizeof(int32_t) + floats * sizeof(float));
        request_free(request);
    }
}
