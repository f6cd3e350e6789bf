/* The points of the dashboard's charts: rates, quantiles and averages between two samples, and an hour of them. */
#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/history.h"

enum { NOON_MS = 43200000, DAY_MS = 86400000 };

/* The newest point after a second sample `ms` later than the first. */
static struct history_point point_between(struct history_sample was, struct history_sample now)
{
    struct history *history = calloc(1, sizeof *history);
    assert_non_null(history);
    history_add(history, &was);
    assert_int_equal(history->count, 0);
    history_add(history, &now);
    assert_int_equal(history->count, 1);
    struct history_point point = history->points[0];
    free(history);
    return point;
}

static bool is_near(float value, double wanted)
{
    return fabs((double)value - wanted) <= 1e-5 * (fabs(wanted) + 1e-9);
}

TEST(a_point_has_what_happened_between_two_samples)
{
    struct history_sample was = {
        .at_ms = 1000, .redis_ms = NOON_MS, .done_today = 100, .errors_today = 7, .threads = 2};
    struct history_sample now = {.at_ms = 6000,
                                 .redis_ms = NOON_MS + 4000,
                                 .unread = 9,
                                 .running = 4,
                                 .done_today = 300,
                                 .errors_today = 8,
                                 .busy_ns = 2500000000,
                                 .batches = 10,
                                 .rows = 80,
                                 .tokens = 900,
                                 .computed_tokens = 1000,
                                 .commands = 60,
                                 .threads = 2};
    now.request_ns[5] = 98; /* above 5 ms, up to 10 ms */
    now.request_ns[8] = 2;  /* above 50 ms, up to 100 ms */
    struct history_point point = point_between(was, now);
    assert_int_equal(point.at_ms, 6000);
    assert_true(is_near(point.done_per_s, 50));
    assert_true(is_near(point.errors_per_s, 0.25));
    assert_true(is_near(point.unread, 9));
    assert_true(is_near(point.running, 4));
    assert_true(is_near(point.p50_s, 0.005 + 0.005 * 50 / 98));
    assert_true(is_near(point.p99_s, 0.05 + 0.05 / 2));
    assert_true(is_near(point.busy, 0.25));
    assert_true(is_near(point.batch_texts, 8));
    assert_true(is_near(point.batch_tokens, 90));
    assert_true(is_near(point.padding, 0.1));
    assert_true(is_near(point.commands_per_s, 12));
}

TEST(nothing_is_made_up_where_nothing_happened_or_redis_is_away)
{
    struct history_sample was = {.at_ms = 1000, .redis_ms = NOON_MS, .done_today = 5, .threads = 1};
    struct history_sample now = {.at_ms = 6000, .threads = 1};
    struct history_point point = point_between(was, now);
    assert_true(isnan(point.done_per_s) && isnan(point.errors_per_s) && isnan(point.unread) && isnan(point.running));
    assert_true(isnan(point.p50_s) && isnan(point.p99_s) && isnan(point.batch_texts) && isnan(point.padding));
    assert_true(is_near(point.busy, 0) && is_near(point.commands_per_s, 0));
    now.redis_ms = was.redis_ms; /* the same look once more */
    assert_true(isnan(point_between(was, now).done_per_s));
}

TEST(counts_of_the_day_begin_again_at_midnight)
{
    struct history_sample was = {.at_ms = 1000, .redis_ms = DAY_MS - 2000, .done_today = 900, .threads = 1};
    struct history_sample now = {.at_ms = 6000, .redis_ms = DAY_MS + 3000, .done_today = 20, .threads = 1};
    assert_true(is_near(point_between(was, now).done_per_s, 4));
    now.redis_ms = DAY_MS - 1000; /* the same day: somebody has deleted `stats` */
    assert_true(isnan(point_between(was, now).done_per_s));
}

TEST(what_took_longer_than_the_last_bound_is_told_as_that_bound)
{
    struct history_sample was = {.at_ms = 1, .threads = 1}, now = {.at_ms = 2, .threads = 1};
    now.request_ns[HISTOGRAM_BOUNDS] = 3;
    assert_true(is_near(point_between(was, now).p50_s, 300));
}

TEST(an_hour_is_kept_and_no_more)
{
    struct history *history = calloc(1, sizeof *history);
    struct buffer text = {0};
    assert_non_null(history);
    for (uint64_t i = 1; i <= HISTORY_POINTS + 11; i++) {
        history_add(history, &(struct history_sample){.at_ms = i * 5000, .threads = 1});
    }
    history_put(history, 0, &text);
    assert_true(buffer_ok(&text));
    buffer_append(&text, "", 1);
    size_t points = 0;
    for (const char *at = strstr(text.data, "\"points\":["); at && *at; at++) { points += *at == '['; }
    assert_int_equal(points - 1, HISTORY_POINTS);
    assert_non_null(strstr(text.data, "\"points\":[[60000,null,")); /* the oldest that is left */
    buffer_free(&text);
    history_put(history, (uint64_t)(HISTORY_POINTS + 10) * 5000, &text);
    buffer_append(&text, "", 1);
    assert_non_null(strstr(text.data, "\"points\":[[3655000,null,null,null,null,null,null,0,null,null,null,0]]"));
    buffer_free(&text);
    assert_true(sizeof *history < 42000);
    free(history);
}
