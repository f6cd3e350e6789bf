/* Weights in int8, and which kernels this machine gets. */
#include "engine/cpu/gemm_int8.h"

#include <dnnl.h>
#include <math.h>
#include <string.h>

const struct int8_kernels *const int8_all[] = {
#ifdef SLUICE_X86
    &int8_amx,     &int8_vnni, &int8_avx2,
#endif
    &int8_generic, NULL,
};

const struct int8_kernels *int8_pick(void)
{
    const struct int8_kernels *const *kernels = int8_all;
    while (!(*kernels)->runs_here())
        kernels++;
    return *kernels;
}

/* Where input i of output o stands in the packed weight. */
static size_t packed_at(const struct int8_weight *weight, uint32_t o, uint32_t i)
{
    size_t tile = ((size_t)(o / INT8_PANEL) * weight->steps + i / INT8_STEP) * 2 + o % INT8_PANEL / 16;
    return tile * 16 * INT8_STEP + i % INT8_STEP / 4 * INT8_STEP + o % 16 * 4 + i % 4;
}

/* The nearest whole number; rintf would be a call. */
static float nearest(float value)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23 */
    return value + shift - shift;
}

enum { BINS = 128 }; /* of remainders from -1/2 to 1/2, in the order in which they go one way */

static int bin_of(float value, int way)
{
    return (int)(((value - nearest(value)) * (float)way + 0.5f) * BINS);
}

/* Moves the few weights whose remainders go furthest one way on to the next number that way, so that the remainders of
 * an output come to less than one step. Returns what that adds to the sum of its weights. */
static int32_t cancel_remainders(struct int8_weight *weight, uint32_t o, const float *from, float inverse)
{
    uint32_t bins[BINS + 1] = {0};
    float sum = 0;
    for (uint32_t i = 0; i < weight->inputs; i++)
        sum += from[i] * inverse - nearest(from[i] * inverse);
    int way = sum < 0 ? -1 : 1, moved = 0;
    for (uint32_t i = 0; i < weight->inputs; i++)
        bins[bin_of(from[i] * inverse, way)]++;
    int edge = BINS; /* all of later bins move, and `more` of this one */
    uint32_t more = (uint32_t)nearest(fabsf(sum));
    for (; edge > BINS / 2 && more > bins[edge]; edge--)
        more -= bins[edge];
    for (uint32_t i = 0; i < weight->inputs; i++) {
        int bin = bin_of(from[i] * inverse, way);
        int8_t *to = weight->packed + packed_at(weight, o, i);
        if (bin < edge || (bin == edge && more == 0) || *to * way == INT8_LARGEST)
            continue;
        more -= bin == edge;
        *to = (int8_t)(*to + way);
        moved += way;
    }
    return moved;
}

static void pack_output(struct int8_weight *weight, uint32_t o, const float *from, bool cancel)
{
    float largest = 0;
    bool finite = true;
    int32_t total = 0;
    for (uint32_t i = 0; i < weight->inputs; i++) {
        largest = fabsf(from[i]) > largest ? fabsf(from[i]) : largest;
        finite = finite && isfinite(from[i]);
    }
    if (!finite)
        weight->scale[o] = NAN;
    if (!finite || largest < 1e-30f)
        return;
    float inverse = INT8_LARGEST / largest;
    for (uint32_t i = 0; i < weight->inputs; i += 4) {
        int8_t *to = weight->packed + packed_at(weight, o, i);
        for (uint32_t k = 0; k < 4 && i + k < weight->inputs; k++) {
            to[k] = (int8_t)nearest(from[i + k] * inverse);
            total += to[k];
        }
    }
    if (cancel)
        total += cancel_remainders(weight, o, from, inverse);
    weight->scale[o] = largest / INT8_LARGEST;
    weight->total[o] = (float)total * weight->scale[o];
}

static struct int8_weight empty_weight(uint32_t outputs, uint32_t inputs)
{
    return (struct int8_weight){
        .outputs = outputs,
        .inputs = inputs,
        .panels = (outputs + INT8_PANEL - 1) / INT8_PANEL,
        .steps = (inputs + INT8_STEP - 1) / INT8_STEP,
    };
}

static size_t value_bytes(const struct int8_weight *weight)
{
    return (size_t)weight->panels * INT8_PANEL * weight->steps * INT8_STEP;
}

size_t int8_weight_bytes(uint32_t outputs, uint32_t inputs)
{
    struct int8_weight weight = empty_weight(outputs, inputs);
    return value_bytes(&weight) + (size_t)weight.panels * INT8_PANEL * (sizeof *weight.scale + sizeof *weight.total);
}

void int8_weight_pack(uint32_t outputs, uint32_t inputs, const float *weight, bool one_sided, void *memory,
                      struct int8_weight *out)
{
    *out = empty_weight(outputs, inputs);
    out->packed = memory;
    out->scale = (float *)(out->packed + value_bytes(out));
    out->total = out->scale + (size_t)out->panels * INT8_PANEL;
    memset(memory, 0, int8_weight_bytes(outputs, inputs));
    for (uint32_t o = 0; o < outputs; o++)
        pack_output(out, o, weight + (size_t)o * inputs, one_sided);
}
