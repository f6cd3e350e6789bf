/* Batches in two steps, on a backend whose passes stay there until they are waited for: order, overlap, and the batch
 * to which an error belongs. */
#include "fake_engine.h"

#include "engine/encoder.h"

enum { DIM = 4, ROWS = 5 };

static const struct model bare = {.vocabulary = 1000, .max_tokens = 16, .layer_count = 2, .hidden = DIM, .dim = DIM};

/* Rows of two tokens each: base, base + row. */
struct batch {
    int32_t ids[2 * ROWS];
    uint32_t start[ROWS], length[ROWS];
    float output[ROWS * DIM];
    struct engine_batch engine;
};

static void fill(struct batch *batch, int32_t base)
{
    *batch = (struct batch){0};
    for (uint32_t r = 0; r < ROWS; r++) {
        batch->ids[2 * r] = base;
        batch->ids[2 * r + 1] = base + (int32_t)r;
        batch->start[r] = 2 * r;
        batch->length[r] = 2;
    }
    batch->engine = (struct engine_batch){ROWS, 2 * ROWS, batch->ids, batch->start, batch->length, batch->output};
}

static void expect_output(const struct batch *batch, int32_t base)
{
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t i = 0; i < DIM; i++) {
            assert_true(batch->output[r * DIM + i] == (float)(2 * base + (int32_t)r));
        }
    }
}

static void put(struct opened *opened, struct batch *batch, int32_t base)
{
    struct err err = {0};
    fill(batch, base);
    assert_int_equal(encoder_put(opened->encoder, &batch->engine, &err), STATUS_OK);
}

static void take(struct opened *opened, enum status expected, const char *message)
{
    struct err err = {0};
    assert_int_equal(encoder_take(opened->encoder, &err), expected);
    if (expected != STATUS_OK) {
        assert_int_equal(err.status, expected);
        assert_string_equal(err.message, message);
    }
}

TEST(batches_are_taken_in_the_order_of_putting)
{
    struct batch batches[3];
    fake_reset();
    struct opened opened = open_fake(&bare, PRECISION_AUTO);
    assert_int_equal(encoder_slots(opened.engine), 3);
    for (int round = 0; round < 5; round++) { /* around the rings, by another distance than their size */
        for (int i = 0; i < 3; i++) {
            put(&opened, &batches[i], 10 * i + 1 + round);
            assert_int_equal(opened.encoder->batches_out, i + 1);
        }
        for (int i = 0; i < 3; i++) {
            take(&opened, STATUS_OK, "");
            expect_output(&batches[i], 10 * i + 1 + round);
            assert_true(i == 2 || batches[i + 1].output[0] == 0.0f); /* not waited for yet */
        }
    }
    assert_int_equal(opened.encoder->batches_out, 0);
    assert_int_equal(fake.most_waiting, 3);
    close_fake(&opened);
}

/* A batch has more passes than there are slots, and follows another one that is out. */
TEST(passes_wait_for_slots)
{
    struct batch first, second;
    fake_reset();
    fake.limits.tokens = 2;
    struct opened opened = open_fake(&bare, PRECISION_AUTO);
    put(&opened, &first, 1);
    put(&opened, &second, 50);
    take(&opened, STATUS_OK, "");
    take(&opened, STATUS_OK, "");
    expect_output(&first, 1);
    expect_output(&second, 50);
    assert_int_equal(fake.passes, 2 * ROWS);
    assert_int_equal(engine_counters(opened.engine).passes, 2 * ROWS);
    assert_int_equal(fake.most_waiting, 3);
    close_fake(&opened);
}

TEST(a_pass_has_no_more_rows_than_the_stream_takes)
{
    struct batch batch;
    fake_reset();
    fake.limits.rows = 2;
    struct opened opened = open_fake(&bare, PRECISION_AUTO);
    put(&opened, &batch, 7);
    take(&opened, STATUS_OK, "");
    expect_output(&batch, 7);
    assert_int_equal(fake.most_rows, 2);
    assert_int_equal(fake.passes, 3);
    close_fake(&opened);
}

/* The middle one of three batches fails, in each step; the others must not be affected. */
TEST(an_error_belongs_to_its_batch)
{
    static const char *const messages[] = {"fake: embed", "fake: submit", "fake: wait"};
    for (int step = 0; step < 3; step++) {
        struct batch batches[3];
        fake_reset();
        struct opened opened = open_fake(&bare, PRECISION_AUTO);
        int32_t *const tokens[] = {&fake.embed_fails, &fake.submit_fails, &fake.wait_fails};
        *tokens[step] = 102;
        for (int i = 0; i < 3; i++) { put(&opened, &batches[i], 50 * (i + 1)); }
        take(&opened, STATUS_OK, "");
        take(&opened, STATUS_INTERNAL, messages[step]);
        take(&opened, STATUS_OK, "");
        expect_output(&batches[0], 50);
        expect_output(&batches[2], 150);
        close_fake(&opened);
    }
}

/* One pass of several fails: no further passes of the batch are begun, but those that are out are waited for. */
TEST(a_batch_fails_with_its_first_pass_that_does)
{
    for (int step = 0; step < 3; step++) {
        struct batch bad, good;
        fake_reset();
        fake.limits.tokens = 2;
        struct opened opened = open_fake(&bare, PRECISION_AUTO);
        int32_t *const tokens[] = {&fake.embed_fails, &fake.submit_fails, &fake.wait_fails};
        *tokens[step] = 61; /* the second row of base 60 */
        fake.failure = STATUS_NO_MEMORY;
        put(&opened, &bad, 60);
        put(&opened, &good, 200);
        struct err err = {0};
        assert_int_equal(encoder_take(opened.encoder, &err), STATUS_NO_MEMORY);
        take(&opened, STATUS_OK, "");
        expect_output(&good, 200);
        close_fake(&opened);
    }
}

TEST(what_is_wrong_with_a_batch_is_said_at_once)
{
    struct batch good, bad;
    struct err err = {0};
    fake_reset();
    struct opened opened = open_fake(&bare, PRECISION_AUTO);
    put(&opened, &good, 1);
    fill(&bad, 1);
    bad.ids[3] = 1000;
    assert_int_equal(encoder_put(opened.encoder, &bad.engine, &err), STATUS_BAD_INPUT);
    assert_int_equal(opened.encoder->batches_out, 1);
    take(&opened, STATUS_OK, "");
    expect_output(&good, 1);
    close_fake(&opened);
}

TEST(an_empty_batch_may_be_out)
{
    struct err err = {0};
    fake_reset();
    struct opened opened = open_fake(&bare, PRECISION_AUTO);
    struct engine_batch nothing = {0};
    assert_int_equal(encoder_put(opened.encoder, &nothing, &err), STATUS_OK);
    assert_int_equal(opened.encoder->batches_out, 1);
    take(&opened, STATUS_OK, "");
    assert_int_equal(fake.passes, 0);
    close_fake(&opened);
}

/* The head works on the vectors of its own batch, whatever the batch after it has written. */
TEST(a_head_scores_each_batch_that_is_out)
{
    static const float dense[DIM * DIM] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}, zeros[DIM] = {0};
    static const float out[2 * DIM] = {1, 1, 0, 0, -1, 0, 0, 0}, bias[2] = {0, 1};
    struct model_module layers[2] = {{MODULE_DENSE, "dense", DIM, DIM, MODULE_RELU, .biased = true},
                                     {MODULE_DENSE, "out", DIM, 2, MODULE_IDENTITY, .biased = true}};
    layers[0].weight = (struct tensor){.rank = 2, .data = dense, .elements = DIM * DIM};
    layers[0].bias = (struct tensor){.rank = 1, .data = zeros, .elements = DIM};
    layers[1].weight = (struct tensor){.rank = 2, .data = out, .elements = 2 * DIM};
    layers[1].bias = (struct tensor){.rank = 1, .data = bias, .elements = 2};
    struct model model = bare;
    model.modules = layers;
    model.module_count = 2;
    model.dim = model.head.labels = 2;
    struct batch batches[2];
    fake_reset();
    struct opened opened = open_fake(&model, PRECISION_AUTO);
    put(&opened, &batches[0], 10);
    put(&opened, &batches[1], 200);
    for (int b = 0; b < 2; b++) {
        take(&opened, STATUS_OK, NULL);
        for (int r = 0; r < ROWS; r++) {
            float pooled = (float)(2 * (b == 0 ? 10 : 200) + r);
            assert_true(batches[b].output[2 * r] == 2 * pooled && batches[b].output[2 * r + 1] == 1 - pooled);
        }
    }
    close_fake(&opened);
}
