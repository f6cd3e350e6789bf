/* OpenAI's completions and chats, with the bodies that its clients send. */
#include "calls.h"

static const char chat_path[] = "/v1/chat/completions", path[] = "/v1/completions";

static struct slice slice_of(const char *text)
{
    return (struct slice){text, strlen(text)};
}

static const struct answer some_answer = {
    .tokens = 9, .written_tokens = 3, .created_s = 1764300000, .model = "m", .request_id = "r-1", .lists = {"[7]", 3}};

TEST(a_chat_is_passed_on_as_it_is)
{
    struct call call = good_call(chat_path, "{'model':'m','messages': [ {'role':'user','content':'Hi \\u00e9'} ],"
                                            "'temperature':0.25,'top_p':1e-1,'seed':7,'top_k':20,'min_p':0.1,"
                                            "'repetition_penalty':1.5,'max_completion_tokens':30,'stop':'\\n\\n'}");
    assert_int_equal(call.task, TASK_GENERATE);
    assert_true(call.chat && call.single);
    assert_texts(&call, 1, "[ {'role':'user','content':'Hi \\u00e9'} ]");
    assert_int_equal(call.max_tokens, 30);
    static const char *const numbers[NUMBERS] = {"0.25", "20", "1e-1", "0.1", "1.5", "7"};
    for (int i = 0; i < NUMBERS; i++) { assert_slice(call.numbers[i], numbers[i]); }
    assert_slice(call.stops, "[\"\\n\\n\"]");
    call_free(&call);
}

TEST(what_is_not_given_is_as_with_openai)
{
    struct call call = good_call(chat_path, "{'messages':[],'temperature':null,'stop':null,'stream':null,'n':1,"
                                            "'stream_options':null,'tools':null,'logit_bias':{ },'logprobs':false}");
    assert_int_equal(call.max_tokens, 0);
    assert_slice(call.numbers[NUMBER_TEMPERATURE], "1");
    assert_slice(call.numbers[NUMBER_TOP_P], "");
    assert_slice(call.stops, "");
    assert_int_equal(call.stream, 0);
    call_free(&call);
    call = good_call(path, "{'prompt':'a'}");
    assert_int_equal(call.max_tokens, 16);
    assert_slice(call.numbers[NUMBER_TEMPERATURE], "1");
    call_free(&call);
}

TEST(prompts_are_a_text_or_several)
{
    struct call call = good_call(path, "{'prompt':['a\\n','b'],'stop':[ 'x' , '\\u00e9' ],'echo':false}");
    assert_texts(&call, 2, "'a\\n','b'");
    assert_false(call.chat || call.single);
    assert_slice(call.stops, "[ \"x\" , \"\\u00e9\" ]");
    call_free(&call);
    call = good_call(path, "{'prompt':'a','stop':[ ]}");
    assert_true(call.single);
    assert_slice(call.stops, "");
    call_free(&call);
}

TEST(what_would_change_the_text_is_refused_by_name)
{
    static const struct {
        const char *path, *body, *message;
    } cases[] = {
        {chat_path, "{}", "messages: missing"},
        {chat_path, "{'messages':'a'}", "messages: must be a list of messages"},
        {chat_path, "{'messages':null}", "messages: must be a list of messages"},
        {chat_path, "{'messages':[}", "messages: not JSON, or nested too deeply"},
        {chat_path, "{'messages':[],'temperature':'1'}", "temperature: must be a number"},
        {chat_path, "{'messages':[],'temperature':true}", "temperature: must be a number"},
        {chat_path, "{'messages':[],'max_tokens':0}", "max_tokens: must be a whole number from 1 on"},
        {chat_path, "{'messages':[],'stop':7}", "stop: must be a string or a list of strings"},
        {chat_path, "{'messages':[],'stream':1}", "stream: must be true or false"},
        {chat_path, "{'messages':[],'stream_options':7}", "stream_options: must be an object"},
        {chat_path, "{'messages':[],'stream_options':{'include_usage':1}}",
         "stream_options: `include_usage` must be true or false"},
        {chat_path, "{'messages':[],'n':2}", "n: not supported by this server, except as 1"},
        {chat_path, "{'messages':[],'presence_penalty':0.5}",
         "presence_penalty: not supported by this server, except as 0"},
        {chat_path, "{'messages':[],'tools':[{'type':'function'}]}",
         "tools: not supported by this server, except as []"},
        {chat_path, "{'messages':[],'response_format':{'type':'json_object'}}",
         "response_format: not supported by this server, except as {\"type\":\"text\"}"},
        {chat_path, "{'messages':[],'logprobs':true}", "logprobs: not supported by this server"},
        {chat_path, "{'messages':[],'reasoning_effort':'low'}", "reasoning_effort: not supported by this server"},
        {path, "{'prompt':''}", "prompt: must not be empty"},
        {path, "{'prompt':[1,2]}", "prompt[0]: token ids are not taken; send texts"},
        {path, "{'prompt':'a','logprobs':1}", "logprobs: not supported by this server"},
        {path, "{'prompt':'a','best_of':3}", "best_of: not supported by this server, except as 1"},
        {path, "{'prompt':'a','suffix':'b'}", "suffix: not supported by this server, except as \"\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *body = quoted(cases[i].body);
        assert_refused(cases[i].path, body, strlen(body), 400, cases[i].message);
    }
    struct call call =
        good_call(chat_path, "{'messages':[],'tools':[ ],'response_format':{ 'type' : 'text' },'tool_choice':'auto',"
                             "'presence_penalty':0.0,'modalities':['text'],'user':'u','metadata':{'a':[1]}}");
    call_free(&call);
}

TEST(answers_are_those_of_openai)
{
    struct call chat = good_call(chat_path, "{'messages':[]}"), call = good_call(path, "{'prompt':['a','b']}");
    struct answer answer = some_answer;
    struct buffer choice = {0};
    chat.dialect->put_choice(&chat, 0, slice_of("a \"b\"\n"), "stop", &choice);
    buffer_append(&choice, "", 1);
    assert_string_equal(choice.data, "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"a \\\"b\\\"\\n\","
                                     "\"refusal\":null},\"logprobs\":null,\"finish_reason\":\"stop\"}");
    assert_answer(&chat, &answer,
                  "{'id':'chatcmpl-r-1','object':'chat.completion','created':1764300000,'model':'m','choices':[7],"
                  "'usage':{'prompt_tokens':9,'completion_tokens':3,'total_tokens':12}}");
    choice.length = 0;
    call.dialect->put_choice(&call, 1, slice_of("a"), "length", &choice);
    buffer_append(&choice, "", 1);
    assert_string_equal(choice.data, quoted("{'index':1,'text':'a','logprobs':null,'finish_reason':'length'}"));
    assert_answer(&call, &answer,
                  "{'id':'cmpl-r-1','object':'text_completion','created':1764300000,'model':'m','choices':[7],"
                  "'usage':{'prompt_tokens':9,'completion_tokens':3,'total_tokens':12}}");
    buffer_free(&choice);
    call_free(&chat);
    call_free(&call);
}

static void assert_chunk(const struct call *call, const struct chunk *chunk, const char *expected)
{
    struct buffer to = {0};
    if (chunk) {
        call->dialect->put_chunk(call, &some_answer, chunk, &to);
    } else {
        call->dialect->put_end(call, &some_answer, &to);
    }
    buffer_append(&to, "", 1);
    assert_string_equal(to.data, quoted(expected));
    buffer_free(&to);
}

TEST(events_are_those_of_openai)
{
    struct call chat = good_call(chat_path, "{'messages':[],'stream':true,'stream_options':{'include_usage':true}}");
    struct call call = good_call(path, "{'prompt':'a','stream':true,'stream_options':{}}");
    struct chunk first = {.text = {"a", 1}, .first = true}, next = {.text = {"b", 1}}, last = {.finish = "stop"};
#define CHAT "data: {'id':'chatcmpl-r-1','object':'chat.completion.chunk','created':1764300000,'model':'m','choices':["
#define TEXT "data: {'id':'cmpl-r-1','object':'text_completion','created':1764300000,'model':'m','choices':["
    assert_chunk(&chat, &first,
                 CHAT "{'index':0,'delta':{'role':'assistant','content':'a'},'logprobs':null,'finish_reason':null}],"
                      "'usage':null}\n\n");
    assert_chunk(&chat, &next,
                 CHAT "{'index':0,'delta':{'content':'b'},'logprobs':null,'finish_reason':null}],'usage':null}\n\n");
    assert_chunk(&chat, &last, CHAT "{'index':0,'delta':{},'logprobs':null,'finish_reason':'stop'}],'usage':null}\n\n");
    assert_chunk(&chat, NULL,
                 CHAT "],'usage':{'prompt_tokens':9,'completion_tokens':3,'total_tokens':12}}\n\ndata: [DONE]\n\n");
    next.index = 1;
    assert_chunk(&call, &next, TEXT "{'index':1,'text':'b','logprobs':null,'finish_reason':null}]}\n\n");
    assert_chunk(&call, &last, TEXT "{'index':0,'text':'','logprobs':null,'finish_reason':'stop'}]}\n\n");
    assert_chunk(&call, NULL, "data: [DONE]\n\n");
#undef CHAT
#undef TEXT
    call_free(&chat);
    call_free(&call);
}

TEST(a_workers_message_names_the_member)
{
    static const char *const cases[][2] = {
        {"messages: message 1: role must be a text", "messages: message 1: role must be a text"},
        {"stops: must be texts", "stop: must be texts"},
        {"max_tokens: 7", "max_tokens: 7"},
        {"temperature: 7", "temperature: 7"},
        {"seed: 7", "seed: 7"}};
    struct call call = good_call(chat_path, "{'messages':[]}");
    struct fault fault;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fault_from_reply(&fault, &call, slice_of("bad_request"), slice_of(cases[i][0]), slice_of("{}"), 0, 1);
        assert_string_equal(fault.message, cases[i][1]);
        assert_non_null(fault.param);
    }
    call_free(&call);
    call = good_call(path, "{'prompt':['a','b']}");
    fault_from_reply(&fault, &call, slice_of("too_long"), slice_of("prompt: the model takes 9 tokens"), slice_of("{}"),
                     1, 1);
    assert_string_equal(fault.message, "prompt[1]: the model takes 9 tokens");
    call_free(&call);
}
