/* Loads are measured in turn, round after round, so that changes of the device in the meantime (clocks, heat) affect
 * all of them alike; the reader of the figures takes medians. Wall time: copies and the host's share count. */
#include "gpu_run.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

static void must(enum status status, const struct err *err)
{
    if (status != STATUS_OK) {
        fprintf(stderr, "gpu_check: %s\n", err->message);
        exit(1);
    }
}

static void take_one(struct encoder *encoder)
{
    struct err err = {0};
    must(encoder_take(encoder, &err), &err);
}

static void run_load(const struct gpu_lane *lane, const struct gpu_load *load)
{
    struct err err = {0};
    uint32_t out = 0;
    for (uint32_t b = 0; b < load->batches; b++, out++) {
        if (out == lane->slots) {
            take_one(lane->encoder);
            out--;
        }
        must(encoder_put(lane->encoder, &load->batch[b], &err), &err);
    }
    for (; out > 0; out--) { take_one(lane->encoder); }
}

void gpu_run_vectors(const struct gpu_lane *lane, const struct gpu_job *job, const struct gpu_timing *timing,
                     const char *path)
{
    for (uint32_t run = 0; run < timing->runs; run++) {
        for (uint32_t l = 0; l < job->loads; l++) { run_load(lane, &job->load[l]); }
    }
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(job->output, sizeof *job->output, job->output_floats, file) != job->output_floats ||
        fclose(file) != 0) {
        fprintf(stderr, "gpu_check: %s cannot be written\n", path);
        exit(1);
    }
}

static double seconds_of(const struct gpu_lane *lane, const struct gpu_load *load, uint32_t least_ms)
{
    uint64_t begin = clock_now_ns(), now = begin;
    uint32_t runs = 0;
    while (runs == 0 || now - begin < least_ms * NS_PER_MS) {
        run_load(lane, load);
        runs++;
        now = clock_now_ns();
    }
    return (double)(now - begin) / NS_PER_S / runs;
}

static void warm_up(const struct gpu_lane *lane, const struct gpu_job *job, uint32_t times)
{
    for (uint32_t i = 0; i < times; i++) {
        for (uint32_t l = 0; l < job->loads; l++) { run_load(lane, &job->load[l]); }
    }
}

static double *samples_new(size_t count)
{
    double *samples = calloc(count > 0 ? count : 1, sizeof *samples);
    if (samples == NULL) { exit(1); }
    return samples;
}

void gpu_run_rates(const struct gpu_lane *lane, const struct gpu_job *job, const struct gpu_timing *timing)
{
    double *seconds = samples_new((size_t)job->loads * timing->rounds);
    warm_up(lane, job, timing->warm_ups);
    for (uint32_t round = 0; round < timing->rounds; round++) {
        for (uint32_t l = 0; l < job->loads; l++) {
            seconds[l * timing->rounds + round] = seconds_of(lane, &job->load[l], timing->round_ms);
        }
    }
    for (uint32_t l = 0; l < job->loads; l++) {
        printf("{\"load\": %u, \"rows\": %llu, \"tokens\": %llu, \"seconds\": [", l,
               (unsigned long long)job->load[l].rows, (unsigned long long)job->load[l].tokens);
        for (uint32_t round = 0; round < timing->rounds; round++) {
            printf("%s%.9f", round == 0 ? "" : ", ", seconds[l * timing->rounds + round]);
        }
        printf("]}\n");
    }
    free(seconds);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void latencies_of(const struct gpu_lane *lane, const struct gpu_load *load, double *samples, uint32_t count)
{
    struct err err = {0};
    for (uint32_t i = 0; i < count; i++) {
        uint64_t begin = clock_now_ns();
        must(encoder_run(lane->encoder, &load->batch[i % load->batches], &err), &err);
        samples[i] = (double)(clock_now_ns() - begin) / NS_PER_MS;
    }
    qsort(samples, count, sizeof *samples, by_size);
}

void gpu_run_latencies(const struct gpu_lane *lane, const struct gpu_job *job, const struct gpu_timing *timing)
{
    double *samples = samples_new(timing->latencies);
    warm_up(lane, job, timing->warm_ups);
    for (uint32_t l = 0; l < job->loads; l++) {
        if (job->load[l].batches == 0) { continue; }
        latencies_of(lane, &job->load[l], samples, timing->latencies);
        printf("{\"load\": %u, \"samples\": %u, \"p50_ms\": %.6f, \"p99_ms\": %.6f, \"least_ms\": %.6f}\n", l,
               timing->latencies, samples[timing->latencies / 2], samples[(uint64_t)timing->latencies * 99 / 100],
               samples[0]);
    }
    free(samples);
}
