/* The CUDA engine when things go wrong, on the host: a device that is lost, or a call that fails, at every single call;
 * numbers that f16 cannot hold. cuda_host_close looks for leaks.
 *
 * ctest-cost: 10 */
#include "cuda_case.h"
#include "cuda_host.h"
#include "harness.h"

static const struct memory_shape small = {60, 40, 32, 1, 1, 32};
static const struct memory_shape deeper = {60, 40, 64, 2, 2, 64};

/* There is only as much memory as the batches need, because all of it is filled when it is allocated. */
static const struct engine_options options = {.backend = "cuda", .cache_path = "", .batch_tokens = 64};

static struct cuda_rows in_flight[3];

/* Runs the life of an engine: opened, two sizes directly, captured and replayed, three batches out, closed. Returns the
 * first status that is not STATUS_OK. */
static enum status live(struct model *model)
{
    static const uint32_t lengths[] = {5, 2, 0};
    struct engine *engine = NULL;
    struct encoder *encoder = NULL;
    struct err err = {0};
    enum status status = engine_open(model, &options, &engine, &err);
    if (status == STATUS_OK) { status = encoder_open(engine, &encoder, &err); }
    for (int round = 0; round < 2 && encoder != NULL; round++) {
        for (int i = 0; i < 3; i++) {
            cuda_rows_make(&in_flight[i], model, lengths, 0, (uint64_t)i);
            assert_int_equal(encoder_put(encoder, &in_flight[i].batch, &err), STATUS_OK);
        }
        for (int i = 0; i < 3; i++) {
            enum status taken = encoder_take(encoder, &err);
            if (taken == STATUS_OK) { cuda_expect(&in_flight[i], model, cuda_near_f16); }
            assert_true(status == STATUS_OK || taken == status); /* once lost, always lost */
            status = taken;
        }
    }
    if (status != STATUS_OK) { assert_true(strlen(err.message) > 0); }
    encoder_close(encoder);
    engine_close(engine);
    return status;
}

TEST(the_device_may_be_lost_at_any_call)
{
    struct model *model = memory_model(small, 1);
    uint32_t at = 1;
    for (enum status status = STATUS_DEVICE_LOST; status != STATUS_OK; at++) {
        cuda_host_open(NULL);
        cuda_host_plant((struct cuda_host_fault){.at = at, .lost = true});
        status = live(model);
        if (status != STATUS_OK) { assert_int_equal(status, STATUS_DEVICE_LOST); }
        cuda_host_close();
    }
    assert_true(at > 100);
    memory_model_free(model);
}

/* Any other error of any call ends only its batch, or none if only a graph is lost: the next one is computed. */
static void fail_each_call(cudaError_t answer)
{
    static struct cuda_rows rows;
    const uint32_t lengths[] = {5, 2, 0};
    for (int round = 0; round < 3; round++) { /* directly, captured, replayed */
        bool struck = true;
        for (uint32_t at = 1; struck; at++) {
            struct err err = {0};
            cuda_host_open(NULL);
            struct cuda_opened opened = cuda_opened(memory_model(small, 1), &options);
            cuda_rows_make(&rows, opened.model, lengths, 0, 1);
            for (int before = 0; before < round; before++) { cuda_run(&opened, &rows, STATUS_OK); }
            cuda_host_plant((struct cuda_host_fault){.at = at, .answer = answer});
            enum status status = encoder_run(opened.encoder, &rows.batch, &err);
            struck = cuda_host_struck();
            if (status == STATUS_OK) { cuda_expect(&rows, opened.model, cuda_near_f16); }
            assert_true(status == STATUS_OK || status == STATUS_INTERNAL || status == STATUS_NO_MEMORY);
            cuda_host_clear();
            for (int after = 0; after < 3; after++) {
                cuda_rows_make(&rows, opened.model, lengths, 0, 2);
                cuda_run(&opened, &rows, STATUS_OK);
                cuda_expect(&rows, opened.model, cuda_near_f16);
            }
            cuda_opened_close(&opened);
            cuda_host_close();
        }
    }
}

TEST(a_failed_call_fails_its_batch_alone)
{
    fail_each_call(cudaErrorInvalidValue);
}

TEST(so_does_one_without_memory)
{
    fail_each_call(cudaErrorMemoryAllocation);
}

/* A call that fails while a size is captured (the second pass) or replayed (the third). */
struct graph_fault {
    const char *call;
    int answer;
    bool replayed;
};

/* A graph that cannot be made or launched costs nothing but itself: its own pass is computed, with the two before it
 * still out; from then on everything is launched directly, and nothing of it is tried again. */
static void give_graphs_up(const struct graph_fault *fault, enum cuda_host_order order, enum pooling pooling)
{
    static const uint32_t lengths[2][3] = {{5, 2}, {30, 7}};
    struct err err = {0};
    cuda_host_open(&(struct cuda_host_options){.order = order, .seed = 3});
    struct model *model = memory_model(deeper, 1);
    model->pooling = pooling;
    struct cuda_opened opened = cuda_opened(model, &options);
    uint64_t launches = 0, captures = 0;
    for (int i = 0; i < 12 + 3; i++) {      /* three of the one size, three of the other, and so on */
        if (i == 3 + 1 + fault->replayed) { /* there is a graph of the first size, which may be running */
            launches = engine_counters(opened.engine).graph_launches;
            assert_true(launches > 0);
            cuda_host_plant((struct cuda_host_fault){.call = fault->call, .at = 1, .answer = fault->answer});
        }
        if (i >= 3) {
            assert_int_equal(encoder_take(opened.encoder, &err), STATUS_OK);
            cuda_expect(&in_flight[i % 3], model, cuda_near_f16);
        }
        if (i < 12) {
            cuda_rows_make(&in_flight[i % 3], model, lengths[i / 3 % 2], 0, (uint64_t)i);
            assert_int_equal(encoder_put(opened.encoder, &in_flight[i % 3].batch, &err), STATUS_OK);
        }
        if (i == 3 + 1 + fault->replayed) {
            launches = engine_counters(opened.engine).graph_launches;
            captures = cuda_host_calls("cudaStreamBeginCapture");
            assert_int_equal(engine_counters(opened.engine).graph_fallbacks, 1);
        }
    }
    struct engine_counters counters = engine_counters(opened.engine);
    assert_int_equal(counters.graph_launches, launches);
    assert_int_equal(counters.graph_fallbacks, 1);
    assert_int_equal(cuda_host_calls("cudaStreamBeginCapture"), captures);
    cuda_opened_close(&opened);
    cuda_host_close();
}

TEST(without_a_graph_a_pass_runs_directly)
{
    static const struct graph_fault faults[] = {
        {"cudaStreamBeginCapture", cudaErrorStreamCaptureUnsupported, false},
        {"cudaLaunchKernel", cudaErrorStreamCaptureUnsupported, false},
        {"cublasLtMatmul", CUBLAS_STATUS_NOT_SUPPORTED, false},
        {"cudaStreamEndCapture", cudaErrorStreamCaptureInvalidated, false},
        {"cudaGraphInstantiate", cudaErrorNotSupported, false},
        {"cudaGraphLaunch", cudaErrorInvalidValue, false},
        {"cudaGraphLaunch", cudaErrorInvalidValue, true},
    };
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        give_graphs_up(&faults[i], CUDA_HOST_LATE, POOLING_MEAN);
        give_graphs_up(&faults[i], CUDA_HOST_OTHERS, POOLING_CLS);
        give_graphs_up(&faults[i], CUDA_HOST_SHUFFLED, POOLING_MEAN);
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
    for (uint32_t i = 0; i < model->hidden; i++) { word[i] *= 1e6f; }
    return model;
}

/* Three rows; the middle one begins with that word, or none has it. */
static void make_large(struct cuda_rows *rows, const struct model *model, bool large)
{
    const uint32_t lengths[] = {6, 20, 9, 0};
    cuda_rows_make(rows, model, lengths, 0, 1);
    for (uint32_t t = 0; t < 35; t++) { rows->ids[t] += rows->ids[t] == LARGE_WORD; }
    if (large) { rows->ids[rows->start[1]] = LARGE_WORD; }
}

/* The row is run again alone; the others keep every bit. */
TEST(a_row_that_overflows_is_run_again)
{
    static struct cuda_rows rows;
    float plain[3 * 64];
    for (int pooling = 0; pooling < 2; pooling++) {
        cuda_host_open(NULL);
        struct model *model = model_with_a_large_word(pooling == 0 ? POOLING_MEAN : POOLING_CLS);
        struct cuda_opened opened = cuda_opened(model, &options);
        for (int large = 0; large < 2; large++) {
            for (int round = 0; round < 3; round++) {
                make_large(&rows, model, large == 1);
                cuda_run(&opened, &rows, STATUS_OK);
                assert_true(cuda_rows_compare(&rows, model).cosine >= (large == 1 ? 0.999 : 0.99999));
                if (large == 0) { memcpy(plain, rows.output, sizeof plain); }
                assert_memory_equal(plain, rows.output, 64 * sizeof(float));
                assert_memory_equal(plain + 128, rows.output + 128, 64 * sizeof(float));
            }
        }
        struct engine_counters counters = engine_counters(opened.engine);
        assert_int_equal(counters.rows_bf16, 3);
        assert_int_equal(counters.rows_f32 + counters.rows_lost, 0);
        cuda_opened_close(&opened);
        cuda_host_close();
    }
}

/* In bf16 a product gives NaN, too: then f32 computes it. The next batch begins in f16 again. */
TEST(then_in_f32)
{
    static struct cuda_rows rows;
    cuda_host_open(NULL);
    struct model *model = model_with_a_large_word(POOLING_MEAN);
    struct cuda_opened opened = cuda_opened(model, &options);
    make_large(&rows, model, true);
    cuda_run(&opened, &rows, STATUS_OK); /* products of all sizes are timed */
    cuda_host_spoil(CUDA_R_16BF, 1, 1);
    cuda_run(&opened, &rows, STATUS_OK);
    cuda_expect(&rows, model, cuda_near_f16);
    assert_int_equal(engine_counters(opened.engine).rows_f32, 1);
    cuda_host_spoil(CUDA_R_16F, 1, 1);
    make_large(&rows, model, false);
    cuda_run(&opened, &rows, STATUS_OK);
    assert_true(cuda_rows_compare(&rows, model).cosine >= 0.999);
    assert_int_equal(engine_counters(opened.engine).rows_bf16, 2);
    cuda_run(&opened, &rows, STATUS_OK);
    cuda_expect(&rows, model, cuda_near_f16);
    assert_int_equal(engine_counters(opened.engine).rows_bf16, 2);
    assert_int_equal(engine_counters(opened.engine).rows_f32, 1);
    cuda_opened_close(&opened);
    cuda_host_close();
}
