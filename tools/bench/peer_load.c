/* A load's ids lie twice in memory: as the file has them, and sorted, window by window, so that every batch is a run of
 * the second copy. */
#include "peer_load.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum { NAME_BYTES = 32, BATCH_TOKENS = 512, FILE_BYTES = 1 << 30 };

struct row {
    uint32_t number, length;
    const int32_t *ids;
};

struct peer_load {
    char name[NAME_BYTES];
    const char *material;
    uint32_t rows, dim, window, threads;
    struct row *row; /* [rows] as in the file */
    int32_t *ids;    /* of all rows */

    struct row *order; /* [rows] window by window, longest first */
    int32_t *sorted;   /* their ids */
    uint32_t *start, *lengths;
    struct engine_batch *batches;
    uint32_t *window_batches; /* [windows + 1] the first batch of each */
    uint32_t windows;
    float *output; /* [rows, dim] in that order */

    struct buffer text; /* of the .txt file, with a zero behind it */
};

void peer_die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("peer_sluice: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

void peer_must(enum status status, const struct err *err)
{
    if (status != STATUS_OK)
        peer_die("%s", err->message);
}

void *peer_need(size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size);
    if (memory == NULL)
        peer_die("no memory");
    return memory;
}

static struct buffer read_file(const char *material, const char *name, const char *ending)
{
    char path[4096];
    struct buffer content = {0};
    struct err err = {0};
    snprintf(path, sizeof path, "%s/loads/%s.%s", material, name, ending);
    peer_must(file_read(path, FILE_BYTES, &content, &err), &err);
    buffer_append(&content, "", 1);
    if (!buffer_ok(&content))
        peer_die("no memory");
    return content;
}

static uint32_t count_lines(const char *text)
{
    uint32_t lines = 0;
    for (const char *end = text; (end = strchr(end, '\n')) != NULL; end++)
        lines++;
    return lines;
}

/* Numbers with one space between them, a row on each line. */
static void parse_ids(struct peer_load *load, const char *text)
{
    int32_t *to = load->ids;
    for (uint32_t r = 0; r < load->rows; r++) {
        struct row row = {.number = r, .ids = to};
        for (char next = ' '; next != '\n';) {
            char *end;
            *to++ = (int32_t)strtol(text, &end, 10);
            if (end == text || (*end != ' ' && *end != '\n'))
                peer_die("%s.ids, line %u: not a number", load->name, r + 1);
            next = *end;
            text = end + 1;
            row.length++;
        }
        load->row[r] = row;
    }
}

struct peer_load *peer_load_open(const char *material, const char *name, uint32_t dim, unsigned threads)
{
    struct peer_load *load = peer_need(1, sizeof *load);
    if (strlen(name) >= sizeof load->name)
        peer_die("%s: a name that long", name);
    memcpy(load->name, name, strlen(name));
    load->material = material;
    load->dim = dim;
    load->threads = threads;
    struct buffer content = read_file(material, name, "ids");
    load->rows = count_lines(content.data);
    load->row = peer_need(load->rows, sizeof *load->row);
    load->order = peer_need(load->rows, sizeof *load->order);
    load->start = peer_need(load->rows, sizeof *load->start);
    load->lengths = peer_need(load->rows, sizeof *load->lengths);
    load->batches = peer_need(load->rows, sizeof *load->batches);
    load->window_batches = peer_need(load->rows + 1, sizeof *load->window_batches);
    load->output = peer_need((size_t)load->rows * dim, sizeof *load->output);
    load->ids = peer_need(content.length / 2 + 1, sizeof *load->ids); /* a number takes two bytes at least */
    load->sorted = peer_need(content.length / 2 + 1, sizeof *load->sorted);
    parse_ids(load, content.data);
    buffer_free(&content);
    return load;
}

void peer_load_close(struct peer_load *load)
{
    buffer_free(&load->text);
    free(load->row);
    free(load->ids);
    free(load->order);
    free(load->sorted);
    free(load->start);
    free(load->lengths);
    free(load->batches);
    free(load->window_batches);
    free(load->output);
    free(load);
}

const char *peer_load_name(const struct peer_load *load)
{
    return load->name;
}

uint32_t peer_load_rows(const struct peer_load *load)
{
    return load->rows;
}

uint32_t peer_load_windows(const struct peer_load *load)
{
    return load->windows;
}

const struct engine_batch *peer_load_batches(const struct peer_load *load, uint32_t window, uint32_t *count)
{
    *count = load->window_batches[window + 1] - load->window_batches[window];
    return load->batches + load->window_batches[window];
}

static int compare_rows(const void *a, const void *b)
{
    const struct row *left = a, *right = b;
    if (left->length != right->length)
        return left->length > right->length ? -1 : 1;
    return left->number < right->number ? -1 : 1;
}

/* Tokens of a batch, so that a window is as many equal batches for every thread: none is left with one at the end. */
static uint32_t share_of(const struct peer_load *load, uint32_t first, uint32_t end)
{
    uint32_t tokens = 0, most = BATCH_TOKENS * load->threads;
    for (uint32_t r = first; r < end; r++)
        tokens += load->order[r].length;
    uint32_t batches = (tokens + most - 1) / most * load->threads;
    return (tokens + batches - 1) / batches;
}

/* One window's batches, of the rows from `first` to before `end` of the order; their ids go to `to`. Returns its end.
 */
static int32_t *cut_window(struct peer_load *load, uint32_t first, uint32_t end, int32_t *to, uint32_t *batches)
{
    struct engine_batch *batch = NULL;
    uint32_t share = share_of(load, first, end), before = 0, until = 0;
    for (uint32_t r = first; r < end; before += load->order[r++].length) {
        const struct row *row = &load->order[r];
        if (before + row->length / 2 >= until || batch->extent + row->length > BATCH_TOKENS) {
            until += share;
            batch = &load->batches[(*batches)++];
            *batch = (struct engine_batch){
                .ids = to,
                .start = load->start + r,
                .length = load->lengths + r,
                .output = load->output + (size_t)r * load->dim,
            };
        }
        load->start[r] = batch->extent;
        load->lengths[r] = row->length;
        memcpy(to, row->ids, row->length * sizeof *to);
        to += row->length;
        batch->rows++;
        batch->extent += row->length;
    }
    return to;
}

static void lay_out(struct peer_load *load, uint32_t window)
{
    uint32_t step = window != 0 ? window : load->rows, batches = 0;
    int32_t *to = load->sorted;
    load->windows = 0;
    memcpy(load->order, load->row, load->rows * sizeof *load->row);
    for (uint32_t first = 0; first < load->rows; first += step) {
        uint32_t end = load->rows - first > step ? first + step : load->rows;
        qsort(load->order + first, end - first, sizeof *load->order, compare_rows);
        load->window_batches[load->windows++] = batches;
        to = cut_window(load, first, end, to, &batches);
    }
    load->window_batches[load->windows] = batches;
    load->window = window;
}

void peer_load_lay_out(struct peer_load *load, uint32_t window)
{
    if (load->windows == 0 || load->window != window)
        lay_out(load, window);
}

/* Tokenises every text; `ids` has room for one row and holds the last. With `check`, the ids are to be those of the
 * file. */
static uint64_t tokenize(struct peer_load *load, const struct model *model, int32_t *ids, bool check)
{
    struct err err = {0};
    uint64_t total = 0;
    if (load->text.data == NULL)
        load->text = read_file(load->material, load->name, "txt");
    const char *text = load->text.data;
    for (uint32_t r = 0; r < load->rows; r++) {
        const char *end = strchr(text, '\n');
        uint32_t count;
        bool truncated;
        if (end == NULL)
            peer_die("%s.txt: fewer lines than %s.ids", load->name, load->name);
        peer_must(tokenizer_encode(model->tokenizer, text, (size_t)(end - text), model->max_tokens, ids, &count,
                                   &truncated, &err),
                  &err);
        if (check && (count != load->row[r].length || memcmp(ids, load->row[r].ids, count * sizeof *ids) != 0))
            peer_die("%s.txt, line %u: other ids than in %s.ids", load->name, r + 1, load->name);
        total += count;
        text = end + 1;
    }
    return total;
}

void peer_load_tokenize(struct peer_load *load, const struct model *model, uint32_t window)
{
    int32_t *ids = peer_need(model->max_tokens, sizeof *ids);
    tokenize(load, model, ids, true);
    lay_out(load, window);
    free(ids);
}

uint64_t peer_load_count_tokens(struct peer_load *load, const struct model *model)
{
    int32_t *ids = peer_need(model->max_tokens, sizeof *ids);
    uint64_t total = tokenize(load, model, ids, false);
    free(ids);
    return total;
}

void peer_load_write(const struct peer_load *load, const char *path)
{
    float *vectors = peer_need((size_t)load->rows * load->dim, sizeof *vectors);
    for (uint32_t r = 0; r < load->rows; r++)
        memcpy(vectors + (size_t)load->order[r].number * load->dim, load->output + (size_t)r * load->dim,
               load->dim * sizeof *vectors);
    FILE *file = fopen(path, "wb");
    size_t count = (size_t)load->rows * load->dim;
    if (file == NULL || fwrite(vectors, sizeof *vectors, count, file) != count || fclose(file) != 0)
        peer_die("%s cannot be written", path);
    free(vectors);
}
