#include "generate/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"

struct sampler {
    uint32_t vocabulary;
    struct token_logit *heap; /* [vocabulary]: tokens, the likeliest first; what was taken is at its end */
    unsigned char *seen;      /* [vocabulary]: the penalty was applied to this id; all zero between draws */
};

enum status sampler_open(uint32_t vocabulary, struct sampler **out, struct err *err)
{
    *out = NULL;
    struct sampler *sampler = calloc(1, sizeof *sampler);
    if (sampler) {
        sampler->vocabulary = vocabulary;
        sampler->heap = calloc(vocabulary, sizeof *sampler->heap);
        sampler->seen = calloc(vocabulary, 1);
    }
    if (!sampler || !sampler->heap || !sampler->seen) {
        sampler_close(sampler);
        return err_set(err, STATUS_NO_MEMORY, "no memory to draw from %u tokens", vocabulary);
    }
    *out = sampler;
    return STATUS_OK;
}

void sampler_close(struct sampler *sampler)
{
    if (!sampler) { return; }
    free(sampler->heap);
    free(sampler->seen);
    free(sampler);
}

/* Each id of the text once, however often it is in it. */
static void penalize_repetition(struct sampler *sampler, double penalty, float *logits, const int32_t *ids,
                                uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id = (uint32_t)ids[i];
        if (sampler->seen[id]) { continue; }
        sampler->seen[id] = 1;
        logits[id] = (float)(logits[id] < 0 ? logits[id] * penalty : logits[id] / penalty);
    }
    for (uint32_t i = 0; i < count; i++) { sampler->seen[ids[i]] = 0; }
}

static bool is_likelier(struct token_logit a, struct token_logit b)
{
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/* Moves the token at `at` down to its place in heap[count]. */
static void sink_token(struct token_logit *heap, uint32_t count, uint32_t at)
{
    struct token_logit token = heap[at];
    for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && is_likelier(heap[child + 1], heap[child])) { child++; }
        if (!is_likelier(heap[child], token)) { break; }
        heap[at] = heap[child];
    }
    heap[at] = token;
}

static void fill_heap(struct sampler *sampler, const float *logits)
{
    for (uint32_t i = 0; i < sampler->vocabulary; i++) {
        sampler->heap[i] = (struct token_logit){logits[i], (int32_t)i};
    }
    for (uint32_t i = sampler->vocabulary / 2; i-- > 0;) { sink_token(sampler->heap, sampler->vocabulary, i); }
}

/* Takes the likeliest token out of heap[count], to heap[count - 1]. */
static struct token_logit take_likeliest(struct token_logit *heap, uint32_t count)
{
    struct token_logit likeliest = heap[0];
    heap[0] = heap[count - 1];
    sink_token(heap, count - 1, 0);
    return heap[count - 1] = likeliest;
}

/* Logits side by side: a step looks at all the vocabulary for each of its texts. */
enum { LANES = 4 };
typedef float floats __attribute__((vector_size(LANES * sizeof(float))));
typedef int32_t integers __attribute__((vector_size(LANES * sizeof(int32_t))));

/* Finds the likeliest token, of equals the lowest id. Returns false if a logit is not finite: x - x is 0 only if x is.
 */
static bool find_likeliest(const float *logits, uint32_t vocabulary, uint32_t *best)
{
    floats largest = {logits[0], logits[0], logits[0], logits[0]}, spoilt = {0};
    integers at = {0}, ids = {0, 1, 2, 3};
    uint32_t i = 0;
    for (; i + LANES <= vocabulary; i += LANES, ids += LANES) {
        floats x;
        memcpy(&x, logits + i, sizeof x);
        integers larger = x > largest;
        largest = (floats)(((integers)x & larger) | ((integers)largest & ~larger));
        at = (ids & larger) | (at & ~larger);
        spoilt += x - x;
    }
    float sum = 0;
    *best = 0;
    for (int lane = 0; lane < LANES; lane++) {
        uint32_t id = (uint32_t)at[lane];
        bool likelier = logits[id] > logits[*best] || (logits[id] == logits[*best] && id < *best);
        *best = likelier ? id : *best;
        sum += spoilt[lane];
    }
    for (; i < vocabulary; i++) {
        *best = logits[i] > logits[*best] ? i : *best;
        sum += logits[i] - logits[i];
    }
    return sum == 0;
}

/* The sum of exp((logit - top) / temperature) over all tokens, by their ids. */
static double sum_weights(const float *logits, uint32_t vocabulary, float top, double temperature)
{
    double sum = 0;
    for (uint32_t i = 0; i < vocabulary; i++) { sum += exp((logits[i] - top) / temperature); }
    return sum;
}

/* A number from 0 to just below 1 for a seed and a position. */
static double draw_share(uint64_t seed, uint32_t position)
{
    uint64_t state = random_next(&seed) ^ position;
    return random_share(&state);
}

/* Draws by the order of ids, without a choice of tokens. */
static int32_t draw_from_all(const float *logits, uint32_t vocabulary, uint32_t best, double temperature, double share)
{
    double left = share * sum_weights(logits, vocabulary, logits[best], temperature);
    for (uint32_t i = 0; i < vocabulary; i++) {
        left -= exp((logits[i] - logits[best]) / temperature);
        if (left < 0) { return (int32_t)i; }
    }
    return (int32_t)best; /* rounding has left a rest */
}

/* Chooses tokens by top-k, top-p and min-p, and draws in the order of their probabilities. */
static int32_t draw_from_likeliest(struct sampler *sampler, const struct sampling *sampling, const float *logits,
                                   double share)
{
    uint32_t vocabulary = sampler->vocabulary;
    struct token_logit *heap = sampler->heap;
    fill_heap(sampler, logits);
    float top = heap[0].logit;
    double temperature = sampling->temperature, kept = 0, whole = 0;
    bool cut = sampling->top_k > 0 && sampling->top_k < vocabulary;
    uint32_t most = cut ? sampling->top_k : vocabulary, count = 0;
    if (cut) { /* top-p means a share of what top-k has left */
        for (uint32_t i = 0; i < most; i++) {
            whole += exp((take_likeliest(heap, vocabulary - i).logit - top) / temperature);
        }
    } else {
        whole = sum_weights(logits, vocabulary, top, temperature);
    }
    double wanted = sampling->top_p > 0 && sampling->top_p < 1 ? sampling->top_p * whole : INFINITY;
    while (count < most && kept < wanted) {
        struct token_logit token = cut ? heap[vocabulary - 1 - count] : take_likeliest(heap, vocabulary - count);
        double weight = exp((token.logit - top) / temperature);
        if (weight < sampling->min_p) { break; }
        kept += weight;
        count++;
    }
    double left = share * kept;
    for (uint32_t i = 0; i < count; i++) {
        left -= exp((heap[vocabulary - 1 - i].logit - top) / temperature);
        if (left < 0) { return heap[vocabulary - 1 - i].id; }
    }
    return heap[vocabulary - 1].id; /* rounding has left a rest */
}

enum status sampler_draw(struct sampler *sampler, const struct sampling *sampling, float *logits, const int32_t *ids,
                         uint32_t count, int32_t *id, struct err *err)
{
    uint32_t best, bad = 0;
    if (!find_likeliest(logits, sampler->vocabulary, &best)) {
        while (isfinite(logits[bad])) { bad++; }
        return err_set(err, STATUS_NON_FINITE, "the logit of token %u at position %u is not finite", bad, count);
    }
    if (sampling->repetition_penalty > 0 && sampling->repetition_penalty != 1) {
        penalize_repetition(sampler, sampling->repetition_penalty, logits, ids, count);
        find_likeliest(logits, sampler->vocabulary, &best);
    }
    bool chooses = sampling->top_k > 0 || (sampling->top_p > 0 && sampling->top_p < 1) || sampling->min_p > 0;
    double share = draw_share(sampling->seed, count);
    if (sampling->temperature <= 0) {
        *id = (int32_t)best;
    } else if (chooses) {
        *id = draw_from_likeliest(sampler, sampling, logits, share);
    } else {
        *id = draw_from_all(logits, sampler->vocabulary, best, sampling->temperature, share);
    }
    return STATUS_OK;
}

float sampler_logprobs(struct sampler *sampler, const float *logits, int32_t id, uint32_t most, struct token_logit *top)
{
    uint32_t likeliest;
    find_likeliest(logits, sampler->vocabulary, &likeliest);
    float best = logits[likeliest];
    double whole = best + log(sum_weights(logits, sampler->vocabulary, best, 1));
    if (most > 0) { fill_heap(sampler, logits); }
    for (uint32_t i = 0; i < most; i++) {
        top[i] = take_likeliest(sampler->heap, sampler->vocabulary - i);
        top[i].logit = (float)(top[i].logit - whole);
    }
    return (float)(logits[id] - whole);
}
