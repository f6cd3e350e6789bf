/* From texts to ids with a real tokenizer: prompts, truncation, and texts that are too long. */
#include "harness.h"

#include <stdlib.h>

#include "model_builder.h"
#include "work/prepare.h"

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

/* A request for a text of `words` whole words, whose ids go from MODEL_SPEC_MIN_VOCABULARY on. */
static struct request *request_of(const struct model *model, uint32_t words, bool truncate)
{
    char text[4096] = "";
    for (uint32_t i = 0; i < words; i++) {
        char word[16];
        model_word(MODEL_SPEC_MIN_VOCABULARY + i, word);
        strcat(strcat(text, i == 0 ? "" : " "), word);
    }
    struct request_rules rules = {.model_name = "m",
                                  .model_id = "i",
                                  .dim = model->dim,
                                  .max_tokens = 16,
                                  .max_text_bytes = sizeof(text),
                                  .default_ttl_s = 1,
                                  .max_ttl_s = 1,
                                  .default_max_attempts = 4,
                                  .truncate = truncate};
    struct entry_field field = {"text", 4, text, strlen(text)};
    struct entry entry = {.class = CLASS_NORMAL, .id = {1, 1}, .fields = &field, .field_count = 1};
    struct request *request = request_parse(&rules, &entry, 0);
    assert_non_null(request);
    prepare_request(request, model);
    return request;
}

static void short_texts_become_their_ids(void **state)
{
    const struct setup *setup = *state;
    struct request *request = request_of(setup->model, 3, true);
    struct row *row = &request->rows[0];
    assert_int_equal(request->code, CODE_NONE);
    assert_int_equal(row->tokens, 5);
    for (int i = 0; i < 3; i++)
        assert_int_equal(row->ids[i + 1], MODEL_SPEC_MIN_VOCABULARY + i);
    assert_false(row->truncated);
    for (uint32_t i = 0; i < setup->model->dim; i++)
        row->output[i] = 1; /* there is room: the sanitizer looks */
    request_free(request);
}

static void long_texts_are_truncated_and_say_so(void **state)
{
    const struct setup *setup = *state;
    struct request *request = request_of(setup->model, 14, true);
    assert_int_equal(request->rows[0].tokens, 16);
    assert_false(request->rows[0].truncated);
    request_free(request);
    request = request_of(setup->model, 40, true);
    assert_int_equal(request->code, CODE_NONE);
    assert_int_equal(request->rows[0].tokens, 16);
    assert_true(request->rows[0].truncated);
    request_free(request);
}

static void too_long_names_both_counts(void **state)
{
    const struct setup *setup = *state;
    struct request *request = request_of(setup->model, 14, false);
    assert_int_equal(request->code, CODE_NONE);
    request_free(request);
    request = request_of(setup->model, 40, false);
    assert_int_equal(request->code, CODE_TOO_LONG);
    assert_non_null(strstr(request->message, "42"));
    assert_non_null(strstr(request->message, "16"));
    assert_false(request->retryable);
    request_free(request);
}

static void a_prompt_stands_before_each_text(void **state)
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

static const struct CMUnitTest cases[] = {
    cmocka_unit_test_setup_teardown(short_texts_become_their_ids, open_model, close_model),
    cmocka_unit_test_setup_teardown(long_texts_are_truncated_and_say_so, open_model, close_model),
    cmocka_unit_test_setup_teardown(too_long_names_both_counts, open_model, close_model),
    cmocka_unit_test_setup_teardown(a_prompt_stands_before_each_text, open_model, close_model),
};

TEST_MAIN(cases)
