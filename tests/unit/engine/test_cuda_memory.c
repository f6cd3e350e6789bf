/* The CUDA engine with little memory or none, on the host: what is reserved, every allocation that fails, graphs that
 * give way. cuda_host_close looks for what was not given back. */
#include "cuda_case.h"
#include "cuda_host_engine.h"
#include "harness.h"

#include "engine/cuda/pass.h"
#include "engine/encoder.h"

static const struct memory_shape small = {60, 40, 32, 1, 1, 32};
static const struct memory_shape deeper = {60, 40, 64, 2, 2, 64};

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
        float share = half == 0 ? 0.9f : 0; /* 0: the default */
        if (half == 1)
            memory = most[0] * 9 / 10;
        cuda_host_engine_open(&(struct cuda_host_options){.memory_bytes = memory});
        struct cuda_opened opened =
            cuda_opened(memory_model(shape, 1), &(struct engine_options){.memory_share = share, .batch_tokens = 60000});
        cuda_rows_make(&rows, opened.model, lengths, 0, 1);
        cuda_run(&opened, &rows, STATUS_OK);
        cuda_expect(&rows, opened.model, cuda_near_f16);
        most[half] = cuda_host_most_bytes(0);
        assert_true(most[half] <= memory * (half == 0 ? 9 : 8) / 10);
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
                cuda_expect(&rows, model, cuda_near_f16);
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
    struct backend_workspace *stream = opened.encoder->workspace;
    for (int size = 0; size < 3; size++) { /* directly */
        cuda_rows_make(&rows, opened.model, lengths[size], 0, 1);
        cuda_run(&opened, &rows, STATUS_OK);
    }
    for (uint32_t faults = 0; faults < 3; faults++) {
        cuda_graphs_drop(&stream->graphs);
        for (int i = 0; i < 6; i++) { /* captured, then replayed */
            for (uint32_t at = 1; i == 2 && at <= faults; at++)
                cuda_host_plant((struct cuda_host_fault){
                    .call = "cudaGraphInstantiate", .at = at, .answer = cudaErrorMemoryAllocation});
            cuda_rows_make(&rows, opened.model, lengths[i % 3], 0, 1);
            cuda_run(&opened, &rows, i == 2 && faults == 2 ? STATUS_NO_MEMORY : STATUS_OK);
            if (i == 2)
                assert_int_equal(stream->graphs.graphs, faults == 0 ? 3 : 2 - faults);
            else
                cuda_expect(&rows, opened.model, cuda_near_f16);
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
    struct backend_workspace *stream = opened.encoder->workspace;
    stream->graphs.most = 2;
    for (int round = 0; round < 4; round++)
        for (int size = 0; size < 4; size++) {
            cuda_rows_make(&rows, opened.model, lengths[size], 0, 1);
            cuda_run(&opened, &rows, STATUS_OK);
            cuda_expect(&rows, opened.model, cuda_near_f16);
            assert_true(stream->graphs.graphs <= 2);
        }
    struct engine_counters counters = engine_counters(opened.engine);
    assert_int_equal(counters.graphs_captured, 3 * 4); /* each is gone when its size comes again */
    for (int round = 0; round < 3; round++)
        for (int size = 2; size < 4; size++) { /* these two are there */
            cuda_rows_make(&rows, opened.model, lengths[size], 0, 1);
            cuda_run(&opened, &rows, STATUS_OK);
        }
    assert_int_equal(engine_counters(opened.engine).graphs_captured, 3 * 4);
    cuda_opened_close(&opened);
    cuda_host_engine_close();
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(no_more_is_reserved_than_allowed),
    cmocka_unit_test(every_allocation_may_fail),
    cmocka_unit_test(graphs_give_way),
    cmocka_unit_test(few_graphs_serve_many_sizes),
};

TEST_MAIN(cases)
