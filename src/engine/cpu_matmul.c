/* See cpu_matmul.h. Every handle of oneDNN is held by one of the structs below, and every status is looked at. */
#include "engine/cpu_matmul.h"

#include <dlfcn.h>
#include <dnnl.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUCKETS_MAX = 16,
    PANEL_INPUTS = 768, /* bf16: the most inputs that are summed at once */
    PANELS_MAX = 64,
    ALIGNMENT = 64,
};

/* The kinds of steps that make a product: the first panel writes, the others add; the last may be narrower. */
enum step_kind { STEP_FIRST, STEP_ADD, STEP_LAST, STEP_KINDS };

struct matmul_device {
    dnnl_engine_t engine;
};

struct step {
    uint32_t inputs; /* 0: this shape has no such step */
    dnnl_memory_desc_t packed;
    dnnl_memory_desc_t from[BUCKETS_MAX], to[BUCKETS_MAX];
    dnnl_primitive_t primitive[BUCKETS_MAX];
};

struct matmul {
    struct matmul_device *device;
    enum precision precision;
    uint32_t outputs, inputs;
    uint32_t bucket_rows; /* bucket b runs (b + 1) * bucket_rows rows */
    uint32_t panels, panel_inputs;
    struct step steps[STEP_KINDS];
    bool usable[BUCKETS_MAX];
    size_t scratch_bytes;
};

struct matmul_weights {
    uint32_t panels;
    size_t bytes;
    void *data[PANELS_MAX];
    dnnl_memory_t memory[PANELS_MAX];
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

static enum status check(dnnl_status_t status, const char *what, struct err *err)
{
    if (status == dnnl_success)
        return STATUS_OK;
    if (status == dnnl_out_of_memory)
        return err_set(err, STATUS_NO_MEMORY, "oneDNN ran out of memory (%s)", what);
    if (status == dnnl_unimplemented)
        return err_set(err, STATUS_UNSUPPORTED, "oneDNN cannot do this on this processor (%s)", what);
    return err_set(err, STATUS_INTERNAL, "oneDNN failed with status %d (%s)", (int)status, what);
}

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        enum status try_status_ = (call);                                                                              \
        if (try_status_ != STATUS_OK)                                                                                  \
            return try_status_;                                                                                        \
    } while (0)

static void *allocate(size_t bytes)
{
    return aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + ALIGNMENT);
}

static size_t element_bytes(enum precision precision)
{
    return precision == PRECISION_BF16 ? sizeof(uint16_t) : sizeof(float);
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
    enum status status = check(dnnl_set_primitive_cache_capacity(0), "cache", err);
    if (status == STATUS_OK)
        status = check(dnnl_engine_create(&device->engine, dnnl_cpu, 0), "engine", err);
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

/* --- shapes --------------------------------------------------------------------------------------------------------
 */

/* Describes the operands of one step for one bucket. The weight's layout is oneDNN's choice for the first bucket and
 * that same layout for all others. */
static enum status describe(const struct matmul *matmul, struct step *step, uint32_t bucket, bool choose,
                            dnnl_memory_desc_t *weight, struct err *err)
{
    dnnl_data_type_t type = data_type(matmul->precision);
    dnnl_dim_t rows = (dnnl_dim_t)(bucket + 1) * matmul->bucket_rows;
    dnnl_dims_t from_dims = {rows, step->inputs}, from_strides = {matmul->inputs, 1};
    dnnl_dims_t weight_dims = {step->inputs, matmul->outputs}, to_dims = {rows, matmul->outputs};
    TRY(check(dnnl_memory_desc_init_by_strides(&step->from[bucket], 2, from_dims, type, from_strides), "input", err));
    TRY(check(dnnl_memory_desc_init_by_tag(&step->to[bucket], 2, to_dims, dnnl_f32, dnnl_ab), "output", err));
    if (choose)
        return check(dnnl_memory_desc_init_by_tag(weight, 2, weight_dims, type, dnnl_format_tag_any), "weight", err);
    *weight = step->packed;
    return STATUS_OK;
}

/* User scratchpad, and for steps that add: the product is added to what stands in the output. */
static enum status make_attributes(bool adds, dnnl_primitive_attr_t attributes, struct err *err)
{
    dnnl_post_ops_t post_ops = NULL;
    TRY(check(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user), "scratchpad", err));
    if (!adds)
        return STATUS_OK;
    TRY(check(dnnl_post_ops_create(&post_ops), "post-ops", err));
    enum status status = check(dnnl_post_ops_append_sum(post_ops, 1.0f), "sum", err);
    if (status == STATUS_OK)
        status = check(dnnl_primitive_attr_set_post_ops(attributes, post_ops), "post-ops", err);
    dnnl_post_ops_destroy(post_ops);
    return status;
}

static enum status compile_with(struct matmul *matmul, struct step *step, uint32_t bucket, bool choose,
                                const_dnnl_primitive_attr_t attributes, struct err *err)
{
    dnnl_memory_desc_t weight;
    dnnl_matmul_desc_t operation;
    dnnl_primitive_desc_t description = NULL;
    TRY(describe(matmul, step, bucket, choose, &weight, err));
    TRY(check(dnnl_matmul_desc_init(&operation, &step->from[bucket], &weight, NULL, &step->to[bucket]), "matmul", err));
    TRY(check(dnnl_primitive_desc_create(&description, &operation, attributes, matmul->device->engine, NULL),
              "matmul description", err));
    if (choose)
        step->packed = *dnnl_primitive_desc_query_md(description, dnnl_query_weights_md, 0);
    size_t scratch = dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0));
    if (scratch > matmul->scratch_bytes)
        matmul->scratch_bytes = scratch;
    enum status status = check(dnnl_primitive_create(&step->primitive[bucket], description), "matmul code", err);
    dnnl_primitive_desc_destroy(description);
    return status;
}

static enum status compile(struct matmul *matmul, enum step_kind kind, uint32_t bucket, struct err *err)
{
    struct step *step = &matmul->steps[kind];
    bool choose = bucket == MATMUL_ROWS / matmul->bucket_rows - 1 && kind != STEP_ADD;
    if (kind == STEP_ADD)
        step->packed = matmul->steps[STEP_FIRST].packed;
    dnnl_primitive_attr_t attributes = NULL;
    TRY(check(dnnl_primitive_attr_create(&attributes), "attributes", err));
    enum status status = make_attributes(kind != STEP_FIRST, attributes, err);
    if (status == STATUS_OK)
        status = compile_with(matmul, step, bucket, choose, attributes, err);
    dnnl_primitive_attr_destroy(attributes);
    return status;
}

/* Cuts the inputs into panels and says which steps that takes. */
static void plan_panels(struct matmul *matmul)
{
    uint32_t inputs = matmul->inputs;
    matmul->panels = 1;
    matmul->panel_inputs = inputs;
    if (matmul->precision == PRECISION_BF16 && inputs > PANEL_INPUTS) {
        uint32_t count = (inputs + PANEL_INPUTS - 1) / PANEL_INPUTS;
        matmul->panel_inputs = ((inputs + count - 1) / count + 31) / 32 * 32;
        matmul->panels = (inputs + matmul->panel_inputs - 1) / matmul->panel_inputs;
    }
    uint32_t last = inputs - (matmul->panels - 1) * matmul->panel_inputs;
    matmul->steps[STEP_FIRST].inputs = matmul->panel_inputs;
    if (matmul->panels > 2 || (matmul->panels == 2 && last == matmul->panel_inputs))
        matmul->steps[STEP_ADD].inputs = matmul->panel_inputs;
    if (matmul->panels > 1 && last != matmul->panel_inputs)
        matmul->steps[STEP_LAST].inputs = last;
}

static enum step_kind step_of(const struct matmul *matmul, uint32_t panel)
{
    if (panel == 0)
        return STEP_FIRST;
    return panel + 1 == matmul->panels && matmul->steps[STEP_LAST].inputs != 0 ? STEP_LAST : STEP_ADD;
}

/* The largest bucket first: it chooses the layout, and it must work. A smaller one that cannot be had is done without.
 */
static enum status compile_all(struct matmul *matmul, struct err *err)
{
    uint32_t last = MATMUL_ROWS / matmul->bucket_rows - 1;
    for (uint32_t bucket = last + 1; bucket-- > 0;) {
        enum status status = STATUS_OK;
        for (unsigned kind = 0; kind < STEP_KINDS && status == STATUS_OK; kind++)
            if (matmul->steps[kind].inputs != 0)
                status = compile(matmul, (enum step_kind)kind, bucket, err);
        if (status != STATUS_OK && (status != STATUS_UNSUPPORTED || bucket == last))
            return status;
        matmul->usable[bucket] = status == STATUS_OK;
    }
    return STATUS_OK;
}

/* --- weights -------------------------------------------------------------------------------------------------------
 */

static enum status reorder(const struct matmul *matmul, const dnnl_memory_desc_t *plain, const float *from,
                           const dnnl_memory_desc_t *packed, dnnl_memory_t to, struct err *err)
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

    enum status status =
        check(dnnl_reorder_primitive_desc_create(&description, plain, engine, packed, engine, NULL), "reorder", err);
    if (status == STATUS_OK)
        status = check(dnnl_primitive_create(&primitive, description), "reorder", err);
    if (status == STATUS_OK)
        status = check(dnnl_memory_create(&source, plain, engine, pointer.plain), "weight", err);
    if (status == STATUS_OK)
        status = check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "stream", err);
    if (status == STATUS_OK) {
        dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, source}, {DNNL_ARG_TO, to}};
        status = check(dnnl_primitive_execute(primitive, stream, 2, arguments), "reorder", err);
    }
    if (status == STATUS_OK)
        status = check(dnnl_stream_wait(stream), "reorder", err);
    dnnl_stream_destroy(stream);
    dnnl_memory_destroy(source);
    dnnl_primitive_destroy(primitive);
    dnnl_primitive_desc_destroy(description);
    return status;
}

static enum status pack_panel(const struct matmul *matmul, const float *weight, uint32_t panel,
                              struct matmul_weights *weights, struct err *err)
{
    const struct step *step = &matmul->steps[step_of(matmul, panel)];
    dnnl_dims_t dims = {step->inputs, matmul->outputs}, strides = {1, matmul->inputs};
    dnnl_memory_desc_t plain;
    size_t bytes = dnnl_memory_desc_get_size(&step->packed);
    weights->data[panel] = allocate(bytes);
    if (weights->data[panel] == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for packed weights (%zu bytes)", bytes);
    weights->bytes += bytes;
    TRY(check(dnnl_memory_create(&weights->memory[panel], &step->packed, matmul->device->engine, weights->data[panel]),
              "packed weight", err));
    TRY(check(dnnl_memory_desc_init_by_strides(&plain, 2, dims, dnnl_f32, strides), "weight", err));
    return reorder(matmul, &plain, weight + (size_t)panel * matmul->panel_inputs, &step->packed, weights->memory[panel],
                   err);
}

enum status matmul_pack(const struct matmul *matmul, const float *weight, struct matmul_weights **out, struct err *err)
{
    struct matmul_weights *weights = calloc(1, sizeof *weights);
    if (weights == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for packed weights");
    weights->panels = matmul->panels;
    for (uint32_t panel = 0; panel < matmul->panels; panel++) {
        enum status status = pack_panel(matmul, weight, panel, weights, err);
        if (status != STATUS_OK) {
            matmul_weights_close(weights);
            return status;
        }
    }
    *out = weights;
    return STATUS_OK;
}

void matmul_weights_close(struct matmul_weights *weights)
{
    if (weights == NULL)
        return;
    for (uint32_t panel = 0; panel < weights->panels; panel++) {
        dnnl_memory_destroy(weights->memory[panel]);
        free(weights->data[panel]);
    }
    free(weights);
}

size_t matmul_weights_bytes(const struct matmul_weights *weights)
{
    return weights->bytes;
}

/* --- running -------------------------------------------------------------------------------------------------------
 */

static enum status make_handles(struct matmul_device *device, struct runner_shape *shape, struct err *err)
{
    const struct matmul *matmul = shape->matmul;
    for (unsigned kind = 0; kind < STEP_KINDS; kind++) {
        const struct step *step = &matmul->steps[kind];
        for (uint32_t b = 0; b < BUCKETS_MAX; b++) {
            if (step->inputs == 0 || !matmul->usable[b])
                continue;
            TRY(check(dnnl_memory_create(&shape->from[kind][b], &step->from[b], device->engine, DNNL_MEMORY_NONE),
                      "input", err));
            TRY(check(dnnl_memory_create(&shape->to[kind][b], &step->to[b], device->engine, DNNL_MEMORY_NONE), "output",
                      err));
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
    runner->scratch = allocate(bytes);
    if (runner->scratch == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for oneDNN's scratchpad (%zu bytes)", bytes);
    TRY(check(dnnl_memory_desc_init_by_tag(&flat, 1, dims, dnnl_u8, dnnl_a), "scratchpad", err));
    TRY(check(dnnl_memory_create(&runner->scratch_memory, &flat, device->engine, runner->scratch), "scratchpad", err));
    return check(dnnl_stream_create(&runner->stream, device->engine, dnnl_stream_default_flags), "stream", err);
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

/* Runs one bucket's rows: all panels, one after the other. */
static enum status run_bucket(struct matmul_runner *runner, struct runner_shape *shape,
                              const struct matmul_weights *weights, uint32_t bucket, const char *from, float *to,
                              struct err *err)
{
    const struct matmul *matmul = shape->matmul;
    size_t panel_bytes = matmul->panel_inputs * element_bytes(matmul->precision);
    for (uint32_t panel = 0; panel < matmul->panels; panel++) {
        enum step_kind kind = step_of(matmul, panel);
        dnnl_memory_t source = shape->from[kind][bucket], product = shape->to[kind][bucket];
        union {
            const char *read_only;
            void *plain;
        } pointer = {.read_only = from + panel * panel_bytes};
        TRY(check(dnnl_memory_set_data_handle(source, pointer.plain), "input", err));
        TRY(check(dnnl_memory_set_data_handle(product, to), "output", err));
        dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, source},
                                       {DNNL_ARG_WEIGHTS, weights->memory[panel]},
                                       {DNNL_ARG_DST, product},
                                       {DNNL_ARG_SCRATCHPAD, runner->scratch_memory}};
        TRY(check(dnnl_primitive_execute(matmul->steps[kind].primitive[bucket], runner->stream, 4, arguments), "matmul",
                  err));
    }
    return STATUS_OK;
}

/* The rows of one call are shared out evenly over as few primitives as they need. */
enum status matmul_run(struct matmul_runner *runner, const struct matmul *matmul, const struct matmul_weights *weights,
                       uint32_t rows, const void *from, float *to, struct err *err)
{
    struct runner_shape *shape = runner->shapes;
    while (shape->matmul != matmul)
        shape++;
    uint32_t parts = (rows + MATMUL_ROWS - 1) / MATMUL_ROWS;
    for (uint32_t done = 0; done < rows; parts--) {
        uint32_t bucket = ((rows - done + parts - 1) / parts + matmul->bucket_rows - 1) / matmul->bucket_rows - 1;
        while (!matmul->usable[bucket])
            bucket++;
        const char *source = (const char *)from + (size_t)done * matmul->inputs * element_bytes(matmul->precision);
        TRY(run_bucket(runner, shape, weights, bucket, source, to + (size_t)done * matmul->outputs, err));
        done += (bucket + 1) * matmul->bucket_rows;
    }
    return check(dnnl_stream_wait(runner->stream), "matmul", err);
}

/* --- the check of a shape ------------------------------------------------------------------------------------------
 */

enum { CHECK_ROWS = 5 }; /* different rows; row i of the input is row i % CHECK_ROWS */

struct shape_check {
    float *weight, *product;
    char *from;
    struct matmul_weights *weights;
    struct matmul_runner *runner;
};

static float next_float(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) * 0x1p-23f - 1.0f;
}

static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static void check_fill(const struct matmul *matmul, struct shape_check *c)
{
    uint32_t state = 1;
    for (size_t i = 0; i < (size_t)matmul->outputs * matmul->inputs; i++)
        c->weight[i] = next_float(&state);
    size_t row_bytes = matmul->inputs * element_bytes(matmul->precision);
    for (uint32_t r = 0; r < MATMUL_ROWS; r++) {
        if (r >= CHECK_ROWS) {
            memcpy(c->from + r * row_bytes, c->from + r % CHECK_ROWS * row_bytes, row_bytes);
            continue;
        }
        for (uint32_t i = 0; i < matmul->inputs; i++) {
            float value = next_float(&state);
            uint16_t half = to_bf16(value);
            if (matmul->precision == PRECISION_BF16)
                memcpy(c->from + r * row_bytes + i * sizeof half, &half, sizeof half);
            else
                memcpy(c->from + r * row_bytes + i * sizeof value, &value, sizeof value);
        }
    }
}

/* Whether every row of the bucket's product has the bits of the row with the same input in the first product. */
static bool same_bits(const struct matmul *matmul, const float *reference, const float *product, uint32_t rows)
{
    size_t row = matmul->outputs;
    for (uint32_t r = 0; r < rows; r++)
        if (memcmp(product + r * row, reference + r % CHECK_ROWS * row, row * sizeof(float)) != 0)
            return false;
    return true;
}

static enum status check_buckets(struct matmul *matmul, struct shape_check *c, struct err *err)
{
    size_t row = matmul->outputs;
    float *reference = c->product, *product = c->product + CHECK_ROWS * row;
    check_fill(matmul, c);
    TRY(matmul_pack(matmul, c->weight, &c->weights, err));
    TRY(matmul_runner_open(matmul->device, &matmul, 1, &c->runner, err));
    uint32_t last = MATMUL_ROWS / matmul->bucket_rows - 1;
    for (uint32_t bucket = last + 1; bucket-- > 0;) {
        if (!matmul->usable[bucket])
            continue;
        TRY(run_bucket(c->runner, c->runner->shapes, c->weights, bucket, c->from, product, err));
        if (bucket == last)
            memcpy(reference, product, CHECK_ROWS * row * sizeof(float));
        matmul->usable[bucket] = same_bits(matmul, reference, product, (bucket + 1) * matmul->bucket_rows);
    }
    if (!matmul->usable[last])
        return err_set(err, STATUS_UNSUPPORTED, "oneDNN's product of %u by %u depends on a row's place in the batch",
                       matmul->outputs, matmul->inputs);
    return STATUS_OK;
}

static enum status check_shape(struct matmul *matmul, struct err *err)
{
    size_t weight_bytes = (size_t)matmul->outputs * matmul->inputs * sizeof(float);
    size_t from_bytes = (size_t)MATMUL_ROWS * matmul->inputs * sizeof(float);
    size_t product_bytes = (size_t)(MATMUL_ROWS + CHECK_ROWS) * matmul->outputs * sizeof(float);
    struct shape_check c = {allocate(weight_bytes), allocate(product_bytes), allocate(from_bytes), NULL, NULL};
    enum status status = STATUS_NO_MEMORY;
    if (c.weight != NULL && c.product != NULL && c.from != NULL)
        status = check_buckets(matmul, &c, err);
    else
        err_set(err, status, "no memory to check a matmul");
    matmul_runner_close(c.runner);
    matmul_weights_close(c.weights);
    free(c.weight);
    free(c.product);
    free(c.from);
    return status;
}

enum status matmul_open(struct matmul_device *device, uint32_t outputs, uint32_t inputs, enum precision precision,
                        struct matmul **out, struct err *err)
{
    if (precision == PRECISION_BF16 && inputs > PANEL_INPUTS * (PANELS_MAX / 2))
        return err_set(err, STATUS_UNSUPPORTED, "a layer with %u inputs is too wide", inputs);
    struct matmul *matmul = calloc(1, sizeof *matmul);
    if (matmul == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for a matmul");
    matmul->device = device;
    matmul->outputs = outputs;
    matmul->inputs = inputs;
    matmul->precision = precision;
    matmul->bucket_rows = precision == PRECISION_BF16 ? 16 : MATMUL_ROWS / BUCKETS_MAX;
    plan_panels(matmul);
    enum status status = compile_all(matmul, err);
    if (status == STATUS_OK)
        status = check_shape(matmul, err);
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
