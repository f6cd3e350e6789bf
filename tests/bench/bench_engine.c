/* Tokens per second of the engine on random weights of a real shape, beside what oneDNN reaches on bare products of the
 * same shapes in the same seconds on the same threads.
 *
 *     bench_engine [minilm|bge-small|bert-base|own] [tokens per text] [rounds] [precision]
 *
 * Rounds of engine and yardstick alternate, and the best of each counts: whatever else the machine does hits both. The
 * share is model operations per second (products and attention, as papers count them) over the yardstick's. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/cpu_matmul.h"
#include "engine/engine.h"
#include "gemm_peak.h"
#include "memory_model.h"

enum { ROWS = 32, THREADS_MAX = 64, SITES = 4, ROUND_MS = 400 };

struct shape_name {
    const char *name;
    struct memory_shape shape;
};

static const struct shape_name shapes[] = {
    {"minilm", {30522, 512, 384, 6, 12, 1536}},
    {"bge-small", {30522, 512, 384, 12, 12, 1536}},
    {"bert-base", {30522, 512, 768, 12, 12, 3072}},
    {"own", {8192, 256, 192, 3, 6, 768}},
};

/* One batch and how it is handed over. */
struct load {
    uint32_t rows, extent;
    int32_t *ids;
    uint32_t start[ROWS], length[ROWS];
};

enum work_kind { WORK_BATCH, WORK_ONE_BY_ONE, WORK_PEAK };

struct worker {
    pthread_t thread;
    pthread_barrier_t *barrier;
    struct engine *engine;
    const struct load *load;
    enum work_kind kind;
    const struct memory_shape *shape;
    double done, seconds; /* texts or operations */
};

static void must(enum status status, const struct err *err)
{
    if (status != STATUS_OK) {
        fprintf(stderr, "bench_engine: %s\n", err->message);
        exit(1);
    }
}

static double operations_per_token(const struct memory_shape *s, double length)
{
    double hidden = s->hidden, inner = s->intermediate;
    return s->layers * (2 * (4 * hidden * hidden + 2 * hidden * inner) + 4 * length * hidden);
}

static double run_texts(struct encoder *encoder, const struct worker *worker, float *output)
{
    struct err err;
    const struct load *load = worker->load;
    struct engine_batch batch = {load->rows, load->extent, load->ids, load->start, load->length, output};
    if (worker->kind == WORK_BATCH) {
        must(encoder_run(encoder, &batch, &err), &err);
        return load->rows;
    }
    const uint32_t start = 0;
    for (uint32_t r = 0; r < load->rows; r++) {
        struct engine_batch one = {1, load->length[r], load->ids + load->start[r], &start, load->length + r, output};
        must(encoder_run(encoder, &one, &err), &err);
    }
    return load->rows;
}

/* One layer's four products, as often as the model has layers. */
static double run_peak(struct gemm_peak *const *peaks, uint32_t layers)
{
    double operations = 0;
    for (unsigned i = 0; i < SITES; i++)
        operations += gemm_peak_run(peaks[i], layers);
    return operations;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    const struct memory_shape *s = worker->shape;
    struct gemm_peak *peaks[SITES] = {0};
    struct encoder *encoder = NULL;
    struct err err;
    enum precision precision = engine_precision(worker->engine);
    enum gemm_type type = precision == PRECISION_INT8 ? GEMM_INT8 : precision == PRECISION_BF16 ? GEMM_BF16 : GEMM_F32;
    float *output = malloc(ROWS * s->hidden * sizeof *output);
    matmul_single_thread();
    if (worker->kind == WORK_PEAK) {
        peaks[0] = gemm_peak_open(3 * s->hidden, s->hidden, type);
        peaks[1] = gemm_peak_open(s->hidden, s->hidden, type);
        peaks[2] = gemm_peak_open(s->intermediate, s->hidden, type);
        peaks[3] = gemm_peak_open(s->hidden, s->intermediate, type);
        run_peak(peaks, 1);
    } else {
        must(encoder_open(worker->engine, &encoder, &err), &err);
        run_texts(encoder, worker, output);
    }
    pthread_barrier_wait(worker->barrier);
    uint64_t begin = clock_now_ns(), now = begin;
    for (worker->done = 0; now - begin < ROUND_MS * NS_PER_MS; now = clock_now_ns())
        worker->done += worker->kind == WORK_PEAK ? run_peak(peaks, s->layers) : run_texts(encoder, worker, output);
    worker->seconds = (double)(now - begin) / NS_PER_S;
    for (unsigned i = 0; i < SITES && peaks[i] != NULL; i++)
        gemm_peak_close(peaks[i]);
    encoder_close(encoder);
    free(output);
    return NULL;
}

/* Texts or operations per second over all threads. */
static double measure(struct engine *engine, const struct memory_shape *shape, const struct load *load,
                      enum work_kind kind, unsigned threads)
{
    struct worker workers[THREADS_MAX];
    pthread_barrier_t barrier;
    double rate = 0;
    pthread_barrier_init(&barrier, NULL, threads);
    for (unsigned i = 0; i < threads; i++) {
        workers[i] = (struct worker){.barrier = &barrier, .engine = engine, .load = load, .kind = kind, .shape = shape};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            exit(1);
    }
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        rate += workers[i].done / workers[i].seconds;
    }
    pthread_barrier_destroy(&barrier);
    return rate;
}

/* Rows of the given lengths, packed (stride 0) or padded. */
static struct load make_load(const uint32_t *lengths, uint32_t stride, uint32_t vocabulary)
{
    struct load load = {.rows = ROWS};
    for (uint32_t r = 0; r < ROWS; r++) {
        load.start[r] = load.extent;
        load.length[r] = lengths[r];
        load.extent += stride == 0 ? lengths[r] : stride;
    }
    load.ids = calloc(load.extent, sizeof *load.ids);
    if (load.ids == NULL)
        exit(1);
    for (uint32_t i = 0; i < load.extent; i++)
        load.ids[i] = (int32_t)((i + 1) * 2654435761u % vocabulary);
    return load;
}

static void bench_fixed(struct engine *engine, const struct memory_shape *shape, uint32_t tokens, unsigned rounds,
                        unsigned threads)
{
    uint32_t lengths[ROWS];
    double engine_rate = 0, peak_rate = 0;
    for (uint32_t r = 0; r < ROWS; r++)
        lengths[r] = tokens;
    struct load load = make_load(lengths, 0, shape->vocabulary);
    for (unsigned round = 0; round < rounds; round++) {
        double texts = measure(engine, shape, &load, WORK_BATCH, threads);
        double operations = measure(engine, shape, &load, WORK_PEAK, threads);
        engine_rate = texts > engine_rate ? texts : engine_rate;
        peak_rate = operations > peak_rate ? operations : peak_rate;
    }
    double share = engine_rate * tokens * operations_per_token(shape, tokens) / peak_rate;
    printf("%-5s %u thread%s  %9.0f tokens/s  %7.0f GF/s of %7.0f GF/s  %5.1f %%\n",
           precision_name(engine_precision(engine)), threads, threads == 1 ? " " : "s", engine_rate * tokens,
           engine_rate * tokens * operations_per_token(shape, tokens) / 1e9, peak_rate / 1e9, 100 * share);
    free(load.ids);
}

/* Mixed lengths: many short texts, few long ones, in arrival order. */
static void bench_mixed(struct engine *engine, const struct memory_shape *shape, unsigned rounds, unsigned threads)
{
    uint32_t lengths[ROWS], longest = 0, total = 0, state = 7;
    for (uint32_t r = 0; r < ROWS; r++) {
        state = state * 1664525u + 1013904223u;
        double u = (state >> 8) * 0x1p-24;
        lengths[r] = 6 + (uint32_t)(u * u * u * 200);
        longest = lengths[r] > longest ? lengths[r] : longest;
        total += lengths[r];
    }
    struct load packed = make_load(lengths, 0, shape->vocabulary),
                padded = make_load(lengths, longest, shape->vocabulary);
    double rates[3] = {0};
    for (unsigned round = 0; round < rounds; round++) {
        double now[3] = {measure(engine, shape, &packed, WORK_BATCH, threads),
                         measure(engine, shape, &padded, WORK_BATCH, threads),
                         measure(engine, shape, &packed, WORK_ONE_BY_ONE, threads)};
        for (unsigned i = 0; i < 3; i++)
            rates[i] = now[i] > rates[i] ? now[i] : rates[i];
    }
    printf("%-5s mixed lengths 6..%u, mean %.0f, padding share %.0f %%: packed %.0f texts/s, padded %.0f, one by one "
           "%.0f\n",
           precision_name(engine_precision(engine)), longest, (double)total / ROWS,
           100.0 * (1 - (double)total / (ROWS * longest)), rates[0], rates[1], rates[2]);
    free(packed.ids);
    free(padded.ids);
}

static void bench_precision(const struct model *model, const struct memory_shape *shape, enum precision precision,
                            uint32_t tokens, unsigned rounds)
{
    struct engine *engine;
    struct err err;
    struct engine_options options = {"cpu", precision};
    unsigned threads = engine_default_threads();
    uint64_t begin = clock_now_ns();
    if (engine_open(model, &options, &engine, &err) != STATUS_OK) {
        printf("%-5s not on this machine: %s\n", precision_name(precision), err.message);
        return;
    }
    printf("%-5s opened in %.0f ms, %.1f MB of weights\n", precision_name(precision),
           (double)(clock_now_ns() - begin) / NS_PER_MS, (double)engine_weight_bytes(engine) / 1e6);
    bench_fixed(engine, shape, tokens, rounds, 1);
    if (threads > 1)
        bench_fixed(engine, shape, tokens, rounds, threads < THREADS_MAX ? threads : THREADS_MAX);
    bench_mixed(engine, shape, rounds, threads < THREADS_MAX ? threads : THREADS_MAX);
    engine_close(engine);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "minilm";
    uint32_t tokens = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 128;
    unsigned rounds = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 5;
    enum precision only = PRECISION_AUTO;
    struct err err;
    must(argc > 4 ? precision_parse(argv[4], &only, &err) : STATUS_OK, &err);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        if (strcmp(shapes[i].name, name) != 0)
            continue;
        struct model *model = memory_model(shapes[i].shape, 1);
        printf("%s, %u texts of %u tokens, best of %u rounds of %d ms\n", name, ROWS, tokens, rounds, ROUND_MS);
        const enum precision all[] = {PRECISION_F32, PRECISION_BF16, PRECISION_INT8};
        for (size_t p = 0; p < sizeof all / sizeof all[0]; p++)
            if (only == PRECISION_AUTO || only == all[p])
                bench_precision(model, &shapes[i].shape, all[p], tokens, rounds);
        memory_model_free(model);
        return 0;
    }
    fprintf(stderr, "usage: bench_engine [minilm|bge-small|bert-base|own] [tokens per text] [rounds] [precision]\n");
    return 64;
}
