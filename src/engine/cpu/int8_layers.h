/* The CPU backend's forward pass in int8: the four products of a layer and what stands between them, on a stream's
 * buffers, for those layers that may be in int8 (struct int8_trial). Attention, LayerNorm and pooling stay what they
 * are in the other precisions; so does the attention's output product where tiles compute it in bf16: it is a twelfth
 * of the work and a sixth of the error. */
#ifndef ENGINE_CPU_INT8_LAYERS_H
#define ENGINE_CPU_INT8_LAYERS_H

#include "engine/cpu/weights.h"

/* A stream's buffers in int8; a row is a token. */
struct int8_space {
    struct scaled_rows hidden; /* what queries, keys, values and the intermediate product read; without offsets */
    struct scaled_rows inner;  /* the attention's context, or the activated intermediate product; with offsets */
    int32_t *sums;             /* of a product that ends in a residual, */
    float *product;            /* or what it gives; the same memory */
};

/* The stream's other buffers, as they are before or after a product. */
struct int8_work {
    uint32_t rows;
    float *hidden;              /* [rows, hidden] */
    struct activations qkv;     /* [rows, 3 hidden]: bf16 with bias for attention on tiles, else f32 without */
    struct activations context; /* [rows, hidden]: one of the two */
    uint16_t *intermediate;     /* [rows, intermediate]; may be qkv's memory */
    unsigned chunk, chunks;     /* the part of a product's outputs that int8_pass_linear computes */
};

/* Lays the buffers for `rows` tokens out in `block`, whose first byte and 64-byte multiples are aligned, or nowhere;
 * returns their size. */
size_t int8_space_lay_out(struct int8_space *space, const struct model *model, size_t rows, char *block);

/* work->hidden has been written: by the embedding. */
void int8_pass_embedded(struct int8_space *space, const struct cpu_weights *weights, const struct int8_work *work);

/* Rounds what a product reads, where that has not been done on the way. */
void int8_pass_prepare(struct int8_space *space, const struct cpu_weights *weights, const struct int8_work *work,
                       enum linear_site site);

/* The op of that name, see struct backend_ops: of the linear one, only work->chunk of its outputs. */
void int8_pass_linear(struct int8_space *space, const struct cpu_weights *weights, const struct int8_work *work,
                      uint32_t layer, enum linear_site site);
void int8_pass_norm(struct int8_space *space, const struct cpu_weights *weights, const struct int8_work *work,
                    uint32_t layer, enum norm_site site);

/* How many layers of a model int8 may have. Each layer that is computed in whole numbers adds its rounding to that of
 * the others, and by how much lies in the weights. So before a model's weights are packed, some texts of one token go
 * through it in f32; and while they are packed, the last layer first, the same go through those that are in int8 so
 * far, for as long as what comes out is near enough. A text of one token needs no attention (its only weight is one),
 * and short texts are those whose roundings no mean takes away. */
struct int8_trial;

/* Takes the texts through all layers in f32. Of `weights` there have to be embeddings, norms and biases; the model's
 * products fit its sizes, and are read once. Owns: the caller ends it with int8_trial_close.
 * Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status int8_trial_open(const struct cpu_weights *weights, struct int8_trial **out, struct err *err);

/* Takes them from what came out of the layers before `first` through the others in int8. Returns whether the vectors
 * are near enough to those in f32. */
bool int8_trial_passes(struct int8_trial *trial, uint32_t first);

/* Frees it. NULL is allowed. */
void int8_trial_close(struct int8_trial *trial);

#endif
