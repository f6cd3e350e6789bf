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
    PANEL_INPUTS = 768,  /* the most inputs that are summed at once; block by panel is 0.6 MB of f32 */
};

/* Rows up to which a product of our own is faster than oneDNN's, where the weights come from memory. */
enum { FEW_ROWS = 32 };

/* Where a packed part has its strips, in floats: from an input to the next, and from a strip to the next. */
struct few_layout {
    size_t input_stride, strip_stride;
};

/* The steps that make a product: the first panel writes, the others add. */
enum step_kind { STEP_FIRST, STEP_ADD, STEP_KINDS };

struct matmul_device {
    dnnl_engine_t engine;
};

struct step {
    dnnl_memory_desc_t from[BUCKETS_MAX], to[BUCKETS_MAX];
    dnnl_primitive_t primitive[BUCKETS_MAX];
};

struct matmul {
    struct matmul_device *device;
    enum precision precision;
    bool whole;
    uint32_t outputs, inputs;
    uint32_t bucket_rows; /* bucket b runs (b + 1) * bucket_rows rows */
    uint32_t blocks, block_outputs;
    uint32_t panels, panel_inputs;
    dnnl_memory_desc_t packed; /* of one block and panel */
    struct step steps[STEP_KINDS];
    bool usable[BUCKETS_MAX];
    size_t scratch_bytes;
    struct few_layout few_layout;
    uint32_t few_inputs; /* that it sums at once, before they are added to the others: as oneDNN does */
    void (*few_rows)(const struct strip_job *job); /* computes up to FEW_ROWS rows instead; NULL: oneDNN does */
};

struct matmul_weights {
    uint32_t count;         /* blocks * panels */
    const char *packed;     /* where the first of them stands; all have the same size */
    dnnl_memory_t memory[]; /* [blocks, panels] */
};

/* A thread's memory handles for one shape; their pointers are set before every run. */
struct runner_shape {
    const struct matmul *matmul;
    dnnl_memory_t from[STEP_KINDS][BUCKETS_MAX], to[STEP_KINDS][BUCKETS_MAX];
};

struct matmul_runner {
    dnnl_stream_t stream;
    void *scratch;
    dnnl_memory_t scratch_memory;
    size_t count;
    struct runner_shape *shapes;
};

/* --- devices and shapes --------------------------------------------------------------------------------------------
 */

static enum status matmul_check(dnnl_status_t status, const char *what, struct err *err)
{
    if (status == dnnl_success)
        return STATUS_OK;
    if (status == dnnl_out_of_memory)
        return err_set(err, STATUS_NO_MEMORY, "oneDNN ran out of memory (%s)", what);
    if (status == dnnl_unimplemented)
        return err_set(err, STATUS_UNSUPPORTED, "oneDNN cannot do this on this processor (%s)", what);
    return err_set(err, STATUS_INTERNAL, "oneDNN failed with status %d (%s)", (int)status, what);
}

static size_t matmul_element_bytes(const struct matmul *matmul)
{
    return matmul->precision == PRECISION_BF16 ? sizeof(uint16_t) : sizeof(float);
}

static dnnl_data_type_t data_type(enum precision precision)
{
    return precision == PRECISION_BF16 ? dnnl_bf16 : dnnl_f32;
}

enum precision matmul_native_precision(void)
{
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    bool native = (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
    return native ? PRECISION_BF16 : PRECISION_F32;
}

void matmul_single_thread(void)
{
    void *symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (symbol == NULL)
        return;
    void (*set_threads)(int);
    memcpy(&set_threads, &symbol, sizeof set_threads);
    set_threads(1);
}

enum status matmul_device_open(struct matmul_device **out, struct err *err)
{
    struct matmul_device *device = calloc(1, sizeof *device);
    if (device == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the CPU device");
    enum status status = matmul_check(dnnl_set_primitive_cache_capacity(0), "cache", err);
    if (status == STATUS_OK)
        status = matmul_check(dnnl_engine_create(&device->engine, dnnl_cpu, 0), "engine", err);
    if (status != STATUS_OK) {
        matmul_device_close(device);
        return status;
    }
    *out = device;
    return STATUS_OK;
}

void matmul_device_close(struct matmul_device *device)
{
    if (device == NULL)
        return;
    if (device->engine != NULL)
        dnnl_engine_destroy(device->engine);
    free(device);
}

/* Describes the operands of one step for one bucket. */
static enum status describe(const struct matmul *matmul, struct step *step, uint32_t bucket, struct err *err)
{
    dnnl_data_type_t type = data_type(matmul->precision);
    dnnl_dim_t rows = (dnnl_dim_t)(bucket + 1) * matmul->bucket_rows;
    dnnl_dims_t from_dims = {rows, matmul->panel_inputs}, from_strides = {matmul->inputs, 1};
    dnnl_dims_t to_dims = {rows, matmul->block_outputs};
    dnnl_dims_t to_strides = {matmul->whole ? matmul->outputs : matmul->block_outputs, 1};
    TRY(matmul_check(dnnl_memory_desc_init_by_strides(&step->from[bucket], 2, from_dims, type, from_strides), "input",
                     err));
    return matmul_check(dnnl_memory_desc_init_by_strides(&step->to[bucket], 2, to_dims, dnnl_f32, to_strides), "output",
                        err);
}

/* User scratchpad, and for steps that add: the product is added to what stands in the output. */
static enum status make_attributes(bool adds, dnnl_primitive_attr_t attributes, struct err *err)
{
    dnnl_post_ops_t post_ops = NULL;
    TRY(matmul_check(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user), "scratchpad",
                     err));
    if (!adds)
        return STATUS_OK;
    TRY(matmul_check(dnnl_post_ops_create(&post_ops), "post-ops", err));
    enum status status = matmul_check(dnnl_post_ops_append_sum(post_ops, 1.0f), "sum", err);
    if (status == STATUS_OK)
        status = matmul_check(dnnl_primitive_attr_set_post_ops(attributes, post_ops), "post-ops", err);
    dnnl_post_ops_destroy(post_ops);
    return status;
}

/* The weight's layout is oneDNN's choice for the largest bucket of the first step, and that same layout for all others.
 */
static enum status compile_with(struct matmul *matmul, struct step *step, uint32_t bucket, bool choose,
                                const_dnnl_primitive_attr_t attributes, struct err *err)
{
    dnnl_memory_desc_t weight = matmul->packed;
    dnnl_dims_t weight_dims = {matmul->panel_inputs, matmul->block_outputs};
    dnnl_matmul_desc_t operation;
    dnnl_primitive_desc_t description = NULL;
    TRY(describe(matmul, step, bucket, err));
    if (choose)
        TRY(matmul_check(
            dnnl_memory_desc_init_by_tag(&weight, 2, weight_dims, data_type(matmul->precision), dnnl_format_tag_any),
            "weight", err));
    TRY(matmul_check(dnnl_matmul_desc_init(&operation, &step->from[bucket], &weight, NULL, &step->to[bucket]), "matmul",
                     err));
    TRY(matmul_check(dnnl_primitive_desc_create(&description, &operation, attributes, matmul->device->engine, NULL),
                     "matmul description", err));
    if (choose)
        matmul->packed = *dnnl_primitive_desc_query_md(description, dnnl_query_weights_md, 0);
    size_t scratch = dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0));
    if (scratch > matmul->scratch_bytes)
        matmul->scratch_bytes = scratch;
    enum status status = matmul_check(dnnl_primitive_create(&step->primitive[bucket], description), "matmul code", err);
    dnnl_primitive_desc_destroy(description);
    return status;
}

static enum status compile(struct matmul *matmul, enum step_kind kind, uint32_t bucket, bool choose, struct err *err)
{
    dnnl_primitive_attr_t attributes = NULL;
    TRY(matmul_check(dnnl_primitive_attr_create(&attributes), "attributes", err));
    enum status status = make_attributes(kind == STEP_ADD, attributes, err);
    if (status == STATUS_OK)
        status = compile_with(matmul, &matmul->steps[kind], bucket, choose, attributes, err);
    dnnl_primitive_attr_destroy(attributes);
    return status;
}

/* The largest bucket first: it chooses the layout, and it must work. A smaller one that cannot be had is done without.
 */
static enum status compile_all(struct matmul *matmul, struct err *err)
{
    uint32_t last = MATMUL_ROWS / matmul->bucket_rows - 1;
    for (uint32_t bucket = last + 1; bucket-- > 0;) {
        enum status status = compile(matmul, STEP_FIRST, bucket, bucket == last, err);
        if (status == STATUS_OK && matmul->panels > 1)
            status = compile(matmul, STEP_ADD, bucket, false, err);
        if (status != STATUS_OK && (status != STATUS_UNSUPPORTED || bucket == last))
            return status;
        matmul->usable[bucket] = status == STATUS_OK;
    }
    return STATUS_OK;
}

/* The fewest equal parts of at most `most` each; 1 for a size that has none of at least a third of that. */
static uint32_t equal_parts(uint32_t size, uint32_t most)
{
    for (uint32_t parts = (size + most - 1) / most; size / parts >= most / 3; parts++)
        if (size % parts == 0 && (parts == 1 || size / parts % 2 == 0))
            return parts;
    return 1;
}

/* --- packed weights ------------------------------------------------------------------------------------------------
 */

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
static size_t matmul_part_bytes(const struct matmul *matmul)
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

enum status matmul_plain(uint32_t rows, uint32_t outputs, uint32_t inputs, const float *from, const float *weight,
                         float *to, size_t to_stride, struct err *err)
{
    dnnl_dim_t m = rows, n = outputs, k = inputs, to_rows = (dnnl_dim_t)to_stride;
    return matmul_check(dnnl_sgemm('N', 'T', m, n, k, 1.0f, from, k, weight, k, 0.0f, to, to_rows), "plain product",
                        err);
}

/* --- few rows, past oneDNN: see gemm_few_rows.inc -------------------------------------------------------------------
 */

/* What oneDNN packs a weight into: either strips of 64 outputs, in a strip the inputs one after the other (it says so
 * in two levels, 16 inputs of 64 outputs), or the inputs one after the other with all outputs. */
static struct few_layout layout_of(const struct matmul *matmul)
{
    enum { STEP = 16 };
    const dnnl_blocking_desc_t *blocking = &matmul->packed.format_desc.blocking;
    dnnl_dim_t inputs = matmul->panel_inputs, outputs = matmul->block_outputs;
    if (matmul->packed.format_kind != dnnl_blocked || outputs % STRIP_OUTPUTS != 0)
        return (struct few_layout){0};
    if (blocking->inner_nblks == 0 && blocking->strides[0] == outputs && blocking->strides[1] == 1)
        return (struct few_layout){(size_t)outputs, STRIP_OUTPUTS};
    if (blocking->inner_nblks == 2 && blocking->inner_blks[0] == STEP && blocking->inner_idxs[0] == 0 &&
        blocking->inner_blks[1] == STRIP_OUTPUTS && blocking->inner_idxs[1] == 1 && inputs % STEP == 0 &&
        blocking->strides[0] == STEP * STRIP_OUTPUTS && blocking->strides[1] == inputs * STRIP_OUTPUTS)
        return (struct few_layout){STRIP_OUTPUTS, (size_t)inputs * STRIP_OUTPUTS};
    return (struct few_layout){0};
}

static void matmul_few_rows_pick(struct matmul *matmul)
{
    matmul->few_layout = layout_of(matmul);
    if (matmul->precision == PRECISION_F32 && matmul->few_layout.input_stride > 0)
        matmul->few_rows = instruction_set_pick()->strip;
}

/* Where the weights of a strip stand from an input on. */
static const float *strip_at(const struct matmul *matmul, const struct matmul_weights *weights, uint32_t strip,
                             uint32_t input)
{
    uint32_t in_block = matmul->block_outputs / STRIP_OUTPUTS;
    size_t part = (size_t)(strip / in_block) * matmul->panels + input / matmul->panel_inputs;
    const char *packed = weights->packed + part * matmul_part_bytes(matmul);
    return (const float *)(const void *)packed + strip % in_block * matmul->few_layout.strip_stride +
           input % matmul->panel_inputs * matmul->few_layout.input_stride;
}

/* What a hand will want behind a strip: the one beside it, or the first on its way of the product that comes next. */
static void look_ahead(const struct matmul *matmul, const struct matmul_weights *weights, uint32_t strip,
                       const struct matmul_way *way, struct strip_job *job)
{
    if (strip != (way->down ? 0 : matmul->outputs / STRIP_OUTPUTS - 1)) {
        job->ahead = strip_at(matmul, weights, way->down ? strip - 1 : strip + 1, 0);
        job->ahead_stride = matmul->few_layout.input_stride;
    } else if (way->next != NULL && way->next->few_rows != NULL) {
        job->ahead = strip_at(way->next, way->next_weights, way->down ? way->next->outputs / STRIP_OUTPUTS - 1 : 0, 0);
        job->ahead_stride = way->next->few_layout.input_stride;
    }
}

static void matmul_few_rows_run(const struct matmul *matmul, const struct matmul_weights *weights, uint32_t strip,
                                const struct matmul_way *way, uint32_t rows, const float *from, float *to)
{
    for (uint32_t input = 0; input < matmul->inputs; input += matmul->few_inputs) {
        struct strip_job job = {
            .rows = rows,
            .inputs = matmul->few_inputs,
            .from = from + input,
            .from_stride = matmul->inputs,
            .strip = strip_at(matmul, weights, strip, input),
            .strip_stride = matmul->few_layout.input_stride,
            .to = matmul->whole ? to + (size_t)strip * STRIP_OUTPUTS : to,
            .to_stride = matmul->whole ? matmul->outputs : STRIP_OUTPUTS,
            .adds = input > 0,
        };
        if (input + matmul->few_inputs < matmul->inputs) {
            job.ahead = strip_at(matmul, weights, strip, input + matmul->few_inputs);
            job.ahead_stride = job.strip_stride;
        } else {
            look_ahead(matmul, weights, strip, way, &job);
        }
        matmul->few_rows(&job);
    }
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

static enum status matmul_run_bucket(struct matmul_runner *runner, struct runner_shape *shape,
                                     const struct matmul_weights *weights, uint32_t block, uint32_t bucket,
                                     const char *from, float *to, struct err *err)
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
        return (struct matmul_cut){matmul->outputs / STRIP_OUTPUTS, STRIP_OUTPUTS};
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

/* --- the check of bits ----------------------------------------------------------------------------------------------
 * The promise behind bit-identical vectors, checked on the machine at hand: a row's product does not depend on how many
 * rows are computed with it, nor on its place among them.
 *
 * The rows of the input repeat after CHECK_ROWS; every row of every bucket's product must have the bits of the row with
 * the same input in the largest bucket. The product is kept in f32, where another order of summation shows. */

enum { CHECK_ROWS = 5 };

struct shape_check {
    float *weight, *product;
    char *from;
    void *packed;
    struct matmul_weights *weights;
    struct matmul_runner *runner;
};

static float next_float(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) * 0x1p-23f - 1.0f;
}

static void check_fill(const struct matmul *matmul, struct shape_check *c)
{
    uint32_t state = 1;
    for (size_t i = 0; i < (size_t)matmul->outputs * matmul->inputs; i++)
        c->weight[i] = next_float(&state);
    size_t row_bytes = matmul->inputs * matmul_element_bytes(matmul);
    for (uint32_t r = 0; r < MATMUL_ROWS; r++) {
        if (r >= CHECK_ROWS) {
            memcpy(c->from + r * row_bytes, c->from + r % CHECK_ROWS * row_bytes, row_bytes);
            continue;
        }
        for (uint32_t i = 0; i < matmul->inputs; i++) {
            float value = next_float(&state);
            uint16_t half = bf16_of(value);
            if (matmul->precision == PRECISION_BF16)
                memcpy(c->from + r * row_bytes + i * sizeof half, &half, sizeof half);
            else
                memcpy(c->from + r * row_bytes + i * sizeof value, &value, sizeof value);
        }
    }
}

/* Whether every row of the bucket's product has the bits of the reference row with the same input. */
static bool same_bits(const struct matmul *matmul, const float *reference, const float *product, uint32_t rows)
{
    size_t stride = matmul->whole ? matmul->outputs : matmul->block_outputs;
    for (uint32_t r = 0; r < rows; r++)
        if (memcmp(product + r * stride, reference + r % CHECK_ROWS * stride, matmul->block_outputs * sizeof(float)) !=
            0)
            return false;
    return true;
}

/* What few rows gave: the whole product's rows, or strip by strip. */
static bool few_same_bits(const struct matmul *matmul, const float *reference, const float *product, uint32_t rows)
{
    if (matmul->whole)
        return same_bits(matmul, reference, product, rows);
    for (uint32_t o = 0; o < matmul->block_outputs; o += STRIP_OUTPUTS, product += (size_t)rows * STRIP_OUTPUTS)
        for (uint32_t r = 0; r < rows; r++)
            if (memcmp(product + r * STRIP_OUTPUTS, reference + r % CHECK_ROWS * matmul->block_outputs + o,
                       STRIP_OUTPUTS * sizeof(float)) != 0)
                return false;
    return true;
}

static bool few_rows_right(const struct matmul *matmul, const struct shape_check *c, const float *reference,
                           float *product)
{
    const void *from = c->from;
    const struct matmul_way way = {0};
    for (uint32_t rows = 1; rows <= FEW_ROWS; rows++) {
        for (uint32_t strip = 0; strip < matmul->block_outputs / STRIP_OUTPUTS; strip++) {
            float *to = matmul->whole ? product : product + (size_t)strip * STRIP_OUTPUTS * rows;
            matmul_few_rows_run(matmul, c->weights, strip, &way, rows, from, to);
        }
        if (!few_same_bits(matmul, reference, product, rows))
            return false;
    }
    return true;
}

/* The same for the product of few rows, which is done without where it differs. How many inputs oneDNN sums at once,
 * trying shows. */
static void check_few_rows(struct matmul *matmul, const struct shape_check *c, const float *reference, float *product)
{
    enum { PARTS_MOST = 4 };
    if (matmul->few_rows == NULL)
        return;
    for (uint32_t parts = 1; parts <= PARTS_MOST; parts++) {
        if (matmul->panel_inputs % parts != 0)
            continue;
        matmul->few_inputs = matmul->panel_inputs / parts;
        if (few_rows_right(matmul, c, reference, product))
            return;
    }
    matmul->few_rows = NULL;
}

static enum status check_buckets(struct matmul *matmul, struct shape_check *c, struct err *err)
{
    size_t row = matmul->outputs;
    float *reference = c->product, *product = c->product + CHECK_ROWS * row;
    check_fill(matmul, c);
    TRY(matmul_pack(matmul, c->weight, c->packed, &c->weights, err));
    TRY(matmul_runner_open(matmul->device, &matmul, 1, &c->runner, err));
    uint32_t last = MATMUL_ROWS / matmul->bucket_rows - 1;
    for (uint32_t bucket = last + 1; bucket-- > 0;) {
        if (!matmul->usable[bucket])
            continue;
        TRY(matmul_run_bucket(c->runner, c->runner->shapes, c->weights, 0, bucket, c->from, product, err));
        if (bucket == last)
            memcpy(reference, product, CHECK_ROWS * row * sizeof(float));
        matmul->usable[bucket] = same_bits(matmul, reference, product, (bucket + 1) * matmul->bucket_rows);
    }
    if (!matmul->usable[last])
        return err_set(err, STATUS_UNSUPPORTED, "oneDNN's product of %u by %u depends on a row's place in the batch",
                       matmul->outputs, matmul->inputs);
    check_few_rows(matmul, c, reference, product);
    return STATUS_OK;
}

static enum status matmul_check_bits(struct matmul *matmul, struct err *err)
{
    size_t weight_bytes = (size_t)matmul->outputs * matmul->inputs * sizeof(float);
    size_t from_bytes = (size_t)MATMUL_ROWS * matmul->inputs * sizeof(float);
    size_t product_bytes = (size_t)(MATMUL_ROWS + CHECK_ROWS) * matmul->outputs * sizeof(float);
    struct shape_check c = {.weight = memory_aligned(weight_bytes),
                            .product = memory_aligned(product_bytes),
                            .from = memory_aligned(from_bytes),
                            .packed = memory_aligned(matmul_packed_bytes(matmul))};
    enum status status = STATUS_NO_MEMORY;
    if (c.weight != NULL && c.product != NULL && c.from != NULL && c.packed != NULL)
        status = check_buckets(matmul, &c, err);
    else
        err_set(err, status, "no memory to check a matmul");
    matmul_runner_close(c.runner);
    matmul_weights_close(c.weights);
    free(c.weight);
    free(c.product);
    free(c.from);
    free(c.packed);
    return status;
}

/* --- opening a shape -----------------------------------------------------------------------------------------------
 */

enum status matmul_open(struct matmul_device *device, uint32_t outputs, uint32_t inputs, enum precision precision,
                        bool whole, struct matmul **out, struct err *err)
{
    struct matmul *matmul = calloc(1, sizeof *matmul);
    if (matmul == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for a matmul");
    matmul->device = device;
    matmul->outputs = outputs;
    matmul->inputs = inputs;
    matmul->precision = precision;
    matmul->whole = whole;
    matmul->bucket_rows = precision == PRECISION_BF16 ? 16 : MATMUL_ROWS / BUCKETS_MAX;
    matmul->blocks = equal_parts(outputs, BLOCK_OUTPUTS);
    matmul->block_outputs = outputs / matmul->blocks;
    matmul->panels = equal_parts(inputs, PANEL_INPUTS);
    matmul->panel_inputs = inputs / matmul->panels;
    enum status status = compile_all(matmul, err);
    if (status == STATUS_OK) {
        matmul_few_rows_pick(matmul);
        status = matmul_check_bits(matmul, err);
    }
    if (status != STATUS_OK) {
        matmul_close(matmul);
        return status;
    }
    *out = matmul;
    return STATUS_OK;
}

void matmul_close(struct matmul *matmul)
{
    if (matmul == NULL)
        return;
    for (unsigned kind = 0; kind < STEP_KINDS; kind++)
        for (uint32_t bucket = 0; bucket < BUCKETS_MAX; bucket++)
            dnnl_primitive_destroy(matmul->steps[kind].primitive[bucket]);
    free(matmul);
}

uint32_t matmul_block_outputs(const struct matmul *matmul)
{
    return matmul->block_outputs;
}
