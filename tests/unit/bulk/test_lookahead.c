/* The look-ahead: batches of documents keep their documents, rows keep their numbers, and batches are of one length;
 * chunks are within their bound, end at ends of sentences, lose nothing and overlap. */
#include <stdlib.h>

#include "bulk/lookahead.h"
#include "model/model.h"
#include "model_expect.h"

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

/* A batch of texts of 1 to 7 letters, the fifth of which failed. Without token ids the bytes of a text are its length.
 */
static struct doc_batch *fill(uint64_t first)
{
    char text[8];
    struct err err;
    struct doc_batch *docs = doc_batch_new(&plain);
    for (uint64_t i = 0; i < DOCUMENTS; i++) {
        memset(text, 'a', sizeof text);
        text[1 + i % 7] = '\0';
        struct document document = make(first + i, text);
        document.code = i == 4 ? ROW_BAD_JSON : ROW_OK;
        bool added;
        assert_int_equal(doc_batch_add(docs, &document, &added, &err), STATUS_OK);
        assert_true(added);
    }
    memset(text, 'z', sizeof text); /* the batch has copies */
    doc_batch_prepare(docs);
    assert_int_equal(docs->status, STATUS_OK);
    return docs;
}

TEST(rows_keep_their_numbers)
{
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
        if (!failed) { assert_int_equal(row->pieces->row.text_bytes, 1 + i % DOCUMENTS % 7); }
        if (!failed) { assert_int_equal(row->pieces->row.text[0], 'a'); }
        assert_string_equal(row->document->file, "in.txt");
    }
    lookahead_free(&look);
}

TEST(batches_are_of_one_length)
{
    struct lookahead look = {0};
    struct err err;
    lookahead_push(&look, fill(0));
    assert_int_equal(lookahead_make_rows(&look, 0, NUMBER_DOCUMENTS, &err), STATUS_OK);
    look.rows[6].state = STATE_DONE; /* 7 bytes */
    assert_int_equal(lookahead_order(&look, 3, &err), STATUS_OK);
    assert_int_equal(look.order_count, DOCUMENTS - 2);
    for (uint32_t i = 1; i < look.order_count; i++) {
        assert_true(look.order[i].piece->row.text_bytes <= look.order[i - 1].piece->row.text_bytes);
    }
    assert_int_equal(look.order[0].piece->owner->number, 13); /* the next one of 7 bytes */
    uint32_t count = look.order_count;
    assert_int_equal(lookahead_batch(&look, 0, count, 1, 100), 1); /* one at least */
    assert_int_equal(lookahead_batch(&look, 0, count, 21, 100), 3);
    assert_int_equal(lookahead_batch(&look, 0, count, 21, 2), 2);
    assert_int_equal(lookahead_batch(&look, count - 2, 2, 1000, 100), 2);
    assert_int_equal(lookahead_weight(&look, 0, 3), 21);
    for (uint32_t i = 0; i < count; i++) {
        const struct output_row *row = look.order[i].piece->owner;
        assert_int_equal(row->pieces_left, 1);
        assert_ptr_equal(look.order[i].piece->vector, look.vectors + 3 * (row - look.rows));
    }
    lookahead_free(&look);
}

/* Weights of any size; equal ones keep their order. */
TEST(pieces_are_sorted_longest_first)
{
    static const uint32_t tokens[10] = {2048, 1, 2047, 1u << 31, 1, 4096, 2048, 1u << 22, 3, 1};
    struct lookahead look = {0};
    struct err err;
    struct doc_batch *docs = fill(0);
    for (uint32_t i = 0; i < docs->piece_count; i++) { docs->pieces[i].row.tokens = tokens[i % 10]; }
    lookahead_push(&look, docs);
    assert_int_equal(lookahead_make_rows(&look, 0, NUMBER_DOCUMENTS, &err), STATUS_OK);
    assert_int_equal(lookahead_order(&look, 1, &err), STATUS_OK);
    assert_int_equal(look.order_count, docs->piece_count);
    assert_int_equal(look.order[0].weight, 1u << 31);
    for (uint32_t i = 1; i < look.order_count; i++) {
        const struct weighed *a = &look.order[i - 1], *b = &look.order[i];
        assert_int_equal(b->weight, piece_weight(b->piece));
        assert_true(a->weight > b->weight || (a->weight == b->weight && a->piece < b->piece));
    }
    lookahead_free(&look);
}

TEST(doc_batches_have_a_bound)
{
    struct err err;
    bool added = true;
    char *text = malloc(DOC_BATCH_BYTES);
    memset(text, 'x', DOC_BATCH_BYTES - 1);
    text[DOC_BATCH_BYTES - 1] = '\0';
    struct doc_batch *docs = doc_batch_new(&plain);
    struct document large = make(0, text), small = make(1, "y");
    assert_int_equal(doc_batch_add(docs, &large, &added, &err), STATUS_OK);
    assert_true(added); /* larger than usual, but it is the first */
    assert_int_equal(doc_batch_add(docs, &large, &added, &err), STATUS_OK);
    assert_false(added);
    doc_batch_free(docs);
    docs = doc_batch_new(&plain);
    uint32_t count = 0;
    for (added = true; added; count += added) {
        assert_int_equal(doc_batch_add(docs, &small, &added, &err), STATUS_OK);
    }
    assert_int_equal(count, DOC_BATCH_MAX);
    doc_batch_free(docs);
    free(text);
}

/* --- Chunks --- */

/* Cuts a text into chunks; sets *count. */
static struct chunk *cut(const char *how, const char *text, size_t *count)
{
    struct chunking chunking;
    struct buffer chunks = {0}, scratch = {0};
    struct err err;
    assert_int_equal(chunking_parse(how, &chunking, &err), STATUS_OK);
    assert_int_equal(chunking_cut(&chunking, made.model, text, strlen(text), &chunks, &scratch, &err), STATUS_OK);
    buffer_free(&scratch);
    *count = chunks.length / sizeof(struct chunk);
    return (struct chunk *)(void *)chunks.data;
}

static uint32_t tokens_of(const char *text, size_t length)
{
    int32_t ids[4096];
    uint32_t count;
    bool truncated;
    struct err err;
    assert_int_equal(tokenizer_encode(made.model->tokenizer, text, length, 4096, ids, &count, &truncated, &err),
                     STATUS_OK);
    return count;
}

static void expect(const char *how, const char *text, const char *const *expected, size_t expected_count)
{
    size_t count;
    struct chunk *chunks = cut(how, text, &count);
    assert_int_equal(count, expected_count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(chunks[i].end - chunks[i].begin, strlen(expected[i]));
        assert_memory_equal(text + chunks[i].begin, expected[i], strlen(expected[i]));
    }
    free(chunks);
}

/* In this vocabulary a letter is a word of one token, and so is a full stop; two more tokens are around every text. */
OPEN_MODEL_TEST(at_ends_of_sentences)
{
    static const char *const sentences[] = {"a b c d. e f g.", "h i j k."};
    expect("tokens:12", "a b c d. e f g. h i j k.", sentences, 2);
    static const char *const words[] = {"a b c d e f", "g h i j"};
    expect("tokens:8", "a b c d e f g h i j", words, 2);
    static const char *const paragraphs[] = {"a b c d", "e f g h"};
    expect("tokens:9", "a b c d\n\ne f g h", paragraphs, 2);
    static const char *const whole[] = {" a b. "};
    expect("tokens:12", " a b. ", whole, 1);
    static const char *const nothing[] = {" \n "};
    expect("tokens:12", " \n ", nothing, 1);
}

OPEN_MODEL_TEST(overlap)
{
    static const char *const chunks[] = {"a b c d e f", "e f g h i j"};
    expect("tokens:8,overlap:2", "a b c d e f g h i j", chunks, 2);
}

OPEN_MODEL_TEST(no_chunk_is_too_long_and_nothing_is_lost)
{
    static const char *const words[] = {"the",
                                        "of.",
                                        "unaffable",
                                        "hello!",
                                        "\xe4\xb8\x96\xe7\x95\x8c\xe3\x80\x82",
                                        "wordingwordingwordingwordingwordingwording",
                                        "a-b-c-d-e-f-g-h-i-j-k-l",
                                        "\n\n"};
    char text[8192] = "";
    unsigned seed = 7;
    for (int i = 0; i < 400; i++) {
        seed = seed * 1103515245 + 12345;
        strcat(text, words[seed >> 16 & 7]);
        strcat(text, (seed >> 20 & 3) == 0 ? "" : " ");
    }
    static const char *const ways[] = {"tokens:3", "tokens:10", "tokens:16,overlap:5", "overlap:9,tokens:40,mean"};
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        size_t count, reached = 0;
        struct chunk *chunks = cut(ways[w], text, &count);
        struct chunking chunking;
        struct err err;
        assert_int_equal(chunking_parse(ways[w], &chunking, &err), STATUS_OK);
        for (size_t i = 0; i < count; i++) {
            assert_in_range(tokens_of(text + chunks[i].begin, chunks[i].end - chunks[i].begin), 3, chunking.tokens);
            for (; reached < chunks[i].begin; reached++) { assert_non_null(strchr(" \n", text[reached])); }
            assert_true(i == 0 || chunks[i].begin > chunks[i - 1].begin);
            reached = chunks[i].end;
        }
        for (; reached < strlen(text); reached++) { assert_non_null(strchr(" \n", text[reached])); }
        free(chunks);
    }
}

TEST(options)
{
    struct chunking chunking;
    struct err err;
    static const char *const bad[] = {"",     "overlap:3",      "tokens:",         "tokens:x", "tokens:8,overlap:8",
                                      "mean", "tokens:8 ,mean", "tokens:99999999", "chunks:3"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(chunking_parse(bad[i], &chunking, &err), STATUS_BAD_INPUT);
    }
    assert_int_equal(chunking_parse("mean,overlap:3,tokens:9", &chunking, &err), STATUS_OK);
    assert_true(chunking.mean && chunking.overlap == 3 && chunking.tokens == 9);
}
