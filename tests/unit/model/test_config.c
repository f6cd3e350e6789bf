/* config.json: the files of each generation of transformers for a BERT open; fields that change the maths are refused
 * by name. */
#include <stdlib.h>
#include <unistd.h>

#include "model/family.h"
#include "model/weights.h"
#include "model_expect.h"

#define CONFIG "config.json"

/* The fields that determine shapes, as in the tiny spec. */
#define LAYERS                                                                                                         \
    "'hidden_size': 32, 'intermediate_size': 64, 'max_position_embeddings': 64, 'num_hidden_layers': 2, "              \
    "'vocab_size': 512"
#define SIZES LAYERS ", 'num_attention_heads': 4"

static void put_config(const char *format, ...) PRINTF_LIKE(1, 2);

static void put_config(const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    assert_in_range(vsnprintf(text, sizeof text, format, args), 1, sizeof text - 1);
    va_end(args);
    put_file(CONFIG, text);
}

MODEL_TEST(opens_the_files_of_every_generation)
{
    static const char *const more[] = {
        /* MiniLM, by transformers 4 */
        "'_name_or_path': 'nreimers/MiniLM-L6-H384-uncased', 'architectures': ['BertModel'], "
        "'gradient_checkpointing': false, 'position_embedding_type': 'absolute', 'transformers_version': '4.8.2', "
        "'use_cache': true",
        /* bge, with labels */
        "'_name_or_path': '/root/.cache/torch/sentence_transformers/BAAI_bge-small-en/', 'architectures': "
        "['BertModel'], 'classifier_dropout': null, 'id2label': {'0': 'LABEL_0'}, 'label2id': {'LABEL_0': 0}, "
        "'position_embedding_type': 'absolute', 'torch_dtype': 'float32', 'transformers_version': '4.30.0', "
        "'use_cache': true",
        /* a Chinese BERT, with fields of its pooler */
        "'architectures': ['BertForMaskedLM'], 'bos_token_id': 0, 'directionality': 'bidi', 'eos_token_id': 2, "
        "'output_past': true, 'pooler_fc_size': 768, 'pooler_num_attention_heads': 12, 'pooler_num_fc_layers': 3, "
        "'pooler_size_per_head': 128, 'pooler_type': 'first_token_transform', 'position_embedding_type': 'absolute'",
        /* all fields, by transformers 2 */
        "'architectures': ['BertModel'], 'bos_token_id': 0, 'do_sample': false, 'eos_token_ids': 0, "
        "'finetuning_task': null, 'id2label': {'0': 'LABEL_0', '1': 'LABEL_1'}, 'is_decoder': false, "
        "'label2id': {'LABEL_0': 0, 'LABEL_1': 1}, 'length_penalty': 1.0, 'max_length': 20, 'num_beams': 1, "
        "'num_labels': 2, 'num_return_sequences': 1, 'output_attentions': false, 'output_hidden_states': false, "
        "'output_past': true, 'pruned_heads': {}, 'repetition_penalty': 1.0, 'temperature': 1.0, 'top_k': 50, "
        "'top_p': 1.0, 'torchscript': false, 'use_bfloat16': false",
        /* e5 and gte */
        "'_name_or_path': 'thenlper/gte-base', 'architectures': ['BertModel'], 'classifier_dropout': null, "
        "'position_embedding_type': 'absolute', 'torch_dtype': 'float16', 'transformers_version': '4.28.1', "
        "'use_cache': true",
        /* transformers 5 */
        "'add_cross_attention': false, 'architectures': ['BertModel'], 'bos_token_id': null, "
        "'classifier_dropout': null, 'dtype': 'bfloat16', 'eos_token_id': null, 'is_decoder': false, "
        "'tie_word_embeddings': true, 'transformers_version': '5.23.0', 'use_cache': false",
        /* null and empty are as good as absent */
        ("'architectures': ['BertModel'], 'quantization_config': null, 'pruned_heads': {}, 'auto_map': null, "
         "'never_heard_of': null, 'is_decoder': false"),
    };
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        put_config("{'model_type': 'bert', " SIZES ", 'type_vocab_size': 2, 'attention_probs_dropout_prob': 0.1, "
                   "'hidden_act': 'gelu', 'hidden_dropout_prob': 0.1, 'initializer_range': 0.02, "
                   "'layer_norm_eps': 1e-12, 'pad_token_id': 0, %s}",
                   more[i]);
        opened(NULL);
    }
}

MODEL_TEST(refuses_fields_that_change_the_maths)
{
    struct model_spec spec = model_spec_tiny();
    spec.generation = GENERATION_CURRENT;
    const char *at = "'use_cache'";
    const enum status status = STATUS_UNSUPPORTED;
    EDITS_REFUSED(
        &spec,
        {CONFIG, at, "'position_embedding_type': 'relative_key', 'use_cache'", status, "position_embedding_type"},
        {CONFIG, at, "'position_embedding_type': 7, 'use_cache'", status, "position_embedding_type"},
        {CONFIG, "'is_decoder': false", "'is_decoder': true", status, "is_decoder"},
        {CONFIG, at, "'is_encoder_decoder': true, 'use_cache'", status, "is_encoder_decoder"},
        {CONFIG, "'add_cross_attention': false", "'add_cross_attention': true", status, "add_cross_attention"},
        {CONFIG, at, "'cross_attention_hidden_size': 64, 'use_cache'", status, "cross_attention_hidden_size"},
        {CONFIG, at, "'pruned_heads': {'1': [0, 2]}, 'use_cache'", status, "pruned_heads"},
        {CONFIG, at, "'quantization_config': {'quant_method': 'gptq'}, 'use_cache'", status, "quantization_config"},
        {CONFIG, at, "'auto_map': {'AutoModel': 'modeling_bert.JinaBertModel'}, 'use_cache'", status, "auto_map"},
        {CONFIG, at, "'rope_theta': 10000, 'use_cache'", status, "rope_theta"},
        {CONFIG, at, "'embedding_size': 128, 'use_cache'", status, "embedding_size"},
        {CONFIG, at, "'feed_forward_type': 'geglu', 'use_cache'", status, "feed_forward_type"});
}

MODEL_TEST(refuses_other_architectures)
{
    struct model_spec spec = model_spec_tiny();
    static const char *const types[] = {"deberta-v2", "xlm", "deberta"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char to[64];
        snprintf(to, sizeof to, "'model_type': '%s'", types[i]);
        build(&spec);
        edit_file(CONFIG, "'model_type': 'bert'", to);
        refused(NULL, STATUS_UNSUPPORTED, CONFIG ": model_type", types[i]);
        refused(NULL, STATUS_UNSUPPORTED, "supported: bert, distilbert", "");
    }
    EDITS_REFUSED(&spec, {CONFIG, "'BertModel'", "'JinaBertModel'", STATUS_UNSUPPORTED, "JinaBertModel"},
                  {CONFIG, "['BertModel']", "'BertModel'", STATUS_BAD_INPUT, "architectures"},
                  {CONFIG, "'model_type': 'bert',", "", STATUS_BAD_INPUT, "model_type"});
}

/* The sizes under DistilBERT's names; its config has no token types and no eps. It does not use BERT's names. */
MODEL_TEST(opens_distilbert)
{
    struct model_spec spec = model_spec_tiny();
    spec.distilbert = true;
    spec.hidden_act = "relu";
    build(&spec);
    const struct model *model = opened(NULL);
    assert_int_equal(model->vocabulary, 512);
    assert_int_equal(model->positions, 64);
    assert_int_equal(model->token_types, 0);
    assert_int_equal(model->hidden, 32);
    assert_int_equal(model->layer_count, 2);
    assert_int_equal(model->heads, 4);
    assert_int_equal(model->intermediate_size, 64);
    assert_int_equal(model->activation, ACTIVATION_RELU);
    assert_true(model->layer_norm_eps == 1e-12f);
    EDITS_REFUSED(&spec, {CONFIG, "'dim': 32,", "", STATUS_BAD_INPUT, "dim or hidden_size is missing"},
                  {CONFIG, "'dim': 32,", "'dim': 30,", STATUS_BAD_INPUT, "dim 30 is not a multiple of n_heads 4"},
                  {CONFIG, "'activation'", "'hidden_act'", STATUS_UNSUPPORTED, "hidden_act"},
                  {CONFIG, "'dropout'", "'type_vocab_size'", STATUS_UNSUPPORTED, "type_vocab_size"},
                  {CONFIG, "DistilBertForMaskedLM", "BertForMaskedLM", STATUS_UNSUPPORTED, "DistilBertModel is"});
}

/* BERT's names below another prefix. Positions begin after the padding token's, which is 1 if the config has none. */
MODEL_TEST(opens_the_robertas)
{
    static const struct {
        const char *type, *class, *more;
        uint32_t offset;
    } cases[] = {
        {"roberta", "RobertaModel", "'pad_token_id': 1, 'gradient_checkpointing': false", 2},
        {"xlm-roberta", "XLMRobertaModel",
         "'pad_token_id': 1, 'output_past': true, 'position_embedding_type': 'absolute', 'use_cache': true, "
         "'classifier_dropout': null, 'torch_dtype': 'float32'",
         2},
        {"xlm-roberta", "XLMRobertaForMaskedLM",
         "'pad_token_id': 3, 'add_cross_attention': false, 'dtype': 'bfloat16', 'is_decoder': false", 4},
        {"camembert", "CamembertModel", "'pad_token_id': null", 2},
        {"roberta", "RobertaModel", "'use_cache': false", 2},
    };
    struct model_spec spec = model_spec_tiny();
    spec.prefix = "roberta.";
    spec.pooler = spec.position_ids = true;
    spec.token_types = 1;
    spec.max_tokens = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        build(&spec);
        put_config("{'model_type': '%s', 'architectures': ['%s'], 'attention_probs_dropout_prob': 0.1, "
                   "'bos_token_id': 0, 'eos_token_id': 2, 'hidden_act': 'gelu', 'hidden_dropout_prob': 0.1, "
                   "'initializer_range': 0.02, 'layer_norm_eps': 1e-05, 'type_vocab_size': 1, " SIZES ", %s}",
                   cases[i].type, cases[i].class, cases[i].more);
        const struct model *model = opened(NULL);
        assert_int_equal(model->position_offset, cases[i].offset);
        assert_int_equal(model->max_tokens, 64 - cases[i].offset);
        assert_true(model->layer_norm_eps == 1e-5f);
        refused(&(struct model_options){.max_tokens = 65 - cases[i].offset}, STATUS_BAD_INPUT, "above the model's",
                "positions");
        edit_file(CONFIG, "'max_position_embeddings': 64", "'max_position_embeddings': 2");
        refused(NULL, STATUS_BAD_INPUT, CONFIG ": max_position_embeddings", "leaves no position");
    }
}

/* The padding token's number changes the first position, and so the model's id. */
MODEL_TEST(the_first_position_is_in_the_id)
{
    char id[2][33];
    for (int i = 0; i < 2; i++) {
        if (i == 0) {
            edit_file(CONFIG, "'model_type': 'bert'", "'model_type': 'roberta'");
            edit_file(CONFIG, "BertModel", "RobertaModel");
            edit_file(CONFIG, "'pad_token_id': 0", "'pad_token_id': 10");
        } else {
            edit_file(CONFIG, "'pad_token_id': 10", "'pad_token_id': 11");
        }
        memcpy(id[i], opened(&(struct model_options){.max_tokens = 16})->id, sizeof id[i]);
    }
    assert_string_not_equal(id[0], id[1]);
}

#define GEMMA3                                                                                                         \
    "'vocab_size': 512, 'hidden_size': 32, 'intermediate_size': 64, 'num_hidden_layers': 7, "                          \
    "'max_position_embeddings': 64, 'num_attention_heads': 4, 'hidden_activation': 'gelu_pytorch_tanh', "              \
    "'num_key_value_heads': 1, 'head_dim': 16, "
#define GEMMA3_BOTH_WAYS GEMMA3 "'use_bidirectional_attention': true, "

/* Fields that may change the maths of a family, and fields that do not. The tensors are BERT's, so none opens: the
 * golden tests cover the reading of each family's tensors. */
MODEL_TEST(refuses_other_maths_of_a_family)
{
    enum { BAD = STATUS_BAD_INPUT, UNSUPPORTED = STATUS_UNSUPPORTED };
#define GTE SIZES ", 'type_vocab_size': 2, "
#define NOMIC GTE "'activation_function': 'swiglu', "
#define MODERNBERT LAYERS ", 'hidden_activation': 'gelu', "
#define MPNET                                                                                                          \
    SIZES ", 'attention_probs_dropout_prob': 0.1, 'bos_token_id': 0, 'eos_token_id': 2, 'hidden_act': 'gelu', "        \
          "'hidden_dropout_prob': 0.1, 'initializer_range': 0.02, 'layer_norm_eps': 1e-05, 'pad_token_id': 1, "        \
          "'transformers_version': '4.8.2', "
#define QWEN3 SIZES ", 'architectures': ['Qwen3ForCausalLM'], 'hidden_act': 'silu', "
#define LLAMA SIZES ", 'hidden_act': 'silu', "
#define QWEN3_HEADS QWEN3 "'num_key_value_heads': 2, 'head_dim': 8, "
    static const struct {
        const char *type, *fields, *more, *says;
        int status;
    } cases[] = {
        {"mpnet", MPNET, "'architectures': ['MPNetForMaskedLM'], 'relative_attention_num_buckets': 32",
         "is not part of the mpnet model", UNSUPPORTED},
        {"mpnet", MPNET, "'architectures': ['MPNetForMaskedLM'], 'relative_attention_num_buckets': 64",
         "relative_attention_num_buckets 64 is not supported; 32 is", UNSUPPORTED},
        {"mpnet", MPNET, "'architectures': ['MPNetForMaskedLM'], 'type_vocab_size': 2", "type_vocab_size is not known",
         UNSUPPORTED},
        {"mpnet", MPNET, "'architectures': ['BertModel'], 'relative_attention_num_buckets': 32", "MPNetModel is",
         UNSUPPORTED},
        {"gte", GTE, "'hidden_act': 'gelu'", "tensor", UNSUPPORTED},
        {"gte", GTE, "'hidden_act': 'relu'", "hidden_act 'relu'", UNSUPPORTED},
        {"gte", GTE, "'hidden_act': 'swiglu'", "hidden_act 'swiglu'", UNSUPPORTED},
        {"gte", GTE, "'hidden_act': 'gelu', 'rope_theta': -1", "rope_theta", BAD},
        {"gte", GTE, "'hidden_act': 'gelu', 'logn_attention_scale': true", "logn_attention_scale", UNSUPPORTED},
        {"gte", GTE, "'hidden_act': 'gelu', 'layer_norm_type': 'rms_norm'", "rms_norm", UNSUPPORTED},
        {"gte", GTE, "'hidden_act': 'gelu', 'position_embedding_type': 'absolute'", "absolute", UNSUPPORTED},
        {"new", GTE, "'hidden_act': 'gelu', 'rope_scaling': {'type': 'linear', 'factor': 2}", "linear", UNSUPPORTED},
        {"new", GTE, "'hidden_act': 'gelu', 'rope_scaling': {'type': 'ntk', 'factor': 0.5}", "factor", BAD},
        {"new", GTE, "'hidden_act': 'gelu', 'rope_scaling': {'type': 'ntk', 'mixed_b': '0.6'}", "mixed_b", UNSUPPORTED},
        {"nomic_bert", GTE, "'hidden_act': 'silu', 'rope_parameters': {'rope_type': 'yarn'}", "yarn", UNSUPPORTED},
        {"nomic_bert", GTE, "'hidden_act': 'silu', 'rotary_emb_base': 0", "rotary_emb_base", BAD},
        {"nomic_bert", GTE, "'hidden_act': 'silu', 'head_dim': 16", "head_dim", BAD},
        {"nomic_bert", GTE, "'activation_function': 'geglu'", "geglu", UNSUPPORTED},
        {"nomic_bert", NOMIC, "'rotary_emb_fraction': 0.5", "rotary_emb_fraction", UNSUPPORTED},
        {"nomic_bert", NOMIC, "'scale_attn_weights': false", "scale_attn_weights", UNSUPPORTED},
        {"nomic_bert", NOMIC, "'prenorm': true", "prenorm", UNSUPPORTED},
        {"nomic_bert", NOMIC, "'num_experts': 8", "num_experts", UNSUPPORTED},
        {"nomic_bert", NOMIC, "'hidden_act': 'gelu'", "hidden_act and activation_function contradict each other", BAD},
        {"nomic_bert", NOMIC, "'n_embd': 32", "layer_norm_epsilon is missing", BAD},
        {"nomic_bert", "'vocab_size': 512, 'type_vocab_size': 2, ", "'activation_function': 'swiglu', 'n_embd': 32",
         "n_layer is missing", BAD}, /* GPT-2's names alone */
        {"modernbert", MODERNBERT, "'num_attention_heads': 4, 'norm_bias': true", "norm_bias", UNSUPPORTED},
        {"modernbert", MODERNBERT, "'num_attention_heads': 4, 'rope_scaling': {'type': 'linear'}", "rope_scaling",
         UNSUPPORTED},
        {"modernbert", MODERNBERT, "'num_attention_heads': 4, 'layer_types': ['full_attention']",
         "layer_types must be a list of 2", BAD},
        {"modernbert", MODERNBERT, "'num_attention_heads': 4, 'layer_types': ['full_attention', 'chunked']", "chunked",
         UNSUPPORTED},
        {"modernbert", MODERNBERT,
         "'num_attention_heads': 4, 'rope_parameters': {'full_attention': {'rope_type': 'yarn'}}", "yarn", UNSUPPORTED},
        {"modernbert", MODERNBERT, "'num_attention_heads': 4, 'rope_parameters': {'rope_theta': 1}", "rope_theta",
         UNSUPPORTED},
        {"modernbert", MODERNBERT, "'num_attention_heads': 4, 'rope_parameters': 'x'", "rope_parameters", BAD},
        {"modernbert", MODERNBERT,
         "'num_attention_heads': 4, 'rope_parameters': {'sliding_attention': {'rope_theta': 0}}",
         "sliding_attention: rope_theta", BAD},
        {"modernbert", MODERNBERT, "'num_attention_heads': 4, 'local_rope_theta': null", "local_rope_theta", BAD},
        {"modernbert", MODERNBERT, "'num_attention_heads': 4, 'local_attention': 0", "local_attention", BAD},
        {"modernbert", MODERNBERT, "'num_attention_heads': 32", "even width of heads", UNSUPPORTED},
        {"qwen3", QWEN3_HEADS, "'rope_theta': 1000000, 'rope_scaling': null", "is not part of the qwen3 model",
         UNSUPPORTED},
        {"qwen3", QWEN3,
         "'num_key_value_heads': 4, 'head_dim': 12, 'sliding_window': 4096, 'use_sliding_window': false",
         "is not part of the qwen3 model", UNSUPPORTED},
        {"qwen3", QWEN3, "'num_key_value_heads': 1, 'head_dim': 8, 'layer_types': ['full_attention', 'full_attention']",
         "is not part of the qwen3 model", UNSUPPORTED},
        {"qwen3", QWEN3, "'num_key_value_heads': 2", "head_dim is missing", BAD},
        {"qwen3", QWEN3, "'num_key_value_heads': null, 'head_dim': 8", "num_key_value_heads is missing", BAD},
        {"qwen3", QWEN3, "'num_key_value_heads': 3, 'head_dim': 8",
         "num_attention_heads 4 is not a multiple of num_key_value_heads 3", BAD},
        {"qwen3", QWEN3, "'num_key_value_heads': 2, 'head_dim': 7", "even width of heads, not 7", UNSUPPORTED},
        {"qwen3", QWEN3_HEADS, "'attention_bias': true", "attention_bias", UNSUPPORTED},
        {"qwen3", QWEN3_HEADS, "'use_sliding_window': true", "use_sliding_window", UNSUPPORTED},
        {"qwen3", QWEN3_HEADS, "'layer_types': ['full_attention', 'sliding_attention']", "sliding_attention",
         UNSUPPORTED},
        {"qwen3", QWEN3_HEADS, "'layer_types': 'full_attention'", "layer_types must be a list", BAD},
        {"qwen3", QWEN3_HEADS, "'rope_scaling': {'rope_type': 'yarn'}", "rope_scaling", UNSUPPORTED},
        {"qwen3", QWEN3_HEADS, "'rope_parameters': {'rope_type': 'yarn'}", "yarn", UNSUPPORTED},
        {"qwen3", QWEN3_HEADS, "'is_causal': false", "is_causal", UNSUPPORTED},
        {"llama", LLAMA, "'num_key_value_heads': 2", "is not part of the llama model", UNSUPPORTED},
        {"llama", LLAMA, "'head_dim': null, 'rope_interleaved': false", "is not part of the llama model", UNSUPPORTED},
        {"llama", LLAMA, "'num_key_value_heads': 3", "is not a multiple of num_key_value_heads 3", BAD},
        {"llama", LLAMA, "'rope_interleaved': true", "rope_interleaved", UNSUPPORTED},
        {"llama", LLAMA, "'attention_bias': true", "attention_bias", UNSUPPORTED},
        {"llama", LLAMA, "'mlp_bias': true", "mlp_bias", UNSUPPORTED},
        {"llama", LLAMA, "'partial_rotary_factor': 0.5", "partial_rotary_factor", UNSUPPORTED},
        {"llama", LLAMA, "'rope_scaling': {'rope_type': 'yarn', 'factor': 4}",
         "rope_type 'yarn' is not supported; supported: default, linear, llama3", UNSUPPORTED},
        {"llama", LLAMA, "'rope_scaling': {'type': 'dynamic', 'factor': 2}", "rope_type 'dynamic'", UNSUPPORTED},
        {"llama", LLAMA, "'rope_scaling': {'type': 'linear', 'rope_type': 'llama3'}", "rope_type and type", BAD},
        {"llama", LLAMA, "'rope_scaling': {'type': 'linear', 'factor': 0.5}", "factor must be", BAD},
        {"llama", LLAMA, "'rope_scaling': {'type': 'linear'}", "factor must be", BAD},
        {"llama", LLAMA, "'rope_scaling': {'type': 'linear', 'factor': 2, 'beta_fast': 32}", "beta_fast", UNSUPPORTED},
        {"llama", LLAMA, "'rope_scaling': {'rope_type': 'default'}, 'rope_parameters': {'rope_type': 'default'}",
         "rope_parameters and rope_scaling", BAD},
        {"llama", LLAMA, "'rope_scaling': {'rope_type': 'llama3', 'factor': 8}", "original_max_position_embeddings",
         BAD},
        {"llama", LLAMA,
         "'rope_scaling': {'rope_type': 'llama3', 'factor': 8, 'original_max_position_embeddings': 32, "
         "'low_freq_factor': 4, 'high_freq_factor': 4}",
         "high_freq_factor must be above", BAD},
        {"llama", LLAMA, "'architectures': ['LlamaForCausalLM', 'x']", "'x' is not supported", UNSUPPORTED},
        {"mistral", LLAMA, "'sliding_window': 32", "only where text is generated", UNSUPPORTED},
        {"mistral", LLAMA, "'sliding_window': null", "is not part of the mistral model", UNSUPPORTED},
        {"qwen2", LLAMA, "'sliding_window': 32, 'use_sliding_window': false", "Qwen2Tokenizer reads", UNSUPPORTED},
        {"qwen2", LLAMA, "'use_sliding_window': true", "use_sliding_window", UNSUPPORTED},
        {"gemma3_text", GEMMA3, "'use_bidirectional_attention': false", "use_bidirectional_attention", UNSUPPORTED},
        {"gemma3_text", GEMMA3, "'use_cache': true", "use_bidirectional_attention", UNSUPPORTED},
        {"gemma3_text", GEMMA3_BOTH_WAYS, "'attn_logit_softcapping': 50", "attn_logit_softcapping", UNSUPPORTED},
        {"gemma3_text", GEMMA3_BOTH_WAYS, "'attention_bias': true", "attention_bias", UNSUPPORTED},
        {"gemma3_text", GEMMA3_BOTH_WAYS, "'rope_scaling': {'factor': 8}", "rope_scaling", UNSUPPORTED},
        {"gemma3_text", GEMMA3_BOTH_WAYS, "'query_pre_attn_scalar': 0", "query_pre_attn_scalar", BAD},
        {"gemma3_text", GEMMA3_BOTH_WAYS, "'layer_types': ['full_attention']", "layer_types must be a list of 7", BAD},
        {"gemma3_text", GEMMA3_BOTH_WAYS, "'hidden_act': 'gelu'", "hidden_act", UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put_config("{'model_type': '%s', %s%s}", cases[i].type, cases[i].fields, cases[i].more);
        refused(NULL, (enum status)cases[i].status, cases[i].says, "");
    }
}

/* Its head passes over padding at the end, also where that is [SEP], whose id is 3; of padding alone the first counts.
 */
MODEL_TEST(a_qwen3_head_passes_over_padding)
{
    struct model_spec spec = model_spec_tiny();
    spec.generation = GENERATION_BARE;
    build(&spec);
    for (int padding = 2; padding <= 3; padding++) {
        put_config("{'model_type': 'qwen3', " SIZES ", 'architectures': ['Qwen3ForSequenceClassification'], "
                   "'hidden_act': 'silu', 'num_key_value_heads': 2, 'head_dim': 8, 'pad_token_id': %d}",
                   padding);
        refused(&(struct model_options){.classifier = true}, STATUS_UNSUPPORTED, "is not part of the qwen3 model", "");
    }
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

/* Reads config.json alone; the caller frees the layers. */
static struct model read_config(void)
{
    struct model model = {0};
    struct err err = {0};
    if (family_read_config(made.directory, CONFIG, &model, &err) != STATUS_OK) { fail_msg("%s", err.message); }
    return model;
}

/* The spelling of the Hub's file of 2025; transformers 5's and the defaults give the same. */
MODEL_TEST(reads_the_config_of_gemma3)
{
    static const char *const spellings[] = {
        "'sliding_window': 513, 'query_pre_attn_scalar': 256, '_sliding_window_pattern': 6, "
        "'rope_theta': 1000000.0, 'rope_local_base_freq': 10000.0, 'rope_scaling': null, "
        "'attention_bias': false, 'attn_logit_softcapping': null, 'final_logit_softcapping': null, "
        "'dtype': 'float32'",
        "'sliding_window': 512, 'sliding_window_pattern': 6, 'rope_parameters': "
        "{'full_attention': {'rope_theta': 1000000.0, 'rope_type': 'default'}, "
        "'sliding_attention': {'rope_theta': 10000.0, 'rope_type': 'default'}}, 'layer_types': "
        "['sliding_attention', 'sliding_attention', 'sliding_attention', 'sliding_attention', "
        "'sliding_attention', 'full_attention', 'sliding_attention']",
    };
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++) {
        put_config("{'model_type': 'gemma3_text', " GEMMA3_BOTH_WAYS "%s}", spellings[i]);
        struct model model = read_config();
        for (uint32_t layer = 0; layer < 7; layer++) { assert_int_equal(model.layers[layer].local, layer != 5); }
        assert_int_equal(model.window, 256);
        assert_true(model.rotary[0].base == 1e6 && model.rotary[1].base == 1e4 && model.score_width == 256);
        assert_true(model.gain_less_one && !model.causal && model.word_scale * model.word_scale > 31.99f);
        assert_true(model.head_dim == 16 && model.key_heads == 1 && model.layer_norm_eps == 1e-6f);
        free(model.layers);
    }
}

/* Reads CONFIG as that of a model that is to generate text. */
static enum status read_generator(struct model *model, struct err *err)
{
    *model = (struct model){.generates = true};
    enum status status = family_read_config(made.directory, CONFIG, model, err);
    free(model->layers);
    return status;
}

MODEL_TEST(reads_language_models)
{
#define CAUSAL(class) SIZES ", 'architectures': ['" class "ForCausalLM'], 'hidden_act': 'silu', "
#define TURNS                                                                                                          \
    "'rope_type': 'llama3', 'factor': 8, 'low_freq_factor': 1, 'high_freq_factor': 4, "                                \
    "'original_max_position_embeddings': 16"
    static const char *const spellings[] = {"'rope_theta': 5e5, 'rope_scaling': {" TURNS "}",
                                            "'rope_parameters': {'rope_theta': 5e5, " TURNS "}"};
    struct model model;
    struct err err;
    for (int i = 0; i < 2; i++) {
        put_config("{'model_type': 'llama', " CAUSAL("Llama") "%s}", spellings[i]);
        assert_int_equal(read_generator(&model, &err), STATUS_OK);
        assert_true(model.causal_lm && !model.tied_head && model.causal && model.window == 0);
        assert_true(model.rotary[0].base == 5e5 && model.rotary[0].divisor == 8 && model.rotary[0].original == 16);
        assert_true(model.rotary[0].low_turns == 1 && model.rotary[0].high_turns == 4 && model.rotary[1].base == 0);
        assert_int_equal(model_key_heads(&model), 4);
    }
    put_config("{'model_type': 'mistral', " CAUSAL("Mistral") "'sliding_window': 8, 'tie_word_embeddings': true}");
    assert_int_equal(read_generator(&model, &err), STATUS_OK);
    assert_true(model.window == 7 && model.tied_head && model.rotary[1].base == 10000);
    put_config("{'model_type': 'gemma3_text', " GEMMA3 "'architectures': ['Gemma3ForCausalLM'], 'sliding_window': 8, "
               "'rope_scaling': {'rope_type': 'linear', 'factor': 8.0}}");
    assert_int_equal(read_generator(&model, &err), STATUS_OK);
    assert_true(model.causal && model.tied_head && model.window == 7);
    assert_true(model.rotary[0].divisor == 8 && model.rotary[1].divisor == 1);

    static const struct {
        const char *config, *says;
    } cases[] = {
        {"'model_type': 'llama', " SIZES ", 'hidden_act': 'silu'", "does not generate text"},
        {"'model_type': 'llama', " SIZES ", 'hidden_act': 'silu', 'architectures': ['LlamaModel']",
         "\"LlamaModel\" does not generate text"},
        {"'model_type': 'gemma3_text', " GEMMA3_BOTH_WAYS "'architectures': ['Gemma3ForCausalLM']",
         "to generate text with use_bidirectional_attention"},
        {"'model_type': 'gemma3_text', " GEMMA3 "'architectures': ['Gemma3ForCausalLM'], 'final_logit_softcapping': 30",
         "final_logit_softcapping"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put_config("{%s}", cases[i].config);
        assert_int_equal(read_generator(&model, &err), STATUS_UNSUPPORTED);
        if (!strstr(err.message, cases[i].says)) { fail_msg("%s", err.message); }
    }
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
static void write_zeros(void)
{
    struct model model = read_config();
    char *header = NULL, path[256];
    size_t length = 0;
    struct zeros zeros = {open_memstream(&header, &length), 0};
    weights_visit(&model, add_zeros, &zeros);
    fputc('}', zeros.header);
    fflush(zeros.header);
    for (size_t pad = (8 - length % 8) % 8; pad > 0; pad--) { fputc(' ', zeros.header); }
    fclose(zeros.header);
    snprintf(path, sizeof path, "%s/model.safetensors", made.directory);
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
MODEL_TEST(the_width_of_scores_is_in_the_id)
{
    char id[2][33];
    for (int i = 0; i < 2; i++) {
        put_config("{'model_type': 'gemma3_text', " GEMMA3_BOTH_WAYS "'query_pre_attn_scalar': %d}", i == 0 ? 16 : 24);
        if (i == 0) { write_zeros(); }
        memcpy(id[i], opened(NULL)->id, sizeof id[i]);
    }
    assert_string_not_equal(id[0], id[1]);
}

/* Rotary positions have no end: max_seq_length may be above max_position_embeddings, which is 64; the other limits and
 * the option may not. */
MODEL_TEST(rotary_positions_may_end_later)
{
    char text[64];
    put_config("{'model_type': 'gemma3_text', " GEMMA3_BOTH_WAYS "'use_cache': true}");
    write_zeros();
    edit_file("tokenizer_config.json", "1000000000000000019884624838656", "300");
    static const struct {
        const char *limit;
        uint32_t tokens;
    } cases[] = {{"null", 64}, {"40", 40}, {"200", 200}, {"4000000000", MODEL_POSITIONS_MAX}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        snprintf(text, sizeof text, "{'max_seq_length': %s}", cases[i].limit);
        put_file("sentence_bert_config.json", text);
        assert_int_equal(opened(NULL)->max_tokens, cases[i].tokens);
    }
    put_file("sentence_bert_config.json", "{'max_seq_length': 200}");
    refused(&(struct model_options){.max_tokens = 201}, STATUS_BAD_INPUT, "200 positions", "");
}

/* A field in two spellings: if they agree the file opens, and else the message names both. */
MODEL_TEST(spellings_side_by_side_must_agree)
{
    static const char distilbert[] = "'vocab_size': 512, 'max_position_embeddings': 64, 'dim': 32, "
                                     "'hidden_dim': 64, 'n_heads': 4, 'n_layers': 2, 'activation': 'gelu'",
                      nomic[] = "'type_vocab_size': 2, 'hidden_act': 'silu', 'layer_norm_eps': 1e-12, "
                                "'rope_parameters': {'rope_theta': 1000.0, 'rope_type': 'default'}",
                      modernbert[] = "'hidden_activation': 'gelu', 'layer_types': ['full_attention', "
                                     "'sliding_attention'], 'rope_parameters': {'full_attention': "
                                     "{'rope_theta': 160000.0}, 'sliding_attention': {'rope_theta': 10000}}",
                      gemma3[] = "'hidden_activation': 'gelu', 'use_bidirectional_attention': true, "
                                 "'num_key_value_heads': 2, 'head_dim': 8, 'layer_types': "
                                 "['sliding_attention', 'full_attention'], 'rope_parameters': "
                                 "{'full_attention': {'rope_theta': 160000.0}, 'sliding_attention': "
                                 "{'rope_theta': 10000}}",
                      qwen3[] = "'hidden_act': 'silu', 'num_key_value_heads': 2, 'head_dim': 8, "
                                "'rope_parameters': {'rope_theta': 5000}",
                      gte[] = "'hidden_act': 'gelu', 'rope_parameters': {'rope_theta': 5000}";
    static const struct {
        const char *type, *sizes, *more, *same, *other, *says;
    } cases[] = {
        {"distilbert", "", distilbert, "'hidden_size': 32", "'hidden_size': 64", "dim and hidden_size"},
        {"distilbert", "", distilbert, "'num_attention_heads': 4", "'num_attention_heads': 2",
         "n_heads and num_attention_heads"},
        {"distilbert", "", distilbert, "'num_hidden_layers': 2", "'num_hidden_layers': 1",
         "n_layers and num_hidden_layers"},
        {"nomic_bert", SIZES ", ", nomic, "'n_embd': 32", "'n_embd': 64", "hidden_size and n_embd"},
        {"nomic_bert", SIZES ", ", nomic, "'n_layer': 2", "'n_layer': 1", "num_hidden_layers and n_layer"},
        {"nomic_bert", SIZES ", ", nomic, "'n_head': 4", "'n_head': 2", "num_attention_heads and n_head"},
        {"nomic_bert", SIZES ", ", nomic, "'n_inner': 64", "'n_inner': 32", "intermediate_size and n_inner"},
        {"nomic_bert", SIZES ", ", nomic, "'layer_norm_epsilon': 1e-12", "'layer_norm_epsilon': 1e-5",
         "layer_norm_eps and layer_norm_epsilon"},
        {"nomic_bert", SIZES ", ", nomic, "'rotary_emb_base': 1000", "'rotary_emb_base': 10000",
         "rope_parameters.rope_theta and rotary_emb_base"},
        {"modernbert", SIZES ", ", modernbert, "'global_rope_theta': 160000", "'global_rope_theta': 160001",
         "rope_parameters.full_attention.rope_theta and global_rope_theta"},
        {"modernbert", SIZES ", ", modernbert, "'local_rope_theta': 10000.0", "'local_rope_theta': 160000",
         "rope_parameters.sliding_attention.rope_theta and local_rope_theta"},
        {"modernbert", SIZES ", ", modernbert, "'global_attn_every_n_layers': 3", "'global_attn_every_n_layers': 1",
         "layer_types and global_attn_every_n_layers"},
        {"gemma3_text", SIZES ", ", gemma3, "'rope_theta': 160000", "'rope_theta': 1000000",
         "rope_parameters.full_attention.rope_theta and rope_theta"},
        {"gemma3_text", SIZES ", ", gemma3, "'rope_local_base_freq': 10000", "'rope_local_base_freq': 9999",
         "rope_parameters.sliding_attention.rope_theta and rope_local_base_freq"},
        {"gemma3_text", SIZES ", ", gemma3, "'sliding_window_pattern': 2", "'sliding_window_pattern': 3",
         "layer_types and sliding_window_pattern"},
        {"qwen3", SIZES ", ", qwen3, "'rope_theta': 5000.0", "'rope_theta': 1000000",
         "rope_parameters.rope_theta and rope_theta"},
        {"gte", SIZES ", ", gte, "'rope_theta': 5e3", "'rope_theta': 160000",
         "rope_parameters.rope_theta and rope_theta"},
        {"new", SIZES ", ", gte, "'rope_theta': 5000", "'rope_theta': 10000",
         "rope_parameters.rope_theta and rope_theta"},
    };
    char says[200];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int other = 0; other < 2; other++) {
            struct model model = {0};
            struct err err = {0};
            put_config("{'model_type': '%s', %s%s, %s}", cases[i].type, cases[i].sizes, cases[i].more,
                       other ? cases[i].other : cases[i].same);
            enum status status = family_read_config(made.directory, CONFIG, &model, &err);
            if (other) {
                snprintf(says, sizeof says, CONFIG ": %s contradict each other", cases[i].says);
                assert_int_equal(status, STATUS_BAD_INPUT);
                assert_string_equal(err.message, says);
            } else if (status != STATUS_OK) {
                fail_msg("%s, %s: %s", cases[i].type, cases[i].same, err.message);
            }
            free(model.layers);
        }
    }
}

/* GPT-2's names beside those of transformers 5, which reads no n_positions, as in nomic-embed-text-v1.5. */
MODEL_TEST(opens_nomic_in_both_spellings)
{
    static const char config[] =
        "{'activation_function': 'swiglu', 'architectures': ['NomicBertModel'], "
        "'attn_pdrop': 0.0, 'auto_map': {'AutoConfig': 'x--configuration_hf_nomic_bert.NomicBertConfig'}, "
        "'bos_token_id': null, 'causal': false, 'dense_seq_output': true, 'embd_pdrop': 0.0, "
        "'eos_token_id': null, 'fused_bias_fc': true, 'fused_dropout_add_ln': true, 'head_dim': 8, "
        "'hidden_act': 'silu', 'hidden_size': 32, 'initializer_range': 0.02, 'intermediate_size': 64, "
        "'layer_norm_eps': 1e-12, 'layer_norm_epsilon': 1e-12, 'max_position_embeddings': 2048, "
        "'max_trained_positions': 2048, 'mlp_fc1_bias': false, 'mlp_fc2_bias': false, "
        "'model_type': 'nomic_bert', 'n_embd': 32, 'n_head': 4, 'n_inner': 64, 'n_layer': 2, "
        "'n_positions': 8192, 'num_attention_heads': 4, 'num_hidden_layers': 2, "
        "'pad_vocab_size_multiple': 64, 'parallel_block': false, 'prenorm': false, 'qkv_proj_bias': false, "
        "'rope_parameters': {'rope_theta': 1000, 'rope_type': 'default'}, 'rotary_emb_base': 1000, "
        "'rotary_emb_fraction': 1.0, 'rotary_emb_interleaved': false, 'rotary_emb_scale_base': null, "
        "'rotary_scaling_factor': null, 'scale_attn_by_inverse_layer_idx': false, 'scale_attn_weights': true, "
        "'torch_dtype': 'float32', 'type_vocab_size': 2, 'use_cache': true, 'use_flash_attn': true, "
        "'use_rms_norm': false, 'use_xentropy': true, 'vocab_size': 512}";
    put_file(CONFIG, config);
    struct model model = read_config();
    assert_int_equal(model.positions, 2048);
    assert_int_equal(model.hidden, 32);
    assert_int_equal(model.activation, ACTIVATION_SILU);
    assert_true(model.rotary[0].base == 1000 && model.layer_norm_eps == 1e-12f);
    free(model.layers);
}

/* The default is that of transformers, if the file does not have the field. */
MODEL_TEST(the_eps_of_norms_is_the_family_s)
{
    static const char bert[] = SIZES ", 'type_vocab_size': 2, 'hidden_act': 'gelu'",
                      nomic[] = SIZES ", 'type_vocab_size': 2, 'hidden_act': 'silu'",
                      gpt2[] =
                          "'vocab_size': 512, 'type_vocab_size': 2, 'activation_function': 'swiglu', 'n_embd': 32, "
                          "'n_layer': 2, 'n_head': 4, 'n_inner': 64, 'n_positions': 64";
    static const struct {
        const char *type, *fields, *eps;
        float expected;
    } cases[] = {
        {"bert", bert, "", 1e-12f},
        {"bert", bert, ", 'layer_norm_eps': 1e-05", 1e-5f},
        {"modernbert", SIZES ", 'hidden_activation': 'gelu'", "", 1e-5f},
        {"nomic_bert", nomic, "", 1e-12f},
        {"qwen3", SIZES ", 'hidden_act': 'silu', 'num_key_value_heads': 4, 'head_dim': 8", "", 1e-6f},
        {"nomic_bert", gpt2, ", 'layer_norm_epsilon': 1e-05", 1e-5f},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put_config("{'model_type': '%s', %s%s}", cases[i].type, cases[i].fields, cases[i].eps);
        struct model model = read_config();
        assert_true(model.layer_norm_eps == cases[i].expected);
        free(model.layers);
    }
}

MODEL_TEST(refuses_missing_and_impossible_sizes)
{
    const struct model_spec spec = model_spec_tiny();
    const enum status bad = STATUS_BAD_INPUT;
    EDITS_REFUSED(&spec, {CONFIG, "'hidden_size': 32,", "", bad, "hidden_size is missing"},
                  {CONFIG, "'vocab_size': 512,", "", bad, "vocab_size is missing"},
                  {CONFIG, "'num_hidden_layers': 2,", "", bad, "num_hidden_layers is missing"},
                  {CONFIG, "'num_attention_heads': 4,", "", bad, "num_attention_heads is missing"},
                  {CONFIG, "'intermediate_size': 64,", "", bad, "intermediate_size is missing"},
                  {CONFIG, "'max_position_embeddings': 64,", "", bad, "max_position_embeddings is missing"},
                  {CONFIG, "'type_vocab_size': 2,", "", bad, "type_vocab_size is missing"},
                  {CONFIG, "'hidden_size': 32", "'hidden_size': 0", bad, "hidden_size"},
                  {CONFIG, "'hidden_size': 32", "'hidden_size': -32", bad, "hidden_size"},
                  {CONFIG, "'hidden_size': 32", "'hidden_size': 32.5", bad, "hidden_size"},
                  {CONFIG, "'hidden_size': 32", "'hidden_size': '32'", bad, "hidden_size"},
                  {CONFIG, "'hidden_size': 32", "'hidden_size': 1e30", bad, "hidden_size"},
                  {CONFIG, "'num_attention_heads': 4", "'num_attention_heads': 5", bad, "num_attention_heads"},
                  {CONFIG, "'layer_norm_eps': 1e-12", "'layer_norm_eps': 0", bad, "layer_norm_eps"},
                  {CONFIG, "'layer_norm_eps': 1e-12", "'layer_norm_eps': '1e-12'", bad, "layer_norm_eps"});
}

MODEL_TEST(reads_every_activation)
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
        build(&spec);
        assert_int_equal(opened(NULL)->activation, cases[i].expected);
    }
    EDITS_REFUSED(&spec,
                  {CONFIG, "'hidden_act': 'relu'", "'hidden_act': 'quick_gelu'", STATUS_UNSUPPORTED, "hidden_act"},
                  {CONFIG, "'hidden_act': 'relu',", "", STATUS_BAD_INPUT, "hidden_act"});
}
