/* See cpu_stream.h. */
#include "engine/cpu/workspace.h"

#include <stdlib.h>
#include <string.h>

#include "base/system.h"

/* Chunks of a step for each thread. */
enum { CHUNKS_PER_THREAD = 4 };

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* So many rows of a buffer may be written when a pass has `tokens`. */
static size_t rows_for(size_t tokens)
{
    return (tokens + MATMUL_ROWS - 1) / MATMUL_ROWS * MATMUL_ROWS + MATMUL_ROWS;
}

/* The floats of one block of the product that goes through its activation block by block. */
static size_t block_floats(const struct cpu_weights *weights, size_t rows)
{
    const struct matmul *shape = weights->shapes[LINEAR_INTERMEDIATE];
    return shape == NULL ? 0 : rows * matmul_block_outputs(shape);
}

static size_t scratch_bytes(const struct cpu_weights *weights, size_t tokens)
{
    const struct model *model = weights->backend.model;
    uint32_t longest = (uint32_t)(tokens < model->max_tokens ? tokens : model->max_tokens);
    return sizeof(float) * weights->set->kernels->attention_scratch(longest, model->hidden / model->heads);
}

/* Lays out what helpers have to themselves, as lay_out does. */
static size_t lay_out_helpers(struct backend_stream *stream, unsigned threads, char *block)
{
    const struct cpu_weights *weights = stream->weights;
    size_t used = 0, floats = block_floats(weights, rows_for(HELPED_TOKENS));
    for (unsigned thread = 1; thread < threads; thread++) {
        stream->thread[thread].scratch = memory_part(block, &used, scratch_bytes(weights, HELPED_TOKENS));
        stream->thread[thread].block = memory_part(block, &used, floats * sizeof(float));
    }
    return used;
}

static struct scaled_rows lay_out_split(size_t rows, uint32_t inputs, char *block, size_t *used)
{
    struct scaled_rows split = {.value = memory_part(block, used, split_f32_bytes(rows, inputs))};
    split.scale = memory_part(block, used, rows * sizeof(float));
    return split;
}

/* Lays the stream's buffers out in `block` (or nowhere, to learn the size) and returns their size. */
static size_t lay_out(struct backend_stream *stream, char *block)
{
    const struct cpu_weights *weights = stream->weights;
    const struct model *model = weights->backend.model;
    bool half = weights->backend.precision == PRECISION_BF16;
    size_t longest = larger(PASS_TOKENS, model->max_tokens);
    size_t rows = rows_for(longest), used = 0;
    size_t hidden = rows * model->hidden, wide = rows * larger(3 * model->hidden, model->intermediate_size);

    stream->hidden = memory_part(block, &used, hidden * sizeof(float));
    stream->product = memory_part(block, &used, larger(hidden, block_floats(weights, rows)) * sizeof(float));
    stream->thread[0].block = stream->product;
    stream->thread[0].scratch = memory_part(block, &used, scratch_bytes(weights, longest));
    if (weights->kind != GEMM_BF16)
        stream->wide = memory_part(block, &used, wide * sizeof(float));
    if (weights->kind == GEMM_SPLIT_F32) {
        stream->hidden_split = lay_out_split(rows, model->hidden, block, &used);
        uint32_t inner = model->hidden > model->intermediate_size ? model->hidden : model->intermediate_size;
        stream->inner_split = lay_out_split(rows, inner, block, &used);
    }
    if (weights->int8) {
        stream->wide16 = memory_part(block, &used, wide * sizeof(uint16_t));
        used += int8_space_lay_out(&stream->whole, model, rows, memory_part(block, &used, 0));
    }
    if (weights->int8 && weights->kind == GEMM_BF16) {
        stream->context.bf16 = memory_part(block, &used, hidden * sizeof(uint16_t));
        if (weights->first_whole > 0)
            stream->hidden16 = memory_part(block, &used, hidden * sizeof(uint16_t));
    } else if (half) {
        stream->hidden16 = memory_part(block, &used, hidden * sizeof(uint16_t));
        stream->context.bf16 = memory_part(block, &used, hidden * sizeof(uint16_t));
        stream->wide16 = memory_part(block, &used, wide * sizeof(uint16_t));
    } else {
        stream->context.f32 = memory_part(block, &used, hidden * sizeof(float));
    }
    return used;
}

void cpu_stream_close(struct backend_stream *stream)
{
    if (stream == NULL)
        return;
    for (unsigned thread = 0; thread < PARALLEL_THREADS_MAX; thread++)
        matmul_runner_close(stream->thread[thread].runner);
    free(stream->helpers_memory);
    free(stream->memory);
    free(stream);
}

/* Memory of that size, all zero: what gaps hold is computed with, so it must be finite. */
static enum status make_room(size_t bytes, void **out, struct err *err)
{
    *out = memory_aligned(bytes);
    if (*out == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for a CPU stream (%zu bytes)", bytes);
    memset(*out, 0, bytes);
    return STATUS_OK;
}

static enum status open_runner(const struct cpu_weights *weights, struct cpu_thread *thread, struct err *err)
{
    if (weights->shapes[0] == NULL)
        return STATUS_OK;
    return matmul_runner_open(weights->device, weights->shapes, CPU_SHAPES, &thread->runner, err);
}

enum status cpu_stream_open(struct backend *backend, struct backend_stream **out, struct err *err)
{
    struct cpu_weights *weights = (struct cpu_weights *)backend;
    matmul_single_thread();
    struct backend_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for a CPU stream");
    stream->weights = weights;
    stream->threads = 1;
    size_t bytes = lay_out(stream, NULL);
    enum status status = make_room(bytes, &stream->memory, err);
    if (status == STATUS_OK) {
        lay_out(stream, stream->memory);
        status = open_runner(weights, &stream->thread[0], err);
    }
    if (status != STATUS_OK) {
        cpu_stream_close(stream);
        return status;
    }
    *out = stream;
    return STATUS_OK;
}

/* Where it fails the stream goes on alone. */
enum status cpu_stream_join(struct backend_stream *stream, struct parallel_for *parallel, struct err *err)
{
    const struct cpu_weights *weights = stream->weights;
    unsigned threads = parallel_for_threads(parallel);
    if (threads == 1)
        return STATUS_OK;
    TRY(make_room(lay_out_helpers(stream, threads, NULL), &stream->helpers_memory, err));
    lay_out_helpers(stream, threads, stream->helpers_memory);
    for (unsigned thread = 1; thread < threads; thread++)
        TRY(open_runner(weights, &stream->thread[thread], err));
    stream->threads = threads;
    stream->parallel = parallel;
    return STATUS_OK;
}

/* ---- steps ---- */

unsigned cpu_chunks(const struct backend_stream *stream, uint32_t parts, uint32_t least)
{
    if (!stream->helped)
        return 1;
    unsigned most = parts / least, good = stream->threads * CHUNKS_PER_THREAD;
    return most < 1 ? 1 : most < good ? most : good;
}

enum status cpu_do(const struct cpu_step *step, void (*chunk)(void *context, unsigned thread, unsigned chunk),
                   struct err *err)
{
    struct backend_stream *stream = step->stream;
    struct cpu_step own = *step;
    if (stream->helped)
        parallel_for_run(stream->parallel, &(struct parallel_step){chunk, &own, step->chunks});
    else
        for (unsigned i = 0; i < step->chunks; i++)
            chunk(&own, 0, i);
    for (unsigned thread = 0; thread < stream->threads; thread++) {
        struct err *met = &stream->thread[thread].err;
        enum status status = met->status;
        if (status == STATUS_OK)
            continue;
        if (err != NULL)
            *err = *met;
        met->status = STATUS_OK;
        return status;
    }
    return STATUS_OK;
}
