#include "engine/cpu/bf16_kind.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/version.h"
#include "engine/kept.h"

enum { WIDE, DOT, RIVALS };
enum { ROWS = 24, INPUTS = 256, RUNS = 64, TEXT_BYTES = 512 };

static const enum gemm_kind kinds[RIVALS] = {GEMM_BF16_WIDE, GEMM_BF16_DOT};

/* Runs both in turn and keeps the least times. */
static void measure_kinds(const struct instruction_set *set, uint64_t ns[RIVALS])
{
    /* Zeros take as long as other numbers. */
    static const float from[(ROWS + GEMM_ROWS_BEHIND) * INPUTS];
    static const uint32_t packed[GEMM_MULTIPLE * INPUTS / 2];
    float to[(ROWS + GEMM_ROWS_BEHIND) * GEMM_MULTIPLE];
    struct gemm_weight weight = {.outputs = GEMM_MULTIPLE, .inputs = INPUTS};
    memcpy(&weight.plain, &(const void *){packed}, sizeof weight.plain);
    for (int run = 0; run < RIVALS * RUNS; run++) {
        int rival = run % RIVALS;
        struct gemm_job job = {.rows = ROWS, .weight = &weight, .last_output = GEMM_MULTIPLE, .end = GEMM_PLAIN};
        job.from_f32 = rival == WIDE ? from : NULL;
        job.from_bf16 = rival == WIDE ? NULL : (const uint16_t *)from;
        job.to.f32 = to;
        uint64_t begin = clock_thread_ns();
        gemm_run(set, kinds[rival], &job);
        uint64_t took = clock_thread_ns() - begin;
        ns[rival] = run < RIVALS || took < ns[rival] ? took : ns[rival];
    }
}

/* Accepts only what is written. */
static bool parse_times(const char *text, uint64_t ns[RIVALS])
{
    char same[TEXT_BYTES];
    if (sscanf(text, "wide %" SCNu64 " dot %" SCNu64, &ns[WIDE], &ns[DOT]) != RIVALS) { return false; }
    snprintf(same, sizeof same, "wide %" PRIu64 " dot %" PRIu64 "\n", ns[WIDE], ns[DOT]);
    return strcmp(text, same) == 0;
}

enum gemm_kind bf16_kind(const struct instruction_set *set, const char *cache_path)
{
    char head[TEXT_BYTES], name[PROCESSOR_NAME];
    uint64_t ns[RIVALS];
    struct kept kept;
    if (!set->kernels->gemm_bf16_dot) { return GEMM_BF16_WIDE; }
    snprintf(head, sizeof head, "sluice bf16 1\nversion %s\nprocessor %s\ninstructions %s\n", sluice_version,
             processor_name(name), set->name);
    kept_open(&kept, cache_path, "bf16", head);
    if (!parse_times(kept.text, ns)) {
        struct buffer text = {0};
        measure_kinds(set, ns);
        buffer_format(&text, "wide %" PRIu64 " dot %" PRIu64 "\n", ns[WIDE], ns[DOT]);
        kept_write(&kept, &text);
        buffer_free(&text);
    }
    kept_close(&kept);
    return kinds[ns[DOT] < ns[WIDE] ? DOT : WIDE];
}
