/* Writes texts with a language model on this machine: a prompt a line in, a JSON object a line out, in the same order.
 *
 * One thread reads, computes (with helpers) and writes. It reads ahead as far as there is work for full steps. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/json_tree.h"
#include "base/random.h"
#include "bulk/input/stream.h"
#include "cli/command.h"
#include "cli/print.h"
#include "compute/devices.h"
#include "compute/writer.h"
#include "config/config.h"
#include "engine/cpu/parallel_for.h"
#include "engine/decoder.h"
#include "generate/generator.h"

enum { LINE_MAX_BYTES = 16 << 20, AHEAD = 256, EXIT_LINES_FAILED = 1, USUAL_PROMPT_TOKENS = 1024 };

struct own {
    char *input, *output, *temperature, *top_p, *min_p, *repetition_penalty, *stop;
    int64_t max_tokens, seed, top_k;
    bool token_ids;
};

static bool is_number(const char *text)
{
    char *end;
    double number = strtod(text, &end);
    return end != text && *end == '\0' && number >= 0 && number <= 1000;
}

#define OWN(name, kind) .key = #name, .type = (kind), .offset = offsetof(struct own, name)
#define NUMBER(name)                                                                                                   \
    OWN(name, SETTING_TEXT), .accepts = is_number, .expects = "a number from 0 to 1000", .most = 32, .value = "NUMBER"

/* clang-format off */
static const struct setting own_settings[] = {
    {OWN(input, SETTING_TEXT), .fallback = "-", .value = "FILE", .help = "a prompt a line, or JSON Lines with prompt or messages; - is standard input"},
    {OWN(output, SETTING_TEXT), .fallback = "-", .value = "FILE", .help = "where the texts go, as JSON Lines; - is standard output"},
    {OWN(max_tokens, SETTING_INTEGER), .fallback = "256", .least = 1, .most = 1 << 20, .value = "N", .help = "the most tokens to write for a prompt"},
    {NUMBER(temperature), .fallback = "0", .help = "0: always the likeliest token; 1: as the model says"},
    {OWN(seed, SETTING_INTEGER), .fallback = "0", .least = 0, .most = INT64_MAX, .value = "N", .help = "the same seed gives the same texts in the same --precision"},
    {OWN(top_k, SETTING_INTEGER), .fallback = "0", .least = 0, .most = 1 << 30, .value = "N", .help = "draw from the k likeliest tokens only; 0: from all"},
    {NUMBER(top_p), .fallback = "1", .help = "draw from the likeliest tokens that together have this share"},
    {NUMBER(min_p), .fallback = "0", .help = "draw from tokens at least this share as likely as the likeliest"},
    {NUMBER(repetition_penalty), .fallback = "1", .help = "above 1: tokens that are in the text already become less likely"},
    {OWN(stop, SETTING_TEXT), .most = 128, .value = "TEXT", .help = "end a text before this one"},
    {OWN(token_ids, SETTING_SWITCH), .fallback = "false", .help = "also write the ids of the tokens"},
};
/* clang-format on */

/* A line of the input. */
struct line {
    struct generation *generation; /* NULL: it failed */
    struct err err;
    struct line *next;
};

struct job {
    const struct own *own;
    struct model *model;
    struct devices devices;
    struct parallel_for *parallel;
    struct generator *generator;
    struct reader reader;
    FILE *output;
    struct sampling sampling;
    const char *stops[1];
    struct line *first, **last; /* those that were read and not yet written */
    uint64_t read, written, failed;
    bool json, ended;
};

/* The ids of a prompt, with the special tokens that the tokenizer puts around a text. */
static enum status encode_prompt(const struct job *job, const char *text, size_t length, int32_t **ids, uint32_t *count,
                                 struct err *err)
{
    bool truncated;
    TRY(model_encode_prompt(job->model, text, length, ids, count, &truncated, err));
    return truncated ? err_set(err, STATUS_BAD_INPUT, "the prompt has more than the %u tokens that the model takes",
                               job->model->max_tokens)
                     : STATUS_OK;
}

static enum status encode_object(struct job *job, const struct record *record, int32_t **ids, uint32_t *count,
                                 bool *inside, struct err *err)
{
    static const char *const known[] = {"prompt", "messages", NULL};
    cJSON *object = NULL;
    enum status status = json_parse(record->bytes, record->length, "the line", &object, err);
    if (status == STATUS_OK) { status = json_only(object, "the line", known, NULL, err); }
    const cJSON *prompt = json_field(object, "prompt"), *messages = json_field(object, "messages");
    *inside = prompt;
    if (status == STATUS_OK && (!prompt == !messages || (prompt && !cJSON_IsString(prompt)))) {
        status = err_set(err, STATUS_BAD_INPUT, "a line needs either prompt, a text, or messages, a list");
    } else if (status == STATUS_OK && prompt) {
        status = encode_prompt(job, prompt->valuestring, strlen(prompt->valuestring), ids, count, err);
    } else if (status == STATUS_OK) {
        const char *json = "";
        size_t length = 0;
        (void)json_member(record->bytes, record->length, "messages", &json, &length);
        status = model_encode_messages(job->model, json, length, ids, count, err);
    }
    cJSON_Delete(object);
    return status;
}

/* Begins the generation of a line. */
static enum status begin_line(struct job *job, const struct record *record, struct line *line, struct err *err)
{
    struct generate_request request = {.max_tokens = (uint32_t)job->own->max_tokens,
                                       .sampling = job->sampling,
                                       .stops = job->stops,
                                       .stop_count = job->own->stop && *job->own->stop,
                                       .inside = true};
    int32_t *ids = NULL;
    enum status status;
    uint64_t seed = job->sampling.seed ^ job->read; /* texts of equal prompts are to differ */
    request.sampling.seed = random_next(&seed);
    if (record->too_large) {
        status = err_set(err, STATUS_BAD_INPUT, "the line is longer than %d bytes", LINE_MAX_BYTES);
    } else if (job->json) {
        status = encode_object(job, record, &ids, &request.prompt_tokens, &request.inside, err);
    } else {
        status = encode_prompt(job, record->bytes, record->length, &ids, &request.prompt_tokens, err);
    }
    request.prompt = ids;
    if (status == STATUS_OK) { status = generator_add(job->generator, &request, &line->generation, err); }
    free(ids);
    return status;
}

/* True if the line is an object with one of the members that make a file JSON Lines. */
static bool is_json_line(const struct record *record)
{
    const char *value;
    size_t length;
    return json_valid(record->bytes, record->length) &&
           (json_member(record->bytes, record->length, "prompt", &value, &length) ||
            json_member(record->bytes, record->length, "messages", &value, &length));
}

static enum status read_line(struct job *job, struct err *err)
{
    struct record record;
    TRY(reader_line(&job->reader, &record, err));
    job->ended = !record.bytes && !record.too_large;
    if (job->ended) { return STATUS_OK; }
    struct line *line = calloc(1, sizeof *line);
    if (!line) { return err_set(err, STATUS_NO_MEMORY, "no memory for a line"); }
    *job->last = line;
    job->last = &line->next;
    if (job->read == 0) { job->json = !record.too_large && is_json_line(&record); }
    if (begin_line(job, &record, line, &line->err) == STATUS_NO_MEMORY) {
        *err = line->err;
        return STATUS_NO_MEMORY;
    }
    job->read++;
    return STATUS_OK;
}

/* True if reading does not keep finished or unfinished texts waiting for somebody who writes line by line. */
static bool may_read(struct job *job)
{
    if (job->ended || job->read - job->written >= AHEAD) { return false; }
    if (!job->first || strcmp(job->own->input, "-") != 0) { return true; }
    struct record ahead = reader_ahead(&job->reader);
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    return (ahead.length > 0 && memchr(ahead.bytes, '\n', ahead.length)) || poll(&input, 1, 0) != 0;
}

/* Writes a line's object, and frees the line. */
static enum status write_line(struct job *job, struct line *line, struct err *err)
{
    struct generation *generation = line->generation;
    struct err *failure = generation ? &generation->err : &line->err;
    struct buffer out = {0};
    buffer_json(&out, "{'index': %llu", (unsigned long long)job->written);
    if (!generation || generation->finish == FINISH_ERROR) {
        buffer_json(&out, ", 'error': %s", failure->message);
        job->failed++;
    } else {
        const struct sequence *sequence = &generation->sequence;
        uint32_t written = sequence->count - sequence->prompt;
        buffer_json(&out, ", 'text': ");
        buffer_json_string(&out, generation->out.text.data, generation->out.text.length);
        buffer_json(&out, ", 'finish_reason': %s, 'prompt_tokens': %u, 'completion_tokens': %u",
                    finish_reason_name(generation->finish), sequence->prompt, written);
        for (uint32_t i = 0; job->own->token_ids && i < written; i++) {
            buffer_json(&out, i == 0 ? ", 'token_ids': [%d" : ", %d", sequence->ids[sequence->prompt + i]);
        }
        if (job->own->token_ids) { buffer_json(&out, "]"); }
    }
    buffer_json(&out, "}\n");
    bool whole = buffer_ok(&out);
    if (whole) { fwrite(out.data, 1, out.length, job->output); }
    buffer_free(&out);
    generation_end(job->generator, generation);
    free(line);
    job->written++;
    return whole ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for a line of output");
}

/* Writes the lines at the front that are done. */
static enum status write_lines(struct job *job, struct err *err)
{
    while (job->first && (!job->first->generation || job->first->generation->finish != FINISH_NONE)) {
        struct line *line = job->first;
        job->first = line->next;
        if (!job->first) { job->last = &job->first; }
        TRY(write_line(job, line, err));
    }
    if (fflush(job->output) == 0) { return STATUS_OK; }
    return err_set_errno(err, "cannot write to %s",
                         strcmp(job->own->output, "-") == 0 ? "standard output" : job->own->output);
}

static enum status run_lines(struct job *job, struct err *err)
{
    while (!job->ended || job->first) {
        while (may_read(job)) { TRY(read_line(job, err)); }
        TRY(generator_step(job->generator, err));
        TRY(write_lines(job, err));
    }
    return STATUS_OK;
}

static enum status open_output(struct job *job, struct err *err)
{
    int fd;
    if (strcmp(job->own->output, "-") == 0) {
        job->output = stdout;
        return STATUS_OK;
    }
    TRY(file_make(job->own->output, O_WRONLY | O_TRUNC, &fd, err));
    job->output = fdopen(fd, "w");
    return job->output ? STATUS_OK : err_set_errno(err, "cannot write to %s", job->own->output);
}

static enum status open_job(struct job *job, const struct config *config, struct err *err)
{
    const struct own *own = job->own;
    unsigned threads = config_threads(config);
    job->last = &job->first;
    job->stops[0] = own->stop;
    job->sampling = (struct sampling){.temperature = strtod(own->temperature, NULL),
                                      .top_p = strtod(own->top_p, NULL),
                                      .min_p = strtod(own->min_p, NULL),
                                      .repetition_penalty = strtod(own->repetition_penalty, NULL),
                                      .top_k = (uint32_t)own->top_k,
                                      .seed = (uint64_t)own->seed};
    TRY(config_generator(config, &job->model, err));
    TRY(devices_open(&job->devices, config, 1, err));
    TRY(devices_load(&job->devices, config, job->model, false, 0, err));
    struct engine *engine = devices_engine(&job->devices, 0);
    struct generator_options options = {
        .blocks = writer_blocks(engine, job->model, USUAL_PROMPT_TOKENS + (uint32_t)own->max_tokens),
        .steps.share = true};
    TRY(generator_open(engine, job->model, &options, &job->generator, err));
    if (threads > 1) {
        TRY(parallel_for_open(threads, &job->parallel, err));
        TRY(generator_join(job->generator, job->parallel, err));
    }
    return open_output(job, err);
}

static void close_job(struct job *job)
{
    while (job->first) {
        struct line *line = job->first;
        job->first = line->next;
        generation_end(job->generator, line->generation);
        free(line);
    }
    if (job->output && job->output != stdout) { fclose(job->output); }
    generator_close(job->generator);
    parallel_for_close(job->parallel);
    devices_close(&job->devices);
    model_close(job->model);
}

static int run_generate(struct invocation *invocation)
{
    struct job job = {.own = invocation->own};
    struct err err;
    enum status status = reader_open(&job.reader, job.own->input, LINE_MAX_BYTES, NULL, &err);
    if (status == STATUS_OK) {
        status = open_job(&job, &invocation->config, &err);
        if (status == STATUS_OK) { status = run_lines(&job, &err); }
        close_job(&job);
        reader_close(&job.reader);
    }
    if (status != STATUS_OK) { return print_error(invocation, &err); }
    if (job.failed == 0) { return EX_OK; }
    fprintf(stderr, "sluice generate: %llu of %llu lines failed; the output says why\n", (unsigned long long)job.failed,
            (unsigned long long)job.written);
    return EXIT_LINES_FAILED;
}

const struct subcommand command_generate = {
    .name = "generate",
    .bit = FOR_GENERATE,
    .summary = "Write texts with a language model, on this machine",
    .explanation = "Writes a JSON object for each line of the input, in the same order: index, text, finish_reason\n"
                   "(stop, length), prompt_tokens, completion_tokens; or index and error for a line that failed.\n"
                   "If the first line is a JSON object with prompt or messages, all lines must be.\n\n"
                   "All texts are computed together, and each is the same whatever the others are.",
    OWN_OPTIONS(own_settings, struct own),
    .run = run_generate,
};
