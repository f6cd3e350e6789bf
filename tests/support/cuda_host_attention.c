/* Attention in the host table, in plain loops: what cuDNN is asked for when the engine runs on the host. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "cuda_host_private.h"

/* One row and head of a matrix: element (token, column) of it. */
struct view {
    const void *matrix;
    cudaDataType_t type;
    int64_t first, pitch;
};

static float element(const struct view *view, int64_t token, int64_t column)
{
    return host_get_element(view->matrix, view->type, (size_t)(view->first + token * view->pitch + column));
}

static float score(const struct view *query, int64_t q, const struct view *key, int64_t k, int64_t columns)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < columns; i++)
        sum += element(query, q, i) * element(key, k, i);
    return sum;
}

/* The powers of one query's scores, which sum up to 1. */
static void weigh(const struct host_attention *a, const struct view *query, int64_t q, const struct view *key,
                  int64_t keys, float *weights)
{
    float most = -FLT_MAX, sum = 0.0f;
    for (int64_t k = 0; k < keys; k++) {
        weights[k] = a->scale * score(query, q, key, k, a->head_dim);
        most = fmaxf(most, weights[k]);
    }
    for (int64_t k = 0; k < keys; k++) {
        weights[k] = expf(weights[k] - most);
        sum += weights[k];
    }
    for (int64_t k = 0; k < keys; k++)
        weights[k] /= sum;
}

static void attend_head(const struct host_attention *a, int64_t row, int64_t head, float *weights)
{
    const int64_t first = a->starts[row] + head * a->head_dim, to = a->context_starts[row] + head * a->head_dim;
    const struct view query = {a->queries, a->type, first, a->pitch}, key = {a->keys, a->type, first, a->pitch};
    const struct view value = {a->values, a->type, first, a->pitch};
    for (int64_t q = 0; q < a->query_lengths[row]; q++) {
        weigh(a, &query, q, &key, a->key_lengths[row], weights);
        for (int64_t i = 0; i < a->head_dim; i++) {
            float sum = 0.0f;
            for (int64_t k = 0; k < a->key_lengths[row]; k++)
                sum += weights[k] * element(&value, k, i);
            host_put_element(a->context, a->type, (size_t)(to + q * a->context_pitch + i), sum);
        }
    }
}

/* Whether a row of a matrix lies in memory of the device, and lengths are what the plan is for. */
static bool row_is_right(const struct host_attention *a, int64_t row, int device)
{
    const int64_t length = a->query_lengths[row], width = a->heads * a->head_dim;
    const size_t bytes = host_element_bytes(a->type);
    if (length < 0 || length > a->longest || length != a->key_lengths[row]) {
        (void)host_misuse("attention of a row of %ld queries and %d keys, in a plan for %ld", (long)length,
                          a->key_lengths[row], (long)a->longest);
        return false;
    }
    if (length == 0)
        return true;
    const size_t in = (size_t)((length - 1) * a->pitch + width) * bytes;
    const size_t out = (size_t)((length - 1) * a->context_pitch + width) * bytes;
    return host_is_on_device(a->queries + (size_t)a->starts[row] * bytes, in, device, "attention", "the queries") &&
           host_is_on_device(a->keys + (size_t)a->starts[row] * bytes, in, device, "attention", "the keys") &&
           host_is_on_device(a->values + (size_t)a->starts[row] * bytes, in, device, "attention", "the values") &&
           host_is_on_device(a->context + (size_t)a->context_starts[row] * bytes, out, device, "attention",
                             "the context");
}

void host_attend(const struct host_attention *a, int device)
{
    float *weights = calloc((size_t)a->longest, sizeof *weights);
    if (weights == NULL)
        abort();
    for (int64_t row = 0; row < a->rows && row_is_right(a, row, device); row++)
        for (int64_t head = 0; head < a->heads; head++)
            attend_head(a, row, head, weights);
    free(weights);
}
