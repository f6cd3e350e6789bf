/* Attention by cuDNN in the CUDA engine, on the host, whose cuDNN is plain loops behind the same calls: when it is
 * taken and when our kernel is, what it is told of ragged rows, in graphs, without memory, and when it fails. */
#include "cuda_case.h"
#include "cuda_host_engine.h"
#include "harness.h"

#include <stdlib.h>

#include "engine/cuda_pass.h"
#include "engine/encoder.h"

static const struct memory_shape heads_of_32 = {60, 40, 64, 1, 2, 64};
static const struct memory_shape heads_of_64 = {60, 40, 128, 2, 2, 96};
static const struct memory_shape small = {60, 40, 32, 1, 1, 32};

static const struct engine_options wanted = {.cudnn_attention = true};

static const struct cuda_distance near_bf16 = {0.9995, 2e-2};

/* Many sizes and layouts, each directly, captured and replayed with other rows. Returns the passes by cuDNN. */
static uint64_t serve(struct model *model, const struct engine_options *options, const struct cuda_host_options *host)
{
    static struct cuda_rows rows;
    static const uint32_t lengths[][8] = {{1, 31, 2, 9}, {11, 1, 9}, {31}, {3, 3, 3, 3, 3, 3, 3}};
    static const uint32_t strides[] = {0, 12, 0, 0};
    cuda_host_engine_open(host);
    struct cuda_opened opened = cuda_opened(model, options);
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
            cuda_rows_make(&rows, model, lengths[i], strides[i], (uint64_t)round);
            cuda_run(&opened, &rows, STATUS_OK);
            cuda_expect(&rows, model, options->precision == PRECISION_BF16 ? near_bf16 : cuda_near_f16);
        }
    struct engine_counters counters = engine_counters(opened.engine);
    assert_int_equal(counters.passes, 12);
    if (!host->cudnn.uncapturable)
        assert_int_equal(counters.graph_launches, 8);
    cuda_opened_close(&opened);
    return counters.cudnn_passes;
}

static void expect_all_by_cudnn(struct memory_shape shape, const struct engine_options *options, enum pooling pooling,
                                enum cuda_host_order order)
{
    struct model *model = memory_model(shape, 1);
    model->pooling = pooling;
    assert_int_equal(serve(model, options, &(struct cuda_host_options){.order = order}), 12);
    cuda_host_engine_close();
}

static void numbers_are_right(void **state)
{
    (void)state;
    expect_all_by_cudnn(heads_of_32, &wanted, POOLING_MEAN, CUDA_HOST_OTHERS);
    expect_all_by_cudnn(heads_of_64, &wanted, POOLING_CLS, CUDA_HOST_LATE);
    struct engine_options bf16 = wanted;
    bf16.precision = PRECISION_BF16;
    expect_all_by_cudnn(heads_of_64, &bf16, POOLING_MEAN, CUDA_HOST_SHUFFLED);
}

/* What it was told of rows that are gone, and whatever lies beside rows, changes nothing. */
static void nothing_but_its_rows_matters(void **state)
{
    (void)state;
    static struct cuda_rows rows;
    static const uint32_t lengths[] = {9, 30, 1, 17, 0}, others[] = {12, 12, 12, 12, 12, 0};
    float clean[4 * 64];
    cuda_host_engine_open(NULL);
    struct cuda_opened opened = cuda_opened(memory_model(heads_of_32, 2), &wanted);
    const struct cuda_stream *device = &opened.encoder->stream->device;
    void *nans = malloc(device->plan.places.bytes);
    assert_non_null(nans);
    memset(nans, 0xff, device->plan.places.bytes);
    for (int round = 0; round < 4; round++) {
        cuda_rows_make(&rows, opened.model, lengths, 0, 5);
        cuda_run(&opened, &rows, STATUS_OK);
        if (round == 0)
            memcpy(clean, rows.output, sizeof clean);
        assert_memory_equal(clean, rows.output, sizeof clean);
        cuda_rows_make(&rows, opened.model, others, 0, 6); /* five rows, and in as many tokens to run with */
        cuda_run(&opened, &rows, STATUS_OK);
        cuda_host_poke(device->memory, nans, device->plan.places.bytes);
    }
    free(nans);
    assert_int_equal(engine_counters(opened.engine).cudnn_passes, 8);
    cuda_opened_close(&opened);
    cuda_host_engine_close();
}

static void it_is_off_by_default(void **state)
{
    (void)state;
    assert_int_equal(serve(memory_model(heads_of_32, 3), &(struct engine_options){0}, &(struct cuda_host_options){0}),
                     0);
    assert_int_equal(cuda_host_calls("cudnnCreate"), 0);
    cuda_host_engine_close();
}

static void expect_none_by_cudnn(struct memory_shape shape, const struct engine_options *options,
                                 struct cuda_host_cudnn cudnn)
{
    assert_int_equal(serve(memory_model(shape, 4), options, &(struct cuda_host_options){.cudnn = cudnn}), 0);
    assert_int_equal(cuda_host_calls("cudnnBackendExecute"), 0);
    cuda_host_engine_close();
}

static void what_it_cannot_do_our_kernel_does(void **state)
{
    (void)state;
    const struct memory_shape heads_of_12 = {60, 40, 48, 1, 4, 72}, heads_of_136 = {60, 40, 136, 1, 1, 72};
    struct engine_options f32 = wanted;
    f32.precision = PRECISION_F32;
    expect_none_by_cudnn(heads_of_32, &wanted, (struct cuda_host_cudnn){.missing = true});
    expect_none_by_cudnn(heads_of_32, &wanted, (struct cuda_host_cudnn){.refused = 1});
    expect_none_by_cudnn(heads_of_32, &wanted, (struct cuda_host_cudnn){.workspace_bytes = CUDNN_WORKSPACE_BYTES + 1});
    expect_none_by_cudnn(heads_of_32, &f32, (struct cuda_host_cudnn){0});
    expect_none_by_cudnn(heads_of_12, &wanted, (struct cuda_host_cudnn){0});
    expect_none_by_cudnn(heads_of_136, &wanted, (struct cuda_host_cudnn){0});
}

/* A CLS-pooled model's last attention is for first tokens alone: there is none for cuDNN in a model of one layer. */
static void first_tokens_alone_are_our_kernels(void **state)
{
    (void)state;
    struct model *model = memory_model(small, 5);
    model->pooling = POOLING_CLS;
    cuda_host_engine_open(NULL);
    struct cuda_opened opened = cuda_opened(model, &wanted);
    static struct cuda_rows rows;
    cuda_rows_make(&rows, model, (const uint32_t[]){7, 3, 0}, 0, 1);
    cuda_run(&opened, &rows, STATUS_OK);
    cuda_expect(&rows, model, cuda_near_f16);
    assert_int_equal(engine_counters(opened.engine).cudnn_passes, 0);
    assert_int_equal(cuda_host_calls("cudnnBackendExecute"), 0);
    cuda_opened_close(&opened);
    cuda_host_engine_close();
}

/* The engines behind one that cannot be made ready are tried, four in all. */
static void the_next_engine_is_tried(void **state)
{
    (void)state;
    for (uint32_t refused = 1; refused <= 4; refused++) {
        struct cuda_host_options host = {.cudnn = {.engines = 8, .refused = refused}};
        assert_int_equal(serve(memory_model(heads_of_32, 6), &wanted, &host), refused < 4 ? 12 : 0);
        cuda_host_engine_close();
    }
    struct cuda_host_options host = {.cudnn = {.engines = 2, .workspace_bytes = CUDNN_WORKSPACE_BYTES + 1}};
    assert_int_equal(serve(memory_model(heads_of_32, 6), &wanted, &host), 12);
    cuda_host_engine_close();
    host.cudnn.workspace_bytes = CUDNN_WORKSPACE_BYTES;
    assert_int_equal(serve(memory_model(heads_of_32, 6), &wanted, &host), 12);
    cuda_host_engine_close();
}

/* The first pass of each size makes a plan; later ones, and other sizes of as many rows and as long ones, find it. */
static void plans_are_made_once(void **state)
{
    (void)state;
    static struct cuda_rows rows;
    static const uint32_t lengths[][4] = {{20, 3}, {20, 4, 1}, {20, 20, 20}, {33}};
    static const uint32_t heuristics[] = {1, 1, 1, 2};
    cuda_host_engine_open(NULL);
    struct cuda_opened opened = cuda_opened(memory_model(heads_of_32, 7), &wanted);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (int round = 0; round < 3; round++) {
            cuda_rows_make(&rows, opened.model, lengths[i], 0, 1);
            cuda_run(&opened, &rows, STATUS_OK);
            /* an engine's attributes: results of heuristics, a workspace */
            assert_int_equal(cuda_host_calls("cudnnBackendGetAttribute"), 2 * heuristics[i]);
        }
    cuda_opened_close(&opened);
    cuda_host_engine_close();
}

/* Running a plan fails: our kernel does it, in the same pass and from then on. */
static void a_plan_that_fails_is_given_up(void **state)
{
    (void)state;
    static struct cuda_rows rows;
    cuda_host_engine_open(NULL);
    struct cuda_opened opened = cuda_opened(memory_model(heads_of_64, 8), &wanted);
    cuda_host_plant((struct cuda_host_fault){.call = "cudnnBackendExecute", .at = 2, .answer = DNN_EXECUTION_FAILED});
    for (int round = 0; round < 3; round++) {
        cuda_rows_make(&rows, opened.model, (const uint32_t[]){20, 3, 0}, 0, 1);
        cuda_run(&opened, &rows, STATUS_OK);
        cuda_expect(&rows, opened.model, cuda_near_f16);
    }
    struct engine_counters counters = engine_counters(opened.engine);
    assert_int_equal(counters.cudnn_passes, 0);
    assert_int_equal(counters.graph_launches, 2);
    assert_int_equal(cuda_host_calls("cudnnBackendExecute"), 2);
    cuda_opened_close(&opened);
    cuda_host_engine_close();
}

/* With a cuDNN that cannot be captured everything runs directly. */
static void without_capture_there_are_no_graphs(void **state)
{
    (void)state;
    static struct cuda_rows rows;
    const struct cuda_host_options host = {.cudnn = {.uncapturable = true}};
    cuda_host_engine_open(&host);
    struct cuda_opened opened = cuda_opened(memory_model(heads_of_32, 9), &wanted);
    for (int round = 0; round < 8; round++) {
        cuda_rows_make(&rows, opened.model, round % 2 == 0 ? (const uint32_t[]){20, 3, 0} : (const uint32_t[]){40, 0},
                       0, 1);
        cuda_run(&opened, &rows, STATUS_OK);
        cuda_expect(&rows, opened.model, cuda_near_f16);
    }
    struct engine_counters counters = engine_counters(opened.engine);
    assert_int_equal(counters.cudnn_passes, 8);
    assert_int_equal(counters.graph_launches, 0);
    cuda_opened_close(&opened);
    cuda_host_engine_close();
}

static struct cuda_rows flights[2];

/* Directly, then captured. Returns the first status that is not STATUS_OK. */
static enum status live(struct model *model, uint64_t *by_cudnn)
{
    struct engine *engine = NULL;
    struct encoder *encoder = NULL;
    struct err err = {0};
    struct engine_options options = {.backend = "cuda", .cache_path = "", .cudnn_attention = true};
    enum status status = engine_open(model, &options, &engine, &err);
    if (status == STATUS_OK)
        status = encoder_open(engine, &encoder, &err);
    for (int i = 0; i < 2 && status == STATUS_OK; i++) {
        cuda_rows_make(&flights[i], model, (const uint32_t[]){5, 2, 0}, 0, (uint64_t)i);
        status = encoder_run(encoder, &flights[i].batch, &err);
        if (status == STATUS_OK)
            cuda_expect(&flights[i], model, cuda_near_f16);
    }
    *by_cudnn = engine == NULL ? 0 : engine_counters(engine).cudnn_passes;
    encoder_close(encoder);
    engine_close(engine);
    return status;
}

static const char *const cudnn_calls[] = {
    "cudnnCreate",
    "cudnnSetStream",
    "cudnnBackendCreateDescriptor",
    "cudnnBackendSetAttribute",
    "cudnnBackendGetAttribute",
    "cudnnBackendFinalize",
    "cudnnBackendExecute",
};

/* At one call of cuDNN's after the other: a failure is our kernel's to make good, a lost device is a lost device. Both
 * leave nothing behind (cuda_host_close). */
static void any_call_may_fail(void **state)
{
    (void)state;
    struct model *model = memory_model(small, 10);
    for (int lost = 0; lost < 2; lost++)
        for (size_t call = 0; call < sizeof cudnn_calls / sizeof cudnn_calls[0]; call++) {
            bool failed = true;
            uint64_t by_cudnn = 0;
            uint32_t at = 1;
            for (; failed; at += 1 + at / 8) {
                cuda_host_engine_open(NULL);
                cuda_host_plant((struct cuda_host_fault){
                    .call = cudnn_calls[call], .at = at, .answer = DNN_INTERNAL_ERROR, .lost = lost == 1});
                enum status status = live(model, &by_cudnn);
                failed = by_cudnn < 2;
                if (lost == 1)
                    assert_int_equal(status, failed ? STATUS_DEVICE_LOST : STATUS_OK);
                else if (strcmp(cudnn_calls[call], "cudnnBackendExecute") != 0 && by_cudnn == 0)
                    assert_int_equal(status, STATUS_OK);
                cuda_host_engine_close();
            }
            assert_true(at > 2);
        }
    memory_model_free(model);
}

/* The workspace and the lists of rows are part of what is planned, and nothing more is held than that. */
static void memory_is_planned(void **state)
{
    (void)state;
    struct model *model = memory_model(heads_of_32, 11);
    struct cuda_plan_request request = {.model = model,
                                        .element_bytes = 2,
                                        .slots = 3,
                                        .batch_tokens = 4096,
                                        .batch_rows = 256,
                                        .available_bytes = SIZE_MAX};
    struct cuda_plan without, with;
    struct err err = {0};
    assert_int_equal(cuda_plan_make(&request, &without, &err), STATUS_OK);
    request.cudnn = true;
    assert_int_equal(cuda_plan_make(&request, &with, &err), STATUS_OK);
    size_t lists = 4 * 2 * 257 * sizeof(int32_t), more = with.total_bytes - without.total_bytes;
    assert_in_range(more, CUDNN_WORKSPACE_BYTES + lists - 8 * CUDA_ALIGNMENT,
                    CUDNN_WORKSPACE_BYTES + lists + 8 * CUDA_ALIGNMENT);
    assert_true(with.places.cudnn % CUDA_ALIGNMENT == 0);
    assert_true(with.places.slot_ragged[0] - with.places.cudnn >= CUDNN_WORKSPACE_BYTES);
    request.available_bytes = with.total_bytes - 1;
    assert_int_equal(cuda_plan_make(&request, &with, &err), STATUS_OK);
    assert_true(with.halvings > 0);
    memory_model_free(model);

    (void)serve(memory_model(heads_of_32, 11), &wanted,
                &(struct cuda_host_options){.cudnn = {.workspace_bytes = CUDNN_WORKSPACE_BYTES}});
    assert_true(cuda_host_most_bytes(0) >= CUDNN_WORKSPACE_BYTES);
    cuda_host_engine_close();
}

/* Rows as cuDNN reads them: packed, with gaps, and fewer than the list is for. */
static void lists_hold_the_rows(void **state)
{
    (void)state;
    enum { ROWS = 6, HIDDEN = 24 };
    const uint32_t start[] = {40, 47, 60}, length[] = {7, 1, 9}; /* and 31 elements before them */
    const int32_t ids[40] = {0};
    const struct pass pass = {.rows = 3, .extent = 35, .origin = 40, .ids = ids, .start = start, .length = length};
    struct cuda_ragged_layout layout = cuda_ragged_layout(64, ROWS, HIDDEN);
    void *block = aligned_alloc(16, (layout.bytes + 15) / 16 * 16);
    assert_non_null(block);
    memset(block, 0xee, layout.bytes);
    assert_true(cuda_ragged_fill(&layout, &pass, block) <= layout.bytes);
    struct cudnn_rows rows = cuda_ragged_cudnn(&layout, block);
    const int32_t lengths[ROWS] = {7, 1, 9, 0, 0, 0}, starts[ROWS + 1] = {0, 7, 20, 35, 35, 35, 35};
    assert_memory_equal(rows.length, lengths, sizeof lengths);
    for (int r = 0; r <= ROWS; r++) {
        assert_int_equal(rows.qkv_starts[r], 3 * HIDDEN * starts[r]);
        assert_int_equal(rows.context_starts[r], HIDDEN * starts[r]);
    }
    struct kernel_ragged view = cuda_ragged_view(&layout, block);
    assert_int_equal(view.counts[KERNEL_COUNT_ROWS], 3);
    assert_memory_equal(view.length, lengths, 3 * sizeof lengths[0]);
    assert_int_equal(view.start[2], 20);
    free(block);
}

static void offsets_have_a_largest_number(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(cudnn_does(KERNEL_F16, 64, 64, 174762, &err), STATUS_OK); /* times 12,288 */
    assert_int_equal(cudnn_does(KERNEL_F16, 64, 64, 174763, &err), STATUS_UNSUPPORTED);
    assert_int_equal(cudnn_does(KERNEL_BF16, 64, 128, 1, &err), STATUS_OK);
    assert_int_equal(cudnn_does(KERNEL_BF16, 64, 136, 1, &err), STATUS_UNSUPPORTED);
    assert_int_equal(cudnn_does(KERNEL_BF16, 64, 20, 1, &err), STATUS_UNSUPPORTED);
    assert_int_equal(cudnn_does(KERNEL_F32, 64, 64, 1, &err), STATUS_UNSUPPORTED);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(numbers_are_right),
    cmocka_unit_test(nothing_but_its_rows_matters),
    cmocka_unit_test(it_is_off_by_default),
    cmocka_unit_test(what_it_cannot_do_our_kernel_does),
    cmocka_unit_test(first_tokens_alone_are_our_kernels),
    cmocka_unit_test(the_next_engine_is_tried),
    cmocka_unit_test(plans_are_made_once),
    cmocka_unit_test(a_plan_that_fails_is_given_up),
    cmocka_unit_test(without_capture_there_are_no_graphs),
    cmocka_unit_test(any_call_may_fail),
    cmocka_unit_test(memory_is_planned),
    cmocka_unit_test(lists_hold_the_rows),
    cmocka_unit_test(offsets_have_a_largest_number),
};

TEST_MAIN(cases)
