/* The CUDA backend as the engine sees it, on the host: three batches in flight on CUDA streams that run as late, or in
 * as odd an order, as they may; several devices, old ones, none; and a file of costs for each setting that makes a pass
 * faster or slower. */
#include "cuda_case.h"
#include "cuda_host.h"
#include "cuda_rows.h"
#include "harness.h"

#include <stdlib.h>

#include "engine/cost.h"
#include "engine/cuda/pass.h"
#include "engine/encoder.h"

static const struct memory_shape small = {60, 40, 32, 1, 1, 32};

static struct cuda_rows in_flight[3];

/* Keeps three batches out, of sizes that share buckets, while graphs are made, and while graphs are dropped if few are
 * kept. */
static void keep_in_flight(enum cuda_host_order order, uint64_t seed, enum pooling pooling, uint32_t graphs)
{
    static const uint32_t lengths[][4] = {{5, 3}, {20, 1, 4}, {6, 2}, {7}, {19, 5}, {40}, {33, 7}};
    enum { SIZES = sizeof lengths / sizeof lengths[0], ROUNDS = 24 };
    struct err err = {0};
    cuda_host_open(&(struct cuda_host_options){.order = order, .seed = seed});
    struct model *model = memory_model(small, 1);
    model->pooling = pooling;
    struct cuda_opened opened = cuda_opened(model, NULL);
    opened.encoder->workspace->graphs.most = graphs;
    assert_int_equal(encoder_slots(opened.engine), 3);
    for (unsigned i = 0; i < ROUNDS + 3; i++) {
        struct cuda_rows *rows = &in_flight[i % 3];
        if (i >= 3) {
            assert_int_equal(encoder_take(opened.encoder, &err), STATUS_OK);
            cuda_expect(rows, model, cuda_near_f16);
        }
        if (i < ROUNDS) {
            cuda_rows_make(rows, model, lengths[(i + seed) % SIZES], 0, i);
            assert_int_equal(encoder_put(opened.encoder, &rows->batch, &err), STATUS_OK);
        }
    }
    assert_true(engine_counters(opened.engine).graph_launches > 0);
    cuda_opened_close(&opened);
    cuda_host_close();
}

TEST(all_slots_in_flight_late)
{
    keep_in_flight(CUDA_HOST_LATE, 0, POOLING_MEAN, CUDA_GRAPHS);
    keep_in_flight(CUDA_HOST_LATE, 1, POOLING_CLS, 2);
}

TEST(all_slots_in_flight_behind_others)
{
    keep_in_flight(CUDA_HOST_OTHERS, 0, POOLING_MEAN, 1);
    keep_in_flight(CUDA_HOST_OTHERS, 1, POOLING_CLS, CUDA_GRAPHS);
}

TEST(all_slots_in_flight_in_any_order)
{
    for (uint64_t seed = 0; seed < 6; seed++) {
        keep_in_flight(CUDA_HOST_SHUFFLED, seed, seed % 2 == 0 ? POOLING_MEAN : POOLING_CLS, 2 + (uint32_t)seed % 3);
    }
}

TEST(batches_may_be_out_when_it_ends)
{
    const uint32_t lengths[] = {5, 3, 0};
    struct err err = {0};
    cuda_host_open(&(struct cuda_host_options){.order = CUDA_HOST_LATE});
    struct cuda_opened opened = cuda_opened(memory_model(small, 1), NULL);
    for (int i = 0; i < 3; i++) {
        cuda_rows_make(&in_flight[i], opened.model, lengths, 0, 1);
        assert_int_equal(encoder_put(opened.encoder, &in_flight[i].batch, &err), STATUS_OK);
    }
    cuda_opened_close(&opened);
    cuda_host_close();
}

/* A batch of a known size takes one copy in, one within the device, one out, a graph and pooling after it; nothing is
 * allocated and no stream is waited for. */
TEST(a_batch_takes_few_calls)
{
    static struct cuda_rows rows;
    static const struct {
        const char *call;
        uint64_t a_batch;
    } calls[] = {
        {"cudaMemcpyAsync", 3},       {"cudaGraphLaunch", 1},      {"cudaLaunchKernel", 1},
        {"cublasLtMatmul", 0},        {"cudaMalloc", 0},           {"cudaHostAlloc", 0},
        {"cudaMemsetAsync", 0},       {"cudaEventRecord", 3},      {"cudaFree", 0},
        {"cudaStreamSynchronize", 0}, {"cudaGraphInstantiate", 0}, {"cudaStreamBeginCapture", 0},
    };
    enum { CALLS = sizeof calls / sizeof calls[0], BATCHES = 5 };
    const uint32_t lengths[] = {9, 3, 0};
    uint64_t before[CALLS];
    cuda_host_open(NULL);
    struct cuda_opened opened = cuda_opened(memory_model(small, 1), NULL);
    for (int batch = 0; batch < 2 + BATCHES; batch++) {
        for (int i = 0; i < CALLS && batch == 2; i++) { before[i] = cuda_host_calls(calls[i].call); }
        cuda_rows_make(&rows, opened.model, lengths, 0, (uint64_t)batch);
        cuda_run(&opened, &rows, STATUS_OK);
        cuda_expect(&rows, opened.model, cuda_near_f16);
    }
    for (int i = 0; i < CALLS; i++) {
        if (cuda_host_calls(calls[i].call) - before[i] != BATCHES * calls[i].a_batch) {
            fail_msg("%s: %u calls of %d batches", calls[i].call,
                     (unsigned)(cuda_host_calls(calls[i].call) - before[i]), BATCHES);
        }
    }
    cuda_opened_close(&opened);
    cuda_host_close();
}

TEST(two_devices_are_two)
{
    static struct cuda_rows rows;
    const uint32_t lengths[] = {9, 3, 0};
    unsigned count;
    struct err err = {0};
    cuda_host_open(&(struct cuda_host_options){.devices = 2});
    assert_int_equal(engine_devices("cuda", PRECISION_AUTO, &count, &err), STATUS_OK);
    assert_int_equal(count, 2);
    struct cuda_opened first = cuda_opened(memory_model(small, 1), NULL),
                       second = cuda_opened(memory_model(small, 1), &(struct engine_options){.device = 1});
    cuda_rows_make(&rows, first.model, lengths, 0, 1);
    cuda_run(&first, &rows, STATUS_OK);
    cuda_run(&second, &rows, STATUS_OK);
    cuda_expect(&rows, second.model, cuda_near_f16);
    cuda_host_lose(0);
    cuda_run(&first, &rows, STATUS_DEVICE_LOST);
    cuda_run(&second, &rows, STATUS_OK);
    cuda_expect(&rows, second.model, cuda_near_f16);
    struct engine *none;
    assert_int_equal(engine_open(second.model, &(struct engine_options){.backend = "cuda", .device = 2}, &none, &err),
                     STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.message, "GPU 2"));
    cuda_opened_close(&first);
    cuda_opened_close(&second);
    cuda_host_close();
}

/* The heads are wider than its attention takes: `auto` passes it over. */
TEST(a_model_that_it_does_not_compute_is_refused)
{
    static const struct memory_shape wide[] = {
        {50, 20, 264, 1, 1, 112},
        {50, 20, 64, 1, 2, 112, .modern = true, .key_heads = 1, .head_dim = 512},
    };
    cuda_host_open(&(struct cuda_host_options){.devices = 1});
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++) {
        struct model *model = memory_model(wide[i], 1);
        struct engine *engine;
        struct err err = {0};
        char heads[32];
        snprintf(heads, sizeof heads, "heads of %u numbers", i == 0 ? 264 : 512);
        assert_int_equal(engine_open(model, &(struct engine_options){.backend = "cuda"}, &engine, &err),
                         STATUS_UNSUPPORTED);
        assert_non_null(strstr(err.message, heads));
        assert_int_equal(engine_open(model, NULL, &engine, &err), STATUS_OK);
        assert_string_equal(engine_backend(engine), "cpu");
        engine_close(engine);
        memory_model_free(model);
    }
    cuda_host_close();
}

TEST(what_f16_does_not_hold_is_computed_in_bf16)
{
    cuda_host_open(&(struct cuda_host_options){.devices = 1});
    for (int beyond = 0; beyond < 2; beyond++) {
        struct model *model = memory_model(small, 1);
        struct engine *engine;
        struct err err = {0};
        model->beyond_f16 = beyond;
        assert_int_equal(engine_open(model, NULL, &engine, &err), STATUS_OK);
        assert_string_equal(engine_backend(engine), "cuda");
        assert_int_equal(engine_precision(engine), beyond ? PRECISION_BF16 : PRECISION_F16);
        engine_close(engine);
        memory_model_free(model);
    }
    cuda_host_close();
}

TEST(without_a_driver_auto_is_the_cpu)
{
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

    cuda_host_open(NULL);
    assert_int_equal(engine_open(model, &(struct engine_options){.cache_path = ""}, &engine, &err), STATUS_OK);
    assert_string_equal(engine_backend(engine), "cuda");
    assert_string_equal(engine_passed_over(engine), "");
    assert_int_equal(engine_precision(engine), PRECISION_F16);
    engine_close(engine);
    cuda_host_close();
    memory_model_free(model);
}

TEST(a_model_that_the_gpu_does_not_take_is_sent_to_the_cpu)
{
    struct memory_shape odd = {100, 32, 48, 1, 2, 64, .modern = true}; /* heads of 24 */
    struct model *model = memory_model(odd, 1);
    struct engine *engine;
    struct err err = {0};
    cuda_host_open(NULL);
    assert_int_equal(engine_open(model, &(struct engine_options){.cache_path = ""}, &engine, &err), STATUS_OK);
    assert_string_equal(engine_backend(engine), "cpu");
    assert_non_null(strstr(engine_passed_over(engine), "heads of 24"));
    engine_close(engine);
    assert_int_equal(engine_open(model, &(struct engine_options){.backend = "cuda"}, &engine, &err),
                     STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.message, "backend: cpu"));
    cuda_host_close();
    memory_model_free(model);
}

/* A GPU takes larger batches than a CPU, and has memory for those. */
TEST(a_batch_is_as_large_as_the_backend_likes)
{
    struct batch_size size;
    const char *name;
    struct err err = {0};
    assert_int_equal(engine_default_batch("auto", PRECISION_AUTO, &size, &name, &err), STATUS_OK);
    assert_string_equal(name, "cpu");
    assert_int_equal(size.tokens, 4096);
    assert_int_equal(size.rows, 256);
    assert_int_equal(engine_default_batch("cuda", PRECISION_AUTO, &size, &name, &err), STATUS_UNSUPPORTED);
    cuda_host_open(NULL);
    assert_int_equal(engine_default_batch("auto", PRECISION_AUTO, &size, &name, &err), STATUS_OK);
    assert_string_equal(name, "cuda");
    assert_int_equal(size.tokens, 65536);
    assert_int_equal(size.rows, 4096);
    struct cuda_opened opened = cuda_opened(memory_model(small, 1), &(struct engine_options){0});
    assert_int_equal(engine_batch_size(opened.engine).tokens, size.tokens);
    assert_int_equal(engine_batch_size(opened.engine).rows, size.rows);
    assert_int_equal(opened.encoder->workspace->memory.plan.tokens, size.tokens);
    assert_int_equal(opened.encoder->workspace->memory.plan.rows, size.rows);
    cuda_opened_close(&opened);
    cuda_host_close();
}

/* Only the CPU has int8: with two GPUs it is neither refused nor opened twice. */
TEST(int8_is_sent_to_the_cpu)
{
    struct model *model = memory_model(small, 1);
    const struct engine_options int8 = {.precision = PRECISION_INT8, .cache_path = ""};
    struct engine *engine;
    unsigned count;
    struct err err = {0};
    cuda_host_open(&(struct cuda_host_options){.devices = 2});
    assert_int_equal(engine_devices("auto", PRECISION_INT8, &count, &err), STATUS_OK);
    assert_int_equal(count, 1);
    assert_int_equal(engine_open(model, &int8, &engine, &err), STATUS_OK);
    assert_string_equal(engine_backend(engine), "cpu");
    assert_int_equal(engine_precision(engine), PRECISION_INT8);
    assert_non_null(strstr(engine_passed_over(engine), "\"cuda\" cannot compute in int8"));
    engine_close(engine);
    assert_int_equal(engine_devices("auto", PRECISION_F16, &count, &err), STATUS_OK);
    assert_int_equal(count, 2);
    cuda_host_close();
    assert_int_equal(engine_open(model, &(struct engine_options){.precision = PRECISION_F16}, &engine, &err),
                     STATUS_UNSUPPORTED); /* never the null backend, which takes any */
    assert_non_null(strstr(err.message, "driver"));
    assert_non_null(strstr(err.message, "\"cpu\" cannot compute in f16"));
    memory_model_free(model);
}

/* GPUs that are all too old count as none. */
TEST(an_old_gpu_is_left_alone)
{
    struct model *model = memory_model(small, 1);
    struct engine *engine;
    struct err err = {0};
    cuda_host_open(&(struct cuda_host_options){.capability = 75});
    assert_int_equal(engine_open(model, NULL, &engine, &err), STATUS_OK);
    assert_string_equal(engine_backend(engine), "cpu");
    assert_non_null(strstr(engine_passed_over(engine), "7.5"));
    engine_close(engine);
    assert_int_equal(engine_open(model, &(struct engine_options){.backend = "cuda"}, &engine, &err),
                     STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.message, "7.5"));
    cuda_host_close();
    memory_model_free(model);
}

/* Opens an engine with these options, and returns the first term of the cost in the folder, or -1 if there is none. */
static double recall(const char *folder, struct engine_options options, const struct cost *to_remember)
{
    struct cost cost;
    struct err err = {0};
    struct cuda_opened opened = cuda_opened(memory_model(small, 1), &options);
    const struct cost_source of = {opened.engine, opened.model, 1};
    enum status status = cost_recall(folder, &of, &cost, &err);
    assert_true(status == STATUS_OK || status == STATUS_NOT_FOUND);
    if (to_remember != NULL) { assert_int_equal(cost_remember(folder, &of, to_remember, &err), STATUS_OK); }
    cuda_opened_close(&opened);
    return status == STATUS_OK ? cost.terms[0] : -1;
}

TEST(another_option_has_its_own_file)
{
    char folder[] = "/tmp/sluice-cost-XXXXXX", command[64];
    const struct engine_options options[] = {
        {0},
        {.no_graphs = true},
        {.exact_gelu = true},
        {.precision = PRECISION_BF16},
        {.no_graphs = true, .exact_gelu = true},
    };
    enum { OPTIONS = sizeof options / sizeof options[0] };
    assert_non_null(mkdtemp(folder));
    cuda_host_open(NULL);
    for (int i = 0; i < OPTIONS; i++) {
        struct cost cost = cost_from(i + 1, 2, 3);
        assert_true(recall(folder, options[i], &cost) == -1);
    }
    for (int i = 0; i < OPTIONS; i++) { assert_true(recall(folder, options[i], NULL) == i + 1); }
    cuda_host_close();
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}
