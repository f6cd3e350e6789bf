/* A job is checked as it is read, because a driver that reads beyond its own input finds faults that are not there. */
#include "gpu_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    const char *path;
    const int32_t *at, *end;
};

struct texts {
    uint32_t count;
    const int32_t *length;
    const int32_t **ids;
};

static void refuse(const char *path, const char *why)
{
    fprintf(stderr, "gpu_check: %s: %s\n", path, why);
    exit(2);
}

static void *need(size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size);
    if (memory == NULL) { refuse("job", "no memory"); }
    return memory;
}

/* `count` numbers, none of them negative. */
static const int32_t *take(struct reader *reader, uint64_t count)
{
    const int32_t *from = reader->at;
    if (count > (uint64_t)(reader->end - reader->at)) { refuse(reader->path, "ends too early"); }
    for (uint64_t i = 0; i < count; i++) {
        if (from[i] < 0) { refuse(reader->path, "holds a negative number"); }
    }
    reader->at += count;
    return from;
}

static uint32_t take_one(struct reader *reader)
{
    return (uint32_t)*take(reader, 1);
}

static struct texts read_texts(struct reader *reader)
{
    struct texts texts = {.count = take_one(reader)};
    texts.length = take(reader, texts.count);
    texts.ids = need(texts.count, sizeof *texts.ids);
    for (uint32_t i = 0; i < texts.count; i++) { texts.ids[i] = take(reader, (uint64_t)texts.length[i]); }
    return texts;
}

static uint32_t longest_of(const struct texts *texts, const int32_t *which, uint32_t rows)
{
    int32_t longest = 0;
    for (uint32_t r = 0; r < rows; r++) {
        longest = texts->length[which[r]] > longest ? texts->length[which[r]] : longest;
    }
    return (uint32_t)longest;
}

/* One batch; its output comes later, when all of them are known. */
static struct engine_batch read_batch(struct reader *reader, const struct texts *texts, struct gpu_rows *own)
{
    bool padded = take_one(reader) != 0;
    uint32_t rows = take_one(reader);
    const int32_t *which = take(reader, rows);
    for (uint32_t r = 0; r < rows; r++) {
        if ((uint32_t)which[r] >= texts->count) { refuse(reader->path, "names a text that is not there"); }
    }
    uint32_t longest = longest_of(texts, which, rows);
    uint32_t extent = 0;
    own->start = need(rows, sizeof *own->start);
    own->length = need(rows, sizeof *own->length);
    for (uint32_t r = 0; r < rows; r++) {
        own->start[r] = extent;
        own->length[r] = (uint32_t)texts->length[which[r]];
        extent += padded ? longest : own->length[r];
    }
    own->ids = need(extent, sizeof *own->ids);
    for (uint32_t r = 0; r < rows; r++) {
        memcpy(own->ids + own->start[r], texts->ids[which[r]], own->length[r] * sizeof *own->ids);
    }
    return (struct engine_batch){
        .rows = rows, .extent = extent, .ids = own->ids, .start = own->start, .length = own->length};
}

static void read_load(struct gpu_job *job, struct gpu_load *load, struct reader *reader, const struct texts *texts)
{
    load->batches = take_one(reader);
    load->batch = need(load->batches, sizeof *load->batch);
    load->own = need(load->batches, sizeof *load->own);
    for (uint32_t b = 0; b < load->batches; b++) {
        struct engine_batch *batch = &load->batch[b];
        *batch = read_batch(reader, texts, &load->own[b]);
        load->rows += batch->rows;
        for (uint32_t r = 0; r < batch->rows; r++) { load->tokens += batch->length[r]; }
        job->most_rows = batch->rows > job->most_rows ? batch->rows : job->most_rows;
        job->most_tokens = batch->extent > job->most_tokens ? batch->extent : job->most_tokens;
    }
}

static void give_outputs(struct gpu_job *job, uint32_t dim)
{
    for (uint32_t l = 0; l < job->loads; l++) { job->output_floats += (size_t)job->load[l].rows * dim; }
    job->output = need(job->output_floats, sizeof *job->output);
    float *to = job->output;
    for (uint32_t l = 0; l < job->loads; l++) {
        for (uint32_t b = 0; b < job->load[l].batches; b++) {
            job->load[l].batch[b].output = to;
            to += (size_t)job->load[l].batch[b].rows * dim;
        }
    }
}

static void *read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) { refuse(path, "cannot be read"); }
    long size = ftell(file);
    rewind(file);
    void *data = need((size_t)size + sizeof(int32_t), 1);
    if (size < 0 || fread(data, 1, (size_t)size, file) != (size_t)size) { refuse(path, "cannot be read"); }
    fclose(file);
    *bytes = (size_t)size;
    return data;
}

struct gpu_job *gpu_job_read(const char *path, uint32_t dim)
{
    size_t bytes;
    int32_t *numbers = read_file(path, &bytes);
    struct reader reader = {path, numbers, numbers + bytes / sizeof *numbers};
    struct texts texts = read_texts(&reader);
    struct gpu_job *job = need(1, sizeof *job);
    job->loads = take_one(&reader);
    job->load = need(job->loads, sizeof *job->load);
    for (uint32_t l = 0; l < job->loads; l++) { read_load(job, &job->load[l], &reader, &texts); }
    if (reader.at != reader.end) { refuse(path, "goes on after its last load"); }
    give_outputs(job, dim);
    free(texts.ids);
    free(numbers);
    return job;
}

void gpu_job_free(struct gpu_job *job)
{
    for (uint32_t l = 0; l < job->loads; l++) {
        for (uint32_t b = 0; b < job->load[l].batches; b++) {
            struct gpu_rows *rows = &job->load[l].own[b];
            free(rows->ids);
            free(rows->start);
            free(rows->length);
        }
        free(job->load[l].own);
        free(job->load[l].batch);
    }
    free(job->load);
    free(job->output);
    free(job);
}
