/* Llama (also SmolLM2, TinyLlama, Yi), Mistral and Qwen2: decoders with RMS norms before each part of a layer, rotary
 * positions and SwiGLU. Qwen2 has biases in its queries, keys and values, the others have none; a Mistral may attend to
 * a window. Fields are read as transformers 4 and 5 write them.
 * Source: LlamaConfig, MistralConfig, Qwen2Config and their models, of transformers 5.23. */
#include "base/json_tree.h"
#include "model/family.h"

static const char *const harmless[] = {"attention_dropout", "is_llama_config", "pretraining_tp", NULL};

static const char *const empty[] = {"attention_bias", "mlp_bias", "rope_interleaved", "use_sliding_window", NULL};

static const char *const unused[] = {"lm_head.", NULL};

static const char *const own[] = {"layer_types", NULL}, *const own_mistral[] = {"layer_types", "sliding_window", NULL};

/* In Qwen2 sliding_window counts only with use_sliding_window, which is refused. */
static const char *const harmless_qwen2[] = {"attention_dropout", "max_window_layers", "sliding_window", NULL};

static enum status read_layers(const cJSON *root, const char *name, struct model *model, struct err *err)
{
    return family_read_layer_types(root, name, NULL, model, err);
}

/* sliding_window counts the token itself, and applies to all layers. */
static enum status read_mistral(const cJSON *root, const char *name, struct model *model, struct err *err)
{
    uint32_t window = 0;
    TRY(json_u32(root, name, "sliding_window", 1, 1u << 20, &window, err));
    if (window == 0) { return read_layers(root, name, model, err); }
    if (!model->generates) {
        return err_set(err, STATUS_UNSUPPORTED, "%s: sliding_window is supported only where text is generated", name);
    }
    model->window = window - 1;
    model->rotary[1] = model->rotary[0];
    for (uint32_t i = 0; i < model->layer_count; i++) { model->layers[i].local = true; }
    return family_read_layer_types(root, name, "sliding_window", model, err);
}

#define LLAMA                                                                                                          \
    DECODER_LAYERS, .fields = {DECODER_FIELDS}, .optional = 1u << CONFIG_KEY_HEADS | 1u << CONFIG_HEAD_DIM,            \
                    .eps = 1e-6, .rotary = {10000}, .scaled_rotary = true, .empty = empty, .causal = true,             \
                    .unused = unused, .attention_norm = "post_attention_layernorm"

const struct family family_llama = {
    .model_type = "llama",
    .class = "Llama",
    .harmless = harmless,
    LLAMA,
    .bare = ALL_BARE,
    .read = read_layers,
    .own = own,
};

const struct family family_mistral = {
    .model_type = "mistral",
    .class = "Mistral",
    .harmless = harmless,
    LLAMA,
    .bare = ALL_BARE,
    .read = read_mistral,
    .own = own_mistral,
};

const struct family family_qwen2 = {
    .model_type = "qwen2",
    .class = "Qwen2",
    .harmless = harmless_qwen2,
    LLAMA,
    .bare = BARE_NORM | BARE_ATTENTION_OUTPUT | BARE_INTERMEDIATE | BARE_OUTPUT,
    .read = read_layers,
    .own = own,
};
