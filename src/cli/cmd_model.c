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
#include "model/chat.h"
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

static void put_text(struct buffer *to, const char *name, const char *text)
{
    buffer_json(to, ",\n  %s: %s", name, text);
}

static void put_number(struct buffer *to, const char *name, double number)
{
    buffer_json(to, ",\n  %s: %.12g", name, number);
}

static void put_tasks(struct buffer *to, const struct model *model)
{
    const struct model_head *head = &model->head;
    buffer_json(to, ",\n  'tasks': [");
    if (model->generates) {
        buffer_json(to, "'generate']");
    } else if (model->causal_lm && head->labels == 0) {
        buffer_json(to, "'embed', 'generate']");
    } else {
        buffer_json(to, head->labels == 0 ? "'embed']" : head->labels == 1 ? "'classify', 'rerank']" : "'classify']");
    }
    for (uint32_t i = 0; i < head->labels; i++) {
        buffer_json(to, i == 0 ? ",\n  'labels': ['%s'" : ", '%s'", head->names[i]);
    }
    if (head->labels > 0) { buffer_json(to, "]"); }
}

static void put_modules(struct buffer *to, const struct model *model)
{
    if (model->head.labels == 0) { put_text(to, "pooling", pooling_name(model->pooling)); }
    buffer_json(to, ",\n  'modules': [");
    for (uint32_t i = 0; i < model->module_count; i++) {
        const struct model_module *module = &model->modules[i];
        buffer_json(to, i == 0 ? "'%s %u to %u'" : ", '%s %u to %u'", module_name(module->kind), module->inputs,
                    module->outputs);
    }
    buffer_json(to, "],\n  'normalize': %hhd", model->normalize);
}

static void put_prompts(struct buffer *to, const struct model *model)
{
    buffer_json(to, ",\n  'prompts': {");
    for (uint32_t i = 0; i < model->prompt_count; i++) {
        buffer_json(to, i == 0 ? "'%s': '%s'" : ", '%s': '%s'", model->prompts[i].name, model->prompts[i].text);
    }
    buffer_json(to, "}");
    put_text(to, "prompt", model->prompt);
}

/* The format in which `messages` are written, or why they are refused. */
static void put_chat(struct buffer *to, const struct model *model)
{
    struct chat *chat;
    struct err err;
    if (chat_open(model->directory, &chat, &err) == STATUS_OK) {
        put_text(to, "chat", chat_format(chat));
        chat_close(chat);
    } else {
        put_text(to, "chat_refused", err.message);
    }
}

static void put_model(struct buffer *to, const struct model *model)
{
    static const char *const dtypes[] = {[DTYPE_F32] = "f32", [DTYPE_F16] = "f16", [DTYPE_BF16] = "bf16"};
    buffer_json(to, "{\n  'model': %s", model->name);
    put_text(to, "id", model->id);
    put_text(to, "family", model->family->model_type);
    put_tasks(to, model);
    if (model->causal_lm && model->head.labels == 0) { put_chat(to, model); }
    put_number(to, "layers", model->layer_count);
    put_number(to, "hidden", model->hidden);
    put_number(to, "dims", model->dim);
    put_number(to, "max_tokens", model->max_tokens);
    put_text(to, "tokenizer", tokenizer_type(model->tokenizer));
    put_number(to, "vocabulary", tokenizer_vocabulary(model->tokenizer));
    if (!model->generates) {
        put_modules(to, model);
        put_prompts(to, model);
    }
    put_text(to, "words_dtype", dtypes[model->word_embeddings.dtype]);
    put_text(to, "layers_dtype", dtypes[model->layers[0].query.weight.dtype]);
    for (uint32_t i = model->module_count; i-- > 0;) {
        if (model->modules[i].kind == MODULE_NORMALIZE) { continue; }
        put_text(to, "modules_dtype", dtypes[model->modules[i].weight.dtype]);
        break;
    }
    put_number(to, "file_bytes", (double)model->weight_bytes);
}

/* The layers whose product is in int8, for each product, and whether a language model's lm_head is. */
static void put_int8(struct buffer *to, const struct model *model, const struct engine_int8 *int8)
{
    buffer_json(to, ",\n  'int8_products': {");
    for (int product = 0; product < ENGINE_PRODUCTS; product++) {
        buffer_json(to, product == 0 ? "%s: [" : ", %s: [", engine_product_name((enum engine_product)product));
        for (uint32_t layer = 0, put = 0; layer < int8->layers; layer++) {
            if (int8->in_int8[layer][product]) { buffer_json(to, put++ == 0 ? "%u" : ", %u", layer); }
        }
        buffer_json(to, "]");
    }
    buffer_json(to, "}");
    if (model->generates) { buffer_json(to, ",\n  'int8_lm_head': %hhd", int8->lm_head); }
    put_number(to, "int8_count", int8->total);
    put_number(to, "int8_of", int8->of);
    put_text(to, "int8_others", int8->others);
    if (isfinite(int8->mean_error)) {
        put_number(to, "int8_mean_error", int8->mean_error);
        put_number(to, "int8_worst_error", int8->worst_error);
    }
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

/* A directory without a pooling may be a language model's. If that does not open either, the error says why for both
 * ways. */
static enum status open_any(const struct config *config, struct model **model, struct err *err)
{
    struct model_options options = {.generate = true, .max_tokens = (uint32_t)config->max_tokens};
    struct err first;
    enum status status = config_any_model(config, model, err);
    if (status == STATUS_OK || !family_names_language_model(config->model)) { return status; }
    first = *err;
    status = model_open(config->model, &options, model, err);
    if (status == STATUS_OK || strcmp(first.message, err->message) == 0) { return status; }
    struct err second = *err;
    return err_set(err, status, "to generate text: %s; to embed texts: %s", second.message, first.message);
}

static enum status look_at_model(const struct own *own, const struct config *config, struct model **model,
                                 struct devices *devices, struct err *err)
{
    if (!own->reference != !own->texts) {
        return err_set(err, STATUS_BAD_INPUT, "--reference and --texts go together");
    }
    TRY(open_any(config, model, err));
    if (own->reference && ((*model)->head.labels > 0 || (*model)->generates)) {
        return err_set(err, STATUS_UNSUPPORTED, "--reference is for embedding models; this one %s",
                       (*model)->generates ? "generates text" : "classifies");
    }
    TRY(devices_open(devices, config, 1, err));
    TRY(devices_load(devices, config, *model, false, 0, err));
    struct engine *engine = devices_engine(devices, 0);
    struct comparison compare = {.own = own, .model = *model, .least = 1};
    if (own->reference) { TRY(compare_all(&compare, engine, err)); }
    struct buffer line = {0};
    put_model(&line, *model);
    put_text(&line, "device", engine_device(engine));
    put_text(&line, "precision", precision_name(engine_precision(engine)));
    put_number(&line, "weight_bytes", (double)engine_weight_bytes(engine));
    if (engine_int8(engine)) { put_int8(&line, *model, engine_int8(engine)); }
    if (own->reference) {
        put_number(&line, "least_cosine", compare.least);
        put_number(&line, "mean_cosine", compare.sum / (double)compare.count);
    }
    buffer_json(&line, "\n}");
    return print_json(&line, err);
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
