/* Chooses the products of a model that are computed in int8: as many as keep its vectors near those without int8.
 *
 * Each product in int8 adds its rounding to the model's, how much depends on the weights. So a small sample of texts in
 * several languages and scripts goes through the whole model, as requests do: tokenised by its tokenizer with its
 * prompt, or as pairs, and through its modules or its head. If their vectors are not near enough with all products in
 * int8, each product is tried alone, in all layers and then, where that decides what is taken, in fewer. Those that
 * save the most multiplications for their error are taken while the bound holds.
 *
 * A language model has one more product, lm_head, and its sample goes through a decoder, as requests do: what has to be
 * near is how likely it holds each token to come next. */
#ifndef ENGINE_INT8_CHOICE_H
#define ENGINE_INT8_CHOICE_H

#include "engine/backend.h"

/* Opens an engine in int8. Makes the choice on it, or reads it from the folder options->cache_path, where it is kept:
 * it takes a second or a few of processor time, shared by some threads. With PRECISION_INT8_ALL it is all products, and
 * nothing is measured. As engine_open_with otherwise. Errors: those of opening and running an engine. Thread: any. */
MUST_CHECK enum status int8_open(const struct backend_ops *ops, const struct model *model,
                                 const struct engine_options *options, struct engine **out, struct err *err);

#endif
