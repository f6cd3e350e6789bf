/* Qwen3 (Qwen3-Embedding, and rerankers with a head of their own): a decoder. Norms before each part of a layer, not
 * after it, and over each query and key, all of them RMS norms; fewer heads of keys than of queries, whose width is a
 * field of its own; rotary positions, SwiGLU, no biases, and no token sees later ones. Saved as Qwen3Model or, with the
 * prefix `model.` and perhaps an lm_head, as Qwen3ForCausalLM. Fields are read as transformers 4.51 to 4.57 and 5 write
 * them. Source: Qwen3Config, Qwen3Model and GenericForSequenceClassification of transformers 5.23. */
#include "base/json_tree.h"
#include "model/family.h"

static const char *const harmless[] = {"attention_dropout", "max_window_layers", "sliding_window", NULL};

static const char *const empty[] = {"attention_bias", "rope_scaling", "use_sliding_window", NULL};

static const char *const unused[] = {"lm_head.", "score.", NULL};

static const char *const own[] = {"layer_types", NULL};

/* sliding_window counts only with use_sliding_window, which is refused. */
static enum status read_qwen3(const cJSON *root, const char *name, struct model *model, struct err *err)
{
    return family_read_layer_types(root, name, NULL, model, err);
}

/* The logits come from the last token that is not padding, whatever the side of the padding. */
static enum status read_head(const cJSON *root, const char *name, struct model *model, struct err *err)
{
    model->pooling = POOLING_LAST;
    model->modules[0].biased = false;
    model->head.padding = UINT32_MAX;
    return json_u32(root, name, "pad_token_id", 0, UINT32_MAX, &model->head.padding, err);
}

const struct family family_qwen3 = {
    .model_type = "qwen3",
    .class = "Qwen3",
    .harmless = harmless,
    DECODER_LAYERS,
    DECODER_HEAD_NORMS,
    .bare = ALL_BARE,
    .fields = {DECODER_FIELDS},
    .eps = 1e-6,
    .rotary = {10000},
    .read = read_qwen3,
    .own = own,
    .empty = empty,
    .causal = true,
    .unused = unused,
    .attention_norm = "post_attention_layernorm",
    .head_out = "score",
    .read_head = read_head,
};
