/* RoBERTa, XLM-RoBERTa (multilingual e5, bge-m3) and CamemBERT: BERT with its names, but the positions of tokens begin
 * after that of the padding token.
 * Source: RobertaConfig, XLMRobertaConfig, CamembertConfig and RobertaModel of transformers 2.x, 3.x, 4.x and 5.23. */
#include "model/family.h"

static const char *const harmless[] = {"attention_probs_dropout_prob", "hidden_dropout_prob", NULL};

static const char *const unused[] = {
    "pooler.", "lm_head.", "classifier.", "qa_outputs.", "embeddings.position_ids", "embeddings.token_type_ids", NULL};

#define FAMILY(name, type, classes)                                                                                    \
    const struct family family_##name = {                                                                              \
        .model_type = (type),                                                                                          \
        .class = (classes),                                                                                            \
        .harmless = harmless,                                                                                          \
        .fields = {USUAL_SIZES, [CONFIG_TOKEN_TYPES] = {"type_vocab_size"}, [CONFIG_ACTIVATION] = {"hidden_act"},      \
                   [CONFIG_EPS] = {"layer_norm_eps"}, [CONFIG_PADDING] = {"pad_token_id"}},                            \
        .position_offset = 2,                                                                                          \
        .prefix = "roberta.",                                                                                          \
        .unused = unused,                                                                                              \
        .word = "embeddings.word_embeddings",                                                                          \
        .position = "embeddings.position_embeddings",                                                                  \
        .token_type = "embeddings.token_type_embeddings",                                                              \
        .embedding_norm = "embeddings.LayerNorm",                                                                      \
        .layer = "encoder.layer.",                                                                                     \
        .query = "attention.self.query",                                                                               \
        .key = "attention.self.key",                                                                                   \
        .value = "attention.self.value",                                                                               \
        .attention_output = "attention.output.dense",                                                                  \
        .attention_norm = "attention.output.LayerNorm",                                                                \
        .intermediate = "intermediate.dense",                                                                          \
        .output = "output.dense",                                                                                      \
        .output_norm = "output.LayerNorm",                                                                             \
        .head_dense = "classifier.dense",                                                                              \
        .head_out = "classifier.out_proj",                                                                             \
        .head_activation = MODULE_TANH,                                                                                \
    }

FAMILY(roberta, "roberta", "Roberta");
FAMILY(xlm_roberta, "xlm-roberta", "XLMRoberta");
FAMILY(camembert, "camembert", "Camembert");
