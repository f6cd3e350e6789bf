/* `classify` and `rerank`: texts through a model with a classification head, on this machine. A file is read in chunks;
 * a chunk is a request without a queue: tokenised as the daemon does it, and cut into batches by length. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/utf8.h"
#include "bulk/input/sniff.h"
#include "bulk/input/stream.h"
#include "cli/command.h"
#include "cli/print.h"
#include "compute/compute.h"
#include "compute/devices.h"
#include "config/config.h"
#include "engine/vector.h"
#include "schedule/batch.h"
#include "schedule/prepare.h"
#include "schedule/reply.h"

enum { TEXT_MAX_BYTES = 1 << 28, CHUNK_ROWS = 1024, CHUNK_BYTES = 4 << 20 };

struct own {
    char *input, *query;
    bool raw;
};

#define INPUT(help_line)                                                                                               \
    {                                                                                                                  \
        .key = "input", .type = SETTING_TEXT, .offset = offsetof(struct own, input), .fallback = "-", .value = "FILE", \
        .help = (help_line)                                                                                            \
    }
#define RAW                                                                                                            \
    {                                                                                                                  \
        .key = "raw", .type = SETTING_SWITCH, .offset = offsetof(struct own, raw), .fallback = "false",                \
        .help = "the logits, without sigmoid or softmax"                                                               \
    }

static const struct setting classify_settings[] = {INPUT("one text per line; - is standard input"), RAW};

static const struct setting rerank_settings[] = {
    {.key = "query",
     .type = SETTING_TEXT,
     .offset = offsetof(struct own, query),
     .value = "TEXT",
     .help = "what the documents are scored against"},
    INPUT("one document per line; - is standard input"),
    RAW,
};

/* A job in progress. */
struct job {
    const struct own *own;
    enum request_task task;
    struct model *model;
    struct devices devices;
    struct compute *compute;
    struct batch_size batch;
    struct reader reader;
    uint64_t first; /* number of the chunk's first text, from 0 */
    uint64_t cut;   /* texts that are longer than the model takes */
    bool ended;
    struct err bad; /* a bad line, which ends the job after the lines before it; status STATUS_OK: none */
};

/* Says so when the file does not seem to have a text a line. */
static enum status check_kind(const struct job *job, const struct record *line, struct err *err)
{
    const char *name, *way, *file = stream_name(job->reader.stream);
    enum sniffed kind = sniff(line->bytes, line->length < SNIFF_BYTES ? line->length : SNIFF_BYTES, &name, &way);
    if (kind == SNIFF_OTHER) { return err_set(err, STATUS_BAD_INPUT, "%s is %s, not lines of text", file, name); }
    if (kind == SNIFF_JSON_LINE || kind == SNIFF_JSON_ARRAY) {
        fprintf(stderr, "sluice: %s looks like JSON, and each line is one text; jq -r .text takes a field out of it\n",
                file);
    } else if (fnmatch("*.[ct]sv", file, 0) == 0) {
        fprintf(stderr,
                "sluice: %s is named as a table, but each line is one text, with all columns, and so is the header\n",
                file);
    }
    return STATUS_OK;
}

/* Reads the texts of a chunk, one after another. Shapes: rows [CHUNK_ROWS], `text` not set yet. */
static enum status read_chunk(struct job *job, struct request *request, struct buffer *texts, struct err *err)
{
    struct record line;
    while (request->row_count < CHUNK_ROWS && texts->length < CHUNK_BYTES) {
        enum status status = reader_text(&job->reader, &line, &job->bad);
        job->ended = status != STATUS_OK || !line.bytes;
        if (job->ended) { break; }
        if (job->first + request->row_count == 0) { TRY(check_kind(job, &line, err)); }
        request->rows[request->row_count++] = (struct row){.request = request, .text_bytes = (uint32_t)line.length};
        buffer_append(texts, line.bytes, line.length);
    }
    size_t at = 0;
    for (uint32_t i = 0; i < request->row_count; at += request->rows[i++].text_bytes) {
        request->rows[i].text = texts->data ? texts->data + at : "";
    }
    return buffer_ok(texts) ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for the texts");
}

static int longer_first(const void *left, const void *right)
{
    const struct row *a = *(struct row *const *)left, *b = *(struct row *const *)right;
    if (a->tokens != b->tokens) { return a->tokens > b->tokens ? -1 : 1; }
    return a < b ? -1 : 1;
}

/* Waits for a batch, and takes it back with the outputs of its rows. */
static enum status take_batch(const struct job *job, struct err *err)
{
    struct batch *batch = compute_wait(job->compute);
    uint32_t labels = job->model->head.labels;
    for (uint32_t i = 0; i < batch->engine.rows && batch->status == STATUS_OK; i++) {
        memcpy(batch->rows[i]->output, batch->engine.output + (size_t)i * labels, labels * sizeof(float));
    }
    enum status status = batch->status;
    if (status != STATUS_OK && err) { *err = batch->err; }
    batch_free(batch);
    return status;
}

/* The number of rows, from the first on, that make a batch. */
static uint32_t batch_rows(const struct job *job, struct row *const *rows, uint32_t count)
{
    uint32_t taken = 1, tokens = rows[0]->tokens;
    while (taken < count && taken < job->batch.rows && tokens + rows[taken]->tokens <= job->batch.tokens) {
        tokens += rows[taken++]->tokens;
    }
    return taken;
}

/* Computes the rows. Batches that are out come back even after an error. */
static enum status compute_rows(const struct job *job, struct row **rows, uint32_t count, struct err *err)
{
    enum status status = STATUS_OK;
    uint32_t out = 0;
    for (uint32_t at = 0; status == STATUS_OK && at < count;) {
        if (!compute_has_room(job->compute, false)) {
            status = take_batch(job, err);
            out--;
            continue;
        }
        uint32_t taken = batch_rows(job, rows + at, count - at);
        struct batch *batch = batch_build(rows + at, taken, LAYOUT_PACKED, job->model->head.labels);
        if (!batch) {
            status = err_set(err, STATUS_NO_MEMORY, "no memory for a batch");
            break;
        }
        compute_put(job->compute, 0, NULL, batch);
        at += taken;
        out++;
    }
    for (; out > 0; out--) {
        enum status last = take_batch(job, status == STATUS_OK ? err : NULL);
        status = status == STATUS_OK ? last : status;
    }
    return status;
}

static enum status compute_chunk(const struct job *job, struct request *request, struct err *err)
{
    prepare_request(request, job->model);
    if (request->retry.code != CODE_NONE) {
        return err_set(err, STATUS_BAD_INPUT, "texts from number %llu on: %s", (unsigned long long)job->first,
                       request->retry.message);
    }
    struct row **rows = malloc(request->row_count * sizeof *rows);
    if (!rows) { return err_set(err, STATUS_NO_MEMORY, "no memory for a chunk of texts"); }
    for (uint32_t i = 0; i < request->row_count; i++) { rows[i] = &request->rows[i]; }
    qsort(rows, request->row_count, sizeof *rows, longer_first);
    enum status status = compute_rows(job, rows, request->row_count, err);
    free(rows);
    return status;
}

static enum status print_row(const struct job *job, uint64_t number, float *logits, struct err *err)
{
    const struct model_head *head = &job->model->head;
    struct buffer line = {0};
    enum scoring scoring = job->task == TASK_RERANK ? head->score : head->classify;
    vector_score(logits, head->labels, job->own->raw ? SCORING_NONE : scoring);
    if (job->task == TASK_CLASSIFY) {
        reply_put_labels(&line, head, logits);
    } else {
        reply_put_score(&line, number, logits[0]);
    }
    return print_json(&line, err);
}

/* A request as the daemon would have read it, except for its rows. Shapes: rows [CHUNK_ROWS]. */
static struct request request_of(const struct job *job, struct row *rows)
{
    const char *query = job->task == TASK_RERANK ? job->own->query : NULL;
    return (struct request){.query = query,
                            .query_bytes = query ? (uint32_t)strlen(query) : 0,
                            .inputs = true,
                            .rows = rows,
                            .truncate = true,
                            .max_tokens = job->model->max_tokens,
                            .dim = job->model->head.labels};
}

static enum status run_chunk(struct job *job, struct row *rows, struct err *err)
{
    struct buffer texts = {0};
    struct request request = request_of(job, rows);
    enum status status = read_chunk(job, &request, &texts, err);
    if (status == STATUS_OK && request.row_count > 0) { status = compute_chunk(job, &request, err); }
    for (uint32_t i = 0; i < request.row_count && status == STATUS_OK; i++) {
        job->cut += rows[i].truncated;
        status = print_row(job, job->first + i, rows[i].output, err);
    }
    job->first += request.row_count;
    free(request.work);
    buffer_free(&texts);
    return status;
}

static enum status open_compute(struct job *job, const struct config *config, struct err *err)
{
    TRY(devices_open(&job->devices, config, 1, err));
    TRY(devices_load(&job->devices, config, job->model, false, 0, err));
    job->batch = devices_batch_size(config, devices_engine(&job->devices, 0));
    struct compute_options options = compute_configured(config, &job->devices, 1);
    options.background = 0;
    return compute_open(&options, &job->compute, err);
}

/* Refuses a job that the model or the options do not allow, before anything is computed. */
static enum status check_job(const struct job *job, struct err *err)
{
    const char *query = job->own->query;
    if (job->model->head.labels == 0) {
        return err_set(err, STATUS_UNSUPPORTED, "the model %s embeds: it has no classification head", job->model->name);
    }
    if (job->task != TASK_RERANK) { return STATUS_OK; }
    if (job->model->head.labels != 1) {
        return err_set(err, STATUS_UNSUPPORTED, "the model %s has %u labels; a reranker has one", job->model->name,
                       job->model->head.labels);
    }
    if (!query || query[0] == '\0' || !utf8_valid(query, strlen(query)) || strlen(query) > TEXT_MAX_BYTES) {
        return err_set(err, STATUS_BAD_INPUT, "--query must be given, and be UTF-8");
    }
    return STATUS_OK;
}

static enum status run_chunks(struct job *job, struct err *err)
{
    struct row *rows = calloc(CHUNK_ROWS, sizeof *rows);
    enum status status = rows ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for a chunk of texts");
    while (status == STATUS_OK && !job->ended && !ferror(stdout)) { status = run_chunk(job, rows, err); }
    free(rows);
    if (status == STATUS_OK && job->bad.status != STATUS_OK) {
        *err = job->bad;
        status = job->bad.status;
    }
    return status;
}

static enum status run_job(struct job *job, const struct config *config, struct err *err)
{
    TRY(config_any_model(config, &job->model, err));
    TRY(check_job(job, err));
    TRY(reader_open(&job->reader, job->own->input, TEXT_MAX_BYTES, NULL, err));
    enum status status = open_compute(job, config, err);
    if (status == STATUS_OK) { status = run_chunks(job, err); }
    reader_close(&job->reader);
    return status;
}

static int run_task(struct invocation *invocation, enum request_task task)
{
    struct job job = {.own = invocation->own, .task = task};
    struct err err;
    enum status status = run_job(&job, &invocation->config, &err);
    compute_close(job.compute);
    devices_close(&job.devices);
    model_close(job.model);
    if (job.cut > 0) {
        fprintf(stderr, "sluice %s: %llu of %llu texts are longer than the model takes and lost the rest\n",
                invocation->command->name, (unsigned long long)job.cut, (unsigned long long)job.first);
    }
    return status == STATUS_OK ? EX_OK : print_error(invocation, &err);
}

static int run_classify(struct invocation *invocation)
{
    return run_task(invocation, TASK_CLASSIFY);
}

static int run_rerank(struct invocation *invocation)
{
    return run_task(invocation, TASK_RERANK);
}

const struct subcommand command_classify = {
    .name = "classify",
    .bit = FOR_ENGINE,
    .summary = "Label texts with a classification model",
    .explanation =
        "Reads lines, each a text, and prints a JSON array for each: its labels with their scores, best first.\n"
        "The model is a ...ForSequenceClassification, as transformers saves it. Scores are the softmax of the\n"
        "logits, or the sigmoid of each where the model has one label, or several for each text.",
    OWN_OPTIONS(classify_settings, struct own),
    .run = run_classify,
};

const struct subcommand command_rerank = {
    .name = "rerank",
    .bit = FOR_ENGINE,
    .summary = "Score documents against a query with a reranker",
    .explanation =
        "Reads one document per line and prints a JSON object for each, in the same order: its number from 0\n"
        "on, and its score. The model is a cross-encoder: a ...ForSequenceClassification with one label. A\n"
        "pair that is longer than the model takes is cut at the longer of its texts.",
    OWN_OPTIONS(rerank_settings, struct own),
    .run = run_rerank,
};
