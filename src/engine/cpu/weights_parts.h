/* What the files of cpu_weights share. */
#ifndef ENGINE_CPU_WEIGHTS_PARTS_H
#define ENGINE_CPU_WEIGHTS_PARTS_H

#include "engine/cpu/weights.h"

/* The model's linears of one site: those that share their input are one product, their outputs behind each other. */
struct site_linears {
    unsigned count;
    const struct linear *part[3];
    uint32_t outputs, inputs; /* of all together */
};

/* Those of a layer; `site` is an enum linear_site. */
struct site_linears cpu_weights_linears(const struct model *model, uint32_t layer, unsigned site);

/* What a tensor holds has been copied: its pages are given back where nobody else will read them. */
void cpu_weights_copied(const struct cpu_weights *weights, const struct tensor *tensor);

/* Says that a weight of so many elements finds no memory. Errors: always STATUS_NO_MEMORY. */
enum status cpu_weights_no_memory(size_t elements, struct err *err);

/* Keeps the embeddings and their norm. Errors: STATUS_NO_MEMORY, STATUS_UNSUPPORTED (not of the model's sizes). */
MUST_CHECK enum status cpu_weights_keep_embeddings(struct cpu_weights *weights, enum precision precision,
                                                   struct err *err);
/* Keeps a layer's norms and biases, and looks whether its products have the model's sizes. Errors: the same. */
MUST_CHECK enum status cpu_weights_keep_vectors(struct cpu_weights *weights, uint32_t layer, struct err *err);

#endif
