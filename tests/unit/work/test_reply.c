/* Reply bytes: each float reads back to the same bits, NaN never leaves. */
#include "harness.h"

#include <math.h>
#include <stdlib.h>

#include "work/reply.h"

static void reads_back(uint32_t bits)
{
    float value, back;
    char text[REPLY_FLOAT_MAX + 1];
    memcpy(&value, &bits, sizeof(value));
    size_t length = reply_put_float(text, value);
    assert_true(length > 0 && length <= REPLY_FLOAT_MAX);
    text[length] = '\0';
    back = strtof(text, NULL);
    if (memcmp(&value, &back, sizeof(value)) != 0)
        fail_msg("%a became %s", (double)value, text);
}

/* Every exponent with many mantissas, both signs; 397 is prime to 2^32. */
static void floats_read_back_over_the_whole_range(void **state)
{
    (void)state;
    for (uint64_t bits = 0; bits < 0x100000000u; bits += 397 * 3)
        if ((bits >> 23 & 255) != 255)
            reads_back((uint32_t)bits);
}

/* Where formatters go wrong: subnormals, powers of two and of ten and their neighbours, the largest. */
static void floats_read_back_at_the_edges(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 70000; bits++)
        reads_back(bits);
    for (uint32_t exponent = 0; exponent < 255; exponent++)
        for (uint32_t off = 0; off < 400; off++) {
            reads_back((exponent << 23) + off);
            reads_back(((exponent + 1) << 23) - 1 - off);
        }
    for (int power = -45; power < 39; power++) {
        float value = (float)pow(10, power);
        uint32_t bits;
        memcpy(&bits, &value, sizeof(bits));
        for (uint32_t off = 0; off < 200; off++)
            if (bits >= 100)
                reads_back(bits - 100 + off);
    }
}

static void floats_print_short(void **state)
{
    (void)state;
    static const struct {
        float value;
        const char *text;
    } examples[] = {
        {0.0f, "0"},
        {-0.0f, "-0.0"},
        {1.0f, "1"},
        {-1.5f, "-1.5"},
        {0.1f, "0.100000001"},
        {100.0f, "100"},
        {0.25f, "0.25"},
        {-0.0123456789f, "-0.0123456791"},
        {1e9f, "1e+09"},
        {1.5e-7f, "1.50000005e-07"},
        {1e-5f, "9.99999975e-06"},
        {123456784.0f, "123456784"},
        {1.5e-5f, "0.0000149999996"},
    };
    for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
        char text[REPLY_FLOAT_MAX + 1];
        text[reply_put_float(text, examples[i].value)] = '\0';
        assert_string_equal(text, examples[i].text);
    }
}

static struct request *request_of(enum encoding encoding, struct row *rows, uint32_t row_count, uint32_t dim)
{
    static struct request request;
    request = (struct request){.encoding = encoding, .rows = rows, .row_count = row_count, .dim = dim};
    return &request;
}

static void json_is_an_array_or_an_array_of_arrays(void **state)
{
    (void)state;
    float one[] = {1, -0.5f, 0.25f}, two[] = {0, 2, 3};
    struct row rows[] = {{.output = one}, {.output = two}};
    struct request *request = request_of(ENCODING_JSON, rows, 1, 3);
    reply_format(request);
    assert_int_equal(request->reply.length, 13);
    assert_memory_equal(request->reply.data, "[1,-0.5,0.25]", 13);
    buffer_free(&request->reply);
    request = request_of(ENCODING_JSON, rows, 2, 3);
    reply_format(request);
    assert_int_equal(request->reply.length, 23);
    assert_memory_equal(request->reply.data, "[[1,-0.5,0.25],[0,2,3]]", 23);
    buffer_free(&request->reply);
}

static void f32_is_little_endian_bytes(void **state)
{
    (void)state;
    float one[] = {1, -2};
    struct row row = {.output = one};
    struct request *request = request_of(ENCODING_F32, &row, 1, 2);
    reply_format(request);
    assert_int_equal(request->reply.length, 8);
    assert_memory_equal(request->reply.data, "\0\0\x80\x3f\0\0\0\xc0", 8);
    buffer_free(&request->reply);
}

static void what_is_not_finite_never_leaves(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 6; i++) {
        float output[] = {1, bad[i / 2], 2};
        struct row row = {.output = output};
        struct request *request = request_of(i % 2 == 0 ? ENCODING_JSON : ENCODING_F32, &row, 1, 3);
        reply_format(request);
        assert_int_equal(request->code, CODE_NON_FINITE);
        assert_true(request->retryable);
        assert_int_equal(request->reply.length, 0);
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(floats_read_back_over_the_whole_range),
    cmocka_unit_test(floats_read_back_at_the_edges),
    cmocka_unit_test(floats_print_short),
    cmocka_unit_test(json_is_an_array_or_an_array_of_arrays),
    cmocka_unit_test(f32_is_little_endian_bytes),
    cmocka_unit_test(what_is_not_finite_never_leaves),
};

TEST_MAIN(cases)
