/* MPNet (all-mpnet-base): BERT's layers, with a bias on attention's scores by distance, which all layers share.
 * Positions begin at 2, whatever pad_token_id says, and there are no token types. Source: MPNetConfig and MPNetModel of
 * transformers 3.x, 4.x and 5.23. */
#include "model/family.h"

static const char *const harmless[] = {"attention_probs_dropout_prob", "hidden_dropout_prob", NULL};

static const char *const unused[] = {"pooler.", "lm_head.", "classifier.", "qa_outputs.", "embeddings.position_ids",
                                     NULL};

const struct family family_mpnet = {
    .model_type = "mpnet",
    .class = "MPNet",
    .harmless = harmless,
    .fields = {USUAL_SIZES, [CONFIG_ACTIVATION] = {"hidden_act"}, [CONFIG_EPS] = {"layer_norm_eps"},
               [CONFIG_BUCKETS] = {"relative_attention_num_buckets"}},
    .position_offset = 2,
    .prefix = "mpnet.",
    .unused = unused,
    .word = "embeddings.word_embeddings",
    .position = "embeddings.position_embeddings",
    .embedding_norm = "embeddings.LayerNorm",
    .relative_bias = "encoder.relative_attention_bias",
    .layer = "encoder.layer.",
    .query = "attention.attn.q",
    .key = "attention.attn.k",
    .value = "attention.attn.v",
    .attention_output = "attention.attn.o",
    .attention_norm = "attention.LayerNorm",
    .intermediate = "intermediate.dense",
    .output = "output.dense",
    .output_norm = "output.LayerNorm",
    .head_dense = "classifier.dense",
    .head_out = "classifier.out_proj",
    .head_activation = MODULE_TANH,
};
