/* Answers the lines of an OpenAI batch, as a bulk job: src/cli/embed_job.h runs it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>

#include "batch/lines.h"
#include "cli/command.h"
#include "cli/embed_job.h"
#include "cli/progress.h"

struct batch_job {
    struct embed_job embed; /* first */
    struct batch_lines lines;
    struct records records;
    char model[sizeof((struct remote_facts *)0)->model], queue[256];
};

#define OWN(name, kind) .key = #name, .type = (kind), .offset = offsetof(struct embed_options, name)

/* clang-format off */
static const struct setting own_settings[] = {
    {OWN(output, SETTING_TEXT), .fallback = "-", .value = "OUT.jsonl",
        .help = "the file of responses; OUT.errors.jsonl has those of requests that failed"},
    {OWN(max_text_bytes, SETTING_INTEGER), .fallback = "1048576", .least = 1, .most = 1 << 28, .value = "N", .help = "a longer text, or a line of more than 8 times as much, fails"},
    {OWN(overwrite, SETTING_SWITCH), .fallback = "false", .help = "delete what an earlier job left, and begin again"},
    {OWN(progress, SETTING_CHOICE), .fallback = "auto", .choices = progress_styles, .help = "how to show progress on standard error"},
    {OWN(look_ahead, SETTING_INTEGER), .fallback = "65536", .least = 1, .most = 1 << 20, .value = "N", .help = "texts that are sorted by length together"},
};
/* clang-format on */

/* Copies for the lines what they need to know of the model. */
static void take_facts(struct embed_job *job, const struct remote_facts *facts, const char *queue)
{
    struct batch_job *batch = (struct batch_job *)job;
    snprintf(batch->model, sizeof batch->model, "%s", facts->model);
    snprintf(batch->queue, sizeof batch->queue, "%s", queue ? queue : "");
    batch->lines.model = batch->model;
    batch->lines.queue = queue ? batch->queue : NULL;
    batch->lines.dim = facts->dim;
    batch->lines.normalize = facts->normalized;
}

static void print_result(const struct embed_job *job, const struct job_result *result)
{
    const struct job_progress *end = &result->progress;
    if (!result->finished && !result->before) { return; }
    unsigned long long requests = end->documents;
    uint64_t failed = 0;
    struct err err;
    if (end->failed > 0 && batch_lines_count(job->output.failures, &failed, &err) != STATUS_OK) {
        fprintf(stderr, "the failed requests could not be counted: %s\n", err.message);
    }
    fprintf(stderr, "%s%s: %llu requests, %llu completed, %llu failed", job->output.path,
            result->before ? " is finished already" : "", requests, requests - failed, (unsigned long long)failed);
    if (failed > 0) { fprintf(stderr, " (%s)", job->output.failures); }
    fprintf(stderr, "; %llu texts, %llu computed now, %llu copied from equal texts\n", (unsigned long long)end->rows,
            (unsigned long long)end->computed_here, (unsigned long long)end->copied);
}

/* The list of failures of OUT.jsonl is OUT.errors.jsonl, as the client of a batch expects it. */
static enum status name_errors(struct output *output, struct err *err)
{
    struct buffer name = {0};
    buffer_format(&name, "%.*s.errors.jsonl", (int)(strlen(output->path) - strlen(".jsonl")), output->path);
    buffer_append(&name, "", 1);
    if (!buffer_ok(&name)) { return err_set(err, STATUS_NO_MEMORY, "no memory for the names of the output"); }
    free(output->failures);
    output->failures = name.data;
    return STATUS_OK;
}

/* Refuses a file whose lines have equal ids. */
static enum status check_file(const char *path, size_t most_bytes, struct err *err)
{
    enum { SHOWN = 5 };
    struct batch_findings findings = {0};
    enum status status = batch_lines_check(path, most_bytes, &findings, err);
    if (status == STATUS_OK && findings.twice > 0) {
        bool one = findings.twice == 1;
        struct buffer shown = {0};
        for (uint64_t i = 0; i < findings.twice && i < SHOWN; i++) {
            buffer_format(&shown, "%s%llu (as line %llu)", i == 0 ? "" : ", ",
                          (unsigned long long)findings.twins[i].line, (unsigned long long)findings.twins[i].first);
        }
        status = err_set(err, STATUS_BAD_INPUT, "%s: %llu %s the custom_id of an earlier line: %s %.*s%s", path,
                         (unsigned long long)findings.twice, one ? "line has" : "lines have", one ? "line" : "lines",
                         (int)shown.length, shown.data, findings.twice > SHOWN ? " and others" : "");
        buffer_free(&shown);
    }
    return status;
}

static enum status open_batch(struct batch_job *batch, struct invocation *invocation, struct err *err)
{
    const struct embed_options *options = invocation->own;
    const char *path = invocation->operands[0];
    struct stat info;
    struct embed_job *job = &batch->embed;
    *batch = (struct batch_job){.lines.max_text_bytes = (size_t)options->max_text_bytes};
    job->options = options;
    job->know = take_facts;
    job->summarize = print_result;
    batch->records = batch_lines_records(&batch->lines);
    TRY(output_name(options->output, &job->output, err));
    if (job->output.kind != OUTPUT_JSONL || job->output.standard) {
        return err_set(err, STATUS_BAD_INPUT, "name the file of the responses: --output OUT.jsonl");
    }
    TRY(name_errors(&job->output, err));
    if (stat(path, &info) != 0) { return err_set_errno(err, "cannot open %s", path); }
    if (!S_ISREG(info.st_mode)) { return err_set(err, STATUS_BAD_INPUT, "%s is no file: a batch is read twice", path); }
    job->job = (struct job_options){
        .source = {.operands = invocation->operands,
                   .operand_count = 1,
                   .records = &batch->records,
                   .max_text_bytes = (size_t)options->max_text_bytes},
        .output = &job->output,
        .overwrite = options->overwrite,
        .look_ahead = (uint32_t)options->look_ahead,
    };
    return check_file(path, source_record_bytes(&job->job.source), err);
}

static int run_batch(struct invocation *invocation)
{
    struct err err;
    struct batch_job batch;
    if (invocation->operand_count != 1) {
        fprintf(stderr, "sluice batch: needs one FILE.jsonl, and --output OUT.jsonl\n");
        return EX_USAGE;
    }
    enum status opened = open_batch(&batch, invocation, &err);
    int code = embed_job_run(invocation, &batch.embed, opened, &err);
    batch_lines_free(&batch.lines);
    return code;
}

const struct subcommand command_batch = {
    .name = "batch",
    .bit = FOR_EMBED | FOR_BULK,
    .operands = "FILE.jsonl",
    .summary = "Answer the requests of an OpenAI batch, here or through a queue",
    .explanation =
        "FILE.jsonl (gzip or zstd too) has a request to /v1/embeddings on each line, as the Batch API of OpenAI takes\n"
        "them. Each line gets one line in OUT.jsonl, or in OUT.errors.jsonl if it fails, which makes the exit code 1.\n"
        "Rerunning the command resumes an interrupted job, and gives the same bytes. docs/batches.md has the "
        "details.\n\n"
        "With --redis the workers of --queue compute, at low priority; the model is theirs.",
    OWN_OPTIONS(own_settings, struct embed_options),
    .run = run_batch,
};
