#include "bench/passes.h"

#include <stdlib.h>

#include "base/clock.h"

struct lane {
    struct encoder *encoder;
    struct engine_batch batch;
};

enum status passes_open(struct passes *passes, struct engine *engine, const struct model *model,
                        const uint32_t *lengths, uint32_t rows, bool padded, struct err *err)
{
    size_t extent = 0, longest = 0;
    for (uint32_t row = 0; row < rows; row++) {
        extent += lengths[row];
        longest = lengths[row] > longest ? lengths[row] : longest;
    }
    extent = padded ? longest * rows : extent;
    int32_t *ids = malloc((extent + 2 * (size_t)rows) * sizeof *ids);
    *passes = (struct passes){.engine = engine, .model = model, .ids = ids};
    if (ids == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for a batch of %zu tokens", extent);
    uint32_t *start = (uint32_t *)(ids + extent), *length = start + rows, at = 0;
    for (size_t i = 0; i < extent; i++)
        ids[i] = (int32_t)((i + 1) * 2654435761u % model->vocabulary);
    for (uint32_t row = 0; row < rows; row++) {
        start[row] = at;
        length[row] = lengths[row];
        at += padded ? (uint32_t)longest : lengths[row];
    }
    passes->batch = (struct engine_batch){rows, (uint32_t)extent, ids, start, length, NULL};
    return STATUS_OK;
}

enum status passes_open_even(struct passes *passes, struct engine *engine, const struct model *model, uint32_t rows,
                             uint32_t length, struct err *err)
{
    uint32_t *lengths = malloc(rows * sizeof *lengths);
    *passes = (struct passes){0};
    if (lengths == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for %u lengths", rows);
    for (uint32_t row = 0; row < rows; row++)
        lengths[row] = length;
    enum status status = passes_open(passes, engine, model, lengths, rows, false, err);
    free(lengths);
    return status;
}

void passes_close(struct passes *passes)
{
    free(passes->ids);
}

static enum status open(void *context, void **out, struct err *err)
{
    struct passes *passes = context;
    struct lane *lane = calloc(1, sizeof *lane);
    *out = lane;
    if (lane == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for an encoder");
    lane->batch = passes->batch;
    lane->batch.output = malloc((size_t)passes->batch.rows * passes->model->dim * sizeof(float));
    if (lane->batch.output == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for %u vectors", passes->batch.rows);
    TRY(encoder_open(passes->engine, &lane->encoder, err));
    return passes->parallel == NULL ? STATUS_OK : encoder_join(lane->encoder, passes->parallel, err);
}

/* What the vectors are does not matter here, so they may be not finite. */
static enum status pass(struct lane *lane, const struct engine_batch *batch, struct err *err)
{
    enum status status = encoder_run(lane->encoder, batch, err);
    return status == STATUS_NON_FINITE ? STATUS_OK : status;
}

static enum status turn(void *state, struct err *err)
{
    struct lane *lane = state;
    return pass(lane, &lane->batch, err);
}

static enum status turn_one_by_one(void *state, struct err *err)
{
    struct lane *lane = state;
    const uint32_t start = 0;
    for (uint32_t row = 0; row < lane->batch.rows; row++) {
        struct engine_batch one = {.rows = 1,
                                   .extent = lane->batch.length[row],
                                   .ids = lane->batch.ids + lane->batch.start[row],
                                   .start = &start,
                                   .length = &lane->batch.length[row],
                                   .output = lane->batch.output};
        TRY(pass(lane, &one, err));
    }
    return STATUS_OK;
}

static void close(void *state)
{
    struct lane *lane = state;
    if (lane == NULL)
        return;
    encoder_close(lane->encoder);
    free(lane->batch.output);
    free(lane);
}

struct turns passes_turns(struct passes *passes)
{
    return (struct turns){open, turn, close, passes};
}

struct turns passes_turns_one_by_one(struct passes *passes)
{
    return (struct turns){open, turn_one_by_one, close, passes};
}

enum status passes_time(struct passes *passes, uint64_t for_ns, unsigned times, struct sample *took_ms,
                        struct sample *cpu_ms, struct err *err)
{
    void *lane = NULL;
    enum status status = open(passes, &lane, err);
    if (status == STATUS_OK)
        status = turn(lane, err); /* to warm up */
    uint64_t now = clock_now_ns(), ends = now + for_ns;
    for (unsigned count = 0; status == STATUS_OK && (now < ends || count < times); count++) {
        uint64_t begin = now, begin_cpu = clock_thread_ns();
        status = turn(lane, err);
        sample_add(cpu_ms, (double)(clock_thread_ns() - begin_cpu) / NS_PER_MS);
        now = clock_now_ns();
        sample_add(took_ms, (double)(now - begin) / NS_PER_MS);
    }
    close(lane);
    if (status == STATUS_OK && (took_ms->broken || cpu_ms->broken))
        status = err_set(err, STATUS_NO_MEMORY, "no memory for the times of passes");
    return status;
}
