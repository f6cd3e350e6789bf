/* Cuts the rows of a batch into attention's tiles (host code).
 *
 * A tile's time grows with its row's length in steps of 64 keys. So a counting sort orders rows by that number of
 * steps, longest first, without scratch memory: first the rows with spans, then the others with tiles of their own.
 * Short rows follow, those with two strips before those with one, packed across tiles. */
#include "kernels/kernels.h"

enum {
    TILE_QUERIES = KERNEL_STRIP_QUERIES * KERNEL_TILE_STRIPS,
    CLASSES = 64, /* of row lengths, 64 tokens each; the last one has all longer rows */
};

enum row_kind { ROW_SPANS, ROW_TILES, ROW_STRIPS };

static enum row_kind kind_of(uint32_t length, struct kernel_span span)
{
    if (span.queries > 0 && length > span.above) { return ROW_SPANS; }
    return length > KERNEL_SHORT_ROW ? ROW_TILES : ROW_STRIPS;
}

static uint32_t parts_of(uint32_t length, uint32_t queries)
{
    return length / queries + (length % queries != 0);
}

static uint32_t class_of(uint32_t length)
{
    const uint32_t steps = parts_of(length, TILE_QUERIES);
    return steps < CLASSES ? steps : CLASSES - 1;
}

uint32_t kernel_tiles_bound(uint32_t tokens, uint32_t rows)
{
    return tokens / TILE_QUERIES + rows + 1;
}

static void strip_set(struct kernel_strip *strip, uint32_t row, uint32_t first, uint32_t start, uint32_t length)
{
    strip->row = row;
    strip->first = first;
    strip->start = start;
    strip->length = length;
}

/* The tiles or spans of one row. */
static void fill_row(uint32_t row, uint32_t start, uint32_t length, uint32_t queries, struct kernel_tile *tiles)
{
    for (uint32_t t = 0; t < parts_of(length, queries); t++) {
        for (uint32_t s = 0; s < KERNEL_TILE_STRIPS; s++) {
            strip_set(&tiles[t].strips[s], row, t * queries + s * KERNEL_STRIP_QUERIES, start, length);
        }
    }
}

/* Those of all rows of a kind; returns their number. */
static uint32_t fill_kind(enum row_kind kind, const uint32_t *start, const uint32_t *length, uint32_t rows,
                          struct kernel_span span, struct kernel_tile *tiles)
{
    const uint32_t queries = kind == ROW_SPANS ? span.queries : TILE_QUERIES;
    uint32_t wanted[CLASSES] = {0}, place[CLASSES], next = 0;
    for (uint32_t r = 0; r < rows; r++) {
        if (kind_of(length[r], span) == kind) { wanted[class_of(length[r])] += parts_of(length[r], queries); }
    }
    for (uint32_t c = CLASSES; c-- > 0;) {
        place[c] = next;
        next += wanted[c];
    }
    for (uint32_t r = 0; r < rows; r++) {
        if (kind_of(length[r], span) != kind) { continue; }
        uint32_t *const at = &place[class_of(length[r])];
        fill_row(r, start[r], length[r], queries, tiles + *at);
        *at += parts_of(length[r], queries);
    }
    return next;
}

/* Appends the strips of short rows that have `strips` each; returns the new count. */
static uint32_t fill_short(const uint32_t *start, const uint32_t *length, uint32_t rows, struct kernel_span span,
                           uint32_t strips, struct kernel_tile *tiles, uint32_t filled)
{
    for (uint32_t r = 0; r < rows; r++) {
        if (kind_of(length[r], span) != ROW_STRIPS || parts_of(length[r], KERNEL_STRIP_QUERIES) != strips) { continue; }
        for (uint32_t s = 0; s < strips; s++, filled++) {
            strip_set(&tiles[filled / KERNEL_TILE_STRIPS].strips[filled % KERNEL_TILE_STRIPS], r,
                      s * KERNEL_STRIP_QUERIES, start[r], length[r]);
        }
    }
    return filled;
}

uint32_t kernel_spans_fill(const uint32_t *start, const uint32_t *length, uint32_t rows, struct kernel_span span,
                           struct kernel_tile *tiles, uint32_t *spans)
{
    *spans = fill_kind(ROW_SPANS, start, length, rows, span, tiles);
    const uint32_t whole = *spans + fill_kind(ROW_TILES, start, length, rows, span, tiles + *spans);
    uint32_t filled = 0;
    for (uint32_t strips = KERNEL_SHORT_ROW / KERNEL_STRIP_QUERIES; strips > 0; strips--) {
        filled = fill_short(start, length, rows, span, strips, tiles + whole, filled);
    }
    for (; filled % KERNEL_TILE_STRIPS != 0; filled++) {
        strip_set(&tiles[whole + filled / KERNEL_TILE_STRIPS].strips[filled % KERNEL_TILE_STRIPS], 0, 0, 0, 0);
    }
    return whole + filled / KERNEL_TILE_STRIPS;
}
