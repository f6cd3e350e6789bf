/* The attention kernel alone on a GPU, for tests/gpu/attention.py, which times torch's on the same rows.
 *
 *   gpu_attention [--json FILE]
 *
 * Prints a line for each case: the time (median of several rounds of many launches, between two events), and the bytes
 * and operations per second that follow from it. Exit code: 1 when something failed, 64 for wrong arguments. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "kernel_device.h"
#include "kernel_numbers.h"
#include "kernels/kernels.h"

enum { TOKENS = 16384, BLOCK_TOKENS = 256, ROUNDS = 9, LAUNCHES = 20, SLOW_US = 10000, MIXED = 0 };

/* Each case has about TOKENS tokens in all; length MIXED: from 8 to 512, most rows short. With a window the time
 * of a long row should grow linearly with its length. */
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
    {"window-64", KERNEL_F16, 12, 64, 8192, 64}, {"qwen3", KERNEL_F16, 16, 128, 512},
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* A case's rows, on the host and on the device. */
struct rows {
    uint32_t count, tokens, tiles;
    uint32_t *start, *length;
    void *counts, *tiles_on_device, *qkv, *context;
    double flop, bytes;
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

/* Queries and keys of [-4, 4), so that a few keys count most; values of [-1, 1). They repeat after some tokens, because
 * the host takes longer to make them than the device to use them. */
static void *random_qkv(const struct attention_case *c, size_t tokens)
{
    const size_t hidden = (size_t)c->heads * c->head_dim, block = 3 * hidden * BLOCK_TOKENS;
    const size_t bytes = 3 * hidden * tokens * number_bytes(c->type), block_bytes = block * number_bytes(c->type);
    float *numbers = need(block * sizeof *numbers);
    char *packed = need(bytes + block_bytes);
    numbers_random(c->type, 7, block, numbers);
    for (size_t i = 0; i < block; i++) { numbers[i] *= i % (3 * hidden) < 2 * hidden ? 4.0f : 1.0f; }
    numbers_write(c->type, numbers, block, packed);
    for (size_t at = block_bytes; at < bytes; at += block_bytes) { memcpy(packed + at, packed, block_bytes); }
    void *device = device_new(bytes, packed);
    free(packed);
    free(numbers);
    return device;
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
        rows.flop +=
            4.0 * length * (c->window == 0 || c->window > length / 2 ? length : 2 * c->window + 1) * (double)hidden;
    }
    struct kernel_tile *tiles = need(kernel_tiles_bound(rows.tokens, rows.count) * sizeof *tiles);
    const struct kernel_span span = kernel_attention_span(device_queue()->capability, c->type, c->head_dim, false);
    uint32_t counts[KERNEL_COUNTS] = {0};
    counts[KERNEL_COUNT_ROWS] = rows.count;
    counts[KERNEL_COUNT_TOKENS] = rows.tokens;
    rows.tiles = kernel_spans_fill(rows.start, rows.length, rows.count, span, tiles, &counts[KERNEL_COUNT_SPANS]);
    counts[KERNEL_COUNT_TILES] = rows.tiles;
    rows.counts = device_new(sizeof counts, counts);
    rows.tiles_on_device = device_new(rows.tiles * sizeof *tiles, tiles);
    rows.qkv = random_qkv(c, rows.tokens);
    rows.bytes = 4.0 * (double)hidden * rows.tokens * (double)number_bytes(c->type);
    rows.context = device_new((size_t)(rows.bytes / 4.0), NULL);
    free(tiles);
    return rows;
}

static void rows_free(struct rows *rows)
{
    void *const device[] = {rows->counts, rows->tiles_on_device, rows->qkv, rows->context};
    for (size_t i = 0; i < sizeof device / sizeof device[0]; i++) { device_free(device[i]); }
    free(rows->start);
    free(rows->length);
}

static void launch(const struct attention_case *c, const struct rows *rows)
{
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
        .context = rows->context,
    };
    must(kernel_attention(device_queue(), &args), "attention");
}

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The microseconds of one of `launches` launches. */
static float time_launches(const struct attention_case *c, const struct rows *rows, int launches)
{
    const cudaStream_t stream = device_queue()->cuda_stream;
    cudaEvent_t begin, end;
    float ms;
    must(cudaEventCreate(&begin), "an event");
    must(cudaEventCreate(&end), "an event");
    must(cudaEventRecord(begin, stream), "an event");
    for (int i = 0; i < launches; i++) { launch(c, rows); }
    must(cudaEventRecord(end, stream), "an event");
    must(cudaEventSynchronize(end), "a round");
    must(cudaEventElapsedTime(&ms, begin, end), "a time");
    must(cudaEventDestroy(begin), "an event");
    must(cudaEventDestroy(end), "an event");
    return 1000.0f * ms / (float)launches;
}

/* Microseconds of a launch: the median of several rounds. A round of a slow kernel is one launch. */
static double measure(const struct attention_case *c, const struct rows *rows)
{
    float times[ROUNDS];
    (void)time_launches(c, rows, 1);
    const int launches = time_launches(c, rows, 1) < SLOW_US ? LAUNCHES : 1;
    for (int r = 0; r < ROUNDS; r++) { times[r] = time_launches(c, rows, launches); }
    qsort(times, ROUNDS, sizeof times[0], by_size);
    return times[ROUNDS / 2];
}

static void show(const struct attention_case *c, const struct rows *rows, double us, FILE *json, bool last)
{
    const char *type = c->type == KERNEL_F16 ? "f16" : "bf16";
    const double tflops = rows->flop / us * 1e-6;
    char length[12];
    snprintf(length, sizeof length, "%u", c->length);
    printf("%-10s %-4s %6s %5u %9.1f us %8.0f GB/s %8.1f TFLOP/s\n", c->name, type,
           c->length == MIXED ? "mixed" : length, rows->count, us, rows->bytes / us * 1e-3, tflops);
    fflush(stdout);
    if (json == NULL) { return; }
    fprintf(json,
            "  {\"model\": \"%s\", \"precision\": \"%s\", \"heads\": %u, \"head_dim\": %u, \"window\": %u, \"us\": "
            "%.2f, \"tflops\": %.1f, \"lengths\": [",
            c->name, type, c->heads, c->head_dim, c->window, us, tflops);
    for (uint32_t r = 0; r < rows->count; r++) { fprintf(json, "%s%u", r == 0 ? "" : ", ", rows->length[r]); }
    fprintf(json, "]}%s\n", last ? "" : ",");
}

int main(int argc, char **argv)
{
    FILE *json = NULL;
    if (argc == 3 && strcmp(argv[1], "--json") == 0) {
        json = fopen(argv[2], "w");
        if (json == NULL) {
            perror(argv[2]);
            return 1;
        }
    } else if (argc != 1) {
        fprintf(stderr, "usage: gpu_attention [--json FILE]\n");
        return 64;
    }
    if (json != NULL) { fprintf(json, "[\n"); }
    for (int i = 0; i < CASES; i++) {
        struct rows rows = rows_new(&cases[i]);
        show(&cases[i], &rows, measure(&cases[i], &rows), json, i + 1 == CASES);
        rows_free(&rows);
    }
    return json != NULL && (fprintf(json, "]\n") < 0 || fclose(json) != 0);
}
