/* An f32 product with few rows, in AVX-512, on the weights as oneDNN packs them there. Included by the files that are
 * compiled for it, behind vec_avx512.h.
 *
 * With few rows a weight is read from memory for a handful of products, so that half of the time goes into waiting for
 * it. The way out is to ask for the next strip of the weight while this one is computed; that has to happen evenly, a
 * line or two a step, because a burst of requests waits for itself. oneDNN's kernels leave no place for it. Every sum
 * runs over the inputs in their order, as oneDNN's do; whether the bits are the same is checked where it is used
 * (cpu_matmul_check.c). */
#ifndef ENGINE_CPU_FEW_ROWS_H
#define ENGINE_CPU_FEW_ROWS_H

#include "engine/cpu_kernels.h"

enum { FEW_VECS = FEW_STRIP / VEC, FEW_TOGETHER = 6 };

/* A few rows with the whole strip. With each input so many `lines` of the next strip are asked for, from number `first`
 * on, counted input by input: in this order the processor's own prefetching joins in. */
static inline __attribute__((always_inline)) void few_group(const struct few_job *job, uint32_t row,
                                                            const uint32_t rows, size_t first, uint32_t lines)
{
    const float *from = job->from + row * job->from_stride, *strip = job->strip;
    const float *ahead = lines == 0 ? strip : job->ahead + first / FEW_VECS * job->ahead_stride;
    uint32_t column = first % FEW_VECS;
    vec sums[FEW_TOGETHER][FEW_VECS];
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t v = 0; v < FEW_VECS; v++)
            sums[r][v] = vec_set(0.0f);
    for (uint32_t i = 0; i < job->inputs; i++, strip += job->strip_stride) {
        vec weight[FEW_VECS];
        for (uint32_t v = 0; v < FEW_VECS; v++)
            weight[v] = vec_load(strip + v * VEC);
        for (uint32_t r = 0; r < rows; r++) {
            vec x = vec_set(from[r * job->from_stride + i]);
            for (uint32_t v = 0; v < FEW_VECS; v++)
                sums[r][v] = vec_fma(x, weight[v], sums[r][v]);
        }
        for (uint32_t l = 0; l < lines; l++)
            __builtin_prefetch(ahead + (column + l) * VEC, 0, 2);
        column += lines;
        if (column >= FEW_VECS) {
            column -= FEW_VECS;
            ahead += job->ahead_stride;
        }
    }
    for (uint32_t r = 0; r < rows; r++) {
        float *to = job->to + (row + r) * job->to_stride;
        for (uint32_t v = 0; v < FEW_VECS; v++)
            vec_store(to + v * VEC, job->adds ? vec_add(sums[r][v], vec_load(to + v * VEC)) : sums[r][v]);
    }
}

static void few_rows(const struct few_job *job)
{
    uint32_t groups = (job->rows + FEW_TOGETHER - 1) / FEW_TOGETHER, asked = job->ahead == NULL ? 0 : FEW_VECS;
    for (uint32_t group = 0, row = 0; group < groups; group++) {
        uint32_t rows = (job->rows - row + groups - group - 1) / (groups - group);
        uint32_t first = asked * group / groups, lines = asked * (group + 1) / groups - first;
        size_t line = (size_t)first * job->inputs;
        switch (rows) {
        case 1:
            few_group(job, row, 1, line, lines);
            break;
        case 2:
            few_group(job, row, 2, line, lines);
            break;
        case 3:
            few_group(job, row, 3, line, lines);
            break;
        case 4:
            few_group(job, row, 4, line, lines);
            break;
        case 5:
            few_group(job, row, 5, line, lines);
            break;
        default:
            few_group(job, row, 6, line, lines);
        }
        row += rows;
    }
}

#endif
