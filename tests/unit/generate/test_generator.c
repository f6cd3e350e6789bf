/* Generations from their prompts to their ends, on a small random model. */
#include "letters.h"

#include <math.h>

static const int32_t prompt[] = {'T', 'h', 'e', ' ', 'c', 'a', 't'};

static const struct generator_options plain = {.blocks = 64,
                                               .steps = {.step_tokens = 64, .step_rows = 8, .share = true}};

static struct generate_request request_of(uint32_t max_tokens)
{
    return (struct generate_request){.prompt = prompt,
                                     .prompt_tokens = sizeof prompt / sizeof prompt[0],
                                     .max_tokens = max_tokens,
                                     .sampling = {.temperature = 1.5, .seed = 7},
                                     .inside = true};
}

static struct generation *must_add(struct generator *generator, const struct generate_request *request)
{
    struct generation *generation;
    struct err err = {0};
    if (generator_add(generator, request, &generation, &err) != STATUS_OK) { fail_msg("%s", err.message); }
    return generation;
}

/* The ids that were written, and how many. */
static const int32_t *written(const struct generation *generation, uint32_t *count)
{
    *count = generation->sequence.count - generation->sequence.prompt;
    return generation->sequence.ids + generation->sequence.prompt;
}

TEST(a_text_is_the_characters_of_its_tokens)
{
    struct letters letters = letters_open(1);
    struct generator *generator = letters_generator(&letters, plain);
    struct generate_request request = request_of(60);
    struct generation *generation = must_add(generator, &request);
    struct buffer expected = {0};
    uint32_t count;
    letters_run(generator);
    const int32_t *ids = written(generation, &count);
    assert_true(generation->finish == FINISH_LENGTH || ids[count - 1] == LETTERS_END);
    assert_int_equal(tokenizer_decode(letters.tokenizer, ids, count, false, &expected, NULL), STATUS_OK);
    assert_int_equal(generation->out.text.length, expected.length);
    assert_memory_equal(generation->out.text.data, expected.data, expected.length);
    assert_int_equal(generation->out.ready, expected.length);
    buffer_free(&expected);
    generation_end(generator, generation);
    generator_close(generator);
    letters_close(&letters);
}

/* The texts of two runs: with no end, and with the token at place `at` of that run as one that ends a text. */
TEST(a_token_that_ends_a_text_is_counted_and_not_shown)
{
    struct letters letters = letters_open(2);
    struct generator *generator = letters_generator(&letters, plain);
    struct generate_request request = request_of(40);
    letters.model->end_id_count = 0;
    struct generation *whole = must_add(generator, &request);
    letters_run(generator);
    uint32_t whole_count, count, at = 11;
    const int32_t *whole_ids = written(whole, &whole_count);
    assert_int_equal(whole->finish, FINISH_LENGTH);
    assert_int_equal(whole_count, 40);
    letters.model->end_ids[letters.model->end_id_count++] = whole_ids[at];
    for (uint32_t i = 0; i < at; i++) { at = whole_ids[i] == whole_ids[at] ? i : at; }
    struct generation *cut = must_add(generator, &request);
    letters_run(generator);
    const int32_t *ids = written(cut, &count);
    assert_int_equal(cut->finish, FINISH_STOP);
    assert_int_equal(count, at + 1);
    assert_memory_equal(ids, whole_ids, count * sizeof *ids);
    struct buffer expected = {0};
    assert_int_equal(tokenizer_decode(letters.tokenizer, ids, at, false, &expected, NULL), STATUS_OK);
    assert_int_equal(cut->out.text.length, expected.length);
    buffer_free(&expected);
    generation_end(generator, whole);
    generation_end(generator, cut);
    generator_close(generator);
    letters_close(&letters);
}

TEST(a_stop_string_ends_a_text_before_it)
{
    struct letters letters = letters_open(3);
    struct generator *generator = letters_generator(&letters, plain);
    struct generate_request request = request_of(40);
    request.sampling.temperature = 0.8;
    struct generation *whole = must_add(generator, &request);
    letters_run(generator);
    char stop[16] = {0};
    size_t at = whole->out.text.length / 2, length = 0;
    const char *text = whole->out.text.data;
    while ((text[at] & 0xC0) == 0x80) { at++; } /* to the beginning of a character */
    while (length < 2 || (text[at + length] & 0xC0) == 0x80) { length++; }
    memcpy(stop, text + at, length);
    const char *const stops[] = {"never in the text", stop};
    request.stops = stops;
    request.stop_count = 2;
    struct generation *cut = must_add(generator, &request);
    letters_run(generator);
    size_t expected = (size_t)((char *)memmem(text, whole->out.text.length, stop, length) - text);
    assert_int_equal(cut->finish, FINISH_STOP);
    assert_int_equal(cut->out.text.length, expected);
    assert_memory_equal(cut->out.text.data, text, expected);
    assert_true(cut->sequence.count < whole->sequence.count);
    generation_end(generator, whole);
    generation_end(generator, cut);
    generator_close(generator);
    letters_close(&letters);
}

/* A run that goes on after each number of the tokens of another one, as after the death of its worker. */
TEST(a_text_goes_on_after_the_tokens_that_are_written)
{
    struct letters letters = letters_open(3);
    struct generator *generator = letters_generator(&letters, plain);
    struct generate_request request = request_of(30);
    letters.model->end_id_count = 0;
    struct generation *whole = must_add(generator, &request);
    letters_run(generator);
    uint32_t count, again_count;
    const int32_t *ids = written(whole, &count);
    assert_int_equal(whole->ends[count - 1], whole->out.text.length);
    for (uint32_t had = 1; had <= count; had++) {
        request.written = ids;
        request.written_tokens = had;
        struct generation *again = must_add(generator, &request);
        assert_int_equal(again->finish != FINISH_NONE, had == count);
        letters_run(generator);
        const int32_t *again_ids = written(again, &again_count);
        assert_int_equal(again->finish, whole->finish);
        assert_int_equal(again_count, count);
        assert_memory_equal(again_ids, ids, count * sizeof *ids);
        assert_memory_equal(again->ends, whole->ends, count * sizeof *whole->ends);
        assert_int_equal(again->out.text.length, whole->out.text.length);
        assert_memory_equal(again->out.text.data, whole->out.text.data, whole->out.text.length);
        generation_end(generator, again);
    }
    struct generation *none;
    struct err err;
    request.max_tokens = count - 1;
    assert_int_equal(generator_add(generator, &request, &none, &err), STATUS_BAD_INPUT);
    assert_string_equal(err.message, "30 tokens are written, more than the text may have");
    generation_end(generator, whole);
    generator_close(generator);
    letters_close(&letters);
}

TEST(a_text_without_a_bound_fills_the_pool_or_the_model)
{
    static const uint32_t blocks[] = {2, 64};
    struct letters letters = letters_open(6);
    letters.model->end_id_count = 0;
    for (int i = 0; i < 2; i++) {
        struct generator_options options = plain;
        options.blocks = blocks[i];
        struct generator *generator = letters_generator(&letters, options);
        struct generate_request request = request_of(0);
        struct generation *generation = must_add(generator, &request);
        uint32_t count, pool = blocks[i] * BLOCK_TOKENS + 1, most = letters.model->max_tokens;
        letters_run(generator);
        (void)written(generation, &count);
        assert_int_equal(generation->finish, FINISH_LENGTH);
        assert_int_equal(count, (pool < most ? pool : most) - request.prompt_tokens);
        generation_end(generator, generation);
        generator_close(generator);
    }
    letters_close(&letters);
}

TEST(a_prompt_that_cannot_run_fails_alone)
{
    struct letters letters = letters_open(4);
    struct generator_options small = plain;
    small.blocks = 4;
    struct generator *generator = letters_generator(&letters, small);
    struct generate_request good = request_of(9), bad = good;
    struct generation *generation = must_add(generator, &good), *none;
    static int32_t large[LETTERS_POSITIONS], strange[] = {'a', LETTERS_WORDS};
    bad.max_tokens = 80; /* four blocks are 64 tokens */
    assert_int_equal(generator_add(generator, &bad, &none, NULL), STATUS_BAD_INPUT);
    bad = good;
    bad.prompt = large;
    bad.prompt_tokens = LETTERS_POSITIONS;
    assert_int_equal(generator_add(generator, &bad, &none, NULL), STATUS_BAD_INPUT);
    bad.prompt = strange;
    bad.prompt_tokens = 2;
    assert_int_equal(generator_add(generator, &bad, &none, NULL), STATUS_BAD_INPUT);
    bad.prompt_tokens = 0;
    assert_int_equal(generator_add(generator, &bad, &none, NULL), STATUS_BAD_INPUT);
    assert_null(none);
    letters_run(generator);
    assert_true(generation->finish == FINISH_LENGTH || generation->finish == FINISH_STOP);
    generation_end(generator, generation);
    generator_close(generator);
    letters_close(&letters);
}

TEST(the_last_position_ends_a_text)
{
    struct letters letters = letters_open(5);
    struct generator *generator = letters_generator(&letters, plain);
    struct generate_request request = request_of(1 << 20);
    letters.model->end_id_count = 0;
    struct generation *generation = must_add(generator, &request);
    letters_run(generator);
    assert_int_equal(generation->finish, FINISH_LENGTH);
    assert_int_equal(generation->sequence.count, LETTERS_POSITIONS);
    generation_end(generator, generation);
    generator_close(generator);
    letters_close(&letters);
}

/* A row of the embeddings is not a number, so a prompt with its token gives no logits, and the others do. */
TEST(logits_that_are_no_numbers_fail_one_text)
{
    struct letters letters = letters_open(6);
    static float head[LETTERS_WORDS * 32];
    float *words = (float *)letters.model->storage;
    memcpy(head, words, sizeof head);
    for (int i = 0; i < 32; i++) { words[255 * 32 + i] = NAN; }
    letters.model->tied_head = false;
    letters.model->lm_head = letters.model->word_embeddings;
    letters.model->lm_head.data = head;
    engine_close(letters.engine);
    struct engine_options options = {.backend = "cpu", .precision = PRECISION_F32, .cache_path = ""};
    assert_int_equal(engine_open(letters.model, &options, &letters.engine, NULL), STATUS_OK);
    struct generator *generator = letters_generator(&letters, plain);
    struct generate_request good = request_of(9), bad = good;
    static const int32_t poisoned[] = {'a', 255, 'b'};
    good.sampling.temperature = bad.sampling.temperature = 0;
    bad.prompt = poisoned;
    bad.prompt_tokens = 3;
    struct generation *first = must_add(generator, &bad), *second = must_add(generator, &good);
    letters_run(generator);
    assert_int_equal(first->finish, FINISH_ERROR);
    assert_int_equal(first->err.status, STATUS_NON_FINITE);
    assert_int_equal(second->finish, FINISH_LENGTH);
    generation_end(generator, first);
    generation_end(generator, second);
    generator_close(generator);
    letters_close(&letters);
}

TEST(a_generation_may_end_at_any_time)
{
    struct letters letters = letters_open(7);
    struct generator *generator = letters_generator(&letters, plain);
    struct generate_request request = request_of(20);
    for (int steps = 0; steps < 4; steps++) {
        struct generation *first = must_add(generator, &request), *second = must_add(generator, &request);
        for (int i = 0; i < steps; i++) { assert_int_equal(generator_step(generator, NULL), STATUS_OK); }
        generation_end(generator, first);
        letters_run(generator);
        assert_true(second->finish != FINISH_NONE && second->finish != FINISH_ERROR);
        generation_end(generator, second);
    }
    generator_close(generator);
    letters_close(&letters);
}
