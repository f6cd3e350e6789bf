/* Passes of one text and of about 1,024 tokens on one thread, short texts also with helpers, and how well the cost
 * model predicts what they take, as a daemon's start would have calibrated it. */
#ifndef BENCH_COST_CHECK_H
#define BENCH_COST_CHECK_H

#include "bench/numbers.h"
#include "bench/sheet.h"
#include "engine/cost.h"
#include "engine/cpu/parallel_for.h"

struct cost_check {
    struct sheet *sheet;
    struct engine *engine;
    const struct model *model;
    const struct numbers *lengths;
    int64_t round_ms, rounds;
    bool cpu;          /* is the backend */
    struct team *team; /* NULL: nobody helps */
    struct cost calibrated;
};

/* Calibrates as a start does; threads help each other where they compute by themselves. Owns: the caller ends it with
 * cost_check_close. Errors: those of cost_calibrate and team_open. */
MUST_CHECK enum status cost_check_open(struct cost_check *check, unsigned threads, struct err *err);

/* Measures passes, and fills two tables and what was fitted into the sheet. Errors: those of encoder_run. */
MUST_CHECK enum status cost_check_run(struct cost_check *check, struct err *err);

/* Ends the helpers. */
void cost_check_close(struct cost_check *check);

#endif
