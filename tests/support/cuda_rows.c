#include "cuda_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "encoder_reference.h"

static void give_up(const char *why)
{
    fprintf(stderr, "cuda_rows: %s\n", why);
    abort();
}

static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*state >> 40);
}

void cuda_rows_make(struct cuda_rows *rows, const struct model *model, const uint32_t *lengths, uint32_t stride,
                    uint64_t seed)
{
    uint32_t count = 0, at = 0;
    uint64_t state = seed * 2 + 1;
    for (uint32_t i = 0; i < CUDA_ROWS_TOKENS; i++) { rows->ids[i] = -1; }
    for (; lengths[count] != 0; count++) {
        if (count == CUDA_ROWS_MOST || at + lengths[count] > CUDA_ROWS_TOKENS) { give_up("too many rows or tokens"); }
        rows->start[count] = at;
        rows->length[count] = lengths[count];
        for (uint32_t t = 0; t < lengths[count]; t++) {
            bool padding = model->position_offset > 0 && t % 3 == 0;
            rows->ids[at + t] =
                (int32_t)(padding ? model->position_offset - 1 : next_random(&state) % model->vocabulary);
        }
        at += stride == 0 ? lengths[count] : stride;
    }
    if (at > CUDA_ROWS_TOKENS || count * model->dim > sizeof rows->output / sizeof(float)) {
        give_up("too many tokens or floats");
    }
    rows->dim = model->dim;
    rows->batch = (struct engine_batch){count, at, rows->ids, rows->start, rows->length, rows->output};
    memset(rows->output, 0xff, sizeof rows->output);
}

struct cuda_distance cuda_rows_compare(const struct cuda_rows *rows, const struct model *model)
{
    struct cuda_distance worst = {1, 0};
    double expected[256];
    for (uint32_t r = 0; r < rows->batch.rows; r++) {
        const float *vector = rows->output + (size_t)r * model->dim;
        double ab = 0, aa = 0, bb = 0;
        reference_encode(model, rows->ids + rows->start[r], rows->length[r], expected);
        for (uint32_t i = 0; i < model->dim; i++) {
            ab += vector[i] * expected[i];
            aa += (double)vector[i] * vector[i];
            bb += expected[i] * expected[i];
            double difference = fabs(vector[i] - expected[i]);
            worst.difference = difference <= worst.difference ? worst.difference : difference; /* also a NaN */
        }
        double cosine = ab / sqrt(aa * bb);
        worst.cosine = cosine >= worst.cosine ? worst.cosine : cosine;
    }
    return worst;
}

struct cuda_opened cuda_opened(struct model *model, const struct engine_options *options)
{
    struct cuda_opened opened = {.model = model};
    struct engine_options cuda = options == NULL ? (struct engine_options){.batch_tokens = CUDA_ROWS_TOKENS} : *options;
    struct err err = {0};
    cuda.backend = "cuda";
    cuda.cache_path = "";
    if (engine_open(model, &cuda, &opened.engine, &err) != STATUS_OK) { give_up(err.message); }
    if (encoder_open(opened.engine, &opened.encoder, &err) != STATUS_OK) { give_up(err.message); }
    return opened;
}

void cuda_opened_close(struct cuda_opened *opened)
{
    encoder_close(opened->encoder);
    engine_close(opened->engine);
    memory_model_free(opened->model);
    *opened = (struct cuda_opened){0};
}
