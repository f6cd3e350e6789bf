/* Writes texts with a language model on this machine: a prompt a line in, a JSON object a line out, in the same order.
 *
 * One thread reads, computes (with helpers) and writes. It reads ahead as far as there is work for full steps. Lines
 * are written in order, so the file of the output is all that the next run needs to go on; a kill costs no more than
 * the time since the oldest text that is not finished began. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/json_tree.h"
#include "base/random.h"
#include "bulk/manifest.h"
#include "bulk/resumable.h"
#include "cli/command.h"
#include "cli/progress.h"
#include "compute/devices.h"
#include "compute/writer.h"
#include "config/config.h"
#include "engine/cpu/parallel_for.h"
#include "engine/decoder.h"
#include "generate/generator.h"

enum { LINE_MAX_BYTES = 16 << 20, AHEAD = 256, EXIT_LINES_FAILED = 1, USUAL_PROMPT_TOKENS = 1024 };

struct own {
    char *input, *output, *temperature, *top_p, *min_p, *repetition_penalty, *stop;
    int64_t max_tokens, seed, top_k, n, logprobs;
    bool token_ids, overwrite;
    int progress;
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

enum { WHERE_ROWS = 4 };

/* The first WHERE_ROWS say where to read, write and tell; on all others every run of a job must agree. */
/* clang-format off */
static const struct setting own_settings[] = {
    {OWN(input, SETTING_TEXT), .fallback = "-", .value = "FILE", .help = "a prompt a line, or JSON Lines with prompt or messages; - is standard input"},
    {OWN(output, SETTING_TEXT), .fallback = "-", .value = "FILE", .help = "FILE.jsonl, where the texts go; - is standard output"},
    {OWN(overwrite, SETTING_SWITCH), .fallback = "false", .help = "delete what an earlier job left, and begin again"},
    {OWN(progress, SETTING_CHOICE), .fallback = "auto", .choices = progress_styles, .help = "how to show progress on standard error"},
    {OWN(max_tokens, SETTING_INTEGER), .fallback = "256", .least = 1, .most = 1 << 20, .value = "N", .help = "the most tokens to write for a prompt"},
    {NUMBER(temperature), .fallback = "0", .help = "0: always the likeliest token; 1: as the model says"},
    {OWN(seed, SETTING_INTEGER), .fallback = "0", .least = 0, .most = INT64_MAX, .value = "N", .help = "the same seed gives the same texts in the same --precision"},
    {OWN(top_k, SETTING_INTEGER), .fallback = "0", .least = 0, .most = 1 << 30, .value = "N", .help = "draw from the k likeliest tokens only; 0: from all"},
    {NUMBER(top_p), .fallback = "1", .help = "draw from the likeliest tokens that together have this share"},
    {NUMBER(min_p), .fallback = "0", .help = "draw from tokens at least this share as likely as the likeliest"},
    {NUMBER(repetition_penalty), .fallback = "1", .help = "above 1: tokens that are in the text already become less likely"},
    {OWN(stop, SETTING_TEXT), .most = 128, .value = "TEXT", .help = "end a text before this one"},
    {OWN(n, SETTING_INTEGER), .fallback = "1", .least = 1, .most = 128, .value = "N", .help = "texts for each prompt, each on its own line, with choice from 0"},
    {OWN(logprobs, SETTING_INTEGER), .fallback = "0", .least = 0, .most = 20, .value = "N", .help = "also write each token's probability, and those of the N likeliest; 0: none"},
    {OWN(token_ids, SETTING_SWITCH), .fallback = "false", .help = "also write the ids of the tokens"},
};
/* clang-format on */

/* A line of the input. */
struct line {
    struct err err;     /* STATUS_OK: it has texts */
    struct hash digest; /* of the input up to this line */
    uint64_t end;       /* where the line ends in the input */
    struct line *next;
    struct generation *texts[]; /* [n] */
};

struct job {
    const struct own *own;
    struct model *model;
    struct devices devices;
    struct parallel_for *parallel;
    struct generator *generator;
    struct reader reader;
    struct output output;
    struct resumable file;
    struct buffer terms, facts;
    struct sampling sampling;
    const char *stops[1];
    struct line *first, **last; /* those that were read and not yet written */
    uint64_t read, written;
    bool json, ended;
    struct err broken;                 /* the input ended with this; STATUS_OK: as it should */
    const volatile sig_atomic_t *stop; /* NULL: standard output, which nobody goes on with */
    struct progress progress;
    uint64_t input_bytes; /* on disk; 0: unknown */
    uint64_t begun_ns;    /* when the first line of this run was written, and the share of the input up to it */
    double begun_share;
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

/* Begins the texts of a line. */
static enum status begin_line(struct job *job, const struct record *record, struct line *line, struct err *err)
{
    struct generate_request request = {.max_tokens = (uint32_t)job->own->max_tokens,
                                       .sampling = job->sampling,
                                       .stops = job->stops,
                                       .stop_count = job->own->stop && *job->own->stop,
                                       .logprobs = (uint32_t)job->own->logprobs,
                                       .inside = true};
    int32_t *ids = NULL;
    enum status status;
    uint64_t seed = job->sampling.seed ^ job->read; /* texts of equal prompts are to differ */
    if (record->too_large) {
        status = err_set(err, STATUS_BAD_INPUT, "the line is longer than %d bytes", LINE_MAX_BYTES);
    } else if (job->json) {
        status = encode_object(job, record, &ids, &request.prompt_tokens, &request.inside, err);
    } else {
        status = encode_prompt(job, record->bytes, record->length, &ids, &request.prompt_tokens, err);
    }
    request.prompt = ids;
    for (int64_t i = 0; i < job->own->n && status == STATUS_OK; i++) {
        request.sampling.seed = random_next(&seed);
        status = generator_add(job->generator, &request, &line->texts[i], err);
    }
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

/* Reads a line, and begins its text unless an earlier run has written it. */
static enum status read_line(struct job *job, struct err *err)
{
    struct record record;
    bool known;
    enum status status = reader_line(&job->reader, &record, &job->broken);
    job->ended = status != STATUS_OK || (!record.bytes && !record.too_large);
    if (status != STATUS_OK) { return STATUS_OK; } /* the lines before the broken one count */
    TRY(resumable_read(&job->file, &record, &known, err));
    if (job->ended) { return STATUS_OK; }
    if (job->read == 0) { job->json = !record.too_large && is_json_line(&record); }
    if (known) {
        job->written = ++job->read;
        return STATUS_OK;
    }
    struct line *line = calloc(1, sizeof *line + (size_t)job->own->n * sizeof line->texts[0]);
    if (!line) { return err_set(err, STATUS_NO_MEMORY, "no memory for a line"); }
    *job->last = line;
    job->last = &line->next;
    line->digest = job->file.digest;
    line->end = job->reader.got - (job->reader.buffer.length - job->reader.at);
    if (begin_line(job, &record, line, &line->err) == STATUS_NO_MEMORY) {
        *err = line->err;
        return STATUS_NO_MEMORY;
    }
    job->read++;
    return STATUS_OK;
}

static bool is_stopped(const struct job *job)
{
    return job->stop && *job->stop != 0;
}

/* True if reading does not keep finished or unfinished texts waiting for somebody who writes line by line. */
static bool may_read(struct job *job)
{
    if (job->ended || is_stopped(job) || job->read - job->written >= AHEAD) { return false; }
    if (!job->first || strcmp(job->own->input, "-") != 0) { return true; }
    struct record ahead = reader_ahead(&job->reader);
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    return (ahead.length > 0 && memchr(ahead.bytes, '\n', ahead.length)) || poll(&input, 1, 0) != 0;
}

/* The progress of the job; `share` of the input is done, negative: unknown. */
static struct job_progress find_progress(const struct job *job, double share)
{
    const struct checkpoint *at = &job->file.at, *known = &job->file.known;
    return (struct job_progress){.phase = JOB_COMPUTING,
                                 .rows = at->rows,
                                 .documents = at->documents,
                                 .computed = at->computed,
                                 .failed = at->failed,
                                 .tokens = at->tokens,
                                 .here = at->rows - known->rows,
                                 .computed_here = at->computed - known->computed,
                                 .share = share < 1 ? share : 1,
                                 .left_s = -1};
}

/* Shows how far the job is by the place of its last line in the input, as if all of the input were packed alike. */
static void show_progress(struct job *job, const struct line *line)
{
    uint64_t now_ns = clock_now_ns();
    double packed = (double)stream_raw_bytes(job->reader.stream) / (double)job->reader.got;
    double share = job->input_bytes > 0 ? (double)line->end * packed / (double)job->input_bytes : -1;
    struct job_progress now = find_progress(job, share);
    if (job->begun_ns == 0) {
        job->begun_ns = now_ns;
        job->begun_share = share;
    }
    double done = now.share - job->begun_share, seconds = (double)(now_ns - job->begun_ns) / (double)NS_PER_S;
    if (done > 0) { now.left_s = seconds * (1 - now.share) / done; }
    progress_show(&job->progress, &now);
}

/* Appends the object of a text. */
static void put_text(const struct job *job, const struct generation *generation, struct buffer *out)
{
    const struct sequence *sequence = &generation->sequence;
    uint32_t tokens = sequence->count - sequence->prompt;
    buffer_json(out, ", 'text': ");
    buffer_json_string(out, generation->out.text.data, generation->out.text.length);
    buffer_json(out, ", 'finish_reason': %s, 'prompt_tokens': %u, 'completion_tokens': %u",
                finish_reason_name(generation->finish), sequence->prompt, tokens);
    for (uint32_t i = 0; job->own->token_ids && i < tokens; i++) {
        buffer_json(out, i == 0 ? ", 'token_ids': [%d" : ", %d", sequence->ids[sequence->prompt + i]);
    }
    if (job->own->token_ids) { buffer_json(out, "]"); }
    if (job->own->logprobs > 0) {
        buffer_json(out, ", 'logprobs': ");
        generation_put_logprobs(job->generator, generation, out);
    }
}

static void free_line(struct job *job, struct line *line)
{
    for (int64_t i = 0; i < job->own->n; i++) { generation_end(job->generator, line->texts[i]); }
    free(line);
}

/* Writes a line's objects, and frees the line. */
static enum status write_line(struct job *job, struct line *line, struct err *err)
{
    struct buffer out = {0};
    struct written_line written = {.digest = line->digest, .lines = &out};
    bool failed = line->err.status != STATUS_OK;
    for (int64_t i = 0; i < (failed ? 1 : job->own->n); i++) {
        const struct generation *text = line->texts[i];
        const struct err *why = failed ? &line->err : text->finish == FINISH_ERROR ? &text->err : NULL;
        buffer_json(&out, "{'index': %llu", (unsigned long long)job->written);
        if (!failed && job->own->n > 1) { buffer_json(&out, ", 'choice': %lld", (long long)i); }
        if (why) {
            buffer_json(&out, ", 'error': %s", why->message);
        } else {
            put_text(job, text, &out);
            written.tokens += text->sequence.count - text->sequence.prompt;
        }
        buffer_string(&out, "}\n");
        written.rows++;
        written.failed += why != NULL;
    }
    bool whole = buffer_ok(&out);
    if (whole) { resumable_write(&job->file, &written); }
    buffer_free(&out);
    show_progress(job, line);
    free_line(job, line);
    job->written++;
    return whole ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for a line of output");
}

/* True if nothing of the line is still to be written. */
static bool is_done(const struct job *job, const struct line *line)
{
    bool done = true;
    for (int64_t i = 0; i < job->own->n && line->err.status == STATUS_OK; i++) {
        done = done && line->texts[i]->finish != FINISH_NONE;
    }
    return done;
}

/* Writes the lines at the front that are done. */
static enum status write_lines(struct job *job, struct err *err)
{
    while (job->first && is_done(job, job->first)) {
        struct line *line = job->first;
        job->first = line->next;
        if (!job->first) { job->last = &job->first; }
        TRY(write_line(job, line, err));
    }
    return resumable_commit(&job->file, false, err);
}

static enum status run_lines(struct job *job, struct err *err)
{
    while (!job->ended || job->first) {
        if (!job->first) { TRY(resumable_commit(&job->file, true, err)); } /* the next line may take long to come */
        while (may_read(job)) { TRY(read_line(job, err)); }
        if (is_stopped(job)) { return STATUS_OK; }
        TRY(generator_step(job->generator, err));
        TRY(write_lines(job, err));
    }
    if (job->broken.status == STATUS_OK) { return resumable_finish(&job->file, job->facts.data, err); }
    *err = job->broken;
    return err->status;
}

/* Appends what all runs of the job must agree on, besides the input, and the members of its manifest. */
static enum status put_terms(struct job *job, const char *precision, struct err *err)
{
    const struct model *model = job->model;
    struct buffer *terms = &job->terms, *facts = &job->facts;
    buffer_json(terms, "task='generate'\nmodel='%s'\n" TERM_MODEL_NAME "='%s'\nprecision='%s'\n", model->id,
                model->name, precision);
    for (size_t i = WHERE_ROWS; i < sizeof own_settings / sizeof own_settings[0]; i++) {
        char value[512];
        setting_format(&own_settings[i], job->own, value, sizeof value);
        buffer_format(terms, "%s=", own_settings[i].key);
        buffer_json_string(terms, value, strlen(value));
        buffer_string(terms, "\n");
    }
    buffer_append(terms, "", 1);
    buffer_json(facts, ",\n  'model': {'name': '%s', 'id': %s, 'revision': '%s'},\n  'precision': %s", model->name,
                model->id, model->revision, precision);
    buffer_append(facts, "", 1);
    return buffer_ok(terms) && buffer_ok(facts) ? STATUS_OK
                                                : err_set(err, STATUS_NO_MEMORY, "no memory for the terms of the job");
}

/* Names the files of the output, and finds out how large the input is, which must not be one of them. */
static enum status name_output(struct job *job, struct err *err)
{
    const struct own *own = job->own;
    struct stat input;
    size_t length = strlen(own->output), ending = strlen(".jsonl");
    if (strcmp(own->output, "-") != 0 && (length < ending || strcmp(own->output + length - ending, ".jsonl") != 0)) {
        return err_set(err, STATUS_BAD_INPUT, "--output %s: the name must end in .jsonl", own->output);
    }
    TRY(output_name(own->output, &job->output, err));
    bool file = strcmp(own->input, "-") != 0 && stat(own->input, &input) == 0 && S_ISREG(input.st_mode);
    if (file) { job->input_bytes = (uint64_t)input.st_size; }
    return resumable_check_input(&job->output, own->input, err);
}

static enum status open_job(struct job *job, const struct config *config, struct err *err)
{
    const struct own *own = job->own;
    unsigned threads = config_threads(config);
    job->stops[0] = own->stop;
    job->sampling = (struct sampling){.temperature = strtod(own->temperature, NULL),
                                      .top_p = strtod(own->top_p, NULL),
                                      .min_p = strtod(own->min_p, NULL),
                                      .repetition_penalty = strtod(own->repetition_penalty, NULL),
                                      .top_k = (uint32_t)own->top_k,
                                      .seed = (uint64_t)own->seed};
    if (own->n > 1 && job->sampling.temperature <= 0) {
        return err_set(err, STATUS_BAD_INPUT, "--n %lld: with --temperature 0 all texts of a prompt are equal",
                       (long long)own->n);
    }
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
    TRY(put_terms(job, precision_name(engine_precision(engine)), err));
    return resumable_open(&job->file, &job->output, job->terms.data, own->overwrite, err);
}

static void close_job(struct job *job)
{
    while (job->first) {
        struct line *line = job->first;
        job->first = line->next;
        free_line(job, line);
    }
    resumable_close(&job->file);
    output_free(&job->output);
    buffer_free(&job->terms);
    buffer_free(&job->facts);
    generator_close(job->generator);
    parallel_for_close(job->parallel);
    devices_close(&job->devices);
    model_close(job->model);
    reader_close(&job->reader);
}

static enum status run_job(struct job *job, const struct invocation *invocation, struct err *err)
{
    const struct own *own = job->own;
    TRY(name_output(job, err));
    bool quiet = job->output.standard && own->progress == PROGRESS_AUTO;
    if (!job->output.standard) {
        job->stop = interrupt_listen();
        signal(SIGPIPE, SIG_IGN); /* the job goes on when the reader of its progress is gone */
    }
    TRY(reader_open(&job->reader, own->input, LINE_MAX_BYTES, job->stop, err));
    TRY(open_job(job, &invocation->config, err));
    progress_begin(&job->progress, quiet ? PROGRESS_NONE : (enum progress_style)own->progress, false);
    enum status status = run_lines(job, err);
    bool finished = status == STATUS_OK && !is_stopped(job);
    struct job_progress end = find_progress(job, finished ? 1 : -1);
    progress_end(&job->progress, &end, finished);
    struct err ignored;
    if (job->stop && resumable_commit(&job->file, true, &ignored) != STATUS_OK && status == STATUS_OK) {
        *err = ignored;
        status = err->status;
    }
    return status;
}

/* Says how a job has ended, and returns the exit code. */
static int report_end(const struct invocation *invocation, const struct job *job, enum status status,
                      const struct err *err)
{
    const struct checkpoint *at = &job->file.at;
    uint64_t here = at->rows - job->file.known.rows;
    if (job->stop && is_stopped(job) && (status == STATUS_OK || status == STATUS_UNAVAILABLE)) {
        fprintf(stderr, "sluice generate: stopped; nothing is lost, rerunning the command resumes\n");
        return EX_TEMPFAIL;
    }
    if (status != STATUS_OK) {
        int code = print_error(invocation, err);
        if (job->stop && here > 0) {
            fprintf(stderr, "sluice generate: what was written so far is kept; rerunning the command resumes\n");
        }
        return code;
    }
    bool tells = job->stop && job->progress.style != PROGRESS_JSON && job->progress.style != PROGRESS_NONE;
    if (tells && job->file.finished) {
        fprintf(stderr, "%s is finished already: %llu lines; nothing was written\n", job->output.path,
                (unsigned long long)at->rows);
    } else if (tells) {
        fprintf(stderr, "%s: %llu lines, %llu written now and %llu before\n", job->output.path,
                (unsigned long long)at->rows, (unsigned long long)here, (unsigned long long)(at->rows - here));
    }
    if (at->failed == 0) { return EX_OK; }
    fprintf(stderr, "sluice generate: %llu of %llu lines failed; the output says why\n", (unsigned long long)at->failed,
            (unsigned long long)at->rows);
    return EXIT_LINES_FAILED;
}

static int run_generate(struct invocation *invocation)
{
    struct job job = {.own = invocation->own};
    struct err err;
    job.last = &job.first;
    enum status status = run_job(&job, invocation, &err);
    int code = report_end(invocation, &job, status, &err);
    close_job(&job);
    return code;
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
