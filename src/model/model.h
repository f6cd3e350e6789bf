/* A model directory, opened: the properties that the maths depends on, the weights as the files store them, and the
 * tokenizer. Read-only after model_open, so that every thread may use it. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"
#include "model/pooling.h"
#include "tokenizer/tokenizer.h"

/* The number of ranges of distance between a key and a query that each share an attention bias. */
enum { RELATIVE_BUCKETS = 32 };

/* The largest number of positions that a model may have. */
#define MODEL_POSITIONS_MAX (1u << 20)

/* The most tokens that may end a text. */
enum { END_IDS = 16 };

/* How weights are stored in the files. */
enum dtype { DTYPE_F32, DTYPE_F16, DTYPE_BF16 };

static inline size_t dtype_bytes(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? 4 : 2;
}

/* One weight. `data` points into the model's own memory, at any alignment; row-major. */
struct tensor {
    enum dtype dtype;
    uint32_t rank;
    uint64_t shape[2];
    const void *data;
    size_t elements;
};

/* The function between the two products of a layer's feed-forward part. */
enum activation { ACTIVATION_GELU_ERF, ACTIVATION_GELU_TANH, ACTIVATION_RELU, ACTIVATION_SILU };

/* The function that turns a head's logits into scores. */
enum scoring { SCORING_UNSET, SCORING_NONE, SCORING_SIGMOID, SCORING_SOFTMAX };

/* x * weight^T + bias. An empty bias means zeros: the family has none. */
struct linear {
    struct tensor weight; /* [out, in] */
    struct tensor bias;   /* [out] */
};

/* (x - mean) / sqrt(variance + eps) * gain + bias, over the hidden dimension; as an RMS norm (model->rms_norm)
 * x / sqrt(mean of x^2 + eps) * gain. */
struct layer_norm {
    struct tensor gain; /* [hidden] */
    struct tensor bias; /* [hidden], or empty */
};

/* One encoder layer, in the order of its computation: attention, norm, feed-forward, norm. */
struct model_layer {
    struct linear query;                    /* [heads * head_dim, hidden] */
    struct linear key, value;               /* [key_heads * head_dim, hidden] */
    struct linear attention_output;         /* [hidden, heads * head_dim] */
    struct layer_norm query_norm, key_norm; /* of each head before it is turned, RMS norms [head_dim]; or empty */
    struct layer_norm attention_norm;
    struct layer_norm attention_added_norm; /* with pre_norm: of the product before it is added; or empty. Such products
                                             * have no bias */
    struct linear intermediate;             /* [intermediate, hidden] */
    struct linear up;                       /* the same, in a gated model; else empty */
    struct linear output;                   /* [hidden, intermediate] */
    struct layer_norm output_norm, output_added_norm;
    bool local; /* attends to the tokens of a window, with the second of the model's rotary positions */
};

/* Rotary positions: in each head of queries and keys the numbers i and i + half are turned by the angle position *
 * base^(-i / half) / divisor. With `original` (Llama 3) the divisor depends on
 * how often the angle turns within `original` positions: it applies in full below low_turns, not at all above
 * high_turns, and to a share between them. */
struct rotary {
    double base; /* 0: none */
    double divisor;
    double original, low_turns, high_turns; /* original 0: all are divided */
};

/* The parts of sentence-transformers' chain. */
enum module_kind {
    MODULE_TRANSFORMER,
    MODULE_POOLING,
    MODULE_DENSE,
    MODULE_LAYER_NORM,
    MODULE_NORMALIZE,
    MODULE_KINDS
};

/* The function after a dense module. */
enum module_activation { MODULE_IDENTITY, MODULE_TANH, MODULE_RELU, MODULE_GELU, MODULE_ACTIVATIONS };

/* One step after pooling: a module of sentence-transformers from MODULE_DENSE on, or a layer of a classification head.
 */
struct model_module {
    enum module_kind kind;
    char name[112];           /* of its tensors, without ".weight" and ".bias": "2_Dense/linear", "pooler.dense" */
    uint32_t inputs, outputs; /* equal except in a dense module */
    enum module_activation activation;
    bool biased;
    struct tensor weight; /* dense [outputs, inputs], LayerNorm [outputs] */
    struct tensor bias;   /* [outputs]; empty where it has none */
    double eps;           /* of a LayerNorm */
};

/* The logits of a sequence-classification model. */
struct model_head {
    uint32_t labels;              /* logits of a text; 0: there is no head, the model makes embeddings */
    char **names;                 /* [labels], as id2label has them */
    enum scoring classify, score; /* of a text's labels; of a pair, where there is one label */
    bool pair_types;              /* the second text of a pair has token type 1; false: 0 */
    uint32_t padding;             /* of a causal model: the token that its head skips; UINT32_MAX: none */
    bool generates;               /* it is that of a language model, which writes texts */
};

/* Settings of a user that replace or override those of the model's files. Zero means: as the files say. */
struct model_options {
    enum pooling pooling;
    uint32_t max_tokens;
    const char *prompt; /* a prompt's name in config_sentence_transformers.json; "" for none, overriding a default */
    const char *prefix; /* this text before every text, for models whose files name no prompt for it (e5) */
    bool classifier;    /* opens the directory as a sequence-classification model, or refuses it if it is none */
    bool generate;      /* opens it as a language model that generates text, or refuses it if it is none */
};

/* A text to be put before others, under the name that the model's files give it ("query"). */
struct model_prompt {
    char *name, *text;
};

/* Everything known about a model; filled by model_open and not changed afterwards, except the weights' bytes. */
struct model {
    char *directory;
    char *name;        /* published as `model` in replies: the directory's last path component, as UTF-8 */
    char revision[17]; /* the first 16 hex digits of the weights' hash */
    char id[33];       /* hash over weights, configuration, tokenizer, pooling, normalisation, prompts: hex */

    /* Architecture. A layer's norms are those after its two sums. With pre_norm the sums stay as they are and the next
     * product reads their normalised copy; the last layer's output_norm is then the final one. */
    const struct family *family;                 /* the family (family.h); NULL for a model not read from a directory */
    uint32_t vocabulary, positions, token_types; /* no token types: 0 */
    uint32_t hidden, layer_count, heads, intermediate_size;
    uint32_t key_heads; /* heads of keys and values, each for heads / key_heads of queries; 0: as many as `heads` */
    uint32_t head_dim;  /* 0: hidden / heads */
    uint32_t position_offset; /* position of the first token: 0 for BERT, 2 for RoBERTa. If it is above 0, the token
                                 with the id position_offset - 1 is padding, even in a text: see next_position_row */
    float layer_norm_eps;
    float word_scale;  /* word embeddings are multiplied by it; 0: by 1 */
    float score_width; /* scores are divided by its root; 0: head_dim */
    enum activation activation;
    bool pre_norm;
    bool first_norm;         /* with pre_norm: the embedding's norm is the first layer's, and sums begin before it */
    bool rms_norm;           /* all norms are RMS norms */
    bool gain_less_one;      /* the files hold the gains of norms less 1 */
    bool causal;             /* a token attends to no later ones */
    bool beyond_f16;         /* its activations may leave the range of f16 */
    bool gated;              /* the feed-forward part is output(activation(intermediate(x)) * up(x)) */
    struct rotary rotary[2]; /* of layers that attend to all tokens, and of local ones */
    bool split_qkv;          /* queries, keys and values are separate in the files, in a family that may join them */
    uint32_t window; /* a token of a local layer attends to this many tokens before it and, unless the model is causal,
                        this many after it */

    /* Generating text. */
    bool causal_lm;           /* the files are a language model's, which may be opened to generate */
    bool generates;           /* it was opened so */
    bool tied_head;           /* the word embeddings are lm_head */
    struct tensor lm_head;    /* [vocabulary, hidden], of a model that generates; empty: tied_head */
    int32_t end_ids[END_IDS]; /* [end_id_count] tokens that end a text: eos_token_id */
    uint32_t end_id_count;
    struct chat *chat; /* the format of its chats; NULL: none, for the reason in chat_error */
    char *chat_error;

    /* Sentence vector. */
    enum pooling pooling;
    struct model_module *modules; /* [module_count], in order; the layers of the head, if there is one */
    uint32_t module_count;
    bool normalize;      /* after all modules */
    uint32_t dim;        /* floats that an engine returns for one text: its vector, or its logits */
    uint32_t max_tokens; /* per text, special tokens included; at most `positions` */
    char *prompt;        /* put before every text, unless a request asks for another; empty when there is none */
    bool pool_prompt;    /* prompt tokens count for pooling; if they do not, no prompt can be used */
    struct model_prompt *prompts; /* [prompt_count], all that the files name; no two have the same name */
    uint32_t prompt_count;

    /* Weights. */
    struct tensor word_embeddings;     /* [vocabulary, hidden] */
    struct tensor position_embeddings; /* [positions, hidden]; empty with rotary positions */
    struct tensor type_embeddings;     /* [token_types, hidden]; empty where there are none */
    struct tensor relative_bias;       /* [RELATIVE_BUCKETS, heads], added to scores; empty where there is none */
    struct layer_norm embedding_norm;
    struct model_layer *layers; /* [layer_count] */
    struct model_head head;
    size_t weight_bytes; /* of all tensors, as in the files, heads included */
    bool read_once; /* the tensors are only for the next engine, which may tensor_release those that it has copied; set
                       by the owner, and by model_release_weights */

    struct tokenizer *tokenizer;
    void *storage; /* struct weights: the weight files' bytes; only open.c looks inside */
};

/* Opens a Hugging Face / sentence-transformers directory of a family in family.c. `options` may be NULL.
 * Owns: the caller ends it with model_close. Errors: STATUS_NOT_FOUND, STATUS_BAD_INPUT, STATUS_UNSUPPORTED (a field
 * that changes the maths and is not known here), STATUS_NO_MEMORY; the message names file and field. Thread: one at a
 * time in the process (cJSON). */
MUST_CHECK enum status model_open(const char *directory, const struct model_options *options, struct model **out,
                                  struct err *err);

/* Frees the model with its weights and its tokenizer. NULL is allowed. */
void model_close(struct model *model);

/* Frees the weights' bytes once an engine has made its own copy; the tensors must not be read after it. */
void model_release_weights(struct model *model);

/* Reads the weights of an open model from its files once more, for an engine that is opened later: a model with sizes
 * and weights and nothing else, read_once. The files must still hold the same weights.
 * Owns: the caller ends it with model_close, after that engine and before `model`. Errors: STATUS_BAD_INPUT (other
 * weights by now), STATUS_NOT_FOUND, STATUS_IO, STATUS_NO_MEMORY, STATUS_UNSUPPORTED (a model not read from a
 * directory). Thread: any, the weights of `model` may be released meanwhile. */
MUST_CHECK enum status model_read_again(const struct model *model, struct model **out, struct err *err);

/* Puts a prompt before a text that will be tokenised: `*text` and `*length` then describe both together. With an empty
 * prompt they stay as they are; otherwise `*text` points into `scratch`, whose content is replaced. Owns: the caller
 * frees `scratch`. Errors: STATUS_NO_MEMORY. Thread: any, each with its own scratch. */
MUST_CHECK enum status prompt_put(const char *prompt, size_t prompt_bytes, struct buffer *scratch, const char **text,
                                  size_t *length, struct err *err);

/* The same with the prompt that the model puts before every text. Owns and Errors: as prompt_put. */
MUST_CHECK enum status model_put_prompt(const struct model *model, struct buffer *scratch, const char **text,
                                        size_t *length, struct err *err);

static inline uint32_t model_head_dim(const struct model *model)
{
    return model->head_dim ? model->head_dim : model->hidden / model->heads;
}

/* Counts the tokens of a text up to the one that a causal model's head reads: the last that is not padding, or else the
 * first. Later tokens change nothing, because it attends to none of them. */
static inline uint32_t model_head_tokens(const struct model *model, const int32_t *ids, uint32_t count)
{
    bool passes = model->head.labels > 0 && model->causal;
    while (passes && count > 1 && (uint32_t)ids[count - 1] == model->head.padding) { count--; }
    return count;
}

/* The number whose square root scores are divided by. */
static inline float model_score_width(const struct model *model)
{
    return model->score_width > 0 ? model->score_width : (float)model_head_dim(model);
}

static inline uint32_t model_key_heads(const struct model *model)
{
    return model->key_heads ? model->key_heads : model->heads;
}

/* The number of floats in a token's queries, and so in its context; and in its keys, or in its values. */
static inline uint32_t model_query_width(const struct model *model)
{
    return model->heads * model_head_dim(model);
}

static inline uint32_t model_key_width(const struct model *model)
{
    return model_key_heads(model) * model_head_dim(model);
}

/* The position row that is added to the first token of a text that is not padding. */
static inline uint32_t model_first_row(const struct model *model)
{
    return model->position_offset > 0;
}

/* The number of rows that are added to the words of a text: one for each of max_tokens positions, after that of padding
 * if the family has one; with rotary positions, one row for all. */
static inline uint32_t model_text_rows(const struct model *model)
{
    return model->rotary[0].base > 0 ? 1 : model->max_tokens + model_first_row(model);
}

/* The row of a text's next token; `*next`, which begins as model_first_row, is advanced. RoBERTa and related families
 * number the tokens that are not padding, and give all padding the position before. */
static inline uint32_t next_position_row(uint32_t position_offset, int32_t id, uint32_t *next)
{
    return (uint32_t)id + 1 == position_offset ? 0 : (*next)++;
}

/* The number of all such rows: if a pair has two token types, as many again follow for its second text. */
static inline uint32_t model_position_rows(const struct model *model)
{
    return model_text_rows(model) * (model->head.pair_types ? 2 : 1);
}

/* Reads those rows: each is a position's embedding, from padding's or position_offset on, plus that of token type 0, or
 * in the second half 1.
 * Shapes: to [model_position_rows, hidden] f32, written. Errors: STATUS_UNSUPPORTED (the model has too few). */
MUST_CHECK enum status model_read_positions(const struct model *model, float *to, struct err *err);

/* Computes the cosines and sines of rotary positions, of the layers that are or are not local. Shapes: to [max_tokens,
 * head_dim]: for each position head_dim / 2 cosines and as many sines. */
void model_read_rotary(const struct model *model, bool local, float *to);

/* Reads the bias that a head adds to its scores (after their scaling), by the key's position less the query's: from
 * -(max_tokens - 1), the first key and the last query, to max_tokens - 1. Shapes: to [2 * max_tokens - 1] f32, written.
 * Errors: STATUS_UNSUPPORTED (the bias does not have the model's sizes). */
MUST_CHECK enum status model_read_relative_bias(const struct model *model, uint32_t head, float *to, struct err *err);

/* Turns a text, with the prompt before it, into at most `most` ids. Shapes: ids [most] int32, written.
 * Errors: those of tokenizer_encode; STATUS_NO_MEMORY. Thread: any. */
MUST_CHECK enum status model_encode(const struct model *model, const char *text, size_t length, uint32_t most,
                                    int32_t *ids, uint32_t *count, bool *truncated, struct err *err);

/* Turns a prompt, which a language model goes on with, into at most max_tokens ids. Owns: the caller frees `*ids`,
 * which is NULL after an error. Errors, Thread: as model_encode. */
MUST_CHECK enum status model_encode_prompt(const struct model *model, const char *text, size_t length, int32_t **ids,
                                           uint32_t *count, bool *truncated, struct err *err);

/* Turns the messages of a chat, JSON as for chat_encode_json, into the ids of a prompt. Owns, Thread: as
 * model_encode_prompt. Errors: those of chat_encode_json; STATUS_UNSUPPORTED (the model's chat format is not known). */
MUST_CHECK enum status model_encode_messages(const struct model *model, const char *json, size_t length, int32_t **ids,
                                             uint32_t *count, struct err *err);

/* Converts `count` elements from `first` on to f32. Shapes: to [count] f32, written. */
void tensor_read_f32(const struct tensor *tensor, size_t first, size_t count, float *to);

/* Returns to the kernel the whole pages of a weight that is not read again; from then on they read as zeros. */
void tensor_release(const struct tensor *tensor);

#endif
