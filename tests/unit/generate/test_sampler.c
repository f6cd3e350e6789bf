/* Drawing: which tokens may come, by a plain sort, and how often they come. */
#include <math.h>
#include <stdlib.h>

#include "base/random.h"
#include "generate/sampler.h"
#include "harness.h"

enum { WORDS = 37 };

static struct sampler *open_sampler(uint32_t vocabulary)
{
    struct sampler *sampler;
    assert_int_equal(sampler_open(vocabulary, &sampler, NULL), STATUS_OK);
    return sampler;
}

/* Logits of few different values, so that some are equal. */
static void fill_logits(float *logits, uint64_t *seed)
{
    for (int i = 0; i < WORDS; i++) { logits[i] = (float)(random_next(seed) % 64) / 8 - 4; }
}

static int32_t draw_at(struct sampler *sampler, const struct sampling *sampling, const float *logits, uint32_t position)
{
    static const int32_t text[100000];
    float copy[WORDS];
    int32_t id;
    memcpy(copy, logits, sizeof copy);
    assert_int_equal(sampler_draw(sampler, sampling, copy, text, position, &id, NULL), STATUS_OK);
    return id;
}

/* The probability of each token, by sorting all of them. */
static void expect_shares(const struct sampling *sampling, const float *logits, double *shares)
{
    int32_t order[WORDS];
    double weights[WORDS], sum = 0, before = 0, kept = 0;
    for (int i = 0; i < WORDS; i++) {
        int at = i;
        for (; at > 0 && logits[order[at - 1]] < logits[i]; at--) { order[at] = order[at - 1]; }
        order[at] = i;
    }
    uint32_t most = sampling->top_k > 0 && sampling->top_k < WORDS ? sampling->top_k : WORDS;
    for (uint32_t i = 0; i < most; i++) { sum += weights[i] = exp((double)logits[order[i]] / sampling->temperature); }
    memset(shares, 0, WORDS * sizeof *shares);
    for (uint32_t i = 0; i < most; i++) {
        bool in_top_p = sampling->top_p <= 0 || before < sampling->top_p * sum * (1 - 1e-12);
        before += weights[i];
        if (!in_top_p || weights[i] < sampling->min_p * weights[0]) { continue; }
        shares[order[i]] = weights[i];
        kept += weights[i];
    }
    for (int i = 0; i < WORDS; i++) { shares[i] /= kept; }
}

TEST(temperature_0_takes_the_likeliest_and_the_lowest_of_equals)
{
    struct sampler *sampler = open_sampler(WORDS);
    float logits[WORDS] = {0};
    struct sampling greedy = {.top_k = 5, .top_p = 0.5};
    assert_int_equal(draw_at(sampler, &greedy, logits, 3), 0);
    logits[20] = logits[9] = logits[30] = 2;
    assert_int_equal(draw_at(sampler, &greedy, logits, 3), 9);
    for (int i = 0; i < WORDS; i++) {
        for (int j = 0; j < WORDS; j++) {
            for (int word = 0; word < WORDS; word++) { logits[word] = -1 - (float)(word * 7 % WORDS); }
            logits[i] = logits[j] = 2;
            assert_int_equal(draw_at(sampler, &greedy, logits, 3), i < j ? i : j);
        }
    }
    sampler_close(sampler);
}

static const struct sampling kinds[] = {
    {.temperature = 1},
    {.temperature = 0.6},
    {.temperature = 1, .top_k = 5},
    {.temperature = 2.5, .top_p = 0.8},
    {.temperature = 1, .min_p = 0.1},
    {.temperature = 1.3, .top_k = 12, .top_p = 0.9, .min_p = 0.02},
    {.temperature = 1, .top_k = 1},
    {.temperature = 1, .top_p = 1e-9},
    {.temperature = 1, .top_k = WORDS + 5, .top_p = 1},
};

TEST(draws_stay_within_the_sets_of_a_plain_sort)
{
    struct sampler *sampler = open_sampler(WORDS);
    uint64_t seed = 5;
    for (int round = 0; round < 300; round++) {
        struct sampling sampling = kinds[(size_t)round % (sizeof kinds / sizeof kinds[0])];
        float logits[WORDS];
        double shares[WORDS];
        bool seen[WORDS] = {0};
        fill_logits(logits, &seed);
        sampling.seed = (uint64_t)round;
        expect_shares(&sampling, logits, shares);
        for (uint32_t p = 0; p < 2000; p++) {
            int32_t id = draw_at(sampler, &sampling, logits, p);
            assert_true(shares[id] > 0);
            seen[id] = true;
        }
        for (int i = 0; i < WORDS; i++) { assert_true(seen[i] || shares[i] < 0.01); }
    }
    sampler_close(sampler);
}

/* 100,000 draws: the sum of squared deviations has to be one that chance gives in 999,999 of a million cases. */
TEST(tokens_come_as_often_as_their_probability_says)
{
    enum { DRAWS = 100000 };
    struct sampler *sampler = open_sampler(WORDS);
    for (size_t kind = 0; kind < 6; kind++) {
        struct sampling sampling = kinds[kind];
        float logits[WORDS];
        double shares[WORDS], chi = 0, degrees = -1;
        uint32_t counts[WORDS] = {0};
        uint64_t seed = kind;
        fill_logits(logits, &seed);
        sampling.seed = 1000 + kind;
        expect_shares(&sampling, logits, shares);
        for (uint32_t p = 0; p < DRAWS; p++) { counts[draw_at(sampler, &sampling, logits, p)]++; }
        for (int i = 0; i < WORDS; i++) {
            double expected = shares[i] * DRAWS;
            if (expected == 0) { continue; }
            chi += (counts[i] - expected) * (counts[i] - expected) / expected;
            degrees++;
        }
        assert_true(chi < degrees + 4.76 * sqrt(2 * degrees) + 12); /* a bound above the quantile for 2 to 36 degrees */
    }
    sampler_close(sampler);
}

TEST(a_draw_depends_on_seed_and_position_alone)
{
    struct sampler *sampler = open_sampler(WORDS), *other = open_sampler(WORDS);
    float logits[WORDS] = {0};
    struct sampling a = {.temperature = 1, .seed = 1}, b = {.temperature = 1, .seed = 2};
    unsigned equal_seeds = 0, equal_positions = 0;
    for (uint32_t p = 0; p < 1000; p++) {
        int32_t id = draw_at(sampler, &a, logits, p);
        assert_int_equal(draw_at(other, &a, logits, p), id);
        equal_seeds += draw_at(other, &b, logits, p) == id;
        equal_positions += draw_at(other, &a, logits, p + 1) == id;
    }
    assert_true(equal_seeds < 100 && equal_positions < 100); /* 27 by chance */
    sampler_close(sampler);
    sampler_close(other);
}

TEST(the_penalty_counts_an_id_once)
{
    struct sampler *sampler = open_sampler(4);
    static const int32_t text[] = {1, 1, 1, 2, 2};
    struct sampling sampling = {.repetition_penalty = 2};
    for (int again = 0; again < 2; again++) {
        float logits[4] = {-5, 3, -1, 1};
        int32_t id;
        assert_int_equal(sampler_draw(sampler, &sampling, logits, text, 5, &id, NULL), STATUS_OK);
        assert_int_equal(id, 1);
        assert_true(logits[0] == -5 && logits[1] == 1.5F && logits[2] == -2 && logits[3] == 1);
    }
    sampler_close(sampler);
}

TEST(a_logit_that_is_no_number_is_an_error)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    struct sampler *sampler = open_sampler(WORDS);
    struct sampling sampling = {0};
    int32_t id;
    struct err err;
    for (int i = 0; i < 3 * WORDS; i++) {
        float logits[WORDS] = {1, 0, 3};
        char says[80];
        logits[i / 3] = bad[i % 3];
        snprintf(says, sizeof says, "the logit of token %d at position 5 is not finite", i / 3);
        assert_int_equal(sampler_draw(sampler, &sampling, logits, NULL, 5, &id, &err), STATUS_NON_FINITE);
        assert_string_equal(err.message, says);
    }
    sampler_close(sampler);
}

TEST(logprobs_are_those_of_the_whole_vocabulary)
{
    struct sampler *sampler = open_sampler(WORDS);
    float logits[WORDS];
    double shares[WORDS];
    struct token_logit top[WORDS];
    uint64_t seed = 3;
    fill_logits(logits, &seed);
    expect_shares(&kinds[0], logits, shares);
    for (int32_t id = 0; id < WORDS; id++) {
        assert_true(fabs(sampler_logprobs(sampler, logits, id, WORDS, top) - log(shares[id])) < 1e-5);
    }
    for (int i = 0; i < WORDS; i++) {
        assert_true(fabs(top[i].logit - log(shares[top[i].id])) < 1e-5);
        assert_true(i == 0 || shares[top[i].id] <= shares[top[i - 1].id]);
    }
    sampler_close(sampler);
}
