/* `sluice bench engine`: the model's forward pass by itself. */
#ifndef BENCH_ENGINE_H
#define BENCH_ENGINE_H

#include "bench/sheet.h"
#include "engine/engine.h"
#include "serve/config.h"

/* The command's own options. */
struct bench_engine_options {
    char *tokens;             /* lengths of the texts: "16,128" */
    int64_t batch_tokens;     /* of each batch, as near as whole texts come */
    int64_t round_ms, rounds; /* how long each figure is measured; the best of so many counts */
    bool graphs;              /* of a GPU: passes run as CUDA graphs */
    int gelu;                 /* of a GPU; 1: in its erf form */
    char *json;
};

/* Operations of the model for a token of a text of so many, products and attention, as papers count them. */
double bench_engine_operations(const struct model *model, double length);

/* Measures and fills the sheet. Errors: those of model_open and engine_open; STATUS_BAD_INPUT naming an option. */
MUST_CHECK enum status bench_engine(const struct config *config, const struct bench_engine_options *options,
                                    struct sheet *sheet, struct err *err);

#endif
