/* Each step of the normalisation, their order, and the sorting of marks. */
#include "harness.h"

#include "base/utf8.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/unicode.h"

static const struct normalizer_options uncased = {true, true, true, true}, cased = {true, true, false, false},
                                       nothing = {false, false, false, false};

static void check(struct normalizer_options options, const char *text, const char *expected)
{
    struct normalizer *normalizer = normalizer_open(options);
    assert_non_null(normalizer);
    struct buffer out = {0};
    normalizer_text(normalizer, text, strlen(text), &out);
    buffer_append(&out, "", 1);
    assert_true(buffer_ok(&out));
    assert_string_equal(out.data, expected);
    buffer_free(&out);
    normalizer_close(normalizer);
}

static void cleans(void **state)
{
    (void)state;
    check(cased, "a\tb\nc\rd\u00A0e\u3000f", "a b c d e f");
    check(cased,
          "a\u200Bb\u00ADc\x01"
          "d\uFFFDe\uE000f\xC2\x85g",
          "abcdefg");
    check(nothing, "a\tb\u200B\uFFFD\xC2\x85", "a\tb\u200B\uFFFD\xC2\x85");
}

static void puts_blanks_around_cjk(void **state)
{
    (void)state;
    check(cased, "a\u6F22b", "a \u6F22 b");
    check(cased, "\U00020000", " \U00020000 ");
    check(cased, "\uD55C\u3042", "\uD55C\u3042"); /* neither Hangul nor Kana */
    check(uncased, "\uF900", " \u8C48 ");         /* a compatibility ideograph is decomposed in its blanks */
    check(nothing, "a\u6F22b", "a\u6F22b");
}

static void strips_accents_and_lowers(void **state)
{
    (void)state;
    check(uncased, "\u00C9cole E\u0301 \u0130", "ecole e i");
    check((struct normalizer_options){true, true, false, true}, "\u00C9 \u0130 \u03A3", "\u00E9 i\u0307 \u03C3");
    check((struct normalizer_options){true, true, true, false}, "\u00C9 \u0130", "E I");
    check(uncased, "\uD55C", "\u1112\u1161\u11AB");
    check(uncased, "\u1FEF\u037E", "`;");
}

static void sorts_marks_that_stay(void **state)
{
    (void)state;
    const char *sorted = "a\U0001D165\u302E", *swapped = "a\u302E\U0001D165"; /* classes 216 and 224, both spacing */
    check(uncased, swapped, sorted);
    check(uncased, sorted, sorted);
    check(cased, swapped, swapped);
    check(uncased, "a\u302E\u0301\U0001D165", sorted);                  /* a removed mark does not end the run */
    check(uncased, "a\u302E\u200B\U0001D165", sorted);                  /* nor does what cleaning removes */
    check(uncased, "a\u302E\u034F\U0001D165", swapped);                 /* a removed mark of class 0 does */
    check(uncased, "a\u302Eb\U0001D165", "a\u302Eb\U0001D165");         /* and a letter */
    check(uncased, "\u302E\u302F\U0001D165", "\U0001D165\u302E\u302F"); /* equal classes keep their order */
}

/* tokenizer_bound stands on this: no character becomes more characters than it has bytes. */
static void no_character_outgrows_its_bytes(void **state)
{
    (void)state;
    for (unsigned int set = 0; set < 16; set++) {
        struct normalizer_options options = {set & 1, set & 2, set & 4, set & 8};
        for (uint32_t c = 0; c < UNICODE_LIMIT; c++) {
            struct normal_character out[NORMAL_MAX_CHARACTERS];
            char bytes[4];
            size_t count = normalizer_expand(&options, c, out), added = 0;
            for (size_t i = 0; i < count; i++)
                added += out[i].code_point != NORMAL_BREAK;
            assert_in_range(count, 0, NORMAL_MAX_CHARACTERS);
            assert_in_range(added, 0, utf8_put(bytes, c));
        }
    }
}

/* The table is a shortcut: it must say what the tables behind it say. */
static void the_table_agrees_with_the_long_way(void **state)
{
    (void)state;
    struct normalizer *normalizer = normalizer_open(uncased);
    size_t complex = 0;
    for (uint32_t c = 0; c < NORMAL_TABLE; c++) {
        const struct normal_entry *entry = &normalizer->table[c];
        struct normal_character out[NORMAL_MAX_CHARACTERS];
        size_t count = normalizer_expand(&uncased, c, out), at = 0;
        complex += entry->kind == NORMAL_COMPLEX;
        if (entry->kind == NORMAL_NOTHING)
            assert_int_equal(count, 0);
        if (entry->kind == NORMAL_TEXT)
            assert_int_equal(utf8_next(entry->bytes, &at), out[0].code_point);
        if (entry->kind == NORMAL_SPACE)
            assert_true(unicode_lookup(out[0].code_point)->flags & UNICODE_SPACE);
    }
    assert_in_range(complex, 1, 14000); /* Hangul, and little else */
    normalizer_close(normalizer);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(cleans),
    cmocka_unit_test(puts_blanks_around_cjk),
    cmocka_unit_test(strips_accents_and_lowers),
    cmocka_unit_test(sorts_marks_that_stay),
    cmocka_unit_test(no_character_outgrows_its_bytes),
    cmocka_unit_test(the_table_agrees_with_the_long_way),
};

TEST_MAIN(cases)
