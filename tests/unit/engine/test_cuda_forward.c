/* The whole forward pass of the CUDA engine, on the host: its numbers beside plain f64 loops, in every precision and
 * layout, run directly, captured, and as a graph.
 *
 * ctest-cost: 30 */
#include "cuda_case.h"
#include "cuda_host.h"
#include "cuda_host_private.h"
#include "harness.h"

#include <math.h>
#include <stdlib.h>

#include "engine/cuda/pass.h"
#include "engine/encoder.h"

static const struct memory_shape heads_of_32 = {100, 80, 64, 2, 2, 128};
static const struct memory_shape heads_of_64 = {100, 80, 128, 2, 2, 96};
static const struct memory_shape odd_heads = {100, 80, 48, 1, 2, 72}; /* 24 wide */
static const struct memory_shape biased_32 = {100, 150, 64, 2, 2, 128, true};
static const struct memory_shape biased_64 = {100, 150, 128, 1, 2, 96, true};
static const struct memory_shape biased_odd = {100, 150, 48, 1, 2, 72, true};

static const struct memory_shape modern_32 = {100, 150, 64, 2, 2, 112, .modern = true};
static const struct memory_shape modern_64 = {100, 150, 64, 3, 1, 96, .modern = true};
static const struct memory_shape modern_48 = {100, 150, 96, 2, 2, 72, .modern = true};

static const struct memory_shape qwen_32 = {100, 150, 64, 2, 4, 112, .modern = true, .key_heads = 2, .head_dim = 32};
static const struct memory_shape qwen_64 = {100, 150, 160, 2, 2, 96, .modern = true, .key_heads = 1, .head_dim = 64};
static const struct memory_shape qwen_128 = {100, 150, 64, 1, 2, 96, .modern = true, .key_heads = 2, .head_dim = 128};

static const struct memory_shape gemma_32 = {
    100, 150, 64, 2, 4, 112, .modern = true, .key_heads = 2, .head_dim = 32, .gemma = true};
static const struct memory_shape gemma_256 = {
    100, 150, 192, 3, 2, 72, .modern = true, .key_heads = 1, .head_dim = 256, .gemma = true};

static const uint32_t mixed[] = {1, 66, 2, 17, 9, 0}, padded[] = {17, 1, 9, 0}, longest[] = {150, 3, 0};

/* The biases are so large that the place of their addition matters: in the residual, before or after the softmax, in
 * the scale. */
static struct model *model_with_biases(struct memory_shape shape, uint64_t seed)
{
    struct model *model = memory_model(shape, seed);
    for (uint32_t l = 0; l < shape.layers; l++) {
        struct model_layer *layer = &model->layers[l];
        const struct tensor *biases[] = {&layer->query.bias, &layer->key.bias, &layer->value.bias,
                                         &layer->attention_output.bias, &layer->output.bias};
        for (size_t b = 0; b < sizeof biases / sizeof biases[0]; b++) {
            float *bias = (float *)model->storage + ((const float *)biases[b]->data - (const float *)model->storage);
            for (size_t i = 0; i < biases[b]->elements; i++) { bias[i] *= 20; }
        }
    }
    return model;
}

/* Runs one engine: packed twice (directly, then captured), packed as a graph with other rows, and padded. */
static void compare(struct model *model, const struct engine_options *options, struct cuda_distance bounds)
{
    static struct cuda_rows rows;
    struct err err = {0};
    cuda_host_open(&(struct cuda_host_options){.order = CUDA_HOST_LATE});
    struct cuda_opened opened = cuda_opened(model, options);
    for (uint64_t seed = 0; seed < 4; seed++) {
        cuda_rows_make(&rows, model, seed == 3 ? padded : mixed, seed == 3 ? 20 : 0, seed);
        assert_int_equal(encoder_run(opened.encoder, &rows.batch, &err), STATUS_OK);
        cuda_expect(&rows, model, bounds);
    }
    cuda_opened_close(&opened);
    cuda_host_close();
}

static const struct cuda_distance f32_bounds = {0.9999999, 2e-6}, f16_bounds = {0.99999, 2e-3},
                                  bf16_bounds = {0.9995, 2e-2};

TEST(f32_matches_plain_loops)
{
    struct engine_options options = {.precision = PRECISION_F32};
    compare(model_with_biases(heads_of_32, 1), &options, f32_bounds);
    compare(model_with_biases(odd_heads, 2), &options, f32_bounds);
}

TEST(f32_matches_with_cls)
{
    struct engine_options options = {.precision = PRECISION_F32};
    struct model *model = model_with_biases(heads_of_64, 3);
    model->pooling = POOLING_CLS;
    compare(model, &options, f32_bounds);
    struct memory_shape shallow = heads_of_32;
    shallow.layers = 1;
    model = model_with_biases(shallow, 4);
    model->pooling = POOLING_CLS;
    compare(model, &options, f32_bounds);
}

TEST(f32_matches_with_other_activations)
{
    struct engine_options options = {.precision = PRECISION_F32};
    struct memory_shape shape = heads_of_32;
    shape.layers = 1;
    struct model *model = model_with_biases(shape, 5);
    model->activation = ACTIVATION_RELU;
    model->normalize = false;
    model->position_offset = 2;
    model->max_tokens -= 2;
    compare(model, &options, (struct cuda_distance){0.9999999, 1e-5});
    model = model_with_biases(shape, 6);
    model->activation = ACTIVATION_GELU_TANH;
    compare(model, &options, f32_bounds);
}

TEST(f16_is_near_plain_loops)
{
    compare(memory_model(heads_of_32, 7), NULL, f16_bounds);
    compare(memory_model(heads_of_64, 8), NULL, f16_bounds);
    compare(memory_model(odd_heads, 9), NULL, f16_bounds);
}

TEST(f16_is_near_without_token_types)
{
    struct model *model = memory_model(heads_of_32, 20);
    model->token_types = 0;
    model->type_embeddings = (struct tensor){0};
    compare(model, NULL, f16_bounds);
}

TEST(f16_is_near_with_cls)
{
    struct model *model = memory_model(heads_of_64, 10);
    model->pooling = POOLING_CLS;
    compare(model, NULL, f16_bounds);
}

TEST(bf16_is_near_plain_loops)
{
    struct engine_options options = {.precision = PRECISION_BF16};
    compare(memory_model(heads_of_32, 11), &options, bf16_bounds);
    struct model *model = memory_model(heads_of_64, 12);
    model->pooling = POOLING_CLS;
    compare(model, &options, bf16_bounds);
}

static bool is_untouched(const unsigned char *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (memory[i] != 0xff) { return false; }
    }
    return true;
}

/* The product gives keys and values of all tokens, and after them queries of the rows that a graph of this size has
 * room for: no others. */
TEST(cls_models_take_queries_of_first_tokens_only)
{
    static struct cuda_rows rows;
    const uint32_t lengths[] = {5, 19, 0};
    struct memory_shape shape = heads_of_32;
    struct err err = {0};
    cuda_host_open(NULL);
    shape.layers = 1;
    struct model *model = memory_model(shape, 19);
    model->pooling = POOLING_CLS;
    struct cuda_opened opened = cuda_opened(model, NULL);
    cuda_rows_make(&rows, model, lengths, 0, 1);
    char *const place = opened.encoder->workspace->memory.device + opened.encoder->workspace->memory.plan.offsets.wide;
    const size_t token = 2 * 64, queries = 2 * token * 24, end = queries + 8 * token, whole = 3 * token * 24;
    unsigned char *wide = malloc(whole);
    assert_non_null(wide);
    memset(wide, 0xff, whole);
    cuda_host_poke(place, wide, whole);
    assert_int_equal(encoder_run(opened.encoder, &rows.batch, &err), STATUS_OK);
    cuda_expect(&rows, model, f16_bounds);
    cuda_host_peek(wide, place, whole);
    assert_false(is_untouched(wide + queries - token, token)); /* the last token's values */
    assert_false(is_untouched(wide + queries, token));
    assert_false(is_untouched(wide + queries + token, token));
    assert_true(is_untouched(wide + end, whole - end));
    free(wide);
    cuda_opened_close(&opened);
    cuda_host_close();
}

TEST(f32_matches_with_every_pooling)
{
    struct engine_options options = {.precision = PRECISION_F32};
    for (unsigned pooling = POOLING_MEAN; pooling < POOLINGS; pooling++) {
        struct model *model = memory_model(odd_heads, 30 + pooling);
        model->pooling = (enum pooling)pooling;
        model->normalize = false;
        compare(model, &options, (struct cuda_distance){0.9999999, 2e-5});
    }
}

/* The bias is added on tensor cores, by plain arithmetic, and for a single query per row. */
TEST(a_relative_bias_is_added)
{
    static struct cuda_rows rows;
    static const struct {
        struct memory_shape shape;
        enum precision precision;
        enum pooling pooling;
        struct cuda_distance bounds;
    } models[] = {
        {biased_32, PRECISION_F16, POOLING_MEAN, f16_bounds},   {biased_64, PRECISION_F16, POOLING_CLS, f16_bounds},
        {biased_64, PRECISION_BF16, POOLING_MEAN, bf16_bounds}, {biased_odd, PRECISION_F16, POOLING_MEAN, f16_bounds},
        {biased_32, PRECISION_F32, POOLING_MEAN, f32_bounds},   {biased_odd, PRECISION_F32, POOLING_CLS, f32_bounds},
    };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct err err = {0};
        cuda_host_open(NULL);
        struct model *model = memory_model(models[i].shape, 21 + i);
        model->pooling = models[i].pooling;
        struct cuda_opened opened = cuda_opened(model, &(struct engine_options){.precision = models[i].precision});
        for (uint64_t seed = 0; seed < 3; seed++) { /* directly, captured, replayed */
            cuda_rows_make(&rows, model, seed == 1 ? mixed : longest, 0, seed);
            assert_int_equal(encoder_run(opened.encoder, &rows.batch, &err), STATUS_OK);
            cuda_expect(&rows, model, models[i].bounds);
        }
        cuda_opened_close(&opened);
        cuda_host_close();
    }
}

/* Norms before, gated, no biases, rotary positions with two bases, windows: as ModernBERT; and as Nomic. */
static struct model *modern_model(struct memory_shape shape, uint64_t seed, enum pooling pooling)
{
    struct model *model = memory_model(shape, seed);
    model->pooling = pooling;
    return model;
}

static struct model *nomic_model(struct memory_shape shape, uint64_t seed, enum pooling pooling)
{
    struct model *model = modern_model(shape, seed, pooling);
    model->pre_norm = false;
    model->activation = ACTIVATION_SILU;
    for (uint32_t l = 0; l < shape.layers; l++) { model->layers[l].local = false; }
    return model;
}

/* With the biases of attention, which GTE has; that of the keys turns with them. */
static struct model *rotary_model_with_biases(struct memory_shape shape, uint64_t seed, enum pooling pooling)
{
    struct model *model = model_with_biases(shape, seed);
    model->pooling = pooling;
    model->rotary[0] = (struct rotary){160000, 1.5};
    return model;
}

TEST(f32_matches_as_modernbert)
{
    struct engine_options options = {.precision = PRECISION_F32};
    struct model *alone = modern_model(modern_64, 43, POOLING_CLS), *wide = modern_model(modern_32, 44, POOLING_LAST);
    alone->layer_count = 1;
    wide->activation = ACTIVATION_GELU_TANH;
    wide->window = 65;
    compare(modern_model(modern_32, 40, POOLING_MEAN), &options, f32_bounds);
    compare(modern_model(modern_64, 41, POOLING_CLS), &options, f32_bounds);
    compare(modern_model(modern_48, 42, POOLING_CLS), &options, f32_bounds); /* the last layer is local */
    compare(alone, &options, f32_bounds);
    compare(wide, &options, f32_bounds);
}

TEST(f32_matches_as_nomic_and_gte)
{
    struct engine_options options = {.precision = PRECISION_F32};
    compare(nomic_model(modern_32, 45, POOLING_MEAN), &options, f32_bounds);
    compare(nomic_model(modern_64, 46, POOLING_CLS), &options, f32_bounds);
    compare(rotary_model_with_biases(heads_of_32, 47, POOLING_MEAN), &options, f32_bounds);
    compare(rotary_model_with_biases(heads_of_64, 48, POOLING_CLS), &options, f32_bounds);
}

TEST(f16_and_bf16_are_near_with_rotary_positions)
{
    struct engine_options bf16 = {.precision = PRECISION_BF16};
    compare(modern_model(modern_32, 50, POOLING_MEAN), NULL, f16_bounds);
    compare(modern_model(modern_64, 51, POOLING_CLS), NULL, f16_bounds);
    compare(nomic_model(modern_64, 53, POOLING_MEAN), NULL, f16_bounds);
    compare(modern_model(modern_64, 55, POOLING_MEAN), &bf16, bf16_bounds);
}

/* RMS norms, also of each query and key, fewer heads of keys than of queries, heads that together are wider or narrower
 * than the model, no look ahead; and, both ways, pooled from the first token without the usual shortcut. */
TEST(f32_matches_as_qwen)
{
    struct engine_options options = {.precision = PRECISION_F32};
    struct model *both_ways = modern_model(qwen_64, 61, POOLING_CLS);
    both_ways->causal = false;
    compare(modern_model(qwen_32, 60, POOLING_LAST), &options, f32_bounds);
    compare(modern_model(qwen_128, 62, POOLING_MEAN), &options, f32_bounds);
    compare(both_ways, &options, f32_bounds);
}

TEST(f16_and_bf16_are_near_as_qwen)
{
    struct engine_options bf16 = {.precision = PRECISION_BF16};
    compare(modern_model(qwen_32, 64, POOLING_LAST), NULL, f16_bounds);
    compare(modern_model(qwen_128, 65, POOLING_LAST), NULL, f16_bounds);
    compare(modern_model(qwen_64, 66, POOLING_LAST), &bf16, bf16_bounds);
}

/* The same both ways with windows, a norm of what each part adds, gains less 1, and words and scores scaled; as
 * EmbeddingGemma, whose heads have 256 numbers. */
static struct model *gemma_model(struct memory_shape shape, uint64_t seed)
{
    struct model *model = memory_model(shape, seed);
    model->activation = ACTIVATION_GELU_TANH;
    return model;
}

TEST(f32_matches_as_gemma)
{
    struct engine_options options = {.precision = PRECISION_F32};
    compare(gemma_model(gemma_32, 70), &options, f32_bounds);
    compare(gemma_model(gemma_256, 71), &options, f32_bounds);
}

TEST(f16_and_bf16_are_near_as_gemma)
{
    struct engine_options bf16 = {.precision = PRECISION_BF16};
    compare(gemma_model(gemma_32, 72), NULL, f16_bounds);
    compare(gemma_model(gemma_256, 73), &bf16, bf16_bounds);
}

TEST(int8_is_refused_by_name)
{
    struct model *model = memory_model(heads_of_32, 14);
    struct engine_options options = {.precision = PRECISION_INT8};
    struct engine *engine = NULL;
    struct err err = {0};
    assert_int_equal(engine_open_with(&backend_cuda, model, &options, &engine, &err), STATUS_UNSUPPORTED);
    assert_null(engine);
    assert_non_null(strstr(err.message, "\"cuda\" cannot compute in int8"));
    memory_model_free(model);
}

TEST(exact_gelu_is_another_number)
{
    static struct cuda_rows rows;
    const uint32_t lengths[] = {20, 0};
    float vectors[2][64];
    struct err err = {0};
    for (int exact = 0; exact < 2; exact++) {
        cuda_host_open(NULL);
        struct engine_options options = {.exact_gelu = exact == 1};
        struct cuda_opened opened = cuda_opened(memory_model(heads_of_32, 13), &options);
        cuda_rows_make(&rows, opened.model, lengths, 0, 1);
        assert_int_equal(encoder_run(opened.encoder, &rows.batch, &err), STATUS_OK);
        cuda_expect(&rows, opened.model, f16_bounds);
        memcpy(vectors[exact], rows.output, sizeof vectors[exact]);
        cuda_opened_close(&opened);
        cuda_host_close();
    }
    assert_memory_not_equal(vectors[0], vectors[1], sizeof vectors[0]);
}

/* Direct, captured and replayed runs give the same bits, with other batches of the same size between them. */
TEST(graphs_change_no_bit)
{
    static struct cuda_rows rows;
    const uint32_t lengths[] = {9, 20, 4, 0}, same_size[] = {1, 30, 2, 0};
    float first[3 * 64];
    struct err err = {0};
    for (int pooling = 0; pooling < 2; pooling++) {
        cuda_host_open(NULL);
        struct model *model = memory_model(heads_of_32, 14);
        model->pooling = pooling == 0 ? POOLING_MEAN : POOLING_CLS;
        struct cuda_opened opened = cuda_opened(model, NULL);
        for (int round = 0; round < 4; round++) {
            cuda_rows_make(&rows, model, lengths, 0, 5);
            assert_int_equal(encoder_run(opened.encoder, &rows.batch, &err), STATUS_OK);
            if (round == 0) { memcpy(first, rows.output, sizeof first); }
            assert_memory_equal(first, rows.output, sizeof first);
            cuda_rows_make(&rows, model, same_size, 0, (uint64_t)round + 50);
            assert_int_equal(encoder_run(opened.encoder, &rows.batch, &err), STATUS_OK);
            cuda_expect(&rows, model, f16_bounds);
        }
        struct engine_counters counters = engine_counters(opened.engine);
        assert_int_equal(counters.passes, 8);
        assert_int_equal(counters.graphs_captured, 1);
        assert_int_equal(counters.graph_launches, 7);
        cuda_opened_close(&opened);
        cuda_host_close();
    }
}

TEST(graphs_can_be_switched_off)
{
    static struct cuda_rows rows;
    struct err err = {0};
    cuda_host_open(NULL);
    struct cuda_opened opened = cuda_opened(memory_model(heads_of_32, 15), &(struct engine_options){.no_graphs = true});
    for (int round = 0; round < 3; round++) {
        cuda_rows_make(&rows, opened.model, mixed, 0, 5);
        assert_int_equal(encoder_run(opened.encoder, &rows.batch, &err), STATUS_OK);
        cuda_expect(&rows, opened.model, f16_bounds);
    }
    assert_int_equal(engine_counters(opened.engine).graph_launches, 0);
    assert_int_equal(cuda_host_calls("cudaStreamBeginCapture"), 0);
    cuda_opened_close(&opened);
    cuda_host_close();
}

/* Batches of one token less than a bucket, a whole one, one more; and the largest batch that fits a pass, and a larger
 * one. */
TEST(every_size_of_batch_is_right)
{
    static struct cuda_rows rows;
    struct err err = {0};
    struct memory_shape shape = heads_of_32;
    shape.layers = 1;
    for (int pooling = 0; pooling < 2; pooling++) {
        cuda_host_open(NULL);
        struct model *model = memory_model(shape, 16);
        model->pooling = pooling == 0 ? POOLING_MEAN : POOLING_CLS;
        struct cuda_opened opened = cuda_opened(model, &(struct engine_options){.batch_tokens = 80, .batch_rows = 9});
        const uint32_t sizes[][13] = {{1},
                                      {7},
                                      {8},
                                      {9},
                                      {15, 1},
                                      {15, 2},
                                      {79},
                                      {80},
                                      {79, 1},
                                      {79, 2},
                                      {80, 80, 3},
                                      {1, 1, 1, 1, 1, 1, 1, 1, 1},
                                      {4, 1, 1, 1, 1, 1, 1, 1, 1, 1}};
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            cuda_rows_make(&rows, model, sizes[i], 0, i);
            assert_int_equal(encoder_run(opened.encoder, &rows.batch, &err), STATUS_OK);
            cuda_expect(&rows, model, f16_bounds);
        }
        cuda_opened_close(&opened);
        cuda_host_close();
    }
}

/* Gaps between rows, the padding up to a bucket, and the results of earlier passes are all NaN: no row reads them. */
TEST(what_lies_beside_the_rows_does_not_matter)
{
    static struct cuda_rows rows;
    const uint32_t lengths[] = {9, 34, 1, 17, 0};
    const enum precision precisions[] = {PRECISION_F16, PRECISION_F32};
    float clean[4 * 64];
    struct err err = {0};
    for (int variant = 0; variant < 8; variant++) {
        cuda_host_open(NULL);
        struct model *model = memory_model(variant < 4 ? heads_of_32 : variant < 6 ? modern_32 : gemma_32, 18);
        model->pooling = variant < 2 ? POOLING_MEAN : POOLING_CLS;
        struct cuda_opened opened = cuda_opened(model, &(struct engine_options){.precision = precisions[variant % 2]});
        const struct cuda_memory *memory = &opened.encoder->workspace->memory;
        size_t bytes = memory->plan.offsets.bytes;
        void *nans = malloc(bytes);
        assert_non_null(nans);
        memset(nans, 0xff, bytes);
        for (uint32_t stride = 0; stride <= 36; stride += 36) {
            for (int round = 0; round < 4; round++) { /* directly, captured, replayed twice; the last three in NaNs */
                if (round > 0) { cuda_host_poke(memory->device, nans, bytes); }
                cuda_rows_make(&rows, model, lengths, stride, 5);
                assert_int_equal(encoder_run(opened.encoder, &rows.batch, &err), STATUS_OK);
                if (round == 0) { memcpy(clean, rows.output, sizeof clean); }
                assert_memory_equal(clean, rows.output, sizeof clean);
            }
        }
        free(nans);
        assert_int_equal(engine_counters(opened.engine).rows_bf16, 0);
        cuda_opened_close(&opened);
        cuda_host_close();
    }
}

/* A vector alone, in a batch, at another place in it and padded is within the stated tolerance. */
TEST(a_vector_hardly_depends_on_its_batch)
{
    static struct cuda_rows alone, together;
    const uint32_t lengths[] = {12, 0}, more[] = {20, 3, 12, 12, 25, 0};
    struct err err = {0};
    cuda_host_open(NULL);
    struct cuda_opened opened = cuda_opened(memory_model(heads_of_64, 17), NULL);
    cuda_rows_make(&alone, opened.model, lengths, 0, 3);
    assert_int_equal(encoder_run(opened.encoder, &alone.batch, &err), STATUS_OK);
    for (uint32_t stride = 0; stride <= 25; stride += 25) {
        for (uint32_t at = 2; at <= 3; at++) {
            cuda_rows_make(&together, opened.model, more, stride, 4);
            memcpy(together.ids + together.start[at], alone.ids, 12 * sizeof(int32_t));
            assert_int_equal(encoder_run(opened.encoder, &together.batch, &err), STATUS_OK);
            for (uint32_t i = 0; i < 128; i++) {
                assert_true(fabsf(together.output[at * 128 + i] - alone.output[i]) <= 1e-3f);
            }
        }
    }
    cuda_opened_close(&opened);
    cuda_host_close();
}

/* Counts the numbers that products read while they are timed, and those that are zero, not finite, or like their
 * neighbour. */
static struct {
    __typeof__(&cublasLtMatmul) multiply;
    uint64_t numbers, dull, products;
} watched;

static cublasStatus_t watch(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *weight,
                            cublasLtMatrixLayout_t weight_layout, const void *from, cublasLtMatrixLayout_t from_layout,
                            const void *beta, const void *added, cublasLtMatrixLayout_t added_layout, void *to,
                            cublasLtMatrixLayout_t to_layout, const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                            size_t workspace_bytes, cudaStream_t stream)
{
    uint16_t row[32];
    if (cuda_host_calls("cudaStreamBeginCapture") == 0 && cuda_host_calls("cudaLaunchKernel") == 0) {
        cuda_host_peek(row, from, sizeof row);
        for (int i = 1; i < 32; i++) {
            watched.dull += (row[i] & 0x7fff) == 0 || (row[i] & 0x7c00) == 0x7c00 || row[i] == row[i - 1];
        }
        watched.numbers += 31;
        watched.products++;
    }
    return watched.multiply(handle, desc, alpha, weight, weight_layout, from, from_layout, beta, added, added_layout,
                            to, to_layout, algorithm, workspace, workspace_bytes, stream);
}

/* A GPU multiplies zeros in less time: the memory that products are timed on is filled before. */
TEST(products_are_timed_on_random_numbers)
{
    static struct cuda_rows rows;
    const uint32_t lengths[] = {9, 3, 0};
    for (int pooling = 0; pooling < 2; pooling++) {
        cuda_host_open(&(struct cuda_host_options){.algorithms = {{9000, 0, 0}, {1000, 0, 0}}});
        watched.multiply = host.api.cublasLtMatmul;
        watched.numbers = watched.dull = watched.products = 0;
        host.api.cublasLtMatmul = watch;
        struct model *model = memory_model(heads_of_32, 1);
        model->pooling = pooling == 0 ? POOLING_MEAN : POOLING_CLS;
        struct cuda_opened opened = cuda_opened(model, NULL);
        cuda_rows_make(&rows, opened.model, lengths, 0, 1);
        cuda_run(&opened, &rows, STATUS_OK);
        cuda_expect(&rows, opened.model, cuda_near_f16);
        assert_true(watched.products >= 8);
        assert_true(watched.dull * 20 < watched.numbers);
        cuda_opened_close(&opened);
        cuda_host_close();
    }
}

TEST(products_may_go_untimed)
{
    static struct cuda_rows rows;
    const uint32_t lengths[] = {9, 3, 0};
    cuda_host_open(&(struct cuda_host_options){.algorithms = {{9000, 0, 0}, {1000, 0, 0}}});
    struct cuda_opened opened = cuda_opened(memory_model(heads_of_32, 1), &(struct engine_options){.candidates = 1});
    cuda_rows_make(&rows, opened.model, lengths, 0, 1);
    cuda_run(&opened, &rows, STATUS_OK);
    cuda_expect(&rows, opened.model, cuda_near_f16);
    assert_int_equal(cuda_host_calls("cudaEventElapsedTime"), 0);
    cuda_opened_close(&opened);
    cuda_host_close();
}

enum { LABELS = 3 };

/* Computes logits of pairs with one backend: the CPU's, which the golden test compares with transformers, or the CUDA
 * engine's. */
static void run_pairs(struct model *model, const char *backend, struct cuda_rows *rows, float logits[])
{
    struct engine_options options = {.backend = backend, .precision = PRECISION_F32};
    struct engine *engine;
    struct encoder *encoder;
    struct err err = {0};
    rows->batch.output = logits;
    assert_int_equal(engine_open(model, &options, &engine, &err), STATUS_OK);
    assert_int_equal(encoder_open(engine, &encoder, &err), STATUS_OK);
    assert_int_equal(encoder_run(encoder, &rows->batch, &err), STATUS_OK);
    encoder_close(encoder);
    engine_close(engine);
}

TEST(f32_scores_pairs_as_the_cpu_does)
{
    static struct cuda_rows rows;
    enum { ROWS = 5, LOGITS = ROWS * LABELS };
    const uint32_t second[ROWS] = {0, 30, 1, 0, 8};
    float pairs[LOGITS], cuda[LOGITS], single[LOGITS];
    struct model *model = model_with_biases(heads_of_32, 23);
    model->pooling = POOLING_CLS;
    model->normalize = false;
    struct linear dense = model->layers[0].query, out = model->layers[0].key;
    struct model_module layers[2] = {
        {MODULE_DENSE, "dense", model->hidden, model->hidden, MODULE_TANH, true, dense.weight, dense.bias},
        {MODULE_DENSE, "out", model->hidden, LABELS, MODULE_IDENTITY, true, out.weight, out.bias}};
    layers[1].weight.elements = (size_t)LABELS * model->hidden;
    layers[1].bias.elements = LABELS;
    model->head = (struct model_head){.labels = LABELS, .pair_types = true};
    model->modules = layers;
    model->module_count = 2;
    model->dim = LABELS;
    cuda_host_open(&(struct cuda_host_options){.order = CUDA_HOST_LATE});
    cuda_rows_make(&rows, model, mixed, 0, 7);
    assert_int_equal(rows.batch.rows, ROWS);
    run_pairs(model, "cpu", &rows, single);
    rows.batch.second = second;
    run_pairs(model, "cpu", &rows, pairs);
    run_pairs(model, "cuda", &rows, cuda);
    cuda_host_close();
    for (int i = 0; i < LOGITS; i++) {
        assert_true(fabsf(pairs[i] - cuda[i]) < 1e-5f);
        assert_true((fabsf(pairs[i] - single[i]) > 1e-4f) == (second[i / LABELS] > 0));
    }
    memory_model_free(model);
}
