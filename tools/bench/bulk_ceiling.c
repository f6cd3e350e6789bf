/* The engine's rate on a file of texts without any other work: the ceiling of bulk jobs.
 *
 *     bulk_ceiling MODEL LINES THREADS TOKENS
 *
 * All texts are tokenised and sorted beforehand; then threads run batches of at most TOKENS tokens from memory, and the
 * vectors are discarded. Prints rows per second and seconds of processor time of that part alone. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "engine/engine.h"

enum { BATCH_ROWS = 256 };

struct text {
    const int32_t *ids;
    uint32_t length;
};

static struct text *texts;
static size_t text_count;
static uint32_t batch_tokens;
static atomic_size_t next_text;
static pthread_mutex_t taking = PTHREAD_MUTEX_INITIALIZER;

static void must(enum status status, const struct err *err)
{
    if (status != STATUS_OK) {
        fprintf(stderr, "bulk_ceiling: %s\n", err->message);
        exit(1);
    }
}

static int longer_first(const void *left, const void *right)
{
    const struct text *a = left, *b = right;
    return a->length > b->length ? -1 : a->length < b->length;
}

static void tokenize(const struct model *model, char *bytes, size_t length)
{
    struct err err;
    size_t room = 0;
    for (char *line = bytes, *end = bytes + length; line < end;) {
        char *feed = memchr(line, '\n', (size_t)(end - line));
        size_t size = (size_t)((feed == NULL ? end : feed) - line);
        if (text_count == room) {
            room = room == 0 ? 65536 : 2 * room;
            texts = realloc(texts, room * sizeof *texts);
        }
        int32_t *ids = malloc(model->max_tokens * sizeof *ids);
        bool truncated;
        must(tokenizer_encode(model->tokenizer, line, size, model->max_tokens, ids, &texts[text_count].length,
                              &truncated, &err),
             &err);
        texts[text_count].ids = realloc(ids, texts[text_count].length * sizeof *ids);
        text_count++;
        line += size + 1;
    }
    qsort(texts, text_count, sizeof *texts, longer_first);
}

/* Takes the next rows of the sorted texts; 0 at the end. */
static uint32_t take_batch(const struct text **first)
{
    uint32_t rows = 0, tokens = 0;
    pthread_mutex_lock(&taking);
    size_t at = atomic_load(&next_text);
    *first = texts + at;
    while (at + rows < text_count && rows < BATCH_ROWS &&
           (rows == 0 || tokens + texts[at + rows].length <= batch_tokens)) {
        tokens += texts[at + rows++].length;
    }
    atomic_store(&next_text, at + rows);
    pthread_mutex_unlock(&taking);
    return rows;
}

static void *run(void *argument)
{
    struct encoder *encoder = argument;
    struct err err;
    const struct text *first;
    static _Thread_local uint32_t start[BATCH_ROWS], length[BATCH_ROWS];
    int32_t *ids = malloc((batch_tokens + 65536) * sizeof *ids);
    float *output = malloc((size_t)BATCH_ROWS * 8192 * sizeof *output);
    for (uint32_t rows; (rows = take_batch(&first)) > 0;) {
        uint32_t at = 0;
        for (uint32_t i = 0; i < rows; i++) {
            start[i] = at;
            length[i] = first[i].length;
            memcpy(ids + at, first[i].ids, first[i].length * sizeof *ids);
            at += first[i].length;
        }
        struct engine_batch batch = {
            .rows = rows, .extent = at, .ids = ids, .start = start, .length = length, .output = output};
        must(encoder_run(encoder, &batch, &err), &err);
    }
    free(ids);
    free(output);
    return NULL;
}

static double processor_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / (double)NS_PER_S;
}

int main(int argc, char **argv)
{
    struct model *model;
    struct engine *engine;
    struct err err;
    struct buffer file = {0};
    pthread_t threads[64];
    struct encoder *encoders[64];
    if (argc != 5) { return 2; }
    unsigned count = (unsigned)strtoul(argv[3], NULL, 10);
    batch_tokens = (uint32_t)strtoul(argv[4], NULL, 10);
    must(model_open(argv[1], NULL, &model, &err), &err);
    struct engine_options options = {.backend = "cpu"};
    must(engine_open(model, &options, &engine, &err), &err);
    must(file_read(argv[2], (size_t)1 << 33, &file, &err), &err);
    tokenize(model, file.data, file.length);
    for (unsigned i = 0; i < count; i++) { must(encoder_open(engine, &encoders[i], &err), &err); }
    double before = processor_seconds();
    uint64_t started_ns = clock_now_ns();
    for (unsigned i = 0; i < count; i++) { pthread_create(&threads[i], NULL, run, encoders[i]); }
    for (unsigned i = 0; i < count; i++) { pthread_join(threads[i], NULL); }
    double seconds = (double)(clock_now_ns() - started_ns) / (double)NS_PER_S;
    printf("%.1f %.3f\n", (double)text_count / seconds, processor_seconds() - before);
    return 0;
}
