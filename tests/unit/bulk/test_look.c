/* The look-ahead: doc batches hold what they were given, rows have their numbers, and batches are of one length. No
 * model is needed: without token ids the bytes of a text are its length. */
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

/* A docs with texts of 1 to 7 letters, the fifth of which failed. */
static struct doc_batch *fill(uint64_t first)
{
    char text[8];
    struct err err;
    struct buffer scratch = {0};
    struct doc_batch *docs = doc_batch_new();
    for (uint64_t i = 0; i < DOCUMENTS; i++) {
        memset(text, 'a', sizeof text);
        text[1 + i % 7] = '\0';
        struct document document = make(first + i, text);
        document.code = i == 4 ? ROW_BAD_JSON : ROW_OK;
        bool added;
        assert_int_equal(doc_batch_add(docs, &document, &added, &err), STATUS_OK);
        assert_true(added);
    }
    memset(text, 'z', sizeof text); /* the docs has copies */
    doc_batch_prepare(docs, &plain, &scratch);
    assert_int_equal(docs->status, STATUS_OK);
    buffer_free(&scratch);
    return docs;
}

static void rows_keep_their_numbers(void **state)
{
    (void)state;
    struct lookahead look = {0};
    struct err err;
    lookahead_push(&look, fill(100));
    lookahead_push(&look, fill(100 + DOCUMENTS));
    assert_int_equal(lookahead_make_rows(&look, 0, NUMBER_DOCUMENTS, &err), STATUS_OK);
    assert_int_equal(look.row_count, 2 * DOCUMENTS);
    for (uint32_t i = 0; i < look.row_count; i++) {
        const struct output_row *row = &look.rows[i];
        bool failed = i % DOCUMENTS == 4;
        assert_int_equal(row->number, 100 + i);
        assert_int_equal(row->state, failed ? STATE_FAILED : STATE_TODO);
        assert_int_equal(row->code, failed ? ROW_BAD_JSON : ROW_OK);
        if (!failed)
            assert_int_equal(row->pieces->row.text_bytes, 1 + i % DOCUMENTS % 7);
        if (!failed)
            assert_int_equal(row->pieces->row.text[0], 'a');
        assert_string_equal(row->document->file, "in.txt");
    }
    lookahead_free(&look);
}

static void batches_are_of_one_length(void **state)
{
    (void)state;
    struct lookahead look = {0};
    struct err err;
    lookahead_push(&look, fill(0));
    assert_int_equal(lookahead_make_rows(&look, 0, NUMBER_DOCUMENTS, &err), STATUS_OK);
    look.rows[6].state = STATE_DONE; /* 7 bytes */
    assert_int_equal(lookahead_order(&look, 3, &err), STATUS_OK);
    assert_int_equal(look.order_count, DOCUMENTS - 2);
    for (uint32_t i = 1; i < look.order_count; i++)
        assert_true(look.order[i]->row.text_bytes <= look.order[i - 1]->row.text_bytes);
    assert_int_equal(look.order[0]->owner->number, 13); /* the next one of 7 bytes */
    uint32_t count = look.order_count;
    assert_int_equal(lookahead_batch(&look, 0, count, 1, 100), 1); /* one at least */
    assert_int_equal(lookahead_batch(&look, 0, count, 21, 100), 3);
    assert_int_equal(lookahead_batch(&look, 0, count, 21, 2), 2);
    assert_int_equal(lookahead_batch(&look, count - 2, 2, 1000, 100), 2);
    assert_int_equal(lookahead_weight(&look, 0, 3), 21);
    for (uint32_t i = 0; i < count; i++) {
        const struct output_row *row = look.order[i]->owner;
        assert_int_equal(row->pieces_left, 1);
        assert_ptr_equal(look.order[i]->vector, look.vectors + 3 * (row - look.rows));
    }
    lookahead_free(&look);
}

static void slices_have_a_bound(void **state)
{
    (void)state;
    struct err err;
    bool added = true;
    char *text = malloc(DOC_BATCH_BYTES);
    memset(text, 'x', DOC_BATCH_BYTES - 1);
    text[DOC_BATCH_BYTES - 1] = '\0';
    struct doc_batch *docs = doc_batch_new();
    struct document large = make(0, text), small = make(1, "y");
    assert_int_equal(doc_batch_add(docs, &large, &added, &err), STATUS_OK);
    assert_true(added); /* larger than usual, but it is the first */
    assert_int_equal(doc_batch_add(docs, &large, &added, &err), STATUS_OK);
    assert_false(added);
    doc_batch_reset(docs);
    uint32_t count = 0;
    for (added = true; added; count += added)
        assert_int_equal(doc_batch_add(docs, &small, &added, &err), STATUS_OK);
    assert_int_equal(count, DOC_BATCH_MAX);
    doc_batch_free(docs);
    free(text);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(rows_keep_their_numbers),
    cmocka_unit_test(batches_are_of_one_length),
    cmocka_unit_test(slices_have_a_bound),
};

TEST_MAIN(cases)
