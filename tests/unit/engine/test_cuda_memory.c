/* Memory on the GPU, on the host: the plan (sizes of passes, the block of a batch, 16-bit rounding), then reservations,
 * failures of every allocation, graphs that give way. cuda_host_close looks for leaks. */
#include "cuda_case.h"
#include "cuda_host.h"
#include "harness.h"

#include <math.h>
#include <stdlib.h>

#include "engine/cuda/memory.h"
#include "engine/cuda/pass.h"
#include "engine/cuda/weights.h"
#include "engine/encoder.h"

static uint32_t seed_state = 7;

static uint32_t next_random(void)
{
    seed_state = seed_state * 1664525u + 1013904223u;
    return seed_state >> 8;
}

TEST(buckets_waste_little)
{
    uint32_t buckets = 0, last = 0;
    for (uint32_t tokens = 1; tokens <= 70000; tokens++) {
        uint32_t bucket = cuda_bucket_tokens(tokens);
        assert_true(bucket >= tokens && bucket >= last);
        assert_int_equal(bucket % 8, 0);
        assert_int_equal(cuda_bucket_tokens(bucket), bucket);
        assert_true(bucket - tokens < 8 || (bucket - tokens) * 16 < tokens);
        buckets += bucket != last;
        last = bucket;
    }
    assert_true(buckets < 170);
}

TEST(buckets_of_rows_are_few)
{
    for (uint32_t rows = 1; rows <= 300; rows++) {
        uint32_t bucket = cuda_bucket_rows(rows, 300);
        assert_true(bucket >= rows && bucket <= 300);
        assert_true(bucket == 8 || bucket == 300 || bucket < 2 * rows);
    }
    assert_int_equal(cuda_bucket_rows(3, 5), 5);
}

static const struct model bert = {.hidden = 768,
                                  .dim = 768,
                                  .layer_count = 12,
                                  .heads = 12,
                                  .intermediate_size = 3072,
                                  .max_tokens = 512,
                                  .pooling = POOLING_MEAN};

static struct cuda_plan_request request_for(const struct model *model, size_t available_bytes)
{
    return (struct cuda_plan_request){.model = model,
                                      .element_bytes = 2,
                                      .slots = 3,
                                      .graphs = 10,
                                      .weight_bytes = 220 << 20,
                                      .workspace_bytes = 32 << 20,
                                      .available_bytes = available_bytes};
}

TEST(the_plan_is_the_formula)
{
    struct cuda_plan_request request = request_for(&bert, SIZE_MAX);
    struct cuda_plan plan;
    struct err err = {0};
    request.batch_tokens = 4096;
    request.batch_rows = 256;
    assert_int_equal(cuda_plan_make(&request, &plan, &err), STATUS_OK);
    assert_int_equal(plan.tokens, 4096);
    assert_int_equal(plan.rows, 256);
    assert_int_equal(plan.halvings, 0);
    size_t ragged = cuda_ragged_layout(4096, 256).bytes;
    size_t activations = (size_t)4096 * (768 + 768 + 3072) * 2, output = 256 * 768 * 4 + 256 * 4;
    size_t expected = activations + ragged + 3 * (ragged + output);
    assert_true(plan.offsets.bytes >= expected && plan.offsets.bytes < expected + 20 * CUDA_ALIGNMENT);
    assert_int_equal(plan.graph_bytes, 10 * (CUDA_GRAPH_BYTES + 12 * CUDA_GRAPH_LAYER_BYTES));
    assert_int_equal(plan.total_bytes,
                     request.weight_bytes + request.workspace_bytes + plan.graph_bytes + plan.offsets.bytes);
    assert_true(plan.pinned_bytes >= 3 * (ragged + 256 * 768 * 4));
}

TEST(parts_do_not_overlap)
{
    struct model cls = bert;
    cls.pooling = POOLING_CLS;
    struct cuda_plan_request request = request_for(&cls, SIZE_MAX);
    struct cuda_plan plan;
    struct err err = {0};
    request.batch_tokens = 1000;
    request.batch_rows = 77;
    assert_int_equal(cuda_plan_make(&request, &plan, &err), STATUS_OK);
    const struct cuda_offsets *p = &plan.offsets;
    const size_t begins[] = {p->x,
                             p->y,
                             p->wide,
                             p->first,
                             p->ragged,
                             p->slot_ragged[0],
                             p->slot_output[0],
                             p->slot_ragged[1],
                             p->slot_output[1],
                             p->slot_ragged[2],
                             p->slot_output[2],
                             p->bytes};
    const size_t x = (size_t)plan.tokens * 768 * 2, ragged = plan.ragged_bytes, output = 77 * (768 * 4 + 4);
    const size_t sizes[] = {x, x, 4 * x, 77 * 768 * 2, ragged, ragged, output, ragged, output, ragged, output};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_int_equal(begins[i] % CUDA_ALIGNMENT, 0);
        assert_true(begins[i + 1] >= begins[i] + sizes[i]);
    }
}

TEST(a_plan_halves_until_it_fits)
{
    struct cuda_plan_request request = request_for(&bert, SIZE_MAX);
    struct cuda_plan whole, plan;
    struct err err = {0};
    assert_int_equal(cuda_plan_make(&request, &whole, &err), STATUS_OK);
    assert_int_equal(whole.tokens, CUDA_DEFAULT_TOKENS);
    assert_int_equal(whole.rows, CUDA_DEFAULT_ROWS);
    for (size_t available = whole.total_bytes; available > 0; available -= available / 50 + 1) {
        request.available_bytes = available;
        enum status status = cuda_plan_make(&request, &plan, &err);
        if (status != STATUS_OK) {
            assert_int_equal(status, STATUS_NO_MEMORY);
            assert_non_null(strstr(err.message, "512 tokens"));
            break;
        }
        assert_true(plan.total_bytes <= available);
        assert_true(plan.tokens >= 512 && plan.rows <= plan.tokens);
        assert_int_equal(plan.tokens, CUDA_DEFAULT_TOKENS >> plan.halvings);
    }
    assert_int_equal(plan.tokens, 512);
    assert_int_equal(plan.halvings, 7);
    assert_int_equal(cuda_plan_halve(&request, &plan, &err), STATUS_NO_MEMORY);
    assert_int_equal(plan.tokens, 512);
}

TEST(a_pass_takes_the_longest_text)
{
    struct cuda_plan_request request = request_for(&bert, SIZE_MAX);
    struct cuda_plan plan;
    struct err err = {0};
    request.batch_tokens = 20;
    request.batch_rows = 1;
    assert_int_equal(cuda_plan_make(&request, &plan, &err), STATUS_OK);
    assert_int_equal(plan.tokens, 512);
    assert_int_equal(plan.rows, 1);
}

/* --- the block of a batch ------------------------------------------------------------------------------------------
 */

enum { TOKENS = 640, ROWS = 40 };

struct batch {
    uint32_t start[ROWS], length[ROWS];
    int32_t *ids; /* of exactly the pass's extent */
    struct pass pass;
};

/* Rows with gaps between them and after the last one; the gaps must not be read. */
static struct batch make_batch(uint32_t rows, uint32_t longest_gap)
{
    struct batch batch = {0};
    uint32_t origin = 17, at = origin;
    for (uint32_t r = 0; r < rows; r++) {
        batch.start[r] = at;
        batch.length[r] = 1 + next_random() % (r % 5 == 0 ? 40 : 8);
        at += batch.length[r] + (longest_gap == 0 ? 0 : next_random() % (longest_gap + 1));
    }
    uint32_t extent = at - origin;
    assert_true(extent <= TOKENS);
    batch.ids = malloc(extent * sizeof *batch.ids);
    assert_non_null(batch.ids);
    for (uint32_t i = 0; i < extent; i++) { batch.ids[i] = -1; }
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t t = 0; t < batch.length[r]; t++) {
            batch.ids[batch.start[r] - origin + t] = (int32_t)(next_random() % 1000 + 1);
        }
    }
    batch.pass = (struct pass){.rows = rows, .extent = extent, .origin = origin, .ids = batch.ids};
    return batch;
}

static void expect_block(const struct batch *batch, const struct cuda_ragged_layout *layout, const void *block,
                         size_t used)
{
    struct kernel_ragged view = cuda_ragged_view(layout, block);
    const struct pass *pass = &batch->pass;
    assert_int_equal(view.counts[KERNEL_COUNT_ROWS], pass->rows);
    assert_int_equal(view.counts[KERNEL_COUNT_TOKENS], pass->extent);
    uint32_t at = 0;
    for (uint32_t r = 0; r < pass->rows; r++) {
        assert_int_equal(view.start[r], batch->start[r] - pass->origin);
        assert_int_equal(view.length[r], batch->length[r]);
        for (; at < view.start[r]; at++) { assert_true(view.ids[at] == 0 && view.position[at] == 0); }
        uint32_t counted = pass->position_offset > 0;
        for (uint32_t t = 0; t < view.length[r]; t++, at++) {
            bool padding = (uint32_t)pass->ids[at] + 1 == pass->position_offset;
            assert_int_equal(view.ids[at], pass->ids[at]);
            assert_int_equal(view.position[at], padding ? 0 : counted++);
        }
    }
    for (; at < pass->extent; at++) { assert_true(view.ids[at] == 0 && view.position[at] == 0); }
    struct kernel_tile tiles[TOKENS / 64 + ROWS + 1];
    uint32_t spans, count = kernel_spans_fill(view.start, view.length, pass->rows, layout->span, tiles, &spans);
    assert_int_equal(view.counts[KERNEL_COUNT_TILES], count);
    assert_int_equal(view.counts[KERNEL_COUNT_SPANS], spans);
    assert_memory_equal(view.tiles, tiles, count * sizeof tiles[0]);
    assert_int_equal(used, layout->tiles + count * sizeof tiles[0]);
    assert_true(used <= layout->bytes);
}

TEST(blocks_hold_the_batch)
{
    struct cuda_ragged_layout layout = cuda_ragged_layout(TOKENS, ROWS);
    assert_true(layout.start % 16 == 0 && layout.length % 16 == 0 && layout.ids % 16 == 0);
    assert_true(layout.position % 16 == 0 && layout.tiles % 16 == 0);
    void *block = aligned_alloc(16, layout.bytes);
    assert_non_null(block);
    for (uint32_t rows = 1; rows <= ROWS; rows++) {
        for (uint32_t gap = 0; gap <= 3; gap += 3) {
            struct batch batch = make_batch(rows, gap);
            batch.pass.start = batch.start;
            batch.pass.length = batch.length;
            layout.span = (struct kernel_span){rows % 3 == 0 ? 0 : 128, 16};
            batch.pass.position_offset = rows % 2 == 0 ? 0 : (uint32_t)batch.ids[0] + 1;
            memset(block, 0xee, layout.bytes);
            expect_block(&batch, &layout, block, cuda_ragged_fill(&layout, &batch.pass, block));
            free(batch.ids);
        }
    }
    free(block);
}

/* --- 16 bits -------------------------------------------------------------------------------------------------------
 */

static float widened(enum dtype dtype, uint16_t half)
{
    struct tensor tensor = {.dtype = dtype, .rank = 1, .shape = {1, 1}, .data = &half, .elements = 1};
    float value;
    tensor_read_f32(&tensor, 0, 1, &value);
    return value;
}

static uint16_t narrowed(enum dtype dtype, float value)
{
    uint16_t half;
    cuda_narrow(dtype == DTYPE_F16 ? KERNEL_F16 : KERNEL_BF16, &value, 1, 1, &half);
    return half;
}

/* Every 16-bit number comes back; a number between two neighbours becomes the nearer one, in the middle the even one.
 */
static void check_rounding(enum dtype dtype, uint16_t infinity)
{
    for (uint32_t half = 0; half < infinity; half++) {
        float here = widened(dtype, (uint16_t)half);
        assert_int_equal(narrowed(dtype, here), half);
        assert_int_equal(narrowed(dtype, -here), half | 0x8000);
        if (half + 1 == infinity) { break; }
        float next = widened(dtype, (uint16_t)(half + 1)), middle = here + (next - here) / 2;
        assert_int_equal(narrowed(dtype, middle), half % 2 == 0 ? half : half + 1);
        assert_int_equal(narrowed(dtype, nextafterf(middle, 0)), half);
        assert_int_equal(narrowed(dtype, nextafterf(middle, INFINITY)), half + 1);
        assert_int_equal(narrowed(dtype, -nextafterf(middle, INFINITY)), (half + 1) | 0x8000);
    }
    assert_int_equal(narrowed(dtype, INFINITY), infinity);
    assert_int_equal(narrowed(dtype, -INFINITY), infinity | 0x8000);
    assert_true(isnan(widened(dtype, narrowed(dtype, NAN))));
    assert_true(isnan(widened(dtype, narrowed(dtype, -NAN))));
}

TEST(f16_is_rounded_to_nearest_even)
{
    check_rounding(DTYPE_F16, 0x7c00);
    assert_int_equal(narrowed(DTYPE_F16, 65519.996f), 0x7bff);
    assert_int_equal(narrowed(DTYPE_F16, 65520.0f), 0x7c00);
    assert_int_equal(narrowed(DTYPE_F16, 3e38f), 0x7c00);
    assert_int_equal(narrowed(DTYPE_F16, 1e-30f), 0);
}

TEST(bf16_is_rounded_to_nearest_even)
{
    check_rounding(DTYPE_BF16, 0x7f80);
}

static const struct memory_shape small = {60, 40, 32, 1, 1, 32};
static const struct memory_shape deeper = {60, 40, 64, 2, 2, 64};

TEST(no_more_is_reserved_than_allowed)
{
    static struct cuda_rows rows;
    const uint32_t lengths[] = {9, 3, 0};
    struct memory_shape shape = deeper;
    shape.positions = 16;
    size_t most[2];
    for (int half = 0; half < 2; half++) {
        /* A host whose memory is all cuBLASLt's workspace, the weights and a few passes' worth. */
        size_t memory = half == 0 ? (size_t)256 << 20 : 0;
        float share = half == 0 ? 0.9f : 0; /* 0: the default */
        if (half == 1) { memory = most[0] * 9 / 10; }
        cuda_host_open(&(struct cuda_host_options){.memory_bytes = memory});
        struct cuda_opened opened =
            cuda_opened(memory_model(shape, 1), &(struct engine_options){.memory_share = share, .batch_tokens = 60000});
        cuda_rows_make(&rows, opened.model, lengths, 0, 1);
        cuda_run(&opened, &rows, STATUS_OK);
        cuda_expect(&rows, opened.model, cuda_near_f16);
        most[half] = cuda_host_most_bytes(0);
        assert_true(most[half] <= memory * (half == 0 ? 9 : 8) / 10);
        cuda_opened_close(&opened);
        cuda_host_close();
    }
    assert_true(most[1] < most[0]);
}

/* Each allocation fails in turn: the engine opens with less, or says that there is no memory, and leaks nothing. */
TEST(every_allocation_may_fail)
{
    static const char *const calls[] = {"cudaMalloc", "cudaHostAlloc"};
    static struct cuda_rows rows;
    const uint32_t lengths[] = {9, 3, 0};
    unsigned smaller = 0, refused = 0;
    for (int which = 0; which < 2; which++) {
        for (uint32_t at = 1;; at++) {
            struct model *model = memory_model(small, 1);
            struct engine *engine = NULL;
            struct encoder *encoder = NULL;
            struct err err = {0};
            cuda_host_open(NULL);
            cuda_host_plant(
                (struct cuda_host_fault){.call = calls[which], .at = at, .answer = cudaErrorMemoryAllocation});
            enum status status =
                engine_open(model, &(struct engine_options){.backend = "cuda", .cache_path = ""}, &engine, &err);
            if (status == STATUS_OK) { status = encoder_open(engine, &encoder, &err); }
            cuda_rows_make(&rows, model, lengths, 0, 1);
            if (status == STATUS_OK) { status = encoder_run(encoder, &rows.batch, &err); }
            bool whole = status == STATUS_OK && engine_counters(engine).halvings == 0;
            if (status == STATUS_OK) {
                cuda_expect(&rows, model, cuda_near_f16);
            } else {
                assert_int_equal(status, STATUS_NO_MEMORY);
            }
            smaller += status == STATUS_OK && !whole;
            refused += status != STATUS_OK;
            encoder_close(encoder);
            engine_close(engine);
            memory_model_free(model);
            cuda_host_close();
            if (whole) { break; }
        }
    }
    assert_true(smaller >= 2);
    assert_true(refused >= 2);
}

/* When a graph finds no memory, the others are freed, and the pass succeeds. When even that does not help, the batch
 * fails for lack of memory, and the next one is computed. */
TEST(graphs_give_way)
{
    static struct cuda_rows rows;
    const uint32_t lengths[3][2] = {{9}, {17}, {26}};
    cuda_host_open(NULL);
    struct cuda_opened opened = cuda_opened(memory_model(small, 1), NULL);
    struct backend_workspace *stream = opened.encoder->workspace;
    for (int size = 0; size < 3; size++) { /* directly */
        cuda_rows_make(&rows, opened.model, lengths[size], 0, 1);
        cuda_run(&opened, &rows, STATUS_OK);
    }
    for (uint32_t faults = 0; faults < 3; faults++) {
        cuda_graphs_drop(&stream->graphs);
        for (int i = 0; i < 6; i++) { /* captured, then replayed */
            for (uint32_t at = 1; i == 2 && at <= faults; at++) {
                cuda_host_plant((struct cuda_host_fault){
                    .call = "cudaGraphInstantiate", .at = at, .answer = cudaErrorMemoryAllocation});
            }
            cuda_rows_make(&rows, opened.model, lengths[i % 3], 0, 1);
            cuda_run(&opened, &rows, i == 2 && faults == 2 ? STATUS_NO_MEMORY : STATUS_OK);
            if (i == 2) {
                assert_int_equal(stream->graphs.graphs, faults == 0 ? 3 : 2 - faults);
            } else {
                cuda_expect(&rows, opened.model, cuda_near_f16);
            }
            cuda_host_clear();
        }
    }
    cuda_opened_close(&opened);
    cuda_host_close();
}

TEST(few_graphs_serve_many_sizes)
{
    static struct cuda_rows rows;
    const uint32_t lengths[4][2] = {{5}, {12}, {20}, {28}};
    cuda_host_open(&(struct cuda_host_options){.order = CUDA_HOST_LATE});
    struct cuda_opened opened = cuda_opened(memory_model(small, 1), NULL);
    struct backend_workspace *stream = opened.encoder->workspace;
    stream->graphs.most = 2;
    for (int round = 0; round < 4; round++) {
        for (int size = 0; size < 4; size++) {
            cuda_rows_make(&rows, opened.model, lengths[size], 0, 1);
            cuda_run(&opened, &rows, STATUS_OK);
            cuda_expect(&rows, opened.model, cuda_near_f16);
            assert_true(stream->graphs.graphs <= 2);
        }
    }
    struct engine_counters counters = engine_counters(opened.engine);
    assert_int_equal(counters.graphs_captured, 3 * 4); /* each is gone when its size comes again */
    for (int round = 0; round < 3; round++) {
        for (int size = 2; size < 4; size++) { /* these two still have graphs */
            cuda_rows_make(&rows, opened.model, lengths[size], 0, 1);
            cuda_run(&opened, &rows, STATUS_OK);
        }
    }
    assert_int_equal(engine_counters(opened.engine).graphs_captured, 3 * 4);
    cuda_opened_close(&opened);
    cuda_host_close();
}
