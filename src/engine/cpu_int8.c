/* Weights in int8, and which kernels this machine gets. */
#include "engine/cpu_int8.h"

#include <dnnl.h>
#include <math.h>
#include <stdlib.h>
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

enum status int8_weight_pack(uint32_t outputs, uint32_t inputs, const float *weight, struct int8_weight *out,
                             struct err *err)
{
    *out = (struct int8_weight){.outputs = outputs, .inputs = inputs};
    out->panels = (outputs + INT8_PANEL - 1) / INT8_PANEL;
    out->steps = (inputs + INT8_STEP - 1) / INT8_STEP;
    size_t values = (size_t)out->panels * INT8_PANEL * out->steps * INT8_STEP;
    size_t scales = (size_t)out->panels * INT8_PANEL * sizeof *out->scale;
    out->bytes = values + scales;
    out->packed = aligned_alloc(64, values);
    out->scale = aligned_alloc(64, scales);
    if (out->packed == NULL || out->scale == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for %zu weights", values);
    memset(out->packed, 0, values);
    memset(out->scale, 0, scales);
    for (uint32_t o = 0; o < outputs; o++)
        pack_output(out, o, weight + (size_t)o * inputs);
    return STATUS_OK;
}

void int8_weight_close(struct int8_weight *weight)
{
    free(weight->packed);
    free(weight->scale);
    *weight = (struct int8_weight){0};
}
