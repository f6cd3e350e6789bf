/* Finds the texts whose vectors are nearest to that of a query. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "base/json.h"
#include "bulk/input/source.h"
#include "bulk/manifest.h"
#include "bulk/output/store.h"
#include "bulk/similar.h"
#include "cli/command.h"
#include "cli/print.h"
#include "compute/devices.h"
#include "config/config.h"
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
    {OWN(field, SETTING_TEXT), .most = 1024, .value = "NAME", .help = "where the text is in JSON or CSV [text]"},
    {OWN(template, SETTING_TEXT), .most = 65536, .value = "TEXT", .help = "the text out of several fields"},
    {OWN(id_field, SETTING_TEXT), .most = 1024, .value = "NAME", .help = "the field that is a row's id [its number]"},
    {OWN(header, SETTING_SWITCH), .fallback = "true", .help = "CSV without a header"},
    {OWN(glob, SETTING_TEXT), .most = 1024, .value = "PATTERN", .help = "which files of a folder [*.txt and *.md]"},
};
/* clang-format on */

/* A row that was found, and the part of its document to show. */
struct found {
    const struct near_row *near;
    uint64_t document;
    uint64_t begin, end; /* bytes of the document's text; end UINT64_MAX: all of it */
    struct buffer id, text;
    bool has_id, has_text;
};

/* The state of a search. */
struct search {
    const struct own *own;
    struct output output;
    struct recipe recipe;
    char **operands;       /* the texts */
    struct source *source; /* NULL without texts */
    struct model *model;
    float *query; /* [dim] */
    struct nearest nearest;
    struct found *found; /* [nearest.count] */
};

static enum status open_texts(struct search *search, const struct invocation *invocation, struct err *err)
{
    const struct own *own = search->own;
    struct recipe_options recipe = {own->field, own->template, own->id_field, NULL, false};
    size_t first = own->texts != NULL, count = first + invocation->operand_count;
    TRY(recipe_open(&search->recipe, &recipe, err));
    search->operands = calloc(count + 1, sizeof *search->operands);
    if (!search->operands) { return err_set(err, STATUS_NO_MEMORY, "no memory for the names of the inputs"); }
    search->operands[0] = own->texts;
    memcpy(search->operands + first, invocation->operands, invocation->operand_count * sizeof *search->operands);
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
    char wanted[80];
    int length = snprintf(wanted, sizeof wanted, "model=\"%s\"\n", search->model->id);
    TRY(manifest_read(search->output.manifest, &manifest, &found, err));
    const char *terms = manifest.terms.data;
    bool same = !terms || memmem(terms, manifest.terms.length, wanted, (size_t)length);
    size_t name_bytes = 0, id_bytes = 0;
    const char *name =
        terms ? terms_find(terms, manifest.terms.length, TERM_MODEL_NAME, strlen(TERM_MODEL_NAME), &name_bytes) : NULL;
    const char *id = terms ? terms_find(terms, manifest.terms.length, "model", 5, &id_bytes) : NULL;
    *documents = manifest.at.documents;
    if (!same) {
        err_set(err, STATUS_BAD_INPUT, "%s was made with another model: %.*s (%.*s), and not \"%s\" (\"%s\")",
                search->output.path, (int)id_bytes, id ? id : "", name ? (int)name_bytes : 7, name ? name : "no name",
                search->model->id, search->model->name);
    }
    buffer_free(&manifest.terms);
    return same ? STATUS_OK : STATUS_BAD_INPUT;
}

/* Computes the query's vector as the daemon would: prompt, limit, normalisation. */
static enum status encode_query(struct search *search, struct engine *engine, int32_t *ids, struct err *err)
{
    const struct model *model = search->model;
    const char *text = search->own->query;
    struct encoder *encoder;
    uint32_t start = 0, count;
    bool truncated;
    TRY(model_encode(model, text, strlen(text), model->max_tokens, ids, &count, &truncated, err));
    if (truncated) {
        fprintf(stderr, "sluice similar: the query is longer than %u tokens and was cut there\n", model->max_tokens);
    }
    TRY(encoder_open(engine, &encoder, err));
    struct engine_batch batch = {1, count, ids, &start, &count, search->query};
    enum status status = encoder_run(encoder, &batch, err);
    encoder_close(encoder);
    return status;
}

static enum status compute_query(struct search *search, const struct config *config, struct err *err)
{
    struct devices devices = {0};
    int32_t *ids = malloc(search->model->max_tokens * sizeof *ids);
    search->query = malloc(search->model->dim * sizeof *search->query);
    enum status status = ids && search->query ? devices_open(&devices, config, 1, err)
                                              : err_set(err, STATUS_NO_MEMORY, "no memory for the query");
    if (status == STATUS_OK) { status = devices_load(&devices, config, search->model, false, 0, err); }
    if (status == STATUS_OK) { status = encode_query(search, devices_engine(&devices, 0), ids, err); }
    devices_close(&devices);
    free(ids);
    return status;
}

/* Opens a file with numbers for each row, unless there is none. Shapes: [seen] or, with `columns` 2, [seen, 2]. */
static enum status open_numbers(const struct search *search, const char *path, uint64_t columns, FILE **out,
                                size_t *data, struct err *err)
{
    char head[NPY_HEADER_BYTES];
    struct npy npy;
    FILE *file = *out = fopen(path, "rbe");
    if (!file) { return STATUS_OK; }
    enum status status = npy_read(head, fread(head, 1, sizeof head, file), path, &npy, err);
    if (status == STATUS_OK && (strcmp(npy.type, "<u8") != 0 || npy.shape[0] != search->nearest.seen ||
                                npy.dimensions != columns || (columns == 2 && npy.shape[1] != 2))) {
        status = err_set(err, STATUS_BAD_INPUT, "%s does not name a document for each of the %llu rows", path,
                         (unsigned long long)search->nearest.seen);
    }
    if (status != STATUS_OK) {
        fclose(file);
        *out = NULL;
    }
    *data = npy.data;
    return status;
}

static bool read_numbers(FILE *file, size_t data, uint64_t row, uint64_t *to, size_t columns)
{
    return fseek(file, (long)(data + row * columns * sizeof *to), SEEK_SET) == 0 &&
           fread(to, sizeof *to, columns, file) == columns;
}

/* Finds the documents of rows. A row is a document, unless files of the output name its document, and its place there.
 */
static enum status find_documents(struct search *search, bool *chunked, struct err *err)
{
    FILE *documents = NULL, *chunks = NULL;
    size_t documents_data = 0, chunks_data = 0;
    TRY(open_numbers(search, search->output.documents, 1, &documents, &documents_data, err));
    enum status status = open_numbers(search, search->output.chunks, 2, &chunks, &chunks_data, err);
    bool good = true;
    *chunked = documents;
    for (uint32_t i = 0; i < search->nearest.count; i++) {
        const struct near_row *near = &search->nearest.rows[i];
        uint64_t document = near->row, place[2] = {0, UINT64_MAX};
        good = good && (!documents || read_numbers(documents, documents_data, near->row, &document, 1)) &&
               (!documents || !chunks || read_numbers(chunks, chunks_data, near->row, place, 2));
        search->found[i] = (struct found){.near = near, .document = document, .begin = place[0], .end = place[1]};
    }
    if (documents) { fclose(documents); }
    if (chunks) { fclose(chunks); }
    if (status != STATUS_OK || good) { return status; }
    return err_set(err, STATUS_IO, "%s or %s is shorter than its header says", search->output.documents,
                   search->output.chunks);
}

static int by_document(const void *left, const void *right)
{
    const struct found *a = left, *b = right;
    return (a->document > b->document) - (a->document < b->document);
}

static int by_rank(const void *left, const void *right)
{
    const struct found *a = left, *b = right;
    return (a->near > b->near) - (a->near < b->near);
}

static enum status keep_found(struct found *found, const struct document *document, struct err *err)
{
    bool whole = found->end == UINT64_MAX || document->code != ROW_OK;
    if (!whole && (found->begin > found->end || found->end > document->text_bytes)) {
        return err_set(err, STATUS_BAD_INPUT,
                       "row %llu ends at byte %llu of a text that has %zu: is the input the same?",
                       (unsigned long long)found->near->row, (unsigned long long)found->end, document->text_bytes);
    }
    size_t begin = whole ? 0 : found->begin, end = whole ? document->text_bytes : found->end;
    found->has_id = document->id != NULL;
    found->has_text = document->code == ROW_OK || document->code == ROW_EMPTY_TEXT;
    if (found->has_id) { buffer_append(&found->id, document->id, document->id_bytes); }
    if (found->has_text) { buffer_append(&found->text, document->text + begin, end - begin); }
    bool kept = buffer_ok(&found->id) && buffer_ok(&found->text);
    return kept ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for a text");
}

/* Reads the whole input and keeps the documents of the rows. It must have `documents` of them; 0: unknown. */
static enum status read_texts(struct search *search, uint64_t documents, struct err *err)
{
    bool chunked, more = true;
    uint64_t read = 0;
    uint32_t at = 0, count = search->nearest.count;
    struct found *found = search->found;
    struct document document;
    TRY(find_documents(search, &chunked, err));
    if (!search->source) { return STATUS_OK; }
    documents = chunked ? documents : search->nearest.seen;
    qsort(found, count, sizeof *found, by_document);
    for (; more; read += more) {
        TRY(source_next(search->source, &document, &more, err));
        for (; more && at < count && found[at].document == read; at++) { TRY(keep_found(&found[at], &document, err)); }
    }
    TRY(source_check_fields(search->source, err));
    qsort(found, count, sizeof *found, by_rank);
    if (documents == 0 || read == documents) { return STATUS_OK; }
    return err_set(err, STATUS_BAD_INPUT,
                   "the vectors are those of %llu texts, but the input has %llu; is it the same?",
                   (unsigned long long)documents, (unsigned long long)read);
}

static enum status run_search(struct search *search, const struct invocation *invocation, struct err *err)
{
    const struct own *own = search->own;
    uint64_t documents = 0;
    if (!own->vectors || !own->query || own->query[0] == '\0') {
        return err_set(err, STATUS_BAD_INPUT, "--vectors and --query must be given, and not be empty");
    }
    TRY(output_name(own->vectors, &search->output, err));
    TRY(open_texts(search, invocation, err));
    TRY(config_model(&invocation->config, &search->model, err));
    TRY(check_manifest(search, &documents, err));
    TRY(compute_query(search, &invocation->config, err));
    TRY(nearest_open(&search->nearest, search->query, search->model->dim, (uint32_t)own->top, err));
    TRY(nearest_read(&search->nearest, &search->output, err));
    search->found = calloc((size_t)own->top, sizeof *search->found);
    return search->found ? read_texts(search, documents, err)
                         : err_set(err, STATUS_NO_MEMORY, "no memory for the texts");
}

static enum status print_object(const struct found *found, struct err *err)
{
    struct buffer line = {0};
    buffer_json(&line, "{'row':%" PRIu64 ",'cosine':%.6f,'document':%" PRIu64, found->near->row,
                (double)found->near->cosine, found->document);
    if (found->end != UINT64_MAX) {
        buffer_json(&line, ",'start':%" PRIu64 ",'end':%" PRIu64, found->begin, found->end);
    }
    if (found->has_id) {
        buffer_json(&line, ",'id':");
        buffer_append(&line, found->id.data, found->id.length);
    }
    if (found->has_text) { buffer_json(&line, ",'text':%.*s", (int)found->text.length, found->text.data); }
    buffer_json(&line, "}");
    return print_json(&line, err);
}

/* Prints a line for people: runs of white space as one blank, and only the beginning of the text. */
static void print_found(const struct found *found)
{
    const char *text = found->text.data;
    size_t at = 0, shown = 0;
    char line[SHOWN_BYTES + 4];
    printf("%7.4f  %" PRIu64 "%s", (double)found->near->cosine, found->near->row, found->has_id ? "  " : "");
    print_bytes(stdout, found->id.data, found->id.length);
    for (; at < found->text.length && (shown < SHOWN_BYTES || ((unsigned char)text[at] & 0xc0) == 0x80); at++) {
        bool white = memchr(" \t\r\n", text[at], 4);
        if (!white || (shown > 0 && line[shown - 1] != ' ')) { line[shown++] = white ? ' ' : text[at]; }
    }
    fputs(shown > 0 ? "  " : "", stdout);
    print_bytes(stdout, line, shown);
    puts(at < found->text.length ? " ..." : "");
}

static int run_similar(struct invocation *invocation)
{
    struct search search = {.own = invocation->own};
    struct nearest *nearest = &search.nearest;
    struct err err;
    enum status status = run_search(&search, invocation, &err);
    for (uint32_t i = 0; search.found && i < nearest->count; i++) {
        if (status == STATUS_OK && search.own->json) {
            status = print_object(&search.found[i], &err);
        } else if (status == STATUS_OK) {
            print_found(&search.found[i]);
        }
        buffer_free(&search.found[i].id);
        buffer_free(&search.found[i].text);
    }
    if (status == STATUS_OK && nearest->skipped > 0) {
        fprintf(stderr, "sluice similar: %llu of %llu rows have no vector and were left out\n",
                (unsigned long long)nearest->skipped, (unsigned long long)nearest->seen);
    }
    int code = status == STATUS_OK ? EX_OK : print_error(invocation, &err);
    free(search.found);
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
        "Compares the query's vector with every row (cosine), and shows the nearest first: cosine, row, id and\n"
        "text. The model must be the one that made the vectors, which their manifest tells; rows that failed are\n"
        "left out. Name the input, and how to read it, as for `sluice embed`. Without one only rows are shown.\n\n"
        "A model that wants another prompt for queries gets it with --prompt.",
    OWN_OPTIONS(own_settings, struct own),
    .run = run_similar,
};
