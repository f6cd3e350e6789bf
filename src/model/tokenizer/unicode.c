/* Binary search in the tables: the hot path asks a normalizer's own cache first and comes here for rare characters. */
#include "model/tokenizer/unicode.h"

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

static size_t map(const struct unicode_mapping *mappings, uint32_t count, const uint32_t *targets, uint32_t code_point,
                  uint32_t *to)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (mappings[middle].from < code_point) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == count || mappings[low].from != code_point) {
        to[0] = code_point;
        return 1;
    }
    for (size_t i = 0; i < mappings[low].count; i++) { to[i] = targets[mappings[low].at + i]; }
    return mappings[low].count;
}

/* Source: The Unicode Standard, section 3.12 (a Hangul syllable's letters follow from its number). */
static size_t decompose_hangul(uint32_t index, uint32_t *to)
{
    to[0] = 0x1100 + index / (21 * 28);
    to[1] = 0x1161 + index % (21 * 28) / 28;
    to[2] = 0x11A7 + index % 28;
    return index % 28 == 0 ? 2 : 3;
}

size_t unicode_decompose(uint32_t code_point, uint32_t *to)
{
    const uint32_t first = 0xAC00, count = 11172;
    if (code_point - first < count) { return decompose_hangul(code_point - first, to); }
    return map(unicode_decompositions, unicode_decomposition_count, unicode_decomposition_targets, code_point, to);
}

size_t unicode_lowercase(uint32_t code_point, uint32_t *to)
{
    return map(unicode_lowercases, unicode_lowercase_count, unicode_lowercase_targets, code_point, to);
}
