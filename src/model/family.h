/* The families of models: how each spells config.json and its tensors. A family is a file (family_bert.c) and a row of
 * families.inc. Their common fields (training, generation, labels) are in family.c. */
#ifndef MODEL_FAMILY_H
#define MODEL_FAMILY_H

#include <cjson/cJSON.h>

#include "base/err.h"
#include "model/model.h"

/* The fields that are read from config.json. */
enum config_field {
    CONFIG_VOCABULARY,
    CONFIG_HIDDEN,
    CONFIG_LAYERS,
    CONFIG_HEADS,
    CONFIG_KEY_HEADS,
    CONFIG_HEAD_DIM,
    CONFIG_INTERMEDIATE,
    CONFIG_POSITIONS,
    CONFIG_TOKEN_TYPES,
    CONFIG_ACTIVATION,
    CONFIG_EPS,
    CONFIG_PADDING, /* the positions of tokens begin after this one */
    CONFIG_BUCKETS, /* the number of buckets of relative_bias */
    CONFIG_ROTARY,  /* the base of rotary positions */
    CONFIG_ROTARY_LOCAL,
    CONFIG_FIELDS
};

enum { CONFIG_SPELLINGS = 2 };

/* The names of the sizes in nearly all families. */
#define USUAL_SIZES                                                                                                    \
    [CONFIG_VOCABULARY] = {"vocab_size"}, [CONFIG_HIDDEN] = {"hidden_size"}, [CONFIG_LAYERS] = {"num_hidden_layers"},  \
    [CONFIG_HEADS] = {"num_attention_heads"}, [CONFIG_INTERMEDIATE] = {"intermediate_size"},                           \
    [CONFIG_POSITIONS] = {"max_position_embeddings"}

/* Bases of rotary positions: as transformers 5 writes them, and as earlier files of the family do. */
#define ROTARY_BASE(older) [CONFIG_ROTARY] = {"rope_parameters.rope_theta", (older)}
#define ROTARY_BASES(older, older_local)                                                                               \
    [CONFIG_ROTARY] = {"rope_parameters.full_attention.rope_theta", (older)},                                          \
    [CONFIG_ROTARY_LOCAL] = {"rope_parameters.sliding_attention.rope_theta", (older_local)}

/* The places where a family has no biases. */
enum bare {
    BARE_NORM = 1,
    BARE_QKV = 2,
    BARE_INTERMEDIATE = 4,
    BARE_OUTPUT = 8,
    BARE_ATTENTION_OUTPUT = 16,
    BARE_ATTENTION = BARE_QKV | BARE_ATTENTION_OUTPUT,
};

struct family {
    const char *model_type;      /* in config.json */
    const char *class;           /* the beginning of every name in `architectures` */
    const char *const *harmless; /* fields of config.json that change no vector; ends with NULL */

    /* The fields that are read, in all their spellings; a dot leads into an object. A file may have several, which must
     * agree, except for the positions: of these the first counts, because it only limits a text. NULL if the family has
     * no such field (no token types, the eps and the position_offset below), or if `read` sets the value. */
    const char *fields[CONFIG_FIELDS][CONFIG_SPELLINGS];
    unsigned optional;  /* 1 << CONFIG_...: a size that may be absent, and is then 0 */
    double eps;         /* of norms, if the file has none; 0: 1e-12 */
    double rotary[2];   /* bases of rotary positions, if the file has none */
    bool scaled_rotary; /* they may be scaled: rope_scaling, of transformers 4, is read, too */

    /* Reads the fields that only this family has, which `own` lists; NULL: there are none. The sizes that `fields`
     * names are set already, and the layers are allocated and zeroed. Errors: as family_read_config. */
    enum status (*read)(const cJSON *root, const char *name, struct model *model, struct err *err);
    const char *const *own;   /* ends with NULL */
    const char *const *empty; /* fields that must be null, false or empty; ends with NULL, or is NULL */
    bool pre_norm, first_norm, rms_norm, causal, gated; /* as in struct model */

    uint32_t position_offset; /* position of the first token, if pad_token_id is not read or is absent */

    /* The names of tensors, without ".weight" and ".bias". */
    const char *prefix;        /* a prefix that exporters may put before all of them */
    const char *const *unused; /* the beginnings of the names of heads and buffers; ends with NULL */
    const char *word, *position, *token_type;
    const char *embedding_norm; /* NULL: with first_norm it is the first layer's output_norm */
    const char *relative_bias;  /* of attention, shared by all layers; NULL: none */
    const char *layer;          /* before a layer's number; the names below follow it */
    const char *query, *key, *value, *attention_output, *attention_norm, *intermediate, *output, *output_norm;
    const char *query_norm, *key_norm;                    /* of each head; NULL: none */
    const char *attention_added_norm, *output_added_norm; /* NULL: none */
    const char *qkv;                               /* query, key and value as one, unless model->split_qkv; or NULL */
    const char *up;                                /* next to `intermediate` in a gated model; or both as one tensor: */
    const char *intermediate_up, *up_intermediate; /* in that order */
    const char *final_norm;                        /* with pre_norm; output_norm is then the next layer's */
    unsigned bare;                                 /* enum bare: these have no biases */
    const char *lm_head;                           /* of CLASSForCausalLM; NULL: none is known */
    bool tied_head;                                /* tie_word_embeddings, if the file has none */

    /* The head of CLASSForSequenceClassification, over the first token unless read_head says otherwise. NULL: no dense
     * layer, no norm; `out` NULL: no head is known. */
    const char *head_dense, *head_norm, *head_out;
    enum module_activation head_activation; /* after head_dense */
    bool pair_types;                        /* the second text of a pair may have token type 1 */

    /* Reads the fields on a head that only this family has in config.json; the head's layers are set already. NULL:
     * there are none.
     * Errors: as head_read_config. */
    enum status (*read_head)(const cJSON *root, const char *name, struct model *model, struct err *err);
};

/* The common properties of families that come from decoders: RMS norms before each part of a layer, a gate, and the
 * names of their tensors. */
#define DECODER_LAYERS                                                                                                 \
    .pre_norm = true, .first_norm = true, .rms_norm = true, .gated = true, .prefix = "model.", .word = "embed_tokens", \
    .layer = "layers.", .query = "self_attn.q_proj", .key = "self_attn.k_proj", .value = "self_attn.v_proj",           \
    .attention_output = "self_attn.o_proj", .intermediate = "mlp.gate_proj", .up = "mlp.up_proj",                      \
    .output = "mlp.down_proj", .output_norm = "input_layernorm", .final_norm = "norm", .lm_head = "lm_head"
#define DECODER_HEAD_NORMS .query_norm = "self_attn.q_norm", .key_norm = "self_attn.k_norm"
#define ALL_BARE (BARE_NORM | BARE_ATTENTION | BARE_INTERMEDIATE | BARE_OUTPUT)

/* The fields of config.json that most of them have. */
#define DECODER_FIELDS                                                                                                 \
    USUAL_SIZES, [CONFIG_KEY_HEADS] = {"num_key_value_heads"}, [CONFIG_HEAD_DIM] = {"head_dim"},                       \
                 [CONFIG_ACTIVATION] = {"hidden_act"}, [CONFIG_EPS] = {"rms_norm_eps"}, ROTARY_BASE("rope_theta")

/* Reads DIRECTORY/config.json: fills `model->family` and the sizes. `name` is the file's name in messages.
 * Errors: STATUS_NOT_FOUND, STATUS_BAD_INPUT, STATUS_UNSUPPORTED (another family, or a field that changes the maths and
 * is not known here), STATUS_NO_MEMORY; the message names file and field. Thread: one at a time (cJSON). */
MUST_CHECK enum status family_read_config(const char *directory, const char *name, struct model *model,
                                          struct err *err);

/* True if DIRECTORY/config.json names a language model's class, supported or not. Thread: one at a time (cJSON). */
bool family_names_language_model(const char *directory);

/* For `read`: marks layers as local by layer_types, if the file has it. `pattern` is the older field, by which they
 * have been marked already; layer_types must then agree. NULL: no layer may be local. Errors: STATUS_BAD_INPUT,
 * STATUS_UNSUPPORTED. */
MUST_CHECK enum status family_read_layer_types(const cJSON *root, const char *name, const char *pattern,
                                               struct model *model, struct err *err);

#define FAMILY(name) extern const struct family family_##name;
#include "model/families.inc"
#undef FAMILY

#endif
