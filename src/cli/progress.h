/* The progress of a job, on standard error. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "bulk/job.h"

/* Its style. */
enum progress_style {
    PROGRESS_AUTO, /* a bar on a terminal, else lines */
    PROGRESS_BAR,
    PROGRESS_LINES,
    PROGRESS_JSON,
    PROGRESS_NONE,
};

/* The state of the progress display. */
struct progress {
    enum progress_style style;
    uint64_t shown_ns;
    uint64_t computing_ns; /* when computing began */
    uint64_t tokens;       /* computed before that, in an earlier run */
};

/* The names of the styles, for --progress. */
extern const char *const progress_styles[];

/* Begins to show progress; `quiet`: PROGRESS_AUTO shows nothing but on a terminal. */
void progress_begin(struct progress *progress, enum progress_style style, bool quiet);

/* Shows a bar at once, JSON once a second, or a line every ten seconds; `context` is a struct progress. Call it as
 * often as there is something new. */
void progress_show(void *context, const struct job_progress *now);

/* Shows the end, and waits for a slow reader. `finished`: the job is. */
void progress_end(struct progress *progress, const struct job_progress *end, bool finished);

#endif
