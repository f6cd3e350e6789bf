/* Cuts the rows of a batch into attention's tiles (host code).
 *
 * A tile's time grows with its row's length in steps of 64 keys. So a counting sort orders rows by that number of
 * steps, longest first, without scratch memory. Short rows follow, those with two strips before those with one, packed
 * across tiles. */
#include "kernels/kernels.h"

enum {
    TILE_QUERIES = KERNEL_STRIP_QUERIES * KERNEL_TILE_STRIPS,
    CLASSES = 64, /* of row lengths, 64 tokens each; the last one has all longer rows */
};

static uint32_t row_tiles(uint32_t length)
{
    return length / TILE_QUERIES + (length % TILE_QUERIES != 0);
}

static uint32_t class_of(uint32_t length)
{
    const uint32_t tiles = row_tiles(length);
    return tiles < CLASSES ? tiles : CLASSES - 1;
}

uint32_t kernel_tiles_bound(uint32_t tokens, uint32_t rows)
{
    return tokens / TILE_QUERIES + rows + 1;
}

/* Sets the index of the first tile of each class, longest first; returns the number of tiles. */
static uint32_t place_classes(const uint32_t *length, uint32_t rows, uint32_t *place)
{
    uint32_t wanted[CLASSES] = {0};
    for (uint32_t r = 0; r < rows; r++) {
        if (length[r] > KERNEL_SHORT_ROW) { wanted[class_of(length[r])] += row_tiles(length[r]); }
    }
    uint32_t next = 0;
    for (uint32_t c = CLASSES; c-- > 0;) {
        place[c] = next;
        next += wanted[c];
    }
    return next;
}

static void strip_set(struct kernel_strip *strip, uint32_t row, uint32_t first, uint32_t start, uint32_t length)
{
    strip->row = row;
    strip->first = first;
    strip->start = start;
    strip->length = length;
}

/* The tiles of one long row. */
static void fill_row(uint32_t row, uint32_t start, uint32_t length, struct kernel_tile *tiles)
{
    for (uint32_t t = 0; t < row_tiles(length); t++) {
        for (uint32_t s = 0; s < KERNEL_TILE_STRIPS; s++) {
            strip_set(&tiles[t].strips[s], row, t * TILE_QUERIES + s * KERNEL_STRIP_QUERIES, start, length);
        }
    }
}

/* Appends the strips of short rows that have `strips` each; returns the new count. */
static uint32_t fill_short(const uint32_t *start, const uint32_t *length, uint32_t rows, uint32_t strips,
                           struct kernel_tile *tiles, uint32_t filled)
{
    for (uint32_t r = 0; r < rows; r++) {
        if (length[r] > strips * KERNEL_STRIP_QUERIES || length[r] <= (strips - 1) * KERNEL_STRIP_QUERIES) { continue; }
        for (uint32_t s = 0; s < strips; s++, filled++) {
            strip_set(&tiles[filled / KERNEL_TILE_STRIPS].strips[filled % KERNEL_TILE_STRIPS], r,
                      s * KERNEL_STRIP_QUERIES, start[r], length[r]);
        }
    }
    return filled;
}

uint32_t kernel_tiles_fill(const uint32_t *start, const uint32_t *length, uint32_t rows, struct kernel_tile *tiles)
{
    uint32_t place[CLASSES];
    const uint32_t whole = place_classes(length, rows, place);
    for (uint32_t r = 0; r < rows; r++) {
        if (length[r] <= KERNEL_SHORT_ROW) { continue; }
        uint32_t *const next = &place[class_of(length[r])];
        fill_row(r, start[r], length[r], tiles + *next);
        *next += row_tiles(length[r]);
    }
    uint32_t filled = 0;
    for (uint32_t strips = KERNEL_SHORT_ROW / KERNEL_STRIP_QUERIES; strips > 0; strips--) {
        filled = fill_short(start, length, rows, strips, tiles + whole, filled);
    }
    for (; filled % KERNEL_TILE_STRIPS != 0; filled++) {
        strip_set(&tiles[whole + filled / KERNEL_TILE_STRIPS].strips[filled % KERNEL_TILE_STRIPS], 0, 0, 0, 0);
    }
    return whole + filled / KERNEL_TILE_STRIPS;
}
