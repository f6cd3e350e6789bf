/* Reads rows of token ids, writes vectors: the side of the golden comparison that is ours.
 *
 * usage: encode_ids DIRECTORY PRECISION < ids > vectors
 *
 * Each row is a count and that many ids, all native int32. Writes the vectors, native f32, of all rows in one batch,
 * then of each row alone. It ends with 77 where the set that SLUICE_ISA names does not run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

enum { MOST_ROWS = 64, MOST_IDS = 64 * 512 };

/* Reads the rows of stdin; row r is [at[r], at[r] + length[r]) of `ids`. Returns their number; ends the process when
 * there is no room for them. */
static uint32_t read_rows(int32_t *ids, uint32_t *at, uint32_t *length)
{
    int32_t count;
    uint32_t rows = 0, end = 0;
    for (; fread(&count, sizeof count, 1, stdin) == 1; rows++) {
        if (rows == MOST_ROWS || count < 0 || (uint32_t)count > MOST_IDS - end ||
            fread(ids + end, sizeof *ids, (size_t)count, stdin) != (size_t)count) {
            abort();
        }
        at[rows] = end;
        length[rows] = (uint32_t)count;
        end += (uint32_t)count;
    }
    return rows;
}

static int fail(const struct err *err)
{
    fprintf(stderr, "encode_ids: %s\n", err->message);
    return 1;
}

static int run(struct encoder *encoder, uint32_t dim)
{
    static int32_t ids[MOST_IDS];
    uint32_t at[MOST_ROWS], length[MOST_ROWS], rows = read_rows(ids, at, length), zero = 0;
    float *output = calloc((size_t)rows + 1, dim * sizeof *output);
    struct err err = {0};
    if (output == NULL || rows == 0) { abort(); }
    struct engine_batch all = {rows, at[rows - 1] + length[rows - 1], ids, at, length, output};
    if (encoder_run(encoder, &all, &err) != STATUS_OK) { return fail(&err); }
    fwrite(output, sizeof(float) * dim, rows, stdout);
    for (uint32_t r = 0; r < rows; r++) {
        struct engine_batch one = {1, length[r], ids + at[r], &zero, &length[r], output};
        if (encoder_run(encoder, &one, &err) != STATUS_OK) { return fail(&err); }
        fwrite(output, sizeof(float) * dim, 1, stdout);
    }
    free(output);
    return ferror(stdin) || fflush(stdout) != 0;
}

/* Returns whether SLUICE_ISA names no instruction set, or one that runs here. */
static bool runs_here(void)
{
    char picked[64];
    const char *named = getenv("SLUICE_ISA");
    engine_instruction_set(picked);
    picked[strcspn(picked, ";")] = '\0';
    return named == NULL || strcmp(picked, named) == 0;
}

int main(int argc, char **argv)
{
    struct err err = {0};
    struct model *model;
    struct engine *engine;
    struct encoder *encoder;
    struct engine_options options = {.backend = "cpu"};
    if (argc != 3) {
        fprintf(stderr, "usage: encode_ids DIRECTORY PRECISION < ids > vectors\n");
        return 2;
    }
    unsigned devices;
    if (precision_parse(argv[2], &options.precision, &err) != STATUS_OK ||
        engine_devices("cpu", options.precision, &devices, &err) != STATUS_OK) { /* no set has the name */
        return fail(&err);
    }
    if (!runs_here()) { return 77; }
    if (model_open(argv[1], &(struct model_options){0}, &model, &err) != STATUS_OK ||
        engine_open(model, &options, &engine, &err) != STATUS_OK || encoder_open(engine, &encoder, &err) != STATUS_OK) {
        return fail(&err);
    }
    model_release_weights(model);
    int code = run(encoder, model->dim);
    encoder_close(encoder);
    engine_close(engine);
    model_close(model);
    return code;
}
