#include "bulk/dry.h"

#include <string.h>

enum { BATCHES = sizeof((struct dry *)0)->done / sizeof((struct dry *)0)->done[0] };

static bool dry_has_room(const struct executor *executor)
{
    return ((const struct dry *)executor)->done_count < BATCHES;
}

/* Gives each piece zeros. A piece without tokens fails, except in a queue's job, where no piece has token ids. */
static void dry_put(struct executor *executor, struct bulk_batch *batch)
{
    struct dry *dry = (struct dry *)executor;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct piece *piece = batch->pieces[i].piece;
        double tokens = piece->row.tokens;
        memset(piece->vector, 0, batch->dim * sizeof(float));
        if (piece->row.ids && piece->row.tokens == 0) { piece_fail(batch, piece, ROW_NO_TOKENS); }
        batch->tokens += piece->row.tokens;
        dry->tokens += tokens;
        dry->squares += tokens * tokens;
    }
    dry->batches++;
    dry->done[dry->done_count++] = batch;
}

static struct bulk_batch *dry_take(struct executor *executor)
{
    struct dry *dry = (struct dry *)executor;
    return dry->done_count > 0 ? dry->done[--dry->done_count] : NULL;
}

static void dry_close(struct executor *executor)
{
    (void)executor;
}

void dry_open(struct dry *dry)
{
    static const struct executor_ops ops = {dry_has_room, dry_put, dry_take, dry_close};
    *dry = (struct dry){.executor = {&ops, BATCHES}};
}
