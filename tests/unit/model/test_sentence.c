/* modules.json and the files that it names, in both generations of sentence-transformers. */
#include "model/sentence_transformers.h"
#include "model_expect.h"

#include <stdlib.h>
#include <sys/stat.h>

#define POOLING_FILE "1_Pooling/config.json"
#define SENTENCE_FILE "sentence_bert_config.json"
#define PROMPTS_FILE "config_sentence_transformers.json"
#define TRANSFORMER_ALONE "[{'idx': 0, 'name': '0', 'path': '', 'type': 'sentence_transformers.models.Transformer'}]"

static struct model_spec spec_of(enum model_generation generation)
{
    struct model_spec spec = model_spec_tiny();
    spec.generation = generation;
    return spec;
}

static void build_generation(enum model_generation generation)
{
    struct model_spec spec = spec_of(generation);
    build(&spec);
}

MODEL_TEST(both_generations_say_the_same)
{
    for (int generation = GENERATION_CLASSIC; generation <= GENERATION_CURRENT; generation++) {
        for (int pooling = POOLING_MEAN; pooling <= POOLING_CLS; pooling++) {
            struct model_spec spec = spec_of((enum model_generation)generation);
            spec.pooling = (enum pooling)pooling;
            spec.normalize = pooling == POOLING_CLS;
            spec.max_tokens = 40;
            build(&spec);
            const struct model *model = opened(NULL);
            assert_int_equal(model->pooling, pooling);
            assert_int_equal(model->normalize, spec.normalize);
            assert_int_equal(model->dim, 32);
            assert_int_equal(model->max_tokens, 40);
            assert_string_equal(model->prompt, "");
        }
    }
}

/* The pooling is the option's, else the file's; nothing is guessed. */
MODEL_TEST(the_pooling_is_said_or_the_model_refused)
{
    enum { BARE = GENERATION_BARE, CLASSIC = GENERATION_CLASSIC, CURRENT = GENERATION_CURRENT };
    static const char drop[] = "";
    static const struct {
        int generation;
        const char *file, *from, *to; /* an edit; from: NULL: the whole file; to: NULL: none, `drop`: no such file */
        enum pooling option, pooling;
        enum status status;
        const char *says;
    } cases[] = {
        {BARE, "modules.json", NULL, NULL, 0, 0, STATUS_NOT_FOUND, "pooling"},
        {BARE, "modules.json", NULL, NULL, POOLING_CLS, POOLING_CLS, 0, NULL},
        {CLASSIC, POOLING_FILE, NULL, drop, 0, 0, STATUS_NOT_FOUND, "pooling"},
        {CLASSIC, POOLING_FILE, NULL, drop, POOLING_MEAN, POOLING_MEAN, 0, NULL},
        {CLASSIC, "modules.json", NULL, TRANSFORMER_ALONE, 0, 0, STATUS_NOT_FOUND, "pooling"},
        {CURRENT, POOLING_FILE, NULL, NULL, POOLING_CLS, POOLING_CLS, 0, NULL},
        {CLASSIC, POOLING_FILE, "'pooling_mode_cls_token': false", "'pooling_mode_cls_token': true", 0, 0,
         STATUS_UNSUPPORTED, "pooling_mode_mean_tokens and pooling_mode_cls_token"},
        /* To sentence-transformers all flags false means mean. */
        {CLASSIC, POOLING_FILE, "'pooling_mode_mean_tokens': true", "'pooling_mode_mean_tokens': false", 0,
         POOLING_MEAN, 0, NULL},
        {CLASSIC, POOLING_FILE, NULL, "{'word_embedding_dimension': 32}", 0, 0, STATUS_BAD_INPUT,
         "pooling_mode is missing"},
        {CURRENT, POOLING_FILE, "'mean'", "['cls']", 0, POOLING_CLS, 0, NULL},
        {CURRENT, POOLING_FILE, "'mean'", "'median'", 0, 0, STATUS_UNSUPPORTED, "pooling_mode"},
        {CURRENT, POOLING_FILE, "'mean'", "['mean', 'cls']", 0, 0, STATUS_UNSUPPORTED, "pooling_mode"},
        {CURRENT, POOLING_FILE, "'mean'", "[]", 0, 0, STATUS_UNSUPPORTED, "pooling_mode"},
        {CURRENT, POOLING_FILE, "'mean'", "7", 0, 0, STATUS_UNSUPPORTED, "pooling_mode"},
        {CURRENT, POOLING_FILE, "'include_prompt'", "'temperature'", 0, 0, STATUS_UNSUPPORTED, "temperature"},
        {CURRENT, POOLING_FILE, "'include_prompt': true", "'include_prompt': 1", 0, 0, STATUS_BAD_INPUT,
         "include_prompt"},
        {CURRENT, POOLING_FILE, "'embedding_dimension': 32", "'embedding_dimension': 64", 0, 0, STATUS_BAD_INPUT,
         "embedding dimension 64"},
        /* Two spellings side by side must agree. */
        {CURRENT, POOLING_FILE, NULL,
         "{'embedding_dimension': 32, 'word_embedding_dimension': 32, 'pooling_mode': 'cls', "
         "'pooling_mode_cls_token': true, 'pooling_mode_mean_tokens': false}",
         0, POOLING_CLS, 0, NULL},
        {CURRENT, POOLING_FILE, NULL,
         "{'embedding_dimension': 32, 'word_embedding_dimension': 64, 'pooling_mode': 'cls'}", 0, 0, STATUS_BAD_INPUT,
         "embedding_dimension and word_embedding_dimension contradict each other"},
        {CURRENT, POOLING_FILE, NULL,
         "{'embedding_dimension': 32, 'pooling_mode': 'cls', 'pooling_mode_mean_tokens': true}", 0, 0, STATUS_BAD_INPUT,
         "pooling_mode and pooling_mode_mean_tokens contradict each other"},
        {CURRENT, POOLING_FILE, NULL,
         "{'embedding_dimension': 32, 'pooling_mode': 'cls', 'pooling_mode_cls_token': false}", 0, 0, STATUS_BAD_INPUT,
         "pooling_mode and pooling_mode_cls_token contradict each other"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_options options = {.pooling = cases[i].option};
        build_generation((enum model_generation)cases[i].generation);
        if (cases[i].from) {
            edit_file(cases[i].file, cases[i].from, cases[i].to);
        } else if (cases[i].to == drop) {
            drop_file(cases[i].file);
        } else if (cases[i].to) {
            put_file(cases[i].file, cases[i].to);
        }
        if (cases[i].says) {
            refused(&options, cases[i].status, cases[i].file, cases[i].says);
        } else {
            const struct model *model = opened(&options);
            assert_int_equal(model->pooling, cases[i].pooling);
            assert_int_equal(model->normalize, cases[i].generation != BARE);
        }
    }
}

/* golden/modules_golden.py compares the words with those of sentence-transformers. */
MODEL_TEST(reads_every_pooling_in_both_spellings)
{
    static const struct {
        const char *flag, *mode;
        enum pooling pooling;
    } cases[] = {
#define POOLING(name, mode, flag) {"pooling_mode_" flag, mode, POOLING_##name},
#include "model/poolings.inc"
#undef POOLING
    };
    char text[2][256];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text[0], sizeof text[0], "{'word_embedding_dimension': 32, '%s': true}", cases[i].flag);
        snprintf(text[1], sizeof text[1], "{'embedding_dimension': 32, 'pooling_mode': '%s'}", cases[i].mode);
        for (int spelling = 0; spelling < 2; spelling++) {
            put_file(POOLING_FILE, text[spelling]);
            const struct model *model = opened(NULL);
            assert_int_equal(model->pooling, cases[i].pooling);
            assert_string_equal(pooling_name(model->pooling), cases[i].mode);
        }
    }
}

/* Sentence-transformers would not read these files; the user's own settings may replace them. */
MODEL_TEST(without_modules_other_files_may_not_count)
{
    const struct model_options mean = {.pooling = POOLING_MEAN},
                               limited = {.pooling = POOLING_MEAN, .max_tokens = 9, .prefix = "query: "};
    build_generation(GENERATION_BARE);
    put_file(SENTENCE_FILE, "{'max_seq_length': 20, 'do_lower_case': false}");
    refused(&mean, STATUS_UNSUPPORTED, SENTENCE_FILE ": max_seq_length is set, and modules.json", "");
    opened(&limited);
    put_file(SENTENCE_FILE, "{'max_seq_length': null, 'do_lower_case': false}");
    opened(&mean);
    put_file(PROMPTS_FILE, "{'prompts': {'a': 'b '}, 'default_prompt_name': 'a'}");
    refused(&mean, STATUS_UNSUPPORTED, PROMPTS_FILE ": default_prompt_name is set, and modules.json", "");
    opened(&limited);
}

MODEL_TEST(refuses_other_modules)
{
    const struct model_spec spec = spec_of(GENERATION_CLASSIC);
    const char *transformer = "sentence_transformers.models.Transformer", *file = "modules.json";
    EDITS_REFUSED(
        &spec, {file, "models.Normalize", "models.LSTM", STATUS_UNSUPPORTED, "LSTM"},
        {file, "models.Normalize", "models.Dense", STATUS_NOT_FOUND, "2_Normalize/config.json of the module Dense"},
        {file, transformer, "custom_st.Transformer", STATUS_UNSUPPORTED, "custom_st.Transformer"},
        {file, transformer, "sentence_transformers.models.CLIPModel", STATUS_UNSUPPORTED, "CLIPModel"},
        {file, "'name': '2'", "'kwargs': ['task']", STATUS_UNSUPPORTED, "kwargs"},
        {file, "'name': '2'", "'name': '1'", STATUS_UNSUPPORTED, "two modules have the same name"},
        {file, NULL, "[]", STATUS_BAD_INPUT, "list of modules"}, {file, NULL, "[7]", STATUS_BAD_INPUT, "object"},
        /* paths outside the model */
        {file, "1_Pooling", "/etc", STATUS_BAD_INPUT, "path"},
        {file, "1_Pooling", "../other", STATUS_BAD_INPUT, "path"},
        {file, "1_Pooling", "1_Pooling/../../x", STATUS_BAD_INPUT, "path"},
        {file, "1_Pooling", ".hidden", STATUS_BAD_INPUT, "path"},
        {file, "1_Pooling", "a\\\\b", STATUS_BAD_INPUT, "path"});
}

/* golden/modules_golden.py covers the modules that open. */
MODEL_TEST(refuses_what_a_module_says)
{
    static const struct {
        const char *kind, *config, *says;
        enum status status;
    } cases[] = {
        {"LayerNorm", "{}", "2_Normalize/config.json: dimension is missing", STATUS_BAD_INPUT},
        {"LayerNorm", "{'dimension': 32, 'eps': 1e-3}", "2_Normalize/config.json: the field eps", STATUS_UNSUPPORTED},
        {"LayerNorm", "{'dimension': 31}", "2_Normalize/norm takes 31 numbers, and what stands before it gives 32",
         STATUS_BAD_INPUT},
        {"LayerNorm", "{'dimension': 32}", "2_Normalize/model.safetensors is missing", STATUS_NOT_FOUND},
        {"Dense", "{'in_features': 32}", "out_features is missing", STATUS_BAD_INPUT},
        {"Dense", "{'in_features': 32, 'out_features': 8, 'use_residual': true}", "use_residual", STATUS_UNSUPPORTED},
        {"Dense", "{'in_features': 32, 'out_features': 8, 'module_input_name': 'token_embeddings'}",
         "module_input_name", STATUS_UNSUPPORTED},
        {"Dense", "{'in_features': 32, 'out_features': 8, 'activation_function': 'torch.nn.modules.activation.Mish'}",
         "Mish", STATUS_UNSUPPORTED},
        {"Dense", "{'in_features': 32, 'out_features': 8, 'activation_function': 'my.Tanh'}", "my.Tanh",
         STATUS_UNSUPPORTED},
    };
    char now[64], folder[512];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        build_generation(GENERATION_CLASSIC);
        snprintf(folder, sizeof folder, "%s/2_Normalize", made.directory);
        (void)mkdir(folder, 0777);
        snprintf(now, sizeof now, "models.%s", cases[i].kind);
        edit_file("modules.json", "models.Normalize", now);
        put_file("2_Normalize/config.json", cases[i].config);
        refused(NULL, cases[i].status, cases[i].says, "2_Normalize");
    }
}

/* The head's layers take the place of the modules, of which there are none; ASan says whether their memory is freed. */
MODEL_TEST(a_classifier_may_have_a_list_of_modules)
{
    edit_file("config.json", "'BertModel'", "'BertForSequenceClassification'");
    put_file("modules.json", TRANSFORMER_ALONE);
    refused(&(struct model_options){.classifier = true}, STATUS_BAD_INPUT, "classifier.bias is missing", "");
}

MODEL_TEST(refuses_modules_out_of_order)
{
    static const char *const orders[] = {"10", "0", "021", "011", "2", "0012", "01220"};
    static const char *const types[] = {"Transformer", "Pooling", "Normalize"};
    static const char *const paths[] = {"", "1_Pooling", "2_Normalize"};
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        bool alone = strcmp(orders[i], "0") == 0;
        char text[1024] = "[";
        for (const char *at = orders[i]; *at != '\0'; at++) {
            snprintf(text + strlen(text), sizeof text - strlen(text),
                     "%s{'path': '%s', 'type': 'sentence_transformers.models.%s'}", at > orders[i] ? ", " : "",
                     paths[*at - '0'], types[*at - '0']);
        }
        put_file("modules.json", strcat(text, "]"));
        refused(NULL, alone ? STATUS_NOT_FOUND : STATUS_UNSUPPORTED, "modules.json",
                alone ? "no Pooling module" : "out of order");
    }
}

/* The first releases put the encoder into a folder of its own. */
MODEL_TEST(opens_an_encoder_in_its_own_folder)
{
    static const char *const gone[] = {"config.json",           "model.safetensors", "tokenizer.json",
                                       "tokenizer_config.json", "vocab.txt",         SENTENCE_FILE};
    struct model_spec spec = spec_of(GENERATION_BARE);
    char folder[512];
    snprintf(folder, sizeof folder, "%s/0_Transformer", made.directory);
    assert_int_equal(mkdir(folder, 0777), 0);
    spec.seed = 77;
    model_build_into(&spec, folder);
    put_file("0_Transformer/" SENTENCE_FILE, "{'max_seq_length': 21, 'do_lower_case': false}");
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++) { drop_file(gone[i]); }
    edit_file("modules.json", "'path': ''", "'path': '0_Transformer'");
    const struct model *model = opened(NULL);
    assert_int_equal(model->max_tokens, 21);
    float value;
    tensor_read_f32(&model->word_embeddings, 5, 1, &value);
    assert_true(value == model_weight(&spec, "embeddings.word_embeddings.weight", 5));
}

MODEL_TEST(refuses_sentence_fields)
{
    const struct model_spec spec = spec_of(GENERATION_CURRENT);
    const char *file = SENTENCE_FILE, *task = "'transformer_task'";
    EDITS_REFUSED(
        &spec, {file, "'feature-extraction'", "'fill-mask'", STATUS_UNSUPPORTED, "transformer_task"},
        {file, "'token_embeddings'", "'sentence_embedding'", STATUS_UNSUPPORTED, "module_output_name"},
        {file, "'forward'", "'get_text_features'", STATUS_UNSUPPORTED, "method"},
        {file, "'last_hidden_state'", "'pooler_output'", STATUS_UNSUPPORTED, "method_output_name"},
        {file, "'text'", "'image'", STATUS_UNSUPPORTED, "modality_config"},
        {file, "'text'", "'message': {'format': 'flat'}, 'text'", STATUS_UNSUPPORTED, "message"},
        {file, task, "'query_length': 32, 'transformer_task'", STATUS_UNSUPPORTED, "query_length"},
        {file, task, "'model_kwargs': {'add_pooling_layer': false}, 'transformer_task'", STATUS_UNSUPPORTED,
         "model_kwargs"},
        {file, task, "'processing_kwargs': {'text': {}}, 'transformer_task'", STATUS_UNSUPPORTED, "processing_kwargs"},
        {file, task, "'surprise': 1, 'transformer_task'", STATUS_UNSUPPORTED, "surprise"},
        {file, task, "'max_seq_length': '256', 'transformer_task'", STATUS_BAD_INPUT, "max_seq_length"},
        {file, task, "'max_seq_length': 0, 'transformer_task'", STATUS_BAD_INPUT, "max_seq_length"},
        {file, task, "'do_lower_case': 'yes', 'transformer_task'", STATUS_BAD_INPUT, "do_lower_case"},
        /* Normalize must work on the sentence. */
        {"2_Normalize/config.json", "'module_input_name': 'sentence_embedding'",
         "'module_input_name': 'token_embeddings'", STATUS_UNSUPPORTED, "module_input_name"},
        {"2_Normalize/config.json", "'module_input_name'", "'p': 1, 'module_input_name'", STATUS_UNSUPPORTED,
         "the field p "});
}

/* The encoder's own file under each of its names, in their order of precedence; one without the setting is passed over.
 */
MODEL_TEST(the_encoders_file_had_other_names)
{
    static const char *const names[] = {"xlnet", "xlm-roberta", "albert", "camembert", "distilbert", "roberta", "bert"};
    char file[64], text[64];
    build_generation(GENERATION_CURRENT);
    drop_file(SENTENCE_FILE);
    for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(file, sizeof file, "sentence_%s_config.json", names[i]);
        put_file(file, "{}");
        assert_int_equal(opened(NULL)->max_tokens, i == 0 ? 64 : 19 + i);
        snprintf(text, sizeof text, "{'max_seq_length': %u}", 20 + i);
        put_file(file, text);
        assert_int_equal(opened(NULL)->max_tokens, 20 + i);
    }
    put_file(SENTENCE_FILE, "{}");
    put_file("sentence_roberta_config.json", "{'surprise': 1}");
    refused(NULL, STATUS_UNSUPPORTED, "sentence_roberta_config.json", "surprise");
}

static const char *const prompts =
    "{'__version__': {}, 'prompts': {'query': 'query: ', 'passage': 'passage: ', 'empty': ''}, "
    "'default_prompt_name': 'passage', 'similarity_fn_name': 'dot'}";

MODEL_TEST(picks_prompts_by_name)
{
    static const struct {
        const char *name, *expected;
    } cases[] = {{NULL, "passage: "}, {"query", "query: "}, {"empty", ""}, {"", ""}};
    put_file(PROMPTS_FILE, prompts);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct model *model = opened(&(struct model_options){.prompt = cases[i].name});
        assert_string_equal(model->prompt, cases[i].expected);
        assert_true(model->pool_prompt);
        assert_int_equal(model->prompt_count, 3);
        assert_string_equal(model->prompts[1].name, "passage");
        assert_string_equal(model->prompts[1].text, "passage: ");
        assert_string_equal(model->prompts[2].text, "");
    }
    struct model_options options = {.prompt = "Query"};
    refused(&options, STATUS_NOT_FOUND, PROMPTS_FILE, "'Query'");
    drop_file(PROMPTS_FILE);
    refused(&options, STATUS_NOT_FOUND, PROMPTS_FILE, "'Query'");
}

MODEL_TEST(a_prefix_stands_for_a_prompt)
{
    struct model_options options = {.prefix = "query: "};
    assert_string_equal(opened(&options)->prompt, "query: ");
    put_file(PROMPTS_FILE, prompts); /* the option also replaces its default prompt */
    assert_string_equal(opened(&options)->prompt, "query: ");
    options.prefix = "\xff";
    refused(&options, STATUS_BAD_INPUT, "prefix", "UTF-8");
}

MODEL_TEST(refuses_prompt_fields)
{
    const struct model_spec spec = spec_of(GENERATION_CLASSIC);
    const char *file = PROMPTS_FILE;
    EDITS_REFUSED(
        &spec, {file, NULL, "{'default_prompt_name': 'nope', 'prompts': {}}", STATUS_NOT_FOUND, "'nope'"},
        {file, NULL, "{'default_prompt_name': 7}", STATUS_BAD_INPUT, "default_prompt_name"},
        {file, NULL, "{'default_prompt_name': 'a', 'prompts': ['a']}", STATUS_BAD_INPUT, "prompts"},
        {file, NULL, "{'default_prompt_name': 'a', 'prompts': {'a': 7}}", STATUS_BAD_INPUT, "a must be a string"},
        {file, NULL, "{'model_type': 'SparseEncoder'}", STATUS_UNSUPPORTED, "model_type"},
        {file, NULL, "{'truncate_dim': 16}", STATUS_UNSUPPORTED, "truncate_dim"},
        {file, NULL, "[]", STATUS_BAD_INPUT, "object"}, {file, NULL, "{", STATUS_BAD_INPUT, "JSON"});
}

MODEL_TEST(include_prompt_false_is_refused_with_a_prompt_only)
{
    build_generation(GENERATION_CURRENT);
    edit_file(POOLING_FILE, "'include_prompt': true", "'include_prompt': false");
    opened(NULL);
    put_file(PROMPTS_FILE, prompts);
    refused(NULL, STATUS_UNSUPPORTED, POOLING_FILE, "include_prompt");
    assert_false(opened(&(struct model_options){.prompt = ""})->pool_prompt);
}
