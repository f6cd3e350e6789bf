/* The choice of the kind of bf16 product, and the packing of weights. */
#include "engine/cpu/gemm.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

/* --- choosing the kind of bf16 product --- */

enum { TRY_ROWS = 24, TRY_INPUTS = 256, TRY_RUNS = 8 };

enum gemm_kind gemm_bf16_kind(const struct instruction_set *set)
{
    static const enum gemm_kind kinds[] = {GEMM_BF16_WIDE, GEMM_BF16_DOT};
    uint64_t best[2] = {UINT64_MAX, UINT64_MAX};
    if (!set->kernels->gemm_bf16_dot) { return GEMM_BF16_WIDE; }
    /* Zeros take as long as other numbers. */
    static const float from[(TRY_ROWS + GEMM_ROWS_BEHIND) * TRY_INPUTS];
    static const uint32_t packed[GEMM_MULTIPLE * TRY_INPUTS / 2];
    float to[(TRY_ROWS + GEMM_ROWS_BEHIND) * GEMM_MULTIPLE];
    struct gemm_weight weight = {.outputs = GEMM_MULTIPLE, .inputs = TRY_INPUTS};
    memcpy(&weight.plain, &(const void *){packed}, sizeof weight.plain);
    for (int run = 0; run < 2 * TRY_RUNS; run++) {
        struct gemm_job job = {.rows = TRY_ROWS, .weight = &weight, .last_output = GEMM_MULTIPLE, .end = GEMM_PLAIN};
        job.from_f32 = run % 2 == 0 ? from : NULL;
        job.from_bf16 = run % 2 == 0 ? NULL : (const uint16_t *)from;
        job.to.f32 = to;
        uint64_t begin = clock_thread_ns();
        gemm_run(set, kinds[run % 2], &job);
        uint64_t took = clock_thread_ns() - begin;
        best[run % 2] = took < best[run % 2] ? took : best[run % 2];
    }
    return kinds[best[1] < best[0]];
}

void gemm_run(const struct instruction_set *set, enum gemm_kind kind, const struct gemm_job *job)
{
    switch (kind) {
    case GEMM_F32:
        set->kernels->gemm_f32(job);
        break;
    case GEMM_SPLIT_F32:
        set->split_f32->run(job);
        break;
    case GEMM_BF16:
        set->bf16->run(job);
        break;
    case GEMM_BF16_DOT:
        set->kernels->gemm_bf16_dot(job);
        break;
    case GEMM_BF16_WIDE:
        set->kernels->gemm_bf16_wide(job);
        break;
    case GEMM_INT8:
        set->int8->run(job);
        break;
    case GEMM_INT16:
        set->int8->run16(job);
        break;
    }
}

/* --- packing in f32 and bf16 --- */

static size_t plain_bytes(enum gemm_kind kind, uint32_t outputs, uint32_t inputs)
{
    size_t panels = (outputs + GEMM_MULTIPLE - 1) / GEMM_MULTIPLE, steps = kind == GEMM_F32 ? inputs : (inputs + 1) / 2;
    return panels * steps * GEMM_MULTIPLE * sizeof(float);
}

/* A pair of bf16 numbers is the first and 2^16 times the second. */
static void plain_pack(enum gemm_kind kind, const struct gemm_weight *weight, const float *from)
{
    uint32_t inputs = weight->inputs, in_step = kind == GEMM_F32 ? 1 : 2, steps = (inputs + in_step - 1) / in_step;
    memset(weight->plain, 0, plain_bytes(kind, weight->outputs, inputs));
    for (uint32_t o = 0; o < weight->outputs; o++, from += inputs) {
        float *to = (float *)weight->plain + ((size_t)(o / GEMM_MULTIPLE) * steps * GEMM_MULTIPLE + o % GEMM_MULTIPLE);
        for (uint32_t i = 0; i < inputs; i += in_step, to += GEMM_MULTIPLE) {
            if (kind == GEMM_F32) {
                *to = from[i];
                continue;
            }
            uint32_t pair = bf16_of(from[i]) | (i + 1 < inputs ? (uint32_t)bf16_of(from[i + 1]) << 16 : 0);
            memcpy(to, &pair, sizeof pair);
        }
    }
}

/* --- packing in int8 --- */

/* The index of input i of output o in the packed weight. */
static size_t packed_at(const struct gemm_weight *weight, uint32_t o, uint32_t i)
{
    size_t tile = ((size_t)(o / INT8_PANEL) * weight->steps + i / INT8_STEP) * 2 + o % INT8_PANEL / 16;
    return tile * 16 * INT8_STEP + i % INT8_STEP / 4 * INT8_STEP + o % 16 * 4 + i % 4;
}

/* The nearest integer; rintf would be a call. */
static float round_to_nearest(float value)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23 */
    return value + shift - shift;
}

enum { BINS = 128 }; /* of remainders from -1/2 to 1/2, ordered by size in one direction */

static int bin_of(float value, int way)
{
    return (int)(((value - round_to_nearest(value)) * (float)way + 0.5f) * BINS);
}

/* Rounds the few weights with the largest remainders to the other neighbour, so that the rounding errors of an output
 * add up to less than one step. Returns the change in the sum of its weights. */
static int32_t cancel_remainders(struct gemm_weight *weight, uint32_t o, const float *from, float inverse)
{
    uint32_t bins[BINS + 1] = {0};
    float sum = 0;
    for (uint32_t i = 0; i < weight->inputs; i++) { sum += from[i] * inverse - round_to_nearest(from[i] * inverse); }
    int way = sum < 0 ? -1 : 1, moved = 0;
    for (uint32_t i = 0; i < weight->inputs; i++) { bins[bin_of(from[i] * inverse, way)]++; }
    int edge = BINS; /* all weights in later bins move, and `more` of those in this one */
    uint32_t more = (uint32_t)round_to_nearest(fabsf(sum));
    for (; edge > BINS / 2 && more > bins[edge]; edge--) { more -= bins[edge]; }
    for (uint32_t i = 0; i < weight->inputs; i++) {
        int bin = bin_of(from[i] * inverse, way);
        int8_t *to = weight->scaled.value + packed_at(weight, o, i);
        if (bin < edge || (bin == edge && more == 0) || *to * way == INT8_LARGEST) { continue; }
        more -= bin == edge;
        *to = (int8_t)(*to + way);
        moved += way;
    }
    return moved;
}

static void pack_output(struct gemm_weight *weight, enum gemm_kind kind, uint32_t o, const float *from, bool cancel)
{
    float largest = 0, most = INT8_LARGEST;
    double squares = 0;
    bool finite = true;
    int32_t total = 0;
    for (uint32_t i = 0; i < weight->inputs; i++) {
        largest = fabsf(from[i]) > largest ? fabsf(from[i]) : largest;
        finite = finite && isfinite(from[i]);
        squares += (double)from[i] * (double)from[i];
    }
    if (!finite) { weight->scaled.scale[o] = NAN; }
    if (!finite || largest < 1e-30f) { return; }
    if (kind == GEMM_INT16) { most = int16_most(weight->inputs, largest, (float)sqrt(squares)); }
    float inverse = most / largest;
    weight->scaled.scale[o] = largest / most;
    for (uint32_t i = 0; kind == GEMM_INT16 && i < weight->inputs; i++) {
        int16_t value = (int16_t)round_to_nearest(from[i] * inverse);
        memcpy(weight->scaled.value + packed_at(weight, o, 2 * i), &value, sizeof value);
    }
    for (uint32_t i = 0; kind == GEMM_INT8 && i < weight->inputs; i += 4) {
        int8_t *to = weight->scaled.value + packed_at(weight, o, i);
        for (uint32_t k = 0; k < 4 && i + k < weight->inputs; k++) {
            to[k] = (int8_t)round_to_nearest(from[i + k] * inverse);
            total += to[k];
        }
    }
    if (cancel) { total += cancel_remainders(weight, o, from, inverse); }
    weight->total[o] = (float)total * weight->scaled.scale[o];
}

static size_t int8_value_bytes(const struct gemm_weight *weight)
{
    return (size_t)weight->panels * INT8_PANEL * weight->steps * INT8_STEP;
}

static void int8_pack(struct gemm_weight *weight, enum gemm_kind kind, const float *from, bool one_sided, uint8_t flip)
{
    weight->scaled.scale = (float *)(weight->scaled.value + int8_value_bytes(weight));
    weight->total = weight->scaled.scale + (size_t)weight->panels * INT8_PANEL;
    memset(weight->scaled.value, 0, gemm_weight_bytes(kind, weight->outputs, weight->inputs));
    for (uint32_t o = 0; o < weight->outputs; o++) {
        pack_output(weight, kind, o, from + (size_t)o * weight->inputs, one_sided);
    }
    for (size_t i = 0; flip && i < int8_value_bytes(weight); i++) {
        weight->scaled.value[i] = (int8_t)(weight->scaled.value[i] ^ flip);
    }
}

/* --- packing --- */

static struct gemm_weight empty_weight(enum gemm_kind kind, uint32_t outputs, uint32_t inputs)
{
    uint32_t bytes = kind == GEMM_INT16 ? 2 * inputs : inputs;
    return (struct gemm_weight){
        .outputs = outputs,
        .inputs = inputs,
        .panels = (outputs + INT8_PANEL - 1) / INT8_PANEL,
        .steps = (bytes + INT8_STEP - 1) / INT8_STEP,
    };
}

size_t gemm_weight_bytes(enum gemm_kind kind, uint32_t outputs, uint32_t inputs)
{
    struct gemm_weight weight = empty_weight(kind, outputs, inputs);
    if (kind == GEMM_INT8 || kind == GEMM_INT16) {
        return int8_value_bytes(&weight) + (size_t)weight.panels * INT8_PANEL * 2 * sizeof(float);
    }
    if (kind == GEMM_SPLIT_F32) { return split_f32_bytes(outputs, inputs) + outputs * sizeof(float); }
    if (kind == GEMM_BF16) { return (size_t)outputs * inputs * sizeof(uint16_t); }
    return plain_bytes(kind, outputs, inputs);
}

void gemm_pack(const struct instruction_set *set, enum gemm_kind kind, uint32_t outputs, uint32_t inputs,
               const float *weight, bool one_sided, void *memory, struct gemm_weight *out)
{
    *out = empty_weight(kind, outputs, inputs);
    if (kind == GEMM_BF16) {
        out->bf16 = memory;
        set->bf16->pack(outputs, inputs, weight, out->bf16);
        return;
    }
    if (kind != GEMM_INT8 && kind != GEMM_INT16 && kind != GEMM_SPLIT_F32) {
        out->plain = memory;
        plain_pack(kind, out, weight);
        return;
    }
    out->scaled.value = memory;
    if (kind == GEMM_INT8 || kind == GEMM_INT16) {
        int8_pack(out, kind, weight, one_sided && kind == GEMM_INT8, kind == GEMM_INT8 ? set->int8->flip : 0);
        return;
    }
    out->scaled.scale = (float *)((char *)memory + split_f32_bytes(outputs, inputs));
    set->split_f32->pack(outputs, inputs, weight, out->scaled);
}

size_t gemm_cache(void)
{
    long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return cache > 0 ? (size_t)cache : 512 << 10;
}

uint32_t gemm_panels(size_t panel_bytes)
{
    size_t panels = gemm_cache() / 2 / panel_bytes;
    return panels > 1 ? (uint32_t)panels : 1;
}
