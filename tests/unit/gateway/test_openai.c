/* OpenAI's embeddings, with the bodies that its clients send. */
#include "calls.h"

static const char path[] = "/v1/embeddings";

static const float two_vectors[] = {0.5F, -0.25F, 1e-5F, 1, 2, 3};

TEST(openai_python_asks_for_base64)
{
    struct call call = good_call(path, "{'model':'mini','input':'Hello \\u00e9','encoding_format':'base64'}");
    assert_texts(&call, 1, "'Hello \\u00e9'");
    assert_true(call.single);
    assert_int_equal(call.task, TASK_EMBED);
    assert_slice(call.model, "mini");
    assert_int_equal(call.normalize, -1);
    assert_int_equal(call.truncate, -1);
    struct answer answer = {.vectors = two_vectors, .dim = 3, .tokens = 4, .model = "mini"};
    assert_answer(&call, &answer,
                  "{'object':'list','data':[{'object':'embedding','index':0,'embedding':'AAAAPwAAgL6sxSc3'}],"
                  "'model':'mini','usage':{'prompt_tokens':4,'total_tokens':4}}");
    call_free(&call);
}

TEST(lists_of_texts_keep_their_order)
{
    struct call call = good_call(path, " { 'input' : [ 'a' , '\\ud83d\\ude00\\n' ] , 'model' : 'm' , 'dimensions' : 3 ,"
                                       "'user':'u-1', 'encoding_format':'float', 'prompt_name':'qu\\u0065ry'}\n");
    assert_texts(&call, 2, "'a','\\ud83d\\ude00\\n'");
    assert_false(call.single);
    assert_int_equal(call.dims, 3);
    assert_slice(call.prompt, "query");
    struct answer answer = {.vectors = two_vectors, .dim = 3, .tokens = 9, .model = "a \"model\""};
    assert_answer(&call, &answer,
                  "{'object':'list','data':[{'object':'embedding','index':0,'embedding':[0.5,-0.25,0.00001]},"
                  "{'object':'embedding','index':1,'embedding':[1,2,3]}],"
                  "'model':'a \\'model\\'','usage':{'prompt_tokens':9,'total_tokens':9}}");
    call_free(&call);
}

TEST(voyages_client_has_members_of_its_own)
{
    struct call call =
        good_call(path, "{'input':['a'],'model':'m','input_type':null,'truncation':true,'output_dtype':null,"
                        "'output_dimension':2,'encoding_format':'base64'}");
    assert_int_equal(call.dims, 2);
    assert_int_equal(call.truncate, 1);
    assert_int_equal(call.forms, FORM_BASE64);
    call_free(&call);
}

TEST(a_model_may_be_missing_or_null)
{
    static const char *const bodies[] = {"{'input':'a'}", "{'input':'a','model':null,'dimensions':null}",
                                         "{'input':'a','model':''}"};
    for (int i = 0; i < 3; i++) {
        struct call call = good_call(path, bodies[i]);
        assert_slice(call.model, "");
        assert_int_equal(call.dims, 0);
        call_free(&call);
    }
}

TEST(what_is_wrong_is_named)
{
    static const struct {
        const char *body, *message;
    } cases[] = {
        {"", "the body: not a JSON object, at byte 0"},
        {"[1]", "the body: not a JSON object, at byte 0"},
        {"{'input':'a'", "the body: not JSON, at byte 12"},
        {"{'input':'a'} {}", "the body: bytes after the JSON object, at byte 14"},
        {"{'input':'a',}", "the body: not JSON, at byte 13"},
        {"{}", "input: missing"},
        {"{'model':'m'}", "input: missing"},
        {"{'input':null}", "input: must be a string or a list of strings"},
        {"{'input':7}", "input: must be a string or a list of strings"},
        {"{'input':''}", "input: must not be empty"},
        {"{'input':[]}", "input: must not be empty"},
        {"{'input':['a','']}", "input[1]: must not be empty"},
        {"{'input':['a',null]}", "input[1]: must be a string"},
        {"{'input':['a' 'b']}", "input[0]: not JSON: a comma or ] is missing after it"},
        {"{'input':['a','b\\x']}", "input[1]: not a JSON string (a control character, an unknown escape, or no end)"},
        {"{'input':['a','b\n']}", "input[1]: not a JSON string (a control character, an unknown escape, or no end)"},
        {"{'input':['a','\\u12g4']}", "input[1]: not an escape of JSON"},
        {"{'input':['a','b','\\ud800']}", "input[2]: half a surrogate pair"},
        {"{'input':['a','\\udc00\\ud800']}", "input[1]: half a surrogate pair"},
        {"{'input':['a','b\xff']}", "input[1]: not UTF-8"},
        {"{'input':'b\xed\xa0\x80'}", "input: not UTF-8"},
        {"{'user':'\xff','input':'a'}", "the body: not UTF-8, at byte 9"},
        {"{'model':'\xff','input':'a'}", "model: not UTF-8"},
        {"{'input':'a'}\xff", "the body: not UTF-8, at byte 13"},
        {"{'input':'a','input':'b'}", "input: given more than once"},
        {"{'input':'a','\\u0069nput':'b'}", "input: given more than once"},
        {"{'model':null,'input':'a','model':'m'}", "model: given more than once"},
        {"{'input':'a','model':7}", "model: must be a string"},
        {"{'input':'a','dimensions':0}", "dimensions: must be a whole number from 1 on"},
        {"{'input':'a','dimensions':-1}", "dimensions: must be a whole number from 1 on"},
        {"{'input':'a','dimensions':2.5}", "dimensions: must be a whole number from 1 on"},
        {"{'input':'a','dimensions':'2'}", "dimensions: must be a whole number from 1 on"},
        {"{'input':'a','dimensions':99999999999999999999}", "dimensions: must be a whole number from 1 on"},
        {"{'input':'a','encoding_format':'hex'}", "encoding_format: must be 'float' or 'base64'"},
        {"{'input':'a','encoding_format':1}", "encoding_format: must be 'float' or 'base64'"},
        {"{'input':'a','late_chunking':true}", "late_chunking: not supported by this server"},
        {"{'input':'a','output_dtype':'int8'}", "output_dtype: must be 'float'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *body = quoted(cases[i].body);
        assert_refused(path, body, strlen(body), 400, cases[i].message);
    }
}

TEST(token_ids_are_refused_with_a_way_out)
{
    static const char message[] = "token ids are ids of another model's vocabulary; send texts"
                                  " (LangChain: OpenAIEmbeddings(..., check_embedding_ctx_length=False))";
    static const char *const bodies[] = {"{'input':[[9906,1917],[15339]],'model':'m'}", "{'input':[9906,1917]}"};
    for (int i = 0; i < 2; i++) {
        char expected[256];
        const char *body = quoted(bodies[i]);
        snprintf(expected, sizeof expected, "input[0]: %s", message);
        assert_refused(path, body, strlen(body), 400, expected);
    }
}

TEST(a_nul_byte_is_no_end_of_a_body)
{
    static const char body[] = "{\"input\":\"a\0b\"}", after[] = "{\"input\":\"a\"}\0{}";
    assert_refused(path, body, sizeof body - 1, 400,
                   "input: not a JSON string (a control character, an unknown escape, or no end)");
    assert_refused(path, after, sizeof after - 1, 400, "the body: bytes after the JSON object, at byte 13");
}

TEST(nesting_is_bounded)
{
    struct buffer body = {0};
    buffer_string(&body, "{\"user\":");
    for (int i = 0; i < 100000; i++) { buffer_string(&body, "["); }
    assert_refused(path, body.data, body.length, 400, "the body: not JSON, or nested too deeply, at byte 70");
    buffer_free(&body);
}

/* A body with `count` texts. */
static struct buffer many_texts(unsigned count)
{
    struct buffer body = {0};
    buffer_string(&body, "{\"input\":[");
    for (unsigned i = 0; i < count; i++) { buffer_format(&body, "%s\"text %u\"", i > 0 ? "," : "", i); }
    buffer_string(&body, "]}");
    return body;
}

TEST(the_most_texts_are_2048)
{
    struct call call;
    struct fault fault;
    struct buffer body = many_texts(2048), more = many_texts(2049);
    assert_true(body_parse(&openai_embeddings, body.data, body.length, &call, &fault));
    assert_int_equal(call.text_count, 2048);
    assert_slice(call.texts[2047], "\"text 2047\"");
    call_free(&call);
    assert_refused(path, more.data, more.length, 413, "input: more than 2048 texts");
    buffer_free(&body);
    buffer_free(&more);
}

TEST(a_fault_has_openais_body)
{
    struct fault fault;
    assert_false(fault_set(&fault, &openai_embeddings, FAULT_BAD_REQUEST, "input", "input: %s", "must \"not\""));
    assert_int_equal(fault.status, 400);
    assert_fault_body(path, &fault,
                      "{'error':{'message':'input: must \\'not\\'','type':'invalid_request_error','param':'input',"
                      "'code':'invalid_value'}}");
    fault_set(&fault, NULL, FAULT_NO_MODEL, NULL, "no model");
    assert_int_equal(fault.status, 404);
    assert_fault_body(path, &fault,
                      "{'error':{'message':'no model','type':'invalid_request_error','param':null,"
                      "'code':'model_not_found'}}");
}

static struct slice slice_of(const char *text)
{
    return (struct slice){text, strlen(text)};
}

TEST(replies_of_a_queue_become_faults)
{
    static const struct {
        const char *code, *message, *info;
        uint32_t first;
        int status;
        const char *name, *said;
    } cases[] = {
        {"too_long", "inputs: text 1: 600 tokens, 512 are taken", "{'index':1}", 64, 400, "context_length_exceeded",
         "input[65]: 600 tokens, 512 are taken"},
        {"bad_request", "dims: must be a number from 1 to 192", "{}", 0, 400, "invalid_value",
         "dimensions: must be a number from 1 to 192"},
        {"bad_request", "prompt: the model has no prompt of this name", "{}", 0, 400, "invalid_value",
         "prompt_name: the model has no prompt of this name"},
        {"bad_request", "tenant: 1 to 64", "{}", 0, 400, "invalid_value", "tenant: 1 to 64"},
        {"bad_utf8", "inputs: text 0 is not valid UTF-8, at byte 3", "{'index':0}", 0, 400, "invalid_value",
         "input[0]: is not valid UTF-8, at byte 3"},
        {"bad_id", "m", "{}", 0, 400, "invalid_value", "m"},
        {"too_large", "inputs: more than 9 bytes of text", "", 0, 413, "too_large", "input: more than 9 bytes of text"},
        {"too_many_inputs", "inputs: more than 2 texts", "{}", 0, 413, "too_large", "input: more than 2 texts"},
        {"wrong_model", "model: this queue serves x", "{}", 0, 404, "model_not_found", "model: this queue serves x"},
        {"unknown_task", "task: this queue does rerank", "{}", 0, 400, "unsupported_task",
         "task: this queue does rerank"},
        {"expired", "expired before it was started", "{}", 0, 504, "expired", "expired before it was started"},
        {"queue_full", "full", "{'retryable':true,'retry_after_ms':1500}", 0, 429, "queue_full", "full"},
        {"out_of_memory", "m", "{}", 0, 500, "backend_failed", "m"},
        {"device_lost", "m", "{}", 0, 500, "backend_failed", "m"},
        {"timeout", "m", "{}", 0, 500, "backend_failed", "m"},
        {"non_finite", "m", "{}", 0, 500, "backend_failed", "m"},
        {"internal", "m", "{}", 0, 500, "backend_failed", "m"},
        {"a_code_of_tomorrow", "", "{}", 0, 500, "backend_failed", ""},
        {"poison", "crashed 3 workers", "{}", 0, 422, "poison", "crashed 3 workers"},
        {"cancelled", "cancelled", "{}", 0, 410, "cancelled", "cancelled"},
    };
    struct call call = good_call(path, "{'input':['a']}");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fault fault;
        fault_from_reply(&fault, &call, slice_of(cases[i].code), slice_of(cases[i].message),
                         slice_of(quoted(cases[i].info)), cases[i].first, 2);
        assert_string_equal(fault.message, cases[i].said);
        assert_string_equal(fault.code, cases[i].name);
        assert_int_equal(fault.status, cases[i].status);
        assert_int_equal(fault.retry_after_ms, fault.status == 429 ? 1500 : 0);
    }
    call_free(&call);
}

TEST(a_single_text_has_no_index_in_a_message)
{
    struct call call = good_call(path, "{'input':'a'}");
    struct fault fault;
    fault_from_reply(&fault, &call, slice_of("too_long"), slice_of("inputs: text 0: 600 tokens"),
                     slice_of("{\"index\":0}"), 0, 1);
    assert_string_equal(fault.message, "input: 600 tokens");
    assert_string_equal(fault.param, "input");
    call_free(&call);
}

TEST(a_text_that_has_a_request_of_its_own_is_named_by_its_place_in_the_call)
{
    struct call call = good_call(path, "{'input':['a', 'b']}");
    struct fault fault;
    fault_from_reply(&fault, &call, slice_of("too_large"), slice_of("inputs: more than 9 bytes of text"),
                     slice_of("{}"), 1, 1);
    assert_string_equal(fault.message, "input[1]: more than 9 bytes of text");
    fault_from_reply(&fault, &call, slice_of("bad_request"), slice_of("dims: too many"), slice_of("{}"), 1, 1);
    assert_string_equal(fault.message, "dimensions: too many");
    call_free(&call);
}

TEST(a_full_queue_says_when_to_come_again)
{
    struct buffer headers = {0};
    struct fault fault = {.retry_after_ms = 1500};
    fault_put_headers(&fault, &headers);
    buffer_append(&headers, "", 1);
    assert_string_equal(headers.data, "Retry-After: 2\r\nretry-after-ms: 1500\r\n");
    buffer_free(&headers);
}

TEST(a_path_that_is_no_dialect_is_not_found)
{
    assert_null(dialect_find("/v1/embeddings/"));
    assert_null(dialect_find("/"
                             "v1"));
}
