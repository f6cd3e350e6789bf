#include "bench/gemm_peak.h"

#include <dnnl.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/gemm_onednn.h"

enum { ROWS = 256, SITES = 4, OPERANDS = 4 };

/* A product: its primitive and what it reads and writes. */
struct product {
    dnnl_primitive_t primitive;
    void *buffers[OPERANDS];
    dnnl_exec_arg_t arguments[OPERANDS];
};

struct state {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct product products[SITES];
};

struct shape {
    uint32_t outputs, inputs;
};

static void shapes_of(const struct model *model, struct shape shapes[SITES])
{
    uint32_t hidden = model->hidden, inner = model->intermediate_size;
    shapes[0] = (struct shape){3 * hidden, hidden};
    shapes[1] = (struct shape){hidden, hidden};
    shapes[2] = (struct shape){inner, hidden};
    shapes[3] = (struct shape){hidden, inner};
}

double gemm_peak_operations(const struct model *model)
{
    struct shape shapes[SITES];
    double operations = 0;
    shapes_of(model, shapes);
    for (int i = 0; i < SITES; i++)
        operations += 2.0 * ROWS * shapes[i].outputs * shapes[i].inputs;
    return operations;
}

static enum status check(dnnl_status_t status, struct err *err)
{
    if (status == dnnl_success)
        return STATUS_OK;
    return err_set(err, STATUS_UNSUPPORTED, "oneDNN refuses a bare product (its status is %d)", (int)status);
}

#define CHECK(call) TRY(check(call, err))

/* Memory for one operand, filled with small numbers: bf16 and f32 read it as such, and for bytes any will do. */
static enum status bind(struct state *state, struct product *product, int at, int argument,
                        const dnnl_memory_desc_t *shape, bool is_f32, struct err *err)
{
    size_t bytes = (dnnl_memory_desc_get_size(shape) + 127) / 64 * 64;
    uint16_t *values = aligned_alloc(64, bytes);
    if (values == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for a product of %zu bytes", bytes);
    for (size_t i = 0; i < bytes / 2; i++)
        values[i] = (uint16_t)((is_f32 && i % 2 == 0 ? 0 : 0x3c00) + i * 2654435761u % 512);
    product->buffers[at] = values;
    product->arguments[at].arg = argument;
    return check(dnnl_memory_create(&product->arguments[at].memory, shape, state->engine, values), err);
}

static enum status describe(struct state *state, struct shape shape, dnnl_data_type_t type, dnnl_memory_desc_t descs[2],
                            dnnl_primitive_desc_t *out, struct err *err)
{
    dnnl_memory_desc_t weight;
    dnnl_dims_t from_dims = {ROWS, shape.inputs}, weight_dims = {shape.inputs, shape.outputs};
    dnnl_dims_t to_dims = {ROWS, shape.outputs};
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_attr_t attributes;
    CHECK(dnnl_memory_desc_init_by_tag(&descs[0], 2, from_dims, type, dnnl_ab));
    CHECK(dnnl_memory_desc_init_by_tag(&weight, 2, weight_dims, type, dnnl_format_tag_any));
    CHECK(dnnl_memory_desc_init_by_tag(&descs[1], 2, to_dims, type == dnnl_s8 ? dnnl_s32 : dnnl_f32, dnnl_ab));
    CHECK(dnnl_matmul_desc_init(&matmul, &descs[0], &weight, NULL, &descs[1]));
    CHECK(dnnl_primitive_attr_create(&attributes));
    dnnl_status_t status = dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(out, &matmul, attributes, state->engine, NULL);
    dnnl_primitive_attr_destroy(attributes);
    return check(status, err);
}

static dnnl_data_type_t type_of(enum precision precision)
{
    return precision == PRECISION_INT8 ? dnnl_s8 : precision == PRECISION_BF16 ? dnnl_bf16 : dnnl_f32;
}

static enum status open_product(struct state *state, struct product *product, struct shape shape,
                                enum precision precision, struct err *err)
{
    dnnl_memory_desc_t descs[2];
    dnnl_primitive_desc_t described;
    bool is_f32 = precision == PRECISION_F32;
    TRY(describe(state, shape, type_of(precision), descs, &described, err));
    enum status status = check(dnnl_primitive_create(&product->primitive, described), err);
    if (status == STATUS_OK)
        status = bind(state, product, 0, DNNL_ARG_SRC, &descs[0], is_f32, err);
    if (status == STATUS_OK)
        status = bind(state, product, 1, DNNL_ARG_WEIGHTS,
                      dnnl_primitive_desc_query_md(described, dnnl_query_weights_md, 0), is_f32, err);
    if (status == STATUS_OK)
        status = bind(state, product, 2, DNNL_ARG_DST, &descs[1], true, err);
    if (status == STATUS_OK)
        status = bind(state, product, 3, DNNL_ARG_SCRATCHPAD,
                      dnnl_primitive_desc_query_md(described, dnnl_query_scratchpad_md, 0), true, err);
    dnnl_primitive_desc_destroy(described);
    return status;
}

static enum status open(void *context, void **out, struct err *err)
{
    const struct gemm_peak *peak = context;
    struct shape shapes[SITES];
    struct state *state = calloc(1, sizeof *state);
    *out = state;
    if (state == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the yardstick");
    matmul_single_thread();
    CHECK(dnnl_engine_create(&state->engine, dnnl_cpu, 0));
    CHECK(dnnl_stream_create(&state->stream, state->engine, dnnl_stream_default_flags));
    shapes_of(peak->model, shapes);
    for (int i = 0; i < SITES; i++)
        TRY(open_product(state, &state->products[i], shapes[i], peak->precision, err));
    return STATUS_OK;
}

static enum status turn(void *of, struct err *err)
{
    struct state *state = of;
    for (int i = 0; i < SITES; i++)
        CHECK(dnnl_primitive_execute(state->products[i].primitive, state->stream, OPERANDS,
                                     state->products[i].arguments));
    return check(dnnl_stream_wait(state->stream), err);
}

static void close_product(struct product *product)
{
    for (int i = 0; i < OPERANDS; i++) {
        if (product->arguments[i].memory != NULL)
            dnnl_memory_destroy(product->arguments[i].memory);
        free(product->buffers[i]);
    }
    if (product->primitive != NULL)
        dnnl_primitive_destroy(product->primitive);
}

static void close(void *of)
{
    struct state *state = of;
    if (state == NULL)
        return;
    for (int i = 0; i < SITES; i++)
        close_product(&state->products[i]);
    if (state->stream != NULL)
        dnnl_stream_destroy(state->stream);
    if (state->engine != NULL)
        dnnl_engine_destroy(state->engine);
    free(state);
}

bool gemm_peak_knows(enum precision precision)
{
    return precision == PRECISION_F32 || precision == PRECISION_BF16 || precision == PRECISION_INT8;
}

struct turns gemm_peak_turns(struct gemm_peak *peak)
{
    return (struct turns){open, turn, close, peak};
}
