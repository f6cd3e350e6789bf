/* Making a request of an entry, apart from its fields, which are in test_fields.c. */
#include "parsing.h"

TEST(plain_text_gets_the_defaults)
{
    struct request *request = PARSE("text", "hello world");
    assert_int_equal(request->retry.code, CODE_NONE);
    assert_string_equal(request->identity.name, "1795252518106-7");
    assert_string_equal(request->identity.id, "1795252518106-7");
    assert_int_equal(request->row_count, 1);
    assert_int_equal(request->rows_left, 1);
    assert_memory_equal(request->rows[0].text, "hello world", 11);
    assert_int_equal(request->rows[0].text_bytes, 11);
    assert_int_equal(request->output.encoding, ENCODING_JSON);
    assert_int_equal(request->output.ttl_s, 3600);
    assert_int_equal(request->retry.max_attempts, 4);
    assert_int_equal(request->retry.attempt, 1);
    assert_int_equal(request->identity.first_ms, 1795252518106);
    assert_int_equal(request->lifetime.received_ns, 42);
    assert_true(request->truncate);
    assert_false(request->output.notify);
    assert_false(request->retry.quarantined);
    assert_false(request->inputs);
    assert_true(request->output.normalize);
    assert_int_equal(request->output.dims, 4);
    assert_int_equal(request->lifetime.due_at_ms, 0);
    assert_int_equal(request->lifetime.expires_at_ms, 0);
    assert_string_equal(request->identity.tenant, "");
    assert_string_equal(request->output.results, "");
    assert_string_equal(request->identity.target, "");
    assert_null(request->prompt);
    assert_null(request->identity.meta);
    assert_null(request->identity.traceparent);
    assert_null(request->identity.tracestate);
    request_free(request);
}

TEST(classes_have_prefixed_names)
{
    const char *const pairs[] = {"text", "t", NULL};
    struct request *high = parse_as(CLASS_HIGH, ORIGIN_NEW, pairs), *low = parse_as(CLASS_LOW, ORIGIN_NEW, pairs);
    assert_string_equal(high->identity.name, "high:1795252518106-7");
    assert_string_equal(low->identity.id, "low:1795252518106-7");
    request_free(high);
    request_free(low);
}

TEST(doubled_fields_are_refused)
{
    expect(PARSE("text", "a", "text", "b"), CODE_BAD_REQUEST, "text");
    expect(PARSE("text", "a", "ttl", "1", "ttl", "1"), CODE_BAD_REQUEST, "ttl");
    struct request *request = PARSE("text", "a", "id", "one", "id", "two");
    assert_string_equal(request->identity.id, request->identity.name);
    expect(request, CODE_BAD_REQUEST, "id");
    expect(PARSE("text", "a", "mine", "1", "mine", "2"), CODE_NONE, NULL);
}

TEST(too_many_fields_get_no_echo_but_their_id)
{
    const char *pairs[2 * 66 + 1] = {"id", "me", "text", "t", "meta", "m"};
    for (int i = 3; i < 64; i++) { pairs[2 * i] = "x-a", pairs[2 * i + 1] = "1"; }
    expect(parse_as(CLASS_NORMAL, ORIGIN_NEW, pairs), CODE_NONE, NULL);
    pairs[2 * 64] = "x-b", pairs[2 * 64 + 1] = "1";
    struct request *request = parse_as(CLASS_NORMAL, ORIGIN_NEW, pairs);
    assert_string_equal(request->identity.id, "me");
    assert_null(request->identity.meta);
    expect(request, CODE_BAD_REQUEST, "fields");
}

TEST(a_retry_has_room_for_the_daemons_fields)
{
    const char *pairs[2 * 68 + 1] = {"_id", "1-1", "_attempt", "2", "_first_at", "1", "text", "t", "id", "me"};
    for (int i = 5; i < 67; i++) { pairs[2 * i] = "x-a", pairs[2 * i + 1] = "1"; }
    struct request *request = parse_as(CLASS_NORMAL, ORIGIN_NEW, pairs);
    assert_string_equal(request->identity.name, "1-1");
    assert_int_equal(request->retry.attempt, 2);
    expect(request, CODE_NONE, NULL);
    pairs[2 * 67] = "x-b", pairs[2 * 67 + 1] = "1";
    expect(parse_as(CLASS_NORMAL, ORIGIN_NEW, pairs), CODE_BAD_REQUEST, "fields");
}

TEST(errors_keep_id_ttl_and_meta)
{
    struct request *request = PARSE("text", "", "meta", "m", "ttl", "9000", "id", "me", "notify", "1");
    assert_string_equal(request->identity.id, "me");
    assert_int_equal(request->output.ttl_s, 9000);
    assert_true(request->output.notify);
    assert_int_equal(request->identity.meta_bytes, 1);
    assert_false(request->retry.retryable);
    expect(request, CODE_BAD_REQUEST, "text");
}

TEST(promoted_retries_keep_their_identity)
{
    struct request *request =
        PARSE("_id", "1700000000000-3", "_attempt", "2", "_first_at", "1690000000000", "text", "t");
    assert_string_equal(request->identity.name, "1700000000000-3");
    assert_string_equal(request->identity.id, "1700000000000-3");
    assert_int_equal(request->retry.attempt, 2);
    assert_int_equal(request->identity.first_ms, 1690000000000);
    expect(request, CODE_NONE, NULL);
    request = PARSE("text", "t", "id", "mine", "_id", "low:1700000000000-3");
    assert_string_equal(request->identity.name, "low:1700000000000-3");
    assert_string_equal(request->identity.id, "mine");
    assert_int_equal(request->identity.first_ms, 1700000000000);
    expect(request, CODE_NONE, NULL);
}

TEST(suspects_with_a_run_on_record_run_alone)
{
    static const enum entry_origin origins[] = {ORIGIN_NEW, ORIGIN_OWN, ORIGIN_RELEASED, ORIGIN_RECLAIMED};
    struct entry_field text = {"text", 4, "t", 1};
    for (size_t i = 0; i < 12; i++) {
        struct entry entry = {.id = {1, 1},
                              .origin = origins[i / 3],
                              .quarantine_runs = i % 3 == 1,
                              .group_run = i % 3 == 2,
                              .fields = &text,
                              .field_count = 1};
        struct request *request = request_parse(&rules, &entry, 0);
        assert_int_equal(request->retry.suspect, origins[i / 3] == ORIGIN_RECLAIMED || i % 3 > 0);
        assert_int_equal(request->retry.quarantined, i % 3 > 0);
        expect(request, CODE_NONE, NULL);
    }
}

TEST(an_unread_entry_is_too_large)
{
    struct entry entry = {.class = CLASS_NORMAL, .id = {1, 1}, .oversize = true};
    expect(request_parse(&rules, &entry, 0), CODE_TOO_LARGE, NULL);
}

TEST(a_vanished_entry_is_an_internal_error)
{
    struct entry entry = {.class = CLASS_LOW, .id = {1, 1}, .vanished = true};
    struct request *request = request_parse(&rules, &entry, 0);
    assert_string_equal(request->identity.id, "low:1-1");
    assert_int_equal(request->row_count, 0);
    expect(request, CODE_INTERNAL, "deleted");
}

TEST(a_shed_entry_finds_its_queue_full)
{
    const char *const pairs[] = {"text", "t", "id", "mine", "meta", "m", "notify", "1", NULL};
    struct request *request = parse_as(CLASS_HIGH, ORIGIN_SHED, pairs);
    assert_string_equal(request->identity.id, "mine");
    assert_true(request->output.notify);
    assert_int_equal(request->identity.meta_bytes, 1);
    assert_false(request->retry.retryable); /* by us */
    expect(request, CODE_QUEUE_FULL, NULL);
    const char *const bad[] = {"text", "", NULL};
    expect(parse_as(CLASS_HIGH, ORIGIN_SHED, bad), CODE_QUEUE_FULL, NULL);
}

/* The weight that credit counts must be the largest that can be held: the parts are added up here by hand. */
TEST(the_weight_bounds_what_is_held)
{
    struct request *request = PARSE("inputs", "[\"a\", \"bb\", \"cccccccccccccccccccc\"]", "encoding", "f32");
    size_t values = strlen("f32") + strlen("embed"); /* the task, if the entry names none */
    size_t allocated = sizeof(struct request) + 3 * sizeof(struct row) + 23 + values;
    size_t ids = (3 + 4 + 16) * sizeof(int32_t), floats = 3 * 4 * sizeof(float), reply = 64;
    assert_int_equal(request->bytes, allocated + ids + floats + reply);
    assert_int_equal(request->tokens, 2 + 2 + 7);
    expect(request, CODE_NONE, NULL);
    request = PARSE("text", "t", "ttl", "0");
    assert_int_equal(request->bytes, sizeof(struct request) + sizeof(struct row) + strlen("t") + strlen("0embed"));
    assert_int_equal(request->tokens, 0);
    expect(request, CODE_BAD_REQUEST, "ttl");
}

TEST(entry_ids_are_read_strictly)
{
    struct entry_id id;
    assert_true(entry_id_parse("18446744073709551615-0", 22, &id));
    assert_true(id.ms == UINT64_MAX && id.seq == 0);
    char text[ENTRY_ID_TEXT];
    entry_id_format((struct entry_id){UINT64_MAX, UINT64_MAX}, text);
    assert_string_equal(text, "18446744073709551615-18446744073709551615");
    static const char *const bad[] = {"", "-", "1", "1-", "-1", "1-2-3", "a-1", "18446744073709551616-0", "1 -1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(entry_id_parse(bad[i], strlen(bad[i]), &id));
    }
    assert_true(entry_id_compare((struct entry_id){1, 2}, (struct entry_id){1, 3}) < 0);
    assert_true(entry_id_compare((struct entry_id){2, 0}, (struct entry_id){1, 9}) > 0);
    assert_int_equal(entry_id_compare((struct entry_id){2, 1}, (struct entry_id){2, 1}), 0);
}

TEST(lists_keep_order_and_count)
{
    struct request requests[5] = {0};
    struct request_list list = {0}, more = {0};
    assert_null(request_list_pop(&list));
    for (int i = 0; i < 5; i++) { request_list_push(i < 2 ? &list : &more, &requests[i]); }
    request_list_join(&list, &more);
    request_list_join(&list, &more);
    assert_int_equal(list.count, 5);
    assert_int_equal(more.count, 0);
    for (int i = 0; i < 5; i++) { assert_ptr_equal(request_list_pop(&list), &requests[i]); }
    assert_null(list.last);
}
