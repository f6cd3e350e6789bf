/* Finds the texts whose vectors are nearest to that of a query. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/utf8.h"
#include "bulk/input/source.h"
#include "bulk/journal.h"
#include "bulk/output/store.h"
#include "bulk/similar.h"
#include "cli/command.h"
#include "cli/print.h"
#include "daemon/config.h"
#include "daemon/devices.h"
#include "engine/encoder.h"

enum { TEXT_BYTES_MAX = 1 << 28, SHOWN_BYTES = 160 };

struct own {
    char *vectors, *texts, *query, *field, *template, *id_field, *glob;
    int format;
    int64_t top;
    bool header, json;
};

#define OWN(name, kind) .key = #name, .type = (kind), .offset = offsetof(struct own, name)

/* clang-format off */
static const struct setting own_settings[] = {
    {OWN(vectors, SETTING_TEXT), .value = "FILE", .help = "what `sluice embed` wrote: FILE.npy, FILE.f32 or DIR/"},
    {OWN(texts, SETTING_TEXT), .value = "INPUT", .help = "the input that it read, to show the texts; more of them behind the options"},
    {OWN(query, SETTING_TEXT), .value = "TEXT", .help = "what to look for"},
    {OWN(top, SETTING_INTEGER), .fallback = "10", .least = 1, .most = 10000, .value = "K", .help = "how many rows to show"},
    {OWN(json, SETTING_SWITCH), .fallback = "false", .help = "a JSON object a line, with the whole text"},
    {OWN(format, SETTING_CHOICE), .fallback = "auto", .choices = source_format_names, .help = "what the input is, as for `sluice embed`; so the next four"},
    {OWN(field, SETTING_TEXT), .fallback = "text", .most = 1024, .value = "NAME", .help = "where the text is in JSON or CSV"},
    {OWN(template, SETTING_TEXT), .most = 65536, .value = "TEXT", .help = "the text out of several fields"},
    {OWN(id_field, SETTING_TEXT), .most = 1024, .value = "NAME", .help = "the field that is a row's id [its number]"},
    {OWN(header, SETTING_SWITCH), .fallback = "true", .help = "CSV without a header"},
    {OWN(glob, SETTING_TEXT), .most = 1024, .value = "PATTERN", .help = "which files of a folder [*.txt and *.md]"},
};
/* clang-format on */

/* The document of a row, read from the input. */
struct shown {
    uint64_t document;
    struct buffer text, id; /* id: JSON; empty if it is the document's number */
    bool has_text;
};

/* The state of a search. */
struct search {
    const struct own *own;
    struct output output;
    struct recipe recipe;
    char **operands;       /* [operand_count + 1] */
    struct source *source; /* NULL without texts */
    struct model *model;
    float *query; /* [dim] */
    struct nearest nearest;
    struct shown *shown; /* [nearest.count] */
};

static enum status open_texts(struct search *search, const struct invocation *invocation, struct err *err)
{
    const struct own *own = search->own;
    struct recipe_options recipe = {own->field, own->template, own->id_field, NULL};
    size_t count = 0;
    TRY(recipe_open(&search->recipe, &recipe, err));
    search->operands = calloc(invocation->operand_count + 1, sizeof *search->operands);
    if (!search->operands) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for the names of the inputs");
    }
    if (own->texts) {
        search->operands[count++] = own->texts;
    }
    for (size_t i = 0; i < invocation->operand_count; i++) {
        search->operands[count++] = invocation->operands[i];
    }
    struct source_options options = {.operands = search->operands,
                                     .operand_count = count,
                                     .glob = own->glob,
                                     .format = (enum source_format)own->format,
                                     .recipe = &search->recipe,
                                     .headerless = !own->header,
                                     .max_text_bytes = TEXT_BYTES_MAX};
    return count == 0 ? STATUS_OK : source_open(&options, &search->source, err);
}

/* Refuses vectors of another model. */
static enum status check_manifest(const struct search *search, uint64_t *documents, struct err *err)
{
    struct manifest manifest;
    bool found;
    TRY(manifest_read(search->output.manifest, &manifest, &found, err));
    if (!found) {
        return STATUS_OK;
    }
    *documents = manifest.at.documents;
    size_t length = 0, wanted = strlen(search->model->id);
    const char *terms = manifest.terms.data ? manifest.terms.data : "";
    const char *id = terms_find(terms, manifest.terms.length, "model", strlen("model"), &length);
    enum status status = STATUS_OK;
    if (id && (length != wanted + 2 || memcmp(id + 1, search->model->id, wanted) != 0)) {
        status = err_set(err, STATUS_BAD_INPUT, "%s was made with another model: %.*s, and not \"%s\"",
                         search->output.path, (int)(length < 100 ? length : 100), id, search->model->id);
    }
    buffer_free(&manifest.terms);
    return status;
}

/* Computes the query's vector as the daemon would: prompt, limit, normalisation. */
static enum status encode(struct search *search, struct engine *engine, struct err *err)
{
    struct model *model = search->model;
    const char *text = search->own->query;
    size_t length = strlen(text);
    struct buffer prompted = {0};
    struct encoder *encoder = NULL;
    int32_t *ids = malloc(model->max_tokens * sizeof *ids);
    uint32_t start = 0, count = 0;
    bool truncated = false;
    search->query = malloc(model->dim * sizeof *search->query);
    enum status status = !ids || !search->query ? err_set(err, STATUS_NO_MEMORY, "no memory for the query")
                                                : model_put_prompt(model, &prompted, &text, &length, err);
    if (status == STATUS_OK) {
        status = tokenizer_encode(model->tokenizer, text, length, model->max_tokens, ids, &count, &truncated, err);
    }
    if (status == STATUS_OK) {
        status = encoder_open(engine, &encoder, err);
    }
    if (status == STATUS_OK) {
        struct engine_batch batch = {1, count, ids, &start, &count, search->query};
        status = encoder_run(encoder, &batch, err);
        encoder_close(encoder);
    }
    if (truncated) {
        fprintf(stderr, "sluice similar: the query is longer than %u tokens and was cut there\n", model->max_tokens);
    }
    buffer_free(&prompted);
    free(ids);
    return status;
}

static enum status compute_query(struct search *search, const struct config *config, struct err *err)
{
    struct devices devices = {0};
    if (search->own->query[0] == '\0' || !utf8_valid(search->own->query, strlen(search->own->query))) {
        return err_set(err, STATUS_BAD_INPUT, "--query is empty, or not UTF-8");
    }
    enum status status = devices_open(&devices, config, 1, err);
    if (status == STATUS_OK) {
        status = devices_load(&devices, config, search->model, false, 0, err);
    }
    if (status == STATUS_OK) {
        status = encode(search, devices_engine(&devices, 0), err);
    }
    devices_close(&devices);
    return status;
}

/* Finds the documents of rows: the rows themselves, unless a file of the output says whose chunks they are. */
static enum status find_documents(struct search *search, bool *chunked, struct err *err)
{
    const struct nearest *nearest = &search->nearest;
    const char *path = search->output.documents;
    char head[NPY_HEADER_BYTES];
    struct npy npy;
    for (uint32_t i = 0; i < nearest->count; i++) {
        search->shown[i].document = nearest->rows[i].row;
    }
    FILE *file = fopen(path, "rbe");
    *chunked = file;
    if (!file) {
        return STATUS_OK;
    }
    enum status status = npy_read(head, fread(head, 1, sizeof head, file), path, &npy, err);
    if (status == STATUS_OK && (strcmp(npy.type, "<u8") != 0 || npy.dimensions != 1 || npy.shape[0] != nearest->seen)) {
        status = err_set(err, STATUS_BAD_INPUT, "%s does not name a document for each of the %llu rows", path,
                         (unsigned long long)nearest->seen);
    }
    for (uint32_t i = 0; status == STATUS_OK && i < nearest->count; i++) {
        uint64_t *document = &search->shown[i].document;
        if (fseek(file, (long)(npy.data + nearest->rows[i].row * sizeof *document), SEEK_SET) != 0 ||
            fread(document, sizeof *document, 1, file) != 1) {
            status = err_set(err, STATUS_IO, "cannot read %s", path);
        }
    }
    fclose(file);
    return status;
}

static int by_document(const void *left, const void *right)
{
    const struct shown *a = *(struct shown *const *)left, *b = *(struct shown *const *)right;
    return (a->document > b->document) - (a->document < b->document);
}

static enum status keep(struct shown *shown, const struct document *document, struct err *err)
{
    shown->has_text = document->code == ROW_OK || document->code == ROW_EMPTY_TEXT;
    buffer_append(&shown->text, document->text, shown->has_text ? document->text_bytes : 0);
    buffer_append(&shown->id, document->id, document->id ? document->id_bytes : 0);
    return buffer_ok(&shown->text) && buffer_ok(&shown->id) ? STATUS_OK
                                                            : err_set(err, STATUS_NO_MEMORY, "no memory for a text");
}

/* Reads the whole input and keeps the documents of the rows. It must have `documents` of them; 0: unknown. */
static enum status read_texts(struct search *search, uint64_t documents, struct err *err)
{
    bool chunked, more = true;
    uint64_t read = 0;
    uint32_t at = 0, count = search->nearest.count;
    TRY(find_documents(search, &chunked, err));
    if (!search->source) {
        return STATUS_OK;
    }
    documents = chunked ? documents : search->nearest.seen;
    struct shown **order = calloc((size_t)count + 1, sizeof *order);
    enum status status = order ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for %u rows", count);
    for (uint32_t i = 0; status == STATUS_OK && i < count; i++) {
        order[i] = &search->shown[i];
    }
    if (status == STATUS_OK) {
        qsort(order, count, sizeof *order, by_document);
    }
    while (status == STATUS_OK && more) {
        struct document document;
        status = source_next(search->source, &document, &more, err);
        while (status == STATUS_OK && more && at < count && order[at]->document == read) {
            status = keep(order[at++], &document, err);
        }
        read += more;
    }
    free(order);
    if (status == STATUS_OK && documents > 0 && read != documents) {
        status = err_set(err, STATUS_BAD_INPUT,
                         "the vectors are those of %llu texts, but the input has %llu; is it the same?",
                         (unsigned long long)documents, (unsigned long long)read);
    }
    return status;
}

static enum status run_search(struct search *search, const struct invocation *invocation, struct err *err)
{
    const struct own *own = search->own;
    uint64_t documents = 0;
    if (!own->vectors || !own->query) {
        return err_set(err, STATUS_BAD_INPUT, "--vectors and --query must be given");
    }
    TRY(output_name(own->vectors, &search->output, err));
    TRY(open_texts(search, invocation, err));
    TRY(config_model(&invocation->config, &search->model, err));
    TRY(check_manifest(search, &documents, err));
    TRY(compute_query(search, &invocation->config, err));
    TRY(nearest_open(&search->nearest, search->query, search->model->dim, (uint32_t)own->top, err));
    TRY(nearest_read(&search->nearest, &search->output, err));
    search->shown = calloc((size_t)own->top, sizeof *search->shown);
    if (!search->shown) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for the texts");
    }
    return read_texts(search, documents, err);
}

static void print_json(const struct near_row *row, const struct shown *shown)
{
    printf("{\"row\":%llu,\"cosine\":%.6f,\"document\":%llu", (unsigned long long)row->row, (double)row->cosine,
           (unsigned long long)shown->document);
    if (shown->id.length > 0) {
        printf(",\"id\":%.*s", (int)shown->id.length, shown->id.data);
    }
    if (shown->has_text) {
        printf(",\"text\":");
        print_json_string(stdout, shown->text.data, shown->text.length);
    }
    puts("}");
}

/* Prints a line for people: runs of white space as one blank, and only the beginning of the text. */
static void print_line(const struct near_row *row, struct shown *shown)
{
    char *text = shown->text.data;
    size_t at = 0, length = 0;
    printf("%7.4f  %llu%s", (double)row->cosine, (unsigned long long)row->row, shown->id.length > 0 ? "  " : "");
    if (shown->id.length > 0) {
        print_bytes(stdout, shown->id.data, shown->id.length);
    }
    for (; at < shown->text.length && (length < SHOWN_BYTES || ((unsigned char)text[at] & 0xc0) == 0x80); at++) {
        bool white = memchr(" \t\r\n", text[at], 4);
        if (!white || (length > 0 && text[length - 1] != ' ')) {
            text[length++] = white ? ' ' : text[at];
        }
    }
    if (length > 0) {
        printf("  ");
        print_bytes(stdout, text, length);
    }
    puts(at < shown->text.length ? " ..." : "");
}

static int run(struct invocation *invocation)
{
    struct search search = {.own = invocation->own};
    struct nearest *nearest = &search.nearest;
    struct err err;
    enum status status = run_search(&search, invocation, &err);
    for (uint32_t i = 0; status == STATUS_OK && i < nearest->count; i++) {
        if (search.own->json) {
            print_json(&nearest->rows[i], &search.shown[i]);
        } else {
            print_line(&nearest->rows[i], &search.shown[i]);
        }
    }
    if (status == STATUS_OK && nearest->skipped > 0) {
        fprintf(stderr, "sluice similar: %llu of %llu rows have no vector and were left out\n",
                (unsigned long long)nearest->skipped, (unsigned long long)nearest->seen);
    }
    int code = status == STATUS_OK ? EX_OK : report(invocation, &err);
    for (uint32_t i = 0; search.shown != NULL && i < nearest->count; i++) {
        buffer_free(&search.shown[i].text);
        buffer_free(&search.shown[i].id);
    }
    free(search.shown);
    free(nearest->rows);
    free(search.query);
    model_close(search.model);
    source_close(search.source);
    free(search.operands);
    recipe_close(&search.recipe);
    output_free(&search.output);
    return code;
}

const struct subcommand command_similar = {
    .name = "similar",
    .bit = FOR_EMBED,
    .operands = "[INPUT...]",
    .summary = "Show the rows of a bulk job that are nearest to a query",
    .explanation =
        "Compares the query's vector with every row (cosine), and shows the nearest first: cosine, row, id and text.\n"
        "The model must be the one that made the vectors, which their manifest tells; rows that failed are left out.\n"
        "Name the input, and how to read it, as for `sluice embed`. Without one only rows are shown.\n\n"
        "A model that wants another prompt for queries gets it with --prompt.",
    .own = own_settings,
    .own_count = sizeof own_settings / sizeof own_settings[0],
    .own_size = sizeof(struct own),
    .run = run,
};
