/* `sluice bench e2e`: from XADD to the reply, through Redis and a daemon. */
#ifndef BENCH_E2E_H
#define BENCH_E2E_H

#include <signal.h>

#include "bench/report.h"
#include "config/config.h"

/* The options. */
struct bench_e2e_options {
    char *json;
    char *tokens; /* lengths of the texts: "16,64,256"; 0: mixed */
    char *input;  /* a file with a text per line, in place of made-up texts */
    int64_t rate; /* also a run with this many requests per second; 0: none */
    int64_t duration_ms;
    int64_t outstanding; /* 0: by the length of the texts */
    bool full;           /* as many requests as the daemon takes */
    bool alone;          /* also with batches of one text */
};

/* Measures, and fills the report. `stop`: see stage_open. Errors: those of stage_open, trial_run and model_open;
 * STATUS_BAD_INPUT naming an option. */
MUST_CHECK enum status bench_e2e(const struct config *config, const struct bench_e2e_options *options,
                                 const volatile sig_atomic_t *stop, struct report *report, struct err *err);

#endif
