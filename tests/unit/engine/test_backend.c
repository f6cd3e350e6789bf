/* The table of backends, the null backend, and a backend of the test's own that fails on demand. */
#include "harness.h"

#include <math.h>

#include "engine/backend.h"
#include "engine/engine.h"

enum { DIM = 24 };

/* The null backend reads no weights, so this much of a model will do. */
static const struct model bare = {
    .vocabulary = 100, .max_tokens = 16, .layer_count = 3, .hidden = DIM, .dim = DIM, .normalize = true};

struct opened {
    struct engine *engine;
    struct encoder *encoder;
};

static struct opened open_null(const struct model *model)
{
    struct opened opened;
    struct err err = {0};
    struct engine_options options = {"null", PRECISION_AUTO};
    assert_int_equal(engine_open(model, &options, &opened.engine, &err), STATUS_OK);
    assert_int_equal(encoder_open(opened.engine, &opened.encoder, &err), STATUS_OK);
    return opened;
}

static void close_null(struct opened *opened)
{
    encoder_close(opened->encoder);
    engine_close(opened->engine);
}

TEST(null_vectors_depend_on_the_ids_alone)
{
    struct opened opened = open_null(&bare);
    struct err err = {0};
    int32_t ids[9] = {1, 2, 3, 4, 1, 2, 1, 2, 3};
    const uint32_t start[3] = {0, 4, 6}, length[3] = {3, 2, 3};
    float output[3 * DIM];
    struct engine_batch batch = {3, 9, ids, start, length, output};
    assert_int_equal(encoder_run(opened.encoder, &batch, &err), STATUS_OK);
    assert_memory_equal(output, output + 2 * DIM, DIM * sizeof(float));
    assert_memory_not_equal(output, output + DIM, DIM * sizeof(float));
    double squares = 0;
    for (unsigned i = 0; i < DIM; i++) { squares += (double)output[i] * output[i]; }
    assert_true(fabs(squares - 1) < 1e-5);
    close_null(&opened);
}

TEST(null_refuses_what_every_backend_refuses)
{
    struct opened opened = open_null(&bare);
    struct err err = {0};
    int32_t ids[2] = {1, 100};
    const uint32_t start = 0, length = 2;
    float output[DIM];
    struct engine_batch batch = {1, 2, ids, &start, &length, output};
    assert_int_equal(encoder_run(opened.encoder, &batch, &err), STATUS_BAD_INPUT);
    close_null(&opened);
}

TEST(engine_says_what_it_is)
{
    struct opened opened = open_null(&bare);
    assert_string_equal(engine_backend(opened.engine), "null");
    assert_int_equal(engine_precision(opened.engine), PRECISION_F32);
    assert_int_equal(engine_weight_bytes(opened.engine), 0);
    close_null(&opened);
}

TEST(unknown_backends_are_refused_by_name)
{
    const struct backend_ops *ops = NULL;
    struct err err = {0}, passed_over;
    assert_int_equal(backend_find("abacus", PRECISION_AUTO, NULL, &ops, NULL, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.message, "abacus"));
    assert_non_null(strstr(err.message, "cpu, null"));
    assert_int_equal(backend_find("auto", PRECISION_AUTO, NULL, &ops, &passed_over, &err), STATUS_OK);
    assert_string_not_equal(ops->name, "null");
    assert_int_equal(backend_find(NULL, PRECISION_AUTO, NULL, &ops, NULL, &err), STATUS_OK);
    assert_string_not_equal(ops->name, "null");
}

TEST(precisions_have_names)
{
    const enum precision all[] = {PRECISION_AUTO, PRECISION_F32, PRECISION_BF16, PRECISION_F16, PRECISION_INT8};
    enum precision parsed;
    struct err err = {0};
    for (unsigned i = 0; i < sizeof all / sizeof all[0]; i++) {
        assert_int_equal(precision_parse(precision_name(all[i]), &parsed, &err), STATUS_OK);
        assert_int_equal(parsed, all[i]);
    }
    assert_int_equal(precision_parse("f64", &parsed, &err), STATUS_BAD_INPUT);
    assert_non_null(strstr(err.message, "f64"));
}

static enum status lose_device(struct backend_workspace *stream, uint32_t layer, struct err *err)
{
    (void)stream;
    return layer < 2 ? STATUS_OK : err_set(err, STATUS_DEVICE_LOST, "layer %u: lost", layer);
}

TEST(a_failing_op_ends_the_pass)
{
    struct backend_ops failing = backend_null;
    failing.attention = lose_device;
    struct opened opened;
    struct err err = {0};
    int32_t id = 1;
    const uint32_t start = 0, length = 1;
    float output[DIM] = {0};
    struct engine_batch batch = {1, 1, &id, &start, &length, output};
    assert_int_equal(engine_open_with(&failing, &bare, NULL, &opened.engine, &err), STATUS_OK);
    assert_int_equal(encoder_open(opened.engine, &opened.encoder, &err), STATUS_OK);
    assert_int_equal(encoder_run(opened.encoder, &batch, &err), STATUS_DEVICE_LOST);
    assert_string_equal(err.message, "layer 2: lost");
    assert_true(output[0] == 0.0f);
    close_null(&opened);
}
