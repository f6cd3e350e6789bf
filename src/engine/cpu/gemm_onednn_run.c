/* Packed weights and running threads. See cpu_matmul.h. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "engine/cpu/gemm_onednn_parts.h"

static enum status reorder(const struct matmul *matmul, const dnnl_memory_desc_t *plain, const float *from,
                           dnnl_memory_t to, struct err *err)
{
    dnnl_engine_t engine = matmul->device->engine;
    dnnl_primitive_desc_t description = NULL;
    dnnl_primitive_t primitive = NULL;
    dnnl_memory_t source = NULL;
    dnnl_stream_t stream = NULL;
    union {
        const float *read_only;
        void *plain;
    } pointer = {.read_only = from}; /* oneDNN has no const memory */

    enum status status = matmul_check(
        dnnl_reorder_primitive_desc_create(&description, plain, engine, &matmul->packed, engine, NULL), "reorder", err);
    if (status == STATUS_OK)
        status = matmul_check(dnnl_primitive_create(&primitive, description), "reorder", err);
    if (status == STATUS_OK)
        status = matmul_check(dnnl_memory_create(&source, plain, engine, pointer.plain), "weight", err);
    if (status == STATUS_OK)
        status = matmul_check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "stream", err);
    if (status == STATUS_OK) {
        dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, to}};
        status = matmul_check(dnnl_primitive_execute(primitive, stream, 2, arguments), "reorder", err);
    }
    if (status == STATUS_OK)
        status = matmul_check(dnnl_stream_wait(stream), "reorder", err);
    dnnl_stream_destroy(stream);
    dnnl_memory_destroy(source);
    dnnl_primitive_destroy(primitive);
    dnnl_primitive_desc_destroy(description);
    return status;
}

/* Each part begins at a cache line of its own. */
size_t matmul_part_bytes(const struct matmul *matmul)
{
    return (dnnl_memory_desc_get_size(&matmul->packed) + 63) / 64 * 64;
}

size_t matmul_packed_bytes(const struct matmul *matmul)
{
    return (size_t)matmul->blocks * matmul->panels * matmul_part_bytes(matmul);
}

static enum status pack_all(const struct matmul *matmul, const float *weight, char *to, struct matmul_weights *weights,
                            struct err *err)
{
    dnnl_dims_t dims = {matmul->panel_inputs, matmul->block_outputs}, strides = {1, matmul->inputs};
    dnnl_memory_desc_t plain;
    TRY(matmul_check(dnnl_memory_desc_init_by_strides(&plain, 2, dims, dnnl_f32, strides), "weight", err));
    for (uint32_t part = 0; part < weights->count; part++, to += matmul_part_bytes(matmul)) {
        uint32_t block = part / matmul->panels, panel = part % matmul->panels;
        const float *from = weight + (size_t)block * matmul->block_outputs * matmul->inputs;
        TRY(matmul_check(dnnl_memory_create(&weights->memory[part], &matmul->packed, matmul->device->engine, to),
                         "packed weight", err));
        TRY(reorder(matmul, &plain, from + (size_t)panel * matmul->panel_inputs, weights->memory[part], err));
    }
    return STATUS_OK;
}

enum status matmul_pack(const struct matmul *matmul, const float *weight, void *to, struct matmul_weights **out,
                        struct err *err)
{
    uint32_t count = matmul->blocks * matmul->panels;
    struct matmul_weights *weights = calloc(1, sizeof *weights + count * sizeof weights->memory[0]);
    if (weights == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for packed weights");
    weights->count = count;
    weights->packed = to;
    enum status status = pack_all(matmul, weight, to, weights, err);
    if (status != STATUS_OK) {
        matmul_weights_close(weights);
        return status;
    }
    *out = weights;
    return STATUS_OK;
}

void matmul_weights_close(struct matmul_weights *weights)
{
    if (weights == NULL)
        return;
    for (uint32_t part = 0; part < weights->count; part++)
        dnnl_memory_destroy(weights->memory[part]);
    free(weights);
}

/* --- running -------------------------------------------------------------------------------------------------------
 */

static enum status make_handles(struct matmul_device *device, struct runner_shape *shape, struct err *err)
{
    const struct matmul *matmul = shape->matmul;
    for (unsigned kind = 0; kind < STEP_KINDS; kind++) {
        const struct step *step = &matmul->steps[kind];
        for (uint32_t b = 0; b < BUCKETS_MAX; b++) {
            if (!matmul->usable[b] || step->primitive[b] == NULL)
                continue;
            TRY(matmul_check(
                dnnl_memory_create(&shape->from[kind][b], &step->from[b], device->engine, DNNL_MEMORY_NONE), "input",
                err));
            TRY(matmul_check(dnnl_memory_create(&shape->to[kind][b], &step->to[b], device->engine, DNNL_MEMORY_NONE),
                             "output", err));
        }
    }
    return STATUS_OK;
}

static enum status runner_fill(struct matmul_runner *runner, struct matmul_device *device,
                               struct matmul *const *matmuls, struct err *err)
{
    size_t bytes = 1;
    for (size_t i = 0; i < runner->count; i++) {
        runner->shapes[i].matmul = matmuls[i];
        if (matmuls[i]->scratch_bytes > bytes)
            bytes = matmuls[i]->scratch_bytes;
        TRY(make_handles(device, &runner->shapes[i], err));
    }
    dnnl_memory_desc_t flat;
    dnnl_dims_t dims = {(dnnl_dim_t)bytes};
    runner->scratch = memory_aligned(bytes);
    if (runner->scratch == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for oneDNN's scratchpad (%zu bytes)", bytes);
    TRY(matmul_check(dnnl_memory_desc_init_by_tag(&flat, 1, dims, dnnl_u8, dnnl_a), "scratchpad", err));
    TRY(matmul_check(dnnl_memory_create(&runner->scratch_memory, &flat, device->engine, runner->scratch), "scratchpad",
                     err));
    return matmul_check(dnnl_stream_create(&runner->stream, device->engine, dnnl_stream_default_flags), "stream", err);
}

enum status matmul_runner_open(struct matmul_device *device, struct matmul *const *matmuls, size_t count,
                               struct matmul_runner **out, struct err *err)
{
    struct matmul_runner *runner = calloc(1, sizeof *runner);
    struct runner_shape *shapes = calloc(count, sizeof *shapes);
    if (runner == NULL || shapes == NULL) {
        free(runner);
        free(shapes);
        return err_set(err, STATUS_NO_MEMORY, "no memory for a matmul runner");
    }
    runner->count = count;
    runner->shapes = shapes;
    enum status status = runner_fill(runner, device, matmuls, err);
    if (status != STATUS_OK) {
        matmul_runner_close(runner);
        return status;
    }
    *out = runner;
    return STATUS_OK;
}

void matmul_runner_close(struct matmul_runner *runner)
{
    if (runner == NULL)
        return;
    for (size_t i = 0; i < runner->count; i++) {
        for (unsigned kind = 0; kind < STEP_KINDS; kind++) {
            for (uint32_t b = 0; b < BUCKETS_MAX; b++) {
                dnnl_memory_destroy(runner->shapes[i].from[kind][b]);
                dnnl_memory_destroy(runner->shapes[i].to[kind][b]);
            }
        }
    }
    dnnl_stream_destroy(runner->stream);
    dnnl_memory_destroy(runner->scratch_memory);
    free(runner->scratch);
    free(runner->shapes);
    free(runner);
}

enum status matmul_run_bucket(struct matmul_runner *runner, struct runner_shape *shape,
                              const struct matmul_weights *weights, uint32_t block, uint32_t bucket, const char *from,
                              float *to, struct err *err)
{
    const struct matmul *matmul = shape->matmul;
    size_t panel_bytes = matmul->panel_inputs * matmul_element_bytes(matmul);
    for (uint32_t panel = 0; panel < matmul->panels; panel++) {
        enum step_kind kind = panel == 0 ? STEP_FIRST : STEP_ADD;
        dnnl_memory_t source = shape->from[kind][bucket], product = shape->to[kind][bucket];
        union {
            const char *read_only;
            void *plain;
        } pointer = {.read_only = from + panel * panel_bytes};
        TRY(matmul_check(dnnl_memory_set_data_handle(source, pointer.plain), "input", err));
        TRY(matmul_check(dnnl_memory_set_data_handle(product, to), "output", err));
        dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, source},
                                       {DNNL_ARG_WEIGHTS, weights->memory[block * matmul->panels + panel]},
                                       {DNNL_ARG_DST, product},
                                       {DNNL_ARG_SCRATCHPAD, runner->scratch_memory}};
        TRY(matmul_check(dnnl_primitive_execute(matmul->steps[kind].primitive[bucket], runner->stream, 4, arguments),
                         "matmul", err));
    }
    return STATUS_OK;
}

static bool few(const struct matmul *matmul, uint32_t rows)
{
    return matmul->few_rows != NULL && rows <= FEW_ROWS;
}

struct matmul_cut matmul_cut(const struct matmul *matmul, uint32_t rows)
{
    if (few(matmul, rows))
        return (struct matmul_cut){matmul->outputs / FEW_STRIP, FEW_STRIP};
    return (struct matmul_cut){matmul->blocks, matmul->block_outputs};
}

/* The rows of one call are shared out evenly over as few primitives as they need. */
enum status matmul_run(struct matmul_runner *runner, const struct matmul *matmul, const struct matmul_weights *weights,
                       uint32_t block, const struct matmul_way *way, uint32_t rows, const void *from, float *to,
                       struct err *err)
{
    if (few(matmul, rows)) {
        matmul_few_rows_run(matmul, weights, block, way, rows, from, to);
        return STATUS_OK;
    }
    struct runner_shape *shape = runner->shapes;
    while (shape->matmul != matmul)
        shape++;
    size_t from_stride = matmul->inputs * matmul_element_bytes(matmul);
    size_t to_stride = matmul->whole ? matmul->outputs : matmul->block_outputs;
    uint32_t parts = (rows + MATMUL_ROWS - 1) / MATMUL_ROWS;
    if (matmul->whole)
        to += (size_t)block * matmul->block_outputs;
    for (uint32_t done = 0; done < rows; parts--) {
        uint32_t bucket = ((rows - done + parts - 1) / parts + matmul->bucket_rows - 1) / matmul->bucket_rows - 1;
        while (!matmul->usable[bucket])
            bucket++;
        TRY(matmul_run_bucket(runner, shape, weights, block, bucket, (const char *)from + done * from_stride,
                              to + done * to_stride, err));
        done += (bucket + 1) * matmul->bucket_rows;
    }
    return matmul_check(dnnl_stream_wait(runner->stream), "matmul", err);
}
