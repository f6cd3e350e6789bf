/* BERT: MiniLM, bge, e5 and gte are of this family.
 * Source: BertConfig and BertModel of transformers 2.x, 3.x, 4.x and 5.23. */
#include "model/family.h"

static const char *const harmless[] = {"attention_probs_dropout_prob",
                                       "hidden_dropout_prob",
                                       "vocab_size_or_config_json_file",
                                       "directionality",
                                       "pooler_fc_size",
                                       "pooler_num_attention_heads",
                                       "pooler_num_fc_layers",
                                       "pooler_size_per_head",
                                       "pooler_type",
                                       NULL};

static const char *const unused[] = {
    "pooler.", "cls.", "classifier.", "qa_outputs.", "embeddings.position_ids", "embeddings.token_type_ids", NULL};

const struct family family_bert = {
    .model_type = "bert",
    .class = "Bert",
    .harmless = harmless,
    .fields = {USUAL_SIZES, [CONFIG_TOKEN_TYPES] = {"type_vocab_size"}, [CONFIG_ACTIVATION] = {"hidden_act"},
               [CONFIG_EPS] = {"layer_norm_eps"}},
    .prefix = "bert.",
    .unused = unused,
    .word = "embeddings.word_embeddings",
    .position = "embeddings.position_embeddings",
    .token_type = "embeddings.token_type_embeddings",
    .embedding_norm = "embeddings.LayerNorm",
    .layer = "encoder.layer.",
    .query = "attention.self.query",
    .key = "attention.self.key",
    .value = "attention.self.value",
    .attention_output = "attention.output.dense",
    .attention_norm = "attention.output.LayerNorm",
    .intermediate = "intermediate.dense",
    .output = "output.dense",
    .output_norm = "output.LayerNorm",
    .head_dense = "pooler.dense",
    .head_out = "classifier",
    .head_activation = MODULE_TANH,
    .pair_types = true,
};
