/* Every field of a request: what is taken, what is refused, and under which code and name. */
#include "harness.h"

#include <stdlib.h>

#include "work/request.h"

static const struct request_rules rules = {
    .model_name = "mini",
    .model_id = "0123abcd",
    .encoding = ENCODING_JSON,
    .dim = 4,
    .max_tokens = 16,
    .max_text_bytes = 100,
    .default_ttl_s = 3600,
    .max_ttl_s = 7 * 86400,
    .error_ttl_s = 3600,
    .default_max_attempts = 4,
    .truncate = true,
};

/* Parses an entry of name, value, name, value, … NULL. */
static struct request *parse_as(enum request_class class, enum entry_origin origin, const char *const *pairs)
{
    static struct entry_field fields[200];
    size_t count = 0;
    for (; pairs[2 * count] != NULL; count++)
        fields[count] = (struct entry_field){pairs[2 * count], strlen(pairs[2 * count]), pairs[2 * count + 1],
                                             strlen(pairs[2 * count + 1])};
    struct entry entry = {
        .class = class, .id = {1795252518106, 7}, .origin = origin, .fields = fields, .field_count = count};
    struct request *request = request_parse(&rules, &entry, 42);
    assert_non_null(request);
    return request;
}

#define PARSE(...) parse_as(CLASS_NORMAL, ORIGIN_NEW, (const char *const[]){__VA_ARGS__, NULL})

static void expect(struct request *request, enum reply_code code, const char *named)
{
    if (request->code != code)
        print_message("%s: %s\n", reply_code_name(request->code), request->message);
    assert_int_equal(request->code, code);
    if (named != NULL && strstr(request->message, named) == NULL)
        fail_msg("'%s' does not name %s", request->message, named);
    request_free(request);
}

static void plain_text_gets_the_defaults(void **state)
{
    (void)state;
    struct request *request = PARSE("text", "hello world");
    assert_int_equal(request->code, CODE_NONE);
    assert_string_equal(request->name, "1795252518106-7");
    assert_string_equal(request->id, "1795252518106-7");
    assert_int_equal(request->row_count, 1);
    assert_int_equal(request->rows_left, 1);
    assert_memory_equal(request->rows[0].text, "hello world", 11);
    assert_int_equal(request->rows[0].text_bytes, 11);
    assert_int_equal(request->encoding, ENCODING_JSON);
    assert_int_equal(request->ttl_s, 3600);
    assert_int_equal(request->max_attempts, 4);
    assert_int_equal(request->attempt, 1);
    assert_int_equal(request->first_ms, 1795252518106);
    assert_int_equal(request->received_ns, 42);
    assert_true(request->truncate);
    assert_false(request->notify);
    assert_false(request->alone);
    assert_null(request->meta);
    request_free(request);
}

static void every_field_is_taken(void **state)
{
    (void)state;
    struct request *request = PARSE("id", "order-42", "text", "t", "encoding", "f32", "ttl", "604800", "max_attempts",
                                    "10", "truncate", "0", "notify", "1", "meta", "{\"a\":1}", "task", "embed", "model",
                                    "mini", "traceparent", "00-ab", "x-mine", "1", "odd", "2");
    assert_int_equal(request->code, CODE_NONE);
    assert_string_equal(request->id, "order-42");
    assert_string_equal(request->name, "1795252518106-7");
    assert_int_equal(request->encoding, ENCODING_F32);
    assert_int_equal(request->ttl_s, 604800);
    assert_int_equal(request->max_attempts, 10);
    assert_false(request->truncate);
    assert_true(request->notify);
    assert_int_equal(request->meta_bytes, 7);
    assert_memory_equal(request->meta, "{\"a\":1}", 7);
    assert_int_equal(request->unknown_fields, 1);
    request_free(request);
    expect(PARSE("text", "t", "model", "0123abcd"), CODE_NONE, NULL);
}

static void classes_have_prefixed_names(void **state)
{
    (void)state;
    const char *const pairs[] = {"text", "t", NULL};
    struct request *high = parse_as(CLASS_HIGH, ORIGIN_NEW, pairs), *low = parse_as(CLASS_LOW, ORIGIN_NEW, pairs);
    assert_string_equal(high->name, "high:1795252518106-7");
    assert_string_equal(low->id, "low:1795252518106-7");
    request_free(high);
    request_free(low);
}

static void unusable_ids_are_answered_under_the_name(void **state)
{
    (void)state;
    char long_id[130];
    memset(long_id, 'a', 129);
    long_id[129] = '\0';
    const char *const bad[] = {"", "a b", "a/b", "é", "1-0", "1795252518106-0", "high:1-1", "low:00-7", long_id};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct request *request = PARSE("text", "t", "id", bad[i]);
        assert_string_equal(request->id, request->name);
        expect(request, CODE_BAD_ID, "id");
    }
    const char *const good[] = {"a", "-", "1-", "-1", "1-2-3", "mid:1-1", "A.b_c:d-9", long_id + 1};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct request *request = PARSE("text", "t", "id", good[i]);
        assert_string_equal(request->id, good[i]);
        expect(request, CODE_NONE, NULL);
    }
}

static void text_must_be_there_whole_and_valid(void **state)
{
    (void)state;
    char large[102];
    memset(large, 'x', 101);
    large[101] = '\0';
    expect(PARSE("id", "a"), CODE_BAD_REQUEST, "text");
    expect(PARSE("text", ""), CODE_BAD_REQUEST, "text");
    expect(PARSE("text", large), CODE_TOO_LARGE, "text");
    expect(PARSE("text", large + 1), CODE_NONE, NULL);
    expect(PARSE("text", "ab\xff"), CODE_BAD_UTF8, "byte 2");
    expect(PARSE("text", "\xed\xa0\x80"), CODE_BAD_UTF8, "text");
    struct entry_field nul = {"text", 4, "a\0b", 3};
    struct entry entry = {.class = CLASS_NORMAL, .id = {1, 1}, .fields = &nul, .field_count = 1};
    struct request *request = request_parse(&rules, &entry, 0);
    assert_int_equal(request->rows[0].text_bytes, 3);
    expect(request, CODE_NONE, NULL);
}

static void values_out_of_range_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"ttl", "0"},          {"ttl", "604801"},      {"ttl", ""},         {"ttl", "-1"},
        {"ttl", "1.5"},        {"ttl", "+1"},          {"ttl", " 1"},       {"ttl", "99999999999999999999"},
        {"max_attempts", "0"}, {"max_attempts", "11"}, {"truncate", "2"},   {"truncate", ""},
        {"truncate", "true"},  {"notify", "2"},        {"notify", ""},      {"notify", "stream:web"},
        {"encoding", "JSON"},  {"encoding", ""},       {"encoding", "f16"}, {"encoding", "base64"},
        {"meta", ""},          {"_id", "x"},           {"_attempt", "0"},   {"_first_at", "soon"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        expect(PARSE("text", "t", bad[i][0], bad[i][1]), CODE_BAD_REQUEST, bad[i][0]);
    expect(PARSE("text", "t", "task", "rerank"), CODE_UNKNOWN_TASK, "task");
    expect(PARSE("text", "t", "model", "other"), CODE_WRONG_MODEL, "mini");
    expect(PARSE("text", "t", "model", ""), CODE_WRONG_MODEL, "model");
    expect(PARSE("text", "t", "meta", "\xff"), CODE_BAD_UTF8, "meta");
    static char large[4098];
    memset(large, 'm', 4097);
    expect(PARSE("text", "t", "meta", large), CODE_BAD_REQUEST, "meta");
    struct request *request = PARSE("text", "t", "meta", large + 1);
    assert_int_equal(request->meta_bytes, 4096);
    expect(request, CODE_NONE, NULL);
}

static void fields_of_later_versions_are_refused_not_ignored(void **state)
{
    (void)state;
    static const char *const later[] = {"inputs",     "query",      "pairs",      "cancel", "delay",
                                        "not_before", "expires_in", "expires_at", "track",  "tenant",
                                        "normalize",  "prompt",     "prefix",     "dims"};
    for (size_t i = 0; i < sizeof(later) / sizeof(later[0]); i++)
        expect(PARSE("text", "t", later[i], "1"), CODE_BAD_REQUEST, later[i]);
}

static void doubled_fields_are_refused(void **state)
{
    (void)state;
    expect(PARSE("text", "a", "text", "b"), CODE_BAD_REQUEST, "text");
    expect(PARSE("text", "a", "ttl", "1", "ttl", "1"), CODE_BAD_REQUEST, "ttl");
    struct request *request = PARSE("text", "a", "id", "one", "id", "two");
    assert_string_equal(request->id, request->name);
    expect(request, CODE_BAD_REQUEST, "id");
    expect(PARSE("text", "a", "mine", "1", "mine", "2"), CODE_NONE, NULL);
}

static void too_many_fields_get_no_echo_but_their_id(void **state)
{
    (void)state;
    const char *pairs[2 * 66 + 1] = {"id", "me", "text", "t", "meta", "m"};
    for (int i = 3; i < 64; i++)
        pairs[2 * i] = "x-a", pairs[2 * i + 1] = "1";
    expect(parse_as(CLASS_NORMAL, ORIGIN_NEW, pairs), CODE_NONE, NULL);
    pairs[2 * 64] = "x-b", pairs[2 * 64 + 1] = "1";
    struct request *request = parse_as(CLASS_NORMAL, ORIGIN_NEW, pairs);
    assert_string_equal(request->id, "me");
    assert_null(request->meta);
    expect(request, CODE_BAD_REQUEST, "fields");
}

static void a_retry_has_room_for_the_daemons_fields(void **state)
{
    (void)state;
    const char *pairs[2 * 68 + 1] = {"_id", "1-1", "_attempt", "2", "_first_at", "1", "text", "t", "id", "me"};
    for (int i = 5; i < 67; i++)
        pairs[2 * i] = "x-a", pairs[2 * i + 1] = "1";
    struct request *request = parse_as(CLASS_NORMAL, ORIGIN_NEW, pairs);
    assert_string_equal(request->name, "1-1");
    assert_int_equal(request->attempt, 2);
    expect(request, CODE_NONE, NULL);
    pairs[2 * 67] = "x-b", pairs[2 * 67 + 1] = "1";
    expect(parse_as(CLASS_NORMAL, ORIGIN_NEW, pairs), CODE_BAD_REQUEST, "fields");
}

static void errors_keep_id_ttl_and_meta(void **state)
{
    (void)state;
    struct request *request = PARSE("text", "", "meta", "m", "ttl", "9000", "id", "me", "notify", "1");
    assert_string_equal(request->id, "me");
    assert_int_equal(request->ttl_s, 9000);
    assert_true(request->notify);
    assert_int_equal(request->meta_bytes, 1);
    assert_false(request->retryable);
    expect(request, CODE_BAD_REQUEST, "text");
}

static void promoted_retries_keep_their_identity(void **state)
{
    (void)state;
    struct request *request =
        PARSE("_id", "1700000000000-3", "_attempt", "2", "_first_at", "1690000000000", "text", "t");
    assert_string_equal(request->name, "1700000000000-3");
    assert_string_equal(request->id, "1700000000000-3");
    assert_int_equal(request->attempt, 2);
    assert_int_equal(request->first_ms, 1690000000000);
    expect(request, CODE_NONE, NULL);
    request = PARSE("text", "t", "id", "mine", "_id", "low:1700000000000-3");
    assert_string_equal(request->name, "low:1700000000000-3");
    assert_string_equal(request->id, "mine");
    assert_int_equal(request->first_ms, 1700000000000);
    expect(request, CODE_NONE, NULL);
}

static void reclaimed_entries_run_alone(void **state)
{
    (void)state;
    const char *const pairs[] = {"text", "t", NULL};
    static const enum entry_origin origins[] = {ORIGIN_NEW, ORIGIN_OWN, ORIGIN_RELEASED, ORIGIN_RECLAIMED};
    for (size_t i = 0; i < 4; i++) {
        struct request *request = parse_as(CLASS_NORMAL, origins[i], pairs);
        assert_int_equal(request->alone, origins[i] == ORIGIN_RECLAIMED);
        request_free(request);
    }
}

static void an_unread_entry_is_too_large(void **state)
{
    (void)state;
    struct entry entry = {.class = CLASS_NORMAL, .id = {1, 1}, .oversize = true};
    expect(request_parse(&rules, &entry, 0), CODE_TOO_LARGE, NULL);
}

static void entry_ids_are_read_strictly(void **state)
{
    (void)state;
    struct entry_id id;
    assert_true(entry_id_parse("18446744073709551615-0", 22, &id));
    assert_true(id.ms == UINT64_MAX && id.seq == 0);
    char text[ENTRY_ID_TEXT];
    entry_id_format((struct entry_id){UINT64_MAX, UINT64_MAX}, text);
    assert_string_equal(text, "18446744073709551615-18446744073709551615");
    static const char *const bad[] = {"", "-", "1", "1-", "-1", "1-2-3", "a-1", "18446744073709551616-0", "1 -1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(entry_id_parse(bad[i], strlen(bad[i]), &id));
    assert_true(entry_id_compare((struct entry_id){1, 2}, (struct entry_id){1, 3}) < 0);
    assert_true(entry_id_compare((struct entry_id){2, 0}, (struct entry_id){1, 9}) > 0);
    assert_int_equal(entry_id_compare((struct entry_id){2, 1}, (struct entry_id){2, 1}), 0);
}

static void lists_keep_order_and_count(void **state)
{
    (void)state;
    struct request requests[5] = {0};
    struct request_list list = {0}, more = {0};
    assert_null(request_list_pop(&list));
    for (int i = 0; i < 5; i++)
        request_list_push(i < 2 ? &list : &more, &requests[i]);
    request_list_join(&list, &more);
    request_list_join(&list, &more);
    assert_int_equal(list.count, 5);
    assert_int_equal(more.count, 0);
    for (int i = 0; i < 5; i++)
        assert_ptr_equal(request_list_pop(&list), &requests[i]);
    assert_null(list.last);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(plain_text_gets_the_defaults),
    cmocka_unit_test(every_field_is_taken),
    cmocka_unit_test(classes_have_prefixed_names),
    cmocka_unit_test(unusable_ids_are_answered_under_the_name),
    cmocka_unit_test(text_must_be_there_whole_and_valid),
    cmocka_unit_test(values_out_of_range_are_refused_by_name),
    cmocka_unit_test(fields_of_later_versions_are_refused_not_ignored),
    cmocka_unit_test(doubled_fields_are_refused),
    cmocka_unit_test(too_many_fields_get_no_echo_but_their_id),
    cmocka_unit_test(a_retry_has_room_for_the_daemons_fields),
    cmocka_unit_test(errors_keep_id_ttl_and_meta),
    cmocka_unit_test(promoted_retries_keep_their_identity),
    cmocka_unit_test(reclaimed_entries_run_alone),
    cmocka_unit_test(an_unread_entry_is_too_large),
    cmocka_unit_test(entry_ids_are_read_strictly),
    cmocka_unit_test(lists_keep_order_and_count),
};

TEST_MAIN(cases)
