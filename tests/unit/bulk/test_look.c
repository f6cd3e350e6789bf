/* The look-ahead: slices hold what they were given, rows have their numbers, and batches are of one length. No model is
 * needed: without token ids the bytes of a text are its length. */
#include "harness.h"

#include <stdlib.h>

#include "bulk/lookahead.h"

enum { DOCUMENTS = 40 };

static const struct preparer plain = {.model = NULL};

static struct document make(uint64_t number, const char *text)
{
    return (struct document){.number = number,
                             .file = "in.txt",
                             .line = number + 1,
                             .text = text,
                             .text_bytes = strlen(text),
                             .id = "\"x\"",
                             .id_bytes = 3,
                             .hash = {number, ~number}};
}

/* A slice with texts of 1 to 7 letters, the fifth of which failed. */
static struct slice *fill(uint64_t first)
{
    char text[8];
    struct err err;
    struct buffer scratch = {0};
    struct slice *slice = slice_new();
    for (uint64_t i = 0; i < DOCUMENTS; i++) {
        memset(text, 'a', sizeof text);
        text[1 + i % 7] = '\0';
        struct document document = make(first + i, text);
        document.code = i == 4 ? ROW_BAD_JSON : ROW_OK;
        bool added;
        assert_int_equal(slice_add(slice, &document, &added, &err), STATUS_OK);
        assert_true(added);
    }
    memset(text, 'z', sizeof text); /* the slice has copies */
    slice_prepare(slice, &plain, &scratch);
    assert_int_equal(slice->status, STATUS_OK);
    buffer_free(&scratch);
    return slice;
}

static void rows_keep_their_numbers(void **state)
{
    (void)state;
    struct look look = {0};
    struct err err;
    look_push(&look, fill(100));
    look_push(&look, fill(100 + DOCUMENTS));
    assert_int_equal(look_count(&look, 0, NUMBER_DOCUMENTS, &err), STATUS_OK);
    assert_int_equal(look.unit_count, 2 * DOCUMENTS);
    for (uint32_t i = 0; i < look.unit_count; i++) {
        const struct unit *unit = &look.units[i];
        bool failed = i % DOCUMENTS == 4;
        assert_int_equal(unit->number, 100 + i);
        assert_int_equal(unit->state, failed ? UNIT_FAILED : UNIT_TODO);
        assert_int_equal(unit->code, failed ? ROW_BAD_JSON : ROW_OK);
        if (!failed)
            assert_int_equal(unit->pieces->row.text_bytes, 1 + i % DOCUMENTS % 7);
        if (!failed)
            assert_int_equal(unit->pieces->row.text[0], 'a');
        assert_string_equal(unit->document->file, "in.txt");
    }
    look_free(&look);
}

static void batches_are_of_one_length(void **state)
{
    (void)state;
    struct look look = {0};
    struct err err;
    look_push(&look, fill(0));
    assert_int_equal(look_count(&look, 0, NUMBER_DOCUMENTS, &err), STATUS_OK);
    look.units[6].state = UNIT_DONE; /* 7 bytes */
    assert_int_equal(look_order(&look, 3, &err), STATUS_OK);
    assert_int_equal(look.order_count, DOCUMENTS - 2);
    for (uint32_t i = 1; i < look.order_count; i++)
        assert_true(look.order[i]->row.text_bytes <= look.order[i - 1]->row.text_bytes);
    assert_int_equal(look.order[0]->unit->number, 13); /* the next one of 7 bytes */
    uint32_t count = look.order_count;
    assert_int_equal(look_batch(&look, 0, count, 1, 100), 1); /* one at least */
    assert_int_equal(look_batch(&look, 0, count, 21, 100), 3);
    assert_int_equal(look_batch(&look, 0, count, 21, 2), 2);
    assert_int_equal(look_batch(&look, count - 2, 2, 1000, 100), 2);
    assert_int_equal(look_weight(&look, 0, 3), 21);
    for (uint32_t i = 0; i < count; i++) {
        const struct unit *unit = look.order[i]->unit;
        assert_int_equal(unit->pieces_left, 1);
        assert_ptr_equal(look.order[i]->vector, look.vectors + 3 * (unit - look.units));
    }
    look_free(&look);
}

static void slices_have_a_bound(void **state)
{
    (void)state;
    struct err err;
    bool added = true;
    char *text = malloc(SLICE_BYTES);
    memset(text, 'x', SLICE_BYTES - 1);
    text[SLICE_BYTES - 1] = '\0';
    struct slice *slice = slice_new();
    struct document large = make(0, text), small = make(1, "y");
    assert_int_equal(slice_add(slice, &large, &added, &err), STATUS_OK);
    assert_true(added); /* larger than usual, but it is the first */
    assert_int_equal(slice_add(slice, &large, &added, &err), STATUS_OK);
    assert_false(added);
    slice_reset(slice);
    uint32_t count = 0;
    for (added = true; added; count += added)
        assert_int_equal(slice_add(slice, &small, &added, &err), STATUS_OK);
    assert_int_equal(count, SLICE_DOCUMENTS);
    slice_free(slice);
    free(text);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(rows_keep_their_numbers),
    cmocka_unit_test(batches_are_of_one_length),
    cmocka_unit_test(slices_have_a_bound),
};

TEST_MAIN(cases)
