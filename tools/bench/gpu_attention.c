/* Attention alone on a GPU: kernels/attention.cu as shipped, with six resident blocks instead of four (head dim 32),
 * and cuDNN's on the same rows, differences first, then times.
 *
 *   gpu_attention [--json FILE] [--device N]
 *
 * Prints a line for each case: the times (medians of several rounds of many launches, between two events), and the
 * bytes and operations per second that follow from the kernel's time. If cuDNN is not available, a line says why and
 * its column stays empty. Exit code: 1 when cuDNN's results differ by more than rounding explains, or those of six
 * blocks by a bit, 64 for wrong arguments. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "cudnn_attention.h"
#include "engine/cuda/memory.h"
#include "kernel_device.h"
#include "kernel_numbers.h"
#include "kernels/kernels.h"

enum { TOKENS = 16384, ROUNDS = 9, LAUNCHES = 20, MIXED = 0 };

/* Each case has about TOKENS tokens in all; length MIXED: from 8 to 512, most rows short. With a window, which cuDNN
 * does not compute here, the time of a long row should grow linearly with its length. */
struct attention_case {
    const char *name;
    enum kernel_type type;
    uint32_t heads, head_dim, length;
    uint32_t window; /* on either side; 0: none */
};

static const struct attention_case cases[] = {
    {"minilm", KERNEL_F16, 12, 32, 16},          {"minilm", KERNEL_F16, 12, 32, 64},
    {"minilm", KERNEL_F16, 12, 32, 128},         {"minilm", KERNEL_F16, 12, 32, 256},
    {"minilm", KERNEL_F16, 12, 32, 512},         {"minilm", KERNEL_F16, 12, 32, MIXED},
    {"bert-base", KERNEL_F16, 12, 64, 16},       {"bert-base", KERNEL_F16, 12, 64, 128},
    {"bert-base", KERNEL_F16, 12, 64, 512},      {"bert-base", KERNEL_F16, 12, 64, MIXED},
    {"bert-base", KERNEL_BF16, 12, 64, 128},     {"modernbert", KERNEL_F16, 12, 64, 8192},
    {"window-64", KERNEL_F16, 12, 64, 128, 64},  {"window-64", KERNEL_F16, 12, 64, 1024, 64},
    {"window-64", KERNEL_F16, 12, 64, 8192, 64},
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* A case's rows, on the host and on the device. */
struct rows {
    uint32_t count, tokens, longest, tiles;
    uint32_t *start, *length;
    void *counts, *tiles_on_device, *qkv, *ours, *theirs;
    uint32_t room; /* rows in cuDNN's lists */
    void *lengths, *qkv_starts, *context_starts;
    double flop, bytes;
};

struct figures {
    double ours_us, six_us, theirs_us; /* six, theirs: 0 if not measured */
    bool other_bits;                   /* six blocks give other numbers than four */
    double difference;                 /* the largest, relative to the allowed one */
    struct err why;                    /* why theirs is missing */
};

static void must(cudaError_t answer, const char *what)
{
    if (answer == cudaSuccess) { return; }
    fprintf(stderr, "gpu_attention: %s: %s\n", what, cudaGetErrorString(answer));
    exit(1);
}

static void *need(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (memory == NULL) {
        fprintf(stderr, "gpu_attention: no memory\n");
        exit(1);
    }
    return memory;
}

static uint32_t row_length(const struct attention_case *c, uint64_t *seed)
{
    if (c->length != MIXED) { return c->length; }
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    const double x = (double)(*seed >> 40) * 0x1p-24;
    return 8 + (uint32_t)(504.0 * x * x * x);
}

/* Queries and keys of [-4, 4), so that a few keys count most; values of [-1, 1). */
static void *random_qkv(const struct attention_case *c, size_t tokens)
{
    const size_t hidden = (size_t)c->heads * c->head_dim, count = 3 * hidden * tokens;
    float *numbers = need(count * sizeof *numbers);
    void *packed = need(count * number_bytes(c->type));
    numbers_random(c->type, 7, count, numbers);
    for (size_t i = 0; i < count; i++) { numbers[i] *= i % (3 * hidden) < 2 * hidden ? 4.0f : 1.0f; }
    numbers_write(c->type, numbers, count, packed);
    void *device = device_new(count * number_bytes(c->type), packed);
    free(packed);
    free(numbers);
    return device;
}

/* The rows in cuDNN's form: padded with rows of length 0. */
static void lists_new(struct rows *rows, size_t hidden)
{
    rows->room = cuda_bucket_rows(rows->count, TOKENS);
    int32_t *lengths = need(rows->room * sizeof *lengths);
    int32_t *qkv = need((rows->room + 1) * sizeof *qkv), *context = need((rows->room + 1) * sizeof *context);
    for (uint32_t r = 0; r <= rows->room; r++) {
        const uint32_t elements = (r < rows->count ? rows->start[r] : rows->tokens) * (uint32_t)hidden;
        qkv[r] = (int32_t)(3 * elements);
        context[r] = (int32_t)elements;
        if (r < rows->count) { lengths[r] = (int32_t)rows->length[r]; }
    }
    rows->lengths = device_new(rows->room * sizeof *lengths, lengths);
    rows->qkv_starts = device_new((rows->room + 1) * sizeof *qkv, qkv);
    rows->context_starts = device_new((rows->room + 1) * sizeof *context, context);
    free(lengths);
    free(qkv);
    free(context);
}

static struct rows rows_new(const struct attention_case *c)
{
    struct rows rows = {.start = need(TOKENS * sizeof *rows.start), .length = need(TOKENS * sizeof *rows.length)};
    const size_t hidden = (size_t)c->heads * c->head_dim;
    uint64_t seed = 1;
    while (rows.tokens + (c->length == MIXED ? 512 : c->length) <= TOKENS) {
        const uint32_t length = row_length(c, &seed);
        rows.start[rows.count] = rows.tokens;
        rows.length[rows.count++] = length;
        rows.tokens += length;
        rows.longest = length > rows.longest ? length : rows.longest;
        rows.flop +=
            4.0 * length * (c->window == 0 || c->window > length / 2 ? length : 2 * c->window + 1) * (double)hidden;
    }
    struct kernel_tile *tiles = need(kernel_tiles_bound(rows.tokens, rows.count) * sizeof *tiles);
    rows.tiles = kernel_tiles_fill(rows.start, rows.length, rows.count, tiles);
    uint32_t counts[KERNEL_COUNTS] = {0};
    counts[KERNEL_COUNT_ROWS] = rows.count;
    counts[KERNEL_COUNT_TOKENS] = rows.tokens;
    counts[KERNEL_COUNT_TILES] = rows.tiles;
    rows.counts = device_new(sizeof counts, counts);
    rows.tiles_on_device = device_new(rows.tiles * sizeof *tiles, tiles);
    rows.qkv = random_qkv(c, rows.tokens);
    rows.bytes = 4.0 * (double)hidden * rows.tokens * (double)number_bytes(c->type);
    rows.ours = device_new((size_t)(rows.bytes / 4.0), NULL);
    rows.theirs = device_new((size_t)(rows.bytes / 4.0), NULL);
    free(tiles);
    lists_new(&rows, hidden);
    return rows;
}

static void rows_free(struct rows *rows)
{
    void *const device[] = {rows->counts, rows->tiles_on_device, rows->qkv,        rows->ours,
                            rows->theirs, rows->lengths,         rows->qkv_starts, rows->context_starts};
    for (size_t i = 0; i < sizeof device / sizeof device[0]; i++) { device_free(device[i]); }
    free(rows->start);
    free(rows->length);
}

/* cuDNN with a plan for a case. */
struct theirs {
    struct cudnn *cudnn;
    const struct cudnn_plan *plan;
    void *workspace;
};

/* The kernel built with ATTENTION_BLOCKS_32 6. */
cudaError_t kernel_attention_six(const struct kernel_queue *queue, const struct kernel_attention_args *args);

/* Launches `theirs` once, or, if that is NULL, `ours`. */
static void launch(const struct attention_case *c, const struct rows *rows, const struct theirs *theirs,
                   __typeof__(&kernel_attention) ours)
{
    struct err err;
    if (theirs != NULL) {
        const struct cudnn_rows lists = {rows->lengths, rows->qkv_starts, rows->context_starts};
        if (cudnn_run(theirs->cudnn, theirs->plan, &lists, rows->qkv, rows->theirs, &err) == STATUS_OK) { return; }
        fprintf(stderr, "gpu_attention: %s\n", err.message);
        exit(1);
    }
    const struct kernel_attention_args args = {
        .type = c->type,
        .bound = rows->tiles,
        .heads = c->heads,
        .key_heads = c->heads,
        .head_dim = c->head_dim,
        .scale = 1.0f / sqrtf((float)c->head_dim),
        .before = c->window == 0 ? UINT32_MAX : c->window,
        .behind = c->window == 0 ? UINT32_MAX : c->window,
        .ragged = {.counts = rows->counts, .tiles = rows->tiles_on_device},
        .qkv = rows->qkv,
        .context = rows->ours,
    };
    must(ours(device_queue(), &args), "attention");
}

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Microseconds of a launch. */
static double measure(const struct attention_case *c, const struct rows *rows, const struct theirs *theirs,
                      __typeof__(&kernel_attention) ours)
{
    const cudaStream_t stream = device_queue()->cuda_stream;
    float times[ROUNDS];
    cudaEvent_t begin, end;
    must(cudaEventCreate(&begin), "an event");
    must(cudaEventCreate(&end), "an event");
    for (int i = 0; i < LAUNCHES; i++) { launch(c, rows, theirs, ours); }
    for (int r = 0; r < ROUNDS; r++) {
        must(cudaEventRecord(begin, stream), "an event");
        for (int i = 0; i < LAUNCHES; i++) { launch(c, rows, theirs, ours); }
        must(cudaEventRecord(end, stream), "an event");
        must(cudaEventSynchronize(end), "a round");
        must(cudaEventElapsedTime(&times[r], begin, end), "a time");
    }
    must(cudaEventDestroy(begin), "an event");
    must(cudaEventDestroy(end), "an event");
    qsort(times, ROUNDS, sizeof times[0], by_size);
    return 1000.0 * times[ROUNDS / 2] / LAUNCHES;
}

/* Both round powers and outputs to the matrix's type, by at most half a step each: values are below 1. */
static double compare(const struct attention_case *c, const struct rows *rows)
{
    const size_t count = (size_t)rows->tokens * c->heads * c->head_dim, bytes = count * number_bytes(c->type);
    const double allowed = c->type == KERNEL_F16 ? 4 * 0x1p-11 : 4 * 0x1p-8;
    void *packed = need(bytes);
    float *ours = need(count * sizeof *ours), *theirs = need(count * sizeof *theirs);
    device_read(packed, rows->ours, bytes);
    numbers_read(c->type, packed, count, ours);
    device_read(packed, rows->theirs, bytes);
    numbers_read(c->type, packed, count, theirs);
    double worst = 0.0;
    for (size_t i = 0; i < count; i++) {
        const double off = fabs((double)ours[i] - theirs[i]) / allowed;
        worst = off > worst || isnan(off) ? off : worst;
    }
    free(packed);
    free(ours);
    free(theirs);
    return worst;
}

static enum status theirs_open(const struct attention_case *c, const struct rows *rows, struct theirs *out,
                               struct err *err)
{
    struct cudnn_options options = {
        .stream = device_queue()->cuda_stream,
        .type = c->type,
        .heads = c->heads,
        .head_dim = c->head_dim,
        .scale = 1.0f / sqrtf((float)c->head_dim),
        .workspace = out->workspace,
    };
    if (c->window > 0) { return err_set(err, STATUS_UNSUPPORTED, "a window"); }
    TRY(cuda_api_real(&options.cuda, err));
    TRY(cudnn_api_real(&options.api, err));
    TRY(cudnn_open(&options, &out->cudnn, err));
    return cudnn_find(out->cudnn, rows->room, rows->longest, &out->plan, err);
}

static void *context_of(const struct attention_case *c, const struct rows *rows, size_t *bytes)
{
    *bytes = (size_t)rows->tokens * c->heads * c->head_dim * number_bytes(c->type);
    void *context = need(*bytes);
    device_read(context, rows->ours, *bytes);
    return context;
}

/* Six blocks do the same in the same order. Leaves the shipped kernel's results in place. */
static void try_six(const struct attention_case *c, const struct rows *rows, struct figures *figures)
{
    size_t bytes;
    if (c->head_dim != 32) { return; }
    figures->six_us = measure(c, rows, NULL, kernel_attention_six);
    void *six = context_of(c, rows, &bytes);
    launch(c, rows, NULL, kernel_attention);
    void *four = context_of(c, rows, &bytes);
    figures->other_bits = memcmp(six, four, bytes) != 0;
    free(six);
    free(four);
}

static struct figures run_case(const struct attention_case *c, struct rows *rows)
{
    struct figures figures = {.ours_us = measure(c, rows, NULL, kernel_attention)};
    try_six(c, rows, &figures);
    struct theirs theirs = {.workspace = device_new(CUDNN_WORKSPACE_BYTES, NULL)};
    if (theirs_open(c, rows, &theirs, &figures.why) == STATUS_OK) {
        figures.theirs_us = measure(c, rows, &theirs, NULL);
        figures.difference = compare(c, rows);
        device_sync();
    }
    cudnn_close(theirs.cudnn);
    device_free(theirs.workspace);
    return figures;
}

static void show(const struct attention_case *c, const struct rows *rows, const struct figures *f, FILE *json,
                 bool last)
{
    char length[12];
    snprintf(length, sizeof length, "%u", c->length);
    printf("%-10s %-4s %6s %5u %9.1f ", c->name, c->type == KERNEL_F16 ? "f16" : "bf16",
           c->length == MIXED ? "mixed" : length, rows->count, f->ours_us);
    if (f->six_us > 0.0) {
        printf("%9.1f ", f->six_us);
    } else {
        printf("%9s ", "-");
    }
    if (f->theirs_us > 0.0) {
        printf("%9.1f %6.2f ", f->theirs_us, f->theirs_us / f->ours_us);
    } else {
        printf("%9s %6s ", "-", "-");
    }
    printf("%8.0f %8.1f  %s\n", rows->bytes / f->ours_us * 1e-3, rows->flop / f->ours_us * 1e-6,
           f->other_bits          ? "SIX BLOCKS DIFFER"
           : f->theirs_us <= 0.0  ? f->why.message
           : f->difference <= 1.0 ? "same"
                                  : "DIFFERENT");
    fflush(stdout);
    if (json == NULL) { return; }
    fprintf(json,
            "  {\"model\": \"%s\", \"precision\": \"%s\", \"length\": %u, \"rows\": %u, \"tokens\": %u, \"kernel_us\": "
            "%.2f, \"six_blocks_us\": %.2f, "
            "\"cudnn_us\": %.2f, \"difference\": %.4f}%s\n",
            c->name, c->type == KERNEL_F16 ? "f16" : "bf16", c->length, rows->count, rows->tokens, f->ours_us,
            f->six_us, f->theirs_us, f->difference, last ? "" : ",");
}

int main(int argc, char **argv)
{
    const char *path = NULL;
    int device = 0, bad = 0;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && strcmp(argv[i], "--json") == 0) {
            path = argv[i + 1];
        } else if (i + 1 < argc && strcmp(argv[i], "--device") == 0) {
            device = atoi(argv[i + 1]);
        } else {
            fprintf(stderr, "usage: gpu_attention [--json FILE] [--device N]\n");
            return 64;
        }
    }
    FILE *json = path == NULL ? NULL : fopen(path, "w");
    if (path != NULL && json == NULL) {
        perror(path);
        return 1;
    }
    must(cudaSetDevice(device), "choosing the device");
    printf("%-10s %-4s %6s %5s %9s %9s %9s %6s %8s %8s\n", "model", "type", "length", "rows", "kernel us", "six us",
           "cuDNN us", "times", "GB/s", "TFLOP/s");
    if (json != NULL) { fprintf(json, "[\n"); }
    for (int i = 0; i < CASES; i++) {
        struct rows rows = rows_new(&cases[i]);
        const struct figures figures = run_case(&cases[i], &rows);
        show(&cases[i], &rows, &figures, json, i + 1 == CASES);
        bad |= figures.other_bits || !(figures.difference <= 1.0);
        rows_free(&rows);
    }
    if (json != NULL) {
        fprintf(json, "]\n");
        bad |= fclose(json) != 0;
    }
    return bad;
}
