/* The normalisation that ends in int8: what a product gives is added to the rows, and they go out normalised, as floats
 * and in whole numbers. Included by cpu_int8_body.h, behind its words.
 *
 * Some rows go through in step, so that none waits for its own sums. What is done to a row does not depend on how many
 * there are. */
#ifndef ENGINE_CPU_INT8_NORM_H
#define ENGINE_CPU_INT8_NORM_H

#include "engine/cpu_int8_rows.h"

enum { NORM_ROWS = 4 };

/* What a product in int8 gives some outputs: the vectors of a job's weight at one place. */
struct int8_outputs {
    vec scale, total;
};

/* `to` and what the product gives the outputs from i on of a row. */
INLINE vec int8_product_of(const struct int8_norm_job *job, struct int8_outputs at, uint32_t row, uint32_t i, vec to)
{
    const int32_t *sums = job->sums + (size_t)row * job->weight->panels * INT8_PANEL;
    vec y = vec_fma(vec_set(job->from_offset[row]), at.total, to);
    return vec_fma(vec_mul(vec_from_s32(sums + i), at.scale), vec_set(job->from_scale[row]), y);
}

/* x + bias + product; the sums of the rows are put into `mean` as means. */
INLINE void int8_add_rows(const struct int8_norm_job *job, uint32_t row, uint32_t rows, bool whole, bool plain,
                          float *mean)
{
    uint32_t width = job->outputs;
    float *x = job->x + (size_t)row * width;
    struct int8_outputs at = {vec_set(0.0f), vec_set(0.0f)};
    vec all[NORM_ROWS];
    for (uint32_t r = 0; r < rows; r++)
        all[r] = vec_set(0.0f);
    for (uint32_t i = 0; i < width; i += VEC) {
        uint32_t left = whole ? VEC : width - i;
        vec bias = load_upto(job->bias + i, left);
        if (!plain) {
            at.scale = load_upto(job->weight->scale + i, left);
            at.total = load_upto(job->weight->total + i, left);
        }
        for (uint32_t r = 0; r < rows; r++) {
            vec y = vec_add(load_upto(x + (size_t)r * width + i, left), bias);
            if (plain)
                y = vec_add(load_upto(job->product + (size_t)(row + r) * width + i, left), y);
            else
                y = int8_product_of(job, at, row + r, i, y);
            all[r] = vec_add(all[r], y);
            int8_store(x + (size_t)r * width + i, y, left);
        }
    }
    for (uint32_t r = 0; r < rows; r++)
        mean[r] = vec_sum(all[r]) / (float)width;
}

/* 1 / the deviation of each row. */
INLINE void int8_deviations(const struct int8_norm_job *job, uint32_t row, uint32_t rows, const float *mean,
                            float *inverse)
{
    uint32_t width = job->outputs, i = 0;
    const float *x = job->x + (size_t)row * width;
    vec total[NORM_ROWS];
    for (uint32_t r = 0; r < rows; r++)
        total[r] = vec_set(0.0f);
    for (; i + VEC <= width; i += VEC) {
        for (uint32_t r = 0; r < rows; r++) {
            vec d = vec_sub(vec_load(x + (size_t)r * width + i), vec_set(mean[r]));
            total[r] = vec_fma(d, d, total[r]);
        }
    }
    for (uint32_t r = 0; r < rows; r++) {
        float square = vec_sum(total[r]);
        for (uint32_t k = i; k < width; k++)
            square += (x[r * width + k] - mean[r]) * (x[r * width + k] - mean[r]);
        inverse[r] = 1.0f / sqrtf(square / (float)width + job->norm->eps);
    }
}

/* Rows from beginning to end; `whole`: their width is a multiple of VEC. */
INLINE void int8_norm_rows(const struct int8_norm_job *job, uint32_t row, uint32_t rows, bool whole)
{
    uint32_t width = job->outputs;
    size_t stride = (size_t)(width + INT8_STEP - 1) / INT8_STEP * INT8_STEP;
    float mean[NORM_ROWS], inverse[NORM_ROWS], *x = job->x + (size_t)row * width;
    const float *gains = job->norm->gain, *biases = job->norm->bias;
    int8_t *to = job->to.value + row * stride;
    struct vec_range range[NORM_ROWS];
    struct int8_fit fit[NORM_ROWS];
    if (job->product != NULL)
        int8_add_rows(job, row, rows, whole, true, mean);
    else
        int8_add_rows(job, row, rows, whole, false, mean);
    int8_deviations(job, row, rows, mean, inverse);
    for (uint32_t r = 0; r < rows; r++)
        range[r] = vec_range_none();
    for (uint32_t i = 0; i < width; i += VEC) {
        uint32_t left = whole ? VEC : width - i;
        vec gain = load_upto(gains + i, left), bias = load_upto(biases + i, left);
        for (uint32_t r = 0; r < rows; r++) {
            vec y = vec_sub(load_upto(x + (size_t)r * width + i, left), vec_set(mean[r]));
            y = vec_fma(vec_mul(y, vec_set(inverse[r])), gain, bias);
            range[r] = vec_widen(range[r], y);
            int8_store(x + (size_t)r * width + i, y, left);
        }
    }
    for (uint32_t r = 0; r < rows; r++)
        fit[r] = int8_fit_row(range[r], job->to, row + r);
    for (uint32_t i = 0; i < width; i += VEC)
        for (uint32_t r = 0; r < rows; r++)
            int8_store_whole(to + r * stride + i, load_upto(x + (size_t)r * width + i, whole ? VEC : width - i), fit[r],
                             whole ? VEC : width - i);
}

static void int8_add_norm(const struct int8_norm_job *job)
{
    bool whole = job->outputs % VEC == 0;
    uint32_t row = 0;
    for (; whole && row + NORM_ROWS <= job->rows; row += NORM_ROWS)
        int8_norm_rows(job, row, NORM_ROWS, true);
    for (; row < job->rows; row++)
        int8_norm_rows(job, row, 1, false);
}

#endif
