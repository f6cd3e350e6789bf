/* Runs a product of a kind, and packs weights. */
#include "engine/cpu/gemm.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

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
static void plain_pack(enum gemm_kind kind, uint32_t outputs, uint32_t inputs, const float *from, void *packed)
{
    uint32_t in_step = kind == GEMM_F32 ? 1 : 2, steps = (inputs + in_step - 1) / in_step;
    memset(packed, 0, plain_bytes(kind, outputs, inputs));
    for (uint32_t o = 0; o < outputs; o++, from += inputs) {
        float *to = (float *)packed + ((size_t)(o / GEMM_MULTIPLE) * steps * GEMM_MULTIPLE + o % GEMM_MULTIPLE);
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

/* The weights of an output that go to their other neighbour: those in bins after `edge`, and the first `more` in it. */
struct moves {
    int way, edge;
    uint32_t more;
};

/* Chooses the few weights with the largest remainders, so that the rounding errors of an output add up to less than one
 * step. */
static struct moves choose_moves(const float *from, uint32_t inputs, float inverse)
{
    uint32_t bins[BINS + 1] = {0};
    float sum = 0;
    for (uint32_t i = 0; i < inputs; i++) { sum += from[i] * inverse - round_to_nearest(from[i] * inverse); }
    struct moves moves = {sum < 0 ? -1 : 1, BINS, (uint32_t)round_to_nearest(fabsf(sum))};
    for (uint32_t i = 0; i < inputs; i++) { bins[bin_of(from[i] * inverse, moves.way)]++; }
    for (; moves.edge > BINS / 2 && moves.more > bins[moves.edge]; moves.edge--) { moves.more -= bins[moves.edge]; }
    return moves;
}

static void move_values(struct moves *moves, uint32_t count, const float *scaled, int8_t *value)
{
    for (uint32_t i = 0; i < count; i++) {
        int bin = bin_of(scaled[i], moves->way);
        if (bin < moves->edge || (bin == moves->edge && moves->more == 0) || value[i] * moves->way == INT8_LARGEST) {
            continue;
        }
        moves->more -= bin == moves->edge;
        value[i] = (int8_t)(value[i] + moves->way);
    }
}

/* The largest magnitude; not finite if one of the numbers is not. Magnitudes are in the order of their bits. */
static float largest_of(const float *from, uint32_t count)
{
    int32_t largest = 0;
    float value;
    for (uint32_t i = 0; i < count; i++) {
        int32_t bits;
        memcpy(&bits, from + i, sizeof bits);
        bits &= INT32_MAX;
        largest = bits > largest ? bits : largest;
    }
    memcpy(&value, &largest, sizeof value);
    return value;
}

/* The square root of the sum of squares, in several sums, which need not wait for each other. */
static float norm_of(const float *from, uint32_t count)
{
    double sums[8] = {0};
    for (uint32_t i = 0; i < count; i++) { sums[i % 8] += (double)from[i] * (double)from[i]; }
    for (int i = 1; i < 8; i++) { sums[0] += sums[i]; }
    return (float)sqrt(sums[0]);
}

/* Packs an output into its panel, whose bytes are `flip`. */
static void pack_output(struct gemm_weight *weight, enum gemm_kind kind, uint32_t o, const float *from, bool cancel,
                        uint8_t flip)
{
    uint32_t inputs = weight->inputs, in_step = kind == GEMM_INT16 ? INT8_STEP / 2 : INT8_STEP;
    float largest = largest_of(from, inputs), most = INT8_LARGEST;
    int32_t total = 0;
    if (!isfinite(largest)) { weight->scaled.scale[o] = NAN; }
    if (!isfinite(largest) || largest < 1e-30f) { return; }
    if (kind == GEMM_INT16) { most = int16_most(inputs, largest, norm_of(from, inputs)); }
    float inverse = most / largest;
    struct moves moves = {0};
    if (cancel) { moves = choose_moves(from, inputs, inverse); }
    weight->scaled.scale[o] = largest / most;
    size_t half = (size_t)o / INT8_PANEL * weight->steps * 2 + o % INT8_PANEL / 16;
    int8_t *to = weight->scaled.value + half * 16 * INT8_STEP + o % 16 * 4;
    for (uint32_t first = 0; first < inputs; first += in_step, to += 2 * 16 * INT8_STEP) {
        float scaled[INT8_STEP] = {0};
        union {
            int8_t bytes[INT8_STEP];
            int16_t halves[INT8_STEP / 2];
        } value;
        uint32_t count = inputs - first < in_step ? inputs - first : in_step;
        for (uint32_t i = 0; i < count; i++) { scaled[i] = from[first + i] * inverse; }
        if (kind == GEMM_INT16) {
            for (int i = 0; i < INT8_STEP / 2; i++) { value.halves[i] = (int16_t)round_to_nearest(scaled[i]); }
        } else {
            for (int i = 0; i < INT8_STEP; i++) { value.bytes[i] = (int8_t)round_to_nearest(scaled[i]); }
            if (cancel) { move_values(&moves, count, scaled, value.bytes); }
            for (int i = 0; i < INT8_STEP; i++) { total += value.bytes[i]; }
            for (int i = 0; i < INT8_STEP; i++) { value.bytes[i] = (int8_t)(value.bytes[i] ^ flip); }
        }
        for (int i = 0; i < INT8_STEP; i += 4) { memcpy(to + i / 4 * INT8_STEP, value.bytes + i, 4); }
    }
    weight->total[o] = (float)total * weight->scaled.scale[o];
}

static size_t int8_value_bytes(const struct gemm_weight *weight)
{
    return (size_t)weight->panels * INT8_PANEL * weight->steps * INT8_STEP;
}

static void int8_pack(struct gemm_weight *weight, enum gemm_kind kind, uint32_t first, uint32_t count,
                      const float *from, bool one_sided, uint8_t flip)
{
    size_t panel = (size_t)INT8_PANEL * weight->steps * INT8_STEP;
    for (uint32_t o = first; o < first + count; o++, from += weight->inputs) {
        if (o % INT8_PANEL == 0) {
            memset(weight->scaled.value + o / INT8_PANEL * panel, flip, panel);
            memset(weight->scaled.scale + o, 0, INT8_PANEL * sizeof *weight->scaled.scale);
            memset(weight->total + o, 0, INT8_PANEL * sizeof *weight->total);
        }
        pack_output(weight, kind, o, from, one_sided, flip);
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

struct gemm_weight gemm_place(enum gemm_kind kind, uint32_t outputs, uint32_t inputs, void *memory)
{
    struct gemm_weight weight = empty_weight(kind, outputs, inputs);
    if (kind == GEMM_BF16) {
        weight.bf16 = memory;
    } else if (kind == GEMM_INT8 || kind == GEMM_INT16) {
        weight.scaled.value = memory;
        weight.scaled.scale = (float *)(weight.scaled.value + int8_value_bytes(&weight));
        weight.total = weight.scaled.scale + (size_t)weight.panels * INT8_PANEL;
    } else if (kind == GEMM_SPLIT_F32) {
        weight.scaled.value = memory;
        weight.scaled.scale = (float *)(weight.scaled.value + split_f32_bytes(outputs, inputs));
    } else {
        weight.plain = memory;
    }
    return weight;
}

void gemm_pack(const struct instruction_set *set, enum gemm_kind kind, uint32_t outputs, uint32_t inputs,
               const float *weight, bool one_sided, void *memory, struct gemm_weight *out)
{
    *out = gemm_place(kind, outputs, inputs, memory);
    if (kind == GEMM_BF16) {
        set->bf16->pack(outputs, inputs, weight, out->bf16);
    } else if (kind == GEMM_SPLIT_F32) {
        set->split_f32->pack(outputs, inputs, weight, out->scaled);
    } else {
        gemm_pack_outputs(set, kind, 0, outputs, weight, one_sided, out);
    }
}

void gemm_pack_outputs(const struct instruction_set *set, enum gemm_kind kind, uint32_t first, uint32_t count,
                       const float *from, bool one_sided, struct gemm_weight *weight)
{
    if (kind == GEMM_INT8) {
        int8_pack(weight, kind, first, count, from, one_sided, set->int8->flip);
    } else if (kind == GEMM_INT16) {
        int8_pack(weight, kind, first, count, from, false, 0);
    } else {
        plain_pack(kind, count, weight->inputs, from, (char *)weight->plain + plain_bytes(kind, first, weight->inputs));
    }
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
