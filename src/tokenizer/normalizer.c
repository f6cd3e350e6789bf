/* Source: the behaviour of BertNormalizer in tokenizers 0.23. */
#include "tokenizer/normalizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

/* Decomposes one character that cleaning kept, drops accents and makes it lower case. */
static size_t expand_kept(const struct normalizer_options *options, uint32_t code_point, struct normal_character *to)
{
    uint32_t parts[UNICODE_MAX_PARTS] = {code_point};
    size_t part_count = options->strip_accents ? unicode_decompose(code_point, parts) : 1, count = 0;
    for (size_t i = 0; i < part_count; i++) {
        uint8_t order = 0;
        if (options->strip_accents) {
            const struct unicode_range *range = unicode_lookup(parts[i]);
            order = range->order;
            if (range->flags & UNICODE_MARK) {
                if (order == 0) { to[count++] = (struct normal_character){NORMAL_BREAK, 0}; }
                continue;
            }
        }
        uint32_t lower[UNICODE_MAX_PARTS] = {parts[i]};
        size_t lower_count = options->lowercase ? unicode_lowercase(parts[i], lower) : 1;
        for (size_t j = 0; j < lower_count; j++) { to[count++] = (struct normal_character){lower[j], order}; }
    }
    return count;
}

size_t normalizer_expand(const struct normalizer_options *options, uint32_t code_point, struct normal_character *to)
{
    const struct normal_character blank = {' ', 0};
    uint8_t flags = unicode_lookup(code_point)->flags;
    if (options->clean_text && (flags & UNICODE_CONTROL)) { return 0; }
    if (options->clean_text && (flags & UNICODE_SPACE)) {
        to[0] = blank;
        return 1;
    }
    if (!options->handle_chinese_chars || !(flags & UNICODE_CJK)) { return expand_kept(options, code_point, to); }
    to[0] = blank;
    size_t count = 1 + expand_kept(options, code_point, to + 1);
    to[count] = blank;
    return count + 1;
}

static struct normal_entry make_entry(const struct normalizer_options *options, uint32_t code_point)
{
    struct normal_character out[NORMAL_MAX_CHARACTERS];
    size_t count = normalizer_expand(options, code_point, out);
    if (count == 0) { return (struct normal_entry){.kind = NORMAL_NOTHING}; }
    bool padded = count == 3 && out[0].code_point == ' ' && out[2].code_point == ' ';
    struct normal_character only = out[padded ? 1 : 0];
    if ((count != 1 && !padded) || only.code_point >= NORMAL_TABLE || only.order != 0) {
        return (struct normal_entry){.kind = NORMAL_COMPLEX};
    }
    struct normal_entry entry = {.kind = NORMAL_TEXT};
    uint8_t flags = unicode_lookup(only.code_point)->flags;
    if (flags & UNICODE_SPACE) {
        entry.kind = NORMAL_SPACE;
    } else if (padded || (flags & UNICODE_PUNCTUATION)) {
        entry.kind = NORMAL_ISOLATED;
    }
    entry.length = (uint8_t)utf8_put(entry.bytes, only.code_point);
    return entry;
}

struct normalizer *normalizer_open(struct normalizer_options options)
{
    struct normalizer *normalizer = malloc(sizeof *normalizer);
    if (!normalizer) { return NULL; }
    normalizer->options = options;
    for (uint32_t c = 0; c < NORMAL_TABLE; c++) { normalizer->table[c] = make_entry(&options, c); }
    return normalizer;
}

void normalizer_close(struct normalizer *normalizer)
{
    free(normalizer);
}

size_t normalizer_insert(char *text, size_t run, size_t length, struct normal_character character)
{
    size_t at = length;
    while (at > run) {
        size_t before = at - 1, read;
        while (((unsigned char)text[before] & 0xC0) == 0x80) { before--; }
        read = before;
        if (unicode_lookup(utf8_next(text, &read))->order <= character.order) { break; }
        at = before;
    }
    char bytes[4];
    size_t size = utf8_put(bytes, character.code_point);
    memmove(text + at + size, text + at, length - at);
    memcpy(text + at, bytes, size);
    return size;
}
