/* Turns files of texts into vectors, on this machine or, with --redis, through the workers of a queue. The second half,
 * from "Running" on, also runs the jobs of `sluice batch`.
 *
 * With INPUT operands it is a job that can be resumed; with --input it is one pass over lines, which ends at the first
 * bad line. */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/system.h"
#include "bulk/manifest.h"
#include "cli/command.h"
#include "cli/embed_job.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "compute/devices.h"
#include "config/config.h"
#include "engine/cost.h"

/* The job is finished, but rows failed. */
enum { EXIT_ROWS_FAILED = 1 };

/* A CPU gains nothing from larger batches, and with small ones threads end at about the same time. */
enum { CPU_BATCH_TOKENS = 1024, BATCHES_PER_THREAD = 16, PREP_THREADS_MAX = 8 };

/* The time for which a dry run measures the engine. */
enum { CALIBRATE_NS = 1000000000 };

static const char *const dtypes[] = {"f32", "f16", NULL};

#define OWN(name, kind) .key = #name, .type = (kind), .offset = offsetof(struct embed_options, name)

/* clang-format off */
static const struct setting own_settings[] = {
    {OWN(input, SETTING_TEXT), .fallback = "-", .value = "FILE",
        .help = "instead of INPUT: one text per line, in one pass; - is standard input"},
    {OWN(output, SETTING_TEXT), .fallback = "-", .value = "FILE",
        .help = "FILE.npy, FILE.jsonl, FILE.f32, DIR/ for .npy files of some rows each, or - for JSON lines on standard output"},
    {OWN(format, SETTING_CHOICE), .fallback = "auto", .choices = source_format_names, .help = "what the inputs are, when their names do not say it"},
    {OWN(field, SETTING_TEXT), .most = 1024, .value = "NAME", .help = "where the text is in JSON or CSV: body, meta.title [text]"},
    {OWN(template, SETTING_TEXT), .most = 65536, .value = "TEXT", .help = "the text out of several fields: \"{title}. {body}\""},
    {OWN(id_field, SETTING_TEXT), .most = 1024, .value = "NAME", .help = "the field that is a row's id [its number]"},
    {OWN(keep, SETTING_TEXT), .most = 4096, .value = "NAMES", .help = "fields to pass on into FILE.jsonl: title,meta.year"},
    {OWN(header, SETTING_SWITCH), .fallback = "true", .help = "CSV without a header: its columns are called 1, 2, 3"},
    {OWN(glob, SETTING_TEXT), .most = 1024, .value = "PATTERN", .help = "which files of a folder [*.txt and *.md]"},
    {OWN(chunk, SETTING_TEXT), .most = 256, .value = "HOW", .help = "tokens:256,overlap:32 cuts long texts at ends of sentences; with ,mean one vector for all chunks"},
    {OWN(max_text_bytes, SETTING_INTEGER), .fallback = "1048576", .least = 1, .most = 1 << 28, .value = "N", .help = "a longer text is a failed row"},
    {OWN(limit, SETTING_INTEGER), .fallback = "0", .least = 0, .most = INT64_C(1) << 40, .value = "N", .help = "read the first N texts only; 0: all"},
    {OWN(dry_run, SETTING_SWITCH), .fallback = "false", .help = "say what the input is, its rows and tokens, and about how long it takes; write nothing"},
    {OWN(dtype, SETTING_CHOICE), .fallback = "f32", .choices = dtypes, .help = "the floats of .npy files"},
    {OWN(shard_rows, SETTING_INTEGER), .fallback = "1000000", .least = 1, .most = INT64_C(1) << 40, .value = "N", .help = "rows of each file in DIR/"},
    {OWN(strict, SETTING_SWITCH), .fallback = "false", .help = "end at the first row that fails"},
    {OWN(overwrite, SETTING_SWITCH), .fallback = "false", .help = "delete what an earlier job left, and begin again"},
    {OWN(progress, SETTING_CHOICE), .fallback = "auto", .choices = progress_styles, .help = "how to show progress on standard error"},
    {OWN(look_ahead, SETTING_INTEGER), .fallback = "65536", .least = 1, .most = 1 << 20, .value = "N", .help = "rows that are sorted by length together"},
};
/* clang-format on */

/* --- The options as a bulk job --- */

enum { PASS_TEXT_BYTES = 1 << 28, PASS_VECTOR_BYTES = 64 << 20 };

static bool has_folder(char *const *operands, size_t count)
{
    struct stat info;
    for (size_t i = 0; i < count; i++) {
        if (stat(operands[i], &info) == 0 && S_ISDIR(info.st_mode)) { return true; }
    }
    return false;
}

static void set_source(struct embed_job *job, struct invocation *invocation)
{
    const struct embed_options *options = job->options;
    bool pass = invocation->operand_count == 0;
    job->standard[0] = options->input;
    job->job.source = (struct source_options){
        .operands = pass ? job->standard : invocation->operands,
        .operand_count = pass ? 1 : invocation->operand_count,
        .glob = options->glob,
        .format = (enum source_format)options->format,
        .lines_only = pass,
        .recipe = &job->recipe,
        .headerless = !options->header,
        .empty_texts = pass,
        .max_text_bytes = pass ? PASS_TEXT_BYTES : (size_t)options->max_text_bytes,
        .limit = (uint64_t)options->limit,
    };
    job->job.ids = job->recipe.has_id || has_folder(invocation->operands, invocation->operand_count);
    job->job.plain = pass || job->output.standard || options->dry_run;
    job->job.dry = options->dry_run ? &job->report : NULL;
    job->job.arrays = pass;
    job->job.strict = pass || options->strict;
}

/* Reads and checks the options before a model is opened. */
static enum status embed_job_open(struct embed_job *job, struct invocation *invocation, struct err *err)
{
    const struct embed_options *options = invocation->own;
    *job = (struct embed_job){.options = options};
    if (invocation->operand_count > 0 && strcmp(options->input, "-") != 0) {
        return err_set(err, STATUS_BAD_INPUT, "--input %s and %s: name inputs in one of the two ways", options->input,
                       invocation->operands[0]);
    }
    if (invocation->operand_count == 0 && options->format != FORMAT_AUTO && options->format != FORMAT_LINES) {
        const char *format = source_format_names[options->format];
        return err_set(err, STATUS_BAD_INPUT,
                       "--format %s: without INPUT each line is a text; sluice embed %s --format %s reads it", format,
                       options->input, format);
    }
    struct chunking *chunking = &job->job.preparer.chunking;
    if (options->chunk) { TRY(chunking_parse(options->chunk, chunking, err)); }
    struct recipe_options recipe = {options->field, options->template, options->id_field, options->keep,
                                    chunking->tokens > 0 && !chunking->mean};
    TRY(recipe_open(&job->recipe, &recipe, err));
    TRY(output_name(options->output, &job->output, err));
    set_source(job, invocation);
    if (options->dtype == ELEMENT_F16 && job->output.kind != OUTPUT_NPY && job->output.kind != OUTPUT_SHARDS) {
        return err_set(err, STATUS_BAD_INPUT, "--dtype f16 is for .npy files and folders of them");
    }
    if (options->keep && (job->output.kind != OUTPUT_JSONL || job->job.arrays)) {
        return err_set(err, STATUS_BAD_INPUT,
                       "--keep is for FILE.jsonl, with INPUT: other outputs have vectors only (--id-field writes ids "
                       "beside them)");
    }
    job->job.output = &job->output;
    job->job.element = (enum element)options->dtype;
    job->job.shard_rows = (uint64_t)options->shard_rows;
    job->job.overwrite = options->overwrite;
    job->job.look_ahead = (uint32_t)options->look_ahead;
    return STATUS_OK;
}

/* Appends a term, which is a line; values are JSON strings, which have no line feeds. */
static void put_term(struct buffer *to, const char *key, const char *value)
{
    buffer_format(to, "%s=", key);
    if (value) { buffer_json_string(to, value, strlen(value)); }
    buffer_string(to, "\n");
}

/* Appends the terms: everything besides the texts that the vectors depend on. `max_tokens` 0: unknown. */
static void put_terms(struct embed_job *job, const struct remote_facts *of, const char *prompt, uint32_t max_tokens)
{
    static const char *const kinds[] = {"npy", "f32", "jsonl", "shards"};
    const struct embed_options *options = job->options;
    struct buffer *to = &job->terms;
    put_term(to, "model", of->model_id);
    put_term(to, TERM_MODEL_NAME, of->model);
    put_term(to, "precision", of->precision);
    buffer_format(to, "dim=%u\n", of->dim);
    if (max_tokens > 0) { buffer_format(to, "max_tokens=%u\n", max_tokens); }
    put_term(to, "prompt", prompt);
    put_term(to, "output", kinds[job->output.kind]);
    put_term(to, "dtype", options->dtype == ELEMENT_F16 ? "f16" : "f32");
    buffer_format(to, "shard_rows=%lld\n", job->output.kind == OUTPUT_SHARDS ? (long long)options->shard_rows : 0LL);
    put_term(to, "format", source_format_names[job->job.source.format]);
    put_term(to, "field", options->template ? NULL : options->field ? options->field : "text");
    put_term(to, "template", options->template);
    put_term(to, "id_field", options->id_field);
    put_term(to, "keep", options->keep);
    put_term(to, "glob", options->glob);
    put_term(to, "chunk", options->chunk);
    if (job->know) { put_term(to, "records", "requests"); }
    buffer_format(to, "header=%d\nmax_text_bytes=%lld\n", options->header, (long long)options->max_text_bytes);
}

/* `queue` NULL: a local job. */
static enum status put_facts(struct embed_job *job, const struct remote_facts *of, const char *queue, struct err *err)
{
    struct buffer *facts = &job->facts;
    buffer_json(facts, ",\n  'model': {'name': '%s', 'id': %s, 'revision': '%s'}", of->model, of->model_id,
                of->revision);
    buffer_json(facts, ",\n  'precision': %s,\n  'dim': %u,\n  'dtype': %s,\n  'normalized': %hhd", of->precision,
                of->dim, job->options->dtype == ELEMENT_F16 ? "f16" : "f32", of->normalized);
    buffer_append(facts, "", 1);
    if (!buffer_ok(facts) || !buffer_ok(&job->terms)) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for the terms of the job");
    }
    if (job->know) { job->know(job, of, queue); }
    job->job.dim = of->dim;
    job->job.normalize = of->normalized;
    job->job.terms = job->terms.data;
    job->job.facts = facts->data;
    uint32_t most_rows = PASS_VECTOR_BYTES / (of->dim * (uint32_t)sizeof(float));
    if (job->job.plain && job->output.kind == OUTPUT_JSONL && job->job.look_ahead > most_rows) {
        job->job.look_ahead = most_rows; /* their vectors wait in memory */
    }
    return STATUS_OK;
}

/* Completes terms and facts once model and engine are open. */
static enum status embed_job_model(struct embed_job *job, const struct model *model, const char *precision,
                                   struct err *err)
{
    struct remote_facts facts = {.dim = model->dim, .normalized = model->normalize};
    snprintf(facts.model_id, sizeof facts.model_id, "%s", model->id);
    snprintf(facts.model, sizeof facts.model, "%s", model->name);
    snprintf(facts.revision, sizeof facts.revision, "%s", model->revision);
    snprintf(facts.precision, sizeof facts.precision, "%s", precision);
    put_terms(job, &facts, model->prompt, model->max_tokens);
    job->job.preparer.model = model;
    job->job.preparer.ids = true;
    return put_facts(job, &facts, NULL, err);
}

/* Completes them for a queue, as far as its probe gives the terms of a local job. `model` cuts chunks; may be NULL. */
static enum status embed_job_queue(struct embed_job *job, const struct remote_facts *facts, const struct config *config,
                                   const struct model *model, struct err *err)
{
    if (model && strcmp(model->id, facts->model_id) != 0 && config_source_of(config, "model") == SOURCE_DEFAULT) {
        return err_set(err, STATUS_BAD_INPUT,
                       "--chunk also needs --model DIR, the model of queue %s, %s (%.8s): its tokenizer cuts",
                       config->queue, facts->model, facts->model_id);
    }
    if (model && strcmp(model->id, facts->model_id) != 0) {
        return err_set(
            err, STATUS_BAD_INPUT,
            "--model %s (%.8s) is not the model of queue %s, %s (%.8s): chunks that its tokenizer cuts may be "
            "too long there",
            config->model, model->id, config->queue, facts->model, facts->model_id);
    }
    job->job.preparer.model = model;
    const char *prompt = config->prompt ? config->prompt : config->prefix;
    put_terms(job, facts, prompt ? prompt : "", 0);
    return put_facts(job, facts, config->queue, err);
}

/* A number for the ids of the job's requests, made of machine, folder, output and terms. */
static uint64_t embed_job_number(const struct embed_job *job)
{
    char host[256] = "", folder[PATH_MAX] = "", where[PATH_MAX + 1024];
    struct stat info = {0};
    long process = job->job.plain ? (long)getpid() : 0; /* no lock prevents two such jobs */
    gethostname(host, sizeof host - 1);
    if (!getcwd(folder, sizeof folder) || stat(".", &info) != 0) { folder[0] = '\0'; }
    snprintf(where, sizeof where, "%s\n%s\n%s\n%llu %llu %ld\n", host, folder, job->output.path,
             (unsigned long long)info.st_dev, (unsigned long long)info.st_ino, process);
    return XXH3_64bits_withSeed(where, strlen(where), XXH3_64bits(job->terms.data, job->terms.length));
}

/* --- Running --- */

/* Says how many texts were longer than the model takes; of a queue's model the limit is unknown. */
static void print_truncated(FILE *to, const struct embed_job *job, uint64_t texts)
{
    const struct preparer *preparer = &job->job.preparer;
    if (texts == 0) { return; }
    if (preparer->ids) {
        fprintf(to, "%llu %s longer than %u tokens and lost the rest; ", (unsigned long long)texts,
                texts == 1 ? "text is" : "texts are", preparer->model->max_tokens);
    } else {
        fprintf(to, "at least %llu %s longer than the queue's model takes and lost the rest; ",
                (unsigned long long)texts, texts == 1 ? "text is" : "texts are");
    }
    fputs(preparer->chunking.tokens > 0 ? "smaller chunks keep everything\n"
          : job->summarize              ? "shorter texts keep everything\n"
                                        : "--chunk keeps everything\n",
          to);
}

/* Prints the result of a job, unless the progress as JSON has shown it. */
static void print_summary(const struct embed_job *job, const struct job_result *result, enum progress_style style)
{
    const struct job_progress *end = &result->progress;
    const char *path = job->output.path;
    if (!job->job.dry && style != PROGRESS_JSON && job->options->progress != PROGRESS_NONE) {
        print_truncated(stderr, job, end->truncated);
    }
    if (job->job.plain || style == PROGRESS_JSON || style == PROGRESS_NONE) { return; }
    if (job->summarize) {
        job->summarize(job, result);
        return;
    }
    if (result->before) {
        fprintf(stderr, "%s is finished already: %llu rows; nothing was computed\n", path,
                (unsigned long long)end->rows);
    } else if (result->finished) {
        uint64_t computed = end->rows - end->copied - end->failed, before = computed - end->computed_here;
        fprintf(stderr, "%s: %llu rows, %llu computed", path, (unsigned long long)end->rows,
                (unsigned long long)end->computed_here);
        if (before > 0) { fprintf(stderr, " now and %llu before", (unsigned long long)before); }
        fprintf(stderr, ", %llu copied from equal texts (%.1f %% saved), %llu failed\n",
                (unsigned long long)end->copied, end->rows > 0 ? 100.0 * (double)end->copied / (double)end->rows : 0,
                (unsigned long long)end->failed);
    }
    if (end->documents == 0 && (result->before || result->finished)) {
        fprintf(stderr, "the input has no text%s\n",
                has_folder(job->job.source.operands, job->job.source.operand_count) && !job->options->glob
                    ? ": a folder is searched for *.txt and *.md, unless --glob names other files"
                    : "");
    }
    if (end->failed > 0 && (result->before || result->finished)) {
        fprintf(stderr, "%llu %s no vector; %s says why\n", (unsigned long long)end->failed,
                end->failed == 1 ? "row failed and has" : "rows failed and have", job->output.failures);
    }
    if (end->duplicate_ids > 0 && (result->before || result->finished)) {
        fprintf(stderr, "%llu %s an id that an earlier row has; the first: ", (unsigned long long)end->duplicate_ids,
                end->duplicate_ids == 1 ? "row has" : "rows have");
        print_bytes(stderr, result->first_duplicate, strlen(result->first_duplicate));
        fputc('\n', stderr);
    }
    if (end->too_large > 0) {
        fprintf(stderr, "%llu batches were more than there was memory for, and were computed in parts\n",
                (unsigned long long)end->too_large);
    }
}

static int finish_job(const struct invocation *invocation, const struct embed_job *job, const struct job_result *result,
                      enum status status, const struct err *err)
{
    if (status == STATUS_OK && (result->finished || result->before)) {
        return result->progress.failed > 0 ? EXIT_ROWS_FAILED : EX_OK;
    }
    const char *name = invocation->command->name;
    bool stopped = job->job.stop && *job->job.stop != 0 && status == STATUS_UNAVAILABLE;
    if (status == STATUS_OK || stopped) {
        fprintf(stderr, "sluice %s: stopped; nothing is lost, rerunning the command resumes\n", name);
        return EX_TEMPFAIL;
    }
    int code = print_error(invocation, err);
    if (result->kept) {
        fprintf(stderr, "sluice %s: what was computed so far is kept; rerunning the command resumes\n", name);
    } else if (status == STATUS_IO && !job->job.plain && result->progress.here > 0) {
        fprintf(stderr, "sluice %s: what this run computed was not written; rerunning the command computes it again\n",
                name);
    }
    return code;
}

/* Runs the job on the open executor. */
static enum status run_job(struct embed_job *job, struct job_result *result, const struct config *config,
                           struct err *err)
{
    struct job_options *options = &job->job;
    struct progress progress;
    progress_begin(&progress, (enum progress_style)job->options->progress, options->plain);
    unsigned threads = config_threads(config);
    options->prep_threads = threads < PREP_THREADS_MAX ? threads : PREP_THREADS_MAX;
    options->report = progress_show;
    options->context = &progress;
    enum status status = job_run(options, result, err);
    progress_end(&progress, &result->progress, result->finished || result->before);
    if (status == STATUS_OK) { print_summary(job, result, progress.style); }
    return status;
}

static enum status run_locally(struct embed_job *job, struct job_result *result, const struct config *config,
                               const struct devices *devices, struct err *err)
{
    struct job_options *options = &job->job;
    struct local_options local = {.devices = devices,
                                  .threads = config_threads(config),
                                  .queued = BATCHES_PER_THREAD,
                                  .wake_fd = options->wake_fd};
    const struct engine *engine = devices_engine(devices, 0);
    struct batch_size size = devices_batch_size(config, engine);
    bool small = encoder_slots(engine) == 1 && size.tokens > CPU_BATCH_TOKENS; /* GPUs: as large as the daemon's */
    options->batch_tokens = small ? CPU_BATCH_TOKENS : size.tokens;
    options->batch_rows = size.rows;
    if (options->dry) {
        options->executor = &job->dry.executor;
        dry_open(&job->dry);
    } else {
        TRY(local_open(&local, &options->executor, err));
    }
    enum status status = run_job(job, result, config, err);
    options->executor->ops->close(options->executor);
    return status;
}

/* Seconds that the texts of a dry run take here; 0: unknown. */
static double predict_seconds(const struct embed_job *job, const struct config *config, const struct devices *devices,
                              const struct model *model)
{
    const struct dry *dry = &job->dry;
    struct engine *engine = devices_engine(devices, 0);
    unsigned threads = encoder_slots(engine) == 1 ? config_threads(config) : 1;
    struct cost_source of = {engine, model, threads};
    struct cost cost;
    struct err err;
    if (dry->batches == 0 || cost_calibrate(&of, CALIBRATE_NS, &cost, &err) != STATUS_OK) { return 0; }
    double batches = (double)dry->batches;
    struct cost_shape mean = {.tokens = dry->tokens / batches, .squares = dry->squares / batches};
    return batches * cost_predict_ns(&cost, mean) / (double)NS_PER_S / threads / devices->count;
}

static void print_dry(const struct embed_job *job, const struct job_progress *end, double seconds)
{
    for (const char *line = job->report.data, *stop = line + job->report.length; line < stop;) {
        const char *feed = memchr(line, '\n', (size_t)(stop - line));
        print_bytes(stdout, line, (size_t)((feed ? feed : stop) - line));
        fputc('\n', stdout);
        line = feed ? feed + 1 : stop;
    }
    printf("%llu rows", (unsigned long long)end->rows);
    if (end->failed > 0) { printf(", %llu of which would fail", (unsigned long long)end->failed); }
    printf("; %llu different texts to compute", (unsigned long long)end->computed_here);
    if (job->dry.tokens > 0) { printf(", %.0f tokens", job->dry.tokens); }
    if (seconds > 0) { printf(", about %.*f s on this machine when nothing else runs", seconds < 10, seconds); }
    fputs("\n", stdout);
    print_truncated(stdout, job, end->truncated);
}

static enum status embed_here(struct embed_job *job, struct job_result *result, const struct config *config,
                              struct err *err)
{
    struct model *model = NULL;
    struct devices devices = {0};
    TRY(config_model(config, &model, err));
    enum status status = devices_open(&devices, config, 1, err);
    bool raw = job->job.source.records; /* they cut vectors before they normalise them */
    if (status == STATUS_OK) { status = devices_load(&devices, config, model, raw, 0, err); }
    if (status == STATUS_OK) {
        status = embed_job_model(job, model, precision_name(engine_precision(devices_engine(&devices, 0))), err);
    }
    if (status == STATUS_OK) { status = run_locally(job, result, config, &devices, err); }
    if (status == STATUS_OK && job->job.dry && result->finished) {
        print_dry(job, &result->progress, predict_seconds(job, config, &devices, model));
    }
    devices_close(&devices);
    model_close(model);
    return status;
}

static bool is_chunked(const struct embed_job *job)
{
    return job->job.preparer.chunking.tokens > 0;
}

/* The workers are not asked: their tokens and their speed are unknown. */
static enum status embed_dry_for_queue(struct embed_job *job, struct job_result *result, const struct config *config,
                                       const struct model *model, struct err *err)
{
    struct job_options *options = &job->job;
    dry_open(&job->dry);
    options->executor = &job->dry.executor;
    options->preparer.model = model;
    options->dim = 1;
    options->batch_rows = REMOTE_BATCH_ROWS;
    options->batch_tokens = REMOTE_BATCH_BYTES;
    TRY(run_job(job, result, config, err));
    if (result->finished) { print_dry(job, &result->progress, 0); }
    return STATUS_OK;
}

static void say_live(const char *command, const char *queue, bool live)
{
    if (live) {
        fprintf(stderr, "sluice %s: queue %s has a live worker again\n", command, queue);
    } else {
        fprintf(stderr, "sluice %s: no live worker on queue %s; waiting for one (sluice serve --queue %s)\n", command,
                queue, queue);
    }
}

static void say_embed_live(const char *queue, bool live)
{
    say_live("embed", queue, live);
}

static void say_batch_live(const char *queue, bool live)
{
    say_live("batch", queue, live);
}

static enum status embed_through_queue(struct embed_job *job, struct job_result *result, const struct config *config,
                                       struct err *err)
{
    struct address address = {0};
    struct model *model = NULL;
    struct remote_facts facts;
    struct remote_options queue = {.address = &address,
                                   .queue = config->queue,
                                   .prompt = config->prompt,
                                   .prefix = config->prefix,
                                   .wake_fd = job->job.wake_fd,
                                   .stop = job->job.stop};
    if (job->options->progress != PROGRESS_NONE && job->options->progress != PROGRESS_JSON) {
        queue.live = job->know ? say_batch_live : say_embed_live;
    }
    if (is_chunked(job) && config_model(config, &model, err) != STATUS_OK) {
        return err_prefix(err, "--chunk cuts with the tokenizer of the queue's model");
    }
    if (job->job.dry) {
        enum status status = embed_dry_for_queue(job, result, config, model, err);
        model_close(model);
        return status;
    }
    enum status status = config_address(config, &address, err);
    if (status == STATUS_OK) { status = remote_probe(&queue, &facts, err); }
    if (status == STATUS_OK) { status = embed_job_queue(job, &facts, config, model, err); }
    if (status == STATUS_OK) {
        log_set_level(LOG_ERROR); /* the job says itself what its user must know */
        queue.dim = facts.dim;
        queue.raw = job->job.source.records;
        queue.job = embed_job_number(job);
        job->job.batch_rows = REMOTE_BATCH_ROWS;
        job->job.batch_tokens = REMOTE_BATCH_BYTES; /* without token ids a text weighs its bytes */
        priority_background();                      /* clients that wait for replies may be on this machine, too */
        status = remote_open(&queue, &job->job.executor, err);
    }
    if (status == STATUS_OK) {
        status = run_job(job, result, config, err);
        job->job.executor->ops->close(job->job.executor);
    }
    address_free(&address);
    model_close(model);
    return status;
}

/* True if --redis is given. Only the flag counts: a configuration that names the daemon's Redis does not send jobs
 * there. */
static bool is_for_queue(const struct config *config)
{
    return config_source_of(config, "redis") == SOURCE_FLAG;
}

/* Refuses flags without effect: settings of the workers, or a queue without --redis. */
static enum status check_flags(const struct embed_job *job, const struct config *config, struct err *err)
{
    static const char *const workers[] = {"precision", "pooling",       "max_tokens", "backend",
                                          "device",    "device_memory", NULL};
    for (size_t i = 0; is_for_queue(config) && workers[i]; i++) {
        if (config_source_of(config, workers[i]) == SOURCE_FLAG) {
            return err_set(err, STATUS_BAD_INPUT, "%s is a matter of the queue's workers: not together with --redis",
                           workers[i]);
        }
    }
    if (is_for_queue(config) && config_source_of(config, "model") == SOURCE_FLAG && !is_chunked(job)) {
        return err_set(err, STATUS_BAD_INPUT,
                       "the model is a matter of the queue's workers: --model goes together with --redis only where "
                       "--chunk needs its tokenizer");
    }
    if (!is_for_queue(config) && config_source_of(config, "queue") == SOURCE_FLAG) {
        return err_set(err, STATUS_BAD_INPUT, "--queue is for jobs through a queue: name its --redis, too");
    }
    return STATUS_OK;
}

static enum status embed_inputs(struct embed_job *job, struct job_result *result, const struct config *config,
                                struct err *err)
{
    TRY(check_flags(job, config, err));
    job->job.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (job->job.wake_fd < 0) { return err_set_errno(err, "cannot make an eventfd"); }
    bool queue = is_for_queue(config);
    enum status status = queue ? embed_through_queue(job, result, config, err) : embed_here(job, result, config, err);
    close(job->job.wake_fd);
    return status;
}

int embed_job_run(struct invocation *invocation, struct embed_job *job, enum status opened, struct err *err)
{
    struct job_result result = {0};
    enum status status = opened;
    bool allowed = !is_for_queue(&invocation->config) || invocation_is_one(invocation);
    if (allowed && status == STATUS_OK && !job->job.plain) {
        job->job.stop = job->job.source.stop = interrupt_listen();
        signal(SIGPIPE, SIG_IGN); /* the job goes on when the reader of its progress is gone */
    }
    if (allowed && status == STATUS_OK) { status = embed_inputs(job, &result, &invocation->config, err); }
    int code = allowed ? finish_job(invocation, job, &result, status, err) : EX_USAGE;
    recipe_close(&job->recipe);
    output_free(&job->output);
    buffer_free(&job->terms);
    buffer_free(&job->facts);
    buffer_free(&job->report);
    return code;
}

static int run_embed(struct invocation *invocation)
{
    struct err err;
    struct embed_job job;
    return embed_job_run(invocation, &job, embed_job_open(&job, invocation, &err), &err);
}

const struct subcommand command_embed = {
    .name = "embed",
    .bit = FOR_EMBED | FOR_BULK,
    .operands = "[INPUT...]",
    .summary = "Turn files of texts into vectors, here or through a queue",
    .explanation =
        "INPUT is a file (lines of text, .jsonl, .json, .csv, .tsv; gzip or zstd too), a folder of .txt and .md\n"
        "files, or - for standard input. Rows keep their order. Rerunning the command resumes an interrupted job;\n"
        "on a finished one it retries failed rows and adds what was appended to the input. Rows that fail are\n"
        "listed in OUTPUT.failures.jsonl and make the exit code 1. docs/bulk.md has the details.\n\n"
        "With --redis the workers of --queue compute, at low priority; the model is theirs. --chunk then needs\n"
        "--model, too: its tokenizer cuts.\n\n"
        "With --input (or without INPUT, from standard input) it is one pass over lines of text: an empty line is\n"
        "one, too, the first bad one ends it, and JSON lines of the output are bare arrays.\n\n"
        "The vectors are those that the daemon gives for the same texts and precision.",
    OWN_OPTIONS(own_settings, struct embed_options),
    .run = run_embed,
};
