/* The host table's matrix product, in plain loops: elements of any of three types, sums in f32, one rounding. */
#include <math.h>
#include <stdlib.h>

#include "cuda_host_private.h"
#include "kernel_numbers.h"

enum { MOST_PARTS = CUDA_HOST_ALGORITHMS };

size_t host_element_bytes(cudaDataType_t type)
{
    return type == CUDA_R_32F ? 4 : type == CUDA_R_16F || type == CUDA_R_16BF ? 2 : 0;
}

void host_put_element(void *matrix, cudaDataType_t type, size_t index, float value)
{
    if (type == CUDA_R_32F)
        ((float *)matrix)[index] = value;
    else
        ((uint16_t *)matrix)[index] = type == CUDA_R_16F ? f16_from_f32(value) : bf16_from_f32(value);
}

float host_get_element(const void *matrix, cudaDataType_t type, size_t index)
{
    if (type == CUDA_R_32F)
        return ((const float *)matrix)[index];
    uint16_t bits = ((const uint16_t *)matrix)[index];
    return type == CUDA_R_16F ? f32_from_f16(bits) : f32_from_bf16(bits);
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
