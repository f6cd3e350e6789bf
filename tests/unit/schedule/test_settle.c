/* Retry or dead letter, and the delay of a retry. */
#include "harness.h"

#include "schedule/worker_internal.h"

static const struct worker_options options = {.backoff_ms = 1000, .backoff_cap_ms = 60000, .rules.error_ttl_s = 3600};

TEST(backoff_doubles_with_jitter_up_to_the_cap)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        uint64_t random = seed;
        for (uint32_t attempt = 1; attempt <= 10; attempt++) {
            double middle = 1000.0 * (1u << (attempt - 1));
            uint32_t delay = settle_backoff_ms(&options, attempt, &random);
            double least = middle > 60000 ? 48000 : middle * 0.8, most = middle * 1.2 > 60000 ? 60000 : middle * 1.2;
            assert_true(delay >= least && delay <= most);
        }
    }
}

TEST(jitter_spreads_and_repeats)
{
    uint64_t one = 1, same = 1;
    uint32_t least = UINT32_MAX, most = 0;
    for (int i = 0; i < 1000; i++) {
        uint32_t delay = settle_backoff_ms(&options, 1, &one);
        assert_int_equal(delay, settle_backoff_ms(&options, 1, &same));
        least = delay < least ? delay : least;
        most = delay > most ? delay : most;
    }
    assert_true(least < 820 && most > 1180);
}

static enum outcome judge(enum reply_code code, uint32_t attempt, uint32_t max_attempts, uint32_t *ttl_s)
{
    uint64_t random = 3;
    struct request request = {.retry.attempt = attempt, .retry.max_attempts = max_attempts, .output.ttl_s = 60};
    if (code != CODE_NONE) { request_fail(&request, code, "because"); }
    settle_judge(&options, &request, 1000, &random);
    *ttl_s = request.output.ttl_s;
    return request.lifetime.outcome;
}

TEST(outcomes_follow_code_and_attempts)
{
    uint32_t ttl_s;
    assert_int_equal(judge(CODE_NONE, 4, 4, &ttl_s), OUTCOME_DONE);
    assert_int_equal(ttl_s, 60);
    for (enum reply_code code = CODE_BAD_REQUEST; code < CODE_OUT_OF_MEMORY; code++) {
        assert_int_equal(judge(code, 1, 4, &ttl_s), OUTCOME_ERROR);
        assert_int_equal(ttl_s, 3600); /* an error lives long enough to be read */
    }
    for (enum reply_code code = CODE_OUT_OF_MEMORY; code <= CODE_INTERNAL; code++) {
        assert_int_equal(judge(code, 1, 4, &ttl_s), OUTCOME_DEFER);
        assert_int_equal(judge(code, 3, 4, &ttl_s), OUTCOME_DEFER);
        assert_int_equal(judge(code, 4, 4, &ttl_s), OUTCOME_DEAD);
        assert_int_equal(judge(code, 1, 1, &ttl_s), OUTCOME_DEAD);
        assert_int_equal(ttl_s, 3600);
    }
    assert_int_equal(judge(CODE_POISON, 1, 4, &ttl_s), OUTCOME_DEAD);
}

/* The backoff is one second, ±20 %, and the clock may be unknown. */
TEST(a_retry_after_the_deadline_is_none)
{
    static const struct {
        uint64_t now_ms, expires_at_ms;
        enum outcome outcome;
    } cases[] = {{5000, 0, OUTCOME_DEFER},
                 {5000, 6201, OUTCOME_DEFER},
                 {5000, 5800, OUTCOME_DEAD},
                 {5000, 4000, OUTCOME_DEAD},
                 {0, 1, OUTCOME_DEFER}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t random = i;
        struct request request = {
            .retry.attempt = 1, .retry.max_attempts = 4, .lifetime.expires_at_ms = cases[i].expires_at_ms};
        request_fail(&request, CODE_DEVICE_LOST, "because");
        settle_judge(&options, &request, cases[i].now_ms, &random);
        assert_int_equal(request.lifetime.outcome, cases[i].outcome);
        assert_int_equal(request.retry.code, CODE_DEVICE_LOST);
    }
}

TEST(the_first_failure_stays)
{
    struct request request = {0};
    request_fail(&request, CODE_TOO_LONG, "text: %d", 7);
    request_fail(&request, CODE_INTERNAL, "later");
    assert_int_equal(request.retry.code, CODE_TOO_LONG);
    assert_string_equal(request.retry.message, "text: 7");
    assert_false(request.retry.retryable);
}

TEST(every_code_has_a_name_of_its_own)
{
    for (enum reply_code code = CODE_NONE; code < CODE_COUNT; code++) {
        assert_non_null(reply_code_name(code));
        for (enum reply_code other = CODE_NONE; other < code; other++) {
            assert_string_not_equal(reply_code_name(code), reply_code_name(other));
        }
        assert_int_equal(reply_code_retryable(code), code >= CODE_OUT_OF_MEMORY && code <= CODE_INTERNAL);
    }
}
