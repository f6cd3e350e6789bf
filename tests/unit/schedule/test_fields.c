/* Every field of a request: accepted values, and refused ones with their code and the name of the field. */
#include "parsing.h"
#include "schedule/encodings.h"

#include "schedule/reply.h"

#define PARENT "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

/* A text of that many letters. */
static const char *letters(size_t count)
{
    static char text[4200];
    assert_true(count < sizeof text);
    memset(text, 'a', count);
    text[count] = '\0';
    return text;
}

TEST(every_field_is_taken)
{
    struct request *request = PARSE("id", "order-42", "text", "t", "encoding", "f32", "ttl", "604800", "max_attempts",
                                    "10", "truncate", "0", "notify", "1", "meta", "{\"a\":1}", "task", "embed", "model",
                                    "mini", "traceparent", PARENT, "tracestate", "a=1,b=2", "x-mine", "1", "odd", "2",
                                    "tenant", "acme:7", "normalize", "0", "dims", "3", "prompt", "query");
    assert_int_equal(request->retry.code, CODE_NONE);
    assert_string_equal(request->identity.id, "order-42");
    assert_string_equal(request->identity.name, "1795252518106-7");
    assert_int_equal(request->output.encoding, ENCODING_F32);
    assert_int_equal(request->output.ttl_s, 604800);
    assert_int_equal(request->retry.max_attempts, 10);
    assert_false(request->truncate);
    assert_true(request->output.notify);
    assert_int_equal(request->identity.meta_bytes, 7);
    assert_memory_equal(request->identity.meta, "{\"a\":1}", 7);
    assert_int_equal(request->identity.traceparent_bytes, strlen(PARENT));
    assert_memory_equal(request->identity.traceparent, PARENT, strlen(PARENT));
    assert_int_equal(request->identity.tracestate_bytes, 7);
    assert_memory_equal(request->identity.tracestate, "a=1,b=2", 7);
    assert_true(request->identity.sampled);
    assert_string_equal(request->identity.tenant, "acme:7");
    assert_false(request->output.normalize);
    assert_int_equal(request->output.dims, 3);
    assert_int_equal(request->dim, 4);
    assert_memory_equal(request->prompt, "query: ", 7);
    assert_int_equal(request->identity.ignored_bytes, 3);
    assert_memory_equal(request->identity.ignored, "odd", 3);
    request_free(request);
    expect(PARSE("text", "t", "model", "0123abcd"), CODE_NONE, NULL);
}

/* Frees the request. Shapes: expected: what its reply says it ignored; NULL: nothing. */
static void expect_ignored(struct request *request, const char *expected)
{
    assert_int_equal(request->identity.ignored != NULL, expected != NULL);
    assert_int_equal(request->identity.ignored_bytes, expected ? strlen(expected) : 0);
    if (expected) { assert_memory_equal(request->identity.ignored, expected, strlen(expected)); }
    request_free(request);
}

TEST(unknown_fields_are_named)
{
    char long_name[] = "0123456789012345678901234567890123456789012345678901234567890\xe2\x82\xac, and more";
    expect_ignored(PARSE("text", "t"), NULL);
    expect_ignored(PARSE("x-", "1", "text", "t", "x-mine", "2", "x-other", "3"), NULL);
    expect_ignored(PARSE("priority", "1", "text", "t", "expire_in", "5000", "meta", "m"), "priority,expire_in");
    expect_ignored(PARSE("tekst", "1"), "tekst");
    expect_ignored(PARSE("text", "t", "X-mine", "1", "x", "2", "_foo", "3", "Text", "4"), "X-mine,x,_foo,Text");
    expect_ignored(
        PARSE("text", "t", "a,b", "1", "tab\t\x1b[2J", "2", "\xff\xc3", "3", "", "4", "priorit\xc3\xa9", "5"),
        "a?b,tab??[2J,??,?,priorit\xc3\xa9");
    expect_ignored(PARSE("text", "t", long_name, "1"),
                   "0123456789012345678901234567890123456789012345678901234567890\xe2\x82\xac");
    expect_ignored(PARSE("text", "t", long_name + 1, "1"),
                   "123456789012345678901234567890123456789012345678901234567890\xe2\x82\xac?");
    long_name[60] = 'x';
    long_name[61] = 'y';
    long_name[62] = '\xc3';
    long_name[63] = '\xa9';
    expect_ignored(PARSE("text", "t", long_name + 1, "1"),
                   "12345678901234567890123456789012345678901234567890123456789xy\xc3\xa9?");
    expect_ignored(PARSE("a", "", "b", "", "c", "", "d", "", "text", "t", "e", "", "f", "", "g", "", "h", ""),
                   "a,b,c,d,e,f,g,h");
    expect_ignored(PARSE("a", "", "b", "", "c", "", "d", "", "text", "t", "e", "", "f", "", "g", "", "h", "", "i", ""),
                   "a,b,c,d,e,f,g,h,...");
}

TEST(the_field_that_was_meant)
{
    static const struct {
        const char *name, *nearest;
    } cases[] = {{"expire_in", "expires_in"},
                 {"Text", "text"},
                 {"txt", "text"},
                 {"normalise", "normalize"},
                 {"max_attempt", "max_attempts"},
                 {"input", "inputs"},
                 {"topn", "top_n"},
                 {"priority", NULL},
                 {"i", NULL},
                 {"di", NULL},
                 {"", NULL},
                 {"attempt", NULL},
                 {"pair", "pairs"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *nearest = request_nearest_field(cases[i].name, strlen(cases[i].name));
        if (!cases[i].nearest || !nearest) {
            assert_ptr_equal(nearest, cases[i].nearest);
        } else {
            assert_string_equal(nearest, cases[i].nearest);
        }
    }
    assert_string_equal(request_nearest_field("expire_in,priority", 9), "expires_in");
    char longer[300];
    memset(longer, 'x', sizeof longer);
    assert_null(request_nearest_field(longer, sizeof longer));
}

TEST(every_encoding_is_taken)
{
    static const char *const names[] = {"json", "f32", "f16", "base64", "int8", "ubinary"};
    for (int i = 0; i < ENCODING_COUNT; i++) {
        struct request *request = PARSE("text", "t", "encoding", names[i]);
        assert_int_equal(request->output.encoding, i);
        assert_string_equal(encoding_name(request->output.encoding), names[i]);
        expect(request, CODE_NONE, NULL);
    }
}

TEST(unusable_ids_are_answered_under_the_name)
{
    const char *long_id = letters(129);
    const char *const bad[] = {
        "",     "é", "a\tb", "1795252518106-0", "1000000000000-7", "high:1795252518106-1", "low:001795252518106-7",
        long_id};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct request *request = PARSE("text", "t", "id", bad[i]);
        assert_string_equal(request->identity.id, request->identity.name);
        expect(request, CODE_BAD_ID, "id");
    }
    const char *const good[] = {"a",
                                "-",
                                "1-",
                                "-1",
                                "1-2-3",
                                "12-34",
                                "high:1-1",
                                "999999999999-0",
                                "mid:1795252518106-1",
                                "user 42",
                                "a/b",
                                "A.b_c:d-9",
                                long_id + 1};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct request *request = PARSE("text", "t", "id", good[i]);
        assert_string_equal(request->identity.id, good[i]);
        expect(request, CODE_NONE, NULL);
    }
}

TEST(text_must_be_there_whole_and_valid)
{
    const char *large = letters(101);
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

TEST(inputs_become_rows)
{
    struct request *request =
        PARSE("meta", "m", "inputs", "[\"one\", \"t\\u0077o\", \"\\u0000\"]", "traceparent", PARENT);
    assert_int_equal(request->retry.code, CODE_NONE);
    assert_true(request->inputs);
    assert_int_equal(request->row_count, 3);
    assert_int_equal(request->rows_left, 3);
    static const char *const texts[] = {"one", "two", "\0"};
    static const size_t lengths[] = {3, 3, 1};
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(request->rows[i].request, request);
        assert_int_equal(request->rows[i].text_bytes, lengths[i]);
        assert_memory_equal(request->rows[i].text, texts[i], lengths[i]);
    }
    assert_memory_equal(request->identity.meta, "m", 1);
    assert_memory_equal(request->identity.traceparent, PARENT, strlen(PARENT));
    request_free(request);
    request = PARSE("inputs", "[\"one\"]");
    assert_true(request->inputs);
    assert_int_equal(request->row_count, 1);
    expect(request, CODE_NONE, NULL);
}

TEST(bad_inputs_say_which_one)
{
    static const struct {
        const char *inputs;
        enum reply_code code;
        int index; /* -1: none */
    } cases[] = {
        {"", CODE_BAD_REQUEST, -1},
        {"one", CODE_BAD_REQUEST, -1},
        {"\"one\"", CODE_BAD_REQUEST, -1},
        {"{}", CODE_BAD_REQUEST, -1},
        {"[]", CODE_BAD_REQUEST, -1},
        {"[\"a\"", CODE_BAD_REQUEST, -1},
        {"[\"a\",]", CODE_BAD_REQUEST, -1},
        {"[\"a\"] x", CODE_BAD_REQUEST, -1},
        {"[\"a\", \"\"]", CODE_BAD_REQUEST, 1},
        {"[1]", CODE_BAD_REQUEST, 0},
        {"[\"a\", [\"b\"]]", CODE_BAD_REQUEST, 1},
        {"[\"a\", \"b\", null]", CODE_BAD_REQUEST, 2},
        {"[\"a\", \"\\x\"]", CODE_BAD_REQUEST, 1},
        {"[\"a\nb\"]", CODE_BAD_REQUEST, 0},
        {"[\"a\", \"\xff\"]", CODE_BAD_UTF8, 1},
        {"[\"\\ud800\"]", CODE_BAD_UTF8, 0},
        {"[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\"]", CODE_TOO_MANY_INPUTS, -1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct request *request = PARSE("inputs", cases[i].inputs);
        assert_int_equal(request->row_count, 0);
        assert_int_equal(request->retry.row_failed, cases[i].index >= 0);
        if (cases[i].index >= 0) { assert_int_equal(request->retry.failed_index, cases[i].index); }
        expect(request, cases[i].code, "inputs");
    }
    char large[120] = "[\"a\",\"";
    memset(large + 6, 'x', 100);
    strcpy(large + 106, "\"]");
    expect(PARSE("inputs", large), CODE_TOO_LARGE, "inputs");
    strcpy(large + 105, "\"]");
    expect(PARSE("inputs", large), CODE_NONE, NULL);
}

TEST(there_is_one_thing_to_do)
{
    expect(PARSE("x-a", "1"), CODE_BAD_REQUEST, "text");
    expect(PARSE("x-a", "1"), CODE_BAD_REQUEST, "inputs");
    expect(PARSE("text", "t", "inputs", "[\"a\"]"), CODE_BAD_REQUEST, "inputs");
    expect(PARSE("inputs", "[\"a\", \"b\"]", "text", "t"), CODE_BAD_REQUEST, "text");
    expect(PARSE("inputs", "[\"a\"]", "inputs", "[\"a\"]"), CODE_BAD_REQUEST, "inputs");
}

TEST(values_out_of_range_are_refused_by_name)
{
    static const char *const bad[][2] = {
        {"ttl", "0"},
        {"ttl", "604801"},
        {"ttl", ""},
        {"ttl", "-1"},
        {"ttl", "1.5"},
        {"ttl", "+1"},
        {"ttl", " 1"},
        {"ttl", "99999999999999999999"},
        {"max_attempts", "0"},
        {"max_attempts", "11"},
        {"truncate", "2"},
        {"truncate", ""},
        {"truncate", "true"},
        {"normalize", "2"},
        {"normalize", ""},
        {"normalize", "01"},
        {"dims", "0"},
        {"dims", "5"},
        {"dims", ""},
        {"dims", "2.0"},
        {"notify", "2"},
        {"notify", ""},
        {"notify", "stream"},
        {"notify", "stream:"},
        {"notify", "stream:Web"},
        {"notify", "stream:a/b"},
        {"stream", ""},
        {"stream", "Web"},
        {"stream", "web"}, /* only with task generate */
        {"encoding", "JSON"},
        {"encoding", ""},
        {"encoding", "f8"},
        {"encoding", "base64 "},
        {"meta", ""},
        {"tenant", ""},
        {"tenant", "a b"},
        {"tenant", "\xc3\xa9"},
        {"prompt", "Query"},
        {"prompt", "query "},
        {"delay", ""},
        {"delay", "-1"},
        {"delay", "2592000001"},
        {"delay", "tomorrow"},
        {"delay", "18446744073709551615"},
        {"expires_in", ""},
        {"expires_in", "0"},
        {"expires_in", "31622400001"},
        {"query", "q"},
        {"top_n", "1"},
        {"raw", "1"},
        {"pairs", "[]"},
        {"_id", "x"},
        {"_id", ""},
        {"_attempt", "1"},
        {"_first_at", "1"},
        {"_lost", "1"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        expect(PARSE("text", "t", bad[i][0], bad[i][1]), CODE_BAD_REQUEST, bad[i][0]);
    }
    expect(PARSE("text", "t", "_id", "1-1", "_attempt", "0"), CODE_BAD_REQUEST, "_attempt");
    expect(PARSE("text", "t", "_id", "1-1", "_first_at", "soon"), CODE_BAD_REQUEST, "_first_at");
    expect(PARSE("_lost", "1"), CODE_BAD_REQUEST, "_lost");
    struct request *lost = PARSE("_id", "1-1", "_attempt", "1", "_first_at", "1", "_lost", "1");
    assert_false(lost->retry.retryable);
    expect(lost, CODE_INTERNAL, "later");
    expect(PARSE("text", "t", "model", "other"), CODE_WRONG_MODEL, "mini");
    expect(PARSE("text", "t", "model", ""), CODE_WRONG_MODEL, "model");
    expect(PARSE("text", "t", "meta", "\xff"), CODE_BAD_UTF8, "meta");
}

/* The longest value is accepted, a longer one is refused. */
TEST(lengths_are_bounded)
{
    static const struct {
        const char *field;
        size_t most;
    } bounded[] = {{"meta", 4096}, {"tenant", 64}};
    for (size_t i = 0; i < sizeof(bounded) / sizeof(bounded[0]); i++) {
        const char *value = letters(bounded[i].most + 1);
        expect(PARSE("text", "t", bounded[i].field, value), CODE_BAD_REQUEST, bounded[i].field);
        expect(PARSE("text", "t", bounded[i].field, value + 1), CODE_NONE, NULL);
    }
    char results[7 + 66] = "stream:";
    strcpy(results + 7, letters(65));
    expect(PARSE("text", "t", "notify", results), CODE_BAD_REQUEST, "notify");
    results[7 + 64] = '\0';
    struct request *request = PARSE("text", "t", "notify", results);
    assert_string_equal(request->output.results, results + 7);
    assert_false(request->output.notify);
    expect(request, CODE_NONE, NULL);
}

/* W3C Trace Context: a malformed one is left out, and is no error of the request. */
TEST(trace_context_is_kept_or_left_out)
{
    static const struct {
        const char *parent, *state;
        bool kept, kept_state, sampled;
    } cases[] = {
#define CONTEXT(...) {__VA_ARGS__},
#include "trace_contexts.inc"
#undef CONTEXT
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct request *request = PARSE("tracestate", cases[i].state, "text", "t", "traceparent", cases[i].parent);
        assert_int_equal(request->retry.code, CODE_NONE);
        assert_int_equal(request->identity.traceparent_bytes, cases[i].kept ? strlen(cases[i].parent) : 0);
        assert_int_equal(request->identity.traceparent != NULL, cases[i].kept);
        assert_int_equal(request->identity.tracestate_bytes, cases[i].kept_state ? strlen(cases[i].state) : 0);
        assert_int_equal(request->identity.sampled, cases[i].sampled);
        request_free(request);
    }
}

TEST(trace_context_is_bounded)
{
    char parent[258] = PARENT, vendor[514], members[99] = "";
    memcpy(parent, "cc", 2);
    memset(parent + strlen(PARENT), '-', 257 - strlen(PARENT));
    memset(vendor, 'v', 513);
    memcpy(vendor, "k=", 2);
    for (int i = 0; i < 33; i++) { strcat(members, i == 0 ? "" : ","); }
    for (int more = 1; more >= 0; more--) { /* first one byte, and one member, too many */
        parent[256 + more] = vendor[512 + more] = members[31 + more] = '\0';
        struct request *request = PARSE("text", "t", "traceparent", parent, "tracestate", vendor);
        assert_int_equal(request->identity.traceparent_bytes, more ? 0 : 256);
        request_free(request);
        request = PARSE("text", "t", "traceparent", PARENT, "tracestate", vendor);
        assert_int_equal(request->identity.tracestate_bytes, more ? 0 : 512);
        request_free(request);
        request = PARSE("text", "t", "traceparent", PARENT, "tracestate", members);
        assert_int_equal(request->identity.tracestate_bytes, more ? 0 : 31);
        request_free(request);
    }
}

static void expect_times(struct request *request, uint64_t due_at_ms, uint64_t expires_at_ms)
{
    assert_int_equal(request->lifetime.due_at_ms, due_at_ms);
    assert_int_equal(request->lifetime.expires_at_ms, expires_at_ms);
    expect(request, CODE_NONE, NULL);
}

TEST(times_are_absolute_and_count_from_the_first_submission)
{
    expect_times(PARSE("text", "t", "delay", "0"), 0, 0);
    expect_times(PARSE("text", "t", "delay", "1"), ENTRY_MS + 1, 0);
    expect_times(PARSE("text", "t", "delay", "2592000000", "expires_in", "5"), ENTRY_MS + 2592000000, ENTRY_MS + 5);
    expect_times(PARSE("_id", "1000-1", "text", "t", "delay", "5", "expires_in", "6"), 1005, 1006);
    expect_times(PARSE("text", "t", "delay", "5", "expires_in", "6", "_id", "1000-1", "_first_at", "2000"), 2005, 2006);
    expect_times(PARSE("_id", "18446744073709551615-1", "text", "t", "delay", "5"), UINT64_MAX, 0);
}

#define PARSE_AT(ms, ...) parse_at(ms, CLASS_NORMAL, ORIGIN_NEW, (const char *const[]){__VA_ARGS__, NULL})

TEST(a_time_ahead_of_the_clock_is_now)
{
    const uint64_t just = ENTRY_MS - 2000, now = ENTRY_MS - 2001;
    expect_times(PARSE_AT(just, "text", "t", "delay", "5", "expires_in", "6"), ENTRY_MS + 5, ENTRY_MS + 6);
    expect_times(PARSE_AT(now, "text", "t", "delay", "5", "expires_in", "6"), now + 5, now + 6);
    expect_times(PARSE_AT(1000, "_id", "9999-1", "text", "t", "delay", "5"), 1005, 0);
    expect_times(PARSE_AT(1000, "_id", "9999-1", "_first_at", "900", "text", "t", "delay", "5"), 905, 0);
    expect_times(PARSE_AT(1000, "_id", "9-1", "_first_at", "9999", "text", "t", "delay", "5"), 1005, 0);
    struct request *request = PARSE_AT(now, "text", "t");
    assert_true(request->identity.ahead && request->identity.first_ms == now);
    request_free(request);
    request = PARSE_AT(now, "_id", "1-1", "_first_at", "1", "text", "t");
    assert_true(!request->identity.ahead && request->identity.first_ms == 1);
    request_disown(request);
    assert_true(request->identity.ahead && request->identity.first_ms == now);
    request_free(request);
}

TEST(prompts_are_the_models)
{
    struct request *request = PARSE("text", "t", "prompt", "query");
    assert_int_equal(request->prompt_bytes, 7);
    assert_memory_equal(request->prompt, "query: ", 7);
    expect(request, CODE_NONE, NULL);
    static const char *const none_at_all[] = {"empty", ""};
    for (int i = 0; i < 2; i++) {
        request = PARSE("text", "t", "prompt", none_at_all[i]);
        assert_non_null(request->prompt); /* although the model may have one */
        assert_int_equal(request->prompt_bytes, 0);
        expect(request, CODE_NONE, NULL);
    }
    struct request_rules none = rules;
    none.no_prompt = true;
    expect(PARSE_WITH(&none, "text", "t", "prompt", "query"), CODE_BAD_REQUEST, "prompt");
}

TEST(a_cancel_names_a_request_and_stands_alone)
{
    static const char *const names[][2] = {
        {"1-2", "1-2"}, {"high:1-2", "high:1-2"}, {"low:1-2", "low:1-2"}, {"007-0", "7-0"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct request *request = PARSE("cancel", names[i][0], "x-why", "late", "unknown", "1");
        assert_string_equal(request->identity.target, names[i][1]);
        assert_int_equal(request->row_count, 0);
        assert_int_equal(request->tokens, 0);
        expect(request, CODE_NONE, NULL);
    }
    static const char *const bad[] = {
        "", "order-42", "1", "1-", "mid:1-1", "1-2 ", "*", "18446744073709551616-0", "high:high:1-1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct request *request = PARSE("cancel", bad[i]);
        assert_string_equal(request->identity.target, "");
        assert_string_equal(request->identity.id, request->identity.name);
        expect(request, CODE_BAD_REQUEST, "cancel");
    }
    static const char *const beside[][2] = {{"text", "t"},   {"inputs", "[\"a\"]"}, {"id", "me"}, {"ttl", "5"},
                                            {"notify", "1"}, {"delay", "5"},        {"meta", "m"}};
    for (size_t i = 0; i < sizeof(beside) / sizeof(beside[0]); i++) {
        expect(PARSE("cancel", "1-1", beside[i][0], beside[i][1]), CODE_BAD_REQUEST, "cancel");
    }
    expect(PARSE("_id", "9-9", "_attempt", "1", "_first_at", "9", "cancel", "1-1"), CODE_NONE,
           NULL); /* it was parked */
}

static char yes[] = "yes", no[] = "no", *label_names[] = {yes, no};
static const struct model_head none = {.labels = 0}, one_label = {.labels = 1, .names = label_names},
                               two_labels = {.labels = 2, .names = label_names}, writes = {.generates = true};

TEST(every_queue_does_tokenize)
{
    const struct model_head *heads[] = {NULL, &none, &one_label, &two_labels};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        expect(PARSE_FOR(heads[i], "task", "tokenize", "text", "t", "special_tokens", "0"), CODE_NONE, NULL);
        expect(PARSE_FOR(heads[i], "task", "tokenize", "inputs", "[\"t\"]", "encoding", "json"), CODE_NONE, NULL);
    }
    expect(PARSE("task", "tokenize", "text", "t", "special_tokens", "2"), CODE_BAD_REQUEST, "special_tokens");
    expect(PARSE("task", "tokenize", "text", "t", "truncate", "1"), CODE_BAD_REQUEST, "truncate");
    expect(PARSE("task", "tokenize", "text", "t", "encoding", "f32"), CODE_BAD_REQUEST, "encoding");
    expect(PARSE("task", "tokenize"), CODE_BAD_REQUEST, "text");
    expect(PARSE("text", "t", "special_tokens", "1"), CODE_BAD_REQUEST, "special_tokens");
}

TEST(a_wrong_task_is_told_what_the_queue_does)
{
    static const struct {
        const struct model_head *head;
        const char *task, *does;
    } wrong[] = {
        {NULL, "rerank", "embed"},
        {&none, "classify", "embed"},
        {NULL, "", "embed"},
        {&one_label, "embed", "rerank and classify"},
        {&two_labels, "embed", "classify"},
        {&two_labels, "rerank", "classify"},
        {&two_labels, "Classify", "classify"},
        {&writes, "embed", "generate"},
        {&writes, "rerank", "generate"},
        {NULL, "generate", "embed"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char message[64];
        snprintf(message, sizeof message, "task: this queue does %s", wrong[i].does);
        struct request *request = PARSE_FOR(wrong[i].head, "task", wrong[i].task, "text", "t");
        assert_string_equal(request->retry.message, message);
        expect(request, CODE_UNKNOWN_TASK, NULL);
    }
    expect(PARSE_FOR(&one_label, "text", "t"), CODE_UNKNOWN_TASK, "task"); /* embed is the default */
    expect(PARSE_FOR(&one_label, "cancel", "1-1"), CODE_NONE, NULL);
    expect(PARSE_FOR(&one_label, "_id", "1-1", "_lost", "1"), CODE_INTERNAL, "later");
    expect(PARSE_FOR(&none, "text", "t", "task", "embed"), CODE_NONE, NULL);
}

#define GENERATE(...) PARSE_FOR(&writes, "task", "generate", __VA_ARGS__)

TEST(every_wish_for_a_text_is_taken)
{
    struct request *request =
        GENERATE("prompt", "Once", "max_tokens", "7", "temperature", "0.5", "top_k", "3", "top_p", ".25", "min_p",
                 "0.125", "repetition_penalty", "1.5", "seed", "9223372036854775807", "logprobs", "20", "stop", "\n");
    const struct writing *writing = request->writing;
    assert_int_equal(request->retry.code, CODE_NONE);
    assert_int_equal(request->row_count, 1);
    assert_int_equal(request->rows[0].text_bytes, 4);
    assert_memory_equal(request->rows[0].text, "Once", 4);
    assert_false(writing->messages);
    assert_int_equal(writing->max_tokens, 7);
    assert_true(writing->sampling.temperature == 0.5 && writing->sampling.top_p == 0.25);
    assert_true(writing->sampling.min_p == 0.125 && writing->sampling.repetition_penalty == 1.5);
    assert_int_equal(writing->sampling.top_k, 3);
    assert_int_equal(writing->top_logprobs, 20);
    assert_true(writing->seeded && writing->sampling.seed == INT64_MAX);
    assert_string_equal(writing->stops[0], "\n");
    request_free(request);

    request = GENERATE("messages", "[]");
    assert_int_equal(request->retry.code, CODE_NONE); /* a prep thread reads them */
    assert_true(request->writing->messages && !request->writing->seeded && !request->writing->stops[0]);
    assert_int_equal(request->writing->max_tokens, 256);
    assert_true(request->writing->sampling.temperature == 0);
    request_free(request);
}

TEST(wrong_wishes_for_a_text_are_named)
{
    static const char *const wrong[][2] = {
        {"max_tokens", "-1"},  {"max_tokens", "1048577"},
        {"temperature", "-1"}, {"temperature", "e1"},
        {"temperature", "."},  {"temperature", ""},
        {"top_p", "1.2.3"},    {"min_p", "1000.1"},
        {"top_k", "-1"},       {"top_k", "1073741825"},
        {"seed", "-1"},        {"seed", "9223372036854775808"},
        {"logprobs", "21"},    {"stop", ""},
        {"text", "t"},         {"inputs", "[\"t\"]"},
        {"encoding", "json"},  {"truncate", "1"},
        {"dims", "2"},         {"repetition_penalty", "x"},
        {"messages", "[]"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        expect(GENERATE("prompt", "p", wrong[i][0], wrong[i][1]), CODE_BAD_REQUEST, wrong[i][0]);
    }
    expect(GENERATE("prompt", ""), CODE_BAD_REQUEST, "prompt");
    expect(GENERATE("prompt", "p", "stop", letters(129)), CODE_BAD_REQUEST, "stop");
    expect(GENERATE("prompt", "p", "stop", "\xff"), CODE_BAD_UTF8, "stop");
    expect(GENERATE("max_tokens", "2"), CODE_BAD_REQUEST, "prompt: missing");
    expect(GENERATE("prompt", "p", "stream", "s", "logprobs", "1"), CODE_BAD_REQUEST, "logprobs: not together");
    expect(PARSE("text", "t", "max_tokens", "2"), CODE_BAD_REQUEST, "max_tokens");
}

TEST(documents_and_their_query_are_taken)
{
    struct request *request = PARSE_FOR(&one_label, "task", "rerank", "query", "q\xc3\xa9", "inputs", "[\"a\",\"bc\"]",
                                        "encoding", "f32", "raw", "1", "truncate", "0");
    assert_int_equal(request->task, TASK_RERANK);
    assert_ptr_equal(request->head, &one_label);
    assert_int_equal(request->query_bytes, 3);
    assert_memory_equal(request->query, "q\xc3\xa9", 3);
    assert_int_equal(request->row_count, 2);
    assert_memory_equal(request->rows[1].text, "bc", 2);
    assert_int_equal(request->output.encoding, ENCODING_F32);
    assert_int_equal(request->output.top_n, 0);
    assert_true(request->output.raw && !request->truncate);
    expect(request, CODE_NONE, NULL);

    request =
        PARSE_FOR(&one_label, "task", "rerank", "inputs", "[\"a\"]", "query", "q", "top_n", "3", "encoding", "json");
    assert_int_equal(request->output.top_n, 3);
    assert_int_equal(request->output.encoding, ENCODING_JSON);
    expect(request, CODE_NONE, NULL);

    request = PARSE_FOR(&two_labels, "task", "classify", "text", "t");
    assert_int_equal(request->task, TASK_CLASSIFY);
    assert_false(request->output.raw);
    expect(request, CODE_NONE, NULL);
    expect(PARSE_FOR(&one_label, "task", "classify", "inputs", "[\"t\"]"), CODE_NONE, NULL);
}

TEST(what_a_task_has_no_use_for_is_refused)
{
    static const char *const rerank[][2] = {{"normalize", "1"}, {"dims", "1"},  {"prompt", ""},    {"text", "t"},
                                            {"top_n", "0"},     {"top_n", "x"}, {"raw", "yes"},    {"query", ""},
                                            {"inputs", "[]"},   {"pairs", "1"}, {"encoding", "f8"}},
                             *const classify[][2] = {{"query", "q"},     {"top_n", "1"},  {"dims", "1"},
                                                     {"normalize", "0"}, {"prompt", "p"}, {"encoding", "f32"}};
    for (size_t i = 0; i < sizeof rerank / sizeof rerank[0]; i++) {
        bool query = strcmp(rerank[i][0], "query") == 0, inputs = strcmp(rerank[i][0], "inputs") == 0;
        expect(PARSE_FOR(&one_label, "task", "rerank", rerank[i][0], rerank[i][1], query ? "x-1" : "query", "q",
                         inputs ? "x-2" : "inputs", "[\"d\"]"),
               CODE_BAD_REQUEST, rerank[i][0]);
    }
    for (size_t i = 0; i < sizeof classify / sizeof classify[0]; i++) {
        expect(PARSE_FOR(&two_labels, "text", "t", "task", "classify", classify[i][0], classify[i][1]),
               CODE_BAD_REQUEST, classify[i][0]);
    }
    expect(PARSE_FOR(&one_label, "task", "rerank", "inputs", "[\"d\"]"), CODE_BAD_REQUEST, "query: missing");
    expect(PARSE_FOR(&one_label, "task", "rerank", "query", "q"), CODE_BAD_REQUEST, "inputs: missing");
    expect(PARSE_FOR(&two_labels, "task", "classify"), CODE_BAD_REQUEST, "text: missing");
    expect(PARSE_FOR(&one_label, "task", "rerank", "query", "\xff", "inputs", "[\"d\"]"), CODE_BAD_UTF8, "query");
    expect(PARSE_FOR(&one_label, "task", "rerank", "query", "q", "inputs", "[\"d\"]", "top_n", "1", "encoding", "f32"),
           CODE_BAD_REQUEST, "encoding: only json with top_n");
    const char *large = letters(101);
    expect(PARSE_FOR(&one_label, "task", "rerank", "query", large, "inputs", "[\"d\"]"), CODE_TOO_LARGE, "query");
    expect(PARSE_FOR(&one_label, "task", "rerank", "query", large + 1, "inputs", "[\"d\"]"), CODE_NONE, NULL);
}

TEST(what_is_quantised_is_a_vector_of_length_1)
{
    expect(PARSE("text", "t", "encoding", "int8", "normalize", "1"), CODE_NONE, NULL);
    expect(PARSE("text", "t", "encoding", "int8", "normalize", "0"), CODE_BAD_REQUEST, "length 1");
    expect(PARSE("text", "t", "encoding", "ubinary", "normalize", "0"), CODE_NONE, NULL);
    expect(PARSE_FOR(&one_label, "task", "rerank", "query", "q", "inputs", "[\"d\"]", "encoding", "ubinary"),
           CODE_BAD_REQUEST, "task embed");
    struct request_rules quantised = rules;
    quantised.encoding = ENCODING_INT8;
    struct request *request = PARSE_WITH(&quantised, "normalize", "0", "text", "t");
    assert_int_equal(request->output.encoding, ENCODING_JSON);
    request_free(request);
}

/* Labels have names beside the numbers, so another default does not apply to them. */
TEST(labels_are_json_whatever_the_default)
{
    struct request_rules raw = rules;
    raw.encoding = ENCODING_F32;
    raw.head = &one_label;
    struct request *request = PARSE_WITH(&raw, "task", "classify", "text", "t");
    assert_int_equal(request->output.encoding, ENCODING_JSON);
    request_free(request);
}

/* Each pair contains the query's tokens, too. */
TEST(a_query_weighs_with_every_document)
{
    struct request *little = PARSE_FOR(&one_label, "task", "rerank", "query", "q", "inputs", "[\"a\",\"b\",\"c\"]");
    struct request *more =
        PARSE_FOR(&one_label, "task", "rerank", "query", "quiteabit", "inputs", "[\"a\",\"b\",\"c\"]");
    assert_int_equal(more->tokens, little->tokens + 3 * 2);
    assert_true(more->bytes >= little->bytes + 3 * 8 * sizeof(int32_t));
    request_free(little);
    request_free(more);
}

/* 5 texts by 60,000 labels of 400 bytes: Redis would close the connection on such a reply, again and again. */
TEST(a_reply_that_redis_would_not_take_is_refused)
{
    enum { LABELS = 60000 };
    static char long_name[401];
    static char *names[LABELS];
    memset(long_name, 'x', 400);
    for (int i = 0; i < LABELS; i++) { names[i] = long_name; }
    const struct model_head head = {.labels = LABELS, .names = names};
    expect(PARSE_FOR(&head, "task", "classify", "inputs", "[\"a\",\"b\",\"c\",\"d\",\"e\"]"), CODE_TOO_LARGE, "inputs");
    expect(PARSE_FOR(&head, "task", "classify", "inputs", "[\"a\"]"), CODE_NONE, NULL);
}

TEST(a_vector_goes_into_keys_that_are_allowed)
{
    struct request *request = PARSE("text", "t", "encoding", "f16", "into", "doc:\xc3\xa9", "into_field", "v");
    assert_int_equal(request->output.into_bytes, 6);
    assert_memory_equal(request->output.into, "doc:\xc3\xa9", 6);
    assert_int_equal(request->output.into_field_bytes, 1);
    assert_memory_equal(request->output.into_field, "v", 1);
    expect(request, CODE_NONE, NULL);
    request = PARSE("into", "any", "encoding", "f32", "text", "t");
    assert_int_equal(request->output.into_field_bytes, 9);
    assert_memory_equal(request->output.into_field, "embedding", 9);
    expect(request, CODE_NONE, NULL);
    request = PARSE("text", "t");
    assert_null(request->output.into);
    request_free(request);

    expect(PARSE("text", "t", "into", "doc:1"), CODE_BAD_REQUEST, "into: only with encoding");
    expect(PARSE("text", "t", "into", "doc:1", "encoding", "base64"), CODE_BAD_REQUEST, "into: only with encoding");
    expect(PARSE("inputs", "[\"t\"]", "into", "doc:1", "encoding", "f32"), CODE_BAD_REQUEST, "into: not with inputs");
    expect(PARSE("text", "t", "into_field", "v", "encoding", "f32"), CODE_BAD_REQUEST, "into_field: not without into");
    expect(PARSE("text", "t", "into", "doc:1", "into_field", "", "encoding", "f32"), CODE_BAD_REQUEST, "into_field");
    expect(PARSE("text", "t", "into", "", "encoding", "f32"), CODE_BAD_REQUEST, "into_keys");
    expect(PARSE_FOR(&one_label, "task", "classify", "text", "t", "into", "doc:1"), CODE_BAD_REQUEST, "into: not with");
    /* Keys of queues, whatever the patterns say. */
    expect(PARSE("text", "t", "into", "sluice:{q}:meta", "encoding", "f32"), CODE_BAD_REQUEST, "into_keys");
    const char *large = letters(513);
    expect(PARSE("text", "t", "into", large, "encoding", "f32"), CODE_BAD_REQUEST, "into");
    expect(PARSE("text", "t", "into", large + 1, "encoding", "f32"), CODE_NONE, NULL);
    expect(PARSE("text", "t", "into", "k", "into_field", large, "encoding", "f32"), CODE_BAD_REQUEST, "into_field");
}

TEST(the_patterns_of_keys_decide)
{
    static const struct {
        const char *patterns, *key;
        bool allowed;
    } cases[] = {{NULL, "doc:1", false},          {"", "doc:1", false},
                 {" ", "doc:1", false},           {"doc:*", "doc:", true},
                 {"doc:*", "doc:a/b/.c", true},   {"doc:*", "adoc:1", false},
                 {"a b:? c", "b:1", true},        {"a b:? c", "b:12", false},
                 {"a b:? c", "a b", false},       {"item:[0-9]", "item:7", true},
                 {"item:[0-9]", "item:x", false}, {"*", "anything at all", true},
                 {"sluice:*", "sluice:x", false}, {"doc\\*", "doc*", true},
                 {"doc\\*", "doc1", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct request_rules with = rules;
        with.into_keys = cases[i].patterns;
        struct request *request = PARSE_WITH(&with, "text", "t", "encoding", "f32", "into", cases[i].key);
        if ((request->retry.code == CODE_NONE) != cases[i].allowed) {
            fail_msg("%s: %s", cases[i].patterns, cases[i].key);
        }
        request_free(request);
    }
    struct entry_field nul[] = {{"text", 4, "t", 1}, {"encoding", 8, "f32", 3}, {"into", 4, "doc:\0x", 6}};
    struct entry entry = {.id = {ENTRY_MS, 7}, .fields = nul, .field_count = 3};
    expect(request_parse(&rules, &entry, 1), CODE_BAD_REQUEST, "into");
}
