/* DistilBERT: BERT's layers under other names (transformers takes some of BERT's, too), without token types and without
 * a pooler.
 * Source: DistilBertConfig and DistilBertModel of transformers 2.x to 5.23. */
#include "model/family.h"

/* sinusoidal_pos_embds says how the positions were initialised; their values are in the file. */
static const char *const harmless[] = {
    "sinusoidal_pos_embds", "dropout", "attention_dropout", "qa_dropout", "seq_classif_dropout", "tie_weights_", NULL};

static const char *const unused[] = {
    "vocab_transform.", "vocab_layer_norm.", "vocab_projector.",        "pre_classifier.",
    "classifier.",      "qa_outputs.",       "embeddings.position_ids", NULL};

const struct family family_distilbert = {
    .model_type = "distilbert",
    .class = "DistilBert",
    .harmless = harmless,
    .fields = {[CONFIG_VOCABULARY] = {"vocab_size"},
               [CONFIG_HIDDEN] = {"dim", "hidden_size"},
               [CONFIG_LAYERS] = {"n_layers", "num_hidden_layers"},
               [CONFIG_HEADS] = {"n_heads", "num_attention_heads"},
               [CONFIG_INTERMEDIATE] = {"hidden_dim"},
               [CONFIG_POSITIONS] = {"max_position_embeddings"},
               [CONFIG_ACTIVATION] = {"activation"}},
    .prefix = "distilbert.",
    .unused = unused,
    .word = "embeddings.word_embeddings",
    .position = "embeddings.position_embeddings",
    .embedding_norm = "embeddings.LayerNorm",
    .layer = "transformer.layer.",
    .query = "attention.q_lin",
    .key = "attention.k_lin",
    .value = "attention.v_lin",
    .attention_output = "attention.out_lin",
    .attention_norm = "sa_layer_norm",
    .intermediate = "ffn.lin1",
    .output = "ffn.lin2",
    .output_norm = "output_layer_norm",
    .head_dense = "pre_classifier",
    .head_out = "classifier",
    .head_activation = MODULE_RELU,
};
