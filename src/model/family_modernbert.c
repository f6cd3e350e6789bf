/* ModernBERT (gte-modernbert, modernbert-embed, granite-embedding r2): norms before each part of a layer, not after it,
 * rotary positions, gated GELU, no biases; most layers attend to a window. The input of layer 0 is the output of the
 * embedding's norm, so it has no norm of its own before attention. Fields are read as transformers 4.48 to 4.57 and 5
 * write them, which mark local layers differently. Source: ModernBertConfig and ModernBertModel of transformers 4.48,
 * 4.57 and 5.23. */
#include <string.h>

#include "base/json_tree.h"
#include "model/family.h"

static const char *const harmless[] = {"attention_dropout",
                                       "classifier_bias",
                                       "classifier_pooling",
                                       "decoder_bias",
                                       "deterministic_flash_attn",
                                       "embedding_dropout",
                                       "initializer_cutoff_factor",
                                       "layer_norm_eps",
                                       "mlp_dropout",
                                       "reference_compile",
                                       "repad_logits_with_grad",
                                       "sparse_pred_ignore_index",
                                       "sparse_prediction",
                                       NULL};

static const char *const empty[] = {"attention_bias", "mlp_bias", "norm_bias", "rope_scaling", NULL};

static const char *const unused[] = {"head.", "decoder.", "classifier.", NULL};

static const char *const own[] = {"global_attn_every_n_layers", "layer_types", "local_attention", NULL};

/* Every n-th layer from the first on attends to all tokens; local_attention is the window of the others in both
 * directions. */
static enum status read_modernbert(const cJSON *root, const char *name, struct model *model, struct err *err)
{
    uint32_t window = 128, every = 3;
    TRY(json_u32(root, name, "global_attn_every_n_layers", 1, 1u << 10, &every, err));
    for (uint32_t i = 0; i < model->layer_count; i++) { model->layers[i].local = i % every != 0; }
    TRY(json_u32(root, name, "local_attention", 2, 1u << 20, &window, err));
    model->window = window / 2;
    return family_read_layer_types(root, name, "global_attn_every_n_layers", model, err);
}

/* Reads the head's pooling, and whether its dense layer has a bias. */
static enum status read_head(const cJSON *root, const char *name, struct model *model, struct err *err)
{
    const char *pooling = "cls";
    TRY(json_string(root, name, "classifier_pooling", &pooling, err));
    TRY(json_must_be(root, name, "classifier_activation", "gelu", err));
    if (strcmp(pooling, "mean") == 0) {
        model->pooling = POOLING_MEAN;
    } else if (strcmp(pooling, "cls") != 0) {
        return err_set(err, STATUS_UNSUPPORTED, "%s: classifier_pooling \"%.60s\" is not supported; cls and mean are",
                       name, pooling);
    }
    model->modules[0].biased = false;
    return json_bool(root, name, "classifier_bias", &model->modules[0].biased, err);
}

const struct family family_modernbert = {
    .model_type = "modernbert",
    .class = "ModernBert",
    .harmless = harmless,
    .fields = {USUAL_SIZES, [CONFIG_ACTIVATION] = {"hidden_activation"}, [CONFIG_EPS] = {"norm_eps"},
               ROTARY_BASES("global_rope_theta", "local_rope_theta")},
    .eps = 1e-5,
    .rotary = {160000, 10000},
    .read = read_modernbert,
    .own = own,
    .empty = empty,
    .pre_norm = true,
    .gated = true,
    .prefix = "model.",
    .unused = unused,
    .word = "embeddings.tok_embeddings",
    .embedding_norm = "embeddings.norm",
    .layer = "layers.",
    .qkv = "attn.Wqkv",
    .attention_output = "attn.Wo",
    .attention_norm = "mlp_norm",
    .intermediate_up = "mlp.Wi",
    .output = "mlp.Wo",
    .output_norm = "attn_norm",
    .final_norm = "final_norm",
    .bare = BARE_NORM | BARE_ATTENTION | BARE_INTERMEDIATE | BARE_OUTPUT,
    .head_dense = "head.dense",
    .head_norm = "head.norm",
    .head_out = "classifier",
    .head_activation = MODULE_GELU,
    .read_head = read_head,
};
