#include "daemon/history.h"

#include <inttypes.h>
#include <math.h>

#include "base/duration.h"
#include "base/json.h"

static float divide_or_nan(double part, double whole)
{
    return whole > 0 ? (float)(part / whole) : NAN;
}

/* The seconds within which this part of the requests was answered, interpolated inside its bucket. The last bucket has
 * no upper end, so its lower end is returned. */
static float find_quantile(const uint64_t counts[HISTOGRAM_BOUNDS + 1], double part)
{
    uint64_t all = 0, below = 0;
    unsigned bucket = 0;
    for (unsigned i = 0; i <= HISTOGRAM_BOUNDS; i++) { all += counts[i]; }
    if (all == 0) { return NAN; }
    while (bucket < HISTOGRAM_BOUNDS && (double)(below + counts[bucket]) < part * (double)all) {
        below += counts[bucket++];
    }
    double from = bucket == 0 ? 0 : (double)histogram_times.buckets[bucket - 1].most;
    double to = bucket == HISTOGRAM_BOUNDS ? from : (double)histogram_times.buckets[bucket].most;
    double inside = (part * (double)all - (double)below) / (double)(counts[bucket] > 0 ? counts[bucket] : 1);
    return (float)((from + (to - from) * inside) * histogram_times.unit);
}

/* The rate of a count of today, which begins again at midnight. A count may also fall because `stats` was deleted; then
 * the rate is unknown. */
static float rate_today(const struct history_sample *was, const struct history_sample *now, uint64_t before,
                        uint64_t after)
{
    if (was->redis_ms == 0 || now->redis_ms <= was->redis_ms) { return NAN; }
    if (now->redis_ms / DAY_MS != was->redis_ms / DAY_MS) { before = 0; }
    return after < before ? NAN
                          : divide_or_nan((double)(after - before) * 1e3, (double)(now->redis_ms - was->redis_ms));
}

static struct history_point make_point(const struct history_sample *was, const struct history_sample *now)
{
    double ms = (double)(now->at_ms - was->at_ms), batches = (double)(now->batches - was->batches);
    double tokens = (double)(now->tokens - was->tokens),
           computed = (double)(now->computed_tokens - was->computed_tokens);
    uint64_t ended[HISTOGRAM_BOUNDS + 1];
    for (unsigned i = 0; i <= HISTOGRAM_BOUNDS; i++) { ended[i] = now->request_ns[i] - was->request_ns[i]; }
    bool known = now->redis_ms != 0;
    float busy = divide_or_nan((double)(now->busy_ns - was->busy_ns), ms * 1e6 * now->threads);
    return (struct history_point){.at_ms = now->at_ms,
                                  .done_per_s = rate_today(was, now, was->done_today, now->done_today),
                                  .errors_per_s = rate_today(was, now, was->errors_today, now->errors_today),
                                  .unread = known ? (float)now->unread : NAN,
                                  .running = known ? (float)now->running : NAN,
                                  .p50_s = find_quantile(ended, 0.5),
                                  .p99_s = find_quantile(ended, 0.99),
                                  .busy = busy > 1 ? 1 : busy, /* a batch counts whole when it ends */
                                  .batch_texts = divide_or_nan((double)(now->rows - was->rows), batches),
                                  .batch_tokens = divide_or_nan(tokens, batches),
                                  .padding = divide_or_nan(computed - tokens, computed),
                                  .commands_per_s = divide_or_nan((double)(now->commands - was->commands) * 1e3, ms)};
}

void history_add(struct history *history, const struct history_sample *now)
{
    if (history->last.at_ms != 0 && now->at_ms > history->last.at_ms) {
        history->points[history->count++ % HISTORY_POINTS] = make_point(&history->last, now);
    }
    history->last = *now;
}

void history_put(const struct history *history, uint64_t since_ms, struct buffer *to)
{
#define NAME(name) ",'" #name "'"
#define VALUE(name) (double)point->name,
    buffer_json(to, ",'every_ms':%d,'names':['at'" HISTORY_VALUES(NAME) "],'points':[", HISTORY_STEP_S * 1000);
    for (size_t at = history->count > HISTORY_POINTS ? history->count - HISTORY_POINTS : 0; at < history->count; at++) {
        const struct history_point *point = &history->points[at % HISTORY_POINTS];
        const double values[] = {HISTORY_VALUES(VALUE)};
        if (point->at_ms <= since_ms) { continue; }
        buffer_json(to, ",[%" PRIu64, point->at_ms);
        for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) { buffer_json(to, ",%.4g", values[i]); }
        buffer_json(to, "]");
    }
    buffer_json(to, "]");
}
