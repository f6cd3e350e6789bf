/* The paths of TEI, with the bodies that huggingface_hub and Haystack send. */
#include "calls.h"

static const float vectors[] = {0.5F, -0.25F, 1, 2};

static void assert_bad(const char *path, const char *body, const char *message)
{
    const char *json = quoted(body);
    assert_refused(path, json, strlen(json), 422, message);
}

TEST(one_text_is_answered_by_a_list_of_one_vector)
{
    static const char *const paths[] = {"/embed", "/"};
    for (int i = 0; i < 2; i++) {
        struct call call = good_call(paths[i], "{'inputs':'What is it?'}");
        assert_int_equal(call.task, TASK_EMBED);
        assert_true(call.single);
        assert_int_equal(call.normalize, 1);
        assert_int_equal(call.truncate, -1);
        assert_texts(&call, 1, "'What is it?'");
        assert_answer(&call, &(struct answer){.vectors = vectors, .dim = 2}, "[[0.5,-0.25]]");
        call_free(&call);
    }
}

TEST(haystack_sends_a_list_with_its_parameters)
{
    struct call call = good_call("/", "{'inputs':['a','b'],'normalize':false,'truncate':true}");
    assert_int_equal(call.normalize, 0);
    assert_int_equal(call.truncate, 1);
    assert_texts(&call, 2, "'a','b'");
    assert_answer(&call, &(struct answer){.vectors = vectors, .dim = 2}, "[[0.5,-0.25],[1,2]]");
    call_free(&call);
}

TEST(huggingface_hub_names_a_prompt_and_dimensions)
{
    struct call call = good_call("/embed", "{'inputs':'a','prompt_name':'query','truncation_direction':'right',"
                                           "'dimensions':2,'encoding_format':'float'}");
    assert_slice(call.prompt, "query");
    assert_int_equal(call.dims, 2);
    call_free(&call);
    assert_bad("/embed", "{'inputs':'a','truncation_direction':'left'}",
               "truncation_direction: must be 'Right' or 'right'");
    assert_bad("/embed", "{'inputs':[1,2]}", "inputs[0]: must be a string");
    assert_bad("/embed", "{'inputs':['a',['b','c']]}", "inputs[1]: must be a string");
}

TEST(similarities_are_cosines_with_the_first_text)
{
    static const float three[] = {1, 0, 0.5F, 0.5F, -1, 0};
    static const char *const bodies[] = {"{'inputs':{'source_sentence':'s','sentences':['a','b']},'parameters':{}}",
                                         "{'inputs':{'sentences':['a','b'],'more':[1],'source_sentence':'s'}}"};
    for (int i = 0; i < 2; i++) {
        struct call call = good_call("/similarity", bodies[i]);
        assert_texts(&call, 3, "'s','a','b'");
        assert_int_equal(call.normalize, 1);
        assert_answer(&call, &(struct answer){.vectors = three, .dim = 2}, "[0.5,-1]");
        call_free(&call);
    }
    static const char both[] = "inputs: must have `source_sentence` and `sentences`";
    assert_bad("/similarity", "{'inputs':{'source_sentence':'s'}}", both);
    assert_bad("/similarity", "{'inputs':{'sentences':['s','t']}}", both);
    assert_bad("/similarity", "{'inputs':{}}", both);
    assert_bad("/similarity", "{'inputs':'s'}", "inputs: must be an object");
    assert_bad("/similarity", "{'inputs':{'source_sentence':['s']}}", "inputs: `source_sentence` must be a string");
    assert_bad("/similarity", "{'inputs':{'source_sentence':'s','sentences':['a',1]}}", "inputs[1]: must be a string");
    assert_bad("/similarity", "{'inputs':{'source_sentence':'s','sentences':['a'],'sentences':['b']}}",
               "inputs: `sentences` are given more than once");
    assert_bad("/similarity", "{'inputs':{'source_sentence':'s','source_sentence':'s'}}",
               "inputs: `source_sentence` is given more than once");
}

TEST(ranks_are_best_first)
{
    static const float scores[] = {0.25F, 0.75F, 0.25F};
    struct call call = good_call("/rerank", "{'query':'red\\nfox','texts':['a','b\\u00e9','c'],'raw_scores':false}");
    struct answer answer = {.scores = scores};
    assert_int_equal(call.task, TASK_RERANK);
    assert_slice(call.query, "red\nfox");
    assert_int_equal(call.raw, 0);
    assert_answer(&call, &answer, "[{'index':1,'score':0.75},{'index':0,'score':0.25},{'index':2,'score':0.25}]");
    call_free(&call);
    call = good_call("/rerank", "{'query':'q','texts':['a','b\\u00e9','c'],'raw_scores':true,'return_text':true,"
                                "'truncate':true,'truncation_direction':'Right'}");
    assert_int_equal(call.raw, 1);
    assert_answer(&call, &answer,
                  "[{'index':1,'text':'b\\u00e9','score':0.75},{'index':0,'text':'a','score':0.25},"
                  "{'index':2,'text':'c','score':0.25}]");
    call_free(&call);
}

TEST(a_rerank_without_its_parts_is_refused)
{
    assert_bad("/rerank", "{'texts':['a']}", "query: missing");
    assert_bad("/rerank", "{'query':'a'}", "texts: missing");
    assert_bad("/rerank", "{'query':'','texts':['a']}", "query: must not be empty");
    assert_bad("/rerank", "{'query':'\\ud800','texts':['a']}", "query: half a surrogate pair");
    assert_bad("/rerank", "{'query':'a','texts':'b'}", "texts: must be a list of strings");
    assert_bad("/rerank", "{'query':'a','texts':[{'text':'b'}]}", "texts[0]: must be a string");
    assert_bad("/rerank", "{'query':'a','texts':['a'],'raw_scores':1}", "raw_scores: must be true or false");
}

TEST(one_text_is_answered_by_its_labels)
{
    static const char *const bodies[] = {"{'inputs':'I like you','parameters':{}}", "{'inputs':['I like you']}"};
    for (int i = 0; i < 2; i++) {
        struct call call = good_call("/predict", bodies[i]);
        assert_int_equal(call.task, TASK_CLASSIFY);
        assert_texts(&call, 1, "'I like you'");
        const char *labels = quoted("[[{'label':'joy','score':0.98}]]");
        assert_answer(&call, &(struct answer){.lists = {labels, strlen(labels)}}, "[{'label':'joy','score':0.98}]");
        call_free(&call);
    }
}

TEST(a_batch_of_texts_is_answered_by_a_list_of_labels)
{
    struct call call = good_call("/predict", "{'inputs':[['a'],['b']],'raw_scores':true}");
    assert_texts(&call, 2, "'a','b'");
    assert_false(call.single);
    const char *labels = quoted("[[{'label':'x','score':1}],[{'label':'x','score':2}]]");
    assert_answer(&call, &(struct answer){.lists = {labels, strlen(labels)}},
                  "[[{'label':'x','score':1}],[{'label':'x','score':2}]]");
    call_free(&call);
}

TEST(texts_are_answered_by_lists_of_tokens)
{
    static const char *const bodies[] = {"{'inputs':'a','add_special_tokens':false,'prompt_name':'query'}",
                                         "{'inputs':['a']}"};
    for (int i = 0; i < 2; i++) {
        struct call call = good_call("/tokenize", bodies[i]);
        assert_int_equal(call.task, TASK_TOKENIZE);
        assert_int_equal(call.special_tokens, i == 0 ? 0 : -1);
        assert_int_equal(call.prompt.length, i == 0 ? 5 : 0);
        assert_texts(&call, 1, "'a'");
        const char *lists = quoted("[[{'id':7,'text':'a','special':false,'start':0,'stop':1}]]");
        assert_answer(&call, &(struct answer){.lists = {lists, strlen(lists)}},
                      "[[{'id':7,'text':'a','special':false,'start':0,'stop':1}]]");
        call_free(&call);
    }
    assert_bad("/tokenize", "{'inputs':'a','add_special_tokens':1}", "add_special_tokens: must be true or false");
    assert_bad("/tokenize", "{}", "inputs: missing");
}

TEST(pairs_are_refused)
{
    static const char pair[] = "pairs are not supported: a list of texts is [[\"a\"],[\"b\"]]";
    char message[128];
    snprintf(message, sizeof message, "inputs: %s", pair);
    assert_bad("/predict", "{'inputs':['a','b']}", message);
    snprintf(message, sizeof message, "inputs[1]: %s", pair);
    assert_bad("/predict", "{'inputs':[['a'],['b','c']]}", message);
    assert_bad("/predict", "{'inputs':[['a'],'b']}", "inputs[1]: must be a list of one string");
    assert_bad("/predict", "{'inputs':[[]]}", "inputs[0]: must be a list of one string");
    assert_bad("/predict", "{'inputs':[['']]}", "inputs[0]: must not be empty");
    assert_bad("/predict", "{'inputs':[[['a']]]}", "inputs[0]: must be a list of one string");
    assert_bad("/predict", "{'inputs':[]}", "inputs: must not be empty");
}

TEST(a_fault_has_teis_body)
{
    struct fault fault;
    fault_set(&fault, &tei_embed, FAULT_QUEUE_FULL, NULL, "Model is \"overloaded\"");
    assert_int_equal(fault.status, 429);
    assert_fault_body("/embed", &fault, "{'error':'Model is \\'overloaded\\'','error_type':'Overloaded'}");
}
