/* Two ways to use the command, and one line behind them: with INPUT operands it is a job that can be gone on with, with
 * --input it is one pass over lines of text, where the first bad one ends it. */
#include "cli/embed_job.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "bulk/input/json.h"

enum { PASS_TEXT_BYTES = 1 << 28, PASS_VECTOR_BYTES = 64 << 20 };

static bool has_folder(char *const *operands, size_t count)
{
    struct stat info;
    for (size_t i = 0; i < count; i++)
        if (stat(operands[i], &info) == 0 && S_ISDIR(info.st_mode))
            return true;
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
        .format = pass ? FORMAT_LINES : (enum source_format)options->format,
        .recipe = &job->recipe,
        .headerless = !options->header,
        .empty_texts = pass,
        .max_text_bytes = pass ? PASS_TEXT_BYTES : (size_t)options->max_text_bytes,
    };
    job->job.ids = job->recipe.has_id || has_folder(invocation->operands, invocation->operand_count);
    job->job.plain = pass || job->output.standard;
    job->job.arrays = pass;
    job->job.strict = pass || options->strict;
}

enum status embed_job_open(struct embed_job *job, struct invocation *invocation, struct err *err)
{
    const struct embed_options *options = invocation->own;
    *job = (struct embed_job){.options = options};
    if (invocation->operand_count > 0 && strcmp(options->input, "-") != 0)
        return err_set(err, STATUS_BAD_INPUT, "--input %s and %s: name inputs in one of the two ways", options->input,
                       invocation->operands[0]);
    struct recipe_options recipe = {options->field, options->template, options->id_field, options->keep};
    TRY(recipe_open(&job->recipe, &recipe, err));
    TRY(output_name(options->output, &job->output, err));
    if (options->chunk != NULL)
        TRY(chunking_parse(options->chunk, &job->job.preparer.chunking, err));
    set_source(job, invocation);
    if (options->dtype == ELEMENT_F16 && job->output.kind != OUTPUT_NPY && job->output.kind != OUTPUT_SHARDS)
        return err_set(err, STATUS_BAD_INPUT, "--dtype f16 is for .npy files and folders of them");
    job->job.output = &job->output;
    job->job.element = (enum element)options->dtype;
    job->job.shard_rows = (uint64_t)options->shard_rows;
    job->job.overwrite = options->overwrite;
    job->job.look_ahead = (uint32_t)options->look_ahead;
    return STATUS_OK;
}

void embed_job_close(struct embed_job *job)
{
    recipe_close(&job->recipe);
    output_free(&job->output);
    buffer_free(&job->terms);
    buffer_free(&job->facts);
}

/* A term is a line: values are written as JSON, so that a line feed in one is none. */
static void put_term(struct buffer *to, const char *key, const char *value)
{
    buffer_format(to, "%s=", key);
    if (value != NULL)
        json_put_string(to, value, strlen(value));
    buffer_string(to, "\n");
}

/* What the vectors depend on, beside the texts. */
struct vector_terms {
    const char *model_id, *precision, *prompt;
    uint32_t dim, max_tokens; /* max_tokens 0: not known */
};

static void put_terms(struct embed_job *job, const struct vector_terms *terms)
{
    static const char *const kinds[] = {"npy", "f32", "jsonl", "shards"};
    const struct embed_options *options = job->options;
    struct buffer *to = &job->terms;
    put_term(to, "model", terms->model_id);
    put_term(to, "precision", terms->precision);
    buffer_format(to, "dim=%u\n", terms->dim);
    if (terms->max_tokens > 0)
        buffer_format(to, "max_tokens=%u\n", terms->max_tokens);
    put_term(to, "prompt", terms->prompt);
    put_term(to, "output", kinds[job->output.kind]);
    put_term(to, "dtype", options->dtype == ELEMENT_F16 ? "f16" : "f32");
    buffer_format(to, "shard_rows=%lld\n", job->output.kind == OUTPUT_SHARDS ? (long long)options->shard_rows : 0LL);
    put_term(to, "format", source_format_names[job->job.source.format]);
    put_term(to, "field", options->template == NULL ? options->field : NULL);
    put_term(to, "template", options->template);
    put_term(to, "id_field", options->id_field);
    put_term(to, "keep", options->keep);
    put_term(to, "glob", options->glob);
    put_term(to, "chunk", options->chunk);
    buffer_format(to, "header=%d\nmax_text_bytes=%lld\n", options->header, (long long)options->max_text_bytes);
}

static enum status put_facts(struct embed_job *job, const struct remote_facts *of, struct err *err)
{
    struct buffer *facts = &job->facts;
    buffer_string(facts, "\"model\": {\"name\": ");
    json_put_string(facts, of->model, strlen(of->model));
    buffer_format(facts, ", \"id\": \"%s\", \"revision\": ", of->model_id);
    json_put_string(facts, of->revision, strlen(of->revision));
    buffer_format(facts, "},\n  \"precision\": \"%s\",\n", of->precision);
    buffer_format(facts, "  \"dim\": %u,\n  \"dtype\": \"%s\",\n  \"normalized\": %s", of->dim,
                  job->options->dtype == ELEMENT_F16 ? "f16" : "f32", of->normalized ? "true" : "false");
    if (!buffer_ok(facts) || !buffer_ok(&job->terms))
        return err_set(err, STATUS_NO_MEMORY, "no memory for the terms of the job");
    job->job.dim = of->dim;
    job->job.normalize = of->normalized;
    job->job.terms = job->terms.data;
    job->job.facts = facts->data;
    uint32_t most_rows = PASS_VECTOR_BYTES / (of->dim * (uint32_t)sizeof(float));
    if (job->job.plain && job->output.kind == OUTPUT_JSONL && job->job.look_ahead > most_rows)
        job->job.look_ahead = most_rows; /* their vectors wait in memory */
    return STATUS_OK;
}

enum status embed_job_model(struct embed_job *job, const struct model *model, const char *precision, struct err *err)
{
    struct remote_facts facts = {.dim = model->dim, .normalized = model->normalize};
    struct vector_terms terms = {model->id, precision, model->prompt, model->dim, model->max_tokens};
    snprintf(facts.model_id, sizeof facts.model_id, "%s", model->id);
    snprintf(facts.model, sizeof facts.model, "%s", model->name);
    snprintf(facts.revision, sizeof facts.revision, "%s", model->revision);
    snprintf(facts.precision, sizeof facts.precision, "%s", precision);
    put_terms(job, &terms);
    job->job.preparer.model = model;
    job->job.preparer.ids = true;
    return put_facts(job, &facts, err);
}

enum status embed_job_queue(struct embed_job *job, const struct remote_facts *facts, const struct config *config,
                            const struct model *model, struct err *err)
{
    if (model != NULL && strcmp(model->id, facts->model_id) != 0)
        return err_set(err, STATUS_BAD_INPUT,
                       "--model %s is not the model of queue %s: chunks that its tokenizer cuts may be too long there",
                       config->model, config->queue);
    job->job.preparer.model = model;
    const char *prompt = config->prompt != NULL ? config->prompt : config->prefix;
    struct vector_terms terms = {facts->model_id, facts->precision, prompt == NULL ? "" : prompt, facts->dim, 0};
    put_terms(job, &terms);
    return put_facts(job, facts, err);
}

uint64_t embed_job_number(const struct embed_job *job)
{
    char host[256] = "", folder[PATH_MAX] = "", where[PATH_MAX + 1024];
    struct stat info = {0};
    long process = job->job.plain ? (long)getpid() : 0; /* no journal keeps two of them apart */
    gethostname(host, sizeof host - 1);
    if (getcwd(folder, sizeof folder) == NULL || stat(".", &info) != 0)
        folder[0] = '\0';
    snprintf(where, sizeof where, "%s\n%s\n%s\n%llu %llu %ld\n", host, folder, job->output.path,
             (unsigned long long)info.st_dev, (unsigned long long)info.st_ino, process);
    return XXH3_64bits_withSeed(where, strlen(where), XXH3_64bits(job->terms.data, job->terms.length));
}
