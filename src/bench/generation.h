/* `sluice bench generate`: how fast texts are written, alone and together. */
#ifndef BENCH_GENERATION_H
#define BENCH_GENERATION_H

#include "bench/report.h"
#include "config/config.h"

/* The command's own options. */
struct bench_generate_options {
    char *json;
    char *texts;                                      /* how many are written at once: "1,8,32" */
    int64_t prompt_tokens, new_tokens, shared_tokens; /* of each text; shared: at the beginning of all prompts */
    int64_t blocks;                                   /* of the pool; 0: as sluice generate has */
    int64_t rounds;                                   /* the best rate of so many counts; times are those of all */
    bool optimistic;                                  /* as in struct steps_options */
};

/* Measures, and fills the report. Errors: those of config_generator, devices_load and generator_open; STATUS_BAD_INPUT
 * naming an option. */
MUST_CHECK enum status bench_generate(const struct config *config, const struct bench_generate_options *options,
                                      struct report *report, struct err *err);

#endif
