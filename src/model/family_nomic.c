/* Nomic-BERT (nomic-embed-text v1 and v1.5): BERT's order with rotary positions and SwiGLU, and biases only in the
 * norms. Its files have GPT-2's names of fields and an auto_map of code, which is not needed here, or transformers 5's
 * names, or both; tensors have the same names in all. The number of positions is only a limit, and transformers does
 * not read n_positions, which may be larger. The mixture of experts (v2) is another family. Source: configuration and
 * tensors of nomic-bert-2048; NomicBertConfig and NomicBertModel of transformers 5.23. */
#include "base/json_tree.h"
#include "model/family.h"

static const char *const harmless[] = {"attention_probs_dropout_prob",
                                       "attn_pdrop",
                                       "auto_map",
                                       "dense_seq_output",
                                       "embd_pdrop",
                                       "fused_bias_fc",
                                       "fused_dropout_add_ln",
                                       "hidden_dropout_prob",
                                       "max_trained_positions",
                                       "pad_vocab_size_multiple",
                                       "reorder_and_upcast_attn",
                                       "resid_pdrop",
                                       "summary_activation",
                                       "summary_first_dropout",
                                       "summary_proj_to_labels",
                                       "summary_type",
                                       "summary_use_proj",
                                       "use_flash_attn",
                                       "use_xentropy",
                                       NULL};

static const char *const empty[] = {"causal",
                                    "mlp_fc1_bias",
                                    "mlp_fc2_bias",
                                    "parallel_block",
                                    "parallel_block_tied_norm",
                                    "prenorm",
                                    "qkv_proj_bias",
                                    "rotary_emb_interleaved",
                                    "rotary_emb_scale_base",
                                    "rotary_scaling_factor",
                                    "scale_attn_by_inverse_layer_idx",
                                    "use_rms_norm",
                                    NULL};

static const char *const unused[] = {
    "pooler.", "cls.", "classifier.", "embeddings.position_ids", "embeddings.token_type_ids", NULL};

static const char *const own[] = {"head_dim", "rotary_emb_fraction", "scale_attn_weights", NULL};

static enum status read_nomic(const cJSON *root, const char *name, struct model *model, struct err *err)
{
    double fraction = 1;
    bool scaled = true;
    uint32_t head_dim = model->hidden / model->heads;
    if (json_field(root, "n_embd") && !json_field(root, "layer_norm_eps") && !json_field(root, "layer_norm_epsilon")) {
        return err_set(err, STATUS_BAD_INPUT,
                       "%s: layer_norm_epsilon is missing, and what it is then depends on the program", name);
    }
    TRY(json_u32(root, name, "head_dim", head_dim, head_dim, &head_dim, err));
    TRY(json_bool(root, name, "scale_attn_weights", &scaled, err));
    TRY(json_double(root, name, "rotary_emb_fraction", &fraction, err));
    return scaled && fraction == 1
               ? STATUS_OK
               : err_set(err, STATUS_UNSUPPORTED, "%s: %s is not supported", name,
                         scaled ? "a rotary_emb_fraction other than 1" : "scale_attn_weights false");
}

const struct family family_nomic = {
    .model_type = "nomic_bert",
    .class = "NomicBert",
    .harmless = harmless,
    .fields = {[CONFIG_VOCABULARY] = {"vocab_size"},
               [CONFIG_HIDDEN] = {"hidden_size", "n_embd"},
               [CONFIG_LAYERS] = {"num_hidden_layers", "n_layer"},
               [CONFIG_HEADS] = {"num_attention_heads", "n_head"},
               [CONFIG_INTERMEDIATE] = {"intermediate_size", "n_inner"},
               [CONFIG_POSITIONS] = {"max_position_embeddings", "n_positions"},
               [CONFIG_TOKEN_TYPES] = {"type_vocab_size"},
               [CONFIG_ACTIVATION] = {"hidden_act", "activation_function"},
               [CONFIG_EPS] = {"layer_norm_eps", "layer_norm_epsilon"},
               ROTARY_BASE("rotary_emb_base")},
    .rotary = {1000},
    .read = read_nomic,
    .own = own,
    .empty = empty,
    .gated = true,
    .prefix = "bert.",
    .unused = unused,
    .word = "embeddings.word_embeddings",
    .token_type = "embeddings.token_type_embeddings",
    .embedding_norm = "emb_ln",
    .layer = "encoder.layers.",
    .qkv = "attn.Wqkv",
    .attention_output = "attn.out_proj",
    .attention_norm = "norm1",
    .intermediate = "mlp.fc12",
    .up = "mlp.fc11",
    .output = "mlp.fc2",
    .output_norm = "norm2",
    .bare = BARE_ATTENTION | BARE_INTERMEDIATE | BARE_OUTPUT,
};
