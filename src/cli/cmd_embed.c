/* Files of texts to vectors: on this machine, or with --redis through the workers of a queue. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/system.h"
#include "bulk/executor.h"
#include "bulk/remote.h"
#include "cli/command.h"
#include "cli/embed_job.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "serve/devices.h"
#include "serve/config.h"

/* Rows failed, but the job is finished. */
enum { EXIT_ROWS_FAILED = 1 };

/* A CPU gains nothing from larger batches, and threads that end at different times wait for less at the end. */
enum { CPU_BATCH_TOKENS = 1024, BATCHES_PER_THREAD = 16, PREP_THREADS_MAX = 8 };

static const char *const dtypes[] = {"f32", "f16", NULL};
static const char *const styles[] = {"auto", "bar", "lines", "json", "none", NULL};

#define OWN(name, kind) .key = #name, .type = (kind), .offset = offsetof(struct embed_options, name)

/* clang-format off */
static const struct setting own_settings[] = {
    {OWN(input, SETTING_TEXT), .fallback = "-", .value = "FILE",
        .help = "instead of INPUT: one text per line, in one pass; - is standard input"},
    {OWN(output, SETTING_TEXT), .fallback = "-", .value = "FILE",
        .help = "FILE.npy, FILE.jsonl, FILE.f32, DIR/ for .npy files of some rows each, or - for JSON lines on standard output"},
    {OWN(format, SETTING_CHOICE), .fallback = "auto", .choices = source_format_names, .help = "what the inputs are, when their names do not say it"},
    {OWN(field, SETTING_TEXT), .fallback = "text", .most = 1024, .value = "NAME", .help = "where the text is in JSON or CSV: text, meta.title"},
    {OWN(template, SETTING_TEXT), .most = 65536, .value = "TEXT", .help = "the text out of several fields: \"{title}. {body}\""},
    {OWN(id_field, SETTING_TEXT), .most = 1024, .value = "NAME", .help = "the field that is a row's id [its number]"},
    {OWN(keep, SETTING_TEXT), .most = 4096, .value = "NAMES", .help = "fields to pass on into FILE.jsonl: title,meta.year"},
    {OWN(header, SETTING_SWITCH), .fallback = "true", .help = "CSV without a header: its columns are called 1, 2, 3"},
    {OWN(glob, SETTING_TEXT), .most = 1024, .value = "PATTERN", .help = "which files of a folder [*.txt and *.md]"},
    {OWN(chunk, SETTING_TEXT), .most = 256, .value = "HOW", .help = "tokens:256,overlap:32 cuts long texts at ends of sentences; with ,mean one vector for all chunks"},
    {OWN(max_text_bytes, SETTING_INTEGER), .fallback = "1048576", .least = 1, .most = 1 << 28, .value = "N", .help = "a longer text is a failed row"},
    {OWN(dtype, SETTING_CHOICE), .fallback = "f32", .choices = dtypes, .help = "the floats of .npy files"},
    {OWN(shard_rows, SETTING_INTEGER), .fallback = "1000000", .least = 1, .most = INT64_C(1) << 40, .value = "N", .help = "rows of each file in DIR/"},
    {OWN(strict, SETTING_SWITCH), .fallback = "false", .help = "end at the first row that fails"},
    {OWN(overwrite, SETTING_SWITCH), .fallback = "false", .help = "delete what an earlier job left, and begin again"},
    {OWN(progress, SETTING_CHOICE), .fallback = "auto", .choices = styles, .help = "how to show progress on standard error"},
    {OWN(look_ahead, SETTING_INTEGER), .fallback = "65536", .least = 1, .most = 1 << 20, .value = "N", .help = "rows that are sorted by length together"},
};
/* clang-format on */

/* What a job says in the end, unless a bar or JSON has said it. */
static void summarize(const struct embed_job *job, const struct job_result *result, enum progress_style style)
{
    const struct job_progress *end = &result->progress;
    const char *path = job->output.path;
    if (job->job.plain || style == PROGRESS_JSON || style == PROGRESS_NONE)
        return;
    if (result->before)
        fprintf(stderr, "%s is finished already: %llu rows; nothing was computed\n", path,
                (unsigned long long)end->rows);
    else if (result->finished)
        fprintf(stderr, "%s: %llu rows, %llu computed, %llu copied from equal texts (%.1f %% saved), %llu failed\n",
                path, (unsigned long long)end->rows, (unsigned long long)(end->rows - end->copied - end->failed),
                (unsigned long long)end->copied, end->rows > 0 ? 100.0 * (double)end->copied / (double)end->rows : 0,
                (unsigned long long)end->failed);
    if (end->failed > 0 && (result->before || result->finished))
        fprintf(stderr, "%llu rows failed and have no vector; %s lists them\n", (unsigned long long)end->failed,
                job->output.failures);
    if (end->too_large > 0)
        fprintf(stderr, "%llu batches were more than there was memory for, and were computed in parts\n",
                (unsigned long long)end->too_large);
}

static int finish(const struct invocation *invocation, const struct embed_job *job, const struct job_result *result,
                  enum status status, const struct err *err)
{
    if (status == STATUS_OK && (result->finished || result->before))
        return result->progress.failed > 0 ? EXIT_ROWS_FAILED : EX_OK;
    bool stopped = job->job.stop != NULL && *job->job.stop != 0 && status == STATUS_UNAVAILABLE;
    if (status == STATUS_OK || stopped) {
        fprintf(stderr, "sluice embed: stopped; nothing is lost, the same command goes on from here\n");
        return EX_TEMPFAIL;
    }
    int code = report(invocation, err);
    if (!job->job.plain && result->progress.here > 0)
        fprintf(stderr, "sluice embed: what was computed so far is kept; the same command goes on from there\n");
    return code;
}

/* GPUs do gain. */
static struct batch_size batch_size(const struct config *config, const struct engine *engine)
{
    struct batch_size size = devices_batch_size(config, engine);
    if (encoder_slots(engine) == 1 && size.tokens > CPU_BATCH_TOKENS) {
        size.tokens = CPU_BATCH_TOKENS;
    }
    return size;
}

/* With the executor that is open. */
static enum status run_job(struct embed_job *job, struct job_result *result, const struct config *config,
                           struct err *err)
{
    struct job_options *options = &job->job;
    struct progress progress;
    unsigned threads = config_threads(config);
    options->prep_threads = threads < PREP_THREADS_MAX ? threads : PREP_THREADS_MAX;
    progress_start(&progress, (enum progress_style)job->options->progress, options->plain);
    options->report = progress_show;
    options->context = &progress;
    enum status status = job_run(options, result, err);
    progress_end(&progress, result);
    if (status == STATUS_OK)
        summarize(job, result, progress.style);
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
    struct batch_size size = batch_size(config, devices_engine(devices, 0));
    options->batch_tokens = size.tokens;
    options->batch_rows = size.rows;
    TRY(local_open(&local, &options->executor, err));
    enum status status = run_job(job, result, config, err);
    options->executor->ops->close(options->executor);
    return status;
}

static enum status embed_on_devices(struct embed_job *job, struct job_result *result, const struct config *config,
                                    struct model *model, struct err *err)
{
    struct devices devices;
    enum status status = devices_open(&devices, config, 1, err);
    if (status == STATUS_OK)
        status = devices_load(&devices, config, model, false, 0, err);
    if (status == STATUS_OK)
        status = embed_job_model(job, model, precision_name(engine_precision(devices_engine(&devices, 0))), err);
    if (status == STATUS_OK)
        status = run_locally(job, result, config, &devices, err);
    devices_close(&devices);
    return status;
}

static enum status embed_here(struct embed_job *job, struct job_result *result, const struct config *config,
                              struct err *err)
{
    struct model *model = NULL;
    TRY(config_model(config, &model, err));
    enum status status = embed_on_devices(job, result, config, model, err);
    model_close(model);
    return status;
}

static enum status run_through_queue(struct embed_job *job, struct job_result *result, const struct config *config,
                                     const struct model *model, struct remote_options *queue, struct err *err)
{
    struct remote_facts facts;
    TRY(remote_probe(queue, &facts, err));
    TRY(embed_job_queue(job, &facts, config, model, err));
    queue->dim = facts.dim;
    queue->job = embed_job_number(job);
    job->job.batch_rows = REMOTE_BATCH_ROWS;
    job->job.batch_tokens = REMOTE_BATCH_BYTES; /* without token ids a text weighs its bytes */
    /* Who waits for an answer may be on this machine, too. */
    priority_background();
    TRY(remote_open(queue, &job->job.executor, err));
    enum status status = run_job(job, result, config, err);
    job->job.executor->ops->close(job->job.executor);
    return status;
}

static bool is_chunked(const struct embed_job *job)
{
    return job->job.preparer.chunking.tokens > 0;
}

static enum status embed_through_queue(struct embed_job *job, struct job_result *result, const struct config *config,
                                       struct err *err)
{
    struct address address;
    struct model *model = NULL;
    if (is_chunked(job) && config_model(config, &model, err) != STATUS_OK)
        return err_prefix(err, "--chunk cuts with the tokenizer of the queue's model");
    enum status status = config_address(config, &address, err);
    if (status != STATUS_OK) {
        model_close(model);
        return status;
    }
    struct remote_options queue = {.address = &address,
                                   .queue = config->queue,
                                   .prompt = config->prompt,
                                   .prefix = config->prefix,
                                   .wake_fd = job->job.wake_fd,
                                   .stop = job->job.stop};
    status = run_through_queue(job, result, config, model, &queue, err);
    address_free(&address);
    model_close(model);
    return status;
}

/* Only the flag asks for it: a configuration that names a Redis for the daemon does not move a job there. */
static bool is_for_queue(const struct config *config)
{
    return config_source_of(config, "redis") == SOURCE_FLAG;
}

/* Flags that would mean nothing: what computes is the workers' business, or there is no queue. */
static enum status check_flags(const struct embed_job *job, const struct config *config, struct err *err)
{
    static const char *const workers[] = {"precision", "pooling",       "max_tokens", "backend",
                                          "device",    "device_memory", NULL};
    for (size_t i = 0; is_for_queue(config) && workers[i] != NULL; i++)
        if (config_source_of(config, workers[i]) == SOURCE_FLAG)
            return err_set(err, STATUS_BAD_INPUT, "%s is a matter of the queue's workers: not together with --redis",
                           workers[i]);
    if (is_for_queue(config) && config_source_of(config, "model") == SOURCE_FLAG && !is_chunked(job))
        return err_set(err, STATUS_BAD_INPUT,
                       "the model is a matter of the queue's workers: --model goes together with --redis only where "
                       "--chunk needs its tokenizer");
    if (!is_for_queue(config) && config_source_of(config, "queue") == SOURCE_FLAG)
        return err_set(err, STATUS_BAD_INPUT, "--queue is for jobs through a queue: name its --redis, too");
    return STATUS_OK;
}

static enum status embed(struct embed_job *job, struct job_result *result, const struct config *config, struct err *err)
{
    TRY(check_flags(job, config, err));
    job->job.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (job->job.wake_fd < 0)
        return err_set_errno(err, "cannot make an eventfd");
    bool queue = is_for_queue(config);
    enum status status = queue ? embed_through_queue(job, result, config, err) : embed_here(job, result, config, err);
    close(job->job.wake_fd);
    return status;
}

static int run(struct invocation *invocation)
{
    struct err err;
    struct embed_job job;
    struct job_result result = {0};
    if (is_for_queue(&invocation->config) && !session_is_one(invocation)) {
        return EX_USAGE;
    }
    enum status status = embed_job_open(&job, invocation, &err);
    if (status == STATUS_OK && !job.job.plain)
        job.job.stop = job.job.source.stop = interrupt_listen();
    if (status == STATUS_OK)
        status = embed(&job, &result, &invocation->config, &err);
    int code = finish(invocation, &job, &result, status, &err);
    embed_job_close(&job);
    return code;
}

const struct subcommand command_embed = {
    .name = "embed",
    .bit = FOR_EMBED | FOR_BULK,
    .operands = "[INPUT...]",
    .summary = "Turn files of texts into vectors, here or through a queue",
    .explanation =
        "INPUT is a file (lines of text, .jsonl, .csv, .tsv; gzip or zstd too), a folder of .txt and .md files, or -\n"
        "for standard input. Rows keep their order. A job that was interrupted, whatever by, goes on when the same\n"
        "command runs again; one that is finished then tries failed rows again and adds what has come behind its "
        "input.\n"
        "Rows that fail are listed in OUTPUT.failures.jsonl and make the exit code 1. docs/bulk.md tells all of it.\n\n"
        "With --redis the workers of --queue compute, at low priority; the model is theirs. --chunk then needs "
        "--model, too:\n"
        "its tokenizer cuts.\n\n"
        "With --input (or without INPUT, from standard input) it is one pass: every line is a text, an empty one too,\n"
        "the first bad one ends it, and JSON lines are bare arrays.\n\n"
        "The vectors are those that the daemon gives for the same texts and precision.",
    .own = own_settings,
    .own_count = sizeof own_settings / sizeof own_settings[0],
    .own_size = sizeof(struct embed_options),
    .run = run,
};
