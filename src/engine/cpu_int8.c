/* Weights in int8, and which kernels this machine gets. */
#include "engine/cpu_int8.h"

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

static void pack_output(struct int8_weight *weight, uint32_t o, const float *from)
{
    float largest = 0;
    bool finite = true;
    for (uint32_t i = 0; i < weight->inputs; i++) {
        largest = fmaxf(largest, fabsf(from[i]));
        finite = finite && isfinite(from[i]);
    }
    weight->scale[o] = finite ? largest / INT8_LARGEST : NAN;
    if (!finite || largest == 0)
        return;
    for (uint32_t i = 0; i < weight->inputs; i += 4) {
        int8_t *to = weight->packed + packed_at(weight, o, i);
        for (uint32_t k = 0; k < 4 && i + k < weight->inputs; k++) /* in f64, lest 127 / largest overflow */
            to[k] = (int8_t)rint((double)from[i + k] * INT8_LARGEST / (double)largest);
    }
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
    return value_bytes(&weight) + (size_t)weight.panels * INT8_PANEL * sizeof *weight.scale;
}

void int8_weight_pack(uint32_t outputs, uint32_t inputs, const float *weight, void *memory, struct int8_weight *out)
{
    *out = empty_weight(outputs, inputs);
    out->packed = memory;
    out->scale = (float *)(out->packed + value_bytes(out));
    memset(memory, 0, int8_weight_bytes(outputs, inputs));
    for (uint32_t o = 0; o < outputs; o++)
        pack_output(out, o, weight + (size_t)o * inputs);
}
