#include "cli/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"

enum { BAR = 30 };

static const char *const phases[] = {"checking", "computing", "finishing"};

/* What is shown, whatever the style. */
struct figures {
    double seconds, rows_per_s, tokens_per_s, left_s; /* left_s negative: nobody knows */
};

void progress_start(struct progress *progress, enum progress_style style, bool quiet)
{
    bool terminal = isatty(STDERR_FILENO) == 1;
    if (style == PROGRESS_AUTO)
        style = terminal ? PROGRESS_BAR : quiet ? PROGRESS_NONE : PROGRESS_LINES;
    *progress = (struct progress){.style = style, .started_ns = clock_now_ns()};
    progress->shown_ns = progress->started_ns;
}

static struct figures measure(struct progress *progress, const struct job_progress *now, uint64_t now_ns)
{
    if (now->phase == JOB_CHECKING || progress->computing_ns == 0) {
        progress->computing_ns = now_ns;
        progress->tokens = now->tokens;
    }
    struct figures figures = {.left_s = -1};
    figures.seconds = (double)(now_ns - progress->computing_ns) / (double)NS_PER_S;
    if (figures.seconds <= 0)
        return figures;
    figures.rows_per_s = (double)now->here / figures.seconds;
    figures.tokens_per_s = (double)(now->tokens - progress->tokens) / figures.seconds;
    double before = now->rows > 0 ? (double)(now->rows - now->here) / (double)now->rows : 0; /* of an earlier run */
    double here = now->share * (1 - before);
    if (now->phase == JOB_COMPUTING && here > 0)
        figures.left_s = figures.seconds * (1 - now->share) / here;
    return figures;
}

static void draw_bar(const struct job_progress *now, struct figures figures)
{
    char bar[BAR + 1], failed[40] = "", left[40] = "";
    double share = now->share;
    for (int i = 0; i < BAR; i++)
        bar[i] = share * BAR > i ? '#' : '.';
    bar[BAR] = '\0';
    if (now->failed > 0)
        snprintf(failed, sizeof failed, ", %llu failed", (unsigned long long)now->failed);
    if (figures.left_s >= 0 && share < 1)
        snprintf(left, sizeof left, ", %.0f s left", figures.left_s);
    fputs("\r", stderr);
    if (share >= 0)
        fprintf(stderr, "[%s] %3.0f %%  ", bar, share * 100);
    if (now->phase == JOB_CHECKING)
        fprintf(stderr, "checking, %llu documents\033[K", (unsigned long long)now->documents);
    else
        fprintf(stderr, "%llu texts, %.0f texts/s, %.0f tokens/s%s%s\033[K", (unsigned long long)now->rows,
                figures.rows_per_s, figures.tokens_per_s, failed, left);
}

static void print_line(const struct job_progress *now, struct figures figures)
{
    fprintf(stderr, "%s: %llu rows, %.0f rows/s, %.0f tokens/s, %llu failed", phases[now->phase],
            (unsigned long long)now->rows, figures.rows_per_s, figures.tokens_per_s, (unsigned long long)now->failed);
    if (now->share >= 0)
        fprintf(stderr, ", %.1f %%", now->share * 100);
    if (figures.left_s >= 0)
        fprintf(stderr, ", %.0f s left", figures.left_s);
    fputc('\n', stderr);
}

static void print_json(const char *phase, const struct job_progress *now, struct figures figures)
{
    fprintf(stderr,
            "{\"phase\":\"%s\",\"rows\":%llu,\"documents\":%llu,\"computed\":%llu,\"copied\":%llu,\"failed\":%llu,"
            "\"tokens\":%llu,\"rows_per_s\":%.1f,\"tokens_per_s\":%.1f",
            phase, (unsigned long long)now->rows, (unsigned long long)now->documents, (unsigned long long)now->computed,
            (unsigned long long)now->copied, (unsigned long long)now->failed, (unsigned long long)now->tokens,
            figures.rows_per_s, figures.tokens_per_s);
    if (now->share >= 0)
        fprintf(stderr, ",\"share\":%.4f", now->share);
    if (figures.left_s >= 0)
        fprintf(stderr, ",\"eta_s\":%.0f", figures.left_s);
    fputs("}\n", stderr);
}

static uint64_t interval_ns(enum progress_style style)
{
    return style == PROGRESS_BAR ? 0 : style == PROGRESS_JSON ? NS_PER_S : 10 * NS_PER_S;
}

void progress_show(void *context, const struct job_progress *now)
{
    struct progress *progress = context;
    uint64_t now_ns = clock_now_ns();
    struct figures figures = measure(progress, now, now_ns);
    if (progress->style == PROGRESS_NONE || now_ns - progress->shown_ns < interval_ns(progress->style))
        return;
    progress->shown_ns = now_ns;
    if (progress->style == PROGRESS_BAR)
        draw_bar(now, figures);
    else if (progress->style == PROGRESS_JSON)
        print_json(phases[now->phase], now, figures);
    else
        print_line(now, figures);
}

void progress_end(struct progress *progress, const struct job_result *result)
{
    const struct job_progress *end = &result->progress;
    uint64_t now_ns = clock_now_ns();
    struct figures figures = measure(progress, end, now_ns);
    if (progress->style == PROGRESS_BAR) {
        draw_bar(end, figures);
        fputc('\n', stderr);
    }
    if (progress->style == PROGRESS_JSON)
        print_json(result->finished || result->before ? "finished" : "stopped", end, figures);
}
