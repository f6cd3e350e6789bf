/* How far a job is, on standard error: a bar, lines, or JSON. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdint.h>

#include "bulk/job.h"

/* What is shown. */
enum progress_style {
    PROGRESS_AUTO, /* a bar on a terminal, else lines */
    PROGRESS_BAR,
    PROGRESS_LINES,
    PROGRESS_JSON,
    PROGRESS_NONE,
};

/* What was shown, and when. */
struct progress {
    enum progress_style style;
    uint64_t started_ns, shown_ns;
    uint64_t computing_ns; /* since when rows are computed */
    uint64_t tokens;       /* that had been computed by then, in an earlier run */
};

/* Chooses the style; `quiet`: without a terminal nothing is shown. */
void progress_start(struct progress *progress, enum progress_style style, bool quiet);

/* Shows how far it is: a bar ten times a second, JSON once, a line every ten seconds. For job_options.report. */
void progress_show(void *progress, const struct job_progress *now);

/* Shows the end: the bar once more, or what became of it all. */
void progress_end(struct progress *progress, const struct job_result *result);

#endif
