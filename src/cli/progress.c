#include "cli/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"

enum { BAR = 30 };

void progress_start(struct progress *progress)
{
    *progress = (struct progress){.shown = isatty(STDERR_FILENO) == 1, .started_ns = clock_now_ns()};
}

static double seconds_since(uint64_t start_ns, uint64_t now_ns)
{
    return (double)(now_ns - start_ns) / (double)NS_PER_S;
}

static void draw(const struct progress *progress, uint64_t texts, double share, uint64_t now_ns)
{
    double seconds = seconds_since(progress->started_ns, now_ns);
    double rate = seconds > 0 ? (double)texts / seconds : 0;
    char bar[BAR + 1];
    for (int i = 0; i < BAR; i++)
        bar[i] = share * BAR > i ? '#' : '.';
    bar[BAR] = '\0';
    if (share < 0)
        fprintf(stderr, "\r%llu texts, %.0f texts/s\033[K", (unsigned long long)texts, rate);
    else if (share > 0 && share < 1)
        fprintf(stderr, "\r[%s] %3.0f %%  %llu texts, %.0f texts/s, %.0f s left\033[K", bar, share * 100,
                (unsigned long long)texts, rate, seconds * (1 - share) / share);
    else
        fprintf(stderr, "\r[%s] %3.0f %%  %llu texts, %.0f texts/s\033[K", bar, share * 100, (unsigned long long)texts,
                rate);
}

void progress_draw(struct progress *progress, uint64_t texts, double share)
{
    uint64_t now_ns = clock_now_ns();
    if (!progress->shown || now_ns - progress->drawn_ns < NS_PER_S / 10)
        return;
    progress->drawn_ns = now_ns;
    draw(progress, texts, share, now_ns);
}

void progress_end(struct progress *progress, uint64_t texts)
{
    if (!progress->shown)
        return;
    draw(progress, texts, 1, clock_now_ns());
    fputc('\n', stderr);
}
