/* `sluice bench queue`: the loop without the model, beside what the same Redis can do. */
#ifndef BENCH_QUEUE_H
#define BENCH_QUEUE_H

#include <signal.h>

#include "bench/sheet.h"
#include "serve/config.h"

/* The command's own options. */
struct bench_queue_options {
    char *encodings; /* "f32,json" */
    int64_t requests, rounds;
    char *depths; /* entries that wait meanwhile: "1000,100000"; NULL: that is not measured */
    bool appendonly;
    char *json;
};

/* Measures and fills the sheet. `stop`: see stage_open. Errors: those of queue_run and model_open;
 * STATUS_BAD_INPUT naming an option. */
MUST_CHECK enum status bench_queue(const struct config *config, const struct bench_queue_options *options,
                                   const volatile sig_atomic_t *stop, struct sheet *sheet, struct err *err);

#endif
