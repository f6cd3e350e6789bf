/* The CUDA engine when things go wrong, on the host: streams that run as late as they may, no memory, a lost device,
 * numbers that f16 cannot hold. cuda_host_close looks for what was not given back after each of them. */
#include "cuda_host_engine.h"
#include "cuda_rows.h"
#include "harness.h"

#include <math.h>
#include <stdlib.h>

#include "engine/backend.h"
#include "engine/cuda_pass.h"
#include "engine/encoder.h"

static const struct memory_shape small = {60, 40, 32, 1, 1, 32};
static const struct memory_shape deeper = {60, 40, 64, 2, 2, 64};

static void expect_near(const struct cuda_rows *rows, const struct model *model)
{
    struct cuda_distance distance = cuda_rows_compare(rows, model);
    if (!(distance.cosine >= 0.99999) || !(distance.difference <= 3e-3))
        fail_msg("cosine 1 - %g, largest difference %g", 1 - distance.cosine, distance.difference);
}

static void run(struct cuda_opened *opened, struct cuda_rows *rows, enum status expected)
{
    struct err err = {0};
    enum status status = encoder_run(opened->encoder, &rows->batch, &err);
    if (status != expected)
        fail_msg("%s: %s", status_name(status), err.message);
}

/* --- what happens when -----------------------------------------------------------------------------------------------
 */

static struct cuda_rows flights[3];

/* Three batches out all the time, of sizes that share buckets, through the graphs' beginnings, and out again where few
 * graphs are kept. */
static void fly(enum cuda_host_order order, uint64_t seed, enum pooling pooling, uint32_t graphs)
{
    static const uint32_t lengths[][4] = {{5, 3}, {20, 1, 4}, {6, 2}, {7}, {19, 5}, {40}, {33, 7}};
    enum { SIZES = sizeof lengths / sizeof lengths[0], ROUNDS = 24 };
    struct err err = {0};
    cuda_host_engine_open(&(struct cuda_host_options){.order = order, .seed = seed});
    struct model *model = memory_model(small, 1);
    model->pooling = pooling;
    struct cuda_opened opened = cuda_opened(model, NULL);
    opened.encoder->stream->graphs.most = graphs;
    assert_int_equal(encoder_slots(opened.engine), 3);
    for (unsigned i = 0; i < ROUNDS + 3; i++) {
        struct cuda_rows *rows = &flights[i % 3];
        if (i >= 3) {
            assert_int_equal(encoder_take(opened.encoder, &err), STATUS_OK);
            expect_near(rows, model);
        }
        if (i < ROUNDS) {
            cuda_rows_make(rows, model, lengths[(i + seed) % SIZES], 0, i);
            assert_int_equal(encoder_put(opened.encoder, &rows->batch, &err), STATUS_OK);
        }
    }
    assert_true(engine_counters(opened.engine).graph_launches > 0);
    cuda_opened_close(&opened);
    cuda_host_engine_close();
}

static void all_slots_fly_late(void **state)
{
    (void)state;
    fly(CUDA_HOST_LATE, 0, POOLING_MEAN, CUDA_GRAPHS);
    fly(CUDA_HOST_LATE, 1, POOLING_CLS, 2);
}

static void all_slots_fly_behind_others(void **state)
{
    (void)state;
    fly(CUDA_HOST_OTHERS, 0, POOLING_MEAN, 1);
    fly(CUDA_HOST_OTHERS, 1, POOLING_CLS, CUDA_GRAPHS);
}

static void all_slots_fly_in_any_order(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 6; seed++)
        fly(CUDA_HOST_SHUFFLED, seed, seed % 2 == 0 ? POOLING_MEAN : POOLING_CLS, 2 + (uint32_t)seed % 3);
}

static void batches_may_be_out_when_it_ends(void **state)
{
    (void)state;
    const uint32_t lengths[] = {5, 3, 0};
    struct err err = {0};
    cuda_host_engine_open(&(struct cuda_host_options){.order = CUDA_HOST_LATE});
    struct cuda_opened opened = cuda_opened(memory_model(small, 1), NULL);
    for (int i = 0; i < 3; i++) {
        cuda_rows_make(&flights[i], opened.model, lengths, 0, 1);
        assert_int_equal(encoder_put(opened.encoder, &flights[i].batch, &err), STATUS_OK);
    }
    cuda_opened_close(&opened);
    cuda_host_engine_close();
}

static void two_devices_are_two(void **state)
{
    (void)state;
    static struct cuda_rows rows;
    const uint32_t lengths[] = {9, 3, 0};
    unsigned count;
    struct err err = {0};
    cuda_host_engine_open(&(struct cuda_host_options){.devices = 2});
    assert_int_equal(engine_devices("cuda", &count, &err), STATUS_OK);
    assert_int_equal(count, 2);
    struct cuda_opened first = cuda_opened(memory_model(small, 1), NULL),
                       second = cuda_opened(memory_model(small, 1), &(struct engine_options){.device = 1});
    cuda_rows_make(&rows, first.model, lengths, 0, 1);
    run(&first, &rows, STATUS_OK);
    run(&second, &rows, STATUS_OK);
    expect_near(&rows, second.model);
    cuda_host_lose(0);
    run(&first, &rows, STATUS_DEVICE_LOST);
    run(&second, &rows, STATUS_OK);
    expect_near(&rows, second.model);
    struct engine *none;
    assert_int_equal(engine_open(second.model, &(struct engine_options){.backend = "cuda", .device = 2}, &none, &err),
                     STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.message, "GPU 2"));
    cuda_opened_close(&first);
    cuda_opened_close(&second);
    cuda_host_engine_close();
}

static void without_a_driver_auto_is_the_cpu(void **state)
{
    (void)state;
    struct model *model = memory_model(small, 1);
    struct engine *engine;
    struct err err = {0};
    assert_int_equal(engine_open(model, NULL, &engine, &err), STATUS_OK);
    assert_string_equal(engine_backend(engine), "cpu");
    assert_non_null(strstr(engine_passed_over(engine), "driver"));
    engine_close(engine);
    assert_int_equal(engine_open(model, &(struct engine_options){.backend = "cuda"}, &engine, &err),
                     STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.message, "driver"));

    cuda_host_engine_open(NULL);
    assert_int_equal(engine_open(model, &(struct engine_options){.cache_path = ""}, &engine, &err), STATUS_OK);
    assert_string_equal(engine_backend(engine), "cuda");
    assert_string_equal(engine_passed_over(engine), "");
    assert_int_equal(engine_precision(engine), PRECISION_F16);
    engine_close(engine);
    cuda_host_engine_close();
    memory_model_free(model);
}

/* --- memory ----------------------------------------------------------------------------------------------------------
 */

static void no_more_is_reserved_than_allowed(void **state)
{
    (void)state;
    static struct cuda_rows rows;
    const uint32_t lengths[] = {9, 3, 0};
    struct memory_shape shape = deeper;
    shape.positions = 16;
    size_t most[2];
    for (int half = 0; half < 2; half++) {
        /* A host whose memory is all cuBLASLt's workspace, the weights and a few passes' worth. */
        size_t memory = half == 0 ? (size_t)256 << 20 : 0;
        if (half == 1)
            memory = most[0] * 9 / 10;
        cuda_host_engine_open(&(struct cuda_host_options){.memory_bytes = memory});
        struct cuda_opened opened =
            cuda_opened(memory_model(shape, 1), &(struct engine_options){.memory_share = 0.9f, .batch_tokens = 60000});
        cuda_rows_make(&rows, opened.model, lengths, 0, 1);
        run(&opened, &rows, STATUS_OK);
        expect_near(&rows, opened.model);
        most[half] = cuda_host_most_bytes(0);
        assert_true(most[half] <= memory * 9 / 10);
        cuda_opened_close(&opened);
        cuda_host_engine_close();
    }
    assert_true(most[1] < most[0]);
}

/* Each allocation fails in turn: the engine opens with less, or says that there is no memory, and leaks nothing. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const char *const calls[] = {"cudaMalloc", "cudaHostAlloc"};
    static struct cuda_rows rows;
    const uint32_t lengths[] = {9, 3, 0};
    unsigned smaller = 0, refused = 0;
    for (int which = 0; which < 2; which++)
        for (uint32_t at = 1;; at++) {
            struct model *model = memory_model(small, 1);
            struct engine *engine = NULL;
            struct encoder *encoder = NULL;
            struct err err = {0};
            cuda_host_engine_open(NULL);
            cuda_host_plant(
                (struct cuda_host_fault){.call = calls[which], .at = at, .answer = cudaErrorMemoryAllocation});
            enum status status =
                engine_open(model, &(struct engine_options){.backend = "cuda", .cache_path = ""}, &engine, &err);
            if (status == STATUS_OK)
                status = encoder_open(engine, &encoder, &err);
            cuda_rows_make(&rows, model, lengths, 0, 1);
            if (status == STATUS_OK)
                status = encoder_run(encoder, &rows.batch, &err);
            bool whole = status == STATUS_OK && engine_counters(engine).halvings == 0;
            if (status == STATUS_OK)
                expect_near(&rows, model);
            else
                assert_int_equal(status, STATUS_NO_MEMORY);
            smaller += status == STATUS_OK && !whole;
            refused += status != STATUS_OK;
            encoder_close(encoder);
            engine_close(engine);
            memory_model_free(model);
            cuda_host_engine_close();
            if (whole)
                break;
        }
    assert_true(smaller >= 2);
    assert_true(refused >= 2);
}

/* A graph that finds no memory: the others go, and the pass comes through. When even that does not help, the batch
 * comes back without memory, and the next one is computed. */
static void graphs_give_way(void **state)
{
    (void)state;
    static struct cuda_rows rows;
    const uint32_t lengths[3][2] = {{9}, {17}, {26}};
    cuda_host_engine_open(NULL);
    struct cuda_opened opened = cuda_opened(memory_model(small, 1), NULL);
    struct backend_stream *stream = opened.encoder->stream;
    for (int size = 0; size < 3; size++) { /* directly */
        cuda_rows_make(&rows, opened.model, lengths[size], 0, 1);
        run(&opened, &rows, STATUS_OK);
    }
    for (uint32_t faults = 0; faults < 3; faults++) {
        cuda_graphs_drop(&stream->graphs);
        for (int i = 0; i < 6; i++) { /* captured, then replayed */
            for (uint32_t at = 1; i == 2 && at <= faults; at++)
                cuda_host_plant((struct cuda_host_fault){
                    .call = "cudaGraphInstantiate", .at = at, .answer = cudaErrorMemoryAllocation});
            cuda_rows_make(&rows, opened.model, lengths[i % 3], 0, 1);
            run(&opened, &rows, i == 2 && faults == 2 ? STATUS_NO_MEMORY : STATUS_OK);
            if (i == 2)
                assert_int_equal(stream->graphs.graphs, faults == 0 ? 3 : 2 - faults);
            else
                expect_near(&rows, opened.model);
            cuda_host_clear();
        }
    }
    cuda_opened_close(&opened);
    cuda_host_engine_close();
}

static void few_graphs_serve_many_sizes(void **state)
{
    (void)state;
    static struct cuda_rows rows;
    const uint32_t lengths[4][2] = {{5}, {12}, {20}, {28}};
    cuda_host_engine_open(&(struct cuda_host_options){.order = CUDA_HOST_LATE});
    struct cuda_opened opened = cuda_opened(memory_model(small, 1), NULL);
    struct backend_stream *stream = opened.encoder->stream;
    stream->graphs.most = 2;
    for (int round = 0; round < 4; round++)
        for (int size = 0; size < 4; size++) {
            cuda_rows_make(&rows, opened.model, lengths[size], 0, 1);
            run(&opened, &rows, STATUS_OK);
            expect_near(&rows, opened.model);
            assert_true(stream->graphs.graphs <= 2);
        }
    struct engine_counters counters = engine_counters(opened.engine);
    assert_int_equal(counters.graphs_captured, 3 * 4); /* each is gone when its size comes again */
    for (int round = 0; round < 3; round++)
        for (int size = 2; size < 4; size++) { /* these two are there */
            cuda_rows_make(&rows, opened.model, lengths[size], 0, 1);
            run(&opened, &rows, STATUS_OK);
        }
    assert_int_equal(engine_counters(opened.engine).graphs_captured, 3 * 4);
    cuda_opened_close(&opened);
    cuda_host_engine_close();
}

/* --- a device that is lost -------------------------------------------------------------------------------------------
 */

/* A short life: opened, two sizes directly, captured and replayed, three batches out, closed. Returns the first status
 * that is not STATUS_OK. */
static enum status live(struct model *model)
{
    static const uint32_t lengths[] = {5, 2, 0};
    struct engine *engine = NULL;
    struct encoder *encoder = NULL;
    struct err err = {0};
    enum status status =
        engine_open(model, &(struct engine_options){.backend = "cuda", .cache_path = ""}, &engine, &err);
    if (status == STATUS_OK)
        status = encoder_open(engine, &encoder, &err);
    for (int round = 0; round < 2 && encoder != NULL; round++) {
        for (int i = 0; i < 3; i++) {
            cuda_rows_make(&flights[i], model, lengths, 0, (uint64_t)i);
            assert_int_equal(encoder_put(encoder, &flights[i].batch, &err), STATUS_OK);
        }
        for (int i = 0; i < 3; i++) {
            enum status taken = encoder_take(encoder, &err);
            if (taken == STATUS_OK)
                expect_near(&flights[i], model);
            assert_true(status == STATUS_OK || taken == status); /* once lost, always lost */
            status = taken;
        }
    }
    if (status != STATUS_OK)
        assert_true(strlen(err.message) > 0);
    encoder_close(encoder);
    engine_close(engine);
    return status;
}

static void the_device_may_be_lost_at_any_call(void **state)
{
    (void)state;
    struct model *model = memory_model(small, 1);
    uint32_t at = 1;
    for (enum status status = STATUS_DEVICE_LOST; status != STATUS_OK; at++) {
        cuda_host_engine_open(NULL);
        cuda_host_plant((struct cuda_host_fault){.at = at, .lost = true});
        status = live(model);
        if (status != STATUS_OK)
            assert_int_equal(status, STATUS_DEVICE_LOST);
        cuda_host_engine_close();
    }
    assert_true(at > 100);
    memory_model_free(model);
}

/* Any other error of any call ends its batch alone: the next one is computed. */
static void a_failed_call_fails_its_batch_alone(void **state)
{
    (void)state;
    static struct cuda_rows rows;
    const uint32_t lengths[] = {5, 2, 0};
    for (int round = 0; round < 3; round++) { /* directly, captured, replayed */
        for (uint32_t at = 1, failed = 1; failed != 0; at++) {
            struct err err = {0};
            cuda_host_engine_open(NULL);
            struct cuda_opened opened = cuda_opened(memory_model(small, 1), NULL);
            cuda_rows_make(&rows, opened.model, lengths, 0, 1);
            for (int before = 0; before < round; before++)
                run(&opened, &rows, STATUS_OK);
            cuda_host_plant((struct cuda_host_fault){.at = at, .answer = cudaErrorInvalidValue});
            enum status status = encoder_run(opened.encoder, &rows.batch, &err);
            failed = status != STATUS_OK;
            assert_true(status == STATUS_OK || status == STATUS_INTERNAL);
            cuda_host_clear();
            for (int after = 0; after < 3; after++) {
                cuda_rows_make(&rows, opened.model, lengths, 0, 2);
                run(&opened, &rows, STATUS_OK);
                expect_near(&rows, opened.model);
            }
            cuda_opened_close(&opened);
            cuda_host_engine_close();
        }
    }
}

/* --- rows that f16 cannot hold ---------------------------------------------------------------------------------------
 */

/* A model with a word whose embedding is above what f16 holds. */
enum { LARGE_WORD = 7 };

static struct model *model_with_a_large_word(enum pooling pooling)
{
    struct model *model = memory_model(deeper, 1);
    float *word = (float *)model->storage + LARGE_WORD * model->hidden;
    model->pooling = pooling;
    for (uint32_t i = 0; i < model->hidden; i++)
        word[i] *= 1e6f;
    return model;
}

/* Three rows; the middle one begins with that word, or none has it. */
static void make_large(struct cuda_rows *rows, const struct model *model, bool large)
{
    const uint32_t lengths[] = {6, 20, 9, 0};
    cuda_rows_make(rows, model, lengths, 0, 1);
    for (uint32_t t = 0; t < 35; t++)
        rows->ids[t] += rows->ids[t] == LARGE_WORD;
    if (large)
        rows->ids[rows->start[1]] = LARGE_WORD;
}

/* The row is run again alone; the others keep every bit. */
static void a_row_that_overflows_is_run_again(void **state)
{
    (void)state;
    static struct cuda_rows rows;
    float plain[3 * 64];
    for (int pooling = 0; pooling < 2; pooling++) {
        cuda_host_engine_open(NULL);
        struct model *model = model_with_a_large_word(pooling == 0 ? POOLING_MEAN : POOLING_CLS);
        struct cuda_opened opened = cuda_opened(model, NULL);
        for (int large = 0; large < 2; large++)
            for (int round = 0; round < 3; round++) {
                make_large(&rows, model, large == 1);
                run(&opened, &rows, STATUS_OK);
                assert_true(cuda_rows_compare(&rows, model).cosine >= (large == 1 ? 0.999 : 0.99999));
                if (large == 0)
                    memcpy(plain, rows.output, sizeof plain);
                assert_memory_equal(plain, rows.output, 64 * sizeof(float));
                assert_memory_equal(plain + 128, rows.output + 128, 64 * sizeof(float));
            }
        struct engine_counters counters = engine_counters(opened.engine);
        assert_int_equal(counters.rows_bf16, 3);
        assert_int_equal(counters.rows_f32 + counters.rows_lost, 0);
        cuda_opened_close(&opened);
        cuda_host_engine_close();
    }
}

/* In bf16 a product comes out as NaN, too: then f32 has it. And nothing sticks. */
static void then_in_f32(void **state)
{
    (void)state;
    static struct cuda_rows rows;
    cuda_host_engine_open(NULL);
    struct model *model = model_with_a_large_word(POOLING_MEAN);
    struct cuda_opened opened = cuda_opened(model, NULL);
    make_large(&rows, model, true);
    run(&opened, &rows, STATUS_OK); /* products of all sizes are timed */
    cuda_host_spoil(CUDA_R_16BF, 1, 1);
    run(&opened, &rows, STATUS_OK);
    expect_near(&rows, model);
    assert_int_equal(engine_counters(opened.engine).rows_f32, 1);
    cuda_host_spoil(CUDA_R_16F, 1, 1);
    make_large(&rows, model, false);
    run(&opened, &rows, STATUS_OK);
    assert_true(cuda_rows_compare(&rows, model).cosine >= 0.999);
    assert_int_equal(engine_counters(opened.engine).rows_bf16, 2);
    run(&opened, &rows, STATUS_OK);
    expect_near(&rows, model);
    assert_int_equal(engine_counters(opened.engine).rows_bf16, 2);
    assert_int_equal(engine_counters(opened.engine).rows_f32, 1);
    cuda_opened_close(&opened);
    cuda_host_engine_close();
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(all_slots_fly_late),
    cmocka_unit_test(all_slots_fly_behind_others),
    cmocka_unit_test(all_slots_fly_in_any_order),
    cmocka_unit_test(batches_may_be_out_when_it_ends),
    cmocka_unit_test(two_devices_are_two),
    cmocka_unit_test(without_a_driver_auto_is_the_cpu),
    cmocka_unit_test(no_more_is_reserved_than_allowed),
    cmocka_unit_test(every_allocation_may_fail),
    cmocka_unit_test(graphs_give_way),
    cmocka_unit_test(few_graphs_serve_many_sizes),
    cmocka_unit_test(the_device_may_be_lost_at_any_call),
    cmocka_unit_test(a_failed_call_fails_its_batch_alone),
    cmocka_unit_test(a_row_that_overflows_is_run_again),
    cmocka_unit_test(then_in_f32),
};

TEST_MAIN(cases)
