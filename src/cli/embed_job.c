/* Two ways to use the command, and one line behind them: with INPUT operands it is a job that can be gone on with, with
 * --input it is one pass over lines of text, where the first bad one ends it. */
#include "cli/embed_job.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "bulk/json_text.h"

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
    job->job.retry = options->retry_failed;
    job->job.batch_tokens = (uint32_t)invocation->config.max_batch_tokens;
    job->job.batch_rows = (uint32_t)invocation->config.max_batch_rows;
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

static void put_terms(struct embed_job *job, const struct model *model, const char *precision)
{
    static const char *const kinds[] = {"npy", "f32", "jsonl", "shards"};
    static const char *const formats[] = {"auto", "lines", "jsonl", "csv", "tsv", "document"};
    const struct embed_options *options = job->options;
    struct buffer *to = &job->terms;
    put_term(to, "model", model->id);
    put_term(to, "precision", precision);
    buffer_format(to, "dim=%u\nmax_tokens=%u\n", model->dim, model->max_tokens);
    put_term(to, "prompt", model->prompt);
    put_term(to, "output", kinds[job->output.kind]);
    put_term(to, "dtype", options->dtype == ELEMENT_F16 ? "f16" : "f32");
    buffer_format(to, "shard_rows=%lld\n", job->output.kind == OUTPUT_SHARDS ? (long long)options->shard_rows : 0LL);
    put_term(to, "format", formats[job->job.source.format]);
    put_term(to, "field", options->template == NULL ? options->field : NULL);
    put_term(to, "template", options->template);
    put_term(to, "id_field", options->id_field);
    put_term(to, "keep", options->keep);
    put_term(to, "glob", options->glob);
    put_term(to, "chunk", options->chunk);
    buffer_format(to, "header=%d\nmax_text_bytes=%lld\n", options->header, (long long)options->max_text_bytes);
}

enum status embed_job_model(struct embed_job *job, const struct model *model, const char *precision, struct err *err)
{
    struct buffer *facts = &job->facts;
    put_terms(job, model, precision);
    buffer_string(facts, "\"model\": {\"name\": ");
    json_put_string(facts, model->name, strlen(model->name));
    buffer_format(facts, ", \"id\": \"%s\", \"revision\": \"%s\"},\n  \"precision\": \"%s\",\n", model->id,
                  model->revision, precision);
    buffer_format(facts, "  \"dim\": %u,\n  \"dtype\": \"%s\",\n  \"normalized\": %s", model->dim,
                  job->options->dtype == ELEMENT_F16 ? "f16" : "f32", model->normalize ? "true" : "false");
    if (!buffer_ok(facts) || !buffer_ok(&job->terms))
        return err_set(err, STATUS_NO_MEMORY, "no memory for the terms of the job");
    job->job.preparer.model = model;
    job->job.preparer.ids = true;
    job->job.dim = model->dim;
    job->job.normalize = model->normalize;
    job->job.terms = job->terms.data;
    job->job.facts = facts->data;
    uint32_t most_rows = PASS_VECTOR_BYTES / (model->dim * (uint32_t)sizeof(float));
    if (job->job.plain && job->output.kind == OUTPUT_JSONL && job->job.look_ahead > most_rows)
        job->job.look_ahead = most_rows; /* their vectors wait in memory */
    return STATUS_OK;
}
