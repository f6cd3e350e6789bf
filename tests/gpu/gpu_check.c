/* The C side of tests/gpu: opens an engine on a model directory and runs a job of token ids; Python makes the jobs and
 * judges the results. It uses the engine as the daemon does, so that the check covers the code that runs there.
 *
 *     gpu_check vectors MODEL JOB OUTPUT [option...]   vectors to OUTPUT
 *     gpu_check rates MODEL JOB [option...]            seconds of each load
 *     gpu_check latencies MODEL JOB [option...]        p50 and p99 of each load
 *
 * One JSON object a line on stdout; the last one describes the engine. Exit code 0: done, 1: something failed,
 * 2: called wrongly, 77: this machine or build cannot do the job. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "gpu_run.h"

enum { EXIT_USAGE = 2, EXIT_NOT_HERE = 77 };

struct call {
    struct engine_options options;
    struct gpu_timing timing;
    int arguments;
    char **argument; /* arguments that are no options: the command first */
};

static const struct option option_list[] = {
    {"backend", required_argument, NULL, 'b'},  {"precision", required_argument, NULL, 'p'},
    {"device", required_argument, NULL, 'd'},   {"cache", required_argument, NULL, 'c'},
    {"rounds", required_argument, NULL, 'r'},   {"round-ms", required_argument, NULL, 'm'},
    {"warm-ups", required_argument, NULL, 'w'}, {"latencies", required_argument, NULL, 'l'},
    {"no-graphs", no_argument, NULL, 'g'},      {"exact-gelu", no_argument, NULL, 'e'},
    {"untimed", no_argument, NULL, 'u'},        {"batch-tokens", required_argument, NULL, 't'},
    {"runs", required_argument, NULL, 'n'},     {NULL, 0, NULL, 0},
};

static int usage(void)
{
    fprintf(stderr, "usage: gpu_check vectors MODEL JOB OUTPUT | rates MODEL JOB | latencies MODEL JOB\n"
                    "  --backend NAME --precision NAME --device N --cache FOLDER --no-graphs --exact-gelu --untimed "
                    "--batch-tokens N\n"
                    "  --runs N --rounds N --round-ms N --warm-ups N --latencies N\n");
    return EXIT_USAGE;
}

static uint32_t number(const char *text)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || value > UINT32_MAX) {
        fprintf(stderr, "gpu_check: \"%s\" is not a number\n", text);
        exit(EXIT_USAGE);
    }
    return (uint32_t)value;
}

static bool set_option(struct call *call, int letter, const char *value)
{
    struct err err = {0};
    switch (letter) {
    case 'b':
        call->options.backend = value;
        return true;
    case 'p':
        return precision_parse(value, &call->options.precision, &err) == STATUS_OK;
    case 'd':
        call->options.device = number(value);
        return true;
    case 'c':
        call->options.cache_path = value;
        return true;
    case 'g':
        call->options.no_graphs = true;
        return true;
    case 'e':
        call->options.exact_gelu = true;
        return true;
    case 'u':
        call->options.candidates = 1;
        return true;
    case 't':
        call->options.batch_tokens = number(value);
        return true;
    case 'n':
        call->timing.runs = number(value);
        return call->timing.runs > 0;
    case 'r':
        call->timing.rounds = number(value);
        return true;
    case 'm':
        call->timing.round_ms = number(value);
        return true;
    case 'w':
        call->timing.warm_ups = number(value);
        return true;
    case 'l':
        call->timing.latencies = number(value);
        return call->timing.latencies > 0;
    default:
        return false;
    }
}

static void print_engine(struct engine *engine)
{
    struct engine_counters counters = engine_counters(engine);
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {
        {"weight_bytes", engine_weight_bytes(engine)},
        {"rows_bf16", counters.rows_bf16},
        {"rows_f32", counters.rows_f32},
        {"rows_lost", counters.rows_lost},
        {"passes", counters.passes},
        {"graphs_captured", counters.graphs_captured},
        {"graph_launches", counters.graph_launches},
        {"graph_fallbacks", counters.graph_fallbacks},
        {"halvings", counters.halvings},
    };
    printf("{\"engine\": {\"backend\": \"%s\", \"precision\": \"%s\"", engine_backend(engine),
           precision_name(engine_precision(engine)));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        printf(", \"%s\": %llu", numbers[i].name, (unsigned long long)numbers[i].value);
    }
    printf("}}\n");
}

static void run_job(const struct call *call, const struct gpu_lane *lane, const struct gpu_job *job)
{
    if (strcmp(call->argument[0], "vectors") == 0) {
        gpu_run_vectors(lane, job, &call->timing, call->argument[3]);
    } else if (strcmp(call->argument[0], "rates") == 0) {
        gpu_run_rates(lane, job, &call->timing);
    } else {
        gpu_run_latencies(lane, job, &call->timing);
    }
}

static int failed(enum status status, const struct err *err)
{
    fprintf(stderr, "gpu_check: %s\n", err->message);
    return status == STATUS_UNSUPPORTED ? EXIT_NOT_HERE : 1;
}

static int run_engine(const struct call *call, struct engine *engine, const struct gpu_job *job)
{
    struct err err = {0};
    struct gpu_lane lane = {.slots = encoder_slots(engine)};
    enum status status = encoder_open(engine, &lane.encoder, &err);
    if (status != STATUS_OK) { return failed(status, &err); }
    run_job(call, &lane, job);
    print_engine(engine);
    encoder_close(lane.encoder);
    return fflush(stdout) != 0;
}

static int run_model(struct call *call)
{
    struct err err = {0};
    struct model *model;
    struct engine *engine;
    if (model_open(call->argument[1], NULL, &model, &err) != STATUS_OK) { return failed(STATUS_BAD_INPUT, &err); }
    struct gpu_job *job = gpu_job_read(call->argument[2], model->dim);
    if (call->options.batch_tokens == 0) { call->options.batch_tokens = job->most_tokens; }
    call->options.batch_rows = job->most_rows;
    enum status status = engine_open(model, &call->options, &engine, &err);
    int code = status == STATUS_OK ? 0 : failed(status, &err);
    if (status == STATUS_OK) {
        model_release_weights(model);
        code = run_engine(call, engine, job);
        engine_close(engine);
    }
    gpu_job_free(job);
    model_close(model);
    return code;
}

int main(int argc, char **argv)
{
    struct call call = {.timing = {.runs = 1, .rounds = 5, .round_ms = 200, .warm_ups = 2, .latencies = 1000}};
    int letter;
    while ((letter = getopt_long(argc, argv, "", option_list, NULL)) != -1) {
        if (!set_option(&call, letter, optarg)) { return usage(); }
    }
    call.arguments = argc - optind;
    call.argument = argv + optind;
    const char *command = call.arguments > 0 ? call.argument[0] : "";
    if ((strcmp(command, "vectors") == 0 && call.arguments == 4) ||
        (strcmp(command, "rates") == 0 && call.arguments == 3) ||
        (strcmp(command, "latencies") == 0 && call.arguments == 3)) {
        return run_model(&call);
    }
    return usage();
}
