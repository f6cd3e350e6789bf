/* `bench peak`: the engine's batches compared with oneDNN on bare products of the model's shapes, called as its manual
 * says. The reference uses oneDNN directly and not through src/engine, so a weakness there cannot lower it.
 * Rounds of both alternate, and the best of each counts, because other work on the machine hits both. */
#include <dlfcn.h>
#include <dnnl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bench/engine_rate.h"
#include "bench/report.h"
#include "cli/command.h"
#include "compute/devices.h"
#include "config/config.h"

enum { ROWS = 256, SITES = 4, OPERANDS = 4 };

/* --- the reference: one layer's four products for 256 tokens --- */

struct peak {
    const struct model *model;
    enum precision precision;
};

/* A product: its primitive and its operands. */
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

/* The operations of one run: two for each multiply and add. */
static double operations_of(const struct model *model)
{
    struct shape shapes[SITES];
    double operations = 0;
    shapes_of(model, shapes);
    for (int i = 0; i < SITES; i++) { operations += 2.0 * ROWS * shapes[i].outputs * shapes[i].inputs; }
    return operations;
}

static enum status check(dnnl_status_t status, struct err *err)
{
    if (status == dnnl_success) { return STATUS_OK; }
    return err_set(err, STATUS_UNSUPPORTED, "oneDNN refuses a bare product (its status is %d)", (int)status);
}

#define CHECK(call) TRY(check(call, err))

/* Memory for an operand, filled with values that are small as bf16 and f32; as bytes any values do. */
static enum status bind(struct state *state, struct product *product, int at, int argument,
                        const dnnl_memory_desc_t *shape, bool is_f32, struct err *err)
{
    size_t bytes = (dnnl_memory_desc_get_size(shape) + 127) / 64 * 64;
    uint16_t *values = aligned_alloc(64, bytes);
    if (values == NULL) { return err_set(err, STATUS_NO_MEMORY, "no memory for a product of %zu bytes", bytes); }
    for (size_t i = 0; i < bytes / 2; i++) {
        values[i] = (uint16_t)((is_f32 && i % 2 == 0 ? 0 : 0x3c00) + i * 2654435761u % 512);
    }
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
    if (status == dnnl_success) { status = dnnl_primitive_desc_create(out, &matmul, attributes, state->engine, NULL); }
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
    if (status == STATUS_OK) { status = bind(state, product, 0, DNNL_ARG_SRC, &descs[0], is_f32, err); }
    if (status == STATUS_OK) {
        status = bind(state, product, 1, DNNL_ARG_WEIGHTS,
                      dnnl_primitive_desc_query_md(described, dnnl_query_weights_md, 0), is_f32, err);
    }
    if (status == STATUS_OK) { status = bind(state, product, 2, DNNL_ARG_DST, &descs[1], true, err); }
    if (status == STATUS_OK) {
        status = bind(state, product, 3, DNNL_ARG_SCRATCHPAD,
                      dnnl_primitive_desc_query_md(described, dnnl_query_scratchpad_md, 0), true, err);
    }
    dnnl_primitive_desc_destroy(described);
    return status;
}

/* Tells the OpenMP runtime below oneDNN that the calling thread works alone. */
static void single_thread(void)
{
    void *symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    void (*set_threads)(int);
    if (symbol != NULL) {
        memcpy(&set_threads, &symbol, sizeof set_threads);
        set_threads(1);
    }
}

static enum status open(void *context, void **out, struct err *err)
{
    const struct peak *peak = context;
    struct shape shapes[SITES];
    struct state *state = calloc(1, sizeof *state);
    *out = state;
    if (state == NULL) { return err_set(err, STATUS_NO_MEMORY, "no memory for the yardstick"); }
    single_thread();
    CHECK(dnnl_engine_create(&state->engine, dnnl_cpu, 0));
    CHECK(dnnl_stream_create(&state->stream, state->engine, dnnl_stream_default_flags));
    shapes_of(peak->model, shapes);
    for (int i = 0; i < SITES; i++) { TRY(open_product(state, &state->products[i], shapes[i], peak->precision, err)); }
    return STATUS_OK;
}

static enum status run_once(void *of, struct err *err)
{
    struct state *state = of;
    for (int i = 0; i < SITES; i++) {
        CHECK(dnnl_primitive_execute(state->products[i].primitive, state->stream, OPERANDS,
                                     state->products[i].arguments));
    }
    return check(dnnl_stream_wait(state->stream), err);
}

static void close_product(struct product *product)
{
    for (int i = 0; i < OPERANDS; i++) {
        if (product->arguments[i].memory != NULL) { dnnl_memory_destroy(product->arguments[i].memory); }
        free(product->buffers[i]);
    }
    if (product->primitive != NULL) { dnnl_primitive_destroy(product->primitive); }
}

static void end(void *of)
{
    struct state *state = of;
    if (state == NULL) { return; }
    for (int i = 0; i < SITES; i++) { close_product(&state->products[i]); }
    if (state->stream != NULL) { dnnl_stream_destroy(state->stream); }
    if (state->engine != NULL) { dnnl_engine_destroy(state->engine); }
    free(state);
}

/* --- the command --- */

struct bench_peak_options {
    char *json;
    char *tokens;         /* lengths of the texts: "16,128" */
    int64_t batch_tokens; /* per batch, rounded to whole texts */
    int64_t round_ms, rounds;
};

struct bench {
    const struct bench_peak_options *options;
    struct report *report;
    struct model *model;
    struct engine *engine;
    struct numbers lengths;
};

static const struct column columns[] = {{"threads", "threads", 0}, {"tokens", "tokens", 0},    {"rows", "rows", 0},
                                        {"gflops", "GFLOP/s", 1},  {"peak_gflops", "peak", 1}, {"share", "share", 3}};

static enum status measure_length(struct bench *bench, unsigned threads, uint32_t length, struct err *err)
{
    const struct bench_peak_options *options = bench->options;
    uint64_t round_ns = (uint64_t)options->round_ms * NS_PER_MS;
    uint32_t rows = (uint32_t)options->batch_tokens / length;
    struct passes passes;
    struct peak yardstick = {bench->model, engine_precision(bench->engine)};
    rows = rows == 0 ? 1 : rows;
    enum status status = passes_open_even(&passes, bench->engine, bench->model, rows, length, err);
    struct workload engine = passes_workload(&passes), bare = {open, run_once, end, &yardstick};
    double best = 0, peak = 0, rate;
    for (int64_t round = 0; round < options->rounds && status == STATUS_OK; round++) {
        status = workload_measure(&engine, threads, round_ns, &rate, err);
        if (status == STATUS_OK) {
            best = fmax(best, rate);
            status = workload_measure(&bare, threads, round_ns, &rate, err);
        }
        if (status == STATUS_OK) { peak = fmax(peak, rate); }
    }
    passes_close(&passes);
    if (status == STATUS_OK) {
        double gflops = best * rows * length * bench_engine_operations(bench->model, length) / 1e9;
        double peak_gflops = peak * operations_of(bench->model) / 1e9;
        report_row(bench->report, NULL,
                   (const double[]){threads, length, rows, gflops, peak_gflops, gflops / peak_gflops});
    }
    return status;
}

static enum status run(struct bench *bench, const struct config *config, struct err *err)
{
    struct engine_options options = devices_options(config, false);
    unsigned threads = config_threads(config);
    threads = threads < WORKLOAD_THREADS_MAX ? threads : WORKLOAD_THREADS_MAX;
    options.backend = "cpu";
    TRY(numbers_parse("--tokens", bench->options->tokens, 1, 1 << 20, &bench->lengths, err));
    TRY(config_model(config, &bench->model, err));
    TRY(engine_open(bench->model, &options, &bench->engine, err));
    report_text(bench->report, "model", bench->model->name);
    report_text(bench->report, "precision", precision_name(engine_precision(bench->engine)));
    report_table(bench->report, "peak", columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < bench->lengths.count; i++) {
        if (bench->lengths.items[i] > bench->model->max_tokens) {
            return err_set(err, STATUS_BAD_INPUT, "--tokens %lld: %s takes at most %u tokens",
                           (long long)bench->lengths.items[i], bench->model->name, bench->model->max_tokens);
        }
        TRY(measure_length(bench, 1, (uint32_t)bench->lengths.items[i], err));
        if (threads > 1) { TRY(measure_length(bench, threads, (uint32_t)bench->lengths.items[i], err)); }
    }
    return STATUS_OK;
}

static enum status measure_peak(const struct invocation *invocation, struct report *report, struct err *err)
{
    struct bench bench = {.options = invocation->own, .report = report};
    enum status status = run(&bench, &invocation->config, err);
    if (bench.engine != NULL) { engine_close(bench.engine); }
    if (bench.model != NULL) { model_close(bench.model); }
    return status;
}

#define OWN(name, kind) .key = #name, .type = (kind), .offset = offsetof(struct bench_peak_options, name)

/* clang-format off */
static const struct setting own_settings[] = {
    {OWN(tokens, SETTING_TEXT), .fallback = "16,64,256", .most = 256, .value = "LIST", .help = "lengths of texts, in tokens"},
    {OWN(batch_tokens, SETTING_INTEGER), .fallback = "4096", .least = 1, .most = 1 << 20, .value = "N", .help = "tokens of a batch"},
    {OWN(round_ms, SETTING_INTEGER), .fallback = "300", .least = 1, .most = 60000, .value = "N", .help = "how long to measure each figure"},
    {OWN(rounds, SETTING_INTEGER), .fallback = "3", .least = 1, .most = 100, .value = "N", .help = "so often, in turn with the yardstick; the best counts"},
    BENCH_JSON(struct bench_peak_options),
};
/* clang-format on */

const struct subcommand command_bench_peak = {
    .name = "bench peak",
    .bit = FOR_ENGINE,
    .summary = "Measure a CPU engine's share of what bare matrix products reach",
    .explanation =
        "share is model operations per second over those of bare oneDNN products of the same shapes on the same\n"
        "threads. Rounds of both alternate.",
    OWN_OPTIONS(own_settings, struct bench_peak_options),
    .run = benchmark_run,
    .measure = measure_peak,
};
