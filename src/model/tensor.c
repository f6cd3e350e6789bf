/* Weights of any dtype as f32, bit for bit. bf16 is the upper half of an f32; f16 is widened with integer arithmetic,
 * so that subnormals, infinities and the payload of a NaN come out the same on every machine. */
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "model/model.h"

/* Source: IEEE 754-2008, binary16 and binary32. A subnormal half is exact in f32: its value is mantissa * 2^-24. */
static inline float widen_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = half >> 10 & 0x1Fu;
    uint32_t mantissa = half & 0x3FFu;
    uint32_t bits;
    if (exponent == 0x1F) {
        bits = sign | 0x7F800000u | mantissa << 13;
    } else if (exponent != 0) {
        bits = sign | (exponent + 112) << 23 | mantissa << 13;
    } else {
        float magnitude = (float)mantissa * 0x1p-24f;
        memcpy(&bits, &magnitude, sizeof bits);
        bits |= sign;
    }
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float widen_bf16(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void tensor_read_f32(const struct tensor *tensor, size_t first, size_t count, float *to)
{
    const unsigned char *data = tensor->data;
    if (tensor->dtype == DTYPE_F32) {
        memcpy(to, data + first * sizeof(float), count * sizeof(float));
        return;
    }
    const unsigned char *from = data + first * sizeof(uint16_t);
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, from + i * sizeof half, sizeof half);
        to[i] = tensor->dtype == DTYPE_F16 ? widen_f16(half) : widen_bf16(half);
    }
}

void tensor_release(const struct tensor *tensor)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)tensor->data;
    size_t bytes = tensor->elements * (tensor->dtype == DTYPE_F32 ? sizeof(float) : sizeof(uint16_t));
    uintptr_t first = (from + page - 1) / page * page, end = (from + bytes) / page * page;
    if (first < end)
        (void)madvise((void *)first, end - first, MADV_DONTNEED); /* NOLINT(performance-no-int-to-ptr) */
}
