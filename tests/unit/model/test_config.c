/* config.json: the files of each generation of transformers for a BERT open; fields that change the maths are refused
 * by name. */
#include <stdlib.h>
#include <unistd.h>

#include "model/family.h"
#include "model/weights.h"
#include "model_expect.h"

/* The fields that determine shapes, as in the tiny spec. */
#define SHAPES                                                                                                         \
    "\"hidden_size\": 32, \"intermediate_size\": 64, \"max_position_embeddings\": 64, \"model_type\": \"bert\", "      \
    "\"num_attention_heads\": 4, \"num_hidden_layers\": 2, \"type_vocab_size\": 2, \"vocab_size\": 512, "

TEST(opens_the_files_of_every_generation)
{
    static const char *const configs[] = {
        /* MiniLM, by transformers 4 */
        "{\"_name_or_path\": \"nreimers/MiniLM-L6-H384-uncased\", \"architectures\": [\"BertModel\"], "
        "\"attention_probs_dropout_prob\": 0.1, \"gradient_checkpointing\": false, \"hidden_act\": \"gelu\", "
        "\"hidden_dropout_prob\": 0.1, \"initializer_range\": 0.02, " SHAPES
        "\"layer_norm_eps\": 1e-12, \"pad_token_id\": 0, \"position_embedding_type\": \"absolute\", "
        "\"transformers_version\": \"4.8.2\", \"use_cache\": true}",
        /* bge, with labels */
        "{\"_name_or_path\": \"/root/.cache/torch/sentence_transformers/BAAI_bge-small-en/\", "
        "\"architectures\": [\"BertModel\"], \"attention_probs_dropout_prob\": 0.1, \"classifier_dropout\": null, "
        "\"hidden_act\": \"gelu\", \"hidden_dropout_prob\": 0.1, \"id2label\": {\"0\": \"LABEL_0\"}, "
        "\"label2id\": {\"LABEL_0\": 0}, \"initializer_range\": 0.02, " SHAPES
        "\"layer_norm_eps\": 1e-12, \"pad_token_id\": 0, \"position_embedding_type\": \"absolute\", "
        "\"torch_dtype\": \"float32\", \"transformers_version\": \"4.30.0\", \"use_cache\": true}",
        /* a Chinese BERT, with fields of its pooler */
        "{\"architectures\": [\"BertForMaskedLM\"], \"attention_probs_dropout_prob\": 0.1, \"bos_token_id\": 0, "
        "\"directionality\": \"bidi\", \"eos_token_id\": 2, \"hidden_act\": \"gelu\", \"hidden_dropout_prob\": 0.1, "
        "\"initializer_range\": 0.02, " SHAPES
        "\"layer_norm_eps\": 1e-12, \"output_past\": true, \"pad_token_id\": 0, \"pooler_fc_size\": 768, "
        "\"pooler_num_attention_heads\": 12, \"pooler_num_fc_layers\": 3, \"pooler_size_per_head\": 128, "
        "\"pooler_type\": \"first_token_transform\", \"position_embedding_type\": \"absolute\"}",
        /* all fields, by transformers 2 */
        "{\"architectures\": [\"BertModel\"], \"attention_probs_dropout_prob\": 0.1, \"bos_token_id\": 0, "
        "\"do_sample\": false, \"eos_token_ids\": 0, \"finetuning_task\": null, \"hidden_act\": \"gelu\", "
        "\"hidden_dropout_prob\": 0.1, \"id2label\": {\"0\": \"LABEL_0\", \"1\": \"LABEL_1\"}, "
        "\"initializer_range\": 0.02, \"is_decoder\": false, \"label2id\": {\"LABEL_0\": 0, \"LABEL_1\": 1}, " SHAPES
        "\"layer_norm_eps\": 1e-12, \"length_penalty\": 1.0, \"max_length\": 20, \"num_beams\": 1, "
        "\"num_labels\": 2, \"num_return_sequences\": 1, \"output_attentions\": false, "
        "\"output_hidden_states\": false, \"output_past\": true, \"pad_token_id\": 0, \"pruned_heads\": {}, "
        "\"repetition_penalty\": 1.0, \"temperature\": 1.0, \"top_k\": 50, \"top_p\": 1.0, "
        "\"torchscript\": false, \"use_bfloat16\": false}",
        /* e5 and gte */
        "{\"_name_or_path\": \"thenlper/gte-base\", \"architectures\": [\"BertModel\"], "
        "\"attention_probs_dropout_prob\": 0.1, \"classifier_dropout\": null, \"hidden_act\": \"gelu\", "
        "\"hidden_dropout_prob\": 0.1, \"initializer_range\": 0.02, " SHAPES
        "\"layer_norm_eps\": 1e-12, \"pad_token_id\": 0, \"position_embedding_type\": \"absolute\", "
        "\"torch_dtype\": \"float16\", \"transformers_version\": \"4.28.1\", \"use_cache\": true}",
        /* transformers 5 */
        "{\"add_cross_attention\": false, \"architectures\": [\"BertModel\"], "
        "\"attention_probs_dropout_prob\": 0.1, \"bos_token_id\": null, \"classifier_dropout\": null, "
        "\"dtype\": \"bfloat16\", \"eos_token_id\": null, \"hidden_act\": \"gelu\", \"hidden_dropout_prob\": 0.1, "
        "\"initializer_range\": 0.02, \"is_decoder\": false, " SHAPES
        "\"layer_norm_eps\": 1e-12, \"pad_token_id\": 0, \"tie_word_embeddings\": true, "
        "\"transformers_version\": \"5.23.0\", \"use_cache\": false}",
    };
    struct model_spec spec = model_spec_tiny();
    char *directory = model_build(&spec);
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        model_file_write(directory, "config.json", configs[i]);
        model_close(expect_model(directory, NULL));
    }
    model_build_remove(directory);
}

TEST(refuses_fields_that_change_the_maths)
{
    static const struct {
        const char *json, *field;
    } cases[] = {
        {"\"position_embedding_type\": \"relative_key\"", "position_embedding_type"},
        {"\"position_embedding_type\": 7", "position_embedding_type"},
        {"\"is_decoder\": true", "is_decoder"},
        {"\"is_encoder_decoder\": true", "is_encoder_decoder"},
        {"\"add_cross_attention\": true", "add_cross_attention"},
        {"\"cross_attention_hidden_size\": 64", "cross_attention_hidden_size"},
        {"\"pruned_heads\": {\"1\": [0, 2]}", "pruned_heads"},
        {"\"quantization_config\": {\"quant_method\": \"gptq\"}", "quantization_config"},
        {"\"auto_map\": {\"AutoModel\": \"modeling_bert.JinaBertModel\"}", "auto_map"},
        {"\"rope_theta\": 10000", "rope_theta"},
        {"\"embedding_size\": 128", "embedding_size"},
        {"\"feed_forward_type\": \"geglu\"", "feed_forward_type"},
    };
    struct model_spec spec = model_spec_tiny();
    spec.generation = GENERATION_CURRENT;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char with[256];
        snprintf(with, sizeof with, "%s, \"use_cache\"", cases[i].json);
        char *directory = model_build(&spec);
        if (strcmp(cases[i].field, "is_decoder") == 0) {
            model_file_edit(directory, "config.json", "\"is_decoder\": false,", "");
        }
        if (strcmp(cases[i].field, "add_cross_attention") == 0) {
            model_file_edit(directory, "config.json", "\"add_cross_attention\": false,", "");
        }
        model_file_edit(directory, "config.json", "\"use_cache\"", with);
        expect_refused(directory, NULL, STATUS_UNSUPPORTED, "config.json", cases[i].field);
        model_build_remove(directory);
    }
}

TEST(takes_null_and_empty_as_absent)
{
    struct model_spec spec = model_spec_tiny();
    char *directory = model_build(&spec);
    model_file_edit(
        directory, "config.json", "\"use_cache\"",
        "\"quantization_config\": null, \"pruned_heads\": {}, \"auto_map\": null, \"never_heard_of\": null, "
        "\"is_decoder\": false, \"use_cache\"");
    model_close(expect_model(directory, NULL));
    model_build_remove(directory);
}

TEST(refuses_other_architectures)
{
    struct model_spec spec = model_spec_tiny();
    static const char *const types[] = {"deberta-v2", "xlm", "deberta"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char to[64];
        snprintf(to, sizeof to, "\"model_type\": \"%s\"", types[i]);
        char *directory = model_build(&spec);
        model_file_edit(directory, "config.json", "\"model_type\": \"bert\"", to);
        expect_refused(directory, NULL, STATUS_UNSUPPORTED, "config.json: model_type", types[i]);
        expect_refused(directory, NULL, STATUS_UNSUPPORTED, "supported: bert, distilbert", "");
        model_build_remove(directory);
    }
    expect_edit_refused(&spec, "config.json", "\"BertModel\"", "\"JinaBertModel\"", STATUS_UNSUPPORTED,
                        "JinaBertModel");
    expect_edit_refused(&spec, "config.json", "[\"BertModel\"]", "\"BertModel\"", STATUS_BAD_INPUT, "architectures");
    expect_edit_refused(&spec, "config.json", "\"model_type\": \"bert\",", "", STATUS_BAD_INPUT, "model_type");
}

/* The sizes under DistilBERT's names; its config has no token types and no eps. It does not use BERT's names. */
TEST(opens_distilbert)
{
    struct model_spec spec = model_spec_tiny();
    spec.distilbert = true;
    spec.hidden_act = "relu";
    char *directory = model_build(&spec);
    struct model *model = expect_model(directory, NULL);
    assert_int_equal(model->vocabulary, 512);
    assert_int_equal(model->positions, 64);
    assert_int_equal(model->token_types, 0);
    assert_int_equal(model->hidden, 32);
    assert_int_equal(model->layer_count, 2);
    assert_int_equal(model->heads, 4);
    assert_int_equal(model->intermediate_size, 64);
    assert_int_equal(model->activation, ACTIVATION_RELU);
    assert_true(model->layer_norm_eps == 1e-12f);
    model_close(model);
    model_build_remove(directory);
    expect_edit_refused(&spec, "config.json", "\"dim\": 32,", "", STATUS_BAD_INPUT, "dim or hidden_size is missing");
    expect_edit_refused(&spec, "config.json", "\"dim\": 32,", "\"dim\": 30,", STATUS_BAD_INPUT,
                        "dim 30 is not a multiple of n_heads 4");
    expect_edit_refused(&spec, "config.json", "\"activation\"", "\"hidden_act\"", STATUS_UNSUPPORTED, "hidden_act");
    expect_edit_refused(&spec, "config.json", "\"dropout\"", "\"type_vocab_size\"", STATUS_UNSUPPORTED,
                        "type_vocab_size");
    expect_edit_refused(&spec, "config.json", "DistilBertForMaskedLM", "BertForMaskedLM", STATUS_UNSUPPORTED,
                        "DistilBertModel is");
}

/* BERT's names below another prefix. Positions begin after the padding token's, which is 1 if the config has none. */
TEST(opens_the_robertas)
{
    static const struct {
        const char *type, *class, *more;
        uint32_t offset;
    } cases[] = {
        {"roberta", "RobertaModel", "\"pad_token_id\": 1, \"gradient_checkpointing\": false", 2},
        {"xlm-roberta", "XLMRobertaModel",
         "\"pad_token_id\": 1, \"output_past\": true, \"position_embedding_type\": \"absolute\", \"use_cache\": true, "
         "\"classifier_dropout\": null, \"torch_dtype\": \"float32\"",
         2},
        {"xlm-roberta", "XLMRobertaForMaskedLM",
         "\"pad_token_id\": 3, \"add_cross_attention\": false, \"dtype\": \"bfloat16\", \"is_decoder\": false", 4},
        {"camembert", "CamembertModel", "\"pad_token_id\": null", 2},
        {"roberta", "RobertaModel", "\"use_cache\": false", 2},
    };
    struct model_spec spec = model_spec_tiny();
    spec.prefix = "roberta.";
    spec.pooler = spec.position_ids = true;
    spec.token_types = 1;
    spec.max_tokens = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char config[1024];
        snprintf(config, sizeof config,
                 "{\"model_type\": \"%s\", \"architectures\": [\"%s\"], \"attention_probs_dropout_prob\": 0.1, "
                 "\"bos_token_id\": 0, \"eos_token_id\": 2, \"hidden_act\": \"gelu\", \"hidden_dropout_prob\": 0.1, "
                 "\"hidden_size\": 32, \"initializer_range\": 0.02, \"intermediate_size\": 64, "
                 "\"layer_norm_eps\": 1e-05, \"max_position_embeddings\": 64, \"num_attention_heads\": 4, "
                 "\"num_hidden_layers\": 2, \"type_vocab_size\": 1, \"vocab_size\": 512, %s}",
                 cases[i].type, cases[i].class, cases[i].more);
        char *directory = model_build(&spec);
        model_file_write(directory, "config.json", config);
        struct model *model = expect_model(directory, NULL);
        assert_int_equal(model->position_offset, cases[i].offset);
        assert_int_equal(model->max_tokens, 64 - cases[i].offset);
        assert_true(model->layer_norm_eps == 1e-5f);
        model_close(model);
        expect_refused(directory, &(struct model_options){.max_tokens = 65 - cases[i].offset}, STATUS_BAD_INPUT,
                       "above the model's", "positions");
        model_file_edit(directory, "config.json", "\"max_position_embeddings\": 64", "\"max_position_embeddings\": 2");
        expect_refused(directory, NULL, STATUS_BAD_INPUT, "config.json: max_position_embeddings", "leaves no position");
        model_build_remove(directory);
    }
}

/* The padding token's number changes the first position, and so the model's id. */
TEST(the_first_position_is_in_the_id)
{
    struct model_spec spec = model_spec_tiny();
    char *directory = model_build(&spec), id[2][33];
    for (int i = 0; i < 2; i++) {
        if (i == 0) {
            model_file_edit(directory, "config.json", "\"model_type\": \"bert\"", "\"model_type\": \"roberta\"");
            model_file_edit(directory, "config.json", "BertModel", "RobertaModel");
            model_file_edit(directory, "config.json", "\"pad_token_id\": 0", "\"pad_token_id\": 10");
        } else {
            model_file_edit(directory, "config.json", "\"pad_token_id\": 10", "\"pad_token_id\": 11");
        }
        struct model *model = expect_model(directory, &(struct model_options){.max_tokens = 16});
        memcpy(id[i], model->id, sizeof id[i]);
        model_close(model);
    }
    assert_string_not_equal(id[0], id[1]);
    model_build_remove(directory);
}

/* MPNet's own names; the golden test covers the reading of its tensors. */
TEST(reads_the_config_of_mpnet)
{
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"", "", "is not part of the mpnet model"}, /* about these tensors, which are BERT's */
        {"\"relative_attention_num_buckets\": 32", "\"relative_attention_num_buckets\": 64",
         "relative_attention_num_buckets 64 is not supported; 32 is"},
        {"\"vocab_size\"", "\"type_vocab_size\": 2, \"vocab_size\"", "type_vocab_size is not known"},
        {"MPNetForMaskedLM", "BertModel", "MPNetModel is"},
    };
    struct model_spec spec = model_spec_tiny();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *directory = model_build(&spec);
        model_file_write(directory, "config.json",
                         "{\"architectures\": [\"MPNetForMaskedLM\"], \"attention_probs_dropout_prob\": 0.1, "
                         "\"bos_token_id\": 0, \"eos_token_id\": 2, \"hidden_act\": \"gelu\", "
                         "\"hidden_dropout_prob\": 0.1, \"hidden_size\": 32, \"initializer_range\": 0.02, "
                         "\"intermediate_size\": 64, \"layer_norm_eps\": 1e-05, \"max_position_embeddings\": 64, "
                         "\"model_type\": \"mpnet\", \"num_attention_heads\": 4, \"num_hidden_layers\": 2, "
                         "\"pad_token_id\": 1, \"relative_attention_num_buckets\": 32, "
                         "\"transformers_version\": \"4.8.2\", \"vocab_size\": 512}");
        if (i > 0) { model_file_edit(directory, "config.json", cases[i].from, cases[i].to); }
        expect_refused(directory, NULL, STATUS_UNSUPPORTED, cases[i].says, "");
        model_build_remove(directory);
    }
}

/* Fields that may change the maths of the families with rotary positions; without them all these files would open. */
TEST(refuses_other_rotary_models_by_the_field)
{
    static const char sizes[] = "\"vocab_size\": 512, \"type_vocab_size\": 2, \"hidden_size\": 32, "
                                "\"intermediate_size\": 64, \"num_attention_heads\": 4, \"num_hidden_layers\": 2, "
                                "\"max_position_embeddings\": 64";
    static const struct {
        const char *type, *field, *says;
        enum status status;
    } cases[] = {
        {"gte", "\"hidden_act\": \"gelu\"", "tensor", STATUS_UNSUPPORTED}, /* of BERT: the configuration was read */
        {"gte", "\"hidden_act\": \"relu\"", "hidden_act \"relu\"", STATUS_UNSUPPORTED},
        {"gte", "\"hidden_act\": \"gelu\", \"rope_theta\": -1", "rope_theta", STATUS_BAD_INPUT},
        {"gte", "\"hidden_act\": \"gelu\", \"logn_attention_scale\": true", "logn_attention_scale", STATUS_UNSUPPORTED},
        {"gte", "\"hidden_act\": \"gelu\", \"layer_norm_type\": \"rms_norm\"", "rms_norm", STATUS_UNSUPPORTED},
        {"gte", "\"hidden_act\": \"gelu\", \"position_embedding_type\": \"absolute\"", "absolute", STATUS_UNSUPPORTED},
        {"new", "\"hidden_act\": \"gelu\", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}", "linear",
         STATUS_UNSUPPORTED},
        {"new", "\"hidden_act\": \"gelu\", \"rope_scaling\": {\"type\": \"ntk\", \"factor\": 0.5}", "factor",
         STATUS_BAD_INPUT},
        {"new", "\"hidden_act\": \"gelu\", \"rope_scaling\": {\"type\": \"ntk\", \"mixed_b\": \"0.6\"}", "mixed_b",
         STATUS_UNSUPPORTED},
        {"nomic_bert", "\"hidden_act\": \"silu\", \"rope_parameters\": {\"rope_type\": \"yarn\"}", "yarn",
         STATUS_UNSUPPORTED},
        {"nomic_bert", "\"hidden_act\": \"silu\", \"rotary_emb_base\": 0", "rotary_emb_base", STATUS_BAD_INPUT},
        {"nomic_bert", "\"hidden_act\": \"silu\", \"head_dim\": 16", "head_dim", STATUS_BAD_INPUT},
        {"nomic_bert", "\"activation_function\": \"geglu\"", "geglu", STATUS_UNSUPPORTED},
        {"nomic_bert", "\"activation_function\": \"swiglu\", \"rotary_emb_fraction\": 0.5", "rotary_emb_fraction",
         STATUS_UNSUPPORTED},
        {"nomic_bert", "\"activation_function\": \"swiglu\", \"scale_attn_weights\": false", "scale_attn_weights",
         STATUS_UNSUPPORTED},
        {"nomic_bert", "\"activation_function\": \"swiglu\", \"prenorm\": true", "prenorm", STATUS_UNSUPPORTED},
        {"nomic_bert", "\"activation_function\": \"swiglu\", \"num_experts\": 8", "num_experts", STATUS_UNSUPPORTED},
        {"nomic_bert", "\"activation_function\": \"swiglu\", \"hidden_act\": \"gelu\"",
         "hidden_act and activation_function contradict each other", STATUS_BAD_INPUT},
        {"nomic_bert", "\"activation_function\": \"swiglu\", \"n_embd\": 32", "layer_norm_epsilon is missing",
         STATUS_BAD_INPUT},
        {"gte", "\"hidden_act\": \"swiglu\"", "hidden_act \"swiglu\"", STATUS_UNSUPPORTED},
        {"nomic_bert", "\"activation_function\": \"swiglu\", \"n_embd\": 32", "n_layer is missing", STATUS_BAD_INPUT},
    };
    struct model_spec spec = model_spec_tiny();
    char *directory = model_build(&spec), text[700];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool other = strstr(cases[i].says, "n_layer") != NULL; /* GPT-2's names alone */
        snprintf(text, sizeof text, "{\"model_type\": \"%s\", %s, %s}", cases[i].type,
                 other ? "\"vocab_size\": 512, \"type_vocab_size\": 2" : sizes, cases[i].field);
        model_file_write(directory, "config.json", text);
        expect_refused(directory, NULL, cases[i].status, cases[i].says, "");
    }
    model_build_remove(directory);
}

TEST(refuses_other_layers_of_modernbert)
{
    static const struct {
        const char *field, *says;
        enum status status;
    } cases[] = {
        {"\"norm_bias\": true", "norm_bias", STATUS_UNSUPPORTED},
        {"\"rope_scaling\": {\"type\": \"linear\"}", "rope_scaling", STATUS_UNSUPPORTED},
        {"\"layer_types\": [\"full_attention\"]", "layer_types must be a list of 2", STATUS_BAD_INPUT},
        {"\"layer_types\": [\"full_attention\", \"chunked\"]", "chunked", STATUS_UNSUPPORTED},
        {"\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"yarn\"}}", "yarn", STATUS_UNSUPPORTED},
        {"\"rope_parameters\": {\"rope_theta\": 1}", "rope_theta", STATUS_UNSUPPORTED},
        {"\"rope_parameters\": \"x\"", "rope_parameters", STATUS_BAD_INPUT},
        {"\"rope_parameters\": {\"sliding_attention\": {\"rope_theta\": 0}}", "sliding_attention: rope_theta",
         STATUS_BAD_INPUT},
        {"\"local_rope_theta\": null", "local_rope_theta", STATUS_BAD_INPUT},
        {"\"local_attention\": 0", "local_attention", STATUS_BAD_INPUT},
        {"\"num_attention_heads\": 32", "even width of heads", STATUS_UNSUPPORTED},
    };
    struct model_spec spec = model_spec_tiny();
    char *directory = model_build(&spec), text[500];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(
            text, sizeof text,
            "{\"model_type\": \"modernbert\", \"vocab_size\": 512, \"hidden_size\": 32, \"intermediate_size\": 64, "
            "%s\"num_hidden_layers\": 2, \"max_position_embeddings\": 64, \"hidden_activation\": \"gelu\", %s}",
            strstr(cases[i].field, "heads") ? "" : "\"num_attention_heads\": 4, ", cases[i].field);
        model_file_write(directory, "config.json", text);
        expect_refused(directory, NULL, cases[i].status, cases[i].says, "");
    }
    model_build_remove(directory);
}

/* Fields that may change the maths of a Qwen3, and fields that do not; the tensors are BERT's, so none opens. */
TEST(refuses_other_layers_of_qwen3)
{
    static const char read[] = "is not part of the qwen3 model";
    static const struct {
        const char *field, *heads, *says;
        enum status status;
    } cases[] = {
        {"\"rope_theta\": 1000000, \"rope_scaling\": null", "2, \"head_dim\": 8", read, STATUS_UNSUPPORTED},
        {"\"sliding_window\": 4096, \"use_sliding_window\": false", "4, \"head_dim\": 12", read, STATUS_UNSUPPORTED},
        {"\"layer_types\": [\"full_attention\", \"full_attention\"]", "1, \"head_dim\": 8", read, STATUS_UNSUPPORTED},
        {"\"use_cache\": false", "2", "head_dim is missing", STATUS_BAD_INPUT},
        {"\"use_cache\": false", "null, \"head_dim\": 8", "num_key_value_heads is missing", STATUS_BAD_INPUT},
        {"\"use_cache\": false", "3, \"head_dim\": 8",
         "num_attention_heads 4 is not a multiple of num_key_value_heads 3", STATUS_BAD_INPUT},
        {"\"use_cache\": false", "2, \"head_dim\": 7", "even width of heads, not 7", STATUS_UNSUPPORTED},
        {"\"attention_bias\": true", "2, \"head_dim\": 8", "attention_bias", STATUS_UNSUPPORTED},
        {"\"use_sliding_window\": true", "2, \"head_dim\": 8", "use_sliding_window", STATUS_UNSUPPORTED},
        {"\"layer_types\": [\"full_attention\", \"sliding_attention\"]", "2, \"head_dim\": 8", "sliding_attention",
         STATUS_UNSUPPORTED},
        {"\"layer_types\": \"full_attention\"", "2, \"head_dim\": 8", "layer_types must be a list", STATUS_BAD_INPUT},
        {"\"rope_scaling\": {\"rope_type\": \"yarn\"}", "2, \"head_dim\": 8", "rope_scaling", STATUS_UNSUPPORTED},
        {"\"rope_parameters\": {\"rope_type\": \"yarn\"}", "2, \"head_dim\": 8", "yarn", STATUS_UNSUPPORTED},
        {"\"is_causal\": false", "2, \"head_dim\": 8", "is_causal", STATUS_UNSUPPORTED},
    };
    struct model_spec spec = model_spec_tiny();
    char *directory = model_build(&spec), text[600];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(
            text, sizeof text,
            "{\"model_type\": \"qwen3\", \"architectures\": [\"Qwen3ForCausalLM\"], \"vocab_size\": 512, "
            "\"hidden_size\": 32, \"intermediate_size\": 64, \"num_attention_heads\": 4, \"num_hidden_layers\": 2, "
            "\"max_position_embeddings\": 64, \"hidden_act\": \"silu\", \"num_key_value_heads\": %s, %s}",
            cases[i].heads, cases[i].field);
        model_file_write(directory, "config.json", text);
        expect_refused(directory, NULL, cases[i].status, cases[i].says, "");
    }
    model_build_remove(directory);
}

/* Its head passes over padding at the end, also where that is [SEP], whose id is 3; of padding alone the first counts.
 */
TEST(a_qwen3_head_passes_over_padding)
{
    struct model_spec spec = model_spec_tiny();
    spec.generation = GENERATION_BARE;
    char *directory = model_build(&spec), text[600];
    for (int padding = 2; padding <= 3; padding++) {
        snprintf(text, sizeof text,
                 "{\"model_type\": \"qwen3\", \"architectures\": [\"Qwen3ForSequenceClassification\"], "
                 "\"vocab_size\": 512, \"hidden_size\": 32, \"intermediate_size\": 64, \"num_attention_heads\": 4, "
                 "\"num_hidden_layers\": 2, \"max_position_embeddings\": 64, \"hidden_act\": \"silu\", "
                 "\"num_key_value_heads\": 2, \"head_dim\": 8, \"pad_token_id\": %d}",
                 padding);
        model_file_write(directory, "config.json", text);
        expect_refused(directory, &(struct model_options){.classifier = true}, STATUS_UNSUPPORTED,
                       "is not part of the qwen3 model", "");
    }
    model_build_remove(directory);
    const int32_t ids[] = {2, 3, 9, 3, 3}, padding[] = {3, 3};
    struct model model = {.causal = true, .head = {.labels = 1, .padding = 3}};
    assert_int_equal(model_head_tokens(&model, ids, 5), 3);
    assert_int_equal(model_head_tokens(&model, ids, 2), 1);
    assert_int_equal(model_head_tokens(&model, padding, 2), 1);
    model.head.padding = UINT32_MAX;
    assert_int_equal(model_head_tokens(&model, ids, 5), 5);
    model = (struct model){.head = {.labels = 1, .padding = 3}};
    assert_int_equal(model_head_tokens(&model, ids, 5), 5);
}

#define GEMMA3                                                                                                         \
    "{\"model_type\": \"gemma3_text\", \"vocab_size\": 512, \"hidden_size\": 32, \"intermediate_size\": 64, "          \
    "\"num_hidden_layers\": 7, \"max_position_embeddings\": 64, \"num_attention_heads\": 4, \"hidden_activation\": "   \
    "\"gelu_pytorch_tanh\", \"num_key_value_heads\": 1, \"head_dim\": 16, %s}"

/* The spelling of the Hub's file of 2025; transformers 5's and the defaults give the same. */
TEST(reads_the_config_of_gemma3)
{
    static const char *const spellings[] = {
        "\"use_bidirectional_attention\": true, \"sliding_window\": 513, \"query_pre_attn_scalar\": 256, "
        "\"_sliding_window_pattern\": 6, \"rope_theta\": 1000000.0, \"rope_local_base_freq\": 10000.0, "
        "\"rope_scaling\": null, "
        "\"attention_bias\": false, \"attn_logit_softcapping\": null, \"final_logit_softcapping\": null, \"dtype\": "
        "\"float32\"",
        "\"use_bidirectional_attention\": true, \"sliding_window\": 512, \"sliding_window_pattern\": 6, "
        "\"rope_parameters\": "
        "{\"full_attention\": {\"rope_theta\": 1000000.0, \"rope_type\": \"default\"}, \"sliding_attention\": "
        "{\"rope_theta\": "
        "10000.0, \"rope_type\": \"default\"}}, \"layer_types\": [\"sliding_attention\", \"sliding_attention\", "
        "\"sliding_attention\", \"sliding_attention\", \"sliding_attention\", \"full_attention\", "
        "\"sliding_attention\"]",
    };
    struct model_spec spec = model_spec_tiny();
    char *directory = model_build(&spec), text[1200];
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++) {
        struct model model = {0};
        struct err err = {0};
        snprintf(text, sizeof text, GEMMA3, spellings[i]);
        model_file_write(directory, "config.json", text);
        if (family_read_config(directory, "config.json", &model, &err) != STATUS_OK) { fail_msg("%s", err.message); }
        for (uint32_t layer = 0; layer < 7; layer++) { assert_int_equal(model.layers[layer].local, layer != 5); }
        assert_int_equal(model.window, 256);
        assert_true(model.rotary[0].base == 1e6 && model.rotary[1].base == 1e4 && model.score_width == 256);
        assert_true(model.gain_less_one && !model.causal && model.word_scale * model.word_scale > 31.99f);
        assert_true(model.head_dim == 16 && model.key_heads == 1 && model.layer_norm_eps == 1e-6f);
        free(model.layers);
    }
    model_build_remove(directory);
}

struct zeros {
    FILE *header;
    size_t bytes;
};

static void add_zeros(void *context, const char *name, struct tensor *const *parts, uint32_t count, uint32_t rank,
                      uint64_t rows, uint64_t columns)
{
    struct zeros *zeros = context;
    size_t end = zeros->bytes + 4 * rows * columns;
    (void)parts;
    assert_int_equal(count, 1);
    fprintf(zeros->header, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%zu", zeros->bytes > 0 ? "," : "{", name,
            (size_t)rows);
    if (rank == 2) { fprintf(zeros->header, ",%zu", (size_t)columns); }
    fprintf(zeros->header, "],\"data_offsets\":[%zu,%zu]}", zeros->bytes, end);
    zeros->bytes = end;
}

/* Writes all tensors of the model that config.json describes, as zeros. */
static void write_zeros(const char *directory)
{
    struct model model = {0};
    struct err err = {0};
    char *header = NULL, path[256];
    size_t length = 0;
    struct zeros zeros = {open_memstream(&header, &length), 0};
    assert_int_equal(family_read_config(directory, "config.json", &model, &err), STATUS_OK);
    weights_visit(&model, add_zeros, &zeros);
    fputc('}', zeros.header);
    fflush(zeros.header);
    for (size_t pad = (8 - length % 8) % 8; pad > 0; pad--) { fputc(' ', zeros.header); }
    fclose(zeros.header);
    snprintf(path, sizeof path, "%s/model.safetensors", directory);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (int i = 0; i < 8; i++) { fputc((int)(length >> 8 * i & 0xFF), file); }
    fwrite(header, 1, length, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(truncate(path, (off_t)(8 + length + zeros.bytes)), 0);
    free(header);
    free(model.layers);
}

/* Unlike the other sizes of heads it does not follow from the shapes of tensors. */
TEST(the_width_of_scores_is_in_the_id)
{
    struct model_spec spec = model_spec_tiny();
    char *directory = model_build(&spec), text[1200], id[2][33];
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof text, GEMMA3,
                 i == 0 ? "\"use_bidirectional_attention\": true, \"query_pre_attn_scalar\": 16"
                        : "\"use_bidirectional_attention\": true, \"query_pre_attn_scalar\": 24");
        model_file_write(directory, "config.json", text);
        if (i == 0) { write_zeros(directory); }
        struct model *model = expect_model(directory, NULL);
        memcpy(id[i], model->id, sizeof id[i]);
        model_close(model);
    }
    assert_string_not_equal(id[0], id[1]);
    model_build_remove(directory);
}

/* Rotary positions have no end: max_seq_length may be above max_position_embeddings, which is 64; the other limits and
 * the option may not. */
TEST(rotary_positions_may_end_later)
{
    struct model_spec spec = model_spec_tiny();
    char *directory = model_build(&spec), text[1200];
    snprintf(text, sizeof text, GEMMA3, "\"use_bidirectional_attention\": true");
    model_file_write(directory, "config.json", text);
    write_zeros(directory);
    model_file_edit(directory, "tokenizer_config.json", "1000000000000000019884624838656", "300");
    static const struct {
        const char *limit;
        uint32_t tokens;
    } cases[] = {{"null", 64}, {"40", 40}, {"200", 200}, {"4000000000", MODEL_POSITIONS_MAX}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text, "{\"max_seq_length\": %s}", cases[i].limit);
        model_file_write(directory, "sentence_bert_config.json", text);
        struct model *model = expect_model(directory, NULL);
        assert_int_equal(model->max_tokens, cases[i].tokens);
        model_close(model);
    }
    model_file_write(directory, "sentence_bert_config.json", "{\"max_seq_length\": 200}");
    expect_refused(directory, &(struct model_options){.max_tokens = 201}, STATUS_BAD_INPUT, "200 positions", "");
    model_build_remove(directory);
}

TEST(refuses_another_gemma3)
{
    static const struct {
        const char *field, *says;
        enum status status;
    } cases[] = {
        {"\"use_bidirectional_attention\": false", "use_bidirectional_attention", STATUS_UNSUPPORTED},
        {"\"use_cache\": true", "use_bidirectional_attention", STATUS_UNSUPPORTED},
        {"\"use_bidirectional_attention\": true, \"attn_logit_softcapping\": 50", "attn_logit_softcapping",
         STATUS_UNSUPPORTED},
        {"\"use_bidirectional_attention\": true, \"attention_bias\": true", "attention_bias", STATUS_UNSUPPORTED},
        {"\"use_bidirectional_attention\": true, \"rope_scaling\": {\"factor\": 8}", "rope_scaling",
         STATUS_UNSUPPORTED},
        {"\"use_bidirectional_attention\": true, \"query_pre_attn_scalar\": 0", "query_pre_attn_scalar",
         STATUS_BAD_INPUT},
        {"\"use_bidirectional_attention\": true, \"layer_types\": [\"full_attention\"]",
         "layer_types must be a list of 7", STATUS_BAD_INPUT},
        {"\"use_bidirectional_attention\": true, \"hidden_act\": \"gelu\"", "hidden_act", STATUS_UNSUPPORTED},
    };
    struct model_spec spec = model_spec_tiny();
    char *directory = model_build(&spec), text[800];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text, GEMMA3, cases[i].field);
        model_file_write(directory, "config.json", text);
        expect_refused(directory, NULL, cases[i].status, cases[i].says, "");
    }
    model_build_remove(directory);
}

/* A field in two spellings: if they agree the file opens, and else the message names both. */
TEST(spellings_side_by_side_must_agree)
{
    static const char two[] = "\"vocab_size\": 512, \"max_position_embeddings\": 64, \"hidden_size\": 32, "
                              "\"intermediate_size\": 64, \"num_attention_heads\": 4, \"num_hidden_layers\": 2",
                      distilbert[] = "\"vocab_size\": 512, \"max_position_embeddings\": 64, \"dim\": 32, "
                                     "\"hidden_dim\": 64, \"n_heads\": 4, \"n_layers\": 2, \"activation\": \"gelu\"",
                      nomic[] = "\"type_vocab_size\": 2, \"hidden_act\": \"silu\", \"layer_norm_eps\": 1e-12, "
                                "\"rope_parameters\": {\"rope_theta\": 1000.0, \"rope_type\": \"default\"}",
                      modernbert[] = "\"hidden_activation\": \"gelu\", \"layer_types\": [\"full_attention\", "
                                     "\"sliding_attention\"], \"rope_parameters\": {\"full_attention\": "
                                     "{\"rope_theta\": 160000.0}, \"sliding_attention\": {\"rope_theta\": 10000}}",
                      gemma3[] = "\"hidden_activation\": \"gelu\", \"use_bidirectional_attention\": true, "
                                 "\"num_key_value_heads\": 2, \"head_dim\": 8, \"layer_types\": "
                                 "[\"sliding_attention\", \"full_attention\"], \"rope_parameters\": "
                                 "{\"full_attention\": {\"rope_theta\": 160000.0}, \"sliding_attention\": "
                                 "{\"rope_theta\": 10000}}",
                      qwen3[] = "\"hidden_act\": \"silu\", \"num_key_value_heads\": 2, \"head_dim\": 8, "
                                "\"rope_parameters\": {\"rope_theta\": 5000}",
                      gte[] = "\"hidden_act\": \"gelu\", \"rope_parameters\": {\"rope_theta\": 5000}";
    static const struct {
        const char *type, *sizes, *more, *same, *other, *says;
    } cases[] = {
        {"distilbert", "", distilbert, "\"hidden_size\": 32", "\"hidden_size\": 64", "dim and hidden_size"},
        {"distilbert", "", distilbert, "\"num_attention_heads\": 4", "\"num_attention_heads\": 2",
         "n_heads and num_attention_heads"},
        {"distilbert", "", distilbert, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1",
         "n_layers and num_hidden_layers"},
        {"nomic_bert", two, nomic, "\"n_embd\": 32", "\"n_embd\": 64", "hidden_size and n_embd"},
        {"nomic_bert", two, nomic, "\"n_layer\": 2", "\"n_layer\": 1", "num_hidden_layers and n_layer"},
        {"nomic_bert", two, nomic, "\"n_head\": 4", "\"n_head\": 2", "num_attention_heads and n_head"},
        {"nomic_bert", two, nomic, "\"n_inner\": 64", "\"n_inner\": 32", "intermediate_size and n_inner"},
        {"nomic_bert", two, nomic, "\"layer_norm_epsilon\": 1e-12", "\"layer_norm_epsilon\": 1e-5",
         "layer_norm_eps and layer_norm_epsilon"},
        {"nomic_bert", two, nomic, "\"rotary_emb_base\": 1000", "\"rotary_emb_base\": 10000",
         "rope_parameters.rope_theta and rotary_emb_base"},
        {"modernbert", two, modernbert, "\"global_rope_theta\": 160000", "\"global_rope_theta\": 160001",
         "rope_parameters.full_attention.rope_theta and global_rope_theta"},
        {"modernbert", two, modernbert, "\"local_rope_theta\": 10000.0", "\"local_rope_theta\": 160000",
         "rope_parameters.sliding_attention.rope_theta and local_rope_theta"},
        {"modernbert", two, modernbert, "\"global_attn_every_n_layers\": 3", "\"global_attn_every_n_layers\": 1",
         "layer_types and global_attn_every_n_layers"},
        {"gemma3_text", two, gemma3, "\"rope_theta\": 160000", "\"rope_theta\": 1000000",
         "rope_parameters.full_attention.rope_theta and rope_theta"},
        {"gemma3_text", two, gemma3, "\"rope_local_base_freq\": 10000", "\"rope_local_base_freq\": 9999",
         "rope_parameters.sliding_attention.rope_theta and rope_local_base_freq"},
        {"gemma3_text", two, gemma3, "\"sliding_window_pattern\": 2", "\"sliding_window_pattern\": 3",
         "layer_types and sliding_window_pattern"},
        {"qwen3", two, qwen3, "\"rope_theta\": 5000.0", "\"rope_theta\": 1000000",
         "rope_parameters.rope_theta and rope_theta"},
        {"gte", two, gte, "\"rope_theta\": 5e3", "\"rope_theta\": 160000", "rope_parameters.rope_theta and rope_theta"},
        {"new", two, gte, "\"rope_theta\": 5000", "\"rope_theta\": 10000", "rope_parameters.rope_theta and rope_theta"},
    };
    struct model_spec spec = model_spec_tiny();
    char *directory = model_build(&spec), text[1200], says[200];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int other = 0; other < 2; other++) {
            struct model model = {0};
            struct err err = {0};
            snprintf(text, sizeof text, "{\"model_type\": \"%s\", %s%s%s, %s}", cases[i].type, cases[i].sizes,
                     cases[i].sizes[0] ? ", " : "", cases[i].more, other ? cases[i].other : cases[i].same);
            model_file_write(directory, "config.json", text);
            enum status status = family_read_config(directory, "config.json", &model, &err);
            if (other) {
                snprintf(says, sizeof says, "config.json: %s contradict each other", cases[i].says);
                assert_int_equal(status, STATUS_BAD_INPUT);
                assert_string_equal(err.message, says);
            } else if (status != STATUS_OK) {
                fail_msg("%s: %s", text, err.message);
            }
            free(model.layers);
        }
    }
    model_build_remove(directory);
}

/* GPT-2's names beside those of transformers 5, which reads no n_positions, as in nomic-embed-text-v1.5. */
TEST(opens_nomic_in_both_spellings)
{
    static const char config[] =
        "{\"activation_function\": \"swiglu\", \"architectures\": [\"NomicBertModel\"], "
        "\"attn_pdrop\": 0.0, \"auto_map\": {\"AutoConfig\": \"x--configuration_hf_nomic_bert.NomicBertConfig\"}, "
        "\"bos_token_id\": null, \"causal\": false, \"dense_seq_output\": true, \"embd_pdrop\": 0.0, "
        "\"eos_token_id\": null, \"fused_bias_fc\": true, \"fused_dropout_add_ln\": true, \"head_dim\": 8, "
        "\"hidden_act\": \"silu\", \"hidden_size\": 32, \"initializer_range\": 0.02, \"intermediate_size\": 64, "
        "\"layer_norm_eps\": 1e-12, \"layer_norm_epsilon\": 1e-12, \"max_position_embeddings\": 2048, "
        "\"max_trained_positions\": 2048, \"mlp_fc1_bias\": false, \"mlp_fc2_bias\": false, "
        "\"model_type\": \"nomic_bert\", \"n_embd\": 32, \"n_head\": 4, \"n_inner\": 64, \"n_layer\": 2, "
        "\"n_positions\": 8192, \"num_attention_heads\": 4, \"num_hidden_layers\": 2, "
        "\"pad_vocab_size_multiple\": 64, \"parallel_block\": false, \"prenorm\": false, \"qkv_proj_bias\": false, "
        "\"rope_parameters\": {\"rope_theta\": 1000, \"rope_type\": \"default\"}, \"rotary_emb_base\": 1000, "
        "\"rotary_emb_fraction\": 1.0, \"rotary_emb_interleaved\": false, \"rotary_emb_scale_base\": null, "
        "\"rotary_scaling_factor\": null, \"scale_attn_by_inverse_layer_idx\": false, \"scale_attn_weights\": true, "
        "\"torch_dtype\": \"float32\", \"type_vocab_size\": 2, \"use_cache\": true, \"use_flash_attn\": true, "
        "\"use_rms_norm\": false, \"use_xentropy\": true, \"vocab_size\": 512}";
    struct model_spec spec = model_spec_tiny();
    struct model model = {0};
    struct err err = {0};
    char *directory = model_build(&spec);
    model_file_write(directory, "config.json", config);
    if (family_read_config(directory, "config.json", &model, &err) != STATUS_OK) { fail_msg("%s", err.message); }
    assert_int_equal(model.positions, 2048);
    assert_int_equal(model.hidden, 32);
    assert_int_equal(model.activation, ACTIVATION_SILU);
    assert_true(model.rotary[0].base == 1000 && model.layer_norm_eps == 1e-12f);
    free(model.layers);
    model_build_remove(directory);
}

/* The default is that of transformers, if the file does not have the field. */
TEST(the_eps_of_norms_is_the_family_s)
{
    static const struct {
        const char *type, *sizes;
        float eps;
    } cases[] = {
        {"bert", "\"hidden_act\": \"gelu\", \"num_hidden_layers\": 2, \"num_attention_heads\": 4", 1e-12f},
        {"modernbert", "\"hidden_activation\": \"gelu\", \"num_hidden_layers\": 2, \"num_attention_heads\": 4", 1e-5f},
        {"nomic_bert", "\"hidden_act\": \"silu\", \"num_hidden_layers\": 2, \"num_attention_heads\": 4", 1e-12f},
        {"qwen3",
         "\"hidden_act\": \"silu\", \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 4, "
         "\"head_dim\": 8",
         1e-6f},
        {"nomic_bert",
         "\"activation_function\": \"swiglu\", \"n_embd\": 32, \"n_layer\": 2, \"n_head\": 4, \"n_inner\": 64, "
         "\"n_positions\": 64, \"layer_norm_epsilon\": 1e-05",
         1e-5f},
    };
    struct model_spec spec = model_spec_tiny();
    char *directory = model_build(&spec), text[500];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model model = {0};
        struct err err = {0};
        bool gpt2 = strstr(cases[i].sizes, "n_embd") != NULL;
        snprintf(text, sizeof text, "{\"model_type\": \"%s\", \"vocab_size\": 512, %s%s%s}", cases[i].type,
                 cases[i].sizes,
                 strcmp(cases[i].type, "modernbert") == 0 || strcmp(cases[i].type, "qwen3") == 0
                     ? ""
                     : ", \"type_vocab_size\": 2",
                 gpt2 ? "" : ", \"hidden_size\": 32, \"intermediate_size\": 64, \"max_position_embeddings\": 64");
        model_file_write(directory, "config.json", text);
        assert_int_equal(family_read_config(directory, "config.json", &model, &err), STATUS_OK);
        assert_true(model.layer_norm_eps == cases[i].eps);
        free(model.layers);
    }
    model_build_remove(directory);
}

TEST(refuses_missing_and_impossible_sizes)
{
    static const struct {
        const char *from, *to, *field;
    } cases[] = {
        {"\"hidden_size\": 32,", "", "hidden_size is missing"},
        {"\"vocab_size\": 512,", "", "vocab_size is missing"},
        {"\"num_hidden_layers\": 2,", "", "num_hidden_layers is missing"},
        {"\"num_attention_heads\": 4,", "", "num_attention_heads is missing"},
        {"\"intermediate_size\": 64,", "", "intermediate_size is missing"},
        {"\"max_position_embeddings\": 64,", "", "max_position_embeddings is missing"},
        {"\"type_vocab_size\": 2,", "", "type_vocab_size is missing"},
        {"\"hidden_size\": 32", "\"hidden_size\": 0", "hidden_size"},
        {"\"hidden_size\": 32", "\"hidden_size\": -32", "hidden_size"},
        {"\"hidden_size\": 32", "\"hidden_size\": 32.5", "hidden_size"},
        {"\"hidden_size\": 32", "\"hidden_size\": \"32\"", "hidden_size"},
        {"\"hidden_size\": 32", "\"hidden_size\": 1e30", "hidden_size"},
        {"\"num_attention_heads\": 4", "\"num_attention_heads\": 5", "num_attention_heads"},
        {"\"layer_norm_eps\": 1e-12", "\"layer_norm_eps\": 0", "layer_norm_eps"},
        {"\"layer_norm_eps\": 1e-12", "\"layer_norm_eps\": \"1e-12\"", "layer_norm_eps"},
    };
    struct model_spec spec = model_spec_tiny();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_edit_refused(&spec, "config.json", cases[i].from, cases[i].to, STATUS_BAD_INPUT, cases[i].field);
    }
}

TEST(reads_every_activation)
{
    static const struct {
        const char *name;
        enum activation expected;
    } cases[] = {
        {"gelu", ACTIVATION_GELU_ERF},      {"gelu_python", ACTIVATION_GELU_ERF},
        {"gelu_new", ACTIVATION_GELU_TANH}, {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH},
        {"relu", ACTIVATION_RELU},
    };
    struct model_spec spec = model_spec_tiny();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        spec.hidden_act = cases[i].name;
        char *directory = model_build(&spec);
        struct model *model = expect_model(directory, NULL);
        assert_int_equal(model->activation, cases[i].expected);
        model_close(model);
        model_build_remove(directory);
    }
    expect_edit_refused(&spec, "config.json", "\"hidden_act\": \"relu\"", "\"hidden_act\": \"quick_gelu\"",
                        STATUS_UNSUPPORTED, "hidden_act");
    expect_edit_refused(&spec, "config.json", "\"hidden_act\": \"relu\",", "", STATUS_BAD_INPUT, "hidden_act");
}

TEST(reads_layer_norm_eps)
{
    struct model_spec spec = model_spec_tiny();
    char *directory = model_build(&spec);
    model_file_edit(directory, "config.json", "\"layer_norm_eps\": 1e-12", "\"layer_norm_eps\": 1e-05");
    struct model *model = expect_model(directory, NULL);
    assert_true(model->layer_norm_eps == 1e-5f);
    model_close(model);
    model_file_edit(directory, "config.json", "\"layer_norm_eps\": 1e-05,", "");
    model = expect_model(directory, NULL);
    assert_true(model->layer_norm_eps == 1e-12f);
    model_close(model);
    model_build_remove(directory);
}
