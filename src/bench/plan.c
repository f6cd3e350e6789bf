#include "bench/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "bench/texts.h"
#include "compute/compute.h"
#include "compute/models.h"
#include "daemon/consumer.h"
#include "schedule/prepare.h"
#include "schedule/reply.h"

/* ---- the number of workers ---- */

const char *const limit_names[LIMITS] = {"engine", "redis", "memory"};

/* A worker or a Redis that is busier than this has no room for a burst, whatever the simulated minutes say. */
static const double busy_most = 0.97;

/* Bytes of a reply in Redis in addition to its vector: docs/scale.md. */
static const double reply_keys = 850;

static double redis_most(const struct load_plan *plan)
{
    return (double)NS_PER_S / plan->simulation.costs.redis_ns;
}

/* Bytes of Redis' memory for each request a second, if nobody deletes replies. */
static double reply_memory(const struct load_plan *plan)
{
    return plan->reply_s * (plan->simulation.costs.reply_bytes + reply_keys);
}

/* The mean text, as the engine sees it. */
static struct cost_shape mean_text(const struct simulation *simulation)
{
    struct cost_shape mean = {0};
    for (size_t i = 0; i < simulation->text_count; i++) {
        double tokens = simulation->texts[i].tokens;
        mean.tokens += tokens / (double)simulation->text_count;
        mean.squares += tokens * tokens / (double)simulation->text_count;
    }
    return mean;
}

/* Simulates this number of workers at this rate: long enough for a meaningful percentile, and to notice a queue that
 * grows, but not longer than necessary. */
static enum status simulate(const struct load_plan *plan, uint32_t workers, double rate, struct simulated *out,
                            struct err *err)
{
    enum { SECONDS = 20, P99S = 40, LEAST = 60000, MOST = 300000, SECONDS_MOST = 20000 };
    struct simulation simulation = plan->simulation;
    double for_s = fmax(fmax(SECONDS, P99S * plan->p99_ns / (double)NS_PER_S), LEAST / rate);
    simulation.workers = workers;
    simulation.rate = rate;
    simulation.for_ns = (uint64_t)(fmin(fmin(for_s, SECONDS_MOST), fmax(1, MOST / rate)) * (double)NS_PER_S);
    simulation.seed = 1;
    return simulation_run(&simulation, out, err);
}

static enum status try_workers(const struct load_plan *plan, uint32_t workers, struct planned *out, bool *holds,
                               struct err *err)
{
    struct simulated result;
    enum status status = simulate(plan, workers, plan->rate, &result, err);
    struct planned_try tried = {.workers = workers,
                                .p50_ms = sample_quantile(&result.latency_ms, 0.5),
                                .p99_ms = sample_quantile(&result.latency_ms, 0.99),
                                .busy_share = result.busy_share,
                                .redis_share = result.redis_share,
                                .batch_rows = result.batch_rows};
    sample_free(&result.latency_ms);
    if (status != STATUS_OK) { return status; }
    bool in_time = plan->p99_ns == 0 || tried.p99_ms * (double)NS_PER_MS <= plan->p99_ns;
    *holds = tried.holds = in_time && tried.busy_share < busy_most && tried.redis_share < busy_most;
    if (out->try_count < PLAN_TRIES_MOST) { out->tries[out->try_count++] = tried; }
    if (*holds || plan->workers > 0) { out->best = tried; }
    return STATUS_OK;
}

/* Finds the highest rate of one worker, with a Redis that takes no time, and how soon it answers when it has hardly any
 * load. */
static enum status measure_worker(const struct load_plan *plan, struct planned *out, struct err *err)
{
    const struct worker_options *options = &plan->simulation.options;
    struct cost_shape text = mean_text(&plan->simulation);
    double rows = fmax(1, fmin(options->max_batch_rows, options->max_batch_tokens / text.tokens));
    double batch_ns =
        cost_predict_ns(&options->cost, (struct cost_shape){rows * text.tokens, rows * text.squares, false});
    double more = 1.5 * rows / fmax(1, batch_ns) * (double)NS_PER_S * options->engine_slots;
    struct simulated full, idle = {0};
    struct load_plan free_redis = *plan;
    free_redis.simulation.costs.redis_ns = 0;
    enum status status = simulate(&free_redis, 1, fmin(more, 1.1 * redis_most(plan)), &full, err);
    out->most[LIMIT_ENGINE] = full.requests_per_s;
    if (status == STATUS_OK) { status = simulate(plan, 1, 0.01 * full.requests_per_s, &idle, err); }
    out->idle_p99_ms = sample_quantile(&idle.latency_ms, 0.99);
    sample_free(&full.latency_ms);
    sample_free(&idle.latency_ms);
    return status;
}

static enum status redis_first(const struct load_plan *plan, struct err *err)
{
    return err_set(
        err, STATUS_BAD_INPUT,
        "--rate %.0f: redis gives first: one queue's Redis does %.0f requests a second (%.0f us each) if they "
        "come many at a time, fewer one by one; share the load among queues on several servers",
        plan->rate, redis_most(plan), plan->simulation.costs.redis_ns / 1e3);
}

static enum status check_plan(const struct load_plan *plan, const struct planned *out, struct err *err)
{
    double least = ceil(plan->rate / out->most[LIMIT_ENGINE]);
    if (plan->rate >= busy_most * redis_most(plan)) { return redis_first(plan, err); }
    if (plan->workers == 0 && out->idle_p99_ms * (double)NS_PER_MS > plan->p99_ns) {
        return err_set(err, STATUS_BAD_INPUT,
                       "--p99 %.3gms: engine gives first: a worker with nothing else to do answers 99 %% in %.1f ms",
                       plan->p99_ns / (double)NS_PER_MS, out->idle_p99_ms);
    }
    if (plan->workers == 0 && least > PLAN_WORKERS_MOST) {
        return err_set(err, STATUS_BAD_INPUT,
                       "--rate %.0f: engine gives first: a worker does %.1f requests a second, so this takes more than "
                       "%d workers",
                       plan->rate, out->most[LIMIT_ENGINE], PLAN_WORKERS_MOST);
    }
    return STATUS_OK;
}

/* Goes up in growing steps to a number of workers that holds, then halves the interval down to the least one. */
static enum status search(const struct load_plan *plan, struct planned *out, struct err *err)
{
    uint32_t few = (uint32_t)floor(plan->rate / out->most[LIMIT_ENGINE] * 0.9), enough = few + 1;
    bool holds = false;
    for (uint32_t more = 1;; more *= 2) {
        TRY(try_workers(plan, enough, out, &holds, err));
        if (holds) { break; }
        if (out->tries[out->try_count - 1].redis_share >= busy_most) { return redis_first(plan, err); }
        few = enough;
        if (few >= PLAN_WORKERS_MOST) {
            return err_set(err, STATUS_BAD_INPUT,
                           "--p99 %.3gms: engine gives first: not even %u workers hold it at %.0f requests a second "
                           "(%.1f ms)",
                           plan->p99_ns / (double)NS_PER_MS, few, plan->rate, out->tries[out->try_count - 1].p99_ms);
        }
        enough = few + more < PLAN_WORKERS_MOST ? few + more : PLAN_WORKERS_MOST;
    }
    while (enough > few + 1) {
        uint32_t middle = few + (enough - few) / 2;
        TRY(try_workers(plan, middle, out, &holds, err));
        *(holds ? &enough : &few) = middle;
    }
    return STATUS_OK;
}

enum status plan_find(const struct load_plan *plan, struct planned *out, struct err *err)
{
    bool holds;
    *out = (struct planned){0};
    TRY(measure_worker(plan, out, err));
    TRY(check_plan(plan, out, err));
    TRY(plan->workers > 0 ? try_workers(plan, plan->workers, out, &holds, err) : search(plan, out, err));
    out->most[LIMIT_ENGINE] *= out->best.workers;
    out->most[LIMIT_REDIS] = redis_most(plan);
    out->most[LIMIT_MEMORY] = plan->memory / reply_memory(plan);
    for (int i = 0; i < LIMITS; i++) {
        if (out->most[i] < out->most[out->gives_first]) { out->gives_first = (enum limit)i; }
    }
    return STATUS_OK;
}

/* ---- the times of this machine ---- */

/* The processor time of a thread for each wake-up, without tokenising and writing: measured with `sluice bench e2e
 * --backend null`, docs/scale.md. */
static const double wake_ns = 25e3;

/* The time of Redis' main thread for a request and its reply of 384 floats in f32, and for each further byte of reply:
 * docs/scale.md, "One queue, one Redis". */
static const double redis_request_ns = 16.9e3, redis_byte_ns = 1.6, redis_bytes = 1536;

enum { TEXTS_MOST = 5000, ROUNDS = 3 };

struct measured {
    struct models models;
    struct texts file;
    struct simulated_text *texts; /* [count] */
    size_t count;
    struct simulation simulation; /* its options, texts and costs */
};

/* True if a file has only numbers: then somebody has given lengths in place of texts. */
static bool only_numbers(const struct texts *file)
{
    for (size_t i = 0; i < file->line_count; i++) {
        if (file->lines[i][strspn(file->lines[i], "0123456789 \t\r")] != '\0') { return false; }
    }
    return true;
}

/* Passes a text, like a request, through the work of the prep threads; the vector is made up. */
static enum status measure_text(struct measured *of, const struct model *model, size_t line, double *prepare_ns,
                                double *format_ns, struct simulated_text *out, struct err *err)
{
    const char *text = of->file.lines[line];
    const struct request_rules *rules = &of->simulation.options.rules;
    struct entry_field fields[SIMULATION_FIELDS];
    struct entry entry = {.class = CLASS_NORMAL,
                          .id = {1, line},
                          .origin = ORIGIN_NEW,
                          .fields = fields,
                          .field_count = simulation_fields(rules, text, strlen(text), fields)};
    uint64_t seed = line, begin_ns = clock_thread_ns();
    struct request *request = request_parse(rules, &entry, 1);
    if (!request) { return err_set(err, STATUS_NO_MEMORY, "no memory for a text"); }
    if (request->retry.code == CODE_NONE) { prepare_request(request, model); }
    uint64_t prepared_ns = clock_thread_ns();
    enum status status = STATUS_OK;
    if (request->retry.code == CODE_NONE) {
        for (uint32_t i = 0; i < request->dim; i++) { request->rows[0].output[i] = (float)(random_share(&seed) - 0.5); }
        *out = (struct simulated_text){request->rows[0].tokens, (uint32_t)strlen(text)};
        *prepare_ns += (double)(prepared_ns - begin_ns);
        begin_ns = clock_thread_ns();
        reply_format(request);
        *format_ns += (double)(clock_thread_ns() - begin_ns);
        of->simulation.costs.reply_bytes = (uint32_t)request->output.reply.length;
    }
    if (request->retry.code != CODE_NONE) {
        status = err_set(err, STATUS_BAD_INPUT, "--lengths: text %zu: %.200s", line + 1, request->retry.message);
    }
    request_free(request);
    return status;
}

/* Measures all texts in several rounds; the fastest counts. */
static enum status measure_texts(struct measured *of, const char *path, const struct model *model, struct err *err)
{
    struct simulated_costs *costs = &of->simulation.costs;
    TRY(texts_read(path, &of->file, err));
    if (only_numbers(&of->file)) {
        return err_set(err, STATUS_BAD_INPUT,
                       "--lengths: %s has only numbers; it should have texts, one a line, whose lengths count", path);
    }
    of->count = of->file.line_count < TEXTS_MOST ? of->file.line_count : TEXTS_MOST;
    of->texts = calloc(of->count, sizeof *of->texts);
    if (!of->texts) { return err_set(err, STATUS_NO_MEMORY, "no memory for %zu texts", of->count); }
    costs->prepare_ns = costs->format_ns = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        double prepare_ns = 0, format_ns = 0;
        for (size_t i = 0; i < of->count; i++) {
            TRY(measure_text(of, model, i * of->file.line_count / of->count, &prepare_ns, &format_ns, &of->texts[i],
                             err));
        }
        costs->prepare_ns = fmin(costs->prepare_ns, prepare_ns / (double)of->count);
        costs->format_ns = fmin(costs->format_ns, format_ns / (double)of->count);
    }
    of->simulation.texts = of->texts;
    of->simulation.text_count = of->count;
    return STATUS_OK;
}

/* A batch of a single text for the compute threads. */
struct probe {
    struct batch batch; /* the first member, so that a probe is found by its batch */
    uint32_t start, length;
    float *output;
    uint64_t put_ns;
};

struct probes {
    struct compute *compute;
    const struct cost *cost;
    struct probe *items; /* [count], one for each that may be out */
    unsigned count;
    int32_t *ids; /* ids for the longest text */
    float *output;
};

/* The times of batches. These are sums, not ratios, because a queue's speed depends on their mean. */
struct took {
    double ns, predicted_ns;
    unsigned count;
};

enum { ALONE = 40, ALONE_MS = 1500, PAUSE_MS = 15, CROWD_MS = 500, PROBES_LEAST = 5 };

static void put_probe(struct probes *probes, struct probe *probe, const struct simulated_text *text)
{
    probe->start = 0;
    probe->length = text->tokens;
    probe->batch = (struct batch){.engine = {.rows = 1,
                                             .extent = text->tokens,
                                             .ids = probes->ids,
                                             .start = &probe->start,
                                             .length = &probe->length,
                                             .output = probe->output}};
    probe->put_ns = clock_now_ns();
    compute_put(probes->compute, 0, NULL, &probe->batch);
}

/* Waits for the next probe, and adds it to `took`. */
static enum status take_probe(struct probes *probes, struct probe **out, struct took *took, struct err *err)
{
    struct batch *batch = compute_wait(probes->compute);
    struct cost_shape shape = cost_shape_of(&batch->engine);
    shape.helped = batch->helped;
    took->ns += (double)(batch->finished_ns - batch->started_ns);
    took->predicted_ns += cost_predict_ns(probes->cost, shape);
    took->count++;
    *out = (struct probe *)batch;
    bool good = batch->status == STATUS_OK || batch->status == STATUS_NON_FINITE;
    return good ? STATUS_OK : err_set(err, batch->status, "%s", batch->err.message);
}

/* Computes one text at a time, each after a pause, so caches are cold and threads sleep. Their time to wake is a
 * median, because most requests meet no thread that another program holds up. */
static enum status probe_alone(struct probes *probes, struct measured *of, struct err *err)
{
    struct took took = {0};
    struct sample wakes = {0};
    struct probe *probe;
    uint64_t seed = 1, ends_ns = clock_now_ns() + ALONE_MS * NS_PER_MS;
    enum status status = STATUS_OK;
    for (int i = 0; i < ALONE && status == STATUS_OK && (i < PROBES_LEAST || clock_now_ns() < ends_ns); i++) {
        nanosleep(&(struct timespec){0, PAUSE_MS * (long)NS_PER_MS}, NULL);
        put_probe(probes, &probes->items[0], &of->texts[random_next(&seed) % of->count]);
        status = take_probe(probes, &probe, &took, err);
        if (status == STATUS_OK) { sample_add(&wakes, (double)(probe->batch.started_ns - probe->put_ns)); }
    }
    of->simulation.costs.alone = took.ns / took.predicted_ns;
    of->simulation.costs.hop_ns = sample_quantile(&wakes, 0.5) + wake_ns / 2; /* it passes a request on half-way */
    sample_free(&wakes);
    return status;
}

/* Keeps all threads busy. The last probes do not count, because other threads are idle then. */
static enum status probe_crowd(struct probes *probes, struct measured *of, struct err *err)
{
    struct took took = {0}, last = {0};
    struct probe *probe = NULL;
    uint64_t seed = 2, ends_ns = clock_now_ns() + CROWD_MS * NS_PER_MS;
    enum status status = STATUS_OK;
    unsigned out = 0;
    for (; out < probes->count; out++) {
        put_probe(probes, &probes->items[out], &of->texts[random_next(&seed) % of->count]);
    }
    for (; out > 0; out--) {
        enum status taken = take_probe(probes, &probe, out == probes->count ? &took : &last, err);
        status = status == STATUS_OK ? taken : status;
        if (status == STATUS_OK && (clock_now_ns() < ends_ns || took.count < PROBES_LEAST)) {
            put_probe(probes, probe, &of->texts[random_next(&seed) % of->count]);
            out++;
        }
    }
    of->simulation.costs.crowded = took.ns / took.predicted_ns;
    return status;
}

static enum status probe(struct probes *probes, struct measured *of, const struct model *model, struct err *err)
{
    uint32_t longest = 0;
    for (size_t i = 0; i < of->count; i++) { longest = of->texts[i].tokens > longest ? of->texts[i].tokens : longest; }
    probes->items = calloc(probes->count, sizeof *probes->items);
    probes->ids = calloc(longest, sizeof *probes->ids);
    probes->output = calloc((size_t)probes->count * model->dim, sizeof *probes->output);
    if (!probes->items || !probes->ids || !probes->output) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for texts of %u tokens", longest);
    }
    for (unsigned i = 0; i < probes->count; i++) { probes->items[i].output = probes->output + (size_t)i * model->dim; }
    for (uint32_t i = 0; i < longest; i++) { probes->ids[i] = (int32_t)((i + 1) * 2654435761u % model->vocabulary); }
    TRY(probe_alone(probes, of, err));
    return probe_crowd(probes, of, err);
}

/* Measures how the daemon's own threads differ from the calibration, which is made with warm caches. */
static enum status measure_threads(const struct config *config, struct measured *of, struct compute_state *out,
                                   struct err *err)
{
    struct compute_options options = compute_configured(config, &of->models.devices, of->models.count);
    struct probes probes = {.cost = &of->models.items[0].cost};
    enum status status = compute_open(&options, &probes.compute, err);
    if (status == STATUS_OK) {
        *out = compute_state(probes.compute);
        probes.count = out->batches;
        status = probe(&probes, of, of->models.items[0].model, err);
    }
    compute_close(probes.compute);
    free(probes.items);
    free(probes.ids);
    free(probes.output);
    return status;
}

static enum status measure_engine(const struct config *config, const char *lengths, struct measured *of,
                                  struct err *err)
{
    struct simulated_costs *costs = &of->simulation.costs;
    struct compute_state capacity = {0};
    unsigned number;
    TRY(models_open(&of->models, config, 1, err));
    TRY(models_find(&of->models, config, &number, err));
    struct model *model = of->models.items[number].model;
    struct engine *engine = devices_engine(&of->models.devices, number);
    const struct cost *cost = &of->models.items[number].cost;
    uint32_t cores = engine_default_threads();
    if (!cost_known(cost)) { return err_set(err, STATUS_UNAVAILABLE, "the engine could not be calibrated"); }
    of->simulation.options = consumer_options(config, model, engine, cost, capacity);
    TRY(measure_texts(of, lengths, model, err));
    TRY(measure_threads(config, of, &capacity, err));
    of->simulation.options = consumer_options(config, model, engine, cost, capacity);
    costs->redis_ns = redis_request_ns + redis_byte_ns * fmax(0, costs->reply_bytes - redis_bytes);
    costs->cores = encoder_slots(engine) > 1 ? 0 : cores;
    costs->wake_ns = wake_ns;
    costs->prep_threads = (uint32_t)config->prep_threads;
    return STATUS_OK;
}

/* ---- the report ---- */

static void report_machine(const struct measured *of, struct report *report)
{
    const struct cost *cost = &of->simulation.options.cost;
    const struct simulated_costs *costs = &of->simulation.costs;
    const struct engine *engine = devices_engine(&of->models.devices, 0);
    report_text(report, "model", of->models.items[0].model->name);
    report_text(report, "backend", engine_backend(engine));
    report_text(report, "precision", precision_name(engine_precision(engine)));
    report_number(report, "threads", of->simulation.options.engine_slots, 0);
    report_number(report, "mean_tokens", mean_text(&of->simulation).tokens, 1);
    report_number(report, "batch_us", cost->terms[0] / 1e3, 1);
    report_number(report, "token_ns", cost->terms[1], 1);
    report_number(report, "square_ps", cost->terms[2] * 1e3, 1);
    report_number(report, "help", cost->help, 2);
    report_number(report, "alone", costs->alone, 2);
    report_number(report, "crowded", costs->crowded, 2);
    report_number(report, "hop_us", costs->hop_ns / 1e3, 0);
    report_number(report, "tokenise_us", costs->prepare_ns / 1e3, 1);
    report_number(report, "reply_us", costs->format_ns / 1e3, 1);
    report_number(report, "reply_bytes", costs->reply_bytes, 0);
}

static const struct column try_columns[] = {
    {"workers", "workers", 0},       {"p50_ms", "p50 ms", 2},     {"p99_ms", "p99 ms", 2},
    {"busy_share", "busy", 3},       {"redis_share", "redis", 3}, {"batch_rows", "a batch", 1},
    {"holds", "holds", REPORT_TEXT},
};

static const struct column limit_columns[] = {{"limit", "limit", REPORT_TEXT}, {"requests_per_s", "at most/s", 0}};

static void report_tries(const struct planned *planned, struct report *report)
{
    if (planned->try_count == 0) { return; }
    report_table(report, "simulated", try_columns, sizeof try_columns / sizeof try_columns[0]);
    for (unsigned i = 0; i < planned->try_count; i++) {
        const struct planned_try *tried = &planned->tries[i];
        report_row(report, (const char *const[]){tried->holds ? "yes" : "no"},
                   (const double[]){tried->workers, tried->p50_ms, tried->p99_ms, tried->busy_share, tried->redis_share,
                                    tried->batch_rows});
    }
}

static void report_plan(const struct load_plan *plan, const struct planned *planned, double price,
                        struct report *report)
{
    const struct worker_options *options = &plan->simulation.options;
    char window[64], budget[96];
    if (options->window_fixed) {
        snprintf(window, sizeof window, "fixed, %u ms", options->window_ms);
    } else {
        snprintf(window, sizeof window, "idle");
    }
    snprintf(budget, sizeof budget, "%u tokens, %u texts, %u ms", options->max_batch_tokens, options->max_batch_rows,
             options->max_batch_ms);
    report_number(report, "workers", planned->best.workers, 0);
    report_text(report, "window", window);
    report_text(report, "budget", budget);
    report_number(report, "p50_ms", planned->best.p50_ms, 2);
    report_number(report, "p99_ms", planned->best.p99_ms, 2);
    report_number(report, "busy_share", planned->best.busy_share, 3);
    report_number(report, "replies_gb", plan->rate * reply_memory(plan) / 1e9, 2);
    if (!isnan(price)) {
        report_number(report, "cost_per_1000", price * planned->best.workers / 3600 / plan->rate * 1000, 6);
    }
    report_table(report, "limits", limit_columns, sizeof limit_columns / sizeof limit_columns[0]);
    for (int i = 0; i < LIMITS; i++) {
        report_row(report, (const char *const[]){limit_names[i]}, (const double[]){planned->most[i]});
    }
    report_text(report, "gives_first", limit_names[planned->gives_first]);
    if (planned->most[LIMIT_MEMORY] < plan->rate) {
        char warning[192];
        snprintf(
            warning, sizeof warning,
            "replies that nobody deletes fill the memory of %.1f GB in %.0f s, and live for %.0f s: delete what is "
            "read, or lower default_ttl_s below that",
            plan->memory / 1e9, planned->most[LIMIT_MEMORY] * plan->reply_s / plan->rate, plan->reply_s);
        report_text(report, "warning", warning);
    }
}

/* ---- the command ---- */

static enum status parse_p99(const char *text, double *out_ns, struct err *err)
{
    char *end = NULL;
    double value = strtod(text, &end), unit = strcmp(end, "ms") == 0 ? 1e6 : strcmp(end, "s") == 0 ? 1e9 : 0;
    if (end == text || unit == 0 || !(value > 0) || value * unit > 3600e9) {
        return err_set(err, STATUS_BAD_INPUT,
                       "--p99 must be a time such as 200ms or 1.5s, up to an hour, not \"%.80s\"", text);
    }
    *out_ns = value * unit;
    return STATUS_OK;
}

static enum status parse_options(const struct plan_options *options, struct load_plan *plan, double *price,
                                 struct err *err)
{
    *price = NAN;
    plan->rate = (double)options->rate;
    plan->workers = (uint32_t)options->workers;
    if (options->rate == 0) { return err_set(err, STATUS_BAD_INPUT, "--rate is needed: requests a second"); }
    if (!options->lengths) {
        return err_set(err, STATUS_BAD_INPUT, "--lengths is needed: a file of texts, one a line");
    }
    if (!options->p99 && options->workers == 0) {
        return err_set(err, STATUS_BAD_INPUT, "--p99 is needed, such as 200ms; or --workers");
    }
    if (options->p99) { TRY(parse_p99(options->p99, &plan->p99_ns, err)); }
    return options->price_per_hour ? price_parse(options->price_per_hour, price, err) : STATUS_OK;
}

enum status plan_run(const struct config *config, const struct plan_options *options, struct report *report,
                     struct err *err)
{
    struct load_plan plan = {.reply_s = (double)config->default_ttl_s,
                             .memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE)};
    struct measured measured = {0};
    struct planned planned = {0};
    double price;
    TRY(parse_options(options, &plan, &price, err));
    enum status status = measure_engine(config, options->lengths, &measured, err);
    if (status == STATUS_OK) {
        plan.simulation = measured.simulation;
        plan.simulation.costs.beside_ns = (double)options->beside_us * 1e3;
        report_begin(report, "plan", options->json ? NULL : stdout);
        report_machine(&measured, report);
        status = plan_find(&plan, &planned, err);
        report_tries(&planned, report);
    }
    if (status == STATUS_OK) { report_plan(&plan, &planned, price, report); }
    texts_close(&measured.file);
    free(measured.texts);
    models_close(&measured.models);
    return status;
}
