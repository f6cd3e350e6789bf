/* GTE (gte-base-en-v1.5, gte-multilingual, arctic-embed-m-v2): BERT's order with rotary positions and a gated GELU.
 * Alibaba's files call it `new`, with an auto_map of code, which is not needed here; transformers 5 calls it `gte`.
 * Tensors have the same names in both; queries, keys and values are one tensor or three. Source: configuration and
 * tensors of gte-base-en-v1.5; bloc97's NTK scaling with its fixed divisor as vLLM documents it
 * (kexue.fm/archives/9706); GteConfig, GteModel and GteForSequenceClassification of transformers 5.23. */
#include <math.h>
#include <stdio.h>

#include "base/json_tree.h"
#include "model/family.h"

static const char *const harmless[] = {
    "attention_probs_dropout_prob",   "auto_map", "hidden_dropout_prob", "unpad_inputs",
    "use_memory_efficient_attention", NULL};

static const char *const empty[] = {"logn_attention_clip1", "logn_attention_scale", NULL};

static const char *const unused[] = {
    "pooler.", "lm_head.", "classifier.", "embeddings.position_ids", "embeddings.token_type_ids", NULL};

static const char *const own[] = {"layer_norm_type", "pack_qkv",        "position_embedding_type",
                                  "rope_scaling",    "type_vocab_size", NULL};

/* {"factor": k, "type": "ntk"}: a base k times as large, and all frequencies divided by k^(2 / head_dim). */
static enum status read_scaling(const cJSON *scaling, const char *name, const struct model *model,
                                struct rotary *rotary, struct err *err)
{
    static const char *const known[] = {"factor", "type", NULL}, *const unset[] = {"mixed_b", NULL};
    double factor = 1;
    if (!scaling) { return STATUS_OK; }
    TRY(json_only(scaling, name, known, unset, err));
    TRY(json_must_be(scaling, name, "type", "ntk", err));
    TRY(json_double(scaling, name, "factor", &factor, err));
    if (!(factor >= 1 && factor <= 1024)) {
        return err_set(err, STATUS_BAD_INPUT, "%s: factor must be between 1 and 1,024", name);
    }
    rotary->base *= factor;
    rotary->divisor = pow(factor, 2.0 * model->heads / model->hidden);
    return STATUS_OK;
}

static enum status read_gte(const cJSON *root, const char *name, struct model *model, struct err *err)
{
    bool packed = true;
    char object[128];
    TRY(json_must_be(root, name, "position_embedding_type", "rope", err));
    TRY(json_must_be(root, name, "layer_norm_type", "layer_norm", err));
    TRY(json_u32(root, name, "type_vocab_size", 0, 1u << 10, &model->token_types, err));
    TRY(json_bool(root, name, "pack_qkv", &packed, err));
    model->split_qkv = !packed;
    snprintf(object, sizeof object, "%s: rope_scaling", name);
    return read_scaling(json_field(root, "rope_scaling"), object, model, &model->rotary[0], err);
}

#define FAMILY(name, type, classes, base)                                                                              \
    const struct family family_##name = {                                                                              \
        .model_type = (type),                                                                                          \
        .class = (classes),                                                                                            \
        .harmless = harmless,                                                                                          \
        .fields = {USUAL_SIZES, [CONFIG_ACTIVATION] = {"hidden_act"}, [CONFIG_EPS] = {"layer_norm_eps"},               \
                   ROTARY_BASE("rope_theta")},                                                                         \
        .rotary = {(base)},                                                                                            \
        .read = read_gte,                                                                                              \
        .own = own,                                                                                                    \
        .empty = empty,                                                                                                \
        .gated = true,                                                                                                 \
        .prefix = type ".",                                                                                            \
        .unused = unused,                                                                                              \
        .word = "embeddings.word_embeddings",                                                                          \
        .token_type = "embeddings.token_type_embeddings",                                                              \
        .embedding_norm = "embeddings.LayerNorm",                                                                      \
        .layer = "encoder.layer.",                                                                                     \
        .qkv = "attention.qkv_proj",                                                                                   \
        .query = "attention.q_proj",                                                                                   \
        .key = "attention.k_proj",                                                                                     \
        .value = "attention.v_proj",                                                                                   \
        .attention_output = "attention.o_proj",                                                                        \
        .attention_norm = "attn_ln",                                                                                   \
        .up_intermediate = "mlp.up_gate_proj",                                                                         \
        .output = "mlp.down_proj",                                                                                     \
        .output_norm = "mlp_ln",                                                                                       \
        .bare = BARE_INTERMEDIATE,                                                                                     \
        .head_dense = "pooler.dense",                                                                                  \
        .head_out = "classifier",                                                                                      \
        .head_activation = MODULE_TANH,                                                                                \
        .pair_types = true,                                                                                            \
    }

FAMILY(new, "new", "New", 10000);
FAMILY(gte, "gte", "Gte", 160000);
