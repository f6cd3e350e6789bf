#include "bulk/look.h"

#include <stdlib.h>
#include <string.h>

#include "base/system.h"

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

/* A piece while it is sorted: looking at the piece itself each time would be looking all over memory. */
struct weighed {
    struct piece *piece;
    uint32_t weight;
};

static uint32_t weight(const struct piece *piece)
{
    return piece->row.tokens > 0 ? piece->row.tokens : piece->row.text_bytes;
}

static enum status make_room(struct look *window, uint32_t pieces, uint32_t dim, struct err *err)
{
    size_t floats = (size_t)window->unit_count * dim;
    if (pieces > window->order_room) {
        free(window->order);
        free(window->weights);
        window->order = malloc(pieces * sizeof *window->order);
        window->weights = malloc(pieces * sizeof *window->weights);
        window->order_room = window->order == NULL || window->weights == NULL ? 0 : pieces;
    }
    if (floats > window->vectors_room) {
        free(window->vectors);
        window->vectors = memory_aligned(floats * sizeof *window->vectors);
        window->vectors_room = window->vectors == NULL ? 0 : floats;
    }
    if (pieces > window->order_room || floats > window->vectors_room)
        return err_set(err, STATUS_NO_MEMORY, "no memory to sort %u texts and keep their vectors", pieces);
    return STATUS_OK;
}

/* Where the vectors of a unit's pieces go. */
static enum status place(struct look *window, struct unit *unit, uint32_t dim, struct err *err)
{
    bool several = unit->piece_count > 1;
    if (several && (unit->parts = malloc((size_t)unit->piece_count * dim * sizeof(float))) == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for the chunks of a text");
    float *to = several ? unit->parts : look_vector(window, unit, dim);
    for (uint32_t p = 0; p < unit->piece_count; p++, to += dim)
        unit->pieces[p].vector = to;
    window->several = window->several || several;
    return STATUS_OK;
}

/* One pass of a sort by a byte of the weight, the largest first; those of one byte stay as they are. */
static void sort_pass(const struct weighed *from, struct weighed *to, uint32_t count, int shift)
{
    uint32_t starts[257] = {0};
    for (uint32_t i = 0; i < count; i++)
        starts[256 - (from[i].weight >> shift & 255)]++;
    for (int i = 1; i <= 256; i++)
        starts[i] += starts[i - 1];
    for (uint32_t i = 0; i < count; i++)
        to[starts[255 - (from[i].weight >> shift & 255)]++] = from[i];
}

/* Byte by byte, and only as many as the longest has: texts have hundreds of tokens, or a million bytes. */
static enum status sort(struct look *window, struct err *err)
{
    uint32_t count = window->order_count, most = 0;
    struct weighed *from = malloc((size_t)2 * count * sizeof *from), *to = from == NULL ? NULL : from + count;
    if (from == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory to sort %u texts", count);
    struct weighed *block = from;
    for (uint32_t i = 0; i < count; i++) {
        from[i] = (struct weighed){window->order[i], weight(window->order[i])};
        most = from[i].weight > most ? from[i].weight : most;
    }
    for (int shift = 0; shift < 32 && most >> shift > 0; shift += 8) {
        sort_pass(from, to, count, shift);
        struct weighed *other = from;
        from = to;
        to = other;
    }
    for (uint32_t i = 0; i < count; i++) {
        window->order[i] = from[i].piece;
        window->weights[i] = from[i].weight;
    }
    free(block);
    return STATUS_OK;
}

enum status look_order(struct look *window, uint32_t dim, struct err *err)
{
    uint32_t pieces = 0;
    for (uint32_t i = 0; i < window->unit_count; i++)
        pieces += window->units[i].state == UNIT_TODO ? window->units[i].piece_count : 0;
    TRY(make_room(window, pieces, dim, err));
    window->order_count = 0;
    window->several = false;
    for (uint32_t i = 0; i < window->unit_count; i++) {
        struct unit *unit = &window->units[i];
        if (unit->state != UNIT_TODO)
            continue;
        TRY(place(window, unit, dim, err));
        for (uint32_t p = 0; p < unit->piece_count; p++)
            window->order[window->order_count++] = &unit->pieces[p];
    }
    return pieces > 0 ? sort(window, err) : STATUS_OK;
}

uint32_t look_batch(const struct look *window, uint32_t first, uint32_t count, uint32_t most_weight, uint32_t most_rows)
{
    const uint32_t *weights = window->weights + first;
    uint32_t taken = 1;
    uint64_t sum = weights[0];
    while (taken < count && taken < most_rows && sum + weights[taken] <= most_weight)
        sum += weights[taken++];
    return taken;
}

uint64_t look_weight(const struct look *window, uint32_t first, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = first; i < first + count; i++)
        sum += window->weights[i];
    return sum;
}

enum status look_computed(struct look *window, uint32_t first, uint32_t count, struct err *err)
{
    if (window->computed_count == window->computed_room) {
        uint32_t room = window->computed_room == 0 ? 256 : 2 * window->computed_room;
        struct look_range *bigger = realloc(window->computed, room * sizeof *bigger);
        if (bigger == NULL)
            return err_set(err, STATUS_NO_MEMORY, "no memory to remember %u texts", count);
        window->computed = bigger;
        window->computed_room = room;
    }
    window->computed[window->computed_count++] = (struct look_range){first, count};
    return STATUS_OK;
}

uint32_t look_note(struct look *window)
{
    uint32_t complete = 0;
    for (uint32_t r = 0; r < window->computed_count; r++)
        for (uint32_t i = 0; i < window->computed[r].count; i++)
            complete += --window->order[window->computed[r].first + i]->unit->pieces_left == 0;
    window->computed_count = 0;
    return complete;
}

float *look_vector(const struct look *window, const struct unit *unit, uint32_t dim)
{
    return window->vectors + (size_t)(unit - window->units) * dim;
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
    *window = (struct look){.units = window->units,
                            .unit_room = window->unit_room,
                            .order = window->order,
                            .weights = window->weights,
                            .order_room = window->order_room,
                            .computed = window->computed,
                            .computed_room = window->computed_room,
                            .vectors = window->vectors,
                            .vectors_room = window->vectors_room};
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
    free(window->weights);
    free(window->computed);
    free(window->vectors);
}
