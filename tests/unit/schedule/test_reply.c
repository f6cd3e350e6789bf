/* Reply bytes, in every encoding and for every task; NaN never leaves. */
#include "harness.h"

#include <math.h>

#include "engine/vector.h"
#include "schedule/encodings.h"
#include "schedule/reply.h"

/* A computed request of `row_count` rows over the given floats, [row_count, dim]. */
static struct request *request_of(enum encoding encoding, float *floats, uint32_t row_count, uint32_t dim)
{
    static struct request request;
    static struct row rows[4];
    for (uint32_t r = 0; r < row_count; r++) {
        rows[r] = (struct row){.request = &request, .output = floats + r * dim};
    }
    request = (struct request){.output.encoding = encoding,
                               .rows = rows,
                               .row_count = row_count,
                               .inputs = row_count > 1,
                               .dim = dim,
                               .output.dims = dim};
    return &request;
}

static void expect_reply(struct request *request, const void *bytes, size_t length)
{
    size_t bound = reply_bound(request);
    reply_format(request);
    assert_int_equal(request->retry.code, CODE_NONE);
    assert_int_equal(request->output.reply.length, length);
    assert_memory_equal(request->output.reply.data, bytes, length);
    assert_true(request->output.reply.capacity <= bound);
    buffer_free(&request->output.reply);
}

TEST(json_is_an_array_or_an_array_of_arrays)
{
    float floats[] = {1, -0.5f, 0.25f, 0, 2, 3};
    expect_reply(request_of(ENCODING_JSON, floats, 1, 3), "[1,-0.5,0.25]", 13);
    expect_reply(request_of(ENCODING_JSON, floats, 2, 3), "[[1,-0.5,0.25],[0,2,3]]", 23);
    struct request *one_of_inputs = request_of(ENCODING_JSON, floats, 1, 3);
    one_of_inputs->inputs = true;
    expect_reply(one_of_inputs, "[[1,-0.5,0.25]]", 15);
}

TEST(f32_is_little_endian_bytes)
{
    float floats[] = {1, -2};
    expect_reply(request_of(ENCODING_F32, floats, 1, 2), "\0\0\x80\x3f\0\0\0\xc0", 8);
    expect_reply(request_of(ENCODING_F32, floats, 2, 1), "\0\0\x80\x3f\0\0\0\xc0", 8);
}

TEST(f16_is_little_endian_halves)
{
    float floats[] = {1, -2, 65504, 0x1p-24f};
    expect_reply(request_of(ENCODING_F16, floats, 2, 2), "\0\x3c\0\xc0\xff\x7b\1\0", 8);
    static const float large[] = {65520, -65520, 3e38f};
    for (int i = 0; i < 3; i++) {
        float floats_too_large[] = {1, 1, 1, large[i]};
        struct request *request = request_of(ENCODING_F16, floats_too_large, 2, 2);
        reply_format(request);
        assert_int_equal(request->retry.code, CODE_BAD_REQUEST);
        assert_non_null(strstr(request->retry.message, "encoding"));
        assert_true(request->retry.row_failed && request->retry.failed_index == 1 && !request->retry.retryable);
    }
}

/* Lengths with each possible remainder modulo three. The texts are from Python: b64encode(struct.pack("<nf", …)). */
TEST(base64_is_of_the_f32_bytes)
{
    float floats[] = {1, -2.5f, 1e-7f};
    expect_reply(request_of(ENCODING_BASE64, floats, 1, 1), "AACAPw==", 8);
    expect_reply(request_of(ENCODING_BASE64, floats, 1, 2), "AACAPwAAIMA=", 12);
    expect_reply(request_of(ENCODING_BASE64, floats, 3, 1), "AACAPwAAIMCVv9Yz", 16);
}

/* The bytes are those of numpy: floor((x + r) / (2 r / 255)) - 128 in f32, where r is 8 / sqrt(dims), at most 1. */
TEST(int8_has_the_same_range_for_every_number)
{
    float floats[] = {0, 1, -1, 0.5f, -0.25f, 2, -2, 1e-7f}, many[256] = {0.25f, -0.25f, 0.5f, 0.1f, -0.9f};
    const char expected[] = {-1, 126, -128, 63, -33, 127, -128, -1};
    char wide[256];
    memset(wide, -1, sizeof(wide)); /* the int8 of zeros */
    memcpy(wide, (const char[]){63, -65, 126, 25, -128}, 5);
    struct buffer back = {0};
    expect_reply(request_of(ENCODING_INT8, floats, 2, 4), expected, 8);
    expect_reply(request_of(ENCODING_INT8, many, 1, 256), wide, 256);
    assert_true(encoding_read("int8", expected, 3, &back));
    assert_memory_equal(back.data, ((float[]){-1, 126, -128}), 3 * sizeof(float));
    buffer_free(&back);
}

TEST(ubinary_is_the_signs)
{
    float floats[] = {1, -1, 0, 0.5f, -0.0f, 2, -2, 1e-7f, 3, -3}, ten[] = {-1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    struct buffer back = {0};
    expect_reply(request_of(ENCODING_UBINARY, floats, 1, 10), "\x95\x80", 2);
    expect_reply(request_of(ENCODING_UBINARY, ten, 2, 5), "\x78\xf8", 2); /* each row begins with a byte */
    assert_true(encoding_read("ubinary", "\x95\x80", 2, &back));
    assert_memory_equal(back.data, ((float[]){149, 128}), 2 * sizeof(float));
    buffer_free(&back);
}

/* Numbers that f16 can hold, so that every encoding gives the same floats back. */
TEST(every_binary_encoding_reads_back)
{
    static const float expected[] = {1, -2.5f, 0x1p-24f};
    for (int e = ENCODING_JSON + 1; e < ENCODING_INT8; e++) {
        float floats[] = {1, -2.5f, 0x1p-24f};
        const char *name = encoding_name((enum encoding)e);
        struct request *request = request_of((enum encoding)e, floats, 1, 3);
        struct buffer back = {0};
        reply_format(request);
        const struct buffer *reply = &request->output.reply;
        assert_true(encoding_read(name, reply->data, reply->length, &back));
        assert_int_equal(back.length, sizeof(expected));
        assert_memory_equal(back.data, expected, sizeof(expected));
        assert_false(encoding_read(name, reply->data, reply->length - 1, &back));
        assert_false(encoding_read("json", reply->data, reply->length, &back));
        assert_false(encoding_read("f8", reply->data, reply->length, &back));
        buffer_free(&back);
        buffer_free(&request->output.reply);
    }
    struct buffer back = {0};
    assert_false(encoding_read("base64", "AACA*w==", 8, &back)); /* not of its alphabet */
    assert_false(encoding_read("base64", "AAAA", 4, &back));     /* three bytes are no float */
    buffer_free(&back);
}

TEST(vectors_are_cut_and_then_normalised)
{
    float plain[] = {3, 4, 12, 0, 2, 5}, cut[] = {3, 4, 12, 0, 2, 5}, both[] = {3, 4, 12, 0, 2, 5};
    float first[] = {3, 4, 12}, second[] = {0, 2, 5}, expected[6];
    vector_normalize(first, 3);
    vector_normalize(second, 3);
    memcpy(expected, first, sizeof(first));
    memcpy(expected + 3, second, sizeof(second));
    struct request *request = request_of(ENCODING_F32, plain, 2, 3);
    request->output.normalize = true;
    expect_reply(request, expected, sizeof(expected));
    request = request_of(ENCODING_JSON, cut, 2, 3);
    request->output.dims = 2;
    expect_reply(request, "[[3,4],[0,2]]", 13);
    request = request_of(ENCODING_JSON, both, 2, 3);
    request->output.dims = 2;
    request->output.normalize = true;
    expect_reply(request, "[[0.6,0.8],[0,1]]", 17);
}

TEST(what_is_not_finite_never_leaves)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 6; i++) {
        float output[] = {1, bad[i / 2], 2};
        struct request *request = request_of(i % 2 == 0 ? ENCODING_JSON : ENCODING_F32, output, 3, 1);
        reply_format(request);
        assert_int_equal(request->retry.code, CODE_NON_FINITE);
        assert_true(request->retry.retryable);
        assert_true(request->retry.row_failed && request->retry.failed_index == 1);
        assert_int_equal(request->output.reply.length, 0);
    }
}

/* --- scores and labels --- */

static char no[] = "no", maybe[] = "maybe \"so\"", ja[] = "ja", *label_names[] = {no, maybe, ja};

/* A computed request for a head of `dim` labels, over these logits. */
static struct request *head_request(enum request_task task, const struct model_head *head, float *logits,
                                    uint32_t row_count)
{
    struct request *request = request_of(ENCODING_JSON, logits, row_count, head->labels);
    request->task = task;
    request->head = head;
    request->output.normalize = true; /* the model's default, which has no effect here */
    return request;
}

static void expect_text(struct request *request, const char *field, const char *text)
{
    assert_string_equal(reply_field(request), field);
    expect_reply(request, text, strlen(text));
}

TEST(labels_are_best_first)
{
    static const struct model_head head = {
        .labels = 3, .names = label_names, .classify = SCORING_SOFTMAX, .score = SCORING_UNSET};
    float raw[] = {-1, 2, 0.5f, 4, 4, 4}, soft[] = {0, 0, 0};
    struct request *request = head_request(TASK_CLASSIFY, &head, raw, 2);
    request->output.raw = true;
    expect_text(request, "labels",
                "[[{\"label\":\"maybe \\\"so\\\"\",\"score\":2},{\"label\":\"ja\",\"score\":0.5},"
                "{\"label\":\"no\",\"score\":-1}],[{\"label\":\"no\",\"score\":4},"
                "{\"label\":\"maybe \\\"so\\\"\",\"score\":4},{\"label\":\"ja\",\"score\":4}]]");
    request = head_request(TASK_CLASSIFY, &head, soft, 1);
    expect_text(request, "labels",
                "[{\"label\":\"no\",\"score\":0.33333334},{\"label\":\"maybe \\\"so\\\"\",\"score\":0.33333334},"
                "{\"label\":\"ja\",\"score\":0.33333334}]");
}

TEST(scores_are_in_the_order_of_the_documents)
{
    static const struct model_head head = {
        .labels = 1, .names = label_names, .classify = SCORING_SIGMOID, .score = SCORING_NONE};
    float logits[] = {0.25f, -3, 7, 0.25f}, floats[] = {1, 2}, best[] = {0.25f, -3, 7, 0.25f};
    struct request *request = head_request(TASK_RERANK, &head, logits, 4);
    expect_text(request, "scores", "[0.25,-3,7,0.25]");
    expect_text(head_request(TASK_RERANK, &head, logits, 1), "scores", "[0.25]");
    request = head_request(TASK_RERANK, &head, floats, 2);
    request->output.encoding = ENCODING_F32;
    expect_reply(request, (float[]){1, 2}, 2 * sizeof(float));
    request = head_request(TASK_RERANK, &head, best, 4);
    request->output.top_n = 3;
    expect_text(request, "top",
                "[{\"index\":2,\"score\":7},{\"index\":0,\"score\":0.25},{\"index\":3,\"score\":0.25}]");
    request->output.top_n = 100;
    expect_text(request, "top",
                "[{\"index\":2,\"score\":7},{\"index\":0,\"score\":0.25},{\"index\":3,\"score\":0.25},"
                "{\"index\":1,\"score\":-3}]");
}

/* The same logits as a label's score, or as that of a pair, which differ for an Identity CrossEncoder. */
TEST(logits_become_scores_by_the_task)
{
    static const struct model_head head = {
        .labels = 1, .names = label_names, .classify = SCORING_SIGMOID, .score = SCORING_NONE};
    float label[] = {0}, raw[] = {0}, pair[] = {0};
    expect_text(head_request(TASK_CLASSIFY, &head, label, 1), "labels", "[{\"label\":\"no\",\"score\":0.5}]");
    struct request *request = head_request(TASK_CLASSIFY, &head, raw, 1);
    request->output.raw = true;
    expect_text(request, "labels", "[{\"label\":\"no\",\"score\":0}]");
    expect_text(head_request(TASK_RERANK, &head, pair, 1), "scores", "[0]");
}

TEST(the_bound_holds_for_labels_that_are_all_escapes)
{
    static char escapes[] = "\x01\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f";
    static char *names[] = {escapes, escapes, escapes};
    static const struct model_head head = {.labels = 3, .names = names};
    float logits[] = {-1.2345678e-38f, -2.2345678e-38f, -3.2345678e-38f};
    struct request *request = head_request(TASK_CLASSIFY, &head, logits, 1);
    size_t bound = reply_bound(request);
    reply_format(request);
    assert_int_equal(request->retry.code, CODE_NONE);
    assert_true(request->output.reply.length > 3 * 6 * 12 && request->output.reply.capacity <= bound);
    buffer_free(&request->output.reply);
}

TEST(a_score_that_is_not_finite_names_its_text)
{
    static const struct model_head head = {.labels = 1, .names = label_names};
    float logits[] = {1, NAN, 2}, large[] = {1, 70000, 2};
    struct request *request = head_request(TASK_RERANK, &head, logits, 3);
    reply_format(request);
    assert_int_equal(request->retry.code, CODE_NON_FINITE);
    assert_int_equal(request->retry.failed_index, 1);
    request = head_request(TASK_RERANK, &head, large, 3);
    request->output.encoding = ENCODING_F16;
    reply_format(request);
    assert_int_equal(request->retry.code, CODE_BAD_REQUEST);
    assert_int_equal(request->retry.failed_index, 1);
}

static void expect_info(const struct request *request, const char *expected)
{
    struct buffer info = {0};
    reply_put_info(&info, request);
    assert_true(buffer_ok(&info));
    buffer_append(&info, "", 1);
    assert_string_equal(info.data, expected);
    buffer_free(&info);
}

TEST(info_of_a_result)
{
    float floats[8] = {0};
    struct request *request = request_of(ENCODING_F16, floats, 1, 4);
    strcpy(request->identity.name, "1-1");
    strcpy(request->identity.id, "1-1");
    request->rows[0].tokens = 3;
    request->lifetime.outcome = OUTCOME_DONE;
    request->lifetime.started_ns = 1000;
    request->lifetime.computed_ns = 1235567;
    request->retry.attempt = 1;
    expect_info(request, ",\"encoding\":\"f16\",\"dim\":4,\"tokens\":3,\"compute_ms\":1.235");
    request = request_of(ENCODING_JSON, floats, 2, 4);
    request->rows[0].tokens = 3;
    request->rows[1].tokens = 4;
    request->rows[1].truncated = true;
    request->retry.attempt = 2;
    expect_info(request, ",\"encoding\":\"json\",\"dim\":4,\"count\":2,\"tokens\":7,\"row_tokens\":[3,4],\"truncated\":"
                         "true,\"compute_ms\":0.000,"
                         "\"attempts\":2");
    request->task = TASK_CLASSIFY;
    request->inputs = false;
    expect_info(request, ",\"encoding\":\"json\",\"tokens\":7,\"truncated\":true,\"compute_ms\":0.000,\"attempts\":2");
}

TEST(info_of_an_error_and_its_echoes_are_escaped)
{
    struct request *request = request_of(ENCODING_JSON, NULL, 0, 4);
    request->lifetime.outcome = OUTCOME_ERROR;
    request->retry.attempt = 1;
    expect_info(request, ",\"retryable\":false,\"attempts\":1");
    request->retry.code = CODE_QUEUE_FULL;
    request->retry.retry_after_ms = 1234;
    request->retry.row_failed = true;
    request->retry.failed_index = 5;
    strcpy(request->identity.name, "1-1");
    strcpy(request->identity.id, "say \"hi\" \\ a/b");
    strcpy(request->identity.tenant, "acme:7");
    request->identity.meta = "\"\0\n\xc3\xa4";
    request->identity.meta_bytes = 5;
    request->identity.traceparent = "00-a";
    request->identity.traceparent_bytes = 4;
    request->identity.tracestate = "a=\"";
    request->identity.tracestate_bytes = 3;
    request->identity.ignored = "x,\"y";
    request->identity.ignored_bytes = 4;
    expect_info(
        request,
        ",\"retryable\":true,\"attempts\":1,\"index\":5,\"retry_after_ms\":1234,\"id\":\"say \\\"hi\\\" \\\\ a/b\","
        "\"meta\":\"\\\"\\u0000\\u000a\xc3\xa4\",\"tenant\":\"acme:7\",\"traceparent\":\"00-a\","
        "\"tracestate\":\"a=\\\"\",\"ignored\":\"x,\\\"y\"");
}

TEST(info_of_the_model)
{
    struct buffer info = {0};
    reply_put_model_info(&info, "a \"b\"\xff", "0123", "f32", "");
    buffer_append(&info, "", 1);
    assert_string_equal(info.data, ",\"model\":\"a \\\"b\\\"\\ufffd\",\"revision\":\"0123\"");
    info.length = 0;
    reply_put_model_info(&info, "m", "r", "bf16", "abc");
    buffer_append(&info, "", 1);
    assert_string_equal(info.data, ",\"model\":\"m\",\"revision\":\"r\",\"precision\":\"bf16\",\"engine\":\"abc\"");
    buffer_free(&info);
}

/* Tokens that share a long text: a reply holds as much as its text lets one expect, and no more. */
TEST(tokens_with_much_text_in_common_are_too_many)
{
    struct row row = {.text_bytes = 400};
    struct request request = {.task = TASK_TOKENIZE, .rows = &row, .row_count = 1};
    char text[400];
    struct tokenizer_token tokens[200];
    memset(text, ' ', sizeof text);
    for (uint32_t i = 0; i < 200; i++) { tokens[i] = (struct tokenizer_token){.until = 400}; }
    for (uint32_t count = 1; count <= 200; count += 199) {
        struct buffer to = {0};
        assert_int_equal(reply_put_tokens(&to, &request, NULL, text, tokens, count), count == 1);
        assert_true(buffer_ok(&to) && to.length <= reply_room(&request) + 500);
        buffer_free(&to);
    }
}
