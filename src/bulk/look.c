#include "bulk/look.h"

#include <stdlib.h>
#include <string.h>

void look_push(struct look *window, struct slice *slice)
{
    slice->next = NULL;
    if (window->last == NULL)
        window->first = slice;
    else
        window->last->next = slice;
    window->last = slice;
}

static uint32_t count_units(const struct look *window, bool chunks)
{
    uint32_t units = 0;
    for (const struct slice *slice = window->first; slice != NULL; slice = slice->next)
        for (uint32_t d = 0; d < slice->count; d++) {
            uint32_t pieces = slice->first_piece[d + 1] - slice->first_piece[d];
            units += chunks && pieces > 1 ? pieces : 1;
        }
    return units;
}

/* One unit: `count` pieces from `first` on; none of a failed document. */
static void add_unit(struct look *window, uint64_t number, const struct document *document, uint32_t chunk,
                     struct piece *first, uint32_t count)
{
    struct unit *unit = &window->units[window->unit_count++];
    *unit = (struct unit){.number = number, .document = document, .chunk = chunk};
    unit->pieces = first;
    unit->piece_count = unit->pieces_left = count;
    unit->code = document->code;
    unit->state = count == 0 ? UNIT_FAILED : UNIT_TODO;
    unit->hash = count == 1 ? first->hash : document->hash;
    for (uint32_t i = 0; i < count; i++)
        first[i].unit = unit;
}

enum status look_count(struct look *window, uint64_t first_row, enum numbering numbering, struct err *err)
{
    bool chunks = numbering != NUMBER_DOCUMENTS;
    uint32_t units = count_units(window, chunks);
    if (units > window->unit_room) {
        free(window->units);
        window->units = malloc(units * sizeof *window->units);
        window->unit_room = window->units == NULL ? 0 : units;
        if (window->units == NULL)
            return err_set(err, STATUS_NO_MEMORY, "no memory for %u rows", units);
    }
    window->unit_count = 0;
    for (struct slice *slice = window->first; slice != NULL; slice = slice->next)
        for (uint32_t d = 0; d < slice->count; d++) {
            const struct document *document = &slice->documents[d];
            struct piece *first = slice->pieces + slice->first_piece[d];
            uint32_t pieces = slice->first_piece[d + 1] - slice->first_piece[d];
            bool apart = chunks && pieces > 1;
            uint64_t number = numbering == NUMBER_DOCUMENTS ? document->number
                              : numbering == NUMBER_CHUNKS  ? first_row + window->unit_count
                                                            : document->first_row;
            for (uint32_t c = 0; c < (apart ? pieces : 1); c++)
                add_unit(window, number + c, document, c, first + c, apart ? 1 : pieces);
        }
    return STATUS_OK;
}

static uint32_t weight(const struct piece *piece)
{
    return piece->row.tokens > 0 ? piece->row.tokens : piece->row.text_bytes;
}

/* Longest first; of one length as they were read. */
static int longer_first(const void *left, const void *right)
{
    const struct piece *a = *(struct piece *const *)left, *b = *(struct piece *const *)right;
    if (weight(a) != weight(b))
        return weight(a) > weight(b) ? -1 : 1;
    return a->unit->number < b->unit->number ? -1 : a->unit->number > b->unit->number ? 1 : a < b ? -1 : a > b;
}

static enum status make_room(struct look *window, uint32_t pieces, struct err *err)
{
    if (pieces <= window->order_room)
        return STATUS_OK;
    free(window->order);
    window->order = malloc(pieces * sizeof *window->order);
    window->order_room = window->order == NULL ? 0 : pieces;
    return window->order == NULL ? err_set(err, STATUS_NO_MEMORY, "no memory to sort %u texts", pieces) : STATUS_OK;
}

enum status look_order(struct look *window, uint32_t dim, struct err *err)
{
    uint32_t pieces = 0;
    for (uint32_t i = 0; i < window->unit_count; i++)
        pieces += window->units[i].state == UNIT_TODO ? window->units[i].piece_count : 0;
    TRY(make_room(window, pieces, err));
    window->order_count = 0;
    for (uint32_t i = 0; i < window->unit_count; i++) {
        struct unit *unit = &window->units[i];
        if (unit->state != UNIT_TODO)
            continue;
        for (uint32_t p = 0; p < unit->piece_count; p++)
            window->order[window->order_count++] = &unit->pieces[p];
        if (unit->piece_count > 1 && (unit->parts = malloc((size_t)unit->piece_count * dim * sizeof(float))) == NULL)
            return err_set(err, STATUS_NO_MEMORY, "no memory for the chunks of a text");
    }
    if (pieces > 0)
        qsort(window->order, pieces, sizeof *window->order, longer_first);
    return STATUS_OK;
}

uint32_t look_batch(struct piece *const *pieces, uint32_t count, uint32_t most_tokens, uint32_t most_rows)
{
    uint32_t taken = 1;
    uint64_t tokens = weight(pieces[0]);
    while (taken < count && taken < most_rows && tokens + weight(pieces[taken]) <= most_tokens)
        tokens += weight(pieces[taken++]);
    return taken;
}

uint64_t look_weight(struct piece *const *pieces, uint32_t count)
{
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < count; i++)
        tokens += weight(pieces[i]);
    return tokens;
}

static void free_parts(struct look *window)
{
    for (uint32_t i = 0; i < window->unit_count; i++)
        free(window->units[i].parts);
    window->unit_count = 0;
}

void look_reset(struct look *window, struct slice **idle)
{
    free_parts(window);
    while (window->first != NULL) {
        struct slice *slice = window->first;
        window->first = slice->next;
        slice_reset(slice);
        slice->next = *idle;
        *idle = slice;
    }
    free(window->vectors);
    *window = (struct look){.units = window->units,
                            .unit_room = window->unit_room,
                            .order = window->order,
                            .order_room = window->order_room};
}

void look_free(struct look *window)
{
    struct slice *slices = NULL;
    look_reset(window, &slices);
    while (slices != NULL) {
        struct slice *slice = slices;
        slices = slice->next;
        slice_free(slice);
    }
    free(window->units);
    free(window->order);
}
