/* The host table's matrix product, in plain loops: elements of any of three types, sums in f32, one rounding. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_host_private.h"

enum { MOST_PARTS = CUDA_HOST_ALGORITHMS };

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To the nearest f16, ties to even. */
static uint16_t to_half(float value)
{
    uint32_t sign = bits_of(value) >> 16 & 0x8000u;
    float size = fabsf(value);
    if (isnan(value))
        return (uint16_t)(sign | 0x7e00u);
    if (size >= 65520.0f) /* half way from the largest f16 to what would follow it */
        return (uint16_t)(sign | 0x7c00u);
    if (size < 0x1p-14f) /* multiples of 2^-24; what rounds up to 2^-14 has its bits already */
        return (uint16_t)(sign | (uint32_t)(int32_t)rintf(size * 0x1p24f));
    uint32_t bits = bits_of(size);
    bits += 0xfffu + (bits >> 13 & 1u);
    return (uint16_t)(sign | (bits - (112u << 23)) >> 13);
}

static float from_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = half >> 10 & 0x1fu;
    uint32_t fraction = half & 0x3ffu;
    if (exponent == 0)
        return float_of(bits_of((float)fraction * 0x1p-24f) | sign);
    if (exponent == 31)
        return float_of(sign | 0x7f800000u | fraction << 13);
    return float_of(sign | (exponent + 112u) << 23 | fraction << 13);
}

static uint16_t to_bfloat(float value)
{
    uint32_t bits = bits_of(value);
    if (isnan(value))
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

size_t host_element_bytes(cudaDataType_t type)
{
    return type == CUDA_R_32F ? 4 : type == CUDA_R_16F || type == CUDA_R_16BF ? 2 : 0;
}

void host_put_element(void *matrix, cudaDataType_t type, size_t index, float value)
{
    if (type == CUDA_R_32F)
        ((float *)matrix)[index] = value;
    else
        ((uint16_t *)matrix)[index] = type == CUDA_R_16F ? to_half(value) : to_bfloat(value);
}

float host_get_element(const void *matrix, cudaDataType_t type, size_t index)
{
    if (type == CUDA_R_32F)
        return ((const float *)matrix)[index];
    uint16_t bits = ((const uint16_t *)matrix)[index];
    return type == CUDA_R_16F ? from_half(bits) : float_of((uint32_t)bits << 16);
}

/* A matrix as floats, in `rows` runs of `length` elements each: the columns of a stored matrix, or its rows. */
static float *unpack(const void *from, const struct host_matrix *m, bool by_rows)
{
    uint64_t runs = by_rows ? m->rows : m->columns;
    uint64_t length = by_rows ? m->columns : m->rows;
    float *out = malloc(runs * length * sizeof *out + 1);
    if (out == NULL)
        abort();
    for (uint64_t r = 0; r < runs; r++) {
        for (uint64_t i = 0; i < length; i++) {
            size_t at = by_rows ? i * (size_t)m->ld + r : r * (size_t)m->ld + i;
            out[r * length + i] = host_get_element(from, m->type, at);
        }
    }
    return out;
}

/* Adds in `parts` interleaved sums, so that the number of parts shows in the last bits. */
static float dot(const float *a, const float *b, uint64_t length, uint32_t parts)
{
    float sums[MOST_PARTS] = {0};
    for (uint32_t p = 0; p < parts; p++) {
        for (uint64_t i = p; i < length; i += parts)
            sums[p] += a[i] * b[i];
    }
    for (uint32_t p = 1; p < parts; p++)
        sums[0] += sums[p];
    return sums[0];
}

static float gelu_tanh(float x)
{
    return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

static float finish(const struct host_product *p, float value, uint64_t row)
{
    if (p->bias != NULL)
        value += host_get_element(p->bias, p->d.type, row);
    if (p->epilogue & CUBLASLT_EPILOGUE_GELU)
        return gelu_tanh(value);
    if (p->epilogue & CUBLASLT_EPILOGUE_RELU)
        return isnan(value) || value > 0.0f ? value : 0.0f;
    return value;
}

static void spoil(const struct host_product *p)
{
    if (!host.spoil.planted || host.spoil.type != p->d.type)
        return;
    uint32_t number = ++host.spoil.seen;
    if (number >= host.spoil.at && (host.spoil.times == 0 || number - host.spoil.at < host.spoil.times))
        host_put_element(p->to, p->d.type, 0, NAN);
}

void host_multiply(const struct host_product *p)
{
    uint64_t inner = p->b.rows;
    float *a = unpack(p->from_a, &p->a, !p->transpose_a); /* [d.rows, inner] */
    float *b = unpack(p->from_b, &p->b, false);           /* [d.columns, inner] */
    for (uint64_t column = 0; column < p->d.columns; column++) {
        for (uint64_t row = 0; row < p->d.rows; row++) {
            size_t at = column * (size_t)p->d.ld + row;
            float value = p->alpha * dot(a + row * inner, b + column * inner, inner, p->algorithm + 1);
            if (p->beta != 0.0f)
                value += p->beta * host_get_element(p->from_c, p->d.type, at);
            host_put_element(p->to, p->d.type, at, finish(p, value, row));
        }
    }
    free(a);
    free(b);
    spoil(p);
}
