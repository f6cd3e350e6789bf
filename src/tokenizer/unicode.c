/* Binary search in the tables: the hot path uses a normalizer's own table first and comes here for rare characters. */
#include "tokenizer/unicode.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

const struct unicode_range *unicode_lookup(uint32_t code_point)
{
    uint32_t low = 0, high = unicode_range_count; /* ranges[low].first <= code_point < ranges[high].first */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (unicode_ranges[middle].first <= code_point) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &unicode_ranges[low];
}

/* Writes the characters that a character becomes and returns their number; 0 if the table does not have it. */
static size_t map_character(const struct unicode_mapping *mappings, uint32_t count, const uint32_t *targets,
                            uint32_t code_point, uint32_t *to)
{
    uint32_t low = 0, high = count; /* mappings[low].from <= code_point < mappings[high].from, if any is */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (mappings[middle].from <= code_point) {
            low = middle;
        } else {
            high = middle;
        }
    }
    const struct unicode_mapping *found = &mappings[low];
    if (code_point - found->from >= found->run) { return 0; }
    memcpy(to, targets + found->at + (code_point - found->from) * found->count, found->count * sizeof *to);
    return found->count;
}

static size_t keep_character(uint32_t code_point, uint32_t *to)
{
    to[0] = code_point;
    return 1;
}

/* Source: The Unicode Standard, section 3.12 (a Hangul syllable's letters follow from its number). */
enum { HANGUL = 0xAC00, HANGUL_COUNT = 11172, HANGUL_L = 0x1100, HANGUL_V = 0x1161, HANGUL_T = 0x11A7 };
enum { L_COUNT = 19, V_COUNT = 21, T_COUNT = 28 };

static size_t decompose_hangul(uint32_t index, uint32_t *to)
{
    to[0] = HANGUL_L + index / (V_COUNT * T_COUNT);
    to[1] = HANGUL_V + index % (V_COUNT * T_COUNT) / T_COUNT;
    to[2] = HANGUL_T + index % T_COUNT;
    return index % T_COUNT == 0 ? 2 : 3;
}

size_t unicode_decompose(uint32_t code_point, uint32_t *to)
{
    if (code_point - HANGUL < HANGUL_COUNT) { return decompose_hangul(code_point - HANGUL, to); }
    size_t count = map_character(unicode_decompositions, unicode_decomposition_count, unicode_decomposition_targets,
                                 code_point, to);
    return count > 0 ? count : keep_character(code_point, to);
}

size_t unicode_lowercase(uint32_t code_point, uint32_t *to)
{
    if (code_point < 0x80) { return keep_character(code_point - 'A' < 26 ? code_point | 0x20 : code_point, to); }
    size_t count =
        map_character(unicode_lowercases, unicode_lowercase_count, unicode_lowercase_targets, code_point, to);
    return count > 0 ? count : keep_character(code_point, to);
}

/* Normal forms. Most text is in them already: only a character that is active, and the one before it, are decomposed
 * and composed again. No other character changes or affects the one before it. */

/* The composition of two characters, or 0. */
static uint32_t compose_pair(uint32_t first, uint32_t second)
{
    if (first - HANGUL_L < L_COUNT && second - HANGUL_V < V_COUNT) {
        return HANGUL + ((first - HANGUL_L) * V_COUNT + second - HANGUL_V) * T_COUNT;
    }
    if (first - HANGUL < HANGUL_COUNT && (first - HANGUL) % T_COUNT == 0 && second - HANGUL_T - 1 < T_COUNT - 1) {
        return first + second - HANGUL_T;
    }
    uint32_t low = 0, high = unicode_composition_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct unicode_composition *each = &unicode_compositions[middle];
        if (each->first == first && each->second == second) { return each->to; }
        if (each->first < first || (each->first == first && each->second < second)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return 0;
}

/* The full decomposition of a form. Shapes: to [UNICODE_MAX_COMPATIBLE]. */
static size_t decompose_character(enum unicode_form form, uint32_t code_point, uint32_t *to)
{
    size_t count = form & UNICODE_COMPATIBLE ? map_character(unicode_compatibles, unicode_compatible_count,
                                                             unicode_compatible_targets, code_point, to)
                                             : 0;
    return count > 0 ? count : unicode_decompose(code_point, to);
}

/* By the tables; the caller must add the second characters of compositions that have no combining class. */
static bool changes_character(enum unicode_form form, uint32_t code_point)
{
    uint32_t parts[UNICODE_MAX_COMPATIBLE];
    if (unicode_lookup(code_point)->order != 0) { return true; }
    size_t count = decompose_character(form, code_point, parts), i = 1;
    uint32_t whole = parts[0];
    for (; form & UNICODE_COMPOSE && i < count && whole != 0; i++) { whole = compose_pair(whole, parts[i]); }
    return whole != code_point || i < count;
}

static void mark_active(struct unicode_normal *normal, uint32_t code_point)
{
    if (code_point / 8 < sizeof normal->active) { normal->active[code_point / 8] |= (uint8_t)(1 << code_point % 8); }
}

void unicode_prepare(struct unicode_normal *normal, enum unicode_form form)
{
    *normal = (struct unicode_normal){.form = form};
    for (uint32_t c = 0; c < sizeof normal->active * 8; c++) {
        bool hangul = c - HANGUL_V < V_COUNT || c - HANGUL_T - 1 < T_COUNT - 1;
        if (hangul || changes_character(form, c)) { mark_active(normal, c); }
    }
    for (uint32_t i = 0; i < unicode_composition_count; i++) { mark_active(normal, unicode_compositions[i].second); }
}

/* All characters above U+FFFF count: they are rare. */
static bool is_active(const struct unicode_normal *normal, uint32_t code_point)
{
    return code_point / 8 >= sizeof normal->active || (normal->active[code_point / 8] >> code_point % 8 & 1) != 0;
}

/* A character of a run that is being normalised, so that numbers sort as the characters do: combining class, place,
 * number of characters of the text that it replaces, code point. A character that is decomposed is replaced by the
 * first part; the other parts are inserted. */
enum { COUNT_BITS = 21, PLACE_BITS = COUNT_BITS + 1 };

static uint64_t pack_character(uint32_t code_point, size_t place, bool first)
{
    return (uint64_t)unicode_lookup(code_point)->order << 56 | (uint64_t)place << PLACE_BITS |
           (uint64_t)first << COUNT_BITS | code_point;
}

/* Drops the place, which makes room for larger counts. */
static uint64_t drop_place(uint64_t sortable)
{
    return sortable & (UINT64_C(0xFF) << 56 | ((UINT64_C(1) << PLACE_BITS) - 1));
}

static size_t count_of(uint64_t sorted)
{
    return (size_t)(sorted << 8 >> 8 >> COUNT_BITS);
}

static uint32_t order_of(uint64_t sortable)
{
    return (uint32_t)(sortable >> 56);
}

static uint32_t code_point_of(uint64_t sortable)
{
    return (uint32_t)sortable & 0x1FFFFF;
}

static int compare_sortable(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void put_character(struct buffer *out, uint32_t code_point)
{
    char *to = buffer_reserve(out, 4);
    if (to) { out->length += utf8_put(to, code_point); }
}

/* Sorts each run of marks. */
static void sort_runs(uint64_t *run, size_t count)
{
    for (size_t from = 0, at = 0; at <= count; at++) {
        if (at < count && order_of(run[at]) != 0) { continue; }
        if (at - from > 1) { qsort(run + from, at - from, sizeof *run, compare_sortable); }
        from = at + 1;
    }
}

/* Composes each mark, if possible, with the last character of class 0 before it. */
static size_t compose_run(uint64_t *run, size_t count)
{
    size_t kept = 0, starter = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
        /* One that follows a mark of its class or a higher one, or another starter, is blocked. */
        bool blocked = starter == SIZE_MAX || (kept - 1 > starter && order_of(run[kept - 1]) >= order_of(run[i]));
        uint32_t whole = blocked ? 0 : compose_pair(code_point_of(run[starter]), code_point_of(run[i]));
        if (whole != 0) {
            run[starter] = whole | (uint64_t)(count_of(run[starter]) + count_of(run[i])) << COUNT_BITS;
            continue;
        }
        if (order_of(run[i]) == 0) { starter = kept; }
        run[kept++] = run[i];
    }
    return kept;
}

static void normalize_run(enum unicode_form form, const char *text, size_t length, struct buffer *out,
                          struct origin *origin)
{
    uint64_t few[128], *run = few;
    size_t most = length * (form & UNICODE_COMPATIBLE ? 6 : 2), count = 0;
    if (most > sizeof few / sizeof few[0] && !(run = malloc(most * sizeof *run))) {
        out->broken = true;
        return;
    }
    for (size_t at = 0; at < length;) {
        uint32_t parts[UNICODE_MAX_COMPATIBLE];
        size_t part_count = decompose_character(form, utf8_next(text, &at), parts);
        for (size_t i = 0; i < part_count; i++, count++) { run[count] = pack_character(parts[i], count, i == 0); }
    }
    sort_runs(run, count);
    for (size_t i = 0; i < count; i++) { run[i] = drop_place(run[i]); }
    if (form & UNICODE_COMPOSE) { count = compose_run(run, count); }
    for (size_t i = 0; i < count; i++) {
        size_t before = out->length;
        put_character(out, code_point_of(run[i]));
        origin_put(origin, out->length - before, count_of(run[i]));
    }
    if (run != few) { free(run); }
}

void unicode_normalize(const struct unicode_normal *normal, const char *text, size_t length, struct buffer *out,
                       struct origin *origin)
{
    size_t copied = 0, before = 0; /* the start of the character before `at` */
    for (size_t at = 0; at < length;) {
        size_t from = at;
        if ((unsigned char)text[at] < 0x80) {
            at++;
        } else if (is_active(normal, utf8_next(text, &at))) {
            buffer_append(out, text + copied, before - copied);
            origin_keep(origin, text + copied, before - copied);
            for (copied = at; at < length && is_active(normal, utf8_next(text, &at)); copied = at) {}
            normalize_run(normal->form, text + before, copied - before, out, origin);
            at = from = copied;
        }
        before = from;
    }
    buffer_append(out, text + copied, length - copied);
    origin_keep(origin, text + copied, length - copied);
}
