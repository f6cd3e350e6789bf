/* modules.json and the files that it names, in both generations of sentence-transformers. */
#include "model/sentence_transformers.h"
#include "model_expect.h"

#include <stdlib.h>
#include <sys/stat.h>

#define POOLING_FILE "1_Pooling/config.json"
#define SENTENCE_FILE "sentence_bert_config.json"
#define PROMPTS_FILE "config_sentence_transformers.json"

static struct model_spec spec_of(enum model_generation generation)
{
    struct model_spec spec = model_spec_tiny();
    spec.generation = generation;
    return spec;
}

TEST(both_generations_say_the_same)
{
    for (int generation = GENERATION_CLASSIC; generation <= GENERATION_CURRENT; generation++) {
        for (int pooling = POOLING_MEAN; pooling <= POOLING_CLS; pooling++) {
            struct model_spec spec = spec_of((enum model_generation)generation);
            spec.pooling = (enum pooling)pooling;
            spec.normalize = pooling == POOLING_CLS;
            spec.max_tokens = 40;
            char *directory = model_build(&spec);
            struct model *model = expect_model(directory, NULL);
            assert_int_equal(model->pooling, pooling);
            assert_int_equal(model->normalize, spec.normalize);
            assert_int_equal(model->dim, 32);
            assert_int_equal(model->max_tokens, 40);
            assert_string_equal(model->prompt, "");
            model_close(model);
            model_build_remove(directory);
        }
    }
}

TEST(without_modules_the_pooling_must_be_given)
{
    struct model_spec spec = spec_of(GENERATION_BARE);
    char *directory = model_build(&spec);
    expect_refused(directory, NULL, STATUS_NOT_FOUND, "modules.json", "pooling");
    struct model_options options = {.pooling = POOLING_CLS};
    struct model *model = expect_model(directory, &options);
    assert_int_equal(model->pooling, POOLING_CLS);
    assert_false(model->normalize);
    model_close(model);
    model_build_remove(directory);
}

/* Sentence-transformers would not read these files; the user's own settings may replace them. */
TEST(without_modules_other_files_may_not_count)
{
    const struct model_options mean = {.pooling = POOLING_MEAN},
                               limited = {.pooling = POOLING_MEAN, .max_tokens = 9, .prefix = "query: "};
    struct model_spec spec = spec_of(GENERATION_BARE);
    char *directory = model_build(&spec);
    model_file_write(directory, SENTENCE_FILE, "{\"max_seq_length\": 20, \"do_lower_case\": false}");
    expect_refused(directory, &mean, STATUS_UNSUPPORTED, SENTENCE_FILE ": max_seq_length is set, and modules.json", "");
    model_close(expect_model(directory, &limited));
    model_file_write(directory, SENTENCE_FILE, "{\"max_seq_length\": null, \"do_lower_case\": false}");
    model_close(expect_model(directory, &mean));
    model_file_write(directory, PROMPTS_FILE, "{\"prompts\": {\"a\": \"b \"}, \"default_prompt_name\": \"a\"}");
    expect_refused(directory, &mean, STATUS_UNSUPPORTED, PROMPTS_FILE ": default_prompt_name is set, and modules.json",
                   "");
    model_close(expect_model(directory, &limited));
    model_build_remove(directory);
}

TEST(without_a_pooling_file_the_pooling_must_be_given)
{
    struct model_spec spec = spec_of(GENERATION_CLASSIC);
    char *directory = model_build(&spec);
    model_file_remove(directory, POOLING_FILE);
    expect_refused(directory, NULL, STATUS_NOT_FOUND, POOLING_FILE, "pooling");
    struct model_options options = {.pooling = POOLING_MEAN};
    struct model *model = expect_model(directory, &options);
    assert_true(model->normalize);
    model_close(model);
    model_build_remove(directory);
}

TEST(without_a_pooling_module_the_pooling_must_be_given)
{
    struct model_spec spec = spec_of(GENERATION_CLASSIC);
    char *directory = model_build(&spec);
    model_file_write(
        directory, "modules.json",
        "[{\"idx\": 0, \"name\": \"0\", \"path\": \"\", \"type\": \"sentence_transformers.models.Transformer\"}]");
    expect_refused(directory, NULL, STATUS_NOT_FOUND, "modules.json", "pooling");
    model_build_remove(directory);
}

TEST(the_option_wins_over_the_file)
{
    struct model_spec spec = spec_of(GENERATION_CURRENT);
    char *directory = model_build(&spec);
    struct model_options options = {.pooling = POOLING_CLS};
    struct model *model = expect_model(directory, &options);
    assert_int_equal(model->pooling, POOLING_CLS);
    model_close(model);
    model_build_remove(directory);
}

/* golden/modules_golden.py compares the words with those of sentence-transformers. */
TEST(reads_every_pooling_in_both_spellings)
{
    static const struct {
        const char *flag, *mode;
        enum pooling pooling;
    } cases[] = {
#define POOLING(name, mode, flag) {"pooling_mode_" flag, mode, POOLING_##name},
#include "model/poolings.inc"
#undef POOLING
    };
    struct model_spec spec = spec_of(GENERATION_CLASSIC);
    char *directory = model_build(&spec), text[2][256];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text[0], sizeof text[0], "{\"word_embedding_dimension\": 32, \"%s\": true}", cases[i].flag);
        snprintf(text[1], sizeof text[1], "{\"embedding_dimension\": 32, \"pooling_mode\": \"%s\"}", cases[i].mode);
        for (int spelling = 0; spelling < 2; spelling++) {
            model_file_write(directory, POOLING_FILE, text[spelling]);
            struct model *model = expect_model(directory, NULL);
            assert_int_equal(model->pooling, cases[i].pooling);
            assert_string_equal(pooling_name(model->pooling), cases[i].mode);
            model_close(model);
        }
    }
    model_build_remove(directory);
}

TEST(refuses_other_pooling_modes)
{
    struct model_spec spec = spec_of(GENERATION_CLASSIC);
    expect_edit_refused(&spec, POOLING_FILE, "\"pooling_mode_cls_token\": false", "\"pooling_mode_cls_token\": true",
                        STATUS_UNSUPPORTED, "pooling_mode_mean_tokens and pooling_mode_cls_token");
    spec = spec_of(GENERATION_CURRENT);
    static const char *const modes[] = {"\"median\"", "[\"mean\", \"cls\"]", "[]", "7"};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        expect_edit_refused(&spec, POOLING_FILE, "\"mean\"", modes[i], STATUS_UNSUPPORTED, "pooling_mode");
    }
}

TEST(reads_a_list_of_one_mode)
{
    struct model_spec spec = spec_of(GENERATION_CURRENT);
    char *directory = model_build(&spec);
    model_file_edit(directory, POOLING_FILE, "\"mean\"", "[\"cls\"]");
    struct model *model = expect_model(directory, NULL);
    assert_int_equal(model->pooling, POOLING_CLS);
    model_close(model);
    model_build_remove(directory);
}

/* To sentence-transformers all flags false means mean; a file without any mode decides nothing, and nothing is guessed.
 */
TEST(reads_flags_that_are_all_false_as_mean)
{
    struct model_spec spec = spec_of(GENERATION_CLASSIC);
    char *directory = model_build(&spec);
    model_file_edit(directory, POOLING_FILE, "\"pooling_mode_mean_tokens\": true",
                    "\"pooling_mode_mean_tokens\": false");
    struct model *model = expect_model(directory, NULL);
    assert_int_equal(model->pooling, POOLING_MEAN);
    model_close(model);
    model_file_write(directory, POOLING_FILE, "{\"word_embedding_dimension\": 32}");
    expect_refused(directory, NULL, STATUS_BAD_INPUT, POOLING_FILE, "pooling_mode is missing");
    model_build_remove(directory);
}

TEST(refuses_wrong_pooling_fields)
{
    struct model_spec spec = spec_of(GENERATION_CURRENT);
    expect_edit_refused(&spec, POOLING_FILE, "\"include_prompt\"", "\"temperature\"", STATUS_UNSUPPORTED,
                        "temperature");
    expect_edit_refused(&spec, POOLING_FILE, "\"include_prompt\": true", "\"include_prompt\": 1", STATUS_BAD_INPUT,
                        "include_prompt");
    char *directory = model_build(&spec);
    model_file_edit(directory, POOLING_FILE, "\"embedding_dimension\": 32", "\"embedding_dimension\": 64");
    expect_refused(directory, NULL, STATUS_BAD_INPUT, POOLING_FILE, "embedding dimension 64");
    model_build_remove(directory);
}

TEST(pooling_in_both_spellings_must_agree)
{
    static const struct {
        const char *config, *says;
    } cases[] = {
        {"{\"embedding_dimension\": 32, \"word_embedding_dimension\": 32, \"pooling_mode\": \"cls\", "
         "\"pooling_mode_cls_token\": true, \"pooling_mode_mean_tokens\": false}",
         NULL},
        {"{\"embedding_dimension\": 32, \"word_embedding_dimension\": 64, \"pooling_mode\": \"cls\"}",
         "embedding_dimension and word_embedding_dimension contradict each other"},
        {"{\"embedding_dimension\": 32, \"pooling_mode\": \"cls\", \"pooling_mode_mean_tokens\": true}",
         "pooling_mode and pooling_mode_mean_tokens contradict each other"},
        {"{\"embedding_dimension\": 32, \"pooling_mode\": \"cls\", \"pooling_mode_cls_token\": false}",
         "pooling_mode and pooling_mode_cls_token contradict each other"},
    };
    struct model_spec spec = spec_of(GENERATION_CURRENT);
    char *directory = model_build(&spec);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        model_file_write(directory, POOLING_FILE, cases[i].config);
        if (cases[i].says) {
            expect_refused(directory, NULL, STATUS_BAD_INPUT, POOLING_FILE, cases[i].says);
        } else {
            struct model *model = expect_model(directory, NULL);
            assert_int_equal(model->pooling, POOLING_CLS);
            model_close(model);
        }
    }
    model_build_remove(directory);
}

TEST(refuses_other_modules)
{
    struct model_spec spec = spec_of(GENERATION_CLASSIC);
    expect_edit_refused(&spec, "modules.json", "models.Normalize", "models.LSTM", STATUS_UNSUPPORTED, "LSTM");
    expect_edit_refused(&spec, "modules.json", "models.Normalize", "models.Dense", STATUS_NOT_FOUND,
                        "2_Normalize/config.json of the module Dense");
    expect_edit_refused(&spec, "modules.json", "sentence_transformers.models.Transformer", "custom_st.Transformer",
                        STATUS_UNSUPPORTED, "custom_st.Transformer");
    expect_edit_refused(&spec, "modules.json", "sentence_transformers.models.Transformer",
                        "sentence_transformers.models.CLIPModel", STATUS_UNSUPPORTED, "CLIPModel");
    expect_edit_refused(&spec, "modules.json", "\"name\": \"2\"", "\"kwargs\": [\"task\"]", STATUS_UNSUPPORTED,
                        "kwargs");
    expect_edit_refused(&spec, "modules.json", "\"name\": \"2\"", "\"name\": \"1\"", STATUS_UNSUPPORTED,
                        "two modules have the same name");
}

/* golden/modules_golden.py covers the modules that open. */
TEST(refuses_what_a_module_says)
{
    static const struct {
        const char *kind, *config, *says;
        enum status status;
    } cases[] = {
        {"LayerNorm", "{}", "2_Normalize/config.json: dimension is missing", STATUS_BAD_INPUT},
        {"LayerNorm", "{\"dimension\": 32, \"eps\": 1e-3}", "2_Normalize/config.json: the field eps",
         STATUS_UNSUPPORTED},
        {"LayerNorm", "{\"dimension\": 31}", "2_Normalize/norm takes 31 numbers, and what stands before it gives 32",
         STATUS_BAD_INPUT},
        {"LayerNorm", "{\"dimension\": 32}", "2_Normalize/model.safetensors is missing", STATUS_NOT_FOUND},
        {"Dense", "{\"in_features\": 32}", "out_features is missing", STATUS_BAD_INPUT},
        {"Dense", "{\"in_features\": 32, \"out_features\": 8, \"use_residual\": true}", "use_residual",
         STATUS_UNSUPPORTED},
        {"Dense", "{\"in_features\": 32, \"out_features\": 8, \"module_input_name\": \"token_embeddings\"}",
         "module_input_name", STATUS_UNSUPPORTED},
        {"Dense",
         "{\"in_features\": 32, \"out_features\": 8, \"activation_function\": \"torch.nn.modules.activation.Mish\"}",
         "Mish", STATUS_UNSUPPORTED},
        {"Dense", "{\"in_features\": 32, \"out_features\": 8, \"activation_function\": \"my.Tanh\"}", "my.Tanh",
         STATUS_UNSUPPORTED},
    };
    struct model_spec spec = spec_of(GENERATION_CLASSIC);
    char *directory = model_build(&spec), kind[64] = "models.Normalize", now[64], folder[512];
    snprintf(folder, sizeof folder, "%s/2_Normalize", directory);
    (void)mkdir(folder, 0777);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(now, sizeof now, "models.%s", cases[i].kind);
        if (strcmp(kind, now) != 0) { model_file_edit(directory, "modules.json", kind, now); }
        snprintf(kind, sizeof kind, "%s", now);
        model_file_write(directory, "2_Normalize/config.json", cases[i].config);
        expect_refused(directory, NULL, cases[i].status, cases[i].says, "2_Normalize");
    }
    model_build_remove(directory);
}

/* The head's layers take the place of the modules, of which there are none; ASan says whether their memory is freed. */
TEST(a_classifier_may_have_a_list_of_modules)
{
    struct model_spec spec = model_spec_tiny();
    char *directory = model_build(&spec);
    model_file_edit(directory, "config.json", "\"BertModel\"", "\"BertForSequenceClassification\"");
    model_file_write(directory, "modules.json",
                     "[{\"idx\": 0, \"name\": \"0\", \"path\": \"\", \"type\": "
                     "\"sentence_transformers.models.Transformer\"}]");
    expect_refused(directory, &(struct model_options){.classifier = true}, STATUS_BAD_INPUT,
                   "classifier.bias is missing", "");
    model_build_remove(directory);
}

TEST(refuses_modules_out_of_order)
{
    static const char *const orders[] = {"10", "0", "021", "011", "2", "0012", "01220"};
    static const char *const types[] = {"Transformer", "Pooling", "Normalize"};
    static const char *const paths[] = {"", "1_Pooling", "2_Normalize"};
    struct model_spec spec = spec_of(GENERATION_CLASSIC);
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        char text[1024] = "[";
        for (const char *at = orders[i]; *at != '\0'; at++) {
            snprintf(text + strlen(text), sizeof text - strlen(text),
                     "%s{\"path\": \"%s\", \"type\": \"sentence_transformers.models.%s\"}", at > orders[i] ? ", " : "",
                     paths[*at - '0'], types[*at - '0']);
        }
        strcat(text, "]");
        char *directory = model_build(&spec);
        model_file_write(directory, "modules.json", text);
        if (strcmp(orders[i], "0") == 0) {
            expect_refused(directory, NULL, STATUS_NOT_FOUND, "modules.json", "no Pooling module");
        } else {
            expect_refused(directory, NULL, STATUS_UNSUPPORTED, "modules.json", "out of order");
        }
        model_build_remove(directory);
    }
    char *directory = model_build(&spec);
    model_file_write(directory, "modules.json", "[]");
    expect_refused(directory, NULL, STATUS_BAD_INPUT, "modules.json", "list of modules");
    model_file_write(directory, "modules.json", "[7]");
    expect_refused(directory, NULL, STATUS_BAD_INPUT, "modules.json", "object");
    model_build_remove(directory);
}

TEST(refuses_paths_outside_the_model)
{
    struct model_spec spec = spec_of(GENERATION_CLASSIC);
    static const char *const paths[] = {"/etc", "../other", "1_Pooling/../../x", ".hidden", "a\\\\b"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        expect_edit_refused(&spec, "modules.json", "1_Pooling", paths[i], STATUS_BAD_INPUT, "path");
    }
}

/* The first releases put the encoder into a folder of its own. */
TEST(opens_an_encoder_in_its_own_folder)
{
    struct model_spec spec = spec_of(GENERATION_BARE);
    struct model_spec outer = spec_of(GENERATION_CLASSIC);
    char *directory = model_build(&outer);
    char folder[512];
    snprintf(folder, sizeof folder, "%s/0_Transformer", directory);
    assert_int_equal(mkdir(folder, 0777), 0);
    spec.seed = 77;
    model_build_into(&spec, folder);
    model_file_write(folder, SENTENCE_FILE, "{\"max_seq_length\": 21, \"do_lower_case\": false}");
    static const char *const gone[] = {"config.json",           "model.safetensors", "tokenizer.json",
                                       "tokenizer_config.json", "vocab.txt",         SENTENCE_FILE};
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++) { model_file_remove(directory, gone[i]); }
    model_file_edit(directory, "modules.json", "\"path\": \"\"", "\"path\": \"0_Transformer\"");
    struct model *model = expect_model(directory, NULL);
    assert_int_equal(model->max_tokens, 21);
    float value;
    tensor_read_f32(&model->word_embeddings, 5, 1, &value);
    assert_true(value == model_weight(&spec, "embeddings.word_embeddings.weight", 5));
    model_close(model);
    model_build_remove(directory);
}

TEST(refuses_sentence_fields)
{
    static const struct {
        const char *from, *to, *field;
        enum status status;
    } cases[] = {
        {"\"feature-extraction\"", "\"fill-mask\"", "transformer_task", STATUS_UNSUPPORTED},
        {"\"token_embeddings\"", "\"sentence_embedding\"", "module_output_name", STATUS_UNSUPPORTED},
        {"\"forward\"", "\"get_text_features\"", "method", STATUS_UNSUPPORTED},
        {"\"last_hidden_state\"", "\"pooler_output\"", "method_output_name", STATUS_UNSUPPORTED},
        {"\"text\"", "\"image\"", "modality_config", STATUS_UNSUPPORTED},
        {"\"text\"", "\"message\": {\"format\": \"flat\"}, \"text\"", "message", STATUS_UNSUPPORTED},
        {"\"transformer_task\"", "\"query_length\": 32, \"transformer_task\"", "query_length", STATUS_UNSUPPORTED},
        {"\"transformer_task\"", "\"model_kwargs\": {\"add_pooling_layer\": false}, \"transformer_task\"",
         "model_kwargs", STATUS_UNSUPPORTED},
        {"\"transformer_task\"", "\"processing_kwargs\": {\"text\": {}}, \"transformer_task\"", "processing_kwargs",
         STATUS_UNSUPPORTED},
        {"\"transformer_task\"", "\"surprise\": 1, \"transformer_task\"", "surprise", STATUS_UNSUPPORTED},
        {"\"transformer_task\"", "\"max_seq_length\": \"256\", \"transformer_task\"", "max_seq_length",
         STATUS_BAD_INPUT},
        {"\"transformer_task\"", "\"max_seq_length\": 0, \"transformer_task\"", "max_seq_length", STATUS_BAD_INPUT},
        {"\"transformer_task\"", "\"do_lower_case\": \"yes\", \"transformer_task\"", "do_lower_case", STATUS_BAD_INPUT},
    };
    struct model_spec spec = spec_of(GENERATION_CURRENT);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_edit_refused(&spec, SENTENCE_FILE, cases[i].from, cases[i].to, cases[i].status, cases[i].field);
    }
}

/* The encoder's own file under each of its names, in their order of precedence; one without the setting is passed over.
 */
TEST(the_encoders_file_had_other_names)
{
    static const char *const names[] = {"xlnet", "xlm-roberta", "albert", "camembert", "distilbert", "roberta", "bert"};
    struct model_spec spec = spec_of(GENERATION_CURRENT);
    char *directory = model_build(&spec), file[64];
    model_file_remove(directory, SENTENCE_FILE);
    for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char text[64];
        snprintf(file, sizeof file, "sentence_%s_config.json", names[i]);
        model_file_write(directory, file, "{}");
        struct model *model = expect_model(directory, NULL);
        assert_int_equal(model->max_tokens, i == 0 ? 64 : 19 + i);
        model_close(model);
        snprintf(text, sizeof text, "{\"max_seq_length\": %u}", 20 + i);
        model_file_write(directory, file, text);
        model = expect_model(directory, NULL);
        assert_int_equal(model->max_tokens, 20 + i);
        model_close(model);
    }
    model_file_write(directory, SENTENCE_FILE, "{}");
    model_file_write(directory, "sentence_roberta_config.json", "{\"surprise\": 1}");
    expect_refused(directory, NULL, STATUS_UNSUPPORTED, "sentence_roberta_config.json", "surprise");
    model_build_remove(directory);
}

TEST(normalize_must_work_on_the_sentence)
{
    struct model_spec spec = spec_of(GENERATION_CURRENT);
    expect_edit_refused(&spec, "2_Normalize/config.json", "\"module_input_name\": \"sentence_embedding\"",
                        "\"module_input_name\": \"token_embeddings\"", STATUS_UNSUPPORTED, "module_input_name");
    expect_edit_refused(&spec, "2_Normalize/config.json", "\"module_input_name\"", "\"p\": 1, \"module_input_name\"",
                        STATUS_UNSUPPORTED, "the field p ");
}

static const char *const prompts =
    "{\"__version__\": {}, \"prompts\": {\"query\": \"query: \", \"passage\": \"passage: \", \"empty\": \"\"}, "
    "\"default_prompt_name\": \"passage\", \"similarity_fn_name\": \"dot\"}";

TEST(picks_prompts_by_name)
{
    static const struct {
        const char *name, *expected;
    } cases[] = {{NULL, "passage: "}, {"query", "query: "}, {"empty", ""}, {"", ""}};
    struct model_spec spec = spec_of(GENERATION_CLASSIC);
    char *directory = model_build(&spec);
    model_file_write(directory, PROMPTS_FILE, prompts);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_options options = {.prompt = cases[i].name};
        struct model *model = expect_model(directory, &options);
        assert_string_equal(model->prompt, cases[i].expected);
        assert_true(model->pool_prompt);
        assert_int_equal(model->prompt_count, 3);
        assert_string_equal(model->prompts[1].name, "passage");
        assert_string_equal(model->prompts[1].text, "passage: ");
        assert_string_equal(model->prompts[2].text, "");
        model_close(model);
    }
    struct model_options options = {.prompt = "Query"};
    expect_refused(directory, &options, STATUS_NOT_FOUND, PROMPTS_FILE, "\"Query\"");
    model_file_remove(directory, PROMPTS_FILE);
    expect_refused(directory, &options, STATUS_NOT_FOUND, PROMPTS_FILE, "\"Query\"");
    model_build_remove(directory);
}

TEST(a_prefix_stands_for_a_prompt)
{
    struct model_spec spec = spec_of(GENERATION_CLASSIC);
    char *directory = model_build(&spec);
    struct model_options options = {.prefix = "query: "};
    struct model *model = expect_model(directory, &options);
    assert_string_equal(model->prompt, "query: ");
    model_close(model);
    model_file_write(directory, PROMPTS_FILE, prompts); /* the option also replaces its default prompt */
    model = expect_model(directory, &options);
    assert_string_equal(model->prompt, "query: ");
    model_close(model);
    options.prefix = "\xff";
    expect_refused(directory, &options, STATUS_BAD_INPUT, "prefix", "UTF-8");
    model_build_remove(directory);
}

TEST(refuses_prompt_fields)
{
    static const struct {
        const char *text, *field;
        enum status status;
    } cases[] = {
        {"{\"default_prompt_name\": \"nope\", \"prompts\": {}}", "\"nope\"", STATUS_NOT_FOUND},
        {"{\"default_prompt_name\": 7}", "default_prompt_name", STATUS_BAD_INPUT},
        {"{\"default_prompt_name\": \"a\", \"prompts\": [\"a\"]}", "prompts", STATUS_BAD_INPUT},
        {"{\"default_prompt_name\": \"a\", \"prompts\": {\"a\": 7}}", "a must be a string", STATUS_BAD_INPUT},
        {"{\"model_type\": \"SparseEncoder\"}", "model_type", STATUS_UNSUPPORTED},
        {"{\"truncate_dim\": 16}", "truncate_dim", STATUS_UNSUPPORTED},
        {"[]", "object", STATUS_BAD_INPUT},
        {"{", "JSON", STATUS_BAD_INPUT},
    };
    struct model_spec spec = spec_of(GENERATION_CLASSIC);
    char *directory = model_build(&spec);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        model_file_write(directory, PROMPTS_FILE, cases[i].text);
        expect_refused(directory, NULL, cases[i].status, PROMPTS_FILE, cases[i].field);
    }
    model_build_remove(directory);
}

TEST(include_prompt_false_is_refused_with_a_prompt_only)
{
    struct model_spec spec = spec_of(GENERATION_CURRENT);
    char *directory = model_build(&spec);
    model_file_edit(directory, POOLING_FILE, "\"include_prompt\": true", "\"include_prompt\": false");
    model_close(expect_model(directory, NULL));
    model_file_write(directory, PROMPTS_FILE, prompts);
    expect_refused(directory, NULL, STATUS_UNSUPPORTED, POOLING_FILE, "include_prompt");
    struct model_options options = {.prompt = ""};
    struct model *model = expect_model(directory, &options);
    assert_false(model->pool_prompt);
    model_close(model);
    model_build_remove(directory);
}
