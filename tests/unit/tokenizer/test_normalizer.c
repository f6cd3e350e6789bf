/* The normaliser's promises about every code point; golden.tokenizer compares its results. */
#include "harness.h"

#include "base/utf8.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/unicode.h"

static const struct normalizer_options uncased = {true, true, true, true};

/* tokenizer_bound relies on this: no character becomes more characters than it has bytes. */
TEST(no_character_outgrows_its_bytes)
{
    for (unsigned int set = 0; set < 16; set++) {
        struct normalizer_options options = {set & 1, set & 2, set & 4, set & 8};
        for (uint32_t c = 0; c < UNICODE_LIMIT; c++) {
            struct normal_character out[NORMAL_MAX_CHARACTERS];
            char bytes[4];
            size_t count = normalizer_expand(&options, c, out), added = 0;
            for (size_t i = 0; i < count; i++) { added += out[i].code_point != NORMAL_BREAK; }
            assert_in_range(count, 0, NORMAL_MAX_CHARACTERS);
            assert_in_range(added, 0, utf8_put(bytes, c));
        }
    }
}

/* The table is a shortcut: it must agree with the tables that it replaces. */
TEST(the_table_agrees_with_the_long_way)
{
    struct normalizer *normalizer = normalizer_open(uncased);
    size_t complex = 0;
    for (uint32_t c = 0; c < NORMAL_TABLE; c++) {
        const struct normal_entry *entry = &normalizer->table[c];
        struct normal_character out[NORMAL_MAX_CHARACTERS];
        size_t count = normalizer_expand(&uncased, c, out), at = 0;
        complex += entry->kind == NORMAL_COMPLEX;
        if (entry->kind == NORMAL_NOTHING) { assert_int_equal(count, 0); }
        if (entry->kind == NORMAL_TEXT) { assert_int_equal(utf8_next(entry->bytes, &at), out[0].code_point); }
        if (entry->kind == NORMAL_SPACE) { assert_true(unicode_lookup(out[0].code_point)->flags & UNICODE_SPACE); }
    }
    assert_in_range(complex, 1, 14000); /* Hangul, and little else */
    normalizer_close(normalizer);
}
