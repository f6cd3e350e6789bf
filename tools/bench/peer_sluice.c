/* Sluice as one of the engines that tools/bench/peers.py compares: it takes the commands of
 * tools/bench/peer/worker.py, so that ours stays as warm as the others and takes turns with them.
 *
 *     peer_sluice serve MATERIAL PRECISION THREADS
 *
 * MATERIAL holds model/ and loads/NAME.ids, loads/NAME.txt; max_tokens and the vectors are the model's own. Rows are
 * sorted by length and laid out before the clock starts, as for the others; nothing is padded. */
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "engine/cpu/parallel_for.h"
#include "engine/engine.h"
#include "model/model.h"

/* Rows of tokens from a file, and their vectors. The ids are in memory twice: as in the file, and sorted by window, so
 * that every batch is a piece of the second copy. */

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
    float *output; /* [rows, dim] in the same order */

    struct buffer text; /* the .txt file, ended by a NUL */
};

/* Ends the process with a message. */
PRINTF_LIKE(1, 2)
static void peer_die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("peer_sluice: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static void peer_must(enum status status, const struct err *err)
{
    if (status != STATUS_OK) { peer_die("%s", err->message); }
}

/* Zeroed memory, or the end of the process. Owns: the caller frees it. */
static void *peer_need(size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size);
    if (memory == NULL) { peer_die("no memory"); }
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
    if (!buffer_ok(&content)) { peer_die("no memory"); }
    return content;
}

static uint32_t count_lines(const char *text)
{
    uint32_t lines = 0;
    for (const char *end = text; (end = strchr(end, '\n')) != NULL; end++) { lines++; }
    return lines;
}

/* Reads a row per line: numbers with a space between them. */
static void parse_ids(struct peer_load *load, const char *text)
{
    int32_t *to = load->ids;
    for (uint32_t r = 0; r < load->rows; r++) {
        struct row row = {.number = r, .ids = to};
        for (char next = ' '; next != '\n';) {
            char *end;
            *to++ = (int32_t)strtol(text, &end, 10);
            if (end == text || (*end != ' ' && *end != '\n')) {
                peer_die("%s.ids, line %u: not a number", load->name, r + 1);
            }
            next = *end;
            text = end + 1;
            row.length++;
        }
        load->row[r] = row;
    }
}

/* Reads MATERIAL/loads/NAME.ids, for this many threads; texts are read when they are first needed. Owns: the caller
 * ends it with peer_load_close. */
static struct peer_load *peer_load_open(const char *material, const char *name, uint32_t dim, unsigned threads)
{
    struct peer_load *load = peer_need(1, sizeof *load);
    if (strlen(name) >= sizeof load->name) { peer_die("%s: a name that long", name); }
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

static void peer_load_close(struct peer_load *load)
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

static const char *peer_load_name(const struct peer_load *load)
{
    return load->name;
}

static uint32_t peer_load_rows(const struct peer_load *load)
{
    return load->rows;
}

static uint32_t peer_load_windows(const struct peer_load *load)
{
    return load->windows;
}

/* The batches of a window, one after the other in memory; their outputs are the load's. */
static const struct engine_batch *peer_load_batches(const struct peer_load *load, uint32_t window, uint32_t *count)
{
    *count = load->window_batches[window + 1] - load->window_batches[window];
    return load->batches + load->window_batches[window];
}

static int compare_rows(const void *a, const void *b)
{
    const struct row *left = a, *right = b;
    if (left->length != right->length) { return left->length > right->length ? -1 : 1; }
    return left->number < right->number ? -1 : 1;
}

/* Tokens per batch, so that every thread gets the same number of equal batches of a window. */
static uint32_t share_of(const struct peer_load *load, uint32_t first, uint32_t end)
{
    uint32_t tokens = 0, most = BATCH_TOKENS * load->threads;
    for (uint32_t r = first; r < end; r++) { tokens += load->order[r].length; }
    uint32_t batches = (tokens + most - 1) / most * load->threads;
    return (tokens + batches - 1) / batches;
}

/* Makes the batches of a window, rows `first` to before `end` in order; their ids go to `to`. Returns the end of the
 * ids. */
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

/* Cuts the rows into windows of this many (0: one window), sorts each by length, longest first, and cuts it into
 * batches of about the same size, as many for each thread. */
static void peer_load_lay_out(struct peer_load *load, uint32_t window)
{
    if (load->windows == 0 || load->window != window) { lay_out(load, window); }
}

/* Tokenises every text; `ids` has room for one row. With `check`, the ids must be those of the file. */
static uint64_t tokenize(struct peer_load *load, const struct model *model, int32_t *ids, bool check)
{
    struct err err = {0};
    uint64_t total = 0;
    if (load->text.data == NULL) { load->text = read_file(load->material, load->name, "txt"); }
    const char *text = load->text.data;
    for (uint32_t r = 0; r < load->rows; r++) {
        const char *end = strchr(text, '\n');
        uint32_t count;
        bool truncated;
        if (end == NULL) { peer_die("%s.txt: fewer lines than %s.ids", load->name, load->name); }
        peer_must(tokenizer_encode(model->tokenizer, text, (size_t)(end - text), model->max_tokens, ids, &count,
                                   &truncated, &err),
                  &err);
        if (check && (count != load->row[r].length || memcmp(ids, load->row[r].ids, count * sizeof *ids) != 0)) {
            peer_die("%s.txt, line %u: other ids than in %s.ids", load->name, r + 1, load->name);
        }
        total += count;
        text = end + 1;
    }
    return total;
}

/* Tokenises all texts and lays out the result; the caller's time includes both. */
static void peer_load_tokenize(struct peer_load *load, const struct model *model, uint32_t window)
{
    int32_t *ids = peer_need(model->max_tokens, sizeof *ids);
    tokenize(load, model, ids, true);
    lay_out(load, window);
    free(ids);
}

/* Tokenises all texts and only counts. */
static uint64_t peer_load_count_tokens(struct peer_load *load, const struct model *model)
{
    int32_t *ids = peer_need(model->max_tokens, sizeof *ids);
    uint64_t total = tokenize(load, model, ids, false);
    free(ids);
    return total;
}

/* Writes all vectors as f32, in the order of the file. */
static void peer_load_write(const struct peer_load *load, const char *path)
{
    float *vectors = peer_need((size_t)load->rows * load->dim, sizeof *vectors);
    for (uint32_t r = 0; r < load->rows; r++) {
        memcpy(vectors + (size_t)load->order[r].number * load->dim, load->output + (size_t)r * load->dim,
               load->dim * sizeof *vectors);
    }
    FILE *file = fopen(path, "wb");
    size_t count = (size_t)load->rows * load->dim;
    if (file == NULL || fwrite(vectors, sizeof *vectors, count, file) != count || fclose(file) != 0) {
        peer_die("%s cannot be written", path);
    }
    free(vectors);
}

/* The compute threads. Each has an encoder and takes the next batch of a window until none is left. The caller is one
 * of them, so a window of one batch wakes nobody. */

enum { THREADS_MAX = 64 };

struct helper {
    pthread_t thread;
    struct peer_team *parallel;
    struct encoder *encoder;
};

struct peer_team {
    struct engine *engine;
    unsigned threads;
    struct parallel_for *single;        /* for windows of one batch, as in the daemon */
    struct helper helpers[THREADS_MAX]; /* the first is the caller's own */

    pthread_mutex_t lock;
    pthread_cond_t begun, ended;
    uint64_t window; /* counts windows, so that a helper notices a new one */
    unsigned busy;
    bool closing;

    const struct engine_batch *batches;
    uint32_t count;
    atomic_uint next;
};

static void take_batches(struct helper *helper)
{
    struct peer_team *parallel = helper->parallel;
    struct err err = {0};
    for (uint32_t i = atomic_fetch_add(&parallel->next, 1); i < parallel->count;
         i = atomic_fetch_add(&parallel->next, 1)) {
        peer_must(encoder_run(helper->encoder, &parallel->batches[i], &err), &err);
    }
}

static void open_encoder(struct helper *helper)
{
    struct err err = {0};
    peer_must(encoder_open(helper->parallel->engine, &helper->encoder, &err), &err);
    peer_must(encoder_join(helper->encoder, helper->parallel->single, &err), &err);
}

static void *help(void *argument)
{
    struct helper *helper = argument;
    struct peer_team *parallel = helper->parallel;
    open_encoder(helper);
    pthread_mutex_lock(&parallel->lock);
    for (uint64_t seen = 0;;) {
        while (parallel->window == seen && !parallel->closing) { pthread_cond_wait(&parallel->begun, &parallel->lock); }
        if (parallel->closing) { break; }
        seen = parallel->window;
        pthread_mutex_unlock(&parallel->lock);
        take_batches(helper);
        pthread_mutex_lock(&parallel->lock);
        if (--parallel->busy == 0) { pthread_cond_signal(&parallel->ended); }
    }
    pthread_mutex_unlock(&parallel->lock);
    encoder_close(helper->encoder);
    return NULL;
}

/* Owns: the caller ends it with peer_team_close, before the engine. */
static struct peer_team *peer_team_open(struct engine *engine, unsigned threads)
{
    struct peer_team *parallel = peer_need(1, sizeof *parallel);
    if (threads == 0 || threads > THREADS_MAX) { peer_die("%u threads", threads); }
    parallel->engine = engine;
    parallel->threads = threads;
    pthread_mutex_init(&parallel->lock, NULL);
    pthread_cond_init(&parallel->begun, NULL);
    pthread_cond_init(&parallel->ended, NULL);
    for (unsigned i = 0; i < threads; i++) { parallel->helpers[i].parallel = parallel; }
    struct err err = {0};
    peer_must(parallel_for_open(threads, &parallel->single, &err), &err);
    open_encoder(&parallel->helpers[0]);
    for (unsigned i = 1; i < threads; i++) {
        if (pthread_create(&parallel->helpers[i].thread, NULL, help, &parallel->helpers[i]) != 0) {
            peer_die("no thread");
        }
    }
    return parallel;
}

static void peer_team_close(struct peer_team *parallel)
{
    pthread_mutex_lock(&parallel->lock);
    parallel->closing = true;
    pthread_cond_broadcast(&parallel->begun);
    pthread_mutex_unlock(&parallel->lock);
    for (unsigned i = 1; i < parallel->threads; i++) { pthread_join(parallel->helpers[i].thread, NULL); }
    encoder_close(parallel->helpers[0].encoder);
    parallel_for_close(parallel->single);
    pthread_cond_destroy(&parallel->begun);
    pthread_cond_destroy(&parallel->ended);
    pthread_mutex_destroy(&parallel->lock);
    free(parallel);
}

/* Computes one window. */
static void peer_team_embed_window(struct peer_team *parallel, const struct peer_load *load, uint32_t window)
{
    parallel->batches = peer_load_batches(load, window, &parallel->count);
    atomic_store(&parallel->next, 0);
    if (parallel->count > 1) {
        pthread_mutex_lock(&parallel->lock);
        parallel->window++;
        parallel->busy = parallel->threads - 1;
        pthread_cond_broadcast(&parallel->begun);
        pthread_mutex_unlock(&parallel->lock);
    }
    take_batches(&parallel->helpers[0]);
    pthread_mutex_lock(&parallel->lock);
    while (parallel->busy > 0) { pthread_cond_wait(&parallel->ended, &parallel->lock); }
    pthread_mutex_unlock(&parallel->lock);
}

/* Computes all windows, one after the other. */
static void peer_team_embed(struct peer_team *parallel, const struct peer_load *load)
{
    for (uint32_t window = 0; window < peer_load_windows(load); window++) {
        peer_team_embed_window(parallel, load, window);
    }
}

enum { LINE_BYTES = 4096, LOADS_MAX = 16 };

struct bench {
    const char *material;
    struct model *model;
    struct peer_team *parallel;
    struct peer_load *loads[LOADS_MAX];
    unsigned load_count, threads;
};

static struct peer_load *load_named(struct bench *bench, const char *name)
{
    for (unsigned i = 0; i < bench->load_count; i++) {
        if (strcmp(peer_load_name(bench->loads[i]), name) == 0) { return bench->loads[i]; }
    }
    if (bench->load_count == LOADS_MAX) { peer_die("more than %d loads", LOADS_MAX); }
    return bench->loads[bench->load_count++] = peer_load_open(bench->material, name, bench->model->dim, bench->threads);
}

static void print_repeated(unsigned runs, uint64_t ns)
{
    printf("{\"runs\": %u, \"seconds\": %.9f}\n", runs, (double)ns / NS_PER_S);
}

/* Embeds a load repeatedly; with `texts`, from its texts. */
static void run(struct bench *bench, const char *name, uint32_t window, uint64_t least_ns, bool texts)
{
    struct peer_load *load = load_named(bench, name);
    peer_load_lay_out(load, window);
    unsigned runs = 0;
    uint64_t begin = clock_now_ns(), now = begin;
    for (; runs == 0 || now - begin < least_ns; now = clock_now_ns(), runs++) {
        if (texts) { peer_load_tokenize(load, bench->model, window); }
        peer_team_embed(bench->parallel, load);
    }
    print_repeated(runs, now - begin);
}

static void print_each(const uint64_t *ns, unsigned count)
{
    printf("{\"ms\": [");
    for (unsigned i = 0; i < count; i++) { printf("%s%.6f", i > 0 ? ", " : "", (double)ns[i] / NS_PER_MS); }
    printf("]}\n");
}

/* Embeds each row as its own window. */
static void each(struct bench *bench, const char *name, unsigned count)
{
    struct peer_load *load = load_named(bench, name);
    uint64_t *ns = peer_need(count, sizeof *ns);
    peer_load_lay_out(load, 1);
    for (unsigned i = 0; i < count; i++) {
        uint64_t begin = clock_now_ns();
        peer_team_embed_window(bench->parallel, load, i % peer_load_windows(load));
        ns[i] = clock_now_ns() - begin;
    }
    print_each(ns, count);
    free(ns);
}

static void vectors(struct bench *bench, const char *name, uint32_t window, const char *path)
{
    struct peer_load *load = load_named(bench, name);
    peer_load_lay_out(load, window);
    peer_team_embed(bench->parallel, load);
    peer_load_write(load, path);
    printf("{\"rows\": %u, \"dim\": %u}\n", peer_load_rows(load), bench->model->dim);
}

static void tokens(struct bench *bench, const char *name, uint64_t least_ns)
{
    struct peer_load *load = load_named(bench, name);
    unsigned runs = 0;
    uint64_t begin = clock_now_ns(), now = begin, count = 0;
    for (; runs == 0 || now - begin < least_ns; now = clock_now_ns(), runs++) {
        count += peer_load_count_tokens(load, bench->model);
    }
    printf("{\"runs\": %u, \"seconds\": %.9f, \"tokens\": %llu}\n", runs, (double)(now - begin) / NS_PER_S,
           (unsigned long long)count);
}

static void document(struct bench *bench, const char *name, unsigned count)
{
    struct peer_load *load = load_named(bench, name);
    uint64_t *ns = peer_need(count, sizeof *ns);
    for (unsigned i = 0; i < count; i++) {
        uint64_t begin = clock_now_ns();
        peer_load_count_tokens(load, bench->model);
        ns[i] = clock_now_ns() - begin;
    }
    print_each(ns, count);
    free(ns);
}

static void answer(struct bench *bench, char *line)
{
    const char *words[4] = {"", "", "", ""};
    char *rest = NULL;
    unsigned count = 0;
    for (char *word = strtok_r(line, " \n", &rest); word != NULL && count < 4; word = strtok_r(NULL, " \n", &rest)) {
        words[count++] = word;
    }
    unsigned long second = strtoul(words[2], NULL, 10), third = strtoul(words[3], NULL, 10);
    if (strcmp(words[0], "run") == 0 && count == 4) {
        run(bench, words[1], (uint32_t)second, third * NS_PER_MS, false);
    } else if (strcmp(words[0], "text") == 0 && count == 4) {
        run(bench, words[1], (uint32_t)second, third * NS_PER_MS, true);
    } else if (strcmp(words[0], "tune") == 0 && count == 3) {
        run(bench, words[1], (uint32_t)second, 0, false); /* nothing to choose, but a run warms up */
    } else if (strcmp(words[0], "each") == 0 && count == 3) {
        each(bench, words[1], (unsigned)second);
    } else if (strcmp(words[0], "vectors") == 0 && count == 4) {
        vectors(bench, words[1], (uint32_t)second, words[3]);
    } else if (strcmp(words[0], "tokens") == 0 && count == 3) {
        tokens(bench, words[1], second * NS_PER_MS);
    } else if (strcmp(words[0], "document") == 0 && count == 3) {
        document(bench, words[1], (unsigned)second);
    } else {
        printf("{\"error\": \"no command named %s with %u words\"}\n", words[0], count);
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct err err = {0};
    struct engine_options options = {.backend = "cpu"};
    struct engine *engine;
    struct bench bench = {0};
    char line[LINE_BYTES];
    if (argc != 5 || strcmp(argv[1], "serve") != 0) {
        fprintf(stderr, "usage: peer_sluice serve MATERIAL PRECISION THREADS\n");
        return 64;
    }
    bench.material = argv[2];
    snprintf(line, sizeof line, "%s/model", bench.material);
    peer_must(precision_parse(argv[3], &options.precision, &err), &err);
    peer_must(model_open(line, NULL, &bench.model, &err), &err);
    bench.model->read_once = true;
    peer_must(engine_open(bench.model, &options, &engine, &err), &err);
    model_release_weights(bench.model);
    bench.threads = (unsigned)strtoul(argv[4], NULL, 10);
    bench.parallel = peer_team_open(engine, bench.threads);
    struct peer_load *first = load_named(&bench, "one");
    peer_load_lay_out(first, 1);
    peer_team_embed_window(bench.parallel, first, 0);
    printf("{\"ready\": true}\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) { answer(&bench, line); }
    peer_team_close(bench.parallel);
    for (unsigned i = 0; i < bench.load_count; i++) { peer_load_close(bench.loads[i]); }
    engine_close(engine);
    model_close(bench.model);
    return 0;
}
