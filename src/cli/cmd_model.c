/* Describes a model directory, as model_open understands it, and how near its vectors are to others. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/json.h"
#include "bulk/input/stream.h"
#include "bulk/output/store.h"
#include "cli/command.h"
#include "cli/print.h"
#include "compute/devices.h"
#include "config/config.h"
#include "model/family.h"
#include "model/sentence_transformers.h"

enum { TEXT_MAX_BYTES = 1 << 28 };

struct own {
    char *reference, *texts;
};

#define OWN(name, kind) .key = #name, .type = (kind), .offset = offsetof(struct own, name)

static const struct setting own_settings[] = {
    {OWN(reference, SETTING_TEXT), .value = "FILE.npy", .help = "vectors made elsewhere, to compare with (float32)"},
    {OWN(texts, SETTING_TEXT), .value = "FILE", .help = "the texts of its rows, one per line"},
};

/* --- The description of the directory: a JSON object with a member on each line --- */

static void print_text(const char *name, const char *text)
{
    printf(",\n  \"%s\": ", name);
    json_put_text(stdout, text);
}

static void print_number(const char *name, double number)
{
    printf(",\n  \"%s\": %.12g", name, number);
}

static void print_tasks(const struct model_head *head)
{
    printf(",\n  \"tasks\": [%s]", head->labels == 0   ? "\"embed\""
                                   : head->labels == 1 ? "\"classify\", \"rerank\""
                                                       : "\"classify\"");
    for (uint32_t i = 0; i < head->labels; i++) {
        fputs(i == 0 ? ",\n  \"labels\": [" : ", ", stdout);
        json_put_string(stdout, head->names[i], strlen(head->names[i]));
    }
    if (head->labels > 0) { putchar(']'); }
}

static void print_modules(const struct model *model)
{
    if (model->head.labels == 0) { print_text("pooling", pooling_name(model->pooling)); }
    fputs(",\n  \"modules\": [", stdout);
    for (uint32_t i = 0; i < model->module_count; i++) {
        const struct model_module *module = &model->modules[i];
        printf("%s\"%s %u to %u\"", i == 0 ? "" : ", ", module_name(module->kind), module->inputs, module->outputs);
    }
    printf("],\n  \"normalize\": %s", model->normalize ? "true" : "false");
}

static void print_prompts(const struct model *model)
{
    fputs(",\n  \"prompts\": {", stdout);
    for (uint32_t i = 0; i < model->prompt_count; i++) {
        const struct model_prompt *prompt = &model->prompts[i];
        fputs(i == 0 ? "" : ", ", stdout);
        json_put_string(stdout, prompt->name, strlen(prompt->name));
        fputs(": ", stdout);
        json_put_string(stdout, prompt->text, strlen(prompt->text));
    }
    putchar('}');
    print_text("prompt", model->prompt);
}

static void print_model(const struct model *model)
{
    static const char *const dtypes[] = {[DTYPE_F32] = "f32", [DTYPE_F16] = "f16", [DTYPE_BF16] = "bf16"};
    fputs("{\n  \"model\": ", stdout);
    json_put_text(stdout, model->name);
    print_text("id", model->id);
    print_text("family", model->family->model_type);
    print_tasks(&model->head);
    print_number("layers", model->layer_count);
    print_number("hidden", model->hidden);
    print_number("dims", model->dim);
    print_number("max_tokens", model->max_tokens);
    print_text("tokenizer", tokenizer_type(model->tokenizer));
    print_number("vocabulary", tokenizer_vocabulary(model->tokenizer));
    print_modules(model);
    print_prompts(model);
    print_text("words_dtype", dtypes[model->word_embeddings.dtype]);
    print_text("layers_dtype", dtypes[model->layers[0].query.weight.dtype]);
    for (uint32_t i = model->module_count; i-- > 0;) {
        if (model->modules[i].kind == MODULE_NORMALIZE) { continue; }
        print_text("modules_dtype", dtypes[model->modules[i].weight.dtype]);
        break;
    }
    print_number("file_bytes", (double)model->weight_bytes);
}

/* --- The distance of its vectors from those of a file --- */

struct comparison {
    const struct own *own;
    const struct model *model;
    struct encoder *encoder;
    struct reader texts;
    FILE *reference;
    uint64_t count;
    double least, sum; /* of the cosines of `count` texts */
    int32_t *ids;      /* [max_tokens] */
    float *vectors;    /* [2, dim]: ours, theirs */
};

/* Moves the file to its first row. */
static enum status skip_head(const struct comparison *compare, struct err *err)
{
    char head[NPY_HEADER_MOST];
    struct npy npy;
    const char *path = compare->own->reference;
    TRY(npy_read(head, fread(head, 1, sizeof head, compare->reference), path, &npy, err));
    if (strcmp(npy.type, "<f4") != 0 || npy.fortran || npy.dimensions != 2 || npy.shape[1] != compare->model->dim) {
        return err_set(err, STATUS_BAD_INPUT, "%s does not hold <f4 in rows of %u columns", path, compare->model->dim);
    }
    bool good = fseek(compare->reference, (long)npy.data, SEEK_SET) == 0;
    return good ? STATUS_OK : err_set_errno(err, "cannot read %s", path);
}

static enum status compare_text(struct comparison *compare, const struct record *line, struct err *err)
{
    const struct model *model = compare->model;
    float *ours = compare->vectors, *theirs = ours + model->dim;
    uint32_t start = 0, count;
    bool truncated;
    double dot = 0, square = 0, other = 0;
    TRY(model_encode(model, line->bytes, line->length, model->max_tokens, compare->ids, &count, &truncated, err));
    struct engine_batch batch = {1, count, compare->ids, &start, &count, ours, NULL};
    TRY(encoder_run(compare->encoder, &batch, err));
    if (fread(theirs, sizeof *theirs, model->dim, compare->reference) != model->dim) {
        return err_set(err, STATUS_BAD_INPUT, "%s has no row for this text", compare->own->reference);
    }
    for (uint32_t i = 0; i < model->dim; i++) {
        dot += (double)ours[i] * (double)theirs[i];
        square += (double)ours[i] * (double)ours[i];
        other += (double)theirs[i] * (double)theirs[i];
    }
    double cosine = dot / sqrt(square * other);
    if (!isfinite(cosine)) { return err_set(err, STATUS_BAD_INPUT, "a vector has no direction"); }
    compare->least = fmin(compare->least, cosine);
    compare->sum += cosine;
    compare->count++;
    return STATUS_OK;
}

static enum status compare_texts(struct comparison *compare, struct err *err)
{
    struct record line;
    TRY(skip_head(compare, err));
    for (;;) {
        TRY(reader_text(&compare->texts, &line, err));
        if (!line.bytes) { break; }
        if (compare_text(compare, &line, err) != STATUS_OK) {
            return err_prefix(err, "%s line %llu", compare->own->texts, (unsigned long long)line.line);
        }
    }
    if (compare->count > 0 && fgetc(compare->reference) == EOF) { return STATUS_OK; }
    return err_set(err, STATUS_BAD_INPUT, "%s has more rows than the %llu texts, or there is none",
                   compare->own->reference, (unsigned long long)compare->count);
}

static enum status compare_all(struct comparison *compare, struct engine *engine, struct err *err)
{
    uint32_t dim = compare->model->dim;
    compare->reference = fopen(compare->own->reference, "rbe");
    if (!compare->reference) { return err_set_errno(err, "cannot open %s", compare->own->reference); }
    compare->ids = malloc(compare->model->max_tokens * sizeof *compare->ids);
    compare->vectors = malloc(2 * (size_t)dim * sizeof *compare->vectors);
    enum status status = compare->ids && compare->vectors ? encoder_open(engine, &compare->encoder, err)
                                                          : err_set(err, STATUS_NO_MEMORY, "no memory for a vector");
    if (status == STATUS_OK) { status = reader_open(&compare->texts, compare->own->texts, TEXT_MAX_BYTES, NULL, err); }
    if (status == STATUS_OK) {
        status = compare_texts(compare, err);
        reader_close(&compare->texts);
    }
    encoder_close(compare->encoder);
    fclose(compare->reference);
    free(compare->ids);
    free(compare->vectors);
    return status;
}

static enum status look_at_model(const struct own *own, const struct config *config, struct model **model,
                                 struct devices *devices, struct err *err)
{
    if (!own->reference != !own->texts) {
        return err_set(err, STATUS_BAD_INPUT, "--reference and --texts go together");
    }
    TRY(config_any_model(config, model, err));
    if (own->reference && (*model)->head.labels > 0) {
        return err_set(err, STATUS_UNSUPPORTED, "--reference is for embedding models; this one classifies");
    }
    TRY(devices_open(devices, config, 1, err));
    TRY(devices_load(devices, config, *model, false, 0, err));
    struct engine *engine = devices_engine(devices, 0);
    struct comparison compare = {.own = own, .model = *model, .least = 1};
    if (own->reference) { TRY(compare_all(&compare, engine, err)); }
    print_model(*model);
    print_text("device", engine_device(engine));
    print_text("precision", precision_name(engine_precision(engine)));
    print_number("weight_bytes", (double)engine_weight_bytes(engine));
    if (own->reference) {
        print_number("least_cosine", compare.least);
        print_number("mean_cosine", compare.sum / (double)compare.count);
    }
    puts("\n}");
    return STATUS_OK;
}

static int run_model(struct invocation *invocation)
{
    struct config config = invocation->config; /* borrowed */
    struct model *model = NULL;
    struct devices devices = {0};
    struct err err;
    if (invocation->operand_count > 1) {
        fprintf(stderr, "sluice model: one directory at a time\n");
        return EX_USAGE;
    }
    if (invocation->operand_count == 1) { config.model = invocation->operands[0]; }
    enum status status = look_at_model(invocation->own, &config, &model, &devices, &err);
    devices_close(&devices);
    model_close(model);
    return status == STATUS_OK ? EX_OK : print_error(invocation, &err);
}

const struct subcommand command_model = {
    .name = "model",
    .bit = FOR_ENGINE,
    .operands = "[DIR]",
    .summary = "Show what a model directory is, and whether it opens here",
    .explanation =
        "Prints a JSON object. What the other commands refuse about a model is refused here in the same words.\n"
        "The engine is opened, too, in --precision: weight_bytes is what the weights then take.\n\n"
        "With --reference and --texts it computes the vector of each text and tells the least and the mean\n"
        "cosine to the rows of a file that another program has made of the same texts.",
    OWN_OPTIONS(own_settings, struct own),
    .run = run_model,
};
