/* Layers in int8, and the other layers of an int8 model in int16: their four products and the steps between these, on a
 * workspace's buffers. Attention, its output product, LayerNorm and pooling are the same as in other precisions. */
#ifndef ENGINE_CPU_INT8_LAYERS_H
#define ENGINE_CPU_INT8_LAYERS_H

#include "engine/cpu/cpu_weights.h"

/* A workspace's buffers in int8; a row is a token. */
struct int8_space {
    struct scaled_rows hidden; /* input of the QKV and intermediate products; without offsets */
    struct scaled_rows inner;  /* the activated intermediate product, with offsets; any input in int16 */
    int32_t *sums;             /* of the output product, */
    float *product;            /* or the attention's output; the same memory */
};

/* The other buffers of the workspace. */
struct int8_work {
    uint32_t rows;
    float *sum;                 /* [rows, hidden] before the normalisation; may be the next */
    float *hidden;              /* [rows, hidden] */
    struct activations qkv;     /* [rows, 3 hidden]: bf16 with bias for attention on tiles, else f32 without */
    struct activations context; /* [rows, hidden]: one of the two */
    uint16_t *intermediate;     /* [rows, intermediate]; may be qkv's memory */
    unsigned chunk, chunks;     /* the part that is computed: of a product's outputs, or of the rows */
};

/* Lays the buffers for `rows` tokens out in `block`, whose first byte is 64-byte aligned, or nowhere (NULL); returns
 * their size. */
size_t int8_space_lay_out(struct int8_space *space, const struct model *model, size_t rows, char *block);

/* Quantises work->hidden after the embedding, or after the last layer that is not in int8. */
void int8_pass_embedded(struct int8_space *space, const struct cpu_weights *weights, const struct int8_work *work);

/* True if int8_pass_prepare has anything to do. */
bool int8_pass_prepares(const struct cpu_weights *weights, uint32_t layer, enum linear_site site);

/* Quantises rows of the input of the output product, and in int16 of every product; an earlier step has done so for the
 * others. */
void int8_pass_prepare(struct int8_space *space, const struct cpu_weights *weights, const struct int8_work *work,
                       uint32_t layer, enum linear_site site);

/* The ops of struct backend_ops, for some of a product's outputs and for some of the rows. */
void int8_pass_linear(struct int8_space *space, const struct cpu_weights *weights, const struct int8_work *work,
                      uint32_t layer, enum linear_site site);
void int8_pass_norm(struct int8_space *space, const struct cpu_weights *weights, const struct int8_work *work,
                    uint32_t layer, enum norm_site site);

/* Decides how many layers of a model may be in int8. Each one adds its rounding errors to those of the others; how much
 * depends on the weights. Before the weights are packed, some texts of one token go through the model in f32; while
 * they are packed, from the last layer on, the same texts go through the layers that are in int8 so far, until the
 * result is too far off. A text of one token needs no attention, since its only weight is 1, and the rounding errors of
 * short texts are not averaged away. */
struct int8_trial;

/* Takes the texts through all layers in f32. `weights` must hold embeddings, norms and biases; the model's products
 * have been checked against its sizes, and are read once. Owns: the caller ends it with int8_trial_close. Errors:
 * STATUS_NO_MEMORY, STATUS_INTERNAL. */
MUST_CHECK enum status int8_trial_open(const struct cpu_weights *weights, struct int8_trial **out, struct err *err);

/* Takes the exact input of layer `first` through it and all later layers in int8. Returns whether the vectors are close
 * enough to those in f32. */
bool int8_trial_passes(struct int8_trial *trial, uint32_t first);

/* Frees it. NULL is allowed. */
void int8_trial_close(struct int8_trial *trial);

#endif
