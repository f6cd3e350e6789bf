#include "cli/progress.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"

const char *const progress_styles[] = {"auto", "bar", "lines", "json", "none", NULL};

void progress_begin(struct progress *progress, enum progress_style style, bool quiet)
{
    if (style == PROGRESS_AUTO) {
        style = isatty(STDERR_FILENO) == 1 ? PROGRESS_BAR : quiet ? PROGRESS_NONE : PROGRESS_LINES;
    }
    *progress = (struct progress){.style = style, .shown_ns = clock_now_ns()};
}

enum { BAR = 30 };

static const char *const phases[] = {"checking", "computing", "finishing"};

/* The figures that every style shows; rows and tokens are those that this process computed. */
struct figures {
    double seconds, rows_per_s, tokens_per_s, left_s; /* left_s negative: unknown */
};

static struct figures measure_progress(struct progress *progress, const struct job_progress *now, uint64_t now_ns)
{
    if (now->phase == JOB_CHECKING || progress->computing_ns == 0) {
        progress->computing_ns = now_ns;
        progress->tokens = now->tokens;
    }
    struct figures figures = {.left_s = now->left_s};
    figures.seconds = (double)(now_ns - progress->computing_ns) / (double)NS_PER_S;
    if (figures.seconds <= 0) { return figures; }
    figures.rows_per_s = (double)now->computed_here / figures.seconds;
    figures.tokens_per_s = (double)(now->tokens - progress->tokens) / figures.seconds;
    return figures;
}

static void draw_bar(struct buffer *to, const struct job_progress *now, struct figures figures)
{
    char bar[BAR + 1];
    double share = now->share;
    for (int i = 0; i < BAR; i++) { bar[i] = share * BAR > i ? '#' : '.'; }
    bar[BAR] = '\0';
    buffer_string(to, "\r");
    if (share >= 0) { buffer_format(to, "[%s] %3.0f %%  ", bar, share * 100); }
    if (now->phase == JOB_CHECKING) {
        buffer_format(to, "checking, %llu documents", (unsigned long long)now->documents);
    } else {
        buffer_format(to, "%llu texts, %.0f texts/s, %.0f tokens/s", (unsigned long long)now->rows, figures.rows_per_s,
                      figures.tokens_per_s);
        if (now->failed > 0) { buffer_format(to, ", %llu failed", (unsigned long long)now->failed); }
        if (figures.left_s >= 0 && share < 1) { buffer_format(to, ", %.0f s left", figures.left_s); }
    }
    buffer_string(to, "\033[K");
}

static void put_line(struct buffer *to, const struct job_progress *now, struct figures figures)
{
    buffer_format(to, "%s: %llu rows, %.0f rows/s, %.0f tokens/s, %llu failed", phases[now->phase],
                  (unsigned long long)now->rows, figures.rows_per_s, figures.tokens_per_s,
                  (unsigned long long)now->failed);
    if (now->share >= 0) { buffer_format(to, ", %.1f %%", now->share * 100); }
    if (figures.left_s >= 0) { buffer_format(to, ", %.0f s left", figures.left_s); }
    buffer_string(to, "\n");
}

static void put_json(struct buffer *to, const char *phase, const struct job_progress *now, struct figures figures)
{
    buffer_json(to,
                "{'phase':%s,'rows':%" PRIu64 ",'documents':%" PRIu64 ",'computed':%" PRIu64 ",'copied':%" PRIu64
                ",'failed':%" PRIu64 ",'duplicate_ids':%" PRIu64 ",'truncated':%" PRIu64 ",'tokens':%" PRIu64
                ",'rows_per_s':%.1f,'tokens_per_s':%.1f",
                phase, now->rows, now->documents, now->computed, now->copied, now->failed, now->duplicate_ids,
                now->truncated, now->tokens, figures.rows_per_s, figures.tokens_per_s);
    if (now->share >= 0) { buffer_json(to, ",'share':%.4f", now->share); }
    if (figures.left_s >= 0) { buffer_json(to, ",'eta_s':%.0f", figures.left_s); }
    buffer_string(to, "}\n");
}

/* True if standard error takes a message at once. Progress that nobody reads must not hold up the job: the next message
 * says more. */
static bool is_read(void)
{
    struct pollfd error = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&error, 1, 0) == 1 && (error.revents & POLLOUT) != 0;
}

void progress_show(void *context, const struct job_progress *now)
{
    struct progress *progress = context;
    struct buffer text = {0};
    uint64_t now_ns = clock_now_ns();
    struct figures figures = measure_progress(progress, now, now_ns);
    uint64_t every_ms = progress->style == PROGRESS_BAR ? 50 : progress->style == PROGRESS_JSON ? 1000 : 10000;
    bool due = progress->style != PROGRESS_NONE && now_ns - progress->shown_ns >= every_ms * NS_PER_MS;
    if (!due || !is_read()) { return; }
    progress->shown_ns = now_ns;
    if (progress->style == PROGRESS_BAR) {
        draw_bar(&text, now, figures);
    } else if (progress->style == PROGRESS_JSON) {
        put_json(&text, phases[now->phase], now, figures);
    } else {
        put_line(&text, now, figures);
    }
    fwrite(text.data ? text.data : "", 1, text.length, stderr); /* in one piece: other processes may share it */
    buffer_free(&text);
}

void progress_end(struct progress *progress, const struct job_progress *end, bool finished)
{
    struct buffer text = {0};
    uint64_t now_ns = clock_now_ns();
    struct figures figures = measure_progress(progress, end, now_ns);
    if (progress->style == PROGRESS_BAR) {
        draw_bar(&text, end, figures);
        buffer_string(&text, "\n");
    }
    if (progress->style == PROGRESS_JSON) { put_json(&text, finished ? "finished" : "stopped", end, figures); }
    fwrite(text.data ? text.data : "", 1, text.length, stderr); /* in one piece: other processes may share it */
    buffer_free(&text);
}
