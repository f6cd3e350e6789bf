/* The texts whose vectors are nearest to that of a query. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "bulk/json_text.h"
#include "bulk/manifest.h"
#include "bulk/matrix.h"
#include "cli/command.h"
#include "cli/near_texts.h"
#include "cli/print.h"
#include "cli/query_vector.h"
#include "serve/start.h"

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

/* Everything that a search has open. */
struct search {
    struct output output;
    struct recipe recipe;
    char **operands; /* [operand_count] */
    size_t operand_count;
    struct source *source; /* NULL without texts */
    struct model *model;
    struct query_vector query;
    struct matrix *matrix;
    struct nearest nearest;
    struct near_text *texts; /* [nearest.count] */
    uint64_t documents;      /* that the manifest tells of; 0: there is none */
};

static enum status open_texts(struct search *search, const struct invocation *invocation, struct err *err)
{
    const struct own *own = invocation->own;
    struct recipe_options recipe = {own->field, own->template, own->id_field, NULL};
    TRY(recipe_open(&search->recipe, &recipe, err));
    search->operands = calloc(invocation->operand_count + 1, sizeof *search->operands);
    if (search->operands == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the names of the inputs");
    if (own->texts != NULL)
        search->operands[search->operand_count++] = own->texts;
    for (size_t i = 0; i < invocation->operand_count; i++)
        search->operands[search->operand_count++] = invocation->operands[i];
    if (search->operand_count == 0)
        return STATUS_OK;
    struct source_options options = {.operands = search->operands,
                                     .operand_count = search->operand_count,
                                     .glob = own->glob,
                                     .format = (enum source_format)own->format,
                                     .recipe = &search->recipe,
                                     .headerless = !own->header,
                                     .max_text_bytes = TEXT_BYTES_MAX};
    return source_open(&options, &search->source, err);
}

/* Vectors of another model say nothing about this query. */
static enum status check_manifest(struct search *search, struct err *err)
{
    struct manifest manifest;
    bool found;
    TRY(manifest_read(search->output.manifest, &manifest, &found, err));
    if (!found)
        return STATUS_OK;
    search->documents = manifest.at.documents;
    size_t length = 0, wanted = strlen(search->model->id);
    const char *terms = manifest.terms.data == NULL ? "" : manifest.terms.data;
    const char *id = terms_find(terms, manifest.terms.length, "model", strlen("model"), &length);
    enum status status = STATUS_OK;
    if (id != NULL && (length != wanted + 2 || memcmp(id + 1, search->model->id, wanted) != 0))
        status = err_set(err, STATUS_BAD_INPUT, "%s was made with another model: %.*s, and not \"%s\"",
                         search->output.path, (int)(length < 100 ? length : 100), id, search->model->id);
    buffer_free(&manifest.terms);
    return status;
}

static enum status look(struct search *search, const struct own *own, struct err *err)
{
    TRY(nearest_open(&search->nearest, search->query.values, search->query.dim, (uint32_t)own->top, err));
    const float *rows;
    uint32_t count;
    for (;;) {
        TRY(matrix_next(search->matrix, &rows, &count, err));
        if (count == 0)
            break;
        nearest_add(&search->nearest, rows, count);
    }
    search->texts = calloc((size_t)own->top, sizeof *search->texts);
    if (search->texts == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the texts");
    return near_texts_find(&search->output, &search->nearest, search->source, search->documents, search->texts, err);
}

static enum status run_search(struct search *search, const struct invocation *invocation, struct err *err)
{
    const struct own *own = invocation->own;
    if (own->vectors == NULL || own->query == NULL)
        return err_set(err, STATUS_BAD_INPUT, "--vectors and --query must be given");
    TRY(output_name(own->vectors, &search->output, err));
    TRY(open_texts(search, invocation, err));
    TRY(start_model(&invocation->config, &search->model, err));
    TRY(check_manifest(search, err));
    TRY(matrix_open(&search->output, search->model->dim, &search->matrix, err));
    TRY(query_vector(own->query, &invocation->config, search->model, &search->query, err));
    return look(search, own, err);
}

static void close_search(struct search *search)
{
    if (search->texts != NULL)
        near_texts_free(search->texts, search->nearest.count);
    free(search->texts);
    nearest_close(&search->nearest);
    matrix_close(search->matrix);
    free(search->query.values);
    model_close(search->model);
    source_close(search->source);
    free(search->operands);
    recipe_close(&search->recipe);
    output_free(&search->output);
}

static void print_json(const struct near_row *row, const struct near_text *text, struct buffer *line)
{
    line->length = 0;
    buffer_format(line, "{\"row\":%llu,\"cosine\":%.6f,\"document\":%llu", (unsigned long long)row->row,
                  (double)row->cosine, (unsigned long long)text->document);
    if (text->id != NULL)
        buffer_format(line, ",\"id\":%s", text->id);
    if (text->text != NULL) {
        buffer_string(line, ",\"text\":");
        json_put_string(line, text->text, text->text_bytes);
    }
    buffer_string(line, "}\n");
    if (buffer_ok(line))
        fwrite(line->data, 1, line->length, stdout);
}

/* A line for people: white space as one blank, and no more of the text than they can look over. */
static void print_line(const struct near_row *row, const struct near_text *text, struct buffer *line)
{
    printf("%7.4f  %llu", (double)row->cosine, (unsigned long long)row->row);
    if (text->id != NULL) {
        printf("  ");
        print_bytes(stdout, text->id, strlen(text->id));
    }
    line->length = 0;
    size_t at = 0;
    for (bool blank = true; at < text->text_bytes && line->length < SHOWN_BYTES; at++) {
        bool white = strchr(" \t\r\n", text->text[at]) != NULL && text->text[at] != '\0';
        if (!white || !blank)
            buffer_append(line, white ? " " : &text->text[at], 1);
        blank = white;
    }
    while (at < text->text_bytes && line->length > 0 && ((unsigned char)text->text[at] & 0xc0) == 0x80)
        buffer_append(line, &text->text[at++], 1); /* the rest of a character */
    if (buffer_ok(line) && line->length > 0) {
        printf("  ");
        print_bytes(stdout, line->data, line->length);
        if (at < text->text_bytes)
            printf(" ...");
    }
    putchar('\n');
}

static int run(struct invocation *invocation)
{
    const struct own *own = invocation->own;
    struct search search = {0};
    struct buffer line = {0};
    struct err err;
    enum status status = run_search(&search, invocation, &err);
    for (uint32_t i = 0; status == STATUS_OK && i < search.nearest.count; i++)
        (own->json ? print_json : print_line)(&search.nearest.rows[i], &search.texts[i], &line);
    if (status == STATUS_OK && !buffer_ok(&line))
        status = err_set(&err, STATUS_NO_MEMORY, "no memory for a line");
    if (status == STATUS_OK && search.query.truncated)
        fprintf(stderr, "sluice similar: the query is longer than %u tokens and was cut there\n",
                search.model->max_tokens);
    if (status == STATUS_OK && search.nearest.skipped > 0)
        fprintf(stderr, "sluice similar: %llu of %llu rows have no vector and were left out\n",
                (unsigned long long)search.nearest.skipped, (unsigned long long)search.nearest.seen);
    int code = status == STATUS_OK ? EX_OK : report(invocation, &err);
    buffer_free(&line);
    close_search(&search);
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
