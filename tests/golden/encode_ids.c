/* Reads rows of token ids, writes vectors: the side of the golden comparison that is ours.
 *
 * usage: encode_ids DIRECTORY PRECISION ROWS < ids > vectors
 * Each row is a count and that many ids, all native int32; ROWS rows at a time are packed into a batch. Vectors are
 * native f32. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

struct rows {
    struct engine_batch batch;
    uint32_t room; /* in ids */
    int32_t *ids;
    uint32_t *start, *length;
};

static int fail(const struct err *err)
{
    fprintf(stderr, "encode_ids: %s\n", err->message);
    return 1;
}

/* Appends one row from stdin; false at its end. */
static bool read_row(struct rows *rows, uint32_t at)
{
    int32_t count;
    if (fread(&count, sizeof count, 1, stdin) != 1)
        return false;
    uint32_t needed = rows->batch.extent + (uint32_t)count;
    if (needed > rows->room) {
        rows->room = 2 * needed;
        rows->ids = realloc(rows->ids, rows->room * sizeof *rows->ids);
        if (rows->ids == NULL)
            abort();
    }
    if (fread(rows->ids + rows->batch.extent, sizeof *rows->ids, (size_t)count, stdin) != (size_t)count)
        abort();
    rows->start[at] = rows->batch.extent;
    rows->length[at] = (uint32_t)count;
    rows->batch.extent = needed;
    return true;
}

static int run(struct encoder *encoder, uint32_t most, uint32_t dim)
{
    struct rows rows = {.start = calloc(most, sizeof(uint32_t)), .length = calloc(most, sizeof(uint32_t))};
    struct err err = {0};
    rows.batch.output = calloc((size_t)most * dim, sizeof(float));
    if (rows.start == NULL || rows.length == NULL || rows.batch.output == NULL)
        abort();
    for (bool more = true; more;) {
        rows.batch.rows = rows.batch.extent = 0;
        while (rows.batch.rows < most && (more = read_row(&rows, rows.batch.rows)))
            rows.batch.rows++;
        rows.batch.ids = rows.ids;
        rows.batch.start = rows.start;
        rows.batch.length = rows.length;
        if (encoder_run(encoder, &rows.batch, &err) != STATUS_OK)
            return fail(&err);
        fwrite(rows.batch.output, sizeof(float) * dim, rows.batch.rows, stdout);
    }
    free(rows.ids);
    free(rows.start);
    free(rows.length);
    free(rows.batch.output);
    return ferror(stdin) || fflush(stdout) != 0;
}

int main(int argc, char **argv)
{
    struct err err = {0};
    struct model *model;
    struct engine *engine;
    struct encoder *encoder;
    struct engine_options options = {.backend = "cpu"};
    if (argc != 4) {
        fprintf(stderr, "usage: encode_ids DIRECTORY PRECISION ROWS < ids > vectors\n");
        return 2;
    }
    if (precision_parse(argv[2], &options.precision, &err) != STATUS_OK ||
        model_open(argv[1], &(struct model_options){0}, &model, &err) != STATUS_OK)
        return fail(&err);
    enum status status = engine_open(model, &options, &engine, &err);
    if (status == STATUS_UNSUPPORTED) {
        fprintf(stderr, "encode_ids: %s\n", err.message);
        return 77; /* the caller decides whether this machine should have been able to */
    }
    if (status != STATUS_OK || encoder_open(engine, &encoder, &err) != STATUS_OK)
        return fail(&err);
    model_release_weights(model);
    int code = run(encoder, (uint32_t)strtoul(argv[3], NULL, 10), model->dim);
    encoder_close(encoder);
    engine_close(engine);
    model_close(model);
    return code;
}
