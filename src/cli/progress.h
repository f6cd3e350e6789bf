/* A progress bar with rate and time left on standard error, when that is a terminal. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool shown;
    uint64_t started_ns, drawn_ns;
};

void progress_start(struct progress *progress);

/* Draws again, at most ten times a second. `share` is the part that is done (0 to 1), negative when nobody knows. */
void progress_draw(struct progress *progress, uint64_t texts, double share);

/* Draws a last time and ends the line. */
void progress_end(struct progress *progress, uint64_t texts);

#endif
