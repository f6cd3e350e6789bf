/* The paths of Cohere, with the bodies that the clients of Cohere, Jina and Voyage send. */
#include "calls.h"

static const float scores[] = {0.25F, 0.75F, 0.5F};
static const float vectors[] = {0.5F, -0.25F, 1, 2};

static void assert_bad(const char *path, const char *body, const char *message)
{
    const char *json = quoted(body);
    assert_refused(path, json, strlen(json), 400, message);
}

TEST(coheres_client_reads_results_and_meta)
{
    struct call call =
        good_call("/v2/rerank", "{'model':'rank','query':'red fox','documents':['a','b','c'],'top_n':2}");
    struct answer answer = {.scores = scores, .tokens = 30, .model = "rank", .request_id = "r-1"};
    assert_int_equal(call.task, TASK_RERANK);
    assert_slice(call.query, "red fox");
    assert_slice(call.model, "rank");
    assert_int_equal(call.truncate, 1);
    assert_texts(&call, 3, "'a','b','c'");
    assert_answer(&call, &answer,
                  "{'object':'list','id':'r-1','model':'rank','results':[{'index':1,'relevance_score':0.75},"
                  "{'index':2,'relevance_score':0.5}],'usage':{'prompt_tokens':30,'total_tokens':30},"
                  "'meta':{'api_version':{'version':'2'},'billed_units':{'search_units':1},"
                  "'tokens':{'input_tokens':30}}}");
    call_free(&call);
}

TEST(documents_may_be_objects_and_come_back)
{
    struct call call =
        good_call("/v1/rerank", "{'query':'q','documents':[{'text':'a'},'b',{'id':[7],'text':'c\\u00e9'}],"
                                "'return_documents':true,'model':'m'}");
    struct answer answer = {.scores = scores, .tokens = 3, .model = "m", .request_id = "r"};
    assert_texts(&call, 3, "'a','b','c\\u00e9'");
    assert_answer(&call, &answer,
                  "{'object':'list','id':'r','model':'m','results':["
                  "{'index':1,'relevance_score':0.75,'document':{'text':'b'}},"
                  "{'index':2,'relevance_score':0.5,'document':{'text':'c\\u00e9'}},"
                  "{'index':0,'relevance_score':0.25,'document':{'text':'a'}}],"
                  "'usage':{'prompt_tokens':3,'total_tokens':3},"
                  "'meta':{'api_version':{'version':'1'},'billed_units':{'search_units':1},"
                  "'tokens':{'input_tokens':3}}}");
    call_free(&call);
}

TEST(jinas_client_sends_a_top_n_of_null)
{
    struct call call = good_call("/v1/rerank", "{'query':'q','documents':['a'],'model':'m','top_n':null}");
    assert_int_equal(call.top_n, 0);
    assert_int_equal(answer_top(&call), 1);
    call_free(&call);
}

TEST(voyages_client_reads_data)
{
    struct call call = good_call("/v1/rerank", "{'query':'q','documents':['a','b','c'],'model':'m','top_k':2,"
                                               "'truncation':false,'return_documents':true}");
    struct answer answer = {.scores = scores, .tokens = 3, .model = "m", .request_id = "r"};
    assert_int_equal(call.truncate, 0);
    assert_answer(&call, &answer,
                  "{'object':'list','id':'r','model':'m','data':[{'index':1,'relevance_score':0.75,'document':'b'},"
                  "{'index':2,'relevance_score':0.5,'document':'c'}],"
                  "'usage':{'prompt_tokens':3,'total_tokens':3}}");
    call_free(&call);
    call = good_call("/v1/rerank", "{'query':'q','documents':['a'],'model':'m','top_k':null,'truncation':true}");
    assert_answer(&call, &answer,
                  "{'object':'list','id':'r','model':'m','data':[{'index':0,'relevance_score':0.25}],"
                  "'usage':{'prompt_tokens':3,'total_tokens':3}}");
    call_free(&call);
}

TEST(wrong_documents_are_named)
{
    assert_bad("/v2/rerank", "{'query':'q','documents':'a'}", "documents: must be a list of strings");
    assert_bad("/v2/rerank", "{'query':'q','documents':[]}", "documents: must not be empty");
    assert_bad("/v2/rerank", "{'query':'q','documents':['a',7]}", "documents[1]: must be a string");
    assert_bad("/v2/rerank", "{'query':'q','documents':['a',{}]}", "documents[1]: an object without `text`");
    assert_bad("/v2/rerank", "{'query':'q','documents':[{'title':'a'}]}", "documents[0]: an object without `text`");
    assert_bad("/v2/rerank", "{'query':'q','documents':[{'text':7}]}", "documents[0]: its `text` must be a string");
    assert_bad("/v2/rerank", "{'query':'q','documents':[{'text':''}]}", "documents[0]: must not be empty");
    assert_bad("/v2/rerank", "{'query':'q','documents':[{'text':'a','text':'b'}]}",
               "documents[0]: has `text` more than once");
    assert_bad("/v2/rerank", "{'query':'q','documents':[{'text':'a' 7}]}", "documents[0]: not JSON");
    assert_bad("/v2/rerank", "{'query':'q','documents':[{'text':'\\udc00'}]}", "documents[0]: half a surrogate pair");
    assert_bad("/v2/rerank", "{'query':'q','documents':['a'],'top_n':0}", "top_n: must be a whole number from 1 on");
    assert_bad("/v2/rerank", "{'query':'q','documents':['a'],'max_tokens_per_doc':512}",
               "max_tokens_per_doc: not supported by this server");
}

TEST(coheres_embed_has_vectors_by_type)
{
    struct call call = good_call("/v2/embed", "{'texts':['a','b'],'model':'m','input_type':'search_document',"
                                              "'embedding_types':['base64','float'],'truncate':'NONE',"
                                              "'output_dimension':2}");
    struct answer answer = {.vectors = vectors, .dim = 2, .tokens = 6, .request_id = "r"};
    assert_int_equal(call.truncate, 0);
    assert_int_equal(call.dims, 2);
    assert_answer(&call, &answer,
                  "{'id':'r','response_type':'embeddings_by_type','embeddings':{'float':[[0.5,-0.25],[1,2]],"
                  "'base64':['AAAAPwAAgL4=','AACAPwAAAEA=']},'texts':['a','b'],"
                  "'meta':{'api_version':{'version':'2'},'billed_units':{'input_tokens':6},"
                  "'tokens':{'input_tokens':6}}}");
    call_free(&call);
    call = good_call("/v2/embed", "{'texts':['a'],'model':'m','input_type':'search_query'}");
    assert_int_equal(call.truncate, 1);
    assert_answer(&call, &answer,
                  "{'id':'r','response_type':'embeddings_by_type','embeddings':{'float':[[0.5,-0.25]]},"
                  "'texts':['a'],'meta':{'api_version':{'version':'2'},'billed_units':{'input_tokens':6},"
                  "'tokens':{'input_tokens':6}}}");
    call_free(&call);
}

TEST(version_1_has_bare_vectors_where_no_types_are_asked_for)
{
    struct call call =
        good_call("/v1/embed", "{'texts':['a'],'model':'m','input_type':'search_query','truncate':'END'}");
    struct answer answer = {.vectors = vectors, .dim = 2, .tokens = 6, .request_id = "r"};
    assert_answer(&call, &answer,
                  "{'id':'r','response_type':'embeddings_floats','embeddings':[[0.5,-0.25]],'texts':['a'],"
                  "'meta':{'api_version':{'version':'1'},'billed_units':{'input_tokens':6},"
                  "'tokens':{'input_tokens':6}}}");
    call_free(&call);
    call = good_call("/v1/embed", "{'texts':['a'],'embedding_types':['float'],'model':'m'}");
    assert_answer(&call, &answer,
                  "{'id':'r','response_type':'embeddings_by_type','embeddings':{'float':[[0.5,-0.25]]},"
                  "'texts':['a'],'meta':{'api_version':{'version':'1'},'billed_units':{'input_tokens':6},"
                  "'tokens':{'input_tokens':6}}}");
    call_free(&call);
}

TEST(an_answer_does_not_need_the_texts)
{
    struct call call = {.dialect = &cohere_embed, .text_count = 1};
    struct answer answer = {
        .vectors = vectors, .scores = scores, .dim = 2, .tokens = 6, .model = "m", .request_id = "r"};
    assert_answer(&call, &answer,
                  "{'id':'r','response_type':'embeddings_by_type','embeddings':{'float':[[0.5,-0.25]]},'texts':[],"
                  "'meta':{'api_version':{'version':'2'},'billed_units':{'input_tokens':6},"
                  "'tokens':{'input_tokens':6}}}");
    call = (struct call){.dialect = &tei_rerank, .text_count = 1, .return_texts = 1};
    assert_answer(&call, &answer, "[{'index':0,'score':0.25}]");
    call = (struct call){.dialect = &cohere_rerank, .text_count = 1, .return_texts = 1};
    assert_answer(&call, &answer,
                  "{'object':'list','id':'r','model':'m','results':[{'index':0,'relevance_score':0.25}],"
                  "'usage':{'prompt_tokens':6,'total_tokens':6},'meta':{'api_version':{'version':'2'},"
                  "'billed_units':{'search_units':1},'tokens':{'input_tokens':6}}}");
}

TEST(a_wish_that_cannot_be_met_is_refused_by_name)
{
    assert_bad("/v2/embed", "{'texts':['a'],'embedding_types':['int8']}",
               "embedding_types[0]: must be 'float' or 'base64'");
    assert_bad("/v2/embed", "{'texts':['a'],'embedding_types':'float'}", "embedding_types: must be a list");
    assert_bad("/v2/embed", "{'texts':['a'],'embedding_types':['float' 1]}", "embedding_types[1]: not JSON");
    assert_bad("/v2/embed", "{'texts':['a'],'truncate':'START'}", "truncate: must be 'NONE' or 'END'");
    assert_bad("/v2/embed", "{'texts':['a'],'images':['data:']}", "images: not supported by this server");
    assert_bad("/v2/embed", "{'inputs':[{'content':[]}],'texts':['a']}", "inputs: not supported by this server");
    assert_bad("/v2/embed", "{'texts':['a'],'input_type':'image'}",
               "input_type: must be 'search_document' or 'search_query' or 'classification' or 'clustering'");
    assert_bad("/v2/embed", "{'images':null}", "texts: missing");
}

/* The prompt that a body gets from a model with these prompts. */
static void assert_prompt(const char *path, const char *body, const char *facts, const char *prompt)
{
    struct call call = good_call(path, body);
    const char *json = quoted(facts);
    call_choose_prompt(&call, (struct slice){json, strlen(json)});
    assert_slice(call.prompt, prompt);
    call_free(&call);
}

TEST(a_purpose_chooses_the_models_prompt_for_it)
{
    static const char query[] = "{'texts':['a'],'input_type':'search_query'}";
    static const char document[] = "{'texts':['a'],'input_type':'search_document'}";
    static const char clustering[] = "{'texts':['a'],'input_type':'clustering'}";
    static const char facts[] = "{'dim':4,'prompts':['passage','Clustering','query']}";
    assert_prompt("/v2/embed", query, facts, "query");
    assert_prompt("/v2/embed", document, facts, "passage");
    assert_prompt("/v2/embed", clustering, facts, "Clustering");
    assert_prompt("/v2/embed", clustering, "{'prompts':['query']}", "");
    assert_prompt("/v2/embed", "{'texts':['a']}", facts, "");
    assert_prompt("/v2/embed", query, "{'prompts':['search_query','search_document']}", "search_query");
    assert_prompt("/v2/embed", document, "{'prompts':['search_document','document']}", "document");
    assert_prompt("/v2/embed", query, "{'prompts':[]}", "");
    assert_prompt("/v2/embed", query, "{'dim':4}", "");
    assert_prompt("/v2/embed", query, "", "");
    assert_prompt("/v1/embeddings", "{'input':'a','input_type':'query'}", facts, "query");
    assert_prompt("/v1/embeddings", "{'input':'a','task':'retrieval.passage'}", facts, "passage");
    assert_prompt("/v1/embeddings", "{'input':'a','task':'text-matching'}", facts, "");
    assert_prompt("/v1/embeddings", "{'input':'a','input_type':'query','prompt_name':'passage'}", facts, "passage");
}

TEST(a_fault_is_read_by_cohere_and_by_jina)
{
    struct fault fault;
    fault_set(&fault, &cohere_embed, FAULT_NO_MODEL, NULL, "no \"m\"");
    assert_int_equal(fault.status, 404);
    assert_fault_body("/v2/embed", &fault, "{'message':'no \\'m\\'','detail':'no \\'m\\''}");
}
