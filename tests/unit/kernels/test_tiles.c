/* The division of attention's work: every query once, long rows first, short ones together. */
#include "harness.h"

#include <stdlib.h>

#include "kernels/kernels.h"

enum { QUERIES = KERNEL_STRIP_QUERIES * KERNEL_TILE_STRIPS };

static const struct kernel_span no_spans = {0, 0};

/* Cuts rows into spans and tiles and checks the rules for all of them; returns their number. `*tiles` is the caller's
 * to free. */
static uint32_t cut_spans(const uint32_t *length, uint32_t rows, struct kernel_span span, struct kernel_tile **tiles,
                          uint32_t *spans)
{
    uint32_t tokens = 0, *start = calloc(rows + 1, sizeof *start), *seen = NULL;
    for (uint32_t r = 0; r < rows; r++) {
        start[r] = tokens;
        tokens += length[r];
    }
    seen = calloc(tokens + 1, sizeof *seen);
    const uint32_t bound = kernel_tiles_bound(tokens, rows);
    *tiles = malloc(bound * sizeof **tiles);
    const uint32_t count = kernel_spans_fill(start, length, rows, span, *tiles, spans);
    assert_in_range(count, 0, bound);
    assert_in_range(*spans, 0, count);
    for (uint32_t t = 0; t < *spans; t++) {
        const struct kernel_strip *first = &(*tiles)[t].strips[0];
        assert_true(first->length > span.above && first->first % span.queries == 0);
        assert_int_equal(first->start, start[first->row]);
        assert_int_equal(first->length, length[first->row]);
        for (uint32_t q = first->first; q < first->length && q < first->first + span.queries; q++) {
            seen[first->start + q]++;
        }
    }
    for (uint32_t s = *spans * KERNEL_TILE_STRIPS; s < count * KERNEL_TILE_STRIPS; s++) {
        const struct kernel_strip *first = &(*tiles)[s / KERNEL_TILE_STRIPS].strips[0];
        const struct kernel_strip *strip = &first[s % KERNEL_TILE_STRIPS];
        if (first->length >
            KERNEL_SHORT_ROW) { /* a row's own tile: its strips follow each other, also beyond its end */
            assert_int_equal(strip->row, first->row);
            assert_int_equal(strip->first, first->first + s % KERNEL_TILE_STRIPS * KERNEL_STRIP_QUERIES);
        }
        assert_true(first->length > KERNEL_SHORT_ROW || strip->length <= KERNEL_SHORT_ROW);
        assert_true(span.queries == 0 || strip->length <= span.above);
        if (strip->length == 0) { continue; }
        assert_in_range(strip->row, 0, rows - 1);
        assert_int_equal(strip->start, start[strip->row]);
        assert_int_equal(strip->length, length[strip->row]);
        for (uint32_t q = strip->first; q < strip->length && q < strip->first + KERNEL_STRIP_QUERIES; q++) {
            seen[strip->start + q]++;
        }
    }
    for (uint32_t t = 0; t < tokens; t++) { assert_int_equal(seen[t], 1); }
    free(seen);
    free(start);
    return count;
}

static uint32_t cut(const uint32_t *length, uint32_t rows, struct kernel_tile **tiles)
{
    uint32_t spans;
    const uint32_t count = cut_spans(length, rows, no_spans, tiles, &spans);
    assert_int_equal(spans, 0);
    return count;
}

TEST(every_query_once)
{
    uint64_t seed = 1;
    for (uint32_t round = 0; round < 200; round++) {
        uint32_t length[64];
        const uint32_t rows = round % 64 + 1;
        for (uint32_t r = 0; r < rows; r++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            const uint32_t most = seed >> 62 == 0 ? 5000 : seed >> 62 == 1 ? 130 : 40;
            length[r] = (uint32_t)(seed >> 33) % most + 1;
        }
        struct kernel_tile *tiles = NULL;
        cut(length, rows, &tiles);
        free(tiles);
        for (uint32_t above = 0; above <= 128; above += 64) {
            uint32_t spans;
            cut_spans(length, rows, (struct kernel_span){128 + above, above}, &tiles, &spans);
            free(tiles);
        }
    }
}

TEST(every_length)
{
    for (uint32_t length = 1; length <= 1100; length++) {
        struct kernel_tile *tiles = NULL;
        const uint32_t count = cut(&length, 1, &tiles);
        assert_int_equal(count, (length + QUERIES - 1) / QUERIES);
        free(tiles);
    }
}

TEST(short_rows_share_tiles)
{
    const uint32_t sixteen[] = {16, 1, 16, 9, 3}, thirty[] = {32, 17, 30}, mixed[] = {5, 32, 33};
    struct kernel_tile *tiles = NULL;
    assert_int_equal(cut(sixteen, 5, &tiles), 2);
    free(tiles);
    assert_int_equal(cut(thirty, 3, &tiles), 2);
    free(tiles);
    assert_int_equal(cut(mixed, 3, &tiles), 2); /* 33 tokens have a tile of their own */
    assert_int_equal(tiles[0].strips[0].row, 2);
    assert_int_equal(tiles[1].strips[0].row, 1);
    assert_int_equal(tiles[1].strips[2].row, 0);
    assert_int_equal(tiles[1].strips[3].length, 0);
    free(tiles);
}

TEST(long_rows_come_first)
{
    const uint32_t length[] = {100, 40, 6000, 513, 20, 512, 4500, 64, 65};
    struct kernel_tile *tiles = NULL;
    const uint32_t count = cut(length, 9, &tiles);
    uint32_t before = UINT32_MAX;
    for (uint32_t t = 0; t < count; t++) {
        uint32_t steps = (tiles[t].strips[0].length + QUERIES - 1) / QUERIES;
        steps = steps < 63 ? steps : 63; /* longer ones are in no particular order */
        assert_in_range(steps, 0, before);
        before = steps;
    }
    free(tiles);
}

TEST(no_rows_no_tiles)
{
    struct kernel_tile *tiles = NULL;
    assert_int_equal(cut(NULL, 0, &tiles), 0);
    free(tiles);
}
