/* Gemma 3's text model: as an encoder (EmbeddingGemma), and as a language model. RMS norms before both parts of a layer
 * and over the output of each, also over each query and key, all with gains that the files hold less 1; one head of
 * keys for several of queries, whose width is a field of its own; scores scaled by a field; word embeddings times the
 * root of the hidden size; gated GELU, no biases. Most layers attend to a window, with a rotary base of their own.
 * Fields are read as transformers 4.56 to 4.57 and 5 write them. Source: Gemma3TextConfig and Gemma3TextModel of
 * transformers 5.23, in f32 (in bf16 it rounds the words' factor, too); EmbeddingGemma's card, on f16. */
#include <math.h>

#include "base/json_tree.h"
#include "model/family.h"

static const char *const harmless[] = {"_sliding_window_pattern", "attention_dropout", "cache_implementation", NULL};

static const char *const empty[] = {"attention_bias", "attn_logit_softcapping", NULL};

static const char *const unused[] = {"lm_head.", NULL};

static const char *const own[] = {"layer_types",
                                  "final_logit_softcapping",
                                  "query_pre_attn_scalar",
                                  "sliding_window",
                                  "sliding_window_pattern",
                                  "use_bidirectional_attention",
                                  NULL};

/* sliding_window is the window in both directions; of a language model it counts the token itself. */
static enum status read_gemma3(const cJSON *root, const char *name, struct model *model, struct err *err)
{
    uint32_t window = 4096, every = 6;
    double width = 256;
    bool both = false;
    TRY(json_bool(root, name, "use_bidirectional_attention", &both, err));
    if (both == model->generates) {
        return err_set(err, STATUS_UNSUPPORTED, "%s: %s use_bidirectional_attention this is not supported", name,
                       both ? "to generate text with" : "without");
    }
    if (model->generates && !json_is_empty(json_field(root, "final_logit_softcapping"))) {
        return err_set(err, STATUS_UNSUPPORTED, "%s: final_logit_softcapping is set, which is not supported", name);
    }
    TRY(json_double(root, name, "query_pre_attn_scalar", &width, err));
    if (!(width > 0 && width < 1e6)) {
        return err_set(err, STATUS_BAD_INPUT, "%s: query_pre_attn_scalar must be positive", name);
    }
    TRY(json_u32(root, name, "sliding_window_pattern", 1, 1u << 10, &every, err));
    for (uint32_t i = 0; i < model->layer_count; i++) { model->layers[i].local = (i + 1) % every != 0; }
    TRY(json_u32(root, name, "sliding_window", 2, 1u << 20, &window, err));
    model->causal = !both;
    model->window = both ? window / 2 : window - 1;
    model->gain_less_one = model->beyond_f16 = true;
    model->score_width = (float)width;
    model->word_scale = sqrtf((float)model->hidden);
    return family_read_layer_types(root, name, "sliding_window_pattern", model, err);
}

const struct family family_gemma3 = {
    .model_type = "gemma3_text",
    .class = "Gemma3",
    .harmless = harmless,
    DECODER_LAYERS,
    DECODER_HEAD_NORMS,
    .bare = ALL_BARE,
    .tied_head = true,
    .fields = {USUAL_SIZES, [CONFIG_KEY_HEADS] = {"num_key_value_heads"}, [CONFIG_HEAD_DIM] = {"head_dim"},
               [CONFIG_ACTIVATION] = {"hidden_activation"}, [CONFIG_EPS] = {"rms_norm_eps"},
               ROTARY_BASES("rope_theta", "rope_local_base_freq")},
    .eps = 1e-6,
    .rotary = {1000000, 10000},
    .scaled_rotary = true,
    .read = read_gemma3,
    .own = own,
    .empty = empty,
    .unused = unused,
    .attention_added_norm = "post_attention_layernorm",
    .attention_norm = "pre_feedforward_layernorm",
    .output_added_norm = "post_feedforward_layernorm",
};
