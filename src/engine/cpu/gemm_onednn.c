/* Devices, shapes, packed weights and running threads. See gemm_onednn.h. */
#include "engine/cpu/gemm_onednn.h"

#include <dlfcn.h>
#include <dnnl.h>
#include <stdlib.h>
#include <string.h>

#include "base/system.h"
#include "engine/cpu/gemm.h"

enum {
    BUCKETS_MAX = 16,
    BLOCK_OUTPUTS = 192, /* the most outputs of a block */
    PANEL_INPUTS = 768,  /* the most inputs summed by one primitive; block by panel is 0.6 MB of f32 */
};

/* Up to this many rows, with weights from memory, our own product is faster than oneDNN's. */
enum { FEW_ROWS = 32 };

/* The strides of strips in a packed part, in floats. */
struct few_layout {
    size_t input_stride, strip_stride;
};

/* The first panel of inputs writes the product; the others add to it. */
enum step_kind { STEP_FIRST, STEP_ADD, STEP_KINDS };

struct onednn_device {
    dnnl_engine_t engine;
};

struct step {
    dnnl_memory_desc_t from[BUCKETS_MAX], to[BUCKETS_MAX];
    dnnl_primitive_t primitive[BUCKETS_MAX];
};

struct onednn_gemm {
    struct onednn_device *device;
    enum precision precision;
    bool contiguous;
    uint32_t outputs, inputs;
    uint32_t bucket_rows; /* bucket b runs (b + 1) * bucket_rows rows */
    uint32_t blocks, block_outputs;
    uint32_t panels, panel_inputs;
    dnnl_memory_desc_t packed; /* of one block and panel */
    struct step steps[STEP_KINDS];
    bool usable[BUCKETS_MAX];
    size_t scratch_bytes;
    struct few_layout few_layout;
    uint32_t few_inputs;                           /* summed before they are added to the other sums, as oneDNN does */
    void (*few_rows)(const struct strip_job *job); /* computes up to FEW_ROWS rows; NULL: oneDNN does */
};

struct onednn_weights {
    uint32_t count;         /* blocks * panels */
    const char *packed;     /* where the first of them stands; all have the same size */
    dnnl_memory_t memory[]; /* [blocks, panels] */
};

/* A thread's memory handles for one shape; each run sets their pointers. */
struct runner_shape {
    const struct onednn_gemm *gemm;
    dnnl_memory_t from[STEP_KINDS][BUCKETS_MAX], to[STEP_KINDS][BUCKETS_MAX];
};

struct onednn_runner {
    dnnl_stream_t stream;
    void *scratch;
    dnnl_memory_t scratch_memory;
    size_t count;
    struct runner_shape *shapes;
};

/* --- devices and shapes --- */

static enum status onednn_check(dnnl_status_t status, const char *what, struct err *err)
{
    if (status == dnnl_success) {
        return STATUS_OK;
    }
    if (status == dnnl_out_of_memory) {
        return err_set(err, STATUS_NO_MEMORY, "oneDNN ran out of memory (%s)", what);
    }
    if (status == dnnl_unimplemented) {
        return err_set(err, STATUS_UNSUPPORTED, "oneDNN cannot do this on this processor (%s)", what);
    }
    return err_set(err, STATUS_INTERNAL, "oneDNN failed with status %d (%s)", (int)status, what);
}

static size_t onednn_element_bytes(const struct onednn_gemm *gemm)
{
    return gemm->precision == PRECISION_BF16 ? sizeof(uint16_t) : sizeof(float);
}

static dnnl_data_type_t data_type(enum precision precision)
{
    return precision == PRECISION_BF16 ? dnnl_bf16 : dnnl_f32;
}

enum precision onednn_native_precision(void)
{
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    bool native = (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
    return native ? PRECISION_BF16 : PRECISION_F32;
}

void onednn_single_thread(void)
{
    void *symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (!symbol) {
        return;
    }
    void (*set_threads)(int);
    memcpy(&set_threads, &symbol, sizeof set_threads);
    set_threads(1);
}

enum status onednn_device_open(struct onednn_device **out, struct err *err)
{
    struct onednn_device *device = calloc(1, sizeof *device);
    if (!device) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for the CPU device");
    }
    enum status status = onednn_check(dnnl_set_primitive_cache_capacity(0), "cache", err);
    if (status == STATUS_OK) {
        status = onednn_check(dnnl_engine_create(&device->engine, dnnl_cpu, 0), "engine", err);
    }
    if (status != STATUS_OK) {
        onednn_device_close(device);
        return status;
    }
    *out = device;
    return STATUS_OK;
}

void onednn_device_close(struct onednn_device *device)
{
    if (!device) {
        return;
    }
    if (device->engine) {
        dnnl_engine_destroy(device->engine);
    }
    free(device);
}

/* Describes the operands of one step for one bucket. */
static enum status describe(const struct onednn_gemm *gemm, struct step *step, uint32_t bucket, struct err *err)
{
    dnnl_data_type_t type = data_type(gemm->precision);
    dnnl_dim_t rows = (dnnl_dim_t)(bucket + 1) * gemm->bucket_rows;
    dnnl_dims_t from_dims = {rows, gemm->panel_inputs}, from_strides = {gemm->inputs, 1};
    dnnl_dims_t to_dims = {rows, gemm->block_outputs};
    dnnl_dims_t to_strides = {gemm->contiguous ? gemm->outputs : gemm->block_outputs, 1};
    TRY(onednn_check(dnnl_memory_desc_init_by_strides(&step->from[bucket], 2, from_dims, type, from_strides), "input",
                     err));
    return onednn_check(dnnl_memory_desc_init_by_strides(&step->to[bucket], 2, to_dims, dnnl_f32, to_strides), "output",
                        err);
}

/* The caller provides the scratchpad; steps that add do so to what the output holds. */
static enum status make_attributes(bool adds, dnnl_primitive_attr_t attributes, struct err *err)
{
    dnnl_post_ops_t post_ops = NULL;
    TRY(onednn_check(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user), "scratchpad",
                     err));
    if (!adds) {
        return STATUS_OK;
    }
    TRY(onednn_check(dnnl_post_ops_create(&post_ops), "post-ops", err));
    enum status status = onednn_check(dnnl_post_ops_append_sum(post_ops, 1.0f), "sum", err);
    if (status == STATUS_OK) {
        status = onednn_check(dnnl_primitive_attr_set_post_ops(attributes, post_ops), "post-ops", err);
    }
    dnnl_post_ops_destroy(post_ops);
    return status;
}

/* oneDNN chooses the weight's layout for the largest bucket of the first step; all others take that layout. */
static enum status compile_with(struct onednn_gemm *gemm, struct step *step, uint32_t bucket, bool choose,
                                const_dnnl_primitive_attr_t attributes, struct err *err)
{
    dnnl_memory_desc_t weight = gemm->packed;
    dnnl_dims_t weight_dims = {gemm->panel_inputs, gemm->block_outputs};
    dnnl_matmul_desc_t operation;
    dnnl_primitive_desc_t description = NULL;
    TRY(describe(gemm, step, bucket, err));
    if (choose) {
        TRY(onednn_check(
            dnnl_memory_desc_init_by_tag(&weight, 2, weight_dims, data_type(gemm->precision), dnnl_format_tag_any),
            "weight", err));
    }
    TRY(onednn_check(dnnl_matmul_desc_init(&operation, &step->from[bucket], &weight, NULL, &step->to[bucket]), "gemm",
                     err));
    TRY(onednn_check(dnnl_primitive_desc_create(&description, &operation, attributes, gemm->device->engine, NULL),
                     "gemm description", err));
    if (choose) {
        gemm->packed = *dnnl_primitive_desc_query_md(description, dnnl_query_weights_md, 0);
    }
    size_t scratch = dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0));
    if (scratch > gemm->scratch_bytes) {
        gemm->scratch_bytes = scratch;
    }
    enum status status = onednn_check(dnnl_primitive_create(&step->primitive[bucket], description), "gemm code", err);
    dnnl_primitive_desc_destroy(description);
    return status;
}

static enum status compile(struct onednn_gemm *gemm, enum step_kind kind, uint32_t bucket, bool choose, struct err *err)
{
    dnnl_primitive_attr_t attributes = NULL;
    TRY(onednn_check(dnnl_primitive_attr_create(&attributes), "attributes", err));
    enum status status = make_attributes(kind == STEP_ADD, attributes, err);
    if (status == STATUS_OK) {
        status = compile_with(gemm, &gemm->steps[kind], bucket, choose, attributes, err);
    }
    dnnl_primitive_attr_destroy(attributes);
    return status;
}

/* Compiles the largest bucket first: it chooses the layout, and it must work. Smaller ones may be missing. */
static enum status compile_all(struct onednn_gemm *gemm, struct err *err)
{
    uint32_t last = ONEDNN_ROWS / gemm->bucket_rows - 1;
    for (uint32_t bucket = last + 1; bucket-- > 0;) {
        enum status status = compile(gemm, STEP_FIRST, bucket, bucket == last, err);
        if (status == STATUS_OK && gemm->panels > 1) {
            status = compile(gemm, STEP_ADD, bucket, false, err);
        }
        if (status != STATUS_OK && (status != STATUS_UNSUPPORTED || bucket == last)) {
            return status;
        }
        gemm->usable[bucket] = status == STATUS_OK;
    }
    return STATUS_OK;
}

/* The fewest equal parts of at most `most` each; 1 if that needs parts of less than a third of `most`. */
static uint32_t equal_parts(uint32_t size, uint32_t most)
{
    for (uint32_t parts = (size + most - 1) / most; size / parts >= most / 3; parts++) {
        if (size % parts == 0 && (parts == 1 || size / parts % 2 == 0)) {
            return parts;
        }
    }
    return 1;
}

/* --- packed weights --- */

static enum status reorder(const struct onednn_gemm *gemm, const dnnl_memory_desc_t *plain, const float *from,
                           dnnl_memory_t to, struct err *err)
{
    dnnl_engine_t engine = gemm->device->engine;
    dnnl_primitive_desc_t description = NULL;
    dnnl_primitive_t primitive = NULL;
    dnnl_memory_t source = NULL;
    dnnl_stream_t stream = NULL;
    union {
        const float *read_only;
        void *plain;
    } pointer = {.read_only = from}; /* oneDNN has no const memory */

    enum status status = onednn_check(
        dnnl_reorder_primitive_desc_create(&description, plain, engine, &gemm->packed, engine, NULL), "reorder", err);
    if (status == STATUS_OK) {
        status = onednn_check(dnnl_primitive_create(&primitive, description), "reorder", err);
    }
    if (status == STATUS_OK) {
        status = onednn_check(dnnl_memory_create(&source, plain, engine, pointer.plain), "weight", err);
    }
    if (status == STATUS_OK) {
        status = onednn_check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "stream", err);
    }
    if (status == STATUS_OK) {
        dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, to}};
        status = onednn_check(dnnl_primitive_execute(primitive, stream, 2, arguments), "reorder", err);
    }
    if (status == STATUS_OK) {
        status = onednn_check(dnnl_stream_wait(stream), "reorder", err);
    }
    dnnl_stream_destroy(stream);
    dnnl_memory_destroy(source);
    dnnl_primitive_destroy(primitive);
    dnnl_primitive_desc_destroy(description);
    return status;
}

/* Each part begins at a new cache line. */
static size_t onednn_part_bytes(const struct onednn_gemm *gemm)
{
    return (dnnl_memory_desc_get_size(&gemm->packed) + 63) / 64 * 64;
}

size_t onednn_packed_bytes(const struct onednn_gemm *gemm)
{
    return (size_t)gemm->blocks * gemm->panels * onednn_part_bytes(gemm);
}

static enum status pack_all(const struct onednn_gemm *gemm, const float *weight, char *to,
                            struct onednn_weights *weights, struct err *err)
{
    dnnl_dims_t dims = {gemm->panel_inputs, gemm->block_outputs}, strides = {1, gemm->inputs};
    dnnl_memory_desc_t plain;
    TRY(onednn_check(dnnl_memory_desc_init_by_strides(&plain, 2, dims, dnnl_f32, strides), "weight", err));
    for (uint32_t part = 0; part < weights->count; part++, to += onednn_part_bytes(gemm)) {
        uint32_t block = part / gemm->panels, panel = part % gemm->panels;
        const float *from = weight + (size_t)block * gemm->block_outputs * gemm->inputs;
        TRY(onednn_check(dnnl_memory_create(&weights->memory[part], &gemm->packed, gemm->device->engine, to),
                         "packed weight", err));
        TRY(reorder(gemm, &plain, from + (size_t)panel * gemm->panel_inputs, weights->memory[part], err));
    }
    return STATUS_OK;
}

enum status onednn_pack(const struct onednn_gemm *gemm, const float *weight, void *to, struct onednn_weights **out,
                        struct err *err)
{
    uint32_t count = gemm->blocks * gemm->panels;
    struct onednn_weights *weights = calloc(1, sizeof *weights + count * sizeof weights->memory[0]);
    if (!weights) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for packed weights");
    }
    weights->count = count;
    weights->packed = to;
    enum status status = pack_all(gemm, weight, to, weights, err);
    if (status != STATUS_OK) {
        onednn_weights_close(weights);
        return status;
    }
    *out = weights;
    return STATUS_OK;
}

void onednn_weights_close(struct onednn_weights *weights)
{
    if (!weights) {
        return;
    }
    for (uint32_t part = 0; part < weights->count; part++) {
        dnnl_memory_destroy(weights->memory[part]);
    }
    free(weights);
}

enum status onednn_plain(uint32_t rows, uint32_t outputs, uint32_t inputs, const float *from, const float *weight,
                         float *to, size_t to_stride, struct err *err)
{
    dnnl_dim_t m = rows, n = outputs, k = inputs, to_rows = (dnnl_dim_t)to_stride;
    return onednn_check(dnnl_sgemm('N', 'T', m, n, k, 1.0f, from, k, weight, k, 0.0f, to, to_rows), "plain product",
                        err);
}

/* --- few rows, past oneDNN: see kernels.inc --- */

/* Recognises the layout that oneDNN chose: either strips of 64 outputs, each with one input after the other (described
 * in two levels, 16 inputs of 64 outputs), or one input after the other with all outputs. */
static struct few_layout layout_of(const struct onednn_gemm *gemm)
{
    enum { STEP = 16 };
    const dnnl_blocking_desc_t *blocking = &gemm->packed.format_desc.blocking;
    dnnl_dim_t inputs = gemm->panel_inputs, outputs = gemm->block_outputs;
    if (gemm->packed.format_kind != dnnl_blocked || outputs % STRIP_OUTPUTS != 0) {
        return (struct few_layout){0};
    }
    if (blocking->inner_nblks == 0 && blocking->strides[0] == outputs && blocking->strides[1] == 1) {
        return (struct few_layout){(size_t)outputs, STRIP_OUTPUTS};
    }
    if (blocking->inner_nblks == 2 && blocking->inner_blks[0] == STEP && blocking->inner_idxs[0] == 0 &&
        blocking->inner_blks[1] == STRIP_OUTPUTS && blocking->inner_idxs[1] == 1 && inputs % STEP == 0 &&
        blocking->strides[0] == STEP * STRIP_OUTPUTS && blocking->strides[1] == inputs * STRIP_OUTPUTS) {
        return (struct few_layout){STRIP_OUTPUTS, (size_t)inputs * STRIP_OUTPUTS};
    }
    return (struct few_layout){0};
}

static void onednn_few_rows_pick(struct onednn_gemm *gemm)
{
    gemm->few_layout = layout_of(gemm);
    if (gemm->precision == PRECISION_F32 && gemm->few_layout.input_stride > 0) {
        gemm->few_rows = instruction_set_pick()->strip;
    }
}

/* Where the weights of a strip stand from an input on. */
static const float *strip_at(const struct onednn_gemm *gemm, const struct onednn_weights *weights, uint32_t strip,
                             uint32_t input)
{
    uint32_t in_block = gemm->block_outputs / STRIP_OUTPUTS;
    size_t part = (size_t)(strip / in_block) * gemm->panels + input / gemm->panel_inputs;
    const char *packed = weights->packed + part * onednn_part_bytes(gemm);
    return (const float *)(const void *)packed + strip % in_block * gemm->few_layout.strip_stride +
           input % gemm->panel_inputs * gemm->few_layout.input_stride;
}

/* What a thread will want after a strip: its neighbour, or its first strip of the next product. */
static void look_ahead(const struct onednn_gemm *gemm, const struct onednn_weights *weights, uint32_t strip,
                       const struct onednn_prefetch *prefetch, struct strip_job *job)
{
    if (strip != (prefetch->down ? 0 : gemm->outputs / STRIP_OUTPUTS - 1)) {
        job->ahead = strip_at(gemm, weights, prefetch->down ? strip - 1 : strip + 1, 0);
        job->ahead_stride = gemm->few_layout.input_stride;
    } else if (prefetch->next && prefetch->next->few_rows) {
        job->ahead = strip_at(prefetch->next, prefetch->next_weights,
                              prefetch->down ? prefetch->next->outputs / STRIP_OUTPUTS - 1 : 0, 0);
        job->ahead_stride = prefetch->next->few_layout.input_stride;
    }
}

static void onednn_few_rows_run(const struct onednn_gemm *gemm, const struct onednn_weights *weights, uint32_t strip,
                                const struct onednn_prefetch *prefetch, uint32_t rows, const float *from, float *to)
{
    for (uint32_t input = 0; input < gemm->inputs; input += gemm->few_inputs) {
        struct strip_job job = {
            .rows = rows,
            .inputs = gemm->few_inputs,
            .from = from + input,
            .from_stride = gemm->inputs,
            .strip = strip_at(gemm, weights, strip, input),
            .strip_stride = gemm->few_layout.input_stride,
            .to = gemm->contiguous ? to + (size_t)strip * STRIP_OUTPUTS : to,
            .to_stride = gemm->contiguous ? gemm->outputs : STRIP_OUTPUTS,
            .adds = input > 0,
        };
        if (input + gemm->few_inputs < gemm->inputs) {
            job.ahead = strip_at(gemm, weights, strip, input + gemm->few_inputs);
            job.ahead_stride = job.strip_stride;
        } else {
            look_ahead(gemm, weights, strip, prefetch, &job);
        }
        gemm->few_rows(&job);
    }
}

/* --- running --- */

static enum status make_handles(struct onednn_device *device, struct runner_shape *shape, struct err *err)
{
    const struct onednn_gemm *gemm = shape->gemm;
    for (unsigned kind = 0; kind < STEP_KINDS; kind++) {
        const struct step *step = &gemm->steps[kind];
        for (uint32_t b = 0; b < BUCKETS_MAX; b++) {
            if (!gemm->usable[b] || !step->primitive[b]) {
                continue;
            }
            TRY(onednn_check(
                dnnl_memory_create(&shape->from[kind][b], &step->from[b], device->engine, DNNL_MEMORY_NONE), "input",
                err));
            TRY(onednn_check(dnnl_memory_create(&shape->to[kind][b], &step->to[b], device->engine, DNNL_MEMORY_NONE),
                             "output", err));
        }
    }
    return STATUS_OK;
}

static enum status runner_fill(struct onednn_runner *runner, struct onednn_device *device,
                               struct onednn_gemm *const *gemms, struct err *err)
{
    size_t bytes = 1;
    for (size_t i = 0; i < runner->count; i++) {
        runner->shapes[i].gemm = gemms[i];
        if (gemms[i]->scratch_bytes > bytes) {
            bytes = gemms[i]->scratch_bytes;
        }
        TRY(make_handles(device, &runner->shapes[i], err));
    }
    dnnl_memory_desc_t flat;
    dnnl_dims_t dims = {(dnnl_dim_t)bytes};
    runner->scratch = memory_aligned(bytes);
    if (!runner->scratch) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for oneDNN's scratchpad (%zu bytes)", bytes);
    }
    TRY(onednn_check(dnnl_memory_desc_init_by_tag(&flat, 1, dims, dnnl_u8, dnnl_a), "scratchpad", err));
    TRY(onednn_check(dnnl_memory_create(&runner->scratch_memory, &flat, device->engine, runner->scratch), "scratchpad",
                     err));
    return onednn_check(dnnl_stream_create(&runner->stream, device->engine, dnnl_stream_default_flags), "stream", err);
}

enum status onednn_runner_open(struct onednn_device *device, struct onednn_gemm *const *gemms, size_t count,
                               struct onednn_runner **out, struct err *err)
{
    struct onednn_runner *runner = calloc(1, sizeof *runner);
    struct runner_shape *shapes = calloc(count, sizeof *shapes);
    if (!runner || !shapes) {
        free(runner);
        free(shapes);
        return err_set(err, STATUS_NO_MEMORY, "no memory for a gemm runner");
    }
    runner->count = count;
    runner->shapes = shapes;
    enum status status = runner_fill(runner, device, gemms, err);
    if (status != STATUS_OK) {
        onednn_runner_close(runner);
        return status;
    }
    *out = runner;
    return STATUS_OK;
}

void onednn_runner_close(struct onednn_runner *runner)
{
    if (!runner) {
        return;
    }
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

static enum status onednn_run_bucket(struct onednn_runner *runner, struct runner_shape *shape,
                                     const struct onednn_weights *weights, uint32_t block, uint32_t bucket,
                                     const char *from, float *to, struct err *err)
{
    const struct onednn_gemm *gemm = shape->gemm;
    size_t panel_bytes = gemm->panel_inputs * onednn_element_bytes(gemm);
    for (uint32_t panel = 0; panel < gemm->panels; panel++) {
        enum step_kind kind = panel == 0 ? STEP_FIRST : STEP_ADD;
        dnnl_memory_t source = shape->from[kind][bucket], product = shape->to[kind][bucket];
        union {
            const char *read_only;
            void *plain;
        } pointer = {.read_only = from + panel * panel_bytes};
        TRY(onednn_check(dnnl_memory_set_data_handle(source, pointer.plain), "input", err));
        TRY(onednn_check(dnnl_memory_set_data_handle(product, to), "output", err));
        dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, source},
                                       {DNNL_ARG_WEIGHTS, weights->memory[block * gemm->panels + panel]},
                                       {DNNL_ARG_DST, product},
                                       {DNNL_ARG_SCRATCHPAD, runner->scratch_memory}};
        TRY(onednn_check(dnnl_primitive_execute(gemm->steps[kind].primitive[bucket], runner->stream, 4, arguments),
                         "gemm", err));
    }
    return STATUS_OK;
}

static bool few(const struct onednn_gemm *gemm, uint32_t rows)
{
    return gemm->few_rows && rows <= FEW_ROWS;
}

struct onednn_cut onednn_cut(const struct onednn_gemm *gemm, uint32_t rows)
{
    if (few(gemm, rows)) {
        return (struct onednn_cut){gemm->outputs / STRIP_OUTPUTS, STRIP_OUTPUTS};
    }
    return (struct onednn_cut){gemm->blocks, gemm->block_outputs};
}

/* Shares the rows out evenly over as few primitives as possible. */
enum status onednn_run(struct onednn_runner *runner, const struct onednn_gemm *gemm,
                       const struct onednn_weights *weights, uint32_t block, const struct onednn_prefetch *prefetch,
                       uint32_t rows, const void *from, float *to, struct err *err)
{
    if (few(gemm, rows)) {
        onednn_few_rows_run(gemm, weights, block, prefetch, rows, from, to);
        return STATUS_OK;
    }
    struct runner_shape *shape = runner->shapes;
    while (shape->gemm != gemm) {
        shape++;
    }
    size_t from_stride = gemm->inputs * onednn_element_bytes(gemm);
    size_t to_stride = gemm->contiguous ? gemm->outputs : gemm->block_outputs;
    uint32_t parts = (rows + ONEDNN_ROWS - 1) / ONEDNN_ROWS;
    if (gemm->contiguous) {
        to += (size_t)block * gemm->block_outputs;
    }
    for (uint32_t done = 0; done < rows; parts--) {
        uint32_t bucket = ((rows - done + parts - 1) / parts + gemm->bucket_rows - 1) / gemm->bucket_rows - 1;
        while (!gemm->usable[bucket]) {
            bucket++;
        }
        TRY(onednn_run_bucket(runner, shape, weights, block, bucket, (const char *)from + done * from_stride,
                              to + done * to_stride, err));
        done += (bucket + 1) * gemm->bucket_rows;
    }
    return onednn_check(dnnl_stream_wait(runner->stream), "gemm", err);
}

/* --- the check of bits ---
 * Vectors promise the same bits in any batch. This checks on the machine at hand that a row's product does not depend
 * on how many rows are computed with it, nor on its position among them.
 *
 * The rows of the input repeat after CHECK_ROWS; every row of every bucket's product must have the bits of the row with
 * the same input in the largest bucket. The product is f32, where another order of summation shows. */

enum { CHECK_ROWS = 5 };

struct shape_check {
    float *weight, *product;
    char *from;
    void *packed;
    struct onednn_weights *weights;
    struct onednn_runner *runner;
};

static float next_float(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) * 0x1p-23f - 1.0f;
}

static void check_fill(const struct onednn_gemm *gemm, struct shape_check *c)
{
    uint32_t state = 1;
    for (size_t i = 0; i < (size_t)gemm->outputs * gemm->inputs; i++) {
        c->weight[i] = next_float(&state);
    }
    size_t row_bytes = gemm->inputs * onednn_element_bytes(gemm);
    for (uint32_t r = 0; r < ONEDNN_ROWS; r++) {
        if (r >= CHECK_ROWS) {
            memcpy(c->from + r * row_bytes, c->from + r % CHECK_ROWS * row_bytes, row_bytes);
            continue;
        }
        for (uint32_t i = 0; i < gemm->inputs; i++) {
            float value = next_float(&state);
            uint16_t half = bf16_of(value);
            if (gemm->precision == PRECISION_BF16) {
                memcpy(c->from + r * row_bytes + i * sizeof half, &half, sizeof half);
            } else {
                memcpy(c->from + r * row_bytes + i * sizeof value, &value, sizeof value);
            }
        }
    }
}

/* Whether every row of the bucket's product has the bits of the reference row with the same input. */
static bool same_bits(const struct onednn_gemm *gemm, const float *reference, const float *product, uint32_t rows)
{
    size_t stride = gemm->contiguous ? gemm->outputs : gemm->block_outputs;
    for (uint32_t r = 0; r < rows; r++) {
        if (memcmp(product + r * stride, reference + r % CHECK_ROWS * stride, gemm->block_outputs * sizeof(float)) !=
            0) {
            return false;
        }
    }
    return true;
}

/* The same for the product of few rows, which is written contiguously or strip by strip. */
static bool few_same_bits(const struct onednn_gemm *gemm, const float *reference, const float *product, uint32_t rows)
{
    if (gemm->contiguous) {
        return same_bits(gemm, reference, product, rows);
    }
    for (uint32_t o = 0; o < gemm->block_outputs; o += STRIP_OUTPUTS, product += (size_t)rows * STRIP_OUTPUTS) {
        for (uint32_t r = 0; r < rows; r++) {
            if (memcmp(product + r * STRIP_OUTPUTS, reference + r % CHECK_ROWS * gemm->block_outputs + o,
                       STRIP_OUTPUTS * sizeof(float)) != 0) {
                return false;
            }
        }
    }
    return true;
}

static bool few_rows_right(const struct onednn_gemm *gemm, const struct shape_check *c, const float *reference,
                           float *product)
{
    const void *from = c->from;
    const struct onednn_prefetch prefetch = {0};
    for (uint32_t rows = 1; rows <= FEW_ROWS; rows++) {
        for (uint32_t strip = 0; strip < gemm->block_outputs / STRIP_OUTPUTS; strip++) {
            float *to = gemm->contiguous ? product : product + (size_t)strip * STRIP_OUTPUTS * rows;
            onednn_few_rows_run(gemm, c->weights, strip, &prefetch, rows, from, to);
        }
        if (!few_same_bits(gemm, reference, product, rows)) {
            return false;
        }
    }
    return true;
}

/* The same for the product of few rows, which is not used where it differs. How many inputs oneDNN sums at once is
 * found by trying. */
static void check_few_rows(struct onednn_gemm *gemm, const struct shape_check *c, const float *reference,
                           float *product)
{
    enum { PARTS_MOST = 4 };
    if (!gemm->few_rows) {
        return;
    }
    for (uint32_t parts = 1; parts <= PARTS_MOST; parts++) {
        if (gemm->panel_inputs % parts != 0) {
            continue;
        }
        gemm->few_inputs = gemm->panel_inputs / parts;
        if (few_rows_right(gemm, c, reference, product)) {
            return;
        }
    }
    gemm->few_rows = NULL;
}

static enum status check_buckets(struct onednn_gemm *gemm, struct shape_check *c, struct err *err)
{
    size_t row = gemm->outputs;
    float *reference = c->product, *product = c->product + CHECK_ROWS * row;
    check_fill(gemm, c);
    TRY(onednn_pack(gemm, c->weight, c->packed, &c->weights, err));
    TRY(onednn_runner_open(gemm->device, &gemm, 1, &c->runner, err));
    uint32_t last = ONEDNN_ROWS / gemm->bucket_rows - 1;
    for (uint32_t bucket = last + 1; bucket-- > 0;) {
        if (!gemm->usable[bucket]) {
            continue;
        }
        TRY(onednn_run_bucket(c->runner, c->runner->shapes, c->weights, 0, bucket, c->from, product, err));
        if (bucket == last) {
            memcpy(reference, product, CHECK_ROWS * row * sizeof(float));
        }
        gemm->usable[bucket] = same_bits(gemm, reference, product, (bucket + 1) * gemm->bucket_rows);
    }
    if (!gemm->usable[last]) {
        return err_set(err, STATUS_UNSUPPORTED, "oneDNN's product of %u by %u depends on a row's place in the batch",
                       gemm->outputs, gemm->inputs);
    }
    check_few_rows(gemm, c, reference, product);
    return STATUS_OK;
}

static enum status onednn_check_bits(struct onednn_gemm *gemm, struct err *err)
{
    size_t weight_bytes = (size_t)gemm->outputs * gemm->inputs * sizeof(float);
    size_t from_bytes = (size_t)ONEDNN_ROWS * gemm->inputs * sizeof(float);
    size_t product_bytes = (size_t)(ONEDNN_ROWS + CHECK_ROWS) * gemm->outputs * sizeof(float);
    struct shape_check c = {.weight = memory_aligned(weight_bytes),
                            .product = memory_aligned(product_bytes),
                            .from = memory_aligned(from_bytes),
                            .packed = memory_aligned(onednn_packed_bytes(gemm))};
    enum status status = STATUS_NO_MEMORY;
    if (c.weight && c.product && c.from && c.packed) {
        status = check_buckets(gemm, &c, err);
    } else {
        err_set(err, status, "no memory to check a gemm");
    }
    onednn_runner_close(c.runner);
    onednn_weights_close(c.weights);
    free(c.weight);
    free(c.product);
    free(c.from);
    free(c.packed);
    return status;
}

/* --- opening a shape --- */

enum status onednn_open(struct onednn_device *device, uint32_t outputs, uint32_t inputs, enum precision precision,
                        bool contiguous, struct onednn_gemm **out, struct err *err)
{
    struct onednn_gemm *gemm = calloc(1, sizeof *gemm);
    if (!gemm) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for a gemm");
    }
    gemm->device = device;
    gemm->outputs = outputs;
    gemm->inputs = inputs;
    gemm->precision = precision;
    gemm->contiguous = contiguous;
    gemm->bucket_rows = precision == PRECISION_BF16 ? 16 : ONEDNN_ROWS / BUCKETS_MAX;
    gemm->blocks = equal_parts(outputs, BLOCK_OUTPUTS);
    gemm->block_outputs = outputs / gemm->blocks;
    gemm->panels = equal_parts(inputs, PANEL_INPUTS);
    gemm->panel_inputs = inputs / gemm->panels;
    enum status status = compile_all(gemm, err);
    if (status == STATUS_OK) {
        onednn_few_rows_pick(gemm);
        status = onednn_check_bits(gemm, err);
    }
    if (status != STATUS_OK) {
        onednn_close(gemm);
        return status;
    }
    *out = gemm;
    return STATUS_OK;
}

void onednn_close(struct onednn_gemm *gemm)
{
    if (!gemm) {
        return;
    }
    for (unsigned kind = 0; kind < STEP_KINDS; kind++) {
        for (uint32_t bucket = 0; bucket < BUCKETS_MAX; bucket++) {
            dnnl_primitive_destroy(gemm->steps[kind].primitive[bucket]);
        }
    }
    free(gemm);
}

uint32_t onednn_block_outputs(const struct onednn_gemm *gemm)
{
    return gemm->block_outputs;
}
