/* Rows that f16 cannot hold, on a backend whose precisions overflow by request.
 * ctest: threads */
#include "fake_engine.h"

#include <math.h>
#include <pthread.h>

#include "model_builder.h"

enum { DIM = 3, ROWS = 3, OVERFLOWS = 9 };

static const struct model bare = {.vocabulary = 100, .max_tokens = 16, .layer_count = 1, .hidden = DIM, .dim = DIM};

/* Three rows in a padded batch; the middle one has the token. Its elements are `value`, those of its neighbours
 * 3 and a fraction by the engine's precision. */
static void run(struct opened *opened, enum status expected, float value, struct err *err)
{
    const int32_t ids[3 * ROWS] = {1, 2, -1, 1, OVERFLOWS, -1, 3, -1, -1};
    const uint32_t start[ROWS] = {0, 3, 6}, length[ROWS] = {2, 2, 1};
    float output[ROWS * DIM] = {0};
    struct engine_batch batch = {ROWS, 3 * ROWS, ids, start, length, output};
    *err = (struct err){0};
    assert_int_equal(encoder_run(opened->encoder, &batch, err), expected);
    for (int i = 0; i < DIM && (expected == STATUS_OK || expected == STATUS_NON_FINITE); i++) {
        assert_true(floorf(output[i]) == 3.0f && floorf(output[2 * DIM + i]) == 3.0f);
        assert_true(output[DIM + i] == value);
    }
}

static void expect_counters(struct opened *opened, uint64_t in_bf16, uint64_t in_f32, uint64_t lost)
{
    struct engine_counters counters = engine_counters(opened->engine);
    assert_int_equal(counters.rows_bf16, in_bf16);
    assert_int_equal(counters.rows_f32, in_f32);
    assert_int_equal(counters.rows_lost, lost);
}

TEST(a_row_is_run_again_alone_in_bf16)
{
    struct err err;
    fake_reset();
    fake.overflows[PRECISION_F16] = OVERFLOWS;
    struct opened opened = open_fake(&bare, PRECISION_AUTO);
    run(&opened, STATUS_OK, 10.25f, &err);
    assert_int_equal(fake.passes_in[PRECISION_F16], 1);
    assert_int_equal(fake.passes_in[PRECISION_BF16], 1);
    assert_int_equal(fake.passes_in[PRECISION_F32], 0);
    expect_counters(&opened, 1, 0, 0);
    close_fake(&opened);
}

TEST(then_in_f32)
{
    struct err err;
    fake_reset();
    fake.overflows[PRECISION_F16] = fake.overflows[PRECISION_BF16] = OVERFLOWS;
    struct opened opened = open_fake(&bare, PRECISION_F16);
    run(&opened, STATUS_OK, 10.5f, &err);
    expect_counters(&opened, 0, 1, 0);
    close_fake(&opened);
}

TEST(then_it_is_lost)
{
    struct err err;
    fake_reset();
    fake.overflows[PRECISION_F16] = fake.overflows[PRECISION_BF16] = fake.overflows[PRECISION_F32] = OVERFLOWS;
    struct opened opened = open_fake(&bare, PRECISION_F16);
    run(&opened, STATUS_NON_FINITE, INFINITY, &err);
    assert_string_equal(err.message, "row 1: the vector is not finite");
    expect_counters(&opened, 0, 0, 1);
    close_fake(&opened);
}

/* The next batch runs in f16 again, whatever the last one needed; no engine is opened twice. */
TEST(nothing_sticks)
{
    struct err err;
    fake_reset();
    struct opened opened = open_fake(&bare, PRECISION_F16);
    for (unsigned round = 0; round < 3; round++) {
        fake.overflows[PRECISION_F16] = 0;
        run(&opened, STATUS_OK, 10.0f, &err);
        fake.overflows[PRECISION_F16] = OVERFLOWS;
        run(&opened, STATUS_OK, 10.25f, &err);
        assert_int_equal(fake.opened, 2);
        assert_int_equal(fake.streams, 2);
    }
    expect_counters(&opened, 3, 0, 0);
    close_fake(&opened);
}

TEST(other_precisions_are_what_was_asked_for)
{
    struct err err;
    const enum precision asked[] = {PRECISION_BF16, PRECISION_F32};
    for (int i = 0; i < 2; i++) {
        fake_reset();
        fake.overflows[asked[i]] = OVERFLOWS;
        struct opened opened = open_fake(&bare, asked[i]);
        run(&opened, STATUS_NON_FINITE, INFINITY, &err);
        assert_int_equal(fake.passes, 1);
        close_fake(&opened);
    }
}

/* A wider engine that cannot be opened is passed over; it is tried again the next time. */
TEST(an_engine_that_does_not_open_is_no_end)
{
    struct err err;
    fake_reset();
    fake.overflows[PRECISION_F16] = OVERFLOWS;
    fake.open_fails[PRECISION_BF16] = STATUS_BAD_INPUT;
    struct opened opened = open_fake(&bare, PRECISION_F16);
    run(&opened, STATUS_OK, 10.5f, &err);
    fake.open_fails[PRECISION_F32] = STATUS_BAD_INPUT;
    fake.overflows[PRECISION_F32] = OVERFLOWS;
    run(&opened, STATUS_NON_FINITE, INFINITY, &err);
    assert_non_null(strstr(err.message, "fake: no bf16"));
    fake.open_fails[PRECISION_BF16] = STATUS_OK;
    run(&opened, STATUS_OK, 10.25f, &err);
    expect_counters(&opened, 1, 1, 1);
    close_fake(&opened);
}

/* Lack of memory is not the batch's fault: it comes back with that status, and works when there is memory. */
TEST(no_memory_for_a_wider_engine_is_said_so)
{
    struct err err;
    for (int where = 0; where < 2; where++) {
        fake_reset();
        fake.overflows[PRECISION_F16] = OVERFLOWS;
        enum status *fails = where == 0 ? fake.open_fails : fake.stream_fails;
        fails[PRECISION_BF16] = STATUS_NO_MEMORY;
        struct opened opened = open_fake(&bare, PRECISION_F16);
        run(&opened, STATUS_NO_MEMORY, 0, &err);
        assert_non_null(strstr(err.message, "row 1: fake"));
        fails[PRECISION_BF16] = STATUS_OK;
        run(&opened, STATUS_OK, 10.25f, &err);
        close_fake(&opened);
    }
}

TEST(a_device_that_is_lost_meanwhile_is_lost)
{
    struct err err;
    fake_reset();
    fake.overflows[PRECISION_F16] = OVERFLOWS;
    struct opened opened = open_fake(&bare, PRECISION_F16);
    run(&opened, STATUS_OK, 10.25f, &err);
    fake.open_fails[PRECISION_F32] = STATUS_DEVICE_LOST;
    fake.overflows[PRECISION_BF16] = OVERFLOWS;
    run(&opened, STATUS_DEVICE_LOST, 0, &err);
    close_fake(&opened);
}

/* While a row is run again, other batches of the encoder are out. */
TEST(rows_are_rescued_while_others_fly)
{
    const int32_t ids[3][2] = {{1, 2}, {1, OVERFLOWS}, {3, 4}};
    const uint32_t start = 0, length = 2;
    const float expected[3] = {3, 10.25f, 7};
    float output[3][DIM];
    struct engine_batch batches[3];
    struct err err;
    fake_reset();
    fake.overflows[PRECISION_F16] = OVERFLOWS;
    struct opened opened = open_fake(&bare, PRECISION_F16);
    for (int i = 0; i < 3; i++) {
        batches[i] = (struct engine_batch){1, 2, ids[i], &start, &length, output[i]};
        assert_int_equal(encoder_put(opened.encoder, &batches[i], &err), STATUS_OK);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(encoder_take(opened.encoder, &err), STATUS_OK);
        assert_true(output[i][0] == expected[i]);
    }
    close_fake(&opened);
}

enum { THREADS = 4, ROUNDS = 50 };

static void *run_many(void *argument)
{
    struct encoder *encoder = argument;
    const int32_t ids[2] = {1, OVERFLOWS};
    const uint32_t start = 0, length = 2;
    intptr_t wrong = 0;
    for (int i = 0; i < ROUNDS; i++) {
        float output[DIM] = {0};
        struct engine_batch batch = {1, 2, ids, &start, &length, output};
        wrong += encoder_run(encoder, &batch, NULL) != STATUS_OK || output[0] != 10.25f;
    }
    return (void *)wrong;
}

/* The wider engine is opened once, by the first thread that needs it. */
TEST(encoders_of_several_threads_share_it)
{
    struct err err = {0};
    pthread_t threads[THREADS];
    struct encoder *encoders[THREADS];
    fake_reset();
    fake.overflows[PRECISION_F16] = OVERFLOWS;
    struct opened opened = open_fake(&bare, PRECISION_F16);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(encoder_open(opened.engine, &encoders[i], &err), STATUS_OK);
        assert_int_equal(pthread_create(&threads[i], NULL, run_many, encoders[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
        encoder_close(encoders[i]);
    }
    expect_counters(&opened, THREADS * ROUNDS, 0, 0);
    assert_int_equal(fake.opened, 2);
    close_fake(&opened);
}

/* As the daemon has it: the weights' bytes are long gone, so they come from the files once more. */
TEST(weights_are_read_again_from_the_files)
{
    struct model_spec spec = model_spec_tiny();
    spec.normalize = false;
    char *directory = model_build(&spec);
    struct model *model;
    struct err err = {0};
    const int32_t ids[2] = {1, OVERFLOWS};
    const uint32_t start = 0, length = 2;
    float output[64];
    struct engine_batch batch = {1, 2, ids, &start, &length, output};
    fake_reset();
    fake.overflows[PRECISION_F16] = OVERFLOWS;
    assert_int_equal(model_open(directory, NULL, &model, &err), STATUS_OK);
    struct opened opened = open_fake(model, PRECISION_F16);
    model_release_weights(model);
    assert_int_equal(encoder_run(opened.encoder, &batch, &err), STATUS_OK);
    assert_true(output[0] == 10.25f);

    fake.overflows[PRECISION_BF16] = OVERFLOWS;
    model_file_write(directory, "model.safetensors", "something else by now");
    assert_int_equal(encoder_run(opened.encoder, &batch, &err), STATUS_NON_FINITE);
    assert_non_null(strstr(err.message, "another size"));
    close_fake(&opened);
    model_close(model);
    model_build_remove(directory);
}

/* --- a device that finishes rows itself: it looks whether they are finite, and normalises where a pass asks for it ---
 */

static struct opened open_looking(const struct model *model, bool raw)
{
    static struct backend_ops looking;
    looking = fake_backend;
    looking.finite = fake_finite;
    return open_fake_with(&looking, model, (struct engine_options){.precision = PRECISION_F16, .raw = raw});
}

/* The fake does not scale vectors, so that one which the host had scaled, once more or at all, would show. */
TEST(the_host_leaves_rows_alone_that_the_device_has_finished)
{
    struct err err;
    struct model model = bare;
    model.normalize = true;
    for (int raw = 0; raw < 2; raw++) {
        fake_reset();
        struct opened opened = open_looking(&model, raw == 1);
        run(&opened, STATUS_OK, raw == 1 ? 10.0f : 10.125f, &err);
        fake.overflows[PRECISION_F16] = OVERFLOWS;
        run(&opened, STATUS_OK, raw == 1 ? 10.25f : 10.375f, &err);
        fake.overflows[PRECISION_BF16] = fake.overflows[PRECISION_F32] = OVERFLOWS;
        run(&opened, STATUS_NON_FINITE, INFINITY, &err);
        assert_string_equal(err.message, "row 1: the vector is not finite");
        expect_counters(&opened, 1, 0, 1);
        close_fake(&opened);
    }
}

/* Only one of a batch's passes holds the row that is not finite. */
TEST(one_pass_of_several_has_the_row)
{
    struct err err;
    fake_reset();
    fake.limits.rows = 1;
    fake.overflows[PRECISION_F16] = OVERFLOWS;
    struct opened opened = open_looking(&bare, false);
    run(&opened, STATUS_OK, 10.25f, &err);
    assert_int_equal(fake.passes_in[PRECISION_F16], ROWS);
    expect_counters(&opened, 1, 0, 0);
    close_fake(&opened);
}

/* Modules follow, so vectors are scaled after them, by the host; a row that is not finite is still found before. */
TEST(vectors_before_modules_are_not_scaled)
{
    struct err err;
    struct model model = bare;
    static const float weight[DIM * DIM] = {1}, bias[DIM] = {0, 1};
    struct model_module module = {MODULE_DENSE, "dense", DIM, DIM, MODULE_IDENTITY, .biased = true};
    module.weight = (struct tensor){.rank = 2, .data = weight, .elements = DIM * DIM};
    module.bias = (struct tensor){.rank = 1, .data = bias, .elements = DIM};
    model.normalize = true;
    model.modules = &module;
    model.module_count = 1;
    const int32_t ids[2] = {1, OVERFLOWS};
    const uint32_t start = 0, length = 2;
    float output[DIM];
    struct engine_batch batch = {1, 2, ids, &start, &length, output};
    fake_reset();
    struct opened opened = open_looking(&model, false);
    assert_int_equal(encoder_run(opened.encoder, &batch, &err), STATUS_OK);
    assert_true(fabsf(output[0] / output[1] - 10.0f) < 1e-5f); /* the sum of the ids beside the bias */
    assert_true(fabsf(output[0] * output[0] + output[1] * output[1] - 1) < 1e-6f);
    fake.overflows[PRECISION_F16] = fake.overflows[PRECISION_BF16] = fake.overflows[PRECISION_F32] = OVERFLOWS;
    assert_int_equal(encoder_run(opened.encoder, &batch, &err), STATUS_NON_FINITE);
    assert_true(isnan(output[0]));
    close_fake(&opened);
}
